/* Time on the wires, for people and for programs. */
#ifndef GPUSPY_VIEW_WIRES_H
#define GPUSPY_VIEW_WIRES_H

#include <jansson.h>
#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/estimate/wires.h"

/* A section of `estimate`; prints nothing where nothing is moved. */
void view_wires_text(const struct wires *w, const struct term *term, FILE *out);
/* {"links": {…}, "rows": [...], …}, a new reference; NULL where nothing is moved. */
json_t *view_wires_json(const struct wires *w);

#endif
