/* What is known by name, as a table for spreadsheets and browsers: rows of JSON objects, all of the same keys. */
#ifndef GPUSPY_EXPORT_LIST_H
#define GPUSPY_EXPORT_LIST_H

#include <jansson.h>
#include <stdio.h>

/* One column a key, "tflops.fp32" for one within another. RFC 4180. */
void export_list_csv(const json_t *rows, FILE *out);
/* A page of its own, without scripts: sizes and rates as people read them, all the rest as it is. */
void export_list_html(const char *title, const json_t *rows, FILE *out);

#endif
