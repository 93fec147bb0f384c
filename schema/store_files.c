#include "schema/store_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "schema/open_high.h"
#include "schema/store_append.h"
#include "schema/store_heap.h"
#include "schema/store_index.h"
#include "schema/system_call.h"

#define FILES_MAX 16

static struct file {
    int fd; /* -1: unused */
    dev_t device;
    ino_t inode;
} files[FILES_MAX] = {[0 ... FILES_MAX - 1] = {.fd = -1}};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool guest;
static _Atomic bool private_table; /* the descriptors are in a table that the application does not share */

void gs_store_files_private(bool private)
{
    private_table = private;
    gs_open_low(private);
}

static void remember_file(int fd, int replaced)
{
    struct stat st = {0};
    if (fd >= 0 && gs_file_status(fd, &st)) return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES_MAX; i++)
        if (files[i].fd == replaced) {
            files[i] = (struct file){fd, st.st_dev, st.st_ino};
            break;
        }
    pthread_mutex_unlock(&lock);
}

/* Replace SQLite's open(2) and close(2). A pipe of that name would block it. */
static int open_store_high(const char *path, int flags, int mode)
{
    int fd = gs_open_high(path, flags | O_NOCTTY | O_NONBLOCK, mode);
    const size_t length = strlen(path);
    const char *const end = length > 4 ? path + length - 4 : "";
    /* gpuspy itself also reads exports that it has unpacked and deleted: they belong to no store */
    if (fd >= 0 && (guest || (flags & O_ACCMODE) != O_RDONLY)) remember_file(fd, -1);
    if (guest && fd >= 0 && !strcmp(end, "-shm")) gs_index_opened(fd);
    if (guest && fd >= 0 && !strcmp(end, "-wal")) gs_append_opened(fd);
    return fd;
}

static bool is_store_file(const struct file *f)
{
    struct stat st;
    return private_table || (!gs_file_status(f->fd, &st) && st.st_dev == f->device && st.st_ino == f->inode);
}

/* Does not close a number that the application has closed already: it may be one of its own files now. */
static int close_known(int fd)
{
    bool ours = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES_MAX; i++)
        if (files[i].fd == fd) ours = is_store_file(&files[i]);
    pthread_mutex_unlock(&lock);
    remember_file(-1, fd);
    gs_index_closed(fd);
    gs_append_closed(fd);
    return ours ? close(fd) : 0;
}

static void init_files(void)
{
    /* Statistics cost time. In the recorded process nothing has used this private SQLite yet; elsewhere SQLite may be
     * in use, then the call fails and the statistics stay on. */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    if (guest) gs_store_heap_use();
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    if (!vfs || vfs->iVersion < 3) return;
    vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_store_high);
    vfs->xSetSystemCall(vfs, "close", (sqlite3_syscall_ptr)close_known);
    vfs->xSetSystemCall(vfs, "fstat", (sqlite3_syscall_ptr)gs_file_status);
    vfs->xSetSystemCall(vfs, "stat", (sqlite3_syscall_ptr)gs_path_status);
    vfs->xSetSystemCall(vfs, "lstat", (sqlite3_syscall_ptr)gs_link_status);
    if (guest) {
        gs_index_hook(vfs);
        gs_append_hook(vfs);
    }
}

void gs_store_files_guest(void)
{
    guest = true;
}

void gs_store_files_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_files);
}

bool gs_store_files_ours(void)
{
    bool ours = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES_MAX && ours; i++) ours = files[i].fd < 0 || is_store_file(&files[i]);
    pthread_mutex_unlock(&lock);
    return ours;
}

bool gs_store_files_deleted(void)
{
    bool deleted = false;
    struct stat st;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FILES_MAX && !deleted; i++)
        deleted = files[i].fd >= 0 && !gs_file_status(files[i].fd, &st) && !st.st_nlink;
    pthread_mutex_unlock(&lock);
    return deleted;
}

void gs_store_files_forget(void)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (files[i].fd >= 0 && !private_table && is_store_file(&files[i])) gs_system_call(SYS_close, files[i].fd);
        gs_index_closed(files[i].fd);
        gs_append_closed(files[i].fd);
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
    if (!g->active) return;
    sigset_t set;
    struct timespec now = {0, 0};
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    while (!g->was_pending && sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &g->before, NULL);
}
