/* The part of CUDA's binary interface that gpuspy needs, so that neither the library nor the simulated CUDA needs a
 * toolkit to be built. If a toolkit is installed, `make test` compiles tests/toolkit_check.c, which compares every type
 * here and every row of cuda_api.def with its headers. Values: CUDA 13.5's driver_types.h and cuda.h; unchanged since
 * CUDA 11 unless noted. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* If the toolkit's own headers are included in the same file, its types are used, and only values that it has under
 * other names are defined here. */
#ifndef GPUSPY_TOOLKIT_TYPES

typedef int cudaError_t;
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1; /* 32 bit, of the unversioned exports before CUDA 3.2 */

/* Handles */
typedef struct CUctx_st *CUcontext;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
typedef CUmemoryPool cudaMemPool_t;
typedef CUlibrary cudaLibrary_t;
typedef CUgraph cudaGraph_t;
typedef CUgraphNode cudaGraphNode_t;
typedef CUgraphExec cudaGraphExec_t;
/* The runtime's arrays are the driver's arrays: their handles may be cast. */
typedef struct cudaArray *cudaArray_t;
typedef const struct cudaArray *cudaArray_const_t;
typedef struct cudaMipmappedArray *cudaMipmappedArray_t;
typedef struct CUexternalMemory_st *cudaExternalMemory_t;
typedef struct CUexternalSemaphore_st *cudaExternalSemaphore_t;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef cuuint32_t CUlogicalEndpointId;

/* Enumerations of which no value matters except those below */
typedef int CUmem_advise, CUmemAllocationHandleType, CUmemAllocationType, CUmemRangeHandleType;
typedef int CUmemPool_attribute, CUstreamCaptureMode, CUjit_option, CUlibraryOption;
typedef int CUgraphExecUpdateResult, CUlimit;
#define GS_ENUM(name) enum name { name##_zero = 0 }
GS_ENUM(cudaMemoryAdvise);
GS_ENUM(cudaMemAllocationHandleType);
GS_ENUM(cudaMemAllocationType);
GS_ENUM(cudaMemPoolAttr);
GS_ENUM(cudaStreamCaptureMode);
GS_ENUM(cudaJitOption);
GS_ENUM(cudaLimit);
GS_ENUM(cudaLibraryOption);
GS_ENUM(cudaGraphExecUpdateResult);
enum cudaMemLocationType { cudaMemLocationTypeInvalid = 0, cudaMemLocationTypeDevice = 1 };

/* Structures that are passed on unread */
typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef struct CUctxCreateParams_st CUctxCreateParams;
typedef struct CUmulticastObjectProp_st CUmulticastObjectProp;
typedef struct CUarrayMapInfo_st CUarrayMapInfo;
typedef struct CUmemAccessDesc_st CUmemAccessDesc;
typedef struct CUmemPoolPtrExportData_st CUmemPoolPtrExportData;
typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_st CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
typedef struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_st CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st CUDA_GRAPH_INSTANTIATE_PARAMS;
typedef struct CUDA_LAUNCH_PARAMS_st CUDA_LAUNCH_PARAMS;
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
typedef struct CUgraphExecUpdateResultInfo_st CUgraphExecUpdateResultInfo;
typedef struct CUmemDecompressParams_st CUmemDecompressParams;
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;
typedef CUdevResourceDesc cudaDevResourceDesc_t;
typedef struct cudaExecutionContext_st *cudaExecutionContext_t;
struct cudaGraphRecaptureCallbackData;
typedef union CUstreamBatchMemOpParams_union CUstreamBatchMemOpParams;
typedef struct CUlaunchAttribute_st CUlaunchAttribute;
typedef struct CUgraphEdgeData_st cudaGraphEdgeData;
typedef struct cudaGraphExecUpdateResultInfo_st cudaGraphExecUpdateResultInfo;
typedef struct cudaGraphInstantiateParams_st cudaGraphInstantiateParams;
typedef struct cudaLaunchAttribute_st cudaLaunchAttribute;
struct cudaExternalMemoryHandleDesc;
struct cudaExternalSemaphoreHandleDesc;
struct cudaExternalSemaphoreSignalParams;
struct cudaExternalSemaphoreWaitParams;
struct cudaMemPoolPtrExportData;
struct cudaMemAccessDesc;
struct cudaMemcpyAttributes;
struct cudaLaunchParams;

typedef void (*CUhostFn)(void *userData);
typedef void (*cudaHostFn_t)(void *userData);
typedef void (*CUstreamCallback)(CUstream hStream, CUresult status, void *userData);
typedef void (*cudaStreamCallback_t)(cudaStream_t stream, cudaError_t status, void *userData);

typedef struct {
    unsigned char bytes[16];
} CUuuid;

enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0 };
typedef int CUdriverProcAddressQueryResult;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

/* Structures that are passed by value or read; tests/abi_layout.c compares them with the toolkit's. */
typedef struct {
    unsigned int x, y, z;
} dim3;

struct cudaExtent {
    size_t width, height, depth;
};
struct cudaPos {
    size_t x, y, z;
};
struct cudaPitchedPtr {
    void *ptr;
    size_t pitch, xsize, ysize;
};
struct cudaChannelFormatDesc {
    int x, y, z, w; /* bits */
    int f;          /* enum cudaChannelFormatKind */
};
struct cudaMemLocation {
    enum cudaMemLocationType type;
    int id;
};
typedef struct cudaMemLocation CUmemLocation;

typedef struct cudaIpcMemHandle_st {
    char reserved[64];
} cudaIpcMemHandle_t;
typedef cudaIpcMemHandle_t CUipcMemHandle;

struct cudaMemPoolProps {
    int allocType, handleTypes;
    struct cudaMemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
};
typedef struct cudaMemPoolProps CUmemPoolProps;

typedef struct {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} CUmemAllocationProp;

struct cudaMemAllocNodeParams {
    struct cudaMemPoolProps poolProps;
    const void *accessDescs;
    size_t accessDescCount, bytesize;
    void *dptr;
};
typedef struct {
    CUmemPoolProps poolProps;
    const void *accessDescs;
    size_t accessDescCount, bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

/* The parameters of any node; only allocations and frees are read. */
struct cudaGraphNodeParams {
    int type, reserved0[3];
    union {
        long long reserved1[29];
        struct cudaMemAllocNodeParams alloc;
        struct {
            void *dptr;
        } free;
    };
    long long reserved2;
};
typedef struct cudaGraphNodeParams CUgraphNodeParams;
typedef CUresult (*CUgraphRecaptureCallback)(void *data, CUgraphNode node, const CUgraphNodeParams *originalParams,
                                             const CUgraphNodeParams *recaptureParams, int status);

typedef struct {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned int numAttrs;
} cudaLaunchConfig_t;
typedef struct {
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

/* The same fields with 32 and with 64 bits: the unversioned exports and the _v2 ones. */
#define GS_ARRAY_DESCRIPTORS(version, size) \
    typedef struct {                        \
        size Width, Height;                 \
        int Format;                         \
        unsigned int NumChannels;           \
    } CUDA_ARRAY_DESCRIPTOR##version;       \
    typedef struct {                        \
        size Width, Height, Depth;          \
        int Format;                         \
        unsigned int NumChannels, Flags;    \
    } CUDA_ARRAY3D_DESCRIPTOR##version;
GS_ARRAY_DESCRIPTORS(_v1, unsigned int)
GS_ARRAY_DESCRIPTORS(, size_t)

#define GS_MEMCPY_SIDES(version, size, address)                          \
    typedef struct {                                                     \
        size srcXInBytes, srcY;                                          \
        int srcMemoryType;                                               \
        const void *srcHost;                                             \
        address srcDevice;                                               \
        CUarray srcArray;                                                \
        size srcPitch, dstXInBytes, dstY;                                \
        int dstMemoryType;                                               \
        void *dstHost;                                                   \
        address dstDevice;                                               \
        CUarray dstArray;                                                \
        size dstPitch, WidthInBytes, Height;                             \
    } CUDA_MEMCPY2D##version;                                            \
    typedef struct {                                                     \
        size srcXInBytes, srcY, srcZ, srcLOD;                            \
        int srcMemoryType;                                               \
        const void *srcHost;                                             \
        address srcDevice;                                               \
        CUarray srcArray;                                                \
        void *srcContext; /* reserved, except in copies between peers */ \
        size srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;       \
        int dstMemoryType;                                               \
        void *dstHost;                                                   \
        address dstDevice;                                               \
        CUarray dstArray;                                                \
        void *dstContext;                                                \
        size dstPitch, dstHeight, WidthInBytes, Height, Depth;           \
    } CUDA_MEMCPY3D##version;
GS_MEMCPY_SIDES(_v1, unsigned int, CUdeviceptr_v1)
GS_MEMCPY_SIDES(, size_t, CUdeviceptr)
typedef CUDA_MEMCPY3D CUDA_MEMCPY3D_PEER;

struct cudaMemcpy3DParms {
    cudaArray_t srcArray;
    struct cudaPos srcPos;
    struct cudaPitchedPtr srcPtr;
    cudaArray_t dstArray;
    struct cudaPos dstPos;
    struct cudaPitchedPtr dstPtr;
    struct cudaExtent extent;
    enum cudaMemcpyKind kind;
};
struct cudaMemcpy3DPeerParms {
    cudaArray_t srcArray;
    struct cudaPos srcPos;
    struct cudaPitchedPtr srcPtr;
    int srcDevice;
    cudaArray_t dstArray;
    struct cudaPos dstPos;
    struct cudaPitchedPtr dstPtr;
    int dstDevice;
    struct cudaExtent extent;
};

struct cudaMemcpy3DOperand {
    int type; /* GS_OPERAND_POINTER, GS_OPERAND_ARRAY */
    union {
        struct {
            void *ptr;
            size_t rowLength, layerHeight;
            struct cudaMemLocation locHint;
        } ptr;
        struct {
            cudaArray_t array;
            struct cudaPos offset;
        } array;
    } op;
};
struct cudaMemcpy3DBatchOp {
    struct cudaMemcpy3DOperand src, dst;
    struct cudaExtent extent;
    int srcAccessOrder;
    unsigned int flags;
};
typedef struct cudaMemcpy3DBatchOp CUDA_MEMCPY3D_BATCH_OP;

/* Since CUDA 13.5 */
typedef struct {
    int type; /* GS_OPERAND_POINTER, GS_OPERAND_ENDPOINT */
    union {
        struct {
            CUdeviceptr ptr;
            CUmemLocation locHint;
        } ptr;
        struct {
            CUlogicalEndpointId id;
            cuuint64_t offset;
        } le;
    } op;
} CUfabricCpyOperand;
typedef struct {
    CUfabricCpyOperand src, dst;
    size_t size;
    unsigned int flags;
} CUDA_FABRIC_COPY_BATCH_OP;

struct cudaExternalMemoryBufferDesc {
    unsigned long long offset, size;
    unsigned int flags, reserved[16];
};
typedef struct cudaExternalMemoryBufferDesc CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
struct cudaExternalMemoryMipmappedArrayDesc {
    unsigned long long offset;
    struct cudaChannelFormatDesc formatDesc;
    struct cudaExtent extent;
    unsigned int flags, numLevels, reserved[16];
};
typedef struct {
    unsigned long long offset;
    CUDA_ARRAY3D_DESCRIPTOR arrayDesc;
    unsigned int numLevels, reserved[16];
} CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;

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

/* Values of the driver's enumerations that acts depend on; renamed, because the toolkit defines the original names. */
enum {
    GS_MEMORYTYPE_HOST = 1,
    GS_MEMORYTYPE_DEVICE = 2,
    GS_MEMORYTYPE_ARRAY = 3,
    GS_MEMORYTYPE_UNIFIED = 4,
    GS_POINTER_MEMORY_TYPE = 2,
    GS_OPERAND_POINTER = 1,
    GS_OPERAND_ARRAY = 2,
    GS_OPERAND_ENDPOINT = 2, /* of fabric copies */
    GS_NODE_MEM_ALLOC = 10,
    GS_NODE_MEM_FREE = 11,
    GS_POOL_RESERVED = 5,
    GS_POOL_USED = 7,
    GS_GRAPH_MEM_USED = 0,
    GS_GRAPH_MEM_RESERVED = 2,
    GS_ARRAY_LAYERED = 0x01,
    GS_ARRAY_CUBEMAP = 0x04,
    GS_ARRAY_SPARSE = 0x40,
    GS_ARRAY_DEFERRED = 0x80,
};

/* Pseudo stream handles (driver_types.h: cudaStreamLegacy, cudaStreamPerThread). */
#define GS_STREAM_LEGACY 0x1ull
#define GS_STREAM_PER_THREAD 0x2ull
