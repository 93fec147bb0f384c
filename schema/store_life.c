/* Lifetimes of memory: their rows, and the totals of live memory. */
#include "schema/store_state.h"

#include <stdlib.h>

/* If this many lifetimes per live one begin or end without a copy, updating the tree costs more than building it again
 * for the next copy. */
#define CHANGES_SHARE 4
#define CHANGES_MIN 1000

/* ---------------------------------------------------------------- totals */

/* Notes the total `now` of a series after an event, and its peak. */
static void note_level(struct gs_store *s, enum gs_series series, int device, const struct gs_live *live,
                       uint64_t *peak, uint64_t now)
{
    gs_level_add(&s->levels, gs_level_index(series, device), now, s->last_ns);
    if (now <= *peak) return;
    *peak = now;
    gs_level_peak(&s->levels, gs_level_index(series, device), live->alloc_ns, s->last_ns);
}

static void track_device_level(struct gs_store *s, const struct gs_live *live, int64_t bytes)
{
    if (live->space == GS_SPACE_SHARED) bytes = 0; /* its owner's process counts it */
    if (gs_on_host(live->space, live->device)) {
        s->pinned_now += (uint64_t)bytes;
        note_level(s, GS_SERIES_PINNED, 0, live, &s->summary.pinned_peak, s->pinned_now);
    } else if (live->device >= 0 && live->device < GS_DEVICES_MAX) {
        s->device_now[live->device] += (uint64_t)bytes;
        note_level(s, GS_SERIES_DEVICE, live->device, live, &s->summary.device[live->device].device_peak,
                   s->device_now[live->device]);
        s->summary.device[live->device].used = 1;
    }
}

struct gs_check *gs_store_check(struct gs_store *s, uint8_t layer, int device)
{
    if (layer == GS_LAYER_HOST) return &s->checks[GS_CPU_CHECK];
    return device >= 0 && device < GS_DEVICES_MAX ? &s->checks[device] : NULL;
}

static void track_tensor(struct gs_store *s, const struct gs_live *live, int64_t bytes)
{
    struct gs_check *check = gs_store_check(s, live->layer, live->device);
    if (!check) return;
    if (live->space != GS_SPACE_SHARED)
        check->running = (int64_t)((uint64_t)check->running + (uint64_t)bytes); /* unsigned: damage may overflow it */
    uint64_t now = check->running > 0 ? (uint64_t)check->running : 0;
    if (live->layer == GS_LAYER_HOST) {
        s->host_now += (uint64_t)bytes;
        note_level(s, GS_SERIES_HOST, 0, live, &s->summary.host_peak, s->host_now);
    } else {
        note_level(s, GS_SERIES_TENSOR, live->device, live, &s->summary.device[live->device].tensor_peak, now);
        s->summary.device[live->device].used = 1;
    }
}

/* If memory runs out, copies count as pageable. The address of an array is its handle, and host memory may begin right
 * after it. */
static void add_place(struct gs_store *s, const struct gs_live *live)
{
    const uint64_t bytes = live->space == GS_SPACE_ARRAY ? 1 : live->bytes;
    gs_ranges_add(&s->places.tree, &(struct gs_range){live->address, bytes, live->device, live->space, 0});
}

/* A lifetime begins (+1) or ends (-1). */
void gs_store_track_bytes(struct gs_store *s, const struct gs_live *live, int sign)
{
    int64_t bytes = sign * (int64_t)live->bytes;
    gs_course_add(&s->courses, live->course, bytes);
    if (live->layer != GS_LAYER_DEVICE)
        track_tensor(s, live, bytes);
    else
        track_device_level(s, live, bytes);
}

void gs_store_track(struct gs_store *s, const struct gs_live *live, int sign)
{
    gs_store_track_bytes(s, live, sign);
    if (live->layer != GS_LAYER_DEVICE || !s->places.known) return;
    if (s->places.changes++ > CHANGES_MIN + CHANGES_SHARE * s->places.tree.count) { /* no copy for a long time */
        gs_ranges_free(&s->places.tree);
        s->places.known = false;
    } else if (sign < 0) {
        gs_ranges_remove(&s->places.tree, live->address);
    } else {
        add_place(s, live);
    }
}

/* ---------------------------------------------------------------- the allocation at an address */

static int by_age(const void *a, const void *b)
{
    const struct gs_live *const *x = a, *const *y = b;
    return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

/* Of two that overlap, the younger stays: the free of the other was not recorded. */
static void find_places(struct gs_store *s)
{
    GS_ARRAY(const struct gs_live *) live = {0};
    for (size_t i = 0; s->live.count && i <= s->live.mask; i++) {
        const struct gs_live *one = &s->live.slots[i];
        const struct gs_live **at = one->id && one->layer == GS_LAYER_DEVICE ? GS_ARRAY_ADD(&live) : NULL;
        if (at) *at = one;
    }
    if (live.count) qsort(live.at, live.count, sizeof *live.at, by_age);
    for (size_t i = 0; i < live.count; i++) add_place(s, live.at[i]);
    free(live.at);
    s->places.known = true;
}

const struct gs_range *gs_store_find_place(struct gs_store *s, uint64_t address)
{
    if (!s->places.known) find_places(s);
    s->places.changes = 0;
    return gs_ranges_find(&s->places.tree, address);
}

/* ---------------------------------------------------------------- lifetimes */

int gs_store_end_row(struct gs_store *s, uint64_t id, int64_t life_ns, uint32_t free_stack)
{
    if ((int64_t)id >= s->first_allocation) { /* begun since the last commit: its row is still in memory */
        struct gs_row_allocation *row = &s->allocations.at[(int64_t)id - s->first_allocation];
        row->life_ns = life_ns;
        row->free_stack = free_stack;
        return 0;
    }
    struct gs_row_end *row = GS_ARRAY_ADD(&s->ends);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_end){(int64_t)id, life_ns, free_stack};
    return 0;
}

int gs_store_end_lifetime(struct gs_store *s, struct gs_live *live, uint64_t time_ns, uint32_t stack)
{
    int64_t life = gs_whole(time_ns > live->alloc_ns ? time_ns - live->alloc_ns : 0);
    gs_store_track(s, live, -1);
    int rc = gs_store_end_row(s, live->id, life, stack);
    gs_live_remove(&s->live, live);
    return rc;
}

int gs_store_begin_row(struct gs_store *s, uint32_t thread, const struct gs_rec *rec, struct gs_live *begin,
                       uint64_t stream, uint32_t extra, uint16_t api)
{
    struct gs_row_allocation *row = GS_ARRAY_ADD(&s->allocations);
    if (!row) return gs_store_no_memory(s);
    begin->id = (uint64_t)(s->first_allocation + (int64_t)s->allocations.count - 1);
    int device = begin->device > 126 || begin->device < -1 ? -1 : begin->device;
    *row = (struct gs_row_allocation){
        .kind = GS_ALLOCATION_KIND(begin->layer, begin->space, device, api, gs_store_thread_row(s, thread)),
        .address = (int64_t)begin->address,
        .bytes = gs_bytes_pack(begin->bytes, extra),
        .alloc_ns = (int64_t)begin->alloc_ns,
        .life_ns = GS_OPEN,
        .stream = (int64_t)stream,
        .alloc_stack = gs_store_stack_id(s, thread, rec->stack),
        .free_stack = GS_STACK_LATER,
    };
    begin->course = gs_course_of(&s->courses, begin->id, row->alloc_stack, row->kind, s->last_ns);
    return 0;
}
