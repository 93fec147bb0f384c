#include "interpose/shield.h"

#include <dlfcn.h>
#include <errno.h>
#include "interpose/resolve.h"

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

/* A program's thread-locals lie on each thread's stack: 250 KB of them would leave nothing of 256. glibc tells how
 * much they and the thread itself take; 0 where it does not. */
static size_t taken(const pthread_attr_t *attr)
{
    size_t (*least)(const pthread_attr_t *) = NULL;
    *(void **)&least = gs_real_dlsym(RTLD_DEFAULT, "__pthread_get_minstack");
    return least ? least(attr) : 0;
}

static int start(pthread_t *thread, size_t stack, void *(*run)(void *), void *argument)
{
    pthread_attr_t attr;
    struct gs_shield shield;
    int failed = pthread_attr_init(&attr);
    if (failed) return failed;
    if (stack) pthread_attr_setstacksize(&attr, (stack + taken(&attr) + 4095) & ~(size_t)4095);
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
    /* thread-locals larger than that stack, where glibc did not tell */
    return failed == EINVAL ? start(thread, 0, run, argument) : failed;
}
