/* A run of any length, with as many call paths and live blocks as a real program, to measure the cost of reading it.
 * bench_run cuda|malloc PAIRS [A_SECOND]. A pair frees a block and allocates another: 4,096 are live at a time, from
 * 256 call paths, some of which keep theirs much longer than others, with sizes from 512 bytes to 1 MiB. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "interpose/cuda_abi.h"

extern cudaError_t cudaMalloc(void **pointer, size_t bytes);
extern cudaError_t cudaFree(void *pointer);

enum { SLOTS = 4096, DIGITS = 4 };
static void *slot[SLOTS];
static int use_malloc;
static volatile int sink;
static uint64_t state = 88172645463325252; /* xorshift64, Marsaglia 2003 */

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void pair(uint64_t random)
{
    /* Half of the calls use a sixteenth of the slots, so that lifetimes differ. */
    size_t at = random & 1 ? (random >> 1) % (SLOTS / 16) : (random >> 1) % SLOTS;
    size_t bytes = (size_t)512 << (random >> 40) % 12;

    if (use_malloc) {
        free(slot[at]);
        slot[at] = malloc(bytes);
    } else {
        cudaFree(slot[at]);
        cudaMalloc(&slot[at], bytes);
    }
}

/* Four functions that call each other, one per digit of the path: 4^DIGITS call paths. */
static void (*const digit[4])(uint64_t random, int depth);
#define DIGIT(name)                                                        \
    __attribute__((noinline)) static void name(uint64_t random, int depth) \
    {                                                                      \
        if (depth == DIGITS)                                               \
            pair(random);                                                  \
        else                                                               \
            digit[(random >> (20 + 2 * depth)) & 3](random, depth + 1);    \
        sink++; /* prevents a tail call */                                 \
    }
DIGIT(attention)
DIGIT(feed_forward)
DIGIT(normalize)
DIGIT(residual)
static void (*const digit[4])(uint64_t, int) = {attention, feed_forward, normalize, residual};

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4 || (strcmp(argv[1], "cuda") != 0 && strcmp(argv[1], "malloc") != 0)) {
        fprintf(stderr, "usage: bench_run cuda|malloc PAIRS [A_SECOND]\n");
        return 2;
    }
    use_malloc = strcmp(argv[1], "malloc") == 0;
    long pace = argc > 3 ? atol(argv[3]) / 100 : 0; /* pairs in a hundredth of a second */
    for (long n = atol(argv[2]); n > 0; n--) {
        digit[next() & 3](next(), 0);
        if (pace > 0 && n % pace == 0) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return 0;
}
