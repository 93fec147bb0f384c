/* The texts, frames and stacks that a page refers to: those that are used, each once. Internal to
 * view_html.c and page_*.c. */
#ifndef GPUSPY_PAGE_STACKS_H
#define GPUSPY_PAGE_STACKS_H

#include "analyzer/page/page_writer.h"
#include "analyzer/report/report.h"

struct gs_page_stacks {
    struct gs_run *run;
    struct gs_map helpers; /* functions, see gs_site_helpers */
    struct gs_map string_of;
    const char **strings;
    size_t strings_n, strings_cap;
    size_t texts;           /* their bytes, of each as many as are always shown */
    struct gs_arena arena;  /* of those that are not the run's */
    struct gs_map frame_of; /* by address */
    struct gs_column native, function, file, line, module;
    uint32_t frames_n;
    struct gs_map stack_of; /* the run's → the page's */
    struct gs_column parent, frame;
    uint32_t stacks_n;
    uint64_t shortened;    /* stacks without their native frames: there is no room for all */
    uint64_t innermost;    /* stacks of which there is the innermost frame alone */
    struct gs_map site_of; /* the run's stack → string */
    uint32_t *sited;       /* by the page's stack: its site's string, 0 not asked */
    size_t sited_cap;
};

void gs_page_stacks_start(struct gs_page_stacks *s, struct gs_run *run);
void gs_page_stacks_free(struct gs_page_stacks *s);
/* A text's number, from 1 on; 0: NULL. The text is copied. */
uint32_t gs_page_string(struct gs_page_stacks *s, const char *text);
/* A stack's number, -1: GS_NONE. With its site. The first that are asked for keep their native frames. */
int64_t gs_page_stack(struct gs_page_stacks *s, uint32_t stack);
/* "train.py:12 in step", as the string's number. */
uint32_t gs_page_site(struct gs_page_stacks *s, uint32_t stack);
/* strings, frames, stacks; last of all. */
void gs_page_stacks_put(struct gs_page_stacks *s, struct gs_page_writer *w);

#endif
