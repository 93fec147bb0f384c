/* The ways in which a process ends or becomes another program. */
#include "tests/torture/torture.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

void exec_chain(uint32_t n)
{
    static char next[32];
    static char *words[100];
    size_t count = 0;
    if (n / 8 % 4) t_work(n / 8 % 4); /* some programs of the chain never call CUDA */
    if (n % 8 == 0) return;
    snprintf(next, sizeof next, "exec_chain=%u", n / 64 * 64 + t_next(&n) % 4 * 8 + (n % 8 ? n % 8 - 1 : 0));
    words[count++] = next;
    for (char **rest = t_rest; *rest && count < sizeof words / sizeof *words - 1; rest++) words[count++] = *rest;
    t_become(words);
}

void end_exit(uint32_t n)
{
    t_work(n % 30);
    t_ending();
    exit(4);
}

void end_now(uint32_t n)
{
    t_work(n % 30);
    if (n & 32) t_crew_start(3);
    _exit(5);
}

void end_quick(uint32_t n)
{
    t_work(n % 30);
    quick_exit(6);
}

void end_abort(uint32_t n)
{
    t_work(n % 30);
    abort();
}

void end_kill(uint32_t n)
{
    t_work(n % 30);
    t_crew_start(n / 32 % 8);
    t_sleep_us(n % 3000);
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

void end_fault(uint32_t n)
{
    t_work(n % 30);
    *(volatile int *)(uintptr_t)(n & 1 ? 0 : 8) = 1;
}

void end_constructor(uint32_t n)
{
    if (n & 1) t_work(2);
    t_plugin_mode = T_CTOR_EXIT | (n & 2 ? T_CTOR_WORK : 0);
    dlopen(t_plugin(3), RTLD_NOW);
    t_log("WRONG: the constructor returned");
}

static void *exit_in_thread(void *unused)
{
    (void)unused;
    t_work(3);
    t_ending();
    exit(8);
}

void end_thread(uint32_t n)
{
    t_crew_start(n % 6);
    t_sleep_us(n % 5000);
    t_start(exit_in_thread, NULL, 0);
    for (;;) pause();
}

static void exit_in_handler(int number)
{
    (void)number;
    t_ending();
    exit(9);
}

void end_handler(uint32_t n)
{
    const struct itimerval once = {.it_value = {0, 1000 + n % 5000}};
    t_flag(T_MAY_LOSE); /* the handler may interrupt the recorder */
    signal(SIGALRM, exit_in_handler);
    setitimer(ITIMER_REAL, &once, NULL);
    for (;;) t_deep_work(n % 8, 1);
}

static void work_at_exit(void)
{
    t_work(3);
    t_sleep_us(2000);
}

void end_atexit(uint32_t n)
{
    if (n & 1) t_work(2);
    atexit(work_at_exit);
    if (n & 2) t_work(2);
    t_crew_start(n / 4 % 6);
    t_ending();
    exit(10);
}

static void *end_later(void *exits)
{
    t_sleep_us(3000);
    t_work(3);
    t_ending();
    if (exits) exit(11);
    return NULL;
}

void end_main_thread(uint32_t n)
{
    t_work(n % 10);
    t_start(end_later, &t_plugin_mode, 0);
    pthread_exit(NULL);
}

void end_all_threads(uint32_t n)
{
    t_work(n % 10);
    for (int i = 0; i < 3; i++) t_start(end_later, NULL, 0);
    pthread_exit(NULL);
}

void end_daemon(uint32_t n)
{
    if (n & 1) t_work(2);
    if (n & 2) t_flag(T_MAY_LOSE); /* daemon() closes the recorder's descriptors */
    T_CHECK(!daemon(1, n & 4 ? 0 : 1));
    if (n & 2) close_range(3, ~0u, 0), t_flag(T_MAY_LOSE);
    t_work(n % 30);
    t_ending();
    exit(12);
}

void end_program(uint32_t n)
{
    t_work(n % 10);
    if (n & 1) t_crew_start(3);
    execl("/bin/sh", "sh", "-c", "echo another program; exit 13", NULL);
    _exit(126);
}
