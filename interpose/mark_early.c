/* Ranges that the program opened before its first CUDA call: they are kept here and become the beginning of the
 * recording. No lock and no memory of its own: NVTX is called in signal handlers, and by programs that never call CUDA.
 * Ranges for which there is no room are not recorded. */
#include <stdatomic.h>
#include "interpose/mark.h"
#include "interpose/state.h"

enum { ROOM = 64, NAME = 192 }; /* longer names are cut */
enum state { FREE, CLAIMED, OPEN, WRITING };

static struct early {
    _Atomic uint32_t state;
    _Atomic uint32_t session; /* the session that has it; 0 none */
    _Atomic bool ended;       /* it ended while it was being written */
    _Atomic uint64_t key;     /* identifies the range: other entries may change during a search */
    struct gs_mark_early range;
    size_t name_bytes;
    char name[NAME];
} early[ROOM];
static _Atomic uint32_t used;  /* at least the number in use */
static _Atomic uint32_t reach; /* entries beyond it were never used */

static bool is_any(const struct early *e)
{
    return atomic_load_explicit(&used, memory_order_relaxed) &&
           e < early + atomic_load_explicit(&reach, memory_order_relaxed);
}

static bool take_early_slot(struct early *e, enum state from, enum state to)
{
    uint32_t expected = from;
    return atomic_compare_exchange_strong(&e->state, &expected, to);
}

static void give_back_early_slot(struct early *e)
{
    atomic_store(&e->state, FREE);
    atomic_fetch_sub(&used, 1);
}

static uint64_t early_mark_key(const struct gs_mark_early *r)
{
    return ((uintptr_t)r->owner + r->domain) * 0x9e3779b97f4a7c15u ^ r->level;
}

static bool is_of(struct early *e, const struct gs_mark_early *r)
{
    const struct gs_mark_early *its = &e->range;
    return atomic_load_explicit(&e->key, memory_order_relaxed) == early_mark_key(r) && its->owner == r->owner &&
           its->domain == r->domain && its->level == r->level;
}

bool gs_mark_early_add(const struct gs_mark_early *range, struct gs_mark_text name)
{
    struct early *e = early;
    if (atomic_load(&gs_session_live)) return false;
    atomic_fetch_add(&used, 1);
    while (e < early + ROOM && !take_early_slot(e, FREE, CLAIMED)) e++;
    if (e == early + ROOM) {
        atomic_fetch_sub(&used, 1);
        return true;
    }
    uint32_t n = atomic_load(&reach);
    while (n <= e - early && !atomic_compare_exchange_weak(&reach, &n, (uint32_t)(e - early) + 1)) continue;
    e->range = *range;
    atomic_store_explicit(&e->key, early_mark_key(range), memory_order_relaxed);
    atomic_store(&e->session, 0);
    atomic_store(&e->ended, false);
    name = gs_mark_cut(name, NAME);
    e->name_bytes = name.bytes;
    gs_mark_copy(e->name, name);
    atomic_store(&e->state, OPEN);
    /* the recording began meanwhile and may have missed this entry */
    if (!atomic_load(&gs_session_live) || !take_early_slot(e, OPEN, CLAIMED)) return true;
    const bool recorded = atomic_load(&e->session) != 0;
    if (recorded)
        atomic_store(&e->state, OPEN);
    else
        give_back_early_slot(e);
    return recorded;
}

bool gs_mark_early_end(const struct gs_mark_early *range, uint64_t *id)
{
    *id = 0;
    for (struct early *e = early; is_any(e); e++) {
        const uint32_t state = atomic_load(&e->state);
        if ((state != OPEN && state != WRITING) || !is_of(e, range)) continue;
        /* while its start is being written, its writer also writes its end */
        atomic_store(&e->ended, true);
        if (!take_early_slot(e, OPEN, CLAIMED)) return true;
        const uint32_t live =
            atomic_load(&gs_session_live); /* read only now: the start may have been written meanwhile */
        if (live && atomic_load(&e->session) == live) *id = e->range.id;
        give_back_early_slot(e);
        return true;
    }
    return false;
}

void gs_mark_early_write(struct gs_thread *t)
{
    const uint32_t live = atomic_load(&gs_session_live);
    for (struct early *e = early; is_any(e); e++) {
        if (atomic_load(&e->session) == live || !take_early_slot(e, OPEN, WRITING)) continue;
        atomic_store(&e->session, live);
        gs_record_mark_text(t, GS_MARK_START, e->range.id, e->range.domain_name,
                            (struct gs_mark_text){.at = e->name, .bytes = e->name_bytes});
        atomic_store(&e->state, OPEN);
        if (!atomic_load(&e->ended) || !take_early_slot(e, OPEN, CLAIMED)) continue;
        gs_record_mark_text(t, GS_MARK_END, e->range.id, gs_mark_text(NULL, 0), gs_mark_text(NULL, 0));
        give_back_early_slot(e);
    }
}
