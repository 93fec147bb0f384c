/* What PyTorch's caching allocator reserves in a training: the tensors that autograd makes and frees, operation by
 * operation, are requested from an allocator with the same rules (caching/). replay_conv.c, replay_layers.c and
 * replay_denoiser.c list the operations of a model; replay.c runs them forward and backward for three steps. */
#pragma once

#include "analyzer/estimate/estimate.h"

/* What an operation does with its tensors. */
enum {
    REPLAY_IN_PLACE = 1,     /* its output is its input */
    REPLAY_KEEPS_INPUT = 2,  /* for backward; in place: a copy of it */
    REPLAY_KEEPS_OTHERS = 4, /* its second and third input */
    REPLAY_KEEPS_OUTPUT = 8,
    REPLAY_PASSES_ON = 16,     /* its gradient is passed on to its inputs: additions, joins */
    REPLAY_JOINS = 32,         /* it also reads what the join before it, its second input, reads */
    REPLAY_PARTS = 64,         /* its output is divided among readers, whose gradients are joined */
    REPLAY_PRODUCT = 128,      /* by cuBLAS */
    REPLAY_MASKS = 256,        /* makes what it keeps before its output */
    REPLAY_HELD = 512,         /* the script holds its output until the next pass has made another */
    REPLAY_NO_GRADIENT = 1024, /* nothing that it depends on is trained */
};

struct estimate_replay_op {
    unsigned flags;
    uint32_t from, others[2];   /* operations whose outputs it reads, from 1; 0: none, or the model's input */
    double bytes;               /* of its output */
    double extra;               /* bytes that it keeps in addition: a mask, indices */
    double passing, work;       /* temporary bytes of forward, of backward */
    double chain;               /* of each of two tensors that backward makes, one from the other, before its own */
    double parameters[2], cast; /* elements of its weight and bias; bytes of autocast's copy of the weight */
    double stored;              /* bytes of weights that are not trained */
    double sums;                /* temporary bytes for the gradient of its bias */
    uint32_t lets_go[4];        /* operations whose outputs variables hold until this one is done */
    uint32_t checkpoint;        /* from 1: the checkpointed layer that it is in; 0: none */
    uint32_t again;             /* the operation, from 1, whose weight it is instead (tied) */
};

struct estimate_replay_list {
    struct estimate_replay_op *ops;
    size_t n, cap;
    double input;  /* bytes of a step's input */
    bool converts; /* cuDNN copies what convolutions' backward reads and makes to channels last and back */
};

struct estimate_replay_peaks {
    double allocated, reserved; /* bytes, of the caching allocator */
    double largest;             /* request */
    /* bytes of the last step above those at its beginning: at the end of forward; the most in forward and the first
     * half of backward; the most in the second half, minus all gradients */
    double saved, first, second;
    bool fits; /* in `capacity` */
};

/* Adds an operation. Returns its index, from 1. */
uint32_t estimate_replay_put(struct estimate_replay_list *list, struct estimate_replay_op op);
/* Whether one GPU trains the whole model, and its operations are known one by one. */
bool estimate_replay_knows(const struct plan *p);
/* A training with unknown operations as the plain one that is most like it, in `like` and `model`: what the allocator
 * leaves cached depends on the sizes and the order of tensors, which most operations share. False: none is. */
bool estimate_replay_likeness(const struct plan *p, struct plan *like, struct model *model);
/* The operations of a known model. */
void estimate_replay_conv(const struct plan *p, struct estimate_replay_list *list);
void estimate_replay_layers(const struct plan *p, struct estimate_replay_list *list);
void estimate_replay_denoiser(const struct plan *p, struct estimate_replay_list *list);
/* The most bytes that are live at once in a pass without gradients; 0: the operations are unknown. */
double estimate_replay_forward(const struct plan *p);

/* `capacity`: the most bytes that segments may take together; INFINITY: no limit. `workspace`: bytes of cuBLAS's, which
 * forward and backward each request once. False: the operations are unknown, or the image is too large. */
bool estimate_replay(const struct plan *p, double capacity, double workspace, bool converts,
                     struct estimate_replay_peaks *out);
