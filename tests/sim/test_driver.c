/* The driver API: cuGetProcAddress by the header's rules, contexts, the 32-bit forms. */
#include "fixtures/simcuda/include/simcuda.h"
#include "tests/sim/scenario.h"

#include <dlfcn.h>
#include <pthread.h>

static CUcontext primary(void)
{
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

/* ------------------------------------------------------------------ cuGetProcAddress */

static void *ask(const char *name, int version, cuuint64_t flags, int expected_status)
{
    void *function = (void *)1;
    CUdriverProcAddressQueryResult status;
    OK(cuGetProcAddress_v2(name, &function, version, flags, &status));
    CHECK_EQ(status, expected_status);
    CHECK((function == NULL) == (status != CU_GET_PROC_ADDRESS_SUCCESS));
    return function;
}

static void proc_address(void)
{
    CHECK(ask("cuMemAlloc", 2000, 0, 0) == (void *)cuMemAlloc);
    CHECK(ask("cuMemAlloc", 3010, 0, 0) == (void *)cuMemAlloc);
    CHECK(ask("cuMemAlloc", 3020, 0, 0) == (void *)cuMemAlloc_v2);
    CHECK(ask("cuMemAlloc", 12040, 2, 0) == (void *)cuMemAlloc_v2); /* no per-thread form: the plain one */
    CHECK(ask("cuMemcpy", 12040, 0, 0) == (void *)cuMemcpy);
    CHECK(ask("cuMemcpy", 12040, 1, 0) == (void *)cuMemcpy);
    CHECK(ask("cuMemcpy", 12040, 2, 0) == (void *)cuMemcpy_ptds);
    CHECK(ask("cuMemcpyHtoDAsync", 12040, 2, 0) == (void *)cuMemcpyHtoDAsync_v2_ptsz);
    CHECK(ask("cuMemcpyHtoDAsync", 2000, 2, 0) == (void *)cuMemcpyHtoDAsync);
    CHECK(ask("cuGetProcAddress", 11030, 0, 0) == (void *)cuGetProcAddress);
    CHECK(ask("cuGetProcAddress", 12000, 0, 0) == (void *)cuGetProcAddress_v2);
    ask("cuMemAllocAsync", 11010, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    ask("cuMemAlloc_v2", 12040, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND); /* not a base name */
    ask("", 0, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    void *function = (void *)1;
    OK(cuGetProcAddress_v2("", &function, 0, 0, NULL));
    CHECK(function == NULL);
    /* Above the driver's own version, everything is an invalid value. */
    CHECK_EQ(cuGetProcAddress_v2("cuInit", &function, 12050, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGetProcAddress_v2("cuInit", &function, 12040, 3, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGetProcAddress_v2(NULL, &function, 2000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuGetProcAddress("cuInit", &function, 2000, 0));
    CHECK(function == (void *)cuInit);
    CHECK_EQ(cuGetProcAddress("cuNoSuch", &function, 2000, 0), CUDA_ERROR_NOT_FOUND);
    CHECK(function == NULL);
}

static void test_proc_address(void **state)
{
    scenario(proc_address, "SIMCUDA_DRIVER=12040", NULL);
}

/* Every row is exported under its name, and cuGetProcAddress returns that export. */
static void every_row(void)
{
    static const struct {
        const char *base, *export, *per_thread;
        int since;
    } rows[] = {
#define DRV(need, name, base, since, params, args) {#base, #name, NULL, since},
#define DRV_PTSZ(need, name, base, since, params, args) {#base, #name, #name "_ptsz", since},
#define DRV_PTDS(need, name, base, since, params, args) {#base, #name, #name "_ptds", since},
#include "fixtures/simcuda/driver/driver.def"
#undef DRV
#undef DRV_PTSZ
#undef DRV_PTDS
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library != NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *exported = dlsym(library, rows[i].export);
        CHECK(exported != NULL);
        CHECK(ask(rows[i].base, rows[i].since, 0, 0) == exported);
        const char *per_thread = rows[i].per_thread != NULL ? rows[i].per_thread : rows[i].export;
        CHECK(dlsym(library, per_thread) != NULL);
        CHECK(ask(rows[i].base, rows[i].since, 2, 0) == dlsym(library, per_thread));
    }
}

static void test_every_row(void **state)
{
    scenario(every_row, "SIMCUDA_DRIVER=13050", NULL);
}

static void runtime_entry_points(void)
{
    void *function;
    enum cudaDriverEntryPointQueryResult status;
    OK(cudaGetDriverEntryPointByVersion("cuMemcpy", &function, 12040, 0, &status));
    CHECK(function == (void *)cuMemcpy && status == cudaDriverEntryPointSuccess);
    OK(cudaGetDriverEntryPointByVersion_ptsz("cuMemcpy", &function, 12040, 0, &status));
    CHECK(function == (void *)cuMemcpy_ptds);
    OK(cudaGetDriverEntryPointByVersion_ptsz("cuMemcpy", &function, 12040, 1, &status));
    CHECK(function == (void *)cuMemcpy);
    OK(cudaGetDriverEntryPoint("cuMemAlloc", &function, 0, NULL));
    CHECK(function == (void *)cuMemAlloc_v2);
    OK(cudaGetDriverEntryPoint("cuNoSuch", &function, 0, &status));
    CHECK(function == NULL && status == cudaDriverEntryPointSymbolNotFound);
}

static void test_runtime_entry_points(void **state)
{
    scenario(runtime_entry_points, NULL);
}

/* ------------------------------------------------------------------ contexts */

static void before_init(void)
{
    CUdeviceptr memory;
    CUcontext ctx;
    int count, version;
    CHECK_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQ(cuMemAlloc_v2(&memory, 1), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuDriverGetVersion(&version));
    CHECK_EQ(version, 13000);
    CHECK_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    OK(cuInit(0));
    OK(cuInit(0));
    CHECK_EQ(cuMemAlloc_v2(&memory, 1), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxGetCurrent(&ctx));
    CHECK(ctx == NULL);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&ctx, 1), CUDA_ERROR_INVALID_DEVICE);
}

static void test_before_init(void **state)
{
    scenario(before_init, NULL);
}

static size_t used(void)
{
    size_t own, other, total;
    OK(simcudaMemoryUsed(0, &own, &other, &total));
    return own;
}

static void contexts(void)
{
    CUcontext first = primary(), again, created, popped;
    CUdeviceptr memory;
    unsigned flags;
    int active;
    CHECK_EQ(used(), 10 * MIB);
    OK(cuDevicePrimaryCtxRetain(&again, 0)); /* charged once */
    CHECK(again == first);
    CHECK_EQ(used(), 10 * MIB);
    OK(cuCtxCreate_v2(&created, 0, 0)); /* a new context, which becomes current */
    CHECK_EQ(used(), 20 * MIB);
    OK(cuCtxGetCurrent(&again));
    CHECK(again == created);
    OK(cuMemAlloc_v2(&memory, 5 * MIB));
    CHECK_EQ(used(), 26 * MIB);
    OK(cuCtxDestroy_v2(created)); /* with all its memory */
    CHECK_EQ(used(), 10 * MIB);
    CHECK_EQ(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxGetCurrent(&again));
    CHECK(again == first);
    CHECK_EQ(cuCtxSetCurrent(created), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxPushCurrent_v2(first));
    OK(cuCtxPopCurrent_v2(&popped));
    CHECK(popped == first);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK_EQ(used(), 10 * MIB);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK_EQ(used(), 0);
    CHECK_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuMemAlloc_v2(&memory, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQ(active, 0);
}

static void test_contexts(void **state)
{
    scenario(contexts, "SIMCUDA_CONTEXT=10MiB", NULL);
}

static void *without_context(void *data)
{
    CUdeviceptr memory;
    void *from_runtime;
    CHECK_EQ(cuMemAlloc_v2(&memory, 1), CUDA_ERROR_INVALID_CONTEXT); /* each thread has its own current context */
    OK(cudaMalloc(&from_runtime, 1));                                /* the runtime sets its own context */
    OK(cuMemAlloc_v2(&memory, 1));
    return NULL;
}

static void context_of_thread(void)
{
    pthread_t thread;
    primary();
    CHECK_EQ(pthread_create(&thread, NULL, without_context, NULL), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(used(), 12 * MIB);
}

static void test_context_of_thread(void **state)
{
    scenario(context_of_thread, "SIMCUDA_CONTEXT=10MiB", NULL);
}

/* ------------------------------------------------------------------ old forms, queries */

static void old_forms(void)
{
    simcuda_ptr32 memory, base;
    unsigned free, total, size;
    char text[] = "thirty-two bits", back[sizeof text];
    primary();
    OK(cuMemAlloc(&memory, sizeof text));
    OK(cuMemcpyHtoD(memory, text, sizeof text));
    OK(cuMemcpyDtoH(back, memory, sizeof text));
    OK(strcmp(back, text));
    OK(cuMemsetD8(memory, 'z', 3));
    OK(cuMemcpyDtoH(back, memory, sizeof text));
    OK(strcmp(back, "zzzrty-two bits"));
    OK(cuMemGetAddressRange(&base, &size, memory + 2));
    CHECK_EQ(base, memory);
    CHECK_EQ(size, sizeof text);
    OK(cuMemGetInfo(&free, &total));
    CHECK_EQ(total, GIB);
    OK(cuMemFree(memory));
    CHECK_EQ(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
}

static void test_old_forms(void **state)
{
    scenario(old_forms, "SIMCUDA_MEMORY=1GiB", NULL);
}

static void questions(void)
{
    CUcontext ctx = primary(), of_pointer;
    CUdeviceptr memory, base;
    CUdevice device;
    CUuuid uuid[2];
    char name[64], bus[32];
    size_t size;
    unsigned type;
    int value;
    OK(cuDeviceGetName(name, sizeof name, 1));
    OK(strcmp(name, "Simulated GPU"));
    OK(cuDeviceGetUuid(&uuid[0], 0));
    OK(cuDeviceGetUuid_v2(&uuid[1], 1));
    CHECK(memcmp(&uuid[0], &uuid[1], sizeof uuid[0]) != 0);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
    OK(cuDeviceGetByPCIBusId(&device, bus));
    CHECK_EQ(device, 1);
    OK(cuDeviceTotalMem_v2(&size, 0));
    CHECK_EQ(size, 24 * GIB);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    CHECK_EQ(value, 1);
    CHECK_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemAlloc_v2(&memory, 12345));
    OK(cuMemGetAddressRange_v2(&base, &size, memory + 12344));
    CHECK(base == memory && size == 12345);
    CHECK_EQ(cuMemGetAddressRange_v2(&base, &size, memory + 12345), CUDA_ERROR_NOT_FOUND);
    OK(cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    CHECK(of_pointer == ctx);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 16), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemGetInfo_v2(NULL, &size)); /* happens */
}

static void test_questions(void **state)
{
    scenario(questions, "SIMCUDA_DEVICES=2", NULL);
}

CASES(test_proc_address, test_every_row, test_runtime_entry_points, test_before_init, test_contexts,
      test_context_of_thread, test_old_forms, test_questions)
