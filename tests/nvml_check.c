/* Compiled with NVML's own nvml.h where one stands, else with the simulator's: schema/nvml_abi.h
 * against it. */
#if __has_include(<nvml.h>)
#include <nvml.h>
#else
#include "fixtures/simcuda/include/simnvml.h"
#endif

#include "schema/nvml_abi.h"

#define SAME(a, b) _Static_assert((long long)(a) == (long long)(b), #a " is " #b)

SAME(NVML_ABI_SUCCESS, NVML_SUCCESS);
SAME(NVML_ABI_TEMPERATURE_GPU, NVML_TEMPERATURE_GPU);
SAME(NVML_ABI_INSUFFICIENT_SIZE, NVML_ERROR_INSUFFICIENT_SIZE);
SAME(sizeof(struct nvml_abi_memory), sizeof(nvmlMemory_t));
SAME(offsetof(struct nvml_abi_memory, total), offsetof(nvmlMemory_t, total));
SAME(offsetof(struct nvml_abi_memory, free), offsetof(nvmlMemory_t, free));
SAME(sizeof(struct nvml_abi_utilization), sizeof(nvmlUtilization_t));
SAME(offsetof(struct nvml_abi_utilization, gpu), offsetof(nvmlUtilization_t, gpu));
SAME(offsetof(struct nvml_abi_utilization, memory), offsetof(nvmlUtilization_t, memory));
SAME(offsetof(struct nvml_abi_process, pid), offsetof(nvmlProcessInfo_t, pid));
SAME(offsetof(struct nvml_abi_process, bytes), offsetof(nvmlProcessInfo_t, usedGpuMemory));
SAME(offsetof(struct nvml_abi_process, bytes), offsetof(nvmlProcessInfo_v1_t, usedGpuMemory));
