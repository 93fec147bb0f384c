/* gpuspy in a process that runs already: `gpuspy attach` has it load this library and calls these two by name. */
#ifndef GPUSPY_ATTACH_H
#define GPUSPY_ATTACH_H

#include <stdbool.h>
#include "schema/attach.h"

/* Both return at once: a thread of our own does the work, because the caller was interrupted anywhere outside of the
 * C library. NULL: no such thread could be made.
 * settings: "GPUSPY_NAME=VALUE" lines, in place of the environment. */
const struct gs_attach_answer *gpuspy_attach(const char *settings);
const struct gs_attach_answer *gpuspy_detach(void);

/* The library is loaded; true: into a running process. Then it does nothing until gpuspy_attach. */
bool gs_attach_load(void);

#endif
