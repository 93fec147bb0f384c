#include "interpose/host.h"

#include <stdio.h>
#include <sys/resource.h>
#include "interpose/resolve.h"
#include "schema/open_high.h"

#define DESCRIPTORS 12 /* so many of our own at once are enough */

static bool memory_sanitizer;

void gs_host_load(void)
{
    memory_sanitizer = gs_find_in("", "__msan_init") != NULL;
}

/* Low numbers are the program's. */
static bool has_high_numbers(char *why, size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > GS_HIGH_FD) return true;
    snprintf(why, size, "files are limited to %llu open ones (ulimit -n), %d are needed: the low numbers stay the "
             "program's", (unsigned long long)limit.rlim_cur, GS_HIGH_FD + DESCRIPTORS);
    return false;
}

bool gs_host_allows(bool own_files, char *why, size_t size)
{
    if (!own_files && !has_high_numbers(why, size)) return false;
    if (!memory_sanitizer) return true;
    snprintf(why, size, "the program is built with MemorySanitizer, which takes what gpuspy writes for uninitialised");
    return false;
}
