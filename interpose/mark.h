/* What the program marks itself: ranges and moments. They are events like others, but without a stack: ranges are
 * frequent, and their names identify them. */
#pragma once

#include <stddef.h>
#include <wchar.h>
#include "interpose/recorder.h"

/* A string as it will be written: UTF-8, at most GS_STRING_MAX bytes. It is not copied. */
struct gs_mark_text {
    const void *at;
    size_t bytes; /* as UTF-8 */
    bool wide;    /* wchar_t, which must be converted */
};
struct gs_mark_text gs_mark_text(const char *text, size_t most); /* NULL: empty */
struct gs_mark_text gs_mark_wide(const wchar_t *text);           /* likewise */
/* At most this many bytes, cut at the beginning of a character. */
struct gs_mark_text gs_mark_cut(struct gs_mark_text text, size_t most);
/* Are both equal? */
bool gs_mark_same(struct gs_mark_text utf8, struct gs_mark_text text);
/* Writes text.bytes bytes, no terminator. */
void gs_mark_copy(char *to, struct gs_mark_text text);

/* Between gs_enter_mark and gs_leave_mark, or gs_enter and gs_leave. A NULL t records nothing. */
void gs_record_mark_text(struct gs_thread *t, uint8_t kind, uint64_t id, struct gs_mark_text domain,
                         struct gs_mark_text name);

/* mark_early.c: a range that began before anything recorded. */
struct gs_mark_early {
    const void *owner; /* the thread of a nested range; NULL: any thread may end it */
    uint32_t domain;
    uint64_t level;                  /* of a nested range; otherwise its id */
    uint64_t id;                     /* the id under which it is recorded */
    struct gs_mark_text domain_name; /* stays at this address */
};
/* False: a session records by now, so the range is not added. */
bool gs_mark_early_add(const struct gs_mark_early *range, struct gs_mark_text name);
/* The range ends. True: it was one of these; *id: the end to record, 0 none. */
bool gs_mark_early_end(const struct gs_mark_early *range, uint64_t *id);
/* In each thread of a session, the first included: writes the ranges that the session does not have yet. */
void gs_mark_early_write(struct gs_thread *t);

/* gs_enter for what is not a CUDA call: also NULL if no session records yet, because it starts none. */
struct gs_thread *gs_enter_mark(void);
void gs_leave_mark(struct gs_thread *t);
