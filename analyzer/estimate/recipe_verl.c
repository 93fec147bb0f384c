/* verl's configurations and scripts, whose keys are those of Hydra ("actor_rollout_ref.model.path=NAME"): the update of
 * the actor, or a supervised training, as keys that recipe_keys.def has. The rollout sleeps during the update, and what
 * is offloaded is loaded for it (verl 0.7: workers/fsdp_workers.py, trainer/config). */
#include <stdio.h>
#include <string.h>

#include "analyzer/estimate/recipe.h"
#include "analyzer/estimate/recipe_value.h"

/* The value of "a.b.c" below `root`. */
static json_t *verl_value(const json_t *root, const char *path)
{
    char part[128];
    json_t *at = (json_t *)root;

    while (at && *path) {
        const size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        at = json_object_get(at, part);
        path += n + (path[n] == '.');
    }
    return at;
}

static int64_t verl_count(const json_t *root, const char *path)
{
    const json_t *value = verl_value(root, path);

    return json_is_integer(value) && json_integer_value(value) > 0 && json_integer_value(value) < 1 << 24
               ? json_integer_value(value)
               : 0;
}

/* Moves values to the names that other tools give them: what stays in `from` was not read. */
static void rename_keys(json_t *to, json_t *from, const char *const (*names)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_t *value = verl_value(from, names[i][0]);
        if (!value) continue;
        if (!json_is_null(value)) json_object_set(to, names[i][1], value);
        const char *last = strrchr(names[i][0], '.');
        char section[128];
        snprintf(section, sizeof section, "%.*s", last ? (int)(last - names[i][0]) : 0, names[i][0]);
        json_object_del(verl_value(from, section), last ? last + 1 : names[i][0]);
    }
}

static void fill_actor(json_t *out, json_t *root, const json_t *all)
{
    static const char *const names[][2] = {
        {"model.path", "model_name_or_path"},
        {"model.lora_rank", "lora_rank"},
        {"model.target_modules", "lora_target"},
        {"model.enable_gradient_checkpointing", "gradient_checkpointing"},
        {"model.use_liger", "use_liger_kernel"},
        {"actor.ppo_micro_batch_size_per_gpu", "micro_batch_size"},
        {"actor.ulysses_sequence_parallel_size", "cp_size"},
        {"actor.strategy", "fsdp"},
        {"actor.fsdp_config.offload_policy", "fsdp_cpu_offload"},
        {"actor.megatron.tensor_model_parallel_size", "tensor_model_parallel_size"},
        {"actor.megatron.pipeline_model_parallel_size", "pipeline_model_parallel_size"},
        {"actor.megatron.virtual_pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size"},
        {"actor.megatron.context_parallel_size", "context_parallel_size"},
        {"actor.megatron.expert_model_parallel_size", "expert_model_parallel_size"},
        {"actor.megatron.expert_tensor_parallel_size", "expert_tensor_parallel_size"},
        {"actor.megatron.override_transformer_config.recompute_granularity", "recompute_granularity"},
        {"actor.megatron.override_transformer_config.recompute_method", "recompute_method"},
        {"actor.megatron.override_transformer_config.recompute_num_layers", "recompute_num_layers"},
        {"actor.megatron.override_transformer_config.recompute_modules", "recompute_modules"},
        {"actor.megatron.override_transformer_config.num_layers_in_first_pipeline_stage",
         "decoder_first_pipeline_num_layers"},
        {"actor.megatron.override_transformer_config.num_layers_in_last_pipeline_stage",
         "decoder_last_pipeline_num_layers"},
        {"actor.megatron.override_transformer_config.attention_backend", "attention_backend"},
        {"actor.megatron.sequence_parallel", "sequence_parallel"},
        {"actor.megatron.use_distributed_optimizer", "use_distributed_optimizer"},
        {"actor.optim.override_optimizer_config.optimizer_cpu_offload", "optimizer_cpu_offload"},
        {"actor.freeze_vision_tower", "freeze_vision_tower"},
        {"actor.use_kl_loss", "ref_model"},
        {"rollout.gpu_memory_utilization", "rollout.gpu_memory_utilization"}};
    const int64_t length = verl_count(all, "data.max_prompt_length") + verl_count(all, "data.max_response_length"),
                  tokens = verl_count(root, "actor.ppo_max_token_len_per_gpu"),
                  prompts = verl_count(root, "actor.ppo_mini_batch_size"),
                  parts = count_or_one(verl_count(root, "actor.ulysses_sequence_parallel_size")) *
                          count_or_one(verl_count(root, "actor.megatron.context_parallel_size")),
                  gpus = count_or_one(verl_count(all, "trainer.n_gpus_per_node")) *
                         count_or_one(verl_count(all, "trainer.nnodes")),
                  of_all = verl_count(root, "actor.ppo_micro_batch_size");

    rename_keys(out, root, names, sizeof names / sizeof *names);
    if (of_all > 0 && !json_object_get(out, "micro_batch_size"))
        json_object_set_new(out, "micro_batch_size", json_integer(count_or_one(of_all * parts / gpus)));
    if (length > 0) json_object_set_new(out, "max_length", json_integer(length));
    if (prompts > 0)
        json_object_set_new(out, "global_batch_size",
                            json_integer(prompts * count_or_one(verl_count(root, "rollout.n"))));
    if (says_yes(verl_value(root, "actor.use_dynamic_bsz")) &&
        tokens > 0) { /* as many samples as have so many tokens */
        json_object_set_new(out, "micro_batch_size", json_integer(1));
        json_object_set_new(out, "max_length", json_integer(tokens * parts));
        json_object_set_new(out, "packing", json_true());
        json_object_del(out, "global_batch_size");
    }
    const json_t *critic = verl_value(all, "critic.model.path");
    if (critic) json_object_set(out, "critic_model", (json_t *)critic);
}

static void fill_supervised(json_t *out, json_t *root)
{
    static const char *const names[][2] = {{"model.path", "model_name_or_path"},
                                           {"model.partial_pretrain", "model_name_or_path"},
                                           {"model.lora_rank", "lora_rank"},
                                           {"model.target_modules", "lora_target"},
                                           {"model.enable_gradient_checkpointing", "gradient_checkpointing"},
                                           {"model.use_liger", "use_liger_kernel"},
                                           {"model.strategy", "fsdp"},
                                           {"engine.strategy", "fsdp"},
                                           {"model.fsdp_config.cpu_offload", "fsdp_cpu_offload"},
                                           {"data.micro_batch_size", "micro_batch_size"},
                                           {"data.micro_batch_size_per_gpu", "micro_batch_size"},
                                           {"data.train_batch_size", "global_batch_size"},
                                           {"data.max_length", "max_length"},
                                           {"engine.ulysses_sequence_parallel_size", "cp_size"},
                                           {"ulysses_sequence_parallel_size", "cp_size"}};

    json_object_set_new(out, "max_length", json_integer(1024));
    json_object_set_new(out, "micro_batch_size", json_integer(4));
    json_object_set_new(out, "fsdp", json_string("fsdp2"));
    rename_keys(out, root, names, sizeof names / sizeof *names);
}

/* Settings of the trained model that are left: those that may matter are listed. "verl.model" is another key than
 * "model", which other tools have. */
static void keep_unread(json_t *out, const json_t *root)
{
    static const char *const sections[][2] = {{"actor_rollout_ref.model", "actor_rollout_ref.model"},
                                              {"actor_rollout_ref.actor", "actor_rollout_ref.actor"},
                                              {"model", "verl.model"},
                                              {"engine", "verl.engine"}};

    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        json_t *section = verl_value(root, sections[i][0]);
        if (json_is_object(section)) json_object_set(out, sections[i][1], section);
    }
}

void estimate_recipe_fill_verl(json_t *root, bool script)
{
    json_t *actor = json_object_get(root, "actor_rollout_ref");
    const bool supervised = !actor && (verl_value(root, "model.partial_pretrain") || script);
    static const char *const gpus[][2] = {{"trainer.n_gpus_per_node", "nproc_per_node"},
                                          {"trainer.nnodes", "nnodes"},
                                          {"nproc_per_node", "nproc_per_node"},
                                          {"nnodes", "nnodes"}};

    if (!json_is_object(actor) && !supervised) return;
    json_t *out = json_object();
    json_object_set_new(out, "gradient_checkpointing", json_true());
    if (supervised)
        fill_supervised(out, root);
    else
        fill_actor(out, actor, root);
    rename_keys(out, root, gpus, sizeof gpus / sizeof *gpus);
    const bool megatron =
        verl_value(actor, "actor.megatron") || is_recipe_word(json_object_get(out, "fsdp"), "megatron");
    const json_t *dtype = verl_value(actor, "actor.fsdp_config.model_dtype");
    json_object_set_new(out, megatron ? "verl_on_megatron" : "verl_script", json_true());
    json_object_set_new(out, "bf16", json_true());
    json_object_set_new(out, "optimizer", json_string("adamw"));
    json_object_set_new(out, "cross_entropy_loss_fusion", json_true()); /* probabilities come from logits in 16 bits */
    if (strstr(recipe_text_of(dtype), "16")) json_object_set_new(out, "pure_bf16", json_true());
    if (json_integer_value(json_object_get(out, "lora_rank")) > 0)
        json_object_set_new(out, "finetuning_type", json_string("lora"));
    else
        json_object_del(out, "lora_rank");
    if (megatron) {
        json_object_del(out, "fsdp");
        json_object_del(out, "gradient_checkpointing");
        if (!json_object_get(out, "sequence_parallel")) json_object_set_new(out, "sequence_parallel", json_true());
        if (!json_object_get(out, "use_distributed_optimizer"))
            json_object_set_new(out, "use_distributed_optimizer", json_true());
    } else if (!json_object_get(out, "fsdp"))
        json_object_set_new(out, "fsdp", json_string("fsdp"));
    const json_t *shards = verl_value(actor, "actor.fsdp_config.fsdp_size");
    if (json_is_integer(shards) && json_integer_value(shards) <= 0) /* all GPUs */
        json_object_del(verl_value(actor, "actor.fsdp_config"), "fsdp_size");
    keep_unread(out, root);
    json_object_clear(root);
    json_object_update(root, out);
    json_decref(out);
}
