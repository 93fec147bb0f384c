/* Pairs of allocation and free at a given depth of the stack, and the nanoseconds that one pair
 * takes: bench_call cuda|malloc DEPTH PAIRS. Pairs run in batches and the median batch is
 * printed, so that a preemption or a pause of the drain does not decide the figure; the second
 * figure is the mean over the whole run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "interpose/cuda_abi.h"

extern cudaError_t cudaMalloc(void **pointer, size_t bytes);
extern cudaError_t cudaFree(void *pointer);

#define BATCH 1000
static int use_malloc;
static volatile int sink;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

__attribute__((noinline)) static double batch(void)
{
    double start = now_ns();
    for (int i = 0; i < BATCH; i++) {
        void *volatile pointer = NULL;
        if (use_malloc) {
            pointer = malloc(4096);
            free(pointer);
        } else {
            void *p = NULL;
            cudaMalloc(&p, 4096);
            cudaFree(p);
        }
    }
    return (now_ns() - start) / BATCH;
}

__attribute__((noinline)) static double descend(int depth)
{
    double result = depth > 0 ? descend(depth - 1) : batch();
    sink++; /* keeps the call from becoming a jump */
    return result;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: bench_call cuda|malloc DEPTH PAIRS\n");
        return 2;
    }
    use_malloc = !strcmp(argv[1], "malloc");
    int depth = atoi(argv[2]), batches = atoi(argv[3]) / BATCH;
    if (depth < 0 || batches < 1)
        return 2;
    double *each = calloc(batches, sizeof *each);
    double sum = 0;
    for (int i = 0; i < batches; i++)
        sum += each[i] = descend(depth);
    qsort(each, batches, sizeof *each, by_value);
    printf("%.1f %.1f\n", each[batches / 2], sum / batches);
    free(each);
    return 0;
}
