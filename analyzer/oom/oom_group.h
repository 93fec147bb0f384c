/* The failed calls that belong to one failure. */
#pragma once

#include "analyzer/site/builder.h"

struct oom_group {
    size_t first, last; /* rows; other threads' rows may be in between */
    size_t shown;       /* the row to report: PyTorch's, else the last */
    unsigned failures;
    bool fatal, handled, raised, device_failed, tensor_failed, captured, chosen, capped;
    enum result_oom_outcome outcome;
    int64_t free, total, device_requested; /* the last: the largest request to CUDA */
    size_t placed; /* the row whose stack counts: the replay may still change it, see backward.h */
};

/* The failures of the run, in the order of their first rows; the caller frees them. */
struct oom_group *oom_make_groups(struct site_builder *b, const struct run_oom *rows, size_t rows_n, size_t *n);
