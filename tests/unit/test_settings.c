/* PyTorch's settings: as requested, as observed, and unknown. */
#include "tests/cases.h"
#include <math.h>
#include "analyzer/run/settings.h"
#include "tests/unit/synthetic.h"

static void conf_values(void **state)
{
    (void)state;
    static const struct {
        const char *conf, *key, *value;
    } rows[] = {
        {"backend:native", "backend", "native"},
        {"backend:native", "back", NULL},
        {"backend", "backend", NULL},
        {"", "backend", NULL},
        {",,:,", "", ""},
        {" expandable_segments : True ,x:1", "expandable_segments", "True"},
        {"roundup_power2_divisions:[256:1,512:2,>:8],max_split_size_mb:64", "roundup_power2_divisions",
         "[256:1,512:2,>:8]"},
        {"roundup_power2_divisions:[256:1,512:2,>:8],max_split_size_mb:64", "max_split_size_mb", "64"},
        {"roundup_power2_divisions:[256:1,512:2", "512", NULL}, /* without closing brackets */
        {"a:1],b:2", "b", "2"},
        {"a:1,a:2", "a", "2"}, /* the last one counts */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *value = NULL;
        size_t length = 0;
        bool found = run_conf_value(rows[i].conf, rows[i].key, &value, &length);
        assert_int_equal(found, rows[i].value != NULL);
        if (found) {
            assert_int_equal(length, strlen(rows[i].value));
            assert_memory_equal(value, rows[i].value, length);
        }
    }
}

struct world { /* a recording, and the run opened from it */
    struct syn s;
    struct run *run;
};

static void begin(struct world *w, bool known)
{
    syn_start(&w->s);
    syn_process(&w->s, "run", 1, SYN_S, 1);
    if (known) syn_sql(&w->s, "INSERT INTO meta VALUES('env','')");
}

static void set(struct world *w, const char *name, const char *value)
{
    syn_sql(&w->s, "INSERT INTO meta VALUES('env.' || %Q,%Q)", name, value);
}

static void mapped_from(struct world *w, int64_t stack)
{
    syn_sql(&w->s,
            "INSERT INTO mapping(process_id,allocation_id,device,address,bytes,offset,map_ns,stack_id) "
            "VALUES(1,1,0,4096,4096,0,5,nullif(%lld,0))",
            (long long)stack);
}

static struct run_torch_settings answer(struct world *w)
{
    char error[512] = "";
    const char *path = w->s.path;
    syn_done(&w->s);
    w->run = run_open(&path, 1, NULL, error, sizeof error);
    if (!w->run) fail_msg("%s", error);
    return run_torch_settings(w->run, 0);
}

static void end(struct world *w)
{
    run_close(w->run);
    syn_end(&w->s);
}

static void nothing_set(void **state)
{
    (void)state;
    struct world w;
    begin(&w, true);
    struct run_torch_settings t = answer(&w);
    assert_true(t.known);
    assert_null(t.text);
    assert_int_equal(t.expandable, RUN_NO);
    assert_int_equal(t.backend, RUN_BACKEND_NATIVE);
    assert_int_equal(t.max_split_bytes, 0);
    assert_true(t.gc_threshold == 0);
    end(&w);
}

static void old_recording(void **state)
{
    (void)state;
    struct world w;
    begin(&w, false);
    struct run_torch_settings t = answer(&w);
    assert_false(t.known);
    assert_int_equal(t.expandable, RUN_UNSURE);
    assert_int_equal(t.backend, RUN_BACKEND_UNKNOWN);
    assert_true(t.max_split_bytes == RUN_UNKNOWN);
    assert_true(isnan(t.gc_threshold));
    end(&w);
}

static void all_set(void **state)
{
    (void)state;
    struct world w;
    begin(&w, true);
    set(&w, "PYTORCH_CUDA_ALLOC_CONF",
        "max_split_size_mb:128,garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,>:4],"
        "expandable_segments:True,backend:cudaMallocAsync");
    set(&w, "CUDA_LAUNCH_BLOCKING", "1");
    struct run_torch_settings t = answer(&w);
    assert_string_equal(t.variable, "PYTORCH_CUDA_ALLOC_CONF");
    assert_int_equal(t.expandable, RUN_YES);
    assert_int_equal(t.backend, RUN_BACKEND_ASYNC);
    assert_int_equal(t.max_split_bytes, 128 * SYN_MIB);
    assert_true(t.gc_threshold == 0.8);
    assert_string_equal(run_setting_value(w.run, 0, "CUDA_LAUNCH_BLOCKING"), "1");
    assert_null(run_setting_value(w.run, 0, "NCCL_BUFFSIZE"));
    assert_null(run_setting_value(w.run, 1, "CUDA_LAUNCH_BLOCKING"));
    end(&w);
}

static void seen_wins(void **state)
{
    (void)state;
    struct world w;
    begin(&w, true);
    set(&w, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False");
    mapped_from(&w, syn_native(&w.s, 0, "/site-packages/torch/lib/libc10_cuda.so", 4));
    struct run_torch_settings t = answer(&w);
    assert_int_equal(t.expandable, RUN_YES); /* _set_allocator_settings, at run time */
    end(&w);
}

static void mapped_by_others(void **state)
{
    (void)state;
    struct world w;
    begin(&w, true);
    mapped_from(&w, syn_native(&w.s, 0, "/lib/libnccl.so.2", 4));
    assert_int_equal(answer(&w).expandable, RUN_NO);
    end(&w);
    begin(&w, true);
    mapped_from(&w, 0); /* the mapping library is unknown */
    assert_int_equal(answer(&w).expandable, RUN_UNSURE);
    end(&w);
}

/* Which of the two has priority depends on the version. */
static void both_variables(void **state)
{
    (void)state;
    struct world w;
    begin(&w, true);
    set(&w, "PYTORCH_CUDA_ALLOC_CONF", "backend:native,max_split_size_mb:64");
    set(&w, "PYTORCH_ALLOC_CONF", "backend:native,max_split_size_mb:32,expandable_segments:True");
    struct run_torch_settings t = answer(&w);
    assert_int_equal(t.backend, RUN_BACKEND_NATIVE);
    assert_true(t.max_split_bytes == RUN_UNKNOWN);
    assert_int_equal(t.expandable, RUN_UNSURE);
    assert_true(t.gc_threshold == 0);
    end(&w);
}

/* PyTorch refuses an unknown key, which shows what each version reads. */
static void one_of_both_variables(void **state)
{
    static const struct {
        const char *version, *cuda, *variable;
    } cases[] = {{"2.6.0", "max_split_size_mb:64", "PYTORCH_CUDA_ALLOC_CONF"},
                 {"2.11.0+cu130", "max_split_size_mb:64", "PYTORCH_CUDA_ALLOC_CONF"},
                 {"2.8.0", NULL, NULL},
                 {"2.9.1", NULL, "PYTORCH_ALLOC_CONF"},
                 {"2.15.0", NULL, "PYTORCH_ALLOC_CONF"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        begin(&w, true);
        syn_sql(&w.s, "INSERT INTO meta VALUES('torch_version',%Q)", cases[i].version);
        if (cases[i].cuda) set(&w, "PYTORCH_CUDA_ALLOC_CONF", cases[i].cuda);
        set(&w, "PYTORCH_ALLOC_CONF", "max_split_size_mb:32");
        const struct run_torch_settings t = answer(&w);
        assert_true(!t.variable == !cases[i].variable);
        if (t.variable) assert_string_equal(t.variable, cases[i].variable);
        assert_true(t.max_split_bytes == (cases[i].cuda ? 64 : cases[i].variable ? 32 : 0) * SYN_MIB);
        end(&w);
    }
}

static void no_caching(void **state)
{
    (void)state;
    struct world w;
    begin(&w, true);
    set(&w, "PYTORCH_NO_CUDA_MEMORY_CACHING", "");
    assert_int_equal(answer(&w).backend, RUN_BACKEND_NONE);
    end(&w);
}

CASES(conf_values, nothing_set, old_recording, all_set, seen_wins, mapped_by_others, both_variables,
      one_of_both_variables, no_caching)
