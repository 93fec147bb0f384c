/* Sorts the frees of a recording's rows between its allocations, by time. rows.c uses it.
 *
 * Rows are stored in order of allocation, so only frees are sorted: memory grows with the number of allocations that
 * are live at once, not with the length of the run. */
#pragma once

#include "analyzer/run/run_internal.h"

struct run_stored {
    struct run_lifetime life; /* free_ns is not before alloc_ns; bytes and times are unchecked until run_row_check */
    uint32_t free_stack;      /* RUN_NONE */
    bool backwards;           /* the row stated a free before the allocation */
    bool left_out;            /* of a device that was not asked for: only needed to relate backward passes */
};

enum { RUN_ROWS_BATCH = 2048 };
#define RUN_ROWS_FREE ((uint32_t)1 << 31)

struct run_rows {
    struct run_stored rows[RUN_ROWS_BATCH];
    size_t n, read; /* read: with those that were left out */
    /* In order of time: the number of the next row's lifetime, which begins, or with RUN_ROWS_FREE of one that ends. */
    ARENA_LIST(uint32_t, events);
};

struct run_row_check {
    const struct run *run;
    int64_t now;      /* time of the last allocation, ns */
    uint64_t damaged; /* inconsistent rows, or rows with an inconsistent time */
};
/* Corrects the times of an inconsistent row: none is before `now`, which advances. False if its bytes are not possible,
 * or if it is of a device that was not asked for. */
bool run_row_check(struct run_row_check *check, struct run_stored *row);

struct run_order;

/* A lifetime's number is not used again before `kept` others have ended. Free it with run_order_free. */
struct run_order *run_order_new(size_t kept);
void run_order_free(struct run_order *order);
/* Sets the events of a batch of checked rows: all up to its last allocation; `last`: all that are left. Numbers are as
 * low as possible. */
void run_order_batch(struct run_order *order, struct run_rows *batch, bool last);
