/* Whether the clock may be read without the kernel. See clock.h. */
#include "interpose/clock.h"

#include <errno.h>
#include <linux/prctl.h>
#include "schema/system_call.h"

bool gs_clock_by_kernel;

void gs_clock_check(void)
{
    const int saved = errno;
    int mode = PR_TSC_ENABLE;
    /* fails on processors and kernels that cannot forbid it */
    if (gs_system_call(SYS_prctl, PR_GET_TSC, &mode) == 0 && mode == PR_TSC_SIGSEGV) gs_clock_by_kernel = true;
    errno = saved;
}

void gs_clock_allow(void)
{
    const int saved = errno;
    gs_clock_check();
    if (gs_clock_by_kernel) gs_system_call(SYS_prctl, PR_SET_TSC, PR_TSC_ENABLE);
    errno = saved;
}
