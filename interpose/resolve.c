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

void *gs_dlsym_at, *gs_dlvsym_at;

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

struct wanted {
    const char *prefix;
    int skip;
    char path[PATH_MAX];
};

static int match_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct wanted *w = data;
    if (!info->dlpi_name || !starts(base_name(info->dlpi_name), w->prefix)) return 0;
    if (w->skip-- > 0) return 0;
    snprintf(w->path, sizeof w->path, "%s", info->dlpi_name);
    return 1;
}

void *gs_loaded(const char *prefix, int n)
{
    /* dl_iterate_phdr also sees what RTLD_LOCAL hides from RTLD_NEXT; the object is opened outside
     * of it because it holds the loader's lock. */
    struct wanted w = {.prefix = prefix, .skip = n};
    if (!dl_iterate_phdr(match_object, &w)) return NULL;
    return dlopen(w.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/* --- CUDA ------------------------------------------------------------------------------------ */

/* What is behind us in the global scope: just what a program that was linked to the library would
 * have bound to without us. Its object is kept loaded, for the address is kept. */
static void *next_in_scope(const char *name)
{
    void *found = gs_real_dlsym(RTLD_NEXT, name);
    Dl_info info;
    if (found && dladdr(found, &info) && info.dli_fname)
        dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    return found;
}

static void *runtime_function(const char *name)
{
    void *found = next_in_scope(name);
    for (int n = 0; !found; n++) {
        void *handle = gs_loaded("libcudart.so", n);
        if (!handle) break;
        found = gs_real_dlsym(handle, name);
    }
    return found;
}

static void *driver_function(const char *name)
{
    /* cudart opens the driver RTLD_LOCAL and closes it again at the end: NODELETE */
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    void *found = handle ? gs_real_dlsym(handle, name) : NULL;
    return found ? found : next_in_scope(name);
}

void *gs_resolve_name(enum gs_library library, const char *name)
{
    int saved = errno;
    void *found = library == GS_LIBRARY_RT ? runtime_function(name) : driver_function(name);
    if (!found) dlerror(); /* what we looked for in vain is no error of the program's */
    errno = saved;
    return found;
}

void *gs_resolve(uint16_t api)
{
    void *found = gs_resolve_name((enum gs_library)gs_apis[api].library, gs_apis[api].name);
    void *expected = NULL;
    if (!found) return NULL;
    /* the first to answer stays: every call goes to one and the same function */
    return atomic_compare_exchange_strong(&gs_reals[api], &expected, found) ? found : expected;
}
