/* SQLite appends each page to its log by two system calls: the header of a frame, then the page. A commit of the
 * recorder has hundreds of pages, and these calls were a fifth of what the drain cost. Here frames wait for each other
 * and are written together, but never longer than their transaction: its last frame, whose header alone states a size
 * of the database, is written at once, after those that wait. So SQLite learns of any error before it announces the
 * commit. Until then only SQLite here can read the frames; it does so by pread, which writes them first. */
#include "schema/store_append.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define WAITING_BYTES (64 * 1024)
enum { FRAME_HEADER = 24, COMMIT_SIZE = 4 }; /* SQLite's "WAL File Format" */

static int logs[4] = {-1, -1, -1, -1};
static struct {
    int fd; /* -1: nothing waits */
    off_t at;
    size_t count;
    uint8_t bytes[WAITING_BYTES];
} waiting = {.fd = -1};

static bool is_log(int fd)
{
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++)
        if (logs[i] == fd) return fd >= 0;
    return false;
}

static bool write_waiting(void)
{
    size_t done = 0;
    while (waiting.fd >= 0 && done < waiting.count) {
        const ssize_t n = pwrite(waiting.fd, waiting.bytes + done, waiting.count - done, waiting.at + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (!n) errno = ENOSPC;
        if (n <= 0) break;
        done += (size_t)n;
    }
    const bool written = done == waiting.count;
    waiting.fd = -1;
    waiting.count = 0;
    return written;
}

/* ---------------------------------------------------------------- SQLite's system calls */

static ssize_t append_bytes(int fd, const void *bytes, size_t n, off_t at)
{
    static const uint8_t unfinished[4];
    const bool follows = waiting.fd == fd && at == waiting.at + (off_t)waiting.count;
    const bool header = n == FRAME_HEADER && is_log(fd);
    const bool last = header && memcmp((const uint8_t *)bytes + COMMIT_SIZE, unfinished, sizeof unfinished) != 0;
    const bool fits = follows && waiting.count + n <= WAITING_BYTES;
    if ((header || waiting.fd == fd) && !fits && !write_waiting()) return -1;
    if ((!follows && !header) || n > WAITING_BYTES) return pwrite(fd, bytes, n, at);
    if (waiting.fd < 0) {
        waiting.fd = fd;
        waiting.at = at;
    }
    memcpy(waiting.bytes + waiting.count, bytes, n);
    waiting.count += n;
    return last && !write_waiting() ? -1 : (ssize_t)n;
}

static ssize_t read_bytes(int fd, void *to, size_t n, off_t at)
{
    return waiting.fd == fd && !write_waiting() ? -1 : pread(fd, to, n, at);
}

static int truncate_file(int fd, off_t size)
{
    return waiting.fd == fd && !write_waiting() ? -1 : ftruncate(fd, size);
}

void gs_append_opened(int fd)
{
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++)
        if (logs[i] < 0) {
            logs[i] = fd;
            return;
        }
}

void gs_append_closed(int fd)
{
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++)
        if (logs[i] == fd) logs[i] = -1;
    if (waiting.fd == fd) waiting.fd = -1;
}

void gs_append_end(void)
{
    (void)write_waiting(); /* an error concerns nobody: no commit announces these frames */
}

void gs_append_hook(sqlite3_vfs *vfs)
{
    vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)append_bytes);
    vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)append_bytes);
    vfs->xSetSystemCall(vfs, "pread", (sqlite3_syscall_ptr)read_bytes);
    vfs->xSetSystemCall(vfs, "pread64", (sqlite3_syscall_ptr)read_bytes);
    vfs->xSetSystemCall(vfs, "ftruncate", (sqlite3_syscall_ptr)truncate_file);
}
