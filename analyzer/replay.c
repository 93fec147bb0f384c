/* The events of a run in order of time, in one pass over the rows.
 *
 * A row is a lifetime: in order of id the rows are in order of allocation, and a min-heap of the frees
 * to come gives the other half. So memory is bounded by what is live at once, whatever the length. The
 * small tables (failures, samples, PyTorch's reserved total) are merged in.
 */
#include "analyzer/run_internal.h"

#include <stdlib.h>
#include <string.h>

struct pending {
    int64_t free_ns;
    uint32_t slot;
};

struct gs_replay {
    struct gs_run *run;
    const struct gs_observer *observers;
    size_t observers_n;
    uint32_t process;
    int64_t now;
    /* live lifetimes; a slot not in use has location GS_NONE */
    struct gs_lifetime *live;
    size_t live_n, live_cap;
    uint32_t *spare;
    size_t spare_n, spare_cap;
    struct pending *heap;
    size_t heap_n, heap_cap;
    /* where the small tables are; side_ns is the earliest of the three */
    size_t oom, sample, reserved;
    int64_t side_ns;
    uint64_t damaged;
};

#define TELL(r, call, ...)                                                                             \
    for (size_t o_ = 0; o_ < (r)->observers_n; o_++) {                                                 \
        if ((r)->observers[o_].call) {                                                                 \
            (r)->observers[o_].call((r)->observers[o_].self, __VA_ARGS__);                             \
        }                                                                                              \
    }

/* --- the heap of frees: four children a node, for fewer cache misses than two ---------------------- */

/* At equal times the slot decides, so that the order does not depend on the heap's history. */
static inline bool before(struct pending a, struct pending b)
{
    return a.free_ns < b.free_ns || (a.free_ns == b.free_ns && a.slot < b.slot);
}

static void heap_push(struct gs_replay *r, struct pending p)
{
    (void)GS_PUSH(r->heap, r->heap_n, r->heap_cap);
    size_t at = r->heap_n - 1;
    while (at && before(p, r->heap[(at - 1) / 4])) {
        r->heap[at] = r->heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    r->heap[at] = p;
}

static void heap_pop(struct gs_replay *r)
{
    struct pending last = r->heap[--r->heap_n];
    size_t at = 0;
    for (;;) {
        size_t child = at * 4 + 1, least = child;
        size_t end = child + 4 < r->heap_n ? child + 4 : r->heap_n;
        for (size_t i = child + 1; i < end; i++) {
            least = before(r->heap[i], r->heap[least]) ? i : least;
        }
        if (child >= r->heap_n || !before(r->heap[least], last)) {
            break;
        }
        r->heap[at] = r->heap[least];
        at = least;
    }
    r->heap[at] = last;
}

/* --- the small tables -------------------------------------------------------------------------- */

#define SIDE_TIME(list, index)                                                                         \
    ((index) < run->list##_n && run->list[index].process == r->process ? run->list[index].time_ns      \
                                                                       : GS_NEVER)

static void side_next(struct gs_replay *r)
{
    const struct gs_run *run = r->run;
    int64_t oom = SIDE_TIME(ooms, r->oom), sample = SIDE_TIME(samples, r->sample);
    int64_t reserved = SIDE_TIME(reserved, r->reserved);
    r->side_ns = oom < sample ? oom : sample;
    r->side_ns = reserved < r->side_ns ? reserved : r->side_ns;
}

/* All of the earliest time: first the totals, then what was concluded from them. */
static void side_tell(struct gs_replay *r)
{
    struct gs_run *run = r->run;
    int64_t at = r->side_ns;
    for (; SIDE_TIME(reserved, r->reserved) == at && at != GS_NEVER; r->reserved++) {
        TELL(r, reserved, &run->reserved[r->reserved]);
    }
    for (; SIDE_TIME(samples, r->sample) == at && at != GS_NEVER; r->sample++) {
        TELL(r, sample, &run->samples[r->sample]);
    }
    for (; SIDE_TIME(ooms, r->oom) == at && at != GS_NEVER; r->oom++) {
        TELL(r, oom, &run->ooms[r->oom], r->oom);
    }
    side_next(r);
}

static void side_start(struct gs_replay *r)
{
    const struct gs_run *run = r->run;
#define SKIP(list, index)                                                                              \
    for (index = 0; index < run->list##_n && run->list[index].process < r->process; index++) {         \
    }
    SKIP(ooms, r->oom)
    SKIP(samples, r->sample)
    SKIP(reserved, r->reserved)
#undef SKIP
    side_next(r);
}

/* --- lifetimes --------------------------------------------------------------------------------- */

static void end_life(struct gs_replay *r)
{
    uint32_t slot = r->heap[0].slot;
    struct gs_lifetime *life = &r->live[slot];
    struct gs_location *l = &r->run->locations[life->location];
    struct gs_series *s = &r->run->series[life->series];
    heap_pop(r);
    r->now = life->free_ns > r->now ? life->free_ns : r->now;
    l->live_bytes -= life->bytes;
    l->live_count--;
    s->live_bytes -= life->bytes;
    s->live_count--;
    s->frees++;
    s->freed_bytes = gs_add(s->freed_bytes, life->bytes);
    TELL(r, free, life);
    life->location = GS_NONE;
    *GS_PUSH(r->spare, r->spare_n, r->spare_cap) = slot;
}

/* Everything before an allocation at `until`: frees at that very time come first. */
static void advance(struct gs_replay *r, int64_t until)
{
    for (;;) {
        int64_t free_ns = r->heap_n ? r->heap[0].free_ns : GS_NEVER;
        if (r->side_ns < free_ns && r->side_ns < until) {
            side_tell(r);
        } else if (r->heap_n && free_ns <= until) {
            end_life(r);
        } else {
            return;
        }
    }
}

static const uint8_t series_layer[4][8] = {
    [GS_LAYER_DEVICE] = {[GS_SPACE_PINNED] = GS_SERIES_PINNED, [GS_SPACE_HOST] = GS_SERIES_HOST},
    [GS_LAYER_TENSOR] = {[0 ... 7] = GS_SERIES_TENSOR},
    [GS_LAYER_HOST] = {[0 ... 7] = GS_SERIES_HOST},
    [3] = {[0 ... 7] = GS_SERIES_HOST},
};

static uint32_t series_at(struct gs_run *run, uint32_t process, int device, unsigned layer)
{
    device = layer == GS_SERIES_DEVICE || layer == GS_SERIES_TENSOR ? device : -1;
    uint32_t *table = run->series_of[process];
    if (!table) {
        size_t n = GS_DEVICE_SLOTS * GS_SERIES_LAYERS;
        table = run->series_of[process] = gs_realloc(NULL, n, sizeof *table);
        memset(table, 0xff, n * sizeof *table);
    }
    uint32_t *at = &table[(device + 1) * GS_SERIES_LAYERS + (int)layer];
    if (*at == GS_NONE) {
        *at = (uint32_t)run->series_n;
        *GS_PUSH(run->series, run->series_n, run->series_cap) =
            (struct gs_series){.process = process, .device = device, .layer = (enum gs_series_layer)layer};
    }
    return *at;
}

static uint32_t location_at(struct gs_run *run, uint32_t series, uint32_t stack)
{
    uint32_t *at = gs_map_at(&run->location_map, (uint64_t)series << 32 | stack);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)run->locations_n;
        *GS_PUSH(run->locations, run->locations_n, run->locations_cap) =
            (struct gs_location){.series = series, .stack = stack};
    }
    return *at;
}

static void begin_life(struct gs_replay *r, struct gs_lifetime *life)
{
    struct gs_run *run = r->run;
    life->series = series_at(run, life->process, life->device, series_layer[life->layer][life->space]);
    struct gs_series *s = &run->series[life->series];
    if (s->live_bytes > GS_BYTES_MAX - life->bytes) {
        r->damaged++;
        return;
    }
    life->location = location_at(run, life->series, life->stack);
    struct gs_location *l = &run->locations[life->location];
    l->live_bytes += life->bytes;
    l->live_count++;
    s->live_bytes += life->bytes;
    s->live_count++;
    s->allocations++;
    s->allocated_bytes = gs_add(s->allocated_bytes, life->bytes);
    r->now = life->alloc_ns > r->now ? life->alloc_ns : r->now;
    uint32_t slot = r->spare_n ? r->spare[--r->spare_n] : (uint32_t)r->live_n;
    if (slot == r->live_n) {
        (void)GS_PUSH(r->live, r->live_n, r->live_cap);
    }
    r->live[slot] = *life;
    if (life->free_ns != GS_NEVER) {
        heap_push(r, (struct pending){life->free_ns, slot});
    }
    TELL(r, alloc, &r->live[slot]);
}

/* --- rows -------------------------------------------------------------------------------------- */

enum { KIND, ADDRESS, BYTES, ALLOC_NS, LIFE_NS, STREAM, ALLOC_STACK };
static const char rows[] =
    "SELECT kind, address, bytes, alloc_ns, life_ns, stream, alloc_stack_id FROM allocation ORDER BY id";

/* `kind` is unpacked here (GS_ALLOCATION_KIND): reading the generated columns costs several times as much. */
static bool read_row(struct gs_replay *r, struct gs_database *db, sqlite3_stmt *st,
                     struct gs_lifetime *life)
{
    int64_t kind = sqlite3_column_int64(st, KIND);
    *life = (struct gs_lifetime){
        .stack = gs_ids_get(&db->stacks, sqlite3_column_int64(st, ALLOC_STACK)),
        .process = r->process,
        .thread = (uint32_t)(kind >> 23) + 1,
        .api = kind >> 12 & 2047,
        .device = (int16_t)((kind >> 5 & 127) - 1),
        .layer = kind & 3,
        .space = kind >> 2 & 7,
        .bytes = sqlite3_column_int64(st, BYTES),
        .alloc_ns = sqlite3_column_int64(st, ALLOC_NS),
        .free_ns = GS_NEVER,
        .address = (uint64_t)sqlite3_column_int64(st, ADDRESS),
        .stream = (uint64_t)sqlite3_column_int64(st, STREAM),
    };
    if (life->bytes < 0 || life->bytes > GS_BYTES_MAX) {
        r->damaged++;
        return false;
    }
    if (sqlite3_column_type(st, LIFE_NS) != SQLITE_NULL) {
        int64_t age = sqlite3_column_int64(st, LIFE_NS);
        r->damaged += age < 0;
        life->free_ns = gs_add(life->alloc_ns, age < 0 ? 0 : age);
    }
    if (life->alloc_ns < r->now) { /* out of order or negative: time does not run backwards */
        r->damaged += life->alloc_ns < 0;
        life->alloc_ns = r->now;
        life->free_ns = life->free_ns < r->now ? r->now : life->free_ns;
    }
    return true;
}

static bool wanted(const struct gs_run *run, const struct gs_lifetime *life)
{
    return !run->options.by_device || life->device < 0 || life->device == run->options.device;
}

static bool replay_rows(struct gs_replay *r, struct gs_database *db, char *error, size_t error_size)
{
    sqlite3_stmt *st = gs_prepare(db, rows);
    if (!st) {
        return gs_database_bad(db, error, error_size);
    }
    int rc;
    struct gs_lifetime life;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (!read_row(r, db, st, &life) || !wanted(r->run, &life)) {
            continue;
        }
        if (r->side_ns < life.alloc_ns || (r->heap_n && r->heap[0].free_ns <= life.alloc_ns)) {
            advance(r, life.alloc_ns);
        }
        begin_life(r, &life);
    }
    bool ok = rc == SQLITE_DONE || gs_database_bad(db, error, error_size);
    sqlite3_finalize(st);
    return ok;
}

static void forget_live(struct gs_replay *r)
{
    r->live_n = r->spare_n = r->heap_n = 0;
    r->now = 0;
}

static bool replay_process(struct gs_replay *r, uint32_t process, char *error, size_t error_size)
{
    struct gs_run *run = r->run;
    forget_live(r);
    r->process = process;
    side_start(r);
    TELL(r, process_start, process);
    if (!replay_rows(r, &run->databases[run->processes[process].database], error, error_size)) {
        return false;
    }
    while (r->heap_n || r->side_ns != GS_NEVER) {
        advance(r, r->heap_n ? r->heap[0].free_ns : GS_NEVER);
    }
    int64_t end = run->processes[process].end_ns;
    TELL(r, process_end, process, end > r->now ? end : r->now);
    run->processes[process].damaged += r->damaged;
    r->damaged = 0;
    return true;
}

bool gs_run_replay(struct gs_run *run, const struct gs_observer *observers, size_t n, char *error,
                   size_t error_size)
{
    struct gs_replay replay = {.run = run, .observers = observers, .observers_n = n};
    gs_replay_free(run);
    run->series_of = gs_realloc(NULL, run->processes_n, sizeof *run->series_of);
    memset(run->series_of, 0, run->processes_n * sizeof *run->series_of);
    run->replay = &replay;
    bool ok = true;
    for (uint32_t i = 0; ok && i < run->processes_n; i++) {
        ok = replay_process(&replay, i, error, error_size);
    }
    run->replay = NULL;
    free(replay.live);
    free(replay.spare);
    free(replay.heap);
    return ok;
}

void gs_replay_free(struct gs_run *run)
{
    for (size_t i = 0; run->series_of && i < run->processes_n; i++) {
        free(run->series_of[i]);
    }
    free(run->series_of);
    free(run->series);
    free(run->locations);
    gs_map_free(&run->location_map);
    run->series_of = NULL;
    run->series = NULL;
    run->locations = NULL;
    run->series_n = run->series_cap = run->locations_n = run->locations_cap = 0;
}

size_t gs_run_locations(const struct gs_run *run)
{
    return run->locations_n;
}

const struct gs_location *gs_run_location(const struct gs_run *run, uint32_t location)
{
    return &run->locations[location];
}

size_t gs_run_serieses(const struct gs_run *run)
{
    return run->series_n;
}

const struct gs_series *gs_run_series(const struct gs_run *run, uint32_t series)
{
    return &run->series[series];
}

void gs_run_live(const struct gs_run *run, void (*each)(void *self, const struct gs_lifetime *), void *self)
{
    for (size_t i = 0; run->replay && i < run->replay->live_n; i++) {
        if (run->replay->live[i].location != GS_NONE) {
            each(self, &run->replay->live[i]);
        }
    }
}
