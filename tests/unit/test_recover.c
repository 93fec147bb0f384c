/* A process is killed at a random moment; the recorded events are in the database afterwards. */
#include "tests/unit/events.h"
#include "schema/spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define WRITERS 3

static char *folder;
static char db[300], spool_path[310];

/* Shared with the victim: how many events each of its threads has published. */
static struct shared {
    _Atomic uint64_t published[WRITERS + 1];
    _Atomic uint32_t ready;
} * shared;

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void remove_spool(void)
{
    struct gs_spool s;
    char error[200];
    if (!gs_spool_open(&s, spool_path, error, sizeof error)) {
        gs_spool_unlink(&s, spool_path);
        gs_spool_close(&s);
    }
    unlink(spool_path);
}

static void clean(void)
{
    char wal[320];
    unlink(db);
    remove_spool();
    snprintf(wal, sizeof wal, "%s-wal", db);
    unlink(wal);
    snprintf(wal, sizeof wal, "%s-shm", db);
    unlink(wal);
    memset(shared, 0, sizeof *shared);
}

static int recover(char *error)
{
    uint32_t pid;
    int rc = gs_recover(db, &pid, error, 256);
    return rc;
}

/* ---------------------------------------------------------------- the victim */

static struct gs_spool spool;

/* Each event carries its number, as bytes of a copy, so that a missing or doubled one shows. */
static void *write_events(void *unused)
{
    struct gs_writer w;
    gs_writer_open(&w, &spool);
    ev_thread(&w, w.thread, "writer");
    for (uint64_t i = 1;; i++) {
        if (i % 50 == 1) {
            uint32_t frames[] = {1, 0};
            if (i % 5000 == 1) ev_reset(&w);
            ev_python(&w, 1, "f", "x.py", (int)(i / 50 % 100) + 1);
            ev_stack(&w, 1, frames);
        }
        gs_writer_busy(&w);
        uint64_t now = clock_ns();
        ev_copy(&w, now, 1, 2, i, 0, GS_DIR_H2D, 0, 1);
        gs_spool_count(&spool, gs_counter_key(10, 0, w.thread, false));
        atomic_store(&shared->published[w.thread], i);
        if (i % 64 == 0) usleep(1);
    }
    return NULL;
}

static void victim(bool with_store)
{
    pthread_t t;
    if (gs_spool_create(&spool, spool_path, "run", "python train.py", 0, 5)) _exit(1);
    atomic_store(&spool.drain_alive, 1);
    atomic_store(&shared->ready, 1);
    for (int i = 0; i < WRITERS; i++) pthread_create(&t, NULL, write_events, NULL);
    if (!with_store) pause();
    struct gs_store *s = ev_store(db);
    struct gs_reader *r = gs_reader_open(&spool, NULL, 0);
    for (;;) {
        gs_reader_poll(r, clock_ns(), false);
        ev_drain(r, s);
        if (gs_store_commit(s, r)) _exit(1);
        gs_reader_release(r);
    }
}

static pid_t start(void (*fn)(bool), bool with_store)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        fn(with_store);
        _exit(0);
    }
    return pid;
}

static void until_ready(void) /* on a busy machine that can take a while */
{
    while (!shared->ready) usleep(1000);
}

static void check_complete(void)
{
    for (int t = 1; t <= WRITERS; t++) {
        char sql[256];
        int64_t published = (int64_t)shared->published[t];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM copy WHERE thread_id=%d", t);
        int64_t count = db_number(db, sql);
        /* It may have been killed between publishing and counting. */
        if (count != published && count != published + 1)
            fail_msg("thread %d: %lld events, %lld published", t, (long long)count, (long long)published);
        snprintf(sql, sizeof sql, "SELECT total(count) FROM call_count WHERE stream=%d", t);
        count = db_number(db, sql);
        if (count != published && count != published + 1)
            fail_msg("thread %d: %lld counted, %lld published", t, (long long)count, (long long)published);
        snprintf(sql, sizeof sql,
                 "SELECT count(DISTINCT bytes)=count(*) AND coalesce(max(bytes),0)=count(*)"
                 " FROM copy WHERE thread_id=%d",
                 t);
        assert_int_equal(db_number(db, sql), 1);
        /* the innermost line shows which definitions were valid */
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM copy c LEFT JOIN stack s ON s.id=c.stack_id LEFT JOIN frame f ON "
                 "f.id=s.frame_id WHERE thread_id=%d AND line IS NOT (bytes-1)/50%%100+1",
                 t);
        assert_int_equal(db_number(db, sql), 0);
    }
    db_assert_text(db, "SELECT complete,lost_events,run_id FROM process", "0 0 run\n");
    db_assert_text(db, "PRAGMA integrity_check", "ok\n");
    assert_int_equal(db_number(db, "SELECT value FROM meta WHERE key='damaged_records'"), 0);
    assert_int_not_equal(access(spool_path, F_OK), 0);
}

static void killed_at_random(void **state)
{
    uint64_t random = (uint64_t)getpid() * 31 + clock_ns();
    const char *rounds = getenv("ROUNDS");
    uint64_t events = 0;
    for (int round = rounds ? atoi(rounds) : 40; round; round--) {
        clean();
        pid_t pid = start(victim, round % 8 != 0);
        usleep(ev_below(&random, 3) == 0 ? ev_below(&random, 3000) : ev_below(&random, 60000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        char error[256];
        int rc = recover(error);
        if (!shared->ready && rc == 0) continue; /* before its spool was there */
        if (rc != 1) fail_msg("%d: %s", rc, error);
        check_complete();
        assert_int_equal(recover(error), 0); /* nothing left to do */
        for (int t = 1; t <= WRITERS; t++) events += shared->published[t];
    }
    print_message("%llu events survived\n", (unsigned long long)events);
}

/* The completing process is also killed, repeatedly. */
static void recover_here(bool unused)
{
    char error[256];
    _exit(recover(error) == 1 ? 0 : 1);
}

static void killed_while_recovering(void **state)
{
    uint64_t random = clock_ns();
    for (int round = 0; round < 5; round++) {
        clean();
        pid_t pid = start(victim, round % 2);
        until_ready();
        usleep(50000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        for (int i = 0; i < 10; i++) {
            pid = start(recover_here, false);
            usleep(ev_below(&random, 15000));
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
        char error[256];
        int rc = recover(error);
        if (rc < 0) fail_msg("%s", error);
        check_complete();
    }
}

static void two_at_once(void **state)
{
    for (int round = 0; round < 5; round++) {
        clean();
        pid_t pid = start(victim, round % 2), other[3];
        until_ready();
        usleep(60000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        for (int i = 0; i < 3; i++) {
            other[i] = fork();
            if (other[i] == 0) {
                char error[256];
                _exit(recover(error) + 1);
            }
        }
        int completed = 0;
        for (int i = 0; i < 3; i++) {
            int status;
            waitpid(other[i], &status, 0);
            assert_true(WIFEXITED(status));
            assert_in_range(WEXITSTATUS(status), 1, 2); /* nothing to do, or completed */
            completed += WEXITSTATUS(status) == 2;
        }
        assert_int_equal(completed, 1);
        check_complete();
    }
}

static void still_recording(void **state)
{
    char error[256];
    uint32_t owner = 0;
    ev_skip_without_own_stat();
    clean();
    pid_t pid = start(victim, true);
    while (!shared->published[1]) usleep(1000);
    assert_int_equal(gs_recover(db, &owner, error, sizeof error), 2);
    assert_int_equal(owner, pid);
    assert_int_equal(access(spool_path, F_OK), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(gs_recover(db, &owner, error, sizeof error), 1);
    check_complete();
}

/* ---------------------------------------------------------------- unusual remains */

/* A process that wrote three events and was killed, with or without a database. */
static void leave_three(bool with_store)
{
    struct gs_writer w;
    gs_spool_create(&spool, spool_path, "run", "python train.py", 0, 5);
    gs_writer_open(&w, &spool);
    if (with_store) gs_store_close(ev_store(db));
    for (uint64_t i = 1; i <= 3; i++) ev_alloc(&w, i * 10, i << 12, 100, 0, GS_SPACE_DEVICE, 0);
    gs_spool_exit(&spool, 0x107); /* killed by something after exit */
    _exit(0);
}

static void remains(bool with_store)
{
    clean();
    waitpid(start(leave_three, with_store), NULL, 0);
    assert_int_equal(access(spool_path, F_OK), 0);
}

static void no_database(void **state)
{
    char error[256];
    remains(false);
    assert_int_equal(recover(error), 1);
    db_assert_text(db, "SELECT alloc_ns,free_ns FROM allocation", "10 -\n20 -\n30 -\n");
    db_assert_text(db, "SELECT complete,end_ns,command,start_real_ns FROM process", "0 30 python train.py 5\n");
    db_assert_text(db, "SELECT value FROM meta WHERE key='exit_status'", "7\n");
    remains(false);
    close(open(db, O_CREAT | O_RDWR, 0666)); /* created, but empty */
    assert_int_equal(recover(error), 1);
    db_assert_text(db, "SELECT count(*) FROM allocation", "3\n");
}

static void nothing_there(void **state)
{
    char error[256];
    clean();
    assert_int_equal(recover(error), 0);
    uint32_t pid;
    assert_int_equal(gs_recover("/nonexistent/run.db", &pid, error, sizeof error), 0);
    assert_int_not_equal(access(db, F_OK), 0);
}

static void another_recording(void **state)
{
    char error[256];
    remains(true);
    assert_int_equal(db_number(db, "UPDATE process SET run_id='x' RETURNING id"), 1);
    assert_int_equal(recover(error), -1);
    assert_non_null(strstr(error, "another recording"));
    assert_int_equal(access(spool_path, F_OK), 0);
}

static void no_gpuspy_database(void **state)
{
    char error[256];
    remains(false);
    FILE *f = fopen(db, "w");
    for (int i = 0; i < 100; i++) fputs("something that somebody wrote\n", f);
    fclose(f);
    assert_int_equal(recover(error), -1);
    assert_non_null(strstr(error, "not a database"));
    assert_int_equal(access(spool_path, F_OK), 0);
    struct stat st;
    assert_int_equal(stat(db, &st), 0);
    assert_int_equal(st.st_size, 3000);
}

/* It had finished its database and was killed before it removed the spool. */
static void finished_already(void **state)
{
    char error[256];
    remains(true);
    struct gs_progress *progress;
    uint32_t threads;
    struct gs_store *s = gs_store_resume(db, &progress, &threads, error, sizeof error);
    free(progress);
    struct gs_spool_header header = {.exit_status = 3 + 1, .exception = "ValueError: no such shape"};
    gs_store_exit(s, &header);
    assert_int_equal(gs_store_finish(s, 77, true, 0, 0, 0), 0);
    gs_store_close(s);
    assert_null(gs_store_resume(db, &progress, &threads, error, sizeof error));
    assert_string_equal(error, "the recording is complete");
    assert_int_equal(recover(error), 1);
    assert_int_not_equal(access(spool_path, F_OK), 0);
    db_assert_text(db, "SELECT complete,end_ns FROM process", "1 77\n");
    db_assert_text(db, "SELECT value FROM meta WHERE key='exit_status'", "3\n");
    db_assert_text(db, "SELECT count(*) FROM allocation", "0\n"); /* nothing was added to it */
}

/* The container no longer exists, or the user logged out: nothing but the database is left. */
static void lost_memory(void **state)
{
    char error[256];
    struct gs_spool_control c;
    remains(true);
    assert_int_equal(gs_spool_read_control(spool_path, &c, error, sizeof error), 0);
    shmctl(c.shmid, IPC_RMID, NULL);
    assert_int_equal(recover(error), 0);
    assert_int_not_equal(access(spool_path, F_OK), 0);
    db_assert_text(db, "SELECT complete FROM process", "-\n");
}

/* For a read-only folder: the spool stays for the original. */
static void into_a_copy(void **state)
{
    char error[256], copy[320], command[1400];
    struct gs_spool_control c;
    remains(true);
    assert_int_equal(gs_spool_read_control(spool_path, &c, error, sizeof error), 0);
    snprintf(copy, sizeof copy, "%s/copy.db", folder);
    snprintf(command, sizeof command, "cp '%s' '%s'; cp '%s-wal' '%s-wal' 2>/dev/null || true", db, copy, db, copy);
    assert_int_equal(system(command), 0);
    assert_int_equal(gs_recover_copy(copy, spool_path, error, sizeof error), 1);
    db_assert_text(copy, "SELECT count(*) FROM allocation", "3\n");
    unlink(copy);
    assert_int_equal(recover(error), 1);
    db_assert_text(db, "SELECT count(*) FROM allocation", "3\n");
}

static void damaged_spool(void **state)
{
    char error[256];
    struct gs_spool_control c;
    remains(true);
    assert_int_equal(gs_spool_read_control(spool_path, &c, error, sizeof error), 0);
    shmctl(c.shmid, IPC_RMID, NULL); /* nothing else would remove it */
    assert_int_equal(truncate(spool_path, 1000), 0);
    assert_int_equal(recover(error), -1);
    assert_non_null(strstr(error, "damaged"));
}

static void read_only(void **state)
{
    if (geteuid() == 0) { /* root may write anywhere: run this as another user */
        pid_t pid = fork();
        if (pid == 0) {
            char error[256];
            remains(true);
            chmod(db, 0444);
            chmod(spool_path, 0444);
            chmod(folder, 0555);
            if (setuid(65534)) _exit(2);
            int rc = recover(error);
            _exit(rc == -1 && strstr(error, "denied") ? 0 : 1);
        }
        int status;
        waitpid(pid, &status, 0);
        chmod(folder, 0700);
        assert_int_equal(status, 0);
        assert_int_equal(access(spool_path, F_OK), 0);
    }
}

/* ---------------------------------------------------------------- a disk that fills up */

/* Records until the limit on file sizes stops the database (the spool is memory and has no such limit), then is killed.
 * The committed rows must be complete, the rest still in the spool. */
static void fill_up(bool unused)
{
    struct gs_writer w;
    if (gs_spool_create(&spool, spool_path, "run", "python train.py", 0, 5)) _exit(1);
    struct gs_store *s = ev_store(db);
    struct gs_reader *r = gs_reader_open(&spool, NULL, 0);
    gs_writer_open(&w, &spool);
    struct rlimit limit = {600000, 600000};
    setrlimit(RLIMIT_FSIZE, &limit); /* SIGXFSZ has its default action: it would kill */
    for (uint64_t i = 1; i < 200000; i++) {
        ev_alloc(&w, i * 1000, i << 12, i, 0, GS_SPACE_DEVICE, 0);
        atomic_store(&shared->published[1], i);
        if (i % 500) continue;
        gs_reader_poll(r, UINT64_MAX / 2, false);
        ev_drain(r, s);
        if (gs_store_commit(s, r)) {
            if (!*gs_store_error(s)) _exit(3);
            fprintf(stderr, "(%s)\n", gs_store_error(s));
            gs_store_close(s);
            _exit(0);
        }
        gs_reader_release(r);
    }
    _exit(4);
}

static void disk_full(void **state)
{
    char error[256];
    int status;
    clean();
    waitpid(start(fill_up, false), &status, 0);
    assert_int_equal(status, 0);
    int64_t before = db_number(db, "SELECT count(*) FROM allocation");
    assert_int_equal(before % 500, 0);
    assert_true(before > 500 && before < (int64_t)shared->published[1]);
    db_assert_text(db, "PRAGMA integrity_check", "ok\n");
    int rc = recover(error);
    if (rc != 1) fail_msg("%d: %s", rc, error);
    assert_int_equal(db_number(db, "SELECT count(*) FROM allocation"), shared->published[1]);
    assert_int_equal(db_number(db, "SELECT count(DISTINCT bytes) FROM allocation"), shared->published[1]);
}

/* The application closes every descriptor that it doesn't know, ours included, and opens its own
 * file under the number: nothing may be written there. */
static void closed_by_application(void **state)
{
    clean();
    pid_t pid = fork();
    if (pid == 0) {
        struct gs_store *s = ev_store(db);
        char own[320], text[] = "precious";
        snprintf(own, sizeof own, "%s/own", folder);
        for (int fd = 3; fd < 1024; fd++) close(fd);
        for (int fd = 3; fd < 1024; fd++) {
            int n = open(own, O_CREAT | O_RDWR, 0666);
            if (n < 0 || write(n, n == 3 ? text : "", n == 3 ? sizeof text : 0) < 0) break;
        }
        struct gs_rec_alloc a = {.rec = {.size = sizeof a, .type = GS_REC_ALLOC}, .address = 1, .bytes = 1};
        gs_store_add(s, 1, &a.rec);
        if (gs_store_commit(s, NULL) != -1 || !strstr(gs_store_error(s), "closed")) _exit(1);
        struct stat st;
        _exit(stat(own, &st) || st.st_size != sizeof text ? 2 : 0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

/* One slot is used by thousands of threads, one after the other; the process is killed between any two commits, and
 * each event keeps its own thread. */
static void write_lives(bool unused)
{
    struct gs_writer w;
    if (gs_spool_create(&spool, spool_path, "run", "python train.py", 0, 5)) _exit(1);
    struct gs_store *s = ev_store(db);
    struct gs_reader *r = gs_reader_open(&spool, NULL, 0);
    gs_writer_open(&w, &spool);
    for (uint32_t i = 1;; i++) {
        uint32_t frames[] = {1, 0};
        if (w.chunk) gs_writer_adopt(&w);
        ev_thread(&w, i, "short");
        if (i == 1) { /* later ones use what this one defined */
            ev_python(&w, 1, "f", "x.py", 7);
            ev_stack(&w, 1, frames);
        }
        for (int k = 0; k < 3; k++) ev_copy(&w, clock_ns(), 1, 2, i, 0, GS_DIR_H2D, 0, 1);
        ev_alloc(&w, clock_ns(), (uint64_t)i << 12, i, 0, GS_SPACE_DEVICE, 1);
        atomic_store(&shared->published[1], i);
        gs_writer_park(&w);
        if (i % 50) continue;
        gs_reader_poll(r, clock_ns(), false);
        ev_drain(r, s);
        if (gs_store_commit(s, r)) _exit(1);
        gs_reader_release(r);
    }
}

static void many_lives(void **state)
{
    uint64_t random = clock_ns();
    char error[256];
    for (int round = 0; round < 10; round++) {
        clean();
        pid_t pid = start(write_lives, false);
        while (!shared->published[1]) usleep(100);
        usleep(ev_below(&random, 60000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        if (recover(error) != 1) fail_msg("%s", error);
        const int64_t n = (int64_t)shared->published[1];
        const int64_t threads = db_number(db, "SELECT count(*) FROM thread");
        assert_true(threads == n || threads == n + 1);
        db_assert_text(db, "SELECT count(*)=max(tid) AND count(DISTINCT tid)=count(*) FROM thread", "1\n");
        db_assert_text(db,
                       "SELECT count(*) FROM copy c LEFT JOIN thread t ON t.id=c.thread_id "
                       "WHERE t.tid IS NOT c.bytes OR c.stack_id IS NULL",
                       "0\n");
        db_assert_text(db,
                       "SELECT count(*) FROM allocation a LEFT JOIN thread t ON t.id=a.alloc_thread_id "
                       "WHERE t.tid IS NOT a.bytes OR a.alloc_stack_id IS NULL",
                       "0\n");
        const int64_t copies = db_number(db, "SELECT count(*) FROM copy");
        assert_in_range(copies, 3 * n, 3 * n + 3);
    }
}

static int setup(void **state)
{
    folder = ev_folder();
    snprintf(db, sizeof db, "%s/run.db", folder);
    snprintf(spool_path, sizeof spool_path, "%s.spool", db);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

static int teardown(void **state)
{
    remove_spool();
    ev_remove_folder(folder);
    return 0;
}

CASES_WITHIN(setup, teardown, nothing_there, no_database, killed_at_random, killed_while_recovering, two_at_once,
             still_recording, another_recording, no_gpuspy_database, finished_already, damaged_spool, lost_memory,
             into_a_copy, many_lives, read_only, disk_full, closed_by_application)
