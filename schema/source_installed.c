/* Files of packages that are installed outside of site-packages, by the lists that pip writes beside them: RECORD in
 * NAME-VERSION.dist-info has a line for each file. An editable install's list has none of its source files. Each
 * folder's lists are read once, because a folder can have hundreds, and a program hundreds of files. */
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
    NAMES_MAX = 1 << 19,    /* of all folders; the files that are listed after them count as not installed */
    PARENTS = 16
};

static uint64_t hash_of(uint64_t start, const char *text, size_t length)
{
    uint64_t hash = start ^ 0xcbf29ce484222325;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3;
    return hash ? hash : 1;
}

/* The slot that has this hash, or the free one for it. `room` is a power of two. */
static uint64_t *find_slot(uint64_t *at, size_t room, uint64_t hash)
{
    size_t i = (hash ^ hash >> 32) & (room - 1);
    while (at[i] && at[i] != hash) i = (i + 1) & (room - 1);
    return &at[i];
}

static bool has_name(const struct gs_source_lists *lists, uint64_t hash)
{
    return lists->room && *find_slot(lists->at, lists->room, hash) == hash;
}

static bool add_name(struct gs_source_lists *lists, uint64_t hash)
{
    if (2 * lists->count >= lists->room) {
        const size_t room = lists->room ? 2 * lists->room : 256;
        uint64_t *at = room <= 2 * NAMES_MAX ? calloc(room, sizeof *at) : NULL;
        if (!at) return false;
        for (size_t i = 0; i < lists->room; i++)
            if (lists->at[i]) *find_slot(at, room, lists->at[i]) = lists->at[i];
        free(lists->at);
        lists->at = at;
        lists->room = room;
    }
    uint64_t *slot = find_slot(lists->at, lists->room, hash);
    lists->count += !*slot;
    *slot = hash;
    return true;
}

/* A line is `path,hash,size`. */
static void add_lines(struct gs_source_lists *lists, uint64_t folder, const char *text, size_t length)
{
    static const char tail[] = ".py,";
    for (const char *p = text, *end = text + length; p < end; p++) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        if (!line_end) line_end = end;
        const char *comma = memchr(p, ',', (size_t)(line_end - p));
        const size_t n = comma ? (size_t)(comma - p) : 0;
        if (n > 3 && !memcmp(p + n - 3, tail, 4) && !add_name(lists, hash_of(folder, p, n))) return;
        p = line_end;
    }
}

static void read_record(struct gs_source_lists *lists, uint64_t folder, const char *path)
{
    const int fd = gs_source_open(path);
    struct stat st;
    if (fd < 0 || gs_file_status(fd, &st)) return;
    const bool fits = S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= RECORD_BYTES;
    char *text = fits ? malloc((size_t)st.st_size) : NULL;
    const ssize_t n = text ? pread(fd, text, (size_t)st.st_size, 0) : 0;
    if (n > 0) add_lines(lists, folder, text, (size_t)n);
    free(text);
    if (gs_is_same_file(fd, &st)) close(fd);
}

static void read_folder(struct gs_source_lists *lists, uint64_t hash, const char *folder)
{
    static const char tail[] = ".dist-info";
    char entries[ENTRIES_BYTES] __attribute__((aligned(8))), path[PATH_MAX];
    const int fd = gs_open_high(folder, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
    struct stat st;
    long n;
    if (fd < 0 || gs_file_status(fd, &st)) return;
    for (unsigned reads = 0; reads < READS_MAX; reads++) {
        n = gs_system_call_of_six(SYS_getdents64, fd, (long)entries, sizeof entries, 0, 0, 0);
        if (n <= 0) break;
        for (long at = 0; at < n;) {
            const struct dirent64 *entry = (const struct dirent64 *)(entries + at);
            const size_t size = strlen(entry->d_name);
            at += entry->d_reclen;
            if (size < sizeof tail || strcmp(entry->d_name + size - strlen(tail), tail) != 0) continue;
            const int m = snprintf(path, sizeof path, "%s%s/RECORD", folder, entry->d_name);
            if (m > 0 && (size_t)m < sizeof path) read_record(lists, hash, path);
        }
    }
    if (gs_is_same_file(fd, &st)) close(fd);
}

/* `length` of the path, with its slash, is the folder. */
static bool is_listed_in(struct gs_source_lists *lists, const char *path, size_t length)
{
    const uint64_t folder = hash_of(0, path, length);
    if (!has_name(lists, folder)) {
        char name[PATH_MAX];
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        if (!add_name(lists, folder)) return false;
        read_folder(lists, folder, name);
    }
    return has_name(lists, hash_of(folder, path + length, strlen(path + length)));
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

bool gs_source_is_installed(struct gs_source_lists *lists, const char *file, const char *folder)
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
    is = length > 1 && is_listed_in(lists, path, length);
    if (!is && length > 1) { /* a package without __init__.py */
        length = parent_length(path, length);
        is = length > 1 && is_listed_in(lists, path, length);
    }
    errno = saved;
    return is;
}
