#include "analyzer/launch/simulate_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void launch_python_path(struct launch *l, const char *folder)
{
    const char *others = getenv("PYTHONPATH");
    size_t size = strlen(folder) + sizeof "/python:" + (others ? strlen(others) : 0);
    char *path = malloc(size); /* not freed: the program's environment points to it */

    if (!path) return;
    snprintf(path, size, "%s/python%s%s", folder, others && *others ? ":" : "", others ? others : "");
    launch_set(l, "PYTHONPATH", path);
}

void launch_simulate_settings(struct launch *l, const char *folder, int loops)
{
    static char count[16];

    snprintf(count, sizeof count, "%d", loops < 0 ? SIMULATE_LOOPS : loops);
    launch_set(l, "SIMCUDA_LOOPS", count);
    launch_python_path(l, folder);
}
