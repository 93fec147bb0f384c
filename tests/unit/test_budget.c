/* Why a category differs from its estimate: each sentence for the figures that imply it, and for no others; and the
 * rows of a whole report. */
#include "tests/cases.h"
#include <math.h>
#include "analyzer/question/question.h"
#include "tests/unit/synthetic.h"

#define MB 1000000LL

struct figures { /* bytes; the estimate is fp32 Adam of 1e6 parameters: 4, 4, 8 MB */
    int64_t peak[RESULT_CATEGORIES_N], most[RESULT_CATEGORIES_N];
    double per_parameter;   /* of the weights' estimate; 0: 4 */
    double casts, expected; /* expected: of the category in question */
    int64_t buckets, in_step;
    uint64_t in_step_blocks, blocks;
    size_t ranks;
    bool stepped, failed, later, planned; /* planned: nothing is expected then */
};

static struct arena arena;

static const char *why(const struct figures *x, enum result_category category)
{
    double weights = x->per_parameter > 0 ? x->per_parameter : 4;
    struct site_builder b = {.arena = &arena};
    struct result_budget budget = {
        .estimate = {weights * 1e6, weights * 1e6, 2 * weights * 1e6, 4 * weights * 1e6, 1e6, x->casts}};
    struct result_budget_row rows[RESULT_CATEGORIES_N];
    struct question_budget_facts f = {.b = &b,
                                      .budget = &budget,
                                      .buckets = x->buckets,
                                      .in_step = x->in_step,
                                      .in_step_blocks = x->in_step_blocks,
                                      .ranks = x->ranks ? x->ranks : 1,
                                      .stepped = x->stepped,
                                      .failed = x->failed};
    for (int c = 0; c < RESULT_CATEGORIES_N; c++) {
        const double estimates[] = {budget.estimate.weights, budget.estimate.gradients, budget.estimate.optimizer};
        rows[c] = (struct result_budget_row){.category = (enum result_category)c,
                                             .estimate_bytes = c < 3 ? estimates[c] : (double)NAN,
                                             .peak_bytes = x->peak[c],
                                             .most_bytes = x->most[c] > x->peak[c] ? x->most[c] : x->peak[c]};
        if (x->planned) {
            budget.planned = true;
            rows[c].estimate_bytes = c == (int)category ? x->expected : 0;
            rows[c].expected = EXACTLY(rows[c].estimate_bytes);
            rows[c].inside = question_plan_level_of(&rows[c].expected, (double)x->peak[c]);
        }
        f.of[c] = &rows[c];
        f.blocks[c] = x->blocks;
        f.later[c] = x->later;
    }
    return question_budget_reason(&f, category);
}

#define P RESULT_CATEGORY_PARAMETERS
#define G RESULT_CATEGORY_GRADIENTS
#define O RESULT_CATEGORY_OPTIMIZER_STATE
#define T RESULT_CATEGORY_TEMPORARIES
#define A RESULT_CATEGORY_ACTIVATIONS

static const struct {
    struct figures figures;
    enum result_category category;
    const char *says; /* NULL: as estimated */
} cases[] = {
    {{.peak = {4 * MB, 4 * MB, 8 * MB}}, P, NULL},
    {{.peak = {4 * MB, 4 * MB, 8 * MB}}, G, NULL},
    {{.peak = {4 * MB, 4 * MB, 8 * MB}}, O, NULL},
    {{.peak = {4 * MB + MB / 20}}, P, NULL},
    {{.peak = {2 * MB}}, P, "2 bytes per parameter, not 4"},
    {{.peak = {4 * MB}, .per_parameter = 2}, P, "4 bytes per parameter, not 2: float32"},
    {{.peak = {6 * MB}, .per_parameter = 2}, P, "a float32 copy"},
    {{.peak = {8 * MB}}, P, "the weights twice"},
    {{.peak = {1 * MB}, .ranks = 4}, P, "one of 4 parts: sharded over the run's 4 processes"},
    {{.peak = {1 * MB}}, P, "as much as 250k parameters of 4 bytes, or 500k of 2"},
    {{.peak = {5 * MB}}, P, "as much as 1.25M parameters of 4 bytes, or 2.5M of 2"},
    {{.peak = {5 * MB}, .blocks = 2000}, P, "the rounding of 2000 blocks to 512 bytes"},
    {{.peak = {0}}, P, "not explained: no block has this category"},
    {{.peak = {0}, .most = {4 * MB}, .later = true}, P, "none at the peak: up to 3.81 MiB were live later"},
    {{.peak = {4 * MB, 0}, .most = {4 * MB, 4 * MB}},
     G,
     "none at the peak: up to 3.81 MiB were live before, and freed"},
    {{.peak = {4 * MB, 1 * MB}, .most = {4 * MB, 4 * MB}, .later = true}, G, "not all at the peak"},
    {{.peak = {4 * MB, 3 * MB}, .most = {4 * MB, 4 * MB}, .later = true}, G, "not all at the peak: up to 3.81 MiB"},
    {{.peak = {4 * MB, 4 * MB, 6 * MB}, .most = {0, 0, 8 * MB}, .later = true},
     O,
     "not all at the peak: up to 7.63 MiB"},
    {{.peak = {4 * MB, 0}}, G, "none: no backward pass kept any"},
    {{.peak = {4 * MB, 0}, .failed = true}, G, "none: memory ran out before a backward pass kept any"},
    {{.peak = {2 * MB, 2 * MB}}, G, "as large as the parameters: one gradient per parameter"},
    {{.peak = {4 * MB, 1 * MB}}, G, "25 % of the parameters' bytes: the other parameters have none"},
    {{.peak = {4 * MB, 8 * MB}}, G, "twice the parameters' bytes"},
    {{.peak = {4 * MB, 8 * MB}, .buckets = 4 * MB},
     G,
     "DistributedDataParallel's buckets; with gradient_as_bucket_view"},
    {{.peak = {4 * MB, 6 * MB}}, G, "not explained"},
    {{.peak = {0, 6 * MB}}, G, "not explained"},
    {{.peak = {4 * MB, 4 * MB, 0}}, O, "none: no optimizer step created any"},
    {{.peak = {4 * MB, 4 * MB, 0}, .failed = true}, O, "none: memory ran out before the first optimizer step"},
    {{.peak = {4 * MB, 4 * MB, 0}, .failed = true, .stepped = true}, O, "kept nothing, as with SGD without momentum"},
    {{.peak = {4 * MB, 4 * MB, 0}, .most = {4 * MB, 4 * MB, 8 * MB}, .later = true},
     O,
     "up to 7.63 MiB were live later"},
    {{.peak = {4 * MB, 4 * MB, 4 * MB}}, O, "one state per parameter"},
    {{.peak = {4 * MB, 2 * MB, 4 * MB}}, O, "twice the gradients' bytes: two states per parameter"},
    {{.peak = {4 * MB, 4 * MB, 2031250}}, O, "two 8-bit states"},
    {{.peak = {4 * MB, 4 * MB, 12 * MB}}, O, "three states per parameter"},
    {{.peak = {2 * MB, 2 * MB, 12 * MB}, .per_parameter = 2}, O, "a float32 copy of 16-bit weights"},
    {{.peak = {4 * MB, 4 * MB, 8 * MB + MB / 4}, .blocks = 10}, O, "244.14 KiB more: blocks are up to 1 MiB larger"},
    {{.peak = {4 * MB, 4 * MB, 8 * MB + MB / 4}, .blocks = 2000}, O, "the rounding of 2000 blocks to 512 bytes"},
    {{.peak = {4 * MB, 4 * MB, 5 * MB}}, O, "not explained: 1.25 times the gradients' bytes"},
    {{.peak = {4 * MB, 0, 4 * MB}}, O, "not explained: 1 times the parameters' bytes"},
    {{.peak = {4 * MB, 4 * MB, 2 * MB}, .ranks = 4}, O, "one of 4 parts"},
    {{.peak = {2 * MB, 2 * MB, 4 * MB}, .most = {4 * MB, 3 * MB, 4 * MB}, .ranks = 2}, P, "one of 2 parts"},
    {{.peak = {2 * MB, 2 * MB, 4 * MB}, .most = {4 * MB, 3 * MB, 4 * MB}, .ranks = 2}, G, "one of 2 parts"},
    {{.peak = {2 * MB, 2 * MB, 4 * MB}, .most = {4 * MB, 3 * MB, 4 * MB}, .ranks = 2}, O, "one of 2 parts"},
    {{.peak = {4 * MB, 2 * MB, 4 * MB}, .ranks = 2}, G, "50 % of the parameters' bytes"},
    {{.peak = {4 * MB, 2 * MB, 4 * MB}, .ranks = 2}, O, "twice the gradients' bytes"},
    {{.peak = {[P] = 4 * MB, [T] = 5 * MB}, .in_step = 4 * MB, .in_step_blocks = 30}, T, "fused=True"},
    {{.peak = {[P] = 4 * MB, [T] = 5 * MB}, .in_step = 4 * MB, .in_step_blocks = 1},
     T,
     "of it in the optimizer's step"},
    {{.peak = {[P] = 4 * MB, [T] = 5 * MB}, .in_step = MB / 2, .in_step_blocks = 30},
     T,
     "not estimated: allocated and freed"},
    {{.peak = {4 * MB, 0}, .most = {4 * MB, 4 * MB}, .planned = true},
     G,
     "none at that moment, as expected; at most 3.81 MiB"},
    {{.peak = {4 * MB, 4 * MB}, .planned = true}, G, "zero_grad() before forward frees 3.81 MiB"},
    {{.peak = {[A] = 5 * MB}, .planned = true, .expected = 10e6},
     A,
     "0.5 times the expected: a smaller batch than stated"},
    {{.peak = {[A] = 5 * MB}, .planned = true, .expected = 2e6},
     A,
     "2.5 times the expected: a larger batch than stated"},
    {{.peak = {[A] = 5 * MB}, .planned = true, .expected = 10e6, .failed = true},
     A,
     "memory ran out before all of them existed"},
    {{.peak = {[A] = 0}, .planned = true, .expected = 10e6}, A, "none at that moment: a smaller"},
    {{.peak = {[A] = 5 * MB}}, A, "not estimated: what forward keeps"},
    {{.peak = {[A] = 5 * MB}, .casts = 2e6}, A, "autocast's 16-bit copies of the weights are up to 1.91 MiB"},
    {{.peak = {[RESULT_CATEGORY_UNKNOWN] = 5 * MB}}, RESULT_CATEGORY_UNKNOWN, "not explained: no rule covers it"},
};

static void test_each_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *says = why(&cases[i].figures, cases[i].category);
        if (cases[i].says ? !says || !strstr(says, cases[i].says) : says != NULL)
            fail_msg("case %zu: '%s', not '%s'", i, says ? says : "", cases[i].says ? cases[i].says : "");
    }
    arena_free(&arena);
}

#define TORCH "/usr/lib/python3/dist-packages/torch/"

static void block(struct syn *s, int at, int64_t bytes, int64_t stack, int end, int64_t free_stack)
{
    int64_t id = syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                                 .bytes = bytes,
                                                 .at = at * SYN_MS,
                                                 .life = end < 0 ? SYN_LIVE : (end - at) * SYN_MS,
                                                 .stack = stack});
    syn_sql(s, "UPDATE allocation_row SET free_stack_id = nullif(%lld,0) WHERE id = %lld", (long long)free_stack,
            (long long)id);
}

static const struct result_budget_row *row_of(const struct result_budget *b, enum result_category c)
{
    for (size_t i = 0; i < b->rows_n; i++)
        if (b->rows[i].category == c) return &b->rows[i];
    return NULL;
}

/* The peak is in forward, when the gradients of the previous step have been freed. */
static void test_rows_of_a_report(void **state)
{
    (void)state;
    struct syn s;
    struct run_estimate_bytes estimate = {4e6, 4e6, 8e6, 16e6, 1e6, 0};
    struct run_options options = {.all = true, .memory_map = true, .estimate = &estimate};
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t main_ = syn_python(&s, 0, "<module>", "/home/u/train.py", 9);
    int64_t moved = syn_python(&s, main_, "Module._apply", TORCH "nn/modules/module.py", 3);
    int64_t forward = syn_python(&s, main_, "Module._call_impl", TORCH "nn/modules/module.py", 7);
    int64_t backward = syn_python(&s, main_, "Tensor.backward", TORCH "_tensor.py", 6);
    int64_t zero = syn_python(&s, main_, "Optimizer.zero_grad", TORCH "optim/optimizer.py", 2);
    int64_t step = syn_python(&s, main_, "Adam.step", TORCH "optim/adam.py", 4);
    block(&s, 10, 4 * MB, moved, -1, 0);
    block(&s, 20, 4 * MB, backward, 40, zero);
    block(&s, 30, 8 * MB, step, -1, 0);
    block(&s, 50, 20 * MB, forward, 60, backward);
    block(&s, 70, 4 * MB, backward, 80, zero);
    block(&s, 90, MB, main_, 95, main_);
    struct result_report *r = syn_report(&s, &options);
    const struct result_budget *b = &r->budget;
    assert_true(b->present);
    assert_int_equal(b->measured_bytes, 32 * MB);
    assert_int_equal(b->parameter_bytes, 4 * MB);
    assert_int_equal(b->rows_n, 4);
    assert_int_equal(row_of(b, P)->peak_bytes, 4 * MB);
    assert_null(row_of(b, P)->why);
    assert_int_equal(row_of(b, O)->most_bytes, 8 * MB);
    assert_null(row_of(b, O)->why);
    assert_int_equal(row_of(b, G)->peak_bytes, 0);
    assert_int_equal(row_of(b, G)->most_bytes, 4 * MB);
    assert_true(row_of(b, G)->difference_bytes == -4e6);
    assert_non_null(strstr(row_of(b, G)->why, "none at the peak: up to 3.81 MiB were live before"));
    assert_int_equal(row_of(b, A)->peak_bytes, 20 * MB);
    assert_true(isnan(row_of(b, A)->difference_bytes));
    int64_t sum = 0;
    for (size_t i = 0; i < b->rows_n; i++) sum += b->rows[i].peak_bytes;
    assert_int_equal(sum, b->measured_bytes);
    syn_close(r);
    syn_end(&s);
}

/* Without call paths no category is recognised, and none is reported as missing. */
static void test_nothing_recognised(void **state)
{
    (void)state;
    struct syn s;
    struct run_estimate_bytes estimate = {4e6, 4e6, 8e6, 16e6, 1e6, 0};
    struct run_options options = {.all = true, .memory_map = true, .estimate = &estimate};
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    block(&s, 10, 4 * MB, 0, -1, 0);
    struct result_report *r = syn_report(&s, &options);
    assert_int_equal(r->budget.rows_n, 0);
    assert_int_equal(r->budget.measured_bytes, 4 * MB);
    assert_int_equal(r->budget.parameter_bytes, 0);
    syn_close(r);
    syn_end(&s);
}

/* A rank on its own GPU: weights to move there, and so many MB of states. */
static void rank(struct syn *s, int number, int64_t states)
{
    char name[32];
    snprintf(name, sizeof name, number ? "run.%d.db" : "run.db", number);
    if (number) syn_open(s, name);
    syn_process(s, "r", 100 + number, SYN_S, 1);
    syn_sql(s, "UPDATE process SET rank = %d", number);
    int64_t main_ = syn_python(s, 0, "<module>", "/home/u/train.py", 9);
    int64_t moved = syn_python(s, main_, "Module._apply", TORCH "nn/modules/module.py", 3);
    int64_t step = syn_python(s, main_, "Adam.step", TORCH "optim/adam.py", 4);
    syn_alloc(s, (struct syn_alloc){.device = number, .bytes = 100 * MB, .at = 1, .life = SYN_LIVE, .stack = main_});
    syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                    .device = number,
                                    .bytes = 2 * MB,
                                    .at = 10 * SYN_MS,
                                    .life = SYN_LIVE,
                                    .stack = moved});
    syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                    .device = number,
                                    .bytes = states * MB,
                                    .at = 30 * SYN_MS,
                                    .life = SYN_LIVE,
                                    .stack = step});
    char first[sizeof s->path];
    snprintf(first, sizeof first, "%s/run.db", s->folder);
    syn_done(s);
    memcpy(s->path, first, sizeof first);
}

/* Each rank is compared with the need of one GPU; the fullest one represents all. */
static void test_each_rank(void **state)
{
    (void)state;
    struct syn s;
    struct run_estimate_bytes estimate = {2e6, 2e6, 4e6, 8e6, 1e6, 0};
    struct run_options options = {.all = true, .memory_map = true, .estimate = &estimate, .plan_gpus = 3};
    syn_start(&s);
    for (int i = 0; i < 3; i++) rank(&s, i, i == 1 ? 8 : 4);
    struct result_report *r = syn_report(&s, &options);
    const struct result_budget *b = &r->budget;
    assert_int_equal(b->gpus, 3);
    assert_int_equal(b->rank->rank, 1);
    assert_int_equal(b->ranks_n, 3);
    for (int i = 0; i < 3; i++) {
        const struct result_budget *k = &b->ranks[i];
        assert_int_equal(k->rank->rank, i);
        assert_int_equal(k->device, i);
        assert_int_equal(k->measured_bytes, (i == 1 ? 10 : 6) * MB);
        assert_int_equal(row_of(k, P)->inside, 1);
        assert_int_equal(row_of(k, O)->inside, i != 1);
        assert_true((row_of(k, O)->why != NULL) == (i == 1));
    }
    syn_close(r);
    options.plan_gpus = 0; /* an estimate of one GPU: ranks are not compared */
    r = syn_report(&s, &options);
    assert_int_equal(r->budget.gpus, 1);
    assert_int_equal(r->budget.ranks_n, 0);
    syn_close(r);
    syn_end(&s);
}

CASES(test_each_sentence, test_rows_of_a_report, test_nothing_recognised, test_each_rank)
