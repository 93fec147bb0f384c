/* What was live of each call path in the time whose rows a recording of bounded size lost, and when its allocations
 * were made. */
#include "analyzer/run/run_internal.h"

#include <stdio.h>

#include "analyzer/base/sort.h"
#include "schema/store.h"

enum { REMOVED_LOW_MAX = 1 << 20 };

enum { TIMES_MAX = 1 << 16 };

/* Of the allocations that the file counted, and of those that have rows, if they are many, evenly chosen ones. */
static bool load_times(struct run *run, struct run_database *db, uint32_t process)
{
    const struct run_process *p = &run->processes[process];
    const uint64_t stride = (p->allocations_before - p->allocations_removed) / TIMES_MAX + 1;
    struct run_removed_time last = {process, 0, 0};
    char sql[256];
    snprintf(
        sql, sizeof sql,
        "SELECT first_id, time_ns FROM removed_time UNION ALL SELECT id, alloc_ns FROM %s WHERE alloc_ns < %lld AND "
        "id %% %llu = 0 ORDER BY 1",
        db->allocations, (long long)p->kept_from_ns, (unsigned long long)stride);
    sqlite3_stmt *st = run_database_prepare(db, sql);
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        const struct run_removed_time t = {process, (uint64_t)run_bounded(sqlite3_column_int64(st, 0)),
                                           run_bounded(sqlite3_column_int64(st, 1))};
        if (t.ns >= p->kept_from_ns || t.allocations >= p->allocations_before) break;
        if (t.allocations <= last.allocations || t.ns < last.ns) continue;
        *ARENA_ADD(run->removed_times) = last = t;
    }
    sqlite3_finalize(st);
    return st;
}

/* False: the gpuspy that recorded it had no such table. */
static bool load_lows(struct run *run, struct run_database *db, uint32_t process)
{
    sqlite3_stmt *st = run_database_prepare(
        db, "SELECT kind, stack_id, first_id, low_bytes FROM removed_course ORDER BY kind, stack_id, first_id");
    while (st && sqlite3_step(st) == SQLITE_ROW && run->removed_lows_n < REMOVED_LOW_MAX) {
        const struct run_removed r = run_removed_kind(GS_REMOVED_ALLOCATION, sqlite3_column_int64(st, 0));
        ARENA_APPEND(run->removed_lows, .process = process, .stack = run_ids_get(&db->stacks, run_column_int(st, 1)),
                     .device = r.device, .layer = run_removed_layer(&r),
                     .first = (uint64_t)run_bounded(sqlite3_column_int64(st, 2)),
                     .bytes = run_bounded(sqlite3_column_int64(st, 3)));
    }
    sqlite3_finalize(st);
    return st;
}

/* Those whose rows exist, although they began before kept_from_ns. */
static uint64_t count_early_rows(struct run_database *db, int64_t before_ns)
{
    char sql[96];
    uint64_t n = 0;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s WHERE alloc_ns < %lld", db->allocations, (long long)before_ns);
    sqlite3_stmt *st = run_database_prepare(db, sql);
    if (st && sqlite3_step(st) == SQLITE_ROW) n = (uint64_t)run_bounded(sqlite3_column_int64(st, 0));
    sqlite3_finalize(st);
    return n;
}

void run_load_removed_lows(struct run *run, struct run_database *db, uint32_t process)
{
    struct run_process *p = &run->processes[process];
    uint64_t before = 0;
    EACH_IN (r, run->removed)
        if (r->process == process && r->what == GS_REMOVED_ALLOCATION) before += r->count;
    p->lows_are_known = load_lows(run, db, process) && run_meta_number(db, "courses_left_out") <= 0;
    if (!p->lows_are_known) return;
    p->allocations_removed = before;
    p->allocations_before = before + count_early_rows(db, p->kept_from_ns);
    load_times(run, db, process);
}

/* The known points before and after: the first one is the start of the process. */
static void find_points(const struct run *run, uint32_t process, bool by_time, double at, double x[2], double y[2])
{
    const struct run_process *p = &run->processes[process];
    const struct run_removed_time *t = run->removed_times;
    const size_t i =
        SORT_COUNT(run->removed_times_n, k,
                   t[k].process < process ||
                       (t[k].process == process && (by_time ? (double)t[k].ns : (double)t[k].allocations) <= at));
    const bool first = i == 0 || t[i - 1].process != process,
               last = i == run->removed_times_n || t[i].process != process;
    const double ns[] = {first ? 0 : (double)t[i - 1].ns, last ? (double)p->kept_from_ns : (double)t[i].ns};
    const double n[] = {first ? 0 : (double)t[i - 1].allocations,
                        last ? (double)p->allocations_before : (double)t[i].allocations};
    for (size_t k = 0; k < 2; k++) {
        x[k] = by_time ? ns[k] : n[k];
        y[k] = by_time ? n[k] : ns[k];
    }
}

static double interpolate_points(const struct run *run, uint32_t process, bool by_time, double at)
{
    double x[2], y[2];
    find_points(run, process, by_time, at, x, y);
    const double part = x[1] > x[0] ? (at - x[0]) / (x[1] - x[0]) : 1;
    return y[0] + (y[1] - y[0]) * (part < 0 ? 0 : part > 1 ? 1 : part);
}

double run_allocations_by(const struct run *run, uint32_t process, int64_t ns)
{
    return interpolate_points(run, process, true, (double)ns);
}

int64_t run_allocations_ns(const struct run *run, uint32_t process, double allocations)
{
    return (int64_t)interpolate_points(run, process, false, allocations);
}
