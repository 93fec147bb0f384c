/* The roofline of a kernel or an operator, for people and for programs. */
#pragma once

#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/estimate/roofline.h"

struct view_roofline {
    const struct estimate_gpu *gpu;    /* NULL: compared with all known GPUs */
    enum estimate_gpu_rate rate;       /* the precision of the computation */
    enum estimate_gpu_rate stored;     /* the storage format of its tensors */
    const struct estimate_roof_op *op; /* NULL: operations and bytes were given */
    struct estimate_roof_shape shape;
    struct estimate_roof_way ways[ROOF_WAYS_MAX];
    size_t ways_n;
    double measured_s; /* 0: not given */
};

void view_roofline_text(const struct view_roofline *r, const struct terminal *term, FILE *out);
void view_roofline_json(const struct view_roofline *r, FILE *out);
