/* Checks the order of gpuspy's locks and the loader's. It is preloaded after libgpuspy.so, under a name that begins
 * with libc.so, so that the recorder takes its real dlopen, dlsym and dlclose from here. It intercepts the mutexes and
 * shared locks that code of libgpuspy.so locks and the calls into the loader. It appends a line to the file
 * LOCKORDER_OUT for each pair of locks that is taken in both orders, by a path of any length, and for each loader call
 * made while a lock of gpuspy's is held. At the end it writes how many locks and calls it saw. */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOCKS = 64, HELD = 16 };
static const void *lock_at[LOCKS];
static const char *taken_by[LOCKS]; /* the code that took it first */
static _Atomic unsigned lock_count, loader_calls;
static _Atomic bool before[LOCKS][LOCKS]; /* transitive */
static _Atomic bool reported[LOCKS + 1][LOCKS + 1];
static int busy;                              /* guards the tables; no libc lock, and never held across a call */
static uintptr_t own_low, own_high, own_base; /* libgpuspy.so */
static __thread unsigned held[HELD], held_count;
static __thread bool inside;

#define REAL(name) ((__typeof__(&name))real(#name))

/* From the C library itself, because this file defines the same names. */
static void *real(const char *name)
{
    static void *(*find)(void *, const char *, const char *);
    static void *libc;
    if (!find) {
        *(void **)&find = dlvsym(RTLD_NEXT, "dlvsym", "GLIBC_2.34");
        if (!find) *(void **)&find = dlvsym(RTLD_NEXT, "dlvsym", "GLIBC_2.2.5");
    }
    if (!libc && find) {
        void *(*open_real)(const char *, int);
        *(void **)&open_real = find(RTLD_NEXT, "dlopen", "GLIBC_2.34");
        if (open_real) libc = open_real("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    }
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t i = 0; libc && i < sizeof versions / sizeof *versions; i++) {
        void *found = find(libc, name, versions[i]);
        if (found) return found;
    }
    return NULL;
}

static int (*real_lock)(pthread_mutex_t *), (*real_unlock)(pthread_mutex_t *), (*real_trylock)(pthread_mutex_t *);
static int (*real_timedlock)(pthread_mutex_t *, const struct timespec *);
static int (*real_own)(pthread_rwlock_t *), (*real_give)(pthread_rwlock_t *);
static int (*real_own_within)(pthread_rwlock_t *, const struct timespec *);
static int (*real_share_within)(pthread_rwlock_t *, const struct timespec *);
static void *(*real_dlopen)(const char *, int), *(*real_dlsym)(void *, const char *);
static int (*real_dlclose)(void *), (*real_dladdr)(const void *, Dl_info *);
static int (*real_phdr)(int (*)(struct dl_phdr_info *, size_t, void *), void *);

static int find_own(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    const char *base = strrchr(info->dlpi_name, '/');
    if (!base || strcmp(base, "/libgpuspy.so") != 0) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X)) continue;
        own_base = info->dlpi_addr;
        own_low = info->dlpi_addr + h->p_vaddr;
        own_high = own_low + h->p_memsz;
    }
    return 1;
}

/* A forked child holds none of the locks: the recorder reinitialises them. */
static void forget(void)
{
    held_count = 0;
    busy = 0;
}

static void __attribute__((constructor)) load(void)
{
    pthread_atfork(NULL, NULL, forget);
    *(void **)&real_unlock = real("pthread_mutex_unlock");
    *(void **)&real_trylock = real("pthread_mutex_trylock");
    *(void **)&real_timedlock = real("pthread_mutex_timedlock");
    *(void **)&real_own = real("pthread_rwlock_wrlock");
    *(void **)&real_give = real("pthread_rwlock_unlock");
    *(void **)&real_own_within = real("pthread_rwlock_timedwrlock");
    *(void **)&real_share_within = real("pthread_rwlock_timedrdlock");
    *(void **)&real_dlopen = real("dlopen");
    *(void **)&real_dlsym = real("dlsym");
    *(void **)&real_dlclose = real("dlclose");
    *(void **)&real_dladdr = real("dladdr");
    *(void **)&real_phdr = real("dl_iterate_phdr");
    *(void **)&real_lock = real("pthread_mutex_lock");
    if (real_phdr) real_phdr(find_own, NULL);
}

static void report(const char *text)
{
    const char *path = getenv("LOCKORDER_OUT");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return;
    ssize_t unused = write(fd, text, strlen(text));
    (void)unused;
    close(fd);
}

static void __attribute__((destructor)) end(void)
{
    char line[100];
    snprintf(line, sizeof line, "saw %u locks, %u loader calls\n", lock_count, loader_calls);
    report(line);
}

static bool ours(const void *caller)
{
    return (uintptr_t)caller >= own_low && (uintptr_t)caller < own_high;
}

static unsigned number_of(const void *mutex, const void *caller)
{
    while (atomic_exchange_explicit(&busy, 1, memory_order_acquire)) continue;
    unsigned i = 0;
    while (i < lock_count && lock_at[i] != mutex) i++;
    if (i == lock_count && i < LOCKS) {
        lock_at[i] = mutex;
        taken_by[i] = (const char *)caller;
        lock_count++;
    }
    atomic_store_explicit(&busy, 0, memory_order_release);
    return i;
}

static void name_of(unsigned lock, char *out, size_t size)
{
    snprintf(out, size, "the lock first taken at libgpuspy.so+%#lx",
             (unsigned long)((uintptr_t)taken_by[lock] - own_base));
}

/* Adds that all held locks, and those taken before them, come before this one; reports a contradiction. */
static void order(unsigned lock)
{
    char first[80], second[80], line[300];
    for (unsigned h = 0; h < held_count; h++) {
        const unsigned a = held[h];
        if (a == lock || a >= LOCKS || lock >= LOCKS || before[a][lock]) continue;
        for (unsigned i = 0; i < lock_count; i++)
            for (unsigned j = 0; j < lock_count; j++)
                if ((i == a || before[i][a]) && (j == lock || before[lock][j])) before[i][j] = true;
        if (!before[lock][a] || atomic_exchange(&reported[a][lock], true)) continue;
        name_of(a, first, sizeof first);
        name_of(lock, second, sizeof second);
        snprintf(line, sizeof line, "both orders: %s and %s\n", first, second);
        report(line);
    }
}

static void hold(const void *mutex, const void *caller, bool waits)
{
    if (!ours(caller) || inside) return;
    inside = true;
    const unsigned lock = number_of(mutex, caller);
    if (waits) order(lock);
    if (held_count < HELD) held[held_count++] = lock;
    inside = false;
}

static void release(const void *mutex)
{
    for (unsigned i = held_count; i-- > 0;) {
        if (held[i] >= LOCKS || lock_at[held[i]] != mutex) continue;
        memmove(held + i, held + i + 1, (held_count - i - 1) * sizeof *held);
        held_count--;
        return;
    }
}

static void loader(const char *call, const void *caller)
{
    char name[80], line[300];
    if (inside) return;
    loader_calls++;
    if (!held_count) return;
    inside = true;
    if (!atomic_exchange(&reported[held[0] % LOCKS][LOCKS], true)) {
        name_of(held[0] % LOCKS, name, sizeof name);
        snprintf(line, sizeof line, "%s at libgpuspy.so+%#lx under %s\n", call,
                 (unsigned long)((uintptr_t)caller - own_base), name);
        report(line);
    }
    inside = false;
}

/* --- intercepted functions -------------------------------------------------------------------------------- */

#define CALLER __builtin_return_address(0)

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (!real_lock) *(void **)&real_lock = real("pthread_mutex_lock");
    hold(mutex, CALLER, true);
    return real_lock(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (!real_unlock) *(void **)&real_unlock = real("pthread_mutex_unlock");
    if (held_count) release(mutex);
    return real_unlock(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    if (!real_trylock) *(void **)&real_trylock = real("pthread_mutex_trylock");
    const int failed = real_trylock(mutex);
    if (!failed) hold(mutex, CALLER, false);
    return failed;
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until)
{
    if (!real_timedlock) *(void **)&real_timedlock = real("pthread_mutex_timedlock");
    const int failed = real_timedlock(mutex, until);
    if (!failed) hold(mutex, CALLER, false);
    return failed;
}

int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    if (!real_own) *(void **)&real_own = real("pthread_rwlock_wrlock");
    hold(lock, CALLER, true);
    return real_own(lock);
}

int pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
    if (!real_give) *(void **)&real_give = real("pthread_rwlock_unlock");
    if (held_count) release(lock);
    return real_give(lock);
}

int pthread_rwlock_timedwrlock(pthread_rwlock_t *lock, const struct timespec *until)
{
    if (!real_own_within) *(void **)&real_own_within = real("pthread_rwlock_timedwrlock");
    const int failed = real_own_within(lock, until);
    if (!failed) hold(lock, CALLER, false);
    return failed;
}

int pthread_rwlock_timedrdlock(pthread_rwlock_t *lock, const struct timespec *until)
{
    if (!real_share_within) *(void **)&real_share_within = real("pthread_rwlock_timedrdlock");
    const int failed = real_share_within(lock, until);
    if (!failed) hold(lock, CALLER, false);
    return failed;
}

void *dlopen(const char *file, int mode)
{
    if (!real_dlopen) *(void **)&real_dlopen = real("dlopen");
    loader("dlopen", CALLER);
    return real_dlopen(file, mode);
}

void *dlsym(void *handle, const char *name)
{
    if (!real_dlsym) *(void **)&real_dlsym = real("dlsym");
    loader("dlsym", CALLER);
    return real_dlsym(handle, name);
}

int dlclose(void *handle)
{
    if (!real_dlclose) *(void **)&real_dlclose = real("dlclose");
    loader("dlclose", CALLER);
    return real_dlclose(handle);
}

int dladdr(const void *address, Dl_info *info)
{
    if (!real_dladdr) *(void **)&real_dladdr = real("dladdr");
    loader("dladdr", CALLER);
    return real_dladdr(address, info);
}

int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data)
{
    if (!real_phdr) *(void **)&real_phdr = real("dl_iterate_phdr");
    loader("dl_iterate_phdr", CALLER);
    return real_phdr(callback, data);
}
