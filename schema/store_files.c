#include "schema/store_files.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "schema/open_high.h"

#define FILES_MAX 16

static struct file {
    int fd; /* -1: unused */
    dev_t device;
    ino_t inode;
    bool mapped; /* the index of the log, which SQLite maps … */
    off_t size;  /* … and how large it was */
} files[FILES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool private_table; /* the descriptors are in a table that the application does not have */

void gs_store_files_private(bool private)
{
    private_table = private;
    gs_open_low(private);
}

static void remember(int fd, int replaced, bool mapped)
{
    struct stat st = {0};
    if (fd >= 0 && fstat(fd, &st))
        return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES_MAX; i++)
        if (files[i].fd == replaced) {
            files[i] = (struct file){fd, st.st_dev, st.st_ino, mapped, 0};
            break;
        }
    pthread_mutex_unlock(&lock);
}

/* SQLite's open(2) and close(2). */
static int open_high(const char *path, int flags, int mode)
{
    int fd = gs_open_high(path, flags, mode);
    const size_t length = strlen(path);
    if (fd >= 0)
        remember(fd, -1, length > 4 && !strcmp(path + length - 4, "-shm"));
    return fd;
}

static bool is_ours(const struct file *f)
{
    struct stat st;
    return private_table || (!fstat(f->fd, &st) && st.st_dev == f->device && st.st_ino == f->inode);
}

/* Not where the application has closed it already: the number may be one of its own files. */
static int close_known(int fd)
{
    bool ours = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES_MAX; i++)
        if (files[i].fd == fd)
            ours = is_ours(&files[i]);
    pthread_mutex_unlock(&lock);
    remember(-1, fd, false);
    return ours ? close(fd) : 0;
}

/* ---------------------------------------------------------------- a mapped file that shrinks */

#define PAGE 4096

/* What somebody has cut off the index of the log would be a signal when it is touched: it gets its size
 * back, with space behind each page. As zeros it is no index, and SQLite makes it anew. */
static bool restore(struct file *f)
{
    struct stat st;
    if (f->fd < 0 || !f->mapped || !is_ours(f) || fstat(f->fd, &st))
        return true;
    if (st.st_size >= f->size) {
        f->size = st.st_size;
        return true;
    }
    for (off_t at = st.st_size / PAGE * PAGE; at < f->size; at += PAGE)
        if (pwrite(f->fd, "", 1, at + PAGE - 1 < f->size ? at + PAGE - 1 : f->size - 1) != 1)
            return false;
    return true;
}

bool gs_store_files_restore(void)
{
    bool restored = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES_MAX; i++)
        restored = restore(&files[i]) && restored;
    pthread_mutex_unlock(&lock);
    return restored;
}

static void init(void)
{
    for (int i = 0; i < FILES_MAX; i++)
        files[i].fd = -1;
    /* In the target nothing has used this private SQLite yet. Elsewhere it may be at work already;
     * then it keeps its statistics. */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    if (!vfs || vfs->iVersion < 3)
        return;
    vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_high);
    vfs->xSetSystemCall(vfs, "close", (sqlite3_syscall_ptr)close_known);
}

void gs_store_files_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init);
}

bool gs_store_files_ours(void)
{
    bool ours = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES_MAX && ours; i++)
        ours = files[i].fd < 0 || is_ours(&files[i]);
    pthread_mutex_unlock(&lock);
    return ours;
}

bool gs_store_files_deleted(void)
{
    bool deleted = false;
    struct stat st;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES_MAX && !deleted; i++)
        deleted = files[i].fd >= 0 && !fstat(files[i].fd, &st) && !st.st_nlink;
    pthread_mutex_unlock(&lock);
    return deleted;
}

void gs_store_files_forget(void)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (files[i].fd >= 0 && !private_table && is_ours(&files[i]))
            close(files[i].fd);
        files[i].fd = -1;
    }
    gs_store_files_private(false);
}

void gs_file_guard_begin(struct gs_file_guard *g)
{
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    sigemptyset(&pending);
    sigpending(&pending);
    g->was_pending = sigismember(&pending, SIGXFSZ) == 1;
    g->active = pthread_sigmask(SIG_BLOCK, &set, &g->before) == 0;
}

void gs_file_guard_end(struct gs_file_guard *g)
{
    if (!g->active)
        return;
    sigset_t set;
    struct timespec now = {0, 0};
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    while (!g->was_pending && sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &g->before, NULL);
}
