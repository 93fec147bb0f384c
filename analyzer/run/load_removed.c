/* For a recording that GPUSPY_KEEP bounds: the time from which it has all rows, and the totals of the rows that it
 * lost. */
#include "analyzer/run/run_internal.h"

#include <stdio.h>

#include "analyzer/base/units.h"
#include "schema/store.h"
#include "schema/store_keep.h"

enum { REMOVED_MAX = 4 << 20 };

static int removed_device_of(int64_t kind, unsigned shift)
{
    return (int)(kind >> shift & 127) - 1;
}

struct run_removed run_removed_kind(uint8_t what, int64_t kind)
{
    struct run_removed r = {.what = what, .device = -1};
    switch (what) {
    case GS_REMOVED_ALLOCATION:
        r.layer = kind & 3;
        r.space = kind >> 2 & 7;
        r.device = removed_device_of(kind, 5);
        r.api = kind >> 12 & 2047;
        break;
    case GS_REMOVED_COPY:
        r.direction = kind & 7;
        r.host_memory = kind >> 3 & 3;
        r.async = kind >> 5 & 1;
        r.device = removed_device_of(kind, 6);
        r.api = kind >> 13 & 2047;
        r.size = kind >> 24 & 3;
        break;
    case GS_REMOVED_SYNC:
        r.kind = kind & 7;
        r.device = removed_device_of(kind, 3);
        r.api = kind >> 10 & 2047;
        break;
    case GS_REMOVED_MEMSET:
        r.async = kind & 1;
        r.device = removed_device_of(kind, 1);
        r.api = kind >> 8 & 2047;
        break;
    default: r.kind = kind & 7;
    }
    r.device = r.device < RUN_DEVICE_SLOTS - 1 ? r.device : -1;
    return r;
}

static void load_totals(struct run *run, struct run_database *db, uint32_t process)
{
    sqlite3_stmt *st = run_database_prepare(db, "SELECT what, kind, stack_id, count, bytes, ns, first_ns FROM removed");
    const bool first = st;
    if (!first) st = run_database_prepare(db, "SELECT what, kind, stack_id, count, bytes, ns FROM removed");
    while (st && sqlite3_step(st) == SQLITE_ROW && run->removed_n < REMOVED_MAX) {
        const int64_t what = sqlite3_column_int64(st, 0);
        if (what < 0 || what >= GS_REMOVED_COUNT) continue;
        struct run_removed r = run_removed_kind((uint8_t)what, sqlite3_column_int64(st, 1));
        r.process = process;
        r.stack = run_ids_get(&db->stacks, run_column_int(st, 2));
        r.count = (uint64_t)run_bounded(sqlite3_column_int64(st, 3));
        r.bytes = run_bounded(sqlite3_column_int64(st, 4));
        r.ns = run_bounded(sqlite3_column_int64(st, 5));
        r.first_ns = first ? run_column_int(st, 6) : RUN_UNKNOWN;
        if (r.count) *ARENA_ADD(run->removed) = r;
    }
    sqlite3_finalize(st);
}

/* False: the gpuspy that recorded it had no such table. */
static bool load_after(struct run *run, struct run_database *db, uint32_t process)
{
    sqlite3_stmt *st = run_database_prepare(db, "SELECT after_ns, kind, count, bytes FROM removed_after");
    while (st && sqlite3_step(st) == SQLITE_ROW && run->removed_after_n < REMOVED_MAX) {
        struct run_removed r = run_removed_kind(GS_REMOVED_ALLOCATION, sqlite3_column_int64(st, 1));
        r.count = (uint64_t)run_bounded(sqlite3_column_int64(st, 2));
        r.bytes = run_bounded(sqlite3_column_int64(st, 3));
        *ARENA_ADD(run->removed_after) = (struct run_removed_after){process, r, sqlite3_column_int64(st, 0)};
    }
    sqlite3_finalize(st);
    return st;
}

/* As the recorder decides whose live sets it keeps (gs_keep_failure). */
static bool is_failure_kept(const struct run *run, const struct run_oom *oom)
{
    size_t n, before = 0, later = 0;
    const struct run_oom *all = run_ooms(run, &n);
    for (size_t i = 0; i < n; i++) {
        before += all[i].process == oom->process && &all[i] < oom;
        later += all[i].process == oom->process && &all[i] > oom;
    }
    return before < GS_KEEP_FAILURES_FIRST || later < GS_KEEP_FAILURES - GS_KEEP_FAILURES_FIRST;
}

bool run_removed_since(const struct run *run, const struct run_oom *oom, const struct run_series *series,
                       uint64_t *count, int64_t *bytes)
{
    *count = 0;
    *bytes = 0;
    if (!run->processes[oom->process].removed_after_is_known || !is_failure_kept(run, oom)) return false;
    EACH_IN (after, run->removed_after) {
        const struct run_removed *r = &after->removed;
        if (after->after_ns < oom->time_ns || after->process != series->process ||
            run_removed_layer(r) != series->layer || (series->device >= 0 && r->device != series->device))
            continue;
        *count += r->count;
        *bytes = arena_add_capped(*bytes, r->bytes);
    }
    return true;
}

/* SQL orders by type first, and values of other types may be anything. */
static bool follows_last_level(const struct run *run, const struct run_level *level)
{
    const struct run_level *last = run->levels_n ? &run->levels[run->levels_n - 1] : NULL;
    return !last || last->process != level->process || last->layer != level->layer || last->device != level->device ||
           last->end_ns <= level->start_ns;
}

static void load_levels(struct run *run, struct run_database *db, uint32_t process)
{
    sqlite3_stmt *st = run_database_prepare(db, "SELECT series, device, start_ns, end_ns, low_bytes, high_bytes FROM "
                                                "level ORDER BY series, device, start_ns");
    while (st && sqlite3_step(st) == SQLITE_ROW && run->levels_n < REMOVED_MAX) {
        const int64_t series = sqlite3_column_int64(st, 0), device = sqlite3_column_int64(st, 1);
        const struct run_level level = {
            .process = process,
            .device = device >= 0 && device < RUN_DEVICE_SLOTS - 1 ? (int)device : -1,
            .layer = (enum run_series_layer)series,
            .start_ns = run_bounded(sqlite3_column_int64(st, 2)),
            .end_ns = run_bounded(sqlite3_column_int64(st, 3)),
            .low_bytes = run_bounded(sqlite3_column_int64(st, 4)),
            .high_bytes = run_bounded(sqlite3_column_int64(st, 5)),
        };
        if (series >= 0 && series < GS_SERIES_COUNT && level.end_ns > level.start_ns && follows_last_level(run, &level))
            *ARENA_ADD(run->levels) = level;
    }
    sqlite3_finalize(st);
}

/* False: the gpuspy that recorded it had no such table. */
static bool load_scopes(struct run *run, struct run_database *db, uint32_t process)
{
    sqlite3_stmt *st =
        run_database_prepare(db, "SELECT domain, name, series, device, peak_bytes, peak_ns, entry_bytes, "
                                 "exit_bytes, open_entry_bytes, count, ended_ns, until_ns FROM "
                                 "removed_scope");
    while (st && sqlite3_step(st) == SQLITE_ROW && run->removed_scopes_n < REMOVED_MAX) {
        const int64_t series = run_column_int(st, 2), device = run_column_int(st, 3);
        const bool live = (series == RUN_SERIES_DEVICE || series == RUN_SERIES_TENSOR) && device >= 0 &&
                          device < RUN_DEVICE_SLOTS - 1;
        const struct run_removed_scope scope = {
            .process = process,
            .domain = run_column_text(run, st, 0),
            .name = run_column_text(run, st, 1),
            .device = live ? (int)device : -1,
            .layer = live ? (enum run_series_layer)series : RUN_SERIES_DEVICE,
            .peak_bytes = run_bounded(sqlite3_column_int64(st, 4)),
            .peak_ns = run_bounded(sqlite3_column_int64(st, 5)),
            .entry_bytes = run_bounded(sqlite3_column_int64(st, 6)),
            .exit_bytes = run_column_int(st, 7),
            .open_entry_bytes = run_column_int(st, 8),
            .count = (uint64_t)run_bounded(sqlite3_column_int64(st, 9)),
            .ended_ns = run_bounded(sqlite3_column_int64(st, 10)),
            .until_ns = run_bounded(sqlite3_column_int64(st, 11)),
        };
        if (scope.name) *ARENA_ADD(run->removed_scopes) = scope;
    }
    sqlite3_finalize(st);
    return st;
}

int64_t run_meta_number(struct run_database *db, const char *key)
{
    sqlite3_stmt *st = run_database_prepare(db, "SELECT value FROM meta WHERE key = ?1");
    int64_t value = RUN_UNKNOWN;
    if (!st) return value;
    sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) == SQLITE_INTEGER)
        value = run_bounded(sqlite3_column_int64(st, 0));
    sqlite3_finalize(st);
    return value;
}

static uint64_t count_rows(struct run_database *db)
{
    char sql[64];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", db->allocations);
    sqlite3_stmt *st = run_database_prepare(db, sql);
    const uint64_t n = st && sqlite3_step(st) == SQLITE_ROW ? (uint64_t)run_bounded(sqlite3_column_int64(st, 0)) : 0;
    sqlite3_finalize(st);
    return n;
}

void run_load_removed(struct run *run, struct run_database *db, uint32_t process)
{
    struct run_process *p = &run->processes[process];
    const int64_t from = run_meta_number(db, "kept_from_ns"), keep = run_meta_number(db, "keep");
    if (from <= 0) return;
    p->kept_from_ns = from;
    p->keep_bytes = keep > 0 ? keep : 0;
    p->allocations = count_rows(db); /* their ids show how many there were */
    load_totals(run, db, process);
    load_levels(run, db, process);
    p->removed_after_is_known = load_after(run, db, process);
    p->scopes_are_known = load_scopes(run, db, process) && run_meta_number(db, "scopes_left_out") <= 0;
}

void run_note_removed(struct run *run)
{
    char who[64], why[64] = "its disk was nearly full";
    const struct run_process *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < run->processes_n; i++) {
        if (!run->processes[i].kept_from_ns) continue;
        first = first ? first : &run->processes[i];
        n++;
    }
    if (!first) return;
    if (n == 1)
        snprintf(who, sizeof who, "process %u", first->pid);
    else
        snprintf(who, sizeof who, "each of %zu processes", n);
    if (first->keep_bytes) snprintf(why, sizeof why, "GPUSPY_KEEP=%s", UNITS_BYTES((uint64_t)first->keep_bytes));
    run_add_note(
        run,
        "%s (%s): the recording has every event after %s%s; from the time before that, it has peaks, failures, live "
        "memory, totals%s by call path, and a coarse timeline",
        who, why, UNITS_SECONDS((double)run_kept_from(run) / 1e9), n == 1 ? "" : " at the latest",
        run_growth_from(run) ? "" : " and growth");
}

enum { EIGHTHS = 8, RISE_MIN = 1 << 20 };

/* The smallest total in each eighth of the time, not counting the start. False: unknown for some eighth. */
static bool find_lows(const struct run_level *level, size_t n, int64_t lows[EIGHTHS])
{
    const int64_t end = level[n - 1].end_ns, start = level[0].start_ns + (end - level[0].start_ns) / EIGHTHS;
    for (int i = 0; i < EIGHTHS; i++) lows[i] = INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        const int64_t at = level[i].start_ns - start;
        if (at < 0 || end <= start) continue;
        const int eighth = (int)((double)at / (double)(end - start) * EIGHTHS); /* rounding may reach EIGHTHS */
        int64_t *low = &lows[eighth < EIGHTHS ? eighth : EIGHTHS - 1];
        *low = level[i].low_bytes < *low ? level[i].low_bytes : *low;
    }
    return !ANY_OF(l, lows, EIGHTHS, *l == INT64_MAX);
}

/* Bytes per eighth: the median, because the program may begin its work late. */
static int64_t usual_rise(const int64_t lows[EIGHTHS])
{
    int64_t rises[EIGHTHS - 1];
    for (int i = 1; i < EIGHTHS; i++) {
        const int64_t rise = lows[i] - lows[i - 1];
        int at = i - 1;
        for (; at > 0 && rises[at - 1] > rise; at--) rises[at] = rises[at - 1];
        rises[at] = rise;
    }
    return rises[(EIGHTHS - 1) / 2];
}

static void note_rise(struct run *run, const struct run_level *level, size_t n)
{
    static const char *const words[] = {[RUN_SERIES_DEVICE] = "CUDA allocations",
                                        [RUN_SERIES_TENSOR] = "tensors",
                                        [RUN_SERIES_PINNED] = "pinned memory",
                                        [RUN_SERIES_HOST] = "CPU tensors"};
    const double share = (EIGHTHS - 1.0) / EIGHTHS;
    const double eighth_s = (double)(level[n - 1].end_ns - level[0].start_ns) / 1e9 * share / EIGHTHS;
    int64_t lows[EIGHTHS];
    char device[32] = "";
    if (!find_lows(level, n, lows) || lows[EIGHTHS - 1] - lows[0] < RISE_MIN) return;
    for (int i = 1; i < EIGHTHS; i++)
        if (lows[i] <= lows[i - 1]) return;
    if (level->device >= 0) snprintf(device, sizeof device, " on GPU %d", level->device);
    run_add_note(
        run,
        "process %u: %s%s grew throughout the time whose events were removed, from %s to %s, usually by %s per hour "
        "(the smallest total rose in each eighth of that time). 'gpuspy leaks' lists the lines whose memory is still "
        "live",
        run->processes[level->process].pid, words[level->layer], device, UNITS_BYTES((uint64_t)lows[0]),
        UNITS_BYTES((uint64_t)lows[EIGHTHS - 1]), UNITS_BYTES((uint64_t)((double)usual_rise(lows) / eighth_s * 3600)));
}

/* A growth that is too slow for the rows, or that many lines share, shows in the running totals. Under PyTorch the
 * allocator's segments are left out: growth in them also shows in the tensors. */
void run_note_levels(struct run *run)
{
    bool tensors = false;
    for (size_t i = 0; i < run->levels_n; i++) tensors = tensors || run->levels[i].layer == RUN_SERIES_TENSOR;
    for (size_t i = 0, n; i < run->levels_n; i += n) {
        const struct run_level *first = &run->levels[i];
        for (n = 1; i + n < run->levels_n; n++) {
            const struct run_level *next = &first[n];
            if (next->process != first->process || next->layer != first->layer || next->device != first->device) break;
        }
        if (!(tensors && first->layer == RUN_SERIES_DEVICE)) note_rise(run, first, n);
    }
}
