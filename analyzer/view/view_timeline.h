/* Memory over time, drawn in text: stacked by category if there are colours. */
#pragma once

#include <jansson.h>
#include "analyzer/profile/course.h"
#include "analyzer/view/view_text.h"

size_t view_timeline_columns(const struct terminal *term);
/* `rows`: of a chart, 0: as fits; top: charts. */
void view_timeline(const struct draw_text *v, struct run *run, const struct profile_courses *c, int rows);
/* Members from_s, to_s, series[], steps[], oom[] of `o`. */
void view_timeline_json(json_t *o, struct run *run, const struct result_report *r, const struct profile_courses *c);
