/* Puts the rows of a recording and their frees in order of time. For rows.c.
 *
 * In order of id, the rows are in order of allocation; their frees are in between. So memory is bounded by the number
 * of allocations that are live at once, not by the length of the run. */
#pragma once

#include "analyzer/run/run_internal.h"

struct run_stored {
    struct run_lifetime life; /* as stored: bytes and times are not checked; free_ns is not before alloc_ns */
    uint32_t free_stack;      /* RUN_NONE */
    bool backwards;           /* the row stated a free before the allocation */
    bool left_out;            /* of a device that was not asked for: only needed to relate backward passes */
};

enum { RUN_ROWS_BATCH = 2048 };
#define RUN_ROWS_FREE ((uint32_t)1 << 31)

struct run_rows {
    struct run_stored rows[RUN_ROWS_BATCH];
    size_t n, read; /* read: with those that were left out */
    /* The numbers of lifetimes, in order of time: of one that ends, with RUN_ROWS_FREE; or of the next row. */
    uint32_t *events;
    size_t events_n, events_cap;
};

/* What is checked in a row. */
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
