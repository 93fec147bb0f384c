#include "interpose/stack_module.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "interpose/stack.h"
#include "interpose/stack_memory.h"
#include "interpose/stack_python.h"

_Atomic uint32_t gs_module_generation, gs_module_loads;
struct gs_elf_range gs_stack_self;

static _Atomic unsigned long long unloads_seen;
static const ElfW(Phdr) * program; /* the main program, which has no name */
static char program_path[PATH_MAX];
static bool under_valgrind;

void gs_stack_unloaded(void)
{
    atomic_fetch_add(&gs_module_generation, 1);
    atomic_fetch_add(&gs_stack_epoch, 1);
}

/* --- one thread's objects --------------------------------------------------------------------- */

struct search {
    struct gs_modules *modules;
    uintptr_t address;
    void (*visit)(const struct dl_phdr_info *, void *);
    void *to;
    bool begun;
};

static bool does_object_hold(const struct dl_phdr_info *info, uintptr_t address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && address - info->dlpi_addr - p->p_vaddr < p->p_memsz) return true;
    }
    return false;
}

/* Forgets them if an object was loaded or unloaded. The hook in dlclose has already handled addresses, unless the
 * loader itself unloaded something. */
static void compare_counters(struct gs_modules *modules, const struct dl_phdr_info *info)
{
    unsigned long long seen = atomic_load_explicit(&unloads_seen, memory_order_relaxed);
    if (seen != info->dlpi_subs && atomic_compare_exchange_strong(&unloads_seen, &seen, info->dlpi_subs))
        gs_stack_unloaded();
    atomic_store_explicit(&gs_module_loads, (uint32_t)info->dlpi_adds, memory_order_relaxed);
    if (modules->loads == info->dlpi_adds && modules->unloads == info->dlpi_subs) return;
    modules->loads = info->dlpi_adds;
    modules->unloads = info->dlpi_subs;
    modules->turn = 0;
    memset(modules->known, 0, sizeof modules->known);
}

static const struct dl_phdr_info *known_module(const struct gs_modules *modules, uintptr_t address)
{
    for (uint32_t i = 0; i < GS_MODULES_KNOWN; i++) {
        const struct gs_module_known *k = &modules->known[i];
        if (address - k->range.lo < k->range.hi - k->range.lo && does_object_hold(&k->info, address)) return &k->info;
    }
    return NULL;
}

static int try_module(struct dl_phdr_info *info, size_t size, void *to)
{
    struct search *s = to;
    if (!s->begun) {
        s->begun = true;
        compare_counters(s->modules, info);
        const struct dl_phdr_info *met = known_module(s->modules, s->address);
        if (met) {
            s->visit(met, s->to);
            return 1;
        }
    }
    if (!does_object_hold(info, s->address)) return 0;
    s->modules->known[s->modules->turn++ % GS_MODULES_KNOWN] = (struct gs_module_known){gs_elf_range(info), *info};
    s->visit(info, s->to);
    return 1;
}

bool gs_module_visit(struct gs_modules *modules, uintptr_t address, void (*visit)(const struct dl_phdr_info *, void *),
                     void *to)
{
    struct search s = {modules, address, visit, to, false};
    return gs_elf_each(try_module, &s) != 0;
}

/* --- what the spool states of them ----------------------------------------------------------------- */

static void describe_module(const struct dl_phdr_info *info, void *to)
{
    struct gs_module *m = to;
    const char *name = info->dlpi_phdr == program ? program_path : info->dlpi_name ? info->dlpi_name : "";
    m->bias = info->dlpi_addr;
    m->path_len = (uint32_t)strnlen(name, sizeof m->path - 1);
    memcpy(m->path, name, m->path_len);
    m->path[m->path_len] = '\0';
    const uint8_t *id = gs_elf_build_id(info, &m->build_id_len);
    if (!id || m->build_id_len > sizeof m->build_id) m->build_id_len = 0;
    if (m->build_id_len) memcpy(m->build_id, id, m->build_id_len);
}

/* The path is relative to a directory that may have changed since, or not a file at all (the vdso). */
static void make_absolute(struct gs_module *m)
{
    char path[PATH_MAX];
    m->path_len = 0;
    if (!strchr(m->path, '/') || !realpath(m->path, path)) return;
    m->path_len = (uint32_t)strlen(path);
    memcpy(m->path, path, m->path_len);
}

bool gs_module_find(struct gs_modules *modules, uintptr_t address, struct gs_module *m)
{
    const int saved = errno;
    const bool found = gs_module_visit(modules, address, describe_module, m);
    if (found && m->path_len && m->path[0] != '/') make_absolute(m);
    if (found && m->path_len > GS_STRING_MAX) m->path_len = 0;
    errno = saved;
    return found;
}

/* --- ourselves -------------------------------------------------------------------------------- */

static void find_program_object(void)
{
    static const char deleted[] = " (deleted)";
    const size_t tail = sizeof deleted - 1;
    const ssize_t n = readlink("/proc/thread-self/exe", program_path, sizeof program_path - 1);
    if (n <= 0) return;
    program_path[n] = '\0';
    if ((size_t)n > tail && !strcmp(program_path + n - tail, deleted)) program_path[(size_t)n - tail] = '\0';
}

static int list_startup_modules(struct dl_phdr_info *info, size_t size, void *valgrind)
{
    if (!program) {
        program = info->dlpi_phdr;
        atomic_store(&unloads_seen, info->dlpi_subs);
    }
    if (does_object_hold(info, (uintptr_t)&list_startup_modules)) gs_stack_self = gs_elf_range(info);
    if (info->dlpi_name && strstr(info->dlpi_name, "/vgpreload_")) *(bool *)valgrind = true;
    return 0;
}

void gs_modules_load(void)
{
    static atomic_bool loaded;
    if (atomic_load(&loaded)) return;
    find_program_object();
    gs_elf_each(list_startup_modules, &under_valgrind);
    atomic_store(&loaded, true);
}

void gs_modules_open(void)
{
    static atomic_bool opened;
    if (atomic_load(&opened)) return;
    gs_modules_load(); /* if the call precedes gpuspy's constructor, by several threads at once: they write the same */
    gs_memory_open(under_valgrind);
    atomic_store(&opened, true);
}
