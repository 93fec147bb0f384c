/* Each observer gets a whole batch before the next one: its data per location then stay in the CPU's cache.
 *
 * What one core writes and another reads costs both of them more than anything that they compute. So a lifetime is
 * passed once, when it begins; the thread keeps it until another one gets its number. If no observer receives frees, it
 * is used where it was passed. */
#include "analyzer/run/beside.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/relay.h"
#include "analyzer/run/run_internal.h"

enum { BATCH = RUN_BESIDE_BATCH };

struct event {
    int64_t live_bytes; /* of the series, as are the device and the layer */
    uint32_t number;    /* of a lifetime: its index in run_beside.first; of the others: in the run's list */
    int16_t device;
    uint8_t layer, kind;
};

struct batch {
    struct event events[BATCH];
    struct run_lifetime begun[BATCH]; /* those of the allocations, in order */
    uint32_t free_stacks[BATCH];      /* of `begun`; only if they are passed */
    size_t n, begun_n;
    uint32_t process;
};

struct run_beside {
    struct run *run;
    struct relay relay;
    pthread_t thread;
    ARENA_LIST(struct run_observer, observers); /* they receive the batches */
    bool passed[RUN_BESIDE_RESERVED + 1];       /* kinds of events that one of them receives */
    struct batch *batches, *filled;             /* RELAY_SLOTS; the one that is being filled */
    uint32_t process;
    /* only the thread uses them, so they are in a cache line of their own: lifetimes by number */
    _Alignas(64) struct run_lifetime *lives;
    uint32_t *free_stacks;            /* NULL: not passed */
    const struct run_lifetime *first; /* that the events of the batch refer to: `lives`, or those that it begins */
    const uint32_t *first_free_stack; /* NULL: not passed */
    size_t lives_cap;
    bool with_free_stacks;
};

void run_lifetimes_grow(struct run_lifetime **list, size_t *cap, size_t n)
{
    if (n <= *cap) return;
    const size_t more = n > *cap * 2 ? n + 1024 : *cap * 2;
    struct run_lifetime *grown = aligned_alloc(sizeof *grown, more * sizeof *grown);
    if (!grown) grown = arena_realloc(NULL, more, sizeof *grown);
    if (*cap) memcpy(grown, *list, *cap * sizeof *grown);
    free(*list);
    *list = grown;
    *cap = more;
}

void run_beside_tell(struct run *run, const struct run_observer *o, enum run_beside_kind kind, size_t index)
{
    if (kind == RUN_BESIDE_OOM && o->oom) o->oom(o->self, &run->ooms[index], index);
    if (kind == RUN_BESIDE_SAMPLE && o->sample) o->sample(o->self, &run->samples[index]);
    if (kind == RUN_BESIDE_RESERVED && o->reserved) o->reserved(o->self, &run->reserved[index]);
}

static void keep_begun(struct run_beside *b, const struct batch *batch)
{
    const struct run_lifetime *next = batch->begun;
    EACH (e, batch->events, batch->n) {
        if (e->kind != RUN_BESIDE_ALLOC) continue;
        if (e->number >= b->lives_cap) {
            run_lifetimes_grow(&b->lives, &b->lives_cap, e->number + (size_t)1);
            if (b->with_free_stacks)
                b->free_stacks = arena_realloc(b->free_stacks, b->lives_cap, sizeof *b->free_stacks);
        }
        if (b->free_stacks) b->free_stacks[e->number] = batch->free_stacks[next - batch->begun];
        b->lives[e->number] = *next++;
    }
}

static void use_batch(struct run_beside *b, const struct batch *batch)
{
    const bool kept = b->passed[RUN_BESIDE_FREE];
    if (kept) keep_begun(b, batch);
    b->first = kept ? b->lives : batch->begun;
    b->first_free_stack = kept ? b->free_stacks : b->with_free_stacks ? batch->free_stacks : NULL;
}

static void pass_batch(struct run_beside *b, const struct run_observer *o, const struct batch *batch)
{
    struct run_series series = {.process = batch->process};
    const _Atomic bool *const stopped = &b->run->stopped;
    const struct run_lifetime *const first = b->first;
    void (*const tells[])(void *, const struct run_lifetime *,
                          const struct run_series *) = {[RUN_BESIDE_ALLOC] = o->alloc, [RUN_BESIDE_FREE] = o->free};
    for (const struct event *e = batch->events, *end = e + batch->n; e < end && !*stopped; e++) {
        if (e->kind > RUN_BESIDE_FREE) {
            run_beside_tell(b->run, o, (enum run_beside_kind)e->kind, e->number);
            continue;
        }
        if (!tells[e->kind]) continue;
        series.device = e->device;
        series.layer = (enum run_series_layer)e->layer;
        series.live_bytes = e->live_bytes;
        tells[e->kind](o->self, &first[e->number], &series);
    }
}

_Thread_local const struct run_beside *run_beside_own;

static void *pass_batches(void *self)
{
    struct run_beside *b = self;
    unsigned slot;
    run_beside_own = b;
    while (relay_take(&b->relay, &slot)) {
        use_batch(b, &b->batches[slot]);
        for (size_t i = 0; i < b->observers_n; i++) pass_batch(b, &b->observers[i], &b->batches[slot]);
        relay_give_back(&b->relay);
    }
    return NULL;
}

static void use_next_batch(struct run_beside *b)
{
    b->filled = &b->batches[relay_wait_for_slot(&b->relay)];
    b->filled->n = b->filled->begun_n = 0;
    b->filled->process = b->process;
}

static void release_batches(struct run_beside *b)
{
    relay_free(&b->relay);
    ARENA_RELEASE(b->batches, b->observers, b->lives, b->free_stacks, b);
}

static void add_observer(struct run_beside *b, const struct run_observer *o)
{
    *ARENA_ADD(b->observers) = *o;
    b->passed[RUN_BESIDE_FREE] |= o->free != NULL;
    b->passed[RUN_BESIDE_ALLOC] |= o->alloc || o->free;
    b->passed[RUN_BESIDE_OOM] |= o->oom != NULL;
    b->passed[RUN_BESIDE_SAMPLE] |= o->sample != NULL;
    b->passed[RUN_BESIDE_RESERVED] |= o->reserved != NULL;
}

struct run_beside *run_beside_start(struct run *run, const struct run_observer *observers, size_t n, bool free_stacks)
{
    struct run_beside *b = aligned_alloc(_Alignof(struct run_beside), sizeof *b);
    if (!b) return NULL;
    *b = (struct run_beside){.run = run, .with_free_stacks = free_stacks};
    relay_init(&b->relay);
    for (size_t i = 0; i < n; i++)
        if (observers[i].beside) add_observer(b, &observers[i]);
    b->batches = arena_realloc(NULL, RELAY_SLOTS, sizeof *b->batches);
    if (!b->observers_n || !relay_start(&b->thread, pass_batches, b)) {
        release_batches(b);
        return NULL;
    }
    use_next_batch(b);
    return b;
}

void run_beside_begin(struct run_beside *b, uint32_t process)
{
    b->process = b->filled->process = process;
}

static void add_event(struct run_beside *b, struct event event)
{
    b->filled->events[b->filled->n] = event;
    if (++b->filled->n < BATCH) return;
    relay_put(&b->relay);
    use_next_batch(b);
}

static struct event lifetime_event(enum run_beside_kind kind, uint32_t number, const struct run_series *s)
{
    return (struct event){.live_bytes = s->live_bytes,
                          .number = number,
                          .device = (int16_t)s->device,
                          .layer = (uint8_t)s->layer,
                          .kind = (uint8_t)kind};
}

void run_beside_add_alloc(struct run_beside *b, const struct run_lifetime *life, const struct run_lifetime *place,
                          uint32_t number, uint32_t free_stack, const struct run_series *series)
{
    struct batch *batch = b->filled;
    struct run_lifetime *begun = &batch->begun[batch->begun_n];
    if (!b->passed[RUN_BESIDE_ALLOC]) return;
    *begun = *life;
    begun->series = place->series;
    begun->location = place->location;
    if (b->with_free_stacks) batch->free_stacks[batch->begun_n] = free_stack;
    number = b->passed[RUN_BESIDE_FREE] ? number : (uint32_t)batch->begun_n;
    batch->begun_n++;
    add_event(b, lifetime_event(RUN_BESIDE_ALLOC, number, series));
}

void run_beside_add_free(struct run_beside *b, uint32_t number, const struct run_series *series)
{
    if (b->passed[RUN_BESIDE_FREE]) add_event(b, lifetime_event(RUN_BESIDE_FREE, number, series));
}

void run_beside_add_other(struct run_beside *b, enum run_beside_kind kind, size_t index)
{
    if (b->passed[kind]) add_event(b, (struct event){.kind = (uint8_t)kind, .number = (uint32_t)index});
}

uint32_t run_beside_number(const struct run_beside *b, const struct run_lifetime *life)
{
    return (uint32_t)(life - b->first);
}

uint32_t run_beside_free_stack(const struct run_beside *b, const struct run_lifetime *life)
{
    return b->first_free_stack ? b->first_free_stack[life - b->first] : RUN_NONE;
}

void run_beside_wait(struct run_beside *b)
{
    relay_put(&b->relay);
    relay_drain(&b->relay);
    use_next_batch(b);
}

void run_beside_end(struct run_beside *b)
{
    if (!b) return;
    relay_put(&b->relay);
    relay_end(&b->relay);
    pthread_join(b->thread, NULL);
    release_batches(b);
}
