/* What gpuspy changes in Python programs (fixtures/simcuda/python). In a dry run: settings by framework and a watch
 * over loops, so that the program ends although no value is computed. With --inside-pools: allocators without a pool.
 */
#pragma once

#include "analyzer/launch/launch.h"

enum {
    SIMULATE_LOOPS = 1000
}; /* default number of reads of uncomputed values without progress, after which a loop ends */

/* `folder`: the folder of the simulated CUDA. `loops`: 0: never stop a loop; -1: the default. */
void launch_simulate_settings(struct launch *l, const char *folder, int loops);

/* Puts the folder first in PYTHONPATH, so that Python loads its sitecustomize. SIMCUDA_LOOPS and GPUSPY_INSIDE_POOLS
 * select what that changes. */
void launch_python_path(struct launch *l, const char *folder);
