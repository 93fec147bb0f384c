/* The texts, frames and stacks that a page refers to: those that are used, each once. Internal to
 * view_html.c and page_*.c. */
#pragma once

#include "analyzer/base/texts.h"
#include "analyzer/page/page_writer.h"
#include "analyzer/report/report.h"

struct page_stacks {
    struct run *run;
    struct map helpers; /* functions, see site_helpers */
    struct texts strings;
    size_t texts;        /* their bytes, counting at most the part of each that is always shown */
    struct map frame_of; /* by address */
    struct page_column native, function, file, line, module;
    uint32_t frames_n;
    struct map stack_of; /* the run's → the page's */
    struct page_column parent, frame;
    uint32_t stacks_n;
    uint64_t shortened; /* stacks without their native frames, for which there was no room */
    uint64_t innermost; /* stacks of which only the innermost frame is kept */
    struct map site_of; /* the run's stack → string */
    uint32_t *sited;    /* by the page's stack: its site's string, 0 not computed */
    size_t sited_cap;
};

void page_stacks_start(struct page_stacks *s, struct run *run);
void page_stacks_free(struct page_stacks *s);
/* A text's number, from 1 on; 0: NULL. The text is copied. */
uint32_t page_string(struct page_stacks *s, const char *text);
/* A stack's number, -1: RUN_NONE. Also adds its site. The first stacks that are added keep their native frames. */
int64_t page_stack(struct page_stacks *s, uint32_t stack);
/* Equal for stacks of the same site. Adds nothing to the page. */
uint64_t page_site_key(const struct page_stacks *s, uint32_t stack);
/* "train.py:12 in step", as the string's number. */
uint32_t page_site(struct page_stacks *s, uint32_t stack);
/* strings, frames, stacks; last of all. */
void page_stacks_put(struct page_stacks *s, struct page_writer *w);
