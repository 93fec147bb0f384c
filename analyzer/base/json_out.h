/* JSON that is written as it comes, for what is too large to be built first. ASCII but for valid UTF-8;
 * control characters are escaped. */
#ifndef GPUSPY_JSON_OUT_H
#define GPUSPY_JSON_OUT_H

#include <stdint.h>
#include <stdio.h>

/* "text" with its quotes; NULL is null. Texts are those of a run: valid UTF-8. */
void json_out_text(FILE *out, const char *text);

#endif
