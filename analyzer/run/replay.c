/* Replays a run: tells observers its allocations and frees, which rows.c delivers, and the rows of the small tables
 * (failures, samples, PyTorch's reserved total), in order of time. */
#include "analyzer/run/beside.h"
#include "analyzer/run/rows.h"

#include <stdlib.h>
#include <string.h>

struct call { /* one observer's interest in one kind of event */
    void *self;
    void (*tell)(void *self, const struct run_lifetime *life, const struct run_series *series);
};

struct last_series { /* of one process; zero-initialise */
    int kind;
    uint32_t series;
};

struct run_replay {
    struct run *run;
    ARENA_ROWS(const struct run_observer, observers);
    struct calls {
        ARENA_ROWS(struct call, list);
    } on_alloc, on_free;
    struct run_beside *beside; /* passes events to other observers, or NULL */
    uint32_t process;
    _Alignas(64) int64_t now; /* from here on written for each event: not in a cache line that another core reads */
    /* live lifetimes; an unused slot has location RUN_NONE */
    ARENA_LIST(struct run_lifetime, live);
    uint32_t *free_stacks; /* by slot; only if `detailed` */
    bool detailed;         /* addresses, streams and the calls that freed are read */
    /* positions in the small tables; side_ns is the earliest of the three */
    size_t oom, sample, reserved;
    int64_t side_ns;
    struct last_series last;
    bool again;                /* not the first replay of the run */
    uint64_t rows, rows_total; /* read, and approximately to be read; of all processes */
    uint64_t damaged;
};

#define TELL(r, call, ...)                           \
    for (size_t o_ = 0; o_ < (r)->observers_n; o_++) \
        if ((r)->observers[o_].call) (r)->observers[o_].call((r)->observers[o_].self, __VA_ARGS__);

#define SIDE_TIME(list, index) \
    ((index) < run->list##_n && run->list[index].process == r->process ? run->list[index].time_ns : RUN_NEVER)

static void side_next(struct run_replay *r)
{
    const struct run *run = r->run;
    int64_t oom = SIDE_TIME(ooms, r->oom), sample = SIDE_TIME(samples, r->sample);
    int64_t reserved = SIDE_TIME(reserved, r->reserved);
    r->side_ns = oom < sample ? oom : sample;
    r->side_ns = reserved < r->side_ns ? reserved : r->side_ns;
}

static void tell_other(struct run_replay *r, enum run_beside_kind kind, size_t index)
{
    for (size_t i = 0; i < r->observers_n; i++)
        if (!r->beside || !r->observers[i].beside) run_beside_tell(r->run, &r->observers[i], kind, index);
    if (r->beside) run_beside_add_other(r->beside, kind, index);
}

/* All events of the earliest time: first the totals, then what depends on them. */
static void emit_side_events(struct run_replay *r)
{
    struct run *run = r->run;
    int64_t at = r->side_ns;
    for (; SIDE_TIME(reserved, r->reserved) == at && at != RUN_NEVER; r->reserved++)
        tell_other(r, RUN_BESIDE_RESERVED, r->reserved);
    for (; SIDE_TIME(samples, r->sample) == at && at != RUN_NEVER; r->sample++)
        tell_other(r, RUN_BESIDE_SAMPLE, r->sample);
    for (; SIDE_TIME(ooms, r->oom) == at && at != RUN_NEVER; r->oom++) {
        struct run_oom *o = &run->ooms[r->oom];
        if (!r->again) o->stack = run_backward_stack(run, o->process, o->thread, o->stack, o->time_ns);
        tell_other(r, RUN_BESIDE_OOM, r->oom);
    }
    side_next(r);
}

static void side_start(struct run_replay *r)
{
    const struct run *run = r->run;
#define SKIP(list, index)                                                                      \
    for (index = 0; index < run->list##_n && run->list[index].process < r->process; index++) { \
    }
    SKIP(ooms, r->oom)
    SKIP(samples, r->sample)
    SKIP(reserved, r->reserved)
#undef SKIP
    side_next(r);
}

/* The observers stay the same during a replay, which the compiler cannot know. */
static inline void tell_lifetime(const struct calls *calls, const struct run_lifetime *life, const struct run_series *s)
{
    for (const struct call *c = calls->list, *end = c + calls->list_n; c < end; c++) c->tell(c->self, life, s);
}

static void end_life(struct run_replay *r, uint32_t slot)
{
    struct run_lifetime *life = &r->live[slot];
    if (life->location == RUN_NONE) return; /* it was damaged */
    while (r->side_ns < life->free_ns) emit_side_events(r);
    struct run_location *l = &r->run->locations[life->location];
    struct run_series *s = &r->run->series[life->series];
    r->now = life->free_ns > r->now ? life->free_ns : r->now;
    l->live_bytes = arena_add_capped(l->live_bytes, -life->bytes);
    l->live_count--;
    s->live_bytes = arena_add_capped(s->live_bytes, -life->bytes);
    s->live_count--;
    s->frees++;
    s->freed_bytes = arena_add_capped(s->freed_bytes, life->bytes);
    tell_lifetime(&r->on_free, life, s);
    if (r->beside) run_beside_add_free(r->beside, slot, s);
    life->location = RUN_NONE;
}

static const uint8_t series_layer[4][8] = {
    [GS_LAYER_DEVICE] = {[GS_SPACE_PINNED] = RUN_SERIES_PINNED,
                         [GS_SPACE_HOST] = RUN_SERIES_HOST,
                         [GS_SPACE_SHARED] = RUN_SERIES_SHARED},
    [GS_LAYER_TENSOR] = {[0 ... 7] = RUN_SERIES_TENSOR},
    [GS_LAYER_HOST] = {[0 ... 7] = RUN_SERIES_HOST},
    [3] = {[0 ... 7] = RUN_SERIES_HOST},
};

/* enum run_series_layer from enum gs_layer and enum gs_space. */
static unsigned layer_from(unsigned layer, unsigned space, int device)
{
    const unsigned series = series_layer[layer][space];
    return series == RUN_SERIES_DEVICE && space == GS_SPACE_VMM && device < 0 ? RUN_SERIES_PINNED : series;
}

enum run_series_layer run_removed_layer(const struct run_removed *removed)
{
    return (enum run_series_layer)layer_from(removed->layer, removed->space, removed->device);
}

/* Its totals begin with those of the rows that a recording of bounded size lost. */
static void add_removed_totals(const struct run *run, struct run_series *s)
{
    EACH_IN (r, run->removed) {
        if (r->what != GS_REMOVED_ALLOCATION || r->process != s->process || run_removed_layer(r) != s->layer ||
            (s->device >= 0 && r->device != s->device))
            continue;
        s->allocations += r->count;
        s->frees += r->count;
        s->allocated_bytes = arena_add_capped(s->allocated_bytes, r->bytes);
        s->freed_bytes = arena_add_capped(s->freed_bytes, r->bytes);
    }
}

static uint32_t series_at(struct run *run, uint32_t process, int device, unsigned layer)
{
    device = layer == RUN_SERIES_PINNED || layer == RUN_SERIES_HOST ? -1 : device;
    uint32_t *table = run->series_of[process];
    if (!table) {
        size_t n = RUN_DEVICE_SLOTS * RUN_SERIES_LAYERS;
        table = run->series_of[process] = arena_realloc(NULL, n, sizeof *table);
        memset(table, 0xff, n * sizeof *table);
    }
    uint32_t *at = &table[(device + 1) * RUN_SERIES_LAYERS + (int)layer];
    if (*at == RUN_NONE) {
        *at = (uint32_t)run->series_n;
        ARENA_APPEND(run->series, .process = process, .device = device, .layer = (enum run_series_layer)layer);
        add_removed_totals(run, &run->series[*at]);
    }
    return *at;
}

/* Most stacks have one location: the last one is stored by stack. */
static uint32_t location_at(struct run *run, uint32_t series, uint32_t stack)
{
    uint32_t *last = stack < run->last_location_n ? &run->last_location[stack] : NULL;
    if (last && *last != RUN_NONE && run->locations[*last].series == series) return *last;
    const uint32_t at = MAP_INDEX_IN(&run->location_map, (uint64_t)series << 32 | stack, run->locations,
                                     (struct run_location){.series = series, .stack = stack});
    if (last) *last = at;
    return at;
}

/* In the slot, which is not in use. */
static struct run_lifetime *live_at_slot(struct run_replay *r, uint32_t slot)
{
    if (slot >= r->live_cap) {
        run_lifetimes_grow(&r->live, &r->live_cap, (size_t)slot + 1);
        if (r->detailed) r->free_stacks = arena_realloc(r->free_stacks, r->live_cap, sizeof *r->free_stacks);
    }
    r->live_n = slot < r->live_n ? r->live_n : (size_t)slot + 1;
    return &r->live[slot];
}

/* Consecutive lifetimes are mostly of one kind of memory. */
static inline uint32_t series_of(struct run *run, uint32_t process, struct last_series *last,
                                 const struct run_lifetime *life)
{
    const int kind = 1 << 16 | (life->device + 1) << 8 | life->layer << 4 | life->space;
    if (kind != last->kind)
        *last = (struct last_series){
            kind, series_at(run, process, life->device, layer_from(life->layer, life->space, life->device))};
    return last->series;
}

/* The copies are made from `life`, which was not written to: a vector load that overlaps a smaller store waits until
 * the store is in the cache. */
static void begin_life(struct run_replay *r, const struct run_lifetime *life, uint32_t free_stack, uint32_t slot)
{
    struct run *run = r->run;
    struct run_lifetime *kept = live_at_slot(r, slot);
    const uint32_t series = series_of(run, r->process, &r->last, life);
    struct run_series *s = &run->series[series];
    if (s->live_bytes > RUN_BYTES_MAX - life->bytes) {
        r->damaged++;
        kept->location = RUN_NONE;
        return;
    }
    const uint32_t location = location_at(run, series, life->stack);
    struct run_location *l = &run->locations[location];
    l->live_bytes += life->bytes;
    l->live_count++;
    s->live_bytes += life->bytes;
    s->live_count++;
    s->allocations++;
    s->allocated_bytes = arena_add_capped(s->allocated_bytes, life->bytes);
    if (s->live_bytes >= s->peak_bytes) {
        s->peak_bytes = s->live_bytes;
        s->peak_ns = life->alloc_ns;
    }
    r->now = life->alloc_ns > r->now ? life->alloc_ns : r->now;
    *kept = *life;
    kept->series = series;
    kept->location = location;
    if (r->free_stacks) r->free_stacks[slot] = free_stack;
    tell_lifetime(&r->on_alloc, kept, s);
    if (r->beside) run_beside_add_alloc(r->beside, life, kept, slot, free_stack, s);
}

static void replay_row(struct run_replay *r, const struct run_stored *row, uint32_t slot)
{
    struct run *run = r->run;
    struct run_lifetime life = row->life;
    if (run->backward.any) {
        run_backward_add_row(run, r->process, life.thread, life.stack, life.alloc_ns, life.free_ns);
        life.stack = run_backward_stack(run, r->process, life.thread, life.stack, life.alloc_ns);
        if (row->left_out) return;
    }
    while (r->side_ns < life.alloc_ns) emit_side_events(r);
    begin_life(r, &life, row->free_stack, slot);
}

enum { AHEAD = 8 };

/* Another core wrote the rows; lifetimes that end were used long ago. */
static inline void prefetch_event(const struct run_replay *r, const struct run_rows *batch, size_t event, size_t row)
{
    const uint32_t slot = batch->events[event] & ~RUN_ROWS_FREE;
    if (!(batch->events[event] & RUN_ROWS_FREE)) {
        if (row < batch->n) __builtin_prefetch(&batch->rows[row]);
    } else if (slot < r->live_n) {
        __builtin_prefetch(&r->live[slot]);
    }
}

static void replay_batch(void *self, struct run_rows *batch)
{
    struct run_replay *r = self;
    const struct run_stored *row = batch->rows;
    const uint64_t before = r->rows;
    for (size_t i = 0; i < batch->events_n && !r->run->stopped; i++) {
        const uint32_t event = batch->events[i];
        if (i + AHEAD < batch->events_n) prefetch_event(r, batch, i + AHEAD, (size_t)(row - batch->rows) + AHEAD);
        if (event & RUN_ROWS_FREE)
            end_life(r, event & ~RUN_ROWS_FREE);
        else
            replay_row(r, row++, event);
    }
    r->rows += batch->read;
    if (r->rows / RUN_PROGRESS_EACH != before / RUN_PROGRESS_EACH)
        run_show_progress(r->run, "allocations", r->rows / RUN_PROGRESS_EACH * RUN_PROGRESS_EACH, r->rows_total);
}

/* Addresses are needed only if a heap map may be requested, and if there are segments. */
static bool replay_rows(struct run_replay *r, char *error, size_t error_size)
{
    return run_rows_replay(r->run, r->process,
                           r->detailed      ? RUN_ROWS_WHOLE
                           : r->run->ooms_n ? RUN_ROWS_ADDRESSES
                                            : RUN_ROWS_SHORT,
                           r->beside ? RUN_BESIDE_BATCH : 0, replay_batch, r, &r->damaged, error, error_size);
}

static void locate_row(struct run *run, uint32_t process, struct last_series *last, struct run_lifetime *life)
{
    life->series = series_of(run, process, last, life);
    life->location = location_at(run, life->series, life->stack);
}

/* The replay's rule: what was allocated at the moment is live, what was freed at it is not. */
struct live_at {
    struct run *run;
    uint32_t process;
    struct last_series last;
    uint64_t rows;
    const int64_t *moments;
    size_t moments_n, next; /* next: the first moment that is not before the last allocation */
    run_live_at_fn each;
    void *self;
};

static void live_row(struct live_at *l, struct run_stored *row)
{
    struct run_lifetime *life = &row->life;
    while (l->next < l->moments_n && l->moments[l->next] < life->alloc_ns) l->next++;
    if (l->next == l->moments_n || life->free_ns <= l->moments[l->next]) return;
    life->stack = run_backward_stack(l->run, l->process, life->thread, life->stack, life->alloc_ns);
    locate_row(l->run, l->process, &l->last, life);
    for (size_t i = l->next; i < l->moments_n && l->moments[i] < life->free_ns; i++)
        l->each(l->self, i, life, row->free_stack);
}

static void show_rows(struct run *run, const char *what, uint64_t *rows, size_t more, uint64_t total)
{
    const uint64_t before = *rows;
    *rows += more;
    if (*rows / RUN_PROGRESS_EACH != before / RUN_PROGRESS_EACH)
        run_show_progress(run, what, *rows / RUN_PROGRESS_EACH * RUN_PROGRESS_EACH, total);
}

static void live_batch(void *self, struct run_rows *batch)
{
    struct live_at *l = self;
    show_rows(l->run, "allocations again", &l->rows, batch->read, 0);
    for (size_t i = 0; i < batch->n; i++) live_row(l, &batch->rows[i]);
}

bool run_each_live_at(struct run *run, uint32_t process, const int64_t *moments, size_t n, run_live_at_fn each,
                      void *self, char *error, size_t error_size)
{
    struct live_at l = {.run = run, .process = process, .moments = moments, .moments_n = n, .each = each, .self = self};
    return !n || run_rows_live(run, process, moments, n, live_batch, &l, error, error_size);
}

struct last {
    struct run *run;
    uint32_t process;
    struct last_series last;
    uint64_t rows, rows_total;
    run_last_fn each;
    void *self;
    bool all;
};

static void last_batch(void *self, struct run_rows *batch)
{
    struct last *e = self;
    show_rows(e->run, e->rows_total ? "allocations" : "allocations again", &e->rows, batch->read, e->rows_total);
    for (size_t i = 0; i < batch->n; i++) {
        struct run_lifetime *life = &batch->rows[i].life;
        if (i + AHEAD < batch->n) __builtin_prefetch(&batch->rows[i + AHEAD]);
        if (e->run->backward.any)
            life->stack = run_backward_stack(e->run, e->process, life->thread, life->stack, life->alloc_ns);
        if (e->all) locate_row(e->run, e->process, &e->last, life);
        e->each(e->self, life, batch->rows[i].free_stack);
    }
}

bool run_each_last(struct run *run, uint32_t process, int64_t rows_n, run_last_fn each, void *self, char *error,
                   size_t error_size)
{
    struct last e = {.run = run, .process = process, .each = each, .self = self, .all = rows_n == RUN_LAST_ALL};
    if (e.all) e.rows_total = run->processes[process].allocations;
    return e.all ? run_rows_scan(run, process, last_batch, &e, error, error_size)
                 : run_rows_last(run, process, rows_n, last_batch, &e, error, error_size);
}

bool run_each_lasting(struct run *run, uint32_t process, const int64_t *moments, size_t n, run_last_fn each, void *self,
                      char *error, size_t error_size)
{
    struct last e = {.run = run, .process = process, .each = each, .self = self, .all = true};
    e.rows_total = run->processes[process].allocations;
    return run_rows_lasting(run, process, moments, n, last_batch, &e, error, error_size);
}

static void forget_live(struct run_replay *r)
{
    r->live_n = 0;
    r->now = 0;
}

static bool replay_process(struct run_replay *r, uint32_t process, char *error, size_t error_size)
{
    struct run *run = r->run;
    forget_live(r);
    r->process = process;
    r->last = (struct last_series){0};
    if (r->beside) run_beside_begin(r->beside, process);
    side_start(r);
    TELL(r, process_start, process);
    if (!replay_rows(r, error, error_size)) return false;
    while (!run->stopped && r->side_ns != RUN_NEVER) emit_side_events(r);
    run_backward_finish(run, process);
    if (r->beside) run_beside_wait(r->beside);
    int64_t end = run->processes[process].end_ns;
    TELL(r, process_end, process, end > r->now ? end : r->now);
    run->processes[process].damaged += r->damaged;
    r->damaged = 0;
    return true;
}

static void list_replay_calls(struct run_replay *r)
{
    r->on_alloc.list = arena_realloc(NULL, r->observers_n, sizeof *r->on_alloc.list);
    r->on_free.list = arena_realloc(NULL, r->observers_n, sizeof *r->on_free.list);
    EACH_IN (o, r->observers) {
        if (o->beside && r->beside) continue;
        if (o->alloc) r->on_alloc.list[r->on_alloc.list_n++] = (struct call){o->self, o->alloc};
        if (o->free) r->on_free.list[r->on_free.list_n++] = (struct call){o->self, o->free};
    }
}

/* Moves what a replay found: the series and the locations. */
static void move_replayed(struct run *to, struct run *from)
{
    to->series_of = from->series_of;
    to->last_location = from->last_location;
    to->last_location_n = from->last_location_n;
    to->series = from->series;
    to->series_n = from->series_n;
    to->series_cap = from->series_cap;
    to->locations = from->locations;
    to->locations_n = from->locations_n;
    to->locations_cap = from->locations_cap;
    to->location_map = from->location_map;
    from->series_of = NULL;
    from->last_location = NULL;
    from->series = NULL;
    from->locations = NULL;
    from->location_map = (struct map){0};
    from->last_location_n = from->series_n = from->series_cap = from->locations_n = from->locations_cap = 0;
}

bool run_replay(struct run *run, const struct run_observer *observers, size_t n, char *error, size_t error_size)
{
    struct run_replay replay = {
        .run = run, .observers = observers, .observers_n = n, .detailed = run->options.memory_map || run->reserved_n};
    struct run before = {.processes_n = run->processes_n}; /* of the last replay */
    move_replayed(&before, run);
    run->series_of = arena_zeroed(run->processes_n, sizeof *run->series_of);
    run->last_location_n = run->stacks_n;
    run->last_location = arena_realloc(NULL, run->last_location_n, sizeof *run->last_location);
    memset(run->last_location, 0xff, run->last_location_n * sizeof *run->last_location);
    run->replay = &replay;
    run->stopped = false;
    bool ok = true;
    replay.again = run->replayed;
    run->replayed = true;
    for (size_t i = 0; i < run->processes_n; i++) {
        replay.rows_total = (uint64_t)arena_add_capped((int64_t)replay.rows_total,
                                                       (int64_t)(run->processes[i].allocations & INT64_MAX));
    }
    if (replay.rows_total >= RUN_ROWS_MANY && !run->backward.any) /* otherwise it creates stacks, which they read */
        replay.beside = run_beside_start(run, observers, n, replay.detailed);
    list_replay_calls(&replay);
    for (uint32_t i = 0; ok && i < run->processes_n && !run->stopped; i++)
        ok = replay_process(&replay, i, error, error_size);
    run_beside_end(replay.beside);
    run->replay = NULL;
    ARENA_RELEASE(replay.live, replay.free_stacks, replay.on_alloc.list, replay.on_free.list);
    if (run->stopped && before.series) { /* this one has found a part */
        run_replay_free(run);
        move_replayed(run, &before);
    }
    run_replay_free(&before);
    return ok;
}

bool run_replay_requests(struct run *run, const struct run_observer *observers, size_t n, char *error,
                         size_t error_size)
{
    run->as_requested = true;
    const bool ok = run_replay(run, observers, n, error, error_size);
    run->as_requested = false;
    return ok;
}

void run_stop_replay(struct run *run)
{
    run->stopped = true;
}

void run_replay_free(struct run *run)
{
    for (size_t i = 0; run->series_of && i < run->processes_n; i++) free(run->series_of[i]);
    ARENA_RELEASE(run->series_of, run->last_location, run->series, run->locations);
    map_free(&run->location_map);
    run->series_of = NULL;
    run->last_location = NULL;
    run->last_location_n = 0;
    run->series = NULL;
    run->locations = NULL;
    run->series_n = run->series_cap = run->locations_n = run->locations_cap = 0;
}

size_t run_location_count(const struct run *run)
{
    return run->locations_n;
}

const struct run_location *run_location(const struct run *run, uint32_t location)
{
    return &run->locations[location];
}

size_t run_series_count(const struct run *run)
{
    return run->series_n;
}

uint32_t run_find_series(const struct run *run, uint32_t process, int device, enum run_series_layer layer)
{
    for (size_t i = 0; i < run_series_count(run); i++) {
        const struct run_series *s = run_series(run, (uint32_t)i);
        if (s->process == process && s->device == device && s->layer == layer) return (uint32_t)i;
    }
    return RUN_NONE;
}

const struct run_series *run_series(const struct run *run, uint32_t series)
{
    return &run->series[series];
}

uint32_t run_free_stack(const struct run *run, const struct run_lifetime *life)
{
    const struct run_replay *r = run->replay;
    if (r && run_beside_own) return run_beside_free_stack(run_beside_own, life);
    return r && r->free_stacks ? r->free_stacks[life - r->live] : RUN_NONE;
}

uint32_t run_live_number(const struct run *run, const struct run_lifetime *life)
{
    return run_beside_own ? run_beside_number(run_beside_own, life) : (uint32_t)(life - run->replay->live);
}

void run_each_live(const struct run *run, void (*each)(void *self, const struct run_lifetime *), void *self)
{
    for (size_t i = 0; run->replay && i < run->replay->live_n; i++)
        if (run->replay->live[i].location != RUN_NONE) each(self, &run->replay->live[i]);
}
