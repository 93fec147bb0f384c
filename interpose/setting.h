/* Facts about the process that the recording stores as a name and a value. */
#pragma once

#include "schema/spool.h"

/* `flags`: 0 or GS_FLAG_FACT. */
void gs_setting_write(struct gs_writer *w, const char *name, const char *value, uint8_t flags);
