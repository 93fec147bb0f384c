/* Writes the spool's control file: once, complete, under a name that no other process uses. */
#include "schema/spool.h"
#include "schema/open_high.h"
#include "schema/spool_file.h"
#include "schema/system_call.h"
#include "schema/store_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---------------------------------------------------------------- creation */

static void fill_cookie(uint64_t cookie[2])
{
    struct timespec now;
    if (gs_system_call(SYS_getrandom, cookie, 16, GRND_NONBLOCK) == 16) return;
    clock_gettime(CLOCK_REALTIME, &now);
    cookie[0] = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    cookie[1] = (uint64_t)getpid() << 32 ^ (uintptr_t)&now;
}

static void fill_control(struct gs_spool_control *c, const char *run_id, const char *command, uint64_t mono,
                         uint64_t real)
{
    memset(c, 0, sizeof *c);
    memcpy(c->magic, GS_SPOOL_MAGIC, sizeof GS_SPOOL_MAGIC);
    c->version = GS_SPOOL_VERSION;
    snprintf(c->run_id, sizeof c->run_id, "%s", run_id ? run_id : "");
    snprintf(c->command, sizeof c->command, "%s", command ? command : "");
    c->start_mono_ns = mono;
    c->start_real_ns = real;
    fill_cookie(c->cookie);
    gs_spool_identify(c);
}

static void fill_header(struct gs_spool_header *h, const struct gs_spool_control *c)
{
    memcpy(h->magic, c->magic, sizeof h->magic);
    h->version = c->version;
    h->pid = c->pid;
    h->process_start_ticks = c->process_start_ticks;
    memcpy(h->run_id, c->run_id, sizeof h->run_id);
    memcpy(h->command, c->command, sizeof h->command);
    h->start_mono_ns = c->start_mono_ns;
    h->start_real_ns = c->start_real_ns;
    memcpy(h->cookie, c->cookie, sizeof h->cookie);
    h->pid_namespace = c->pid_namespace;
    h->chunk_bytes = GS_CHUNK_BYTES;
    h->chunks = GS_SPOOL_CHUNKS;
}

static int open_new(const char *path)
{
    int fd = gs_open_high(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd >= 0) fchmod(fd, 0600); /* independent of the umask */
    return fd;
}

static int write_control(struct gs_spool *s, const char *temp, const struct gs_spool_control *c)
{
    struct stat st = {0};
    int fd = open_new(temp);
    if (fd < 0 && errno == EEXIST && !unlink(temp)) /* left by a dead process with the same pid */
        fd = open_new(temp);
    if (fd < 0) return errno;
    ssize_t n;
    do {
        n = write(fd, c, sizeof *c);
    } while (n < 0 && errno == EINTR);
    int error = n == (ssize_t)sizeof *c ? 0 : n < 0 ? errno : ENOSPC;
    if (!error && gs_file_status(fd, &st)) error = errno;
    s->control_device = st.st_dev;
    s->control_inode = st.st_ino;
    close(fd);
    if (error) unlink(temp);
    return error;
}

/* Renames the finished file, unless its name exists. Without hard links (some network and FUSE file systems) the name
 * is created first and then replaced by the finished file. */
static int publish_spool(const char *temp, const char *path)
{
    if (!link(temp, path)) {
        unlink(temp);
        return 0;
    }
    int error = errno;
    if (error != EEXIST && error != ENOENT && error != ENOSPC && error != EDQUOT) {
        int fd = open_new(path);
        error = fd < 0 ? errno : 0;
        if (fd >= 0) {
            close(fd);
            error = rename(temp, path) ? errno : 0;
            if (error) unlink(path);
        }
    }
    if (error) unlink(temp);
    return error;
}

static int write_and_publish(struct gs_spool *s, const char *path, const struct gs_spool_control *c)
{
    char temp[4096];
    struct gs_file_guard guard;
    if ((size_t)snprintf(temp, sizeof temp, "%s.%d.new", path, (int)getpid()) >= sizeof temp) return ENAMETOOLONG;
    gs_file_guard_begin(&guard); /* the limit on file sizes may be lower than even this */
    int error = write_control(s, temp, c);
    if (!error) error = publish_spool(temp, path);
    gs_file_guard_end(&guard);
    return error;
}

static int create_spool(struct gs_spool *s, const char *path, const char *run_id, const char *command, uint64_t mono,
                        uint64_t real)
{
    struct gs_spool_control c;
    struct stat st;
    if (path && !gs_link_status(path, &st)) return EEXIST;
    if (path) gs_segment_remove_orphans(GS_ORPHAN_S);
    fill_control(&c, run_id, command, mono, real);
    int error = path ? gs_segment_create(s) : gs_segment_create_private(s);
    if (error) return error;
    fill_header(s->header, &c); /* at once: a segment without a header belongs to no one and is never removed */
    c.shmid = s->shmid;
    c.address = (uintptr_t)s->map;
    memcpy(s->cookie, c.cookie, sizeof s->cookie);
    if (path) error = write_and_publish(s, path, &c);
    if (error) {
        gs_segment_remove(s->shmid);
        gs_segment_detach(s);
    }
    return error;
}

static void clear_spool(struct gs_spool *s)
{
    memset(s, 0, sizeof *s);
    s->shmid = -1;
}

int gs_spool_create(struct gs_spool *s, const char *path, const char *run_id, const char *command,
                    uint64_t start_mono_ns, uint64_t start_real_ns)
{
    int saved = errno;
    clear_spool(s);
    int error = create_spool(s, path, run_id, command, start_mono_ns, start_real_ns);
    if (error) clear_spool(s);
    errno = saved;
    return error;
}

void gs_spool_close(struct gs_spool *s)
{
    int saved = errno;
    gs_segment_detach(s);
    clear_spool(s);
    errno = saved;
}

void gs_spool_retire(struct gs_spool *s)
{
    const int saved = errno;
    /* replaces the segment by zero pages in one step */
    if (s->map)
        (void)mmap(s->map, GS_SPOOL_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    errno = saved;
}

/* ---------------------------------------------------------------- an existing spool */

static int check_spool_header(const struct gs_spool_header *h, char *error, size_t size)
{
    if (h->chunk_bytes == GS_CHUNK_BYTES && h->chunks == GS_SPOOL_CHUNKS && memchr(h->run_id, 0, sizeof h->run_id) &&
        memchr(h->command, 0, sizeof h->command))
        return 0;
    snprintf(error, size, "damaged spool header");
    return EINVAL;
}

static int open_spool(struct gs_spool *s, const char *path, bool writable, char *error, size_t size)
{
    struct gs_spool_control c;
    clear_spool(s);
    int code = gs_spool_read_control(path, &c, error, size);
    if (code) return code;
    struct stat st = {0};
    (void)gs_link_status(path, &st);
    s->control_device = st.st_dev;
    s->control_inode = st.st_ino;
    code = gs_segment_attach(s, &c, writable);
    if (code == EIDRM)
        snprintf(error, size, "the spool's shared memory no longer exists");
    else if (code)
        snprintf(error, size, "cannot attach the spool's shared memory: %s", strerror(code));
    else
        code = check_spool_header(s->header, error, size);
    if (code) gs_spool_close(s);
    return code;
}

int gs_spool_open(struct gs_spool *s, const char *path, char *error, size_t error_size)
{
    return open_spool(s, path, true, error, error_size);
}

int gs_spool_peek(struct gs_spool *s, const char *path, char *error, size_t error_size)
{
    return open_spool(s, path, false, error, error_size);
}

void gs_spool_unlink(const struct gs_spool *s, const char *path)
{
    struct gs_spool_control c;
    struct stat st;
    char error[160];
    if (!s->map) return;
    const int code = gs_spool_read_control(path, &c, error, sizeof error);
    bool ours = !code && !memcmp(c.cookie, s->cookie, sizeof c.cookie);
    if (code == EMFILE || code == ENFILE) /* no descriptor is left to read it with */
        ours = !gs_link_status(path, &st) && st.st_dev == s->control_device && st.st_ino == s->control_inode;
    if (ours) unlink(path);
    gs_segment_remove(s->shmid);
}
