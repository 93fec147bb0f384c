/* The record layouts that the recorder writes to the spool and the store reads.
 *
 * A record starts with struct gs_rec, is a multiple of 8 bytes long and never crosses a chunk.
 * A thread's part of the spool has its records in the order in which the thread made them.
 * The layouts are private to one build of gpuspy: GS_SPOOL_VERSION changes with any of them.
 *
 * Times are CLOCK_MONOTONIC nanoseconds since the session's start (gs_spool_header.start_mono_ns).
 * Order: a free's time is taken before the real call, an allocation's after it, so that over all
 * threads "free of X" sorts before the next allocation of X.
 */
#pragma once

#include <stdint.h>

/* The words that queries use; the store writes these tables from the same rows, so that each number keeps its word.
 * X(symbol, value, word) */
#define GS_LAYERS(X) X(DEVICE, 0, "device") X(TENSOR, 1, "tensor") X(HOST, 2, "host")
/* clang-format off */
#define GS_SPACES(X)                                                                               \
    X(DEVICE, 0, "device")                                                                         \
    X(MANAGED, 1, "managed") X(PINNED, 2, "pinned") X(POOL, 3, "pool") X(VMM, 4, "vmm")            \
        X(ARRAY, 5, "array") X(HOST, 6, "host") X(SHARED, 7, "shared")
/* clang-format on */
#define GS_DIRECTIONS(X) X(H2D, 0, "h2d") X(D2H, 1, "d2h") X(D2D, 2, "d2d") X(P2P, 3, "p2p") X(H2H, 4, "h2h")
/* clang-format off */
#define GS_HOST_MEMORIES(X)                                                                        \
    X(NONE, 0, "none") X(PAGEABLE, 1, "pageable") X(PINNED, 2, "pinned") X(MANAGED, 3, "managed")
/* clang-format on */
/* clang-format off */
#define GS_SYNC_KINDS(X)                                                                           \
    X(STREAM, 0, "stream")                                                                         \
    X(DEVICE, 1, "device") X(CONTEXT, 2, "context") X(EVENT, 3, "event") X(IMPLICIT, 4, "implicit")
/* clang-format on */
#define GS_FRAME_KINDS(X) X(PYTHON, 0, "python") X(NATIVE, 1, "native")
/* The row of a range has the kind PUSH or START; POP and END exist only as records. */
/* clang-format off */
#define GS_MARK_KINDS(X)                                                                           \
    X(PUSH, 0, "push")                                                                             \
    X(POP, 1, "pop") X(START, 2, "start") X(END, 3, "end") X(MOMENT, 4, "moment")                  \
        X(PROFILER_START, 5, "profiler_start") X(PROFILER_STOP, 6, "profiler_stop")
/* clang-format on */
#define GS_SAMPLE_SOURCES(X) X(MEMGETINFO, 0, "memgetinfo") X(OOM, 1, "oom") X(NVML, 2, "nvml")
/* clang-format off */
#define GS_HANDLE_KINDS(X)                                                                         \
    X(STREAM, 0, "stream")                                                                         \
    X(CONTEXT, 1, "context") X(EVENT, 2, "event") X(POOL, 3, "pool") X(GRAPH, 4, "graph")          \
        X(GRAPH_EXEC, 5, "graph_exec")
/* clang-format on */
#define GS_REMOVED_KINDS(X) \
    X(ALLOCATION, 0, "allocation") X(COPY, 1, "copy") X(SYNC, 2, "sync") X(MEMSET, 3, "memset") X(MARK, 4, "mark")
#define GS_SERIES(X) X(DEVICE, 0, "device") X(TENSOR, 1, "tensor") X(PINNED, 2, "pinned") X(HOST, 3, "host")

#define GS_ENUM_LAYER(s, v, w) GS_LAYER_##s = v,
#define GS_ENUM_SPACE(s, v, w) GS_SPACE_##s = v,
#define GS_ENUM_DIRECTION(s, v, w) GS_DIR_##s = v,
#define GS_ENUM_HOST_MEMORY(s, v, w) GS_HOSTMEM_##s = v,
#define GS_ENUM_SYNC(s, v, w) GS_SYNC_##s = v,
#define GS_ENUM_FRAME(s, v, w) GS_FRAME_##s = v,
#define GS_ENUM_MARK(s, v, w) GS_MARK_##s = v,
#define GS_ENUM_SAMPLE(s, v, w) GS_SAMPLE_##s = v,
#define GS_ENUM_HANDLE(s, v, w) GS_HANDLE_##s = v,
enum gs_layer { GS_LAYERS(GS_ENUM_LAYER) };
enum gs_space { GS_SPACES(GS_ENUM_SPACE) };
enum gs_direction { GS_DIRECTIONS(GS_ENUM_DIRECTION) };
enum gs_host_memory { GS_HOST_MEMORIES(GS_ENUM_HOST_MEMORY) };
enum gs_sync_kind { GS_SYNC_KINDS(GS_ENUM_SYNC) };
enum gs_frame_kind { GS_FRAME_KINDS(GS_ENUM_FRAME) };
enum gs_mark_kind { GS_MARK_KINDS(GS_ENUM_MARK) };
enum gs_sample_source { GS_SAMPLE_SOURCES(GS_ENUM_SAMPLE) };
enum gs_handle_kind { GS_HANDLE_KINDS(GS_ENUM_HANDLE) };
#define GS_ENUM_REMOVED(s, v, w) GS_REMOVED_##s = v,
#define GS_ENUM_SERIES(s, v, w) GS_SERIES_##s = v,
enum gs_removed { GS_REMOVED_KINDS(GS_ENUM_REMOVED) GS_REMOVED_COUNT };
enum gs_series { GS_SERIES(GS_ENUM_SERIES) GS_SERIES_COUNT };

enum gs_rec_type {
    GS_REC_NONE = 0, /* zero bytes: a killed writer got no further */
    /* definitions: valid for the writing thread only, and only until its next GS_REC_RESET;
     * they precede the first record that uses them */
    GS_REC_THREAD,       /* gs_rec_thread */
    GS_REC_FRAME_PYTHON, /* gs_rec_frame_python + strings */
    GS_REC_FRAME_NATIVE, /* gs_rec_frame_native + strings */
    GS_REC_STACK,        /* gs_rec_stack + frame numbers */
    GS_REC_RESET,        /* gs_rec: from here on every frame and stack number of this thread is undefined */
    /* definitions valid for the process */
    GS_REC_API, /* gs_rec_name: number → name of an entry point. From GS_API_UNSEEN on: of one that the program got
                   without a wrapper, which no event can name */
    GS_REC_GPU, /* gs_rec_gpu + name */
    GS_REC_SETTING, /* gs_rec_setting + strings: a variable of the environment, once; one
                       without a name comes before them */
    /* events */
    GS_REC_ALLOC,         /* gs_rec_alloc */
    GS_REC_FREE,          /* gs_rec_free, written before the real call */
    GS_REC_FREE_FAILED,   /* gs_rec_free: the same thread's last GS_REC_FREE of this address failed */
    GS_REC_TENSOR,        /* gs_rec_tensor: PyTorch reported a block, bytes > 0 allocated, < 0 freed */
    GS_REC_COPY,          /* gs_rec_copy */
    GS_REC_SET,           /* gs_rec_copy with src = 0: a memset */
    GS_REC_SYNC,          /* gs_rec_sync */
    GS_REC_OOM,           /* gs_rec_oom */
    GS_REC_SAMPLE,        /* gs_rec_sample */
    GS_REC_HANDLE,        /* gs_rec_handle: a stream or context was created or destroyed */
    GS_REC_MARK,          /* gs_rec_mark + strings: NVTX ranges and marks of the program */
    GS_REC_DEVICE_SAMPLE, /* gs_rec_device_sample + string: what NVML reports */
    GS_REC_VMM,           /* gs_rec_vmm: physical memory and its mappings */
    GS_REC_POOL,          /* gs_rec_pool: CUDA's figures of a memory pool */
    GS_REC_PENDING,       /* gs_rec_pending + events: PyTorch frees a block that another stream may
                             still use; right before the block's GS_REC_TENSOR of the same thread */
    GS_REC_EVENT_DONE,    /* gs_rec_event_done: PyTorch's allocator learned that an event has completed */
    GS_REC_ALLOCATOR,     /* gs_rec_allocator: internal state of PyTorch's allocator */
    GS_REC_TYPES
};

#define GS_API_UNSEEN 4096 /* events have numbers below 2048 */

/* gs_rec.flags */
enum {
    GS_FLAG_ASYNC = 1,             /* an ...Async call */
    GS_FLAG_DESTROYED = 2,         /* gs_rec_handle: destroyed rather than created */
    GS_FLAG_PINNED_REGISTERED = 4, /* gs_rec_alloc/free: memory that was only registered */
    GS_FLAG_BEFORE = 2,            /* gs_rec_tensor: it was live when gpuspy attached, or soon afterwards */
    GS_FLAG_GRAPH = 8,             /* gs_rec_alloc/free: a node of a graph, added or captured. It has an address at
                                      once, but memory only while the graph runs (gs_rec_pool has the amount) */
    GS_FLAG_CAPTURED = 32,         /* gs_rec_tensor: allocated while its stream was captured into a graph, so PyTorch
                                      put it into a private pool */
    GS_FLAG_FACT = 128,            /* gs_rec_setting: a fact about the process; its name is the key in meta, not a
                                      variable of the environment */
    GS_FLAG_CAPPED = 64,           /* gs_rec_oom: refused by GPUSPY_LIMIT's cap, not by the device */
    GS_FLAG_FAILED = 16,           /* gs_rec_vmm: the call that this thread's last record of this op, handle and
                                      address announced has failed */
};

/* Facts about a process that gpuspy attached to: how long it had run; how many blocks PyTorch listed then; with a
 * device's number, what PyTorch had allocated there before. */
#define GS_FACT_ATTACHED "attached_after_s"
#define GS_FACT_ATTACHED_BLOCKS "attached_blocks"
#define GS_FACT_ATTACHED_TENSORS "attached_tensor_bytes."

struct gs_rec {
    uint16_t size; /* bytes, this header included; multiple of 8 */
    uint8_t type;  /* enum gs_rec_type */
    uint8_t flags;
    uint32_t stack;   /* this thread's stack number (gs_rec_stack), 0 none */
    uint64_t time_ns; /* of copies and syncs: when the call began */
};

/* Strings follow a record's fixed part back to back, without terminators, lengths in the fixed
 * part; the record is padded with zeros to 8 bytes. */
#define GS_STRING_MAX 4000

struct gs_rec_thread {
    struct gs_rec rec;
    uint32_t tid;
    uint16_t name_len;
    uint16_t pad;
    /* name */
};

struct gs_rec_frame_python {
    struct gs_rec rec;
    uint32_t frame; /* number chosen by the thread, from 1 upward, reused only after a RESET */
    int32_t line;   /* 0 unknown */
    uint16_t function_len;
    uint16_t file_len;
    uint32_t pad;
    /* function (its qualified name if the version has one), file */
};

struct gs_rec_frame_native {
    struct gs_rec rec;
    uint32_t frame;
    uint16_t path_len;    /* module; 0 if the address is in no file */
    uint8_t build_id_len; /* bytes, 0 none */
    uint8_t pad;
    uint64_t offset; /* address - load bias of the module, or the address itself; it is the
                        return address minus 1, so that it lies inside the call */
    /* path, build id (raw bytes) */
};

struct gs_rec_stack {
    struct gs_rec rec; /* rec.stack: the number defined, from 1 upward; a number defined again
                          means the new stack from here on */
    uint32_t depth;
    uint32_t frames[]; /* frame numbers, innermost first */
};

struct gs_rec_name {
    struct gs_rec rec;
    uint32_t number;
    uint16_t name_len;
    uint16_t pad;
    /* name */
};

struct gs_rec_gpu {
    struct gs_rec rec;
    int32_t device;
    uint16_t name_len;
    uint16_t pad;
    uint64_t total_bytes;    /* as the driver reports it */
    uint64_t free_bytes;     /* when the device was first seen */
    uint64_t physical_bytes; /* the device's own total if GPUSPY_LIMIT caps it, else 0 */
    /* name */
};

struct gs_rec_setting {
    struct gs_rec rec;
    uint16_t name_len, value_len;
    uint32_t pad;
    /* name, value */
};

struct gs_rec_alloc {
    struct gs_rec rec;
    uint64_t address;
    uint64_t bytes;
    uint64_t stream;
    uint16_t api;
    int16_t device;   /* -1: unknown. Of pinned memory the device in whose context it was allocated, although its row
                         has -1 because it is in no device's memory */
    uint8_t layer;    /* enum gs_layer */
    uint8_t space;    /* enum gs_space; SHARED in layer DEVICE: opened here, but owned by another process or API, where
                         its bytes count */
    uint16_t context; /* number of the context that owns it, as in gs_rec_handle; 0 the primary one */
};

struct gs_rec_free {
    struct gs_rec rec;
    uint64_t address;
    uint64_t stream;
    uint16_t api;
    int16_t device;
    uint8_t layer;
    uint8_t space; /* by the kind of call: pinned for cudaFreeHost, else device */
    uint16_t pad;
};

#define GS_STREAM_UNKNOWN UINT64_MAX
#define GS_EXTRA_UNKNOWN UINT32_MAX
struct gs_rec_tensor {
    struct gs_rec rec;
    uint64_t address;
    int64_t bytes;            /* > 0 allocated, < 0 freed */
    uint64_t total_allocated; /* PyTorch's own total after this event */
    uint64_t total_reserved;
    uint64_t stream; /* of an allocation: the CUDA stream that the block belongs to; GS_STREAM_UNKNOWN */
    uint32_t extra;  /* of an allocation: by how much the block is larger than the request; GS_EXTRA_UNKNOWN */
    uint16_t api;
    int8_t device;                     /* index; -1 for the CPU (and layer HOST) */
    uint8_t layer : 4, has_totals : 4; /* layer: TENSOR for CUDA, HOST for CPU tensors */
};
_Static_assert(sizeof(struct gs_rec_tensor) == 64, "a cache line");

struct gs_rec_copy {
    struct gs_rec rec;
    uint64_t dst;
    uint64_t src; /* 0 for a memset */
    uint64_t bytes;
    uint64_t stream;
    uint64_t blocked_ns; /* how long the host was blocked in the call */
    uint16_t api;
    int16_t device;      /* current device of the thread */
    uint8_t direction;   /* enum gs_direction if the call states it, else GS_DIR_UNKNOWN */
    uint8_t host_memory; /* 1 + enum gs_host_memory of an imported copy; 0: derived from the addresses */
    uint8_t pad[2];
};
#define GS_DIR_UNKNOWN 255

struct gs_rec_sync {
    struct gs_rec rec;
    uint64_t handle; /* stream or event */
    uint64_t blocked_ns;
    uint16_t api;
    int16_t device;
    uint8_t kind; /* enum gs_sync_kind */
    uint8_t pad[3];
};

struct gs_rec_oom {
    struct gs_rec rec;
    uint64_t requested_bytes;
    uint64_t free_bytes;       /* UINT64_MAX if the device could not be queried */
    uint64_t total_bytes;      /* likewise */
    uint64_t tensor_allocated; /* PyTorch's totals if it reported the failure, else UINT64_MAX */
    uint64_t tensor_reserved;
    uint16_t api;
    int16_t device;
    uint8_t layer;
    uint8_t space;
    uint16_t pad;
};

struct gs_rec_sample {
    struct gs_rec rec;
    uint64_t free_bytes;
    uint64_t total_bytes;
    int16_t device;
    uint8_t source; /* enum gs_sample_source */
    uint8_t pad[5];
};

/* A range is two records: PUSH and POP of one thread and domain have the same level, START and END of
 * any two threads the same range. A POP or END without its other half ends nothing. */
struct gs_rec_mark {
    struct gs_rec rec;
    uint64_t id;         /* PUSH, POP: the level, 0 outermost; START, END: the range, from 1 */
    uint16_t domain_len; /* 0: the default domain */
    uint16_t name_len;   /* 0: POP, END, and marks without a name */
    uint8_t kind;        /* enum gs_mark_kind */
    uint8_t pad[3];
    /* domain, name */
};

struct gs_rec_device_sample {
    struct gs_rec rec;
    uint64_t used_bytes; /* UINT64_MAX: unknown, also for the others */
    uint64_t total_bytes;
    uint64_t own_bytes;   /* of this process */
    uint64_t other_bytes; /* of all others that NVML lists */
    uint32_t other_pid;   /* the largest of them, 0 none or unknown */
    int16_t device;
    uint8_t utilisation, memory_utilisation; /* percent of the time; 255 unknown */
    uint16_t name_len;
    uint8_t temperature; /* °C + 1; 0 unknown */
    uint8_t pad[5];
    /* name of other_pid */
};

struct gs_rec_handle {
    struct gs_rec rec; /* GS_FLAG_DESTROYED: it was destroyed */
    uint64_t handle;
    uint16_t api;
    int16_t device;
    uint8_t kind; /* enum gs_handle_kind */
    uint8_t pad;
    uint16_t context; /* of a context that is not a device's primary one: its number, from 1; its destruction frees all
                         memory with this number. 0: any other handle */
};

/* Virtual memory management: physical memory has a handle, which counts its references (one for the creation, a retain
 * or an import) and its mappings; it is freed when none is left. UNMAP and RELEASE are written before the real call,
 * everything else after it. */
/* clang-format off */
#define GS_VMM_OPS(X)                                                                              \
    X(CREATE, 0, "create")                                                                         \
    X(IMPORT, 1, "import") X(RETAIN, 2, "retain") X(RELEASE, 3, "release") X(MAP, 4, "map")        \
        X(UNMAP, 5, "unmap")
/* clang-format on */
#define GS_ENUM_VMM(s, v, w) GS_VMM_##s = v,
enum gs_vmm_op { GS_VMM_OPS(GS_ENUM_VMM) };

struct gs_rec_vmm {
    struct gs_rec rec;
    uint64_t handle;  /* all but UNMAP */
    uint64_t address; /* MAP, UNMAP; RETAIN: of the mapping whose handle was requested */
    uint64_t bytes;   /* CREATE, MAP, UNMAP (which may span several mappings); IMPORT: 0 */
    uint64_t offset;  /* MAP: the offset in the handle's memory */
    uint16_t api;
    int16_t device; /* CREATE: the device of the memory; -1 the host */
    uint8_t op;     /* enum gs_vmm_op */
    uint8_t pad[3];
};

/* It is an inference that the events belong to this free: code of the allocator's module recorded them since the
 * thread's last tensor, and both stacks show their origin. */
#define GS_PENDING_EVENTS 8
struct gs_rec_pending {
    struct gs_rec rec; /* stack: of the free, with its native frames */
    uint64_t address;
    uint32_t event_stack; /* of the cudaEventRecord calls, 0 none */
    uint32_t count;       /* of events; at most GS_PENDING_EVENTS */
    uint64_t events[];
};

struct gs_rec_event_done {
    struct gs_rec rec;
    uint64_t event;
};

/* clang-format off */
#define GS_ALLOCATOR_FACTS(X)                                                                      \
    X(CAP, 0, "cap")   /* value: the bytes that it may reserve (set_per_process_memory_fraction); 0: no cap */ \
    X(POOL, 1, "pool") /* value: the pool of the block at the address, and so of its segment: 0 the default one, \
                          -1 unknown, else a private one's number */                              \
    X(UNUSED, 2, "unused") /* value: a private pool that nothing allocates from any more */       \
    X(SYNCED, 3, "synced") /* value: how often it waited for all streams: the cache was emptied, even if nothing was \
                              cached, or a request tried again */
/* clang-format on */
#define GS_ENUM_ALLOCATOR(s, v, w) GS_ALLOCATOR_##s = v,
enum gs_allocator_fact { GS_ALLOCATOR_FACTS(GS_ENUM_ALLOCATOR) };
struct gs_rec_allocator {
    struct gs_rec rec;
    uint64_t address;
    int64_t value;
    int16_t device;
    uint8_t kind; /* enum gs_allocator_fact */
    uint8_t pad[5];
};

struct gs_rec_pool {
    struct gs_rec rec;
    uint64_t pool;           /* handle; 0: the device's memory for graphs */
    uint64_t used_bytes;     /* in allocations now */
    uint64_t reserved_bytes; /* reserved from the device now */
    uint16_t api;            /* the call after which it was queried */
    int16_t device;
    uint32_t pad;
};
