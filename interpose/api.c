#include "interpose/api.h"

#include "interpose/acts.h"

#include <stddef.h>
#include <string.h>

const struct gs_api gs_apis[GS_API_COUNT] = {
#define GS_ROW(layer, name, stream, params, args, act)                                             \
    [GS_API_##name] = {#name, GS_LIBRARY_##layer, GS_MEMORY_##act},
#include "interpose/cuda_api.def"
#define GS_TORCH_ROW(symbol, name) [GS_API_##symbol] = {name, GS_LIBRARY_TORCH, false},
    GS_TORCH_APIS(GS_TORCH_ROW)
#undef GS_TORCH_ROW
};

_Atomic(void *) gs_reals[GS_API_CUDA_END];

/* Open addressing, filled once by whoever comes first. The preprocessor cannot hash, and a
 * constructor may come too late: dlsym is called before it runs. */
#define SLOTS 2048u
_Static_assert(GS_API_CUDA_END < SLOTS / 2, "the table stays sparse");
static uint16_t table[SLOTS];
enum { EMPTY, FILLING, READY };
static _Atomic int table_state;

static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) h = (h ^ *c) * 16777619u;
    return h ^ h >> 15;
}

static void fill(void)
{
    for (uint16_t i = 1; i < GS_API_CUDA_END; i++) {
        uint32_t at = hash(gs_apis[i].name) % SLOTS;
        while (table[at]) at = (at + 1) % SLOTS;
        table[at] = i;
    }
}

static uint16_t find_slowly(const char *name)
{
    for (uint16_t i = 1; i < GS_API_CUDA_END; i++)
        if (strcmp(gs_apis[i].name, name) == 0) return i;
    return GS_API_NONE;
}

uint16_t gs_api_find(const char *name)
{
    if (atomic_load_explicit(&table_state, memory_order_acquire) != READY) {
        int expected = EMPTY;
        /* Another thread, or the code that a signal interrupted, is filling: don't wait for it. */
        if (!atomic_compare_exchange_strong(&table_state, &expected, FILLING))
            return find_slowly(name);
        fill();
        atomic_store_explicit(&table_state, READY, memory_order_release);
    }
    for (uint32_t at = hash(name) % SLOTS; table[at]; at = (at + 1) % SLOTS)
        if (strcmp(gs_apis[table[at]].name, name) == 0) return table[at];
    return GS_API_NONE;
}
