/* Memory over time, drawn in text: stacked by category where there are colours. */
#ifndef GPUSPY_VIEW_TIMELINE_H
#define GPUSPY_VIEW_TIMELINE_H

#include <jansson.h>
#include "analyzer/profile/course.h"
#include "analyzer/text/view_text.h"

/* The columns that a chart has room for. */
size_t view_timeline_columns(const struct term *term);
/* `rows`: of a chart, 0 as fits; top: charts. */
void view_timeline(const struct view_text *v, struct gs_run *run, const struct courses *c, int rows);
/* Members from_s, to_s, series[], steps[], oom[] of `o`. */
void view_timeline_json(json_t *o, struct gs_run *run, const struct gs_report *r, const struct courses *c);

#endif
