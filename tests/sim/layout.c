/* Prints the sizes and values that a caller and the simulator must agree on. Compiled once with the
 * simulator's own types and once with the toolkit's; test_libraries compares. */
#define __CUDA_API_VERSION_INTERNAL /* the toolkit then shows the 32-bit forms, too */
#include "fixtures/simcuda/include/simcuda_types.h"

#include <stdio.h>

#define SIZE(type) printf("sizeof " #type " %zu\n", sizeof(type))
#define AT(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define VALUE(constant) printf(#constant " %lld\n", (long long)(constant))

static void array_sizes(void)
{
    SIZE(CUDA_ARRAY_DESCRIPTOR);
    SIZE(CUDA_ARRAY3D_DESCRIPTOR);
    AT(CUDA_ARRAY3D_DESCRIPTOR, Flags);
    SIZE(CUDA_ARRAY_DESCRIPTOR_v1);
    SIZE(CUDA_ARRAY3D_DESCRIPTOR_v1);
    SIZE(CUDA_ARRAY_MEMORY_REQUIREMENTS);
    SIZE(struct cudaArrayMemoryRequirements);
    SIZE(struct cudaChannelFormatDesc);
    SIZE(CUDA_MEMCPY2D_v1);
    AT(CUDA_MEMCPY2D_v1, dstPitch);
    SIZE(CUDA_MEMCPY3D_v1);
    AT(CUDA_MEMCPY3D_v1, dstHost);
    SIZE(CUDA_MEMCPY3D);
    AT(CUDA_MEMCPY3D, srcHeight);
    AT(CUDA_MEMCPY3D, dstHeight);
    SIZE(CUDA_MEMCPY3D_PEER);
    AT(CUDA_MEMCPY3D_PEER, dstContext);
    SIZE(struct cudaMemcpy3DParms);
    AT(struct cudaMemcpy3DParms, extent);
    SIZE(struct cudaMemcpy3DPeerParms);
    AT(struct cudaMemcpy3DPeerParms, dstDevice);
}

static void batch_sizes(void)
{
    SIZE(CUmemcpyAttributes);
    AT(CUmemcpyAttributes, dstLocHint);
    SIZE(struct cudaMemcpyAttributes);
    SIZE(CUmemcpy3DOperand);
    AT(CUmemcpy3DOperand, op.ptr.locHint);
    AT(CUmemcpy3DOperand, op.array.offset);
    SIZE(struct cudaMemcpy3DOperand);
    SIZE(CUDA_MEMCPY3D_BATCH_OP);
    AT(CUDA_MEMCPY3D_BATCH_OP, srcAccessOrder);
    SIZE(struct cudaMemcpy3DBatchOp);
    SIZE(CUmemDecompressParams);
    AT(CUmemDecompressParams, algo);
}

static void sizes(void)
{
    SIZE(CUuuid);
    SIZE(dim3);
    SIZE(struct cudaExtent);
    SIZE(struct cudaPitchedPtr);
    SIZE(struct cudaMemLocation);
    SIZE(CUmemLocation);
    SIZE(struct cudaMemPoolProps);
    AT(struct cudaMemPoolProps, maxSize);
    SIZE(CUmemPoolProps);
    AT(CUmemPoolProps, maxSize);
    SIZE(struct cudaPointerAttributes);
    AT(struct cudaPointerAttributes, hostPointer);
    SIZE(CUDA_MEMCPY2D);
    AT(CUDA_MEMCPY2D, dstMemoryType);
    AT(CUDA_MEMCPY2D, Height);
    array_sizes();
    batch_sizes();
    SIZE(CUdevprop);
    SIZE(CUlaunchConfig);
    AT(CUlaunchConfig, hStream);
    SIZE(cudaLaunchConfig_t);
    AT(cudaLaunchConfig_t, stream);
    SIZE(struct cudaFuncAttributes);
    AT(struct cudaFuncAttributes, binaryVersion);
    SIZE(struct cudaDeviceProp);
    AT(struct cudaDeviceProp, uuid);
    AT(struct cudaDeviceProp, totalGlobalMem);
    AT(struct cudaDeviceProp, major);
    AT(struct cudaDeviceProp, multiProcessorCount);
    AT(struct cudaDeviceProp, surfaceAlignment);
    AT(struct cudaDeviceProp, unifiedAddressing);
    AT(struct cudaDeviceProp, managedMemory);
    AT(struct cudaDeviceProp, reservedSharedMemPerBlock);
    AT(struct cudaDeviceProp, memoryPoolsSupported);
    AT(struct cudaDeviceProp, hostNumaMultinodeIpcSupported);
}

static void sharing_sizes(void)
{
    SIZE(CUmemGenericAllocationHandle);
    SIZE(CUmemAllocationProp);
    AT(CUmemAllocationProp, location);
    AT(CUmemAllocationProp, allocFlags);
    SIZE(CUmemAccessDesc);
    AT(CUmemAccessDesc, flags);
    SIZE(struct cudaMemAccessDesc);
    SIZE(CUmulticastObjectProp);
    AT(CUmulticastObjectProp, handleTypes);
    SIZE(CUipcMemHandle);
    SIZE(CUipcEventHandle);
    SIZE(cudaIpcMemHandle_t);
    SIZE(CUmemPoolPtrExportData);
    SIZE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
    AT(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);
    AT(struct cudaExternalMemoryHandleDesc, size);
    SIZE(CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
    AT(struct cudaExternalMemoryBufferDesc, flags);
    SIZE(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC);
    AT(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, flags);
    SIZE(struct cudaExternalSemaphoreHandleDesc);
    SIZE(CUdevResource);
    AT(CUdevResource, sm);
    SIZE(CUexecAffinityParam);
    SIZE(CUctxCreateParams);
    AT(CUctxCreateParams, cigParams);
}

static void graph_sizes(void)
{
    SIZE(CUgraphEdgeData);
    SIZE(cudaGraphEdgeData);
    SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS);
    AT(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out);
    SIZE(cudaGraphInstantiateParams);
    AT(cudaGraphInstantiateParams, errNode_out);
    SIZE(CUgraphExecUpdateResultInfo);
    AT(cudaGraphExecUpdateResultInfo, errorFromNode);
    SIZE(CUDA_KERNEL_NODE_PARAMS);
    AT(CUDA_KERNEL_NODE_PARAMS, kern);
    SIZE(CUDA_KERNEL_NODE_PARAMS_v1);
    SIZE(struct cudaKernelNodeParams);
    AT(struct cudaKernelNodeParams, kernelParams);
    SIZE(CUDA_MEMSET_NODE_PARAMS);
    SIZE(CUDA_MEMSET_NODE_PARAMS_v2);
    SIZE(struct cudaMemsetParams);
    AT(struct cudaMemsetParams, width);
    SIZE(CUDA_HOST_NODE_PARAMS);
    SIZE(CUDA_MEM_ALLOC_NODE_PARAMS);
    AT(CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
    SIZE(struct cudaMemAllocNodeParams);
    AT(struct cudaMemAllocNodeParams, bytesize);
    SIZE(CUDA_MEMCPY_NODE_PARAMS);
    AT(CUDA_MEMCPY_NODE_PARAMS, copyParams);
    SIZE(struct cudaMemcpyNodeParams);
    AT(struct cudaMemcpyNodeParams, copyParams);
    SIZE(CUgraphNodeParams);
    AT(CUgraphNodeParams, kernel);
    AT(CUgraphNodeParams, eventWait);
    AT(CUgraphNodeParams, free);
    SIZE(struct cudaGraphNodeParams);
    AT(struct cudaGraphNodeParams, alloc);
    SIZE(CUstreamBatchMemOpParams);
    AT(CUstreamBatchMemOpParams, waitValue.value64);
    AT(CUstreamBatchMemOpParams, waitValue.flags);
    AT(CUstreamBatchMemOpParams, writeValue.alias);
    SIZE(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS);
    AT(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, flags);
    SIZE(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS);
    AT(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, flags);
    SIZE(struct cudaExternalSemaphoreSignalParams);
    SIZE(struct cudaExternalSemaphoreWaitParams);
    SIZE(CUDA_LAUNCH_PARAMS);
    AT(CUDA_LAUNCH_PARAMS, hStream);
}

static void graph_values(void)
{
    VALUE(cudaErrorIllegalState);
    VALUE(CUDA_ERROR_LOSSY_QUERY);
    VALUE(cudaErrorStreamCaptureUnsupported);
    VALUE(cudaErrorStreamCaptureMerge);
    VALUE(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    VALUE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    VALUE(cudaErrorCapturedEvent);
    VALUE(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    VALUE(cudaErrorGraphExecUpdateFailure);
    VALUE(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    VALUE(cudaStreamCaptureModeRelaxed);
    VALUE(CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    VALUE(cudaStreamSetCaptureDependencies);
    VALUE(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    VALUE(cudaGraphNodeTypeMemFree);
    VALUE(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
    VALUE(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    VALUE(cudaGraphMemAttrReservedMemCurrent);
    VALUE(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
    VALUE(cudaGraphInstantiateFlagAutoFreeOnLaunch);
    VALUE(CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    VALUE(CU_STREAM_WAIT_VALUE_NOR);
    VALUE(CU_STREAM_WAIT_VALUE_FLUSH);
    VALUE(CU_STREAM_MEM_OP_BARRIER);
    VALUE(CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES);
    VALUE(CU_EVENT_RECORD_EXTERNAL);
    VALUE(cudaEventWaitExternal);
}

static void values(void)
{
    VALUE(cudaErrorMemoryAllocation);
    VALUE(cudaErrorInitializationError);
    VALUE(cudaErrorInvalidMemcpyDirection);
    VALUE(cudaErrorInsufficientDriver);
    VALUE(cudaErrorInvalidResourceHandle);
    VALUE(cudaErrorSymbolNotFound);
    VALUE(cudaErrorNotReady);
    VALUE(cudaErrorIllegalAddress);
    VALUE(cudaErrorPeerAccessAlreadyEnabled);
    VALUE(cudaErrorContextIsDestroyed);
    VALUE(cudaErrorHostMemoryAlreadyRegistered);
    VALUE(cudaErrorHostMemoryNotRegistered);
    VALUE(cudaErrorLaunchFailure);
    VALUE(cudaErrorNotPermitted);
    VALUE(cudaErrorNotSupported);
    VALUE(CUDA_ERROR_OUT_OF_MEMORY);
    VALUE(CUDA_ERROR_NOT_INITIALIZED);
    VALUE(CUDA_ERROR_INVALID_CONTEXT);
    VALUE(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    VALUE(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    VALUE(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    VALUE(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    VALUE(cudaDriverEntryPointVersionNotSufficent);
    VALUE(cudaMemcpyDefault);
    VALUE(CU_MEMORYTYPE_UNIFIED);
    VALUE(cudaMemoryTypeManaged);
    VALUE(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
    VALUE(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE);
    VALUE(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
    VALUE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
    VALUE(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
    VALUE(cudaDevAttrMemoryPoolsSupported);
    VALUE(cudaLimitMallocHeapSize);
    VALUE(CU_STREAM_NON_BLOCKING);
    VALUE(CU_EVENT_DISABLE_TIMING);
    VALUE(CU_MEMHOSTALLOC_WRITECOMBINED);
    VALUE(cudaHostAllocMapped);
    VALUE(cudaEventDisableTiming);
    VALUE((uintptr_t)cudaStreamLegacy);
    VALUE((uintptr_t)CU_STREAM_PER_THREAD);
    VALUE(cudaMemLocationTypeHost);
    VALUE(CU_MEM_ALLOCATION_TYPE_PINNED);
    VALUE(cudaMemAllocationTypePinned);
    VALUE(CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    VALUE(cudaMemPoolAttrReleaseThreshold);
    VALUE(cudaFuncAttributeMaxDynamicSharedMemorySize);
    VALUE(CUDA_ERROR_MAP_FAILED);
    VALUE(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    VALUE(CUDA_ERROR_OPERATING_SYSTEM);
    VALUE(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    VALUE(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    VALUE(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
    VALUE(CU_MEM_ALLOCATION_TYPE_MANAGED);
    VALUE(CU_MEM_HANDLE_TYPE_FABRIC);
    VALUE(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    VALUE(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
    VALUE(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID);
    VALUE(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE);
    VALUE(CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD);
    VALUE(CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD);
    VALUE(CU_EVENT_INTERPROCESS);
    VALUE(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    VALUE(CU_GREEN_CTX_DEFAULT_STREAM);
    VALUE(CU_DEV_RESOURCE_TYPE_SM);
    VALUE(CU_DEVICE_INVALID);
    VALUE(cudaErrorInvalidPitchValue);
    VALUE(cudaErrorInvalidSymbol);
    VALUE(CU_AD_FORMAT_FLOAT);
    VALUE(CU_AD_FORMAT_SNORM_INT16X4);
    VALUE(CU_AD_FORMAT_UNORM_INT8X1);
    VALUE(CUDA_ARRAY3D_DEFERRED_MAPPING);
    VALUE(cudaArrayTextureGather);
    VALUE(cudaChannelFormatKindNone);
    VALUE(cudaChannelFormatKindUnsignedNormalized8X1);
    VALUE(cudaChannelFormatKindSignedNormalized16X4);
    VALUE(CU_MEM_ADVISE_UNSET_ACCESSED_BY);
    VALUE(cudaMemAdviseSetAccessedBy);
    VALUE(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
    VALUE(CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
    VALUE(cudaMemcpySrcAccessOrderDuringApiCall);
    VALUE(CU_MEMCPY_OPERAND_TYPE_ARRAY);
    VALUE(CU_MEM_DECOMPRESS_ALGORITHM_LZ4);
}

int main(void)
{
    sizes();
    sharing_sizes();
    values();
    graph_sizes();
    graph_values();
    return 0;
}
