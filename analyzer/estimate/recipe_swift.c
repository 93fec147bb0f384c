/* ms-swift's scripts and configurations: what its commands assume if an option is not given (swift/arguments,
 * swift/trainers/arguments.py, swift/megatron/arguments; version 4). Its trainings are then read as those of TRL, whose
 * trainers it uses, or as Megatron-LM's. */
#include <string.h>

#include "analyzer/estimate/recipe.h"
#include "analyzer/estimate/recipe_value.h"

#define NAMES_OF_TUNER "tuner_type", "train_type", "sft_type" /* of versions 4, 3 and 2 */

static bool has_command(const char *text, const char *program)
{
    static const char *const commands[] = {" sft", " pt", " rlhf"};
    const size_t n = strlen(program);

    for (const char *at = text; (at = strstr(at, program)); at += n)
        for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
            const size_t length = strlen(commands[i]);
            if (strncmp(at + n, commands[i], length) == 0 && (!at[n + length] || strchr(" \t\r\n\\", at[n + length])) &&
                (at == text || strchr(" \t\r\n/;&", at[-1])))
                return true;
        }
    return false;
}

const char *estimate_recipe_swift_command(const char *text)
{
    if (has_command(text, "megatron")) return "megatron_swift";
    return has_command(text, "swift") || strstr(text, "swift/cli/") ? "swift_script" : NULL;
}

static int64_t swift_count_of(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    const int64_t n = json_is_integer(value) ? json_integer_value(value) : atoll(recipe_text_of(value));

    return n > 0 && n < 1 << 20 ? n : 1;
}

/* swift/config/zero3_offload.json and its like come with ms-swift. */
static void replace_own_deepspeed(json_t *root)
{
    const char *name = recipe_text_of(json_object_get(root, "deepspeed"));
    const int64_t stage = strncmp(name, "zero", 4) == 0 && !strchr(name, '.') && !strchr(name, '/')
                              ? estimate_recipe_stage_named(name)
                              : -1;
    json_t *zero;

    if (stage < 0) return;
    zero = json_pack("{s:I}", "stage", (json_int_t)stage);
    if (strstr(name, "offload")) {
        json_object_set_new(zero, "offload_optimizer", json_pack("{s:s}", "device", "cpu"));
        if (stage == 3) json_object_set_new(zero, "offload_param", json_pack("{s:s}", "device", "cpu"));
    }
    json_object_set_new(root, "zero_optimization", zero);
    json_object_del(root, "deepspeed");
}

static bool has_tuner(const json_t *root)
{
    static const char *const names[] = {NAMES_OF_TUNER};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_object_get(root, names[i])) return true;
    return false;
}

void estimate_recipe_fill_swift(json_t *root, const char *command)
{
    const bool megatron = command && strcmp(command, "megatron_swift") == 0;

    if (!command && (!has_tuner(root) || json_object_get(root, "base_model"))) return;
    json_object_set_new(root, command ? command : "swift_script", json_true());
    if (megatron) return;
    replace_own_deepspeed(root);
    const int64_t all = swift_count_of(root, "per_device_train_batch_size") * swift_count_of(root, "nproc_per_node") *
                        swift_count_of(root, "nnodes");
    const json_t *passes = json_object_get(root, "gradient_accumulation_steps");
    if (!passes || json_is_string(passes)) /* a script's arithmetic is not evaluated; it usually makes the default */
        json_object_set_new(root, "gradient_accumulation_steps", json_integer(all < 16 ? (16 + all - 1) / all : 1));
}
