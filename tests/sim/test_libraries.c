/* The libraries as files: sonames and version nodes, the archive, how runtimes find the driver, NVML, ctypes, and
 * programs built with the toolkit's headers. */
#include "fixtures/simcuda/include/simcuda.h"
#include "fixtures/simcuda/include/simnvml.h"
#include "tests/sim/scenario.h"

#include <dlfcn.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static char output[1 << 16];

/* tests/arm64.sh: RUNNER runs the programs, QEMU_SET_ENV has what only they preload. */
#define PRELOAD (getenv("RUNNER") ? "QEMU_SET_ENV=LD_PRELOAD=%s" : "LD_PRELOAD=%s")

/* Runs `program`, which is next to this test, with the simulated CUDA in `folder` of it. */
static int run(const char *environment, const char *folder, const char *program)
{
    char command[16384], here[4096];
    snprintf(here, sizeof here, "%s", beside_test(""));
    snprintf(command, sizeof command, "%s LD_LIBRARY_PATH=%s../../sim%s:%s../../sim $RUNNER %s%s 2>&1", environment,
             here, folder, here, here, program);
    return shell(command, output, sizeof output);
}

static void expect(const char *program, const char *environment, const char *folder, const char *line)
{
    int status = run(environment, folder, program);
    if (status != 0 || strstr(output, line) == NULL)
        print_error("%s: status %d, printed: %s\n", program, status, output);
    assert_int_equal(status, 0);
    assert_non_null(strstr(output, line));
}

/* ------------------------------------------------ sonames, versions, the archive */

static void test_programs(void **state)
{
    expect("smoke13", "", "", "runtime 13000, cudaMalloc visible, ok\n");
    expect("smoke12", "", "", "runtime 12080, cudaMalloc visible, ok\n");
    expect("smoke11", "", "", "runtime 11080, cudaMalloc visible, ok\n");
    expect("smoke12", "SIMCUDA_DRIVER=12040", "", "ok\n");
    expect("smoke11", "SIMCUDA_DRIVER=11040", "", "ok\n");
    /* The archive's functions are not exported by a program that links it, even with -rdynamic. */
    expect("smoke_static", "", "", "runtime 13000, cudaMalloc hidden, ok\n");
    assert_int_equal(run("SIMCUDA_DRIVER=12040", "", "smoke13"), 1);
    assert_non_null(strstr(output, "CUDA driver version is insufficient"));
}

static void test_no_driver(void **state)
{
    char command[16384], here[4096];
    snprintf(here, sizeof here, "%s", beside_test(""));
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=/nonexistent $RUNNER %ssmoke_static 2>&1", here);
    assert_int_equal(shell(command, output, sizeof output), 1);
    assert_non_null(strstr(output, "CUDA driver version is insufficient"));
}

static void three_runtimes(void)
{
    static const char *const names[] = {"libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"};
    static const int versions[] = {11080, 12080, 13000};
    size_t before = 0, free, total;
    for (int i = 0; i < 3; i++) {
        int version;
        void *memory, *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        CHECK(dlvsym(library, "cudaMalloc", names[i]) != NULL);
        CHECK(dlvsym(library, "cudaMalloc", names[(i + 1) % 3]) == NULL);
        CHECK(dlsym(library, "sim_config") == NULL);
        __typeof__(&cudaRuntimeGetVersion) get = (__typeof__(get))dlsym(library, "cudaRuntimeGetVersion");
        __typeof__(&cudaMalloc) allocate = (__typeof__(allocate))dlsym(library, "cudaMalloc");
        __typeof__(&cudaMemGetInfo) info = (__typeof__(info))dlsym(library, "cudaMemGetInfo");
        OK(get(&version));
        CHECK_EQ(version, versions[i]);
        OK(allocate(&memory, 10 * MIB));
        __typeof__(&cudaPointerGetAttributes) ask = (__typeof__(ask))dlsym(library, "cudaPointerGetAttributes");
        struct cudaPointerAttributes attributes;
        memset(&attributes, 0xab, sizeof attributes);
        OK(ask(&attributes, memory)); /* the words after the fourth are CUDA 13's */
        CHECK(attributes.devicePointer == memory);
        CHECK((attributes.reserved[0] == 0) == (versions[i] >= 13000));
        OK(info(&free, &total)); /* all three use one driver and one primary context */
        CHECK_EQ(total - free, (before = before + 10 * MIB) + 100 * MIB);
    }
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(driver != NULL);
    CHECK(dlsym(driver, "cuMemAlloc_v2") != NULL);
    CHECK(dlsym(driver, "drv_cuInit") == NULL); /* nothing but the API is exported */
}

static void test_three_runtimes(void **state)
{
    scenario(three_runtimes, "SIMCUDA_CONTEXT=100MiB", NULL);
}

/* ------------------------------------------------------------------ how runtimes find the driver */

static int count_lines(const char *prefix)
{
    int count = 0;
    for (const char *line = output; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        count += strncmp(line, prefix, strlen(prefix)) == 0;
    }
    return count;
}

static void check_sequence(const char *program)
{
    char preload[8192];
    snprintf(preload, sizeof preload, PRELOAD, beside_test("doors.so"));
    assert_int_equal(run(preload, "", program), 0);
    static const char start[] = "dlsym cuGetProcAddress_v2\n"
                                "first @0 flags=0\n"
                                "first cuInit@2000 flags=0\n"
                                "first cuGetProcAddress@11030 flags=0\n"
                                "first cuGetProcAddress@12000 flags=0\n"
                                "second ";
    if (strncmp(output, start, sizeof start - 1) != 0) print_error("%s asked: %s\n", program, output);
    assert_memory_equal(output, start, sizeof start - 1);
    assert_int_equal(count_lines("dlsym "), 1);
    assert_int_equal(count_lines("first "), 4);
    assert_true(count_lines("second ") > 100);
    assert_null(strstr(output, " status\n")); /* symbolStatus is always NULL */
    assert_non_null(strstr(output, "second cuMemAlloc@3020 flags=0\n"));
    assert_non_null(strstr(output, "second cuMemcpyHtoDAsync@3020 flags=0\n"));
    assert_non_null(strstr(output, "second cuMemcpyHtoDAsync@3020 flags=2\n"));
}

static void test_door_sequence(void **state)
{
    if (SANITIZED) skip(); /* the sanitizer must be preloaded first */
    check_sequence("smoke13");
    check_sequence("smoke12");
    check_sequence("smoke11");
    check_sequence("smoke_static");
}

/* Without cuGetProcAddress_v2, each function is looked up by its exact name. */
static void test_old_driver(void **state)
{
    expect("smoke13", "", "/old-driver", "ok\n");
    expect("smoke11", "SIMCUDA_DRIVER=11020", "/old-driver", "ok\n");
    if (SANITIZED) return;
    char preload[8192];
    snprintf(preload, sizeof preload, PRELOAD, beside_test("doors.so"));
    assert_int_equal(run(preload, "/old-driver", "smoke13"), 0);
    assert_non_null(strstr(output, "dlsym cuGetProcAddress_v2 (none)\n"));
    assert_non_null(strstr(output, "dlsym cuMemAlloc_v2\n"));
    assert_non_null(strstr(output, "dlsym cuMemcpyHtoD_v2_ptds\n"));
    assert_non_null(strstr(output, "dlsym cuMemcpyHtoDAsync_v2_ptsz\n"));
    assert_null(strstr(output, "dlsym cuMemAlloc\n"));
    assert_int_equal(count_lines("first "), 0);
}

/* ------------------------------------------------------------------ NVML, ctypes */

static void nvml(void)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    nvmlMemory_v2_t memory_v2 = {.version = nvmlMemory_v2};
    nvmlProcessInfo_t processes[4];
    unsigned count;
    char name[64], uuid[96];
    CHECK_EQ(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
    OK(nvmlInit_v2());
    OK(nvmlDeviceGetCount_v2(&count));
    CHECK_EQ(count, 2);
    CHECK_EQ(nvmlDeviceGetHandleByIndex_v2(2, &device), NVML_ERROR_INVALID_ARGUMENT);
    OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
    OK(nvmlDeviceGetName(device, name, sizeof name));
    OK(strcmp(name, "Simulated GPU"));
    CHECK_EQ(nvmlDeviceGetName(device, name, 5), NVML_ERROR_INSUFFICIENT_SIZE);
    OK(nvmlDeviceGetUUID(device, uuid, sizeof uuid));
    OK(strncmp(uuid, "GPU-", 4));
    OK(nvmlDeviceGetMemoryInfo(device, &memory)); /* before this process uses CUDA */
    CHECK(memory.total == 2 * GIB && memory.used == GIB && memory.free == GIB);
    void *allocated;
    OK(cudaMalloc(&allocated, 100 * MIB));
    OK(nvmlDeviceGetMemoryInfo_v2(device, &memory_v2));
    CHECK_EQ(memory_v2.used, GIB + 110 * MIB);
    memory_v2.version = 1;
    CHECK_EQ(nvmlDeviceGetMemoryInfo_v2(device, &memory_v2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    count = 0;
    CHECK_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQ(count, 2);
    count = 4;
    OK(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes));
    CHECK_EQ(count, 2);
    CHECK(processes[0].pid == (unsigned)getpid() && processes[0].usedGpuMemory == 110 * MIB);
    CHECK(processes[1].pid == 4242 && processes[1].usedGpuMemory == GIB);
    size_t free, total;
    OK(cudaMemGetInfo(&free, &total)); /* both report the same */
    CHECK_EQ(free, memory_v2.free);
    int type;
    CHECK_EQ(nvmlDeviceGetNvLinkRemoteDeviceType(device, 0, &type), NVML_ERROR_NOT_SUPPORTED);
    CHECK_EQ(nvmlDeviceGetNvLinkRemoteDeviceType(NULL, 0, &type), NVML_ERROR_INVALID_ARGUMENT);
    OK(nvmlShutdown());
    CHECK_EQ(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
}

static void test_nvml(void **state)
{
    scenario(nvml, "SIMCUDA_DEVICES=2", "SIMCUDA_MEMORY=2GiB", "SIMCUDA_CONTEXT=10MiB", "SIMCUDA_OTHER=1GiB@4242",
             NULL);
}

static void test_ctypes(void **state)
{
    if (SANITIZED) skip(); /* Python is not instrumented */
    static const char script[] =
        "python3 -c '\n"
        "import ctypes\n"
        "cuda = ctypes.CDLL(\"libcudart.so.13\")\n"
        "p = ctypes.c_void_p()\n"
        "size = ctypes.c_size_t(100)\n"
        "assert cuda.cudaMalloc(ctypes.byref(p), size) == 0 and p.value\n"
        "there, back = ctypes.create_string_buffer(b\"ctypes\", 100), "
        "ctypes.create_string_buffer(100)\n"
        "assert cuda.cudaMemcpy(p, there, size, 1) == 0 and cuda.cudaMemcpy(back, p, size, 2) == "
        "0\n"
        "assert back.value == b\"ctypes\"\n"
        "assert cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1 << 50)) == 2\n"
        "cuda.cudaGetErrorString.restype = ctypes.c_char_p\n"
        "print(cuda.cudaGetErrorString(cuda.cudaGetLastError()).decode())\n"
        "'";
    char command[16384], here[4096];
    snprintf(here, sizeof here, "%s", beside_test("../../sim"));
    snprintf(command, sizeof command, "LD_LIBRARY_PATH=%s %s 2>&1", here, script);
    assert_int_equal(shell(command, output, sizeof output), 0);
    assert_string_equal(output, "out of memory\n");
}

/* ------------------------------------------------------------------ the log, the toolkit */

static void test_log(void **state)
{
    char path[] = "/tmp/simcuda-log-XXXXXX", environment[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    snprintf(environment, sizeof environment, "SIMCUDA_LOG=%s", path);
    expect("smoke13", environment, "", "ok\n");
    ssize_t length = read(fd, output, sizeof output - 1);
    assert_true(length > 0);
    output[length] = '\0';
    close(fd);
    unlink(path);
    assert_non_null(strstr(output, "gpa cuMemAlloc@3020 flags=0 -> cuMemAlloc_v2\n"));
    assert_non_null(strstr(output, "cu cuMemAlloc_v2 0\ncudart cudaMalloc 0\n"));
}

static void test_toolkit(void **state)
{
    static char own[sizeof output];
    if (access(beside_test("layout_toolkit"), X_OK) != 0) skip(); /* no toolkit here */
    assert_int_equal(run("", "", "layout_own"), 0);
    strcpy(own, output);
    assert_int_equal(run("", "", "layout_toolkit"), 0);
    assert_string_equal(own, output);
    expect("smoke_toolkit", "", "", "runtime 13000, cudaMalloc visible, ok\n");
}

CASES(test_programs, test_no_driver, test_three_runtimes, test_door_sequence, test_old_driver, test_nvml, test_ctypes,
      test_log, test_toolkit)
