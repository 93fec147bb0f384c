#include "analyzer/oom/oom_layout.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/whatif/lane.h"
#include "analyzer/whatif/rules.h"
#include "analyzer/base/sort.h"

enum { PIECES_MOST = 1 << 19 };

struct piece { /* of a segment: itself, then its blocks */
    struct whatif_piece at;
    uint32_t stack;
    bool pool; /* of a graph: not available to others */
    int64_t alloc_ns;
};

struct oom_layout {
    struct caching_rules rules;
    uint64_t stream; /* of the latest block */
    struct piece *pieces;
    size_t n;
};

struct taking {
    const struct run_oom *row;
    struct piece *list;
    size_t n, cap;
    bool grows;
    int64_t latest_ns;
    uint64_t stream;
};

static void take_layout_lifetime(void *self, const struct run_lifetime *life)
{
    struct taking *t = self;
    const bool block = life->layer == GS_LAYER_TENSOR;
    if (life->device != t->row->device || t->n >= PIECES_MOST) return;
    t->grows = t->grows || (!block && life->space == GS_SPACE_VMM);
    if (!block && (life->layer != GS_LAYER_DEVICE || life->space != GS_SPACE_DEVICE)) return;
    const uint64_t stream = life->stream == GS_STREAM_UNKNOWN ? 0 : life->stream;
    if (block && life->alloc_ns >= t->latest_ns) {
        t->latest_ns = life->alloc_ns;
        t->stream = stream;
    }
    *ARENA_PUSH(t->list, t->n, t->cap) =
        (struct piece){{.address = life->address, .stream = stream, .bytes = life->bytes, .block = block},
                       life->stack,
                       block && life->space == GS_SPACE_POOL,
                       life->alloc_ns};
}

SORT_ORDER(order_layout_by_address, struct piece,
           SORT_UP(x->at.address, y->at.address) ?: SORT_UP(x->at.block, y->at.block))

/* CUDA allocations of other code have no blocks; a graph's segment serves only the graph. */
static size_t keep_segments(struct piece *list, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0, next; i < n; i = next) {
        const uint64_t end = list[i].at.address + (uint64_t)list[i].at.bytes;
        bool pool = false;
        for (next = i + 1; next < n && list[next].at.block && list[next].at.address < end; next++)
            pool = pool || list[next].pool;
        if (list[i].at.block || pool || next == i + 1) continue;
        memmove(&list[kept], &list[i], (next - i) * sizeof *list);
        kept += next - i;
    }
    return kept;
}

const struct oom_layout *oom_layout_take(struct site_builder *b, const struct run_oom *row)
{
    struct taking t = {.row = row};
    struct oom_layout *layout = NULL;
    struct caching_rules rules;
    char error[256];
    if (row->layer != GS_LAYER_TENSOR || row->device < 0) return NULL;
    run_each_live(b->run, take_layout_lifetime, &t);
    const char *version = run_process_at(b->run, row->process)->torch_version;
    const bool replays =
        whatif_rules_recorded(&rules, b->run, row->process, version, row->total_bytes, error, sizeof error);
    rules.throws = false;
    rules.allowed_bytes = INT64_MAX; /* a limit of PyTorch's own: the callers know how the request failed */
    if (replays && !t.grows && !rules.expandable && t.n < PIECES_MOST) {
        SORT(t.list, t.n, order_layout_by_address);
        const size_t kept = keep_segments(t.list, t.n);
        if (kept) {
            layout = arena_alloc(b->arena, sizeof *layout);
            *layout = (struct oom_layout){rules, t.stream, arena_alloc(b->arena, kept * sizeof *t.list), kept};
            memcpy(layout->pieces, t.list, kept * sizeof *t.list);
        }
    }
    free(t.list);
    return layout;
}

uint64_t oom_layout_steps(const struct oom_layout *layout, uint32_t stack, const struct step_list *steps,
                          int64_t from_ns)
{
    int64_t *of = layout && steps ? arena_realloc(NULL, layout->n, sizeof *of) : NULL;
    size_t n = 0, distinct = 0;
    for (size_t i = 0; of && i < layout->n; i++)
        if (layout->pieces[i].at.block && layout->pieces[i].stack == stack && layout->pieces[i].alloc_ns >= from_ns)
            of[n++] = (int64_t)step_count_done(steps, layout->pieces[i].alloc_ns);
    SORT(of, n, sort_int64_up);
    for (size_t i = 0; i < n; i++) distinct += !i || of[i] != of[i - 1];
    free(of);
    return distinct;
}

static bool is_dropped(const struct site_builder *b, const struct oom_drop *drop, const struct piece *p)
{
    bool is = p->at.block && p->alloc_ns >= drop->from_ns && p->alloc_ns < drop->before_ns;
    if (is && drop->stacks_n) is = bsearch(&p->stack, drop->stacks, drop->stacks_n, sizeof p->stack, sort_uint32_up);
    return is && (!drop->in_pass || (p->stack != RUN_NONE && oom_is_in_pass(b->run, p->stack)));
}

/* One past the time of the blocks that stay: in the order of allocation, each `each`th. */
static struct map staying_blocks(const struct oom_layout *layout, const struct oom_drop *drop)
{
    struct map stay = {0};
    int64_t *times = drop->each ? arena_realloc(NULL, layout->n, sizeof *times) : NULL;
    size_t n = 0;
    for (size_t i = 0; i < layout->n && times; i++)
        if (layout->pieces[i].at.block && layout->pieces[i].stack == drop->thinned)
            times[n++] = layout->pieces[i].alloc_ns;
    SORT(times, n, sort_int64_up);
    for (size_t i = drop->each - 1; times && i < n; i += drop->each) *map_at(&stay, (uint64_t)times[i]) = 1;
    free(times);
    return stay;
}

static int64_t drop_blocks(struct whatif_lane *lane, const struct site_builder *b, const struct oom_layout *layout,
                           const struct oom_drop *drop)
{
    int64_t bytes = 0;
    struct map stay = staying_blocks(layout, drop);
    EACH (p, layout->pieces, layout->n) {
        const bool stays = drop->each && p->stack == drop->thinned && *map_at(&stay, (uint64_t)p->alloc_ns) == 1;
        if (stays || !is_dropped(b, drop, p)) continue;
        const uint32_t block = whatif_lane_take_placed(lane, p->at.address);
        if (block == CACHING_NO_BLOCK) continue;
        caching_release(lane->allocator, block);
        bytes = arena_add_capped(bytes, p->at.bytes);
    }
    map_free(&stay);
    return bytes;
}

struct oom_replayed oom_layout_replay(const struct site_builder *b, const struct oom_facts *f,
                                      const struct oom_drop *drop, int64_t free_bytes)
{
    const struct oom_layout *layout = f->layout;
    struct oom_replayed r = {0};
    if (!layout || !run_is_known(free_bytes) || f->requested <= 0) return r;
    struct whatif_piece *pieces = arena_realloc(NULL, layout->n, sizeof *pieces);
    int64_t segments = 0, reserved = 0;
    for (size_t i = 0; i < layout->n; i++) {
        pieces[i] = layout->pieces[i].at;
        if (pieces[i].block) pieces[i].bytes = caching_rounded(&layout->rules, pieces[i].bytes);
        if (!pieces[i].block) segments = arena_add_capped(segments, pieces[i].bytes);
    }
    /* PyTorch frees segments without blocks before a request fails, unless it rejects the request at once */
    if (f->row->rejected && run_is_known(f->tensor_reserved)) reserved = f->tensor_reserved;
    const int64_t capacity = arena_add_capped(free_bytes, reserved > segments ? reserved : segments);
    struct whatif_lane lane;
    whatif_lane_start(&lane, &layout->rules, false, capacity);
    whatif_lane_place(&lane, pieces, layout->n);
    r.frees_bytes = drop ? drop_blocks(&lane, b, layout, drop) : 0;
    const int64_t bytes = caching_rounded(&layout->rules, f->requested);
    r.known = !drop || r.frees_bytes > 0;
    r.fits = caching_allocate(lane.allocator, bytes, layout->stream, 0) != CACHING_NO_BLOCK;
    int64_t largest;
    r.spare_bytes = arena_add_capped(lane.capacity - lane.other, caching_cached(lane.allocator, &largest));
    whatif_lane_free(&lane);
    free(pieces);
    return r;
}

void oom_layout_decide(const struct site_builder *b, const struct oom_facts *f, const struct oom_drop *drop,
                       const char *name, struct result_measure *m)
{
    /* PyTorch refused by its own limit: how near it was is unknown */
    const bool capped = !f->device_failed && run_is_known(f->free) && f->free >= f->requested;
    const struct oom_replayed r = oom_layout_replay(b, f, drop, capped ? 0 : f->free);
    if (!r.known) return;
    m->replayed = name;
    m->fits = r.fits;
    m->spare_bytes = r.spare_bytes;
    m->frees_bytes = r.frees_bytes;
    m->first = m->first && r.fits;
}
