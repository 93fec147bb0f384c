/* Decides which failed allocations were fatal. A failure is fatal until the same thread gets at least as much from the
 * same kind of memory. After a failed cudaMalloc PyTorch frees its cache and retries; if that fails too, it reports the
 * failure of a tensor, and from then on only tensors show that the thread recovered: a later cudaMalloc, for example of
 * a smaller batch, does not. A tensor of the requested size does; so do smaller ones that add up to GOT_ENOUGH times
 * that size, as in a program that caught the exception and continues with half the batch or with the next one. If that
 * size is out of reach (a probe, a wrong shape), many tensors do that add up to ON_TIMES what was live. A program that
 * dies of the failure allocates hardly any tensors before it ends; one that copies its state for a checkpoint allocates
 * about what was live. */
#include "schema/store_state.h"

#include <string.h>

/* Bounds the memory of a program that tries sizes for hours; its oldest failures stay fatal. */
#define OPEN_OOMS_MAX 16384
#define GOT_ENOUGH 2
#define ON_TIMES 8
#define ON_TENSORS 1000

static int64_t requested_or_null(uint64_t n)
{
    return n == UINT64_MAX ? -1 : n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

static void drop_open(struct gs_store *s, size_t i)
{
    s->open_ooms.count--;
    memmove(&s->open_ooms.at[i], &s->open_ooms.at[i + 1], (s->open_ooms.count - i) * sizeof *s->open_ooms.at);
}

/* Also called to load them, in order of id. */
int gs_store_open_oom(struct gs_store *s, const struct gs_open_oom *oom)
{
    for (size_t i = 0; oom->layer == GS_LAYER_TENSOR && i < s->open_ooms.count; i++) {
        struct gs_open_oom *o = &s->open_ooms.at[i];
        if (o->thread == oom->thread && o->layer == GS_LAYER_DEVICE && !o->host &&
            (o->device == oom->device || o->device < 0)) {
            o->layer = GS_LAYER_TENSOR;
            o->device = oom->device;
            o->bytes = oom->bytes;
            o->live = oom->live;
            o->got = o->tensors = 0;
        }
    }
    if (s->open_ooms.count == OPEN_OOMS_MAX) drop_open(s, 0);
    struct gs_open_oom *open = GS_ARRAY_ADD(&s->open_ooms);
    if (!open) return gs_store_no_memory(s);
    *open = *oom;
    return 0;
}

int gs_store_add_oom(struct gs_store *s, uint32_t thread, const struct gs_rec_oom *rec)
{
    struct gs_row_oom *row = GS_ARRAY_ADD(&s->ooms);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_oom){
        .requested = rec->requested_bytes > INT64_MAX ? INT64_MAX : (int64_t)rec->requested_bytes,
        .free = requested_or_null(rec->free_bytes),
        .total = requested_or_null(rec->total_bytes),
        .tensor_allocated = requested_or_null(rec->tensor_allocated),
        .tensor_reserved = requested_or_null(rec->tensor_reserved),
        .time_ns = rec->rec.time_ns > INT64_MAX ? INT64_MAX : (int64_t)rec->rec.time_ns,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
        .thread = gs_store_thread_row(s, thread),
        .device = rec->device,
        .api = rec->api,
        .layer = rec->layer & 3,
        .space = rec->space & 7,
        .fatal = true,
        .capped = rec->rec.flags & GS_FLAG_CAPPED,
    };
    if (gs_keep_failure(&s->keep, (uint64_t)row->time_ns)) return gs_store_no_memory(s);
    s->summary.ooms++;
    s->summary.fatal_ooms++;
    struct gs_open_oom open = {
        .id = s->first_oom + (int64_t)s->ooms.count - 1,
        .bytes = (uint64_t)row->requested,
        .live = rec->tensor_allocated,
        .thread = row->thread,
        .device = row->device,
        .layer = row->layer,
        .host = row->space == GS_SPACE_PINNED || row->space == GS_SPACE_HOST,
    };
    return gs_store_open_oom(s, &open);
}

static int has_recovered(struct gs_store *s, int64_t id)
{
    s->summary.fatal_ooms--;
    if (id >= s->first_oom) {
        s->ooms.at[id - s->first_oom].fatal = false;
        return 0;
    }
    int64_t *row = GS_ARRAY_ADD(&s->recovered_ooms);
    if (!row) return gs_store_no_memory(s);
    *row = id;
    return 0;
}

static bool went_on(const struct gs_open_oom *o, const struct gs_live *live)
{
    return o->bytes <= live->bytes || o->got / GOT_ENOUGH >= o->bytes ||
           (o->tensors >= ON_TENSORS && o->got / ON_TIMES >= o->live);
}

int gs_store_recover_ooms(struct gs_store *s, uint32_t thread, const struct gs_live *live)
{
    if (!s->open_ooms.count) return 0;
    const uint32_t own = gs_store_thread_row(s, thread);
    bool host = live->space == GS_SPACE_PINNED || live->space == GS_SPACE_HOST;
    for (size_t i = 0; i < s->open_ooms.count;) {
        struct gs_open_oom *o = &s->open_ooms.at[i];
        bool same_device = o->device == live->device || o->device < 0 || host;
        if (o->thread != own || o->layer != live->layer || o->host != host || !same_device) {
            i++;
            continue;
        }
        if (o->layer == GS_LAYER_TENSOR) {
            o->got += live->bytes;
            o->tensors++;
        }
        if (!went_on(o, live)) {
            i++;
            continue;
        }
        int64_t id = o->id;
        drop_open(s, i);
        if (has_recovered(s, id)) return -1;
    }
    return 0;
}
