/* Deadlines of waits. A library that fakes the time (libfaketime, datefudge) replaces clock_gettime and perhaps
 * pthread_cond_timedwait, but not the functions that wait for a lock or a thread. */
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline struct timespec gs_time_after(struct timespec t, long ms)
{
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

/* For pthread_mutex_timedlock and pthread_timedjoin_np: by the kernel's CLOCK_REALTIME. */
static inline struct timespec gs_deadline(long ms)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return gs_time_after(now, ms);
}

/* For pthread_cond_timedwait: by the CLOCK_MONOTONIC that the program sees. */
static inline struct timespec gs_condition_deadline(long ms)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return gs_time_after(now, ms);
}
