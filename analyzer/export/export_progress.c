#include <stdio.h>
#include "analyzer/base/clock.h"
#include "analyzer/base/units.h"
#include "analyzer/export/export.h"

void export_progress_show(struct export *e)
{
    struct export_progress *p = &e->progress;
    if (++p->done < p->next || !p->shown) return;
    p->next = p->done + (1 << 16);
    const int64_t ns = clock_now_ns();
    if (ns - p->noted_ns < 500000000) return;
    p->noted_ns = ns;
    fprintf(stderr, "\rgpuspy: export: %s events\033[K", UNITS_COUNT(p->done));
}

void export_progress_end(const struct export_progress *p)
{
    if (p->shown && p->noted_ns) fputs("\r\033[K", stderr);
}
