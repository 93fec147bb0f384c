/* The use of a device's memory when an allocation fails: parts that sum to all of it. */
#pragma once

#include "analyzer/oom/oom.h"

/* The known facts about that moment: bytes, RUN_UNKNOWN if not known. */
struct oom_waterfall_facts {
    int64_t total, free;
    int64_t live;     /* CUDA allocations of this process */
    int64_t managed;  /* of it in managed memory, which need not be on the device */
    int64_t tensors;  /* in tensors; unknown if PyTorch reported none */
    int64_t reserved; /* by PyTorch's allocator: tensors and cache */
    int64_t pools;    /* of `live`, and not reserved: in allocations from CUDA's pools */
    int64_t idle;     /* held by those pools and in no allocation */
    int64_t graphs;   /* for graphs */
    int64_t first;    /* in use, not by recorded allocations, when the device was first seen */
    int64_t nvml_total, nvml_free, nvml_own, nvml_others; /* by NVML, at about that time */
};

/* Fills `parts`, none negative; they sum to the total. False: the figures contradict each other, or are too few. */
bool oom_waterfall_parts(const struct oom_waterfall_facts *f, int64_t parts[RESULT_HELD_N]);

/* The part of PyTorch's cache that no other request can use: freed blocks that a stream may still use, and memory of
 * private pools (of CUDA graphs or a torch.cuda.MemPool). */
struct oom_idle {
    int64_t pending, private;
    bool shared; /* live blocks are in those private pools, too */
};
struct oom_idle oom_idle(const struct result_report *r, const struct result_oom_verdict *v);

/* The verdict's waterfall; after the categories. */
void oom_waterfall_build(struct site_builder *b, struct result_oom_verdict *v);
