/* A snapshot contains the memory of PyTorch's allocator at the end, and a history of events per device, which may be
 * missing or a ring that begins in the middle of the run. The memory before the first event follows backwards from the
 * end: the memory at the end, minus what the events allocated, plus what they freed.
 *
 * Events have the requested size. A block that is live at the end has its own size; for others it is the requested size
 * rounded up to 512 bytes, which is what the allocator does by default, and what snapshot_layout.c adds. */
#include "analyzer/import/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/units.h"
#include "analyzer/import/feed.h"
#include "analyzer/import/snapshot_layout.h"
#include "analyzer/import/snapshot_read.h"
#include "analyzer/import/snapshot_stack.h"
#include "analyzer/import/unpickle_place.h"
#include "analyzer/base/sort.h"
#include "schema/event.h"

/* BEFORE_NS: between the memory that existed before and the first event */
enum { ROUND = 512, BEFORE_NS = 1000, OPEN_NOTES = 64 };

struct set {
    struct import_snapshot_pieces pieces;
    struct map index; /* address → index in the list */
};

struct totals {
    int64_t allocated, reserved;
};

struct importer {
    struct import_snapshot from;
    struct import_feed *feed;
    struct set blocks, pending, held;      /* live tensors; freed, but in use by a stream; segments and pages */
    struct import_snapshot_pieces private; /* segments of private pools at the end, sorted by address */
    size_t next[IMPORT_DEVICES + 1];       /* while undoing: the device's next event */
    struct totals now[IMPORT_DEVICES + 1];
    bool grown[IMPORT_DEVICES + 1]; /* it has a new segment, and the pool of the next block is the segment's */
    struct map stacks;              /* address of a list of frames → stack */
    int64_t start_us;
    size_t first, end; /* the range of events to write */
    size_t next_note;
    uint64_t open_notes[OPEN_NOTES]; /* ids and names of open ranges */
    const struct import_snapshot_note *open[OPEN_NOTES];
    bool listed[IMPORT_DEVICES + 1],
        inferred[IMPORT_DEVICES + 1]; /* the file has segments of it; live blocks, but no segments */
    uint64_t notes_n, unmatched;      /* unmatched: events that contradict the end or each other */
    uint32_t remarks_n;
};

/* Protocols 2 and later begin with PROTO; 0 and 1 with a mark, a dict or a list. */
static bool is_pickle(const unsigned char *head, size_t n)
{
    return n >= 2 && ((head[0] == 0x80 && head[1] <= 5) || (head[0] == '(' && (head[1] == 'd' || head[1] == 'l')) ||
                      ((head[0] == '}' || head[0] == ']') && (head[1] == 'q' || head[1] == '(')));
}

/* torch.save packs all kinds of objects: a snapshot's first keys are known. */
static bool has_snapshot_keys(const unsigned char *head, size_t n)
{
    return memmem(head, n, "segments", 8) || memmem(head, n, "device_traces", 13) || memmem(head, n, "total_size", 10);
}

bool import_is_snapshot(const unsigned char *head, size_t n)
{
    unsigned char begin[IMPORT_HEAD];
    struct import_pickle_place place = {0};
    if (n > sizeof begin) n = sizeof begin;
    memcpy(begin, head, n);
    const size_t decoded = import_pickle_bytes(&place, begin, n);
    return is_pickle(begin, decoded) && (place.at == 0 || place.is_base64 || has_snapshot_keys(begin, decoded));
}

static void hold_piece(struct set *set, const struct import_snapshot_piece *h)
{
    uint32_t *at = map_at(&set->index, h->address);
    if (*at == MAP_NEW) {
        *at = (uint32_t)set->pieces.n;
        *ARENA_PUSH(set->pieces.list, set->pieces.n, set->pieces.cap) = *h;
    } else {
        set->pieces.list[*at] = *h;
    }
}

static struct import_snapshot_piece *find_piece(struct set *set, uint64_t address, uint8_t device)
{
    const uint32_t at = map_get(&set->index, address);
    struct import_snapshot_piece *p = at == MAP_NEW ? NULL : &set->pieces.list[at];
    return p && p->bytes && p->device == device ? p : NULL;
}

static int64_t rounded_request(const struct import_snapshot_event *e)
{
    if (e->device == IMPORT_HOST) return e->bytes;
    return e->bytes < ROUND ? ROUND : (e->bytes + ROUND - 1) / ROUND * ROUND;
}

static void hold_pages(struct importer *s, struct import_snapshot_piece h, bool begin)
{
    int64_t page = import_page_size(h.bytes), left = h.bytes;
    h.mapped = true;
    for (; left > 0; left -= page, h.address += (uint64_t)page) {
        struct import_snapshot_piece *old = find_piece(&s->held, h.address, h.device);
        h.bytes = left < page ? left : page;
        if (begin)
            hold_piece(&s->held, &h);
        else if (old)
            old->bytes = 0;
    }
}

static void drop_piece(struct set *set, const struct import_snapshot_piece *h)
{
    struct import_snapshot_piece *old = find_piece(set, h->address, h->device);
    if (old) old->bytes = 0;
}

/* Devices of which the file has no segments, as some frameworks write it for memory_viz: the end follows from the
 * events, and what was live before them and not freed is unknown. */
static void infer_end(struct importer *s)
{
    EACH_IN (e, s->from.events) {
        struct import_snapshot_piece h = {.address = e->address,
                                          .bytes = e->bytes,
                                          .requested = e->requested,
                                          .stream = e->stream,
                                          .frames = e->frames,
                                          .device = e->device,
                                          .pool = e->pool};
        if (s->listed[e->device]) continue;
        switch ((enum import_action)e->action) {
        case IMPORT_ALLOC:
            h.bytes = rounded_request(e);
            hold_piece(&s->blocks, &h);
            break;
        case IMPORT_FREE: drop_piece(&s->blocks, &h); break;
        case IMPORT_TAKE: hold_piece(&s->held, &h); break;
        case IMPORT_GIVE_BACK: drop_piece(&s->held, &h); break;
        case IMPORT_MAP:
        case IMPORT_UNMAP: hold_pages(s, h, e->action == IMPORT_MAP); break;
        default: break;
        }
    }
    EACH (p, s->blocks.pieces.list, s->blocks.pieces.n)
        if (p->bytes && !s->listed[p->device]) s->inferred[p->device] = true;
}

SORT_ORDER(order_pieces_by_address, struct import_snapshot_piece, SORT_UP(x->address, y->address))

static void hold_end(struct importer *s)
{
    EACH (p, s->from.segments.list, s->from.segments.n) {
        s->listed[p->device] = true;
        if (p->mapped)
            hold_pages(s, *p, true);
        else
            hold_piece(&s->held, p);
        if (p->pool >= IMPORT_POOL_PRIVATE) *ARENA_PUSH(s->private.list, s->private.n, s->private.cap) = *p;
    }
    EACH (p, s->from.blocks.list, s->from.blocks.n) {
        p->exact = true;
        hold_piece(p->pending ? &s->pending : &s->blocks, p);
    }
    infer_end(s);
    SORT(s->private.list, s->private.n, order_pieces_by_address);
}

/* The pool that the event states, or that its segment has if it exists at the end. */
static uint16_t event_pool_of(const struct importer *s, const struct import_snapshot_event *e)
{
    size_t low = 0, high = s->private.n;
    if (e->pool != IMPORT_POOL_UNKNOWN) return e->pool;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct import_snapshot_piece *p = &s->private.list[middle];
        if (e->address < p->address)
            high = middle;
        else if (e->address - p->address < (uint64_t)p->bytes)
            return p->pool;
        else
            low = middle + 1;
    }
    return IMPORT_POOL_UNKNOWN;
}

static void undo_alloc(struct importer *s, struct import_snapshot_event *e)
{
    struct import_snapshot_piece *earlier = find_piece(&s->blocks, e->address, e->device);
    if (earlier) {
        e->bytes = earlier->bytes;
        e->exact = earlier->exact;
        e->pool = earlier->pool;
        earlier->bytes = 0;
    } else {
        s->unmatched++;
        e->bytes = 0;
    }
}

static void undo_free(struct importer *s, struct import_snapshot_event *e, struct import_snapshot_piece h)
{
    struct import_snapshot_piece *waits = find_piece(&s->pending, e->address, e->device);
    const size_t next = s->next[e->device]; /* if the block is freed at once, this is the completion */
    struct import_snapshot_event *after = next < s->end ? &s->from.events[next] : NULL;
    e->bytes = h.bytes = waits ? waits->bytes : rounded_request(e);
    h.exact = waits && waits->exact;
    e->later = waits && !(after && after->action == IMPORT_COMPLETED && after->address == e->address);
    if (waits && !e->later) after->bytes = 0;
    if (waits) waits->bytes = 0;
    hold_piece(&s->blocks, &h);
}

/* Sets the state to what it was before the event. Events of blocks that are live at the end get the block's size. */
static void undo_event(struct importer *s, size_t i)
{
    struct import_snapshot_event *e = &s->from.events[i];
    struct import_snapshot_piece h = {.address = e->address,
                                      .bytes = e->bytes,
                                      .requested = e->requested,
                                      .stream = e->stream,
                                      .device = e->device,
                                      .pool = event_pool_of(s, e)};
    struct import_snapshot_piece *earlier = NULL;
    switch ((enum import_action)e->action) {
    case IMPORT_ALLOC: undo_alloc(s, e); break;
    case IMPORT_FREE: undo_free(s, e, h); break;
    case IMPORT_COMPLETED:
        e->bytes = h.bytes = rounded_request(e);
        hold_piece(&s->pending, &h);
        break;
    case IMPORT_TAKE:
        earlier = find_piece(&s->held, e->address, e->device);
        if (earlier) {
            earlier->bytes = 0;
        } else {
            s->unmatched++;
            e->bytes = 0;
        }
        break;
    case IMPORT_GIVE_BACK: hold_piece(&s->held, &h); break;
    case IMPORT_MAP: hold_pages(s, h, false); break;
    case IMPORT_UNMAP: hold_pages(s, h, true); break;
    default: break;
    }
    s->next[e->device] = i;
}

/* The ring begins between a free and its completion, which are nearly always one call: drops the completion. */
static void forget_cut_frees(struct importer *s)
{
    for (size_t d = 0; d <= IMPORT_DEVICES; d++) {
        if (s->next[d] >= s->end || s->from.events[s->next[d]].action != IMPORT_COMPLETED) continue;
        struct import_snapshot_event *e = &s->from.events[s->next[d]];
        struct import_snapshot_piece *waits = find_piece(&s->pending, e->address, e->device);
        if (waits) waits->bytes = 0;
        e->bytes = 0;
    }
}

static size_t add_layout_pieces(struct import_layout_piece *list, size_t n, const struct set *set, bool block)
{
    for (size_t i = 0; i < set->pieces.n; i++)
        if (set->pieces.list[i].bytes) list[n++] = (struct import_layout_piece){&set->pieces.list[i], block};
    return n;
}

static void find_block_sizes(struct importer *s)
{
    struct import_layout_piece *list =
        arena_realloc(NULL, s->held.pieces.n + s->blocks.pieces.n + s->pending.pieces.n + 1, sizeof *list);
    size_t n = add_layout_pieces(list, 0, &s->held, false);
    n = add_layout_pieces(list, n, &s->blocks, true);
    n = add_layout_pieces(list, n, &s->pending, true);
    import_layout_sizes(&s->from, s->first, s->end, list, n);
    free(list);
}

static int snapshot_device_of(uint8_t device)
{
    return device == IMPORT_HOST ? -1 : device;
}

static void write_tensor(struct importer *s, struct import_event *e, uint8_t device, bool freed)
{
    struct totals *now = &s->now[device];
    if (e->bytes <= 0) return;
    now->allocated += freed ? -e->bytes : e->bytes;
    e->allocated = now->allocated;
    e->reserved = now->reserved;
    e->no_totals = device == IMPORT_HOST;
    import_feed_tensor(s->feed, e, freed);
}

static void write_imported_segment(struct importer *s, struct import_event *e, uint8_t device, bool freed, int64_t page)
{
    if (e->bytes <= 0) return;
    s->now[device].reserved += freed ? -e->bytes : e->bytes;
    if (device == IMPORT_HOST) {
        e->space = GS_SPACE_PINNED;
        e->api = import_feed_api(s->feed, freed ? "cudaFreeHost" : "cudaHostAlloc");
    }
    import_feed_segment(s->feed, e, freed, page);
}

/* If the file does not state the pool, assumes the default one: the replay shows whether that is right. */
static void write_pool(struct importer *s, const struct import_event *e, uint16_t pool)
{
    if (!s->from.private_n || e->device < 0) return;
    import_feed_pool(s->feed, e, pool >= IMPORT_POOL_PRIVATE ? pool - IMPORT_POOL_PRIVATE + 1 : 0);
}

static struct import_event snapshot_event_of(struct importer *s, const struct import_snapshot_piece *h)
{
    return (struct import_event){.device = snapshot_device_of(h->device),
                                 .address = h->address,
                                 .bytes = h->bytes,
                                 .requested = h->requested,
                                 .stream = h->stream,
                                 .private_pool = h->pool >= IMPORT_POOL_PRIVATE,
                                 .stack = import_snapshot_stack(s->feed, &s->stacks, h->frames)};
}

SORT_ORDER_OF_POINTERS(by_place, struct import_snapshot_piece, SORT_UP(x->address, y->address))

/* The pieces that are not empty, sorted by address. The caller frees the list. */
static const struct import_snapshot_piece **sort_pieces(const struct set *set, size_t *n)
{
    const struct import_snapshot_piece **list = arena_realloc(NULL, set->pieces.n, sizeof *list);
    *n = 0;
    for (size_t i = 0; i < set->pieces.n; i++)
        if (set->pieces.list[i].bytes) list[(*n)++] = &set->pieces.list[i];
    SORT(list, *n, by_place);
    return list;
}

static void write_pending(struct importer *s, const struct import_snapshot_piece *h)
{
    struct import_event e = snapshot_event_of(s, h);
    write_tensor(s, &e, h->device, false);
    import_feed_pending(s->feed, &e);
    write_tensor(s, &e, h->device, true);
}

/* A ring of one entry, which is PyTorch's default, often contains only the completion of a free, or the snapshot event.
 */
static bool has_history(const struct importer *s)
{
    for (size_t i = s->first; i < s->end; i++) {
        const uint8_t action = s->from.events[i].action;
        if (action != IMPORT_COMPLETED && action != IMPORT_SNAPSHOT) return true;
    }
    return false;
}

/* Writes the memory before the first event. All segments are written before the blocks, because only tensors state what
 * is reserved. Blocks that were freed but still in use are allocated and freed before that. */
static void write_held(struct importer *s)
{
    size_t segments_n, blocks_n, pending_n;
    const struct import_snapshot_piece **segments = sort_pieces(&s->held, &segments_n),
                                       **blocks = sort_pieces(&s->blocks, &blocks_n),
                                       **pending = sort_pieces(&s->pending, &pending_n);
    const bool history = has_history(s);
    for (size_t i = 0; i < pending_n; i++) write_pending(s, pending[i]);
    for (size_t i = 0; i < segments_n; i++) {
        struct import_event e = snapshot_event_of(s, segments[i]);
        if (!e.stack && history) e.stack = import_feed_before(s->feed);
        write_imported_segment(s, &e, segments[i]->device, false, segments[i]->mapped ? segments[i]->bytes : 0);
        write_pool(s, &e, segments[i]->pool);
    }
    for (size_t i = 0; i < blocks_n; i++) {
        struct import_event e = snapshot_event_of(s, blocks[i]);
        if (!e.stack && history) e.stack = import_feed_before(s->feed);
        write_tensor(s, &e, blocks[i]->device, false);
    }
    ARENA_RELEASE(segments, blocks, pending);
}

/* Gives each event a different time, so that rows keep the order of events. */
static int64_t snapshot_time_of(int64_t us, int64_t last)
{
    us = us < 0 ? 0 : us > INT64_MAX / 2000 ? INT64_MAX / 2000 : us;
    int64_t ns = us * 1000 + BEFORE_NS;
    return ns > last ? ns : last + 1;
}

static void write_imported_free(struct importer *s, struct import_event *e, const struct import_snapshot_event *from)
{
    if (from->later) import_feed_pending(s->feed, e);
    write_tensor(s, e, from->device, true);
}

static void write_imported_event(struct importer *s, const struct import_snapshot_event *from, int64_t ns)
{
    const bool freed = from->action == IMPORT_GIVE_BACK || from->action == IMPORT_UNMAP;
    if (from->action == IMPORT_TAKE || from->action == IMPORT_MAP) s->grown[from->device] = true;
    struct import_event e = {.time_ns = ns,
                             .device = snapshot_device_of(from->device),
                             .stack = import_snapshot_stack(s->feed, &s->stacks, from->frames),
                             .address = from->address,
                             .stream = from->stream,
                             .bytes = from->bytes,
                             .requested = from->requested,
                             .private_pool = from->pool >= IMPORT_POOL_PRIVATE,
                             .allocated = s->now[from->device].allocated,
                             .reserved = s->now[from->device].reserved};
    switch ((enum import_action)from->action) {
    case IMPORT_ALLOC:
        write_tensor(s, &e, from->device, false);
        if (s->grown[from->device]) write_pool(s, &e, from->pool);
        s->grown[from->device] = false;
        break;
    case IMPORT_FREE: write_imported_free(s, &e, from); break;
    case IMPORT_COMPLETED:
        if (e.bytes) import_feed_pending_end(s->feed, &e);
        break;
    case IMPORT_TAKE:
    case IMPORT_GIVE_BACK: write_imported_segment(s, &e, from->device, freed, 0); break;
    case IMPORT_MAP:
    case IMPORT_UNMAP: write_imported_segment(s, &e, from->device, freed, import_page_size(e.bytes)); break;
    case IMPORT_OOM:
        if (from->device != IMPORT_HOST) import_feed_failure(s->feed, &e, (int64_t)from->address);
        break;
    case IMPORT_SNAPSHOT: import_feed_moment(s->feed, ns, NULL, "snapshot"); break;
    default: break;
    }
}

static bool is_same(const struct import_snapshot_note *a, const struct import_snapshot_note *b)
{
    return a->name == b->name && a->device == b->device;
}

static void write_imported_note(struct importer *s, const struct import_snapshot_note *note, int64_t ns)
{
    size_t i = 0;
    while (i < OPEN_NOTES && !(note->ends ? s->open[i] && is_same(s->open[i], note) : !s->open[i])) i++;
    if (i == OPEN_NOTES) return; /* the end of a range that began before the file, or too many are open */
    if (!note->ends) s->open_notes[i] = ++s->notes_n;
    import_feed_range(s->feed, ns, s->open_notes[i], note->ends, NULL, note->name);
    s->open[i] = note->ends ? NULL : note;
}

/* Writes the annotations up to a time. Returns the last time that was used. */
static int64_t write_imported_notes(struct importer *s, int64_t until_us, int64_t last)
{
    for (; s->next_note < s->from.notes_n; s->next_note++) {
        const struct import_snapshot_note *note = &s->from.notes[s->next_note];
        if (note->time_us > until_us) break;
        last = snapshot_time_of(note->time_us - s->start_us, last);
        write_imported_note(s, note, last);
    }
    return last;
}

/* Drops ranges that ended before the first event. */
static void skip_notes(struct importer *s)
{
    size_t kept = 0;
    EACH_IN (note, s->from.notes) {
        size_t k = kept;
        if (note->ends && note->time_us < s->start_us) {
            const size_t least = kept > OPEN_NOTES ? kept - OPEN_NOTES : 0;
            while (k > least && !is_same(&s->from.notes[k - 1], note)) k--;
            if (k == least) continue;
            memmove(&s->from.notes[k - 1], &s->from.notes[k], (kept - k) * sizeof *note);
            kept--;
        } else {
            s->from.notes[kept++] = *note;
        }
    }
    s->from.notes_n = kept;
}

static void remark_totals(struct importer *s)
{
    static const char *const words[] = {
#define WORD(symbol, word) word,
        IMPORT_TOTALS(WORD)};
    char text[512];
    size_t n = 0;
    uint64_t most = 0;
    for (size_t i = 0; i < IMPORT_TOTALS_N; i++) {
        const struct import_snapshot_total *t = &s->from.totals[i];
        if (!t->segments) continue;
        most = t->segments > most ? t->segments : most;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %lld bytes stated, %lld computed", n ? "; " : "",
                              words[i], (long long)t->stated, (long long)t->computed);
    }
    if (n)
        import_feed_remark(s->feed, ++s->remarks_n,
                           "in %llu of %zu segments, the stated totals differ from the sums of their blocks: %s",
                           (unsigned long long)most, s->from.segments.n, text);
}

/* PyTorch includes its pinned memory only if the program requests it. */
static bool has_host(const struct importer *s)
{
    bool has = false;
    for (size_t i = 0; i < s->from.segments.n && !has; i++) has = s->from.segments.list[i].device == IMPORT_HOST;
    for (size_t i = 0; i < s->from.events_n && !has; i++) has = s->from.events[i].device == IMPORT_HOST;
    return has;
}

static void write_about(struct importer *s)
{
    static const char name[] = "PYTORCH_CUDA_ALLOC_CONF";
    const bool history = has_history(s);
    if (s->from.settings)
        import_feed_setting(s->feed, "", ""); /* all settings are known: those that are missing were not set */
    if (s->from.settings && *s->from.settings) import_feed_setting(s->feed, name, s->from.settings);
    if (s->from.torch) import_feed_note(s->feed, "torch", "%s", s->from.torch);
    import_feed_note(s->feed, "lacks", "waits copies%s%s%s", history ? "" : " history",
                     history && s->from.timed ? "" : " times", has_host(s) ? "" : " pinned");
    if (!history)
        import_feed_note(s->feed, "lacks.history", "this PyTorch snapshot has no history of %s",
                         s->from.skipped ? s->from.skipped : "allocations and frees");
    if (s->unmatched) import_feed_note(s->feed, "unmatched", "%llu", (unsigned long long)s->unmatched);
    if (s->from.refused) import_feed_damaged(s->feed, s->from.refused);
    remark_totals(s);
    if (s->from.lacks_segments)
        import_feed_remark(s->feed, ++s->remarks_n,
                           "the history lacks events of segments: gpuspy shows what was reserved at its end");
    for (int d = 0; d < IMPORT_DEVICES; d++)
        if (s->inferred[d])
            import_feed_remark(
                s->feed, ++s->remarks_n,
                "the file has no segments of GPU %d: gpuspy infers what is live at the end from its history", d);
    if (import_unpickled_more(s->from.pickle))
        import_feed_remark(s->feed, ++s->remarks_n, "the file holds several pickles; gpuspy read the first");
}

/* Chooses the events of a part. The memory at its begin follows from the end, as for the whole history. */
static bool choose_part(struct importer *s, const struct import_part *part, char *error, size_t error_size)
{
    const struct import_snapshot *from = &s->from;
    s->end = from->events_n;
    s->start_us = from->timed && from->events_n ? from->events[0].time_us : 0;
    if (!part) return true;
    if (!from->timed || !from->events_n) {
        snprintf(error, error_size, "%s, so a time range cannot be selected",
                 from->events_n ? "its events have no times" : "it has no history");
        return false;
    }
    while (s->first < s->end && from->events[s->first].time_us - s->start_us < part->from_ns / 1000) s->first++;
    while (s->end > s->first && from->events[s->end - 1].time_us - s->start_us > part->to_ns / 1000) s->end--;
    if (s->first == s->end) {
        snprintf(error, error_size, "no event is in that range; the events span %s",
                 UNITS_SECONDS((double)(from->events[from->events_n - 1].time_us - s->start_us) / 1e6));
        return false;
    }
    s->start_us = from->events[s->first].time_us;
    return true;
}

static void write_imported_snapshot(struct importer *s)
{
    const struct import_snapshot *from = &s->from;
    int64_t ns = 0;
    hold_end(s);
    for (size_t d = 0; d <= IMPORT_DEVICES; d++) s->next[d] = SIZE_MAX;
    for (size_t i = from->events_n; i-- > s->first;) undo_event(s, i);
    forget_cut_frees(s);
    find_block_sizes(s);
    write_about(s);
    write_held(s);
    if (from->timed) skip_notes(s);
    for (size_t i = s->first; i < s->end; i++) {
        const struct import_snapshot_event *e = &from->events[i];
        if (from->timed) ns = write_imported_notes(s, e->time_us - 1, ns);
        ns = snapshot_time_of(from->timed ? e->time_us - s->start_us : (int64_t)(i - s->first), ns);
        write_imported_event(s, e, ns);
    }
    if (from->timed && s->end == from->events_n && s->end) write_imported_notes(s, INT64_MAX, ns);
}

static void release_importer(struct importer *s)
{
    struct set *sets[] = {&s->blocks, &s->pending, &s->held};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        free(sets[i]->pieces.list);
        map_free(&sets[i]->index);
    }
    free(s->private.list);
    map_free(&s->stacks);
    import_snapshot_release(&s->from);
    free(s);
}

bool import_snapshot_part(const char *path, const char *to, const struct import_part *part,
                          void (*progress)(void *, uint64_t), void *self, char *error, size_t error_size)
{
    struct importer *s = arena_zeroed(1, sizeof *s);
    bool ok = import_snapshot_read(&s->from, path, progress, self, error, error_size) &&
              choose_part(s, part, error, error_size);
    if (ok) {
        struct import_source source = {.format = "PyTorch snapshot", .file = basename(path)};
        if (s->start_us > 1) source.start_real_ns = (uint64_t)s->start_us * 1000 - BEFORE_NS;
        s->feed = import_feed_start(to, &source, error, error_size);
        ok = s->feed != NULL;
    }
    if (ok) {
        write_imported_snapshot(s);
        ok = import_feed_end(s->feed, error, error_size);
    }
    release_importer(s);
    return ok;
}

bool import_snapshot(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                     size_t error_size)
{
    return import_snapshot_part(path, to, NULL, progress, self, error, error_size);
}
