/* What was never freed: by place or call path, what it is for and whether it grows. */
#ifndef GPUSPY_VIEW_LEAKS_H
#define GPUSPY_VIEW_LEAKS_H

#include <jansson.h>
#include "analyzer/profile/profile.h"
#include "analyzer/text/view_text.h"

struct leak_row {
    uint32_t process, stack;
    int device;
    enum gs_series_layer layer;
    enum gs_category category;
    struct gs_site site;
    int64_t bytes;
    uint64_t count;
    bool growing;
};

struct leaks {
    struct leak_row *list;
    size_t n, cap;
    int64_t bytes;
    uint64_t count;
};

/* Of a profile of the end, by category. A row for each call path, or for each line, whatever path led to
 * it and in which process; what grows stands first. Rows below `min` bytes are left out. The list is the
 * caller's to free. */
void leaks_collect(struct gs_run *run, const struct gs_report *r, const struct gs_profile *p, int64_t min, bool by_line,
                   struct leaks *out);
/* With what grows, as the report has it. */
void view_leaks(const struct view_text *t, struct gs_run *run, const struct leaks *leaks);
/* Members of `o`. */
void view_leaks_json(json_t *o, struct gs_run *run, const struct gs_report *r, const struct leaks *leaks, size_t top);

#endif
