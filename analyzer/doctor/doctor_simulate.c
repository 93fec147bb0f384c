/* Does PyTorch come up on the simulated GPU? Tried in a child, because which functions a version imports is known only
 * when it is loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/doctor/doctor.h"
#include "analyzer/launch/child.h"
#include "analyzer/launch/lacks.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/launch/simulate.h"

enum { TIMEOUT_MS = 180000, NAMED = 8 };

static const char try_torch[] = "import torch\n"
                                "torch.zeros(1, device='cuda')\n"
                                "print('gpuspy: works')\n";

static void set_in_child(void *self, const char *name, const char *value)
{
    launch_child_set(self, name, value);
}

static void last_line(char *text, char *out, size_t size)
{
    size_t n = strlen(text);

    while (n && text[n - 1] == '\n') text[--n] = 0;
    const char *last = strrchr(text, '\n');
    snprintf(out, size, "%s", last ? last + 1 : text);
}

/* "; it imports a, b and 3 more, which the simulated GPU lacks: calls of them return "not supported"" */
static void list_lacks(char *out, size_t size)
{
    struct launch_lack *list;
    size_t all = launch_lacks_list(&list), n = 0, used = 0;

    for (size_t i = 0; i < all; i++)
        if (!list[i].refused) list[n++] = list[i];
    out[0] = 0;
    for (size_t i = 0; i < n && i < NAMED && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "; it imports ",
                                 *list[i].name ? list[i].name : list[i].library);
    if (n > NAMED && used < size) used += (size_t)snprintf(out + used, size - used, " and %zu more", n - NAMED);
    if (n && used < size)
        snprintf(out + used, size - used, ", which the simulated GPU lacks: calls of %s return \"not supported\"",
                 n == 1 ? "it" : "them");
    free(list);
}

void doctor_simulate(struct doctor *d, const char *version)
{
    const char *const argv[] = {d->python, "-c", try_torch, NULL};
    struct launch_child *c = arena_zeroed(1, sizeof *c);
    char why[2 * PATH_MAX] = "", lacks[1024];

    *c = (struct launch_child){.argv = argv, .timeout_ms = TIMEOUT_MS};
    launch_child_set(c, "LD_PRELOAD", NULL); /* it is not to be recorded */
    launch_child_set(c, "PYTHONWARNINGS", "ignore");
    launch_child_set(c, "CUDA_VISIBLE_DEVICES", NULL);
    if (!launch_simulate_variables(estimate_gpu_find("h100-80g"), 1, set_in_child, c, why, sizeof why)) {
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_WARNING, "torch_simulated", NULL,
                           "gpuspy run --simulate does not work: %s", why);
        free(c);
        return;
    }
    bool works = launch_child_run(c) && strstr(c->out, "gpuspy: works");
    list_lacks(lacks, sizeof lacks);
    last_line(c->err, why, sizeof why);
    if (works)
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_OK, "torch_simulated", NULL,
                           "PyTorch %s was imported on the simulated GPU (gpuspy run --simulate)%s", version, lacks);
    else if (c->timed_out)
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_WARNING, "torch_simulated", NULL,
                           "importing PyTorch %s on the simulated GPU took more than %d s", version, TIMEOUT_MS / 1000);
    else
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_WARNING, "torch_simulated", NULL,
                           "PyTorch %s cannot be used on the simulated GPU (gpuspy run --simulate): %s%s", version,
                           *why ? why : "it exited without a message", lacks);
    free(c);
}
