#include "analyzer/text/view_leaks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/json/json_parts.h"
#include "analyzer/site/site.h"
#include "analyzer/base/text.h"
#include "analyzer/base/text_table.h"
#include "analyzer/base/units.h"
#include "analyzer/text/view_text_parts.h"

static bool same_stack(struct gs_run *run, const struct gs_trace *trace, uint32_t stack)
{
    size_t n = 0, places;

    for (; stack != GS_NONE; stack = gs_stack_parent(run, stack)) {
        const struct gs_frame *f = gs_frame_places(run, stack, &places);
        for (size_t i = 0; i < places; i++, n++)
            if (n >= trace->n || trace->frames[n] != &f[i]) return false;
    }
    return n == trace->n;
}

static bool grows(struct gs_run *run, const struct gs_report *r, const struct gs_profile_entry *e)
{
    for (size_t i = 0; i < r->leaks_n; i++)
        if (r->leaks[i].growing && r->leaks[i].process == e->process && r->leaks[i].device == e->device &&
            r->leaks[i].layer == e->layer && same_stack(run, &r->leaks[i].stack, e->stack))
            return true;
    return false;
}

static int heavier(const void *a, const void *b)
{
    const struct leak_row *x = a, *y = b;

    if (x->growing != y->growing) return x->growing ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    int order = gs_site_order(&x->site, &y->site);
    return order ? order : (x->category > y->category) - (x->category < y->category);
}

/* A row for each call path, or by line, whatever path led to it and in which process. `paths`: those that were seen. */
static void add(struct leaks *out, struct gs_map *index, struct gs_map *paths, const struct leak_row *row, bool by_line)
{
    const uint64_t kind = (uint64_t)row->layer << 8 | row->category;
    uint32_t *at = by_line ? gs_map_at(index, gs_hash64(gs_site_line_key(&row->site)) + kind) : NULL;
    uint32_t *path = by_line ? gs_map_at(paths, gs_hash64(gs_site_key(&row->site)) + kind) : NULL;
    const bool new_path = path && *path == GS_MAP_NEW;

    if (path) *path = 1;
    if (at && *at != GS_MAP_NEW) {
        struct leak_row *same = &out->list[*at];
        same->bytes = gs_add(same->bytes, row->bytes);
        same->count += row->count;
        same->growing = same->growing || row->growing;
        gs_site_keep_common(&same->site, &row->site);
        if (new_path) same->site.paths += same->site.paths ? 1 : 2;
        return;
    }
    if (at) *at = (uint32_t)out->n;
    *GS_PUSH(out->list, out->n, out->cap) = *row;
}

void leaks_collect(struct gs_run *run, const struct gs_report *r, const struct gs_profile *p, int64_t min, bool by_line,
                   struct leaks *out)
{
    struct gs_map helpers = {0}, index = {0}, paths = {0};
    size_t kept = 0;

    gs_site_helpers(run, &helpers);
    for (size_t i = 0; i < p->n; i++) {
        const struct gs_profile_entry *e = &p->entries[i];
        struct leak_row row = {.process = e->process,
                               .stack = e->stack,
                               .device = e->device,
                               .layer = e->layer,
                               .category = e->category,
                               .bytes = e->weight,
                               .count = e->count,
                               .site = gs_site_of(run, e->stack, &helpers)};
        row.growing = grows(run, r, e);
        add(out, &index, &paths, &row, by_line);
    }
    for (size_t i = 0; i < out->n; i++)
        if (out->list[i].bytes >= min) out->list[kept++] = out->list[i];
    out->n = kept;
    for (size_t i = 0; i < out->n; i++) {
        out->bytes = gs_add(out->bytes, out->list[i].bytes);
        out->count += out->list[i].count;
    }
    if (out->n > 1) qsort(out->list, out->n, sizeof *out->list, heavier);
    gs_map_free(&helpers);
    gs_map_free(&index);
    gs_map_free(&paths);
}

/* ---------------------------------------------------------------- text */

static char *calls_of(const struct view_text *t, struct gs_run *run, uint32_t stack)
{
    const struct gs_frame *frames[64];
    struct gs_trace trace = {.n = gs_profile_frames(run, stack, true, frames, 64), .frames = frames};

    for (size_t i = 0; i < trace.n / 2; i++) { /* innermost first */
        const struct gs_frame *f = frames[i];
        frames[i] = frames[trace.n - 1 - i];
        frames[trace.n - 1 - i] = f;
    }
    return view_trace(t, &trace, 6);
}

static void print_rows(const struct view_text *t, struct gs_run *run, const struct leaks *rows)
{
    struct table table = {SITES(t), .head = {"bytes", "blocks", "of", "for", "", "line"},
                          .left = {false, false, true, true, true, true}};
    size_t shown = rows->n < t->top ? rows->n : t->top;

    for (size_t i = 0; i < shown; i++) {
        const struct leak_row *r = &rows->list[i];
        char bytes[UNITS_TEXT], count[UNITS_TEXT];
        bool untold = r->category == GS_CATEGORY_UNKNOWN;
        const char *cells[] = {view_bytes(bytes, r->bytes), format_count(count, r->count), view_layer(r->layer),
                               untold ? "" : gs_category_text(r->category), r->growing ? "grows" : ""};
        struct table_row *row = table_add(&table, cells, &r->site);
        if (row && t->native) row->below = calls_of(t, run, r->stack);
    }
    table_print(&table, &t->term, 0, t->out);
    view_more(t, rows->n, shown);
}

/* What grew and was freed by the end is what the report calls growth or, of an OOM, a leak: live until late. */
static void nothing_live(const struct view_text *t)
{
    bool grew = t->report->growth_n > 0;

    view_wrap(t, 0, "",
              grew ? "Nothing is still live at exit: everything was freed by the end. Before that, memory "
                     "grew while the program ran:"
                   : "Nothing is still live at exit: everything that was allocated was freed");
}

void view_leaks(const struct view_text *t, struct gs_run *run, const struct leaks *rows)
{
    char bytes[UNITS_TEXT], count[UNITS_TEXT], line[256];

    if (!rows->n) {
        nothing_live(t);
        view_text_growth(t);
        return;
    }
    text_put(line, sizeof line, "%s in %s", view_bytes(bytes, rows->bytes),
             format_plural(count, rows->count, "block", NULL));
    fprintf(t->out, "%s%s%s\n", term_style(&t->term, TERM_BOLD), line, term_style(&t->term, TERM_PLAIN));
    view_wrap(t, 0, "", view_end_sentence(t->report, line, sizeof line));
    fputc('\n', t->out);
    print_rows(t, run, rows);
    view_text_growth(t);
}

/* ---------------------------------------------------------------- JSON */

static json_t *row_json(struct gs_run *run, const struct gs_report *r, const struct leak_row *row)
{
    const struct gs_frame *frames[256];
    size_t n = gs_profile_frames(run, row->stack, false, frames, 256);
    json_t *o = json_object(), *list = json_array();

    gs_json_where(o, r, row->process, row->device);
    set_text(o, "layer", gs_series_word(row->layer));
    set_text(o, "category", gs_category_word(row->category));
    set_bytes(o, "bytes", row->bytes);
    set_count(o, "count", row->count);
    set_bool(o, "growing", row->growing);
    set(o, "site", gs_json_site(&row->site));
    while (n-- > 0) json_array_append_new(list, gs_json_frame(frames[n]));
    set(o, "frames", list);
    return o;
}

void view_leaks_json(json_t *o, struct gs_run *run, const struct gs_report *r, const struct leaks *rows, size_t top)
{
    json_t *list = json_array();

    set_bool(o, "at_orderly_end", r->leaks_at_end);
    set_bytes(o, "bytes", rows->bytes);
    set_count(o, "count", rows->count);
    for (size_t i = 0; i < rows->n && i < top; i++) json_array_append_new(list, row_json(run, r, &rows->list[i]));
    set(o, "leaks", list);
    set_count(o, "leaks_total", rows->n);
    set(o, "growth", gs_json_growth(r));
}
