#include "interpose/api.h"

#include "interpose/act_signatures.h"

#include <stddef.h>
#include <string.h>

const struct gs_api gs_apis[GS_API_COUNT] = {
#define GS_ROW(layer, symbol, name, versions, stream, params, args, act) \
    [GS_API_##symbol] = {#name, GS_LIBRARY_##layer, GS_IN_##versions, GS_MEMORY(act)},
#include "interpose/cuda_api.def"
#define GS_TORCH_ROW(symbol, name) [GS_API_##symbol] = {name, GS_LIBRARY_TORCH, 0, false},
    GS_TORCH_APIS(GS_TORCH_ROW)
#undef GS_TORCH_ROW
};

_Static_assert(GS_API_COUNT <= 2048, "the database packs an entry point into 11 bits");

const char *const gs_version_nodes[GS_VERSIONS] = {"libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"};
_Atomic(void *) gs_reals[GS_API_CUDA_END][GS_VERSIONS];

/* Open addressing, filled once by the first caller. The preprocessor cannot hash, and a constructor may run too late:
 * dlsym is called before it. */
#define SLOTS 4096u
_Static_assert(GS_API_CUDA_END < SLOTS / 2, "the table stays sparse");
static uint16_t table[SLOTS];
enum { EMPTY, FILLING, READY };
static _Atomic int table_state;

static uint32_t hash_api_name(const char *name)
{
    uint32_t h = 2166136261u;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) h = (h ^ *c) * 16777619u;
    return h ^ h >> 15;
}

static void fill_api_table(void)
{
    for (uint16_t i = 1; i < GS_API_CUDA_END; i++) {
        uint32_t at = hash_api_name(gs_apis[i].name) % SLOTS;
        while (table[at]) at = (at + 1) % SLOTS;
        table[at] = i;
    }
}

static bool is_api(uint16_t api, const char *name, unsigned versions)
{
    return gs_apis[api].versions & versions && strcmp(gs_apis[api].name, name) == 0;
}

static uint16_t find_slowly(const char *name, unsigned versions)
{
    for (uint16_t i = 1; i < GS_API_CUDA_END; i++)
        if (is_api(i, name, versions)) return i;
    return GS_API_NONE;
}

static uint16_t find_api(const char *name, unsigned versions)
{
    if (atomic_load_explicit(&table_state, memory_order_acquire) != READY) {
        int expected = EMPTY;
        /* Another thread, or the code that a signal interrupted, is filling the table: do not wait for it. */
        if (!atomic_compare_exchange_strong(&table_state, &expected, FILLING)) return find_slowly(name, versions);
        fill_api_table();
        atomic_store_explicit(&table_state, READY, memory_order_release);
    }
    for (uint32_t at = hash_api_name(name) % SLOTS; table[at]; at = (at + 1) % SLOTS)
        if (is_api(table[at], name, versions)) return table[at];
    return GS_API_NONE;
}

uint16_t gs_api_find(const char *name, enum gs_version version)
{
    return find_api(name, 1u << version);
}

bool gs_api_known(const char *name)
{
    return find_api(name, GS_IN_ALL) != GS_API_NONE;
}
