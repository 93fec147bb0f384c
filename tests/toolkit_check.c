/* Holds every row of interpose/cuda_api.def, and the values of interpose/cuda_abi.h, against the
 * toolkit's own headers. Compiled by `make test` where a toolkit stands; a difference is a compile
 * error that names the row.
 *
 * With __CUDA_API_VERSION_INTERNAL the headers declare the old, the _v2 and the per-thread
 * exports under their real names, without the macros that map one to another. */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <cudaProfiler.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#define GPUSPY_TOOLKIT_TYPES 1
#include "interpose/cuda_abi.h"

#include <stdio.h>

#define RESULT_RT cudaError_t
#define RESULT_DRV CUresult

/* A prototype that disagrees with the header's own is an error by itself; a name that the header
 * does not have at all is one in the initialiser, as an undeclared identifier. */
#define CHECK(layer, name, params)                                                  \
    typedef RESULT_##layer check_##name params;                                     \
    _Static_assert(__builtin_types_compatible_p(check_##name *, __typeof__(&name)), \
                   #name ": cuda_api.def and the toolkit disagree");
/* The toolkit's runtime headers declare no per-thread names: they have the signature of the name
 * that they stand for. */
#define CHECK_SUFFIXED_RT(name, params)
#define CHECK_SUFFIXED_DRV(name, params) CHECK(DRV, name, params)

/* Of the rows that are for some runtimes only, those of the toolkit that stands here. */
#define NOTHING(...)
#if CUDART_VERSION >= 13000
#define IF_11 NOTHING
#define IF_12 NOTHING
#define IF_13 CHECK
#define IF_11_12 NOTHING
#define IF_12_13 CHECK
#elif CUDART_VERSION >= 12000
#define IF_11 NOTHING
#define IF_12 CHECK
#define IF_13 NOTHING
#define IF_11_12 CHECK
#define IF_12_13 CHECK
#else
#define IF_11 CHECK
#define IF_12 NOTHING
#define IF_13 NOTHING
#define IF_11_12 CHECK
#define IF_12_13 NOTHING
#endif

#define GS_CALL(layer, name, params, args, act) CHECK(layer, name, params)
#define GS_BOTH(layer, name, suffix, params, args, act) \
    CHECK(layer, name, params) CHECK_SUFFIXED_##layer(name##suffix, params)
#define GS_CALL_V(versions, layer, name, params, args, act) IF_##versions(layer, name, params)
#define GS_BOTH_V(versions, layer, name, suffix, params, args, act) IF_##versions(layer, name, params)
#define GS_TELLER(layer, name, params, args, total, device) CHECK(layer, name, params)
#define GS_FINDER(layer, name, params, args, asked, pointer) CHECK(layer, name, params)
#define GS_FINDER_BOTH(layer, name, suffix, params, args, asked, pointer) CHECK(layer, name, params)
#define GS_FINDER_BOTH_V(versions, layer, name, suffix, params, args, asked, pointer) IF_##versions(layer, name, params)
#if CUDA_VERSION < 13050
#define GPUSPY_TOOLKIT_IS_OLDER 1
#endif
#include "interpose/cuda_api.def"

#define VALUE(name, value) _Static_assert((int)(name) == (value), #name)
VALUE(cudaSuccess, 0);
VALUE(cudaErrorInvalidValue, 1);
VALUE(cudaErrorMemoryAllocation, 2);
VALUE(cudaErrorInitializationError, 3);
VALUE(cudaErrorInvalidDevice, 101);
VALUE(cudaErrorSharedObjectInitFailed, 303);
VALUE(cudaErrorNotReady, 600);
VALUE(CUDA_SUCCESS, 0);
VALUE(CUDA_ERROR_INVALID_VALUE, 1);
VALUE(CUDA_ERROR_OUT_OF_MEMORY, 2);
VALUE(CUDA_ERROR_NOT_INITIALIZED, 3);
VALUE(CUDA_ERROR_INVALID_DEVICE, 101);
VALUE(CUDA_ERROR_INVALID_CONTEXT, 201);
VALUE(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303);
VALUE(CUDA_ERROR_NOT_READY, 600);
VALUE(cudaMemcpyHostToHost, 0);
VALUE(cudaMemcpyHostToDevice, 1);
VALUE(cudaMemcpyDeviceToHost, 2);
VALUE(cudaMemcpyDeviceToDevice, 3);
VALUE(cudaMemcpyDefault, 4);
_Static_assert(sizeof(CUdevice) == sizeof(int) && sizeof(CUdeviceptr) == 8 && sizeof(CUdeviceptr_v1) == 4,
               "the driver's integers");
_Static_assert(sizeof(enum cudaMemcpyKind) == sizeof(int), "an enumeration is an int");

int main(void)
{
    unsigned rows = 0;
#define GS_ROW(layer, symbol, name, versions, stream, params, args, act) rows++;
#include "interpose/cuda_api.def"
    printf("%u rows agree with CUDA %d.%d\n", rows, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
    return 0;
}
