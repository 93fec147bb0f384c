/* The floor of a training, and the whole estimate.
 *
 * The floor (struct estimate) is weights, gradients and optimizer states, on one device that holds all of them:
 * bytes = parameters · (weights + gradients + states [+ master]):
 *   float32 Adam            4 + 4 + 8      = 16 B per parameter: 14.90 GiB for 1e9
 *   autocast Adam           4 + 4 + 8      = 16 B, and up to 2 B on top while forward runs
 *   pure 16-bit Adam        2 + 2 + 4      =  8 B
 *   16-bit Adam with master 2 + 2 + 8 + 4  = 16 B (ZeRO, Rajbhandari et al. 2020, section 3.1)
 * Sources of each optimizer's states: optimizers.def; of the precisions: precisions.def. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/estimate/plan.h"

#define ESTIMATE_PARAMS_MIN 1e3  /* fewer are a number without its unit: 7 for 7B */
#define ESTIMATE_PARAMS_MAX 1e15 /* 24 bytes each still fit in 64 bits */

/* How the states of one tensor follow from its form: optimizer.c. */
enum estimate_optimizer_form {
    OPTIMIZER_EVEN,
    OPTIMIZER_MASKED,
    OPTIMIZER_BLOCKS_8,
    OPTIMIZER_BLOCKS_4,
    OPTIMIZER_PAGED_8,
    OPTIMIZER_PAGED_32,
    OPTIMIZER_MUON,
    OPTIMIZER_FACTORED,
    OPTIMIZER_SOAP,
    OPTIMIZER_GALORE
};
enum estimate_optimizer_steps { STEPS_TORCH, STEPS_FUSED, STEPS_SINGLE, STEPS_OWN };

struct estimate_optimizer { /* optimizers.def explains each field */
    const char *name;
    unsigned copies, fixed_32nds;
    enum estimate_optimizer_form form;
    enum estimate_optimizer_steps steps;
    unsigned foreach, loop, before;
    const char *source;
    const char *shaped; /* what its states depend on; NULL: a number of parameters is enough */
};

enum estimate_precision_cast { PRECISION_CAST_NONE, PRECISION_CAST_AUTOCAST, PRECISION_CAST_FP8 };

struct estimate_precision {
    const char *name;
    unsigned weights, gradients, cast_copy; /* bytes per parameter */
    enum estimate_precision_cast cast;
    const char *meaning, *source;
};

extern const char estimate_precisions[];                               /* "fp32|amp|…": what the option accepts */
const struct estimate_optimizer *estimate_optimizer(const char *name); /* NULL: none of that name */
/* Also those whose states depend on the shapes of the matrices: for models whose tensors are known. */
extern const char estimate_all_optimizers[];
const struct estimate_optimizer *estimate_any_optimizer(const char *name);
const struct estimate_precision *estimate_precision(const char *name);
/* What the states of an optimizer depend on, if a number of parameters is not enough to compute them; NULL: it is
 * enough, or the name is unknown. */
const char *estimate_shaped(const char *name);

struct estimate {
    uint64_t params;
    uint64_t weights, gradients, optimizer, master, total; /* bytes */
    uint64_t cast_copies;                                  /* bytes on top while a forward pass runs under autocast */
};

/* `master_weights`: the optimizer keeps a float32 copy of the weights and its states in float32 (DeepSpeed,
 * Megatron-LM, apex O2); only for 16-bit precisions, otherwise ignored. Fractions of a byte are rounded up. `params`: 1
 * … ESTIMATE_PARAMS_MAX. */
struct estimate estimate_training(uint64_t params, const struct estimate_optimizer *optimizer,
                                  const struct estimate_precision *precision, bool master_weights);

/* The same for a model whose tensors are known, also with optimizers whose states depend on them. */
struct estimate estimate_floor(const struct model *m, const struct estimate_optimizer *optimizer,
                               const struct estimate_precision *precision, bool master_weights); /* states.c */

/* Bytes, as doubles: exact for whole numbers below 2^53 (9 PB). low ≤ likely ≤ high; the three are equal if the value
 * is known exactly. */
struct estimate_interval {
    double low, likely, high;
};

#define EXACTLY(bytes) ((struct estimate_interval){(bytes), (bytes), (bytes)})

static inline struct estimate_interval estimate_interval_add(struct estimate_interval a, struct estimate_interval b)
{
    return (struct estimate_interval){a.low + b.low, a.likely + b.likely, a.high + b.high};
}

/* PART(id, key in JSON, title): what memory is for. Each line belongs to one part. */
#define ESTIMATE_PARTS(PART)                                \
    PART(WEIGHTS, "weights", "weights")                     \
    PART(MASTER, "master_weights", "master weights")        \
    PART(GRADIENTS, "gradients", "gradients")               \
    PART(OPTIMIZER, "optimizer_states", "optimizer states") \
    PART(ADAPTERS, "adapters", "adapters")                  \
    PART(EMA, "ema", "EMA of weights")                      \
    PART(ACTIVATIONS, "activations", "activations")         \
    PART(LOGITS, "logits", "logits and loss")               \
    PART(CACHE, "kv_cache", "KV cache")                     \
    PART(TEMPORARIES, "temporaries", "temporaries")         \
    PART(BUCKETS, "buckets", "buckets and gathers")         \
    PART(WORKSPACE, "workspaces", "workspaces")             \
    PART(COMMUNICATION, "communication", "NCCL")            \
    PART(CONTEXT, "context", "CUDA context")                \
    PART(ALLOCATOR, "allocator", "fragmentation")

#define PART(id, key, title) ESTIMATE_##id,
enum estimate_part { ESTIMATE_PARTS(PART) ESTIMATE_PARTS_N };
#undef PART

/* PHASE(id, key, title): moments at which the lines are summed, from the second step on: zero_grad has freed the
 * gradients, and the optimizer has its states. */
#define ESTIMATE_PHASES(PHASE)                                              \
    PHASE(FORWARD, "forward_end", "end of forward, backward begins")        \
    PHASE(BACKWARD, "backward_end", "end of backward, all gradients exist") \
    PHASE(STEP, "step", "optimizer step")                                   \
    PHASE(LOAD, "load", "weights are loaded")                               \
    PHASE(PREFILL, "prefill", "prefill, the prompt is read")                \
    PHASE(DECODE, "decode", "decode, the context is full")                  \
    PHASE(TEXT, "text", "text encoders run")                                \
    PHASE(DENOISE, "denoise", "a denoising step")                           \
    PHASE(IMAGE, "image", "the VAE decodes")

#define PHASE(id, key, title) PHASE_##id,
enum estimate_phase { ESTIMATE_PHASES(PHASE) ESTIMATE_PHASES_N };
#undef PHASE

#define IN_PHASE(id) (1u << PHASE_##id)
#define IN_TRAINING (IN_PHASE(FORWARD) | IN_PHASE(BACKWARD) | IN_PHASE(STEP))
#define IN_INFERENCE (IN_PHASE(PREFILL) | IN_PHASE(DECODE))
#define IN_DIFFUSION (IN_PHASE(TEXT) | IN_PHASE(DENOISE) | IN_PHASE(IMAGE))

struct estimate_line {
    enum estimate_part part;
    unsigned phases;                /* IN_PHASE bits: when it exists */
    bool host;                      /* in the host's memory (offloaded): not part of any sum */
    char name[56];                  /* "exp_avg, exp_avg_sq" */
    struct estimate_interval bytes; /* of one GPU, the fullest */
    char formula[192];  /* with the numbers in it: "32 layers · 34·s·b·h (s 2048, b 1, h 4096) · 2 B" */
    const char *source; /* of the formula or constant; static */
    const char *why;    /* why low and high differ; static, NULL if they do not */
};

/* The phases of a plan (IN_PHASE bits). */
unsigned estimate_phases(const struct plan *p);

enum { ESTIMATE_LINES_MAX = 64, ESTIMATE_NOTES_MAX = 16 };

struct estimate_result {
    struct estimate_line lines[ESTIMATE_LINES_MAX];
    size_t lines_n;
    struct estimate_interval phase[ESTIMATE_PHASES_N]; /* sums; 0 for phases that do not occur */
    enum estimate_phase peak_phase;                    /* the phase with the larger likely sum */
    struct estimate_interval peak;
    struct estimate_interval part[ESTIMATE_PARTS_N]; /* at the peak */
    uint64_t stage;                                  /* pipeline stage that is fullest, from 0 */
    /* What was assumed, or left out: one sentence each, such as "no --batch: activations are left out". */
    char notes[ESTIMATE_NOTES_MAX][192];
    size_t notes_n;
};

/* Computes the whole estimate, for the fullest GPU. False if a sum exceeds 2^63 bytes (`r` is then unspecified).
 * plan_check() must have accepted the plan. */
bool estimate_make(const struct plan *p, struct estimate_result *r);
/* Contradictions (tp does not divide the heads, gpus not a multiple of tp·pp·cp …): false after one line on
 * stderr. */
bool plan_check(const char *command, const struct plan *p);
/* The same without a message: for plans that the user did not type. */
bool plan_possible(const struct plan *p);

/* For the files that make lines (states.c, activations.c, …). A file adds no line if it has nothing to report. The
 * returned line is valid until the next one is added, and never NULL (after ESTIMATE_LINES_MAX lines, bytes are added
 * to the last one). */
struct estimate_line *estimate_add(struct estimate_result *r, enum estimate_part part, unsigned phases,
                                   const char *name, struct estimate_interval bytes);
__attribute__((format(printf, 3, 4))) void estimate_explain(struct estimate_line *line, const char *source,
                                                            const char *formula, ...);
__attribute__((format(printf, 2, 3))) void estimate_note(struct estimate_result *r, const char *text, ...);

/* What estimate_make calls, in this order, each for the pipeline stage `stage`. */
void estimate_states(const struct plan *p, uint64_t stage, struct estimate_result *r);      /* states.c */
void estimate_adapters(const struct plan *p, uint64_t stage, struct estimate_result *r);    /* adapters.c */
void estimate_activations(const struct plan *p, uint64_t stage, struct estimate_result *r); /* activations.c */
void estimate_serving(const struct plan *p, uint64_t stage, struct estimate_result *r);     /* serving.c */
/* Last: contexts, workspaces, NCCL, and the allocator's share of the lines before it. */
void estimate_fixed(const struct plan *p, uint64_t stage, struct estimate_result *r); /* fixed.c */

/* Parameters of a pipeline stage on one GPU after tensor and expert parallelism, before sharding among the
 * data-parallel GPUs. Dense parameters and experts have different data-parallel groups. */
struct estimate_local_params {
    double dense, experts;
};
struct estimate_local_params estimate_local_params(const struct plan *p, uint64_t stage); /* states.c */
