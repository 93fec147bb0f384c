#include "analyzer/base/mapped.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uintptr_t page_size;

static void on_bus(int number, siginfo_t *info, void *unused)
{
    const int saved = errno;
    void *page = (void *)((uintptr_t)info->si_addr & ~(page_size - 1));
    if (info->si_code <= 0) { /* another process sent it: raise it again without the handler */
        signal(number, SIG_DFL);
        raise(number);
    } else if (info->si_code != BUS_ADRERR || mmap(page, page_size, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        signal(number, SIG_DFL); /* the instruction runs again and ends the process */
    }
    errno = saved;
}

void mapped_survive(void)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, &action, NULL);
}

/* /proc/self/maps is sorted by address. */
static bool is_file(uintptr_t from, uintptr_t to)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[8192], *at = line;
    uintptr_t start = 0, end = 0;
    unsigned long inode = 0;
    while (maps && end <= from && fgets(line, sizeof line, maps)) {
        start = strtoul(line, &at, 16);
        end = strtoul(at + (*at == '-'), &at, 16);
    }
    if (maps) fclose(maps);
    return start <= from && to <= end && sscanf(at, "%*s %*s %*s %lu", &inode) == 1 && inode;
}

void mapped_release(const void *start, size_t size)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)start + page - 1) & ~(page - 1),
                    to = ((uintptr_t)start + size) & ~(page - 1);
    if (from < to && is_file(from, to)) madvise((void *)from, to - from, MADV_DONTNEED);
}
