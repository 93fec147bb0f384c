/* Reads the config.json of a denoiser of diffusers: keys to a shape. For absent keys it uses the defaults of the class
 * (diffusers 0.38, src/diffusers/models). */
#include <jansson.h>
#include <stddef.h>
#include <string.h>
#include "analyzer/model/config_reading.h"
#include "analyzer/model/files.h"
#include "analyzer/base/words.h"

#define AT(field) offsetof(struct model_shape, field)
#define OWN(field) offsetof(struct model_shape, denoiser.field)

static const char *const classes[] = {MODEL_DENOISERS(WORDS_SECOND)};

/* Keys of numbers, by class, in the order of the enum. */
static const struct key {
    enum model_denoiser_kind kind;
    const char *name;
    size_t at;
    uint64_t absent;
} keys[] = {
    {MODEL_DENOISER_UNET, "in_channels", OWN(latent), 4},
    {MODEL_DENOISER_UNET, "out_channels", OWN(out), 4},
    {MODEL_DENOISER_UNET, "layers_per_block", OWN(block_layers), 2},
    {MODEL_DENOISER_UNET, "cross_attention_dim", OWN(text), 1280},
    {MODEL_DENOISER_FLUX, "in_channels", OWN(latent), 64},
    {MODEL_DENOISER_FLUX, "num_layers", AT(layers), 19},
    {MODEL_DENOISER_FLUX, "num_single_layers", OWN(single), 38},
    {MODEL_DENOISER_FLUX, "num_attention_heads", AT(heads), 24},
    {MODEL_DENOISER_FLUX, "attention_head_dim", AT(head_dim), 128},
    {MODEL_DENOISER_FLUX, "joint_attention_dim", OWN(text), 4096},
    {MODEL_DENOISER_FLUX, "pooled_projection_dim", OWN(pooled), 768},
    {MODEL_DENOISER_SD3, "in_channels", OWN(latent), 16},
    {MODEL_DENOISER_SD3, "out_channels", OWN(out), 16},
    {MODEL_DENOISER_SD3, "num_layers", AT(layers), 18},
    {MODEL_DENOISER_SD3, "num_attention_heads", AT(heads), 18},
    {MODEL_DENOISER_SD3, "attention_head_dim", AT(head_dim), 64},
    {MODEL_DENOISER_SD3, "joint_attention_dim", OWN(text), 4096},
    {MODEL_DENOISER_SD3, "pooled_projection_dim", OWN(pooled), 2048},
    {MODEL_DENOISER_PIXART, "in_channels", OWN(latent), 4},
    {MODEL_DENOISER_PIXART, "out_channels", OWN(out), 8},
    {MODEL_DENOISER_PIXART, "num_layers", AT(layers), 28},
    {MODEL_DENOISER_PIXART, "num_attention_heads", AT(heads), 16},
    {MODEL_DENOISER_PIXART, "attention_head_dim", AT(head_dim), 72},
    {MODEL_DENOISER_PIXART, "caption_channels", OWN(text), 4096},
    {MODEL_DENOISER_SANA, "in_channels", OWN(latent), 32},
    {MODEL_DENOISER_SANA, "out_channels", OWN(out), 32},
    {MODEL_DENOISER_SANA, "num_layers", AT(layers), 20},
    {MODEL_DENOISER_SANA, "num_attention_heads", AT(heads), 70},
    {MODEL_DENOISER_SANA, "attention_head_dim", AT(head_dim), 32},
    {MODEL_DENOISER_SANA, "caption_channels", OWN(text), 2304},
    {MODEL_DENOISER_WAN, "in_channels", OWN(latent), 16},
    {MODEL_DENOISER_WAN, "out_channels", OWN(out), 16},
    {MODEL_DENOISER_WAN, "num_layers", AT(layers), 40},
    {MODEL_DENOISER_WAN, "num_attention_heads", AT(heads), 40},
    {MODEL_DENOISER_WAN, "attention_head_dim", AT(head_dim), 128},
    {MODEL_DENOISER_WAN, "ffn_dim", AT(ffn), 13824},
    {MODEL_DENOISER_WAN, "text_dim", OWN(text), 4096},
    {MODEL_DENOISER_COGVIDEOX, "in_channels", OWN(latent), 16},
    {MODEL_DENOISER_COGVIDEOX, "out_channels", OWN(out), 16},
    {MODEL_DENOISER_COGVIDEOX, "num_layers", AT(layers), 30},
    {MODEL_DENOISER_COGVIDEOX, "num_attention_heads", AT(heads), 30},
    {MODEL_DENOISER_COGVIDEOX, "attention_head_dim", AT(head_dim), 64},
    {MODEL_DENOISER_COGVIDEOX, "time_embed_dim", OWN(time), 512},
    {MODEL_DENOISER_COGVIDEOX, "text_embed_dim", OWN(text), 4096},
    {MODEL_DENOISER_HUNYUAN, "in_channels", OWN(latent), 16},
    {MODEL_DENOISER_HUNYUAN, "out_channels", OWN(out), 16},
    {MODEL_DENOISER_HUNYUAN, "num_layers", AT(layers), 20},
    {MODEL_DENOISER_HUNYUAN, "num_single_layers", OWN(single), 40},
    {MODEL_DENOISER_HUNYUAN, "num_refiner_layers", OWN(refiner), 2},
    {MODEL_DENOISER_HUNYUAN, "num_attention_heads", AT(heads), 24},
    {MODEL_DENOISER_HUNYUAN, "attention_head_dim", AT(head_dim), 128},
    {MODEL_DENOISER_HUNYUAN, "text_embed_dim", OWN(text), 4096},
    {MODEL_DENOISER_HUNYUAN, "pooled_projection_dim", OWN(pooled), 768},
    {MODEL_DENOISER_LTX, "in_channels", OWN(latent), 128},
    {MODEL_DENOISER_LTX, "out_channels", OWN(out), 128},
    {MODEL_DENOISER_LTX, "num_layers", AT(layers), 28},
    {MODEL_DENOISER_LTX, "num_attention_heads", AT(heads), 32},
    {MODEL_DENOISER_LTX, "attention_head_dim", AT(head_dim), 64},
    {MODEL_DENOISER_LTX, "caption_channels", OWN(text), 4096},
};

/* Keys of which gpuspy supports one value only, because another one means other tensors. NULL: absent or null. */
static const struct {
    enum model_denoiser_kind kind;
    const char *name, *only;
} fixed[] = {
    {MODEL_DENOISER_UNET, "class_embed_type", NULL},
    {MODEL_DENOISER_UNET, "encoder_hid_dim", NULL},
    {MODEL_DENOISER_UNET, "time_embedding_dim", NULL},
    {MODEL_DENOISER_UNET, "resnet_time_scale_shift", "default"},
    {MODEL_DENOISER_UNET, "time_cond_proj_dim", NULL},
    {MODEL_DENOISER_UNET, "num_class_embeds", NULL},
    {MODEL_DENOISER_UNET, "reverse_transformer_layers_per_block", NULL},
    {MODEL_DENOISER_UNET, "mid_block_type", "UNetMidBlock2DCrossAttn"},
    {MODEL_DENOISER_WAN, "image_dim", NULL},
    {MODEL_DENOISER_WAN, "added_kv_proj_dim", NULL},
    {MODEL_DENOISER_COGVIDEOX, "patch_size_t", NULL},
    {MODEL_DENOISER_COGVIDEOX, "ofs_embed_dim", NULL},
    {MODEL_DENOISER_HUNYUAN, "image_condition_type", NULL},
    {MODEL_DENOISER_SANA, "qk_norm", NULL},
};

bool model_config_names_denoiser(const char *text)
{
    const char *class = strstr(text, "\"_class_name\"");

    return class && ANY_OF(c, classes, MODEL_DENOISERS_N, strstr(class, *c));
}

static bool read_truth(const struct model_reading *r, const char *key, bool absent)
{
    const json_t *value = json_object_get(r->json, key);

    return json_is_boolean(value) ? json_is_true(value) : absent;
}

/* The value for level `i`: one number for all levels, or an item of a list. */
static uint64_t read_of_level(struct model_reading *r, const char *key, size_t i, uint64_t absent)
{
    json_t *value = json_object_get(r->json, key);
    uint64_t n = absent;

    if (json_is_array(value)) value = json_array_get(value, i);
    if (value && !json_is_null(value) && (!model_config_read_count(value, &n) || !n || n > 1 << 20))
        model_config_reject(r, "%s: gpuspy does not know these values; it knows whole numbers up to %d", key, 1 << 20);
    return n;
}

static void read_unet(struct model_reading *r)
{
    struct model_denoiser *d = &r->s.denoiser;
    json_t *types = json_object_get(r->json, "down_block_types");
    const size_t n = json_array_size(json_object_get(r->json, "block_out_channels"));
    static const uint64_t usual[] = {320, 640, 1280, 1280};

    d->levels = n ? n : MODEL_UNET_LEVELS;
    if (d->levels > MODEL_UNET_LEVELS || d->block_layers > 8 || !d->block_layers) {
        model_config_reject(r, "has %zu levels; gpuspy knows UNets of at most %d, with 8 residual blocks each", n,
                            MODEL_UNET_LEVELS);
        return;
    }
    for (size_t i = 0; i < d->levels; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        const bool attends = type ? strcmp(type, "CrossAttnDownBlock2D") == 0 : i + 1 < d->levels;
        if (type && !attends && strcmp(type, "DownBlock2D") != 0)
            model_config_reject(
                r, "down_block_types: '%.40s' is unknown; gpuspy knows CrossAttnDownBlock2D and DownBlock2D", type);
        d->width[i] = read_of_level(r, "block_out_channels", i, usual[i]);
        d->split[i] = read_of_level(r, "attention_head_dim", i, 8); /* in spite of its name, the number of heads */
        d->depth[i] = attends ? read_of_level(r, "transformer_layers_per_block", i, 1) : 0;
        if (d->width[i] % d->split[i]) model_config_reject(r, "attention_head_dim does not divide block_out_channels");
    }
    d->linear_in = read_truth(r, "use_linear_projection", false);
    if (strcmp(model_config_word(r->json, "addition_embed_type"), "text_time") == 0)
        d->pooled = read_of_level(r, "projection_class_embeddings_input_dim", 0, 2816);
    d->pipeline = d->text == 768 ? MODEL_PIPELINE_SD1 : d->text == 1024 ? MODEL_PIPELINE_SD2 : MODEL_PIPELINE_SDXL;
}

/* Elements of the stored sines and cosines of positions. */
static uint64_t table_of(struct model_reading *r)
{
    const struct model_shape *s = &r->s;
    const uint64_t side = s->denoiser.kind == MODEL_DENOISER_SD3      ? read_of_level(r, "pos_embed_max_size", 0, 96)
                          : s->denoiser.kind == MODEL_DENOISER_PIXART ? read_of_level(r, "sample_size", 0, 128) / 2
                                                                      : 0;

    if (s->denoiser.kind != MODEL_DENOISER_COGVIDEOX || s->denoiser.rotary) return side * side * s->hidden;
    return ((read_of_level(r, "sample_frames", 0, 49) - 1) / 4 + 1) * (read_of_level(r, "sample_height", 0, 60) / 2) *
               (read_of_level(r, "sample_width", 0, 90) / 2) * s->hidden +
           read_of_level(r, "max_text_seq_length", 0, 226) * s->hidden;
}

static void read_transformer(struct model_reading *r)
{
    static const enum model_pipeline_id pipelines[MODEL_DENOISERS_N] = {
        [MODEL_DENOISER_FLUX] = MODEL_PIPELINE_FLUX,
        [MODEL_DENOISER_SD3] = MODEL_PIPELINE_SD3,
        [MODEL_DENOISER_PIXART] = MODEL_PIPELINE_PIXART,
        [MODEL_DENOISER_SANA] = MODEL_PIPELINE_SANA,
        [MODEL_DENOISER_WAN] = MODEL_PIPELINE_WAN,
        [MODEL_DENOISER_LTX] = MODEL_PIPELINE_LTX,
        [MODEL_DENOISER_COGVIDEOX] = MODEL_PIPELINE_COGVIDEOX,
        [MODEL_DENOISER_HUNYUAN] = MODEL_PIPELINE_HUNYUANVIDEO,
    };
    struct model_shape *s = &r->s;
    struct model_denoiser *d = &s->denoiser;
    const enum model_denoiser_kind k = d->kind;
    const json_t *ratio = json_object_get(r->json, "mlp_ratio");

    d->pipeline = pipelines[k];
    s->hidden = s->heads * s->head_dim;
    if (k == MODEL_DENOISER_SANA || k == MODEL_DENOISER_HUNYUAN)
        s->ffn = (uint64_t)((double)s->hidden * (json_is_number(ratio)      ? json_number_value(ratio)
                                                 : k == MODEL_DENOISER_SANA ? 2.5
                                                                            : 4));
    s->ffn = s->ffn ? s->ffn : 4 * s->hidden;
    s->layers += d->single;
    d->patch = k == MODEL_DENOISER_SANA || k == MODEL_DENOISER_LTX ? 1 : 2;
    d->out = k == MODEL_DENOISER_FLUX ? d->latent : d->out;
    d->qk_norm = *model_config_word(r->json, "qk_norm");
    d->dual = json_array_size(json_object_get(r->json, "dual_attention_layers"));
    d->guidance = read_truth(r, "guidance_embeds", k == MODEL_DENOISER_HUNYUAN);
    d->rotary = read_truth(r, "use_rotary_positional_embeddings", false);
    d->sizes = read_truth(r, "use_additional_conditions", read_of_level(r, "sample_size", 0, 128) == 128);
    d->table = table_of(r);
    if (!s->layers || !s->hidden || s->layers > 1000 || s->hidden > 1 << 20 || s->ffn > 1 << 24)
        model_config_reject(r, "has no layers, or more than any denoiser");
    if (read_truth(r, "use_learned_positional_embeddings", false))
        model_config_reject(r, "use_learned_positional_embeddings: gpuspy does not know how many there are");
    if (k != MODEL_DENOISER_UNET && read_of_level(r, "patch_size", 0, d->patch) != d->patch &&
        k != MODEL_DENOISER_FLUX && k != MODEL_DENOISER_WAN)
        model_config_reject(r, "patch_size: gpuspy knows %ju for this class", (uintmax_t)d->patch);
}

bool model_config_read_denoiser(struct model_reading *r)
{
    const char *class = model_config_word(r->json, "_class_name");
    size_t kind = 0;

    while (kind < MODEL_DENOISERS_N && strcmp(class, classes[kind]) != 0) kind++;
    if (kind == MODEL_DENOISERS_N) return false;
    r->s = (struct model_shape){.family = MODEL_DENOISER, .denoiser.kind = (enum model_denoiser_kind)kind};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].kind == kind)
            *(uint64_t *)((char *)&r->s + keys[i].at) = read_of_level(r, keys[i].name, 0, keys[i].absent);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        json_t *value = json_object_get(r->json, fixed[i].name);
        if (fixed[i].kind == kind && value && !json_is_null(value) &&
            !(fixed[i].only && json_is_string(value) && strcmp(json_string_value(value), fixed[i].only) == 0))
            model_config_reject(r, "%s: gpuspy does not know this variant of %s", fixed[i].name, class);
    }
    if (kind == MODEL_DENOISER_UNET)
        read_unet(r);
    else
        read_transformer(r);
    return true;
}
