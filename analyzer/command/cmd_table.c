/* gpuspy table: memory or waits as a flat list. */
#include <stdio.h>
#include <string.h>
#include "analyzer/command/commands.h"
#include "analyzer/view/branch.h"
#include "analyzer/draw/json_site.h"
#include "analyzer/profile/tally.h"
#include "analyzer/base/text.h"
#include "analyzer/base/text_table.h"
#include "analyzer/base/units.h"
#include "analyzer/view/viewing.h"

#define TOP_TABLE 25
#define NARROW 90 /* with fewer columns, the call site needs the room */

struct settings {
    struct viewing_settings view;
    struct view_profile_settings profile;
    const char *by, *sort;
};

#define WORD(s, w) w "|"
static const char by_words[] = TALLY_BYS(WORD), sort_words[] = TALLY_SORTS(WORD);
#undef WORD

const struct command_text command_text_table = {
    .options = OPTION_ROWS(
        {"by", 'b', OPTION_CHOICE, offsetof(struct settings, by), "WHAT", by_words, 0, 0,
         "one row per line of your own code (the default), function, file, module whose code allocated, category "
         "(parameters, activations and so on) or owner of CUDA allocations (PyTorch, NCCL and so on)"},
        {"sort", 's', OPTION_CHOICE, offsetof(struct settings, sort), "COLUMN", sort_words, 0, 0,
         "sort by own bytes (the default), by bytes including callees, by count, by average size, or by name"},
        PROFILE_OPTIONS(struct settings, profile),
        VIEWING_TOP(struct settings, view, "at most N rows; default 25, with --json all"),
        VIEWING_OPTIONS(struct settings, view)),
    .about = "Lists memory, waits or copies as a flat table. Each row has its own amount and share, the amount 'with "
             "calls' (including everything called from there), the number of blocks and their average size.\n\nAll "
             "processes are added up; use --rank or --process to choose one.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy table run.db", "what was live at the peak, by line of your own code"},
        {"gpuspy table --by category run.db", "parameters, gradients, optimizer state, activations, …"},
        {"gpuspy table --what allocated --sort count run.db", "what allocates most often"},
        {"gpuspy table --what waits --by function run.db", "which functions wait for the GPU"},
        {"gpuspy table --json --by file run.db | jq '.rows[] | [.file, .own]'", "for a script"}),
};

struct cells {
    const struct draw_text *t;
    enum profile_tally_by by;
};

static void last_cell(const void *self, const void *item, char *out, size_t size, int columns)
{
    const struct cells *c = self;
    const struct profile_tally_row *r = item;
    char name[1024];

    if (r->name) {
        const char *word =
            c->by == TALLY_CATEGORY && strcmp(r->name, "optimizer_state") == 0 ? "optimizer state" : r->name;
        terminal_clean(name, sizeof name, word, c->t->term.utf8);
        text_elide(out, size, name, columns, c->t->term.utf8);
    } else if (!r->frame) {
        text_put(out, size, "%.*s", columns, "(no stack recorded)");
    } else if (!r->frame->file && !r->frame->module && r->frame->function) {
        text_function(out, size, r->frame->function, columns, c->t->term.utf8);
    } else {
        draw_frame(c->t, out, size, r->frame, columns);
    }
}

static void add_tally_row(const struct draw_text *t, struct text_table *table, const struct profile *p,
                          const struct profile_tally_row *r, bool calls, bool each)
{
    char own[UNITS_TEXT], total[UNITS_TEXT], mean[UNITS_TEXT];
    const char *cells[TEXT_TABLE_COLUMNS];
    size_t n = 0;
    int64_t mean_of = r->own_count ? r->own / (int64_t)r->own_count : 0;

    bool none = !r->own && !r->own_count; /* the entry only calls others */
    cells[n++] = none ? "" : view_profile_weight(p, r->own, own);
    cells[n++] = none ? "" : UNITS_SHARE(p->total ? (double)r->own / (double)p->total : 0);
    if (calls) cells[n++] = view_profile_weight(p, r->total, total);
    cells[n++] = none ? "" : UNITS_COUNT(r->own_count);
    if (each) cells[n++] = r->own_count ? view_profile_weight(p, mean_of, mean) : "";
    text_table_add(table, cells, r);
}

/* Lists an entry that only calls others if the order is by total, unless it merely passes everything on (plumbing). */
static bool worth_a_row(const struct profile_tally_row *r, enum profile_tally_sort sort)
{
    return r->own > 0 || (sort == TALLY_BY_TOTAL && !(r->frame && view_branch_plumbing(r->frame)));
}

static void print_tally_table(const struct draw_text *t, const struct profile *p, const struct profile_tally *tally,
                              enum profile_tally_by by, enum profile_tally_sort sort)
{
    bool wide = t->term.width >= NARROW, calls = by <= TALLY_MODULE && t->term.width >= 60;
    struct cells cells = {t, by};
    struct text_table table = {.last = last_cell, .self = &cells};
    size_t n = 0, listed = 0, shown = 0;
    static const char *const heads[] = {"line", "function", "file", "module", "category", "owner"};

    table.head[n++] = strcmp(p->unit, "ns") == 0 ? "waited" : "bytes";
    table.head[n++] = "share";
    if (calls) table.head[n++] = "with calls";
    table.head[n++] = view_profile_noun(p);
    if (wide) table.head[n++] = "each";
    table.head[n++] = heads[by];
    for (size_t i = 0; i < tally->n; i++) listed += worth_a_row(&tally->rows[i], sort);
    for (size_t i = 0; i < tally->n && shown < t->top; i++) {
        if (worth_a_row(&tally->rows[i], sort)) {
            add_tally_row(t, &table, p, &tally->rows[i], calls, wide);
            shown++;
        }
    }
    fputc('\n', t->out);
    text_table_print(&table, &t->term, 0, t->out);
    draw_more(t, listed, shown);
}

static json_t *tally_row_json(const struct profile *p, const struct profile_tally_row *r, enum profile_tally_by by)
{
    static const char *const keys[] = {
        [TALLY_MODULE] = "module", [TALLY_CATEGORY] = "category", [TALLY_OWNER] = "owner"};
    json_t *o = json_object();

    if (by >= TALLY_MODULE) {
        set_text(o, keys[by], r->name);
    } else {
        const struct run_frame *f = r->frame;
        set_text(o, "file", f ? (f->file ? f->file : f->module) : NULL);
        if (by != TALLY_FILE) set_text(o, "function", f ? f->function : NULL);
        if (by == TALLY_LINE) set_json(o, "line", f && f->line ? json_integer(f->line) : NULL);
    }
    set_json(o, "own", view_profile_weight_json(p, r->own));
    set_json(o, "total", view_profile_weight_json(p, r->total));
    set_real(o, "share", p->total ? (double)r->own / (double)p->total : 0);
    set_count(o, "count", r->own_count);
    set_count(o, "total_count", r->total_count);
    return o;
}

static json_t *tally_rows_json(const struct profile *p, const struct profile_tally *t, enum profile_tally_by by,
                               size_t top)
{
    return LIST_OF(t->n < top ? t->n : top, i, tally_row_json(p, &t->rows[i], by));
}

static int show_table(struct viewing *v, const struct settings *s, const struct profile *p)
{
    enum profile_tally_by by = s->by ? (enum profile_tally_by)options_word_index(s->by, by_words) : 0;
    enum profile_tally_sort sort = s->sort ? (enum profile_tally_sort)options_word_index(s->sort, sort_words) : 0;
    struct profile_tally *t = profile_tally_build(v->run, p, by, s->profile.native, true);
    int code = EXIT_YES;

    profile_tally_sort(t, sort);
    if (s->view.json) {
        json_t *o = viewing_json_head(v);
        view_profile_json(v, o, p);
        set_text(o, "by", s->by ? s->by : "line");
        set_json(o, "rows", tally_rows_json(p, t, by, s->view.top ? (size_t)s->view.top : SIZE_MAX));
        set_count(o, "rows_total", t->n);
        code = viewing_json(v, o);
    } else {
        struct draw_text text = viewing_text(v, NULL, TOP_TABLE);
        view_profile_heading(&text, p);
        print_tally_table(&text, p, t, by, sort);
        view_profile_scopes(v, &text, p);
    }
    profile_tally_free(t);
    return code;
}

static bool are_table_options_sensible(const char *who, const void *settings)
{
    const struct settings *s = settings;
    bool calls = s->profile.what && (strcmp(s->profile.what, "waits") == 0 || strcmp(s->profile.what, "copies") == 0);

    if (calls && s->by && (strcmp(s->by, "category") == 0 || strcmp(s->by, "owner") == 0)) {
        return complain_with(false, "%s: %s have no %s; --by line, function, file or module", who, s->profile.what,
                             s->by);
    }
    return view_profile_sensible(who, &s->profile);
}

int command_table(const struct command *self, int argc, char **argv)
{
    struct settings s = {.view = VIEWING_DEFAULT};
    struct viewing v;
    /* Categories need the stacks of frees. */
    int code = viewing_open(&v, self, argc, argv, &s, &s.view, are_table_options_sensible, true);

    if (s.by && strcmp(s.by, "owner") == 0 && !s.profile.layer)
        s.profile.layer = "device"; /* all tensors belong to PyTorch */
    bool categories = s.by && strcmp(s.by, "category") == 0;
    struct profile *p = !v.run ? NULL : viewing_profile(&v, &s.profile, categories, &code);
    if (p) {
        code = show_table(&v, &s, p);
        profile_free(p);
    }
    viewing_close(&v);
    return code;
}
