/* Each verdict of the report in words, with the source around its lines. */
#include <string.h>
#include "analyzer/oom/oom.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/oom/waterfall.h"
#include "analyzer/site/excerpt.h"

static void explain_cap(struct site_builder *b, struct result_oom_verdict *v)
{
    if (v->capped && v->verdict && v->total_bytes != RUN_UNKNOWN)
        v->verdict = arena_printf(b->arena, "%s; GPUSPY_LIMIT's cap of %s refused it, not the GPU", v->verdict,
                                  site_bytes_text(b, (double)v->total_bytes));
}

static bool is_at_line(const struct result_site *a, const struct result_site *b)
{
    return a->file && b->file && a->line == b->line && strcmp(a->file, b->file) == 0;
}

/* What the line that the verdict names did: how much it keeps per step, or holds. */
static const char *blamed_amount(struct site_builder *b, const struct result_oom_verdict *v)
{
    const struct result_site *s = &v->blame;
    int64_t held = 0;
    if (v->cause == RESULT_CAUSE_LEAK && v->facts && !v->facts->replaced) {
        const struct oom_rhythm r = oom_rhythm(v->facts);
        return arena_printf(b->arena, "%s %s", site_bytes_text(b, r.each), r.steps ? "per step" : "each time");
    }
    if (v->blame_role && strcmp(v->blame_role, "failing") == 0) return NULL;
    EACH_IN (l, v->live_lines) held += is_at_line(&l->site, s) ? l->bytes : 0;
    for (size_t i = 0; !held && i < v->by_owner_n; i++)
        held += is_at_line(&v->by_owner[i].site, s) ? v->by_owner[i].bytes : 0;
    return held > 0 ? arena_printf(b->arena, "holds %s", site_bytes_text(b, (double)held)) : NULL;
}

static void show_failure_source(struct site_builder *b, struct result_oom_verdict *v)
{
    struct site_excerpts source = {0};
    site_add_excerpt(b, &source, &v->blame, v->blame_role);
    if (source.n) source.list[0].amount = blamed_amount(b, v);
    site_add_excerpt(b, &source, &v->stack.site, "failing");
    if (source.n && !source.list[source.n - 1].amount)
        source.list[source.n - 1].amount =
            arena_printf(b->arena, "requests %s", site_bytes_text(b, (double)v->requested_bytes));
    v->source = source.list;
    v->source_n = source.n;
}

static bool is_of_step(struct site_builder *b, const struct result_oom_verdict *v, const struct result_growth *g)
{
    const struct oom_facts *f = v->facts;
    bool counted = false;
    for (size_t i = 0; i < f->growing_stacks_n && !counted; i++) counted = f->growing_stacks[i] == g->stack.number;
    return g->process == v->process && g->layer == f->layer && g->device == v->device &&
           (f->pending || !f->growing_sites) && (counted || oom_is_in_pass(b->run, g->stack.number));
}

/* If a step does not fit, the passes that are live together belong to that step: they do not grow. The list of growth
 * and 'check' must agree with the verdict. */
static void drop_passes_of_step(struct site_builder *b, const struct result_oom_verdict *v)
{
    struct result_report *r = b->report;
    size_t n = 0;
    if (!v->fatal || v->cause != RESULT_CAUSE_CAPACITY || !v->facts) return;
    for (size_t i = 0; i < r->growth_n; i++)
        if (!is_of_step(b, v, &r->growth[i])) r->growth[n++] = r->growth[i];
    r->growth_total -= r->growth_n - n;
    r->growth_n = n;
}

void oom_explain_all(struct site_builder *b)
{
    for (size_t i = 0; i < b->report->ooms_n; i++) {
        b->report->ooms[i].step = oom_step_of(b, &b->report->ooms[i]);
        oom_waterfall_build(b, &b->report->ooms[i]);
        oom_find_cause(b, b->report->ooms[i].facts, &b->report->ooms[i]);
        explain_cap(b, &b->report->ooms[i]);
        show_failure_source(b, &b->report->ooms[i]);
    }
    for (size_t i = 0; i < b->report->ooms_n; i++) drop_passes_of_step(b, &b->report->ooms[i]);
    oom_add_advice(b);
}
