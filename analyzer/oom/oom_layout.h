/* Where PyTorch's blocks were when a request failed, and whether the request would have succeeded without some of them:
 * its allocator's own rules (whatif/lane.h) on the recorded segments and blocks. No replay of the run is needed. */
#pragma once

#include "analyzer/oom/oom.h"
#include "analyzer/step/step.h"

/* At this moment of the run's replay; lives as long as the builder. NULL: PyTorch had no block there, or its segments
 * grow (expandable_segments). */
const struct oom_layout *oom_layout_take(struct site_builder *b, const struct run_oom *row);

struct oom_drop {               /* blocks to leave out */
    const uint32_t *stacks;     /* allocated on one of these, ascending */
    size_t stacks_n;            /* 0: on any */
    int64_t from_ns, before_ns; /* allocated in [from, before) */
    bool in_pass;               /* only in forward or backward passes */
    uint32_t thinned;           /* of the blocks of this call path, only each `each`th stays: the last of its pass */
    uint64_t each;              /* 0: of none */
};

struct oom_replayed {
    bool known, fits;
    int64_t frees_bytes; /* bytes of the blocks that are left out */
    int64_t spare_bytes; /* after the request: free on the GPU, or cached by PyTorch */
};
/* Repeats the request of `f` with `free` bytes left on the GPU, and without the blocks of `drop` (NULL: with all). */
struct oom_replayed oom_layout_replay(const struct site_builder *b, const struct oom_facts *f,
                                      const struct oom_drop *drop, int64_t free_bytes);

/* In how many steps the call path made the blocks that are there, without those before `from_ns`; 0 unknown. */
uint64_t oom_layout_steps(const struct oom_layout *layout, uint32_t stack, const struct step_list *steps,
                          int64_t from_ns);

/* A measure that such a replay decides: its text, the bytes that it frees, and whether they are enough. `name`:
 * "without train.py:42". The amount stays a formula if the layout is unknown or the drop names no block. */
void oom_layout_decide(const struct site_builder *b, const struct oom_facts *f, const struct oom_drop *drop,
                       const char *name, struct result_measure *m);
