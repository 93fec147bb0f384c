/* An event → rows in memory. */
#include "schema/record.h"
#include "schema/store_state.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Numbers beyond what SQLite's integers hold come only from damage. */
static int64_t whole(uint64_t n)
{
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

/* Free and total where the device could not be asked: NULL, kept as -1. */
static int64_t whole_or_null(uint64_t n)
{
    return n == UINT64_MAX ? -1 : whole(n);
}

struct gs_store_thread *gs_store_thread(struct gs_store *s, uint32_t thread)
{
    while (thread >= s->threads.count) {
        struct gs_store_thread *t = GS_ARRAY_ADD(&s->threads);
        if (!t) {
            gs_store_no_memory(s);
            return NULL;
        }
        memset(t, 0, sizeof *t);
    }
    return &s->threads.at[thread];
}

/* ---------------------------------------------------------------- totals */

static void raise_peak(uint64_t *peak, uint64_t now)
{
    if (now > *peak)
        *peak = now;
}

static void track_device_level(struct gs_store *s, const struct gs_live *live, int64_t bytes)
{
    if (live->space == GS_SPACE_PINNED || live->space == GS_SPACE_HOST) {
        s->pinned_now += (uint64_t)bytes;
        raise_peak(&s->summary.pinned_peak, s->pinned_now);
    } else if (live->device >= 0 && live->device < GS_DEVICES_MAX) {
        s->device_now[live->device] += (uint64_t)bytes;
        raise_peak(&s->summary.device[live->device].device_peak, s->device_now[live->device]);
        s->summary.device[live->device].used = 1;
    }
}

static struct gs_check *check_of(struct gs_store *s, uint8_t layer, int device)
{
    if (layer == GS_LAYER_HOST)
        return &s->checks[GS_CPU_CHECK];
    return device >= 0 && device < GS_DEVICES_MAX ? &s->checks[device] : NULL;
}

static void track_tensor(struct gs_store *s, const struct gs_live *live, int64_t bytes)
{
    struct gs_check *check = check_of(s, live->layer, live->device);
    if (!check)
        return;
    if (live->space != GS_SPACE_SHARED)
        check->running =
            (int64_t)((uint64_t)check->running + (uint64_t)bytes); /* may wrap, if damaged */
    uint64_t now = check->running > 0 ? (uint64_t)check->running : 0;
    if (live->layer == GS_LAYER_HOST) {
        s->host_now += (uint64_t)bytes;
        raise_peak(&s->summary.host_peak, s->host_now);
    } else {
        raise_peak(&s->summary.device[live->device].tensor_peak, now);
        s->summary.device[live->device].used = 1;
    }
}

/* A lifetime begins (+1) or ends (-1). */
void gs_store_track(struct gs_store *s, const struct gs_live *live, int sign)
{
    int64_t bytes = sign * (int64_t)live->bytes;
    if (live->layer != GS_LAYER_DEVICE) {
        track_tensor(s, live, bytes);
        return;
    }
    track_device_level(s, live, bytes);
    if (sign < 0) {
        gs_ranges_remove(&s->ranges, live->address);
    } else {
        struct gs_range range = {live->address, live->bytes, live->device, live->space};
        gs_ranges_add(&s->ranges, &range); /* without memory: copies would count as pageable */
    }
}

/* ---------------------------------------------------------------- lifetimes */

static int end_row(struct gs_store *s, uint64_t id, int64_t life_ns, uint32_t free_stack)
{
    if ((int64_t)id >= s->first_allocation) { /* begun in this batch: one row with everything */
        struct gs_row_allocation *row = &s->allocations.at[(int64_t)id - s->first_allocation];
        row->life_ns = life_ns;
        row->free_stack = free_stack;
        return 0;
    }
    struct gs_row_end *row = GS_ARRAY_ADD(&s->ends);
    if (!row)
        return gs_store_no_memory(s);
    *row = (struct gs_row_end){(int64_t)id, life_ns, free_stack, (uint32_t)s->ends.count};
    return 0;
}

/* `live` is an entry of the map, gone afterwards. */
static int end_lifetime(struct gs_store *s, struct gs_live *live, uint64_t time_ns, uint32_t stack)
{
    int64_t life = whole(time_ns > live->alloc_ns ? time_ns - live->alloc_ns : 0);
    gs_store_track(s, live, -1);
    int rc = end_row(s, live->id, life, stack);
    gs_live_remove(&s->live, live);
    return rc;
}

/* begin->id is given here. */
static int begin_lifetime(struct gs_store *s, uint32_t thread, const struct gs_rec *rec,
                          struct gs_live *begin, uint64_t stream, uint16_t api)
{
    struct gs_live *old = gs_live_find(&s->live, begin->layer, begin->address);
    if (old) { /* its free was not seen: it ended by now at the latest */
        s->counts[GS_COUNT_IMPLIED_FREES]++;
        if (end_lifetime(s, old, begin->alloc_ns, 0))
            return -1;
    }
    struct gs_row_allocation *row = GS_ARRAY_ADD(&s->allocations);
    if (!row)
        return gs_store_no_memory(s);
    begin->id = (uint64_t)(s->first_allocation + (int64_t)s->allocations.count - 1);
    int device = begin->device > 126 || begin->device < -1 ? -1 : begin->device;
    *row = (struct gs_row_allocation){
        .kind = GS_ALLOCATION_KIND(begin->layer, begin->space, device, api, thread),
        .address = (int64_t)begin->address,
        .bytes = (int64_t)begin->bytes,
        .alloc_ns = (int64_t)begin->alloc_ns,
        .life_ns = GS_OPEN,
        .stream = (int64_t)stream,
        .alloc_stack = gs_store_stack_id(s, thread, rec->stack),
    };
    if (!gs_live_add(&s->live, begin))
        return gs_store_no_memory(s);
    gs_store_track(s, begin, 1);
    return gs_store_recover_ooms(s, thread, begin);
}

static int add_alloc(struct gs_store *s, uint32_t thread, const struct gs_rec_alloc *rec)
{
    if (!rec->address) /* cudaMalloc of 0 bytes */
        return 0;
    struct gs_live live = {rec->address,
                           0,
                           (uint64_t)whole(rec->bytes),
                           (uint64_t)whole(rec->rec.time_ns),
                           rec->device,
                           rec->layer & 3,
                           rec->space & 7};
    return begin_lifetime(s, thread, &rec->rec, &live, rec->stream, rec->api);
}

static int free_address(struct gs_store *s, uint32_t thread, const struct gs_rec *rec,
                        uint8_t layer, uint64_t address, uint64_t bytes)
{
    struct gs_store_thread *t = gs_store_thread(s, thread);
    if (!t)
        return -1;
    struct gs_live *live = gs_live_find(&s->live, layer, address);
    t->last_free_set = t->last_free_dirty = true;
    if (!live) {
        t->last_free = (struct gs_live){.address = address, .layer = layer};
        s->counts[GS_COUNT_UNKNOWN_FREES]++;
        return 0;
    }
    if (bytes && live->bytes != bytes)
        s->counts[GS_COUNT_FREE_SIZE_DIFFERS]++;
    t->last_free = *live;
    return end_lifetime(s, live, rec->time_ns, gs_store_stack_id(s, thread, rec->stack));
}

static int add_free(struct gs_store *s, uint32_t thread, const struct gs_rec_free *rec)
{
    if (!rec->address) /* cudaFree(NULL), a usual way to make the context */
        return 0;
    return free_address(s, thread, &rec->rec, rec->layer & 3, rec->address, 0);
}

/* The last free of this thread did not happen. */
static int add_free_failed(struct gs_store *s, uint32_t thread, const struct gs_rec_free *rec)
{
    struct gs_store_thread *t = gs_store_thread(s, thread);
    if (!t)
        return -1;
    if (!rec->address)
        return 0;
    s->counts[GS_COUNT_FAILED_FREES]++;
    struct gs_live *last = &t->last_free;
    if (!t->last_free_set || last->address != rec->address || last->layer != (rec->layer & 3))
        return 0;
    t->last_free_set = false;
    t->last_free_dirty = true;
    if (!last->id) {
        s->counts[GS_COUNT_UNKNOWN_FREES]--;
        return 0;
    }
    if (gs_live_find(&s->live, last->layer, last->address))
        return 0; /* handed out again since: it was free after all */
    if (!gs_live_add(&s->live, last))
        return gs_store_no_memory(s);
    gs_store_track(s, last, 1);
    return end_row(s, last->id, GS_OPEN, 0);
}

/* ---------------------------------------------------------------- tensors */

static void check_total(struct gs_store *s, const struct gs_rec_tensor *rec)
{
    struct gs_check *check = check_of(s, rec->layer, rec->device);
    if (!check)
        return;
    int64_t difference = (int64_t)((uint64_t)check->running - rec->total_allocated);
    check->dirty = true;
    check->events++;
    check->last_difference = difference;
    if (difference && check->mismatches++ == 0) {
        check->first_ns = whole(rec->rec.time_ns);
        check->first_difference = difference;
    }
}

static int note_reserved(struct gs_store *s, const struct gs_rec_tensor *rec)
{
    int64_t bytes = whole(rec->total_reserved);
    if (rec->layer != GS_LAYER_TENSOR || rec->device < 0 || rec->device >= GS_DEVICES_MAX ||
        s->last_reserved[rec->device] == bytes)
        return 0;
    s->last_reserved[rec->device] = bytes;
    struct gs_row_reserved *row = GS_ARRAY_ADD(&s->reserved);
    if (!row)
        return gs_store_no_memory(s);
    *row = (struct gs_row_reserved){whole(rec->rec.time_ns), bytes, rec->device};
    return 0;
}

/* Shared memory (a DataLoader's batches): PyTorch maps it, and reports it with its size as "reserved"
 * and outside of the total that it keeps for the CPU (ATen's MapAllocator). */
static bool is_shared(const struct gs_rec_tensor *rec, uint8_t layer)
{
    return layer == GS_LAYER_HOST && rec->has_totals && rec->bytes > 0 && !rec->total_allocated &&
           rec->total_reserved == (uint64_t)rec->bytes;
}

static int add_tensor(struct gs_store *s, uint32_t thread, const struct gs_rec_tensor *rec)
{
    int rc = 0;
    uint8_t layer = rec->layer == GS_LAYER_HOST ? GS_LAYER_HOST : GS_LAYER_TENSOR;
    bool shared = is_shared(rec, layer);
    if (rec->address && rec->bytes > 0) {
        struct gs_live live = {rec->address,
                               0,
                               (uint64_t)rec->bytes,
                               (uint64_t)whole(rec->rec.time_ns),
                               rec->device,
                               layer,
                               shared                   ? GS_SPACE_SHARED
                               : layer == GS_LAYER_HOST ? GS_SPACE_HOST
                                                        : GS_SPACE_DEVICE};
        rc = begin_lifetime(s, thread, &rec->rec, &live, 0, rec->api);
    } else if (rec->address && rec->bytes < 0) {
        uint64_t bytes = 0 - (uint64_t)rec->bytes;
        rc = free_address(s, thread, &rec->rec, layer, rec->address, bytes);
        shared = !rc && gs_store_thread(s, thread)->last_free.space == GS_SPACE_SHARED;
    }
    if (rc || shared || !rec->has_totals)
        return rc;
    check_total(s, rec);
    return note_reserved(s, rec);
}

/* ---------------------------------------------------------------- copies */

enum side { PAGEABLE, PINNED, MANAGED, ON_DEVICE };

static enum side side_of(const struct gs_store *s, uint64_t address, int *device)
{
    const struct gs_range *range = gs_ranges_find(&s->ranges, address);
    *device = range ? range->device : -1;
    if (!range)
        return PAGEABLE;
    if (range->space == GS_SPACE_MANAGED)
        return MANAGED;
    return range->space == GS_SPACE_PINNED || range->space == GS_SPACE_HOST ? PINNED : ON_DEVICE;
}

static uint8_t word_for(enum side host)
{
    return host == MANAGED  ? GS_HOSTMEM_MANAGED
           : host == PINNED ? GS_HOSTMEM_PINNED
                            : GS_HOSTMEM_PAGEABLE;
}

/* What cudaMemcpyDefault and its like leave open. Managed memory lies wherever it was last needed:
 * beside device memory it counts as the host's side, beside host memory as the device's. */
static uint8_t guess_direction(enum side dst, enum side src)
{
    bool dst_far = dst == ON_DEVICE || (dst == MANAGED && src != ON_DEVICE);
    bool src_far = src == ON_DEVICE || (src == MANAGED && dst != ON_DEVICE);
    if (dst_far)
        return src_far ? GS_DIR_D2D : GS_DIR_H2D;
    return src_far ? GS_DIR_D2H : GS_DIR_H2H;
}

static void classify(const struct gs_store *s, const struct gs_rec_copy *rec, uint8_t *direction,
                     uint8_t *host_memory)
{
    int dst_device, src_device;
    enum side dst = side_of(s, rec->dst, &dst_device), src = side_of(s, rec->src, &src_device);
    *direction = rec->direction > GS_DIR_H2H ? guess_direction(dst, src) : rec->direction;
    switch (*direction) {
    case GS_DIR_H2D:
        *host_memory = word_for(src);
        break;
    case GS_DIR_D2H:
        *host_memory = word_for(dst);
        break;
    case GS_DIR_H2H:
        *host_memory = word_for(dst < src ? dst : src);
        break;
    default:
        *host_memory = dst == MANAGED && src == MANAGED ? GS_HOSTMEM_MANAGED : GS_HOSTMEM_NONE;
        if (dst == ON_DEVICE && src == ON_DEVICE && dst_device != src_device && dst_device >= 0 &&
            src_device >= 0)
            *direction = GS_DIR_P2P;
    }
}

static int add_copy(struct gs_store *s, uint32_t thread, const struct gs_rec_copy *rec)
{
    uint8_t direction, host_memory;
    classify(s, rec, &direction, &host_memory);
    struct gs_row_copy *row = GS_ARRAY_ADD(&s->copies);
    if (!row)
        return gs_store_no_memory(s);
    int device = rec->device > 126 || rec->device < -1 ? -1 : rec->device;
    *row = (struct gs_row_copy){
        .kind = GS_COPY_KIND(direction, host_memory, rec->rec.flags & GS_FLAG_ASYNC ? 1 : 0, device,
                             rec->api, thread),
        .bytes = whole(rec->bytes),
        .start_ns = whole(rec->rec.time_ns),
        .blocked_ns = whole(rec->blocked_ns),
        .stream = (int64_t)rec->stream,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
    };
    return 0;
}

static int add_memset(struct gs_store *s, uint32_t thread, const struct gs_rec_copy *rec)
{
    struct gs_row_memset *row = GS_ARRAY_ADD(&s->memsets);
    if (!row)
        return gs_store_no_memory(s);
    *row = (struct gs_row_memset){
        .bytes = whole(rec->bytes),
        .start_ns = whole(rec->rec.time_ns),
        .blocked_ns = whole(rec->blocked_ns),
        .stream = (int64_t)rec->stream,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
        .thread = thread,
        .device = rec->device,
        .api = rec->api,
        .async = rec->rec.flags & GS_FLAG_ASYNC,
    };
    return 0;
}

/* ---------------------------------------------------------------- the others */

static int add_sync(struct gs_store *s, uint32_t thread, const struct gs_rec_sync *rec)
{
    struct gs_row_sync *row = GS_ARRAY_ADD(&s->syncs);
    if (!row)
        return gs_store_no_memory(s);
    *row = (struct gs_row_sync){
        .start_ns = whole(rec->rec.time_ns),
        .blocked_ns = whole(rec->blocked_ns),
        .handle = (int64_t)rec->handle,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
        .thread = thread,
        .device = rec->device,
        .api = rec->api,
        .kind = rec->kind,
    };
    return 0;
}

static int add_sample(struct gs_store *s, const struct gs_rec_sample *rec)
{
    struct gs_row_sample *row = GS_ARRAY_ADD(&s->samples);
    if (!row)
        return gs_store_no_memory(s);
    *row = (struct gs_row_sample){whole(rec->rec.time_ns), whole_or_null(rec->free_bytes),
                                  whole_or_null(rec->total_bytes), rec->device, rec->source};
    return 0;
}

static int end_handle(struct gs_store *s, int64_t id, int64_t time_ns)
{
    if (id >= s->first_handle) {
        s->handles.at[id - s->first_handle].destroy_ns = time_ns;
        return 0;
    }
    struct gs_row_handle_end *row = GS_ARRAY_ADD(&s->handle_ends);
    if (!row)
        return gs_store_no_memory(s);
    *row = (struct gs_row_handle_end){id, time_ns};
    return 0;
}

/* A device's primary context went, and with it what the process had there. Pinned memory belongs to
 * no device here and stays. */
static int end_device(struct gs_store *s, uint32_t thread, const struct gs_rec_handle *rec)
{
    uint32_t stack = gs_store_stack_id(s, thread, rec->rec.stack);
    size_t capacity = s->live.count ? s->live.mask + 1 : 0;
    GS_ARRAY(uint64_t) gone = {0}; /* removing moves the map's entries */
    for (size_t i = 0; i < capacity; i++) {
        const struct gs_live *live = &s->live.slots[i];
        if (!live->id || live->layer != GS_LAYER_DEVICE || live->device != rec->device)
            continue;
        uint64_t *address = GS_ARRAY_ADD(&gone);
        if (!address) {
            free(gone.at);
            return gs_store_no_memory(s);
        }
        *address = live->address;
    }
    int rc = 0;
    for (size_t i = 0; i < gone.count && !rc; i++)
        rc = end_lifetime(s, gs_live_find(&s->live, GS_LAYER_DEVICE, gone.at[i]),
                          rec->rec.time_ns, stack);
    free(gone.at);
    return rc;
}

/* Streams and contexts are few: a plain list of the open ones is enough. */
static int add_handle(struct gs_store *s, uint32_t thread, const struct gs_rec_handle *rec)
{
    int64_t time_ns = whole(rec->rec.time_ns);
    bool destroyed = rec->rec.flags & GS_FLAG_DESTROYED;
    if (destroyed && rec->kind == GS_HANDLE_CONTEXT && rec->device >= 0 &&
        end_device(s, thread, rec))
        return -1;
    size_t i = s->open_handles.count;
    while (i-- > 0)
        if (s->open_handles.at[i].handle == rec->handle && s->open_handles.at[i].kind == rec->kind)
            break;
    if (i != SIZE_MAX) {
        int64_t id = s->open_handles.at[i].id;
        s->open_handles.at[i] = s->open_handles.at[--s->open_handles.count];
        if (destroyed)
            return end_handle(s, id, time_ns);
    }
    struct gs_row_handle *row = GS_ARRAY_ADD(&s->handles);
    if (!row)
        return gs_store_no_memory(s);
    *row = (struct gs_row_handle){
        .handle = (int64_t)rec->handle,
        .create_ns = destroyed ? -1 : time_ns,
        .destroy_ns = destroyed ? time_ns : -1,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
        .device = rec->device,
        .api = rec->api,
        .kind = rec->kind,
    };
    if (destroyed)
        return 0;
    struct gs_open_handle *open = GS_ARRAY_ADD(&s->open_handles);
    if (!open)
        return gs_store_no_memory(s);
    *open = (struct gs_open_handle){rec->handle, s->first_handle + (int64_t)s->handles.count - 1,
                                    rec->kind};
    return 0;
}

int gs_store_add(struct gs_store *s, uint32_t thread, const struct gs_rec *rec)
{
    if (gs_record_is_definition(rec))
        return gs_store_define(s, thread, rec);
    uint64_t time = (uint64_t)whole(gs_record_time(rec));
    if (time > s->last_ns)
        s->last_ns = time;
    s->counts[GS_COUNT_EVENTS] += rec->type != GS_REC_DEVICE_SAMPLE; /* nobody's call */
    s->pending_events++;
    const void *any = rec;
    switch (rec->type) {
    case GS_REC_ALLOC:
        return add_alloc(s, thread, any);
    case GS_REC_FREE:
        return add_free(s, thread, any);
    case GS_REC_FREE_FAILED:
        return add_free_failed(s, thread, any);
    case GS_REC_TENSOR:
        return add_tensor(s, thread, any);
    case GS_REC_COPY:
        return add_copy(s, thread, any);
    case GS_REC_SET:
        return add_memset(s, thread, any);
    case GS_REC_SYNC:
        return add_sync(s, thread, any);
    case GS_REC_OOM:
        return gs_store_add_oom(s, thread, any);
    case GS_REC_SAMPLE:
        return add_sample(s, any);
    case GS_REC_HANDLE:
        return add_handle(s, thread, any);
    case GS_REC_MARK:
        return gs_store_add_mark(s, thread, any);
    case GS_REC_DEVICE_SAMPLE:
        return gs_store_add_device_sample(s, any);
    default:
        return 0;
    }
}
