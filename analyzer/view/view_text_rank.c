/* The processes of a run compared: all of them if they are few, else their spread and the outliers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"
#include "analyzer/base/sort.h"
#include "analyzer/base/words.h"

enum { ROWS = 16, WIDE = 100, NAME = 64 };

static const double out_share = 0.1, out_time = 0.05; /* from the median, to count as an outlier */
static const double out_bytes = 64 << 20;

static void print_rank_sentence(const struct draw_text *v, const char *mark, const char *text)
{
    char line[1024];

    terminal_clean(line, sizeof line, text, v->term.utf8);
    draw_wrap(v, INDENT, mark, "%s", line);
}

static const struct run_process *shown_process_of(const struct draw_text *v, const struct result_rank *k)
{
    return &v->report->processes[k->process];
}

static void rank_name(const struct draw_text *v, const struct result_rank *k, char *out)
{
    const char *more = k->child ? ", child" : k->again ? ", earlier" : "";

    if (k->rank >= 0)
        snprintf(out, NAME, "rank %lld%s", (long long)k->rank, more);
    else
        snprintf(out, NAME, "process %u", shown_process_of(v, k)->pid);
}

/* The columns that exist, in the order of the cells below. */
struct columns {
    bool host, waited, copied;
};

static void add_rank_row(const struct draw_text *v, struct text_table *t, const struct result_rank *k,
                         const struct columns *c)
{
    char who[NAME], host[NAME], gpu[NAME], tensors[UNITS_TEXT] = "", waited[UNITS_TEXT], copied[UNITS_TEXT],
                                           whole[1024];
    const char *cells[TEXT_TABLE_COLUMNS];
    int n = 0;

    rank_name(v, k, who);
    terminal_clean(whole, sizeof whole, shown_process_of(v, k)->host ? shown_process_of(v, k)->host : "?",
                   v->term.utf8);
    text_elide(host, sizeof host, whole, 16, v->term.utf8);
    terminal_clean(whole, sizeof whole, k->gpu, v->term.utf8);
    text_elide(gpu, sizeof gpu, whole, 12, v->term.utf8);
    if (k->tensor_peak_bytes != RUN_UNKNOWN) draw_bytes(tensors, k->tensor_peak_bytes);
    cells[n++] = who;
    if (c->host) cells[n++] = host;
    cells[n++] = gpu;
    cells[n++] = tensors;
    cells[n++] = DRAW_BYTES(k->device_peak_bytes);
    if (c->waited) cells[n++] = units_format_seconds(waited, k->blocked_s);
    if (c->copied) cells[n++] = draw_bytes(copied, k->copied_bytes);
    cells[n++] = v->report->no_times ? "?" : UNITS_SECONDS((double)shown_process_of(v, k)->end_ns / 1e9);
    text_table_add(t, cells, NULL);
}

static struct text_table rank_table(const struct columns *c)
{
    struct text_table t = {.left = {true}};
    int n = 1;

    t.head[0] = "";
    if (c->host) {
        t.left[n] = true;
        t.head[n++] = "host";
    }
    t.head[n++] = "GPU";
    t.head[n++] = "tensors";
    t.head[n++] = "CUDA allocations";
    if (c->waited) t.head[n++] = "waited";
    if (c->copied) t.head[n++] = "copied";
    t.head[n++] = "recorded";
    return t;
}

static double distance_from_median(double value, double median, double least)
{
    double difference = fabs(value - median);

    return isfinite(median) && difference >= least && difference >= out_share * median
               ? difference / fmax(median, least)
               : 0;
}

/* How far a rank is from the median in memory, copies and waits; 0: not an outlier. */
static double rank_outside_share(const struct draw_text *v, const struct result_rank *k)
{
    const struct result_rank_spread *s = v->report->rank_spread;
    double time = (double)shown_process_of(v, k)->end_ns / 1e9;
    double tensors = k->tensor_peak_bytes == RUN_UNKNOWN ? NAN : (double)k->tensor_peak_bytes;
    double most = isfinite(tensors) ? distance_from_median(tensors, s[RESULT_RANK_TENSOR_PEAK].median, out_bytes) : 0;

    most = fmax(most, distance_from_median((double)k->device_peak_bytes, s[RESULT_RANK_DEVICE_PEAK].median, out_bytes));
    most = fmax(most, distance_from_median((double)k->copied_bytes, s[RESULT_RANK_COPIED].median, out_bytes));
    if (!v->report->simulated)
        most = fmax(most, distance_from_median(k->waited_s, s[RESULT_RANK_WAITED].median, out_time * time));
    return most;
}

struct outlier {
    const struct result_rank *rank;
    double outside;
};

SORT_ORDER(order_by_distance, struct outlier, SORT_DOWN(x->outside, y->outside) ?: SORT_UP(x->rank, y->rank))

static void print_outliers(const struct draw_text *v, const struct columns *c)
{
    const struct result_report *r = v->report;
    struct text_table t = rank_table(c);
    struct outlier *list = arena_realloc(NULL, r->ranks_n, sizeof *list);
    size_t n = 0;

    for (size_t i = 0; i < r->ranks_n; i++) {
        double far = r->ranks[i].again || r->ranks[i].child ? 0 : rank_outside_share(v, &r->ranks[i]);
        if (far > 0) list[n++] = (struct outlier){&r->ranks[i], far};
    }
    SORT(list, n, order_by_distance);
    size_t shown = n < v->top ? n : v->top;
    for (size_t i = 0; i < shown; i++) add_rank_row(v, &t, list[i].rank, c);
    if (shown) {
        fprintf(v->out, "\n%*sFarthest from the median:\n", INDENT, "");
        text_table_print(&t, &v->term, INDENT, v->out);
        draw_more(v, n, shown);
    } else {
        fprintf(v->out, "%*sNone is an outlier; --json lists all\n", INDENT, "");
    }
    free(list);
}

static void rank_figure_text(enum result_rank_figure figure, double value, char *out)
{
    switch (figure) {
    case RESULT_RANK_WAITED:
    case RESULT_RANK_STARTED: units_format_seconds(out, value); break;
    case RESULT_RANK_WAITS:
    case RESULT_RANK_COPIES:
    case RESULT_RANK_ALLOCATIONS: units_format_count(out, units_whole(value)); break;
    default: units_format_bytes(out, units_whole(value));
    }
}

static void print_spread(const struct draw_text *v)
{
    static const char *const words[] = {RESULT_RANK_FIGURES(WORDS_SECOND)};
    struct text_table t = {.head = {"", "least", "", "median", "most", ""},
                           .left = {true, false, true, false, false, true}};

    for (int i = 0; i < RESULT_RANK_FIGURES_N; i++) {
        const struct result_rank_spread *s = &v->report->rank_spread[i];
        char least[UNITS_TEXT], median[UNITS_TEXT], most[UNITS_TEXT], first[NAME] = "", last[NAME] = "";
        if (!isfinite(s->most) || s->most <= 0 || result_rank_unknown(v->report, (enum result_rank_figure)i)) continue;
        rank_figure_text((enum result_rank_figure)i, s->least, least);
        rank_figure_text((enum result_rank_figure)i, s->median, median);
        rank_figure_text((enum result_rank_figure)i, s->most, most);
        if (s->least < s->most) {
            rank_name(v, &v->report->ranks[s->least_at], first);
            rank_name(v, &v->report->ranks[s->most_at], last);
        }
        const char *cells[] = {words[i], least, first, median, most, last};
        text_table_add(&t, cells, NULL);
    }
    text_table_print(&t, &v->term, INDENT, v->out);
}

void view_text_ranks(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    char hosts[64] = "";

    if (!r->ranks_n) return;
    if (r->rank_hosts > 1) snprintf(hosts, sizeof hosts, " on %zu hosts", r->rank_hosts);
    bool few = r->ranks_n <= ROWS, narrow = v->term.width < WIDE;
    struct columns c = {.host = r->rank_hosts > 1 && v->term.width >= 70,
                        .waited = !r->unknown[RUN_FACT_WAITS],
                        .copied =
                            !r->unknown[RUN_FACT_COPIES] && (!narrow || (r->rank_hosts < 2 && v->term.width >= 76))};
    draw_heading(v, TERMINAL_BOLD, r->ranks[0].rank >= 0 ? "Ranks" : "Processes", ": %zu%s, each at its own peak",
                 r->ranks_n, hosts);
    if (few || !isfinite(r->rank_spread[RESULT_RANK_DEVICE_PEAK].most)) {
        struct text_table t = rank_table(&c);
        size_t shown = few ? r->ranks_n : ROWS;
        for (size_t i = 0; i < shown; i++) add_rank_row(v, &t, &r->ranks[i], &c);
        text_table_print(&t, &v->term, INDENT, v->out);
        if (shown < r->ranks_n) fprintf(v->out, "  and %zu more: --json has them\n", r->ranks_n - shown);
    } else {
        print_spread(v);
        print_outliers(v, &c);
    }
    EACH_IN (f, r->rank_findings) {
        print_rank_sentence(v, v->term.utf8 ? "• " : "- ", f->text);
        if (f->advice) print_rank_sentence(v, "  ", f->advice);
    }
}
