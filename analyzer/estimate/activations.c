/* The lines of activations and of the loss. */
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/replay.h"
#include "analyzer/estimate/serving.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/estimate/shard.h"

#define GROUP(id, title) title,
static const char *const titles[] = {ACT_GROUPS(GROUP)};
#undef GROUP

static const char *const kept_titles[ACT_GROUPS_N] = {
    [ACT_ATTENTION] = "attention: kept matrix products, output",
    [ACT_SCORES] = "attention: kept scores",
    [ACT_MLP] = "MLP: kept matrix products",
    [ACT_ADAPTERS] = "adapters: kept matrix products",
};

#define MEASURED "autograd's saved tensors, Hugging Face eager on PyTorch 2.11 (docs/accuracy.md)"
static const char WHY_EAGER[] = "low: the script drops the outputs, and there is no KV cache; expected: Hugging Face's "
                                "eager modules; high: a padding mask";

#define WHY_CONV "low: nothing beyond what is kept; high: cuDNN converts layouts and allocates workspaces"

#define WHY_DENOISER "low, high: other versions of diffusers and PyTorch; high: cuDNN's workspaces"

static struct estimate_interval sort_interval(double low, double likely, double high)
{
    return (struct estimate_interval){fmin(low, fmin(likely, high)), likely, fmax(low, fmax(likely, high))};
}

#define WHY_KEPT "low: compiled layers keep only what backward reads, and no float8 products of Transformer Engine"

static struct estimate_line *add_activation(struct estimate_result *r, enum estimate_part part, unsigned phases,
                                            const char *name, struct estimate_interval bytes, const char *why,
                                            const char *formula)
{
    struct estimate_line *line;

    if (!(bytes.high > 0)) return NULL;
    line = estimate_add(r, part, phases, name, bytes);
    estimate_explain(line, MEASURED, "%s", formula);
    line->why = why;
    return line;
}

/* The formula of a line of Whisper or CLIP, whose two stacks have different lengths. */
static void of_two_stacks(const struct plan *p, enum estimate_act_group group, char *text, size_t size)
{
    const struct model_shape *m = &p->model->shape;

    if (group == ACT_CONV)
        snprintf(text, size, "%ju · %ju positions: spectrograms of %ju channels, 5 · %ju of the convolutions",
                 (uintmax_t)p->batch, (uintmax_t)m->sound, (uintmax_t)m->channels, (uintmax_t)m->hidden);
    else
        snprintf(text, size, "%ju layers · %ju · %ju positions of %s + %ju layers · %ju · %ju tokens",
                 (uintmax_t)m->encoder_layers, (uintmax_t)p->batch,
                 (uintmax_t)(m->sound ? m->sound : model_image_tokens(m)), m->sound ? "sound" : "images",
                 (uintmax_t)(m->layers - m->encoder_layers), (uintmax_t)p->batch, (uintmax_t)p->seq);
}

/* The line of a group of results that checkpointing of chosen operations keeps. */
static void add_kept(struct estimate_result *r, const struct plan *p, enum estimate_act_group group,
                     struct estimate_interval bytes, double tokens)
{
    char text[192];

    if (p->model->shape.family == MODEL_WHISPER)
        of_two_stacks(p, group, text, sizeof text);
    else
        snprintf(text, sizeof text, "%ju layers · %.0f tokens · %.0f B of operations' results",
                 (uintmax_t)p->model->shape.layers, tokens, bytes.likely / tokens / (double)p->model->shape.layers);
    struct estimate_line *line =
        add_activation(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), kept_titles[group], bytes, WHY_KEPT, text);
    if (line) line->source = ACT_KEPT_SOURCE;
}

static void add_convolutional(const struct plan *p, struct estimate_result *r)
{
    struct estimate_act_pass v[ACT_VARIANTS_N];
    char text[192];
    double images = (double)p->batch;

    if (p->checkpoint != PLAN_CHECKPOINT_NONE)
        estimate_note(
            r,
            "gpuspy does not know which parts of a convolutional network are checkpointed, and counts all activations");

    for (int i = 0; i < ACT_VARIANTS_N; i++)
        if (!estimate_act_conv(p, i, &v[i])) {
            estimate_note(r, "the activations of %s are unknown and left out", p->model->name);
            return;
        }
#define OF(field) sort_interval(v[ACT_FUSED].field, v[ACT_EAGER].field, v[ACT_PADDED].field)
    snprintf(text, sizeof text, "%.0f images of %ju x %ju · %.0f B kept by the operations", images,
             (uintmax_t)p->model->shape.image, (uintmax_t)p->model->shape.image, v[ACT_EAGER].saved[ACT_CONV] / images);
    add_activation(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), titles[ACT_CONV], OF(saved[ACT_CONV]), WHY_CONV, text);
    add_activation(r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD), "gradients being computed, last layers of the model",
                   OF(first), WHY_CONV, "the maximum in backward's first half, on top of what forward kept");
    add_activation(r, ESTIMATE_TEMPORARIES, IN_PHASE(BACKWARD), "live at the end of backward", OF(second), WHY_CONV,
                   "the maximum in the first layers' backward");
#undef OF
}

/* What a group's formula counts: a width, and its name. */
struct unit {
    double width;
    const char *what;
};

static struct unit activation_unit(const struct model_shape *m, enum estimate_act_group group,
                                   const struct estimate_act_sizes *z)
{
    switch (group) {
    case ACT_NORM:
    case ACT_MASKS: return (struct unit){(double)m->hidden, "hidden"};
    case ACT_ATTENTION:
        return (struct unit){2.0 * (double)((m->heads + m->kv_heads) * m->head_dim), "of q, k, v and output"};
    case ACT_SCORES: return (struct unit){(double)m->heads * z->seq, "of heads · tokens"};
    case ACT_MLP:
        if (m->experts) return (struct unit){(double)(m->experts_used * m->expert_ffn), "of a token's experts"};
        return (struct unit){(double)m->ffn, "of the MLP"};
    default: return (struct unit){0, ""};
    }
}

/* Versions of PyTorch and transformers differ at least this much in what backward allocates temporarily. */
#define VERSIONS 0.92

/* The first peak of backward, as two lines that add up to it in each variant. The largest moment may differ between
 * variants. */
static void first_peak(const struct estimate_act_pass *low, const struct estimate_act_pass *likely,
                       const struct estimate_act_pass *high, struct estimate_interval *logits,
                       struct estimate_interval *gradients)
{
    struct estimate_interval all = sort_interval(VERSIONS * low->first, likely->first, high->first);
    double rest = fmax(0, likely->first - likely->logits);

    if (likely->at_loss) {
        *gradients = (struct estimate_interval){fmin(rest, all.low), rest, rest};
        *logits = (struct estimate_interval){all.low - gradients->low, all.likely - rest, all.high - rest};
    } else {
        *logits = sort_interval(low->held, likely->held, high->held);
        *gradients =
            sort_interval(VERSIONS * (low->first - low->held), likely->first - likely->held, high->first - high->held);
    }
}

static void add_eager(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *m = &p->model->shape;
    struct estimate_act_pass v[ACT_VARIANTS_N];
    struct estimate_act_sizes z = estimate_act_sizes_of(p, p->fused_layers ? ACT_FUSED : ACT_EAGER);
    char text[192];

    for (int i = 0; i < ACT_VARIANTS_N; i++) estimate_act_pass(p, i, &v[i]);
    /* FSDP's MixedPrecision computes in 16 bits what autocast computes in 32 */
    const bool narrow = p->fused_layers || (z.amp && estimate_shard_gathers(p));
    const struct estimate_act_pass *least = &v[narrow ? ACT_FUSED : ACT_LEAN];
    const struct estimate_act_pass *likely = &v[p->fused_layers ? ACT_FUSED : ACT_EAGER],
                                   *most = &v[p->fused_layers ? ACT_EAGER : ACT_PADDED];
    struct estimate_interval logits, gradients;
    first_peak(least, likely, most, &logits, &gradients);
#define OF(field) sort_interval(least->field, likely->field, most->field)
    for (int g = 0; g < ACT_GROUPS_N; g++) {
        struct unit u = activation_unit(m, g, &z);
        double each = likely->saved[g] / z.tokens / (double)m->layers;
        if (p->checkpoint == PLAN_CHECKPOINT_SELECTIVE_OP && kept_titles[g]) {
            add_kept(r, p, g, OF(saved[g]), z.tokens);
            continue;
        }
        if (m->family == MODEL_WHISPER || m->family == MODEL_CLIP)
            of_two_stacks(p, g, text, sizeof text);
        else if (each <= 0)
            snprintf(text, sizeof text, "none; with padded sequences, a mask of %.0f · %.0f in each layer", z.seq,
                     z.seq);
        else if (u.width > 0)
            snprintf(text, sizeof text, "%ju layers · %.0f tokens · %.0f %s · %.2f B", (uintmax_t)m->layers, z.tokens,
                     u.width, u.what, each / u.width);
        else
            snprintf(text, sizeof text, "%ju layers · %.0f tokens · %.0f B", (uintmax_t)m->layers, z.tokens, each);
        add_activation(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD),
                       m->family == MODEL_WHISPER && g == ACT_CONV ? "sound and its two convolutions" : titles[g],
                       OF(saved[g]), WHY_EAGER, text);
    }
    snprintf(text, sizeof text, "%ju layers · %s%.0f tokens · %ju · %.0f B",
             (uintmax_t)plan_remade_layers(p, m->layers), p->by_module ? "4 modules · " : "", z.tokens,
             (uintmax_t)m->hidden, z.stream);
    if (m->family == MODEL_WHISPER || m->family == MODEL_CLIP) of_two_stacks(p, ACT_NORM, text, sizeof text);
    add_activation(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), "inputs of the checkpointed layers", OF(inputs), NULL,
                   text);
    snprintf(text, sizeof text, "%.0f tokens · %.0f B", z.tokens, likely->head / z.tokens);
    add_activation(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), "last norm and input of the output layer", OF(head),
                   WHY_EAGER, text);
    snprintf(text, sizeof text, "%.0f tokens · %ju words · %.0f B", z.tokens, (uintmax_t)m->vocab,
             m->vocab ? logits.likely / z.tokens / (double)m->vocab : 0);
    add_activation(r, ESTIMATE_LOGITS, IN_PHASE(FORWARD),
                   likely->at_loss ? "logits, log-probabilities, their gradients" : "logits", logits,
                   "low: the script drops the logits; high: it keeps them", text);
    snprintf(text, sizeof text, "%.0f tokens · %ju words · %.0f B", z.tokens, (uintmax_t)m->vocab, z.compute);
    add_activation(r, ESTIMATE_LOGITS, IN_PHASE(BACKWARD), "logits that the script still holds", OF(held),
                   "low: the script drops the logits; high: it keeps them", text);
    add_activation(r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD), "gradients being computed, first layers of backward",
                   gradients, WHY_EAGER, "the maximum in backward's first half, on top of what forward kept");
    add_activation(r, ESTIMATE_TEMPORARIES, IN_PHASE(BACKWARD), "live at the end of backward",
                   sort_interval(VERSIONS * least->second, likely->second, most->second), WHY_EAGER,
                   "the maximum in the layer where backward ends and in the embedding, on top of all gradients");
#undef OF
}

/* A checkpoint wrapper around transformers' layers (torch's apply_activation_checkpointing, with FSDP) does not turn
 * their KV cache off, as transformers' own checkpointing does: the outputs then hold the keys and values of all layers.
 * llama-cookbook's pull requests 41 and 165 measured it. */
static void add_outer_caches(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *m = &p->model->shape;
    const struct estimate_act_sizes z = estimate_act_sizes_of(p, ACT_EAGER);
    const double keys = 2 * (double)(m->kv_heads * m->head_dim);
    const double all = ceil((double)m->layers * z.tokens * keys * z.compute);
    const bool held = !p->drop_outputs && p->flat && p->runtime == PLAN_RUNTIME_ANY;
    struct estimate_line *line;

    if (p->no_cache || p->checkpoint != PLAN_CHECKPOINT_FULL || !p->fsdp || !estimate_shard_gathers(p) ||
        p->master_weights || p->fused_layers || (m->family != MODEL_LLAMA && m->family != MODEL_GPT))
        return;
    line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD) | (p->drop_outputs ? 0 : IN_PHASE(BACKWARD)),
                        "KV cache of the checkpointed layers", (struct estimate_interval){0, held ? all : 0, all});
    estimate_explain(line, "transformers: use_cache is True by default; torch checkpoint_wrapper.py",
                     "%ju layers · %.0f tokens · %.0f of keys and values · %.0f B", (uintmax_t)m->layers, z.tokens,
                     keys, z.compute);
    line->why = held ? "low: use_cache=False, or transformers' own checkpointing"
                     : "high: a checkpoint wrapper around the layers, which leaves use_cache=True";
    if (p->drop_outputs) return;
    line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), "KV cache in the outputs of the step before",
                        (struct estimate_interval){0, held ? all : 0, all});
    estimate_explain(line, "a loop's `outputs = model(...)`: the new outputs exist before the old ones are freed",
                     "as large as the cache of this step");
    line->why = "none if the loop drops the outputs";
}

/* Whisper's outputs contain the keys and values of its decoder, of which cross-attention's are of all sound. A script
 * that holds them has those of the step before when forward ends (modeling_whisper.py: EncoderDecoderCache). */
static void add_held_caches(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *m = &p->model->shape;
    const struct estimate_act_sizes z = estimate_act_sizes_of(p, ACT_EAGER), e = estimate_act_encoder_sizes(p, &z);
    const double layers = (double)(m->layers - m->encoder_layers), keys = 2 * (double)(m->kv_heads * m->head_dim);
    struct estimate_line *line;

    if (m->family != MODEL_WHISPER || p->drop_outputs || p->no_cache || p->fused_layers ||
        p->checkpoint != PLAN_CHECKPOINT_NONE)
        return;
    line = estimate_add(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), "keys and values in the outputs of the step before",
                        (struct estimate_interval){0, 0, ceil(layers * (e.tokens + z.tokens) * keys * z.compute)});
    estimate_explain(line, "transformers 5.24 on the simulated GPU: modeling_whisper.py, cache_utils.py",
                     "%.0f layers · (%.0f + %.0f) positions · %.0f of keys and values · %.0f B", layers, e.tokens,
                     z.tokens, keys, z.compute);
    line->why = "high: the script holds the model's outputs, and use_cache is True";
}

/* torchtune's OffloadActivations copies what a layer saves to the host, with at most five tensors on their way. A
 * layer's tensors return to the GPU for its backward. */
#define ON_THEIR_WAY 5

static void move_to_host(const struct plan *p, size_t from, struct estimate_result *r)
{
    const struct model_shape *m = &p->model->shape;
    const struct estimate_act_sizes z = estimate_act_sizes_of(p, p->fused_layers ? ACT_FUSED : ACT_EAGER);
    const double input = z.tokens * z.stream * (double)m->hidden,
                 inner = z.tokens * z.compute * (double)(m->ffn > m->hidden ? m->ffn : m->hidden);
    const double one = plan_remakes_layers(p) ? input : inner;
    struct estimate_line *line;
    double layers = 0;

    for (size_t i = from; i < r->lines_n; i++) {
        const bool saved = r->lines[i].part == ESTIMATE_ACTIVATIONS;
        const bool head = saved && strncmp(r->lines[i].name, "last norm", 9) == 0;
        if (saved && !head) layers += r->lines[i].bytes.likely;
        r->lines[i].host = saved && !head;
    }
    layers /= (double)m->layers;
    line = estimate_add(r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD), "saved tensors being copied to the host",
                        (struct estimate_interval){one, ON_THEIR_WAY * one, ON_THEIR_WAY * one + layers});
    estimate_explain(line, "torchtune training/_activation_offloading.py: max_fwd_stash_size",
                     "%d tensors · %.0f tokens · %.0f B", ON_THEIR_WAY, z.tokens, one / z.tokens);
    line->why = "low: copies are fast enough; high: a layer's tensors are also copied back";
}

/* Where the numbers of a Mamba's lines come from, and how accurate they are. */
static void of_mamba(const struct plan *p, size_t from, struct estimate_result *r)
{
    bool kernels = p->attention != PLAN_ATTENTION_EAGER;

    for (size_t i = from; i < r->lines_n; i++) {
        struct estimate_line *line = &r->lines[i];
        if (line->why != WHY_EAGER) continue;
        line->why = kernels ? "derived from what mamba_ssm's kernels keep, not measured: ±20 %"
                            : "transformers' modules without kernels: ±5 %";
        if (kernels)
            line->source = "mamba_ssm: selective_scan_interface.py, ssd_combined.py: what they save for backward";
    }
    if (kernels)
        estimate_note(r, "computed for mamba_ssm's kernels; without them (--attention eager), transformers keeps the "
                         "states of every token");
    if (p->adapter != PLAN_ADAPTER_NONE)
        estimate_note(r, "gpuspy does not know what a Mamba's adapters keep for backward, and leaves it out");
}

/* Activations of a denoiser, operation by operation, from the replay of the allocator. */
static void add_denoising(const struct plan *p, struct estimate_result *r)
{
    struct estimate_replay_peaks v;
    struct plan one = *p;
    char text[192];

    estimate_serving_beside(p, r);
    one.late_zero_grad = false; /* those gradients are a line of their own */
    if (!p->batch || !estimate_replay(&one, INFINITY, 0, false, &v)) return;
    snprintf(text, sizeof text, "batch %ju · %.0f B kept by the operations%s", (uintmax_t)p->batch,
             v.saved / (double)p->batch,
             p->checkpoint == PLAN_CHECKPOINT_FULL ? " outside of checkpointed blocks" : "");
#define NEAR(bytes) ((struct estimate_interval){0.95 * fmax(0, bytes), fmax(0, bytes), 1.1 * fmax(0, bytes)})
    const size_t before = r->lines_n;
    add_activation(r, ESTIMATE_ACTIVATIONS, IN_PHASE(FORWARD), "activations", NEAR(v.saved), WHY_DENOISER, text);
    add_activation(r, ESTIMATE_TEMPORARIES, IN_PHASE(FORWARD), "gradients being computed, blocks computed again",
                   (struct estimate_interval){0.95 * fmax(0, v.first - v.saved), fmax(0, v.first - v.saved),
                                              1.5 * fmax(0, v.first - v.saved)},
                   WHY_DENOISER, "the maximum in forward and backward's first half, on top of what forward kept");
    add_activation(r, ESTIMATE_TEMPORARIES, IN_PHASE(BACKWARD), "live at the end of backward", NEAR(v.second),
                   WHY_DENOISER, "the maximum in backward's second half, on top of all gradients");
    for (size_t i = before; i < r->lines_n; i++)
        r->lines[i].source = "diffusers 0.38's modules under autocast, replayed operation by operation";
#undef NEAR
}

void estimate_activations(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    struct estimate_act_sizes z;

    if (p->inference) return;
    if (p->model->shape.family == MODEL_DENOISER) add_denoising(p, r);
    if (!p->batch || p->model->shape.family == MODEL_DENOISER) return;
    if (p->model->shape.family == MODEL_CONV) {
        add_convolutional(p, r);
        return;
    }
    if (!p->model->shape.layers) return;
    z = estimate_act_sizes_of(p, p->fused_layers ? ACT_FUSED : ACT_EAGER);
    if (p->attention == PLAN_ATTENTION_FLASH && estimate_act_falls_back(p, &z))
        estimate_note(
            r, "PyTorch has no fused attention for grouped queries in float32: the scores are kept, unless there is a "
               "padding mask or keys and values are repeated");
    size_t before = r->lines_n;
    if (plan_is_megatron(p))
        estimate_act_parallel(p, stage, r);
    else
        add_eager(p, r), add_outer_caches(p, r), add_held_caches(p, r);
    if (p->away) move_to_host(p, before, r);
    if (p->model->shape.family == MODEL_MAMBA) of_mamba(p, before, r);
    for (int i = MODEL_MIXER_MAMBA; i < MODEL_MIXERS_N; i++)
        if (p->model->shape.blocks_n && model_has_mixer(&p->model->shape, (enum model_mixer)i))
            estimate_note(r, "activations of layers with a %s are derived from what its kernels save, not measured",
                          model_mixer_word((enum model_mixer)i));
    if (p->model->shape.linear_layers && p->attention != PLAN_ATTENTION_EAGER)
        estimate_note(r, "gated delta nets with flash-linear-attention's kernels, derived from what they save, not "
                         "measured; without them: --attention eager");
}
