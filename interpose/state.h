/* What every file may read of the session: whether it records, where, and since when. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "schema/spool.h"

/* The largest page of a kernel for this processor: for aarch64, kernels have pages of 4, 16 or 64 KiB. */
#ifdef __aarch64__
#define GS_LARGEST_PAGE 65536
#else
#define GS_LARGEST_PAGE 4096
#endif

/* The number of the session that records now, 0 if none does. Grows with every fork, so that a thread detects that what
 * it holds belongs to its parent. It is in a page that the kernel zeroes in a child, also in one that no fork handler
 * knows of (a bare clone, _Fork). */
#define gs_session_live (gs_session_page.live)
extern union gs_session_page {
    struct {
        _Atomic uint32_t live;
        _Atomic bool here; /* this process was the last to check whether it is recorded */
    };
    char page[GS_LARGEST_PAGE]; /* the kernel zeroes whole pages: nothing else is in them */
} gs_session_page;
extern uint64_t gs_session_start_ns; /* CLOCK_MONOTONIC at time 0 */

enum { GS_SESSION_NOT_YET, GS_SESSION_LIVE, GS_SESSION_OVER };
extern _Atomic int gs_session_state;
struct gs_spool *gs_session_spool(void);
/* The next session gets its own: threads may still hold what is in this one. False: out of memory. */
bool gs_session_new_spool(void);

/* The library was loaded into a running process, not preloaded: nothing binds to its names. */
extern _Atomic bool gs_attached;
/* … and must not record: before gpuspy_attach, and after gpuspy_detach. */
extern _Atomic bool gs_dormant;
