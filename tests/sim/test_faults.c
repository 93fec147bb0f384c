/* Injected errors, sticky errors, fork, malformed variables. */
#include "fixtures/simcuda/include/simcuda.h"
#include "tests/sim/scenario.h"

#include <fcntl.h>

static void *memory;

/* ------------------------------------------------------------------ SIMCUDA_FAIL */

static void third_call(void)
{
    size_t free_before, free_after, total;
    OK(cudaMalloc(&memory, 1));
    OK(cudaMalloc(&memory, 1));
    OK(cudaMemGetInfo(&free_before, &total));
    memory = (void *)7;
    CHECK_EQ(cudaMalloc(&memory, 64 * MIB), 2);
    CHECK(memory == (void *)7); /* and nothing happened */
    OK(cudaMemGetInfo(&free_after, &total));
    CHECK_EQ(free_before, free_after);
    CHECK_EQ(cudaGetLastError(), 2);
    OK(cudaMalloc(&memory, 1));
}

static void from_the_second_on(void)
{
    OK(cudaMalloc(&memory, 1));
    for (int i = 0; i < 3; i++) CHECK_EQ(cudaMalloc(&memory, 1), 2); /* the runtime returns the driver's error */
}

static void every_variant(void)
{
    CHECK_EQ(cudaMemsetAsync(NULL, 0, 0, NULL), 999);
    CHECK_EQ(cudaMemsetAsync_ptsz(NULL, 0, 0, NULL), 999);
    OK(cudaMemset(NULL, 0, 0));
    CHECK_EQ(cudaStreamSynchronize_ptsz(NULL), 4);
    OK(cudaStreamSynchronize(NULL)); /* the full name means this export only */
}

static void no_init(void)
{
    int count = 5;
    CHECK_EQ(cudaGetDeviceCount(&count), 100);
    CHECK_EQ(count, 0);
    CHECK_EQ(cudaMalloc(&memory, 1), 100);
    CHECK_EQ(cudaFree(NULL), 100);
}

static void test_injected(void **state)
{
    scenario(third_call, "SIMCUDA_FAIL=cudaMalloc:2@3", NULL);
    scenario(from_the_second_on, "SIMCUDA_FAIL=cuMemAlloc:2@2+", NULL);
    scenario(from_the_second_on, "SIMCUDA_FAIL=cudaFree:1,cuMemAlloc_v2:2@2+", NULL);
    scenario(every_variant, "SIMCUDA_FAIL=cudaMemsetAsync:999,cudaStreamSynchronize_ptsz:4", NULL);
    scenario(no_init, "SIMCUDA_FAIL=cuInit:100", NULL);
    scenario(no_init, "SIMCUDA_DEVICES=0", NULL);
}

/* An illegal address makes the context unusable. */
static void sticky(void)
{
    OK(cudaMalloc(&memory, 1));
    CHECK_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    CHECK_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
    CHECK_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
    CHECK_EQ(cudaFree(memory), cudaErrorIllegalAddress);
    CHECK_EQ(cudaMalloc(&memory, 1), cudaErrorIllegalAddress);
    OK(strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress"));
}

static void test_sticky(void **state)
{
    scenario(sticky, "SIMCUDA_FAIL=cudaDeviceSynchronize:700", NULL);
    scenario(sticky, "SIMCUDA_FAIL=cuCtxSynchronize:700", NULL);
}

static void old_driver_version(void)
{
    int version;
    CHECK_EQ(cudaMalloc(&memory, 1), cudaErrorInsufficientDriver);
    OK(cudaDriverGetVersion(&version));
    CHECK_EQ(version, 12040);
}

static void test_old_driver_version(void **state)
{
    scenario(old_driver_version, "SIMCUDA_DRIVER=12040", NULL);
}

/* ------------------------------------------------------------------ fork */

static void in_child(void (*run)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static void not_initialized(void)
{
    int count;
    const char *name;
    CHECK_EQ(cudaGetDeviceCount(&count), cudaErrorInitializationError);
    CHECK_EQ(cudaMalloc(&memory, 1), cudaErrorInitializationError);
    CHECK_EQ(cudaFree(memory), cudaErrorInitializationError);
    CHECK_EQ(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuGetErrorName(CUDA_ERROR_NOT_INITIALIZED, &name));
}

static void uses_cuda(void)
{
    OK(cudaMalloc(&memory, 1));
    OK(cudaFree(memory));
}

static void forks(void)
{
    int version;
    OK(cuDriverGetVersion(&version)); /* this query is allowed before cuInit */
    in_child(uses_cuda);
    uses_cuda();
    OK(cudaMalloc(&memory, 1));
    OK(cudaMemset(memory, 0, 1)); /* needs a worker thread, which the child lacks */
    in_child(not_initialized);
    OK(cudaFree(memory));
}

static void test_fork(void **state)
{
    scenario(forks, NULL);
}

/* ------------------------------------------------------------------ malformed variables */

static const char *expected;

static void complains(void)
{
    int pipe_fds[2];
    char reported[1024];
    size_t free, total;
    CHECK_EQ(pipe(pipe_fds), 0);
    int saved = dup(2);
    dup2(pipe_fds[1], 2);
    OK(cudaMemGetInfo(&free, &total));
    dup2(saved, 2);
    close(pipe_fds[1]);
    ssize_t length = read(pipe_fds[0], reported, sizeof reported - 1);
    CHECK(length > 0);
    reported[length] = '\0';
    CHECK(strstr(reported, expected) != NULL);
    CHECK(strchr(reported, '\n') == reported + length - 1); /* one line */
    CHECK_EQ(total, 24 * GIB);                              /* the default is used */
    CHECK_EQ(total - free, 512 * MIB);
}

static void test_malformed(void **state)
{
    static const char *const bad[] = {
        "SIMCUDA_MEMORY=lots",
        "SIMCUDA_MEMORY=",
        "SIMCUDA_MEMORY=-1",
        "SIMCUDA_MEMORY=1 parsec",
        "SIMCUDA_CONTEXT=nan",
        "SIMCUDA_DEVICES=99",
        "SIMCUDA_DEVICES=1x",
        "SIMCUDA_PCIE=0",
        "SIMCUDA_HBM=fast",
        "SIMCUDA_CLOCK=sundial",
        "SIMCUDA_DRIVER=new",
        "SIMCUDA_OTHER=1GiB@",
        "SIMCUDA_KERNEL_US=-3",
        "SIMCUDA_FAIL=cudaMalloc",
        "SIMCUDA_FAIL=cudaMalloc:x",
        "SIMCUDA_FAIL=cudaMalloc:2@0",
        "SIMCUDA_FAIL=cudaMaloc:2",
        "SIMCUDA_FAIL=cuMemAllok:2",
        "SIMCUDA_LOG=/no/such/folder/log",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(bad[i], "="), bad[i]);
        expected = name;
        scenario(complains, bad[i], NULL);
    }
}

static const char *sizes_expected;

static void sizes(void)
{
    size_t free, total;
    OK(cudaMemGetInfo(&free, &total));
    CHECK_EQ(total, strtoull(sizes_expected, NULL, 10));
}

static void test_sizes(void **state)
{
    sizes_expected = "25769803776";
    scenario(sizes, "SIMCUDA_MEMORY=24GiB", NULL);
    scenario(sizes, "SIMCUDA_MEMORY=24576 MiB", NULL);
    scenario(sizes, "SIMCUDA_MEMORY=25769803777", NULL); /* whole pages */
    scenario(sizes, "SIMCUDA_MEMORY=25165824KiB", NULL);
    sizes_expected = "79997960192";
    scenario(sizes, "SIMCUDA_MEMORY=80GB", NULL);
    scenario(sizes, "SIMCUDA_MEMORY=80e9", NULL);
}

CASES(test_injected, test_sticky, test_old_driver_version, test_fork, test_malformed, test_sizes)
