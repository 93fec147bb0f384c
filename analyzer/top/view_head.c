/* The head of the screen: the recordings, their devices and the devices' use. */
#include "analyzer/top/view_parts.h"

#include <math.h>
#include <time.h>
#include "analyzer/base/text.h"

enum {
    BAR_MAX = 50,
    BAR_MIN = 10,
    CURVE_POINTS_MIN = 3,
    CURVE_POINTS_MAX = TOP_CURVE_S / TOP_SLOT_S,
    CURVE_TEXT = 80,
    URGENT_S = 60
};

struct part {
    int64_t bytes;
    const char *utf8, *ascii;
    enum terminal_style style;
};

static void draw_bar(struct top_line *l, const struct top_held *h, int width)
{
    const int64_t cached = top_min(h->cached, top_max(h->device - h->tensors, 0));
    const struct part parts[] = {
        {h->tensors, "█", "#", TERMINAL_GREEN},
        {cached, "▓", "=", TERMINAL_CYAN},
        {top_max(h->device - h->tensors - cached, 0), h->tensors ? "▒" : "█", h->tensors ? "+" : "#", TERMINAL_GREEN},
        {h->used == RUN_UNKNOWN ? 0 : h->context, "▒", "-", TERMINAL_DIM},
        {h->used == RUN_UNKNOWN ? 0 : h->others, "░", ":", TERMINAL_YELLOW},
    };
    int drawn = 0;
    int64_t sum = 0;
    top_put(l, TERMINAL_PLAIN, "[");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        sum = arena_add_capped(sum, parts[i].bytes);
        int end = (int)top_min((int64_t)((double)sum / (double)h->total * width + 0.5), width);
        for (; drawn < end; drawn++) top_put(l, parts[i].style, "%s", l->v->term.utf8 ? parts[i].utf8 : parts[i].ascii);
    }
    for (; drawn < width; drawn++) top_put(l, TERMINAL_DIM, "%s", l->v->term.utf8 ? "·" : ".");
    top_put(l, TERMINAL_PLAIN, "]");
}

static enum terminal_style alarm_style(double share)
{
    return share >= 0.95 ? TERMINAL_RED : share >= 0.85 ? TERMINAL_YELLOW : TERMINAL_BOLD;
}

/* Printed whole or not at all: part of a number would be wrong. */
static void add_head_piece(struct top_line *l, enum terminal_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_head_piece(struct top_line *l, enum terminal_style style, const char *format, ...)
{
    char text[TOP_LINE];
    TEXT_FORMAT(text, sizeof text, format);
    if (l->at + terminal_columns(text) <= l->v->columns) top_put(l, style, "%s", text);
}

static void add_head_amount(struct top_line *l, const char *what, int64_t bytes)
{
    if (bytes > 0) add_head_piece(l, TERMINAL_PLAIN, "  %s %s", what, TOP_BYTES(bytes));
}

static void add_head_growth(struct top_line *l, const struct top_series *s, int64_t now_ns)
{
    if (!s) return;
    struct top_sum sum = top_ring_sum(&s->ring, now_ns, TOP_WINDOW_S);
    if (sum.amount && sum.seconds > 0) {
        add_head_piece(l, sum.amount > 0 ? TERMINAL_YELLOW : TERMINAL_PLAIN, "  %s in %s",
                       UNITS_BYTES_SIGNED(sum.amount), UNITS_SECONDS(sum.seconds));
    }
}

static int bar_width(const struct top_view *v)
{
    const int width = v->columns - 50;
    return width > BAR_MAX ? BAR_MAX : width < BAR_MIN ? BAR_MIN : width;
}

static void add_head_forecast(struct top_line *l, const struct top_forecast *f)
{
    if (!isnan(f->full_s)) {
        const enum terminal_style style = f->full_s < URGENT_S ? TERMINAL_RED : TERMINAL_YELLOW;
        add_head_piece(l, style, "  full in %s", UNITS_SECONDS(f->full_s));
    }
    if (!isnan(f->bytes_per_s))
        add_head_piece(l, TERMINAL_YELLOW, "  %s per minute", UNITS_BYTES_SIGNED((int64_t)(f->bytes_per_s * 60)));
}

/* Scaled from its minimum to its maximum, so that slow growth is visible. */
static void curve_line(struct top_line *l, uint32_t source, const struct top_device *d, const struct top_series *series)
{
    static const char *const block[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char plain[] = "_.-=+*#@";
    const struct top_source *s = &l->v->tables->model->sources[source];
    const struct top_forecast f = top_forecast_of(l->v->tables->model, source, d);
    struct top_span points[CURVE_POINTS_MAX];
    int64_t low = INT64_MAX, high = 0;
    int seconds = TOP_SLOT_S;
    const int64_t known_s = (s->now_ns - s->curve_from_ns) / 1000000000;
    while (top_min(known_s, TOP_CURVE_S) / seconds > top_max(l->v->columns - CURVE_TEXT, BAR_MIN))
        seconds += TOP_SLOT_S;
    const int64_t level = series->known != RUN_UNKNOWN ? series->known : series->bytes;
    const size_t n =
        top_curve_read(&series->curve, s->now_ns, level, s->curve_from_ns, seconds, points, CURVE_POINTS_MAX);
    for (size_t i = 0; i < n; i++) {
        low = top_min(low, top_max(points[i].high, 0));
        high = top_max(high, points[i].high);
    }
    if (n < CURVE_POINTS_MIN || high == 0) return;
    top_put(l, TERMINAL_PLAIN, "       ");
    for (size_t i = 0; i < n; i++) {
        const int at =
            high > low ? (int)((double)(top_max(points[i].high, 0) - low) / (double)(high - low) * 7 + 0.5) : 0;
        top_put(l, TERMINAL_CYAN, l->v->term.utf8 ? "%s" : "%.1s", l->v->term.utf8 ? block[at] : &plain[at]);
    }
    add_head_forecast(l, &f);
    add_head_piece(l, TERMINAL_PLAIN, "  %s to %s in %s", TOP_BYTES(low), TOP_BYTES(high),
                   UNITS_SECONDS((double)n * seconds));
    top_finish(l);
}

static void device_line(struct top_line *l, uint32_t source, const struct top_device *d, bool brief)
{
    const struct top_model *m = l->v->tables->model;
    const struct top_source *s = &m->sources[source];
    struct top_held h = top_held_of(m, source, d);
    top_put(l, TERMINAL_BOLD, "  GPU %d ", d->device);
    if (s->no_memory) {
        char why[TOP_LINE];
        snprintf(why, sizeof why, "memory is unknown: %s", s->no_memory);
        top_words(l, 4, TERMINAL_PLAIN, why);
        return;
    }
    const int64_t pytorch = top_max(h.tensors, 0) + h.cached;
    const int64_t used = h.used == RUN_UNKNOWN ? top_max(h.device, pytorch) : h.used;
    const bool only_tensors = s->lacks[RUN_FACT_SEGMENTS] && d->reserved_bytes == RUN_UNKNOWN;
    const char *part = h.used != RUN_UNKNOWN ? "" : only_tensors ? " in tensors" : " recorded";
    if (h.total > 0) {
        double share = (double)used / (double)h.total;
        draw_bar(l, &h, bar_width(l->v));
        top_put(l, alarm_style(share), " %s", TOP_BYTES(used));
        top_put(l, TERMINAL_PLAIN, " of %s %s%s", TOP_BYTES(h.total), units_format_share((char[UNITS_TEXT]){0}, share),
                part);
    } else {
        top_put(l, TERMINAL_BOLD, "%s", TOP_BYTES(used));
        top_put(l, TERMINAL_PLAIN, "%s of an unknown total", only_tensors ? part : "");
    }
    if (d->utilisation >= 0) add_head_piece(l, TERMINAL_PLAIN, "  busy %d %%", d->utilisation);
    if (d->temperature >= 0) add_head_piece(l, TERMINAL_PLAIN, l->v->term.utf8 ? "  %d °C" : "  %d C", d->temperature);
    top_finish(l);
    if (brief || (h.device == 0 && h.tensors == 0 && h.used == RUN_UNKNOWN)) return;
    const enum top_layer layer = top_layer_of(m, source);
    top_put(l, TERMINAL_PLAIN, "       ");
    add_head_amount(l, "tensors", h.tensors);
    add_head_amount(l, "cached", h.cached);
    int64_t direct = h.device - top_max(h.tensors + h.cached, 0);
    add_head_amount(l, h.tensors || h.cached ? "other allocations" : "allocations", direct);
    if (h.used != RUN_UNKNOWN) {
        add_head_amount(l, h.by_nvml ? "context and rounding" : "context, rounding, other processes", h.context);
        add_head_amount(l, d->other_name && *d->other_name ? d->other_name : "other processes", h.others);
    }
    const struct top_series *series = top_series_find(m, source, d->device, layer);
    if (!s->no_rates && !s->unread_rows) add_head_growth(l, series, s->now_ns);
    if (series && series->peak != RUN_UNKNOWN && series->peak > 0)
        add_head_piece(l, TERMINAL_PLAIN, "  peak %s", TOP_BYTES(series->peak));
    top_finish(l);
    if (series && s->state == TOP_RECORDING && !s->unread_rows) curve_line(l, source, d, series);
}

static void process_line(struct top_line *l, uint32_t source)
{
    const struct top_model *m = l->v->tables->model;
    const struct top_source *s = &m->sources[source];
    char command[TOP_LINE];
    double rate, amounts;
    if (s->pid || !s->format) top_put(l, TERMINAL_BOLD, "%u", s->pid);
    if (s->rank != RUN_UNKNOWN) top_put(l, TERMINAL_BOLD, " rank %lld", (long long)s->rank);
    if (s->state == TOP_RECORDING) {
        top_put(l, TERMINAL_PLAIN, "  %s", UNITS_SECONDS((double)s->clock_ns / 1e9));
        add_head_piece(l, TERMINAL_PLAIN, "  %s alloc/s", TOP_RATE(top_allocation_rate(m, source)));
        top_rates(m, m->copies, m->copies_n, source, &rate, &amounts);
        if (rate > 0) {
            add_head_piece(l, TERMINAL_PLAIN, "  %s copies/s", TOP_RATE(rate));
            add_head_piece(l, TERMINAL_PLAIN, " %s", UNITS_RATE(amounts));
        }
        top_rates(m, m->syncs, m->syncs_n, source, &rate, &amounts);
        if (rate > 0) {
            add_head_piece(l, TERMINAL_PLAIN, "  %s syncs/s", TOP_RATE(rate));
            add_head_piece(l, amounts >= 0.2e9 ? TERMINAL_YELLOW : TERMINAL_PLAIN, " blocked %s",
                           UNITS_SHARE(amounts / 1e9));
        }
    } else if (s->format && s->state == TOP_ENDED) {
        top_put(l, TERMINAL_YELLOW, "%s%s", l->at ? "  " : "", s->format);
        if (!s->no_rates) top_put(l, TERMINAL_PLAIN, " of %s", UNITS_SECONDS((double)s->end_ns / 1e9));
    } else {
        top_put(l, TERMINAL_YELLOW, "  %s", top_state_word(s->state));
        if (s->loaded) top_put(l, TERMINAL_PLAIN, " after %s", UNITS_SECONDS((double)s->end_ns / 1e9));
    }
    int room = l->v->columns - l->at - 2;
    if (s->command && room >= 12) {
        char clean[TOP_LINE];
        terminal_clean(clean, sizeof clean, s->command, l->v->term.utf8);
        text_command(command, sizeof command, clean, room, l->v->term.utf8);
        top_put(l, TERMINAL_DIM, "  %s", command);
    }
    top_finish(l);
}

/* "  in load 12.3 s (peak at least 1.20 GiB), lib: step 40 ms", from the outermost on. */
static void ranges_line(struct top_line *l, uint32_t source)
{
    const struct top_source *s = &l->v->tables->model->sources[source];
    char name[TOP_LINE], domain[TOP_LINE];
    top_put(l, TERMINAL_BOLD, "  in");
    for (size_t i = 0; i < s->ranges_n; i++) {
        const struct top_range *r = &s->ranges[i];
        terminal_clean(name, sizeof name, r->name, l->v->term.utf8);
        terminal_clean(domain, sizeof domain, r->domain, l->v->term.utf8);
        add_head_piece(l, TERMINAL_PLAIN, "%s %s%s%s %s", i ? "," : "", domain, *domain ? ": " : "", name,
                       UNITS_SECONDS((double)top_max(s->now_ns - r->start_ns, 0) / 1e9));
        const int64_t peak = top_range_peak(l->v->tables->model, source, r);
        if (peak > 0) add_head_piece(l, TERMINAL_PLAIN, " (peak at least %s)", TOP_BYTES(peak));
    }
    if (s->ranges_total > s->ranges_n)
        add_head_piece(l, TERMINAL_PLAIN, " and %zu more", s->ranges_total - s->ranges_n);
    top_finish(l);
}

static void failure_line(struct top_line *l, const struct top_source *s)
{
    enum { HANG = 4 };
    const struct top_failure *f = &s->failures[0];
    char place[TOP_LINE], words[256], room[64] = "", end[64] = "";
    struct result_site site = top_site(l->v->tables, f->stack, l->v->choice.native);
    if (f->free_bytes != RUN_UNKNOWN) text_put(room, sizeof room, " with %s free", TOP_BYTES(f->free_bytes));
    if (s->failures_total > 1) text_put(end, sizeof end, " (%s in total)", UNITS_COUNT(s->failures_total));
    text_put(words, sizeof words, "%s %s: %s%s, %s%s", UNITS_SECONDS((double)top_max(s->now_ns - f->time_ns, 0) / 1e9),
             s->state == TOP_ENDED ? "before the end" : "ago", TOP_BYTES(f->requested_bytes), room,
             f->fatal ? "not recovered" : "recovered", end);
    top_site_text(l->v, place, sizeof place, &site, l->v->columns - HANG);
    top_put(l, TERMINAL_RED, "  failed");
    if (l->at + 1 + terminal_columns(words) + 2 + terminal_columns(place) <= l->v->columns) {
        top_put(l, TERMINAL_PLAIN, " %s  %s", words, place);
    } else {
        top_words(l, HANG, TERMINAL_PLAIN, words);
        top_put(l, TERMINAL_PLAIN, "%*s%s", HANG, "", place);
    }
    top_finish(l);
}

static void unread_line(struct top_line *l, const struct top_source *s)
{
    char words[TOP_LINE];
    int64_t rows = 0;
    EACH (p, s->read, TOP_ROWS_N) rows = arena_add_capped(rows, top_max(p->newest, 0));
    const double share = 1 - (double)s->unread_rows / (double)top_max(rows, s->unread_rows);
    snprintf(words, sizeof words, "%s of the recording has been read: until all of it has, %s lack older rows",
             UNITS_SHARE(share), s->state == TOP_RECORDING ? "the tables" : "amounts and tables");
    top_put(l, TERMINAL_YELLOW, "  ");
    top_words(l, 2, TERMINAL_YELLOW, words);
}

void top_source_block(struct top_line *l, uint32_t source, bool brief)
{
    struct top_source *s = &l->v->tables->model->sources[source];
    char state_text[TOP_LINE];
    process_line(l, source);
    top_state_text(s, state_text, sizeof state_text);
    if (*state_text) {
        top_put(l, TERMINAL_YELLOW, "  ");
        top_words(l, 2, TERMINAL_YELLOW, state_text);
    }
    for (size_t i = 0; i < s->devices_n; i++) {
        int chosen = l->v->choice.device;
        if (chosen == TOP_ALL || chosen == s->devices[i].device) device_line(l, source, &s->devices[i], brief);
    }
    struct top_series *pinned = top_series_find(l->v->tables->model, source, -1, TOP_PINNED);
    if (pinned && pinned->bytes > 0 && !brief) {
        top_put(l, TERMINAL_BOLD, "  pinned ");
        top_put(l, TERMINAL_PLAIN, "%s of host memory", TOP_BYTES(pinned->bytes));
        if (!s->unread_rows) add_head_growth(l, pinned, s->now_ns);
        top_finish(l);
    }
    if (s->ranges_n && !brief) ranges_line(l, source);
    if (s->failures_n) failure_line(l, s);
    if (s->lost_events) {
        top_put(l, TERMINAL_RED, "  %s lost: no space left", UNITS_PLURAL(s->lost_events, "event was", "events were"));
        top_finish(l);
    }
    if (s->unread_rows) unread_line(l, s);
    if (s->unfound_bytes > 0) {
        top_put(l, TERMINAL_DIM, "  %s of the listed memory was freed; top is still finding the lines",
                TOP_BYTES(s->unfound_bytes));
        top_finish(l);
    }
}

void top_title_line(struct top_line *l)
{
    const struct top_model *m = l->v->tables->model;
    char clock[32], path[1024];
    int64_t age = 0;
    bool any = false;
    EACH_IN (s, m->sources) {
        any = any || s->state == TOP_RECORDING;
        age = s->state == TOP_RECORDING && s->age_ns > age ? s->age_ns : age;
    }
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(clock, sizeof clock, "%H:%M:%S", &tm);
    top_put(l, TERMINAL_BOLD, "gpuspy top");
    if (m->sources_n) {
        enum { REST = 56 }; /* the title, the number of others, the age of the data, the time */
        char whole[1024];
        const int room = l->v->columns > REST + 20 ? l->v->columns - REST : 20;
        text_path_here(whole, sizeof whole, m->sources[0].db.path);
        top_put(l, TERMINAL_PLAIN, "  %s", text_path(path, sizeof path, whole, NULL, room, l->v->term.utf8));
    }
    if (m->sources_n > 1) top_put(l, TERMINAL_PLAIN, " and %zu more", m->sources_n - 1);
    if (!any)
        top_put(l, TERMINAL_YELLOW, "  not recording");
    else if (age)
        top_put(l, TERMINAL_PLAIN, "  data %s old", UNITS_SECONDS((double)age / 1e9));
    else
        top_put(l, TERMINAL_PLAIN, "  data current");
    if (l->v->paused) top_put(l, TERMINAL_YELLOW, "  paused");
    if (l->v->columns - l->at > 10) top_put(l, TERMINAL_DIM, "%*s%s", l->v->columns - l->at - 8, "", clock);
    top_finish(l);
}
