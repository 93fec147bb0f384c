/* What the processes that this one starts find in their environment. */
#pragma once

#include "interpose/config.h"

/* Makes relative names absolute, so that a child started from another folder loads the same library and writes beside
 * the files of its run: GPUSPY_DB, and gpuspy's own entry of LD_PRELOAD. */
void gs_inherit(const struct gs_config *config);
