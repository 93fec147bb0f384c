/* The store's SQL statements and errors, for its other files. */
#include "schema/store_state.h"
#include "schema/system_call.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define P "1," /* process_id: a database holds one process */

/* The feed_… tables are in store_feed.c. OR FAIL: a failure rolls back the whole transaction anyway, so SQLite need not
 * keep copies of pages to revert the statement. */
#define ALLOCATION_COLUMNS "kind,address,bytes,alloc_ns,life_ns,stream,alloc_stack_id,free_stack_id"
#define INSERT_COPY \
    "INSERT OR FAIL INTO copy_row(kind,bytes,start_ns,blocked_ns,stream,stack_id) SELECT * FROM feed_copy"
#define INSERT_MEMSET                                                                                             \
    "INSERT OR FAIL INTO memset(process_id,device,bytes,async,start_ns,blocked_ns,stream,stack_id,thread_id,api)" \
    " SELECT " P "* FROM feed_memset"
#define INSERT_SYNC                                                                                      \
    "INSERT OR FAIL INTO sync(process_id,device,kind,api,start_ns,blocked_ns,handle,stack_id,thread_id)" \
    " SELECT " P "* FROM feed_sync"

static const char *const statements[GS_SQL_COUNT] = {
    /* No other program writes here, so SQLite assigns the ids that the store expects. */
    [GS_SQL_ALLOCATION] = "INSERT OR FAIL INTO allocation_row(" ALLOCATION_COLUMNS ") SELECT * FROM feed_allocation",
    /* All rows exist, so the upsert only updates: one statement for all ends. */
    [GS_SQL_ALLOCATION_END] = "INSERT OR FAIL INTO allocation_row(id,kind,address,bytes,alloc_ns,life_ns,free_stack_id)"
                              " SELECT id,0,0,0,0,life_ns,free FROM feed_end WHERE true ON CONFLICT(id) DO UPDATE SET "
                              "life_ns=excluded.life_ns,free_stack_id=excluded.free_stack_id",
    [GS_SQL_COPY] = INSERT_COPY,
    [GS_SQL_MEMSET] = INSERT_MEMSET,
    [GS_SQL_SYNC] = INSERT_SYNC,
    [GS_SQL_OOM] = "INSERT INTO oom(id,process_id,device,layer,space,api,requested_bytes,free_bytes,"
                   "total_bytes,tensor_allocated,tensor_reserved,time_ns,fatal,stack_id,thread_id,capped)"
                   " VALUES(?," P "?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [GS_SQL_OOM_RECOVERED] = "UPDATE oom SET fatal=0 WHERE id=?",
    [GS_SQL_SAMPLE] = "INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source)"
                      " VALUES(" P "?,?,?,?,?)",
    [GS_SQL_RESERVED] = "INSERT INTO reserved(process_id,device,time_ns,bytes) VALUES(" P "?,?,?)",
    [GS_SQL_CHECK] = "INSERT OR REPLACE INTO tensor_check(process_id,layer,device,events,mismatches,"
                     "first_mismatch_ns,first_difference,last_difference) VALUES(" P "?,?,?,?,?,?,?)",
    [GS_SQL_HANDLE] = "INSERT INTO handle(id,process_id,kind,handle,device,create_ns,destroy_ns,api,"
                      "stack_id) VALUES(?," P "?,?,?,?,?,?,?)",
    [GS_SQL_HANDLE_END] = "UPDATE handle SET destroy_ns=? WHERE id=?",
    [GS_SQL_MARK] = "INSERT INTO mark(kind,name,domain,start_ns,life_ns,thread_id)"
                    " SELECT * FROM feed_mark",
    [GS_SQL_MARK_END] = "UPDATE mark SET life_ns=? WHERE id=?",
    [GS_SQL_MARK_NAME] = "INSERT INTO mark_name(id,name) VALUES(?,?)",
    [GS_SQL_MARK_OPEN] = "INSERT INTO recovery_mark(mark_id,kind,key) VALUES(?,?,?)",
    [GS_SQL_MARK_CLOSED] = "DELETE FROM recovery_mark WHERE mark_id=?",
    [GS_SQL_DEVICE_SAMPLE] = "INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source,utilisation,"
                             "memory_utilisation,own_bytes,other_bytes,other_pid,other_name)"
                             " VALUES(" P "?,?,?,?,?,?,?,?,?,?,?)",
    [GS_SQL_MAPPING] = "INSERT INTO mapping(id,process_id,allocation_id,device,address,bytes,offset,"
                       "map_ns,unmap_ns,stack_id) VALUES(?," P "?,?,?,?,?,?,?,?)",
    [GS_SQL_MAPPING_END] = "UPDATE mapping SET unmap_ns=? WHERE id=?",
    [GS_SQL_BYTES] = "UPDATE allocation_row SET bytes=? WHERE id=?",
    [GS_SQL_GRAPH] = "INSERT INTO graph_memory(id,process_id,device,api,address,bytes,time_ns,"
                     "freed_ns,stream,stack_id,thread_id) VALUES(?," P "?,?,?,?,?,?,?,?,?)",
    [GS_SQL_GRAPH_END] = "UPDATE graph_memory SET freed_ns=? WHERE id=?",
    [GS_SQL_POOL] = "INSERT INTO pool(process_id,device,pool,time_ns,used_bytes,reserved_bytes,api)"
                    " VALUES(" P "?,?,?,?,?,?)",
    [GS_SQL_ALLOCATOR] = "INSERT INTO allocator_fact(process_id,device,time_ns,kind,address,value)"
                         " VALUES(" P "?,?,?,?,?)",
    [GS_SQL_PENDING] = "INSERT INTO pending_free(id,process_id,allocation_id,event,free_ns,done_ns,"
                       "event_stack_id,free_stack_id) VALUES(?," P "?,?,?,?,?,?)",
    [GS_SQL_PENDING_END] = "UPDATE pending_free SET done_ns=? WHERE id=?",
    [GS_SQL_CALLS] = "INSERT INTO call_count(process_id,second,device,stream,api,not_ready,count)"
                     " VALUES(" P "?,?,?,?,?,?) ON CONFLICT DO UPDATE SET count=count+excluded.count",
    [GS_SQL_FRAME] = "INSERT INTO frame(id,kind,function,file,line,module_id,offset)"
                     " VALUES(?,?,?,?,?,?,?)",
    [GS_SQL_SOURCE_KNOWN] = "SELECT EXISTS(SELECT 1 FROM source WHERE file=?1),count(*),total(bytes) FROM source",
    [GS_SQL_SOURCE] = "INSERT INTO source(file,bytes,left_out,text) VALUES(?,?,?,?)",
    [GS_SQL_STACK] = "INSERT INTO stack(id,parent_id,frame_id,depth) VALUES(?,?,?,?)",
    [GS_SQL_MODULE] = "INSERT INTO module(id,path,build_id) VALUES(?,?,?)",
    [GS_SQL_THREAD] = "INSERT OR REPLACE INTO thread(id,process_id,tid,name) VALUES(?," P "?,?)",
    [GS_SQL_API] = "INSERT OR REPLACE INTO api(id,name) VALUES(?,?)",
    /* Several threads may report a device, in any order: the earliest report stays. */
    [GS_SQL_DEVICE] = "INSERT INTO device(id,process_id,device,name,total_bytes,free_bytes,seen_ns,"
                      "physical_bytes) VALUES(?1+1," P "?1,?2,?3,?4,?5,?6) ON CONFLICT(id) DO UPDATE SET name=?2,"
                      "total_bytes=?3,free_bytes=?4,seen_ns=?5,physical_bytes=?6 WHERE ?5<seen_ns",
    [GS_SQL_META] = "INSERT OR REPLACE INTO meta(key,value) VALUES(?,?)",
    [GS_SQL_NUMBER] = "INSERT OR REPLACE INTO recovery_number(thread,what,number,id)"
                      " VALUES(?,?,?,?)",
    [GS_SQL_NUMBER_RESET] = "DELETE FROM recovery_number WHERE thread=?",
    [GS_SQL_PROGRESS] = "INSERT INTO recovery_thread(thread,seq,offset,time_ns,row) VALUES(?1,?2,?3,?4,?5)"
                        " ON CONFLICT(thread) DO UPDATE SET seq=?2,offset=?3,time_ns=?4,row=?5",
    [GS_SQL_LAST_FREE] = "INSERT INTO recovery_thread(thread,free_layer,free_address,free_id)"
                         " VALUES(?1,?2,?3,?4) ON CONFLICT(thread) DO UPDATE SET"
                         " free_layer=?2,free_address=?3,free_id=?4",
    [GS_SQL_VALUE] = "INSERT OR REPLACE INTO recovery_value(name,number,value) VALUES(?,?,?)",
    [GS_SQL_OWNER] = "INSERT INTO recovery_owner(allocation_id,context,home) VALUES(?,?,?)",
    [GS_SQL_OBJECT] = "INSERT OR REPLACE INTO recovery_object(allocation_id,refs,named) VALUES(?,?,?)",
    [GS_SQL_UNDO] = "INSERT OR REPLACE INTO recovery_undo(thread,op,handle,address,bytes,time_ns,"
                    "allocation_id) VALUES(?,?,?,?,?,?,?)",
    [GS_SQL_LEVEL] = "INSERT INTO level(series,device,start_ns,end_ns,low_bytes,high_bytes) VALUES(?,?,?,?,?,?)",
    [GS_SQL_SCOPE] = "INSERT INTO removed_scope(domain,name,series,device,peak_bytes,peak_ns,entry_bytes,exit_bytes,"
                     "open_entry_bytes,count,ended_ns,until_ns) VALUES(nullif(?,''),?,?,?,?,?,?,?,?,?,?,?)",
    [GS_SQL_REMOVED] = "INSERT INTO removed(what,kind,stack_id,count,bytes,ns,first_ns) VALUES(?,?,?,?,?,?,?) ON "
                       "CONFLICT DO UPDATE SET count=count+excluded.count,bytes=bytes+excluded.bytes,"
                       "ns=ns+excluded.ns,first_ns=min(first_ns,excluded.first_ns)",
    [GS_SQL_REMOVED_AFTER] = "INSERT INTO removed_after(kind,after_ns,count,bytes) VALUES(?,?,?,?) ON CONFLICT DO "
                             "UPDATE SET count=count+excluded.count,bytes=bytes+excluded.bytes",
    [GS_SQL_REMOVED_COURSE] = "INSERT INTO removed_course(kind,stack_id,first_id,low_bytes) VALUES(?,?,?,?)",
    [GS_SQL_REMOVED_TIME] = "INSERT INTO removed_time(first_id,time_ns) VALUES(?,?)",
    [GS_SQL_COUNTER] = "INSERT OR REPLACE INTO recovery_counter(slot,key,count) VALUES(?,?,?)",
};

/* As above, without the rows that become totals at once. */
static const char *const coarse[GS_SQL_COUNT] = {
    [GS_SQL_ALLOCATION] = "INSERT OR FAIL INTO allocation_row(id," ALLOCATION_COLUMNS
                          ") SELECT rowid,* FROM feed_allocation WHERE NOT " GS_KEEP_ALLOCATION("rowid", "alloc"),
    [GS_SQL_COPY] = INSERT_COPY " WHERE NOT " GS_KEEP_COPY("0", "stack"),
    [GS_SQL_SYNC] = INSERT_SYNC " WHERE NOT " GS_KEEP_SYNC("0", "stack"),
    [GS_SQL_MEMSET] = INSERT_MEMSET " WHERE NOT " GS_KEEP_MEMSET("0", "stack"),
};

const char *const gs_count_names[GS_COUNTS] = {
    [GS_COUNT_EVENTS] = "events",
    [GS_COUNT_UNKNOWN_FREES] = "unknown_frees",
    [GS_COUNT_IMPLIED_FREES] = "implied_frees",
    [GS_COUNT_FAILED_FREES] = "failed_frees",
    [GS_COUNT_FREE_SIZE_DIFFERS] = "free_size_differs",
    [GS_COUNT_UNDEFINED] = "undefined_numbers",
    [GS_COUNT_UNMATCHED_ENDS] = "unmatched_range_ends",
};

/* ---------------------------------------------------------------- errors */

/* SQLite does not tell a limit on file sizes from other failures of a disk. */
static bool is_at_file_limit(struct gs_store *s, char *out, size_t size)
{
    enum { NEAR = 1 << 16 };
    struct rlimit limit;
    struct stat file;
    const char *path = sqlite3_db_filename(s->db, "main");
    char log[4096 + 8];
    if (!path || getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY) return false;
    snprintf(log, sizeof log, "%s-wal", path);
    const bool reached = (!gs_path_status(path, &file) && (rlim_t)file.st_size + NEAR > limit.rlim_cur) ||
                         (!gs_path_status(log, &file) && (rlim_t)file.st_size + NEAR > limit.rlim_cur);
    if (reached)
        snprintf(out, size, "a file may have %llu KiB at most here (ulimit -f)",
                 (unsigned long long)limit.rlim_cur / 1024);
    return reached;
}

int gs_store_fail(struct gs_store *s, const char *what)
{
    char limit[80];
    int error = sqlite3_system_errno(s->db);
    int code = sqlite3_extended_errcode(s->db);
    const char *reason = sqlite3_errmsg(s->db);
    if ((code & 255) == SQLITE_FULL) reason = "the disk is full";
    if (((code & 255) == SQLITE_FULL || (code & 255) == SQLITE_IOERR) && is_at_file_limit(s, limit, sizeof limit)) {
        reason = limit;
        error = 0;
    }
    snprintf(s->error, sizeof s->error, "%s: %s%s%s", what, reason, (code & 255) == SQLITE_IOERR && error ? ": " : "",
             (code & 255) == SQLITE_IOERR && error ? strerror(error) : "");
    return -1;
}

int gs_store_no_memory(struct gs_store *s)
{
    snprintf(s->error, sizeof s->error, "out of memory");
    return -1;
}

/* ---------------------------------------------------------------- statements */

int gs_store_sql(struct gs_store *s, const char *sql)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : gs_store_fail(s, "write");
}

int gs_store_abandon(struct gs_store *s)
{
    char why[sizeof s->error];
    memcpy(why, s->error, sizeof why);
    if (!sqlite3_get_autocommit(s->db)) (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    memcpy(s->error, why, sizeof why);
    s->levels.written_width = 0;
    s->courses.unwritten = true;
    return -1;
}

int gs_store_each(struct gs_store *s, const char *sql, gs_row_fn fn)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK) return gs_store_fail(s, "read");
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        if (fn(s, st)) {
            sqlite3_finalize(st);
            return -1;
        }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? 0 : gs_store_fail(s, "read");
}

/* Returns a statement to bind, or NULL. */
sqlite3_stmt *gs_store_statement(struct gs_store *s, enum gs_statement which)
{
    if (!s->statements[which] && sqlite3_prepare_v3(s->db, statements[which], -1, SQLITE_PREPARE_PERSISTENT,
                                                    &s->statements[which], NULL) != SQLITE_OK)
        gs_store_fail(s, "prepare");
    return s->statements[which];
}

int gs_store_run(struct gs_store *s, sqlite3_stmt *st)
{
    int rc = sqlite3_step(st);
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? 0 : gs_store_fail(s, "write");
}

int gs_store_take(struct gs_store *s, enum gs_statement which, size_t count)
{
    if (count && s->keep.coarse && coarse[which]) return gs_store_sql(s, coarse[which]);
    sqlite3_stmt *st = count ? gs_store_statement(s, which) : NULL;
    if (!st) return count ? -1 : 0;
    return gs_store_run(s, st);
}

void gs_bind_known(sqlite3_stmt *st, int at, int64_t n)
{
    if (n >= 0)
        sqlite3_bind_int64(st, at, n);
    else
        sqlite3_bind_null(st, at);
}

int gs_store_write_text(struct gs_store *s, const char *key, const char *text)
{
    sqlite3_stmt *st = NULL;
    if (!*text) return 0;
    if (sqlite3_prepare_v2(s->db, "INSERT OR REPLACE INTO meta VALUES(?,?)", -1, &st, NULL) != SQLITE_OK)
        return gs_store_fail(s, "prepare");
    sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, text, -1, SQLITE_STATIC);
    (void)sqlite3_step(st);
    return sqlite3_finalize(st) == SQLITE_OK ? 0 : gs_store_fail(s, "write");
}
