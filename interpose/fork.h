/* What gpuspy does before and after fork. */
#pragma once

#include "interpose/stack_elf.h"

/* glibc's function, which pthread_atfork calls. Returns 0 or ENOMEM. */
typedef int gs_register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object);

/* Registers gpuspy's handlers once: when the library is loaded, or before any other handlers. */
void gs_fork_load(void);

/* Pauses the drain before the program's fork handlers run, waiting at most this many ms; resumes it, unless the
 * handlers have already done so. Calls may be nested. */
void gs_fork_rest(int ms);
void gs_fork_go_on(void);
