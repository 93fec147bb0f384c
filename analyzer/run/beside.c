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
    bool passed[RUN_BESIDE_RESERVED + 1]; /* kinds of events that one of them receives */
    struct run_lifetime *lives;           /* of all slots, BATCH each, as are the events */
    struct run_beside_event *events;      /* lives has room for each of them, used or not */
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

static void pass_batch(struct run_beside *b, const struct run_observer *o, unsigned slot)
{
    const size_t first = (size_t)slot * BATCH;
    struct run_series series = {0};
    for (size_t i = first; i < first + b->sizes[slot] && !b->run->stopped; i++) {
        const struct run_beside_event *e = &b->events[i];
        if (e->kind > RUN_BESIDE_FREE) {
            run_beside_tell(b->run, o, (enum run_beside_kind)e->kind, e->number);
            continue;
        }
        __auto_type tell = e->kind == RUN_BESIDE_ALLOC ? o->alloc : o->free;
        if (!tell) continue;
        series.process = e->process;
        series.device = e->device;
        series.layer = (enum run_series_layer)e->layer;
        series.live_bytes = e->live_bytes;
        tell(o->self, &b->lives[i], &series);
    }
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

static void add_observer(struct run_beside *b, const struct run_observer *o)
{
    *ARENA_PUSH(b->observers, b->observers_n, b->observers_cap) = *o;
    b->passed[RUN_BESIDE_ALLOC] |= o->alloc != NULL;
    b->passed[RUN_BESIDE_FREE] |= o->free != NULL;
    b->passed[RUN_BESIDE_OOM] |= o->oom != NULL;
    b->passed[RUN_BESIDE_SAMPLE] |= o->sample != NULL;
    b->passed[RUN_BESIDE_RESERVED] |= o->reserved != NULL;
}

struct run_beside *run_beside_start(struct run *run, const struct run_observer *observers, size_t n)
{
    struct run_beside *b = arena_realloc(NULL, 1, sizeof *b);
    *b = (struct run_beside){.run = run};
    relay_init(&b->relay);
    for (size_t i = 0; i < n; i++)
        if (observers[i].beside) add_observer(b, &observers[i]);
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
    if (!b->passed[event->kind]) return;
    struct run_lifetime *passed = &b->lives[b->at + b->n];
    *passed = *life;
    passed->series = series;
    passed->location = location;
    b->events[b->at + b->n] = *event;
    end_event(b);
}

void run_beside_add_other(struct run_beside *b, enum run_beside_kind kind, size_t index)
{
    if (!b->passed[kind]) return;
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
