/* What vLLM's profiling pass takes for the image tower of a model. */
#include "analyzer/estimate/server_tower.h"

#include <math.h>
#include "analyzer/estimate/serving.h"

/* The largest item that vLLM's dummy inputs have: of the processors' published limits (preprocessor_config.json). With
 * them the table gives the items of vLLM's own line "Encoder cache will be initialized with a budget of N tokens, and
 * profiled with M items": 16,384 and 1 (Qwen), 8,192 and 31 (Gemma 3). */
struct tower {
    double item, patches;         /* tokens of the largest item that the language model reads; patches of each */
    double hidden, ffn, matrices; /* per patch: what the MLP makes is this many times ffn */
    double pixels;                /* numbers of a patch */
};

#define TOWER(id) [MODEL_TOWER_##id]
static const struct tower towers[] = {
    TOWER(GEMMA3) = {260, 4096.0 / 260, 1152, 4304, 2, 588}, /* with the marks around the 256 tokens */
    TOWER(GEMMA4) = {280, 9, 1152, 4304, 3, 768},
    TOWER(MISTRAL3) = {3080, 3025.0 * 4 / 3080, 1024, 4096, 3, 588},
    TOWER(PIXTRAL12) = {4160, 4096.0 / 4160, 1024, 4096, 3, 768},
    TOWER(LLAVA) = {576, 577.0 / 576, 1024, 4096, 2, 588},
    TOWER(QWEN2VL) = {16384, 4, 1280, 5120, 2, 1176},
    TOWER(QWEN25VL) = {16384, 4, 1280, 3420, 3, 1176},
    TOWER(QWEN25VL_LARGE) = {16384, 4, 1280, 3456, 3, 1176},
    TOWER(QWEN3VL) = {16384, 4, 1024, 4096, 2, 1536},
    TOWER(QWEN3VL_LARGE) = {16384, 4, 1152, 4304, 2, 1536},
    TOWER(QWEN35_TINY) = {16384, 4, 768, 3072, 2, 1536},
    TOWER(QWEN35_SMALL) = {16384, 4, 1024, 4096, 2, 1536},
    TOWER(QWEN35) = {16384, 4, 1152, 4304, 2, 1536},
    TOWER(LLAMA4) = {2448, 17 * 577.0 / 2448, 1408, 5632, 2, 588},
    TOWER(MLLAMA11) = {4 * 1601, 1608.0 / 1601, 1280, 5120, 2, 588},
    TOWER(MLLAMA90) = {4 * 1601, 1608.0 / 1601, 1280, 5120, 2, 588},
    TOWER(PADDLEOCR) = {3600, 4, 1152, 4304, 2, 588},
};
#undef TOWER

/* Numbers that a layer of the tower has at once for a patch: the residual stream, the norm's result, and the larger of
 * what the MLP makes and of attention's q, k and v with their rotated copies. Heads and ffn are divided. */
static double layer_numbers(const struct tower *t, double tp)
{
    return 2 * t->hidden + fmax(t->matrices * t->ffn, 7 * t->hidden) / tp;
}

/* Llama 3.2's tower beside its layers: the states of five layers, and the mask, a row of all tiles' patches for each
 * patch. High: the five states once more, stacked, and the last one. */
static struct estimate_interval joined_states(const struct tower *t)
{
    const double states = 5 * t->hidden, mask = t->item * t->patches;

    return (struct estimate_interval){states, states + mask, 2 * states + t->hidden + mask};
}

static bool joins_states(const struct plan *p)
{
    return p->model->shape.tower == MODEL_TOWER_MLLAMA11 || p->model->shape.tower == MODEL_TOWER_MLLAMA90;
}

/* Items that are read at once: as many as the tokens of a pass hold, at least one; Llama 3.2, which only older versions
 * serve, one for each request. */
static double items_at_once(const struct plan *p, const struct tower *t, double tokens, double requests)
{
    return joins_states(p) ? requests : fmax(1, floor(tokens / t->item));
}

void estimate_server_tower(const struct plan *p, struct estimate_interval tokens, struct estimate_interval requests,
                           struct estimate_tower_pass *out)
{
    const enum model_tower id = p->model->shape.tower;
    const struct tower *t = &towers[id];
    const double size = estimate_serving_element(p), tp = (double)p->tp;
    struct estimate_interval each = EXACTLY(layer_numbers(t, tp));

    *out = (struct estimate_tower_pass){0};
    if (!t->item) return;
    if (joins_states(p)) each = estimate_interval_add(each, joined_states(t));
    const double likely = items_at_once(p, t, tokens.likely, requests.likely) * t->item,
                 high = items_at_once(p, t, tokens.high, requests.high) * t->item;
    /* pixels in the weights' type; high: also in float32 */
    out->pass = (struct estimate_interval){0, size * likely * t->patches * (each.likely + t->pixels),
                                           high * t->patches * (size * (each.high + t->pixels) + 4 * t->pixels)};
    out->kept = (struct estimate_interval){
        0, size * likely * (t->patches * t->pixels + (double)p->model->shape.hidden),
        high * ((size + 4) * t->patches * t->pixels + size * (double)p->model->shape.hidden)};
}
