/* gpuspy estimate: what training or serving a model needs, whether it fits, and what would make it fit. */
#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "analyzer/base/json_out.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/input.h"
#include "analyzer/base/output.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/command/commands.h"
#include "analyzer/estimate/answer.h"
#include "analyzer/estimate/calibration.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/plan_settings.h"
#include "analyzer/estimate/recipe.h"
#include "analyzer/export/export_estimate.h"
#include "analyzer/export/export_list.h"
#include "analyzer/json/json_estimate.h"
#include "analyzer/model/model.h"
#include "analyzer/page/view_estimate_html.h"
#include "analyzer/view/display.h"
#include "analyzer/view/view_estimate.h"

struct settings {
    struct plan_settings plan;
    struct view_display_settings display;
    bool models, json, csv, explain, no_calibration;
    const char *html, *solve;
    struct option_list config;
};

const struct command_text command_text_estimate = {
    .options = OPTION_ROWS(
        OPTIONS_HEADING("Model"), ESTIMATE_MODEL_OPTIONS(struct settings, plan.model, 'p'),
        OPTION_ROW(
            LIST, "config", 0, config, "FILE",
            "options from the configuration of axolotl, torchtune, LLaMA-Factory, TRL, accelerate, DeepSpeed, "
            "torchtitan, Megatron-LM, ms-swift, verl, OpenRLHF, NeMo, oumi, AutoTrain, litgpt, Lightning, nanoGPT, "
            "timm, "
            "diffusers, sd-scripts, ai-toolkit or vLLM, or from a script in Python; several separated by commas; other "
            "options override it"),
        OPTION_ROW(FLAG, "models", 0, models, NULL, "list the models that have a name"),
        PLAN_SHAPE_OPTIONS(struct settings, plan), OPTIONS_HEADING("Training"),
        ESTIMATE_TRAINING_OPTIONS(struct settings, plan.model), PLAN_TRAINING_OPTIONS(struct settings, plan),
        OPTIONS_HEADING("Several GPUs, offloading"), PLAN_PARALLEL_OPTIONS(struct settings, plan),
        OPTIONS_HEADING("Adapters"), PLAN_ADAPTER_OPTIONS(struct settings, plan), OPTIONS_HEADING("Inference"),
        PLAN_INFERENCE_OPTIONS(struct settings, plan), OPTIONS_HEADING("Diffusion"),
        PLAN_DIFFUSION_OPTIONS(struct settings, plan), OPTIONS_HEADING("GPU"),
        PLAN_DEVICE_OPTIONS(struct settings, plan),
        OPTION_ROW(FLAG, "no-calibration", 0, no_calibration, NULL,
                   "ignore what 'gpuspy calibrate' learned from your recordings"),
        {"solve", 0, OPTION_CHOICE, offsetof(struct settings, solve), "WORD", estimate_solve_words, 0, 0,
         "find the largest batch, sequence or number of layers, or the fewest GPUs, that fit"},
        OPTIONS_HEADING("Output"),
        OPTION_ROW(FLAG, "explain", 0, explain, NULL,
                   "print each line's formula with its numbers, its source, and why low and high differ"),
        OPTION_ROW(FLAG, "json", 0, json, NULL, "print JSON, sizes in bytes"),
        OPTION_ROW(
            FLAG, "csv", 0, csv, NULL,
            "print CSV (RFC 4180), sizes in bytes: a row per line; with --solve the results; with more than three "
            "GPUs a row per GPU"),
        OPTION_ROW(FILE, "html", 0, html, "FILE", "write a page, one file that needs no network; - is standard output"),
        DISPLAY_OPTIONS(struct settings, display)),
    .about = "Computes what training or serving a model needs on each GPU: weights, gradients, optimizer states, "
             "activations, buffers and CUDA's own memory; at which moment of the step the peak occurs; and whether it "
             "fits. An exact figure is one number; an estimated one is an interval with its reason (--explain).\n\nThe "
             "default precision is fp32. amp (amp-fp16, amp-bf16) is torch.autocast: weights, gradients and states "
             "stay float32. bf16 and fp16 convert the whole model: states have 16 bits too, without master weights "
             "unless you give --master-weights.\n\nActivations need a shape: a model's name or config.json, or "
             "--layers, --hidden and --heads. With --params only, they are left out.\n\nWith a GPU (--gpu) or a size "
             "(--memory), the verdict is one of three. " FIT_VERDICTS_EXPLAINED ".",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy estimate --params 1e9", "float32 with Adam: 14.90 GiB before activations"},
        {"gpuspy estimate --model llama-3-8b --precision bf16 --batch 2 --gpu h100-80g",
         "a training step, and whether it fits"},
        {"gpuspy estimate --params 7B --precision bf16 --optimizer adamw8bit",
         "7 billion parameters in bfloat16, states in 8 bits"},
        {"gpuspy estimate --model llama-3-8b --precision bf16 --memory 24GiB", "does it fit into 24 GiB?"},
        {"gpuspy estimate --config qlora.yml --gpu 4090", "what that training needs, and which keys gpuspy ignores"},
        {"gpuspy estimate --models", "the models that have a name"},
        {"gpuspy estimate --model llama-3-8b --inference --gpu 4090 --solve seq", "the longest context to serve"},
        {"gpuspy estimate --model llama-3-8b --serve vllm --seq 8192 --gpu h100-80g",
         "vLLM's KV cache: how many requests at once"},
        {"gpuspy estimate --gpus", "the GPUs that gpuspy knows"}),
    .synonyms = COMMAND_EXAMPLES(
        {"lora", "--adapter lora"}, {"qlora|use-qlora", "--adapter qlora"}, {"r|rank|lora-r", "--lora-rank"},
        {"4bit|load-in-4bit|bnb|bnb-4bit|nf4", "--weights nf4"}, {"8bit|load-in-8bit|int8", "--weights int8"},
        {"quantize|quantization|quant|q", "--weights"}, {"fp32|float32", "--precision fp32"},
        {"fp16|float16|half", "--precision fp16|amp-fp16"}, {"bf16|bfloat16", "--precision bf16|amp-bf16"},
        {"dtype|torch-dtype|mixed-precision|amp", "--precision"}, {"fp8", "--precision fp8"},
        {"batch-size|bs|b|per-device-train-batch-size|micro-batch-size|micro-batch|mbs|train-batch-size|concurrency|"
         "users|"
         "requests",
         "--batch"},
        {"seq-len|seqlen|seq-length|max-seq-length|max-seq-len|sequence-length|max-length|max-model-len|ctx|tokens|"
         "context-length|max-position-embeddings|cutoff-len|block-length",
         "--seq"},
        {"gradient-checkpointing|grad-checkpointing|activation-checkpointing|recompute", "--checkpointing full"},
        {"gradient-accumulation-steps|grad-accum|gradient-accumulation|grad-accumulation", "--accumulation"},
        {"optim|optimiser", "--optimizer"}, {"deepspeed|zero|zero-stage|zero3|stage", "--sharding zero1|zero2|zero3"},
        {"fsdp|fsdp2", "--sharding fsdp|fsdp2"},
        {"world-size|nproc-per-node|num-gpus|ngpus|ngpu|n-gpus|num-processes|devices|dp|dp-size|data-parallel-size|"
         "nodes|"
         "num-nodes|nnodes",
         "--gpus"},
        {"tensor-parallel-size|tensor-model-parallel-size|tensor-parallel", "--tp"},
        {"pipeline-parallel-size|pipeline-model-parallel-size|pipeline-parallel", "--pp"},
        {"context-parallel-size", "--cp"}, {"expert-parallel-size|expert-model-parallel-size", "--ep"},
        {"cpu-offload|offload-optimizer|offload-param", "--offload optimizer|all"},
        {"model-name|model-name-or-path|model-id|name", "--model"}, {"parameters|param|num-params|size", "--params"},
        {"vram|gpu-memory|gpu-mem|mem", "--memory"}, {"compile|torch-compile|liger|use-liger-kernel", "--fused-layers"},
        {"flash-attention|flash-attn|flash", "--attention flash"}, {"resolution|height|image-size", "--image"},
        {"vllm-serve|sglang", "--serve"}, {"inference-only|infer|eval", "--inference"},
        {"train|training|finetune|fine-tune|full-finetune|sft", "--adapter none"},
        {"precision=bf16-mixed|precision=mixed-bf16", "--precision amp-bf16"},
        {"precision=16-mixed|precision=fp16-mixed|precision=16", "--precision amp-fp16"},
        {"precision=bfloat16|precision=bf16-true", "--precision bf16"},
        {"precision=float16|precision=half|precision=16-true", "--precision fp16"},
        {"precision=float32|precision=float|precision=32|precision=32-true", "--precision fp32"},
        {"precision=mixed", "--precision amp"}, {"precision=int8|precision=8bit|precision=8", "--weights int8"},
        {"precision=int4|precision=4bit|precision=nf4|precision=4", "--weights nf4"},
        {"checkpointing=true|checkpointing=yes|checkpointing=on", "--checkpointing full"},
        {"serve=sglang|serve=tgi|serve=ollama|serve=llama.cpp|serve=trtllm", "--inference"},
        {"solve=max-batch|solve=batch-size", "--solve batch"},
        {"solve=max-seq|solve=context|solve=max-context|solve=ctx|solve=length", "--solve seq"}),
};

static bool print_estimate_json(json_t *root)
{
    bool ok = json_out_tree(stdout, root, JSON_INDENT(2) | JSON_REAL_PRECISION(12));

    return ok || ferror(stdout); /* main() reports an error of stdout */
}

/* Writes a page of the answer, or of a list if `a` is NULL. */
static bool write_html(const struct settings *s, const struct estimate_answer *a, const char *title, const json_t *rows)
{
    bool ok = true;
    struct output out;
    struct stat st;

    if (!output_open(&out, "estimate", s->html)) return false;
    if (a)
        ok = page_estimate(a, s->explain, out.file);
    else
        export_list_html(title, rows, out.file);
    if (!ok) {
        output_drop(&out);
        return complain_with(false, "estimate: out of memory");
    }
    if (!output_keep(&out, "estimate")) return false;
    if (!out.standard && stat(s->html, &st) == 0)
        complain("estimate: wrote %s, %s: open it in a browser; it needs no network", s->html,
                 UNITS_BYTES((uint64_t)st.st_size));
    return true;
}

/* False after a line on stderr. */
static bool print_estimate(const struct settings *s, const struct estimate_answer *a,
                           const struct estimate_recipe *recipe)
{
    if (s->html) return write_html(s, a, NULL, NULL);
    if (s->json) return print_estimate_json(json_estimate(a, recipe));
    if (s->csv) {
        export_estimate_csv(a, stdout);
        return true;
    }
    view_estimate(&(struct view_estimate){
        .a = a, .recipe = recipe, .term = view_display_start(&s->display), .out = stdout, .explain = s->explain});
    return true;
}

/* Prints a list that needs no model, in each form that an answer has. */
static int print_known_list(const struct settings *s, const char *key, const char *title, struct json_t *(*make)(void),
                            void (*text)(FILE *, const struct terminal *, bool))
{
    json_t *root;
    bool ok = true;

    if (!s->json && !s->csv && !s->html) {
        struct terminal term = view_display_start(&s->display);
        text(stdout, &term, s->explain);
        return EXIT_YES;
    }
    root = make();
    if (s->json) return print_estimate_json(root) ? EXIT_YES : EXIT_INPUT;
    if (s->csv)
        export_list_csv(json_object_get(root, key), stdout);
    else
        ok = write_html(s, NULL, title, json_object_get(root, key));
    json_decref(root);
    return ok ? EXIT_YES : EXIT_INPUT;
}

static int answer_estimate(const struct settings *s, const struct estimate_recipe *recipe, int argc, char **argv)
{
    static struct estimate_answer a;
    const struct estimate_gpu **named = arena_zeroed(estimate_gpu_count, sizeof *named);
    struct plan plan;
    struct model model = {.source = ""};
    size_t named_n;
    int exit_code = EXIT_USAGE;
    char model_text[512];

    if (plan_settings_gpus("estimate", &s->plan, named, &named_n) &&
        plan_from_settings("estimate", &s->plan, &plan, &model, &exit_code) &&
        (s->no_calibration || estimate_calibration_load_own("estimate", &plan.calibration, &exit_code))) {
        exit_code = EXIT_USAGE;
        struct estimate_answer_request wish = {
            .gpus = named,
            .gpus_n = named_n,
            .network = (double)s->plan.network,
            .solve = options_word_index(s->solve, estimate_solve_words),
            .lines = s->csv,
            .argc = argc,
            .argv = argv,
            .model = s->plan.model.model ? text_path_here(model_text, sizeof model_text, s->plan.model.model) : NULL};
        if (estimate_answer_build("estimate", &plan, &wish, &a))
            exit_code = !print_estimate(s, &a, recipe) ? EXIT_INPUT : estimate_answer_fits(&a) ? EXIT_YES : EXIT_NO;
        estimate_answer_free(&a);
    }
    model_free(&model);
    free(named);
    return exit_code;
}

/* Whether the command line gives `word` another value than `value`. */
static bool is_replaced(const char *word, const char *value)
{
    return word && strcmp(word, value) != 0;
}

/* Whether an option of the configuration only qualifies another one, which the command line replaces. */
static bool qualifies_replaced(const struct plan_settings *s, const char *option)
{
    const bool whole = s->adapter && strcmp(s->adapter, "none") == 0; /* nothing is frozen, so not quantised */
    const bool checkpoints = is_replaced(s->checkpointing, "full"), one = s->tp == 1;
    const char *precision = s->model.precision == estimate_default_precision ? NULL : s->model.precision;
    const struct {
        const char *option;
        bool replaced;
    } rows[] = {{"--weights=", whole},
                {"--half-adapters", whole},
                {"--quantised-experts", whole},
                {"--modules-to-save=", whole},
                {"--separate-adapters",
                 whole || (is_replaced(s->sharding, "fsdp") && is_replaced(s->sharding, "fsdp-grad-op"))},
                {"--half-reduce", is_replaced(s->sharding, "fsdp2")},
                {"--checkpoint-modules", checkpoints},
                {"--checkpoint-every=", checkpoints},
                {"--checkpointed-layers=", checkpoints},
                {"--sequence-parallel", one},
                {"--master-weights", is_replaced(precision, "bf16") && is_replaced(precision, "fp16")}};

    return ANY_OF(row, rows, COUNT_OF(rows), row->replaced && strncmp(option, row->option, strlen(row->option)) == 0);
}

/* The arguments that --config adds, followed by the command line without --config: later options take precedence.
 * NULL after a line on stderr. The caller frees the list, not the words. */
static char **expand_recipe(const struct settings *s, int *argc, char **argv, struct estimate_recipe *recipe,
                            int *exit_code)
{
    char path[OPTION_LIST_MAX][PATH_MAX];
    const char *paths[OPTION_LIST_MAX];
    int n = 0;

    for (size_t i = 0; i < s->config.n; i++) {
        snprintf(path[i], sizeof path[i], "%.*s", s->config.item[i].length, s->config.item[i].text);
        paths[i] = path[i];
    }
    const uint64_t gpus = s->plan.gpus == OPTION_ALONE ? 0 : s->plan.gpus;
    if (!estimate_recipe_read("estimate", paths, s->config.n, plan_settings_model_given(&s->plan), gpus, recipe)) {
        *exit_code = EXIT_INPUT;
        return NULL;
    }
    char **all = arena_zeroed(recipe->options_n + (size_t)*argc + 1, sizeof *all);
    bool has_gpus = false; /* those of the command line, or of one replica of them */
    for (size_t i = 0; i < recipe->options_n; i++) {
        has_gpus = has_gpus || (gpus && strncmp(recipe->option[i], "--gpus=", 7) == 0);
        if (!qualifies_replaced(&s->plan, recipe->option[i])) all[n++] = recipe->option[i];
    }
    for (int i = 0; i < *argc; i++) {
        const bool alone = strcmp(argv[i], "--config") == 0 || (has_gpus && strcmp(argv[i], "--gpus") == 0);
        const bool read = strncmp(argv[i], "--config=", 9) == 0 || (has_gpus && strncmp(argv[i], "--gpus=", 7) == 0);
        if (!alone && !read) all[n++] = argv[i];
        i += alone;
    }
    *argc = n;
    return all;
}

static int run_estimate(const struct command *self, int argc, char **argv, const struct estimate_recipe *recipe);

static int estimate_recipe(const struct command *self, const struct settings *given, int argc, char **argv)
{
    struct estimate_recipe recipe = {.options_n = 0};
    int exit_code = EXIT_INPUT;
    char **all = expand_recipe(given, &argc, argv, &recipe, &exit_code);

    if (all) exit_code = run_estimate(self, argc, all, &recipe);
    free(all);
    estimate_recipe_free(&recipe);
    return exit_code;
}

int command_estimate(const struct command *self, int argc, char **argv)
{
    return run_estimate(self, argc, argv, NULL);
}

/* "--model llama 3 8b", "--gpu a100 80gb": the last name of the option and the words after it are one name. */
static bool continues_a_name(const struct plan_settings *s, int n, char **words, char *out, size_t size)
{
    char name[128];
    size_t at = 0;

    for (int i = 0; i < n && at < sizeof name; i++)
        at += (size_t)snprintf(name + at, sizeof name - at, "-%s", words[i]);
    if (s->gpu.n) {
        snprintf(out, size, "--gpu %.*s%s", s->gpu.item[s->gpu.n - 1].length, s->gpu.item[s->gpu.n - 1].text, name);
        if (estimate_gpu_find(out + strlen("--gpu "))) return true;
    }
    snprintf(out, size, "--model %s%s", s->model.model ? s->model.model : "", name);
    return s->model.model && model_words(out + strlen("--model ")) > 0;
}

static int reject_operand(const struct plan_settings *s, int n, char **words)
{
    const char *word = words[0], *option = plan_settings_model_given(s) ? NULL : "--model";
    uint64_t number;
    char why[UNITS_WHY], name[256];

    if (input_is_recording(word))
        return complain_with(EXIT_USAGE, "estimate: '%s' is a recording; type: gpuspy report %s", word, word);
    if (continues_a_name(s, n, words, name, sizeof name))
        return complain_with(EXIT_USAGE, "estimate: '%s' is unexpected; did you mean %s?", word, name);
    if (text_ends_with(word, ".yml") || text_ends_with(word, ".yaml") || text_ends_with(word, ".toml") ||
        text_ends_with(word, ".sh") || text_ends_with(word, ".ipynb"))
        option = "--config";
    else if (estimate_gpu_find(word))
        option = "--gpu";
    else if (units_parse_bytes(word, &number, why) && strpbrk(word, "bB") && strlen(word) > 2 &&
             strpbrk(word, "kKmMgGtT"))
        option = "--memory";
    else if (units_parse_count(word, &number, why))
        option = "--params";
    if (!option)
        return complain_with(EXIT_USAGE,
                             "estimate: '%s' is unexpected; each value follows an option, such as --gpu NAME", word);
    return complain_with(EXIT_USAGE, "estimate: '%s' is unexpected; did you mean %s %s?", word, option, word);
}

static int run_estimate(const struct command *self, int argc, char **argv, const struct estimate_recipe *recipe)
{
    struct settings s = {.plan = PLAN_SETTINGS_DEFAULT};
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (s.config.n && !recipe && !operands) return estimate_recipe(self, &s, argc, argv);
    if (operands > 0) return reject_operand(&s.plan, operands, argv);
    if (s.json + s.csv + (s.html != NULL) > 1) {
        return complain_with(EXIT_USAGE, "estimate: give %s or %s, not both", s.json ? "--json" : "--csv",
                             s.json && s.csv ? "--csv" : "--html");
    }
    /* "--memory 24" means GiB to most people, and the answer for 24 bytes would be nonsense */
    if (s.plan.memory && s.plan.memory < 1 << 20) {
        return complain_with(
            EXIT_USAGE, "estimate: --memory: %ju bytes are less than any GPU has; add a unit, such as --memory 24GiB",
            (uintmax_t)s.plan.memory);
    }
    if (s.plan.gpus == OPTION_ALONE)
        return print_known_list(&s, "gpus", "the GPUs that gpuspy knows", estimate_gpu_list_json,
                                estimate_gpu_list_text);
    if (s.models)
        return print_known_list(&s, "models", "the models that have a name", model_list_json, model_list_text);
    char gpu[32];
    snprintf(gpu, sizeof gpu, "%ju", (uintmax_t)s.plan.gpus);
    if (s.plan.gpus > 1000 && !s.plan.gpu.n && estimate_gpu_find(gpu))
        return complain_with(EXIT_USAGE, "estimate: --gpus %s is a number of GPUs; did you mean --gpu %s?", gpu, gpu);
    if (!plan_settings_model_given(&s.plan)) {
        return complain_with(EXIT_USAGE, "estimate: no model given%s; add --model llama-3-8b or --params 7B",
                             recipe ? ", and the configuration names none" : "");
    }
    return answer_estimate(&s, recipe, argc, argv);
}
