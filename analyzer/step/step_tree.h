/* Which places a program's threads come by, and when: the call tree of a process, reduced to the
 * frames of the user's own code and to calls that mark a training step. For step.c.
 *
 * A place is visited when a thread's event lies in it and the one before did not. So a line of a loop
 * is visited once a round, however many events it has, as long as another line has one too.
 */
#ifndef GPUSPY_STEP_TREE_H
#define GPUSPY_STEP_TREE_H

#include "analyzer/base/arena.h"
#include "analyzer/run/run.h"

enum gs_place_kind {
    GS_PLACE_NOTHING, /* of a frame: it makes no place */
    GS_PLACE_LINE,    /* of the user's own code */
    GS_PLACE_OPTIMIZER,
    GS_PLACE_BACKWARD,
    GS_PLACE_CLIP,   /* clips or unscales gradients: an optimizer's step follows */
    GS_PLACE_ZERO,   /* drops the gradients */
    GS_PLACE_LOAD,   /* makes or fills a model: nobody comes by there */
    GS_PLACE_MODULE, /* a call of a torch.nn.Module */
};

enum { GS_PLACE_ROOT = 0, GS_PLACE_GAPS = 24 };

struct gs_place {
    uint32_t parent, depth;
    uint32_t stack;  /* whose innermost frame is the line; of others: the caller of what makes the place */
    uint32_t first;  /* the first whole stack that lay in it */
    uint32_t thread; /* the first that came by: only its visits count */
    uint8_t kind;
    bool module;      /* it is one, or below one */
    const char *name; /* of an optimizer: the function that steps, NULL none seen */
    uint64_t visits;
    int64_t first_ns, last_ns; /* of the visits */
    /* the time of every 2^shift-th visit */
    int64_t *times;
    size_t n, cap;
    unsigned shift;
    uint64_t last_event;          /* its number, of the last visit */
    uint32_t gaps[GS_PLACE_GAPS]; /* between visits: so many of 2^i and more events */
};

struct gs_place_tree {
    struct gs_run *run;
    struct gs_place *places;
    size_t n, cap;
    struct gs_map children; /* parent and what makes the place → place */
    struct gs_place_stack { /* by stack */
        uint32_t place;     /* + 1; 0: not looked at yet */
        uint32_t events;
    } * stacks;
    size_t stacks_n;
    struct gs_map threads; /* thread → index */
    uint32_t *at;          /* by thread: the place of its last event */
    size_t threads_n, at_cap;
    uint32_t thread, thread_index; /* of the last event */
    size_t times, limit;           /* kept in all; what one place may keep */
    uint64_t events;
    int64_t last_ns;
};

/* Zero-initialise and set run. Forgets the visits and keeps what is known of stacks. */
void gs_places_restart(struct gs_place_tree *t);
void gs_places_free(struct gs_place_tree *t);
uint32_t gs_place_of(struct gs_place_tree *t, uint32_t stack);
/* A thread went from the place of its last event to another. */
void gs_places_move(struct gs_place_tree *t, uint32_t *from, uint32_t to, uint32_t thread, int64_t ns);
uint32_t *gs_places_thread(struct gs_place_tree *t, uint32_t thread);

/* An event of a thread, in order of time. */
static inline void gs_places_event(struct gs_place_tree *t, uint32_t thread, uint32_t stack, int64_t ns)
{
    if (stack >= t->stacks_n || !t->stacks[stack].place) {
        gs_place_of(t, stack);
    }
    uint32_t place = GS_PLACE_ROOT;
    if (stack < t->stacks_n) { /* not where none was recorded */
        place = t->stacks[stack].place - 1;
        t->stacks[stack].events++;
    }
    uint32_t *at = thread == t->thread && t->threads_n ? &t->at[t->thread_index] : gs_places_thread(t, thread);
    t->last_ns = ns;
    t->events++;
    if (*at != place) {
        gs_places_move(t, at, place, thread, ns);
    }
}

#endif
