/* What gpuspy changes in a program of Python (fixtures/simcuda/python). In a dry run, so that it needs no computed
 * value to end: settings by framework, and the watch over loops. With --inside-pools: allocators without a pool. */
#ifndef GPUSPY_SIMULATE_SETTINGS_H
#define GPUSPY_SIMULATE_SETTINGS_H

#include "analyzer/launch/launch.h"

enum { SIMULATE_LOOPS = 1000 }; /* reads of values that are not computed, without progress */

/* `folder`: of the simulated CUDA. `loops`: 0 never stops a loop, -1 is the default. */
void launch_simulate_settings(struct launch *l, const char *folder, int loops);

/* Python loads the folder's settings first. The variables decide which: SIMCUDA_LOOPS, GPUSPY_INSIDE_POOLS. */
void launch_python_path(struct launch *l, const char *folder);

#endif
