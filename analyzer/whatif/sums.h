/* Do the sizes of tensors follow what the line that --without leaves out keeps? torch.cat and torch.stack make a tensor
 * as large as all that a list keeps; `buffer = torch.cat([buffer, x])` makes one that is larger each time. Without the
 * line they are smaller than in the recording, from which the replay has its sizes. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/run/run.h"

struct whatif_sums_kept;
struct whatif_sums_other;
struct whatif_sums {
    struct map index; /* call path of the line → kept; another one, with the highest bit → others */
    ARENA_LIST(struct whatif_sums_kept, kept);
    ARENA_LIST(struct whatif_sums_other, others);
    bool outlived; /* tensors of the line outlived a step */
};

/* A tensor as recorded, with its run_live_number; `of_line`: the line makes it. */
void whatif_sums_allocate(struct whatif_sums *s, const struct run_lifetime *life, uint32_t number, bool of_line);
void whatif_sums_free(struct whatif_sums *s, const struct run_lifetime *life, uint32_t number);
bool whatif_sums_depend(const struct whatif_sums *s);
void whatif_sums_release(struct whatif_sums *s);
