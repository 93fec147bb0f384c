/* The door of prctl: a thread can forbid itself to read the processor's time stamp counter. From then on gpuspy asks
 * the kernel for the time. See clock.h. */
#include <errno.h>
#include <linux/prctl.h>
#include <stdatomic.h>
#include "interpose/clock.h"
#include "interpose/fork.h"
#include "interpose/resolve.h"

typedef int gs_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);

/* libc's ends in "...": a caller passes what its option needs, and the kernel ignores the rest. */
__attribute__((visibility("default"))) gs_prctl prctl;
GS_UNCHECKED int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    static _Atomic(gs_prctl *) found;
    gs_prctl *real = atomic_load(&found);
    if (!real) atomic_store(&found, real = (gs_prctl *)gs_next_function("prctl"));
    if (!real) {
        errno = ENOSYS;
        return -1;
    }
    if (option == PR_SET_TSC && a == PR_TSC_SIGSEGV) gs_clock_by_kernel = true;
    return real(option, a, b, c, d);
}
