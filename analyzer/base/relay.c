#include "analyzer/base/relay.h"

#include <signal.h>

void relay_init(struct relay *r)
{
    *r = (struct relay){.written = 0};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
}

void relay_free(struct relay *r)
{
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
}

static void wait_while_over(struct relay *r, unsigned slots)
{
    pthread_mutex_lock(&r->lock);
    while (r->written - r->read > slots) pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

unsigned relay_wait_for_slot(struct relay *r)
{
    wait_while_over(r, RELAY_SLOTS - 1);
    return r->written % RELAY_SLOTS;
}

void relay_drain(struct relay *r)
{
    wait_while_over(r, 0);
}

static void change_count(struct relay *r, unsigned *count)
{
    pthread_mutex_lock(&r->lock);
    if (count) ++*count;
    r->ended = r->ended || !count;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void relay_put(struct relay *r)
{
    change_count(r, &r->written);
}

void relay_give_back(struct relay *r)
{
    change_count(r, &r->read);
}

void relay_end(struct relay *r)
{
    change_count(r, NULL);
}

bool relay_take(struct relay *r, unsigned *slot)
{
    pthread_mutex_lock(&r->lock);
    while (r->written == r->read && !r->ended) pthread_cond_wait(&r->changed, &r->lock);
    bool more = r->written != r->read;
    *slot = r->read % RELAY_SLOTS;
    pthread_mutex_unlock(&r->lock);
    return more;
}

bool relay_start(pthread_t *thread, void *(*run)(void *), void *self)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bool started = pthread_create(thread, NULL, run, self) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}
