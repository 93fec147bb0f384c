/* The clock, and deadlines of waits. A library that fakes the time (libfaketime, datefudge) replaces clock_gettime and
 * perhaps pthread_cond_timedwait, but not the functions that wait for a lock or a thread. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "schema/system_call.h"

/* libc's clock_gettime reads the processor's time stamp counter. A thread that PR_SET_TSC forbids to read it gets a
 * SIGSEGV; the kernel can still be asked. Set for all threads once one of them does so, and never reset. */
extern bool gs_clock_by_kernel __attribute__((visibility("hidden")));

/* Notes whether this thread may read the counter: it may have forbidden itself that without libc's prctl, or have
 * inherited it. */
void gs_clock_check(void);

/* Threads of gpuspy, which inherit it from the thread that starts them, run functions of others (NVML). */
void gs_clock_allow(void);

static inline struct timespec gs_clock(clockid_t clock)
{
    struct timespec now;
    if (__builtin_expect(gs_clock_by_kernel, false))
        gs_system_call(SYS_clock_gettime, clock, &now);
    else
        clock_gettime(clock, &now);
    return now;
}

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
    gs_system_call(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return gs_time_after(now, ms);
}

/* Without a system call if no thread holds it: a seccomp filter may end the process for one. */
static inline bool gs_lock_within(pthread_mutex_t *lock, long ms)
{
    if (!pthread_mutex_trylock(lock)) return true;
    const struct timespec until = gs_deadline(ms);
    return !pthread_mutex_timedlock(lock, &until);
}

/* Forks share such a lock; a thread that must not work during a fork takes it alone. A try is a wait until a time that
 * has passed, because the try functions of glibc before 2.30 could lose a wake-up. */
#define GS_FORK_LOCK PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP

static inline bool gs_share_within(pthread_rwlock_t *lock, long ms)
{
    struct timespec until = {0};
    if (!pthread_rwlock_timedrdlock(lock, &until)) return true;
    if (ms <= 0) return false;
    until = gs_deadline(ms);
    return !pthread_rwlock_timedrdlock(lock, &until);
}

static inline bool gs_own_within(pthread_rwlock_t *lock, long ms)
{
    struct timespec until = {0};
    if (!pthread_rwlock_timedwrlock(lock, &until)) return true;
    if (ms <= 0) return false;
    until = gs_deadline(ms);
    return !pthread_rwlock_timedwrlock(lock, &until);
}

/* For pthread_cond_timedwait: by the CLOCK_MONOTONIC that the program sees. */
static inline struct timespec gs_condition_deadline(long ms)
{
    return gs_time_after(gs_clock(CLOCK_MONOTONIC), ms);
}
