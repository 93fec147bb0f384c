/* Advice from the source text of programs without Python. */
#pragma once

#include "analyzer/site/builder.h"

/* What to do about CUDA allocations that grow at a native site: "`frames.push_back(…)` keeps them (guess): …" if the
 * line adds to a container of C++, else "free each block after its last use, …". In the arena. */
const char *site_native_growth_advice(struct site_builder *b, const struct result_site *site);
