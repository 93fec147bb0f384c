#include "analyzer/page/page_map.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/question/signature.h"
#include "analyzer/base/units.h"
#include "analyzer/base/sort.h"

enum {
    MAPS = 48,            /* in all */
    FAILURES = 4,         /* per process */
    BLOCKS = 100000,      /* in all maps together … */
    BLOCKS_MOST = 20000,  /* … and of one */
    SEGMENTS_MOST = 6000, /* of one */
    TIMED = 1000,         /* the times of this many of the largest blocks of one map are written */
    GRAIN = 2 << 20,      /* PyTorch's segments are multiples of it */
    SMALL_SEGMENT = 2 << 20,
};

struct block {
    uint64_t address, stream;
    int64_t bytes;
    uint32_t stack, merged; /* merged: number of neighbours that were combined with it */
    uint8_t category;
    bool pending, private;
    int64_t alloc_ns, free_ns; /* RUN_NEVER; alloc_ns RUN_UNKNOWN */
};

enum owner { UNKNOWN, TORCH, DIRECT }; /* DIRECT: allocated outside of PyTorch's allocator */
struct segment {
    uint64_t address, stream;
    int64_t bytes;
    uint32_t stack;
    uint8_t category; /* of DIRECT */
    bool mapped, private, stream_known;
    enum owner owner;
    size_t first, n; /* blocks */
    int64_t alloc_ns, free_ns;
};

struct address_map {
    uint32_t process;
    int device;
    bool oom, tensors;
    size_t index; /* of the report's peak or oom */
    int64_t time_ns;
    ARENA_LIST(struct block, blocks);
    ARENA_LIST(struct segment, segments);
    /* blocks that are missing in the map */
    uint64_t refused, merged, left_out;
    int64_t left_out_bytes;
};

struct page_maps {
    struct run *run;
    const struct result_report *report;
    struct page_kinds *kinds;
    struct arena arena;
    struct question_signer *signer;
    struct address_map *maps; /* by process, then time */
    size_t n, cap;
    struct address_map *of_process; /* the first one of the process that is being read */
};

static void map_add(struct page_maps *m, uint32_t process, int device, bool oom, size_t index, int64_t time_ns,
                    bool tensors)
{
    if (m->n < MAPS) {
        ARENA_APPEND_TO(m->maps, m->n, m->cap, .process = process, .device = device, .oom = oom, .index = index,
                        .time_ns = time_ns, .tensors = tensors);
    }
}

static bool map_has_tensors(const struct result_report *r, uint32_t process, int device)
{
    return ANY_IN(p, r->peaks,
                  p->process == process && p->device == device && p->layer == RUN_SERIES_TENSOR && p->bytes > 0);
}

SORT_ORDER(map_order, struct address_map,
           SORT_UP(x->process, y->process) ?: SORT_UP(x->time_ns, y->time_ns) ?: SORT_UP(x->oom, y->oom)
               ?: SORT_UP(x->device, y->device))

static void list_maps(struct page_maps *m)
{
    const struct result_report *r = m->report;
    size_t failures = 0;
    for (size_t i = 0; i < r->ooms_n; i++) {
        const struct result_oom_verdict *v = &r->ooms[i];
        failures = i && r->ooms[i - 1].process == v->process ? failures : 0;
        if (v->fatal && v->device >= 0 && v->space != GS_SPACE_PINNED && failures < FAILURES) {
            failures++;
            map_add(m, v->process, v->device, true, i, v->time_ns, map_has_tensors(r, v->process, v->device));
        }
    }
    for (size_t i = 0; i < r->peaks_n; i++) {
        const struct result_peak *p = &r->peaks[i];
        bool tensors = map_has_tensors(r, p->process, p->device);
        if (p->device >= 0 && p->bytes > 0 && p->layer == (tensors ? RUN_SERIES_TENSOR : RUN_SERIES_DEVICE))
            map_add(m, p->process, p->device, false, i, p->time_ns, tensors);
    }
    SORT(m->maps, m->n, map_order);
}

static void blocks_on_live(void *self, size_t moment, const struct run_lifetime *life, uint32_t free_stack)
{
    struct page_maps *m = self;
    struct address_map *map = &m->of_process[moment];
    bool tensor = life->layer == GS_LAYER_TENSOR;
    if (life->device != map->device || !life->bytes || (!tensor && !run_has_device_address(life))) return;
    uint8_t category = (uint8_t)page_kind(m->kinds, life, run_series(m->run, life->series), free_stack);
    if (tensor) {
        ARENA_APPEND(map->blocks, .address = life->address, .stream = life->stream, .bytes = life->bytes,
                     .stack = life->stack, .category = category, .private = life->space == GS_SPACE_POOL,
                     .alloc_ns = life->alloc_ns, .free_ns = life->free_ns);
    } else {
        ARENA_APPEND(map->segments, .address = life->address, .bytes = life->bytes, .stack = life->stack,
                     .category = category, .alloc_ns = life->alloc_ns, .free_ns = life->free_ns);
    }
}

static void blocks_on_pending(void *self, size_t moment, const struct run_pending *p)
{
    struct address_map *map = self;
    if (p->device == map->device && p->known == RUN_YES && p->bytes > 0) {
        ARENA_APPEND(map->blocks, .address = p->address, .stream = p->stream, .bytes = p->bytes, .stack = RUN_NONE,
                     .category = RESULT_CATEGORY_UNKNOWN, .pending = true, .alloc_ns = RUN_UNKNOWN,
                     .private = p->captured);
    }
}

static void add_mapped(struct page_maps *m, struct address_map *map)
{
    size_t n;
    const struct run_mapping *all = run_mappings(m->run, &n);
    for (size_t i = 0; i < n; i++) {
        if (all[i].process == map->process && all[i].device == map->device && all[i].bytes > 0 &&
            all[i].map_ns <= map->time_ns && all[i].unmap_ns > map->time_ns) {
            ARENA_APPEND(map->segments, .address = all[i].address, .bytes = all[i].bytes, .stack = all[i].stack,
                         .category = RESULT_CATEGORY_UNKNOWN, .mapped = true);
        }
    }
}

SORT_ORDER(order_map_segments, struct segment, SORT_UP(x->address, y->address) ?: SORT_DOWN(x->bytes, y->bytes))

SORT_ORDER(order_segment_blocks, struct block, SORT_UP(x->address, y->address) ?: SORT_UP(x->pending, y->pending))

/* Does [address, address + bytes) end at or before `end`? */
static bool is_range_within(uint64_t address, int64_t bytes, uint64_t end)
{
    return address <= end && (uint64_t)bytes <= end - address;
}

static uint64_t range_end(uint64_t address, int64_t bytes)
{
    return is_range_within(address, bytes, UINT64_MAX) ? address + (uint64_t)bytes : UINT64_MAX;
}

/* Adjacent mappings are one segment; those that overlap another (a damaged file) are left out. */
static void join_segments(struct address_map *map)
{
    size_t kept = 0;
    for (size_t i = 0; i < map->segments_n; i++) {
        struct segment *s = &map->segments[i], *last = kept ? &map->segments[kept - 1] : NULL;
        uint64_t end = last ? range_end(last->address, last->bytes) : 0;
        if (last && s->address < end)
            map->refused++;
        else if (last && s->mapped && last->mapped && s->address == end && last->bytes <= INT64_MAX - s->bytes)
            last->bytes += s->bytes;
        else
            map->segments[kept++] = *s;
    }
    map->segments_n = kept;
}

/* A block in no known segment becomes its own segment. */
static void add_strays(struct address_map *map)
{
    size_t known = map->segments_n, at = 0;
    uint64_t taken = 0;
    EACH_IN (b, map->blocks) {
        while (at < known && range_end(map->segments[at].address, map->segments[at].bytes) <= b->address) at++;
        bool free_room = at == known || is_range_within(b->address, b->bytes, map->segments[at].address);
        if (free_room && b->address >= taken) {
            *ARENA_ADD(map->segments) = (struct segment){.address = b->address, .bytes = b->bytes, .stack = RUN_NONE};
            taken = range_end(b->address, b->bytes);
        }
    }
    if (map->segments_n > known) SORT(map->segments, map->segments_n, order_map_segments);
}

static void own_block(struct segment *s, const struct block *b)
{
    bool known = b->stream != UINT64_MAX;
    if (s->owner != TORCH) {
        s->stream = b->stream;
        s->stream_known = known;
    } else if (!known || s->stream != b->stream) {
        s->stream_known = false;
    }
    s->owner = TORCH;
    s->private = s->private || b->private;
}

/* Assigns the blocks to their segments. Of blocks that overlap, or extend beyond the segment, the first stays. */
static void share_out_blocks(struct address_map *map)
{
    size_t at = 0, kept = 0;
    EACH_IN (s, map->segments) {
        uint64_t from = s->address, end = range_end(s->address, s->bytes);
        s->first = kept;
        for (; at < map->blocks_n && map->blocks[at].address < end; at++) {
            struct block b = map->blocks[at];
            if (b.address >= from && is_range_within(b.address, b.bytes, end)) {
                from = b.address + (uint64_t)b.bytes;
                own_block(s, &b);
                map->blocks[kept++] = b;
            }
        }
        s->n = kept - s->first;
    }
    map->refused += map->blocks_n - kept;
    map->blocks_n = kept;
}

static bool has_native(const struct run *run, uint32_t stack)
{
    const struct run_frame *f = run_stack_frame(run, stack);
    return f && f->kind == GS_FRAME_NATIVE;
}

/* A segment without blocks is cached by PyTorch if its allocator made it, else the program's own. */
static void classify_empty(struct page_maps *m, const struct address_map *map, struct segment *s)
{
    if (s->n) return;
    if (!map->tensors || s->bytes % GRAIN)
        s->owner = DIRECT;
    else if (s->stack != RUN_NONE && question_sign_is_allocator(m->signer, s->stack))
        s->owner = TORCH;
    else if (s->stack != RUN_NONE && has_native(m->run, s->stack))
        s->owner = DIRECT;
}

static bool do_blocks_touch(const struct block *a, const struct block *b)
{
    return a->address + (uint64_t)a->bytes == b->address && a->pending == b->pending;
}

/* Merges neighbours without a hole between them if one is smaller than `size`; the result has the properties of the
 * larger one. */
static void merge_small(struct address_map *map, int64_t size)
{
    size_t kept = 0;
    EACH_IN (s, map->segments) {
        size_t first = kept;
        for (size_t k = s->first; k < s->first + s->n; k++) {
            struct block *b = &map->blocks[k], *last = kept > first ? &map->blocks[kept - 1] : NULL;
            if (last && do_blocks_touch(last, b) && (b->bytes < size || last->bytes < size)) {
                struct block larger = b->bytes > last->bytes ? *b : *last;
                last->stack = larger.stack;
                last->category = larger.category;
                last->bytes += b->bytes;
                last->merged += b->merged + 1;
                map->merged++;
            } else {
                map->blocks[kept++] = *b;
            }
        }
        s->first = first;
        s->n = kept - first;
    }
    map->blocks_n = kept;
}

SORT_ORDER(larger_segment, struct segment, SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->address, y->address))

/* The largest segments for whose blocks there is room. */
static void keep_large(struct address_map *map, size_t room)
{
    size_t blocks = 0, kept = 0;
    SORT(map->segments, map->segments_n, larger_segment);
    for (size_t i = 0; i < map->segments_n; i++) {
        struct segment s = map->segments[i];
        if (kept < SEGMENTS_MOST && kept < room && blocks + s.n <= room) {
            blocks += s.n;
            map->segments[kept++] = s;
        } else {
            map->left_out++;
            map->left_out_bytes = arena_add_capped(map->left_out_bytes, s.bytes);
        }
    }
    map->segments_n = kept;
    SORT(map->segments, kept, order_map_segments);
}

static void make_fit(const struct page_maps *m, struct address_map *map)
{
    size_t room = BLOCKS / m->n < BLOCKS_MOST ? BLOCKS / m->n : BLOCKS_MOST;
    for (int64_t size = 1024; map->blocks_n > room && size <= GRAIN / 2; size *= 2) merge_small(map, size);
    if (map->blocks_n > room || map->segments_n > room || map->segments_n > SEGMENTS_MOST) keep_large(map, room);
}

/* After its blocks and segments have been read. */
static void complete_map(struct page_maps *m, struct address_map *map)
{
    add_mapped(m, map);
    allocator_each_pending_at(m->run, map->process, &map->time_ns, 1, blocks_on_pending, map);
    SORT(map->blocks, map->blocks_n, order_segment_blocks);
    SORT(map->segments, map->segments_n, order_map_segments);
    join_segments(map);
    add_strays(map);
    share_out_blocks(map);
    for (size_t i = 0; i < map->segments_n; i++) classify_empty(m, map, &map->segments[i]);
    make_fit(m, map);
}

bool page_maps_read(struct page_maps *m, char *error, size_t error_size)
{
    int64_t moments[MAPS];
    for (size_t first = 0, n = 0; first < m->n; first += n) {
        m->of_process = &m->maps[first];
        for (n = 0; first + n < m->n && m->of_process[n].process == m->of_process->process; n++)
            moments[n] = m->of_process[n].time_ns;
        page_kinds_process(m->kinds, m->of_process->process);
        if (!run_each_live_at(m->run, m->of_process->process, moments, n, blocks_on_live, m, error, error_size))
            return false;
        for (size_t i = 0; i < n; i++) complete_map(m, &m->of_process[i]);
    }
    return true;
}

struct page_maps *page_maps_new(struct run *run, const struct result_report *report, struct page_kinds *kinds)
{
    struct page_maps *m = ARENA_NEW(struct page_maps, .run = run, .report = report, .kinds = kinds);
    m->signer = question_signer_new(run, &m->arena);
    list_maps(m);
    return m;
}

void page_maps_free(struct page_maps *m)
{
    for (size_t i = 0; i < m->n; i++) ARENA_RELEASE(m->maps[i].blocks, m->maps[i].segments);
    question_signer_free(m->signer);
    arena_free(&m->arena);
    ARENA_RELEASE(m->maps, m);
}

static uint32_t segment_pool_of(const struct segment *s, struct page_stacks *stacks)
{
    const char *pool = s->owner != TORCH           ? NULL
                       : s->mapped                 ? "expandable"
                       : s->bytes <= SMALL_SEGMENT ? "small"
                                                   : "large";
    return page_string(stacks, pool);
}

/* flags: the owner (two bits); private; expandable; the stream is known. */
static bool is_own_block(const struct segment *s)
{
    return !s->n && s->owner == DIRECT;
}

static void put_segments(const struct address_map *map, struct page_stacks *stacks, struct page_writer *w)
{
    struct page_column address = {0}, bytes = {0}, flags = {0}, pool = {0}, stream = {0}, stack = {0}, blocks = {0};
    EACH_IN (s, map->segments) {
        bool streamed = s->n && s->stream_known;
        page_column_step(&address, (int64_t)s->address);
        page_column_add(&bytes, s->bytes);
        page_column_add(&flags, (int64_t)s->owner | s->private << 2 | s->mapped << 3 | streamed << 4);
        page_column_add(&pool, segment_pool_of(s, stacks));
        page_column_add(&stream, streamed ? (int64_t)s->stream : 0);
        page_column_add(&stack, page_stack(stacks, s->stack));
        page_column_add(&blocks, is_own_block(s) ? 1 : (int64_t)s->n);
    }
    page_put_open(w, "segments", '{');
    PAGE_PUT_COLUMNS(w, address, bytes, flags, pool, stream, stack, blocks);
    page_put_close(w, '}');
}

static void put_note(const struct address_map *map, struct page_writer *w)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = arena_stream(&text, &n);
    if (map->merged)
        fprintf(f, "%llu small blocks are drawn as part of a neighbour. ", (unsigned long long)map->merged);
    if (map->left_out) {
        fprintf(f, "The %llu smallest segments, %s in total, are not drawn. ", (unsigned long long)map->left_out,
                UNITS_BYTES((uint64_t)map->left_out_bytes));
    }
    if (map->refused) {
        fprintf(f,
                "%llu blocks or segments overlap others and are left out: the recording is "
                "incomplete or damaged. ",
                (unsigned long long)map->refused);
    }
    fclose(f);
    if (n) text[n - 1] = 0;
    page_put_text(w, "note", n ? text : NULL);
    free(text);
}

/* The size from which on blocks have times. */
static int64_t timed_from(const struct address_map *map)
{
    size_t n = 0;
    int64_t *sizes = arena_realloc(NULL, map->blocks_n + map->segments_n + 1, sizeof *sizes), from = 0;
    EACH_IN (s, map->segments) {
        for (size_t k = s->first; k < s->first + s->n; k++) sizes[n++] = map->blocks[k].bytes;
        if (is_own_block(s)) sizes[n++] = s->bytes;
    }
    if (n > TIMED) {
        SORT(sizes, n, sort_int64_down);
        from = sizes[TIMED - 1];
    }
    free(sizes);
    return from;
}

/* For a large block: its number, when it was allocated, and how long it lived, in us; -1: to the end. */
static void put_time(struct page_column *c, int64_t number, int64_t *last, int64_t alloc_ns, int64_t free_ns)
{
    if (alloc_ns == RUN_UNKNOWN || alloc_ns < 0) return;
    page_column_add(c, number - *last);
    page_column_add(c, alloc_ns / 1000);
    page_column_add(c, free_ns == RUN_NEVER ? -1 : (free_ns - alloc_ns) / 1000);
    *last = number;
}

static void put_times(const struct address_map *map, struct page_writer *w)
{
    struct page_column c = {0};
    const int64_t from = timed_from(map);
    int64_t number = 0, last = 0;
    size_t left = TIMED;
    for (size_t i = 0; i < map->segments_n && left; i++) {
        const struct segment *s = &map->segments[i];
        for (size_t k = s->first; k < s->first + s->n && left; k++, number++) {
            const struct block *b = &map->blocks[k];
            if (b->bytes < from || b->merged) continue;
            put_time(&c, number, &last, b->alloc_ns, b->free_ns);
            left--;
        }
        if (!is_own_block(s)) continue;
        if (s->bytes >= from && left) {
            put_time(&c, number, &last, s->alloc_ns, s->free_ns);
            left--;
        }
        number++;
    }
    page_put_column(w, "times", &c);
}

static void put_blocks(const struct address_map *map, int64_t unit, struct page_stacks *stacks, struct page_writer *w)
{
    struct page_column c = {0};
    EACH_IN (s, map->segments) {
        uint64_t from = s->address;
        for (size_t k = s->first; k < s->first + s->n; k++) {
            const struct block *b = &map->blocks[k];
            page_column_add(&c, (int64_t)(b->address - from) / unit);
            page_column_add(&c, b->bytes / unit);
            page_column_add(&c, page_stack(stacks, b->stack));
            page_column_add(&c, b->category << 1 | b->pending);
            page_column_add(&c, b->merged);
            from = b->address + (uint64_t)b->bytes;
        }
        if (is_own_block(s)) {
            page_column_add(&c, 0);
            page_column_add(&c, s->bytes / unit);
            page_column_add(&c, page_stack(stacks, s->stack));
            page_column_add(&c, s->category << 1);
            page_column_add(&c, 0);
        }
    }
    page_put_column(w, "blocks", &c);
}

static int64_t map_unit_of(const struct address_map *map)
{
    uint64_t unit = 0;
    EACH_IN (s, map->segments) {
        for (size_t k = s->first; k < s->first + s->n; k++) {
            unit = page_column_unit(unit, map->blocks[k].bytes);
            unit = page_column_unit(unit, (int64_t)(map->blocks[k].address - s->address));
        }
        unit = s->n ? unit : page_column_unit(unit, s->bytes);
    }
    return unit ? (int64_t)unit : 1;
}

void page_maps_put(struct page_maps *m, struct page_stacks *stacks, struct page_writer *w)
{
    page_put_open(w, "maps", '[');
    EACH (map, m->maps, m->n) {
        int64_t unit = map_unit_of(map);
        if (!map->segments_n) continue;
        page_put_open(w, NULL, '{');
        page_put_int(w, "process", map->process);
        page_put_int(w, "device", map->device);
        page_put_text(w, "at", map->oom ? "oom" : "peak");
        page_put_int(w, "index", (int64_t)map->index);
        page_put_real(w, "time", (double)map->time_ns / 1e9);
        page_put_bool(w, "tensors", map->tensors);
        put_note(map, w);
        page_put_int(w, "unit", unit);
        put_segments(map, stacks, w);
        put_blocks(map, unit, stacks, w);
        put_times(map, w);
        page_put_close(w, '}');
    }
    page_put_close(w, ']');
}
