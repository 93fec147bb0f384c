/* What the model needs at least, compared with what was measured, and why they differ. */
#include <math.h>
#include <stdio.h>
#include "analyzer/base/text.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"

/* NULL: no category is known, and no columns for them. */
struct measured {
    int64_t bytes;
    double difference;
};

static void add_budget_row(struct text_table *t, const char *what, double estimate, const struct measured *m)
{
    char at_peak[UNITS_TEXT], difference[UNITS_TEXT];
    const char *cells[TEXT_TABLE_COLUMNS] = {estimate >= 0 ? UNITS_BYTES(units_whole(estimate)) : ""};
    size_t n = 1;

    if (m) {
        cells[n++] = m->bytes >= 0 ? draw_bytes(at_peak, m->bytes) : "";
        cells[n++] = fabs(m->difference) < 9e18 ? units_format_bytes_signed(difference, (int64_t)m->difference) : "";
    }
    cells[n] = what;
    text_table_add(t, cells, NULL);
}

/* ": within 1.18 - 1.57 GiB", if an estimate is an interval. */
static void format_budget_range(char *out, size_t size, const struct estimate_interval *expected, double measured,
                                int inside)
{
    *out = 0;
    if (inside >= 0 && expected->high > expected->low)
        snprintf(out, size, ": %s %s to %s",
                 inside                        ? "within"
                 : measured > expected->likely ? "above"
                                               : "below",
                 UNITS_BYTES(units_whole(expected->low)), UNITS_BYTES(units_whole(expected->high)));
}

static void add_budget_categories(struct text_table *t, const struct result_budget *b)
{
    char what[1024], of[128];

    EACH_IN (r, b->rows) {
        format_budget_range(of, sizeof of, &r->expected, (double)r->peak_bytes, r->inside);
        if (r->inside == 0 && !r->why)
            snprintf(of, sizeof of, "%s",
                     b->levels_n && b->levels[0].level == RESULT_LEVEL_PASS ? ": explained below, as a sum" : "");
        snprintf(what, sizeof what, "%s%s%s%s", result_category_text(r->category), of, r->why ? *of ? ", " : ": " : "",
                 r->why ? r->why : "");
        add_budget_row(t, what, r->estimate_bytes, &(struct measured){r->peak_bytes, r->difference_bytes});
    }
}

static void add_budget_levels(struct text_table *t, const struct result_budget *b)
{
    char what[1024], of[128];

    EACH_IN (l, b->levels) {
        format_budget_range(of, sizeof of, &l->expected, l->measured_bytes, l->inside);
        snprintf(what, sizeof what, "%s%s", result_level_text(l->level), of);
        add_budget_row(t, what, l->expected.likely,
                       &(struct measured){(int64_t)l->measured_bytes, l->measured_bytes - l->expected.likely});
    }
}

/* The moment of the peak in a step, and the expected one. */
static void print_budget_moment(const struct draw_text *v, const struct result_budget *b)
{
    char line[256];

    if (b->failed && b->measured_phase == PHASE_FORWARD)
        snprintf(line, sizeof line,
                 "Memory ran out in forward; the estimates are for the end of forward, which the run did not reach.");
    else if (b->measured_phase == b->expected_phase)
        snprintf(line, sizeof line, "The peak occurred at the predicted moment: %s.",
                 result_moment_text(b->measured_phase));
    else if (b->measured_phase >= 0)
        snprintf(
            line, sizeof line,
            "The peak occurred at another moment (%s) than predicted (%s); the estimates are for the measured moment.",
            result_moment_text(b->measured_phase), result_moment_text(b->expected_phase));
    else
        snprintf(line, sizeof line, "The peak's moment within the step is unknown; the estimates are for %s.",
                 result_moment_text(b->expected_phase));
    draw_wrap(v, INDENT, "", "%s", line);
}

static void add_budget_estimates(struct text_table *t, const struct result_budget *b)
{
    add_budget_row(t, "weights", b->estimate.weights, NULL);
    add_budget_row(t, "gradients", b->estimate.gradients, NULL);
    add_budget_row(t, "optimizer states", b->estimate.optimizer, NULL);
}

static void on_top(const struct draw_text *v, const struct result_budget *b)
{
    char size[UNITS_TEXT], share[UNITS_TEXT], line[256];

    units_format_bytes_signed(size, (int64_t)b->difference_bytes);
    units_format_share(share, fabs(b->difference_share));
    if (b->difference_bytes >= 0)
        snprintf(line, sizeof line, "%s (%s) on top: activations, temporary buffers, and memory that is kept too long",
                 size, share);
    else
        snprintf(
            line, sizeof line,
            "%s (%s less): the model is smaller than stated, its states did not exist yet, or several GPUs share it",
            size, share);
    draw_wrap(v, INDENT, "", "%s", line);
}

enum { RANKS = 16, NAME = 64 };

static void budget_name(const struct draw_text *v, const struct result_budget *b, char *out)
{
    char gpu[24], clean[64];

    terminal_clean(clean, sizeof clean, b->rank->gpu, v->term.utf8);
    text_elide(gpu, sizeof gpu, clean, 12, v->term.utf8);
    if (b->rank->rank >= 0)
        snprintf(out, NAME, "rank %lld, GPU %s", (long long)b->rank->rank, gpu);
    else
        snprintf(out, NAME, "process %u, GPU %s", v->report->processes[b->process].pid, gpu);
}

/* Without activations the estimate has no moment: gradients may be freed at the peak, weights may have been whole
 * before they were sharded. */
static int64_t measured_of(const struct result_budget *b, const struct result_budget_row *r)
{
    bool later = fabs((double)r->most_bytes - r->estimate_bytes) < fabs((double)r->peak_bytes - r->estimate_bytes);

    return !b->planned && later ? r->most_bytes : r->peak_bytes;
}

/* Rows that differ from the estimate, and are not balanced by others that are judged together. */
static bool is_row_outside(const struct result_budget *b, const struct result_budget_row *r)
{
    if (!b->planned) return fabs((double)measured_of(b, r) - r->estimate_bytes) > 0.1 * r->estimate_bytes + 4096;
    return r->inside == 0 && r->why;
}

static size_t count_rows_outside(const struct result_budget *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->rows_n; i++) n += is_row_outside(b, &b->rows[i]);
    return n;
}

/* "; activations 2.00 GiB (1.20 to 1.50 GiB estimated)" */
static void rank_line(const struct draw_text *v, const struct result_budget *b)
{
    char line[1024], name[NAME], bytes[UNITS_TEXT];
    size_t at;

    budget_name(v, b, name);
    at = (size_t)snprintf(line, sizeof line, "%s: %s at the peak%s", name, draw_bytes(bytes, b->measured_bytes),
                          !b->rows_n              ? ", and no category was recognised"
                          : count_rows_outside(b) ? ""
                                                  : ", as estimated");
    EACH_IN (r, b->rows) {
        if (!is_row_outside(b, r) || at >= sizeof line) continue;
        at += (size_t)snprintf(line + at, sizeof line - at,
                               r->expected.low < r->expected.high ? "; %s %s (estimated %s to %s)"
                                                                  : "; %s %s (estimated %s)",
                               result_category_text(r->category), draw_bytes(bytes, measured_of(b, r)),
                               UNITS_BYTES(units_whole(r->expected.low)), UNITS_BYTES(units_whole(r->expected.high)));
    }
    draw_wrap(v, INDENT, v->term.utf8 ? "• " : "- ", "%s", line);
}

/* Those that differ, if there are many. */
static void other_ranks(const struct draw_text *v, const struct result_budget *b)
{
    size_t alike = 0, shown = 0;
    bool few = b->ranks_n <= RANKS;

    EACH_IN (k, b->ranks) {
        if (k->rank == b->rank) continue;
        if (few || (shown < RANKS && count_rows_outside(k))) {
            rank_line(v, k);
            shown++;
        } else
            alike++;
    }
    if (alike)
        draw_wrap(v, INDENT, v->term.utf8 ? "• " : "- ",
                  shown ? "%zu others: like these, or as estimated (--json has all)" : "%zu other ranks: as estimated",
                  alike);
    if (b->ranks_n != b->gpus && b->ranks_n)
        draw_wrap(v, INDENT, "", "The estimate is for %ju GPUs; %zu were recorded.", (uintmax_t)b->gpus, b->ranks_n);
}

/* That the launcher's ranks share one model is likely; how is unknown. */
static size_t count_budget_ranks(const struct result_report *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->ranks_n; i++) n += r->ranks[i].rank >= 0 && !r->ranks[i].again && !r->ranks[i].child;
    return n;
}

/* Which GPU the table describes; and if ranks were recorded, but an estimate of one GPU was requested, which options to
 * add. */
static void print_budget_owner(const struct draw_text *v, const struct result_budget *b)
{
    char name[NAME];
    size_t ranks = count_budget_ranks(v->report);

    if (b->gpus > 1 && !b->rank) draw_wrap(v, INDENT, "", "The estimate is for one of %ju GPUs.", (uintmax_t)b->gpus);
    if (b->gpus == 1 && ranks > 1)
        draw_wrap(v, INDENT, "",
                  "The run has %zu ranks, the estimate one GPU: add --gpus %zu and --sharding to describe how they "
                  "share the model.",
                  ranks, ranks);
    if (b->gpus > 1 && b->rank) {
        budget_name(v, b, name);
        draw_wrap(v, INDENT, "", "%s, the fullest, beside one of %ju GPUs:", name, (uintmax_t)b->gpus);
    }
}

void view_text_budget(const struct draw_text *v)
{
    const struct result_budget *b = &v->report->budget;
    struct text_table t = {.head = {"", ""}}, four = {.head = {"estimate", "at the peak", "difference", ""}};
    char line[128];

    if (!b->present) return;
    draw_heading(v, TERMINAL_BOLD, "Budget",
                 b->planned ? ": estimated, measured, and why they differ"
                            : ": the model's minimum, the measured value, and why they differ");
    print_budget_owner(v, b);
    t = b->rows_n ? four : t;
    if (b->rows_n)
        add_budget_categories(&t, b);
    else
        add_budget_estimates(&t, b);
    snprintf(line, sizeof line, "measured at the peak (%s)", draw_layer_word(b->measured_layer));
    if (b->rows_n) {
        if (!b->planned)
            add_budget_row(&t, "the minimum, and the peak", b->estimate.total,
                           &(struct measured){b->measured_bytes, b->difference_bytes});
        add_budget_levels(&t, b);
    } else {
        add_budget_row(&t, "the model's minimum", b->estimate.total, NULL);
        if (b->measured_bytes != RUN_UNKNOWN) add_budget_row(&t, line, (double)b->measured_bytes, NULL);
    }
    text_table_print(&t, &v->term, INDENT, v->out);
    if (b->planned) print_budget_moment(v, b);
    if (b->gpus > 1) other_ranks(v, b);
    if (b->measured_bytes == RUN_UNKNOWN)
        draw_wrap(v, INDENT, "", "No allocation was recorded.");
    else if (!b->rows_n)
        on_top(v, b);
}

/* "--params 124.4M": the number of measured parameters, in float32; "" if unknown. */
void view_next_budget(const struct draw_text *v, char *out, size_t size)
{
    const struct result_budget *b = &v->report->budget;
    double n = (double)b->parameter_bytes / 4;
    const char *unit = n >= 1e9 ? "B" : n >= 1e6 ? "M" : "k";

    *out = 0;
    if (b->present) return;
    n /= n >= 1e9 ? 1e9 : n >= 1e6 ? 1e6 : 1e3;
    if (b->parameter_bytes >= 4000) snprintf(out, size, "--params %.4g%s", n, unit);
}
