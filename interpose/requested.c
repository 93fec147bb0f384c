/* c10::CachingDeviceAllocator::DeviceStats of a device: its address, and what it has counted since the previous
 * report.
 *
 * It is found through the pointers on the stack of a report: one of them points to the allocator's own object, which
 * holds a lock in it. The kernel copies what such a pointer refers to, so that a stale one does no harm. The
 * statistics are recognised by the totals of the report, by sums that must agree, and by counting along with three
 * reports. From then on they are read directly: PyTorch's allocator, which makes the report, keeps them in itself
 * and is never destroyed before its last report. If the totals differ from a report's, reading stops. */
#include "interpose/requested.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include "interpose/allocator.h"
#include "interpose/peek.h"
#include "schema/event.h"

enum { DEVICES = 64, SEARCHES = 16, CONFIRMATIONS = 3 };
enum { OBJECT_BYTES = 2048 }; /* the first bytes of an object, which contain its statistics */

struct stat {
    int64_t current, peak, allocated, freed; /* allocated: since the start, or since the last reset */
};
enum { ALL, SMALL, LARGE, STAT_TYPES };
struct stats {
    struct stat allocation[STAT_TYPES], segment[STAT_TYPES], active[STAT_TYPES], inactive_split[STAT_TYPES];
    struct stat allocated_bytes[STAT_TYPES], reserved_bytes[STAT_TYPES];
};
/* In newer versions a hash map is between the two. */
struct more_stats {
    struct stat active_bytes[STAT_TYPES], inactive_split_bytes[STAT_TYPES], requested_bytes[STAT_TYPES];
};
enum { GAP_MAX = 128 };

/* Reports of a device come one at a time, under its lock; atomics are only for modules that violate this. */
static struct counted {
    _Atomic uintptr_t stats, more; /* 0: not found */
    _Atomic uint32_t searches, confirmed;
    _Atomic int64_t count, bytes; /* at the previous report: allocations, and requested bytes in all */
    _Atomic bool any;             /* there was one */
} devices[DEVICES];

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

/* --- what the statistics are known by ----------------------------------------------------------- */

static bool does_stat_add_up(const struct stat *s)
{
    return s[ALL].current == s[SMALL].current + s[LARGE].current &&
           s[ALL].allocated == s[SMALL].allocated + s[LARGE].allocated && s[ALL].current >= 0 &&
           s[ALL].peak >= s[ALL].current;
}

static bool is_stats(const struct stats *s, int64_t bytes, int64_t allocated, int64_t reserved)
{
    return s->allocated_bytes[ALL].current == allocated && s->reserved_bytes[ALL].current == reserved &&
           does_stat_add_up(s->allocation) && does_stat_add_up(s->segment) && does_stat_add_up(s->active) &&
           does_stat_add_up(s->allocated_bytes) && does_stat_add_up(s->reserved_bytes) &&
           s->allocation[ALL].allocated > 0 && s->allocation[ALL].allocated == s->active[ALL].allocated &&
           s->allocation[ALL].current <= s->active[ALL].current && s->allocated_bytes[ALL].allocated >= bytes;
}

static bool is_more(const struct stats *s, const struct more_stats *m)
{
    for (int i = 0; i < STAT_TYPES; i++)
        if (m->active_bytes[i].allocated != s->allocated_bytes[i].allocated ||
            m->active_bytes[i].current < s->allocated_bytes[i].current ||
            m->requested_bytes[i].current > m->active_bytes[i].current ||
            m->requested_bytes[i].allocated > s->allocated_bytes[i].allocated)
            return false;
    return does_stat_add_up(m->active_bytes) && does_stat_add_up(m->requested_bytes) &&
           m->requested_bytes[ALL].allocated > 0;
}

/* --- finding them -------------------------------------------------------------------------------- */

struct search {
    struct counted *c;
    int64_t bytes, allocated, reserved;
};

static bool find_statistics_in(void *self, uintptr_t object)
{
    const struct search *search = self;
    struct counted *c = search->c;
    char copy[OBJECT_BYTES];
    const size_t n = gs_peek(object, copy, sizeof copy) & ~(size_t)7;
    for (size_t at = 0; at + sizeof(struct stats) + sizeof(struct more_stats) <= n; at += 8) {
        const struct stats *s = (const void *)(copy + at);
        if (!is_stats(s, search->bytes, search->allocated, search->reserved)) continue;
        for (size_t more = at + sizeof *s; more <= at + sizeof *s + GAP_MAX; more += 8) {
            if (more + sizeof(struct more_stats) > n || !is_more(s, (const void *)(copy + more))) continue;
            SET(c->stats, object + at);
            SET(c->more, object + more);
            return true;
        }
    }
    return false;
}

/* Searches for the statistics, or checks whether what was found counts along. */
static __attribute__((noinline, cold)) bool learn_counters(struct counted *c, int64_t bytes, int64_t allocated,
                                                           int64_t reserved, int64_t now[2])
{
    const int saved = errno;
    struct stats s;
    struct more_stats m;
    if (!GET(c->stats) && GET(c->searches) < SEARCHES) {
        SET(c->searches, GET(c->searches) + 1);
        SET(c->confirmed, 0);
        (void)gs_peek_stack(find_statistics_in, &(struct search){c, bytes, allocated, reserved}, NULL);
    }
    const uintptr_t at = GET(c->stats);
    const bool right = at && gs_peek(at, &s, sizeof s) == sizeof s && gs_peek(GET(c->more), &m, sizeof m) == sizeof m &&
                       is_stats(&s, bytes, allocated, reserved) && is_more(&s, &m);
    if (right) {
        now[0] = s.allocation[ALL].allocated;
        now[1] = m.requested_bytes[ALL].allocated;
        SET(c->confirmed, GET(c->confirmed) + 1);
    } else {
        SET(c->stats, 0);
    }
    errno = saved;
    return right;
}

/* --- reading them --------------------------------------------------------------------------------- */

static __attribute__((no_sanitize("address", "thread"))) int64_t load_counter_word(uintptr_t at)
{
    typedef int64_t __attribute__((may_alias)) any;
    return *(const any *)at;
}

static bool read_now(struct counted *c, int64_t bytes, int64_t allocated, int64_t reserved, int64_t now[2])
{
    const uintptr_t at = GET(c->stats);
    if (__builtin_expect(!at || GET(c->confirmed) <= CONFIRMATIONS, 0))
        return learn_counters(c, bytes, allocated, reserved, now);
    if (load_counter_word(at + offsetof(struct stats, allocated_bytes[ALL].current)) != allocated ||
        load_counter_word(at + offsetof(struct stats, reserved_bytes[ALL].current)) != reserved) {
        SET(c->stats, 0);
        return false;
    }
    now[0] = load_counter_word(at + offsetof(struct stats, allocation[ALL].allocated));
    now[1] = load_counter_word(GET(c->more) + offsetof(struct more_stats, requested_bytes[ALL].allocated));
    return true;
}

uint32_t gs_requested_extra(const void *caller, int device, int64_t bytes, int64_t allocated, int64_t reserved)
{
    if (device < 0 || device >= DEVICES || !gs_allocator_calls(caller)) return GS_EXTRA_UNKNOWN;
    struct counted *c = &devices[device];
    const bool first = !GET(c->any) && !GET(c->searches);
    int64_t now[2], requested = 0;
    if (!read_now(c, bytes, allocated, reserved, now)) {
        SET(c->any, false);
        return GS_EXTRA_UNKNOWN;
    }
    /* The program may reset the statistics (torch.cuda.reset_accumulated_memory_stats). */
    if (GET(c->any) && now[0] == GET(c->count) + 1)
        requested = now[1] - GET(c->bytes);
    else if (now[0] == 1 && (first || GET(c->any)))
        requested = now[1];
    else
        SET(c->confirmed, 1); /* reports are missing, or this is a copy that nothing updates */
    SET(c->count, now[0]);
    SET(c->bytes, now[1]);
    SET(c->any, true);
    if (requested <= 0 || requested > bytes || bytes - requested >= GS_EXTRA_UNKNOWN) return GS_EXTRA_UNKNOWN;
    return (uint32_t)(bytes - requested);
}

uintptr_t gs_requested_end(int device)
{
    const bool known = device >= 0 && device < DEVICES && GET(devices[device].stats);
    return known ? GET(devices[device].more) + sizeof(struct more_stats) : 0;
}

bool gs_requested_is_proven(int device)
{
    return GET(devices[device].confirmed) > CONFIRMATIONS;
}
