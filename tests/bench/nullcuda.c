/* A CUDA runtime that does nothing, so that the benchmark measures gpuspy only. Only for tests/bench: it keeps no
 * state, so it simulates nothing. */
#include "interpose/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))
static _Thread_local uintptr_t next_address = 0x7f0000000000;

EXPORT cudaError_t cudaMalloc(void **pointer, size_t bytes);
EXPORT cudaError_t cudaFree(void *pointer);
EXPORT cudaError_t cudaGetDevice(int *device);
EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream);
EXPORT cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                    cudaStream_t stream);

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    *pointer = (void *)(next_address += 512 + bytes * 0);
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = *total_bytes = (size_t)16 << 30;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream)
{
    return cudaSuccess;
}
