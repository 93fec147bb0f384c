/* Which file of one recording is which of another. See match.h. */
#include "analyzer/diff/match.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"

/* One file of one side, with the functions seen in it. */
struct file {
    const char *path, *library;          /* diff_match_library */
    const char *cell;                    /* of its sites */
    ARENA_ROWS(const char *, functions); /* ascending, each once */
    size_t from, n;                      /* its sites, in `order` */
    bool program;
    uint32_t partner; /* index on the other side */
};

struct side {
    const struct diff_match_site *sites;
    size_t n;
    uint32_t *order; /* sites by file, then function */
    ARENA_LIST(struct file, files);
    const char **functions; /* of all files */
};

const char *diff_match_library(const char *file)
{
    static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *at = strstr(file, folders[i]);
        if (at) return at + strlen(folders[i]);
    }
    for (const char *p = file; (p = strstr(p, "/lib")) != NULL; p++) { /* /lib/python3.11/random.py */
        const char *q = p + 4;
        q += strncmp(q, "64", 2) == 0 ? 2 : 0;
        if (strncmp(q, "/python", 7) == 0 && isdigit((unsigned char)q[7])) {
            q = strchr(q + 1, '/');
            return q ? q + 1 : NULL;
        }
    }
    return NULL;
}

unsigned diff_match_end(const char *a, const char *b)
{
    size_t i = strlen(a), j = strlen(b);
    unsigned parts = 0;
    while (i > 0 && j > 0 && a[i - 1] == b[j - 1]) {
        i--;
        j--;
        parts += a[i] == '/';
    }
    /* what is left of one ends where a folder of the other does */
    bool whole = (i == 0 || a[i - 1] == '/') && (j == 0 || b[j - 1] == '/') && a[i] != '/' && a[i];
    return parts + whole;
}

static int by_file(const void *x, const void *y, void *self)
{
    const struct diff_match_site *s = self, *a = &s[*(const uint32_t *)x], *b = &s[*(const uint32_t *)y];
    return strcmp(a->file, b->file) ?: strcmp(a->function, b->function) ?: SORT_UP(a->line, b->line);
}

static void side_fill(struct side *s, const struct diff_match_site *sites, size_t n)
{
    *s = (struct side){.sites = sites, .n = n};
    s->order = arena_realloc(NULL, n, sizeof *s->order);
    s->functions = arena_realloc(NULL, n, sizeof *s->functions);
    for (size_t i = 0; i < n; i++) s->order[i] = (uint32_t)i;
    if (n) qsort_r(s->order, n, sizeof *s->order, by_file, (void *)(uintptr_t)sites);
    size_t functions = 0;
    for (size_t i = 0; i < n; i++) {
        const struct diff_match_site *site = &sites[s->order[i]];
        if (!s->files_n || strcmp(s->files[s->files_n - 1].path, site->file) != 0) {
            ARENA_APPEND(s->files, .path = site->file, .library = diff_match_library(site->file), .cell = site->cell,
                         .functions = &s->functions[functions], .from = i, .partner = DIFF_MATCH_ALONE);
        }
        struct file *f = &s->files[s->files_n - 1];
        f->n++;
        f->program = f->program || site->program;
        if (!f->functions_n || strcmp(f->functions[f->functions_n - 1], site->function) != 0) {
            f->functions[f->functions_n++] = site->function;
            functions++;
        }
    }
}

static void side_free(struct side *s)
{
    ARENA_RELEASE(s->order, s->functions, s->files);
}

static bool is_function_named(const char *function)
{
    return strcmp(function, "<module>") != 0;
}

/* Functions that both have; `only_named`: without the files' own code. */
static size_t count_shared_functions(const struct file *a, const struct file *b, bool only_named)
{
    size_t n = 0;
    for (size_t i = 0, j = 0; i < a->functions_n && j < b->functions_n;) {
        int order = strcmp(a->functions[i], b->functions[j]);
        n += order == 0 && (!only_named || is_function_named(a->functions[i]));
        i += order <= 0;
        j += order >= 0;
    }
    return n;
}

static size_t named_functions(const struct file *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->functions_n; i++) n += is_function_named(f->functions[i]);
    return n;
}

struct candidate {
    uint32_t a, b;
    unsigned end;
    size_t functions;
};

SORT_ORDER(best_first, struct candidate, SORT_DOWN(x->end, y->end) ?: SORT_DOWN(x->functions, y->functions))

static void pair_files(struct side *a, struct side *b, uint32_t i, uint32_t j)
{
    a->files[i].partner = j;
    b->files[j].partner = i;
}

/* Of candidates that are equally good, those that have no rival on either side. */
static void pair_alike(struct side *a, struct side *b, const struct candidate *list, size_t n)
{
    struct map rivals_a = {0}, rivals_b = {0};
    for (size_t i = 0; i < n; i++) {
        if (a->files[list[i].a].partner == DIFF_MATCH_ALONE && b->files[list[i].b].partner == DIFF_MATCH_ALONE) {
            uint32_t *x = map_at(&rivals_a, list[i].a), *y;
            *x = *x == MAP_NEW ? 1 : 2;
            y = map_at(&rivals_b, list[i].b);
            *y = *y == MAP_NEW ? 1 : 2;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (map_get(&rivals_a, list[i].a) == 1 && map_get(&rivals_b, list[i].b) == 1)
            pair_files(a, b, list[i].a, list[i].b);
    MAP_RELEASE(&rivals_a, &rivals_b);
}

enum { CANDIDATES = 1 << 18, LIBRARY = 1 << 20 }; /* more only in a forged file */

/* The common end of two paths; for a library's files all of the part that identifies them, or nothing. */
static unsigned are_files_alike(const struct file *a, const struct file *b)
{
    if (!a->library != !b->library) return 0;
    return !a->library ? diff_match_end(a->path, b->path) : strcmp(a->library, b->library) == 0 ? LIBRARY : 0;
}

static void pair_best(struct side *a, struct side *b, struct candidate *list, size_t n)
{
    SORT(list, n, best_first);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && best_first(&list[from], &list[to]) == 0;) to++;
        pair_alike(a, b, &list[from], to - from);
    }
}

static void pair_by_end(struct side *a, struct side *b)
{
    struct candidate *list = NULL;
    size_t n = 0, cap = 0;
    for (uint32_t i = 0; i < a->files_n; i++) {
        for (uint32_t j = 0; j < b->files_n && a->files[i].partner == DIFF_MATCH_ALONE; j++) {
            if (b->files[j].partner != DIFF_MATCH_ALONE) continue;
            unsigned end = are_files_alike(&a->files[i], &b->files[j]);
            size_t functions = end ? count_shared_functions(&a->files[i], &b->files[j], false) : 0;
            if ((functions || end == LIBRARY) && n < CANDIDATES)
                *ARENA_PUSH(list, n, cap) = (struct candidate){i, j, end, functions};
        }
    }
    pair_best(a, b, list, n);
    free(list);
}

static bool is_same_cell(const struct file *a, const struct file *b)
{
    return a->cell && b->cell && strcmp(a->cell, b->cell) == 0;
}

/* Before all others: In [5] can be another cell in the other recording. */
static void pair_cells(struct side *a, struct side *b)
{
    for (uint32_t i = 0; i < a->files_n; i++)
        for (uint32_t j = 0; j < b->files_n && a->files[i].partner == DIFF_MATCH_ALONE; j++)
            if (b->files[j].partner == DIFF_MATCH_ALONE && is_same_cell(&a->files[i], &b->files[j]))
                pair_files(a, b, i, j);
}

static void pair_by_name(struct side *a, struct side *b)
{
    for (size_t i = 0, j = 0; i < a->files_n && j < b->files_n;) { /* both are in order */
        int order = strcmp(a->files[i].path, b->files[j].path);
        if (order == 0 && a->files[i].partner == DIFF_MATCH_ALONE && b->files[j].partner == DIFF_MATCH_ALONE)
            pair_files(a, b, (uint32_t)i, (uint32_t)j);
        i += order <= 0;
        j += order >= 0;
    }
}

static double module_calls(const struct side *a, const struct file *x, const struct side *b, const struct file *y)
{
    double most = 0;
    for (size_t i = 0; i < x->n; i++) {
        const struct diff_match_site *s = &a->sites[a->order[x->from + i]];
        for (size_t j = 0; j < y->n && !is_function_named(s->function); j++) {
            const struct diff_match_site *t = &b->sites[b->order[y->from + j]];
            double calls = is_function_named(t->function) ? 0 : diff_match_calls(s, t);
            most = calls > most ? calls : most;
        }
    }
    return most;
}

/* A file that has another name: at least half of the functions of both are the same, and no other two files share as
 * many. */
static void pair_renamed_files(struct side *a, struct side *b)
{
    struct candidate *list = NULL;
    size_t n = 0, cap = 0;
    for (uint32_t i = 0; i < a->files_n; i++) {
        for (uint32_t j = 0; j < b->files_n && a->files[i].partner == DIFF_MATCH_ALONE; j++) {
            const struct file *f = &a->files[i], *g = &b->files[j];
            size_t in_f = named_functions(f), in_g = named_functions(g), most = in_f > in_g ? in_f : in_g;
            size_t both =
                g->partner == DIFF_MATCH_ALONE && !f->library && !g->library ? count_shared_functions(f, g, true) : 0;
            if (both && 2 * both >= most && n < CANDIDATES)
                *ARENA_PUSH(list, n, cap) = (struct candidate){i, j, 0, both};
        }
    }
    pair_best(a, b, list, n);
    free(list);
}

/* train_v1.py and train_v2.py: both were started, and at least half of the functions of the one are in the other; or
 * neither has any, and they make similar calls. */
static void pair_programs(struct side *a, struct side *b)
{
    uint32_t x = DIFF_MATCH_ALONE, y = DIFF_MATCH_ALONE;
    size_t xs = 0, ys = 0;
    for (uint32_t i = 0; i < a->files_n; i++) {
        x = a->files[i].program ? i : x;
        xs += a->files[i].program;
    }
    for (uint32_t j = 0; j < b->files_n; j++) {
        y = b->files[j].program ? j : y;
        ys += b->files[j].program;
    }
    if (xs != 1 || ys != 1 || a->files[x].partner != DIFF_MATCH_ALONE || b->files[y].partner != DIFF_MATCH_ALONE)
        return;
    const struct file *f = &a->files[x], *g = &b->files[y];
    size_t in_f = named_functions(f), in_g = named_functions(g), least = in_f < in_g ? in_f : in_g;
    if (least ? 2 * count_shared_functions(f, g, true) >= least : in_f == in_g && module_calls(a, f, b, g) > 0)
        pair_files(a, b, x, y);
}

static enum diff_match_path match_path_of(const struct file *a, const struct file *b)
{
    return strcmp(a->path, b->path) == 0                                     ? DIFF_MATCH_PATH_SAME
           : is_same_cell(a, b)                                              ? DIFF_MATCH_PATH_CELL
           : a->library && b->library && strcmp(a->library, b->library) == 0 ? DIFF_MATCH_PATH_LIBRARY
           : diff_match_end(a->path, b->path)                                ? DIFF_MATCH_PATH_END
                                                                             : DIFF_MATCH_PATH_RENAMED;
}

void diff_match_paths(struct diff_match *match, const struct diff_match_site *a, size_t an,
                      const struct diff_match_site *b, size_t bn)
{
    struct side x, y;
    size_t cap = 0;
    side_fill(&x, a, an);
    side_fill(&y, b, bn);
    pair_cells(&x, &y);
    pair_by_name(&x, &y);
    pair_by_end(&x, &y);
    pair_programs(&x, &y);
    pair_renamed_files(&x, &y);
    for (uint32_t i = 0; i < x.files_n; i++) {
        const struct file *f = &x.files[i];
        for (size_t k = 0; k < f->n; k++) match->file_a[x.order[f->from + k]] = i;
        if (f->partner != DIFF_MATCH_ALONE) {
            const struct file *other = &y.files[f->partner];
            ARENA_APPEND_TO(match->files, match->files_n, cap, f->path, other->path, match_path_of(f, other));
        }
    }
    for (uint32_t j = 0; j < y.files_n; j++) {
        const struct file *f = &y.files[j];
        for (size_t k = 0; k < f->n; k++)
            match->file_b[y.order[f->from + k]] = f->partner != DIFF_MATCH_ALONE ? f->partner : (uint32_t)x.files_n + j;
    }
    side_free(&x);
    side_free(&y);
}

double diff_match_calls(const struct diff_match_site *a, const struct diff_match_site *b)
{
    size_t both = 0, all = 0;
    for (size_t i = 0, j = 0; i < a->calls_n || j < b->calls_n; all++) {
        bool in_a = i < a->calls_n && (j >= b->calls_n || a->calls[i] <= b->calls[j]);
        bool in_b = j < b->calls_n && (i >= a->calls_n || b->calls[j] <= a->calls[i]);
        both += in_a && in_b;
        i += in_a;
        j += in_b;
    }
    return all ? (double)both / (double)all : 0;
}
