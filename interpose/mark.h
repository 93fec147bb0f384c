/* What the program says of itself: ranges and moments. They are events like others, without a
 * stack: ranges are frequent, and say where they are by their name. */
#ifndef GPUSPY_MARK_H
#define GPUSPY_MARK_H

#include <stddef.h>
#include <wchar.h>
#include "interpose/recorder.h"

/* A string as it will be written: UTF-8, at most GS_STRING_MAX bytes of it. It is not copied. */
struct gs_mark_text {
    const void *at;
    size_t bytes; /* as UTF-8 */
    bool wide;    /* wchar_t, to be converted */
};
struct gs_mark_text gs_mark_text(const char *text, size_t most); /* NULL: empty */
struct gs_mark_text gs_mark_wide(const wchar_t *text);           /* likewise */
/* At most so many bytes of it, cut where a character begins. */
struct gs_mark_text gs_mark_cut(struct gs_mark_text text, size_t most);
/* Whether both are the same. */
bool gs_mark_same(struct gs_mark_text utf8, struct gs_mark_text text);
/* Writes text.bytes bytes, no terminator. */
void gs_mark_copy(char *to, struct gs_mark_text text);

/* Between gs_enter_mark and gs_leave_mark, or gs_enter and gs_leave. A NULL t records nothing. */
void gs_record_mark_text(struct gs_thread *t, uint8_t kind, uint64_t id, struct gs_mark_text domain,
                         struct gs_mark_text name);

/* mark_early.c: a range that was begun while nothing recorded yet. */
struct gs_mark_early {
    const void *owner; /* of a nested one its thread; NULL: any thread may end it */
    uint32_t domain;
    uint64_t level;                  /* of a nested one; else its id */
    uint64_t id;                     /* as which it is recorded */
    struct gs_mark_text domain_name; /* stays where it is */
};
/* False: a session records by now, without it. */
bool gs_mark_early_add(const struct gs_mark_early *range, struct gs_mark_text name);
/* It ends. True: it was one of these; *id: the end to record, 0 none. */
bool gs_mark_early_end(const struct gs_mark_early *range, uint64_t *id);
/* In the first thread of a session, and in each further one: those that the session does not have. */
void gs_mark_early_write(struct gs_thread *t);

/* gs_enter for what is no CUDA call: NULL also where no session records yet, as none is started. */
struct gs_thread *gs_enter_mark(void);
void gs_leave_mark(struct gs_thread *t);

#endif
