/* Categories of tensors: each rule on rows made by hand, tensors freed after the end, and the sums. */
#include "tests/cases.h"
#include "analyzer/category/category.h"
#include "tests/unit/synthetic.h"

#define TORCH "/usr/lib/python3/dist-packages/torch/"

struct program { /* call paths of a training script */
    int64_t main, moved, built, forward, backward, zero, step, state, own, loader, before, attached, object, load;
};

static struct program make(struct syn *s)
{
    struct program p = {.main = syn_python(s, 0, "<module>", "/home/u/train.py", 9)};
    p.moved = syn_python(s, p.main, "Module._apply", TORCH "nn/modules/module.py", 3);
    p.built = syn_python(s, p.main, "Linear.__init__", TORCH "nn/modules/linear.py", 3);
    p.forward = syn_python(s, p.main, "Module._call_impl", TORCH "nn/modules/module.py", 7);
    p.forward = syn_python(s, p.forward, "Net.forward", "/home/u/net.py", 7);
    p.backward = syn_python(s, p.main, "Tensor.backward", TORCH "_tensor.py", 6);
    p.zero = syn_python(s, p.main, "Optimizer.zero_grad", TORCH "optim/optimizer.py", 2);
    p.step = syn_python(s, p.main, "Adam.step", TORCH "optim/adam.py", 4);
    p.state = syn_python(s, p.step, "Adam._init_group", TORCH "optim/adam.py", 5);
    p.own = syn_python(s, p.main, "Net.__init__", "/home/u/net.py", 3);
    p.loader = syn_python(s, p.main, "_MultiProcessingDataLoaderIter._next_data", TORCH "utils/data/dataloader.py", 5);
    p.before = syn_python(s, 0, "(allocated before the recording)", NULL, 0);
    p.attached = syn_python(s, 0, "(allocated before gpuspy attached)", NULL, 0);
    p.object = syn_python(s, p.main, "ReplayBuffer.__init__", "/home/u/net.py", 33);
    p.load = syn_python(s, p.main, "load", TORCH "serialization.py", 3);
    return p;
}

/* A tensor of `bytes` made at `at` ms; freed at `end` ms from `free_stack` (0: no stack), or never. */
static void block(struct syn *s, int at, int64_t bytes, int64_t stack, int end, int64_t free_stack)
{
    int64_t life = end < 0 ? SYN_LIVE : (end - at) * SYN_MS;
    int64_t id = syn_alloc(
        s,
        (struct syn_alloc){.layer = GS_LAYER_TENSOR, .bytes = bytes, .at = at * SYN_MS, .life = life, .stack = stack});
    syn_sql(s, "UPDATE allocation_row SET free_stack_id = nullif(%lld,0) WHERE id = %lld", (long long)free_stack,
            (long long)id);
}

static const struct result_category_share *share_of(const struct result_peak *p, const char *evidence)
{
    for (size_t i = 0; i < p->by_category.shares_n; i++)
        if (strcmp(p->by_category.shares[i].evidence, evidence) == 0) return &p->by_category.shares[i];
    return NULL;
}

static void test_each_rule(void **state)
{
    (void)state;
    enum { FREED = 500, AUTOGRAD = 0 };
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    struct program p = make(&s);
    const struct {
        int64_t stack;
        int end;
        int64_t free_stack;
        enum result_category category;
        const char *evidence;
    } cases[] = {
        {p.step, FREED, p.step, RESULT_CATEGORY_OPTIMIZER_STATE,
         "allocated in the optimizer's step and used until a later one replaced it"},
        {p.state, -1, 0, RESULT_CATEGORY_OPTIMIZER_STATE, "allocated where the optimizer sets up its state"},
        {p.step, -1, 0, RESULT_CATEGORY_OPTIMIZER_STATE, "allocated in the optimizer and not freed there"},
        {p.moved, FREED, p.moved, RESULT_CATEGORY_PARAMETERS,
         "allocated while a module was moved or loaded, and used until a later move"},
        {p.main, FREED, p.moved, RESULT_CATEGORY_PARAMETERS,
         "held by a module over several passes, freed when the module was moved or loaded"},
        {p.load, FREED, p.moved, RESULT_CATEGORY_PARAMETERS,
         "held by a module, freed when the module was moved or loaded"},
        {p.moved, -1, 0, RESULT_CATEGORY_PARAMETERS, "allocated while a module was moved or loaded"},
        {p.built, FREED, p.built, RESULT_CATEGORY_TEMPORARIES, "allocated and freed while a module was built"},
        {p.built, FREED, p.moved, RESULT_CATEGORY_PARAMETERS, "allocated while a module was built"},
        {p.backward, FREED, p.zero, RESULT_CATEGORY_GRADIENTS, "allocated in backward(), freed by zero_grad"},
        {p.backward, FREED, p.backward, RESULT_CATEGORY_TEMPORARIES, "allocated and freed in backward()"},
        {p.backward, -1, 0, RESULT_CATEGORY_GRADIENTS, "allocated in backward() and not freed in it"},
        {p.forward, FREED, AUTOGRAD, RESULT_CATEGORY_ACTIVATIONS, "allocated in forward(), freed in backward()"},
        {p.forward, FREED, p.forward, RESULT_CATEGORY_TEMPORARIES, "allocated and freed in forward()"},
        {p.forward, FREED, p.main, RESULT_CATEGORY_ACTIVATIONS, "allocated in forward() and not freed in it"},
        {p.loader, FREED, p.main, RESULT_CATEGORY_INPUTS, "allocated by the data loader"},
        {0, FREED, p.zero, RESULT_CATEGORY_GRADIENTS, "allocated on a thread without Python, freed by zero_grad"},
        {0, FREED, AUTOGRAD, RESULT_CATEGORY_TEMPORARIES, "allocated and freed on a thread without Python"},
        {0, -1, 0, RESULT_CATEGORY_GRADIENTS, "allocated on a thread without Python and kept"},
        {p.main, FREED, AUTOGRAD, RESULT_CATEGORY_ACTIVATIONS, "allocated outside of modules, freed in backward()"},
        {p.own, -1, 0, RESULT_CATEGORY_PARAMETERS, "allocated while a module of the program's own was built"},
        {p.own, FREED, p.own, RESULT_CATEGORY_TEMPORARIES,
         "allocated and freed while a module of the program's own was built"},
        {p.object, -1, 0, RESULT_CATEGORY_UNKNOWN, "allocated while an object was built, kept to the end"},
        {p.main, -1, 0, RESULT_CATEGORY_UNKNOWN, "allocated outside of modules, kept to the end"},
        {p.before, -1, 0, RESULT_CATEGORY_UNKNOWN, "the call path that allocated it was not recorded"},
        {p.attached, FREED, AUTOGRAD, RESULT_CATEGORY_ACTIVATIONS,
         "freed in backward(); the call path that allocated it was not recorded"},
        {p.load, FREED, p.main, RESULT_CATEGORY_UNKNOWN, "loaded from a file"},
        {p.main, FREED, p.zero, RESULT_CATEGORY_GRADIENTS, "freed by zero_grad"},
        {p.main, FREED, p.step, RESULT_CATEGORY_OPTIMIZER_STATE, "freed when the optimizer replaced its state"},
        {p.main, FREED, p.main, RESULT_CATEGORY_UNKNOWN, "no rule covers it"},
    };
    size_t n = sizeof cases / sizeof *cases;
    int64_t all = 0, by_category[RESULT_CATEGORIES_N] = {0};
    for (size_t i = 0; i < n; i++) {
        block(&s, (int)i + 1, (int64_t)1 << (20 + i), cases[i].stack, cases[i].end, cases[i].free_stack);
        all += (int64_t)1 << (20 + i);
        by_category[cases[i].category] += (int64_t)1 << (20 + i);
    }
    block(&s, 900, 1, p.main, 901, p.main); /* the last allocation is long after */
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *peak = syn_peak(r, RUN_SERIES_TENSOR);
    assert_int_equal(peak->bytes, all);
    for (size_t i = 0; i < n; i++) {
        const struct result_category_share *share = share_of(peak, cases[i].evidence);
        if (!share) fail_msg("no category has this evidence: %s", cases[i].evidence);
        assert_int_equal(share->bytes, (int64_t)1 << (20 + i));
        assert_int_equal(share->category, cases[i].category);
    }
    for (unsigned c = 0; c < RESULT_CATEGORIES_N; c++) assert_int_equal(peak->by_category.bytes[c], by_category[c]);
    syn_close(r);
    syn_end(&s);
}

/* What lasts over a pass is state that a later step replaces. */
static void test_what_an_optimizer_frees(void **state)
{
    (void)state;
    for (int passes = 0; passes < 2; passes++) {
        struct syn s;
        syn_start(&s);
        syn_process(&s, "r", 1, SYN_S, 1);
        struct program p = make(&s);
        block(&s, 1, 8 << 20, p.step, 40, p.step);
        if (passes) block(&s, 10, 1 << 20, p.forward, 20, p.backward);
        block(&s, 900, 1, p.main, 901, p.main);
        struct result_report *r = syn_report(&s, NULL);
        const struct result_category_share *share =
            share_of(syn_peak(r, RUN_SERIES_TENSOR), passes ? "allocated in the optimizer's step and used until a "
                                                              "later one replaced it"
                                                            : "allocated and freed in the optimizer's step");
        assert_non_null(share);
        assert_int_equal(share->bytes, 8 << 20);
        syn_close(r);
        syn_end(&s);
    }
}

/* Moved and converted: the memory that the conversion frees was never used, unless a pass ran before. */
static void test_a_move_is_judged_by_the_passes_since_the_previous_one(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    struct program p = make(&s);
    block(&s, 1, 64, p.moved, 3, p.moved);
    block(&s, 1, 128, p.main, 3, p.moved);
    block(&s, 2, 4096, p.moved, 40, p.moved);
    block(&s, 10, 16, p.forward, 20, p.forward);
    block(&s, 30, 1024, p.moved, 31, p.moved);
    block(&s, 30, 2048, p.moved, -1, 0);
    block(&s, 900, 1, p.main, 901, p.main);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *peak = syn_peak(r, RUN_SERIES_TENSOR);
    assert_int_equal(peak->bytes, 4096 + 1024 + 2048);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_TEMPORARIES], 1024);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_PARAMETERS], 4096 + 2048);
    syn_close(r);
    syn_end(&s);
}

/* After the last allocation: memory that backward's thread frees before backward returns was temporary; memory that the
 * shutdown frees had been kept. */
static void test_the_end_of_the_last_backward_is_not_the_tear_down(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    struct program p = make(&s);
    block(&s, 1, 64, p.backward, 20, p.backward);
    block(&s, 2, 128, p.backward, 15, 0);
    block(&s, 3, 256, p.backward, 500, 0);
    block(&s, 4, 512, p.own, 600, p.main); /* at the end of the module: the script's last line */
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *peak = syn_peak(r, RUN_SERIES_TENSOR);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_TEMPORARIES], 64 + 128);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_GRADIENTS], 256);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_PARAMETERS], 512);
    syn_close(r);
    syn_end(&s);
}

/* The innermost one counts: a forward pass that is repeated inside backward is a forward pass. */
static void test_forward_inside_backward(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    struct program p = make(&s);
    int64_t again = syn_python(&s, p.backward, "Module._call_impl", TORCH "nn/modules/module.py", 7);
    block(&s, 1, 64, again, 5, p.backward);
    block(&s, 9, 1, p.main, 10, p.main);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *peak = syn_peak(r, RUN_SERIES_TENSOR);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_ACTIVATIONS], 64);
    assert_int_equal(peak->by_stack[0].category, RESULT_CATEGORY_ACTIVATIONS);
    syn_close(r);
    syn_end(&s);
}

/* What an optimizer's step() calls back is the program's code; a step() of the program's own is the optimizer's. */
static void test_a_closure_is_no_optimizer(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    struct program p = make(&s);
    int64_t called = syn_python(&s, p.step, "decorate_context", TORCH "utils/_contextlib.py", 8);
    int64_t closure = syn_python(&s, called, "closure", "/home/u/torch/train.py", 5);
    int64_t wrapper = syn_python(&s, p.main, "Optimizer.profile_hook_step.wrapper", TORCH "optim/optimizer.py", 5);
    int64_t own = syn_python(&s, wrapper, "Lion.step", "/home/u/lion.py", 5);
    int64_t helper = syn_python(&s, p.step, "typename", TORCH "__init__.py", 5);
    block(&s, 1, 64, closure, -1, 0);
    block(&s, 2, 256, own, -1, 0);
    block(&s, 3, 1024, helper, -1, 0);
    block(&s, 9, 1, p.main, 10, p.main);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *peak = syn_peak(r, RUN_SERIES_TENSOR);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_UNKNOWN], 64 + 1);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_OPTIMIZER_STATE], 256 + 1024);
    syn_close(r);
    syn_end(&s);
}

static void test_what_was_live_at_a_failure(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    syn_device(&s, 0, SYN_GIB, SYN_GIB);
    struct program p = make(&s);
    block(&s, 1, 64, p.moved, -1, 0);
    block(&s, 2, 4096, p.forward, 3, p.forward); /* at the peak; freed before the failure */
    block(&s, 4, 32, p.forward, 30, p.main);
    for (int at = 5; at < 8; at++)
        block(&s, at, 16, p.main, at + 1, p.main); /* block 4 outlives the previous one by these */
    syn_oom(&s, (struct syn_oom){.layer = GS_LAYER_TENSOR,
                                 .fatal = 1,
                                 .requested = SYN_GIB,
                                 .free = 1,
                                 .total = SYN_GIB,
                                 .at = 10 * SYN_MS,
                                 .stack = p.forward});
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->ooms_n, 1);
    assert_int_equal(r->ooms[0].by_category.bytes[RESULT_CATEGORY_PARAMETERS], 64);
    assert_int_equal(r->ooms[0].by_category.bytes[RESULT_CATEGORY_ACTIVATIONS], 32);
    assert_int_equal(r->ooms[0].by_category.bytes[RESULT_CATEGORY_TEMPORARIES], 0);
    syn_close(r);
    syn_end(&s);
}

static void failure(struct syn *s, int at, int64_t stack)
{
    syn_device(s, 0, SYN_GIB, SYN_GIB);
    syn_oom(s, (struct syn_oom){.layer = GS_LAYER_TENSOR,
                                .fatal = 1,
                                .requested = SYN_GIB,
                                .free = 1,
                                .total = SYN_GIB,
                                .at = at * SYN_MS,
                                .stack = stack});
}

static int64_t at_failure(const struct result_report *r, enum result_category category)
{
    assert_int_equal(r->ooms_n, 1);
    return r->ooms[0].by_category.bytes[category];
}

/* The first pass, so no earlier one shows when its blocks would be freed: they are gradients if there are as many as
 * parameters of that size. PyTorch's large blocks may be a little larger than requested. */
static void test_a_first_backward_that_failed(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    struct program p = make(&s);
    block(&s, 1, 4096, p.moved, -1, 0);
    block(&s, 2, 4096, p.moved, 700, 0);
    block(&s, 3, 40 * SYN_MIB, p.moved, 700, 0);
    block(&s, 4, 100, p.forward, 600, p.main); /* freed while the exception propagated */
    for (int i = 0; i < 3; i++) block(&s, 5 + i, 4096, p.backward, 500, 0);
    block(&s, 8, 40 * SYN_MIB + 600000, p.backward, 500, 0);
    block(&s, 9, 5 * SYN_MIB, p.backward, 500, 0);
    failure(&s, 10, p.backward);
    block(&s, 400, 1, p.main, 401, p.main); /* the exception's handler also allocates */
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(at_failure(r, RESULT_CATEGORY_PARAMETERS), 2 * 4096 + 40 * SYN_MIB);
    assert_int_equal(at_failure(r, RESULT_CATEGORY_GRADIENTS), 2 * 4096 + 40 * SYN_MIB + 600000);
    assert_int_equal(at_failure(r, RESULT_CATEGORY_TEMPORARIES), 4096 + 5 * SYN_MIB);
    assert_int_equal(at_failure(r, RESULT_CATEGORY_ACTIVATIONS), 100);
    syn_close(r);
    syn_end(&s);
}

/* Later passes: the same category as earlier blocks of that call path, unless the block has outlived all of them. A
 * pause of the machine does not count as outliving. */
static void test_a_later_backward_that_failed(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    struct program p = make(&s);
    int64_t other = syn_python(&s, p.backward, "inner", "/home/u/ops.py", 3);
    block(&s, 1, 4096, other, -1, 0); /* kept since the first pass */
    for (int at = 10; at < 100; at += 20) {
        block(&s, at, 4096, p.backward, at + 10, p.zero);
        block(&s, at + 1, 4096, other, at + 2, 0);
    }
    block(&s, 110, 4096, p.backward, 500, 0);
    block(&s, 111, 4096, other, 500, 0);
    block(&s, 112, 64, p.backward, 500, 0); /* of another size: only its call path shows it */
    failure(&s, 300, p.forward);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(at_failure(r, RESULT_CATEGORY_GRADIENTS), 4096 + 4096 + 64);
    assert_int_equal(at_failure(r, RESULT_CATEGORY_TEMPORARIES), 4096);
    bool found = false;
    for (size_t i = 0; i < r->ooms[0].by_category.shares_n; i++) {
        found = found || strcmp(r->ooms[0].by_category.shares[i].evidence,
                                "as earlier ones of its call path: allocated in backward(), freed by zero_grad") == 0;
    }
    assert_true(found);
    syn_close(r);
    syn_end(&s);
}

static void test_an_optimizer_step_that_failed(void **state)
{
    (void)state;
    for (int sets_up = 0; sets_up < 2; sets_up++) { /* if no setup of states was observed, it may be a state */
        struct syn s;
        syn_start(&s);
        syn_process(&s, "r", 1, SYN_S, 1);
        struct program p = make(&s);
        block(&s, 1, 64, sets_up ? p.state : p.moved, 500, 0);
        block(&s, 2, 128, p.step, 500, 0);
        failure(&s, 3, p.step);
        struct result_report *r = syn_report(&s, NULL);
        assert_int_equal(at_failure(r, RESULT_CATEGORY_TEMPORARIES), sets_up ? 128 : 0);
        assert_int_equal(at_failure(r, RESULT_CATEGORY_OPTIMIZER_STATE), sets_up ? 64 : 128);
        syn_close(r);
        syn_end(&s);
    }
}

/* A failure that the program handled is no evidence for later allocations. */
static void test_a_failure_that_was_no_end(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 60 * SYN_S, 1);
    struct program p = make(&s);
    failure(&s, 1, p.backward);
    block(&s, 5000, 4096, p.backward, -1, 0);
    block(&s, 50000, 1, p.main, 50001, p.main);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *peak = syn_peak(r, RUN_SERIES_TENSOR);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_GRADIENTS], 4096);
    syn_close(r);
    syn_end(&s);
}

/* Weights outside of modules: as many as there are optimizer states, two for each weight. */
static void test_weights_that_no_module_holds(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    struct program p = make(&s);
    int64_t second = syn_python(&s, p.step, "Adam._init_group", TORCH "optim/adam.py", 6);
    for (int i = 0; i < 4; i++) /* two of them are something else */
        block(&s, 1 + i, 4096, p.main, -1, 0);
    block(&s, 5, 512, p.load, -1, 0);
    block(&s, 6, 256, p.object, -1, 0);
    for (int i = 0; i < 2; i++) {
        block(&s, 10 + i, 4096, p.state, -1, 0);
        block(&s, 20 + i, 4096, second, -1, 0);
    }
    block(&s, 30, 512, p.backward, 40, p.zero);
    block(&s, 900, 1, p.main, 901, p.main);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *peak = syn_peak(r, RUN_SERIES_TENSOR);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_PARAMETERS], 2 * 4096 + 512);
    assert_int_equal(peak->by_category.bytes[RESULT_CATEGORY_UNKNOWN], 2 * 4096 + 256);
    syn_close(r);
    syn_end(&s);
}

/* Outputs in a list: an activation does not live longer than two steps. */
static void test_kept_from_forward_for_several_steps(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 2 * SYN_S, 1);
    struct program p = make(&s);
    for (int at = 100; at < 1100; at += 100) {
        block(&s, at, 4096, p.forward, at + 30, p.backward);
        block(&s, at + 1, 64, p.forward, -1, 0);
        block(&s, at + 20, 16, p.backward, at + 30, p.backward);
        block(&s, at + 40, 16, p.step, at + 41, p.step);
    }
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *peak = syn_peak(r, RUN_SERIES_TENSOR);
    const struct result_category_share *kept = share_of(peak, "allocated in forward() and kept for several steps");
    assert_non_null(kept);
    assert_true(category_outlives_steps(kept->rule));
    assert_int_equal(kept->count, 8); /* all except those of this step and the previous one */
    const struct result_category_share *rest = share_of(peak, "allocated in forward() and not freed in it");
    assert_int_equal(rest->count, 2);
    syn_close(r);
    syn_end(&s);
}

/* Without Python stacks no category is inferred, and CUDA allocations are not tensors. */
static void test_nothing_known_is_unknown(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    block(&s, 1, 64, 0, -1, 0);
    syn_alloc(&s, (struct syn_alloc){.bytes = 100, .at = 5 * SYN_MS, .life = SYN_LIVE});
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(syn_peak(r, RUN_SERIES_TENSOR)->by_category.bytes[RESULT_CATEGORY_UNKNOWN], 64);
    assert_int_equal(syn_peak(r, RUN_SERIES_DEVICE)->by_category.bytes[RESULT_CATEGORY_UNKNOWN], 100);
    syn_close(r);
    syn_end(&s);
}

CASES(test_each_rule, test_what_an_optimizer_frees, test_a_move_is_judged_by_the_passes_since_the_previous_one,
      test_the_end_of_the_last_backward_is_not_the_tear_down, test_forward_inside_backward,
      test_a_closure_is_no_optimizer, test_what_was_live_at_a_failure, test_a_first_backward_that_failed,
      test_a_later_backward_that_failed, test_an_optimizer_step_that_failed, test_a_failure_that_was_no_end,
      test_weights_that_no_module_holds, test_kept_from_forward_for_several_steps, test_nothing_known_is_unknown)
