/* Times of transfers: examples from tutorials, and the volumes in published papers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/quantisation.h"
#include "analyzer/estimate/wires.h"

static void near(double is, double should)
{
    if (!(fabs(is - should) <= 1e-9 * fabs(should))) fail_msg("%.12g is not %.12g", is, should);
}

static struct estimate_wire one(enum estimate_wire_kind kind, double bytes, uint64_t n, double rate, uint64_t per_node,
                                double network)
{
    struct estimate_wire_links l = {.node = rate, .network = network, .host = rate, .per_node = per_node};
    struct estimate_wire w = {.kind = kind, .bytes = bytes, .n = n};

    estimate_wire_time(&l, 1, &w);
    return w;
}

/* 7e9 parameters in float32 are 28 GB: 875 ms at 32 GB/s, 93.3 ms at 300 GB/s; among 8 as a ring 1531 and 163.3. */
static void seven_billion_in_float32(void **state)
{
    struct estimate_wire slow = one(WIRE_ALL_REDUCE, 28e9, 8, 32e9, 0, 0),
                         fast = one(WIRE_ALL_REDUCE, 28e9, 8, 300e9, 0, 0);

    near(slow.one_pass_s, 0.875);
    near(slow.ring_s, 1.53125);
    near(fast.one_pass_s, 28e9 / 300e9);
    assert_true(round(fast.one_pass_s * 1e4) == 933 && round(fast.ring_s * 1e4) == 1633);
    near(one(WIRE_REDUCE_SCATTER, 28e9, 8, 32e9, 0, 0).ring_s, 0.765625);
    near(one(WIRE_ALL_GATHER, 28e9, 8, 32e9, 0, 0).ring_s, 0.765625);
    near(one(WIRE_ALL_TO_ALL, 28e9, 8, 32e9, 0, 0).ring_s, 0.765625);
    near(one(WIRE_SEND, 28e9, 8, 32e9, 0, 0).ring_s, 0.875);
    near(one(WIRE_TO_GPU, 28e9, 1, 32e9, 0, 0).ring_s, 0.875);
}

static void an_all_reduce_is_a_scatter_and_a_gather(void **state)
{
    for (uint64_t n = 1; n <= 4096; n = n * 3 + 1)
        for (uint64_t per_node = 0; per_node <= 16; per_node += 4)
            near(one(WIRE_ALL_REDUCE, 1e9, n, 3e11, per_node, 5e10).ring_s,
                 2 * one(WIRE_REDUCE_SCATTER, 1e9, n, 3e11, per_node, 5e10).ring_s);
    near(one(WIRE_ALL_REDUCE, 1e9, 1, 3e11, 0, 0).ring_s, 0);
}

/* 16 GPUs in 2 machines: 7/8 of S inside, then 1/2 of S/8 on each network card, and all of it back. */
static void across_machines_each_gpu_sends_its_part(void **state)
{
    struct estimate_wire w = one(WIRE_ALL_REDUCE, 16e9, 16, 400e9, 8, 50e9);

    assert_int_equal(w.nodes, 2);
    near(w.ring_s, 2 * (7. / 8 * 16e9 / 400e9 + 0.5 * 2e9 / 50e9));
    near(w.one_pass_s, 16e9 / 50e9);                    /* over the slowest link */
    w = one(WIRE_ALL_REDUCE, 16e9, 16, 400e9, 1, 50e9); /* a GPU per machine: a ring over the network */
    near(w.ring_s, 2 * 15. / 16 * 16e9 / 50e9);
    w = one(WIRE_ALL_TO_ALL, 16e9, 16, 400e9, 8, 50e9); /* half leaves the machine */
    near(w.ring_s, 0.5 * 16e9 / 50e9);
    near(w.factor, 0.5);
    w = one(WIRE_ALL_REDUCE, 16e9, 8, 400e9, 8, 50e9);
    assert_int_equal(w.nodes, 1);
    near(w.ring_s, 2 * 7. / 8 * 16e9 / 400e9);
    near(w.factor, 1.75);
    near(w.factor * w.one_pass_s, w.ring_s);
}

/* 12 GPUs in machines of 8: six in each. 9: four and five, and four network cards transfer everything. */
static void machines_that_are_not_full(void **state)
{
    struct estimate_wire w = one(WIRE_ALL_REDUCE, 12e9, 12, 400e9, 8, 50e9);

    assert_int_equal(w.nodes, 2);
    near(w.ring_s, 2 * (5. / 6 * 12e9 / 400e9 + 0.5 * 2e9 / 50e9));
    w = one(WIRE_REDUCE_SCATTER, 12e9, 9, 400e9, 8, 50e9);
    assert_int_equal(w.nodes, 2);
    near(w.ring_s, 3. / 4 * 12e9 / 400e9 + 0.5 * 3e9 / 50e9);
    assert_non_null(strstr(w.formula, "g 4, m 2"));
}

/* The links within a machine can be slower than the network: one pass is limited by them. */
static void a_network_that_is_faster_than_the_links(void **state)
{
    struct estimate_wire w = one(WIRE_ALL_REDUCE, 12e9, 12, 12.5e9, 2, 50e9);

    near(w.bandwidth, 12.5e9);
    near(w.one_pass_s, 12e9 / 12.5e9);
    near(w.ring_s, 2 * (0.5 * 12e9 / 12.5e9 + 5. / 6 * 6e9 / 50e9));
    assert_true(w.factor < 2);
    near(one(WIRE_SEND, 1e9, 12, 12.5e9, 2, 50e9).bandwidth, 50e9);
}

/* An all-to-all takes the time of the slower wire, and its formula states which: with a network as fast as the
 * machine's links, less stays in the machine than leaves it; with a far faster network, the links take longer. */
static void an_all_to_all_is_as_slow_as_its_slower_wire(void **state)
{
    struct estimate_wire w = one(WIRE_ALL_TO_ALL, 16e9, 16, 50e9, 8, 400e9);

    near(w.ring_s, 7. / 16 * 16e9 / 50e9);
    near(w.one_pass_s, 16e9 / 50e9);
    assert_non_null(strstr(w.formula, "(g-1)/n · S/B"));
    w = one(WIRE_ALL_TO_ALL, 16e9, 16, 400e9, 8, 50e9);
    assert_non_null(strstr(w.formula, "(n-g)/n · S/N"));
}

static void links_of_a_gpu(void **state)
{
    struct estimate_wire_links l = estimate_wires_links(estimate_gpu_find("h100"), 8, 0);

    near(l.node, 450e9);
    near(l.host, 50e9);
    assert_int_equal(l.per_node, 8);
    l = estimate_wires_links(estimate_gpu_find("a100-pcie"), 8, 0); /* a bridge connects two, not eight */
    near(l.node, 25e9);
    near(l.network, 25e9); /* not more than its PCIe allows */
    near(estimate_wires_links(estimate_gpu_find("h100"), 8, 0).network, 50e9);
    l = estimate_wires_links(estimate_gpu_find("rtx4090"), 2, 0);
    near(l.node, 25e9);
    assert_true(strstr(l.node_name, "PCIe") != NULL);
    l = estimate_wires_links(NULL, 8, 0);
    assert_true(l.assumed && l.node > 0 && l.host > 0);
}

/* ---------------------------------------------------------------- plans */

static struct model llama_8b(void)
{
    struct model m;

    model_from_count(8030261248, &m);
    m.shape = (struct model_shape){.family = MODEL_LLAMA,
                                   .layers = 32,
                                   .hidden = 4096,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .head_dim = 128,
                                   .ffn = 14336,
                                   .vocab = 128256};
    return m;
}

static struct plan plan_of(const struct model *m, const char *precision)
{
    struct plan p = PLAN_DEFAULT;

    p.model = m;
    p.precision = estimate_precision(precision);
    p.optimizer = estimate_optimizer("adamw");
    p.gpus_per_node = 8;
    return p;
}

static const struct estimate_wire *named(const struct estimate_wires *w, enum estimate_wire_kind kind, const char *part)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->rows[i].kind == kind && strstr(w->rows[i].name, part)) return &w->rows[i];
    return NULL;
}

/* Bytes that a GPU sends per step, by the ring's factors. */
static double volume(const struct estimate_wires *w)
{
    double sum = 0;

    for (size_t i = 0; i < w->n; i++)
        sum += w->rows[i].bytes * w->rows[i].times * (w->rows[i].kind == WIRE_ALL_REDUCE ? 2 : 1);
    return sum;
}

/* ZeRO's paper, section 7: with 16-bit gradients and weights, stages 1 and 2 transfer as much as plain data
 * parallelism, 2 per parameter; stage 3 1.5 times as much, 3. */
static void zero_transfers_what_its_paper_states(void **state)
{
    struct model m = llama_8b();
    struct plan p = plan_of(&m, "bf16");
    static const double per[] = {2, 2, 2, 3};
    struct estimate_wires w;

    p.gpus = 8;
    for (int stage = 0; stage <= 3; stage++) {
        p.sharding = (enum plan_sharding)stage;
        estimate_wires_build(&p, 0, &w);
        near(volume(&w), per[stage] * 2 * (double)m.params);
    }
    model_free(&m);
}

static void gradients_of_data_parallel_gpus(void **state)
{
    struct model m;
    struct estimate_wires w;

    model_from_count(7000000000, &m);
    struct plan p = plan_of(&m, "fp32");
    estimate_wires_build(&p, 0, &w);
    assert_int_equal(w.n, 0); /* one GPU: no transfers */
    p.gpus = 8;
    p.gpu = estimate_gpu_find("a100");
    p.accumulation = 4;
    estimate_wires_build(&p, 0, &w);
    assert_int_equal(w.n, 1);
    near(w.rows[0].bytes, 28e9);
    near(w.rows[0].times, 1); /* once per step, however many micro-batches */
    near(w.rows[0].ring_s, 28e9 / 300e9 * 1.75);
    near(w.sum_s, w.rows[0].ring_s);
    assert_int_equal(w.notes_n, 0);
    p.gpus = 16; /* two machines, and another network */
    estimate_wires_build(&p, 25e9, &w);
    near(w.rows[0].ring_s, 2 * (7. / 8 * 28e9 / 300e9 + 0.5 * 3.5e9 / 25e9));
    p.sharding = PLAN_SHARDING_ZERO3;
    estimate_wires_build(&p, 0, &w);
    assert_non_null(named(&w, WIRE_ALL_GATHER, "forward"));
    near(named(&w, WIRE_ALL_GATHER, "backward")->times, 4);
    near(named(&w, WIRE_REDUCE_SCATTER, "gradients")->times, 4);
    model_free(&m);
}

/* Megatron: two all-reduces of s·b·h per layer forward, two backward, two more if forward is computed again. With
 * sequence parallelism each is done as its two halves, and backward gathers the inputs of two layers again
 * (LinearWithGradAccumulationAndAsyncCommunication's backward), unless their weights are frozen. */
static void tensor_parallel_activations(void **state)
{
    struct model m = llama_8b();
    struct plan p = plan_of(&m, "bf16");
    struct estimate_wires w;

    p.gpus = p.tp = 8;
    p.batch = 2;
    p.seq = 4096;
    p.gpu = estimate_gpu_find("h100");
    estimate_wires_build(&p, 0, &w);
    const struct estimate_wire *r = named(&w, WIRE_ALL_REDUCE, "tensor parallel");
    assert_non_null(r);
    near(r->bytes, 2. * 4096 * 4096 * 2);
    near(r->times, 32 * 4);
    double whole = w.sum_s;
    p.sequence_parallel = true;
    estimate_wires_build(&p, 0, &w);
    near(named(&w, WIRE_ALL_GATHER, "tensor parallel")->times, 32 * 6);
    near(named(&w, WIRE_REDUCE_SCATTER, "tensor parallel")->times, 32 * 4);
    near(w.sum_s, 1.25 * whole);
    p.checkpoint = PLAN_CHECKPOINT_FULL;
    estimate_wires_build(&p, 0, &w);
    near(named(&w, WIRE_ALL_GATHER, "tensor parallel")->times, 32 * 8);
    near(named(&w, WIRE_REDUCE_SCATTER, "tensor parallel")->times, 32 * 6);
    p.checkpoint = PLAN_CHECKPOINT_SELECTIVE_OP; /* the result of reduce-scatter is kept */
    estimate_wires_build(&p, 0, &w);
    near(named(&w, WIRE_ALL_GATHER, "tensor parallel")->times, 32 * 8);
    near(named(&w, WIRE_REDUCE_SCATTER, "tensor parallel")->times, 32 * 4);
    p.checkpoint = PLAN_CHECKPOINT_FULL;
    p.sequence_parallel = false;
    estimate_wires_build(&p, 0, &w);
    near(w.sum_s, 1.5 * whole);
    assert_true(w.compute_s > 0);
    model_free(&m);
}

static void other_ways_to_divide(void **state)
{
    struct model m = llama_8b();
    struct plan p = plan_of(&m, "bf16");
    struct estimate_wires w;

    p.gpus = 32;
    p.pp = 2;
    p.cp = 4;
    p.batch = 1;
    p.seq = 8192;
    p.accumulation = 8;
    estimate_wires_build(&p, 0, &w);
    const struct estimate_wire *stage = named(&w, WIRE_SEND, "stage"), *ring = named(&w, WIRE_SEND, "context");
    assert_non_null(stage);
    near(stage->bytes, 8192. / 4 * 4096 * 2);
    near(stage->times, 2 * 8);
    assert_int_equal(stage->nodes, 2); /* stages are the outermost: in different machines */
    near(ring->bytes, 8192. / 4 * 2 * 8 * 128 * 2);
    near(ring->times, 3 * 16 * 8 * 3);
    assert_int_equal(named(&w, WIRE_ALL_REDUCE, "gradients")->n, 16); /* data and context parallel */
    p = plan_of(&m, "bf16");
    p.offload = PLAN_OFFLOAD_OPTIMIZER;
    p.gpu = estimate_gpu_find("rtx4090");
    estimate_wires_build(&p, 0, &w);
    near(named(&w, WIRE_TO_HOST, "gradients")->ring_s, 2. * (double)m.params / 25e9);
    near(named(&w, WIRE_TO_GPU, "weights")->ring_s, 2. * (double)m.params / 25e9);
    model_free(&m);
}

/* LoRA of rank 8 on Llama-2-7B's queries and values trains 4,194,304 parameters (peft's own count), in float32 beside
 * 16-bit weights; DoRA one number per row more. Frozen weights are transferred only if they are divided, as they are
 * stored. */
static void adapters_reduce_only_themselves(void **state)
{
    struct model m;
    int code = 0;
    struct estimate_wires w;

    assert_true(model_from_name("test", "llama-2-7b", &m, &code));
    struct plan p = plan_of(&m, "bf16");
    p.gpus = 8;
    p.adapter = PLAN_ADAPTER_LORA;
    p.rank = 8;
    p.targets = PLAN_QUERIES | PLAN_VALUES;
    estimate_wires_build(&p, 0, &w);
    assert_int_equal(w.n, 1);
    near(w.rows[0].bytes, 4194304 * 4.);
    p.adapter = PLAN_ADAPTER_DORA;
    estimate_wires_build(&p, 0, &w);
    near(w.rows[0].bytes, (4194304 + 64 * 4096) * 4.);
    p.adapter = PLAN_ADAPTER_LORA;
    p.sharding = PLAN_SHARDING_ZERO3;
    estimate_wires_build(&p, 0, &w);
    near(named(&w, WIRE_ALL_GATHER, "forward")->bytes, 6738415616 * 2. + 4194304 * 4.);
    p.weights = estimate_quantisation_find("nf4");
    assert_non_null(p.weights);
    estimate_wires_build(&p, 0, &w);
    assert_true(named(&w, WIRE_ALL_GATHER, "forward")->bytes < 0.35 * 6738415616 * 2);
    model_free(&m);
}

/* ViT-B/16: 196 patches and the class token, 768 wide; 17.56 G multiply-adds per image in forward (torchvision's
 * GFLOPS), including the patches' convolution with 16·16·3·768 for each. */
static void images_are_patches(void **state)
{
    struct model m;
    int code = 0;
    struct estimate_wires w;

    assert_true(model_from_name("test", "vit-b-16", &m, &code));
    struct plan p = plan_of(&m, "amp-bf16");
    p.gpus = p.tp = 2;
    p.batch = 64;
    p.gpu = estimate_gpu_find("a100");
    estimate_wires_build(&p, 0, &w);
    near(named(&w, WIRE_ALL_REDUCE, "tensor parallel")->bytes, 64. * 197 * 768 * 2);
    /* forward and backward, three times forward, on two GPUs */
    double forward = w.compute_s * 2 / 3 * 312e12 / 64 / 2;
    if (fabs(forward - 17.56e9) > 0.03 * 17.56e9) fail_msg("%.4g multiply-adds", forward);
    model_free(&m);
}

/* The type in which a GPU computes: T4 and V100 have no bfloat16 and use float32; frozen weights save a third of the
 * products with weights, and none of attention's. */
static void computation_and_its_type(void **state)
{
    struct model m;
    int code = 0;
    struct estimate_wires w;

    assert_true(model_from_name("test", "llama-2-7b", &m, &code));
    struct plan p = plan_of(&m, "amp-bf16");
    p.gpus = 2;
    p.batch = 1;
    p.seq = 4096;
    p.gpu = estimate_gpu_find("v100");
    estimate_wires_build(&p, 0, &w);
    assert_non_null(strstr(w.compute, "15.7 TFLOPS (fp32)"));
    p.precision = estimate_precision("amp-fp16");
    estimate_wires_build(&p, 0, &w);
    assert_non_null(strstr(w.compute, "125 TFLOPS (fp16)"));
    /* 6·(params - embedding) + 6·L·s·h a token */
    double weights = 6738415616. - 32000 * 4096., attention = 32. * 4096 * 4096;
    double all = w.compute_s;
    if (fabs(all - 6 * (weights + attention) * 4096 / 125e12) > 1e-3 * all) fail_msg("%.6g s", all);
    p.checkpoint =
        PLAN_CHECKPOINT_SELECTIVE_OP; /* k, the output's and the MLP's second product again; attention is kept */
    estimate_wires_build(&p, 0, &w);
    double again = 32. * 4096 * (4096 + 4096 + 11008);
    if (fabs(w.compute_s - (6 * (weights + attention) + 2 * again) * 4096 / 125e12) > 1e-3 * all)
        fail_msg("%.6g s with chosen operations", w.compute_s);
    p.checkpoint = PLAN_CHECKPOINT_NONE;
    p.adapter = PLAN_ADAPTER_LORA;
    estimate_wires_build(&p, 0, &w);
    if (fabs(w.compute_s - (4 * weights + 6 * attention) * 4096 / 125e12) > 1e-3 * all)
        fail_msg("%.6g s with frozen weights", w.compute_s);
    model_free(&m);
}

/* Serving: each token is sent to two of Mixtral's experts and back in each layer; one pass over the prompt is the sum.
 * */
static void served_experts_get_their_tokens(void **state)
{
    struct model m;
    int code = 0;
    struct estimate_wires w;

    assert_true(model_from_name("test", "mixtral-8x7b", &m, &code));
    struct plan p = plan_of(&m, "bf16");
    p.inference = true;
    p.gpus = p.ep = 8;
    p.batch = 1;
    p.seq = 4096;
    estimate_wires_build(&p, 0, &w);
    const struct estimate_wire *r = named(&w, WIRE_ALL_TO_ALL, "prompt");
    assert_non_null(r);
    near(r->bytes, 2. * 4096 * 4096 * 2);
    near(r->times, 32 * 2);
    near(w.sum_s, r->ring_s);
    near(named(&w, WIRE_ALL_TO_ALL, "one more token")->bytes, 2. * 4096 * 2);
    model_free(&m);
}

static uint64_t drawn;

static uint64_t draw(uint64_t n)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (drawn >> 33) % n;
}

/* For any plan: times are numbers, the sum is that of the rows, groups fit into the GPUs, a faster network takes no
 * longer, and ZeRO's third stage transfers no less than its first. */
static void any_plan(void **state)
{
    static const char *const names[] = {"gpt2",     "llama-3-8b", "mixtral-8x7b", "bert-base-uncased",
                                        "vit-b-16", "resnet-50"};
    static const char *const precisions[] = {"fp32", "amp-bf16", "bf16"};

    for (int i = 0; i < 3000; i++) {
        struct model m;
        int code = 0;
        struct estimate_wires w, faster;
        assert_true(model_from_name("test", names[draw(6)], &m, &code));
        struct plan p = plan_of(&m, precisions[draw(3)]);
        p.tp = (uint64_t)1 << draw(4), p.pp = (uint64_t)1 << draw(3), p.cp = (uint64_t)1 << draw(2);
        p.gpus = p.tp * p.pp * p.cp << draw(4);
        p.ep = m.shape.experts && plan_dp(&p) % 2 == 0 ? 2 : 1;
        p.gpus_per_node = draw(2) ? 8 : 0;
        p.batch = draw(5), p.seq = draw(2) * 2048, p.accumulation = 1 + draw(4);
        p.sequence_parallel = draw(2);
        p.inference = draw(8) == 0;
        p.checkpoint = (enum plan_checkpoint)draw(3);
        p.sharding = (enum plan_sharding)draw(4);
        p.offload = (enum plan_offload)draw(3);
        p.gpu = draw(3) ? &estimate_gpus[draw(estimate_gpu_count)] : NULL;
        double sum = 0, prompt = 0;
        estimate_wires_build(&p, 0, &w);
        for (size_t r = 0; r < w.n; r++) {
            const struct estimate_wire *row = &w.rows[r];
            if (!(isfinite(row->ring_s) && row->ring_s >= 0 && isfinite(row->one_pass_s) && row->bytes > 0))
                fail_msg("%s: %s %g", m.name, row->name, row->ring_s);
            assert_true(row->n >= 1 && row->n <= p.gpus && row->nodes >= 1 && row->nodes <= row->n && row->link);
            sum += row->ring_s;
            prompt += strstr(row->name, "one more token") ? 0 : row->ring_s;
        }
        assert_true(fabs(w.sum_s - (p.inference ? prompt : sum)) <= 1e-9 * sum);
        estimate_wires_build(&p, 2 * WIRES_NETWORK, &faster);
        assert_true(faster.sum_s <= w.sum_s && faster.n == w.n);
        if (p.gpus == 1 && p.offload == PLAN_OFFLOAD_NONE) assert_int_equal(w.n, 0);
        if (!p.inference && strcmp(p.precision->name, "bf16") == 0) {
            p.sharding = PLAN_SHARDING_ZERO1;
            estimate_wires_build(&p, 0, &w);
            p.sharding = PLAN_SHARDING_ZERO3;
            estimate_wires_build(&p, 0, &faster);
            assert_true(faster.sum_s >= w.sum_s);
        }
        model_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seven_billion_in_float32),
        cmocka_unit_test(an_all_reduce_is_a_scatter_and_a_gather),
        cmocka_unit_test(across_machines_each_gpu_sends_its_part),
        cmocka_unit_test(machines_that_are_not_full),
        cmocka_unit_test(a_network_that_is_faster_than_the_links),
        cmocka_unit_test(an_all_to_all_is_as_slow_as_its_slower_wire),
        cmocka_unit_test(links_of_a_gpu),
        cmocka_unit_test(zero_transfers_what_its_paper_states),
        cmocka_unit_test(gradients_of_data_parallel_gpus),
        cmocka_unit_test(tensor_parallel_activations),
        cmocka_unit_test(other_ways_to_divide),
        cmocka_unit_test(adapters_reduce_only_themselves),
        cmocka_unit_test(images_are_patches),
        cmocka_unit_test(computation_and_its_type),
        cmocka_unit_test(served_experts_get_their_tokens),
        cmocka_unit_test(any_plan),
    };

    return cmocka_run_group_tests_name("wires", tests, NULL, NULL);
}
