#include "analyzer/site/builder.h"

#include <string.h>
#include "analyzer/base/units.h"
#include "analyzer/base/sort.h"

void site_builder_free(struct site_builder *b)
{
    MAP_RELEASE(&b->helpers, &b->site_of_key);
    ARENA_RELEASE(b->sites, b->site_of_stack, b->growing, b->codes);
}

void *site_reach(void *p, size_t index, size_t *cap, size_t size)
{
    if (index < *cap) return p;
    size_t old = *cap;
    *cap = index + index / 2 + 64;
    p = arena_realloc(p, *cap, size);
    memset((char *)p + old * size, 0, (*cap - old) * size);
    return p;
}

const char *site_bytes_text(struct site_builder *b, double bytes)
{
    return arena_printf(b->arena, "%s%s", bytes < 0 ? "-" : "", UNITS_BYTES(units_whole(bytes < 0 ? -bytes : bytes)));
}

void *site_list(struct site_builder *b, void *work, size_t n, size_t size, int (*order)(const void *, const void *),
                size_t *listed, size_t *total)
{
    sort_elements(work, n, size, order);
    *total = n;
    *listed = n < b->top ? n : b->top;
    void *list = arena_alloc(b->arena, *listed * size);
    if (*listed) memcpy(list, work, *listed * size);
    return list;
}

double site_wall_seconds(const struct site_builder *b)
{
    size_t n;
    const struct run_process *p = run_processes(b->run, &n);
    double wall = 0;
    for (size_t i = 0; i < n; i++) wall += (double)p[i].end_ns / 1e9;
    return wall > 0 ? wall : 1e-9;
}
