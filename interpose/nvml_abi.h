/* The part of NVML's binary interface that gpuspy needs, so that no toolkit is needed to build.
 * tests/nvml_check.c holds this against nvml.h where one stands, else against the simulator's. */
#ifndef GPUSPY_NVML_ABI_H
#define GPUSPY_NVML_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { NVML_ABI_SUCCESS = 0, NVML_ABI_INSUFFICIENT_SIZE = 7, NVML_ABI_TEMPERATURE_GPU = 0 };
#define NVML_ABI_UNKNOWN UINT64_MAX /* bytes of a process that the driver does not tell */

typedef struct nvmlDevice_st *nvml_abi_device;

struct nvml_abi_memory { /* of nvmlDeviceGetMemoryInfo, without a version */
    unsigned long long total, free, used;
};
struct nvml_abi_utilization {
    unsigned int gpu, memory;
};
/* How a process begins in all versions of the lists; what follows (16, 24 or 32 bytes in all) has
 * changed between drivers under one name. */
struct nvml_abi_process {
    unsigned int pid;
    unsigned long long bytes;
};

#endif
