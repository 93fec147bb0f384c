/* Finds the real functions that gpuspy wraps. */
#pragma once

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "interpose/api.h"
#include "interpose/stack_elf.h"

/* The dlsym and dlvsym that the program would call without gpuspy, which defines both names: the C library's, or those
 * of another preloaded library. Found without calling either. May be called at any time, from anywhere. */
void *gs_real_dlsym(void *handle, const char *name);
void *gs_real_dlvsym(void *handle, const char *name, const char *version);

/* Addresses of the loader's functions; the doors' assembly jumps there. Set by gs_real_find. */
extern void *gs_dlsym_at, *gs_dlvsym_at, *gs_dlopen_at, *gs_dlclose_at;
void gs_real_find(void);
/* A function of the C library, internal ones included, read from its symbol table; NULL if it has none of that name.
 * Takes no lock. */
void *gs_libc_function(const char *name);
/* Whether this is the C library or one of its parts, by the name of the file. */
bool gs_is_libc(const char *path);
/* The definition after gpuspy's own in the loader's order of search: that of another preloaded library, if it has one,
 * or the C library's. Also without a lock. */
void *gs_next_function(const char *name);
/* The same, looked up once. */
GS_UNCHECKED static inline void *gs_next_once(_Atomic(void *) *found, const char *name)
{
    void *at = atomic_load(found);
    if (!at) atomic_store(found, at = gs_next_function(name));
    return at;
}

/* When libgpuspy is loaded: stores which objects the program started with. `late`: the program is already running. */
void gs_resolve_load(bool late);

/* Slow path of gs_real: looks for the row's function and fills its slot. NULL if no loaded object has it. Takes none of
 * the locks that dlopen holds while it runs constructors. */
void *gs_resolve(uint16_t api, enum gs_version version);
/* Finds a function that is in no row, by name. Not cached. */
void *gs_resolve_name(enum gs_library library, const char *name);

/* The real function behind a wrapper. */
static inline void *gs_real(uint16_t api, enum gs_version version)
{
    void *real = atomic_load_explicit(&gs_reals[api][version], memory_order_acquire);
    return __builtin_expect(real != NULL, 1) ? real : gs_resolve(api, version);
}

/* The same, if its object is of this version or of none; otherwise NULL, because another runtime's function may have
 * other parameters. */
void *gs_real_own(uint16_t api, enum gs_version version);

/* Which runtime a loaded object is, by the version of its symbols: its file may have any name
 * (libcudart-d0da41ae.so.11.0 in a wheel). GS_VERSION_NONE if it is not a runtime. */
enum gs_version gs_runtime_version(const struct link_map *map);
/* The same for the object that contains `address`. */
enum gs_version gs_runtime_version_at(const void *address);
/* Without the loader's lock. */
enum gs_version gs_runtime_version_around(const void *address);

/* The function in the loaded object whose file name or soname starts with `file` ("libc10.so"), in whatever way it was
 * loaded. NULL if there is none. */
void *gs_find_in(const char *file, const char *name);
/* Does the loader search another libgpuspy before this one? */
bool gs_is_second_recorder(void);

/* Requests that the library that contains this address stays loaded; done before anything is unloaded. */
void gs_pin_later(const void *address);
/* Pins the requested libraries; takes the loader's lock. For the door of dlclose. */
void gs_pin_now(void);
/* The process exits: pins nothing any more. */
void gs_resolve_end(void);
