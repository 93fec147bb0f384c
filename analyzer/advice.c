/* One list of things to do, by impact: what an OOM needs first, then the share of the peak or of
 * the wall time that each is about. */
#include "analyzer/question.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct advices {
    struct gs_builder *b;
    struct gs_advice *list;
    size_t n, cap;
};

static void add(struct advices *a, const char *topic, double impact, const char *text)
{
    for (size_t i = 0; i < a->n; i++) {
        if (strcmp(a->list[i].text, text) == 0) {
            return;
        }
    }
    *GS_PUSH(a->list, a->n, a->cap) =
        (struct gs_advice){.impact = impact, .topic = topic, .text = text};
}

static const char *at(struct advices *a, const struct gs_site *site, const char *text)
{
    return gs_arena_printf(a->b->arena, "%s: %s", gs_site_path(a->b, site), text);
}

static void of_ooms(struct advices *a)
{
    const struct gs_report *r = a->b->report;
    for (size_t i = 0; i < r->ooms_n && i < 3; i++) {
        for (size_t j = 0; j < r->ooms[i].advice_n; j++) {
            double impact = (r->ooms[i].fatal ? 20.0 : 2.0) - (double)i - 0.1 * (double)j;
            add(a, "oom", impact, r->ooms[i].advice[j]);
        }
    }
}

static int64_t peak_of(const struct gs_report *r, const struct gs_growth *g)
{
    for (size_t i = 0; i < r->peaks_n; i++) {
        const struct gs_peak *p = &r->peaks[i];
        if (p->process == g->process && p->device == g->device && p->layer == g->layer) {
            return p->bytes;
        }
    }
    return 0;
}

static void of_growth(struct advices *a)
{
    const struct gs_report *r = a->b->report;
    for (size_t i = 0; i < r->growth_n && i < 5; i++) {
        const struct gs_growth *g = &r->growth[i];
        int64_t peak = peak_of(r, g);
        double share = peak > 0 ? (double)g->bytes / (double)peak : 0;
        const char *text = gs_arena_printf(
            a->b->arena,
            "keeps %s more each time (%llu times, %s in all): drop the reference, or keep a number",
            gs_bytes_text(a->b, g->bytes_per_step), (unsigned long long)g->steps,
            gs_bytes_text(a->b, (double)g->bytes));
        if (share >= 0.01) {
            add(a, "leak", share, at(a, &g->stack.site, text));
        }
    }
}

static void of_time(struct advices *a)
{
    const struct gs_report *r = a->b->report;
    double wall = gs_wall(a->b);
    for (size_t i = 0; i < r->syncs_n && i < 10; i++) {
        if (r->syncs[i].advice) {
            add(a, "sync", r->syncs[i].share, at(a, &r->syncs[i].site, r->syncs[i].advice));
        }
    }
    for (size_t i = 0; i < r->transfers_n && i < 10; i++) {
        if (r->transfers[i].advice) {
            add(a, "transfer", r->transfers[i].blocked_s / wall,
                at(a, &r->transfers[i].site, r->transfers[i].advice));
        }
    }
    for (size_t i = 0; i < r->churn_n && i < 3; i++) {
        add(a, "churn", 0.02, at(a, &r->churn[i].stack.site, r->churn[i].advice));
    }
}

static void of_fragmentation(struct advices *a)
{
    const struct gs_report *r = a->b->report;
    for (size_t i = 0; i < r->fragmentation_n; i++) {
        const struct gs_fragmentation *f = &r->fragmentation[i];
        enum { WORTH = 256 << 20 };
        if (f->utilisation < 0.9 && f->free_bytes != GS_UNKNOWN && f->free_bytes >= WORTH) {
            add(a, "fragmentation", 1 - f->utilisation,
                gs_arena_printf(
                    a->b->arena,
                    "device %d: PyTorch used %.0f %% of what it reserved at its peaks; "
                    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True returns most of the rest, "
                    "unless it is set already",
                    f->device, 100 * f->utilisation));
        }
    }
}

static void of_recording(struct advices *a)
{
    const struct gs_report *r = a->b->report;
    if (r->lost_events) {
        add(a, "recording", 30,
            gs_arena_printf(a->b->arena,
                            "%llu events were lost for want of space: sums are too low from %.3f s "
                            "on; record on "
                            "a faster or emptier disk (GPUSPY_DB)",
                            (unsigned long long)r->lost_events, r->lost_first_s));
    }
}

static int weightier(const void *x, const void *y)
{
    const struct gs_advice *a = x, *b = y;
    if (a->impact != b->impact) {
        return a->impact > b->impact ? -1 : 1;
    }
    return strcmp(a->text, b->text);
}

void gs_advice_build(struct gs_builder *b)
{
    struct advices a = {.b = b};
    size_t total;
    of_recording(&a);
    of_ooms(&a);
    of_growth(&a);
    of_time(&a);
    of_fragmentation(&a);
    b->report->advice =
        gs_list(b, a.list, a.n, sizeof *a.list, weightier, &b->report->advice_n, &total);
    free(a.list);
}
