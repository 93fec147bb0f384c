/* Behaviours of threads: many, short-lived, with small stacks, cancelled; and code on other stacks. */
#include "tests/torture/torture.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

void leaf(uint32_t n)
{
    t_deep_work(n % 40, 1 + n % 97);
}

void again(uint32_t n)
{
    (void)n;
    t_work(1);
}

static void *work_once(void *pairs)
{
    t_work((unsigned)(uintptr_t)pairs);
    return NULL;
}

static void in_rows(unsigned rows, unsigned width, unsigned pairs, size_t stack)
{
    pthread_t threads[32];
    for (unsigned row = 0; row < rows; row++) {
        for (unsigned i = 0; i < width; i++) threads[i] = t_start(work_once, (void *)(uintptr_t)pairs, stack);
        for (unsigned i = 0; i < width; i++)
            if (threads[i]) pthread_join(threads[i], NULL);
    }
}

void thread_storm(uint32_t n)
{
    in_rows(t_pick(&n, 5, 40), t_pick(&n, 1, 32), t_pick(&n, 1, 5), 0);
}

/* Uses more threads than a record's 16-bit number can count. */
void thread_slots(uint32_t n)
{
    in_rows(70000 / 8, 8, 1, 0);
}

static _Atomic unsigned detached_left;

static void *work_detached(void *pairs)
{
    t_work((unsigned)(uintptr_t)pairs);
    detached_left--;
    return NULL;
}

void detached(uint32_t n)
{
    const unsigned count = t_pick(&n, 10, 200);
    detached_left = count;
    for (unsigned i = 0; i < count; i++) {
        pthread_t thread = t_start(work_detached, (void *)(uintptr_t)t_pick(&n, 1, 3), 0);
        if (thread) pthread_detach(thread);
    }
    while (detached_left) t_sleep_us(500);
    t_sleep_us(2000);
}

/* --- thread-specific data ---------------------------------------------------------------------------------- */

static pthread_key_t key;

static void destroy(void *value)
{
    const uintptr_t left = (uintptr_t)value - 1;
    t_work(2);
    if (left) pthread_setspecific(key, (void *)left); /* requests another round of destructors */
}

static void *set_key(void *value)
{
    pthread_setspecific(key, value);
    t_work(1);
    return NULL;
}

void thread_keys(uint32_t n)
{
    if (pthread_key_create(&key, destroy)) return;
    for (unsigned i = 0; i < 20; i++) pthread_join(t_start(set_key, (void *)(uintptr_t)(1 + (n + i) % 4), 0), NULL);
    pthread_key_delete(key);
}

void all_keys(uint32_t n)
{
    pthread_key_t keys[PTHREAD_KEYS_MAX];
    unsigned count = 0;
    (void)n;
    while (count < PTHREAD_KEYS_MAX && !pthread_key_create(&keys[count], NULL)) count++;
    in_rows(5, 8, 2, 0);
    while (count) pthread_key_delete(keys[--count]);
}

/* --- small stacks -------------------------------------------------------------------------------------------- */

void small_stacks(uint32_t n)
{
    in_rows(5, 8, 3, (size_t)PTHREAD_STACK_MIN + 4096 * (n % 8));
}

enum { COROUTINES = 8, COROUTINE_STACK = 16384 };
static ucontext_t back, coroutine[COROUTINES];
static volatile int running;

static void coroutine_work(void)
{
    for (int i = 0; i < 5; i++) {
        t_deep_work((unsigned)i, 2);
        swapcontext(&coroutine[running], &back);
    }
}

static void prepare_coroutine(int i, char *stack)
{
    getcontext(&coroutine[i]);
    coroutine[i].uc_stack.ss_sp = stack;
    coroutine[i].uc_stack.ss_size = COROUTINE_STACK;
    coroutine[i].uc_link = &back;
    makecontext(&coroutine[i], coroutine_work, 0);
}

void coroutines(uint32_t n)
{
    char *stacks = mmap(NULL, COROUTINES * COROUTINE_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stacks == MAP_FAILED) return;
    for (int i = 0; i < COROUTINES; i++) prepare_coroutine(i, stacks + i * COROUTINE_STACK);
    for (int turn = 0; turn < 6; turn++)
        for (running = 0; running < COROUTINES; running++) swapcontext(&back, &coroutine[running]);
    munmap(stacks, COROUTINES * COROUTINE_STACK);
    if (n & 1) t_deep_work(20, 5);
}

/* --- cancellation -------------------------------------------------------------------------------------------- */

static void free_it(void *pointer)
{
    t_free(*(void **)pointer);
}

static void *work_until_cancelled(void *unused)
{
    (void)unused;
    for (;;) {
        void *pointer = t_malloc(512);
        pthread_cleanup_push(free_it, &pointer);
        t_work(2);
        pthread_testcancel();
        pthread_cleanup_pop(1);
    }
    return NULL;
}

void cancel(uint32_t n)
{
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) threads[i] = t_start(work_until_cancelled, NULL, 0);
    t_sleep_us(t_pick(&n, 0, 20000));
    for (int i = 0; i < 16; i++) {
        void *result = NULL;
        pthread_cancel(threads[i]);
        pthread_join(threads[i], &result);
        T_CHECK(result == PTHREAD_CANCELED);
    }
}
