/* The memory of several processes on one GPU, added up: --per device.
 *
 * The peak of each process is known, but they may occur at different moments: their sum is an upper bound. If the sum
 * is within the limit, the check is ok; if the peak of one process exceeds the limit, it fails; otherwise the result is
 * unknown.
 */
#include <string.h>
#include "analyzer/check/check.h"

static bool do_shares_add_up(const struct check_result *r)
{
    return (r->gate == GATE_PEAK || r->gate == GATE_TENSOR_PEAK) && r->device >= 0;
}

static bool one_gpu(const struct check_result *a, const struct check_result *b)
{
    return a->gate == b->gate && a->scope == b->scope && strcmp(a->gpu, b->gpu) == 0;
}

static const char *process_text(struct check *c, const struct check_result *r)
{
    return r->rank >= 0 ? arena_printf(&c->arena, "rank %lld: %s", (long long)r->rank, r->path)
                        : arena_printf(&c->arena, "process %u: %s", r->pid, r->path);
}

static void add_shared_result(struct check *c, struct check_result *a, const struct check_result *b)
{
    if (!a->shared) {
        struct check_line own = {.place = process_text(c, a), .amount = a->value};
        a->lines_n = a->lines_total = 0;
        a->lines = arena_alloc(&c->arena, c->processes * sizeof own);
        a->lines[a->lines_n++] = own;
    }
    if (a->lines_n < c->processes)
        a->lines[a->lines_n++] = (struct check_line){.place = process_text(c, b), .amount = b->value};
    a->lines_total = a->lines_n;
    a->shared++;
    a->status = a->status == CHECK_FAILED || b->status == CHECK_FAILED ? CHECK_FAILED
                : a->status == CHECK_UNKNOWN                           ? CHECK_UNKNOWN
                                                                       : b->status;
    a->value += b->value;
}

static void judge_shared_result(struct check *c, struct check_result *r)
{
    if (r->shared && r->status == CHECK_OK && r->value > r->limit) {
        r->status = CHECK_UNKNOWN;
        r->why = arena_printf(&c->arena,
                              "the peaks of %u processes on this GPU sum to more than the limit, but may not have "
                              "occurred at the same moment",
                              r->shared + 1);
    } else if (r->shared) {
        r->why = arena_printf(&c->arena, "the peaks of %u processes together", r->shared + 1);
    }
}

void check_share(struct check *c)
{
    size_t kept = 0;
    EACH (r, c->results, c->n) {
        size_t at = kept;
        for (size_t k = 0; k < kept && at == kept && do_shares_add_up(r); k++)
            at = do_shares_add_up(&c->results[k]) && one_gpu(&c->results[k], r) ? k : at;
        if (at < kept) {
            struct check_result copy = *r;
            add_shared_result(c, &c->results[at], &copy);
        } else {
            c->results[kept++] = *r;
        }
    }
    c->n = kept;
    for (size_t i = 0; i < c->n; i++) judge_shared_result(c, &c->results[i]);
}
