#include "analyzer/text/view_leaks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/json/json_parts.h"
#include "analyzer/question/site.h"
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
            if (n >= trace->n || trace->frames[n] != &f[i])
                return false;
    }
    return n == trace->n;
}

static bool grows(struct gs_run *run, const struct gs_report *r, const struct gs_profile_entry *e)
{
    for (size_t i = 0; i < r->leaks_n; i++)
        if (r->leaks[i].growing && r->leaks[i].process == e->process &&
            r->leaks[i].device == e->device && r->leaks[i].layer == e->layer &&
            same_stack(run, &r->leaks[i].stack, e->stack))
            return true;
    return false;
}

static int heavier(const void *a, const void *b)
{
    const struct leak_row *x = a, *y = b;

    if (x->growing != y->growing)
        return x->growing ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    int order = gs_site_order(&x->site, &y->site);
    return order ? order : (x->category > y->category) - (x->category < y->category);
}

/* A row for each call path, or by place, whatever path led to it and in which process. */
static void add(struct leaks *out, struct gs_map *index, const struct leak_row *row, bool by_place)
{
    uint64_t key = gs_hash64(gs_site_key(&row->site)) + ((uint64_t)row->layer << 8 | row->category);
    uint32_t *at = by_place ? gs_map_at(index, key) : NULL;

    if (at && *at != GS_MAP_NEW) {
        struct leak_row *same = &out->list[*at];
        same->bytes = gs_add(same->bytes, row->bytes);
        same->count += row->count;
        same->growing = same->growing || row->growing;
        return;
    }
    if (at)
        *at = (uint32_t)out->n;
    *GS_PUSH(out->list, out->n, out->cap) = *row;
}

void leaks_collect(struct gs_run *run, const struct gs_report *r, const struct gs_profile *p, int64_t min,
                   bool by_place, struct leaks *out)
{
    struct gs_map helpers = {0}, index = {0};
    size_t kept = 0;

    gs_site_helpers(run, &helpers);
    for (size_t i = 0; i < p->n; i++) {
        const struct gs_profile_entry *e = &p->entries[i];
        struct leak_row row = {.process = e->process, .stack = e->stack, .device = e->device,
                          .layer = e->layer, .category = e->category, .bytes = e->weight,
                          .count = e->count, .site = gs_site_of(run, e->stack, &helpers)};
        row.growing = grows(run, r, e);
        add(out, &index, &row, by_place);
    }
    for (size_t i = 0; i < out->n; i++)
        if (out->list[i].bytes >= min)
            out->list[kept++] = out->list[i];
    out->n = kept;
    for (size_t i = 0; i < out->n; i++) {
        out->bytes = gs_add(out->bytes, out->list[i].bytes);
        out->count += out->list[i].count;
    }
    if (out->n > 1)
        qsort(out->list, out->n, sizeof *out->list, heavier);
    gs_map_free(&helpers);
    gs_map_free(&index);
}

/* ---------------------------------------------------------------- text */

/* What the list is, which depends on how the programs ended. */
static const char *ending(const struct gs_report *r)
{
    bool died = false, recording = false, oom = false;

    for (size_t i = 0; i < r->processes_n; i++) {
        recording = recording || r->processes[i].recording;
        died = died || (!r->processes[i].complete && !r->processes[i].recording);
    }
    for (size_t i = 0; i < r->ooms_n; i++)
        oom = oom || r->ooms[i].fatal;
    return recording ? "Live now: the program is still recording, and what it holds is no leak yet"
           : died    ? "Live when the program died: it had no chance to free it, so that by itself it is "
                       "no leak; what grows is"
           : oom     ? "Live when the program ended, after it had run out of memory and let go of what it "
                       "could ('gpuspy table --what oom' shows what was live then); what grows is a leak"
                     : "Never freed: of a model that lives to the end that is no fault; what grows is";
}

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
        const char *cells[] = {view_bytes(bytes, r->bytes), format_count(count, r->count),
                               view_layer(r->layer), untold ? "" : gs_category_text(r->category),
                               r->growing ? "grows" : ""};
        struct table_row *row = table_add(&table, cells, &r->site);
        if (row && t->native)
            row->below = calls_of(t, run, r->stack);
    }
    table_print(&table, &t->term, 0, t->out);
    view_more(t, rows->n, shown);
}

void view_leaks(const struct view_text *t, struct gs_run *run, const struct leaks *rows)
{
    char bytes[UNITS_TEXT], count[UNITS_TEXT], line[256];

    if (!rows->n) {
        view_wrap(t, 0, "", "Nothing was left: all that was allocated was freed again");
        return;
    }
    text_put(line, sizeof line, "%s in %s block%s", view_bytes(bytes, rows->bytes),
             format_count(count, rows->count), rows->count == 1 ? "" : "s");
    fprintf(t->out, "%s%s%s\n", term_style(&t->term, TERM_BOLD), line, term_style(&t->term, TERM_PLAIN));
    view_wrap(t, 0, "", ending(t->report));
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
    while (n-- > 0)
        json_array_append_new(list, gs_json_frame(frames[n]));
    set(o, "frames", list);
    return o;
}

void view_leaks_json(json_t *o, struct gs_run *run, const struct gs_report *r, const struct leaks *rows,
                     size_t top)
{
    json_t *list = json_array();

    set_bool(o, "at_orderly_end", r->leaks_at_end);
    set_bytes(o, "bytes", rows->bytes);
    set_count(o, "count", rows->count);
    for (size_t i = 0; i < rows->n && i < top; i++)
        json_array_append_new(list, row_json(run, r, &rows->list[i]));
    set(o, "leaks", list);
    set_count(o, "leaks_total", rows->n);
}
