/* Converts each table of an export to rows of one form. Schemas differ in tables and columns: an absent one, or one
 * that is not a plain column of a plain table, reads as a constant. A value that is not a number is NULL here; its row
 * is left out and counted. Process: globalPid or globalTid >> 24, which contain hardware, virtual machine and pid;
 * thread: globalTid. */
#include "analyzer/import/nsys_stage.h"

#include <stdio.h>
#include <stdlib.h>
#include "analyzer/base/text.h"
#include "analyzer/base/arena.h"
#include "analyzer/import/nsys_calls.h"
#include "schema/event.h"

static const char tables_sql[] =
    "CREATE TABLE text(id INTEGER PRIMARY KEY, value TEXT);"
    "CREATE TABLE api(id INTEGER PRIMARY KEY, name TEXT, role INTEGER);"
    "CREATE TABLE call(id INTEGER PRIMARY KEY, process INTEGER, correlation INTEGER, start INTEGER, span INTEGER,"
    "                  thread INTEGER, api INTEGER, chain INTEGER);"
    "CREATE UNIQUE INDEX call_of ON call(correlation, process) WHERE correlation > 0;"
    "CREATE TABLE sync(process INTEGER, correlation INTEGER, start INTEGER, span INTEGER, device INTEGER,"
    "                  stream INTEGER, type INTEGER, event INTEGER);"
    "CREATE INDEX sync_of ON sync(correlation, process);"
    /* chain: the call's callchainId + 1, 0: none; seq: the call or the range; span: nanoseconds of the host, -1:
     * unknown; word: copy_word(), space or kind of wait */
    "CREATE TABLE event(process INTEGER, at INTEGER, kind INTEGER, seq INTEGER, thread INTEGER, api INTEGER,"
    "                   device INTEGER, stream INTEGER, bytes INTEGER, span INTEGER, word INTEGER, address INTEGER,"
    "                   chain INTEGER);"
    "CREATE TABLE range(id INTEGER PRIMARY KEY, process INTEGER, thread INTEGER, start INTEGER, end INTEGER,"
    "                   kind INTEGER, domain INTEGER, name TEXT);"
    "CREATE TABLE domain(process INTEGER, id INTEGER, name TEXT, PRIMARY KEY(process, id)) WITHOUT ROWID;"
    "CREATE TABLE chain(id INTEGER, depth INTEGER, symbol INTEGER, module INTEGER, PRIMARY KEY(id, depth)) "
    "WITHOUT ROWID;"
    "CREATE TABLE thread(id INTEGER PRIMARY KEY, name INTEGER, priority INTEGER);"
    "CREATE TABLE process(id INTEGER PRIMARY KEY, name TEXT, first INTEGER, last INTEGER);"
    "CREATE TABLE failure(process INTEGER PRIMARY KEY, count INTEGER);"
    "CREATE TABLE gpu(process INTEGER, device INTEGER, name TEXT, bytes INTEGER);";

#define RUNTIME "CUPTI_ACTIVITY_KIND_RUNTIME"
#define MEMCPY "CUPTI_ACTIVITY_KIND_MEMCPY"
#define MEMSET "CUPTI_ACTIVITY_KIND_MEMSET"
#define KERNEL "CUPTI_ACTIVITY_KIND_KERNEL"
#define SYNC "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
#define MEMORY "CUDA_GPU_MEMORY_USAGE_EVENTS"
#define TIMES "BETWEEN -2305843009213693952 AND 2305843009213693952" /* ± 2^61, so that differences fit in 64 bits */
#define ONCE " LIMIT -1"                          /* keeps SQLite from evaluating a column again at each use */
#define SIZES "BETWEEN 0 AND 1152921504606846976" /* 2^60 */

struct staging {
    struct import_nsys *s;
    struct arena arena;
    struct import_spans spans;
    char *error;
    size_t error_size;
};

static bool exec_staging(struct staging *g, const char *sql)
{
    return sqlite3_exec(g->s->db, sql, NULL, NULL, NULL) == SQLITE_OK || import_nsys_bad(g->s, g->error, g->error_size);
}

static bool exec_staging_format(struct staging *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool exec_staging_format(struct staging *g, const char *format, ...)
{
    char sql[4096];
    int n = TEXT_FORMAT(sql, sizeof sql, format);
    return n < (int)sizeof sql && exec_staging(g, sql);
}

static bool staging_finds(struct staging *g, const char *sql, const char *table, const char *column)
{
    sqlite3_stmt *st = NULL;
    bool found = sqlite3_prepare_v2(g->s->db, sql, -1, &st, NULL) == SQLITE_OK &&
                 sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC) == SQLITE_OK &&
                 (!column || sqlite3_bind_text(st, 2, column, -1, SQLITE_STATIC) == SQLITE_OK) &&
                 sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return found;
}

static bool has_nsys_table(struct staging *g, const char *table)
{
    return staging_finds(
        g, "SELECT 1 FROM x.sqlite_master WHERE type = 'table' AND name = ?1 AND sql NOT LIKE 'create virtual%'", table,
        NULL);
}

/* False for a generated column, because its expression comes from the file. */
static bool has_nsys_column(struct staging *g, const char *table, const char *column)
{
    return staging_finds(g, "SELECT 1 FROM pragma_table_info(?1, 'x') WHERE name = ?2", table, column);
}

/* SQL for the column as a whole number; `otherwise` if the column is missing or the value is not a number. */
static const char *number_column(struct staging *g, const char *table, const char *column, const char *otherwise)
{
    return has_nsys_column(g, table, column) ? arena_printf(&g->arena, "whole(t.\"%s\",%s)", column, otherwise)
                                             : arena_printf(&g->arena, "%s", otherwise);
}

static const char *process_column_of(struct staging *g, const char *table)
{
    if (has_nsys_column(g, table, "globalPid"))
        return arena_printf(&g->arena, "(%s>>24)", number_column(g, table, "globalPid", "NULL"));
    return has_nsys_table(g, RUNTIME) && has_nsys_column(g, RUNTIME, "globalTid")
               ? "(SELECT min(globalTid)>>24 FROM x." RUNTIME ")"
               : "0";
}

static const char *span_of(struct staging *g, const char *table)
{
    return arena_printf(&g->arena, "span(%s,%s)", number_column(g, table, "start", "NULL"),
                        number_column(g, table, "end", "NULL"));
}

/* Counts rows that were left out: all rows of the table, minus those that the last statement wrote. */
static bool count_damaged(struct staging *g, const char *table, const char *condition, int64_t taken)
{
    sqlite3_stmt *st = NULL;
    char sql[256];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM x.%s t WHERE %s", table, condition);
    bool ok = sqlite3_prepare_v2(g->s->db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW;
    int64_t all = ok ? sqlite3_column_int64(st, 0) : 0;
    sqlite3_finalize(st);
    g->s->damaged += ok && all > taken ? (uint64_t)(all - taken) : 0;
    return ok || import_nsys_bad(g->s, g->error, g->error_size);
}

static bool stage_names(struct staging *g)
{
    if (has_nsys_column(g, "StringIds", "value") && has_nsys_table(g, "StringIds") &&
        !exec_staging_format(
            g,
            "INSERT OR IGNORE INTO text SELECT %s, substr(CAST(t.value AS TEXT), 1, %d) FROM x.StringIds t "
            "WHERE %s IS NOT NULL AND typeof(t.value) IN ('text','blob')",
            number_column(g, "StringIds", "id", "NULL"), GS_STRING_MAX, number_column(g, "StringIds", "id", "NULL")))
        return false;
    if (has_nsys_table(g, "ThreadNames") &&
        !exec_staging_format(
            g,
            "INSERT INTO thread SELECT tid, name, priority FROM (SELECT %s AS tid, %s AS name, %s AS priority FROM "
            "x.ThreadNames t) WHERE tid IS NOT NULL "
            "ON CONFLICT(id) DO UPDATE SET name = excluded.name, priority = excluded.priority "
            "WHERE excluded.priority > thread.priority",
            number_column(g, "ThreadNames", "globalTid", "NULL"), number_column(g, "ThreadNames", "nameId", "NULL"),
            number_column(g, "ThreadNames", "priority", "0")))
        return false;
    return true;
}

/* With call chains a call may have two rows of the same number, one of which has the chain: makes one call of the
 * longer duration. */
static bool stage_calls(struct staging *g)
{
    if (!has_nsys_table(g, RUNTIME)) return true;
    const char *start = number_column(g, RUNTIME, "start", "NULL"), *api = number_column(g, RUNTIME, "nameId", "0"),
               *thread = number_column(g, RUNTIME, "globalTid", "NULL");
    return exec_staging_format(
               g,
               "INSERT INTO api SELECT DISTINCT n, call_name(text.value), call_role(call_name(text.value)) FROM "
               "(SELECT DISTINCT %s AS n FROM x." RUNTIME " t) JOIN text ON text.id = n",
               api) &&
           exec_staging_format(
               g,
               "INSERT INTO call(process,correlation,start,span,thread,api,chain) "
               "SELECT thread>>24, n, start, span, thread, name, coalesce(chain + 1, 0) FROM (SELECT %s AS n, %s AS "
               "start, %s AS span, "
               "%s AS thread, %s AS name, %s AS chain FROM x." RUNTIME " t" ONCE ") "
               "WHERE start " TIMES " AND span " SIZES " AND thread IS NOT NULL AND "
               "coalesce((SELECT role FROM api WHERE id = name), 0) <> %d "
               "ON CONFLICT(correlation, process) WHERE correlation > 0 DO UPDATE SET "
               "chain = max(chain, excluded.chain), start = iif(excluded.span > span, excluded.start, start), "
               "span = max(span, excluded.span)",
               number_column(g, RUNTIME, "correlationId", "0"), start, span_of(g, RUNTIME), thread, api,
               number_column(g, RUNTIME, "callchainId", "NULL"), IMPORT_ROLE_LAUNCH) &&
           count_damaged(g, RUNTIME, arena_printf(&g->arena, "%s IS NULL OR %s IS NULL", start, thread), 0);
}

/* Allocations that failed; nothing else is known about them. cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY are
 * both 2. */
static bool stage_failures(struct staging *g)
{
    if (!has_nsys_table(g, RUNTIME) || !has_nsys_column(g, RUNTIME, "returnValue")) return true;
    return exec_staging_format(
        g,
        "INSERT INTO failure SELECT thread>>24, count(DISTINCT iif(n > 0, n, start)) FROM (SELECT %s AS thread, "
        "%s AS api, %s AS code, %s AS n, %s AS start FROM x." RUNTIME " t" ONCE ") f JOIN api a ON a.id = f.api "
        "WHERE code = 2 AND a.role = %d AND thread IS NOT NULL GROUP BY 1",
        number_column(g, RUNTIME, "globalTid", "NULL"), number_column(g, RUNTIME, "nameId", "0"),
        number_column(g, RUNTIME, "returnValue", "0"), number_column(g, RUNTIME, "correlationId", "0"),
        number_column(g, RUNTIME, "start", "0"), IMPORT_ROLE_ALLOC);
}

/* Notes the processes of a table, and when they were active. */
static bool note_processes(struct staging *g, const char *table, const char *process)
{
    if (!has_nsys_table(g, table)) return true;
    return exec_staging_format(g, "SELECT count(note_process(%s, %s, %s)) FROM x.%s t", process,
                               number_column(g, table, "start", "NULL"), span_of(g, table), table);
}

static bool stage_processes(struct staging *g)
{
    static const char *const tables[] = {MEMCPY, MEMSET, KERNEL, SYNC, MEMORY};
    sqlite3_stmt *st = NULL;
    bool ok =
        note_processes(g, RUNTIME, arena_printf(&g->arena, "(%s>>24)", number_column(g, RUNTIME, "globalTid", "NULL")));
    for (size_t i = 0; ok && i < sizeof tables / sizeof *tables; i++)
        ok = note_processes(g, tables[i], process_column_of(g, tables[i]));
    if (!ok) return false;
    ok = sqlite3_prepare_v2(g->s->db, "INSERT INTO process(id, first, last) VALUES(?1, ?2, ?3)", -1, &st, NULL) ==
         SQLITE_OK;
    for (size_t i = 0; ok && i < g->spans.n; i++) {
        const struct import_span *span = &g->spans.list[i];
        sqlite3_reset(st);
        sqlite3_bind_int64(st, 1, span->process);
        sqlite3_bind_int64(st, 2, span->first);
        sqlite3_bind_int64(st, 3, span->last);
        ok = sqlite3_step(st) == SQLITE_DONE;
    }
    sqlite3_finalize(st);
    return ok || import_nsys_bad(g->s, g->error, g->error_size);
}

static bool stage_syncs(struct staging *g)
{
    if (!has_nsys_table(g, SYNC)) return true;
    return exec_staging_format(
               g,
               "INSERT INTO sync SELECT * FROM (SELECT %s AS process, %s, %s AS start, %s AS span, %s, %s, %s, %s "
               "FROM x." SYNC " t" ONCE ") WHERE start " TIMES " AND span " SIZES " AND process IS NOT NULL",
               process_column_of(g, SYNC), number_column(g, SYNC, "correlationId", "0"),
               number_column(g, SYNC, "start", "NULL"), span_of(g, SYNC), number_column(g, SYNC, "deviceId", "-1"),
               number_column(g, SYNC, "streamId", "4294967295"), number_column(g, SYNC, "syncType", "0"),
               number_column(g, SYNC, "eventId", "4294967295")) &&
           count_damaged(g, SYNC, "1", sqlite3_changes64(g->s->db));
}

/* Waits of the host: calls that wait; frees that did; waits whose call was not recorded or has no name. A stream that
 * waits for an event (type 2) does not block the host, nor does a query. The types of old exports are not CUPTI's: 1
 * may be any kind. */
static bool stage_waits(struct staging *g)
{
    return exec_staging_format(
               g,
               "INSERT INTO event SELECT c.process, c.start, %d, c.id, c.thread, c.api, "
               "coalesce((SELECT device FROM sync s WHERE s.correlation = c.correlation AND s.process = c.process "
               "AND c.correlation > 0), -1), "
               "coalesce((SELECT nullif(stream, 4294967295) FROM sync s WHERE s.correlation = c.correlation AND "
               "s.process = c.process AND c.correlation > 0), 0), 0, c.span, a.role - %d, 0, c.chain "
               "FROM call c JOIN api a ON a.id = c.api WHERE a.role >= %d",
               IMPORT_STAGED_WAIT, IMPORT_ROLE_WAIT, IMPORT_ROLE_WAIT) &&
           exec_staging_format(
               g,
               "INSERT INTO event SELECT s.process, s.start, %d, coalesce(c.id, 0), coalesce(c.thread, 0), "
               "coalesce(c.api, 0), s.device, iif(s.stream = 4294967295, 0, s.stream), 0, s.span, "
               "CASE WHEN c.id IS NOT NULL THEN %d WHEN s.type = 3 THEN %d WHEN s.type = 4 THEN %d "
               "WHEN s.type = 1 AND s.event <> 4294967295 THEN %d WHEN s.stream <> 4294967295 THEN %d ELSE %d END, "
               "0, coalesce(c.chain, 0) FROM sync s "
               "LEFT JOIN call c ON c.correlation = s.correlation AND c.process = s.process AND c.correlation > 0 "
               "LEFT JOIN api a ON a.id = c.api WHERE s.type <> 2 AND (a.id IS NULL OR a.role = %d)",
               IMPORT_STAGED_WAIT, GS_SYNC_IMPLICIT, GS_SYNC_STREAM, GS_SYNC_CONTEXT, GS_SYNC_EVENT, GS_SYNC_STREAM,
               GS_SYNC_CONTEXT, IMPORT_ROLE_FREE);
}

/* A copy begins when the host calls it, and blocks the host for the duration of the call. A copy of a graph, a
 * migration of managed memory, or a copy whose call was not recorded begins when the GPU begins it. */
static bool stage_copies(struct staging *g, const char *table, enum import_staged kind, const char *word)
{
    if (!has_nsys_table(g, table)) return true;
    return exec_staging_format(
               g,
               "INSERT INTO event SELECT m.process, iif(c.id IS NULL OR a.role IS %d, m.start, c.start), %d, "
               "iif(c.id IS NULL OR a.role IS %d, 0, c.id), coalesce(c.thread, 0), coalesce(c.api, 0), m.device, "
               "m.stream, m.bytes, iif(c.id IS NULL OR a.role IS %d, -1, c.span), m.word, 0, coalesce(c.chain, 0) "
               "FROM (SELECT %s AS process, %s AS start, %s AS n, %s AS device, %s AS stream, %s AS bytes, %s AS word "
               "FROM x.%s t" ONCE ") m LEFT JOIN call c ON c.correlation = m.n AND c.process = m.process AND "
               "c.correlation > 0 LEFT JOIN api a ON a.id = c.api "
               "WHERE m.start " TIMES " AND m.bytes " SIZES " AND m.process IS NOT NULL",
               IMPORT_ROLE_GRAPH, kind, IMPORT_ROLE_GRAPH, IMPORT_ROLE_GRAPH, process_column_of(g, table),
               number_column(g, table, "start", "NULL"), number_column(g, table, "correlationId", "0"),
               number_column(g, table, "deviceId", "-1"), number_column(g, table, "streamId", "0"),
               number_column(g, table, "bytes", "NULL"), word, table) &&
           count_damaged(g, table, "1", sqlite3_changes64(g->s->db));
}

/* Memory of an imported pool belongs to the process that exported it. Pageable memory is not CUDA's. */
static bool stage_memory(struct staging *g)
{
    if (!has_nsys_table(g, MEMORY)) return true;
    const char *kind = number_column(g, MEMORY, "memKind", "2"),
               *pool = number_column(g, MEMORY, "localMemoryPoolAddress", "0"),
               *imported = number_column(g, MEMORY, "importedMemoryPoolAddress", "0");
    bool ok = exec_staging_format(
        g,
        "INSERT INTO event SELECT m.process, m.start, iif(m.freed, %d, %d), coalesce(c.id, 0), "
        "coalesce(c.thread, 0), coalesce(c.api, 0), m.device, m.stream, m.bytes, 0, m.space, m.address, "
        "coalesce(c.chain, 0) FROM (SELECT %s AS process, %s AS start, %s AS freed, %s AS device, %s AS stream, "
        "%s AS bytes, iif(%s, %d, space_of(%s)) AS space, %s AS address, %s AS n, %s AS imported "
        "FROM x." MEMORY " t" ONCE ") m "
        "LEFT JOIN call c ON c.correlation = m.n AND c.process = m.process AND c.correlation > 0 "
        "WHERE m.start " TIMES " AND m.bytes " SIZES " AND m.process IS NOT NULL AND m.freed IN (0, 1) AND "
        "m.address IS NOT NULL AND m.space >= 0 AND NOT m.imported",
        IMPORT_STAGED_FREE, IMPORT_STAGED_ALLOC, process_column_of(g, MEMORY),
        number_column(g, MEMORY, "start", "NULL"), number_column(g, MEMORY, "memoryOperationType", "NULL"),
        number_column(g, MEMORY, "deviceId", "-1"), number_column(g, MEMORY, "streamId", "0"),
        number_column(g, MEMORY, "bytes", "NULL"), pool, GS_SPACE_POOL, kind,
        number_column(g, MEMORY, "address", "NULL"), number_column(g, MEMORY, "correlationId", "0"), imported);
    int64_t taken = ok ? sqlite3_changes64(g->s->db) : 0;
    g->s->memory = taken > 0;
    char real[256];
    snprintf(real, sizeof real, "coalesce(%s, 2) <> 0 AND NOT %s", kind, imported);
    return ok && count_damaged(g, MEMORY, real, taken) &&
           (!taken || exec_staging_format(
                          g,
                          "INSERT INTO event SELECT c.process, c.start, %d, c.id, c.thread, c.api, 0, 0, 0, c.span, "
                          "0, 0, c.chain FROM call c JOIN api a ON a.id = c.api WHERE a.role IN (%d, %d)",
                          IMPORT_STAGED_CALL, IMPORT_ROLE_ALLOC, IMPORT_ROLE_FREE));
}

/* callchainId is the number of a chain or, in exports of about 2022, one less: chooses the one with which more calls
 * have a chain that contains them. */
static bool find_first_chain(struct staging *g)
{
    enum { SAMPLED_ROWS = 1000 };
    int64_t found[2] = {0, 0};
    for (int first = 0; first < 2; first++) {
        sqlite3_stmt *st = NULL;
        char sql[512];
        snprintf(
            sql, sizeof sql,
            "SELECT count(*) FROM (SELECT * FROM call WHERE chain > 0 LIMIT %d) k JOIN api a ON a.id = k.api WHERE "
            "EXISTS (SELECT 1 FROM chain c JOIN text s ON s.id = c.symbol WHERE c.id = k.chain - 1 + %d AND "
            "s.value = a.name)",
            SAMPLED_ROWS, first);
        bool ok = sqlite3_prepare_v2(g->s->db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW;
        found[first] = ok ? sqlite3_column_int64(st, 0) : 0;
        sqlite3_finalize(st);
        if (!ok) return import_nsys_bad(g->s, g->error, g->error_size);
    }
    g->s->first_chain = found[1] > found[0];
    return true;
}

static bool stage_chains(struct staging *g)
{
    if (!has_nsys_table(g, "CUDA_CALLCHAINS")) return true;
    return exec_staging_format(
               g,
               "INSERT OR IGNORE INTO chain SELECT * FROM (SELECT %s AS id, %s AS depth, %s, %s FROM "
               "x.CUDA_CALLCHAINS t) WHERE id >= 0 AND depth >= 0 AND id IN (SELECT chain FROM call UNION SELECT "
               "chain - 1 "
               "FROM call)",
               number_column(g, "CUDA_CALLCHAINS", "id", "NULL"),
               number_column(g, "CUDA_CALLCHAINS", "stackDepth", "NULL"),
               number_column(g, "CUDA_CALLCHAINS", "symbol", "NULL"),
               number_column(g, "CUDA_CALLCHAINS", "module", "NULL")) &&
           find_first_chain(g);
}

static const char *nvtx_name(struct staging *g)
{
    const char *id = number_column(g, "NVTX_EVENTS", "textId", "NULL");
    return has_nsys_column(g, "NVTX_EVENTS", "text")
               ? arena_printf(&g->arena,
                              "coalesce(substr(CAST(t.text AS TEXT), 1, %d), (SELECT value FROM text WHERE id = %s))",
                              GS_STRING_MAX, id)
               : arena_printf(&g->arena, "(SELECT value FROM text WHERE id = %s)", id);
}

/* Event types: 34 a mark, 59 a range of a thread, 60 a range of the process, 75 the name of a domain; 65, 70 and 71 are
 * the first three from a text file that nsys imported (NVTXT). */
static bool stage_ranges(struct staging *g)
{
    static const char table[] = "NVTX_EVENTS";
    if (!has_nsys_table(g, table)) return true;
    const char *start = number_column(g, table, "start", "NULL"), *type = number_column(g, table, "eventType", "0"),
               *thread = number_column(g, table, "globalTid", "NULL"),
               *domain = number_column(g, table, "domainId", "0"), *name = nvtx_name(g);
    return exec_staging_format(
               g,
               "INSERT OR IGNORE INTO domain SELECT thread>>24, id, name FROM (SELECT %s AS thread, %s AS id, "
               "%s AS name, %s AS type FROM x.NVTX_EVENTS t" ONCE ") WHERE type = 75 AND thread IS NOT NULL",
               thread, domain, name, type) &&
           exec_staging_format(
               g,
               "INSERT INTO range(process, thread, start, end, kind, domain, name) SELECT thread>>24, thread, start, "
               "iif(end " TIMES
               ", max(end, start), NULL), CASE type WHEN 65 THEN 34 WHEN 70 THEN 59 WHEN 71 THEN 60 ELSE "
               "type END, domain, name FROM (SELECT %s AS thread, "
               "%s AS start, %s AS end, %s AS type, %s AS domain, %s AS name FROM x.NVTX_EVENTS t" ONCE ") "
               "WHERE type IN (34, 59, 60, 65, 70, 71) AND start " TIMES " AND thread>>24 IN (SELECT id FROM process)",
               thread, start, number_column(g, table, "end", "NULL"), type, domain, name) &&
           exec_staging_format(
               g,
               "INSERT INTO event SELECT process, start, iif(kind = 34, %d, %d), id, thread, 0, 0, 0, 0, "
               "coalesce(end - start, -1), 0, 0, 0 FROM range",
               IMPORT_STAGED_MOMENT, IMPORT_STAGED_RANGE) &&
           exec_staging_format(
               g,
               "INSERT INTO event SELECT process, end, %d, id, thread, 0, 0, 0, 0, 0, 0, 0, 0 FROM range "
               "WHERE end > start AND kind <> 34",
               IMPORT_STAGED_RANGE_END) &&
           exec_staging(
               g, "INSERT INTO process(id, first, last) SELECT process, min(start), max(coalesce(end, start)) FROM "
                  "range WHERE 1 GROUP BY 1 ON CONFLICT(id) DO UPDATE SET first = min(first, excluded.first), "
                  "last = max(last, excluded.last)");
}

static bool stage_process_names(struct staging *g)
{
    static const char table[] = "PROCESSES";
    if (!has_nsys_table(g, table) || !has_nsys_column(g, table, "name")) return true;
    return exec_staging_format(
        g,
        "UPDATE process SET name = (SELECT substr(CAST(t.name AS TEXT), 1, %d) FROM x.PROCESSES t "
        "WHERE (%s>>24) = process.id LIMIT 1)",
        GS_STRING_MAX, number_column(g, table, "globalPid", "NULL"));
}

/* CUDA numbers devices per process. Newer exports state which GPU that is, older ones in cuDevice, and those of 2021 in
 * a separate table. */
static bool stage_gpus(struct staging *g)
{
    static const char table[] = "TARGET_INFO_GPU", cuda[] = "TARGET_INFO_CUDA_DEVICE", old[] = "TARGET_INFO_CUDA_GPU";
    if (!exec_staging(g, "INSERT INTO gpu SELECT DISTINCT process, device, NULL, 0 FROM event "
                         "WHERE kind BETWEEN 2 AND 6 AND device BETWEEN 0 AND 63"))
        return false;
    if (has_nsys_table(g, old) && has_nsys_column(g, old, "name") && has_nsys_column(g, old, "deviceId") &&
        !exec_staging_format(
            g,
            "UPDATE gpu SET (name, bytes) = (SELECT CAST(t.name AS TEXT), %s FROM x.TARGET_INFO_CUDA_GPU t WHERE "
            "t.deviceId = gpu.device AND coalesce(%s, gpu.process & 16777215) = (gpu.process & 16777215) LIMIT 1)",
            number_column(g, old, "globalMemorySize", "0"), number_column(g, old, "pid", "NULL")))
        return false;
    if (!has_nsys_table(g, table) || !has_nsys_column(g, table, "name")) return true;
    const char *id = number_column(g, table, has_nsys_column(g, table, "id") ? "id" : "deviceId", "NULL"),
               *ordinal = has_nsys_column(g, table, "cuDevice") ? number_column(g, table, "cuDevice", "NULL") : id;
    if (has_nsys_table(g, cuda) && has_nsys_column(g, cuda, "gpuId") && has_nsys_column(g, cuda, "cudaId") &&
        has_nsys_column(g, cuda, "pid") &&
        !exec_staging_format(
            g,
            "UPDATE gpu SET (name, bytes) = (SELECT CAST(t.name AS TEXT), %s FROM x.TARGET_INFO_CUDA_DEVICE d, "
            "x.TARGET_INFO_GPU t WHERE d.pid = (gpu.process & 16777215) AND d.cudaId = gpu.device AND %s = d.gpuId "
            "LIMIT 1) WHERE name IS NULL",
            number_column(g, table, "totalMemory", "0"), id))
        return false;
    return exec_staging_format(
        g,
        "UPDATE gpu SET (name, bytes) = (SELECT CAST(t.name AS TEXT), %s FROM x.TARGET_INFO_GPU t "
        "WHERE %s = gpu.device LIMIT 1) WHERE name IS NULL",
        number_column(g, table, "totalMemory", "0"), ordinal);
}

static bool stage_events(struct staging *g)
{
    const char *kinds =
        arena_printf(&g->arena, "copy_word(%s, %s, %s)", number_column(g, MEMCPY, "copyKind", "0"),
                     number_column(g, MEMCPY, "srcKind", "7"), number_column(g, MEMCPY, "dstKind", "7"));
    return exec_staging(g, "BEGIN") && exec_staging(g, tables_sql) && stage_names(g) && stage_calls(g) &&
           stage_failures(g) && stage_processes(g) && stage_syncs(g) && stage_waits(g) &&
           stage_copies(g, MEMCPY, IMPORT_STAGED_COPY, kinds) && stage_copies(g, MEMSET, IMPORT_STAGED_FILL, "0") &&
           stage_memory(g) && stage_chains(g) && stage_ranges(g) && stage_process_names(g) && stage_gpus(g) &&
           exec_staging(g, "COMMIT");
}

bool import_nsys_stage(struct import_nsys *s, char *error, size_t error_size)
{
    struct staging g = {.s = s, .error = error, .error_size = error_size};
    bool ok = import_calls_note_spans(s->db, &g.spans) && stage_events(&g);
    if (!ok && !*error) snprintf(error, error_size, "a name in it is too long");
    arena_free(&g.arena);
    map_free(&g.spans.index);
    free(g.spans.list);
    return ok;
}
