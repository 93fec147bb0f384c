/* cuGetProcAddress and similar functions. First CUDA itself answers, for the caller's own version and flags, on
 * which depends whether the result is cuMemAlloc, cuMemAlloc_v2, cuMemcpyAsync_ptsz or another export. Then the
 * wrapper of the export that has this very address replaces the result. No name is ever guessed: an address that
 * belongs to no known export is returned as it is, and its name is kept for the report.
 *
 * The answer for "cuGetProcAddress" is replaced like any other: runtimes use it for all later look-ups. */
#include "interpose/door_procaddress.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include "interpose/unseen.h"
#include "interpose/resolve.h"
#include "interpose/session.h"

/* --- answers --------------------------------------------------------------------------------- */

/* The suffixes that a base name has among the exports. */
static const char *const versions[] = {"", "_v2", "_v3", "_v4", "_v5"};
static const char *const streams[] = {"", "_ptds", "_ptsz"};
/* The one base name whose export has a different name, since CUDA 12. */
static const char *const renamed[][2] = {{"cuGraphInstantiate", "cuGraphInstantiateWithFlags"}};

static void *wrapper_among(gs_wrapper_table wrappers, const char *base, void *found, bool *known)
{
    char name[96];
    const size_t length = strlen(base);
    if (length + sizeof "_v5_ptsz" > sizeof name) return NULL;
    memcpy(name, base, length);
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
        for (size_t s = 0; s < sizeof streams / sizeof *streams; s++) {
            strcpy(stpcpy(name + length, versions[v]), streams[s]);
            const uint16_t api = gs_api_find(name, GS_VERSION_DRIVER);
            if (api == GS_API_NONE || gs_apis[api].library != GS_LIBRARY_DRV) continue;
            *known = true;
            void *const wrapper = wrappers[api][GS_VERSION_DRIVER];
            if (found == wrapper || found == gs_real(api, GS_VERSION_DRIVER)) return wrapper;
        }
    }
    return NULL;
}

/* The wrapper for `found`, which is `found` itself if it is a wrapper already; NULL if there is none. */
static void *wrapper_of(gs_wrapper_table wrappers, const char *base, void *found, bool *known)
{
    void *wrapper = wrapper_among(wrappers, base, found, known);
    for (size_t i = 0; !wrapper && i < sizeof renamed / sizeof *renamed; i++)
        if (strcmp(base, renamed[i][0]) == 0) wrapper = wrapper_among(wrappers, renamed[i][1], found, known);
    return wrapper;
}

void gs_hand_out(gs_wrapper_table wrappers, const char *asked, void **pointer)
{
    if (!asked || !pointer || !*pointer || !gs_session_is_enabled()) return;
    const int saved = errno;
    bool known = false;
    void *const wrapper = wrapper_of(wrappers, asked, *pointer, &known);
    if (wrapper)
        *pointer = wrapper;
    else if (known)
        gs_unseen_keep(asked);
    errno = saved;
}
