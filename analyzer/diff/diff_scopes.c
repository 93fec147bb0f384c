/* The peaks within NVTX ranges of both runs, by name. */
#include "analyzer/diff/diff_parts.h"
#include "analyzer/base/text.h"
#include "analyzer/base/sort.h"

#include <math.h>
#include <string.h>

static struct diff_scope *scope_at(struct diff_owner *o, size_t *cap, const struct result_scope *s)
{
    struct diff *d = &o->diff;
    for (size_t i = 0; i < d->scopes_n; i++)
        if (text_is_same(d->scopes[i].name, s->name) && text_is_same(d->scopes[i].domain, s->domain))
            return &d->scopes[i];
    struct diff_scope *new = ARENA_PUSH(d->scopes, d->scopes_n, *cap);
    *new = (struct diff_scope){.name = s->name, .domain = s->domain, .peak = {NAN, NAN}};
    return new;
}

static bool is_meant(const struct diff_request *w, const struct result_report *r, const struct result_scope *s)
{
    return (w->device < 0 || s->device < 0 || s->device == w->device) &&
           (w->rank < 0 || r->processes[s->process].rank == w->rank);
}

/* CUDA allocations, as in the report; tensors if only they are known, or asked for. */
static enum run_series_layer layer_of(const struct diff_request *w, const struct diff_side side[2])
{
    for (int k = 0; k < 2 && w->layer != RUN_SERIES_TENSOR; k++)
        for (size_t i = 0; i < side[k].report->scopes_n; i++)
            if (side[k].report->scopes[i].device >= 0 && side[k].report->scopes[i].layer == RUN_SERIES_DEVICE)
                return RUN_SERIES_DEVICE;
    return RUN_SERIES_TENSOR;
}

static int order_scopes_by_change(const void *a, const void *b)
{
    const struct diff_scope *x = a, *y = b;
    const double p = fabs(x->peak[1] - x->peak[0]), q = fabs(y->peak[1] - y->peak[0]);
    if (isnan(p) != isnan(q)) return isnan(p) ? 1 : -1;
    if (p != q && !isnan(p)) return p > q ? -1 : 1;
    const double m = fmax(fmax(x->peak[0], x->peak[1]), -1), n = fmax(fmax(y->peak[0], y->peak[1]), -1);
    if (m != n) return m > n ? -1 : 1;
    const int name = strcmp(x->name, y->name);
    return name ? name : strcmp(x->domain ? x->domain : "", y->domain ? y->domain : "");
}

void diff_add_scopes(struct diff_owner *o, const struct diff_side side[2])
{
    struct diff *d = &o->diff;
    size_t cap = 0;
    d->scopes_layer = layer_of(&d->wish, side);
    for (int k = 0; k < 2; k++) {
        const struct result_report *r = side[k].report;
        EACH_IN (s, r->scopes) {
            if (!is_meant(&d->wish, r, s)) continue;
            struct diff_scope *to = scope_at(o, &cap, s);
            to->count[k] = s->count > to->count[k] ? s->count : to->count[k];
            if (!s->incomplete && (s->device < 0 || s->layer == d->scopes_layer))
                to->peak[k] = fmax(to->peak[k], (double)s->peak_bytes); /* NAN gives way */
        }
    }
    SORT(d->scopes, d->scopes_n, order_scopes_by_change);
}
