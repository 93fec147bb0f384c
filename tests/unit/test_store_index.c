/* The index of the log that SQLite keeps in ordinary memory: the file agrees with the log after each transaction,
 * whatever this process and another one did before. The other one uses SQLite as it is, with the file mapped. And the
 * log itself, to which this process appends many pages at once. */
#include "tests/unit/events.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "schema/store_files.h"

#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 40 }; /* its copies of SQLite's pages are slow, and each round copies more */
#else
enum { ROUNDS = 150 };
#endif
enum { PAGE = 512, REGION = 32768, FIRST = 4062, PER_REGION = 4096, SLOTS = 8192 };

static char db[300], log_path[320], index_path[320];
static int to_other, from_other;
static pid_t other;

static void sql(sqlite3 *s, const char *text)
{
    char *error = NULL;
    if (sqlite3_exec(s, text, NULL, NULL, &error)) fail_msg("%s: %s", text, error);
}

static int64_t number(sqlite3 *s, const char *text)
{
    sqlite3_stmt *st = NULL;
    int64_t n = -1;
    if (sqlite3_prepare_v2(s, text, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        n = sqlite3_column_int64(st, 0);
    else
        print_message("%s: %s\n", text, sqlite3_errmsg(s));
    sqlite3_finalize(st);
    return n;
}

static sqlite3 *open_database(void)
{
    sqlite3 *s = NULL;
    assert_int_equal(sqlite3_open(db, &s), SQLITE_OK);
    sqlite3_busy_timeout(s, 50);
    sql(s, "PRAGMA page_size=512; PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=OFF; "
           "PRAGMA cache_size=10");
    return s;
}

#define SUM "SELECT count(*) + sum(id * length(x)) + sum(v) FROM t"

/* ---------------------------------------------------------------- the other process */

static void be_other(int in, int out)
{
    sqlite3 *s = NULL;
    char what;
    while (read(in, &what, 1) == 1) {
        int64_t answer = 0;
        if (!s) s = open_database();
        switch (what) {
        case 'h':
            sql(s, "BEGIN");
            answer = number(s, SUM);
            break;
        case 'r': sql(s, "COMMIT"); break;
        case 's': answer = number(s, SUM); break;
        case 'w': sql(s, "UPDATE t SET v = v + 1 WHERE id % 7 = 0"); break;
        case 'p': sqlite3_wal_checkpoint_v2(s, "main", SQLITE_CHECKPOINT_RESTART, NULL, NULL); break;
        default: sqlite3_close(s); s = NULL;
        }
        if (write(out, &answer, sizeof answer) != sizeof answer) _exit(1);
    }
    _exit(0);
}

static void start_other(void)
{
    int in[2], out[2];
    assert_int_equal(pipe(in) | pipe(out), 0);
    other = fork();
    if (other == 0) {
        close(in[1]);
        be_other(in[0], out[1]);
    }
    close(in[0]);
    to_other = in[1];
    from_other = out[0];
}

static int64_t ask_other(char what)
{
    int64_t answer = -1;
    assert_int_equal(write(to_other, &what, 1), 1);
    assert_int_equal(read(from_other, &answer, sizeof answer), sizeof answer);
    return answer;
}

/* ---------------------------------------------------------------- the files */

static uint8_t *read_whole_file(const char *path, size_t *size)
{
    struct stat st;
    const int fd = open(path, O_RDONLY);
    assert_int_equal(fstat(fd, &st), 0);
    uint8_t *text = calloc(1, (size_t)st.st_size + 1);
    assert_int_equal(pread(fd, text, (size_t)st.st_size, 0), st.st_size);
    close(fd);
    *size = (size_t)st.st_size;
    return text;
}

static bool finds_frame(const uint8_t *region, uint32_t page, uint32_t in_region)
{
    const uint16_t *slots = (const uint16_t *)(const void *)(region + REGION / 2);
    for (uint32_t at = page * 383 & (SLOTS - 1), n = 0; slots[at] && n < SLOTS; at = (at + 1) & (SLOTS - 1), n++)
        if (slots[at] == in_region) return true;
    return false;
}

/* How many frames the index has wrong; their number in *frames. */
static uint32_t wrong_frames(uint32_t *frames)
{
    size_t log_size, index_size;
    uint8_t *log = read_whole_file(log_path, &log_size), *index = read_whole_file(index_path, &index_size);
    uint32_t wrong = memcmp(index, index + 48, 48) != 0;
    memcpy(frames, index + 16, 4);
    for (uint32_t i = 1; i <= *frames; i++) {
        const uint8_t *f = log + 32 + (size_t)(i - 1) * (PAGE + 24);
        const uint32_t r = i <= FIRST ? 0 : 1 + (i - FIRST - 1) / PER_REGION;
        const uint32_t in_region = r ? i - FIRST - (r - 1) * PER_REGION : i;
        if (f + 24 > log + log_size || (size_t)(r + 1) * REGION > index_size) {
            wrong++;
            break;
        }
        const uint32_t page = (uint32_t)f[0] << 24 | (uint32_t)f[1] << 16 | (uint32_t)f[2] << 8 | f[3];
        uint32_t known;
        memcpy(&known, index + (size_t)r * REGION + (r ? 0 : 136) + (size_t)(in_region - 1) * 4, 4);
        wrong += known != page || !finds_frame(index + (size_t)r * REGION, page, in_region);
    }
    free(log);
    free(index);
    return wrong;
}

/* As a process that died while it recovered the index leaves it. */
static void tear(uint64_t *random)
{
    struct stat st;
    const int fd = open(index_path, O_RDWR);
    uint8_t noise[4096];
    assert_int_equal(fstat(fd, &st), 0);
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)ev_random(random);
    const size_t from = ev_below(random, 2) ? 0 : 40; /* 40: only the checksums are wrong */
    for (int header = 0; header < 2; header++)
        assert_int_equal(pwrite(fd, noise, 48 - from, 48 * header + (off_t)from), 48 - from);
    for (int i = 0; i < 6; i++) {
        const off_t at = 4096 * (1 + (off_t)ev_below(random, (uint32_t)(st.st_size / 4096 - 1)));
        assert_int_equal(pwrite(fd, noise, sizeof noise, at), sizeof noise);
    }
    close(fd);
}

/* ---------------------------------------------------------------- */

static void write_rows(sqlite3 *s, uint64_t *random, bool keep)
{
    char text[300];
    const unsigned n = ev_below(random, 8) ? 1 + ev_below(random, 200) : 1 + ev_below(random, 4000);
    sql(s, "BEGIN IMMEDIATE");
    snprintf(text, sizeof text,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %u) INSERT INTO t(x, v) SELECT "
             "zeroblob(1 + i %% 400), i FROM n",
             n);
    sql(s, text);
    snprintf(text, sizeof text, "UPDATE t SET v = v + 1 WHERE id %% %u = 0", 3 + ev_below(random, 500));
    sql(s, text);
    if (ev_below(random, 3) == 0) sql(s, "SAVEPOINT a; UPDATE t SET v = v + 5 WHERE id % 3 = 0; ROLLBACK TO a");
    if (ev_below(random, 6) == 0) sql(s, "DELETE FROM t WHERE id % 2 = 0 OR id < (SELECT max(id) FROM t) - 8000");
    sql(s, keep ? "COMMIT" : "ROLLBACK");
}

static void agrees_with_the_log(void **state)
{
    uint64_t random = 4712;
    uint32_t frames, most = 0;
    int torn = 0, checked = 0;
    bool held = false;
    sqlite3 *s = open_database();
    sql(s, "CREATE TABLE t(id INTEGER PRIMARY KEY, x, v)");
    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t what = ev_below(&random, 24);
        if (what < 2 && !held) {
            held = true;
            ask_other('h');
        } else if (what < 4 && held) {
            held = false;
            ask_other('r');
        } else if (what == 4 && !held) {
            ask_other('w');
        } else if (what == 5 && !held) {
            ask_other('p');
        } else if (what == 6) {
            sqlite3_wal_checkpoint_v2(s, "main", (int)ev_below(&random, 4), NULL, NULL);
        } else if (what == 7) {
            if (held) ask_other('r');
            held = false;
            ask_other('x');
            assert_int_equal(truncate(index_path, 0), 0);
        } else if (what <= 9 && !held && number(s, SUM) >= 0) {
            tear(&random);
            torn += wrong_frames(&frames) > 0; /* the check sees it */
            assert_true(number(s, SUM) >= 0);
            assert_int_equal(wrong_frames(&frames), 0);
        }
        write_rows(s, &random, ev_below(&random, 4) > 0);
        const int64_t sum = number(s, SUM);
        assert_int_equal(wrong_frames(&frames), 0);
        most = frames > most ? frames : most;
        checked += !held;
        if (!held) assert_int_equal(ask_other('s'), sum);
    }
    print_message("%d torn, %d compared, %u frames\n", torn, checked, most);
    assert_true(torn > 5 && checked > ROUNDS / 3 && most > 2 * PER_REGION);
    assert_int_equal(number(s, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    sqlite3_close(s);
    close(to_other);
    waitpid(other, NULL, 0);
}

/* SQLite begins the log again in a commit before which the file was cut: what it sets to zero then is not zero in the
 * bytes that the file still has. */
static void a_cut_file_has_its_first_bytes(void **state)
{
    sqlite3 *s = open_database();
    sql(s, "CREATE TABLE IF NOT EXISTS cut(id INTEGER PRIMARY KEY, x)");
    for (int round = 1; round <= 20; round++) {
        sql(s, "INSERT INTO cut(x) VALUES (zeroblob(20000))");
        sqlite3_wal_checkpoint_v2(s, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        sql(s, "BEGIN IMMEDIATE; INSERT INTO cut(x) VALUES (zeroblob(300))");
        assert_int_equal(truncate(index_path, 100), 0);
        sql(s, "COMMIT");
        assert_int_equal(number(s, "SELECT count(*) FROM cut"), 2 * round);
    }
    assert_int_equal(number(s, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    sqlite3_close(s);
}

/* ---------------------------------------------------------------- appending */

static long writes_so_far(void)
{
    char line[100];
    long n = -1;
    FILE *io = fopen("/proc/self/io", "r");
    while (io && n < 0 && fgets(line, sizeof line, io)) (void)sscanf(line, "syscw: %ld", &n);
    if (io) fclose(io);
    return n;
}

static void a_commit_needs_few_system_calls(void **state)
{
    uint32_t before, after;
    sqlite3 *s = open_database();
    sql(s, "CREATE TABLE IF NOT EXISTS few(id INTEGER PRIMARY KEY, x); PRAGMA cache_size=4000");
    (void)wrong_frames(&before);
    sql(s, "BEGIN IMMEDIATE; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) "
           "INSERT INTO few(x) SELECT zeroblob(400) FROM n");
    const long begun = writes_so_far();
    sql(s, "COMMIT");
    const long calls = writes_so_far() - begun;
    assert_int_equal(wrong_frames(&after), 0);
    print_message("%u pages in %ld system calls\n", after - before, calls);
    assert_true(after - before >= 2000);
    if (begun >= 0) assert_in_range(calls, 1, (after - before) / 10); /* those of the index are among them */
    sqlite3_close(s);
}

/* Wherever the file's limit ends the log, SQLite learns of it before it announces the commit. */
static void a_commit_that_does_not_fit_fails(void **state)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    int failed = 0, kept = 0;
    uint32_t frames;
    sqlite3 *s = open_database();
    signal(SIGXFSZ, SIG_IGN);
    sql(s, "CREATE TABLE IF NOT EXISTS tight(id INTEGER PRIMARY KEY, x)");
    for (int round = 0; round < 60; round++) {
        size_t size;
        char text[300];
        free(read_whole_file(log_path, &size));
        const struct rlimit limit = {size + 700 + 1111 * (size_t)(round / 2), RLIM_INFINITY};
        snprintf(text, sizeof text,
                 "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO tight(x) "
                 "SELECT zeroblob(400) FROM n",
                 round % 2 ? 150 : 8); /* the cache holds 10 pages */
        sql(s, "BEGIN IMMEDIATE");
        setrlimit(RLIMIT_FSIZE, &limit);
        const bool fits = sqlite3_exec(s, text, NULL, NULL, NULL) == SQLITE_OK &&
                          sqlite3_exec(s, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
        setrlimit(RLIMIT_FSIZE, &none);
        if (!fits && !sqlite3_get_autocommit(s)) sql(s, "ROLLBACK");
        failed += !fits;
        kept += fits ? (round % 2 ? 150 : 8) : 0;
        assert_int_equal(wrong_frames(&frames), 0);
        assert_int_equal(number(s, "SELECT count(*) FROM tight"), kept);
    }
    print_message("%d commits did not fit\n", failed);
    assert_in_range(failed, 10, 50);
    assert_int_equal(number(s, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    sqlite3_close(s);
}

static int larger_page(void)
{
    return 2 * REGION;
}

/* A kernel for aarch64 may have pages of 64 KiB: SQLite then maps two regions of the index at once. */
static int run_all(bool with_larger_pages)
{
    char name[] = "/tmp/gpuspy-index-XXXXXX", command[400];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_log), cmocka_unit_test(a_cut_file_has_its_first_bytes),
        cmocka_unit_test(a_commit_needs_few_system_calls), cmocka_unit_test(a_commit_that_does_not_fit_fails)};
    const char *folder = mkdtemp(name);
    if (!folder) return 1;
    snprintf(db, sizeof db, "%s/run.db", folder);
    snprintf(log_path, sizeof log_path, "%s-wal", db);
    snprintf(index_path, sizeof index_path, "%s-shm", db);
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    if (with_larger_pages) vfs->xSetSystemCall(vfs, "getpagesize", (sqlite3_syscall_ptr)larger_page);
    start_other(); /* before this process replaces SQLite's system calls */
    gs_store_files_guest();
    gs_store_files_init();
    const int failed =
        cmocka_run_group_tests_name(with_larger_pages ? "pages of 64 KiB" : "pages of this machine", tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command) != 0 || failed;
}

int main(void)
{
    int status = 1;
    const pid_t first = fork();
    if (first == 0) exit(run_all(true));
    waitpid(first, &status, 0);
    return run_all(false) || status;
}
