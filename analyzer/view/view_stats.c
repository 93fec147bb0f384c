#include "analyzer/view/view_stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/arena.h"
#include "analyzer/draw/json_site.h"
#include "analyzer/json/json_parts.h"
#include "analyzer/base/text.h"
#include "analyzer/base/text_table.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"

#define SIZE_STEP 2  /* size classes per row: each is four times the previous one */
#define SIZE_FIRST 9 /* up to 512 B, PyTorch's minimum */

static const char *const space_words[8] = {
    [GS_SPACE_DEVICE] = "cudaMalloc", [GS_SPACE_MANAGED] = "managed", [GS_SPACE_PINNED] = "pinned",
    [GS_SPACE_POOL] = "pool",         [GS_SPACE_VMM] = "vmm",         [GS_SPACE_ARRAY] = "array",
};

bool view_stats_has_layer(const struct view_stats *x, int layer)
{
    return x->all.layers[layer].allocations > 0 && layer != RUN_SERIES_SHARED && layer != RUN_SERIES_GRAPH;
}

static int64_t most_live(const struct run *run, int layer)
{
    int64_t most = 0;

    for (uint32_t i = 0; i < run_series_count(run); i++) {
        const struct run_series *s = run_series(run, i);
        if ((int)s->layer == layer) most = s->peak_bytes > most ? s->peak_bytes : most;
    }
    return most;
}

static void total_row(const struct view_stats *x, struct text_table *t, const char *name,
                      void (*figure)(char *, const struct view_stats *, const struct profile_statistics_layer *, int))
{
    char text[RUN_SERIES_LAYERS][UNITS_TEXT];
    const char *cells[TEXT_TABLE_COLUMNS] = {name};
    size_t n = 1;

    for (int i = 0; i < RUN_SERIES_LAYERS; i++) {
        if (view_stats_has_layer(x, i)) {
            figure(text[i], x, &x->all.layers[i], i);
            cells[n++] = text[i];
        }
    }
    text_table_add(t, cells, NULL);
}

#define FIGURE(name, ...)                                                                                        \
    static void name(char *out, const struct view_stats *x, const struct profile_statistics_layer *l, int layer) \
    {                                                                                                            \
        (void)x, (void)l, (void)layer;                                                                           \
        __VA_ARGS__;                                                                                             \
    }
FIGURE(figure_allocations, units_format_count(out, l->allocations))
FIGURE(figure_frees, units_format_count(out, l->frees))
FIGURE(figure_kept, units_format_count(out, l->kept.count))
FIGURE(figure_allocated, draw_bytes(out, l->allocated))
FIGURE(figure_peak, draw_bytes(out, most_live(x->report->run, layer)))
FIGURE(figure_end, draw_bytes(out, l->kept.bytes))
FIGURE(figure_mean, draw_bytes(out, l->allocations ? l->allocated / (int64_t)l->allocations : 0))
FIGURE(figure_largest, snprintf(out, UNITS_TEXT, "%s%s", l->rows < l->allocations ? "≥ " : "", DRAW_BYTES(l->largest)))
FIGURE(figure_life, *out = 0; if (l->frees) units_format_seconds(out, l->life_ns / (double)l->frees / 1e9))
FIGURE(figure_rate, units_format_count(out, units_whole(x->report->duration_s > 0
                                                            ? (double)l->allocations / x->report->duration_s + 0.5
                                                            : 0)))
FIGURE(figure_step, units_format_mean(out, (double)l->rows / (double)x->steps / (double)x->report->steps_n))

static void print_totals(const struct draw_text *t, const struct view_stats *x)
{
    struct text_table table = {.head = {""}, .left = {true}};
    size_t n = 1;

    for (int i = 0; i < RUN_SERIES_LAYERS; i++)
        if (view_stats_has_layer(x, i))
            table.head[n++] = i == RUN_SERIES_PINNED ? "pinned" : draw_layer_word((enum run_series_layer)i);
    table.head[n] = "";
    draw_title(t, TERMINAL_BOLD, t->report->no_history ? "Live" : "Allocations");
    total_row(x, &table, t->report->no_history ? "blocks" : "allocations", figure_allocations);
    if (!t->report->no_history) {
        total_row(x, &table, "frees", figure_frees);
        total_row(x, &table, "not freed", figure_kept);
        if (!t->report->no_times) total_row(x, &table, "per second", figure_rate);
        if (x->steps) total_row(x, &table, "per step", figure_step);
    }
    total_row(x, &table, "bytes in total", figure_allocated);
    if (!t->report->no_history) {
        total_row(x, &table, "peak", figure_peak);
        total_row(x, &table, "at the end", figure_end);
    }
    total_row(x, &table, "mean size", figure_mean);
    total_row(x, &table, "largest", figure_largest);
    if (!t->report->no_times && !t->report->no_history) total_row(x, &table, "mean lifetime", figure_life);
    text_table_print(&table, &t->term, INDENT, t->out);
}

/* If not everything came from plain cudaMalloc. */
static void print_spaces(const struct draw_text *t, const struct view_stats *x)
{
    const struct profile_statistics_layer *l = &x->all.layers[RUN_SERIES_DEVICE];
    struct text_table table = {.head = {"kind of GPU memory", "allocations", "bytes", ""}, .left = {true}};

    if (l->spaces[GS_SPACE_DEVICE].count == l->allocations) return;
    for (int i = 0; i < 8; i++) {
        if (!l->spaces[i].count) continue;
        const char *word = i == GS_SPACE_VMM ? "mapped physical memory" : space_words[i];
        const char *cells[] = {word ? word : "other", UNITS_COUNT(l->spaces[i].count), DRAW_BYTES(l->spaces[i].bytes),
                               ""};
        text_table_add(&table, cells, NULL);
    }
    fputc('\n', t->out);
    text_table_print(&table, &t->term, INDENT, t->out);
}

#define BAR 30

static void bar_text(const struct terminal *t, double share, int columns, char *out, size_t size)
{
    static const char *const part[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int eighths = (int)(share * columns * 8 + 0.5), at = 0;

    eighths = eighths < 1 && share > 0 ? 1 : eighths;
    out[0] = 0;
    for (int i = 0; i < (t->utf8 ? eighths / 8 : (eighths + 7) / 8) && (size_t)at + 4 < size; i++)
        at += snprintf(out + at, size - (size_t)at, "%s", t->utf8 ? "█" : "#");
    if (t->utf8) snprintf(out + at, size - (size_t)at, "%s", part[eighths % 8]);
}

static void class_row(const struct draw_text *t, struct text_table *table, const char *name,
                      const struct profile_statistics_tally *k, uint64_t all, uint64_t most)
{
    char bar[BAR * 4 + 8];
    int columns = t->term.width / 4 > BAR ? BAR : t->term.width / 4;

    bar_text(&t->term, most ? (double)k->count / (double)most : 0, columns, bar, sizeof bar);
    const char *cells[] = {name, UNITS_COUNT(k->count), UNITS_SHARE(all ? (double)k->count / (double)all : 0),
                           DRAW_BYTES(k->bytes), bar};
    text_table_add(table, cells, NULL);
}

static const char *counted_word(const struct view_stats *x)
{
    return x->layer == RUN_SERIES_DEVICE ? "CUDA allocations" : draw_layer_word(x->layer);
}

/* "Sizes of tensors", in a bounded recording "Sizes of 12,000 of 90,000 tensors: of the others only sums are known". */
static void heading_of_rows(const struct draw_text *t, const struct view_stats *x, const char *what)
{
    const struct profile_statistics_layer *l = &x->all.layers[x->layer];
    char rows[UNITS_TEXT], all[UNITS_TEXT];

    if (l->rows >= l->allocations)
        draw_heading(t, TERMINAL_BOLD, what, " of %s", counted_word(x));
    else
        draw_heading(t, TERMINAL_BOLD, what, " of %s of %s %s (GPUSPY_KEEP: of the others only the sums are known)",
                     units_format_count(rows, l->rows), units_format_count(all, l->allocations), counted_word(x));
}

/* Powers of two, two per row; all below the first are one. */
static size_t size_rows(const struct profile_statistics_layer *l, struct profile_statistics_tally *rows)
{
    size_t n = 0;

    for (unsigned i = 0; i < STATISTICS_SIZES; i++) {
        size_t row = i < SIZE_FIRST ? 0 : (i - SIZE_FIRST) / SIZE_STEP + 1;
        rows[row].count += l->sizes[i].count;
        rows[row].bytes = arena_add_capped(rows[row].bytes, l->sizes[i].bytes);
        n = l->sizes[i].count ? row + 1 : n;
    }
    return n;
}

static void print_sizes(const struct draw_text *t, const struct view_stats *x)
{
    const struct profile_statistics_layer *l = &x->all.layers[x->layer];
    struct profile_statistics_tally rows[STATISTICS_SIZES] = {{0}};
    struct text_table table = {.head = {"from", "count", "share", "bytes", ""}, .left = {[4] = true}};
    size_t n = size_rows(l, rows), first = 0;
    uint64_t most = 0;

    while (first < n && !rows[first].count) first++;
    for (size_t i = 0; i < n; i++) most = rows[i].count > most ? rows[i].count : most;
    for (size_t i = first; i < n; i++) {
        uint64_t from = i ? (uint64_t)1 << (SIZE_FIRST + (i - 1) * SIZE_STEP) : 0;
        class_row(t, &table, UNITS_BYTES(from), &rows[i], l->rows, most);
        char *dot = table.n ? strchr(table.rows[table.n - 1].cell[0], '.') : NULL;
        if (dot && strncmp(dot, ".00", 3) == 0)
            memmove(dot, dot + 3, strlen(dot + 3) + 1); /* "2 KiB": the limits are whole numbers */
    }
    heading_of_rows(t, x, "Sizes");
    text_table_print(&table, &t->term, INDENT, t->out);
}

static void print_lives(const struct draw_text *t, const struct view_stats *x)
{
    const struct profile_statistics_layer *l = &x->all.layers[x->layer];
    static const char *const names[STATISTICS_LIVES] = {"below 10 ns", "10 ns", "100 ns", "1 us", "10 us", "100 us",
                                                        "1 ms",        "10 ms", "100 ms", "1 s",  "10 s",  "100 s"};
    struct text_table table = {.head = {"from", "count", "share", "bytes", ""}, .left = {[4] = true}};
    uint64_t most = l->kept.count;
    int first = 0, last = STATISTICS_LIVES - 1;

    while (first < last && !l->lives[first].count) first++;
    while (last > first && !l->lives[last].count) last--;
    for (int i = first; i <= last; i++) most = l->lives[i].count > most ? l->lives[i].count : most;
    for (int i = first; i <= last && l->frees; i++) class_row(t, &table, names[i], &l->lives[i], l->rows, most);
    if (l->kept.count) class_row(t, &table, "not freed", &l->kept, l->rows, most);
    heading_of_rows(t, x, "Lifetimes");
    text_table_print(&table, &t->term, INDENT, t->out);
}

static void frame_cell(const void *view, const void *item, char *out, size_t size, int columns)
{
    const struct profile_tally_row *r = item;

    if (r->name)
        snprintf(out, size, "%.*s", columns, strcmp(r->name, "optimizer_state") == 0 ? "optimizer state" : r->name);
    else if (r->frame)
        draw_frame(view, out, size, r->frame, columns);
    else
        snprintf(out, size, "%.*s", columns, "(no stack recorded)");
}

static void print_tally_list(const struct draw_text *t, const struct view_stats *x, const struct profile_tally *lines,
                             const char *what, const char *last)
{
    struct text_table table = {.last = frame_cell, .self = t, .head = {"bytes", "share", "count", "share", last}};
    size_t shown = lines->n < t->top || lines == x->categories ? lines->n : t->top;

    if (!shown) return;
    draw_heading(t, TERMINAL_BOLD, what, ": %s", counted_word(x));
    EACH (r, lines->rows, shown) {
        char bytes[UNITS_TEXT];
        if (r->own <= 0 && !r->own_count) continue;
        const char *cells[] = {draw_bytes(bytes, r->own),
                               UNITS_SHARE(x->profile->total ? (double)r->own / (double)x->profile->total : 0),
                               UNITS_COUNT(r->own_count),
                               UNITS_SHARE(x->profile->count ? (double)r->own_count / (double)x->profile->count : 0)};
        text_table_add(&table, cells, r);
    }
    text_table_print(&table, &t->term, INDENT, t->out);
}

/* By bytes, and by number unless that lists the same lines. */
static void print_stats_lines(const struct draw_text *t, const struct view_stats *x)
{
    struct profile_tally *lines = x->lines;
    const size_t shown = lines->n < t->top ? lines->n : t->top;

    profile_tally_sort(lines, TALLY_BY_OWN);
    const int64_t least = shown ? lines->rows[shown - 1].own : 0;
    print_tally_list(t, x, lines, "Most bytes, by line", "line");
    profile_tally_sort(lines, TALLY_BY_COUNT);
    if (ANY_OF(r, lines->rows, shown, r->own < least))
        print_tally_list(t, x, lines, "Most allocations, by line", "line");
}

void view_stats(const struct draw_text *t, const struct view_stats *x)
{
    view_text_run(t);
    if (!x->profile) {
        const char *unknown = t->report->no_memory;
        fputc('\n', t->out);
        draw_wrap(t, 0, "", unknown ? "Memory is unknown: %s" : "Nothing was allocated%s", unknown ? unknown : "");
        return;
    }
    print_totals(t, x);
    print_spaces(t, x);
    print_sizes(t, x);
    if (!t->report->no_times && !t->report->no_history) print_lives(t, x);
    if (x->categories->n > 1 || (x->categories->n == 1 && strcmp(x->categories->rows[0].name, "unknown") != 0))
        print_tally_list(t, x, x->categories, "All allocations, by category", "category");
    print_stats_lines(t, x);
    view_text_scopes(t);
}

static json_t *tally_json(const struct profile_statistics_tally *k)
{
    json_t *o = json_object();

    SET_MEMBERS(o, k, count, bytes);
    return o;
}

static json_t *sizes_json(const struct profile_statistics_layer *l)
{
    json_t *a = json_array();

    for (unsigned i = 0; i < STATISTICS_SIZES; i++) {
        if (!l->sizes[i].count) continue;
        json_t *o = tally_json(&l->sizes[i]);
        set_count(o, "from_bytes", i ? (uint64_t)1 << i : 0);
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *lives_json(const struct profile_statistics_layer *l)
{
    json_t *a = json_array();
    double from = 1e-9;

    for (unsigned i = 0; i < STATISTICS_LIVES; i++, from *= 10) {
        if (!l->lives[i].count) continue;
        json_t *o = tally_json(&l->lives[i]);
        set_real(o, "from_s", i ? from : 0);
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *layer_json(const struct view_stats *x, int layer)
{
    const struct profile_statistics_layer *l = &x->all.layers[layer];
    json_t *o = json_object(), *by_space = json_object();

    SET_MEMBERS(o, l, allocations, frees);
    set_count(o, "allocations_with_rows", l->rows); /* those of sizes[], lifetimes[] and largest_bytes */
    set_bytes(o, "allocated_bytes", l->allocated);
    set_bytes(o, "freed_bytes", l->freed);
    set_bytes(o, "largest_bytes", l->largest);
    set_real(o, "mean_life_s", l->frees ? l->life_ns / (double)l->frees / 1e9 : NAN);
    set_real(o, "allocations_per_s", x->report->duration_s > 0 ? (double)l->allocations / x->report->duration_s : NAN);
    set_json(o, "not_freed", tally_json(&l->kept));
    set_json(o, "sizes", sizes_json(l));
    set_json(o, "lifetimes", lives_json(l));
    for (int i = 0; i < 8; i++)
        if (l->spaces[i].count && layer == RUN_SERIES_DEVICE)
            set_json(by_space,
                     i == GS_SPACE_DEVICE ? "device"
                     : space_words[i]     ? space_words[i]
                                          : "other",
                     tally_json(&l->spaces[i]));
    set_json(o, "by_space", by_space);
    return o;
}

static json_t *lines_json(const struct profile_tally *t, size_t top, bool names)
{
    json_t *a = json_array();

    for (size_t i = 0; i < t->n && (i < top || names); i++) {
        const struct profile_tally_row *r = &t->rows[i];
        if (!r->own_count) continue;
        json_t *o = json_add_object(a);
        if (names)
            set_text(o, "category", r->name);
        else
            set_json(o, "frame", r->frame ? draw_json_frame(r->frame) : NULL);
        set_bytes(o, "bytes", r->own);
        set_count(o, "count", r->own_count);
    }
    return a;
}

void view_stats_json(json_t *o, const struct view_stats *x, size_t top)
{
    json_t *layers = json_object();

    set_real(o, "duration_s", x->report->duration_s);
    set_count(o, "events", x->report->events);
    set_text(o, "torch_version", x->report->processes_n ? x->report->processes[0].torch_version : NULL);
    for (int i = 0; i < RUN_SERIES_LAYERS; i++)
        if (view_stats_has_layer(x, i))
            set_json(layers, result_series_word((enum run_series_layer)i), layer_json(x, i));
    set_json(o, "layers", layers);
    set_text(o, "layer", x->profile ? result_series_word(x->layer) : NULL);
    set_json(o, "by_category", x->profile ? lines_json(x->categories, 0, true) : json_array());
    if (x->profile) profile_tally_sort(x->lines, TALLY_BY_OWN);
    set_json(o, "most_bytes", x->profile ? lines_json(x->lines, top, false) : json_array());
    if (x->profile) profile_tally_sort(x->lines, TALLY_BY_COUNT);
    set_json(o, "most_allocations", x->profile ? lines_json(x->lines, top, false) : json_array());
    set_json(o, "scopes", json_scopes(x->report));
}
