/* cuGetProcAddress and its kin. CUDA's own answer comes first, for the caller's own version and flags:
 * which of cuMemAlloc, cuMemAlloc_v2, cuMemcpyAsync_ptsz … it is depends on both. Then it is replaced
 * by the wrapper of the export that has this very address. No name is ever guessed: an answer that
 * is no export we know goes out as it is, and its name is kept for the report.
 *
 * The answer for "cuGetProcAddress" is replaced like any other: runtimes use that one for all that
 * follow. */
#include "interpose/door_procaddress.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "interpose/recorder.h"
#include "interpose/resolve.h"
#include "interpose/session.h"
#include "interpose/shield.h"

/* --- names handed out without a wrapper ------------------------------------------------------- */

#define UNSEEN 64
#define NAME_MAX_BYTES 60

static struct {
    char name[NAME_MAX_BYTES];
    _Atomic bool ready;       /* the name is there … */
    _Atomic uint32_t session; /* … and was written to this session's spool */
} unseen[UNSEEN];
static _Atomic uint32_t unseen_count;

static void write_name(struct gs_writer *w, uint32_t number)
{
    const uint16_t len = (uint16_t)strlen(unseen[number].name);
    const uint16_t bytes = (uint16_t)((sizeof(struct gs_rec_name) + len + 7) & ~7u);
    struct gs_rec_name *r = gs_writer_reserve(w, bytes);
    if (!r) return;
    memset(r, 0, bytes);
    r->rec = (struct gs_rec){.size = bytes, .type = GS_REC_API, .time_ns = gs_now()};
    r->number = GS_API_UNSEEN + number;
    r->name_len = len;
    memcpy(r + 1, unseen[number].name, len);
    gs_writer_commit(w, bytes);
}

void gs_unseen_write(void)
{
    const uint32_t live = atomic_load(&gs_session_live);
    if (!live || !atomic_load(&unseen_count)) return;
    struct gs_writer w = {0};
    struct gs_shield shield;
    gs_shield_begin(&shield);
    gs_writer_open(&w, gs_session_spool());
    for (uint32_t i = 0; i < UNSEEN; i++)
        if (atomic_load(&unseen[i].ready) && atomic_exchange(&unseen[i].session, live) != live) write_name(&w, i);
    gs_writer_close(&w);
    gs_shield_end(&shield);
}

/* Two threads at once may both keep a name; the reader takes it for one. */
static void keep_unseen(const char *name)
{
    for (uint32_t i = 0; i < UNSEEN; i++)
        if (atomic_load(&unseen[i].ready) && strcmp(unseen[i].name, name) == 0) return;
    const uint32_t number = atomic_fetch_add(&unseen_count, 1);
    if (number >= UNSEEN) {
        atomic_store(&unseen_count, UNSEEN);
        return;
    }
    snprintf(unseen[number].name, sizeof unseen[number].name, "%s", name);
    atomic_store(&unseen[number].ready, true);
    gs_unseen_write();
}

/* --- answers --------------------------------------------------------------------------------- */

/* The forms that one base name has among the exports. */
static const char *const versions[] = {"", "_v2", "_v3", "_v4", "_v5"};
static const char *const streams[] = {"", "_ptds", "_ptsz"};
/* The one base name whose export has another, since CUDA 12. */
static const char *const renamed[][2] = {{"cuGraphInstantiate", "cuGraphInstantiateWithFlags"}};

static void *wrapper_among(const char *base, void *found, bool *known)
{
    char name[96];
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
        for (size_t s = 0; s < sizeof streams / sizeof *streams; s++) {
            const int len = snprintf(name, sizeof name, "%s%s%s", base, versions[v], streams[s]);
            if (len < 0 || (size_t)len >= sizeof name) return NULL;
            const uint16_t api = gs_api_find(name, GS_VERSION_DRIVER);
            if (api == GS_API_NONE || gs_apis[api].library != GS_LIBRARY_DRV) continue;
            *known = true;
            void *const wrapper = gs_wrappers[api][GS_VERSION_DRIVER];
            if (found == wrapper || found == gs_real(api, GS_VERSION_DRIVER)) return wrapper;
        }
    }
    return NULL;
}

/* The wrapper for `found`, which is `found` itself if it is one already; NULL if there is none. */
static void *wrapper_of(const char *base, void *found, bool *known)
{
    void *wrapper = wrapper_among(base, found, known);
    for (size_t i = 0; !wrapper && i < sizeof renamed / sizeof *renamed; i++)
        if (strcmp(base, renamed[i][0]) == 0) wrapper = wrapper_among(renamed[i][1], found, known);
    return wrapper;
}

void gs_hand_out(const char *asked, void **pointer)
{
    if (!asked || !pointer || !*pointer || !gs_session_wanted()) return;
    const int saved = errno;
    bool known = false;
    void *const wrapper = wrapper_of(asked, *pointer, &known);
    if (wrapper)
        *pointer = wrapper;
    else if (known)
        keep_unseen(asked);
    errno = saved;
}
