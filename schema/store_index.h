/* Keeps the index of the database's log in ordinary memory; see store_index.c. One thread at a time uses SQLite. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

void gs_index_hook(sqlite3_vfs *vfs);
/* SQLite has opened, or is about to close, the index of a log. */
void gs_index_opened(int fd);
void gs_index_closed(int fd);
