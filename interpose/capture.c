#include "interpose/capture.h"

#include <errno.h>
#include <stdatomic.h>
#include "interpose/ask.h"
#include "schema/event.h"

GS_ASK(DRV, CUresult, cuStreamIsCapturing, CUstream, int *)

static _Atomic bool captures, allocates;

/* Captures into existing graphs: when such a capture ends, no graph was created. */
#define INTO 64
static _Atomic uint64_t into[INTO];

static bool replace_stream(uint64_t from, uint64_t to)
{
    for (int i = 0; i < INTO; i++) {
        uint64_t expected = from;
        if (atomic_compare_exchange_strong(&into[i], &expected, to)) return true;
    }
    return false;
}

void gs_capture_begun(uint64_t graph)
{
    atomic_store_explicit(&captures, true, memory_order_relaxed);
    if (graph) replace_stream(0, graph);
}

bool gs_capture_made(uint64_t graph)
{
    return graph && !replace_stream(graph, 0);
}

bool gs_captured(uint64_t stream)
{
    if (!atomic_load_explicit(&captures, memory_order_relaxed)) return false;
    /* the legacy stream cannot be captured, and must not be queried while another stream is */
    if (!stream || stream == GS_STREAM_LEGACY) return false;
    const int saved = errno;
    CUresult (*ask)(CUstream, int *) = real_cuStreamIsCapturing();
    int status = 0;
    const bool capturing = ask && ask((CUstream)(uintptr_t)stream, &status) == CUDA_SUCCESS && status != 0;
    errno = saved;
    return capturing;
}

uint8_t gs_capture_flags(uint64_t stream)
{
    if (!gs_captured(stream)) return 0;
    gs_graph_allocates();
    return GS_FLAG_GRAPH;
}

void gs_graph_allocates(void)
{
    atomic_store_explicit(&allocates, true, memory_order_relaxed);
}

bool gs_graph_has_allocated(void)
{
    return atomic_load_explicit(&allocates, memory_order_relaxed);
}

void gs_capture_forget(void)
{
    for (int i = 0; i < INTO; i++) atomic_store(&into[i], 0);
}
