/* Files of packages that are installed outside of site-packages, by the lists that pip writes beside them: RECORD in
 * NAME-VERSION.dist-info has a line for each file. An editable install's list has none of its source files. */
#include "schema/source_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "schema/open_high.h"
#include "schema/system_call.h"

enum {
    ENTRIES_BYTES = 8 * 1024,
    READS_MAX = 256,        /* of a folder: about 50,000 entries */
    RECORD_BYTES = 8 << 20, /* PyTorch's has 2 MiB */
    PARENTS = 16
};

/* A line is `path,hash,size`. */
static bool lists_file(const char *text, size_t length, const char *file)
{
    const size_t n = strlen(file);
    for (const char *p = text, *end = text + length; (size_t)(end - p) > n; p++) {
        if (!memcmp(p, file, n) && p[n] == ',') return true;
        if (!(p = memchr(p, '\n', (size_t)(end - p)))) break;
    }
    return false;
}

static bool record_lists(const char *path, const char *file)
{
    const int fd = gs_source_open(path);
    struct stat st;
    bool lists = false;
    if (fd < 0 || gs_file_status(fd, &st)) return false;
    const bool fits = S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= RECORD_BYTES;
    char *text = fits ? malloc((size_t)st.st_size) : NULL;
    const ssize_t n = text ? pread(fd, text, (size_t)st.st_size, 0) : 0;
    if (n > 0) lists = lists_file(text, (size_t)n, file);
    free(text);
    if (gs_is_same_file(fd, &st)) close(fd);
    return lists;
}

/* "toolkit-1.0.dist-info" has the name of toolkit/x.py. Others may list it, too: opencv_python has cv2. */
static bool has_name_of(const char *entry, const char *file)
{
    const size_t n = strcspn(file, "/.");
    return !strncasecmp(entry, file, n) && entry[n] == '-';
}

/* `named`: only in lists of packages with the file's first name; else only in the others. */
static bool folder_lists(int folder_fd, const char *folder, size_t length, const char *file, bool named)
{
    static const char tail[] = ".dist-info";
    char entries[ENTRIES_BYTES] __attribute__((aligned(8))), path[PATH_MAX];
    long n;
    if (lseek(folder_fd, 0, SEEK_SET)) return false;
    for (unsigned reads = 0; reads < READS_MAX; reads++) {
        n = gs_system_call_of_six(SYS_getdents64, folder_fd, (long)entries, sizeof entries, 0, 0, 0);
        if (n <= 0) break;
        for (long at = 0; at < n;) {
            const struct dirent64 *entry = (const struct dirent64 *)(entries + at);
            const char *name = entry->d_name;
            const size_t size = strlen(name);
            at += entry->d_reclen;
            if (size < sizeof tail || strcmp(name + size - strlen(tail), tail) != 0 || has_name_of(name, file) != named)
                continue;
            const int m = snprintf(path, sizeof path, "%.*s%s/RECORD", (int)length, folder, name);
            if (m > 0 && (size_t)m < sizeof path && record_lists(path, file)) return true;
        }
    }
    return false;
}

/* `length` of the path, with its slash, is the folder. */
static bool is_listed_in(const char *path, size_t length)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    const int fd = gs_open_high(folder, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
    struct stat st;
    if (fd < 0 || gs_file_status(fd, &st)) return false;
    const bool is =
        folder_lists(fd, path, length, path + length, true) || folder_lists(fd, path, length, path + length, false);
    if (gs_is_same_file(fd, &st)) close(fd);
    return is;
}

static bool is_package(const char *path, size_t length)
{
    char init[PATH_MAX];
    const int n = snprintf(init, sizeof init, "%.*s__init__.py", (int)length, path);
    return n > 0 && (size_t)n < sizeof init && access(init, F_OK) == 0;
}

static size_t parent_length(const char *path, size_t length)
{
    for (length--; length && path[length - 1] != '/';) length--;
    return length;
}

bool gs_source_is_installed(const char *file, const char *folder)
{
    char path[PATH_MAX];
    const int saved = errno;
    if (!gs_source_path(path, sizeof path, file, folder)) return false;
    size_t length = (size_t)(strrchr(path, '/') - path) + 1;
    bool is = false, package = is_package(path, length);
    for (unsigned up = 0; up < PARENTS && package && length > 1; up++) {
        length = parent_length(path, length);
        package = length > 1 && is_package(path, length);
    }
    is = length > 1 && is_listed_in(path, length);
    if (!is && length > 1) { /* a package without __init__.py */
        length = parent_length(path, length);
        is = length > 1 && is_listed_in(path, length);
    }
    errno = saved;
    return is;
}
