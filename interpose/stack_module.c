/* From a native address to the object that it lies in.
 *
 * A process-wide table, sorted by address, made anew when the loader's counters say that something
 * came or went. Only an address that a thread has not met before is looked up here. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "interpose/stack.h"
#include "interpose/stack_native.h"
#include "interpose/stack_python.h"

#define MODULES 4096
#define PATH_BYTES (1u << 20)

struct entry {
    uintptr_t lo, hi, bias;
    uint32_t path, path_len;
    uint32_t build_id_len;
    uint8_t build_id[64];
};

_Atomic uint32_t gs_module_generation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct entry entries[MODULES];                    /* zero pages until used */
static uint32_t count;
static char paths[PATH_BYTES];
static uint32_t paths_used;
static unsigned long long adds, subs;

/* --- making the table ------------------------------------------------------------------------- */

/* The main program has no name here. */
static uint32_t main_path(char *to)
{
    ssize_t n = readlink("/proc/self/exe", to, PATH_MAX - 1);
    if (n <= 0)
        return 0;
    static const char deleted[] = " (deleted)";
    const size_t tail = sizeof deleted - 1;
    if ((size_t)n > tail && !memcmp(to + n - tail, deleted, tail))
        n -= (ssize_t)tail;
    return (uint32_t)n;
}

static uint32_t path_of(const struct dl_phdr_info *info, char *to)
{
    const char *name = info->dlpi_name;
    if (!name || !*name)
        return count == 0 ? main_path(to) : 0;
    if (*name != '/') {
        /* Relative to a directory that may change, or no file at all (the vdso). */
        return strchr(name, '/') && realpath(name, to) ? (uint32_t)strlen(to) : 0;
    }
    size_t n = strnlen(name, PATH_MAX - 1);
    memcpy(to, name, n);
    return (uint32_t)n;
}

static int add(struct dl_phdr_info *info, size_t size, void *unused)
{
    struct gs_elf_range r = gs_elf_range(info);
    if (count >= MODULES || !r.hi)
        return 0;
    char path[PATH_MAX];
    uint32_t n = path_of(info, path);
    if (n > sizeof((struct gs_module *)0)->path || n > PATH_BYTES - paths_used)
        n = 0;
    struct entry *e = &entries[count++];
    *e = (struct entry){.lo = r.lo, .hi = r.hi, .bias = info->dlpi_addr};
    memcpy(paths + paths_used, path, n);
    e->path = paths_used;
    e->path_len = n;
    paths_used += n;
    uint32_t length;
    const uint8_t *id = gs_elf_build_id(info, &length);
    if (id && length <= sizeof e->build_id) {
        memcpy(e->build_id, id, length);
        e->build_id_len = length;
    }
    return 0;
}

static int counters(struct dl_phdr_info *info, size_t size, void *to)
{
    unsigned long long *c = to;
    c[0] = info->dlpi_adds;
    c[1] = info->dlpi_subs;
    return 1;
}

/* Heapsort, because qsort may allocate. */
static void sift(uint32_t root, uint32_t end)
{
    for (uint32_t child; (child = 2 * root + 1) < end; root = child) {
        if (child + 1 < end && entries[child].lo < entries[child + 1].lo)
            child++;
        if (entries[root].lo >= entries[child].lo)
            return;
        struct entry e = entries[root];
        entries[root] = entries[child];
        entries[child] = e;
    }
}

static void sort(void)
{
    for (uint32_t i = count / 2; i-- > 0;)
        sift(i, count);
    for (uint32_t end = count; end-- > 1;) {
        struct entry e = entries[0];
        entries[0] = entries[end];
        entries[end] = e;
        sift(0, end);
    }
}

/* The caller holds the lock. */
static void refresh(void)
{
    unsigned long long now[2] = {0, 0};
    dl_iterate_phdr(counters, now);
    if (count && now[0] == adds && now[1] == subs)
        return;
    bool gone = count && now[1] != subs;
    adds = now[0];
    subs = now[1];
    count = paths_used = 0;
    dl_iterate_phdr(add, NULL);
    sort();
    if (gone) {
        atomic_fetch_add(&gs_module_generation, 1);
        atomic_fetch_add(&gs_stack_epoch, 1);
    }
}

/* --- asking it -------------------------------------------------------------------------------- */

static const struct entry *entry_at(uintptr_t address)
{
    uint32_t lo = 0, hi = count;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (entries[mid].hi <= address)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < count && entries[lo].lo <= address ? &entries[lo] : NULL;
}

bool gs_module_find(uintptr_t address, struct gs_module *m)
{
    int saved = errno;
    pthread_mutex_lock(&lock);
    refresh();
    const struct entry *e = entry_at(address);
    if (e) {
        m->bias = e->bias;
        m->path_len = e->path_len;
        memcpy(m->path, paths + e->path, e->path_len);
        m->build_id_len = e->build_id_len;
        memcpy(m->build_id, e->build_id, e->build_id_len);
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
    return e != NULL;
}

void gs_stack_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void gs_stack_after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

void gs_modules_open(void)
{
}

void gs_stack_unloaded(void)
{
}
