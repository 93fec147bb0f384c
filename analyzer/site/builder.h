/* What is at hand while a report is built: the run, the result so far, its arena, and the lists that
 * every question makes. */
#ifndef GPUSPY_BUILDER_H
#define GPUSPY_BUILDER_H

#include "analyzer/base/arena.h"
#include "analyzer/result/result.h"
#include "analyzer/site/site.h"

struct gs_builder {
    struct gs_run *run;
    struct gs_report *report;
    struct gs_arena *arena; /* the report's */
    size_t top;             /* entries a list may have */
    const struct gs_options *options;
    struct gs_map helpers; /* functions, see gs_site_helpers */
    /* sites, each (site, caller) once */
    struct gs_site *sites;
    size_t sites_n, sites_cap;
    struct gs_map site_of_key;
    uint32_t *site_of_stack;
    size_t site_of_stack_cap;
    struct gs_owners *owners;         /* see owner.h */
    struct gs_allocators *allocators; /* see allocator.h */
    /* by location: its growth verdict, from growth.c, for oom.c and the leaks */
    uint8_t *growing;
    size_t growing_n;
    struct gs_step_finder *steps; /* ask gs_steps_of, step.h */
    struct gs_budgets *budgets;
};

/* Number of the stack's site in b->sites. GS_NONE as stack is a site too: the unknown one. */
uint32_t gs_site_number(struct gs_builder *b, uint32_t stack);
struct gs_trace gs_trace_of(struct gs_builder *b, uint32_t stack);
/* "a.py:3 in f, called at b.py:7" in the arena. */
const char *gs_site_path(struct gs_builder *b, const struct gs_site *site);
/* The short form: "a.py:3 (from b.py:7)", the caller only where it is in another file. */
const char *gs_site_line(struct gs_builder *b, const struct gs_site *site);
/* "1.50 GiB" in the arena. */
const char *gs_bytes_text(struct gs_builder *b, double bytes);

static inline double gs_seconds(int64_t ns)
{
    return ns == GS_UNKNOWN || ns == GS_NEVER ? __builtin_nan("") : (double)ns / 1e9;
}

/* What was live, by location, to be listed by stack and by site. */
struct gs_share {
    uint32_t stack;
    int64_t bytes;
    uint64_t count;
};
/* Both sort `shares`, heaviest first, drop empty ones, and cut to b->top; *total is the uncut
 * number. */
struct gs_by_stack *gs_list_by_stack(struct gs_builder *b, struct gs_share *shares, size_t n, size_t *listed,
                                     size_t *total);
struct gs_by_site *gs_list_by_site(struct gs_builder *b, const struct gs_share *shares, size_t n, size_t *listed,
                                   size_t *total);
struct gs_by_site *gs_list_by_line(struct gs_builder *b, const struct gs_share *shares, size_t n, size_t *listed,
                                   size_t *total);

/* A list of the report from a work list: sorted, cut to the top, copied into the arena. */
void *gs_list(struct gs_builder *b, void *work, size_t n, size_t size, int (*order)(const void *, const void *),
              size_t *listed, size_t *total);

/* lines.c: how rows of a list become rows of lines. */
struct gs_line_form {
    size_t size, site, paths;          /* of a row; where its gs_site and its gs_paths are */
    uint64_t (*kind)(const void *row); /* rows of different kinds are not added up; NULL: one kind */
    void (*add)(void *into, const void *from);
    struct gs_line_path (*path)(const void *row);
    int (*order)(const void *, const void *);
};
/* `work` is sorted, heaviest first, and each row has its site: of a line's paths the first names what all share. */
void *gs_lines_of(struct gs_builder *b, const void *work, size_t n, const struct gs_line_form *form, size_t *listed,
                  size_t *total);
/* Of a line: the calls of both. */
void gs_pace_add(struct gs_pace *into, const struct gs_pace *from);

/* Zeroed room for element `index` in an array that grows with what it is indexed by. */
void *gs_reach(void *p, size_t index, size_t *cap, size_t size);
#define GS_REACH(p, index, cap) \
    ((index) < (cap) ? &(p)[index] : ((p) = gs_reach((p), (index), &(cap), sizeof *(p)), &(p)[index]))

/* The time that shares are of: the sum over the processes, never 0. */
double gs_wall(const struct gs_builder *b);

#endif
