/* Marks and NVTX ranges. The two records of a range become one row. A range may span commits, and the end of a process:
 * recovery_mark keeps its key while it is open, as an allocation's row keeps the address. */
#include "schema/store_state.h"

#include <stdlib.h>

/* Bounds the memory of a program that uses a new name in each step: after this many names the map starts anew, and a
 * name that occurs again may get a second number. */
#define NAMES_KEPT 65536

/* ---------------------------------------------------------------- an event → rows in memory */

static struct gs_content name_key(const char *text, size_t length)
{
    return gs_content_hash((struct gs_content){0, 4}, text, length);
}

static int intern_mark_text(struct gs_store *s, const char *text, size_t length, uint32_t *id)
{
    struct gs_marks *m = &s->marks;
    const size_t before = s->text.count;
    struct gs_row_mark_name name = {.id = 0};
    *id = 0;
    if (!length) return 0;
    if (gs_store_add_text(s, text, length, &name.name)) return -1;
    const struct gs_content key = name_key(s->text.at + name.name.at, name.name.length);
    *id = gs_id_find(&m->name_ids, key);
    if (*id) {
        s->text.count = before;
        return 0;
    }
    if (m->last_name % NAMES_KEPT == 0) gs_id_free(&m->name_ids);
    struct gs_row_mark_name *row = GS_ARRAY_ADD(&m->names);
    if (!row || !gs_id_add(&m->name_ids, key, m->last_name + 1)) return gs_store_no_memory(s);
    name.id = *id = ++m->last_name;
    *row = name;
    return 0;
}

/* Identifies a range by what its two records share. A collision of 64 bits would take about 2^32 open ranges. */
static uint64_t mark_range_key(const struct gs_store *s, uint32_t thread, const struct gs_rec_mark *rec)
{
    if (rec->kind == GS_MARK_START || rec->kind == GS_MARK_END) return rec->id;
    const struct gs_content seed = {(uint64_t)gs_store_thread_row(s, thread) << 32 | (rec->id & UINT32_MAX), 5};
    return gs_content_hash(seed, rec + 1, rec->domain_len).a;
}

static int64_t mark_time_of(const struct gs_rec_mark *rec)
{
    return rec->rec.time_ns > INT64_MAX ? INT64_MAX : (int64_t)rec->rec.time_ns;
}

/* Removes `open`, an entry of the map. */
static int close_range(struct gs_store *s, struct gs_live *open, int64_t life_ns)
{
    struct gs_marks *m = &s->marks;
    const int64_t id = (int64_t)open->id;
    gs_live_remove(&m->open, open);
    if (id >= m->first) {
        m->rows.at[id - m->first].life_ns = life_ns;
        m->rows.at[id - m->first].lost = life_ns == GS_OPEN;
        return 0;
    }
    struct gs_row_mark_end *row = GS_ARRAY_ADD(&m->ends);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_mark_end){id, life_ns};
    return 0;
}

static int end_mark_range(struct gs_store *s, uint32_t thread, const struct gs_rec_mark *rec)
{
    const uint8_t kind = rec->kind == GS_MARK_POP ? GS_MARK_PUSH : GS_MARK_START;
    struct gs_live *open = gs_live_find(&s->marks.open, kind, mark_range_key(s, thread, rec));
    if (!open) { /* most likely it began before the recording */
        s->counts[GS_COUNT_UNMATCHED_ENDS]++;
        return 0;
    }
    const int64_t began = (int64_t)open->alloc_ns, now = mark_time_of(rec), life = now > began ? now - began : 0;
    gs_scope_end(s, (uint32_t)open->bytes, life);
    return close_range(s, open, life);
}

/* If a range is open under the same key, its end was not recorded. */
static int open_mark_range(struct gs_store *s, const struct gs_row_mark *row, int64_t id, uint32_t scope)
{
    const struct gs_live open = {.address = row->key,
                                 .id = (uint64_t)id,
                                 .bytes = scope,
                                 .alloc_ns = (uint64_t)row->start_ns,
                                 .layer = row->kind};
    struct gs_live *old = gs_live_find(&s->marks.open, row->kind, row->key);
    if (old && close_range(s, old, GS_OPEN)) return -1;
    return gs_live_add(&s->marks.open, &open) ? 0 : gs_store_no_memory(s);
}

int gs_store_add_mark(struct gs_store *s, uint32_t thread, const struct gs_rec_mark *rec)
{
    struct gs_marks *m = &s->marks;
    const char *text = (const char *)(rec + 1);
    if (rec->kind == GS_MARK_POP || rec->kind == GS_MARK_END) return end_mark_range(s, thread, rec);
    uint32_t name, domain;
    if (intern_mark_text(s, text, rec->domain_len, &domain) ||
        intern_mark_text(s, text + rec->domain_len, rec->name_len, &name))
        return -1;
    struct gs_row_mark *row = GS_ARRAY_ADD(&m->rows);
    if (!row) return gs_store_no_memory(s);
    const bool range = rec->kind == GS_MARK_PUSH || rec->kind == GS_MARK_START;
    *row = (struct gs_row_mark){.start_ns = mark_time_of(rec),
                                .life_ns = range ? GS_OPEN : 0,
                                .key = range ? mark_range_key(s, thread, rec) : 0,
                                .name = name,
                                .domain = domain,
                                .thread = gs_store_thread_row(s, thread),
                                .kind = rec->kind};
    if (!range) return 0;
    const uint32_t scope = gs_scope_begin(s, text, rec->domain_len, text + rec->domain_len, rec->name_len);
    return open_mark_range(s, row, m->first + (int64_t)m->rows.count - 1, scope);
}

/* ---------------------------------------------------------------- rows in memory → SQL */

static int write_names(struct gs_store *s)
{
    sqlite3_stmt *st = s->marks.names.count ? gs_store_statement(s, GS_SQL_MARK_NAME) : NULL;
    for (size_t i = 0; i < s->marks.names.count; i++) {
        const struct gs_row_mark_name *row = &s->marks.names.at[i];
        if (!st) return -1;
        sqlite3_bind_int64(st, 1, row->id);
        sqlite3_bind_text(st, 2, s->text.at + row->name.at, (int)row->name.length, SQLITE_STATIC);
        if (gs_store_run(s, st)) return -1;
    }
    return 0;
}

static int write_open_ranges(struct gs_store *s)
{
    for (size_t i = 0; i < s->marks.ends.count; i++) {
        const struct gs_row_mark_end *row = &s->marks.ends.at[i];
        sqlite3_stmt *st = gs_store_statement(s, GS_SQL_MARK_END);
        if (!st) return -1;
        gs_bind_known(st, 1, row->life_ns);
        sqlite3_bind_int64(st, 2, row->id);
        if (gs_store_run(s, st) || !(st = gs_store_statement(s, GS_SQL_MARK_CLOSED))) return -1;
        sqlite3_bind_int64(st, 1, row->id);
        if (gs_store_run(s, st)) return -1;
    }
    return 0;
}

static int write_open(struct gs_store *s)
{
    for (size_t i = 0; i < s->marks.rows.count; i++) {
        const struct gs_row_mark *row = &s->marks.rows.at[i];
        if (row->life_ns != GS_OPEN || row->lost) continue;
        sqlite3_stmt *st = gs_store_statement(s, GS_SQL_MARK_OPEN);
        if (!st) return -1;
        sqlite3_bind_int64(st, 1, s->marks.first + (int64_t)i);
        sqlite3_bind_int(st, 2, row->kind);
        sqlite3_bind_int64(st, 3, (int64_t)row->key);
        if (gs_store_run(s, st)) return -1;
    }
    return 0;
}

int gs_store_write_marks(struct gs_store *s)
{
    return write_names(s) || gs_store_take(s, GS_SQL_MARK, s->marks.rows.count) || write_open_ranges(s) || write_open(s)
               ? -1
               : 0;
}

void gs_store_forget_marks(struct gs_store *s)
{
    s->marks.first += (int64_t)s->marks.rows.count;
    s->marks.rows.count = s->marks.ends.count = s->marks.names.count = 0;
}

/* ---------------------------------------------------------------- an unfinished database */

static int load_open(struct gs_store *s, sqlite3_stmt *st)
{
    const struct gs_row_mark row = {.kind = (uint8_t)sqlite3_column_int(st, 1),
                                    .key = (uint64_t)sqlite3_column_int64(st, 2),
                                    .start_ns = sqlite3_column_int64(st, 3)};
    const int64_t id = sqlite3_column_int64(st, 0);
    return id > 0 && row.start_ns >= 0 ? open_mark_range(s, &row, id, 0) : 0;
}

/* Restores the names that the map held, see intern_mark_text. */
static int load_name(struct gs_store *s, sqlite3_stmt *st)
{
    const int64_t id = sqlite3_column_int64(st, 0);
    const char *name = (const char *)sqlite3_column_text(st, 1);
    if (id <= 0 || id >= UINT32_MAX || !name) return 0;
    const struct gs_content key = name_key(name, (size_t)sqlite3_column_bytes(st, 1));
    s->marks.last_name = (uint32_t)id;
    return gs_id_add(&s->marks.name_ids, key, (uint32_t)id) ? 0 : gs_store_no_memory(s);
}

static int load_first(struct gs_store *s, sqlite3_stmt *st)
{
    s->marks.first = sqlite3_column_int64(st, 0) + 1;
    return 0;
}

int gs_store_load_marks(struct gs_store *s)
{
#define STRING_OF(x) #x
#define NUMBER(x) STRING_OF(x)
    return gs_store_each(s, "SELECT coalesce(max(id),0) FROM mark", load_first) ||
                   gs_store_each(s,
                                 "SELECT id,name FROM mark_name WHERE id>(SELECT (max(id)-1)/" NUMBER(
                                     NAMES_KEPT) "*" NUMBER(NAMES_KEPT) " FROM mark_name) ORDER BY id",
                                 load_name) ||
                   gs_store_each(s,
                                 "SELECT mark_id,r.kind,key,start_ns FROM recovery_mark r JOIN mark m"
                                 " ON m.id=mark_id ORDER BY mark_id",
                                 load_open)
               ? -1
               : 0;
}

void gs_store_free_marks(struct gs_store *s)
{
    free(s->marks.rows.at);
    free(s->marks.ends.at);
    free(s->marks.names.at);
    gs_id_free(&s->marks.name_ids);
    gs_live_free(&s->marks.open);
}
