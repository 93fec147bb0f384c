/* The door of PyTorch's caching allocator: the functions by which libc10_cuda and libc10 report each tensor block
 * and each failure. They are called through the PLT, so defining them is enough.
 *
 *    1.6–1.9          usage(void *, int64, Device): no totals, the pointer is a Block*
 *    1.10–1.13        usage(void *, int64, int64 allocated, int64 reserved, Device)
 *    1.13             oom(int64, int64, int64, Device)
 *    2.0 and later    the same with size_t totals
 *
 * Each call is always passed on, because torch.profiler depends on it. The calls come under the allocator's lock,
 * which is taken with the GIL held: nothing here may wait for the GIL. */
#include <stdatomic.h>
#include "interpose/allocator_state.h"
#include "interpose/device.h"
#include "interpose/graph.h"
#include "interpose/recorder.h"
#include "interpose/requested.h"
#include "interpose/resolve.h"
#include "interpose/session.h"

#define EXPORT __attribute__((visibility("default")))

/* c10::Device, two bytes passed by value in the low bits of a register whose other bits are undefined. */
typedef uint64_t device_register;
enum { DEVICE_CPU = 0, DEVICE_CUDA = 1 };

static int device_type(device_register device)
{
    return (int8_t)(device & 0xff);
}

static int device_index(device_register device)
{
    return (int8_t)(device >> 8 & 0xff);
}

/* Usually RTLD_LOCAL in a Python process, and with an additional suffix in Debian's package. */
static void *real_c10(const char *symbol, _Atomic(void *) *cache)
{
    void *found = atomic_load_explicit(cache, memory_order_acquire);
    if (found) return found;
    found = gs_find_in("libc10.so", symbol);
    if (found) atomic_store_explicit(cache, found, memory_order_release);
    return found;
}
#define REAL(type, symbol)               \
    ({                                   \
        static _Atomic(void *) cache;    \
        (type) real_c10(symbol, &cache); \
    })

static void record_usage(const void *caller, void *pointer, int64_t bytes, int64_t allocated, int64_t reserved,
                         bool has_totals, device_register device)
{
    const int type = device_type(device);
    const bool cpu = type == DEVICE_CPU;
    if (!bytes || (!cpu && type != DEVICE_CUDA)) return;
    if (cpu && !gs_session_torch_cpu()) return; /* a profiler requested it, not gpuspy's user */
    struct gs_thread *t = gs_enter(GS_API_TORCH_USAGE, caller);
    uint64_t stream = cpu ? 0 : GS_STREAM_UNKNOWN;
    uint32_t extra = GS_EXTRA_UNKNOWN;
    uint8_t flags = 0;
    if (t && !cpu && bytes > 0) {
        gs_allocator_seen(caller);
        if (has_totals) extra = gs_requested_extra(caller, device_index(device), bytes, allocated, reserved);
        if (has_totals) gs_allocator_read_cap(t, device_index(device), reserved);
        if (has_totals) gs_allocator_read_syncs(t, device_index(device));
        if (t->grown) gs_allocator_read_pool(t, device_index(device), (uint64_t)(uintptr_t)pointer, bytes);
        t->grown = false;
        stream = gs_torch_stream(device_index(device));
        if (stream != GS_STREAM_UNKNOWN && gs_captured(stream)) flags = GS_FLAG_CAPTURED;
    } else if (!cpu && bytes < 0) {
        if (has_totals) gs_allocator_read_syncs(t, device_index(device));
        gs_record_pending(t, (uint64_t)(uintptr_t)pointer);
    }
    if (t) t->marked.count = 0;
    gs_record_tensor(t, (uint64_t)(uintptr_t)pointer, bytes, (uint64_t)allocated, (uint64_t)reserved, has_totals,
                     cpu ? GS_LAYER_HOST : GS_LAYER_TENSOR, cpu ? GS_DEVICE_NONE : device_index(device), stream, extra,
                     flags);
    gs_leave(t);
}

static void record_out_of_memory(const void *caller, int64_t bytes, int64_t allocated, int64_t reserved,
                                 device_register device)
{
    if (device_type(device) != DEVICE_CUDA) return;
    struct gs_thread *t = gs_enter(GS_API_TORCH_OOM, caller);
    if (!t) {
        gs_leave(t);
        return;
    }
    uint64_t free_bytes, total_bytes;
    gs_allocator_seen(caller);
    gs_device_memory(&free_bytes, &total_bytes);
    gs_allocator_read_cap(t, device_index(device), reserved);
    gs_allocator_read_syncs(t, device_index(device));
    gs_allocator_read_unused(t);
    gs_record_oom(t, (uint64_t)bytes, free_bytes, total_bytes, (uint64_t)allocated, (uint64_t)reserved, GS_LAYER_TENSOR,
                  GS_SPACE_DEVICE, device_index(device));
    gs_leave(t);
}

/* --- the exported names ---------------------------------------------------------------------- */

#define USAGE_WITH_TOTALS(symbol)                                                                                  \
    EXPORT void symbol(void *pointer, int64_t bytes, int64_t allocated, int64_t reserved, device_register device); \
    void symbol(void *pointer, int64_t bytes, int64_t allocated, int64_t reserved, device_register device)         \
    {                                                                                                              \
        void (*real)(void *, int64_t, int64_t, int64_t, device_register) =                                         \
            REAL(void (*)(void *, int64_t, int64_t, int64_t, device_register), #symbol);                           \
        record_usage(__builtin_return_address(0), pointer, bytes, allocated, reserved, true, device);              \
        if (real) real(pointer, bytes, allocated, reserved, device);                                               \
    }
USAGE_WITH_TOTALS(_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE)
USAGE_WITH_TOTALS(_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE)

#define OUT_OF_MEMORY(symbol)                                                                       \
    EXPORT void symbol(int64_t bytes, int64_t allocated, int64_t reserved, device_register device); \
    void symbol(int64_t bytes, int64_t allocated, int64_t reserved, device_register device)         \
    {                                                                                               \
        void (*real)(int64_t, int64_t, int64_t, device_register) =                                  \
            REAL(void (*)(int64_t, int64_t, int64_t, device_register), #symbol);                    \
        record_out_of_memory(__builtin_return_address(0), bytes, allocated, reserved, device);      \
        if (real) real(bytes, allocated, reserved, device);                                         \
    }
OUT_OF_MEMORY(_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE)
OUT_OF_MEMORY(_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE)

EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE(void *pointer, int64_t bytes, device_register device);
void _ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE(void *pointer, int64_t bytes, device_register device)
{
    void (*real)(void *, int64_t, device_register) =
        REAL(void (*)(void *, int64_t, device_register), "_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE");
    record_usage(__builtin_return_address(0), pointer, bytes, 0, 0, false, device);
    if (real) real(pointer, bytes, device);
}

/* PyTorch reports CPU tensors only while a profiler records memory. */
EXPORT bool _ZN3c1022memoryProfilingEnabledEv(void);
bool _ZN3c1022memoryProfilingEnabledEv(void)
{
    if (gs_session_torch_cpu()) return true;
    bool (*real)(void) = REAL(bool (*)(void), "_ZN3c1022memoryProfilingEnabledEv");
    return real && real();
}
