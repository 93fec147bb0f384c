#include "analyzer/launch/simulate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/term.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/run/run.h"

const char simulate_words[] =
#define GPU(key, ...) key "|"
#include "analyzer/estimate/gpus.def"
#undef GPU
    "";

bool simulate_folder(char *folder, size_t size, char *why, size_t why_size)
{
    static const char *const places[] = {"sim", "../lib/gpuspy/sim", "../lib64/gpuspy/sim"};
    char exe[PATH_MAX] = "", path[PATH_MAX + 64], resolved[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *slash = n > 0 ? strrchr(exe, '/') : NULL;

    if (slash)
        *slash = 0;
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s/libsimcuda-redirect.so", exe, places[i]);
        if (!realpath(path, resolved))
            continue;
        *strrchr(resolved, '/') = 0;
        return (size_t)snprintf(folder, size, "%s", resolved) < size;
    }
    snprintf(why, why_size,
             "cannot find the simulated CUDA beside '%s' or in its ../lib/gpuspy/sim; run `make sim` or "
             "`make install`",
             exe);
    return false;
}

bool simulate_set(struct launch *l, const char *key, int count)
{
    static char redirect[PATH_MAX + 64], libraries[2 * PATH_MAX + 16], name[128], memory[32], sms[16],
        devices[16], hbm[32], pcie[32];
    char folder[PATH_MAX], why[PATH_MAX + 256];
    const struct gpu *gpu = gpu_find(key);

    if (!gpu || !gpu->simulated)
        return false;
    if (!simulate_folder(folder, sizeof folder, why, sizeof why)) {
        complain("run: %s", why);
        return false;
    }
    /* The loader takes LD_AUDIT's colons and blanks for separators, like LD_PRELOAD's. */
    if (strpbrk(folder, " :")) {
        complain("run: cannot simulate from '%s': the loader allows no blank and no colon in that "
                 "path; install gpuspy elsewhere",
                 folder);
        return false;
    }
    snprintf(redirect, sizeof redirect, "%s/libsimcuda-redirect.so", folder);
    snprintf(libraries, sizeof libraries, "%s:%s/math", folder, folder);
    snprintf(name, sizeof name, "%s" GS_SIMULATED, gpu->product);
    snprintf(memory, sizeof memory, "%" PRIu64, gpu->total_bytes);
    snprintf(sms, sizeof sms, "%d", gpu->multiprocessors);
    snprintf(devices, sizeof devices, "%d", count ? count : 1);
    snprintf(hbm, sizeof hbm, "%.0f", gpu->hbm);
    snprintf(pcie, sizeof pcie, "%.0f", gpu->pcie);
    launch_set(l, "LD_AUDIT", redirect);
    launch_set(l, "SIMCUDA_LIBRARIES", libraries);
    launch_set(l, "SIMCUDA_NAME", name);
    launch_set(l, "SIMCUDA_MEMORY", memory);
    launch_set(l, "SIMCUDA_CAPABILITY", gpu->capability);
    launch_set(l, "SIMCUDA_SMS", sms);
    launch_set(l, "SIMCUDA_DEVICES", devices);
    launch_set(l, "SIMCUDA_HBM", hbm);
    launch_set(l, "SIMCUDA_PCIE", pcie);
    if (!getenv("TRITON_LIBCUDA_PATH")) /* Triton links to the driver, by the loader's cache unless told */
        launch_set(l, "TRITON_LIBCUDA_PATH", folder);
    launch_set(l, "SIMCUDA_UNKNOWN", "zero"); /* sizes that kernels compute: none, not garbage */
    return true;
}
