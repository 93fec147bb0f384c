/* Tensors that PyTorch freed while another stream could still use them: PyTorch reuses their memory only after
 * their events have completed. */
#include "schema/store_state.h"

/* PyTorch records an event again only after it has completed, so one tensor at a time waits for it. */
static int wait_for_event(struct gs_store *s, uint64_t event, uint64_t id, uint64_t time_ns)
{
    if (gs_store_event_done(s, event, time_ns)) return -1;
    return gs_live_add(&s->events, &(struct gs_live){.address = event, .id = id}) ? 0 : gs_store_no_memory(s);
}

int gs_store_add_pending(struct gs_store *s, uint32_t thread, const struct gs_rec_pending *rec)
{
    const struct gs_live *live = gs_live_find(&s->live, GS_LAYER_TENSOR, rec->address);
    if (!live) return 0; /* its allocation was not recorded, and its free will count as unknown */
    const uint32_t event_stack = gs_store_stack_id(s, thread, rec->event_stack);
    const uint32_t free_stack = gs_store_stack_id(s, thread, rec->rec.stack);
    for (uint32_t i = 0; i < rec->count && i < GS_PENDING_EVENTS; i++) {
        struct gs_row_pending *row = GS_ARRAY_ADD(&s->pendings);
        if (!row) return gs_store_no_memory(s);
        *row = (struct gs_row_pending){
            .allocation = (int64_t)live->id,
            .event = (int64_t)rec->events[i],
            .free_ns = gs_whole(rec->rec.time_ns),
            .done_ns = GS_OPEN,
            .event_stack = event_stack,
            .free_stack = free_stack,
        };
        if (wait_for_event(s, rec->events[i], (uint64_t)(s->first_pending + (int64_t)s->pendings.count - 1),
                           rec->rec.time_ns))
            return -1;
    }
    return 0;
}

int gs_store_event_done(struct gs_store *s, uint64_t event, uint64_t time_ns)
{
    struct gs_live *waits = gs_live_find(&s->events, 0, event);
    if (!waits) return 0;
    const int64_t id = (int64_t)waits->id;
    gs_live_remove(&s->events, waits);
    if (id >= s->first_pending) {
        s->pendings.at[id - s->first_pending].done_ns = gs_whole(time_ns);
        return 0;
    }
    struct gs_row_moment *row = GS_ARRAY_ADD(&s->pending_ends);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_moment){id, gs_whole(time_ns)};
    return 0;
}

static int load_pending(struct gs_store *s, sqlite3_stmt *row)
{
    const int64_t id = sqlite3_column_int64(row, 0);
    return id <= 0 ? 0
                   : wait_for_event(s, (uint64_t)sqlite3_column_int64(row, 1), (uint64_t)id,
                                    (uint64_t)sqlite3_column_int64(row, 2));
}

int gs_store_load_pendings(struct gs_store *s)
{
    return gs_store_each(s, "SELECT id,event,free_ns FROM pending_free WHERE done_ns IS NULL ORDER BY id",
                         load_pending);
}
