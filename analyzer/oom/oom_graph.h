/* Backward passes seen during the replay: what tells an autograd graph that is kept from memory that merely grows.
 *
 * The observer of oom.c passes each allocation and free on; a failure takes a snapshot. */
#ifndef GPUSPY_OOM_GRAPH_H
#define GPUSPY_OOM_GRAPH_H

#include "analyzer/oom/oom.h"

struct gs_oom_passes {   /* of the process that is replayed */
    int64_t backward_ns; /* the last allocation or free inside a backward pass; GS_UNKNOWN: none so far */
    uint32_t *freed;     /* by location: blocks of it that a backward pass freed */
    size_t freed_cap;
    int64_t *made; /* by location: bytes of all of its blocks */
    size_t made_cap;
    struct gs_map stacks; /* stack → is it inside a backward pass? */
};

void gs_oom_passes_start(struct gs_oom_passes *p); /* a process begins */
/* Is it inside a backward pass? */
bool gs_oom_passes_alloc(struct gs_oom_passes *p, const struct gs_run *run, const struct gs_lifetime *life);
void gs_oom_passes_free(struct gs_oom_passes *p, const struct gs_run *run, const struct gs_lifetime *life);
void gs_oom_passes_release(struct gs_oom_passes *p);

/* What holds the memory that grows inside passes, from f->backward_ns and what gs_oom_growing found. Sets f->graph and
 * f-> pending. After gs_oom_growing. */
void gs_oom_graph_judge(const struct gs_builder *b, const struct gs_oom_passes *p, const struct gs_oom_live *live,
                        size_t n, struct gs_oom_facts *f);

#endif
