/* The small tables of a database: processes, devices, failures, reports of the device and of PyTorch. */
#include "analyzer/run/run_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/units.h"
#include "analyzer/base/text.h"
#include "analyzer/base/sort.h"
#include "analyzer/base/words.h"
#include "schema/store.h"

/* A program that calls MemGetInfo in every step fills a table; rows beyond this number are left out, with a note. */
enum { SMALL_TABLE_MAX = 4 << 20 };

struct load {
    struct run *run;
    struct run_database *db;
    size_t database;
    size_t oom; /* for add_capped: rows before it are done */
};

/* NULL → RUN_UNKNOWN, and so is a negative value, because nothing measured is negative. */
static int64_t read_positive(sqlite3_stmt *st, int column)
{
    int64_t value = run_column_int(st, column);
    return value < 0 ? RUN_UNKNOWN : value;
}

static int read_device_column(sqlite3_stmt *st, int column)
{
    int64_t device = run_column_int(st, column);
    return device >= 0 && device < RUN_DEVICE_SLOTS - 1 ? (int)device : -1;
}

static uint32_t column_uint(sqlite3_stmt *st, int column)
{
    int64_t value = sqlite3_column_int64(st, column);
    return value > 0 && value < UINT32_MAX ? (uint32_t)value : 0;
}

static uint32_t read_process_number(const struct load *l, sqlite3_stmt *st)
{
    return run_ids_get(&l->db->processes, run_column_int(st, 0));
}

static uint32_t read_stack_number(const struct load *l, sqlite3_stmt *st, int column)
{
    return run_ids_get(&l->db->stacks, run_column_int(st, column));
}

/* The end of a reader of rows: keeps a valid row. False: the table has too many. */
#define KEEP_ROW(list, row, is_valid)                                                        \
    ({                                                                                       \
        if (is_valid) *ARENA_PUSH(l->run->list, l->run->list##_n, l->run->list##_cap) = row; \
        l->run->list##_n < SMALL_TABLE_MAX;                                                  \
    })

/* The same for a row `x` of these members. */
#define ADD_ROW(list, x, is_valid, ...)                    \
    ({                                                     \
        const __typeof__(*l->run->list) x = {__VA_ARGS__}; \
        KEEP_ROW(list, x, is_valid);                       \
    })

static bool add_process(struct load *l, sqlite3_stmt *st)
{
    struct run *run = l->run;
    struct run_process p = {
        .pid = column_uint(st, 1),
        .ppid = read_positive(st, 2),
        .rank = read_positive(st, 3),
        .path = run_text(run, l->db->path, RUN_TEXT_MAX),
        .run_id = run_column_text(run, st, 4),
        .host = run_column_text(run, st, 5),
        .command = run_column_command(run, st, 6),
        .cwd = run_column_text(run, st, 7),
        .exe = run_column_text(run, st, 8),
        .python_version = run_column_text(run, st, 9),
        .start_real_ns = run_column_int(st, 10),
        .end_ns = read_positive(st, 11),
        .complete = sqlite3_column_int64(st, 12) == 1,
        .torn = !l->db->recording && sqlite3_column_type(st, 12) == SQLITE_NULL,
        .recording = l->db->recording && sqlite3_column_type(st, 12) == SQLITE_NULL,
        .lost_events = (uint64_t)run_bounded(sqlite3_column_int64(st, 13)),
        .lost_first_ns = read_positive(st, 14),
        .database = l->database,
        .local_id = sqlite3_column_int64(st, 0),
        .exit_status = -1,
    };
    p.kernel = p.command && text_is_kernel(p.command);
    p.run_id = p.run_id ? p.run_id : "";
    run_ids_set(&l->db->processes, p.local_id, (uint32_t)run->processes_n);
    *ARENA_ADD(run->processes) = p;
    return true;
}

static bool add_api(struct load *l, sqlite3_stmt *st)
{
    struct run *run = l->run;
    run_ids_set(&l->db->apis, sqlite3_column_int64(st, 0), (uint32_t)run->api_names_n);
    *ARENA_ADD(run->api_names) = run_column_text(run, st, 1);
    return true;
}

/* Entry points that CUDA returned and for which gpuspy had no wrapper: the driver is newer than gpuspy. */
static bool add_unseen(struct load *l, sqlite3_stmt *st)
{
    const char *names = run_column_text(l->run, st, 0);
    if (names && *names)
        run_add_note(l->run, "calls of these functions through addresses that CUDA returned were not recorded: %s",
                     names);
    return true;
}

static bool add_device(struct load *l, sqlite3_stmt *st)
{
    return ADD_ROW(devices, d, d.process != RUN_NONE && d.device >= 0, .process = read_process_number(l, st),
                   .device = read_device_column(st, 1), .name = run_column_text(l->run, st, 2),
                   .total_bytes = read_positive(st, 3), .free_bytes = read_positive(st, 4),
                   .seen_ns = read_positive(st, 5), .physical_bytes = RUN_UNKNOWN, .graph_bytes = RUN_UNKNOWN);
}

static bool add_oom(struct load *l, sqlite3_stmt *st)
{
    int64_t time = read_positive(st, 10);
    return ADD_ROW(ooms, o, o.process != RUN_NONE, .process = read_process_number(l, st),
                   .device = read_device_column(st, 1), .layer = (uint8_t)column_uint(st, 2),
                   .space = (uint8_t)column_uint(st, 3), .api = column_uint(st, 4),
                   .requested_bytes = run_bounded(sqlite3_column_int64(st, 5)), .free_bytes = read_positive(st, 6),
                   .total_bytes = read_positive(st, 7), .tensor_allocated = read_positive(st, 8),
                   .tensor_reserved = read_positive(st, 9), .time_ns = time == RUN_UNKNOWN ? 0 : time,
                   .fatal = sqlite3_column_int64(st, 11) != 0, .stack = read_stack_number(l, st, 12),
                   .thread = column_uint(st, 13));
}

/* Columns that older recordings lack. */
static bool add_physical(struct load *l, sqlite3_stmt *st)
{
    const uint32_t process = read_process_number(l, st);
    const int device = read_device_column(st, 1);
    EACH_IN (d, l->run->devices)
        if (d->process == process && d->device == device && d->total_bytes < read_positive(st, 2))
            d->physical_bytes = read_positive(st, 2);
    return true;
}

/* In the order of add_oom, which left some out. */
static bool add_capped(struct load *l, sqlite3_stmt *st)
{
    const uint32_t process = read_process_number(l, st);
    const int64_t time = read_positive(st, 1);
    if (process == RUN_NONE) return true;
    for (size_t i = l->oom; i < l->run->ooms_n; i++) {
        struct run_oom *o = &l->run->ooms[i];
        if (o->process != process || o->time_ns != (time == RUN_UNKNOWN ? 0 : time) ||
            o->thread != column_uint(st, 2) || o->layer != (uint8_t)column_uint(st, 3))
            continue;
        o->capped = true;
        l->oom = i + 1;
        return true;
    }
    return false;
}

static bool add_sample_of_device(struct load *l, sqlite3_stmt *st)
{
    return ADD_ROW(samples, s, s.process != RUN_NONE && s.device >= 0 && s.time_ns >= 0,
                   .process = read_process_number(l, st), .device = read_device_column(st, 1),
                   .time_ns = read_positive(st, 2), .free_bytes = read_positive(st, 3),
                   .total_bytes = read_positive(st, 4));
}

static bool add_thread(struct load *l, sqlite3_stmt *st)
{
    struct run *run = l->run;
    struct run_thread t = {.process = read_process_number(l, st),
                           .number = column_uint(st, 1),
                           .tid = run_column_int(st, 3),
                           .name = run_column_text(run, st, 2)};
    if (t.process != RUN_NONE && run->threads_n < SMALL_TABLE_MAX) *ARENA_ADD(run->threads) = t;
    run_backward_add_thread(l->run, read_process_number(l, st), run_column_int(st, 1),
                            (const char *)sqlite3_column_text(st, 2));
    return true;
}

static int read_percent(sqlite3_stmt *st, int column)
{
    int64_t value = run_column_int(st, column);
    return value >= 0 && value <= 100 ? (int)value : -1;
}

static bool add_device_sample(struct load *l, sqlite3_stmt *st)
{
    return ADD_ROW(device_samples, s, s.process != RUN_NONE && s.device >= 0 && s.time_ns >= 0,
                   .process = read_process_number(l, st), .device = read_device_column(st, 1),
                   .time_ns = read_positive(st, 2), .free_bytes = read_positive(st, 3),
                   .total_bytes = read_positive(st, 4), .utilisation = read_percent(st, 5),
                   .memory_utilisation = read_percent(st, 6), .own_bytes = read_positive(st, 7),
                   .other_bytes = read_positive(st, 8), .other_pid = column_uint(st, 9),
                   .other_name = run_column_command(l->run, st, 10));
}

static bool add_mark_total(struct load *l, sqlite3_stmt *st)
{
    struct run *run = l->run;
    uint64_t count = (uint64_t)run_bounded(sqlite3_column_int64(st, 3));
    uint64_t closed = (uint64_t)run_bounded(sqlite3_column_int64(st, 4));
    return ADD_ROW(marks, m, true, .process = (uint32_t)run->processes_n - 1, .kind = (uint8_t)column_uint(st, 0),
                   .name = run_column_text(run, st, 1), .domain = run_column_text(run, st, 2), .count = count,
                   .open = count > closed ? count - closed : 0, .total_ns = run_bounded(sqlite3_column_int64(st, 5)));
}

static bool add_reserved(struct load *l, sqlite3_stmt *st)
{
    return ADD_ROW(reserved, r, r.process != RUN_NONE && r.time_ns >= 0 && r.bytes >= 0,
                   .process = read_process_number(l, st), .device = read_device_column(st, 1),
                   .time_ns = read_positive(st, 2), .bytes = read_positive(st, 3));
}

static bool add_mapping(struct load *l, sqlite3_stmt *st)
{
    int64_t unmap = read_positive(st, 5);
    return ADD_ROW(mappings, m, m.process != RUN_NONE && m.device >= 0 && m.map_ns >= 0 && m.bytes > 0,
                   .process = read_process_number(l, st), .device = read_device_column(st, 1),
                   .address = (uint64_t)sqlite3_column_int64(st, 2), .bytes = run_bounded(sqlite3_column_int64(st, 3)),
                   .map_ns = read_positive(st, 4), .unmap_ns = unmap == RUN_UNKNOWN ? RUN_NEVER : unmap,
                   .stack = read_stack_number(l, st, 6));
}

static bool add_graph_memory(struct load *l, sqlite3_stmt *st)
{
    struct run *run = l->run;
    struct run_graph_memory g = {.process = read_process_number(l, st),
                                 .device = read_device_column(st, 1),
                                 .time_ns = read_positive(st, 2),
                                 .bytes = run_bounded(sqlite3_column_int64(st, 3))};
    const struct run_graph_memory *last = run->graphs_n ? &run->graphs[run->graphs_n - 1] : NULL;
    bool same = last && last->process == g.process && last->device == g.device &&
                last->bytes == g.bytes; /* it is queried at each launch */
    return KEEP_ROW(graphs, g, g.process != RUN_NONE && g.device >= 0 && g.time_ns >= 0 && !same);
}

static bool add_pool_memory(struct load *l, sqlite3_stmt *st)
{
    return ADD_ROW(pools, p, p.process != RUN_NONE && p.device >= 0 && p.time_ns >= 0 && p.reserved_bytes >= 0,
                   .process = read_process_number(l, st), .device = read_device_column(st, 1),
                   .pool = (uint64_t)sqlite3_column_int64(st, 2), .time_ns = read_positive(st, 3),
                   .reserved_bytes = run_bounded(sqlite3_column_int64(st, 4)));
}

static bool add_allocator_fact(struct load *l, sqlite3_stmt *st)
{
    return ADD_ROW(allocator_facts, f, f.process != RUN_NONE && f.device >= 0 && f.time_ns >= 0 && f.value >= -1,
                   .process = read_process_number(l, st), .device = read_device_column(st, 1),
                   .time_ns = read_positive(st, 2), .kind = (uint8_t)(sqlite3_column_int(st, 3) & 0xff),
                   .address = (uint64_t)sqlite3_column_int64(st, 4), .value = sqlite3_column_int64(st, 5));
}

static bool add_counted(struct load *l, sqlite3_stmt *st)
{
    return ADD_ROW(counted, c, c.process != RUN_NONE && c.count, .process = read_process_number(l, st),
                   .api = column_uint(st, 1), .count = (uint64_t)run_bounded(sqlite3_column_int64(st, 2)),
                   .not_ready = (uint64_t)run_bounded(sqlite3_column_int64(st, 3)));
}

static bool add_check(struct load *l, sqlite3_stmt *st)
{
    return ADD_ROW(
        checks, c, c.process != RUN_NONE, .process = read_process_number(l, st), .layer = (uint8_t)column_uint(st, 1),
        .device = read_device_column(st, 2), .events = (uint64_t)run_bounded(sqlite3_column_int64(st, 3)),
        .mismatches = (uint64_t)run_bounded(sqlite3_column_int64(st, 4)), .first_mismatch_ns = read_positive(st, 5),
        .first_difference = run_column_int(st, 6), .last_difference = run_column_int(st, 7));
}

enum { SIGNALS = 65 }; /* Linux has 1 to 64 */

static void note_stopped(struct run *run, const struct run_process *p)
{
    static const char *const why[][2] = {
        {"detach", "of gpuspy detach"},
        {"keep", "its live memory and peaks already exceed GPUSPY_KEEP"},
        {"reader", "another program had read it in one transaction for so long that "
                   "GPUSPY_KEEP had no room left"},
        {"filter", "a seccomp filter or Syscall User Dispatch would have caught gpuspy's system calls"},
        {"disk", "its disk was nearly full (GPUSPY_MIN_FREE)"}};
    enum { DISK = 4 };
    size_t i = 0;
    while (i < DISK && (!p->stopped || strcmp(p->stopped, why[i][0]) != 0)) i++;
    run_add_note(run,
                 "the recording of process %u stopped at %s because %s; the program went on, and gpuspy counts what it "
                 "freed later as never freed",
                 p->pid, UNITS_SECONDS((double)p->end_ns / 1e9), why[i][1]);
}

/* Memory from before gpuspy attached is not in the recording, except for PyTorch's total. */
static bool add_attached(struct load *l, sqlite3_stmt *st)
{
    const double after = sqlite3_column_double(st, 0);
    const int64_t tensors = run_bounded(sqlite3_column_int64(st, 1));
    const int64_t blocks = sqlite3_column_type(st, 2) == SQLITE_NULL ? -1 : run_bounded(sqlite3_column_int64(st, 2));
    char bytes[UNITS_TEXT], had[2 * UNITS_TEXT + 256] = "";

    EACH_IN (p, l->run->processes) {
        if (p->database != l->database || !(after > 0 && after < 1e12)) continue;
        p->attached_after_s = after;
        units_format_bytes(bytes, (uint64_t)(tensors > 0 ? tensors : 0));
        if (blocks == 0)
            text_put(had, sizeof had, "PyTorch had no tensors then; other memory from before is not in the recording");
        else if (blocks > 0)
            snprintf(had, sizeof had,
                     "%s of tensors that PyTorch had allocated before, %s, have no call path and count from that "
                     "moment on; other memory from before is not in the recording",
                     UNITS_PLURAL((uint64_t)blocks, "block", "blocks"), bytes);
        else
            snprintf(had, sizeof had, "memory that it had allocated before is not in the recording%s%s%s",
                     tensors > 0 ? ", such as " : "", tensors > 0 ? bytes : "", tensors > 0 ? " of tensors" : "");
        run_add_note(l->run, "gpuspy attached to process %u %s after it started: %s", p->pid, UNITS_SECONDS(after),
                     had);
        break;
    }
    return true;
}

static bool add_meta(struct load *l, sqlite3_stmt *st)
{
    EACH_IN (p, l->run->processes) {
        if (p->database == l->database) {
            const char *key = (const char *)sqlite3_column_text(st, 0);
            int64_t value = run_bounded(sqlite3_column_int64(st, 1));
            if (key && strcmp(key, "exception") == 0) {
                p->exception = run_column_text(l->run, st, 1);
            } else if (key && strcmp(key, "exception_place") == 0) {
                p->exception_place = run_column_text(l->run, st, 1);
            } else if (key && strcmp(key, "stopped") == 0) {
                p->stopped = run_column_text(l->run, st, 1);
                note_stopped(l->run, p);
            } else if (key && strcmp(key, "torch_version") == 0) {
                p->torch_version = run_column_text(l->run, st, 1);
            } else if (key && strcmp(key, "import.torch") == 0) {
                p->torch_like = run_column_text(l->run, st, 1);
            } else if (key && strcmp(key, "python_gc") == 0) {
                p->collector_off = value == 0;
            } else if (key && strcmp(key, "exit_signal") == 0) {
                p->exit_signal = value > 0 && value < SIGNALS ? (int)value : 0;
            } else if (key && key[0] == 'e' && key[1] == 'x') {
                bool is = sqlite3_column_type(st, 1) == SQLITE_INTEGER && value <= 255;
                p->exit_status = is ? (int)value : -1;
            } else {
                *(key && key[0] == 'e' ? &p->events : &p->damaged) = (uint64_t)value;
            }
            break;
        }
    }
    return true;
}

static bool add_mapper(struct load *l, sqlite3_stmt *st)
{
    return ADD_ROW(mappers, m, m.process != RUN_NONE, .process = read_process_number(l, st),
                   .stack = read_stack_number(l, st, 1));
}

static bool add_device_context(struct load *l, sqlite3_stmt *st)
{
    return ADD_ROW(contexts, c, c.process != RUN_NONE && c.device >= 0, .process = read_process_number(l, st),
                   .device = read_device_column(st, 1), .create_ns = read_positive(st, 2),
                   .stack = read_stack_number(l, st, 3));
}

static bool add_setting(struct load *l, sqlite3_stmt *st)
{
    struct run *run = l->run;
    const char *name = run_column_text(run, st, 0), *value = run_column_text(run, st, 1);
    if (name && value && run->processes_n)
        ARENA_APPEND(run->settings, .process = (uint32_t)run->processes_n - 1, .name = name, .value = value);
    return run->settings_n < SMALL_TABLE_MAX;
}

static const char *article_of(const char *format)
{
    return strchr("AEIOUN", *format) ? "an" : "a";
}

/* Notes which data are missing, and why: the importer's reason (import.lacks.WORD), or that the tool does not record
 * them. */
static void note_process_lacks(struct load *l, const char *format, const char *lacks)
{
    static const char *const objects[] = {RUN_FACTS(WORDS_SECOND)};
    char usual[128];
    sqlite3_stmt *st = run_database_prepare(l->db, "SELECT value FROM meta WHERE key = 'import.lacks.' || ?1");
    for (size_t i = 0; st && i < RUN_FACT_N; i++) {
        if (!lacks || !strstr(lacks, run_fact_words[i])) continue;
        sqlite3_bind_text(st, 1, run_fact_words[i], -1, SQLITE_STATIC);
        const char *why = sqlite3_step(st) == SQLITE_ROW ? run_column_text(l->run, st, 0) : NULL;
        snprintf(usual, sizeof usual, "%s %.80s does not record %s", article_of(format), format, objects[i]);
        l->run->why_unknown[i] = why ? why : run_text(l->run, usual, sizeof usual);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
}

static void note_import(struct run *run, const char *format, const char *has)
{
    if (run->why_unknown[RUN_FACT_FAILURES]) run_add_note(run, "%s", run->why_unknown[RUN_FACT_FAILURES]);
    if (run->processes_n > 1) return; /* in a recording of several processes, the first one's note is enough */
    if (!has) {
        has = run->why_unknown[RUN_FACT_HISTORY]
                  ? "what is live and who allocated it, but not when, or what was live before"
              : run->why_unknown[RUN_FACT_TIMES] ? "the events of PyTorch's allocator, but no waits, copies or times: "
                                                   "moments are counted in entries of its history"
                                                 : "the events of PyTorch's allocator, but no waits or copies";
    }
    run_add_note(run, "this is %s %s; it has %s", article_of(format), format, has);
    if (run->why_unknown[RUN_FACT_MEMORY])
        run_add_note(run, "memory is unknown: %s", run->why_unknown[RUN_FACT_MEMORY]);
}

/* The importer's keys besides the rows. */
static bool add_import(struct load *l, sqlite3_stmt *st)
{
    struct run *run = l->run;
    const char *format = run_column_text(run, st, 0);
    int64_t unmatched = run_column_int(st, 2), unblocked = run_column_int(st, 3);
    if (!format) return true;
    run->imported = true;
    note_process_lacks(l, format, run_column_text(run, st, 1));
    note_import(run, format, run_column_text(run, st, 4));
    run->unblocked += unblocked > 0 ? (uint64_t)unblocked : 0;
    if (unmatched > 0) {
        run_add_note(run,
                     "gpuspy left out %lld of its events, which contradict one another or the memory live at the end",
                     (long long)unmatched);
    }
    return true;
}

static bool add_remark(struct load *l, sqlite3_stmt *st)
{
    const char *text = run_column_text(l->run, st, 0);
    if (text) run_add_note(l->run, "%s", text);
    return true;
}

/* In this order: later rows refer to earlier ones. */
static const struct {
    bool (*add)(struct load *l, sqlite3_stmt *st); /* false: stop reading this table */
    bool needed;
    const char *what, *sql;
} tables[] = {
    {add_process, true, "process",
     "SELECT id, pid, ppid, rank, run_id, host, command, cwd, exe, python_version, start_real_ns, "
     "end_ns, "
     "complete, lost_events, lost_first_ns FROM process ORDER BY id LIMIT 1"},
    {add_api, false, "api", "SELECT id, name FROM api"},
    {add_unseen, false, "api",
     "SELECT group_concat(name, ', ') FROM (SELECT DISTINCT name FROM api WHERE id >= 4096 ORDER BY "
     "name)"},
    {add_meta, false, "meta",
     "SELECT key, value FROM meta WHERE key IN ('damaged_records', 'events', 'exit_status', 'exit_signal', "
     "'exception', 'exception_place', 'python_gc', 'torch_version', 'stopped', 'import.torch')"},
    {add_attached, false, "meta",
     "SELECT value + 0.0, (SELECT sum(value + 0) FROM meta WHERE key LIKE 'attached_tensor_bytes.%'), "
     "(SELECT value FROM meta WHERE key = 'attached_blocks') FROM meta WHERE "
     "key = 'attached_after_s'"},
    {add_import, false, "meta",
     "SELECT max(CASE key WHEN 'import.format' THEN value END), max(CASE key WHEN 'import.lacks' THEN value END), "
     "max(CASE key WHEN 'import.unmatched' THEN value + 0 END), "
     "max(CASE key WHEN 'import.unblocked' THEN value + 0 END), "
     "max(CASE key WHEN 'import.has' THEN value END) "
     "FROM meta WHERE key LIKE 'import.%'"},
    {add_remark, false, "meta",
     "SELECT value FROM meta WHERE key LIKE 'import.remark.%' OR key = 'stacks_lack' ORDER BY key LIMIT 32"},
    {add_setting, false, "meta",
     "SELECT substr(key, 5), value FROM meta WHERE key = 'env' OR substr(key, 1, 4) = 'env.'"},
    {add_thread, false, "thread", "SELECT process_id, id, name, tid FROM thread ORDER BY id DESC"},
    {add_device, false, "device",
     "SELECT process_id, device, name, total_bytes, free_bytes, seen_ns FROM device ORDER BY "
     "device, id"},
    {add_oom, true, "oom",
     "SELECT process_id, device, layer, space, api, requested_bytes, free_bytes, total_bytes, "
     "tensor_allocated, tensor_reserved, time_ns, fatal, stack_id, thread_id FROM oom ORDER BY id"},
    {add_physical, false, "device",
     "SELECT process_id, device, physical_bytes FROM device WHERE physical_bytes > 0 LIMIT 4096"},
    {add_capped, false, "oom", "SELECT process_id, time_ns, thread_id, layer FROM oom WHERE capped = 1 ORDER BY id"},
    {add_sample_of_device, false, "sample",
     "SELECT process_id, device, time_ns, free_bytes, total_bytes FROM sample WHERE source <> 2 "
     "ORDER BY id"},
    /* not in a database of schema 1 */
    {add_device_sample, false, "sample",
     "SELECT process_id, device, time_ns, free_bytes, total_bytes, utilisation, "
     "memory_utilisation, own_bytes, other_bytes, other_pid, other_name FROM sample "
     "WHERE source = 2 ORDER BY id"},
    {add_mark_total, false, "mark",
     "SELECT m.kind, n.name, d.name, count(*), count(life_ns), sum(life_ns) FROM mark m "
     "LEFT JOIN mark_name n ON n.id = m.name LEFT JOIN mark_name d ON d.id = m.domain "
     /* in a bounded recording, those since all rows exist */
     "WHERE m.life_ns IS NULL OR m.start_ns + m.life_ns >= "
     "coalesce((SELECT value FROM meta WHERE key = 'kept_from_ns'), m.start_ns) "
     "GROUP BY m.kind, m.name, m.domain"},
    {add_reserved, false, "reserved", "SELECT process_id, device, time_ns, bytes FROM reserved ORDER BY id"},
    {add_mapping, false, "mapping",
     "SELECT process_id, device, address, bytes, map_ns, unmap_ns, stack_id FROM mapping WHERE "
     "?1 OR EXISTS (SELECT 1 FROM oom) OR EXISTS (SELECT 1 FROM reserved) OR "
     "EXISTS (SELECT 1 FROM mapping WHERE unmap_ns IS NOT NULL) ORDER BY id"},
    {add_mapper, false, "mapping", "SELECT DISTINCT process_id, stack_id FROM mapping"},
    {add_device_context, false, "handle",
     "SELECT process_id, device, create_ns, stack_id FROM handle WHERE kind = 1 ORDER BY id"},
    {add_graph_memory, false, "pool",
     "SELECT process_id, device, time_ns, reserved_bytes FROM pool WHERE pool = 0 ORDER BY id"},
    {add_pool_memory, false, "pool",
     "SELECT process_id, device, pool, time_ns, reserved_bytes FROM pool WHERE pool <> 0 AND "
     "reserved_bytes IS NOT NULL ORDER BY id"},
    {add_allocator_fact, false, "allocator_fact",
     "SELECT process_id, device, time_ns, kind, address, value FROM allocator_fact ORDER BY time_ns, id"},
    {add_counted, false, "call_count",
     "SELECT process_id, api, total(count), total(count * not_ready) FROM call_count WHERE count > 0 "
     "GROUP BY process_id, api"},
    {add_check, false, "tensor_check",
     "SELECT process_id, layer, device, events, mismatches, first_mismatch_ns, first_difference, "
     "last_difference FROM tensor_check"},
};

static bool load_table(struct load *l, size_t table, char *error, size_t error_size)
{
    sqlite3_stmt *st = run_database_prepare(l->db, tables[table].sql);
    if (!st) return !tables[table].needed || run_database_bad(l->db, error, error_size);
    int rc;
    bool more = true;
    sqlite3_bind_int(st, 1, l->run->options.memory_map); /* if the statement has a ?1 */
    while (more && (rc = sqlite3_step(st)) == SQLITE_ROW) more = tables[table].add(l, st);
    if (!more) {
        run_add_note(l->run, "%s: only the first %d rows of table %s were read", l->db->path, SMALL_TABLE_MAX,
                     tables[table].what);
    }
    sqlite3_finalize(st);
    return !more || rc == SQLITE_DONE || run_database_bad(l->db, error, error_size);
}

/* The last event of a process without a clean end. */
static int64_t last_event(struct run_database *db)
{
    const struct {
        const char *time, *table;
    } last_of[] = {
        {"alloc_ns + coalesce(life_ns, 0)", db->allocations},
        {"start_ns + blocked_ns", db->copies},
        {"start_ns + blocked_ns", "sync"},
        {"time_ns", "oom"},
    };
    int64_t last = 0;
    for (size_t i = 0; i < sizeof last_of / sizeof *last_of; i++) {
        char sql[128];
        snprintf(sql, sizeof sql, "SELECT %s FROM %s ORDER BY id DESC LIMIT 1", last_of[i].time, last_of[i].table);
        sqlite3_stmt *st = run_database_prepare(db, sql);
        if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int64(st, 0) > last) last = sqlite3_column_int64(st, 0);
        sqlite3_finalize(st);
    }
    return last;
}

/* The index has the first and last id of the table; counting its rows is not necessary. Returns their number, and the
 * column of the last one. */
static uint64_t count_by_ids(struct run_database *db, const char *table, const char *column, int64_t *last)
{
    char sql[256];
    uint64_t n = 0;
    snprintf(sql, sizeof sql, "SELECT %s, id - (SELECT min(id) FROM %s) FROM %s ORDER BY id DESC LIMIT 1", column,
             table, table);
    sqlite3_stmt *st = run_database_prepare(db, sql);
    if (sqlite3_step(st) == SQLITE_ROW) {
        *last = run_bounded(sqlite3_column_int64(st, 0));
        n = (uint64_t)run_bounded(sqlite3_column_int64(st, 1)) + 1;
    }
    sqlite3_finalize(st);
    return n;
}

static void count_process_events(struct run_database *db, struct run_process *p)
{
    int64_t last = 0;
    p->allocations = count_by_ids(db, db->allocations, "alloc_ns", &p->last_alloc_ns);
    p->calls = count_by_ids(db, db->copies, "start_ns", &last) + count_by_ids(db, "sync", "start_ns", &last);
}

bool run_load(struct run *run, size_t database, char *error, size_t error_size)
{
    struct load l = {.run = run, .db = &run->databases[database], .database = database};
    size_t first = run->processes_n;
    bool ok = run_load_stacks(run, l.db, error, error_size);
    for (size_t i = 0; ok && i < sizeof tables / sizeof *tables; i++) ok = load_table(&l, i, error, error_size);
    if (ok && run->processes_n == first) {
        return run_fail(error, error_size, "cannot read '%s': it names no process; the recording never began",
                        l.db->path);
    }
    for (size_t i = first; ok && i < run->processes_n; i++) {
        struct run_process *p = &run->processes[i];
        count_process_events(l.db, p);
        run_load_removed(run, l.db, (uint32_t)i);
        run_load_removed_lows(run, l.db, (uint32_t)i);
        if (p->end_ns == RUN_UNKNOWN) p->end_ns = last_event(l.db);
        run_add_rejected(run, l.db, (uint32_t)i);
    }
    return ok;
}

#define ORDER_BY_TIME(type)                                                        \
    static int order_##type(const void *a, const void *b)                          \
    {                                                                              \
        const struct type *x = a, *y = b;                                          \
        return SORT_UP(x->process, y->process) ?: SORT_UP(x->time_ns, y->time_ns); \
    }
ORDER_BY_TIME(run_oom)
ORDER_BY_TIME(run_sample)
ORDER_BY_TIME(run_device_sample)
ORDER_BY_TIME(run_reserved)
ORDER_BY_TIME(run_graph_memory)

/* Rows are in order of time already, unless the file was changed; then equal times keep their order. */
static void sort_loaded(char *list, size_t n, size_t size, int (*order)(const void *, const void *))
{
    for (size_t i = 1; i < n; i++) {
        if (order(list + (i - 1) * size, list + i * size) > 0) {
            qsort(list, n, size, order);
            return;
        }
    }
}

/* By pointer, because strings are interned. */
SORT_ORDER(order_marks, struct run_mark_total,
           SORT_UP(x->name, y->name) ?: SORT_UP(x->domain, y->domain) ?: SORT_UP(x->kind, y->kind))

/* Merges the same name from several processes, or twice from one. */
static void add_marks(struct run *run)
{
    size_t kept = 0;
    SORT(run->marks, run->marks_n, order_marks);
    for (size_t i = 0; i < run->marks_n; i++) {
        struct run_mark_total *to = kept ? &run->marks[kept - 1] : NULL, *from = &run->marks[i];
        if (to && order_marks(to, from) == 0) {
            to->process = to->process < from->process ? to->process : from->process;
            to->count += from->count;
            to->open += from->open;
            to->total_ns = arena_add_capped(to->total_ns, from->total_ns);
        } else {
            run->marks[kept++] = *from;
        }
    }
    run->marks_n = kept;
}

void run_load_finish(struct run *run)
{
    run_note_removed(run);
    run_note_levels(run);
    if (run->unblocked) {
        run_add_note(run, "%s %s no recorded call: the blocked time is unknown and counts as 0",
                     UNITS_COUNT(run->unblocked), run->unblocked == 1 ? "copy or fill has" : "copies and fills have");
    }
    sort_loaded((char *)run->ooms, run->ooms_n, sizeof *run->ooms, order_run_oom);
    sort_loaded((char *)run->samples, run->samples_n, sizeof *run->samples, order_run_sample);
    sort_loaded((char *)run->device_samples, run->device_samples_n, sizeof *run->device_samples,
                order_run_device_sample);
    add_marks(run);
    sort_loaded((char *)run->reserved, run->reserved_n, sizeof *run->reserved, order_run_reserved);
    sort_loaded((char *)run->graphs, run->graphs_n, sizeof *run->graphs, order_run_graph_memory);
}
