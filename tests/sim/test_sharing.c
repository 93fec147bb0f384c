/* Memory of another process and of other APIs; pools that are shared, and pools by location. */
#include "fixtures/simcuda/include/simcuda.h"
#include "tests/sim/scenario.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

static size_t used(void)
{
    size_t own, other, total;
    OK(simcudaMemoryUsed(0, &own, &other, &total));
    return own;
}

static void put(void *to, const char *text)
{
    OK(cudaMemcpy(to, text, strlen(text) + 1, cudaMemcpyHostToDevice));
    OK(cudaDeviceSynchronize()); /* staged data have not arrived yet */
}

static void expect(const void *from, const char *text)
{
    char back[64] = "";
    OK(cudaMemcpy(back, from, strlen(text) + 1, cudaMemcpyDeviceToHost));
    OK(strcmp(back, text));
}

/* ------------------------------------------------------------------ two processes */

static int peer; /* a socket */

static void say(const void *data, size_t size)
{
    CHECK_EQ(write(peer, data, size), size);
}

static void receive(void *data, size_t size)
{
    CHECK_EQ(recv(peer, data, size, MSG_WAITALL), size);
}

/* Runs one function here and the other in a process forked before CUDA is used. */
static void in_two_processes(void (*here)(void), void (*there)(void))
{
    int sockets[2], status;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    peer = sockets[child == 0];
    close(sockets[child != 0]);
    if (child == 0) {
        alarm(60);
        there();
        _exit(0);
    }
    here();
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static void send_fd(int fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    char byte = 'f';
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    CHECK_EQ(sendmsg(peer, &message, 0), 1);
}

static int receive_fd(void)
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
    CHECK_EQ(recvmsg(peer, &message, 0), 1);
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    return fd;
}

/* ------------------------------------------------------------------ CUDA IPC */

static void ipc_exporter(void)
{
    cudaIpcMemHandle_t handle, inside;
    void *memory, *small, *again, *pinned;
    char byte;
    OK(cudaMalloc(&small, 1000));
    OK(cudaMalloc(&memory, 1000)); /* in the same page */
    put(memory, "of the first");
    OK(cudaIpcGetMemHandle(&handle, memory));
    OK(cudaIpcGetMemHandle(&inside, (char *)memory + 10)); /* a handle for the whole allocation */
    OK(memcmp(&handle, &inside, sizeof handle));
    CHECK_EQ(cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess),
             cudaErrorDeviceUninitialized); /* not in the process that exported it */
    OK(cudaMallocHost(&pinned, 100));
    CHECK_EQ(cudaIpcGetMemHandle(&inside, pinned), cudaErrorInvalidValue);
    say(&handle, sizeof handle);
    receive(&byte, 1);
    expect(memory, "of the second");
    OK(cudaFree(memory));
    OK(cudaMalloc(&again, 1000));
    CHECK(again == memory);
    OK(cudaIpcGetMemHandle(&inside, again)); /* the same address, another allocation */
    CHECK(memcmp(&handle, &inside, sizeof handle) != 0);
}

static void ipc_importer(void)
{
    cudaIpcMemHandle_t handle, none = {{0}};
    CUdeviceptr base;
    size_t size;
    void *memory, *again;
    receive(&handle, sizeof handle);
    CHECK_EQ(cudaIpcOpenMemHandle(&memory, none, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaIpcOpenMemHandle(&memory, handle, 0), cudaErrorInvalidValue);
    OK(cudaFree(NULL));
    size_t before = used();
    OK(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    OK(cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess));
    CHECK(again == memory);
    CHECK_EQ(used(), before); /* it counts for the exporter */
    OK(cuMemGetAddressRange_v2(&base, &size, (uintptr_t)memory + 5));
    CHECK(base == (uintptr_t)memory && size == 1000);
    expect(memory, "of the first");
    put(memory, "of the second");
    CHECK_EQ(cudaFree(memory), cudaErrorInvalidValue);
    OK(cudaIpcCloseMemHandle(memory));
    expect(memory, "of the second"); /* opened once more */
    OK(cudaIpcCloseMemHandle(memory));
    CHECK_EQ(cudaIpcCloseMemHandle(memory), cudaErrorInvalidValue);
    say("x", 1);
}

static void ipc(void)
{
    in_two_processes(ipc_exporter, ipc_importer);
}

static void ipc_of_the_dead(void)
{
    cudaIpcMemHandle_t handle;
    void *memory;
    int ends[2], status;
    CHECK_EQ(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        OK(cudaMalloc(&memory, 100));
        OK(cudaIpcGetMemHandle(&handle, memory));
        CHECK_EQ(write(ends[1], &handle, sizeof handle), sizeof handle);
        _exit(0);
    }
    CHECK_EQ(read(ends[0], &handle, sizeof handle), sizeof handle);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorMapBufferObjectFailed);
}

static void event_exporter(void)
{
    cudaIpcEventHandle_t handle;
    cudaEvent_t event, timed;
    cudaStream_t stream;
    char byte;
    CHECK_EQ(cudaEventCreateWithFlags(&event, cudaEventInterprocess), cudaErrorInvalidValue);
    OK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    OK(cudaEventCreate(&timed));
    CHECK_EQ(cudaIpcGetEventHandle(&handle, timed), cudaErrorInvalidResourceHandle);
    OK(cudaIpcGetEventHandle(&handle, event));
    say(&handle, sizeof handle);
    receive(&byte, 1);
    OK(cudaStreamCreate(&stream));
    OK(simcudaLaunchBusy(stream, 300000));
    OK(cudaEventRecord(event, stream));
    say("r", 1);
    receive(&byte, 1); /* recorded there */
    OK(cudaEventSynchronize(event));
    OK(cudaEventQuery(event));
    OK(cudaDeviceSynchronize());
}

static void event_importer(void)
{
    cudaIpcEventHandle_t handle, none = {{0}};
    cudaEvent_t event, after;
    cudaStream_t stream;
    char byte;
    receive(&handle, sizeof handle);
    CHECK_EQ(cudaIpcOpenEventHandle(&event, none), cudaErrorInvalidResourceHandle);
    OK(cudaIpcOpenEventHandle(&event, handle));
    OK(cudaEventQuery(event)); /* never recorded */
    say("o", 1);
    receive(&byte, 1);
    CHECK_EQ(cudaEventQuery(event), cudaErrorNotReady);
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamWaitEvent(stream, event, 0));
    OK(cudaEventCreate(&after));
    OK(cudaEventRecord(after, stream));
    CHECK_EQ(cudaEventQuery(after), cudaErrorNotReady);
    OK(cudaEventSynchronize(event));
    OK(cudaEventQuery(event));
    OK(cudaEventSynchronize(after));
    OK(simcudaLaunchBusy(stream, 50000));
    OK(cudaEventRecord(event, stream));
    say("r", 1);
    OK(cudaEventSynchronize(event));
    OK(cudaEventDestroy(event));
}

static void ipc_events(void)
{
    in_two_processes(event_exporter, event_importer);
}

static void test_ipc(void **state)
{
    scenario(ipc, NULL);
    scenario(ipc_events, NULL);
    scenario(ipc_of_the_dead, NULL);
}

/* ------------------------------------------------------------------ pools */

static cudaMemPool_t shareable_pool(void)
{
    struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .handleTypes = cudaMemHandleTypePosixFileDescriptor,
        .location = {cudaMemLocationTypeDevice, 0},
    };
    cudaMemPool_t pool;
    OK(cudaMemPoolCreate(&pool, &props));
    return pool;
}

static void pool_exporter(void)
{
    struct cudaMemPoolPtrExportData data;
    cudaMemPool_t pool = shareable_pool(), plain;
    void *memory, *other;
    char byte;
    int fd = -1;
    OK(cudaMallocFromPoolAsync(&memory, 5000, pool, NULL));
    put(memory, "from the pool");
    OK(cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    OK(cudaMemPoolExportPointer(&data, memory));
    send_fd(fd);
    say(&data, sizeof data);
    OK(cudaDeviceGetDefaultMemPool(&plain, 0)); /* was not created for sharing */
    CHECK_EQ(cudaMemPoolExportToShareableHandle(&fd, plain, cudaMemHandleTypePosixFileDescriptor, 0),
             cudaErrorInvalidValue);
    OK(cudaMallocAsync(&other, 100, NULL));
    CHECK_EQ(cudaMemPoolExportPointer(&data, other), cudaErrorInvalidValue);
    receive(&byte, 1);
    expect(memory, "into the pool");
    OK(cudaFreeAsync(memory, NULL));
    OK(cudaMemPoolDestroy(pool));
}

static void pool_importer(void)
{
    struct cudaMemPoolPtrExportData data;
    cudaMemPool_t pool;
    void *memory, *again;
    OK(cudaFree(NULL));
    size_t before = used();
    int fd = receive_fd();
    receive(&data, sizeof data);
    OK(cudaMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, cudaMemHandleTypePosixFileDescriptor, 0));
    OK(cudaMemPoolImportPointer(&memory, pool, &data));
    expect(memory, "from the pool");
    put(memory, "into the pool");
    CHECK_EQ(cudaMallocFromPoolAsync(&again, 100, pool, NULL), cudaErrorInvalidValue);
    CHECK_EQ(cudaDeviceSetMemPool(0, pool), cudaErrorInvalidValue);
    OK(cudaMemPoolImportPointer(&again, pool, &data));
    OK(cudaFree(again));
    OK(cudaFreeAsync(memory, NULL));
    CHECK_EQ(cudaFreeAsync(memory, NULL), cudaErrorInvalidValue);
    OK(cudaMemPoolDestroy(pool));
    OK(cudaDeviceSynchronize());
    CHECK_EQ(used(), before);
    CHECK_EQ(cudaMemPoolImportFromShareableHandle(&pool, (void *)0, cudaMemHandleTypePosixFileDescriptor, 0),
             cudaErrorInvalidValue);
    say("x", 1);
}

static void shared_pool(void)
{
    in_two_processes(pool_exporter, pool_importer);
}

static void pool_access(void)
{
    struct cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 1}, cudaMemAccessFlagsProtReadWrite};
    struct cudaMemLocation first = {cudaMemLocationTypeDevice, 0}, second = access.location;
    enum cudaMemAccessFlags flags;
    cudaMemPool_t pool = shareable_pool();
    OK(cudaMemPoolGetAccess(&flags, pool, &first));
    CHECK_EQ(flags, cudaMemAccessFlagsProtReadWrite);
    OK(cudaMemPoolGetAccess(&flags, pool, &second));
    CHECK_EQ(flags, cudaMemAccessFlagsProtNone);
    OK(cudaMemPoolSetAccess(pool, &access, 1));
    OK(cudaMemPoolGetAccess(&flags, pool, &second));
    CHECK_EQ(flags, cudaMemAccessFlagsProtReadWrite);
    access = (struct cudaMemAccessDesc){first, cudaMemAccessFlagsProtNone};
    CHECK_EQ(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidValue);
    access.location.id = 2;
    CHECK_EQ(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidDevice);
}

static void pools_by_location(void)
{
    struct cudaMemLocation device = {cudaMemLocationTypeDevice, 0}, host = {cudaMemLocationTypeHost, 0},
                           node = {cudaMemLocationTypeHostNuma, 0};
    cudaMemPool_t pool, again, created;
    struct cudaPointerAttributes attributes;
    void *memory;
    OK(cudaFree(NULL));
    OK(cudaMemGetDefaultMemPool(&pool, &device, cudaMemAllocationTypePinned));
    OK(cudaDeviceGetDefaultMemPool(&again, 0));
    CHECK(pool == again);
    size_t before = used();
    OK(cudaMemGetDefaultMemPool(&pool, &host, cudaMemAllocationTypePinned));
    OK(cudaMemGetMemPool(&again, &host, cudaMemAllocationTypePinned));
    CHECK(pool == again);
    OK(cudaMallocFromPoolAsync(&memory, MIB, pool, NULL));
    CHECK_EQ(used(), before); /* the host's memory */
    OK(cudaPointerGetAttributes(&attributes, memory));
    CHECK_EQ(attributes.type, cudaMemoryTypeHost);
    strcpy(memory, "touched");
    OK(cudaFreeAsync(memory, NULL));
    OK(cudaMemGetDefaultMemPool(&pool, &device, cudaMemAllocationTypeManaged));
    OK(cudaMallocFromPoolAsync(&memory, MIB, pool, NULL));
    OK(cudaPointerGetAttributes(&attributes, memory));
    CHECK_EQ(attributes.type, cudaMemoryTypeManaged);
    OK(cudaFree(memory));
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned, .location = node};
    OK(cudaMemPoolCreate(&created, &props));
    CHECK_EQ(cudaMemSetMemPool(&host, cudaMemAllocationTypePinned, created), cudaErrorInvalidValue);
    OK(cudaMemSetMemPool(&node, cudaMemAllocationTypePinned, created));
    OK(cudaMemGetMemPool(&again, &node, cudaMemAllocationTypePinned));
    CHECK(again == created);
    OK(cudaMemPoolDestroy(created));
    OK(cudaMemGetMemPool(&again, &node, cudaMemAllocationTypePinned));
    OK(cudaMemGetDefaultMemPool(&pool, &node, cudaMemAllocationTypePinned));
    CHECK(again == pool); /* the default one again */
    OK(cudaMemPoolCreate(&created, &(struct cudaMemPoolProps){.allocType = 1, .location = device}));
    OK(cudaMemSetMemPool(&device, cudaMemAllocationTypePinned, created));
    OK(cudaDeviceGetMemPool(&again, 0));
    CHECK(again == created);
    struct cudaMemLocation nowhere = {cudaMemLocationTypeInvalid, 0};
    CHECK_EQ(cudaMemGetMemPool(&again, &nowhere, cudaMemAllocationTypePinned), cudaErrorInvalidValue);
    OK(cudaMemGetDefaultMemPool(&again, &nowhere, cudaMemAllocationTypeManaged));
}

static void test_pools(void **state)
{
    scenario(shared_pool, NULL);
    scenario(pool_access, "SIMCUDA_DEVICES=2", NULL);
    scenario(pools_by_location, NULL);
}

/* ------------------------------------------------------------------ external memory, semaphores */

static void external(void)
{
    struct cudaExternalMemoryHandleDesc memory = {.type = cudaExternalMemoryHandleTypeOpaqueFd};
    struct cudaExternalMemoryBufferDesc buffer = {.offset = 4096, .size = 8192};
    cudaExternalMemory_t imported;
    void *pointer, *whole;
    int fd = memfd_create("other API", 0);
    CHECK_EQ(ftruncate(fd, 16384), 0);
    char *theirs = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    strcpy(theirs + 4096, "theirs");
    OK(cudaFree(NULL));
    size_t before = used();
    memory.handle.fd = fd;
    CHECK_EQ(cudaImportExternalMemory(&imported, &memory), cudaErrorInvalidValue); /* no size */
    memory.size = 16385;
    CHECK_EQ(cudaImportExternalMemory(&imported, &memory), cudaErrorInvalidValue);
    memory.size = 16384;
    memory.handle.fd = 9999;
    CHECK_EQ(cudaImportExternalMemory(&imported, &memory), cudaErrorOperatingSystem);
    memory.type = cudaExternalMemoryHandleTypeOpaqueWin32;
    CHECK_EQ(cudaImportExternalMemory(&imported, &memory), cudaErrorNotSupported);
    memory.type = cudaExternalMemoryHandleTypeOpaqueFd;
    memory.handle.fd = fd;
    OK(cudaImportExternalMemory(&imported, &memory));
    CHECK_EQ(fcntl(fd, F_GETFD), -1); /* the descriptor now belongs to CUDA */
    OK(cudaExternalMemoryGetMappedBuffer(&pointer, imported, &buffer));
    CHECK_EQ(used(), before);
    expect(pointer, "theirs");
    put(pointer, "ours");
    OK(strcmp(theirs + 4096, "ours"));
    CHECK_EQ(cudaMemset((char *)pointer + 8192, 0, 1), cudaErrorInvalidValue);
    buffer.offset = 12288;
    CHECK_EQ(cudaExternalMemoryGetMappedBuffer(&whole, imported, &buffer), cudaErrorInvalidValue);
    buffer = (struct cudaExternalMemoryBufferDesc){.size = 16384};
    OK(cudaExternalMemoryGetMappedBuffer(&whole, imported, &buffer));
    expect((char *)whole + 4096, "ours");
    OK(cudaFree(whole));
    OK(cudaDestroyExternalMemory(imported));
    CHECK_EQ(cudaDestroyExternalMemory(imported), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaExternalMemoryGetMappedBuffer(&whole, imported, &buffer), cudaErrorInvalidResourceHandle);
    expect(pointer, "ours"); /* until it is freed */
    OK(cudaFree(pointer));
}

static void external_semaphores(void)
{
    struct cudaExternalSemaphoreHandleDesc description = {.type = cudaExternalSemaphoreHandleTypeTimelineSemaphoreFd};
    cudaExternalSemaphore_t semaphore;
    description.handle.fd = eventfd(0, 0);
    OK(cudaImportExternalSemaphore(&semaphore, &description));
    struct cudaExternalSemaphoreSignalParams signal = {0};
    struct cudaExternalSemaphoreWaitParams wait = {0};
    OK(cudaSignalExternalSemaphoresAsync(&semaphore, &signal, 1, NULL));
    OK(cudaWaitExternalSemaphoresAsync(&semaphore, &wait, 1, NULL));
    OK(cudaDestroyExternalSemaphore(semaphore));
    CHECK_EQ(cudaSignalExternalSemaphoresAsync(&semaphore, &signal, 1, NULL), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaDestroyExternalSemaphore(semaphore), cudaErrorInvalidResourceHandle);
}

/* Destroying a context removes such mappings. */
static void external_and_contexts(void)
{
    struct cudaExternalMemoryHandleDesc memory = {.type = cudaExternalMemoryHandleTypeOpaqueFd, .size = 4096};
    struct cudaExternalMemoryBufferDesc buffer = {.size = 4096};
    cudaExternalMemory_t imported;
    void *pointer;
    memory.handle.fd = memfd_create("other API", 0);
    CHECK_EQ(ftruncate(memory.handle.fd, 4096), 0);
    OK(cudaImportExternalMemory(&imported, &memory));
    OK(cudaExternalMemoryGetMappedBuffer(&pointer, imported, &buffer));
    OK(cudaDeviceReset());
    CHECK_EQ(cudaFree(pointer), cudaErrorInvalidValue);
}

static void test_external(void **state)
{
    scenario(external, NULL);
    scenario(external_semaphores, NULL);
    scenario(external_and_contexts, NULL);
}

/* ------------------------------------------------------------------ graphics */

static void graphics(void)
{
    cudaGraphicsResource_t resource = NULL;
    void *memory;
    size_t size;
    cudaEvent_t event;
    CHECK_EQ(cudaGraphicsMapResources(1, &resource, NULL), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaGraphicsUnmapResources(1, &resource, NULL), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaGraphicsResourceGetMappedPointer(&memory, &size, resource), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaGLMapBufferObject(&memory, 1), cudaErrorMapBufferObjectFailed);
    CHECK_EQ(cudaEventCreateFromEGLSync(&event, NULL, 0), cudaErrorNotSupported);
}

static void test_graphics(void **state)
{
    scenario(graphics, NULL);
}

CASES(test_ipc, test_pools, test_external, test_graphics)
