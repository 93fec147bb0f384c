/* The places that a program's threads visit, and when: the call tree of a process, reduced to the frames of the user's
 * own code and to calls that mark a training step. For step.c.
 *
 * A place is visited when a thread's event is in it and the thread's previous event was not. So a line of a loop is
 * visited once per iteration, however many events it has, if another line of the loop has an event, too.
 */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/base/times.h"
#include "analyzer/run/run.h"

enum step_place_kind {
    STEP_PLACE_NOTHING, /* of a frame: it makes no call site */
    STEP_PLACE_LINE,    /* of the user's own code */
    STEP_PLACE_OPTIMIZER,
    STEP_PLACE_BACKWARD,
    STEP_PLACE_CLIP,   /* clips or unscales gradients: an optimizer's step follows */
    STEP_PLACE_ZERO,   /* drops the gradients */
    STEP_PLACE_LOAD,   /* creates or fills a model: not part of any step */
    STEP_PLACE_MODULE, /* a call of a torch.nn.Module */
};

enum { STEP_PLACE_ROOT = 0, STEP_PLACE_GAPS = 24, STEP_PLACE_DROPPED = 63 };

struct step_place {  /* members that a visit uses come first */
    uint32_t thread; /* the first that visited it: only its visits count */
    uint8_t kind;
    uint8_t shift; /* STEP_PLACE_DROPPED: its times were dropped */
    bool module;   /* it is one, or is below one */
    bool repeats;  /* it is not left between two iterations: its visits are fewer */
    uint64_t visits;
    uint64_t last_event;            /* its number, at the last visit */
    int64_t last_ns;                /* of the visits */
    uint32_t gaps[STEP_PLACE_GAPS]; /* between visits: how many have at least 2^i events */
    struct times times;             /* of every 2^shift-th visit; see step_place_times */
    uint32_t parent, depth;
    int64_t first_ns;
    uint64_t first_event;
    uint32_t stack;   /* whose innermost frame is the line; for other kinds: the caller of what makes the call site */
    uint32_t first;   /* the first whole stack in it */
    const char *name; /* of an optimizer: the function that steps, NULL if none was seen */
};

struct step_place_tree {
    struct run *run;
    struct step_place *places;
    struct step_place_link { /* by place: the same as in `places`, kept separately so that a visit loads less memory */
        uint32_t parent, depth;
    } * links;
    size_t n, cap, links_cap;
    bool complete;            /* the times of all places are kept */
    bool missed;              /* times were requested that had been dropped */
    struct map children;      /* parent and what makes the call site → call site */
    struct step_place_stack { /* by stack */
        uint32_t place;       /* + 1; 0: not computed yet */
        uint32_t events;
    } * stacks;
    size_t stacks_n;
    struct map threads; /* thread → index */
    uint32_t *at;       /* by thread: the call site of its last event */
    size_t threads_n, at_cap;
    uint32_t thread, thread_index; /* of the last event */
    size_t times, limit;           /* kept in total; what one call site may keep */
    uint64_t events;
    int64_t last_ns;
};

/* Zero-initialise and set run. Drops the visits and keeps the facts about stacks. Unless `complete`, a line that is
 * visited often and unevenly, so that it hardly is a loop's, loses its times. */
void step_places_restart(struct step_place_tree *t, bool complete);
/* Notes in the tree if they were dropped. */
const struct times *step_place_times(struct step_place_tree *t, const struct step_place *p);
/* Three quarters of the gaps between its visits are about equally long (in events, which do not depend on the machine's
 * load). */
bool step_place_is_even(const struct step_place *p);
void step_places_free(struct step_place_tree *t);
uint32_t step_place_of(struct step_place_tree *t, uint32_t stack);
/* At least how often the outermost module around a place was called; UINT64_MAX: there is none. */
uint64_t step_place_calls(const struct step_place_tree *t, uint32_t place);
/* A thread went from the call site of its last event to another. */
void step_places_move(struct step_place_tree *t, uint32_t *from, uint32_t to, uint32_t thread, int64_t ns);
uint32_t *step_places_thread(struct step_place_tree *t, uint32_t thread);

/* An event of a thread, in order of time. */
static inline void step_places_add_event(struct step_place_tree *t, uint32_t thread, uint32_t stack, int64_t ns)
{
    if (stack >= t->stacks_n || !t->stacks[stack].place) step_place_of(t, stack);
    uint32_t place = STEP_PLACE_ROOT;
    if (stack < t->stacks_n) { /* not if none was recorded */
        place = t->stacks[stack].place - 1;
        t->stacks[stack].events++;
    }
    uint32_t *at = thread == t->thread && t->threads_n ? &t->at[t->thread_index] : step_places_thread(t, thread);
    t->last_ns = ns;
    t->events++;
    if (*at != place) step_places_move(t, at, place, thread, ns);
}
