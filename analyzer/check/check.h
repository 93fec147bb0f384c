/* gpuspy check: limits, the measured figures, and the verdict on each.
 *
 *   limits.c   limits from the command line and from a file → struct check_limits (limits_list.c)
 *   measure.c  one function per gate (gates.def): a report → readings, with lines of code (line.c)
 *   check.c    opens the recording, process by process, and compares readings with limits → struct check
 *   view_*.c   text, JSON, JUnit's XML, GitHub's annotations
 *
 * Figures are doubles: bytes, counts and shares far below 2^53. NAN: unknown, which is never ok.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include "analyzer/base/arena.h"
#include "analyzer/estimate/settings.h"
#include "analyzer/base/options.h"
#include "analyzer/report/report.h"

enum check_gate_unit {
    UNIT_EVENTS, /* a count, none allowed; it has no option */
    UNIT_FLAG,   /* the same, with an option */
    UNIT_LEAKS,  /* bytes, none allowed */
    UNIT_COUNT,
    UNIT_BYTES,
    UNIT_PEAK,        /* bytes, of the whole run or of an NVTX range: "10GiB", "scope:load=10GiB" */
    UNIT_BYTES_STEP,  /* "1MiB" or "1MiB/step" */
    UNIT_NUMBER_STEP, /* "2", "0.5/step" */
    UNIT_SHARE,       /* "5%" */
    UNIT_BUDGET
};
#define GATE(id, ...) GATE_##id,
enum check_gate_id {
#include "analyzer/check/gates.def"
    GATES_N
};

struct checking;
struct check_result;
struct check_gate {
    const char *option; /* NULL: always checked */
    enum check_gate_unit unit;
    const char *argument, *what, *help;
    void (*measure)(struct checking *c);
    void (*explain)(struct checking *c, struct check_result *r);
};
extern const struct check_gate check_gates[GATES_N];
const char *check_gate_name(enum check_gate_id id); /* its option, or "recording" */
static inline bool check_gate_is_flag(const struct check_gate *g)
{
    return g->unit == UNIT_FLAG || g->unit == UNIT_LEAKS;
}
/* "1.50 MiB per step" */
#define GATE_VALUE 64
char *check_gate_value(const struct check_gate *g, double value, char out[GATE_VALUE]);

struct check_budget_limit {
    struct estimate estimate;
    double tolerance;   /* share */
    double activations; /* bytes, NAN: not given */
};
struct check_limit {
    bool off; /* a section removes it */
    const char *
        scope; /* the NVTX range that it applies to, NULL the whole run; until it is added, a part of the parsed text */
    size_t scope_length;
    bool relative;   /* relative to the baseline: value is a share of it, or a number of bytes or calls above it */
    bool of_share;   /* … a share */
    bool unreadable; /* no limit, because it names a file that is not a model */
    double value;
    struct check_budget_limit budget;
};
/* "10GiB", "+5%", … as a limit of that gate. False: the reason in `why`, to be printed after the text. */
#define LIMIT_WHY 512
bool check_limit_parse(const struct check_gate *g, const char *text, struct check_limit *out, char why[LIMIT_WHY]);

struct check_limit_entry {
    enum check_gate_id gate;
    const char *glob; /* of databases, NULL any */
    int device;       /* -1 any */
    struct check_limit limit;
};
struct check_limits {
    struct arena arena;
    struct check_limit_entry *entries; /* later ones take precedence */
    size_t n, cap;
    bool allow_incomplete; /* a setting in the file */
    bool unreadable;       /* check_limits_read failed, because a limit was unreadable */
};
/* Copies the name of the scope. */
void check_limits_add(struct check_limits *l, const struct check_limit_entry *entry);
/* The lines of a file, `name` for errors: "name:3: …". False: one line in `error`. */
bool check_limits_read(struct check_limits *l, const char *text, size_t size, const char *name, char *error,
                       size_t error_size);
/* NULL: none. `paths`: all paths of the process, ending with NULL. */
const struct check_limit *check_limits_find(const struct check_limits *l, enum check_gate_id gate, const char *scope,
                                            const char *const *paths, int device);
/* Is there one for some device, of the whole run or of a scope? */
bool check_limits_has(const struct check_limits *l, enum check_gate_id gate, const char *const *paths);
bool check_is_same_scope(const char *a, const char *b); /* NULL: the whole run */
/* The scopes that have a limit, each once: the next after `*at` entries; NULL: no more. */
const char *check_limits_scope(const struct check_limits *l, enum check_gate_id gate, const char *const *paths,
                               size_t *at);
void check_limits_free(struct check_limits *l);

struct check_line {   /* the origin of a figure */
    const char *file; /* as recorded, NULL unknown */
    int line;
    const char *function; /* NULL unknown */
    const char *place;    /* "train.py:12 step": for display, relative to the program's working directory */
    const char *brief;    /* the same within the request's columns; file and line are never cut */
    double amount;        /* in the gate's unit, NAN: none */
    const char *note;     /* NULL none */
};
enum check_status { CHECK_OK, CHECK_FAILED, CHECK_UNKNOWN };
struct check_result {
    enum check_gate_id gate;
    enum check_status status;
    const char *path; /* of the process's database */
    uint32_t pid;
    int64_t rank;             /* RUN_UNKNOWN */
    bool several;             /* the run has several processes: name this one */
    int device;               /* -1 none */
    const char *scope;        /* the NVTX range that it applies to, NULL the whole run */
    int64_t moment_ns;        /* of a scope's peak; RUN_UNKNOWN */
    const char *gpu;          /* as its host knows it, with the host; "" none */
    unsigned shared;          /* --per device: number of other processes in it */
    const char *what;         /* of the budget: "parameters"; NULL the gate's */
    double value, limit;      /* NAN */
    bool at_least;            /* the peak: the recording lacks a part of what came before */
    const char *why;          /* for unknown: a sentence; else a remark, or NULL */
    const char *cwd;          /* of the process, NULL unknown */
    struct check_line *lines; /* largest first */
    size_t lines_n, lines_total;
};
struct check {
    struct arena arena;
    struct check_result *results; /* by gate, then process */
    size_t n, cap;
    size_t processes;
    uint64_t events;
    double duration_s;
    int64_t kept_from_ns; /* before this time the growth is unknown (run_growth_from); 0: it is known */
    const char *source;   /* as the user typed it */
    const char *command;  /* the recorded command, of the first process; NULL unknown */
    bool failed;          /* any result is not CHECK_OK */
    bool simulated;
};

struct check_request {
    const char *const *paths;
    size_t n;
    const struct check_limits *limits;
    bool alone; /* without the run's other processes */
    bool allow_incomplete;
    bool per_device;      /* peaks of processes on one GPU are added up */
    const char *baseline; /* NULL none */
    int columns;          /* available to a line for its call site */
};
/* False: one line in `error`. *nothing: no limit applies to these recordings. */
bool check_run(const struct check_request *wish, struct check *out, bool *nothing, char *error, size_t error_size);
void check_free(struct check *c);
void check_share(struct check *c); /* shared.c: --per device */

const char *check_status_word(enum check_status s); /* "ok", "failed", "unknown" */
/* "GPU memory at most 3.20 GiB on GPU 0, 1.20 GiB over the limit of 2.00 GiB" in the arena. */
char *check_sentence(struct check *c, const struct check_result *r);
/* "GPU 0 of rank 1", "" */
char *check_who_text(const struct check_result *r, char *out, size_t size);

enum { CHECK_LINE_START = 24 }; /* the column at which check_view_text writes a line's call site */
void check_view_text(struct check *c, FILE *out, bool all);
bool check_view_json(struct check *c, FILE *out);
bool check_view_junit(struct check *c, FILE *out);
void check_view_github(struct check *c, FILE *out);
void check_view_summary(struct check *c, FILE *out); /* Markdown for GITHUB_STEP_SUMMARY */

/* scope.c: the NVTX ranges that have a limit, over all processes. */
struct check_scope {
    const char *name;
    bool occurred;
};
struct check_scopes {
    struct check_scope *list;
    size_t n, cap;
    const char *recorded; /* existing names, for display; NULL none */
};

struct checking { /* one process */
    int columns;  /* available to a line for its call site */
    struct run *run;
    const struct result_report *report;
    const struct run_process *process;
    struct arena *arena;
    const struct check_limits *limits;
    const char *const *paths;
    enum check_gate_id gate; /* now measured */
    struct check_scopes *scopes;
    /* Receives what a measure emits. `limit` is NAN unless the measure has its own. */
    void (*read)(struct checking *c, const struct check_result *reading);
    void *self;
};
/* The readings of the gate's scopes in one layer. */
void check_measure_scopes(struct checking *c, enum run_series_layer layer);
/* NULL is NULL. */
char *check_copy_text(struct arena *arena, const char *text);
/* False: a scope that has a limit occurred in no process; the line is in `error`. */
bool check_scopes_occurred(const struct check_scopes *s, const char *source, char *error, size_t error_size);
void check_line_add(struct checking *c, struct check_result *r, size_t *cap, const struct result_site *site,
                    double amount, const char *note);
