#include "analyzer/base/input.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"

bool input_check_paths(const char *who, char **paths, size_t n)
{
    struct stat st;

    for (size_t i = 0; i < n; i++) {
        if (stat(paths[i], &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) continue;
        complain("%s: cannot read '%s': it is not a regular file; give a database that gpuspy recorded", who, paths[i]);
        return false;
    }
    return true;
}

static bool sibling(const char *name, const char *stem, size_t length)
{
    const char *rest = name + length;

    if (strncmp(name, stem, length) != 0 || *rest != '.') return false;
    const size_t digits = strspn(rest + 1, "0123456789");
    return digits > 0 && strcmp(rest + 1 + digits, ".db") == 0;
}

char **input_siblings(const char *path, size_t *n)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const size_t length = strlen(base), folder = (size_t)(base - path);
    char **list = NULL;
    size_t cap = 0;

    *n = 0;
    if (length <= 3 || strcmp(base + length - 3, ".db") != 0) return NULL;
    char *name = arena_realloc(NULL, folder + 512, 1);
    snprintf(name, folder + 1, "%s", path);
    DIR *dir = opendir(folder ? name : ".");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (sibling(e->d_name, base, length - 3)) {
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
