#include "analyzer/launch/simulate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/launch/lacks.h"
#include "analyzer/run/run.h"
#include "schema/lacks.h"

#define SIZE_LEAST ((uint64_t)64 << 20)
#define SIZE_MOST ((uint64_t)1 << 50)

enum {
    SIMULATE_LOOPS = 1000
}; /* default number of reads of uncomputed values without progress, after which a loop ends */

void launch_python_path(struct launch *l, const char *folder)
{
    const char *others = getenv("PYTHONPATH");
    size_t size = strlen(folder) + sizeof "/python:" + (others ? strlen(others) : 0);
    char *path = malloc(size); /* not freed: the program's environment points to it */

    if (!path) return;
    snprintf(path, size, "%s/python%s%s", folder, others && *others ? ":" : "", others ? others : "");
    launch_set(l, "PYTHONPATH", path);
}

/* Settings of Python programs. `loops`: 0: never stop a loop; -1: the default. */
static void set_simulated_python(struct launch *l, const char *folder, int loops)
{
    static char count[16];

    snprintf(count, sizeof count, "%d", loops < 0 ? SIMULATE_LOOPS : loops);
    launch_set(l, "SIMCUDA_LOOPS", count);
    launch_python_path(l, folder);
}

bool launch_simulate_folder(char *folder, size_t size, char *why, size_t why_size)
{
    static const char *const places[] = {"sim", "../lib/gpuspy/sim", "../lib64/gpuspy/sim"};
    char own[PATH_MAX], path[PATH_MAX + 64], resolved[PATH_MAX];
    const bool found = launch_own_folder(own);

    for (size_t i = 0; found && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s/libsimcuda-redirect.so", own, places[i]);
        if (!realpath(path, resolved)) continue;
        *strrchr(resolved, '/') = 0;
        return launch_link_folder(resolved, why, why_size) && (size_t)snprintf(folder, size, "%s", resolved) < size;
    }
    snprintf(why, why_size,
             "cannot find the simulated CUDA beside '%s' or in its ../lib/gpuspy/sim; run `make sim` or "
             "`make install`",
             own);
    return false;
}

/* The GPU of that name or size. A GPU that is not NVIDIA's keeps its memory size and gets the compute capability of a
 * Hopper, because programs built for CUDA know no other. */
static bool find_simulated(const char *key, struct estimate_gpu *gpu)
{
    uint64_t bytes;
    const struct estimate_gpu *named = estimate_gpu_require_or_size("run", "simulate", key, &bytes);
    const bool size = !named && bytes > 0;

    if (size) named = estimate_gpu_find("a100-80g");
    if (size && (bytes < SIZE_LEAST || bytes > SIZE_MOST)) {
        return complain_with(false, "run: --simulate: '%s' is out of range; give 64MiB to 1024TiB, or a GPU's name",
                             key);
    }
    if (!named) return false;
    *gpu = *named;
    if (size) {
        gpu->product = "GPU";
        gpu->total_bytes = bytes;
    }
    gpu->capability = gpu->simulated ? gpu->capability : "9.0";
    return true;
}

static void set_hardware(const struct estimate_gpu *gpu, int count, void (*set)(void *, const char *, const char *),
                         void *self)
{
    static char name[128], memory[32], sms[16], devices[16], hbm[32], pcie[32];

    snprintf(name, sizeof name, "%s" RUN_SIMULATED, gpu->product);
    snprintf(memory, sizeof memory, "%" PRIu64, gpu->total_bytes);
    snprintf(sms, sizeof sms, "%d", gpu->multiprocessors);
    snprintf(devices, sizeof devices, "%d", count ? count : 1);
    snprintf(hbm, sizeof hbm, "%.0f", gpu->hbm);
    snprintf(pcie, sizeof pcie, "%.0f", gpu->pcie);
    set(self, "SIMCUDA_NAME", name);
    set(self, "SIMCUDA_MEMORY", memory);
    set(self, "SIMCUDA_CAPABILITY", gpu->capability);
    set(self, "SIMCUDA_SMS", sms);
    set(self, "SIMCUDA_DEVICES", devices);
    set(self, "SIMCUDA_HBM", hbm);
    set(self, "SIMCUDA_PCIE", pcie);
}

bool launch_simulate_variables(const struct estimate_gpu *gpu, int count,
                               void (*set)(void *self, const char *name, const char *value), void *self, char *why,
                               size_t why_size)
{
    static char redirect[PATH_MAX + 64], libraries[2 * PATH_MAX + 16], folder[PATH_MAX];
    const char *lacks = launch_lacks_table();

    if (!launch_simulate_folder(folder, sizeof folder, why, why_size)) return false;
    snprintf(redirect, sizeof redirect, "%s/libsimcuda-redirect.so", folder);
    snprintf(libraries, sizeof libraries, "%s:%s/math", folder, folder);
    set(self, "LD_AUDIT", redirect);
    set(self, "SIMCUDA_LIBRARIES", libraries);
    if (lacks) set(self, GS_LACKS_VARIABLE, lacks);
    set_hardware(gpu, count, set, self);
    if (!getenv("TRITON_LIBCUDA_PATH")) /* Triton links to the driver that the loader's cache names, unless this
                                           variable is set */
        set(self, "TRITON_LIBCUDA_PATH", folder);
    set(self, "SIMCUDA_UNKNOWN", "zero"); /* a size that a kernel would compute is 0, not garbage */
    return true;
}

static void set_in_launch(void *self, const char *name, const char *value)
{
    launch_set(self, name, value);
}

int launch_simulate_set(struct launch *l, const char *key, int count, int loops)
{
    static char folder[PATH_MAX];
    char why[2 * PATH_MAX];
    struct estimate_gpu gpu;

    if (!find_simulated(key, &gpu)) return SIMULATE_UNKNOWN;
    if (!launch_simulate_variables(&gpu, count, set_in_launch, l, why, sizeof why) ||
        !launch_simulate_folder(folder, sizeof folder, why, sizeof why))
        return complain_with(LAUNCH_FAILED, "run: %s", why);
    set_simulated_python(l, folder, loops);
    return 0;
}
