/* A wheel has torch/version.py beside torch/lib, and LibTorch has build-version beside lib. If a distribution keeps
 * PyTorch's libraries elsewhere, the Python part of PyTorch is found among the mapped files. */
#include "interpose/torch_version.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "schema/open_high.h"

static size_t read_version_file(const char *path, char *text, size_t size)
{
    const int fd = gs_open_high(path, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

/* "2.6.0+cu124"; anything that is not a version is rejected. */
static bool copy_version(const char *from, char *version, size_t size)
{
    static const char digits[] = "0123456789";
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-_";
    const size_t length = strspn(from, letters), major = strspn(from, digits);
    if (!major || from[major] != '.' || !strspn(from + major + 1, digits) || length >= size) return false;
    memcpy(version, from, length);
    version[length] = 0;
    return true;
}

/* __version__ = '2.6.0+cu124' */
static bool read_version_py(const char *path, char *version, size_t size)
{
    char text[4096];
    const char *at = text;
    if (!read_version_file(path, text, sizeof text)) return false;
    while ((at = strstr(at, "__version__"))) {
        const bool starts_line = at == text || at[-1] == '\n';
        at += strlen("__version__");
        if (!starts_line) continue;
        const char *value = at + strspn(at, " :str="); /* also with a type annotation */
        if (*value != '\'' && *value != '"') continue;
        return copy_version(value + 1, version, size);
    }
    return false;
}

/* The folder of a path, `up` levels higher, joined with a file in it. */
static bool path_beside_library(char *to, size_t size, const char *path, int up, const char *file)
{
    size_t length = strlen(path);
    for (int i = 0; i <= up; i++) {
        while (length && path[length - 1] != '/') length--;
        if (!length) return false;
        length--;
    }
    return (size_t)snprintf(to, size, "%.*s/%s", (int)length, path, file) < size;
}

static bool find_mapped(char *version, size_t size)
{
    char buffer[8192], file[PATH_MAX];
    size_t held = 0;
    bool found = false;
    const int fd = gs_open_high("/proc/self/maps", O_RDONLY, 0);
    for (ssize_t n; fd >= 0 && !found && (n = read(fd, buffer + held, sizeof buffer - 1 - held)) > 0;) {
        char *line = buffer, *end;
        buffer[held += (size_t)n] = 0;
        for (; !found && (end = strchr(line, '\n')); line = end + 1) {
            *end = 0;
            const char *path = strchr(line, '/');
            if (!path || !strstr(path, "/torch/_C.")) continue;
            found =
                path_beside_library(file, sizeof file, path, 0, "version.py") && read_version_py(file, version, size);
        }
        held = strlen(line);
        if (held == sizeof buffer - 1) held = 0; /* no path is that long */
        memmove(buffer, line, held);
    }
    if (fd >= 0) close(fd);
    return found;
}

bool gs_torch_version(const char *module, char *version, size_t size)
{
    char file[PATH_MAX], text[256];
    if (path_beside_library(file, sizeof file, module, 1, "version.py") && read_version_py(file, version, size))
        return true;
    if (path_beside_library(file, sizeof file, module, 1, "build-version") &&
        read_version_file(file, text, sizeof text) && copy_version(text, version, size))
        return true;
    return find_mapped(version, size);
}
