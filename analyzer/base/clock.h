/* Clocks in nanoseconds; clock_now_… read CLOCK_MONOTONIC, for deadlines and pauses. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t clock_read_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static inline int64_t clock_now_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

static inline int64_t clock_now_ms(void)
{
    return clock_now_ns() / 1000000;
}
