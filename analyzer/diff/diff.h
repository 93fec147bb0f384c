/* Compares two recordings: what grew and what shrank, by line, function, file, category or owner, and the other
 * figures of a run. match.h pairs lines; processes are paired by rank, else in order.
 *
 * The rows sum to the totals: changes that are too small for a row of their own and unchanged lines have a sum each,
 * and events without a stack have a row. diff(b, a) is diff(a, b) with all signs reversed. Weights are bytes, or
 * nanoseconds for waits. Strings live until diff_free or belong to the runs.
 */
#pragma once

#include "analyzer/diff/match.h"
#include "analyzer/profile/profile.h"
#include "analyzer/report/report.h"

#define DIFF_BYS(X) X(LINE, "line") X(FUNCTION, "function") X(FILE, "file") X(CATEGORY, "category") X(OWNER, "owner")
#define DIFF_ENUM_BY(s, w) DIFF_##s,
enum diff_by { DIFF_BYS(DIFF_ENUM_BY) DIFF_BYS_N };
const char *diff_by_word(enum diff_by by);

struct diff_request {
    enum profile_what what; /* not AT */
    enum diff_by by;
    int layer;          /* of profile_request */
    int device;         /* -1 any */
    int64_t rank;       /* -1 any */
    int64_t least;      /* the smallest change that gets a row; RUN_UNKNOWN: a hundredth of all changes */
    double least_share; /* the same, as a share of the larger total; 0 none */
    size_t top;         /* rows listed */
};

struct diff_side {
    struct run *run;              /* opened with options.memory_map if categories are wanted */
    struct result_report *report; /* with complete lists */
};

enum { DIFF_BEFORE, DIFF_AFTER };

struct diff_sum {
    int64_t weight[2];
    uint64_t count[2];
    size_t rows; /* number of rows that were combined */
};

struct diff_row {
    struct diff_sum sum;
    bool present[2];
    enum diff_match_how how;       /* how its two call sites were paired; NONE: only one side has it */
    bool inferred;                 /* not the same file, function and line by name */
    struct result_site site[2];    /* of line, function, file; known: false if no stack was recorded */
    const char *name;              /* of category and owner, for display; else NULL */
    enum result_category category; /* of most of its change; also UNKNOWN if none were requested */
    uint32_t units;                /* processes and devices in which it changed */
};

/* A process's device on both sides. */
struct diff_unit {
    uint32_t process[2]; /* index, RUN_NONE */
    int device[2];
    struct diff_sum sum;
};

/* One figure of the runs. NAN: unknown or not applicable. */
struct diff_figure {
    const char *key, *name; /* "waits_per_step", "waits per step" */
    const char *unit;       /* "bytes" "s" "count", NULL: texts */
    double value[2];
    const char *text[2]; /* NULL: there is none */
    const char *lines;   /* options of `gpuspy diff` that compare it by line; NULL: none */
};

/* The peak within the NVTX ranges of a name, of the process and GPU where it was highest. */
struct diff_scope {
    const char *name, *domain; /* domain NULL: the default one */
    double peak[2];            /* NAN: unknown, or the range does not exist */
    uint64_t count[2];         /* ranges; 0: there is none */
};

struct diff {
    struct diff_request wish;
    const char *unit;    /* "bytes" | "ns" */
    const char *title;   /* "live at the peak" */
    const char *layer;   /* "tensors", if all of both sides is of one kind; else NULL */
    const char *verdict; /* one sentence */
    const char *unknown; /* a sentence: why one recording lacks the compared data, so that there are no rows and no
                            total; NULL: both have it */
    const char *more;    /* a second sentence, about running out of memory; NULL */
    struct diff_sum total;
    ARENA_ROWS(struct diff_row, rows);       /* largest change first */
    struct diff_sum smaller[2];              /* changes that are not listed: shrunk, grown */
    struct diff_sum same;                    /* what did not change */
    ARENA_ROWS(struct diff_row, categories); /* all of them; none if no block has one */
    ARENA_ROWS(struct diff_unit, units);
    bool by_rank; /* the processes were paired by rank; else in order */
    ARENA_ROWS(struct diff_figure, figures);
    ARENA_ROWS(struct diff_scope, scopes);     /* widest change first */
    enum run_series_layer scopes_layer;        /* of whose memory */
    ARENA_ROWS(struct diff_match_file, files); /* that have another path */
    size_t inferred;                           /* rows listed whose pairing is inferred */
    ARENA_ROWS(const char *, notes);
};

/* NULL and a line in `error` if a database could not be read. */
struct diff *diff_build(const struct diff_side side[2], const struct diff_request *wish, char *error,
                        size_t error_size);
void diff_free(struct diff *diff);

static inline int64_t diff_change(const struct diff_sum *s)
{
    return s->weight[DIFF_AFTER] - s->weight[DIFF_BEFORE];
}

struct json_t;
struct json_t *json_diff(const struct diff *d, const struct diff_side side[2], const char *const path[2]);
