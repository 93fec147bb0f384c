/* The spool: what is written comes out once and in order, whatever the threads, the disk and other
 * processes do. */
#include "tests/unit/events.h"
#include "schema/record.h"
#include "schema/spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static char *folder;
static char path[300];

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void create(struct gs_spool *s, const char *where)
{
    int error = gs_spool_create(s, where, "run", "command", 1, 2);
    if (error)
        fail_msg("%s", strerror(error));
}

static void drop(struct gs_spool *s, const char *where)
{
    if (where)
        gs_spool_unlink(s, where);
    gs_spool_close(s);
    assert_true(!where || access(where, F_OK));
}

static uint32_t taken(const struct gs_spool *s)
{
    uint32_t n = 0;
    for (int i = 0; i < GS_SPOOL_MAP_WORDS; i++)
        n += (uint32_t)__builtin_popcountll(s->header->taken[i]);
    return n;
}

/* A mark that carries a number, padded to `bytes`. */
static bool put(struct gs_writer *w, uint64_t time, uint32_t number, uint32_t bytes)
{
    struct gs_rec_mark *r = gs_writer_reserve(w, bytes);
    if (!r)
        return false;
    memset(r, 0, sizeof *r);
    r->rec.size = (uint16_t)bytes;
    r->rec.type = GS_REC_MARK;
    r->rec.time_ns = time;
    r->id = number;
    gs_writer_commit(w, bytes);
    return true;
}

static uint32_t number_of(const struct gs_rec *rec)
{
    assert_int_equal(rec->type, GS_REC_MARK);
    return (uint32_t)((const struct gs_rec_mark *)rec)->id;
}

/* ---------------------------------------------------------------- one thread */

static void in_and_out(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    assert_int_equal(w.thread, 1);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    gs_reader_poll(r, 100, false);
    uint32_t thread = 0, next = 0, highest = 0;
    assert_null(gs_reader_next(r, &thread));
    for (uint32_t i = 0; i < 200000; i++) { /* 6 MiB through a few chunks */
        assert_true(put(&w, i, i, 32 + i % 5 * 8));
        if (i % 1000)
            continue;
        gs_reader_poll(r, (uint64_t)i + 2000000, false);
        for (const struct gs_rec *rec; (rec = gs_reader_next(r, &thread)); next++)
            assert_int_equal(number_of(rec), next);
        assert_int_equal(next, i + 1);
        assert_int_equal(thread, 1);
        gs_reader_release(r);
        highest = taken(&s) > highest ? taken(&s) : highest;
    }
    assert_true(highest <= 3);
    assert_true(gs_reader_fill(r) < 0.01);
    assert_int_equal(gs_reader_damaged(r), 0);
    gs_writer_close(&w);
    gs_reader_poll(r, 0, true);
    while (gs_reader_next(r, &thread))
        next++;
    assert_int_equal(next, 200000 + 1); /* and the reset at its end */
    gs_reader_release(r);
    assert_int_equal(taken(&s), 0);
    gs_reader_close(r);
    gs_spool_close(&s);
}

static void too_large(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    assert_null(gs_writer_reserve(&w, GS_CHUNK_BYTES / 2 + 8));
    assert_null(gs_writer_reserve(&w, GS_CHUNK_BYTES + 4));
    for (int i = 0; i < 10; i++)
        assert_true(put(&w, 1, 1, GS_CHUNK_BYTES / 2));
    assert_int_equal(taken(&s), 10);
    gs_spool_close(&s);
}

/* Only what is below the watermark, and a busy thread holds it back. */
static void order(void **state)
{
    const uint64_t ms = 1000000;
    struct gs_spool s;
    struct gs_writer a, b;
    uint32_t thread;
    create(&s, NULL);
    gs_writer_open(&a, &s);
    gs_writer_open(&b, &s);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    put(&a, 10 * ms, 1, 32);
    put(&b, 11 * ms, 2, 32);
    put(&b, 30 * ms, 4, 32);
    gs_reader_poll(r, 20 * ms, false);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 1);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 2);
    assert_null(gs_reader_next(r, &thread)); /* 30 ms is to come */
    gs_writer_busy(&a);                      /* it takes its time: 25 ms */
    put(&b, 31 * ms, 5, 32);
    gs_reader_poll(r, 40 * ms, false);
    assert_null(gs_reader_next(r, &thread));
    assert_true(put(&a, 25 * ms, 3, 32));
    gs_reader_poll(r, 40 * ms, false);
    for (uint32_t i = 3; i <= 5; i++)
        assert_int_equal(number_of(gs_reader_next(r, &thread)), i);
    gs_writer_busy(&a);
    gs_writer_idle(&a); /* no event came of it */
    put(&b, 50 * ms, 6, 32);
    gs_reader_poll(r, 60 * ms, false);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 6);
    /* a copy sorts by its end: its start lies far behind what has been read */
    ev_copy(&a, 10 * ms, 1, 2, 3, 60 * ms, 0, 0, 0);
    put(&b, 69 * ms, 7, 32);
    put(&b, 71 * ms, 8, 32);
    gs_reader_poll(r, 80 * ms, false);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 7);
    assert_int_equal(gs_reader_next(r, &thread)->type, GS_REC_COPY);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 8);
    assert_null(gs_reader_next(r, &thread));
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* Definitions come right before their event, and not before it is known. */
static void definitions(void **state)
{
    const uint64_t ms = 1000000;
    struct gs_spool s;
    struct gs_writer a, b;
    uint32_t thread;
    create(&s, NULL);
    gs_writer_open(&a, &s);
    gs_writer_open(&b, &s);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    gs_writer_busy(&a);
    ev_python(&a, 1, "f", "x.py", 1);
    assert_int_equal(a.chunk->busy, GS_BUSY); /* its event is still to come */
    put(&b, 5 * ms, 2, 32);
    put(&b, 9 * ms, 4, 32);
    gs_reader_poll(r, 20 * ms, false);
    assert_null(gs_reader_next(r, &thread));
    put(&a, 7 * ms, 3, 32);
    assert_int_equal(a.chunk->busy, 0);
    gs_reader_poll(r, 20 * ms, false);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 2);
    assert_int_equal(gs_reader_next(r, &thread)->type, GS_REC_FRAME_PYTHON);
    assert_int_equal(thread, 1);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 3);
    assert_int_equal(number_of(gs_reader_next(r, &thread)), 4);
    /* what no event follows: the process's are read, the thread's are not */
    ev_python(&a, 2, "g", "x.py", 1);
    ev_named(&a, GS_REC_API, 0, 1, "cudaMalloc");
    gs_reader_poll(r, 30 * ms, false);
    assert_null(gs_reader_next(r, &thread));
    gs_writer_close(&a);
    gs_reader_poll(r, 30 * ms, false);
    assert_int_equal(gs_reader_next(r, &thread)->type, GS_REC_API);
    assert_int_equal(gs_reader_next(r, &thread)->type, GS_REC_RESET);
    assert_null(gs_reader_next(r, &thread));
    gs_reader_release(r);
    assert_int_equal(taken(&s), 1); /* a's chunk came back although its last words were skipped */
    gs_reader_close(r);
    gs_spool_close(&s);
}

static void many_threads_one_after_another(void **state)
{
    struct gs_spool s;
    uint32_t thread, count = 0;
    create(&s, NULL);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    for (uint32_t i = 1; i <= 3 * GS_SPOOL_THREADS; i++) {
        struct gs_writer w;
        gs_writer_open(&w, &s);
        assert_int_equal(w.thread, 1); /* the number is given out again */
        assert_true(put(&w, i, i, 32));
        gs_writer_close(&w);
        if (i % 512 == 0) {
            gs_reader_poll(r, 2000000 + i, false);
            for (const struct gs_rec *rec; (rec = gs_reader_next(r, &thread)); count++)
                if (rec->type == GS_REC_MARK)
                    assert_int_equal(number_of(rec), count / 2 + 1);
            gs_reader_release(r);
            assert_int_equal(taken(&s), 0);
        }
    }
    assert_int_equal(count, 2 * 3 * GS_SPOOL_THREADS);
    assert_int_equal(gs_reader_damaged(r), 0);
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* ---------------------------------------------------------------- when it is full */

static void full(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    uint32_t thread, written = 0;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    errno = 4711;
    while (put(&w, written, written, GS_CHUNK_BYTES / 4)) /* nobody drains: no waiting */
        written++;
    assert_int_equal(errno, 4711);
    assert_true(written >= GS_SPOOL_CHUNKS * 3);
    gs_spool_lost(&s, 99);
    gs_spool_lost(&s, 100);
    assert_int_equal(s.header->lost, 2);
    assert_int_equal(s.header->lost_first_ns, 99);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    assert_true(gs_reader_fill(r) == 1.0);
    gs_reader_poll(r, 10000000, false);
    for (uint32_t i = 0; i < written; i++)
        assert_int_equal(number_of(gs_reader_next(r, &thread)), i);
    gs_reader_release(r);
    assert_true(put(&w, written, written, 32));
    /* a drain that hangs costs one wait, not one an event */
    atomic_store(&s.drain_alive, 1);
    while (!s.stuck)
        put(&w, written, written, GS_CHUNK_BYTES / 2);
    uint64_t begin = clock_ns();
    for (int i = 0; i < 100; i++)
        assert_false(put(&w, 1, 1, GS_CHUNK_BYTES / 2));
    assert_true(clock_ns() - begin < 50000000);
    gs_reader_poll(r, 10000000, false);
    while (gs_reader_next(r, &thread))
        ;
    gs_reader_release(r);
    assert_true(put(&w, written, written, GS_CHUNK_BYTES / 2));
    assert_int_equal(s.stuck, 0);
    gs_spool_end(&s, 55);
    assert_false(put(&w, 1, 1, 32));
    assert_int_equal(s.header->closed, 1);
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* ---------------------------------------------------------------- threads at once */

#define THREADS 4

static struct shared {
    struct gs_spool spool;
    uint32_t events;
    uint32_t bytes;
    atomic_uint running;
} shared;

/* Once a chunk is marked full or last the reader may give it to another thread, whose busy mark it
 * carries then: its old writer does not touch it any more. */
static void a_chunk_given_up(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    assert_true(put(&w, 1, 1, 64));
    struct gs_chunk *old = w.chunk;
    for (uint32_t i = 2; w.chunk == old; i++) {
        old->busy = 77;
        assert_true(gs_writer_reserve(&w, GS_CHUNK_BYTES / 2) != NULL);
        if (w.chunk == old)
            gs_writer_idle(&w), assert_true(put(&w, i, i, 8192));
    }
    assert_int_equal(old->state, GS_CHUNK_FULL);
    assert_int_equal(old->busy, 77);
    gs_writer_idle(&w);
    old = w.chunk;
    old->busy = 77;
    gs_writer_close(&w);
    assert_int_equal(old->state, GS_CHUNK_LAST);
    assert_int_equal(old->busy, 77);
    gs_spool_close(&s);
}

static void *writing(void *unused)
{
    struct gs_writer w;
    gs_writer_open(&w, &shared.spool);
    for (uint32_t i = 0; i < shared.events; i++) {
        gs_writer_busy(&w);
        uint64_t now = clock_ns();
        if (i % 7 == 0) /* definitions in between */
            ev_python(&w, 1, "f", "x.py", 1);
        if (!put(&w, now, i, shared.bytes)) {
            print_message("no room\n");
            abort();
        }
    }
    gs_writer_close(&w);
    atomic_fetch_sub(&shared.running, 1);
    return NULL;
}

static void together(uint32_t events, uint32_t bytes, const char *where)
{
    pthread_t threads[THREADS];
    uint32_t next[THREADS + 1] = {0}, late = 0;
    create(&shared.spool, where);
    shared.events = events;
    shared.bytes = bytes;
    shared.running = THREADS;
    atomic_store(&shared.spool.drain_alive, 1);
    struct gs_reader *r = gs_reader_open(&shared.spool, NULL, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, writing, NULL), 0);
    uint64_t total = 0, last = 0;
    for (bool final = false; !final;) {
        final = shared.running == 0;
        gs_reader_poll(r, clock_ns(), final);
        uint32_t thread;
        for (const struct gs_rec *rec; (rec = gs_reader_next(r, &thread));) {
            if (rec->type != GS_REC_MARK)
                continue;
            if (next[thread] == events) /* the next thread has its number */
                next[thread] = 0;
            assert_int_equal(number_of(rec), next[thread]++);
            late += rec->time_ns < last;
            last = rec->time_ns > last ? rec->time_ns : last;
            total++;
        }
        gs_reader_release(r);
        usleep(200);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(total, (uint64_t)events * THREADS);
    assert_int_equal(gs_reader_damaged(r), 0);
    /* Threads that waited for room may come late (see spool_read.c); else none does. */
    if (events * bytes < GS_CHUNK_BYTES * 50)
        assert_int_equal(late, 0);
    print_message("%u threads, %u records of %u bytes each: %u late\n", THREADS, events, bytes,
                  late);
    gs_reader_close(r);
    drop(&shared.spool, where);
}

static void threads_at_once(void **state)
{
    for (int i = 0; i < 10; i++)
        together(20000, 80, NULL);
    together(300000, 64, path);
    together(10000, 8192, path); /* ten times the spool: they wait for the drain */
}

/* ---------------------------------------------------------------- the file */

/* Those that nobody has attached, and our own. */
static int segments(void)
{
    struct shmid_ds ds;
    int n = 0;
    for (int i = 0; i < 4096; i++)
        n += shmctl(i, SHM_STAT, &ds) >= 0 && ds.shm_segsz == GS_SPOOL_BYTES &&
             (ds.shm_nattch == 0 || ds.shm_cpid == getpid());
    return n;
}

static void creation(void **state)
{
    struct gs_spool s, other;
    struct stat st;
    const int before = segments();
    const mode_t mask = umask(0);
    errno = 4711;
    create(&s, path);
    umask(mask);
    assert_int_equal(errno, 4711);
    assert_true(s.shmid >= 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_true(st.st_size < 4096);
    assert_int_equal(gs_spool_create(&other, path, "", "", 0, 0), EEXIST);
    assert_int_equal(errno, 4711);
    assert_int_equal(gs_spool_create(&other, "/nonexistent/x", "", "", 0, 0), ENOENT);
    assert_int_equal(segments(), before + 1); /* what failed left none */
    char command[400];
    snprintf(command, sizeof command, "test $(ls '%s' | wc -l) = 1", folder);
    assert_int_equal(system(command), 0); /* no temporary file stays */
    snprintf(command, sizeof command, "! ls -l /proc/%d/fd | grep -q spool", (int)getpid());
    assert_int_equal(system(command), 0); /* and no descriptor */
    gs_spool_unlink(&s, path);
    assert_int_not_equal(access(path, F_OK), 0);
    struct gs_writer w; /* the memory is still there */
    gs_writer_open(&w, &s);
    assert_true(put(&w, 1, 1, 32));
    gs_spool_close(&s);
    assert_int_equal(segments(), before);
}

/* The file of another recording that has the name now is not touched. */
static void unlinking_another(void **state)
{
    struct gs_spool s, other;
    create(&s, path);
    unlink(path);
    create(&other, path);
    gs_spool_unlink(&s, path);
    assert_int_equal(access(path, F_OK), 0);
    gs_spool_close(&s);
    drop(&other, path);
}

static void edit(size_t at, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
    close(fd);
}

#define EDIT(member, ...)                                                                          \
    edit(offsetof(struct gs_spool_control, member),                                                \
         &(__typeof__(((struct gs_spool_control *)0)->member)){__VA_ARGS__},                       \
         sizeof((struct gs_spool_control *)0)->member)

static void header(void **state)
{
    struct gs_spool s, t;
    char error[200];
    create(&s, path);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), 0);
    assert_string_equal(t.header->run_id, "run");
    assert_string_equal(t.header->command, "command");
    assert_int_equal(t.header->pid, getpid());
    assert_int_equal(t.header->start_mono_ns, 1);
    assert_int_equal(t.header->start_real_ns, 2);
    gs_spool_close(&t);
    s.header->chunks++;
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    s.header->chunks--;
    s.header->cookie[1]++; /* the id is somebody else's now */
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EIDRM);
    s.header->cookie[1]--;
    EDIT(version, 5);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    assert_non_null(strstr(error, "version 5"));
    EDIT(version, GS_SPOOL_VERSION);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), 0);
    gs_spool_close(&t);
    int foreign = shmget(IPC_PRIVATE, 4096, 0600 | IPC_CREAT);
    EDIT(shmid, foreign);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EIDRM);
    shmctl(foreign, IPC_RMID, NULL);
    foreign = shmget(IPC_PRIVATE, GS_SPOOL_BYTES, 0600 | IPC_CREAT);
    EDIT(shmid, foreign);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EIDRM);
    shmctl(foreign, IPC_RMID, NULL);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EIDRM);
    EDIT(shmid, -7);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EIDRM);
    EDIT(shmid, s.shmid);
    for (size_t i = 0; i < 256; i++)
        edit(offsetof(struct gs_spool_control, host) + i, "x", 1);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    EDIT(magic[0], 'x');
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    assert_string_equal(error, "not a gpuspy spool");
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    assert_int_equal(gs_spool_open(&t, folder, error, sizeof error), EINVAL);
    assert_int_equal(gs_spool_open(&t, "/nonexistent", error, sizeof error), ENOENT);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    drop(&s, "/nonexistent");
    unlink(path);
}

static enum gs_spool_state state_now(void)
{
    struct gs_spool_control c;
    char error[200];
    assert_int_equal(gs_spool_read_control(path, &c, error, sizeof error), 0);
    return gs_spool_state(&c);
}

/* Runs fn in a child that then stays until told to go; returns its pid. */
static pid_t child(void (*fn)(void), int *leave)
{
    int ready[2], go[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(go[1]);
        fn();
        if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) < 0)
            _exit(1);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    close(go[0]);
    *leave = go[1];
    return pid;
}

static void let_go(pid_t pid, int leave)
{
    close(leave);
    waitpid(pid, NULL, 0);
}

static struct gs_spool of_child;
static void create_in_child(void)
{
    if (gs_spool_create(&of_child, path, "run", "", 0, 0))
        _exit(9);
}
static void create_and_fork(void)
{
    create_in_child();
    if (fork() == 0) { /* outlives its parent, and has the segment */
        sleep(3);
        _exit(0);
    }
}
static void create_and_exec(void)
{
    if (fork() == 0) {
        create_in_child();
        execlp("sleep", "sleep", "2", (char *)NULL);
        _exit(9);
    }
    usleep(300000);
}
/* The process lives on as another program, and a child of it has the segment. */
static void create_fork_and_exec(void)
{
    if (fork() == 0) {
        create_and_fork();
        execlp("sleep", "sleep", "2", (char *)NULL);
        _exit(9);
    }
    usleep(300000);
}
static void *stay(void *unused)
{
    sleep(2);
    return unused;
}
/* A main thread that has ended is a zombie as long as the others go on. */
static void create_and_leave_by_thread(void)
{
    if (fork() == 0) {
        pthread_t thread;
        create_in_child();
        pthread_create(&thread, NULL, stay, NULL);
        pthread_exit(NULL);
    }
    usleep(300000);
}

static void remove_left(void)
{
    struct gs_spool s;
    char error[200];
    if (gs_spool_open(&s, path, error, sizeof error))
        fail_msg("%s", error);
    drop(&s, path);
}

static void owner(void **state)
{
    int leave;
    assert_int_equal(gs_spool_owner(path), 0); /* there is none */
    pid_t pid = child(create_in_child, &leave);
    assert_int_equal(gs_spool_owner(path), pid);
    let_go(pid, leave);
    assert_int_equal(gs_spool_owner(path), 0);
    assert_int_equal(state_now(), GS_SPOOL_LEFT);
    remove_left();
    pid = child(create_and_fork, &leave);
    assert_int_equal(gs_spool_owner(path), pid);
    let_go(pid, leave);
    assert_int_equal(state_now(), GS_SPOOL_LEFT);
    remove_left();
    void (*const exec[])(void) = {create_and_exec, create_fork_and_exec};
    for (int i = 0; i < 2; i++) { /* the process lives on as another program */
        pid = child(exec[i], &leave);
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(state_now(), GS_SPOOL_LEFT);
        let_go(pid, leave);
        remove_left();
    }
    pid = child(create_and_leave_by_thread, &leave);
    assert_int_equal(state_now(), GS_SPOOL_RECORDING);
    let_go(pid, leave);
    while (state_now() == GS_SPOOL_RECORDING)
        usleep(100000);
    remove_left();
}

/* As the OOM killer leaves a container's process that nobody reaps. */
static void a_zombie(void **state)
{
    pid_t pid = fork();
    if (pid == 0) {
        create_in_child();
        kill(getpid(), SIGKILL);
    }
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(state_now(), GS_SPOOL_LEFT);
    assert_int_equal(gs_spool_owner(path), 0);
    waitpid(pid, NULL, 0);
    assert_int_equal(state_now(), GS_SPOOL_LEFT);
    remove_left();
}

static void gone_segment(void **state)
{
    int leave;
    pid_t pid = child(create_in_child, &leave);
    struct gs_spool_control c;
    char error[200];
    assert_int_equal(gs_spool_read_control(path, &c, error, sizeof error), 0);
    shmctl(c.shmid, IPC_RMID, NULL);
    assert_int_equal(state_now(), GS_SPOOL_RECORDING); /* it has it still */
    let_go(pid, leave);
    assert_int_equal(state_now(), GS_SPOOL_LOST);
    const uint64_t other = c.ipc_namespace + 1;
    edit(offsetof(struct gs_spool_control, ipc_namespace), &other, 8);
    assert_int_equal(state_now(), GS_SPOOL_ELSEWHERE);
    edit(offsetof(struct gs_spool_control, boot_id), "another boot", 13);
    assert_int_equal(state_now(), GS_SPOOL_LOST);
    edit(offsetof(struct gs_spool_control, host), "another host", 13);
    assert_int_equal(state_now(), GS_SPOOL_ELSEWHERE);
    unlink(path);
}

static void a_forked_child(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    create(&s, path);
    gs_writer_open(&w, &s);
    assert_true(put(&w, 1, 1, 32));
    pid_t pid = fork();
    if (pid == 0) {
        gs_spool_close(&s);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    assert_true(put(&w, 2, 2, 32));
    pid = fork();
    if (pid == 0) /* still ours, as another process sees it */
        _exit(gs_spool_owner(path) == (uint32_t)getppid() ? 0 : 1);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    drop(&s, path);
}

/* ---------------------------------------------------------------- limits and refusals */

/* Shared memory is no file: its limits do not touch it. Only the control file needs some bytes. */
static void limit_on_file_size(void **state)
{
    for (rlim_t bytes = 0; bytes <= 8192; bytes += 8192) {
        pid_t pid = fork();
        if (pid == 0) { /* SIGXFSZ would kill it */
            struct rlimit limit = {bytes, bytes};
            struct gs_spool s;
            setrlimit(RLIMIT_FSIZE, &limit);
            int error = gs_spool_create(&s, path, "", "", 0, 0);
            if (!error)
                gs_spool_unlink(&s, path);
            _exit(error == (bytes ? 0 : EFBIG) ? 0 : 1);
        }
        int status;
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

/* On a file system without any space left: the control file cannot be written, nothing else is. */
static void full_disk(void **state)
{
    char small[320], where[340], filler[340];
    static char block[4096];
    snprintf(small, sizeof small, "%s/small", folder);
    snprintf(where, sizeof where, "%s/run.db.spool", small);
    snprintf(filler, sizeof filler, "%s/filler", small);
    assert_int_equal(mkdir(small, 0777), 0);
    if (mount("none", small, "tmpfs", 0, "size=64k")) {
        print_message("(no right to mount a small disk: %s)\n", strerror(errno));
        rmdir(small);
        skip();
    }
    struct gs_spool s;
    struct gs_writer w;
    create(&s, where);
    int fd = open(filler, O_WRONLY | O_CREAT, 0600);
    while (write(fd, block, sizeof block) > 0)
        continue;
    close(fd);
    gs_writer_open(&w, &s);
    for (uint32_t i = 0; i < 1000; i++) /* 8 MiB */
        assert_true(put(&w, i, i, 8192));
    drop(&s, where);
    fd = open(filler, O_WRONLY | O_APPEND, 0600);
    while (write(fd, block, sizeof block) > 0)
        continue;
    close(fd);
    assert_int_equal(gs_spool_create(&s, where, "", "", 0, 0), ENOSPC);
    assert_int_not_equal(access(where, F_OK), 0);
    assert_int_equal(umount(small), 0);
    rmdir(small);
}

/* Without shmget, as under a seccomp filter: private memory, and everybody knows. */
static void refused(void **state)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shmget, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
        struct gs_writer w;
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
            _exit(2);
        create_in_child();
        gs_writer_open(&w, &of_child);
        if (of_child.private_error != EPERM || of_child.shmid >= 0 || !put(&w, 1, 1, 32))
            _exit(3);
        if (fork() == 0)
            _exit(gs_spool_owner(path) == (uint32_t)getppid() ? 0 : 1);
        int status;
        wait(&status);
        _exit(status ? 4 : 0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(state_now(), GS_SPOOL_LOST);
    unlink(path);
}

/* Those of dead processes, old enough, beyond a few: none of a stranger's, none that is in use. */
static void orphans(void **state)
{
    enum { ALL = GS_SPOOL_ORPHANS + 8 };
    if (unshare(CLONE_NEWIPC)) /* in a namespace of our own: others may leave some, too */
        skip();
    struct gs_spool s;
    struct shmid_ds ds;
    for (int i = 0; i < ALL; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            create_in_child();
            unlink(path);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
    const int before = segments();
    assert_true(before >= ALL);
    create(&s, path); /* they are too young: somebody may be about to complete them */
    assert_int_equal(segments(), before + 1);
    drop(&s, path);
    gs_segment_remove_orphans(-10);
    assert_int_equal(segments(), GS_SPOOL_ORPHANS);
    create(&s, path); /* in use: it stays, though the limit were reached */
    gs_segment_remove_orphans(-10);
    assert_int_equal(segments(), GS_SPOOL_ORPHANS + 1);
    drop(&s, path);
    for (int i = 0; i < 4096; i++) {
        int shmid = shmctl(i, SHM_STAT, &ds);
        if (shmid >= 0 && ds.shm_segsz == GS_SPOOL_BYTES && !ds.shm_nattch)
            shmctl(shmid, IPC_RMID, NULL);
    }
}

/* ---------------------------------------------------------------- damage */

static void read_damaged(uint64_t *random)
{
    struct gs_spool s;
    char error[200];
    if (gs_spool_open(&s, path, error, sizeof error))
        return;
    struct gs_progress start[4] = {{0}};
    for (int i = 0; i < 4 && ev_below(random, 2); i++)
        start[i] =
            (struct gs_progress){ev_below(random, 10), ev_below(random, 40000), ev_random(random)};
    struct gs_reader *r = gs_reader_open(&s, start, 4);
    struct gs_store *store = ev_below(random, 4) ? NULL : ev_store(":memory:");
    for (int i = 0; i < 3; i++) {
        gs_reader_poll(r, ev_below(random, 2) ? 1u << 30 : UINT64_MAX, i == 2);
        const struct gs_rec *rec;
        uint32_t thread, n = 0;
        while ((rec = gs_reader_next(r, &thread)) && n++ < 1000000) {
            assert_true(rec->size >= sizeof *rec && thread > 0);
            if (store)
                assert_int_equal(gs_store_add(store, thread, rec), 0);
        }
        assert_true(n < 1000000);
        if (store && gs_store_commit(store, r))
            fail_msg("%s", gs_store_error(store));
        if (i)
            gs_reader_release(r);
    }
    gs_store_close(store);
    gs_reader_close(r);
    gs_spool_close(&s);
    unlink(":memory:");
}

static void damage(void **state)
{
    struct gs_spool s;
    static struct ev_program p;
    uint64_t random = 99;
    create(&s, path);
    ev_start(&p, &s, 3);
    for (int i = 0; i < 3000; i++)
        ev_step(&p);
    size_t size = gs_spool_chunk_offset(12);
    uint8_t *good = malloc(size), *bad = malloc(size);
    memcpy(good, s.map, size);
    assert_int_equal(chdir(folder), 0);
    for (int round = 0; round < 500; round++) {
        memcpy(bad, good, size);
        for (uint32_t flips = 1 + ev_below(&random, 40); flips; flips--) {
            uint32_t chunk = ev_below(&random, 12);
            size_t at = ev_below(&random, 3) == 0 ? ev_below(&random, 192) + 8 /* header */
                        : ev_below(&random, 2)
                            ? gs_spool_chunk_offset(chunk) + ev_below(&random, 64)
                            : gs_spool_chunk_offset(chunk) + ev_below(&random, GS_CHUNK_BYTES);
            bad[at] = ev_below(&random, 2) ? (uint8_t)ev_random(&random)
                                           : bad[at] ^ 1 << ev_below(&random, 8);
        }
        memcpy(s.map, bad, size);
        read_damaged(&random);
    }
    free(good);
    free(bad);
    drop(&s, path);
}

/* A record that was damaged ends its chunk; the others are read. */
static void one_damaged_record(void **state)
{
    struct gs_spool s;
    struct gs_writer a, b;
    uint32_t thread, n = 0;
    create(&s, NULL);
    gs_writer_open(&a, &s);
    gs_writer_open(&b, &s);
    for (uint32_t i = 0; i < 3000; i++) {
        put(&a, i, i, 32);
        put(&b, i, i, 32);
    }
    struct gs_rec *rec = (void *)((uint8_t *)gs_spool_chunk(&s, 0) + 64 + 100 * 32);
    rec->size = 0;
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    gs_reader_poll(r, 0, true);
    while (gs_reader_next(r, &thread))
        n++;
    assert_int_equal(gs_reader_damaged(r), 1);
    assert_int_equal(n, 6000 - ((GS_CHUNK_BYTES - 64) / 32 - 100));
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* Two chunks of one number: how far the first was read is no place to go on in the second. */
static void a_number_twice(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    uint32_t thread, n = 0;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    while (w.chunk != gs_spool_chunk(&s, 1)) {
        put(&w, n, n, 32);
        n++;
    }
    put(&w, n, n, 64);
    struct gs_chunk *first = gs_spool_chunk(&s, 0), *second = gs_spool_chunk(&s, 1);
    second->seq = first->seq;
    atomic_store(&second->used, GS_CHUNK_BYTES - 64); /* bytes that nobody checked */
    memset((uint8_t *)(second + 1) + 96, 0x29, GS_CHUNK_BYTES - 64 - 96);
    atomic_store(&first->used, 96 + 8 * 13);
    *(struct gs_rec *)(void *)((uint8_t *)(first + 1) + 96) =
        (struct gs_rec){.size = 8 * 13, .type = GS_REC_MARK, .time_ns = 3};
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    gs_reader_poll(r, 0, true);
    for (n = 0; gs_reader_next(r, &thread); n++)
        assert_true(n < 10);
    assert_int_equal(n, 4);
    assert_int_equal(gs_reader_damaged(r), 1);
    gs_reader_close(r);
    gs_spool_close(&s);
}

/* ---------------------------------------------------------------- cost */

static void cost(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    uint32_t thread;
    create(&s, path);
    gs_writer_open(&w, &s);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    uint64_t write_ns = 0, read_ns = 0, n = 0;
    for (int round = 0; round < 40; round++) {
        uint64_t begin = clock_ns();
        for (uint32_t i = 0; i < 50000; i++) {
            gs_writer_busy(&w);
            put(&w, n + i, i, 56);
        }
        uint64_t middle = clock_ns();
        gs_reader_poll(r, 1ull << 40, false);
        while (gs_reader_next(r, &thread))
            n++;
        gs_reader_release(r);
        write_ns += middle - begin;
        read_ns += clock_ns() - middle;
    }
    assert_int_equal(n, 2000000);
    print_message("a record of 56 bytes: %.1f ns to write, %.1f ns to read\n",
                  (double)write_ns / (double)n, (double)read_ns / (double)n);
    gs_reader_close(r);
    drop(&s, path);
}

static int setup(void **state)
{
    folder = ev_folder();
    snprintf(path, sizeof path, "%s/run.db.spool", folder);
    return 0;
}

/* ---------------------------------------------------------------- threads that end unseen */

static pthread_barrier_t all_wrote;

static void *write_and_vanish(void *spool)
{
    struct gs_writer w;
    gs_writer_open(&w, spool);
    if (!put(&w, 5, w.thread, 32))
        abort();
    gs_writer_busy(&w); /* as if it had been on its way into the next event */
    pthread_barrier_wait(&all_wrote);
    return NULL; /* no gs_writer_close */
}

static void buried(void **state)
{
    struct gs_spool s;
    struct gs_writer mine;
    pthread_t thread[20];
    uint32_t from, seen = 0;
    create(&s, NULL);
    gs_writer_open(&mine, &s);
    assert_true(put(&mine, 5, mine.thread, 32));
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    pthread_barrier_init(&all_wrote, NULL, 21);
    for (int i = 0; i < 20; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, write_and_vanish, &s), 0);
    while (taken(&s) < 21)
        usleep(100);
    gs_reader_bury(r); /* they live: nothing happens */
    gs_reader_poll(r, 1000000000, false);
    while (gs_reader_next(r, &from))
        seen++;
    gs_reader_release(r);
    assert_int_equal(taken(&s), 21);
    pthread_barrier_wait(&all_wrote);
    for (int i = 0; i < 20; i++)
        pthread_join(thread[i], NULL);
    for (int tries = 0; tries < 1000 && taken(&s) > 1; tries++) {
        usleep(1000); /* joined is a moment before gone */
        gs_reader_bury(r);
        gs_reader_poll(r, 2000000000, false);
        while (gs_reader_next(r, &from))
            seen++;
        gs_reader_release(r);
    }
    assert_int_equal(taken(&s), 1); /* what is left is this thread's */
    assert_int_equal(seen, 21);
    assert_true(put(&mine, 6, mine.thread, 32));
    pthread_barrier_destroy(&all_wrote);
    gs_reader_close(r);
    gs_writer_close(&mine);
    gs_spool_close(&s);
}

/* ---------------------------------------------------------------- parked writers */

static void *put_and_park(void *at)
{
    struct gs_writer *w = at;
    if (w->chunk)
        gs_writer_adopt(w);
    if (!put(w, 5, 1, 32) || !gs_writer_park(w))
        abort();
    return NULL;
}

static void parking(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    pthread_t thread;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    assert_false(gs_writer_park(&w)); /* it has nothing to park */
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(pthread_create(&thread, NULL, put_and_park, &w), 0);
        pthread_join(thread, NULL);
        assert_int_equal(w.thread, 1);
    }
    assert_int_equal(taken(&s), 3);
    gs_spool_close(&s);
}

/* A burial at any moment between a thread's death and the adoption of its writer. */
static void parked_is_not_buried(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    pthread_t thread;
    create(&s, NULL);
    gs_writer_open(&w, &s);
    struct gs_reader *r = gs_reader_open(&s, NULL, 0);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(pthread_create(&thread, NULL, put_and_park, &w), 0);
        for (int k = 0; k < i % 8; k++)
            gs_reader_bury(r);
        pthread_join(thread, NULL);
        gs_reader_bury(r);
        assert_int_equal(w.chunk->state, GS_CHUNK_TAKEN);
    }
    gs_writer_adopt(&w);
    gs_reader_bury(r);
    assert_int_equal(w.chunk->state, GS_CHUNK_TAKEN);
    gs_reader_close(r);
    gs_spool_close(&s);
}

static int teardown(void **state)
{
    ev_remove_folder(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_and_out),
        cmocka_unit_test(too_large),
        cmocka_unit_test(order),
        cmocka_unit_test(definitions),
        cmocka_unit_test(many_threads_one_after_another),
        cmocka_unit_test(full),
        cmocka_unit_test(a_chunk_given_up),
        cmocka_unit_test(threads_at_once),
        cmocka_unit_test(creation),
        cmocka_unit_test(header),
        cmocka_unit_test(unlinking_another),
        cmocka_unit_test(owner),
        cmocka_unit_test(a_zombie),
        cmocka_unit_test(gone_segment),
        cmocka_unit_test(a_forked_child),
        cmocka_unit_test(limit_on_file_size),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(refused),
        cmocka_unit_test(orphans),
        cmocka_unit_test(parking),
        cmocka_unit_test(parked_is_not_buried),
        cmocka_unit_test(one_damaged_record),
        cmocka_unit_test(a_number_twice),
        cmocka_unit_test(damage),
        cmocka_unit_test(buried),
        cmocka_unit_test(cost),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
