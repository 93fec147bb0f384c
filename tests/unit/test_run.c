/* Opening a run: other files instead of a run, the files that belong to it, and malicious files. */
#include "tests/cases.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/json/view_json.h"
#include "analyzer/run/order.h"
#include "tests/unit/events.h"
#include "tests/unit/synthetic.h"
#include "schema/spool_file.h"

static const struct run_options defaults = {0};

static void refuse(const char *path, const char *because)
{
    char error[1024] = "";
    struct run *run = run_open(&path, 1, &defaults, error, sizeof error);
    struct result_report *report = run ? report_build(run, &defaults, error, sizeof error) : NULL;
    if (report) fail_msg("%s was read", path);
    run_close(run);
    if (!strstr(error, because) || strncmp(error, "cannot read '", 13) != 0 || !strstr(error, "; ") ||
        strchr(error, '\n'))
        fail_msg("'%s' does not say '%s'", error, because);
}

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void small_run(struct syn *s)
{
    syn_start(s);
    syn_process(s, "r", 10, SYN_S, 1);
    int64_t f = syn_python(s, 0, "f", "/home/u/a.py", 1);
    for (int i = 0; i < 3000; i++) syn_alloc(s, (struct syn_alloc){.bytes = 10, .at = i, .life = SYN_LIVE, .stack = f});
    syn_done(s);
}

static void test_files_that_are_not_recordings(void **state)
{
    (void)state;
    struct syn s;
    char path[256];
    small_run(&s);
    snprintf(path, sizeof path, "%s/none.db", s.folder);
    refuse(path, "No such file");
    write_file(path, "", 0);
    refuse(path, "empty");
    write_file(path,
               "hello, this is a text that is long enough to be something, but it is no database at all: "
               "a hundred and more bytes",
               110);
    refuse(path, "not a SQLite database");
    write_file(path, "SQLite format 3", 16);
    refuse(path, "truncated");
    unlink(path);
    snprintf(path, sizeof path, "%s/empty", s.folder);
    mkdir(path, 0700);
    refuse(path, "no database");
    syn_end(&s);
}

static void test_other_databases(void **state)
{
    (void)state;
    struct syn s;
    small_run(&s);
    assert_int_equal(sqlite3_open(s.path, &s.db), SQLITE_OK);
    syn_sql(&s, "PRAGMA application_id = 5; BEGIN");
    syn_done(&s);
    refuse(s.path, "not a gpuspy recording");
    assert_int_equal(sqlite3_open(s.path, &s.db), SQLITE_OK);
    syn_sql(&s, "PRAGMA application_id = %d; PRAGMA user_version = 99; BEGIN", GS_APPLICATION_ID);
    syn_done(&s);
    refuse(s.path, "made by a newer gpuspy (schema 99, this one reads 3)");
    assert_int_equal(sqlite3_open(s.path, &s.db), SQLITE_OK);
    syn_sql(&s, "PRAGMA user_version = 3; DROP TABLE copy_row; CREATE VIEW copy_row AS SELECT 1; BEGIN");
    syn_done(&s);
    refuse(s.path, "tables of a recording are missing");
    syn_end(&s);
}

static void test_truncated_and_damaged(void **state)
{
    (void)state;
    struct syn s;
    struct stat st;
    small_run(&s);
    assert_int_equal(stat(s.path, &st), 0);
    assert_int_equal(truncate(s.path, st.st_size / 2), 0);
    refuse(s.path, "truncated");
    assert_int_equal(truncate(s.path, st.st_size), 0); /* its second half is zeros now */
    refuse(s.path, "damaged");
    syn_end(&s);
}

/* Every byte range of the file is overwritten in turn: any answer or refusal, but no crash and no endless loop. */
static void test_scribbled(void **state)
{
    (void)state;
    struct syn s;
    small_run(&s);
    struct stat st;
    assert_int_equal(stat(s.path, &st), 0);
    char *whole = malloc((size_t)st.st_size), error[1024];
    FILE *f = fopen(s.path, "rb");
    assert_int_equal(fread(whole, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    srand(7);
    for (int round = 0; round < 150; round++) {
        char *copy = malloc((size_t)st.st_size);
        memcpy(copy, whole, (size_t)st.st_size);
        for (int i = 0; i < 40; i++) copy[rand() % st.st_size] = (char)rand();
        write_file(s.path, copy, (size_t)st.st_size);
        free(copy);
        const char *path = s.path;
        struct run *run = run_open(&path, 1, &defaults, error, sizeof error);
        struct result_report *report = run ? report_build(run, &defaults, error, sizeof error) : NULL;
        FILE *null = fopen("/dev/null", "w");
        if (report) json_report_some(report, NULL, 0, null);
        fclose(null);
        report_free(report);
        run_close(run);
    }
    free(whole);
    syn_end(&s);
}

static void test_read_only_folder(void **state)
{
    (void)state;
    struct syn s;
    small_run(&s);
    assert_int_equal(chmod(s.path, 0444), 0);
    assert_int_equal(chmod(s.folder, 0555), 0);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->peaks[0].bytes, 30000);
    assert_int_equal(r->notes_n, 0);
    syn_close(r);
    assert_int_equal(chmod(s.folder, 0755), 0);
    assert_int_equal(chmod(s.path, 0000), 0);
    if (geteuid() != 0) refuse(s.path, "Permission denied");
    syn_end(&s);
}

static void another(struct syn *s, const char *name, const char *run_id, int pid, int64_t bytes)
{
    syn_open(s, name);
    syn_process(s, run_id, pid, SYN_S, 1);
    int64_t f = syn_python(s, 0, "f", "/home/u/a.py", 1);
    syn_alloc(s, (struct syn_alloc){.bytes = bytes, .at = 5, .life = SYN_LIVE, .stack = f});
    syn_done(s);
}

static void test_siblings(void **state)
{
    (void)state;
    struct syn s;
    char first[128];
    small_run(&s);
    snprintf(first, sizeof first, "%s", s.path);
    another(&s, "run.11.db", "r", 11, 500);
    another(&s, "run.12.db", "other", 12, 600); /* belongs to another run */
    another(&s, "runs.13.db", "r", 13, 700);    /* its name does not belong to it */
    another(&s, "run.11-2.db", "r", 11, 400);   /* what the process became by exec */
    another(&s, "run.11-.db", "r", 11, 300);
    another(&s, "run.-2.db", "r", 11, 300);
    snprintf(s.path, sizeof s.path, "%s", first);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->processes_n, 3);
    assert_int_equal(r->processes[1].pid, 11);
    assert_int_equal(r->processes[2].pid, 11);
    assert_int_equal(r->peaks_n, 3);
    assert_int_equal(r->peaks[1].process, 1);
    assert_int_equal(r->peaks[1].bytes, 400); /* by name */
    assert_int_equal(r->peaks[2].bytes, 500);
    assert_int_equal(r->peaks[0].by_stack[0].stack.number, r->peaks[1].by_stack[0].stack.number);
    syn_close(r);
    struct run_options alone = {.alone = true};
    r = syn_report(&s, &alone);
    assert_int_equal(r->processes_n, 1);
    syn_close(r);
    refuse(s.folder, "several runs");
    syn_end(&s);
}

static void test_a_folder_is_its_run(void **state)
{
    (void)state;
    struct syn s;
    small_run(&s);
    another(&s, "run.11.db", "r", 11, 500);
    snprintf(s.path, sizeof s.path, "%s", s.folder);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->processes_n, 2);
    syn_close(r);
    syn_end(&s);
}

/* Cycles in the stack tree, absurd numbers, texts instead of numbers. */
static void test_hostile_rows(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_sql(&s, "INSERT INTO process(id,run_id,pid,end_ns,complete,lost_events) VALUES(1,'r',-5,-7,2,-1)");
    syn_sql(&s, "INSERT INTO frame(id,kind,function,file,line) "
                "VALUES(1,0,hex(zeroblob(3000000)),x'ff00fe',-9),"
                "(9223372036854775807,7,NULL,NULL,1e300)");
    syn_sql(&s, "INSERT INTO stack "
                "VALUES(1,2,1,1),(2,1,9223372036854775807,1),(3,3,1,1),(4,999,1,1),(5,1,77,1),"
                "(-8,4,1,1),(9000000000000000000,-8,1,1)");
    syn_sql(&s, "INSERT INTO device(process_id,device,total_bytes,free_bytes) "
                "VALUES(1,0,-1,-2),(1,1e9,5,5),(2,0,1,1)");
    const char *numbers[] = {"NULL", "-1", "0", "9223372036854775807", "-9223372036854775808", "'x'", "1e300", "x'00'"};
    for (size_t i = 0; i < 8; i++) {
        for (size_t j = 0; j < 8; j++) {
            sqlite3_exec(s.db, "SAVEPOINT a", NULL, NULL, NULL);
            char *sql = sqlite3_mprintf(
                "INSERT OR IGNORE INTO "
                "allocation(kind,address,bytes,alloc_ns,life_ns,stream,alloc_stack_id) VALUES"
                "(%s,%s,coalesce(%s,1),coalesce(%s,1),%s,%s,%s);"
                "INSERT OR IGNORE INTO copy_row(kind,bytes,start_ns,blocked_ns,stream,stack_id) VALUES"
                "(%s,coalesce(%s,1),coalesce(%s,1),coalesce(%s,1),1,%s);"
                "INSERT OR IGNORE INTO "
                "sync(process_id,device,kind,api,start_ns,blocked_ns,handle,stack_id,thread_id) "
                "VALUES(1,%s,coalesce(%s,1),%s,coalesce(%s,1),coalesce(%s,1),1,%s,%s);"
                "INSERT OR IGNORE INTO "
                "oom(process_id,device,layer,space,requested_bytes,free_bytes,total_bytes,"
                "tensor_allocated,tensor_reserved,time_ns,fatal,stack_id,thread_id) VALUES"
                "(1,0,coalesce(%s,1),%s,coalesce(%s,1),%s,%s,%s,%s,coalesce(%s,1),1,%s,1);"
                "INSERT OR IGNORE INTO "
                "sample(process_id,device,time_ns,free_bytes,total_bytes,source) VALUES"
                "(1,0,coalesce(%s,1),%s,%s,1);"
                "INSERT OR IGNORE INTO reserved(process_id,device,time_ns,bytes) "
                "VALUES(1,0,coalesce(%s,1),coalesce(%s,1))",
                i == 0 ? "1" : numbers[i], numbers[j], numbers[j], numbers[i], numbers[j], numbers[i], numbers[j],
                i == 0 ? "1" : numbers[i], numbers[j], numbers[i], numbers[j], numbers[j], numbers[i], numbers[j],
                numbers[i], numbers[i], numbers[j], numbers[j], numbers[i], numbers[j], numbers[i], numbers[j],
                numbers[i], numbers[j], numbers[i], numbers[j], numbers[i], numbers[j], numbers[i], numbers[j],
                numbers[i], numbers[j], numbers[i], numbers[j]);
            sqlite3_exec(s.db, sql, NULL, NULL, NULL);
            sqlite3_free(sql);
        }
    }
    for (int i = 1; i <= 5; i++)
        syn_alloc(&s, (struct syn_alloc){.bytes = 1LL << 59, .at = i, .life = SYN_LIVE, .stack = i});
    struct result_report *r = syn_report(&s, NULL);
    FILE *null = fopen("/dev/null", "w");
    assert_int_equal(json_report_some(r, NULL, 0, null), 0);
    fclose(null);
    for (size_t i = 0; i < r->peaks_n; i++) assert_true(r->peaks[i].bytes >= 0);
    assert_false(r->complete);
    assert_true(r->notes_n >= 1);
    syn_close(r);
    syn_end(&s);
}

static void test_deep_and_circular_stacks_end(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    syn_sql(&s, "INSERT INTO frame(id,kind,function,file,line) VALUES(1,0,'f','/home/u/a.py',3)");
    syn_sql(&s, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
                "INSERT INTO stack SELECT i, nullif(i - 1, 0), 1, i FROM n"); /* one of 20,000 frames */
    syn_sql(&s, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) "
                "INSERT INTO stack SELECT 30000 + i, 30000 + i %% 5000 + 1, 1, i FROM n"); /* a circle */
    syn_alloc(&s, (struct syn_alloc){.bytes = 1, .at = 1, .life = SYN_LIVE, .stack = 20000});
    syn_alloc(&s, (struct syn_alloc){.bytes = 2, .at = 2, .life = SYN_LIVE, .stack = 30001});
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->peaks[0].bytes, 3);
    for (size_t i = 0; i < r->peaks[0].by_stack_n; i++)
        assert_in_range(run_stack_depth(r->run, r->peaks[0].by_stack[i].stack.number), 1, RUN_DEPTH_MAX);
    syn_close(r);
    syn_end(&s);
}

static void test_rows_out_of_order(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    syn_alloc(&s, (struct syn_alloc){.bytes = 1, .at = 100, .life = 10});
    syn_alloc(&s, (struct syn_alloc){.bytes = 2, .at = 50, .life = 10}); /* counts as live at 100, for no time */
    syn_alloc(&s, (struct syn_alloc){.bytes = 4, .at = 105, .life = 100});
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->peaks[0].bytes, 5);
    assert_int_equal(r->peaks[0].end_bytes, 0);
    syn_close(r);
    syn_end(&s);
}

/* Rows are read directly from the file's pages as far as possible, and the rest with SQL: each row once. */
static void test_every_row_is_read_once(void **state)
{
    static const char *const odd[] = {"bytes = bytes",  "bytes = CAST(bytes AS BLOB)",
                                      "bytes = 512.25", "free_stack_id = hex(zeroblob(20000))",
                                      "life_ns = NULL", "id = -1"};
    enum { ROWS = 3000, ODD = 1700, BYTES = 512 };
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char sql[256];
        struct syn s;
        syn_start(&s);
        syn_process(&s, "r", 1, SYN_S, 1);
        for (int row = 1; row <= ROWS; row++)
            syn_alloc(&s, (struct syn_alloc){.bytes = BYTES, .at = row * 100, .life = 50, .address = row});
        snprintf(sql, sizeof sql, "UPDATE allocation_row SET %s WHERE id = %d", odd[i], ODD);
        syn_sql(&s, "%s", sql);
        struct result_report *r = syn_report(&s, NULL);
        assert_int_equal(r->peaks_n, 1);
        assert_int_equal(r->peaks[0].allocations, ROWS);
        assert_int_equal(r->peaks[0].allocated_bytes, ROWS * BYTES);
        assert_int_equal(r->peaks[0].frees, strstr(odd[i], "life_ns") ? ROWS - 1 : ROWS);
        syn_close(r);
        syn_end(&s);
    }
}

/* SQLite stores an integer in 0 to 8 bytes: each combination of sizes is decoded as SQL decodes it. */
static void test_integers_of_every_size(void **state)
{
    enum { ROWS = 4000, BITS = 40 };
    struct syn s;
    int64_t bytes = 0;
    (void)state;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    for (int64_t row = 0; row < ROWS; row++) {
        const int64_t size = ((int64_t)1 << row % BITS) - (row & 1), life = (int64_t)1 << row * 7 % BITS;
        syn_alloc(&s, (struct syn_alloc){.bytes = size, .at = row * row, .life = life, .address = row << row % 50});
        bytes += size;
    }
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->peaks_n, 1);
    assert_int_equal(r->peaks[0].allocations, ROWS);
    assert_int_equal(r->peaks[0].frees, ROWS);
    assert_int_equal(r->peaks[0].allocated_bytes, bytes);
    assert_int_equal(r->peaks[0].end_bytes, 0);
    syn_close(r);
    syn_end(&s);
}

static bool name_it(void *data, const char *module, const char *build_id, uint64_t offset, const char **function,
                    const char **file, int *line)
{
    (*(int *)data)++;
    assert_string_equal(module, "/opt/app");
    assert_string_equal(build_id, "abcd");
    *function = offset == 16 ? "main" : "work";
    *file = "/src/app.c";
    *line = (int)offset;
    return true;
}

struct seen { /* the events that an observer received, in their order */
    struct run *run;
    uint64_t hash, events, others;
    bool allocations; /* only these: then lifetimes have no numbers of their own */
};

static void see(struct seen *s, const int64_t *facts, size_t n)
{
    s->events++;
    for (size_t i = 0; i < n; i++) s->hash = map_hash(s->hash ^ (uint64_t)facts[i]);
}

static void see_lifetime(struct seen *s, const struct run_lifetime *life, const struct run_series *series, int64_t what)
{
    const int64_t facts[] = {what,
                             (int64_t)life->address,
                             life->location,
                             life->series,
                             life->bytes,
                             life->alloc_ns,
                             life->free_ns,
                             s->allocations ? 0 : run_live_number(s->run, life),
                             run_free_stack(s->run, life),
                             series->process,
                             series->device,
                             series->layer,
                             series->live_bytes};
    see(s, facts, sizeof facts / sizeof *facts);
}

static void see_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    see_lifetime(self, life, series, 1);
}

static void see_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    see_lifetime(self, life, series, 2);
}

static void see_other(struct seen *s, int64_t what, int64_t time_ns, int64_t fact)
{
    const int64_t facts[] = {what, time_ns, fact};
    s->others++;
    see(s, facts, 3);
}

static void see_oom(void *self, const struct run_oom *oom, size_t index)
{
    see_other(self, 3, oom->time_ns, (int64_t)index);
}

static void see_sample(void *self, const struct run_sample *sample)
{
    see_other(self, 4, sample->time_ns, sample->free_bytes);
}

static void see_reserved(void *self, const struct run_reserved *reserved)
{
    see_other(self, 5, reserved->time_ns, reserved->bytes);
}

/* Enough rows that threads read and receive them. */
enum { MANY = 70000, MANY_OTHERS = 60 };
static struct run *open_many_rows(struct syn *s)
{
    char error[1024];
    syn_start(s);
    syn_process(s, "r", 1, SYN_S, 1);
    syn_device(s, 0, SYN_GIB, SYN_GIB);
    const long long f = syn_python(s, 0, "f", "/home/u/a.py", 1), g = syn_python(s, 0, "g", "/home/u/a.py", 2);
    const int64_t first = syn_alloc(s, (struct syn_alloc){.bytes = 512, .at = 1, .life = SYN_LIVE, .stack = f});
    syn_sql(s,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT %d), a AS (SELECT * FROM "
            "allocation_row WHERE id = %lld) INSERT INTO allocation_row SELECT a.id + i, (a.kind & ~3) | i %% 2, i, "
            "512 * (i %% 7 + 1), i * 100, 50 + i * 31 %% 5000, 0, CASE i %% 3 WHEN 0 THEN %lld ELSE %lld END, %lld "
            "FROM n, a",
            MANY, (long long)first, f, g, g);
    for (int i = 1; i <= MANY_OTHERS / 3; i++) {
        const int64_t at = i * 300000;
        syn_oom(s, (struct syn_oom){.requested = i, .at = at});
        syn_reserved(s, at - 7, i * SYN_MIB);
        syn_sql(
            s, "INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source) VALUES(1,0,%lld,%d,%lld,0)",
            (long long)at + 13, i, SYN_GIB);
    }
    syn_done(s);
    const char *path = s->path;
    struct run *run = run_open(&path, 1, &defaults, error, sizeof error);
    assert_non_null(run);
    return run;
}

static void test_an_observer_beside_receives_the_same_events(void **state)
{
    char error[1024];
    (void)state;
    struct syn s;
    struct run *run = open_many_rows(&s);
    struct seen beside = {.run = run}, seen = {.run = run};
    struct run_observer observers[2] = {{.self = &beside, .beside = true}, {.self = &seen}};
    for (int i = 0; i < 2; i++) {
        observers[i].alloc = see_alloc;
        observers[i].free = see_free;
        observers[i].oom = see_oom;
        observers[i].sample = see_sample;
        observers[i].reserved = see_reserved;
    }
    assert_true(run_replay(run, observers, 2, error, sizeof error));
    assert_true(seen.others >= MANY_OTHERS);
    assert_int_equal(seen.events, 2 * MANY + 1 + seen.others);
    assert_int_equal(beside.events, seen.events);
    assert_true(beside.hash == seen.hash);
    run_close(run);
    syn_end(&s);
}

static void test_an_observer_without_frees_receives_the_same_allocations(void **state)
{
    char error[1024];
    (void)state;
    struct syn s;
    struct run *run = open_many_rows(&s);
    struct seen beside = {.run = run, .allocations = true}, seen = beside;
    struct run_observer observers[2] = {{.self = &beside, .beside = true, .alloc = see_alloc},
                                        {.self = &seen, .alloc = see_alloc}};
    assert_true(run_replay(run, observers, 2, error, sizeof error));
    assert_int_equal(seen.events, MANY + 1);
    assert_int_equal(beside.events, seen.events);
    assert_true(beside.hash == seen.hash);
    run_close(run);
    syn_end(&s);
}

struct lasting {
    int64_t last_ns;
    size_t rows, moments; /* moments: at which the rows are live */
};
static const int64_t moments[] = {0, 777, 1000050, 1000050, 3500000, 6999999, INT64_MAX - 1};

static void count_lasting(void *self, const struct run_lifetime *life, uint32_t free_stack)
{
    struct lasting *l = self;
    size_t n = 0;
    (void)free_stack;
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++)
        n += life->alloc_ns <= moments[i] && moments[i] < life->free_ns;
    assert_true(n > 0 && life->alloc_ns >= l->last_ns && life->location != RUN_NONE);
    l->last_ns = life->alloc_ns;
    l->rows++;
    l->moments += n;
}

static void count_live_at(void *self, size_t moment, const struct run_lifetime *life, uint32_t free_stack)
{
    (void)moment, (void)life, (void)free_stack;
    ++*(size_t *)self;
}

static void test_rows_that_are_live_at_moments(void **state)
{
    char error[1024];
    (void)state;
    struct syn s;
    struct run *run = open_many_rows(&s);
    const struct run_observer none = {0};
    struct lasting l = {0};
    size_t expected = 0, n = sizeof moments / sizeof *moments;
    assert_true(run_replay(run, &none, 1, error, sizeof error));
    assert_true(run_each_lasting(run, 0, moments, n, count_lasting, &l, error, sizeof error));
    assert_true(run_each_live_at(run, 0, moments, n, count_live_at, &expected, error, sizeof error));
    assert_int_equal(l.moments, expected);
    assert_true(l.rows > 50 && l.rows < l.moments);
    run_close(run);
    syn_end(&s);
}

/* The same with rows that only SQL can read. */
static void test_live_rows_are_read_once(void **state)
{
    static const char *const odd[] = {"stream = stream", "stream = 'x'", "stream = 0.5",
                                      "free_stack_id = hex(zeroblob(20000))"};
    enum { ROWS = 12000, LONG = 400000 };
    static const int64_t at[] = {150, 40000, 700025, 700075, 1199920};
    const struct run_observer none = {0};
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char error[1024];
        size_t expected = 0, read = 0;
        struct syn s;
        syn_start(&s);
        syn_process(&s, "r", 1, SYN_S, 1);
        for (int row = 1; row <= ROWS; row++) {
            const int64_t life = row % 2000 == 7 ? LONG : 50;
            syn_alloc(&s, (struct syn_alloc){.bytes = 512, .at = row * 100, .life = life, .address = row});
            for (size_t m = 0; m < sizeof at / sizeof *at; m++)
                expected += row * 100 <= at[m] && at[m] < row * 100 + life;
        }
        for (int row = 4007; row < ROWS; row += 4000)
            syn_sql(&s, "UPDATE allocation_row SET %s WHERE id = %d", odd[i], row);
        syn_done(&s);
        const char *path = s.path;
        struct run *run = run_open(&path, 1, &defaults, error, sizeof error);
        assert_non_null(run);
        assert_true(run_replay(run, &none, 1, error, sizeof error));
        assert_true(run_each_live_at(run, 0, at, sizeof at / sizeof *at, count_live_at, &read, error, sizeof error));
        assert_int_equal(read, expected);
        assert_true(expected > 5);
        run_close(run);
        syn_end(&s);
    }
}

static void test_native_frames_are_named_once(void **state)
{
    (void)state;
    struct syn s;
    int asked = 0;
    struct run_options options = {.symbol = name_it, .symbol_data = &asked};
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t start = syn_native(&s, 0, "/usr/lib/libc.so.6", 8);
    int64_t main = syn_native(&s, start, "/opt/app", 16);
    int64_t work = syn_native(&s, main, "/opt/app", 32);
    int64_t cuda = syn_native(&s, work, "/usr/lib/libcudart.so.13", 64);
    syn_alloc(&s, (struct syn_alloc){.bytes = 1, .at = 100, .life = SYN_LIVE, .stack = work});
    (void)cuda;
    struct result_report *r = syn_report(&s, &options);
    const struct result_trace *t = &r->peaks[0].by_stack[0].stack;
    for (int i = 0; i < 2; i++) {
        assert_string_equal(run_frame_named(r->run, t->number)->function, "work");
        assert_string_equal(run_frame_named(r->run, run_stack_parent(r->run, t->number))->function, "main");
    }
    assert_true(run_stack_calls(r->run, t->number, "mai"));
    assert_false(run_stack_calls(r->run, t->number, "cudnn"));
    assert_int_equal(t->site.line, 32);
    assert_false(t->site.library);
    assert_int_equal(asked, 2); /* not for the C library's */
    syn_close(r);
    syn_end(&s);
}

static void test_lost_events_are_reported(void **state)
{
    (void)state;
    struct syn s;
    small_run(&s);
    assert_int_equal(sqlite3_open(s.path, &s.db), SQLITE_OK);
    syn_sql(&s, "UPDATE process SET lost_events = 17, lost_first_ns = 2500000000; BEGIN");
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->lost_events, 17);
    assert_true(r->lost_first_s == 2.5);
    assert_false(r->complete);
    assert_string_equal(r->advice[0].topic, "recording");
    syn_close(r);
    syn_end(&s);
}

/* The oracle: after each allocation in order, the numbers that are in use; frees at a moment come before allocations.
 */
static void check_order(struct run_rows *batches, size_t batches_n, size_t kept)
{
    struct run_order *o = run_order_new(kept);
    const struct run_lifetime *live[4096] = {NULL};
    size_t begun = 0, ended = 0, never = 0;
    int64_t now = 0;
    for (size_t b = 0; b <= batches_n; b++) {
        struct run_rows none = {.n = 0}, *batch = b < batches_n ? &batches[b] : &none;
        const struct run_stored *row = batch->rows;
        run_order_batch(o, batch, b == batches_n);
        for (size_t i = 0; i < batch->events_n; i++) {
            const uint32_t number = batch->events[i] & ~RUN_ROWS_FREE;
            assert_in_range(number, 0, 4095);
            const bool ends = batch->events[i] & RUN_ROWS_FREE;
            if (!ends) assert_null(live[number]);
            const struct run_lifetime *life = ends ? live[number] : &row++->life;
            assert_non_null(life);
            const int64_t ns = ends ? life->free_ns : life->alloc_ns;
            assert_true(ns >= now);
            for (size_t k = 0; !ends && k < 4096; k++) assert_true(!live[k] || live[k]->free_ns > ns);
            now = ns;
            live[number] = ends ? NULL : life;
            begun += !ends;
            ended += ends;
            never += !ends && life->free_ns == RUN_NEVER;
        }
        assert_ptr_equal(row, batch->rows + batch->n);
        free(none.events);
    }
    assert_int_equal(begun, ended + never);
    run_order_free(o);
}

static void test_frees_are_put_in_order(void **state)
{
    (void)state;
    enum { BATCHES = 5, ROWS = 300 };
    struct run_rows *batches = arena_zeroed(BATCHES, sizeof *batches);
    for (unsigned seed = 1; seed <= 40; seed++) {
        int64_t now = 0;
        srandom(seed);
        const long spread = 1L << seed % 20; /* equal times, short and long lives */
        for (size_t i = 0; i < (size_t)BATCHES * ROWS; i++) {
            struct run_lifetime *life = &batches[i / ROWS].rows[i % ROWS].life;
            now += random() % (1 + spread / 4);
            *life = (struct run_lifetime){.alloc_ns = now,
                                          .free_ns = random() % 20 ? now + random() % (1 + spread) * (random() % 40)
                                                                   : RUN_NEVER};
            batches[i / ROWS].n = i % ROWS + 1;
        }
        check_order(batches, BATCHES, seed % 3 * 100);
    }
    for (size_t i = 0; i < BATCHES; i++) free(batches[i].events);
    free(batches);
}

/* Another process, as a recorder is: it begins a recording, and tests whether this one holds a lock on the file. */
static void record_elsewhere(const char *path, const int ends[2])
{
    char spool_path[300], byte = 0;
    struct gs_spool spool;
    snprintf(spool_path, sizeof spool_path, "%s.spool", path);
    if (gs_spool_create(&spool, spool_path, "run", "", 0, 0)) _exit(1);
    struct gs_store *store = ev_store(path);
    (void)!write(ends[1], &byte, 1);
    while (read(ends[1], &byte, 1) == 1) {
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct flock lock = {.l_type = F_WRLCK, .l_start = 0x40000002, .l_len = 510}; /* SQLite's SHARED_FIRST */
        byte = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_RDLCK && lock.l_pid == getppid();
        (void)!write(ends[1], &byte, 1);
    }
    (void)store;
    gs_spool_unlink(&spool, spool_path);
    _exit(0);
}

static bool is_locked(int recorder)
{
    char byte = 0;
    assert_int_equal(write(recorder, &byte, 1), 1);
    assert_int_equal(read(recorder, &byte, 1), 1);
    return byte;
}

/* POSIX: the first close() of any descriptor of a file ends all locks that the process has on it. */
/* qemu-user shows a process its own start in another clock's ticks than it shows other processes. */
static bool seems_alive(const char *path)
{
    char spool_path[300], error[160];
    struct gs_spool_control c;
    snprintf(spool_path, sizeof spool_path, "%s.spool", path);
    assert_int_equal(gs_spool_read_control(spool_path, &c, error, sizeof error), 0);
    return !gs_process_is_gone(c.pid, c.process_start_ticks);
}

static void test_a_second_opening_keeps_the_locks_of_the_first(void **state)
{
    char *folder = ev_folder(), path[280], byte, error[1024];
    const char *paths[] = {path};
    struct run *runs[2];
    int ends[2], status;
    (void)state;
    snprintf(path, sizeof path, "%s/run.db", folder);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const pid_t recorder = fork();
    if (!recorder) {
        close(ends[0]);
        record_elsewhere(path, ends);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    if (!seems_alive(path)) {
        kill(recorder, SIGKILL);
        waitpid(recorder, &status, 0);
        ev_remove_folder(folder);
        skip();
    }
    assert_false(is_locked(ends[0]));
    for (int i = 0; i < 2; i++) {
        runs[i] = run_open(paths, 1, &defaults, error, sizeof error);
        if (!runs[i]) fail_msg("%s", error);
        assert_true(is_locked(ends[0]));
    }
    run_close(runs[1]);
    assert_true(is_locked(ends[0]));
    run_close(runs[0]);
    assert_false(is_locked(ends[0]));
    close(ends[0]);
    assert_int_equal(waitpid(recorder, &status, 0), recorder);
    assert_int_equal(status, 0);
    ev_remove_folder(folder);
}

CASES(test_files_that_are_not_recordings, test_other_databases, test_truncated_and_damaged, test_scribbled,
      test_read_only_folder, test_siblings, test_a_folder_is_its_run, test_hostile_rows,
      test_deep_and_circular_stacks_end, test_rows_out_of_order, test_every_row_is_read_once,
      test_integers_of_every_size, test_frees_are_put_in_order, test_an_observer_beside_receives_the_same_events,
      test_an_observer_without_frees_receives_the_same_allocations, test_rows_that_are_live_at_moments,
      test_live_rows_are_read_once, test_native_frames_are_named_once, test_lost_events_are_reported,
      test_a_second_opening_keeps_the_locks_of_the_first)
