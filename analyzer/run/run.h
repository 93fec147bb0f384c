/* The model of a recorded run, which every question reads.
 *
 * One or more databases (a process each) become one model. Frames and stacks are interned over all of them, so that the
 * same call path in two ranks is the same stack number. Lifetimes are not kept: run_replay streams them in order of
 * time, with memory bounded by the live allocations.
 *
 * Units: times are nanoseconds since the start of the process's recording, sizes are bytes. An unknown time or size is
 * RUN_UNKNOWN. Device -1: none or unknown. Ownership: everything reachable from struct run belongs to it and lives
 * until run_close. Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "schema/event.h"

#define RUN_UNKNOWN INT64_MIN
/* a - b; RUN_UNKNOWN if one of them is, or if it is negative. */
static inline int64_t run_subtract(int64_t a, int64_t b)
{
    return a == RUN_UNKNOWN || b == RUN_UNKNOWN || a < b ? RUN_UNKNOWN : a - b;
}
#define RUN_NEVER INT64_MAX /* the free time of memory that is still live at the end */
#define RUN_NONE UINT32_MAX /* no stack, no frame, no process */
#define RUN_DEPTH_MAX 4096  /* deeper stacks are cut at the root */

static inline bool run_is_known(int64_t value)
{
    return value != RUN_UNKNOWN;
}

/* Names an address in a module. The strings are valid only until the next call. False: unknown; *file may be NULL and
 * *line 0 if only the function is known. build_id is NULL or hexadecimal. */
typedef bool (*run_symbol_fn)(void *data, const char *module_path, const char *build_id, uint64_t offset,
                              const char **function, const char **file, int *line);

struct run_symbol_place {
    const char *function, *file; /* NULL unknown */
    int line;                    /* 0 unknown */
};
struct run_symbol_more {
    /* All that was inlined at an address: innermost function first. Valid only until the next call; 0 unknown. */
    size_t (*inlined)(void *data, const char *module_path, const char *build_id, uint64_t offset,
                      const struct run_symbol_place **places);
    /* Called once: a file without a build id that is younger than this (wall clock) is not used. */
    void (*recorded)(void *data, int64_t real_ns);
};

/* The estimate command's result, for `report --params`: bytes. */
struct run_estimate_bytes {
    double weights, gradients, optimizer, total;
    double params, cast_copies; /* cast_copies: in addition, while forward runs under autocast */
};

/* Called from time to time while events are read: `done` of about `total` (0: unknown) of `what`. */
typedef void (*run_progress_fn)(void *data, const char *what, uint64_t done, uint64_t total);

struct estimate_result; /* estimate/estimate.h */
struct run_options {
    unsigned top;   /* entries kept in each list of the report; 0: the default of 50 */
    bool all;       /* every entry */
    bool by_device; /* only `device` (and host memory) */
    int device;
    bool alone;                                /* do not look for the run's other processes beside the file */
    bool memory_map;                           /* also read addresses, mappings and the calls that freed */
    run_symbol_fn symbol;                      /* NULL: native frames stay module + offset */
    const struct run_symbol_more *symbol_more; /* NULL: none of these */
    void *symbol_data;
    const struct run_estimate_bytes *estimate; /* NULL none; only report_build reads it */
    const struct estimate_result *plan;        /* the same with activations; NULL: not estimated */
    uint64_t plan_gpus; /* the number of GPUs that share the work; the estimate is for one of them; 0: 1 */
    const struct result_watch *watch; /* NULL none; see result.h */
    uint64_t questions;               /* bits REPORT_ASK(…) of report.h: only these questions are answered; 0: all */
    run_progress_fn progress;         /* NULL: no progress is reported */
    void *progress_data;
};

enum run_known { RUN_UNSURE, RUN_NO, RUN_YES };

enum run_rank {
    RUN_RANK_OWN,      /* the user's own */
    RUN_RANK_LIBRARY,  /* a system's or a framework's */
    RUN_RANK_PLUMBING, /* CUDA, gpuspy itself, the C library */
};

struct run_frame {
    uint8_t kind;         /* enum gs_frame_kind */
    uint8_t rank;         /* enum run_rank, of the module; without one: RUN_RANK_LIBRARY */
    bool symbolised;      /* native: the symbol callback was called */
    bool installed;       /* Python: of a package that was installed outside of site-packages */
    int line;             /* 0 unknown */
    const char *function; /* NULL unknown */
    const char *file;     /* NULL unknown */
    const char *module;   /* native: path, NULL if the address is in no file */
    const char *build_id; /* native: hexadecimal, NULL none */
    uint64_t offset;      /* native */
    /* Native and named, if functions were inlined: each as a frame, the innermost (called last) first. The frame's own
     * names are those of the innermost that is not in a system header. */
    const struct run_frame *inlined;
    uint32_t inlined_n; /* 0: none */
};

struct run_process {
    uint32_t pid;
    int64_t ppid, rank;                                      /* RUN_UNKNOWN */
    const char *path;                                        /* its database */
    const char *run_id;                                      /* never NULL, may be "" */
    const char *host, *command, *cwd, *exe, *python_version; /* NULL unknown */
    const char *stopped; /* why the recording ended before the program: "disk", nearly full; "keep", GPUSPY_KEEP was too
                            small for the rows that always stay; "reader", another program read the database for so long
                            that its log was full; "detach"; "filter", of seccomp; NULL: it did not */
    int64_t kept_from_ns; /* rows that ended before this were removed (GPUSPY_KEEP), see run_removed; 0: none were */
    bool removed_after_is_known; /* … and the table removed_after has those between failures */
    bool scopes_are_known;       /* … and the table removed_scope has the NVTX ranges of that time, all of them */
    bool lows_are_known;         /* … and the table removed_course has what was live of all call paths */
    uint64_t allocations_before, allocations_removed; /* … and how many allocations that time had, and how many of those
                                                         have no rows; 0 unless lows_are_known */
    int64_t keep_bytes; /* GPUSPY_KEEP's limit; 0: no row was removed, or rows were removed because the disk was nearly
                           full */
    double attached_after_s;     /* from the start of the process until gpuspy attached; 0: recorded from its start */
    const char *torch_version;   /* "2.6.0+cu124"; NULL unknown, or no PyTorch */
    const char *torch_like;      /* of an import: the version, as far as its format shows it; NULL */
    int64_t start_real_ns;       /* RUN_UNKNOWN */
    int64_t end_ns;              /* the clean end, or the last event seen; never unknown */
    uint64_t allocations;        /* approximate number of rows: what the file states, which may have gaps */
    uint64_t calls;              /* likewise of its copies and waits */
    int64_t last_alloc_ns;       /* the last allocation, after which there is only tear-down; 0 none */
    bool complete;               /* it ended cleanly */
    int exit_status;             /* the argument of exit; -1 unknown */
    const char *exception;       /* "ValueError: its message", which ended the program; NULL none known */
    const char *exception_place; /* "/home/u/train.py:31"; NULL unknown */
    bool sleeps;                 /* memory was unmapped below live tensors (asleep.h); known after a replay */
    bool collector_off;          /* Python's garbage collector was off then */
    int exit_signal;             /* that killed it, as seen by `gpuspy run`; 0: none, or unknown */
    bool torn;                   /* it died, and the spool with its last events is missing or unreadable */
    bool recording;              /* still running and recording when it was read */
    bool kernel;                 /* of notebooks: its front end ends it, by a signal or with status 0 */
    uint64_t lost_events;
    int64_t lost_first_ns; /* RUN_UNKNOWN */
    uint64_t damaged;      /* inconsistent records or rows */
    uint64_t events;       /* recorded: as in its line at exit; 0 unknown */
    size_t database;       /* index into run's databases */
    int64_t local_id;      /* process.id in it */
};

enum { RUN_FAILURE_TEXT = 320 }; /* size enough for one; longer messages are cut */
/* "exited with status 1", "killed by SIGSEGV", "ValueError: its message at train.py:31, exited with status 1";
 * NULL: it ended with status 0, or how it ended is unknown. */
const char *run_process_failure(const struct run_process *p, char *out, size_t size);

struct run_device {
    uint32_t process;                         /* index */
    int device;                               /* CUDA ordinal in that process */
    const char *name;                         /* NULL unknown */
    int64_t total_bytes, free_bytes, seen_ns; /* RUN_UNKNOWN */
    int64_t physical_bytes;                   /* if GPUSPY_LIMIT caps it at total_bytes; else RUN_UNKNOWN */
    int64_t graph_bytes;                      /* the most that it held for graphs; RUN_UNKNOWN: not reported */
};

/* A series is a running total with its own peak. */
enum run_series_layer {
    RUN_SERIES_DEVICE,
    RUN_SERIES_TENSOR,
    RUN_SERIES_PINNED,
    RUN_SERIES_HOST,
    RUN_SERIES_SHARED, /* device memory that another owner counts: opened or imported here */
    RUN_SERIES_GRAPH,  /* memory that a device holds for graphs: only a timeline */
    RUN_SERIES_LAYERS
};
struct run_series {
    uint32_t process;
    int device; /* -1 for pinned and host */
    enum run_series_layer layer;
    int64_t live_bytes; /* at this moment of the replay, as are the others */
    uint64_t live_count;
    uint64_t allocations, frees;
    int64_t allocated_bytes, freed_bytes; /* sums over all of them */
    int64_t peak_bytes, peak_ns;          /* the most that was live, and the last time at which it was reached */
};

/* A location: the allocations of one stack in one series. Numbered densely, in order of appearance. */
struct run_location {
    uint32_t series, stack; /* stack may be RUN_NONE */
    int64_t live_bytes;     /* at this moment of the replay */
    uint64_t live_count;
};

struct run_copy {
    uint32_t process, stack, thread;
    int16_t device;
    uint8_t direction, host_memory;
    bool async;
    uint32_t api;
    int64_t bytes, start_ns, blocked_ns;
    uint64_t stream;
};

struct run_sync {
    uint32_t process, stack, thread;
    int device;
    uint8_t kind; /* enum gs_sync_kind */
    uint32_t api;
    int64_t start_ns, blocked_ns;
    uint64_t handle;
};

struct run_oom {
    uint32_t process, stack, thread;
    int device;
    uint8_t layer, space;
    uint32_t api;
    int64_t requested_bytes, free_bytes, total_bytes, tensor_allocated, tensor_reserved; /* RUN_UNKNOWN */
    int64_t time_ns;
    bool fatal;
    bool capped;   /* GPUSPY_LIMIT refused it, not the device */
    bool rejected; /* PyTorch refused it (throw_on_cudamalloc_oom); the size is that of its message */
    bool survived; /* fatal as far as its thread's later requests show, although the program went on: set by a report */
};
/* Did the program end with it, as far as is known? */
static inline bool run_oom_is_end(const struct run_oom *oom)
{
    return oom->fatal && !oom->survived;
}

/* The device's reports (samples) and PyTorch's reserved memory, in order of time. */
struct run_sample {
    uint32_t process;
    int device;
    int64_t time_ns, free_bytes, total_bytes;
};
/* NVML's report about a device, once per second. Its total is slightly larger than CUDA's. */
struct run_device_sample {
    uint32_t process;
    int device;
    int64_t time_ns, free_bytes, total_bytes;
    int utilisation, memory_utilisation; /* percent; -1 unknown */
    int64_t own_bytes, other_bytes;      /* of this process, of all others */
    uint32_t other_pid;                  /* the largest of them, 0 none or unknown */
    const char *other_name;
};
/* All marks of one kind, name and domain. */
struct run_mark_total {
    uint32_t process;          /* the first process that has one */
    uint8_t kind;              /* enum gs_mark_kind */
    const char *name, *domain; /* NULL: none, the default domain */
    uint64_t count, open;      /* open: ranges without an end */
    int64_t total_ns;          /* of the others */
};
struct run_reserved {
    uint32_t process;
    int device;
    int64_t time_ns, bytes;
};

/* Where physical memory was mapped: read only if a failure needs it, with options.memory_map, or if PyTorch reported
 * its totals. */
struct run_mapping {
    uint32_t process;
    int device;
    uint64_t address;
    int64_t bytes, map_ns, unmap_ns; /* RUN_NEVER */
    uint32_t stack;
};
/* A tensor that PyTorch freed while another stream could still use it. */
struct run_pending {
    uint32_t process;
    int device;
    uint64_t address, stream;
    int64_t bytes, free_ns, done_ns; /* done_ns RUN_NEVER */
    enum run_known known; /* RUN_UNSURE: without native frames, nothing shows that the event is this free's */
    bool captured;        /* in a private pool */
};
/* The memory that the device held for graphs, in order of time. */
struct run_graph_memory {
    uint32_t process;
    int device;
    int64_t time_ns, bytes;
};
/* The memory of the device that a pool (cudaMallocAsync) held: in order of id. */
struct run_pool_memory {
    uint32_t process;
    int device;
    uint64_t pool;
    int64_t time_ns, reserved_bytes;
};
/* Internal state of PyTorch's allocator, in order of time by process. */
struct run_allocator_fact {
    uint32_t process;
    int device;
    uint8_t kind; /* enum gs_allocator_fact */
    int64_t time_ns, value;
    uint64_t address;
};
struct run_thread {
    uint32_t process, number; /* number: the recorder's, by which calls and marks refer to it */
    int64_t tid;              /* the kernel's, RUN_UNKNOWN */
    const char *name;         /* NULL unknown */
};
/* Calls that are only counted: launches, queries. */
struct run_counted {
    uint32_t process, api;
    uint64_t count, not_ready; /* not_ready: of them, with the result "not ready" */
};

struct run_tensor_check {
    uint32_t process;
    uint8_t layer;
    int device;
    uint64_t events, mismatches;
    int64_t first_mismatch_ns, first_difference, last_difference; /* RUN_UNKNOWN */
};

/* Totals of the rows that a recording of bounded size lost, by call path, kind of call and kind of memory. A replay and
 * run_each_call include them only in the totals of the series. */
struct run_removed {
    uint32_t process, stack; /* stack: RUN_NONE */
    uint8_t what;            /* enum gs_removed */
    int device;
    uint32_t api;
    uint8_t layer, space;           /* of an allocation */
    uint8_t direction, host_memory; /* of a copy … */
    bool async;                     /* … or a memset */
    uint8_t size;                   /* of a copy: 0 up to 16 bytes, 1 up to 64 KiB, 2 more */
    uint8_t kind;                   /* of a sync: enum gs_sync_kind; of a mark: enum gs_mark_kind */
    uint64_t count;
    int64_t bytes, ns; /* ns: how long allocations lived, or how long the calls blocked the host */
    int64_t first_ns;  /* when the first of them began; RUN_UNKNOWN */
};
enum run_series_layer run_removed_layer(const struct run_removed *removed);
/* The running totals of a series over time, coarsely, from the start of the process on. */
struct run_level {
    uint32_t process;
    int device;
    enum run_series_layer layer;
    int64_t start_ns, end_ns, low_bytes, high_bytes;
};

/* Before kept_from_ns, from the allocation with that number on: the smallest live size of a call path, up to its next
 * entry. In order of path and number. */
struct run_removed_low {
    uint32_t process, stack; /* stack: RUN_NONE */
    int device;
    enum run_series_layer layer;
    uint64_t first; /* from 1 */
    int64_t bytes;
};

/* The peak within the NVTX ranges of a name, of a bounded recording: from the start of the process up to until_ns,
 * which is later than kept_from_ns. In one series, or in none if nothing was live. */
struct run_removed_scope {
    uint32_t process;
    const char *name, *domain; /* domain NULL: the default one */
    int device;                /* -1: nothing was live */
    enum run_series_layer layer;
    int64_t peak_bytes, peak_ns;
    int64_t entry_bytes, exit_bytes; /* of the visit with the peak; RUN_UNKNOWN: it is open */
    int64_t open_entry_bytes;        /* of the visit that is open; RUN_UNKNOWN: none is */
    uint64_t count;
    int64_t ended_ns, until_ns;
};

/* The stacks from which physical memory was mapped, each once. */
struct run_mapper {
    uint32_t process, stack; /* RUN_NONE */
};

/* A context that the program created itself, or the first one of a device. */
struct run_context {
    uint32_t process, stack;
    int device;
    int64_t create_ns; /* RUN_UNKNOWN */
};

/* A variable of the environment that changes how memory is used, with its value at the first CUDA call. */
struct run_setting {
    uint32_t process;
    const char *name, *value; /* name "": the variables were read */
};

struct run;

/* Opens `paths` (database files, or one folder), completing undrained spools first. On failure NULL and one line in
 * `error`: cannot read 'x': reason; what to do. */
struct run *run_open(const char *const *paths, size_t n, const struct run_options *options, char *error,
                     size_t error_size);
void run_close(struct run *run);

/* The small tables, read when the run is opened. */
const struct run_process *run_processes(const struct run *run, size_t *n);
static inline const struct run_process *run_process_at(const struct run *run, size_t index)
{
    size_t n;
    return &run_processes(run, &n)[index];
}
/* How many rows a list such as run_processes has, and a loop over them: RUN_EACH (d, run_devices, run) */
#define RUN_COUNT(list, ...)    \
    ({                          \
        size_t n_;              \
        list(__VA_ARGS__, &n_); \
        n_;                     \
    })
#define RUN_EACH(x, list, ...)                                                                   \
    for (__typeof__(list(__VA_ARGS__, NULL)) x = list(__VA_ARGS__, &(size_t){0}),                \
                                             x##_end = x ? x + RUN_COUNT(list, __VA_ARGS__) : x; \
         x < x##_end; x++)
/* "process 71", "processes 71 (rank 0), 72 (rank 1)": the first 16. */
void run_list_processes(const struct run *run, char *out, size_t size);
/* "this run has no rank 3; it has process 71": for a pid and a rank (-1: any) that no process has. */
void run_explain_absent(const struct run *run, int pid, int rank, char *out, size_t size);
const struct run_device *run_devices(const struct run *run, size_t *n);
/* The end of the name of a device of `gpuspy run --simulate`, and whether this device is simulated (NULL: unknown, so
 * no). */
#define RUN_SIMULATED " (simulated)"
bool run_device_is_simulated(const char *name);
const struct run_oom *run_ooms(const struct run *run, size_t *n);                     /* by process, then time */
void run_note_survived(struct run *run, size_t oom);                                  /* index */
const struct run_device_sample *run_device_samples(const struct run *run, size_t *n); /* by process, then time */
const struct run_device_sample *run_process_samples(const struct run *run, uint32_t process, size_t *n);
/* A dry run's loop that waits for values that are never computed, as one sentence; NULL: none was found. */
const char *run_endless_loop(const struct run *run);
const struct run_mark_total *run_marks(const struct run *run, size_t *n); /* in no order */
const struct run_reserved *run_reserved(const struct run *run, size_t *n);
const struct run_mapping *run_mappings(const struct run *run, size_t *n);
const struct run_mapper *run_mappers(const struct run *run, size_t *n);
const struct run_graph_memory *run_graph_memory(const struct run *run, size_t *n);
/* The value at that time; 0 if none was reported by then. */
int64_t run_graph_memory_at(const struct run *run, uint32_t process, int device, int64_t time_ns);
const struct run_pool_memory *run_pool_memory(const struct run *run, size_t *n);
const struct run_allocator_fact *run_allocator_facts(const struct run *run, size_t *n);
const struct run_thread *run_threads(const struct run *run, size_t *n); /* by process */
const struct run_counted *run_counted(const struct run *run, size_t *n);
const struct run_tensor_check *run_tensor_checks(const struct run *run, size_t *n);
const struct run_removed *run_removed(const struct run *run, size_t *n);
const struct run_removed_low *run_removed_lows(const struct run *run, size_t *n);
/* How many allocations a process had made by a time before kept_from_ns, and the reverse: approximate between the times
 * that the recording kept. */
double run_allocations_by(const struct run *run, uint32_t process, int64_t ns);
int64_t run_allocations_ns(const struct run *run, uint32_t process, double allocations);
/* Totals of the removed allocations of a series that ended after a failure: false, unknown, if its live set was not
 * kept, or an earlier gpuspy recorded it. `oom` is one of run_ooms. */
bool run_removed_since(const struct run *run, const struct run_oom *oom, const struct run_series *series,
                       uint64_t *count, int64_t *bytes);
const struct run_level *run_levels(const struct run *run, size_t *n);                 /* by process, series and time */
const struct run_removed_scope *run_removed_scopes(const struct run *run, size_t *n); /* by process */
const struct run_context *run_contexts(const struct run *run, size_t *n);             /* by process, then time */
/* The value of a variable in interpose/settings.def; NULL: not set, or unknown. */
const char *run_setting_value(const struct run *run, uint32_t process, const char *name);
/* False: an old recording that lacks them. */
bool run_settings_are_known(const struct run *run, uint32_t process);
/* Lines that a reader must know: still recording, damaged, inconsistent rows. */
const char *const *run_notes(const struct run *run, size_t *n);
void run_add_note(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "" for a number that is not in the table. */
const char *run_api_name(const struct run *run, uint32_t process, uint32_t api);
int64_t run_duration(const struct run *run);    /* of the longest process */
int64_t run_kept_from(const struct run *run);   /* the latest kept_from_ns of its processes; 0: all rows exist */
int64_t run_growth_from(const struct run *run); /* likewise, of processes whose growth before that time is unknown */

/* The file that is actually open for a process: its own, or a private copy, removed with the run, if its folder did not
 * allow it to be completed. */
const char *run_database_path(const struct run *run, size_t process);

/* The database into which another tool's recording was converted, beside which those of its other processes are; it is
 * removed when the program ends. Free the result. NULL: it is not such a recording, or, with a line in `error`, cannot
 * be read. */
char *run_imported_path(const char *path, char *error, size_t error_size);
/* A process's path for display: for a converted recording, the file that the other tool made. */
const char *run_shown_path(const char *path);

/* Stacks: a tree, innermost frame first. */
size_t run_stack_count(const struct run *run);
uint32_t run_stack_parent(const struct run *run, uint32_t stack); /* RUN_NONE at the root */
/* Not yet symbolised: run_frame_named does that. */
const struct run_frame *run_stack_frame(const struct run *run, uint32_t stack);
/* A loop over the frames of a stack from the innermost one on, which moves `stack`; is a condition true for one? The
 * condition does not know its stack. */
#define RUN_EACH_FRAME(f, run, stack)                                              \
    for (const struct run_frame *f; (f = run_stack_frame((run), (stack))) != NULL; \
         (stack) = run_stack_parent((run), (stack)))
#define RUN_ANY_FRAME(f, run, stack, ...)      \
    ({                                         \
        bool any_ = false;                     \
        uint32_t s_ = (stack);                 \
        RUN_EACH_FRAME (f, run, s_)            \
            if ((any_ = (__VA_ARGS__))) break; \
        any_;                                  \
    })
uint8_t run_module_rank(const char *module); /* enum run_rank, of a path */
/* "Java" of libjvm.so: the language of an interpreter, of whose code gpuspy records no lines. NULL: of no such one. */
const char *run_module_language(const char *module);
uint32_t run_stack_depth(const struct run *run, uint32_t stack);
/* The marker that ends a stack that is too deep; the recorder stores it as one of Python's. */
static inline bool run_frame_is_cut(const struct run_frame *f)
{
    return f->kind == GS_FRAME_PYTHON && f->rank == RUN_RANK_PLUMBING;
}
/* The stack from its innermost Python frame on; RUN_NONE: it has none. */
uint32_t run_stack_python(const struct run *run, uint32_t stack);
/* Does the path contain `part`, for an installed file within Python's library or its packages? The folder of a project
 * or an environment may have a library's name: ~/envs/torch/lib/python3.11/site-packages/x.py. */
bool run_path_has(const char *path, const char *part);
/* Does one of its Python frames have a function with `function` in its name, in a file whose path has `file`? NULL:
 * any. */
bool run_stack_is_in(const struct run *run, uint32_t stack, const char *file, const char *function);
/* Does it name a place in the code? Operators of a profiler trace and categories of a memory timeline are only names,
 * which all layers of a pass share. */
bool run_stack_is_located(const struct run *run, uint32_t stack);
/* Does an optimizer's own step() of PyTorch call the program's code, as LBFGS and Lightning do: a closure? A step()
 * that the program defines is called by optimizer.py. `called`: the Python frame inside of the caller's. */
bool run_frame_calls_closure(const struct run_frame *caller, const struct run_frame *called);
/* Does any frame of the call path call one? */
bool run_stack_is_in_closure(const struct run *run, uint32_t stack);
/* The frame with its symbol looked up (once). */
const struct run_frame *run_frame_named(struct run *run, uint32_t stack);
/* Finds a function in a named frame: the frame itself, or one that was inlined there, whose name contains `part` and
 * begins with `prefix` (NULL: any); NULL: none. */
const struct run_frame *run_frame_calling(const struct run_frame *frame, const char *prefix, const char *part);
/* Does a native frame of the stack have `part` in its function's name? Frames of RUN_RANK_PLUMBING are not asked:
 * naming one reads debugging information of the C library. */
bool run_stack_calls(struct run *run, uint32_t stack, const char *part);
/* Does a frame inside of the innermost Python frame have `part` in its name, as far as it was recorded? */
bool run_stack_enters(const struct run *run, uint32_t stack, const char *part);
/* The frame as displayed: *n frames, innermost first; several only if functions were inlined. NULL: no such stack.
 * Belongs to the run. */
const struct run_frame *run_frame_places(struct run *run, uint32_t stack, size_t *n);
/* A number that site/ stores for a frame's file; MAP_NEW at first. Valid until the next call. */
uint32_t *run_file_note(struct run *run, const char *file);

/* A native frame with only that name, for operations of autograd that no frame of its own names well (result_site's
 * operation). `name` is a string of the run's. */
const struct run_frame *run_operation_frame(struct run *run, const char *name);

/* The text as a string of the run: equal texts are the same pointer. NULL for NULL, cut at 64 KiB, valid UTF-8. */
const char *run_text(struct run *run, const char *text, size_t length);

/* The text of one of the program's own Python files, without secrets: from the recording, else from disk if the file is
 * older than the recording. NULL: neither. Valid UTF-8, but control characters remain: clean it for display. */
struct run_source_text {
    const char *const *lines; /* line 1 first, without line ends */
    size_t n;
    bool from_disk;
    const char *cell; /* "code cell 3 of train.ipynb"; NULL: no cell, or unknown */
    long position;    /* 3 of "code cell 3"; 0: unknown */
    long count;       /* 5 of "In [5]"; 0: unknown */
};
const struct run_source_text *run_source_text(struct run *run, const char *file);
/* Did the process run that cell? ipykernel's name of the file has the number of its process; true for Colab's, which
 * has not. */
bool run_is_cell_of(const struct run *run, uint32_t process, const char *file);
/* What identifies the text of a notebook's cell in all recordings, whatever its number is. NULL: not a cell, or
 * unknown. */
const char *run_cell_text(const struct run *run, const char *file);
/* The same of a library's file, to be examined and not to be displayed. */
const struct run_source_text *run_library_text(struct run *run, const char *file);
/* A line of it, with up to `before` lines before it and `after` lines after it. False: unknown. */
enum { RUN_SOURCE_AROUND = 32 }; /* at most */
struct run_source {
    int line, first_line;
    const char *const *lines;
    size_t n;
    bool from_disk;
    const char *cell; /* as in run_source_text */
};
bool run_source_lines(struct run *run, const char *file, int line, int before, int after, struct run_source *out);

/* The events. A lifetime as observers see it; one cache line, because millions may be live. */
struct run_lifetime {
    uint32_t location; /* index, see run_location */
    uint32_t series;
    uint32_t stack; /* of the allocation, RUN_NONE */
    uint32_t thread;
    uint16_t api;
    int8_t device;
    uint8_t layer : 4, space : 4;
    uint32_t extra; /* of a tensor: bytes of its block beyond the request; GS_EXTRA_UNKNOWN */
    int64_t bytes;  /* never negative */
    int64_t alloc_ns;
    int64_t free_ns; /* RUN_NEVER */
    uint64_t address, stream;
};
_Static_assert(sizeof(struct run_lifetime) == 64, "a cache line");
/* The size that the program requested from PyTorch's allocator; RUN_UNKNOWN. */
static inline int64_t run_requested(const struct run_lifetime *life)
{
    return life->extra != GS_EXTRA_UNKNOWN && life->extra < life->bytes ? life->bytes - life->extra : RUN_UNKNOWN;
}
/* The same, or the bytes of its block. */
static inline int64_t run_requested_or_block(const struct run_lifetime *life)
{
    const int64_t requested = run_requested(life);
    return requested == RUN_UNKNOWN ? life->bytes : requested;
}
/* Device memory with an address of its own: neither pinned memory nor physical memory, which only has mappings. */
static inline bool run_has_device_address(const struct run_lifetime *life)
{
    return life->layer == GS_LAYER_DEVICE && life->space != GS_SPACE_PINNED && life->space != GS_SPACE_HOST &&
           life->space != GS_SPACE_SHARED && life->space != GS_SPACE_VMM;
}

/* Facts that another tool may not have recorded: RUN_FACT(symbol, word in meta, what the tool "does not record"). */
#define RUN_FACTS(RUN_FACT)                              \
    RUN_FACT(WAITS, "waits", "waits")                    \
    RUN_FACT(COPIES, "copies", "copies")                 \
    RUN_FACT(HISTORY, "history", "a history")            \
    RUN_FACT(TIMES, "times", "times")                    \
    RUN_FACT(MEMORY, "memory", "memory")                 \
    RUN_FACT(TENSORS, "tensors", "PyTorch's tensors")    \
    RUN_FACT(FAILURES, "failures", "failed calls")       \
    RUN_FACT(OUTCOME, "outcome", "failed allocations")   \
    RUN_FACT(SEGMENTS, "segments", "PyTorch's segments") \
    RUN_FACT(PINNED, "pinned", "pinned memory")          \
    RUN_FACT(BEFORE, "before", "earlier allocations") /* that were not freed in the recording */
#define RUN_FACT(symbol, word, object) RUN_FACT_##symbol,
enum run_fact { RUN_FACTS(RUN_FACT) RUN_FACT_N };
#undef RUN_FACT
/* Why a fact is unknown, such as "a PyTorch snapshot does not record waits"; NULL: it is known. */
extern const char *const run_fact_words[RUN_FACT_N];
const char *run_why_unknown(const struct run *run, enum run_fact what);
/* Made by another tool: the program's later events are unknown. */
bool run_is_imported(const struct run *run);
/* What marks the recording's ranges: "NVTX", or PyTorch's "record_function". */
const char *run_range_word(const struct run *run);

/* Called in order of time within a process, one process after another; a free comes before an allocation of the same
 * time. Each may be NULL. */
struct run_observer {
    void *self;
    bool beside; /* may receive events on another thread, and later than observers without this: it neither reads nor
                    changes what others do while the replay runs, and of `series` it uses only the process, the device,
                    the layer and the live bytes. process_start and process_end are never concurrent to anything */
    void (*process_start)(void *self, uint32_t process);
    /* `series` with its totals after the event. */
    void (*alloc)(void *self, const struct run_lifetime *life, const struct run_series *series);
    void (*free)(void *self, const struct run_lifetime *life, const struct run_series *series);
    void (*oom)(void *self, const struct run_oom *oom, size_t index);
    void (*sample)(void *self, const struct run_sample *sample);
    void (*reserved)(void *self, const struct run_reserved *reserved);
    void (*process_end)(void *self, uint32_t process, int64_t end_ns);
};
/* May be called again: each call starts from the beginning. False and a line in `error` if a database could not be read
 * to its end. */
bool run_replay(struct run *run, const struct run_observer *observers, size_t n, char *error, size_t error_size);
/* The same, with the lifetimes that PyTorch's allocator knows: a tensor whose memory the program unmaps and maps again
 * is one lifetime, not one for each time that it is mapped (asleep.h). */
bool run_replay_requests(struct run *run, const struct run_observer *observers, size_t n, char *error,
                         size_t error_size);
/* For an observer that needs no more events: the replay ends after the current one. Afterwards the series and locations
 * are again those of the replay before it. */
void run_stop_replay(struct run *run);
/* Valid during and after a replay. */
size_t run_location_count(const struct run *run);
const struct run_location *run_location(const struct run *run, uint32_t location);
size_t run_series_count(const struct run *run);
const struct run_series *run_series(const struct run *run, uint32_t series);
uint32_t run_find_series(const struct run *run, uint32_t process, int device,
                         enum run_series_layer layer); /* RUN_NONE */
/* Of a lifetime that an observer is just receiving: the call that frees it; RUN_NONE unless options.memory_map is set
 * or PyTorch reported its totals. */
uint32_t run_free_stack(const struct run *run, const struct run_lifetime *life);
/* The number of such a lifetime, a small one: no other that is live at the same time has it. An observer with `beside`
 * that uses it receives frees, too. */
uint32_t run_live_number(const struct run *run, const struct run_lifetime *life);
/* Calls `each` for everything that is live at this moment of the replay. For heap maps. */
void run_each_live(const struct run *run, void (*each)(void *self, const struct run_lifetime *), void *self);

/* Each free of a tensor that waited for other streams: one call for each event that it waited for. */
typedef void (*run_pending_fn)(void *self, const struct run_pending *pending);
void allocator_each_pending(struct run *run, uint32_t process, run_pending_fn each, void *self);
/* Tensors that were freed but not reusable at each of `moments` (ascending) of one process: a call for each of them,
 * possibly several for one tensor (one per event that it waits for). */
typedef void (*run_pending_at_fn)(void *self, size_t moment, const struct run_pending *pending);
void allocator_each_pending_at(struct run *run, uint32_t process, const int64_t *moments, size_t n,
                               run_pending_at_fn each, void *self);

/* The blocks that were live at each of `moments` (ascending) of one process: a call for each moment and each block, in
 * order of allocation. One more pass over the rows, after a replay (whose locations and series it uses). */
typedef void (*run_live_at_fn)(void *self, size_t moment, const struct run_lifetime *life, uint32_t free_stack);
bool run_each_live_at(struct run *run, uint32_t process, const int64_t *moments, size_t n, run_live_at_fn each,
                      void *self, char *error, size_t error_size);

/* The marks of a process, in order of their beginning; one more pass over them. */
struct run_mark {
    uint8_t kind;              /* enum gs_mark_kind */
    const char *name, *domain; /* NULL none; digits in the name become a single #: "iteration #" */
    const char *full;          /* the whole name, valid during the call; perhaps not valid UTF-8 */
    const char *full_domain;   /* likewise */
    uint32_t thread;
    int64_t start_ns, end_ns; /* RUN_NEVER: of a range without an end; for a moment its time */
};
typedef void (*run_mark_fn)(void *self, const struct run_mark *mark);
bool run_each_mark(struct run *run, uint32_t process, run_mark_fn each, void *self, char *error, size_t error_size);
/* The same one by one, for callers that read them beside the events. NULL: the process has none. `mark` is valid until
 * the next call. _close: false and an error if the table is damaged; call it after all were read. */
struct run_mark_rows;
struct run_mark_rows *run_mark_rows_open(struct run *run, uint32_t process);
bool run_mark_rows_next(struct run_mark_rows *rows, struct run_mark *mark);
bool run_mark_rows_close(struct run_mark_rows *rows, char *error, size_t error_size);
/* A name as run_mark.name has it. */
const char *run_mark_pattern(struct run *run, const char *name);
/* The allocations of a process as stored in the file, with their own stacks; one more pass. Of a bounded recording only
 * those since kept_from_ns. */
struct run_row {
    uint32_t stack, free_stack; /* RUN_NONE */
    int64_t alloc_ns, free_ns;  /* RUN_NEVER */
};
typedef void (*run_row_fn)(void *self, const struct run_row *row);
bool run_each_row(struct run *run, uint32_t process, run_row_fn each, void *self, char *error, size_t error_size);
/* The last `rows` allocations of a process, in the order in which they were stored, each with the stack of its free
 * (RUN_NONE: none). Series and location are set only with RUN_LAST_ALL, after a replay. */
enum { RUN_LAST_ALL = -1 };
typedef void (*run_last_fn)(void *self, const struct run_lifetime *life, uint32_t free_stack);
bool run_each_last(struct run *run, uint32_t process, int64_t rows, run_last_fn each, void *self, char *error,
                   size_t error_size);

/* All allocations of a process that are live at one of `moments` (ascending), each once, likewise after a replay. */
bool run_each_lasting(struct run *run, uint32_t process, const int64_t *moments, size_t n, run_last_fn each, void *self,
                      char *error, size_t error_size);

/* Copies and syncs, merged in order of time, one process after another. One of the two is NULL. */
typedef void (*run_call_fn)(void *self, const struct run_copy *copy, const struct run_sync *sync);
bool run_each_call(struct run *run, run_call_fn each, void *self, char *error, size_t error_size);
/* How many of the process's copies and waits began from one time (RUN_UNKNOWN: the first) until before another. */
uint64_t run_calls_between(const struct run *run, uint32_t process, int64_t from_ns, int64_t to_ns);
/* Of one process. */
bool run_each_call_of(struct run *run, uint32_t process, run_call_fn each, void *self, char *error, size_t error_size);
