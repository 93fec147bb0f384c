/* What PyTorch's caching allocator reserves in a training: the tensors that autograd makes and frees, operation by
 * operation, requested of the allocator's own rules (caching/). replay_conv.c and replay_layers.c list the operations
 * of a model, replay.c runs them forward and backward for three steps. */
#ifndef GPUSPY_ESTIMATE_REPLAY_H
#define GPUSPY_ESTIMATE_REPLAY_H

#include "analyzer/estimate/estimate.h"

/* What an operation does with its tensors. */
enum {
    REPLAY_IN_PLACE = 1,     /* its output is its input */
    REPLAY_KEEPS_INPUT = 2,  /* for backward; in place: a copy of it */
    REPLAY_KEEPS_OTHERS = 4, /* its second and third input */
    REPLAY_KEEPS_OUTPUT = 8,
    REPLAY_PASSES_ON = 16,     /* its gradient is that of its inputs: additions, joins */
    REPLAY_JOINS = 32,         /* it also reads what the join before it, its second input, reads */
    REPLAY_PARTS = 64,         /* its output is divided among readers, whose gradients are joined */
    REPLAY_PRODUCT = 128,      /* by cuBLAS */
    REPLAY_MASKS = 256,        /* makes what it keeps before its output */
    REPLAY_HELD = 512,         /* the script has its output until the next pass made another */
    REPLAY_NO_GRADIENT = 1024, /* nothing that it depends on is trained */
};

struct estimate_replay_op {
    unsigned flags;
    uint32_t from, others[2];   /* operations whose outputs it reads, from 1; 0: none, or the model's input */
    double bytes;               /* of its output */
    double extra;               /* bytes that it keeps besides: a mask, indices */
    double passing, work;       /* bytes that forward, that backward needs for a moment */
    double chain;               /* of each of two results that backward makes one from the other, before its own */
    double parameters[2], cast; /* elements of its weight and bias; bytes of autocast's copy of the weight */
    double stored;              /* bytes of weights that are not trained */
    double sums;                /* bytes that the gradient of its bias needs for a moment */
    uint32_t lets_go[4];        /* operations whose outputs variables have until this one is done */
    uint32_t checkpoint;        /* from 1: the checkpointed layer that it is in; 0: none */
    uint32_t again;             /* the operation, from 1, whose weight it is instead (tied) */
};

struct estimate_replay_list {
    struct estimate_replay_op *ops;
    size_t n, cap;
    double input;  /* bytes of what a step reads */
    bool converts; /* cuDNN copies what convolutions' backward reads and makes to channels last and back */
};

struct estimate_replay_peaks {
    double allocated, reserved; /* bytes, of the caching allocator */
    double largest;             /* request */
    /* bytes of the last step on top of what is there at its beginning: at the end of forward; the most in forward and
     * the first half of backward; the most in the second half, less all gradients */
    double saved, first, second;
    bool fits; /* in the memory that it was given */
};

/* Its index from 1. */
uint32_t estimate_replay_put(struct estimate_replay_list *list, struct estimate_replay_op op);
/* Does one GPU train the model whole, and are its operations known one by one? */
bool estimate_replay_knows(const struct plan *p);
/* Those of a model that is known. */
void estimate_replay_conv(const struct plan *p, struct estimate_replay_list *list);
void estimate_replay_layers(const struct plan *p, struct estimate_replay_list *list);
void estimate_replay_denoiser(const struct plan *p, struct estimate_replay_list *list);
/* The most that is live at once in a pass without gradients, bytes; 0: the operations are not known. */
double estimate_replay_forward(const struct plan *p);

/* `capacity`: bytes that segments may take together; INFINITY: any. `workspace`: of cuBLAS, which forward and backward
 * each ask for once. False: it is not known, or too large an image. */
bool estimate_replay(const struct plan *p, double capacity, double workspace, bool converts,
                     struct estimate_replay_peaks *out);

#endif
