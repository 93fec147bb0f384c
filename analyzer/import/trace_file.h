/* A torch.profiler trace as compact records. It keeps 40 bytes for each slice on a CPU thread that can hold memory,
 * copies or waits, 40 more for each memory event and for each copy or fill on the GPU, and each name once; kernels,
 * launches and arrows are dropped as they are read. */
#ifndef GPUSPY_IMPORT_TRACE_FILE_H
#define GPUSPY_IMPORT_TRACE_FILE_H

#include "analyzer/import/trace_names.h"

enum import_trace_kind {
    IMPORT_TRACE_OP,
    IMPORT_TRACE_PYTHON,
    IMPORT_TRACE_RANGE,
    IMPORT_TRACE_RANGE_END,
    IMPORT_TRACE_MEMORY,
    IMPORT_TRACE_OOM, /* its `memory` is what was asked for */
    IMPORT_TRACE_COPY,
    IMPORT_TRACE_FILL,
    IMPORT_TRACE_WAIT,
    IMPORT_TRACE_GRAPH, /* a launch of a graph: the GPU's copies in it name this call */
    IMPORT_TRACE_ALONE, /* a copy on the GPU without its call */
};

struct import_trace_record {
    int64_t at_ns, duration_ns; /* duration -1: a moment */
    uint32_t name, thread;
    uint32_t a;      /* MEMORY, OOM: which; OP: its "Call stack"; PYTHON: its id; calls: their correlation; RANGE: id */
    uint32_t b;      /* PYTHON: the caller's id; calls: 1 + which of `sizes`, 0 unknown */
    uint32_t number; /* in the file */
    uint8_t kind, sync;
};

struct import_trace_memory {
    uint64_t address;
    int64_t bytes;               /* negative: freed */
    int64_t allocated, reserved; /* -1 unknown */
    int16_t device;              /* -1: the CPU */
    bool placed;                 /* the trace gave the address */
};

struct import_trace_gpu { /* a copy or fill, as the GPU did it */
    int64_t at_ns, bytes; /* -1: only its call may know */
    uint64_t stream;
    uint32_t correlation, next; /* 1 + the next of the same call */
    int16_t device;
    uint8_t kind, direction, memory; /* memory: enum gs_host_memory */
    bool claimed;                    /* by a call */
};

struct import_trace_thread {
    uint32_t pid, tid, name; /* names */
    uint32_t process;        /* index, by pid */
    bool used;
};

struct import_trace_device {
    const char *name;
    int64_t total_bytes;
    bool used;
};

enum { IMPORT_TRACE_DEVICES = 64 };

struct import_trace {
    struct import_names names;
    struct import_trace_record *records;
    struct import_trace_memory *memory;
    struct import_trace_gpu *gpu;
    struct import_trace_thread *threads;
    int64_t *sizes; /* of what calls copy or fill, where they know */
    size_t sizes_n, sizes_cap;
    size_t records_n, records_cap, memory_n, memory_cap, gpu_n, gpu_cap, threads_n, threads_cap;
    struct map thread_index, process_index;
    uint32_t processes_n;
    struct import_trace_device devices[IMPORT_TRACE_DEVICES];
    int64_t base_ns; /* wall clock of the trace's time 0, 0 unknown */
    int64_t rank;    /* -1 unknown */
    uint64_t events, left_out;
    uint64_t malformed; /* events that are not JSON */
    bool calls;         /* it has calls of CUDA */
    bool timeline;      /* export_memory_timeline's list */
    bool lines;         /* Python frames' lines are where their functions begin */
    char cut[160];      /* why its end is missing; empty: it is not */
};

/* NULL and a line in `error` if it has no event. */
struct import_trace *import_trace_read(const char *path, void (*progress)(void *, uint64_t), void *self, char *error,
                                       size_t error_size);
void import_trace_free(struct import_trace *t);
/* Reads until it finds the list of events of a trace or of a memory timeline. */
bool import_trace_has_events(const char *path);

#endif
