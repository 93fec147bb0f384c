/* Backward passes seen during the replay: they distinguish an autograd graph that is kept from memory that only grows.
 *
 * The observer of oom.c passes each allocation and free on; a failure takes a snapshot.
 */
#pragma once

#include "analyzer/oom/oom.h"

struct oom_passes {      /* of the process that is replayed */
    int64_t backward_ns; /* the last allocation or free inside a backward pass that ends a graph; RUN_UNKNOWN: none */
    int64_t before_ns;   /* the same of the backward pass before that one */
    int64_t grad_ns;     /* the last allocation inside torch.autograd.grad(); RUN_UNKNOWN: none */
    bool in_grad;        /* … which nothing has followed yet */
    bool outside;        /* since then memory was allocated outside of backward passes */
    uint32_t *freed;     /* by location: blocks of it that a backward pass freed */
    size_t freed_cap;
    int64_t *silent_ns; /* by location: when a thread without Python frames, such as autograd's, last freed one of it */
    size_t silent_cap;
    int64_t *made; /* by location: bytes of all of its blocks, without workspaces of single operations */
    size_t made_cap;
    int64_t newest_ns; /* when the newest tensor was allocated */
    struct map stacks; /* stack → the kind of backward pass that it is inside of */
};

void oom_passes_start(struct oom_passes *p); /* a process begins */
/* Is it inside a backward pass? */
bool oom_passes_add_alloc(struct oom_passes *p, const struct run *run, const struct run_lifetime *life);
void oom_passes_add_free(struct oom_passes *p, const struct run *run, const struct run_lifetime *life);
void oom_passes_release(struct oom_passes *p);
/* When the last backward pass ended before the one that made the request on this stack, if one did. */
int64_t oom_passes_ended(struct oom_passes *p, const struct run *run, uint32_t stack);

/* The program's files on the call path name nothing of a training: no backward pass, no loss, no optimizer. */
bool oom_never_trains(struct site_builder *b, uint32_t stack);
/* Finds out whether a graph holds the memory that grows inside passes, from f->backward_ns and the results of
 * oom_find_growing. Sets f->graph and f->pending. After oom_find_growing. */
void oom_graph_judge(struct site_builder *b, const struct oom_passes *p, const struct oom_live *live, size_t n,
                     struct oom_facts *f);
