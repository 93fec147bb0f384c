/* The thread that turns the spool into rows while the program runs. */
#ifndef GPUSPY_DRAIN_H
#define GPUSPY_DRAIN_H

#include <stdbool.h>
#include "schema/spool.h"
#include "schema/store.h"

/* Takes the store over. 0 or an errno; the store is the caller's then. */
int gs_drain_start(struct gs_spool *spool, struct gs_store *store);

/* The orderly end, after gs_spool_end: everything is read, the database finished and closed. False:
 * something failed (gs_deactivate has said what) or the thread is stuck; the spool must stay. */
bool gs_drain_stop(struct gs_summary *summary);

/* After that: nobody can make anything of the spool, for its database is gone. */
bool gs_drain_vanished(void);

/* Around fork: while this is locked, SQLite is idle. False: it was not within so many ms. The child forgets the
 * thread and the store, which are its parent's. */
bool gs_drain_lock(int ms);
void gs_drain_unlock(void);
void gs_drain_forget(bool at_rest);

#endif
