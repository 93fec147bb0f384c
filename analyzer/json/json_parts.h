/* What the files that write the JSON report share: view_json.c and json_*.c. Unknown is null. */
#pragma once

#include "analyzer/draw/json_site.h"

void json_oom(json_t *o, const struct result_oom_verdict *v); /* json_oom.c: its waterfall */
json_t *json_allocator(const struct result_report *r);        /* json_allocator.c: allocator[] */
json_t *json_flushes(const struct result_report *r);          /* cache_flushes[] */
void json_pace(json_t *o, const struct result_pace *pace);    /* json_lines.c: how often a call site is called */
json_t *json_by_line(const struct result_by_site *list, size_t n);
void json_lines(
    json_t *o,
    const struct result_report *r); /* leak_lines[], churn_lines[], retry_lines[], sync_lines[], transfer_lines[] */
json_t *json_growth(const struct result_report *r); /* view_json.c: growth[] */
json_t *json_scopes(const struct result_report *r); /* scopes[] */
/* json_owner.c */
json_t *json_spaces(const int64_t bytes[8]);
void json_set_owners(json_t *o, const struct result_by_owner *list, size_t n); /* by_owner, owners */
json_t *json_preallocations(const struct result_report *r);
json_t *json_ranks(const struct result_report *r);
json_t *json_rank_findings(const struct result_report *r);
json_t *json_rank_spread(const struct result_report *r);
