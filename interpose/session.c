/* A process's recording: started by its first hooked call, ended by exit, dropped by fork. */
#include "interpose/session.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "interpose/api.h"
#include "interpose/arguments.h"
#include "interpose/before.h"
#include "interpose/clock.h"
#include "interpose/config.h"
#include "interpose/unseen.h"
#include "interpose/drain.h"
#include "interpose/filter.h"
#include "interpose/nvml.h"
#include "interpose/on_oom.h"
#include "interpose/host.h"
#include "interpose/recorder.h"
#include "interpose/resolve.h"
#include "interpose/run_path.h"
#include "interpose/setting.h"
#include "interpose/shield.h"
#include "interpose/stack_elf.h"
#include "interpose/summary.h"
#include "interpose/watcher.h"
#include "schema/open_high.h"
#include "schema/spool_file.h"
#include "schema/store.h"
#include "schema/store_files.h"
#include "schema/system_call.h"

static struct {
    pthread_rwlock_t lock; /* held while a session starts; forks share it while they copy the process */
    _Atomic bool spooling; /* the spool is mapped: calls after a failure are counted in it */
    _Atomic bool ended;    /* the database is finished: further calls are counted there */
    pthread_t ender;       /* the thread that finished it */
    uint32_t number;
    pid_t pid;
    struct gs_run_path path;
    pthread_key_t thread_key;
    bool has_key;               /* the program may have used up all keys: the ends of threads are then not noticed */
    bool wiped;                 /* detects a child of a bare clone or _Fork, in which the kernel has zeroed the page */
    bool started;               /* a start was attempted: once per process image */
    const char *attached_after; /* seconds that the process had run; NULL: it is recorded from its start */
    const char
        *forked_while; /* what a thread was doing, in a child that the fork handlers could not prepare; else NULL */
} session = {.lock = GS_FORK_LOCK};

#define START_STACK (256 * 1024)
#define OPEN_MS 5000     /* how long the program waits for the recording's file system at most */
#define STARVED_MS 60000 /* the same while opening it lacks a processor */
enum { OPENING, OPENED, GIVEN_UP };
static _Atomic int opening;
static _Atomic long opening_thread;

/* --- start ----------------------------------------------------------------------------------- */

static uint64_t session_clock_ns(clockid_t clock)
{
    const struct timespec now = gs_clock(clock);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A number from the environment; -1: none. */
static long environment_number(const char *name)
{
    const char *value = getenv(name);
    char *end;
    if (!value || !*value) return -1;
    long number = strtol(value, &end, 10);
    return !*end && number >= 0 && number < 1000000 ? number : -1;
}

/* Slurm also numbers the only task of a batch script: the number is a rank only in a step with several tasks. */
static int read_environment_rank(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "LOCAL_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        long rank = environment_number(names[i]);
        if (strcmp(names[i], "SLURM_PROCID") == 0 && environment_number("SLURM_STEP_NUM_TASKS") < 2) continue;
        if (rank >= 0) return (int)rank;
    }
    return -1;
}

static bool host_allows(bool own_files)
{
    char why[256];
    if (gs_host_allows(own_files, why, sizeof why)) return true;
    gs_deactivate("not recording: %s", why);
    return false;
}

static struct gs_store *create_store(const char *command, uint64_t real_ns, char *error, size_t error_size)
{
    char host[256] = "", exe[PATH_MAX] = "";
    gethostname(host, sizeof host - 1);
    ssize_t len = readlink("/proc/thread-self/exe", exe, sizeof exe - 1);
    const struct gs_store_info info = {
        .run_id = gs_config()->run_id,
        .command = command,
        .host = host,
        .pid = (uint32_t)getpid(),
        .ppid = (uint32_t)getppid(),
        .start_real_ns = real_ns,
        .rank = read_environment_rank(),
        .cwd = gs_config()->cwd,
        .exe = len > 0 ? exe : NULL,
        .python_version = gs_stack_python_version(),
        .sources = gs_config()->source ? 1 : -1,
        .keep = gs_config()->keep,
    };
    return gs_store_create(session.path.db, &info, error, error_size);
}

/* Names of the numbers that events carry. */
static void define_apis(struct gs_writer *w)
{
    for (uint32_t i = 1; i < GS_API_COUNT; i++) {
        if (!gs_apis[i].name) continue;
        const uint16_t len = (uint16_t)strlen(gs_apis[i].name);
        const uint16_t bytes = (uint16_t)((sizeof(struct gs_rec_name) + len + 7) & ~7u);
        struct gs_rec_name *r = gs_writer_reserve(w, bytes);
        if (!r) return;
        memset(r, 0, bytes);
        r->rec = (struct gs_rec){.size = bytes, .type = GS_REC_API, .time_ns = gs_now()};
        r->number = i;
        r->name_len = len;
        memcpy(r + 1, gs_apis[i].name, len);
        gs_writer_commit(w, bytes);
    }
}

/* Their values at the first CUDA call, including what Python put into os.environ before it. */
static void define_settings(struct gs_writer *w)
{
    static const char *const names[] = {
#define SETTING(name) name,
#include "interpose/settings.def"
#undef SETTING
    };
    gs_setting_write(w, "", "", 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value) gs_setting_write(w, names[i], value, 0);
    }
}

/* What holds for the whole process, written by one writer that keeps its number: the program's first thread is then the
 * second, as the packing of rows expects (GS_ALLOCATION_KIND). */
static void define_process(void)
{
    struct gs_writer w = {0};
    gs_writer_open(&w, gs_session_spool());
    define_apis(&w);
    define_settings(&w);
    if (session.attached_after) gs_setting_write(&w, GS_FACT_ATTACHED, session.attached_after, GS_FLAG_FACT);
    w.keeps_number = true;
    gs_writer_close(&w);
}

static bool open_files(struct gs_store **store)
{
    char command[sizeof((struct gs_spool_header *)0)->command], error[512];
    const uint64_t real_ns = session_clock_ns(CLOCK_REALTIME);
    gs_session_start_ns = session_clock_ns(CLOCK_MONOTONIC);
    gs_store_files_guest();
    gs_arguments_read(command, sizeof command);
    if (!gs_run_path_claim(&session.path, gs_config(), gs_session_spool(), command, gs_session_start_ns, real_ns, error,
                           sizeof error)) {
        gs_deactivate("not recording: %s", error);
        return false;
    }
    *store = create_store(command, real_ns, error, sizeof error);
    if (*store && gs_session_spool()->private_error)
        gs_print_line("no shared memory (shmget: %s): if this process is killed, up to %d ms before its end are not "
                      "recorded; allow shmget, or raise kernel.shmmni, shmall or shmmax",
                      strerror(gs_session_spool()->private_error), GS_SPOOL_LOST_MS);
    if (*store) return true;
    gs_deactivate("not recording: %s: %s", gs_run_path_shown(session.path.db, gs_config()), error);
    gs_spool_unlink(gs_session_spool(), session.path.spool);
    gs_spool_close(gs_session_spool());
    return false;
}

bool gs_session_unprepared(void)
{
    return session.wiped && !atomic_load_explicit(&gs_session_page.here, memory_order_relaxed);
}

static bool is_session_spool_ours(void)
{
    return atomic_load(&session.spooling) && session.pid == getpid() && !gs_session_unprepared();
}

/* Only the exit status shows whether a program that ran out of memory ended well. */
static void note_exit(int status, void *unused)
{
    (void)unused;
    gs_resolve_end();
    if (is_session_spool_ours()) gs_spool_exit(gs_session_spool(), status);
}

void gs_session_exception(const char *exception, const char *place, bool collector_off)
{
    if (is_session_spool_ours()) gs_spool_exception(gs_session_spool(), exception, place, collector_off);
}

/* Not when the library is loaded: exit handlers run in reverse order, so handlers that were registered that early would
 * run after the destructor that ends the recording. */
static void prepare_once(void)
{
    if (!session.started) {
        session.has_key = !pthread_key_create(&session.thread_key, gs_thread_end);
        (void)on_exit(note_exit, NULL); /* otherwise the status is unknown */
    }
    session.started = true;
}

/* The file system has answered after the program has gone on without a recording. */
static void *drop_late(struct gs_store *store)
{
    gs_store_close(store);
    gs_store_remove(session.path.db);
    gs_spool_unlink(gs_session_spool(), session.path.spool);
    gs_spool_close(gs_session_spool());
    return NULL;
}

static void *open_and_drain(void *unused)
{
    int expected = OPENING;
    struct gs_store *store;
    atomic_store(&opening_thread, gs_system_call(SYS_gettid));
    /* the drain, which this thread starts, shares them */
    const bool own_files = gs_host_malloc_is_libcs() && !(gs_filter_refused & GS_FILTER_OWN_FILES) && gs_own_files();
    gs_store_files_private(own_files);
    if (!host_allows(own_files) || !open_files(&store)) return NULL;
    if (!atomic_compare_exchange_strong(&opening, &expected, OPENED)) return drop_late(store);
    atomic_store(&session.spooling, true);
    session.pid = getpid();
    define_process();
    gs_before_start(&session.path);
    int failed = gs_drain_start(gs_session_spool(), store);
    if (!failed) {
        gs_on_oom_start(session.path.db);
        return &session;
    }
    gs_store_close(store);
    gs_deactivate("not recording: cannot start a thread: %s", strerror(failed));
    return NULL;
}

/* Does the thread that opens the recording wait for a processor, as on a busy machine, rather than for the file system?
 * Unknown counts as no. */
static bool is_opening_starved(void)
{
    char text[256];
    const long thread = atomic_load(&opening_thread);
    if (!thread) return true; /* it has not run yet */
    snprintf(text, sizeof text, "/proc/self/task/%ld/stat", thread);
    const int fd = gs_open_high(text, O_RDONLY, 0);
    const ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (len <= 0) return false;
    text[len] = 0;
    const char *state = strrchr(text, ')'); /* the name may contain anything */
    return state && !strncmp(state, ") R", 3);
}

/* A file system that hangs (a network's) must not stop the program: it leaves that thread alone. */
static void *join_opening(pthread_t thread)
{
    void *done = NULL;
    int expected = OPENING, ms = 0;
    bool starved;
    do {
        const struct timespec until = gs_deadline(OPEN_MS);
        if (!pthread_timedjoin_np(thread, &done, &until)) return done;
        ms += OPEN_MS;
        starved = is_opening_starved();
    } while (starved && ms < STARVED_MS);
    if (atomic_compare_exchange_strong(&opening, &expected, GIVEN_UP)) {
        pthread_detach(thread);
        if (gs_session_spool()->map)
            gs_segment_remove(gs_session_spool()->shmid); /* goes when the last user detaches */
        gs_deactivate(starved ? "not recording: the machine was too busy to open %s within %d s"
                              : "not recording: the file system of %s has not responded for %d s",
                      gs_config()->db, ms / 1000);
    } else {
        pthread_join(thread, &done);
    }
    return done;
}

/* SQLite needs more stack than a thread of the application may have. */
static bool open_and_drain_elsewhere(void)
{
    pthread_t thread;
    int failed = gs_watcher_start(gs_session_end);
    atomic_store(&opening_thread, 0);
    atomic_store(&opening, OPENING);
    if (!failed) failed = gs_start_thread(&thread, START_STACK, open_and_drain, NULL);
    if (!failed) return join_opening(thread) != NULL;
    gs_deactivate("not recording: cannot start a thread: %s", strerror(failed));
    return false;
}

/* A thread that sees the state goes on to read the number, and records nothing without one. The drain may have failed
 * meanwhile: what gs_deactivate stores prevails in any order. */
static void go_live(void)
{
    int expected = GS_SESSION_NOT_YET;
    atomic_store(&gs_session_live, ++session.number);
    if (!atomic_compare_exchange_strong(&gs_session_state, &expected, GS_SESSION_LIVE))
        atomic_store(&gs_session_live, 0);
    gs_unseen_write();
}

static void start_session(void)
{
    /* a child of a process whose file system hangs does not wait for it again */
    if (!gs_session_is_enabled() || atomic_load(&opening) == GIVEN_UP) {
        atomic_store(&gs_session_state, GS_SESSION_OVER);
        return;
    }
    if (gs_config()->complaint[0]) gs_print_line("%s", gs_config()->complaint);
    if (!host_allows(true)) return;
    prepare_once();
    if (open_and_drain_elsewhere()) go_live();
    if (atomic_load(&gs_session_state) == GS_SESSION_LIVE) return;
    gs_watcher_stop();
    gs_watcher_rest(); /* the program may be about to need the thread that it was allowed to start */
}

/* A destructor that runs after gpuspy's may still allocate or free. Its thread is the one that ends the process, so it
 * has the time and the stack to record that in the database. */
static void lose_late(void)
{
    if (!pthread_equal(session.ender, pthread_self()) || session.pid != getpid()) return;
    int saved = errno;
    struct gs_shield shield;
    gs_shield_begin(&shield);
    gs_store_add_lost(session.path.db, 1, gs_now());
    gs_shield_end(&shield);
    errno = saved;
}

/* A child that was created without libc's knowledge (a bare clone, _Fork), or forked while a thread of gpuspy's did not
 * pause, has the memory of a process whose other threads were anywhere, perhaps in SQLite or malloc. Starting anew in
 * it could hang. */
static void leave_unprepared_child(void)
{
    const bool recorded = atomic_exchange(&session.spooling, false) || session.started;
    atomic_store(&gs_session_page.here, true);
    atomic_store(&session.ended, false);
    gs_print_forget();
    const bool locked = gs_elf_list_is_locked(); /* by a thread that the child does not have */
    gs_elf_forked();
    if (!recorded && !gs_attached && !locked && gs_own_within(&session.lock, 0)) { /* nothing of its parent's yet */
        pthread_rwlock_unlock(&session.lock);
        return;
    }
    if (gs_attached) { /* the user attached to the parent only */
        atomic_store(&gs_session_state, GS_SESSION_OVER);
        atomic_store(&gs_session_live, 0);
    } else if (session.forked_while) {
        gs_deactivate("not recording process %ld: it was forked while %s", (long)getpid(), session.forked_while);
    } else {
        gs_deactivate("not recording process %ld: clone or _Fork copied it %s", (long)getpid(),
                      recorded ? "from one that is recorded"
                               : "while another thread was using the list of loaded libraries");
    }
}

/* The first question, because to ask any other may end the process. */
static bool filter_allows(void)
{
    char why[128];
    if (gs_filter_allows(why, sizeof why)) return true;
    if (*why)
        gs_deactivate("not recording: %s", why);
    else
        atomic_store(&gs_session_state, GS_SESSION_OVER);
    return false;
}

bool gs_session_begin(void)
{
    int state = atomic_load(&gs_session_state);
    if (state == GS_SESSION_NOT_YET && gs_session_is_enabled() && !filter_allows()) return false;
    if (state == GS_SESSION_NOT_YET) {
        /* Before the lock is taken: these read the list of loaded objects, under the loader's lock for it. */
        gs_stack_init(gs_config()->stacks, gs_config()->native_depth);
        gs_host_inspect();
        pthread_rwlock_wrlock(&session.lock);
        const bool first = atomic_load(&gs_session_state) == GS_SESSION_NOT_YET;
        if (first) start_session();
        pthread_rwlock_unlock(&session.lock);
        state = atomic_load(&gs_session_state);
        if (first && state == GS_SESSION_LIVE) gs_nvml_begin(gs_session_spool());
    }
    return state == GS_SESSION_LIVE;
}

/* For a program that reads a recording while it is made: the path, once there is a recording. NULL: there is none. */
__attribute__((visibility("default"))) const char *gpuspy_database(void);
const char *gpuspy_database(void)
{
    return atomic_load(&gs_session_live) && session.path.db[0] ? session.path.db : NULL;
}

bool gs_session_over(bool memory)
{
    if (gs_session_unprepared()) leave_unprepared_child();
    if (atomic_load(&gs_session_state) != GS_SESSION_OVER) return false;
    if (atomic_load(&session.spooling))
        gs_spool_lost(gs_session_spool(), gs_now());
    else if (memory && atomic_load(&session.ended))
        lose_late();
    return true;
}

void gs_session_missed(void)
{
    if (atomic_load(&gs_session_state) == GS_SESSION_OVER && atomic_load(&session.spooling))
        gs_spool_lost(gs_session_spool(), gs_now());
}

bool gs_session_is_enabled(void)
{
    return !gs_dormant && !gs_config()->disabled;
}

bool gs_session_torch_cpu(void)
{
    /* after a failure they are still requested, to be counted as lost */
    return gs_config()->torch_cpu &&
           (atomic_load(&gs_session_state) != GS_SESSION_OVER || atomic_load(&session.spooling));
}

void gs_session_watch_thread(void *thread)
{
    if (session.has_key) pthread_setspecific(session.thread_key, thread);
}

/* --- fork ------------------------------------------------------------------------------------ */

bool gs_session_lock(int ms)
{
    return gs_share_within(&session.lock, ms);
}

void gs_session_unlock(void)
{
    pthread_rwlock_unlock(&session.lock);
}

/* The child has the parent's memory but not its drain, and must not write into its spool. It may start its own session
 * at its first CUDA call. */
void gs_session_forked(void)
{
    atomic_store(&gs_session_live, 0);
    atomic_store(&gs_session_page.here, true);
    if (atomic_exchange(&session.spooling, false)) gs_spool_close(gs_session_spool());
    atomic_store(&session.ended, false);
    session.attached_after = NULL;
    memset(gs_session_spool(), 0, sizeof *gs_session_spool());
    gs_thread_forked();
    gs_deadly_drop(); /* another thread ended the parent */
    session.lock = (pthread_rwlock_t)GS_FORK_LOCK;
    gs_print_forget();
    gs_print_into(NULL, 0);
    atomic_store(&gs_session_state, GS_SESSION_NOT_YET);
}

void gs_session_forked_at_work(const char *what)
{
    session.forked_while = what;
    atomic_store(&gs_session_live, 0);
    atomic_store(&gs_session_page.here, false); /* see leave_unprepared_child */
    session.wiped = true;
    session.lock = (pthread_rwlock_t)GS_FORK_LOCK;
}

/* --- load and exit --------------------------------------------------------------------------- */

void gs_session_load(void)
{
    atomic_store(&gs_session_page.here, true);
    session.wiped = !madvise(&gs_session_page, sizeof gs_session_page, MADV_WIPEONFORK);
}

/* Under session.lock: a start in another thread has finished. */
static bool end_to_go_on(void)
{
    struct gs_summary summary;
    const bool ours = session.pid == getpid() && atomic_exchange(&session.spooling, false);
    atomic_store(&gs_session_state, GS_SESSION_OVER);
    atomic_store(&gs_session_live, 0);
    if (!ours) return true;
    const bool done = gs_drain_stop(&summary);
    gs_watcher_stop();
    if (done || gs_drain_vanished())
        gs_spool_unlink(gs_session_spool(), session.path.spool);
    else
        gs_spool_end(gs_session_spool(), gs_now());
    gs_spool_retire(gs_session_spool());
    return done;
}

/* The program goes on: whether it frees later what is live now is unknown. */
static void write_stopped(const char *why)
{
    struct gs_writer w = {0};
    gs_writer_open(&w, gs_session_spool());
    gs_setting_write(&w, "stopped", why, GS_FLAG_FACT);
    gs_writer_close(&w);
}

bool gs_session_records(void)
{
    return is_session_spool_ours();
}

bool gs_session_stop(const char *why)
{
    gs_nvml_rest();
    pthread_rwlock_wrlock(&session.lock);
    if (is_session_spool_ours()) write_stopped(why);
    const bool done = end_to_go_on();
    pthread_rwlock_unlock(&session.lock);
    return done && gs_watcher_rest();
}

bool gs_session_attach(const char *after_s)
{
    pthread_rwlock_wrlock(&session.lock);
    session.attached_after = after_s;
    const bool again = session.started;
    bool ready = !again || (gs_watcher_rest() && gs_session_new_spool());
    gs_print_forget();
    if (ready) atomic_store(&gs_session_state, GS_SESSION_NOT_YET);
    pthread_rwlock_unlock(&session.lock);
    return ready && gs_session_begin();
}

static void end_store(int state)
{
    struct gs_summary summary;
    if (!gs_drain_stop(&summary)) {
        gs_watcher_stop();
        gs_spool_end(gs_session_spool(), gs_now()); /* whoever completes it sees that the process did not die */
        if (gs_drain_vanished()) gs_spool_unlink(gs_session_spool(), session.path.spool);
        return;
    }
    gs_watcher_stop();
    gs_spool_unlink(gs_session_spool(), session.path.spool);
    session.ender = pthread_self();
    atomic_store(&session.ended, true);
    if (state == GS_SESSION_LIVE && !gs_config()->quiet) gs_summary_print(&summary, &session.path, gs_config());
}

void gs_session_end(void)
{
    const int state = atomic_load(&gs_session_state);
    /* a child made by a bare clone has the parent's memory and no fork handler */
    if (!atomic_load(&session.spooling) || session.pid != getpid() || !atomic_exchange(&session.spooling, false))
        return;
    /* What other threads do while the process ends comes after the recording's end: it is not lost. */
    atomic_store(&gs_session_state, GS_SESSION_OVER);
    atomic_store(&gs_session_live, 0);
    gs_deadly_hold();
    end_store(state);
    gs_deadly_drop();
}
