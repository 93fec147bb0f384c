/* Each observer gets a whole batch before the next one: its data per location then stay in the CPU's cache. */
#include "analyzer/run/beside.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/relay.h"
#include "analyzer/run/run_internal.h"

enum { BATCH = 2048, AHEAD = 8 };

struct run_beside {
    struct run *run;
    struct relay relay;
    pthread_t thread;
    struct run_observer *observers; /* they receive the batches */
    size_t observers_n, observers_cap;
    bool passed[RUN_BESIDE_RESERVED + 1]; /* kinds of events that an observer receives */
    struct run_lifetime *const *live;
    struct run_slots *spare, retired[RELAY_SLOTS]; /* retired: while that batch was filled */
    struct run_beside_event *events;               /* of all batches, BATCH each */
    size_t sizes[RELAY_SLOTS];
    unsigned at; /* the batch that is being filled */
    size_t n;    /* events in it */
};

void run_beside_tell(struct run *run, const struct run_observer *o, enum run_beside_kind kind, size_t index)
{
    if (kind == RUN_BESIDE_OOM && o->oom) o->oom(o->self, &run->ooms[index], index);
    if (kind == RUN_BESIDE_SAMPLE && o->sample) o->sample(o->self, &run->samples[index]);
    if (kind == RUN_BESIDE_RESERVED && o->reserved) o->reserved(o->self, &run->reserved[index]);
}

static void pass_batch(struct run_beside *b, const struct run_observer *o, unsigned batch)
{
    const struct run_lifetime *live = *b->live;
    const struct run_beside_event *events = b->events + (size_t)batch * BATCH;
    const size_t n = b->sizes[batch];
    struct run_series series = {0};
    for (size_t i = 0; i < n && !b->run->stopped; i++) {
        const struct run_beside_event *e = &events[i], *ahead = &events[i + AHEAD < n ? i + AHEAD : i];
        if (e->kind > RUN_BESIDE_FREE) {
            run_beside_tell(b->run, o, (enum run_beside_kind)e->kind, e->number);
            continue;
        }
        if (ahead->kind == RUN_BESIDE_ALLOC) __builtin_prefetch(&live[ahead->number]); /* another core wrote it */
        series.process = e->process;
        series.device = e->device;
        series.layer = (enum run_series_layer)e->layer;
        series.live_bytes = e->live_bytes;
        if (e->kind == RUN_BESIDE_FREE && o->free) o->free(o->self, &live[e->number], &series);
        if (e->kind == RUN_BESIDE_ALLOC && o->alloc) o->alloc(o->self, &live[e->number], &series);
    }
}

static void *pass_batches(void *self)
{
    struct run_beside *b = self;
    unsigned batch;
    while (relay_take(&b->relay, &batch)) {
        for (size_t i = 0; i < b->observers_n; i++) pass_batch(b, &b->observers[i], batch);
        relay_give_back(&b->relay);
    }
    return NULL;
}

static void reuse_retired(struct run_beside *b, unsigned batch)
{
    struct run_slots *from = &b->retired[batch], *to = b->spare;
    for (size_t i = 0; i < from->n; i++) *ARENA_PUSH(to->list, to->n, to->cap) = from->list[i];
    from->n = 0;
}

/* The batch that had the same place before has been received. */
static void use_next_batch(struct run_beside *b)
{
    b->at = relay_wait_for_slot(&b->relay);
    b->n = 0;
    reuse_retired(b, b->at);
}

static void put_batch(struct run_beside *b)
{
    b->sizes[b->at] = b->n;
    relay_put(&b->relay);
}

static void release_batches(struct run_beside *b)
{
    relay_free(&b->relay);
    for (unsigned i = 0; i < RELAY_SLOTS; i++) free(b->retired[i].list);
    free(b->events);
    free(b->observers);
    free(b);
}

static void add_observer(struct run_beside *b, const struct run_observer *o)
{
    *ARENA_PUSH(b->observers, b->observers_n, b->observers_cap) = *o;
    b->passed[RUN_BESIDE_ALLOC] |= o->alloc != NULL;
    b->passed[RUN_BESIDE_FREE] |= o->free != NULL;
    b->passed[RUN_BESIDE_OOM] |= o->oom != NULL;
    b->passed[RUN_BESIDE_SAMPLE] |= o->sample != NULL;
    b->passed[RUN_BESIDE_RESERVED] |= o->reserved != NULL;
}

struct run_beside *run_beside_start(struct run *run, const struct run_observer *observers, size_t n,
                                    struct run_lifetime *const *live, struct run_slots *spare)
{
    struct run_beside *b = arena_realloc(NULL, 1, sizeof *b);
    *b = (struct run_beside){.run = run, .live = live, .spare = spare};
    relay_init(&b->relay);
    for (size_t i = 0; i < n; i++)
        if (observers[i].beside) add_observer(b, &observers[i]);
    b->events = arena_realloc(NULL, RELAY_SLOTS * BATCH, sizeof *b->events);
    if (!b->observers_n || !relay_start(&b->thread, pass_batches, b)) {
        release_batches(b);
        return NULL;
    }
    use_next_batch(b);
    return b;
}

void run_beside_add(struct run_beside *b, const struct run_beside_event *event)
{
    if (!b->passed[event->kind]) return;
    b->events[(size_t)b->at * BATCH + b->n] = *event;
    if (++b->n < BATCH) return;
    put_batch(b);
    use_next_batch(b);
}

struct run_slots *run_beside_retired(struct run_beside *b)
{
    return b->passed[RUN_BESIDE_ALLOC] || b->passed[RUN_BESIDE_FREE] ? &b->retired[b->at] : b->spare;
}

void run_beside_add_other(struct run_beside *b, enum run_beside_kind kind, size_t index)
{
    run_beside_add(b, &(struct run_beside_event){.kind = (uint8_t)kind, .number = (uint32_t)index});
}

void run_beside_wait(struct run_beside *b)
{
    put_batch(b);
    relay_drain(&b->relay);
    for (unsigned i = 0; i < RELAY_SLOTS; i++) reuse_retired(b, i);
    use_next_batch(b);
}

void run_beside_end(struct run_beside *b)
{
    if (!b) return;
    put_batch(b);
    relay_end(&b->relay);
    pthread_join(b->thread, NULL);
    release_batches(b);
}
