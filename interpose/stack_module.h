/* Finds the loaded object that contains an address. Private to interpose/stack*.c and its tests. No lock of gpuspy's:
 * each thread remembers the few objects that it met last, as long as the loader's counters show that no object was
 * loaded or unloaded, and uses dl_iterate_phdr for any other. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack_elf.h"

#define GS_MODULES_KNOWN 16u

struct gs_modules {
    unsigned long long loads, unloads; /* of the process, when the entries below were found */
    uint32_t turn;
    struct gs_module_known {
        struct gs_elf_range range;
        struct dl_phdr_info info;
    } known[GS_MODULES_KNOWN];
};

/* Calls `visit` with the object that contains the address; it is not unloaded meanwhile. False: no object does
 * (generated code). */
bool gs_module_visit(struct gs_modules *modules, uintptr_t address, void (*visit)(const struct dl_phdr_info *, void *),
                     void *to);

/* What the spool stores about a native address. */
struct gs_module {
    uintptr_t bias;
    uint32_t path_len, build_id_len;
    uint8_t build_id[64];
    char path[4096];
};
/* False: no object contains the address. For new addresses; may take some microseconds. */
bool gs_module_find(struct gs_modules *modules, uintptr_t address, struct gs_module *m);

/* Grows when a module is unloaded, because its addresses may then mean something else. */
extern _Atomic uint32_t gs_module_generation;
/* The lower bits of the loader's count of loads at the last check. */
extern _Atomic uint32_t gs_module_loads;
/* libgpuspy's own code. */
extern struct gs_elf_range gs_stack_self;

/* When gpuspy is loaded, before the program has threads: finds the program's file and the objects it started with. */
void gs_modules_load(void);
/* At a session's start. */
void gs_modules_open(void);
