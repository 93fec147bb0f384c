/* Networks of convnets.def from their config.json: the row with the same numbers. */
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/term.h"
#include "analyzer/model/config_reading.h"
#include "analyzer/model/convnets.h"

enum { STAGES = 4 };

/* The numbers of four stages; `absent`: those of the class. */
static void read_stages(struct model_reading *r, const char *key, const uint64_t absent[STAGES], uint64_t out[STAGES])
{
    char name[64];
    json_t *list = model_config_find(r, key, name);
    bool ok = !list || json_array_size(list) == STAGES;

    memcpy(out, absent, STAGES * sizeof *out);
    for (size_t i = 0; i < STAGES && list && ok; i++) ok = model_config_read_count(json_array_get(list, i), &out[i]);
    if (!ok) model_config_reject(r, "%s is not a list of four whole numbers", key);
}

/* A key whose other values change tensors or what autograd keeps. */
static void expect_number(struct model_reading *r, const char *key, double expected)
{
    char name[64];
    json_t *value = model_config_find(r, key, name);

    if (value && !(json_is_number(value) && json_number_value(value) == expected))
        model_config_reject(r, "gpuspy knows this network only with %s %g; give the model's .safetensors", key,
                            expected);
}

static void expect_gelu(struct model_reading *r)
{
    const char *activation = model_config_word(r->json, "hidden_act");

    if (*activation && strcmp(activation, "gelu") != 0)
        model_config_reject(r, "gpuspy knows this network only with hidden_act gelu; give the model's .safetensors");
}

/* The channels of the first stage, the blocks in each and in the third; false if they have no row. */
static bool read_convnext_stages(struct model_reading *r, uint64_t out[3])
{
    static const uint64_t channels[STAGES] = {96, 192, 384, 768}, blocks[STAGES] = {3, 3, 9, 3};
    uint64_t c[STAGES], b[STAGES];

    read_stages(r, "hidden_sizes", channels, c);
    read_stages(r, "depths", blocks, b);
    expect_number(r, "patch_size", 4);
    expect_number(r, "drop_path_rate", 0);
    expect_gelu(r);
    out[0] = c[0];
    out[1] = b[0];
    out[2] = b[2];
    return c[1] == 2 * c[0] && c[2] == 4 * c[0] && c[3] == 8 * c[0] && b[1] == b[0] && b[3] == b[0];
}

static unsigned read_convnext_v2(struct model_reading *r)
{
    uint64_t n[3];

    return read_convnext_stages(r, n) ? model_convnet_like("convnext_v2", n, 3) : 0;
}

/* The same tensors as torchvision's. */
static unsigned read_convnext(struct model_reading *r)
{
    uint64_t n[3];

    expect_number(r, "layer_scale_init_value", 1e-6);
    return read_convnext_stages(r, n) && n[1] == 3 ? model_convnet_like("convnext", (uint64_t[]){n[0], n[2]}, 2) : 0;
}

static unsigned read_swin(struct model_reading *r)
{
    static const uint64_t blocks[STAGES] = {2, 2, 6, 2}, heads[STAGES] = {3, 6, 12, 24};
    const uint64_t channels = model_config_count(r, "embed_dim", 96), side = model_config_count(r, "window_size", 7);
    uint64_t b[STAGES], h[STAGES];

    read_stages(r, "depths", blocks, b);
    read_stages(r, "num_heads", heads, h);
    expect_number(r, "patch_size", 4);
    expect_number(r, "mlp_ratio", 4);
    expect_number(r, "hidden_dropout_prob", 0);
    expect_number(r, "attention_probs_dropout_prob", 0);
    expect_gelu(r);
    if (!model_config_flag(r, "qkv_bias", true) || model_config_flag(r, "use_absolute_embeddings", false))
        model_config_reject(r,
                            "gpuspy does not know a Swin without qkv_bias, or with use_absolute_embeddings; give the "
                            "model's .safetensors");
    if (h[1] != 2 * h[0] || h[2] != 4 * h[0] || h[3] != 8 * h[0] || b[1] != b[0] || b[3] != b[0]) return 0;
    return model_convnet_like("swin", (uint64_t[]){channels, b[0], b[2], side, h[0]}, 5);
}

static void read_labels(struct model_reading *r)
{
    const char *architecture = json_string_value(json_array_get(json_object_get(r->json, "architectures"), 0));
    const size_t labels = json_object_size(json_object_get(r->json, "id2label")),
                 n = architecture ? strlen(architecture) : 0;
    char clean[64];

    if (architecture && strstr(architecture, "ForImageClassification")) {
        r->s.classes = model_config_count(r, "num_labels", labels ? labels : 2);
    } else if (architecture && !(n > 5 && strcmp(architecture + n - 5, "Model") == 0)) {
        terminal_clean(clean, sizeof clean, architecture, true);
        model_config_reject(r, "gpuspy does not know the tensors of %s; give the model's .safetensors", clean);
    }
}

bool model_config_read_convnet(struct model_reading *r)
{
    static const struct {
        const char *type;
        unsigned (*read)(struct model_reading *);
    } types[] = {{"convnext", read_convnext}, {"convnextv2", read_convnext_v2}, {"swin", read_swin}};
    const char *type = model_config_word(r->json, "model_type");

    EACH (row, types, COUNT_OF(types)) {
        if (strcmp(row->type, type) != 0) continue;
        r->s = (struct model_shape){.family = MODEL_CONV};
        expect_number(r, "num_channels", 3);
        r->s.channels = 3;
        r->s.image = model_config_count(r, "image_size", 224);
        read_labels(r);
        r->s.conv_net = row->read(r);
        if (!r->s.conv_net)
            model_config_reject(r, "gpuspy knows %s only in its published sizes; give the model's .safetensors", type);
        return true;
    }
    return false;
}
