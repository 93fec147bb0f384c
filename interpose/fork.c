/* fork: gpuspy is brought to rest first, then the program's own fork handlers run, then the process is
 * copied.
 *
 * The order matters. Handlers that prepare a fork run last in, first out, and may call CUDA, wait for a
 * thread that does, or take the locks of malloc (jemalloc's do). So the drain, which calls malloc, is
 * brought to rest before any of them runs, in the functions that fork. A hooked call takes no lock, but
 * for the first one of the process, which starts the session: that lock is taken when all of them have run,
 * by the handler that was the first one registered. Whatever forks without these functions (wordexp) comes
 * by the handlers alone, which wait only shortly. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <pty.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>
#include "interpose/device.h"
#include "interpose/drain.h"
#include "interpose/nvml.h"
#include "interpose/resolve.h"
#include "interpose/session.h"
#include "interpose/shield.h"
#include "interpose/stack.h"
#include "interpose/watcher.h"

#define EXPORT __attribute__((visibility("default")))
#define INSIDE __thread __attribute__((tls_model("initial-exec")))
/* What a fork waits for the drain at most. In a handler the program's own may hold what the drain waits
 * for. */
enum { REST_MS = 2000, REST_IN_HANDLER_MS = 100 };

static INSIDE unsigned depth; /* a signal handler may fork in the middle of a fork */
static INSIDE bool at_rest;   /* the drain is, until the fork has been made */
static INSIDE bool locked;    /* the session is, in the handlers */
static struct gs_shield copying; /* of the thread that has it locked */

static void rest(int ms)
{
    const int saved = errno;
    if (!depth++ && gs_session_wanted()) {
        struct gs_shield shield;
        gs_shield_begin(&shield);
        if (gs_session_lock(ms)) gs_session_unlock(); /* what is being started has been */
        gs_shield_end(&shield);
        gs_nvml_lock();
        at_rest = gs_drain_lock(ms);
    }
    errno = saved;
}

static void go_on(void)
{
    const int saved = errno;
    if (depth && !--depth && gs_session_wanted()) {
        if (at_rest) gs_drain_unlock();
        at_rest = false;
        gs_nvml_unlock();
    }
    errno = saved;
}

/* --- handlers --------------------------------------------------------------------------------- */

/* The last to run. A first CUDA call in another thread may be starting the session just now; that one
 * may wait for what another handler has locked. */
static void before(void)
{
    struct gs_shield shield;
    if (!gs_session_wanted()) return;
    rest(REST_IN_HANDLER_MS);
    gs_shield_begin(&shield);
    locked = gs_session_lock(REST_IN_HANDLER_MS);
    if (locked) copying = shield;
    else gs_shield_end(&shield);
}

/* These two are the first to run. */
static void after_in_parent(void)
{
    if (locked) {
        struct gs_shield shield = copying;
        locked = false;
        gs_session_unlock();
        gs_shield_end(&shield);
    }
    go_on();
}

static void after_in_child(void)
{
    const int saved = errno;
    const bool usable = locked && at_rest, shielded = locked;
    if (!gs_session_wanted()) return;
    gs_stack_forked();
    gs_drain_forget(at_rest);
    gs_watcher_forget();
    gs_nvml_forget();
    gs_device_forget();
    depth = 0;
    locked = at_rest = false;
    if (usable) gs_session_forked();
    else gs_session_forked_at_work();
    if (shielded) gs_shield_end(&copying);
    errno = saved;
}

/* --- pthread_atfork --------------------------------------------------------------------------- */

extern void *__dso_handle __attribute__((visibility("hidden")));

typedef int register_function(void (*)(void), void (*)(void), void (*)(void), void *);

/* What pthread_atfork, which is linked into each object, calls in glibc. A library that starts before
 * libgpuspy registers through it, too. */
EXPORT register_function __register_atfork;
__attribute__((no_sanitize("address"), no_sanitize("undefined"), no_sanitize("thread"))) /* which may be starting up */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object)
{
    static _Atomic(register_function *) found;
    static atomic_flag registered = ATOMIC_FLAG_INIT;
    register_function *real = atomic_load(&found);
    if (!real) atomic_store(&found, real = (register_function *)gs_libc_function("__register_atfork"));
    if (!real) return ENOMEM; /* the only error that it knows */
    /* whether this process is recorded is asked later: a sanitizer may be starting up */
    if (!atomic_flag_test_and_set(&registered))
        real(before, after_in_parent, after_in_child, &__dso_handle);
    return prepare || parent || child ? real(prepare, parent, child, object) : 0;
}

void gs_fork_load(void)
{
    __register_atfork(NULL, NULL, NULL, NULL);
}

/* --- the functions that fork ------------------------------------------------------------------ */

/* The child's handler has brought depth to 0: nothing is left to do there. */
#define FORKING(result, name, params, args)                                                       \
    EXPORT result name params;                                                                     \
    result name params                                                                             \
    {                                                                                              \
        static _Atomic(void *) found;                                                              \
        void *at = atomic_load(&found);                                                            \
        if (!at) atomic_store(&found, at = gs_libc_function(#name));                               \
        if (!at) {                                                                                 \
            errno = ENOSYS;                                                                        \
            return -1;                                                                             \
        }                                                                                          \
        rest(REST_MS);                                                                             \
        const result made = ((result(*) params)at)args;                                            \
        go_on();                                                                                   \
        return made;                                                                               \
    }
FORKING(pid_t, fork, (void), ())
FORKING(int, daemon, (int nochdir, int noclose), (nochdir, noclose))
FORKING(int, forkpty, (int *master, char *name, const struct termios *term, const struct winsize *size),
        (master, name, term, size))
