#include "tests/fuzz/databases.h"

#include "analyzer/check/check.h"
#include "analyzer/command/commands.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/export/export_choice.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/view/view_text.h"
#include "analyzer/json/view_json.h"
#include "tests/unit/events.h"
#include "tests/unit/page.h"
#include "tests/unit/synthetic.h"

/* ---------------------------------------------------------------- databases to begin with */

static void add_steps(struct syn *s, const int64_t *stacks)
{
    for (int step = 0; step < 12; step++) {
        const int64_t at = 100 * SYN_MS + step * 50 * SYN_MS;
        syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                        .address = 0x1000 + step * 0x100,
                                        .bytes = 3 * SYN_MIB,
                                        .at = at,
                                        .life = SYN_LIVE,
                                        .stack = stacks[2]});
        syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_DEVICE,
                                        .space = step % 8,
                                        .address = 0x100000 + step * 0x1000,
                                        .bytes = 64 * SYN_MIB,
                                        .at = at + 1,
                                        .life = step % 3 ? 40 * SYN_MS : SYN_LIVE,
                                        .stack = stacks[1 + step % 2]});
        syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_DEVICE,
                                        .space = GS_SPACE_PINNED,
                                        .device = -1,
                                        .address = 0x900000 + step,
                                        .bytes = 5,
                                        .at = at + 2,
                                        .life = 7,
                                        .stack = stacks[0]});
        syn_copy(s, (struct syn_copy){.direction = step % 5,
                                      .host_memory = step % 4,
                                      .bytes = 1 << 20,
                                      .at = at + 3,
                                      .blocked = SYN_MS,
                                      .stack = stacks[step % 4]});
        syn_sync(s, step % 5, at + SYN_MS * 5, SYN_MS * 3, 7, stacks[3]);
        syn_reserved(s, at + 4, (64 + step) * SYN_MIB);
        syn_sql(s, "INSERT INTO mark(kind,name,start_ns,life_ns,thread_id) VALUES(%d,1,%lld,%lld,1)", step % 7,
                (long long)at, (long long)SYN_MS);
        syn_sql(s, "INSERT INTO call_count VALUES(1,%d,0,%d,%d,%d,99)", step / 4, step % 3 - 1, 1 + step % 4, step % 2);
        syn_sql(s,
                "INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source,utilisation,own_bytes,"
                "other_bytes,other_pid,other_name) VALUES(1,0,%lld,%lld,%lld,%d,50,9,8,7,'x')",
                (long long)at, (long long)((900 - step) * SYN_MIB), (long long)(1000 * SYN_MIB), step % 3);
    }
}

/* Allocations of autograd's thread while the gradient of a loss is live, and after a parameter was moved. */
static void add_backward(struct syn *s, int64_t main)
{
    int64_t moved =
        syn_python(s, main, "Module._apply", "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", 3);
    int64_t at = syn_python(s, main, "backward", "/usr/lib/python3/dist-packages/torch/autograd/__init__.py", 5);
    int64_t ones = syn_python(s, at, "_make_grads", "/usr/lib/python3/dist-packages/torch/autograd/__init__.py", 6);
    syn_sql(s, "INSERT INTO thread(id,process_id,tid,name) VALUES(4,1,78,'pt_autograd_0')");
    syn_alloc(s, (struct syn_alloc){
                     .layer = GS_LAYER_TENSOR, .bytes = 2 * SYN_MIB, .at = SYN_MS, .life = SYN_LIVE, .stack = moved});
    for (int64_t ms = 701; ms < 790; ms += 30) {
        syn_alloc(s,
                  (struct syn_alloc){
                      .layer = GS_LAYER_TENSOR, .bytes = 512, .at = ms * SYN_MS, .life = 20 * SYN_MS, .stack = ones});
        syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                        .thread = 4,
                                        .bytes = 2 * SYN_MIB,
                                        .at = (ms + 5) * SYN_MS,
                                        .life = ms > 750 ? SYN_LIVE : 7 * SYN_MS});
    }
}

static void make_training(struct syn *s)
{
    int64_t stacks[4] = {0};
    stacks[1] = syn_python(s, 0, "main", "/home/x/train.py", 10);
    stacks[2] = syn_python(s, stacks[1], "forward", "/usr/lib/python3/dist-packages/torch/nn/module.py", 20);
    stacks[2] = syn_native(s, stacks[2], "/usr/lib/libtorch.so", 0x1234);
    stacks[3] = syn_python(s, stacks[1], "step", "/home/x/train.py", 30);
    syn_process(s, "run", 77, 2 * SYN_S, 1);
    syn_device(s, 0, 1000 * SYN_MIB, 900 * SYN_MIB);
    syn_sql(s, "INSERT INTO thread(id,process_id,tid,name) VALUES(1,1,77,'main')");
    syn_sql(s, "INSERT INTO mark_name VALUES(1,'step')");
    add_steps(s, stacks);
    add_backward(s, stacks[1]);
    for (int i = 0; i < 4; i++)
        syn_oom(s, (struct syn_oom){.layer = i % 2,
                                    .fatal = i == 3,
                                    .requested = 200 * SYN_MIB,
                                    .free = 100 * SYN_MIB,
                                    .total = 1000 * SYN_MIB,
                                    .allocated = 300 * SYN_MIB,
                                    .reserved = 700 * SYN_MIB,
                                    .at = 800 * SYN_MS + i * (i == 3 ? SYN_S / 3 : 10),
                                    .stack = stacks[i]});
    syn_sql(s, "INSERT INTO tensor_check VALUES(1,1,0,100,3,5,6,7)");
    syn_sql(s,
            "INSERT INTO pool(process_id,device,pool,time_ns,used_bytes,reserved_bytes) VALUES(1,0,0,300000000,1,99)");
    syn_sql(
        s, "INSERT INTO mapping(process_id,allocation_id,device,address,bytes,offset,map_ns) VALUES(1,2,0,4096,9,0,5)");
    syn_sql(s, "INSERT INTO meta(key,value) VALUES('lost_events','3')");
    syn_sql(s,
            "CREATE TABLE inlined_frame(frame_id INTEGER NOT NULL, level INTEGER NOT NULL, function TEXT, file TEXT, "
            "line INTEGER, PRIMARY KEY(frame_id, level)) WITHOUT ROWID");
    syn_sql(s, "INSERT INTO inlined_frame SELECT f.id, v.value, 'inner', '/src/x.h', v.value + 7 FROM frame f, "
               "(SELECT 0 AS value UNION SELECT 1 UNION SELECT 2) v WHERE f.kind = 1");
}

static void make_random(struct syn *s)
{
    static struct ev_program p;
    struct gs_spool spool;
    snprintf(s->path, sizeof s->path, "%s/random.db", s->folder);
    FUZZ_CHECK(!gs_spool_create(&spool, NULL, "run", "", 0, 0), "no spool");
    struct gs_store *store = ev_store(s->path);
    struct gs_reader *r = gs_reader_open(&spool, NULL, 0);
    ev_start(&p, &spool, 3);
    for (int i = 0; i < 1200; i++) ev_step(&p);
    gs_reader_poll(r, 0, true);
    ev_drain(r, store);
    FUZZ_CHECK(!gs_store_commit(store, r) && !gs_store_finish(store, 0, true, 0, 0, 0), "%s", gs_store_error(store));
    gs_store_close(store);
    gs_reader_close(r);
    gs_spool_close(&spool);
}

const void *fuzz_base(unsigned which, size_t *size)
{
    static uint8_t bases[FUZZ_BASES][1 << 20];
    static size_t sizes[FUZZ_BASES];
    which %= FUZZ_BASES;
    if (!sizes[which]) {
        struct syn s;
        syn_start(&s);
        if (which == 0) make_training(&s);
        syn_done(&s);
        if (which == 1) make_random(&s);
        FILE *f = fopen(s.path, "rbe");
        FUZZ_CHECK(f, "%s", s.path);
        sizes[which] = fread(bases[which], 1, sizeof bases[which], f);
        fclose(f);
        syn_end(&s);
    }
    *size = sizes[which];
    return bases[which];
}

/* ---------------------------------------------------------------- edits */

#define TABLES 48
#define COLUMNS 20
static struct text_table {
    char *name, *columns[COLUMNS];
    unsigned n;
} tables[TABLES];
static unsigned tables_n;

static void learn_tables(sqlite3 *db)
{
    sqlite3_stmt *st;
    FUZZ_CHECK(sqlite3_prepare_v2(db,
                                  "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c "
                                  "WHERE m.type='table' AND m.name NOT LIKE 'sqlite%' ORDER BY m.name, c.cid",
                                  -1, &st, NULL) == SQLITE_OK,
               "%s", sqlite3_errmsg(db));
    while (sqlite3_step(st) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        if (!tables_n || strcmp(tables[tables_n - 1].name, name)) {
            FUZZ_CHECK(tables_n < TABLES, "more tables than room");
            tables[tables_n++].name = strdup(name);
        }
        struct text_table *t = &tables[tables_n - 1];
        FUZZ_CHECK(t->n < COLUMNS, "%s has more columns than room", name);
        t->columns[t->n++] = strdup((const char *)sqlite3_column_text(st, 1));
    }
    sqlite3_finalize(st);
}

/* A literal in SQL. */
static void value(struct fuzz_bytes *b, char *out, size_t size)
{
    static const char *const odd[] = {
        "NULL",
        "''",
        "0.5",
        "-1e300",
        "9e999",
        "x'00ff80'",
        "-9223372036854775808",
        "9223372036854775807",
        "'\x1b[31m\xe2\x80\xae'",
        "zeroblob(70000)",
        "printf('%.50000c','x')",
        "'/usr/lib/python3/x.py'",
        "'__main__'",
        "char(0,65)",
        "'-7'",
        "-1",
    };
    const uint8_t how = fuzz_u8(b);
    if (how < 64) {
        snprintf(out, size, "%s", odd[how % 16]);
    } else if (how < 192) {
        snprintf(out, size, "%lld", (long long)fuzz_hostile(b));
    } else if (how < 224) {
        snprintf(out, size, "-%llu", (unsigned long long)fuzz_hostile(b) >> 1);
    } else {
        size_t n, at = 0;
        const uint8_t *bytes = fuzz_part(b, fuzz_u8(b) % 24, &n);
        at += (size_t)snprintf(out, size, "CAST(x'");
        for (size_t i = 0; i < n; i++) at += (size_t)snprintf(out + at, size - at, "%02x", bytes[i]);
        snprintf(out + at, size - at, "' AS TEXT)");
    }
}

static void insert(struct fuzz_bytes *b, const struct text_table *t, char *sql, size_t size)
{
    size_t at = (size_t)snprintf(sql, size, "INSERT OR REPLACE INTO %s(", t->name);
    for (unsigned i = 0; i < t->n; i++)
        at += (size_t)snprintf(sql + at, size - at, "%s%s", i ? "," : "", t->columns[i]);
    at += (size_t)snprintf(sql + at, size - at, ") VALUES(");
    for (unsigned i = 0; i < t->n; i++) {
        char v[160];
        value(b, v, sizeof v);
        at += (size_t)snprintf(sql + at, size - at, "%s%s", i ? "," : "", v);
    }
    snprintf(sql + at, size - at, ")");
}

enum { ROW, ALL_ROWS, INSERT, DELETE, DOUBLE, PARENT, SCHEMA, EDITS };

static void change_schema(struct fuzz_bytes *b, const struct text_table *t, const char *column, char *sql, size_t size)
{
    const uint8_t how = fuzz_u8(b);
    switch (how % 7) {
    case 0: snprintf(sql, size, "DROP TABLE %s", t->name); break;
    case 1: snprintf(sql, size, "ALTER TABLE %s DROP COLUMN %s", t->name, column); break;
    case 2: snprintf(sql, size, "ALTER TABLE %s RENAME COLUMN %s TO other", t->name, column); break;
    case 3: snprintf(sql, size, "DELETE FROM %s", t->name); break;
    case 4: snprintf(sql, size, "PRAGMA user_version=%d", how / 7 % 4); break;
    case 5:
        snprintf(sql, size, "ALTER TABLE %s RENAME TO old; CREATE VIEW %s AS SELECT * FROM old", t->name, t->name);
        break;
    default: snprintf(sql, size, "ALTER TABLE %s ADD COLUMN extra DEFAULT 'x'", t->name);
    }
}

static void edit(struct fuzz_bytes *b, sqlite3 *db)
{
    char sql[4096], v[160];
    const struct text_table *t = &tables[fuzz_u8(b) % tables_n];
    const char *column = t->columns[fuzz_u8(b) % t->n];
    const uint8_t what = fuzz_u8(b), row = fuzz_u8(b);
    switch (what % EDITS) {
    case ROW:
        value(b, v, sizeof v);
        snprintf(sql, sizeof sql, "UPDATE OR IGNORE %s SET %s=%s WHERE rowid=%d", t->name, column, v, row);
        break;
    case ALL_ROWS:
        value(b, v, sizeof v);
        snprintf(sql, sizeof sql, "UPDATE OR IGNORE %s SET %s=%s", t->name, column, v);
        break;
    case INSERT: insert(b, t, sql, sizeof sql); break;
    case DELETE:
        snprintf(sql, sizeof sql, "DELETE FROM %s WHERE rowid %s %d", t->name, what & 64 ? "=" : ">", row);
        break;
    case DOUBLE: /* multiplies a column's values */
        snprintf(sql, sizeof sql, "UPDATE OR IGNORE %s SET %s=%s*%d", t->name, column, column, (int8_t)row);
        break;
    case PARENT: snprintf(sql, sizeof sql, "UPDATE stack SET parent_id=%d WHERE id=%d", row % 64, what / EDITS); break;
    default:
        if (what < 192)
            snprintf(sql, sizeof sql, "DELETE FROM %s WHERE rowid=%d", t->name, row);
        else
            change_schema(b, t, column, sql, sizeof sql);
    }
    sqlite3_exec(db, sql, NULL, NULL, NULL);
}

void fuzz_edit(struct fuzz_bytes *b, const char *path)
{
    sqlite3 *db;
    FUZZ_CHECK(sqlite3_open(path, &db) == SQLITE_OK, "%s", path);
    sqlite3_exec(db, "PRAGMA synchronous=OFF;PRAGMA legacy_alter_table=ON", NULL, NULL, NULL);
    if (!tables_n) learn_tables(db);
    sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    for (int i = 0; b->left && i < 64; i++) edit(b, db);
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
}

/* ---------------------------------------------------------------- reports */

static void print(const struct result_report *r, uint8_t how, const char *path)
{
    static FILE *nowhere;
    if (!nowhere) nowhere = fopen("/dev/null", "we");
    FUZZ_CHECK(nowhere, "/dev/null");
    FUZZ_CHECK(json_report_some(r, NULL, 0, nowhere) == 0, "no JSON");
    view_text(&(struct draw_text){.report = r,
                                  .term = {.colour = how & 1, .utf8 = how & 2, .width = how & 4 ? 60 : 120},
                                  .out = nowhere,
                                  .top = how & 8 ? 1 : 8,
                                  .native = how & 16,
                                  .database = path});
}

void fuzz_report(const char *path, uint8_t how)
{
    char error[1024] = "";
    struct symbolizer *symbols = how & 64 ? symbolizer_new() : NULL;
    struct run_estimate_bytes bytes = {1e9, 1e9, 2e9, 4e9, 2.5e8, 1e8};
    struct run_options options = {.top = how & 8 ? 2 : 50,
                                  .by_device = how & 32,
                                  .estimate = how & 128 ? &bytes : NULL,
                                  .memory_map = how & 128,
                                  SYMBOLIZER_OPTIONS(symbols)};
    struct run *run = run_open(&path, 1, &options, error, sizeof error);
    struct result_report *report = run ? report_build(run, &options, error, sizeof error) : NULL;
    if (report)
        print(report, how, path);
    else
        FUZZ_CHECK(*error, "no reason");
    if (report) report_free(report);
    if (run) run_close(run);
    symbolizer_free(symbols);
}

void fuzz_page(const char *path, uint8_t how)
{
    char error[1024] = "";
    const char *why;
    struct run_options options = {.top = how & 8 ? 2 : 0, .by_device = how & 32};
    char *html = page_make(path, options, error, sizeof error);
    if (!html) {
        FUZZ_CHECK(*error, "no reason");
        return;
    }
    json_t *data = page_data(html, &why);
    FUZZ_CHECK(data, "%s", why);
    why = page_check(data);
    FUZZ_CHECK(!why, "%s", why);
    json_decref(data);
    free(html);
}

void fuzz_check(const char *path, uint8_t how)
{
    static const char text[] =
        "max-peak = 1KiB\nmax-tensor-peak = 1KiB\nmax-pinned = 1KiB\nmax-growth = 0\nno-leaks = true\nmax-leak = 0\n"
        "max-syncs-per-step = 0\nmax-blocked-share = 0%\nmax-copies-per-step = 0\nmax-h2d-per-step = 0\nno-oom = true\n"
        "max-retries = 0\nmax-fragmentation = 0%\nbudget = params=1000,activations=1KiB\nmax-lost-events = 0\n";
    char error[1024] = "";
    bool nothing;
    struct check_limits limits = {0};
    struct check c;
    FILE *out = fopen("/dev/null", "we");
    FUZZ_CHECK(out && check_limits_read(&limits, text, sizeof text - 1, "limits", error, sizeof error), "%s", error);
    struct check_request wish = {
        .paths = &path, .n = 1, .limits = &limits, .alone = how & 1, .allow_incomplete = how & 2};
    if (check_run(&wish, &c, &nothing, error, sizeof error)) {
        check_view_text(&c, out, how & 4);
        FUZZ_CHECK(check_view_json(&c, out), "no JSON");
        check_view_junit(&c, out);
        check_view_github(&c, out);
        check_view_summary(&c, out);
    } else {
        FUZZ_CHECK(*error, "no reason");
    }
    check_free(&c);
    check_limits_free(&limits);
    fclose(out);
}

void fuzz_export(const char *path, uint8_t how)
{
    char error[1024] = "";
    FILE *err = stderr, *nowhere = fopen("/dev/null", "we");
    struct export e = {
        .last = how & 1 ? 5 : 1000000, .python = true, .native = how & 4, .categories = how & 2, .out = nowhere};
    struct export_request wish = {.at = how & 8    ? "end"
                                        : how & 16 ? "0.001"
                                                   : NULL,
                                  .device = -1,
                                  .pid = -1,
                                  .rank = -1};
    FUZZ_CHECK(nowhere, "/dev/null");
    stderr = nowhere; /* hides the message of export_choose */
    int code = export_choose(&wish, path, NULL, &e);
    if (code == EXIT_YES && !export_snapshot(&e, error, sizeof error)) FUZZ_CHECK(*error, "no reason");
    stderr = err;
    if (e.run) run_close(e.run);
    fclose(nowhere);
}
