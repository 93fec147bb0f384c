#include "analyzer/view/view_leaks.h"

#include <stdio.h>
#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/json/json_parts.h"
#include "analyzer/site/site.h"
#include "analyzer/base/text.h"
#include "analyzer/base/text_table.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"
#include "analyzer/base/sort.h"

static bool is_entry_growing(const struct result_report *r, const struct profile_entry *e)
{
    return ANY_IN(l, r->leaks,
                  l->growing && l->process == e->process && l->device == e->device && l->layer == e->layer &&
                      l->stack.number == e->stack);
}

SORT_ORDER(compare_leak_rows, struct view_leak_row,
           SORT_DOWN(x->growing, y->growing) ?: SORT_DOWN(x->bytes, y->bytes) ?: site_compare(&x->site, &y->site)
               ?: SORT_UP(x->category, y->category))

/* A row for each call path, or for each line, whatever path led to it and in which process. `paths`: those that have
 * been added. */
static void add_leak_row(struct view_leaks *out, struct map *index, struct map *paths, const struct view_leak_row *row,
                         bool by_line)
{
    const uint64_t kind = (uint64_t)row->layer << 8 | row->category;
    uint32_t *at = by_line ? map_at(index, map_hash(site_line_key(&row->site)) + kind) : NULL;
    uint32_t *path = by_line ? map_at(paths, map_hash(site_key(&row->site)) + kind) : NULL;
    const bool new_path = path && *path == MAP_NEW;

    if (path) *path = 1;
    if (at && *at != MAP_NEW) {
        struct view_leak_row *same = &out->list[*at];
        same->bytes = arena_add_capped(same->bytes, row->bytes);
        same->count += row->count;
        same->growing = same->growing || row->growing;
        site_keep_common(&same->site, &row->site);
        if (new_path) same->site.paths += same->site.paths ? 1 : 2;
        return;
    }
    if (at) *at = (uint32_t)out->n;
    *ARENA_PUSH(out->list, out->n, out->cap) = *row;
}

void view_leaks_collect(struct run *run, const struct result_report *r, const struct profile *p, int64_t min,
                        bool by_line, struct view_leaks *out)
{
    struct map helpers = {0}, index = {0}, paths = {0};
    size_t kept = 0;

    site_helpers(run, &helpers);
    EACH (e, p->entries, p->n) {
        struct view_leak_row row = {.process = e->process,
                                    .stack = e->stack,
                                    .device = e->device,
                                    .layer = e->layer,
                                    .category = e->category,
                                    .bytes = e->weight,
                                    .count = e->count,
                                    .site = site_of(run, e->stack, &helpers)};
        row.growing = is_entry_growing(r, e);
        add_leak_row(out, &index, &paths, &row, by_line);
    }
    for (size_t i = 0; i < out->n; i++)
        if (out->list[i].bytes >= min) out->list[kept++] = out->list[i];
    out->n = kept;
    for (size_t i = 0; i < out->n; i++) {
        out->bytes = arena_add_capped(out->bytes, out->list[i].bytes);
        out->count += out->list[i].count;
    }
    SORT(out->list, out->n, compare_leak_rows);
    MAP_RELEASE(&helpers, &index, &paths);
}

static void print_rows(const struct draw_text *t, const struct view_leaks *rows)
{
    struct text_table table = {SITES(t), .head = {"bytes", "blocks", "kind", "category", "", "line"},
                               .left = {false, false, true, true, true, true}};
    size_t shown = rows->n < t->top ? rows->n : t->top;

    EACH (r, rows->list, shown) {
        bool uncategorized = r->category == RESULT_CATEGORY_UNKNOWN;
        const char *cells[] = {DRAW_BYTES(r->bytes), UNITS_COUNT(r->count), draw_layer_word(r->layer),
                               uncategorized ? "" : result_category_text(r->category), r->growing ? "grows" : ""};
        struct text_table_row *row = text_table_add(&table, cells, &r->site);
        if (row && t->native) row->below = draw_trace(t, r->stack, 6);
    }
    text_table_print(&table, &t->term, 0, t->out);
    draw_more(t, rows->n, shown);
}

/* What grew and was freed by the end is what the report calls growth or, for an OOM, a leak: live until late. */
static void nothing_live(const struct draw_text *t)
{
    bool grew = t->report->growth_n > 0;

    if (t->report->no_memory) {
        draw_wrap(t, 0, "", "Memory is unknown: %s", t->report->no_memory);
        return;
    }
    draw_wrap(t, 0, "", "%s",
              t->report->lacks_n ? "Nothing is live at the end of the recording"
              : grew ? "Nothing is still live at exit: everything was freed by the end. Before that, memory "
                       "grew while the program ran:"
                     : "Nothing is still live at exit: everything that was allocated was freed");
}

void view_leaks(const struct draw_text *t, struct run *run, const struct view_leaks *rows)
{
    char amount[2 * UNITS_TEXT], line[512];

    if (t->report->no_history) {
        draw_wrap(t, 0, "", "gpuspy cannot judge which memory leaks: %s", t->report->no_history);
        return;
    }
    if (!rows->n) {
        nothing_live(t);
        view_text_growth(t);
        return;
    }
    text_put(amount, sizeof amount, "%s in %s", DRAW_BYTES(rows->bytes), UNITS_PLURAL(rows->count, "block", NULL));
    fprintf(t->out, "%s%s%s", terminal_style(&t->term, TERMINAL_BOLD), amount,
            terminal_style(&t->term, TERMINAL_PLAIN));
    text_wrap(t->out, &t->term, 0, terminal_columns(amount), false, view_end_sentence(t->report, line, sizeof line));
    if (t->report->growth_n) { /* the answer, before the complete list */
        view_text_growth(t);
        draw_title(t, TERMINAL_BOLD, "All that was live, by line");
    } else
        fputc('\n', t->out);
    print_rows(t, rows);
    if (ANY_IN(o, t->report->ooms, o->fatal)) { /* and then freed part of what the question is about */
        struct view_commands next = {.most = 1};
        view_add_command(&next, "table --what oom", "what was live when memory ran out");
        view_print_commands(t, &next);
    }
}

static json_t *leak_row_json(struct run *run, const struct result_report *r, const struct view_leak_row *row)
{
    const struct run_frame *frames[256];
    size_t n = profile_frames(run, row->stack, false, frames, 256);
    json_t *o = json_object(), *list = json_array();

    draw_json_where(o, r, row->process, row->device);
    set_text(o, "layer", result_series_word(row->layer));
    set_text(o, "category", result_category_word(row->category));
    SET_MEMBERS(o, row, bytes, count, growing);
    set_json(o, "site", draw_json_site(&row->site));
    while (n-- > 0) json_array_append_new(list, draw_json_frame(frames[n]));
    set_json(o, "frames", list);
    return o;
}

void view_leaks_json(json_t *o, struct run *run, const struct result_report *r, const struct view_leaks *rows,
                     size_t top)
{
    set_bool(o, "at_orderly_end", r->leaks_at_end);
    SET_MEMBERS(o, rows, bytes, count);
    set_json(o, "leaks", LIST_OF(rows->n < top ? rows->n : top, i, leak_row_json(run, r, &rows->list[i])));
    set_count(o, "leaks_total", rows->n);
    set_json(o, "growth", json_growth(r));
    set_json(o, "scopes", json_scopes(r));
}
