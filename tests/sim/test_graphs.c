/* Stream capture, graphs and their memory, values in memory. */
#include "fixtures/simcuda/include/simcuda.h"
#include "tests/sim/scenario.h"

#include <pthread.h>

static cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaGraphExec_t instantiate(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    return exec;
}

static size_t nodes_of(cudaGraph_t graph)
{
    size_t count = 0;
    OK(cudaGraphGetNodes(graph, NULL, &count));
    return count;
}

static enum cudaGraphNodeType type_of(cudaGraph_t graph, size_t index)
{
    cudaGraphNode_t nodes[16];
    enum cudaGraphNodeType type;
    size_t count = 16;
    OK(cudaGraphGetNodes(graph, nodes, &count));
    CHECK(index < count);
    OK(cudaGraphNodeGetType(nodes[index], &type));
    return type;
}

static enum cudaStreamCaptureStatus status_of(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status;
    OK(cudaStreamIsCapturing(stream, &status));
    return status;
}

static size_t used(void)
{
    size_t own, other, total;
    OK(simcudaMemoryUsed(0, &own, &other, &total));
    return own;
}

/* ------------------------------------------------------------------ what is captured */

static void count(void *counter)
{
    ++*(int *)counter;
}

/* Nothing happens before the launch; each launch does everything, with the data at that time. */
static void capture_and_replay(void)
{
    unsigned char *host, *device, back[64] = {0};
    int calls = 0;
    cudaGraph_t graph;
    OK(cudaMallocHost((void **)&host, 64));
    OK(cudaMalloc((void **)&device, 128));
    cudaStream_t stream = new_stream();
    memset(host, 1, 64);
    OK(cudaMemset(device, 9, 128));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_EQ(status_of(stream), cudaStreamCaptureStatusActive);
    OK(cudaMemcpyAsync(device, host, 64, cudaMemcpyHostToDevice, stream));
    OK(cudaMemsetAsync(device + 64, 5, 64, stream));
    OK(cudaLaunchKernel((const void *)capture_and_replay, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, stream));
    OK(cudaLaunchHostFunc(stream, count, &calls));
    OK(cudaStreamEndCapture(stream, &graph));
    CHECK_EQ(status_of(stream), cudaStreamCaptureStatusNone);
    CHECK_EQ(nodes_of(graph), 4);
    CHECK_EQ(type_of(graph, 0), cudaGraphNodeTypeMemcpy);
    CHECK_EQ(type_of(graph, 1), cudaGraphNodeTypeMemset);
    CHECK_EQ(type_of(graph, 2), cudaGraphNodeTypeKernel);
    CHECK_EQ(type_of(graph, 3), cudaGraphNodeTypeHost);
    size_t edges = 0;
    OK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    CHECK_EQ(edges, 3);
    OK(cudaMemcpy(back, device, 64, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 9 && calls == 0);
    cudaGraphExec_t exec = instantiate(graph);
    OK(cudaGraphDestroy(graph));
    for (int round = 1; round <= 3; round++) {
        memset(host, round, 64);
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        OK(cudaMemcpy(back, device, 64, cudaMemcpyDeviceToHost));
        CHECK(back[0] == round && back[63] == round && calls == round);
    }
    OK(cudaMemcpy(back, device + 64, 64, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 5 && back[63] == 5);
    OK(cudaGraphExecDestroy(exec));
    CHECK_EQ(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
}

/* Like torch.cuda.graph: relaxed mode around cudaMalloc inside, side streams joined by events. */
static void fork_and_join(void)
{
    cudaStream_t origin = new_stream(), side = new_stream();
    cudaEvent_t forked, joined;
    enum cudaStreamCaptureStatus status;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    unsigned long long id, side_id;
    const cudaGraphNode_t *deps;
    size_t dep_count;
    cudaGraph_t graph, seen;
    char *memory, back[2] = {0};
    OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    OK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal));
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    OK(cudaMalloc((void **)&memory, 2));
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQ(mode, cudaStreamCaptureModeRelaxed);
    OK(cudaMemsetAsync(memory, 1, 1, origin));
    OK(cudaEventRecord(forked, origin));
    OK(cudaStreamWaitEvent(side, forked, 0));
    CHECK_EQ(status_of(side), cudaStreamCaptureStatusActive);
    OK(cudaMemsetAsync(memory + 1, 2, 1, side));
    OK(cudaEventRecord(joined, side));
    OK(cudaStreamWaitEvent(origin, joined, 0));
    OK(cudaStreamGetCaptureInfo(origin, &status, &id, &seen, &deps, NULL, &dep_count));
    CHECK(status == cudaStreamCaptureStatusActive && dep_count == 2);
    OK(cudaStreamGetCaptureInfo(side, &status, &side_id, NULL, NULL, NULL, NULL));
    CHECK(id == side_id && id != 0);
    OK(cudaStreamEndCapture(origin, &graph));
    CHECK(graph == seen && nodes_of(graph) == 2);
    CHECK_EQ(status_of(side), cudaStreamCaptureStatusNone);
    OK(cudaGraphLaunch(instantiate(graph), origin));
    OK(cudaStreamSynchronize(origin));
    OK(cudaMemcpy(back, memory, 2, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 1 && back[1] == 2);
    /* The event marks a place in a graph. */
    CHECK_EQ(cudaEventQuery(joined), cudaErrorCapturedEvent);
    CHECK_EQ(cudaStreamWaitEvent(origin, joined, 0), cudaErrorCapturedEvent);
    OK(cudaEventRecord(joined, origin));
    OK(cudaEventSynchronize(joined));
}

/* With the driver's functions, in the per-thread default stream, which a plain 0 means here. */
static void per_thread_stream(void)
{
    CUstreamCaptureStatus status;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr memory;
    uint32_t back = 0;
    OK(cudaFree(NULL)); /* a context */
    OK(cuMemAlloc_v2(&memory, 4));
    OK(cuStreamBeginCapture_ptsz(NULL)); /* global mode, in its first version */
    OK(cuStreamIsCapturing_ptsz(NULL, &status));
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status));
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuMemsetD32Async_ptsz(memory, 0xabcdef01, 1, NULL));
    OK(cuStreamEndCapture_ptsz(NULL, &graph));
    CHECK_EQ(cuStreamBeginCapture(NULL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuGraphInstantiate(&exec, graph, NULL, NULL, 0));
    OK(cuGraphLaunch_ptsz(exec, NULL));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuMemcpyDtoH_v2(&back, memory, 4));
    CHECK_EQ(back, 0xabcdef01);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

/* A context that is destroyed ends captures and frees the memory of graphs. */
static void reset_while_capturing(void)
{
    cudaGraph_t graph;
    void *memory;
    cudaStream_t stream = new_stream();
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    OK(cudaMallocAsync(&memory, MIB, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphLaunch(instantiate(graph), stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaDeviceReset());
    CHECK_EQ(cudaFree(memory), cudaErrorInvalidValue);
    OK(cudaMalloc(&memory, MIB));
    uint64_t value = 1;
    OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &value));
    CHECK_EQ(value, 0);
}

static void test_replay(void **state)
{
    scenario(per_thread_stream, NULL);
    scenario(reset_while_capturing, NULL);
    scenario(capture_and_replay, NULL);
    scenario(fork_and_join, NULL);
}

/* ------------------------------------------------------------------ what capture forbids */

/* Ends a capture that must be invalid. */
static void end_invalid(cudaStream_t stream)
{
    cudaGraph_t graph = (cudaGraph_t)1;
    CHECK_EQ(status_of(stream), cudaStreamCaptureStatusInvalidated);
    CHECK_EQ(cudaMemsetAsync(NULL, 0, 0, stream), cudaSuccess); /* nothing to capture */
    CHECK_EQ(simcudaLaunchBusy(stream, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    CHECK(graph == NULL);
    CHECK_EQ(status_of(stream), cudaStreamCaptureStatusNone);
    OK(simcudaLaunchBusy(stream, 1));
}

static void *malloc_beside(void *expected)
{
    void *memory;
    CHECK_EQ(cudaMalloc(&memory, 1), *(cudaError_t *)expected);
    return NULL;
}

static void in_other_thread(cudaError_t expected)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, malloc_beside, &expected), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void unsafe_calls(void)
{
    void *memory;
    cudaEvent_t event;
    cudaGraph_t graph;
    cudaStream_t stream = new_stream(), other = new_stream();
    OK(cudaMalloc(&memory, 64));
    OK(cudaEventCreate(&event));
    OK(cudaEventRecord(event, other));
#define INVALIDATES(call, error)                                         \
    do {                                                                 \
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)); \
        CHECK_EQ(call, error);                                           \
        end_invalid(stream);                                             \
    } while (0)
    INVALIDATES(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    INVALIDATES(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
    INVALIDATES(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    INVALIDATES(cudaMalloc(&memory, 1), cudaErrorStreamCaptureUnsupported);
    INVALIDATES(cudaFree(memory), cudaErrorStreamCaptureUnsupported);
    INVALIDATES(cudaMemcpy(memory, "x", 1, cudaMemcpyHostToDevice), cudaErrorStreamCaptureUnsupported);
    INVALIDATES(cudaEventQuery(event), cudaErrorStreamCaptureUnsupported);
    INVALIDATES(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
    INVALIDATES(cudaFreeAsync(memory, stream), cudaErrorInvalidValue); /* not memory of a graph */
    OK(cudaFree(memory));

    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    in_other_thread(cudaErrorStreamCaptureUnsupported);
    end_invalid(stream);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    in_other_thread(cudaSuccess);
    CHECK_EQ(status_of(stream), cudaStreamCaptureStatusActive);
    CHECK_EQ(cudaMalloc(&memory, 1), cudaErrorStreamCaptureUnsupported);
    end_invalid(stream);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    OK(cudaMalloc(&memory, 1));
    OK(cudaEventQuery(event));
    in_other_thread(cudaSuccess);
    CHECK_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    end_invalid(stream);

    CHECK_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
    CHECK_EQ(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeRelaxed), cudaErrorStreamCaptureUnsupported);
    OK(cudaStreamEndCapture(stream, &graph));
    CHECK_EQ(nodes_of(graph), 0);
    OK(cudaGraphLaunch(instantiate(graph), stream));
    OK(cudaStreamSynchronize(stream));
}

/* The legacy stream would depend on blocking streams that capture, but not on others. */
static void legacy_stream(void)
{
    cudaStream_t blocking, free = new_stream();
    enum cudaStreamCaptureStatus status;
    cudaGraph_t graph;
    char *memory;
    OK(cudaMalloc((void **)&memory, 1));
    OK(cudaStreamCreate(&blocking));
    OK(cudaStreamBeginCapture(free, cudaStreamCaptureModeRelaxed));
    OK(cudaMemsetAsync(memory, 0, 1, NULL));
    OK(cudaStreamSynchronize(NULL));
    OK(cudaStreamEndCapture(free, &graph));
    OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
    CHECK_EQ(cudaStreamIsCapturing(NULL, &status), cudaErrorStreamCaptureImplicit);
    CHECK_EQ(status_of(blocking), cudaStreamCaptureStatusActive);
    CHECK_EQ(cudaMemsetAsync(memory, 0, 1, NULL), cudaErrorStreamCaptureImplicit);
    end_invalid(blocking);
    OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
    CHECK_EQ(cudaStreamSynchronize(NULL), cudaErrorStreamCaptureImplicit);
    end_invalid(blocking);
    OK(cudaMemsetAsync(memory, 0, 1, NULL));
}

static void *end_elsewhere(void *stream)
{
    cudaGraph_t graph;
    CHECK_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureWrongThread);
    return NULL;
}

static void sequences(void)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t event;
    cudaGraph_t graph;
    pthread_t thread;
    OK(cudaEventCreate(&event));
    /* Not joined. */
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    OK(cudaEventRecord(event, a));
    OK(cudaStreamWaitEvent(b, event, 0));
    OK(simcudaLaunchBusy(b, 1));
    CHECK_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
    CHECK(graph == NULL);
    OK(cudaStreamSynchronize(b));
    /* Ended in the wrong stream, then the wrong thread. */
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    OK(cudaEventRecord(event, a));
    OK(cudaStreamWaitEvent(b, event, 0));
    CHECK_EQ(pthread_create(&thread, NULL, end_elsewhere, a), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(status_of(a), cudaStreamCaptureStatusActive);
    CHECK_EQ(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
    end_invalid(a);
    /* Two captures cannot be joined. */
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    OK(cudaStreamBeginCapture(b, cudaStreamCaptureModeGlobal));
    OK(cudaEventRecord(event, a));
    CHECK_EQ(cudaStreamWaitEvent(b, event, 0), cudaErrorStreamCaptureMerge);
    end_invalid(a);
    end_invalid(b);
    /* Destroying a stream ends its capture. */
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    OK(cudaStreamDestroy(a));
    void *memory;
    OK(cudaMalloc(&memory, 1));
}

static void test_forbidden(void **state)
{
    scenario(unsafe_calls, NULL);
    scenario(legacy_stream, NULL);
    scenario(sequences, NULL);
}

/* ------------------------------------------------------------------ memory of graphs */

static uint64_t amount(enum cudaGraphMemAttributeType attribute)
{
    uint64_t value = 0;
    OK(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static void allocation_nodes(void)
{
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    char *memory, back = 0;
    OK(cudaStreamSynchronize(stream));
    size_t before = used();
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync((void **)&memory, 3 * MIB, stream));
    OK(cudaMemsetAsync(memory, 7, 3 * MIB, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    CHECK_EQ(type_of(graph, 0), cudaGraphNodeTypeMemAlloc);
    CHECK_EQ(used(), before); /* an address, and no memory yet */
    CHECK_EQ(cudaFree(memory), cudaErrorInvalidValue);
    cudaGraphExec_t exec = instantiate(graph), second;
    CHECK_EQ(cudaGraphInstantiate(&second, graph, 0), cudaErrorInvalidValue); /* one at a time */
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(used(), before + 4 * MIB);
    CHECK_EQ(amount(cudaGraphMemAttrUsedMemCurrent), 4 * MIB);
    OK(cudaMemcpy(&back, memory + 3 * MIB - 1, 1, cudaMemcpyDeviceToHost));
    CHECK_EQ(back, 7);
    /* It stays until it is freed; the graph cannot allocate it again before. */
    CHECK_EQ(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
    OK(cudaFreeAsync(memory, stream));
    CHECK_EQ(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
    CHECK_EQ(amount(cudaGraphMemAttrUsedMemCurrent), 0);
    CHECK_EQ(used(), before + 4 * MIB); /* kept for the next launch … */
    OK(cudaGraphLaunch(exec, stream));
    CHECK_EQ(used(), before + 4 * MIB);
    OK(cudaFree(memory));
    OK(cudaDeviceGraphMemTrim(0)); /* … until it is trimmed */
    CHECK_EQ(used(), before);
    CHECK_EQ(amount(cudaGraphMemAttrReservedMemCurrent), 0);
    CHECK_EQ(amount(cudaGraphMemAttrReservedMemHigh), 4 * MIB);
    uint64_t zero = 0;
    OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &zero));
    CHECK_EQ(amount(cudaGraphMemAttrReservedMemHigh), 0);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphInstantiate(&second, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    OK(cudaGraphLaunch(second, stream));
    OK(cudaGraphLaunch(second, stream)); /* frees what the first allocated */
    CHECK_EQ(amount(cudaGraphMemAttrUsedMemCurrent), 4 * MIB);
    /* What is still allocated remains after graph and executable graph are destroyed. */
    OK(cudaGraphExecDestroy(second));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemset(memory, 1, 3 * MIB));
    OK(cudaFree(memory));
    CHECK_EQ(cudaFree(memory), cudaErrorInvalidValue);
    OK(cudaDeviceGraphMemTrim(0));
    CHECK_EQ(used(), before);
}

static void freed_in_graph(void)
{
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    char *first, *second;
    OK(cudaStreamSynchronize(stream));
    size_t before = used();
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync((void **)&first, 2 * MIB, stream));
    OK(cudaFreeAsync(first, stream));
    OK(cudaMallocAsync((void **)&second, 2 * MIB, stream));
    OK(cudaMemsetAsync(second, 1, 2 * MIB, stream));
    OK(cudaFreeAsync(second, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    CHECK(first != second && nodes_of(graph) == 5);
    cudaGraph_t clone;
    CHECK_EQ(cudaGraphClone(&clone, graph), cudaErrorNotSupported);
    cudaGraphExec_t exec = instantiate(graph);
    for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(used(), before + 2 * MIB); /* the second reuses what the first freed */
    CHECK_EQ(amount(cudaGraphMemAttrUsedMemHigh), 2 * MIB);
}

/* Out of memory at the launch changes nothing. */
static void launch_out_of_memory(void)
{
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    void *first, *second, *rest;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync(&first, 20 * MIB, stream));
    OK(cudaMallocAsync(&second, 20 * MIB, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec = instantiate(graph);
    OK(cudaMalloc(&rest, 40 * MIB));
    CHECK_EQ(cudaGraphLaunch(exec, stream), cudaErrorMemoryAllocation);
    CHECK_EQ(amount(cudaGraphMemAttrUsedMemCurrent), 0);
    OK(cudaFree(rest));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(amount(cudaGraphMemAttrUsedMemCurrent), 40 * MIB);
}

static void test_memory(void **state)
{
    scenario(allocation_nodes, NULL);
    scenario(freed_in_graph, NULL);
    scenario(launch_out_of_memory, "SIMCUDA_MEMORY=64MiB", "SIMCUDA_CONTEXT=2MiB", NULL);
}

/* ------------------------------------------------------------------ graphs built by hand */

static void by_hand(void)
{
    cudaGraph_t graph, child, clone;
    cudaGraphNode_t copy, set, empty, inner, found, from[4], to[4];
    cudaStream_t stream = new_stream();
    char *device, host[4] = "abc", back[4] = {0};
    size_t edges = 4;
    OK(cudaMalloc((void **)&device, 8));
    OK(cudaGraphCreate(&graph, 0));
    struct cudaMemsetParams params = {.dst = device, .value = 'z', .elementSize = 1, .width = 4, .height = 1};
    OK(cudaGraphAddMemcpyNode1D(&copy, graph, NULL, 0, device, host, 4, cudaMemcpyHostToDevice));
    OK(cudaGraphAddMemsetNode(&set, graph, NULL, 0, &params));
    OK(cudaGraphAddEmptyNode(&empty, graph, &copy, 1));
    /* The set comes first although it was added second. */
    OK(cudaGraphAddDependencies(graph, &set, &copy, NULL, 1));
    OK(cudaGraphGetEdges(graph, from, to, NULL, &edges));
    CHECK(edges == 2 && from[0] == set && to[0] == copy && from[1] == copy && to[1] == empty);
    OK(cudaGraphLaunch(instantiate(graph), stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(back, device, 4, cudaMemcpyDeviceToHost));
    CHECK_EQ(strcmp(back, "abc"), 0);
    char path[] = "/tmp/simcuda-dot-XXXXXX", dot[256] = "";
    int file = mkstemp(path);
    CHECK(file >= 0);
    OK(cudaGraphDebugDotPrint(graph, path, 0));
    CHECK(read(file, dot, sizeof dot - 1) > 0);
    CHECK(strstr(dot, "MEMCPY") != NULL && strstr(dot, "node_1 -> node_0;") != NULL);
    close(file);
    unlink(path);
    /* A child graph is a copy made at that time. */
    OK(cudaGraphCreate(&child, 0));
    params.dst = device + 4;
    OK(cudaGraphAddMemsetNode(&inner, child, NULL, 0, &params));
    OK(cudaGraphAddChildGraphNode(&found, graph, &empty, 1, child));
    OK(cudaGraphDestroy(child));
    OK(cudaGraphClone(&clone, graph));
    OK(cudaGraphNodeFindInClone(&found, copy, clone));
    CHECK(found != copy);
    OK(cudaGraphDestroyNode(empty));
    CHECK(nodes_of(graph) == 3 && nodes_of(clone) == 4);
    OK(cudaGraphLaunch(instantiate(clone), stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(back, device + 4, 4, cudaMemcpyDeviceToHost));
    CHECK_EQ(back[3], 'z');
    /* A graph with a cycle cannot run. */
    cudaGraphExec_t exec;
    OK(cudaGraphAddDependencies(graph, &copy, &set, NULL, 1));
    CHECK_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaErrorInvalidValue);
    cudaGraphInstantiateParams why = {0};
    CHECK_EQ(cudaGraphInstantiateWithParams(&exec, graph, &why), cudaErrorInvalidValue);
    CHECK_EQ(why.result_out, cudaGraphInstantiateInvalidStructure);
    OK(cudaGraphRemoveDependencies(graph, &copy, &set, NULL, 1));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    CHECK_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
}

static cudaGraph_t captured_set(cudaStream_t stream, char *memory, int value, int times)
{
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < times; i++) OK(cudaMemsetAsync(memory, value, 1, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

static void update(void)
{
    cudaStream_t stream = new_stream();
    cudaGraphExecUpdateResultInfo info;
    char *memory, back;
    OK(cudaMalloc((void **)&memory, 1));
    cudaGraphExec_t exec = instantiate(captured_set(stream, memory, 1, 2));
    OK(cudaGraphExecUpdate(exec, captured_set(stream, memory, 2, 2), &info));
    CHECK_EQ(info.result, cudaGraphExecUpdateSuccess);
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(&back, memory, 1, cudaMemcpyDeviceToHost));
    CHECK_EQ(back, 2);
    CHECK_EQ(cudaGraphExecUpdate(exec, captured_set(stream, memory, 3, 1), &info), cudaErrorGraphExecUpdateFailure);
    CHECK_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    OK(cudaMemsetAsync(memory, 1, 1, stream));
    OK(cudaGraphLaunch(exec, stream)); /* a child */
    OK(cudaStreamEndCapture(stream, &graph));
    CHECK_EQ(type_of(graph, 1), cudaGraphNodeTypeGraph);
    CHECK_EQ(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
    CHECK_EQ(info.result, cudaGraphExecUpdateErrorNodeTypeChanged);
    OK(cudaGraphLaunch(instantiate(graph), stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(&back, memory, 1, cudaMemcpyDeviceToHost));
    CHECK_EQ(back, 2);
}

/* Events from outside, recorded and waited for by a graph, and capture into an existing graph. */
static void external_events(void)
{
    cudaStream_t stream = new_stream(), other = new_stream();
    cudaEvent_t before, after;
    cudaGraph_t graph, same;
    cudaGraphNode_t empty;
    int64_t now;
    OK(cudaEventCreate(&before));
    OK(cudaEventCreate(&after));
    CHECK_EQ(cudaEventRecordWithFlags(before, stream, cudaEventRecordExternal), cudaErrorInvalidValue);
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddEmptyNode(&empty, graph, NULL, 0));
    OK(cudaStreamBeginCaptureToGraph(stream, graph, &empty, NULL, 1, cudaStreamCaptureModeGlobal));
    OK(cudaStreamWaitEvent(stream, before, cudaEventWaitExternal));
    OK(simcudaLaunchBusy(stream, 100));
    OK(cudaEventRecordWithFlags(after, stream, cudaEventRecordExternal));
    OK(cudaStreamEndCapture(stream, &same));
    CHECK(same == graph && nodes_of(graph) == 4);
    CHECK_EQ(type_of(graph, 1), cudaGraphNodeTypeWaitEvent);
    CHECK_EQ(type_of(graph, 3), cudaGraphNodeTypeEventRecord);
    cudaGraphExec_t exec = instantiate(graph);
    OK(simcudaLaunchBusy(other, 1000));
    OK(cudaEventRecord(before, other));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaEventSynchronize(after));
    OK((int)simcudaNow(&now));
    CHECK_EQ(now, 1100 * MICROSECOND);
}

static void test_building(void **state)
{
    scenario(by_hand, NULL);
    scenario(update, NULL);
    scenario(external_events, "SIMCUDA_CLOCK=virtual", NULL);
}

/* ------------------------------------------------------------------ values and semaphores */

static void values(void)
{
    cudaStream_t waiting = new_stream(), writing = new_stream();
    uint32_t *word;
    CUdeviceptr wide;
    uint64_t read = 0;
    OK(cudaMallocHost((void **)&word, 4));
    *word = 0;
    OK(cuMemAlloc_v2(&wide, 8));
    OK(cuMemsetD32_v2(wide, 0, 2));
    OK(cuStreamWaitValue32_v2(waiting, (uintptr_t)word, 3, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWriteValue64_v2(waiting, wide, 42, 0));
    CHECK_EQ(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
    OK(cuMemcpyDtoH_v2(&read, wide, 8));
    CHECK_EQ(read, 0);
    __atomic_store_n(word, 2, __ATOMIC_RELEASE);
    CHECK_EQ(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
    OK(cuStreamWriteValue32(writing, (uintptr_t)word, 3, 0));
    OK(cuStreamSynchronize(waiting));
    OK(cuMemcpyDtoH_v2(&read, wide, 8));
    CHECK_EQ(read, 42);
    CHECK_EQ(cuStreamWriteValue64(waiting, wide + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamWriteValue32(waiting, (uintptr_t)&read, 1, 0), CUDA_ERROR_INVALID_VALUE);
    /* A batch is one operation, and one node. */
    CUstreamBatchMemOpParams batch[2] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = wide}},
        {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = wide}}};
    batch[0].writeValue.value64 = 6;
    batch[1].waitValue.value = 2;
    batch[1].waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(waiting, cudaStreamCaptureModeRelaxed));
    OK(cuStreamBatchMemOp_v2(waiting, 2, batch, 0));
    OK(cudaStreamEndCapture(waiting, &graph));
    CHECK_EQ(nodes_of(graph), 1);
    cudaGraphExec_t exec = instantiate(graph);
    for (int i = 0; i < 2; i++) OK(cudaGraphLaunch(exec, waiting));
    OK(cuStreamSynchronize(waiting));
    OK(cuMemcpyDtoH_v2(&read, wide, 8));
    CHECK_EQ(read, 6);
}

static void test_values(void **state)
{
    scenario(values, NULL);
    scenario(values, "SIMCUDA_CLOCK=virtual", NULL);
}

/* ------------------------------------------------------------------ libraries, old launches */

static void launches(void)
{
    CUlibrary library;
    CUlibrary again;
    CUkernel kernel;
    CUfunction function;
    CUmodule module;
    CUlinkState link;
    void *image;
    size_t size;
    const char *name;
    int64_t now;
    OK(cudaFree(NULL)); /* a context */
    OK(cuLinkCreate_v2(0, NULL, NULL, &link));
    OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, "x", 2, "x", 0, NULL, NULL));
    OK(cuLinkComplete(link, &image, &size));
    OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLinkDestroy(link));
    CHECK_EQ(cuLinkDestroy(link), CUDA_ERROR_INVALID_HANDLE);
    OK(cuLibraryGetKernel(&kernel, library, "one"));
    OK(cuKernelGetName(&name, kernel));
    CHECK_EQ(strcmp(name, "one"), 0);
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuKernelGetLibrary(&again, kernel));
    CHECK(again == library);
    OK(cuLibraryGetModule(&module, library));
    CHECK_EQ(cuLaunch(function), CUDA_ERROR_INVALID_VALUE); /* a block of unknown shape */
    OK(cuFuncSetBlockShape(function, 32, 1, 1));
    OK(cuLaunch(function));
    OK(cuLaunchGrid(function, 2, 2));
    OK(cuLaunchGridAsync(function, 2, 2, NULL));
    OK(cudaDeviceSynchronize());
    OK((int)simcudaNow(&now));
    CHECK_EQ(now, 15 * MICROSECOND);
    OK(cuLibraryUnload(library));
    CHECK_EQ(cuLaunch(function), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
}

static void test_launches(void **state)
{
    scenario(launches, "SIMCUDA_CLOCK=virtual", NULL);
}

CASES(test_replay, test_forbidden, test_memory, test_building, test_values, test_launches)
