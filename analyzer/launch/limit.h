/* Translates a limit as people write it, with sizes and names of GPUs, into the form of GPUSPY_LIMIT. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* "24GiB" or "0:24GiB,1:rtx-4090" becomes the same with bytes. `names`: whether names of GPUs are accepted. False: the
 * invalid part is in `wrong`. */
bool launch_limit_value(const char *text, bool names, char *out, size_t size, char *wrong, size_t wrong_size);
