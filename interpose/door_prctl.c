/* The doors of prctl and syscall, by which a thread forbids itself what gpuspy uses: the processor's time stamp counter
 * (from then on gpuspy asks the kernel for the time, see clock.h), and system calls (see filter.h). */
#include <errno.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include "interpose/clock.h"
#include "interpose/filter.h"
#include "interpose/fork.h"
#include "interpose/message.h"
#include "interpose/resolve.h"
#include "interpose/session.h"
#include "interpose/shield.h"
#include "interpose/state.h"

#define SET_SYSCALL_USER_DISPATCH 59 /* Linux 5.11; older headers lack it */
#define EXPORT __attribute__((visibility("default")))

/* The recording ends before a filter that would end the process because of it. Before it begins, what the filter allows
 * is found out, too: under the filter, to try it may end the process. */
static void expect_filter(const void *program, bool may_begin)
{
    char why[128];
    gs_filter_added();
    if (!program || (!may_begin && !gs_session_records())) return;
    if (gs_filter_would_allow(program, why, sizeof why) || may_begin) return;
    gs_session_stop("filter");
    gs_deactivate("recording stopped here: %s", why);
}

/* From then on each system call of this thread outside one range of addresses, such as libc's, raises SIGSYS: gpuspy's
 * would, too. */
static void expect_dispatch(bool may_begin)
{
    if (!may_begin && !gs_session_records()) return;
    if (!may_begin) gs_session_stop("filter");
    gs_deactivate("%s: the program handles system calls itself (PR_SET_SYSCALL_USER_DISPATCH)",
                  may_begin ? "not recording" : "recording stopped here");
}

static bool is_expected(long option)
{
    return option == PR_SET_TSC || option == PR_SET_SECCOMP || option == SET_SYSCALL_USER_DISPATCH;
}

static void expect_option(long option, long a, long b)
{
    const int saved = errno;
    const bool may_begin = gs_session_is_enabled() && atomic_load(&gs_session_state) == GS_SESSION_NOT_YET;
    struct gs_shield shield;
    if (option == PR_SET_TSC && a == PR_TSC_SIGSEGV) gs_clock_by_kernel = true;
    gs_shield_begin(&shield);
    if (option == PR_SET_SECCOMP && a == SECCOMP_MODE_FILTER) expect_filter((const void *)b, may_begin);
    if (option == SET_SYSCALL_USER_DISPATCH && a) expect_dispatch(may_begin);
    gs_shield_end(&shield);
    errno = saved;
}

typedef int gs_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);

/* libc's ends in "...": a caller passes what its option needs, and the kernel ignores the rest. */
EXPORT gs_prctl prctl;
GS_UNCHECKED int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    static _Atomic(void *) found;
    gs_prctl *real = (gs_prctl *)gs_next_once(&found, "prctl");
    if (!real) {
        errno = ENOSYS;
        return -1;
    }
    if (is_expected(option)) expect_option(option, (long)a, (long)b);
    return real(option, a, b, c, d);
}

typedef long gs_syscall(long number, long a, long b, long c, long d, long e, long f);

/* Also variadic. The call at its end is a jump, so that the caller's stack is as without gpuspy. */
EXPORT gs_syscall gs_syscall_door __asm__("syscall");
GS_UNCHECKED long gs_syscall_door(long number, long a, long b, long c, long d, long e, long f)
{
    static _Atomic(void *) found;
    gs_syscall *real = (gs_syscall *)gs_next_once(&found, "syscall");
    if (!real) {
        errno = ENOSYS;
        return -1;
    }
    if (number == SYS_prctl && is_expected(a)) expect_option(a, b, c);
    if (number == SYS_seccomp && a == SECCOMP_SET_MODE_FILTER) expect_option(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, c);
    return real(number, a, b, c, d, e, f);
}
