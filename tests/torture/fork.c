/* Behaviours of processes and their children. A child calls CUDA only where a real one may: simcuda, like a driver,
 * refuses in a child of a process that has a context, and the refusals are the same in both runs. */
#include "tests/torture/torture.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void child_ends(unsigned pairs)
{
    t_work(pairs);
    _exit(5);
}

static void fork_once(const char *who, unsigned pairs)
{
    pid_t child = fork();
    if (child < 0) t_log("WRONG: fork: %s", strerror(errno));
    if (!child) child_ends(pairs);
    if (child > 0) t_log_end_of(who, child);
}

/* --- the program's own fork handlers ------------------------------------------------------------------- */

static void call_cuda(void)
{
    t_work(1);
}

void atfork_cuda(uint32_t n)
{
    T_CHECK(!pthread_atfork(call_cuda, call_cuda, n & 1 ? call_cuda : NULL));
    if (n & 2) t_work(3);
    fork_once("atfork_cuda", 3);
    fork_once("atfork_cuda", 3);
}

void atfork_late(uint32_t n)
{
    t_work(1);
    atfork_cuda(n);
}

void atfork_plugin(uint32_t n)
{
    t_plugin_mode = T_CTOR_ATFORK | (n & 1 ? T_CTOR_WORK : 0);
    void *library = dlopen(t_plugin(2), RTLD_NOW);
    T_CHECK(library);
    t_plugin_mode = 0;
    fork_once("atfork_plugin", 3);
    if (library && n & 2) dlclose(library);
    fork_once("atfork_plugin", 3);
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned asked, done;
    pid_t pid;
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *help(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&helper.lock);
        while (helper.asked == helper.done) pthread_cond_wait(&helper.changed, &helper.lock);
        pthread_mutex_unlock(&helper.lock);
        t_deep_work(3, 3);
        pthread_mutex_lock(&helper.lock);
        helper.done = helper.asked;
        pthread_cond_broadcast(&helper.changed);
        pthread_mutex_unlock(&helper.lock);
    }
    return NULL;
}

static void ask_and_wait(void)
{
    if (helper.pid != getpid()) return; /* the helper is a thread of the parent only */
    pthread_mutex_lock(&helper.lock);
    helper.asked++;
    pthread_cond_broadcast(&helper.changed);
    while (helper.asked != helper.done) pthread_cond_wait(&helper.changed, &helper.lock);
    pthread_mutex_unlock(&helper.lock);
}

void atfork_wait(uint32_t n)
{
    if (helper.pid != getpid()) pthread_detach(t_start(help, NULL, 0));
    helper.pid = getpid();
    T_CHECK(!pthread_atfork(ask_and_wait, n & 1 ? ask_and_wait : NULL, NULL));
    if (n & 2) t_work(2);
    for (int i = 0; i < 3; i++) fork_once("atfork_wait", 2);
}

/* --- fork and similar calls ------------------------------------------------------------------------------- */

void fork_first(uint32_t n)
{
    fork_once("fork_first", n % 20);
}

static void *fork_often(void *argument)
{
    for (uintptr_t i = 0; i < 5; i++) fork_once("fork_storm", (unsigned)(uintptr_t)argument);
    return NULL;
}

/* The driver is loaded before: a child that is forked while another thread loads it has half of it, and may crash in
 * it, also without gpuspy. */
void fork_storm(uint32_t n)
{
    pthread_t threads[6];
    const unsigned count = t_pick(&n, 1, 6);
    dlopen("libcuda.so.1", RTLD_NOW);
    t_crew_start(t_pick(&n, 0, 6));
    for (unsigned i = 0; i < count; i++) threads[i] = t_start(fork_often, (void *)(uintptr_t)(t_next(&n) % 4), 0);
    for (unsigned i = 0; i < count; i++) pthread_join(threads[i], NULL);
    t_crew_stop();
}

void vfork_exec(uint32_t n)
{
    char **words = t_leaf(n % 10);
    for (int i = 0; i < 2; i++) {
        pid_t child = vfork();
        if (!child) {
            execv(words[0], words);
            _exit(127);
        }
        t_log_end_of("vfork_exec", child);
    }
}

void spawn(uint32_t n)
{
    pid_t child;
    char **words = t_leaf(n % 10);
    int failed = posix_spawn(&child, words[0], NULL, NULL, words, environ);
    T_CHECK(!failed);
    if (!failed) t_log_end_of("spawn", child);
}

/* Bypasses the C library: no fork handler runs, and gpuspy does not record the child. */
void clone_raw(uint32_t n)
{
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    pid_t child;
    if (n % 3 == 0)
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    else if (n % 3 == 1)
        child = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    else
        child = _Fork();
    if (!child) {
        t_flag(T_UNRECORDED | T_MAY_LOSE);
        if (n & 4) t_work(5);
        syscall(SYS_exit_group, 6);
    }
    if (child > 0)
        t_log_end_of("clone_raw", child);
    else
        t_log("clone_raw: %s", strerror(errno));
}

static int child_that_shares(void *unused)
{
    (void)unused;
    return 8; /* calls no CUDA, because thread-local memory is the parent's */
}

void clone_vm(uint32_t n)
{
    static char stack[65536] __attribute__((aligned(16)));
    pid_t child = clone(child_that_shares, stack + sizeof stack, CLONE_VM | (n & 1 ? CLONE_VFORK : 0) | SIGCHLD, NULL);
    if (child > 0) t_log_end_of("clone_vm", child);
}

void double_fork(uint32_t n)
{
    int ends[2];
    char byte;
    if (pipe(ends)) return;
    pid_t child = fork();
    if (!child) {
        close(ends[0]);
        if (!fork()) child_ends(n % 10);
        _exit(0);
    }
    close(ends[1]);
    t_log_end_of("double_fork", child);
    T_CHECK(read(ends[0], &byte, 1) == 0); /* waits for the grandchild's end, too */
    close(ends[0]);
}

/* --- other relations of processes ------------------------------------------------------------------------- */

static void wait_to_be_killed(unsigned pairs)
{
    t_work(pairs);
    for (;;) pause();
}

static pid_t killed_grandchild(unsigned pairs)
{
    int ends[2];
    pid_t grandchild = 0;
    if (pipe(ends)) return -1;
    pid_t child = fork();
    if (!child) {
        grandchild = fork();
        if (!grandchild) {
            close(ends[0]), close(ends[1]);
            wait_to_be_killed(pairs);
        }
        T_CHECK(write(ends[1], &grandchild, sizeof grandchild) == sizeof grandchild);
        _exit(0);
    }
    T_CHECK(read(ends[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    close(ends[0]), close(ends[1]);
    t_log_end_of("subreaper's child", child);
    return grandchild;
}

void subreaper(uint32_t n)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int i = 0; i < 3; i++) {
        pid_t grandchild = killed_grandchild(n % 5);
        t_sleep_us(1000 * (n % 7));
        if (grandchild > 0) kill(grandchild, SIGKILL);
        t_log_end_of("grandchild", -1);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    t_log_children("subreaper");
}

static void *make_bound_child(void *argument)
{
    int ends[2];
    char byte = 0;
    if (pipe(ends)) return NULL;
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        t_work(2);
        T_CHECK(write(ends[1], &byte, 1) == 1);
        for (;;) pause();
    }
    T_CHECK(read(ends[0], &byte, 1) == 1);
    close(ends[0]), close(ends[1]);
    *(pid_t *)argument = child;
    return NULL; /* the thread that created the child ends, so the child gets SIGTERM */
}

void death_signal(uint32_t n)
{
    pid_t child = 0;
    if (n & 1) t_work(1);
    pthread_join(t_start(make_bound_child, &child, 0), NULL);
    if (child > 0) t_log_end_of("death_signal", child);
}

void traced(uint32_t n)
{
    int status;
    unsigned stops = 0;
    pid_t child = fork();
    if (!child) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        t_work(n % 5);
        raise(SIGUSR1);
        _exit(7);
    }
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        stops++;
        ptrace(PTRACE_CONT, child, NULL, NULL); /* drops its signal */
    }
    t_log("traced: %u stops, exit %d", stops, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* The driver runs `gpuspy report` for the child meanwhile: a zombie must not count as recording. */
void zombie(uint32_t n)
{
    siginfo_t info;
    int ends[2];
    char byte = 0;
    if (pipe(ends)) return;
    pid_t child = fork();
    if (!child) {
        t_work(1 + n % 20);
        T_CHECK(write(ends[1], &byte, 1) == 1);
        for (;;) pause();
    }
    T_CHECK(read(ends[0], &byte, 1) == 1);
    close(ends[0]), close(ends[1]);
    kill(child, SIGKILL);
    waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
    t_meet("report", child);
    t_log_end_of("zombie", child);
}
