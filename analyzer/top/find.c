#include "analyzer/top/find.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "schema/mask.h"
#include "schema/spool.h"

enum { GENERATIONS = 64 };

static bool read_header(const char *path, ino_t inode, struct gs_spool_header *h)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_ino == inode &&
              pread(fd, h, sizeof *h, 0) == (ssize_t)sizeof *h &&
              memcmp(h->magic, GS_SPOOL_MAGIC, sizeof GS_SPOOL_MAGIC) == 0 &&
              memchr(h->run_id, 0, sizeof h->run_id);
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

/* The innermost of the process's numbers: its own view of itself. */
static uint32_t own_number(uint32_t pid)
{
    char path[64], line[512];
    uint32_t own = pid;
    snprintf(path, sizeof path, "/proc/%u/status", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "NSpid:", 6) == 0) {
            char *last = strrchr(line, '\t');
            own = last ? (uint32_t)strtoul(last + 1, NULL, 10) : pid;
        }
    }
    if (f) {
        fclose(f);
    }
    return own;
}

static uint32_t parent_of(uint32_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) {
        fclose(f);
    }
    text[n] = 0;
    char *close = strrchr(text, ')'); /* the name before it may contain anything */
    return close && strlen(close) > 4 ? (uint32_t)strtoul(close + 4, NULL, 10) : 0;
}

bool top_descends(uint32_t pid, uint32_t ancestor)
{
    for (int i = 0; i < GENERATIONS && pid > 0; i++) {
        if (pid == ancestor) {
            return true;
        }
        pid = parent_of(pid);
    }
    return false;
}

static char *command_of(uint32_t pid)
{
    char path[64], text[4096], masked[4096];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) {
        fclose(f);
    }
    const bool cut = n == sizeof text - 1;
    while (cut && n > 0 && text[n - 1] && text[n - 1] != ' ') {
        n--; /* a word that is cut may be the beginning of a secret */
    }
    gs_mask_words(masked, sizeof masked, text, n);
    return *masked ? strdup(masked) : NULL;
}

/* "/path/run.db.spool", or the name that it was made under: "/path/run.db.spool.123.new (deleted)".
 * Cuts it to the database's name; false: it is no spool. */
static bool cut_name(char *path)
{
    static const char gone[] = " (deleted)", made[] = ".new", spool[] = ".spool";
    size_t n = strlen(path);
    if (n > sizeof gone - 1 && strcmp(path + n - (sizeof gone - 1), gone) == 0) {
        path[n -= sizeof gone - 1] = 0;
    }
    if (n > sizeof made - 1 && strcmp(path + n - (sizeof made - 1), made) == 0) {
        n -= sizeof made - 1;
        while (n > 0 && path[n - 1] >= '0' && path[n - 1] <= '9') {
            n--;
        }
        path[n > 0 ? --n : 0] = 0; /* the dot */
    }
    if (n < sizeof spool || strcmp(path + n - (sizeof spool - 1), spool) != 0) {
        return false;
    }
    path[n - (sizeof spool - 1)] = 0;
    return true;
}

/* A line of maps. A path from another mount namespace is reached through the process's own root. */
static bool take_line(char *line, uint32_t pid, struct top_found *out)
{
    unsigned long long inode = 0;
    int at = 0;
    char within[4096 + 128];
    struct gs_spool_header h;
    line[strcspn(line, "\n")] = 0;
    if (!strstr(line, ".spool") || sscanf(line, "%*s %*s %*s %*s %llu %n", &inode, &at) != 1 ||
        line[at] != '/' || !cut_name(line + at)) {
        return false;
    }
    snprintf(within, sizeof within, "%s.spool", line + at);
    if (!read_header(within, (ino_t)inode, &h)) {
        snprintf(within, sizeof within, "/proc/%u/root%s.spool", pid, line + at);
        if (!read_header(within, (ino_t)inode, &h)) {
            return false;
        }
    }
    if (h.pid != pid && h.pid != own_number(pid)) {
        return false; /* a child that has it from its parent */
    }
    *out = (struct top_found){.pid = pid, .parent = parent_of(pid), .command = command_of(pid)};
    out->database = strndup(within, strlen(within) - 6);
    snprintf(out->run_id, sizeof out->run_id, "%s", h.run_id);
    return true;
}

static bool look_into(uint32_t pid, struct top_found *out)
{
    char path[64], *line = NULL;
    size_t size = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%u/maps", pid);
    FILE *f = fopen(path, "re");
    while (f && !found && getline(&line, &size, f) > 0) {
        found = take_line(line, pid, out);
    }
    free(line);
    if (f) {
        fclose(f);
    }
    return found;
}

static int by_pid(const void *a, const void *b)
{
    const struct top_found *x = a, *y = b;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

struct top_found *top_find_all(size_t *n)
{
    struct top_found *list = NULL, one;
    size_t cap = 0;
    DIR *dir = opendir("/proc");
    *n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        uint32_t pid = (uint32_t)strtoul(e->d_name, NULL, 10);
        if (pid && look_into(pid, &one)) {
            *GS_PUSH(list, *n, cap) = one;
        }
    }
    if (dir) {
        closedir(dir);
    }
    if (*n) {
        qsort(list, *n, sizeof *list, by_pid);
    }
    return list;
}

void top_found_free(struct top_found *found, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(found[i].database);
        free(found[i].command);
    }
    free(found);
}
