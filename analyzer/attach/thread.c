/* Uses ptrace on one thread only: the other threads continue, and can release a lock for which the call waits. The
 * called function returns to address 0 and faults there; gpuspy intercepts that SIGSEGV, so the program never sees it.
 */
#include "analyzer/attach/thread.h"
#include "analyzer/base/clock.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

enum { RED_ZONE = 256, CALL_MS = 20000, STOP_MS = 2000, ATTEMPTS = 100 };

#if defined(__x86_64__)
typedef struct user_regs_struct registers;
static const int extended_sets[] = {NT_X86_XSTATE, NT_PRFPREG};

#define STACK_OF(r) ((r)->rsp)
#define PLACE_OF(r) ((r)->rip)
#define RESULT_OF(r) ((r)->rax)
static uintptr_t thread_pointer_of(const struct attach_thread *t, const registers *r)
{
    return r->fs_base;
}
static long syscall_of(const struct attach_thread *t, const registers *r)
{
    return (long)r->orig_rax;
}

static bool set_call(const struct attach_thread *t, registers *r, uintptr_t function, const uintptr_t *arguments)
{
    const uintptr_t nowhere = 0;
    r->rsp = (t->below & ~(uintptr_t)15) - sizeof nowhere; /* the alignment that a call instruction leaves */
    r->rip = function;
    r->rdi = arguments[0];
    r->rsi = arguments[1];
    r->rax = 0;                           /* number of vector arguments */
    r->orig_rax = (unsigned long long)-1; /* keeps the kernel from restarting a system call */
    r->eflags &= ~0x500ull;               /* clears the direction and the trap flag */
    return attach_thread_write(t, r->rsp, &nowhere, sizeof nowhere);
}

/* Makes the kernel begin the system call again. Returns whether it must. */
static bool repeat_syscall(registers *r)
{
    const long restart_unless_handled = -514; /* ERESTARTNOHAND, which the kernel does not export */
    if ((long)r->orig_rax < 0 || (long)r->rax != -EINTR || (long)r->orig_rax == SYS_close) return false;
    r->rax = (unsigned long long)restart_unless_handled;
    return true;
}
#elif defined(__aarch64__)
typedef struct user_regs_struct registers;
static const int extended_sets[] = {NT_ARM_SVE, NT_PRFPREG};

#define STACK_OF(r) ((r)->sp)
#define PLACE_OF(r) ((r)->pc)
#define RESULT_OF(r) ((r)->regs[0])
static uintptr_t thread_pointer_of(const struct attach_thread *t, const registers *r)
{
    uintptr_t at = 0;
    struct iovec v = {&at, sizeof at};
    return ptrace(PTRACE_GETREGSET, t->tid, (void *)(intptr_t)NT_ARM_TLS, &v) == 0 ? at : 0;
}
/* If the stop interrupted a system call, pc is again at its svc instruction: the thread is about to repeat it. */
static long syscall_of(const struct attach_thread *t, const registers *r)
{
    uint32_t instruction;
    const bool again = attach_thread_read(t, r->pc, &instruction, sizeof instruction) && instruction == 0xd4000001;
    return again ? (long)r->regs[8] : -1;
}

static bool set_call(const struct attach_thread *t, registers *r, uintptr_t function, const uintptr_t *arguments)
{
    r->sp = t->below & ~(uintptr_t)15;
    r->pc = function;
    r->regs[0] = arguments[0];
    r->regs[1] = arguments[1];
    r->regs[29] = r->regs[30] = 0;     /* frame pointer and return address */
    r->pstate &= ~((uint64_t)3 << 10); /* BTYPE = 0: the function needs no landing pad */
    return true;
}

/* The kernel has decided before the stop whether to do so, and the call's first argument is overwritten. */
static bool repeat_syscall(registers *r)
{
    return false;
}
#else
typedef struct user_regs_struct registers; /* attach_thread_machine is false here: nothing is called */
static const int extended_sets[] = {NT_PRFPREG};

#define STACK_OF(r) ((void)(r), (uintptr_t)0)
#define PLACE_OF(r) ((void)(r), (uintptr_t)0)
#define RESULT_OF(r) ((void)(r), (uintptr_t)0)
static uintptr_t thread_pointer_of(const struct attach_thread *t, const registers *r)
{
    return 0;
}
static long syscall_of(const struct attach_thread *t, const registers *r)
{
    return -1;
}
static bool set_call(const struct attach_thread *t, registers *r, uintptr_t function, const uintptr_t *arguments)
{
    return false;
}
static bool repeat_syscall(registers *r)
{
    return false;
}
#endif

bool attach_thread_machine(void)
{
#if defined(__x86_64__) || defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

static bool get_set(const struct attach_thread *t, int set, void *to, size_t *size)
{
    struct iovec v = {to, *size};
    if (ptrace(PTRACE_GETREGSET, t->tid, (void *)(intptr_t)set, &v) != 0) return false;
    *size = v.iov_len;
    return true;
}

static bool put_set(const struct attach_thread *t, int set, const void *from, size_t size)
{
    struct iovec v = {(void *)(uintptr_t)from, size};
    return ptrace(PTRACE_SETREGSET, t->tid, (void *)(intptr_t)set, &v) == 0;
}

static bool save_registers(struct attach_thread *t)
{
    t->general = sizeof(registers);
    if (!get_set(t, NT_PRSTATUS, t->state, &t->general) || t->general != sizeof(registers)) return false;
    for (size_t i = 0; !t->extended_set && i < sizeof extended_sets / sizeof *extended_sets; i++) {
        t->extended = sizeof t->state - t->general;
        if (get_set(t, extended_sets[i], t->state + t->general, &t->extended) &&
            t->extended < sizeof t->state - t->general)
            t->extended_set = extended_sets[i];
    }
    return t->extended_set && ptrace(PTRACE_GETSIGMASK, t->tid, (void *)sizeof t->signals, &t->signals) == 0;
}

static void restore_registers(const struct attach_thread *t)
{
    if (t->gone || !t->extended_set) return;
    (void)put_set(t, t->extended_set, t->state + t->general, t->extended);
    (void)put_set(t, NT_PRSTATUS, t->state, t->general);
    (void)ptrace(PTRACE_SETSIGMASK, t->tid, (void *)sizeof t->signals, &t->signals);
}

static registers saved_registers(const struct attach_thread *t)
{
    registers r;
    memcpy(&r, t->state, sizeof r);
    return r;
}

uintptr_t attach_thread_stack(const struct attach_thread *t)
{
    const registers r = saved_registers(t);
    return STACK_OF(&r);
}

uintptr_t attach_thread_pointer(const struct attach_thread *t)
{
    const registers r = saved_registers(t);
    return thread_pointer_of(t, &r);
}

long attach_thread_syscall(const struct attach_thread *t)
{
    const registers r = saved_registers(t);
    return syscall_of(t, &r);
}

/* Waits for the next stop. False: none within `ms`, or the thread has ended. */
static bool wait_stop(struct attach_thread *t, int *status, int ms)
{
    const struct timespec step = {.tv_nsec = 50000};
    const long long until = clock_now_ms() + ms;

    for (;;) {
        const pid_t got = waitpid(t->tid, status, __WALL | WNOHANG);
        if (got == t->tid && WIFSTOPPED(*status)) return true;
        if ((got < 0 && errno != EINTR) || got == t->tid) {
            t->gone = true;
            return false;
        }
        if (clock_now_ms() > until) return false;
        nanosleep(&step, NULL);
    }
}

/* Waits for the stop that PTRACE_INTERRUPT requested. Signals that arrive before it are delivered. Returns SIGTRAP, the
 * signal that had stopped the process, or 0: the thread did not stop. */
static int wait_interrupted(struct attach_thread *t, int ms)
{
    int status;

    while (wait_stop(t, &status, ms)) {
        if (status >> 16 == PTRACE_EVENT_STOP) return status >> 8 & 0xff;
        const int number = status >> 16 ? 0 : WSTOPSIG(status);
        if (ptrace(PTRACE_CONT, t->tid, NULL, (void *)(intptr_t)number) != 0) break;
    }
    return 0;
}

/* Some waits, such as epoll_wait and recv on a socket with a time limit, fail with EINTR after a stop although no
 * handler runs. They begin again instead. If a handler is about to run, the kernel restores the EINTR. */
static bool hide_stop(struct attach_thread *t)
{
    registers r = saved_registers(t);
    if (!repeat_syscall(&r)) return true;
    memcpy(t->state, &r, sizeof r);
    return put_set(t, NT_PRSTATUS, &r, sizeof r);
}

enum attach_stop attach_thread_stop(struct attach_thread *t, pid_t tid)
{
    *t = (struct attach_thread){.tid = tid};
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0) {
        t->gone = true;
        return errno == ESRCH ? ATTACH_GONE : ATTACH_FORBIDDEN;
    }
    const int number = ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0 ? wait_interrupted(t, STOP_MS) : 0;
    if (number == SIGTRAP && save_registers(t) && hide_stop(t)) return ATTACH_STOPPED;
    attach_thread_release(t);
    return number && number != SIGTRAP ? ATTACH_HELD : ATTACH_GONE;
}

void attach_thread_release(struct attach_thread *t)
{
    if (t->gone) return;
    /* PTRACE_DETACH needs a stopped thread, and the thread still runs if it did not stop within STOP_MS */
    for (int i = 0; ptrace(PTRACE_DETACH, t->tid, NULL, NULL) != 0 && !t->gone && i < ATTEMPTS; i++) {
        ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL);
        wait_interrupted(t, STOP_MS / ATTEMPTS);
    }
    t->gone = true;
}

bool attach_thread_read(const struct attach_thread *t, uintptr_t at, void *out, size_t size)
{
    struct iovec local = {out, size}, remote = {(void *)at, size};
    return process_vm_readv(t->tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

bool attach_thread_write(const struct attach_thread *t, uintptr_t at, const void *from, size_t size)
{
    struct iovec local = {(void *)(uintptr_t)from, size}, remote = {(void *)at, size};
    return process_vm_writev(t->tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

uintptr_t attach_thread_put(struct attach_thread *t, const char *text)
{
    const size_t size = strlen(text) + 1;
    t->below = (t->below - size) & ~(uintptr_t)15;
    return attach_thread_write(t, t->below, text, size) ? t->below : 0;
}

void attach_thread_begin(struct attach_thread *t)
{
    t->below = (attach_thread_stack(t) - RED_ZONE) & ~(uintptr_t)15;
}

static bool block_signals(const struct attach_thread *t)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS};
    uint64_t blocked = ~(uint64_t)0;

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) blocked &= ~((uint64_t)1 << (faults[i] - 1));
    return ptrace(PTRACE_SETSIGMASK, t->tid, (void *)sizeof blocked, &blocked) == 0;
}

/* Why the thread stopped during the call: the function returned, it crashed, or the stop has another reason. */
enum outcome { RETURNED, CRASHED, GOES_ON };

static enum outcome judge_stop(const struct attach_thread *t, int status, registers *r)
{
    size_t size = sizeof *r;
    const int number = status >> 16 ? 0 : WSTOPSIG(status);

    if (number != SIGSEGV && number != SIGBUS && number != SIGILL && number != SIGFPE && number != SIGABRT &&
        number != SIGTRAP && number != SIGSYS)
        return GOES_ON;
    if (!get_set(t, NT_PRSTATUS, r, &size)) return CRASHED;
    return number == SIGSEGV && PLACE_OF(r) == 0 ? RETURNED : CRASHED;
}

static bool wait_call(struct attach_thread *t, uintptr_t *result)
{
    const long long until = clock_now_ms() + CALL_MS;
    registers r;
    int status, deliver = 0;

    while (ptrace(PTRACE_CONT, t->tid, NULL, (void *)(intptr_t)deliver) == 0) {
        const long long left = until - clock_now_ms();
        if (left <= 0 || !wait_stop(t, &status, (int)left)) break;
        const enum outcome outcome = judge_stop(t, status, &r);
        deliver = status >> 16 ? 0 : WSTOPSIG(status); /* such as SIGSTOP, which cannot be blocked */
        if (outcome == GOES_ON) continue;
        if (outcome == RETURNED) *result = RESULT_OF(&r);
        return outcome == RETURNED;
    }
    if (!t->gone && ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL) == 0) wait_interrupted(t, STOP_MS);
    return false;
}

bool attach_thread_call(struct attach_thread *t, uintptr_t function, const uintptr_t arguments[ATTACH_ARGUMENTS],
                        uintptr_t *result)
{
    registers r = saved_registers(t);
    const bool called = block_signals(t) && set_call(t, &r, function, arguments) &&
                        put_set(t, NT_PRSTATUS, &r, sizeof r) && wait_call(t, result);
    restore_registers(t);
    return called;
}
