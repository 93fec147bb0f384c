#include "interpose/graph.h"

#include <errno.h>
#include <stdatomic.h>
#include "interpose/ask.h"
#include "interpose/device.h"

GS_ASK(DRV, CUresult, cuDeviceGetGraphMemAttribute, CUdevice, int, void *)
GS_ASK(DRV, CUresult, cuDeviceGetMemPool, CUmemoryPool *, CUdevice)
GS_ASK(DRV, CUresult, cuDeviceGetDefaultMemPool, CUmemoryPool *, CUdevice)
GS_ASK(DRV, CUresult, cuMemPoolGetAttribute, CUmemoryPool, int, void *)

/* --- memory of graphs ------------------------------------------------------------------------ */

#define DEVICES 64
static _Atomic uint64_t last_used[DEVICES], last_reserved[DEVICES];

void gs_record_graph_memory(struct gs_thread *t, int device)
{
    if (!t || !gs_graph_has_allocated()) return;
    const int saved = errno;
    const int on = gs_device_resolve(t, device);
    CUresult (*get)(CUdevice, int, void *) = real_cuDeviceGetGraphMemAttribute();
    uint64_t used = 0, reserved = 0;
    if (on >= 0 && on < DEVICES && get && get(on, GS_GRAPH_MEM_USED, &used) == CUDA_SUCCESS &&
        get(on, GS_GRAPH_MEM_RESERVED, &reserved) == CUDA_SUCCESS) {
        const bool same = atomic_exchange(&last_used[on], used) == used;
        if (atomic_exchange(&last_reserved[on], reserved) != reserved || !same)
            gs_record_pool(t, 0, used, reserved, on);
    }
    errno = saved;
}

/* --- pools ----------------------------------------------------------------------------------- */

static uint64_t graph_pool_of(CUresult (*get)(CUmemoryPool *, CUdevice), int device)
{
    CUmemoryPool pool;
    if (!get || device < 0 || get(&pool, device) != CUDA_SUCCESS) return 0;
    return (uint64_t)(uintptr_t)pool;
}

void gs_record_pool_now(struct gs_thread *t, uint64_t pool)
{
    if (!t) return;
    const int saved = errno;
    int on = gs_device_resolve(t, GS_DEVICE_CURRENT);
    const uint64_t current = graph_pool_of(real_cuDeviceGetMemPool(), on);
    if (!pool) pool = current;
    /* CUDA does not report the device of a pool, unless it is the device's default or current pool */
    if (pool != current && pool != graph_pool_of(real_cuDeviceGetDefaultMemPool(), on)) on = GS_DEVICE_NONE;
    CUresult (*get)(CUmemoryPool, int, void *) = real_cuMemPoolGetAttribute();
    uint64_t used = 0, reserved = 0;
    CUmemoryPool asked = (CUmemoryPool)(uintptr_t)pool;
    if (pool && get && get(asked, GS_POOL_USED, &used) == CUDA_SUCCESS &&
        get(asked, GS_POOL_RESERVED, &reserved) == CUDA_SUCCESS)
        gs_record_pool(t, pool, used, reserved, on);
    errno = saved;
}

void gs_graph_forget(void)
{
    for (int i = 0; i < DEVICES; i++) {
        atomic_store(&last_used[i], 0);
        atomic_store(&last_reserved[i], 0);
    }
    gs_capture_forget();
}
