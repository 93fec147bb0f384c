/* What tools call adapters, and weights that are stored in fewer bits: by a model's name, and by vLLM's --quantization.
 */
#include <string.h>
#include <strings.h>
#include "analyzer/base/each.h"
#include "analyzer/estimate/recipe.h"

/* Words at the end of a model's name. NULL: bitsandbytes, whose format the training's own options state. Empty: the
 * word alone states no format. */
static const struct {
    const char *word, *weights;
} endings[] = {{"gptq", "gptq"}, {"awq", "awq"},    {"nvfp4", "nvfp4"}, {"fp4", "nvfp4"},  {"mxfp4", "mxfp4"},
               {"fp8", "fp8"},   {"w4a16", "gptq"}, {"w8a8", "w8a8"},   {"w8a16", "w8a8"}, {"int4", "int4"},
               {"nf4", NULL},    {"bnb", NULL},     {"unsloth", ""},    {"4bit", ""},      {"int8", ""},
               {"dynamic", ""},  {"block", ""},     {"quantized", ""},  {"autoround", ""}, {"bf16", ""}};

bool estimate_recipe_stored(const char *name, size_t *kept, const char **weights)
{
    size_t n = strlen(name), from, i;
    bool found = false, eight = false;

    *weights = NULL;
    for (;; n = from - 1) {
        for (from = n; from > 0 && !strchr("-./_", name[from - 1]);) from--;
        for (i = 0; i < COUNT_OF(endings); i++)
            if (strlen(endings[i].word) == n - from && strncasecmp(name + from, endings[i].word, n - from) == 0) break;
        if (i == COUNT_OF(endings) || from == 0 || name[from - 1] == '/') break;
        eight |= strcmp(endings[i].word, "int8") == 0;
        if (endings[i].weights && !*endings[i].weights) continue;
        found = true;
        if (endings[i].weights && !(*weights && strcmp(endings[i].weights, "int4") == 0)) *weights = endings[i].weights;
    }
    *kept = n;
    if (eight && (!*weights || strcmp(*weights, "gptq") == 0)) *weights = "gptq-8bit";
    return found;
}

typedef const char *const word_pair[2];

/* The second word of the pair whose first is `name`, in any case; NULL: none. */
static const char *second_word_of(word_pair *words, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(name, words[i][0]) == 0) return words[i][1];
    return NULL;
}

const char *estimate_recipe_adapter(const char *name)
{
    static word_pair words[] = {{"oft", "oft"},
                                {"boft", "boft"},
                                {"ia3", "ia3"},
                                {"adalora", "adalora"},
                                {"loha", "loha"},
                                {"lokr", "lokr"},
                                {"vera", "vera"},
                                {"prompt_tuning", "prompt"},
                                {"prefix_tuning", "prefix"}};

    return second_word_of(words, COUNT_OF(words), name);
}

static const char *const with_pairs[] = {"dpo", "ipo", "orpo", "simpo", "cpo", "rm", "reward"};

bool estimate_recipe_has_pairs(const char *training)
{
    return ANY_OF(w, with_pairs, COUNT_OF(with_pairs), strcmp(training, *w) == 0);
}

const char *estimate_recipe_preference(const char *task)
{
    static const char *const others[] = {"kto", "grpo", "gkd", "gold", "ppo"};
    const char *last = strpbrk(task, "-_");

    last = last ? last + 1 : task;
    const char *const *found = FIND_OF(w, with_pairs, COUNT_OF(with_pairs), strcasecmp(last, *w) == 0);
    if (!found) found = FIND_OF(w, others, COUNT_OF(others), strcasecmp(last, *w) == 0);
    return found ? *found : NULL;
}

/* vLLM's names (model_executor/layers/quantization). The others (compressed-tensors, quark, torchao, gguf, auto-round)
 * leave the format to the checkpoint. */
const char *estimate_recipe_weights(const char *quantization)
{
    static word_pair words[] = {{"awq", "awq"},
                                {"awq_marlin", "awq"},
                                {"gptq", "gptq"},
                                {"gptq_marlin", "gptq"},
                                {"moe_wna16", "gptq"},
                                {"int4", "int4"},
                                {"bitsandbytes", "nf4"},
                                {"fp8", "fp8"},
                                {"fbgemm_fp8", "fp8"},
                                {"ptpc_fp8", "fp8"},
                                {"modelopt", "fp8"},
                                {"modelopt_fp4", "nvfp4"},
                                {"nvfp4", "nvfp4"},
                                {"petit_nvfp4", "nvfp4"},
                                {"mxfp4", "mxfp4"},
                                {"modelopt_fp8", "fp8"},
                                {"fp8_per_block", "fp8-block"},
                                {"bnb.nf4", "nf4"}, /* litgpt's */
                                {"bnb.nf4-dq", "nf4-double"},
                                {"bnb.int8-training", "int8"}};

    return second_word_of(words, COUNT_OF(words), quantization);
}

static const char *const recipe_words[] = {
    "batch",        "seq_len",     "length",         "offload",      "checkpointing", "recompute",     "optim",
    "precision",    "dtype",       "quant",          "lora",         "parallel",      "shard",         "zero",
    "fsdp",         "cache",       "expert",         "attention",    "attn",          "memory",        "accum",
    "fused",        "compile",     "vocab",          "ema",          "image",         "bucket",        "activation",
    "unfrozen",     "freeze",      "adapter",        "reward",       "ref_",          "critic",        "teacher",
    "generation",   "gpus",        "num_nodes",      "galore",       "graph",         "layers_to",     "layer_freq",
    "hybrid",       "of_depths",   "asft",           "llama_pro",    "fp8",           "fp4",           "mtp_",
    "wgrad",        "residual_",   "grad_reduce_in", "_in_pipeline", "config_file",   "enforce_eager", "eaft",
    "vision_tower", "speculative", "gpu_blocks",     "limit_mm"};

bool estimate_recipe_may_matter(const char *path)
{
    const char *part = strrchr(path, '.');

    part = part ? part + 1 : path;
    if (strcmp(part, "_component_") == 0 || strcmp(part, "_target_") == 0) /* its section is what it is for */
        while (part > path && (part[-1] != '.' || *part == '_')) part--;
    return ANY_OF(r, recipe_words, COUNT_OF(recipe_words), strcasestr(part, *r));
}

int64_t estimate_recipe_stage_named(const char *name)
{
    const char *at = strcasestr(name, "zero");

    if (!at && (at = strcasestr(name, "stage"))) at++;
    at = at ? at + 4 : (at = strcasestr(name, "_z")) ? at + 2 : NULL;
    if (at && (*at == '_' || *at == '-')) at++;
    return at && *at >= '0' && *at <= '3' ? *at - '0' : -1;
}

/* AutoModel's _transformers/registry.py; parallelizer.py lets transformers checkpoint the layers of other dense models.
 */
bool estimate_recipe_by_module(const char *model)
{
    static const char *const others[] = {"vl", "vision", "moe", "omni", "llama-4", "nemotron"};

    return (strcasestr(model, "llama") || strcasestr(model, "qwen2")) &&
           !ANY_OF(o, others, COUNT_OF(others), strcasestr(model, *o));
}

/* Whether a script is one of TRL's own, whose defaults are not those of transformers' TrainingArguments;
 * DeepSpeed-Chat, which has its own, is read as TRL. */
static bool runs_trl(const char *text)
{
    static const char *const scripts[] = {"sft", "dpo", "grpo", "kto", "orpo", "cpo", "ppo", "reward", "rloo", "gkd"};

    if (strstr(text, "trl") || strstr(text, "zero_stage")) return true;
    for (const char *at = text; (at = strstr(at, ".py")); at++)
        for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
            const size_t n = strlen(scripts[i]);
            if ((size_t)(at - text) >= n && strncmp(at - n, scripts[i], n) == 0) return true;
        }
    return false;
}

bool estimate_recipe_runs_transformers(const char *text)
{
    static const char *const scripts[] = {
        "glue", "clm", "mlm",   "plm", "qa",     "seq2seq", "ner",   "swag",       "summarization", "translation",
        "xnli", "mae", "squad", "mim", "speech", "audio",   "image", "text_class", "class"};

    for (const char *at = text; (at = strstr(at, "run_"));) {
        at += strlen("run_");
        for (size_t i = 0; (at == text + 4 || strchr("/ \t", at[-5])) && i < sizeof scripts / sizeof *scripts; i++)
            if (strncmp(at, scripts[i], strlen(scripts[i])) == 0) return true;
    }
    return strstr(text, ".py") && !runs_trl(text) &&
           (strstr(text, "per_device_train_batch_size") || strstr(text, "per-device-train-batch-size"));
}
