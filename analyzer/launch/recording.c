#include "analyzer/launch/recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

void launch_recording_set(const struct launch_recording *r, void (*set)(void *to, const char *name, const char *value),
                          void *to)
{
    static char depth[16], keep[24];

    snprintf(depth, sizeof depth, "%d", r->native_depth);
    snprintf(keep, sizeof keep, "%lluB", (unsigned long long)r->keep);
    if (r->stacks) set(to, "GPUSPY_STACKS", r->stacks);
    if (r->native_depth) set(to, "GPUSPY_NATIVE_DEPTH", depth);
    if (r->keep) set(to, "GPUSPY_KEEP", keep);
    if (r->torch_cpu) set(to, "GPUSPY_TORCH_CPU", "1");
}

const char *launch_run_id(void)
{
    static char id[40];
    const char *outer = getenv("GPUSPY_RUN_ID");
    uint64_t random[2] = {(uint64_t)time(NULL), (uint64_t)getpid()};

    if (outer && *outer) return outer;
    if (getrandom(random, sizeof random, GRND_NONBLOCK) < 0) random[1] ^= (uint64_t)clock();
    snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    return id;
}
