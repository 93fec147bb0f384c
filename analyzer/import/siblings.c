#include "analyzer/import/siblings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/arena.h"

/* Length of the path without ".db". */
static int stem_length(const char *path)
{
    size_t n = strlen(path);
    return (int)(n > 3 && strcmp(path + n - 3, ".db") == 0 ? n - 3 : n);
}

void import_sibling_name(char *out, size_t size, const char *path, uint32_t number)
{
    snprintf(out, size, "%.*s.%u.db", stem_length(path), path, number);
}

struct input_files import_siblings(const char *path)
{
    size_t size = strlen(path) + sizeof ".db";
    char *name = arena_realloc(NULL, size, 1);
    snprintf(name, size, "%.*s.db", stem_length(path), path);
    const struct input_files files = input_siblings(name);
    free(name);
    return files;
}

void import_remove_siblings(const char *path)
{
    struct input_files files = import_siblings(path);
    for (size_t i = 0; i < files.n; i++) unlink(files.list[i]);
    input_files_free(&files);
}
