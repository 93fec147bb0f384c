/* States of layers without a KV cache, in models whose layers are grouped: transformers cache_utils.py; mamba_ssm and
 * flash-linear-attention keep the same. They have the same size at any length. */
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/serving.h"

/* Elements of the convolution's inputs, and of the state, in one layer. */
static void state_elements(const struct model_shape *one, double *inputs, double *state)
{
    const double keys = (double)(one->linear_keys * one->linear_key_dim),
                 values = (double)(one->linear_values * one->linear_value_dim), taps = (double)one->taps;

    *inputs = *state = 0;
    switch (one->mixer) {
    case MODEL_MIXER_MAMBA:
        *inputs = (double)(one->inner + 2 * one->groups * one->state) * taps;
        *state = (double)one->inner * (double)one->state;
        break;
    case MODEL_MIXER_DELTA:
    case MODEL_MIXER_KDA:
        *inputs = (2 * keys + values) * taps;
        *state = values * (double)one->linear_key_dim;
        break;
    case MODEL_MIXER_LIGHTNING: *state = (double)(one->heads * one->head_dim * one->head_dim); break;
    case MODEL_MIXER_CONV: *inputs = (double)one->hidden * taps; break;
    default: break;
    }
}

void estimate_serving_states(const struct plan *p, double size, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    double low = 0, likely = 0, inputs, state;
    enum model_mixer mixer = MODEL_MIXER_ATTENTION;
    uint64_t layers = 0;

    for (unsigned i = 0; i < s->blocks_n; i++) {
        const struct model_shape one = model_block_shape(s, i);
        state_elements(&one, &inputs, &state);
        if (inputs + state <= 0) continue;
        mixer = one.mixer;
        layers += one.layers;
        low += (double)(one.layers * p->batch) * size * (inputs + state);
        likely += (double)(one.layers * p->batch) * (size * inputs + 4 * state);
    }
    if (!layers) return;
    low /= (double)p->tp; /* their heads are divided */
    likely /= (double)p->tp;
    struct estimate_line *line = estimate_add(r, ESTIMATE_CACHE, IN_INFERENCE, "states, the same at any length",
                                              (struct estimate_interval){low, likely, likely});
    line->why = low < likely ? "the state is kept in float32, or in the model's type" : NULL;
    estimate_explain(line, "transformers cache_utils.py: inputs of the convolution, and a state",
                     "%ju layers (%s) · batch %ju", (uintmax_t)layers, model_mixer_word(mixer), (uintmax_t)p->batch);
}
