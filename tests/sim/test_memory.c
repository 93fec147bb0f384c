/* Capacity, granularity, alignment, out of memory, frees, pinned and managed memory, pools. */
#include "fixtures/simcuda/include/simcuda.h"
#include "tests/sim/scenario.h"

static size_t used(void)
{
    size_t free, total;
    OK(cudaMemGetInfo(&free, &total));
    return total - free;
}

static void *device_memory(size_t size)
{
    void *memory = NULL;
    OK(cudaMalloc(&memory, size));
    CHECK(memory != NULL);
    return memory;
}

/* ------------------------------------------------------------------ accounting */

static void accounting(void)
{
    size_t free, total;
    OK(cudaMemGetInfo(&free, &total));
    CHECK_EQ(total, GIB);
    CHECK_EQ(total - free, 100 * MIB); /* the context */
    void *large = device_memory(10 * MIB + 1);
    CHECK_EQ(used(), 112 * MIB);
    void *small[3];
    for (int i = 0; i < 3; i++) small[i] = device_memory(1000);
    CHECK_EQ(used(), 114 * MIB); /* three share one page of 2 MiB */
    OK(cudaFree(small[0]));
    OK(cudaFree(small[2]));
    CHECK_EQ(used(), 114 * MIB);
    OK(cudaFree(small[1]));
    CHECK_EQ(used(), 112 * MIB); /* the page is freed with its last allocation */
    OK(cudaFree(large));
    CHECK_EQ(used(), 100 * MIB);
    void *nothing = (void *)1;
    OK(cudaMalloc(&nothing, 0));
    CHECK(nothing == NULL);
}

static void test_accounting(void **state)
{
    scenario(accounting, "SIMCUDA_MEMORY=1GiB", "SIMCUDA_CONTEXT=100MiB", NULL);
}

static void sharing_a_page(void)
{
    enum { COUNT = 8192 + 1 }; /* one more than fit into a page */
    size_t before = used();
    static char *pieces[COUNT];
    for (int i = 0; i < COUNT; i++) {
        pieces[i] = device_memory(i % 2 != 0 ? 1 : 256);
        CHECK_EQ((uintptr_t)pieces[i] % 256, 0);
        CHECK(i == 0 || pieces[i] != pieces[i - 1]);
    }
    CHECK_EQ(used() - before, 4 * MIB);
    void *freed = pieces[17];
    OK(cudaFree(freed));
    CHECK(device_memory(200) == freed); /* a freed address is used again */
    CHECK_EQ((uintptr_t)device_memory(3 * MIB) % (2 * MIB), 0);
}

static void test_sharing_a_page(void **state)
{
    scenario(sharing_a_page, "SIMCUDA_MEMORY=1GiB", NULL);
}

static void out_of_memory(void)
{
    void *untouched = (void *)0x1234;
    CHECK_EQ(cudaMalloc(&untouched, 61 * MIB), cudaErrorMemoryAllocation);
    CHECK(untouched == (void *)0x1234);
    CHECK_EQ(cudaMalloc(&untouched, SIZE_MAX), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaGetLastError(), cudaSuccess);
    void *all = device_memory(60 * MIB); /* 100 minus the context's 10 and 30 of other processes */
    CHECK_EQ(cudaMalloc(&untouched, 1), cudaErrorMemoryAllocation);
    OK(cudaFree(all));
    device_memory(1);
}

static void test_out_of_memory(void **state)
{
    scenario(out_of_memory, "SIMCUDA_MEMORY=100MiB", "SIMCUDA_CONTEXT=10MiB", "SIMCUDA_OTHER=30MiB", NULL);
}

static void no_room_for_context(void)
{
    void *memory;
    CHECK_EQ(cudaMalloc(&memory, 1), cudaErrorMemoryAllocation);
}

static void test_no_room_for_context(void **state)
{
    scenario(no_room_for_context, "SIMCUDA_MEMORY=100MiB", "SIMCUDA_CONTEXT=101MiB", NULL);
}

static void huge_and_untouched(void)
{
    void *memory = device_memory((size_t)900 << 30);
    char byte = 'x', back = 0;
    OK(cudaMemcpy((char *)memory + ((size_t)899 << 30), &byte, 1, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(&back, (char *)memory + ((size_t)899 << 30), 1, cudaMemcpyDeviceToHost));
    CHECK_EQ(back, 'x');
    OK(cudaFree(memory));
}

static void test_huge_and_untouched(void **state)
{
    scenario(huge_and_untouched, "SIMCUDA_MEMORY=1TiB", NULL);
}

/* ------------------------------------------------------------------ frees */

static void bad_frees(void)
{
    char *memory = device_memory(1000), local;
    OK(cudaFree(NULL));
    OK(cudaFreeHost(NULL));
    CHECK_EQ(cudaFree(memory + 256), cudaErrorInvalidValue);
    CHECK_EQ(cudaFree(&local), cudaErrorInvalidValue);
    CHECK_EQ(cudaFreeHost(memory), cudaErrorInvalidValue);
    OK(cudaFree(memory));
    CHECK_EQ(cudaFree(memory), cudaErrorInvalidValue);
    void *pinned;
    OK(cudaMallocHost(&pinned, 10));
    CHECK_EQ(cudaFree(pinned), cudaErrorInvalidValue);
    OK(cudaFreeHost(pinned));
    CHECK_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
}

static void test_bad_frees(void **state)
{
    scenario(bad_frees, NULL);
}

static void reset_frees_everything(void)
{
    size_t free, total;
    void *memory = device_memory(50 * MIB), *pinned, *pooled;
    cudaStream_t stream;
    OK(cudaMallocHost(&pinned, MIB));
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocAsync(&pooled, MIB, stream));
    OK(cudaDeviceReset());
    CHECK_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaFree(memory), cudaErrorInvalidValue);
    CHECK_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
    OK(cudaMemGetInfo(&free, &total));
    CHECK_EQ(total - free, 100 * MIB); /* the new context */
}

static void test_reset_frees_everything(void **state)
{
    scenario(reset_frees_everything, "SIMCUDA_CONTEXT=100MiB", NULL);
}

static void several_devices(void)
{
    int count, device;
    OK(cudaGetDeviceCount(&count));
    CHECK_EQ(count, 3);
    CHECK_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
    OK(cudaSetDevice(2));
    OK(cudaGetDevice(&device));
    CHECK_EQ(device, 2);
    char *there = device_memory(10 * MIB), text[] = "over there", back[sizeof text];
    CHECK_EQ(used(), 20 * MIB);
    OK(cudaSetDevice(0));
    CHECK_EQ(used(), 10 * MIB);
    char *here = device_memory(10 * MIB);
    OK(cudaMemcpy(there, text, sizeof text, cudaMemcpyHostToDevice));
    OK(cudaMemcpyPeer(here, 0, there, 2, sizeof text));
    OK(cudaMemcpy(back, here, sizeof back, cudaMemcpyDeviceToHost));
    CHECK_EQ(strcmp(back, text), 0);
    struct cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, there + 5));
    CHECK_EQ(attributes.type, cudaMemoryTypeDevice);
    CHECK_EQ(attributes.device, 2);
    CHECK(attributes.devicePointer == there + 5);
    CHECK(attributes.hostPointer == NULL);
    OK(cudaFree(there)); /* from another device's context */
    OK(cudaSetDevice(2));
    CHECK_EQ(used(), 10 * MIB);
}

static void test_several_devices(void **state)
{
    scenario(several_devices, "SIMCUDA_DEVICES=3", "SIMCUDA_CONTEXT=10MiB", NULL);
}

/* ------------------------------------------------------------------ contents */

static void data_move(void)
{
    static unsigned char source[100000], back[100000];
    for (size_t i = 0; i < sizeof source; i++) source[i] = (unsigned char)(i * 7);
    unsigned char *a = device_memory(sizeof source), *b = device_memory(sizeof source);
    OK(cudaMemcpy(a, source, sizeof source, cudaMemcpyDefault));
    OK(cudaMemcpy(b, a, sizeof source, cudaMemcpyDeviceToDevice));
    OK(cudaMemset(b + 10, 0xab, 20));
    OK(cudaMemcpy(back, b, sizeof back, cudaMemcpyDefault));
    for (size_t i = 0; i < sizeof source; i++) CHECK_EQ(back[i], i >= 10 && i < 30 ? 0xab : source[i]);
    CHECK_EQ(cudaMemcpy(a, source, sizeof source + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpy(source, back, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpy(back, source, 1, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpy(a, source, 1, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
    OK(cudaMemcpy(a, source, 0, cudaMemcpyHostToDevice));
    CHECK_EQ(cudaMemset(source, 0, 1), cudaErrorInvalidValue);
}

static void test_data_move(void **state)
{
    scenario(data_move, NULL);
}

static void pitched(void)
{
    char *device, host[4][10], back[4][10];
    size_t pitch;
    OK(cudaMallocPitch((void **)&device, &pitch, 10, 4));
    CHECK_EQ(pitch, 512);
    memset(host, 'h', sizeof host);
    memset(back, '-', sizeof back);
    OK(cudaMemset2D(device, pitch, 'd', 10, 4));
    OK(cudaMemcpy2D(device + pitch, pitch, host[1], 10, 7, 2, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(back, 10, device, pitch, 9, 4, cudaMemcpyDeviceToHost));
    OK(memcmp(back[0], "ddddddddd-", 10));
    OK(memcmp(back[1], "hhhhhhhdd-", 10));
    OK(memcmp(back[3], "ddddddddd-", 10));
    CHECK_EQ(cudaMemcpy2D(back, 8, device, pitch, 9, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidPitchValue);
}

static void test_pitched(void **state)
{
    scenario(pitched, NULL);
}

static void element_sets(void)
{
    CUdeviceptr memory = (uintptr_t)device_memory(64);
    uint16_t halves[8];
    uint32_t words[8];
    OK(cuMemsetD16_v2(memory, 0x1234, 8)); /* counts elements, not bytes */
    OK(cuMemcpyDtoH_v2(halves, memory, sizeof halves));
    for (int i = 0; i < 8; i++) CHECK_EQ(halves[i], 0x1234);
    OK(cuMemsetD32_v2(memory, 0xdeadbeef, 8));
    OK(cuMemcpyDtoH_v2(words, memory, sizeof words));
    for (int i = 0; i < 8; i++) CHECK_EQ(words[i], 0xdeadbeef);
    CHECK_EQ(cuMemsetD32_v2(memory, 0, 17), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD32_v2(memory + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

static void test_element_sets(void **state)
{
    scenario(element_sets, NULL);
}

/* ------------------------------------------------------------------ host memory */

static void pinned_and_registered(void)
{
    size_t before = used();
    struct cudaPointerAttributes attributes;
    char *pinned, *ordinary = malloc(10000), *device;
    unsigned flags;
    OK(cudaHostAlloc((void **)&pinned, 10000, cudaHostAllocMapped));
    CHECK_EQ(used(), before); /* host memory is not device memory */
    memset(pinned, 1, 10000);
    OK(cudaHostGetDevicePointer((void **)&device, pinned + 3, 0));
    CHECK(device == pinned + 3);
    OK(cudaHostGetFlags(&flags, pinned));
    CHECK_EQ(flags, cudaHostAllocMapped);
    OK(cudaPointerGetAttributes(&attributes, pinned));
    CHECK_EQ(attributes.type, cudaMemoryTypeHost);
    OK(cudaPointerGetAttributes(&attributes, ordinary));
    CHECK_EQ(attributes.type, cudaMemoryTypeUnregistered);
    CHECK_EQ(cudaHostGetDevicePointer((void **)&device, ordinary, 0), cudaErrorInvalidValue);
    OK(cudaHostRegister(ordinary, 10000, 0));
    CHECK_EQ(cudaHostRegister(ordinary + 100, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaPointerGetAttributes(&attributes, ordinary + 1));
    CHECK_EQ(attributes.type, cudaMemoryTypeHost);
    OK(cudaHostUnregister(ordinary));
    CHECK_EQ(cudaHostUnregister(ordinary), cudaErrorHostMemoryNotRegistered);
    free(ordinary);
    OK(cudaFreeHost(pinned));
}

static void test_pinned_and_registered(void **state)
{
    scenario(pinned_and_registered, NULL);
}

static void managed(void)
{
    struct cudaPointerAttributes attributes;
    char *memory, *device = device_memory(100), back[100];
    OK(cudaMallocManaged((void **)&memory, 100, cudaMemAttachGlobal));
    memset(memory, 'm', 100);
    OK(cudaMemcpy(device, memory, 100, cudaMemcpyDefault));
    OK(cudaMemcpy(back, device, 100, cudaMemcpyDefault));
    OK(memcmp(back, memory, 100));
    OK(cudaPointerGetAttributes(&attributes, memory));
    CHECK_EQ(attributes.type, cudaMemoryTypeManaged);
    CHECK(attributes.hostPointer == memory && attributes.devicePointer == memory);
    struct cudaMemLocation where = {cudaMemLocationTypeDevice, 0};
    OK(cudaMemPrefetchAsync(memory, 100, where, 0, NULL));
    CHECK_EQ(cudaMemPrefetchAsync(device, 100, where, 0, NULL), cudaErrorInvalidValue);
    OK(cudaFree(memory));
}

static void test_managed(void **state)
{
    scenario(managed, NULL);
}

/* ------------------------------------------------------------------ pools */

static uint64_t pool_value(cudaMemPool_t pool, enum cudaMemPoolAttr attribute)
{
    uint64_t value;
    OK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void pools(void)
{
    cudaMemPool_t pool;
    cudaStream_t stream, other;
    void *a, *b, *c;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    size_t before = used();
    OK(cudaMallocAsync(&a, 1000, stream));
    CHECK_EQ(used() - before, 32 * MIB); /* what a pool reserves at a time */
    CHECK_EQ(pool_value(pool, cudaMemPoolAttrUsedMemCurrent), 1000);
    CHECK_EQ(pool_value(pool, cudaMemPoolAttrReservedMemCurrent), 32 * MIB);
    OK(simcudaLaunchBusy(stream, 1000));
    OK(cudaFreeAsync(a, stream));
    CHECK_EQ(cudaFreeAsync(a, stream), cudaErrorInvalidValue);
    OK(cudaMallocAsync(&b, 1000, other)); /* another stream cannot use it yet … */
    CHECK(b != a);
    OK(cudaMallocAsync(&c, 1000, stream)); /* … but the stream that freed it can */
    CHECK(c == a);
    OK(cudaFreeAsync(c, stream));
    OK(cudaFree(b)); /* cudaFree also frees pool memory */
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(used(), before); /* the default release threshold is 0 */
    uint64_t keep = UINT64_MAX;
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    OK(cudaMallocAsync(&a, 40 * MIB, stream));
    OK(cudaFreeAsync(a, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(used() - before, 40 * MIB);
    OK(cudaMemPoolTrimTo(pool, 0));
    CHECK_EQ(used(), before);
    CHECK_EQ(pool_value(pool, cudaMemPoolAttrReservedMemHigh), 40 * MIB);
    CHECK_EQ(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
}

static void test_pools(void **state)
{
    scenario(pools, "SIMCUDA_CLOCK=virtual", NULL);
}

static void pool_reserve_yields(void)
{
    cudaMemPool_t pool;
    void *a;
    uint64_t keep = UINT64_MAX;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    OK(cudaMallocAsync(&a, 80 * MIB, NULL));
    CHECK_EQ(cudaMallocAsync(&a, 80 * MIB, NULL), cudaErrorMemoryAllocation);
    OK(cudaFreeAsync(a, NULL));
    OK(cudaDeviceSynchronize());
    CHECK_EQ(used(), 80 * MIB);
    device_memory(90 * MIB); /* what the pool only reserves does not cause an out-of-memory error */
}

static void test_pool_reserve_yields(void **state)
{
    scenario(pool_reserve_yields, "SIMCUDA_MEMORY=100MiB", "SIMCUDA_CONTEXT=0", "SIMCUDA_CLOCK=virtual", NULL);
}

static void own_pool(void)
{
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {cudaMemLocationTypeDevice, 0}};
    cudaMemPool_t pool;
    void *memory, *also;
    size_t before = used();
    OK(cudaMemPoolCreate(&pool, &props));
    OK(cudaMallocFromPoolAsync(&memory, 5000, pool, NULL));
    OK(cudaDeviceSetMemPool(0, pool));
    OK(cudaMallocAsync(&also, 5000, NULL));
    CHECK_EQ(pool_value(pool, cudaMemPoolAttrUsedMemCurrent), 2 * 5000);
    OK(cudaFreeAsync(memory, NULL));
    OK(cudaMemPoolDestroy(pool)); /* remains until its last allocation is freed */
    OK(cudaFreeAsync(also, NULL));
    OK(cudaDeviceSynchronize());
    CHECK_EQ(used(), before);
    CHECK_EQ(cudaMallocFromPoolAsync(&memory, 1, pool, NULL), cudaErrorInvalidValue);
}

static void test_own_pool(void **state)
{
    scenario(own_pool, NULL);
}

CASES(test_accounting, test_sharing_a_page, test_out_of_memory, test_no_room_for_context, test_huge_and_untouched,
      test_bad_frees, test_reset_frees_everything, test_several_devices, test_data_move, test_pitched,
      test_element_sets, test_pinned_and_registered, test_managed, test_pools, test_pool_reserve_yields, test_own_pool)
