#include "interpose/arguments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "interpose/config.h"
#include "schema/mask.h"
#include "schema/open_high.h"

#define READ_MAX 16384 /* more than is stored, because masking shortens the text */

/* Returns the bytes read of /proc/`process`/`name`, 0 if it cannot be read. */
static size_t read_of_process(const char *process, const char *name, char *out, size_t size)
{
    char path[64];
    size_t n = 0;
    ssize_t got = 0;
    snprintf(path, sizeof path, "/proc/%s/%s", process, name);
    int fd = gs_open_high(path, O_RDONLY, 0);
    if (fd < 0) return 0;
    while (n < size && ((got = read(fd, out + n, size - n)) > 0 || (got < 0 && errno == EINTR)))
        if (got > 0) n += (size_t)got;
    close(fd);
    return n;
}

/* A worker that a library starts as a program of its own: the user typed the command of the process that started it. */
static bool is_library_worker(const char *words, size_t n)
{
    static const char *const starts[] = {".spawn import spawn_main", ".forkserver import main",
                                         "loky.backend.popen_loky"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (memmem(words, n, starts[i], strlen(starts[i]))) return true;
    return false;
}

/* The process that started `process`, as text; false if it is unknown or none is left. */
static bool read_parent(const char *process, char parent[16])
{
    char stat[512 + 1];
    const size_t n = read_of_process(process, "stat", stat, sizeof stat - 1);
    stat[n] = 0;
    const char *end = strrchr(stat, ')'); /* the name before it may contain anything */
    const long id = end && strlen(end) > 4 ? strtol(end + 4, NULL, 10) : 0;
    snprintf(parent, 16, "%ld", id);
    return id > 1 && id < 1000000000;
}

/* "python", "python3.11", "/opt/bin/bash": a program that runs another program's text. */
static bool is_interpreter_path(const char *path)
{
    static const char *const names[] = {"python", "pypy", "ipython", "node", "bash",  "dash",
                                        "sh",     "zsh",  "perl",    "ruby", "julia", "Rscript"};
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(name, names[i], n) == 0 && !name[n + strspn(name + n, "0123456789.")]) return true;
    }
    return false;
}

/* `out` has room for a NUL after `size` bytes. */
static size_t read_command_line(char *out, size_t size)
{
    enum { LEVELS = 2 }; /* a fork server's worker, the fork server, the user's process */
    char process[16] = "self";
    size_t n = read_of_process("thread-self", "cmdline", out, size);
    if (!is_library_worker(out, n)) return n;
    for (int level = 0; level < LEVELS && is_library_worker(out, n) && read_parent(process, process); level++)
        n = read_of_process(process, "cmdline", out, size);
    out[n] = 0;
    /* another program has adopted a worker whose parent is gone */
    return is_interpreter_path(out) ? n : read_of_process("thread-self", "cmdline", out, size);
}

/* A truncated word may be the beginning of a secret that is recognised only by its end. */
static size_t whole_words(const char *words, size_t n, size_t size)
{
    if (n < size) return n;
    while (n && words[n - 1] && words[n - 1] != ' ' && words[n - 1] != '\n') n--;
    return n;
}

/* Options of python whose value is a separate word. */
static bool takes_word(const char *option)
{
    return !strcmp(option, "-W") || !strcmp(option, "-X") || !strcmp(option, "-Q");
}

size_t gs_arguments_program(const char *words, size_t length)
{
    const size_t first = strnlen(words, length);
    size_t at = first + 1;
    if (first >= length || !is_interpreter_path(words)) return first;
    while (at < length && words[at] == '-') {
        const char *option = words + at;
        const size_t end = at + strnlen(option, length - at);
        if (end >= length) return first; /* not a whole word */
        at = end + 1;
        if (!strcmp(option, "-m")) break;
        if (!strcmp(option, "-c")) return end;
        if (takes_word(option)) at += strnlen(words + at, length - (at < length ? at : length)) + 1;
    }
    return at < length ? at + strnlen(words + at, length - at) : first;
}

void gs_arguments_read(char *out, size_t size)
{
    char words[READ_MAX + 1];
    const int saved = errno;
    size_t n = whole_words(words, read_command_line(words, READ_MAX), READ_MAX);
    words[n] = 0;
    if (!gs_config()->args) n = gs_arguments_program(words, n);
    gs_mask_words(out, size, words, n);
    errno = saved;
}

void gs_arguments_clean(char *text, size_t size)
{
    char given[1024];
    size_t n = strnlen(text, size < sizeof given ? size : sizeof given - 1);
    n = whole_words(text, n, size - 1);
    if (!gs_config()->args) n = strcspn(text, " ");
    memcpy(given, text, n);
    given[n] = 0;
    gs_mask_arguments(text, size, given);
}
