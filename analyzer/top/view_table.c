/* The table: its columns by kind, its rows, and the last waits below it. */
#include "analyzer/top/view_parts.h"

#include <math.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/run/words.h"

struct column {
    const char *head;
    int width, from; /* from: shown if the screen has at least this many columns */
    void (*cell)(const struct top_view *v, const struct top_row *r, char *out);
    int sort; /* enum top_sort, -1 */
};

#define CELL(name, ...)                                                            \
    static void name(const struct top_view *v, const struct top_row *r, char *out) \
    {                                                                              \
        __VA_ARGS__;                                                               \
    }
CELL(cell_bytes, top_bytes(out, r->bytes))
CELL(cell_count, units_format_count(out, r->count))
CELL(cell_growth, r->growth == RUN_UNKNOWN ? (void)strcpy(out, "?") : (void)units_format_bytes_signed(out, r->growth))
CELL(cell_since, units_format_bytes_signed(out, r->since))
CELL(cell_rate, top_rate(out, r->rate))
CELL(cell_byte_rate, units_format_rate(out, r->byte_rate))
CELL(cell_blocked, units_format_seconds(out, (double)r->blocked_ns / 1e9))
CELL(cell_each, units_format_seconds(out, r->count ? (double)r->blocked_ns / 1e9 / (double)r->count : 0))
CELL(cell_busy, units_format_share(out, r->busy))
CELL(cell_sync, text_put(out, UNITS_TEXT, "%s", run_sync_word(r->kind & 7)))

static void cell_share(const struct top_view *v, const struct top_row *r, char *out)
{
    const int64_t total = v->tables->total;
    const int64_t n = v->choice.table == TOP_SYNCS ? r->blocked_ns : r->bytes;
    units_format_share(out, total > 0 ? (double)n / (double)total : 0);
}

static void cell_last(const struct top_view *v, const struct top_row *r, char *out)
{
    int64_t now = 0;
    const struct top_model *m = v->tables->model;
    for (size_t i = 0; i < m->sources_n; i++) now = top_max(now, m->sources[i].now_ns);
    if (r->last_ns == RUN_UNKNOWN && v->choice.table <= TOP_FUNCTIONS && isnan(r->rate))
        snprintf(out, UNITS_TEXT, "?");
    else if (r->last_ns == RUN_UNKNOWN || r->last_ns < now - 3600 * 1000000000ll)
        snprintf(out, UNITS_TEXT, "long ago");
    else
        units_format_seconds(out, (double)top_max(now - r->last_ns, 0) / 1e9);
}

static void cell_copy(const struct top_view *v, const struct top_row *r, char *out)
{
    const char *host = run_host_memory_word(r->kind >> 3 & 3);
    snprintf(out, UNITS_TEXT, "%s %s", run_direction_word(r->kind & 7), strcmp(host, "none") ? host : "");
}

static const struct column memory_columns[] = {
    {"HELD", 10, 0, cell_bytes, TOP_BY_SIZE},     {"SHARE", 6, 76, cell_share, -1},
    {"COUNT", 7, 72, cell_count, TOP_BY_COUNT},   {"+ 1 MIN", 11, 0, cell_growth, TOP_BY_GROWTH},
    {"ALLOC/S", 7, 88, cell_rate, TOP_BY_RATE},   {"+ WATCHED", 11, 120, cell_since, -1},
    {"LAST AGO", 9, 104, cell_last, TOP_BY_LAST}, {0},
};
static const struct column sync_columns[] = {
    {"BLOCKED", 9, 0, cell_blocked, TOP_BY_SIZE},
    {"COUNT", 9, 72, cell_count, TOP_BY_COUNT},
    {"NOW", 6, 0, cell_busy, TOP_BY_GROWTH},
    {"CALLS/S", 7, 76, cell_rate, TOP_BY_RATE},
    {"EACH", 8, 96, cell_each, -1},
    {"LAST AGO", 9, 104, cell_last, TOP_BY_LAST},
    {"KIND", 8, 0, cell_sync, -1},
    {0},
};
static const struct column copy_columns[] = {
    {"COPIED", 10, 0, cell_bytes, TOP_BY_SIZE},
    {"COUNT", 9, 76, cell_count, TOP_BY_COUNT},
    {"BYTES/S", 9, 0, cell_byte_rate, TOP_BY_GROWTH},
    {"COPIES/S", 8, 88, cell_rate, TOP_BY_RATE},
    {"BLOCKED", 8, 96, cell_blocked, -1},
    {"LAST AGO", 9, 104, cell_last, TOP_BY_LAST},
    {"KIND", 13, 72, cell_copy, -1},
    {0},
};
static const struct table_kind {
    const char *title, *unit;
    const struct column *columns;
} kinds[TOP_TABLES] = {
    [TOP_LINES] = {"memory by line", "bytes", memory_columns},
    [TOP_FUNCTIONS] = {"memory by function", "bytes", memory_columns},
    [TOP_SYNCS] = {"waits for the GPU by line", "time", sync_columns},
    [TOP_COPIES] = {"copies by line", "bytes", copy_columns},
};

static bool column_fits(const struct top_view *v, const struct column *c)
{
    return v->columns >= c->from;
}

enum { GAP = 2, BELOW = 4 }; /* between columns; where a call site begins that has a line of its own */

static void cell_put(struct top_line *l, enum terminal_style style, int width, const char *text)
{
    const int pad = width - terminal_columns(text);
    top_put(l, style, "%*s%s", (l->at ? GAP : 0) + (pad > 0 ? pad : 0), "", text);
}

static void head_line(struct top_line *l, bool below)
{
    const struct top_view *v = l->v;
    for (const struct column *c = kinds[v->choice.table].columns; c->head; c++)
        if (column_fits(v, c))
            cell_put(l, c->sort == (int)v->choice.sort ? TERMINAL_BOLD : TERMINAL_DIM, c->width, c->head);
    if (!below) cell_put(l, TERMINAL_DIM, 0, v->choice.table == TOP_FUNCTIONS ? "FUNCTION" : "LINE");
    top_finish(l);
}

/* Columns of the file and line, which are never cut. */
static int least_place_columns(const struct top_view *v, const struct result_site *site)
{
    char text[TOP_LINE];
    return terminal_columns(top_site_text(v, text, sizeof text, site, 1));
}

static void put_site(struct top_line *l, const struct result_site *site)
{
    char text[TOP_LINE];
    cell_put(l, TERMINAL_PLAIN, 0, top_site_text(l->v, text, sizeof text, site, l->v->columns - l->at - GAP));
}

/* In a line of its own if that is needed for the file and line. */
static void put_site_below(struct top_line *l, const struct result_site *site)
{
    top_finish(l);
    top_put(l, TERMINAL_PLAIN, "%*s", BELOW - GAP, "");
    put_site(l, site);
}

/* Do the call sites of the visible rows, `lines` at most, need lines of their own? */
static bool are_sites_below(const struct top_view *v, int lines)
{
    int room = v->columns;
    if (v->choice.table == TOP_FUNCTIONS) return false;
    for (const struct column *c = kinds[v->choice.table].columns; c->head; c++)
        if (column_fits(v, c)) room -= c->width + GAP;
    for (int i = v->scroll; i < v->scroll + lines && (size_t)i < v->tables->n; i++)
        if (least_place_columns(v, &v->tables->rows[i].site) > room) return true;
    return false;
}

static void row_line(struct top_line *l, const struct top_row *r, bool below)
{
    const struct top_view *v = l->v;
    char text[TOP_LINE];
    for (const struct column *c = kinds[v->choice.table].columns; c->head; c++) {
        if (column_fits(v, c)) {
            c->cell(v, r, text);
            bool grows = c->cell == cell_growth && r->growth > 0;
            cell_put(l, grows ? TERMINAL_YELLOW : TERMINAL_PLAIN, c->width, text);
        }
    }
    struct result_site site = r->site;
    if (v->choice.table == TOP_FUNCTIONS) site.line = 0;
    const int room = v->columns - l->at - GAP;
    if (v->choice.table == TOP_FUNCTIONS && site.known && site.function && !site.exit) {
        char name[TOP_LINE];
        text_function(name, sizeof name, site.function, room, v->term.utf8);
        cell_put(l, TERMINAL_PLAIN, 0, name);
        if (site.file && v->columns - l->at > 12) {
            char path[TOP_LINE];
            const struct top_model *m = v->tables->model;
            text_path(path, sizeof path, site.file, m->sources[0].cwd, v->columns - l->at - 2, v->term.utf8);
            top_put(l, TERMINAL_DIM, "  %s", path);
        }
    } else {
        (below ? put_site_below : put_site)(l, &site);
    }
    top_finish(l);
}

static const char *layer_title(const struct top_view *v)
{
    static const char *const titles[TOP_LAYERS] = {"CUDA allocations", "tensors", "pinned host memory", "CPU tensors",
                                                   "memory of other processes"};
    if (v->choice.table >= TOP_SYNCS) return "";
    if (v->choice.layer != TOP_LAYER_AUTO) return titles[v->choice.layer];
    const struct top_model *m = v->tables->model;
    int source = v->choice.source;
    bool same = true;
    for (size_t i = 1; i < m->sources_n; i++) same = same && top_layer_of(m, (uint32_t)i) == top_layer_of(m, 0);
    return source != TOP_ALL ? titles[top_layer_of(m, (uint32_t)source)]
           : same            ? titles[top_layer_of(m, 0)]
                             : "tensors, or CUDA allocations";
}

static void table_title(struct top_line *l)
{
    const struct top_view *v = l->v;
    const struct top_model *m = v->tables->model;
    const char *layer = layer_title(v);
    top_put(l, TERMINAL_CYAN, "%s", kinds[v->choice.table].title);
    if (*layer) top_put(l, TERMINAL_PLAIN, "  %s", layer);
    if (v->choice.source != TOP_ALL && m->sources_n > 1) {
        const struct top_source *s = &m->sources[v->choice.source];
        s->rank != RUN_UNKNOWN ? top_put(l, TERMINAL_PLAIN, "  rank %lld", (long long)s->rank)
                               : top_put(l, TERMINAL_PLAIN, "  process %u", s->pid);
    } else if (m->sources_n > 1) {
        top_put(l, TERMINAL_PLAIN, "  all processes");
    }
    if (v->choice.device != TOP_ALL) top_put(l, TERMINAL_PLAIN, "  GPU %d", v->choice.device);
    if (v->choice.native) top_put(l, TERMINAL_PLAIN, "  native");
    if (v->typing)
        top_put(l, TERMINAL_BOLD, "  /%s_", v->choice.filter);
    else if (*v->choice.filter)
        top_put(l, TERMINAL_YELLOW, "  only /%s", v->choice.filter);
    if (v->tables->n && v->scroll) top_put(l, TERMINAL_DIM, "  from row %d of %zu", v->scroll + 1, v->tables->n);
    top_finish(l);
}

static void waits_lines(struct top_line *l, int room)
{
    struct top_model *m = l->v->tables->model;
    int source = l->v->choice.source;
    int shown = 0;
    enum { API = 28 };
    for (size_t i = 0; i < m->sources_n && shown < room; i++) {
        const struct top_source *s = &m->sources[i];
        if (source != TOP_ALL && source != (int)i) continue;
        for (size_t k = 1; k <= TOP_WAITS_MAX && k <= s->waits_next && shown < room; k++) {
            const struct top_wait *w = &s->waits[(s->waits_next - k) % TOP_WAITS_MAX];
            char a[UNITS_TEXT];
            struct result_site site = top_site(l->v->tables, w->stack, l->v->choice.native);
            if (shown++ == 0) {
                top_put(l, TERMINAL_CYAN, "latest waits");
                top_finish(l);
            }
            top_put(l, TERMINAL_PLAIN, "%9s ago  %9s",
                    units_format_seconds(a, (double)top_max(s->now_ns - w->start_ns, 0) / 1e9),
                    UNITS_SECONDS((double)w->blocked_ns / 1e9));
            const int left = l->v->columns - l->at - GAP - least_place_columns(l->v, &site);
            const bool below = left < 0;
            if (left >= API + GAP)
                top_put(l, TERMINAL_PLAIN, "  %-*s", API, text_elide(a, sizeof a, top_api(m, s, w->api), API, false));
            shown += below;
            (below ? put_site_below : put_site)(l, &site);
            top_finish(l);
        }
    }
}

static const char *why_empty(const struct top_view *v)
{
    static const struct {
        enum run_fact fact;
        const char *text;
    } rows[TOP_TABLES] = {
        [TOP_LINES] = {RUN_FACT_MEMORY, "memory is unknown; the other tables: --table syncs, --table copies"},
        [TOP_FUNCTIONS] = {RUN_FACT_MEMORY, "memory is unknown; the other tables: --table syncs, --table copies"},
        [TOP_SYNCS] = {RUN_FACT_WAITS, "waits are unknown"},
        [TOP_COPIES] = {RUN_FACT_COPIES, "copies are unknown"},
    };
    const struct top_model *m = v->tables->model;
    bool unknown = true, ended = true;
    EACH_IN (s, m->sources) {
        unknown = unknown && s->lacks[rows[v->choice.table].fact];
        ended = ended && s->state != TOP_RECORDING && s->state != TOP_WAITING;
    }
    return *v->choice.filter ? "no row contains this text"
           : unknown         ? rows[v->choice.table].text
           : ended           ? "nothing"
                             : "nothing so far";
}

enum { ROWS_PRINTED = 20 }; /* without a screen */

void top_table_part(struct top_line *l, int room)
{
    struct top_view *v = (struct top_view *)(uintptr_t)l->v;
    bool all = v->rows == 0;
    int waits = v->choice.table == TOP_SYNCS ? all ? 5 : room / 3 : 0;
    const bool below = are_sites_below(v, all ? ROWS_PRINTED : room);
    v->table_rows = all ? (int)v->tables->n : (room - 2 - (waits ? waits + 1 : 0)) / (1 + below);
    if (!all && v->table_rows < 0) v->table_rows = 0;
    if (v->scroll > (int)v->tables->n - v->table_rows)
        v->scroll = (int)top_max((int64_t)v->tables->n - v->table_rows, 0);
    table_title(l);
    head_line(l, below);
    int most_rows = all ? ROWS_PRINTED : v->table_rows;
    for (int i = 0; i < most_rows && (size_t)(v->scroll + i) < v->tables->n; i++)
        row_line(l, &v->tables->rows[v->scroll + i], below);
    if (v->tables->n == 0) {
        top_put(l, TERMINAL_DIM, "%s", why_empty(v));
        top_finish(l);
    }
    waits_lines(l, waits);
}
