/* What a dry run changes in the program, so that it needs no computed value to end: settings by framework
 * (fixtures/simcuda/python), and the watch over loops. A recording on a real GPU never gets them. */
#ifndef GPUSPY_SIMULATE_SETTINGS_H
#define GPUSPY_SIMULATE_SETTINGS_H

#include "analyzer/launch/launch.h"

enum { SIMULATE_LOOPS = 1000 }; /* reads of values that are not computed, without progress */

/* `folder`: of the simulated CUDA. `loops`: 0 never stops a loop, -1 is the default. */
void launch_simulate_settings(struct launch *l, const char *folder, int loops);

#endif
