/* Order and time: which calls wait for what, with the virtual clock, so that every duration is exact. */
#include "fixtures/simcuda/include/simcuda.h"
#include "tests/sim/scenario.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#define VIRTUAL "SIMCUDA_CLOCK=virtual", "SIMCUDA_PCIE=1GB/s", "SIMCUDA_HBM=100GB/s"

/* The model's time for a megabyte (10^6 bytes) at these bandwidths. */
#define MEGABYTE ((size_t)1000000)
#define PINNED_MS (4 * MICROSECOND + 1000 * MICROSECOND)
#define PAGEABLE_MS (4 * MICROSECOND + 2000 * MICROSECOND)
#define LOCAL_MS (2 * MICROSECOND + 20 * MICROSECOND)
#define SET_MS (2 * MICROSECOND + 10 * MICROSECOND)

static int64_t now(void)
{
    int64_t time;
    OK(simcudaNow(&time));
    return time;
}

/* The virtual time that a call takes on the host. */
#define TIME_OF(call)            \
    ({                           \
        int64_t before_ = now(); \
        OK(call);                \
        now() - before_;         \
    })

static void *device, *device2, *pinned, *pageable;

static void get_memory(void)
{
    OK(cudaMalloc(&device, MEGABYTE));
    OK(cudaMalloc(&device2, MEGABYTE));
    OK(cudaMallocHost(&pinned, MEGABYTE));
    pageable = malloc(MEGABYTE);
    memset(pageable, 1, MEGABYTE);
}

/* ------------------------------------------------------------------ blocking */

static void synchronous_copies(void)
{
    get_memory();
    CHECK_EQ(TIME_OF(cudaMemcpy(device, pinned, MEGABYTE, cudaMemcpyHostToDevice)), PINNED_MS);
    CHECK_EQ(TIME_OF(cudaMemcpy(pinned, device, MEGABYTE, cudaMemcpyDeviceToHost)), PINNED_MS);
    CHECK_EQ(TIME_OF(cudaMemcpy(device, pageable, MEGABYTE, cudaMemcpyHostToDevice)), PAGEABLE_MS);
    CHECK_EQ(TIME_OF(cudaMemcpy(pageable, device, MEGABYTE, cudaMemcpyDeviceToHost)), PAGEABLE_MS);
    CHECK_EQ(TIME_OF(cudaMemcpy(device, device2, MEGABYTE, cudaMemcpyDeviceToDevice)), 0);
    CHECK_EQ(TIME_OF(cudaDeviceSynchronize()), LOCAL_MS);
    CHECK_EQ(TIME_OF(cudaMemset(device, 0, MEGABYTE)), 0);
    CHECK_EQ(TIME_OF(cudaDeviceSynchronize()), SET_MS);
    CHECK_EQ(TIME_OF(cudaMemset(pinned, 0, MEGABYTE)), SET_MS); /* host memory: it waits */
    /* A small pageable one waits for the stream, then returns when its source has been staged. */
    OK(simcudaLaunchBusy(NULL, 700));
    CHECK_EQ(TIME_OF(cudaMemcpy(device, pageable, 1000, cudaMemcpyHostToDevice)), 700 * MICROSECOND);
    CHECK_EQ(TIME_OF(cudaDeviceSynchronize()), 4 * MICROSECOND + 2 * MICROSECOND);
}

static void test_synchronous_copies(void **state)
{
    scenario(synchronous_copies, VIRTUAL, NULL);
}

static void asynchronous_copies(void)
{
    cudaStream_t stream;
    get_memory();
    OK(cudaStreamCreate(&stream));
    CHECK_EQ(TIME_OF(cudaMemcpyAsync(device, pinned, MEGABYTE, cudaMemcpyHostToDevice, stream)), 0);
    CHECK_EQ(TIME_OF(cudaMemcpyAsync(pinned, device, MEGABYTE, cudaMemcpyDeviceToHost, stream)), 0);
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(stream)), 2 * PINNED_MS);
    CHECK_EQ(TIME_OF(cudaMemcpyAsync(device, pageable, MEGABYTE, cudaMemcpyHostToDevice, stream)), PAGEABLE_MS);
    CHECK_EQ(TIME_OF(cudaMemcpyAsync(pageable, device, MEGABYTE, cudaMemcpyDeviceToHost, stream)), PAGEABLE_MS);
    CHECK_EQ(TIME_OF(cudaMemcpyAsync(device, pageable, 1000, cudaMemcpyHostToDevice, stream)), 0);
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(TIME_OF(cudaMemcpyAsync(pinned, pageable, MEGABYTE, cudaMemcpyHostToHost, stream)), PINNED_MS);
    /* The caller may change the staged source at once. */
    char text[] = "before", back[sizeof text];
    OK(cudaMemcpyAsync(device, text, sizeof text, cudaMemcpyHostToDevice, stream));
    memcpy(text, "after!", sizeof text);
    OK(cudaMemcpy(back, device, sizeof text, cudaMemcpyDeviceToHost));
    OK(strcmp(back, "before"));
}

static void test_asynchronous_copies(void **state)
{
    scenario(asynchronous_copies, VIRTUAL, NULL);
}

static void frees_wait(void)
{
    cudaStream_t stream;
    void *pooled;
    get_memory();
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMallocAsync(&pooled, 1000, stream));
    OK(simcudaLaunchBusy(stream, 500));
    CHECK_EQ(TIME_OF(cudaFreeAsync(pooled, stream)), 0);
    CHECK_EQ(TIME_OF(cudaMalloc(&pooled, 1000)), 0);
    CHECK_EQ(TIME_OF(cudaFree(device)), 500 * MICROSECOND); /* waits for the device */
    OK(simcudaLaunchBusy(stream, 500));
    CHECK_EQ(TIME_OF(cudaFreeHost(pinned)), 500 * MICROSECOND);
    OK(simcudaLaunchBusy(stream, 500));
    CHECK_EQ(TIME_OF(cudaStreamDestroy(stream)), 0); /* its operations continue */
    CHECK_EQ(TIME_OF(cudaDeviceSynchronize()), 500 * MICROSECOND);
    CHECK_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
}

static void test_frees_wait(void **state)
{
    scenario(frees_wait, VIRTUAL, NULL);
}

/* ------------------------------------------------------------------ streams */

static void streams_overlap(void)
{
    cudaStream_t a, b;
    OK(cudaStreamCreate(&a));
    OK(cudaStreamCreate(&b));
    int64_t start = now();
    OK(simcudaLaunchBusy(a, 100));
    OK(simcudaLaunchBusy(a, 100));
    OK(simcudaLaunchBusy(b, 150));
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(b)), 150 * MICROSECOND);
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(a)), 50 * MICROSECOND);
    CHECK_EQ(now() - start, 200 * MICROSECOND);
}

static void test_streams_overlap(void **state)
{
    scenario(streams_overlap, VIRTUAL, NULL);
}

static void legacy_barriers(void)
{
    cudaStream_t blocking, free;
    OK(cudaStreamCreate(&blocking));
    OK(cudaStreamCreateWithFlags(&free, cudaStreamNonBlocking));
    OK(simcudaLaunchBusy(blocking, 100));
    OK(simcudaLaunchBusy(NULL, 100));     /* waits for `blocking` */
    OK(simcudaLaunchBusy(blocking, 100)); /* waits for the default stream */
    OK(simcudaLaunchBusy(free, 250));     /* does not wait */
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(free)), 250 * MICROSECOND);
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(blocking)), 50 * MICROSECOND);
    OK(simcudaLaunchBusy(free, 100));
    OK(simcudaLaunchBusy(NULL, 10));
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(NULL)), 10 * MICROSECOND);
    /* The per-thread default stream is a separate, blocking one. */
    OK(simcudaLaunchBusy(blocking, 30));
    OK(simcudaLaunchBusy(cudaStreamPerThread, 20));
    CHECK_EQ(TIME_OF(cudaStreamSynchronize_ptsz(NULL)), 20 * MICROSECOND);
    CHECK_EQ(TIME_OF(cudaStreamSynchronize_ptsz(cudaStreamLegacy)), 0);
    OK(simcudaLaunchBusy(NULL, 5));
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(NULL)), 15 * MICROSECOND);
}

static void test_legacy_barriers(void **state)
{
    scenario(legacy_barriers, VIRTUAL, NULL);
}

static void *use_default_stream(void *data)
{
    unsigned long long *id = data;
    OK(cudaStreamGetId_ptsz(NULL, id));
    OK(cudaMemsetAsync_ptsz((char *)device + *id % 1000 * 100, 3, 100, NULL)); /* each its own bytes */
    OK(cudaStreamSynchronize_ptsz(NULL));
    return NULL;
}

static void per_thread_streams(void)
{
    pthread_t threads[4];
    unsigned long long ids[5], legacy;
    get_memory();
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, use_default_stream, &ids[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    use_default_stream(&ids[4]);
    OK(cudaStreamGetId(NULL, &legacy));
    for (int i = 0; i < 5; i++) {
        CHECK(ids[i] != legacy);
        for (int j = 0; j < i; j++) CHECK(ids[i] != ids[j]);
    }
    OK(cudaDeviceSynchronize());
}

static void test_per_thread_streams(void **state)
{
    scenario(per_thread_streams, VIRTUAL, NULL);
    scenario(per_thread_streams, NULL);
}

/* ------------------------------------------------------------------ events */

static void events(void)
{
    cudaStream_t stream, other;
    cudaEvent_t start, end, untimed;
    float ms = -1;
    get_memory();
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&end));
    OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    OK(cudaEventQuery(start)); /* never recorded: nothing to wait for */
    CHECK_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(start, stream));
    OK(cudaMemcpyAsync(device, pinned, MEGABYTE, cudaMemcpyHostToDevice, stream));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventRecord(untimed, stream));
    cudaGetLastError();
    CHECK_EQ(cudaEventQuery(end), cudaErrorNotReady);
    CHECK_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    CHECK_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
    CHECK_EQ(cudaGetLastError(), cudaSuccess); /* "not ready" is not an error */
    CHECK_EQ(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
    CHECK(ms == -1);
    /* What waits for the event starts when the copy ends. */
    OK(cudaStreamWaitEvent(other, end, 0));
    OK(simcudaLaunchBusy(other, 7));
    int polls = 0;
    while (cudaEventQuery(end) == cudaErrorNotReady) polls++;
    CHECK_EQ(polls, 1004 - 3 + 1); /* a microsecond each; three queries were made above, one for start (ready) */
    OK(cudaEventElapsedTime(&ms, start, end));
    CHECK(ms == 1.004f);
    OK(cudaEventSynchronize(end));
    CHECK_EQ(TIME_OF(cudaStreamSynchronize(other)), 7 * MICROSECOND);
    OK(cudaEventDestroy(end));
    CHECK_EQ(cudaEventQuery(end), cudaErrorInvalidResourceHandle);
    CHECK_EQ(cudaEventRecord(NULL, stream), cudaErrorInvalidResourceHandle);
}

static void test_events(void **state)
{
    scenario(events, VIRTUAL, NULL);
}

/* ------------------------------------------------------------------ host functions */

static pthread_t caller;
static atomic_int calls;
static atomic_bool may_go;

static void host_function(void *data)
{
    void *memory;
    CHECK(!pthread_equal(caller, pthread_self()));
    CHECK_EQ(cudaMalloc(&memory, 1), cudaErrorNotPermitted);
    atomic_fetch_add(&calls, *(int *)data);
}

static void callback(cudaStream_t stream, cudaError_t status, void *data)
{
    CHECK_EQ(status, cudaSuccess);
    CHECK(stream != NULL);
    host_function(data);
}

static void slow_function(void *unused)
{
    while (!atomic_load(&may_go)) usleep(100);
}

static void host_functions(void)
{
    int one = 1, ten = 10;
    cudaStream_t stream;
    caller = pthread_self();
    OK(cudaStreamCreate(&stream));
    OK(cudaLaunchHostFunc(stream, host_function, &one));
    OK(cudaStreamAddCallback(stream, callback, &ten, 0));
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(atomic_load(&calls), 11);
    /* A host function that waits for the host's next action: a query must return, not wait. */
    OK(cudaLaunchHostFunc(stream, slow_function, NULL));
    CHECK_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    atomic_store(&may_go, true);
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(cudaLaunchHostFunc(stream, NULL, NULL), cudaErrorInvalidValue);
}

static void test_host_functions(void **state)
{
    scenario(host_functions, VIRTUAL, NULL);
    scenario(host_functions, NULL);
}

/* ------------------------------------------------ kernels, the real clock, threads */

static void kernels(void)
{
    dim3 one = {1, 1, 1}, none = {0, 1, 1};
    OK(cudaFree(NULL));
    OK(cudaLaunchKernel((const void *)kernels, one, one, NULL, 0, NULL));
    CHECK_EQ(TIME_OF(cudaDeviceSynchronize()), 33 * MICROSECOND);
    CHECK_EQ(cudaLaunchKernel((const void *)kernels, none, one, NULL, 0, NULL), cudaErrorInvalidValue);
}

static void test_kernels(void **state)
{
    scenario(kernels, VIRTUAL, "SIMCUDA_KERNEL_US=33", NULL);
}

static void real_clock(void)
{
    struct timespec start, end;
    cudaEvent_t from, to;
    float ms;
    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&to));
    clock_gettime(CLOCK_MONOTONIC, &start);
    OK(cudaEventRecord(from, NULL));
    OK(simcudaLaunchBusy(NULL, 20000));
    OK(cudaEventRecord(to, NULL));
    CHECK_EQ(cudaEventQuery(to), cudaErrorNotReady);
    OK(cudaDeviceSynchronize());
    clock_gettime(CLOCK_MONOTONIC, &end);
    OK(cudaEventElapsedTime(&ms, from, to));
    CHECK(ms >= 20 && ms < 1000);
    CHECK((end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6 >= 20);
}

static void test_real_clock(void **state)
{
    scenario(real_clock, NULL);
}

static void *churn(void *unused)
{
    cudaStream_t stream;
    cudaEvent_t event;
    char back[64];
    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreate(&event));
    for (int i = 0; i < 50; i++) {
        char *memory, *pooled, text[64];
        snprintf(text, sizeof text, "round %d of %p", i, (void *)&stream);
        OK(cudaMalloc((void **)&memory, (size_t)1 << (i % 22)));
        OK(cudaMallocAsync((void **)&pooled, sizeof text, stream));
        OK(cudaMemcpyAsync(pooled, text, sizeof text, cudaMemcpyHostToDevice, stream));
        OK(cudaEventRecord(event, stream));
        OK(cudaStreamWaitEvent(NULL, event, 0));
        OK(cudaMemcpyAsync(back, pooled, sizeof back, cudaMemcpyDeviceToHost, stream));
        CHECK_EQ(strcmp(text, back), 0);
        OK(cudaFreeAsync(pooled, stream));
        OK(cudaFree(memory));
    }
    OK(cudaStreamDestroy(stream));
    OK(cudaEventDestroy(event));
    return NULL;
}

static void threads(void)
{
    pthread_t all[6];
    size_t before, after, total;
    OK(cudaMemGetInfo(&before, &total));
    for (int i = 0; i < 6; i++) CHECK_EQ(pthread_create(&all[i], NULL, churn, NULL), 0);
    for (int i = 0; i < 6; i++) pthread_join(all[i], NULL);
    OK(cudaDeviceSynchronize());
    OK(cudaMemGetInfo(&after, &total));
    CHECK_EQ(before, after);
}

static void test_threads(void **state)
{
    scenario(threads, VIRTUAL, NULL);
    scenario(threads, NULL);
}

CASES(test_synchronous_copies, test_asynchronous_copies, test_frees_wait, test_streams_overlap, test_legacy_barriers,
      test_per_thread_streams, test_events, test_host_functions, test_kernels, test_real_clock, test_threads)
