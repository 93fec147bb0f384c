/* Lists by line: call paths that end at the same line of the program become one row, which keeps the largest of them.
 * */
#include "analyzer/site/builder.h"
#include "analyzer/base/sort.h"

#include <math.h>
#include <string.h>

enum { PATHS = 16 };

static struct result_site *site_at(void *row, const struct site_line_form *form)
{
    return (struct result_site *)(void *)((char *)row + form->site);
}

static struct result_paths *paths_at(void *row, const struct site_line_form *form)
{
    return (struct result_paths *)(void *)((char *)row + form->paths);
}

struct listed_path { /* call paths with the same call site and caller are one */
    struct result_line_path path;
    uint32_t row, number;
};

SORT_ORDER(by_row_then_weight, struct listed_path,
           SORT_UP(x->row, y->row) ?: SORT_DOWN(x->path.bytes, y->path.bytes)
               ?: SORT_DOWN(x->path.blocked_s, y->path.blocked_s) ?: SORT_UP(x->number, y->number))

static void list_paths(struct site_builder *b, struct listed_path *paths, size_t n, const struct site_line_form *form,
                       char *rows)
{
    SORT(paths, n, by_row_then_weight);
    for (size_t i = 0; i < n; i++) {
        struct result_paths *p = paths_at(rows + paths[i].row * form->size, form);
        if (p->n < 2 || p->listed >= PATHS) continue;
        if (!p->list) p->list = arena_alloc(b->arena, (p->n < PATHS ? p->n : PATHS) * sizeof *p->list);
        p->list[p->listed++] = paths[i].path;
    }
}

static void add_line_path(struct listed_path *to, const struct result_line_path *path)
{
    to->path.bytes = arena_add_capped(to->path.bytes, path->bytes);
    to->path.count += path->count;
    to->path.blocked_s += path->blocked_s;
}

struct lines {
    const struct site_line_form *form;
    struct map line_index, path_index;
    ARENA_ROWS(char, rows);
    ARENA_ROWS(struct listed_path, paths);
};

static void add_line_row(struct lines *l, char *from)
{
    const struct site_line_form *form = l->form;
    struct result_site *site = site_at(from, form);
    const uint64_t kind = form->kind ? map_hash(form->kind(from)) : 0;
    uint32_t *at = map_at(&l->line_index, map_hash(site_line_key(site) ^ kind));
    uint32_t *path = map_at(&l->path_index, map_hash(site_key(site) ^ kind));
    const struct result_line_path this = form->path(from);
    if (*at == MAP_NEW) {
        *at = (uint32_t)l->rows_n++;
        memcpy(l->rows + *at * form->size, from, form->size);
        *paths_at(l->rows + *at * form->size, form) = (struct result_paths){0};
    } else {
        form->add(l->rows + *at * form->size, from);
        site_keep_common(site_at(l->rows + *at * form->size, form), site);
    }
    if (*path != MAP_NEW) {
        add_line_path(&l->paths[*path], &this);
        return;
    }
    *path = (uint32_t)l->paths_n;
    l->paths[l->paths_n++] = (struct listed_path){this, *at, *path};
    char *row = l->rows + *at * form->size;
    const size_t n = ++paths_at(row, form)->n;
    site_at(row, form)->paths = n > 1 ? (uint32_t)n : 0;
}

void *site_lines_of(struct site_builder *b, const void *work, size_t n, const struct site_line_form *form,
                    size_t *listed, size_t *total)
{
    struct lines l = {.form = form,
                      .rows = arena_realloc(NULL, n + 1, form->size),
                      .paths = arena_realloc(NULL, n + 1, sizeof *l.paths)};
    for (size_t i = 0; i < n; i++) add_line_row(&l, (char *)(uintptr_t)work + i * form->size);
    list_paths(b, l.paths, l.paths_n, form, l.rows);
    void *list = site_list(b, l.rows, l.rows_n, form->size, form->order, listed, total);
    MAP_RELEASE(&l.line_index, &l.path_index);
    ARENA_RELEASE(l.rows, l.paths);
    return list;
}

void site_add_pace(struct result_pace *into, const struct result_pace *from)
{
    const bool both = into->phase == RESULT_PHASE_STEP && from->phase == RESULT_PHASE_STEP;
    if (!both && from->phase == RESULT_PHASE_STEP) {
        *into = *from; /* the rest occurs irregularly */
        return;
    }
    if (both) {
        into->calls_per_step += from->calls_per_step;
        into->steady_share += isnan(from->steady_share) ? 0 : from->steady_share;
        into->usual_share += isnan(from->usual_share) ? 0 : from->usual_share;
        into->steady_blocked_s += isnan(from->steady_blocked_s) ? 0 : from->steady_blocked_s;
        into->steps_with = from->steps_with > into->steps_with ? from->steps_with : into->steps_with;
    }
}
