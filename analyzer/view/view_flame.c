/* A flame graph that hangs from its root (an icicle), in the terminal's own cells. */
#include "analyzer/base/arena.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_tree.h"
#include "analyzer/view/viewing.h"

#define SHARE_LEAST 8 /* columns that a cell needs for its share */

struct cell {
    const struct view_branch *b;
    double start; /* where it begins, as a share of the whole */
};

struct flame {
    const struct draw_text *v;
    const struct profile *p;
    const struct view_branch_limits *limits;
    double whole;
    int width;
    struct cell *row, *next;
    size_t row_n, row_cap, next_n, next_cap;
};

/* Colours distinct enough for neighbours, with readable dark text on each. */
static const struct palette {
    const char *what;
    int rich[6], plain; /* of 256, of 8 */
} palettes[] = {
    [BRANCH_OWN] = {"your code", {214, 215, 220, 208, 221, 179}, 43},
    [BRANCH_LIBRARY] = {"libraries", {110, 111, 117, 74, 146, 153}, 46},
    [BRANCH_NATIVE] = {"C and C++", {108, 114, 150, 72, 151, 115}, 42},
    [BRANCH_OTHER] = {"other", {250, 248, 252, 246, 251, 249}, 47},
};

static const char *cell_background(const struct terminal *t, enum view_branch_kind kind, unsigned which, char *out)
{
    if (t->rich) return terminal_background(t, palettes[kind].rich[which % 6], out);
    if (t->colour)
        snprintf(out, TERMINAL_SEQUENCE, "\033[%d;30m", palettes[kind].plain);
    else
        out[0] = 0;
    return out;
}

static unsigned hash_function(const struct run_frame *f)
{
    uint64_t h = f ? map_hash((uint64_t)f->line << 1 | f->kind) : 0;

    for (const char *p = f && f->function ? f->function : ""; *p; p++) h = map_hash(h ^ (unsigned char)*p);
    return (unsigned)(h >> 7);
}

static int flame_column(const struct flame *f, double share)
{
    return (int)(share * f->width + 0.5);
}

static double flame_share_of(const struct flame *f, const struct view_branch *b)
{
    return f->whole > 0 ? (double)b->total / f->whole : 0;
}

/* Its name, and its share if that fits; exactly `columns` wide. */
static void print_flame_label(const struct flame *f, const struct cell *c, int columns)
{
    char name[512] = "";

    if (!c->b->first->frame)
        text_put(name, sizeof name, "%.*s", (int)terminal_fit("all", columns), "all");
    else if (columns >= 2)
        view_branch_name(f->v, c->b, name, sizeof name, columns);
    int used = terminal_columns(name);
    fputs(name, f->v->out);
    if (columns - used >= SHARE_LEAST) used += fprintf(f->v->out, "  %s", UNITS_SHARE(flame_share_of(f, c->b)));
    fprintf(f->v->out, "%*s", columns - used, "");
}

static void print_flame_cell(const struct flame *f, const struct cell *c, int columns)
{
    const struct terminal *t = &f->v->term;
    char colour[TERMINAL_SEQUENCE];

    if (!t->colour) {
        fputs(t->utf8 ? "│" : "|", f->v->out);
        print_flame_label(f, c, columns - 1);
        return;
    }
    enum view_branch_kind kind = c->b->first->frame ? view_branch_kind_of(c->b) : BRANCH_OTHER;
    fputs(cell_background(t, kind, hash_function(c->b->end->frame), colour), f->v->out);
    print_flame_label(f, c, columns > 1 ? columns - 1 : 1);
    fputs(terminal_style(t, TERMINAL_PLAIN), f->v->out);
    if (columns > 1) fputc(' ', f->v->out); /* between neighbours */
}

static void print_flame_row(const struct flame *f)
{
    int at = 0;

    EACH_IN (c, f->row) {
        int from = flame_column(f, c->start), to = flame_column(f, c->start + flame_share_of(f, c->b));
        fprintf(f->v->out, "%*s", from - at, "");
        print_flame_cell(f, c, to - from);
        at = to;
    }
    fputc('\n', f->v->out);
}

/* The calls below the row's cells, as far as they are wide enough to be visible. */
static void descend_flame(struct flame *f)
{
    f->next_n = 0;
    for (size_t i = 0; i < f->row_n; i++) {
        const struct view_branch *b = f->row[i].b;
        double start = f->row[i].start;
        int64_t rest;
        size_t shown = view_branch_shown(b, f->limits, &rest);
        for (size_t k = 0; k < shown; k++) {
            double share = flame_share_of(f, b->children[k]);
            if (flame_column(f, start + share) > flame_column(f, start))
                *ARENA_ADD(f->next) = (struct cell){b->children[k], start};
            start += share;
        }
    }
    struct cell *row = f->row;
    size_t cap = f->row_cap;
    f->row = f->next;
    f->row_n = f->next_n;
    f->row_cap = f->next_cap;
    f->next = row;
    f->next_cap = cap;
}

static void print_flame_legend(const struct flame *f)
{
    const struct terminal *t = &f->v->term;
    char colour[TERMINAL_SEQUENCE];

    if (!t->colour) return;
    fputc('\n', f->v->out);
    for (size_t i = 0; i < BRANCH_OTHER; i++)
        fprintf(f->v->out, "%s%s %s %s", i ? "  " : "", cell_background(t, (enum view_branch_kind)i, 0, colour),
                terminal_style(t, TERMINAL_PLAIN), palettes[i].what);
    fputc('\n', f->v->out);
}

static void plain_row(const struct flame *f, const struct view_branch *b, unsigned depth)
{
    char weight[UNITS_TEXT], text[2048];

    fprintf(f->v->out, "%11s  %6s  %*s%s\n", view_profile_weight(f->p, b->total, weight),
            UNITS_SHARE(flame_share_of(f, b)), (int)(2 * depth), "",
            view_branch_label(f->v, b, text, sizeof text, f->v->term.width - 21 - (int)(2 * depth)));
}

static void print_plain_branch(const struct flame *f, const struct view_branch *b, unsigned depth)
{
    int64_t rest;
    size_t shown = view_branch_shown(b, f->limits, &rest);

    if (b->first->frame) plain_row(f, b, depth++);
    if (f->limits->depth && depth >= f->limits->depth) return;
    for (size_t i = 0; i < shown; i++) print_plain_branch(f, b->children[i], depth);
}

void view_flame(const struct draw_text *v, const struct profile *p, const struct profile_call_tree *tree,
                const struct view_branch_limits *limits)
{
    struct flame f = {.v = v, .p = p, .limits = limits, .whole = (double)tree->root->total, .width = v->term.width};
    unsigned depth = 0;
    struct arena arena = {0};
    const struct view_branch *root = view_branch_build(&arena, tree, limits->full);

    fputc('\n', v->out);
    if (!v->term.terminal && !v->term.colour) {
        print_plain_branch(&f, root, 0);
        arena_free(&arena);
        return;
    }
    *ARENA_ADD(f.row) = (struct cell){root, 0};
    while (f.row_n) {
        print_flame_row(&f);
        if (limits->depth && depth++ >= limits->depth) break;
        descend_flame(&f);
    }
    print_flame_legend(&f);
    ARENA_RELEASE(f.row, f.next);
    arena_free(&arena);
}
