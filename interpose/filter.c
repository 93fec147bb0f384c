#include "interpose/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include "interpose/resolve.h"
#include "interpose/shield.h"
#include "schema/open_high.h"
#include "schema/system_call.h"

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

_Atomic unsigned gs_filter_refused;

/* --- what gpuspy calls, with arguments that have no effect ---------------------------------------
 *
 * Calls that a program with threads makes in any case are missing here, such as rt_sigprocmask and futex. */

static union {
    struct utsname names;
    struct statfs disk;
    sigset_t signals;
    char byte;
} answer; /* the child's own copy */
static const struct timespec no_time;

/* `prints`: a line on stderr needs it; `refused`: the bit of a call that gpuspy can do without. */
#define CALL_OF(prints, refused, name, ...) \
    {                                       \
#name, prints, refused, SYS_##name, \
        {                                   \
            __VA_ARGS__                     \
        }                                   \
    }
#define CALL(name, ...) CALL_OF(false, 0, name, __VA_ARGS__)
#define PRINTS(name, ...) CALL_OF(true, 0, name, __VA_ARGS__)
#define OPTIONAL(refused, name, ...) CALL_OF(false, refused, name, __VA_ARGS__)
#define AT(pointer) (long)(pointer)

static const struct {
    const char *name;
    bool prints;
    unsigned refused;
    long number, arguments[5];
} calls[] = {
    OPTIONAL(GS_FILTER_CHILDREN, clone, CLONE_SIGHAND),
    PRINTS(rt_sigpending, AT(&answer), 8),
    PRINTS(rt_sigtimedwait, AT(&answer), 0, AT(&no_time), 8),
#ifdef SYS_poll
    PRINTS(poll, 0, 0, 0),
#else
    PRINTS(ppoll, 0, 0, AT(&no_time), 0, 8),
#endif
    PRINTS(write, -1, AT(&answer), 0),
    PRINTS(fstat, -1, AT(&answer)),
    PRINTS(newfstatat, -1, AT(""), AT(&answer), AT_EMPTY_PATH),
    PRINTS(gettid, 0),
    PRINTS(getpid, 0),
    CALL(rt_sigaction, SIGTERM, 0, 0, 8), /* libc's too, for the first thread */
    CALL(clock_gettime, CLOCK_REALTIME, AT(&answer)),
    CALL(clock_nanosleep, CLOCK_REALTIME, 0, AT(&no_time), 0),
    CALL(getppid, 0),
    CALL(kill, 0x7fffffff, 0), /* is the process of another recording still there? */
    CALL(geteuid, 0),
    CALL(getrandom, AT(&answer), 0, 0),
    CALL(uname, AT(&answer)),
    CALL(prctl, PR_SET_NAME, AT("gpuspy-filter")),
    CALL(madvise, 0, 0, MADV_DONTNEED),
    CALL(munmap, 1, 1),
    CALL(process_vm_readv, 0, 0, 0, 0, 0),
    CALL(openat, AT_FDCWD, AT(""), O_RDWR | O_CREAT | O_CLOEXEC, 0600),
    CALL(close, -1),
    CALL(fcntl, -1, F_SETLK, 0),
    CALL(fcntl, -1, F_DUPFD_CLOEXEC, GS_HIGH_FD),
    CALL(read, -1, 0, 0),
    CALL(lseek, -1, 0, SEEK_SET),
    CALL(pread64, -1, 0, 0, 0),
    CALL(pwrite64, -1, 0, 0, 0),
    CALL(ftruncate, -1, 0),
    CALL(fdatasync, -1),
    CALL(fsync, -1),
    CALL(fchmod, -1, 0600),
    CALL(fchown, -1, -1, -1),
    CALL(statfs, AT(""), AT(&answer)),
    CALL(getcwd, 0, 0),
#ifdef SYS_readlink
    CALL(readlink, AT(""), AT(&answer), 1),
    CALL(access, AT(""), F_OK),
    CALL(link, AT(""), AT("")),
    CALL(unlink, AT("")),
#else
    CALL(readlinkat, AT_FDCWD, AT(""), AT(&answer), 1),
    CALL(faccessat, AT_FDCWD, AT(""), F_OK, 0),
    CALL(linkat, AT_FDCWD, AT(""), AT_FDCWD, AT(""), 0),
    CALL(unlinkat, AT_FDCWD, AT(""), 0),
#endif
    CALL(shmget, IPC_PRIVATE, 0, 0600),
    CALL(shmat, -1, 0, 0),
    CALL(shmctl, -1, IPC_STAT, AT(&answer)),
    CALL(shmdt, 1),
    OPTIONAL(GS_FILTER_PRIORITY, setpriority, -1, 0, 0),
    OPTIONAL(GS_FILTER_OWN_FILES, close_range, ~0U, ~0U, 0),
    OPTIONAL(GS_FILTER_PROGRAMS, execve, AT(""), 0, 0),
    OPTIONAL(GS_FILTER_PROGRAMS, setsid, 0),
    OPTIONAL(GS_FILTER_PROGRAMS, dup3, -1, -1, 0),
    OPTIONAL(GS_FILTER_PROGRAMS, chdir, AT("")),
};
enum { CALLS = sizeof calls / sizeof *calls };

/* --- trying them ---------------------------------------------------------------------------------- */

/* Shared with the child. Its exit status does not matter: another thread of the program may read it. */
struct trial {
    int next; /* the call that the child makes now */
};

/* Runs in the child. None of its functions is libc's, whose locks another thread may have held. */
static void try_calls(const void *program, struct trial *trial)
{
    const struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } by_default = {0};
    gs_system_call(SYS_rt_sigaction, SIGSYS, &by_default, 0, 8);
    if (!program || gs_system_call(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program) == 0)
        for (; trial->next < CALLS; trial->next++) {
            const long *a = calls[trial->next].arguments;
            gs_system_call(calls[trial->next].number, a[0], a[1], a[2], a[3], a[4]);
        }
    trial->next = CALLS;
    gs_system_call(SYS_exit_group, 0);
}

/* A child that sends no signal when it ends, and that wait() does not find. A filter can read the flags of clone, and
 * may end the process unless it makes a thread; it cannot read those of clone3, which glibc calls for threads. */
static long start_child(void)
{
    static const uint64_t like_fork[8]; /* struct clone_args: no flags */
    const char *(*version)(void) = (const char *(*)(void))gs_libc_function("gnu_get_libc_version");
    const long child =
        version && strverscmp(version(), "2.34") >= 0 ? gs_system_call(SYS_clone3, &like_fork, sizeof like_fork) : -1;
    return child < 0 ? gs_system_call(SYS_clone, 0) : child;
}

static bool run_trial(const void *program, struct trial *trial)
{
    struct gs_shield shield;
    gs_shield_begin(&shield);
    const long child = start_child();
    if (!child) {
        gs_system_call(SYS_prctl, PR_SET_DUMPABLE, 0); /* no core file */
        try_calls(program, trial);
    }
    while (child > 0 && gs_system_call(SYS_wait4, child, 0, __WCLONE) < 0 && errno == EINTR) continue;
    gs_shield_end(&shield);
    return child > 0;
}

enum { ALLOWED = -1 };

/* The first of gpuspy's calls that it needs and that ends the process; CALLS if no child can try them. */
static int find_refused(const void *program)
{
    unsigned refused = gs_filter_refused;
    int found = ALLOWED;
    if (refused & GS_FILTER_CHILDREN) return CALLS;
    struct trial *trial = mmap(NULL, sizeof *trial, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (trial == MAP_FAILED) return CALLS;
    while (found == ALLOWED && trial->next < CALLS)
        if (!run_trial(program, trial))
            found = CALLS;
        else if (trial->next < CALLS && !calls[trial->next].refused)
            found = trial->next;
        else if (trial->next < CALLS)
            refused |= calls[trial->next++].refused;
    munmap(trial, sizeof *trial);
    atomic_store(&gs_filter_refused, refused);
    return found;
}

static bool trial_allows(int found, char *why, size_t size)
{
    if (found == CALLS)
        snprintf(why, size, "a seccomp filter is set, and no child process can try what it allows");
    else if (found != ALLOWED)
        snprintf(why, size, "a seccomp filter ends the process at %s, which gpuspy needs", calls[found].name);
    return found == ALLOWED;
}

/* A filter may end the thread that asks for it. An inherited one has allowed prctl when the library was loaded. */
static _Atomic bool added;
static _Atomic int expected = CALLS; /* what was found before the last one was added */

bool gs_filter_allows(char *why, size_t size)
{
    if (!added && gs_system_call(SYS_prctl, PR_GET_SECCOMP) != SECCOMP_MODE_FILTER) return true;
    const int found = gs_filter_refused & GS_FILTER_CHILDREN ? expected : find_refused(NULL);
    if (trial_allows(found, why, size)) return true;
    if (found < CALLS && calls[found].prints) *why = 0;
    return false;
}

bool gs_filter_would_allow(const void *program, char *why, size_t size)
{
    expected = find_refused(program);
    return trial_allows(expected, why, size);
}

void gs_filter_added(void)
{
    added = true;
}
