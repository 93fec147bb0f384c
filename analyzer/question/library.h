/* Advice about a wait or a copy that an installed library makes: library.def. */
#pragma once

#include "analyzer/result/result.h"
#include "analyzer/run/run.h"

/* The setting or argument that avoids it; `advice` unchanged if the site's own line makes the call, or if it is NULL.
 * `stack`: that of the site; `up`: a copy to the GPU. Each text exists once in memory. */
const char *question_library_advice(const struct run *run, uint32_t stack, const struct result_site *site,
                                    const char *advice, bool up);
