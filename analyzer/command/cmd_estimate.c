/* gpuspy estimate: what training needs at least. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/command/command.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/plan_settings.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"

#define ON_TOP "Activations and temporary buffers come on top"

struct settings {
    struct plan_settings plan;
    bool json;
};

static const struct option_row options[] = {
    ESTIMATE_OPTIONS(struct settings, plan.model, 'p'),
    PLAN_OPTIONS(struct settings, plan),
    {"json", 0, OPTION_FLAG, offsetof(struct settings, json), NULL, NULL, 0, 0,
     "print JSON, sizes in bytes"},
    {0},
};

static const struct example examples[] = {
    {"gpuspy estimate --params 1e9", "float32 with Adam: 14.90 GiB"},
    {"gpuspy estimate --params 7B --precision bf16 --optimizer adamw8bit",
     "7 billion parameters in bfloat16, states in 8 bits"},
    {"gpuspy estimate --model llama-3-8b --precision bf16 --memory 24GiB", "does it fit at all?"},
    {0},
};

const struct command_text text_estimate = {
    .options = options,
    .about =
        "Computes what training a model needs at least on one GPU that holds all of it: weights, "
        "gradients and optimizer states. " ON_TOP ": they grow with the batch and the sequence.\n\n"
        "fp32 is the default. amp (amp-fp16, amp-bf16) is torch.autocast: weights, gradients and "
        "states stay float32, as PyTorch keeps them. bf16 and fp16 are a model converted as a whole: "
        "states have 16 bits too, and there are no master weights unless --master-weights says so.",
    .examples = examples,
};

static void row(const char *name, uint64_t bytes, uint64_t params)
{
    char size[UNITS_TEXT];

    printf("  %-18s %12s   %6.4g bytes a parameter\n", name, format_bytes(size, bytes),
           (double)bytes / (double)params);
}

static void print_text(const struct settings *s, const struct estimate *e)
{
    char text[UNITS_TEXT];

    printf("%s parameters, %s, %s%s\n\n", format_count(text, e->params), s->plan.model.optimizer,
           estimate_precision(s->plan.model.precision)->meaning,
           e->master ? " with master weights" : "");
    row("weights", e->weights, e->params);
    row("gradients", e->gradients, e->params);
    row("optimizer states", e->optimizer, e->params);
    if (e->master)
        row("master weights", e->master, e->params);
    row("total", e->total, e->params);
    puts("\n" ON_TOP ": they grow with the batch and the sequence.");
    if (e->cast_copies)
        printf("So do autocast's 16-bit copies of the weights, up to %s while forward runs.\n",
               format_bytes(text, e->cast_copies));
    if (s->plan.memory) {
        char total[UNITS_TEXT];
        printf("\n%s: %s are needed before them, %s are there.\n",
               e->total <= s->plan.memory ? "It may fit" : "It does not fit",
               format_bytes(total, e->total), format_bytes(text, s->plan.memory));
    }
}

static void print_json(const struct settings *s, const struct estimate *e)
{
    json_t *root = json_pack(
        "{s:i, s:I, s:s, s:s, s:b, s:{s:I, s:I, s:I, s:I, s:I}, s:I, s:f, s:s}", "schema", 1,
        "params", (json_int_t)e->params, "optimizer", s->plan.model.optimizer, "precision",
        s->plan.model.precision, "master_weights", e->master != 0, "estimate", "weights_bytes",
        (json_int_t)e->weights, "gradients_bytes", (json_int_t)e->gradients, "optimizer_bytes",
        (json_int_t)e->optimizer, "master_bytes", (json_int_t)e->master, "total_bytes",
        (json_int_t)e->total, "autocast_copies_bytes", (json_int_t)e->cast_copies,
        "bytes_per_parameter", (double)e->total / (double)e->params, "note", ON_TOP);

    if (s->plan.memory)
        json_object_set_new(root, "memory",
                            json_pack("{s:I, s:b}", "memory_bytes", (json_int_t)s->plan.memory, "fits",
                                      e->total <= s->plan.memory));
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}

int cmd_estimate(int argc, char **argv)
{
    static struct estimate_result r;
    struct settings s = {.plan = PLAN_SETTINGS_DEFAULT};
    struct plan plan;
    struct model model;
    int operands = options_parse(&command_estimate, argc, argv, &s);
    int exit_code = EXIT_USAGE;

    if (operands < 0)
        return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands > 0) {
        complain(
            "estimate: '%s' is one word too many; the number of parameters goes behind --params",
            argv[0]);
        return EXIT_USAGE;
    }
    if (!plan_settings_model_given(&s.plan)) {
        complain("estimate: how many parameters? add --params, such as --params 7B");
        return EXIT_USAGE;
    }
    if (plan_from_settings("estimate", &s.plan, &plan, &model, &exit_code)) {
        if (estimate_make(&plan, &r)) {
            struct estimate e = estimate_training(model.params, plan.optimizer, plan.precision,
                                                  plan.master_weights);
            (s.json ? print_json : print_text)(&s, &e);
            exit_code = plan.memory > 0 && r.peak.likely > plan.memory ? EXIT_NO : EXIT_YES;
        } else {
            complain("estimate: that needs more than 2^63 bytes on one GPU");
        }
    }
    model_free(&model);
    return exit_code;
}
