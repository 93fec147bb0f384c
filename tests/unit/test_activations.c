/* Activations, compared with published figures and with PyTorch's own counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/estimate/activations.h"

#define GIB 1073741824.0
#define MIB 1048576.0
#define LENGTH(a) (sizeof(a) / sizeof *(a))

/* Compares with a printed figure, rounded to its number of digits. */
static void printed(double bytes, double unit, int digits, double figure)
{
    char ours[32], theirs[32];

    snprintf(ours, sizeof ours, "%.*f", digits, bytes / unit);
    snprintf(theirs, sizeof theirs, "%.*f", digits, figure);
    assert_string_equal(ours, theirs);
}

enum korthikanti {
    KORTHIKANTI_TP,              /* sbh (10 + 24/t + 5as/(ht)); t = 1: 34 + 5as/h */
    KORTHIKANTI_TP_SP,           /* sbh (34 + 5as/h) / t */
    KORTHIKANTI_TP_SELECTIVE,    /* sbh (10 + 24/t) */
    KORTHIKANTI_TP_SP_SELECTIVE, /* 34 sbh / t */
    KORTHIKANTI_FULL             /* 2 sbh */
};

/* Bytes of one layer for one micro-batch, 16 bits: table 2 of Korthikanti et al. 2022. Sequence, micro-batch, hidden
 * size, heads, tensor-parallel GPUs. */
static double korthikanti_layer(enum korthikanti form, double s, double b, double h, double a, double t)
{
    double sbh = s * b * h, scores = 5 * a * s / h;

    switch (form) {
    case KORTHIKANTI_TP: return sbh * (10 + 24 / t + scores / t);
    case KORTHIKANTI_TP_SP: return sbh * (34 + scores) / t;
    case KORTHIKANTI_TP_SELECTIVE: return sbh * (10 + 24 / t);
    case KORTHIKANTI_TP_SP_SELECTIVE: return sbh * 34 / t;
    case KORTHIKANTI_FULL: break;
    }
    return 2 * sbh;
}

/* The configurations of table 3 of Korthikanti et al. 2022 with their formulas: GiB of one layer and of all layers. */
static void test_korthikanti(void **state)
{
    static const struct {
        double a, h, layers, b;
        double figures[4][2]; /* TP; TP and SP; both and selective; full */
    } models[] = {
        {64, 6144, 48, 4, {{1.2344, 59.25}, {.8242, 39.56}, {.1992, 9.56}, {.0938, 4.50}}},
        {96, 12288, 96, 1, {{.5391, 51.75}, {.3340, 32.06}, {.0996, 9.56}, {.0469, 4.50}}},
        {128, 20480, 105, 1, {{.8203, 86.13}, {.4785, 50.24}, {.1660, 17.43}, {.0781, 8.20}}},
        {160, 25600, 128, 1, {{1.0254, 131.25}, {.5981, 76.56}, {.2075, 26.56}, {.0977, 12.50}}},
    };
    static const enum korthikanti forms[] = {KORTHIKANTI_TP, KORTHIKANTI_TP_SP, KORTHIKANTI_TP_SP_SELECTIVE,
                                             KORTHIKANTI_FULL};

    (void)state;
    for (size_t i = 0; i < LENGTH(models); i++)
        for (size_t f = 0; f < LENGTH(forms); f++) {
            double one = korthikanti_layer(forms[f], 2048, models[i].b, models[i].h, models[i].a, 8);
            printed(one, GIB, 4, models[i].figures[f][0]);
            printed(one * models[i].layers, GIB, 2, models[i].figures[f][1]);
        }
    /* without parallelism the formulas are the same, 34 + 5as/h; selective is the same without the scores */
    assert_true(korthikanti_layer(KORTHIKANTI_TP, 2048, 1, 6144, 64, 1) ==
                korthikanti_layer(KORTHIKANTI_TP_SP, 2048, 1, 6144, 64, 1));
    assert_true(korthikanti_layer(KORTHIKANTI_TP_SELECTIVE, 2048, 1, 6144, 64, 8) == 2048 * 6144 * 13.0);
}

struct given {
    const char *model, *precision;
    enum plan_attention attention;
    enum plan_checkpoint checkpoint;
    unsigned batch, seq;
    unsigned targets;
    unsigned rank; /* 0: no adapters */
};

static void plan_of(const struct given *g, struct model *m, struct plan *p)
{
    int code;

    assert_true(model_from_name("test", g->model, m, &code));
    *p = (struct plan)PLAN_DEFAULT;
    p->model = m;
    p->precision = estimate_precision(g->precision);
    assert_non_null(p->precision);
    p->optimizer = estimate_optimizer("sgd");
    p->attention = g->attention;
    p->checkpoint = g->checkpoint;
    p->batch = g->batch;
    p->seq = g->seq;
    if (g->rank) {
        p->adapter = PLAN_ADAPTER_LORA;
        p->rank = g->rank;
        p->targets = g->targets;
    }
}

/* The sum of the allocations that are made and freed within a step: without the weights and the optimizer's states. */
static struct estimate_interval sum_of(const struct plan *p, unsigned phases)
{
    static struct estimate_result r;
    struct estimate_interval sum = {0, 0, 0};

    memset(&r, 0, sizeof r);
    estimate_states(p, 0, &r);
    estimate_activations(p, 0, &r);
    for (size_t i = 0; i < r.lines_n; i++) {
        const struct estimate_line *l = &r.lines[i];
        assert_true(l->bytes.low <= l->bytes.likely && l->bytes.likely <= l->bytes.high && l->bytes.low >= 0);
        assert_true(l->bytes.low == l->bytes.high || l->why || l->part == ESTIMATE_ACTIVATIONS);
        if ((l->phases & phases) && !l->host && l->part != ESTIMATE_WEIGHTS && l->part != ESTIMATE_OPTIMIZER)
            sum = estimate_interval_add(sum, l->bytes);
    }
    return sum;
}

static struct estimate_interval larger(struct estimate_interval a, struct estimate_interval b)
{
    return (struct estimate_interval){fmax(a.low, b.low), fmax(a.likely, b.likely), fmax(a.high, b.high)};
}

static struct estimate_interval pass_of(const struct plan *p)
{
    return larger(sum_of(p, IN_PHASE(FORWARD)), sum_of(p, IN_PHASE(BACKWARD)));
}

/* Bytes above those at the step's begin, at the peak of the second step: torch.cuda.max_memory_allocated, PyTorch 2.11,
 * transformers 5.23, torchvision 0.26, on the simulated H100 (tests/torch/estimate_measure.py). */
static const struct measured {
    struct given given;
    double peak;
} measured[] = {
#define FLASH PLAN_ATTENTION_FLASH
#define EAGER PLAN_ATTENTION_EAGER
#define NONE PLAN_CHECKPOINT_NONE
#define FULL PLAN_CHECKPOINT_FULL
    {{"gpt2", "fp32", FLASH, NONE, 8, 1024, 0, 0}, 15256986624 + 603979776 /* the KV cache */},
    {{"gpt2", "fp32", EAGER, NONE, 8, 1024, 0, 0}, 26123904000},
    {{"gpt2", "amp-bf16", FLASH, NONE, 8, 1024, 0, 0}, 12558072320 + 301989888 /* the KV cache */},
    {{"gpt2", "amp-bf16", EAGER, NONE, 8, 1024, 0, 0}, 21015480832},
    {{"gpt2", "bf16", FLASH, FULL, 8, 1024, 0, 0}, 5947188224},
    {{"gpt2", "bf16", EAGER, NONE, 8, 1024, 0, 0}, 16215630848},
    {{"llama-3-8b", "bf16", FLASH, NONE, 1, 2048, 0, 0}, 16907805696},
    {{"llama-3-8b", "bf16", FLASH, FULL, 1, 2048, 0, 0}, 16602637312},
    {{"llama-3-8b", "amp-bf16", FLASH, NONE, 1, 2048, 0, 0}, 34619302912},
    {{"llama-3-8b", "bf16", EAGER, NONE, 1, 2048, 0, 0}, 43474494464},
    {{"llama-3-8b", "bf16", FLASH, NONE, 4, 4096, 0, 0}, 135255917568},
    {{"llama-3.2-1b", "fp32", FLASH, NONE, 4, 1024, 0, 0}, 31055692800},
    {{"llama-3.2-1b", "bf16", FLASH, NONE, 1, 128, 0, 0}, 3559003136},
    {{"mistral-7b", "bf16", FLASH, NONE, 2, 2048, 0, 0}, 28294824960},
    {{"mistral-7b", "bf16", FLASH, FULL, 2, 2048, 0, 0}, 15290378240},
    {{"qwen2.5-0.5b", "amp-bf16", FLASH, NONE, 4, 1024, 0, 0}, 16271156224},
    {{"qwen2.5-0.5b", "fp32", FLASH, FULL, 4, 1024, 0, 0}, 10354189312},
    {{"gemma-2-2b", "bf16", EAGER, NONE, 2, 1024, 0, 0}, 21161043968},
    {{"gemma-2-2b", "amp-bf16", EAGER, NONE, 2, 1024, 0, 0}, 27185113088},
    {{"mixtral-8x7b", "bf16", FLASH, NONE, 1, 2048, 0, 0}, 93688112128},
    {{"bert-large-uncased", "fp32", FLASH, NONE, 8, 512, 0, 0}, 6806862336},
    {{"bert-large-uncased", "fp32", EAGER, NONE, 8, 512, 0, 0}, 14048328192},
    {{"bert-base-uncased", "bf16", FLASH, NONE, 8, 512, 0, 0}, 1387300352},
    {{"vit-b-16", "fp32", FLASH, NONE, 32, 0, 0, 0}, 3874418176},
    {{"vit-l-16", "bf16", FLASH, NONE, 32, 0, 0, 0}, 5124849664},
    {{"t5-base", "bf16", FLASH, NONE, 8, 512, 0, 0}, 5797327872},
    {{"t5-base", "amp-bf16", FLASH, NONE, 8, 512, 0, 0}, 7339128320},
    {{"t5-base", "fp32", EAGER, NONE, 4, 512, 0, 0}, 8707703808},
    {{"resnet-18", "fp32", FLASH, NONE, 32, 0, 0, 0}, 713582592},
    {{"resnet-50", "fp32", FLASH, NONE, 32, 0, 0, 0}, 2763805696},
    {{"resnet-50", "amp-bf16", FLASH, NONE, 32, 0, 0, 0}, 1469522944},
    {{"resnet-152", "fp32", FLASH, NONE, 32, 0, 0, 0}, 5694968832},
    {{"llama-2-7b", "bf16", FLASH, NONE, 1, 2048, PLAN_LINEAR, 16}, 18942034944},
    {{"llama-2-7b", "bf16", FLASH, NONE, 1, 2048, PLAN_QUERIES | PLAN_VALUES, 8}, 11804378112},
};

static void test_measured(void **state)
{
    int bad = 0;

    (void)state;
    for (size_t i = 0; i < LENGTH(measured); i++) {
        const struct measured *one = &measured[i];
        struct model m;
        struct plan p;

        plan_of(&one->given, &m, &p);
        struct estimate_interval ours = pass_of(&p);
        double error = ours.likely / one->peak - 1;
        if (fabs(error) > 0.02 || one->peak < ours.low * 0.99 || one->peak > ours.high * 1.02) {
            print_error("%s %s attention %d checkpoint %d: %.1f MiB (%.1f to %.1f), measured %.1f (%+.1f %%)\n",
                        one->given.model, one->given.precision, (int)one->given.attention, (int)one->given.checkpoint,
                        ours.likely / MIB, ours.low / MIB, ours.high / MIB, one->peak / MIB, 100 * error);
            bad++;
        }
        model_free(&m);
    }
    assert_int_equal(bad, 0);
}

/* A plain GPT without dropout, whose loss is the cross_entropy of the unchanged logits (tests/torch/gpt.py in GPT-2's
 * size): max_memory_allocated minus weights, states and 65 MiB of cuBLAS's workspaces. Under autocast, each logit then
 * takes 10 bytes: log-probabilities in 16 bits and in float32, and one float32 gradient. */
static void test_bare_cross_entropy(void **state)
{
    static const struct measured plain[] = {
        {{"gpt2", "amp-bf16", FLASH, NONE, 4, 1024, 0, 0}, 5270244864},
        {{"gpt2", "amp-bf16", FLASH, NONE, 8, 1024, 0, 0}, 8702348288},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(plain); i++) {
        struct model m;
        struct plan p;
        plan_of(&plain[i].given, &m, &p);
        m.shape.no_dropout = m.shape.one_kernel_gelu = p.fused_loss = p.drop_outputs = true;
        double over = plain[i].peak - 12 * 124439808.0 - 65 * MIB;
        assert_true(fabs(pass_of(&p).likely / over - 1) < 0.05);
        model_free(&m);
    }
}

/* Gradients of an earlier pass exist: those of this pass are made in addition and freed. Peaks above the weights in the
 * second pass before a step, measured as above. */
static void test_accumulated(void **state)
{
    static const struct measured passes[] = {
        {{"gpt2", "fp32", FLASH, NONE, 1, 128, 0, 0}, 1011.1 * MIB},
        {{"gpt2", "amp-bf16", FLASH, NONE, 1, 128, 0, 0}, 989.3 * MIB},
        {{"llama-3.2-1b", "bf16", FLASH, NONE, 1, 512, 0, 0}, 4093.8 * MIB},
        {{"mistral-7b", "bf16", FLASH, NONE, 1, 1024, 0, 0}, 20561.8 * MIB},
    };
    double workspaces = 64 * MIB; /* cuBLAS's, allocated after the weights */

    (void)state;
    for (size_t i = 0; i < LENGTH(passes); i++) {
        struct model m;
        struct plan p;
        plan_of(&passes[i].given, &m, &p);
        p.accumulation = 2;
        double ours = pass_of(&p).likely;
        assert_true(ours <= passes[i].peak * 1.01 && ours + workspaces >= passes[i].peak * 0.99);
        model_free(&m);
    }
}

/* One layer of GPT-2 in pure 16 bits and in float32: the sum of autograd's saved tensors. */
static void test_saved_tensors(void **state)
{
    struct given g = {"gpt2", "fp32", PLAN_ATTENTION_FLASH, PLAN_CHECKPOINT_NONE, 2, 512, 0, 0};
    struct model m;
    struct plan p;
    struct estimate_act_tape tape;
    double tokens = 1024, h = 768, heads = 12;

    (void)state;
    plan_of(&g, &m, &p);
    struct estimate_act_sizes z = estimate_act_sizes_of(&p, ACT_EAGER);
    estimate_act_layer(&p, &z, false, &tape);
    /* two norms and the tensors after them, q k v, k and v of the cache, output and logsumexp, five tensors of 4h, two
     * masks */
    assert_true(estimate_act_saved(&tape) ==
                tokens * (2 * (4 * h + 8) + 2 * 4 * h + 6 * 4 * h + 4 * heads + 5 * 4 * 4 * h + 2 * h));
    p.precision = estimate_precision("bf16");
    z = estimate_act_sizes_of(&p, ACT_EAGER);
    estimate_act_layer(&p, &z, false, &tape);
    assert_true(estimate_act_saved(&tape) ==
                tokens * (2 * (2 * h + 8) + 2 * 2 * h + 6 * 2 * h + 4 * heads + 5 * 2 * 4 * h + 2 * h));
    /* Korthikanti's layer, 34 sbh: no scores are kept, the activation is one operation, and statistics of
     * norms are not counted */
    z = estimate_act_sizes_of(&p, ACT_FUSED);
    estimate_act_layer(&p, &z, false, &tape);
    assert_true(fabs(estimate_act_saved(&tape) / korthikanti_layer(KORTHIKANTI_TP_SELECTIVE, 512, 2, h, heads, 1) -
                     32.0 / 34) < 0.01);
    model_free(&m);
}

/* How much more is kept at the end of forward with create_selective_checkpoint_contexts and torchtitan's policy than
 * with full checkpointing of each layer: torch.cuda.memory_allocated, PyTorch 2.11 on the simulated H100
 * (tests/torch/estimate_measure.py). Six layers each; the allocator rounds. */
static void test_kept_of_operations(void **state)
{
    static const struct {
        enum model_family family;
        const char *precision;
        enum plan_attention attention;
        unsigned hidden, heads, kv_heads, ffn, batch, seq;
        double more;
    } seen[] = {
        {MODEL_LLAMA, "bf16", FLASH, 1024, 16, 4, 2816, 8, 2048, 1214257152},
        {MODEL_LLAMA, "amp-bf16", FLASH, 1024, 16, 4, 2816, 8, 2048, 1215305728},
        {MODEL_LLAMA, "bf16", EAGER, 1024, 16, 4, 2816, 4, 1024, 1107296256},
        {MODEL_LLAMA, "fp32", FLASH, 1024, 16, 4, 2816, 4, 1024, 2215641088}, /* scores: no fused kernel fits */
        {MODEL_LLAMA, "fp32", FLASH, 1024, 16, 16, 2816, 4, 1024, 682098688},
        {MODEL_GPT, "bf16", FLASH, 768, 12, 12, 3072, 8, 1024, 757340160},
        {MODEL_GPT, "amp-bf16", EAGER, 768, 12, 12, 3072, 8, 1024, 1962147840},
        {MODEL_GPT, "fp32", EAGER, 768, 12, 12, 3072, 8, 1024, 3925082112},
        {MODEL_BERT, "amp-bf16", FLASH, 768, 12, 12, 3072, 16, 512, 757209088},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(seen); i++) {
        struct model_shape shape = model_family_shape(seen[i].family);
        struct model m;
        struct plan p = PLAN_DEFAULT;
        struct estimate_act_pass full, operations;
        double more = 0;
        int code;
        shape.layers = 6, shape.hidden = seen[i].hidden, shape.heads = seen[i].heads, shape.kv_heads = seen[i].kv_heads;
        shape.ffn = seen[i].ffn, shape.vocab = 8192, shape.context = 4096;
        assert_true(model_from_shape("test", "test", &shape, &m, &code));
        p.model = &m;
        p.precision = estimate_precision(seen[i].precision);
        p.optimizer = estimate_optimizer("sgd");
        p.attention = seen[i].attention;
        p.batch = seen[i].batch, p.seq = seen[i].seq;
        p.checkpoint = FULL;
        estimate_act_pass(&p, ACT_EAGER, &full);
        p.checkpoint = PLAN_CHECKPOINT_SELECTIVE_OP;
        estimate_act_pass(&p, ACT_EAGER, &operations);
        for (int g = 0; g < ACT_GROUPS_N; g++) more += operations.saved[g] - full.saved[g];
        assert_true(operations.inputs == full.inputs && operations.head == full.head);
        if (fabs(more / seen[i].more - 1) > 0.002)
            print_error("case %zu: %.0f, measured %.0f\n", i, more, seen[i].more);
        assert_true(fabs(more / seen[i].more - 1) <= 0.002);
        model_free(&m);
    }
}

/* A sequence of products, with and without biases, and which of them are kept. */
static void test_which_operations(void **state)
{
    struct given g = {"llama-3-8b", "bf16", FLASH, PLAN_CHECKPOINT_SELECTIVE_OP, 1, 4096, 0, 0};
    struct model m;
    struct plan p;
    struct estimate_act_kept kept;
    double h = 4096, kv = 1024, f = 14336, t = 4096;

    (void)state;
    plan_of(&g, &m, &p);
    struct estimate_act_sizes z = estimate_act_sizes_of(&p, ACT_EAGER);
    estimate_act_kept(&p, &z, false, &kept); /* q, v, gate, down; attention and its logarithms */
    assert_true(kept.sum == t * (2 * (h + kv + f + h + h) + 4 * 32) && kept.whole == t * 2 * h);
    assert_true(kept.again == h * kv + h * h + h * f && estimate_act_recomputed(&p) == 32 * kept.again);
    z = estimate_act_sizes_of(&p, ACT_FUSED); /* the layer's output is not read by the layer */
    estimate_act_kept(&p, &z, false, &kept);
    assert_true(kept.sum == t * (2 * (h + kv + f + h) + 4 * 32) && kept.whole == 0);
    p.precision = estimate_precision("fp8"); /* all of torchao's products; none of Transformer Engine's */
    for (enum estimate_act_variant variant = ACT_EAGER; variant <= ACT_PADDED; variant++) {
        z = estimate_act_sizes_of(&p, variant);
        estimate_act_kept(&p, &z, false, &kept);
        assert_true(kept.sum == t * (2 * (h + 2 * kv + h + h + 2 * f + h) + 4 * 32) && kept.again == 0);
    }
    z = estimate_act_sizes_of(&p, ACT_FUSED);
    estimate_act_kept(&p, &z, false, &kept);
    assert_true(kept.sum == t * (2 * h + 4 * 32));
    model_free(&m);

    g.model = "qwen2.5-7b"; /* q, k, v have biases; so out and up are the first and third without */
    g.precision = "bf16";
    plan_of(&g, &m, &p);
    h = 3584, kv = 512, f = 18944;
    z = estimate_act_sizes_of(&p, ACT_EAGER);
    estimate_act_kept(&p, &z, false, &kept);
    assert_true(kept.sum == t * (2 * (h + 2 * kv + h + h + f) + 4 * 28));
    model_free(&m);

    g.model = "mixtral-8x7b"; /* the experts' grouped products are computed again; the router's does not count */
    plan_of(&g, &m, &p);
    h = 4096, kv = 1024, f = 14336;
    z = estimate_act_sizes_of(&p, ACT_EAGER);
    estimate_act_kept(&p, &z, true, &kept);
    assert_true(kept.sum == t * (2 * (h + kv + h) + 4 * 32 + 12 * 2));
    assert_true(kept.again == h * kv + h * h + h * 8 + 2 * 3 * h * f);
    p.ep = p.gpus = 8; /* all-to-alls do not count: torchtitan#1672 */
    estimate_act_kept(&p, &z, true, &kept);
    assert_true(kept.sum == t * (2 * (h + kv + h) + 4 * 32 + 12 * 2));
    model_free(&m);
}

static const char *const models[] = {"gpt2-xl",    "llama-3-8b",         "mixtral-8x7b", "gemma-2-9b",
                                     "qwen2.5-7b", "bert-large-uncased", "vit-l-16"};

static void test_properties(void **state)
{
    static const char *const precisions[] = {"fp32", "tf32", "amp-bf16", "bf16", "fp8"};

    (void)state;
    for (size_t i = 0; i < LENGTH(models); i++)
        for (size_t j = 0; j < LENGTH(precisions); j++)
            for (int attention = 0; attention < 2; attention++) {
                struct given g = {models[i], precisions[j], attention, PLAN_CHECKPOINT_NONE, 4, 1024, 0, 0};
                struct model m;
                struct plan p;
                plan_of(&g, &m, &p);
                struct estimate_interval none = sum_of(&p, IN_PHASE(FORWARD)), other;

                p.batch = 8; /* all activations are twice as large */
                other = sum_of(&p, IN_PHASE(FORWARD));
                assert_true(other.likely > none.likely && other.likely <= 2 * none.likely);
                p.batch = 4;
                p.checkpoint = PLAN_CHECKPOINT_SELECTIVE;
                assert_true(sum_of(&p, IN_PHASE(FORWARD)).likely <= none.likely);
                p.checkpoint = PLAN_CHECKPOINT_SELECTIVE_OP;
                double operations = sum_of(&p, IN_PHASE(FORWARD)).likely;
                assert_true(operations < none.likely);
                p.checkpoint = PLAN_CHECKPOINT_FULL;
                assert_true(sum_of(&p, IN_PHASE(FORWARD)).likely < operations);
                p.checkpoint = PLAN_CHECKPOINT_NONE;
                p.chunked_loss = true;
                assert_true(sum_of(&p, IN_PHASE(FORWARD)).likely <= none.likely);
                model_free(&m);
            }
}

static void test_parallel(void **state)
{
    struct given g = {"llama-3-70b", "bf16", PLAN_ATTENTION_FLASH, PLAN_CHECKPOINT_NONE, 1, 4096, 0, 0};
    struct model m;
    struct plan p;
    double last = INFINITY;

    (void)state;
    plan_of(&g, &m, &p);
    for (unsigned tp = 2; tp <= 8; tp *= 2) { /* larger values never need more */
        p.gpus = p.tp = tp;
        double now = sum_of(&p, IN_PHASE(FORWARD)).likely;
        assert_true(now < last);
        p.sequence_parallel = true;
        double divided = sum_of(&p, IN_PHASE(FORWARD)).likely;
        assert_true(divided < now);
        p.sequence_parallel = false;
        last = now;
    }
    p.tp = 1;
    p.pp = p.gpus = 8;
    p.accumulation = 16;
    assert_true(estimate_act_in_flight(&p, 0) == 8 && estimate_act_in_flight(&p, 7) == 1);
    p.accumulation = 4; /* never more than exist */
    assert_true(estimate_act_in_flight(&p, 0) == 4);
    p.accumulation = 16;
    p.interleave = 2; /* 8 (1 + 7/16) */
    assert_true(estimate_act_in_flight(&p, 0) == 8 * (1 + 7.0 / 16));
    p.pp = p.gpus = 4;
    p.interleave = 3; /* the last stage: 2 chunks · 4 on their way, and one that runs */
    assert_true(fabs(estimate_act_in_flight(&p, 3) - 3) < 1e-9 && fabs(estimate_act_in_flight(&p, 0) - 5) < 1e-9);
    model_free(&m);
}

/* The closed form for GPT's shape is Korthikanti's. */
static void test_parallel_is_korthikanti(void **state)
{
    static const struct {
        bool sp;
        enum plan_attention attention;
        enum korthikanti form;
    } cases[] = {{false, PLAN_ATTENTION_EAGER, KORTHIKANTI_TP},
                 {true, PLAN_ATTENTION_EAGER, KORTHIKANTI_TP_SP},
                 {false, PLAN_ATTENTION_FLASH, KORTHIKANTI_TP_SELECTIVE},
                 {true, PLAN_ATTENTION_FLASH, KORTHIKANTI_TP_SP_SELECTIVE}};
    struct given g = {"gpt2-xl", "bf16", PLAN_ATTENTION_EAGER, PLAN_CHECKPOINT_NONE, 4, 1024, 0, 0};
    struct model m;
    struct plan p;
    static struct estimate_result r;

    (void)state;
    plan_of(&g, &m, &p);
    p.tp = p.gpus = 5;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        p.sequence_parallel = cases[i].sp;
        p.attention = cases[i].attention;
        memset(&r, 0, sizeof r);
        estimate_act_parallel(&p, 0, &r);
        double theirs = 48 * korthikanti_layer(cases[i].form, 1024, 4, 1600, 25, 5);
        assert_true(fabs(r.lines[0].bytes.likely / theirs - 1) < 1e-9);
    }
    model_free(&m);
}

static void test_nothing_to_say(void **state)
{
    struct given g = {"gpt2", "fp32", PLAN_ATTENTION_FLASH, PLAN_CHECKPOINT_NONE, 0, 0, 0, 0};
    static struct estimate_result r;
    struct model m;
    struct plan p;

    (void)state;
    plan_of(&g, &m, &p); /* no batch */
    estimate_activations(&p, 0, &r);
    assert_int_equal(r.lines_n, 0);
    model_free(&m);
    model_from_count(1000000, &m); /* no shape */
    p.batch = p.seq = 8;
    estimate_activations(&p, 0, &r);
    assert_int_equal(r.lines_n, 0);
    model_free(&m);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_korthikanti),      cmocka_unit_test(test_saved_tensors),
        cmocka_unit_test(test_measured),         cmocka_unit_test(test_bare_cross_entropy),
        cmocka_unit_test(test_accumulated),      cmocka_unit_test(test_kept_of_operations),
        cmocka_unit_test(test_which_operations), cmocka_unit_test(test_properties),
        cmocka_unit_test(test_parallel),         cmocka_unit_test(test_parallel_is_korthikanti),
        cmocka_unit_test(test_nothing_to_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
