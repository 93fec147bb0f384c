/* Prints the sizes, offsets and values that interpose/cuda_abi.h says CUDA has: compiled with that
 * file's own types, and with GPUSPY_TOOLKIT_TYPES with the toolkit's. tests/e2e/test_rows.py compares
 * the two where a toolkit stands. TOOLKIT is the version of that toolkit: an older one lacks the newest types. */
#ifdef GPUSPY_TOOLKIT_TYPES
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <cuda_runtime_api.h>
#define srcContext_or_reserved reserved0
#define dstContext_or_reserved reserved1
#else
#define srcContext_or_reserved srcContext
#define dstContext_or_reserved dstContext
#endif
#include "interpose/cuda_abi.h"

#include <stdio.h>

#define SIZE(type) printf("sizeof " #type " %zu\n", sizeof(type));
#define AT(type, field) printf(#type "." #field " %zu\n", offsetof(type, field));

#define SIDES2(X, type)    \
    X(type, srcMemoryType) \
    X(type, srcHost)       \
    X(type, srcDevice)     \
    X(type, srcArray)      \
    X(type, dstMemoryType) X(type, dstHost) X(type, dstDevice) X(type, dstArray) X(type, WidthInBytes) X(type, Height)
#define SIDES3(X, type) SIDES2(X, type) X(type, Depth) X(type, srcHeight) X(type, dstHeight)

static void by_value(void)
{
    SIZE(dim3)
    SIZE(struct cudaExtent)
    SIZE(struct cudaPos)
    SIZE(struct cudaPitchedPtr)
    AT(struct cudaPitchedPtr, pitch)
    SIZE(struct cudaMemLocation)
    AT(struct cudaMemLocation, id)
    SIZE(CUmemLocation)
    AT(CUmemLocation, id)
    SIZE(cudaIpcMemHandle_t)
    SIZE(CUipcMemHandle)
    SIZE(struct cudaChannelFormatDesc)
    AT(struct cudaChannelFormatDesc, w)
    AT(struct cudaChannelFormatDesc, f)
    SIZE(CUuuid)
}

static void descriptors(void)
{
#define ARRAY(type) SIZE(type) AT(type, Height) AT(type, Format) AT(type, NumChannels)
    ARRAY(CUDA_ARRAY_DESCRIPTOR)
    ARRAY(CUDA_ARRAY_DESCRIPTOR_v1)
    ARRAY(CUDA_ARRAY3D_DESCRIPTOR)
    ARRAY(CUDA_ARRAY3D_DESCRIPTOR_v1)
    AT(CUDA_ARRAY3D_DESCRIPTOR, Flags)
    AT(CUDA_ARRAY3D_DESCRIPTOR_v1, Flags)
#define POOL(type) SIZE(type) AT(type, location) AT(type, maxSize)
    POOL(struct cudaMemPoolProps)
    POOL(CUmemPoolProps)
    SIZE(CUmemAllocationProp)
    AT(CUmemAllocationProp, location)
    SIZE(struct cudaExternalMemoryBufferDesc)
    AT(struct cudaExternalMemoryBufferDesc, size)
    SIZE(CUDA_EXTERNAL_MEMORY_BUFFER_DESC)
    AT(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size)
    SIZE(struct cudaExternalMemoryMipmappedArrayDesc)
    AT(struct cudaExternalMemoryMipmappedArrayDesc, formatDesc)
    AT(struct cudaExternalMemoryMipmappedArrayDesc, extent)
    AT(struct cudaExternalMemoryMipmappedArrayDesc, flags)
    AT(struct cudaExternalMemoryMipmappedArrayDesc, numLevels)
    SIZE(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC)
    AT(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, arrayDesc)
    AT(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, numLevels)
}

static void copies(void)
{
    SIZE(CUDA_MEMCPY2D_v1)
    SIDES2(AT, CUDA_MEMCPY2D_v1)
    SIZE(CUDA_MEMCPY2D)
    SIDES2(AT, CUDA_MEMCPY2D)
    SIZE(CUDA_MEMCPY3D_v1)
    SIDES3(AT, CUDA_MEMCPY3D_v1)
    SIZE(CUDA_MEMCPY3D)
    SIDES3(AT, CUDA_MEMCPY3D)
    AT(CUDA_MEMCPY3D, srcContext_or_reserved)
    AT(CUDA_MEMCPY3D, dstContext_or_reserved)
    SIZE(CUDA_MEMCPY3D_PEER)
    SIDES3(AT, CUDA_MEMCPY3D_PEER)
#define PARMS(type) SIZE(type) AT(type, srcArray) AT(type, srcPtr) AT(type, dstArray) AT(type, dstPtr) AT(type, extent)
    PARMS(struct cudaMemcpy3DParms)
    AT(struct cudaMemcpy3DParms, kind)
    PARMS(struct cudaMemcpy3DPeerParms)
#define OP(t)       \
    SIZE(t)         \
    AT(t, src.type) \
    AT(t, src.op.ptr.ptr) AT(t, src.op.array.array) AT(t, dst.type) AT(t, dst.op.ptr.ptr) AT(t, extent) AT(t, flags)
    OP(struct cudaMemcpy3DBatchOp)
    OP(CUDA_MEMCPY3D_BATCH_OP)
#if TOOLKIT >= 13050
    SIZE(CUDA_FABRIC_COPY_BATCH_OP)
    AT(CUDA_FABRIC_COPY_BATCH_OP, src.type)
    AT(CUDA_FABRIC_COPY_BATCH_OP, src.op.ptr.ptr)
    AT(CUDA_FABRIC_COPY_BATCH_OP, dst)
    AT(CUDA_FABRIC_COPY_BATCH_OP, size)
#endif
}

static void graphs(void)
{
#define NODE(t) SIZE(t) AT(t, type) AT(t, alloc.poolProps) AT(t, alloc.bytesize) AT(t, alloc.dptr) AT(t, free.dptr)
    NODE(struct cudaGraphNodeParams)
    NODE(CUgraphNodeParams)
#define ALLOC(type) SIZE(type) AT(type, poolProps) AT(type, bytesize) AT(type, dptr)
    ALLOC(struct cudaMemAllocNodeParams)
    ALLOC(CUDA_MEM_ALLOC_NODE_PARAMS)
    SIZE(cudaLaunchConfig_t)
    AT(cudaLaunchConfig_t, stream)
    SIZE(CUlaunchConfig)
    AT(CUlaunchConfig, hStream)
}

static void values(void)
{
#ifdef GPUSPY_TOOLKIT_TYPES
#define VALUE(ours, theirs) printf(#ours " %d\n", (int)(theirs));
#else
#define VALUE(ours, theirs) printf(#ours " %d\n", (int)(ours));
#endif
#if TOOLKIT >= 13050
    VALUE(GS_OPERAND_ENDPOINT, CU_FABRIC_COPY_OPERAND_TYPE_LOGICAL_ENDPOINT)
    VALUE(GS_OPERAND_POINTER, CU_FABRIC_COPY_OPERAND_TYPE_POINTER)
#endif
    VALUE(GS_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST)
    VALUE(GS_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE)
    VALUE(GS_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_ARRAY)
    VALUE(GS_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED)
    VALUE(GS_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
    VALUE(GS_OPERAND_POINTER, CU_MEMCPY_OPERAND_TYPE_POINTER)
    VALUE(GS_OPERAND_ARRAY, CU_MEMCPY_OPERAND_TYPE_ARRAY)
    VALUE(GS_OPERAND_ARRAY, cudaMemcpyOperandTypeArray)
    VALUE(GS_NODE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    VALUE(GS_NODE_MEM_FREE, CU_GRAPH_NODE_TYPE_MEM_FREE)
    VALUE(GS_NODE_MEM_ALLOC, cudaGraphNodeTypeMemAlloc)
    VALUE(GS_NODE_MEM_FREE, cudaGraphNodeTypeMemFree)
    VALUE(GS_POOL_RESERVED, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    VALUE(GS_POOL_USED, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
    VALUE(GS_GRAPH_MEM_USED, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)
    VALUE(GS_GRAPH_MEM_RESERVED, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
    VALUE(GS_ARRAY_LAYERED, CUDA_ARRAY3D_LAYERED)
    VALUE(GS_ARRAY_CUBEMAP, CUDA_ARRAY3D_CUBEMAP)
    VALUE(GS_ARRAY_SPARSE, CUDA_ARRAY3D_SPARSE)
    VALUE(GS_ARRAY_DEFERRED, CUDA_ARRAY3D_DEFERRED_MAPPING)
    VALUE(GS_ARRAY_SPARSE, cudaArraySparse)
    VALUE(cudaMemLocationTypeDevice, CU_MEM_LOCATION_TYPE_DEVICE)
    VALUE(cudaMemLocationTypeDevice, cudaMemLocationTypeDevice)
}

int main(void)
{
    by_value();
    descriptors();
    copies();
    graphs();
    values();
    return 0;
}
