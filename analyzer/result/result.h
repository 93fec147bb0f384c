/* The complete answer about a run, which the questions fill and all views read: types alone.
 *
 * Units: bytes; seconds (double) since the process's start of recording. A size that is not known
 * is RUN_UNKNOWN (JSON null), a double that is not known is NAN, a string that is not known is NULL.
 * Ownership: everything belongs to the report and lives until report_free, which must come
 * before run_close of its run: strings of frames belong to the run. Lists are ordered by weight,
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

#define RESULT_SCHEMA 1

/* What a block is for: see category.h. */
/* clang-format off */
#define RESULT_CATEGORIES(X)                                                                           \
    X(PARAMETERS, "parameters")                                                                    \
    X(GRADIENTS, "gradients")                                                                      \
    X(OPTIMIZER_STATE, "optimizer_state")                                                          \
    X(ACTIVATIONS, "activations")                                                                  \
    X(INPUTS, "inputs")                                                                            \
    X(TEMPORARIES, "temporaries")                                                                  \
    X(WORKSPACES, "workspaces") X(KV_CACHE, "kv_cache") X(UNKNOWN, "unknown")
/* clang-format on */
#define RESULT_ENUM_CATEGORY(s, w) RESULT_CATEGORY_##s,
enum result_category { RESULT_CATEGORIES(RESULT_ENUM_CATEGORY) RESULT_CATEGORIES_N };

/* Whose memory it is: see owner.h. */
/* clang-format off */
#define RESULT_OWNER_KINDS(X)                                                                          \
    X(UNKNOWN, "unknown")                                                                          \
    X(TORCH, "torch")                 /* segments of PyTorch's caching allocator */                \
    X(POOL, "pool")                   /* another allocator's, which hands it out itself */         \
    X(FRAMEWORK, "framework")                                                                      \
    X(COMMUNICATION, "communication") X(LIBRARY, "library") /* handles, workspaces */              \
    X(PACKAGE, "package")             /* an installed Python package that the table does not know */ \
    X(USER, "user")                   /* the program's own binary, extension or Python file */
/* clang-format on */
#define RESULT_ENUM_OWNER(s, w) RESULT_OWNER_##s,
enum result_owner_kind { RESULT_OWNER_KINDS(RESULT_ENUM_OWNER) RESULT_OWNER_KINDS_N };

/* Where an answer points: the innermost frame of the user's own code, see site.h. */
struct result_site {
    uint8_t kind;                   /* enum gs_frame_kind */
    bool known;                     /* false: no stack was recorded; the rest is empty */
    bool library;                   /* no frame of the user's own: this one is in a library */
    const char *function;           /* NULL unknown */
    const char *file;               /* of a native frame without lines: its module; NULL unknown */
    int line;                       /* 0 unknown */
    uint64_t offset;                /* native without lines: offset in the module */
    bool exit;                      /* no line: Python was tearing down */
    bool helper;                    /* `via` is a helper of the user's own, which this line called */
    const char *operation;          /* "AddmmBackward0", the gradient then computed: the line is that
                                       of backward(). "Engine" between operations; NULL none */
    const struct run_frame *via;    /* the innermost Python frame of the library or helper below the
                                      site, NULL none */
    const struct run_frame *inner;  /* the innermost line of a library that was installed and is not
                                      PyTorch or the like: of a model's, a trainer's, a metric's;
                                      NULL none */
    const struct run_frame *caller; /* the user's line that called the site's function, NULL none:
                                      tells the users of a function apart. Lists by site are by
                                      (site, inner, caller) or, of a helper, (site, via) */
    uint32_t paths; /* of a line in a list of lines: places that called it, as told apart here; 0: one */
};

/* A line of the program's source, with those around it. */
struct result_excerpt {
    const char *file, *function; /* of the line; function NULL unknown */
    int line;
    int first_line;           /* of `lines` */
    const char *const *lines; /* without their ends; to be cleaned for display */
    size_t n;
    const char *role; /* what the line did: "growing", "failing", "holder", …: as result_oom_verdict.blame_role */
    bool from_disk;   /* the recording does not have it: the file, which is older than the recording */
};

/* The statement that seems to keep memory that grows: inferred from the source, and always a guess. */
struct result_holder {
    const char *file, *function; /* function NULL: of no function */
    int line;
    const char *text; /* "features.append(model.features)", cleaned */
    const char *why;  /* what speaks for it, a part of a sentence */
};
enum { RESULT_HOLDERS = 2 }; /* a guess names at most two */

/* Lists by line have a row for each line of code, whatever called it. Its call paths, heaviest first: */
struct result_line_path {
    int64_t bytes;
    uint64_t count;
    double blocked_s; /* of waits and copies */
    struct result_site site;
};
struct result_paths {
    struct result_line_path *list;
    size_t listed, n; /* n: before the list was cut; 1: it is the line itself, and no list */
};

struct result_trace { /* a call path; its frames are named when they are shown: run_frame_places */
    uint32_t number;  /* of the stack, RUN_NONE */
    struct result_site site;
};

struct result_by_stack {
    int64_t bytes;
    uint64_t count;
    enum result_category category; /* of most of the bytes, with the rule that said so */
    const char *category_evidence;
    struct result_trace stack;
};

struct result_by_site {
    int64_t bytes;
    uint64_t count;  /* allocations */
    uint32_t stacks; /* call paths that led there */
    struct result_site site;
    struct result_paths paths; /* in a list of lines */
};

/* What the live blocks were for, see category.h. */
struct result_category_share {
    enum result_category category;
    const char *evidence; /* the rule's */
    int64_t bytes;
    uint64_t count;
    unsigned rule;
};
struct result_category_line {
    uint32_t stack; /* RUN_NONE */
    enum result_category category;
    const char *evidence;
    int64_t bytes;
    uint64_t count;
    unsigned rule;
};
struct result_by_category {
    int64_t bytes[RESULT_CATEGORIES_N];   /* they sum to the live bytes; all 0: not looked at */
    struct result_category_share *shares; /* by rule, heaviest first */
    size_t shares_n;
    struct result_category_line *lines; /* of peaks where options.watch is set: by stack and rule, in no order */
    size_t lines_n;
};

/* Device memory by who took it, see owner.h. */
struct result_by_owner {
    const char *owner;           /* "NCCL" */
    enum result_owner_kind kind; /* word: result_owner_kind_word() */
    const char *by;              /* the file whose frame says so, NULL unknown */
    int64_t bytes;
    uint64_t count;
    int64_t by_space[8];     /* enum gs_space */
    struct result_site site; /* where most of it was taken */
};

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
    int64_t allocated_bytes;     /* likewise: what it came to, freed or not */
    struct result_by_stack *by_stack;
    size_t by_stack_n, by_stack_total;
    struct result_by_site *by_site;
    size_t by_site_n, by_site_total;
    struct result_by_site *by_line; /* the same by line */
    size_t by_line_n, by_line_total;
    int64_t by_space[8];              /* enum gs_space; of layer device alone */
    struct result_by_owner *by_owner; /* likewise; they sum to `bytes`, PyTorch's segments among them */
    size_t by_owner_n;
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
    size_t n; /* in order of time; the peak is among them */
};

/* Where a device's memory was at the moment of the device-level peak. The parts (tensor, cached,
 * direct, graph, outside, free) sum to the device's total where all of them are known. */
struct result_device_memory {
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
struct result_rank {
    uint32_t process;
    int64_t rank;                                 /* RUN_UNKNOWN */
    int device;                                   /* that it works on: its own number of it */
    const char *gpu;                              /* the host's: the word of CUDA_VISIBLE_DEVICES, else that number */
    int64_t tensor_peak_bytes, device_peak_bytes; /* there; tensors RUN_UNKNOWN */
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
#define RESULT_RANK_FIGURES(X)                                                                   \
    X(TENSOR_PEAK, "tensor_peak_bytes", "tensors") X(DEVICE_PEAK, "device_peak_bytes", "CUDA allocations") \
    X(WAITED, "waited_s", "waited") X(WAITS, "waits", "waits") X(COPIED, "copied_bytes", "copied")        \
    X(COPIES, "copies", "copies") X(ALLOCATIONS, "allocations", "allocations") X(STARTED, "start_s", "started after")
/* clang-format on */
#define RESULT_ENUM_RANK_FIGURE(s, k, w) RESULT_RANK_##s,
enum result_rank_figure { RESULT_RANK_FIGURES(RESULT_ENUM_RANK_FIGURE) RESULT_RANK_FIGURES_N };
struct result_rank_spread { /* NAN: it is not known of all of them */
    double least, median, most;
    size_t least_at, most_at; /* index into ranks */
};

/* clang-format off */
#define RESULT_RANK_KINDS(X)                                                            \
    X(STRAY, "stray")   /* it has memory or a context on a GPU that is another's */ \
    X(SHARED, "shared") /* several work on one GPU */                               \
    X(IMBALANCE, "imbalance")                                                       \
    X(STRAGGLER, "straggler") /* the others seem to wait for it */                  \
    X(AGAIN, "started_again")                                                       \
    X(MISSING, "missing") /* of the job's ranks: no recording is here */
/* clang-format on */
#define RESULT_ENUM_RANK(s, w) RESULT_RANK_##s,
enum result_rank_kind { RESULT_RANK_KINDS(RESULT_ENUM_RANK) };
struct result_rank_finding {
    enum result_rank_kind kind;
    uint32_t process; /* the first of them */
    int device;       /* its number of the GPU */
    size_t ranks;     /* that it is about */
    int64_t bytes;
    const char *text;   /* one sentence */
    const char *advice; /* NULL none */
    struct result_site site;
};

/* A framework that took a device in advance, or keeps what it took: what is used inside is not seen. */
struct result_preallocation {
    uint32_t process;
    int device;
    const char *owner;    /* "JAX" */
    bool in_advance;      /* in one piece, before it was needed; else a pool that grew */
    bool within;          /* of PyTorch's tensors, and so in the tensor level */
    int64_t bytes;        /* the piece; of a pool the most that it held */
    double share;         /* of the device, NAN unknown */
    const char *sentence; /* one sentence */
    const char *advice;   /* what to change if the memory is wanted elsewhere; NULL: it is bounded already */
    struct result_site site;
};

/* Why memory ran out: the word of JSON, and the page's. To add one: a row here, its rule and sentence in
 * oom/oom_cause.c. */
/* clang-format off */
#define RESULT_OOM_CAUSES(X)                                              \
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
#define RESULT_ENUM_CAUSE(s, w, t) RESULT_CAUSE_##s,
enum result_cause { RESULT_OOM_CAUSES(RESULT_ENUM_CAUSE) RESULT_CAUSES_N };

/* A number or a word that led to a verdict. `what` reads as a sentence part for people. */
struct result_evidence {
    const char *key;  /* JSON key, ends in _bytes for bytes, _s for seconds */
    const char *what; /* "growing call sites hold" */
    bool is_text;
    double value; /* NAN unknown */
    const char *text;
};

/* What holds a device's memory: word for scripts, words for people. */
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
    const char *text; /* a library, a process, a kind of hole; NULL: the site says it all */
    struct result_site site;
    int64_t bytes;  /* RUN_UNKNOWN: not told apart */
    uint64_t count; /* blocks, 0 not told */
    uint32_t pid;   /* of a process, else 0 */
};
struct result_held_part {
    enum result_held what;
    enum result_category category; /* of TENSORS: one part each */
    const char *text;
    int64_t bytes;
    double share;                   /* of the device */
    struct result_held_line *lines; /* heaviest first; they sum to `bytes` at most */
    size_t lines_n, lines_total;
};

/* How certain a statement is; every view uses the words of result_certainty_word(): "recorded" (the calls state it),
 * "inferred" (the recording supports it; `refuted_by` names what would refute it), "guessed". */
enum result_certainty { RESULT_CERTAINTY_GUESSED, RESULT_CERTAINTY_INFERRED, RESULT_CERTAINTY_RECORDED };

/* One thing to do about an OOM. */
struct result_measure {
    const char *text;                /* with the amount */
    int64_t frees_bytes;             /* RUN_UNKNOWN: cannot be told */
    int8_t enough;                   /* 1 that alone would have been enough for the request, 0 not, -1 cannot be
                                        told */
    uint8_t effort;                  /* 1 a setting … 4 another way to train */
    bool first;                      /* what the cause itself asks for */
    const char *replayed;            /* "with expandable_segments:True": the request replayed so; NULL: a formula */
    bool fits;                       /* … succeeds, and leaves so many bytes of the GPU */
    int64_t spare_bytes;             /* RUN_UNKNOWN */
    enum result_certainty certainty; /* of the amount */
    const char *refuted_by;          /* "if …"; NULL: none known */
};

enum result_oom_outcome {
    RESULT_OUTCOME_RETRIED, /* the allocator gave memory back, asked again and was served */
    RESULT_OUTCOME_HANDLED,
    RESULT_OUTCOME_ENDED,
    RESULT_OUTCOME_UNKNOWN
};

struct oom_facts; /* oom.h */
struct result_oom_verdict {
    uint32_t process;
    const struct oom_facts *facts;
    double time_s;
    int64_t time_ns;                       /* of the call after which what was live was looked at */
    int64_t live_sum;                      /* what was then live in live_layer, RUN_UNKNOWN */
    struct result_by_category by_category; /* of it */
    int device;
    uint8_t layer, space; /* enum gs_layer (the highest that reported), gs_space */
    int64_t requested_bytes, free_bytes, total_bytes, tensor_allocated, tensor_reserved;
    int64_t device_live, graphs, outside; /* with free they sum to the total */
    bool fatal;
    bool capped;                     /* GPUSPY_LIMIT refused it, not the device */
    bool handled;                    /* not fatal: the program was told, and went on without it or asked for less */
    enum result_oom_outcome outcome; /* unknown: fatal to be on the safe side */
    int64_t step;                    /* in which it failed, from 1 on; RUN_UNKNOWN */
    const char *outcome_why;         /* what that rests on; NULL: it was retried, or is one of very many */
    unsigned failures;               /* failed calls in this one OOM: PyTorch tries, empties, tries again */
    enum result_cause cause;         /* word: result_cause_word() */
    struct result_site growing;      /* of a leak: the place; else not known */
    struct result_site blame;        /* the one line to look at */
    const char *blame_role;          /* what it did: "growing", "graph", "holder", "direct", "failing" */
    const char *verdict;             /* the cause in one sentence, with the numbers it rests on */
    enum result_certainty certainty; /* of the cause */
    const char *refuted_by;          /* "if …"; NULL: none known */
    struct result_evidence *evidence;
    size_t evidence_n; /* in order of importance */
    const char **advice;
    size_t advice_n;                 /* at most 4 */
    struct result_measure *measures; /* the same, with their amounts */
    size_t measures_n;
    struct result_trace stack;
    struct result_excerpt *source; /* the blamed line, the line that failed, if they are known */
    size_t source_n;
    struct result_holder *holders; /* of a leak; two: they are equally likely */
    size_t holders_n;
    struct result_by_site *live;
    size_t live_n, live_total;         /* what was live then, of the tensor layer where there is one */
    struct result_by_site *live_lines; /* the same by line */
    size_t live_lines_n, live_lines_total;
    enum run_series_layer live_layer;
    struct result_by_owner *by_owner; /* of device_live */
    size_t by_owner_n;
    struct result_held_part *waterfall; /* the parts sum to total_bytes; none: not all of it is known */
    size_t waterfall_n;
    int64_t rounding_most; /* PyTorch tells rounded sizes: so much of them at most is not used */
};

struct result_leak { /* never freed while recorded */
    uint32_t process;
    int device;
    enum run_series_layer layer;
    int64_t bytes;
    uint64_t count;
    bool growing; /* it also stands in growth[] */
    struct result_trace stack;
    struct result_paths paths; /* in a list of lines, whose rows have no frames */
};

/* Live bytes that rose steadily over the run: of one line, or of several that one thing keeps (see
 * growth_list.c). */
struct result_growth_line {
    int64_t bytes;
    uint64_t count; /* allocations that stayed (to the last fatal OOM, else to the process's last one) */
    struct result_site site;
};
struct result_growth {
    uint32_t process;
    int device;
    enum run_series_layer layer;
    int64_t bytes; /* how much it grew */
    double bytes_per_step;
    uint64_t steps; /* over which it grew: the program's own, if `by_steps`; else, where it has none that
                       are known, allocations that stayed */
    bool by_steps;
    uint64_t count;                  /* allocations that stayed */
    unsigned jumps;                  /* it grew at so few moments, as epochs' ends are; 0: all along */
    double bytes_per_s;              /* from the first of them on */
    double fit;                      /* r² of the straight line through it, 0..1 */
    double first_s, last_s;          /* first and last allocation that stayed */
    bool graph;                      /* its lines make what one forward pass makes: an autograd graph is kept */
    enum result_certainty certainty; /* that this is a leak, and of its explanation */
    const char *refuted_by;          /* "if …"; NULL: none known */
    struct result_growth_line *lines;
    size_t lines_n, lines_total;   /* heaviest first, at least one */
    struct result_site newest;     /* of the lines the one that is the last in a step */
    struct result_site under;      /* the innermost line from which all of it was called; not known: none */
    struct result_trace stack;     /* of the heaviest call path */
    struct result_excerpt *source; /* the line that is the last in a step, the heaviest line, if they are known */
    size_t source_n;
    struct result_holder *holders; /* as of result_oom_verdict */
    size_t holders_n;
};

/* Where in the program a place calls, see cadence.h. */
/* clang-format off */
#define RESULT_PHASES(X)                                                                               \
    X(UNKNOWN, NULL) X(STARTUP, "startup") X(STEP, "step") X(LOGGING, "logging")                   \
        X(EVALUATION, "evaluation") X(END, "end")
/* clang-format on */
#define RESULT_ENUM_PHASE(s, w) RESULT_PHASE_##s,
enum result_phase { RESULT_PHASES(RESULT_ENUM_PHASE) RESULT_PHASES_N };

/* How often it calls over the program's steps. */
struct result_pace {
    enum result_phase phase;
    double calls_per_step;   /* calls in steady steps, by those; NAN: no steps are known */
    uint64_t steps_with;     /* steady steps with a call of it */
    uint64_t steps_seen;     /* steady steps; 0: none are known */
    unsigned every;          /* of phase logging: once in so many steps, 0 irregularly */
    double steady_share;     /* blocked in steady steps, of the time that they took; NAN */
    double steady_blocked_s; /* NAN */
    bool bunched;            /* its calls in a step follow one another, with little else between them */
    bool loop;               /* the steps are those of a loop of which no more is known than that it is one */
};

struct result_churn { /* device memory allocated and freed again and again by direct CUDA calls */
    uint32_t process;
    int device;
    uint64_t count; /* allocations */
    int64_t bytes;  /* of them all */
    double per_s, mean_life_s;
    struct result_pace pace;
    const char *pattern;      /* "empty_cache", NULL none recognised */
    struct result_site freed; /* of empty_cache: where; else not known */
    struct result_trace stack;
    const char *advice;
    struct result_paths paths; /* in a list of lines, whose rows have no frames */
};

struct result_retry { /* an allocation failed, memory was given back, and it then succeeded */
    uint32_t process;
    double time_s;
    int device;
    int64_t requested_bytes;
    unsigned failures;
    double blocked_s;    /* from the failure until it was served, with all that was done for it; NAN */
    int64_t freed_bytes; /* given back meanwhile, RUN_UNKNOWN */
    struct result_trace stack;
};

struct result_retry_line { /* the retries at one line */
    uint64_t count;
    int64_t requested_bytes; /* the most that was asked for at once */
    double first_s, last_s;
    struct result_site site;
    struct result_paths paths;
};

struct result_sync_site {
    uint8_t kind; /* enum gs_sync_kind */
    uint64_t count;
    double blocked_s;
    double share; /* of the wall time, 0..; above 1 where threads waited at once */
    bool matters; /* past the thresholds: see step_pace_matters */
    struct result_pace pace;
    const char *pattern; /* ".item()", "boolean mask", …, see signature.def; NULL none recognised */
    const char *api;     /* the commonest entry point, "" unknown */
    struct result_site site;
    const char *advice;        /* NULL: nothing to do */
    struct result_paths paths; /* in a list of lines */
};

struct result_transfer {
    uint8_t direction;   /* enum gs_direction */
    uint8_t host_memory; /* enum gs_host_memory */
    int pinned;          /* 1 pinned, 0 pageable, -1 neither applies (no host side, managed) or unknown */
    bool async;
    uint64_t count;
    int64_t bytes;
    double blocked_s;
    double bytes_per_s; /* NAN: cannot be told from the host's time */
    double first_s, last_s;
    struct result_pace pace;
    struct result_site site;
    const char *advice;        /* NULL none */
    struct result_paths paths; /* in a list of lines */
};

struct result_call { /* an entry point that is only counted */
    const char *api; /* "" unknown */
    uint64_t count, not_ready;
    double per_s; /* over the run */
};

struct result_fragmentation { /* RUN_UNKNOWN and NAN where the calls do not tell */
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
struct result_budget_row {
    enum result_category category;
    double estimate_bytes;             /* NAN: it is not estimated */
    int64_t peak_bytes;                /* at the measured peak */
    int64_t most_bytes;                /* at any time, RUN_UNKNOWN: of CUDA's own allocations */
    double difference_bytes;           /* peak - estimate, NAN */
    const char *why;                   /* what the figures imply of it; NULL: as estimated */
    struct estimate_interval expected; /* of estimates with activations: at the moment of the measured peak; of
                                 parameters, gradients and states at most. likely NAN: not estimated */
    int8_t inside;                     /* 1 measured between low and high, rounding aside; 0 not; -1 not estimated */
};

/* Sums. What comes and goes in a pass is judged as one: which of it is live at a moment, and which is called what,
 * differs with the moment. LEVEL(id, JSON key, words) */
/* clang-format off */
#define RESULT_LEVELS(LEVEL)                                                                    \
    LEVEL(PASS, "pass", "activations, gradients and temporaries together")                  \
    LEVEL(TENSORS, "tensors", "tensors at the peak")                                        \
    LEVEL(ALLOCATOR, "allocator", "reserved by PyTorch on top: rounding, holes, cache")     \
    LEVEL(CUDA, "cuda", "CUDA allocations")                                                  \
    LEVEL(CONTEXT, "context", "CUDA context, kernels and libraries")                        \
    LEVEL(DEVICE, "device", "in use on the device")
/* clang-format on */
enum result_level {
#define LEVEL(id, key, text) RESULT_LEVEL_##id,
    RESULT_LEVELS(LEVEL)
#undef LEVEL
        RESULT_LEVELS_N
};
struct result_budget_level {
    enum result_level level;
    struct estimate_interval expected;
    double measured_bytes;
    int8_t inside; /* as of rows */
};

struct result_budget {
    bool present;
    uint64_t gpus;                  /* of the estimate, which is that of one of them */
    const struct result_rank *rank; /* whose peak it is, of several; NULL: there are none */
    const struct result_budget
        *ranks; /* where the estimate is of several GPUs: each rank beside it, in order of rank */
    size_t ranks_n;
    uint32_t process; /* whose peak it is */
    int device;
    struct run_estimate_bytes estimate;
    int64_t measured_bytes; /* the largest tensor (else device) peak of one device */
    enum run_series_layer measured_layer;
    struct result_by_category by_category;              /* of that peak */
    double difference_bytes, difference_share;          /* measured - estimate; share of the estimate */
    struct result_budget_row rows[RESULT_CATEGORIES_N]; /* none where no tensor has a category */
    size_t rows_n;
    int64_t pass_most_bytes; /* the most that activations and the temporaries of passes came to; RUN_UNKNOWN */
    bool planned;            /* the estimate has activations, and categories were recognised: */
    struct estimate_interval expected_peak;             /* of one GPU, all of it */
    int expected_phase, measured_phase;                 /* enum estimate_phase; measured -1: it cannot be told */
    struct result_budget_level levels[RESULT_LEVELS_N]; /* those that both are known of */
    size_t levels_n;
    bool failed;             /* memory ran out for good in that process: its last step is not whole */
    int64_t parameter_bytes; /* of one device, the most that were measured; 0 none */
};

/* What was live on a device while at least one NVTX range of the name was open, on any thread. A row for each device
 * and layer (device, tensor); of a scope without memory one with device -1. entry and exit are of the visit, from the
 * first range that opened to the last that closed, in which the peak was. */
struct result_scope {
    uint32_t process;
    const char *name, *domain; /* domain: NULL the default one */
    uint64_t count, open;      /* ranges; of them without an end */
    double total_s;            /* of the others */
    int device;
    enum run_series_layer layer;
    int64_t peak_bytes, peak_ns;
    double peak_time_s;              /* NAN without memory */
    int64_t entry_bytes, exit_bytes; /* exit_bytes: RUN_UNKNOWN where it was still open at the end */
    bool incomplete;                 /* a bounded recording, which has not kept the peaks of all that it removed */
};

/* What NVML said of one device in one process, thinned to so many points; in order of time. */
enum { RESULT_SAMPLE_POINTS = 512 };
struct result_sample_line {
    uint32_t process;
    int device;
    const struct run_device_sample **points;
    size_t n, total;
};

struct result_advice {
    double impact;     /* share of the peak or of the wall time it is about; an OOM: above 1 */
    const char *topic; /* oom leak sync transfer fragmentation churn recording loop */
    const char *text;  /* one thing to do, with its place */
};

/* What outlived what a process did, by category: one for each series. Only where options.watch is set. */
struct result_category_end {
    uint32_t process;
    int device;
    enum run_series_layer layer;
    int64_t end_ns; /* the last allocation, or the failure that ended the run */
    struct result_by_category by_category;
};

struct allocator_state; /* allocator.h */
struct allocator_cache_flush;
struct result_report {
    struct run *run;
    const char *command; /* of the first process, NULL unknown */
    double duration_s;
    uint64_t lost_events;
    double lost_first_s; /* NAN */
    bool complete;       /* every process ended in order and no event was lost */
    uint64_t events;     /* recorded calls: allocations, frees, copies, fills, waits, failures, … */
    const struct run_process *processes;
    size_t processes_n;
    const char *const *notes;
    size_t notes_n; /* what a reader must know first */
    const struct run_device *devices;
    size_t devices_n; /* each once, in order of index */
    struct result_peak *peaks;
    size_t peaks_n; /* by process, device, layer */
    struct result_timeline *timelines;
    size_t timelines_n; /* same order as peaks; then those of layer graph */
    struct result_device_memory *memory;
    size_t memory_n;
    struct result_rank *ranks;
    size_t ranks_n; /* in order of rank; none where fewer than two processes held device memory */
    struct result_rank_spread rank_spread[RESULT_RANK_FIGURES_N]; /* where there are ranks */
    size_t rank_hosts;
    struct result_rank_finding *rank_findings;
    size_t rank_findings_n;
    struct result_preallocation *preallocations;
    size_t preallocations_n; /* by process, largest first */
    struct result_oom_verdict *ooms;
    size_t ooms_n, ooms_total; /* fatal first, then by time */
    struct result_leak *leaks;
    size_t leaks_n, leaks_total;
    struct result_leak *leak_lines; /* this list and those below that end in _lines: the same by line */
    size_t leak_lines_n, leak_lines_total;
    bool leaks_at_end;              /* the run ended in order: "never freed"; else "live when it died" */
    const struct step_list **steps; /* see step.h; by process, of those that have some */
    size_t steps_n;
    struct result_growth *growth;
    size_t growth_n, growth_total;
    struct result_sync_site *syncs;
    size_t syncs_n, syncs_total;
    struct result_sync_site *sync_lines;
    size_t sync_lines_n, sync_lines_total;
    double sync_blocked_s, sync_share; /* all of them */
    bool simulated;                    /* a GPU is: times on it mean nothing */
    bool imported;                     /* made by another tool: what the program did afterwards is unknown */
    const char *no_history;            /* why only one moment is known, NULL: more is */
    bool no_times;                     /* nor when: one event follows another by 1 us */
    const char *no_memory;             /* why memory is unknown, NULL: it is known */
    bool failed_unknown;               /* allocations failed, of which no more is known */
    const char *lacks[RUN_FACT_N];     /* words of what an imported recording does not tell */
    size_t lacks_n;
    const char *loop; /* of a dry run: the loop that waits for values, as a sentence; NULL none */
    struct result_transfer *transfers;
    size_t transfers_n, transfers_total;
    struct result_transfer *transfer_lines;
    size_t transfer_lines_n, transfer_lines_total;
    struct result_call *calls;
    size_t calls_n, calls_total;
    struct result_fragmentation *fragmentation;
    size_t fragmentation_n;
    struct result_churn *churn;
    size_t churn_n, churn_total;
    struct result_churn *churn_lines;
    size_t churn_lines_n, churn_lines_total;
    struct result_retry *retries;
    size_t retries_n, retries_total;       /* in order of time */
    struct result_retry_line *retry_lines; /* of all, the most frequent first */
    size_t retry_lines_n, retry_lines_total;
    struct allocator_state *allocator; /* allocator.h; by process, device, time */
    size_t allocator_n;
    struct allocator_cache_flush *flushes; /* those that matter first */
    size_t flushes_n, flushes_total;
    struct result_budget budget;
    struct run_mark_total *marks; /* longest first, then most frequent */
    size_t marks_n, marks_total;
    struct result_scope *scopes; /* highest peak first */
    size_t scopes_n, scopes_total;
    struct result_sample_line *samples;
    size_t samples_n;
    struct result_advice *advice;
    size_t advice_n;
    struct result_category_end *ends;
    size_t ends_n;              /* in the order of peaks */
    struct category_uses *uses; /* category_use.h; freed with the report */
    const struct run_tensor_check *checks;
    size_t checks_n; /* gpuspy's totals held against PyTorch's */
};

/* What a view wants to see of the passes that a report makes, in place of more passes. It also has the
 * report keep what was live at the peaks and at the end by stack and category. */
struct result_watch {
    struct run_observer observer; /* of the one replay, behind those of the questions */
    run_call_fn call;             /* of the pass over copies and waits; NULL */
    void *self;                   /* of `call` */
};

/* Words (words.c), as JSON has them. */
const char *result_level_key(enum result_level level);
const char *result_level_text(enum result_level level);
const char *result_moment_key(int phase); /* "forward_end"; NULL where it is -1 */
const char *result_moment_text(int phase);
const char *result_series_word(enum run_series_layer layer); /* device tensor pinned host shared */
const char *result_held_word(enum result_held what);
const char *result_phase_word(enum result_phase phase);          /* startup step logging evaluation end, NULL unknown */
const char *result_category_word(enum result_category category); /* "optimizer_state" */
const char *result_category_text(enum result_category category); /* for people: "optimizer state" */
const char *result_owner_kind_word(enum result_owner_kind kind);
const char *result_cause_word(enum result_cause cause);  /* of JSON */
const char *result_cause_title(enum result_cause cause); /* of the page */
const char *result_certainty_word(enum result_certainty certainty);
const char *result_outcome_word(enum result_oom_outcome outcome);

#endif
