/* Options of an estimate from the configuration of a training or serving tool: axolotl, torchtune, LLaMA-Factory, TRL,
 * accelerate, DeepSpeed, torchtitan, Megatron-LM, NeMo, vLLM. Each known key is a row of recipe_keys.def. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t;

enum { RECIPE_OPTIONS_MAX = 48, RECIPE_UNUSED_MAX = 64 };

struct estimate_recipe {
    char tools[96];                   /* tools that the files look written for: "TRL, accelerate" */
    unsigned traits;                  /* of enum estimate_recipe_trait: what these tools do of themselves */
    char *option[RECIPE_OPTIONS_MAX]; /* "--batch=4"; owned */
    size_t options_n;
    char *unused[RECIPE_UNUSED_MAX]; /* "max_steps=10": keys that may matter and are not used; owned */
    size_t unused_n;
    size_t unused_more; /* how many did not fit in the list */
};

/* Reads the files in order; a later one's keys replace an earlier one's. `model_given`: the user names a model, and
 * that of the files is ignored. `gpus`: the number that the user states, instead of the files'; 0: none. The option
 * --gpus is that of one replica of a sharded model. False after one line on stderr that begins with `command`: a file
 * cannot be read, is written for no known tool, or is one too many. Call estimate_recipe_free() in either case. */
bool estimate_recipe_read(const char *command, const char *const *paths, size_t n, bool model_given, uint64_t gpus,
                          struct estimate_recipe *recipe);
void estimate_recipe_free(struct estimate_recipe *recipe);

/* recipe_read.c: loads a file of YAML, JSON, TOML, or of a command line's "--name value" as JSON. A new reference; NULL
 * with a reason in `why`. At most 1 MiB, 64 levels deep. Aliases of YAML share the value that they name. */
struct json_t *estimate_recipe_load(const char *path, char *why, size_t why_size);
/* The same of a file that another one names (DeepSpeed's): relative to the folder of `from`, or to one above it. */
struct json_t *estimate_recipe_load_named(const char *from, const char *name);
/* The model of a torchtune file: from the name of its folder of weights, else from the function that makes the model.
 */
void estimate_recipe_torchtune_model(const char *folder, const char *component, char *out, size_t size);
/* torchtitan's model: "llama3" and "8B". */
void estimate_recipe_titan_model(const char *name, const char *flavor, char *out, size_t size);
/* The optimizer that a tool's name means, NULL if none does; `lower`: the last part of the name in lower case. */
const char *estimate_recipe_optimizer(const char *name, char *lower, size_t size, bool *fused);
/* Words of a tokenizer by its type, its model or its file of words, as Megatron-LM names them; GPT-2's if unknown. */
int64_t estimate_recipe_vocab(const char *type, const char *model, const char *file);
/* recipe_verl.c: adds what verl's keys mean together. `script`: the file starts its supervised training. */
void estimate_recipe_fill_verl(struct json_t *root, bool script);
/* Whether a command starts an example of Hugging Face's transformers or another script with its arguments, which have
 * neither TRL's number formats nor its checkpointing (recipe_words.c). */
bool estimate_recipe_runs_transformers(const char *text);
/* Constants of a script in Python, and the code of a notebook (recipe_python.c). */
struct json_t *estimate_recipe_read_python(const char *text);
char *estimate_recipe_notebook_code(const struct json_t *root);
/* Replaces arithmetic of the shell by its result. */
void estimate_recipe_add_up(char *text);
/* recipe_words.c: the ZeRO stage in the name of a file: "zero3.json", "ds_z2_config.json"; -1: none. */
int64_t estimate_recipe_stage_named(const char *name);
/* Whether the end of a model's name states how its weights are stored ("Llama-2-7B-GPTQ"). `kept`: the
 * bytes of the name without it; `weights`: the format, NULL if it is bitsandbytes'. */
bool estimate_recipe_stored(const char *name, size_t *kept, const char **weights);
/* Whether NeMo AutoModel has its own code for this model, and then checkpoints a layer's modules one by one. */
bool estimate_recipe_by_module(const char *model);
/* The kind of adapters that peft (peft_type) and LLaMA-Factory call so; NULL: none of these, or LoRA. */
const char *estimate_recipe_adapter(const char *name);
/* Whether a batch of a training of this name holds the chosen and the rejected answer to each prompt, as in the
 * trainers of TRL, LLaMA-Factory and torchtune. */
bool estimate_recipe_has_pairs(const char *training);
/* The training on preferences that a task means ("llm-orpo", "TRL_DPO"); NULL: the training is on text. */
const char *estimate_recipe_preference(const char *task);
/* Whether a key without a row is listed as unused: its name contains a word of what changes memory. */
bool estimate_recipe_may_matter(const char *path);
/* The format that vLLM's --quantization means; NULL: that of the checkpoint. */
const char *estimate_recipe_weights(const char *quantization);
