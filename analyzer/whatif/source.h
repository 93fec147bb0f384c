/* What the program's own source shows about decisions that depend on memory. Source that is unknown shows nothing. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/run/run.h"
#include "analyzer/site/source_context.h"

/* As bits. The first three are figures on which a condition depends, or an argument of a function that does not only
 * print it. */
enum whatif_source {
    WHATIF_TOTAL = 1,          /* the size of the GPU */
    WHATIF_ALLOCATOR = 2,      /* what PyTorch's allocator reserves, allocates or counts */
    WHATIF_FREE_FIGURE = 4,    /* how much memory is free */
    WHATIF_SETS_FRACTION = 8,  /* it calls set_per_process_memory_fraction */
    WHATIF_SETS_CONF = 16,     /* it changes the allocator's settings while it runs */
    WHATIF_PLAIN_POOLS = 32,   /* it makes pools (MemPool), none of them with use_on_oom */
    WHATIF_SHOWS_FREE = 64,    /* it only prints how much memory is free, and nothing else asks for that */
    WHATIF_ASSIGNS_CONF = 128, /* it sets PYTORCH_CUDA_ALLOC_CONF, even if it is set */
    WHATIF_EMPTIES = 256,      /* it empties the cache, or captures graphs by itself, which does not empty it */
    WHATIF_RESETS_COUNTS = 512 /* it calls reset_accumulated_memory_stats */
};

/* Reads the program's files on all call paths, and those that they import. */
unsigned whatif_source_facts(struct run *run);
/* Does the program go on after an error of the allocator on this call path: in a try statement that handles it, or in a
 * thread of its own? */
bool whatif_is_caught(struct site_builder *b, uint32_t stack);
/* Does the statement of the stack's innermost frame make or store a value that is detached from its graph, and that no
 * statement of the file fills later? */
bool whatif_is_graphless(struct site_builder *b, uint32_t stack);
/* May a tensor that the program's line stores keep its graph? backward() frees what a graph holds. */
bool whatif_keeps_graph(struct site_builder *b, uint32_t stack);
/* May the program use the tensor when it frees it? A line that allocates again, calls the function again or heads the
 * loop drops what it no longer needs. Another line that frees a tensor may have used it first. */
bool whatif_may_be_used(struct site_builder *b, const struct run_lifetime *life, uint32_t process);
/* Does the call path have a line of Python? */
bool whatif_has_python(struct run *run, uint32_t stack);
