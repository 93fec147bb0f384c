/* Real CUDA functions that gpuspy calls for itself, never through a wrapper. They only read: none of them leaves an
 * error behind for the application to find. */
#pragma once

#include <stdatomic.h>
#include "interpose/resolve.h"

static inline void *gs_asked(enum gs_library library, const char *name, _Atomic(void *) *cache)
{
    void *found = atomic_load_explicit(cache, memory_order_acquire);
    if (found) return found;
    found = gs_resolve_name(library, name);
    if (found) atomic_store_explicit(cache, found, memory_order_release);
    return found;
}

/* real_<name>() returns the function, or NULL if it does not exist. */
#define GS_ASK(layer, result, name, ...)                                            \
    static result (*real_##name(void))(__VA_ARGS__)                                 \
    {                                                                               \
        static _Atomic(void *) cache;                                               \
        return (result(*)(__VA_ARGS__))gs_asked(GS_LIBRARY_##layer, #name, &cache); \
    }
