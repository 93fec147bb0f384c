/* The weights of a run by call path: memory that was live at a moment, all allocations, the time that the host waited,
 * or copied bytes. Trees, flame graphs, tables, exports and comparisons start here.
 *
 * Weights sum to the report's own figures: of a peak to peak[].bytes, of an OOM to what was live then, of waits to
 * sync_blocked_s. Amounts that a damaged file does not explain are entries without a stack.
 */
#pragma once

#include "analyzer/category/category.h"
#include "analyzer/run/run.h"

#define PROFILE_KINDS(X)                                      \
    X(PEAK, "peak", "live at the peak")                       \
    X(OOM, "oom", "live when memory ran out")                 \
    X(END, "end", "live at the end")                          \
    X(AT, "at", "live at that moment")                        \
    X(ALLOCATED, "allocated", "allocated over the whole run") \
    X(WAITS, "waits", "waited for the GPU")                   \
    X(COPIES, "copies", "copied")
#define PROFILE_ENUM_KIND(s, w, t) PROFILE_##s,
enum profile_what { PROFILE_KINDS(PROFILE_ENUM_KIND) PROFILE_KINDS_N };
const char *profile_word(enum profile_what what); /* "peak" */
/* PROFILE_KINDS_N: no such word. */
enum profile_what profile_of_word(const char *word);

enum {
    PROFILE_USUAL =
        -1, /* device memory: a device's tensors if it has any, else CUDA allocations; for a run without, the host's */
    PROFILE_ALL = -2 /* the same, and pinned and host memory */
};

/* The moment at which one layer of one GPU is examined, since the start of its process. */
struct profile_moment {
    uint32_t process;
    int device;
    enum run_series_layer layer;
    int64_t time_ns;
};

struct profile_request {
    enum profile_what what;
    int64_t at_ns; /* for AT, since the start of each process */
    /* For AT instead of at_ns: GPUs and layers without a moment have no entries. Not owned. NULL: none */
    struct profile_moment *moments;
    size_t moments_n;
    const char *title; /* for AT; kept, not copied. NULL: the usual one */
    int process;       /* index; -1: all that have such a moment, each at its own */
    int device;        /* -1 any */
    int layer;         /* enum run_series_layer, or PROFILE_USUAL, PROFILE_ALL */
    bool categories;
    struct category_uses *uses;         /* of a report of the same run, not owned; NULL: found by another replay */
    const struct result_report *report; /* of the last replay of the run, for peaks and steps. NULL: none */
    const struct profile_sums *sums;    /* for ALLOCATED, from an observer of the last replay. NULL: another pass */
    const struct run_observer *beside;  /* observes the replay that finds the memory. NULL: none */
};

/* The sums of all allocations of a run's locations, by category. Zero-initialise. */
struct profile_sum {
    int64_t bytes;
    uint64_t count;
};
struct profile_sums {
    struct run *run;
    struct category_finder *finder; /* NULL: all are of unknown category */
    struct profile_sum *list;
    size_t cap;
    int64_t last_alloc_ns; /* of the process */
};
void profile_sums_start(struct profile_sums *s, struct run *run, bool categories);
void profile_sums_start_process(struct profile_sums *s, uint32_t process);
/* `use`: see category_uses_of. */
void profile_sums_add(struct profile_sums *s, const struct run_lifetime *life, uint32_t free_stack, unsigned use);
struct profile_sum profile_sums_of(const struct profile_sums *s, uint32_t location, enum result_category category);
void profile_sums_free(struct profile_sums *s);

/* Each (process, stack, device, layer, category) once. For waits and copies layer has no meaning. */
struct profile_entry {
    uint32_t process, stack; /* RUN_NONE */
    int device;              /* -1 none or unknown */
    enum run_series_layer layer;
    enum result_category category; /* UNKNOWN if none were requested */
    int64_t weight;
    uint64_t count; /* allocations, waits, copies */
};

struct profile {
    struct profile_entry *entries; /* heaviest first */
    size_t n;
    int64_t total;     /* of their weights */
    uint64_t count;    /* of their counts */
    const char *unit;  /* "bytes" | "ns" */
    const char *title; /* "live at the peak" */
    int64_t *moments;  /* by process, for live memory; RUN_UNKNOWN none. A process's devices have their peaks at
                          different times: this is the largest one's */
    size_t moments_n;
};

/* A process without such a moment (it never ran out of memory) has no entries; no entries at all is not an error. If
 * categories are wanted, the run must be opened with options.memory_map, and symbols, because some depend on native
 * frames. For OOM it is the last failure from which the process did not recover, else its last one, and the device or
 * host memory that ran out. NULL and a line in `error` if a database could not be read. Replays the run, so that
 * locations and series are those of this replay. */
struct profile *profile_build(struct run *run, const struct profile_request *wish, char *error, size_t error_size);
void profile_free(struct profile *p);

/* Does a series belong to that layer (as in a request)? Call after a replay, which shows which processes have tensors.
 * */
bool profile_layer(const struct run *run, int layer, const struct run_series *series);

/* Does the recording have the rows of all memory that was live in that process then? A bounded one has those of
 * the peak of each series, whatever the layer of the row, and all since the last removal. Call after a replay. */
bool profile_has_rows(const struct run *run, uint32_t process, int64_t time_ns);

/* True: a bounded recording has removed rows of what was live then, in at least one process; `why` has the sentence. */
bool profile_is_removed(const struct run *run, int64_t at_ns, char *why, size_t why_size);

/* Does the C library start programs or threads in it, above all other calls? */
bool profile_is_start(const struct run_frame *frame);

/* The frames of a stack for display, outermost first: only Python's, or with the native ones around them; a stack
 * without Python frames has its native ones. If those are not shown, what autograd computed has the operation
 * ("AddmmBackward0", without a file) as its innermost frame, or as its only one if no line called backward(). Looks
 * names up, which costs time: call it once per stack. At most `room` frames, outer ones are left out; returns their
 * number. RUN_NONE has none. */
size_t profile_frames(struct run *run, uint32_t stack, bool native, const struct run_frame **out, size_t room);
