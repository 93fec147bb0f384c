/* The state while a report is built: the run, the result so far, its arena, and the lists that every question makes. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/result/result.h"
#include "analyzer/site/python_code.h"
#include "analyzer/site/site.h"

struct site_file_code {
    const char *const *lines; /* of run_source_text */
    struct site_code code;
};
enum site_growing {
    SITE_GROWING_NOT,
    SITE_GROWING,
    SITE_GROWING_OTHER_CALL /* of the function in which another call path grows */
};

struct site_builder {
    struct run *run;
    struct result_report *report;
    struct arena *arena; /* the report's */
    size_t top;          /* entries per list */
    const struct run_options *options;
    struct map helpers; /* functions, see site_helpers */
    /* sites, each (site, caller) once */
    ARENA_LIST(struct result_site, sites);
    struct map site_of_key;
    uint32_t *site_of_stack;
    size_t site_of_stack_cap;
    struct site_owners *owners;          /* see owner.h */
    struct allocator_replay *allocators; /* see allocator.h */
    /* by location: its verdict on growth (enum site_growing), from growth.c, for oom.c and the leaks */
    ARENA_ROWS(uint8_t, growing);
    ARENA_LIST(struct site_file_code, codes); /* of source files, for holder.c */
    struct step_finder *steps;                /* use step_list_of, step.h */
    struct question_budgets *budgets;
};

/* What it allocated itself: not its owners, allocators, steps and budgets. */
void site_builder_free(struct site_builder *b);

/* Number of the stack's site in b->sites. The stack RUN_NONE also has a site: the unknown one. */
uint32_t site_index(struct site_builder *b, uint32_t stack);
/* The stack's own site: others with its number may have another `via`. */
struct result_site site_of_call(const struct site_builder *b, uint32_t stack);
struct result_trace site_trace(struct site_builder *b, uint32_t stack);
/* "a.py:3 in f, called at b.py:7" in the arena. */
const char *site_text_with_caller(struct site_builder *b, const struct result_site *site);
/* The short form: "a.py:3 (from b.py:7)", with the caller only if it is in another file. */
const char *site_short_text(struct site_builder *b, const struct result_site *site);
/* "1.50 GiB" in the arena. */
const char *site_bytes_text(struct site_builder *b, double bytes);

static inline double site_seconds(int64_t ns)
{
    return ns == RUN_UNKNOWN || ns == RUN_NEVER ? __builtin_nan("") : (double)ns / 1e9;
}

/* The live memory of a location, to be listed by stack and by site. */
struct site_share {
    uint32_t stack;
    int64_t bytes;
    uint64_t count;
};
/* Both sort `shares`, largest first, drop empty ones, and cut to b->top; *total is the uncut number. */
struct result_by_stack *site_list_by_stack(struct site_builder *b, struct site_share *shares, size_t n, size_t *listed,
                                           size_t *total);
struct result_by_site *site_list_by_site(struct site_builder *b, const struct site_share *shares, size_t n,
                                         size_t *listed, size_t *total);
struct result_by_site *site_list_by_line(struct site_builder *b, const struct site_share *shares, size_t n,
                                         size_t *listed, size_t *total);

/* A list of the report from a work list: sorted, cut to the top, copied into the arena. */
void *site_list(struct site_builder *b, void *work, size_t n, size_t size, int (*order)(const void *, const void *),
                size_t *listed, size_t *total);

/* lines.c: how rows of a list are combined into rows of lines. */
struct site_line_form {
    size_t size, site, paths;          /* size of a row; offsets of its result_site and its result_paths */
    uint64_t (*kind)(const void *row); /* rows of different kinds are not added up; NULL: one kind */
    void (*add)(void *into, const void *from);
    struct result_line_path (*path)(const void *row);
    int (*order)(const void *, const void *);
};
#define SITE_LINE_FORM(type, its_site, ...)                                                                 \
    {                                                                                                       \
        .size = sizeof(type), .site = offsetof(type, its_site), .paths = offsetof(type, paths), __VA_ARGS__ \
    }
/* Defines a form's function `path`, of a row `x` of `type`: SITE_LINE_PATH(path_of, struct row, .bytes = x->bytes) */
#define SITE_LINE_PATH(name, type, ...)                  \
    static struct result_line_path name(const void *row) \
    {                                                    \
        const type *x = row;                             \
        return (struct result_line_path){__VA_ARGS__};   \
    }
/* `work` is sorted, largest first, and each row has its site: the first path of a line gets the caller and library that
 * all of its paths share. */
void *site_lines_of(struct site_builder *b, const void *work, size_t n, const struct site_line_form *form,
                    size_t *listed, size_t *total);
/* Adds the calls of one path to those of its line. */
void site_add_pace(struct result_pace *into, const struct result_pace *from);

/* Zeroed room for element `index` in an array that grows with its indexes. */
void *site_reach(void *p, size_t index, size_t *cap, size_t size);
#define SITE_REACH(p, index, cap) \
    ((index) < (cap) ? &(p)[index] : ((p) = site_reach((p), (index), &(cap), sizeof *(p)), &(p)[index]))

/* The time to which shares refer: the sum over the processes, never 0. */
double site_wall_seconds(const struct site_builder *b);
