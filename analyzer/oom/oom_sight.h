/* The evidence that a failed request gives about its program: the pass that it belongs to, and the memory of its
 * categories. It decides which measures (oom_measures.c) apply. */
#pragma once

#include "analyzer/oom/oom_notebook.h"
#include "analyzer/category/category.h"
#include "analyzer/oom/oom_replay.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/run/settings.h"

/* The sum of lines of one category, and the evidence of their stacks. */
struct oom_held {
    int64_t bytes;
    double blocks; /* the number of similar blocks to which they amount */
    double squares;
    uint32_t heaviest; /* stack */
    int64_t most;
};

enum oom_phase { OOM_ELSEWHERE, OOM_FORWARD, OOM_BACKWARD, OOM_STEP };

struct oom_sight {
    struct site_builder *b;
    struct result_oom_verdict *v;
    const struct oom_facts *f;
    struct oom_notebook_displays displays; /* of cells, once measure_displayed has read them */
    struct run_torch_settings set;
    int64_t need, least;  /* least: smaller amounts do not matter */
    enum oom_phase phase; /* of the request */
    struct oom_held of[RESULT_CATEGORIES_N];
    struct oom_held cache;   /* of keys and values: activations that stay on purpose */
    struct oom_held buckets; /* DistributedDataParallel's */
    int64_t forward;         /* temporaries of forward passes, which also grow with the batch */
    struct oom_held foreach; /* temporaries of an optimizer that works on all parameters at once */
    int64_t repeated;        /* activations of lines that have made several */
    int64_t kept;            /* of them all but one per line: only a backward pass needs them */
    unsigned repeating;      /* such lines */
    bool evaluates;          /* a forward pass that no backward pass follows */
    bool phase_new; /* a forward pass that other lines led to than those of the training: perhaps none follows */
    bool repeats;   /* the same line called the model before the optimizer's first step, too */
    bool named;     /* … according to the name of a function */
    bool layers;    /* the same of a first pass: the results of several layers are live */
    bool keeps;     /* … which nevertheless keeps the memory that a backward pass would need */
    bool checkpointed, autocast, trains;
    const struct oom_replays *replays;
    enum result_certainty certainty; /* of the measure that is being added */
    const char *refuted_by;
    struct result_measure measure; /* the result of a replay */
    const struct oom_holder *copy; /* the kind of copies that is_copy finds */
    struct oom_notebook_left left; /* once measure_left has found it */
};

/* A measure that libraries have a setting for. */
enum oom_setting {
    OOM_SETTING_BATCH,
    OOM_SETTING_PART, /* of a graph */
    OOM_SETTING_EVALUATION,
    OOM_SETTING_CHECKPOINT,
    OOM_SETTING_PRECISION,
    OOM_SETTING_OPTIMIZER,
    OOM_SETTING_LOSS,
    OOM_SETTING_GRADIENTS, /* to drop them before the next forward pass */
    OOM_SETTING_FOREACH,
    OOM_SETTING_BUCKETS
};
/* oom_patterns.c. The setting of the library that runs the program's steps; `otherwise` if none is known; NULL if
 * the library does it itself. */
const char *oom_setting_text(const struct oom_sight *s, enum oom_setting measure, const char *otherwise);
/* The same in parentheses; "" if none is known. */
const char *oom_setting_in(const struct oom_sight *s, enum oom_setting measure);

/* oom_words_capacity.c */
void oom_advise_otherwise(const struct oom_sight *s, bool training);

/* In the first forward pass: the bytes of the gradients and of the optimizer's states that the first backward pass and
 * step have yet to allocate, at most; 0 in any other phase. */
int64_t oom_training_to_come(const struct oom_sight *s);
/* Recorded processes that are ranks of a distributed run. */
int64_t oom_ranks(const struct run *run);
/* Did any backward pass or optimizer ever allocate? */
bool oom_trains(const struct run *run);
/* `training`: the result of oom_trains. */
/* In the cross entropy, whose temporaries are as large as the logits. */
bool oom_is_in_loss(const struct run *run, uint32_t stack);
/* Does a file name of the program show that it trains? */
bool oom_is_in_training_file(const struct oom_sight *s);
struct oom_sight oom_sight_of(struct site_builder *b, struct result_oom_verdict *v, struct category_finder *c,
                              bool training);
