/* Pairs of allocation and free at a given depth of the stack, and the nanoseconds of one pair: bench_call
 * cuda|malloc|launch DEPTH PAIRS (launch: two kernels instead, which are only counted). Pairs run in batches and the
 * median batch is printed, so that a preemption or a pause by the drain does not affect it; the second figure is the
 * mean over the whole run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "interpose/cuda_abi.h"

extern cudaError_t cudaMalloc(void **pointer, size_t bytes);
extern cudaError_t cudaFree(void *pointer);
extern cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                    cudaStream_t stream);

#define BATCH 1000
static int use_malloc, use_launch;
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
        } else if (use_launch) {
            const dim3 one = {1, 1, 1};
            cudaLaunchKernel(&use_launch, one, one, NULL, 0, NULL);
            cudaLaunchKernel(&use_launch, one, one, NULL, 0, NULL);
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
    sink++; /* prevents a tail call */
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
        fprintf(stderr, "usage: bench_call cuda|malloc|launch DEPTH PAIRS\n");
        return 2;
    }
    use_malloc = !strcmp(argv[1], "malloc");
    use_launch = !strcmp(argv[1], "launch");
    int depth = atoi(argv[2]), batches = atoi(argv[3]) / BATCH;
    if (depth < 0 || batches < 1) return 2;
    double *each = calloc(batches, sizeof *each);
    double sum = 0;
    for (int i = 0; i < batches; i++) sum += each[i] = descend(depth);
    qsort(each, batches, sizeof *each, by_value);
    printf("%.1f %.1f\n", each[batches / 2], sum / batches);
    free(each);
    return 0;
}
