/* The cells of the notebooks in a run's working directory. ipykernel names the file of a cell by a hash of its text,
 * and does not write that file, so a cell with the same hash is the one that ran. */
#include "analyzer/base/each.h"
#include "analyzer/run/run_internal.h"
#include "schema/mask.h"
#include "schema/source_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOTEBOOKS = 64, NOTEBOOK_BYTES = 32 << 20, CELL_BYTES = 1 << 20 };

/* MurmurHash2 with the seed that ipykernel uses (ipykernel/compiler.py). */
static uint32_t hash_cell(const char *text, size_t length)
{
    static const uint32_t m = 0x5bd1e995, seed = 0xc70f6907;
    const unsigned char *p = (const unsigned char *)text;
    uint32_t h = seed ^ (uint32_t)length;
    for (; length >= 4; length -= 4, p += 4) {
        uint32_t k = (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24) * m;
        h = h * m ^ (k ^ k >> 24) * m;
    }
    uint32_t rest = 0;
    for (size_t i = 0; i < length; i++) rest |= (uint32_t)p[i] << 8 * i;
    if (length) h = (h ^ rest) * m;
    h = (h ^ h >> 13) * m;
    return h ^ h >> 15;
}

/* IPython drops empty lines at the start of a cell. */
static const char *skip_empty_lines(const char *text)
{
    const char *from = text;
    for (const char *p = text; *p && strchr(" \t\r\f\v\n", *p); p++)
        if (*p == '\n') from = p + 1;
    return from[strspn(from, " \t\r\f\v\n")] ? from : text;
}

/* A command over several lines becomes one, so that the numbers of later lines differ from those that ran. */
static bool joins_lines(const char *text)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *word = line + strspn(line, " \t"), *end = word + strcspn(word, "\r\n");
        if (strchr("%!?", *word) && end > word && end[-1] == '\\') return true;
    }
    return false;
}

/* `source` of a cell: a string, or a list of them. Allocated; NULL: neither, or too long. */
static char *join_cell_source(const json_t *source)
{
    const size_t n = json_is_array(source) ? json_array_size(source) : 1;
    char *text = calloc(1, CELL_BYTES);
    size_t length = 0;
    for (size_t i = 0; text && i < n; i++) {
        const json_t *part = json_is_array(source) ? json_array_get(source, i) : source;
        const size_t bytes = json_string_length(part);
        if (!json_is_string(part) || bytes >= CELL_BYTES - length) {
            free(text);
            return NULL;
        }
        memcpy(text + length, json_string_value(part), bytes);
        length += bytes;
    }
    return text;
}

static json_t *load_notebook(int folder, const char *name)
{
    struct stat st;
    const int fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const bool is = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= NOTEBOOK_BYTES;
    json_t *root = is ? json_loadfd(fd, 0, NULL) : NULL;
    if (fd >= 0) close(fd);
    return root;
}

static void add_cells(struct run *run, const json_t *root, const char *notebook)
{
    const json_t *cells = json_object_get(root, "cells"), *cell;
    size_t i, number = 0;
    json_array_foreach(cells, i, cell)
    {
        const char *type = json_string_value(json_object_get(cell, "cell_type"));
        const bool code = type && strcmp(type, "code") == 0;
        number += code;
        char *text = code ? join_cell_source(json_object_get(cell, "source")) : NULL;
        if (text && !joins_lines(text)) {
            const char *shown = skip_empty_lines(text);
            const size_t length = strlen(shown), size = 2 * length + 16; /* a mask can be longer than a secret */
            char *masked = arena_alloc(&run->arena, size);
            ARENA_APPEND(run->cells, .hash = hash_cell(text, strlen(text)), .text = masked,
                         .length = gs_mask_source(masked, size, shown, length), .notebook = notebook, .number = number,
                         .count = json_integer_value(json_object_get(cell, "execution_count")));
        }
        free(text);
    }
}

static void add_notebooks(struct run *run, const char *path)
{
    DIR *folder = opendir(path);
    size_t n = 0;
    for (const struct dirent *e; folder && n < NOTEBOOKS && (e = readdir(folder));) {
        const char *dot = strrchr(e->d_name, '.');
        json_t *root = dot && strcmp(dot, ".ipynb") == 0 ? load_notebook(dirfd(folder), e->d_name) : NULL;
        n += root != NULL;
        add_cells(run, root, run_text(run, e->d_name, strlen(e->d_name)));
        json_decref(root);
    }
    if (folder) closedir(folder);
}

const struct run_cell *run_notebook_cell(struct run *run, const char *file, const char *folder)
{
    const char *name = strrchr(file, '/');
    char *end = NULL;
    const unsigned long hash = name && gs_source_is_cell(file) ? strtoul(name + 1, &end, 10) : 0;
    if (!end || end == name + 1 || strcmp(end, ".py") != 0 || !folder || *folder != '/') return NULL;
    if (!run->cells_folder || strcmp(run->cells_folder, folder) != 0) {
        run->cells_n = 0;
        run->cells_folder = run_text(run, folder, strlen(folder));
        add_notebooks(run, folder);
    }
    struct run_cell *found = NULL;
    EACH_IN (c, run->cells) {
        if (c->hash != hash) continue;
        if (found && (c->number != found->number || found->notebook != c->notebook)) found->notebook = NULL;
        if (found && c->number != found->number) found->number = 0;
        if (found && c->count) found->count = c->count > found->count ? c->count : found->count;
        found = found ? found : c;
    }
    return found;
}

const char *run_cell_file(const struct run *run, const char *name)
{
    EACH_IN (c, run->cell_names)
        if (c->shown == name) return c->file;
    return name;
}
