/* The estimate of `report --params` compared with the measurement, category by category. */
#include "analyzer/question/question.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/category/category_use.h"
#include "analyzer/step/step.h"
#include "analyzer/category/category.h"

/* The maximum of each category, of the tensors of each device of each process. */
struct most {
    int64_t top;             /* the most that was live, */
    unsigned top_rule;       /* and the rule of the block that reached it */
    int64_t pass, pass_most; /* activations and the temporaries of passes */
    int64_t now[RESULT_CATEGORIES_N], most[RESULT_CATEGORIES_N], most_ns[RESULT_CATEGORIES_N];
};

struct question_budgets {
    struct site_builder *b;
    struct category_finder *categorizer; /* NULL: no estimate was requested */
    struct most *by_series;
    size_t cap;
    uint32_t process; /* the process that is being replayed */
    int64_t last_alloc_ns;
};

static void budget_on_process_start(void *self, uint32_t process)
{
    struct question_budgets *g = self;
    g->process = process;
    g->last_alloc_ns = run_process_at(g->b->run, process)->last_alloc_ns;
}

static unsigned budget_rule_of(struct question_budgets *g, const struct run_lifetime *life)
{
    return category_rule_of(
        g->categorizer, true, life->stack, run_free_stack(g->b->run, life), life->free_ns > g->last_alloc_ns,
        category_uses_of(g->b->report->uses, g->process, life->stack, life->alloc_ns, life->free_ns));
}

/* Activations, and temporaries except the optimizer's. */
static bool is_rule_of_pass(unsigned rule)
{
    enum result_category c = category_of_rule(rule);
    return c == RESULT_CATEGORY_ACTIVATIONS ||
           (c == RESULT_CATEGORY_TEMPORARIES && strcmp(category_while_word(rule), "STEP") != 0);
}

static void budget_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_budgets *g = self;
    if (series->layer == RUN_SERIES_TENSOR) {
        unsigned rule = budget_rule_of(g, life);
        enum result_category c = category_of_rule(rule);
        struct most *m = SITE_REACH(g->by_series, life->series, g->cap);
        if (series->live_bytes > m->top) {
            m->top = series->live_bytes;
            m->top_rule = rule;
        }
        m->pass += is_rule_of_pass(rule) ? life->bytes : 0;
        m->pass_most = m->pass > m->pass_most ? m->pass : m->pass_most;
        m->now[c] += life->bytes;
        if (m->now[c] > m->most[c]) {
            m->most[c] = m->now[c];
            m->most_ns[c] = life->alloc_ns;
        }
    }
}

static void budget_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_budgets *g = self;
    if (series->layer == RUN_SERIES_TENSOR) {
        unsigned rule = budget_rule_of(g, life);
        struct most *m = SITE_REACH(g->by_series, life->series, g->cap);
        m->now[category_of_rule(rule)] -= life->bytes;
        m->pass -= is_rule_of_pass(rule) ? life->bytes : 0;
    }
}

bool question_budgets_replay(struct site_builder *b, char *error, size_t error_size)
{
    struct question_budgets *g = ARENA_NEW(struct question_budgets, .b = b);
    b->budgets = g;
    if (!b->options->estimate) return true;
    g->categorizer = category_finder_new(b->run);
    const struct run_observer observer = {
        .self = g, .process_start = budget_on_process_start, .alloc = budget_on_alloc, .free = budget_on_free};
    return run_replay(b->run, &observer, 1, error, error_size);
}

void question_budgets_free(struct question_budgets *g)
{
    if (g && g->categorizer) category_finder_free(g->categorizer);
    if (g) free(g->by_series);
    free(g);
}

/* The level nearest to what the estimate counts: tensors, else CUDA allocations, else CPU tensors. */
static const enum run_series_layer preferred[] = {RUN_SERIES_TENSOR, RUN_SERIES_DEVICE, RUN_SERIES_HOST};

static const struct result_peak *largest_peak(const struct result_report *r)
{
    const struct result_peak *best = NULL;
    for (size_t p = 0; p < sizeof preferred / sizeof *preferred && !best; p++) {
        EACH_IN (peak, r->peaks)
            if (peak->layer == preferred[p] && peak->bytes > (best ? best->bytes : RUN_UNKNOWN)) best = peak;
    }
    return best;
}

static const struct most *budget_most_of(const struct question_budgets *g, const struct result_peak *peak)
{
    const uint32_t i = run_find_series(g->b->run, peak->process, peak->device, peak->layer);
    return i < g->cap ? &g->by_series[i] : NULL;
}

static double estimate_of(const struct run_estimate_bytes *e, enum result_category c)
{
    return c == RESULT_CATEGORY_PARAMETERS        ? e->weights
           : c == RESULT_CATEGORY_GRADIENTS       ? e->gradients
           : c == RESULT_CATEGORY_OPTIMIZER_STATE ? e->optimizer
                                                  : NAN;
}

static size_t ranks_with_tensors(const struct result_report *r)
{
    size_t n = 0;
    uint32_t last = RUN_NONE;
    for (size_t i = 0; i < r->peaks_n; i++) { /* by process */
        if (r->peaks[i].layer == RUN_SERIES_TENSOR && r->peaks[i].process != last) {
            last = r->peaks[i].process;
            n++;
        }
    }
    return n;
}

static void collect_shares(struct question_budget_facts *f)
{
    const struct result_by_category *by = &f->budget->by_category;
    EACH_IN (s, by->shares) {
        const char *during = category_while_word(s->rule);
        f->blocks[s->category] += s->count;
        if (s->category == RESULT_CATEGORY_GRADIENTS && strcmp(during, "BUCKETS") == 0) {
            f->buckets = arena_add_capped(f->buckets, s->bytes);
        } else if (s->category == RESULT_CATEGORY_TEMPORARIES && strcmp(during, "STEP") == 0) {
            f->in_step = arena_add_capped(f->in_step, s->bytes);
            f->in_step_blocks += s->count;
        }
    }
}

static void collect_run(struct question_budget_facts *f)
{
    const struct result_report *r = f->b->report;
    const struct step_list *steps = step_list_of(f->b, f->process);
    f->ranks = ranks_with_tensors(r);
    f->stepped = steps && steps->source == STEP_SOURCE_OPTIMIZER;
    for (size_t i = 0; i < r->ooms_n; i++)
        f->failed = f->failed || (r->ooms[i].process == f->process && r->ooms[i].fatal);
}

/* The phase of the peak. Weights that FSDP gathers in forward are freed in backward, as activations are: if most of the
 * gradients exist, and the estimate has the peak at backward's end, live gathered weights are not a sign of the
 * beginning of backward. */
static int budget_phase_of(const struct estimate_result *e, const struct most *most,
                           const struct result_budget_row all[RESULT_CATEGORIES_N])
{
    const struct result_budget_row *kept = &all[RESULT_CATEGORY_ACTIVATIONS], *made = &all[RESULT_CATEGORY_GRADIENTS];
    const char *during = category_while_word(most->top_rule);
    int phase = question_phase_of(during, (double)kept->peak_bytes, (double)kept->most_bytes);
    bool late = e->peak_phase == PHASE_BACKWARD && question_plan_gathers(e) && strcmp(during, "FORWARD") != 0 &&
                made->peak_bytes > made->most_bytes / 2;
    return phase == PHASE_FORWARD && late ? PHASE_BACKWARD : phase;
}

/* The estimates with activations, if there are any. */
static void plan_rows(struct site_builder *b, struct result_budget *budget, const struct result_peak *peak,
                      const struct most *most, struct result_budget_row all[RESULT_CATEGORIES_N])
{
    const struct estimate_result *e = b->options->plan;
    if (!question_plan_has_activations(e)) return;
    budget->planned = true;
    budget->expected_peak = e->peak;
    budget->expected_phase = e->peak_phase;
    budget->measured_phase = most ? budget_phase_of(e, most, all) : -1;
    int phase = budget->measured_phase >= 0 ? budget->measured_phase : budget->expected_phase;
    for (int c = 0; c < RESULT_CATEGORIES_N; c++) {
        bool floor = c < RESULT_CATEGORY_ACTIVATIONS && c != RESULT_CATEGORY_GRADIENTS;
        struct estimate_interval expected = question_plan_category(e, (enum result_category)c, floor ? -1 : phase);
        if (c == RESULT_CATEGORY_GRADIENTS || (!floor && expected.high > 0)) {
            all[c].expected = expected;
            all[c].estimate_bytes = expected.likely;
            all[c].difference_bytes = (double)all[c].peak_bytes - expected.likely;
            all[c].inside = question_plan_level_of(&expected, (double)all[c].peak_bytes);
        }
    }
    question_plan_levels(b->report, peak, budget, e, phase);
}

static void make_rows(struct question_budgets *g, struct result_budget *budget, const struct result_peak *peak)
{
    struct result_budget_row all[RESULT_CATEGORIES_N];
    struct question_budget_facts f = {.b = g->b, .budget = budget, .process = peak->process};
    const struct most *most = budget_most_of(g, peak);
    budget->pass_most_bytes = most ? most->pass_most : RUN_UNKNOWN;
    bool recognised = false;
    for (int c = 0; c < RESULT_CATEGORIES_N; c++) {
        int64_t bytes = budget->by_category.bytes[c];
        all[c] = (struct result_budget_row){.category = (enum result_category)c,
                                            .estimate_bytes = estimate_of(&budget->estimate, c),
                                            .peak_bytes = bytes,
                                            .most_bytes = most ? most->most[c] : RUN_UNKNOWN};
        all[c].most_bytes = most && bytes > most->most[c] ? bytes : all[c].most_bytes;
        all[c].difference_bytes = (double)bytes - all[c].estimate_bytes;
        all[c].expected = EXACTLY(all[c].estimate_bytes);
        all[c].inside = question_plan_level_of(&all[c].expected, (double)bytes);
        f.of[c] = &all[c];
        f.later[c] = most && most->most_ns[c] > peak->time_ns;
        recognised = recognised || (c != RESULT_CATEGORY_UNKNOWN && all[c].peak_bytes > 0) ||
                     (c < RESULT_CATEGORY_ACTIVATIONS && all[c].most_bytes > 0);
    }
    if (!recognised) /* nothing was recognised: then it is unknown whether anything is missing */
        return;
    plan_rows(g->b, budget, peak, most, all);
    collect_shares(&f);
    collect_run(&f);
    budget->failed = f.failed;
    f.pass_inside = budget->levels_n && budget->levels[0].level == RESULT_LEVEL_PASS ? budget->levels[0].inside : -1;
    for (int c = 0; c < RESULT_CATEGORIES_N; c++) {
        if (all[c].estimate_bytes > 0 || all[c].peak_bytes > 0 || c == RESULT_CATEGORY_GRADIENTS) {
            all[c].why = question_budget_reason(&f, (enum result_category)c);
            budget->rows[budget->rows_n++] = all[c];
        }
    }
}

static void compare_with_budget(struct question_budgets *g, const struct result_peak *peak,
                                struct result_budget *budget)
{
    const struct run_options *o = g->b->options;
    budget->present = true;
    budget->gpus = o->plan_gpus ? o->plan_gpus : 1;
    budget->pass_most_bytes = RUN_UNKNOWN;
    budget->estimate = *o->estimate;
    budget->measured_bytes = peak ? peak->bytes : RUN_UNKNOWN;
    budget->difference_bytes = peak ? (double)peak->bytes - budget->estimate.total : (double)NAN;
    budget->difference_share = budget->estimate.total > 0 ? budget->difference_bytes / budget->estimate.total : NAN;
    if (peak) {
        budget->measured_layer = peak->layer;
        budget->process = peak->process;
        budget->device = peak->device;
        budget->by_category = peak->by_category;
        make_rows(g, budget, peak);
    }
}

static const struct result_peak *peak_of_rank(const struct result_report *r, const struct result_rank *rank)
{
    return FIND_IN(p, r->peaks,
                   p->layer == RUN_SERIES_TENSOR && p->process == rank->process && p->device == rank->device);
}

/* Each process that trains; not earlier starts of a rank, nor processes that a rank started itself. */
static void ranks_build(struct question_budgets *g, struct result_budget *all)
{
    const struct result_report *r = g->b->report;
    struct result_budget *ranks = arena_alloc(g->b->arena, (r->ranks_n + 1) * sizeof *ranks);
    EACH_IN (rank, r->ranks) {
        const struct result_peak *peak = peak_of_rank(r, rank);
        if (peak && !rank->again && !rank->child) {
            ranks[all->ranks_n] = (struct result_budget){.rank = rank};
            compare_with_budget(g, peak, &ranks[all->ranks_n++]);
        }
        if (rank->process == all->process && rank->device == all->device) all->rank = rank;
    }
    all->ranks = ranks;
}

/* The parameters at a peak, without a copy that deepcopy() made of them, such as of moving averages. A model whose
 * layers deepcopy() made has more of these than of others. */
static int64_t parameters_at(const struct run *run, const struct result_peak *peak)
{
    const int64_t all = peak->by_category.bytes[RESULT_CATEGORY_PARAMETERS];
    int64_t copied = 0;
    EACH_IN (of, peak->by_stack)
        if (of->category == RESULT_CATEGORY_PARAMETERS &&
            run_stack_is_in(run, of->stack.number, "/copy.py", "deepcopy"))
            copied = arena_add_capped(copied, of->bytes);
    const int64_t rest = all - copied, differ = rest > copied ? rest - copied : copied - rest;
    return differ <= all / 100 ? rest : all; /* buffers are copied, too */
}

/* For the next command: what a model of the measured parameters needs. */
static int64_t parameter_bytes(const struct site_builder *b)
{
    int64_t most = 0;
    EACH_IN (peak, b->report->peaks) {
        const int64_t bytes = peak->layer == RUN_SERIES_TENSOR ? parameters_at(b->run, peak) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

void question_budgets_build(struct site_builder *b)
{
    struct result_budget *budget = &b->report->budget;
    const struct result_peak *peak = largest_peak(b->report);
    budget->parameter_bytes = parameter_bytes(b);
    if (b->options->estimate) {
        compare_with_budget(b->budgets, peak, budget);
        if (budget->gpus > 1) ranks_build(b->budgets, budget);
    }
}
