/* Which code object stands at an address.
 *
 * CPython reuses the memory of a dead code object at once, so an address alone names nothing. Each
 * code object that is written into the spool gets a number that is never used again, and the
 * type's dealloc slot is taken over to learn of its death. Only the death of a recorded one counts:
 * gs_stack_epoch then grows, and every thread's cache of whole stacks is out of date at once. */
#include <errno.h>
#include <pthread.h>
#include "interpose/stack_python.h"

#define SLOTS                                                                          \
    32768u /* living code objects that were seen in a stack; beyond 3/4 all start anew \
            */
#define BUCKETS 16384u

_Atomic uint32_t gs_stack_epoch;

/* How many recorded code objects fall into a bucket: lets the dealloc hook pass unrecorded ones
 * without the lock. */
static _Atomic uint16_t recorded[BUCKETS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct {
    const void *code;
    uint32_t number;
} slots[SLOTS];
static uint32_t used, last_number;

static void (*original_dealloc)(void *);

static uint32_t hash_of(const void *code)
{
    return (uint32_t)(((uint64_t)(uintptr_t)code >> 4) * 0x9e3779b97f4a7c15u >> 40);
}

static _Atomic uint16_t *bucket_of(const void *code)
{
    return &recorded[hash_of(code) % BUCKETS];
}

/* The slot that holds the code object, or the empty one where it belongs. */
static uint32_t slot_of(const void *code)
{
    uint32_t i = hash_of(code) % SLOTS;
    while (slots[i].code && slots[i].code != code)
        i = (i + 1) % SLOTS;
    return i;
}

/* Empties a slot and closes the gap, so that no search ends too early. */
static void empty_slot(uint32_t hole)
{
    for (uint32_t i = (hole + 1) % SLOTS; slots[i].code; i = (i + 1) % SLOTS) {
        uint32_t home = hash_of(slots[i].code) % SLOTS;
        if ((i - home) % SLOTS < (i - hole) % SLOTS)
            continue; /* its home lies after the hole */
        slots[hole] = slots[i];
        hole = i;
    }
    slots[hole].code = NULL;
    used--;
}

static void forget_all(void)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        slots[i].code = NULL;
    for (uint32_t i = 0; i < BUCKETS; i++)
        atomic_store_explicit(&recorded[i], 0, memory_order_relaxed);
    used = 0;
    atomic_fetch_add(&gs_stack_epoch, 1);
}

uint32_t gs_code_identity(const void *code)
{
    pthread_mutex_lock(&lock);
    uint32_t i = slot_of(code);
    if (!slots[i].code) {
        if (used >= SLOTS / 4 * 3) {
            forget_all();
            i = slot_of(code);
        }
        slots[i].code = code;
        slots[i].number = ++last_number;
        used++;
        atomic_fetch_add(bucket_of(code), 1);
    }
    uint32_t number = slots[i].number;
    pthread_mutex_unlock(&lock);
    return number;
}

static __attribute__((noinline)) void forget(const void *code)
{
    int saved = errno;
    pthread_mutex_lock(&lock);
    uint32_t i = slot_of(code);
    if (slots[i].code) {
        empty_slot(i);
        atomic_fetch_sub(bucket_of(code), 1);
        atomic_fetch_add(&gs_stack_epoch, 1);
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
}

static void dealloc(void *code)
{
    if (atomic_load_explicit(bucket_of(code), memory_order_acquire))
        forget(code);
    original_dealloc(code);
}

/* The lock is free in a forked child, whatever another thread of the parent was doing. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

void gs_code_watch(void (**slot)(void *))
{
    if (original_dealloc)
        return;
    pthread_atfork(before_fork, after_fork, after_fork);
    original_dealloc = *slot;
    __atomic_store_n(slot, dealloc, __ATOMIC_RELEASE);
}
