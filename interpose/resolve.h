/* Finding the functions that gpuspy stands in front of. */
#ifndef GPUSPY_RESOLVE_H
#define GPUSPY_RESOLVE_H

#include <link.h>
#include <stdint.h>
#include "interpose/api.h"

/* The C library's own dlsym and dlvsym, found without calling either (both are ours by name). May
 * be called at any time, from anywhere. */
void *gs_real_dlsym(void *handle, const char *name);
void *gs_real_dlvsym(void *handle, const char *name, const char *version);

/* Where the loader's functions are; the doors' assembly jumps there. Set by gs_real_find. */
extern void *gs_dlsym_at, *gs_dlvsym_at, *gs_dlopen_at;
void gs_real_find(void);

/* Slow path of gs_real: looks for the row's function and fills its slot. NULL if it is in nothing
 * that is loaded. errno is kept. */
void *gs_resolve(uint16_t api, enum gs_version version);
/* A function that is in no row, by name. Not cached. */
void *gs_resolve_name(enum gs_library library, const char *name);

/* The real function behind a wrapper. */
static inline void *gs_real(uint16_t api, enum gs_version version)
{
    void *real = atomic_load_explicit(&gs_reals[api][version], memory_order_acquire);
    return __builtin_expect(real != NULL, 1) ? real : gs_resolve(api, version);
}

/* Which runtime a loaded object is, by the version that it gives its symbols: its file may have any
 * name (libcudart-d0da41ae.so.11.0 in a wheel). GS_VERSION_NONE if it is none of them. */
enum gs_version gs_runtime_version(const struct link_map *map);
/* The same for the object that `address` is in. */
enum gs_version gs_runtime_version_at(const void *address);

/* Handle of the loaded object whose file name starts with `prefix` ("libcudart.so", "libc10.so"),
 * wherever and with whatever flags it was loaded; the n-th of them, from 0. Kept loaded from now
 * on. NULL if there is none. */
void *gs_loaded(const char *prefix, int n);

/* Keeps the library that holds this address loaded: served before anything is unloaded. */
void gs_pin_later(const void *address_in_library);

#endif
