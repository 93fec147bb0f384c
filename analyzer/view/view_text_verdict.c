/* Out of memory: the request, the free memory, the cause, what to do. Or that memory did not run out, and how full the
 * GPU was. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/site/site.h"
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"

const struct result_oom_verdict *view_oom_at_peak(const struct draw_text *v, const struct result_peak *p)
{
    const struct result_report *r = v->report;
    const struct result_oom_verdict *o = r->ooms_n ? &r->ooms[0] : NULL;

    if (!view_shows(v, VIEW_OOM) || !view_shows(v, VIEW_PEAK) || !o || p->process != o->process ||
        p->device != o->device || p->layer != o->live_layer)
        return NULL;
    if (o->live_sum != RUN_UNKNOWN && (double)o->live_sum < 0.98 * (double)p->bytes) return NULL;
    return fabs(p->time_s - o->time_s) <= 0.02 * r->duration_s ? o : NULL;
}

static void print_live(const struct draw_text *v, const struct result_oom_verdict *o)
{
    struct text_table t = {SITES(v), .head = {"bytes", "count", "line"}};
    size_t shown = o->live_lines_n < v->top ? o->live_lines_n : v->top;

    if (!shown || ANY_IN(p, v->report->peaks, view_oom_at_peak(v, p) == o)) return;
    fprintf(v->out, "  %sLive at that moment%s (%s)\n", terminal_style(&v->term, TERMINAL_BOLD),
            terminal_style(&v->term, TERMINAL_PLAIN), draw_layer_word(o->live_layer));
    for (size_t i = 0; i < shown; i++) {
        const char *cells[] = {DRAW_BYTES(o->live_lines[i].bytes), UNITS_COUNT(o->live_lines[i].count)};
        struct text_table_row *row = text_table_add(&t, cells, &o->live_lines[i].site);
        if (row) row->below = draw_paths(v, &o->live_lines[i].paths, 4 * INDENT);
    }
    text_table_print(&t, &v->term, 2 * INDENT, v->out);
}

static void print_asked(const struct draw_text *v, const struct result_oom_verdict *o)
{
    char want[2 * UNITS_TEXT + 32], segment[UNITS_TEXT], site[512], line[1024];
    const struct result_site *s = &o->stack.site;
    const char *what = o->space == GS_SPACE_PINNED ? " of pinned host memory" : "";

    draw_bytes(want, o->requested_bytes);
    if (o->segment_bytes && strcmp(draw_bytes(segment, o->segment_bytes), want) != 0)
        text_put(want + strlen(want), sizeof want - strlen(want), " (%s from CUDA)", segment);
    site_text(s, site, sizeof site);
    if (o->free_bytes == RUN_UNKNOWN || *what) /* what the GPU has free does not matter for host memory */
        snprintf(line, sizeof line, "%s%s%s%s", want, what, s->known ? ", at " : "", s->known ? site : "");
    else
        snprintf(line, sizeof line, "%s%s, with %s%s%s free%s%s", want, what, DRAW_BYTES(o->free_bytes),
                 o->total_bytes == RUN_UNKNOWN ? "" : " of ",
                 o->total_bytes == RUN_UNKNOWN ? "" : DRAW_BYTES(o->total_bytes), s->known ? ", at " : "",
                 s->known ? site : "");
    draw_label(v, TERMINAL_BOLD, "Request", "%s", line);
}

static void format_share_line(char *line, size_t size, int64_t bytes, const char *what)
{
    size_t at = strlen(line);

    if (bytes != RUN_UNKNOWN && bytes > 0)
        snprintf(line + at, size - at, "%s%s %s", at ? " + " : "", DRAW_BYTES(bytes), what);
}

/* "in tensors (parameters 1.2 GiB, activations 800.0 MiB, …)": the three largest. */
static const char *in_tensors(const struct result_oom_verdict *o, char *out, size_t size)
{
    bool printed[RESULT_CATEGORIES_N] = {[RESULT_CATEGORY_UNKNOWN] = true};
    const int64_t *bytes = o->by_category.bytes;
    size_t at = (size_t)snprintf(out, size, "in tensors");

    for (int n = 0; n < 3 && o->live_layer == RUN_SERIES_TENSOR; n++) {
        int largest = -1;
        char text[UNITS_TEXT];
        for (int i = 0; i < RESULT_CATEGORIES_N; i++)
            if (!printed[i] && bytes[i] > 0 && (largest < 0 || bytes[i] > bytes[largest])) largest = i;
        if (largest < 0) break;
        printed[largest] = true;
        at += (size_t)snprintf(out + at, size - at, "%s%s %s", n ? ", " : " (",
                               result_category_text((enum result_category)largest), draw_bytes(text, bytes[largest]));
    }
    if (at > sizeof "in tensors") snprintf(out + at, size - at, ")");
    return out;
}

/* The device's memory at the failure: the parts sum to all of it. */
static void print_held(const struct draw_text *v, const struct result_oom_verdict *o)
{
    char line[1024] = "", tensors[256];
    int64_t others = run_subtract(o->device_live, o->tensor_reserved);
    bool torch = others != RUN_UNKNOWN && run_subtract(o->tensor_reserved, o->tensor_allocated) != RUN_UNKNOWN;

    if (o->outside == RUN_UNKNOWN || o->free_bytes == RUN_UNKNOWN || o->space == GS_SPACE_PINNED) return;
    if (torch) {
        format_share_line(line, sizeof line, o->tensor_allocated, in_tensors(o, tensors, sizeof tensors));
        format_share_line(line, sizeof line, o->tensor_reserved - o->tensor_allocated, "cached by PyTorch");
        format_share_line(line, sizeof line, others, "in other CUDA allocations");
    } else {
        format_share_line(line, sizeof line, o->device_live, "in CUDA allocations");
    }
    format_share_line(line, sizeof line, o->graphs, "held for CUDA graphs");
    format_share_line(line, sizeof line, o->outside, "outside (CUDA context, libraries, other processes)");
    format_share_line(line, sizeof line, o->free_bytes, "free");
    size_t at = strlen(line);
    snprintf(line + at, sizeof line - at, " = %s", DRAW_BYTES(o->total_bytes));
    draw_label(v, TERMINAL_BOLD, "Memory", "%s", line);
}

static void print_failing_stack(const struct draw_text *v, const struct result_oom_verdict *o)
{
    char *trace = draw_trace(v, o->stack.number, INDENT + DRAW_LABEL);

    if (trace)
        fprintf(v->out, "  %sStack%s   %s", terminal_style(&v->term, TERMINAL_BOLD),
                terminal_style(&v->term, TERMINAL_PLAIN), trace + INDENT + DRAW_LABEL);
    free(trace);
}

/* The best ones. */
static size_t advice_shown(const struct draw_text *v, size_t n)
{
    const size_t most = v->shorter >= DRAW_ONE_ADVICE ? 1 : 2;

    return v->brief && n > most ? most : n;
}

/* What happened and what to do. */
static void failure_head(const struct draw_text *v, const struct result_oom_verdict *o, const char *who)
{
    char device[96], place[128], step[32] = "", title[64];

    if (o->step > 0) snprintf(step, sizeof step, ", in step %lld", (long long)o->step);
    snprintf(title, sizeof title, "%s%s", who,
             o->fatal     ? "OUT OF MEMORY"
             : o->handled ? "Out of memory, handled by the program"
                          : "Failed allocation, which succeeded on a retry,");
    if (o->space == GS_SPACE_PINNED)
        snprintf(place, sizeof place, ": pinned host memory,");
    else
        snprintf(place, sizeof place, " on %s",
                 draw_device(v, device, sizeof device, o->process, o->device, RUN_SERIES_PINNED));
    draw_heading(v, o->fatal ? TERMINAL_RED : TERMINAL_YELLOW, title, "%s at %s%s%s", place, UNITS_SECONDS(o->time_s),
                 step, o->outcome == RESULT_OUTCOME_UNKNOWN ? ", perhaps handled" : "");
    print_asked(v, o);
    if (o->verdict) draw_label(v, TERMINAL_BOLD, "Cause", "%s", o->verdict);
    for (size_t i = 0; i < advice_shown(v, o->advice_n); i++)
        draw_label(v, TERMINAL_GREEN, i == 0 ? "To do" : "", "%s", o->advice[i]);
    view_text_source(v, o);
}

void view_text_failure(const struct draw_text *v)
{
    if (v->report->ooms_n) failure_head(v, &v->report->ooms[0], "gpuspy: ");
}

static void print_one_failure(const struct draw_text *v, const struct result_oom_verdict *o)
{
    failure_head(v, o, "");
    if (o->verdict)
        draw_label(v, TERMINAL_BOLD, "Basis", "%s%s%s", result_certainty_word(o->certainty),
                   o->refuted_by ? "; wrong " : "", o->refuted_by ? o->refuted_by : "");
    if (o->outcome_why && (!v->brief || !o->fatal)) draw_label(v, TERMINAL_BOLD, "After", "%s", o->outcome_why);
    if (o->waterfall_n)
        view_text_waterfall(v, o);
    else
        print_held(v, o);
    if (!v->brief) print_failing_stack(v, o);
    if (!o->waterfall_n) print_live(v, o);
}

/* The peak that is nearest to its device's size; without a GPU the largest of host memory. */
static const struct result_peak *fullest_peak(const struct result_report *r, bool gpu, int64_t *total)
{
    const struct result_peak *best = NULL;
    double best_share = -1;

    *total = RUN_UNKNOWN;
    EACH_IN (p, r->peaks) {
        bool on_gpu = p->layer == RUN_SERIES_DEVICE || p->layer == RUN_SERIES_TENSOR;
        if (on_gpu != gpu || p->layer == RUN_SERIES_SHARED || p->bytes <= 0) continue;
        int64_t size = RUN_UNKNOWN;
        for (size_t d = 0; d < r->devices_n; d++)
            if (r->devices[d].device == p->device) size = r->devices[d].total_bytes;
        double share = size > 0 ? (double)p->bytes / (double)size : 0;
        /* Rounding up to pages makes the device level the larger one; it comes first in the list.
         */
        if (share > best_share || ((!gpu || share == best_share) && p->bytes > best->bytes)) {
            best = p;
            best_share = share;
            *total = size;
        }
    }
    return best;
}

/* The first process that failed, preceded by "2 of 4 processes: …" if there are several. NULL: none is known to have.
 * */
static const char *format_failure(const struct result_report *r, char *out, size_t size)
{
    size_t failed = 0;
    char how[RUN_FAILURE_TEXT], first[RUN_FAILURE_TEXT] = "", rank[32] = "";

    EACH_IN (p, r->processes) {
        if (!run_process_failure(p, how, sizeof how)) continue;
        if (!failed++) {
            snprintf(first, sizeof first, "%s", how);
            if (p->rank != RUN_UNKNOWN) snprintf(rank, sizeof rank, "rank %lld ", (long long)p->rank);
        }
    }
    if (!failed) return NULL;
    if (failed == 1)
        text_put(out, size, "%s%s", rank, first);
    else
        text_put(out, size, "%zu of %zu processes failed, the first one %s%s", failed, r->processes_n, rank, first);
    return out;
}

/* For a single process. Forked workers normally end by _exit, too. */
static bool ended_unseen(const struct result_report *r)
{
    const struct run_process *p = r->processes;
    return r->processes_n == 1 && !p->complete && !p->recording && !p->kernel;
}

/* Without an allocation: CUDA may still have taken memory for the allocations inside graphs. */
static const char *no_allocation_text(const struct draw_text *v, char *out, size_t size)
{
    int64_t graphs = 0;
    if (v->report->no_history) return "no GPU memory was live";
    EACH_IN (d, v->report->devices) graphs += d->graph_bytes > 0 ? d->graph_bytes : 0;
    if (!graphs) return "no GPU memory was allocated";
    text_put(out, size, "no GPU memory was allocated but %s for graphs", DRAW_BYTES(graphs));
    return out;
}

/* What PyTorch had reserved before a snapshot's first event shows nothing of the program: its tensors do. */
static const char *peak_moment(const struct draw_text *v, const struct result_peak *p, char *out, size_t size)
{
    char at[64];
    const struct result_report *r = v->report;

    draw_moment(v, out, size, p);
    if (!r->imported || p->time_ns != 0) return out;
    EACH_IN (t, r->peaks)
        if (t->layer == RUN_SERIES_TENSOR && t->process == p->process && t->device == p->device && t != p)
            text_put(out, size, "from the start; tensors %s %s", DRAW_BYTES(t->bytes),
                     draw_moment(v, at, sizeof at, t));
    return out;
}

static void print_outcome(const struct draw_text *v)
{
    const char *none = result_outcome_text(v->report);
    int64_t total;
    const struct result_peak *p = fullest_peak(v->report, true, &total);
    char at[128], place[96], graphs[96], raw[RUN_FAILURE_TEXT + 64], why[RUN_FAILURE_TEXT + 64],
        crash[RUN_FAILURE_TEXT + 128];

    if (!p) p = fullest_peak(v->report, false, &total);
    enum terminal_style colour = TERMINAL_GREEN;
    if (format_failure(v->report, raw, sizeof raw)) {
        bool words = strncmp(raw, "exited", 6) == 0 || strncmp(raw, "killed", 6) == 0;
        terminal_clean(why, sizeof why, raw, v->term.utf8); /* the text of an exception is the program's */
        snprintf(crash, sizeof crash, "%c%s; %c%s", words ? why[0] - 'a' + 'A' : why[0], why + 1,
                 text_first_in_clause(none), none + 1);
        none = crash;
        colour = TERMINAL_RED;
    } else if (ended_unseen(v->report)) {
        snprintf(crash, sizeof crash, "Killed, crashed or called _exit; %c%s", text_first_in_clause(none), none + 1);
        none = crash;
        colour = TERMINAL_YELLOW;
    }
    if (!p && v->report->no_memory) {
        draw_heading(v, colour == TERMINAL_GREEN ? TERMINAL_YELLOW : colour, none, "; memory was not recorded");
        return;
    }
    if (!p) {
        draw_heading(v, colour, none, "; %s", no_allocation_text(v, graphs, sizeof graphs));
        return;
    }
    draw_device(v, place, sizeof place, p->process, p->device, p->layer);
    if (v->report->no_history)
        draw_heading(v, colour, none, "; %s live %s %s", DRAW_BYTES(p->bytes), p->device >= 0 ? "on" : "of", place);
    else if (total > 0)
        draw_heading(v, colour, none, "; peak %s of %s (%s) on %s, %s", DRAW_BYTES(p->bytes), DRAW_BYTES(total),
                     UNITS_SHARE((double)p->bytes / (double)total), place, peak_moment(v, p, at, sizeof at));
    else
        draw_heading(v, colour, none, "; peak %s %s %s, %s%s%s", DRAW_BYTES(p->bytes), p->device >= 0 ? "on" : "of",
                     place, peak_moment(v, p, at, sizeof at), p->device >= 0 ? "" : "; ",
                     p->device >= 0 ? "" : no_allocation_text(v, graphs, sizeof graphs));
}

void view_text_verdict(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    size_t fatal = 0, shown = 0;

    for (size_t i = 0; i < r->ooms_n; i++) fatal += r->ooms[i].fatal;
    if (!fatal) {
        print_outcome(v);
        if (result_outcome_hint(r)) draw_wrap(v, INDENT, "", "%s", result_outcome_hint(r));
    }
    /* One in full: the fatal one, or else the first that was survived; the others are its
     * repetitions (ranks that fail together, an allocator that retries). */
    for (size_t i = 0; i < r->ooms_n && shown < 1; i++, shown++) print_one_failure(v, &r->ooms[i]);
    const size_t others = r->ooms_total - shown;
    size_t retried = 0;
    for (size_t i = shown; i < r->ooms_n; i++) retried += r->ooms[i].outcome == RESULT_OUTCOME_RETRIED;
    if (others && (retried < others || v->shorter < DRAW_LARGEST_LINE)) {
        char line[128];
        snprintf(line, sizeof line, "%zu more allocation%s failed%s: gpuspy report --%s lists %s", others,
                 others == 1 ? "" : "s", retried == others ? ", then succeeded on a retry" : "",
                 retried == others ? "only retries" : "json", others == 1 ? "it" : "them");
        draw_styled(v, TERMINAL_DIM, line);
    }
}
