/* How a process used a block: whether a forward or backward pass ran during its life, and whether its
 * call path allocates again in nearly every step. Recorded during a replay; the answers are known at
 * the end of each process. */
#pragma once

#include "analyzer/site/builder.h"

/* Bits of category_block.use. */
enum {
    CATEGORY_USE_UNUSED = 1,    /* it was freed before any pass ran */
    CATEGORY_USE_RECURS = 2,    /* its call path allocates again and again, and it is freed soon */
    CATEGORY_USE_ONCE = 4,      /* its call path ran once, in the function that then ran the only pass so far */
    CATEGORY_USE_KEPT = 8,      /* it was kept over several steps; made by an optimizer: over a pass */
    CATEGORY_USE_REPLACES = 16, /* made by an optimizer: its call path replaced memory from which modules were built */
    CATEGORY_USE_PASSED = 32,   /* freed after the run's last allocation, but by the backward pass, as earlier blocks of
                                   its call path */
    CATEGORY_USES = 64
};

struct category_uses;
/* Its observer comes after that of the steps. Sets b->report->uses. */
struct category_uses *category_uses_start(struct site_builder *b, struct run_observer *observer);
void category_uses_free(struct category_uses *u);
/* Replays the run only for this. NULL and a line in `error` if a database cannot be read. */
struct category_uses *category_uses_read(struct run *run, const struct run_observer *beside, char *error,
                                         size_t error_size);
/* The bits of a block of that process. `u` may be NULL: none. */
unsigned category_uses_of(const struct category_uses *u, uint32_t process, uint32_t stack, int64_t alloc_ns,
                          int64_t free_ns);
/* Was the process at that time in its first pass, or between that and the next one? */
bool category_uses_is_first_step(const struct category_uses *u, uint32_t process, int64_t time_ns);
