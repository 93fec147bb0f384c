/* What a block is for: a parameter, a gradient, an activation, … An inference, from the calls that
 * made and freed it and from the end of its life; the rules and their order are in category.def. A
 * block that no rule covers is unknown. */
#ifndef GPUSPY_CATEGORY_H
#define GPUSPY_CATEGORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/result/result.h"

struct run;

/* One block, as the rules see it. */
struct category_block {
    uint32_t stack, free_stack; /* RUN_NONE */
    bool tensor;                /* a tensor's own */
    bool direct;                /* what a CUDA call took, where PyTorch reports no tensors: one if its
                                   allocator made the call. Of what is neither, only workspaces are
                                   told */
    bool python;                /* its process records Python stacks: a thread without them tells */
    bool kept;                  /* never freed, or after the run's last allocation: what the tear-down
                                   frees has stayed */
    bool aged;                  /* several of the program's steps are over since it was made */
    bool failed;                /* kept, and the run died in what was then done (category_activity) */
    bool fits;                  /* … there is a parameter of its size */
    bool stated;                /* … there is state that an optimizer set up where it does that */
    unsigned use;               /* CATEGORY_USE_… (category_use.h), 0 not known */
    bool trained;               /* there is a gradient or optimizer state of its size, but no parameter */
};

/* Stacks are looked at once. `run` outlives it. Looks symbols up. */
struct category_finder;
struct category_finder *category_finder_new(struct run *run);
void category_finder_free(struct category_finder *c);
/* The number of the rule that fits, 0 … category_rule_count() - 1. */
unsigned category_rule(struct category_finder *c, const struct category_block *block);

/* The same by its calls alone, looked up once for each two: of a tensor, or of what a CUDA call took
 * where there are none. */
unsigned category_rule_of(struct category_finder *c, bool tensor, uint32_t stack, uint32_t free_stack, bool kept,
                          unsigned use);
/* Has any stack a Python frame? */
bool category_has_python(const struct run *run);

/* Was the call in a backward pass, as its Python frames say? */
bool category_is_backward(struct category_finder *c, uint32_t stack);
/* What was done where that stack is: equal numbers are the same; 0 is nothing known. */
unsigned category_activity(struct category_finder *c, uint32_t stack);

/* What an allocation there shows of the program's course. */
enum category_role {
    CATEGORY_ROLE_OTHER,
    CATEGORY_ROLE_THREAD, /* a thread without Python frames */
    CATEGORY_ROLE_FORWARD,
    CATEGORY_ROLE_BACKWARD,
    CATEGORY_ROLE_STEP,
    CATEGORY_ROLE_SETUP, /* a module is built, moved or loaded */
    CATEGORY_ROLE_COPY   /* a data loader makes it, or .to or .cuda outside of modules */
};
enum category_role category_role(struct category_finder *c, uint32_t stack);
/* Was it made where a library moves batches, or by an iterator? */
bool category_is_iterated(struct category_finder *c, uint32_t stack);

/* Calls of equal numbers, below CATEGORY_FATES, are the same to every rule as the ones that free a
 * block. */
enum { CATEGORY_FATES = 32 };
unsigned category_fate(struct category_finder *c, uint32_t free_stack);

/* Each rule stands there twice: rule + category_rule_count() / 2 is the same, applied to what earlier
 * blocks of the same call path became. */
unsigned category_rule_count(void);
enum result_category category_of_rule(unsigned rule);
bool category_outlives_steps(unsigned rule); /* several steps: an activation that no backward pass needs */
bool category_needs_setup(unsigned rule);    /* it needs an optimizer that sets up its state */
const char *category_evidence(unsigned rule);
const char *category_while_word(unsigned rule); /* "STEP": what was done then, as in category.def */

#endif
