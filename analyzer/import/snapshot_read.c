/* Reads a snapshot's pickle. Fields and actions: torch/csrc/cuda/Module.cpp and memory_snapshot.cpp,
 * c10/cuda/CUDACachingAllocator.cpp. An event becomes 48 bytes as soon as its dict is complete, so that a history of
 * millions of events fits in memory. */
#include "analyzer/import/snapshot_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/import/import.h"
#include "analyzer/base/sort.h"

static const int64_t largest = (int64_t)1 << 48;

#define FIELDS(X)                 \
    X(ACTION, "action")           \
    X(ADDRESS, "addr")            \
    X(DEVICE_FREE, "device_free") \
    X(SIZE, "size")               \
    X(STREAM, "stream")           \
    X(TIME, "time_us") X(FRAMES, "frames") X(FORWARD, "forward_frames") X(POOL_ID, "pool_id")
#define ENUM_FIELD(symbol, word) FIELD_##symbol,
enum field { FIELDS(ENUM_FIELD) FIELD_OTHER };

/* The keys of a kind of dict, and the fields that they are. */
struct import_snapshot_shape {
    const char *keys[IMPORT_TAKEN_KEYS];
    uint8_t fields[IMPORT_TAKEN_KEYS]; /* enum field */
    size_t n;
    bool is_event;
};

/* The most recent ones: all events have the same keys, their frames others, and equal keys are one pointer. */
enum { SHAPES = 8 };
struct import_snapshot_shapes {
    struct import_snapshot_shape list[SHAPES];
    size_t next; /* the next to replace */
};

static enum field field_of(const char *key)
{
    static const char *const words[] = {
#define WORD(symbol, word) word,
        FIELDS(WORD)};
    for (size_t i = 0; i < FIELD_OTHER; i++)
        if (strcmp(key, words[i]) == 0) return (enum field)i;
    return FIELD_OTHER;
}

static bool has_keys(const struct import_snapshot_shape *shape, const struct import_value *pairs, size_t n)
{
    if (n != shape->n) return false;
    for (size_t i = 0; i < n; i++)
        if (pairs[2 * i].type != IMPORT_TEXT || pairs[2 * i].text != shape->keys[i]) return false;
    return true;
}

static const struct import_snapshot_shape *dict_shape_of(struct import_snapshot_shapes *known,
                                                         const struct import_value *pairs, size_t n)
{
    for (size_t i = 0; i < SHAPES; i++)
        if (has_keys(&known->list[i], pairs, n)) return &known->list[i];
    struct import_snapshot_shape *shape = &known->list[known->next++ % SHAPES];
    shape->is_event = false;
    shape->n = n;
    for (size_t i = 0; i < n; i++) {
        const char *key = import_text(&pairs[2 * i]);
        shape->keys[i] = key;
        shape->fields[i] = (uint8_t)(key ? field_of(key) : FIELD_OTHER);
        shape->is_event = shape->is_event || shape->fields[i] == FIELD_ACTION;
    }
    return shape;
}

static enum import_action action_of(const char *word)
{
    static const char *const words[] = {IMPORT_ACTIONS(WORD)};
    for (size_t i = 0; word && i < IMPORT_OTHER; i++)
        if (strcmp(word, words[i]) == 0) return (enum import_action)i;
    return IMPORT_OTHER;
}

/* (0, 0) is the default pool; others belong to CUDA graphs and MemPools. */
static uint16_t pool_of_id(struct import_snapshot *s, const struct import_value *id)
{
    if (import_count(id) != 2) return IMPORT_POOL_UNKNOWN;
    const uint64_t first = (uint64_t)import_integer(import_item(id, 0), 0),
                   second = (uint64_t)import_integer(import_item(id, 1), 0);
    if (!first && !second) return IMPORT_POOL_DEFAULT;
    uint32_t *number = map_at(&s->pools, map_hash(map_hash(first) + second));
    if (*number == MAP_NEW) {
        const uint32_t next = IMPORT_POOL_PRIVATE + s->private_n;
        *number = next < IMPORT_POOL_LAST ? next : IMPORT_POOL_LAST;
        s->private_n++;
    }
    return (uint16_t)*number;
}

/* The frames; in 2.11, detect_anomaly() adds those of the forward pass to what backward() allocates, and both are
 * items of one list. NULL: neither. */
static const struct import_list *join_frames(struct import_snapshot *s, const struct import_value *frames,
                                             const struct import_value *forward)
{
    if (!import_count(forward)) return import_count(frames) ? frames->list : NULL;
    struct import_list *both = arena_alloc(&s->arena, sizeof *both + 2 * sizeof *both->items);
    *both = (struct import_list){.items = (struct import_value *)(both + 1), .n = 2};
    if (import_count(frames)) both->items[0] = *frames;
    both->items[1] = *forward;
    return both;
}

/* False: the dict is not an event. */
static bool read_snapshot_event(struct import_snapshot *s, const struct import_value *pairs, size_t n,
                                struct import_snapshot_event *e)
{
    const struct import_snapshot_shape *shape = n <= IMPORT_TAKEN_KEYS ? dict_shape_of(s->shapes, pairs, n) : NULL;
    const struct import_value *fields[FIELD_OTHER + 1] = {0};
    if (!shape || !shape->is_event) return false;
    for (size_t i = 0; i < n; i++) fields[shape->fields[i]] = &pairs[2 * i + 1];
    const struct import_value *address = fields[FIELD_ADDRESS] ? fields[FIELD_ADDRESS] : fields[FIELD_DEVICE_FREE];
    *e = (struct import_snapshot_event){
        .action = (uint8_t)action_of(import_text(fields[FIELD_ACTION])),
        .address = (uint64_t)import_integer(address, 0),
        .bytes = import_integer(fields[FIELD_SIZE], 0),
        .stream = (uint64_t)import_integer(fields[FIELD_STREAM], 0),
        .time_us = import_integer(fields[FIELD_TIME], INT64_MIN),
        .frames = join_frames(s, fields[FIELD_FRAMES], fields[FIELD_FORWARD]),
        .pool = pool_of_id(s, fields[FIELD_POOL_ID]),
    };
    e->requested = e->bytes;
    if (e->action == IMPORT_OOM) e->address = (uint64_t)import_integer(fields[FIELD_DEVICE_FREE], (int64_t)e->address);
    return true;
}

/* Called while the pickle is read; a dict that becomes an event is not needed any more. */
static size_t take_event(void *taker, const struct import_value *pairs, size_t n)
{
    struct import_snapshot *s = taker;
    struct import_snapshot_event e;
    if (n < 2 || !read_snapshot_event(s, pairs, n, &e)) return 0;
    *ARENA_ADD(s->events) = e;
    s->has_pool_ids = s->has_pool_ids || e.pool != IMPORT_POOL_UNKNOWN;
    return s->events_n;
}

int64_t import_page_size(int64_t bytes)
{
    static const int64_t small = 2 << 20, large = 20 << 20;
    return bytes % large ? small : large;
}

/* Each page becomes a row. A file may have as many as 8 TiB of memory, and more if it has many events: so the work
 * depends on its length, not on the sizes that it states. */
static bool has_room_for_pages(struct import_snapshot *s, int64_t bytes)
{
    enum { MOST = 1 << 22, PER_EVENT = 64 };
    s->pages += (uint64_t)(bytes / import_page_size(bytes)) + 1;
    return s->pages <= MOST + PER_EVENT * s->events_n;
}

struct placing { /* moves events to their device's place in the history */
    struct import_snapshot *s;
    size_t n, taken_n;
};

static void place_event(struct placing *p, const struct import_value *item, uint8_t device)
{
    struct import_snapshot *s = p->s;
    const size_t taken = import_taken(item);
    struct import_snapshot_event e;
    bool ok = item->type == IMPORT_DICT;
    if (taken) {
        ok = taken - 1 >= p->n; /* not if it was placed before */
        e = s->events[taken - 1];
    } else {
        ok = ok && p->n >= p->taken_n && read_snapshot_event(s, item->list->items, item->list->n / 2, &e);
    }
    if (ok && e.action == IMPORT_OTHER) return;
    ok = ok && e.bytes >= 0 && e.bytes <= largest;
    if (ok && (e.action == IMPORT_MAP || e.action == IMPORT_UNMAP)) ok = has_room_for_pages(s, e.bytes);
    if (!ok) {
        s->refused++;
        return;
    }
    e.device = device;
    s->timed = s->timed && e.time_us != INT64_MIN;
    s->events_n = p->n;
    *ARENA_ADD(s->events) = e;
    p->n = s->events_n;
}

struct cursor {
    size_t at, end;
};

static void place_trace(struct placing *p, const struct import_value *trace, size_t device, struct cursor *c)
{
    c->at = p->n;
    for (size_t i = 0; i < import_count(trace); i++) place_event(p, import_item(trace, i), (uint8_t)device);
    c->end = p->n;
}

/* Merges the devices' events by time. Keeps the order within a device, even if the clock was set back. */
static void merge_devices(struct import_snapshot *s, struct cursor *devices, size_t n)
{
    struct import_snapshot_event *merged = arena_realloc(NULL, s->events_n, sizeof *merged);
    for (size_t i = 0; i < s->events_n; i++) {
        struct cursor *first = NULL;
        EACH (c, devices, n)
            if (c->at < c->end && (!first || s->events[c->at].time_us < s->events[first->at].time_us)) first = c;
        merged[i] = s->events[first->at++];
    }
    free(s->events);
    s->events = merged;
    s->events_cap = s->events_n;
}

/* Finds the first event in a list of events, or in one list per device. */
static size_t first_taken(const struct import_value *traces)
{
    for (size_t i = 0; i < import_count(traces); i++) {
        const struct import_value *trace = import_item(traces, i);
        const size_t taken = trace->type == IMPORT_LIST ? first_taken(trace) : import_taken(trace);
        if (taken) return taken;
    }
    return SIZE_MAX;
}

static void place_host(struct placing *p, const struct import_value *traces, struct cursor *c)
{
    const bool nested = import_count(traces) && import_item(traces, 0)->type == IMPORT_LIST;
    place_trace(p, nested ? import_item(traces, 0) : traces, IMPORT_HOST, c);
}

static void place_events(struct import_snapshot *s, const struct import_value *root)
{
    const struct import_value *traces = import_member(root, "device_traces"),
                              *host = import_member(root, "host_traces");
    struct placing p = {.s = s, .taken_n = s->events_n};
    struct cursor devices[IMPORT_DEVICES + 1] = {0};
    size_t n = import_count(traces) < IMPORT_DEVICES ? import_count(traces) : IMPORT_DEVICES, filled = 0;
    const bool host_first = first_taken(host) < first_taken(traces);
    s->timed = true;
    if (host_first) place_host(&p, host, &devices[IMPORT_HOST]);
    for (size_t d = 0; d < n; d++) place_trace(&p, import_item(traces, d), d, &devices[d]);
    if (!host_first) place_host(&p, host, &devices[IMPORT_HOST]);
    s->events_n = p.n;
    for (size_t d = 0; d <= IMPORT_DEVICES; d++) filled += devices[d].at < devices[d].end;
    if (s->timed && filled > 1) merge_devices(s, devices, IMPORT_DEVICES + 1);
}

static bool has_address_twice(const struct import_snapshot *s, enum import_action action)
{
    struct map seen = {0};
    bool twice = false;
    for (size_t i = 0; i < s->events_n && !twice; i++) {
        const struct import_snapshot_event *e = &s->events[i];
        if (e->action != action) continue;
        uint32_t *at = map_at(&seen, map_hash(e->address) ^ e->device);
        twice = *at != MAP_NEW;
        *at = 0;
    }
    map_free(&seen);
    return twice;
}

SORT_ORDER(order_segments, struct import_snapshot_piece, SORT_UP(x->address, y->address))

/* Is a block of a device whose segments are listed outside of all, although no event allocates or frees one? */
static bool has_block_outside(const struct import_snapshot *s, const bool listed[])
{
    struct import_snapshot_piece *list = arena_realloc(NULL, s->segments.n + 1, sizeof *list);
    const size_t n = s->segments.n;
    bool outside = false;
    if (n) memcpy(list, s->segments.list, n * sizeof *list);
    SORT(list, n, order_segments);
    for (size_t i = 0; i < s->events_n && !outside; i++) {
        const struct import_snapshot_event *e = &s->events[i];
        const size_t at = SORT_COUNT(n, k, list[k].address <= e->address);
        outside = e->action == IMPORT_ALLOC && listed[e->device] &&
                  !(at && e->address - list[at - 1].address < (uint64_t)list[at - 1].bytes);
    }
    free(list);
    return outside;
}

/* Do the events of segments contradict each other, or the segments at the end? Of devices that list some. */
static bool lacks_segment_events(const struct import_snapshot *s, const size_t n[])
{
    enum { TAKEN, FREED, STAYS };
    struct map last = {0};
    bool lacks = false, listed[IMPORT_DEVICES + 1] = {0};
    EACH (p, s->segments.list, s->segments.n) listed[p->device] = true;
    if (n[IMPORT_MAP] || n[IMPORT_UNMAP] || !s->segments.n) return false;
    if (!n[IMPORT_TAKE] && !n[IMPORT_GIVE_BACK]) return has_block_outside(s, listed);
    for (size_t i = 0; i < s->events_n && !lacks; i++) {
        const struct import_snapshot_event *e = &s->events[i];
        if ((e->action != IMPORT_TAKE && e->action != IMPORT_GIVE_BACK) || !listed[e->device]) continue;
        uint32_t *now = map_at(&last, map_hash(e->address) ^ e->device);
        const uint32_t next = e->action == IMPORT_TAKE ? TAKEN : FREED;
        lacks = *now == next;
        *now = next;
    }
    for (size_t i = 0; i < s->segments.n && !lacks; i++) {
        uint32_t *now = map_at(&last, map_hash(s->segments.list[i].address) ^ s->segments.list[i].device);
        lacks = *now == FREED;
        *now = STAYS;
    }
    for (size_t i = 0; i < s->events_n && !lacks; i++) {
        const struct import_snapshot_event *e = &s->events[i];
        lacks =
            e->action == IMPORT_TAKE && listed[e->device] && map_get(&last, map_hash(e->address) ^ e->device) == TAKEN;
    }
    map_free(&last);
    return lacks;
}

/* The program can choose which events PyTorch records (skip_actions, since 2.10). A completed free can replace a
 * requested one, except for the first event of a ring, which may be the second half of such a pair. If allocations or
 * frees are missing, it is unknown what is live at which time; if events of segments are, what is reserved. */
static void settle_skipped(struct import_snapshot *s)
{
    size_t n[IMPORT_OTHER + 1] = {0}, later_n = 0;
    bool seen[IMPORT_DEVICES + 1] = {0};
    EACH_IN (e, s->events) {
        n[e->action]++;
        later_n += e->action == IMPORT_COMPLETED && seen[e->device];
        seen[e->device] = true;
    }
    const bool completions_only = !n[IMPORT_FREE] && later_n;
    for (size_t i = 0; completions_only && i < s->events_n; i++)
        if (s->events[i].action == IMPORT_COMPLETED) s->events[i].action = IMPORT_FREE;
    /* A segment is allocated for an allocation, which must follow. */
    if (!n[IMPORT_ALLOC] && (n[IMPORT_TAKE] || has_address_twice(s, IMPORT_FREE))) s->skipped = "allocations";
    if (!n[IMPORT_FREE] && !n[IMPORT_COMPLETED] && has_address_twice(s, IMPORT_ALLOC)) s->skipped = "frees";
    if (s->skipped) s->events_n = 0;
    s->lacks_segments = lacks_segment_events(s, n);
    for (size_t i = 0; s->lacks_segments && i < s->events_n; i++)
        if (s->events[i].action == IMPORT_TAKE || s->events[i].action == IMPORT_GIVE_BACK)
            s->events[i].action = IMPORT_OTHER;
}

/* Before 2.1 a block has a `history` instead of frames and the requested size. */
static const struct import_list *frames_of(struct import_snapshot *s, const struct import_value *v)
{
    const struct import_value *history = import_member(v, "history"), *frames = import_member(v, "frames");
    if (!import_count(frames) && import_count(history)) frames = import_member(import_item(history, 0), "frames");
    return join_frames(s, frames, import_member(v, "forward_frames"));
}

static int64_t requested_of(const struct import_value *block)
{
    const struct import_value *history = import_member(block, "history");
    const struct import_value *last = import_count(history) ? import_item(history, 0) : NULL;
    return import_integer(import_member(block, "requested_size"), import_integer(import_member(last, "real_size"), 0));
}

static void compare_total(struct import_snapshot *s, const struct import_value *segment, const char *key,
                          enum import_total total, int64_t computed)
{
    struct import_snapshot_total *t = &s->totals[total];
    const int64_t stated = import_integer(import_member(segment, key), computed);
    t->stated = arena_add_capped(t->stated, stated);
    t->computed = arena_add_capped(t->computed, computed);
    t->segments += stated != computed;
}

static void read_blocks(struct import_snapshot *s, const struct import_value *segment,
                        const struct import_snapshot_piece *within)
{
    const struct import_value *blocks = import_member(segment, "blocks");
    struct import_snapshot_piece b = *within;
    int64_t allocated = 0, active = 0, requested = 0, total = 0;
    bool sizes = true;
    for (size_t i = 0; i < import_count(blocks); i++) {
        const struct import_value *block = import_item(blocks, i);
        const char *state = import_text(import_member(block, "state"));
        b.bytes = import_integer(import_member(block, "size"), 0);
        b.address = (uint64_t)import_integer(import_member(block, "address"), (int64_t)b.address);
        b.frames = frames_of(s, block);
        b.requested = requested_of(block);
        if (b.bytes <= 0 || b.bytes > within->bytes) {
            s->refused++;
            continue;
        }
        const bool live = state && strcmp(state, "active_allocated") == 0;
        b.pending = state && !live && strncmp(state, "active", strlen("active")) == 0;
        total += b.bytes;
        allocated += live ? b.bytes : 0;
        if (live || b.pending) {
            const int64_t asked = import_integer(import_member(block, "requested_size"), -1);
            active += b.bytes;
            requested = arena_add_capped(requested, asked);
            sizes = sizes && asked >= 0;
            *ARENA_PUSH(s->blocks.list, s->blocks.n, s->blocks.cap) = b;
        }
        b.address += (uint64_t)b.bytes;
    }
    if (!blocks) return; /* nothing to compare */
    compare_total(s, segment, "allocated_size", IMPORT_TOTAL_ALLOCATED, allocated);
    compare_total(s, segment, "active_size", IMPORT_TOTAL_ACTIVE, active);
    compare_total(s, segment, "total_size", IMPORT_TOTAL_RESERVED, total);
    if (sizes && within->device != IMPORT_HOST) /* there it is the segment's size, also while it is free */
        compare_total(s, segment, "requested_size", IMPORT_TOTAL_REQUESTED, requested);
}

static void read_segments(struct import_snapshot *s, const struct import_value *segments, bool host)
{
    for (size_t i = 0; i < import_count(segments); i++) {
        const struct import_value *segment = import_item(segments, i);
        const int64_t device = host ? IMPORT_HOST : import_integer(import_member(segment, "device"), 0);
        struct import_snapshot_piece piece = {.address = (uint64_t)import_integer(import_member(segment, "address"), 0),
                                              .bytes = import_integer(import_member(segment, "total_size"), 0),
                                              .stream = (uint64_t)import_integer(import_member(segment, "stream"), 0),
                                              .frames = frames_of(s, segment),
                                              .pool = pool_of_id(s, import_member(segment, "segment_pool_id")),
                                              .mapped =
                                                  import_integer(import_member(segment, "is_expandable"), 0) != 0};
        if (device < 0 || device > (host ? IMPORT_HOST : IMPORT_DEVICES - 1) || piece.bytes <= 0 ||
            piece.bytes > largest || (piece.mapped && !has_room_for_pages(s, piece.bytes))) {
            s->refused++;
            continue;
        }
        piece.device = (uint8_t)device;
        s->segments_n += !host;
        *ARENA_PUSH(s->segments.list, s->segments.n, s->segments.cap) = piece;
        read_blocks(s, segment, &piece);
    }
}

SORT_ORDER(order_notes_by_time, struct import_snapshot_note, SORT_UP(x->time_us, y->time_us))

static void read_notes(struct import_snapshot *s, const struct import_value *notes)
{
    for (size_t i = 0; i < import_count(notes); i++) {
        const struct import_value *v = import_item(notes, i);
        const char *stage = import_text(import_member(v, "stage"));
        struct import_snapshot_note n = {.time_us = import_integer(import_member(v, "time_us"), INT64_MIN),
                                         .name = import_text(import_member(v, "name")),
                                         .device = (int)import_integer(import_member(v, "device"), -1)};
        n.ends = stage && strcmp(stage, "END") == 0;
        if (n.name && n.time_us > 0 && stage) *ARENA_ADD(s->notes) = n;
    }
    SORT(s->notes, s->notes_n, order_notes_by_time);
}

static bool are_segments(const struct import_value *list)
{
    bool all = list && list->type == IMPORT_LIST;
    for (size_t i = 0; all && i < import_count(list); i++) {
        const struct import_value *v = import_item(list, i);
        all = import_member(v, "address") && import_member(v, "total_size");
    }
    return all;
}

/* Events have times since 2.2, segments state since 2.1 whether they are expandable. NULL: unknown. */
static const char *torch_before_settings(const struct import_snapshot *s, const struct import_value *segments)
{
    if (!s->events_n || s->timed || !import_count(segments)) return NULL;
    return import_member(import_item(segments, 0), "is_expandable") ? "2.1" : "2.0";
}

/* From a comparison of snapshots of PyTorch 2.6 to 2.15. */
static const char *torch_of(const struct import_snapshot *s, const struct import_value *settings)
{
    if (import_member(settings, "max_cached_size")) return "2.15";    /* since 2.13 */
    if (import_member(settings, "graph_capture_record_stream_reuse")) /* since 2.9; gpuspy's exports lack it */
        return s->has_pool_ids ? "2.12" : "2.11";
    return import_member(settings, "expandable_segments") ? "2.8" : NULL;
}

static void read_divisions(struct import_snapshot *s, const struct import_value *divisions)
{
    for (int i = 0; i < 16; i++) {
        char mib[8];
        snprintf(mib, sizeof mib, "%d", 1 << i);
        s->divisions[i] = import_integer(import_member(divisions, mib), 0);
    }
}

bool import_snapshot_read(struct import_snapshot *s, const char *path, import_progress_fn progress, void *self,
                          char *error, size_t error_size)
{
    const struct import_reading reading = {progress, self, take_event, s};
    *s = (struct import_snapshot){.shapes = arena_realloc(NULL, 1, sizeof *s->shapes)};
    memset(s->shapes, 0, sizeof *s->shapes);
    s->pickle = import_unpickle(path, &reading, error, error_size);
    if (!s->pickle) return false;
    const struct import_value *root = import_unpickled(s->pickle);
    const struct import_value *segments = root->type == IMPORT_LIST ? root : import_member(root, "segments");
    if (!are_segments(segments)) {
        snprintf(error, error_size, "it is %s", /* before 1.6, torch.save wrote a large number first */
                 root->type == IMPORT_BIG
                     ? IMPORT_CHECKPOINT
                     : "a pickle, but not a snapshot of torch.cuda.memory: it has no list of segments");
        return false;
    }
    const struct import_value *settings = import_member(root, "allocator_settings");
    s->settings = import_text(import_member(settings, "PYTORCH_CUDA_ALLOC_CONF"));
    if (s->settings) s->torch = torch_of(s, settings);
    read_divisions(s, import_member(settings, "roundup_power2_divisions"));
    read_segments(s, segments, false);
    read_segments(s, import_member(root, "host_segments"), true);
    read_notes(s, import_member(root, "external_annotations"));
    place_events(s, root);
    if (!settings) s->torch = torch_before_settings(s, segments);
    settle_skipped(s);
    return true;
}

void import_snapshot_release(struct import_snapshot *s)
{
    map_free(&s->pools);
    ARENA_RELEASE(s->shapes, s->events, s->segments.list, s->blocks.list, s->notes);
    arena_free(&s->arena);
    import_unpickle_free(s->pickle);
}
