/* The database's files inside the application's process: their descriptors do not collide with its own, and gpuspy
 * never writes to a descriptor that no longer belongs to the database. */
#ifndef GPUSPY_STORE_FILES_H
#define GPUSPY_STORE_FILES_H

#include <signal.h>
#include <stdbool.h>

/* Call it before the first database. This process isn't ours and must survive whatever happens to the files. */
void gs_store_files_guest(void);
/* Once per process; later calls do nothing. */
void gs_store_files_init(void);
/* Whether the threads that use the store share a table of descriptors of their own, where neither the
 * application's files nor its closing reach. False again before another thread opens a store. */
void gs_store_files_private(bool private);
/* False where a descriptor that SQLite opened is another file now: the application has closed it (a
 * daemon closes all that it doesn't know) and the number may be one of its own files. */
bool gs_store_files_ours(void);
/* Whether somebody has deleted one that is still written to: it would be gone with the process. */
bool gs_store_files_deleted(void);
/* In a forked child: those descriptors are the parent's, whatever the child does with theirs. */
void gs_store_files_forget(void);

/* Between begin and end a write beyond the limit on file sizes is an error, and no signal. */
struct gs_file_guard {
    sigset_t before;
    bool was_pending, active;
};
void gs_file_guard_begin(struct gs_file_guard *g);
void gs_file_guard_end(struct gs_file_guard *g);

#endif
