/* verl's configurations and scripts, whose keys are those of Hydra ("actor_rollout_ref.model.path=NAME"): the update of
 * the actor, or a supervised training. The rollout sleeps during the update, and what is offloaded is loaded for it
 * (verl 0.7: workers/fsdp_workers.py, trainer/config). */
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

/* Keys of which the update's numbers depend on several. */
static void fill_actor(json_t *out, json_t *actor, const json_t *all)
{
    const int64_t length = verl_count(all, "data.max_prompt_length") + verl_count(all, "data.max_response_length"),
                  tokens = verl_count(actor, "actor.ppo_max_token_len_per_gpu"),
                  prompts = verl_count(actor, "actor.ppo_mini_batch_size"),
                  parts = count_product(verl_count(actor, "actor.ulysses_sequence_parallel_size"),
                                        verl_count(actor, "actor.megatron.context_parallel_size")),
                  gpus = count_product(verl_count(all, "trainer.n_gpus_per_node"), verl_count(all, "trainer.nnodes")),
                  of_all = verl_count(actor, "actor.ppo_micro_batch_size");
    const bool by_tokens = says_yes(verl_value(actor, "actor.use_dynamic_bsz")) && tokens > 0;
    json_t *listed[] = {verl_value(actor, "actor.use_kl_loss"), verl_value(actor, "rollout.gpu_memory_utilization"),
                        verl_value(all, "critic.model.path")};
    static const char *const names[] = {"ref_model", "rollout.gpu_memory_utilization", "critic_model"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (listed[i]) json_object_set(out, names[i], listed[i]);
    if (of_all > 0 && !verl_value(actor, "actor.ppo_micro_batch_size_per_gpu"))
        json_object_set_new(out, "micro_batch_size", json_integer(count_or_one(count_product(of_all, parts) / gpus)));
    if (length > 0) json_object_set_new(out, "max_length", json_integer(length));
    if (by_tokens) { /* as many samples as have so many tokens */
        json_object_del(json_object_get(actor, "actor"), "ppo_micro_batch_size_per_gpu");
        json_object_set_new(out, "micro_batch_size", json_integer(1));
        json_object_set_new(out, "max_length", json_integer(count_product(tokens, parts)));
        json_object_set_new(out, "packing", json_true());
    } else if (prompts > 0)
        json_object_set_new(out, "global_batch_size",
                            json_integer(count_product(prompts, verl_count(actor, "rollout.n"))));
}

void estimate_recipe_fill_verl(json_t *root, bool script)
{
    json_t *all = json_object_get(root, "actor_rollout_ref"), *actor = json_object_get(all, "actor"),
           *sharding = json_object_get(actor, "fsdp_config");
    const bool supervised = !all && (verl_value(root, "model.partial_pretrain") || script),
               megatron =
                   json_object_get(actor, "megatron") || is_recipe_word(json_object_get(actor, "strategy"), "megatron");

    if (!json_is_object(all) && !supervised) return;
    json_t *out = json_object();
    json_object_set_new(out, megatron ? "verl_on_megatron" : "verl_script", json_true());
    if (!megatron) json_object_set_new(out, "fsdp", json_string(supervised ? "fsdp2" : "fsdp"));
    if (supervised) { /* its defaults */
        json_object_set_new(out, "max_length", json_integer(1024));
        json_object_set_new(out, "micro_batch_size", json_integer(4));
    } else {
        fill_actor(out, all, root);
        json_object_del(root, "data");
    }
    if (value_has_word(json_object_get(sharding, "model_dtype"), "16"))
        json_object_set_new(out, "pure_bf16", json_true());
    if (json_integer_value(json_object_get(sharding, "fsdp_size")) <= 0) json_object_del(sharding, "fsdp_size");
    if (megatron) json_object_del(actor, "strategy");
    json_object_update_missing(out, root);
    json_object_clear(root);
    json_object_update(root, out);
    json_decref(out);
}
