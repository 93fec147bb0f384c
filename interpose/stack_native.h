/* Native frames: private to interpose/stack*.c and its tests. */
#ifndef GPUSPY_STACK_NATIVE_H
#define GPUSPY_STACK_NATIVE_H

#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack_elf.h"

/* Return addresses of the calling thread, innermost first; NULL where there is no libunwind. */
extern int (*gs_unwind)(void **addresses, int size);
/* The same a frame at a time, which tells where they stand; .step NULL where there is none. */
struct gs_unwind_by_step {
    int (*get_context)(void *context);
    int (*init)(void *cursor, void *context);
    int (*step)(void *cursor);
    int (*get_reg)(void *cursor, int reg, uint64_t *value);
};
extern struct gs_unwind_by_step gs_unwind_by_step;
/* libgpuspy's own code. */
extern struct gs_elf_range gs_stack_self;

/* Opens libunwind in private. What it exports must never reach the global scope: its _Unwind_*
 * would stand before libgcc's there and break C++ exceptions and thread cancellation. */
void gs_native_open(void);

/* What the spool says of a native address. */
struct gs_module {
    uintptr_t bias;
    uint32_t path_len, build_id_len;
    char path[4000];
    uint8_t build_id[64];
};

/* At a session's start: from now on the table survives a fork. */
void gs_modules_open(void);

/* The loaded object in which the address lies; false for none (generated code). May take a lock
 * and ask the kernel: only for an address that is new. */
bool gs_module_find(uintptr_t address, struct gs_module *m);
/* Grows when a module was seen to have gone, so that its addresses may mean something else now. */
extern _Atomic uint32_t gs_module_generation;

#endif
