/* SQLite's memory inside the recorded process. It does not come from the program's malloc, which may be a debugging
 * allocator that records every call, or may hold a lock of its own. */
#pragma once

/* Call it before SQLite is used. */
void gs_store_heap_use(void);
