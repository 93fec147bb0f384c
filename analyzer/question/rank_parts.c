/* Names of ranks, those to compare, and the list of outliers. */
#include "analyzer/question/rank_parts.h"

#include <string.h>

enum { NAMED = 6 };

const char *question_rank_label(const struct site_builder *b, const struct result_rank *rank)
{
    const struct run_process *p = run_process_at(b->run, rank->process);
    return p->rank >= 0 ? arena_printf(b->arena, "rank %lld", (long long)p->rank)
                        : arena_printf(b->arena, "process %u", p->pid);
}

/* The end of the ranks that follow one another from `at` on, all marked. */
static size_t consecutive_end(const struct site_builder *b, const struct result_rank *list, const bool *marked,
                              size_t n, size_t at)
{
    int64_t rank = run_process_at(b->run, list[at].process)->rank;
    for (at++; rank >= 0 && at < n && marked[at] && run_process_at(b->run, list[at].process)->rank == rank + 1; at++)
        rank++;
    return at;
}

/* "rank 0, ranks 8 to 15 and 4 more" of the marked ones. */
const char *question_rank_labels(const struct site_builder *b, const struct result_rank *list, const bool *marked,
                                 size_t n)
{
    size_t all = 0, listed = 0, end;
    const char *text = "", *last = NULL;
    for (size_t i = 0; i < n; i++) all += marked[i];
    for (size_t i = 0, named = 0; i < n && (named < NAMED || all == listed + 1); i = end) {
        end = i + 1;
        if (!marked[i]) continue;
        if (last) text = arena_printf(b->arena, "%s%s%s", text, *text ? ", " : "", last);
        last = question_rank_label(b, &list[i]);
        const size_t until = consecutive_end(b, list, marked, n, i);
        if (until - i > 2) {
            end = until;
            last =
                arena_printf(b->arena, "ranks %lld to %lld", (long long)run_process_at(b->run, list[i].process)->rank,
                             (long long)run_process_at(b->run, list[end - 1].process)->rank);
        }
        listed += end - i;
        named++;
    }
    if (all > listed) return arena_printf(b->arena, "%s, %s and %zu more", text, last, all - listed);
    return *text ? arena_printf(b->arena, "%s and %s", text, last) : last;
}

bool question_rank_is_same_host(const struct run_process *x, const struct run_process *y)
{
    return x->host == y->host || (x->host && y->host && strcmp(x->host, y->host) == 0);
}

/* Did both run at the same time? Processes that ran one after the other are not ranks of one job. */
bool question_rank_overlaps(const struct run_process *x, const struct run_process *y)
{
    if (x->start_real_ns == RUN_UNKNOWN || y->start_real_ns == RUN_UNKNOWN) return true;
    return x->start_real_ns < arena_add_capped(y->start_real_ns, y->end_ns) &&
           y->start_real_ns < arena_add_capped(x->start_real_ns, x->end_ns);
}

struct result_rank_finding *question_rank_add_finding(struct question_ranks *r, enum result_rank_kind kind,
                                                      const struct result_rank *rank, int device, int64_t bytes,
                                                      uint32_t stack)
{
    struct result_rank_finding *f = ARENA_ADD(r->found);
    *f = (struct result_rank_finding){.kind = kind, .process = rank->process, .device = device, .bytes = bytes};
    if (stack != RUN_NONE) f->site = site_of_call(r->b, stack);
    return f;
}

const struct result_rank **question_rank_last(const struct result_report *report, size_t *n)
{
    const struct result_rank **list = arena_realloc(NULL, report->ranks_n, sizeof *list);
    *n = 0;
    for (size_t i = 0; i < report->ranks_n; i++) {
        if (report->ranks[i].rank < 0) {
            *n = 0;
            return list;
        }
        if (!report->ranks[i].again && !report->ranks[i].child) list[(*n)++] = &report->ranks[i];
    }
    return list;
}
