/* The messages between `gpuspy attach` and the recorder in a running process. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define GS_ATTACH_GIVEN_BYTES 8192 /* of settings, NUL included */

enum gs_attach_step { GS_ATTACH_IDLE, GS_ATTACH_AT_WORK, GS_ATTACH_DONE, GS_ATTACH_REFUSED, GS_ATTACH_FAILED };

/* The outcome of a call: gpuspy reads it in the process's memory, at the address that the call returned. */
struct gs_attach_answer {
    char magic[16]; /* GS_ATTACH_MAGIC */
    _Atomic uint32_t step;
    char text[4096]; /* DONE: the recording's path, perhaps a second line with a warning. Otherwise one line: why not */
};
#define GS_ATTACH_MAGIC "gpuspy attach 1"
