#include "analyzer/oom/oom_history.h"

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
