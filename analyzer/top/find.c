#include "analyzer/top/find.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/input.h"
#include "analyzer/base/program.h"
#include "analyzer/base/sort.h"
#include "schema/mask.h"
#include "schema/spool.h"

enum { GENERATIONS = 64 };

/* The innermost of the process's numbers: in its own namespace. */
static uint32_t own_pid(uint32_t pid)
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
    if (f) fclose(f);
    return own;
}

bool top_descends(uint32_t pid, uint32_t ancestor)
{
    for (int i = 0; i < GENERATIONS && pid > 0; i++) {
        if (pid == ancestor) return true;
        pid = (uint32_t)program_parent((pid_t)pid);
    }
    return false;
}

char *top_command_of(uint32_t pid)
{
    char path[64], text[4096], masked[4096];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    const ssize_t got = input_read_start(path, text, sizeof text);
    size_t n = got > 0 ? (size_t)got : 0;
    const bool cut = n == sizeof text - 1;
    while (cut && n > 0 && text[n - 1] && text[n - 1] != ' ')
        n--; /* a word that is cut may be the beginning of a secret */
    gs_mask_words(masked, sizeof masked, text, n);
    return *masked ? strdup(masked) : NULL;
}

/* Is a file that the process has open the database of its recording? A path from another mount namespace is reached
 * through the process's own root. */
static bool take_file(const char *file, uint32_t pid, struct top_found *out)
{
    char within[4096 + 128], error[160];
    struct gs_spool_control c;
    snprintf(within, sizeof within, "%s.spool", file);
    if (gs_spool_read_control(within, &c, error, sizeof error)) {
        snprintf(within, sizeof within, "/proc/%u/root%s.spool", pid, file);
        if (gs_spool_read_control(within, &c, error, sizeof error)) return false;
    }
    if (c.pid != pid && c.pid != own_pid(pid)) return false; /* a child that inherited it from its parent */
    *out =
        (struct top_found){.pid = pid, .parent = (uint32_t)program_parent((pid_t)pid), .command = top_command_of(pid)};
    out->database = strndup(within, strlen(within) - 6);
    snprintf(out->run_id, sizeof out->run_id, "%s", c.run_id);
    return true;
}

static bool read_descriptors(const char *path, uint32_t pid, struct top_found *out)
{
    char link[128], file[4096];
    bool found = false;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        snprintf(link, sizeof link, "%s/%.20s", path, e->d_name);
        const ssize_t n = readlink(link, file, sizeof file - 1);
        file[n > 0 ? n : 0] = 0;
        found = file[0] == '/' && take_file(file, pid, out);
    }
    if (dir) closedir(dir);
    return found;
}

static bool is_drain(uint32_t pid, const char *task)
{
    char path[96], name[32] = "";
    snprintf(path, sizeof path, "/proc/%u/task/%.20s/comm", pid, task);
    FILE *f = fopen(path, "re");
    const bool read = f && fgets(name, sizeof name, f);
    if (f) fclose(f);
    return read && strcmp(name, "gpuspy-drain\n") == 0;
}

/* The drain usually has its own table of descriptors; otherwise the process has the database open. */
bool top_find_process(uint32_t pid, struct top_found *out)
{
    char path[96];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%u/task", pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        if (is_drain(pid, e->d_name)) {
            snprintf(path, sizeof path, "/proc/%u/task/%.20s/fd", pid, e->d_name);
            found = read_descriptors(path, pid, out);
        }
    }
    if (dir) closedir(dir);
    return found;
}

SORT_ORDER(order_files_by_pid, struct top_found, SORT_UP(x->pid, y->pid))

struct top_found *top_find_all(size_t *n)
{
    struct top_found *list = NULL, one;
    size_t cap = 0;
    DIR *dir = opendir("/proc");
    *n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        uint32_t pid = (uint32_t)strtoul(e->d_name, NULL, 10);
        if (pid && top_find_process(pid, &one)) *ARENA_PUSH(list, *n, cap) = one;
    }
    if (dir) closedir(dir);
    SORT(list, *n, order_files_by_pid);
    return list;
}

void top_found_free(struct top_found *found, size_t n)
{
    for (size_t i = 0; i < n; i++) ARENA_RELEASE(found[i].database, found[i].command);
    free(found);
}
