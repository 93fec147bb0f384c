/* A process's recording: from its first hooked call until exit, fork, or a failure. */
#ifndef GPUSPY_SESSION_H
#define GPUSPY_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "interpose/state.h"
#include "schema/spool.h"

/* Whether the user wants this process recorded at all. */
bool gs_session_is_enabled(void);
bool gs_session_torch_cpu(void);

/* Whether nothing is recorded any more. Counts a lost event where something was recorded until a failure, and for a
 * call about memory that the ending thread makes after the end. Other calls come then from CUDA's own destructors
 * (libcudart unloads its modules) and change nothing that the recording says. */
bool gs_session_over(bool memory);
/* Something other than a call came: counted where something was recorded until a failure. */
void gs_session_missed(void);
/* Starts the session if none was tried yet. True while one records. Only under a gs_shield: a signal
 * handler that calls CUDA must not meet the lock held by what it interrupted. */
bool gs_session_begin(void);
/* Nobody caught this exception: see gs_spool_exception. Nothing is kept where nothing is recorded. */
void gs_session_exception(const char *exception, const char *place, bool collector_off);
/* Arranges that gs_thread_end is called for this thread. */
void gs_session_watch_thread(void *thread);
void gs_thread_end(void *thread); /* thread.c */
void gs_thread_forked(void);      /* thread.c: the only thread that a forked child has */

/* For fork.c. While it is locked, no session is being started; under a gs_shield. False: not within so many ms. */
bool gs_session_lock(int ms);
void gs_session_unlock(void);
/* In the child: nothing is recorded yet. */
void gs_session_forked(void);
/* In a child that was forked before a thread of ours came to rest: nothing will be. `what` that thread did, a constant.
 */
void gs_session_forked_at_work(const char *what);

/* Begins to record a process that runs already; after gs_session_detach, once more. In a thread of our own, as detach.
 */
bool gs_session_attach(const char *after_s);
/* Ends the recording in order while the process goes on. False: the database could not be finished. */
bool gs_session_detach(void);

/* The library is loaded. */
void gs_session_load(void);
/* Whether nobody prepared this child for being one (a bare clone, _Fork). */
bool gs_session_unprepared(void);
/* The process ends: finishes the database and says what was recorded. Once; in the thread that ends it. */
void gs_session_end(void);

#endif
