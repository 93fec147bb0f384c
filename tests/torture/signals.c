/* Behaviours of signals: handlers that call CUDA at any instruction, masks, signals for which a thread waits. */
#include "tests/torture/torture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Atomic unsigned handled;

static void call_in_handler(int number)
{
    (void)number;
    t_work(1);
    handled++;
}

static void handle(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void timer(unsigned us)
{
    const struct itimerval interval = {{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &interval, NULL);
}

/* Ends after a fixed number of calls: if the recorder made the handlers take longer than the interval, the program
 * would make no progress, and the case would hang. */
static void work_while_interrupted(unsigned us, unsigned pairs)
{
    timer(us);
    for (unsigned i = 0; i < pairs; i++) t_deep_work(i % 8, 5);
    timer(0);
    handle(SIGALRM, SIG_DFL, 0);
}

void alarm_storm(uint32_t n)
{
    static char stack[65536];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack}, none = {.ss_flags = SS_DISABLE};
    const unsigned us = t_pick(&n, 50, 1000), crew = t_pick(&n, 0, 2);
    t_flag(T_COUNTED);
    if (n & 1) sigaltstack(&own, NULL);
    handle(SIGALRM, call_in_handler, SA_RESTART | (n & 1 ? SA_ONSTACK : 0));
    t_crew_start(crew);
    work_while_interrupted(us, 2000);
    t_crew_stop();
    if (n & 1) sigaltstack(&none, NULL);
}

static sigjmp_buf back;
static __thread volatile sig_atomic_t may_jump; /* the signal may go to any thread */

static void jump(int number)
{
    (void)number;
    if (!may_jump) return;
    may_jump = 0;
    siglongjmp(back, 1);
}

void alarm_jump(uint32_t n)
{
    volatile unsigned jumps = 0;
    t_flag(T_MAY_LOSE);
    handle(SIGALRM, jump, 0);
    timer(t_pick(&n, 100, 1000));
    if (sigsetjmp(back, 1)) jumps++;
    while (jumps < 100) {
        may_jump = 1;
        for (unsigned i = 0; may_jump; i++) t_deep_work(i % 8, 1);
    }
    may_jump = 0;
    timer(0);
    handle(SIGALRM, SIG_DFL, 0);
    t_work(5);
}

void masks(uint32_t n)
{
    sigset_t all, before, now;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (n & 1) raise(SIGUSR1);
    thread_storm(n % 3);
    t_work(5);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int i = 1; i < 32; i++)
        if (i != SIGKILL && i != SIGSTOP) T_CHECK(sigismember(&now, i));
    if (n & 1) {
        const struct timespec soon = {1, 0};
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGUSR1);
        T_CHECK(sigtimedwait(&one, NULL, &soon) == SIGUSR1);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    t_work(1);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int i = 1; i < 65; i++) T_CHECK(sigismember(&now, i) == sigismember(&before, i));
}

static void *receive(void *argument)
{
    sigset_t one;
    siginfo_t info;
    uintptr_t sum = 0;
    sigemptyset(&one);
    sigaddset(&one, SIGRTMIN + 1);
    for (int i = 0; i < 200; i++) {
        while (sigwaitinfo(&one, &info) < 0) continue;
        sum += (uintptr_t)info.si_value.sival_int;
        t_work(1);
    }
    return (void *)sum;
}

void wait_signals(uint32_t n)
{
    sigset_t one, before;
    void *sum = NULL;
    sigemptyset(&one);
    sigaddset(&one, SIGRTMIN + 1);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    if (n & 1) t_work(1);
    pthread_t thread = t_start(receive, NULL, 0);
    for (int i = 0; i < 200; i++) {
        while (sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i}) != 0) t_sleep_us(100);
        t_work(1);
    }
    pthread_join(thread, &sum);
    T_CHECK((uintptr_t)sum == 199 * 200 / 2);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static _Atomic unsigned reaped, strangers;

static void reap(int number)
{
    int status;
    const int before = errno;
    (void)number;
    while (waitpid(-1, &status, WNOHANG) > 0) {
        reaped++;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 9) strangers++;
    }
    errno = before;
}

void child_signals(uint32_t n)
{
    const unsigned count = t_pick(&n, 1, 10);
    reaped = strangers = 0;
    handle(SIGCHLD, reap, SA_RESTART);
    for (unsigned i = 0; i < count; i++) {
        if (!fork()) {
            t_work(1);
            _exit(9);
        }
        t_work(3);
    }
    for (int i = 0; reaped < count && i < 5000; i++) t_sleep_us(1000);
    handle(SIGCHLD, SIG_DFL, 0);
    t_log("child_signals: %u of %u reaped, %u strangers", reaped, count, strangers);
}
