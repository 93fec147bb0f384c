/* What the files that build a comparison share. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/diff/diff.h"
#include "analyzer/question/question.h"

/* diff_sites.c: the call sites of one side, for the matcher. */
#define DIFF_EXIT (RUN_NONE - 1) /* Python's tear-down: no line */
struct diff_sites {
    struct run *run;
    struct diff_match_site *sites;
    size_t n, cap;
    struct map by_frame; /* file, function, line → site */
    struct map helpers;
    struct map of_stack; /* stack → call site, once looked up */
    struct diff_place {  /* the row in which a stack's weight is listed */
        struct result_site site;
        uint32_t number; /* of the site in `sites`, DIFF_EXIT, RUN_NONE: no stack */
    } * places;
    size_t places_n, places_cap;
    uint64_t *calls;
    struct arena arena;
};
void diff_sites_fill(struct diff_sites *s, struct run *run, const struct profile *p);
void diff_sites_free(struct diff_sites *s);
/* A function that is a helper on one side is one on both. Call before the first look-up. */
void diff_sites_agree(struct diff_sites *a, struct diff_sites *b, const struct diff_match *m);
/* Valid until the next call. */
const struct diff_place *diff_place_of(struct diff_sites *s, uint32_t stack);

struct diff_owner { /* the diff comes first, so that a pointer to it is also one to this */
    struct diff diff;
    struct arena arena;
    size_t notes_cap;
};
void diff_add_note(struct diff_owner *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* diff_figures.c: the runs' other figures side by side. */
void diff_add_figures(struct diff_owner *o, const struct diff_side side[2]);
/* diff_scopes.c: the peaks within NVTX ranges. */
void diff_add_scopes(struct diff_owner *o, const struct diff_side side[2]);
/* diff_words.c: the verdict. */
void diff_write_verdict(struct diff_owner *o, const struct diff_side side[2]);
