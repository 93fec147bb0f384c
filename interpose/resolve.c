#include "interpose/resolve.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* This file runs at the very first dlsym of a process, which may be a sanitizer's own start-up. */
#define UNCHECKED \
    __attribute__((no_sanitize("address"), no_sanitize("undefined"), no_sanitize("thread")))

void *gs_dlsym_at, *gs_dlvsym_at, *gs_dlopen_at;

/* --- the real dlsym --------------------------------------------------------------------------
 * Both names are ours, so the loader cannot be asked for them by name. The list of loaded objects
 * is walked instead and the symbol read from the C library's own hash table. */

struct symbols {
    const ElfW(Sym) * symbol;
    const char *string;
    const uint32_t *hash;
};

static UNCHECKED const void *dynamic_pointer(const struct link_map *map, ElfW(Addr) value)
{
    /* the loader has already added the base, except on a few machines */
    return (const void *)(value < map->l_addr ? value + map->l_addr : value);
}

static UNCHECKED struct symbols symbols_of(const struct link_map *map)
{
    struct symbols s = {0};
    for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB) s.symbol = dynamic_pointer(map, d->d_un.d_ptr);
        if (d->d_tag == DT_STRTAB) s.string = dynamic_pointer(map, d->d_un.d_ptr);
        if (d->d_tag == DT_GNU_HASH) s.hash = dynamic_pointer(map, d->d_un.d_ptr);
    }
    return s;
}

static UNCHECKED bool same(const char *a, const char *b)
{
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static UNCHECKED void *symbol_in(const struct link_map *map, const char *name)
{
    const struct symbols s = symbols_of(map);
    if (!s.symbol || !s.string || !s.hash) return NULL;
    uint32_t h = 5381;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) h = h * 33 + *c;
    const uint32_t buckets = s.hash[0], first = s.hash[1], bloom_words = s.hash[2];
    const uint32_t *bucket = s.hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = bucket + buckets;
    uint32_t i = buckets ? bucket[h % buckets] : 0;
    if (i < first) return NULL;
    for (;; i++) {
        const ElfW(Sym) *symbol = &s.symbol[i];
        if ((chain[i - first] | 1) == (h | 1) && symbol->st_shndx != SHN_UNDEF &&
            same(s.string + symbol->st_name, name))
            return (void *)(map->l_addr + symbol->st_value);
        if (chain[i - first] & 1) return NULL;
    }
}

static UNCHECKED bool starts(const char *text, const char *prefix)
{
    while (*prefix && *text == *prefix) text++, prefix++;
    return !*prefix;
}

static UNCHECKED const char *base_name(const char *path)
{
    const char *base = path;
    for (; *path; path++)
        if (*path == '/') base = path + 1;
    return base;
}

UNCHECKED void gs_real_find(void)
{
    static const char *const libraries[] = {"libc.so", "libdl.so", "libc.musl", "ld-musl"};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
            if (!map->l_name || !starts(base_name(map->l_name), libraries[i])) continue;
            if (!gs_dlvsym_at) gs_dlvsym_at = symbol_in(map, "dlvsym");
            if (!gs_dlsym_at) gs_dlsym_at = symbol_in(map, "dlsym");
            if (!gs_dlopen_at) gs_dlopen_at = symbol_in(map, "dlopen");
        }
    }
}

void *gs_real_dlsym(void *handle, const char *name)
{
    if (!gs_dlsym_at) gs_real_find();
    void *(*real)(void *, const char *) = (void *(*)(void *, const char *))gs_dlsym_at;
    return real ? real(handle, name) : NULL;
}

void *gs_real_dlvsym(void *handle, const char *name, const char *version)
{
    if (!gs_dlvsym_at) gs_real_find();
    void *(*real)(void *, const char *, const char *) =
        (void *(*)(void *, const char *, const char *))gs_dlvsym_at;
    return real ? real(handle, name, version) : NULL;
}

/* --- loaded objects -------------------------------------------------------------------------- */

static enum gs_version version_called(const char *node)
{
    for (int v = 0; v < GS_VERSIONS; v++)
        if (same(node, gs_version_nodes[v])) return (enum gs_version)v;
    return GS_VERSION_NONE;
}

/* The first version that is defined beside the base version, which is the object's own name. */
static enum gs_version version_defined(const ElfW(Dyn) * dynamic, ElfW(Addr) base)
{
    const struct link_map at = {.l_addr = base};
    if (dynamic == _DYNAMIC) return GS_VERSION_NONE; /* ours, with all of those versions */
    const char *string = NULL;
    const ElfW(Verdef) *definition = NULL;
    size_t left = 0;
    for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB) string = dynamic_pointer(&at, d->d_un.d_ptr);
        if (d->d_tag == DT_VERDEF) definition = dynamic_pointer(&at, d->d_un.d_ptr);
        if (d->d_tag == DT_VERDEFNUM) left = d->d_un.d_val;
    }
    if (!string || !definition) return GS_VERSION_NONE;
    for (; left; left--) {
        const char *const here = (const char *)definition;
        const ElfW(Verdaux) *name = (const ElfW(Verdaux) *)(here + definition->vd_aux);
        if (!(definition->vd_flags & VER_FLG_BASE)) return version_called(string + name->vda_name);
        if (!definition->vd_next) break;
        definition = (const ElfW(Verdef) *)(here + definition->vd_next);
    }
    return GS_VERSION_NONE;
}

enum gs_version gs_runtime_version(const struct link_map *map)
{
    return version_defined(map->l_ld, map->l_addr);
}

enum gs_version gs_runtime_version_at(const void *address)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map) return GS_VERSION_NONE;
    return gs_runtime_version(map);
}

struct wanted {
    const char *prefix;      /* NULL: by version */
    enum gs_version version;
    int skip;
    char path[PATH_MAX];
};

static enum gs_version version_of_loaded(const struct dl_phdr_info *info)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return version_defined(
                (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), info->dlpi_addr);
    return GS_VERSION_NONE;
}

static int match_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct wanted *w = data;
    if (!info->dlpi_name || !info->dlpi_name[0]) return 0;
    if (w->prefix ? !starts(base_name(info->dlpi_name), w->prefix)
                  : version_of_loaded(info) != w->version)
        return 0;
    if (w->skip-- > 0) return 0;
    snprintf(w->path, sizeof w->path, "%s", info->dlpi_name);
    return 1;
}

/* dl_iterate_phdr also sees what RTLD_LOCAL hides from RTLD_NEXT; the object is opened outside of it
 * because it holds the loader's lock. */
static void *open_wanted(struct wanted *w)
{
    if (!dl_iterate_phdr(match_object, w)) return NULL;
    return dlopen(w->path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void *gs_loaded(const char *prefix, int n)
{
    struct wanted w = {.prefix = prefix, .skip = n};
    return open_wanted(&w);
}

/* --- CUDA ------------------------------------------------------------------------------------ */

/* Its object is kept loaded, for the address is kept. */
static void *kept(void *found)
{
    Dl_info info;
    if (found && dladdr(found, &info) && info.dli_fname)
        dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    return found;
}

/* What is behind us in the global scope: just what a program that was linked to the library would
 * have bound to without us. */
static void *next_in_scope(const char *name)
{
    return kept(gs_real_dlsym(RTLD_NEXT, name));
}

/* The function of exactly this runtime, wherever it is loaded. */
static void *runtime_of_version(const char *name, enum gs_version version)
{
    const char *const node = gs_version_nodes[version];
    void *found = kept(gs_real_dlvsym(RTLD_NEXT, name, node));
    for (int n = 0; !found; n++) {
        struct wanted w = {.version = version, .skip = n};
        void *handle = open_wanted(&w);
        if (!handle) break;
        found = gs_real_dlvsym(handle, name, node);
    }
    return found;
}

/* By file name: a runtime without versions. */
static void *runtime_by_name(const char *name)
{
    void *found = NULL;
    for (int n = 0; !found; n++) {
        void *handle = gs_loaded("libcudart.so", n);
        if (!handle) break;
        found = gs_real_dlsym(handle, name);
    }
    return found;
}

static bool is_runtime(const void *found, enum gs_version version)
{
    const enum gs_version other = gs_runtime_version_at(found);
    /* another interposer, or a runtime without versions, has a reference to any version bound to it */
    return other == version || other == GS_VERSION_NONE;
}

/* `foreign`: it is another runtime's, for want of a better one. References without a version, which
 * come to the default wrapper, would have bound to that one too. */
static void *runtime_function(const char *name, enum gs_version version, bool *foreign)
{
    void *const next = next_in_scope(name);
    *foreign = false;
    if (next && is_runtime(next, version)) return next;
    void *found = runtime_of_version(name, version);
    if (found) return found;
    found = next ? next : runtime_by_name(name);
    if (!found || is_runtime(found, version)) return found;
    *foreign = true;
    return version == GS_VERSION_13 ? found : NULL;
}

static void *driver_function(const char *name)
{
    /* cudart opens the driver RTLD_LOCAL and closes it again at the end: NODELETE */
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    void *found = handle ? gs_real_dlsym(handle, name) : NULL;
    return found ? found : next_in_scope(name);
}

static void *any_runtime_function(const char *name)
{
    void *found = next_in_scope(name);
    for (int v = GS_VERSIONS; !found && v-- > 0;)
        found = runtime_of_version(name, (enum gs_version)v);
    return found ? found : runtime_by_name(name);
}

void *gs_resolve_name(enum gs_library library, const char *name)
{
    int saved = errno;
    void *found = library == GS_LIBRARY_RT ? any_runtime_function(name) : driver_function(name);
    if (!found) dlerror(); /* what we looked for in vain is no error of the program's */
    errno = saved;
    return found;
}

void *gs_resolve(uint16_t api, enum gs_version version)
{
    const char *const name = gs_apis[api].name;
    int saved = errno;
    bool foreign = false;
    void *found = gs_apis[api].library == GS_LIBRARY_RT ? runtime_function(name, version, &foreign)
                                                        : driver_function(name);
    dlerror(); /* what we looked for in vain is no error of the program's */
    errno = saved;
    /* not kept: the right runtime may be loaded later */
    if (!found || foreign) return found;
    /* the first to answer stays: every call goes to one and the same function */
    void *expected = NULL;
    _Atomic(void *) *const slot = &gs_reals[api][version];
    return atomic_compare_exchange_strong(slot, &expected, found) ? found : expected;
}
