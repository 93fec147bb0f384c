/* A torch.profiler trace as compact records: slices on CPU threads that can hold memory, copies or waits, memory events
 * and calls. In memory it keeps 48 bytes for each copy or fill on the GPU and each name once; kernels, launches and
 * arrows are dropped as they are read. */
#pragma once

#include "analyzer/import/trace_names.h"
#include "analyzer/import/trace_records.h"

struct import_trace_gpu { /* a copy or fill on the GPU */
    int64_t at_ns, bytes; /* -1: unknown, unless its call has it */
    uint64_t stream;
    uint32_t correlation, next; /* next: 1 + the next one of the same call */
    int16_t device;
    uint8_t kind, direction, memory; /* memory: enum gs_host_memory */
    bool claimed;                    /* a call has it */
};

struct import_trace_thread {
    uint32_t pid, tid, name; /* indices of names */
    uint32_t process;        /* index of the process, by pid */
    bool used, no_process;   /* no_process: its pid is -1, as of an Intel GPU's waits */
};

struct import_trace_device {
    const char *name;
    int64_t total_bytes;
    bool used, memory; /* memory: tensors were allocated on it, so the number is PyTorch's */
};

enum { IMPORT_TRACE_DEVICES = 64 };

struct import_trace {
    struct import_names names;
    struct import_records *records;
    struct import_trace_gpu *gpu;
    struct import_trace_thread *threads;
    size_t gpu_n, gpu_cap, threads_n, threads_cap;
    struct map thread_index, process_index;
    uint32_t processes_n;
    struct import_trace_device devices[IMPORT_TRACE_DEVICES];
    int64_t base_ns; /* wall clock at the trace's time 0; 0: unknown */
    int64_t rank;    /* -1: unknown */
    uint64_t events, left_out;
    uint64_t memory_n;   /* number of memory events and failures in the records */
    bool gpu_memory;     /* some memory event is of a GPU */
    uint64_t undirected; /* copies on the GPU whose names have no direction */
    uint64_t malformed;  /* events that are not valid JSON */
    bool calls, rocm;    /* it has calls of CUDA or ROCm; some are ROCm's */
    bool timeline;       /* export_memory_timeline's list */
    bool lines;          /* the line of a Python frame is where its function begins */
    bool has_more;       /* the file continues after the trace */
    char cut[160];       /* why the end of the trace is missing; "": it is not */
};

/* Returns NULL and a line in `error` if the file has no event. Creates temporary files beside `to`. */
struct import_trace *import_trace_read(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self,
                                       char *error, size_t error_size);
void import_trace_free(struct import_trace *t);
/* Reads until it finds the list of events of a trace or of a memory timeline. */
bool import_trace_has_events(const char *path);
