/* A device's memory as PyTorch's allocator would have traced it: blocks and their segments, in order of time, up to a
 * moment; and the state at that moment. For exports.
 *
 * A segment is memory that the allocator reserved: a CUDA allocation, or memory mapped into an expandable segment, that
 * contained a block. CUDA allocations of other libraries are left out. On a device without PyTorch's tensors each
 * allocation is a segment with one block that fills it. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/run/run.h"

/* clang-format off */
#define EXPORT_TRACE_ACTIONS(X)                                                                    \
    X(ALLOC, "alloc") X(FREE_REQUESTED, "free_requested") X(FREE_COMPLETED, "free_completed")  \
    X(SEGMENT_ALLOC, "segment_alloc") X(SEGMENT_FREE, "segment_free")                          \
    X(SEGMENT_MAP, "segment_map") X(SEGMENT_UNMAP, "segment_unmap") X(OOM, "oom")              \
    X(SNAPSHOT, "snapshot") /* the end of a trace; export_trace.c does not emit it */
/* clang-format on */
#define EXPORT_ENUM_TRACE(s, w) EXPORT_TRACE_##s,
enum export_trace_action { EXPORT_TRACE_ACTIONS(EXPORT_ENUM_TRACE) EXPORT_TRACE_ACTIONS_N };
const char *export_trace_word(enum export_trace_action action);

struct export_trace_event {
    enum export_trace_action action;
    uint32_t stack;      /* of the call; RUN_NONE */
    uint32_t free_stack; /* ALLOC: of the later free */
    bool kept;           /* ALLOC: live until the end of the run, except for the tear-down */
    int64_t time_ns, bytes;
    int64_t requested;   /* of a block: the requested bytes; `bytes` if unknown */
    int64_t free_ns;     /* ALLOC: time of the free; RUN_NEVER */
    int64_t device_free; /* OOM */
    uint64_t address, stream;
    int64_t pool; /* number of its private pool; 0 the default pool; RUN_UNKNOWN also if the run has no private pools */
};

struct export_trace_block {
    uint64_t address, stream;
    int64_t bytes, requested;  /* requested: bytes if it is unknown */
    int64_t alloc_ns, free_ns; /* RUN_NEVER */
    uint32_t stack, free_stack;
    bool kept;
    int64_t pool; /* as in events, but unknown is 0, or 1 if a CUDA graph captured the request */
    bool pending; /* freed, but waits until other streams have finished with it */
};
struct export_trace_segment {
    uint64_t address, stream;
    int64_t bytes, block_bytes, pending_bytes; /* pending: not included in those of the blocks */
    int64_t requested_bytes;                   /* of all its blocks */
    uint32_t stack;
    bool mapped;     /* expandable: mapped, not allocated */
    bool small;      /* of the pool for blocks of at most 1 MiB */
    int64_t pool;    /* as in blocks */
    size_t first, n; /* its blocks, by address */
};
struct export_trace_state {
    ARENA_ROWS(struct export_trace_segment, segments); /* by address */
    ARENA_ROWS(struct export_trace_block, blocks);
    uint64_t refused; /* number of blocks that overlap others: the file is damaged */
};
void export_trace_state_free(struct export_trace_state *state);

struct export_trace_request {
    uint32_t process;
    int device;
    bool tensors;     /* the device has PyTorch tensors */
    int64_t until_ns; /* includes events at this time */
    void (*each)(void *self, const struct export_trace_event *event);
    void *self;
};
/* Replays the run once, which was opened with options.memory_map. `state` may be NULL; else it is filled, and the
 * caller frees it. */
bool export_trace_device(struct run *run, const struct export_trace_request *wish, struct export_trace_state *state,
                         char *error, size_t error_size);
