/* gpuspy leaks: what was never freed, and what of it grows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/json_parts.h"
#include "analyzer/question.h"
#include "analyzer/text.h"
#include "analyzer/text_table.h"
#include "analyzer/units.h"
#include "analyzer/view_text_parts.h"
#include "analyzer/viewing.h"

#define TOP_LEAKS 20

struct settings {
    struct viewing_settings view;
    uint64_t min;
    bool native;
};

static const struct option_row options[] = {
    {"min", 0, OPTION_BYTES, offsetof(struct settings, min), "SIZE", NULL, 0, 1e18,
     "leave out what holds less, such as 1MiB"},
    {"native", 0, OPTION_FLAG, offsetof(struct settings, native), NULL, NULL, 0, 0,
     "a row for each call path, with its calls, C and C++ functions included"},
    VIEWING_TOP(struct settings, view, "at most N rows; the default is 20, with --json all"),
    VIEWING_OPTIONS(struct settings, view),
    {0},
};

static const struct example examples[] = {
    {"gpuspy leaks run.db", "what was never freed, by line, and what of it grows"},
    {"gpuspy leaks --min 1MiB --native run.db", "the larger ones, with the calls that led there"},
    {"gpuspy check --no-leaks run.db", "exit status 1 where something leaks: for CI"},
    {0},
};

const struct command_text text_leaks = {
    .options = options,
    .about =
        "Lists what was not freed by the end of the recording: which line made it, what it is for, and "
        "whether it grows. Of a model that lives to the end that is no fault: parameters and optimizer "
        "state are there as long as the program is. What grows is a leak.\n\n"
        "Of a program that was killed, crashed or ran out of memory it is what was live when it died, "
        "which says nothing about leaks by itself, and is called so. The exit status is 0 whatever is "
        "found; 'gpuspy check --no-leaks' is for scripts that want to fail.",
    .examples = examples,
};

/* ---------------------------------------------------------------- rows */

struct row {
    uint32_t process, stack;
    int device;
    enum gs_series_layer layer;
    enum gs_category category;
    struct gs_site site;
    int64_t bytes;
    uint64_t count;
    bool growing;
};

struct rows {
    struct row *list;
    size_t n, cap;
    int64_t bytes;
    uint64_t count;
};

static bool grows(const struct gs_report *r, const struct gs_profile_entry *e, const struct gs_site *site)
{
    for (size_t i = 0; i < r->leaks_n; i++)
        if (r->leaks[i].growing && r->leaks[i].process == e->process &&
            r->leaks[i].layer == e->layer && gs_site_key(&r->leaks[i].stack.site) == gs_site_key(site))
            return true;
    return false;
}

static int heavier(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    if (x->growing != y->growing)
        return x->growing ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    int order = gs_site_order(&x->site, &y->site);
    return order ? order : (x->category > y->category) - (x->category < y->category);
}

/* A row for each call path, or by place, whatever path led to it and in which process. */
static void add(struct rows *out, struct gs_map *index, const struct row *row, bool by_place)
{
    uint64_t key = gs_hash64(gs_site_key(&row->site)) + ((uint64_t)row->layer << 8 | row->category);
    uint32_t *at = by_place ? gs_map_at(index, key) : NULL;

    if (at && *at != GS_MAP_NEW) {
        struct row *same = &out->list[*at];
        same->bytes = gs_add(same->bytes, row->bytes);
        same->count += row->count;
        same->growing = same->growing || row->growing;
        return;
    }
    if (at)
        *at = (uint32_t)out->n;
    *GS_PUSH(out->list, out->n, out->cap) = *row;
}

static void collect(struct gs_run *run, const struct gs_report *r, const struct gs_profile *p,
                    const struct settings *s, struct rows *out)
{
    struct gs_map helpers = {0}, index = {0};
    size_t kept = 0;

    gs_site_helpers(run, &helpers);
    for (size_t i = 0; i < p->n; i++) {
        const struct gs_profile_entry *e = &p->entries[i];
        struct row row = {.process = e->process, .stack = e->stack, .device = e->device,
                          .layer = e->layer, .category = e->category, .bytes = e->weight,
                          .count = e->count, .site = gs_site_of(run, e->stack, &helpers)};
        row.growing = grows(r, e, &row.site);
        add(out, &index, &row, !s->native && !s->view.json);
    }
    for (size_t i = 0; i < out->n; i++)
        if (out->list[i].bytes >= (int64_t)s->min)
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

static void print_rows(const struct view_text *t, struct gs_run *run, const struct rows *rows)
{
    struct table table = {SITES(t), .head = {"bytes", "blocks", "of", "for", "", "line"},
                          .left = {false, false, true, true, true, true}};
    size_t shown = rows->n < t->top ? rows->n : t->top;

    for (size_t i = 0; i < shown; i++) {
        const struct row *r = &rows->list[i];
        char bytes[UNITS_TEXT], count[UNITS_TEXT];
        bool untold = r->category == GS_CATEGORY_UNKNOWN;
        const char *cells[] = {view_bytes(bytes, r->bytes), format_count(count, r->count),
                               view_layer(r->layer), untold ? "" : view_category(r->category),
                               r->growing ? "grows" : ""};
        struct table_row *row = table_add(&table, cells, &r->site);
        if (row && t->native)
            row->below = calls_of(t, run, r->stack);
    }
    table_print(&table, &t->term, 0, t->out);
    view_more(t, rows->n, shown);
}

static void print(const struct view_text *t, struct gs_run *run, const struct gs_report *r,
                  const struct rows *rows)
{
    char bytes[UNITS_TEXT], count[UNITS_TEXT], line[256];

    if (!rows->n) {
        view_wrap(t, 0, "", "Nothing was left: all that was allocated was freed again");
        return;
    }
    text_put(line, sizeof line, "%s in %s block%s", view_bytes(bytes, rows->bytes),
             format_count(count, rows->count), rows->count == 1 ? "" : "s");
    fprintf(t->out, "%s%s%s\n", term_style(&t->term, TERM_BOLD), line, term_style(&t->term, TERM_PLAIN));
    view_wrap(t, 0, "", ending(r));
    fputc('\n', t->out);
    print_rows(t, run, rows);
    view_text_growth(t);
}

/* ---------------------------------------------------------------- JSON */

static json_t *row_json(struct gs_run *run, const struct gs_report *r, const struct row *row)
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

static int print_json(struct viewing *v, const struct gs_report *r, const struct rows *rows)
{
    json_t *o = viewing_json_head(v), *list = json_array();
    size_t top = v->settings->top ? (size_t)v->settings->top : SIZE_MAX;

    set_bool(o, "at_orderly_end", r->leaks_at_end);
    set_bytes(o, "bytes", rows->bytes);
    set_count(o, "count", rows->count);
    for (size_t i = 0; i < rows->n && i < top; i++)
        json_array_append_new(list, row_json(v->run, r, &rows->list[i]));
    set(o, "leaks", list);
    set_count(o, "leaks_total", rows->n);
    return viewing_json(v, o);
}

static int show(struct viewing *v, const struct settings *s, const struct gs_report *r)
{
    char error[1024] = "";
    struct gs_profile_wish wish = {.what = GS_PROFILE_END, .process = -1, .device = s->view.device,
                                   .layer = GS_PROFILE_ALL, .categories = true};
    struct gs_profile *p = gs_profile_build(v->run, &wish, error, sizeof error);
    struct rows rows = {0};
    int code = EXIT_YES;

    if (!p)
        return viewing_failed(v, error);
    collect(v->run, r, p, s, &rows);
    if (s->view.json) {
        code = print_json(v, r, &rows);
    } else {
        struct view_text t = viewing_text(v, r, TOP_LEAKS);
        t.native = s->native;
        t.only = (uint64_t)1 << VIEW_LEAKS;
        print(&t, v->run, r, &rows);
    }
    free(rows.list);
    gs_profile_free(p);
    return code;
}

int cmd_leaks(int argc, char **argv)
{
    struct settings s = {.view = VIEWING_DEFAULT};
    struct viewing v;
    bool done;
    char error[1024] = "";
    int code = viewing_open(&v, &command_leaks, argc, argv, &s, &s.view, NULL, true, &done);

    if (!done) {
        v.options.all = true;
        struct gs_report *r = gs_report_build(v.run, &v.options, error, sizeof error);
        code = r ? show(&v, &s, r) : viewing_failed(&v, error);
        gs_report_free(r);
    }
    viewing_close(&v);
    return code;
}
