/* Each observer gets a whole batch before the next one: its data per location then stay in the CPU's cache. */
#include "analyzer/run/beside.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/relay.h"

enum { BATCH = 2048 };

struct batch {
    struct run_lifetime lives[BATCH];
    uint8_t layers[BATCH];
    bool freed[BATCH];
    size_t n;
};

struct run_beside {
    struct relay relay;
    pthread_t thread;
    struct run_observer *observers; /* they receive the batches */
    size_t observers_n, observers_cap;
    struct batch *slots[RELAY_SLOTS];
    struct batch *batch; /* that is being filled */
};

static void pass_batch(const struct run_observer *o, const struct batch *batch)
{
    struct run_series series = {.process = RUN_NONE};
    for (size_t i = 0; i < batch->n; i++) {
        const struct run_lifetime *life = &batch->lives[i];
        series.layer = batch->layers[i];
        if (batch->freed[i] && o->free) o->free(o->self, life, &series);
        if (!batch->freed[i] && o->alloc) o->alloc(o->self, life, &series);
    }
}

static void *pass_batches(void *self)
{
    struct run_beside *b = self;
    unsigned slot;
    while (relay_take(&b->relay, &slot)) {
        for (size_t i = 0; i < b->observers_n; i++) pass_batch(&b->observers[i], b->slots[slot]);
        relay_give_back(&b->relay);
    }
    return NULL;
}

static void use_next_batch(struct run_beside *b)
{
    b->batch = b->slots[relay_wait_for_slot(&b->relay)];
    b->batch->n = 0;
}

static void release_batches(struct run_beside *b)
{
    for (unsigned i = 0; i < RELAY_SLOTS; i++) free(b->slots[i]);
    relay_free(&b->relay);
    free(b->observers);
    free(b);
}

struct run_beside *run_beside_start(const struct run_observer *observers, size_t n)
{
    struct run_beside *b = arena_realloc(NULL, 1, sizeof *b);
    *b = (struct run_beside){.observers = NULL};
    relay_init(&b->relay);
    for (size_t i = 0; i < n; i++)
        if (observers[i].beside) *ARENA_PUSH(b->observers, b->observers_n, b->observers_cap) = observers[i];
    for (unsigned i = 0; i < RELAY_SLOTS; i++) b->slots[i] = arena_realloc(NULL, 1, sizeof *b->slots[i]);
    if (!b->observers_n || !relay_start(&b->thread, pass_batches, b)) {
        release_batches(b);
        return NULL;
    }
    use_next_batch(b);
    return b;
}

void run_beside_add(struct run_beside *b, const struct run_lifetime *life, uint32_t series, uint32_t location,
                    enum run_series_layer layer, bool freed)
{
    struct batch *batch = b->batch;
    batch->lives[batch->n] = *life;
    batch->lives[batch->n].series = series;
    batch->lives[batch->n].location = location;
    batch->layers[batch->n] = (uint8_t)layer;
    batch->freed[batch->n] = freed;
    if (++batch->n == BATCH) {
        relay_put(&b->relay);
        use_next_batch(b);
    }
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
