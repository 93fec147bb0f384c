#ifndef GPUSPY_CATEGORIES_H
#define GPUSPY_CATEGORIES_H

#include "analyzer/site/builder.h"

/* What was live at the peaks and at the failures, by category; after both. */
bool gs_categories_build(struct gs_builder *b, char *error, size_t error_size);
/* The same at moments of a process's own series: `by` gets its lines, which do not sum to `bytes` where
 * rows make no sense. After a replay with steps. */
struct gs_category_moment {
    int64_t time_ns;
    int device;
    enum gs_series_layer layer;
    int64_t bytes; /* all that was live there */
    struct gs_by_category by;
};
bool gs_categories_at(struct gs_builder *b, uint32_t process, struct gs_category_moment *moments, size_t n, char *error,
                      size_t error_size);

#endif
