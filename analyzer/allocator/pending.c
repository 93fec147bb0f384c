/* Tensors that are freed but still in use, from their rows. */
#include "analyzer/run/run_internal.h"

#include <stdio.h>
#include "schema/store.h"

/* How far below the call that is known to be the allocator's free the event may have been recorded. */
enum { NEAR = 4 };

/* The event belongs to the free if both come from one call: the caller of the function that reported the free is in the
 * event's stack, right above where it was recorded. */
static enum run_known event_belongs_to_free(const struct run *run, uint32_t event, uint32_t free_stack)
{
    const struct run_frame *leaf =
        event == RUN_NONE || free_stack == RUN_NONE ? NULL : run_stack_frame(run, free_stack);
    if (!leaf || leaf->kind != GS_FRAME_NATIVE) return RUN_UNSURE;
    const uint32_t caller = run_stack_parent(run, free_stack);
    if (caller == RUN_NONE) return RUN_UNSURE;
    for (int i = 0; i < NEAR && event != RUN_NONE; i++) {
        event = run_stack_parent(run, event);
        if (event == caller) return RUN_YES;
    }
    return RUN_NO;
}

/* Rows of one free are adjacent, one for each event that it waits for. The free is recorded slightly after the event:
 * until the free the tensor counts as live, so that it is never both live and pending. */
void allocator_each_pending(struct run *run, uint32_t process, run_pending_fn each, void *self)
{
    struct run_database *db = &run->databases[run->processes[process].database];
    char sql[512];
    snprintf(sql, sizeof sql,
             "SELECT a.kind, a.address, a.bytes, a.stream, coalesce(a.alloc_ns + a.life_ns, p.free_ns), p.done_ns, "
             "p.event_stack_id, p.free_stack_id FROM pending_free p JOIN %s a ON a.id = p.allocation_id ORDER BY p.id",
             db->allocations);
    sqlite3_stmt *st = run_database_prepare(db, sql);
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        const int64_t kind = sqlite3_column_int64(st, 0), done = run_column_int(st, 5);
        uint32_t extra;
        struct run_pending p = {
            .process = process,
            .device = (int)(kind >> 5 & 127) - 1,
            .address = (uint64_t)sqlite3_column_int64(st, 1),
            .bytes = gs_bytes_unpack(kind, sqlite3_column_int64(st, 2), &extra),
            .stream = (uint64_t)sqlite3_column_int64(st, 3),
            .free_ns = sqlite3_column_int64(st, 4),
            .done_ns = done == RUN_UNKNOWN ? RUN_NEVER : done,
            .captured = (kind >> 2 & 7) == GS_SPACE_POOL,
            /* PyTorch's own snapshots state it; in recordings it is inferred */
            .known = run_why_unknown(run, RUN_FACT_WAITS)
                         ? RUN_YES
                         : event_belongs_to_free(run, run_ids_get(&db->stacks, sqlite3_column_int64(st, 6)),
                                                 run_ids_get(&db->stacks, sqlite3_column_int64(st, 7)))};
        if (p.known != RUN_NO && p.bytes > 0 && p.bytes <= RUN_BYTES_MAX) each(self, &p);
    }
    sqlite3_finalize(st);
}

struct at {
    const int64_t *moments;
    size_t n;
    run_pending_at_fn each;
    void *self;
};

static void moments_on_pending(void *self, const struct run_pending *p)
{
    const struct at *at = self;
    for (size_t i = 0; i < at->n && at->moments[i] < p->done_ns; i++)
        if (at->moments[i] >= p->free_ns) at->each(at->self, i, p);
}

void allocator_each_pending_at(struct run *run, uint32_t process, const int64_t *moments, size_t n,
                               run_pending_at_fn each, void *self)
{
    struct at at = {moments, n, each, self};
    if (n) allocator_each_pending(run, process, moments_on_pending, &at);
}
