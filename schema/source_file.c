#include "schema/source_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "schema/mask.h"
#include "schema/open_high.h"
#include "schema/system_call.h"

/* Parts of a path that only a library's file has. For torch, also in a source tree, but only folders with names that no
 * other project has: a project may well be in …/torch/. */
static const char *const library_parts[] = {
    "/site-packages/",    "/dist-packages/",   "/torch/nn/",          "/torch/optim/",
    "/torch/autograd/",   "/torch/utils/",     "/torch/cuda/",        "/torch/_tensor.py",
    "/torch/_dynamo/",    "/torch/_inductor/", "/torch/distributed/", "/torch/serialization.py",
    "/torch/_functorch/",
};

/* …/lib/python3.12/… is the standard library (or site-packages). */
static bool is_standard_library(const char *file)
{
    for (const char *p = file; (p = strstr(p, "/lib")) != NULL; p++) {
        const char *q = p + 4;
        q += strncmp(q, "64", 2) == 0 ? 2 : 0;
        if (strncmp(q, "/python", 7) == 0 && isdigit((unsigned char)q[7])) return true;
    }
    return false;
}

/* What a library wrote while the program ran, or fetched: nobody edits it. PyG names modules of /tmp so, Hugging Face
 * and torch.hub keep repositories of others. */
static const char *const generated_parts[] = {
    "/torch_geometric.nn.", "/unsloth_compiled_cache/", "/huggingface/modules/",
    "/torch/hub/",          "/torch_compile_cache/",    "/__autograph_generated",
};
/* Names without a file: of functions that a decorator or a class made. */
static const char *const generated_names[] = {
    "<frozen",        "<eval_with_key>", "<@beartype(",        "<attrs generated",
    "<decorator-gen", "<makefun-gen",    "<lambdifygenerated",
};

static bool is_written_by_library(const char *file)
{
    bool is = false;
    for (size_t i = 0; i < sizeof generated_names / sizeof *generated_names && *file == '<' && !is; i++)
        is = strncmp(file, generated_names[i], strlen(generated_names[i])) == 0;
    for (size_t i = 0; i < sizeof generated_parts / sizeof *generated_parts && !is; i++)
        is = strstr(file, generated_parts[i]) != NULL;
    return is;
}

/* …/al/cal4bz….py: torch.compile names the code that it writes by its hash, and the folder by two letters of it. */
static bool is_compiled(const char *file)
{
    enum { HASH = 52 };
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    return slash && slash - file >= 3 && name[0] == 'c' && strspn(name, "abcdefghijklmnopqrstuvwxyz234567") == HASH &&
           strcmp(name + HASH, ".py") == 0 && strncmp(slash - 3, (const char[]){'/', name[1], name[2], 0}, 3) == 0;
}

static bool is_numbered(const char *name, const char *before, const char *after)
{
    const size_t n = strlen(before), digits = strncmp(name, before, n) == 0 ? strspn(name + n, "0123456789") : 0;
    return digits && strcmp(name + n + digits, after) == 0;
}

/* In a pattern, # is a number, or several with dashes between them. */
static bool is_pattern(const char *p, const char *pattern)
{
    for (; *pattern; pattern++) {
        const size_t n = *pattern == '#' ? strspn(p, "0123456789-") : *p == *pattern;
        if (!n) return false;
        p += n;
    }
    return !*p;
}

bool gs_source_is_cell(const char *file)
{
    static const char *const names[] = {"<ipython-input-", "<cell"};
    static const char *const patterns[] = {"/ipykernel_#/#.py",       "/ipython-input-#.py" /* Colab */,
                                           "/xpython_#/#.py",         "<command-#>" /* Databricks */,
                                           "/.ipykernel/#/command-#", "/.ipykernel/#/command-#.py"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(file, names[i], strlen(names[i])) == 0) return true;
    if (is_numbered(file, "In [", "]") || is_numbered(file, "cell ", "")) return true; /* run/cell_names.c */
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char before[32];
        snprintf(before, sizeof before, "%.*s", (int)strcspn(patterns[i], "#"), patterns[i]);
        for (const char *at = file; (at = strstr(at, before)) != NULL; at++)
            if (is_pattern(at, patterns[i])) return true;
    }
    return false;
}

bool gs_source_is_library(const char *file)
{
    if (!file) return true;
    for (size_t i = 0; i < sizeof library_parts / sizeof *library_parts; i++)
        if (strstr(file, library_parts[i])) return true;
    return is_standard_library(file) || is_compiled(file) || is_written_by_library(file);
}

bool gs_source_is_own(const char *file)
{
    return file && *file && *file != '<' && !gs_source_is_library(file);
}

/* ---------------------------------------------------------------- reading */

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

bool gs_source_is_newer(const struct timespec *written, int64_t latest_ns)
{
    const int64_t server_ahead_ns = 600 * 1000000000ll, at = ns_of(written);
    struct timespec now;
    return at > latest_ns &&
           (gs_system_call(SYS_clock_gettime, CLOCK_REALTIME, &now) || at - server_ahead_ns <= ns_of(&now));
}

/* The reason for refusal; NULL: the file may be read. */
static const char *why_refused(const struct stat *st, int64_t latest_ns, bool strict)
{
    if (!S_ISREG(st->st_mode)) return "missing";
    if (gs_source_is_newer(&st->st_mtim, latest_ns) || (strict && gs_source_is_newer(&st->st_ctim, latest_ns)))
        return "changed";
    return st->st_size > GS_SOURCE_FILE_BYTES ? "large" : NULL;
}

bool gs_source_path(char *path, size_t size, const char *file, const char *folder)
{
    const bool relative = file[0] != '/';
    const int n = snprintf(path, size, "%s%s%s", relative && folder ? folder : "", relative ? "/" : "", file);
    return (!relative || folder) && n >= 0 && (size_t)n < size;
}

int gs_source_open(const char *path)
{
    struct stat st;
    if (gs_path_status(path, &st) || !S_ISREG(st.st_mode)) return -1;
    const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
    const int fd = gs_open_high(path, flags | O_NOATIME, 0);
    return fd < 0 && errno == EPERM ? gs_open_high(path, flags, 0) : fd;
}

static char *read_whole(int fd, size_t *length)
{
    const size_t size = GS_SOURCE_FILE_BYTES + 1;
    char *text = malloc(size);
    ssize_t got = 1;
    for (*length = 0; text && got && *length < size;) {
        got = read(fd, text + *length, size - *length);
        if (got < 0 && errno != EINTR) break;
        *length += got > 0 ? (size_t)got : 0;
    }
    if (text && got >= 0 && *length < size) return text;
    free(text);
    return NULL;
}

bool gs_source_is_native(const char *file)
{
    static const char *const ends[] = {".c",   ".cc",  ".cpp", ".cxx", ".c++", ".C",   ".cu",  ".cuh",
                                       ".h",   ".hh",  ".hpp", ".hxx", ".h++", ".inl", ".inc", ".ipp",
                                       ".tpp", ".txx", ".hip", ".f90", ".F90", ".f",   ".F",   ".f03",
                                       ".f08", ".cuf", ".CUF", ".go",  ".rs",  ".zig", ".d"};
    const char *dot = file ? strrchr(file, '.') : NULL;
    for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++)
        if (strcmp(dot, ends[i]) == 0) return true;
    return false;
}

/* Python code can be compiled under any file name, for example a template's or a configuration's. */
static bool is_source(const char *file, const char *text, size_t length)
{
    const char *dot = strrchr(file, '.');
    if (gs_source_is_native(file) || (dot && (!strcmp(dot, ".py") || !strcmp(dot, ".pyw")))) return true;
    if (*file == '/' && gs_source_is_cell(file)) return true; /* Databricks' have no ending */
    const char *end = memchr(text, '\n', length);
    const size_t first = end ? (size_t)(end - text) : length;
    return first > 2 && !memcmp(text, "#!", 2) && memmem(text, first, "python", 6);
}

static char *read_source_file(int fd, const struct stat *st, const char *file, size_t *length, const char **left_out)
{
    char *text = read_whole(fd, length), *masked = NULL;
    *left_out = "changed"; /* it grew, or the program closed the descriptor meanwhile */
    if (text && gs_is_same_file(fd, st)) {
        *left_out = "missing";
        const size_t size = 2 * *length + 16; /* a mask is longer than a short secret */
        if (is_source(file, text, *length) && (masked = malloc(size))) {
            *length = gs_mask_source(masked, size, text, *length);
            *left_out = NULL;
        }
    }
    free(text);
    return masked;
}

char *gs_source_read(const char *file, const char *folder, int64_t latest_ns, bool strict, size_t *length,
                     const char **left_out)
{
    char path[PATH_MAX], *text = NULL;
    const int saved = errno;
    *left_out = "missing";
    if (gs_source_is_cell(file)) latest_ns = INT64_MAX;
    const int fd = gs_source_path(path, sizeof path, file, folder) ? gs_source_open(path) : -1;
    struct stat st;
    if (fd >= 0 && !gs_file_status(fd, &st)) {
        if (!(*left_out = why_refused(&st, latest_ns, strict)))
            text = read_source_file(fd, &st, file, length, left_out);
        if (gs_is_same_file(fd, &st)) close(fd); /* otherwise the program has closed it, and reuses the number */
    }
    errno = saved;
    return text;
}
