/* Settings that the user did not give and whose other values raise the high end: it is a bound only with the assumed
 * ones. And options that were typed but change nothing. Each is computed anew by estimate_make and becomes a note. */
#pragma once

#include "analyzer/estimate/estimate.h"

/* `argv`: the words typed, which state what an option sets. With memory, only what worsens the verdict is noted. */
void estimate_note_unstated(const struct plan *p, int argc, char **argv, struct estimate_result *r);
