/* Owns the imports of other objects. A slot is changed only if it holds the very function that the wrapper calls, or
 * is not bound yet; another interposer's function stays. Later the function replaces the wrapper's address again.
 *
 * An object is in the loader's list before its slots are filled. A thread that has read the list and then takes the
 * loader's lock has waited for all threads that were filling slots; and while the list is visited it cannot grow. */
#include "interpose/reroute.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include "interpose/api.h"
#include "interpose/imports.h"
#include "interpose/pointers.h"
#include "interpose/resolve.h"
#include "interpose/shield.h"
#include "interpose/stack_elf.h"

enum { ROUNDS = 200, PAUSE_NS = 10000000, OBJECTS = 4096 };

static _Atomic bool busy;  /* a thread is visiting the list */
static _Atomic bool later; /* an object may have been loaded since */

/* Objects that have been handled, by their dynamic sections. An overflow only costs time. */
static struct {
    uintptr_t at[OBJECTS];
    unsigned long long unloads;
} seen;

static bool is_seen(uintptr_t dynamic)
{
    for (uint32_t i = 0; i < 16; i++) {
        uintptr_t *const slot = &seen.at[((uint32_t)(dynamic * 0x9e3779b97f4a7c15u >> 52) + i) % OBJECTS];
        if (*slot == dynamic) return true;
        if (*slot) continue;
        *slot = dynamic;
        return false;
    }
    return false;
}

/* --- functions of the C library and of PyTorch -------------------------------------------------- */

static struct other {
    const char *name;
    const char *file; /* the library that defines it; NULL: the C library */
    uintptr_t door;   /* gpuspy's function of this name */
    uintptr_t real;   /* 0: not loaded */
} others[] = {
    {.name = "dlsym"},
    {.name = "dlvsym"},
    {.name = "dlopen"},
    {.name = "dlclose"},
    {.name = "fork"},
    {.name = "daemon"},
    {.name = "forkpty"},
    {.name = "prctl"},
#define C10(symbol)                         \
    {                                       \
        .name = symbol, .file = "libc10.so" \
    }
    C10("_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"),
    C10("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"),
    C10("_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE"),
    C10("_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE"),
    C10("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"),
    C10("_ZN3c1022memoryProfilingEnabledEv"),
};
enum { OTHERS = sizeof others / sizeof *others };

/* From gpuspy's own symbol table: in this process the names refer to other functions. */
static void find_doors(struct dl_phdr_info *own)
{
    for (int i = 0; i < OTHERS; i++) {
        struct other *o = &others[i];
        if (!o->door) o->door = (uintptr_t)gs_elf_symbol(own, o->name);
        o->real = (uintptr_t)(o->file ? gs_find_in(o->file, o->name) : gs_libc_function(o->name));
    }
}

static const struct other *other_called(const char *name)
{
    if (strchr("dfpD_", name[0]) == NULL) return NULL;
    for (int i = 0; i < OTHERS; i++)
        if (others[i].real && others[i].door && !strcmp(others[i].name, name)) return &others[i];
    return NULL;
}

/* --- one slot ----------------------------------------------------------------------------------- */

struct visit {
    unsigned long long loads; /* the list must not have changed from this */
    bool back, only_new, changed;
    struct gs_elf_range object; /* the object whose slots are being visited */
};

struct slot {
    const struct gs_imports *of;
    size_t symbol;
    const char *name;
    uintptr_t now;
    bool unbound; /* the first call through the slot will bind it */
};

static enum gs_version version_asked(const struct slot *s)
{
    const char *asked = gs_import_version(s->of, s->symbol);
    for (int v = 0; asked && v < GS_VERSIONS; v++)
        if (!strcmp(asked, gs_version_nodes[v])) return (enum gs_version)v;
    return gs_runtime_version_around(gs_resolve_name(GS_LIBRARY_RT, s->name));
}

/* Does a call through the slot reach `real`, the function of this version? */
static bool leads_to(const struct slot *s, uint16_t api, enum gs_version v, const void *real)
{
    const bool runtime = gs_apis[api].library == GS_LIBRARY_RT;
    if (s->unbound) return !runtime || version_asked(s) == v;
    return s->now == (uintptr_t)real && gs_real_own(api, v) == real;
}

/* What the slot should hold; 0: keep what it holds. */
static uintptr_t cuda_target(const struct slot *s, bool back)
{
    for (int v = 0; v < GS_VERSIONS; v++) {
        const uint16_t api = gs_api_find(s->name, (enum gs_version)v);
        const void *const wrapper = gs_wrappers[api][v];
        if (!api || !wrapper || (back && s->now != (uintptr_t)wrapper)) continue;
        const void *const real = gs_real(api, (enum gs_version)v);
        if (!real) continue;
        if (back) return (uintptr_t)real;
        if (leads_to(s, api, (enum gs_version)v, real)) return (uintptr_t)wrapper;
    }
    return 0;
}

static uintptr_t slot_target(const struct slot *s, bool back)
{
    if (s->name[0] == 'c' && s->name[1] == 'u') return cuda_target(s, back);
    const struct other *o = other_called(s->name);
    if (!o) return 0;
    if (back) return s->now == o->door ? o->real : 0;
    return s->unbound || s->now == o->real ? o->door : 0;
}

/* --- all slots ---------------------------------------------------------------------------------- */

/* False for a function that the object itself defines: its own calls are not intercepted, unless they report to
 * PyTorch's profiler. */
static bool concerns_symbol(const struct gs_imports *o, size_t symbol)
{
    const bool sorted = o->hash && o->hash[1] > 1; /* undefined symbols come first */
    if (sorted && symbol < o->hash[1]) return true;
    const ElfW(Sym) *s = &o->symbols[symbol];
    return s->st_shndx == SHN_UNDEF || !strncmp(o->strings + s->st_name, "_ZN3c10", 7);
}

static void reroute_slot(const struct gs_imports *o, const ElfW(Rela) * r, struct visit *v)
{
    const size_t symbol = ELF64_R_SYM(r->r_info);
    if (!gs_import_is_address(r) || !concerns_symbol(o, symbol)) return;
    uintptr_t *const at = (uintptr_t *)(o->info->dlpi_addr + r->r_offset);
    struct slot s = {.of = o, .symbol = symbol, .name = o->strings + o->symbols[symbol].st_name, .now = *at};
    if (!s.now) return; /* a weak symbol that nothing defines */
    s.unbound = o->symbols[symbol].st_shndx == SHN_UNDEF && s.now - v->object.lo < v->object.hi - v->object.lo;
    const uintptr_t to = slot_target(&s, v->back);
    if (to) gs_import_write(o->info, at, s.now, to);
}

static void reroute_object(struct dl_phdr_info *info, struct visit *v)
{
    struct gs_imports o;
    if (!gs_imports_read(&o, info)) return;
    v->object = gs_elf_range(info);
    for (int i = 0; i < 2; i++)
        for (size_t k = i ? 0 : o.relative; k < o.tables[i].count; k++) reroute_slot(&o, &o.tables[i].at[k], v);
}

static int visit_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct visit *v = data;
    if (info->dlpi_adds != v->loads) {
        v->changed = true;
        return 1;
    }
    if (v->only_new && seen.unloads != info->dlpi_subs) memset(seen.at, 0, sizeof seen.at);
    seen.unloads = info->dlpi_subs;
    if (is_seen((uintptr_t)gs_elf_dynamic(info)) && v->only_new) return 0;
    reroute_object(info, v);
    if (!v->only_new) gs_pointers_reroute(info); /* a new object has not obtained addresses yet */
    return 0;
}

static int find_own_range(struct dl_phdr_info *info, size_t size, void *data)
{
    if (gs_elf_dynamic(info) != _DYNAMIC) return 0;
    *(unsigned long long *)data = info->dlpi_adds;
    find_doors(info);
    return 1;
}

/* False: another thread is doing it, or the list changed. */
static bool try_reroute(bool back, bool only_new)
{
    struct visit v = {.back = back, .only_new = only_new};
    struct gs_shield shield;
    gs_shield_begin(&shield);
    bool done = !atomic_exchange(&busy, true);
    if (done) {
        gs_elf_each(find_own_range, &v.loads);
        if (!only_new) gs_pointers_prepare(back);
        gs_real_dlsym(RTLD_DEFAULT, "malloc"); /* any thread that was loading these objects has now finished */
        gs_elf_each(visit_object, &v);
        done = !v.changed;
        atomic_store(&busy, false);
    }
    gs_shield_end(&shield);
    return done;
}

bool gs_reroute(bool back)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (int i = 0; i < ROUNDS; i++) {
        if (try_reroute(back, false)) return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

void gs_reroute_later(void)
{
    atomic_store_explicit(&later, true, memory_order_release);
}

void gs_reroute_due(void)
{
    if (!atomic_load_explicit(&later, memory_order_acquire)) return;
    atomic_store(&later, false);
    if (!try_reroute(false, true)) atomic_store(&later, true);
}

void gs_reroute_forked(void)
{
    atomic_store(&busy, false);
}
