/* The complete answer about a run, as types: the questions fill it and all views read it.
 *
 * Units: bytes; seconds (double) since the process's start of recording. An unknown size is RUN_UNKNOWN (JSON null), an
 * unknown double is NAN, an unknown string is NULL. The report owns everything until report_free, which must come
 * before run_close, because strings of frames belong to the run. Lists have the largest entry first unless a comment
 * states another order, and are cut to options.top; `…_total` is their length before the cut. */
#pragma once

#include "analyzer/estimate/estimate.h"
#include "analyzer/result/result_rows.h"

#define RESULT_SCHEMA 1

struct result_peak {
    uint32_t process;            /* index into processes */
    int device;                  /* -1 for pinned and host */
    enum run_series_layer layer; /* word: result_series_word() */
    int64_t bytes;
    double time_s;
    int64_t time_ns;
    uint64_t count;    /* allocations live at the peak */
    int64_t end_bytes; /* still live at the end */
    uint64_t end_count;
    uint64_t allocations, frees; /* over the whole run */
    int64_t allocated_bytes;     /* over the whole run: all bytes that were allocated, freed or not */
    RESULT_CUT(struct result_by_stack, by_stack);
    RESULT_CUT(struct result_by_site, by_site);
    RESULT_CUT(struct result_by_site, by_line); /* the same by line */
    int64_t by_space[8];                        /* enum gs_space; layer device only */
    ARENA_ROWS(struct result_by_owner,
               by_owner); /* layer device only; the sum is `bytes`; PyTorch's segments are included */
    struct result_by_category by_category;
};

struct result_point {
    double time_s;
    int64_t bytes;
};
struct result_timeline {
    uint32_t process;
    int device;
    enum run_series_layer layer;
    struct result_point *points;
    size_t n; /* by time; the peak is among them */
};

/* What used a device's memory at the device-level peak. The parts (tensor, cached, direct, graph, outside, free) sum to
 * the device's total if all of them are known. */
struct result_device_memory {
    uint32_t process;
    int device;
    double time_s;
    int64_t total_bytes;         /* of the device */
    int64_t live_bytes;          /* CUDA allocations of this process (device layer) */
    int64_t tensor_bytes;        /* … of which PyTorch tensors; unknown if PyTorch reported nothing */
    int64_t tensor_ns;           /* when: with the tensor for which the CUDA allocation of the peak was made */
    int64_t cached_bytes;        /* … of which reserved by PyTorch, but in no tensor */
    int64_t direct_bytes;        /* … of which not allocated by PyTorch's allocator */
    int64_t outside_bytes;       /* in use on the device, but in no recorded allocation: context, kernels, the
                                    libraries' own memory and other processes */
    int64_t outside_first_bytes; /* the same when the device was first queried */
    int64_t context_bytes;       /* of outside: this process's context, kernels and libraries, from the NVML sample
                                    nearest to the peak; unknown */
    int64_t other_bytes;         /* other processes, from the same sample; unknown */
    int64_t graph_bytes;         /* what the device held for CUDA graphs; 0 if it did not report that */
    int64_t free_bytes;          /* the rest */
    bool about;                  /* the device was not queried at the peak: outside is from the nearest query, and free
                                    follows from it */
    int64_t least_free_bytes;    /* the smallest amount that the device reported as free; unknown */
    int64_t tensor_peak_bytes, reserved_peak_bytes; /* the peaks of these, possibly at other times */
};

/* The processes that held device memory, side by side: see rank.h. */
struct result_rank {
    uint32_t process;
    int64_t rank;                                 /* RUN_UNKNOWN */
    int device;                                   /* the process's own number of the device that it uses */
    const char *gpu;                              /* the host's name of it: the entry of CUDA_VISIBLE_DEVICES, else
                                                     `device` */
    int64_t tensor_peak_bytes, device_peak_bytes; /* on that device; tensors: RUN_UNKNOWN */
    double blocked_s;                             /* in waits and blocking copies, by all its threads */
    double start_s;                               /* after the first process, by their hosts' clocks; NAN: unknown */
    double peak_s;                       /* of its tensors, else of its CUDA allocations: by the same clock as start_s
                                          */
    uint64_t waits, copies, allocations; /* allocations: of tensors on that device, else of CUDA memory */
    double waited_s;                     /* in waits only */
    double collective_s;                 /* of it below torch.distributed */
    int64_t copied_bytes;
    bool again; /* a later process had the same rank: this one was restarted */
    bool child; /* another process of this rank started it */
};

/* A figure of the ranks; of each rank the last process counts. */
/* clang-format off */
#define RESULT_RANK_FIGURES(X)                                                                   \
    X(TENSOR_PEAK, "tensor_peak_bytes", "tensors") X(DEVICE_PEAK, "device_peak_bytes", "CUDA allocations") \
    X(WAITED, "waited_s", "waited") X(WAITS, "waits", "waits") X(COPIED, "copied_bytes", "copied")        \
    X(COPIES, "copies", "copies") X(ALLOCATIONS, "allocations", "allocations") X(STARTED, "start_s", "started after")
/* clang-format on */
#define RESULT_ENUM_RANK_FIGURE(s, k, w) RESULT_RANK_##s,
enum result_rank_figure { RESULT_RANK_FIGURES(RESULT_ENUM_RANK_FIGURE) RESULT_RANK_FIGURES_N };
struct result_rank_spread { /* NAN: unknown for some rank */
    double least, median, most;
    size_t least_at, most_at; /* index into ranks */
};

#define RESULT_RANK_KINDS(X)                                                   \
    X(STRAY, "stray")   /* it has memory or a context on another rank's GPU */ \
    X(SHARED, "shared") /* several ranks use one GPU */                        \
    X(IMBALANCE, "imbalance")                                                  \
    X(STRAGGLER, "straggler") /* the others seem to wait for it */             \
    X(AGAIN, "started_again")                                                  \
    X(MISSING, "missing") /* ranks of the job without a recording */
#define RESULT_ENUM_RANK(s, w) RESULT_RANK_##s,
enum result_rank_kind { RESULT_RANK_KINDS(RESULT_ENUM_RANK) };
struct result_rank_finding {
    enum result_rank_kind kind;
    uint32_t process; /* the first of those concerned */
    int device;       /* its number of the GPU */
    size_t ranks;     /* how many are concerned */
    int64_t bytes;
    const char *text;   /* one sentence */
    const char *advice; /* NULL: none */
    struct result_site site;
};

/* A framework that preallocates a device or keeps a pool. gpuspy does not see what it allocates inside. */
struct result_preallocation {
    uint32_t process;
    int device;
    const char *owner;    /* "JAX" */
    bool in_advance;      /* one preallocation before the memory was needed; else a pool that grew */
    bool within;          /* it is a PyTorch tensor, and so part of the tensor level */
    int64_t bytes;        /* of the preallocation; of a pool its largest size */
    double share;         /* of the device; NAN: unknown */
    const char *sentence; /* one sentence */
    const char *advice;   /* what to change if the memory is needed elsewhere; NULL: its size is limited already */
    struct result_site site;
};

/* Why memory ran out: the word in JSON, and on the page. To add a cause: a row here, its rule and sentence in
 * oom/oom_cause.c. */
#define RESULT_OOM_CAUSES(X)                                       \
    X(CAPACITY, "capacity", "capacity")                            \
    X(FRAGMENTATION, "fragmentation", "fragmentation")             \
    X(LEAK, "leak", "leak")                                        \
    X(OTHER_PROCESS, "other_process", "another process")           \
    X(OVERSIZED_REQUEST, "oversized_request", "oversized request") \
    X(ALLOCATOR_CAP, "allocator_cap", "a limit that was set")      \
    X(PINNED_HOST, "pinned_host", "pinned host memory")            \
    X(PREALLOCATION, "preallocation", "preallocation")             \
    X(OUTSIDE_ALLOCATOR, "outside_allocator", "outside PyTorch's allocator")
#define RESULT_ENUM_CAUSE(s, w, t) RESULT_CAUSE_##s,
enum result_cause { RESULT_OOM_CAUSES(RESULT_ENUM_CAUSE) RESULT_CAUSES_N };

/* A number or a word that led to a verdict. */
struct result_evidence {
    const char *key;  /* JSON key, ends in _bytes for bytes, _s for seconds */
    const char *what; /* its label on the page */
    bool is_text;
    double value; /* NAN: unknown */
    const char *text;
};

/* What uses a device's memory: the word for scripts, the words for people. */
/* clang-format off */
#define RESULT_HELDS(X)                                                                                \
    X(TENSORS, "tensors", "tensors") X(CACHED, "cached", "cached: free inside PyTorch's segments") \
    X(POOLS, "pools", "in allocations from CUDA's pools")                                          \
    X(IDLE, "pools_free", "held by CUDA's pools, in no allocation")                                \
    X(DIRECT, "direct", "CUDA allocations of other code")                                           \
    X(GRAPHS, "graphs", "held for CUDA graphs")                                                    \
    X(CONTEXT, "context", "this process's CUDA context and code")                                  \
    X(FIRST, "before", "in use when the device was first seen: contexts, other processes")         \
    X(OTHERS, "other_processes", "other processes")                                                \
    X(UNACCOUNTED, "unaccounted", "not accounted for") X(FREE, "free", "free")
/* clang-format on */
#define RESULT_ENUM_HELD(s, w, t) RESULT_HELD_##s,
enum result_held { RESULT_HELDS(RESULT_ENUM_HELD) RESULT_HELD_N };

struct result_held_line {
    const char *text; /* a library, a process, a kind of hole; NULL: the site is enough */
    struct result_site site;
    int64_t bytes;  /* RUN_UNKNOWN: unknown for this line */
    uint64_t count; /* blocks; 0: unknown */
    uint32_t pid;   /* of a process; 0: it is none */
};
struct result_held_part {
    enum result_held what;
    enum result_category category; /* of TENSORS, which has one part per category */
    const char *text;
    int64_t bytes;
    double share;                               /* of the device */
    RESULT_CUT(struct result_held_line, lines); /* their sum is at most `bytes` */
};

/* How certain a statement is. Every view uses the words of result_certainty_word(): "recorded" (the calls state it),
 * "inferred" (the recording supports it; `refuted_by` names what would refute it), "guessed". */
enum result_certainty { RESULT_CERTAINTY_GUESSED, RESULT_CERTAINTY_INFERRED, RESULT_CERTAINTY_RECORDED };

/* A change that would prevent an OOM. */
struct result_measure {
    const char *text;     /* includes the amount */
    int64_t frees_bytes;  /* RUN_UNKNOWN: unknown */
    int8_t enough;        /* 1: it would have been enough by itself for the request; 0: it would not; -1: unknown */
    uint8_t effort;       /* 1: a setting … 4: another way to train */
    bool first;           /* what the cause itself calls for */
    const char *replayed; /* "with expandable_segments:True": the request was replayed with that; NULL: the
                             amount is a formula's */
    bool fits;            /* … and succeeds, with spare_bytes of the GPU left */
    int64_t spare_bytes;  /* RUN_UNKNOWN */
    enum result_certainty certainty; /* of the amount */
    const char *refuted_by;          /* "if …"; NULL: nothing known would refute it */
};

enum result_oom_outcome {
    RESULT_OUTCOME_RETRIED, /* the allocator freed cached memory, requested again and succeeded */
    RESULT_OUTCOME_HANDLED,
    RESULT_OUTCOME_ENDED,
    RESULT_OUTCOME_UNKNOWN
};

struct oom_facts; /* oom.h */
struct result_oom_verdict {
    uint32_t process;
    const struct oom_facts *facts;
    double time_s;
    int64_t time_ns;                       /* time of the call after which the live memory was examined */
    int64_t live_sum;                      /* live memory in live_layer then; RUN_UNKNOWN */
    struct result_by_category by_category; /* of live_sum */
    int device;
    uint8_t layer, space; /* enum gs_layer (the highest that reported), gs_space */
    int64_t requested_bytes, free_bytes, total_bytes, tensor_allocated, tensor_reserved;
    int64_t segment_bytes;                /* what the allocator requested from CUDA for it, if more; else 0 */
    int64_t device_live, graphs, outside; /* with free their sum is the total */
    bool fatal;
    bool capped;                     /* GPUSPY_LIMIT refused it, not the device */
    bool handled;                    /* not fatal: the program got the error, and continued without the memory or
                                        requested less */
    enum result_oom_outcome outcome; /* unknown: counts as fatal */
    int64_t step;                    /* number of the step in which it failed, from 1; RUN_UNKNOWN */
    const char *outcome_why;         /* the evidence for it; NULL: it was retried, or is one of very many */
    unsigned failures;               /* failed calls of this OOM: PyTorch tries, empties its cache, and tries again */
    enum result_cause cause;         /* word: result_cause_word() */
    struct result_site growing;      /* of a leak: its line; else not known */
    struct result_site blame;        /* the line that the verdict names */
    const char *blame_role;          /* what it did: "growing", "graph", "holder", "retry", "direct", "failing" */
    const char *verdict;             /* the cause in one sentence, with the numbers that show it */
    enum result_certainty certainty; /* of the cause */
    const char *refuted_by;          /* "if …"; NULL: nothing known would refute it */
    ARENA_ROWS(struct result_evidence, evidence); /* by importance */
    ARENA_ROWS(const char *, advice);             /* at most 4 */
    ARENA_ROWS(struct result_measure, measures);  /* the same, with their amounts */
    struct result_trace stack;
    ARENA_ROWS(struct result_excerpt, source);     /* the blamed line and the line that failed, if they are known */
    ARENA_ROWS(struct result_holder, holders);     /* of a leak; two are equally likely */
    RESULT_CUT(struct result_by_site, live);       /* live memory then, of the tensor layer if it exists */
    RESULT_CUT(struct result_by_site, live_lines); /* the same by line */
    enum run_series_layer live_layer;
    ARENA_ROWS(struct result_by_owner, by_owner); /* of device_live */
    ARENA_ROWS(struct result_held_part,
               waterfall); /* the sum of the parts is total_bytes; none: some part is unknown */
    int64_t rounding_most; /* PyTorch's allocator rounds requests up: at most this many of those bytes are unused */
    bool rounding_known;   /* exactly this many */
};

struct result_leak { /* memory that was never freed while gpuspy recorded */
    uint32_t process;
    int device;
    enum run_series_layer layer;
    int64_t bytes;
    uint64_t count;
    bool growing; /* growth[] has it, too */
    struct result_trace stack;
    struct result_paths paths; /* in a list of lines; its rows have no frames */
};

/* Live bytes that grew steadily over the run: of one line, or of several lines whose memory one thing keeps alive (see
 * growth_list.c). */
struct result_growth_line {
    int64_t bytes;
    uint64_t count; /* allocations that stay live (to the last fatal OOM, else to the process's last allocation) */
    struct result_site site;
};
struct result_growth {
    uint32_t process;
    int device;
    enum run_series_layer layer;
    int64_t bytes; /* by how much it grew */
    double bytes_per_step;
    uint64_t steps; /* over which it grew: the program's own if `by_steps`; else, if those are unknown, allocations
                       that stay live */
    bool by_steps;
    uint64_t count;                  /* allocations that stay live */
    unsigned jumps;                  /* number of moments at which it grew, if few, such as ends of epochs; 0: it grew
                                        all the time */
    double bytes_per_s;              /* from the first moment on */
    double fit;                      /* r² of the straight line through it, 0 to 1 */
    double first_s, last_s;          /* first and last allocation that stays live */
    bool graph;                      /* its lines allocate what one forward pass allocates: an autograd graph is kept
                                        alive */
    enum result_certainty certainty; /* that this is a leak, and of its explanation */
    const char *refuted_by;          /* "if …"; NULL: nothing known would refute it */
    RESULT_CUT(struct result_growth_line, lines); /* at least one */
    struct result_site newest; /* the last of the lines in a step, not by a backward pass if there are others */
    int64_t newest_bytes;      /* of one block of it */
    uint32_t newest_stack;     /* its call path */
    uint64_t newest_count;     /* of its blocks that stay live: several of a pass if modules share the call path */
    uint32_t creates;          /* the stack of a backward(create_graph=True) among them; RUN_NONE: there is none */
    struct result_site under;  /* the innermost line that called all of the lines; not known: none */
    struct result_trace stack; /* of the heaviest call path */
    ARENA_ROWS(struct result_excerpt,
               source); /* the last line in a step and the line with most bytes, if they are known */
    ARENA_ROWS(struct result_holder, holders); /* as in result_oom_verdict */
};

/* In which phase of the program a call site is called, see cadence.h. */
/* clang-format off */
#define RESULT_PHASES(X)                                                                               \
    X(UNKNOWN, NULL) X(STARTUP, "startup") X(STEP, "step") X(LOGGING, "logging")                   \
        X(EVALUATION, "evaluation") X(END, "end")
/* clang-format on */
#define RESULT_ENUM_PHASE(s, w) RESULT_PHASE_##s,
enum result_phase { RESULT_PHASES(RESULT_ENUM_PHASE) RESULT_PHASES_N };

/* How often a call site is called over the program's steps. */
struct result_pace {
    enum result_phase phase;
    double calls_per_step;   /* number of calls in steady steps / number of steady steps; NAN: no steps are known */
    uint64_t steps_with;     /* steady steps with at least one call */
    uint64_t steps_seen;     /* steady steps; 0: no steps are known */
    unsigned every;          /* of phase logging: once in this many steps; 0: irregularly */
    double steady_share;     /* share of the steady steps' time in which it blocked; NAN */
    double usual_share;      /* the same without pauses of the program, which decides whether it matters */
    double steady_blocked_s; /* NAN */
    bool bunched;            /* its calls of one step follow one another, with little between them */
    bool loop;               /* the steps are those of a loop that may not be the training loop */
};

struct result_churn { /* device memory allocated and freed again and again by direct CUDA calls */
    uint32_t process;
    int device;
    uint64_t count; /* allocations */
    int64_t bytes;  /* of all of them */
    double per_s, mean_life_s;
    struct result_pace pace;
    const char *pattern;      /* "empty_cache"; NULL: none recognised */
    struct result_site freed; /* of empty_cache: the line that called it; else not known */
    struct result_trace stack;
    const char *advice;
    struct result_paths paths; /* in a list of lines; its rows have no frames */
};

struct result_retry { /* an allocation failed, cached memory was freed, and it then succeeded */
    uint32_t process;
    double time_s;
    int device;
    int64_t requested_bytes;
    unsigned failures;
    double blocked_s;    /* from the failure to the success, all attempts included; NAN */
    int64_t freed_bytes; /* freed in between; RUN_UNKNOWN */
    struct result_trace stack;
};

struct result_retry_line { /* the retries at one line */
    uint64_t count;
    int64_t requested_bytes; /* the largest request */
    double first_s, last_s;
    struct result_site site;
    struct result_paths paths;
};

struct result_sync_site {
    uint8_t kind; /* enum gs_sync_kind */
    uint64_t count;
    double blocked_s;
    double share; /* of the wall time; above 1 if several threads waited at the same time */
    bool matters; /* exceeds the thresholds of step_pace_matters */
    struct result_pace pace;
    const char *pattern; /* ".item()", "boolean mask", …, see signature.def; NULL: none recognised */
    const char *api;     /* the most frequent entry point; "": unknown */
    struct result_site site;
    const char *advice;        /* NULL: nothing to do */
    struct result_paths paths; /* in a list of lines */
};

struct result_transfer {
    uint8_t direction;   /* enum gs_direction */
    uint8_t host_memory; /* enum gs_host_memory */
    int pinned;          /* 1: pinned; 0: pageable; -1: neither (no host memory, managed) or unknown */
    bool async;
    uint64_t count;
    int64_t bytes;
    double blocked_s;
    double bytes_per_s; /* NAN: the host's time does not show it */
    double first_s, last_s;
    struct result_pace pace;
    struct result_site site;
    const char *advice;        /* NULL: none */
    struct result_paths paths; /* in a list of lines */
};

struct result_call { /* an entry point that is only counted */
    const char *api; /* "": unknown */
    uint64_t count, not_ready;
    double per_s; /* over the run */
};

struct result_fragmentation { /* RUN_UNKNOWN and NAN if the calls do not show it */
    uint32_t process;
    int device;
    double time_s;              /* time of the last fatal OOM, else of the device-level peak */
    int64_t reserved_bytes;     /* device memory that the allocator reserved */
    int64_t active_bytes;       /* … in tensors */
    int64_t free_bytes;         /* … in no tensor */
    int64_t largest_free_bytes; /* the largest free block */
    double external;            /* 1 - largest free / free */
    double utilisation;         /* peak active / peak reserved */
    uint64_t segments, blocks;
};

struct result_budget_row {
    enum result_category category;
    double estimate_bytes;             /* NAN: not estimated */
    int64_t peak_bytes;                /* at the measured peak */
    int64_t most_bytes;                /* the largest amount at any time; RUN_UNKNOWN: of CUDA's own allocations */
    double difference_bytes;           /* peak - estimate, NAN */
    const char *why;                   /* what the figures imply about it; NULL: as estimated */
    struct estimate_interval expected; /* of estimates with activations: at the moment of the measured peak; of
                                          parameters, gradients and states the largest amount. likely NAN: not
                                          estimated */
    int8_t inside;                     /* 1: measured is between low and high, up to rounding; 0: not; -1: not
                                          estimated */
};

/* Sums of categories. What a pass allocates and frees is judged as one, because the moment decides which part of it is
 * live, and which category that has. LEVEL(id, JSON key, words) */
#define RESULT_LEVELS(LEVEL)                                                            \
    LEVEL(PASS, "pass", "activations, gradients and temporaries together")              \
    LEVEL(TENSORS, "tensors", "tensors at the peak")                                    \
    LEVEL(ALLOCATOR, "allocator", "reserved by PyTorch on top: rounding, holes, cache") \
    LEVEL(CUDA, "cuda", "CUDA allocations")                                             \
    LEVEL(CONTEXT, "context", "CUDA context, kernels and libraries")                    \
    LEVEL(DEVICE, "device", "in use on the device")
#define LEVEL(id, key, text) RESULT_LEVEL_##id,
enum result_level { RESULT_LEVELS(LEVEL) RESULT_LEVELS_N };
#undef LEVEL
struct result_budget_level {
    enum result_level level;
    struct estimate_interval expected;
    double measured_bytes;
    int8_t inside; /* as in result_budget_row */
};

struct result_budget {
    bool present;
    uint64_t gpus;                     /* the estimate is for one of this many GPUs */
    const struct result_rank *rank;    /* the rank whose peak it is; NULL: there are no ranks */
    const struct result_budget *ranks; /* if the estimate is for several GPUs: the budget of each rank, by rank */
    size_t ranks_n;
    uint32_t process; /* the process whose peak it is */
    int device;
    struct run_estimate_bytes estimate;
    int64_t measured_bytes; /* the largest tensor (else device) peak of one device */
    enum run_series_layer measured_layer;
    struct result_by_category by_category;              /* of that peak */
    double difference_bytes, difference_share;          /* measured - estimate; the same as a share of the estimate */
    struct result_budget_row rows[RESULT_CATEGORIES_N]; /* empty if no tensor has a category */
    size_t rows_n;
    int64_t pass_most_bytes; /* the largest sum of activations and temporaries of passes; RUN_UNKNOWN */
    bool planned;            /* the estimate has activations, and categories were recognised. Only then: */
    struct estimate_interval expected_peak;             /* of one GPU */
    int expected_phase, measured_phase;                 /* enum estimate_phase; measured -1: unknown */
    struct result_budget_level levels[RESULT_LEVELS_N]; /* those for which both figures are known */
    size_t levels_n;
    bool failed;             /* an OOM ended that process, so its last step is incomplete */
    int64_t parameter_bytes; /* largest amount measured on one device; 0: none */
};

/* Live memory of a device while at least one NVTX range with the name was open, on any thread. One row per device and
 * layer (device, tensor); a scope without memory has one row with device -1. entry and exit belong to the visit with
 * the peak: from the first range that opened to the last one that closed. */
struct result_scope {
    uint32_t process;
    const char *name, *domain; /* domain: NULL: the default one */
    uint64_t count, open;      /* number of ranges, and of ranges that did not end */
    double total_s;            /* of the ranges that ended */
    int device;
    enum run_series_layer layer;
    int64_t peak_bytes, peak_ns;
    double peak_time_s;              /* NAN: no memory */
    int64_t entry_bytes, exit_bytes; /* exit_bytes: RUN_UNKNOWN if it was still open at the end */
    bool incomplete;                 /* a bounded recording did not keep the peaks of all ranges that it removed */
};

/* NVML's samples of one device in one process, in order of time, thinned to at most this many. */
enum { RESULT_SAMPLE_POINTS = 512 };
struct result_sample_line {
    uint32_t process;
    int device;
    const struct run_device_sample **points;
    size_t n, total;
};

struct result_advice {
    double impact;     /* the share of the peak or of the wall time that it concerns; of an OOM: above 1 */
    const char *topic; /* oom leak sync transfer fragmentation churn recording loop */
    const char *text;  /* one thing to do, with its call site */
};

/* Memory that stayed live at the end, by category: one entry per series. Only if options.watch is set. */
struct result_category_end {
    uint32_t process;
    int device;
    enum run_series_layer layer;
    int64_t end_ns; /* time of the last allocation, or of the failure that ended the run */
    struct result_by_category by_category;
};

struct allocator_state; /* allocator.h */
struct allocator_cache_flush;
struct result_report {
    struct run *run;
    const char *command; /* of the first process; NULL: unknown */
    double duration_s;
    uint64_t lost_events;
    double lost_first_s; /* NAN */
    bool complete;       /* every process ended normally and no event was lost */
    uint64_t events;     /* recorded calls: allocations, frees, copies, fills, waits, failures, … */
    ARENA_ROWS(const struct run_process, processes);
    const char *const *notes;
    size_t notes_n;                                /* what a reader must know first */
    ARENA_ROWS(const struct run_device, devices);  /* each one once, by index */
    ARENA_ROWS(struct result_peak, peaks);         /* by process, device, layer */
    ARENA_ROWS(struct result_timeline, timelines); /* same order as peaks; then those of layer graph */
    ARENA_ROWS(struct result_device_memory, memory);
    ARENA_ROWS(struct result_rank, ranks); /* by rank; empty if fewer than two processes held device memory */
    struct result_rank_spread rank_spread[RESULT_RANK_FIGURES_N]; /* set if there are ranks */
    size_t rank_hosts;
    ARENA_ROWS(struct result_rank_finding, rank_findings);
    ARENA_ROWS(struct result_preallocation, preallocations); /* by process, the largest first */
    RESULT_CUT(struct result_oom_verdict, ooms);             /* fatal first, then by time */
    RESULT_CUT(struct result_leak, leaks);
    RESULT_CUT(struct result_leak, leak_lines);  /* this list and those below that end in _lines: the same by line */
    bool leaks_at_end;                           /* the run ended normally: "never freed"; else "live when it died" */
    ARENA_ROWS(const struct step_list *, steps); /* see step.h; by process, only of processes with steps */
    RESULT_CUT(struct result_growth, growth);
    struct result_sync_site *syncs, *sync_lines;
    size_t syncs_n, syncs_total;
    size_t sync_lines_n, sync_lines_total;
    double sync_blocked_s, sync_share; /* of all waits */
    bool other_framework;              /* JAX, CuPy, …, and no PyTorch */
    bool without_pools;                /* gpuspy run --inside-pools recorded it */
    bool simulated;                    /* some GPU is simulated: its times mean nothing */
    bool imported;                     /* another tool made the recording: what the program did after it is unknown */
    const char *no_history;            /* why only one moment is known; NULL: all of them are */
    bool no_times;                     /* times are unknown, too: the history's entries are counted instead */
    const char *no_memory;             /* why memory is unknown; NULL: it is known */
    bool failed_unknown, outcome_unknown; /* only that allocations failed is known; not even whether some did */
    const char *lacks[RUN_FACT_N];        /* words for what an imported recording lacks */
    size_t lacks_n;
    bool unknown[RUN_FACT_N]; /* the same by fact */
    const char *loop;         /* of a dry run: a sentence about the loop that waits for values; NULL: none */
    RESULT_CUT(struct result_transfer, transfers);
    RESULT_CUT(struct result_transfer, transfer_lines);
    RESULT_CUT(struct result_call, calls);
    ARENA_ROWS(struct result_fragmentation, fragmentation);
    RESULT_CUT(struct result_churn, churn);
    RESULT_CUT(struct result_churn, churn_lines);
    RESULT_CUT(struct result_retry, retries);          /* by time */
    RESULT_CUT(struct result_retry_line, retry_lines); /* of all retries, the most frequent first */
    ARENA_ROWS(struct allocator_state, allocator);     /* allocator.h; by process, device, time */
    RESULT_CUT(struct allocator_cache_flush, flushes); /* those that matter first */
    struct result_budget budget;
    RESULT_CUT(struct run_mark_total, marks); /* the longest first, then the most frequent */
    RESULT_CUT(struct result_scope, scopes);  /* the highest peak first */
    ARENA_ROWS(struct result_sample_line, samples);
    ARENA_ROWS(struct result_advice, advice);
    ARENA_ROWS(struct result_category_end, ends);      /* in the order of peaks */
    struct category_uses *uses;                        /* category_use.h; freed with the report */
    ARENA_ROWS(const struct run_tensor_check, checks); /* gpuspy's totals compared with PyTorch's */
};

/* Lets a view observe the passes that a report makes, so that it needs no pass of its own. The report then also keeps
 * what was live at the peaks and at the end, by stack and category. */
struct result_watch {
    struct run_observer observer; /* in the only replay, after the observers of the questions */
    run_call_fn call;             /* in the pass over copies and waits; NULL */
    void *self;                   /* of `call` */
};

/* Words (words.c), as in JSON. */
const char *result_level_key(enum result_level level);
const char *result_level_text(enum result_level level);
const char *result_moment_key(int phase); /* "forward_end"; NULL for -1 */
const char *result_moment_text(int phase);
const struct run_device *result_device_of(const struct result_report *r, int device); /* NULL: unknown */
const struct result_device_memory *result_memory_of(const struct result_report *r, uint32_t process, int device);
const struct result_timeline *result_timeline_of(const struct result_report *r, uint32_t process, int device,
                                                 enum run_series_layer layer);
/* "Memory did not run out", or what else is known about that if no failure was fatal. After SIGKILL, which
 * suggests that host memory ran out, it names the GPU's. */
const char *result_outcome_text(const struct result_report *r);
/* A sentence on which other memory probably ran out, if the program's end suggests that; else NULL. */
const char *result_outcome_hint(const struct result_report *r);
bool result_names_memory(const char *exception);
/* Does it name the memory of a framework's pool: XLA's, TensorFlow's, RMM's? */
bool result_names_pool(const char *exception);
bool result_names_arena_limit(const char *exception); /* of ONNX Runtime: gpu_mem_limit */
/* Did CUDA run out of memory in a process that had allocated none, as if its context did not fit? */
bool result_lacked_context(const struct result_report *r);
/* By SIGKILL, and no process failed otherwise: a launcher kills the others after the first failure. */
bool result_was_killed(const struct result_report *r);
/* Is the figure of each rank's waits or copies, which the recordings lack? */
bool result_rank_unknown(const struct result_report *r, enum result_rank_figure figure);
double result_bytes_or_nan(int64_t bytes);
const char *result_series_word(enum run_series_layer layer); /* device tensor pinned host shared */
const char *result_held_word(enum result_held what);
const char *result_phase_word(enum result_phase phase);          /* startup step logging evaluation end; NULL: unknown
                                                                  */
const char *result_category_word(enum result_category category); /* "optimizer_state" */
const char *result_category_text(enum result_category category); /* for people: "optimizer state" */
const char *result_owner_kind_word(enum result_owner_kind kind);
const char *result_cause_word(enum result_cause cause);  /* of JSON */
const char *result_cause_title(enum result_cause cause); /* of the page */
const char *result_certainty_word(enum result_certainty certainty);
const char *result_outcome_word(enum result_oom_outcome outcome);
