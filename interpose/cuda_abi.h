/* The part of CUDA's binary interface that gpuspy needs, so that neither the library nor the
 * simulated CUDA needs a toolkit to be built. Where a toolkit stands, `make test` compiles
 * tests/toolkit_check.c, which holds every type here and every row of cuda_api.def against its
 * headers. Values: CUDA 13.0's driver_types.h and cuda.h; unchanged since CUDA 11 unless noted. */
#ifndef GPUSPY_CUDA_ABI_H
#define GPUSPY_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

/* With the toolkit's own headers in the same file, its types are used and only the values that
 * both know under other names are left to us. */
#ifndef GPUSPY_TOOLKIT_TYPES

typedef int cudaError_t;
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1; /* 32 bit, of the unversioned exports before CUDA 3.2 */

typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
typedef CUmemoryPool cudaMemPool_t;
typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef struct CUctxCreateParams_st CUctxCreateParams;

typedef struct {
    unsigned char bytes[16];
} CUuuid;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidDevice = 101,
    cudaErrorSharedObjectInitFailed = 303,
    cudaErrorNotReady = 600,
};

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = 303,
    CUDA_ERROR_NOT_READY = 600,
};

#endif /* GPUSPY_TOOLKIT_TYPES */

/* Pseudo stream handles (driver_types.h: cudaStreamLegacy, cudaStreamPerThread). */
#define GS_STREAM_LEGACY 0x1ull
#define GS_STREAM_PER_THREAD 0x2ull

#endif
