/* Properties of estimates, over thousands of plans: of every model by name, and of unusual shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/estimate/activations.h"
#include "plans.h"

#define LENGTH(a) (sizeof(a) / sizeof *(a))

static struct estimate_result one, other;

/* ---------------------------------------------------------------- plans */

/* A random name of `a|b|c|`. */
static void random_word(struct random_plans *r, const char *words, char *out, size_t size)
{
    size_t n = 0, which;

    for (const char *at = words; *at; at++) n += *at == '|';
    which = random_below(r, n);
    for (; which; which--) words = strchr(words, '|') + 1;
    snprintf(out, size, "%.*s", (int)strcspn(words, "|"), words);
}

/* Small, odd and large sizes. */
static uint64_t random_size(struct random_plans *r, uint64_t most)
{
    switch (random_below(r, 4)) {
    case 0: return 1;
    case 1: return 1 + random_below(r, 7);
    case 2: return 1 + random_below(r, most);
    default: return (uint64_t)1 << random_below(r, 1 + (uint64_t)log2((double)most));
    }
}

static void odd_shape(struct random_plans *r, struct model_shape *s)
{
    static const enum model_family families[] = {MODEL_GPT, MODEL_LLAMA, MODEL_BERT};

    *s = model_family_shape(families[random_below(r, LENGTH(families))]);
    s->layers = random_size(r, 64);
    s->kv_heads = random_size(r, 16);
    s->heads = s->kv_heads * random_size(r, 8);
    s->head_dim = random_size(r, 256);
    s->hidden = s->heads * (random_yes(r) ? s->head_dim : random_size(r, 64));
    if (s->family != MODEL_LLAMA) s->kv_heads = s->heads, s->hidden = s->heads * s->head_dim;
    s->ffn = random_size(r, 16384);
    s->vocab = random_size(r, 300000);
    s->context = 1 << 20;
    if (s->family != MODEL_LLAMA) return;
    if (random_below(r, 3) == 0) {
        s->experts = random_size(r, 64);
        s->experts_used = 1 + random_below(r, s->experts);
        s->expert_ffn = random_size(r, 4096);
        s->moe_layers = 1 + random_below(r, s->layers);
        s->shared_experts = random_below(r, 2);
    }
    if (random_below(r, 4) == 0) {
        s->window = random_size(r, 4096);
        s->window_layers = 1 + random_below(r, s->layers);
    }
}

static void odd_settings(struct random_plans *r, struct plan *p)
{
    char word[64];

    random_word(r, estimate_all_optimizers, word, sizeof word);
    p->optimizer = estimate_any_optimizer(word);
    random_word(r, estimate_precisions, word, sizeof word);
    p->precision = estimate_precision(word);
    p->precision_given = random_yes(r);
    p->batch = random_size(r, 64);
    p->seq = random_size(r, 1 << 15);
    p->attention = random_yes(r) ? PLAN_ATTENTION_FLASH : PLAN_ATTENTION_EAGER;
    p->inference = random_below(r, 3) == 0;
    p->tp = random_yes(r) ? 1 : 1u << random_below(r, 4);
    p->pp = random_below(r, 3) ? 1 : 1 + random_below(r, 4);
    p->cp = random_below(r, 4) ? 1 : 1u << random_below(r, 3);
    p->ep = random_below(r, 4) ? 1 : 1u << random_below(r, 3);
    p->gpus = p->tp * p->pp * p->cp * (1u << random_below(r, 5));
    p->gpu = &estimate_gpus[random_below(r, estimate_gpu_count)];
    p->memory = (double)p->gpu->total_bytes;
    if (p->inference) {
        random_word(r, plan_quantisations, word, sizeof word);
        p->weights = random_yes(r) ? estimate_quantisation_find(word) : NULL;
        p->cache = random_yes(r) ? estimate_quantisation_find("fp8") : NULL;
        p->cache_block = random_yes(r) ? 16 : 0;
        return;
    }
    p->step = (enum plan_step)random_below(r, 3);
    p->checkpoint = (enum plan_checkpoint)random_below(r, 4);
    p->accumulation = random_yes(r) ? 1 : random_size(r, 16);
    p->interleave = p->pp > 1 && random_yes(r) ? 2 : 1;
    p->sharding = (enum plan_sharding)random_below(r, 4);
    p->offload = (enum plan_offload)(random_yes(r) ? 0 : random_below(r, 3));
    p->fused_layers = random_below(r, 3) == 0;
    p->chunked_loss = random_below(r, 3) == 0;
    p->bucket_view = random_yes(r);
    p->sequence_parallel = p->tp > 1 && random_yes(r);
    p->master_weights = random_below(r, 4) == 0;
    p->ema = random_below(r, 4) == 0;
    p->adapter = (enum plan_adapter)(random_yes(r) ? 0 : random_below(r, 3));
    p->targets = 1 + (unsigned)random_below(r, PLAN_LINEAR);
    p->rank = random_size(r, 256);
    p->drop_outputs = random_below(r, 3) == 0;
    p->fused_loss = random_below(r, 3) == 0;
}

static const struct plan *odd_plan(struct random_plans *r)
{
    struct model_shape shape;
    char word[64];
    int exit_code;

    model_free(&r->model);
    if (random_below(r, 3)) {
        random_word(r, model_names, word, sizeof word);
        if (!model_from_name("test", word, &r->model, &exit_code)) fail_msg("%s", word);
    } else {
        odd_shape(r, &shape);
        if (!model_from_shape("test", "test", &shape, &r->model, &exit_code)) fail_msg("a shape was refused");
    }
    do {
        r->plan = (struct plan)PLAN_DEFAULT;
        r->plan.model = &r->model;
        odd_settings(r, &r->plan);
    } while (!plan_possible(&r->plan));
    return &r->plan;
}

/* The options of a plan, so that a failed one can be repeated. */
static void print_options(const struct plan *p, char *out, size_t size)
{
    const struct model_shape *s = &p->model->shape;

    snprintf(
        out, size,
        "%s (layers %ju hidden %ju heads %ju/%ju of %ju ffn %ju vocab %ju experts %ju) %s %s inference %d batch %ju "
        "seq %ju attention %d checkpoint %d accumulation %ju fused %d chunked %d dropped %d fused loss %d gpus %ju tp "
        "%ju pp %ju cp "
        "%ju ep %ju "
        "interleave %ju sp %d sharding %d offload %d adapter %d weights %s block %ju master %d",
        p->model->name, (uintmax_t)s->layers, (uintmax_t)s->hidden, (uintmax_t)s->heads, (uintmax_t)s->kv_heads,
        (uintmax_t)s->head_dim, (uintmax_t)s->ffn, (uintmax_t)s->vocab, (uintmax_t)s->experts, p->precision->name,
        p->optimizer->name, p->inference, (uintmax_t)p->batch, (uintmax_t)p->seq, (int)p->attention, (int)p->checkpoint,
        (uintmax_t)p->accumulation, p->fused_layers, p->chunked_loss, p->drop_outputs, p->fused_loss,
        (uintmax_t)p->gpus, (uintmax_t)p->tp, (uintmax_t)p->pp, (uintmax_t)p->cp, (uintmax_t)p->ep,
        (uintmax_t)p->interleave, p->sequence_parallel, (int)p->sharding, (int)p->offload, (int)p->adapter,
        p->weights ? p->weights->word : "-", (uintmax_t)p->cache_block, p->master_weights);
}

/* ---------------------------------------------------------------- lines, phases, peak */

static const char *wrong_with(const struct plan *p, const struct estimate_result *r)
{
    struct estimate_interval most = {0};

    for (size_t i = 0; i < r->lines_n; i++) {
        const struct estimate_line *l = &r->lines[i];
        if (!(l->bytes.low >= 0 && l->bytes.low <= l->bytes.likely && l->bytes.likely <= l->bytes.high &&
              isfinite(l->bytes.high)))
            return l->name;
        if (!l->source || !*l->formula || !*l->name) return "a line without a formula or source";
        if ((l->why != NULL) != (l->bytes.low < l->bytes.high)) return l->name;
        if (!l->host && l->phases & (p->inference ? IN_TRAINING : IN_INFERENCE)) return "a phase that does not occur";
        if (strlen(l->formula) + 1 == sizeof l->formula || strlen(l->name) + 1 == sizeof l->name)
            return "a text that was cut";
    }
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++) {
        struct estimate_interval sum = {0}, is = r->phase[phase];
        for (size_t i = 0; i < r->lines_n; i++)
            if (!r->lines[i].host && r->lines[i].phases & 1u << phase)
                sum = estimate_interval_add(sum, r->lines[i].bytes);
        if (fabs(sum.low - is.low) > 1e-9 * sum.high || fabs(sum.likely - is.likely) > 1e-9 * sum.high ||
            fabs(sum.high - is.high) > 1e-9 * sum.high)
            return "a phase is not the sum of its lines";
        most =
            (struct estimate_interval){fmax(most.low, is.low), fmax(most.likely, is.likely), fmax(most.high, is.high)};
    }
    const bool high =
        p->pp > 1 ? r->peak.high >= most.high : r->peak.high == most.high; /* of any stage of a pipeline */
    if (most.low != r->peak.low || most.likely != r->peak.likely || !high ||
        r->phase[r->peak_phase].likely != r->peak.likely)
        return "the peak is not the largest phase";
    return r->lines_n < ESTIMATE_LINES_MAX && r->notes_n < ESTIMATE_NOTES_MAX ? NULL : "too many lines";
}

static void lines_and_sums(void **state)
{
    struct random_plans random = {.seed = 21};
    int bad = 0;

    (void)state;
    for (int i = 0; i < 3000; i++) {
        const struct plan *p = odd_plan(&random);
        const char *wrong = estimate_make(p, &one) ? wrong_with(p, &one) : "too much";
        char text[1024];
        if (wrong && bad++ < 12) {
            print_options(p, text, sizeof text);
            print_error("plan %d: %s: %s\n", i, wrong, text);
        }
    }
    assert_int_equal(bad, 0);
    random_done(&random);
}

/* ---------------------------------------------------------------- more of it never needs less */

/* A single layer is recomputed in full, and its input is kept in addition. */
static bool few_layers(const struct plan *p)
{
    return p->model->shape.layers < 4 * p->pp;
}

/* none >= operations >= full. Checkpointing only attention's core is not comparable with the last two: a layer that is
 * recomputed has the scores of all its attentions, and products are kept of each. With divided tensors, results of
 * operations that are kept undivided before their sums are reduced may be larger than what they save; so may results
 * with frozen weights, which need no inputs. */
static bool less_checkpointing(struct plan *p)
{
    if (p->checkpoint == PLAN_CHECKPOINT_SELECTIVE_OP && (p->tp > 1 || p->adapter != PLAN_ADAPTER_NONE)) return false;
    p->checkpoint = p->checkpoint == PLAN_CHECKPOINT_FULL ? PLAN_CHECKPOINT_SELECTIVE_OP : PLAN_CHECKPOINT_NONE;
    return true;
}

/* clang-format off */
#define MORE(MOVE)                                                                    \
    MOVE(batch, p->batch *= 2)                                                        \
    MOVE(one_more_sequence, p->batch += 1)                                            \
    MOVE(tokens, p->seq *= 2)                                                         \
    MOVE(accumulation, if (p->inference) return false; p->accumulation += 1)          \
    MOVE(eager, if (p->attention || p->adapter || p->checkpoint) return false; p->attention = PLAN_ATTENTION_EAGER)  \
    MOVE(checkpoint, if (!p->checkpoint || few_layers(p) || !less_checkpointing(p)) return false) \
    MOVE(held_outputs, if (!p->drop_outputs) return false; p->drop_outputs = false)   \
    MOVE(unfused_loss, if (!p->fused_loss) return false; p->fused_loss = false)       \
    MOVE(plain_loss, if (!p->chunked_loss || p->model->shape.vocab <= p->model->shape.hidden) return false; p->chunked_loss = false) \
    MOVE(plain_layers, if (!p->fused_layers || p->sharding >= PLAN_SHARDING_ZERO2) return false; p->fused_layers = false) \
    MOVE(ema, if (p->ema) return false; p->ema = true)                                \
    MOVE(rank, if (p->inference || !p->adapter) return false; p->rank *= 2)           \
    MOVE(cache, if (!p->cache) return false; p->cache = NULL)                         \
    MOVE(whole_norms, if (!p->sequence_parallel || p->checkpoint == PLAN_CHECKPOINT_SELECTIVE_OP) return false; p->sequence_parallel = false)
/* clang-format on */

#define MOVE(name, how)                     \
    static bool more_##name(struct plan *p) \
    {                                       \
        how;                                \
        return true;                        \
    }
MORE(MOVE)
#undef MOVE

static const struct {
    const char *name;
    bool (*move)(struct plan *);
} moves[] = {
#define MOVE(name, how) {#name, more_##name},
    MORE(MOVE)
#undef MOVE
};

/* The largest phase without holes, which depend on what is allocated and freed, and without NCCL's buffers. */
static struct estimate_interval peak_of(const struct estimate_result *r)
{
    struct estimate_interval most = {0};

    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++) {
        struct estimate_interval sum = {0};
        for (size_t i = 0; i < r->lines_n; i++)
            if (!r->lines[i].host && r->lines[i].phases & 1u << phase && r->lines[i].part != ESTIMATE_ALLOCATOR &&
                r->lines[i].part != ESTIMATE_COMMUNICATION)
                sum = estimate_interval_add(sum, r->lines[i].bytes);
        most = (struct estimate_interval){fmax(most.low, sum.low), fmax(most.likely, sum.likely),
                                          fmax(most.high, sum.high)};
    }
    return most;
}

/* Within the tolerance for lines that are largest at different moments, or are rounded. Of pipeline stages, the one
 * with the largest expected need is reported, whose low and high need not be the largest. The low end of plain layers
 * is a script that drops its logits, that of fused layers is not: 14 % of a plan that is mostly logits. */
static bool at_least(const struct plan *p, struct estimate_interval a, struct estimate_interval b)
{
    if (p->pp > 1) return a.likely >= b.likely * 0.9;
    return a.low >= b.low * 0.85 && a.likely >= b.likely * 0.995 && a.high >= b.high * 0.9;
}

static void more_needs_more(void **state)
{
    struct random_plans random = {.seed = 22};
    int bad[LENGTH(moves)] = {0}, tried[LENGTH(moves)] = {0}, all = 0;

    (void)state;
    for (int i = 0; i < 2500; i++) {
        const struct plan *p = odd_plan(&random);
        assert_true(estimate_make(p, &one));
        for (size_t m = 0; m < LENGTH(moves); m++) {
            struct plan more = *p;
            char text[1024];
            if (!moves[m].move(&more) || !plan_possible(&more)) continue;
            tried[m]++;
            struct estimate_interval less, now;
            if (!estimate_make(&more, &other)) continue;
            less = peak_of(&one), now = peak_of(&other);
            if (at_least(p, now, less)) continue;
            all++;
            if (bad[m]++ < 3) {
                print_options(p, text, sizeof text);
                print_error("plan %d, %s: from %.0f %.0f %.0f to %.0f %.0f %.0f: %s\n", i, moves[m].name, less.low,
                            less.likely, less.high, now.low, now.likely, now.high, text);
            }
        }
    }
    for (size_t m = 0; m < LENGTH(moves); m++) {
        if (bad[m]) print_error("%s: %d of %d\n", moves[m].name, bad[m], tried[m]);
        assert_true(tried[m] > 20);
    }
    assert_int_equal(all, 0);
    random_done(&random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_and_sums),
        cmocka_unit_test(more_needs_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
