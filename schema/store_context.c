/* Rows of streams, contexts and other handles, and what the destruction of a context frees. */
#include "schema/store_state.h"

#include <stdlib.h>

static int end_handle(struct gs_store *s, int64_t id, int64_t time_ns)
{
    if (id >= s->first_handle) {
        s->handles.at[id - s->first_handle].destroy_ns = time_ns;
        return 0;
    }
    struct gs_row_moment *row = GS_ARRAY_ADD(&s->handle_ends);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_moment){id, time_ns};
    return 0;
}

static bool goes_with(const struct gs_live *live, const struct gs_rec_handle *rec)
{
    if (live->layer != GS_LAYER_DEVICE) return false;
    if (rec->context) return live->context == rec->context;
    return !live->context && (live->device == rec->device || live->home == rec->device);
}

/* A context was destroyed, and the process's memory in it. Context 0 is the primary one: all memory of the device that
 * belongs to no other context, and the pinned memory that was allocated in it. */
static int end_context(struct gs_store *s, uint32_t thread, const struct gs_rec_handle *rec)
{
    uint32_t stack = gs_store_stack_id(s, thread, rec->rec.stack);
    size_t capacity = s->live.count ? s->live.mask + 1 : 0;
    GS_ARRAY(uint64_t) gone = {0}; /* first a list: removing an entry moves others of the map */
    for (size_t i = 0; i < capacity; i++) {
        const struct gs_live *live = &s->live.slots[i];
        if (!live->id || !goes_with(live, rec)) continue;
        uint64_t *address = GS_ARRAY_ADD(&gone);
        if (!address) {
            free(gone.at);
            return gs_store_no_memory(s);
        }
        *address = live->address;
    }
    int rc = 0;
    for (size_t i = 0; i < gone.count && !rc; i++)
        rc = gs_store_end_lifetime(s, gs_live_find(&s->live, GS_LAYER_DEVICE, gone.at[i]), rec->rec.time_ns, stack);
    free(gone.at);
    return rc || rec->context ? rc : gs_vmm_end_device(s, rec->device, rec->rec.time_ns, stack);
}

/* A list of the open handles is enough, because a program has few streams and contexts. */
int gs_store_add_handle(struct gs_store *s, uint32_t thread, const struct gs_rec_handle *rec)
{
    int64_t time_ns = gs_whole(rec->rec.time_ns);
    bool destroyed = rec->rec.flags & GS_FLAG_DESTROYED;
    if (destroyed && rec->kind == GS_HANDLE_CONTEXT && (rec->context || rec->device >= 0) &&
        end_context(s, thread, rec))
        return -1;
    size_t i = s->open_handles.count;
    while (i-- > 0)
        if (s->open_handles.at[i].handle == rec->handle && s->open_handles.at[i].kind == rec->kind) break;
    if (i != SIZE_MAX) {
        int64_t id = s->open_handles.at[i].id;
        s->open_handles.at[i] = s->open_handles.at[--s->open_handles.count];
        if (destroyed) return end_handle(s, id, time_ns);
    }
    struct gs_row_handle *row = GS_ARRAY_ADD(&s->handles);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_handle){
        .handle = (int64_t)rec->handle,
        .create_ns = destroyed ? -1 : time_ns,
        .destroy_ns = destroyed ? time_ns : -1,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
        .device = rec->device,
        .api = rec->api,
        .kind = rec->kind,
    };
    if (destroyed) return 0;
    struct gs_open_handle *open = GS_ARRAY_ADD(&s->open_handles);
    if (!open) return gs_store_no_memory(s);
    *open = (struct gs_open_handle){rec->handle, s->first_handle + (int64_t)s->handles.count - 1, rec->kind};
    return 0;
}
