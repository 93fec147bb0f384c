#include "interpose/device.h"

#include <stdatomic.h>
#include <string.h>
#include "interpose/ask.h"
#include "interpose/limit.h"
#include "interpose/state.h"

GS_ASK(RT, cudaError_t, cudaGetDevice, int *)
GS_ASK(DRV, CUresult, cuCtxGetDevice, CUdevice *)
GS_ASK(DRV, CUresult, cuCtxGetCurrent, CUcontext *)
GS_ASK(DRV, CUresult, cuDeviceGetName, char *, int, CUdevice)
GS_ASK(DRV, CUresult, cuDeviceTotalMem_v2, size_t *, CUdevice)
GS_ASK(DRV, CUresult, cuMemGetInfo_v2, size_t *, size_t *)
GS_ASK(DRV, CUresult, cuDevicePrimaryCtxGetState, CUdevice, unsigned int *, int *)

static int ask_runtime(void)
{
    cudaError_t (*get)(int *) = real_cudaGetDevice();
    int device;
    return get && get(&device) == cudaSuccess ? device : GS_DEVICE_NONE;
}

static int ask_driver(void)
{
    CUresult (*get)(CUdevice *) = real_cuCtxGetDevice();
    CUdevice device;
    return get && get(&device) == CUDA_SUCCESS ? device : GS_DEVICE_NONE;
}

static int ask_current(const struct gs_thread *t)
{
    /* The runtime's device is set before a context exists; after a driver call the context determines the device. */
    int device = gs_apis[t->call.api].library == GS_LIBRARY_RT ? ask_runtime() : ask_driver();
    return device >= 0 && device < INT16_MAX ? device : GS_DEVICE_NONE;
}

void gs_device_memory(uint64_t *free_bytes, uint64_t *total_bytes)
{
    size_t free_now, total;
    /* Queries the driver even in a runtime's call: if no context exists, cudaMemGetInfo would create one, and its
     * failure would show in the program's cudaGetLastError. */
    CUresult (*get)(size_t *, size_t *) = real_cuMemGetInfo_v2();
    const bool known = get && get(&free_now, &total) == CUDA_SUCCESS;
    *free_bytes = known ? free_now : UINT64_MAX;
    *total_bytes = known ? total : UINT64_MAX;
    if (known && gs_limited()) gs_limit_view(GS_DEVICE_CURRENT, free_bytes, total_bytes);
}

/* --- definitions ----------------------------------------------------------------------------- */

#define DEVICES 64
static _Atomic uint64_t seen; /* one bit per device */
static _Atomic uint64_t primary[DEVICES];

static bool first_seen(int device)
{
    const uint64_t bit = 1ull << device;
    if (atomic_load_explicit(&seen, memory_order_relaxed) & bit) return false;
    return !(atomic_fetch_or(&seen, bit) & bit);
}

static void write_device_definition(struct gs_thread *t, int device, bool current)
{
    char name[256] = "";
    size_t total = 0;
    CUresult (*get_name)(char *, int, CUdevice) = real_cuDeviceGetName();
    CUresult (*get_total)(size_t *, CUdevice) = real_cuDeviceTotalMem_v2();
    if (!get_name || get_name(name, sizeof name, device) != CUDA_SUCCESS) name[0] = 0;
    if (!get_total || get_total(&total, device) != CUDA_SUCCESS) total = 0;
    const uint64_t cap = gs_limit_of(device), physical = cap && cap < total ? total : 0;
    if (physical) total = cap;
    gs_limit_physical(device, physical);
    uint64_t free_bytes = UINT64_MAX, total_bytes = UINT64_MAX;
    if (current) gs_device_memory(&free_bytes, &total_bytes);
    if (!total && total_bytes != UINT64_MAX) total = total_bytes;

    const uint16_t len = (uint16_t)strnlen(name, sizeof name);
    const uint16_t bytes = (uint16_t)((sizeof(struct gs_rec_gpu) + len + 7) & ~7u);
    struct gs_rec_gpu *r = gs_record_begin(t, bytes, GS_REC_GPU);
    if (!r) return;
    memset(&r->rec + 1, 0, bytes - sizeof r->rec);
    r->rec.stack = 0;
    r->device = device;
    r->name_len = len;
    r->total_bytes = total;
    r->free_bytes = free_bytes;
    r->physical_bytes = physical;
    memcpy(r + 1, name, len);
    gs_record_end(t, r);
}

int gs_device_resolve(struct gs_thread *t, int device)
{
    const bool current = device == GS_DEVICE_CURRENT;
    if (current) {
        if (t->device == GS_DEVICE_UNKNOWN) t->device = ask_current(t);
        device = t->device;
        /* at the next call there may be a context */
        if (device == GS_DEVICE_NONE) t->device = GS_DEVICE_UNKNOWN;
    }
    if (device < 0) return GS_DEVICE_NONE;
    if (device < DEVICES && first_seen(device)) {
        /* memory that the process had before is known only from CUDA */
        write_device_definition(t, device, current || (gs_attached && ask_current(t) == device));
        gs_device_locate(device);
    }
    return device;
}

void gs_device_set(struct gs_thread *t, int device)
{
    if (!t) return;
    t->device = device;
    t->context = GS_CONTEXT_UNKNOWN;
}

/* --- contexts other than primary ones --------------------------------------------------------- */

#define CONTEXTS 256 /* alive at once; if there are more, the older ones' memory counts as the primary context's */
static _Atomic uint64_t contexts[CONTEXTS]; /* number % CONTEXTS → handle, 0 none */
static _Atomic uint32_t last_context;

uint16_t gs_context_add(uint64_t context)
{
    uint16_t number;
    do {
        number = (uint16_t)(atomic_fetch_add(&last_context, 1) + 1);
    } while (!number);
    atomic_store(&contexts[number % CONTEXTS], context);
    return number;
}

static uint16_t find_context(uint64_t context)
{
    const uint32_t last = atomic_load(&last_context);
    for (uint32_t n = last; context && n && last - n < CONTEXTS; n--)
        if (atomic_load(&contexts[(uint16_t)n % CONTEXTS]) == context) return (uint16_t)n;
    return 0;
}

uint16_t gs_context_remove(uint64_t context)
{
    const uint16_t number = find_context(context);
    if (number) atomic_store(&contexts[number % CONTEXTS], 0);
    return number;
}

uint16_t gs_context_current(struct gs_thread *t)
{
    if (!atomic_load_explicit(&last_context, memory_order_relaxed)) return 0;
    if (t->context == GS_CONTEXT_UNKNOWN) {
        CUresult (*get)(CUcontext *) = real_cuCtxGetCurrent();
        CUcontext now;
        const bool known = get && get(&now) == CUDA_SUCCESS;
        t->context = known ? find_context((uint64_t)(uintptr_t)now) : 0;
    }
    return (uint16_t)t->context;
}

bool gs_context_popped(uint64_t context)
{
    CUresult (*get)(CUcontext *) = real_cuCtxGetCurrent();
    CUcontext now;
    return get && get(&now) == CUDA_SUCCESS && (uint64_t)(uintptr_t)now != context;
}

uint64_t gs_device_primary(int device, uint64_t context)
{
    return device < 0 || device >= DEVICES ? 0 : atomic_exchange(&primary[device], context);
}

bool gs_device_primary_inactive(int device)
{
    CUresult (*get)(CUdevice, unsigned int *, int *) = real_cuDevicePrimaryCtxGetState();
    unsigned int flags;
    int active;
    return get && get(device, &flags, &active) == CUDA_SUCCESS && !active;
}

void gs_device_forget(void)
{
    atomic_store(&seen, 0);
    gs_device_bus_forget();
    for (int i = 0; i < DEVICES; i++) atomic_store(&primary[i], 0);
    atomic_store(&last_context, 0);
    for (int i = 0; i < CONTEXTS; i++) atomic_store(&contexts[i], 0);
}
