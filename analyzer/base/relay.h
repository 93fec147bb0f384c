/* Passes batches in order from one thread, the writer, to another, the reader. The caller owns RELAY_SLOTS batches; the
 * relay decides which of the two may use each. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

enum { RELAY_SLOTS = 16 };

struct relay {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned written, read;
    bool ended;
};

void relay_init(struct relay *r);
void relay_free(struct relay *r);

/* The writer: waits for a slot and returns its number; passes the slot on; waits until all are read; writes no more. */
unsigned relay_wait_for_slot(struct relay *r);
void relay_put(struct relay *r);
void relay_drain(struct relay *r);
void relay_end(struct relay *r);
/* The reader: takes the next slot, false at the end; returns it. */
bool relay_take(struct relay *r, unsigned *slot);
void relay_give_back(struct relay *r);

/* Starts a thread with all signals blocked; false if that fails. */
bool relay_start(pthread_t *thread, void *(*run)(void *), void *self);
