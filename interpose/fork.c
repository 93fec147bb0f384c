/* fork: gpuspy is brought to rest first, then the program's own fork handlers run, then the process is
 * copied.
 *
 * The order matters. Handlers that prepare a fork run last in, first out, and may call CUDA, wait for a
 * thread that does, or take the locks of malloc (jemalloc's do). So the drain, which calls malloc, is
 * brought to rest before any of them runs, in the functions that fork. A hooked call takes no lock, but
 * for the first one of the process, which starts the session: that lock is taken when all of them have run,
 * by the handler that was the first one registered. Whatever forks without these functions (wordexp) comes
 * by the handlers alone, which wait only shortly. */
#include "interpose/fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include "interpose/device.h"
#include "interpose/drain.h"
#include "interpose/nvml.h"
#include "interpose/resolve.h"
#include "interpose/session.h"
#include "interpose/shield.h"
#include "interpose/stack.h"
#include "interpose/watcher.h"

#define INSIDE __thread __attribute__((tls_model("initial-exec")))
/* What a handler waits for the drain at most: the program's own may hold what the drain waits for. */
#define REST_IN_HANDLER_MS 100

static INSIDE unsigned depth; /* a signal handler may fork in the middle of a fork */
static INSIDE bool at_rest;   /* the drain is, until the fork has been made */
static INSIDE bool locked;    /* the session is, in the handlers */
static struct gs_shield copying; /* of the thread that has it locked */

void gs_fork_rest(int ms)
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

void gs_fork_go_on(void)
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
    gs_fork_rest(REST_IN_HANDLER_MS);
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
    gs_fork_go_on();
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

/* --- registering them ------------------------------------------------------------------------- */

extern void *__dso_handle __attribute__((visibility("hidden")));

GS_UNCHECKED void gs_fork_load(void)
{
    static atomic_flag registered = ATOMIC_FLAG_INIT;
    gs_register_atfork *real = (gs_register_atfork *)gs_libc_function("__register_atfork");
    /* whether this process is recorded is asked later: a sanitizer may be just starting up */
    if (real && !atomic_flag_test_and_set(&registered)) real(before, after_in_parent, after_in_child, &__dso_handle);
}
