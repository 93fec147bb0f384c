#include "analyzer/estimate/wires.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/units.h"
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/adapters.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/shard.h"

#define RING "ring: Patarasuk and Yuan 2009; NCCL"

#define KIND(id, word) word,
const char *const estimate_wire_kind_word[WIRE_KINDS_N] = {WIRE_KINDS(KIND)};
#undef KIND

struct estimate_wire_links estimate_wires_links(const struct estimate_gpu *gpu, uint64_t gpus_used, uint64_t per_node)
{
    struct estimate_wire_links l = {.node = 300e9,
                                    .network = WIRES_NETWORK,
                                    .host = 25e9,
                                    .node_name = "NVLink",
                                    .network_name = "network",
                                    .host_name = "PCIe",
                                    .assumed = !gpu};

    l.per_node = per_node ? per_node : gpu ? (uint64_t)gpu->node : 8;
    uint64_t together = gpus_used < l.per_node ? gpus_used : l.per_node;
    if (!gpu) return l;
    l.host = gpu->pcie;
    if (l.network > gpu->pcie) /* the network card is on the same bus */
        l.network = gpu->pcie;
    if (gpu->pcie > 100e9) l.host_name = "NVLink-C2C";
    if (gpu->reach > 2 && (uint64_t)gpu->reach >= together) {
        l.node = gpu->nvlink;
        l.node_name = gpu->simulated ? "NVLink" : "Infinity Fabric";
    } else {
        l.node = gpu->pcie;
        l.node_name = l.host_name;
    }
    return l;
}

/* The share of S that passes a GPU's links, in a group of n. */
static double wire_share(enum estimate_wire_kind kind, double n)
{
    switch (kind) {
    case WIRE_ALL_REDUCE: return 2 * (n - 1) / n;
    case WIRE_REDUCE_SCATTER:
    case WIRE_ALL_GATHER:
    case WIRE_ALL_TO_ALL: return (n - 1) / n;
    default: return 1;
    }
}

static const char *wire_share_text(enum estimate_wire_kind kind)
{
    return kind == WIRE_ALL_REDUCE ? "2(n-1)/n · " : wire_share(kind, 2) < 1 ? "(n-1)/n · " : "";
}

static double wire_seconds(double bytes, double rate)
{
    return rate > 0 ? bytes / rate : INFINITY;
}

static void time_over_link(const struct estimate_wire_links *l, bool inside, struct estimate_wire *w)
{
    w->bandwidth = inside ? l->node : l->network;
    w->link = inside ? l->node_name : l->network_name;
}

/* Each GPU sends to the others of its machine and to those of other machines, over both links at once. */
static void all_to_all(const struct estimate_wire_links *l, double g, const char *size, struct estimate_wire *w)
{
    double n = (double)w->n, near_s = g > 1 ? wire_seconds(w->bytes * (g - 1) / n, l->node) : 0;
    double far_s = wire_seconds(w->bytes * (n - g) / n, l->network);
    bool far = far_s >= near_s;

    w->ring_s = far ? far_s : near_s;
    time_over_link(l, !far, w);
    snprintf(w->formula, sizeof w->formula, "%s (n %.0f, g %.0f, S %s, %c %.4g GB/s)",
             far ? "(n-g)/n · S/N" : "(g-1)/n · S/B", n, g, size, far ? 'N' : 'B', w->bandwidth / 1e9);
}

static void time_across_links(const struct estimate_wire_links *l, double g, struct estimate_wire *w)
{
    double m = (double)w->nodes;
    char size[UNITS_TEXT];

    time_over_link(l, g > 1 && l->node < l->network && w->kind != WIRE_SEND,
                   w); /* PCIe can be slower than the network */
    units_format_bytes(size, units_whole(w->bytes));
    if (w->kind == WIRE_SEND) {
        w->ring_s = wire_seconds(w->bytes, l->network);
        snprintf(w->formula, sizeof w->formula, "S/N (S %s, N %.4g GB/s)", size, l->network / 1e9);
    } else if (w->kind == WIRE_ALL_TO_ALL) {
        all_to_all(l, g, size, w);
    } else {
        double near_s = g > 1 ? wire_share(w->kind, g) * wire_seconds(w->bytes, l->node) : 0;
        double far_s = wire_share(w->kind, m) * wire_seconds(w->bytes / g, l->network);
        const char *factor = w->kind == WIRE_ALL_REDUCE ? "2" : "";
        w->ring_s = near_s + far_s;
        snprintf(w->formula, sizeof w->formula,
                 "%s(g-1)/g · S/B + %s(m-1)/m · S/g/N (g %.0f, m %.0f, S %s, B %.4g, N %.4g GB/s)", factor, factor, g,
                 m, size, l->node / 1e9, l->network / 1e9);
    }
}

void estimate_wire_time(const struct estimate_wire_links *l, uint64_t stride, struct estimate_wire *w)
{
    uint64_t inside = w->n; /* members in one machine */
    bool host = w->kind == WIRE_TO_GPU || w->kind == WIRE_TO_HOST;

    if (!(w->times > 0)) w->times = 1;
    if (!host && l->per_node) {
        inside = stride && l->per_node > stride ? l->per_node / stride : 1;
        if (inside > w->n) inside = w->n;
    }
    w->nodes = host || w->n <= inside ? 1 : (w->n + inside - 1) / inside;
    if (w->nodes > 1) {
        time_across_links(l, (double)(w->n / w->nodes), w);
    } else {
        w->bandwidth = host ? l->host : l->node;
        w->link = host ? l->host_name : l->node_name;
        w->ring_s = wire_share(w->kind, (double)w->n) * wire_seconds(w->bytes, w->bandwidth);
        snprintf(w->formula, sizeof w->formula,
                 *wire_share_text(w->kind) ? "%sS/B (S %s, B %.4g GB/s, n %.0f)" : "%sS/B (S %s, B %.4g GB/s)",
                 wire_share_text(w->kind), UNITS_BYTES(units_whole(w->bytes)), w->bandwidth / 1e9, (double)w->n);
    }
    w->one_pass_s = wire_seconds(w->bytes, w->bandwidth);
    w->factor = w->one_pass_s > 0 && isfinite(w->one_pass_s) ? w->ring_s / w->one_pass_s : 0;
    w->one_pass_s *= w->times;
    w->ring_s *= w->times;
}

struct making {
    const struct plan *p;
    struct estimate_wires *out;
};

static void add_wire(struct making *k, enum estimate_wire_kind kind, const char *name, double bytes, double times,
                     uint64_t n, uint64_t stride, const char *source)
{
    struct estimate_wires *out = k->out;
    bool host = kind == WIRE_TO_GPU || kind == WIRE_TO_HOST;

    if (out->n == WIRES_MAX || !(bytes > 0) || !(times > 0) || (!host && n < 2)) return;
    struct estimate_wire *w = &out->rows[out->n++];
    *w = (struct estimate_wire){.kind = kind, .bytes = bytes, .times = times, .n = n, .source = source};
    snprintf(w->name, sizeof w->name, "%s", name);
    estimate_wire_time(&out->links, stride, w);
    out->sum_s += w->ring_s;
}

__attribute__((format(printf, 2, 3))) static void note_wires(struct estimate_wires *out, const char *text, ...)
{
    if (out->notes_n == WIRES_NOTES_MAX) return;
    TEXT_FORMAT(out->notes[out->notes_n++], sizeof *out->notes, text);
}

/* Bytes per element of the activations that go from layer to layer. */
static double activation_bytes(const struct plan *p)
{
    return p->inference || !p->precision                                             ? 2
           : p->precision->weights == 4 && p->precision->cast == PRECISION_CAST_NONE ? 4
                                                                                     : 2;
}

static double layers_here(const struct plan *p)
{
    return ceil((double)p->model->shape.layers / (double)p->pp);
}

/* Passes through the layers per step, each of which moves activations in forward and in backward. */
static double count_passes(const struct plan *p)
{
    return (double)p->accumulation;
}

/* The length of a sequence, or of an image: its patches and the class token. */
static double sequence_length_of(const struct plan *p)
{
    const struct model_shape *m = &p->model->shape;

    return m->family == MODEL_VIT && m->patch ? (double)model_image_tokens(m) : (double)p->seq;
}

/* Bytes on a GPU, before they are divided among the GPUs that hold the same. */
struct moved {
    double gradients, stepped; /* of trained parameters: gradients; weights after the step */
    double weights;            /* all weights, as they are gathered for a layer */
};

static struct moved all_trained(const struct plan *p, double params)
{
    double gathered = p->precision->cast == PRECISION_CAST_AUTOCAST ? 2 : p->precision->weights; /* MixedPrecision */

    return (struct moved){params * p->precision->gradients, params * p->precision->weights, params * gathered};
}

static struct moved few_trained(const struct plan *p)
{
    struct estimate_adapters_moved m = estimate_adapters_moved(p, 0);
    double bytes = m.trained * ADAPTERS_BYTES;

    return (struct moved){bytes, bytes, m.frozen_bytes + bytes};
}

/* What n GPUs that hold the same parameters reduce and gather. */
static void data_parallel(struct making *k, const char *what, struct moved m, uint64_t n, uint64_t stride)
{
    const struct plan *p = k->p;
    double acc = count_passes(p);
    char name[48];

    snprintf(name, sizeof name, "gradients%s", what);
    if (p->sharding == PLAN_SHARDING_DDP) {
        add_wire(k, WIRE_ALL_REDUCE, name, m.gradients, 1, n, stride,
                 "DistributedDataParallel: once per step, with no_sync() while gradients are accumulated");
        return;
    }
    const char *zero = p->sharding == PLAN_SHARDING_ZERO3
                           ? "ZeRO, Rajbhandari et al. 2020, section 7.2; FSDP FULL_SHARD"
                           : "ZeRO, Rajbhandari et al. 2020, section 7.1";
    add_wire(k, WIRE_REDUCE_SCATTER, name, m.gradients, p->sharding == PLAN_SHARDING_ZERO1 ? 1 : acc, n, stride, zero);
    if (p->sharding == PLAN_SHARDING_ZERO3) {
        snprintf(name, sizeof name, "weights%s, for forward", what);
        add_wire(k, WIRE_ALL_GATHER, name, m.weights, acc, n, stride, zero);
        snprintf(name, sizeof name, "weights%s, for backward", what);
        add_wire(k, WIRE_ALL_GATHER, name, m.weights, acc, n, stride, zero);
    } else {
        snprintf(name, sizeof name, "updated weights%s", what);
        add_wire(k, WIRE_ALL_GATHER, name, m.stepped, 1, n, stride, zero);
    }
}

/* `m`: bytes that this GPU steps, and bytes of its weights. */
static void add_offloaded(struct making *k, struct moved m)
{
    const struct plan *p = k->p;
    static const char ren[] = "ZeRO-Offload, Ren et al. 2021";

    if (p->offload == PLAN_OFFLOAD_NONE) return;
    add_wire(k, WIRE_TO_HOST, "gradients, to the host's optimizer", m.gradients, 1, 1, 1, ren);
    add_wire(k, WIRE_TO_GPU, "updated weights", m.stepped, 1, 1, 1, ren);
    if (p->offload == PLAN_OFFLOAD_ALL)
        add_wire(k, WIRE_TO_GPU, "weights, forward and backward", m.weights, 2 * count_passes(p), 1, 1,
                 "ZeRO-Infinity, Rajbhandari et al. 2021");
    note_wires(k->out,
               "Copies to and from the host: pinned memory. With pageable memory they take %.0f to %.0f times as long; "
               "GPUs that share a PCIe switch or a CPU's memory share the rate.",
               1 / WIRES_PAGEABLE_HIGH, 1 / WIRES_PAGEABLE_LOW);
}

/* `hidden`: bytes of the tokens of one GPU, each of which goes to all experts that it uses; `times` per layer. */
static void add_expert_wires(struct making *k, const char *name, double hidden, double times)
{
    const struct plan *p = k->p;
    const struct model_shape *m = &p->model->shape;
    double layers = (double)(m->moe_layers ? m->moe_layers : m->layers) / (double)p->pp;

    if (p->ep > 1 && m->experts)
        add_wire(k, WIRE_ALL_TO_ALL, name, hidden * (double)(m->experts_used ? m->experts_used : 1), layers * times,
                 p->ep, p->tp,
                 p->inference ? "GShard, Lepikhin et al. 2020: dispatch and combine"
                              : "GShard, Lepikhin et al. 2020: dispatch and combine, forward and backward");
}

/* What layers exchange, of each micro-batch. */
static void between_layers(struct making *k)
{
    const struct plan *p = k->p;
    const struct model_shape *m = &p->model->shape;
    double e = activation_bytes(p), layers = layers_here(p), acc = count_passes(p);
    double tokens = (double)p->batch * sequence_length_of(p) / (double)p->cp, hidden = tokens * (double)m->hidden * e;
    /* selective-op keeps results of reduce-scatters and all-to-alls, and attention with what it received */
    double again = p->checkpoint == PLAN_CHECKPOINT_FULL ? 1 : 0, gathered = plan_remakes_layers(p) ? 1 : 0;
    static const char shoeybi[] =
        "Megatron-LM, Shoeybi et al. 2019, section 3: two per layer in forward, two in backward";
    static const char korthi[] =
        "Korthikanti et al. 2022, section 4.2: together they are an all-reduce, and backward gathers "
        "the inputs again for the weights' gradients";

    if (!m->hidden || !layers || !(tokens > 0)) return;
    double times = layers * acc * (4 + 2 * again), gathers = layers * acc * (4 + 2 * gathered);
    if (p->sequence_parallel) {
        /* Each GPU keeps only its part of a column-parallel layer's input: frozen weights do not need the others. */
        double inputs = p->adapter == PLAN_ADAPTER_NONE ? 2 * layers * acc : 0;
        add_wire(k, WIRE_ALL_GATHER, "activations, tensor parallel", hidden, gathers + inputs, p->tp, 1, korthi);
        add_wire(k, WIRE_REDUCE_SCATTER, "activations, tensor parallel", hidden, times, p->tp, 1, korthi);
    } else {
        add_wire(k, WIRE_ALL_REDUCE, "activations, tensor parallel", hidden, gathers, p->tp, 1, shoeybi);
    }
    if (p->cp > 1) {
        double kv = tokens * 2 * (double)m->kv_heads * (double)m->head_dim * e / (double)p->tp;
        add_wire(k, WIRE_SEND, "keys and values, context parallel", kv,
                 ((double)p->cp - 1) * layers * acc * (3 + again), p->cp, p->tp,
                 "ring attention, Liu et al. 2023: K and V in forward; K, V and their gradients in backward");
    }
    add_expert_wires(k, "tokens to experts and back", hidden / (double)(p->sequence_parallel ? p->tp : 1),
                     acc * (4 + 2 * again));
    if (p->pp > 1) {
        uint64_t stride = p->gpus / p->pp;
        add_wire(k, WIRE_SEND, "activations to the next stage, and back",
                 hidden / (double)(p->sequence_parallel ? p->tp : 1), 2 * acc * (double)p->interleave, p->pp,
                 stride ? stride : 1, "Narayanan et al. 2021, section 2.2");
    }
}

/* Parameters that a token is multiplied with: of the experts, those that it uses; without look-up tables. */
static double active_params(const struct model *m)
{
    const struct model_shape *s = &m->shape;
    double used = s->experts && s->experts_used ? (double)s->experts_used / (double)s->experts : 1, sum = 0;

    EACH_IN (t, m->tensors) {
        double params = (double)t->rows * (double)t->cols * (double)t->count;
        if (t->role != TENSOR_EMBEDDING || s->tied) sum += params * (t->role == TENSOR_EXPERT ? used : 1);
    }
    return sum;
}

/* The format in which the plan's GPU computes its products, and operations/s: 0 if the data sheet has no figure.
 * bfloat16 on a GPU without it (before Ampere) is computed in float32 on the ordinary cores. */
static double product_flops(const struct plan *p, enum estimate_gpu_rate *rate)
{
    const double *tflops = p->gpu->tflops;

    if (!p->inference && (p->precision->cast == PRECISION_CAST_FP8 || strstr(p->precision->name, "float8")))
        *rate = GPU_FP8;
    else if (activation_bytes(p) == 4)
        *rate = strcmp(p->precision->name, "tf32") == 0 && tflops[GPU_TF32] > 0 ? GPU_TF32 : GPU_FP32;
    else if (!p->inference && strstr(p->precision->name, "bf16"))
        *rate = tflops[GPU_BF16] > 0 ? GPU_BF16 : GPU_FP32;
    else
        *rate = tflops[GPU_FP16] > 0 ? GPU_FP16 : GPU_FP16_PLAIN;
    return tflops[*rate] * 1e12;
}

/* 6 operations for each parameter that a token uses (2 forward, 4 backward: Kaplan et al. 2020), 8 if forward is
 * computed again; in addition, attention's own products. Frozen weights have no gradients of their own: 4. Attention
 * multiplies no weights, so both of its gradients are always computed. */
static void compute_step_time(struct making *k)
{
    const struct plan *p = k->p;
    const struct model_shape *m = &p->model->shape;
    enum estimate_gpu_rate rate;
    double length = sequence_length_of(p);

    if (!p->gpu || !p->batch || !(length > 0) || !p->model->params || !m->layers || m->family == MODEL_CONV ||
        m->family == MODEL_WHISPER || m->family == MODEL_CLIP)
        return; /* their two stacks have different lengths */
    double flops_per_s = product_flops(p, &rate);
    if (!(flops_per_s > 0)) return;
    double pass = p->inference ? 2 : 6, again = !p->inference && p->checkpoint == PLAN_CHECKPOINT_FULL ? 2 : 0;
    double tokens = (double)p->batch * length * (p->inference ? 1 : count_passes(p));
    double active = active_params(p->model),
           products_again = !p->inference && active > 0 ? 2 * estimate_act_recomputed(p) / active : 0;
    double factor = (!p->inference && p->adapter != PLAN_ADAPTER_NONE ? 4 : pass) + again + products_again;
    bool causal = m->family == MODEL_GPT || m->family == MODEL_LLAMA;
    /* Two products per layer, of which a causal mask leaves half: counted as that many parameters. */
    double scores = m->family == MODEL_MAMBA ? 0
                                             : (causal ? 1 : 2) * (double)(m->layers - m->linear_layers) *
                                                   (double)m->heads * (double)m->head_dim * length;
    double split = (double)p->tp * (double)p->pp * (double)p->cp;
    k->out->compute_s = (factor * active + (pass + again) * scores) * tokens / split / flops_per_s;
    snprintf(k->out->compute, sizeof k->out->compute,
             "(%.3g · %.3gB active + %.0f · attention's %.2gB) · %s tokens%s at %.4g TFLOPS (%s)", factor, active / 1e9,
             pass + again, scores / 1e9, UNITS_COUNT(units_whole(tokens)), split > 1 ? " over tp · pp · cp" : "",
             flops_per_s / 1e12, estimate_gpu_rate_name[rate]);
}

static void add_serving_wires(struct making *k)
{
    const struct plan *p = k->p;
    const struct model_shape *m = &p->model->shape;
    double layers = layers_here(p), token = (double)p->batch * (double)m->hidden * 2;
    static const char source[] = "Megatron-LM, Shoeybi et al. 2019: two per layer";

    add_wire(k, WIRE_ALL_REDUCE, "activations of the prompt", token * (double)p->seq, 2 * layers, p->tp, 1, source);
    add_expert_wires(k, "the prompt's tokens to experts and back", token * (double)p->seq, 2);
    double prompt = k->out->sum_s;
    add_wire(k, WIRE_ALL_REDUCE, "activations of one more token", token, 2 * layers, p->tp, 1, source);
    add_expert_wires(k, "one more token to experts and back", token, 2);
    k->out->sum_s = prompt; /* one more token is another pass */
    if (p->pp > 1)
        add_wire(k, WIRE_SEND, "activations of the prompt, to the next stage", token * (double)p->seq, 1, p->pp,
                 p->gpus / p->pp ? p->gpus / p->pp : 1, "Narayanan et al. 2021, section 2.2");
    if (p->tp > 1 || (p->ep > 1 && m->experts))
        note_wires(k->out, "For one token the latency of the links dominates: about 10 us for each %s.",
                   p->tp > 1 ? "all-reduce" : "all-to-all");
}

static void add_training_wires(struct making *k)
{
    const struct plan *p = k->p;
    struct estimate_local_params local = estimate_local_params(p, 0);
    /* Context-parallel GPUs hold the same weights, for other tokens: they reduce gradients with the data-parallel ones.
     */
    uint64_t dp = plan_dp(p) * p->cp, inner = p->tp;
    bool adapted = p->adapter != PLAN_ADAPTER_NONE;
    double all = local.dense + local.experts;
    struct moved m = adapted ? few_trained(p) : all_trained(p, all);

    if (adapted || !(local.experts > 0)) {
        data_parallel(k, "", m, dp, inner);
    } else {
        data_parallel(k, "", all_trained(p, local.dense), dp, inner);
        data_parallel(k, " of experts", all_trained(p, local.experts), dp / p->ep, inner * p->ep);
    }
    struct estimate_shard_sum sum = estimate_shard_sum(p, 0, NULL);
    double own = p->sharding != PLAN_SHARDING_DDP && sum.all > 0 ? sum.own / sum.all : 1;
    add_offloaded(k, (struct moved){own * m.gradients, own * m.stepped,
                                    own * (adapted ? m.weights : all * p->precision->weights)});
    between_layers(k);
}

void estimate_wires_build(const struct plan *p, double network, struct estimate_wires *out)
{
    struct making k = {p, out};

    memset(out, 0, sizeof *out);
    out->links = estimate_wires_links(p->gpu, p->gpus, p->gpus_per_node);
    if (network > 0) out->links.network = network;
    if (p->inference)
        add_serving_wires(&k);
    else
        add_training_wires(&k);
    if (!out->n) return;
    compute_step_time(&k);
    if (out->links.assumed)
        note_wires(out, "No --gpu: an A100's NVLink, 300 GB/s, and PCIe 4.0, 25 GB/s, are assumed.");
    if (p->gpu && p->gpu->reach == 2 && p->gpus > 1)
        note_wires(out, "A bridge between two of these GPUs would carry %s in each direction.",
                   UNITS_RATE(p->gpu->nvlink));
}
