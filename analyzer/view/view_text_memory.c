/* Memory by device: the peak, the curve, and the lines that hold it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/site/site.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"
#include "analyzer/base/sort.h"
#include "analyzer/base/term.h"

#define COLUMNS_MAX 160
#define LABEL 12 /* columns of the axis' labels: "1023.99 MiB " */

/* The maximum in each of `columns` equal intervals of [0, end], including the value at the interval's start. */
static void sample_chart_columns(const struct result_timeline *t, double end, int columns, int64_t *most)
{
    size_t i = 0;
    int64_t now = 0;

    for (int c = 0; c < columns; c++) {
        double until = end * (c + 1) / columns;
        int64_t top = now;
        for (; i < t->n && (t->points[i].time_s < until || c + 1 == columns); i++) {
            now = t->points[i].bytes;
            top = now > top ? now : top;
        }
        most[c] = top;
    }
}

/* The part of one character cell that is filled, in eighths: row 0 is the lowest. */
static int column_eighths(int64_t bytes, double per_row, int row)
{
    double height = per_row > 0 ? (double)bytes / per_row - row : 0;

    if (bytes > 0 && row == 0 && height < 0.125) return 1; /* small amounts remain visible */
    return height >= 1 ? 8 : height <= 0 ? 0 : (int)(height * 8 + 0.5);
}

static const char *chart_glyph(int front, int back, bool utf8)
{
    static const char *const block[] = {"", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

    if (front > 0 && utf8) return block[front];
    if (front >= 4 || (front > 0 && back < 4)) return front >= 4 ? "#" : "_";
    if (back >= 4) return utf8 ? "░" : ".";
    return " ";
}

static void print_chart_row(const int64_t *front, const int64_t *back, int columns, double per_row, int r,
                            const struct terminal *term, FILE *out)
{
    char line[COLUMNS_MAX * 4];
    size_t at = 0, end = 0;

    for (int c = 0; c < columns; c++) {
        const char *g =
            chart_glyph(column_eighths(front[c], per_row, r), column_eighths(back[c], per_row, r), term->utf8);
        size_t n = strlen(g);
        memcpy(line + at, g, n);
        at += n;
        if (*g != ' ') end = at;
    }
    fprintf(out, "%s%.*s%s\n", terminal_style(term, TERMINAL_CYAN), (int)end, line,
            terminal_style(term, TERMINAL_PLAIN));
}

static int64_t most_of_columns(const int64_t *value, int n)
{
    int64_t most = 0;

    for (int i = 0; i < n; i++) most = value[i] > most ? value[i] : most;
    return most;
}

/* Draws a chart of `rows` lines above a time axis from 0 to `end_s`: `front` as solid blocks, and behind it `back` in a
 * lighter tone (reserved behind allocated memory, for example); either may be NULL. Each column shows the maximum of
 * its interval. */
static void view_chart(const struct result_timeline *front, const struct result_timeline *back, double end_s, int rows,
                       const struct terminal *term, int indent, FILE *out)
{
    int64_t f[COLUMNS_MAX] = {0}, b[COLUMNS_MAX] = {0};
    int columns = term->width - indent - LABEL - 3;

    if (columns > COLUMNS_MAX) columns = COLUMNS_MAX;
    if (columns < 20 || !(end_s > 0) || (!front && !back)) return;
    if (front) sample_chart_columns(front, end_s, columns, f);
    if (back) sample_chart_columns(back, end_s, columns, b);
    int64_t top = most_of_columns(f, columns), other = most_of_columns(b, columns);
    top = other > top ? other : top;
    if (top <= 0) return;
    for (int r = rows - 1; r >= 0; r--) {
        fprintf(out, "%*s%*s %s", indent, "", LABEL - 1, r == rows - 1 ? UNITS_BYTES((uint64_t)top) : "",
                term->utf8 ? "│" : "|");
        print_chart_row(f, b, columns, (double)top / rows, r, term, out);
    }
    fprintf(out, "%*s%*s %s", indent, "", LABEL - 1, "0 B", term->utf8 ? "└" : "+");
    for (int c = 0; c < columns; c++) fputs(term->utf8 ? "─" : "-", out);
    const int begin = fprintf(out, "\n%*s%s", indent + LABEL + 1, "", UNITS_SECONDS(0)) - (indent + LABEL + 2);
    fprintf(out, "%*s\n", columns - begin, UNITS_SECONDS(end_s));
}

#define PLACES_MANY 16 /* of more, only the highest peaks are listed; in one screen, of half as many */
#define PLACES_MAX 4   /* devices shown in full; of more, each gets a line and the fullest is shown in full */

/* Which line happened to need one more segment says little; only allocations outside of PyTorch are interesting. */
#define SEGMENT_ROWS 4

static const struct result_peak *shown_peak_of(const struct result_report *r, uint32_t process, int device,
                                               enum run_series_layer layer)
{
    return FIND_IN(p, r->peaks, p->process == process && p->device == device && p->layer == layer && p->bytes > 0);
}

static int chart_rows(const struct draw_text *v)
{
    return v->brief ? 4 : 6;
}

static double process_end_s(const struct result_report *r, uint32_t process)
{
    return process < r->processes_n ? (double)r->processes[process].end_ns / 1e9 : r->duration_s;
}

/* In a recording of one moment, that moment needs no name. */
static const char *at_peak_words(const struct draw_text *v)
{
    return v->report->no_history ? "" : " at the peak";
}

static void add_live_row(const struct draw_text *v, struct text_table *t, const struct result_peak *p, int64_t bytes,
                         uint64_t count, const struct result_site *site, char *below)
{
    const char *cells[] = {DRAW_BYTES(bytes), UNITS_SHARE(p->bytes ? (double)bytes / (double)p->bytes : 0),
                           UNITS_COUNT(count)};
    struct text_table_row *row = text_table_add(t, cells, site);

    if (row)
        row->below = below;
    else
        free(below);
}

static void print_by_line(const struct draw_text *v, const struct result_peak *p, const char *what, size_t most)
{
    struct text_table t = {SITES(v), .head = {"bytes", "share", "count", "line"}};
    size_t n = v->native ? p->by_stack_n : p->by_line_n;
    size_t total = v->native ? p->by_stack_total : p->by_line_total;
    size_t shown = n < most ? n : most;

    if (!shown) return;
    draw_styled(v, TERMINAL_BOLD, what);
    for (size_t i = 0; i < shown; i++) {
        if (view_is_row_negligible(v, i, v->native ? p->by_stack[i].bytes : p->by_line[i].bytes, p->bytes)) continue;
        if (v->native)
            add_live_row(v, &t, p, p->by_stack[i].bytes, p->by_stack[i].count, &p->by_stack[i].stack.site,
                         draw_trace(v, p->by_stack[i].stack.number, 20));
        else
            add_live_row(v, &t, p, p->by_line[i].bytes, p->by_line[i].count, &p->by_line[i].site,
                         draw_paths(v, &p->by_line[i].paths, 4 * INDENT));
    }
    text_table_print(&t, &v->term, 2 * INDENT, v->out);
    draw_more(v, total, shown);
}

static void add_part_row(struct text_table *t, int64_t bytes, int64_t whole, const char *what)
{
    char share[UNITS_TEXT] = "";

    if (bytes == RUN_UNKNOWN || bytes <= 0) return;
    if (whole > 0) units_format_share(share, (double)bytes / (double)whole);
    const char *cells[] = {DRAW_BYTES(bytes), share, what};
    text_table_add(t, cells, NULL);
}

#define OWNER_ROWS 6

/* What other libraries than PyTorch's allocator allocated, each of them. False: the owners do not sum to it, or there
 * are none. */
static bool add_taken_row(const struct draw_text *v, struct text_table *t, const struct result_peak *p, int64_t bytes,
                          int64_t whole)
{
    size_t others = 0, shown = 0;
    int64_t sum = 0, rest = bytes;
    bool attributed = false;

    for (size_t i = 0; p && i < p->by_owner_n; i++) {
        const struct result_by_owner *o = &p->by_owner[i];
        if (o->kind == RESULT_OWNER_TORCH) continue;
        sum += o->bytes;
        others++;
        attributed = attributed || (o->kind != RESULT_OWNER_UNKNOWN && o->kind != RESULT_OWNER_USER);
    }
    if (!others || sum != bytes || !(attributed || others < p->by_owner_n || others > 1)) return false;
    for (size_t i = 0; i < p->by_owner_n && (shown < OWNER_ROWS || others <= OWNER_ROWS + 1); i++) {
        const struct result_by_owner *o = &p->by_owner[i];
        char name[128], line[192];
        if (o->kind == RESULT_OWNER_TORCH) continue;
        terminal_clean(name, sizeof name, o->owner, v->term.utf8);
        snprintf(line, sizeof line, "CUDA allocations%s%s",
                 o->kind == RESULT_OWNER_UNKNOWN ? ", owner unknown" : " of ",
                 o->kind == RESULT_OWNER_UNKNOWN ? "" : name);
        add_part_row(t, o->bytes, whole, line);
        rest -= o->bytes;
        shown++;
    }
    add_part_row(t, rest, whole, "CUDA allocations of others");
    return true;
}

/* What this process allocated: PyTorch's part as far as it reported its totals. */
static void add_own_parts(const struct draw_text *v, struct text_table *t, const struct result_device_memory *m,
                          const struct result_peak *p)
{
    bool torch = m->tensor_bytes != RUN_UNKNOWN;

    if (torch && (m->cached_bytes == RUN_UNKNOWN || m->direct_bytes == RUN_UNKNOWN)) {
        bool less = m->live_bytes < m->tensor_bytes;
        add_part_row(t, less ? m->live_bytes : m->tensor_bytes, m->total_bytes, "in PyTorch tensors");
        add_part_row(t, less ? 0 : m->live_bytes - m->tensor_bytes, m->total_bytes,
                     "in other CUDA allocations: PyTorch's cache, libraries");
        return;
    }
    add_part_row(t, m->tensor_bytes, m->total_bytes, "in PyTorch tensors");
    add_part_row(t, m->cached_bytes, m->total_bytes, "cached by PyTorch: reserved, in no tensor");
    if (add_taken_row(v, t, p, m->direct_bytes, m->total_bytes)) return;
    add_part_row(t, m->direct_bytes, m->total_bytes,
                 torch ? "in other CUDA allocations: NCCL, cuBLAS, the program's own" : "in CUDA allocations");
}

/* What is in use and in no recorded allocation, divided if NVML reported its owners. */
static void add_outside_row(struct text_table *t, const struct result_device_memory *m)
{
    int64_t left = m->outside_bytes, other, context;

    if (m->context_bytes == RUN_UNKNOWN || m->other_bytes == RUN_UNKNOWN) {
        add_part_row(t, left, m->total_bytes,
                     m->about ? "outside, estimated: CUDA context, libraries, other processes"
                              : "outside: CUDA context, libraries, other processes");
        return;
    }
    other = m->other_bytes < left ? m->other_bytes : left;
    left -= other;
    context = m->context_bytes < left ? m->context_bytes : left;
    add_part_row(t, context, m->total_bytes, "this process's CUDA context and code (NVML)");
    add_part_row(t, other, m->total_bytes, "other processes (NVML)");
    add_part_row(t, left - context, m->total_bytes, "in use, owner unknown");
}

static void print_parts(const struct draw_text *v, uint32_t process, int device)
{
    const struct result_device_memory *m = result_memory_of(v->report, process, device);
    struct text_table t = {.head = {"", "", ""}};

    if (!m || m->live_bytes <= 0 || m->total_bytes <= 0) return;
    add_own_parts(v, &t, m, shown_peak_of(v->report, process, device, RUN_SERIES_DEVICE));
    add_part_row(&t, m->graph_bytes, m->total_bytes, "held for CUDA graphs");
    if (m->outside_bytes == RUN_UNKNOWN) {
        add_part_row(&t, m->total_bytes - m->live_bytes - m->graph_bytes, m->total_bytes,
                     "free, or outside: CUDA context, libraries, other processes");
    } else {
        add_outside_row(&t, m);
        add_part_row(&t, m->free_bytes, m->total_bytes, m->about ? "free, estimated" : "free");
    }
    fprintf(v->out, "  %sOf the GPU's %s%s%s\n", terminal_style(&v->term, TERMINAL_BOLD), DRAW_BYTES(m->total_bytes),
            at_peak_words(v), terminal_style(&v->term, TERMINAL_PLAIN));
    text_table_print(&t, &v->term, 2 * INDENT, v->out);
}

/* The largest line of unknown category: where to look. */
static const struct result_site *most_unknown(const struct result_peak *p)
{
    for (size_t i = 0; i < p->by_stack_n; i++)
        if (p->by_stack[i].category == RESULT_CATEGORY_UNKNOWN && p->by_stack[i].stack.site.known)
            return &p->by_stack[i].stack.site;
    return NULL;
}

/* "activations allocated in forward(), freed in backward()": the evidence for most of them, and the origin of the
 * unknown ones. Only the word for very small amounts. */
static void add_category_row(const struct draw_text *v, struct text_table *t, const struct result_peak *p,
                             enum result_category which)
{
    const struct result_by_category *c = &p->by_category;
    const struct result_site *site = which == RESULT_CATEGORY_UNKNOWN ? most_unknown(p) : NULL;
    char line[512], raw[192] = "", at[192];
    size_t i = 0;

    while (i < c->shares_n && c->shares[i].category != which) i++;
    if (site) site_text(site, raw, sizeof raw);
    terminal_clean(at, sizeof at, raw, v->term.utf8);
    if (i < c->shares_n && c->bytes[which] >= p->bytes / 100)
        snprintf(line, sizeof line, "%-15s  %s%s%s%s", result_category_text(which),
                 c->shares[i].bytes < c->bytes[which] / 10 * 9 ? "most " : "", c->shares[i].evidence,
                 *at ? "; most at " : "", at);
    else
        snprintf(line, sizeof line, "%s", result_category_text(which));
    add_part_row(t, c->bytes[which], p->bytes, line);
}

static void print_categories(const struct draw_text *v, const struct result_peak *p)
{
    struct text_table t = {.head = {"", "", ""}};
    const int64_t *bytes = p->by_category.bytes;

    if (bytes[RESULT_CATEGORY_UNKNOWN] == p->bytes || !p->by_category.shares_n) return;
    for (unsigned i = 0; i < RESULT_CATEGORIES_N; i++)
        if (i != RESULT_CATEGORY_UNKNOWN || bytes[i] >= p->bytes / 100)
            add_category_row(v, &t, p, (enum result_category)i);
    fprintf(v->out, "  %sIn tensors%s%s\n", terminal_style(&v->term, TERMINAL_BOLD), at_peak_words(v),
            terminal_style(&v->term, TERMINAL_PLAIN));
    text_table_print(&t, &v->term, 2 * INDENT, v->out);
}

enum { BLOCKS_TEXT = 64 };

/* PyTorch's blocks are parts of CUDA allocations. */
static void peak_blocks(const struct result_peak *p, uint64_t n, char out[BLOCKS_TEXT])
{
    snprintf(out, BLOCKS_TEXT, "%s %s%s", UNITS_COUNT(n), p->layer == RUN_SERIES_DEVICE ? "CUDA allocation" : "block",
             n == 1 ? "" : "s");
}

static void peak_line(const struct draw_text *v, const struct result_peak *p, const char *what)
{
    char at[UNITS_TEXT + 8], line[256], blocks[BLOCKS_TEXT], all[BLOCKS_TEXT];

    peak_blocks(p, p->count, blocks);
    peak_blocks(p, p->allocations, all);

    if (v->report->no_history)
        snprintf(line, sizeof line, "%s live in %s; peak unknown", DRAW_BYTES(p->bytes), blocks);
    else if (v->brief)
        snprintf(line, sizeof line, "peak %s %s, in %s", DRAW_BYTES(p->bytes), draw_moment(v, at, sizeof at, p),
                 blocks);
    else
        snprintf(line, sizeof line, "peak %s %s, in %s; over the run %s in %s; %s%s", DRAW_BYTES(p->bytes),
                 draw_moment(v, at, sizeof at, p), blocks, DRAW_BYTES(p->allocated_bytes), all,
                 p->end_bytes ? DRAW_BYTES(p->end_bytes) : "",
                 p->end_bytes ? " live at the end" : "all freed by the end");
    if (p->layer == RUN_SERIES_DEVICE && v->report->processes[p->process].attached_after_s > 0)
        snprintf(line + strlen(line), sizeof line - strlen(line),
                 "; without what was allocated before gpuspy attached");
    draw_wrap(v, INDENT, what, "%s", line);
}

/* If the peak contains other kinds than plain cudaMalloc. */
static void print_kinds(const struct draw_text *v, const struct result_peak *p)
{
    static const char *const words[8] = {
        [GS_SPACE_DEVICE] = "cudaMalloc",          [GS_SPACE_MANAGED] = "managed", [GS_SPACE_POOL] = "pools",
        [GS_SPACE_VMM] = "mapped physical memory", [GS_SPACE_ARRAY] = "arrays",
    };
    char line[256] = "", bytes[UNITS_TEXT];
    size_t n = 0;

    for (size_t i = 0; i < 8 && n < sizeof line; i++)
        if (p->by_space[i] && words[i])
            n += (size_t)snprintf(line + n, sizeof line - n, "%s%s in %s", n ? ", " : "",
                                  draw_bytes(bytes, p->by_space[i]), words[i]);
    if (n && p->by_space[GS_SPACE_DEVICE] != p->bytes) draw_wrap(v, INDENT, "of it       ", "%s", line);
}

static void print_memory_legend(const struct draw_text *v)
{
    fputs(terminal_style(&v->term, TERMINAL_DIM), v->out);
    draw_wrap(v, v->term.width < 60 ? INDENT : INDENT + 13, "",
              v->term.utf8 ? "█ tensors, ░ PyTorch's cache and other CUDA allocations"
                           : "# tensors, . PyTorch's cache and other CUDA allocations");
    fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
}

static const char *live_by_line(const struct draw_text *v, const char *what)
{
    static char line[64];
    snprintf(line, sizeof line, "Live%s, by line%s", at_peak_words(v), what);
    return line;
}

/* What frameworks preallocated, next to a device's parts. */
static void print_preallocations(const struct draw_text *v, uint32_t process, int device, bool only_in_advance)
{
    const struct result_report *r = v->report;
    EACH_IN (p, r->preallocations) {
        char line[512];
        if (p->process != process || p->device != device || (only_in_advance && !p->in_advance)) continue;
        terminal_clean(line, sizeof line, p->sentence, v->term.utf8);
        draw_wrap(v, INDENT, "", "%s", line);
    }
}

static void print_device_memory(const struct draw_text *v, const struct result_peak *p)
{
    const struct result_report *r = v->report;
    const struct result_peak *d = shown_peak_of(r, p->process, p->device, RUN_SERIES_DEVICE);
    const struct result_peak *t = shown_peak_of(r, p->process, p->device, RUN_SERIES_TENSOR);
    const struct result_peak *shared = shown_peak_of(r, p->process, p->device, RUN_SERIES_SHARED);
    const struct result_timeline *front = t ? result_timeline_of(r, t->process, t->device, t->layer) : NULL,
                                 *back = d ? result_timeline_of(r, d->process, d->device, d->layer) : NULL;
    char place[96];

    draw_title(v, TERMINAL_BOLD, draw_device(v, place, sizeof place, p->process, p->device, p->layer));
    if (t) peak_line(v, t, "tensors     ");
    if (d) {
        peak_line(v, d, "GPU memory  ");
        if (!v->brief) print_kinds(v, d);
    }
    if (shared) peak_line(v, shared, "of others   ");
    if (!front) {
        front = back;
        back = NULL;
    }
    const bool chart = !r->no_history && v->shorter < DRAW_NO_CHARTS;
    if (chart) view_chart(front, back, process_end_s(r, p->process), chart_rows(v), &v->term, INDENT, v->out);
    if (chart && back) print_memory_legend(v);
    const struct result_oom_verdict *oom = view_oom_at_peak(v, t ? t : d);
    if (v->brief) {
        if (!oom) print_preallocations(v, p->process, p->device, true);
        if (!oom || !oom->waterfall_n) print_by_line(v, t ? t : d, live_by_line(v, t ? ": tensors" : ""), v->top);
        return;
    }
    if (!oom) print_parts(v, p->process, p->device);
    if (!oom || oom->cause != RESULT_CAUSE_PREALLOCATION) /* it is in the verdict */
        print_preallocations(v, p->process, p->device, false);
    if (t || d) view_text_allocator(v, p->process, p->device);
    if ((t || d) && !(oom && oom->waterfall_n)) print_categories(v, t ? t : d);
    if (t) print_by_line(v, t, live_by_line(v, ": tensors"), v->top);
    if (d)
        print_by_line(v, d, live_by_line(v, t ? ": CUDA allocations" : ""),
                      t && v->top > SEGMENT_ROWS ? SEGMENT_ROWS : v->top);
}

/* PyTorch pins four bytes to fetch a number: such a curve is of no interest. */
#define WORTH_A_CHART (1 << 20)

/* Compared with the largest peak. */
static bool is_negligible(const struct result_report *r, const struct result_peak *p)
{
    int64_t most = 0;

    for (size_t i = 0; i < r->peaks_n; i++) most = r->peaks[i].bytes > most ? r->peaks[i].bytes : most;
    return p->bytes < most / 1000;
}

static void print_host_memory(const struct draw_text *v, const struct result_peak *p)
{
    char place[96];

    if (v->brief && is_negligible(v->report, p)) return;
    draw_device(v, place, sizeof place, p->process, p->device, p->layer);
    place[0] = (char)toupper((unsigned char)place[0]);
    draw_title(v, TERMINAL_BOLD, place);
    peak_line(v, p, p->layer == RUN_SERIES_PINNED ? "pinned   " : "tensors  ");
    if (p->bytes >= WORTH_A_CHART && !v->report->no_history && v->shorter < DRAW_NO_CHARTS)
        view_chart(p ? result_timeline_of(v->report, p->process, p->device, p->layer) : NULL, NULL,
                   process_end_s(v->report, p->process), chart_rows(v), &v->term, INDENT, v->out);
    print_categories(v, p);
    print_by_line(v, p, live_by_line(v, ""), v->top);
}

/* Does the peak represent its device? (The tensor level is shown with the device level.) */
static bool is_leading_peak(const struct result_report *r, const struct result_peak *p)
{
    if (p->bytes <= 0 || p->layer == RUN_SERIES_SHARED) return false;
    return p->layer != RUN_SERIES_TENSOR || !shown_peak_of(r, p->process, p->device, RUN_SERIES_DEVICE);
}

/* The first `shown` of them. */
static void print_overview(const struct draw_text *v, const struct result_peak *const *lead, size_t n, size_t shown)
{
    const bool once = v->report->no_history;
    struct text_table t = {.head = {"", once ? "live" : "peak", once ? "" : "at", "tensors"}, .left = {true}};
    bool any = false;

    for (size_t i = 0; i < n; i++)
        any = any || (lead[i]->layer == RUN_SERIES_DEVICE &&
                      shown_peak_of(v->report, lead[i]->process, lead[i]->device, RUN_SERIES_TENSOR));
    t.head[3] = any ? t.head[3] : NULL;
    for (size_t i = 0; i < shown; i++) {
        const struct result_peak *p = lead[i], *in_tensors;
        char place[96], tensors[UNITS_TEXT] = "";
        in_tensors = shown_peak_of(v->report, p->process, p->device, RUN_SERIES_TENSOR);
        if (in_tensors && in_tensors != p) draw_bytes(tensors, in_tensors->bytes);
        const char *cells[] = {draw_device(v, place, sizeof place, p->process, p->device, p->layer),
                               DRAW_BYTES(p->bytes), once ? "" : UNITS_SECONDS(p->time_s), tensors};
        text_table_add(&t, cells, NULL);
    }
    draw_title(v, TERMINAL_BOLD,
               once        ? shown < n ? "Live, the fullest first" : "Live on each GPU"
               : shown < n ? "Peaks, the highest first"
                           : "Peaks");
    text_table_print(&t, &v->term, INDENT, v->out);
    draw_more(v, n, shown);
}

/* By rank, if the processes have them: files are found in the order of their names. */
static void sort_by_rank(const struct result_report *r, const struct result_peak **lead, size_t n)
{
    for (size_t i = 1; i < n && n <= 4096; i++) {
        const struct result_peak *p = lead[i];
        int64_t rank = p->process < r->processes_n ? r->processes[p->process].rank : RUN_UNKNOWN;
        size_t at = i;
        for (; at > 0 && lead[at - 1]->process < r->processes_n && r->processes[lead[at - 1]->process].rank > rank;
             at--)
            lead[at] = lead[at - 1];
        lead[at] = p;
    }
}

/* Without those below a thousandth of the largest, such as the pinned bytes of an .item(). */
static size_t drop_small_peaks(const struct result_peak **lead, size_t n)
{
    int64_t most = 0;
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) most = lead[i]->bytes > most ? lead[i]->bytes : most;
    for (size_t i = 0; i < n; i++)
        if (lead[i]->bytes >= most / 1000) lead[kept++] = lead[i];
    return kept;
}

/* The host's memory comes last. */
SORT_ORDER_OF_POINTERS(by_bytes, struct result_peak,
                       SORT_DOWN(x->device >= 0, y->device >= 0) ?: SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x, y))

void view_text_memory(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    const struct result_peak **lead = arena_zeroed(r->peaks_n + 1, sizeof *lead);
    size_t n = 0;

    for (size_t i = 0; i < r->peaks_n; i++)
        if (is_leading_peak(r, &r->peaks[i])) lead[n++] = &r->peaks[i];
    if (v->brief) n = drop_small_peaks(lead, n);
    size_t shown = n;
    sort_by_rank(r, lead, n);
    if (n > PLACES_MAX) {
        const bool many = n > (v->brief ? PLACES_MANY / 2 : PLACES_MANY);
        if (many) SORT(lead, n, by_bytes);
        print_overview(v, lead, n, many && v->top < n ? v->top : n);
        SORT(lead, n, by_bytes);
        shown = 1;
    }
    if (v->brief && shown > 1) {
        size_t gpus = 0;
        for (size_t i = 0; i < n; i++) gpus += lead[i]->device >= 0;
        const bool in_ranks = r->ranks_n && gpus == r->ranks_n; /* their table has the same figures */
        if (!in_ranks) print_overview(v, lead, n, n);
        SORT(lead, n, by_bytes);
        shown = 1;
    }
    for (size_t i = 0; i < shown; i++) (lead[i]->device >= 0 ? print_device_memory : print_host_memory)(v, lead[i]);
    free(lead);
}
