/* Bus addresses of devices. */
#include <stdatomic.h>
#include "interpose/ask.h"
#include "interpose/device.h"

GS_ASK(DRV, CUresult, cuDeviceGetPCIBusId, char *, int, CUdevice)

#define DEVICES 64

/* NVML does not know CUDA's device numbers, which CUDA_VISIBLE_DEVICES changes, so devices are matched by their bus
 * address. */
static char bus[DEVICES][16];
static _Atomic uint64_t located;

void gs_device_locate(int device)
{
    if (atomic_load_explicit(&located, memory_order_acquire) >> device & 1) return;
    CUresult (*get)(char *, int, CUdevice) = real_cuDeviceGetPCIBusId();
    if (get && get(bus[device], sizeof bus[device], device) == CUDA_SUCCESS)
        atomic_fetch_or_explicit(&located, 1ull << device, memory_order_release);
}

uint64_t gs_device_located(void)
{
    return atomic_load_explicit(&located, memory_order_acquire);
}

const char *gs_device_bus(int device)
{
    return bus[device];
}

void gs_device_bus_forget(void)
{
    atomic_store(&located, 0);
}
