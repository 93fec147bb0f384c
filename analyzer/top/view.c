#include "analyzer/top/view.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "analyzer/base/text.h"
#include "analyzer/base/text_table.h"
#include "analyzer/base/units.h"
#include "analyzer/text/view_text_parts.h"

enum { BAR_MAX = 50, BAR_MIN = 10, LINE = 2048 };

/* ---------------------------------------------------------------- figures */

const char *top_state_word(enum top_state state)
{
    static const char *const words[] = {
        [TOP_WAITING] = "starting", [TOP_RECORDING] = "recording", [TOP_ENDED] = "ended",
        [TOP_DIED] = "died",        [TOP_KILLED] = "cut off",      [TOP_TORN] = "torn",
        [TOP_DELETED] = "deleted",  [TOP_UNREADABLE] = "unreadable",
    };
    return words[state];
}

void top_state_said(const struct top_source *s, char *out, size_t size)
{
    char path[1024];
    text_path_here(path, sizeof path, s->db.path);
    out[0] = 0;
    switch (s->state) {
    case TOP_WAITING:
        snprintf(out, size, "its recording begins just now");
        break;
    case TOP_RECORDING:
        break;
    case TOP_ENDED:
        snprintf(out, size, "it has ended; this is its end. All of it: gpuspy report %s", path);
        break;
    case TOP_DIED:
        snprintf(out, size, "it died; this is its end, complete up to the last call. All of it: gpuspy report %s",
                 path);
        break;
    case TOP_KILLED:
        snprintf(out, size,
                 "it ended without a word (killed, or by _exit); this is what was written before, and its last "
                 "events are still in the spool, from which they are taken by: gpuspy report %s",
                 path);
        break;
    case TOP_TORN:
        snprintf(out, size,
                 "it is not recording any more, and its spool with the last events is gone. What there "
                 "is: gpuspy report %s",
                 path);
        break;
    case TOP_DELETED:
        snprintf(out, size, s->loaded ? "its database was deleted; this is the last that was seen of it"
                                      : "its database was deleted");
        break;
    case TOP_UNREADABLE:
        snprintf(out, size, "%s", s->why);
        break;
    }
}

void top_rates(const struct top_model *m, const struct top_calls *list, size_t n, uint32_t source,
               double *calls, double *amount)
{
    *calls = *amount = 0;
    for (size_t i = 0; i < n; i++) {
        if (list[i].source == source) {
            struct top_sum sum = top_ring_sum(&list[i].ring, m->sources[source].now_ns, TOP_RATE_S);
            *calls += sum.seconds > 0 ? (double)sum.count / sum.seconds : 0;
            *amount += sum.seconds > 0 ? (double)sum.amount / sum.seconds : 0;
        }
    }
}

double top_allocation_rate(const struct top_model *m, uint32_t source)
{
    double rate = 0;
    const enum top_layer layer = top_layer_of(m, source);
    for (size_t i = 0; i < m->series_n; i++) {
        const struct top_series *s = &m->series[i];
        if (s->source == source && s->layer == layer) {
            struct top_sum sum = top_ring_sum(&s->ring, m->sources[source].now_ns, TOP_RATE_S);
            rate += sum.seconds > 0 ? (double)sum.count / sum.seconds : 0;
        }
    }
    return rate;
}

static int64_t live_of(const struct top_model *m, uint32_t source, int device, enum top_layer layer)
{
    const struct top_series *s = top_series_find(m, source, device, layer);
    return !s ? 0 : s->known != GS_UNKNOWN ? s->known : s->bytes;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

struct top_held top_held_of(const struct top_model *m, uint32_t source, const struct top_device *d)
{
    struct top_held h = {.total = d->total_bytes, .used = GS_UNKNOWN};
    h.device = live_of(m, source, d->device, TOP_DEVICE);
    h.tensors = live_of(m, source, d->device, TOP_TENSOR);
    h.cached = d->reserved_bytes > h.tensors ? d->reserved_bytes - h.tensors : 0;
    if (d->total_bytes == GS_UNKNOWN || d->free_bytes == GS_UNKNOWN) {
        return h;
    }
    /* what the device said is up to a second old: beside what was allocated then there was this */
    const struct top_series *s = top_series_find(m, source, d->device, TOP_DEVICE);
    const int64_t then = s ? most(s->bytes - s->after_sample, 0) : 0;
    const int64_t rest = least(most(d->total_bytes - d->free_bytes - then, 0),
                               most(d->total_bytes - h.device, 0));
    h.used = least(h.device + rest, d->total_bytes);
    h.told_apart = d->other_bytes != GS_UNKNOWN;
    h.others = h.told_apart ? least(d->other_bytes, rest) : 0;
    h.context = rest - h.others;
    return h;
}

/* ---------------------------------------------------------------- lines */

/* A line as it grows: its width is known while it carries escapes. */
struct line {
    const struct top_view *v;
    FILE *out;
    int at; /* columns */
};

static void put(struct line *l, enum term_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void put(struct line *l, enum term_style style, const char *format, ...)
{
    char raw[LINE], text[LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    term_clean(text, sizeof text, raw, l->v->term.utf8);
    size_t n = term_fit(text, l->v->columns - l->at);
    text[n] = 0;
    if (n) {
        fprintf(l->out, "%s%s%s", term_style(&l->v->term, style), text,
                style == TERM_PLAIN ? "" : term_style(&l->v->term, TERM_PLAIN));
    }
    l->at += term_columns(text);
}

static void finish(struct line *l)
{
    fputc('\n', l->out);
    l->at = 0;
}

static void words(struct line *l, int hang, enum term_style style, const char *text)
{
    char word[LINE];
    for (const char *p = text; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        snprintf(word, sizeof word, "%.*s", (int)least((int64_t)n, LINE - 1), p);
        if (l->at > hang && l->at + 1 + term_columns(word) > l->v->columns) {
            finish(l);
            put(l, TERM_PLAIN, "%*s", hang, "");
        } else if (l->at > hang) {
            put(l, style, " ");
        }
        put(l, style, "%s", word);
        p += n;
    }
    finish(l);
}

static char *short_bytes(char out[UNITS_TEXT], int64_t bytes)
{
    return format_bytes(out, (uint64_t)most(bytes, 0));
}

/* "1.2k": a rate in few columns. */
static char *short_rate(char out[UNITS_TEXT], double rate)
{
    const char *unit = rate >= 999500 ? "M" : rate >= 999.5 ? "k" : "";
    double n = *unit == 'M' ? rate / 1e6 : *unit ? rate / 1e3 : rate;
    snprintf(out, UNITS_TEXT, n >= 99.95 || (n == 0 && !*unit) ? "%.0f%s" : n >= 9.995 ? "%.1f%s" : "%.2f%s", n,
             unit);
    return out;
}

/* ---------------------------------------------------------------- the head */

struct part {
    int64_t bytes;
    const char *utf8, *ascii;
    enum term_style style;
};

static void bar(struct line *l, const struct top_held *h, int width)
{
    const int64_t cached = least(h->cached, most(h->device - h->tensors, 0));
    const struct part parts[] = {
        {h->tensors, "█", "#", TERM_GREEN},
        {cached, "▓", "=", TERM_CYAN},
        {most(h->device - h->tensors - cached, 0), h->tensors ? "▒" : "█", h->tensors ? "+" : "#",
         TERM_GREEN},
        {h->used == GS_UNKNOWN ? 0 : h->context, "▒", "-", TERM_DIM},
        {h->used == GS_UNKNOWN ? 0 : h->others, "░", ":", TERM_YELLOW},
    };
    int drawn = 0;
    int64_t sum = 0;
    put(l, TERM_PLAIN, "[");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        sum = gs_add(sum, parts[i].bytes);
        int end = (int)least((int64_t)((double)sum / (double)h->total * width + 0.5), width);
        for (; drawn < end; drawn++) {
            put(l, parts[i].style, "%s", l->v->term.utf8 ? parts[i].utf8 : parts[i].ascii);
        }
    }
    for (; drawn < width; drawn++) {
        put(l, TERM_DIM, "%s", l->v->term.utf8 ? "·" : ".");
    }
    put(l, TERM_PLAIN, "]");
}

static enum term_style alarm(double share)
{
    return share >= 0.95 ? TERM_RED : share >= 0.85 ? TERM_YELLOW : TERM_BOLD;
}

/* Whole or not at all: half a number is a wrong one. */
static void piece(struct line *l, enum term_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void piece(struct line *l, enum term_style style, const char *format, ...)
{
    char text[LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (l->at + term_columns(text) <= l->v->columns) {
        put(l, style, "%s", text);
    }
}

static void amount(struct line *l, const char *what, int64_t bytes)
{
    char text[UNITS_TEXT];
    if (bytes > 0) {
        piece(l, TERM_PLAIN, "  %s %s", what, short_bytes(text, bytes));
    }
}

static void growth(struct line *l, const struct top_series *s, int64_t now_ns)
{
    char text[UNITS_TEXT], span[UNITS_TEXT];
    if (!s) {
        return;
    }
    struct top_sum sum = top_ring_sum(&s->ring, now_ns, TOP_WINDOW_S);
    if (sum.amount && sum.seconds > 0) {
        piece(l, sum.amount > 0 ? TERM_YELLOW : TERM_PLAIN, "  %s in %s",
            format_bytes_signed(text, sum.amount), format_seconds(span, sum.seconds));
    }
}

static void device_line(struct line *l, uint32_t source, const struct top_device *d, bool brief)
{
    const struct top_model *m = l->v->tables->model;
    const struct top_source *s = &m->sources[source];
    struct top_held h = top_held_of(m, source, d);
    char a[UNITS_TEXT], b[UNITS_TEXT];
    int width = l->v->columns - 50;
    width = width > BAR_MAX ? BAR_MAX : width < BAR_MIN ? BAR_MIN : width;
    put(l, TERM_BOLD, "  GPU %d ", d->device);
    int64_t used = h.used == GS_UNKNOWN ? h.device : h.used;
    if (h.total > 0) {
        double share = (double)used / (double)h.total;
        bar(l, &h, width);
        put(l, alarm(share), " %s", short_bytes(a, used));
        put(l, TERM_PLAIN, " of %s %s%s", short_bytes(b, h.total), format_share((char[UNITS_TEXT]){0}, share),
            h.used == GS_UNKNOWN ? " recorded" : "");
    } else {
        put(l, TERM_BOLD, "%s", short_bytes(a, used));
        put(l, TERM_PLAIN, " of an unknown total");
    }
    if (d->utilisation >= 0) {
        piece(l, TERM_PLAIN, "  busy %d %%", d->utilisation);
    }
    finish(l);
    if (brief || (h.device == 0 && h.tensors == 0 && h.used == GS_UNKNOWN)) {
        return;
    }
    const enum top_layer layer = top_layer_of(m, source);
    put(l, TERM_PLAIN, "       ");
    amount(l, "tensors", h.tensors);
    amount(l, "cached", h.cached);
    int64_t direct = h.device - most(h.tensors + h.cached, 0);
    amount(l, h.tensors || h.cached ? "other allocations" : "allocations", direct);
    if (h.used != GS_UNKNOWN) {
        amount(l, h.told_apart ? "context and rounding" : "context, rounding, other processes", h.context);
        amount(l, d->other_name && *d->other_name ? d->other_name : "other processes", h.others);
    }
    const struct top_series *series = top_series_find(m, source, d->device, layer);
    growth(l, series, s->now_ns);
    if (series && series->peak != GS_UNKNOWN && series->peak > 0) {
        piece(l, TERM_PLAIN, "  peak %s", short_bytes(a, series->peak));
    }
    finish(l);
}

static void process_line(struct line *l, uint32_t source)
{
    const struct top_model *m = l->v->tables->model;
    const struct top_source *s = &m->sources[source];
    char text[UNITS_TEXT], command[LINE];
    double rate, amounts;
    put(l, TERM_BOLD, "%u", s->pid);
    if (s->rank != GS_UNKNOWN) {
        put(l, TERM_BOLD, " rank %lld", (long long)s->rank);
    }
    if (s->state == TOP_RECORDING) {
        put(l, TERM_PLAIN, "  %s", format_seconds(text, (double)s->clock_ns / 1e9));
        piece(l, TERM_PLAIN, "  %s alloc/s", short_rate(text, top_allocation_rate(m, source)));
        top_rates(m, m->copies, m->copies_n, source, &rate, &amounts);
        if (rate > 0) {
            piece(l, TERM_PLAIN, "  %s copies/s", short_rate(text, rate));
            piece(l, TERM_PLAIN, " %s", format_rate(text, amounts));
        }
        top_rates(m, m->syncs, m->syncs_n, source, &rate, &amounts);
        if (rate > 0) {
            piece(l, TERM_PLAIN, "  %s syncs/s", short_rate(text, rate));
            piece(l, amounts >= 0.2e9 ? TERM_YELLOW : TERM_PLAIN, " blocked %s",
                format_share(text, amounts / 1e9));
        }
    } else {
        put(l, TERM_YELLOW, "  %s", top_state_word(s->state));
        if (s->loaded) {
            put(l, TERM_PLAIN, " after %s", format_seconds(text, (double)s->end_ns / 1e9));
        }
    }
    int room = l->v->columns - l->at - 2;
    if (s->command && room >= 12) {
        char clean[LINE];
        term_clean(clean, sizeof clean, s->command, l->v->term.utf8);
        text_elide(command, sizeof command, clean, room, l->v->term.utf8);
        put(l, TERM_DIM, "  %s", command);
    }
    finish(l);
}

static char *site_text(const struct top_view *v, char *out, size_t size, const struct gs_site *site,
                       int columns)
{
    const struct top_model *m = v->tables->model;
    struct gs_process process = {.cwd = m->sources_n ? m->sources[0].cwd : NULL};
    struct gs_report report = {.processes = &process, .processes_n = 1};
    struct view_text text = {.report = &report, .term = v->term};
    return view_site(&text, out, size, site, columns);
}

static void failure_line(struct line *l, const struct top_source *s)
{
    const struct top_failure *f = &s->failures[0];
    char a[UNITS_TEXT], b[UNITS_TEXT], place[LINE];
    struct gs_site site = top_site(l->v->tables, f->stack, l->v->choice.native);
    put(l, TERM_RED, "  failed");
    put(l, TERM_PLAIN, " %s ago: %s", format_seconds(a, (double)most(s->now_ns - f->time_ns, 0) / 1e9),
        short_bytes(b, f->requested_bytes));
    if (f->free_bytes != GS_UNKNOWN) {
        put(l, TERM_PLAIN, " with %s free", short_bytes(a, f->free_bytes));
    }
    put(l, TERM_PLAIN, ", %s", f->fatal ? "not recovered" : "recovered");
    if (s->failures_total > 1) {
        put(l, TERM_PLAIN, " (%s in all)", format_count(a, s->failures_total));
    }
    put(l, TERM_PLAIN, "  %s", site_text(l->v, place, sizeof place, &site, 60));
    finish(l);
}

static void source_block(struct line *l, uint32_t source, bool brief)
{
    struct top_source *s = &l->v->tables->model->sources[source];
    char said[LINE];
    process_line(l, source);
    top_state_said(s, said, sizeof said);
    if (*said) {
        put(l, TERM_YELLOW, "  ");
        words(l, 2, TERM_YELLOW, said);
    }
    for (size_t i = 0; i < s->devices_n; i++) {
        int chosen = l->v->choice.device;
        if (chosen == TOP_ALL || chosen == s->devices[i].device) {
            device_line(l, source, &s->devices[i], brief);
        }
    }
    struct top_series *pinned = top_series_find(l->v->tables->model, source, -1, TOP_PINNED);
    char text[UNITS_TEXT];
    if (pinned && pinned->bytes > 0 && !brief) {
        put(l, TERM_BOLD, "  pinned ");
        put(l, TERM_PLAIN, "%s of host memory", short_bytes(text, pinned->bytes));
        growth(l, pinned, s->now_ns);
        finish(l);
    }
    if (s->failures_n) {
        failure_line(l, s);
    }
    if (s->lost_events) {
        put(l, TERM_RED, "  %s events were lost for want of space", format_count(text, s->lost_events));
        finish(l);
    }
    if (s->unfound_bytes > 0) {
        put(l, TERM_DIM, "  %s of what is listed were freed; their lines are being looked for",
            short_bytes(text, s->unfound_bytes));
        finish(l);
    }
}

static void title_line(struct line *l)
{
    const struct top_model *m = l->v->tables->model;
    char text[UNITS_TEXT], clock[32], path[1024];
    int64_t age = 0;
    bool any = false;
    for (size_t i = 0; i < m->sources_n; i++) {
        const struct top_source *s = &m->sources[i];
        any = any || s->state == TOP_RECORDING;
        age = s->state == TOP_RECORDING && s->age_ns > age ? s->age_ns : age;
    }
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(clock, sizeof clock, "%H:%M:%S", &tm);
    put(l, TERM_BOLD, "gpuspy top");
    put(l, TERM_PLAIN, "  %s", text_path_here(path, sizeof path, m->sources[0].db.path));
    if (m->sources_n > 1) {
        put(l, TERM_PLAIN, " and %zu more", m->sources_n - 1);
    }
    if (!any) {
        put(l, TERM_YELLOW, "  not recording");
    } else if (age) {
        put(l, TERM_PLAIN, "  data %s old", format_seconds(text, (double)age / 1e9));
    } else {
        put(l, TERM_PLAIN, "  data of now");
    }
    if (l->v->paused) {
        put(l, TERM_YELLOW, "  paused");
    }
    if (l->v->columns - l->at > 10) {
        put(l, TERM_DIM, "%*s%s", l->v->columns - l->at - 8, "", clock);
    }
    finish(l);
}

/* ---------------------------------------------------------------- the table */

#define WORD(s, v, w) [v] = w,
static const char *const directions[8] = {GS_DIRECTIONS(WORD)};
static const char *const host_memories[8] = {GS_HOST_MEMORIES(WORD)};
static const char *const sync_kinds[8] = {GS_SYNC_KINDS(WORD)};

struct column {
    const char *head;
    int width, from; /* from: the screen's columns where there is room for it */
    void (*cell)(const struct top_view *v, const struct top_row *r, char *out);
    int sort; /* enum top_sort, -1 */
};

#define CELL(name) static void name(const struct top_view *v, const struct top_row *r, char *out)
CELL(cell_bytes)
{
    short_bytes(out, r->bytes);
}
CELL(cell_share)
{
    const int64_t total = v->tables->total;
    const int64_t n = v->choice.table == TOP_SYNCS ? r->blocked_ns : r->bytes;
    format_share(out, total > 0 ? (double)n / (double)total : 0);
}
CELL(cell_count)
{
    format_count(out, r->count);
}
CELL(cell_growth)
{
    format_bytes_signed(out, r->growth);
}
CELL(cell_since)
{
    format_bytes_signed(out, r->since);
}
CELL(cell_rate)
{
    short_rate(out, r->rate);
}
CELL(cell_byte_rate)
{
    format_rate(out, r->byte_rate);
}
CELL(cell_blocked)
{
    format_seconds(out, (double)r->blocked_ns / 1e9);
}
CELL(cell_each)
{
    format_seconds(out, r->count ? (double)r->blocked_ns / 1e9 / (double)r->count : 0);
}
CELL(cell_busy)
{
    format_share(out, r->busy);
}
CELL(cell_last)
{
    int64_t now = 0;
    const struct top_model *m = v->tables->model;
    for (size_t i = 0; i < m->sources_n; i++) {
        now = most(now, m->sources[i].now_ns);
    }
    if (r->last_ns == GS_UNKNOWN || r->last_ns < now - 3600 * 1000000000ll) {
        snprintf(out, UNITS_TEXT, "long ago");
    } else {
        format_seconds(out, (double)most(now - r->last_ns, 0) / 1e9);
    }
}
CELL(cell_copy)
{
    const char *host = host_memories[r->kind >> 3 & 3];
    snprintf(out, UNITS_TEXT, "%s %s", directions[r->kind & 7] ? directions[r->kind & 7] : "?",
             host && strcmp(host, "none") ? host : "");
}
CELL(cell_sync)
{
    snprintf(out, UNITS_TEXT, "%s", sync_kinds[r->kind & 7] ? sync_kinds[r->kind & 7] : "?");
}

static const struct column memory_columns[] = {
    {"HELD", 10, 0, cell_bytes, TOP_BY_SIZE},     {"SHARE", 6, 0, cell_share, -1},
    {"COUNT", 7, 0, cell_count, TOP_BY_COUNT},    {"+ 1 MIN", 11, 0, cell_growth, TOP_BY_GROWTH},
    {"ALLOC/S", 7, 88, cell_rate, TOP_BY_RATE},   {"+ WATCHED", 11, 120, cell_since, -1},
    {"LAST AGO", 9, 104, cell_last, TOP_BY_LAST}, {0},
};
static const struct column sync_columns[] = {
    {"BLOCKED", 9, 0, cell_blocked, TOP_BY_SIZE}, {"COUNT", 9, 0, cell_count, TOP_BY_COUNT},
    {"NOW", 6, 0, cell_busy, TOP_BY_GROWTH},      {"CALLS/S", 7, 0, cell_rate, TOP_BY_RATE},
    {"EACH", 8, 96, cell_each, -1},               {"LAST AGO", 9, 104, cell_last, TOP_BY_LAST},
    {"KIND", 8, 0, cell_sync, -1},                {0},
};
static const struct column copy_columns[] = {
    {"COPIED", 10, 0, cell_bytes, TOP_BY_SIZE},     {"COUNT", 9, 0, cell_count, TOP_BY_COUNT},
    {"BYTES/S", 9, 0, cell_byte_rate, TOP_BY_GROWTH}, {"COPIES/S", 8, 88, cell_rate, TOP_BY_RATE},
    {"BLOCKED", 8, 96, cell_blocked, -1},           {"LAST AGO", 9, 104, cell_last, TOP_BY_LAST},
    {"KIND", 13, 0, cell_copy, -1},                 {0},
};
static const struct table_kind {
    const char *title, *unit;
    const struct column *columns;
} kinds[TOP_TABLES] = {
    [TOP_LINES] = {"who holds what, by line", "bytes", memory_columns},
    [TOP_FUNCTIONS] = {"who holds what, by function", "bytes", memory_columns},
    [TOP_SYNCS] = {"who waits for the GPU, by line", "time", sync_columns},
    [TOP_COPIES] = {"who copies, by line", "bytes", copy_columns},
};

static bool fits(const struct top_view *v, const struct column *c)
{
    return v->columns >= c->from;
}

static void cell_put(struct line *l, enum term_style style, int width, const char *text)
{
    put(l, style, "%*s", width - term_columns(text), "");
    put(l, style, "%s  ", text);
}

static void head_line(struct line *l)
{
    const struct top_view *v = l->v;
    for (const struct column *c = kinds[v->choice.table].columns; c->head; c++) {
        if (fits(v, c)) {
            cell_put(l, c->sort == (int)v->choice.sort ? TERM_BOLD : TERM_DIM, c->width, c->head);
        }
    }
    put(l, TERM_DIM, "%s", v->choice.table == TOP_FUNCTIONS ? "FUNCTION" : "LINE");
    finish(l);
}

static void row_line(struct line *l, const struct top_row *r)
{
    const struct top_view *v = l->v;
    char text[LINE];
    for (const struct column *c = kinds[v->choice.table].columns; c->head; c++) {
        if (fits(v, c)) {
            c->cell(v, r, text);
            bool grows = c->cell == cell_growth && r->growth > 0;
            cell_put(l, grows ? TERM_YELLOW : TERM_PLAIN, c->width, text);
        }
    }
    struct gs_site site = r->site;
    if (v->choice.table == TOP_FUNCTIONS) {
        site.line = 0;
    }
    int room = v->columns - l->at;
    if (v->choice.table == TOP_FUNCTIONS && site.known && site.function && !site.exit) {
        char name[LINE];
        text_function(name, sizeof name, site.function, room, v->term.utf8);
        put(l, TERM_PLAIN, "%s", name);
        if (site.file && v->columns - l->at > 12) {
            char path[LINE];
            const struct top_model *m = v->tables->model;
            text_path(path, sizeof path, site.file, m->sources[0].cwd, v->columns - l->at - 2, v->term.utf8);
            put(l, TERM_DIM, "  %s", path);
        }
    } else {
        put(l, TERM_PLAIN, "%s", site_text(v, text, sizeof text, &site, room));
    }
    finish(l);
}

static const char *layer_title(const struct top_view *v)
{
    static const char *const titles[TOP_LAYERS] = {"device allocations", "tensors", "pinned host memory",
                                                   "CPU tensors", "memory of other processes"};
    if (v->choice.table >= TOP_SYNCS) {
        return "";
    }
    if (v->choice.layer != TOP_LAYER_AUTO) {
        return titles[v->choice.layer];
    }
    const struct top_model *m = v->tables->model;
    int source = v->choice.source;
    bool same = true;
    for (size_t i = 1; i < m->sources_n; i++) {
        same = same && top_layer_of(m, (uint32_t)i) == top_layer_of(m, 0);
    }
    return source != TOP_ALL ? titles[top_layer_of(m, (uint32_t)source)]
           : same            ? titles[top_layer_of(m, 0)]
                             : "tensors, or device allocations";
}

static void table_title(struct line *l)
{
    const struct top_view *v = l->v;
    const struct top_model *m = v->tables->model;
    const char *layer = layer_title(v);
    put(l, TERM_CYAN, "%s", kinds[v->choice.table].title);
    if (*layer) {
        put(l, TERM_PLAIN, "  %s", layer);
    }
    if (v->choice.source != TOP_ALL && m->sources_n > 1) {
        const struct top_source *s = &m->sources[v->choice.source];
        s->rank != GS_UNKNOWN ? put(l, TERM_PLAIN, "  rank %lld", (long long)s->rank)
                              : put(l, TERM_PLAIN, "  process %u", s->pid);
    } else if (m->sources_n > 1) {
        put(l, TERM_PLAIN, "  all processes");
    }
    if (v->choice.device != TOP_ALL) {
        put(l, TERM_PLAIN, "  GPU %d", v->choice.device);
    }
    if (v->choice.native) {
        put(l, TERM_PLAIN, "  native");
    }
    if (v->typing) {
        put(l, TERM_BOLD, "  /%s_", v->choice.filter);
    } else if (*v->choice.filter) {
        put(l, TERM_YELLOW, "  only /%s", v->choice.filter);
    }
    if (v->tables->n && v->scroll) {
        put(l, TERM_DIM, "  from %d of %zu", v->scroll + 1, v->tables->n);
    }
    finish(l);
}

static void waits_lines(struct line *l, int room)
{
    struct top_model *m = l->v->tables->model;
    int source = l->v->choice.source;
    int shown = 0;
    for (size_t i = 0; i < m->sources_n && shown < room; i++) {
        const struct top_source *s = &m->sources[i];
        if (source != TOP_ALL && source != (int)i) {
            continue;
        }
        for (size_t k = 1; k <= TOP_WAITS_MAX && k <= s->waits_next && shown < room; k++) {
            const struct top_wait *w = &s->waits[(s->waits_next - k) % TOP_WAITS_MAX];
            char a[UNITS_TEXT], b[UNITS_TEXT], place[LINE];
            struct gs_site site = top_site(l->v->tables, w->stack, l->v->choice.native);
            if (shown++ == 0) {
                put(l, TERM_CYAN, "the last waits");
                finish(l);
            }
            put(l, TERM_PLAIN, "%9s ago  %9s  ",
                format_seconds(a, (double)most(s->now_ns - w->start_ns, 0) / 1e9),
                format_seconds(b, (double)w->blocked_ns / 1e9));
            put(l, TERM_PLAIN, "%-28s  ", top_api(m, s, w->api));
            put(l, TERM_PLAIN, "%s", site_text(l->v, place, sizeof place, &site, l->v->columns - l->at));
            finish(l);
        }
    }
}

static void table_part(struct line *l, int room)
{
    struct top_view *v = (struct top_view *)(uintptr_t)l->v;
    bool all = v->rows == 0;
    int waits = v->choice.table == TOP_SYNCS ? all ? 5 : room / 3 : 0;
    v->table_rows = all ? (int)v->tables->n : room - 2 - (waits ? waits + 1 : 0);
    if (!all && v->table_rows < 0) {
        v->table_rows = 0;
    }
    if (v->scroll > (int)v->tables->n - v->table_rows) {
        v->scroll = (int)most((int64_t)v->tables->n - v->table_rows, 0);
    }
    table_title(l);
    head_line(l);
    int most_rows = all ? 20 : v->table_rows;
    for (int i = 0; i < most_rows && (size_t)(v->scroll + i) < v->tables->n; i++) {
        row_line(l, &v->tables->rows[v->scroll + i]);
    }
    if (v->tables->n == 0) {
        put(l, TERM_DIM, "%s", *v->choice.filter ? "nothing with that in its place" : "nothing");
        finish(l);
    }
    waits_lines(l, waits);
}

/* ---------------------------------------------------------------- help, keys */

static const char *const help_text[] = {
    "q, Ctrl-C        quit",
    "space            pause, go on",
    "1 2 3 4, t       table: lines, functions, waits, copies; the next one",
    "s, b c g r l     sort by the next; by bytes, count, growth, rate, last",
    "/                only places with that text; Enter keeps it, Esc drops it",
    "Tab              the next process or device; at the end all of them",
    "m                memory: tensors or device, device, pinned, CPU tensors",
    "n                places in C and C++ (native frames), or in Python",
    "arrows PgUp PgDn Home   scroll",
    "",
    "HELD       live now                + 1 MIN    change over the last minute",
    "+ WATCHED  change since you began  ALLOC/S    over the last 5 to 10 s",
    "NOW        of waits: share of the time blocked of late",
    "the bar    tensors, the allocator's cache, other allocations, the context",
    "           and what sizes are rounded up by, other processes",
};

static void help_lines(struct line *l)
{
    for (size_t i = 0; i < sizeof help_text / sizeof *help_text; i++) {
        put(l, TERM_PLAIN, "  %s", help_text[i]);
        finish(l);
    }
}

static void keys_line(struct line *l)
{
    const struct top_view *v = l->v;
    if (v->typing) {
        put(l, TERM_DIM, "type a part of a place · Enter keeps it · Esc drops it");
    } else {
        put(l, TERM_DIM, "q quit ? help space %s t table s sort / filter Tab process n native m memory",
            v->paused ? "go on" : "pause");
    }
}

/* ---------------------------------------------------------------- all of it */

static int head_height(const struct top_view *v, bool brief)
{
    const struct top_model *m = v->tables->model;
    int lines = 1;
    for (size_t i = 0; i < m->sources_n; i++) {
        lines += 2 + (int)m->sources[i].devices_n * (brief ? 1 : 2);
    }
    return lines;
}

void top_view_print(struct top_view *v, FILE *out)
{
    struct top_model *m = v->tables->model;
    char *text = NULL;
    size_t size = 0;
    FILE *head = open_memstream(&text, &size);
    struct line l = {v, head, 0};
    const bool brief = v->rows > 0 && head_height(v, false) > v->rows / 2;
    title_line(&l);
    for (size_t i = 0; i < m->sources_n; i++) {
        if (v->choice.source == TOP_ALL || v->choice.source == (int)i) {
            source_block(&l, (uint32_t)i, brief);
        }
    }
    fclose(head);
    int lines = 0, most_lines = v->rows ? v->rows - 5 : 0;
    for (const char *p = text; *p; p++) { /* a head that leaves no room for the table is cut */
        if (most_lines > 0 && lines >= most_lines) {
            break;
        }
        fputc(*p, out);
        lines += *p == '\n';
    }
    free(text);
    l.out = out;
    finish(&l);
    top_tables_fill(v->tables, &v->choice);
    int room = v->rows ? v->rows - lines - 1 - (v->live ? 1 : 0) : 0;
    if (v->help) {
        help_lines(&l);
    } else {
        table_part(&l, room);
    }
    if (v->live) {
        keys_line(&l);
    }
}
