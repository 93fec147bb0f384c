/* Joins the writes by which SQLite appends to its log; see store_append.c. One thread at a time uses SQLite. */
#pragma once

#include <sqlite3.h>

void gs_append_hook(sqlite3_vfs *vfs);
/* SQLite has opened a log, or is about to close a file. */
void gs_append_opened(int fd);
void gs_append_closed(int fd);
/* Before SQLite releases a lock: writes what is left of a transaction that was rolled back. */
void gs_append_end(void);
