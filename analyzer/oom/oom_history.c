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

static int64_t lower_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void oom_course_add(struct oom_course *c, int64_t ns, int64_t bytes, int64_t allocated, int64_t freed)
{
    const int64_t before = allocated - bytes - freed;
    c->stride = c->times ? c->stride : 1;
    c->low = c->times ? lower_of(c->low, before) : before;
    if (c->times++ & (c->stride - 1)) /* a power of two */
        return;
    if (c->n == OOM_COURSE) {
        c->low = lower_of(c->low, c->list[OOM_COURSE - 1].low);
        for (uint32_t i = 1; i < OOM_COURSE / 2; i++) {
            const int64_t low = c->list[2 * i - 1].low;
            c->list[i] = c->list[2 * i];
            c->list[i].low = lower_of(c->list[i].low, low);
        }
        c->n = OOM_COURSE / 2;
        c->stride *= 2;
    }
    c->list[c->n++] = (struct oom_sums){ns, allocated, freed, c->low};
    c->low = INT64_MAX;
}

int64_t oom_course_low(const struct oom_course *c, int64_t from_ns, int64_t to_ns)
{
    enum { LEAST = 8, PART = 8 };
    uint32_t from = 0, to = 0;
    for (uint32_t i = 0; i < c->n && c->list[i].ns <= to_ns; i++) {
        from = c->list[i].ns <= from_ns ? i : from;
        to = i;
    }
    if (to < from + LEAST || c->list[from].ns > from_ns) return -1;
    int64_t low = c->list[from].allocated - c->list[from].freed;
    for (uint32_t i = from + 2; i <= from + 1 + (to - from) / PART; i++) /* the next one is also of the time before */
        low = lower_of(low, c->list[i].low);
    return low;
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
