/* The part of NVTX's injection interface that gpuspy needs: version 3, which NVTX keeps compatible with programs
 * compiled long ago. Facts of nvtx3/nvToolsExt.h and nvtxDetail/nvtxTypes.h; if a toolkit is installed,
 * tests/nvtx_check.c compares all of it with them. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

/* What NVTX's functions return without a tool; gpuspy returns the same unless it has a handle or a level. */
#define NVTX_ABI_NO_TRACKING (-2)

enum { NVTX_ABI_TABLE_CALLBACKS = 1 }; /* requested from the look-up function that an injection receives */
enum { NVTX_ABI_MODULE_CORE = 1, NVTX_ABI_MODULE_CORE2 = 5 };

/* X(name, number) in the table of each module */
/* clang-format off */
#define NVTX_ABI_CORE(X)                                                                           \
    X(MarkEx, 1)                                                                                   \
    X(MarkA, 2) X(MarkW, 3) X(RangeStartEx, 4) X(RangeStartA, 5) X(RangeStartW, 6) X(RangeEnd, 7)  \
        X(RangePushEx, 8) X(RangePushA, 9) X(RangePushW, 10) X(RangePop, 11)
/* clang-format on */
/* clang-format off */
#define NVTX_ABI_CORE2(X)                                                                          \
    X(DomainMarkEx, 1)                                                                             \
    X(DomainRangeStartEx, 2) X(DomainRangeEnd, 3) X(DomainRangePushEx, 4) X(DomainRangePop, 5)     \
        X(DomainRegisterStringA, 10) X(DomainRegisterStringW, 11) X(DomainCreateA, 12)             \
            X(DomainCreateW, 13)
/* clang-format on */

typedef void (*nvtx_abi_function)(void);

struct nvtx_abi_callbacks {
    size_t struct_size;
    /* The module's table: for each number the place of NVTX's pointer to an implementation. 1 on
     * success. */
    int (*get_table)(int module, nvtx_abi_function ***table, unsigned int *size);
};
typedef const void *(*nvtx_abi_lookup)(uint32_t table);

enum { NVTX_ABI_TEXT = 1, NVTX_ABI_WIDE = 2, NVTX_ABI_REGISTERED = 3 }; /* message_type */

struct nvtx_abi_attributes {
    uint16_t version, size; /* 48 since version 1 */
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *text;
        const wchar_t *wide;
        const void *registered;
    } message;
};
