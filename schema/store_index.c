/* Keeps the index of the log (run.db-shm) in ordinary memory inside the application's process.
 *
 * SQLite maps this file and reads the mapping at any moment of a transaction: another process that truncates
 * the file would kill this one by SIGBUS. So SQLite gets ordinary memory instead of the mapping. SQLite's locks
 * on the file show when it must agree with the file: after each lock gpuspy reads what others wrote, before
 * each unlock it writes what SQLite wrote. Processes that map the file see no difference.
 *
 * The file's layout is SQLite's (walIndexHdr, WalCkptInfo, "WAL-Index Format"). Only a holder of the
 * write lock changes the two headers and the hash tables; a read mark belongs to the holder of its lock,
 * so each is written by itself, and only if it was changed here.
 *
 * A log that a reader holds has gigabytes, and its index megabytes. SQLite adds to it, or begins it again from the
 * start: what it changed is between the last frames (mxFrame) of the two headers, that of the file and its own. Only
 * a recovery writes everything. */
#include "schema/store_index.h"
#include "schema/store_append.h"
#include "schema/system_call.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define REGION (32 * 1024) /* SQLite maps one at once, or as many as a larger page has */
#define REGIONS 4096 /* a log of 64 GiB, as a reader that never ends makes it; their memory is taken as it grows */
#define PIECE 4096
enum { HEADER = 48, HEADERS = 96, MARKS_END = 136, LAST_FRAME = 16, SALT = 32, RECOVERY_LOCK = 122 };
enum { FRAMES = 4096, FRAMES_FIRST = FRAMES - MARKS_END / 4 }; /* of a region, of the first */
/* Words of WalCkptInfo that others may change: nBackfill, the read marks, nBackfillAttempted. */
static const uint16_t words[] = {96, 100, 104, 108, 112, 116, 128};

static struct index {
    int fd; /* -1: unused */
    unsigned regions;
    bool all, recovers;       /* all: any region may differ from the file */
    size_t mapped;            /* bytes that SQLite maps at once */
    uint8_t *memory[REGIONS]; /* what SQLite uses; that many bytes after it, its last known content in the file */
} indexes[4] = {{.fd = -1}, {.fd = -1}, {.fd = -1}, {.fd = -1}};

static struct index *find_index(int fd)
{
    for (size_t i = 0; fd >= 0 && i < sizeof indexes / sizeof *indexes; i++)
        if (indexes[i].fd == fd) return &indexes[i];
    return NULL;
}

static uint8_t *known_index(const struct index *x, uint8_t *memory)
{
    return memory + x->mapped;
}

static bool read_at(int fd, void *to, size_t n, off_t at)
{
    return pread(fd, to, n, at) == (ssize_t)n;
}

/* ---------------------------------------------------------------- what others wrote */

static void take_region(struct index *x, unsigned region)
{
    uint8_t *m = x->memory[region];
    if (read_at(x->fd, known_index(x, m), REGION, (off_t)region * REGION)) memcpy(m, known_index(x, m), REGION);
}

/* The file was truncated: some of what it had may still be in it. The next unlock writes the rest again. */
static void restore_index(struct index *x)
{
    (void)!pwrite(x->fd, "", 1, (off_t)x->regions * REGION - 1);
    for (unsigned i = 0; i < x->regions; i++) {
        uint8_t *known = known_index(x, x->memory[i]);
        if (!read_at(x->fd, known, REGION, (off_t)i * REGION)) memset(known, 0, REGION);
    }
    x->all = true;
}

static bool is_index_cut(const struct index *x)
{
    struct stat st;
    return gs_file_status(x->fd, &st) != 0 || st.st_size < (off_t)x->regions * REGION;
}

static void take_over(struct index *x)
{
    uint8_t now[MARKS_END], *m = x->memory[0];
    if (!x->regions) return;
    if (is_index_cut(x) || !read_at(x->fd, now, sizeof now, 0)) {
        restore_index(x);
        return;
    }
    const bool changed_here = memcmp(m, known_index(x, m), HEADERS) != 0;
    if (!changed_here && memcmp(now, known_index(x, m), HEADERS) != 0) {
        for (unsigned i = 0; i < x->regions; i++) take_region(x, i);
        return;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const uint16_t at = words[i];
        if (!memcmp(m + at, known_index(x, m) + at, 4)) memcpy(m + at, now + at, 4);
        memcpy(known_index(x, m) + at, now + at, 4);
    }
}

/* ---------------------------------------------------------------- what SQLite wrote */

static bool write_part(struct index *x, unsigned region, size_t from, size_t n)
{
    uint8_t *m = x->memory[region];
    if (!memcmp(m + from, known_index(x, m) + from, n)) return true;
    if (pwrite(x->fd, m + from, n, (off_t)region * REGION + (off_t)from) != (ssize_t)n) return false;
    memcpy(known_index(x, m) + from, m + from, n);
    return true;
}

/* The region of the last frame, according to a copy of the first header. */
static unsigned last_region(const uint8_t *header)
{
    uint32_t frame;
    memcpy(&frame, header + LAST_FRAME, sizeof frame);
    return frame <= FRAMES_FIRST ? 0 : 1 + (frame - FRAMES_FIRST - 1) / FRAMES;
}

/* False: some of it could not be written, and the headers must not announce it. */
static bool write_regions(struct index *x)
{
    const uint8_t *header = x->memory[0], *known = known_index(x, x->memory[0]);
    const unsigned here = last_region(header), file = last_region(known);
    const bool begun_again = memcmp(header + SALT, known + SALT, 8) != 0;
    const unsigned first = x->all || begun_again ? 0 : here < file ? here : file;
    const unsigned last = x->all ? x->regions - 1 : here > file ? here : file;
    bool written = true;
    for (unsigned region = first; region <= last && region < x->regions; region++)
        for (size_t at = 0; at < REGION; at += PIECE) {
            const size_t from = at || region ? at : MARKS_END;
            written = write_part(x, region, from, at + PIECE - from) && written;
        }
    return written;
}

/* Writes the headers last, the second before the first: a process that sees them changed finds the rest written. */
static void write_out_index(struct index *x)
{
    if (!x->regions) return;
    const bool written = write_regions(x);
    x->all = !written || x->recovers;
    if (!written) return;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) write_part(x, 0, words[i], 4);
    write_part(x, 0, HEADER, HEADER);
    write_part(x, 0, 0, HEADER);
}

/* ---------------------------------------------------------------- SQLite's system calls */

void gs_index_opened(int fd)
{
    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++)
        if (indexes[i].fd < 0) {
            indexes[i].fd = fd;
            indexes[i].regions = 0;
            indexes[i].all = indexes[i].recovers = false;
            return;
        }
}

void gs_index_closed(int fd)
{
    struct index *x = find_index(fd);
    if (x) x->fd = -1;
}

static void *map_memory(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    struct index *x = find_index(fd);
    if (!x) return mmap(at, n, protection, flags, fd, offset);
    const unsigned count = (unsigned)(n / REGION);
    if (!count || n % REGION || (x->regions && n != x->mapped) || (size_t)offset != x->regions * (size_t)REGION ||
        x->regions + count > REGIONS) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    uint8_t *m = mmap(NULL, 2 * n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return m;
    x->mapped = n;
    for (unsigned i = 0; i < count; i++) {
        x->memory[x->regions] = m + i * REGION;
        take_region(x, x->regions++);
    }
    return m;
}

/* SQLite unmaps all that it mapped, one after the other, and then opens the file again. */
static int unmap_memory(void *at, size_t n)
{
    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
        struct index *x = &indexes[i];
        for (unsigned region = 0; region < x->regions; region++)
            if (x->memory[region] == at) {
                const unsigned count = (unsigned)(x->mapped / REGION);
                x->regions -= count;
                memmove(x->memory + region, x->memory + x->regions, count * sizeof *x->memory);
                return munmap(at, 2 * x->mapped);
            }
    }
    return munmap(at, n);
}

static bool covers_recovery(const struct flock *lock)
{
    return lock->l_start <= RECOVERY_LOCK && lock->l_start + lock->l_len > RECOVERY_LOCK;
}

static int lock_index_file(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    struct index *x = command == F_SETLK ? find_index(fd) : NULL;
    const struct flock *lock = argument;
    const bool unlocks = x && lock->l_type == F_UNLCK;
    if (unlocks) {
        gs_append_end();
        write_out_index(x);
    }
    const int rc = fcntl(fd, command, argument);
    if (x && !unlocks && !rc) take_over(x);
    if (x && !rc && covers_recovery(lock)) x->recovers = lock->l_type == F_WRLCK;
    if (x && x->recovers) x->all = true;
    return rc;
}

void gs_index_hook(sqlite3_vfs *vfs)
{
    vfs->xSetSystemCall(vfs, "mmap", (sqlite3_syscall_ptr)map_memory);
    vfs->xSetSystemCall(vfs, "munmap", (sqlite3_syscall_ptr)unmap_memory);
    vfs->xSetSystemCall(vfs, "fcntl", (sqlite3_syscall_ptr)lock_index_file);
}
