/* Call frame information: the table in a loaded object's .eh_frame that states, for each place in its code, where the
 * caller's registers are. Private to interpose/stack*.c and its tests.
 *
 * Only bytes inside the object's readable segments are read, and every step is bounded: damaged tables give
 * GS_CFI_DAMAGED. No lock, no malloc, no system call.
 */
#pragma once

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack_memory.h"

/* Per machine: the registers' DWARF numbers. On both, the return address is a column of the table. */
#if defined(__x86_64__)
enum { GS_REG_FP = 6, GS_REG_SP = 7, GS_REG_RA = 16, GS_REGS = 17, GS_UNWINDS = 1 };
#elif defined(__aarch64__)
enum { GS_REG_FP = 29, GS_REG_RA = 30, GS_REG_SP = 31, GS_REGS = 32, GS_UNWINDS = 1 };
#else
enum { GS_REG_FP, GS_REG_SP, GS_REG_RA, GS_REGS, GS_UNWINDS = 0 };
#endif

struct gs_registers {
    uint32_t known; /* one bit each */
    uintptr_t value[GS_REGS];
    uintptr_t pc; /* on AArch64 not what GS_REG_RA holds, if a signal interrupted the frame */
};
static inline bool gs_register_known(const struct gs_registers *r, unsigned reg)
{
    return reg < GS_REGS && r->known >> reg & 1;
}

enum gs_cfi_how {
    GS_CFI_SAME,
    GS_CFI_UNDEFINED,
    GS_CFI_AT,            /* in memory at CFA + offset */
    GS_CFI_PLUS,          /* CFA + offset; for the CFA itself: register + offset */
    GS_CFI_REGISTER,      /* in another register */
    GS_CFI_AT_EXPRESSION, /* in memory at the address of the expression */
    GS_CFI_EXPRESSION,
};
struct gs_cfi_rule {
    uint8_t how, reg;
    uint32_t bytes; /* of the expression */
    union {
        int64_t offset;
        const uint8_t *expression;
    };
};
struct gs_cfi_row {
    bool signal; /* a signal handler's trampoline: the caller was interrupted, it called nothing */
    struct gs_cfi_rule cfa, reg[GS_REGS];
};

/* A loaded object. */
struct gs_image {
    uintptr_t bias;
    const ElfW(Phdr) * phdr;
    unsigned phnum;
};
/* The bytes of the segment with the flags (PF_R, PF_X) that contains the address; false: there is none. */
struct gs_segment {
    uintptr_t lo, hi;
};
bool gs_image_segment(const struct gs_image *image, uintptr_t address, uint32_t flags, struct gs_segment *segment);

/* Working memory that is too large for a signal handler's stack. */
#define GS_CFI_REMEMBERED 6
struct gs_cfi_work {
    struct gs_cfi_row row, initial, remembered[GS_CFI_REMEMBERED];
};

enum gs_cfi_result {
    GS_CFI_OK,
    GS_CFI_NONE,    /* the instruction has no entry in the table */
    GS_CFI_DAMAGED, /* or contains something that gpuspy does not interpret */
    GS_CFI_END,     /* the outermost frame */
    GS_CFI_UNKNOWN, /* it needs a register whose value is unknown */
};
/* Fills work->row with the rules for `pc`. They point into the image. */
enum gs_cfi_result gs_cfi_find(const struct gs_image *image, uintptr_t pc, struct gs_cfi_work *work);
/* From a frame's registers to its caller's. *place: where the return address is on the stack, 0
 * if it is not there. */
enum gs_cfi_result gs_cfi_apply(const struct gs_cfi_row *row, struct gs_registers *registers, struct gs_memory *memory,
                                uintptr_t *place);
