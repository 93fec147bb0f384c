#include "interpose/shield.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "interpose/clock.h"
#include "interpose/resolve.h"
#include "schema/system_call.h"

void gs_shield_begin(struct gs_shield *s)
{
    sigset_t all;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &s->cancel);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &s->signals);
}

void gs_shield_end(struct gs_shield *s)
{
    pthread_sigmask(SIG_SETMASK, &s->signals, NULL);
    pthread_setcancelstate(s->cancel, NULL);
}

/* --- signals at the end ------------------------------------------------------------------------ */

/* A handler and no mask, because any of the program's threads may receive them; and not SIG_IGN, because a program that
 * another thread starts now would inherit it. */
static const int deadly[] = {SIGHUP, SIGINT, SIGTERM, SIGALRM, SIGVTALRM, SIGPROF, SIGUSR1, SIGUSR2};
enum { DEADLY = sizeof deadly / sizeof *deadly };
static struct {
    bool held;
    struct sigaction before;
} deadly_state[DEADLY];
static _Atomic int deadly_arrived;
static _Atomic pid_t deadly_owner;

/* A child that another thread makes without fork handlers (_Fork, a bare clone) has this handler, too: the signal ends
 * it when this returns. */
static void note_deadly(int number)
{
    static const uint64_t standard[8]; /* the kernel's struct: the default handler. The program may define sigaction */
    const int saved = errno;
    const pid_t self = getpid();
    if (self == deadly_owner)
        atomic_store(&deadly_arrived, number);
    else if (gs_system_call(SYS_rt_sigaction, number, standard, NULL, sizeof *standard) == 0)
        gs_system_call(SYS_tgkill, self, gs_system_call(SYS_gettid), number);
    errno = saved;
}

void gs_deadly_hold(void)
{
    const struct sigaction note = {.sa_handler = note_deadly, .sa_flags = SA_RESTART | SA_ONSTACK};
    deadly_owner = getpid();
    for (int i = 0; i < DEADLY; i++) {
        struct sigaction *before = &deadly_state[i].before;
        deadly_state[i].held =
            !sigaction(deadly[i], NULL, before) && before->sa_handler == SIG_DFL && !sigaction(deadly[i], &note, NULL);
    }
}

static void restore_deadly(void)
{
    struct sigaction now;
    for (int i = 0; i < DEADLY; i++) {
        if (deadly_state[i].held && !sigaction(deadly[i], NULL, &now) && now.sa_handler == note_deadly)
            (void)sigaction(deadly[i], &deadly_state[i].before, NULL);
        deadly_state[i].held = false;
    }
}

void gs_deadly_drop(void)
{
    restore_deadly();
    atomic_store(&deadly_arrived, 0);
}

void gs_deadly_deliver(void)
{
    restore_deadly();
    const int number = atomic_exchange(&deadly_arrived, 0);
    if (number) gs_system_call(SYS_tgkill, getpid(), gs_system_call(SYS_gettid), number);
}

/* --- threads of our own ------------------------------------------------------------------------ */

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static __thread bool own_files __attribute__((tls_model("initial-exec")));

bool gs_own_files(void)
{
    const int saved = errno;
    own_files = !gs_system_call(SYS_close_range, 0U, ~0U, CLOSE_RANGE_UNSHARE);
    errno = saved;
    return own_files;
}

bool gs_has_own_files(void)
{
    return own_files;
}

/* A program's thread-locals are on each thread's stack: 250 KB of them would leave nothing of 256. glibc reports how
 * much they and the thread itself take; NULL if it does not. Looked up when the library is loaded: the first thread may
 * be started inside a dlopen, under the loader's lock. */
static size_t (*least_stack)(const pthread_attr_t *);

void gs_shield_load(void)
{
    *(void **)&least_stack = gs_libc_function("__pthread_get_minstack");
}

static size_t is_stack_taken(const pthread_attr_t *attr)
{
    if (!least_stack) gs_shield_load(); /* called before gpuspy's constructor */
    return least_stack ? least_stack(attr) : 0;
}

struct thread_start {
    void *(*run)(void *);
    void *argument;
    bool own_files;
};

/* A thread shares the table of the one that started it. Its first free() would reserve 64 MiB of addresses for it,
 * which count against RLIMIT_AS, even if it never allocates. */
static void *run_thread(void *given)
{
    const struct thread_start start = *(struct thread_start *)given;
    munmap(given, sizeof start);
    own_files = start.own_files;
    gs_clock_allow();
    return start.run(start.argument);
}

static int start_thread(pthread_t *thread, size_t stack, struct thread_start *start)
{
    pthread_attr_t attr;
    struct gs_shield shield;
    int failed = pthread_attr_init(&attr);
    if (failed) return failed;
    if (stack) pthread_attr_setstacksize(&attr, (stack + is_stack_taken(&attr) + 4095) & ~(size_t)4095);
    /* the application's signals must not reach this thread */
    gs_shield_begin(&shield);
    failed = pthread_create(thread, &attr, run_thread, start);
    gs_shield_end(&shield);
    pthread_attr_destroy(&attr);
    return failed;
}

int gs_start_thread(pthread_t *thread, size_t stack, void *(*run)(void *), void *argument)
{
    struct thread_start *start = mmap(NULL, sizeof *start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return ENOMEM;
    *start = (struct thread_start){run, argument, own_files};
    int failed = start_thread(thread, stack, start);
    /* thread-locals larger than that stack, if glibc did not report their size */
    if (failed == EINVAL) failed = start_thread(thread, 0, start);
    if (failed) munmap(start, sizeof *start);
    return failed;
}
