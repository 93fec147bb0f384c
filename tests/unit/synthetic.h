/* Databases like the recorder's, made row by row, for the analyzer's tests. Include after cmocka. All files are in a
 * temporary folder that syn_end removes. */
#pragma once

#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/report/report.h"
#include "schema/store.h"

static const char syn_schema[] =
#include "gpuspy_sql.h"
    ;

#define SYN_MS 1000000LL
#define SYN_S 1000000000LL
#define SYN_MIB (1LL << 20)
#define SYN_GIB (1LL << 30)
#define SYN_LIVE (-1) /* a life without an end */

struct syn {
    char folder[64], path[128];
    sqlite3 *db;
};

__attribute__((unused)) static int64_t syn_sql(struct syn *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *sql = sqlite3_vmprintf(format, args);
    va_end(args);
    char *error = NULL;
    if (sqlite3_exec(s->db, sql, NULL, NULL, &error) != SQLITE_OK) fail_msg("%s: %s", sql, error);
    sqlite3_free(sql);
    return sqlite3_last_insert_rowid(s->db);
}

__attribute__((unused)) static void syn_open(struct syn *s, const char *name)
{
    snprintf(s->path, sizeof s->path, "%s/%s", s->folder, name);
    assert_int_equal(sqlite3_open(s->path, &s->db), SQLITE_OK);
    syn_sql(s, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF");
    assert_int_equal(sqlite3_exec(s->db, syn_schema, NULL, NULL, NULL), SQLITE_OK);
    syn_sql(s, "PRAGMA application_id=%d; PRAGMA user_version=%d; BEGIN", GS_APPLICATION_ID, GS_SCHEMA_VERSION);
    syn_sql(s, "INSERT INTO api VALUES(1,'cudaMalloc'),(2,'cudaFree'),(3,'cudaMemcpy'),"
               "(4,'cudaStreamSynchronize')");
}

__attribute__((unused)) static void syn_start(struct syn *s)
{
    *s = (struct syn){0};
    snprintf(s->folder, sizeof s->folder, "/tmp/gpuspy-test-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    syn_open(s, "run.db");
}

__attribute__((unused)) static void syn_done(struct syn *s)
{
    if (s->db) {
        syn_sql(s, "COMMIT");
        assert_int_equal(sqlite3_close(s->db), SQLITE_OK);
        s->db = NULL;
    }
}

__attribute__((unused)) static void syn_end(struct syn *s)
{
    char command[256];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", s->folder, s->folder);
    syn_done(s);
    assert_int_equal(system(command), 0);
}

__attribute__((unused)) static void syn_process(struct syn *s, const char *run_id, int pid, int64_t end_ns,
                                                int complete)
{
    syn_sql(s,
            "INSERT INTO process(id,run_id,pid,host,command,start_real_ns,end_ns,complete) "
            "VALUES(1,%Q,%d,'host','python train.py',1700000000000000000,%lld,%d)",
            run_id, pid, (long long)end_ns, complete);
}

__attribute__((unused)) static void syn_device(struct syn *s, int device, int64_t total, int64_t free)
{
    syn_sql(s,
            "INSERT INTO device(process_id,device,name,total_bytes,free_bytes,seen_ns) "
            "VALUES(1,%d,'Test GPU',%lld,%lld,0)",
            device, (long long)total, (long long)free);
}

/* A stack with one more Python frame, called from `parent` (0: none). */
__attribute__((unused)) static int64_t syn_python(struct syn *s, int64_t parent, const char *function, const char *file,
                                                  int line)
{
    int64_t frame = syn_sql(s, "INSERT INTO frame(kind,function,file,line) VALUES(%d,%Q,%Q,%d)", GS_FRAME_PYTHON,
                            function, file, line);
    return syn_sql(s, "INSERT INTO stack(parent_id,frame_id,depth) VALUES(nullif(%lld,0),%lld,1)", (long long)parent,
                   (long long)frame);
}

__attribute__((unused)) static int64_t syn_native(struct syn *s, int64_t parent, const char *module, int64_t offset)
{
    int64_t id = syn_sql(s, "INSERT INTO module(path,build_id) VALUES(%Q,'abcd')", module);
    int64_t frame = syn_sql(s, "INSERT INTO frame(kind,module_id,offset) VALUES(%d,%lld,%lld)", GS_FRAME_NATIVE,
                            (long long)id, (long long)offset);
    return syn_sql(s, "INSERT INTO stack(parent_id,frame_id,depth) VALUES(nullif(%lld,0),%lld,1)", (long long)parent,
                   (long long)frame);
}

struct syn_alloc {
    int layer, space, device, thread;
    int64_t address, bytes, at, life, stack; /* life SYN_LIVE: never freed */
};

__attribute__((unused)) static int64_t syn_alloc(struct syn *s, struct syn_alloc a)
{
    char life[32] = "NULL";
    if (a.life != SYN_LIVE) snprintf(life, sizeof life, "%lld", (long long)a.life);
    return syn_sql(s,
                   "INSERT INTO allocation_row(kind,address,bytes,alloc_ns,life_ns,stream,alloc_stack_id) "
                   "VALUES(%lld,%lld,%lld,%lld,%s,0,nullif(%lld,0))",
                   (long long)GS_ALLOCATION_KIND(a.layer, a.space, a.device, 1, a.thread ? a.thread : 1),
                   (long long)a.address, (long long)a.bytes, (long long)a.at, life, (long long)a.stack);
}

struct syn_copy {
    int direction, host_memory, async, thread;
    int64_t bytes, at, blocked, stream, stack;
};

__attribute__((unused)) static void syn_copy(struct syn *s, struct syn_copy c)
{
    syn_sql(s,
            "INSERT INTO copy_row(kind,bytes,start_ns,blocked_ns,stream,stack_id) "
            "VALUES(%lld,%lld,%lld,%lld,%lld,nullif(%lld,0))",
            (long long)GS_COPY_KIND(c.direction, c.host_memory, c.async, 0, 3, c.thread ? c.thread : 1),
            (long long)c.bytes, (long long)c.at, (long long)c.blocked, (long long)c.stream, (long long)c.stack);
}

__attribute__((unused)) static void syn_sync(struct syn *s, int kind, int64_t at, int64_t blocked, int64_t handle,
                                             int64_t stack)
{
    syn_sql(s,
            "INSERT INTO "
            "sync(process_id,device,kind,api,start_ns,blocked_ns,handle,stack_id,thread_id) "
            "VALUES(1,0,%d,4,%lld,%lld,%lld,nullif(%lld,0),1)",
            kind, (long long)at, (long long)blocked, (long long)handle, (long long)stack);
}

struct syn_oom {
    int layer, space, fatal;
    int64_t requested, free, total, allocated, reserved, at, stack; /* 0: unknown (NULL) */
};

__attribute__((unused)) static void syn_oom(struct syn *s, struct syn_oom o)
{
    syn_sql(s,
            "INSERT INTO oom(process_id,device,layer,space,api,requested_bytes,free_bytes,total_bytes,"
            "tensor_allocated,tensor_reserved,time_ns,fatal,stack_id,thread_id) "
            "VALUES(1,0,%d,%d,1,%lld,"
            "nullif(%lld,-1),nullif(%lld,0),nullif(%lld,0),nullif(%lld,0),%lld,%d,nullif(%lld,0),1)",
            o.layer, o.space, (long long)o.requested, (long long)o.free, (long long)o.total, (long long)o.allocated,
            (long long)o.reserved, (long long)o.at, o.fatal, (long long)o.stack);
}

__attribute__((unused)) static void syn_reserved(struct syn *s, int64_t at, int64_t bytes)
{
    syn_sql(s, "INSERT INTO reserved(process_id,device,time_ns,bytes) VALUES(1,0,%lld,%lld)", (long long)at,
            (long long)bytes);
}

/* Commits, opens and makes the report; the caller frees it with syn_close. */
__attribute__((unused)) static struct result_report *syn_report(struct syn *s, const struct run_options *options)
{
    static const struct run_options everything = {.all = true};
    char error[1024] = "";
    const char *path = s->path;
    syn_done(s);
    struct run *run = run_open(&path, 1, options ? options : &everything, error, sizeof error);
    if (!run) fail_msg("%s", error);
    struct result_report *report = report_build(run, options ? options : &everything, error, sizeof error);
    if (!report) fail_msg("%s", error);
    return report;
}

__attribute__((unused)) static void syn_close(struct result_report *report)
{
    struct run *run = report->run;
    report_free(report);
    run_close(run);
}

__attribute__((unused)) static const struct result_peak *syn_peak(const struct result_report *report,
                                                                  enum run_series_layer layer)
{
    for (size_t i = 0; i < report->peaks_n; i++)
        if (report->peaks[i].layer == layer) return &report->peaks[i];
    fail_msg("no peak of layer %s", result_series_word(layer));
    return NULL;
}
