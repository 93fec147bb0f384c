/* The complete answer about a run, which the questions fill and all views read: types alone.
 *
 * Units: bytes; seconds (double) since the process's start of recording. A size that is not known
 * is GS_UNKNOWN (JSON null), a double that is not known is NAN, a string that is not known is NULL.
 * Ownership: everything belongs to the report and lives until gs_report_free, which must come
 * before gs_run_close of its run: strings of frames belong to the run. Lists are ordered by weight,
 * heaviest first, unless said otherwise, and cut to options.top; the member `…_total` says how many
 * there were.
 */
#ifndef GPUSPY_RESULT_H
#define GPUSPY_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "analyzer/estimate/estimate.h"
#include "analyzer/run/run.h"

#define GS_REPORT_SCHEMA 1

/* What a block is for: see category.h. */
/* clang-format off */
#define GS_CATEGORIES(X)                                                                           \
    X(PARAMETERS, "parameters")                                                                    \
    X(GRADIENTS, "gradients")                                                                      \
    X(OPTIMIZER_STATE, "optimizer_state")                                                          \
    X(ACTIVATIONS, "activations")                                                                  \
    X(INPUTS, "inputs")                                                                            \
    X(TEMPORARIES, "temporaries") X(WORKSPACES, "workspaces") X(UNKNOWN, "unknown")
/* clang-format on */
#define GS_ENUM_CATEGORY(s, w) GS_CATEGORY_##s,
enum gs_category { GS_CATEGORIES(GS_ENUM_CATEGORY) GS_CATEGORIES_N };

/* Whose memory it is: see owner.h. */
/* clang-format off */
#define GS_OWNER_KINDS(X)                                                                          \
    X(UNKNOWN, "unknown")                                                                          \
    X(TORCH, "torch")                 /* segments of PyTorch's caching allocator */                \
    X(POOL, "pool")                   /* another allocator's, which hands it out itself */         \
    X(FRAMEWORK, "framework")                                                                      \
    X(COMMUNICATION, "communication") X(LIBRARY, "library") /* handles, workspaces */              \
    X(PACKAGE, "package")             /* an installed Python package that the table does not know */ \
    X(USER, "user")                   /* the program's own binary, extension or Python file */
/* clang-format on */
#define GS_ENUM_OWNER(s, w) GS_OWNER_##s,
enum gs_owner_kind { GS_OWNER_KINDS(GS_ENUM_OWNER) GS_OWNER_KINDS_N };

/* Where an answer points: the innermost frame of the user's own code, see site.h. */
struct gs_site {
    uint8_t kind;                  /* enum gs_frame_kind */
    bool known;                    /* false: no stack was recorded; the rest is empty */
    bool library;                  /* no frame of the user's own: this one is in a library */
    const char *function;          /* NULL unknown */
    const char *file;              /* of a native frame without lines: its module; NULL unknown */
    int line;                      /* 0 unknown */
    uint64_t offset;               /* native without lines: offset in the module */
    bool exit;                     /* no line: Python was tearing down */
    bool helper;                   /* `via` is a helper of the user's own, which this line called */
    const char *operation;         /* "AddmmBackward0", the gradient then computed: the line is that
                                      of backward(). "Engine" between operations; NULL none */
    const struct gs_frame *via;    /* the innermost Python frame of the library or helper below the
                                      site, NULL none */
    const struct gs_frame *inner;  /* the innermost line of a library that was installed and is not
                                      PyTorch or the like: of a model's, a trainer's, a metric's;
                                      NULL none */
    const struct gs_frame *caller; /* the user's line that called the site's function, NULL none:
                                      tells the users of a function apart. Lists by site are by
                                      (site, inner, caller) or, of a helper, (site, via) */
    uint32_t paths;                /* of a line in a list of lines: places that called it, as told apart here; 0: one */
};

/* Lists by line have a row for each line of code, whatever called it. Its call paths, heaviest first: */
struct gs_line_path {
    int64_t bytes;
    uint64_t count;
    double blocked_s; /* of waits and copies */
    struct gs_site site;
};
struct gs_paths {
    struct gs_line_path *list;
    size_t listed, n; /* n: before the list was cut; 1: it is the line itself, and no list */
};

struct gs_trace {
    size_t n;
    const struct gs_frame **frames; /* innermost first */
    struct gs_site site;
};

struct gs_by_stack {
    int64_t bytes;
    uint64_t count;
    uint32_t number;           /* of the stack, GS_NONE */
    enum gs_category category; /* of most of the bytes, with the rule that said so */
    const char *category_evidence;
    struct gs_trace stack;
};

struct gs_by_site {
    int64_t bytes;
    uint64_t count;  /* allocations */
    uint32_t stacks; /* call paths that led there */
    struct gs_site site;
    struct gs_paths paths; /* in a list of lines */
};

/* What the live blocks were for, see category.h. */
struct gs_category_share {
    enum gs_category category;
    const char *evidence; /* the rule's */
    int64_t bytes;
    uint64_t count;
    unsigned rule;
};
struct gs_category_line {
    uint32_t stack; /* GS_NONE */
    enum gs_category category;
    const char *evidence;
    int64_t bytes;
    uint64_t count;
    unsigned rule;
};
struct gs_by_category {
    int64_t bytes[GS_CATEGORIES_N];   /* they sum to the live bytes; all 0: not looked at */
    struct gs_category_share *shares; /* by rule, heaviest first */
    size_t shares_n;
    struct gs_category_line *lines; /* of peaks where options.watch is set: by stack and rule, in no order */
    size_t lines_n;
};

/* Device memory by who took it, see owner.h. */
struct gs_by_owner {
    const char *owner;       /* "NCCL" */
    enum gs_owner_kind kind; /* word: gs_owner_kind_word() */
    const char *by;          /* the file whose frame says so, NULL unknown */
    int64_t bytes;
    uint64_t count;
    int64_t by_space[8]; /* enum gs_space */
    struct gs_site site; /* where most of it was taken */
};

struct gs_peak {
    uint32_t process;           /* index into processes */
    int device;                 /* -1 for pinned and host */
    enum gs_series_layer layer; /* word: gs_series_word() */
    int64_t bytes;
    double time_s;
    int64_t time_ns;
    uint64_t count;    /* allocations live at the peak */
    int64_t end_bytes; /* still live at the end */
    uint64_t end_count;
    uint64_t allocations, frees; /* over the whole run */
    int64_t allocated_bytes;     /* likewise: what it came to, freed or not */
    struct gs_by_stack *by_stack;
    size_t by_stack_n, by_stack_total;
    struct gs_by_site *by_site;
    size_t by_site_n, by_site_total;
    struct gs_by_site *by_line; /* the same by line */
    size_t by_line_n, by_line_total;
    int64_t by_space[8];          /* enum gs_space; of layer device alone */
    struct gs_by_owner *by_owner; /* likewise; they sum to `bytes`, PyTorch's segments among them */
    size_t by_owner_n;
    struct gs_by_category by_category;
};

struct gs_point {
    double time_s;
    int64_t bytes;
};
struct gs_timeline {
    uint32_t process;
    int device;
    enum gs_series_layer layer;
    struct gs_point *points;
    size_t n; /* in order of time; the peak is among them */
};

/* Where a device's memory was at the moment of the device-level peak. The parts (tensor, cached,
 * direct, graph, outside, free) sum to the device's total where all of them are known. */
struct gs_device_memory {
    uint32_t process;
    int device;
    double time_s;
    int64_t total_bytes;         /* of the device */
    int64_t live_bytes;          /* CUDA allocations of this process (device layer) */
    int64_t tensor_bytes;        /* … of which in PyTorch tensors; unknown where it reported nothing */
    int64_t cached_bytes;        /* … of which reserved by PyTorch and not in tensors */
    int64_t direct_bytes;        /* … of which allocated by others than PyTorch's allocator */
    int64_t outside_bytes;       /* in use on the device, but in no recorded allocation: context, kernels,
                                    libraries' own memory and other processes */
    int64_t outside_first_bytes; /* the same when the device was first seen */
    int64_t context_bytes;       /* of outside: this process's context, kernels and libraries, as NVML's figure
                                    nearest to the peak has it; unknown */
    int64_t other_bytes;         /* other processes, by the same sample; unknown */
    int64_t graph_bytes;         /* what the device held for graphs, 0 where it never said */
    int64_t free_bytes;          /* what remains */
    bool about;                  /* the device was not asked at the peak: outside is what it said
                                    nearest to it, and free follows from it */
    int64_t least_free_bytes;    /* the least that the device said was free, unknown */
    int64_t tensor_peak_bytes, reserved_peak_bytes; /* their own peaks, at other times maybe */
};

/* The processes that held device memory, side by side: see rank.h. */
struct gs_rank {
    uint32_t process;
    int64_t rank;                                 /* GS_UNKNOWN */
    int device;                                   /* that it works on: its own number of it */
    const char *gpu;                              /* the host's: the word of CUDA_VISIBLE_DEVICES, else that number */
    int64_t tensor_peak_bytes, device_peak_bytes; /* there; tensors GS_UNKNOWN */
    double blocked_s;                             /* in waits and blocking copies, of all its threads */
    double start_s;                               /* after the first of them, by their hosts' clocks; NAN unknown */
    double peak_s;                       /* of its tensors, else of what CUDA gave: on the same clock as start_s */
    uint64_t waits, copies, allocations; /* allocations: of tensors there, else of CUDA's */
    double waited_s;                     /* in waits alone */
    double collective_s;                 /* of them: below torch.distributed */
    int64_t copied_bytes;
    bool again; /* it is not the last process that had this rank: it was started again */
    bool child; /* of another process of this rank */
};

/* A figure of the ranks, each by its last process. */
/* clang-format off */
#define GS_RANK_FIGURES(X)                                                                   \
    X(TENSOR_PEAK, "tensor_peak_bytes", "tensors") X(DEVICE_PEAK, "device_peak_bytes", "taken from CUDA") \
    X(WAITED, "waited_s", "waited") X(WAITS, "waits", "waits") X(COPIED, "copied_bytes", "copied")        \
    X(COPIES, "copies", "copies") X(ALLOCATIONS, "allocations", "allocations") X(STARTED, "start_s", "started after")
/* clang-format on */
#define GS_ENUM_RANK_FIGURE(s, k, w) GS_RANK_##s,
enum gs_rank_figure { GS_RANK_FIGURES(GS_ENUM_RANK_FIGURE) GS_RANK_FIGURES_N };
struct gs_rank_spread { /* NAN: it is not known of all of them */
    double least, median, most;
    size_t least_at, most_at; /* index into ranks */
};

/* clang-format off */
#define GS_RANK_KINDS(X)                                                            \
    X(STRAY, "stray")   /* it has memory or a context on a GPU that is another's */ \
    X(SHARED, "shared") /* several work on one GPU */                               \
    X(IMBALANCE, "imbalance")                                                       \
    X(STRAGGLER, "straggler") /* the others seem to wait for it */                  \
    X(AGAIN, "started_again")                                                       \
    X(MISSING, "missing") /* of the job's ranks: no recording is here */
/* clang-format on */
#define GS_ENUM_RANK(s, w) GS_RANK_##s,
enum gs_rank_kind { GS_RANK_KINDS(GS_ENUM_RANK) };
struct gs_rank_finding {
    enum gs_rank_kind kind;
    uint32_t process; /* the first of them */
    int device;       /* its number of the GPU */
    size_t ranks;     /* that it is about */
    int64_t bytes;
    const char *text;   /* one sentence */
    const char *advice; /* NULL none */
    struct gs_site site;
};

/* A framework that took a device in advance, or keeps what it took: what is used inside is not seen. */
struct gs_preallocation {
    uint32_t process;
    int device;
    const char *owner;  /* "JAX" */
    bool in_advance;    /* in one piece, before it was needed; else a pool that grew */
    bool within;        /* of PyTorch's tensors, and so in the tensor level */
    int64_t bytes;      /* the piece; of a pool the most that it held */
    double share;       /* of the device, NAN unknown */
    const char *said;   /* one sentence */
    const char *advice; /* what to change if the memory is wanted elsewhere; NULL: it is bounded already */
    struct gs_site site;
};

/* Why memory ran out: the word of JSON, and the page's. To add one: a row here, its rule and sentence in
 * oom/oom_cause.c. */
/* clang-format off */
#define GS_OOM_CAUSES(X)                                              \
    X(CAPACITY, "capacity", "capacity")                               \
    X(FRAGMENTATION, "fragmentation", "fragmentation")                \
    X(LEAK, "leak", "leak")                                           \
    X(OTHER_PROCESS, "other_process", "another process")              \
    X(OVERSIZED_REQUEST, "oversized_request", "oversized request")    \
    X(ALLOCATOR_CAP, "allocator_cap", "a limit that was set")         \
    X(PINNED_HOST, "pinned_host", "pinned host memory")               \
    X(PREALLOCATION, "preallocation", "preallocation")                \
    X(OUTSIDE_ALLOCATOR, "outside_allocator", "outside PyTorch's allocator")
/* clang-format on */
#define GS_ENUM_CAUSE(s, w, t) GS_CAUSE_##s,
enum gs_cause { GS_OOM_CAUSES(GS_ENUM_CAUSE) GS_CAUSES_N };

/* A number or a word that led to a verdict. `what` reads as a sentence part for people. */
struct gs_evidence {
    const char *key;  /* JSON key, ends in _bytes for bytes, _s for seconds */
    const char *what; /* "growing call sites hold" */
    bool is_text;
    double value; /* NAN unknown */
    const char *text;
};

/* What holds a device's memory: word for scripts, words for people. */
/* clang-format off */
#define GS_HELDS(X)                                                                                \
    X(TENSORS, "tensors", "tensors") X(CACHED, "cached", "cached: free inside PyTorch's segments") \
    X(POOLS, "pools", "in allocations from CUDA's pools")                                          \
    X(IDLE, "pools_free", "held by CUDA's pools, in no allocation")                                \
    X(DIRECT, "direct", "taken from CUDA by other code")                                           \
    X(GRAPHS, "graphs", "held for CUDA graphs")                                                    \
    X(CONTEXT, "context", "this process's CUDA context and code")                                  \
    X(FIRST, "before", "in use when the device was first seen: contexts, other processes")         \
    X(OTHERS, "other_processes", "other processes")                                                \
    X(UNACCOUNTED, "unaccounted", "not accounted for") X(FREE, "free", "free")
/* clang-format on */
#define GS_ENUM_HELD(s, w, t) GS_HELD_##s,
enum gs_held { GS_HELDS(GS_ENUM_HELD) GS_HELD_N };

struct gs_held_line {
    const char *text; /* a library, a process, a kind of hole; NULL: the site says it all */
    struct gs_site site;
    int64_t bytes;  /* GS_UNKNOWN: not told apart */
    uint64_t count; /* blocks, 0 not told */
    uint32_t pid;   /* of a process, else 0 */
};
struct gs_held_part {
    enum gs_held what;
    enum gs_category category; /* of TENSORS: one part each */
    const char *text;
    int64_t bytes;
    double share;               /* of the device */
    struct gs_held_line *lines; /* heaviest first; they sum to `bytes` at most */
    size_t lines_n, lines_total;
};

/* How certain a statement is; every view uses the words of gs_certainty_word(): "recorded" (the calls state it),
 * "inferred" (the recording supports it; `refuted_by` names what would refute it), "guessed". */
enum gs_certainty { GS_CERTAINTY_GUESSED, GS_CERTAINTY_INFERRED, GS_CERTAINTY_RECORDED };

/* One thing to do about an OOM. */
struct gs_measure {
    const char *text;            /* with the amount */
    int64_t frees_bytes;         /* GS_UNKNOWN: cannot be told */
    int8_t enough;               /* 1 that alone would have been enough for the request, 0 not, -1 cannot be
                                    told */
    uint8_t effort;              /* 1 a setting … 4 another way to train */
    bool first;                  /* what the cause itself asks for */
    enum gs_certainty certainty; /* of the amount */
    const char *refuted_by;      /* "if …"; NULL: none known */
};

enum gs_oom_outcome {
    GS_OUTCOME_RETRIED, /* the allocator gave memory back, asked again and was served */
    GS_OUTCOME_HANDLED,
    GS_OUTCOME_ENDED,
    GS_OUTCOME_UNKNOWN
};

struct gs_oom_facts; /* oom.h */
struct gs_oom_verdict {
    uint32_t process;
    const struct gs_oom_facts *facts;
    double time_s;
    int64_t time_ns;                   /* of the call after which what was live was looked at */
    int64_t live_sum;                  /* what was then live in live_layer, GS_UNKNOWN */
    struct gs_by_category by_category; /* of it */
    int device;
    uint8_t layer, space; /* enum gs_layer (the highest that reported), gs_space */
    int64_t requested_bytes, free_bytes, total_bytes, tensor_allocated, tensor_reserved;
    int64_t device_live, graphs, outside; /* with free they sum to the total */
    bool fatal;
    bool capped;                 /* GPUSPY_LIMIT refused it, not the device */
    bool handled;                /* not fatal: the program was told, and went on without it or asked for less */
    enum gs_oom_outcome outcome; /* unknown: fatal to be on the safe side */
    int64_t step;                /* in which it failed, from 1 on; GS_UNKNOWN */
    const char *outcome_why;     /* what that rests on; NULL: it was retried, or is one of very many */
    unsigned failures;           /* failed calls in this one OOM: PyTorch tries, empties, tries again */
    enum gs_cause cause;         /* word: gs_cause_word() */
    struct gs_site growing;      /* of a leak: the place; else not known */
    struct gs_site blame;        /* the one line to look at */
    const char *blame_role;      /* what it did: "growing", "graph", "holder", "direct", "failing" */
    const char *verdict;         /* the cause in one sentence, with the numbers it rests on */
    enum gs_certainty certainty; /* of the cause */
    const char *refuted_by;      /* "if …"; NULL: none known */
    struct gs_evidence *evidence;
    size_t evidence_n; /* in order of importance */
    const char **advice;
    size_t advice_n;             /* at most 4 */
    struct gs_measure *measures; /* the same, with their amounts */
    size_t measures_n;
    struct gs_trace stack;
    struct gs_by_site *live;
    size_t live_n, live_total;     /* what was live then, of the tensor layer where there is one */
    struct gs_by_site *live_lines; /* the same by line */
    size_t live_lines_n, live_lines_total;
    enum gs_series_layer live_layer;
    struct gs_by_owner *by_owner; /* of device_live */
    size_t by_owner_n;
    struct gs_held_part *waterfall; /* the parts sum to total_bytes; none: not all of it is known */
    size_t waterfall_n;
    int64_t rounding_most; /* PyTorch tells rounded sizes: so much of them at most is not used */
};

struct gs_leak { /* never freed while recorded */
    uint32_t process;
    int device;
    enum gs_series_layer layer;
    int64_t bytes;
    uint64_t count;
    bool growing; /* it also stands in growth[] */
    struct gs_trace stack;
    struct gs_paths paths; /* in a list of lines, whose rows have no frames */
};

/* Live bytes that rose steadily over the run: of one line, or of several that one thing keeps (see
 * growth_list.c). */
struct gs_growth_line {
    int64_t bytes;
    uint64_t count; /* allocations that stayed (to the last fatal OOM, else to the process's last one) */
    struct gs_site site;
};
struct gs_growth {
    uint32_t process;
    int device;
    enum gs_series_layer layer;
    int64_t bytes; /* how much it grew */
    double bytes_per_step;
    uint64_t steps; /* over which it grew: the program's own, if `by_steps`; else, where it has none that
                       are known, allocations that stayed */
    bool by_steps;
    uint64_t count;              /* allocations that stayed */
    unsigned jumps;              /* it grew at so few moments, as epochs' ends are; 0: all along */
    double bytes_per_s;          /* from the first of them on */
    double fit;                  /* r² of the straight line through it, 0..1 */
    double first_s, last_s;      /* first and last allocation that stayed */
    bool graph;                  /* its lines make what one forward pass makes: an autograd graph is kept */
    enum gs_certainty certainty; /* that this is a leak, and of its explanation */
    const char *refuted_by;      /* "if …"; NULL: none known */
    struct gs_growth_line *lines;
    size_t lines_n, lines_total; /* heaviest first, at least one */
    struct gs_site newest;       /* of the lines the one that is the last in a step */
    struct gs_site under;        /* the innermost line from which all of it was called; not known: none */
    struct gs_trace stack;       /* of the heaviest call path */
};

/* Where in the program a place calls, see cadence.h. */
/* clang-format off */
#define GS_PHASES(X)                                                                               \
    X(UNKNOWN, NULL) X(STARTUP, "startup") X(STEP, "step") X(LOGGING, "logging")                   \
        X(EVALUATION, "evaluation") X(END, "end")
/* clang-format on */
#define GS_ENUM_PHASE(s, w) GS_PHASE_##s,
enum gs_phase { GS_PHASES(GS_ENUM_PHASE) GS_PHASES_N };

/* How often it calls over the program's steps. */
struct gs_pace {
    enum gs_phase phase;
    double calls_per_step;   /* calls in steady steps, by those; NAN: no steps are known */
    uint64_t steps_with;     /* steady steps with a call of it */
    uint64_t steps_seen;     /* steady steps; 0: none are known */
    unsigned every;          /* of phase logging: once in so many steps, 0 irregularly */
    double steady_share;     /* blocked in steady steps, of the time that they took; NAN */
    double steady_blocked_s; /* NAN */
    bool bunched;            /* its calls in a step follow one another, with little else between them */
    bool loop;               /* the steps are those of a loop of which no more is known than that it is one */
};

struct gs_churn { /* device memory allocated and freed again and again by direct CUDA calls */
    uint32_t process;
    int device;
    uint64_t count; /* allocations */
    int64_t bytes;  /* of them all */
    double per_s, mean_life_s;
    struct gs_pace pace;
    const char *pattern;  /* "empty_cache", NULL none recognised */
    struct gs_site freed; /* of empty_cache: where; else not known */
    struct gs_trace stack;
    const char *advice;
    struct gs_paths paths; /* in a list of lines, whose rows have no frames */
};

struct gs_retry { /* an allocation failed, memory was given back, and it then succeeded */
    uint32_t process;
    double time_s;
    int device;
    int64_t requested_bytes;
    unsigned failures;
    double blocked_s;    /* from the failure until it was served, with all that was done for it; NAN */
    int64_t freed_bytes; /* given back meanwhile, GS_UNKNOWN */
    struct gs_trace stack;
};

struct gs_retry_line { /* the retries at one line */
    uint64_t count;
    int64_t requested_bytes; /* the most that was asked for at once */
    double first_s, last_s;
    struct gs_site site;
    struct gs_paths paths;
};

struct gs_sync_site {
    uint8_t kind; /* enum gs_sync_kind */
    uint64_t count;
    double blocked_s;
    double share; /* of the wall time, 0..; above 1 where threads waited at once */
    bool matters; /* past the thresholds: see gs_pace_costs */
    struct gs_pace pace;
    const char *pattern; /* ".item()", "boolean mask", …, see signature.def; NULL none recognised */
    const char *api;     /* the commonest entry point, "" unknown */
    struct gs_site site;
    const char *advice;    /* NULL: nothing to do */
    struct gs_paths paths; /* in a list of lines */
};

struct gs_transfer {
    uint8_t direction;   /* enum gs_direction */
    uint8_t host_memory; /* enum gs_host_memory */
    int pinned;          /* 1 pinned, 0 pageable, -1 neither applies (no host side, managed) or unknown */
    bool async;
    uint64_t count;
    int64_t bytes;
    double blocked_s;
    double bytes_per_s; /* NAN: cannot be told from the host's time */
    double first_s, last_s;
    struct gs_pace pace;
    struct gs_site site;
    const char *advice;    /* NULL none */
    struct gs_paths paths; /* in a list of lines */
};

struct gs_call {     /* an entry point that is only counted */
    const char *api; /* "" unknown */
    uint64_t count, not_ready;
    double per_s; /* over the run */
};

struct gs_fragmentation { /* GS_UNKNOWN and NAN where the calls do not tell */
    uint32_t process;
    int device;
    double time_s;              /* when: the last fatal OOM, else the device-level peak */
    int64_t reserved_bytes;     /* what the allocator holds of the device */
    int64_t active_bytes;       /* of it in tensors */
    int64_t free_bytes;         /* of it in no tensor */
    int64_t largest_free_bytes; /* the largest hole */
    double external;            /* 1 - largest free / free */
    double utilisation;         /* peak active / peak reserved */
    uint64_t segments, blocks;
};

/* A category beside its estimate. */
struct gs_budget_row {
    enum gs_category category;
    double estimate_bytes;    /* NAN: it is not estimated */
    int64_t peak_bytes;       /* at the measured peak */
    int64_t most_bytes;       /* at any time, GS_UNKNOWN: of CUDA's own allocations */
    double difference_bytes;  /* peak - estimate, NAN */
    const char *why;          /* what the figures imply of it; NULL: as estimated */
    struct interval expected; /* of estimates with activations: at the moment of the measured peak; of
                                 parameters, gradients and states at most. likely NAN: not estimated */
    int8_t inside;            /* 1 measured between low and high, rounding aside; 0 not; -1 not estimated */
};

/* Sums. What comes and goes in a pass is judged as one: which of it is live at a moment, and which is called what,
 * differs with the moment. LEVEL(id, JSON key, words) */
/* clang-format off */
#define GS_LEVELS(LEVEL)                                                                    \
    LEVEL(PASS, "pass", "activations, gradients and temporaries together")                  \
    LEVEL(TENSORS, "tensors", "tensors at the peak")                                        \
    LEVEL(ALLOCATOR, "allocator", "reserved by PyTorch on top: rounding, holes, cache")     \
    LEVEL(CUDA, "cuda", "taken from CUDA")                                                  \
    LEVEL(CONTEXT, "context", "CUDA context, kernels and libraries")                        \
    LEVEL(DEVICE, "device", "in use on the device")
/* clang-format on */
enum gs_level {
#define LEVEL(id, key, text) GS_LEVEL_##id,
    GS_LEVELS(LEVEL)
#undef LEVEL
        GS_LEVELS_N
};
struct gs_budget_level {
    enum gs_level level;
    struct interval expected;
    double measured_bytes;
    int8_t inside; /* as of rows */
};

struct gs_budget {
    bool present;
    uint64_t gpus;                 /* of the estimate, which is that of one of them */
    const struct gs_rank *rank;    /* whose peak it is, of several; NULL: there are none */
    const struct gs_budget *ranks; /* where the estimate is of several GPUs: each rank beside it, in order of rank */
    size_t ranks_n;
    uint32_t process; /* whose peak it is */
    int device;
    struct gs_estimate_bytes estimate;
    int64_t measured_bytes; /* the largest tensor (else device) peak of one device */
    enum gs_series_layer measured_layer;
    struct gs_by_category by_category;          /* of that peak */
    double difference_bytes, difference_share;  /* measured - estimate; share of the estimate */
    struct gs_budget_row rows[GS_CATEGORIES_N]; /* none where no tensor has a category */
    size_t rows_n;
    int64_t pass_most_bytes;       /* the most that activations and the temporaries of passes came to; GS_UNKNOWN */
    bool planned;                  /* the estimate has activations, and categories were recognised: */
    struct interval expected_peak; /* of one GPU, all of it */
    int expected_phase, measured_phase;         /* enum estimate_phase; measured -1: it cannot be told */
    struct gs_budget_level levels[GS_LEVELS_N]; /* those that both are known of */
    size_t levels_n;
    bool failed;             /* memory ran out for good in that process: its last step is not whole */
    int64_t parameter_bytes; /* of one device, the most that were measured; 0 none */
};

/* What NVML said of one device in one process, thinned to so many points; in order of time. */
enum { GS_SAMPLE_POINTS = 512 };
struct gs_sample_line {
    uint32_t process;
    int device;
    const struct gs_device_sample **points;
    size_t n, total;
};

struct gs_advice {
    double impact;     /* share of the peak or of the wall time it is about; an OOM: above 1 */
    const char *topic; /* oom leak sync transfer fragmentation churn recording loop */
    const char *text;  /* one thing to do, with its place */
};

/* What outlived what a process did, by category: one for each series. Only where options.watch is set. */
struct gs_category_end {
    uint32_t process;
    int device;
    enum gs_series_layer layer;
    int64_t end_ns; /* the last allocation, or the failure that ended the run */
    struct gs_by_category by_category;
};

struct gs_allocator_state; /* allocator.h */
struct gs_cache_flush;
struct gs_report {
    struct gs_run *run;
    const char *command; /* of the first process, NULL unknown */
    double duration_s;
    uint64_t lost_events;
    double lost_first_s; /* NAN */
    bool complete;       /* every process ended in order and no event was lost */
    uint64_t events;     /* recorded calls: allocations, frees, copies, fills, waits, failures, … */
    const struct gs_process *processes;
    size_t processes_n;
    const char *const *notes;
    size_t notes_n; /* what a reader must know first */
    const struct gs_device *devices;
    size_t devices_n; /* each once, in order of index */
    struct gs_peak *peaks;
    size_t peaks_n; /* by process, device, layer */
    struct gs_timeline *timelines;
    size_t timelines_n; /* same order as peaks; then those of layer graph */
    struct gs_device_memory *memory;
    size_t memory_n;
    struct gs_rank *ranks;
    size_t ranks_n; /* in order of rank; none where fewer than two processes held device memory */
    struct gs_rank_spread rank_spread[GS_RANK_FIGURES_N]; /* where there are ranks */
    size_t rank_hosts;
    struct gs_rank_finding *rank_findings;
    size_t rank_findings_n;
    struct gs_preallocation *preallocations;
    size_t preallocations_n; /* by process, largest first */
    struct gs_oom_verdict *ooms;
    size_t ooms_n, ooms_total; /* fatal first, then by time */
    struct gs_leak *leaks;
    size_t leaks_n, leaks_total;
    struct gs_leak *leak_lines; /* this list and those below that end in _lines: the same by line */
    size_t leak_lines_n, leak_lines_total;
    bool leaks_at_end;             /* the run ended in order: "never freed"; else "live when it died" */
    const struct gs_steps **steps; /* see step.h; by process, of those that have some */
    size_t steps_n;
    struct gs_growth *growth;
    size_t growth_n, growth_total;
    struct gs_sync_site *syncs;
    size_t syncs_n, syncs_total;
    struct gs_sync_site *sync_lines;
    size_t sync_lines_n, sync_lines_total;
    double sync_blocked_s, sync_share; /* all of them */
    bool simulated;                    /* a GPU is: times on it mean nothing */
    const char *loop;                  /* of a dry run: the loop that waits for values, as a sentence; NULL none */
    struct gs_transfer *transfers;
    size_t transfers_n, transfers_total;
    struct gs_transfer *transfer_lines;
    size_t transfer_lines_n, transfer_lines_total;
    struct gs_call *calls;
    size_t calls_n, calls_total;
    struct gs_fragmentation *fragmentation;
    size_t fragmentation_n;
    struct gs_churn *churn;
    size_t churn_n, churn_total;
    struct gs_churn *churn_lines;
    size_t churn_lines_n, churn_lines_total;
    struct gs_retry *retries;
    size_t retries_n, retries_total;   /* in order of time */
    struct gs_retry_line *retry_lines; /* of all, the most frequent first */
    size_t retry_lines_n, retry_lines_total;
    struct gs_allocator_state *allocator; /* allocator.h; by process, device, time */
    size_t allocator_n;
    struct gs_cache_flush *flushes; /* those that matter first */
    size_t flushes_n, flushes_total;
    struct gs_budget budget;
    struct gs_mark_total *marks; /* longest first, then most frequent */
    size_t marks_n, marks_total;
    struct gs_sample_line *samples;
    size_t samples_n;
    struct gs_advice *advice;
    size_t advice_n;
    struct gs_category_end *ends;
    size_t ends_n;        /* in the order of peaks */
    struct gs_uses *uses; /* category_use.h; freed with the report */
    const struct gs_tensor_check *checks;
    size_t checks_n; /* gpuspy's totals held against PyTorch's */
};

/* What a view wants to see of the passes that a report makes, in place of more passes. It also has the
 * report keep what was live at the peaks and at the end by stack and category. */
struct gs_watch {
    struct gs_observer observer; /* of the one replay, behind those of the questions */
    gs_call_fn call;             /* of the pass over copies and waits; NULL */
    void *self;                  /* of `call` */
};

/* Words (words.c), as JSON has them. */
const char *gs_level_key(enum gs_level level);
const char *gs_level_text(enum gs_level level);
const char *gs_moment_key(int phase); /* "forward_end"; NULL where it is -1 */
const char *gs_moment_text(int phase);
const char *gs_series_word(enum gs_series_layer layer); /* device tensor pinned host shared */
const char *gs_held_word(enum gs_held what);
const char *gs_phase_word(enum gs_phase phase);          /* startup step logging evaluation end, NULL unknown */
const char *gs_category_word(enum gs_category category); /* "optimizer_state" */
const char *gs_category_text(enum gs_category category); /* for people: "optimizer state" */
const char *gs_owner_kind_word(enum gs_owner_kind kind);
const char *gs_cause_word(enum gs_cause cause);  /* of JSON */
const char *gs_cause_title(enum gs_cause cause); /* of the page */
const char *gs_certainty_word(enum gs_certainty certainty);
const char *gs_outcome_word(enum gs_oom_outcome outcome);

#endif
