/* JSON: trees; and what is written directly, for data that is too large to be built first. ASCII and valid UTF-8;
 * control characters are escaped. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* "text" with its quotes; NULL is null. The text must be a run's: valid UTF-8. */
void json_out_text(FILE *out, const char *text);
/* Writes a tree and a line break, and frees the tree. False: it could not be written. */
bool json_out_tree(FILE *out, json_t *tree, size_t flags);
/* A text that may be invalid UTF-8, and is then cleaned. NULL is null. */
json_t *json_out_string(const char *text);
