/* Waiting for the GPU, and copies, by line. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"

static const char *sync_word(const struct result_sync_site *s)
{
    static const char *const words[] = {
        [GS_SYNC_STREAM] = "a stream", [GS_SYNC_DEVICE] = "the whole GPU", [GS_SYNC_CONTEXT] = "a context",
        [GS_SYNC_EVENT] = "an event",  [GS_SYNC_IMPLICIT] = "implicit",
    };

    if (s->pattern) return s->pattern;
    if (s->kind == GS_SYNC_IMPLICIT && s->api && *s->api)
        return s->api; /* cudaFree: its name says more than the kind of wait */
    return s->kind < COUNT_OF(words) ? words[s->kind] : "?";
}

/* Below so many columns the call site needs the room of the time per call and of long words. */
#define NARROW 100
#define WAITS_BRIEF 3
#define WAITS_BRIEF_LEAST 0.001 /* of the run: shorter waits do not belong on one screen */
#define KIND_COLUMNS 18

/* Words are cut at the end, unlike call sites. */
static void shorten_calls_text(const struct draw_text *v, char *out, size_t size, const char *text, int columns)
{
    const char *mark = v->term.utf8 ? "…" : "...";
    bool fits = terminal_columns(text) <= columns;

    text_put(out, size, "%.*s%s", (int)terminal_fit(text, fits ? columns : columns - terminal_columns(mark)), text,
             fits ? "" : mark);
}

/* How often: per step if the program's steps are known, else how many times. */
static const char *how_often_text(char *out, const struct result_pace *pace, uint64_t count)
{
    if (pace->phase == RESULT_PHASE_UNKNOWN) return units_format_count(out, count);
    if (pace->phase == RESULT_PHASE_STEP)
        units_format_mean(out, pace->calls_per_step);
    else if (pace->phase == RESULT_PHASE_LOGGING && pace->every)
        text_put(out, UNITS_TEXT, "1 in %u", pace->every);
    else
        text_put(out, UNITS_TEXT, "%s",
                 pace->phase == RESULT_PHASE_LOGGING ? "rarely" : result_phase_word(pace->phase));
    return out;
}

static bool steps_known(const struct result_report *r)
{
    return ANY_IN(s, r->syncs, s->pace.phase != RESULT_PHASE_UNKNOWN) ||
           ANY_IN(t, r->transfers, t->pace.phase != RESULT_PHASE_UNKNOWN);
}

/* Columns for what a wait is for: what the figures and the shortest call sites leave. If that is less than
 * KIND_COLUMNS, call sites have lines of their own; if there is not even so much without them, so has this. */
static int count_kind_columns(const struct draw_text *v, size_t shown)
{
    enum { FIGURES = 3, GAP = 2 };
    int width[FIGURES] = {0}, site = 0;
    char text[FIGURES][UNITS_TEXT], place[1024];

    EACH (s, v->report->sync_lines, shown) {
        units_format_seconds(text[0], s->blocked_s);
        units_format_share(text[1], s->share);
        how_often_text(text[2], &s->pace, s->count);
        for (int i = 0; i < FIGURES; i++)
            if (terminal_columns(text[i]) > width[i]) width[i] = terminal_columns(text[i]);
        const int least = terminal_columns(draw_site(v, place, sizeof place, &s->site, 1));
        if (least > site) site = least;
    }
    for (int i = 0; i < FIGURES; i++)
        if (width[i] < (int)strlen("per step")) width[i] = (int)strlen("per step"); /* the longest heading */
    const int all = v->term.width - INDENT - FIGURES * GAP - width[0] - width[1] - width[2];
    const int left = all - GAP - site < KIND_COLUMNS ? all : all - GAP - site;
    return left < KIND_COLUMNS || left > 2 * KIND_COLUMNS ? 2 * KIND_COLUMNS : left;
}

static void wait_rows(const struct draw_text *v, size_t shown)
{
    bool narrow = v->term.width < NARROW;
    const int kind_columns = narrow ? count_kind_columns(v, shown) : 2 * KIND_COLUMNS;
    struct text_table t = {SITES(v),
                           .head = {"waited", "share", steps_known(v->report) ? "per step" : "times",
                                    narrow ? "for" : "each", narrow ? "line" : "for", narrow ? NULL : "line"},
                           .left = {false, false, false, narrow, true, true}};

    EACH (s, v->report->sync_lines, shown) {
        char count[UNITS_TEXT], clean[96], kind[96];
        terminal_clean(clean, sizeof clean, sync_word(s), v->term.utf8);
        shorten_calls_text(v, kind, sizeof kind, clean, kind_columns);
        const char *cells[] = {UNITS_SECONDS(s->blocked_s), UNITS_SHARE(s->share),
                               how_often_text(count, &s->pace, s->count),
                               narrow ? kind : UNITS_SECONDS(s->count ? s->blocked_s / (double)s->count : NAN), kind};
        struct text_table_row *row = text_table_add(&t, cells, &s->site);
        if (row) row->below = draw_paths(v, &s->paths, INDENT);
    }
    text_table_print(&t, &v->term, INDENT, v->out);
}

static double per_second(const struct result_report *r, uint64_t count)
{
    return r->duration_s > 0 ? (double)count / r->duration_s : 0;
}

/* One line for calls that are only counted: launches, and queries with the result "not ready". */
static void print_counted_calls(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    uint64_t launches = 0, again = 0;
    char line[256], number[UNITS_TEXT];
    size_t n = 0;

    for (size_t i = 0; i < r->calls_n; i++) {
        launches += strstr(r->calls[i].api, "Launch") ? r->calls[i].count : 0;
        again += r->calls[i].not_ready;
    }
    if (launches)
        n = (size_t)snprintf(line, sizeof line, "%s kernel launch%s (%s per second)",
                             units_format_count(number, launches), launches == 1 ? "" : "es",
                             UNITS_COUNT(units_whole(per_second(r, launches))));
    if (again)
        snprintf(line + n, sizeof line - n, "%s%s that returned not ready (%s per second)", n ? "; " : "",
                 UNITS_PLURAL(again, "query", "queries"), UNITS_COUNT(units_whole(per_second(r, again))));
    if (launches || again) draw_heading(v, TERMINAL_BOLD, "Only counted", ": %s", line);
}

void view_text_waits(const struct draw_text *v)
{
    if (!v->brief) print_counted_calls(v);

    const struct result_report *r = v->report;
    size_t most = v->brief ? WAITS_BRIEF : v->top, shown = r->sync_lines_n < most ? r->sync_lines_n : most;
    while (v->brief && shown > 1 && r->sync_lines[shown - 1].share < WAITS_BRIEF_LEAST) shown--;

    if (!shown && (!r->devices_n || r->unknown[RUN_FACT_WAITS])) return;
    if (v->brief && (!shown || r->sync_share < WAITS_BRIEF_LEAST)) return;
    if (!shown) {
        draw_heading(v, TERMINAL_BOLD, "Waiting for the GPU", ": no call waited");
        return;
    }
    draw_heading(v, TERMINAL_BOLD, "Waiting for the GPU", ": %s, %s of the run%s%s", UNITS_SECONDS(r->sync_blocked_s),
                 UNITS_SHARE(r->sync_share), r->simulated ? ", in simulated time" : "",
                 r->sync_share > 1 ? " (threads waited at the same time)" : "");
    wait_rows(v, shown);
    draw_more(v, r->sync_lines_total, shown);
}

static const char *direction_word(uint8_t direction)
{
    static const char *const words[] = {
        [GS_DIR_H2D] = "host to GPU", [GS_DIR_D2H] = "GPU to host",  [GS_DIR_D2D] = "within GPU",
        [GS_DIR_P2P] = "GPU to GPU",  [GS_DIR_H2H] = "host to host",
    };

    return direction < COUNT_OF(words) ? words[direction] : "?";
}

static const char *memory_word(uint8_t memory)
{
    static const char *const words[] = {
        [GS_HOSTMEM_NONE] = "",
        [GS_HOSTMEM_PAGEABLE] = "pageable",
        [GS_HOSTMEM_PINNED] = "pinned",
        [GS_HOSTMEM_MANAGED] = "managed",
    };

    return memory < COUNT_OF(words) ? words[memory] : "?";
}

void view_text_transfers(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    bool narrow = v->term.width < NARROW;
    struct text_table t = {SITES(v),
                           .head = {"bytes", steps_known(r) ? "per step" : "times", narrow ? "copied" : "rate",
                                    narrow ? "memory" : "copied", narrow ? "line" : "memory", narrow ? NULL : "line"},
                           .left = {false, false, narrow, true, true, true}};
    size_t shown = r->transfer_lines_n < v->top ? r->transfer_lines_n : v->top;

    if (!shown) return;
    draw_title(v, TERMINAL_BOLD, "Copies");
    EACH (x, r->transfer_lines, shown) {
        char count[UNITS_TEXT], rate[UNITS_TEXT] = "";
        if (!isnan(x->bytes_per_s)) units_format_rate(rate, x->bytes_per_s);
        const char *way = direction_word(x->direction), *memory = memory_word(x->host_memory);
        const char *cells[] = {DRAW_BYTES(x->bytes), how_often_text(count, &x->pace, x->count), narrow ? way : rate,
                               narrow ? memory : way, memory};
        struct text_table_row *row = text_table_add(&t, cells, &x->site);
        if (row) row->below = draw_paths(v, &x->paths, INDENT);
    }
    text_table_print(&t, &v->term, INDENT, v->out);
    draw_more(v, r->transfer_lines_total, shown);
}
