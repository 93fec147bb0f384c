/* Each observer gets a whole batch before the next one: its data per location then stay in the CPU's cache. */
#include "analyzer/run/beside.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/relay.h"
#include "analyzer/run/run_internal.h"

enum { BATCH = 2048 };

struct run_beside {
    struct run *run;
    struct relay relay;
    pthread_t thread;
    struct run_observer *observers; /* they receive the batches */
    size_t observers_n, observers_cap;
    struct run_lifetime *lives;      /* of all slots, BATCH each, as are the events */
    struct run_beside_event *events; /* lives has room for each of them, used or not */
    size_t sizes[RELAY_SLOTS];
    size_t at; /* where the batch that is being filled begins */
    size_t n;  /* events in it */
};

void run_beside_tell(struct run *run, const struct run_observer *o, enum run_beside_kind kind, size_t index)
{
    if (kind == RUN_BESIDE_OOM && o->oom) o->oom(o->self, &run->ooms[index], index);
    if (kind == RUN_BESIDE_SAMPLE && o->sample) o->sample(o->self, &run->samples[index]);
    if (kind == RUN_BESIDE_RESERVED && o->reserved) o->reserved(o->self, &run->reserved[index]);
}

static inline void pass_event(struct run *run, const struct run_observer *o, const struct run_lifetime *life,
                              const struct run_beside_event *e)
{
    const struct run_series series = {.process = e->process,
                                      .device = e->device,
                                      .layer = (enum run_series_layer)e->layer,
                                      .live_bytes = e->live_bytes};
    if (e->kind > RUN_BESIDE_FREE)
        run_beside_tell(run, o, (enum run_beside_kind)e->kind, e->number);
    else if (e->kind == RUN_BESIDE_FREE && o->free)
        o->free(o->self, life, &series);
    else if (e->kind == RUN_BESIDE_ALLOC && o->alloc)
        o->alloc(o->self, life, &series);
}

static void pass_batch(struct run_beside *b, const struct run_observer *o, unsigned slot)
{
    const size_t first = (size_t)slot * BATCH;
    for (size_t i = first; i < first + b->sizes[slot] && !b->run->stopped; i++)
        pass_event(b->run, o, &b->lives[i], &b->events[i]);
}

static void *pass_batches(void *self)
{
    struct run_beside *b = self;
    unsigned slot;
    while (relay_take(&b->relay, &slot)) {
        for (size_t i = 0; i < b->observers_n; i++) pass_batch(b, &b->observers[i], slot);
        relay_give_back(&b->relay);
    }
    return NULL;
}

static void use_next_batch(struct run_beside *b)
{
    b->at = (size_t)relay_wait_for_slot(&b->relay) * BATCH;
    b->n = 0;
}

static void put_batch(struct run_beside *b)
{
    b->sizes[b->at / BATCH] = b->n;
    relay_put(&b->relay);
}

static void release_batches(struct run_beside *b)
{
    relay_free(&b->relay);
    free(b->lives);
    free(b->events);
    free(b->observers);
    free(b);
}

struct run_beside *run_beside_start(struct run *run, const struct run_observer *observers, size_t n)
{
    struct run_beside *b = arena_realloc(NULL, 1, sizeof *b);
    *b = (struct run_beside){.run = run};
    relay_init(&b->relay);
    for (size_t i = 0; i < n; i++)
        if (observers[i].beside) *ARENA_PUSH(b->observers, b->observers_n, b->observers_cap) = observers[i];
    b->lives = arena_realloc(NULL, RELAY_SLOTS * BATCH, sizeof *b->lives);
    b->events = arena_realloc(NULL, RELAY_SLOTS * BATCH, sizeof *b->events);
    if (!b->observers_n || !relay_start(&b->thread, pass_batches, b)) {
        release_batches(b);
        return NULL;
    }
    use_next_batch(b);
    return b;
}

static void end_event(struct run_beside *b)
{
    if (++b->n == BATCH) {
        put_batch(b);
        use_next_batch(b);
    }
}

void run_beside_add(struct run_beside *b, const struct run_lifetime *life, uint32_t series, uint32_t location,
                    const struct run_beside_event *event)
{
    struct run_lifetime *passed = &b->lives[b->at + b->n];
    *passed = *life;
    passed->series = series;
    passed->location = location;
    b->events[b->at + b->n] = *event;
    end_event(b);
}

void run_beside_add_other(struct run_beside *b, enum run_beside_kind kind, size_t index)
{
    b->events[b->at + b->n] = (struct run_beside_event){.kind = (uint8_t)kind, .number = (uint32_t)index};
    end_event(b);
}

const struct run_beside_event *run_beside_event_of(const struct run_beside *b, const struct run_lifetime *life)
{
    if (!b || life < b->lives || life >= b->lives + RELAY_SLOTS * BATCH) return NULL;
    return &b->events[life - b->lives];
}

void run_beside_wait(struct run_beside *b)
{
    put_batch(b);
    relay_drain(&b->relay);
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
