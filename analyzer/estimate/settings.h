/* The options that describe a model, the same in every command that has them. */
#pragma once

#include "analyzer/estimate/estimate.h"
#include "analyzer/base/options.h"

struct estimate_settings {
    uint64_t params;   /* 0: not given */
    const char *model; /* NULL: not given */
    const char *optimizer, *precision;
    bool master_weights;
};

extern const char estimate_default_precision[]; /* "fp32"; another pointer: the user chose it */
#define ESTIMATE_SETTINGS_DEFAULT                                                 \
    {                                                                             \
        .params = 0, .optimizer = "adam", .precision = estimate_default_precision \
    }

/* Rows for an option table whose settings have a struct estimate_settings called `member`. The optimizer is a text, not
 * a choice, so that a known one that cannot be computed gets a reason. */
#define ESTIMATE_MODEL_OPTIONS(type, member, letter)                                                              \
    {"params",                                                                                                    \
     letter,                                                                                                      \
     OPTION_COUNT,                                                                                                \
     offsetof(type, member.params),                                                                               \
     "N",                                                                                                         \
     NULL,                                                                                                        \
     ESTIMATE_PARAMS_MIN,                                                                                         \
     ESTIMATE_PARAMS_MAX,                                                                                         \
     "number of parameters of the model: 1e9, 7B, 350M"},                                                         \
    {                                                                                                             \
        "model", 0, OPTION_TEXT, offsetof(type, member.model), "NAME|FILE", model_names, 0, 0,                    \
            "the model's name ('gpuspy estimate --models' lists them), or its config.json, .safetensors or .gguf" \
    }

#define ESTIMATE_TRAINING_OPTIONS(type, member)                                                    \
    {"optimizer",                                                                                  \
     0,                                                                                            \
     OPTION_TEXT,                                                                                  \
     offsetof(type, member.optimizer),                                                             \
     "NAME",                                                                                       \
     estimate_all_optimizers,                                                                      \
     0,                                                                                            \
     0,                                                                                            \
     "optimizer; default adam"},                                                                   \
        {"precision",                                                                              \
         0,                                                                                        \
         OPTION_CHOICE,                                                                            \
         offsetof(type, member.precision),                                                         \
         "NAME",                                                                                   \
         estimate_precisions,                                                                      \
         0,                                                                                        \
         0,                                                                                        \
         "number format; default fp32"},                                                           \
    {                                                                                              \
        "master-weights", 0, OPTION_FLAG, offsetof(type, member.master_weights), NULL, NULL, 0, 0, \
            "with bf16 or fp16: the optimizer keeps float32 weights and states (DeepSpeed, "       \
            "Megatron-LM)"                                                                         \
    }

#define ESTIMATE_OPTIONS(type, member, letter) \
    ESTIMATE_MODEL_OPTIONS(type, member, letter), ESTIMATE_TRAINING_OPTIONS(type, member)

/* Whether a number of parameters or a model is given. */
static inline bool estimate_is_requested(const struct estimate_settings *s)
{
    return s->params || s->model;
}

/* The optimizer and the precision; false after a line on stderr. */
bool estimate_parts_of(const char *command, const struct estimate_settings *s, const struct estimate_optimizer **o,
                       const struct estimate_precision **p);
