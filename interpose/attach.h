/* gpuspy in a process that already runs: `gpuspy attach` makes the process load this library and calls these two
 * functions by name. */
#pragma once

#include <stdbool.h>
#include "schema/attach.h"

/* Both return at once: a thread of gpuspy's own does the work, because the caller was interrupted at an arbitrary place
 * outside of the C library. NULL: that thread could not be created. settings: "GPUSPY_NAME=VALUE" lines, which replace
 * the environment. */
const struct gs_attach_answer *gpuspy_attach(const char *settings);
const struct gs_attach_answer *gpuspy_detach(void);

/* Called when the library is loaded; true: into a running process. It then does nothing until gpuspy_attach. */
bool gs_attach_load(void);
