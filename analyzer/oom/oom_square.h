#pragma once

#include "analyzer/oom/oom_sight.h"

/* The measure against N × N elements that an accidental broadcast may have made. False: there are none. */
bool oom_square_measure(const struct oom_sight *s, struct result_measure *m);
