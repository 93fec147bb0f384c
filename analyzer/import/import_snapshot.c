/* A snapshot holds what PyTorch's allocator has at the end (segments, and the blocks in them), and a history of events
 * by device, which may be a ring that begins in the middle of the run or be missing. What was there before its first
 * event follows from the end, backwards: what is there at the end, less what the events allocated, and what they freed.
 * Fields and actions: torch/csrc/cuda/memory_snapshot.cpp, c10/cuda/CUDACachingAllocator.cpp.
 *
 * Events give the size that was asked for. A block that is there at the end has its own size; of others it is the
 * asked one in steps of 512 bytes, which is what the allocator rounds to where nothing else is set. */
#include "analyzer/import/import_snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/import/feed.h"
#include "analyzer/import/unpickle.h"

enum { DEVICES = 64, ROUND = 512, BEFORE_NS = 1000 }; /* BEFORE_NS: from what was there before to the first event */
static const int64_t small_page = 2 << 20, large_page = 20 << 20; /* of expandable segments */

enum action { ALLOC, FREE, COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM, OTHER };
static const char *const actions[] = {
    [ALLOC] = "alloc",
    [FREE] = "free_requested",
    [COMPLETED] = "free_completed",
    [SEGMENT_ALLOC] = "segment_alloc",
    [SEGMENT_FREE] = "segment_free",
    [SEGMENT_MAP] = "segment_map",
    [SEGMENT_UNMAP] = "segment_unmap",
    [OOM] = "oom",
};

struct event {
    const struct import_value *frames;
    int64_t time_us; /* INT64_MIN unknown */
    uint64_t address, stream;
    int64_t bytes, requested, free_bytes;
    uint8_t action, device;
};

struct held { /* at some moment; bytes 0: no longer */
    uint64_t address, stream;
    int64_t bytes, requested; /* requested: 0 unknown */
    const struct import_value *frames;
    uint8_t device;
    bool mapped; /* a page of an expandable segment */
};

struct set {
    struct held *list;
    size_t n, cap;
    struct map index; /* address → in list */
};

struct totals {
    int64_t allocated, reserved;
};

struct snapshot {
    struct import_feed *feed;
    const struct import_value *root, *segments;
    struct event *events; /* in order of time */
    size_t events_n, events_cap;
    struct set blocks, held; /* of tensors; of segments and pages */
    struct totals now[DEVICES];
    struct map stacks; /* list of frames, by address → stack */
    bool timed;
    int64_t start_us;
    uint64_t unmatched;   /* events that fit neither the end nor one another */
    int64_t said, summed; /* allocated bytes: as segments say, and as their blocks add up to */
};

bool import_is_snapshot(const unsigned char *head, size_t n)
{
    /* Protocols 2 and later begin with PROTO; 0 and 1 with a mark, a dict or a list. */
    return n >= 2 && ((head[0] == 0x80 && head[1] <= 5) || (head[0] == '(' && (head[1] == 'd' || head[1] == 'l')) ||
                      ((head[0] == '}' || head[0] == ']') && (head[1] == 'q' || head[1] == '(')));
}

/* --- what is held ------------------------------------------------------------------------------ */

static void hold(struct set *set, const struct held *h)
{
    uint32_t *at = map_at(&set->index, h->address);
    if (*at == MAP_NEW) {
        *at = (uint32_t)set->n;
        *ARENA_PUSH(set->list, set->n, set->cap) = *h;
    } else {
        set->list[*at] = *h;
    }
}

static struct held *find(struct set *set, uint64_t address)
{
    uint32_t at = map_get(&set->index, address);
    return at == MAP_NEW || !set->list[at].bytes ? NULL : &set->list[at];
}

static int64_t rounded(int64_t bytes)
{
    return bytes < ROUND ? ROUND : (bytes + ROUND - 1) / ROUND * ROUND;
}

static int64_t page_of(int64_t bytes)
{
    return bytes % large_page ? small_page : large_page;
}

static void hold_pages(struct snapshot *s, struct held h, bool begin)
{
    int64_t page = page_of(h.bytes), left = h.bytes;
    h.mapped = true;
    for (; left > 0; left -= page, h.address += (uint64_t)page) {
        struct held *old = find(&s->held, h.address);
        h.bytes = left < page ? left : page;
        if (begin) {
            hold(&s->held, &h);
        } else if (old) {
            old->bytes = 0;
        }
    }
}

static bool fits_device(int64_t device)
{
    return device >= 0 && device < DEVICES;
}

/* A segment's own size of what its blocks hold, in `history` before 2.1. */
static const struct import_value *frames_of_block(const struct import_value *block)
{
    const struct import_value *history = import_member(block, "history"), *frames = import_member(block, "frames");
    return import_count(frames)    ? frames
           : import_count(history) ? import_member(import_item(history, 0), "frames")
                                   : frames;
}

static int64_t requested_of_block(const struct import_value *block)
{
    const struct import_value *history = import_member(block, "history");
    const struct import_value *last = import_count(history) ? import_item(history, 0) : NULL;
    return import_integer(import_member(block, "requested_size"), import_integer(import_member(last, "real_size"), 0));
}

static void add_blocks(struct snapshot *s, const struct import_value *segment, const struct held *at)
{
    const struct import_value *blocks = import_member(segment, "blocks");
    uint64_t address = at->address;
    int64_t active = 0;
    for (size_t i = 0; i < import_count(blocks); i++) {
        const struct import_value *block = import_item(blocks, i);
        const char *state = import_text(import_member(block, "state"));
        int64_t bytes = import_integer(import_member(block, "size"), 0);
        address = (uint64_t)import_integer(import_member(block, "address"), (int64_t)address);
        if (bytes <= 0 || bytes > at->bytes) continue;
        if (state && strcmp(state, "active_allocated") == 0) {
            hold(&s->blocks, &(struct held){.address = address,
                                            .bytes = bytes,
                                            .requested = requested_of_block(block),
                                            .stream = at->stream,
                                            .device = at->device,
                                            .frames = frames_of_block(block)});
            active += bytes;
        }
        address += (uint64_t)bytes;
    }
    s->summed += active;
    s->said += import_integer(import_member(segment, "allocated_size"), active);
}

static void read_segments(struct snapshot *s)
{
    for (size_t i = 0; i < import_count(s->segments); i++) {
        const struct import_value *segment = import_item(s->segments, i);
        int64_t device = import_integer(import_member(segment, "device"), 0);
        struct held h = {.address = (uint64_t)import_integer(import_member(segment, "address"), 0),
                         .bytes = import_integer(import_member(segment, "total_size"), 0),
                         .stream = (uint64_t)import_integer(import_member(segment, "stream"), 0),
                         .frames = import_member(segment, "frames")};
        if (!fits_device(device) || h.bytes <= 0 || h.bytes > (int64_t)1 << 48) continue;
        h.device = (uint8_t)device;
        if (import_integer(import_member(segment, "is_expandable"), 0)) {
            hold_pages(s, h, true);
        } else {
            hold(&s->held, &h);
        }
        add_blocks(s, segment, &h);
    }
}

/* --- the history ------------------------------------------------------------------------------- */

static enum action action_of(const char *word)
{
    for (size_t i = 0; word && i < OTHER; i++) {
        if (strcmp(word, actions[i]) == 0) return (enum action)i;
    }
    return OTHER;
}

static void read_event(struct snapshot *s, const struct import_value *v, uint8_t device)
{
    enum action action = action_of(import_text(import_member(v, "action")));
    if (action == OTHER || action == COMPLETED) return;
    const struct import_value *address = import_member(v, "addr");
    struct event e = {
        .action = (uint8_t)action,
        .device = device,
        .address = (uint64_t)import_integer(address ? address : import_member(v, "device_free"), 0),
        .bytes = import_integer(import_member(v, "size"), 0),
        .stream = (uint64_t)import_integer(import_member(v, "stream"), 0),
        .time_us = import_integer(import_member(v, "time_us"), INT64_MIN),
        .frames = import_member(v, "frames"),
    };
    e.requested = e.bytes;
    e.free_bytes = action == OOM ? import_integer(import_member(v, "device_free"), (int64_t)e.address) : 0;
    if (e.bytes < 0 || e.bytes > (int64_t)1 << 48) return;
    s->timed = s->timed && e.time_us != INT64_MIN;
    *ARENA_PUSH(s->events, s->events_n, s->events_cap) = e;
}

struct cursor {
    size_t at, end;
};

/* Each device's events are in order; a clock that was set back does not turn them round. */
static void merge_devices(struct snapshot *s, struct cursor *devices, size_t n)
{
    struct event *merged = arena_realloc(NULL, s->events_n, sizeof *merged);
    for (size_t i = 0; i < s->events_n; i++) {
        struct cursor *first = NULL;
        for (size_t d = 0; d < n; d++) {
            struct cursor *c = &devices[d];
            if (c->at < c->end && (!first || s->events[c->at].time_us < s->events[first->at].time_us)) first = c;
        }
        merged[i] = s->events[first->at++];
    }
    free(s->events);
    s->events = merged;
    s->events_cap = s->events_n;
}

static void read_events(struct snapshot *s)
{
    const struct import_value *traces = import_member(s->root, "device_traces");
    struct cursor devices[DEVICES];
    size_t n = import_count(traces) < DEVICES ? import_count(traces) : DEVICES;
    s->timed = true;
    for (size_t d = 0; d < n; d++) {
        const struct import_value *trace = import_item(traces, d);
        devices[d].at = s->events_n;
        for (size_t i = 0; i < import_count(trace); i++) read_event(s, import_item(trace, i), (uint8_t)d);
        devices[d].end = s->events_n;
    }
    if (s->timed && n > 1) merge_devices(s, devices, n);
    s->start_us = s->timed && s->events_n ? s->events[0].time_us : 0;
}

/* From the end to the beginning: the sets become what was there before the first event, and events of blocks that are
 * there at the end get the block's size. */
static void undo(struct snapshot *s, struct event *e)
{
    struct held h = {
        .address = e->address, .bytes = e->bytes, .requested = e->requested, .stream = e->stream, .device = e->device};
    struct held *there = NULL;
    switch ((enum action)e->action) {
    case ALLOC:
        there = find(&s->blocks, e->address);
        if (there && there->device == e->device) {
            e->bytes = there->bytes;
            there->bytes = 0;
        } else {
            s->unmatched++;
            e->bytes = 0;
        }
        break;
    case FREE:
        e->bytes = h.bytes = rounded(e->bytes);
        hold(&s->blocks, &h);
        break;
    case SEGMENT_ALLOC:
        there = find(&s->held, e->address);
        if (there && there->device == e->device) {
            there->bytes = 0;
        } else {
            s->unmatched++;
            e->bytes = 0;
        }
        break;
    case SEGMENT_FREE: hold(&s->held, &h); break;
    case SEGMENT_MAP: hold_pages(s, h, false); break;
    case SEGMENT_UNMAP: hold_pages(s, h, true); break;
    default: break;
    }
}

/* --- writing ----------------------------------------------------------------------------------- */

static bool is_python(const char *file)
{
    size_t n = file ? strlen(file) : 0;
    return n && (file[0] == '<' || (n > 3 && strcmp(file + n - 3, ".py") == 0) ||
                 (n > 4 && (strcmp(file + n - 4, ".pyx") == 0 || strcmp(file + n - 4, ".pyc") == 0)));
}

static uint32_t stack_of(struct snapshot *s, const struct import_value *frames)
{
    struct import_frame list[IMPORT_DEPTH];
    size_t n = import_count(frames), kept = 0;
    if (!n) return 0;
    uint32_t *stack = map_at(&s->stacks, (uintptr_t)frames->list);
    if (*stack != MAP_NEW) return *stack;
    for (size_t i = 0; i < n && kept < IMPORT_DEPTH; i++) {
        const struct import_value *frame = import_item(frames, i);
        const char *file = import_text(import_member(frame, "filename"));
        int64_t line = import_integer(import_member(frame, "line"), 0);
        list[kept++] = (struct import_frame){.file = file && strcmp(file, "??") != 0 ? file : NULL,
                                             .function = import_text(import_member(frame, "name")),
                                             .line = line > 0 && line <= INT32_MAX ? (int)line : 0,
                                             .python = is_python(file)};
    }
    *stack = import_feed_stack(s->feed, list, kept);
    return *stack;
}

static void write_tensor(struct snapshot *s, struct import_event *e, bool freed)
{
    struct totals *now = &s->now[e->device];
    if (e->bytes <= 0) return;
    now->allocated += freed ? -e->bytes : e->bytes;
    e->allocated = now->allocated;
    e->reserved = now->reserved;
    import_feed_tensor(s->feed, e, freed);
}

static void write_segment(struct snapshot *s, struct import_event *e, bool freed, int64_t page)
{
    if (e->bytes <= 0) return;
    s->now[e->device].reserved += freed ? -e->bytes : e->bytes;
    import_feed_segment(s->feed, e, freed, page);
}

static void write_held(struct snapshot *s, const struct set *set, bool tensors)
{
    for (size_t i = 0; i < set->n; i++) {
        const struct held *h = &set->list[i];
        if (!h->bytes) continue;
        struct import_event e = {.device = h->device,
                                 .address = h->address,
                                 .bytes = h->bytes,
                                 .requested = h->requested,
                                 .stream = h->stream,
                                 .stack = stack_of(s, h->frames)};
        if (tensors) {
            write_tensor(s, &e, false);
        } else {
            write_segment(s, &e, false, h->mapped ? h->bytes : 0);
        }
    }
}

static int64_t time_of(const struct snapshot *s, size_t i, int64_t last)
{
    int64_t us = s->timed ? s->events[i].time_us - s->start_us : (int64_t)i;
    us = us < 0 ? 0 : us > INT64_MAX / 2000 ? INT64_MAX / 2000 : us;
    int64_t ns = us * 1000 + BEFORE_NS;
    return ns > last ? ns : last;
}

static void write_event(struct snapshot *s, const struct event *from, int64_t ns)
{
    struct import_event e = {.time_ns = ns,
                             .device = from->device,
                             .stack = stack_of(s, from->frames),
                             .address = from->address,
                             .stream = from->stream,
                             .bytes = from->bytes,
                             .requested = from->requested,
                             .allocated = s->now[from->device].allocated,
                             .reserved = s->now[from->device].reserved};
    switch ((enum action)from->action) {
    case ALLOC:
    case FREE: write_tensor(s, &e, from->action == FREE); break;
    case SEGMENT_ALLOC:
    case SEGMENT_FREE: write_segment(s, &e, from->action == SEGMENT_FREE, 0); break;
    case SEGMENT_MAP:
    case SEGMENT_UNMAP: write_segment(s, &e, from->action == SEGMENT_UNMAP, page_of(e.bytes)); break;
    case OOM: import_feed_failure(s->feed, &e, from->free_bytes); break;
    default: break;
    }
}

static void write_settings(struct snapshot *s)
{
    static const char name[] = "PYTORCH_CUDA_ALLOC_CONF";
    const char *value = import_text(import_member(import_member(s->root, "allocator_settings"), name));
    if (value && *value) import_feed_setting(s->feed, name, value);
}

static void write_notes(struct snapshot *s, bool history)
{
    import_feed_note(s->feed, "lacks", "waits copies%s%s", history ? "" : " history",
                     history && s->timed ? "" : " times");
    if (s->unmatched) import_feed_note(s->feed, "unmatched", "%llu", (unsigned long long)s->unmatched);
    if (s->said != s->summed) {
        import_feed_note(s->feed, "said", "%lld", (long long)s->said);
        import_feed_note(s->feed, "summed", "%lld", (long long)s->summed);
    }
}

static void write_all(struct snapshot *s)
{
    int64_t ns = 0;
    for (size_t i = s->events_n; i-- > 0;) undo(s, &s->events[i]);
    write_settings(s);
    write_held(s, &s->held, false);
    write_held(s, &s->blocks, true);
    for (size_t i = 0; i < s->events_n; i++) {
        ns = time_of(s, i, ns);
        write_event(s, &s->events[i], ns);
    }
    write_notes(s, s->events_n > 0);
}

static void release(struct snapshot *s)
{
    free(s->events);
    free(s->blocks.list);
    free(s->held.list);
    map_free(&s->blocks.index);
    map_free(&s->held.index);
    map_free(&s->stacks);
    free(s);
}

static bool are_segments(const struct import_value *list)
{
    bool all = list && list->type == IMPORT_LIST;
    for (size_t i = 0; all && i < import_count(list); i++) {
        all = import_member(import_item(list, i), "total_size");
    }
    return all;
}

bool import_snapshot(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                     size_t error_size)
{
    const char *slash = strrchr(path, '/');
    struct import_pickle *p = import_unpickle(path, progress, self, error, error_size);
    if (!p) return false;
    struct snapshot *s = arena_realloc(NULL, 1, sizeof *s);
    memset(s, 0, sizeof *s);
    s->root = import_unpickled(p);
    s->segments = s->root->type == IMPORT_LIST ? s->root : import_member(s->root, "segments");
    bool ok = are_segments(s->segments);
    if (!ok) {
        snprintf(error, error_size, "it is a pickle, but no snapshot of torch.cuda.memory: it has no list of segments");
    } else {
        read_segments(s);
        read_events(s);
        struct import_source source = {.format = "PyTorch snapshot",
                                       .file = slash ? slash + 1 : path,
                                       .start_real_ns = s->start_us > 0 ? (uint64_t)s->start_us * 1000 : 0};
        s->feed = import_feed_start(to, &source, error, error_size);
        ok = s->feed != NULL;
        if (ok) {
            write_all(s);
            ok = import_feed_end(s->feed, error, error_size);
        }
    }
    release(s);
    import_unpickle_free(p);
    return ok;
}
