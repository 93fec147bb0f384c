#include "interpose/host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/resource.h>
#include "interpose/resolve.h"
#include "schema/open_high.h"

#define DESCRIPTORS 12 /* so many of our own at once are enough */

/* Low numbers are the program's. */
static bool has_high_numbers(char *why, size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > GS_HIGH_FD) return true;
    snprintf(why, size, "files are limited to %llu open ones (ulimit -n), %d are needed: the low numbers stay the "
             "program's", (unsigned long long)limit.rlim_cur, GS_HIGH_FD + DESCRIPTORS);
    return false;
}

/* It takes what libraries wrote that it has not instrumented for uninitialised, and ends the program. */
static bool has_memory_sanitizer(void)
{
    return gs_real_dlsym(RTLD_DEFAULT, "__msan_init") != NULL;
}

bool gs_host_allows(char *why, size_t size)
{
    if (!has_high_numbers(why, size)) return false;
    if (!has_memory_sanitizer()) return true;
    snprintf(why, size, "the program is built with MemorySanitizer, which takes what gpuspy writes for uninitialised");
    return false;
}
