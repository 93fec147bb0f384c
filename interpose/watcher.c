#include "interpose/watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "interpose/resolve.h"
#include "interpose/shield.h"
#include "schema/open_high.h"
#include "schema/system_call.h"

#define STACK_BYTES (1024 * 1024) /* the program's exit handlers may run on it */
#define REST_MS 2000
enum { GOES_ON = -1 }; /* otherwise the signal that ended the program's last thread, its status << 8, or 0 */
enum { EMPTY, FILLING, FULL };

static struct {
    sem_t wake;
    _Atomic bool running, stop, ended;
    _Atomic long thread; /* its number, once it runs */
    void (*end_session)(void);
    _Atomic int end;
    _Atomic int line_state;
    char line[2048];
    size_t line_len;
} watcher = {.end = GOES_ON};

/* --- stderr ----------------------------------------------------------------------------------- */

#define PATIENCE_MS 200 /* time for the reader of stderr */
static struct stat stderr_at_load;
static enum { STDERR_UNKNOWN, STDERR_CLOSED, STDERR_OPEN } stderr_was;

void gs_stderr_load(void)
{
    stderr_was = gs_file_status(STDERR_FILENO, &stderr_at_load) == 0 ? STDERR_OPEN : STDERR_CLOSED;
}

/* A program that was started without stderr, or a daemon that closed it, may have a data file, a socket or an eventfd
 * of its own at number 2 now. */
static bool stderr_is_ours(void)
{
    struct stat now;
    if (stderr_was == STDERR_UNKNOWN) gs_stderr_load(); /* called before gpuspy's constructor */
    if (stderr_was == STDERR_CLOSED || gs_file_status(STDERR_FILENO, &now) != 0) return false;
    if (S_ISFIFO(now.st_mode) || S_ISCHR(now.st_mode)) return true;
    return now.st_dev == stderr_at_load.st_dev && now.st_ino == stderr_at_load.st_ino;
}

/* A closed reader must not kill the program (SIGPIPE), and a slow one must not block it: a pipe that is writable
 * accepts a whole line of this length. */
static void write_line(const char *line, size_t len)
{
    struct pollfd stderr_now = {.fd = STDERR_FILENO, .events = POLLOUT};
    for (size_t done = 0; done < len;) {
        if (poll(&stderr_now, 1, PATIENCE_MS) != 1) return;
        const long wrote = gs_system_call(SYS_write, STDERR_FILENO, line + done, len - done);
        if (wrote < 0 && errno != EINTR) return;
        if (wrote > 0) done += (size_t)wrote;
    }
}

void gs_write_line(const char *line, size_t len)
{
    const struct timespec now = {0, 0};
    sigset_t ours, pending;
    struct gs_shield shield;
    if (!stderr_is_ours()) return;
    gs_shield_begin(&shield);
    sigpending(&pending);
    write_line(line, len);
    sigemptyset(&ours);
    if (!sigismember(&pending, SIGPIPE)) sigaddset(&ours, SIGPIPE);
    if (!sigismember(&pending, SIGXFSZ)) sigaddset(&ours, SIGXFSZ); /* stderr is a file at its size limit */
    while (sigtimedwait(&ours, NULL, &now) > 0 || errno == EINTR) continue;
    gs_shield_end(&shield);
}

/* --- printing --------------------------------------------------------------------------------- */

void gs_watcher_print(const char *line, size_t len)
{
    int empty = EMPTY;
    if (!atomic_compare_exchange_strong(&watcher.line_state, &empty, FILLING)) return;
    watcher.line_len = len < sizeof watcher.line ? len : sizeof watcher.line;
    memcpy(watcher.line, line, watcher.line_len);
    atomic_store(&watcher.line_state, FULL);
    if (atomic_load(&watcher.running)) sem_post(&watcher.wake);
}

static void print_watched_line(void)
{
    int full = FULL;
    if (!atomic_compare_exchange_strong(&watcher.line_state, &full, FILLING)) return;
    gs_write_line(watcher.line, watcher.line_len);
    atomic_store(&watcher.line_state, EMPTY);
}

/* --- the process's end ------------------------------------------------------------------------ */

/* Without gpuspy's threads the process would have ended with its last thread: with exit(0) if that thread returned, by
 * the signal if the kernel ended it (seccomp). */
static void end_watched_process(int number)
{
    if (number > 0xff) { /* the status of a thread that made the exit system call itself: no handlers run */
        watcher.end_session();
        _exit(number >> 8);
    }
    if (number) {
        sigset_t set;
        watcher.end_session(); /* no destructor runs */
        const struct sigaction by_default = {.sa_handler = SIG_DFL};
        sigaction(number, &by_default, NULL);
        sigemptyset(&set);
        sigaddset(&set, number);
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        gs_system_call(SYS_tgkill, getpid(), gs_system_call(SYS_gettid), number);
    }
    exit(0);
}

struct tasks_seen {
    bool leader_gone;
    long others;   /* threads of the program besides the leader */
    int exit_code; /* the leader's, as waitpid returns it */
    long killed;   /* threads that the kernel ended without libc's knowledge; -1 unknown */
};

/* The beginning of field `to`, where `at` is the beginning of field `from`; NULL if the line is shorter. */
static const char *field_between(const char *at, int from, int to)
{
    for (; at && from < to; from++)
        if ((at = strchr(at, ' '))) at++;
    return at;
}

/* A leader that has ended has no executable any more. Nothing is opened for this check, because it runs often beside a
 * program that may be opening files. */
static bool inspect_living_leader(struct tasks_seen *l, unsigned own)
{
    struct stat tasks;
    char one;
    if (readlink("/proc/self/exe", &one, 1) < 0) return false;
    if (gs_path_status("/proc/self/task", &tasks) || tasks.st_nlink < 3)
        return false; /* one link per thread, and two more */
    *l = (struct tasks_seen){.others = (long)tasks.st_nlink - 3 - (long)own};
    return true;
}

/* /proc/self/stat is the leader's: "pid (name) state …". Field 20 is the number of threads, 52 the exit code. */
static bool inspect_leader(struct tasks_seen *l, unsigned own)
{
    char text[1024];
    if (inspect_living_leader(l, own)) return true;
    const int fd = gs_open_high("/proc/self/stat", O_RDONLY, 0);
    const ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (len <= 0) return false;
    text[len] = 0;
    const char *state = strrchr(text, ')'); /* the name may contain anything */
    if (!state || state[1] != ' ') return false;
    state += 2;
    const char *threads = field_between(state, 3, 20), *code = field_between(state, 3, 52);
    l->leader_gone = *state == 'Z' || *state == 'X';
    l->others = threads ? strtol(threads, NULL, 10) - 1 - (long)own : 1;
    l->exit_code = code ? (int)strtol(code, NULL, 10) : 0;
    return true;
}

/* Threads of the program by libc's own count, which includes threads that the kernel has ended; -1 unknown. */
static long counted_threads(unsigned own)
{
    static const unsigned *threads;
    if (!threads) threads = gs_libc_function("__nptl_nthreads");
    return threads ? (long)__atomic_load_n(threads, __ATOMIC_RELAXED) - (long)own : -1;
}

bool gs_program_ended(unsigned own, int *signal)
{
    static struct tasks_seen before; /* initially only the leader is known */
    struct tasks_seen now;
    const long counted = counted_threads(own);
    if (!inspect_leader(&now, own)) { /* no /proc, in a chroot for example */
        *signal = 0;
        return counted == 0;
    }
    now.killed = counted < 0 ? -1 : counted - now.others - !now.leader_gone;
    if (!now.leader_gone || now.others > 0) {
        before = now;
        return false;
    }
    const int leaders = now.exit_code & 0x7f ? now.exit_code & 0x7f : now.exit_code & 0xff00;
    /* Of those that ended since the last look, the leader was more likely the last one if it was killed: threads are
     * joined before that far more often than they end in the tenth of a second after it. */
    const bool leader_was_last = !before.leader_gone && (before.others <= 0 || leaders);
    if (leader_was_last || now.killed < 0)
        *signal = leaders;
    else
        *signal = now.killed > before.killed ? SIGSYS : 0;
    return true;
}

void gs_watcher_end_process(int number)
{
    atomic_store(&watcher.end, number);
    sem_post(&watcher.wake);
}

/* --- the thread ------------------------------------------------------------------------------- */

static void *run_watcher(void *unused)
{
    gs_system_call(SYS_prctl, PR_SET_NAME, "gpuspy-watch");
    atomic_store(&watcher.thread, gs_system_call(SYS_gettid));
    while (!atomic_load(&watcher.stop)) {
        while (sem_wait(&watcher.wake) && errno == EINTR) continue;
        print_watched_line();
        const int end = atomic_load(&watcher.end);
        if (end != GOES_ON) end_watched_process(end);
    }
    atomic_store(&watcher.ended, true);
    return NULL;
}

int gs_watcher_start(void (*end_session)(void))
{
    pthread_t thread;
    watcher.end_session = end_session;
    if (sem_init(&watcher.wake, 0, 0)) return errno;
    atomic_store(&watcher.stop, false);
    atomic_store(&watcher.ended, false);
    atomic_store(&watcher.running, true);
    const int failed = gs_start_thread(&thread, STACK_BYTES, run_watcher, NULL);
    if (failed)
        atomic_store(&watcher.running, false);
    else
        pthread_detach(thread);
    return failed;
}

void gs_watcher_stop(void)
{
    if (!gs_has_own_files()) print_watched_line(); /* otherwise the thread prints it before it ends */
    if (!atomic_exchange(&watcher.running, false)) return;
    atomic_store(&watcher.stop, true);
    sem_post(&watcher.wake);
}

/* Also for the kernel, which counts it against the limit of the program's user (RLIMIT_NPROC) for a moment longer. */
static bool has_thread_ended(void)
{
    char task[64];
    struct stat status;
    snprintf(task, sizeof task, "/proc/self/task/%ld", atomic_load(&watcher.thread));
    return atomic_load(&watcher.ended) && gs_path_status(task, &status) != 0;
}

bool gs_watcher_rest(void)
{
    const struct timespec step = {.tv_nsec = 1000000};
    for (int ms = REST_MS; atomic_load(&watcher.stop) && !has_thread_ended() && ms > 0; ms--) nanosleep(&step, NULL);
    return !atomic_load(&watcher.running) && (!atomic_load(&watcher.stop) || atomic_load(&watcher.ended));
}

void gs_watcher_forget(void)
{
    memset(&watcher, 0, sizeof watcher);
    watcher.end = GOES_ON;
}
