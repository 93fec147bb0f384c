/* An event → rows in memory. */
#include "schema/record.h"
#include "schema/store_state.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Free and total bytes are UINT64_MAX if CUDA did not report them: NULL in the database, -1 in memory. */
static int64_t whole_number_or_null(uint64_t n)
{
    return n == UINT64_MAX ? -1 : gs_whole(n);
}

/* ---------------------------------------------------------------- lifetimes */

/* Notes context and home device, unless the row itself implies them. */
static int note_owner(struct gs_store *s, const struct gs_live *live)
{
    if (!live->context && live->home == live->device) return 0;
    struct gs_row_owner *row = GS_ARRAY_ADD(&s->owners);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_owner){(int64_t)live->id, live->context, live->home};
    return 0;
}

/* Sets begin->id. */
static int begin_lifetime(struct gs_store *s, uint32_t thread, const struct gs_rec *rec, struct gs_live *begin,
                          uint64_t stream, uint32_t extra, uint16_t api)
{
    struct gs_live *old = gs_live_find(&s->live, begin->layer, begin->address);
    if (old) { /* its free was not recorded: it ended by now at the latest */
        s->counts[GS_COUNT_IMPLIED_FREES]++;
        if (gs_store_end_lifetime(s, old, begin->alloc_ns, 0)) return -1;
    }
    if (gs_store_begin_row(s, thread, rec, begin, stream, extra, api) || note_owner(s, begin)) return -1;
    if (!gs_live_add(&s->live, begin)) return gs_store_no_memory(s);
    gs_store_track(s, begin, 1);
    return gs_store_recover_ooms(s, thread, begin);
}

static int add_alloc(struct gs_store *s, uint32_t thread, const struct gs_rec_alloc *rec)
{
    if (!rec->address) /* cudaMalloc of 0 bytes */
        return 0;
    if (rec->rec.flags & GS_FLAG_GRAPH) return gs_store_graph_alloc(s, thread, rec);
    struct gs_live live = {
        .address = rec->address,
        .bytes = (uint64_t)gs_whole(rec->bytes),
        .alloc_ns = (uint64_t)gs_whole(rec->rec.time_ns),
        .device = gs_on_host(rec->space & 7, 0) ? -1 : rec->device,
        .layer = rec->layer & 3,
        .space = rec->space & 7,
        .context = rec->context,
        .home = rec->device,
    };
    return begin_lifetime(s, thread, &rec->rec, &live, rec->stream, GS_EXTRA_UNKNOWN, rec->api);
}

static int free_address(struct gs_store *s, uint32_t thread, const struct gs_rec *rec, uint8_t layer, uint64_t address,
                        uint64_t bytes)
{
    struct gs_store_thread *t = gs_store_thread(s, thread);
    if (!t) return -1;
    struct gs_live *live = gs_live_find(&s->live, layer, address);
    t->last_free_set = t->last_free_dirty = true;
    t->last_free_graph = false;
    if (!live) {
        t->last_free = (struct gs_live){.address = address, .layer = layer};
        s->counts[GS_COUNT_UNKNOWN_FREES]++;
        return 0;
    }
    if (bytes && live->bytes != bytes) s->counts[GS_COUNT_FREE_SIZE_DIFFERS]++;
    t->last_free = *live;
    return gs_store_end_lifetime(s, live, rec->time_ns, gs_store_stack_id(s, thread, rec->stack));
}

static int add_free(struct gs_store *s, uint32_t thread, const struct gs_rec_free *rec)
{
    int rc = 0;
    if (!rec->address) /* cudaFree(NULL), often called to create the context */
        return 0;
    bool node = rec->rec.flags & GS_FLAG_GRAPH;
    if ((node || (s->graph_live.count && !gs_live_find(&s->live, rec->layer & 3, rec->address))) &&
        gs_store_graph_free(s, thread, rec, &rc))
        return rc;
    if (node) /* it frees when the graph runs, and the allocation of that memory was not recorded */
        return 0;
    return free_address(s, thread, &rec->rec, rec->layer & 3, rec->address, 0);
}

/* The last free of this thread failed: its lifetime continues. */
static int add_free_failed(struct gs_store *s, uint32_t thread, const struct gs_rec_free *rec)
{
    struct gs_store_thread *t = gs_store_thread(s, thread);
    if (!t) return -1;
    if (!rec->address) return 0;
    s->counts[GS_COUNT_FAILED_FREES]++;
    struct gs_live *last = &t->last_free;
    if (!t->last_free_set || last->address != rec->address || last->layer != (rec->layer & 3)) return 0;
    t->last_free_set = false;
    t->last_free_dirty = true;
    if (t->last_free_graph) return gs_store_graph_end(s, last->id, GS_OPEN);
    if (!last->id) {
        s->counts[GS_COUNT_UNKNOWN_FREES]--;
        return 0;
    }
    if (gs_live_find(&s->live, last->layer, last->address))
        return 0; /* CUDA has allocated it again since: it was free after all */
    if (!gs_live_add(&s->live, last)) return gs_store_no_memory(s);
    gs_store_track(s, last, 1);
    return gs_store_end_row(s, last->id, GS_OPEN, 0);
}

/* ---------------------------------------------------------------- tensors */

/* A forked child continues with its parent's CPU tensors, and a process to which gpuspy attached with all its tensors:
 * PyTorch's total does not begin at zero, and decreases by tensors whose allocation was not recorded. */
static void note_inherited(struct gs_store *s, struct gs_check *check, const struct gs_rec_tensor *rec, bool unknown)
{
    if (rec->layer != GS_LAYER_HOST && !s->attached) return;
    if (!check->events) {
        check->inherited = (int64_t)(rec->total_allocated - (uint64_t)check->running);
        if (rec->layer != GS_LAYER_HOST)
            (void)gs_store_note_attached(s, rec->device, (uint64_t)check->inherited + check->listed);
    } else if (unknown && check->inherited) {
        check->inherited = (int64_t)((uint64_t)check->inherited + (uint64_t)rec->bytes);
    }
}

static void check_total(struct gs_store *s, const struct gs_rec_tensor *rec, bool unknown)
{
    struct gs_check *check = gs_store_check(s, rec->layer, rec->device);
    if (!check) return;
    note_inherited(s, check, rec, unknown);
    int64_t difference = (int64_t)((uint64_t)check->running + (uint64_t)check->inherited - rec->total_allocated);
    check->dirty = true;
    check->events++;
    check->last_difference = difference;
    if (difference && check->mismatches++ == 0) {
        check->first_ns = gs_whole(rec->rec.time_ns);
        check->first_difference = difference;
    }
}

static int note_reserved(struct gs_store *s, const struct gs_rec_tensor *rec)
{
    int64_t bytes = gs_whole(rec->total_reserved);
    if (rec->layer != GS_LAYER_TENSOR || rec->device < 0 || rec->device >= GS_DEVICES_MAX ||
        s->last_reserved[rec->device] == bytes)
        return 0;
    s->last_reserved[rec->device] = bytes;
    struct gs_row_reserved *row = GS_ARRAY_ADD(&s->reserved);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_reserved){gs_whole(rec->rec.time_ns), bytes, rec->device};
    return 0;
}

/* Shared memory, as of a DataLoader's batches: ATen's MapAllocator reports its size as "reserved" and leaves it out of
 * PyTorch's total for the CPU. */
static bool is_shared_tensor(const struct gs_rec_tensor *rec, uint8_t layer)
{
    return layer == GS_LAYER_HOST && rec->has_totals && rec->bytes > 0 && !rec->total_allocated &&
           rec->total_reserved == (uint64_t)rec->bytes;
}

/* Whether to record a block that PyTorch listed when gpuspy attached. False: it is recorded already. The block moves
 * from the inherited bytes to the listed ones, so that it counts once. */
static bool is_new_block(struct gs_store *s, const struct gs_rec_tensor *rec)
{
    struct gs_check *check = gs_store_check(s, rec->layer, rec->device);
    if (!check || rec->bytes <= 0 || gs_live_find(&s->live, GS_LAYER_TENSOR, rec->address)) return false;
    check->listed += (uint64_t)rec->bytes;
    if (check->events) check->inherited = (int64_t)((uint64_t)check->inherited - (uint64_t)rec->bytes);
    s->listed_ns = (uint64_t)gs_whole(rec->rec.time_ns);
    return true;
}

/* A block was listed before its allocation was recorded: it was allocated between the two. Counts it once. */
static void count_once(struct gs_store *s, const struct gs_rec_tensor *rec)
{
    const struct gs_live *live = s->listed_ns ? gs_live_find(&s->live, GS_LAYER_TENSOR, rec->address) : NULL;
    struct gs_check *check = gs_store_check(s, rec->layer, rec->device);
    if (!live || !check || live->alloc_ns != s->listed_ns) return;
    check->listed -= live->bytes;
    if (check->events) check->inherited = (int64_t)((uint64_t)check->inherited + live->bytes);
}

static int add_tensor(struct gs_store *s, uint32_t thread, const struct gs_rec_tensor *rec)
{
    int rc = 0;
    if (rec->rec.flags & GS_FLAG_BEFORE) {
        if (!is_new_block(s, rec)) return 0;
    } else if (rec->bytes > 0) {
        count_once(s, rec);
    }
    uint8_t layer = rec->layer == GS_LAYER_HOST ? GS_LAYER_HOST : GS_LAYER_TENSOR;
    bool shared = is_shared_tensor(rec, layer), unknown = false;
    if (rec->address && rec->bytes > 0) {
        struct gs_live live = {
            .address = rec->address,
            .bytes = (uint64_t)rec->bytes,
            .alloc_ns = (uint64_t)gs_whole(rec->rec.time_ns),
            .device = rec->device,
            .layer = layer,
            .space = shared                              ? GS_SPACE_SHARED
                     : layer == GS_LAYER_HOST            ? GS_SPACE_HOST
                     : rec->rec.flags & GS_FLAG_CAPTURED ? GS_SPACE_POOL
                                                         : GS_SPACE_DEVICE,
            .home = rec->device,
        };
        const uint32_t extra = layer == GS_LAYER_TENSOR ? rec->extra : GS_EXTRA_UNKNOWN;
        rc = begin_lifetime(s, thread, &rec->rec, &live, rec->stream, extra, rec->api);
    } else if (rec->address && rec->bytes < 0) {
        uint64_t bytes = 0 - (uint64_t)rec->bytes;
        rc = free_address(s, thread, &rec->rec, layer, rec->address, bytes);
        if (!rc) {
            const struct gs_live *last = &gs_store_thread(s, thread)->last_free;
            shared = last->space == GS_SPACE_SHARED;
            unknown = !last->id;
        }
    }
    if (rc || shared || !rec->has_totals) return rc;
    check_total(s, rec, unknown);
    return note_reserved(s, rec);
}

/* ---------------------------------------------------------------- copies */

enum side { PAGEABLE, PINNED, MANAGED, ON_DEVICE };

static enum side side_of(struct gs_store *s, uint64_t address, int *device)
{
    const struct gs_range *range = gs_store_find_place(s, address);
    if (!range) range = gs_vmm_find(s, address);
    *device = range ? range->device : -1;
    if (!range) return PAGEABLE;
    if (range->space == GS_SPACE_MANAGED) return MANAGED;
    return gs_on_host(range->space, range->device) ? PINNED : ON_DEVICE;
}

static uint8_t word_for(enum side host)
{
    return host == MANAGED ? GS_HOSTMEM_MANAGED : host == PINNED ? GS_HOSTMEM_PINNED : GS_HOSTMEM_PAGEABLE;
}

/* The direction of a copy if cudaMemcpyDefault or a similar call leaves it to CUDA. Managed memory may be on either
 * side: in a copy from or to device memory it counts as host memory, in one from or to host memory as device memory. */
static uint8_t guess_direction(enum side dst, enum side src)
{
    bool dst_far = dst == ON_DEVICE || (dst == MANAGED && src != ON_DEVICE);
    bool src_far = src == ON_DEVICE || (src == MANAGED && dst != ON_DEVICE);
    if (dst_far) return src_far ? GS_DIR_D2D : GS_DIR_H2D;
    return src_far ? GS_DIR_D2H : GS_DIR_H2H;
}

static void classify_copy(struct gs_store *s, const struct gs_rec_copy *rec, uint8_t *direction, uint8_t *host_memory)
{
    int dst_device, src_device;
    enum side dst = side_of(s, rec->dst, &dst_device), src = side_of(s, rec->src, &src_device);
    *direction = rec->direction > GS_DIR_H2H ? guess_direction(dst, src) : rec->direction;
    switch (*direction) {
    case GS_DIR_H2D: *host_memory = word_for(src); break;
    case GS_DIR_D2H: *host_memory = word_for(dst); break;
    case GS_DIR_H2H: *host_memory = word_for(dst < src ? dst : src); break;
    default:
        *host_memory = dst == MANAGED && src == MANAGED ? GS_HOSTMEM_MANAGED : GS_HOSTMEM_NONE;
        if (dst == ON_DEVICE && src == ON_DEVICE && dst_device != src_device && dst_device >= 0 && src_device >= 0)
            *direction = GS_DIR_P2P;
    }
    if (rec->host_memory) *host_memory = (rec->host_memory - 1) & 3;
}

static int add_copy_row(struct gs_store *s, uint32_t thread, const struct gs_rec_copy *rec)
{
    uint8_t direction, host_memory;
    classify_copy(s, rec, &direction, &host_memory);
    struct gs_row_copy *row = GS_ARRAY_ADD(&s->copies);
    if (!row) return gs_store_no_memory(s);
    int device = rec->device > 126 || rec->device < -1 ? -1 : rec->device;
    *row = (struct gs_row_copy){
        .kind = GS_COPY_KIND(direction, host_memory, rec->rec.flags & GS_FLAG_ASYNC ? 1 : 0, device, rec->api,
                             gs_store_thread_row(s, thread)),
        .bytes = gs_whole(rec->bytes),
        .start_ns = gs_whole(rec->rec.time_ns),
        .blocked_ns = gs_whole(rec->blocked_ns),
        .stream = (int64_t)rec->stream,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
    };
    return 0;
}

static int add_memset(struct gs_store *s, uint32_t thread, const struct gs_rec_copy *rec)
{
    struct gs_row_memset *row = GS_ARRAY_ADD(&s->memsets);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_memset){
        .bytes = gs_whole(rec->bytes),
        .start_ns = gs_whole(rec->rec.time_ns),
        .blocked_ns = gs_whole(rec->blocked_ns),
        .stream = (int64_t)rec->stream,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
        .thread = gs_store_thread_row(s, thread),
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
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_sync){
        .start_ns = gs_whole(rec->rec.time_ns),
        .blocked_ns = gs_whole(rec->blocked_ns),
        .handle = (int64_t)rec->handle,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
        .thread = gs_store_thread_row(s, thread),
        .device = rec->device,
        .api = rec->api,
        .kind = rec->kind,
    };
    return rec->kind == GS_SYNC_EVENT ? gs_store_event_done(s, rec->handle, gs_record_time(&rec->rec)) : 0;
}

static int add_sample_row(struct gs_store *s, const struct gs_rec_sample *rec)
{
    struct gs_row_sample *row = GS_ARRAY_ADD(&s->samples);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_sample){gs_whole(rec->rec.time_ns), whole_number_or_null(rec->free_bytes),
                                  whole_number_or_null(rec->total_bytes), rec->device, rec->source};
    return 0;
}

void gs_store_expect(const struct gs_store *s, const struct gs_rec *rec)
{
    const struct gs_rec_alloc *alloc = (const void *)rec;
    const struct gs_rec_free *end = (const void *)rec;
    const struct gs_rec_tensor *tensor = (const void *)rec;
    switch (rec->type) {
    case GS_REC_ALLOC: gs_live_expect(&s->live, alloc->layer & 3, alloc->address); break;
    case GS_REC_FREE: gs_live_expect(&s->live, end->layer & 3, end->address); break;
    case GS_REC_TENSOR: gs_live_expect(&s->live, tensor->layer, tensor->address); break;
    default: break;
    }
}

int gs_store_add(struct gs_store *s, uint32_t thread, const struct gs_rec *rec)
{
    if (gs_record_is_definition(rec)) return gs_store_define(s, thread, rec);
    uint64_t time = (uint64_t)gs_whole(gs_record_time(rec));
    if (time > s->last_ns) s->last_ns = time;
    /* these types are not calls, or another record counts the call */
    const bool aside = rec->type == GS_REC_DEVICE_SAMPLE || rec->type >= GS_REC_PENDING;
    s->counts[GS_COUNT_EVENTS] += !aside;
    s->pending_events += rec->type != GS_REC_DEVICE_SAMPLE;
    const void *any = rec;
    switch (rec->type) {
    case GS_REC_ALLOC: return add_alloc(s, thread, any);
    case GS_REC_FREE: return add_free(s, thread, any);
    case GS_REC_FREE_FAILED: return add_free_failed(s, thread, any);
    case GS_REC_TENSOR: return add_tensor(s, thread, any);
    case GS_REC_COPY: return add_copy_row(s, thread, any);
    case GS_REC_SET: return add_memset(s, thread, any);
    case GS_REC_SYNC: return add_sync(s, thread, any);
    case GS_REC_OOM: return gs_store_add_oom(s, thread, any);
    case GS_REC_SAMPLE: return add_sample_row(s, any);
    case GS_REC_HANDLE: return gs_store_add_handle(s, thread, any);
    case GS_REC_MARK: return gs_store_add_mark(s, thread, any);
    case GS_REC_DEVICE_SAMPLE: return gs_store_add_device_sample(s, any);
    case GS_REC_VMM: return gs_store_add_vmm(s, thread, any);
    case GS_REC_POOL: return gs_store_add_pool(s, any);
    case GS_REC_ALLOCATOR: return gs_store_add_allocator(s, any);
    case GS_REC_PENDING: return gs_store_add_pending(s, thread, any);
    case GS_REC_EVENT_DONE: return gs_store_event_done(s, ((const struct gs_rec_event_done *)any)->event, rec->time_ns);
    default: return 0;
    }
}
