#include "interpose/drain.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "interpose/before.h"
#include "interpose/nvml.h"
#include "interpose/recorder.h"
#include "interpose/shield.h"
#include "schema/store_files.h"

#define STACK_BYTES (1024 * 1024) /* NVML's functions are called on it too */
#define NICE 5              /* below the application, but not so low that a busy machine fills the spool */
#define WAIT_MIN_MS 5       /* between two looks while events come in … */
#define WAIT_MAX_MS 100     /* … and while none do */
#define COMMIT_ROWS 50000   /* a transaction: this many rows … */
#define COMMIT_NS (GS_SPOOL_COMMIT_MS * 1000000ull) /* … or this old … */
#define COMMIT_FILL 0.25    /* … or the spool this full, for only a commit gives chunks back */
#define BATCH 20000         /* records between two looks at who else wants the lock */
#define STUCK_S 20          /* without any progress the end is given up */
#define BURY_FILL 0.5       /* so many chunks in use: perhaps by threads that are no more … */
#define BURY_NS 50000000    /* … looked at this often */
#define ALONE_LOOKS 10      /* idle looks between two checks whether anybody else is left */

static struct {
    pthread_t thread;
    pthread_mutex_t lock; /* held while the store or the reader is used */
    pthread_cond_t wake;
    bool running, stop;
    bool alone; /* the program's threads are all gone, the process ends with ours */
    bool vanished; /* somebody has deleted the database */
    bool failed; /* the store cannot go on: what is in the spool stays there */
    struct gs_spool *spool;
    struct gs_store *store;
    struct gs_reader *reader;
    uint64_t committed_ns, buried_ns;
    struct gs_summary summary;
    _Atomic uint64_t progress; /* grows while work is done */
} drain = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void fail(void)
{
    struct gs_spool_header *h = drain.spool->header;
    const uint64_t vanished = gs_store_vanished(drain.store);
    uint64_t none = 0;
    drain.failed = true;
    if (vanished) {
        drain.vanished = true;
        atomic_fetch_add(&h->lost, vanished);
        atomic_compare_exchange_strong(&h->lost_first_ns, &none, 1);
    }
    atomic_store(&drain.spool->drain_alive, 0); /* nobody waits for us any more */
    gs_deactivate("recording stopped here: %s", gs_store_error(drain.store));
}

static bool commit(void)
{
    if (gs_store_commit(drain.store, drain.reader) != 0) {
        fail();
        return false;
    }
    gs_reader_release(drain.reader);
    drain.committed_ns = gs_now();
    return true;
}

static bool commit_is_due(void)
{
    const uint64_t pending = gs_store_pending(drain.store);
    if (pending >= COMMIT_ROWS) return true;
    if (gs_reader_fill(drain.reader) >= COMMIT_FILL) return true;
    if (gs_now() - drain.committed_ns < COMMIT_NS) return false;
    return pending || gs_store_counted(drain.store, drain.reader);
}

/* Reads up to a batch. Returns the number of records, -1 on failure. Locked. */
static int read_batch(void)
{
    int n = 0;
    uint32_t thread;
    const struct gs_rec *rec;
    while (n < BATCH && (rec = gs_reader_next(drain.reader, &thread))) {
        if (gs_store_add(drain.store, thread, rec) != 0) {
            fail();
            return -1;
        }
        n++;
    }
    atomic_fetch_add(&drain.progress, 1);
    if (commit_is_due() && !commit()) return -1;
    return n;
}

static void bury(uint64_t now_ns)
{
    if (gs_reader_fill(drain.reader) < BURY_FILL || now_ns - drain.buried_ns < BURY_NS) return;
    drain.buried_ns = now_ns;
    gs_reader_bury(drain.reader);
}

/* Everything that can be read now. Returns the number of records, -1 on failure. */
static int read_all(bool final)
{
    int total = 0, n;
    bury(gs_now());
    gs_reader_poll(drain.reader, gs_now(), final);
    while ((n = read_batch()) > 0) {
        total += n;
        if (final) continue;
        /* a fork waits for this lock; so does the end, which leaves nothing to read from */
        pthread_mutex_unlock(&drain.lock);
        pthread_mutex_lock(&drain.lock);
        if (drain.stop || drain.failed) break;
    }
    return n < 0 ? -1 : total;
}

static void finish(void)
{
    struct gs_spool_header *h = drain.spool->header;
    gs_spool_end(drain.spool, gs_now());
    if (read_all(true) < 0 || !commit()) return;
    gs_store_exit(drain.store, atomic_load(&h->exit_status));
    if (gs_store_finish(drain.store, atomic_load(&h->end_ns), true, atomic_load(&h->lost),
                        atomic_load(&h->lost_first_ns), gs_reader_damaged(drain.reader)) != 0) {
        fail();
        return;
    }
    drain.summary = *gs_store_summary(drain.store);
}

static void wait_ms(unsigned ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)ms * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    if (!drain.stop) pthread_cond_timedwait(&drain.wake, &drain.lock, &until);
}

static unsigned next_wait(unsigned ms, int records)
{
    if (gs_reader_fill(drain.reader) > 0.05) return WAIT_MIN_MS;
    if (!records) return ms * 2 < WAIT_MAX_MS ? ms * 2 : WAIT_MAX_MS;
    return records > 1000 ? WAIT_MIN_MS : ms;
}

/* A main thread that ends by pthread_exit leaves the process to the other threads, and the last of
 * them to go ends it. We must not be the one that keeps it alive. */
static bool nobody_else(void)
{
    char text[512];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (len <= 0) return false;
    text[len] = 0;
    char *field = strrchr(text, ')'); /* "pid (name) state …": 18 fields on is the thread count */
    if (!field || field[1] != ' ' || field[2] != 'Z') return false;
    for (int i = 0; field && i < 18; i++) field = strchr(field + 1, ' ');
    return field && strtol(field, NULL, 10) == 2; /* the main thread, undead, and this one */
}

/* Without the lock: a fork, or the end, is not to wait for what NVML does. */
static void sample(void)
{
    const double fill = gs_reader_fill(drain.reader);
    pthread_mutex_unlock(&drain.lock);
    gs_nvml_turn(fill);
    pthread_mutex_lock(&drain.lock);
}

static void *run(void *unused)
{
    unsigned ms = WAIT_MIN_MS, idle = 0;
    prctl(PR_SET_NAME, "gpuspy");
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* on Linux: of this thread alone */
    pthread_mutex_lock(&drain.lock);
    while (!drain.stop && !drain.failed) {
        int records = read_all(false);
        if (records < 0) break;
        sample();
        ms = next_wait(ms, records);
        idle = records ? 0 : idle + 1;
        if (gs_reader_fill(drain.reader) < COMMIT_FILL && gs_before_step()) ms = WAIT_MIN_MS;
        if (idle % ALONE_LOOKS == ALONE_LOOKS - 1 && nobody_else()) {
            /* libc now calls exit in this thread, and that gs_drain_stop */
            drain.alone = true;
            pthread_mutex_unlock(&drain.lock);
            return NULL;
        }
        wait_ms(ms);
    }
    if (!drain.failed) finish();
    atomic_store(&drain.spool->drain_alive, 0);
    gs_before_finish();
    pthread_mutex_unlock(&drain.lock);
    return NULL;
}

int gs_drain_start(struct gs_spool *spool, struct gs_store *store)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&drain.wake, &attr);
    pthread_condattr_destroy(&attr);
    drain.spool = spool;
    drain.store = store;
    drain.stop = drain.failed = drain.alone = drain.vanished = false;
    gs_nvml_start(spool);
    drain.committed_ns = drain.buried_ns = 0;
    drain.reader = gs_reader_open(spool, NULL, 0);
    if (!drain.reader) return ENOMEM;
    atomic_store(&spool->drain_alive, 1);
    int failed = gs_start_thread(&drain.thread, STACK_BYTES, run, NULL);
    pthread_mutex_lock(&drain.lock); /* who flushes looks at it */
    drain.running = !failed;
    pthread_mutex_unlock(&drain.lock);
    if (!failed) return 0;
    atomic_store(&spool->drain_alive, 0);
    gs_reader_close(drain.reader);
    return failed;
}

/* For a test runner that reads its own recording while it is made: what this thread did before is in the
 * database when it returns 1. 0: nothing is recorded in this process. */
__attribute__((visibility("default"))) int gpuspy_flush(void);
int gpuspy_flush(void)
{
    /* records so young are not read yet: those of other threads may sort before them */
    struct timespec left = {.tv_nsec = 2 * GS_SLACK_NS};
    const int saved = errno;
    pthread_mutex_lock(&drain.lock);
    bool done = drain.running;
    pthread_mutex_unlock(&drain.lock);
    if (!done) return 0;
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
    pthread_mutex_lock(&drain.lock);
    done = drain.running && !drain.stop && !drain.failed && !drain.alone;
    done = done && read_all(false) >= 0 && !drain.stop && !drain.failed && commit();
    pthread_mutex_unlock(&drain.lock);
    errno = saved;
    return done;
}

/* Waits for the thread as long as it gets on. */
static bool join(void)
{
    if (drain.alone) {
        if (!drain.failed) finish();
        return true;
    }
    for (;;) {
        const uint64_t before = atomic_load(&drain.progress);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += STUCK_S;
        int failed = pthread_timedjoin_np(drain.thread, NULL, &until);
        if (!failed) return true;
        if (failed != ETIMEDOUT || atomic_load(&drain.progress) == before) return false;
    }
}

bool gs_drain_stop(struct gs_summary *summary)
{
    if (!drain.running) return false;
    pthread_mutex_lock(&drain.lock);
    drain.stop = true;
    pthread_cond_signal(&drain.wake);
    pthread_mutex_unlock(&drain.lock);
    if (!join()) {
        gs_deactivate("the database is not finished; gpuspy report completes it");
        return false;
    }
    pthread_mutex_lock(&drain.lock); /* who flushes looks at it */
    drain.running = false;
    pthread_mutex_unlock(&drain.lock);
    gs_reader_close(drain.reader);
    gs_store_close(drain.store);
    *summary = drain.summary;
    return !drain.failed;
}

bool gs_drain_vanished(void)
{
    return drain.vanished;
}

void gs_drain_lock(void)
{
    pthread_mutex_lock(&drain.lock);
}

void gs_drain_unlock(void)
{
    pthread_mutex_unlock(&drain.lock);
}

void gs_drain_forget(void)
{
    /* This connection is the parent's. Its descriptors go, as SQLite would never close them. */
    gs_before_forget();
    gs_store_files_forget();
    pthread_mutex_unlock(&drain.lock); /* by before_fork; the thread is the same */
    memset(&drain, 0, sizeof drain);
    pthread_mutex_init(&drain.lock, NULL);
}
