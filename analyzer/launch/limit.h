/* GPUSPY_LIMIT, as the recorder reads it, from what people write: sizes and GPUs by name. */
#ifndef GPUSPY_LAUNCH_LIMIT_H
#define GPUSPY_LAUNCH_LIMIT_H

#include <stdbool.h>
#include <stddef.h>

/* "24GiB", "0:24GiB,1:rtx-4090" → bytes in the same form. `names`: GPUs may be named. False: which part is
 * wrong, in `wrong`. */
bool launch_limit_value(const char *text, bool names, char *out, size_t size, char *wrong, size_t wrong_size);

#endif
