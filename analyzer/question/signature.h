/* The cause of a wait or a copy: .item(), print, a boolean mask, … by the rules of signature.def, from the calls
 * themselves (their shape) and from the stack below the user's own line. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/run/run.h"
#include "analyzer/site/source_context.h"

enum question_shape {
    QUESTION_SHAPE_STREAM, /* only waits, in the order of enum gs_sync_kind */
    QUESTION_SHAPE_DEVICE,
    QUESTION_SHAPE_CONTEXT,
    QUESTION_SHAPE_EVENT,
    QUESTION_SHAPE_IMPLICIT,
    QUESTION_SHAPE_SCALAR, /* a copy from the GPU and a wait for it: of one number, of more */
    QUESTION_SHAPE_READ,
    QUESTION_SHAPE_UP_PAGEABLE, /* a copy to the GPU and a wait for it */
    QUESTION_SHAPE_UP_PINNED,
    QUESTION_SHAPE_LATE_IN, /* asynchronous, of pageable memory: it blocks the host anyway */
    QUESTION_SHAPE_LATE_OUT,
    QUESTION_SHAPE_BLOCKING_IN,
    QUESTION_SHAPE_BLOCKING_OUT,
    QUESTION_SHAPE_PINNED_IN, /* synchronous, of memory that is pinned */
    QUESTION_SHAPE_PINNED_OUT,
    QUESTION_SHAPE_LATER, /* a wait for an earlier asynchronous copy from the GPU */
    QUESTION_SHAPES
};

struct question_signature {
    const char *name;   /* NULL: only the kind of wait is known */
    const char *advice; /* NULL: nothing to do; each text exists once in memory */
    bool by_count;      /* being called in each step is reason enough to advise */
    bool up;            /* a copy to the GPU */
};

struct question_signer;
/* Names are allocated in `arena`. */
struct question_signer *question_signer_new(struct run *run, struct arena *arena);
void question_signer_free(struct question_signer *s);
/* A small number, the same for the same signature; each stack is examined once. */
uint32_t question_sign(struct question_signer *s, uint32_t stack, enum question_shape shape);
struct question_signature question_signature(const struct question_signer *s, uint32_t signature);
/* Does the call of that name make room for a server that sleeps in the run, and will wake? After a replay. */
bool question_sign_makes_room(const struct run *run, const char *name);
/* The innermost Python frame of a stack as a stack number, RUN_NONE: equal for two calls that one line of Python made
 * in one operation. */
uint32_t question_sign_line(struct question_signer *s, uint32_t stack);
/* The table's text for small copies, which other places also use: "small copies at one line: …". */
const char *question_advice_small_copies(void);
/* The advice for many calls in a row, if that for each of them is `one`. */
const char *question_advice_many(const char *one);
/* Does the advice concern numbers or conditions, two of which can be read together? */
bool question_advice_joins(const char *one);
/* The advice for a number that the program reads and uses so, if that for a number is `one`. */
const char *question_advice_for_use(const char *one, enum site_use use);
/* The signature of a wait for an event of a program that measures times with events. */
struct question_signature question_signature_of_timing(struct question_signature wait);
const char *question_advice_move(void);
bool question_sign_is_allocator(struct question_signer *s, uint32_t stack);
