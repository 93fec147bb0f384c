/* What the files that write the JSON report share: view_json.c and json_*.c. Unknown is null. */
#ifndef GPUSPY_JSON_PARTS_H
#define GPUSPY_JSON_PARTS_H

#include <jansson.h>
#include <math.h>
#include "analyzer/report/report.h"

static inline void set(json_t *o, const char *key, json_t *value)
{
    json_object_set_new(o, key, value ? value : json_null());
}

static inline void set_text(json_t *o, const char *key, const char *text)
{
    set(o, key, text ? json_string(text) : NULL);
}

static inline void set_bytes(json_t *o, const char *key, int64_t bytes)
{
    set(o, key, bytes == GS_UNKNOWN ? NULL : json_integer(bytes));
}

static inline void set_count(json_t *o, const char *key, uint64_t n)
{
    set(o, key, json_integer((json_int_t)n));
}

static inline void set_real(json_t *o, const char *key, double value)
{
    set(o, key, isfinite(value) ? json_real(value) : NULL);
}

static inline void set_bool(json_t *o, const char *key, bool value)
{
    set(o, key, json_boolean(value));
}

/* [make(&list[0]), …] */
#define LIST(list, n, make)                                  \
    ({                                                       \
        json_t *list_ = json_array();                        \
        for (size_t i_ = 0; i_ < (n); i_++) {                \
            json_array_append_new(list_, make(&(list)[i_])); \
        }                                                    \
        list_;                                               \
    })

void gs_json_where(json_t *o, const struct gs_report *r, uint32_t process, int device); /* device, pid, rank */
json_t *gs_json_trace(const struct gs_trace *t);
json_t *gs_json_frame(const struct gs_frame *f);
json_t *gs_json_process(const struct gs_process *p);
json_t *gs_json_site(const struct gs_site *s);
void gs_json_oom(json_t *o, const struct gs_oom_verdict *v); /* json_oom.c: its waterfall */
json_t *gs_json_allocator(const struct gs_report *r); /* json_allocator.c: allocator[] */
json_t *gs_json_flushes(const struct gs_report *r);   /* cache_flushes[] */
json_t *gs_json_paths(const struct gs_paths *p); /* json_lines.c: paths[] of a line */
json_t *gs_json_by_line(const struct gs_by_site *list, size_t n);
void gs_json_lines(json_t *o, const struct gs_report *r); /* leak_lines[], churn_lines[], retry_lines[], sync_lines[], transfer_lines[] */
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
