/* The recording replayed under other rules. All scenarios run in one pass over the recording. A scenario ends for a
 * device if a request fails that did not fail in the recording: how the program would have continued is unknown. */
#include <stdlib.h>
#include <string.h>
#include "analyzer/whatif/parts.h"
#include "analyzer/whatif/rules.h"
#include "analyzer/whatif/source.h"
#include "analyzer/whatif/sums.h"

struct left_out {
    uint32_t number;  /* run_live_number */
    uint64_t address; /* recorded */
    int64_t free_ns;
    bool needed; /* a parameter or the state of an optimizer */
    bool holds;  /* perhaps other tensors, by its graph: older ones that are freed in the same step */
    bool used;   /* perhaps by the step that frees it */
};
enum { MORE_TURNS = 3 }; /* than a thread has that loads a model */

/* Is a call path at the line that is left out? Then its tensor may have a graph, or has none. */
enum match { MATCH_UNKNOWN, MATCH_NOT, MATCH_GRAPH, MATCH_NO_GRAPH };

enum { LAST_STACKS = 64 };
struct track { /* a device under one scenario */
    struct whatif_lane lane;
    struct caching_rules rules;
    struct whatif_dues dues;
    struct left_out *without; /* blocks that end with their step, unless the program frees them earlier */
    size_t without_n, without_cap, next_base, next_end, next_flush, next_fact, next_switch, next_retry, pending_next;
    int64_t next_ns; /* none of these events is before it */
    uint64_t steps_done;
    struct map other_ends;  /* other tensors, no part of the model, by the step in which they are freed: the last step
                               that allocated one */
    uint64_t holding_steps; /* whose tensors outlive the next step, and may hold others */
    uint64_t held_steps;    /* some of whose tensors a later one may hold that outlives the next step */
    size_t held_n;          /* of `without`, those that a later tensor of the step may hold */
    int64_t base, peak_ns, peak_reserved;
    uint64_t last_stream, events, requests;
    bool open, over;                   /* over: it ran out of memory */
    bool answers_otherwise;            /* to the query of free memory since the last event of a tensor */
    bool refused;                      /* CUDA refused memory since that event, in the recording */
    uint32_t last_stacks[LAST_STACKS]; /* of requests, a ring */
    bool reserved_differs;             /* from what was reserved in the recording, at some request */
    bool figures_differ;               /* that, or what was allocated */
    bool own_cap, own_expandable;      /* the scenario sets them */
    struct whatif_drawing drawing;
    struct whatif_sums sums; /* of --without */
};

struct recorded_totals {         /* of a device */
    int64_t reserved, allocated; /* at the current event */
    int64_t others;              /* what other processes held at most */
};

/* What can differ in another run of the same program: how long freed blocks wait for other streams, because the GPU may
 * take more or less time, for all of them or for some; and the addresses of segments. */
enum variant { AS_RECORDED, WAITS_NOT, WAITS_LONGER, WAITS_MIXED, WAITS_OTHERWISE, MIRRORED, MIXED, BOTH, VARIANTS };
_Static_assert(MIXED - MIRRORED + WHATIF_MIRRORED == WHATIF_MIXED, "BOTH is the sum of the two orders");

struct play {
    struct whatif *w;
    struct whatif_scenario *scenario;
    enum variant variant;
    struct track *tracks;                   /* as w->devices */
    struct whatif_pool_map *maps;           /* likewise, of all scenarios */
    const struct recorded_totals *recorded; /* likewise */
    uint8_t *matches;                       /* by stack: enum match */
    uint8_t *graphs;  /* by stack: 0 not examined, 1 its tensors may have a graph after their step, 2 they have none */
    const char *file; /* of that line */
    size_t file_length;
    int line;
};

/* "train.py:42" */
static bool parse_line(struct play *p, const char *text)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    long line = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!colon || colon == text || end == colon + 1 || *end || line < 1 || line > INT32_MAX) return false;
    p->file = text;
    p->file_length = (size_t)(colon - text);
    p->line = (int)line;
    return true;
}

static bool is_at(const struct play *p, const struct run_frame *f)
{
    const size_t n = f->file ? strlen(f->file) : 0;
    return f->line == p->line && n >= p->file_length &&
           memcmp(f->file + n - p->file_length, p->file, p->file_length) == 0 &&
           (n == p->file_length || strchr("/\\", f->file[n - p->file_length - 1]));
}

static enum match match_of(struct play *p, uint32_t stack)
{
    if (!p->matches || stack == RUN_NONE || stack >= p->w->owners_n) return MATCH_NOT;
    uint8_t *match = &p->matches[stack];
    if (*match) return *match;
    *match = MATCH_NOT;
    for (uint32_t at = stack; at != RUN_NONE && *match == MATCH_NOT; at = run_stack_parent(p->w->run, at)) {
        const struct run_frame *frame = run_stack_frame(p->w->run, at);
        if (!is_at(p, frame)) continue;
        const bool graph =
            !whatif_is_graphless(&p->w->sources, at) && !site_is_without_gradients(&p->w->sources, stack);
        *match = whatif_is_workspace(p->w, stack) ? MATCH_NOT : graph ? MATCH_GRAPH : MATCH_NO_GRAPH;
        break;
    }
    return *match;
}

/* The stacks are a tree of frames: a call path is at the line if one of them is. */
static bool is_any_stack_at(const struct play *p)
{
    for (size_t i = 0; i < p->w->owners_n; i++)
        if (is_at(p, run_stack_frame(p->w->run, (uint32_t)i))) return true;
    return false;
}

static void run_out(struct play *p, struct track *t, struct whatif_failure failure, bool recorded);

static void open_track(struct play *p, struct track *t)
{
    const struct whatif_device *d = &p->w->devices[t - p->tracks];
    t->open = true;
    t->next_ns = INT64_MIN;
    whatif_lane_start(&t->lane, &t->rules, d->ascents < 0, p->scenario->limit ? p->scenario->limit : d->total);
    t->lane.order = p->variant >= MIRRORED ? p->variant - MIRRORED + WHATIF_MIRRORED : 0;
    for (size_t i = 0; i < d->unsplit_n; i++) caching_set_unsplit(t->lane.allocator, d->unsplit[i], true);
    whatif_place(&t->lane, &t->dues, d);
    if (t->lane.left_out) p->scenario->outcome.doubts |= WHATIF_BEFORE;
    const struct whatif_scenario *s = p->scenario;
    if (d->pieces_n && (s->conf || s->without || s->flush_every || s->scale))
        p->scenario->outcome.doubts |= WHATIF_BEGINS;
    if (p->scenario->curve) {
        t->drawing.curve = arena_zeroed(1, sizeof *t->drawing.curve);
        t->drawing.curve->end_ns = p->scenario->curve->end_ns;
    }
    if (t->lane.other > t->lane.capacity) {
        const int64_t missing = t->lane.other - t->lane.capacity;
        const struct whatif_failure failure = {
            .requested_bytes = missing, .process = d->process, .stack = RUN_NONE, .device = d->device};
        run_out(p, t, failure, false);
    }
}

static inline struct track *track_of(struct play *p, uint32_t process, int device)
{
    struct track *t = &p->tracks[whatif_device_of(p->w, process, device)];
    if (!t->open) open_track(p, t);
    return t;
}

/* At the end of a step, `next_ns` before the end of the next one. */
static void drop_left_out(struct play *p, struct track *t, int64_t ns, int64_t next_ns)
{
    bool holds = false, held = false;
    for (size_t i = 0; i < t->without_n; i++) {
        if (t->without[i].free_ns <= ns) continue; /* another one may have its number now */
        const uint32_t block = whatif_lane_take(&t->lane, t->without[i].number, t->without[i].address);
        if (block == CACHING_NO_BLOCK) continue;
        caching_release(t->lane.allocator, block);
        t->sums.outlived = true;
        if (t->without[i].needed) p->scenario->outcome.doubts |= WHATIF_NEEDED;
        if (t->without[i].used) p->scenario->outcome.doubts |= WHATIF_USED;
        holds = holds || (t->without[i].holds && t->without[i].free_ns > next_ns);
        held = held || (i < t->held_n && t->without[i].free_ns > next_ns);
    }
    t->holding_steps += holds;
    t->held_steps += held;
    if (t->holding_steps > 1) p->scenario->outcome.doubts |= WHATIF_HOLDS; /* once: the first step's own */
    if (t->held_steps > 1) p->scenario->outcome.doubts |= WHATIF_HELD;
    t->without_n = t->held_n = 0;
}

/* How many steps have ended when a tensor is freed: all, if it is freed after them or never. */
static uint64_t end_of(const struct play *p, const struct track *t, const struct run_lifetime *life)
{
    const struct whatif_device *d = &p->w->devices[t - p->tracks];
    size_t low = 0, high = d->ends_n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (d->ends[middle].ns <= life->free_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool keeps_graph(struct play *p, uint32_t stack)
{
    if (stack >= p->w->owners_n) return false;
    if (!p->graphs[stack]) p->graphs[stack] = whatif_keeps_graph(&p->w->sources, stack) ? 1 : 2;
    return p->graphs[stack] == 1;
}

/* A tensor that stays. */
static void note_other(struct play *p, struct track *t, const struct run_lifetime *life, uint32_t process)
{
    const uint64_t end = p->matches ? end_of(p, t, life) : 0;
    if (end <= t->next_end + 1) return; /* of this step or the next one */
    const struct step_list *steps = whatif_steps_of(p->w, process);
    if (!steps || step_at(steps, life->alloc_ns) == SIZE_MAX) return;
    switch (whatif_category(p->w, life)) {
    case RESULT_CATEGORY_PARAMETERS:
    case RESULT_CATEGORY_GRADIENTS:
    case RESULT_CATEGORY_OPTIMIZER_STATE:
    case RESULT_CATEGORY_WORKSPACES: return;
    default: *map_at(&t->other_ends, end) = (uint32_t)t->next_end;
    }
    if (t->held_n < t->without_n && keeps_graph(p, life->stack)) t->held_n = t->without_n;
}

/* A tensor holds an older one by its graph only if they are freed together, as far as the step shows. After the last
 * step, many are. */
static bool may_hold_others(const struct play *p, const struct track *t, const struct run_lifetime *life)
{
    const uint64_t end = end_of(p, t, life);
    const uint32_t step = map_get(&t->other_ends, end);
    return step != MAP_NEW && (end < p->w->devices[t - p->tracks].ends_n || step == t->next_end);
}

static int64_t first_ns(const struct whatif_moment *list, size_t n, size_t next, int64_t least)
{
    return next < n && list[next].ns < least ? list[next].ns : least;
}

static void advance_events(struct play *p, struct track *t, int64_t ns)
{
    const struct whatif_device *d = &p->w->devices[t - p->tracks];
    const uint64_t every = p->scenario->flush_every;
    for (; t->next_base < d->bases_n && d->bases[t->next_base].ns <= ns; t->next_base++) {
        t->lane.other = arena_add_capped(t->lane.other, d->bases[t->next_base].bytes - t->base);
        t->base = d->bases[t->next_base].bytes;
    }
    for (; t->next_fact < d->facts.n && d->facts.list[t->next_fact].ns <= ns; t->next_fact++) {
        const struct whatif_fact *f = &d->facts.list[t->next_fact];
        if (f->kind == GS_ALLOCATOR_CAP && f->value) t->answers_otherwise = false; /* PyTorch queried it for the cap */
        if (f->kind == GS_ALLOCATOR_CAP && !t->own_cap)
            caching_set_cap(t->lane.allocator, whatif_rules_cap_on(&t->rules, f->value, d->total));
        else if (f->kind == GS_ALLOCATOR_CAP && f->value != d->rules.gc_memory) /* by a call, which overrides it */
            p->scenario->outcome.doubts |= WHATIF_FRACTION;
        if (f->kind == GS_ALLOCATOR_UNUSED) caching_pool_unused(t->lane.allocator, (uint32_t)f->value);
    }
    for (; t->next_switch < d->switches_n && d->switches[t->next_switch].ns <= ns; t->next_switch++)
        if (!t->own_expandable) caching_set_expandable(t->lane.allocator, d->switches[t->next_switch].bytes);
    for (; t->next_flush < d->flushes_n && d->flushes[t->next_flush].ns <= ns; t->next_flush++)
        whatif_empty_as_recorded(t->lane.allocator, &d->flushes[t->next_flush]);
    for (; t->next_end < d->ends_n && d->ends[t->next_end].ns <= ns; t->next_end++) {
        const uint64_t done = (uint64_t)d->ends[t->next_end].bytes;
        drop_left_out(p, t, d->ends[t->next_end].ns,
                      t->next_end + 1 < d->ends_n ? d->ends[t->next_end + 1].ns : RUN_NEVER);
        if (every && done / every != t->steps_done / every) caching_empty_cache(t->lane.allocator);
        t->steps_done = done;
    }
    t->next_ns = t->next_fact < d->facts.n ? d->facts.list[t->next_fact].ns : RUN_NEVER;
    t->next_ns = first_ns(d->bases, d->bases_n, t->next_base, t->next_ns);
    t->next_ns = first_ns(d->switches, d->switches_n, t->next_switch, t->next_ns);
    t->next_ns = first_ns(d->flushes, d->flushes_n, t->next_flush, t->next_ns);
    t->next_ns = first_ns(d->ends, d->ends_n, t->next_end, t->next_ns);
}

/* Applies events without a request up to a time. */
static inline void advance_play(struct play *p, struct track *t, int64_t ns)
{
    if (ns >= t->next_ns) advance_events(p, t, ns);
}

static void note_peak(struct track *t, int64_t ns)
{
    const int64_t reserved = caching_totals(t->lane.allocator)->peak_reserved;
    if (reserved <= t->peak_reserved) return;
    t->peak_reserved = reserved;
    t->peak_ns = ns;
}

/* After an event at `ns`. */
static void note_curve(struct track *t, int64_t ns)
{
    whatif_draw(&t->drawing, ns, caching_totals(t->lane.allocator)->reserved);
}

/* From 1; 0: in none, or unknown. */
static uint64_t step_of_failure(const struct whatif *w, const struct whatif_failure *f)
{
    const struct step_list *steps = whatif_steps_of(w, f->process);
    const size_t step = steps ? step_at(steps, f->time_ns) : SIZE_MAX;
    return step == SIZE_MAX ? 0 : step + 1;
}

void whatif_name_steps(struct whatif *w, const struct step_list *const *steps, size_t steps_n,
                       struct whatif_scenario *scenarios, size_t n)
{
    w->steps = steps;
    w->steps_n = steps_n;
    for (size_t i = 0; i < n; i++) {
        struct whatif_outcome *o = &scenarios[i].outcome;
        if (!scenarios[i].error && !o->fits) o->oom.step = step_of_failure(w, &o->oom);
    }
}

/* The program's call path at a failure. PyTorch records no frames in threads of autograd: then that of the last request
 * that has some, because backward() was called after it. */
static uint32_t calling_stack(const struct play *p, const struct track *t, uint32_t stack)
{
    const uint64_t from = t->requests > LAST_STACKS ? t->requests - LAST_STACKS : 0;
    for (uint64_t i = t->requests; !whatif_has_python(p->w->run, stack) && i-- > from;)
        stack = t->last_stacks[i % LAST_STACKS];
    return stack;
}

/* `recorded`: the recording ended with it, too. */
static void run_out(struct play *p, struct track *t, struct whatif_failure failure, bool recorded)
{
    struct whatif_outcome *o = &p->scenario->outcome;
    const struct caching_totals *totals = caching_totals(t->lane.allocator);
    t->over = true;
    if (!o->fits && o->oom.time_ns <= failure.time_ns) return;
    if (p->w->devices[t - p->tracks].user_pools && caching_rules_have(&t->rules, CACHING_USE_ON_OOM, NULL) &&
        (p->w->imported || !(whatif_read_source(p->w) & WHATIF_PLAIN_POOLS)))
        o->doubts |= WHATIF_USE_ON_OOM;
    o->doubts &= ~(unsigned)WHATIF_CAUGHT;
    if (!recorded && whatif_is_caught(&p->w->sources, calling_stack(p, t, failure.stack))) o->doubts |= WHATIF_CAUGHT;
    failure.reserved_bytes = totals->reserved;
    failure.allocated_bytes = totals->allocated;
    failure.event = t->events;
    failure.step = step_of_failure(p->w, &failure);
    o->fits = false;
    o->oom = failure;
}

/* When a request began to wait for other streams, because it freed the cache; else its own time. */
static int64_t waits_from(const struct play *p, struct track *t, int64_t ns)
{
    const struct whatif_device *d = &p->w->devices[t - p->tracks];
    while (t->next_retry < d->retries_n && d->retries[t->next_retry].ns < ns) t->next_retry++;
    return t->next_retry < d->retries_n && d->retries[t->next_retry].ns == ns ? d->retries[t->next_retry].bytes : ns;
}

/* The memory of the device that is free; RUN_UNKNOWN. */
static int64_t play_free_bytes(const struct track *t)
{
    return t->lane.capacity == INT64_MAX ? RUN_UNKNOWN : t->lane.capacity - t->lane.other;
}

/* PyTorch queries the free memory for the message of an error, before it reports it, and 2.15 after each request that
 * CUDA refused: nothing depends on that. */
static void settle_query(struct play *p, struct track *t, bool failed)
{
    if (t->answers_otherwise && !failed && !(whatif_read_source(p->w) & WHATIF_SHOWS_FREE))
        p->scenario->outcome.doubts |= WHATIF_FREE;
    t->answers_otherwise = t->refused = false;
}

static void play_on_sample(struct play *p, const struct run_sample *s)
{
    enum { SAME = 2 << 20 }; /* the context grows by less between two queries */
    if (s->device < 0 || s->free_bytes < 0 || s->time_ns < whatif_begin(p->w, s->process)) return;
    struct track *t = track_of(p, s->process, s->device);
    if (t->over || t->refused) return;
    advance_play(p, t, s->time_ns);
    const int64_t free_bytes = play_free_bytes(t);
    t->answers_otherwise =
        t->answers_otherwise || (free_bytes != RUN_UNKNOWN && llabs(free_bytes - s->free_bytes) > SAME);
}

/* After a request that the recording has, too. */
static void note_figures(const struct play *p, struct track *t)
{
    const struct caching_totals *totals = caching_totals(t->lane.allocator);
    const struct recorded_totals *r = &p->recorded[t - p->tracks];
    t->reserved_differs = t->reserved_differs || totals->reserved != r->reserved;
    t->figures_differ = t->figures_differ || t->reserved_differs || totals->allocated != r->allocated;
}

static void play_allocation(struct play *p, struct track *t, const struct run_lifetime *life, uint32_t process)
{
    advance_play(p, t, life->alloc_ns);
    settle_query(p, t, false);
    if (whatif_was_before(p->w, process, life)) return; /* it is placed, or was freed */
    t->last_stream = whatif_stream_of(life);
    whatif_release_due(&t->dues, t->lane.allocator, waits_from(p, t, life->alloc_ns));
    const struct whatif_scale *scale = p->scenario->scale;
    const int64_t bytes = scale ? whatif_scaled(p->w, &t->rules, life, process, scale) : whatif_asked(&t->rules, life);
    const struct whatif_device *d = &p->w->devices[t - p->tracks];
    bool unknown; /* the proof reports it */
    const uint32_t pool = whatif_pool_of(d, &p->maps[t - p->tracks], life, &unknown);
    const uint32_t number = run_live_number(p->w->run, life);
    if (whatif_restores(&t->lane, p->w->run, life, pool)) return;
    caching_set_capturing(t->lane.allocator, life->space == GS_SPACE_POOL);
    whatif_lane_note_thread(&t->lane, life->thread, pool);
    if (whatif_lane_allocate(&t->lane, number, bytes, t->last_stream, pool) == CACHING_NO_BLOCK) {
        run_out(p, t,
                (struct whatif_failure){.time_ns = life->alloc_ns,
                                        .requested_bytes = bytes,
                                        .process = process,
                                        .stack = life->stack,
                                        .device = life->device},
                false);
        return;
    }
    if (pool) whatif_lane_note_pool(&t->lane, number, life->address);
    t->events++;
    t->last_stacks[t->requests++ % LAST_STACKS] = life->stack;
    note_figures(p, t);
    note_peak(t, life->alloc_ns);
    note_curve(t, life->alloc_ns);
    const enum match match = match_of(p, life->stack);
    if (p->matches) whatif_sums_allocate(&t->sums, life, number, match != MATCH_NOT);
    if (match == MATCH_NOT) {
        note_other(p, t, life, process);
        return;
    }
    const enum result_category category = whatif_category(p->w, life);
    const bool needed = category == RESULT_CATEGORY_PARAMETERS || category == RESULT_CATEGORY_OPTIMIZER_STATE;
    *ARENA_ADD(t->without) = (struct left_out){number,
                                               life->address,
                                               life->free_ns,
                                               needed,
                                               match == MATCH_GRAPH && may_hold_others(p, t, life),
                                               whatif_may_be_used(&p->w->sources, life, process)};
}

static void play_on_alloc(struct play *p, const struct run_lifetime *life, const struct run_series *series)
{
    if (life->device < 0) return;
    const bool tensor = life->layer == GS_LAYER_TENSOR;
    const bool segment = !tensor && series->layer == RUN_SERIES_DEVICE && whatif_is_segment(p->w, life);
    if (!tensor && series->layer != RUN_SERIES_DEVICE) return;
    struct track *t = track_of(p, series->process, life->device);
    if (t->over) return;
    if (segment && life->space != GS_SPACE_VMM && !whatif_was_before(p->w, series->process, life))
        whatif_lane_note_segment(&t->lane, life->address, life->bytes);
    else if (segment)
        return;
    else if (tensor)
        play_allocation(p, t, life, series->process);
    else
        t->lane.other = arena_add_capped(t->lane.other, life->bytes);
}

static int64_t wait_end_of(const struct play *p, const struct track *t, const struct run_lifetime *life, int64_t until)
{
    if (until == RUN_UNKNOWN || p->variant == AS_RECORDED || p->variant >= MIRRORED) return until;
    const enum variant mixed = map_hash(t->events) & 1 ? WAITS_MIXED : WAITS_OTHERWISE;
    if (p->variant == WAITS_NOT || p->variant == mixed) return life->free_ns;
    if (until == RUN_NEVER) return until;
    const int64_t waited = until - life->free_ns, longest = p->w->longest_wait;
    return arena_add_capped(until, waited > longest - waited ? waited : longest - waited);
}

static void play_on_free(struct play *p, const struct run_lifetime *life, const struct run_series *series)
{
    if (life->device < 0) return;
    const bool tensor = life->layer == GS_LAYER_TENSOR;
    if (!tensor && (series->layer != RUN_SERIES_DEVICE || whatif_is_segment(p->w, life))) return;
    struct track *t = track_of(p, series->process, life->device);
    if (t->over) return;
    if (!tensor) {
        t->lane.other = arena_add_capped(t->lane.other, -life->bytes);
        return;
    }
    if (whatif_is_gone(p->w, series->process, life)) return;
    advance_play(p, t, life->free_ns);
    t->events++;
    const int64_t until = wait_end_of(p, t, life, whatif_pending_until(p->w, series->process, &t->pending_next, life));
    const uint32_t number = run_live_number(p->w->run, life);
    if (p->matches) whatif_sums_free(&t->sums, life, number);
    const uint32_t block = whatif_lane_take(&t->lane, number, life->address);
    if (block == CACHING_NO_BLOCK) return;
    if (until == RUN_UNKNOWN)
        caching_release(t->lane.allocator, block);
    else
        whatif_release_at(&t->dues, t->lane.allocator, block, until);
    note_curve(t, life->free_ns);
}

static void play_on_oom(struct play *p, const struct run_oom *oom, size_t index)
{
    if (oom->time_ns < whatif_begin(p->w, oom->process)) return;
    if (oom->device < 0) return;
    struct track *t = track_of(p, oom->process, oom->device);
    struct whatif_outcome *o = &p->scenario->outcome;
    t->refused = t->refused || oom->layer != GS_LAYER_TENSOR;
    if (t->over || oom->layer != GS_LAYER_TENSOR || oom->requested_bytes <= 0) return;
    advance_play(p, t, oom->time_ns);
    settle_query(p, t, true);
    if (oom->rejected) o->doubts |= WHATIF_REJECTED;
    const int64_t bytes = caching_rounded(&t->rules, oom->requested_bytes);
    const struct whatif_device *d = &p->w->devices[t - p->tracks];
    const uint64_t stream = whatif_failed_stream(d, index, t->last_stream);
    bool held;
    const uint32_t pool = whatif_failed_pool(d, index, &held);
    caching_set_capturing(t->lane.allocator, held);
    const uint32_t block = caching_allocate(t->lane.allocator, bytes, stream, pool);
    note_peak(t, oom->time_ns);
    if (block == CACHING_NO_BLOCK) {
        if (run_oom_is_end(oom)) {
            run_out(p, t,
                    (struct whatif_failure){.time_ns = oom->time_ns,
                                            .requested_bytes = bytes,
                                            .process = oom->process,
                                            .stack = oom->stack,
                                            .device = oom->device},
                    true);
        }
        return;
    }
    const int64_t spare = play_free_bytes(t);
    if (!run_oom_is_end(oom)) o->doubts |= WHATIF_HANDLED;
    if (run_oom_is_end(oom)) o->request_fits = true, o->spare_bytes = spare;
    if (p->scenario->requests) p->scenario->requests[index] = (struct whatif_request){true, spare};
    caching_release(t->lane.allocator, block); /* in the recording it failed: nothing uses it */
}

/* All scenarios are one observer, because each needs the segments' pools as they are at its event. */
struct stage {
    struct whatif *w;
    struct whatif_pool_map *maps;
    struct recorded_totals *recorded;
    struct play **plays;
    size_t n;
};

static inline void track_totals(const struct stage *s, const struct run_lifetime *life, const struct run_series *series,
                                bool freed)
{
    const bool tensor = life->layer == GS_LAYER_TENSOR;
    if (life->device < 0 || (!tensor && (series->layer != RUN_SERIES_DEVICE || !whatif_is_segment(s->w, life)))) return;
    const size_t at = whatif_device_of(s->w, series->process, life->device);
    int64_t *total = tensor ? &s->recorded[at].allocated : &s->recorded[at].reserved;
    *total = arena_add_capped(*total, freed ? -life->bytes : life->bytes);
    if (!tensor) (void)whatif_note_segment(&s->w->devices[at], &s->maps[at], life, freed);
}

static void stage_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    const struct stage *s = self;
    track_totals(s, life, series, false);
    for (size_t i = 0; i < s->n; i++) play_on_alloc(s->plays[i], life, series);
}

static void stage_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    const struct stage *s = self;
    track_totals(s, life, series, true);
    for (size_t i = 0; i < s->n; i++) play_on_free(s->plays[i], life, series);
}

static void stage_on_oom(void *self, const struct run_oom *oom, size_t index)
{
    const struct stage *s = self;
    for (size_t i = 0; i < s->n; i++) play_on_oom(s->plays[i], oom, index);
}

static void stage_on_sample(void *self, const struct run_sample *sample)
{
    const struct stage *s = self;
    for (size_t i = 0; i < s->n; i++) play_on_sample(s->plays[i], sample);
}

static bool prepare_play(struct play *p, struct whatif *w, struct whatif_scenario *s)
{
    char error[256];
    *p = (struct play){.w = w, .scenario = s};
    s->outcome = (struct whatif_outcome){.fits = true, .spare_bytes = RUN_UNKNOWN, .capacity_bytes = RUN_UNKNOWN};
    p->tracks = arena_zeroed(w->devices_n + 1, sizeof *p->tracks);
    if (s->without && !parse_line(p, s->without)) {
        s->error = arena_printf(&w->arena, "--without: '%s' is not a line such as train.py:42", s->without);
        return false;
    }
    if ((s->without || s->flush_every) && !w->steps_n) {
        s->error = "no steps were found in this run";
        return false;
    }
    if (s->without && !is_any_stack_at(p)) {
        s->error = arena_printf(&w->arena,
                                "--without: '%s' is in no call path of this recording; 'gpuspy table --what "
                                "allocated' lists the lines that allocate",
                                s->without);
        return false;
    }
    if ((s->without || s->flush_every) && !whatif_ends_are_sure(w)) s->outcome.doubts |= WHATIF_STEPS;
    if (s->without) p->matches = arena_alloc(&w->arena, w->owners_n + 1);
    if (s->without) p->graphs = arena_alloc(&w->arena, w->owners_n + 1);
    for (size_t i = 0; i < w->devices_n; i++) {
        struct track *t = &p->tracks[i];
        const int64_t total = w->devices[i].total;
        t->rules = w->devices[i].rules;
        t->rules.device_bytes = s->limit ? s->limit : total == INT64_MAX ? w->devices[i].rules.device_bytes : total;
        t->rules.device_guessed = !s->limit && total == INT64_MAX;
        t->rules.allowed_bytes = whatif_rules_cap_on(&t->rules, t->rules.gc_memory, w->devices[i].rules.device_bytes);
        t->rules.gc_memory = t->rules.allowed_bytes;
        if (!t->rules.allowed_bytes) t->rules.allowed_bytes = INT64_MAX;
        t->own_expandable = s->conf && strstr(s->conf, "expandable_segments:");
        t->own_cap = s->conf && strstr(s->conf, "per_process_memory_fraction");
        if (s->conf && !whatif_rules_parse(&t->rules, s->conf, error, sizeof error)) {
            s->error = arena_printf(&w->arena, "%s", error);
            return false;
        }
    }
    return true;
}

/* Does the program decide by figures that differ from the recording, or set what the scenario sets? */
static void doubt_decisions(struct play *p)
{
    struct whatif *w = p->w;
    struct whatif_scenario *s = p->scenario;
    bool size = false, figures = false, unseen = false;
    for (size_t i = 0; i < w->devices_n; i++) {
        const struct track *t = &p->tracks[i];
        size = size || (t->open && s->limit && s->limit != w->devices[i].total);
        figures = figures || (t->open && t->figures_differ);
        unseen = unseen || (t->open && t->figures_differ && whatif_may_miss_flush(w, &w->devices[i]));
    }
    if (unseen) s->outcome.doubts |= WHATIF_EMPTIED;
    if (!size && !figures && !s->conf) return;
    const unsigned facts = whatif_read_source(w);
    if (size && facts & WHATIF_TOTAL) s->outcome.doubts |= WHATIF_SIZE;
    if (figures && facts & WHATIF_ALLOCATOR) s->outcome.doubts |= WHATIF_FIGURES;
    if (w->imported && (size || figures) && facts & WHATIF_FREE_FIGURE) s->outcome.doubts |= WHATIF_FREE;
    if (s->conf && facts & WHATIF_ASSIGNS_CONF) s->outcome.doubts |= WHATIF_OWN_CONF;
    if (s->conf && facts & WHATIF_SETS_CONF) s->outcome.doubts |= WHATIF_RESETS;
    if (w->imported && (size || s->conf) && facts & WHATIF_SETS_FRACTION) s->outcome.doubts |= WHATIF_RESETS;
}

/* Other processes used the GPU: is there room for what they held at most, beside what this scenario needs? */
static bool has_room_for_others(const struct play *p, const struct track *t)
{
    const struct caching_totals *totals = caching_totals(t->lane.allocator);
    const int64_t others = p->recorded[t - p->tracks].others;
    if (!others || t->lane.capacity == INT64_MAX) return true;
    const int64_t room = arena_add_capped(t->lane.capacity, arena_add_capped(totals->reserved, -t->lane.other));
    return arena_add_capped(room, -totals->peak_reserved) >= others;
}

/* Do addresses that CUDA chose decide which memory serves a request? */
static bool is_address_used(const struct track *t)
{
    return caching_totals(t->lane.allocator)->area_choices ||
           (t->lane.parted && !caching_rules_have(&t->rules, CACHING_BLOCK_ORDER, NULL));
}

static void conclude_play(struct play *p)
{
    struct whatif_outcome *o = &p->scenario->outcome;
    const struct track *worst = NULL;
    const struct whatif_proof *proof = &p->w->proof;
    doubt_decisions(p);
    if (p->scenario->scale) o->doubts |= WHATIF_SCALED;
    if (proof->unsure_sizes) o->doubts |= WHATIF_SIZES;
    if (proof->unsure_frees) o->doubts |= WHATIF_FREES;
    if (proof->unsure_context && p->scenario->limit) o->doubts |= WHATIF_CONTEXT;
    for (size_t i = 0; i < p->w->devices_n; i++) {
        const struct track *t = &p->tracks[i];
        const struct whatif_device *d = &p->w->devices[i];
        if (!t->open) continue;
        if (!has_room_for_others(p, t)) o->doubts |= WHATIF_SHARED;
        if (is_address_used(t)) o->doubts |= WHATIF_ADDRESSES;
        if (d->turns >= MORE_TURNS || d->races) o->doubts |= WHATIF_THREADS;
        if (whatif_sums_depend(&t->sums)) o->doubts |= WHATIF_SUMS;
        if (d->captures && d->rules.capture_reuse != t->rules.capture_reuse) o->doubts |= WHATIF_CAPTURE_REUSE;
        if (t->lane.unsure_retry && !caching_rules_have(&t->rules, CACHING_POOL_RETRY, NULL)) o->doubts |= WHATIF_POOL;
        const bool failed = !o->fits && o->oom.process == d->process && o->oom.device == d->device;
        if (!worst || failed || (o->fits && t->peak_reserved > worst->peak_reserved)) worst = t;
        if (failed) break;
    }
    if (!worst) return;
    const struct whatif_device *d = &p->w->devices[worst - p->tracks];
    const struct caching_totals *totals = caching_totals(worst->lane.allocator);
    o->peak_allocated_bytes = totals->peak_allocated;
    o->peak_reserved_bytes = totals->peak_reserved;
    o->peak_ns = worst->peak_ns;
    o->segments = totals->peak_segments;
    o->retries = totals->retries;
    o->cached_bytes = caching_cached(worst->lane.allocator, &o->largest_free_bytes);
    o->capacity_bytes = worst->lane.capacity == INT64_MAX ? RUN_UNKNOWN : worst->lane.capacity;
    o->process = d->process;
    o->device = d->device;
    if (!worst->drawing.curve) return;
    whatif_draw_end(&worst->drawing, worst->over);
    *p->scenario->curve = *worst->drawing.curve;
}

static void release_play(struct play *p)
{
    for (size_t i = 0; p->tracks && i < p->w->devices_n; i++) {
        struct track *t = &p->tracks[i];
        if (t->open) whatif_lane_free(&t->lane);
        ARENA_RELEASE(t->dues.list, t->without);
        map_free(&t->other_ends);
        free(t->drawing.curve);
        whatif_sums_release(&t->sums);
    }
    free(p->tracks);
}

/* A snapshot does not state the size of the GPU, nor whether segments were freed for a request or by the program. */
static bool needs_check(const struct whatif *w)
{
    bool needs = w->imported;
    for (size_t i = 0; i < w->devices_n; i++) needs = needs || w->devices[i].user_pools || w->devices[i].captures;
    return needs;
}

/* The recorded settings, as a scenario: it must reserve what was recorded. If it does not because CUDA refused memory,
 * scenarios with a limit show where it refuses. */
static void doubt_replay(const struct play *recorded, struct whatif_scenario *scenarios, size_t n)
{
    const struct whatif_device *devices = recorded->w->devices;
    bool differs = false, unknown = false;
    for (size_t i = 0; i < recorded->w->devices_n; i++) {
        differs = differs || recorded->tracks[i].reserved_differs;
        unknown = unknown || devices[i].freed_unknown || devices[i].user_pools || devices[i].captures;
    }
    for (size_t i = 0; differs && i < n; i++)
        if (unknown || !scenarios[i].limit) scenarios[i].outcome.doubts |= WHATIF_FREED;
}

static struct recorded_totals *new_totals(const struct whatif *w)
{
    struct recorded_totals *totals = arena_zeroed(w->devices_n + 1, sizeof *totals);
    RUN_EACH (s, run_device_samples, w->run) {
        const uint32_t at = map_get(&w->device_at, whatif_device_key(s->process, s->device));
        if (at != MAP_NEW && s->other_bytes > totals[at].others) totals[at].others = s->other_bytes;
    }
    return totals;
}

/* `variants`: of each; NULL: as recorded. `check`: also the recorded settings. */
static bool play_all(struct whatif *w, struct whatif_scenario *scenarios, const enum variant *variants, size_t n,
                     bool check, char *error, size_t error_size)
{
    struct whatif_scenario recorded = {.name = ""};
    struct play *plays = arena_zeroed(n + 1, sizeof *plays);
    struct stage stage = {.w = w,
                          .maps = arena_zeroed(w->devices_n + 1, sizeof *stage.maps),
                          .recorded = new_totals(w),
                          .plays = arena_zeroed(n + 1, sizeof *stage.plays)};
    const struct run_observer observer = {.self = &stage,
                                          .beside = true,
                                          .alloc = stage_on_alloc,
                                          .free = stage_on_free,
                                          .oom = stage_on_oom,
                                          .sample = stage_on_sample};
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = !scenarios[i].scale || whatif_read_categories(w, error, error_size);
    for (size_t i = 0; i < n + check; i++) {
        if (!prepare_play(&plays[i], w, i < n ? &scenarios[i] : &recorded)) continue;
        if (variants) plays[i].variant = variants[i];
        plays[i].maps = stage.maps;
        plays[i].recorded = stage.recorded;
        stage.plays[stage.n++] = &plays[i];
    }
    ok = ok && (!stage.n || run_replay_requests(w->run, &observer, 1, error, error_size));
    for (size_t i = 0; i < n; i++)
        if (ok && !scenarios[i].error) conclude_play(&plays[i]);
    if (check) doubt_replay(&plays[n], scenarios, n);
    for (size_t i = 0; i < n + check; i++) release_play(&plays[i]);
    for (size_t i = 0; i < w->devices_n; i++) whatif_pool_map_free(&stage.maps[i]);
    ARENA_RELEASE(stage.maps, stage.recorded, stage.plays, plays);
    return ok;
}

bool whatif_run(struct whatif *w, struct whatif_scenario *scenarios, size_t n, char *error, size_t error_size)
{
    return play_all(w, scenarios, NULL, n, needs_check(w), error, error_size);
}

bool whatif_vary(struct whatif *w, struct whatif_scenario *scenarios, size_t n, char *error, size_t error_size)
{
    static const unsigned doubts[VARIANTS] = {[WAITS_NOT... WAITS_OTHERWISE] = WHATIF_FREES,
                                              [MIRRORED... BOTH] = WHATIF_ADDRESSES};
    struct whatif_scenario *others = arena_zeroed(n * VARIANTS + 1, sizeof *others);
    enum variant *variants = arena_zeroed(n * VARIANTS + 1, sizeof *variants);
    size_t *of = arena_zeroed(n * VARIANTS + 1, sizeof *of), others_n = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned found = scenarios[i].outcome.doubts;
        const bool exact_but_for = w->proof.exact && !(found & ~(unsigned)(WHATIF_FREES | WHATIF_ADDRESSES));
        if (!exact_but_for) scenarios[i].outcome.doubts &= ~(unsigned)WHATIF_ADDRESSES;
        for (unsigned k = 1; k < VARIANTS && exact_but_for && !scenarios[i].error; k++) {
            if (!(found & doubts[k])) continue;
            others[others_n] = scenarios[i];
            others[others_n].curve = NULL;
            others[others_n].requests = NULL;
            variants[others_n] = (enum variant)k;
            of[others_n++] = i;
        }
    }
    const bool ok = !others_n || play_all(w, others, variants, others_n, false, error, error_size);
    for (size_t i = 0; ok && i < others_n; i++) scenarios[of[i]].outcome.doubts &= ~doubts[variants[i]];
    for (size_t i = 0; ok && i < others_n; i++)
        if (!whatif_is_same_outcome(&scenarios[of[i]].outcome, &others[i].outcome))
            scenarios[of[i]].outcome.doubts |= doubts[variants[i]];
    ARENA_RELEASE(others, variants, of);
    return ok;
}
