/* Loads the recorder into a running process, and has it begin or end a recording. */
#ifndef GPUSPY_ATTACH_ATTACH_H
#define GPUSPY_ATTACH_ATTACH_H

#include <stdbool.h>
#include "analyzer/attach/process.h"

enum attach_result { ATTACH_DONE, ATTACH_REFUSED, ATTACH_FAILED };

/* `settings`: as gpuspy_attach takes them. The recording's path, or one line, in text[ATTACH_WHY]. */
enum attach_result attach_begin(const struct attach_process *p, const char *library, const char *settings, char *text);
/* The recording ends in order; the process goes on. */
enum attach_result attach_end(const struct attach_process *p, char *text);

#endif
