/* The door of those who ask for a function by name: ctypes, PyTorch's driver API, NCCL's loader.
 *
 * dlsym and dlvsym themselves are in door_dlsym_entry.S: they call gs_dlsym_filter and, without an
 * answer from it, jump (not call) to the real function, so that RTLD_NEXT and RTLD_DEFAULT see the
 * true caller. Forwarded as an ordinary call, OpenMP's and the sanitizers' look-ups of the next
 * definition find themselves. */
#include "interpose/resolve.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include "interpose/session.h"

struct gs_dl_answer {
    void *result; /* what the caller gets; NULL: the real function answers … */
    void *handle; /* … for this handle */
};
struct gs_dl_answer gs_dlsym_filter(void *handle, const char *name, const char *version);

/* A handle in which no CUDA name is found, so that the real dlsym fails and says so in its own
 * words. */
static void *barren_handle(void)
{
    return dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
}

/* The caller's look-up led to our own wrapper, by the global scope. Without us it would have found
 * CUDA only where CUDA is loaded. */
static struct gs_dl_answer answer_own(uint16_t api, void *handle)
{
    if (gs_real(api)) return (struct gs_dl_answer){gs_wrappers[api], handle};
    void *barren = barren_handle();
    return (struct gs_dl_answer){NULL, barren ? barren : handle};
}

/* It led to a function in the library that the caller named. The wrapper may stand for it only if
 * it calls this very function; a second runtime's function is handed out as it is. */
static struct gs_dl_answer answer_found(uint16_t api, void *found, void *handle)
{
    void *expected = NULL;
    if (atomic_compare_exchange_strong(&gs_reals[api], &expected, found) || expected == found)
        return (struct gs_dl_answer){gs_wrappers[api], handle};
    return (struct gs_dl_answer){found, handle};
}

static struct gs_dl_answer answer_cuda(uint16_t api, void *handle, const char *version)
{
    const char *name = gs_apis[api].name;
    void *found =
        version ? gs_real_dlvsym(handle, name, version) : gs_real_dlsym(handle, name);
    if (!found) return (struct gs_dl_answer){NULL, handle};
    if (found == gs_wrappers[api]) return answer_own(api, handle);
    /* By the global scope something came before us: the program's own definition, or its PLT entry
     * for our wrapper. That is its answer, but it is not known to be the real function. */
    if (handle == RTLD_DEFAULT || handle == (void *)_r_debug.r_map)
        return (struct gs_dl_answer){found, handle};
    return answer_found(api, found, handle);
}

__attribute__((no_sanitize("address"), no_sanitize("undefined"), no_sanitize("thread"))) struct gs_dl_answer
gs_dlsym_filter(void *handle, const char *name, const char *version)
{
    if (!gs_dlsym_at || !gs_dlvsym_at) gs_real_find();
    /* RTLD_NEXT is asked by other interposers, who want what is behind them */
    if (handle == RTLD_NEXT || !name) return (struct gs_dl_answer){NULL, handle};
    /* nearly every look-up ends here, those of a sanitizer that is just starting up among them */
    if (name[0] != 'c' || name[1] != 'u') return (struct gs_dl_answer){NULL, handle};
    const uint16_t api = gs_api_find(name);
    if (api == GS_API_NONE || !gs_session_wanted()) return (struct gs_dl_answer){NULL, handle};
    return answer_cuda(api, handle, version);
}

#if !defined(__x86_64__) && !defined(__aarch64__)
/* No assembly for this machine: the caller that the real function sees is gpuspy. RTLD_NEXT is then
 * answered for the object behind gpuspy, right for everybody but another interposer. */
__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    struct gs_dl_answer a = gs_dlsym_filter(handle, name, NULL);
    return a.result ? a.result : gs_real_dlsym(a.handle, name);
}

__attribute__((visibility("default"))) void *dlvsym(void *handle, const char *name,
                                                    const char *version)
{
    struct gs_dl_answer a = gs_dlsym_filter(handle, name, version);
    return a.result ? a.result : gs_real_dlvsym(a.handle, name, version);
}
#endif
