#include "analyzer/import/import.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include "analyzer/import/formats.h"
#include "analyzer/import/trace_file.h"

static const struct {
    enum import_format format;
    bool (*fits)(const unsigned char *head, size_t n); /* judges the first IMPORT_HEAD bytes */
    bool (*confirm)(const char *path);                 /* examines a file that fits; NULL: not needed */
    bool (*import)(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                   size_t error_size);
} formats[] = {
    {IMPORT_FORMAT_SNAPSHOT, import_is_snapshot, NULL, import_snapshot},
    {IMPORT_FORMAT_TRACE, import_is_json, import_trace_has_events, import_trace},
    {IMPORT_FORMAT_PPROF, import_is_pprof, import_pprof_is_memory, import_pprof},
    {IMPORT_FORMAT_NSYS, import_is_nsys, import_holds_nsys, import_nsys},
};

enum import_format import_format_of(const char *path)
{
    unsigned char head[IMPORT_HEAD];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: does not wait for a FIFO's writer */
    gzFile file = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? gzdopen(fd, "rb") : NULL;
    int n = file ? gzread(file, head, sizeof head) : 0;
    if (file)
        gzclose(file);
    else if (fd >= 0)
        close(fd);
    for (size_t i = 0; n > 0 && i < sizeof formats / sizeof *formats; i++) {
        if (!formats[i].fits(head, (size_t)n)) continue;
        if (!formats[i].confirm || formats[i].confirm(path)) return formats[i].format;
    }
    return IMPORT_FORMAT_NONE;
}

bool import_file(const char *path, enum import_format format, const char *to,
                 void (*progress)(void *self, uint64_t bytes), void *self, char *error, size_t error_size)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].format == format) return formats[i].import(path, to, progress, self, error, error_size);
    return false;
}

bool import_file_part(const char *path, enum import_format format, const char *to, const struct import_part *part,
                      void (*progress)(void *self, uint64_t bytes), void *self, char *error, size_t error_size)
{
    if (!part) return import_file(path, format, to, progress, self, error, error_size);
    if (format == IMPORT_FORMAT_SNAPSHOT)
        return import_snapshot_part(path, to, part, progress, self, error, error_size);
    snprintf(error, error_size, "time ranges work for PyTorch snapshots only");
    return false;
}
