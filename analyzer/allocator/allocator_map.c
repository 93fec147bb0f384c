/* At the moments that matter: PyTorch's blocks placed in its segments. */
#include "analyzer/allocator/allocator_parts.h"
#include "analyzer/base/sort.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS = 512 };
enum { FAILURES = 8 }; /* per process, fatal ones first */

struct piece { /* a segment, or a piece of an expandable one */
    uint64_t address;
    int64_t bytes, active;
    struct allocator_affinity affinity;
    bool expandable;
};

struct block {
    uint64_t address;
    int64_t bytes;
    bool pending;
    struct allocator_affinity affinity;
};

struct moment {
    struct allocator_state state;
    ARENA_LIST(struct piece, pieces);
    ARENA_LIST(struct block, blocks);
    ARENA_LIST(struct block, pooled); /* in CUDA's pool: the backend cudaMallocAsync */
    bool unsure;                      /* something may be pending */
};

struct allocator_map_work {
    struct moment *moments;
    int64_t *times;
    size_t n, cap;
    ARENA_LIST(struct allocator_state, states); /* of all processes */
};

static void moment_add(struct allocator_map_work *w, uint32_t process, int device, enum allocator_moment_kind kind,
                       int64_t ns)
{
    ARENA_APPEND_TO(w->moments, w->n, w->cap,
                    .state = {.process = process, .device = device, .moment = kind, .time_ns = ns});
}

SORT_ORDER(order_moments_by_time, struct moment, SORT_UP(x->state.time_ns, y->state.time_ns))

/* A device counts if PyTorch reported blocks there, or allocated from CUDA's pool. */
static bool uses_pool(const struct site_builder *b, uint32_t process, int device)
{
    const struct run_torch_settings s = run_torch_settings(b->run, process);
    if (s.backend != RUN_BACKEND_ASYNC) return false;
    EACH_IN (p, b->report->peaks)
        if (p->process == process && p->device == device && p->layer == RUN_SERIES_TENSOR) return false;
    return RUN_COUNT(run_devices, b->run) > 0;
}

static void list_map_moments(struct site_builder *b, struct allocator_map_work *w, uint32_t process)
{
    size_t failures = 0;
    const int64_t end = run_process_at(b->run, process)->last_alloc_ns;
    EACH_IN (p, b->report->peaks) {
        const bool async =
            p->layer == RUN_SERIES_DEVICE && p->by_space[GS_SPACE_POOL] > 0 && uses_pool(b, process, p->device);
        if (p->process == process && p->device >= 0 && p->bytes > 0 && (p->layer == RUN_SERIES_TENSOR || async)) {
            moment_add(w, process, p->device, ALLOCATOR_MOMENT_PEAK, p->time_ns);
            moment_add(w, process, p->device, ALLOCATOR_MOMENT_END, end);
        }
    }
    for (size_t i = 0; i < b->report->ooms_n && failures < FAILURES && w->n; i++) {
        const struct result_oom_verdict *v = &b->report->ooms[i];
        if (v->process == process && v->device >= 0 && v->space != GS_SPACE_PINNED) {
            moment_add(w, process, v->device, ALLOCATOR_MOMENT_OOM, v->time_ns);
            failures++;
        }
    }
}

const int64_t *allocator_moments(struct site_builder *b, uint32_t process, size_t *n)
{
    struct allocator_replay *a = b->allocators;
    if (!a->map) {
        a->map = arena_realloc(NULL, 1, sizeof *a->map);
        *a->map = (struct allocator_map_work){0};
    }
    struct allocator_map_work *w = a->map;
    w->n = 0;
    a->streams_known = run_settings_are_known(b->run, process);
    list_map_moments(b, w, process);
    SORT(w->moments, w->n, order_moments_by_time);
    w->times = arena_realloc(w->times, w->n + 1, sizeof *w->times);
    for (size_t i = 0; i < w->n; i++) w->times[i] = w->moments[i].state.time_ns;
    *n = w->n;
    return w->n ? w->times : NULL;
}

static struct block map_block_of(const struct allocator_replay *a, uint64_t address, int64_t bytes, uint64_t stream,
                                 bool captured)
{
    return (struct block){
        .address = address, .bytes = bytes, .affinity = allocator_block_affinity(a, bytes, stream, captured)};
}

void allocator_add_live(struct site_builder *b, size_t moment, const struct run_lifetime *life)
{
    struct allocator_replay *a = b->allocators;
    struct moment *m = &a->map->moments[moment];
    if (life->device != m->state.device) return;
    if (life->layer == GS_LAYER_TENSOR) {
        *ARENA_ADD(m->blocks) = map_block_of(a, life->address, life->bytes, life->stream, life->space == GS_SPACE_POOL);
        return;
    }
    if (life->layer != GS_LAYER_DEVICE || (life->space != GS_SPACE_DEVICE && life->space != GS_SPACE_POOL)) return;
    const enum run_known own = allocator_owns(b, life->location);
    if (life->space == GS_SPACE_POOL) {
        if (own != RUN_NO) {
            struct block *block = ARENA_ADD(m->pooled);
            *block = map_block_of(a, life->address, life->bytes, life->stream, false);
            block->affinity.pool = ALLOCATOR_POOL_UNKNOWN;
        }
        return;
    }
    const struct allocator_affinity affinity = allocator_segment_affinity(a, life->address, life->alloc_ns);
    if (own == RUN_YES || (own == RUN_UNSURE && affinity.pool != ALLOCATOR_POOL_UNKNOWN))
        *ARENA_ADD(m->pieces) = (struct piece){.address = life->address, .bytes = life->bytes, .affinity = affinity};
}

/* Physical memory counts at the address where it was mapped. */
static void note_mapped_segments(struct allocator_replay *a, struct moment *m)
{
    for (size_t i = 0; i < a->mappings_n; i++) {
        const struct run_mapping *x = &a->mappings[i];
        if (x->process != m->state.process || x->device != m->state.device || x->map_ns > m->state.time_ns ||
            x->unmap_ns <= m->state.time_ns)
            continue;
        const enum run_known own = allocator_maps(a->b, x->stack);
        const struct allocator_affinity affinity = a->mapping_affinity[i];
        if (own == RUN_YES || (own == RUN_UNSURE && affinity.pool != ALLOCATOR_POOL_UNKNOWN)) {
            ARENA_APPEND(m->pieces, .address = x->address, .bytes = x->bytes, .affinity = affinity, .expandable = true);
            m->state.expandable = RUN_YES;
        }
    }
}

static void holes_on_pending(void *self, size_t moment, const struct run_pending *p)
{
    const struct allocator_replay *a = self;
    struct moment *m = &a->map->moments[moment];
    if (p->device != m->state.device) return;
    if (p->known == RUN_UNSURE) {
        m->unsure = true;
    } else {
        struct block *block = ARENA_ADD(m->blocks);
        *block = map_block_of(a, p->address, p->bytes, p->stream, p->captured);
        block->pending = true;
    }
}

SORT_ORDER(piece_order, struct piece, SORT_UP(x->address, y->address))

SORT_ORDER(order_map_blocks, struct block, SORT_UP(x->address, y->address) ?: SORT_UP(x->pending, y->pending))

/* A freed block is reported once per event, and its free slightly before it ends. */
static void draw_moment_once(struct moment *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->blocks_n; i++)
        if (!kept || m->blocks[i].address != m->blocks[kept - 1].address) m->blocks[kept++] = m->blocks[i];
    m->blocks_n = kept;
}

static struct allocator_pool_share *held_by_pool(struct allocator_pool_share **list, size_t *n, size_t *cap,
                                                 bool by_stream, const struct allocator_affinity *affinity)
{
    static const struct allocator_affinity other; /* streams beyond this number are not distinguished */
    if (by_stream && *n >= STREAMS) affinity = &other;
    for (size_t i = 0; i < *n; i++) {
        struct allocator_pool_share *h = &(*list)[i];
        if (by_stream ? h->stream_known == affinity->stream_known &&
                            (!affinity->stream_known || h->stream == affinity->stream)
                      : h->pool == (enum allocator_pool_kind)affinity->pool)
            return h;
    }
    *list = arena_grow(*list, *n, cap, sizeof **list);
    (*list)[*n] = (struct allocator_pool_share){.pool = (enum allocator_pool_kind)affinity->pool,
                                                .stream = affinity->stream_known ? affinity->stream : 0,
                                                .stream_known = affinity->stream_known};
    return &(*list)[(*n)++];
}

struct sums { /* by pool and by stream */
    struct allocator_pool_share *list[2];
    size_t n[2], cap[2];
};

static void count_piece(struct sums *s, const struct piece *p, bool begins)
{
    for (int by = 0; by < 2; by++) {
        struct allocator_pool_share *h = held_by_pool(&s->list[by], &s->n[by], &s->cap[by], by, &p->affinity);
        h->reserved = arena_add_capped(h->reserved, p->bytes);
        h->segments += begins;
    }
}

/* For a block in a segment without known properties, only the block's own properties count. */
static void count_block(struct sums *s, const struct block *b, const struct piece *in)
{
    const struct allocator_affinity *affinity =
        in && in->affinity.pool != ALLOCATOR_POOL_UNKNOWN ? &in->affinity : &b->affinity;
    for (int by = 0; by < 2; by++) {
        struct allocator_pool_share *h = held_by_pool(&s->list[by], &s->n[by], &s->cap[by], by, affinity);
        h->allocated = arena_add_capped(h->allocated, b->pending ? 0 : b->bytes);
        h->active = arena_add_capped(h->active, b->bytes);
        h->blocks++;
    }
}

struct hole { /* free memory that extends from one piece into the next one of a segment */
    int64_t bytes;
};

static void hole_ends(struct allocator_state *s, struct hole *h)
{
    s->largest_free = h->bytes > s->largest_free ? h->bytes : s->largest_free;
    h->bytes = 0;
}

/* Walks the blocks of one piece, from *at on; those that begin in it count there, even if they extend beyond it. */
static void place_piece(struct moment *m, struct sums *sums, struct piece *p, size_t *at, uint64_t *taken_to,
                        struct hole *hole)
{
    struct allocator_state *s = &m->state;
    const uint64_t end = p->address + (uint64_t)p->bytes;
    uint64_t from = *taken_to > p->address ? *taken_to : p->address;
    from = from < end ? from : end;
    p->active = (int64_t)(from - p->address);
    if (p->active) hole_ends(s, hole);
    for (; *at < m->blocks_n && m->blocks[*at].address < end; (*at)++) {
        const struct block *b = &m->blocks[*at];
        const uint64_t block_end = b->address + (uint64_t)b->bytes;
        if (b->address > from) hole->bytes = arena_add_capped(hole->bytes, (int64_t)(b->address - from));
        hole_ends(s, hole);
        count_block(sums, b, p);
        const uint64_t here = b->address > from ? b->address : from;
        const uint64_t to = block_end < end ? block_end : end;
        p->active += to > here ? (int64_t)(to - here) : 0;
        from = to > from ? to : from;
        *taken_to = block_end > *taken_to ? block_end : *taken_to;
    }
    hole->bytes = arena_add_capped(hole->bytes, (int64_t)(end - from));
}

/* All blocks of a segment belong to one stream: if they disagree (a program requested one on another stream than its
 * current one) the stream is unknown. */
static void doubt_streams(struct moment *m)
{
    size_t at = 0;
    EACH_IN (p, m->pieces) {
        const uint64_t end = p->address + (uint64_t)p->bytes;
        for (; at < m->blocks_n && m->blocks[at].address < end; at++) {
            const struct block *b = &m->blocks[at];
            if (b->address >= p->address && b->affinity.stream_known && p->affinity.stream_known &&
                b->affinity.stream != p->affinity.stream)
                p->affinity.stream_known = false;
        }
    }
}

static void place_all(struct moment *m, struct sums *sums)
{
    struct allocator_state *s = &m->state;
    struct hole hole = {0};
    uint64_t taken_to = 0;
    size_t at = 0;
    for (size_t i = 0; i < m->pieces_n; i++) {
        struct piece *p = &m->pieces[i];
        const struct piece *last = i ? &m->pieces[i - 1] : NULL;
        const bool goes_on =
            last && last->expandable && p->expandable && last->address + (uint64_t)last->bytes == p->address;
        if (!goes_on) hole_ends(s, &hole);
        for (; at < m->blocks_n && m->blocks[at].address < p->address; at++) {
            s->strays++;
            count_block(sums, &m->blocks[at], NULL);
        }
        place_piece(m, sums, p, &at, &taken_to, &hole);
        count_piece(sums, p, !goes_on);
        s->segments += !goes_on;
        s->reserved = arena_add_capped(s->reserved, p->bytes);
        if (p->active && !p->expandable) s->inactive_split = arena_add_capped(s->inactive_split, p->bytes - p->active);
    }
    hole_ends(s, &hole);
    for (; at < m->blocks_n; at++) {
        s->strays++;
        count_block(sums, &m->blocks[at], NULL);
    }
}

SORT_ORDER(compare_pool_shares, struct allocator_pool_share,
           SORT_DOWN(x->reserved, y->reserved) ?: SORT_DOWN(x->allocated, y->allocated) ?: SORT_UP(x->pool, y->pool)
               ?: SORT_UP(x->stream, y->stream))

static struct allocator_pool_share *sort_pool_shares(struct site_builder *b, struct allocator_pool_share *list,
                                                     size_t n)
{
    struct allocator_pool_share *kept = arena_alloc(b->arena, (n ? n : 1) * sizeof *kept);
    if (n) {
        SORT(list, n, compare_pool_shares);
        memcpy(kept, list, n * sizeof *kept);
    }
    free(list);
    return kept;
}

static void unknown_pending(struct allocator_state *s)
{
    s->pending = s->active = s->cached = s->inactive_split = s->largest_free = RUN_UNKNOWN;
}

/* CUDA's pool reports neither its cached bytes nor frees that wait. */
static void close_pooled(struct allocator_replay *a, struct moment *m)
{
    struct allocator_state *s = &m->state;
    struct sums sums = {0};
    s->backend = RUN_BACKEND_ASYNC;
    for (size_t i = 0; i < m->pooled_n; i++) {
        s->allocated = arena_add_capped(s->allocated, m->pooled[i].bytes);
        count_block(&sums, &m->pooled[i], NULL);
    }
    for (size_t i = 0; i < sums.n[1]; i++) sums.list[1][i].reserved = sums.list[1][i].active = RUN_UNKNOWN;
    free(sums.list[0]);
    s->blocks = m->pooled_n;
    s->by_stream = sort_pool_shares(a->b, sums.list[1], s->by_stream_n = sums.n[1]);
    s->expandable = RUN_NO;
    s->reserved = RUN_UNKNOWN;
    unknown_pending(s);
}

static void close_moment(struct allocator_replay *a, struct moment *m)
{
    struct allocator_state *s = &m->state;
    struct sums sums = {0};
    if (m->pooled_n && !m->blocks_n && !m->pieces_n) {
        close_pooled(a, m);
        return;
    }
    const struct run_torch_settings settings = run_torch_settings(a->b->run, s->process);
    s->backend = settings.backend;
    note_mapped_segments(a, m);
    s->expandable = s->expandable == RUN_YES ? RUN_YES : m->pieces_n ? RUN_NO : RUN_UNSURE;
    SORT(m->pieces, m->pieces_n, piece_order);
    SORT(m->blocks, m->blocks_n, order_map_blocks);
    draw_moment_once(m);
    doubt_streams(m);
    place_all(m, &sums);
    for (size_t i = 0; i < m->blocks_n; i++) {
        int64_t *to = m->blocks[i].pending ? &s->pending : &s->allocated;
        *to = arena_add_capped(*to, m->blocks[i].bytes);
    }
    s->blocks = m->blocks_n;
    s->active = arena_add_capped(s->allocated, s->pending);
    s->cached = s->reserved > s->active ? s->reserved - s->active : 0;
    if (m->unsure) unknown_pending(s);
    if (s->strays) /* segments were not seen, or not known to be PyTorch's */
        s->reserved = s->cached = s->inactive_split = s->largest_free = RUN_UNKNOWN;
    s->by_pool = sort_pool_shares(a->b, sums.list[0], s->by_pool_n = sums.n[0]);
    s->by_stream = sort_pool_shares(a->b, sums.list[1], s->by_stream_n = sums.n[1]);
}

void allocator_close_process(struct site_builder *b, uint32_t process)
{
    struct allocator_replay *a = b->allocators;
    struct allocator_map_work *w = a->map;
    if (!w->n) return;
    allocator_each_pending_at(b->run, process, w->times, w->n, holes_on_pending, a);
    EACH (m, w->moments, w->n) {
        close_moment(a, m);
        if (m->state.allocated || m->state.segments || m->state.moment == ALLOCATOR_MOMENT_OOM)
            *ARENA_ADD(w->states) = m->state;
        ARENA_RELEASE(m->pieces, m->blocks, m->pooled);
    }
    w->n = 0;
}

SORT_ORDER(order_pool_shares, struct allocator_state,
           SORT_UP(x->process, y->process) ?: SORT_UP(x->device, y->device) ?: SORT_UP(x->time_ns, y->time_ns)
               ?: SORT_UP(x->moment, y->moment))

static void allocator_map_work_build(struct allocator_replay *a)
{
    struct allocator_map_work *w = a->map;
    struct result_report *report = a->b->report;
    if (!w || !w->states_n) return;
    SORT(w->states, w->states_n, order_pool_shares);
    report->allocator = arena_alloc(a->b->arena, w->states_n * sizeof *report->allocator);
    memcpy(report->allocator, w->states, w->states_n * sizeof *w->states);
    report->allocator_n = w->states_n;
}

static void allocator_map_work_free(struct allocator_replay *a)
{
    struct allocator_map_work *w = a->map;
    if (!w) return;
    for (size_t i = 0; i < w->n; i++) { /* a pass that failed */
        free(w->moments[i].pieces);
        ARENA_RELEASE(w->moments[i].blocks, w->moments[i].pooled);
    }
    ARENA_RELEASE(w->moments, w->times, w->states, w);
}

void allocator_build(struct site_builder *b)
{
    allocator_map_work_build(b->allocators);
    allocator_flushes_build(b->allocators->flushes);
}

void allocator_free(struct site_builder *b)
{
    struct allocator_replay *a = b->allocators;
    if (!a) return;
    allocator_map_work_free(a);
    allocator_flushes_end(a->flushes);
    ARENA_RELEASE(a->segments, a->spare, a->kept_list, a->mapping_affinity);
    MAP_RELEASE(&a->of_address, &a->private_of, &a->kept);
    free(a);
    b->allocators = NULL;
}
