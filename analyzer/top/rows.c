/* Reads the rows of a recording since the last update, and finds the earlier ones that have been freed. */
#include "analyzer/top/forget.h"
#include "analyzer/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "schema/source_file.h"
#include "schema/store.h"

enum { BLOCK = 256, DENSE = 6, CURVE_ROWS = 1000000 };

struct reading {
    struct top_model *m;
    struct top_source *s;
    uint32_t source;
    bool older; /* these rows were recorded before the first update: of the freed allocations, only the last minute
                   counts */
    bool waits; /* they are the last waits */
    char *error;
    size_t error_size;
};

static int64_t column_or_unknown(sqlite3_stmt *st, int column)
{
    int64_t n = run_column_int(st, column);
    return n < 0 ? RUN_UNKNOWN : run_bounded(n);
}

static int row_device_of(int64_t n)
{
    return n >= 0 && n < RUN_DEVICE_SLOTS - 1 ? (int)n : -1;
}

static uint32_t stack_at(const struct reading *r, sqlite3_stmt *st, int column)
{
    return run_ids_get(&r->s->db.stacks, run_column_int(st, column));
}

/* Same as in the store: all memory on the host is pinned, and shared memory counts for its owner. */
static enum top_layer row_layer_of(unsigned layer, unsigned space, int device)
{
    if (space == GS_SPACE_SHARED) return TOP_SHARED;
    if (layer == GS_LAYER_DEVICE) {
        bool host = space == GS_SPACE_PINNED || space == GS_SPACE_HOST || (space == GS_SPACE_VMM && device < 0);
        return host ? TOP_PINNED : TOP_DEVICE;
    }
    return layer == GS_LAYER_TENSOR ? TOP_TENSOR : TOP_HOST;
}

static uint32_t top_place_at(struct top_model *m, uint32_t series, uint32_t stack)
{
    return MAP_INDEX_IN(&m->place_map, (uint64_t)series << 32 | stack, m->places,
                        (struct top_place){.series = series, .stack = stack, .last_ns = RUN_UNKNOWN});
}

static bool read_allocation(struct reading *r, sqlite3_stmt *st)
{
    const int64_t id = sqlite3_column_int64(st, 0), kind = sqlite3_column_int64(st, 1);
    uint32_t extra;
    const int64_t bytes = run_bounded(gs_bytes_unpack(kind, sqlite3_column_int64(st, 2), &extra));
    const int64_t time = run_bounded(sqlite3_column_int64(st, 3));
    int device = row_device_of((kind >> 5 & 127) - 1);
    enum top_layer layer = row_layer_of(kind & 3, kind >> 2 & 7, device);
    if (layer == TOP_PINNED || layer == TOP_HOST) device = -1;
    uint32_t place = top_place_at(r->m, top_series_at(r->m, r->source, device, layer), stack_at(r, st, 5));
    struct top_source *s = r->s;
    const bool live = sqlite3_column_type(st, 4) == SQLITE_NULL;
    const int64_t end = live ? INT64_MAX : arena_add_capped(time, run_bounded(sqlite3_column_int64(st, 4)));
    top_begin_block(r->m, place, bytes, time);
    if (live)
        *ARENA_ADD(s->alive) = (struct top_alive){id, bytes, time, (uint64_t)sqlite3_column_int64(st, 6), place, false};
    else
        top_end_block(r->m, place, bytes, end);
    if (r->older && !s->before_known && end > s->first_ns)
        r->m->places[place].before = arena_add_capped(r->m->places[place].before, bytes);
    return true;
}

static struct top_calls *calls_at(struct top_calls **list, size_t *n, size_t *cap, struct map *map,
                                  const struct top_calls *like)
{
    uint64_t key = map_hash((uint64_t)like->source << 32 | like->stack) +
                   ((uint64_t)like->kind << 32 | like->api << 8 | (uint8_t)like->device);
    return MAP_ROW(map, key, *list, *n, *cap, *like);
}

static bool read_top_copy(struct reading *r, sqlite3_stmt *st)
{
    const int64_t kind = sqlite3_column_int64(st, 1);
    const int64_t bytes = run_bounded(sqlite3_column_int64(st, 2));
    const int64_t start = run_bounded(sqlite3_column_int64(st, 3));
    const int64_t blocked = run_bounded(sqlite3_column_int64(st, 4));
    const struct top_calls like = {.source = r->source,
                                   .stack = stack_at(r, st, 5),
                                   .device = row_device_of((kind >> 6 & 127) - 1),
                                   .kind = kind & 63};
    struct top_model *m = r->m;
    struct top_calls *c = calls_at(&m->copies, &m->copies_n, &m->copies_cap, &m->copy_map, &like);
    c->count++;
    c->bytes = arena_add_capped(c->bytes, bytes);
    c->blocked_ns = arena_add_capped(c->blocked_ns, blocked);
    c->last_ns = start > c->last_ns ? start : c->last_ns;
    top_ring_add(&c->ring, start, bytes, 1);
    return true;
}

static bool read_top_sync(struct reading *r, sqlite3_stmt *st)
{
    const int64_t start = run_bounded(sqlite3_column_int64(st, 4));
    const int64_t blocked = run_bounded(sqlite3_column_int64(st, 5));
    const struct top_calls like = {.source = r->source,
                                   .stack = stack_at(r, st, 6),
                                   .device = row_device_of(sqlite3_column_int64(st, 1)),
                                   .kind = (uint32_t)sqlite3_column_int64(st, 2) & 7,
                                   .api = (uint32_t)sqlite3_column_int64(st, 3) & 0xffff};
    struct top_model *m = r->m;
    struct top_calls *c = calls_at(&m->syncs, &m->syncs_n, &m->syncs_cap, &m->sync_map, &like);
    c->count++;
    c->blocked_ns = arena_add_capped(c->blocked_ns, blocked);
    c->last_ns = start > c->last_ns ? start : c->last_ns;
    top_ring_add(&c->ring, start, blocked, 1);
    if (r->waits)
        r->s->waits[r->s->waits_next++ % TOP_WAITS_MAX] =
            (struct top_wait){r->source, like.stack, like.kind, like.api, start, blocked};
    return true;
}

static bool read_top_process(struct reading *r, sqlite3_stmt *st)
{
    struct top_source *s = r->s;
    struct run *run = r->m->run;
    s->pid = (uint32_t)sqlite3_column_int64(st, 0);
    s->rank = column_or_unknown(st, 1);
    if (!s->command) { /* the same at each update */
        s->command = run_column_command(run, st, 2);
        s->cwd = run_column_text(run, st, 3);
        s->host = run_column_text(run, st, 4);
        s->run_id = run_column_text(run, st, 5);
    }
    s->start_real_ns = run_column_int(st, 6);
    if (sqlite3_column_type(st, 7) != SQLITE_NULL) s->end_ns = run_bounded(sqlite3_column_int64(st, 7));
    s->finished = sqlite3_column_type(st, 8) != SQLITE_NULL;
    s->state = !s->finished ? s->state : sqlite3_column_int64(st, 8) ? TOP_ENDED : TOP_DIED;
    s->lost_events = (uint64_t)run_bounded(sqlite3_column_int64(st, 9));
    return false;
}

/* From here on changes are relative to this: earlier events were read with it or before. */
static void set_device_sample(struct reading *r, struct top_device *d, int64_t time_ns)
{
    const uint32_t at = top_series_at(r->m, r->source, d->device, TOP_DEVICE);
    struct top_series *s = &r->m->series[at];
    d->sampled_ns = s->sampled_ns = time_ns;
    s->after_sample = 0;
}

static bool read_top_device(struct reading *r, sqlite3_stmt *st)
{
    int device = row_device_of(sqlite3_column_int64(st, 0));
    if (device < 0) return true;
    struct top_device *d = top_device_at(r->s, device);
    d->name = d->name ? d->name : run_column_text(r->m->run, st, 1);
    if (d->total_bytes == RUN_UNKNOWN && run_column_int(st, 2) > 0) d->total_bytes = column_or_unknown(st, 2);
    if (d->sampled_ns == RUN_UNKNOWN && column_or_unknown(st, 3) != RUN_UNKNOWN) {
        d->free_bytes = column_or_unknown(st, 3);
        set_device_sample(r, d, run_bounded(sqlite3_column_int64(st, 4)));
    }
    return true;
}

static bool read_top_sample(struct reading *r, sqlite3_stmt *st)
{
    int device = row_device_of(sqlite3_column_int64(st, 1));
    int64_t id = sqlite3_column_int64(st, 0), time = run_bounded(sqlite3_column_int64(st, 2));
    r->s->last_sample = id > r->s->last_sample ? id : r->s->last_sample;
    if (device < 0 || column_or_unknown(st, 3) == RUN_UNKNOWN) return true;
    struct top_device *d = top_device_at(r->s, device);
    if (d->sampled_ns == RUN_UNKNOWN || time >= d->sampled_ns) {
        set_device_sample(r, d, time);
        /* NVML's total is slightly larger than CUDA's: the used bytes count */
        int64_t total = column_or_unknown(st, 4),
                used = total == RUN_UNKNOWN ? RUN_UNKNOWN : total - column_or_unknown(st, 3);
        d->total_bytes = d->total_bytes == RUN_UNKNOWN ? total : d->total_bytes;
        d->free_bytes = used == RUN_UNKNOWN     ? column_or_unknown(st, 3)
                        : used > d->total_bytes ? 0
                                                : d->total_bytes - used;
    }
    if (sqlite3_column_int64(st, 5) == GS_SAMPLE_NVML) {
        int64_t busy = run_column_int(st, 6);
        d->utilisation = busy >= 0 && busy <= 100 ? (int)busy : -1;
        d->own_bytes = column_or_unknown(st, 7);
        d->other_bytes = column_or_unknown(st, 8);
        d->other_pid = (uint32_t)run_bounded(sqlite3_column_int64(st, 9));
        d->other_name = run_column_command(r->m->run, st, 10);
    }
    return true;
}

static bool read_reserved(struct reading *r, sqlite3_stmt *st)
{
    int device = row_device_of(sqlite3_column_int64(st, 1));
    int64_t id = sqlite3_column_int64(st, 0);
    r->s->last_reserved = id > r->s->last_reserved ? id : r->s->last_reserved;
    if (device >= 0) top_device_at(r->s, device)->reserved_bytes = column_or_unknown(st, 2);
    return true;
}

/* Of a failure on a thread of autograd, which runs no Python: the stack that called backward(), as backward.h explains.
 * Only one backward pass may be in progress then. Searched once for each failure. */
static uint32_t backward_caller(struct reading *r, int64_t id, int64_t time_ns)
{
    enum { SEARCHED = 32768 };
    uint32_t *known = map_at(&r->s->backwards, (uint64_t)id), found = RUN_NONE;
    char sql[256];
    if (*known != MAP_NEW) return *known - 1;
    snprintf(sql, sizeof sql,
             "SELECT alloc_stack_id FROM %s WHERE alloc_ns <= ?1 AND (life_ns IS NULL OR alloc_ns + life_ns > ?1) AND "
             "id > (SELECT max(id) FROM %s) - %d",
             r->s->db.allocations, r->s->db.allocations, SEARCHED);
    sqlite3_stmt *st = run_database_prepare(&r->s->db, sql);
    bool several = false;
    if (st) sqlite3_bind_int64(st, 1, time_ns);
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        const uint32_t caller = run_backward_caller(r->m->run, stack_at(r, st, 0));
        several = several || (found != RUN_NONE && caller != RUN_NONE && caller != found);
        found = caller == RUN_NONE ? found : caller;
    }
    sqlite3_finalize(st);
    found = several ? RUN_NONE : found;
    *known = found + 1; /* RUN_NONE: 0, because it equals MAP_NEW */
    return found;
}

static bool read_failure(struct reading *r, sqlite3_stmt *st)
{
    struct top_source *s = r->s;
    const int64_t id = sqlite3_column_int64(st, 0), time_ns = run_bounded(sqlite3_column_int64(st, 5));
    const uint32_t caller = sqlite3_column_int64(st, 8) ? backward_caller(r, id, time_ns) : RUN_NONE;
    if (s->failures_n == 0) s->failures_total = (uint64_t)run_bounded(id);
    s->failures[s->failures_n++] = (struct top_failure){.stack = caller == RUN_NONE ? stack_at(r, st, 7) : caller,
                                                        .device = row_device_of(run_column_int(st, 1)),
                                                        .layer = (uint8_t)sqlite3_column_int64(st, 2),
                                                        .requested_bytes = run_bounded(sqlite3_column_int64(st, 3)),
                                                        .free_bytes = column_or_unknown(st, 4),
                                                        .time_ns = time_ns,
                                                        .fatal = sqlite3_column_int64(st, 6) != 0};
    return s->failures_n < TOP_FAILURES_MAX;
}

static bool read_temperature(struct reading *r, sqlite3_stmt *st)
{
    const char *key = (const char *)sqlite3_column_text(st, 0);
    const int64_t degrees = sqlite3_column_int64(st, 1);
    int device;
    if (key && sscanf(key, "gpu%2d.temperature", &device) == 1 && row_device_of(device) >= 0)
        top_device_at(r->s, device)->temperature = degrees >= 0 && degrees <= 255 ? (int)degrees : -1;
    return true;
}

static bool read_seen(struct reading *r, sqlite3_stmt *st)
{
    r->s->failures_seen = (uint64_t)run_bounded(sqlite3_column_int64(st, 0));
    return false;
}

static bool read_counted(struct reading *r, sqlite3_stmt *st)
{
    r->s->events = (uint64_t)run_bounded(sqlite3_column_int64(st, 0));
    return false;
}

static bool read_api(struct reading *r, sqlite3_stmt *st)
{
    struct run *run = r->m->run;
    struct run_ids *apis = &r->s->db.apis;
    int64_t id = sqlite3_column_int64(st, 0);
    if (run_ids_get(apis, id) == RUN_NONE) {
        run_ids_set(apis, id, (uint32_t)run->api_names_n);
        *ARENA_ADD(run->api_names) = run_column_text(run, st, 1);
    }
    return true;
}

/* A value that the recorder stored about itself at its last commit. */
static bool read_recovery_value(struct reading *r, sqlite3_stmt *st)
{
    static const struct {
        const char *name;
        enum top_layer layer;
        bool peak;
    } totals[] = {
        {"device_live", TOP_DEVICE, false}, {"tensor_live", TOP_TENSOR, false}, {"pinned_live", TOP_PINNED, false},
        {"host_live", TOP_HOST, false},     {"device_peak", TOP_DEVICE, true},  {"tensor_peak", TOP_TENSOR, true},
        {"pinned_peak", TOP_PINNED, true},  {"host_peak", TOP_HOST, true},
    };
    const char *name = (const char *)sqlite3_column_text(st, 0);
    int device = row_device_of(sqlite3_column_int64(st, 1));
    int64_t value = run_bounded(sqlite3_column_int64(st, 2));
    if (name && strcmp(name, "last_ns") == 0) r->s->end_ns = value > r->s->end_ns ? value : r->s->end_ns;
    for (size_t i = 0; name && i < sizeof totals / sizeof *totals; i++) {
        if (strcmp(name, totals[i].name) == 0) {
            bool host = totals[i].layer == TOP_PINNED || totals[i].layer == TOP_HOST;
            uint32_t at = top_series_at(r->m, r->source, host ? -1 : device, totals[i].layer);
            struct top_series *s = &r->m->series[at];
            *(totals[i].peak ? &s->peak : &s->known) = value;
        }
    }
    return true;
}

/* Calls `each` for each row until it has enough. False: the table cannot be read. */
static bool each_row(struct reading *r, const char *sql, int64_t last, int64_t from_ns,
                     bool (*each)(struct reading *, sqlite3_stmt *))
{
    sqlite3_stmt *st = run_database_prepare(&r->s->db, sql);
    int rc = SQLITE_DONE;
    if (!st) /* an older recording lacks some tables; the required ones were checked */
        return true;
    if (sqlite3_bind_parameter_count(st) > 0) sqlite3_bind_int64(st, 1, last);
    if (sqlite3_bind_parameter_count(st) > 1) sqlite3_bind_int64(st, 2, from_ns);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && each(r, st)) {
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE || rc == SQLITE_ROW || run_database_bad(&r->s->db, r->error, r->error_size);
}

static bool read_range(struct reading *r, sqlite3_stmt *st)
{
    struct top_source *s = r->s;
    if (s->ranges_n < TOP_RANGES_MAX) {
        struct top_range *range = &s->ranges[s->ranges_n++];
        const char *name = (const char *)sqlite3_column_text(st, 0), *domain = (const char *)sqlite3_column_text(st, 1);
        text_put(range->name, sizeof range->name, "%s", name ? name : "(no name)");
        text_put(range->domain, sizeof range->domain, "%s", domain ? domain : "");
        range->start_ns = run_bounded(sqlite3_column_int64(st, 2));
    }
    s->ranges_total++;
    return true;
}

static bool read_format(struct reading *r, sqlite3_stmt *st)
{
    struct top_source *s = r->s;
    const char *lacks = (const char *)sqlite3_column_text(st, 1);
    if (s->format || sqlite3_column_type(st, 0) == SQLITE_NULL) return false;
    s->format = run_column_text(r->m->run, st, 0);
    for (int i = 0; lacks && i < RUN_FACT_N; i++) s->lacks[i] = strstr(lacks, run_fact_words[i]);
    s->no_memory = s->lacks[RUN_FACT_MEMORY] ? run_column_text(r->m->run, st, 2) : NULL;
    s->no_rates = s->lacks[RUN_FACT_HISTORY] || s->lacks[RUN_FACT_TIMES];
    units_note_clock(!s->lacks[RUN_FACT_TIMES]);
    return false;
}

static bool read_small(struct reading *r)
{
    struct top_source *s = r->s;
    s->failures_n = s->ranges_n = s->ranges_total = 0;
    return each_row(r,
                    "SELECT pid, rank, command, cwd, host, run_id, start_real_ns, end_ns, complete, "
                    "lost_events FROM process LIMIT 1",
                    TOP_NO_ROW, 0, read_top_process) &&
           each_row(r, "SELECT value FROM meta WHERE key = 'events'", TOP_NO_ROW, 0, read_counted) &&
           each_row(r,
                    "SELECT max(CASE key WHEN 'import.format' THEN value END), max(CASE key WHEN 'import.lacks' THEN "
                    "value END), max(CASE key WHEN 'import.lacks.memory' THEN value END) FROM meta",
                    TOP_NO_ROW, 0, read_format) &&
           each_row(r, "SELECT id, name FROM api", TOP_NO_ROW, 0, read_api) &&
           each_row(r, "SELECT device, name, total_bytes, free_bytes, seen_ns FROM device", TOP_NO_ROW, 0,
                    read_top_device) &&
           each_row(r,
                    "SELECT id, device, time_ns, free_bytes, total_bytes, source, utilisation, "
                    "own_bytes, other_bytes, other_pid, other_name FROM sample WHERE id > ?",
                    s->last_sample, 0, read_top_sample) &&
           each_row(r, "SELECT key, value FROM meta WHERE key GLOB 'gpu*.temperature'", TOP_NO_ROW, 0,
                    read_temperature) &&
           each_row(r, "SELECT id, device, bytes FROM reserved WHERE id > ?", s->last_reserved, 0, read_reserved) &&
           each_row(
               r,
               "SELECT id, device, layer, requested_bytes, free_bytes, time_ns, fatal, stack_id, (SELECT name GLOB "
               "'pt_autograd_*' FROM thread WHERE thread.id = thread_id) FROM oom ORDER BY id DESC LIMIT 4",
               TOP_NO_ROW, 0, read_failure) &&
           each_row(r,
                    "SELECT count(*) FROM oom WHERE layer = 1 OR NOT EXISTS (SELECT 1 FROM meta WHERE key = "
                    "'torch_version')",
                    TOP_NO_ROW, 0, read_seen) &&
           each_row(r,
                    "SELECT n.name, d.name, m.start_ns FROM recovery_mark r JOIN mark m ON m.id = r.mark_id LEFT JOIN "
                    "mark_name n ON n.id = m.name LEFT JOIN mark_name d ON d.id = m.domain ORDER BY m.id",
                    TOP_NO_ROW, 0, read_range) &&
           each_row(r, "SELECT name, number, value FROM recovery_value", TOP_NO_ROW, 0, read_recovery_value);
}

static bool read_time(struct reading *r, sqlite3_stmt *st)
{
    r->s->curve_from_ns = run_bounded(sqlite3_column_int64(st, 0));
    return false;
}

/* Before the first update: which of the allocations that were freed the tables and curves need. Those of five minutes
 * for the curves, or of less for a program that allocates very often. */
static bool find_from(struct reading *r)
{
    struct top_source *s = r->s;
    char sql[160];
    int64_t from = s->end_ns - (TOP_WINDOW_S + 2 * TOP_SLOT_S) * 1000000000ll;
    s->first_ns = s->loaded ? s->first_ns : s->end_ns;
    s->curve_from_ns = 0;
    snprintf(sql, sizeof sql, "SELECT alloc_ns FROM %s WHERE id >= (SELECT max(id) FROM %s) - %d ORDER BY id LIMIT 1",
             s->db.allocations, s->db.allocations, CURVE_ROWS);
    if (!each_row(r, sql, TOP_NO_ROW, 0, read_time)) return false;
    const int64_t curve = s->end_ns - (TOP_CURVE_S + TOP_SLOT_S) * 1000000000ll;
    s->curve_from_ns = s->curve_from_ns > curve ? s->curve_from_ns : curve;
    from = from < s->curve_from_ns ? from : s->curve_from_ns;
    s->curve_from_ns = from > 0 ? from : 0;
    s->freed_ns = from;
    return true;
}

static int64_t rows_between(int64_t from, int64_t to)
{
    return from == TOP_NO_ROW ? (to == TOP_NO_ROW ? 0 : run_bounded(to)) : run_bounded(arena_add_capped(to, -from));
}

static const char *rows_table(const struct reading *r, enum top_rows what)
{
    return what == TOP_ROWS_ALLOCATION ? r->s->db.allocations : what == TOP_ROWS_COPY ? r->s->db.copies : "sync";
}

/* The first row from `at` on, or the last one up to it; TOP_NO_ROW: none. */
static int64_t row_near(struct reading *r, enum top_rows what, bool up, int64_t at)
{
    char sql[96];
    int64_t id = TOP_NO_ROW;
    snprintf(sql, sizeof sql, "SELECT %s(id) FROM %s WHERE id %s ?", up ? "min" : "max", rows_table(r, what),
             up ? ">=" : "<=");
    sqlite3_stmt *st = run_database_prepare(&r->s->db, sql);
    if (st) sqlite3_bind_int64(st, 1, at);
    if (st && sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL)
        id = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return id;
}

static bool read_between(struct reading *r, enum top_rows what, int64_t from, int64_t to)
{
    static const struct {
        const char *columns;
        bool (*read)(struct reading *, sqlite3_stmt *);
    } kinds[] = {
        [TOP_ROWS_ALLOCATION] = {"kind, bytes, alloc_ns, life_ns, alloc_stack_id, address", read_allocation},
        [TOP_ROWS_COPY] = {"kind, bytes, start_ns, blocked_ns, stack_id", read_top_copy},
        [TOP_ROWS_SYNC] = {"device, kind, api, start_ns, blocked_ns, stack_id", read_top_sync},
    };
    char sql[256], only[96] = "";
    if (r->older && what == TOP_ROWS_ALLOCATION)
        snprintf(only, sizeof only, "AND (life_ns IS NULL OR alloc_ns + life_ns >= %lld)", (long long)r->s->freed_ns);
    snprintf(sql, sizeof sql, "SELECT id, %s FROM %s WHERE id BETWEEN ? AND ? %s ORDER BY id", kinds[what].columns,
             rows_table(r, what), only);
    r->s->partly_read = !each_row(r, sql, from, to, kinds[what].read);
    return !r->s->partly_read;
}

/* The blocks of the last piece are older than all others. */
static void put_blocks_first(struct top_source *s, size_t before)
{
    const size_t n = s->alive_n - before;
    struct top_alive *piece = n && before ? arena_realloc(NULL, n, sizeof *piece) : NULL;
    if (!piece) return;
    memcpy(piece, s->alive + before, n * sizeof *piece);
    memmove(s->alive + n, s->alive, before * sizeof *piece);
    memcpy(s->alive, piece, n * sizeof *piece);
    s->cursor += n;
    free(piece);
}

static bool read_older_piece(struct reading *r, enum top_rows what)
{
    struct top_progress *p = &r->s->read[what];
    const size_t before = r->s->alive_n;
    const int64_t to = row_near(r, what, false, p->left), piece = r->m->piece;
    const int64_t from = to > INT64_MIN + piece ? to - piece + 1 : INT64_MIN + 1;
    r->older = true;
    r->waits = p->left == p->last;
    if (to != TOP_NO_ROW && !read_between(r, what, from, to)) return false;
    put_blocks_first(r->s, before);
    p->left = to == TOP_NO_ROW ? TOP_NO_ROW : row_near(r, what, false, from - 1);
    return true;
}

static bool read_newer_piece(struct reading *r, enum top_rows what)
{
    struct top_progress *p = &r->s->read[what];
    const int64_t from = row_near(r, what, true, p->last + 1);
    const int64_t to =
        from == TOP_NO_ROW || rows_between(from, p->newest) < r->m->piece ? p->newest : from + r->m->piece;
    r->older = false;
    r->waits = true;
    if (from != TOP_NO_ROW && !read_between(r, what, from, to)) return false;
    p->last = to;
    return true;
}

/* Reads pieces of all tables in turn, until nothing is left or the time is over. */
static bool read_pieces(struct reading *r, bool newer, int64_t until_ns)
{
    for (bool more = true; more;) {
        more = false;
        for (int what = 0; what < TOP_ROWS_N; what++) {
            const struct top_progress *p = &r->s->read[what];
            if (newer ? p->last == p->newest : p->left == TOP_NO_ROW) continue;
            if (!(newer ? read_newer_piece : read_older_piece)(r, what)) return false;
            more = more || (newer ? p->last != p->newest : p->left != TOP_NO_ROW);
        }
        if (clock_now_ns() > until_ns) break;
    }
    return true;
}

/* What was recorded since the last update has at most half of the time, so that older rows are read, too. */
static bool read_top_events(struct reading *r)
{
    struct top_source *s = r->s;
    const int64_t began = clock_now_ns();
    for (int what = 0; what < TOP_ROWS_N; what++) {
        struct top_progress *p = &s->read[what];
        p->newest = row_near(r, what, false, INT64_MAX);
        p->newest = p->newest < p->last ? p->last : p->newest;
        if (p->last == TOP_NO_ROW) {
            if (what == TOP_ROWS_ALLOCATION && !find_from(r)) return false;
            p->last = p->left = p->newest;
        }
    }
    if (!read_pieces(r, true, began + r->m->turn_ns / 2) || !read_pieces(r, false, began + r->m->turn_ns)) return false;
    s->unread_rows = 0;
    EACH (p, s->read, TOP_ROWS_N) {
        const int64_t newer = rows_between(p->last, p->newest), older = rows_between(TOP_NO_ROW, p->left);
        s->unread_rows = arena_add_capped(s->unread_rows, arena_add_capped(newer, older));
    }
    return true;
}

/* The time of the last event, if the recorder stores it nowhere: it has finished, or is an old one. */
static bool read_last_row(struct reading *r, sqlite3_stmt *st)
{
    int64_t time = run_bounded(sqlite3_column_int64(st, 0));
    r->s->end_ns = time > r->s->end_ns ? time : r->s->end_ns;
    return false;
}

static bool find_last(struct reading *r)
{
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT alloc_ns FROM %s ORDER BY id DESC LIMIT 1", r->s->db.allocations);
    return r->s->end_ns > 0 || each_row(r, sql, TOP_NO_ROW, 0, read_last_row);
}

static int64_t unknown_excess(const struct top_model *m, uint32_t source, bool *all_known)
{
    int64_t sum = 0;
    *all_known = true;
    EACH_IN (s, m->series) {
        if (s->source != source || s->layer == TOP_SHARED) continue;
        *all_known = *all_known && (s->known != RUN_UNKNOWN || s->bytes == 0);
        int64_t more = s->known == RUN_UNKNOWN ? 0 : arena_add_capped(s->bytes, -s->known);
        if (more < 0) /* a free was undone: the rows that were read are no longer valid */
            return -1;
        sum = arena_add_capped(sum, more);
    }
    return sum;
}

struct search {
    struct reading *r;
    sqlite3_stmt *range, *one;
    bool any;
};

static void end_found_block(struct search *f, struct top_alive *a, int64_t time_ns)
{
    if (a->asleep)
        top_asleep_end(f->r->m, a);
    else
        top_end_block(f->r->m, a->place, a->bytes, run_bounded(time_ns));
    a->place = RUN_NONE;
    f->any = true;
}

static void search_range(struct search *f, struct top_alive *a, size_t n)
{
    size_t i = 0;
    sqlite3_bind_int64(f->range, 1, a[0].id);
    sqlite3_bind_int64(f->range, 2, a[n - 1].id);
    while (sqlite3_step(f->range) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(f->range, 0);
        while (i < n && a[i].id < id) i++;
        if (i < n && a[i].id == id && a[i].place != RUN_NONE)
            end_found_block(f, &a[i], sqlite3_column_int64(f->range, 1));
    }
    sqlite3_reset(f->range);
}

static void search_each(struct search *f, struct top_alive *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (a[i].place == RUN_NONE) continue;
        sqlite3_bind_int64(f->one, 1, a[i].id);
        if (sqlite3_step(f->one) == SQLITE_ROW) end_found_block(f, &a[i], sqlite3_column_int64(f->one, 0));
        sqlite3_reset(f->one);
    }
}

static void search_block(struct search *f, struct top_alive *a, size_t n)
{
    bool dense = (uint64_t)a[n - 1].id - (uint64_t)a[0].id < (uint64_t)n * DENSE;
    (dense ? search_range : search_each)(f, a, n);
}

/* Youngest first for half of the time, then from where the last update stopped. */
static void search_freed_blocks(struct search *f, int64_t budget_ns)
{
    struct top_source *s = f->r->s;
    const int64_t began = clock_now_ns();
    size_t at = s->alive_n, left = s->alive_n;
    bool young = true, all_known;
    while (left > 0) {
        int64_t spent = clock_now_ns() - began;
        if (!s->unread_rows && unknown_excess(f->r->m, f->r->source, &all_known) <= 0 && all_known) break;
        if (budget_ns && young && spent > budget_ns / 2) {
            young = false;
            at = s->cursor < at ? s->cursor : at;
        } else if (budget_ns && spent > budget_ns) {
            break;
        }
        size_t n = at < BLOCK ? at : BLOCK;
        if (n == 0) {
            if (young) break;
            at = s->alive_n;
            continue;
        }
        at -= n;
        left -= n < left ? n : left;
        search_block(f, &s->alive[at], n);
    }
    if (!young) s->cursor = at;
}

static void compact_blocks(struct top_source *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->alive_n; i++)
        if (s->alive[i].place != RUN_NONE) s->alive[kept++] = s->alive[i];
    s->alive_n = kept;
}

static void find_ended(struct reading *r, int64_t budget_ns)
{
    char sql[2][160];
    snprintf(sql[0], sizeof sql[0],
             "SELECT id, alloc_ns + life_ns FROM %s WHERE id BETWEEN ? AND ? AND life_ns IS NOT NULL",
             r->s->db.allocations);
    snprintf(sql[1], sizeof sql[1], "SELECT alloc_ns + life_ns FROM %s WHERE id = ? AND life_ns IS NOT NULL",
             r->s->db.allocations);
    struct search f = {r, run_database_prepare(&r->s->db, sql[0]), run_database_prepare(&r->s->db, sql[1]), false};
    if (f.range && f.one) search_freed_blocks(&f, budget_ns);
    sqlite3_finalize(f.range);
    sqlite3_finalize(f.one);
    if (f.any) compact_blocks(r->s);
}

static void forget_known(struct top_model *m, uint32_t source)
{
    for (size_t i = 0; i < m->series_n; i++)
        if (m->series[i].source == source) m->series[i].known = RUN_UNKNOWN;
}

/* A recorder that stores live bytes stores nothing for a device and layer without allocations: zero. */
static void fill_known(struct top_model *m, uint32_t source)
{
    bool is_known = false;
    for (size_t i = 0; i < m->series_n; i++)
        is_known = is_known || (m->series[i].source == source && m->series[i].known != RUN_UNKNOWN);
    for (size_t i = 0; is_known && i < m->series_n; i++) {
        struct top_series *s = &m->series[i];
        if (s->source == source && s->known == RUN_UNKNOWN && s->layer != TOP_SHARED) s->known = 0;
    }
}

/* A recording can have blocks on a GPU about which it has nothing else. */
static void add_unnamed_devices(struct top_model *m, uint32_t source)
{
    EACH_IN (s, m->series)
        if (s->source == source && s->device >= 0) top_device_at(&m->sources[source], s->device);
}

/* Cells of notebooks get their numbers from the texts in the recording, or from a notebook. */
static void name_top_cells(struct run *run, struct top_source *s)
{
    bool any = false;
    for (size_t i = s->named; i < run->frames_n && !any; i++)
        any = run->frames[i].file && run->frames[i].file[0] == '/' && gs_source_is_cell(run->frames[i].file);
    s->named = run->frames_n;
    if (!any) return;
    *ARENA_ADD(run->databases) = s->db;
    *ARENA_ADD(run->processes) = (struct run_process){
        .pid = s->pid, .cwd = s->cwd, .path = s->db.path, .start_real_ns = s->start_real_ns, .exit_status = -1};
    run->sources_n = 0; /* they may have been stored meanwhile */
    size_t named = 0;
    for (size_t i = 0; i < run->cell_names_n; i++)
        if (run->cell_names[i].shown != run->cell_names[i].file) run->cell_names[named++] = run->cell_names[i];
    run->cell_names_n = named;
    run_name_cells(run);
    run->databases_n = run->processes_n = 0; /* the source closes its own */
}

enum { RELOAD_NS = 1000000000, SEARCH_NS = 10000000 };

bool top_rows_read(struct top_model *m, uint32_t source, bool final, int64_t budget_ns, char *error, size_t error_size)
{
    struct top_source *s = &m->sources[source];
    struct reading r = {.m = m, .s = s, .source = source, .error = error, .error_size = error_size};
    bool all_known;
    forget_known(m, source);
    if (s->partly_read) top_forget_rows(m, source);
    if (!run_load_names(m->run, &s->db, &s->names, error, error_size) || !read_small(&r) || !find_last(&r) ||
        !read_top_events(&r))
        return false;
    name_top_cells(m->run, s);
    fill_known(m, source);
    top_asleep_subtract(m, source);
    if (s->loaded) find_ended(&r, s->unread_rows ? SEARCH_NS : final || s->finished ? 0 : budget_ns);
    if (!s->finished && !s->unread_rows && s->loaded && unknown_excess(m, source, &all_known) < 0 &&
        clock_now_ns() - s->reloaded_ns > RELOAD_NS) {
        s->reloaded_ns = clock_now_ns();
        top_forget_allocations(m, source);
        if (!read_top_events(&r)) return false;
    }
    top_asleep_update(m, source);
    add_unnamed_devices(m, source);
    s->before_known = s->before_known || !s->unread_rows;
    s->loaded = true;
    int64_t more = unknown_excess(m, source, &all_known);
    s->unfound_bytes = s->finished || s->unread_rows || more < 0 ? 0 : more;
    return true;
}
