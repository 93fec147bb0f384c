/* bench_tail DEPTH CALLS: p50, p99, p99.9 and maximum of the time of a single call, in nanoseconds, of
 * cudaMalloc and cudaFree, CALLS in all, over a CUDA that does nothing (nullcuda.c). The call sites vary a little, as
 * those of a program do. The clock's own cost is in every figure. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "interpose/cuda_abi.h"

extern cudaError_t cudaMalloc(void **pointer, size_t bytes);
extern cudaError_t cudaFree(void *pointer);

/* Exact up to 4 µs, then 64 steps for each doubling. */
enum { EXACT = 4096, STEPS = 64, DOUBLINGS = 32 };
static uint64_t count[EXACT + STEPS * DOUBLINGS], calls, slowest;
static volatile int sink;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void add(uint64_t ns)
{
    size_t at = ns;
    if (ns >= EXACT) {
        const unsigned doubling = 63 - (unsigned)__builtin_clzl(ns) - 12;
        at = EXACT + STEPS * doubling + ((ns >> (doubling + 6)) & (STEPS - 1));
        if (at >= EXACT + STEPS * DOUBLINGS) at = EXACT + STEPS * DOUBLINGS - 1;
    }
    count[at]++;
    calls++;
    if (ns > slowest) slowest = ns;
}

static uint64_t value_at(size_t at)
{
    if (at < EXACT) return at;
    const unsigned doubling = (unsigned)(at - EXACT) / STEPS;
    return (EXACT + (at - EXACT) % STEPS * (EXACT / STEPS)) << doubling;
}

static uint64_t percentile(double share)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof count / sizeof *count; i++)
        if ((sum += count[i]) >= (uint64_t)(share * (double)calls)) return value_at(i);
    return slowest;
}

__attribute__((noinline)) static void pairs(int number)
{
    for (int i = 0; i < number; i++) {
        void *pointer = NULL;
        const uint64_t start = now_ns();
        cudaMalloc(&pointer, 4096);
        const uint64_t between = now_ns();
        cudaFree(pointer);
        add(between - start);
        add(now_ns() - between);
    }
}

__attribute__((noinline)) static void descend(int depth, int number)
{
    if (depth > 0)
        descend(depth - 1, number);
    else
        pairs(number);
    sink++; /* prevents a tail call */
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: bench_tail DEPTH CALLS\n");
        return 2;
    }
    const int depth = atoi(argv[1]);
    for (long left = atol(argv[2]) / 2; left > 0; left -= 1000) descend(depth + (int)(left / 1000 % 4), 1000);
    printf("%lu %lu %lu %lu\n", (unsigned long)percentile(0.5), (unsigned long)percentile(0.99),
           (unsigned long)percentile(0.999), (unsigned long)slowest);
    return 0;
}
