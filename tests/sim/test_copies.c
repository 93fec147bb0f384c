/* Copies with a shape between linear memory, peers, batches, and hints about managed memory: the bytes that are copied,
 * which calls wait, what is refused. */
#include "fixtures/simcuda/include/simcuda.h"
#include "tests/sim/scenario.h"

#include <dlfcn.h>

#define VIRTUAL "SIMCUDA_CLOCK=virtual", "SIMCUDA_PCIE=1GB/s", "SIMCUDA_HBM=100GB/s"

/* The model's time for a megabyte (10^6 bytes) at these bandwidths. */
#define MEGABYTE ((size_t)1000000)
#define PINNED_MS (4 * MICROSECOND + 1000 * MICROSECOND)
#define PAGEABLE_MS (4 * MICROSECOND + 2000 * MICROSECOND)
#define LOCAL_MS (2 * MICROSECOND + 20 * MICROSECOND)

static int64_t now(void)
{
    int64_t time;
    OK(simcudaNow(&time));
    return time;
}

#define TIME_OF(call)            \
    ({                           \
        int64_t before_ = now(); \
        OK(call);                \
        now() - before_;         \
    })

static char *device, *device2, *pinned, *pageable;

static void get_memory(void)
{
    OK(cudaMalloc((void **)&device, MEGABYTE));
    OK(cudaMalloc((void **)&device2, MEGABYTE));
    OK(cudaMallocHost((void **)&pinned, MEGABYTE));
    pageable = malloc(MEGABYTE);
    for (size_t i = 0; i < MEGABYTE; i++) pageable[i] = pinned[i] = (char)(i * 7 + i / 251);
}

/* ------------------------------------------------------------------ three dimensions */

static void shapes(void)
{
    char back[100];
    get_memory();
    /* 4 x 3 x 2 bytes at (1, 2, 1) of layers of 10 x 8, to (0, 0, 0) of packed ones. */
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = pinned,
                          .srcXInBytes = 1,
                          .srcY = 2,
                          .srcZ = 1,
                          .srcPitch = 10,
                          .srcHeight = 8,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = (uintptr_t)device,
                          .dstPitch = 4,
                          .dstHeight = 3,
                          .WidthInBytes = 4,
                          .Height = 3,
                          .Depth = 2};
    OK(cuMemcpy3D_v2(&copy));
    OK(cudaMemcpy(back, device, 24, cudaMemcpyDeviceToHost));
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 3; y++) OK(memcmp(back + z * 12 + y * 4, pinned + ((1 + z) * 8 + 2 + y) * 10 + 1, 4));
    copy.srcPitch = 4; /* smaller than a row and its offset */
    CHECK_EQ(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcPitch = 10;
    copy.srcHeight = 4;
    CHECK_EQ(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcHeight = 8;
    copy.srcLOD = 1;
    CHECK_EQ(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcLOD = 0;
    copy.dstDevice += MEGABYTE - 23; /* its last byte is one too far */
    CHECK_EQ(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.dstDevice--;
    OK(cuMemcpy3D_v2(&copy));
    copy.dstHeight = SIZE_MAX / 2;
    CHECK_EQ(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcMemoryType = (CUmemorytype)9;
    CHECK_EQ(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.Depth = 0;
    OK(cuMemcpy3D_v2(&copy));
    CHECK_EQ(cuMemcpy3D_v2(NULL), CUDA_ERROR_INVALID_VALUE);
}

static void test_shapes(void **state)
{
    scenario(shapes, NULL);
}

/* The shape of a copy does not change which calls wait. */
static void waiting(void)
{
    cudaStream_t stream;
    get_memory();
    OK(cudaStreamCreate(&stream));
    struct cudaMemcpy3DParms p = {.srcPtr = {pinned, 1000, 1000, 100},
                                  .dstPtr = {device, 1000, 1000, 100},
                                  .extent = {1000, 100, 10},
                                  .kind = cudaMemcpyHostToDevice};
    CHECK_EQ(TIME_OF(cudaMemcpy3D(&p)), PINNED_MS);
    CHECK_EQ(TIME_OF(cudaMemcpy3DAsync(&p, stream)), 0);
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(stream)), PINNED_MS);
    p.srcPtr.ptr = pageable;
    CHECK_EQ(TIME_OF(cudaMemcpy3D(&p)), PAGEABLE_MS);
    CHECK_EQ(TIME_OF(cudaMemcpy3DAsync(&p, stream)), PAGEABLE_MS);
    p.srcPtr.ptr = device2;
    p.kind = cudaMemcpyDeviceToDevice;
    CHECK_EQ(TIME_OF(cudaMemcpy3D(&p)), 0);
    CHECK_EQ(TIME_OF(cudaDeviceSynchronize()), LOCAL_MS);
    struct cudaChannelFormatDesc desc = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    cudaArray_t array;
    OK(cudaMallocArray(&array, &desc, 1000, 1000, 0));
    CHECK_EQ(TIME_OF(cudaMemcpy2DToArray(array, 0, 0, pinned, 1000, 1000, 1000, cudaMemcpyHostToDevice)), PINNED_MS);
    CHECK_EQ(TIME_OF(cudaMemcpy2DFromArrayAsync(pinned, 1000, array, 0, 0, 1000, 1000, cudaMemcpyDeviceToHost, stream)),
             0);
    CHECK_EQ(TIME_OF(cudaFreeArray(array)), PINNED_MS); /* waits for operations that still use it */
    CHECK_EQ(
        TIME_OF(cudaMemset3D((struct cudaPitchedPtr){device, 1000, 1000, 100}, 5, (struct cudaExtent){1000, 100, 10})),
        0);
    CHECK_EQ(TIME_OF(cudaDeviceSynchronize()), 2 * MICROSECOND + 10 * MICROSECOND);
    /* A copy with rows and slices is packed when it is staged; the caller may then reuse its memory. */
    char text[] = "ab..cd..ef..gh..", back[8];
    p = (struct cudaMemcpy3DParms){
        .srcPtr = {text, 4, 4, 2}, .dstPtr = {device, 2, 2, 2}, .extent = {2, 2, 2}, .kind = cudaMemcpyHostToDevice};
    OK(simcudaLaunchBusy(stream, 100));
    CHECK_EQ(TIME_OF(cudaMemcpy3DAsync(&p, stream)), 0);
    memset(text, '-', sizeof text);
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(back, device, 8, cudaMemcpyDeviceToHost));
    OK(memcmp(back, "abcdefgh", 8));
}

static void test_waiting(void **state)
{
    scenario(waiting, VIRTUAL, NULL);
}

static void set_in_3d(void)
{
    char back[4 * 8 * 3];
    get_memory();
    struct cudaPitchedPtr memory = {device, 4, 4, 8};
    OK(cudaMemset(device, '-', sizeof back));
    OK(cudaMemset3D(memory, 'x', (struct cudaExtent){3, 2, 3}));
    OK(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost));
    for (int i = 0; i < (int)sizeof back; i++) CHECK_EQ(back[i], i % 4 < 3 && i / 4 % 8 < 2 ? 'x' : '-');
    OK(cudaMemset3DAsync(memory, 'y', (struct cudaExtent){4, 8, 3}, NULL));
    OK(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 'y' && back[sizeof back - 1] == 'y');
    OK(cudaMemset3D(memory, 'z', (struct cudaExtent){4, 8, 0}));
    CHECK_EQ(cudaMemset3D(memory, 'z', (struct cudaExtent){5, 8, 3}), cudaErrorInvalidValue);
}

static void test_set_in_3d(void **state)
{
    scenario(set_in_3d, NULL);
}

/* Exactly the bytes that were named become zero, although whole pages of them are given back. */
static void set_to_zero(void)
{
    enum { BYTES = 4 << 20 };
    static const size_t from[] = {0, 1, 100, 65535, 65536, 1 << 20},
                        count[] = {1 << 20, (1 << 20) + 1, 3000001, BYTES - (1 << 20)};
    static char back[BYTES];
    char *memory;
    OK(cudaMalloc((void **)&memory, BYTES));
    for (size_t i = 0; i < sizeof from / sizeof *from; i++)
        for (size_t n = 0; n < sizeof count / sizeof *count; n++) {
            OK(cudaMemset(memory, 'x', BYTES));
            OK(cudaMemset(memory + from[i], 0, count[n]));
            OK(cudaMemcpy(back, memory, BYTES, cudaMemcpyDeviceToHost));
            size_t wrong = 0;
            for (size_t at = 0; at < BYTES; at++) wrong += back[at] != (at - from[i] < count[n] ? 0 : 'x');
            CHECK_EQ(wrong, 0);
        }
    OK(cudaFree(memory));
}

static void test_set_to_zero(void **state)
{
    scenario(set_to_zero, NULL);
}

static void peers(void)
{
    char *there, back[4];
    get_memory();
    OK(cudaSetDevice(1));
    OK(cudaMalloc((void **)&there, MEGABYTE));
    OK(cudaSetDevice(0));
    OK(cudaMemcpy(device, "peer", 4, cudaMemcpyHostToDevice));
    OK(cudaDeviceSynchronize());
    struct cudaMemcpy3DPeerParms p = {.srcPtr = {device, 1000, 1000, 100},
                                      .srcDevice = 0,
                                      .dstPtr = {there, 1000, 1000, 100},
                                      .dstDevice = 1,
                                      .extent = {1000, 100, 10}};
    CHECK_EQ(TIME_OF(cudaMemcpy3DPeer(&p)), 0);
    CHECK_EQ(TIME_OF(cudaDeviceSynchronize()), PINNED_MS); /* over PCIe */
    OK(cudaMemcpy(back, there, 4, cudaMemcpyDeviceToHost));
    OK(memcmp(back, "peer", 4));
    OK(cudaMemcpy3DPeerAsync(&p, NULL));
    p.dstDevice = 2;
    CHECK_EQ(cudaMemcpy3DPeer(&p), cudaErrorInvalidDevice);
    CUDA_MEMCPY3D_PEER low = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = (uintptr_t)device,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = (uintptr_t)there,
                              .WidthInBytes = 4,
                              .Height = 1,
                              .Depth = 1};
    CHECK_EQ(cuMemcpy3DPeer(&low), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxGetCurrent(&low.srcContext));
    low.dstContext = low.srcContext;
    OK(cuMemcpy3DPeer(&low));
}

static void test_peers(void **state)
{
    scenario(peers, "SIMCUDA_DEVICES=2", VIRTUAL, NULL);
}

/* A graph copies again at each launch, whatever the shape of the copy. */
static void captured(void)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaArray_t array;
    struct cudaChannelFormatDesc chars = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    char back[12], text[] = "ab..cd..";
    get_memory();
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocArray(&array, &chars, 8, 8, 0));
    struct cudaMemcpy3DParms p = {.srcPtr = {text, 4, 4, 2},
                                  .dstArray = array,
                                  .dstPos = {1, 1, 0},
                                  .extent = {2, 2, 1},
                                  .kind = cudaMemcpyHostToDevice};
    void *dsts[] = {device};
    const void *srcs[] = {text};
    size_t sizes[] = {4}, indexes[] = {0};
    struct cudaMemcpyAttributes attrs[] = {{.srcAccessOrder = cudaMemcpySrcAccessOrderStream}};
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMemcpy3DAsync(&p, stream));
    OK(cudaMemcpyBatchAsync(dsts, srcs, sizes, 1, attrs, indexes, 1, stream));
    OK(cudaMemcpy2DFromArrayAsync(device + 4, 4, array, 1, 1, 2, 2, cudaMemcpyDeviceToDevice, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    memcpy(text, "xyz.uv..", 8);
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(back, device, 10, cudaMemcpyDeviceToHost));
    OK(memcmp(back, "xyz.xy", 6));
    OK(memcmp(back + 8, "uv", 2));
}

static void test_captured(void **state)
{
    scenario(captured, NULL);
}

/* ------------------------------------------------------------------ batches */

static void batch(void)
{
    cudaStream_t stream;
    get_memory();
    OK(cudaStreamCreate(&stream));
    void *dsts[] = {device, device + 1000, device2};
    const void *srcs[] = {pinned, pageable + 7, device};
    size_t sizes[] = {500, 100, 500}, indexes[] = {0, 2};
    struct cudaMemcpyAttributes attrs[] = {{.srcAccessOrder = cudaMemcpySrcAccessOrderStream},
                                           {.srcAccessOrder = cudaMemcpySrcAccessOrderAny}};
    char back[500];
    CHECK_EQ(TIME_OF(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, attrs, indexes, 1, stream)), 0);
    OK(cudaMemcpyBatchAsync(dsts, srcs, sizes, 3, attrs, indexes, 2, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(back, device2, 500, cudaMemcpyDeviceToHost));
    OK(memcmp(back, pinned, 500));
    OK(cudaMemcpy(back, device + 1000, 100, cudaMemcpyDeviceToHost));
    OK(memcmp(back, pageable + 7, 100));
    /* Pageable memory: in stream order it blocks like a single copy; if the order may be ignored, it does not; "during
     * the call" reads it at once. */
    sizes[1] = MEGABYTE / 2;
    CHECK_EQ(TIME_OF(cudaMemcpyBatchAsync(dsts + 1, srcs + 1, sizes + 1, 1, attrs, indexes, 1, stream)),
             4 * MICROSECOND + 1000 * MICROSECOND);
    CHECK_EQ(TIME_OF(cudaMemcpyBatchAsync(dsts + 1, srcs + 1, sizes + 1, 1, attrs + 1, indexes, 1, stream)), 0);
    OK(cudaStreamSynchronize(stream));
    attrs[0].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
    OK(simcudaLaunchBusy(stream, 100));
    char saved = *pinned;
    CHECK_EQ(TIME_OF(cudaMemcpyBatchAsync(dsts, srcs, sizes, 1, attrs, indexes, 1, stream)), 0);
    *pinned = (char)~saved;
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(back, device, 1, cudaMemcpyDeviceToHost));
    CHECK_EQ(back[0], saved);
}

static void test_batch(void **state)
{
    scenario(batch, VIRTUAL, NULL);
}

static void bad_batches(void)
{
    cudaStream_t stream;
    get_memory();
    OK(cudaStreamCreate(&stream));
    CUdeviceptr dsts[] = {(uintptr_t)device, (uintptr_t)device2}, srcs[] = {(uintptr_t)pinned, (uintptr_t)pinned};
    size_t sizes[] = {10, 10}, indexes[] = {0, 1}, failed = 77;
    CUmemcpyAttributes attrs[] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
                                  {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}};
    OK(cudaMemset(device, 0, 10));
#define BATCH(count, number, stream) \
    cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, indexes, number, &failed, stream)
    OK(BATCH(2, 2, stream));
    CHECK_EQ(failed, 77);                                  /* is set by failures only */
    CHECK_EQ(BATCH(2, 2, NULL), CUDA_ERROR_INVALID_VALUE); /* not the legacy default stream */
    CHECK_EQ(failed, SIZE_MAX);
    OK(cuMemcpyBatchAsync_ptsz(dsts, srcs, sizes, 2, attrs, indexes, 2, &failed, NULL));
    CHECK_EQ(BATCH(2, 0, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(BATCH(1, 2, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(BATCH(2, 2, (CUstream)pageable), CUDA_ERROR_INVALID_HANDLE);
    indexes[0] = 1;
    CHECK_EQ(BATCH(2, 1, stream), CUDA_ERROR_INVALID_VALUE);
    indexes[0] = 0;
    attrs[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    CHECK_EQ(BATCH(2, 2, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(failed, SIZE_MAX);
    attrs[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    OK(cudaMemset(device, 0, 10));
    sizes[1] = MEGABYTE + 1;
    CHECK_EQ(BATCH(2, 2, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(failed, 1);
    char back[10];
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(back, device, 10, cudaMemcpyDeviceToHost));
    OK(memcmp(back, "\0\0\0\0\0\0\0\0\0", 10)); /* and the valid one was not started */
}

static void test_bad_batches(void **state)
{
    scenario(bad_batches, NULL);
}

static struct cudaMemcpy3DOperand in_memory(void *pointer, size_t row, size_t height)
{
    struct cudaMemcpy3DOperand operand = {.type = cudaMemcpyOperandTypePointer};
    operand.op.ptr.ptr = pointer;
    operand.op.ptr.rowLength = row;
    operand.op.ptr.layerHeight = height;
    return operand;
}

static struct cudaMemcpy3DOperand in_array(cudaArray_t array, size_t x, size_t y)
{
    struct cudaMemcpy3DOperand operand = {.type = cudaMemcpyOperandTypeArray};
    operand.op.array.array = array;
    operand.op.array.offset = (struct cudaOffset3D){x, y, 0};
    return operand;
}

static void solid_batch(void)
{
    cudaStream_t stream;
    cudaArray_t array, bytes;
    struct cudaChannelFormatDesc floats = {32, 0, 0, 0, cudaChannelFormatKindFloat};
    struct cudaChannelFormatDesc chars = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    char back[64];
    get_memory();
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocArray(&array, &floats, 8, 8, 0));
    OK(cudaMallocArray(&bytes, &chars, 8, 8, 0));
    struct cudaMemcpy3DBatchOp up = {.src = in_memory(pinned, 5, 0),
                                     .dst = in_array(array, 2, 3),
                                     .extent = {4, 2, 1},
                                     .srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    struct cudaMemcpy3DBatchOp down = {.src = in_array(array, 3, 4),
                                       .dst = in_memory(device, 0, 0),
                                       .extent = {3, 1, 1},
                                       .srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    OK(cudaMemcpy3DBatchAsync(1, &up, 0, stream));
    OK(cudaMemcpy3DBatchAsync(1, &down, 0, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(back, device, 12, cudaMemcpyDeviceToHost));
    OK(memcmp(back, pinned + (5 + 1) * 4, 12)); /* rows of 5 elements of 4 bytes */
    size_t failed = 0;
    struct cudaMemcpy3DBatchOp both[2] = {up, down};
    CHECK_EQ(cudaMemcpy3DBatchAsync(2, both, 1, stream), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpy3DBatchAsync(2, both, 0, NULL), cudaErrorInvalidValue);
    both[1].extent.depth = 0;
#define FAILS_AT(index)                                                                                              \
    CHECK_EQ(cuMemcpy3DBatchAsync(2, (CUDA_MEMCPY3D_BATCH_OP *)both, &failed, 0, stream), CUDA_ERROR_INVALID_VALUE); \
    CHECK_EQ(failed, index)
    FAILS_AT(1);
    both[1] = down;
    both[0].src.op.ptr.rowLength = 3;
    FAILS_AT(0);
    both[0] = up;
    both[1].dst = in_array(bytes, 0, 0); /* elements of 4 bytes into elements of one */
    FAILS_AT(1);
    both[1] = down;
    both[1].src.op.array.offset.x = 6;
    FAILS_AT(1);
    both[1] = down;
    both[0].srcAccessOrder = cudaMemcpySrcAccessOrderInvalid;
    FAILS_AT(0);
}

static void test_solid_batch(void **state)
{
    scenario(solid_batch, NULL);
}

/* Under the same name, CUDA 12.8 has failIdx and 13.0 does not. */
static void runtime_12(void)
{
    typedef cudaError_t (*batch_12)(void **, void **, size_t *, size_t, struct cudaMemcpyAttributes *, size_t *, size_t,
                                    size_t *, cudaStream_t);
    typedef cudaError_t (*prefetch_12)(const void *, size_t, int, cudaStream_t);
    typedef cudaError_t (*prefetch_12_v2)(const void *, size_t, struct cudaMemLocation, unsigned, cudaStream_t);
    void *library = dlopen("libcudart.so.12", RTLD_NOW), *managed;
    batch_12 copy = (batch_12)dlsym(library, "cudaMemcpyBatchAsync");
    cudaStream_t stream;
    get_memory();
    OK(cudaStreamCreate(&stream));
    void *dsts[] = {device, device2}, *srcs[] = {pinned, pinned};
    size_t sizes[] = {10, MEGABYTE + 1}, indexes[] = {0}, failed = 77;
    struct cudaMemcpyAttributes attrs[] = {{.srcAccessOrder = cudaMemcpySrcAccessOrderStream}};
    CHECK_EQ(copy(dsts, srcs, sizes, 2, attrs, indexes, 1, &failed, stream), cudaErrorInvalidValue);
    CHECK_EQ(failed, 1);
    OK(copy(dsts, srcs, sizes, 1, attrs, indexes, 1, NULL, stream));
    OK(cudaMallocManaged(&managed, MEGABYTE, cudaMemAttachGlobal));
    OK(((prefetch_12)dlsym(library, "cudaMemPrefetchAsync"))(managed, MEGABYTE, 0, stream));
    struct cudaMemLocation host = {cudaMemLocationTypeHost, 0};
    OK(((prefetch_12_v2)dlsym(library, "cudaMemPrefetchAsync_v2"))(managed, MEGABYTE, host, 0, stream));
    CHECK(dlsym(library, "cudaMemPrefetchAsync_v2_ptsz") != NULL);
    CHECK(dlsym(library, "cudaMemAdvise_v2") != NULL);
    CHECK(dlsym(library, "cudaMemDiscardBatchAsync") == NULL);
    void *older = dlopen("libcudart.so.11.0", RTLD_NOW), *newer = dlopen("libcudart.so.13", RTLD_NOW);
    CHECK(dlsym(older, "cudaMemcpyBatchAsync") == NULL);
    CHECK(dlsym(older, "cudaMemPrefetchAsync_v2") == NULL);
    CHECK(dlsym(older, "cudaMemcpy3DPeerAsync_ptsz") != NULL);
    CHECK(dlsym(newer, "cudaMemPrefetchAsync_v2") == NULL);
    CHECK(dlsym(newer, "cudaMemDiscardBatchAsync_ptsz") != NULL);
}

static void test_runtime_12(void **state)
{
    scenario(runtime_12, NULL);
}

/* ------------------------------------------------------------------ managed memory */

static void hints(void)
{
    void *managed;
    cudaStream_t stream;
    struct cudaMemLocation gpu = {cudaMemLocationTypeDevice, 0}, none = {cudaMemLocationTypeDevice, 3},
                           host = {cudaMemLocationTypeHost, 99}, numa = {cudaMemLocationTypeHostNuma, 0};
    get_memory();
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocManaged(&managed, MEGABYTE, cudaMemAttachGlobal));
    CHECK_EQ(TIME_OF(cudaMemPrefetchAsync(managed, MEGABYTE, gpu, 0, stream)), 0);
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(stream)), PINNED_MS);
    OK(cudaMemPrefetchAsync(managed, MEGABYTE, host, 0, stream));
    OK(cudaMemPrefetchAsync(managed, MEGABYTE, numa, 0, stream));
    CHECK_EQ(cudaMemPrefetchAsync(managed, MEGABYTE, none, 0, stream), cudaErrorInvalidDevice);
    CHECK_EQ(cudaMemPrefetchAsync(managed, MEGABYTE, gpu, 1, stream), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemPrefetchAsync(device, MEGABYTE, gpu, 0, stream), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemPrefetchAsync(managed, MEGABYTE + 1, gpu, 0, stream), cudaErrorInvalidValue);
    CHECK_EQ(cuMemPrefetchAsync((uintptr_t)managed, MEGABYTE, 3, stream), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemPrefetchAsync((uintptr_t)managed, MEGABYTE, -1, stream));
    OK(cudaMemAdvise(managed, MEGABYTE, cudaMemAdviseSetReadMostly, none)); /* its location: ignored */
    OK(cudaMemAdvise(managed, MEGABYTE, cudaMemAdviseSetPreferredLocation, numa));
    CHECK_EQ(cudaMemAdvise(managed, MEGABYTE, cudaMemAdviseSetPreferredLocation, none), cudaErrorInvalidDevice);
    CHECK_EQ(cudaMemAdvise(managed, MEGABYTE, cudaMemAdviseSetAccessedBy, numa), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemAdvise(managed, MEGABYTE, (enum cudaMemoryAdvise)7, gpu), cudaErrorInvalidValue);
    OK(cuMemAdvise((uintptr_t)managed, MEGABYTE, CU_MEM_ADVISE_SET_ACCESSED_BY, -1));
    OK(cudaStreamAttachMemAsync(stream, managed, 0, 4));
    CHECK_EQ(cudaStreamAttachMemAsync(stream, managed, 10, 4), cudaErrorInvalidValue);
    CHECK_EQ(cudaStreamAttachMemAsync(NULL, managed, 0, 4), cudaErrorInvalidValue);
    CHECK_EQ(cudaStreamAttachMemAsync(stream, device, 0, 1), cudaErrorInvalidValue);
}

static void test_hints(void **state)
{
    scenario(hints, VIRTUAL, NULL);
}

static void hints_in_batches(void)
{
    char *managed;
    cudaStream_t stream;
    struct cudaMemLocation places[] = {{cudaMemLocationTypeDevice, 0}, {cudaMemLocationTypeHost, 0}};
    get_memory();
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocManaged((void **)&managed, MEGABYTE, cudaMemAttachGlobal));
    void *pointers[] = {managed, managed + MEGABYTE / 2};
    size_t sizes[] = {MEGABYTE / 2, MEGABYTE / 2}, indexes[] = {0, 1};
    CHECK_EQ(TIME_OF(cudaMemPrefetchBatchAsync(pointers, sizes, 2, places, indexes, 2, 0, stream)), 0);
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(stream)), PINNED_MS);
    OK(cudaMemDiscardBatchAsync(pointers, sizes, 2, 0, stream));
    OK(cudaMemDiscardAndPrefetchBatchAsync(pointers, sizes, 2, places, indexes, 1, 0, stream));
    CHECK(TIME_OF(cudaStreamSynchronize(stream)) < 10 * MICROSECOND); /* nothing travels */
    CHECK_EQ(cudaMemDiscardBatchAsync(pointers, sizes, 2, 0, NULL), cudaErrorInvalidValue);
    OK(cudaMemDiscardBatchAsync(pointers, sizes, 2, 0, cudaStreamPerThread));
    CHECK_EQ(cudaMemDiscardBatchAsync(pointers, sizes, 2, 1, stream), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemPrefetchBatchAsync(pointers, sizes, 2, places, indexes, 0, 0, stream), cudaErrorInvalidValue);
    indexes[1] = 0;
    CHECK_EQ(cudaMemPrefetchBatchAsync(pointers, sizes, 2, places, indexes, 2, 0, stream), cudaErrorInvalidValue);
    pointers[1] = device;
    CHECK_EQ(cudaMemDiscardBatchAsync(pointers, sizes, 2, 0, stream), cudaErrorInvalidValue);
}

static void test_hints_in_batches(void **state)
{
    scenario(hints_in_batches, VIRTUAL, NULL);
}

/* ------------------------------------------------------------------ what kernels may have written */

static void unknown_zero(void)
{
    int sent[4] = {1, 2, 3, 4}, back[4];
    OK(cudaMalloc((void **)&device, 4096));
    OK(cudaMalloc((void **)&device2, 4096));
    OK(cudaMemcpy(device, sent, sizeof sent, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(back[3] == 4); /* no kernel yet: everything is known */
    OK(simcudaLaunchBusy(NULL, 1));
    OK(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 0 && back[3] == 0);
    OK(cudaMemcpy(device, sent, sizeof sent, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(device2, device, 8, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(back, device2, 8, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 1 && back[1] == 2); /* written since */
    OK(cudaMemcpy(back, device2, 16, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 0 && back[1] == 0); /* a part of it is unknown */
    OK(cudaMemset(device2, 1, 16));
    OK(cudaMemcpy(back, device2 + 4, 4, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 0x01010101);
    OK(cudaMemcpy(device2, device + 64, 4, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(back, device2 + 4, 4, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 0); /* part of the set bytes was overwritten by unknown ones */
}

static void large_contents(void)
{
    int sent[4] = {1, 2, 3, 4}, back[4] = {5, 5, 5, 5};
    OK(cudaMalloc((void **)&device, 4096));
    OK(simcudaLaunchBusy(NULL, 1));
    OK(cudaMemcpy(device, sent, 8, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(back, device, 8, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 1 && back[1] == 2);
    OK(cudaMemcpy(device, sent + 1, 12, cudaMemcpyHostToDevice)); /* does not move: unknown */
    OK(cudaMemcpy(back, device, 8, cudaMemcpyDeviceToHost));
    CHECK(back[0] == 0 && back[1] == 0);
    OK(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost)); /* leaves what the host has */
    CHECK(back[0] == 0 && back[3] == 5);
}

static void unknown_memory(void)
{
    int sent = 7, back = 0;
    OK(cudaMalloc((void **)&device, 4096));
    OK(cudaMemcpy(device, &sent, sizeof sent, cudaMemcpyHostToDevice));
    OK(simcudaLaunchBusy(NULL, 1));
    OK(cudaMemcpy(&back, device, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(back == 7);
}

static void test_unknown(void **state)
{
    scenario(unknown_zero, "SIMCUDA_UNKNOWN=zero", NULL);
    scenario(large_contents, "SIMCUDA_UNKNOWN=zero", "SIMCUDA_CONTENTS=8", NULL);
    scenario(unknown_memory, NULL);
}

CASES(test_shapes, test_waiting, test_set_in_3d, test_peers, test_captured, test_batch, test_bad_batches,
      test_solid_batch, test_runtime_12, test_hints, test_hints_in_batches, test_unknown, test_set_to_zero)
