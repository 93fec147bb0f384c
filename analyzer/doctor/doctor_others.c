/* Other tools that stand where the recorder does, or change what it sees. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/input.h"
#include "analyzer/doctor/doctor.h"

/* Variables by which others get between a program and CUDA, or which change how it waits. */
static const struct {
    const char *name;
    const char *unless; /* this value does nothing; NULL: any does */
    const char *text, *fix;
} variables[] = {
    {"CUDA_INJECTION64_PATH", NULL,
     "a profiler is loaded into each CUDA program; recordings include its calls and its time", "record without it"},
    {"NVTX_INJECTION64_PATH", NULL, "that tool receives the NVTX ranges, and gpuspy cannot record them",
     "record without it"},
    {"LD_AUDIT", NULL, "a loader auditor may load other libraries than those named", NULL},
    {"CUDA_LAUNCH_BLOCKING", "0", "every kernel launch waits: the recorded waits differ from those of a usual run",
     "unset it"},
    {"CUDA_MPS_PIPE_DIRECTORY", NULL,
     "programs share a GPU through MPS; memory of other processes is attributed to its server", NULL},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", "0", "PyTorch's cache is off: each tensor is a separate CUDA allocation",
     "unset it"},
};

static void check_preloaded(struct doctor *d, const char *where, const char *list)
{
    char copy[4096], *save = NULL;

    snprintf(copy, sizeof copy, "%s", list);
    for (char *word = strtok_r(copy, ": \n\t", &save); word; word = strtok_r(NULL, ": \n\t", &save)) {
        const char *base = basename(word);
        bool profiler = strstr(base, "Injection") || strstr(base, "nsys") || strstr(base, "cupti") ||
                        strstr(base, "heaptrack") || strstr(base, "memray");
        if (strncmp(base, "libgpuspy", 9) == 0 && d->library[0] && strcmp(word, d->library) != 0)
            doctor_add_finding(d, DOCTOR_OTHERS, DOCTOR_WARNING, "another_gpuspy", "remove it",
                               "%s loads another gpuspy, %s; this one is %s", where, word, d->library);
        else if (strncmp(base, "libgpuspy", 9) == 0)
            continue;
        else if (strncmp(base, "libcuda", 7) == 0 || strncmp(base, "libcudart", 9) == 0)
            doctor_add_finding(d, DOCTOR_OTHERS, DOCTOR_WARNING, "preloaded_cuda", "remove it",
                               "%s preloads %s: calls may bypass the recorder", where, word);
        else
            doctor_add_finding(d, DOCTOR_OTHERS, profiler ? DOCTOR_WARNING : DOCTOR_OK, "preloaded",
                               profiler ? "record without it" : NULL, "%s also loads %s%s", where, word,
                               profiler ? ": both tools become slower and record each other's calls" : "");
    }
}

static void check_stubs(struct doctor *d)
{
    const char *path = getenv("LD_LIBRARY_PATH");

    if (path && strstr(path, "/stubs"))
        doctor_add_finding(d, DOCTOR_OTHERS, DOCTOR_PROBLEM, "stubs", "remove that folder",
                           "LD_LIBRARY_PATH contains a folder of stubs, whose libcuda.so does nothing: %s", path);
}

void doctor_others(struct doctor *d)
{
    size_t before = d->n;
    const char *preload = getenv("LD_PRELOAD"), *value;
    char system_wide[4096];

    input_read_start("/etc/ld.so.preload", system_wide, sizeof system_wide);
    if (preload) check_preloaded(d, "LD_PRELOAD", preload);
    check_preloaded(d, "/etc/ld.so.preload", system_wide);
    check_stubs(d);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if ((value = getenv(variables[i].name)) && *value && strncmp(basename(value), "libgpuspy", 9) != 0 &&
            (!variables[i].unless || strcmp(value, variables[i].unless) != 0))
            doctor_add_finding(d, DOCTOR_OTHERS, DOCTOR_WARNING, "environment", variables[i].fix, "%s=%s: %s",
                               variables[i].name, value, variables[i].text);
    if (d->n == before) doctor_add_finding(d, DOCTOR_OTHERS, DOCTOR_OK, "others", NULL, "no other profiler found");
}
