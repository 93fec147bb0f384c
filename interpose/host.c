#include "interpose/host.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "interpose/resolve.h"
#include "schema/open_high.h"
#include "schema/spool.h"

#define DESCRIPTORS 12 /* gpuspy opens at most this many at once */
#define DATA_MIB 32    /* its heap, stacks and tables */

static bool memory_sanitizer, malloc_replaced;
static _Atomic bool malloc_traced;

void gs_host_load(void)
{
    memory_sanitizer = gs_find_in("", "__msan_init") != NULL;
    /* not by dlsym: its answer may be the PLT entry of a program that is built without PIC and takes malloc's address
     */
    malloc_replaced = gs_find_in("", "malloc") != gs_libc_function("malloc");
}

void gs_host_inspect(void)
{
    if (gs_find_in("_memray", "PyInit__memray")) malloc_traced = true;
}

bool gs_host_malloc_is_libcs(void)
{
    return !malloc_replaced && !malloc_traced;
}

/* gpuspy leaves the low descriptor numbers to the program. */
static bool has_high_numbers(char *why, size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= GS_HIGH_FD + DESCRIPTORS) return true;
    snprintf(why, size,
             "the limit on open files (ulimit -n) is %llu, and gpuspy needs %d because it leaves the low "
             "numbers to the program",
             (unsigned long long)limit.rlim_cur, GS_HIGH_FD + DESCRIPTORS);
    return false;
}

/* The program would lack what gpuspy takes of its limit. Memory of that protection counts against the limit. */
static bool leaves_room(int resource, const char *name, int protection, unsigned mib, char *why, size_t size)
{
    struct rlimit limit;
    const size_t bytes = (size_t)mib << 20;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
    void *room = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room != MAP_FAILED) {
        munmap(room, bytes);
        return true;
    }
    snprintf(why, size, "the limit on %s is %llu KiB, which leaves less than the %u MiB that gpuspy needs", name,
             (unsigned long long)limit.rlim_cur / 1024, mib);
    return false;
}

bool gs_host_allows(bool own_files, char *why, size_t size)
{
    if (!own_files && !has_high_numbers(why, size)) return false;
    if (!leaves_room(RLIMIT_DATA, "data (ulimit -d)", PROT_READ | PROT_WRITE, DATA_MIB, why, size)) return false;
    if (!leaves_room(RLIMIT_AS, "addresses (ulimit -v)", PROT_NONE, GS_ADDRESS_MIB, why, size)) return false;
    if (!memory_sanitizer) return true;
    snprintf(why, size,
             "the program is built with MemorySanitizer, which would report memory that gpuspy writes as "
             "uninitialised");
    return false;
}
