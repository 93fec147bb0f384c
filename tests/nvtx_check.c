/* Compiled where a toolkit stands: interpose/nvtx_abi.h against NVTX's own headers. */
#include <nvtx3/nvToolsExt.h>

#include "interpose/nvtx_abi.h"

#define SAME(a, b) _Static_assert((long long)(a) == (long long)(b), #a " is " #b)

#define CORE(name, number) SAME(NVTX_CBID_CORE_##name, number);
NVTX_ABI_CORE(CORE)
#define CORE2(name, number) SAME(NVTX_CBID_CORE2_##name, number);
NVTX_ABI_CORE2(CORE2)

SAME(NVTX_ABI_NO_TRACKING, NVTX_NO_PUSH_POP_TRACKING);
SAME(NVTX_ABI_TABLE_CALLBACKS, NVTX_ETID_CALLBACKS);
SAME(NVTX_ABI_MODULE_CORE, NVTX_CB_MODULE_CORE);
SAME(NVTX_ABI_MODULE_CORE2, NVTX_CB_MODULE_CORE2);
SAME(NVTX_ABI_TEXT, NVTX_MESSAGE_TYPE_ASCII);
SAME(NVTX_ABI_WIDE, NVTX_MESSAGE_TYPE_UNICODE);
SAME(NVTX_ABI_REGISTERED, NVTX_MESSAGE_TYPE_REGISTERED);

SAME(sizeof(struct nvtx_abi_callbacks), sizeof(NvtxExportTableCallbacks));
SAME(offsetof(struct nvtx_abi_callbacks, get_table), offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable));
SAME(sizeof(struct nvtx_abi_attributes), sizeof(nvtxEventAttributes_t));
#define PLACE(ours, theirs) SAME(offsetof(struct nvtx_abi_attributes, ours), offsetof(nvtxEventAttributes_t, theirs))
PLACE(version, version);
PLACE(size, size);
PLACE(message_type, messageType);
PLACE(message, message);
SAME(sizeof(((struct nvtx_abi_attributes *)0)->message), sizeof(nvtxMessageValue_t));

/* The functions that door_nvtx.c puts into the tables: handles are pointers, ids 64 bits. */
SAME(sizeof(nvtxRangeId_t), sizeof(uint64_t));
SAME(sizeof(nvtxDomainHandle_t), sizeof(void *));
SAME(sizeof(nvtxStringHandle_t), sizeof(void *));
#define TYPE(function, result, ...) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&function), result (*)(__VA_ARGS__)), #function)
TYPE(nvtxMarkEx, void, const nvtxEventAttributes_t *);
TYPE(nvtxMarkA, void, const char *);
TYPE(nvtxMarkW, void, const wchar_t *);
TYPE(nvtxRangeStartEx, nvtxRangeId_t, const nvtxEventAttributes_t *);
TYPE(nvtxRangeStartA, nvtxRangeId_t, const char *);
TYPE(nvtxRangeEnd, void, nvtxRangeId_t);
TYPE(nvtxRangePushEx, int, const nvtxEventAttributes_t *);
TYPE(nvtxRangePushA, int, const char *);
TYPE(nvtxRangePop, int, void);
TYPE(nvtxDomainMarkEx, void, nvtxDomainHandle_t, const nvtxEventAttributes_t *);
TYPE(nvtxDomainRangeStartEx, nvtxRangeId_t, nvtxDomainHandle_t, const nvtxEventAttributes_t *);
TYPE(nvtxDomainRangeEnd, void, nvtxDomainHandle_t, nvtxRangeId_t);
TYPE(nvtxDomainRangePushEx, int, nvtxDomainHandle_t, const nvtxEventAttributes_t *);
TYPE(nvtxDomainRangePop, int, nvtxDomainHandle_t);
TYPE(nvtxDomainRegisterStringA, nvtxStringHandle_t, nvtxDomainHandle_t, const char *);
TYPE(nvtxDomainCreateA, nvtxDomainHandle_t, const char *);
