#include "analyzer/whatif/parts.h"

static size_t part_of_curve(const struct whatif_curve *c, int64_t ns)
{
    if (ns <= 0) return 0;
    if (ns >= c->end_ns) return WHATIF_CURVE - 1;
    return (size_t)((double)ns / (double)c->end_ns * WHATIF_CURVE);
}

void whatif_draw(struct whatif_drawing *d, int64_t ns, int64_t reserved)
{
    struct whatif_curve *c = d->curve;
    if (!c) return;
    const size_t part = part_of_curve(c, ns);
    for (; d->at < part; d->at++) c->reserved[d->at + 1] = d->last; /* it stays until then */
    if (reserved > c->reserved[part]) c->reserved[part] = reserved;
    d->last = reserved;
}

void whatif_draw_end(const struct whatif_drawing *d, bool failed)
{
    for (size_t i = d->at + 1; i < WHATIF_CURVE; i++) d->curve->reserved[i] = failed ? RUN_UNKNOWN : d->last;
}
