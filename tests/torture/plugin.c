/* A library that calls CUDA when it is loaded and unloaded; built several times under several names. */
#include "tests/torture/torture.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) void t_plugin_work(unsigned pairs);

void t_plugin_work(unsigned pairs)
{
    t_work(pairs);                /* calls of the program */
    void *pointer = t_malloc(77); /* calls of this library */
    t_sync();
    t_free(pointer);
}

static void *help(void *unused)
{
    (void)unused;
    t_plugin_work(4);
    return NULL;
}

static void handler(void)
{
    t_plugin_work(2);
}

static void __attribute__((constructor)) load(void)
{
    pthread_t helper;
    const unsigned mode = t_plugin_mode;
    if (mode & T_CTOR_WORK) t_plugin_work(3);
    if (mode & T_CTOR_HELPER && !pthread_create(&helper, NULL, help, NULL)) pthread_join(helper, NULL);
    if (mode & T_CTOR_ATFORK) pthread_atfork(handler, handler, handler);
    if (mode & T_CTOR_EXIT) {
        t_ending();
        exit(17);
    }
}

static void __attribute__((destructor)) unload(void)
{
    if (t_plugin_mode & T_DTOR_WORK) t_plugin_work(3);
}
