/* A process's recording: from its first hooked call until exit, fork, or a failure. */
#ifndef GPUSPY_SESSION_H
#define GPUSPY_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "schema/spool.h"

/* Number of the session that records now, 0 if none does. Grows with every fork, so that a thread
 * sees that what it holds belongs to its parent. It lies in a page that the kernel zeroes in a child,
 * also in one that no fork handler knows of (a bare clone, _Fork). */
#define gs_session_live (gs_session_page.live)
extern union gs_session_page {
    struct {
        _Atomic uint32_t live;
        _Atomic bool here; /* this process is the one that looked last whether it is recorded */
    };
    char page[4096];
} gs_session_page;
extern uint64_t gs_session_start_ns; /* CLOCK_MONOTONIC at time 0 */

/* Whether the user wants this process recorded at all. */
bool gs_session_wanted(void);
bool gs_session_torch_cpu(void);

/* Whether nothing is recorded any more. Where something was until a failure, the call is counted. */
bool gs_session_over(void);
/* Something other than a call came: counted where something was recorded until a failure. */
void gs_session_missed(void);
/* Starts the session if none was tried yet. True while one records. Only under a gs_shield: a signal
 * handler that calls CUDA must not meet the lock held by what it interrupted. */
bool gs_session_begin(void);
struct gs_spool *gs_session_spool(void);
/* Nobody caught this exception: see gs_spool_exception. Nothing is kept where nothing is recorded. */
void gs_session_exception(const char *exception, const char *place, bool collector_off);
/* Arranges that gs_thread_end is called for this thread. */
void gs_session_watch_thread(void *thread);
void gs_thread_end(void *thread); /* recorder.c */
void gs_thread_forked(void);      /* recorder.c: the only thread that a forked child has */

/* For fork.c. While it is locked, no session is being started; under a gs_shield. False: not within so many ms. */
bool gs_session_lock(int ms);
void gs_session_unlock(void);
/* In the child: nothing is recorded yet. */
void gs_session_forked(void);
/* In a child that was forked while SQLite was at work: nothing will be. */
void gs_session_forked_at_work(void);

/* The process ends: finishes the database and says what was recorded. Once; in the thread that ends it. */
void gs_session_end(void);

/* Writes to stderr what a thread without the program's descriptors had to say. */
void gs_write_line(const char *line, size_t len);
/* One line on stderr, unless the program has put something else in stderr's place. */
void gs_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
