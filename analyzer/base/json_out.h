/* JSON that is written directly, for data that is too large to be built first. ASCII and valid UTF-8; control
 * characters are escaped. */
#pragma once

#include <stdint.h>
#include <stdio.h>

/* "text" with its quotes; NULL is null. The text must be a run's: valid UTF-8. */
void json_out_text(FILE *out, const char *text);
