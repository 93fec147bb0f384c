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
#include "analyzer/base/sort.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
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

bool input_list(const char *folder, bool (*is_wanted)(const char *name, const char *stem), const char *stem,
                struct input_files *files)
{
    enum { FILES_MAX = 65536 };
    const char *between = *folder && !text_ends_with(folder, "/") ? "/" : "";
    DIR *dir = opendir(*folder ? folder : ".");
    if (!dir) return false;
    for (struct dirent *e; (e = readdir(dir)) && files->n < FILES_MAX;) {
        if (!is_wanted(e->d_name, stem)) continue;
        char *path = arena_realloc(NULL, strlen(folder) + strlen(e->d_name) + 2, 1);
        sprintf(path, "%s%s%s", folder, between, e->d_name);
        *ARENA_PUSH(files->list, files->n, files->cap) = path;
    }
    closedir(dir);
    SORT(files->list, files->n, sort_texts);
    return true;
}

void input_files_free(struct input_files *files)
{
    for (size_t i = 0; i < files->n; i++) free(files->list[i]);
    free(files->list);
}

bool input_is_database_name(const char *name, const char *unused)
{
    return name[0] != '.' && text_ends_with(name, ".db");
}

/* STEM.DIGITS.db or STEM.DIGITS-DIGITS.db */
static bool is_sibling_name(const char *name, const char *stem)
{
    const char *rest = name + strlen(stem);
    if (strncmp(name, stem, strlen(stem)) != 0 || *rest != '.') return false;
    for (int number = 0; number < 2; number++) {
        const size_t digits = strspn(rest + 1, "0123456789");
        if (!digits) return false;
        rest += 1 + digits;
        if (*rest != '-') break;
    }
    return strcmp(rest, ".db") == 0;
}

struct input_files input_siblings(const char *path)
{
    struct input_files files = {0};
    char folder[PATH_MAX], stem[INPUT_NAME];
    const char *base = basename(path);
    const size_t length = strlen(base);
    if (!text_ends_with(base, ".db") || length >= sizeof stem || strlen(path) >= sizeof folder) return files;
    snprintf(folder, sizeof folder, "%.*s", (int)(base - path), path);
    snprintf(stem, sizeof stem, "%.*s", (int)length - 3, base);
    input_list(folder, is_sibling_name, stem, &files);
    return files;
}
