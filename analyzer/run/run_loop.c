/* The mark that a dry run leaves if it was in an endless loop (fixtures/simcuda/driver/loop.c). */
#include "analyzer/run/run.h"

#include <string.h>

static const char prefix[] = "a loop", suffix[] = " waits for values that a simulated GPU does not compute";

static bool is_loop_name(const char *name)
{
    size_t length = strlen(name), end = sizeof suffix - 1;
    return length >= end && strncmp(name, prefix, sizeof prefix - 1) == 0 && strcmp(name + length - end, suffix) == 0;
}

const char *run_endless_loop(const struct run *run)
{
    size_t marks, devices;
    const struct run_mark_total *mark = run_marks(run, &marks);
    const struct run_device *device = run_devices(run, &devices);
    bool simulated = false;
    for (size_t i = 0; i < devices; i++) simulated = simulated || run_device_is_simulated(device[i].name);
    for (size_t i = 0; simulated && i < marks; i++)
        if (mark[i].name && !mark[i].domain && is_loop_name(mark[i].name)) return mark[i].name;
    return NULL;
}
