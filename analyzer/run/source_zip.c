#include "analyzer/run/source_zip.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include "schema/mask.h"
#include "schema/source_file.h"

enum {
    END = 22,
    ENTRY = 46,
    LOCAL = 30, /* bytes of the records, without their names and comments */
    COMMENT_MAX = 0xffff,
    DIRECTORY_MAX = 16 << 20,
    STORED = 0,
    DEFLATED = 8
};

struct member {
    uint64_t at, packed, size; /* `at`: of its local header, from where the archive begins in the file */
    unsigned method;
};

static uint32_t read_little_endian(const unsigned char *p, unsigned bytes)
{
    uint32_t value = 0;
    while (bytes--) value = value << 8 | p[bytes];
    return value;
}

static bool is_record(const unsigned char *p, const char *mark)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == (unsigned char)mark[0] && p[3] == (unsigned char)mark[1];
}

/* `length` bytes of the file, in memory that the caller frees; NULL: it has fewer. */
static unsigned char *read_part(int fd, uint64_t at, size_t length)
{
    unsigned char *part = malloc(length + 1);
    if (part && pread(fd, part, length, (off_t)at) == (ssize_t)length) return part;
    free(part);
    return NULL;
}

/* The directory of the archive, at its end. `start`: where the archive begins, after a line such as #!/usr/bin/python3.
 */
static unsigned char *read_directory(int fd, uint64_t size, size_t *length, uint64_t *start)
{
    const size_t tail = size < END + COMMENT_MAX ? (size_t)size : END + COMMENT_MAX;
    unsigned char *last = size >= END ? read_part(fd, size - tail, tail) : NULL, *directory = NULL;
    for (size_t i = last ? tail - END + 1 : 0; i-- > 0 && !directory;) {
        if (!is_record(last + i, "\5\6")) continue;
        const uint64_t bytes = read_little_endian(last + i + 12, 4), at = read_little_endian(last + i + 16, 4),
                       end = size - tail + i;
        if (bytes > DIRECTORY_MAX || bytes + at > end) break;
        *length = (size_t)bytes;
        *start = end - bytes - at;
        directory = read_part(fd, end - bytes, *length);
    }
    free(last);
    return directory;
}

static bool find_member(int fd, uint64_t size, const char *name, struct member *member)
{
    size_t length = 0, n = strlen(name);
    uint64_t start = 0;
    bool found = false;
    unsigned char *directory = read_directory(fd, size, &length, &start), *p = directory;
    while (p && length - (size_t)(p - directory) >= ENTRY && is_record(p, "\1\2")) {
        const size_t named = read_little_endian(p + 28, 2),
                     rest = named + read_little_endian(p + 30, 2) + read_little_endian(p + 32, 2);
        if (length - (size_t)(p - directory) - ENTRY < rest) break;
        if (named == n && memcmp(p + ENTRY, name, n) == 0) { /* of two, Python imports the last */
            found = true;
            *member = (struct member){start + read_little_endian(p + 42, 4), read_little_endian(p + 20, 4),
                                      read_little_endian(p + 24, 4), read_little_endian(p + 10, 2)};
        }
        p += ENTRY + rest;
    }
    free(directory);
    return found && member->size <= GS_SOURCE_FILE_BYTES && member->packed <= 2 * GS_SOURCE_FILE_BYTES;
}

static char *inflate_member(const struct member *m, unsigned char *packed)
{
    char *text = malloc(m->size + 1);
    z_stream z = {
        .next_in = packed, .avail_in = (uInt)m->packed, .next_out = (Bytef *)text, .avail_out = (uInt)m->size};
    const bool ready = text && inflateInit2(&z, -MAX_WBITS) == Z_OK;
    const bool whole = ready && inflate(&z, Z_FINISH) == Z_STREAM_END && !z.avail_out;
    if (ready) inflateEnd(&z);
    if (whole) return text;
    free(text);
    return NULL;
}

static char *read_packed_member(int fd, const struct member *m)
{
    unsigned char *local = read_part(fd, m->at, LOCAL), *packed = NULL;
    char *text = NULL;
    if (local && is_record(local, "\3\4"))
        packed = read_part(fd, m->at + LOCAL + read_little_endian(local + 26, 2) + read_little_endian(local + 28, 2),
                           (size_t)m->packed);
    free(local);
    if (packed && m->method == STORED && m->packed == m->size) return (char *)packed;
    if (packed && m->method == DEFLATED) text = inflate_member(m, packed);
    free(packed);
    return text;
}

/* The same of one archive, and of the text what may be shown. */
static char *read_archive(const char *path, const char *name, int64_t latest_ns, size_t *length)
{
    const int fd = gs_source_open(path);
    struct stat st;
    struct member member = {0};
    char *text = NULL, *masked = NULL;
    if (fd >= 0 && fstat(fd, &st) == 0 && !gs_source_is_newer(&st.st_mtim, latest_ns) &&
        find_member(fd, (uint64_t)st.st_size, name, &member) && (text = read_packed_member(fd, &member)) != NULL) {
        const size_t size = 2 * (size_t)member.size + 16; /* a mask is longer than a short secret */
        if ((masked = malloc(size)) != NULL) *length = gs_mask_source(masked, size, text, (size_t)member.size);
    }
    free(text);
    if (fd >= 0) close(fd);
    return masked;
}

char *run_zip_source(const char *file, const char *folder, int64_t latest_ns, size_t *length)
{
    char path[PATH_MAX], *text = NULL;
    if (!gs_source_path(path, sizeof path, file, folder)) return NULL;
    struct stat st;
    for (char *slash = path + strlen(path); !text && (slash = memrchr(path, '/', (size_t)(slash - path))) != NULL;) {
        *slash = 0;
        const bool is_file = slash > path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
        if (is_file) text = read_archive(path, slash + 1, latest_ns, length);
        *slash = '/';
        if (is_file) break;
    }
    return text;
}
