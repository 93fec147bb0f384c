/* A list of known names as a table for spreadsheets and browsers. The rows are JSON objects. */
#pragma once

#include <jansson.h>
#include <stdio.h>

/* One column per key; "tflops.fp32" for a key within another. RFC 4180. */
void export_list_csv(const json_t *rows, FILE *out);
/* A complete page without scripts: sizes and rates with units, everything else unchanged. */
void export_list_html(const char *title, const json_t *rows, FILE *out);
