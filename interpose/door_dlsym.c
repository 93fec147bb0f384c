/* The door of callers that look a function up by name: ctypes, PyTorch's driver API, NCCL's loader.
 *
 * dlsym and dlvsym themselves are in door_dlsym_entry.S: they call gs_dlsym_filter and, if it returns no answer, jump
 * (not call) to the real function, so that RTLD_NEXT and RTLD_DEFAULT see the true caller. With an ordinary call,
 * look-ups of the next definition by OpenMP and the sanitizers would find themselves. */
#include "interpose/resolve.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include "interpose/reroute.h"
#include "interpose/session.h"

struct gs_dl_answer {
    void *result; /* what the caller gets; NULL: the real function answers … */
    void *handle; /* … for this handle */
};
struct gs_dl_answer gs_dlsym_filter(void *handle, const char *name, const char *version);

/* A handle in which no CUDA name is found, so that the real dlsym fails with its own error message. */
static void *barren_handle(void)
{
    return dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
}

/* The row and version of one of gpuspy's wrappers. */
struct row {
    uint16_t api; /* GS_API_NONE: not a wrapper */
    enum gs_version version;
};

static struct row row_of_wrapper(const char *name, const void *wrapper)
{
    for (int v = 0; v < GS_VERSIONS; v++) {
        const uint16_t api = gs_api_find(name, (enum gs_version)v);
        if (gs_wrappers[api][v] && gs_wrappers[api][v] == wrapper) return (struct row){api, (enum gs_version)v};
    }
    return (struct row){GS_API_NONE, GS_VERSION_NONE};
}

static struct gs_dl_answer answer_real(void *handle)
{
    return (struct gs_dl_answer){NULL, handle};
}

/* The caller's look-up found gpuspy's own wrapper in the global scope. Without gpuspy it would have found CUDA only if
 * CUDA is loaded, and without a version the runtime that comes first. */
static struct gs_dl_answer answer_own(struct row own, bool versioned, void *handle)
{
    void *const real = gs_real(own.api, own.version);
    if (!real) {
        void *barren = barren_handle();
        return answer_real(barren ? barren : handle);
    }
    if (!versioned && gs_apis[own.api].library == GS_LIBRARY_RT) {
        const char *const name = gs_apis[own.api].name;
        void *const first = gs_resolve_name(GS_LIBRARY_RT, name);
        const enum gs_version version = gs_runtime_version_at(first);
        if (version != GS_VERSION_NONE && version != own.version) {
            const uint16_t api = gs_api_find(name, version);
            return (struct gs_dl_answer){api ? gs_wrappers[api][version] : first, handle};
        }
    }
    return (struct gs_dl_answer){gs_wrappers[own.api][own.version], handle};
}

/* The look-up found a function in a library. A wrapper may replace it only if the wrapper calls this very function. Any
 * other function (a second copy of a runtime, a library's own static one) is returned as it is, and its calls are
 * recorded when they reach the driver. */
static struct gs_dl_answer answer_found(const char *name, void *found, void *handle)
{
    const enum gs_version version = gs_runtime_version_at(found);
    for (int v = 0; v < GS_VERSIONS; v++) {
        if (version != GS_VERSION_NONE && version != (enum gs_version)v) continue;
        const uint16_t api = gs_api_find(name, (enum gs_version)v);
        if (api && gs_wrappers[api][v] && gs_real(api, (enum gs_version)v) == found)
            return (struct gs_dl_answer){gs_wrappers[api][v], handle};
    }
    return (struct gs_dl_answer){found, handle};
}

static struct gs_dl_answer answer_cuda(const char *name, void *handle, const char *version)
{
    void *found = version ? gs_real_dlvsym(handle, name, version) : gs_real_dlsym(handle, name);
    if (!found) return answer_real(handle);
    const struct row own = row_of_wrapper(name, found);
    if (own.api) return answer_own(own, version != NULL, handle);
    /* By the global scope something came before us: the program's own definition, or its PLT entry
     * for our wrapper. That is its answer, but it is not known to be the real function. */
    const bool global = handle == RTLD_DEFAULT || handle == (void *)_r_debug.r_map;
    if (global && !gs_attached) return (struct gs_dl_answer){found, handle};
    return answer_found(name, found, handle);
}

__attribute__((no_sanitize("address"), no_sanitize("undefined"), no_sanitize("thread"))) struct gs_dl_answer
gs_dlsym_filter(void *handle, const char *name, const char *version)
{
    if (!gs_dlsym_at || !gs_dlvsym_at) gs_real_find();
    if (gs_attached && !gs_dormant) gs_reroute_due();
    /* other interposers use RTLD_NEXT to find the definition after their own */
    if (handle == RTLD_NEXT || !name) return (struct gs_dl_answer){NULL, handle};
    /* nearly every look-up ends here, including those of a sanitizer that is just starting up */
    if (name[0] != 'c' || name[1] != 'u') return (struct gs_dl_answer){NULL, handle};
    if (!gs_api_known(name) || !gs_session_is_enabled()) return (struct gs_dl_answer){NULL, handle};
    return answer_cuda(name, handle, version);
}

#if !defined(__x86_64__) && !defined(__aarch64__)
/* No assembly for this machine: the real function sees gpuspy as its caller. RTLD_NEXT is then resolved for the object
 * after gpuspy, which is correct for every caller except another interposer. */
__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    struct gs_dl_answer a = gs_dlsym_filter(handle, name, NULL);
    return a.result ? a.result : gs_real_dlsym(a.handle, name);
}

__attribute__((visibility("default"))) void *dlvsym(void *handle, const char *name, const char *version)
{
    struct gs_dl_answer a = gs_dlsym_filter(handle, name, version);
    return a.result ? a.result : gs_real_dlvsym(a.handle, name, version);
}
#endif
