/* The door of the functions that fork, and of pthread_atfork. See fork.c. */
#include <errno.h>
#include <pty.h>
#include <stdatomic.h>
#include <unistd.h>
#include "interpose/fork.h"
#include "interpose/resolve.h"

#define EXPORT __attribute__((visibility("default")))
#define REST_MS 2000 /* how long a fork waits for the drain at most */

/* pthread_atfork, which is linked into each object, calls this function of glibc. A library that starts before
 * libgpuspy registers through it too, so that gpuspy's handlers still come first. */
EXPORT gs_register_atfork __register_atfork;
GS_UNCHECKED int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object)
{
    static _Atomic(void *) found;
    gs_register_atfork *real = (gs_register_atfork *)gs_next_once(&found, "__register_atfork");
    if (!real) return ENOMEM; /* the only error that it may return */
    gs_fork_load();
    return real(prepare, parent, child, object);
}

/* The child's handler has set depth to 0: nothing is left to do there. */
#define FORKING(result, name, params, args)             \
    EXPORT result name params;                          \
    result name params                                  \
    {                                                   \
        static _Atomic(void *) found;                   \
        void *at = gs_next_once(&found, #name);         \
        if (!at) {                                      \
            errno = ENOSYS;                             \
            return -1;                                  \
        }                                               \
        gs_fork_rest(REST_MS);                          \
        const result made = ((result(*) params)at)args; \
        gs_fork_go_on();                                \
        return made;                                    \
    }
FORKING(pid_t, fork, (void), ())
FORKING(int, daemon, (int nochdir, int noclose), (nochdir, noclose))
FORKING(int, forkpty, (int *master, char *name, const struct termios *term, const struct winsize *size),
        (master, name, term, size))
