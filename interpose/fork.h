/* Around fork. */
#ifndef GPUSPY_FORK_H
#define GPUSPY_FORK_H

/* Runs while a sanitizer is starting up. */
#define GS_UNCHECKED __attribute__((no_sanitize("address"), no_sanitize("undefined"), no_sanitize("thread")))

/* glibc's, which pthread_atfork calls. 0 or ENOMEM. */
typedef int gs_register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object);

/* Registers gpuspy's handlers, once. When the library is loaded, or before anybody else's are. */
void gs_fork_load(void);

/* Brings the drain to rest, waiting so many ms at most, before the program's fork handlers run; and lets it
 * go on, where the handlers have not done so already. They may be nested. */
void gs_fork_rest(int ms);
void gs_fork_go_on(void);

#endif
