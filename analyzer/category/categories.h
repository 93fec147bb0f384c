#pragma once

#include "analyzer/site/builder.h"

/* The memory that was live at the peaks and at the failures, by category; call after both. */
bool category_build(struct site_builder *b, char *error, size_t error_size);
/* The same at moments of a process's own series: `by` gets its lines, which do not sum to `bytes` if rows are
 * inconsistent. After a replay with steps. */
struct category_moment {
    int64_t time_ns;
    int device;
    enum run_series_layer layer;
    int64_t bytes; /* all live bytes there */
    struct result_by_category by;
};
bool category_at(struct site_builder *b, uint32_t process, struct category_moment *moments, size_t n, char *error,
                 size_t error_size);
