/* The line at exit. */
#pragma once

#include "interpose/config.h"
#include "interpose/run_path.h"
#include "schema/store.h"

/* How much was recorded, where it is, and what to type next. */
void gs_summary_print(const struct gs_summary *summary, const struct gs_run_path *path, const struct gs_config *config);
