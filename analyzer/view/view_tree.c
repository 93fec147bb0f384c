#include "analyzer/view/view_tree.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/draw/json_site.h"
#include "analyzer/base/units.h"
#include "analyzer/view/viewing.h"

#define WEIGHT 11 /* columns: "1023.99 MiB" */
#define SHARE 6
#define LABEL_LEAST 24
#define BAR_MOST 16
#define NARROW 72 /* narrower views have no bar, so that the calls have room */

struct drawing {
    const struct draw_text *v;
    const struct profile *p;
    const struct view_branch_limits *limits;
    int64_t whole;
    int bar;                      /* its columns, 0: there is no room */
    bool last[RUN_DEPTH_MAX + 2]; /* by row above: it is the last of its siblings */
};

static void print_tree_bar(const struct drawing *d, int64_t weight)
{
    static const char *const part[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const struct terminal *t = &d->v->term;
    int eighths = d->whole > 0 ? (int)((double)weight / (double)d->whole * d->bar * 8 + 0.5) : 0;
    int used = 0;

    eighths = eighths < 1 && weight > 0 ? 1 : eighths > d->bar * 8 ? d->bar * 8 : eighths;
    fputs(terminal_style(t, TERMINAL_CYAN), d->v->out);
    if (t->utf8) {
        for (; used < eighths / 8; used++) fputs("█", d->v->out);
        fputs(part[eighths % 8], d->v->out);
        used += eighths % 8 > 0;
    } else {
        for (; used < (eighths + 4) / 8; used++) fputc('#', d->v->out);
    }
    fprintf(d->v->out, "%s%*s", terminal_style(t, TERMINAL_PLAIN), d->bar - used + 2, "");
}

static void pad_left(FILE *out, const char *text, int columns)
{
    fprintf(out, "%*s%s", columns - terminal_columns(text), "", text);
}

/* The lines to the left of a row; for a deep one only the nearest. Returns the columns taken. */
static int print_tree_lines(const struct drawing *d, unsigned depth, int room)
{
    const struct draw_text *v = d->v;
    bool utf8 = v->term.utf8;
    int most = (room - LABEL_LEAST) / 2, columns = 0;
    unsigned from = 1;

    if (!depth) return 0;
    most = most < 2 ? 2 : most;
    fputs(terminal_style(&v->term, TERMINAL_DIM), v->out);
    if (depth > (unsigned)most) {
        from = depth - (unsigned)most + 2;
        fputs(utf8 ? "…  " : "...", v->out);
        columns = 3;
    }
    for (unsigned i = from; i < depth; i++) fputs(d->last[i] ? "  " : utf8 ? "│ " : "| ", v->out);
    fprintf(v->out, "%s%s", d->last[depth] ? (utf8 ? "└ " : "`-") : (utf8 ? "├ " : "|-"),
            terminal_style(&v->term, TERMINAL_PLAIN));
    return columns + 2 * (int)(depth - from + 1);
}

static void print_tree_figures(const struct drawing *d, int64_t weight)
{
    const struct draw_text *v = d->v;
    char text[UNITS_TEXT];

    pad_left(v->out, view_profile_weight(d->p, weight, text), WEIGHT);
    pad_left(v->out, units_format_share(text, d->whole ? (double)weight / (double)d->whole : 0), SHARE + 2);
    fputs("  ", v->out);
    if (d->bar) print_tree_bar(d, weight);
}

static int tree_row_room(const struct drawing *d)
{
    return d->v->term.width - WEIGHT - SHARE - 4 - (d->bar ? d->bar + 2 : 0);
}

static void rest_row(struct drawing *d, unsigned depth, int64_t weight, const char *text)
{
    print_tree_figures(d, weight);
    int room = tree_row_room(d), at = print_tree_lines(d, depth, room);

    fprintf(d->v->out, "%s%.*s%s\n", terminal_style(&d->v->term, TERMINAL_DIM), (int)terminal_fit(text, room - at),
            text, terminal_style(&d->v->term, TERMINAL_PLAIN));
}

static void call_row(struct drawing *d, unsigned depth, const struct view_branch *b)
{
    const struct terminal *t = &d->v->term;
    char label[2048];
    bool own = view_branch_kind_of(b) == BRANCH_OWN;

    print_tree_figures(d, b->total);
    int room = tree_row_room(d), at = print_tree_lines(d, depth, room);
    view_branch_label(d->v, b, label, sizeof label, room - at);
    fprintf(d->v->out, "%s%s%s\n", own ? "" : terminal_style(t, TERMINAL_DIM), label,
            own ? "" : terminal_style(t, TERMINAL_PLAIN));
}

static void more_row(struct drawing *d, unsigned depth, const struct view_branch *b, size_t shown, int64_t rest)
{
    char text[96];
    size_t n = b->n - shown;

    snprintf(text, sizeof text, "%s more call%s", UNITS_COUNT(n), n == 1 ? "" : "s");
    rest_row(d, depth, rest, text);
}

/* No deeper than RUN_DEPTH_MAX, with little stack. */
static void print_tree_rows(struct drawing *d, const struct view_branch *b, unsigned depth)
{
    int64_t rest;
    size_t shown = view_branch_shown(b, d->limits, &rest);
    bool more = shown<b->n, here = b->self> 0 && b->self >= d->limits->least && b->n > 0;

    if (b->first->frame) call_row(d, depth, b);
    unsigned below = b->first->frame ? depth + 1 : depth;
    if (d->limits->depth && below >= d->limits->depth) return;
    for (size_t i = 0; i < shown; i++) {
        d->last[below] = i + 1 == shown && !more && !here;
        print_tree_rows(d, b->children[i], below);
    }
    d->last[below] = !here;
    if (more) more_row(d, below, b, shown, rest);
    d->last[below] = true;
    if (here) rest_row(d, below, b->self, "(that line itself)");
}

static int bar_columns(int width)
{
    int bar = (width - WEIGHT - SHARE - 6) / 6;

    return width < NARROW ? 0 : bar > BAR_MOST ? BAR_MOST : bar;
}

void view_tree(const struct draw_text *v, const struct profile *p, const struct profile_call_tree *tree,
               const struct view_branch_limits *limits)
{
    struct drawing *d = arena_realloc(NULL, 1, sizeof *d);
    struct arena arena = {0};

    *d = (struct drawing){
        .v = v, .p = p, .limits = limits, .whole = tree->root->total, .bar = bar_columns(v->term.width)};
    fputc('\n', v->out);
    print_tree_rows(d, view_branch_build(&arena, tree, limits->full), 0);
    arena_free(&arena);
    free(d);
}

static json_t *node_json(const struct profile *p, const struct profile_call_node *n, json_int_t parent)
{
    json_t *o = json_object();

    set_json(o, "parent", parent < 0 ? NULL : json_integer(parent));
    set_json(o, "depth", json_integer(n->depth));
    set_json(o, "frame", n->frame ? draw_json_frame(n->frame) : NULL);
    set_json(o, "total", view_profile_weight_json(p, n->total));
    set_json(o, "self", view_profile_weight_json(p, n->self));
    set_count(o, "count", n->total_count);
    set_count(o, "self_count", n->self_count);
    return o;
}

json_t *view_tree_json(const struct profile *p, const struct profile_call_tree *tree,
                       const struct view_branch_limits *limits)
{
    json_t *list = json_array();
    json_int_t *number = arena_realloc(NULL, tree->depth + 2, sizeof *number); /* by depth */
    unsigned left_out = UINT32_MAX;                                            /* calls below that depth are left out */

    for (const struct profile_call_node *n = tree->root; n; n = profile_call_next(n)) {
        if (n->depth > left_out) continue;
        left_out = UINT32_MAX;
        if (n->total < limits->least || (limits->depth && n->depth > limits->depth)) {
            left_out = n->depth;
            continue;
        }
        number[n->depth] = (json_int_t)json_array_size(list);
        json_array_append_new(list, node_json(p, n, n->depth ? number[n->depth - 1] : -1));
    }
    free(number);
    return list;
}
