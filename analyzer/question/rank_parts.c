/* Names of ranks, those to compare, and the list of what stands out. */
#include "analyzer/question/rank_parts.h"

#include <stdlib.h>
#include <string.h>

enum { NAMED = 6 };

const char *gs_rank_label(const struct gs_builder *b, const struct gs_rank *rank)
{
    size_t n;
    const struct gs_process *p = &gs_run_processes(b->run, &n)[rank->process];
    return p->rank >= 0 ? gs_arena_printf(b->arena, "rank %lld", (long long)p->rank)
                        : gs_arena_printf(b->arena, "process %u", p->pid);
}

/* "ranks 1, 2, 3 and 4 more" of the marked ones. */
const char *gs_rank_labels(const struct gs_builder *b, const struct gs_rank *list, const bool *marked, size_t n)
{
    size_t all = 0, said = 0;
    const char *text = "", *last = NULL;
    for (size_t i = 0; i < n; i++) {
        all += marked[i];
    }
    for (size_t i = 0; i < n && (said < NAMED || all == NAMED + 1); i++) {
        if (!marked[i]) {
            continue;
        }
        if (last) {
            text = gs_arena_printf(b->arena, "%s%s%s", text, *text ? ", " : "", last);
        }
        last = gs_rank_label(b, &list[i]);
        said++;
    }
    if (all > said) {
        return gs_arena_printf(b->arena, "%s, %s and %zu more", text, last, all - said);
    }
    return *text ? gs_arena_printf(b->arena, "%s and %s", text, last) : last;
}

bool gs_rank_same_host(const struct gs_process *x, const struct gs_process *y)
{
    return x->host == y->host || (x->host && y->host && strcmp(x->host, y->host) == 0);
}

/* Both lived at one time: one after another they are no ranks of one job. */
bool gs_rank_overlap(const struct gs_process *x, const struct gs_process *y)
{
    if (x->start_real_ns == GS_UNKNOWN || y->start_real_ns == GS_UNKNOWN) {
        return true;
    }
    return x->start_real_ns < gs_add(y->start_real_ns, y->end_ns) &&
           y->start_real_ns < gs_add(x->start_real_ns, x->end_ns);
}

struct gs_rank_finding *gs_ranks_find(struct gs_ranks *r, enum gs_rank_kind kind, const struct gs_rank *rank,
                                      int device, int64_t bytes, uint32_t stack)
{
    struct gs_rank_finding *f = GS_PUSH(r->found, r->found_n, r->found_cap);
    *f = (struct gs_rank_finding){.kind = kind, .process = rank->process, .device = device, .bytes = bytes};
    if (stack != GS_NONE) {
        uint32_t site = gs_site_number(r->b, stack);
        f->site = r->b->sites[site];
    }
    return f;
}

const struct gs_rank **gs_rank_last(const struct gs_report *report, size_t *n)
{
    const struct gs_rank **list = gs_realloc(NULL, report->ranks_n, sizeof *list);
    *n = 0;
    for (size_t i = 0; i < report->ranks_n; i++) {
        if (report->ranks[i].rank < 0) {
            *n = 0;
            return list;
        }
        if (!report->ranks[i].again && !report->ranks[i].child) {
            list[(*n)++] = &report->ranks[i];
        }
    }
    return list;
}
