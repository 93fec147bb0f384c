/* Rows of the memory of CUDA graphs, of pools, and of facts about PyTorch's allocator. */
#include "schema/store_state.h"

int gs_store_graph_alloc(struct gs_store *s, uint32_t thread, const struct gs_rec_alloc *rec)
{
    struct gs_row_graph *row = GS_ARRAY_ADD(&s->graphs);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_graph){
        .address = (int64_t)rec->address,
        .bytes = gs_whole(rec->bytes),
        .time_ns = gs_whole(rec->rec.time_ns),
        .freed_ns = GS_OPEN,
        .stream = (int64_t)rec->stream,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
        .thread = gs_store_thread_row(s, thread),
        .device = rec->device,
        .api = rec->api,
    };
    struct gs_live now = {.address = rec->address, .id = (uint64_t)(s->first_graph + (int64_t)s->graphs.count - 1)};
    struct gs_live *old = gs_live_find(&s->graph_live, 0, rec->address);
    if (old) { /* another graph's memory, at an address that CUDA reuses */
        old->id = now.id;
        return 0;
    }
    return gs_live_add(&s->graph_live, &now) ? 0 : gs_store_no_memory(s);
}

int gs_store_graph_end(struct gs_store *s, uint64_t id, int64_t time_ns)
{
    if ((int64_t)id >= s->first_graph) {
        s->graphs.at[(int64_t)id - s->first_graph].freed_ns = time_ns;
        return 0;
    }
    struct gs_row_moment *row = GS_ARRAY_ADD(&s->graph_ends);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_moment){(int64_t)id, time_ns};
    return 0;
}

/* Every launch allocates the memory again at the same address, so an address keeps its entry after a free. */
bool gs_store_graph_free(struct gs_store *s, uint32_t thread, const struct gs_rec_free *rec, int *rc)
{
    const struct gs_live *found = rec->layer == GS_LAYER_DEVICE ? gs_live_find(&s->graph_live, 0, rec->address) : NULL;
    struct gs_store_thread *t = found ? gs_store_thread(s, thread) : NULL;
    if (!t) {
        *rc = found ? -1 : 0;
        return found;
    }
    t->last_free = (struct gs_live){.address = rec->address, .id = found->id};
    t->last_free_set = t->last_free_dirty = t->last_free_graph = true;
    *rc = gs_store_graph_end(s, found->id, gs_whole(rec->rec.time_ns));
    return true;
}

int gs_store_add_pool(struct gs_store *s, const struct gs_rec_pool *rec)
{
    struct gs_row_pool *row = GS_ARRAY_ADD(&s->pools);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_pool){
        .pool = (int64_t)rec->pool,
        .time_ns = gs_whole(rec->rec.time_ns),
        .used = gs_whole(rec->used_bytes),
        .reserved = gs_whole(rec->reserved_bytes),
        .device = rec->device,
        .api = rec->api,
    };
    return 0;
}

int gs_store_add_allocator(struct gs_store *s, const struct gs_rec_allocator *rec)
{
    struct gs_row_allocator *row = GS_ARRAY_ADD(&s->allocator_facts);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_allocator){
        .time_ns = gs_whole(rec->rec.time_ns),
        .address = gs_whole(rec->address),
        .value = rec->value,
        .device = rec->device,
        .kind = rec->kind,
    };
    return 0;
}
