/* The part of NVML's binary interface that gpuspy needs, so that no toolkit is needed to build. tests/nvml_check.c
 * compares it with nvml.h if a toolkit is installed, else with the simulator's header. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { NVML_ABI_SUCCESS = 0, NVML_ABI_INSUFFICIENT_SIZE = 7, NVML_ABI_TEMPERATURE_GPU = 0 };
#define NVML_ABI_UNKNOWN UINT64_MAX /* bytes of a process that the driver does not report */

typedef struct nvmlDevice_st *nvml_abi_device;

struct nvml_abi_memory { /* of nvmlDeviceGetMemoryInfo, without a version */
    unsigned long long total, free, used;
};
struct nvml_abi_utilization {
    unsigned int gpu, memory;
};
/* The beginning of a process in all versions of the lists; the rest (16, 24 or 32 bytes in total) differs between
 * drivers under one name. */
struct nvml_abi_process {
    unsigned int pid;
    unsigned long long bytes;
};

/* How many bytes a process takes in a list of `n` that was filled with NVML_ABI_PATTERN: drivers differ under one name,
 * so the bytes that they have written are counted. 0: unknown. */
#define NVML_ABI_PATTERN 0xa5
#define NVML_ABI_PROCESS_MOST 32
static inline size_t nvml_abi_stride(const uint8_t *list, size_t room, unsigned n)
{
    size_t end = room;
    while (end && list[end - 1] == NVML_ABI_PATTERN) end--;
    const size_t stride = ((end + n - 1) / n + 7) & ~(size_t)7;
    return stride == 16 || stride == 24 || stride == NVML_ABI_PROCESS_MOST ? stride : 0;
}

/* In a container NVML may report the host's process ids, which have no meaning there. */
static inline bool nvml_abi_ids_are_ours(void)
{
    char text[64];
    const ssize_t len = readlink("/proc/self/ns/pid", text, sizeof text - 1);
    if (len <= 0) return false;
    text[len] = 0;
    return strcmp(text, "pid:[4026531836]") == 0; /* the kernel's fixed number of the first namespace */
}
