/* The drain may have its own table of descriptors (gs_own_files): everything that uses the database runs in its thread.
 * */
#include "interpose/drain.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include "interpose/allocator.h"
#include "interpose/before.h"
#include "interpose/config.h"
#include "interpose/clock.h"
#include "interpose/filter.h"
#include "interpose/nvml.h"
#include "interpose/recorder.h"
#include "interpose/setting.h"
#include "interpose/shield.h"
#include "interpose/stack.h"
#include "interpose/torch_version.h"
#include "interpose/watcher.h"
#include "schema/record.h"
#include "schema/store_files.h"
#include "schema/system_call.h"

#define STACK_BYTES (512 * 1024)
#define NICE 5            /* below the application, but not so low that a busy machine fills the spool */
#define WAIT_MIN_MS 5     /* between two polls while many events arrive … */
#define WAIT_MAX_MS 100   /* … and while few do: the spool has room for what arrives in that time */
#define POLL_RECORDS 8000 /* as many events between two polls stay in the processor's caches */
#define AHEAD 16          /* records whose memory is requested before the first of them is stored */
#define COMMIT_ROWS 50000 /* commit a transaction of this many rows … */
#define COMMIT_NS (GS_SPOOL_COMMIT_MS * 1000000ull) /* … or of this age … */
#define COMMIT_FILL 0.25        /* … or if the spool is this full, because only a commit frees chunks */
#define BUSY_FILL 0.125         /* if it is this full, polls follow each other as fast as they may */
#define HOLD_FILL 0.5           /* while readers hold the log, rows wait in the spool until it is this full */
#define BATCH 20000             /* records between two checks whether they are to be committed */
#define STEPS 1000              /* of SQLite between two checks whether a fork waits: some 10 µs */
#define GIVE_WAY_MS 20          /* the drain pauses for forks at most so long, then works as long: the spool fills */
#define TURN_MS 320             /* after these pauses it waits at most so long at a time for forks that do not end */
#define PROMPT_MS 1000          /* an end that takes longer does not hold signals back */
#define STUCK_MS 5000           /* stop waiting at the end if nothing progresses for this long */
#define HUNG_MS 2000            /* who waits at least this long for the lock in vain has met a file system that hangs */
#define BURY_FILL 0.5           /* if this share of the chunks is in use, perhaps by ended threads … */
#define BURY_NS 50000000        /* … check at most this often */
#define DISK_NS 1000000000      /* check the room on the disk so often … */
#define DISK_RECORDS (1 << 17)  /* … and after this many records, about 2 MiB */
#define LAST_BYTES (4ull << 20) /* a commit, its log and the end fit into this */
#define SQUEEZE_BYTES (64ull << 20) /* if the disk has less room, its log and one second's rows might not fit */

static struct {
    pthread_t thread;
    pthread_mutex_t lock;  /* held while the store or the reader is used */
    pthread_rwlock_t busy; /* after it, by the thread itself; forks share it */
    pthread_cond_t wake, flushed;
    _Atomic unsigned waiters; /* threads that wait for either */
    uint64_t its_turn_ns;     /* until then, the drain does not give way */
    _Atomic bool running;
    _Atomic bool stop;
    bool versioned;
    size_t lacks;                     /* bytes of gs_stack_missing() that are recorded */
    uint64_t flush_asked, flush_done; /* calls of gpuspy_flush so far, and those that have been served */
    bool vanished;                    /* another program has deleted the database */
    bool full;                        /* there is no room for more rows: the recording has ended cleanly */
    bool bound_reached;               /* … because of what GPUSPY_KEEP must keep … */
    bool read_too_long;               /* … or because another program reads it in a transaction that does not end */
    bool trimming;                    /* old rows are being removed */
    uint64_t lost;                    /* lost events before the disk was nearly full */
    uint64_t floor;                   /* what was to stay free on it */
    bool disk_full;                   /* no rows are written any more … */
    uint64_t end_ns;                  /* … from this time on */
    bool squeezed;                    /* the disk was nearly full: the recording no longer grows */
    bool failed;                      /* the store has failed: the spool keeps its contents */
    struct gs_spool *spool;
    struct gs_store *store;
    struct gs_reader *reader;
    uint64_t committed_ns, buried_ns, disk_seen_ns;
    int since_disk; /* records that were read since disk_seen_ns */
    bool more;      /* the spool has further records */
    struct gs_summary summary;
    _Atomic uint64_t progress; /* increases while work is done */
    _Atomic uint64_t hung_at;  /* progress + 1 when a fork last waited without success; 0: none has */
} drain = {.lock = PTHREAD_MUTEX_INITIALIZER, .busy = GS_FORK_LOCK};

/* Forks that are under way end first. Later ones wait with the drain, but not for long: a fork handler of the program
 * may wait for a thread that forks. */
static void await_forks(void)
{
    const struct timespec step = {.tv_nsec = 1000000};
    for (long ms = GIVE_WAY_MS; !gs_own_within(&drain.busy, ms); ms = ms < TURN_MS ? ms * 2 : ms)
        nanosleep(&step, NULL);
}

/* Between two records, or two steps of a statement: SQLite and malloc are idle here. A mutex alone would not do: who
 * releases it and takes it again is faster than the thread that this has woken. */
static void give_way(void)
{
    const struct timespec step = {.tv_nsec = 1000000};
    int ms = 0;
    if (!atomic_load_explicit(&drain.waiters, memory_order_relaxed) || gs_now() < drain.its_turn_ns) return;
    pthread_rwlock_unlock(&drain.busy);
    pthread_mutex_unlock(&drain.lock);
    for (; ms < GIVE_WAY_MS && atomic_load(&drain.waiters); ms++) nanosleep(&step, NULL);
    pthread_mutex_lock(&drain.lock);
    await_forks();
    if (ms == GIVE_WAY_MS) drain.its_turn_ns = gs_now() + GIVE_WAY_MS * 1000000ull;
}

static int give_way_in_statement(void *unused)
{
    (void)unused;
    atomic_fetch_add(&drain.progress, 1); /* a long transaction is not a hang */
    give_way();
    return 0;
}

static bool lock_within(long ms)
{
    if (!pthread_mutex_trylock(&drain.lock)) return true;
    atomic_fetch_add(&drain.waiters, 1);
    const bool locked = gs_lock_within(&drain.lock, ms);
    atomic_fetch_sub(&drain.waiters, 1);
    return locked;
}

static void fail_drain(void)
{
    pthread_cond_broadcast(&drain.flushed);
    struct gs_spool_header *h = drain.spool->header;
    const uint64_t vanished = gs_store_vanished(drain.store);
    uint64_t none = 0;
    drain.failed = true;
    if (vanished) {
        drain.vanished = true;
        atomic_fetch_add(&h->lost, vanished);
        atomic_compare_exchange_strong(&h->lost_first_ns, &none, 1);
    }
    atomic_store(&drain.spool->drain_alive, 0); /* nothing waits for this thread any more */
    gs_deactivate("recording stopped here: %s", gs_store_error(drain.store));
}

static bool commit_store(void)
{
    if (gs_store_commit(drain.store, drain.reader) != 0) {
        fail_drain();
        return false;
    }
    gs_reader_release(drain.reader);
    drain.committed_ns = gs_now();
    return true;
}

/* After a commit: removes some of the old rows if the recording has reached its bound. */
static bool trim_store(void)
{
    const enum gs_trim rc = gs_store_trim(drain.store);
    drain.trimming = rc == GS_TRIM_MORE;
    drain.read_too_long = drain.read_too_long || rc == GS_TRIM_READ;
    drain.bound_reached = drain.bound_reached || rc == GS_TRIM_FULL || rc == GS_TRIM_READ;
    if (rc == GS_TRIM_FAILED) fail_drain();
    return rc != GS_TRIM_FAILED;
}

static bool commit_is_due(void)
{
    const uint64_t pending = gs_store_pending(drain.store);
    if (pending >= COMMIT_ROWS) return true;
    if (gs_reader_fill(drain.reader) >= COMMIT_FILL) return true;
    if (gs_now() - drain.committed_ns < COMMIT_NS) return false;
    return pending || gs_store_counted(drain.store, drain.reader);
}

/* Counts events for which there was no room. */
static void lose_record(const struct gs_rec *rec)
{
    struct gs_spool_header *h = drain.spool->header;
    uint64_t none = 0;
    atomic_fetch_add(&h->lost, 1);
    atomic_compare_exchange_strong(&h->lost_first_ns, &none, gs_record_time(rec));
}

/* After the end of a recording on a disk that is nearly full: what is still in the spool may need more than it has. */
static void check_room_left(void)
{
    uint64_t total, left;
    const uint64_t least = drain.floor / 2 > LAST_BYTES ? drain.floor / 2 : LAST_BYTES;
    if (drain.full && !drain.disk_full) drain.disk_full = gs_store_disk(drain.store, &total, &left) && left < least;
}

/* Counts a record that cannot be stored. */
static void skip_record(const struct gs_rec *rec)
{
    if (!drain.disk_full)
        lose_record(rec);
    else if (!drain.end_ns)
        drain.end_ns = gs_record_time(rec); /* the recording ends here: what comes later is not lost */
}

static bool store_record(uint32_t thread, const struct gs_rec *rec)
{
    if ((drain.bound_reached || drain.disk_full) && !gs_record_is_definition(rec)) {
        skip_record(rec);
    } else if (gs_store_add(drain.store, thread, rec) != 0) {
        fail_drain();
        return false;
    }
    return true;
}

/* Reads up to a batch. Returns the number of records, -1 on failure. Locked. */
static int read_batch(void)
{
    int n = 0;
    check_room_left();
    for (int read = AHEAD; n < BATCH && read == AHEAD; n += read) {
        uint32_t threads[AHEAD];
        const struct gs_rec *recs[AHEAD];
        for (read = 0; read < AHEAD && (recs[read] = gs_reader_next(drain.reader, &threads[read])); read++)
            gs_store_expect(drain.store, recs[read]);
        for (int i = 0; i < read; i++)
            if (!store_record(threads[i], recs[i])) return -1;
        give_way();
    }
    atomic_fetch_add(&drain.progress, 1);
    if (commit_is_due() && (!commit_store() || !trim_store())) return -1;
    return n;
}

static void bury_threads(uint64_t now_ns)
{
    if (gs_reader_fill(drain.reader) < BURY_FILL || now_ns - drain.buried_ns < BURY_NS) return;
    drain.buried_ns = now_ns;
    gs_reader_bury(drain.reader);
}

/* Rows wait in the spool: readers would let the log grow beyond GPUSPY_KEEP. */
static bool holds_back(void)
{
    return !drain.stop && drain.flush_asked == drain.flush_done && gs_reader_fill(drain.reader) < HOLD_FILL &&
           gs_store_held(drain.store);
}

/* Reads everything that is available. Returns the number of records, -1 on failure. */
static int read_spool(bool final)
{
    int total = 0, n;
    bury_threads(gs_now());
    gs_reader_poll(drain.reader, gs_now(), final);
    drain.more = false;
    if (!final && holds_back()) return 0;
    while ((n = read_batch()) > 0) {
        total += n;
        if (final) continue;
        drain.since_disk += n;
        if (drain.stop || drain.failed || drain.bound_reached) break;
        if ((drain.more = drain.since_disk >= DISK_RECORDS)) break;
    }
    return n < 0 ? -1 : total;
}

/* Goes through the spool, so that a kill loses it no more than what was reported. */
static void write_fact(const char *key, const char *value)
{
    struct gs_writer w = {0};
    gs_writer_open(&w, drain.spool);
    w.impatient = true;
    gs_setting_write(&w, key, value, GS_FLAG_FACT);
    gs_writer_close(&w);
}

/* What becomes known while the program runs: PyTorch's version, once its allocator has reported, and what stacks lack.
 */
static void write_facts(void)
{
    const char *module = drain.versioned ? NULL : gs_allocator_module(), *lacks = gs_stack_missing();
    char version[64];
    if (module) {
        drain.versioned = true;
        if (gs_torch_version(module, version, sizeof version)) write_fact("torch_version", version);
    }
    if (lacks && strlen(lacks) > drain.lacks) {
        drain.lacks = strlen(lacks);
        write_fact("stacks_lack", lacks);
    }
}

static const char *summary_unit(uint64_t bytes)
{
    return bytes >> 30 ? "GiB" : "MiB";
}

static double bytes_in_units(uint64_t bytes)
{
    return (double)bytes / (bytes >> 30 ? 0x1p30 : 0x1p20);
}

static void report_bound(void)
{
    if (drain.read_too_long)
        gs_deactivate("recording stopped here: another program has read it in one transaction for so long that its log "
                      "is full");
    else if (drain.squeezed)
        gs_deactivate(
            "recording stopped here: its disk is nearly full (GPUSPY_MIN_FREE), and no old event can be removed");
    else
        gs_deactivate("recording stopped here: its live memory and peaks already exceed GPUSPY_KEEP (%.1f %s)",
                      bytes_in_units(gs_config()->keep), summary_unit(gs_config()->keep));
}

static void finish_store(void)
{
    struct gs_spool_header *h = drain.spool->header;
    write_facts();
    gs_spool_end(drain.spool, gs_now());
    if (read_spool(true) < 0 || !commit_store()) return;
    if (drain.bound_reached && !drain.full) report_bound();
    const bool disk = drain.full && !drain.bound_reached;
    const uint64_t lost = disk ? drain.lost : atomic_load(&h->lost);
    gs_store_exit(drain.store, h);
    if ((disk && gs_store_note_stop(drain.store, "disk")) ||
        gs_store_finish(drain.store, drain.end_ns ? drain.end_ns : atomic_load(&h->end_ns), true, lost,
                        lost ? atomic_load(&h->lost_first_ns) : 0, gs_reader_damaged(drain.reader)) != 0) {
        fail_drain();
        return;
    }
    drain.summary = *gs_store_summary(drain.store);
}

static void sleep_until_woken(unsigned ms)
{
    const struct timespec until = gs_condition_deadline(ms);
    if (drain.stop) return;
    pthread_rwlock_unlock(&drain.busy);
    pthread_cond_timedwait(&drain.wake, &drain.lock, &until);
    await_forks();
}

/* Each poll costs a wake-up and finds the tables of live memory outside the caches: the fewer, the cheaper an event. */
static unsigned next_wait(unsigned ms, int records)
{
    if (gs_reader_fill(drain.reader) > BUSY_FILL) return WAIT_MIN_MS;
    const uint64_t most = records > POLL_RECORDS ? (uint64_t)ms * POLL_RECORDS / (uint64_t)records : ms * 2;
    return most < WAIT_MIN_MS ? WAIT_MIN_MS : most > WAIT_MAX_MS ? WAIT_MAX_MS : (unsigned)most;
}

/* gpuspy_flush waits for the lock, so everything that its thread recorded before has been read. Locked. */
static void serve_flush(uint64_t asked)
{
    if (asked == drain.flush_done || !commit_store() || !trim_store()) return;
    drain.flush_done = asked;
    pthread_cond_broadcast(&drain.flushed);
}

static void close_store(void)
{
    gs_reader_close(drain.reader);
    gs_store_close(drain.store);
    gs_store_files_private(false);
    drain.reader = NULL;
    drain.store = NULL;
}

/* Has the disk less space left than it must keep free? */
static bool disk_is_nearly_full(uint64_t *left, uint64_t *floor)
{
    const uint64_t asked = gs_config()->min_free, now = gs_now();
    uint64_t total;
    const bool due = !drain.disk_seen_ns || now - drain.disk_seen_ns >= DISK_NS || drain.since_disk >= DISK_RECORDS;
    if (!due) return false;
    drain.since_disk = 0;
    if (!asked) return false;
    drain.disk_seen_ns = now;
    if (!gs_store_disk(drain.store, &total, left)) return false;
    *floor = asked != GS_MIN_FREE_DEFAULT ? asked : gs_disk_floor(total);
    return *left < *floor;
}

/* Ends the recording if there is no room for more: on its disk, or within GPUSPY_KEEP. A recording that has grown large
 * first stops growing: old rows make room for new ones. */
static bool is_disk_full(void)
{
    uint64_t left, floor;
    if (drain.bound_reached) {
        report_bound();
        return true;
    }
    if (!disk_is_nearly_full(&left, &floor)) return false;
    if (left > floor / 2 && left >= SQUEEZE_BYTES &&
        (drain.squeezed || gs_store_keep(drain.store, GS_KEEP_SIZE) == 0)) {
        drain.squeezed = true;
        return false;
    }
    drain.lost = atomic_load(&drain.spool->header->lost); /* events after the end are not lost */
    drain.floor = floor;
    gs_deactivate("recording stopped here: its disk has %.1f %s left, and %.1f %s stay free for the program "
                  "(GPUSPY_MIN_FREE)",
                  bytes_in_units(left), summary_unit(left), bytes_in_units(floor), summary_unit(floor));
    return true;
}

static unsigned own_threads(void)
{
    return 2 + gs_nvml_threads(); /* the watcher and the drain */
}

/* Returns the signal that ended the program's last thread (0: none) if all of them have ended, else -1. Locked. */
static int drain_until_stopped(void)
{
    unsigned ms = WAIT_MIN_MS;
    int signal;
    while (!drain.stop && !drain.failed) {
        const uint64_t asked = drain.flush_asked;
        const int records = read_spool(false);
        if (records < 0) break;
        write_facts();
        if (!drain.more) serve_flush(asked);
        if (!records && gs_program_ended(own_threads(), &signal)) return signal;
        if (drain.trimming && (!commit_store() || !trim_store())) break;
        if ((drain.full = is_disk_full())) break;
        ms = drain.trimming ? WAIT_MIN_MS : next_wait(ms, records);
        if (gs_reader_fill(drain.reader) < COMMIT_FILL && gs_before_step()) ms = WAIT_MIN_MS;
        sleep_until_woken(drain.more ? 0 : ms);
    }
    return -1;
}

static void *run_drain(void *unused)
{
    gs_system_call(SYS_prctl, PR_SET_NAME, "gpuspy-drain");
    if (!(gs_filter_refused & GS_FILTER_PRIORITY)) /* on Linux: of this thread only */
        setpriority(PRIO_PROCESS, (id_t)gs_system_call(SYS_gettid), NICE);
    pthread_mutex_lock(&drain.lock);
    await_forks();
    gs_store_pauses(drain.store, STEPS, give_way_in_statement);
    const int ended_by = drain_until_stopped();
    if (!drain.failed) finish_store();
    atomic_store(&drain.spool->drain_alive, 0);
    gs_before_finish();
    close_store();
    pthread_cond_broadcast(&drain.flushed);
    const bool failed = drain.failed;
    pthread_rwlock_unlock(&drain.busy);
    pthread_mutex_unlock(&drain.lock);
    if (ended_by >= 0) {
        gs_watcher_end_process(ended_by);
    } else if (failed || drain.full) { /* nothing would notice any more that the program's threads have ended */
        gs_nvml_end();
        gs_watcher_stop();
    }
    return NULL;
}

int gs_drain_start(struct gs_spool *spool, struct gs_store *store)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&drain.wake, &attr);
    pthread_cond_init(&drain.flushed, &attr);
    pthread_condattr_destroy(&attr);
    drain.spool = spool;
    drain.store = store;
    drain.stop = drain.failed = drain.full = drain.vanished = drain.versioned = false;
    drain.committed_ns = drain.buried_ns = drain.disk_seen_ns = 0;
    drain.lacks = 0;
    drain.bound_reached = drain.read_too_long = drain.trimming = drain.squeezed = false;
    drain.disk_full = false;
    drain.lost = drain.floor = drain.end_ns = 0;
    drain.reader = gs_reader_open(spool, NULL, 0);
    if (!drain.reader) return ENOMEM;
    atomic_store(&spool->drain_alive, 1);
    atomic_store(&drain.running, true); /* without the lock: a fork handler that waits for this thread may hold it */
    int failed = gs_start_thread(&drain.thread, STACK_BYTES, run_drain, NULL);
    if (!failed) return 0;
    atomic_store(&drain.running, false);
    atomic_store(&spool->drain_alive, 0);
    gs_reader_close(drain.reader);
    return failed;
}

/* For a test runner that reads its own recording while it is made: when this returns 1, everything that the calling
 * thread did before is in the database. 0: nothing is recorded in this process. */
__attribute__((visibility("default"))) int gpuspy_flush(void);
int gpuspy_flush(void)
{
    /* younger records are not read yet, because those of other threads may sort before them */
    struct timespec left = {.tv_nsec = 2 * GS_SLACK_NS};
    const int saved = errno;
    if (!drain.running) return 0;
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
    const struct timespec until = gs_condition_deadline(STUCK_MS);
    if (!lock_within(STUCK_MS)) {
        errno = saved;
        return 0;
    }
    const uint64_t ticket = ++drain.flush_asked;
    pthread_cond_signal(&drain.wake);
    int late = 0;
    while (drain.running && !drain.stop && !drain.failed && drain.flush_done < ticket && !late)
        late = pthread_cond_timedwait(&drain.flushed, &drain.lock, &until);
    const bool done = drain.running && drain.flush_done >= ticket;
    pthread_mutex_unlock(&drain.lock);
    errno = saved;
    return done;
}

/* Waits for the thread as long as it makes progress. */
static bool join_drain(void)
{
    const struct timespec prompt = gs_deadline(PROMPT_MS);
    if (!pthread_timedjoin_np(drain.thread, NULL, &prompt)) return true;
    gs_deadly_deliver();
    for (;;) {
        const uint64_t before = atomic_load(&drain.progress);
        const struct timespec until = gs_deadline(STUCK_MS);
        int failed = pthread_timedjoin_np(drain.thread, NULL, &until);
        if (!failed) return true;
        if (failed != ETIMEDOUT || atomic_load(&drain.progress) == before) return false;
    }
}

/* The thread holds the lock while it writes, for ever if the file system hangs. */
static bool lock_while_busy(void)
{
    if (lock_within(PROMPT_MS)) return true;
    gs_deadly_deliver();
    for (;;) {
        const uint64_t before = atomic_load(&drain.progress);
        if (lock_within(STUCK_MS)) return true;
        if (atomic_load(&drain.progress) == before) return false;
    }
}

bool gs_drain_stop(struct gs_summary *summary)
{
    if (!drain.running) return false;
    drain.stop = true;
    const bool locked = lock_while_busy();
    if (locked) {
        pthread_cond_signal(&drain.wake);
        pthread_mutex_unlock(&drain.lock);
    }
    if (!locked || !join_drain()) {
        gs_deactivate("the database is incomplete; gpuspy report completes it");
        return false;
    }
    atomic_store(&drain.running, false);
    *summary = drain.summary;
    return !drain.failed;
}

bool gs_drain_vanished(void)
{
    return drain.vanished;
}

/* A thread that hangs costs the program one long wait, not one per fork. */
bool gs_drain_rest(int ms)
{
    const uint64_t now = atomic_load(&drain.progress) + 1;
    if (gs_share_within(&drain.busy, 0)) return true;
    atomic_fetch_add(&drain.waiters, 1);
    const bool rests = gs_share_within(&drain.busy, atomic_load(&drain.hung_at) == now ? 0 : ms);
    atomic_fetch_sub(&drain.waiters, 1);
    if (!rests && ms >= HUNG_MS) atomic_store(&drain.hung_at, now);
    return rests;
}

void gs_drain_go_on(void)
{
    pthread_rwlock_unlock(&drain.busy);
}

void gs_drain_forget(bool at_rest)
{
    /* This connection belongs to the parent. Its descriptors are closed here, because SQLite would never close them. */
    gs_before_forget();
    if (at_rest) gs_store_files_forget();
    memset(&drain, 0, sizeof drain);
    pthread_mutex_init(&drain.lock, NULL);
    drain.busy = (pthread_rwlock_t)GS_FORK_LOCK;
}
