/* The database's files inside the recorded process: their descriptors do not collide with those of the application, and
 * gpuspy never writes to a descriptor that no longer belongs to the database. */
#pragma once

#include <signal.h>
#include <stdbool.h>

/* Call it before the first database is opened, if the process belongs to the application and must survive whatever
 * happens to the files. */
void gs_store_files_guest(void);
/* The first call in a process takes effect; later calls do nothing. */
void gs_store_files_init(void);
/* Set it if the threads that use the store have their own descriptor table, which the application's calls of close do
 * not affect. Clear it before another thread opens a store. */
void gs_store_files_private(bool private);
/* False if a descriptor that SQLite opened is another file now: the application closed it (a daemon closes all
 * descriptors that it does not know) and may have opened its own file under the same number. */
bool gs_store_files_ours(void);
/* Whether a file that SQLite has open was deleted: its content is lost when the process ends. */
bool gs_store_files_deleted(void);
/* In a forked child: closes the descriptors that it inherited and forgets them; those of the parent stay open. */
void gs_store_files_forget(void);

/* Between begin and end, a write beyond the limit on file sizes returns an error instead of raising SIGXFSZ. */
struct gs_file_guard {
    sigset_t before;
    bool was_pending, active;
};
void gs_file_guard_begin(struct gs_file_guard *g);
void gs_file_guard_end(struct gs_file_guard *g);
