#include "interpose/shield.h"

#include <errno.h>

void gs_shield_begin(struct gs_shield *s)
{
    sigset_t all;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &s->cancel);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &s->signals);
}

void gs_shield_end(struct gs_shield *s)
{
    pthread_sigmask(SIG_SETMASK, &s->signals, NULL);
    pthread_setcancelstate(s->cancel, NULL);
}

static int start(pthread_t *thread, size_t stack, void *(*run)(void *), void *argument)
{
    pthread_attr_t attr;
    struct gs_shield shield;
    int failed = pthread_attr_init(&attr);
    if (failed) return failed;
    if (stack) pthread_attr_setstacksize(&attr, stack);
    /* the application's signals are not for this thread */
    gs_shield_begin(&shield);
    failed = pthread_create(thread, &attr, run, argument);
    gs_shield_end(&shield);
    pthread_attr_destroy(&attr);
    return failed;
}

int gs_start_thread(pthread_t *thread, size_t stack, void *(*run)(void *), void *argument)
{
    int failed = start(thread, stack, run, argument);
    /* thread-locals larger than that stack */
    return failed == EINVAL ? start(thread, 0, run, argument) : failed;
}
