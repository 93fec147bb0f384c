/* Replays the recorded settings beside the recording: the driver of this replay answers each call as the recorded
 * driver did. The replay diverges at the first call that the recording does not have at this position. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/whatif/parts.h"
#include "analyzer/whatif/source.h"

struct call { /* of the recorded allocator to the driver */
    uint64_t address;
    int64_t bytes, ns;
    uint32_t stack, pool; /* pool: of freed memory, the private one; 0 the default one or unknown */
    bool free, page;
};

struct beside { /* a device, while its recording is replayed */
    struct proof *proof;
    size_t device; /* index of w->devices */
    struct caching_allocator *allocator;
    struct whatif_lane lane; /* only its map of blocks is used */
    struct whatif_dues dues;
    struct whatif_pool_map map;
    size_t next_fact;
    bool expandable;    /* expandable_segments now */
    bool uncertain;     /* whether another stream had finished with some freed block depends on the GPU's time */
    bool refused;       /* CUDA refused memory since the last tensor */
    int64_t synced;     /* how often it waited for all streams; RUN_UNKNOWN */
    int64_t syncs;      /* since the last event of a tensor */
    int64_t refused_ns; /* first */
    int64_t event_ns;   /* the last event of a tensor */
    struct call *calls; /* since the last event of a tensor: from `from` on */
    size_t from, calls_n, calls_cap;
    bool placed, fails; /* fails: the recorded request failed */
    uint64_t events;
    uint64_t last_segment, last_stream;
    uint32_t last_private; /* of the last request in a private pool */
    uint32_t last_user;    /* of the last request, if it is a MemPool; else 0 */
    uint32_t last_stack;   /* likewise */
    /* The recorded addresses of the replay's areas, derived from their first blocks; 0 not seen. Those below the first
     * area are counted downwards. */
    ARENA_LIST(uint64_t, areas_above);
    ARENA_LIST(uint64_t, areas_below);
    uint64_t lowest_area;          /* of these addresses */
    uint64_t newest;               /* of the last area; 0 unknown */
    bool descends;                 /* the last one that is known was below all others, or below one made before it */
    uint64_t request_address;      /* that the request got in the recording; 0 unknown */
    int64_t device_live, reserved; /* bytes, as recorded */
    int64_t asked_ns, most_live; /* when the memory in use on the device was last queried; most live bytes since then */
    int64_t allocated;
    size_t steps_done;
    int64_t begin_ns; /* the first free since the last allocation that belongs to the next step; 0 none */
};

struct proof {
    struct whatif *w;
    struct beside **list; /* as w->devices */
    size_t n, cap;
    const struct run_device_sample *samples;
    size_t samples_n, sample_next, pending_next;
    int64_t now_ns;
};

static struct whatif_device *device_at(struct beside *b)
{
    return &b->proof->w->devices[b->device];
}

static void part_replay(struct beside *b, const char *reason)
{
    struct whatif_proof *p = &b->proof->w->proof;
    if (p->parted_at_event) return;
    p->parted_at_event = b->events ? b->events : 1;
    p->parted_ns = b->proof->now_ns;
    b->proof->w->parted_blocks = p->blocks;
    if (!p->reason) p->reason = reason;
    if (b->proof->w->until_parted) run_stop_replay(b->proof->w->run);
}

/* The distance between areas of expandable segments in the replay, as a power of two, and the number of the first one,
 * above all recorded addresses. */
enum { AREA_BITS = 45, FIRST_AREA = 1 << 18 };

/* PyTorch maps pages in the lowest area that has room: a new area is below the others if the recorded one was, which
 * begins with the block of this request. */
static uint64_t add_proof_area(struct beside *b)
{
    const uint64_t base = b->request_address;
    const bool below = base && b->lowest_area ? base < b->lowest_area : b->descends;
    if (base && b->lowest_area) b->descends = below;
    if (base && (below || !b->lowest_area)) b->lowest_area = base;
    b->newest = base;
    *(below ? ARENA_ADD(b->areas_below) : ARENA_ADD(b->areas_above)) = base;
    return (below ? FIRST_AREA - b->areas_below_n : FIRST_AREA + b->areas_above_n - 1) << AREA_BITS;
}

static uint64_t *base_of_area(struct beside *b, uint64_t number)
{
    const uint64_t above = number - FIRST_AREA, below = FIRST_AREA - 1 - number;
    return above < b->areas_above_n ? &b->areas_above[above] : below < b->areas_below_n ? &b->areas_below[below] : NULL;
}

/* Is a block at its recorded address? In an area, a block is if it has the same distance from the area's start as
 * recorded. */
static inline bool is_placed(struct beside *b, uint64_t replayed, uint64_t recorded)
{
    if (replayed == recorded) return true;
    uint64_t *base = base_of_area(b, replayed >> AREA_BITS), offset = replayed & (((uint64_t)1 << AREA_BITS) - 1);
    if (!base) return false;
    if (!*base && b->newest) b->descends = b->newest < recorded;
    if (!*base) *base = recorded - offset;
    if (*base < b->lowest_area || !b->lowest_area) b->lowest_area = *base;
    return recorded == *base + offset;
}

static void proof_give_back(void *self, uint64_t address, int64_t bytes, int64_t page);

static bool proof_take_one(struct beside *b, int64_t bytes, bool page, uint64_t *address)
{
    const struct call *c = b->from < b->calls_n ? &b->calls[b->from] : NULL;
    if (!c && b->fails) return false;
    if (c && c->free) return false; /* refused: the allocator then frees cached segments */
    if (c && c->bytes == bytes) {
        if (!page) *address = c->page ? add_proof_area(b) : c->address;
        b->from++;
        b->proof->w->proof.segments_same++;
        return true;
    }
    part_replay(b, c ? "the replay requests a segment of another size" : "the replay requests one more segment");
    b->from += c != NULL;
    if (!page) *address = add_proof_area(b);
    return true;
}

/* Pages are recorded one by one. */
static bool proof_take(void *self, int64_t bytes, int64_t page, uint64_t *address)
{
    struct beside *b = self;
    if (!page) return proof_take_one(b, bytes, false, address);
    for (int64_t done = 0; done < bytes; done += page) {
        if (b->from == b->calls_n && !b->fails) {
            part_replay(b, "the replay requests one more segment");
            return true;
        }
        if (!proof_take_one(b, page, true, address)) {
            proof_give_back(b, *address, done, page);
            return false;
        }
    }
    return true;
}

static void proof_give_back(void *self, uint64_t address, int64_t bytes, int64_t page)
{
    struct beside *b = self;
    const int64_t each = page ? page : bytes;
    size_t at = b->from;
    for (int64_t left = bytes; left > 0; left -= each) {
        while (at < b->calls_n &&
               !(b->calls[at].free && (page ? b->calls[at].bytes == page : b->calls[at].address == address)))
            at++;
        if (at == b->calls_n) {
            part_replay(b, "the replay frees a segment that the recorded allocator kept");
            return;
        }
        memmove(&b->calls[b->from + 1], &b->calls[b->from], (at - b->from) * sizeof *b->calls);
        b->from++;
        at++;
    }
}

static uint64_t proof_reserve(void *self, int64_t bytes)
{
    struct beside *b = self;
    return add_proof_area(b);
}

static inline struct beside *beside_of(struct proof *p, uint32_t process, int device)
{
    const size_t at = whatif_device_of(p->w, process, device);
    while (p->n <= at) {
        struct beside *b = ARENA_NEW(struct beside, .proof = p, .device = p->n, .synced = RUN_UNKNOWN);
        *ARENA_PUSH(p->list, p->n, p->cap) = b;
    }
    return p->list[at];
}

/* Of the segments that were there before the recording. */
static void find_pools(struct beside *b)
{
    struct whatif_device *d = device_at(b);
    EACH_IN (p, d->pieces) {
        const int64_t before = whatif_begin(b->proof->w, d->process) - 1;
        const int64_t pool = p->block ? 0 : whatif_pool_map_at(&b->map, &d->facts, before, p->address);
        p->pool = pool > 0 ? (uint32_t)pool : 0;
    }
}

/* Created at the first use, when the memory from before the recording is known. */
static struct caching_allocator *proof_allocator_of(struct beside *b)
{
    if (!b->allocator) {
        const struct caching_driver driver = {b, proof_take, proof_give_back, proof_reserve};
        b->allocator = caching_allocator_new(&device_at(b)->rules, &driver);
        b->lane.allocator = b->allocator;
        b->expandable = device_at(b)->rules.expandable;
        find_pools(b);
        whatif_place(&b->lane, &b->dues, device_at(b));
    }
    return b->allocator;
}

/* Applies the facts that the recorder had read from the allocator by then. */
static inline void apply_facts(struct beside *b, int64_t ns)
{
    struct whatif_device *d = device_at(b);
    for (; b->next_fact < d->facts.n && d->facts.list[b->next_fact].ns <= ns; b->next_fact++) {
        const struct whatif_fact *fact = &d->facts.list[b->next_fact];
        if (fact->kind == GS_ALLOCATOR_CAP) caching_set_cap(proof_allocator_of(b), fact->value);
        if (fact->kind == GS_ALLOCATOR_UNUSED) caching_pool_unused(proof_allocator_of(b), (uint32_t)fact->value);
        if (fact->kind != GS_ALLOCATOR_SYNCED) continue;
        const bool known = b->synced != RUN_UNKNOWN, reset = known && fact->value < b->synced; /* by the program */
        if (known && fact->ns >= whatif_begin(b->proof->w, d->process))
            b->syncs += fact->value - (reset ? 0 : b->synced);
        d->unsure_flushes = d->unsure_flushes || reset;
        b->synced = fact->value;
    }
}

static bool empties_cache(const struct beside *b, uint32_t stack)
{
    return stack != RUN_NONE && run_stack_is_in(b->proof->w->run, stack, NULL, "empty_cache");
}

/* The program emptied a cache in which every segment was in use: only the count of waits shows it. The end of a
 * torch.cuda.MemPool counts, too. `retries`: of the request, each of which counts. */
static void note_unseen_flush(struct beside *b, int64_t retries)
{
    struct whatif_device *d = device_at(b);
    const bool unseen = b->syncs > retries && !(b->from < b->calls_n && b->calls[b->from].free);
    b->syncs = 0;
    if (!unseen || caching_has_spare(proof_allocator_of(b))) return;
    *ARENA_ADD(d->flushes) = (struct whatif_moment){b->proof->now_ns, 0};
    d->unsure_flushes = d->unsure_flushes || d->user_pools;
}

/* The private pool of which the calls from `from` on freed segments, up to *end at most, which becomes the first call
 * that did not; 0: the program emptied the whole cache. */
static uint32_t emptied_pool(const struct beside *b, size_t *end)
{
    const uint32_t pool = b->calls[b->from].pool;
    if (!pool || empties_cache(b, b->calls[b->from].stack)) return 0;
    for (size_t i = b->from; i < *end; i++)
        if (b->calls[i].pool != pool || empties_cache(b, b->calls[i].stack)) *end = i;
    return pool;
}

/* May the request that made the calls from `next` on have freed cached segments? Only if CUDA or the cap refused it. In
 * an expandable segment it may need no call after that. */
static bool may_free_for_request(const struct beside *b, size_t next)
{
    if (next == b->calls_n) return b->refused && b->expandable;
    int64_t bytes = 0;
    for (; next < b->calls_n; next++) bytes = arena_add_capped(bytes, b->calls[next].free ? 0 : b->calls[next].bytes);
    return b->refused || b->proof->w->imported || caching_cap_frees(b->allocator, bytes);
}

/* Did a private pool end, although a request that needs another pool came next? A request frees the cache only if CUDA
 * refused memory, which is rarer, and then it frees that of all pools. A snapshot states neither. */
static bool has_pool_ended(const struct beside *b, size_t next)
{
    const uint32_t pool = b->calls[b->from].pool;
    bool only = pool && b->proof->w->imported && next < b->calls_n && pool != b->calls[next].pool;
    for (size_t i = b->from; only && i < next; i++) only = b->calls[i].pool == pool;
    return only;
}

/* Calls that freed segments and belong to no request: the program emptied the cache, or a private pool ended. */
static void settle_pending(struct beside *b, bool requests)
{
    while (b->from < b->calls_n && b->calls[b->from].free) {
        size_t next = b->from;
        while (next < b->calls_n && b->calls[next].free) next++;
        const bool for_request = requests && may_free_for_request(b, next) && !has_pool_ended(b, next) &&
                                 !empties_cache(b, b->calls[b->from].stack);
        struct whatif_device *d = device_at(b);
        if (for_request)
            d->freed_unknown = d->freed_unknown || !whatif_has_python(b->proof->w->run, b->calls[b->from].stack);
        const size_t before = b->from;
        if (for_request || (requests && b->fails)) return;
        const struct whatif_moment flush = {b->proof->now_ns, emptied_pool(b, &next)};
        whatif_empty_as_recorded(proof_allocator_of(b), &flush);
        *ARENA_ADD(d->flushes) = flush;
        if (b->from == before) {
            part_replay(b, "the recorded allocator freed segments in which the replay has blocks");
            b->from = next;
        }
    }
}

/* The time up to which frees that waited for other streams had finished before the request. If CUDA refuses memory, or
 * the cap is reached, PyTorch waits for the others, frees the cache and requests the segment again. */
static int64_t finished_until(struct beside *b, int64_t alloc_ns)
{
    struct whatif_device *d = device_at(b);
    const struct caching_rules *rules = &d->rules;
    size_t first = b->from, next;
    while (first < b->calls_n && b->calls[first].free && empties_cache(b, b->calls[first].stack)) first++;
    for (next = first; next < b->calls_n && b->calls[next].free;) next++;
    if (next == b->calls_n || !b->dues.n) return alloc_ns;
    const bool frees_unasked = rules->gc_threshold > 0 || rules->max_split_bytes != INT64_MAX;
    if (!b->refused && (next == first || frees_unasked)) return alloc_ns;
    const struct whatif_moment retry = {alloc_ns, b->refused ? b->refused_ns : b->event_ns};
    *ARENA_ADD(d->retries) = retry;
    return retry.bytes;
}

static void finish_calls(struct beside *b)
{
    if (b->from < b->calls_n)
        part_replay(b, b->calls[b->from].free
                           ? "the recorded allocator freed a segment that the replay kept"
                           : "the recorded allocator requested a segment that the replay did not need");
    b->from = b->calls_n = 0;
}

static inline void count_peak(struct beside *b)
{
    struct whatif_device *d = device_at(b);
    struct whatif_outcome *r = &d->recorded;
    if (b->proof->now_ns < whatif_begin(b->proof->w, d->process) && !b->proof->w->imported) return;
    if (b->allocated > r->peak_allocated_bytes) r->peak_allocated_bytes = b->allocated;
    if (b->reserved > r->peak_reserved_bytes) {
        r->peak_reserved_bytes = b->reserved;
        r->peak_ns = b->proof->now_ns;
    }
}

/* If a request takes several unmapped parts of an expandable segment, the pages of the first ones count even if CUDA
 * refuses the others. Only the replay can tell. */
static void count_parts(struct beside *b)
{
    struct whatif_outcome *r = &device_at(b)->recorded;
    const int64_t peak = caching_totals(b->allocator)->peak_reserved;
    if (!b->expandable || b->proof->w->proof.parted_at_event || peak <= r->peak_reserved_bytes) return;
    r->peak_reserved_bytes = peak;
    r->peak_ns = b->proof->now_ns;
}

static void see_live(struct beside *b, int64_t bytes)
{
    b->device_live = bytes;
    b->most_live = bytes > b->most_live ? bytes : b->most_live;
}

/* A context grows when its kernels and libraries are loaded, at any time since the device was last queried (from 518 to
 * 611 MiB within the first seconds of PyTorch on an H200). A prediction must assume the worst: growth directly after
 * the last query, but never more than the free memory beside the live memory. */
static void add_base(struct beside *b, int64_t ns, int64_t bytes)
{
    struct whatif_device *d = device_at(b);
    const int64_t before = d->bases_n ? d->bases[d->bases_n - 1].bytes : bytes;
    const int64_t room = d->total == INT64_MAX ? INT64_MAX : d->total - b->most_live;
    if (bytes < 0) return;
    if (bytes > before && room > before) whatif_push_base(d, b->asked_ns, room < bytes ? room : bytes);
    whatif_push_base(d, d->bases_n ? ns : 0, bytes);
    b->asked_ns = ns;
    b->most_live = b->device_live;
}

/* CUDA's own figure in a call of the program: exact, and with the memory of other processes, which NVML's figure for
 * this process lacks. No later query lowers it. */
static void add_exact_base(struct beside *b, int64_t ns, int64_t bytes)
{
    struct whatif_device *d = device_at(b);
    add_base(b, ns, bytes);
    whatif_settle_bases(d);
    d->bases_settled = d->bases_n;
}

/* Reads NVML's figures for this process up to that time. NVML is queried concurrently with the program: a figure may
 * include an allocation that is not recorded yet, so the lowest of it and all later ones counts (whatif_settle_bases).
 */
static inline void read_samples(struct proof *p, uint32_t process, int64_t ns)
{
    for (; p->sample_next < p->samples_n; p->sample_next++) {
        const struct run_device_sample *s = &p->samples[p->sample_next];
        if (s->process > process || (s->process == process && s->time_ns > ns)) return;
        if (s->process != process || s->device < 0 || s->own_bytes <= 0) continue;
        struct beside *b = beside_of(p, process, s->device);
        if (s->time_ns > b->asked_ns) /* else a failed request has shown it since */
            add_base(b, s->time_ns, whatif_used_bytes(s, device_at(b)->total) - b->device_live);
    }
}

static void on_segment(struct beside *b, const struct run_lifetime *life, bool freed)
{
    struct whatif *w = b->proof->w;
    struct whatif_device *d = device_at(b);
    const bool page = life->space == GS_SPACE_VMM;
    b->reserved = arena_add_capped(b->reserved, freed ? -life->bytes : life->bytes);
    if (!page) count_peak(b); /* pages count with the tensor: a failed request unmaps its pages at once */
    if (!w->imported && whatif_is_gone(w, d->process, life)) return;
    if (!freed && whatif_was_before(w, d->process, life)) {
        const uint64_t stream = whatif_stream_before(w, d->process, life);
        *ARENA_ADD(d->pieces) = (struct whatif_piece){life->address, stream, life->bytes, .since_ns = life->alloc_ns};
        (void)whatif_note_segment(d, &b->map, life, false);
        if (page && !w->proof.reason)
            w->proof.reason = "expandable segments from before the first event are not replayed";
        return;
    }
    const int64_t pool = whatif_note_segment(d, &b->map, life, freed);
    if (pool > 0) whatif_facts_add_unused(&d->facts, life->free_ns, pool); /* otherwise the replay would not free it */
    if (!freed) {
        w->proof.segments++;
        if (!page && b->last_segment) d->ascents += life->address > b->last_segment ? 1 : -1;
        b->last_segment = page ? b->last_segment : life->address;
    }
    *ARENA_ADD(b->calls) = (struct call){life->address,
                                         life->bytes,
                                         b->proof->now_ns,
                                         freed ? run_free_stack(w->run, life) : life->stack,
                                         freed && pool > 0 ? (uint32_t)pool : 0,
                                         freed,
                                         page};
}

enum { STREAMS = 64 };
static const uint64_t new_stream = UINT64_MAX - 1; /* one that has no tensor yet; no recorded stream has this number */

static void note_stream(struct beside *b, uint64_t stream)
{
    struct whatif_device *d = device_at(b);
    if (stream == b->last_stream && d->streams_n) return;
    b->last_stream = stream;
    for (size_t i = 0; i < d->streams_n; i++)
        if (d->streams[i] == stream) return;
    if (d->streams_n < STREAMS) *ARENA_ADD(d->streams) = stream;
}

static bool is_refused(struct beside *b, int64_t bytes, uint64_t stream, uint32_t pool)
{
    const uint32_t block = caching_allocate(b->allocator, bytes, stream, pool);
    if (block == CACHING_NO_BLOCK) return true;
    caching_release(b->allocator, block);
    return false;
}

/* A recording states the streams of tensors, but not the stream of a request that failed: that is the last stream, or
 * another one that has no memory for it. Nor does it state the pool: if PyTorch freed no cached segment, that is the
 * last private one. If there was no such segment either, or requests in a MemPool free cached segments, it is that of
 * the request before if the same line made both, outside of captures; else the default one. `once`: PyTorch did not
 * wait for all streams and try again, as in all private pools before 2.13 and while a CUDA graph is captured; then it
 * may be the first request in a pool. */
static void refuse_replay(struct beside *b, const struct run_oom *failure, size_t oom, bool once)
{
    enum { UNSEEN_POOL = 2000 }; /* above those that facts number */
    struct whatif_device *d = device_at(b);
    const int64_t bytes = caching_rounded(&d->rules, failure->requested_bytes);
    const struct run *run = b->proof->w->run;
    const bool kept = b->from == b->calls_n, retries = caching_rules_have(&d->rules, CACHING_POOL_RETRY, NULL);
    const bool again = (kept || retries) && b->last_user &&
                       run_stack_python(run, failure->stack) == run_stack_python(run, b->last_stack);
    const bool held = once || (kept && caching_has_spare(b->allocator));
    uint32_t pool = kept && held ? b->last_private : again ? b->last_user : 0;
    caching_set_capturing(b->allocator, held);
    bool refused = is_refused(b, bytes, b->last_stream, pool);
    if (once && (!pool || !refused)) refused = is_refused(b, bytes, b->last_stream, pool = UNSEEN_POOL);
    if (pool) *map_at(&d->failed_in, oom) = 2 * pool + held;
    if (refused) return;
    const size_t known = d->streams_n;
    if (known < STREAMS) *ARENA_ADD(d->streams) = new_stream;
    for (size_t i = 0; i < d->streams_n; i++) {
        if (d->streams[i] == b->last_stream || !is_refused(b, bytes, d->streams[i], pool)) continue;
        *map_at(&d->failed_on, oom) = (uint32_t)i;
        d->streams_n = i < known ? known : d->streams_n;
        return;
    }
    part_replay(b, "the replay finds memory for the request that failed");
}

static void switch_expandable(struct beside *b, int64_t ns)
{
    struct whatif_device *d = device_at(b);
    b->expandable = !b->expandable;
    caching_set_expandable(b->allocator, b->expandable);
    *ARENA_ADD(d->switches) = (struct whatif_moment){ns, b->expandable};
}

static inline bool is_block_placed(struct beside *b, const struct run_lifetime *life, uint32_t block)
{
    return is_placed(b, caching_block_address(b->allocator, block), life->address);
}

static bool finds_recorded_block(struct beside *b, const struct run_lifetime *life, int64_t bytes)
{
    const uint32_t block = caching_find_block(b->allocator, bytes, b->last_stream, 0);
    return block != CACHING_NO_BLOCK && is_block_placed(b, life, block);
}

/* A program can switch expandable segments while it runs. The kind of the next segment shows it, or, in a program that
 * did so before, which free block is used; else how a block is split (allocate_as_recorded). */
static void note_switch(struct beside *b, const struct run_lifetime *life, int64_t bytes)
{
    size_t at = b->from;
    while (at < b->calls_n && b->calls[at].free) at++;
    if (at < b->calls_n) {
        if (b->calls[at].page != b->expandable) switch_expandable(b, life->alloc_ns);
        return;
    }
    if (!device_at(b)->switches_n || finds_recorded_block(b, life, bytes)) return;
    caching_set_expandable(b->allocator, !b->expandable);
    const bool other = finds_recorded_block(b, life, bytes);
    caching_set_expandable(b->allocator, b->expandable);
    if (other) switch_expandable(b, life->alloc_ns);
}

/* Snapshots have the requested size and, for blocks at the end, the block's own size; recordings have the latter. */
static inline const char *difference_of(struct beside *b, const struct run_lifetime *life, uint32_t block, bool placed)
{
    if (!placed) return "the replay places a block at another address";
    return !b->proof->w->imported && caching_block_bytes(b->allocator, block) != life->bytes
               ? "the replay gives a block another size"
               : NULL;
}

/* The same request again, after `block`, which differs from the recorded one, was freed. */
static uint32_t allocate_again(struct beside *b, const struct run_lifetime *life, int64_t bytes, uint32_t pool,
                               uint32_t block)
{
    caching_release(b->allocator, block);
    if (caching_find_block(b->allocator, bytes, b->last_stream, pool) == CACHING_NO_BLOCK) return CACHING_NO_BLOCK;
    return whatif_lane_allocate(&b->lane, run_live_number(b->proof->w->run, life), bytes, b->last_stream, pool);
}

/* If the replay takes a free block otherwise than the recording, tries what else decides how much of it is split off:
 * expandable segments switched, or, in a private pool, that it never splits (torch.cuda.MemPool(no_split=True)). */
static uint32_t allocate_as_recorded(struct beside *b, const struct run_lifetime *life, int64_t bytes, uint32_t pool)
{
    struct whatif_device *d = device_at(b);
    const bool in_cache = b->from == b->calls_n;
    uint32_t block =
        whatif_lane_allocate(&b->lane, run_live_number(b->proof->w->run, life), bytes, b->last_stream, pool);
    if (block == CACHING_NO_BLOCK || b->proof->w->proof.parted_at_event ||
        !difference_of(b, life, block, is_block_placed(b, life, block)) || (!pool && !in_cache))
        return block;
    if (pool)
        caching_set_unsplit(b->allocator, pool, true);
    else
        caching_set_expandable(b->allocator, !b->expandable);
    block = allocate_again(b, life, bytes, pool, block);
    const bool same = block != CACHING_NO_BLOCK && !difference_of(b, life, block, is_block_placed(b, life, block));
    if (same && pool) *ARENA_ADD(d->unsplit) = pool;
    if (same && !pool) switch_expandable(b, life->alloc_ns);
    if (same) return block;
    if (pool)
        caching_set_unsplit(b->allocator, pool, false);
    else
        caching_set_expandable(b->allocator, b->expandable);
    if (block != CACHING_NO_BLOCK) caching_release(b->allocator, block);
    return whatif_lane_allocate(&b->lane, run_live_number(b->proof->w->run, life), bytes, b->last_stream, pool);
}

/* At an event of a tensor; `stack`: of an allocation. Frees before a step's first allocation can belong to the step. */
static inline void note_step(struct beside *b, int64_t ns, uint32_t stack)
{
    struct whatif_device *d = device_at(b);
    const struct step_list *steps = whatif_steps_of(b->proof->w, d->process);
    size_t done = steps ? step_count_done(steps, ns) : 0;
    const bool left = steps && done == b->steps_done && whatif_is_after_loop(b->proof->w, steps, stack) &&
                      step_at(steps, ns) != SIZE_MAX;
    d->loops += left;
    done += left;
    if (done <= b->steps_done) return;
    b->steps_done = done;
    *ARENA_ADD(d->ends) = (struct whatif_moment){b->begin_ns ? b->begin_ns : ns, (int64_t)done};
}

static void note_beginning(struct beside *b, const struct run_lifetime *life)
{
    struct whatif *w = b->proof->w;
    const struct step_list *steps = whatif_steps_of(w, device_at(b)->process);
    note_step(b, life->free_ns, RUN_NONE);
    if (steps && !b->begin_ns && whatif_is_beginning(w, steps, run_free_stack(w->run, life)))
        b->begin_ns = life->free_ns;
}

static void on_tensor(struct beside *b, const struct run_lifetime *life)
{
    struct whatif *w = b->proof->w;
    struct whatif_device *d = device_at(b);
    b->allocated = arena_add_capped(b->allocated, life->bytes);
    count_peak(b);
    if (whatif_was_before(w, d->process, life)) {
        const bool gone = whatif_is_gone(w, d->process, life);
        const int64_t until = gone ? whatif_waits_until(w, d->process, life) : 0;
        if (gone && !until) return;
        *ARENA_ADD(d->pieces) = (struct whatif_piece){.address = life->address,
                                                      .stream = whatif_stream_of(life),
                                                      .bytes = life->bytes,
                                                      .until_ns = until,
                                                      .block = true};
        return;
    }
    struct caching_allocator *a = proof_allocator_of(b);
    const struct caching_totals *totals = caching_totals(a);
    const uint64_t retries = totals->retries, unsplit = totals->unsplit;
    bool pool_unknown;
    const uint32_t pool = whatif_pool_of(d, &b->map, life, &pool_unknown);
    if (pool_unknown && !w->proof.reason) w->proof.reason = "the private pools of some blocks are unknown";
    d->captures = d->captures || life->space == GS_SPACE_POOL;
    /* a snapshot has the same for both */
    d->user_pools = d->user_pools || (pool && (w->imported || life->space != GS_SPACE_POOL));
    apply_facts(b, life->alloc_ns);
    note_step(b, life->alloc_ns, life->stack);
    whatif_note_pause(w, d->process, life);
    whatif_note_thread(w, d, life);
    b->begin_ns = 0;
    b->events++;
    w->proof.blocks++;
    const bool restored = whatif_restores(&b->lane, w->run, life, pool);
    w->proof.blocks_placed += restored;
    if (restored) return;
    note_stream(b, whatif_stream_of(life));
    whatif_release_due(&b->dues, a, finished_until(b, life->alloc_ns));
    b->event_ns = life->alloc_ns;
    note_unseen_flush(b, b->refused);
    w->proof.unsure_frees = w->proof.unsure_frees || b->uncertain;
    if (b->from < b->calls_n) settle_pending(b, true);
    b->refused = false;
    const bool known = run_requested(life) != RUN_UNKNOWN;
    const int64_t bytes = known ? whatif_asked(&d->rules, life) : life->bytes;
    if (!pool && (b->from < b->calls_n || d->switches_n)) note_switch(b, life, bytes);
    caching_set_capturing(a, life->space == GS_SPACE_POOL);
    whatif_note_capture(d, a, life);
    b->last_private = pool ? pool : b->last_private;
    b->last_user = life->space == GS_SPACE_POOL ? 0 : pool;
    b->last_stack = life->stack;
    b->request_address = life->address;
    const uint32_t block = allocate_as_recorded(b, life, bytes, pool);
    b->request_address = 0;
    if (block == CACHING_NO_BLOCK) {
        part_replay(b, "the replay finds no memory for a request that succeeded");
    } else {
        const bool placed = is_block_placed(b, life, block);
        if (pool) whatif_lane_note_pool(&b->lane, run_live_number(w->run, life), life->address);
        const char *difference = difference_of(b, life, block, placed);
        w->proof.blocks_placed += placed;
        if (difference) part_replay(b, difference);
        const bool whole = totals->unsplit > unsplit;
        if (whole && !known && (!w->imported || life->free_ns == RUN_NEVER)) w->proof.unsure_sizes = true;
        count_parts(b);
    }
    d->recorded.retries += totals->retries - retries;
    finish_calls(b);
}

static void proof_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct proof *p = self;
    p->now_ns = life->alloc_ns;
    read_samples(p, series->process, p->now_ns);
    if (life->device < 0) return;
    if (life->layer == GS_LAYER_TENSOR) {
        on_tensor(beside_of(p, series->process, life->device), life);
    } else if (series->layer == RUN_SERIES_DEVICE) {
        struct beside *b = beside_of(p, series->process, life->device);
        see_live(b, series->live_bytes);
        if (whatif_is_segment(p->w, life)) on_segment(b, life, false);
    }
}

static void proof_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct proof *p = self;
    p->now_ns = life->free_ns;
    read_samples(p, series->process, p->now_ns);
    if (life->device < 0) return;
    struct beside *b = NULL;
    if (life->layer == GS_LAYER_TENSOR) {
        b = beside_of(p, series->process, life->device);
        b->allocated = arena_add_capped(b->allocated, -life->bytes);
        if (whatif_is_gone(p->w, series->process, life)) return;
        (void)proof_allocator_of(b);
        apply_facts(b, life->free_ns);
        note_beginning(b, life);
        whatif_note_freeing(p->w, device_at(b), life);
        b->events++;
        b->event_ns = life->free_ns;
        note_unseen_flush(b, 0);
        if (b->from < b->calls_n) settle_pending(b, false);
        const int64_t until = whatif_pending_until(p->w, series->process, &p->pending_next, life);
        const uint32_t block = whatif_lane_take(&b->lane, run_live_number(p->w->run, life), life->address);
        if (block == CACHING_NO_BLOCK) return;
        b->uncertain = b->uncertain || (until != RUN_UNKNOWN && life->space != GS_SPACE_POOL);
        if (until == RUN_UNKNOWN)
            caching_release(b->allocator, block);
        else
            whatif_release_at(&b->dues, b->allocator, block, until);
    } else if (series->layer == RUN_SERIES_DEVICE) {
        b = beside_of(p, series->process, life->device);
        see_live(b, series->live_bytes);
        if (whatif_is_segment(p->w, life)) on_segment(b, life, true);
    }
}

static void proof_on_sample(void *self, const struct run_sample *s)
{
    struct proof *p = self;
    if (s->device < 0 || s->free_bytes < 0 || s->total_bytes <= 0) return;
    struct beside *b = beside_of(p, s->process, s->device);
    device_at(b)->total = s->total_bytes;
    add_exact_base(b, s->time_ns, s->total_bytes - s->free_bytes - b->device_live);
}

static void proof_on_oom(void *self, const struct run_oom *oom, size_t index)
{
    struct proof *p = self;
    if (oom->device < 0) return;
    struct beside *b = beside_of(p, oom->process, oom->device);
    struct whatif_device *d = device_at(b);
    p->now_ns = oom->time_ns;
    if (oom->free_bytes >= 0) {
        if (oom->total_bytes > 0) d->total = oom->total_bytes;
        if (d->total == INT64_MAX)
            d->total = arena_add_capped(b->device_live, oom->free_bytes); /* all memory that is available to it */
        add_exact_base(b, oom->time_ns, d->total - oom->free_bytes - b->device_live);
    }
    if (oom->time_ns < whatif_begin(p->w, oom->process)) return;
    if (oom->layer != GS_LAYER_TENSOR) {
        b->refused_ns = b->refused ? b->refused_ns : oom->time_ns;
        b->refused = true;
        return;
    }
    if (run_oom_is_end(oom) && d->recorded.fits) {
        d->recorded.fits = false;
        d->recorded.oom = (struct whatif_failure){.time_ns = oom->time_ns,
                                                  .requested_bytes = oom->requested_bytes,
                                                  .reserved_bytes = b->reserved,
                                                  .allocated_bytes = b->allocated,
                                                  .event = b->events,
                                                  .process = oom->process,
                                                  .stack = oom->stack,
                                                  .device = oom->device};
    }
    struct caching_allocator *a = proof_allocator_of(b);
    const uint64_t retries = caching_totals(a)->retries;
    apply_facts(b, oom->time_ns);
    const bool once = d->facts.syncs && b->synced != RUN_UNKNOWN && !b->syncs && !oom->rejected;
    note_unseen_flush(b, 1);
    if (!b->refused && !oom->rejected && !p->w->imported && !caching_is_capped(a) && !p->w->proof.reason &&
        !caching_is_too_large(a, oom->requested_bytes))
        p->w->proof.reason = "a request failed that CUDA did not refuse: PyTorch's memory limit is unknown";
    b->refused = false;
    b->fails = true;
    if (oom->requested_bytes > 0) refuse_replay(b, oom, index, once);
    b->fails = false;
    count_parts(b);
    d->recorded.retries += caching_totals(a)->retries - retries;
    finish_calls(b);
}

/* NVML's samples after the last event: a short run has no others. */
static void proof_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    read_samples(self, process, end_ns);
}

bool whatif_prove(struct whatif *w, char *error, size_t error_size)
{
    struct proof p = {.w = w};
    p.samples = run_device_samples(w->run, &p.samples_n);
    const struct run_observer observer = {.self = &p,
                                          .beside = true,
                                          .alloc = proof_on_alloc,
                                          .free = proof_on_free,
                                          .oom = proof_on_oom,
                                          .sample = proof_on_sample,
                                          .process_end = proof_on_process_end};
    size_t devices;
    const struct run_device *list = run_devices(w->run, &devices);
    for (size_t i = 0; i < devices; i++)
        if (list[i].device >= 0) (void)beside_of(&p, list[i].process, list[i].device);
    bool ok = run_replay_requests(w->run, &observer, 1, error, error_size);
    for (size_t i = 0; i < p.n; i++) {
        struct beside *b = p.list[i];
        if (b->allocator) apply_facts(b, INT64_MAX);
        settle_pending(b, false);
        if (b->allocator) device_at(b)->recorded.segments = caching_totals(b->allocator)->peak_segments;
        caching_allocator_free(b->allocator);
        whatif_lane_forget(&b->lane);
        whatif_pool_map_free(&b->map);
        ARENA_RELEASE(b->dues.list, b->calls, b->areas_above, b->areas_below, b);
    }
    free(p.list);
    whatif_conclude_proof(w);
    if (ok && !w->proof.blocks)
        snprintf(error, error_size,
                 "nothing can be replayed: no allocation of PyTorch's caching allocator was recorded");
    return ok && w->proof.blocks;
}
