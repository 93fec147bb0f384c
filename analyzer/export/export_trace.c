#include "analyzer/export/export_trace.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"
#include "analyzer/base/words.h"

enum { SMALL_SEGMENT = 2 << 20, GRAIN = 2 << 20 }; /* PyTorch's segments are multiples of GRAIN */

/* A CUDA allocation or mapping. Only a block in it shows that it belongs to PyTorch: `written` is then true. In an
 * imported snapshot all of them do. */
struct piece {
    uint64_t address, stream;
    int64_t bytes, time_ns;
    uint32_t stack;
    int64_t pool; /* as in blocks; `pool_known`: the recorder read it from the allocator */
    bool written, mapped, pool_known;
};

struct change { /* a mapping or unmapping */
    int64_t time_ns;
    uint32_t mapping;
    bool mapped;
};

struct pending { /* a free that waits until the last of its events has completed */
    uint64_t address;
    int64_t free_ns, done_ns;
};

struct waiting {
    struct export_trace_block block;
    int64_t done_ns;
};

struct tracer {
    struct run *run;
    const struct export_trace_request *wish;
    struct export_trace_state *state;
    int64_t last_alloc_ns;
    bool here, done;                   /* in the requested process; after the requested moment */
    bool imported;                     /* an imported snapshot: memory that existed at time 0 makes no event */
    struct export_trace_event mapping; /* delayed: consecutive mappings or unmappings are one call of the allocator */
    ARENA_LIST(struct piece, pieces);  /* by address */
    struct change *changes;            /* by time */
    size_t changes_n, changes_cap, change;
    ARENA_LIST(struct pending, pendings); /* sorted by address, then time */
    ARENA_LIST(struct waiting, waiting);  /* few, unsorted */
    int64_t next_done_ns;                 /* the earliest of them; RUN_NEVER */
    bool has_pools;                       /* private ones, by identity: their numbers */
    struct map pools;
    int64_t pools_n;
    size_t fact; /* the next of the run's facts about PyTorch's allocator */
    size_t segments_cap, blocks_cap;
};

WORDS_FUNCTION(export_trace_word, enum export_trace_action, EXPORT_TRACE_ACTIONS, WORDS_FIRST, NULL)

static void emit_held(struct tracer *t)
{
    if (t->mapping.bytes) t->wish->each(t->wish->self, &t->mapping);
    t->mapping.bytes = 0;
}

static void emit_trace_event(struct tracer *t, const struct export_trace_event *e)
{
    struct export_trace_event *held = &t->mapping;
    if (t->imported && e->time_ns == 0) return;
    if (held->bytes && e->action == held->action && e->time_ns == held->time_ns &&
        e->address == held->address + (uint64_t)held->bytes) {
        held->bytes = arena_add_capped(held->bytes, e->bytes);
        return;
    }
    emit_held(t);
    if (e->action == EXPORT_TRACE_SEGMENT_MAP || e->action == EXPORT_TRACE_SEGMENT_UNMAP)
        *held = *e;
    else
        t->wish->each(t->wish->self, e);
}

static void emit_piece(struct tracer *t, const struct piece *p, enum export_trace_action action)
{
    emit_trace_event(
        t, &(struct export_trace_event){.action = action,
                                        .stack = p->stack,
                                        .time_ns = p->time_ns,
                                        .bytes = p->bytes,
                                        .address = p->address,
                                        .stream = p->stream,
                                        .pool = t->has_pools && p->written && !t->imported ? p->pool : RUN_UNKNOWN});
}

static enum export_trace_action piece_start(const struct piece *p)
{
    return p->mapped ? EXPORT_TRACE_SEGMENT_MAP : EXPORT_TRACE_SEGMENT_ALLOC;
}

static void emit_alloc(struct tracer *t, const struct export_trace_block *b, int64_t time_ns,
                       enum export_trace_action action)
{
    emit_trace_event(t, &(struct export_trace_event){.action = action,
                                                     .stack = b->stack,
                                                     .free_stack = b->free_stack,
                                                     .kept = b->kept,
                                                     .free_ns = b->free_ns,
                                                     .time_ns = time_ns,
                                                     .bytes = b->bytes,
                                                     .requested = b->requested,
                                                     .address = b->address,
                                                     .stream = b->stream,
                                                     .pool = t->has_pools ? b->pool : RUN_UNKNOWN});
}

static void emit_free(struct tracer *t, const struct export_trace_block *b, int64_t time_ns, uint32_t stack,
                      enum export_trace_action action)
{
    emit_trace_event(t, &(struct export_trace_event){.action = action,
                                                     .stack = stack,
                                                     .time_ns = time_ns,
                                                     .bytes = b->bytes,
                                                     .requested = b->requested,
                                                     .address = b->address,
                                                     .stream = b->stream,
                                                     .pool = t->has_pools ? b->pool : RUN_UNKNOWN});
}

/* The number of pieces that begin at or before the address. */
static size_t pieces_up_to(const struct tracer *t, uint64_t address)
{
    return SORT_COUNT(t->pieces_n, i, t->pieces[i].address <= address);
}

static struct piece *piece_of(struct tracer *t, uint64_t address)
{
    size_t n = pieces_up_to(t, address);
    struct piece *p = n ? &t->pieces[n - 1] : NULL;
    return p && address - p->address < (uint64_t)p->bytes ? p : NULL;
}

static void piece_add(struct tracer *t, struct piece piece)
{
    size_t at = pieces_up_to(t, piece.address);
    ARENA_ADD(t->pieces);
    memmove(&t->pieces[at + 1], &t->pieces[at], (t->pieces_n - 1 - at) * sizeof piece);
    piece.written = t->imported;
    t->pieces[at] = piece;
    if (piece.written) emit_piece(t, &piece, piece_start(&piece));
}

static void piece_remove(struct tracer *t, uint64_t address, bool mapped, int64_t time_ns, uint32_t stack)
{
    size_t n = pieces_up_to(t, address);
    if (!n || t->pieces[n - 1].address != address || t->pieces[n - 1].mapped != mapped) return;
    struct piece p = t->pieces[n - 1];
    memmove(&t->pieces[n - 1], &t->pieces[n], (t->pieces_n - n) * sizeof p);
    t->pieces_n--;
    if (p.written) {
        p.stack = stack != RUN_NONE ? stack : p.stack;
        p.time_ns = time_ns;
        emit_piece(t, &p, mapped ? EXPORT_TRACE_SEGMENT_UNMAP : EXPORT_TRACE_SEGMENT_FREE);
    }
}

static void piece_take(struct piece *p, const struct export_trace_block *b)
{
    p->written = true;
    p->stream = b->stream;
    p->pool = b->pool;
}

/* A block is in the piece, so the piece belongs to PyTorch and to the block's stream. Pieces that were mapped one after
 * another for the block are one call of the allocator. */
static void emit_pieces(struct tracer *t, const struct export_trace_block *b)
{
    uint64_t end = b->address + (uint64_t)b->bytes;
    size_t at = pieces_up_to(t, b->address) - 1;
    while (at < t->pieces_n && t->pieces[at].address < end) {
        struct piece *p = &t->pieces[at++];
        if (p->written) {
            if (t->imported) piece_take(p, b);
            continue;
        }
        piece_take(p, b);
        struct piece whole = *p;
        for (; at < t->pieces_n && p->mapped; at++) {
            struct piece *next = &t->pieces[at];
            if (next->written || !next->mapped || next->address >= end ||
                next->address != whole.address + (uint64_t)whole.bytes)
                break;
            piece_take(next, b);
            whole.bytes += next->bytes;
        }
        emit_piece(t, &whole, piece_start(&whole));
    }
}

SORT_ORDER(order_changes, struct change,
           SORT_UP(x->time_ns, y->time_ns) ?: SORT_UP(x->mapped, y->mapped) ?: SORT_UP(x->mapping, y->mapping))

static void list_changes(struct tracer *t)
{
    size_t n;
    const struct run_mapping *m = run_mappings(t->run, &n);
    for (size_t i = 0; i < n; i++) {
        if (m[i].process != t->wish->process || m[i].device != t->wish->device) continue;
        *ARENA_ADD(t->changes) = (struct change){m[i].map_ns, (uint32_t)i, true};
        if (m[i].unmap_ns != RUN_NEVER) *ARENA_ADD(t->changes) = (struct change){m[i].unmap_ns, (uint32_t)i, false};
    }
    SORT(t->changes, t->changes_n, order_changes);
}

static void whole_alloc(struct tracer *t, const struct export_trace_block *b, int64_t time_ns)
{
    emit_alloc(t, b, time_ns, EXPORT_TRACE_SEGMENT_ALLOC);
    emit_alloc(t, b, time_ns, EXPORT_TRACE_ALLOC);
}

static uint32_t freeing_stack(const struct export_trace_block *b)
{
    return b->free_stack != RUN_NONE ? b->free_stack : b->stack;
}

static void block_free(struct tracer *t, const struct export_trace_block *b, int64_t time_ns, bool whole)
{
    emit_free(t, b, time_ns, freeing_stack(b), EXPORT_TRACE_FREE_REQUESTED);
    emit_free(t, b, time_ns, freeing_stack(b), EXPORT_TRACE_FREE_COMPLETED);
    if (whole) emit_free(t, b, time_ns, freeing_stack(b), EXPORT_TRACE_SEGMENT_FREE);
}

SORT_ORDER(pending_order, struct pending, SORT_UP(x->address, y->address) ?: SORT_UP(x->free_ns, y->free_ns))

static void trace_on_pending(void *self, const struct run_pending *p)
{
    struct tracer *t = self;
    if (p->device == t->wish->device && p->known == RUN_YES && p->done_ns > p->free_ns)
        *ARENA_ADD(t->pendings) = (struct pending){p->address, p->free_ns, p->done_ns};
}

static void list_pendings(struct tracer *t)
{
    size_t kept = 0;
    allocator_each_pending(t->run, t->wish->process, trace_on_pending, t);
    SORT(t->pendings, t->pendings_n, pending_order);
    for (size_t i = 0; i < t->pendings_n; i++) { /* the free completes with the last of its events */
        struct pending *last = kept ? &t->pendings[kept - 1] : NULL;
        if (last && pending_order(last, &t->pendings[i]) == 0)
            last->done_ns = t->pendings[i].done_ns > last->done_ns ? t->pendings[i].done_ns : last->done_ns;
        else
            t->pendings[kept++] = t->pendings[i];
    }
    t->pendings_n = kept;
}

static void tensor_free(struct tracer *t, const struct export_trace_block *b, int64_t time_ns)
{
    struct pending key = {b->address, time_ns, 0};
    const struct pending *p =
        t->pendings_n ? bsearch(&key, t->pendings, t->pendings_n, sizeof key, pending_order) : NULL;
    if (!p) {
        block_free(t, b, time_ns, !piece_of(t, b->address));
        return;
    }
    emit_free(t, b, time_ns, freeing_stack(b), EXPORT_TRACE_FREE_REQUESTED);
    *ARENA_ADD(t->waiting) = (struct waiting){*b, p->done_ns};
    t->waiting[t->waiting_n - 1].block.pending = true;
    t->next_done_ns = p->done_ns < t->next_done_ns ? p->done_ns : t->next_done_ns;
}

/* Completes the free that ends first. */
static void complete_trace(struct tracer *t)
{
    size_t at = 0;
    int64_t done = t->next_done_ns;
    while (at < t->waiting_n && t->waiting[at].done_ns != done) at++;
    if (at < t->waiting_n) {
        const struct export_trace_block b = t->waiting[at].block;
        t->waiting[at] = t->waiting[--t->waiting_n];
        emit_free(t, &b, done, b.stack, EXPORT_TRACE_FREE_COMPLETED);
        if (!piece_of(t, b.address)) emit_free(t, &b, done, b.stack, EXPORT_TRACE_SEGMENT_FREE);
    }
    t->next_done_ns = RUN_NEVER;
    for (size_t i = 0; i < t->waiting_n; i++)
        t->next_done_ns = t->waiting[i].done_ns < t->next_done_ns ? t->waiting[i].done_ns : t->next_done_ns;
}

static struct export_trace_block block_of_mapping(const struct run_mapping *m)
{
    return (struct export_trace_block){.address = m->address,
                                       .bytes = m->bytes,
                                       .alloc_ns = m->map_ns,
                                       .free_ns = m->unmap_ns,
                                       .stack = m->stack,
                                       .free_stack = RUN_NONE,
                                       .kept = m->unmap_ns == RUN_NEVER};
}

static void apply_change(struct tracer *t, const struct change *c, const struct run_mapping *m)
{
    struct export_trace_block b = block_of_mapping(m);
    if (!t->wish->tensors && c->mapped) {
        whole_alloc(t, &b, c->time_ns);
    } else if (!t->wish->tensors) {
        block_free(t, &b, c->time_ns, true);
    } else if (c->mapped) {
        piece_add(
            t, (struct piece){
                   .address = m->address, .bytes = m->bytes, .time_ns = c->time_ns, .stack = m->stack, .mapped = true});
    } else {
        piece_remove(t, m->address, true, c->time_ns, RUN_NONE);
    }
}

/* Applies all mappings, unmappings and completed frees up to a time. */
static void catch_up(struct tracer *t, int64_t time_ns)
{
    size_t n;
    const struct run_mapping *all = run_mappings(t->run, &n);
    for (;;) {
        const struct change *c = t->change < t->changes_n ? &t->changes[t->change] : NULL;
        if (t->next_done_ns <= time_ns && t->next_done_ns != RUN_NEVER && (!c || t->next_done_ns <= c->time_ns)) {
            complete_trace(t);
        } else if (c && c->time_ns <= time_ns) {
            t->change++;
            apply_change(t, c, &all[c->mapping]);
        } else {
            return;
        }
    }
}

/* Applies what the recorder had read from PyTorch's allocator by then. */
static void read_pools(struct tracer *t, int64_t time_ns)
{
    size_t n;
    const struct run_allocator_fact *facts = run_allocator_facts(t->run, &n);
    for (; t->has_pools && t->fact < n; t->fact++) {
        const struct run_allocator_fact *f = &facts[t->fact];
        if (f->process != t->wish->process || f->device != t->wish->device || f->kind != GS_ALLOCATOR_POOL) continue;
        if (f->time_ns > time_ns) return;
        uint32_t *number = f->value > 0 ? map_at(&t->pools, (uint64_t)f->value) : NULL;
        if (number && *number == MAP_NEW) *number = (uint32_t)++t->pools_n;
        struct piece *p = f->value >= 0 ? piece_of(t, f->address) : NULL;
        if (!p) continue;
        p->pool = number ? *number : 0;
        p->pool_known = true;
    }
}

/* The pool of a block: that of its piece, or of the pages before it in an expandable segment. */
static int64_t pool_at(const struct tracer *t, uint64_t address, bool captured)
{
    for (size_t i = pieces_up_to(t, address); i-- > 0;) {
        const struct piece *p = &t->pieces[i], *before = i ? &t->pieces[i - 1] : NULL;
        if (p->pool_known) return p->pool;
        if (!p->mapped || !before || !before->mapped || before->address + (uint64_t)before->bytes != p->address) break;
    }
    return captured;
}

static bool has_private_pools(const struct run *run, const struct export_trace_request *wish)
{
    RUN_EACH (f, run_allocator_facts, run)
        if (f->process == wish->process && f->device == wish->device && f->kind == GS_ALLOCATOR_POOL && f->value > 0)
            return true;
    return false;
}

static struct export_trace_block trace_block_of(const struct tracer *t, const struct run_lifetime *life)
{
    bool tensor = life->layer == GS_LAYER_TENSOR, unknown = tensor && life->stream == UINT64_MAX;
    const int64_t requested = run_requested(life);
    return (struct export_trace_block){.address = life->address,
                                       .stream = unknown ? 0 : life->stream,
                                       .pool = tensor ? pool_at(t, life->address, life->space == GS_SPACE_POOL) : 0,
                                       .bytes = life->bytes,
                                       .requested = requested == RUN_UNKNOWN ? life->bytes : requested,
                                       .alloc_ns = life->alloc_ns,
                                       .free_ns = life->free_ns,
                                       .stack = life->stack,
                                       .free_stack = run_free_stack(t->run, life),
                                       .kept = life->free_ns > t->last_alloc_ns};
}

static void block_alloc(struct tracer *t, const struct export_trace_block *b, int64_t time_ns)
{
    if (!piece_of(t, b->address)) { /* its segment is unknown */
        whole_alloc(t, b, time_ns);
        return;
    }
    emit_pieces(t, b);
    emit_alloc(t, b, time_ns, EXPORT_TRACE_ALLOC);
}

static void keep_state(struct tracer *t);

/* False: the event is of another process or device, or after the requested moment. The first such event stores the
 * state at that moment. */
static bool is_trace_event_chosen(struct tracer *t, int device, int64_t time_ns)
{
    if (!t->here || t->done) return false;
    if (time_ns > t->wish->until_ns) {
        catch_up(t, t->wish->until_ns);
        keep_state(t);
        t->done = true;
        return false;
    }
    if (device != t->wish->device) return false;
    catch_up(t, time_ns);
    read_pools(t, time_ns);
    return true;
}

static void trace_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct tracer *t = self;
    if (!is_trace_event_chosen(t, life->device, life->alloc_ns) || !life->bytes) return;
    struct export_trace_block b = trace_block_of(t, life);
    if (life->layer == GS_LAYER_TENSOR) {
        block_alloc(t, &b, life->alloc_ns);
    } else if (run_has_device_address(life) && !t->wish->tensors) {
        whole_alloc(t, &b, life->alloc_ns);
    } else if (run_has_device_address(life) && life->bytes && (life->bytes % GRAIN == 0 || t->imported)) {
        piece_add(t, (struct piece){.address = life->address,
                                    .bytes = life->bytes,
                                    .time_ns = life->alloc_ns,
                                    .stack = life->stack,
                                    .stream = life->stream == UINT64_MAX ? 0 : life->stream});
    }
}

static void trace_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct tracer *t = self;
    if (!is_trace_event_chosen(t, life->device, life->free_ns) || !life->bytes) return;
    struct export_trace_block b = trace_block_of(t, life);
    if (life->layer == GS_LAYER_TENSOR)
        tensor_free(t, &b, life->free_ns);
    else if (run_has_device_address(life) && !t->wish->tensors)
        block_free(t, &b, life->free_ns, true);
    else if (run_has_device_address(life))
        piece_remove(t, life->address, false, life->free_ns, b.free_stack);
}

static void trace_on_oom(void *self, const struct run_oom *oom, size_t index)
{
    struct tracer *t = self;
    bool ours = t->wish->tensors ? oom->layer == GS_LAYER_TENSOR
                                 : oom->layer == GS_LAYER_DEVICE && oom->space != GS_SPACE_PINNED;
    if (is_trace_event_chosen(t, oom->device, oom->time_ns) && ours) {
        emit_trace_event(t, &(struct export_trace_event){.action = EXPORT_TRACE_OOM,
                                                         .stack = oom->stack,
                                                         .time_ns = oom->time_ns,
                                                         .bytes = oom->requested_bytes,
                                                         .device_free = oom->free_bytes});
    }
}

static void trace_on_process_start(void *self, uint32_t process)
{
    struct tracer *t = self;
    t->here = process == t->wish->process;
}

static void trace_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct tracer *t = self;
    if (t->here && !t->done) {
        catch_up(t, t->wish->until_ns);
        keep_state(t);
        t->done = true;
    }
}

static void add_segment(struct tracer *t, struct export_trace_segment s)
{
    *ARENA_PUSH(t->state->segments, t->state->segments_n, t->segments_cap) = s;
}

static void add_whole(struct tracer *t, const struct export_trace_block *b)
{
    add_segment(t, (struct export_trace_segment){.address = b->address,
                                                 .stream = b->stream,
                                                 .bytes = b->bytes,
                                                 .stack = b->stack,
                                                 .small = b->bytes <= SMALL_SEGMENT});
}

static void gather_lifetime(void *self, const struct run_lifetime *life)
{
    struct tracer *t = self;
    bool tensor = life->layer == GS_LAYER_TENSOR;
    if (life->device != t->wish->device || life->alloc_ns > t->wish->until_ns || life->free_ns <= t->wish->until_ns ||
        !life->bytes || (t->wish->tensors ? !tensor : !run_has_device_address(life)))
        return;
    struct export_trace_block b = trace_block_of(t, life);
    *ARENA_PUSH(t->state->blocks, t->state->blocks_n, t->blocks_cap) = b;
    if (!tensor || !piece_of(t, b.address)) add_whole(t, &b);
}

static void gather_trace_mappings(struct tracer *t)
{
    RUN_EACH (m, run_mappings, t->run) {
        if (m->process == t->wish->process && m->device == t->wish->device && m->map_ns <= t->wish->until_ns &&
            m->unmap_ns > t->wish->until_ns) {
            struct export_trace_block b = block_of_mapping(m);
            *ARENA_PUSH(t->state->blocks, t->state->blocks_n, t->blocks_cap) = b;
            add_whole(t, &b);
        }
    }
}

/* Adjacent mappings of one stream are one segment. */
static void gather_pieces(struct tracer *t)
{
    struct export_trace_state *s = t->state;
    EACH_IN (p, t->pieces) {
        struct export_trace_segment *last = s->segments_n ? &s->segments[s->segments_n - 1] : NULL;
        if (!p->written) continue;
        if (last && p->mapped && last->mapped && last->stream == p->stream && last->pool == p->pool &&
            last->address + (uint64_t)last->bytes == p->address) {
            last->bytes = arena_add_capped(last->bytes, p->bytes);
        } else {
            add_segment(t, (struct export_trace_segment){.address = p->address,
                                                         .stream = p->stream,
                                                         .bytes = p->bytes,
                                                         .stack = p->stack,
                                                         .mapped = p->mapped,
                                                         .pool = p->pool,
                                                         .small = p->bytes <= SMALL_SEGMENT});
        }
    }
}

SORT_ORDER(order_trace_segments, struct export_trace_segment, SORT_UP(x->address, y->address))

SORT_ORDER(order_trace_blocks, struct export_trace_block, SORT_UP(x->address, y->address))

/* Assigns the blocks to their segments. Of blocks that overlap or extend beyond their segment, keeps the first, because
 * the sizes must add up. */
static void share_out_trace_blocks(struct export_trace_state *s)
{
    size_t at = 0, kept = 0;
    EACH_IN (g, s->segments) {
        uint64_t from = g->address, end = g->address + (uint64_t)g->bytes;
        g->first = kept;
        for (; at < s->blocks_n && s->blocks[at].address < end; at++) {
            struct export_trace_block b = s->blocks[at];
            if (b.address < from || (uint64_t)b.bytes > end - b.address) continue;
            from = b.address + (uint64_t)b.bytes;
            *(b.pending ? &g->pending_bytes : &g->block_bytes) += b.bytes;
            g->requested_bytes += b.requested;
            s->blocks[kept++] = b;
        }
        g->n = kept - g->first;
    }
    s->refused = s->blocks_n - kept;
    s->blocks_n = kept;
}

static void keep_state(struct tracer *t)
{
    struct export_trace_state *s = t->state;
    emit_held(t);
    if (!s) return;
    gather_pieces(t);
    run_each_live(t->run, gather_lifetime, t);
    if (!t->wish->tensors) gather_trace_mappings(t);
    for (size_t i = 0; i < t->waiting_n; i++) {
        *ARENA_PUSH(s->blocks, s->blocks_n, t->blocks_cap) = t->waiting[i].block;
        if (!piece_of(t, t->waiting[i].block.address)) add_whole(t, &t->waiting[i].block);
    }
    SORT(s->segments, s->segments_n, order_trace_segments);
    SORT(s->blocks, s->blocks_n, order_trace_blocks);
    share_out_trace_blocks(s);
}

void export_trace_state_free(struct export_trace_state *state)
{
    ARENA_RELEASE(state->segments, state->blocks);
    *state = (struct export_trace_state){0};
}

bool export_trace_device(struct run *run, const struct export_trace_request *wish, struct export_trace_state *state,
                         char *error, size_t error_size)
{
    struct tracer t = {
        .run = run, .wish = wish, .state = state, .last_alloc_ns = run_process_at(run, wish->process)->last_alloc_ns};
    struct run_observer observer = {.self = &t,
                                    .process_start = trace_on_process_start,
                                    .alloc = trace_on_alloc,
                                    .free = trace_on_free,
                                    .oom = trace_on_oom,
                                    .process_end = trace_on_process_end};
    if (state) *state = (struct export_trace_state){0};
    t.imported = run_why_unknown(run, RUN_FACT_WAITS) && !run_why_unknown(run, RUN_FACT_TENSORS);
    t.next_done_ns = RUN_NEVER;
    t.has_pools = has_private_pools(run, wish);
    list_changes(&t);
    list_pendings(&t);
    bool ok = run_replay(run, &observer, 1, error, error_size);
    ARENA_RELEASE(t.pieces, t.changes, t.pendings, t.waiting);
    map_free(&t.pools);
    if (!ok && state) export_trace_state_free(state);
    return ok;
}
