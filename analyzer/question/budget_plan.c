/* An estimate with activations, compared with the measured peak: each category, at the moment of the step at which the
 * peak was measured, and CUDA allocations in total. */
#include "analyzer/base/each.h"
#include "analyzer/question/question.h"

#include <math.h>
#include <string.h>

enum { NO_CATEGORY = -1 };
static const int8_t categories[ESTIMATE_PARTS_N] = {
    [ESTIMATE_WEIGHTS] = RESULT_CATEGORY_PARAMETERS,
    [ESTIMATE_ADAPTERS] = RESULT_CATEGORY_PARAMETERS,
    [ESTIMATE_EMA] = RESULT_CATEGORY_PARAMETERS,
    [ESTIMATE_MASTER] = RESULT_CATEGORY_OPTIMIZER_STATE,
    [ESTIMATE_OPTIMIZER] = RESULT_CATEGORY_OPTIMIZER_STATE,
    [ESTIMATE_GRADIENTS] = RESULT_CATEGORY_GRADIENTS,
    [ESTIMATE_BUCKETS] = RESULT_CATEGORY_GRADIENTS,
    [ESTIMATE_ACTIVATIONS] = RESULT_CATEGORY_ACTIVATIONS,
    [ESTIMATE_LOGITS] = RESULT_CATEGORY_ACTIVATIONS,
    [ESTIMATE_TEMPORARIES] = RESULT_CATEGORY_TEMPORARIES,
    [ESTIMATE_WORKSPACE] = RESULT_CATEGORY_WORKSPACES,
    [ESTIMATE_CACHE] = RESULT_CATEGORY_KV_CACHE,
    [ESTIMATE_ALLOCATOR] = NO_CATEGORY,
    [ESTIMATE_CONTEXT] = NO_CATEGORY,
    [ESTIMATE_COMMUNICATION] = NO_CATEGORY,
};

/* DDP's buckets hold gradients all the time; gathered weights and reduced gradients are temporary. */
static int category_of_line(const struct estimate_line *l)
{
    return l->part == ESTIMATE_BUCKETS && l->phases != IN_TRAINING ? RESULT_CATEGORY_TEMPORARIES : categories[l->part];
}

bool question_plan_gathers(const struct estimate_result *e)
{
    return ANY_IN(l, e->lines, category_of_line(l) == RESULT_CATEGORY_TEMPORARIES && l->part == ESTIMATE_BUCKETS);
}

bool question_plan_has_activations(const struct estimate_result *e)
{
    return e && ANY_OF(p, e->lines, e->lines_n, p->part == ESTIMATE_ACTIVATIONS && !p->host);
}

static struct estimate_interval sum_lines(const struct estimate_result *e, int phase,
                                          bool (*keep)(const struct estimate_line *, int), int which)
{
    struct estimate_interval all = {0};
    EACH_IN (l, e->lines)
        if (!l->host && (l->phases & 1u << phase) && keep(l, which)) all = estimate_interval_add(all, l->bytes);
    return all;
}

static bool of_category(const struct estimate_line *l, int category)
{
    return category_of_line(l) == category;
}

/* Low, expected and high, each of the phase with the highest value. */
struct estimate_interval question_plan_category(const struct estimate_result *e, enum result_category c, int phase)
{
    struct estimate_interval most = {0};
    for (int p = 0; p < ESTIMATE_PHASES_N; p++) {
        struct estimate_interval x = sum_lines(e, p, of_category, c);
        if (phase < 0 || p == phase) {
            most.low = fmax(most.low, x.low);
            most.likely = fmax(most.likely, x.likely);
            most.high = fmax(most.high, x.high);
        }
    }
    return most;
}

static bool is_line_of_pass(const struct estimate_line *l, int gradients)
{
    int c = category_of_line(l);
    return c == RESULT_CATEGORY_ACTIVATIONS || c == RESULT_CATEGORY_TEMPORARIES ||
           (gradients && c == RESULT_CATEGORY_GRADIENTS);
}

struct estimate_interval question_plan_pass(const struct estimate_result *e)
{
    return sum_lines(e, PHASE_FORWARD, is_line_of_pass, false);
}

/* Blocks are rounded up. */
int8_t question_plan_level_of(const struct estimate_interval *expected, double measured)
{
    return isnan(expected->likely) || isnan(measured)
               ? -1
               : measured >= 0.98 * expected->low - 4096 && measured <= 1.02 * expected->high + 4096;
}

static bool of_level(const struct estimate_line *l, int level)
{
    switch (level) {
    case RESULT_LEVEL_PASS: return is_line_of_pass(l, true);
    case RESULT_LEVEL_TENSORS: return categories[l->part] != NO_CATEGORY;
    case RESULT_LEVEL_ALLOCATOR: return l->part == ESTIMATE_ALLOCATOR;
    case RESULT_LEVEL_CUDA: return l->part != ESTIMATE_CONTEXT;
    case RESULT_LEVEL_CONTEXT: return l->part == ESTIMATE_CONTEXT;
    default: return true;
    }
}

/* The context of a simulated GPU is a configured value. */
static double context_of(const struct result_report *r, const struct result_device_memory *m)
{
    return r->simulated                      ? (double)NAN
           : m->context_bytes != RUN_UNKNOWN ? result_bytes_or_nan(m->context_bytes)
                                             : (double)NAN;
}

void question_plan_levels(const struct result_report *r, const struct result_peak *peak, struct result_budget *b,
                          const struct estimate_result *e, int phase)
{
    const struct result_device_memory *m = result_memory_of(r, peak->process, peak->device);
    const int64_t *of = peak->by_category.bytes;
    double measured[RESULT_LEVELS_N];
    for (int l = 0; l < RESULT_LEVELS_N; l++) measured[l] = NAN;
    measured[RESULT_LEVEL_PASS] = (double)of[RESULT_CATEGORY_ACTIVATIONS] + (double)of[RESULT_CATEGORY_GRADIENTS] +
                                  (double)of[RESULT_CATEGORY_TEMPORARIES];
    measured[RESULT_LEVEL_TENSORS] = result_bytes_or_nan(peak->bytes);
    if (m) {
        measured[RESULT_LEVEL_CUDA] = result_bytes_or_nan(m->live_bytes);
        measured[RESULT_LEVEL_ALLOCATOR] =
            result_bytes_or_nan(m->reserved_peak_bytes) - result_bytes_or_nan(m->tensor_peak_bytes);
        measured[RESULT_LEVEL_CONTEXT] = context_of(r, m);
        measured[RESULT_LEVEL_DEVICE] = measured[RESULT_LEVEL_CUDA] + measured[RESULT_LEVEL_CONTEXT];
    }
    b->levels_n = 0;
    for (int l = 0; l < RESULT_LEVELS_N; l++) {
        struct result_budget_level *level = &b->levels[b->levels_n];
        *level = (struct result_budget_level){
            .level = (enum result_level)l, .expected = sum_lines(e, phase, of_level, l), .measured_bytes = measured[l]};
        level->inside = question_plan_level_of(&level->expected, measured[l]);
        b->levels_n += !isnan(measured[l]) && level->expected.high > 0;
    }
}

/* Backward frees activations as it makes gradients: with more than half of them it has just begun. */
int question_phase_of(const char *during, double activations, double most_activations)
{
    bool begun = strcmp(during, "BACKWARD") == 0 || strcmp(during, "THREAD") == 0;
    return strcmp(during, "STEP") == 0                    ? PHASE_STEP
           : strcmp(during, "FORWARD") == 0               ? PHASE_FORWARD
           : begun && 2 * activations >= most_activations ? PHASE_FORWARD
           : begun                                        ? PHASE_BACKWARD
                                                          : -1;
}
