/* Sections of an application's thread that nothing may interrupt: gpuspy holds a lock there, or has begun what a signal
 * handler's own call, a longjmp out of it or a cancellation would leave half done. Also gpuspy's own threads. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

struct gs_shield {
    sigset_t signals;
    int cancel;
};
void gs_shield_begin(struct gs_shield *s);
void gs_shield_end(struct gs_shield *s);

/* When the library is loaded. */
void gs_shield_load(void);

/* Around the recording's end, for which the process's exit waits: delays signals that would end the process, because
 * without gpuspy the process would already have exited. If the end takes long, gs_deadly_deliver lets them end the
 * process after all. */
void gs_deadly_hold(void);
void gs_deadly_drop(void);
void gs_deadly_deliver(void);

/* Gives the calling thread, one of gpuspy's own, an empty table of descriptors, which the threads that it starts share:
 * files that they open have no number in the program, and the program cannot close or replace them. False if the kernel
 * refuses (older than 5.9, or forbidden): the table stays the program's. */
bool gs_own_files(void);
/* Whether this thread has one. */
bool gs_has_own_files(void);

/* A thread with all signals blocked, on a stack of this many bytes in addition to the program's thread-locals. Returns
 * 0 or an errno. */
int gs_start_thread(pthread_t *thread, size_t stack, void *(*run)(void *), void *argument);
