/* Why a category differs from its estimate, as far as the figures explain it. For each category, the first rule that
 * applies gives the reason. */
#include "analyzer/question/question.h"

#include <math.h>

#define TEXT(f, ...) arena_printf((f)->b->arena, __VA_ARGS__)
#define BYTES(f, x) site_bytes_text((f)->b, (double)(x))

/* A rule returns a reason, "" (as estimated, nothing to explain), or NULL (the next rule decides). */
typedef const char *rule_fn(const struct question_budget_facts *f, const struct result_budget_row *row);

/* Blocks are rounded up, and small models have many small ones. */
static bool is_near_estimate(double x, double estimated)
{
    return fabs(x - estimated) <= 0.02 * estimated;
}

static double most_of_row(const struct result_budget_row *row)
{
    return (double)(row->most_bytes > row->peak_bytes ? row->most_bytes : row->peak_bytes);
}

static const char *as_estimated(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return is_near_estimate((double)row->peak_bytes, row->estimate_bytes) ? "" : NULL;
}

/* For rows whose estimate is an interval. */
static const char *as_expected(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return f->budget->planned && row->inside == 1 && row->estimate_bytes > 0 ? "" : NULL;
}

/* Gradients, activations and temporaries are judged together. */
static const char *within_pass_sum(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return f->budget->planned && row->inside == 0 && f->pass_inside == 1 ? "" : NULL;
}

/* A category of passes at a moment for which the estimate has no line of it. */
static const char *without_line(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    bool here = !f->budget->planned || row->estimate_bytes >= 0; /* not NAN */
    return here                                           ? NULL
           : row->category == RESULT_CATEGORY_TEMPORARIES ? "estimated with the activations"
                                                          : "not expected at that moment";
}

/* Gradients at a moment at which zero_grad() should have freed them. */
static const char *left_from_last_step(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return f->budget->planned && row->expected.high <= 0 && row->peak_bytes > row->most_bytes / 2
               ? TEXT(f, "from the previous step, still live in forward: zero_grad() before forward frees %s",
                      BYTES(f, row->peak_bytes))
               : NULL;
}

static const char *none_yet(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return f->budget->planned && row->inside == 1 && row->peak_bytes < row->most_bytes / 50
               ? TEXT(f, "none at that moment, as expected; at most %s", BYTES(f, row->most_bytes))
               : NULL;
}

static const char *times_expected(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return row->peak_bytes > 0 ? TEXT(f, "%.2g times the expected", (double)row->peak_bytes / row->estimate_bytes)
                               : "none at that moment";
}

static const char *more_or_less_kept(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    if (!f->budget->planned || row->inside != 0) return NULL;
    return TEXT(
        f, "%s: %s", times_expected(f, row),
        (double)row->peak_bytes > row->expected.high
            ? "a larger batch than stated, outputs kept too long, or layers that save more than the formula assumes"
        : f->failed ? "memory ran out before all of them existed"
                    : "a smaller batch than stated, checkpointing, or fused layers that save less");
}

static const char *more_or_less(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return f->budget->planned && row->inside == 0 ? times_expected(f, row) : NULL;
}

static const char *not_estimated(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    static const char *const what[RESULT_CATEGORIES_N] = {
        [RESULT_CATEGORY_ACTIVATIONS] = "not estimated: what forward keeps for backward",
        [RESULT_CATEGORY_INPUTS] = "not estimated: the batches on the GPU",
        [RESULT_CATEGORY_TEMPORARIES] = "not estimated: allocated and freed within one pass",
        [RESULT_CATEGORY_WORKSPACES] = "not estimated: cuBLAS and cuDNN",
        [RESULT_CATEGORY_KV_CACHE] = "not estimated: the keys and values of earlier tokens",
        [RESULT_CATEGORY_UNKNOWN] = "not explained: no rule covers it",
    };
    return what[row->category];
}

static const char *not_explained(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return "not explained";
}

static bool is_part(const struct question_budget_facts *f, enum result_category category)
{
    const struct result_budget_row *row = f->of[category];
    return f->ranks > 1 && is_near_estimate((double)row->peak_bytes * (double)f->ranks, row->estimate_bytes);
}

/* If parameters are a part of their estimate, they are sharded. Gradients or states that are a part may instead belong
 * to a model with frozen parameters, unless the parameters are sharded, too, or (for states) the gradients complete. */
static const char *sharded_over_ranks(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    const struct result_budget_row *gradients = f->of[RESULT_CATEGORY_GRADIENTS];
    bool sharded = is_part(f, RESULT_CATEGORY_PARAMETERS) ||
                   (row->category == RESULT_CATEGORY_OPTIMIZER_STATE &&
                    is_near_estimate((double)gradients->peak_bytes, gradients->estimate_bytes));
    return sharded && is_part(f, row->category)
               ? TEXT(f, "one of %zu parts: sharded over the run's %zu processes", f->ranks, f->ranks)
               : NULL;
}

/* The ratio at the peak if both are live then, else the ratio of their maxima. */
static double ratio_to(const struct question_budget_facts *f, enum result_category one, enum result_category other)
{
    const struct result_budget_row *a = f->of[one], *b = f->of[other];
    bool then = a->peak_bytes > 0 && b->peak_bytes > 0;
    double to = then ? (double)b->peak_bytes : most_of_row(b);
    return to > 0 ? (then ? (double)a->peak_bytes : most_of_row(a)) / to : 0;
}

static const char *live_at_other_times(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    if (row->most_bytes == RUN_UNKNOWN || (double)row->peak_bytes > 0.98 * (double)row->most_bytes ||
        row->most_bytes < (int64_t)(row->estimate_bytes / 100))
        return NULL;
    return TEXT(f, "%s at the peak: up to %s were live %s", row->peak_bytes ? "not all" : "none",
                BYTES(f, row->most_bytes), f->later[row->category] ? "later" : "before, and freed again");
}

static const char *none_recognised(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return most_of_row(row) > 0 ? NULL : "not explained: no block has this category";
}

/* Bytes per parameter, if the model has as many parameters as stated. */
static const char *budget_element_name(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    static const struct {
        double estimated, measured;
        const char *reason;
    } known[] = {
        {4, 2, "2 bytes per parameter, not 4: 16-bit weights, or half as many parameters"},
        {2, 4, "4 bytes per parameter, not 2: float32 weights, or twice as many parameters"},
        {2, 6, "6 bytes per parameter: 16-bit weights and a float32 copy, or more parameters"},
        {4, 8,
         "8 bytes per parameter: the weights twice (an average or a frozen copy of the model), or twice as many "
         "parameters"},
        {4, 6, "6 bytes per parameter: float32 weights and a 16-bit copy, or more parameters"},
    };
    double n = f->budget->estimate.params;
    for (size_t i = 0; n > 0 && i < sizeof known / sizeof *known; i++)
        if (is_near_estimate(row->estimate_bytes / n, known[i].estimated) &&
            is_near_estimate(most_of_row(row) / n, known[i].measured))
            return known[i].reason;
    return NULL;
}

/* "124M" */
static const char *budget_count_text(const struct question_budget_facts *f, double n)
{
    return n >= 1e9   ? TEXT(f, "%.4gB", n / 1e9)
           : n >= 1e6 ? TEXT(f, "%.4gM", n / 1e6)
           : n >= 1e3 ? TEXT(f, "%.4gk", n / 1e3)
                      : TEXT(f, "%.0f", n);
}

static const char *rounded_up(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    double over = most_of_row(row) - row->estimate_bytes;
    uint64_t blocks = f->blocks[row->category];
    const char *too = row->category == RESULT_CATEGORY_PARAMETERS ? "; buffers count, too" : "";
    if (row->estimate_bytes <= 0) return NULL;
    /* The allocator does not split a block that is up to 1 MiB larger than the request. */
    if (over > 512.0 * (double)blocks && over <= 0.1 * row->estimate_bytes && over <= (double)blocks * (1 << 20))
        return TEXT(f, "%s more: blocks are up to 1 MiB larger than their requests%s", BYTES(f, over), too);
    return over > 0 && over <= 512.0 * (double)blocks
               ? TEXT(f, "up to %s of it is the rounding of %llu blocks to 512 bytes%s",
                      BYTES(f, 512.0 * (double)blocks), (unsigned long long)blocks, too)
               : NULL;
}

static const char *other_count(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return TEXT(f, "as much as %s parameters of 4 bytes, or %s of 2, buffers included",
                budget_count_text(f, most_of_row(row) / 4), budget_count_text(f, most_of_row(row) / 2));
}

static const char *no_gradients(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return most_of_row(row) > 0 ? NULL
           : f->failed          ? "none: memory ran out before a backward pass kept any"
                                : "none: no backward pass kept any";
}

static const char *ddp_buckets(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return f->buckets > 0 && (double)row->peak_bytes > row->estimate_bytes
               ? TEXT(f,
                      "%s of it are DistributedDataParallel's buckets; "
                      "with gradient_as_bucket_view=True they are the gradients",
                      BYTES(f, f->buckets))
               : NULL;
}

static const char *gradient_share(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    double share = ratio_to(f, row->category, RESULT_CATEGORY_PARAMETERS);
    if (is_near_estimate(share, 1)) return "as large as the parameters: one gradient per parameter";
    return share > 0 && share < 1       ? TEXT(f,
                                               "%.3g %% of the parameters' bytes: the other parameters have none (frozen, or "
                                                     "not reached)",
                                               100 * share)
           : is_near_estimate(share, 2) ? "twice the parameters' bytes"
                                        : NULL;
}

static const char *no_states(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    if (most_of_row(row) > 0) return NULL;
    return f->stepped  ? "none: the optimizer's steps kept nothing, as with SGD without momentum"
           : f->failed ? "none: memory ran out before the first optimizer step"
                       : "none: no optimizer step created any";
}

static const char *state_ratio(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    static const struct {
        double times;
        const char *reason;
    } known[] = {
        {0.508, "half of the gradients' bytes: two 8-bit states for float32 parameters, or one 16-bit state"},
        {1, "as large as the gradients: one state per parameter, such as a momentum"},
        {2, "twice the gradients' bytes: two states per parameter, as Adam keeps"},
        {3, "3 times the gradients' bytes: three states per parameter (amsgrad), or two and a copy of the weights"},
        {4, "4 times the gradients' bytes: two float32 states for 16-bit parameters"},
        {6, "6 times the gradients' bytes: two float32 states and a float32 copy of 16-bit weights"},
    };
    bool gradients = most_of_row(f->of[RESULT_CATEGORY_GRADIENTS]) > 0;
    double times = ratio_to(f, row->category, gradients ? RESULT_CATEGORY_GRADIENTS : RESULT_CATEGORY_PARAMETERS);
    for (size_t i = 0; gradients && i < sizeof known / sizeof *known; i++)
        if (is_near_estimate(times, known[i].times)) return known[i].reason;
    return times > 0 ? TEXT(f, "not explained: %.3g times the %s' bytes", times, gradients ? "gradients" : "parameters")
                     : NULL;
}

/* Many blocks are those of foreach. A single one can be as large in a model with one large matrix. */
static const char *optimizer_temporaries(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    double then = (double)f->of[RESULT_CATEGORY_PARAMETERS]->peak_bytes;
    double share = then > 0 ? (double)f->in_step / then : 0;
    return share < 0.25 ? NULL
           : f->in_step_blocks < 4
               ? TEXT(f, "%s of it in the optimizer's step", BYTES(f, f->in_step))
               : TEXT(f,
                      "%s of it in the optimizer's step, %.3g %% of the parameters' bytes: it works "
                      "on many tensors at once (foreach); fused=True makes no such copies",
                      BYTES(f, f->in_step), 100 * share);
}

static const char *autocast_copies(const struct question_budget_facts *f, const struct result_budget_row *row)
{
    return f->budget->estimate.cast_copies > 0
               ? TEXT(f,
                      "not estimated: what forward keeps for backward; autocast's 16-bit copies of "
                      "the weights are up to %s of it",
                      BYTES(f, f->budget->estimate.cast_copies))
               : NULL;
}

enum { RULES = 10 };
static rule_fn *const rules[RESULT_CATEGORIES_N][RULES] = {
    [RESULT_CATEGORY_PARAMETERS] = {as_estimated, none_recognised, sharded_over_ranks, live_at_other_times,
                                    budget_element_name, rounded_up, other_count},
    [RESULT_CATEGORY_GRADIENTS] = {none_yet, left_from_last_step, as_estimated, no_gradients, within_pass_sum,
                                   sharded_over_ranks, ddp_buckets, live_at_other_times, gradient_share, not_explained},
    [RESULT_CATEGORY_OPTIMIZER_STATE] = {as_estimated, no_states, sharded_over_ranks, live_at_other_times, rounded_up,
                                         state_ratio, not_explained},
    [RESULT_CATEGORY_ACTIVATIONS] = {as_expected, within_pass_sum, without_line, more_or_less_kept, autocast_copies,
                                     not_estimated},
    [RESULT_CATEGORY_INPUTS] = {not_estimated},
    [RESULT_CATEGORY_TEMPORARIES] = {as_expected, within_pass_sum, optimizer_temporaries, without_line, more_or_less,
                                     not_estimated},
    [RESULT_CATEGORY_WORKSPACES] = {as_expected, more_or_less, not_estimated},
    [RESULT_CATEGORY_KV_CACHE] = {as_expected, more_or_less, not_estimated},
    [RESULT_CATEGORY_UNKNOWN] = {not_estimated},
};

const char *question_budget_reason(const struct question_budget_facts *f, enum result_category category)
{
    const struct result_budget_row *row = f->of[category];
    for (size_t i = 0; i < RULES && rules[category][i]; i++) {
        const char *reason = rules[category][i](f, row);
        if (reason) return *reason ? reason : NULL;
    }
    return NULL;
}
