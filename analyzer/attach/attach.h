/* Loads the recorder into a running process, and makes it begin or end a recording. */
#pragma once

#include "analyzer/attach/process.h"

enum attach_result { ATTACH_DONE, ATTACH_REFUSED, ATTACH_FAILED };

/* `settings`: in the form that gpuspy_attach reads. text[ATTACH_WHY] receives the recording's path, or one line that
 * states why not. */
enum attach_result attach_begin(const struct attach_process *p, const char *library, const char *settings, char *text);
/* Completes the recording; the process continues. */
enum attach_result attach_end(const struct attach_process *p, char *text);
