/* Which memory of the thread's stack may be read. Only memory that was found to be mapped is read. Private to
 * interpose/stack*.c and its tests. The stack that the C library created for the thread exists as long as the thread,
 * so what was found out about it is kept. Any other stack (a coroutine's, a signal handler's own) may be unmapped at
 * any time: each capture checks it again. No descriptor, no lock, no malloc. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct gs_memory {
    uintptr_t lo, hi;             /* the thread's own stack, as far as it has been read */
    uintptr_t gap;                /* an unreadable page below it; 0 if none was found */
    uintptr_t other_lo, other_hi; /* found during this capture */
    uint32_t probes;              /* how many more times this capture may query the kernel */
};

#define GS_MEMORY_PROBES 48u

void gs_memory_find_stack(struct gs_memory *m, uintptr_t sp);
/* Begins a capture at the stack pointer `sp`. */
static inline void gs_memory_begin(struct gs_memory *m, uintptr_t sp)
{
    m->other_lo = m->other_hi = 0;
    m->probes = GS_MEMORY_PROBES;
    if (__builtin_expect(sp - m->lo >= m->hi - m->lo, 0)) gs_memory_find_stack(m, sp);
}

/* Readable memory around the address; false: there is none. */
bool gs_memory_around(struct gs_memory *m, uintptr_t address, uintptr_t *lo, uintptr_t *hi);
/* Copies a word of the stack. False: it is not readable. */
bool gs_memory_word(struct gs_memory *m, uintptr_t address, uintptr_t *word);

/* Stack memory may be poisoned by sanitizers, and addresses in it need not be aligned. */
static inline __attribute__((always_inline)) uintptr_t gs_memory_load(uintptr_t address)
{
    typedef uintptr_t __attribute__((aligned(1), may_alias)) anywhere;
    return *(const anywhere *)address;
}

/* Is all memory between the two addresses readable? */
bool gs_memory_readable(uintptr_t from, uintptr_t to);

/* Returns how many pages from this one on are readable. Exposed for tests, as is the method: process_vm_readv or
 * rt_sigprocmask. */
size_t gs_memory_pages(uintptr_t page, size_t pages);
extern bool gs_memory_by_copy;

/* At a session's start. Valgrind complains about uninitialised bytes that are passed to rt_sigprocmask. */
void gs_memory_open(bool valgrind);
