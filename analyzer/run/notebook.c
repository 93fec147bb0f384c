/* The cells of the notebooks, and of scripts with cells, in a run's working directory and beside its recording.
 * ipykernel names the file of a cell by a hash of its text, and does not write that file, so a cell with the same hash
 * is the one that ran. */
#include "analyzer/base/each.h"
#include "analyzer/run/run_internal.h"
#include "schema/mask.h"
#include "schema/source_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char blank[] = " \t\r\f\v\n";
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
    for (const char *p = text; *p && strchr(blank, *p); p++)
        if (*p == '\n') from = p + 1;
    return from[strspn(from, blank)] ? from : text;
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

/* -1: it is not a regular file of at most so many bytes. */
static int open_notebook(int folder, const char *name, off_t most)
{
    struct stat st;
    const int fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= most)) return fd;
    close(fd);
    return -1;
}

static void add_notebook_cell(struct run *run, const char *text, const char *notebook, size_t number, long count)
{
    const char *shown = skip_empty_lines(text);
    const size_t length = strlen(shown), size = 2 * length + 16; /* a mask can be longer than a secret */
    char *masked = arena_alloc(&run->arena, size);
    if (joins_lines(text)) return;
    ARENA_APPEND(run->cells, .hash = hash_cell(text, strlen(text)), .text = masked,
                 .length = gs_mask_source(masked, size, shown, length), .notebook = notebook, .number = number,
                 .count = count);
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
        if (text)
            add_notebook_cell(run, text, notebook, number,
                              json_integer_value(json_object_get(cell, "execution_count")));
        free(text);
    }
}

/* Editors send a cell of a script without its marker and without the empty lines above. Some keep those below. */
static void add_script_cell(struct run *run, char *text, const char *script, size_t number)
{
    text += strspn(text, blank);
    size_t n = strlen(text);
    add_notebook_cell(run, text, script, number, 0);
    while (n && strchr(blank, text[n - 1])) n--;
    if (!text[n]) return;
    text[n] = 0;
    add_notebook_cell(run, text, script, number, 0);
}

/* A script whose cells begin with lines "# %%". */
static void add_script(struct run *run, char *text, const char *script)
{
    static const char other[] = "[markdown]";
    size_t number = 0;
    char *cell = NULL, *next;
    for (char *line = text; line; line = next) {
        char *end = strchr(line, '\n');
        next = end ? end + 1 : NULL;
        if (strncmp(line, "# %%", 4) != 0 && strncmp(line, "#%%", 3) != 0) continue;
        if (cell) {
            line[-1] = 0;
            add_script_cell(run, cell, script, ++number);
        }
        cell = end && !memmem(line, (size_t)(end - line), other, sizeof other - 1) ? next : NULL;
    }
    if (cell) add_script_cell(run, cell, script, ++number);
}

/* Is it a notebook, or a script with cells? */
static bool add_notebook(struct run *run, int folder, const char *name)
{
    const char *dot = strrchr(name, '.');
    const bool notebook = dot && strcmp(dot, ".ipynb") == 0;
    const int fd = notebook || (dot && strcmp(dot, ".py") == 0)
                       ? open_notebook(folder, name, notebook ? NOTEBOOK_BYTES : GS_SOURCE_FILE_BYTES)
                       : -1;
    if (fd < 0) return false;
    const char *shown = run_text(run, name, strlen(name));
    const size_t before = run->cells_n;
    json_t *root = notebook ? json_loadfd(fd, 0, NULL) : NULL;
    char *text = notebook ? NULL : calloc(1, GS_SOURCE_FILE_BYTES + 1);
    if (text && read(fd, text, GS_SOURCE_FILE_BYTES) > 0) add_script(run, text, shown);
    add_cells(run, root, shown);
    close(fd);
    json_decref(root);
    free(text);
    return run->cells_n > before;
}

static void add_notebooks(struct run *run, const char *path)
{
    DIR *folder = opendir(path);
    size_t n = 0;
    for (const struct dirent *e; folder && n < NOTEBOOKS && (e = readdir(folder));)
        n += add_notebook(run, dirfd(folder), e->d_name);
    if (folder) closedir(folder);
}

const char *run_cell_file(const struct run *run, const char *name)
{
    EACH_IN (c, run->cell_names)
        if (c->shown == name) return c->file;
    return name;
}

/* /ipykernel_4711/3032832350.py, /ipython-input-3-4282502808.py, <ipython-input-3-1b2c3d>: a hash of the text is last.
 */
const char *run_cell_text(const struct run *run, const char *file)
{
    const char *name = run_cell_file(run, file);
    const char *dash = strrchr(name, '-'), *slash = strrchr(name, '/');
    return !gs_source_is_cell(name) ? NULL : !dash || (slash && slash > dash) ? slash : dash;
}

/* Of another machine's run, as Colab's, the user has put the notebook there. */
static void add_notebooks_beside(struct run *run, const char *recording, const char *folder)
{
    char path[PATH_MAX];
    struct stat a, b;
    const char *slash = strrchr(recording, '/');
    const int n = slash ? (int)(slash - recording + 1) : 0;
    snprintf(path, sizeof path, "%.*s.", n, recording);
    if (stat(path, &a) != 0) return;
    if (stat(folder, &b) != 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino) add_notebooks(run, path);
}

struct run_cell run_notebook_cell(struct run *run, const char *file, const struct run_process *p)
{
    const char *folder = p->cwd;
    const char *name = *file == '/' ? run_cell_text(run, file) : NULL;
    char *end = NULL;
    const unsigned long hash = name ? strtoul(name + 1, &end, 10) : 0;
    if (!end || end == name + 1 || (*end && strcmp(end, ".py") != 0) || !folder || *folder != '/')
        return (struct run_cell){0};
    if (!run->cells_folder || strcmp(run->cells_folder, folder) != 0) {
        run->cells_n = 0;
        run->cells_folder = run_text(run, folder, strlen(folder));
        add_notebooks(run, folder);
        add_notebooks_beside(run, run_shown_path(p->path), folder);
    }
    struct run_cell found = {0};
    const char *of = NULL;
    EACH_IN (c, run->cells) {
        if (c->hash != hash) continue;
        const bool other = of && c->notebook != of; /* of equal cells of a notebook, the first */
        if (!of) found = *c;
        if (other) found.notebook = NULL;
        if (other && c->number != found.number) found.number = 0;
        found.count = c->count > found.count ? c->count : found.count;
        of = c->notebook;
    }
    return found;
}
