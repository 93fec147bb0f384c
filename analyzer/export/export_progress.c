#include <stdio.h>
#include <time.h>
#include "analyzer/base/units.h"
#include "analyzer/export/export.h"

void export_progress_show(struct export *e)
{
    struct export_progress *p = &e->progress;
    struct timespec now;

    if (++p->done < p->next || !p->shown) return;
    p->next = p->done + (1 << 16);
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ns = now.tv_sec * 1000000000LL + now.tv_nsec;
    if (ns - p->noted_ns < 500000000) return;
    p->noted_ns = ns;
    fprintf(stderr, "\rgpuspy: export: %s events\033[K", UNITS_COUNT(p->done));
}

void export_progress_end(const struct export_progress *p)
{
    if (p->shown && p->noted_ns) fputs("\r\033[K", stderr);
}
