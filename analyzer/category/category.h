/* The category of a block: a parameter, a gradient, an activation, … An inference, from the calls that made and freed
 * it and from the end of its life; the rules and their order are in category.def. A block that no rule covers is
 * unknown. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "analyzer/result/result.h"

struct run;

/* One block, as the rules see it. */
struct category_block {
    uint32_t stack, free_stack; /* RUN_NONE */
    bool tensor;                /* a tensor, as PyTorch reports them */
    bool direct;  /* a CUDA allocation, if PyTorch reports no tensors: counts as one if its allocator made the call. Of
                     other allocations, only workspaces are recognised */
    bool python;  /* its process records Python stacks: a thread without them is evidence */
    bool kept;    /* never freed, or only after the run's last allocation, by the tear-down */
    bool aged;    /* several of the program's steps are over since it was made */
    bool failed;  /* kept, and the run died during the activity (category_activity) in which it was made */
    bool fits;    /* … there is a parameter of its size */
    bool stated;  /* … there is state that an optimizer created in its set-up */
    unsigned use; /* CATEGORY_USE_… (category_use.h), 0 not known */
    bool trained; /* there is a gradient or optimizer state of its size, but no parameter */
};

/* Each stack is examined once. `run` must outlive it. Looks symbols up. */
struct category_finder;
struct category_finder *category_finder_new(struct run *run);
void category_finder_free(struct category_finder *c);
/* The number of the matching rule, 0 … category_rule_count() - 1. */
unsigned category_rule(struct category_finder *c, const struct category_block *block);

/* The same by its calls only, looked up once for each pair: for a tensor, or for a CUDA allocation if there are none.
 * */
unsigned category_rule_of(struct category_finder *c, bool tensor, uint32_t stack, uint32_t free_stack, bool kept,
                          unsigned use);
/* Has any stack a Python frame? */
bool category_has_python(const struct run *run);

/* Was the call in a backward pass, according to its Python frames? */
bool category_is_backward(struct category_finder *c, uint32_t stack);
/* The activity at that stack: equal numbers are the same; 0 is unknown. */
unsigned category_activity(struct category_finder *c, uint32_t stack);

/* The evidence of an allocation at that stack about the program's course. */
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
/* Was a module built or moved there? */
bool category_is_built(struct category_finder *c, uint32_t stack);
/* Was it made by a library's function that moves batches, or by an iterator? */
bool category_is_iterated(struct category_finder *c, uint32_t stack);

/* Calls with equal numbers, below CATEGORY_FATES, are the same to every rule as the calls that free a block. */
enum { CATEGORY_FATES = 32 };
unsigned category_fate(struct category_finder *c, uint32_t free_stack);

/* Each rule exists twice: rule + category_rule_count() / 2 is the same rule, applied to the fate of earlier blocks of
 * the same call path. */
unsigned category_rule_count(void);
enum result_category category_of_rule(unsigned rule);
bool category_outlives_steps(unsigned rule); /* several steps: an activation that no backward pass needs */
bool category_needs_setup(unsigned rule);    /* it needs an optimizer that sets up its state */
bool category_is_copied(unsigned rule);      /* it needs a copy to the GPU outside of modules */
const char *category_evidence(unsigned rule);
const char *category_while_word(unsigned rule); /* "STEP": the activity, as in category.def */
