/* Finds functions in loaded objects without the loader's lock.
 *
 * A thread in dlopen holds that lock while it runs constructors, and a constructor may wait for another thread that
 * calls CUDA. So a hooked call never uses dlopen, dlsym or dladdr: it reads the symbol tables of the loaded objects
 * through dl_iterate_phdr, whose lock is held only while the list changes. Objects in use are pinned later, by a
 * thread that calls dlclose and takes the lock anyway. */
#include "interpose/resolve.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include "interpose/stack_elf.h"

void *gs_dlsym_at, *gs_dlvsym_at, *gs_dlopen_at, *gs_dlclose_at;

/* --- the real dlsym --------------------------------------------------------------------------
 * gpuspy defines both names, so the loader would return gpuspy's functions. Instead, the list of loaded objects is
 * searched and the symbol is read from the C library's own hash table. */

static GS_UNCHECKED void *symbol_in(const struct link_map *map, const char *name)
{
    return gs_elf_symbol_of(map->l_addr, map->l_ld, name);
}

static GS_UNCHECKED bool string_starts_with(const char *text, const char *prefix)
{
    while (*prefix && *text == *prefix) text++, prefix++;
    return !*prefix;
}

static GS_UNCHECKED const char *object_base_name(const char *path)
{
    const char *base = path;
    for (; *path; path++)
        if (*path == '/') base = path + 1;
    return base;
}

enum { LIBC_PARTS = 6 };
static const char *const libc_parts[LIBC_PARTS] = {"libc.so",    "libdl.so",  "libpthread.so",
                                                   "libutil.so", "libc.musl", "ld-musl"};

GS_UNCHECKED bool gs_is_libc(const char *path)
{
    for (int i = 0; i < LIBC_PARTS; i++)
        if (string_starts_with(object_base_name(path), libc_parts[i])) return true;
    return false;
}

GS_UNCHECKED void *gs_libc_function(const char *name)
{
    for (int i = 0; i < LIBC_PARTS; i++) {
        for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
            if (!map->l_name || !string_starts_with(object_base_name(map->l_name), libc_parts[i])) continue;
            void *found = symbol_in(map, name);
            if (found) return found;
        }
    }
    return NULL;
}

/* Also of another file: an image's recorder and the user's own may both be in LD_PRELOAD. Its functions are never the
 * real ones. A program may define gpuspy_flush() itself, for runs without a recorder, but not what attaches one. */
static GS_UNCHECKED bool is_recorder(ElfW(Addr) base, const ElfW(Dyn) * dynamic)
{
    return dynamic == _DYNAMIC || gs_elf_symbol_of(base, dynamic, "gpuspy_attach");
}

GS_UNCHECKED bool gs_is_second_recorder(void)
{
    for (const struct link_map *map = _r_debug.r_map; map && map->l_ld != _DYNAMIC; map = map->l_next)
        if (is_recorder(map->l_addr, map->l_ld)) return true;
    return false;
}

/* The objects that a program starts with are in the list in the order in which the loader searches them. If the C
 * library comes before gpuspy, gpuspy was loaded later, and what follows it is not searched. */
GS_UNCHECKED void *gs_next_function(const char *name)
{
    void *found = NULL;
    const struct link_map *map = _r_debug.r_map;
    while (map && map->l_ld != _DYNAMIC) map = map->l_next;
    for (map = map ? map->l_next : NULL; map; map = map->l_next) {
        if (!found && !is_recorder(map->l_addr, map->l_ld)) found = symbol_in(map, name);
        if (map->l_name && string_starts_with(object_base_name(map->l_name), "libc.so"))
            return found ? found : gs_libc_function(name);
    }
    return gs_libc_function(name);
}

GS_UNCHECKED void gs_real_find(void)
{
    if (!gs_dlvsym_at) gs_dlvsym_at = gs_next_function("dlvsym");
    if (!gs_dlsym_at) gs_dlsym_at = gs_next_function("dlsym");
    if (!gs_dlopen_at) gs_dlopen_at = gs_next_function("dlopen");
    if (!gs_dlclose_at) gs_dlclose_at = gs_next_function("dlclose");
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
    void *(*real)(void *, const char *, const char *) = (void *(*)(void *, const char *, const char *))gs_dlvsym_at;
    return real ? real(handle, name, version) : NULL;
}

/* --- which runtime an object is --------------------------------------------------------------- */

static enum gs_version version_called(const char *node)
{
    for (int v = 0; v < GS_VERSIONS; v++)
        if (gs_elf_names_equal(node, gs_version_nodes[v])) return (enum gs_version)v;
    return GS_VERSION_NONE;
}

/* The first version defined after the base version, which is the object's own name. */
static enum gs_version version_defined(const ElfW(Dyn) * dynamic, ElfW(Addr) base)
{
    if (dynamic == _DYNAMIC) return GS_VERSION_NONE; /* gpuspy's own object, which has all of those versions */
    const char *string = NULL;
    const ElfW(Verdef) *definition = NULL;
    size_t left = 0;
    for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB) string = gs_elf_pointer(base, d->d_un.d_ptr);
        if (d->d_tag == DT_VERDEF) definition = gs_elf_pointer(base, d->d_un.d_ptr);
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

struct around {
    uintptr_t address;
    enum gs_version version;
};

static int find_version(struct dl_phdr_info *info, size_t size, void *data)
{
    struct around *a = data;
    const struct gs_elf_range range = gs_elf_range(info);
    if (a->address - range.lo >= range.hi - range.lo) return 0;
    a->version = version_defined(gs_elf_dynamic(info), info->dlpi_addr);
    return 1;
}

enum gs_version gs_runtime_version_around(const void *address)
{
    struct around a = {(uintptr_t)address, GS_VERSION_NONE};
    gs_elf_each(find_version, &a);
    return a.version;
}

/* --- keeping libraries loaded ----------------------------------------------------------------- */

#define PINS 64
static _Atomic(const void *) pins[PINS];
static _Atomic bool ending;      /* exit no longer unloads anything, and dlopen would run constructors again */
static unsigned startup_objects; /* this many objects, from the first, are never unloaded */
static bool loaded_late;         /* all objects of the running program come before libgpuspy in the list */

static int count_object(struct dl_phdr_info *info, size_t size, void *to)
{
    (*(unsigned *)to)++;
    return 0;
}

void gs_resolve_load(bool late)
{
    unsigned objects = 0;
    if (startup_objects) return;
    gs_elf_each(count_object, &objects);
    loaded_late = late;
    startup_objects = late ? 1 : objects; /* unknown for the others */
}

void gs_pin_later(const void *address)
{
    for (int i = 0; i < PINS; i++) {
        const void *expected = NULL;
        if (atomic_compare_exchange_strong(&pins[i], &expected, address) || expected == address) return;
    }
}

void gs_resolve_end(void)
{
    atomic_store(&ending, true);
}

void gs_pin_now(void)
{
    for (int i = 0; i < PINS && !atomic_load_explicit(&ending, memory_order_relaxed); i++) {
        Dl_info info;
        const void *address = atomic_load_explicit(&pins[i], memory_order_relaxed);
        if (!address) continue;
        if (dladdr(address, &info) && info.dli_fname) dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        atomic_compare_exchange_strong(&pins[i], &address, NULL);
    }
}

/* --- a function in the loaded objects --------------------------------------------------------- */

struct match {
    void *at;
    enum gs_version version; /* the object's */
    const void *object;      /* what to pin; NULL: the object is never unloaded */
};

struct search {
    const char *name;
    enum gs_version version; /* the requested runtime */
    const char *file;        /* the beginning of the library's file name or soname */
    unsigned index;
    bool after_us;       /* libgpuspy itself has been visited */
    struct match next;   /* the first one after libgpuspy in the global scope */
    struct match exact;  /* in an object of that version */
    struct match newest; /* in the newest runtime */
    struct match named;  /* in an object of that file name */
    struct match any;
};

static bool has_soname(const struct dl_phdr_info *info, const ElfW(Dyn) * dynamic, const char *prefix)
{
    const char *string = NULL;
    size_t soname = 0;
    for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB) string = gs_elf_pointer(info->dlpi_addr, d->d_un.d_ptr);
        if (d->d_tag == DT_SONAME) soname = d->d_un.d_val;
    }
    return string && soname && string_starts_with(string + soname, prefix);
}

static bool is_object_called(const struct dl_phdr_info *info, const ElfW(Dyn) * dynamic, const char *prefix)
{
    return string_starts_with(object_base_name(info->dlpi_name), prefix) || has_soname(info, dynamic, prefix);
}

static void keep_first(struct match *to, struct match m)
{
    if (!to->at) *to = m;
}

/* Objects that the program started with are in the global scope, in the order of the list. A later object's flags do
 * not show whether it is in it, so it counts only by its version or its name. */
static int find_symbol_in_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *s = data;
    const bool startup = s->index++ < startup_objects;
    const ElfW(Dyn) *dynamic = gs_elf_dynamic(info);
    if (is_recorder(info->dlpi_addr, dynamic)) {
        s->after_us = s->after_us || dynamic == _DYNAMIC;
        return 0;
    }
    struct match m = {.at = gs_elf_symbol(info, s->name)};
    if (!m.at) return 0;
    m.version = version_defined(dynamic, info->dlpi_addr);
    m.object = startup ? NULL : dynamic;
    if (s->after_us && startup) keep_first(&s->next, m);
    if (m.version != GS_VERSION_NONE && m.version == s->version) keep_first(&s->exact, m);
    if (m.version != GS_VERSION_NONE && (!s->newest.at || m.version > s->newest.version)) s->newest = m;
    if (s->file && is_object_called(info, dynamic, s->file)) keep_first(&s->named, m);
    if (s->after_us) keep_first(&s->any, m);
    return 0;
}

static struct search search_symbol(const char *name, const char *file, enum gs_version version)
{
    gs_resolve_load(false);
    struct search s = {.name = name, .version = version, .file = file, .after_us = loaded_late};
    gs_elf_each(find_symbol_in_object, &s);
    return s;
}

static struct match first_match(const struct match *const *matches)
{
    while (matches[1] && !matches[0]->at) matches++;
    return *matches[0];
}
#define FIRST_OF(...) first_match((const struct match *const[]){__VA_ARGS__, NULL})

static void *pin_match(struct match m)
{
    if (m.at && m.object) gs_pin_later(m.object);
    return m.at;
}

void *gs_find_in(const char *file, const char *name)
{
    return pin_match(search_symbol(name, file, GS_VERSION_NONE).named);
}

/* --- CUDA ------------------------------------------------------------------------------------ */

/* References to any version bind to another interposer, or to a runtime without versions. */
static bool serves_version(const struct match *m, enum gs_version version)
{
    return m->at && (m->version == version || m->version == GS_VERSION_NONE);
}

/* `foreign`: only another runtime's function was found. References without a version, which reach the default wrapper,
 * would have bound to it too. */
static struct match runtime_function(const char *name, enum gs_version version, bool *foreign)
{
    const struct search s = search_symbol(name, "libcudart.so", version);
    *foreign = false;
    if (serves_version(&s.next, version)) return s.next;
    if (s.exact.at) return s.exact;
    const struct match found = FIRST_OF(&s.next, &s.named, &s.any);
    if (!found.at || serves_version(&found, version)) return found;
    *foreign = true;
    return version == GS_VERSION_13 ? found : (struct match){.at = NULL};
}

static struct match any_runtime_function(const char *name)
{
    const struct search s = search_symbol(name, "libcudart.so", GS_VERSION_NONE);
    return FIRST_OF(&s.next, &s.newest, &s.named, &s.any);
}

static struct match driver_function(const char *name)
{
    const struct search s = search_symbol(name, "libcuda.so.1", GS_VERSION_NONE);
    return FIRST_OF(&s.next, &s.named, &s.any);
}

void *gs_resolve_name(enum gs_library library, const char *name)
{
    return pin_match(library == GS_LIBRARY_RT ? any_runtime_function(name) : driver_function(name));
}

void *gs_resolve(uint16_t api, enum gs_version version)
{
    const char *const name = gs_apis[api].name;
    bool foreign = false;
    const struct match m =
        gs_apis[api].library == GS_LIBRARY_RT ? runtime_function(name, version, &foreign) : driver_function(name);
    /* not stored: the right runtime may be loaded later */
    if (!m.at || foreign) return m.at;
    /* the first result stays: every call goes to one and the same function */
    void *expected = NULL;
    _Atomic(void *) *const slot = &gs_reals[api][version];
    return atomic_compare_exchange_strong(slot, &expected, pin_match(m)) ? m.at : expected;
}

void *gs_real_own(uint16_t api, enum gs_version version)
{
    void *const real = gs_real(api, version);
    if (!real || gs_apis[api].library != GS_LIBRARY_RT) return real;
    const enum gs_version found = gs_runtime_version_around(real);
    return found == GS_VERSION_NONE || found == version ? real : NULL;
}
