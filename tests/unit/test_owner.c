/* Which library allocated device memory: by the frames of the allocation, and by PyTorch's own totals if the frames do
 * not show it. */
#include "tests/cases.h"
#include "tests/unit/synthetic.h"

#define LIB "/v/lib/python3.11/site-packages/"
#define RUNTIME LIB "nvidia/cuda_runtime/lib/libcudart.so.12"

/* The symbol at an address of a module, for the test. */
static bool symbol(void *data, const char *module, const char *build_id, uint64_t offset, const char **function,
                   const char **file, int *line)
{
    static const struct {
        uint64_t offset;
        const char *name;
    } names[] = {{1, "rmm::mr::cuda_memory_resource::do_allocate(unsigned long, rmm::cuda_stream_view)"},
                 {2, "c10d::symmetric_memory::CUDASymmetricMemoryAllocator::alloc(unsigned long)"},
                 {3, "ncclCudaCallocDebug"},
                 {4, "cudart::cudaApiMalloc(void**, unsigned long)"},
                 {5, "main"},
                 {6, "void c10::cuda::CUDACachingAllocator::Native::f()"},
                 {7, "farmm::allocate"},
                 {8, "rmm::mr::detail::pool_memory_resource_impl::initialize_pool(unsigned long)"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].offset == offset) {
            *function = names[i].name;
            return true;
        }
    }
    return false;
}

struct frame { /* outermost first; offset 0 with a line: Python */
    const char *file;
    int line;
    int64_t offset;
};

static int64_t stack_of(struct syn *s, const struct frame *f)
{
    int64_t at = 0;
    for (; f->file; f++)
        at = f->line ? syn_python(s, at, "f", f->file, f->line) : syn_native(s, at, f->file, f->offset);
    return at;
}

static const struct result_by_owner *one_owner(struct result_report *r)
{
    const struct result_peak *p = syn_peak(r, RUN_SERIES_DEVICE);
    assert_int_equal(p->by_owner_n, 1);
    assert_int_equal(p->by_owner[0].bytes, p->bytes);
    return p->by_owner;
}

#define SCRIPT                       \
    {"/home/u/train.py", 9, 0},      \
    {                                \
        "/usr/bin/python3.11", 0, 99 \
    }
#define CTYPES                                                                          \
    {"/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", 0, 99}, \
    {                                                                                   \
        "/usr/lib/libffi.so.8", 0, 99                                                   \
    }
#define END           \
    {RUNTIME, 0, 99}, \
    {                 \
        NULL, 0, 0    \
    }

static const struct {
    const char *owner;
    enum result_owner_kind kind;
    struct frame frames[10];
} cases[] = {
    {"PyTorch's allocator",
     RESULT_OWNER_TORCH,
     {SCRIPT, {LIB "torch/lib/libtorch_cuda.so", 0, 99}, {LIB "torch/lib/libc10_cuda.so", 0, 99}, END}},
    {"NCCL",
     RESULT_OWNER_COMMUNICATION,
     {SCRIPT, {LIB "torch/lib/libtorch_cuda.so", 0, 99}, {LIB "nvidia/nccl/lib/libnccl.so.2", 0, 99}, END}},
    {"cuBLAS",
     RESULT_OWNER_LIBRARY,
     {SCRIPT,
      {LIB "torch/lib/libtorch_cuda.so", 0, 99},
      {LIB "nvidia/cublas/lib/libcublas.so.12", 0, 99},
      {LIB "nvidia/cublas/lib/libcublasLt.so.12", 0, 99},
      END}},
    {"cuSPARSELt", RESULT_OWNER_LIBRARY, {SCRIPT, {"/usr/lib/libcusparseLt.so.0", 0, 99}, END}},
    /* linked into PyTorch */
    {"NCCL",
     RESULT_OWNER_COMMUNICATION,
     {SCRIPT, {LIB "torch/lib/libtorch_cuda.so", 0, 99}, {LIB "torch/lib/libtorch_cuda.so", 0, 3}, END}},
    {"PyTorch's symmetric memory",
     RESULT_OWNER_COMMUNICATION,
     {SCRIPT, {LIB "torch/lib/libtorch_cuda.so", 0, 2}, {LIB "torch/lib/libtorch_cuda.so", 0, 99}, END}},
    {"PyTorch",
     RESULT_OWNER_FRAMEWORK,
     {SCRIPT, {LIB "torch/lib/libtorch_python.so", 0, 6}, {LIB "torch/lib/libtorch_cuda.so", 0, 99}, END}},
    {"CuPy",
     RESULT_OWNER_POOL,
     {SCRIPT,
      {LIB "cupy/_creation/basic.py", 31, 0},
      {"/usr/bin/python3.11", 0, 99},
      {LIB "cupy/cuda/memory.cpython-311-x86_64-linux-gnu.so", 0, 99},
      {LIB "cupy_backends/cuda/api/runtime.cpython-311-x86_64-linux-gnu.so", 0, 99},
      END}},
    {"RMM",
     RESULT_OWNER_POOL,
     {{"/home/u/etl", 0, 5}, {"/usr/lib/libcudf.so", 0, 99}, {"/usr/lib/librmm.so", 0, 99}, END}},
    {"RMM", RESULT_OWNER_POOL, {SCRIPT, {LIB "cudf/lib/libcudf.so", 0, 99}, {LIB "cudf/lib/libcudf.so", 0, 1}, END}},
    {"cuDF", RESULT_OWNER_FRAMEWORK, {SCRIPT, {LIB "libcudf/lib64/libcudf.so", 0, 7}, END}},
    {"JAX",
     RESULT_OWNER_FRAMEWORK,
     {SCRIPT,
      {LIB "jax/_src/api.py", 3, 0},
      {"/usr/bin/python3.11", 0, 99},
      {LIB "jax_plugins/xla_cuda12/xla_cuda_plugin.so", 0, 99},
      {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", 0, 99},
      {NULL, 0, 0}}},
    {"TensorFlow", RESULT_OWNER_FRAMEWORK, {SCRIPT, {LIB "tensorflow/libtensorflow_cc.so.2", 0, 99}, END}},
    {"Numba",
     RESULT_OWNER_FRAMEWORK,
     {{"/home/u/train.py", 9, 0},
      {LIB "numba/cuda/cudadrv/driver.py", 300, 0},
      {"/usr/lib/python3.11/ctypes/__init__.py", 12, 0},
      {"/usr/bin/python3.11", 0, 99},
      CTYPES,
      END}},
    /* a binding counts for the library that uses it, */
    {"Numba",
     RESULT_OWNER_FRAMEWORK,
     {{"/home/u/train.py", 9, 0},
      {LIB "numba_cuda/numba/cuda/cudadrv/driver.py", 300, 0},
      {"/usr/bin/python3.11", 0, 99},
      {LIB "cuda/bindings/driver.cpython-311-x86_64-linux-gnu.so", 0, 99},
      END}},
    {"train.py", RESULT_OWNER_USER, {SCRIPT, {LIB "cuda/bindings/driver.cpython-311-x86_64-linux-gnu.so", 0, 99}, END}},
    /* and only if there is none, for itself */
    {"cuda", RESULT_OWNER_LIBRARY, {{LIB "cuda/bindings/driver.cpython-311-x86_64-linux-gnu.so", 0, 99}, END}},
    {"train.py", RESULT_OWNER_USER, {SCRIPT, CTYPES, END}},
    {"solver", RESULT_OWNER_USER, {{"/usr/lib/libc.so.6", 0, 99}, {"/home/u/build/solver", 0, 5}, END}},
    {"solver", RESULT_OWNER_USER, {{"/home/u/build/solver", 0, 5}, {"/home/u/build/solver", 0, 4}, {NULL, 0, 0}}},
    {"ext.so", RESULT_OWNER_USER, {SCRIPT, {"/home/u/.cache/torch_extensions/py311/ext/ext.so", 0, 99}, END}},
    {"tinynet", RESULT_OWNER_PACKAGE, {SCRIPT, {LIB "tinynet/_C.abi3.so", 0, 99}, END}},
    {"tinynet", RESULT_OWNER_PACKAGE, {SCRIPT, {LIB "tinynet.libs/libops-1234.so", 0, 99}, END}},
    {"libnew.so.1", RESULT_OWNER_USER, {SCRIPT, {LIB "nvidia/new/lib/libnew.so.1", 0, 99}, END}},
    /* a user's folder of that name does not belong to the package */
    {"a.so", RESULT_OWNER_USER, {SCRIPT, {"/home/u/torch/a.so", 0, 99}, END}},
    /* only Python frames: a library's C code may be between them and CUDA */
    {"CuPy", RESULT_OWNER_POOL, {{"/home/u/train.py", 9, 0}, {LIB "cupy/_creation/basic.py", 31, 0}, {NULL, 0, 0}}},
    {"unknown", RESULT_OWNER_UNKNOWN, {{"/home/u/train.py", 9, 0}, {NULL, 0, 0}}},
    {"unknown",
     RESULT_OWNER_UNKNOWN,
     {{"/home/u/train.py", 9, 0}, {LIB "torch/nn/modules/linear.py", 5, 0}, {NULL, 0, 0}}},
    {"torch.distributed",
     RESULT_OWNER_COMMUNICATION,
     {{"/home/u/train.py", 9, 0}, {LIB "torch/distributed/distributed_c10d.py", 5, 0}, {NULL, 0, 0}}},
    {"unknown", RESULT_OWNER_UNKNOWN, {{"/usr/lib/libc.so.6", 0, 99}, {NULL, 0, 0}}},
};

static void test_by_frames(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct syn s;
        struct run_options options = {.all = true, .symbol = symbol};
        syn_start(&s);
        syn_process(&s, "r", 1, SYN_S, 1);
        syn_alloc(&s,
                  (struct syn_alloc){.bytes = 100, .at = 1, .life = SYN_LIVE, .stack = stack_of(&s, cases[i].frames)});
        struct result_report *r = syn_report(&s, &options);
        const struct result_by_owner *o = one_owner(r);
        if (strcmp(o->owner, cases[i].owner) != 0 || o->kind != cases[i].kind)
            fail_msg("case %zu: %s (%s), not %s", i, o->owner, result_owner_kind_word(o->kind), cases[i].owner);
        syn_close(r);
        syn_end(&s);
    }
}

static const struct result_by_owner *owner_named(const struct result_peak *p, const char *owner)
{
    for (size_t i = 0; i < p->by_owner_n; i++)
        if (strcmp(p->by_owner[i].owner, owner) == 0) return &p->by_owner[i];
    fail_msg("nothing of %s", owner);
    return NULL;
}

/* At the peak, not at the end; by the space of the memory. */
static void test_sums(void **state)
{
    (void)state;
    struct syn s;
    struct run_options options = {.all = true, .symbol = symbol};
    static const struct frame torch[] = {SCRIPT, {LIB "torch/lib/libc10_cuda.so", 0, 99}, END},
                              nccl[] = {SCRIPT, {"/usr/lib/libnccl.so.2", 0, 99}, END},
                              nccl_vmm[] = {SCRIPT, {"/usr/lib/libnccl.so.2", 0, 98}, END};
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t t = stack_of(&s, torch), n = stack_of(&s, nccl), v = stack_of(&s, nccl_vmm);
    syn_alloc(&s, (struct syn_alloc){.address = 1, .bytes = 50, .at = 1, .life = 9, .stack = n});
    syn_alloc(&s, (struct syn_alloc){.address = 2, .bytes = 60, .at = 2, .life = SYN_LIVE, .stack = t});
    syn_alloc(
        &s, (struct syn_alloc){.address = 3, .bytes = 7, .at = 3, .life = SYN_LIVE, .space = GS_SPACE_VMM, .stack = v});
    syn_alloc(&s, (struct syn_alloc){.address = 1, .bytes = 20, .at = 20, .life = SYN_LIVE, .stack = t});
    syn_oom(&s, (struct syn_oom){.requested = 1000, .free = 10, .total = 200, .at = 5, .stack = t});
    struct result_report *r = syn_report(&s, &options);
    const struct result_peak *p = syn_peak(r, RUN_SERIES_DEVICE);
    assert_int_equal(p->bytes, 117);
    assert_int_equal(p->by_owner_n, 2);
    assert_int_equal(owner_named(p, "PyTorch's allocator")->bytes, 60);
    const struct result_by_owner *o = owner_named(p, "NCCL");
    assert_int_equal(o->bytes, 57);
    assert_int_equal(o->count, 2);
    assert_int_equal(o->by_space[GS_SPACE_DEVICE], 50);
    assert_int_equal(o->by_space[GS_SPACE_VMM], 7);
    assert_string_equal(o->by, "libnccl.so.2");
    assert_int_equal(o->site.line, 9);
    assert_int_equal(r->ooms[0].by_owner_n, 2);
    assert_int_equal(r->ooms[0].device_live, 117);
    assert_int_equal(r->ooms[0].by_owner[0].bytes + r->ooms[0].by_owner[1].bytes, 117);
    syn_close(r);
    syn_end(&s);
}

/* Without native frames PyTorch's total shows its segments: it rises by their sizes. */
static void test_by_totals(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    int64_t line = syn_python(&s, 0, "f", "/home/u/train.py", 3), other = syn_python(&s, 0, "f", "/home/u/train.py", 4),
            layer = syn_python(&s, line, "forward", LIB "torch/nn/modules/linear.py", 5);
    syn_alloc(&s, (struct syn_alloc){.address = 1, .bytes = 64, .at = 1, .life = 9, .stack = line});
    syn_reserved(&s, 2, 64);
    syn_alloc(&s, (struct syn_alloc){.address = 2, .bytes = 30, .at = 3, .life = SYN_LIVE, .stack = other});
    /* piece by piece; the first one was freed, which PyTorch does not report */
    syn_alloc(&s, (struct syn_alloc){.address = 3, .bytes = 40, .at = 11, .life = SYN_LIVE, .stack = layer});
    syn_alloc(&s, (struct syn_alloc){.address = 4, .bytes = 40, .at = 12, .life = SYN_LIVE, .stack = layer});
    syn_reserved(&s, 13, 80);
    syn_alloc(&s, (struct syn_alloc){.address = 5, .bytes = 5, .at = 14, .life = SYN_LIVE, .stack = 0});
    struct result_report *r = syn_report(&s, NULL);
    const struct result_peak *p = syn_peak(r, RUN_SERIES_DEVICE);
    assert_int_equal(p->bytes, 115);
    assert_int_equal(owner_named(p, "PyTorch's allocator")->bytes, 80);
    assert_int_equal(owner_named(p, "unknown")->bytes, 35);
    syn_close(r);
    syn_end(&s);
}

/* --- in advance, or kept ------------------------------------------------------------------------ */

static const struct frame jax[] = {SCRIPT, {LIB "jax_plugins/xla_cuda12/xla_cuda_plugin.so", 0, 99}, {NULL, 0, 0}},
                          tensorflow[] = {SCRIPT, {LIB "tensorflow/libtensorflow_cc.so.2", 0, 99}, END},
                          cupy[] = {SCRIPT, {LIB "cupy_backends/cuda/api/runtime.so", 0, 99}, END},
                          rmm[] = {SCRIPT,
                                   {LIB "librmm/lib64/librmm.so", 0, 8},
                                   {LIB "librmm/lib64/librmm.so", 0, 1},
                                   END},
                          rmm_plain[] = {SCRIPT, {LIB "librmm/lib64/librmm.so", 0, 1}, END},
                          program[] = {{"/home/u/build/solver", 0, 5}, END};

struct piece {
    const struct frame *by;
    int64_t gib;
};

/* A run of 10 GiB in total, in such pieces; `set`: NAME=value of the environment, or NULL. */
static struct result_report *taken(struct syn *s, const char *set, const struct piece *pieces)
{
    static const struct run_options options = {.all = true, .symbol = symbol};
    syn_start(s);
    syn_process(s, "r", 1, SYN_S, 1);
    syn_device(s, 0, 10 * SYN_GIB, 10 * SYN_GIB);
    syn_sql(s, "INSERT INTO meta VALUES('env', '')");
    if (set) syn_sql(s, "INSERT INTO meta VALUES('env.%.*s', %Q)", (int)strcspn(set, "="), set, strchr(set, '=') + 1);
    for (int64_t i = 0; pieces[i].by; i++) {
        syn_alloc(s, (struct syn_alloc){.address = i,
                                        .bytes = pieces[i].gib * SYN_GIB,
                                        .at = 1 + i,
                                        .life = SYN_LIVE,
                                        .stack = stack_of(s, pieces[i].by)});
    }
    return syn_report(s, &options);
}

static void test_in_advance(void **state)
{
    (void)state;
    static const struct {
        const char *set, *owner, *has;
        bool in_advance;
        struct piece pieces[3];
    } table[] = {
        {NULL, "JAX", "JAX preallocated 70 % of GPU 0, 7.00 GiB in one allocation (its default", true, {{jax, 7}}},
        {"XLA_PYTHON_CLIENT_MEM_FRACTION=.70", "JAX", "(set by XLA_PYTHON_CLIENT_MEM_FRACTION=.70)", true, {{jax, 7}}},
        {"XLA_PYTHON_CLIENT_PREALLOCATE=true", "JAX", "preallocated", true, {{jax, 7}}},
        /* then this much was requested */
        {"XLA_PYTHON_CLIENT_PREALLOCATE=false", "JAX", "JAX held up to 7.00 GiB", false, {{jax, 7}}},
        {"XLA_PYTHON_CLIENT_PREALLOCATE=0", "JAX", "JAX held up to 7.00 GiB", false, {{jax, 7}}},
        {NULL, "JAX", "JAX held up to 6.00 GiB", false, {{jax, 3}, {jax, 3}}},
        {"XLA_PYTHON_CLIENT_MEM_FRACTION=.35", "JAX", "JAX preallocated 30 % of GPU 0", true, {{jax, 3}}},
        {NULL, "RMM", "RMM preallocated 30 % of GPU 0", true, {{rmm, 3}}},
        {NULL, NULL, NULL, false, {{rmm_plain, 3}}},
        {NULL, "RMM", "RMM held up to 4.00 GiB", false, {{rmm, 1}, {rmm, 3}}},
        {"XLA_PYTHON_CLIENT_ALLOCATOR=platform", NULL, NULL, false, {{jax, 3}}},
        {NULL, "TensorFlow", "preallocated", true, {{tensorflow, 8}}},
        {"TF_FORCE_GPU_ALLOW_GROWTH=true", "TensorFlow", "held up to", false, {{tensorflow, 8}}},
        {NULL, "CuPy", "CuPy held up to 9.00 GiB of GPU 0 (its pool keeps", false, {{cupy, 9}}},
        /* a program may allocate everything at once and use it */
        {NULL, NULL, NULL, false, {{program, 9}}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct syn s;
        struct result_report *r = taken(&s, table[i].set, table[i].pieces);
        assert_int_equal(r->preallocations_n, table[i].owner != NULL);
        if (table[i].owner) {
            const struct result_preallocation *p = r->preallocations;
            assert_string_equal(p->owner, table[i].owner);
            assert_int_equal(p->in_advance, table[i].in_advance);
            assert_int_equal(p->site.line, 9);
            if (!strstr(p->sentence, table[i].has)) fail_msg("case %zu: %s", i, p->sentence);
        }
        syn_close(r);
        syn_end(&s);
    }
}

/* If a pool is already limited, a limit is not advised again. */
static void test_a_bound_that_is_set(void **state)
{
    (void)state;
    struct syn s;
    static const struct piece pieces[] = {{cupy, 5}, {NULL, 0}};
    struct result_report *r = taken(&s, "CUPY_GPU_MEMORY_LIMIT=60%", pieces);
    assert_null(r->preallocations[0].advice);
    syn_close(r);
    syn_end(&s);
    static const struct piece all[] = {{jax, 8}, {NULL, 0}};
    r = taken(&s, "XLA_CLIENT_MEM_FRACTION=.8", all);
    assert_non_null(strstr(r->preallocations[0].advice, "lower XLA_CLIENT_MEM_FRACTION, or: "));
    assert_null(strstr(r->preallocations[0].advice, "MEM_FRACTION=.50"));
    syn_close(r);
    syn_end(&s);
    r = taken(&s, NULL, pieces);
    assert_non_null(strstr(r->preallocations[0].advice, "free_all_blocks"));
    syn_close(r);
    syn_end(&s);
}

/* Tensors that form a pool themselves: vLLM's cache. */
static void test_within_tensors(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, SYN_S, 1);
    syn_device(&s, 0, 10 * SYN_GIB, 10 * SYN_GIB);
    int64_t serve = syn_python(&s, 0, "main", "/home/u/serve.py", 9),
            cache = syn_python(&s, serve, "GPUModelRunner._allocate_kv_cache_tensors",
                               LIB "vllm/v1/worker/gpu_model_runner.py", 4000),
            weights = syn_python(&s, serve, "Worker.load_model", LIB "vllm/v1/worker/gpu_worker.py", 300);
    for (int i = 0; i < 6; i++) {
        syn_alloc(&s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                         .address = i,
                                         .bytes = SYN_GIB,
                                         .at = 1 + i,
                                         .life = SYN_LIVE,
                                         .stack = i < 2 ? weights : cache});
    }
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->preallocations_n, 1);
    const struct result_preallocation *p = r->preallocations;
    assert_string_equal(p->owner, "vLLM");
    assert_int_equal(p->bytes, 4 * SYN_GIB);
    assert_true(p->within && p->in_advance);
    assert_non_null(strstr(p->sentence, "vLLM preallocated 40 % of GPU 0"));
    syn_close(r);
    syn_end(&s);
}

CASES(test_by_frames, test_sums, test_by_totals, test_in_advance, test_a_bound_that_is_set, test_within_tensors)
