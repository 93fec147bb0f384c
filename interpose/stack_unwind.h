/* The calls that the thread is in, by the call frame information of the objects that they run in.
 * Private to interpose/stack*.c and its tests.
 *
 * Safe in a signal handler, at any instruction, on any stack: it reads only memory that was found to
 * be readable, takes no lock, and allocates nothing. A stack that is not understood ends there.
 *
 * What a place in the code says of its frame is kept in a table of the process, which any thread may
 * read and write at any time: 5 ns a frame. */
#ifndef GPUSPY_STACK_UNWIND_H
#define GPUSPY_STACK_UNWIND_H

#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack_cfi.h"
#include "interpose/stack_elf.h"
#include "interpose/stack_memory.h"
#include "interpose/stack_module.h"

#define GS_UNWIND_MAX 272u

/* The instruction and the stack pointer right here. */
#if defined(__aarch64__)
#define GS_UNWIND_HERE(ip, sp) __asm__ volatile("adr %0, .\n\tmov %1, sp" : "=r"(ip), "=r"(sp))
#elif !defined(__x86_64__)
#define GS_UNWIND_HERE(ip, sp) ((ip) = (sp) = 0)
#endif

struct gs_frame {
    uintptr_t ip, sp, fp;
    uintptr_t place;  /* where on the stack ip is, 0 if nowhere */
    bool interrupted; /* by a signal, at ip; else a call returns there */
};

/* One thread's; zero at first. */
struct gs_unwinder {
    struct gs_memory memory;
    uint32_t switches; /* between stacks, left to this capture */
    struct gs_modules modules;
    struct gs_cfi_work work;
    /* The last capture: return addresses, innermost first, and where they are on the stack, 0 for one
     * that was interrupted, of which the address is the place + 1. */
    uintptr_t address[GS_UNWIND_MAX], place[GS_UNWIND_MAX];
};

/* Goes up from a frame of the calling thread, which is the first of them. gs_memory_begin comes before
 * it. Ends at the first address in `stop` (none: an empty range), and after `max` at the latest.
 * Returns how many. */
uint32_t gs_unwind(struct gs_unwinder *u, struct gs_frame from, struct gs_elf_range stop, uint32_t max);

#endif
