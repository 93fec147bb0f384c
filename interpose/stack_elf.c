#include "interpose/stack_elf.h"

#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "schema/system_call.h"

struct gs_elf_range gs_elf_range(const struct dl_phdr_info *info)
{
    struct gs_elf_range r = {UINTPTR_MAX, 0};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !p->p_memsz) continue;
        uintptr_t lo = info->dlpi_addr + p->p_vaddr;
        uintptr_t hi = lo + p->p_memsz;
        r.lo = lo < r.lo ? lo : r.lo;
        r.hi = hi > r.hi ? hi : r.hi;
    }
    if (!r.hi) r.lo = 0;
    return r;
}

/* Threads that are in dl_iterate_phdr for gpuspy, and forks that wait until there are none. */
static _Atomic int visitors, forks;
#ifndef GS_STATIC_TLS /* a test opens these files with dlopen, when the static block is full */
#define GS_STATIC_TLS __attribute__((tls_model("initial-exec")))
#endif
static __thread int visiting GS_STATIC_TLS;

static void enter_loader(void)
{
    const struct timespec step = {.tv_nsec = 50000};
    for (;;) {
        while (atomic_load(&forks)) nanosleep(&step, NULL);
        atomic_fetch_add(&visitors, 1);
        if (!atomic_load(&forks)) return;
        atomic_fetch_sub(&visitors, 1);
    }
}

/* A child was made while a thread that it does not have held the lock of the loader's list: it stays locked. Such a
 * child is not recorded, but the real functions are still found. */
static _Atomic bool lock_lost;
static pid_t loaded_in; /* the process, 0 unknown: in a child of a bare clone no handler has run */

static bool stays_locked(void)
{
    return gs_elf_list_is_locked() && (atomic_load(&lock_lost) || (loaded_in && getpid() != loaded_in));
}

static int visit_unlocked(int (*visit)(struct dl_phdr_info *info, size_t size, void *data), void *data)
{
    int result = 0;
    for (const struct link_map *map = _r_debug.r_map; map && !result; map = map->l_next) {
        const ElfW(Phdr) dynamic = {.p_type = PT_DYNAMIC, .p_vaddr = (ElfW(Addr))map->l_ld - map->l_addr};
        struct dl_phdr_info info = {
            .dlpi_addr = map->l_addr, .dlpi_name = map->l_name, .dlpi_phdr = &dynamic, .dlpi_phnum = 1};
        if (map->l_ld && map->l_name) result = visit(&info, sizeof info, data);
    }
    return result;
}

void gs_elf_load(void)
{
    loaded_in = (pid_t)gs_system_call(SYS_gettid);
}

int gs_elf_each(int (*visit)(struct dl_phdr_info *info, size_t size, void *data), void *data)
{
    const int saved = errno;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!visiting++) enter_loader();
    const int result = stays_locked() ? visit_unlocked(visit, data) : dl_iterate_phdr(visit, data);
    if (!--visiting) atomic_fetch_sub(&visitors, 1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return result;
}

bool gs_elf_rest(int ms)
{
    const struct timespec step = {.tv_nsec = 100000};
    atomic_fetch_add(&forks, 1);
    for (int left = ms * 10; atomic_load(&visitors) > 0 && left > 0; left--) nanosleep(&step, NULL);
    return atomic_load(&visitors) <= 0;
}

void gs_elf_go_on(void)
{
    atomic_fetch_sub(&forks, 1);
}

void gs_elf_forked(void)
{
    atomic_store(&lock_lost, gs_elf_list_is_locked());
    loaded_in = 0;
    atomic_store(&visitors, 0);
    atomic_store(&forks, 0);
    visiting = 0;
}

const ElfW(Dyn) * gs_elf_dynamic(const struct dl_phdr_info *info)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return NULL;
}

/* --- dynamic symbols -------------------------------------------------------------------------- */

struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
};

static GS_UNCHECKED bool find_tables(ElfW(Addr) base, const ElfW(Dyn) * dynamic, struct tables *t)
{
    *t = (struct tables){0};
    for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++) {
        const void *at = gs_elf_pointer(base, d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB)
            t->symbols = at;
        else if (d->d_tag == DT_STRTAB)
            t->strings = at;
        else if (d->d_tag == DT_GNU_HASH)
            t->gnu_hash = at;
        else if (d->d_tag == DT_HASH)
            t->hash = at;
    }
    return t->symbols && t->strings && (t->gnu_hash || t->hash);
}

GS_UNCHECKED bool gs_elf_names_equal(const char *a, const char *b)
{
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static GS_UNCHECKED const ElfW(Sym) * defined_symbol(const struct tables *t, uint32_t index, const char *name)
{
    const ElfW(Sym) *s = &t->symbols[index];
    if (s->st_shndx == SHN_UNDEF || !s->st_value || !gs_elf_names_equal(t->strings + s->st_name, name)) return NULL;
    return s;
}

static GS_UNCHECKED const ElfW(Sym) * by_gnu_hash(const struct tables *t, const char *name)
{
    uint32_t h = 5381;
    for (const char *c = name; *c; c++) h = h * 33 + (unsigned char)*c;

    uint32_t buckets = t->gnu_hash[0], first = t->gnu_hash[1];
    uint32_t words = t->gnu_hash[2], shift = t->gnu_hash[3];
    if (!buckets || !words) return NULL;
    const uint64_t *filter = (const uint64_t *)(t->gnu_hash + 4);
    const uint32_t *bucket = (const uint32_t *)(filter + words);
    const uint32_t *chain = bucket + buckets;

    uint64_t word = filter[(h / 64) % words];
    if (!(word >> (h % 64) & 1) || !(word >> ((h >> shift) % 64) & 1)) return NULL;
    uint32_t i = bucket[h % buckets];
    if (i < first) return NULL;
    for (;; i++) {
        uint32_t link = chain[i - first];
        const ElfW(Sym) *s = (link | 1) == (h | 1) ? defined_symbol(t, i, name) : NULL;
        if (s || link & 1) return s;
    }
}

static GS_UNCHECKED const ElfW(Sym) * by_hash(const struct tables *t, const char *name)
{
    uint32_t h = 0;
    for (const char *c = name; *c; c++) {
        h = (h << 4) + (unsigned char)*c;
        uint32_t top = h & 0xf0000000u;
        h = (h ^ top >> 24) & ~top;
    }
    uint32_t buckets = t->hash[0];
    const uint32_t *bucket = t->hash + 2, *chain = bucket + buckets;
    for (uint32_t i = buckets ? bucket[h % buckets] : 0; i; i = chain[i]) {
        const ElfW(Sym) *s = defined_symbol(t, i, name);
        if (s) return s;
    }
    return NULL;
}

static GS_UNCHECKED const ElfW(Sym) * symbol_of(ElfW(Addr) base, const ElfW(Dyn) * dynamic, const char *name)
{
    struct tables t;
    if (!find_tables(base, dynamic, &t)) return NULL;
    return t.gnu_hash ? by_gnu_hash(&t, name) : by_hash(&t, name);
}

GS_UNCHECKED void *gs_elf_symbol_of(ElfW(Addr) base, const ElfW(Dyn) * dynamic, const char *name)
{
    const ElfW(Sym) *s = symbol_of(base, dynamic, name);
    return s ? (void *)(base + s->st_value) : NULL;
}

void *gs_elf_symbol(const struct dl_phdr_info *info, const char *name)
{
    return gs_elf_symbol_of(info->dlpi_addr, gs_elf_dynamic(info), name);
}

/* --- the lock of the loader's list ------------------------------------------------------------ */

/* glibc's fork gives a child new locks of the loader, but not this one (posix/fork.c: dl_load_lock and
 * dl_load_tls_lock). It is in the loader's _rtld_global, and this thread holds it in a callback of dl_iterate_phdr, but
 * not after it. */
static const pthread_mutex_t *list_lock; /* NULL: not found */

#ifdef __GLIBC__
enum { HELD_MOST = 8 };
struct held {
    const pthread_mutex_t *locks[HELD_MOST];
    size_t n;
    pid_t thread;
};

static bool is_held_by(const pthread_mutex_t *lock, pid_t thread)
{
    return __atomic_load_n(&lock->__data.__owner, __ATOMIC_RELAXED) == thread &&
           __atomic_load_n(&lock->__data.__lock, __ATOMIC_RELAXED) > 0 &&
           (lock->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE_NP;
}

static GS_UNCHECKED int find_held_locks(struct dl_phdr_info *info, size_t size, void *data)
{
    struct held *held = data;
    const ElfW(Sym) *s = symbol_of(info->dlpi_addr, gs_elf_dynamic(info), "_rtld_global");
    if (!s) return 0;
    for (size_t at = 0; at + sizeof(pthread_mutex_t) <= s->st_size; at += _Alignof(pthread_mutex_t)) {
        const pthread_mutex_t *lock = (const void *)(info->dlpi_addr + s->st_value + at);
        if (held->n < HELD_MOST && is_held_by(lock, held->thread)) held->locks[held->n++] = lock;
    }
    return 1;
}

__attribute__((constructor)) static void find_list_lock(void)
{
    struct held held = {.thread = (pid_t)gs_system_call(SYS_gettid)};
    gs_elf_each(find_held_locks, &held);
    for (size_t i = 0; i < held.n; i++)
        if (!is_held_by(held.locks[i], held.thread)) list_lock = held.locks[i];
}
#endif

bool gs_elf_list_is_locked(void)
{
    return list_lock && __atomic_load_n(&list_lock->__data.__lock, __ATOMIC_RELAXED) != 0;
}

/* --- notes ------------------------------------------------------------------------------------ */

static uintptr_t align_to(uintptr_t n, uintptr_t a)
{
    return (n + a - 1) & ~(a - 1);
}

struct note {
    const char *name; /* of three characters at most */
    uint32_t type;
};

static const uint8_t *find_note_in(uintptr_t at, uintptr_t end, uintptr_t align, struct note sought, uint32_t *length)
{
    char name[4] = {0};
    memcpy(name, sought.name, strlen(sought.name));
    while (at + sizeof(ElfW(Nhdr)) <= end) {
        const ElfW(Nhdr) *n = (const ElfW(Nhdr) *)at;
        uintptr_t data = at + align_to(sizeof *n + n->n_namesz, align);
        if (data + n->n_descsz > end) return NULL;
        if (n->n_type == sought.type && n->n_namesz == sizeof name && !memcmp(n + 1, name, sizeof name)) {
            *length = n->n_descsz;
            return (const uint8_t *)data;
        }
        at += align_to(data - at + n->n_descsz, align);
    }
    return NULL;
}

static const uint8_t *find_note(const struct dl_phdr_info *info, struct note sought, uint32_t *length)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_NOTE) continue;
        uintptr_t at = info->dlpi_addr + p->p_vaddr;
        const uint8_t *data = find_note_in(at, at + p->p_memsz, p->p_align == 8 ? 8 : 4, sought, length);
        if (data) return data;
    }
    *length = 0;
    return NULL;
}

const uint8_t *gs_elf_build_id(const struct dl_phdr_info *info, uint32_t *length)
{
    return find_note(info, (struct note){"GNU", NT_GNU_BUILD_ID}, length);
}

/* Reproducible builds have no build ID (-ldflags=-buildid=), but C calls Go by this name. */
bool gs_elf_is_go(const struct dl_phdr_info *info)
{
    enum { GO_BUILD_ID = 4 };
    uint32_t length;
    return find_note(info, (struct note){"Go", GO_BUILD_ID}, &length) || gs_elf_symbol(info, "crosscall2");
}
