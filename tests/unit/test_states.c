/* Memory that does not depend on the batch: optimizers by the shapes of tensors, adapters, copies, the fixed parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/estimate/adapters.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/optimizer.h"
#include "analyzer/estimate/quantisation.h"

static struct estimate_result r;

static void preset(const char *name, struct model *m, struct plan *p)
{
    int exit_code;

    assert_true(model_from_name("test", name, m, &exit_code));
    *p = (struct plan)PLAN_DEFAULT;
    p->model = m;
    p->optimizer = estimate_optimizer("adamw");
    p->precision = estimate_precision("bf16");
}

static const struct estimate_line *line(const struct plan *p, enum estimate_part part, const char *name)
{
    assert_true(plan_check("test", p));
    assert_true(estimate_make(p, &r));
    for (size_t i = 0; i < r.lines_n; i++)
        if (r.lines[i].part == part && strstr(r.lines[i].name, name)) return &r.lines[i];
    return NULL;
}

static double bytes(const struct plan *p, enum estimate_part part, const char *name)
{
    const struct estimate_line *l = line(p, part, name);

    assert_non_null(l);
    return l->bytes.likely;
}

/* peft's print_trainable_parameters. */
static void adapters_have_the_published_counts(void **state)
{
    static const struct {
        const char *model;
        unsigned targets;
        uint64_t rank, params;
    } rows[] = {
        {"llama-2-7b", PLAN_QUERIES | PLAN_VALUES, 8, 4194304},
        {"llama-2-13b", PLAN_QUERIES | PLAN_VALUES, 8, 6553600},
        {"llama-3-8b", PLAN_LINEAR, 16, 41943040},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model m;
        struct plan p;
        preset(rows[i].model, &m, &p);
        p.adapter = PLAN_ADAPTER_LORA;
        p.targets = rows[i].targets;
        p.rank = rows[i].rank;
        assert_true(bytes(&p, ESTIMATE_ADAPTERS, "adapters") == 4.0 * (double)rows[i].params);
        assert_true(bytes(&p, ESTIMATE_GRADIENTS, "adapters") == 4.0 * (double)rows[i].params);
        assert_true(bytes(&p, ESTIMATE_OPTIMIZER, "adapters") == 8.0 * (double)rows[i].params);
        assert_true(bytes(&p, ESTIMATE_WEIGHTS, "frozen") == 2.0 * (double)m.params);
        model_free(&m);
    }
}

static void frozen_weights_are_quantised_but_for_what_loaders_leave(void **state)
{
    struct model m;
    struct plan p;
    const double kept = 2 * 128256 * 4096.0 + 65 * 4096;

    (void)state;
    preset("llama-3-8b", &m, &p);
    p.adapter = PLAN_ADAPTER_LORA;
    p.weights = estimate_quantisation_find("nf4");
    assert_true(bytes(&p, ESTIMATE_WEIGHTS, "not quantised") == 2 * kept);
    assert_true(bytes(&p, ESTIMATE_WEIGHTS, "nf4") == ((double)m.params - kept) * 4.5 / 8);
    assert_true(bytes(&p, ESTIMATE_TEMPORARIES, "one matrix") == 2.0 * 4096 * 14336);
    p.adapter = PLAN_ADAPTER_DORA;
    assert_true(bytes(&p, ESTIMATE_ADAPTERS, "adapters") ==
                4.0 * (41943040 + 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096)));
    model_free(&m);
}

/* Bytes of one tensor's states. */
static double of(const char *optimizer, enum model_tensor_role role, unsigned dims, double rows, double cols)
{
    struct model_tensor t = {
        .role = role, .place = role == TENSOR_EMBEDDING ? TENSOR_BEFORE : TENSOR_IN_LAYER, .dims = dims};

    return estimate_optimizer_tensor(estimate_any_optimizer(optimizer), &t, rows, cols, 4, 128).likely;
}

static void states_follow_the_form_of_tensors(void **state)
{
    (void)state;
    assert_true(of("adam8bit", TENSOR_MLP, 2, 4096, 4096) == 4096.0 * 4096 * 2.03125);
    assert_true(of("adam8bit", TENSOR_NORM, 1, 4095, 1) == 4095 * 8.0);            /* too small: float32 */
    assert_true(of("adam8bit", TENSOR_NORM, 1, 4097, 1) == 2 * (4097 + 17 * 4.0)); /* 17 blocks */
    assert_true(of("adamw4bit", TENSOR_MLP, 2, 4096, 128) == 4096.0 * 128 * 1.0625);
    assert_true(of("adamw4bit", TENSOR_NORM, 1, 5000, 1) == 5000 * 8.0); /* no whole number of blocks of 128 */
    assert_true(of("adafactor", TENSOR_MLP, 2, 4096, 11008) == 4 * (4096 + 11008.0));
    assert_true(of("adafactor", TENSOR_NORM, 1, 4096, 1) == 4 * 4096.0);
    assert_true(of("muon", TENSOR_MLP, 2, 64, 32) == 4 * 2048.0);
    assert_true(of("muon", TENSOR_EMBEDDING, 2, 64, 32) == 8 * 2048.0);
    assert_true(of("muon", TENSOR_NORM, 1, 64, 1) == 8 * 64.0);
    assert_true(of("soap", TENSOR_MLP, 2, 100, 50) == 8 * 5000.0 + 8 * (10000 + 2500.0));
    assert_true(of("soap", TENSOR_EMBEDDING, 2, 50257, 50) == 8 * 50257 * 50.0 + 8 * 2500.0);
    assert_true(of("galore", TENSOR_ATTENTION, 2, 1024, 4096) == 4 * (2 * 128 * 4096 + 128 * 1024.0));
    assert_true(of("galore", TENSOR_NORM, 1, 4096, 1) == 8 * 4096.0);
    assert_true(of("paged-adamw8bit", TENSOR_MLP, 2, 4096, 4096) == 4096.0 * 4096 * 2.03125);
}

/* A step needs a copy of all tensors, no copy, or a copy of one tensor. */
static void steps_take_what_pytorch_does(void **state)
{
    struct model m;
    struct plan p;
    const double largest = 50257 * 768.0;

    (void)state;
    preset("gpt2", &m, &p);
    p.precision = estimate_precision("fp32");
    assert_true(bytes(&p, ESTIMATE_TEMPORARIES, "optimizer step") == 4 * 124439808.0);
    p.step = PLAN_STEP_LOOP;
    assert_true(bytes(&p, ESTIMATE_TEMPORARIES, "optimizer step") == 2 * 4 * largest);
    p.step = PLAN_STEP_FUSED;
    assert_null(line(&p, ESTIMATE_TEMPORARIES, "optimizer step"));
    p.optimizer = estimate_optimizer("rmsprop"); /* has no fused kernel */
    assert_true(bytes(&p, ESTIMATE_TEMPORARIES, "optimizer step") == 4 * 124439808.0);
    model_free(&m);
}

static void autocast_copies_what_is_multiplied_with(void **state)
{
    struct model m;
    struct plan p;
    const struct estimate_line *l;
    const double norms = 25 * 768 * 2.0;

    (void)state;
    preset("gpt2", &m, &p);
    p.precision = estimate_precision("amp-bf16");
    l = line(&p, ESTIMATE_TEMPORARIES, "autocast's 16-bit weights"); /* positions and norms are not */
    assert_non_null(l);
    assert_true(l->phases == IN_PHASE(FORWARD));
    assert_true(l->bytes.low == 2 * (124439808 - 1024 * 768 - norms));
    p.precision = estimate_precision("tf32");
    assert_null(line(&p, ESTIMATE_TEMPORARIES, "autocast"));
    p.precision = estimate_precision("fp8");
    assert_true(line(&p, ESTIMATE_TEMPORARIES, "float8")->bytes.likely == 2 * 12 * 12 * 768 * 768.0);
    model_free(&m);
}

static void gradients_live_on_between_passes(void **state)
{
    struct model m;
    struct plan p;

    (void)state;
    preset("gpt2", &m, &p);
    assert_false(line(&p, ESTIMATE_GRADIENTS, "")->phases & IN_PHASE(FORWARD));
    p.accumulation = 4;
    assert_true(line(&p, ESTIMATE_GRADIENTS, "")->phases == IN_TRAINING);
    p.gpus = 2;
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "DDP") == 2 * 124439808.0);
    p.bucket_view = true;
    assert_null(line(&p, ESTIMATE_BUCKETS, "DDP"));
    model_free(&m);
}

static void offloaded_states_are_the_hosts(void **state)
{
    struct model m;
    struct plan p;

    (void)state;
    preset("llama-2-7b", &m, &p);
    p.master_weights = true;
    p.gpus = 8;
    p.sharding = PLAN_SHARDING_ZERO3;
    p.offload = PLAN_OFFLOAD_OPTIMIZER;
    assert_true(line(&p, ESTIMATE_OPTIMIZER, "")->host && line(&p, ESTIMATE_MASTER, "")->host);
    assert_true(line(&p, ESTIMATE_GRADIENTS, "")->host && !line(&p, ESTIMATE_WEIGHTS, "")->host);
    assert_null(line(&p, ESTIMATE_TEMPORARIES, "optimizer step"));
    p.offload = PLAN_OFFLOAD_ALL;
    assert_true(line(&p, ESTIMATE_WEIGHTS, "")->host);
    model_free(&m);
}

/* 18 bytes per parameter, from Megatron-LM's report: 2 + 4 + 12, also during the step. */
static void gradients_of_bfloat16_are_summed_up_in_float32(void **state)
{
    struct model m;
    struct plan p;

    (void)state;
    preset("gpt3-175b", &m, &p);
    p.master_weights = true;
    p.step = PLAN_STEP_FUSED;
    p.tp = p.pp = 8;
    p.gpus = 64;
    p.accumulation = 8;
    assert_true(line(&p, ESTIMATE_GRADIENTS, "float32")->phases == IN_TRAINING);
    assert_true(bytes(&p, ESTIMATE_GRADIENTS, "float32") == bytes(&p, ESTIMATE_WEIGHTS, ""));
    assert_true(bytes(&p, ESTIMATE_TEMPORARIES, "gradients in float32") == 0);
    p.precision = estimate_precision("fp16"); /* converted for the step */
    assert_true(bytes(&p, ESTIMATE_GRADIENTS, "float32") == 0);
    assert_true(bytes(&p, ESTIMATE_TEMPORARIES, "gradients in float32") == 2 * bytes(&p, ESTIMATE_WEIGHTS, ""));
    p.precision = estimate_precision("bf16");
    p.tp = p.pp = 1;
    assert_true(line(&p, ESTIMATE_GRADIENTS, "float32")->bytes.high == 2 * 174604259328.0);
    assert_true(bytes(&p, ESTIMATE_GRADIENTS, "float32") == 0);
    assert_true(bytes(&p, ESTIMATE_TEMPORARIES, "gradients in float32") == 6 * 174604259328.0); /* and a flat copy */
    p.sharding = PLAN_SHARDING_ZERO3; /* DeepSpeed's sub_group_size */
    assert_true(bytes(&p, ESTIMATE_TEMPORARIES, "gradients in float32") == 6e9);
    p.sharding = PLAN_SHARDING_ZERO2;
    p.offload = PLAN_OFFLOAD_OPTIMIZER;
    assert_null(line(&p, ESTIMATE_GRADIENTS, "float32"));
    model_free(&m);
}

/* A single GPU has no other GPU to gather from, but has no weights of its own if all are on the host. */
static void offloaded_weights_are_also_copied_to_a_single_gpu(void **state)
{
    struct model m;
    struct plan p;
    double layer = 202383360, outside = 2 * 32000 * 4096.0 + 4096;

    (void)state;
    preset("llama-2-7b", &m, &p);
    p.sharding = PLAN_SHARDING_ZERO3;
    assert_null(line(&p, ESTIMATE_BUCKETS, "gathered"));
    p.offload = PLAN_OFFLOAD_OPTIMIZER;
    assert_null(line(&p, ESTIMATE_BUCKETS, "gathered"));
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "reduced") == 2 * 2 * outside);
    p.offload = PLAN_OFFLOAD_ALL;
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "gathered") == 2 * (outside + 2 * layer));
    p.gpus = 8; /* its own eighth is on the host too */
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "gathered") == 2 * (outside + 2 * layer));
    p.gpus = 1;
    p.adapter = PLAN_ADAPTER_LORA;
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "gathered") == 2 * (outside + 2 * layer));
    model_free(&m);
}

/* FSDP's SHARD_GRAD_OP gathers sharded units until backward is over; DeepSpeed's ZeRO 2, with master weights, has whole
 * weights. FULL_SHARD has the root unit whole while the loss is computed, and additionally layers if they need more. */
static void units_are_gathered_when_they_run(void **state)
{
    struct model m;
    struct plan p;
    double all, layer = 202383360, outside = 2 * 32000 * 4096.0 + 4096;

    (void)state;
    preset("llama-2-7b", &m, &p);
    all = 2.0 * (double)m.params;
    p.gpus = 8;
    p.sharding = PLAN_SHARDING_ZERO2;
    assert_true(bytes(&p, ESTIMATE_WEIGHTS, "") == all / 8);
    assert_true(line(&p, ESTIMATE_BUCKETS, "gathered weights")->phases == IN_PHASE(FORWARD));
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "gathered weights") == all);
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "of the first layer") == 2 * (outside + layer));
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "stay whole") == 0);
    p.master_weights = true;
    assert_true(bytes(&p, ESTIMATE_WEIGHTS, "") == all);
    assert_null(line(&p, ESTIMATE_BUCKETS, "gathered"));
    p.master_weights = false;
    p.sharding = PLAN_SHARDING_ZERO3;
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "gathered weights") == 2 * (outside + 2 * layer));
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "first gradients") == 2 * 2 * layer);
    p.batch = 8;
    p.seq = 4096; /* logits of 4 GiB */
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "gathered weights") == 2 * outside);
    assert_true(bytes(&p, ESTIMATE_BUCKETS, "first gradients") == 0);
    model_free(&m);
}

/* Adapters are float32 with 16-bit weights, and so are the buffers of their step; frozen weights are in no cache. */
static void the_step_of_adapters_is_float32(void **state)
{
    struct model m;
    struct plan p;

    (void)state;
    preset("llama-3-8b", &m, &p);
    p.adapter = PLAN_ADAPTER_LORA;
    assert_true(bytes(&p, ESTIMATE_TEMPORARIES, "optimizer step") == 4 * 41943040.0);
    p.precision = estimate_precision("amp-bf16");
    assert_non_null(line(&p, ESTIMATE_TEMPORARIES, "autocast's 16-bit weights"));
    assert_null(line(&p, ESTIMATE_TEMPORARIES, "autocast's cache"));
    model_free(&m);
}

/* DeepSeek-V3's first three layers have no experts: with 16 stages, they fill the first one. */
static void a_stage_between_can_be_the_fullest(void **state)
{
    struct model m;
    struct plan p;

    (void)state;
    preset("deepseek-v3", &m, &p);
    p.pp = p.gpus = 16;
    assert_true(estimate_make(&p, &r) && r.stage == 1);
    assert_true(estimate_local_params(&p, 0).experts == 0 && estimate_local_params(&p, 1).experts > 0);
    p.pp = p.gpus = 2;
    assert_true(estimate_make(&p, &r) && r.stage < 2);
    model_free(&m);
    preset("llama-3-8b", &m, &p);
    p.pp = p.gpus = 16;
    assert_true(estimate_make(&p, &r) && (r.stage == 0 || r.stage == 15));
    model_free(&m);
}

static void workspaces_are_the_gpus(void **state)
{
    struct model m;
    struct plan p;

    (void)state;
    preset("gpt2", &m, &p);
    p.gpu = estimate_gpu_find("a100-80g");
    assert_true(bytes(&p, ESTIMATE_WORKSPACE, "cuBLAS") == 2 * 8519680.0);
    p.gpu = estimate_gpu_find("h100-80g");
    assert_true(bytes(&p, ESTIMATE_WORKSPACE, "cuBLAS") == 2 * 33554432.0);
    assert_null(line(&p, ESTIMATE_COMMUNICATION, ""));
    p.gpus = 8;
    assert_non_null(line(&p, ESTIMATE_COMMUNICATION, "NCCL"));
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_have_the_published_counts),
        cmocka_unit_test(frozen_weights_are_quantised_but_for_what_loaders_leave),
        cmocka_unit_test(states_follow_the_form_of_tensors),
        cmocka_unit_test(steps_take_what_pytorch_does),
        cmocka_unit_test(autocast_copies_what_is_multiplied_with),
        cmocka_unit_test(gradients_live_on_between_passes),
        cmocka_unit_test(offloaded_states_are_the_hosts),
        cmocka_unit_test(gradients_of_bfloat16_are_summed_up_in_float32),
        cmocka_unit_test(offloaded_weights_are_also_copied_to_a_single_gpu),
        cmocka_unit_test(units_are_gathered_when_they_run),
        cmocka_unit_test(the_step_of_adapters_is_float32),
        cmocka_unit_test(a_stage_between_can_be_the_fullest),
        cmocka_unit_test(workspaces_are_the_gpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
