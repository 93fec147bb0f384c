/* The calls that the thread is in, by the call frame information of the objects that they run in.
 * Private to interpose/stack*.c and its tests.
 *
 * Safe in a signal handler, at any instruction, on any stack: it reads only memory that was found to
 * be readable, takes no lock, and allocates nothing. It stops at a frame that it cannot interpret.
 *
 * A table of the process caches the rule for each place in the code; any thread may read and write it at
 * any time. A cached frame takes 5 ns. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack_cfi.h"
#include "interpose/stack_elf.h"
#include "interpose/stack_memory.h"
#include "interpose/stack_module.h"

#define GS_UNWIND_MAX 272u
#define GS_HELD_UNKNOWN 1u

/* The instruction and the stack pointer right here. */
#if defined(__aarch64__)
#define GS_UNWIND_HERE(ip, sp) __asm__ volatile("adr %0, .\n\tmov %1, sp" : "=r"(ip), "=r"(sp))
#elif !defined(__x86_64__)
#define GS_UNWIND_HERE(ip, sp) ((ip) = (sp) = 0)
#endif

struct gs_frame {
    uintptr_t ip, sp, fp;
    uintptr_t place;    /* where ip is on the stack, 0 if nowhere */
    uintptr_t fp_place; /* the same of fp */
    bool interrupted;   /* interrupted by a signal at ip; otherwise a call returns there */
};

/* One thread's state; initially zeros. */
struct gs_unwinder {
    struct gs_memory memory;
    uint32_t switches; /* changes of stack that this capture may still make */
    struct gs_modules modules;
    struct gs_cfi_work work;
    /* The last capture: return addresses, innermost first, and where they are on the stack, 0 for one
     * that was interrupted, of which the address is the place + 1. */
    uintptr_t address[GS_UNWIND_MAX], place[GS_UNWIND_MAX];
    /* Where the word is that, with this frame's code and stack pointer, determines the next frame's place: its frame
     * pointer. 0: none is needed; GS_HELD_UNKNOWN: another, or more. */
    uintptr_t held[GS_UNWIND_MAX];
};

/* Walks from a frame of the calling thread, which counts as the first, to its callers. Call gs_memory_begin
 * before. Stops at the first address in `stop` (none: an empty range), at the latest after `max` frames.
 * Returns the number of frames. */
uint32_t gs_unwind(struct gs_unwinder *u, struct gs_frame from, struct gs_elf_range stop, uint32_t max);
