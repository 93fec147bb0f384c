#include "analyzer/view/view_timeline.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/draw/json_site.h"
#include "analyzer/json/json_parts.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"

#define LABEL 12 /* columns of the axis: "1023.99 MiB " */
#define ROWS_ONE 12
#define ROWS_FEW 8
#define ROWS_MANY 4 /* if there are several charts */
#define SCOPES 6    /* names of NVTX ranges below a chart */

/* The filling of a cell: a category; memory that is held but in no tensor; nothing. */
enum { HELD = RESULT_CATEGORIES_N, EMPTY, FILLS };

static const struct paint {
    int rich, plain; /* of 256 colours, of 8 */
} paints[FILLS] = {
    [RESULT_CATEGORY_PARAMETERS] = {33, 34},
    [RESULT_CATEGORY_GRADIENTS] = {208, 31},
    [RESULT_CATEGORY_OPTIMIZER_STATE] = {134, 35},
    [RESULT_CATEGORY_ACTIVATIONS] = {71, 32},
    [RESULT_CATEGORY_INPUTS] = {44, 36},
    [RESULT_CATEGORY_TEMPORARIES] = {220, 33},
    [RESULT_CATEGORY_WORKSPACES] = {181, 37},
    [RESULT_CATEGORY_KV_CACHE] = {30, 36},
    [RESULT_CATEGORY_UNKNOWN] = {246, 90},
    [HELD] = {240, 90},
    [EMPTY] = {0, 0},
};

struct chart {
    const struct draw_text *v;
    const struct profile_courses *c;
    const struct profile_course *front, *back; /* back: all CUDA allocations, NULL none */
    bool stacked;
    int64_t top;
    int rows;
    int (*ends)[FILLS]; /* by column: where each filling ends, in eighths of a row */
};

size_t view_timeline_columns(const struct terminal *term)
{
    int columns = term->width - LABEL - 1;

    return (size_t)(columns < 10 ? 10 : columns);
}

static int bytes_in_eighths(const struct chart *k, int64_t bytes)
{
    return (int)((double)bytes / (double)k->top * k->rows * 8 + 0.5);
}

static void fill_chart_column(struct chart *k, size_t x)
{
    const struct profile_course_column *f = &k->front->columns[x], *b = k->back ? &k->back->columns[x] : NULL;
    int64_t sum = 0, held = b && b->known && b->high > f->high ? b->high : f->high;
    int *end = k->ends[x];

    for (int i = 0; i < RESULT_CATEGORIES_N; i++) {
        sum += !f->known ? 0 : k->stacked ? f->by_category[i] : i == 0 ? f->high : 0;
        end[i] = bytes_in_eighths(k, sum);
    }
    if (sum > 0 && end[RESULT_CATEGORIES_N - 1] == 0)
        end[RESULT_CATEGORIES_N - 1] = 1; /* small amounts remain visible */
    end[HELD] = b || f->known ? bytes_in_eighths(k, held) : 0;
    if (end[HELD] < end[RESULT_CATEGORIES_N - 1]) end[HELD] = end[RESULT_CATEGORIES_N - 1];
    end[EMPTY] = k->rows * 8 + 8;
}

static int filling_at(const int *end, int eighth)
{
    int i = 0;

    while (i < EMPTY && end[i] <= eighth) i++;
    return i;
}

/* The filling at the bottom of a cell, its height, and the one above it: if there are several, the two largest. */
static void chart_cell_of(const int *end, int row, int *low, int *upper, int *height)
{
    int part[FILLS] = {0}, first = -1, second = -1;

    for (int i = 0; i < 8; i++) part[filling_at(end, row * 8 + i)]++;
    for (int i = 0; i < FILLS; i++)
        if (part[i] && (first < 0 || part[i] > part[first])) {
            second = first;
            first = i;
        } else if (part[i] && (second < 0 || part[i] > part[second])) {
            second = i;
        }
    if (second < 0) {
        *low = *upper = first;
        *height = 8;
        return;
    }
    *low = first < second ? first : second;
    *upper = first < second ? second : first;
    *height = 8 * part[*low] / (part[*low] + part[*upper]);
    *height = *height < 1 ? 1 : *height > 7 ? 7 : *height;
}

static void paint_cell(const struct terminal *t, int fore, int back, FILE *out)
{
    if (fore == EMPTY) {
        fputs(terminal_style(t, TERMINAL_PLAIN), out);
    } else if (t->rich) {
        fprintf(out, "\033[0;38;5;%dm", paints[fore].rich);
        if (back < HELD) fprintf(out, "\033[48;5;%dm", paints[back].rich);
    } else if (t->colour) {
        fprintf(out, "\033[0;%dm", paints[fore].plain);
        if (back < HELD) fprintf(out, "\033[%dm", paints[back].plain + 10);
    }
}

static const char *cell_glyph(const struct terminal *t, int low, int upper, int height)
{
    static const char *const block[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

    if (low == EMPTY) return " ";
    if (low == HELD) return height < 4 && upper == EMPTY ? " " : t->utf8 ? "░" : ".";
    if (t->utf8) return block[height];
    return height >= 4 ? "#" : upper == HELD ? "." : "_";
}

static void draw_row(const struct chart *k, int row)
{
    const struct terminal *t = &k->v->term;
    int fore = EMPTY, back = EMPTY, blanks = 0;
    FILE *out = k->v->out;

    for (size_t x = 0; x < k->c->columns_n; x++) {
        int low, upper, height;
        chart_cell_of(k->ends[x], row, &low, &upper, &height);
        const char *g = cell_glyph(t, low, upper, height);
        if (*g == ' ') {
            blanks++;
            continue;
        }
        bool mixed = low < HELD && upper < HELD && upper != low && t->utf8;
        int behind = mixed ? upper : EMPTY;
        if (blanks && back != EMPTY) {
            fputs(terminal_style(t, TERMINAL_PLAIN), out);
            fore = back = EMPTY;
        }
        fprintf(out, "%*s", blanks, "");
        blanks = 0;
        if (low != fore || behind != back) paint_cell(t, low, behind, out);
        fore = low;
        back = behind;
        fputs(g, out);
    }
    fprintf(out, "%s\n", fore == EMPTY ? "" : terminal_style(t, TERMINAL_PLAIN));
}

static void print_time_axis(const struct chart *k)
{
    const struct draw_text *v = k->v;
    char from[UNITS_TEXT], middle[UNITS_TEXT];
    int columns = (int)k->c->columns_n;
    double a = (double)k->c->from_ns / 1e9, b = (double)k->c->to_ns / 1e9;

    fprintf(v->out, "%*s %s", LABEL - 1, "0 B", v->term.utf8 ? "└" : "+");
    for (int x = 0; x < columns; x++) fputs(v->term.utf8 ? "─" : "-", v->out);
    units_format_seconds(from, a);
    units_format_seconds(middle, (a + b) / 2);
    int at = fprintf(v->out, "\n%*s%s", LABEL + 1, "", from) - 1, half = LABEL + 1 + columns / 2;
    if (columns >= 40) at += fprintf(v->out, "%*s", half - at - (int)strlen(middle) / 2 + (int)strlen(middle), middle);
    fprintf(v->out, "%*s\n", LABEL + 1 + columns - at, UNITS_SECONDS(b));
}

static void draw_course(struct chart *k)
{
    for (size_t x = 0; x < k->c->columns_n; x++) fill_chart_column(k, x);
    for (int r = k->rows - 1; r >= 0; r--) {
        int64_t at = r == k->rows - 1 ? k->top : k->rows >= 8 && r == k->rows / 2 - 1 ? k->top / 2 : -1;
        fprintf(k->v->out, "%*s %s", LABEL - 1, at < 0 ? "" : DRAW_BYTES(at), k->v->term.utf8 ? "│" : "|");
        draw_row(k, r);
    }
    print_time_axis(k);
}

enum mark { MARK_NONE, MARK_PEAK, MARK_SURVIVED, MARK_OOM };
static const struct {
    const char *utf8, *ascii;
    enum terminal_style style;
} marks[] = {
    [MARK_PEAK] = {"▲", "^", TERMINAL_BOLD},
    [MARK_SURVIVED] = {"!", "!", TERMINAL_YELLOW},
    [MARK_OOM] = {"✗", "X", TERMINAL_RED},
};

static void mark_sign(const struct draw_text *v, enum mark m)
{
    fprintf(v->out, "%s%s%s", terminal_style(&v->term, marks[m].style), v->term.utf8 ? marks[m].utf8 : marks[m].ascii,
            terminal_style(&v->term, TERMINAL_PLAIN));
}

static bool concerns_course(const struct run_oom *o, const struct profile_course *k)
{
    return o->process == k->process && (o->device == k->device || o->device < 0);
}

static void mark_row(const struct chart *k, struct run *run)
{
    size_t n, columns = k->c->columns_n;
    const struct run_oom *ooms = run_ooms(run, &n);
    uint8_t *at = arena_zeroed(columns + 1, 1);
    int blanks = LABEL + 1;

    at[profile_courses_column(k->c, k->front->peak_ns)] = MARK_PEAK;
    for (size_t i = 0; i < n; i++) {
        enum mark m = ooms[i].fatal ? MARK_OOM : MARK_SURVIVED;
        size_t x = profile_courses_column(k->c, ooms[i].time_ns);
        if (concerns_course(&ooms[i], k->front) && at[x] < m) at[x] = (uint8_t)m;
    }
    at[columns] = MARK_NONE; /* outside */
    bool any = false;
    for (size_t x = 0; x < columns; x++) any = any || at[x];
    for (size_t x = 0; any && x < columns; x++) {
        if (!at[x]) {
            blanks++;
            continue;
        }
        fprintf(k->v->out, "%*s", blanks, "");
        mark_sign(k->v, (enum mark)at[x]);
        blanks = 0;
    }
    if (any) fputc('\n', k->v->out);
    free(at);
}

/* Below the chart, unless the longest word does not fit there. */
static int legend_indent(const struct draw_text *v, int longest)
{
    return v->term.width < 60 || longest > v->term.width - LABEL - 1 ? INDENT : LABEL + 1;
}

/* Each step's beginning if there is room between them; else from the first to the end of the last. */
static void step_row(const struct chart *k)
{
    const struct draw_text *v = k->v;
    const struct profile_course_steps *s = NULL;
    size_t columns = k->c->columns_n;
    char by[256], text[512];

    for (size_t i = 0; i < k->c->steps_n; i++) s = k->c->steps[i].process == k->front->process ? &k->c->steps[i] : s;
    if (!s) return;
    size_t first = profile_courses_column(k->c, s->first_ns > k->c->from_ns ? s->first_ns : k->c->from_ns);
    size_t last = profile_courses_column(k->c, s->end_ns < k->c->to_ns ? s->end_ns : k->c->to_ns);
    if (first >= columns || last >= columns || last < first) return;
    bool ticks = s->starts && s->n * 3 <= last - first;
    fprintf(v->out, "%s%*s", terminal_style(&v->term, TERMINAL_DIM), LABEL + 1 + (int)first, "");
    for (size_t x = first, i = 0; x <= last; x++) {
        bool tick = x == first || x == last;
        for (; ticks && i < s->n && profile_courses_column(k->c, s->starts[i]) <= x; i++)
            tick = tick || profile_courses_column(k->c, s->starts[i]) == x;
        fputs(first == last ? "|"
              : x == first  ? (v->term.utf8 ? "├" : "|")
              : x == last   ? (v->term.utf8 ? "┤" : "|")
              : tick        ? (v->term.utf8 ? "┴" : "|")
                            : (v->term.utf8 ? "─" : "-"),
              v->out);
    }
    fprintf(v->out, "%s\n", terminal_style(&v->term, TERMINAL_PLAIN));
    terminal_clean(by, sizeof by, s->by, v->term.utf8);
    text_put(text, sizeof text, "%s of %s, by %s", UNITS_PLURAL(s->n, "step", NULL),
             UNITS_SECONDS((double)s->median_ns / 1e9), by);
    fputs(terminal_style(&v->term, TERMINAL_DIM), v->out);
    draw_wrap(v, legend_indent(v, terminal_columns(by)), "", "%s", text);
    fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
}

/* Its name stands beside it if there is room, else below. */
static void scope_row(const struct chart *k, const struct profile_course_scope *s)
{
    const struct draw_text *v = k->v;
    const int columns = (int)k->c->columns_n;
    char name[128], domain[64], text[256];
    int first = columns, last = -1;

    for (int x = 0; x < columns; x++) {
        if (!s->covered[x]) continue;
        first = first < x ? first : x;
        last = x;
    }
    if (last < 0) return;
    terminal_clean(name, sizeof name, s->scope.name, v->term.utf8);
    terminal_clean(domain, sizeof domain, s->scope.domain ? s->scope.domain : "", v->term.utf8);
    text_put(text, sizeof text, "%s%s%s", domain, *domain ? ": " : "", name);
    const int width = terminal_columns(text);
    const bool after = last + 2 + width <= columns, before = !after && width + 2 <= first;
    fprintf(v->out, "%*s  ", LABEL - 1, DRAW_BYTES(s->scope.peak_bytes));
    fprintf(v->out, "%*s%s%*s", before ? first - 1 - width : 0, "", before ? text : "", before ? 1 : first, "");
    for (int x = first; x <= last; x++) fputs(!s->covered[x] ? " " : v->term.utf8 ? "▬" : "=", v->out);
    if (after) fprintf(v->out, " %s", text);
    fputc('\n', v->out);
    if (after || before) return;
    text_elide(name, sizeof name, text, v->term.width - LABEL - 1, v->term.utf8);
    fprintf(v->out, "%*s%s\n", LABEL + 1, "", name);
}

/* Those with the highest peaks of the memory that the chart is of. */
static void scope_rows(const struct chart *k)
{
    size_t all = 0;

    EACH_IN (s, k->c->scopes) {
        const bool same = s->scope.process == k->front->process && s->scope.device == k->front->device;
        if (!same || s->scope.layer != k->front->layer || all++ >= SCOPES) continue;
        if (all == 1) {
            fputs(terminal_style(&k->v->term, TERMINAL_DIM), k->v->out);
            const int64_t kept_ns = run_kept_from(k->v->report->run);
            const char *at = UNITS_SECONDS((double)kept_ns / 1e9);
            draw_wrap(k->v, LABEL + 1, "", "%s ranges, each with its peak%s%s%s", run_range_word(k->v->report->run),
                      kept_ns ? " (not all of those before " : "", kept_ns ? at : "", kept_ns ? " are drawn)" : "");
            fputs(terminal_style(&k->v->term, TERMINAL_PLAIN), k->v->out);
        }
        scope_row(k, s);
    }
    if (all > SCOPES) fprintf(k->v->out, "%*s%zu more: gpuspy report --only scopes\n", LABEL + 1, "", all - SCOPES);
}

/* One after another, on as many lines as necessary. */
static void print_legend_entry(const struct draw_text *v, int *at, int fill, const char *text)
{
    int columns = terminal_columns(text) + 4;

    if (*at && *at + columns > v->term.width) {
        fputc('\n', v->out);
        *at = 0;
    }
    fprintf(v->out, "%*s", *at ? 2 : v->term.width < 60 ? 2 : LABEL + 1, "");
    *at = *at ? *at : v->term.width < 60 ? 2 : LABEL + 1;
    if ((v->term.colour && fill != EMPTY) || fill == HELD) {
        paint_cell(&v->term, fill, EMPTY, v->out);
        fputs(fill == HELD ? (v->term.utf8 ? "░ " : ". ") : v->term.utf8 ? "█ " : "# ", v->out);
        fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
    }
    fputs(text, v->out);
    *at += columns;
}

static const struct profile_course_column *peak_column(const struct chart *k)
{
    const struct profile_course_column *best = NULL;

    EACH (f, k->front->columns, k->c->columns_n) best = f->known && (!best || f->high >= best->high) ? f : best;
    return best;
}

/* From the top of the stack down, at the highest column of the chart. */
static void print_timeline_legend(const struct chart *k)
{
    const struct draw_text *v = k->v;
    const struct profile_course_column *peak = peak_column(k);
    int at = 0;
    char text[128];

    if (k->back)
        print_legend_entry(
            v, &at, HELD, v->term.width < 60 ? "reserved, in no tensor" : "PyTorch's cache and other CUDA allocations");
    if (k->back && !k->stacked) print_legend_entry(v, &at, EMPTY, v->term.utf8 ? "█ tensors" : "# tensors");
    for (int i = RESULT_CATEGORIES_N; peak && k->stacked && i-- > 0;) {
        if (!peak->by_category[i]) continue;
        text_put(text, sizeof text, "%s %s", result_category_text((enum result_category)i),
                 DRAW_BYTES(peak->by_category[i]));
        print_legend_entry(v, &at, i, text);
    }
    if (at) fputc('\n', v->out);
}

static void mark_legend(const struct chart *k, struct run *run)
{
    const struct draw_text *v = k->v;
    size_t n, survived = 0;
    const struct run_oom *ooms = run_ooms(run, &n);
    char text[96];
    const int indent = legend_indent(v, 0);

    if (profile_courses_column(k->c, k->front->peak_ns) < k->c->columns_n) {
        fprintf(v->out, "%*s", indent, "");
        mark_sign(v, MARK_PEAK);
        fprintf(v->out, " peak %s at %s\n", DRAW_BYTES(k->front->peak), UNITS_SECONDS((double)k->front->peak_ns / 1e9));
    }
    for (size_t i = 0; i < n; i++) {
        if (!concerns_course(&ooms[i], k->front) || profile_courses_column(k->c, ooms[i].time_ns) == k->c->columns_n)
            continue;
        if (!ooms[i].fatal) {
            survived++;
            continue;
        }
        if (i + 1 < n && ooms[i + 1].fatal && concerns_course(&ooms[i + 1], k->front)) continue; /* the last of them */
        fprintf(v->out, "%*s", indent, "");
        mark_sign(v, MARK_OOM);
        fprintf(v->out, " out of memory at %s\n", UNITS_SECONDS((double)ooms[i].time_ns / 1e9));
    }
    if (survived) {
        fprintf(v->out, "%*s", indent, "");
        mark_sign(v, MARK_SURVIVED);
        text_put(text, sizeof text, "%zu failed allocation%s that did not end the program", survived,
                 survived == 1 ? "" : "s");
        fputc(' ', v->out);
        text_wrap(v->out, &v->term, indent + 2, indent + 2, false, text);
    }
}

static bool is_course_categorised(const struct profile_courses *c, const struct profile_course *k)
{
    for (size_t x = 0; x < c->columns_n; x++)
        for (int i = 0; i < RESULT_CATEGORIES_N; i++)
            if (i != RESULT_CATEGORY_UNKNOWN && k->columns[x].by_category[i]) return true;
    return false;
}

static int64_t course_rank(const struct draw_text *v, const struct profile_course *k)
{
    return v->report->processes[k->process].rank; /* unknown comes first */
}

/* Those that have a chart, by rank: files are found in the order of their names. */
static size_t list_charts(const struct draw_text *v, const struct profile_courses *c, const struct profile_course **out)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++) {
        if (!profile_courses_lead(c, &c->list[i])) continue; /* drawn behind its tensors */
        size_t at = n++;
        for (; at > 0 && course_rank(v, out[at - 1]) > course_rank(v, &c->list[i]); at--) out[at] = out[at - 1];
        out[at] = &c->list[i];
    }
    return n;
}

static int64_t most_in(const struct profile_courses *c, const struct profile_course *k)
{
    int64_t most = 0;

    for (size_t x = 0; k && x < c->columns_n; x++)
        most = k->columns[x].known && k->columns[x].high > most ? k->columns[x].high : most;
    return most;
}

/* One scale for GPUs, so that charts can be compared; another one for the host's memory. */
static int64_t courses_scale(const struct profile_courses *c, bool gpu)
{
    int64_t most = 0;

    for (size_t i = 0; i < c->n; i++)
        if ((c->list[i].device >= 0) == gpu && most_in(c, &c->list[i]) > most) most = most_in(c, &c->list[i]);
    return most;
}

static void print_one_course(const struct draw_text *v, struct run *run, const struct profile_courses *c,
                             const struct profile_course *k, int rows, bool first)
{
    struct chart chart = {.v = v,
                          .c = c,
                          .front = k,
                          .rows = rows,
                          .top = courses_scale(c, k->device >= 0),
                          .stacked = v->term.colour && is_course_categorised(c, k)};
    char place[96];

    if (k->layer == RUN_SERIES_TENSOR) chart.back = profile_courses_of(c, k->process, k->device, RUN_SERIES_DEVICE);
    draw_device(v, place, sizeof place, k->process, k->device, k->layer);
    if (!first) fputc('\n', v->out);
    draw_first_heading(v, TERMINAL_BOLD, place, ": %s%speak %s, %s at the end",
                       k->device >= 0 ? draw_layer_word(k->layer) : "", k->device >= 0 ? ", " : "", DRAW_BYTES(k->peak),
                       DRAW_BYTES(k->end));
    if (chart.top <= 0) {
        fprintf(v->out, "  nothing was live in this interval\n");
        return;
    }
    chart.ends = arena_realloc(NULL, c->columns_n, sizeof *chart.ends);
    draw_course(&chart);
    mark_row(&chart, run);
    step_row(&chart);
    scope_rows(&chart);
    mark_legend(&chart, run);
    print_timeline_legend(&chart);
    free(chart.ends);
}

void view_timeline(const struct draw_text *v, struct run *run, const struct profile_courses *c, int rows)
{
    const struct profile_course **list = arena_realloc(NULL, c->n + 1, sizeof(const struct profile_course *));
    size_t charts = list_charts(v, c, list), shown = charts < v->top ? charts : v->top;

    if (!rows) rows = charts == 1 ? ROWS_ONE : charts <= 3 ? ROWS_FEW : ROWS_MANY;
    for (size_t i = 0; i < shown; i++) print_one_course(v, run, c, list[i], rows, i == 0);
    draw_more(v, charts, shown);
    free(list);
}

static json_t *column_json(const struct profile_courses *c, const struct profile_course *k, size_t x)
{
    const struct profile_course_column *p = &k->columns[x];
    double width = (double)(c->to_ns - c->from_ns) / (double)c->columns_n;
    json_t *o = json_object(), *by = json_object();

    set_real(o, "start_s", ((double)c->from_ns + width * (double)x) / 1e9);
    set_bytes(o, "high_bytes", p->high);
    set_bytes(o, "low_bytes", p->low);
    for (int i = 0; i < RESULT_CATEGORIES_N; i++)
        if (p->by_category[i]) set_bytes(by, result_category_word((enum result_category)i), p->by_category[i]);
    set_json(o, "by_category", by);
    return o;
}

static json_t *course_json(const struct result_report *r, const struct profile_courses *c,
                           const struct profile_course *k)
{
    json_t *o = json_object(), *points = json_array();

    draw_json_where(o, r, k->process, k->device);
    set_text(o, "layer", result_series_word(k->layer));
    set_bytes(o, "peak_bytes", k->peak);
    set_real(o, "peak_time_s", (double)k->peak_ns / 1e9);
    set_bytes(o, "end_bytes", k->end);
    for (size_t x = 0; x < c->columns_n; x++)
        if (k->columns[x].known) json_array_append_new(points, column_json(c, k, x));
    set_json(o, "points", points);
    return o;
}

static json_t *course_scopes_json(const struct result_report *r, const struct profile_courses *c)
{
    struct result_report with = *r;

    with.scopes_n = c->scopes_n;
    with.scopes = arena_realloc(NULL, c->scopes_n + 1, sizeof *with.scopes);
    for (size_t i = 0; i < c->scopes_n; i++) with.scopes[i] = c->scopes[i].scope;
    json_t *list = json_scopes(&with);
    free(with.scopes);
    return list;
}

void view_timeline_json(json_t *o, struct run *run, const struct result_report *r, const struct profile_courses *c)
{
    size_t n;
    const struct run_oom *ooms = run_ooms(run, &n);
    json_t *steps = json_array(), *failures = json_array();

    for (size_t i = 0; i < c->steps_n; i++) {
        json_t *s = json_object();
        set_count(s, "pid", r->processes[c->steps[i].process].pid);
        set_count(s, "count", c->steps[i].n);
        set_real(s, "first_s", (double)c->steps[i].first_ns / 1e9);
        set_real(s, "end_s", (double)c->steps[i].end_ns / 1e9);
        set_text(s, "by", c->steps[i].by);
        json_array_append_new(steps, s);
    }
    for (size_t i = 0; i < n; i++) {
        json_t *f = json_add_object(failures);
        draw_json_where(f, r, ooms[i].process, ooms[i].device);
        set_real(f, "time_s", (double)ooms[i].time_ns / 1e9);
        set_bool(f, "fatal", ooms[i].fatal);
    }
    set_real(o, "from_s", (double)c->from_ns / 1e9);
    set_real(o, "to_s", (double)c->to_ns / 1e9);
    set_json(o, "series", LIST_OF(c->n, i, course_json(r, c, &c->list[i])));
    set_json(o, "steps", steps);
    set_json(o, "oom", failures);
    set_json(o, "scopes", course_scopes_json(r, c));
}
