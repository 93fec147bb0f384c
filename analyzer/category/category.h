/* What a block is for: a parameter, a gradient, an activation, … An inference, from the calls that
 * made and freed it and from the end of its life; the rules and their order are in category.def. A
 * block that no rule covers is unknown. */
#ifndef GPUSPY_CATEGORY_H
#define GPUSPY_CATEGORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/result/result.h"

struct gs_run;

/* One block, as the rules see it. */
struct gs_category_block {
    uint32_t stack, free_stack; /* GS_NONE */
    bool tensor;                /* a tensor's own */
    bool direct;                /* what a CUDA call took, where PyTorch reports no tensors: one if its
                                   allocator made the call. Of what is neither, only workspaces are
                                   told */
    bool python;                /* its process records Python stacks: a thread without them tells */
    bool kept;                  /* never freed, or after the run's last allocation: what the tear-down
                                   frees has stayed */
    bool aged;                  /* several of the program's steps are over since it was made */
    bool failed;                /* kept, and the run died in what was then done (gs_category_doing) */
    bool fits;                  /* … there is a parameter of its size */
    bool stated;                /* … there is state that an optimizer set up where it does that */
    unsigned use;               /* GS_USE_… (category_use.h), 0 not known */
    bool trained;               /* there is a gradient or optimizer state of its size, but no parameter */
};

/* Stacks are looked at once. `run` outlives it. Looks symbols up. */
struct gs_categorizer;
struct gs_categorizer *gs_categorizer_new(struct gs_run *run);
void gs_categorizer_free(struct gs_categorizer *c);
/* The number of the rule that fits, 0 … gs_category_rules() - 1. */
unsigned gs_category_rule(struct gs_categorizer *c, const struct gs_category_block *block);

/* The same by its calls alone, looked up once for each two: of a tensor, or of what a CUDA call took
 * where there are none. */
unsigned gs_category_rule_of(struct gs_categorizer *c, bool tensor, uint32_t stack, uint32_t free_stack, bool kept,
                             unsigned use);
/* Has any stack a Python frame? */
bool gs_category_python(const struct gs_run *run);

/* Was the call in a backward pass, as its Python frames say? */
bool gs_category_backward(struct gs_categorizer *c, uint32_t stack);
/* What was done where that stack is: equal numbers are the same; 0 is nothing known. */
unsigned gs_category_doing(struct gs_categorizer *c, uint32_t stack);

/* What an allocation there shows of the program's course. */
enum gs_category_role {
    GS_ROLE_OTHER,
    GS_ROLE_THREAD, /* a thread without Python frames */
    GS_ROLE_FORWARD,
    GS_ROLE_BACKWARD,
    GS_ROLE_STEP,
    GS_ROLE_SETUP, /* a module is built, moved or loaded */
    GS_ROLE_COPY   /* a data loader makes it, or .to or .cuda outside of modules */
};
enum gs_category_role gs_category_role(struct gs_categorizer *c, uint32_t stack);
/* Was it made where a library moves batches, or by an iterator? */
bool gs_category_iterated(struct gs_categorizer *c, uint32_t stack);

/* Calls of equal numbers, below GS_CATEGORY_FATES, are the same to every rule as the ones that free a
 * block. */
enum { GS_CATEGORY_FATES = 32 };
unsigned gs_category_fate(struct gs_categorizer *c, uint32_t free_stack);

/* Each rule stands there twice: rule + gs_category_rules() / 2 is the same, applied to what earlier
 * blocks of the same call path became. */
unsigned gs_category_rules(void);
enum gs_category gs_category_of(unsigned rule);
bool gs_category_outlives(unsigned rule); /* several steps: an activation that no backward pass needs */
bool gs_category_sets_up(unsigned rule);  /* it needs an optimizer that sets up its state */
const char *gs_category_evidence(unsigned rule);
const char *gs_category_while(unsigned rule); /* "STEP": what was done then, as in category.def */

#endif
