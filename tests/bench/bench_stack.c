/* ns per native capture, by depth, in a plain C program: unwinding and looking the stack up, without writing it, as for
 * all but the first capture of a stack. Also the unwinding alone. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "interpose/stack.h"
#include "interpose/stack_unwind.h"

enum { BATCH = 200, BATCHES = 300 };

static struct gs_stacks *stacks;
static struct gs_unwinder unwinder;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static __attribute__((noinline)) void capture(void)
{
    gs_stack_capture(stacks, GS_STACK_NATIVE, __builtin_return_address(0));
    __asm__ volatile("");
}

static __attribute__((noinline)) void unwind(void)
{
    uintptr_t *const own = __builtin_frame_address(0);
    const struct gs_frame from = {.ip = own[1], .sp = (uintptr_t)(own + 2), .fp = own[0]};
    gs_memory_begin(&unwinder.memory, (uintptr_t)own);
    gs_unwind(&unwinder, from, (struct gs_elf_range){0, 0}, 256);
    __asm__ volatile("");
}

static double median(void (*what)(void))
{
    static double each[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        double start = now();
        for (int k = 0; k < BATCH; k++) what();
        each[i] = (now() - start) / BATCH;
    }
    qsort(each, BATCHES, sizeof *each, by_value);
    return each[BATCHES / 2];
}

static double at_depth(int n, void (*what)(void));
static double (*volatile again)(int, void (*)(void)) = at_depth;

static double at_depth(int n, void (*what)(void))
{
    double r = n ? again(n - 1, what) : median(what);
    __asm__ volatile("");
    return r;
}

/* Twenty frames, then the handler's. */
static double handled[2];

static void handle(int sig)
{
    handled[0] = median(capture);
    handled[1] = median(unwind);
}

static void raise_below(int n);
static void (*volatile below)(int) = raise_below;

static __attribute__((noinline)) void raise_below(int n)
{
    if (n)
        below(n - 1);
    else
        raise(SIGUSR1);
    __asm__ volatile("");
}

static void in_handler(const char *what, int flags)
{
    const struct sigaction action = {.sa_handler = handle, .sa_flags = flags};
    sigaction(SIGUSR1, &action, NULL);
    raise_below(14);
    printf("  %-30s %8.0f %8.0f\n", what, handled[0], handled[1]);
}

int main(void)
{
    struct gs_spool spool;
    struct gs_writer writer = {0};
    if (gs_spool_create(&spool, NULL, "bench", "bench_stack", 0, 0)) return 1;
    gs_writer_open(&writer, &spool);
    gs_stack_init(GS_STACK_NATIVE, 64);
    stacks = gs_stacks_open(&writer);
    if (!stacks) {
        fprintf(stderr, "bench_stack: %s\n", gs_stack_missing());
        return 1;
    }
    printf("%-32s %8s %8s\n", "C, ns a capture", "capture", "unwound");
    const int depths[] = {5, 20, 50};
    for (int i = 0; i < 3; i++) {
        int n = depths[i] - 6; /* main, its two callers in libc, _start, median and the first at_depth */
        n = n < 0 ? 0 : n;
        double c = at_depth(n, capture), u = at_depth(n, unwind);
        printf("  depth %-24d %8.0f %8.0f\n", depths[i], c, u);
    }
    static char room[1 << 16];
    const stack_t other = {.ss_sp = room, .ss_size = sizeof room};
    sigaltstack(&other, NULL);
    in_handler("in a signal handler", 0);
    in_handler("  on a stack of its own", SA_ONSTACK);
    return 0;
}
