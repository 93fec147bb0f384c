#include "analyzer/base/input.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "schema/store.h"

bool input_check_paths(const char *who, char **paths, size_t n)
{
    struct stat st;

    for (size_t i = 0; i < n; i++) {
        if (stat(paths[i], &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) continue;
        return complain_with(false,
                             "%s: cannot read '%s': it is not a regular file; give a database that gpuspy recorded",
                             who, paths[i]);
    }
    return true;
}

/* A recording in progress, or one whose process was killed: its header may still be in the write-ahead log. */
static bool has_spool(const char *path)
{
    char spool[PATH_MAX];
    return (size_t)snprintf(spool, sizeof spool, "%s.spool", path) < sizeof spool && access(spool, F_OK) == 0;
}

ssize_t input_read_start(const char *path, void *out, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : 0, got = n;
    while (n >= 0 && (size_t)n < size - 1 && (got = read(fd, (char *)out + n, size - 1 - (size_t)n)) > 0) n += got;
    if (fd >= 0) close(fd);
    n = n == 0 && got < 0 ? -1 : n;
    ((char *)out)[n > 0 ? n : 0] = 0;
    return n;
}

/* SQLite's header states whose database it is (sqlite.org/fileformat2.html, 1.3). */
bool input_is_recording(const char *path)
{
    enum { APPLICATION_ID = 68 };
    unsigned char head[APPLICATION_ID + 4];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool file = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode); /* a read takes bytes from a pipe */
    ssize_t n = file ? read(fd, head, sizeof head) : -1;

    if (fd >= 0) close(fd);
    if (n != (ssize_t)sizeof head || memcmp(head, "SQLite format 3", 16) != 0) return false;
    const unsigned char *at = head + APPLICATION_ID;
    const uint32_t id = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    return id == GS_APPLICATION_ID || (id == 0 && has_spool(path));
}

bool input_find_newest(char out[INPUT_NAME])
{
    struct timespec newest = {0};
    struct stat st;
    bool found = false;
    DIR *dir = opendir(".");

    for (struct dirent *e; dir && (e = readdir(dir));) {
        size_t length = strlen(e->d_name);
        if (length <= 3 || length >= INPUT_NAME || strcmp(e->d_name + length - 3, ".db") != 0) continue;
        if (stat(e->d_name, &st) != 0 || !S_ISREG(st.st_mode)) continue;
        bool later = st.st_mtim.tv_sec != newest.tv_sec ? st.st_mtim.tv_sec > newest.tv_sec
                                                        : st.st_mtim.tv_nsec > newest.tv_nsec;
        if ((found && !later) || !input_is_recording(e->d_name)) continue;
        found = true;
        newest = st.st_mtim;
        snprintf(out, INPUT_NAME, "%s", e->d_name);
    }
    if (dir) closedir(dir);
    return found;
}

bool input_newest(const char *who, char out[INPUT_NAME])
{
    const bool found = input_find_newest(out);

    if (found)
        complain("%s: reading %s, the newest recording in this folder", who, out);
    else
        complain("%s: no recording in this folder; give a file, such as: gpuspy %s run.db", who, who);
    return found;
}

static bool is_sibling_name(const char *name, const char *stem, size_t length)
{
    const char *rest = name + length;

    if (strncmp(name, stem, length) != 0 || *rest != '.') return false;
    const size_t digits = strspn(rest + 1, "0123456789");
    return digits > 0 && strcmp(rest + 1 + digits, ".db") == 0;
}

char **input_siblings(const char *path, size_t *n)
{
    const char *base = basename(path);
    const size_t length = strlen(base), folder = (size_t)(base - path);
    char **list = NULL;
    size_t cap = 0;

    *n = 0;
    if (length <= 3 || strcmp(base + length - 3, ".db") != 0) return NULL;
    char *name = arena_realloc(NULL, folder + 512, 1);
    snprintf(name, folder + 1, "%s", path);
    DIR *dir = opendir(folder ? name : ".");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (is_sibling_name(e->d_name, base, length - 3)) {
            char *one = arena_realloc(NULL, folder + strlen(e->d_name) + 1, 1);
            memcpy(one, path, folder);
            strcpy(one + folder, e->d_name);
            *ARENA_PUSH(list, *n, cap) = one;
        }
    }
    if (dir) closedir(dir);
    free(name);
    return list;
}
