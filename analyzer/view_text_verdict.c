/* Out of memory: what was asked, what was free, why, what to do. Or none, and how near it was. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/text.h"
#include "analyzer/units.h"
#include "analyzer/view_text_parts.h"

static const char *cause_words(enum gs_cause cause)
{
    static const char *const words[GS_CAUSES] = {
        [GS_CAUSE_CAPACITY] = "what is live is needed, and more than the GPU holds",
        [GS_CAUSE_FRAGMENTATION] = "fragmentation: enough is free, but in pieces too small",
        [GS_CAUSE_LEAK] = "memory that is kept and grows",
        [GS_CAUSE_OTHER_PROCESS] = "another process holds the GPU's memory",
        [GS_CAUSE_OVERSIZED_REQUEST] = "one request larger than the GPU",
        [GS_CAUSE_ALLOCATOR_CAP] = "a limit set on the allocator, not the GPU",
        [GS_CAUSE_PINNED_HOST] = "pinned host memory, not the GPU's",
        [GS_CAUSE_PREALLOCATION] = "memory that was taken in advance",
        [GS_CAUSE_OUTSIDE_ALLOCATOR] = "memory outside the allocator: NCCL, cuBLAS, CUDA contexts",
    };

    return cause < GS_CAUSES && words[cause] ? words[cause] : "unknown";
}

/* How the number of a piece of evidence is to be read, by its key. */
static void evidence_value(const struct gs_evidence *e, char out[UNITS_TEXT])
{
    size_t n = strlen(e->key);

    if (isnan(e->value))
        snprintf(out, UNITS_TEXT, "?");
    else if (strstr(e->key, "bytes"))
        view_bytes(out, (int64_t)e->value);
    else if (strstr(e->key, "share") || strcmp(e->key, "turnover") == 0)
        format_share(out, e->value);
    else if (n > 2 && strcmp(e->key + n - 2, "_s") == 0)
        format_seconds(out, e->value);
    else
        snprintf(out, UNITS_TEXT, "%.6g", e->value);
}

static void evidence(const struct view_text *v, const struct gs_oom_verdict *o)
{
    struct table t = {.head = {"", ""}};

    for (size_t i = 0; i < o->evidence_n; i++) {
        const struct gs_evidence *e = &o->evidence[i];
        char value[UNITS_TEXT] = "", raw[1024], what[1024];
        if (!e->is_text)
            evidence_value(e, value);
        snprintf(raw, sizeof raw, "%s%s%s", e->what, e->is_text ? ": " : "",
                 e->is_text ? (e->text ? e->text : "?") : "");
        const char *cells[] = {value, term_clean(what, sizeof what, raw, v->term.utf8)};
        table_add(&t, cells, NULL);
    }
    if (t.n)
        fprintf(v->out, "  %sEvidence%s\n", term_style(&v->term, TERM_BOLD),
                term_style(&v->term, TERM_PLAIN));
    table_print(&t, &v->term, 2 * INDENT, v->out);
}

/* Whether the list of what was live at the peak, which follows, is the list of this moment: nothing
 * much came or went between the two. */
static bool peak_says_it(const struct gs_report *r, const struct gs_oom_verdict *o)
{
    for (size_t i = 0; i < r->peaks_n; i++) {
        const struct gs_peak *p = &r->peaks[i];
        if (p->process == o->process && p->device == o->device && p->layer == o->live_layer)
            return fabs(p->time_s - o->time_s) <= 0.02 * r->duration_s;
    }
    return false;
}

static void live(const struct view_text *v, const struct gs_oom_verdict *o)
{
    struct table t = {SITES(v), .head = {"bytes", "count", "line"}};
    size_t shown = o->live_n < v->top ? o->live_n : v->top;

    if (!shown || peak_says_it(v->report, o))
        return;
    fprintf(v->out, "  %sLive at that moment%s (%s)\n", term_style(&v->term, TERM_BOLD),
            term_style(&v->term, TERM_PLAIN), view_layer(o->live_layer));
    for (size_t i = 0; i < shown; i++) {
        char bytes[UNITS_TEXT], count[UNITS_TEXT];
        const char *cells[] = {view_bytes(bytes, o->live[i].bytes),
                               format_count(count, o->live[i].count)};
        table_add(&t, cells, &o->live[i].site);
    }
    table_print(&t, &v->term, 2 * INDENT, v->out);
}

static void asked(const struct view_text *v, const struct gs_oom_verdict *o)
{
    char want[UNITS_TEXT], free_[UNITS_TEXT], total[UNITS_TEXT], site[1024], line[1024];

    snprintf(line, sizeof line, "%s of %s asked for; %s of %s were free",
             view_bytes(want, o->requested_bytes),
             o->space == GS_SPACE_PINNED ? "pinned host memory" : "GPU memory",
             view_bytes(free_, o->free_bytes), view_bytes(total, o->total_bytes));
    if (o->free_bytes == GS_UNKNOWN)
        snprintf(line, sizeof line, "%s of %s asked for", want,
                 o->space == GS_SPACE_PINNED ? "pinned host memory" : "GPU memory");
    view_wrap(v, INDENT, "", line);
    if (o->tensor_reserved != GS_UNKNOWN) {
        char used[UNITS_TEXT], held[UNITS_TEXT];
        snprintf(line, sizeof line, "PyTorch held %s, of which %s in tensors",
                 view_bytes(held, o->tensor_reserved), view_bytes(used, o->tensor_allocated));
        view_wrap(v, INDENT, "", line);
    }
    char *trace = view_trace(v, &o->stack, 2 * INDENT + 1);
    if (trace)
        fprintf(v->out, "  by\n%s", trace);
    else if (o->stack.site.known)
        fprintf(v->out, "  by %s\n",
                view_site(v, site, sizeof site, &o->stack.site, v->term.width - INDENT - 3));
    free(trace);
}

static void one(const struct view_text *v, const struct gs_oom_verdict *o)
{
    char at[UNITS_TEXT], place[96];

    view_heading(v, o->fatal ? TERM_RED : TERM_YELLOW,
                 o->fatal ? "OUT OF MEMORY" : "Ran short of memory, and went on", " on %s at %s",
                 view_place(v, place, sizeof place, o->process, o->device, GS_SERIES_PINNED),
                 format_seconds(at, o->time_s));
    asked(v, o);
    fprintf(v->out, "  %sCause%s  %s\n", term_style(&v->term, TERM_BOLD),
            term_style(&v->term, TERM_PLAIN), cause_words(o->cause));
    if (o->verdict)
        view_wrap(v, 2 * INDENT, "", o->verdict);
    evidence(v, o);
    for (size_t i = 0; i < o->advice_n; i++) {
        if (i == 0)
            fprintf(v->out, "  %sWhat to do%s\n", term_style(&v->term, TERM_GREEN),
                    term_style(&v->term, TERM_PLAIN));
        view_wrap(v, 2 * INDENT, v->term.utf8 ? "• " : "- ", o->advice[i]);
    }
    live(v, o);
}

/* The device-level peak that comes nearest to its device's size. */
static const struct gs_peak *fullest(const struct gs_report *r, int64_t *total)
{
    const struct gs_peak *best = NULL;
    double best_share = -1;

    *total = GS_UNKNOWN;
    for (size_t i = 0; i < r->peaks_n; i++) {
        const struct gs_peak *p = &r->peaks[i];
        if (p->layer != GS_SERIES_DEVICE && p->layer != GS_SERIES_TENSOR)
            continue;
        int64_t size = GS_UNKNOWN;
        for (size_t d = 0; d < r->devices_n; d++)
            if (r->devices[d].device == p->device)
                size = r->devices[d].total_bytes;
        double share = size > 0 ? (double)p->bytes / (double)size : 0;
        /* Rounding up to pages makes the device level the larger one; it comes first in the list.
         */
        if (share > best_share) {
            best = p;
            best_share = share;
            *total = size;
        }
    }
    return best;
}

static void no_oom(const struct view_text *v)
{
    int64_t total;
    const struct gs_peak *p = fullest(v->report, &total);
    char peak[UNITS_TEXT], size[UNITS_TEXT], share[UNITS_TEXT], at[UNITS_TEXT], place[96];

    if (!p) {
        view_heading(v, TERM_GREEN, "No out of memory", "; no GPU memory was allocated");
        return;
    }
    view_place(v, place, sizeof place, p->process, p->device, p->layer);
    if (total > 0)
        view_heading(v, TERM_GREEN, "No out of memory", "; peak %s of %s (%s) on %s, at %s",
                     view_bytes(peak, p->bytes), view_bytes(size, total),
                     format_share(share, (double)p->bytes / (double)total), place,
                     format_seconds(at, p->time_s));
    else
        view_heading(v, TERM_GREEN, "No out of memory", "; peak %s on %s, at %s",
                     view_bytes(peak, p->bytes), place, format_seconds(at, p->time_s));
}

void view_text_verdict(const struct view_text *v)
{
    const struct gs_report *r = v->report;
    size_t fatal = 0, shown = 0;

    for (size_t i = 0; i < r->ooms_n; i++)
        fatal += r->ooms[i].fatal;
    if (!fatal)
        no_oom(v);
    /* One in full: the fatal one, or else the first that was survived; the others are its
     * repetitions (ranks that fail together, an allocator that retries). */
    for (size_t i = 0; i < r->ooms_n && shown < 1; i++, shown++)
        one(v, &r->ooms[i]);
    if (r->ooms_total > shown)
        fprintf(v->out, "  %s%zu more failed allocation%s: gpuspy report --json lists them%s\n",
                term_style(&v->term, TERM_DIM), r->ooms_total - shown,
                r->ooms_total - shown == 1 ? "" : "s", term_style(&v->term, TERM_PLAIN));
}
