/* What was never freed: by line or call path, its category and whether it grows. */
#pragma once

#include <jansson.h>
#include "analyzer/profile/profile.h"
#include "analyzer/view/view_text.h"

struct view_leak_row {
    uint32_t process, stack;
    int device;
    enum run_series_layer layer;
    enum result_category category;
    struct result_site site;
    int64_t bytes;
    uint64_t count;
    bool growing;
};

struct view_leaks {
    struct view_leak_row *list;
    size_t n, cap;
    int64_t bytes;
    uint64_t count;
};

/* From a profile of the end, by category. A row for each call path, or for each line, whatever path led to it and in
 * which process; what grows comes first. Rows below `min` bytes are left out. The caller frees the list. */
void view_leaks_collect(struct run *run, const struct result_report *r, const struct profile *p, int64_t min,
                        bool by_line, struct view_leaks *out);
/* Including growth, from the report. */
void view_leaks(const struct draw_text *t, struct run *run, const struct view_leaks *leaks);
/* Members of `o`. */
void view_leaks_json(json_t *o, struct run *run, const struct result_report *r, const struct view_leaks *leaks,
                     size_t top);
