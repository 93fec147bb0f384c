/* gpuspy in a process that runs already: `gpuspy attach` has it load this library and calls these two by name. */
#ifndef GPUSPY_ATTACH_H
#define GPUSPY_ATTACH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum gs_attach_step { GS_ATTACH_IDLE, GS_ATTACH_AT_WORK, GS_ATTACH_DONE, GS_ATTACH_REFUSED, GS_ATTACH_FAILED };

/* What becomes of a call: read by gpuspy in the process's memory, where the call's result points to. */
struct gs_attach_answer {
    char magic[16]; /* GS_ATTACH_MAGIC */
    _Atomic uint32_t step;
    char text[4096]; /* DONE: the recording's path. Else one line: why not */
};
#define GS_ATTACH_MAGIC "gpuspy attach 1"

/* Both return at once: a thread of our own does the work, because the caller was interrupted anywhere outside of the
 * C library. NULL: no such thread could be made.
 * settings: "GPUSPY_NAME=VALUE" lines, in place of the environment. */
const struct gs_attach_answer *gpuspy_attach(const char *settings);
const struct gs_attach_answer *gpuspy_detach(void);

/* The library is loaded; true: into a running process. Then it does nothing until gpuspy_attach. */
bool gs_attach_load(void);

#endif
