#include "analyzer/top/model.h"
#include "analyzer/base/clock.h"
#include "analyzer/base/sort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

const char *const top_layer_words[TOP_LAYERS] = {"device", "tensor", "pinned", "host", "shared"};

const char *top_api(const struct top_model *m, const struct top_source *s, uint32_t api)
{
    uint32_t at = run_ids_get(&s->db.apis, api);
    return at != RUN_NONE && m->run->api_names[at] ? m->run->api_names[at] : "";
}

struct top_model *top_model_new(run_symbol_fn symbol, void *symbol_data)
{
    struct top_model *m = ARENA_NEW(struct top_model, .run = arena_realloc(NULL, 1, sizeof *m->run),
                                    .began_ns = clock_now_ns(), .turn_ns = 100000000, .piece = 32768);
    *m->run = (struct run){.options = {.symbol = symbol, .symbol_data = symbol_data}};
    return m;
}

void top_model_free(struct top_model *m)
{
    if (!m) return;
    EACH_IN (s, m->sources) {
        run_database_close(&s->db);
        run_names_seen_free(&s->names);
        ARENA_RELEASE(s->devices, s->alive);
        map_free(&s->backwards);
    }
    for (size_t i = 0; i < m->series_n; i++) top_curve_clear(&m->series[i].curve);
    run_close(m->run);
    MAP_RELEASE(&m->place_map, &m->copy_map, &m->sync_map);
    ARENA_RELEASE(m->sources, m->series, m->places, m->copies, m->syncs, m);
}

void top_model_add(struct top_model *m, const char *path)
{
    struct top_source *s = ARENA_ADD(m->sources);
    *s = (struct top_source){
        .db = {.path = strdup(path)},
        .names = {.module = INT64_MIN, .frame = INT64_MIN, .stack = INT64_MIN},
        .state = TOP_WAITING,
        .rank = RUN_UNKNOWN,
        .start_real_ns = RUN_UNKNOWN,
        .start_mono_ns = RUN_UNKNOWN,
        .last_sample = INT64_MIN,
        .last_reserved = INT64_MIN,
    };
    for (int i = 0; i < TOP_ROWS_N; i++) s->read[i] = (struct top_progress){TOP_NO_ROW, TOP_NO_ROW, TOP_NO_ROW};
}

SORT_ORDER(order_sources_by_rank, struct top_source, SORT_UP(x->rank, y->rank) ?: strcmp(x->db.path, y->db.path))

void top_model_sort(struct top_model *m)
{
    char error[512];
    EACH_IN (s, m->sources) {
        sqlite3_stmt *st = run_database_begin_read(&s->db, error, sizeof error)
                               ? run_database_prepare(&s->db, "SELECT rank FROM process LIMIT 1")
                               : NULL;
        if (st && sqlite3_step(st) == SQLITE_ROW) s->rank = run_column_int(st, 0);
        sqlite3_finalize(st);
        run_database_end_read(&s->db);
    }
    SORT(m->sources, m->sources_n, order_sources_by_rank);
}

bool top_peek(const char *path, char *run_id, size_t size, bool *recording)
{
    struct run_database db = {.path = strdup(path)};
    struct top_spool spool;
    char error[512];
    bool found = false;
    if (run_database_begin_read(&db, error, sizeof error)) {
        sqlite3_stmt *st = run_database_prepare(&db, "SELECT run_id FROM process LIMIT 1");
        if (st && sqlite3_step(st) == SQLITE_ROW) {
            const char *text = (const char *)sqlite3_column_text(st, 0);
            snprintf(run_id, size, "%s", text ? text : "");
            found = true;
        }
        sqlite3_finalize(st);
    }
    run_database_close(&db);
    top_spool_read(path, NULL, 0, &spool);
    *recording = spool.owned;
    return found;
}

/* Does the name still refer to the file that was read? */
static bool still_exists(struct top_source *s)
{
    struct stat st;
    if (stat(s->db.path, &st) != 0) return false;
    if (!s->loaded) {
        s->file_device = st.st_dev;
        s->file_inode = st.st_ino;
    }
    return st.st_dev == s->file_device && st.st_ino == s->file_inode;
}

struct progress {
    struct gs_progress *at;
    uint32_t threads;
};

static void read_progress(struct top_source *s, struct progress *p)
{
    sqlite3_stmt *st = run_database_prepare(&s->db, "SELECT thread, seq, offset FROM recovery_thread");
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        int64_t thread = sqlite3_column_int64(st, 0);
        if (thread <= 0 || thread >= GS_SPOOL_THREADS) continue;
        while (p->threads <= (uint64_t)thread) {
            uint32_t n = p->threads ? 2 * p->threads : 64;
            p->at = arena_realloc(p->at, n, sizeof *p->at);
            memset(p->at + p->threads, 0, (n - p->threads) * sizeof *p->at);
            p->threads = n;
        }
        p->at[thread] = (struct gs_progress){.seq = (uint64_t)sqlite3_column_int64(st, 1),
                                             .offset = (uint32_t)sqlite3_column_int64(st, 2)};
    }
    sqlite3_finalize(st);
}

/* Events that wait in the spool are not visible here: sets how old the visible data can be at most. */
static void set_clock(struct top_source *s, const struct top_spool *spool)
{
    s->waiting_bytes = spool->waiting_bytes;
    s->start_mono_ns = spool->exists ? spool->start_mono_ns : s->start_mono_ns;
    s->age_ns = 0;
    s->now_ns = s->clock_ns = s->end_ns;
    if (s->state != TOP_RECORDING) return;
    int64_t now = s->end_ns;
    if (s->start_mono_ns != RUN_UNKNOWN)
        now = clock_now_ns() - s->start_mono_ns;
    else if (s->start_real_ns != RUN_UNKNOWN)
        now = clock_read_ns(CLOCK_REALTIME) - s->start_real_ns;
    s->clock_ns = now > s->end_ns ? now : s->end_ns;
    if (s->waiting_bytes == 0) s->fresh_ns = s->clock_ns;
    s->now_ns = s->fresh_ns > s->end_ns ? s->fresh_ns : s->end_ns;
    s->age_ns = s->clock_ns - s->now_ns;
}

static bool read_source_rows(struct top_model *m, uint32_t source, bool final, int64_t budget_ns,
                             struct progress *progress)
{
    struct top_source *s = &m->sources[source];
    char error[sizeof s->why] = "";
    bool open = run_database_begin_read(&s->db, error, sizeof error);
    if (!open && final) { /* a folder without write permission: open it as a report does */
        char *path = s->db.path;
        run_database_end_read(&s->db);
        open = run_database_open(m->run, &s->db, path, error, sizeof error);
        free(path);
    }
    bool ok = open && top_rows_read(m, source, final, budget_ns, error, sizeof error);
    if (ok) read_progress(s, progress);
    run_database_end_read(&s->db);
    if (!ok) snprintf(s->why, sizeof s->why, "%s", error);
    return ok;
}

static enum top_state source_state_of(const struct top_source *s, const struct top_spool *spool)
{
    return s->finished                     ? s->state
           : spool->exists && spool->owned ? TOP_RECORDING
           : spool->exists                 ? TOP_KILLED
                                           : TOP_TORN;
}

static void update_source(struct top_model *m, uint32_t source, int64_t budget_ns)
{
    struct top_source *s = &m->sources[source];
    struct progress progress = {0};
    struct top_spool spool;
    top_spool_read(s->db.path, NULL, 0, &spool);
    if (!still_exists(s)) {
        if (s->loaded || !spool.owned) s->state = TOP_DELETED;
        snprintf(s->why, sizeof s->why, "%s", s->loaded ? "" : "the file does not exist");
        return;
    }
    bool final = !spool.owned;
    bool ok = read_source_rows(m, source, final, budget_ns, &progress);
    if (!ok && !s->loaded) {
        s->state = spool.owned ? TOP_WAITING : TOP_UNREADABLE;
    } else if (!ok) { /* it may have ended meanwhile; the rows that were read stay */
        s->state = spool.owned ? s->state : TOP_UNREADABLE;
    } else {
        top_spool_read(s->db.path, progress.at, progress.threads, &spool);
        bool died = !final && !spool.owned; /* during the update: once more, to the end */
        s->state = died ? TOP_RECORDING : source_state_of(s, &spool);
        set_clock(s, &spool);
    }
    free(progress.at);
}

/* Rows of a recording that was deleted, or that cannot be read, stay unread. */
static int64_t readable_rows(const struct top_source *s)
{
    return s->state == TOP_DELETED || s->state == TOP_UNREADABLE ? 0 : s->unread_rows;
}

bool top_model_update(struct top_model *m, int64_t budget_ns)
{
    bool any = false;
    for (size_t i = 0; i < m->sources_n; i++) {
        const struct top_source *s = &m->sources[i];
        if (s->state == TOP_WAITING || s->state == TOP_RECORDING || readable_rows(s))
            update_source(m, (uint32_t)i, budget_ns);
        any = any || m->sources[i].state == TOP_WAITING || m->sources[i].state == TOP_RECORDING;
    }
    return any;
}

int64_t top_model_unread(const struct top_model *m)
{
    int64_t rows = 0;
    EACH_IN (s, m->sources) rows = arena_add_capped(rows, readable_rows(s));
    return rows;
}

bool top_model_update_whole(struct top_model *m, int64_t limit_ns)
{
    const int64_t began = clock_now_ns();
    bool any;
    do any = top_model_update(m, 0);
    while (top_model_unread(m) && (!any || clock_now_ns() - began < limit_ns));
    return any;
}
