#include "analyzer/oom/oom_history.h"

#include <math.h>
#include <stddef.h>

void oom_history_add(struct oom_history *h, int64_t ns)
{
    h->stride = h->times ? h->stride : 1;
    if (h->times++ & (h->stride - 1)) /* a power of two */
        return;
    if (h->n == OOM_HISTORY) {
        for (uint32_t i = 0; i < OOM_HISTORY / 2; i++) h->ns[i] = h->ns[2 * i];
        h->n = OOM_HISTORY / 2;
        h->stride *= 2;
    }
    h->ns[h->n++] = ns;
}

double oom_history_rank(const struct oom_history *h, int64_t ns)
{
    uint32_t before = 0;
    while (before < h->n && h->ns[before] < ns) before++;
    return h->n ? (double)before / h->n : 0;
}

int64_t oom_history_time(const struct oom_history *h, double rank)
{
    const uint32_t at = (uint32_t)(rank * h->n);
    return h->n ? h->ns[at < h->n ? at : h->n - 1] : 0;
}

void oom_course_add(struct oom_course *c, int64_t ns, int64_t allocated, int64_t freed)
{
    c->stride = c->times ? c->stride : 1;
    if (c->times++ & (c->stride - 1)) /* a power of two */
        return;
    if (c->n == OOM_COURSE) {
        for (uint32_t i = 0; i < OOM_COURSE / 2; i++) c->list[i] = c->list[2 * i];
        c->n = OOM_COURSE / 2;
        c->stride *= 2;
    }
    c->list[c->n++] = (struct oom_sums){ns, allocated, freed};
}

double oom_course_turnover(const struct oom_course *c, int64_t from_ns, int64_t to_ns)
{
    const struct oom_sums *from = NULL, *to = NULL;
    for (uint32_t i = 0; i < c->n && c->list[i].ns <= to_ns; i++) {
        from = !from || c->list[i].ns <= from_ns ? &c->list[i] : from;
        to = &c->list[i];
    }
    return to && to->allocated > from->allocated
               ? (double)(to->freed - from->freed) / (double)(to->allocated - from->allocated)
               : NAN;
}
