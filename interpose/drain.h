/* The thread that turns the spool into rows while the program runs. */
#pragma once

#include <stdbool.h>
#include "schema/spool.h"
#include "schema/store.h"

/* Takes over the store. Returns 0 or an errno; on failure the store stays the caller's. */
int gs_drain_start(struct gs_spool *spool, struct gs_store *store);

/* The clean end, after gs_spool_end: everything is read, the database is finished and closed. False: something failed
 * (gs_deactivate has reported what) or the thread is stuck; the spool must stay. */
bool gs_drain_stop(struct gs_summary *summary);

/* After that: the spool is of no use, because its database is gone. */
bool gs_drain_vanished(void);

/* Around fork: between the two, SQLite is idle. Forks of several threads share the pause. False: the drain does not
 * pause within this many ms. The child forgets the thread and the store, which belong to its parent. */
bool gs_drain_rest(int ms);
void gs_drain_go_on(void);
void gs_drain_forget(bool at_rest);
