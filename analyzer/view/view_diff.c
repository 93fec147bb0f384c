/* A comparison for a terminal: the sentence, what changed, and the other figures of both runs. */
#include "analyzer/view/view_diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/base/sort.h"
#include "analyzer/view/view_text_parts.h"

enum { CELLS = 6, LINE = 1024, GAP = 2, WIDE = 100, NARROW = 30, LEAST_FUNCTION = 12 };

/* A table with aligned numbers, whose last cell takes the rest of the line. */
struct line {
    char cell[CELLS][LINE];
    enum terminal_style style[CELLS];
    bool rule; /* a line above */
};
struct grid {
    const char *head[CELLS]; /* NULL ends the columns */
    bool left[CELLS];
    struct line *lines;
    size_t n, cap;
};

static int count_grid_columns(const struct grid *g)
{
    int n = 0;
    while (n < CELLS && g->head[n]) n++;
    return n;
}

static struct line *add_grid_line(struct grid *g)
{
    struct line *l = ARENA_PUSH(g->lines, g->n, g->cap);
    memset(l, 0, sizeof *l);
    return l;
}

static void print_cell(const struct view_diff *v, const char *text, int width, bool left, enum terminal_style style,
                       bool more)
{
    char cut[LINE];
    text_elide(cut, sizeof cut, text, width, v->term.utf8);
    const int pad = width - terminal_columns(cut);
    fprintf(v->out, "%*s%s%s%s%*s", left ? 0 : pad, "", terminal_style(&v->term, style), cut,
            style == TERMINAL_PLAIN ? "" : terminal_style(&v->term, TERMINAL_PLAIN), more ? (left ? pad : 0) + GAP : 0,
            "");
}

static void print_grid_head(const struct view_diff *v, const struct grid *g, const int *width, int n)
{
    bool last = *g->head[n - 1];
    fprintf(v->out, "%*s", INDENT, "");
    for (int c = 0; c < n - 1; c++) print_cell(v, g->head[c], width[c], g->left[c], TERMINAL_DIM, last || c < n - 2);
    fprintf(v->out, "%s%s%s\n", terminal_style(&v->term, TERMINAL_DIM), g->head[n - 1],
            terminal_style(&v->term, TERMINAL_PLAIN));
}

static const char *diff_arrow(const struct view_diff *v)
{
    return v->term.utf8 ? "→" : "->";
}

/* "folder/train.py:41" without its folder, if it is wider than `room`. */
static void fit_place(const struct view_diff *v, char *out, size_t size, const char *place, int room)
{
    const char *slash = strrchr(place, '/');
    text_put(out, size, "%s", !slash || terminal_columns(place) <= room ? place : slash + 1);
}

/* Shortens "train.py:41 → folder/train_2.py:47 step" to `room` columns: first the function, then the folder; a second
 * call site goes to the next line. A file and its line stay whole unless they are wider than the terminal. */
static void fit_location(const struct view_diff *v, char *out, size_t size, const char *text, int room)
{
    char location[LINE], place[LINE], moved[16];
    const char *gap = strstr(text, "  ");
    text_put(moved, sizeof moved, " %s ", diff_arrow(v));
    text_put(location, sizeof location, "%.*s", gap ? (int)(gap - text) : LINE - 1, text);
    char *second = strstr(location, moved), *last = second ? second + strlen(moved) : location;
    const int before = terminal_columns(location) - terminal_columns(last);
    fit_place(v, place, sizeof place, last, room - before);
    const bool broken = second && before + terminal_columns(place) > room;
    if (broken) fit_place(v, place, sizeof place, last, room);
    text_put(out, size, "%.*s", broken ? (int)(last - location) - 1 : (int)(last - location), location);
    if (broken) text_put(out + strlen(out), size - strlen(out), "\n%*s", 2 * INDENT, "");
    const int left = room - (broken ? 0 : before) - terminal_columns(place);
    char function[LINE] = "", backward[32];
    text_put(backward, sizeof backward, "backward %s ", diff_arrow(v));
    const char *name = gap ? gap + GAP : "";
    if (terminal_columns(name) > left - GAP && strncmp(name, backward, strlen(backward)) == 0) name += strlen(backward);
    if (left - GAP >= LEAST_FUNCTION || terminal_columns(name) <= left - GAP)
        text_name(function, sizeof function, name, left - GAP, v->term.utf8);
    text_put(out + strlen(out), size - strlen(out), "%s%s%s", place, *function ? "  " : "", function);
}

static const char peaks_note[] = "  (in "; /* of a row that is not in the peaks of all ranks */

/* The columns of the call sites in "train.py:41 → folder/train_2.py:47 step", without folder and function. */
static int least_text_columns(const char *text)
{
    char location[LINE];
    const char *gap = strstr(text, "  ");
    text_put(location, sizeof location, "%.*s", gap ? (int)(gap - text) : LINE - 1, text);
    const char *slash = strrchr(location, '/'), *space = strrchr(location, ' ');
    const int folder = slash && (!space || slash > space) ? (int)(slash - (space ? space : location)) : 0;
    return terminal_columns(location) - folder;
}

/* Does the last cell not fit beside the figures, so that it gets its own line? */
static bool has_own_line(const struct view_diff *v, const char *text, int room)
{
    const int least = v->diff->wish.by == DIFF_LINE || v->diff->wish.by == DIFF_FILE ? least_text_columns(text) : 0;
    return *text && terminal_columns(text) > room && (room < NARROW || least > room);
}

static void print_last_cell(const struct view_diff *v, const struct line *l, int n, int room)
{
    char cut[LINE], text[LINE];
    text_put(text, LINE, "%s", l->cell[n - 1]);
    if (has_own_line(v, text, room)) {
        fprintf(v->out, "\n%*s", 2 * INDENT, "");
        room = v->term.width - 2 * INDENT;
    }
    char *note = strstr(text, peaks_note);
    if (note && terminal_columns(text) > room) *note = 0;
    if (v->diff->wish.by == DIFF_LINE && terminal_columns(text) > room)
        fit_location(v, cut, sizeof cut, text, room);
    else
        text_elide(cut, sizeof cut, text, room, v->term.utf8);
    fprintf(v->out, "%s%s%s\n", terminal_style(&v->term, l->style[n - 1]), cut,
            l->style[n - 1] == TERMINAL_PLAIN ? "" : terminal_style(&v->term, TERMINAL_PLAIN));
}

enum { LEAST_LAST = 10, LEAST_NAME = 26 }; /* columns of the last cell, of a name in the first */

static void grid_print(const struct view_diff *v, struct grid *g)
{
    int width[CELLS] = {0}, n = count_grid_columns(g), used = INDENT;
    for (int c = 0; c < n - 1; c++) {
        width[c] = terminal_columns(g->head[c]);
        for (size_t i = 0; i < g->n; i++) {
            int w = terminal_columns(g->lines[i].cell[c]);
            width[c] = w > width[c] ? w : width[c];
        }
        used += width[c] + GAP;
    }
    if (g->left[0] && used > v->term.width - LEAST_LAST) { /* names of ranges can be long */
        const int over = used - v->term.width + LEAST_LAST, most = width[0] > LEAST_NAME ? width[0] - LEAST_NAME : 0;
        width[0] -= over < most ? over : most;
        used -= over < most ? over : most;
    }
    const int room = v->term.width - used;
    print_grid_head(v, g, width, n);
    EACH (l, g->lines, g->n) {
        for (int c = 0; l->rule && c < n - 1 && !g->left[c]; c++) {
            static const char dashes[] = "----------------------------------------";
            fprintf(v->out, "%*s%.*s", c ? GAP : INDENT, "", width[c] < 40 ? width[c] : 40, dashes);
        }
        fprintf(v->out, "%s%*s", l->rule ? "\n" : "", INDENT, "");
        const bool beside = *l->cell[n - 1] && !has_own_line(v, l->cell[n - 1], room);
        int last = n - 2; /* no line ends with blanks */
        while (!beside && last > 0 && !*l->cell[last]) last--;
        for (int c = 0; c <= last; c++)
            print_cell(v, l->cell[c], width[c], g->left[c], l->style[c], beside || c < last);
        print_last_cell(v, l, n, room);
    }
    free(g->lines);
    g->lines = NULL;
}

static void print_wrapped_diff(const struct view_diff *v, int indent, const char *mark, const char *text)
{
    const int hang = indent + terminal_columns(mark);
    fprintf(v->out, "%*s%s", indent, "", mark);
    text_wrap(v->out, &v->term, hang, hang, true, text);
}

static bool is_diff_in_time(const struct view_diff *v)
{
    return strcmp(v->diff->unit, "ns") == 0;
}

static char *diff_weight_text(const struct view_diff *v, char *out, int64_t value)
{
    return is_diff_in_time(v) ? units_format_seconds(out, (double)value / 1e9)
                              : units_format_bytes(out, (uint64_t)(value < 0 ? 0 : value));
}

static void change_text(const struct view_diff *v, char *out, size_t size, int64_t change)
{
    char text[UNITS_TEXT];
    diff_weight_text(v, text, change < 0 ? -change : change);
    snprintf(out, size, "%s%s", change < 0 ? "-" : change > 0 ? "+" : "", text);
}

static void path_text(const struct view_diff *v, int side, char *out, size_t size, const char *path)
{
    const struct result_report *r = v->side[side].report;
    const int room = v->term.width - (v->term.width < WIDE ? 56 : 80); /* beside the numbers and a function */
    const int name = terminal_columns(path ? basename(path) : "?");    /* is never cut */
    text_path(out, size, path ? path : "?", r->processes_n ? r->processes[0].cwd : NULL, room > name ? room : name,
              v->term.utf8);
}

/* "train.py:41" */
static void format_where(const struct view_diff *v, int side, const struct result_site *s, char *out, size_t size)
{
    char path[LINE / 2], file[LINE / 2];
    if (!s->file && s->function) { /* it is known by its name only */
        *out = 0;
        return;
    }
    path_text(v, side, path, sizeof path, s->file);
    text_put(file, sizeof file, "%s", s->kind == GS_FRAME_NATIVE && s->line <= 0 ? basename(path) : path);
    if (s->line > 0)
        text_put(out, size, "%s:%d", file, s->line);
    else if (s->function)
        text_put(out, size, "%s", file);
    else
        text_put(out, size, "%s+0x%llx", file, (unsigned long long)s->offset);
}

static void function_text(const struct view_diff *v, const struct result_site *s, char *out, size_t size)
{
    *out = 0;
    if (s->operation) {
        char name[LINE / 2];
        terminal_clean(name, sizeof name, s->operation, v->term.utf8);
        text_put(out, size, "backward %s %s", diff_arrow(v), name);
    } else if (s->function) {
        text_function(out, size, s->function, 200, v->term.utf8);
    }
}

static const char *file_name(const char *path)
{
    return path ? basename(path) : "";
}

/* "train.py:41 → 47 step"; a file with another name is also named: "v1.py:41 → v2.py:47 step". */
static void diff_line_text(const struct view_diff *v, const struct diff_row *r, char *out, size_t size)
{
    char place[LINE], function[LINE], old[LINE] = "", before[LINE] = "", tail[32] = "";
    const struct result_site *s = &r->site[r->present[DIFF_AFTER]], *b = &r->site[DIFF_BEFORE];
    format_where(v, r->present[DIFF_AFTER], s, place, sizeof place);
    function_text(v, s, function, sizeof function);
    if (r->present[0] && r->present[1]) {
        function_text(v, b, old, sizeof old);
        if (strcmp(file_name(b->file), file_name(s->file)) != 0) {
            struct result_site short_site = *b;
            short_site.file = file_name(b->file);
            format_where(v, DIFF_BEFORE, &short_site, before, sizeof before);
            text_put(before + strlen(before), sizeof before - strlen(before), " %s ", diff_arrow(v));
        } else if (b->line != s->line && s->line > 0) {
            char *colon = strrchr(place, ':');
            snprintf(tail, sizeof tail, ":%d %s %d", b->line, diff_arrow(v), s->line);
            *(colon ? colon : place + strlen(place)) = 0;
        }
    }
    bool renamed = *old && strcmp(old, function) != 0;
    text_put(out, size, "%s%s%s%s%s%s%s%s%s", before, place, tail, *place ? "  " : "", renamed ? old : "",
             renamed ? " " : "", renamed ? diff_arrow(v) : "", renamed ? " " : "", function);
}

static void diff_cell_text(const struct view_diff *v, const struct diff_row *r, char *out, size_t size)
{
    const struct result_site *s = &r->site[r->present[DIFF_AFTER]];
    char old[LINE];
    if (v->diff->wish.by == DIFF_CATEGORY) {
        text_put(out, size, "%s", result_category_text(r->category));
    } else if (v->diff->wish.by == DIFF_OWNER) {
        terminal_clean(out, size, r->name, v->term.utf8);
    } else if (!s->known) {
        text_put(out, size, "(no stack recorded)");
    } else if (s->exit) {
        text_put(out, size, "at interpreter exit");
    } else if (v->diff->wish.by == DIFF_LINE) {
        diff_line_text(v, r, out, size);
    } else if (v->diff->wish.by == DIFF_FILE) {
        path_text(v, r->present[DIFF_AFTER], out, size, s->file);
    } else {
        char path[LINE / 2];
        function_text(v, s, old, sizeof old);
        path_text(v, r->present[DIFF_AFTER], path, sizeof path, s->file);
        text_put(out, size, "%s  %s", *old ? old : "?", path);
    }
}

static void counts_text(const struct view_diff *v, const struct diff_sum *s, char *out, size_t size)
{
    char after[UNITS_TEXT];
    units_format_count(after, s->count[1]);
    if (s->count[0] == s->count[1])
        text_put(out, size, "%s", after);
    else
        text_put(out, size, "%s %s %s", UNITS_COUNT(s->count[0]), diff_arrow(v), after);
}

static struct line *sum_line(const struct view_diff *v, struct grid *g, const struct diff_sum *s)
{
    struct line *l = add_grid_line(g);
    int64_t change = diff_change(s);
    change_text(v, l->cell[0], LINE, change);
    diff_weight_text(v, l->cell[1], s->weight[0]);
    diff_weight_text(v, l->cell[2], s->weight[1]);
    l->style[0] = change > 0 ? TERMINAL_RED : change < 0 ? TERMINAL_GREEN : TERMINAL_DIM;
    return l;
}

static bool is_diff_wide(const struct view_diff *v)
{
    return v->term.width >= WIDE;
}

/* The cell that names what the row is about. */
static char *last_of(const struct view_diff *v, struct line *l, bool category)
{
    return l->cell[is_diff_wide(v) ? 4 + category : 3];
}

static void rest_line(const struct view_diff *v, struct grid *g, const struct diff_sum *s, bool category,
                      const char *one, const char *many)
{
    if (!s->rows) return;
    struct line *l = sum_line(v, g, s);
    char *last = last_of(v, l, category);
    text_put(last, LINE, "%s %s", UNITS_COUNT(s->rows), s->rows == 1 ? one : many);
    for (int c = 0; c < CELLS; c++) l->style[c] = c ? TERMINAL_DIM : l->style[c];
}

static bool any_category(const struct diff *d)
{
    return d->categories_n > 0 && d->wish.by != DIFF_CATEGORY;
}

static void format_in_units(const struct view_diff *v, const struct diff_row *r, char *text)
{
    const struct diff *d = v->diff;
    size_t n = strlen(text);
    if (d->units_n > 1 && r->units && r->units < d->units_n)
        text_put(text + n, LINE - n, "%s%u of %zu%s)", peaks_note, r->units, d->units_n,
                 d->wish.what == PROFILE_PEAK ? " peaks" : "");
}

static void view_rows(const struct view_diff *v)
{
    const struct diff *d = v->diff;
    bool category = any_category(d), with = is_diff_wide(v);
    struct grid g = {.head = {"change", "before", "after"}, .left = {false}};
    int at = 3;
    if (with)
        g.head[at++] = v->diff->wish.what == PROFILE_WAITS    ? "waits"
                       : v->diff->wish.what == PROFILE_COPIES ? "copies"
                                                              : "blocks";
    if (with && category) {
        g.left[at] = true;
        g.head[at++] = "category";
    }
    g.head[at] = "";
    EACH_IN (r, d->rows) {
        struct line *l = sum_line(v, &g, &r->sum);
        if (!r->present[0]) text_put(l->cell[1], LINE, "new");
        if (!r->present[1]) text_put(l->cell[2], LINE, "gone");
        if (with) counts_text(v, &r->sum, l->cell[3], LINE);
        if (with && category) {
            text_put(l->cell[4], LINE, "%s",
                     r->category == RESULT_CATEGORY_UNKNOWN ? "" : result_category_text(r->category));
        }
        diff_cell_text(v, r, last_of(v, l, category), LINE);
        format_in_units(v, r, last_of(v, l, category));
    }
    rest_line(v, &g, &d->smaller[1], category, "other that grew", "others that grew");
    rest_line(v, &g, &d->smaller[0], category, "other that shrank", "others that shrank");
    rest_line(v, &g, &d->same, category, "unchanged", "unchanged");
    struct line *l = sum_line(v, &g, &d->total);
    l->rule = true;
    l->style[1] = l->style[2] = TERMINAL_BOLD;
    text_put(last_of(v, l, category), LINE, "total");
    if (with) counts_text(v, &d->total, l->cell[3], LINE);
    fprintf(v->out, "\n%sBy %s%s\n", terminal_style(&v->term, TERMINAL_BOLD), diff_by_word(d->wish.by),
            terminal_style(&v->term, TERMINAL_PLAIN));
    grid_print(v, &g);
}

static void view_categories(const struct view_diff *v)
{
    const struct diff *d = v->diff;
    struct grid g = {.head = {"change", "before", "after", ""}};
    if (!any_category(d)) return;
    for (size_t i = 0; i < d->categories_n; i++) {
        text_put(sum_line(v, &g, &d->categories[i].sum)->cell[3], LINE, "%s",
                 result_category_text(d->categories[i].category));
    }
    fprintf(v->out, "\n%sBy category%s\n", terminal_style(&v->term, TERMINAL_BOLD),
            terminal_style(&v->term, TERMINAL_PLAIN));
    grid_print(v, &g);
}

static void format_unit_owner(const struct view_diff *v, int side, const struct diff_unit *u, char *out, size_t size)
{
    const struct result_report *r = v->side[side].report;
    if (u->process[side] == RUN_NONE) {
        *out = 0;
        return;
    }
    const struct run_process *p = &r->processes[u->process[side]];
    char gpu[32] = "";
    if (u->device[side] >= 0) snprintf(gpu, sizeof gpu, ", GPU %d", u->device[side]);
    if (p->rank >= 0)
        text_put(out, size, "rank %lld%s", (long long)p->rank, gpu);
    else
        text_put(out, size, "process %u%s", p->pid, gpu);
}

/* Processes are in order of rank if they have one: see diff.c. */
static int by_width(const void *x, const void *y)
{
    const struct diff_unit *a = *(const struct diff_unit *const *)x, *b = *(const struct diff_unit *const *)y;
    int64_t p = diff_change(&a->sum), q = diff_change(&b->sum);
    p = p < 0 ? -p : p;
    q = q < 0 ? -q : q;
    return SORT_DOWN(p, q) ?: SORT_UP(a, b);
}

static void view_units(const struct view_diff *v)
{
    const struct diff *d = v->diff;
    struct grid g = {.head = {"change", "before", "after", ""}};
    if (d->units_n < 2) return;
    const struct diff_unit **list = arena_realloc(NULL, d->units_n, sizeof *list);
    for (size_t i = 0; i < d->units_n; i++) list[i] = &d->units[i];
    SORT(list, d->units_n, by_width);
    size_t shown = d->units_n < v->top + 1 ? d->units_n : v->top;
    struct diff_sum rest = {0};
    for (size_t i = 0; i < d->units_n; i++) {
        char before[64], after[64];
        const struct diff_unit *u = list[i];
        if (i >= shown) {
            for (int k = 0; k < 2; k++) rest.weight[k] = arena_add_capped(rest.weight[k], u->sum.weight[k]);
            rest.rows++;
            continue;
        }
        struct line *l = sum_line(v, &g, &u->sum);
        format_unit_owner(v, DIFF_BEFORE, u, before, sizeof before);
        format_unit_owner(v, DIFF_AFTER, u, after, sizeof after);
        bool both = *before && *after && strcmp(before, after) != 0;
        text_put(l->cell[3], LINE, "%s%s%s%s%s", *before ? before : after, both ? " " : "", both ? diff_arrow(v) : "",
                 both ? " " : "", both ? after : "");
        if (!*before) text_put(l->cell[1], LINE, "new");
        if (!*after) text_put(l->cell[2], LINE, "gone");
    }
    rest_line(v, &g, &rest, false, "more", "more");
    for (size_t i = 0; i < g.n && rest.rows; i++) {
        bool last = i + 1 == g.n;
        if (last) text_put(g.lines[i].cell[3], LINE, "%zu more, --top %zu shows them", rest.rows, d->units_n);
    }
    fprintf(v->out, "\n%sBy process%s, paired %s\n", terminal_style(&v->term, TERMINAL_BOLD),
            terminal_style(&v->term, TERMINAL_PLAIN),
            d->by_rank ? "by rank" : "in order, because not all of them have their own rank");
    grid_print(v, &g);
    free(list);
}

static void diff_figure_text(const struct diff_figure *f, double value, const char *text, char *out)
{
    if (text)
        text_put(out, LINE, "%s", text);
    else if (!isfinite(value))
        text_put(out, LINE, "?");
    else if (strcmp(f->unit, "bytes") == 0)
        text_put(out, LINE, "%s", UNITS_BYTES(units_whole(value)));
    else if (strcmp(f->unit, "s") == 0)
        text_put(out, LINE, "%s", UNITS_SECONDS(value));
    else if (strcmp(f->key, "oom") == 0 && value <= 0)
        text_put(out, LINE, "no");
    else if (fabs(value - round(value)) < 0.005)
        text_put(out, LINE, "%s", UNITS_COUNT(units_whole(value)));
    else
        text_put(out, LINE, "%.2f", value);
}

static void figure_change(const struct diff_figure *f, struct line *l)
{
    double change = f->value[1] - f->value[0];
    char text[LINE], share[UNITS_TEXT] = "";
    if (!isfinite(change) || f->text[0] || f->text[1]) return;
    if (change == 0) {
        text_put(l->cell[3], LINE, "the same");
        l->style[3] = TERMINAL_DIM;
        return;
    }
    diff_figure_text(f, fabs(change), NULL, text);
    if (f->value[0] > 0 && fabs(change / f->value[0]) < 10) /* for larger changes a share is meaningless */
        units_format_share(share, fabs(change / f->value[0]));
    text_put(l->cell[3], LINE, "%s%s%s%s%s", change < 0 ? "-" : "+", text, *share ? " (" : "", share,
             *share ? ")" : "");
}

static void view_figures(const struct view_diff *v)
{
    const struct diff *d = v->diff;
    struct grid g = {.head = {"", "before", "after", "change"}, .left = {true}};
    EACH_IN (f, d->figures) {
        struct line *l = add_grid_line(&g);
        text_put(l->cell[0], LINE, "%s", f->name);
        diff_figure_text(f, f->value[0], f->text[0], l->cell[1]);
        diff_figure_text(f, f->value[1], f->text[1], l->cell[2]);
        figure_change(f, l);
    }
    fprintf(v->out, "\n%sSide by side%s%s\n", terminal_style(&v->term, TERMINAL_BOLD),
            terminal_style(&v->term, TERMINAL_PLAIN), d->units_n > 1 ? "; peaks are the highest of any process" : "");
    grid_print(v, &g);
}

static void view_scopes(const struct view_diff *v)
{
    const struct diff *d = v->diff;
    struct grid g = {.head = {"", "before", "after", "change"}, .left = {true}};
    const size_t shown = d->scopes_n < v->top ? d->scopes_n : v->top;
    EACH (s, d->scopes, shown) {
        const struct diff_figure f = {.key = "", .unit = "bytes", .value = {s->peak[0], s->peak[1]}};
        struct line *l = add_grid_line(&g);
        char name[128], domain[64];
        terminal_clean(name, sizeof name, s->name, v->term.utf8);
        terminal_clean(domain, sizeof domain, s->domain ? s->domain : "", v->term.utf8);
        text_put(l->cell[0], LINE, "%s%s%s", domain, *domain ? ": " : "", name);
        diff_figure_text(&f, f.value[0], s->count[0] ? NULL : "no range", l->cell[1]);
        diff_figure_text(&f, f.value[1], s->count[1] ? NULL : "no range", l->cell[2]);
        figure_change(&f, l);
    }
    if (!shown) return;
    fprintf(v->out, "\n%sPeaks of %s by %s range%s\n", terminal_style(&v->term, TERMINAL_BOLD),
            d->scopes_layer == RUN_SERIES_TENSOR ? "tensors" : "CUDA allocations",
            run_range_word(v->side[d->scopes[0].count[0] ? 0 : 1].run), terminal_style(&v->term, TERMINAL_PLAIN));
    grid_print(v, &g);
    if (shown < d->scopes_n) fprintf(v->out, "  %zu more, --top %zu shows them\n", d->scopes_n - shown, d->scopes_n);
}

static void view_pairings(const struct view_diff *v)
{
    const struct diff *d = v->diff;
    size_t libraries = 0, shown = 0;
    char line[4 * LINE];
    if (d->inferred) {
        text_put(line, sizeof line,
                 "%s: the line moved, or its function was renamed. gpuspy infers that it is the same from its calls "
                 "and its events",
                 diff_arrow(v));
        fputc('\n', v->out);
        print_wrapped_diff(v, INDENT, "", line);
    }
    EACH_IN (f, d->files) {
        libraries += f->path == DIFF_MATCH_PATH_LIBRARY;
        if (f->path == DIFF_MATCH_PATH_LIBRARY || shown >= 4) continue;
        char a[LINE], b[LINE];
        terminal_clean(a, sizeof a, f->a, v->term.utf8);
        terminal_clean(b, sizeof b, f->b, v->term.utf8);
        text_put(line, sizeof line, "%s is paired with %s: %s", b, a,
                 f->path == DIFF_MATCH_PATH_END    ? "the ends of their paths are the same"
                 : f->path == DIFF_MATCH_PATH_CELL ? "they have the same text"
                                                   : "they have functions in common");
        print_wrapped_diff(v, INDENT, "", line);
        shown++;
    }
    size_t others = d->files_n - libraries - shown;
    if (others) {
        fprintf(v->out, "  and %zu more file%s paired in this way: --json has them\n", others,
                others == 1 ? " was" : "s were");
    }
}

static void side_line(const struct view_diff *v, int side, const char *label)
{
    char path[LINE], command[LINE], whole[LINE];
    const struct result_report *r = v->side[side].report;
    const char *state = r->complete ? "" : "  (did not end normally)";
    text_path_here(whole, sizeof whole, v->path[side]);
    text_elide(path, sizeof path, whole, v->term.width - 8, v->term.utf8);
    int room = v->term.width - 8 - terminal_columns(path) - 2 - terminal_columns(state);
    terminal_clean(whole, sizeof whole, r->command ? r->command : "", v->term.utf8);
    text_command(command, sizeof command, whole, room, v->term.utf8);
    fprintf(v->out, "%s%-8s%s%s%s%s%s\n", terminal_style(&v->term, TERMINAL_DIM), label,
            terminal_style(&v->term, TERMINAL_PLAIN), path, room >= 12 ? "  " : "", room >= 12 ? command : "", state);
}

/* Does a command show by line that this figure became more? */
static bool has_next_diff(const struct diff *d, const struct diff_figure *f)
{
    static const double least = 0.01;
    return f->lines && d->wish.what == PROFILE_PEAK && d->wish.layer != RUN_SERIES_PINNED &&
           f->value[1] > f->value[0] * (1 + least);
}

/* Commands that show by line what else became more. Names that make several of them too wide are printed once. */
static void view_next_diffs(const struct view_diff *v)
{
    static const char *const names[] = {"before", "after"};
    char command[2 * 4096 + LINE], path[2][4096], variable[2][16];
    int n = 0, widest = 0;
    for (int i = 0; i < 2; i++) text_path_here(path[i], sizeof path[i], v->path[i]);
    EACH_IN (f, v->diff->figures) {
        if (!has_next_diff(v->diff, f)) continue;
        const int columns = terminal_columns(f->lines) + terminal_columns(path[0]) + terminal_columns(path[1]);
        widest = columns > widest ? columns : widest;
        n++;
    }
    if (!n) return;
    fprintf(v->out, "\n%sNext%s\n", terminal_style(&v->term, TERMINAL_BOLD), terminal_style(&v->term, TERMINAL_PLAIN));
    const bool named = n > 1 && terminal_columns("  gpuspy diff   ") + widest > v->term.width;
    for (int i = 0; named && i < 2; i++) {
        view_print_variable(v->out, names[i], path[i]);
        view_refer_to(variable[i], sizeof variable[i], names[i], path[i]);
    }
    EACH_IN (f, v->diff->figures) {
        if (!has_next_diff(v->diff, f)) continue;
        text_put(command, sizeof command, "gpuspy diff %s %s %s", f->lines, named ? variable[0] : path[0],
                 named ? variable[1] : path[1]);
        terminal_print_command(v->out, command, INDENT, v->term.width);
        fputc('\n', v->out);
    }
}

void view_diff(const struct view_diff *v)
{
    const struct diff *d = v->diff;
    fputs(terminal_style(&v->term, TERMINAL_BOLD), v->out);
    print_wrapped_diff(v, 0, "", d->verdict);
    fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
    if (d->more) print_wrapped_diff(v, 0, "", d->more);
    side_line(v, DIFF_BEFORE, "before");
    side_line(v, DIFF_AFTER, "after");
    for (size_t i = 0; i < d->notes_n; i++) print_wrapped_diff(v, 0, "! ", d->notes[i]);
    if (d->total.rows) {
        view_rows(v);
        view_categories(v);
        view_units(v);
    }
    view_figures(v);
    view_scopes(v);
    view_pairings(v);
    view_next_diffs(v);
}
