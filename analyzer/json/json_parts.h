/* What the files that write the JSON report share: view_json.c and json_*.c. Unknown is null. */
#ifndef GPUSPY_JSON_PARTS_H
#define GPUSPY_JSON_PARTS_H

#include "analyzer/draw/json_site.h"

void gs_json_oom(json_t *o, const struct gs_oom_verdict *v); /* json_oom.c: its waterfall */
json_t *gs_json_allocator(const struct gs_report *r);        /* json_allocator.c: allocator[] */
json_t *gs_json_flushes(const struct gs_report *r);          /* cache_flushes[] */
json_t *gs_json_paths(const struct gs_paths *p);             /* json_lines.c: paths[] of a line */
json_t *gs_json_by_line(const struct gs_by_site *list, size_t n);
void gs_json_lines(
    json_t *o,
    const struct gs_report *r); /* leak_lines[], churn_lines[], retry_lines[], sync_lines[], transfer_lines[] */
json_t *gs_json_growth(const struct gs_report *r); /* view_json.c: growth[] */
json_t *gs_json_steps(const struct gs_report *r);  /* json_steps.c: steps[] */
/* json_owner.c */
json_t *gs_json_spaces(const int64_t bytes[8]);
void gs_json_set_owners(json_t *o, const struct gs_by_owner *list, size_t n); /* by_owner, owners */
json_t *gs_json_preallocations(const struct gs_report *r);
json_t *gs_json_ranks(const struct gs_report *r);
json_t *gs_json_rank_findings(const struct gs_report *r);
json_t *gs_json_rank_spread(const struct gs_report *r);

#endif
