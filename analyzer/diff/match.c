/* Which line is which: the lines of a function aligned. See match.h; match_files.c pairs the files. */
#include "analyzer/diff/match.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"

/* The value of an alignment. Equal calls count most; then equal sizes; a line that stayed, or moved as far as the one
 * before it, counts little by itself, and decides between equals. */
static const double worth_calls = 3, worth_ratio = 1, worth_equal = 3, worth_line = 0.5, worth_offset = 0.75;
/* Below this, sizes and counts show that two lines with the same calls are not the same line. */
static const double least_ratio = 0.05;
/* How many of their calls functions of different names must share. */
static const double renamed_calls = 0.5;

enum { CELLS = 4 << 20, GROUP = 4096 }; /* of one alignment; more only in a forged file */

struct group { /* one function of one file, on one side */
    uint32_t file;
    const char *function;
    const uint32_t *sites; /* by line */
    size_t n;
};

struct matcher {
    const struct diff_match_site *a, *b;
    struct diff_match *m;
    struct map files_a, files_b; /* numbers that occur */
};

static double size_ratio(double x, double y)
{
    double least = x < y ? x : y, most = x < y ? y : x;
    return most <= 0 ? 1 : least / most;
}

static double mean_bytes(const struct diff_match_site *s)
{
    return s->count ? (double)s->weight / (double)s->count : 0;
}

/* Negative: they are not the same line. */
static double site_likeness(const struct diff_match_site *a, const struct diff_match_site *b)
{
    double calls = diff_match_calls(a, b), count = size_ratio((double)a->count, (double)b->count),
           size = size_ratio(mean_bytes(a), mean_bytes(b));
    if (calls <= 0 || (a->line != b->line && count < least_ratio && size < least_ratio)) return -1;
    bool equal = a->count == b->count && a->weight == b->weight && a->weight > 0;
    return worth_calls * calls + worth_ratio * (count + size) + (equal ? worth_equal : 0) +
           (a->line == b->line ? worth_line : 0);
}

static void pair_sites(struct matcher *x, uint32_t i, uint32_t j, bool function)
{
    bool same = !function && x->a[i].line == x->b[j].line;
    x->m->of_a[i] = j;
    x->m->of_b[j] = i;
    x->m->how_a[i] = x->m->how_b[j] = function ? DIFF_MATCH_FUNCTION : same ? DIFF_MATCH_SAME : DIFF_MATCH_LINE;
}

/* Cells are pairs of lines; the best chain of cells in which both sides' lines ascend. */

struct cell {
    double worth;  /* of the best chain that ends here; negative: they are not the same line */
    uint32_t back; /* the cell before it, DIFF_MATCH_ALONE */
};

/* The best chains' ends so far: of all, up to each column; and of those moved by so many lines. */
struct ends {
    uint32_t *column;
    struct map by_offset;
};

static void fill_row(struct cell *cells, const struct diff_match_site *const *a, const struct diff_match_site *const *b,
                     size_t row, size_t columns, struct ends *ends)
{
    uint32_t best = DIFF_MATCH_ALONE; /* of the columns before this one */
    for (size_t j = 0; j < columns; j++) {
        uint32_t at = (uint32_t)(row * columns + j);
        struct cell *cell = &cells[at];
        *cell = (struct cell){site_likeness(a[row], b[j]), DIFF_MATCH_ALONE};
        if (cell->worth >= 0) {
            uint32_t moved = map_get(&ends->by_offset, (uint64_t)(b[j]->line - (int64_t)a[row]->line));
            double by_any = best != DIFF_MATCH_ALONE ? cells[best].worth : 0;
            double by_moved = moved != MAP_NEW ? cells[moved].worth + worth_offset : -1;
            cell->back = by_moved > by_any ? moved : best;
            cell->worth += by_moved > by_any ? by_moved : by_any;
        }
        uint32_t here = ends->column[j];
        if (here != DIFF_MATCH_ALONE && (best == DIFF_MATCH_ALONE || cells[here].worth > cells[best].worth))
            best = here;
    }
}

static void add_alignment_row(const struct cell *cells, const struct diff_match_site *const *a,
                              const struct diff_match_site *const *b, size_t row, size_t columns, struct ends *ends)
{
    for (size_t j = 0; j < columns; j++) {
        uint32_t at = (uint32_t)(row * columns + j);
        if (cells[at].worth < 0) continue;
        uint32_t *moved = map_at(&ends->by_offset, (uint64_t)(b[j]->line - (int64_t)a[row]->line));
        if (*moved == MAP_NEW || cells[at].worth > cells[*moved].worth) *moved = at;
        if (ends->column[j] == DIFF_MATCH_ALONE || cells[at].worth > cells[ends->column[j]].worth) ends->column[j] = at;
    }
}

/* partner[i] of row i, DIFF_MATCH_ALONE. */
static void align_sites(const struct diff_match_site *const *a, size_t rows, const struct diff_match_site *const *b,
                        size_t columns, uint32_t *partner)
{
    struct cell *cells = arena_realloc(NULL, rows * columns, sizeof *cells);
    struct ends ends = {.column = arena_realloc(NULL, columns, sizeof *ends.column)};
    uint32_t best = DIFF_MATCH_ALONE;
    memset(ends.column, 0xff, columns * sizeof *ends.column);
    for (size_t i = 0; i < rows; i++) {
        partner[i] = DIFF_MATCH_ALONE;
        fill_row(cells, a, b, i, columns, &ends);
        add_alignment_row(cells, a, b, i, columns, &ends);
    }
    for (size_t j = 0; j < columns; j++) {
        uint32_t here = ends.column[j];
        best = here != DIFF_MATCH_ALONE && (best == DIFF_MATCH_ALONE || cells[here].worth > cells[best].worth) ? here
                                                                                                               : best;
    }
    for (; best != DIFF_MATCH_ALONE; best = cells[best].back) partner[best / columns] = (uint32_t)(best % columns);
    map_free(&ends.by_offset);
    ARENA_RELEASE(ends.column, cells);
}

static int site_order(const struct diff_match_site *a, const struct diff_match_site *b)
{
    if (a->line != b->line) return a->line < b->line ? -1 : 1;
    if (a->weight != b->weight) return a->weight < b->weight ? -1 : 1;
    if (a->count != b->count) return a->count < b->count ? -1 : 1;
    if (a->calls_n != b->calls_n) return a->calls_n < b->calls_n ? -1 : 1;
    return a->calls_n ? memcmp(a->calls, b->calls, a->calls_n * sizeof *a->calls) : 0;
}

/* Two alignments may be equally good: the order of the sides must not decide. */
static bool are_orders_turned(const struct diff_match_site *const *a, size_t an, const struct diff_match_site *const *b,
                              size_t bn)
{
    if (an != bn) return an > bn;
    for (size_t i = 0; i < an; i++) {
        int order = site_order(a[i], b[i]);
        if (order) return order > 0;
    }
    return false;
}

/* Sites of a group that have no partner yet. */
static size_t list_unpaired_sites(const struct diff_match_site *sites, const uint32_t *of, const struct group *g,
                                  const struct diff_match_site **list, uint32_t *number)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n && n < GROUP; i++) {
        if (of[g->sites[i]] == DIFF_MATCH_ALONE) {
            number[n] = g->sites[i];
            list[n++] = &sites[g->sites[i]];
        }
    }
    return n;
}

/* As many lines, all moved as far, that call the same in the same order: only sizes and counts differ, and for a batch
 * twice as large these mislead. */
static bool same_shape(const struct diff_match_site *const *a, size_t an, const struct diff_match_site *const *b,
                       size_t bn)
{
    for (size_t i = 0; an == bn && i < an; i++)
        if ((int64_t)b[i]->line - a[i]->line != (int64_t)b[0]->line - a[0]->line || diff_match_calls(a[i], b[i]) < 1)
            return false;
    return an == bn && an > 1;
}

static void align_groups(struct matcher *x, const struct group *f, const struct group *g, bool function)
{
    const struct diff_match_site **a = arena_realloc(NULL, f->n, sizeof *a), **b = arena_realloc(NULL, g->n, sizeof *b);
    uint32_t *na = arena_realloc(NULL, f->n, sizeof *na), *nb = arena_realloc(NULL, g->n, sizeof *nb);
    size_t an = list_unpaired_sites(x->a, x->m->of_a, f, a, na), bn = list_unpaired_sites(x->b, x->m->of_b, g, b, nb);
    if (same_shape(a, an, b, bn)) {
        for (size_t i = 0; i < an; i++) pair_sites(x, na[i], nb[i], function);
    } else if (an && bn && an * bn <= CELLS) {
        bool turn = are_orders_turned(a, an, b, bn);
        uint32_t *partner = arena_realloc(NULL, turn ? bn : an, sizeof *partner);
        align_sites(turn ? b : a, turn ? bn : an, turn ? a : b, turn ? an : bn, partner);
        for (size_t i = 0; i < (turn ? bn : an); i++)
            if (partner[i] != DIFF_MATCH_ALONE)
                pair_sites(x, turn ? na[partner[i]] : na[i], turn ? nb[i] : nb[partner[i]], function);
        free(partner);
    }
    ARENA_RELEASE(a, b, na, nb);
}

/* The paired line next to position `at` of the group, before or after it, was moved by some lines. */
static bool moved_beside(const struct diff_match_site *own, const uint32_t *of, const struct group *f, size_t at,
                         const struct diff_match_site *others)
{
    for (int step = -1; step <= 1; step += 2) {
        for (size_t i = at; (step < 0 ? i > 0 : i + 1 < f->n);) {
            i = step < 0 ? i - 1 : i + 1;
            uint32_t site = f->sites[i], other = of[site];
            if (other != DIFF_MATCH_ALONE) {
                if (own[site].line != others[other].line) return true;
                break;
            }
        }
    }
    return false;
}

/* The same line, though it now calls something else: if nothing around it moved. */
static void pair_in_place(struct matcher *x, const struct group *f, const struct group *g)
{
    for (size_t i = 0, j = 0; i < f->n && j < g->n;) {
        uint32_t s = f->sites[i], t = g->sites[j];
        int line = x->a[s].line, other = x->b[t].line;
        if (line == other && x->m->of_a[s] == DIFF_MATCH_ALONE && x->m->of_b[t] == DIFF_MATCH_ALONE &&
            !moved_beside(x->a, x->m->of_a, f, i, x->b) && !moved_beside(x->b, x->m->of_b, g, j, x->a))
            pair_sites(x, s, t, false);
        i += line <= other;
        j += other <= line;
    }
}

static bool are_sites_identical(const struct diff_match_site *a, const struct diff_match_site *b)
{
    return a->weight == b->weight && a->count == b->count && a->weight > 0 && diff_match_calls(a, b) >= 1;
}

/* Out of order: lines with the same calls and exactly the same sizes that are unique. */
static void pair_identical(struct matcher *x, const struct group *f, const struct group *g)
{
    for (size_t i = 0; i < f->n && f->n <= GROUP && g->n <= GROUP; i++) {
        uint32_t s = f->sites[i], t = DIFF_MATCH_ALONE;
        size_t here = 0, present = 0;
        if (x->m->of_a[s] != DIFF_MATCH_ALONE) continue;
        for (size_t j = 0; j < g->n; j++) {
            if (x->m->of_b[g->sites[j]] == DIFF_MATCH_ALONE && are_sites_identical(&x->a[s], &x->b[g->sites[j]])) {
                t = g->sites[j];
                present++;
            }
        }
        for (size_t k = 0; k < f->n && present == 1; k++)
            here += x->m->of_a[f->sites[k]] == DIFF_MATCH_ALONE && are_sites_identical(&x->a[f->sites[k]], &x->b[t]);
        if (here == 1) pair_sites(x, s, t, false);
    }
}

struct groups {
    uint32_t *order;
    struct group *list;
    size_t n, cap;
};

struct sorted {
    const struct diff_match_site *sites;
    const uint32_t *file;
};

static int group_order(uint32_t file_a, const char *a, uint32_t file_b, const char *b)
{
    return SORT_UP(file_a, file_b) ?: strcmp(a, b);
}

static int order_sites_by_function(const void *p, const void *q, void *self)
{
    const struct sorted *s = self;
    uint32_t i = *(const uint32_t *)p, j = *(const uint32_t *)q;
    return group_order(s->file[i], s->sites[i].function, s->file[j], s->sites[j].function)
               ?: SORT_UP(s->sites[i].line, s->sites[j].line);
}

static struct groups groups_of(const struct diff_match_site *sites, const uint32_t *file, size_t n)
{
    struct groups g = {.order = arena_realloc(NULL, n, sizeof *g.order)};
    struct sorted s = {sites, file};
    for (size_t i = 0; i < n; i++) g.order[i] = (uint32_t)i;
    if (n) qsort_r(g.order, n, sizeof *g.order, order_sites_by_function, &s);
    for (size_t i = 0; i < n; i++) {
        uint32_t at = g.order[i];
        struct group *last = g.n ? &g.list[g.n - 1] : NULL;
        if (!last || group_order(last->file, last->function, file[at], sites[at].function) != 0) {
            last = ARENA_PUSH(g.list, g.n, g.cap);
            *last = (struct group){file[at], sites[at].function, &g.order[i], 0};
        }
        last->n++;
    }
    return g;
}

static bool is_group_untouched(const uint32_t *of, const struct group *g)
{
    return !ANY_OF(s, g->sites, g->n, of[*s] != DIFF_MATCH_ALONE);
}

/* The sum over the lines of one function of the similarity to the most similar line in the other, 0 … 1 each. */
static double likest_of_group(const struct diff_match_site *a, const struct group *f, const struct diff_match_site *b,
                              const struct group *g)
{
    double sum = 0;
    for (size_t i = 0; i < f->n; i++) {
        double most = 0;
        for (size_t j = 0; j < g->n; j++) {
            const struct diff_match_site *s = &a[f->sites[i]], *t = &b[g->sites[j]];
            double like = diff_match_calls(s, t) *
                          (are_sites_identical(s, t) ? 1 : 0.5 + 0.4 * size_ratio(mean_bytes(s), mean_bytes(t)));
            most = like > most ? like : most;
        }
        sum += most;
    }
    return sum;
}

static double functions_alike(const struct matcher *x, const struct group *f, const struct group *g)
{
    if (f->n * g->n > GROUP) return 0;
    double present = likest_of_group(x->a, f, x->b, g), back = likest_of_group(x->b, g, x->a, f);
    return (present + back) / (double)(f->n + g->n);
}

/* Functions without a partner that may be the same: of one name in another file, or of another name in the same file;
 * if there is exactly one such on each side. */
struct renaming {
    uint32_t a, b;
    double alike;
};

SORT_ORDER(more_alike, struct renaming, SORT_DOWN(x->alike, y->alike))

static void take_renamings(struct matcher *x, const struct groups *f, const struct groups *g, struct renaming *list,
                           size_t n)
{
    SORT(list, n, more_alike);
    for (size_t i = 0; i < n; i++) {
        size_t rivals = 0;
        const struct group *s = &f->list[list[i].a], *t = &g->list[list[i].b];
        for (size_t k = 0; k < n; k++) {
            rivals += k != i && list[k].alike == list[i].alike && (list[k].a == list[i].a || list[k].b == list[i].b) &&
                      is_group_untouched(x->m->of_a, &f->list[list[k].a]) &&
                      is_group_untouched(x->m->of_b, &g->list[list[k].b]);
        }
        if (!rivals && is_group_untouched(x->m->of_a, s) && is_group_untouched(x->m->of_b, t))
            align_groups(x, s, t, true);
    }
}

enum { RENAMINGS = 4096 };

/* Of two files that exist on one side each, a function of the same name is as good as any other. */
static bool may_be(const struct matcher *x, const struct group *s, const struct group *t, bool same_name)
{
    if (same_name) {
        return strcmp(s->function, t->function) == 0 && s->file != t->file &&
               (map_get(&x->files_b, s->file) != MAP_NEW || map_get(&x->files_a, t->file) != MAP_NEW);
    }
    return s->file == t->file && strcmp(t->function, "<module>") != 0;
}

static void pair_renamed_functions(struct matcher *x, const struct groups *f, const struct groups *g, bool same_name)
{
    struct renaming *list = NULL;
    size_t n = 0, cap = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const struct group *s = &f->list[i];
        if (!is_group_untouched(x->m->of_a, s) || strcmp(s->function, "<module>") == 0) continue;
        for (uint32_t j = 0; j < g->n && n < RENAMINGS; j++) {
            const struct group *t = &g->list[j];
            if (may_be(x, s, t, same_name) && is_group_untouched(x->m->of_b, t)) {
                double alike = functions_alike(x, s, t);
                if (alike >= (same_name ? renamed_calls / 2 : renamed_calls))
                    *ARENA_PUSH(list, n, cap) = (struct renaming){i, j, alike};
            }
        }
    }
    take_renamings(x, f, g, list, n);
    free(list);
}

static void pair_functions(struct matcher *x, const struct groups *f, const struct groups *g)
{
    for (size_t i = 0, j = 0; i < f->n && j < g->n;) {
        const struct group *s = &f->list[i], *t = &g->list[j];
        int order = group_order(s->file, s->function, t->file, t->function);
        if (order == 0) {
            align_groups(x, s, t, false);
            pair_identical(x, s, t);
            pair_in_place(x, s, t);
        }
        i += order <= 0;
        j += order >= 0;
    }
}

struct diff_match *diff_match_sites(const struct diff_match_site *a, size_t an, const struct diff_match_site *b,
                                    size_t bn)
{
    struct diff_match *m = ARENA_NEW(struct diff_match, .of_a = arena_realloc(NULL, an, sizeof *m->of_a),
                                     .of_b = arena_realloc(NULL, bn, sizeof *m->of_b),
                                     .file_a = arena_realloc(NULL, an, sizeof *m->file_a),
                                     .file_b = arena_realloc(NULL, bn, sizeof *m->file_b),
                                     .how_a = arena_realloc(NULL, an, 1), .how_b = arena_realloc(NULL, bn, 1));
    memset(m->of_a, 0xff, an * sizeof *m->of_a);
    memset(m->of_b, 0xff, bn * sizeof *m->of_b);
    memset(m->how_a, 0, an);
    memset(m->how_b, 0, bn);
    struct matcher x = {.a = a, .b = b, .m = m};
    diff_match_paths(m, a, an, b, bn);
    for (size_t i = 0; i < an; i++) *map_at(&x.files_a, m->file_a[i]) = 1;
    for (size_t j = 0; j < bn; j++) *map_at(&x.files_b, m->file_b[j]) = 1;
    struct groups f = groups_of(a, m->file_a, an), g = groups_of(b, m->file_b, bn);
    pair_functions(&x, &f, &g);
    pair_renamed_functions(&x, &f, &g, true);
    pair_renamed_functions(&x, &f, &g, false);
    ARENA_RELEASE(f.order, f.list, g.order, g.list);
    MAP_RELEASE(&x.files_a, &x.files_b);
    return m;
}

void diff_match_free(struct diff_match *match)
{
    if (match)
        ARENA_RELEASE(match->of_a, match->of_b, match->file_a, match->file_b, match->how_a, match->how_b, match->files,
                      match);
}
