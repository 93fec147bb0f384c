/* Makes a model of stored tensors: which ones are parameters, and their roles. Sources of the names: transformers
 * 5.23.0 (its models and its quantisers), llama.cpp's gguf-py/gguf/constants.py for blk.*, PEFT for lora_*, GPTQ and
 * AWQ for qweight. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/model/stored.h"

/* The form whose name ends in `other` where this one's ends in `ending`. */
static const struct model_stored_form *sibling_form(const struct model_stored *s, const struct model_stored_form *t,
                                                    const char *ending, const char *other)
{
    char name[1100];

    if (!text_ends_with(t->pattern, ending)) return NULL;
    snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->pattern) - strlen(ending)), t->pattern, other);
    return model_stored_find(s, name);
}

static bool is_type(const struct model_stored_form *t, const char *type)
{
    return t && strcmp(t->type, type) == 0;
}

/* PLAIN parts are one parameter per stored number: 840 is divisible by 1 to 8, whereas 3 bits do not divide 32. */
enum { PLAIN = 840 };

static unsigned of_bits(unsigned word, unsigned bits)
{
    return bits >= 1 && bits <= 8 ? word * PLAIN / bits : 0;
}

/* GPTQ packs along the rows, AWQ along the columns. The zero points are packed, too, so their size shows the number of
 * bits. */
static unsigned of_qweight(const struct model_stored *s, const struct model_stored_form *t, unsigned bits,
                           bool *by_columns)
{
    const struct model_stored_form *zeros = sibling_form(s, t, ".qweight", ".qzeros");
    const struct model_stored_form *scales = sibling_form(s, t, ".qweight", ".scales");

    *by_columns = scales && scales->second != t->second;
    if (zeros && scales && scales->second && zeros->second <= scales->second)
        bits = (unsigned)(32 * zeros->second / scales->second);
    return of_bits(32, bits);
}

/* Parameters per stored number, in parts of PLAIN. PLAIN: not packed; 0: packed with an unknown number of bits. */
static unsigned unpacking_factor(const struct model_stored *s, const struct model_stored_form *t, unsigned bits,
                                 bool *by_columns)
{
    *by_columns = true;
    if (is_type(t, "I32") && text_ends_with(t->pattern, ".qweight")) return of_qweight(s, t, bits, by_columns);
    if (is_type(t, "I32") && text_ends_with(t->pattern, ".weight_packed")) /* compressed-tensors */
        return of_bits(32, bits);
    if (is_type(t, "U32") && sibling_form(s, t, ".weight", ".scales")) /* MLX */
        return of_bits(32, bits);
    if (is_type(t, "U8") &&
        (sibling_form(s, t, ".weight", ".weight.absmax") || sibling_form(s, t, "_blocks", "_scales") ||
         sibling_form(s, t, ".weight", ".weight_scale") || text_ends_with(t->pattern, ".weight_packed")))
        return of_bits(8, 4); /* bitsandbytes, MXFP4, NVFP4 */
    return PLAIN;
}

static bool is_companion(const struct model_stored *s, const struct model_stored_form *t)
{
    static const char *const endings[] = {
        ".absmax",
        ".quant_map",
        ".nested_absmax",
        ".nested_quant_map",
        ".SCB",
        ".weight_format",
        ".weight_scale",
        ".weight_scale_inv",
        ".weight_scale_2",
        ".weight_global_scale",
        ".input_scale",
        ".input_global_scale",
        ".weight_zero_point",
        ".weight_shape",
        ".weight_g_idx",
        ".k_scale",
        ".v_scale",
        ".q_scale",
        ".inv_freq",
        ".position_ids",
        ".masked_bias",
        ".num_batches_tracked",
        ".running_mean",
        ".running_var",
        "e_score_correction_bias",
        "rope_freqs.weight",
        "rope_factors_long.weight",
        "rope_factors_short.weight",
        "exp_probs_b.bias",
    };

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (text_ends_with(t->pattern, endings[i])) return true;
    if (strstr(t->pattern, ".quant_state.")) return true;
    if (sibling_form(s, t, ".qzeros", ".qweight") || sibling_form(s, t, ".scales", ".qweight") ||
        sibling_form(s, t, ".g_idx", ".qweight"))
        return true;
    if (is_type(sibling_form(s, t, ".scales", ".weight"), "U32") ||
        is_type(sibling_form(s, t, ".biases", ".weight"), "U32"))
        return true;
    if (is_type(sibling_form(s, t, "_scales", "_blocks"), "U8")) return true;
    if ((text_ends_with(t->pattern, "attn.bias") || text_ends_with(t->pattern, "attention.bias")) && t->rank >= 3)
        return true; /* the causal mask of GPT-2 and GPT-NeoX */
    return is_type(t, "I64") || is_type(t, "U64") || is_type(t, "BOOL") || is_type(t, "I16") || is_type(t, "U16") ||
           is_type(t, "F8_E8M0");
}

static bool has_any(const char *name, const char *words)
{
    char word[40];

    while (*words) {
        size_t n = strcspn(words, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        if (strstr(name, word)) return true;
        words += n + (words[n] == '|');
    }
    return false;
}

static const struct {
    enum model_tensor_role role;
    const char *words; /* any of them in the name, in lower case */
    unsigned rank_from, rank_to;
} roles[] = {
    {TENSOR_ROUTER, "router|mlp.gate.|moe.gate.|ffn_gate_inp|shared_expert_gate", 1, 9},
    {TENSOR_BIAS, "bias", 0, 9},
    {TENSOR_NORM, "norm|ln_|.ln|.bn|bn1|bn2|bn3|downsample.1.", 0, 1},
    {TENSOR_MLP, "shared_expert|shexp", 2, 9},
    {TENSOR_EXPERT, "experts.*|_exps|experts.gate_up|experts.down|ffn_gate.*|ffn_up.*|ffn_down.*", 2, 9},
    {TENSOR_EMBEDDING,
     "embed_tokens|wte|wpe|word_embed|position_embed|token_type|token_embd|position_embd|"
     "token_types|embed_in|embed_positions|tok_embeddings|class_token|cls_token|pos_embed|"
     "mask_token|shared.weight|embedding|project_in",
     1, 3},
    {TENSOR_CONV, "conv|patch|downsample", 3, 9},
    {TENSOR_HEAD, "lm_head|embed_out|project_out|classifier|score.|pooler|cls.pred|cls.seq|qa_outputs|heads.head", 1,
     9},
    {TENSOR_ATTENTION, "attn|attention|q_proj|k_proj|v_proj|o_proj|query|in_proj", 2, 9},
    {TENSOR_MLP, "mlp|ffn|feed_forward|fc1|fc2|intermediate|output.dense|gate_proj|up_proj|down_proj|dense_h_to", 2, 9},
};

static enum model_tensor_role role_named(const char *pattern, unsigned rank, bool but_bias)
{
    char name[1100];
    size_t n = 0;

    for (; pattern[n] && n < sizeof name - 1; n++) name[n] = (char)tolower((unsigned char)pattern[n]);
    name[n] = 0;
    if (strcmp(name, "output.weight") == 0) /* GGUF */
        return TENSOR_HEAD;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!(but_bias && roles[i].role == TENSOR_BIAS) && rank >= roles[i].rank_from && rank <= roles[i].rank_to &&
            has_any(name, roles[i].words))
            return roles[i].role;
    return rank == 4 ? TENSOR_CONV : TENSOR_OTHER;
}

static enum model_tensor_place stored_place_of(const char *pattern, enum model_tensor_role role)
{
    if (strchr(pattern, '*')) return TENSOR_IN_LAYER;
    return role == TENSOR_EMBEDDING || strstr(pattern, "embed") || strstr(pattern, "embd") ? TENSOR_BEFORE
                                                                                           : TENSOR_AFTER;
}

/* Names that many models have for the same tensor, as model_from_shape calls it. The first row matches whose words end
 * the name (without ".weight" and suffixes of packing) and whose role fits. */
static const struct {
    const char *name;
    enum model_tensor_role role;
    const char *endings;
} plain_names[] = {
    {"q_proj", TENSOR_ATTENTION, ".q_proj|.attn_q|.query|.q_lin|.wq"},
    {"k_proj", TENSOR_ATTENTION, ".k_proj|.attn_k|.key|.k_lin|.wk"},
    {"v_proj", TENSOR_ATTENTION, ".v_proj|.attn_v|.value|.v_lin|.wv"},
    {"qkv_proj", TENSOR_ATTENTION, ".qkv_proj|.attn_qkv|.c_attn|.query_key_value|.qkv|.Wqkv|.in_proj"},
    {"q_a_proj", TENSOR_ATTENTION, ".q_a_proj|.attn_q_a"},
    {"q_b_proj", TENSOR_ATTENTION, ".q_b_proj|.attn_q_b"},
    {"kv_a_proj", TENSOR_ATTENTION, ".kv_a_proj_with_mqa|.attn_kv_a_mqa"},
    {"kv_b_proj", TENSOR_ATTENTION, ".kv_b_proj|.attn_kv_b"},
    {"o_proj", TENSOR_ATTENTION,
     ".o_proj|.attn_output|.out_proj|attention.output.dense|attn.c_proj|attention.dense|.out_lin|.wo"},
    {"gate_proj", TENSOR_MLP, ".gate_proj|.ffn_gate|.ffn_gate_shexp|feed_forward.w1"},
    {"up_proj", TENSOR_MLP,
     ".up_proj|.ffn_up|.ffn_up_shexp|.c_fc|.fc1|.fc_in|.dense_h_to_4h|intermediate.dense|.lin1|feed_forward.w3"},
    {"down_proj", TENSOR_MLP,
     ".down_proj|.ffn_down|.ffn_down_shexp|mlp.c_proj|.fc2|.fc_out|.dense_4h_to_h|output.dense|.lin2|feed_forward.w2"},
    {"gate_up_proj", TENSOR_MLP, ".gate_up_proj"},
    {"gate_proj", TENSOR_EXPERT, ".gate_proj|.ffn_gate_exps|.w1"},
    {"up_proj", TENSOR_EXPERT, ".up_proj|.ffn_up_exps|.w3"},
    {"down_proj", TENSOR_EXPERT, ".down_proj|.ffn_down_exps|.w2"},
    {"gate_up_proj", TENSOR_EXPERT, ".gate_up_proj|.ffn_gate_up_exps"},
    {"embed_tokens", TENSOR_EMBEDDING, "embed_tokens|token_embd|wte|word_embeddings|embed_in|tok_embeddings"},
    {"embed_positions", TENSOR_EMBEDDING, "embed_positions|position_embd|wpe|position_embeddings"},
    {"embed_types", TENSOR_EMBEDDING, "token_type_embeddings|token_types"},
    {"lm_head", TENSOR_HEAD, "lm_head|embed_out|output"},
};

static bool ends_with_any(const char *text, size_t n, const char *words)
{
    while (*words) {
        size_t k = strcspn(words, "|");
        if (n >= k && memcmp(text + n - k, words, k) == 0) return true;
        words += k + (words[k] == '|');
    }
    return false;
}

static const char *plain_pattern_name(const char *pattern, enum model_tensor_role role)
{
    static const char *const tails[] = {".weight", ".qweight", ".weight_packed", "_blocks",
                                        "_weight", ".bias",    "_bias"};
    size_t n = strlen(pattern);

    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (text_ends_with(pattern, tails[i])) {
            n -= strlen(tails[i]);
            break;
        }
    for (size_t i = 0; i < sizeof plain_names / sizeof *plain_names; i++)
        if (plain_names[i].role == role && ends_with_any(pattern, n, plain_names[i].endings))
            return plain_names[i].name;
    return NULL;
}

/* The name of the matrix to which the bias is added. */
static const char *plain_name_of_bias(const char *pattern)
{
    static const enum model_tensor_role of[] = {TENSOR_ATTENTION, TENSOR_MLP, TENSOR_HEAD};

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (plain_pattern_name(pattern, of[i])) return plain_pattern_name(pattern, of[i]);
    return role_named(pattern, 1, true) == TENSOR_NORM ? "norm" : NULL;
}

/* Keeps the end of a long name, because it is more specific. */
static void stored_name_of(const char *pattern, enum model_tensor_role role, char out[80])
{
    const char *plain = role == TENSOR_BIAS ? plain_name_of_bias(pattern) : plain_pattern_name(pattern, role);
    char clean[1100];
    size_t n;

    if (plain) {
        snprintf(out, 80, "%s%s", plain, role == TENSOR_BIAS ? " bias" : "");
        return;
    }
    terminal_clean(clean, sizeof clean, pattern, true);
    n = strlen(clean);
    const char *from = n <= 76 ? clean : clean + n - 76;
    while (from > clean && ((unsigned char)*from & 0xc0) == 0x80) from++;
    snprintf(out, 80, "%s%.76s", from > clean ? "…" : "", from);
}

/* Sets the layers that have it: see struct model_tensor. */
static void place_in_layers(struct model_tensor *row, const struct model_stored *s, const struct model_stored_form *t,
                            bool two_stacks)
{
    const uint64_t span = t->layer_last - t->layer_first + 1;

    row->layers = span < t->count ? span : t->count;
    row->kind = two_stacks && strstr(t->pattern, "decoder.")   ? 2
                : two_stacks && strstr(t->pattern, "encoder.") ? 1
                : row->layers >= s->layers                     ? 0
                : row->role == TENSOR_EXPERT || row->role == TENSOR_ROUTER || strstr(t->pattern, "shared") ||
                        strstr(t->pattern, "shexp")
                    ? 2
                : row->role == TENSOR_MLP ? 1
                                          : 0;
}

/* GPT-2 stores matrices with inputs as rows (transformers' Conv1D). */
static bool is_transposed(const struct model_stored *s, const struct model_stored_form *t)
{
    const struct model_stored_form *c_attn = sibling_form(s, t, "mlp.c_fc.weight", "attn.c_attn.weight");

    if (!c_attn) c_attn = sibling_form(s, t, "mlp.c_proj.weight", "attn.c_attn.weight");
    if (!c_attn) c_attn = sibling_form(s, t, "attn.c_proj.weight", "attn.c_attn.weight");
    if (!c_attn && text_ends_with(t->pattern, "attn.c_attn.weight")) c_attn = t;
    return c_attn && t->rank == 2 && c_attn->rank == 2 && c_attn->second > c_attn->first;
}

static bool add_form(struct model *m, const struct model_stored *s, const struct model_stored_hints *hints,
                     const struct model_stored_form *t)
{
    const unsigned parts = t->packing;
    const bool stack = t->rank >= 3 && (strstr(t->pattern, "expert") || strstr(t->pattern, "_exps"));
    uint64_t rows = t->first, count = t->count, each = t->elements;
    const enum model_tensor_role role = t->role;
    char name[80];

    if (each == 0) return true;
    if (stack) {
        if (__builtin_mul_overflow(count, t->first, &count)) return false;
        rows = t->second;
        each /= t->first;
    }
    uint64_t cols = each / rows;
    unsigned __int128 all = (unsigned __int128)each * parts / PLAIN;
    if (all > MODEL_PARAMS_MAX) return false;
    if (parts != PLAIN && t->by_columns)
        cols = (uint64_t)all / rows;
    else if (parts != PLAIN)
        rows = (uint64_t)all / cols;
    if (is_transposed(s, t)) {
        uint64_t inputs = rows;
        rows = cols;
        cols = inputs;
    }
    stored_name_of(t->pattern, role, name);
    struct model_tensor *row = model_add(m, name, role, stored_place_of(t->pattern, role), rows, cols, count);
    if (!row) return false;
    row->dims = cols == 1 && t->rank >= 2 ? 0 : stack || t->rank == 2 ? 2 : t->rank >= 3 ? 4 : 1;
    row->bytes = t->bytes;
    if (row->place == TENSOR_IN_LAYER) place_in_layers(row, s, t, hints->shape && hints->shape->encoder_layers);
    row->fixed = hints->shape && hints->shape->family == MODEL_WHISPER &&
                 text_ends_with(t->pattern, "encoder.embed_positions.weight");
    return true;
}

struct type_bytes {
    const char *type;
    double bytes;
};

/* The types as a text, such as "BF16 + F32", ordered by bytes. */
static void stored_types_text(struct type_bytes *types, size_t n, char *out, size_t size)
{
    size_t at = 0;

    *out = 0;
    for (size_t shown = 0; shown < 3 && shown < n; shown++) {
        size_t most = 0;
        for (size_t i = 1; i < n; i++)
            if (types[i].bytes > types[most].bytes) most = i;
        if (types[most].bytes <= 0) return;
        at += (size_t)snprintf(out + at, size - at, "%s%s", at ? " + " : "", types[most].type);
        types[most].bytes = 0;
    }
    if (n > 3 && at < size) snprintf(out + at, size - at, " + …");
}

static void add_type(struct type_bytes types[64], size_t *n, const struct model_stored_form *t)
{
    size_t i = 0;

    while (i < *n && strcmp(types[i].type, t->type) != 0) i++;
    if (i == *n && *n == 64) return;
    if (i == *n) types[(*n)++] = (struct type_bytes){t->type, 0};
    types[i].bytes += t->bytes;
}

/* Whether it is a tied output layer that the file stores in addition to the embedding. */
static bool stored_twice(const struct model_stored *s, const struct model_stored_form *forms,
                         const struct model_stored_hints *hints, const struct model_stored_form *t)
{
    if (!hints->shape || !hints->shape->tied || !text_ends_with(t->pattern, "lm_head.weight")) return false;
    for (size_t i = 0; i < s->forms_n; i++)
        if (&s->forms[i] != t && s->forms[i].elements == t->elements && forms[i].role == TENSOR_EMBEDDING) return true;
    return false;
}

/* Derives the number of layers from the names, and vocabulary and hidden size from the table of tokens if there is one
 * only. */
static void guess_shape(const struct model_stored *s, struct model_shape *shape)
{
    const struct model_stored_form *table = NULL;

    *shape = (struct model_shape){.family = MODEL_UNKNOWN, .layers = s->layers};
    EACH_IN (t, s->forms) {
        if (t->rank == 2 &&
            (text_ends_with(t->pattern, "embed_tokens.weight") || text_ends_with(t->pattern, "wte.weight") ||
             text_ends_with(t->pattern, "word_embeddings.weight") || text_ends_with(t->pattern, "embed_in.weight") ||
             text_ends_with(t->pattern, "token_embd.weight"))) {
            if (table) return;
            table = t;
        }
    }
    if (table && table->count == 1) {
        shape->vocab = table->first;
        shape->hidden = table->second;
    }
}

static void note_what_is_counted(struct model *m, uint64_t packed, uint64_t unknown)
{
    if (*m->note) return;
    if (unknown)
        snprintf(m->note, sizeof m->note,
                 "the number of bits of the packed weights is not stated: "
                 "%ju stored words are counted as they are",
                 (uintmax_t)unknown);
    else if (packed)
        snprintf(m->note, sizeof m->note,
                 "parameters are counted unpacked; scales and zero points count only in the bytes");
    else if (m->other_bytes > 0)
        snprintf(m->note, sizeof m->note, "%.0f bytes of the file are not parameters (masks, statistics, scales)",
                 m->other_bytes);
}

/* A matrix that is Q4_K in some layers and Q6_K in others is one matrix of the layer, and the first form represents
 * all. Returns the index of the form that represents `i`. */
static size_t is_speaker_form(const struct model_stored *s, size_t i)
{
    const struct model_stored_form *t = &s->forms[i];
    size_t first = i;

    for (const struct model_stored_form *o = model_stored_find(s, t->pattern); o;
         o = o->next == MAP_NEW ? NULL : &s->forms[o->next])
        if (o->rank == t->rank && o->first == t->first && o->second == t->second && o->elements == t->elements &&
            (size_t)(o - s->forms) < first)
            first = (size_t)(o - s->forms);
    return first;
}

static void join_forms(struct model_stored_form *to, const struct model_stored_form *t)
{
    to->count += t->count;
    to->bytes += t->bytes;
    to->layer_first = t->layer_first < to->layer_first ? t->layer_first : to->layer_first;
    to->layer_last = t->layer_last > to->layer_last ? t->layer_last : to->layer_last;
}

/* What was found while the forms were sorted. */
struct sorting {
    struct type_bytes types[64];
    size_t types_n;
    uint64_t packed, unknown;
};

/* Adds the forms that are parameters, in order; may change `forms`, which is a copy. */
static bool add_forms(const struct model_stored *s, struct model_stored_form *forms,
                      const struct model_stored_hints *hints, struct sorting *sorting, struct model *m)
{
    for (size_t i = 0; i < s->forms_n; i++) {
        const struct model_stored_form *t = &s->forms[i];
        bool by_columns;
        unsigned parts = unpacking_factor(s, t, hints->bits, &by_columns);
        m->stored_bytes += t->bytes;
        if ((parts == PLAIN && is_companion(s, t)) || stored_twice(s, forms, hints, t)) {
            m->other_bytes += t->bytes;
            forms[i].count = 0;
            continue;
        }
        sorting->packed += parts > PLAIN;
        sorting->unknown += parts ? 0 : t->elements * t->count;
        add_type(sorting->types, &sorting->types_n, t);
        size_t first = is_speaker_form(s, i);
        if (first != i && forms[first].count && parts == PLAIN && forms[first].packing == PLAIN) {
            join_forms(&forms[first], t);
            forms[i].count = 0;
        }
        forms[i].packing = parts ? parts : PLAIN;
        forms[i].by_columns = by_columns;
    }
    for (size_t i = 0; i < s->forms_n; i++)
        if (forms[i].count && !add_form(m, s, hints, &forms[i])) return false;
    return true;
}

/* A projection of a Mamba's mixer; some have names of attention's projections. */
static bool is_of_mixer(const struct model_stored_form *t, const struct model_stored_hints *hints)
{
    return hints->shape && hints->shape->family == MODEL_MAMBA && t->rank == 2 && strstr(t->pattern, ".mixer.") &&
           text_ends_with(t->pattern, "_proj.weight");
}

bool model_build_stored(const struct model_stored *s, const struct model_file *f,
                        const struct model_stored_hints *hints, struct model *m)
{
    struct sorting sorting = {.types_n = 0};
    struct model_stored_form *forms = arena_realloc(NULL, s->forms_n, sizeof *forms);
    bool ok;

    if (s->forms_n) memcpy(forms, s->forms, s->forms_n * sizeof *forms);
    for (size_t i = 0; i < s->forms_n; i++)
        forms[i].role = is_of_mixer(&forms[i], hints) ? TENSOR_MLP : role_named(forms[i].pattern, forms[i].rank, false);
    ok = add_forms(s, forms, hints, &sorting, m);
    free(forms);
    if (!ok) return model_file_reject(f, "has more than 1e15 parameters");
    if (m->params == 0) return model_file_reject(f, "holds no parameters");
    stored_types_text(sorting.types, sorting.types_n, m->stored_as, sizeof m->stored_as);
    if (hints->shape)
        m->shape = *hints->shape;
    else
        guess_shape(s, &m->shape);
    note_what_is_counted(m, sorting.packed, sorting.unknown);
    return true;
}
