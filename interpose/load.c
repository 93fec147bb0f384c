/* Loading and unloading of the library. */
#include <errno.h>
#include <pthread.h>
#include "interpose/clock.h"
#include "interpose/attach.h"
#include "interpose/config.h"
#include "interpose/door_nvtx.h"
#include "interpose/fork.h"
#include "interpose/host.h"
#include "interpose/inherit.h"
#include "interpose/on_oom.h"
#include "interpose/python_failure.h"
#include "interpose/resolve.h"
#include "interpose/session.h"
#include "interpose/shield.h"
#include "interpose/stack_elf.h"
#include "interpose/stack_module.h"
#include "interpose/watcher.h"
#include "interpose/weak.h"

#define START_MS 5000 /* longer than any start takes */

static void __attribute__((constructor)) load_recorder(int count, char **arguments)
{
    int saved = errno;
    (void)count;
    gs_stderr_load();
    gs_clock_check();
    if (gs_attach_load()) return;
    gs_elf_load();
    gs_config();
    /* Before any thread exists: a thread that forks while another starts the session must wait for it. */
    if (gs_session_is_enabled()) {
        gs_inherit(gs_config());
        gs_on_oom_load();
        gs_session_load();
        gs_fork_load();
        gs_resolve_load(false);
        gs_weak_load();
        gs_shield_load();
        gs_host_load();
        gs_modules_load();
        gs_python_failure_load(arguments);
    }
    gs_nvtx_announce();
    errno = saved;
}

static void __attribute__((destructor)) unload_recorder(void)
{
    int saved = errno, cancel;
    gs_resolve_end();
    if (gs_session_unprepared()) return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    /* another thread may be starting the session: wait until it has */
    if (gs_session_lock(START_MS)) gs_session_unlock();
    gs_session_end();
    pthread_setcancelstate(cancel, NULL);
    errno = saved;
}
