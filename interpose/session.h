/* A process's recording: from its first hooked call until exit, fork, or a failure. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "interpose/state.h"
#include "schema/spool.h"

/* Does the user want this process recorded at all? */
bool gs_session_is_enabled(void);
bool gs_session_torch_cpu(void);

/* Has the recording ended? Counts a lost event if a failure ended it, and for a memory call that the ending thread
 * makes after the end. Other calls then come from CUDA's own destructors (libcudart unloads its modules) and change
 * nothing that the recording states. */
bool gs_session_over(bool memory);
/* An event that is not a call occurred: counted as lost if a failure ended the recording. */
void gs_session_missed(void);
/* Starts the session if none was tried yet. True while one records. Only under a gs_shield: a signal handler that calls
 * CUDA must not meet a lock that the interrupted code holds. */
bool gs_session_begin(void);
/* An uncaught exception: see gs_spool_exception. Ignored if nothing is recorded. */
void gs_session_exception(const char *exception, const char *place, bool collector_off);
/* Makes sure that gs_thread_end is called for this thread. */
void gs_session_watch_thread(void *thread);
void gs_thread_end(void *thread); /* thread.c */
void gs_thread_forked(void);      /* thread.c: the only thread that a forked child has */

/* For fork.c. While it is locked, no session is being started; under a gs_shield. False: not within this many ms. */
bool gs_session_lock(int ms);
void gs_session_unlock(void);
/* In the child: nothing is recorded yet. */
void gs_session_forked(void);
/* In a child that was forked before a thread of gpuspy's paused: nothing will be recorded. `what` that thread did, a
 * constant. */
void gs_session_forked_at_work(const char *what);

/* Starts recording a process that already runs; after gs_session_detach, again. Call in a thread of gpuspy's own, as
 * detach. */
bool gs_session_attach(const char *after_s);
/* Ends the recording cleanly while the process goes on; `why` is the fact "stopped". Ignored if nothing is recorded.
 * False: the database could not be finished. */
bool gs_session_stop(const char *why);
/* Does this process record? False in a child of vfork, which has its parent's memory. */
bool gs_session_records(void);

/* Called when the library is loaded. */
void gs_session_load(void);
/* Was this child created without fork handlers (a bare clone, _Fork)? */
bool gs_session_unprepared(void);
/* The process ends: finishes the database and prints what was recorded. Once; in the thread that ends the process. */
void gs_session_end(void);
