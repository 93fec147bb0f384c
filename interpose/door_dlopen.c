/* The door of libraries that are opened with RTLD_DEEPBIND: their references would bind to the libraries that they
 * bring along before any preloaded one, and gpuspy would record nothing of what they do. gpuspy removes the bit and
 * leaves everything else to the loader. That changes what such a library binds to, so gpuspy prints a line;
 * GPUSPY_DEEPBIND=keep leaves the bit. It also stays on the C library, of which wrappers try several versions. It goes
 * even if the library is loaded already, where it has no effect: another thread may unload that library first.
 *
 * dlopen itself is in door_dlopen_entry.S: it calls gs_dlopen_filter for the mode and jumps (not calls) to the real
 * function, which searches the RUNPATH of the true caller. On machines without this assembly gpuspy does not define
 * dlopen. It never defines dlmopen: another namespace has its own libraries, which no preload reaches. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "interpose/config.h"
#include "interpose/reroute.h"
#include "interpose/resolve.h"
#include "interpose/message.h"
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
    if (mode & RTLD_NOLOAD || !file || gs_is_libc(file)) return mode;
    if (!gs_config()->quiet && !atomic_exchange(&printed, true)) {
        const int saved = errno;
        gs_print_line("opening %s without RTLD_DEEPBIND, because the flag can hide its CUDA calls "
                      "(GPUSPY_DEEPBIND=keep leaves it)",
                      file);
        errno = saved;
    }
    return mode & ~RTLD_DEEPBIND;
}
