/* Attribution of autograd's threads to the caller of backward(), and the cases in which it is unknown. */
#include "tests/cases.h"
#include "tests/unit/synthetic.h"
#include "analyzer/site/site.h"

#define TORCH "/usr/lib/python3/dist-packages/torch/"
#define LIBTORCH "/usr/lib/python3/dist-packages/torch/lib/libtorch_cpu.so"
enum { MAIN = 2, OTHER = 3, AUTOGRAD = 4 };

struct calls { /* two lines of a script that call backward(), and one that creates the gradient of the loss */
    int64_t main, line[2], ones[2];
};

static struct calls start(struct syn *s)
{
    struct calls c;
    syn_start(s);
    syn_process(s, "r", 1, SYN_S, 1);
    syn_device(s, 0, SYN_GIB, SYN_GIB);
    syn_sql(s, "INSERT INTO thread VALUES(2,1,7,'python'),(3,1,8,'python'),(4,1,9,'pt_autograd_0')");
    c.main = syn_python(s, 0, "<module>", "/home/u/train.py", 9);
    for (int i = 0; i < 2; i++) {
        c.line[i] = syn_python(s, c.main, "step", "/home/u/train.py", 30 + i);
        int64_t at = syn_python(s, c.line[i], "Tensor.backward", TORCH "_tensor.py", 6);
        at = syn_python(s, at, "backward", TORCH "autograd/__init__.py", 3);
        c.ones[i] = syn_python(s, at, "_make_grads", TORCH "autograd/__init__.py", 2);
    }
    return c;
}

/* From `at` to `end` ms; -1: never freed. */
static void block(struct syn *s, int thread, int at, int end, int64_t bytes, int64_t stack)
{
    syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                    .thread = thread,
                                    .bytes = bytes,
                                    .at = at * SYN_MS,
                                    .life = end < 0 ? SYN_LIVE : (end - at) * SYN_MS,
                                    .stack = stack});
}

/* The place of the only stack with that many bytes live at the peak. */
static const struct result_by_stack *of_bytes(const struct result_report *r, int64_t bytes)
{
    const struct result_peak *p = syn_peak(r, RUN_SERIES_TENSOR);
    for (size_t i = 0; i < p->by_stack_n; i++)
        if (p->by_stack[i].bytes == bytes) return &p->by_stack[i];
    fail_msg("no stack holds %lld bytes", (long long)bytes);
    return NULL;
}

static void test_while_the_gradient_of_the_loss_lives(void **state)
{
    (void)state;
    struct syn s;
    struct calls c = start(&s);
    block(&s, AUTOGRAD, 1, -1, 1, 0);
    block(&s, MAIN, 2, 10, 512, c.ones[0]);
    block(&s, AUTOGRAD, 3, -1, 64, 0);
    block(&s, MAIN, 12, 20, 512, c.ones[1]);
    block(&s, AUTOGRAD, 13, -1, 128, 0);
    block(&s, AUTOGRAD, 14, -1, 128, 0);
    block(&s, OTHER, 15, -1, 32, 0);    /* the kind of that thread is unknown */
    block(&s, AUTOGRAD, 25, -1, 15, 0); /* no backward pass is running */
    block(&s, MAIN, 30, 40, 4096, c.main);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(of_bytes(r, 64)->stack.site.line, 30);
    assert_string_equal(run_stack_frame(r->run, of_bytes(r, 64)->stack.number)->function, "backward");
    assert_int_equal(of_bytes(r, 64)->category, RESULT_CATEGORY_GRADIENTS);
    assert_int_equal(of_bytes(r, 256)->stack.site.line, 31);
    assert_int_equal(of_bytes(r, 256)->count, 2);
    assert_false(of_bytes(r, 48)->stack.site.known); /* 1 + 32 + 15 */
    assert_int_equal(syn_peak(r, RUN_SERIES_TENSOR)->bytes, 64 + 256 + 48 + 4096);
    syn_close(r);
    syn_end(&s);
}

static void test_two_threads_in_backward_at_once(void **state)
{
    (void)state;
    struct syn s;
    struct calls c = start(&s);
    block(&s, MAIN, 2, 20, 512, c.ones[0]);
    block(&s, AUTOGRAD, 3, -1, 64, 0);
    block(&s, OTHER, 5, 10, 512, c.ones[1]);
    block(&s, AUTOGRAD, 6, -1, 128, 0); /* ambiguous between the two */
    block(&s, AUTOGRAD, 12, -1, 8, 0);
    block(&s, OTHER, 30, 35, 512, c.ones[1]);
    block(&s, AUTOGRAD, 31, -1, 256, 0);
    block(&s, MAIN, 40, 41, 4096, c.main);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(of_bytes(r, 64)->stack.site.line, 30);
    assert_false(of_bytes(r, 128 + 8)->stack.site.known);
    assert_int_equal(of_bytes(r, 256)->stack.site.line, 31);
    syn_close(r);
    syn_end(&s);
}

/* The traceback keeps the gradient live; the thread continues elsewhere. */
static void test_after_an_exception(void **state)
{
    (void)state;
    struct syn s;
    struct calls c = start(&s);
    block(&s, MAIN, 2, 500, 512, c.ones[0]);
    block(&s, AUTOGRAD, 3, -1, 64, 0);
    block(&s, OTHER, 4, -1, 2048, c.main); /* an allocation of another thread is no evidence */
    block(&s, AUTOGRAD, 5, -1, 64, 0);
    block(&s, MAIN, 10, -1, 2048, c.main);
    block(&s, AUTOGRAD, 12, -1, 7, 0);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(of_bytes(r, 128)->stack.site.line, 30);
    assert_false(of_bytes(r, 7)->stack.site.known);
    syn_close(r);
    syn_end(&s);
}

/* The loss consists of several tensors, so there are several gradients; the first may be freed before backward ends.
 * Allocations inside backward by its own thread do not end it. */
static void test_several_outputs(void **state)
{
    (void)state;
    struct syn s;
    struct calls c = start(&s);
    int64_t mode = syn_python(&s, c.ones[0], "DeviceContext.__torch_function__", TORCH "utils/_device.py", 7);
    block(&s, MAIN, 2, 4, 512, mode);
    block(&s, MAIN, 3, 20, 512, mode);
    block(&s, AUTOGRAD, 6, -1, 64, 0);
    int64_t hook = syn_python(&s, c.ones[0] - 1, "hook", "/home/u/train.py", 5);
    block(&s, MAIN, 8, 9, 512, hook);
    block(&s, AUTOGRAD, 10, -1, 64, 0);
    block(&s, MAIN, 40, 41, 4096, c.main);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(of_bytes(r, 128)->stack.site.line, 30);
    syn_close(r);
    syn_end(&s);
}

static bool symbol(void *data, const char *module, const char *build_id, uint64_t offset, const char **function,
                   const char **file, int *line)
{
    static const char *const names[] = {"c10::cuda::malloc()",
                                        "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)",
                                        "torch::autograd::CppNode<a::B<c::D>>::apply(std::vector<at::Tensor>&&)",
                                        "torch::autograd::Engine::thread_init(int)"};
    (void)data, (void)module, (void)build_id, (void)file, (void)line;
    *function = offset < 4 ? names[offset] : NULL;
    return offset < 4;
}

/* Native frames name the operation, and identify autograd's threads even if no name does. */
static void test_the_operation(void **state)
{
    (void)state;
    struct syn s;
    struct calls c = start(&s);
    int64_t engine = syn_native(&s, 0, LIBTORCH, 3);
    int64_t addmm = syn_native(&s, syn_native(&s, engine, LIBTORCH, 1), LIBTORCH, 0);
    int64_t own = syn_native(&s, syn_native(&s, engine, LIBTORCH, 2), LIBTORCH, 0);
    int64_t strange = syn_native(&s, 0, LIBTORCH, 0);
    block(&s, MAIN, 2, 20, 512, c.ones[0]);
    block(&s, OTHER, 3, -1, 64, addmm);
    block(&s, OTHER, 4, -1, 128, own);
    block(&s, OTHER, 5, -1, 8, strange);
    block(&s, OTHER, 6, -1, 32, syn_native(&s, engine, LIBTORCH, 0));
    block(&s, MAIN, 30, 31, 4096, c.main);
    static const struct run_options options = {.all = true, .symbol = symbol};
    struct result_report *r = syn_report(&s, &options);
    const struct result_site *site = &of_bytes(r, 64)->stack.site;
    assert_int_equal(site->line, 30);
    assert_string_equal(site->operation, "AddmmBackward0");
    assert_int_equal(run_stack_depth(r->run, of_bytes(r, 64)->stack.number), 7);
    assert_string_equal(of_bytes(r, 128)->stack.site.operation, "CppNode<a::B<c::D>>");
    assert_string_equal(of_bytes(r, 32)->stack.site.operation, "Engine");
    assert_int_equal(of_bytes(r, 8)->stack.site.kind, GS_FRAME_NATIVE);
    char text[256];
    assert_string_equal(site_text(site, text, sizeof text), "train.py:30 backward (AddmmBackward0)");
    syn_close(r);
    syn_end(&s);
}

/* A Function's own backward runs Python on autograd's thread: its line is kept, with its caller. */
static void test_python_on_autograds_thread(void **state)
{
    (void)state;
    struct syn s;
    struct calls c = start(&s);
    int64_t own = syn_python(&s, 0, "BackwardCFunction.apply", TORCH "autograd/function.py", 3);
    own = syn_python(&s, own, "Twice.backward", "/home/u/ops.py", 77);
    int64_t inner = syn_python(&s, own, "grad", TORCH "autograd/__init__.py", 4);
    inner = syn_python(&s, inner, "_make_grads", TORCH "autograd/__init__.py", 2);
    block(&s, MAIN, 2, 20, 512, c.ones[0]);
    block(&s, AUTOGRAD, 3, -1, 64, own);
    block(&s, AUTOGRAD, 4, 9, 512, inner); /* backward within backward: the outer one's line */
    block(&s, AUTOGRAD, 5, -1, 128, 0);
    block(&s, MAIN, 30, 31, 4096, c.main);
    struct result_report *r = syn_report(&s, NULL);
    const struct result_site *site = &of_bytes(r, 64)->stack.site;
    assert_int_equal(site->line, 77);
    assert_int_equal(site->caller->line, 30);
    assert_int_equal(of_bytes(r, 128)->stack.site.line, 30);
    syn_close(r);
    syn_end(&s);
}

static void test_failures_copies_and_waits(void **state)
{
    (void)state;
    struct syn s;
    struct calls c = start(&s);
    block(&s, MAIN, 1, -1, 4096, c.main);
    block(&s, MAIN, 2, 20, 512, c.ones[0]);
    syn_copy(&s,
             (struct syn_copy){
                 .direction = GS_DIR_H2D, .thread = AUTOGRAD, .bytes = 4 * SYN_MIB, .at = 3 * SYN_MS, .blocked = 1000});
    syn_sync(&s, GS_SYNC_STREAM, 4 * SYN_MS, 300 * SYN_MS, 0, 0);
    syn_sql(&s, "UPDATE sync SET thread_id=%d", AUTOGRAD);
    syn_oom(&s, (struct syn_oom){.layer = GS_LAYER_TENSOR,
                                 .fatal = 1,
                                 .requested = SYN_GIB,
                                 .free = 1,
                                 .total = SYN_GIB,
                                 .at = 10 * SYN_MS});
    syn_sql(&s, "UPDATE oom SET thread_id=%d", AUTOGRAD);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->ooms[0].stack.site.line, 30);
    assert_int_equal(r->transfers_n, 1);
    assert_int_equal(r->transfers[0].site.line, 30);
    assert_int_equal(r->syncs[0].site.line, 30);
    struct run *run = r->run;
    report_free(r);
    char error[256]; /* the same run, opened again */
    struct result_report *again = report_build(run, NULL, error, sizeof error);
    assert_non_null(again);
    assert_int_equal(again->ooms[0].stack.site.line, 30);
    assert_int_equal(run_stack_depth(run, again->ooms[0].stack.number), 4);
    syn_close(again);
    syn_end(&s);
}

/* In a recording of bounded size the gradients of the removed part are gone, but not their stacks: with one line, what
 * remains of autograd's threads is that line's, whoever calls it; with two lines it is unknown. */
static void test_the_removed_part_of_a_bounded_recording(void **state)
{
    (void)state;
    enum { ONE_LINE, TWO_CALLERS, TWO_LINES, CASES };
    for (int which = 0; which < CASES; which++) {
        struct syn s;
        struct calls c = start(&s);
        syn_sql(&s, "INSERT INTO meta VALUES('kept_from_ns',%lld),('keep',33554432)", 10 * SYN_MS);
        if (which != TWO_LINES) syn_sql(&s, "DELETE FROM stack WHERE id=%lld", c.ones[1]);
        if (which == TWO_CALLERS) /* the frames of the first line again, without <module> below them */
            syn_sql(&s,
                    "INSERT INTO stack(id,parent_id,frame_id,depth) SELECT id+1000,CASE id WHEN %lld THEN NULL ELSE "
                    "parent_id+1000 END,frame_id,depth-1 FROM stack WHERE id BETWEEN %lld AND %lld",
                    c.line[0], c.line[0], c.ones[0]);
        block(&s, AUTOGRAD, 3, -1, 64, 0);
        block(&s, OTHER, 4, -1, 32, 0);
        block(&s, MAIN, 12, 20, 512, c.ones[0]);
        block(&s, AUTOGRAD, 13, -1, 128, 0);
        block(&s, AUTOGRAD, 25, -1, 7, 0); /* after that moment no row is missing */
        block(&s, MAIN, 40, 41, 4096, c.main);
        struct result_report *r = syn_report(&s, NULL);
        if (which == ONE_LINE) assert_int_equal(of_bytes(r, 64 + 128)->stack.site.line, 30);
        if (which != ONE_LINE) assert_int_equal(of_bytes(r, 128)->stack.site.line, 30);
        if (which == TWO_CALLERS) assert_int_equal(of_bytes(r, 64)->stack.site.line, 30);
        assert_false(of_bytes(r, which != TWO_LINES ? 32 + 7 : 64 + 32 + 7)->stack.site.known);
        syn_close(r);
        syn_end(&s);
    }
}

static const char keep_schema[] =
#include "keep_sql.h"
    ;

/* Sums of removed rows have no thread, but their native frames are autograd's: they count for the only line, too. */
static void test_sums_of_the_removed_part(void **state)
{
    (void)state;
    static const struct run_options options = {.all = true, .symbol = symbol};
    for (int lines = 1; lines <= 2; lines++) {
        struct syn s;
        struct calls c = start(&s);
        const int64_t engine = syn_native(&s, 0, LIBTORCH, 3), addmm = syn_native(&s, engine, LIBTORCH, 1);
        syn_sql(&s, "INSERT INTO meta VALUES('kept_from_ns',%lld),('keep',33554432)", 10 * SYN_MS);
        if (lines == 1) syn_sql(&s, "DELETE FROM stack WHERE id=%lld", c.ones[1]);
        syn_sql(&s, "%s", keep_schema);
        syn_sql(&s, "INSERT INTO removed VALUES(0,33,%lld,5,640,0,0),(0,33,%lld,1,64,0,0)", (long long)addmm,
                (long long)c.main);
        block(&s, MAIN, 12, 20, 512, c.ones[0]);
        struct result_report *r = syn_report(&s, &options);
        size_t n;
        const struct run_removed *removed = run_removed(r->run, &n);
        assert_int_equal(n, 2);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(run_stack_depth(r->run, removed[i].stack), removed[i].count == 1 ? 1 : lines == 1 ? 6 : 2);
        syn_close(r);
        syn_end(&s);
    }
}

CASES(test_while_the_gradient_of_the_loss_lives, test_two_threads_in_backward_at_once, test_after_an_exception,
      test_several_outputs, test_the_operation, test_python_on_autograds_thread, test_failures_copies_and_waits,
      test_the_removed_part_of_a_bounded_recording, test_sums_of_the_removed_part)
