/* Virtual memory management: reservations, handles, mappings, access; multicast; attributes of pointers to mapped
 * memory; advice on managed memory. */
#include "fixtures/simcuda/include/simcuda.h"
#include "tests/sim/scenario.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>

#define PAGE ((size_t)2 * MIB)

static CUcontext primary(void)
{
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

/* A program cannot reserve a tebibyte with ThreadSanitizer; qemu-user notes each of its pages, which takes a minute. */
#ifdef __SANITIZE_THREAD__
#define MUCH (16 * GIB)
#else
#define MUCH ((getenv("EMULATED") ? 16 : 1024) * GIB)
#endif

static size_t used_on(int device)
{
    size_t own, other, total;
    OK(simcudaMemoryUsed(device, &own, &other, &total));
    return own;
}

static CUmemAllocationProp on_device(int device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
}

static CUmemAllocationProp exportable(void)
{
    CUmemAllocationProp prop = on_device(0);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

static CUmemGenericAllocationHandle create(const CUmemAllocationProp *prop, size_t size)
{
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, size, prop, 0));
    CHECK(handle != 0);
    return handle;
}

static CUdeviceptr reserve(size_t size)
{
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, size, 0, 0, 0));
    CHECK(address != 0 && address % PAGE == 0);
    return address;
}

static void allow(CUdeviceptr address, size_t size, int device)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(address, size, &access, 1));
}

static CUdeviceptr map_all(CUmemGenericAllocationHandle handle, size_t size)
{
    CUdeviceptr address = reserve(size);
    OK(cuMemMap(address, size, 0, handle, 0));
    allow(address, size, 0);
    return address;
}

static void put(CUdeviceptr to, const char *text)
{
    OK(cuMemcpyHtoD_v2(to, text, strlen(text) + 1));
}

static void expect(CUdeviceptr from, const char *text)
{
    char back[64] = "";
    OK(cuMemcpyDtoH_v2(back, from, strlen(text) + 1));
    OK(strcmp(back, text));
}

/* ------------------------------------------------------------------ counted and released */

static void accounting(void)
{
    primary();
    size_t before = used_on(0);
    CUmemAllocationProp prop = on_device(0);
    size_t granularity = 0;
    OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_EQ(granularity, PAGE);
    CUdeviceptr address = reserve(MUCH); /* addresses cost nothing */
    CHECK_EQ(used_on(0), before);
    CUmemGenericAllocationHandle handle = create(&prop, 3 * PAGE), again;
    CHECK_EQ(used_on(0), before + 3 * PAGE);
    OK(cuMemMap(address, 3 * PAGE, 0, handle, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + PAGE + 1)));
    CHECK_EQ(again, handle);
    OK(cuMemRelease(handle)); /* the mapping and the second reference keep it */
    OK(cuMemRelease(handle));
    CHECK_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(used_on(0), before + 3 * PAGE);
    allow(address, 3 * PAGE, 0);
    put(address, "still there");
    expect(address, "still there");
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    OK(cuMemUnmap(address, 3 * PAGE));
    CHECK_EQ(used_on(0), before + 3 * PAGE);
    OK(cuMemRelease(again));
    CHECK_EQ(used_on(0), before);
    OK(cuMemAddressFree(address, MUCH));
    CHECK_EQ(cuMemAddressFree(address, MUCH), CUDA_ERROR_INVALID_VALUE);
}

static void out_of_memory(void)
{
    primary();
    CUmemAllocationProp prop = on_device(0), host = on_device(0);
    host.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    CUmemGenericAllocationHandle handle = 77, most = create(&prop, 40 * PAGE);
    CHECK_EQ(cuMemCreate(&handle, 40 * PAGE, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(handle, 77);
    OK(cuMemCreate(&handle, 400 * PAGE, &host, 0)); /* not the device's memory */
    CHECK_EQ(used_on(0), 40 * PAGE + 10 * MIB);
    OK(cuMemRelease(most));
    CUdeviceptr pooled;
    CUmemoryPool pool;
    uint64_t everything = UINT64_MAX;
    OK(cuDeviceGetMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
    OK(cuMemAllocAsync(&pooled, 90 * MIB, NULL));
    OK(cuMemFreeAsync(pooled, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK_EQ(used_on(0), 100 * MIB);
    create(&prop, 40 * PAGE); /* a pool releases what it only reserves */
}

static void refused(void)
{
    primary();
    CUmemAllocationProp prop = on_device(0), other;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    CHECK_EQ(cuMemCreate(NULL, PAGE, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&handle, PAGE + 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&handle, PAGE, &prop, 1), CUDA_ERROR_INVALID_VALUE);
    other = on_device(1);
    CHECK_EQ(cuMemCreate(&handle, PAGE, &other, 0), CUDA_ERROR_INVALID_DEVICE);
    other = exportable();
    other.location.type = CU_MEM_LOCATION_TYPE_HOST; /* which cannot be exported */
    CHECK_EQ(cuMemCreate(&handle, PAGE, &other, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&address, PAGE, 3 * PAGE, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&address, 100, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&address, (size_t)1 << 60, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    handle = create(&prop, 2 * PAGE);
    address = reserve(4 * PAGE);
    CHECK_EQ(cuMemMap(address, 2 * PAGE, 0, handle + 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(address, 4 * PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(address + 3 * PAGE, 2 * PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(address + 4 * PAGE, PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address, 2 * PAGE, 0, handle, 0));
    CHECK_EQ(cuMemMap(address + PAGE, 2 * PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemUnmap(address, PAGE), CUDA_ERROR_INVALID_VALUE);           /* not a part of a mapping */
    CHECK_EQ(cuMemAddressFree(address, 4 * PAGE), CUDA_ERROR_INVALID_VALUE); /* still mapped */
    CHECK_EQ(cuMemAddressFree(address, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    int fd = 0;
    CHECK_EQ(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             CUDA_ERROR_INVALID_VALUE); /* created without this property */
    CHECK_EQ(cuMemGetHandleForAddressRange(&fd, address, PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
             CUDA_ERROR_INVALID_VALUE); /* no access yet */
    allow(address, 2 * PAGE, 0);
    CHECK_EQ(cuMemGetHandleForAddressRange(&fd, address, PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
             CUDA_ERROR_NOT_SUPPORTED);
}

static void test_accounting(void **state)
{
    scenario(accounting, NULL);
    scenario(out_of_memory, "SIMCUDA_MEMORY=120MiB", "SIMCUDA_CONTEXT=10MiB", NULL);
    scenario(refused, NULL);
}

/* ------------------------------------------------------------------ the same bytes */

static void two_mappings(void)
{
    primary();
    CUmemAllocationProp prop = on_device(0);
    CUmemGenericAllocationHandle handle = create(&prop, PAGE);
    CUdeviceptr first = map_all(handle, PAGE), second = map_all(handle, PAGE);
    CHECK(first != second);
    put(first + 100, "seen twice");
    expect(second + 100, "seen twice");
    OK(cuMemUnmap(first, PAGE));
    expect(second + 100, "seen twice");
    OK(cuMemMap(first, PAGE, 0, handle, 0));
    allow(first, PAGE, 0);
    expect(first + 100, "seen twice");
}

/* Like an expandable allocator: many adjacent handles, and copies across them. */
static void across_mappings(void)
{
    enum { COUNT = 5 };
    primary();
    CUmemAllocationProp prop = on_device(0);
    CUmemGenericAllocationHandle handles[COUNT];
    CUdeviceptr address = reserve(COUNT * PAGE + PAGE);
    for (int i = 0; i < COUNT; i++) {
        handles[i] = create(&prop, PAGE);
        OK(cuMemMap(address + (size_t)i * PAGE, PAGE, 0, handles[i], 0));
    }
    CHECK_EQ(cuMemsetD8_v2(address, 1, PAGE), CUDA_ERROR_INVALID_VALUE); /* no access */
    allow(address, COUNT * PAGE, 0);
    OK(cuMemsetD8_v2(address, 7, COUNT * PAGE));
    put(address + 2 * PAGE - 5, "over the edge");
    expect(address + 2 * PAGE - 5, "over the edge");
    CHECK_EQ(cuMemsetD8_v2(address + PAGE, 7, COUNT * PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD8_v2(address + COUNT * PAGE, 7, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(address + PAGE, 2 * PAGE)); /* several whole ones */
    CHECK_EQ(cuMemsetD8_v2(address, 7, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD8_v2(address, 7, PAGE));
    CHECK_EQ(cuMemUnmap(address, COUNT * PAGE), CUDA_ERROR_INVALID_VALUE); /* there is a hole */
    for (int i = 0; i < COUNT; i++) OK(cuMemRelease(handles[i]));
    CHECK_EQ(used_on(0), 3 * PAGE + 512 * MIB);
}

static void access_rights(void)
{
    primary();
    CUmemAllocationProp prop = on_device(0);
    CUdeviceptr address = reserve(2 * PAGE);
    OK(cuMemMap(address, 2 * PAGE, 0, create(&prop, 2 * PAGE), 0));
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    unsigned long long flags = 9;
    OK(cuMemGetAccess(&flags, &here, address));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemAccessDesc both[] = {{here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, {there, CU_MEM_ACCESS_FLAGS_PROT_READ}};
    CHECK_EQ(cuMemSetAccess(address, PAGE, both, 2), CUDA_ERROR_INVALID_VALUE); /* a part */
    OK(cuMemSetAccess(address, 2 * PAGE, both, 2));
    OK(cuMemGetAccess(&flags, &here, address + PAGE));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemGetAccess(&flags, &there, address));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    put(address, "x");
    both[0].flags = both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemSetAccess(address, 2 * PAGE, both, 2));
    CHECK_EQ(cuMemsetD8_v2(address, 7, 1), CUDA_ERROR_INVALID_VALUE);
    both[0].location.id = 2;
    CHECK_EQ(cuMemSetAccess(address, 2 * PAGE, both, 1), CUDA_ERROR_INVALID_DEVICE);
    both[0].location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}; /* device memory */
    CHECK_EQ(cuMemSetAccess(address, 2 * PAGE, both, 1), CUDA_ERROR_INVALID_VALUE);
}

static void of_the_host(void)
{
    primary();
    CUmemAllocationProp prop = on_device(0);
    prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0};
    CUdeviceptr address = reserve(PAGE), memory;
    OK(cuMemMap(address, PAGE, 0, create(&prop, PAGE), 0));
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(address, PAGE, &access, 1));
    strcpy((char *)(uintptr_t)address, "from the host");
    OK(cuMemAlloc_v2(&memory, 100));
    OK(cuMemcpyHtoD_v2(memory, (void *)(uintptr_t)address, 20));
    expect(memory, "from the host");
    unsigned type = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CHECK_EQ(type, CU_MEMORYTYPE_HOST);
    struct cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, (void *)(uintptr_t)address));
    CHECK_EQ(attributes.type, cudaMemoryTypeHost);
}

static void test_mappings(void **state)
{
    scenario(two_mappings, NULL);
    scenario(across_mappings, NULL);
    scenario(access_rights, "SIMCUDA_DEVICES=2", NULL);
    scenario(of_the_host, NULL);
}

/* Unmapping waits for operations that may still use the memory, as the manual allows. */
static void busy_unmap(void)
{
    primary();
    CUmemAllocationProp prop = on_device(0);
    CUdeviceptr address = map_all(create(&prop, PAGE), PAGE);
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(simcudaLaunchBusy(stream, 500));
    OK(cuMemsetD8Async(address, 1, PAGE, stream));
    OK(cuMemUnmap(address, PAGE));
    OK(cuStreamQuery(stream));
}

static void test_busy_unmap(void **state)
{
    scenario(busy_unmap, NULL);
    scenario(busy_unmap, "SIMCUDA_CLOCK=virtual", NULL);
}

/* ------------------------------------------------------------------ export and import */

static int export(CUmemGenericAllocationHandle handle)
{
    int fd = -1;
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(fd >= 0);
    return fd;
}

static CUmemGenericAllocationHandle import(int fd)
{
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return handle;
}

static void within_the_process(void)
{
    primary();
    size_t before = used_on(0);
    CUmemAllocationProp prop = exportable(), back;
    CUmemGenericAllocationHandle handle = create(&prop, PAGE);
    int fd = export(handle);
    CUmemGenericAllocationHandle imported = import(fd);
    CHECK_EQ(used_on(0), before + PAGE); /* one allocation, two handles */
    CUdeviceptr first = map_all(handle, PAGE), second = map_all(imported, PAGE);
    put(first, "one memory");
    expect(second, "one memory");
    OK(cuMemGetAllocationPropertiesFromHandle(&back, imported));
    CHECK(back.location.type == CU_MEM_LOCATION_TYPE_DEVICE && back.location.id == 0 &&
          back.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    OK(cuMemUnmap(first, PAGE));
    OK(cuMemUnmap(second, PAGE));
    OK(cuMemRelease(handle));
    CHECK_EQ(used_on(0), before + PAGE);
    OK(cuMemRelease(imported));
    CHECK_EQ(used_on(0), before);
    imported = import(fd); /* the descriptor kept it */
    CHECK_EQ(used_on(0), before + PAGE);
    expect(map_all(imported, PAGE), "one memory");
    close(fd);
    fd = open("/dev/null", O_RDWR);
    CHECK_EQ(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
             CUDA_ERROR_INVALID_VALUE);
}

static void send_fd(int socket, int fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {{0}};
    char byte = 'f';
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    CHECK_EQ(sendmsg(socket, &message, 0), 1);
}

static int receive_fd(int socket)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    int fd;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(socket, &message, 0), 1);
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    return fd;
}

static void other_process(int socket)
{
    char byte;
    primary();
    size_t before = used_on(0);
    int fd = receive_fd(socket);
    CUmemGenericAllocationHandle handle = import(fd);
    CHECK_EQ(used_on(0), before); /* it counts for the exporter */
    CUdeviceptr address = map_all(handle, PAGE);
    expect(address, "from there");
    put(address, "and back");
    OK(cuCtxSynchronize());
    CHECK_EQ(write(socket, "d", 1), 1);
    CHECK_EQ(read(socket, &byte, 1), 1); /* by then it has released the memory */
    expect(address, "and back");
}

static void between_processes(void)
{
    int sockets[2], status;
    char byte;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    pid_t child = fork(); /* before CUDA is used, as it must be */
    if (child == 0) {
        alarm(60);
        other_process(sockets[1]);
        _exit(0);
    }
    close(sockets[1]);
    primary();
    CUmemAllocationProp prop = exportable();
    CUmemGenericAllocationHandle handle = create(&prop, PAGE);
    CUdeviceptr address = map_all(handle, PAGE);
    put(address, "from there");
    OK(cuCtxSynchronize()); /* staged data have not arrived yet */
    send_fd(sockets[0], export(handle));
    CHECK_EQ(read(sockets[0], &byte, 1), 1);
    expect(address, "and back");
    OK(cuMemUnmap(address, PAGE));
    OK(cuMemRelease(handle));
    CHECK_EQ(write(sockets[0], "g", 1), 1);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static void test_export(void **state)
{
    scenario(within_the_process, NULL);
    scenario(between_processes, NULL);
}

/* ------------------------------------------------------------------ attributes of pointers */

static void pointers(void)
{
    primary();
    CUmemAllocationProp prop = exportable();
    CUdeviceptr address = reserve(4 * PAGE), base;
    OK(cuMemMap(address + PAGE, 2 * PAGE, 0, create(&prop, 2 * PAGE), 0));
    allow(address + PAGE, 2 * PAGE, 0);
    CUdeviceptr inside = address + PAGE + 10;
    size_t size;
    unsigned value, access;
    unsigned long long types;
    int device;
    CUcontext ctx = (CUcontext)8;
    OK(cuMemGetAddressRange_v2(&base, &size, inside)); /* the mapping */
    CHECK(base == address + PAGE && size == 2 * PAGE);
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    CHECK(base == address && size == 4 * PAGE); /* the reservation */
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside));
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
    CHECK(base == address + PAGE && size == 2 * PAGE);
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
                                    CU_POINTER_ATTRIBUTE_CONTEXT};
    void *data[] = {&value, &device, &types, &access, &ctx};
    OK(cuPointerGetAttributes(5, wanted, data, inside));
    CHECK(value == CU_MEMORYTYPE_DEVICE && device == 0 && types == 1 && access == 3 && ctx == NULL);
    OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MAPPED, inside));
    CHECK_EQ(value, 1);
    OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MAPPED, address)); /* only reserved */
    CHECK_EQ(value, 0);
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
    CHECK_EQ(size, 4 * PAGE);
    CHECK_EQ(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetAddressRange_v2(&base, &size, address), CUDA_ERROR_NOT_FOUND);
}

static void test_pointers(void **state)
{
    scenario(pointers, NULL);
}

/* ------------------------------------------------------------------ multicast */

static CUmemGenericAllocationHandle team;

static void *add_second(void *data)
{
    usleep(20000);
    OK(cuMulticastAddDevice(team, 1));
    return NULL;
}

static void multicast(void)
{
    primary();
    CUmulticastObjectProp object = {.numDevices = 2, .size = 4 * PAGE};
    CUmemAllocationProp first = on_device(0), second = on_device(1);
    CUmemGenericAllocationHandle here = create(&first, 2 * PAGE), there = create(&second, 2 * PAGE);
    size_t granularity, before = used_on(1);
    pthread_t thread;
    OK(cuMulticastGetGranularity(&granularity, &object, CU_MULTICAST_GRANULARITY_MINIMUM));
    CHECK_EQ(granularity, PAGE);
    OK(cuMulticastCreate(&team, &object));
    OK(cuMulticastAddDevice(team, 0));
    CHECK_EQ(cuMulticastAddDevice(team, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(pthread_create(&thread, NULL, add_second, NULL), 0);
    OK(cuMulticastBindMem(team, 0, here, 0, 2 * PAGE, 0)); /* waits for the other device */
    pthread_join(thread, NULL);
    CHECK_EQ(cuMulticastBindMem(team, PAGE, here, 0, PAGE, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastBindMem(team, 0, there, 0, 2 * PAGE, 0));
    OK(cuMemRelease(there));
    CHECK_EQ(used_on(1), before); /* bound memory stays */
    CUdeviceptr address = reserve(4 * PAGE), memory = map_all(here, 2 * PAGE);
    OK(cuMulticastBindAddr(team, 2 * PAGE, memory, PAGE, 0));
    OK(cuMemMap(address, 4 * PAGE, 0, team, 0));
    allow(address, 4 * PAGE, 1);
    CHECK_EQ(cuMulticastUnbind(team, 1, 0, PAGE), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastUnbind(team, 1, 0, 2 * PAGE));
    CHECK_EQ(used_on(1), before - 2 * PAGE);
    CHECK_EQ(cuMulticastBindMem(here, 0, there, 0, PAGE, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(address, 4 * PAGE));
    OK(cuMemRelease(team));
    object.numDevices = 3;
    CHECK_EQ(cuMulticastCreate(&team, &object), CUDA_ERROR_INVALID_VALUE);
}

static void test_multicast(void **state)
{
    scenario(multicast, "SIMCUDA_DEVICES=2", NULL);
}

/* ------------------------------------------------------------------ advice */

static int asked(CUmem_range_attribute attribute, CUdeviceptr address, size_t size)
{
    int value = 99;
    OK(cuMemRangeGetAttribute(&value, sizeof value, attribute, address, size));
    return value;
}

static void advice(void)
{
    CUdeviceptr memory, plain;
    int accessors[3];
    primary();
    OK(cuMemAllocManaged(&memory, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(asked(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, MIB), CU_DEVICE_INVALID);
    OK(cuMemAdvise(memory, 2 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    CHECK_EQ(asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 2 * MIB), 1);
    CHECK_EQ(asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 2 * MIB + 1), 0);
    CHECK_EQ(asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory + 2 * MIB, MIB), 0);
    OK(cuMemAdvise(memory + MIB, MIB, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
    CHECK_EQ(asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, MIB), 1);
    CHECK_EQ(asked(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory + MIB, MIB), 0);
    OK(cuMemAdvise(memory, 4 * MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 1));
    OK(cuMemAdvise(memory, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU));
    OK(cuMemRangeGetAttribute(accessors, sizeof accessors, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, MIB));
    CHECK(accessors[0] == 1 && accessors[1] == CU_DEVICE_CPU && accessors[2] == CU_DEVICE_INVALID);
    OK(cuMemPrefetchAsync(memory, 4 * MIB, 1, NULL));
    CHECK_EQ(asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory + 3 * MIB, MIB), 1);
    OK(cuMemPrefetchAsync(memory, MIB, CU_DEVICE_CPU, NULL));
    CHECK_EQ(asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, MIB), CU_DEVICE_CPU);
    CHECK_EQ(asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, 2 * MIB), CU_DEVICE_INVALID);
    CHECK_EQ(asked(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, memory, MIB), CU_MEM_LOCATION_TYPE_HOST);
    OK(cuMemAlloc_v2(&plain, MIB));
    CHECK_EQ(cuMemRangeGetAttribute(accessors, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, 1),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemRangeGetAttribute(accessors, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 1),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(memory));
}

static void test_advice(void **state)
{
    scenario(advice, "SIMCUDA_DEVICES=2", NULL);
}

CASES(test_accounting, test_mappings, test_busy_unmap, test_export, test_pointers, test_multicast, test_advice)
