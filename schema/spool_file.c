/* The spool as a file: created in one step, opened by whoever completes it, owned by a lock. */
#include "schema/spool.h"
#include "schema/open_high.h"
#include "schema/spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES gs_spool_chunk_offset(GS_SPOOL_CHUNKS)

int gs_spool_fallocate(int fd, uint32_t first, uint32_t count)
{
    int rc;
    do {
        rc = fallocate(fd, 0, (off_t)gs_spool_chunk_offset(first), (off_t)count * GS_CHUNK_BYTES);
    } while (rc && errno == EINTR);
    return rc ? errno : 0;
}

bool gs_spool_fd_ours(const struct gs_spool *s)
{
    struct stat st;
    return !fstat(s->fd, &st) && st.st_dev == s->device && st.st_ino == s->inode;
}

/* POSIX locks, not OFD locks: a forked child must not look as if it still recorded. */
int gs_spool_lock(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &lock) ? errno : 0;
}

uint64_t gs_process_start_ticks(uint32_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%" PRIu32 "/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    char *p = strrchr(text, ')'); /* the name before it may contain anything */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

/* ---------------------------------------------------------------- creation */

static void fill_header(struct gs_spool_header *h, const char *run_id, const char *command,
                        uint64_t start_mono_ns, uint64_t start_real_ns)
{
    memcpy(h->magic, GS_SPOOL_MAGIC, sizeof GS_SPOOL_MAGIC);
    h->version = GS_SPOOL_VERSION;
    h->pid = (uint32_t)getpid();
    h->process_start_ticks = gs_process_start_ticks(h->pid);
    snprintf(h->run_id, sizeof h->run_id, "%s", run_id ? run_id : "");
    snprintf(h->command, sizeof h->command, "%s", command ? command : "");
    h->start_mono_ns = start_mono_ns;
    h->start_real_ns = start_real_ns;
    h->chunk_bytes = GS_CHUNK_BYTES;
    h->chunks = GS_SPOOL_CHUNKS;
}

/* Beyond the limit on file sizes ftruncate would not just fail but send SIGXFSZ. */
static bool size_allowed(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= FILE_BYTES;
}

/* An unnamed or temporary file of full (sparse) size; its temporary name in `temp`. */
static int open_temporary(const char *path, char *temp, size_t temp_size)
{
    if ((size_t)snprintf(temp, temp_size, "%s.%d.new", path, (int)getpid()) >= temp_size) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
    int fd = gs_open_high(temp, flags, 0666);
    if (fd < 0 && errno == EEXIST && !unlink(temp)) /* left by a dead process with our pid */
        fd = gs_open_high(temp, flags, 0666);
    if (fd < 0 && errno == EMFILE) /* it may be there already */
        unlink(temp), errno = EMFILE;
    return fd;
}

/* On copy-on-write file systems reserved space serves one write only; without copying it stays. */
static void avoid_copy_on_write(int fd)
{
#ifdef FS_NOCOW_FL
    int flags = 0;
    if (!ioctl(fd, FS_IOC_GETFLAGS, &flags) && !(flags & FS_NOCOW_FL)) {
        flags |= FS_NOCOW_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
#endif
}

static int back_header(int fd)
{
    static const char zeros[GS_SPOOL_HEADER_BYTES];
    ssize_t n;
    do {
        n = pwrite(fd, zeros, sizeof zeros, 0);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof zeros)
        return n < 0 ? errno : ENOSPC;
    return 0;
}

/* Gives the finished file its name, unless that exists. Where there are no hard links (some network
 * and FUSE file systems) the name is taken first and then replaced by the finished file. */
static int publish(const char *temp, const char *path)
{
    if (!link(temp, path)) {
        unlink(temp);
        return 0;
    }
    int error = errno;
    if (error != EEXIST && error != ENOENT && error != ENOSPC && error != EDQUOT) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        error = fd < 0 ? errno : 0;
        if (fd >= 0) {
            close(fd);
            error = rename(temp, path) ? errno : 0;
            if (error)
                unlink(path);
        }
    }
    if (error)
        unlink(temp);
    return error;
}

static int map_file(struct gs_spool *s, int fd, size_t bytes, int protection)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    struct stat st = {0};
    if (fd >= 0 && fstat(fd, &st))
        return errno;
    void *map = mmap(NULL, bytes, protection, flags, fd, 0);
    if (map == MAP_FAILED)
        return errno;
    s->fd = fd;
    s->device = st.st_dev;
    s->inode = st.st_ino;
    s->map = map;
    s->map_bytes = bytes;
    s->header = map;
    s->counters = (struct gs_counter *)((char *)map + 4096);
    s->chunks = (uint32_t)((bytes - GS_SPOOL_HEADER_BYTES) / GS_CHUNK_BYTES);
    return 0;
}

static int create_file(struct gs_spool *s, const char *path, const char *run_id,
                       const char *command, uint64_t mono, uint64_t real)
{
    char temp[4096];
    if (!size_allowed())
        return EFBIG;
    int fd = open_temporary(path, temp, sizeof temp);
    if (fd < 0)
        return errno;
    avoid_copy_on_write(fd);
    int error = ftruncate(fd, (off_t)FILE_BYTES) ? errno : back_header(fd);
    if (!error)
        error = map_file(s, fd, FILE_BYTES, PROT_READ | PROT_WRITE);
    if (!error) {
        fill_header(s->header, run_id, command, mono, real);
        error = gs_spool_lock(fd);
        if (error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP)
            error = 0; /* no locks here: the process's start time in the header has to do */
    }
    if (error) {
        unlink(temp);
        if (s->map)
            munmap(s->map, s->map_bytes);
        close(fd);
        return error;
    }
    error = publish(temp, path);
    if (error) {
        munmap(s->map, s->map_bytes);
        close(fd);
    }
    return error;
}

int gs_spool_create(struct gs_spool *s, const char *path, const char *run_id, const char *command,
                    uint64_t start_mono_ns, uint64_t start_real_ns)
{
    int saved = errno, error;
    memset(s, 0, sizeof *s);
    s->fd = -1;
    if (path) {
        error = create_file(s, path, run_id, command, start_mono_ns, start_real_ns);
    } else {
        error = map_file(s, -1, FILE_BYTES, PROT_READ | PROT_WRITE);
        if (!error)
            fill_header(s->header, run_id, command, start_mono_ns, start_real_ns);
    }
    if (error) {
        memset(s, 0, sizeof *s);
        s->fd = -1;
    }
    errno = saved;
    return error;
}

void gs_spool_close(struct gs_spool *s)
{
    int saved = errno;
    if (s->map)
        munmap(s->map, s->map_bytes);
    if (s->fd >= 0 && gs_spool_fd_ours(s))
        close(s->fd);
    memset(s, 0, sizeof *s);
    s->fd = -1;
    errno = saved;
}

void gs_spool_unlink(const struct gs_spool *s, const char *path)
{
    struct stat st;
    if (!stat(path, &st) && st.st_dev == s->device && st.st_ino == s->inode)
        unlink(path);
}

/* ---------------------------------------------------------------- a spool that is there */

static int check_header(const struct gs_spool *s, char *error, size_t size)
{
    const struct gs_spool_header *h = s->header;
    if (memcmp(h->magic, GS_SPOOL_MAGIC, sizeof GS_SPOOL_MAGIC))
        snprintf(error, size, "not a gpuspy spool");
    else if (h->version != GS_SPOOL_VERSION)
        snprintf(error, size, "spool of another gpuspy (version %" PRIu32 ", this one reads %d)",
                 h->version, GS_SPOOL_VERSION);
    else if (h->chunk_bytes != GS_CHUNK_BYTES || h->chunks != GS_SPOOL_CHUNKS ||
             !memchr(h->run_id, 0, sizeof h->run_id) || !memchr(h->command, 0, sizeof h->command))
        snprintf(error, size, "damaged spool header");
    else
        return 0;
    return EINVAL;
}

int gs_spool_open(struct gs_spool *s, const char *path, char *error, size_t error_size)
{
    memset(s, 0, sizeof *s);
    s->fd = -1;
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
    int code = fd < 0 || fstat(fd, &st) ? errno : 0;
    if (!code && (!S_ISREG(st.st_mode) || st.st_size < (off_t)GS_SPOOL_HEADER_BYTES)) {
        close(fd);
        snprintf(error, error_size, "not a gpuspy spool");
        return EINVAL;
    }
    if (!code) {
        size_t bytes = (size_t)st.st_size < FILE_BYTES ? (size_t)st.st_size : FILE_BYTES;
        code = map_file(s, fd, bytes, PROT_READ | PROT_WRITE);
    }
    if (code) {
        if (fd >= 0)
            close(fd);
        s->fd = -1;
        snprintf(error, error_size, "%s", strerror(code));
        return code;
    }
    code = check_header(s, error, error_size);
    if (code)
        gs_spool_close(s);
    return code;
}

/* Whether process `pid` has the file mapped. After an exec it has not, though pid and start time
 * are the same. Where that may not be looked at: yes. */
static bool maps_file(uint32_t pid, const struct stat *st)
{
    char path[64], *line = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "/proc/%" PRIu32 "/maps", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return true;
    bool found = false, any = false;
    while (!found && getline(&line, &size, f) > 0) {
        unsigned long long inode = 0;
        any = true;
        /* by inode alone: some file systems show another device number here than in stat */
        if (sscanf(line, "%*s %*s %*s %*s %llu", &inode) == 1)
            found = inode == (unsigned long long)st->st_ino;
    }
    free(line);
    fclose(f);
    return found || !any;
}

static bool process_lives(const struct gs_spool_header *h, const struct stat *st)
{
    uint64_t ticks = h->pid ? gs_process_start_ticks(h->pid) : 0;
    return ticks && ticks == h->process_start_ticks && maps_file(h->pid, st);
}

static uint32_t owner_of(int fd, const struct gs_spool_header *h, const struct stat *st)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!fcntl(fd, F_GETLK, &lock) && lock.l_type != F_UNLCK)
        return lock.l_pid > 0 ? (uint32_t)lock.l_pid : 1;
    /* A program that closes all descriptors drops the lock but goes on recording. */
    return !h->closed && process_lives(h, st) ? h->pid : 0;
}

uint32_t gs_spool_owner_of(const struct gs_spool *s)
{
    struct stat st;
    return fstat(s->fd, &st) ? 0 : owner_of(s->fd, s->header, &st);
}

uint32_t gs_spool_owner(const char *path)
{
    uint32_t owner = 0;
    struct gs_spool_header h;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return 0;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && pread(fd, &h, sizeof h, 0) == (ssize_t)sizeof h &&
        !memcmp(h.magic, GS_SPOOL_MAGIC, sizeof GS_SPOOL_MAGIC) && h.version == GS_SPOOL_VERSION)
        owner = owner_of(fd, &h, &st);
    close(fd);
    return owner;
}
