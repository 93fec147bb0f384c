/* From a stack to the one line that the user can change; and the holes between blocks. */
#include "tests/cases.h"
#include "tests/unit/synthetic.h"
#include "analyzer/question/question.h"
#include "analyzer/site/site.h"
#include "analyzer/site/source_pairs.h"
#include "analyzer/allocator/heap_map.h"
#include "schema/source_file.h"

static void test_library_files(void **state)
{
    (void)state;
    static const char *const libraries[] = {
        "/home/u/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py",
        "/usr/lib/python3/dist-packages/torch/cuda/__init__.py",
        "/usr/lib/python3.11/threading.py",
        "/opt/conda/lib/python3.9/contextlib.py",
        "/usr/lib64/python3.12/json/decoder.py",
        "/home/u/pytorch/torch/nn/functional.py",
        "<frozen importlib._bootstrap>",
        "/tmp/torchinductor_me/3d/c3dqjtcqaccgj6dplifaavyaxfbhklvyxh4mzw3tc22t6j64ih7s.py",
        "/tmp/torch_geometric.nn.conv.gat_conv_GATConv_propagate_wmgpgivz.py",
        "/home/u/project/unsloth_compiled_cache/UnslothSFTTrainer.py",
        "/home/u/.cache/huggingface/modules/transformers_modules/org/model/modeling.py",
        "/home/u/.cache/torch/hub/facebookresearch_dinov2_main/vision_transformer.py",
        "/home/u/.cache/vllm/torch_compile_cache/3f1/rank_0_0/transformed_code.py",
        "<@beartype(train.loss_of) at 0x7f2a>",
        "<attrs generated init train.Batch>",
    };
    static const char *const own[] = {
        "/home/u/train.py",
        "train.py",
        "<stdin>",
        "<string>",
        "/home/u/torch/train.py",
        "/home/u/lib/python_tools/a.py",
        "/tmp/ipykernel_12/3456.py",
        "/tmp/ipython-input-3-4282502808.py",
        "/home/u/3d/c3dqjtcqacc.py",
        "/home/u/torch_geometric.py",
        "/home/u/hub/train.py",
        "<timed exec>",
        "/home/u/dd/c3dqjtcqaccgj6dplifaavyaxfbhklvyxh4mzw3tc22t6j64ih7s.py",
    };
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) assert_true(site_is_library_file(libraries[i]));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) assert_false(site_is_library_file(own[i]));
    assert_int_equal(run_module_rank("/usr/lib/libcudart.so.13"), RUN_RANK_PLUMBING);
    assert_int_equal(run_module_rank("/home/me/gpuspy/build/libgpuspy.so"), RUN_RANK_PLUMBING);
    assert_int_equal(run_module_rank("/x/site-packages/torch/lib/libtorch_cuda.so"), RUN_RANK_LIBRARY);
    assert_int_equal(run_module_rank("/home/u/build/solver"), RUN_RANK_OWN);
}

static struct result_site site_found(struct syn *s, struct result_report **r, int64_t stack)
{
    syn_alloc(s, (struct syn_alloc){.bytes = 1, .at = 1, .life = SYN_LIVE, .stack = stack});
    *r = syn_report(s, NULL);
    return (*r)->peaks[0].by_stack[0].stack.site;
}

static void test_the_users_line(void **state)
{
    (void)state;
    struct syn s;
    struct result_report *r;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t at = syn_python(&s, 0, "<module>", "/home/u/train.py", 9);
    at = syn_python(&s, at, "step", "/home/u/train.py", 5);
    at = syn_python(&s, at, "Linear.forward", "/x/site-packages/torch/nn/modules/linear.py", 116);
    at = syn_python(&s, at, "linear", "/x/site-packages/torch/nn/functional.py", 7);
    at = syn_native(&s, at, "/x/site-packages/torch/lib/libtorch_cuda.so", 77);
    struct result_site site = site_found(&s, &r, at);
    assert_true(site.known && !site.library);
    assert_int_equal(site.line, 5);
    assert_string_equal(site.function, "step");
    assert_string_equal(site.via->function, "linear");
    assert_int_equal(site.caller->line, 9);
    char text[128];
    assert_string_equal(site_text(&site, text, sizeof text), "train.py:5 in step");
    syn_close(r);
    syn_end(&s);
}

/* Two calls at one line: `via` of the allocation is not that of the wait, in whichever order they are asked. */
static void test_each_list_has_its_own_via(void **state)
{
    (void)state;
    struct syn s;
    struct result_report *r;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t step = syn_python(&s, 0, "step", "/home/u/train.py", 5);
    int64_t linear = syn_python(&s, step, "linear", "/x/site-packages/torch/nn/functional.py", 7);
    int64_t item = syn_python(&s, step, "Tensor.item", "/x/site-packages/torch/_tensor.py", 9);
    syn_sync(&s, GS_SYNC_STREAM, 10, 1000, 7, item);
    struct result_site site = site_found(&s, &r, linear);
    assert_string_equal(site.via->function, "linear");
    assert_string_equal(r->peaks[0].by_site[0].site.via->function, "linear");
    assert_int_equal(r->syncs[0].site.line, 5);
    assert_string_equal(r->syncs[0].site.via->function, "Tensor.item");
    syn_close(r);
    syn_end(&s);
}

/* A model from a package: the user's line made the call, the package's line names the operation. */
static void test_a_packages_line(void **state)
{
    (void)state;
    struct syn s;
    struct result_report *r;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t at = syn_python(&s, 0, "<module>", "/home/u/train.py", 9);
    at = syn_python(&s, at, "Trainer.train", "/x/site-packages/transformers/trainer.py", 100);
    at = syn_python(&s, at, "Module._call_impl", "/x/site-packages/torch/nn/modules/module.py", 1);
    at = syn_python(&s, at, "MLP.forward", "/x/site-packages/transformers/models/gpt2.py", 33);
    at = syn_python(&s, at, "linear", "/x/site-packages/torch/nn/functional.py", 7);
    struct result_site site = site_found(&s, &r, at);
    assert_int_equal(site.line, 9);
    assert_int_equal(site.inner->line, 33);
    struct result_site other = site;
    struct run_frame line = *site.inner;
    line.line = 34;
    other.inner = &line;
    assert_true(site_key(&other) != site_key(&site)); /* two places */
    assert_true(site_compare(&site, &other) < 0 && site_compare(&other, &site) > 0);
    char file[] = "/home/u/train.py", function[] = "<module>"; /* the same text elsewhere in memory */
    other = site;
    other.file = file;
    other.function = function;
    assert_int_equal(site_compare(&site, &other), 0);
    syn_close(r);
    syn_end(&s);
}

static void test_generated_methods(void **state)
{
    (void)state;
    struct syn s;
    struct result_report *r;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t at = syn_python(&s, 0, "<module>", "/home/u/train.py", 9);
    at = syn_python(&s, at, "__create_fn__.<locals>.__init__", "<string>", 117);
    struct result_site site = site_found(&s, &r, at);
    assert_int_equal(site.line, 9);
    assert_null(site.inner);
    syn_close(r);
    syn_end(&s);
}

static void test_only_a_library(void **state)
{
    (void)state;
    struct syn s;
    struct result_report *r;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t at = syn_python(&s, 0, "run", "/usr/lib/python3.11/threading.py", 9);
    at = syn_python(&s, at, "pin", "/x/site-packages/torch/utils/data/pin.py", 5);
    struct result_site site = site_found(&s, &r, at);
    assert_true(site.library);
    assert_int_equal(site.line, 5);
    syn_close(r);
    syn_end(&s);
}

/* SGLang's scheduler: the command line by which multiprocessing started it is nobody's line. A program may itself be a
 * command line. */
static void test_a_worker_of_a_library(void **state)
{
    (void)state;
    static const char *const files[] = {"/usr/lib/python3.11/multiprocessing/spawn.py", "/x/site-packages/sglang/a.py"};
    for (int i = 0; i < 2; i++) {
        struct syn s;
        struct result_report *r;
        syn_start(&s);
        syn_process(&s, "r", 1, SYN_S, 1);
        int64_t at = syn_python(&s, 0, "<module>", "<string>", 1);
        at = syn_python(&s, at, "spawn_main", files[i], 120);
        at = syn_python(&s, at, "Pool._create_buffers", "/x/site-packages/sglang/memory_pool.py", 907);
        struct result_site site = site_found(&s, &r, at);
        assert_int_equal(site.library, i == 0);
        assert_int_equal(site.line, i == 0 ? 907 : 1);
        syn_close(r);
        syn_end(&s);
    }
}

static void test_native_only(void **state)
{
    (void)state;
    struct syn s;
    struct result_report *r;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t at = syn_native(&s, 0, "/usr/lib/libc.so.6", 1);
    at = syn_native(&s, at, "/home/u/solver", 0x1234);
    at = syn_native(&s, at, "/usr/lib/libcublas.so.13", 5);
    at = syn_native(&s, at, "/usr/lib/libcudart.so.13", 6);
    struct result_site site = site_found(&s, &r, at);
    char text[128];
    assert_int_equal(site.kind, GS_FRAME_NATIVE);
    assert_string_equal(site_text(&site, text, sizeof text), "solver+0x1234");
    assert_false(site.library);
    syn_close(r);
    syn_end(&s);
}

static void test_callers_of_a_helper_are_distinguished(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    for (int line = 1; line <= 3; line++) {
        for (int twice = 0; twice < 2; twice++) { /* two call paths that differ further out */
            int64_t at = syn_python(&s, 0, "main", "/home/u/train.py", 90 + twice);
            at = syn_python(&s, at, "model", "/home/u/model.py", line);
            at = syn_python(&s, at, "buffer", "/home/u/helper.py", 7);
            syn_alloc(&s, (struct syn_alloc){.bytes = 10 * line, .at = line, .life = SYN_LIVE, .stack = at});
        }
    }
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->peaks[0].by_stack_n, 6);
    assert_int_equal(r->peaks[0].by_site_n, 3);
    assert_int_equal(r->peaks[0].by_site[0].bytes, 60);
    assert_int_equal(r->peaks[0].by_site[0].stacks, 2);
    const struct result_site *site = &r->peaks[0].by_site[0].site;
    assert_true(site->helper); /* three lines call it: they are more informative than its own line */
    assert_int_equal(site->line, 3);
    assert_string_equal(site->function, "model");
    assert_int_equal(site->via->line, 7);
    syn_close(r);
    syn_end(&s);
}

/* A function that moves nested batches calls itself, also from comprehensions: those lines are not its callers. */
static void test_a_recursive_function_is_the_place(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    for (int line = 11; line <= 14; line++) {
        int64_t at = syn_python(&s, 0, "main", "/home/u/train.py", 30);
        at = syn_python(&s, at, "to_device", "/home/u/train.py", line);
        at = syn_python(&s, at, "to_device.<locals>.<dictcomp>", "/home/u/train.py", line);
        at = syn_python(&s, at, "to_device", "/home/u/train.py", 9);
        syn_alloc(&s, (struct syn_alloc){.bytes = line, .at = line, .life = SYN_LIVE, .stack = at});
    }
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->peaks[0].by_site[0].site.line, 9);
    assert_false(r->peaks[0].by_site[0].site.helper);
    syn_close(r);
    syn_end(&s);
}

/* Two callers do not make a function a helper, and a library between a line and its caller does not count as a caller.
 * */
static void test_a_function_that_few_call_is_the_place(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    for (int line = 1; line <= 2; line++) {
        int64_t at = syn_python(&s, 0, "main", "/home/u/train.py", line);
        at = syn_python(&s, at, "_call_impl", "/x/site-packages/torch/nn/modules/module.py", 1501);
        at = syn_python(&s, at, "forward", "/home/u/model.py", 7);
        syn_alloc(&s, (struct syn_alloc){.bytes = line, .at = line, .life = SYN_LIVE, .stack = at});
    }
    struct result_report *r = syn_report(&s, NULL);
    const struct result_site *site = &r->peaks[0].by_site[0].site;
    assert_int_equal(r->peaks[0].by_site_n, 2);
    assert_false(site->helper);
    assert_int_equal(site->line, 7);
    assert_int_equal(site->caller->line, 2);
    syn_close(r);
    syn_end(&s);
}

static bool finalize(void *data, const char *module, const char *build_id, uint64_t offset, const char **function,
                     const char **file, int *line)
{
    (void)data;
    (void)module;
    (void)build_id;
    (void)file;
    (void)line;
    *function = offset == 11 ? "Py_FinalizeEx" : "something_else";
    return true;
}

/* Memory that Python frees during its shutdown no longer has a Python line. */
/* The interpreter's shutdown calls finalisers; otherwise a line of the program calls them. */
static void test_finalisers(void **state)
{
    (void)state;
    struct syn s;
    struct result_report *r;
    char text[256];
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t torn_down = syn_python(&s, 0, "Tensor.__del__", "/home/u/tensor.py", 42);
    assert_true(site_found(&s, &r, torn_down).exit);
    assert_string_equal(site_text(&r->peaks[0].by_stack[0].stack.site, text, sizeof text), "at interpreter exit");
    syn_close(r);
    syn_end(&s);
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t line = syn_python(&s, 0, "<module>", "/home/u/train.py", 9);
    assert_false(site_found(&s, &r, syn_python(&s, line, "Tensor.__del__", "/home/u/tensor.py", 42)).exit);
    syn_close(r);
    syn_end(&s);
}

static void test_interpreter_exit(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    for (int way = 0; way < 2; way++) { /* one place, reached in different ways */
        int64_t at = syn_native(&s, 0, "/usr/bin/python3.11", 10);
        at = syn_native(&s, at, "/usr/bin/python3.11", 11);
        at = syn_native(&s, at, "/usr/bin/python3.11", 12 + way);
        at = syn_native(&s, at, "/usr/lib/libffi.so.8", 13);
        syn_sync(&s, GS_SYNC_IMPLICIT, SYN_MS + way, 500 * SYN_MS, 0, at);
    }
    struct run_options options = {.all = true, .symbol = finalize};
    struct result_report *r = syn_report(&s, &options);
    char text[64];
    assert_int_equal(r->syncs_n, 1);
    assert_true(r->syncs[0].site.exit && r->syncs[0].matters);
    assert_null(r->syncs[0].advice); /* the program ends anyway */
    assert_string_equal(site_text(&r->syncs[0].site, text, sizeof text), "at interpreter exit");
    syn_close(r);
    syn_end(&s);
}

static bool autograd(void *data, const char *module, const char *build_id, uint64_t offset, const char **function,
                     const char **file, int *line)
{
    (void)data;
    (void)module;
    (void)build_id;
    (void)file;
    (void)line;
    *function = offset == 21   ? "torch::autograd::generated::MmBackward0::apply(int&&)"
                : offset == 20 ? "torch::autograd::Node::operator()(int)"
                               : "at::something::apply(int)";
    return true;
}

/* Autograd's threads run no Python: the operation is used as the place. */
static void test_autograd(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    for (int way = 0; way < 2; way++) {
        int64_t at = syn_native(&s, 0, "/v/site-packages/torch/lib/libtorch_cpu.so", 20);
        at = syn_native(&s, at, "/v/site-packages/torch/lib/libtorch_cpu.so", 21);
        at = syn_native(&s, at, "/v/site-packages/torch/lib/libtorch_cuda.so", 22 + way);
        at = syn_native(&s, at, "/v/site-packages/torch/lib/libc10_cuda.so", 30);
        syn_sync(&s, GS_SYNC_IMPLICIT, SYN_MS + way, 500 * SYN_MS, 0, at);
    }
    struct run_options options = {.all = true, .symbol = autograd};
    struct result_report *r = syn_report(&s, &options);
    assert_int_equal(r->syncs_n, 1);
    assert_true(r->syncs[0].site.library);
    assert_non_null(strstr(r->syncs[0].site.function, "MmBackward0"));
    syn_close(r);
    syn_end(&s);
}

/* With debugging information: the inlined function replaces the frame. */
static bool innermost(void *data, const char *module, const char *build_id, uint64_t offset, const char **function,
                      const char **file, int *line)
{
    (void)autograd(data, module, build_id, offset, function, file, line);
    *function = "c10::intrusive_ptr::release()";
    *file = "c10/util/intrusive_ptr.h";
    *line = strstr(module, "python") ? 8 : 7;
    return true;
}

static size_t whole(void *data, const char *module, const char *build_id, uint64_t offset,
                    const struct run_symbol_place **places)
{
    static struct run_symbol_place chain[2];
    (void)innermost(data, module, build_id, offset, &chain[0].function, &chain[0].file, &chain[0].line);
    (void)autograd(data, module, build_id, offset, &chain[1].function, &chain[1].file, &chain[1].line);
    if (strstr(module, "python"))
        (void)finalize(data, module, build_id, offset, &chain[1].function, &chain[1].file, &chain[1].line);
    *places = chain;
    return 2;
}

static void test_inlined_calls_do_not_hide_a_function(void **state)
{
    (void)state;
    static const struct run_symbol_more more = {.inlined = whole};
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t at = syn_native(&s, 0, "/v/site-packages/torch/lib/libtorch_cpu.so", 21);
    syn_sync(&s, GS_SYNC_IMPLICIT, SYN_MS, 500 * SYN_MS, 0,
             syn_native(&s, at, "/v/site-packages/torch/lib/libc10_cuda.so", 30));
    at = syn_native(&s, 0, "/usr/bin/python3.11", 11);
    syn_sync(&s, GS_SYNC_IMPLICIT, 2 * SYN_MS, 400 * SYN_MS, 0, syn_native(&s, at, "/usr/lib/libffi.so.8", 13));
    syn_alloc(&s, (struct syn_alloc){.bytes = 100,
                                     .at = 1,
                                     .life = SYN_LIVE,
                                     .stack = syn_native(&s, 0, "/v/site-packages/torch/lib/libtorch_cpu.so", 21)});
    struct run_options options = {.all = true, .symbol = innermost, .symbol_more = &more};
    struct result_report *r = syn_report(&s, &options);
    assert_int_equal(r->syncs_n, 2);
    assert_true(r->syncs[0].site.library);
    assert_true(r->syncs[1].site.exit);
    size_t n; /* for the user it is two frames */
    const struct run_frame *frames = run_frame_places(r->run, r->peaks[0].by_stack[0].stack.number, &n);
    assert_int_equal(n, 2);
    assert_string_equal(frames[0].function, "c10::intrusive_ptr::release()");
    assert_int_equal(frames[0].line, 7);
    assert_string_equal(frames[1].function, "torch::autograd::generated::MmBackward0::apply(int&&)");
    syn_close(r);
    syn_end(&s);
}

static void test_statements_that_make_pairs(void **state)
{
    (void)state;
    static const char *const pairs[] = {
        "d = (a[:, :, None] - b[:, None]).pow(2).sum(-1)",
        "match = keys[:, None] == table[None, :]",
        "rel = pos[None] - pos[:, None]",
        "d = (x.unsqueeze(1) - y.unsqueeze(0)).abs()",
        "d = x.unsqueeze(dim=-2) - (y.unsqueeze(-3))",
        "lt = torch.max(boxes1[:, None, :2], boxes2[:, :2][None])",
        "iou = torch.minimum(a[:, None, 2:], b[None, :, 2:])",
        "d = torch.cdist(x, y)",
        "k = torch.exp(-(x[:, np.newaxis] - x[np.newaxis]).norm(dim=-1))",
        "outer = torch.einsum('bi,bj->bij', x, y)",
        "f = torch.outer(t, self.inv_freq)",
        "w = a[..., None] * b[..., None, :]",
        "x[:, None] = a[:, None] - b[None]",
        "d = a[0, :, None] - b[None]",
        "s = d[\"a\"][None] + d[\"b\"][:, None]",
        "p = a[:, None] - (b[None] + 1)",
        "f = t.outer(freq)",
        "y = x.amax(1)[:, None] - z.amax(1)[None]",
    };
    static const char *const others[] = {
        "x = (x - mean[:, None, None]) / std[:, None, None]",
        "h = h * mask[:, None]",
        "x = x.unsqueeze(1)",
        "scores = torch.einsum('bhid,bhjd->bhij', q, k)",
        "y = torch.einsum('bi,io->bo', x, w)",
        "y = torch.einsum('bi,b->bi', x, w)",
        "out = attention(q[:, None], mask[None])",
        "a, b = x[:, None], y[None]",
        "y = x[None, :, 0] + bias[None]",
        "z = linear(x.unsqueeze(1)) - y.unsqueeze(1)",
        "y = x[idx] - x[other]",
        "loss = router(x)",
        "p = a @ b.T",
        "y = torch.where(c[:, None], x, 0)",
        "mixed = x[..., None] - y[:, None]",
        "mixed2 = x.unsqueeze(1) * -1",
        "y = conv(x.unsqueeze(1)) + res",
        "y = x.unsqueeze(1).squeeze(1) + z.unsqueeze(0).squeeze(0)",
        "out = x[:, None].sum(1) + y[None].sum(0)",
        "h = self.outer(x)",
        "h = self.encoder.outer(x)",
        "h = outer(x)",
        "s = self.kron(x)",
        "y = x[0, None] + y[None, 0]",
        "y = x[0, :, None] + y[:, None]",
        "y = x[i, :, None] * g[:, None]",
        "x[:, None] = y[None]",
        "x[:, None] += y[None]",
        "y = x.unsqueeze(d) - y.unsqueeze(1)",
        "y = x[:, None] if flag else y[None]",
        "y = f(x[:, None], k=y[None])",
        "y = w[:, None] * f(v[None])",
        "log('a[:, None] - b[None]')",
        "y = x.unsqueeze(-1) @ y.unsqueeze(-2)",
        "y = torch.where(m[:, None], x, z[None])",
        "m = torch.max(x[:, None], 1)",
        "m = self.box_iou(x, y)",
        "m = my_box_iou(x, y)",
        "q = x * cos[None, :, None, :] + rotate(x) * sin[None, :, None, :]",
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs + sizeof others / sizeof *others; i++) {
        const bool is = i < sizeof pairs / sizeof *pairs;
        const char *const *line = is ? &pairs[i] : &others[i - sizeof pairs / sizeof *pairs];
        struct arena arena = {0};
        const struct site_code code = site_code_of(&arena, line, 1);
        if (site_statement_makes_pairs(&code.list[0], line, 1) != is) fail_msg("%s", *line);
        arena_free(&arena);
    }
}

static void test_statements_that_make_large_results(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool expansion, one_hot, repeats;
    } cases[] = {
        {"m = m[None].expand(16, -1, -1).contiguous()", true, false, false},
        {"m = torch.broadcast_to(m, (8, 9)).clone()", true, false, false},
        {"m = f(m.expand_as(x).clone(), 1)", true, false, false},
        {"m = m.contiguous().expand(16, -1, -1)", false, false, false},
        {"y = a.clone() + b.expand(3, -1)", false, false, false},
        {"k = k[:, :, None].expand(b, h, r, l, d).contiguous().view(b, h * r, l, d)", false, false, false},
        {"y = F.one_hot(labels, 50000)", false, true, false},
        {"y = torch.eye(n, device='cuda')[labels]", false, true, false},
        {"y = torch.eye(4)[None]", false, false, false},
        {"y = torch.eye(4)[None].expand(b, -1, -1).clone()", true, false, false},
        {"y = torch.eye(4)[:k]", false, false, false},
        {"y = torch.eye(4) * f(x)[0]", false, false, false},
        {"y = is_one_hot(x)", false, false, false},
        {"y = F.one_hot(labels, n).float().unsqueeze(0).repeat(m, 1, 1)", false, true, true},
        {"h = x.unsqueeze(1).repeat(1, n, 1)", false, false, true},
        {"h = x[:, None].repeat(1, n, 1, 1) - y", false, false, true},
        {"h = x.unsqueeze(-1).repeat(1, 1, n)", false, false, true},
        {"h = f(x, y[None].repeat(n, 1))", false, false, true},
        {"h = x.repeat(n, 1)", false, false, false},
        {"h = x.unsqueeze(1).repeat(1, 1, n)", false, false, false},
        {"h = x.unsqueeze(1).repeat(2, n, 1)", false, false, false},
        {"h = x.unsqueeze(1).repeat(1, n, 1).view(-1, d)", false, false, false},
        {"h = x.unsqueeze(1).sum(1).repeat(n, 1)", false, false, false},
        {"h = x.unsqueeze(0).repeat(n, 1, 1).contiguous()", false, false, false},
        {"h = x[None].repeat(n, 1, 1).to('cuda')", false, false, false},
        {"h = x[None].repeat(n, 1, 1).cuda()", false, false, false},
        {"w = nn.Parameter(x[None].repeat(n, 1, 1))", false, false, false},
        {"h = x[None].repeat(n, 1, 1).add_(y)", false, false, false},
        {"h = x[None].repeat(n, 1, 1).float()", false, false, false},
        {"h = x.unsqueeze(1).repeat_interleave(n, 1)", false, false, false},
        {"h = einops.repeat(x, 'b d -> b n d', n=n)", false, false, false},
        {"h = np.tile(x[None], (n, 1))", false, false, false},
        {"h = x.unsqueeze(0).repeat(n, 1, 1).masked_fill_(m, 0)", false, false, false},
        {"h = x[None].repeat(1, n, 1)", false, false, false},
        {"h = x[:, None, :].repeat(1, n, 1)", false, false, true},
        {"h = x.unsqueeze(dim=1).repeat(1, n, 1)", false, false, true},
        {"h = x.unsqueeze(1).tile(1, n, 1)", false, false, true},
        {"h = x[..., None].repeat(1, 1, n)", false, false, true},
        {"h = torch.cat([x.unsqueeze(1).repeat(1, n, 1), y], -1)", false, false, true},
        {"h = x.unsqueeze(1).repeat(1, n, 1)[mask]", false, false, true},
    };
    static const struct {
        const char *line;
        bool masks, one_sided;
    } broadcasts[] = {
        {"mask = causal[None, None] & pad[:, None, None, :]", true, false},
        {"keep = a.unsqueeze(1) | b.unsqueeze(0)", true, false},
        {"d = a[:, None] - b[None]", false, false},
        {"mask = causal[None] & pad[None]", false, false},
        {"a[:, None] &= b[None]", false, false},
        {"d = ((points[:, None] - centers) ** 2).sum(-1)", false, true},
        {"d = centers - points.unsqueeze(1)", false, true},
        {"d = (self.x[:, None, :] - self.y).abs()", false, true},
        {"y = x[None] - mean", false, false},
        {"y = 2 * x[:, None]", false, false},
        {"y = x[:, None] * 2", false, false},
        {"y = x[:, None]", false, false},
        {"y = f(x[:, None], z)", false, false},
        {"y = (a @ a.t()).unsqueeze(1) / t", false, false}, /* their operands are made by the same statement */
        {"y = net(x)[:, None] * scale", false, false},
        {"y = w[:, None] * torch.relu(x)", false, false},
    };
    for (size_t i = 0; i < sizeof broadcasts / sizeof *broadcasts; i++) {
        struct arena arena = {0};
        const struct site_code code = site_code_of(&arena, &broadcasts[i].line, 1);
        if (site_statement_broadcasts(&code.list[0], SITE_SHAPE_MASKS) != broadcasts[i].masks ||
            site_statement_broadcasts(&code.list[0], SITE_SHAPE_ONE_SIDED) != broadcasts[i].one_sided)
            fail_msg("%s", broadcasts[i].line);
        arena_free(&arena);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena = {0};
        const struct site_code code = site_code_of(&arena, &cases[i].line, 1);
        if (site_statement_copies_expansion(&code.list[0]) != cases[i].expansion ||
            site_statement_makes_one_hot(&code.list[0]) != cases[i].one_hot ||
            site_statement_repeats(&code.list[0]) != cases[i].repeats)
            fail_msg("%s", cases[i].line);
        arena_free(&arena);
    }
}

static void test_holes(void **state)
{
    (void)state;
    enum { M = 1 << 20 };
    struct allocator_range segments[] = {
        {0x40000000, 20 * M}, {0x10000000, 20 * M}, {0x70000000, 4 * M}, {0x90000000, 3 * M}};
    struct allocator_range blocks[] = {
        {0x10000000 + 5 * M, 5 * M}, {0x10000000, 2 * M}, {0x40000000, 20 * M}, {0x1000, M}};
    struct allocator_heap_map m = allocator_heap_map(segments, 4, blocks, 4, 44 * M);
    assert_int_equal(m.segments, 3);
    assert_int_equal(m.segment_bytes, 44 * M); /* including the empty one of 4 MiB: the total has room for it */
    assert_int_equal(m.block_bytes, 27 * M);
    assert_int_equal(m.free_bytes, 17 * M);
    assert_int_equal(m.largest_free_bytes, 10 * M);
    assert_int_equal(m.blocks, 3);
    assert_int_equal(m.strays, 1);
    m = allocator_heap_map(segments, 4, blocks, 4, RUN_UNKNOWN);
    assert_int_equal(m.segments, 2);
    m = allocator_heap_map(NULL, 0, NULL, 0, RUN_UNKNOWN);
    assert_int_equal(m.segments, 0);
}

static void test_cells_of_notebooks(void **state)
{
    (void)state;
    static const char *const cells[] = {"/tmp/ipykernel_12/3456.py",
                                        "/tmp/ipython-input-3-4282502808.py",
                                        "<ipython-input-3-a1b2>",
                                        "In [12]",
                                        "cell 3",
                                        "/tmp/ipython-input-245357860.py",
                                        "/tmp/xpython_42/1599083861.py",
                                        "/root/.ipykernel/991/command-1723439101937605-4150301398",
                                        "/home/u/.ipykernel/42/command--1-789.py",
                                        "/scratch/ipykernel_tmp/ipykernel_42/789.py",
                                        "<command-3468532906296225>"};
    static const char *const files[] = {"cell model.py",
                                        "cell 3.py",
                                        "In [5].py",
                                        "In [x]",
                                        "In []",
                                        "cell ",
                                        "/home/u/cell 3",
                                        "cells.py",
                                        "<command-line>",
                                        "/tmp/ipykernel_12/a.py",
                                        "/home/u/.ipykernel/command-x.py"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) assert_true(gs_source_is_cell(cells[i]));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) assert_false(gs_source_is_cell(files[i]));
}

static void test_folders_with_a_librarys_name(void **state)
{
    (void)state;
    static const char *const within[] = {"/envs/jax/lib/python3.11/site-packages/torch/optim/adam.py",
                                         "/usr/lib/python3/dist-packages/torch/optim/adam.py",
                                         "/home/u/pytorch/torch/optim/adam.py"};
    static const char *const elsewhere[] = {"/envs/torch/optim/lib/python3.11/threading.py",
                                            "/envs/torch/optim/lib/python3.11/site-packages/jax/x.py",
                                            "/w/torch/optim/site-packages/a/site-packages/b.py",
                                            "/torch/op",
                                            "",
                                            NULL};
    for (size_t i = 0; i < sizeof within / sizeof *within; i++) assert_true(run_path_has(within[i], "/torch/optim/"));
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        assert_false(run_path_has(elsewhere[i], "/torch/optim/"));
    assert_true(run_path_has("/envs/x/lib/python3.11/copy.py", "/copy.py"));
}

CASES(test_library_files, test_cells_of_notebooks, test_folders_with_a_librarys_name, test_the_users_line,
      test_each_list_has_its_own_via, test_a_packages_line, test_generated_methods, test_only_a_library,
      test_a_worker_of_a_library, test_native_only, test_callers_of_a_helper_are_distinguished,
      test_a_recursive_function_is_the_place, test_a_function_that_few_call_is_the_place, test_finalisers,
      test_interpreter_exit, test_autograd, test_inlined_calls_do_not_hide_a_function, test_statements_that_make_pairs,
      test_statements_that_make_large_results, test_holes)
