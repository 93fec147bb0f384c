/* CLOCK_MONOTONIC, for deadlines and pauses. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static inline int64_t clock_now_ms(void)
{
    return clock_now_ns() / 1000000;
}
