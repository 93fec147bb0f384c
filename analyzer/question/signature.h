/* What a wait or a copy came from: .item(), print, a boolean mask, … by the rules of signature.def,
 * from what the calls were (their shape) and from the stack below the user's own line. */
#ifndef GPUSPY_SIGNATURE_H
#define GPUSPY_SIGNATURE_H

#include "analyzer/base/arena.h"
#include "analyzer/run/run.h"

enum gs_shape {
    GS_SHAPE_STREAM, /* waits alone, in the order of enum gs_sync_kind */
    GS_SHAPE_DEVICE,
    GS_SHAPE_CONTEXT,
    GS_SHAPE_EVENT,
    GS_SHAPE_IMPLICIT,
    GS_SHAPE_SCALAR, /* a copy from the GPU and a wait for it: of one number, of more */
    GS_SHAPE_READ,
    GS_SHAPE_UP_PAGEABLE, /* a copy to the GPU and a wait for it */
    GS_SHAPE_UP_PINNED,
    GS_SHAPE_LATE_IN, /* asynchronous, of pageable memory: it holds the host all the same */
    GS_SHAPE_LATE_OUT,
    GS_SHAPE_BLOCKING_IN,
    GS_SHAPE_BLOCKING_OUT,
    GS_SHAPE_LATER, /* a wait for an asynchronous copy from the GPU that was made before */
    GS_SHAPES
};

struct gs_signature {
    const char *name;   /* NULL: nothing more than the kind of wait is known */
    const char *advice; /* NULL: nothing to be done; each text once in memory */
    bool by_count;      /* being called in each step is reason enough to advise */
    bool up;            /* a copy to the GPU */
};

struct gs_signer;
/* Names come to lie in `arena`. */
struct gs_signer *gs_signer_new(struct gs_run *run, struct gs_arena *arena);
void gs_signer_free(struct gs_signer *s);
/* A small number, the same for the same signature; each stack is looked at once. */
uint32_t gs_sign(struct gs_signer *s, uint32_t stack, enum gs_shape shape);
struct gs_signature gs_signed(const struct gs_signer *s, uint32_t signature);
/* The innermost Python frame of a stack as a stack number, GS_NONE: two calls that one line of
 * Python made in one go have the same. */
uint32_t gs_sign_line(struct gs_signer *s, uint32_t stack);
/* What stands for a text of the table in other places: "small copies at one line: …". */
const char *gs_advice_small_copies(void);
const char *gs_advice_many_items(void);
const char *gs_advice_one_item(void);
/* Does PyTorch's allocator stand in the stack? */
bool gs_sign_allocator(struct gs_signer *s, uint32_t stack);

#endif
