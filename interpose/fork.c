/* fork: first gpuspy's drain pauses, then the program's own fork handlers run, then the process is copied.
 *
 * The order matters. Handlers that prepare a fork run in reverse order of registration, and may call CUDA, wait for
 * a thread that does, or take the locks of malloc (jemalloc's do). So the drain, which calls malloc, pauses before
 * any of them runs, in the wrappers of the functions that fork. A hooked call takes no lock, except the first one of
 * the process, which starts the session: the handler that was registered first takes that lock, after all others
 * have run. Code that forks without these functions (wordexp) reaches only the handlers, which wait only briefly.
 *
 * Forks of several threads share all of this: the handlers of one may wait for another. */
#include "interpose/fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include "interpose/device.h"
#include "interpose/drain.h"
#include "interpose/graph.h"
#include "interpose/limit.h"
#include "interpose/nvml.h"
#include "interpose/reroute.h"
#include "interpose/resolve.h"
#include "interpose/session.h"
#include "interpose/shield.h"
#include "interpose/stack.h"
#include "interpose/stack_elf.h"
#include "interpose/watcher.h"

#define INSIDE __thread __attribute__((tls_model("initial-exec")))
/* A handler waits at most this long: a handler of the program may hold a lock that the drain waits for. */
#define REST_IN_HANDLER_MS 100

static INSIDE unsigned depth;           /* a signal handler may fork in the middle of a fork */
static INSIDE bool resting;             /* gs_fork_rest paused something; whether gpuspy is enabled may change later */
static INSIDE bool prepared;            /* the handler before the fork has run */
static INSIDE unsigned attaching;       /* … and was to prepare nothing else: gpuspy_attach may be at work */
static INSIDE bool at_rest;             /* the drain is paused until the fork is done */
static INSIDE bool quiet;               /* in the handlers: no thread reads the list of loaded objects for gpuspy */
static INSIDE bool locked;              /* in the handlers: the session is locked */
static INSIDE struct gs_shield copying; /* from the last handler before the fork to the first one after it */

void gs_fork_rest(int ms)
{
    const int saved = errno;
    if (!depth++ && gs_session_is_enabled()) {
        struct gs_shield shield;
        gs_shield_begin(&shield);
        if (gs_session_lock(ms)) gs_session_unlock(); /* waits until a session that is being started has started */
        gs_shield_end(&shield);
        gs_nvml_lock();
        at_rest = gs_drain_rest(ms);
        resting = true;
    }
    errno = saved;
}

void gs_fork_go_on(void)
{
    const int saved = errno;
    if (depth && !--depth && resting) {
        if (at_rest) gs_drain_go_on();
        at_rest = resting = false;
        gs_nvml_unlock();
    }
    errno = saved;
}

/* --- handlers --------------------------------------------------------------------------------- */

/* Runs last. Another thread's first CUDA call may be starting the session now, and that thread may wait for a lock that
 * another handler holds. */
static void before_fork(void)
{
    if (!gs_session_is_enabled()) {
        if (gs_attached)
            attaching++, (void)gs_elf_rest(REST_IN_HANDLER_MS); /* twice if a signal handler forks meanwhile */
        return;
    }
    gs_fork_rest(REST_IN_HANDLER_MS);
    gs_shield_begin(&copying);
    prepared = true;
    locked = gs_session_lock(REST_IN_HANDLER_MS);
    quiet = gs_elf_rest(REST_IN_HANDLER_MS);
}

/* These two run first. */
static void after_in_parent(void)
{
    if (prepared || attaching) gs_elf_go_on();
    attaching -= attaching > 0;
    if (!prepared) return;
    prepared = false;
    if (locked) gs_session_unlock();
    locked = false;
    gs_shield_end(&copying);
    gs_fork_go_on();
}

static void after_in_child(void)
{
    const int saved = errno;
    const char *busy = !locked                             ? "another thread was starting the recording"
                       : !at_rest                          ? "gpuspy was writing the recording"
                       : !quiet || gs_elf_list_is_locked() ? "another thread was using the list of loaded libraries"
                                                           : NULL;
    if (prepared || attaching) gs_elf_forked();
    attaching = 0;
    if (!prepared) {
        if (gs_dormant) gs_session_forked(); /* gpuspy_attach may be called here, too */
        return;
    }
    gs_reroute_forked();
    gs_stack_forked();
    gs_drain_forget(at_rest);
    gs_watcher_forget();
    gs_nvml_forget();
    gs_device_forget();
    gs_graph_forget();
    gs_limit_forget();
    depth = 0;
    locked = at_rest = resting = prepared = false;
    if (busy)
        gs_session_forked_at_work(busy);
    else
        gs_session_forked();
    gs_shield_end(&copying);
    errno = saved;
}

/* --- registering them ------------------------------------------------------------------------- */

extern void *__dso_handle __attribute__((visibility("hidden")));

GS_UNCHECKED void gs_fork_load(void)
{
    static atomic_flag registered = ATOMIC_FLAG_INIT;
    gs_register_atfork *real = (gs_register_atfork *)gs_libc_function("__register_atfork");
    /* whether this process is recorded is decided later: a sanitizer may be just starting up */
    if (real && !atomic_flag_test_and_set(&registered))
        real(before_fork, after_in_parent, after_in_child, &__dso_handle);
}
