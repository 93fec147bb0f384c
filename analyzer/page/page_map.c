#include "analyzer/page/page_map.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/question/signature.h"
#include "analyzer/base/units.h"

enum {
    MAPS = 48,            /* in all */
    FAILURES = 4,         /* of a process */
    BLOCKS = 100000,      /* in all maps together … */
    BLOCKS_MOST = 20000,  /* … and of one */
    SEGMENTS_MOST = 6000, /* of one */
    GRAIN = 2 << 20,      /* PyTorch's segments are multiples of it */
    SMALL_SEGMENT = 2 << 20,
};

struct block {
    uint64_t address, stream;
    int64_t bytes;
    uint32_t stack, merged; /* merged: with so many neighbours into one */
    uint8_t category;
    bool pending, private;
};

enum owner { UNKNOWN, TORCH, DIRECT }; /* DIRECT: taken past PyTorch's allocator */
struct segment {
    uint64_t address, stream;
    int64_t bytes;
    uint32_t stack;
    uint8_t category; /* of DIRECT */
    bool mapped, private, stream_known;
    enum owner owner;
    size_t first, n; /* blocks */
};

struct map {
    uint32_t process;
    int device;
    bool oom, done, tensors;
    size_t index; /* of the report's peak or oom */
    int64_t time_ns;
    struct block *blocks;
    size_t blocks_n, blocks_cap;
    struct segment *segments;
    size_t segments_n, segments_cap;
    /* what does not stand in it */
    uint64_t refused, merged, left_out;
    int64_t left_out_bytes;
};

struct gs_page_maps {
    struct gs_run *run;
    const struct gs_report *report;
    struct gs_page_kinds *kinds;
    struct gs_arena arena;
    struct gs_signer *signer;
    struct map *maps;  /* by process, then time */
    size_t n, cap, at; /* at: the next one of the process */
    uint32_t process;
    int64_t next_ns; /* its moment, GS_NEVER */
    struct map *filling;
};

/* --- which moments ------------------------------------------------------------------------------ */

static void map_add(struct gs_page_maps *m, uint32_t process, int device, bool oom, size_t index, int64_t time_ns,
                    bool tensors)
{
    if (m->n < MAPS) {
        *GS_PUSH(m->maps, m->n, m->cap) = (struct map){
            .process = process, .device = device, .oom = oom, .index = index, .time_ns = time_ns, .tensors = tensors};
    }
}

static bool has_tensors(const struct gs_report *r, uint32_t process, int device)
{
    for (size_t i = 0; i < r->peaks_n; i++) {
        const struct gs_peak *p = &r->peaks[i];
        if (p->process == process && p->device == device && p->layer == GS_SERIES_TENSOR && p->bytes > 0) {
            return true;
        }
    }
    return false;
}

static int map_order(const void *a, const void *b)
{
    const struct map *x = a, *y = b;
    return x->process != y->process   ? (x->process < y->process ? -1 : 1)
           : x->time_ns != y->time_ns ? (x->time_ns < y->time_ns ? -1 : 1)
           : x->oom != y->oom         ? (int)x->oom - (int)y->oom
                                      : x->device - y->device;
}

static void list_maps(struct gs_page_maps *m)
{
    const struct gs_report *r = m->report;
    size_t failures = 0;
    for (size_t i = 0; i < r->ooms_n; i++) {
        const struct gs_oom_verdict *v = &r->ooms[i];
        failures = i && r->ooms[i - 1].process == v->process ? failures : 0;
        if (v->fatal && v->device >= 0 && v->space != GS_SPACE_PINNED && failures < FAILURES) {
            failures++;
            map_add(m, v->process, v->device, true, i, v->time_ns, has_tensors(r, v->process, v->device));
        }
    }
    for (size_t i = 0; i < r->peaks_n; i++) {
        const struct gs_peak *p = &r->peaks[i];
        bool tensors = has_tensors(r, p->process, p->device);
        if (p->device >= 0 && p->bytes > 0 && p->layer == (tensors ? GS_SERIES_TENSOR : GS_SERIES_DEVICE)) {
            map_add(m, p->process, p->device, false, i, p->time_ns, tensors);
        }
    }
    if (m->n > 1) {
        qsort(m->maps, m->n, sizeof *m->maps, map_order);
    }
}

/* --- what is live ------------------------------------------------------------------------------- */

static bool in_device(const struct gs_lifetime *life)
{
    return life->layer == GS_LAYER_DEVICE && life->space != GS_SPACE_PINNED && life->space != GS_SPACE_HOST &&
           life->space != GS_SPACE_SHARED && life->space != GS_SPACE_VMM;
}

static void on_live(void *self, const struct gs_lifetime *life)
{
    struct gs_page_maps *m = self;
    struct map *map = m->filling;
    bool tensor = life->layer == GS_LAYER_TENSOR;
    if (life->device != map->device || life->alloc_ns > map->time_ns || life->free_ns <= map->time_ns || !life->bytes ||
        (!tensor && !in_device(life))) {
        return;
    }
    uint8_t category =
        (uint8_t)gs_page_kind(m->kinds, life, gs_run_series(m->run, life->series), gs_run_free_stack(m->run, life));
    if (tensor) {
        *GS_PUSH(map->blocks, map->blocks_n, map->blocks_cap) = (struct block){.address = life->address,
                                                                               .stream = life->stream,
                                                                               .bytes = life->bytes,
                                                                               .stack = life->stack,
                                                                               .category = category,
                                                                               .private = life->space == GS_SPACE_POOL};
    } else {
        *GS_PUSH(map->segments, map->segments_n, map->segments_cap) = (struct segment){
            .address = life->address, .bytes = life->bytes, .stack = life->stack, .category = category};
    }
}

static void on_pending(void *self, size_t moment, const struct gs_pending *p)
{
    struct map *map = self;
    (void)moment;
    if (p->device == map->device && p->known == GS_YES && p->bytes > 0) {
        *GS_PUSH(map->blocks, map->blocks_n, map->blocks_cap) = (struct block){.address = p->address,
                                                                               .stream = p->stream,
                                                                               .bytes = p->bytes,
                                                                               .stack = GS_NONE,
                                                                               .category = GS_CATEGORY_UNKNOWN,
                                                                               .pending = true,
                                                                               .private = p->captured};
    }
}

static void add_mapped(struct gs_page_maps *m, struct map *map)
{
    size_t n;
    const struct gs_mapping *all = gs_run_mappings(m->run, &n);
    for (size_t i = 0; i < n; i++) {
        if (all[i].process == map->process && all[i].device == map->device && all[i].bytes > 0 &&
            all[i].map_ns <= map->time_ns && all[i].unmap_ns > map->time_ns) {
            *GS_PUSH(map->segments, map->segments_n, map->segments_cap) =
                (struct segment){.address = all[i].address,
                                 .bytes = all[i].bytes,
                                 .stack = all[i].stack,
                                 .category = GS_CATEGORY_UNKNOWN,
                                 .mapped = true};
        }
    }
}

/* --- placing ------------------------------------------------------------------------------------ */

static int segment_order(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;
    return x->address != y->address ? (x->address < y->address ? -1 : 1)
                                    : (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int block_order(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    return x->address != y->address ? (x->address < y->address ? -1 : 1) : (int)x->pending - (int)y->pending;
}

/* Does [address, address + bytes) end at or before `end`? */
static bool within(uint64_t address, int64_t bytes, uint64_t end)
{
    return address <= end && (uint64_t)bytes <= end - address;
}

static uint64_t end_of(uint64_t address, int64_t bytes)
{
    return within(address, bytes, UINT64_MAX) ? address + (uint64_t)bytes : UINT64_MAX;
}

/* What was mapped end to end is one segment; what lies across another (a damaged file) is left out. */
static void join_segments(struct map *map)
{
    size_t kept = 0;
    for (size_t i = 0; i < map->segments_n; i++) {
        struct segment *s = &map->segments[i], *last = kept ? &map->segments[kept - 1] : NULL;
        uint64_t end = last ? end_of(last->address, last->bytes) : 0;
        if (last && s->address < end) {
            map->refused++;
        } else if (last && s->mapped && last->mapped && s->address == end && last->bytes <= INT64_MAX - s->bytes) {
            last->bytes += s->bytes;
        } else {
            map->segments[kept++] = *s;
        }
    }
    map->segments_n = kept;
}

/* A block that lies in no segment that was seen is one of its own. */
static void add_strays(struct map *map)
{
    size_t known = map->segments_n, at = 0;
    uint64_t taken = 0;
    for (size_t i = 0; i < map->blocks_n; i++) {
        const struct block *b = &map->blocks[i];
        while (at < known && end_of(map->segments[at].address, map->segments[at].bytes) <= b->address) {
            at++;
        }
        bool free_room = at == known || within(b->address, b->bytes, map->segments[at].address);
        if (free_room && b->address >= taken) {
            *GS_PUSH(map->segments, map->segments_n, map->segments_cap) =
                (struct segment){.address = b->address, .bytes = b->bytes, .stack = GS_NONE};
            taken = end_of(b->address, b->bytes);
        }
    }
    if (map->segments_n > known) {
        qsort(map->segments, map->segments_n, sizeof *map->segments, segment_order);
    }
}

static void own(struct segment *s, const struct block *b)
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

/* Gives each segment its blocks. Of those that overlap, or reach out of it, the first stays. */
static void share_out(struct map *map)
{
    size_t at = 0, kept = 0;
    for (size_t i = 0; i < map->segments_n; i++) {
        struct segment *s = &map->segments[i];
        uint64_t from = s->address, end = end_of(s->address, s->bytes);
        s->first = kept;
        for (; at < map->blocks_n && map->blocks[at].address < end; at++) {
            struct block b = map->blocks[at];
            if (b.address >= from && within(b.address, b.bytes, end)) {
                from = b.address + (uint64_t)b.bytes;
                own(s, &b);
                map->blocks[kept++] = b;
            }
        }
        s->n = kept - s->first;
    }
    map->refused += map->blocks_n - kept;
    map->blocks_n = kept;
}

static bool has_native(const struct gs_run *run, uint32_t stack)
{
    const struct gs_frame *f = gs_stack_frame(run, stack);
    return f && f->kind == GS_FRAME_NATIVE;
}

/* A segment without blocks is PyTorch's and cached if its allocator took it, else the program's own. */
static void tell_empty(struct gs_page_maps *m, const struct map *map, struct segment *s)
{
    if (s->n) {
        return;
    }
    if (!map->tensors || s->bytes % GRAIN) {
        s->owner = DIRECT;
    } else if (s->stack != GS_NONE && gs_sign_allocator(m->signer, s->stack)) {
        s->owner = TORCH;
    } else if (s->stack != GS_NONE && has_native(m->run, s->stack)) {
        s->owner = DIRECT;
    }
}

/* --- making it fit ------------------------------------------------------------------------------ */

static bool touches(const struct block *a, const struct block *b)
{
    return a->address + (uint64_t)a->bytes == b->address && a->pending == b->pending;
}

/* Neighbours without a hole between them, of which one is smaller than `size`, become one: what the
 * larger one is. */
static void merge_small(struct map *map, int64_t size)
{
    size_t kept = 0;
    for (size_t i = 0; i < map->segments_n; i++) {
        struct segment *s = &map->segments[i];
        size_t first = kept;
        for (size_t k = s->first; k < s->first + s->n; k++) {
            struct block *b = &map->blocks[k], *last = kept > first ? &map->blocks[kept - 1] : NULL;
            if (last && touches(last, b) && (b->bytes < size || last->bytes < size)) {
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

static int larger_segment(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1)
                                : (x->address > y->address) - (x->address < y->address);
}

/* The largest segments whose blocks there is room for. */
static void keep_large(struct map *map, size_t room)
{
    size_t blocks = 0, kept = 0;
    if (map->segments_n > 1) {
        qsort(map->segments, map->segments_n, sizeof *map->segments, larger_segment);
    }
    for (size_t i = 0; i < map->segments_n; i++) {
        struct segment s = map->segments[i];
        if (kept < SEGMENTS_MOST && kept < room && blocks + s.n <= room) {
            blocks += s.n;
            map->segments[kept++] = s;
        } else {
            map->left_out++;
            map->left_out_bytes = gs_add(map->left_out_bytes, s.bytes);
        }
    }
    map->segments_n = kept;
    if (kept > 1) {
        qsort(map->segments, kept, sizeof *map->segments, segment_order);
    }
}

static void make_fit(const struct gs_page_maps *m, struct map *map)
{
    size_t room = BLOCKS / m->n < BLOCKS_MOST ? BLOCKS / m->n : BLOCKS_MOST;
    for (int64_t size = 1024; map->blocks_n > room && size <= GRAIN / 2; size *= 2) {
        merge_small(map, size);
    }
    if (map->blocks_n > room || map->segments_n > room || map->segments_n > SEGMENTS_MOST) {
        keep_large(map, room);
    }
}

/* --- in the replay ------------------------------------------------------------------------------ */

static void fill(struct gs_page_maps *m, struct map *map)
{
    m->filling = map;
    gs_run_live(m->run, on_live, m);
    add_mapped(m, map);
    gs_run_pending_at(m->run, map->process, &map->time_ns, 1, on_pending, map);
    if (map->blocks_n > 1) {
        qsort(map->blocks, map->blocks_n, sizeof *map->blocks, block_order);
    }
    if (map->segments_n > 1) {
        qsort(map->segments, map->segments_n, sizeof *map->segments, segment_order);
    }
    join_segments(map);
    add_strays(map);
    share_out(map);
    for (size_t i = 0; i < map->segments_n; i++) {
        tell_empty(m, map, &map->segments[i]);
    }
    make_fit(m, map);
    map->done = true;
}

static void next(struct gs_page_maps *m)
{
    const struct map *map = m->at < m->n ? &m->maps[m->at] : NULL;
    m->next_ns = map && map->process == m->process ? map->time_ns : GS_NEVER;
}

static inline void reach(struct gs_page_maps *m, int64_t ns)
{
    while (m->next_ns < ns) {
        fill(m, &m->maps[m->at++]);
        next(m);
    }
}

static void on_alloc(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    (void)series;
    reach(self, life->alloc_ns);
}

static void on_free(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    (void)series;
    reach(self, life->free_ns);
}

static void on_process_start(void *self, uint32_t process)
{
    struct gs_page_maps *m = self;
    m->process = process;
    while (m->at < m->n && m->maps[m->at].process < process) {
        m->at++;
    }
    next(m);
}

static void on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    (void)process;
    (void)end_ns;
    reach(self, GS_NEVER);
}

struct gs_observer gs_page_maps_watch(struct gs_page_maps *m)
{
    return (struct gs_observer){.self = m,
                                .process_start = on_process_start,
                                .alloc = on_alloc,
                                .free = on_free,
                                .process_end = on_process_end};
}

struct gs_page_maps *gs_page_maps_new(struct gs_run *run, const struct gs_report *report, struct gs_page_kinds *kinds)
{
    struct gs_page_maps *m = gs_realloc(NULL, 1, sizeof *m);
    *m = (struct gs_page_maps){.run = run, .report = report, .kinds = kinds, .next_ns = GS_NEVER};
    m->signer = gs_signer_new(run, &m->arena);
    list_maps(m);
    return m;
}

void gs_page_maps_free(struct gs_page_maps *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->maps[i].blocks);
        free(m->maps[i].segments);
    }
    gs_signer_free(m->signer);
    gs_arena_free(&m->arena);
    free(m->maps);
    free(m);
}

/* --- writing ------------------------------------------------------------------------------------ */

static uint32_t pool_of(const struct segment *s, struct gs_page_stacks *stacks)
{
    const char *pool = s->owner != TORCH           ? NULL
                       : s->mapped                 ? "expandable"
                       : s->bytes <= SMALL_SEGMENT ? "small"
                                                   : "large";
    return gs_page_string(stacks, pool);
}

/* flags: the owner, twice; private; expandable; the stream is known. */
static void put_segments(const struct map *map, struct gs_page_stacks *stacks, struct gs_page_writer *w)
{
    struct gs_column address = {0}, bytes = {0}, flags = {0}, pool = {0}, stream = {0}, stack = {0}, blocks = {0};
    for (size_t i = 0; i < map->segments_n; i++) {
        const struct segment *s = &map->segments[i];
        bool streamed = s->n && s->stream_known;
        gs_column_step(&address, (int64_t)s->address);
        gs_column_add(&bytes, s->bytes);
        gs_column_add(&flags, (int64_t)s->owner | s->private << 2 | s->mapped << 3 | streamed << 4);
        gs_column_add(&pool, pool_of(s, stacks));
        gs_column_add(&stream, streamed ? (int64_t)s->stream : 0);
        gs_column_add(&stack, gs_page_stack(stacks, s->stack));
        gs_column_add(&blocks, s->owner == DIRECT && !s->n ? 1 : (int64_t)s->n);
    }
    gs_put_open(w, "segments", '{');
    gs_put_column(w, "address", &address);
    gs_put_column(w, "bytes", &bytes);
    gs_put_column(w, "flags", &flags);
    gs_put_column(w, "pool", &pool);
    gs_put_column(w, "stream", &stream);
    gs_put_column(w, "stack", &stack);
    gs_put_column(w, "blocks", &blocks);
    gs_put_close(w, '}');
}

static void put_note(const struct map *map, struct gs_page_writer *w)
{
    char *text = NULL, bytes[UNITS_TEXT];
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (map->merged) {
        fprintf(f, "%llu small blocks are drawn as part of a neighbour. ", (unsigned long long)map->merged);
    }
    if (map->left_out) {
        fprintf(f, "The %llu smallest segments, %s in all, are not drawn. ", (unsigned long long)map->left_out,
                format_bytes(bytes, (uint64_t)map->left_out_bytes));
    }
    if (map->refused) {
        fprintf(f,
                "%llu blocks or segments lie across others and are left out: the recording is "
                "incomplete or damaged. ",
                (unsigned long long)map->refused);
    }
    fclose(f);
    if (n) {
        text[n - 1] = 0;
    }
    gs_put_text(w, "note", n ? text : NULL);
    free(text);
}

static void put_blocks(const struct map *map, int64_t unit, struct gs_page_stacks *stacks, struct gs_page_writer *w)
{
    struct gs_column c = {0};
    for (size_t i = 0; i < map->segments_n; i++) {
        const struct segment *s = &map->segments[i];
        uint64_t from = s->address;
        for (size_t k = s->first; k < s->first + s->n; k++) {
            const struct block *b = &map->blocks[k];
            gs_column_add(&c, (int64_t)(b->address - from) / unit);
            gs_column_add(&c, b->bytes / unit);
            gs_column_add(&c, gs_page_stack(stacks, b->stack));
            gs_column_add(&c, b->category << 1 | b->pending);
            gs_column_add(&c, b->merged);
            from = b->address + (uint64_t)b->bytes;
        }
        if (!s->n && s->owner == DIRECT) { /* it is its own block */
            gs_column_add(&c, 0);
            gs_column_add(&c, s->bytes / unit);
            gs_column_add(&c, gs_page_stack(stacks, s->stack));
            gs_column_add(&c, s->category << 1);
            gs_column_add(&c, 0);
        }
    }
    gs_put_column(w, "blocks", &c);
}

static uint64_t common(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t unit_of(const struct map *map)
{
    uint64_t unit = 0;
    for (size_t i = 0; i < map->segments_n; i++) {
        const struct segment *s = &map->segments[i];
        for (size_t k = s->first; k < s->first + s->n; k++) {
            unit = common(unit, (uint64_t)map->blocks[k].bytes);
            unit = common(unit, map->blocks[k].address - s->address);
        }
        unit = s->n ? unit : common(unit, (uint64_t)s->bytes);
    }
    return unit ? (int64_t)unit : 1;
}

void gs_page_maps_put(struct gs_page_maps *m, struct gs_page_stacks *stacks, struct gs_page_writer *w)
{
    gs_put_open(w, "maps", '[');
    for (size_t i = 0; i < m->n; i++) {
        const struct map *map = &m->maps[i];
        int64_t unit = unit_of(map);
        if (!map->done || !map->segments_n) {
            continue;
        }
        gs_put_open(w, NULL, '{');
        gs_put_int(w, "process", map->process);
        gs_put_int(w, "device", map->device);
        gs_put_text(w, "at", map->oom ? "oom" : "peak");
        gs_put_int(w, "index", (int64_t)map->index);
        gs_put_real(w, "time", (double)map->time_ns / 1e9);
        gs_put_bool(w, "tensors", map->tensors);
        put_note(map, w);
        gs_put_int(w, "unit", unit);
        put_segments(map, stacks, w);
        put_blocks(map, unit, stacks, w);
        gs_put_close(w, '}');
    }
    gs_put_close(w, ']');
}
