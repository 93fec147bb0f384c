/* What was copied where, by line: direction, kind of host memory, bytes, and a bandwidth where the
 * host's own time tells one. Advice only past thresholds, and never for what is copied once at the
 * beginning. */
#include "analyzer/question.h"

#include <math.h>
#include <stdlib.h>

enum { ITEM_BYTES = 8, TINY_BYTES = 64 << 10, BULK_BYTES = 1 << 20, TINY_PER_S = 100 };
static const double loading_share = 0.8, slow_share = 0.5;
static const double modest_link = 12e9; /* bytes/s of PCIe 3 ×16 in practice: what any server has */

struct flow {
    uint32_t stack; /* after folding: the site */
    uint8_t direction, host_memory;
    bool async;
    uint64_t count, tiny;
    int64_t bytes, early_bytes, blocked_ns;
    int64_t first_ns, last_ns;
};

struct flows {
    struct flow *list;
    size_t n, cap;
    struct gs_map index;
};

struct gs_transfers {
    struct gs_builder *b;
    struct flows by_stack;
};

static struct flow *flow_at(struct flows *f, uint32_t stack, unsigned direction, unsigned memory,
                            bool async)
{
    uint32_t *at =
        gs_map_at(&f->index, (uint64_t)stack << 16 | direction << 8 | memory << 1 | async);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)f->n;
        *GS_PUSH(f->list, f->n, f->cap) = (struct flow){.stack = stack,
                                                        .direction = (uint8_t)direction,
                                                        .host_memory = (uint8_t)memory,
                                                        .async = async,
                                                        .first_ns = GS_NEVER};
    }
    return &f->list[*at];
}

void gs_transfers_call(struct gs_transfers *t, const struct gs_copy *copy)
{
    size_t n;
    const struct gs_process *p = &gs_run_processes(t->b->run, &n)[copy->process];
    struct flow *f =
        flow_at(&t->by_stack, copy->stack, copy->direction, copy->host_memory, copy->async);
    f->count++;
    f->tiny += copy->bytes < TINY_BYTES;
    f->bytes = gs_add(f->bytes, copy->bytes);
    f->early_bytes = gs_add(f->early_bytes, copy->start_ns < p->end_ns / 10 ? copy->bytes : 0);
    f->blocked_ns = gs_add(f->blocked_ns, copy->blocked_ns);
    f->first_ns = copy->start_ns < f->first_ns ? copy->start_ns : f->first_ns;
    f->last_ns = copy->start_ns > f->last_ns ? copy->start_ns : f->last_ns;
}

struct gs_transfers *gs_transfers_start(struct gs_builder *b)
{
    struct gs_transfers *t = gs_realloc(NULL, 1, sizeof *t);
    *t = (struct gs_transfers){.b = b};
    return t;
}

static struct flows fold(struct gs_transfers *t)
{
    struct flows by_site = {0};
    for (size_t i = 0; i < t->by_stack.n; i++) {
        const struct flow *from = &t->by_stack.list[i];
        uint32_t site = gs_site_number(t->b, from->stack);
        struct flow *to = flow_at(&by_site, site, from->direction, from->host_memory, from->async);
        to->count += from->count;
        to->tiny += from->tiny;
        to->bytes = gs_add(to->bytes, from->bytes);
        to->early_bytes = gs_add(to->early_bytes, from->early_bytes);
        to->blocked_ns = gs_add(to->blocked_ns, from->blocked_ns);
        to->first_ns = from->first_ns < to->first_ns ? from->first_ns : to->first_ns;
        to->last_ns = from->last_ns > to->last_ns ? from->last_ns : to->last_ns;
    }
    return by_site;
}

/* Known where the host stays in the call until the data has moved. */
static double bandwidth(const struct flow *f)
{
    bool host = f->direction == GS_DIR_H2D || f->direction == GS_DIR_D2H;
    bool held = !f->async || f->host_memory == GS_HOSTMEM_PAGEABLE;
    return host && held && f->blocked_ns > 0 && f->bytes > 0
               ? (double)f->bytes * 1e9 / (double)f->blocked_ns
               : NAN;
}

static const char *advise(const struct flow *f, double speed, double link)
{
    bool host = f->direction == GS_DIR_H2D || f->direction == GS_DIR_D2H;
    double span = (double)(f->last_ns - f->first_ns) / 1e9;
    if (!host || (double)f->early_bytes >= loading_share * (double)f->bytes) {
        return NULL;
    }
    bool item = f->direction == GS_DIR_D2H && f->bytes <= ITEM_BYTES * (int64_t)f->count;
    if (item) { /* .item(): advised on as a wait */
        return NULL;
    }
    if (f->tiny * 2 > f->count && f->count >= TINY_PER_S && (double)f->count >= TINY_PER_S * span) {
        return "many tiny copies: put them into one buffer and copy once";
    }
    bool bulk = f->bytes / (int64_t)f->count >= BULK_BYTES;
    if (f->host_memory == GS_HOSTMEM_PAGEABLE && bulk && speed < slow_share * link) {
        /* Not .pin_memory() in the loop: pinning each batch costs more than it saves. */
        return f->direction == GS_DIR_H2D ? "slow from pageable memory: let the loader pin "
                                            "(DataLoader(pin_memory=True)) and "
                                            "copy with non_blocking=True"
                                          : "slow to pageable memory: keep one pinned buffer, and "
                                            "synchronise before reading "
                                            "it";
    }
    return NULL;
}

static int more(const void *a, const void *b)
{
    const struct gs_transfer *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    return x->site.line - y->site.line;
}

static struct gs_transfer describe(const struct gs_builder *b, const struct flow *f, double link)
{
    double speed = bandwidth(f);
    return (struct gs_transfer){.direction = f->direction,
                                .host_memory = f->host_memory,
                                .pinned = f->host_memory == GS_HOSTMEM_PINNED     ? 1
                                          : f->host_memory == GS_HOSTMEM_PAGEABLE ? 0
                                                                                  : -1,
                                .async = f->async,
                                .count = f->count,
                                .bytes = f->bytes,
                                .blocked_s = (double)f->blocked_ns / 1e9,
                                .bytes_per_s = speed,
                                .first_s = gs_seconds(f->first_ns),
                                .last_s = gs_seconds(f->last_ns),
                                .site = b->sites[f->stack],
                                .advice = advise(f, speed, link)};
}

void gs_transfers_finish(struct gs_transfers *t)
{
    struct gs_report *report = t->b->report;
    struct flows sites = fold(t);
    double link = modest_link;
    for (size_t i = 0; i < sites.n; i++) {
        double speed = sites.list[i].bytes >= BULK_BYTES ? bandwidth(&sites.list[i]) : NAN;
        link = speed > link ? speed : link;
    }
    struct gs_transfer *work = gs_realloc(NULL, sites.n, sizeof *work);
    for (size_t i = 0; i < sites.n; i++) {
        work[i] = describe(t->b, &sites.list[i], link);
    }
    report->transfers = gs_list(t->b, work, sites.n, sizeof *work, more, &report->transfers_n,
                                &report->transfers_total);
    free(work);
    free(sites.list);
    gs_map_free(&sites.index);
    free(t->by_stack.list);
    gs_map_free(&t->by_stack.index);
    free(t);
}
