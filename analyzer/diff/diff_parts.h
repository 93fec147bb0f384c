/* What the files that build a comparison share. */
#ifndef GPUSPY_DIFF_PARTS_H
#define GPUSPY_DIFF_PARTS_H

#include "analyzer/base/arena.h"
#include "analyzer/diff/diff.h"
#include "analyzer/question/question.h"

/* diff_sites.c: the places of one side, for the matcher. */
#define GS_DIFF_EXIT (GS_NONE - 1) /* Python's tear-down: no line */
struct gs_diff_sites {
    struct gs_run *run;
    struct gs_match_site *sites;
    size_t n, cap;
    struct gs_map by_frame; /* file, function, line → site */
    struct gs_map helpers;
    struct gs_map of_stack; /* stack → place, once asked */
    struct gs_diff_place {  /* where a stack's weight is listed */
        struct gs_site site;
        uint32_t number; /* of the site in `sites`, GS_DIFF_EXIT, GS_NONE: no stack */
    } * places;
    size_t places_n, places_cap;
    uint64_t *calls;
    struct gs_arena arena;
};
void gs_diff_sites_fill(struct gs_diff_sites *s, struct gs_run *run, const struct gs_profile *p);
void gs_diff_sites_free(struct gs_diff_sites *s);
/* A function that is a helper on one side is one on both. Before the first place is asked for. */
void gs_diff_sites_agree(struct gs_diff_sites *a, struct gs_diff_sites *b, const struct gs_match *m);
/* Valid until the next call. */
const struct gs_diff_place *gs_diff_place_of(struct gs_diff_sites *s, uint32_t stack);

struct gs_diff_owner { /* the diff comes first, so that a pointer to it is one to this */
    struct gs_diff diff;
    struct gs_arena arena;
    size_t notes_cap;
};
void gs_diff_note(struct gs_diff_owner *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* diff_figures.c: the runs' other figures side by side. */
void gs_diff_figures(struct gs_diff_owner *o, const struct gs_diff_side side[2]);
/* diff_words.c: the verdict. */
void gs_diff_words(struct gs_diff_owner *o, const struct gs_diff_side side[2]);

#endif
