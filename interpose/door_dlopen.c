/* The door of libraries that are opened with RTLD_DEEPBIND: their references would bind to the
 * libraries that they bring along before anything preloaded is asked, and nothing that they do
 * would be seen. The bit is taken out; all else of dlopen is the loader's. That changes what such a
 * library binds to, so it is said, and GPUSPY_DEEPBIND=keep leaves it.
 *
 * dlopen itself is in door_dlopen_entry.S: it asks gs_dlopen_filter for the mode and jumps (not
 * calls) to the real function, which looks in the RUNPATH of the true caller. On a machine that it
 * has no assembly for, dlopen is not ours. dlmopen is left alone everywhere: what is in another
 * namespace has its own libraries, which no preload reaches. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "interpose/config.h"
#include "interpose/reroute.h"
#include "interpose/resolve.h"
#include "interpose/say.h"
#include "interpose/session.h"

int gs_dlopen_filter(const char *file, int mode);

__attribute__((no_sanitize("address"), no_sanitize("undefined"), no_sanitize("thread"))) int
gs_dlopen_filter(const char *file, int mode)
{
    static _Atomic bool printed;
    if (!gs_dlopen_at) gs_real_find();
    if (gs_attached) {
        gs_reroute_later(); /* whatever it binds to */
        return mode;
    }
    if (!(mode & RTLD_DEEPBIND) || !gs_session_is_enabled() || gs_config()->keep_deepbind) return mode;
    if (!gs_config()->quiet && !atomic_exchange(&printed, true)) {
        const int saved = errno;
        gs_print_line(
            "opening %s without RTLD_DEEPBIND, which would hide its CUDA calls (GPUSPY_DEEPBIND=keep leaves it)",
            file ? file : "the program");
        errno = saved;
    }
    return mode & ~RTLD_DEEPBIND;
}
