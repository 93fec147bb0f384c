/* What the names of CUDA calls and the numbers of CUPTI mean. Also as SQL functions. */
#ifndef GPUSPY_IMPORT_NSYS_CALLS_H
#define GPUSPY_IMPORT_NSYS_CALLS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/base/arena.h"

/* Numbers are in SQL, too. From WAIT on: a wait of the host, the role less WAIT is enum gs_sync_kind. */
enum import_role {
    IMPORT_ROLE_OTHER,
    IMPORT_ROLE_LAUNCH, /* of a kernel: neither copies nor waits */
    IMPORT_ROLE_GRAPH,  /* copies may follow, at any time */
    IMPORT_ROLE_ALLOC,
    IMPORT_ROLE_FREE,
    IMPORT_ROLE_WAIT = 8
};

/* call_name(text), call_role(text), copy_word(copyKind, srcKind, dstKind): direction + host memory × 8, both as in
 * struct import_event, and space_of(memKind): enum gs_space, -1 of memory that is not CUDA's.
 * whole(value, otherwise): the value if it is an integer; span(start, end): never negative, NULL of what is not within
 * IMPORT_TIME_MAX. */
bool import_calls_register(sqlite3 *db);

#define IMPORT_TIME_MAX ((int64_t)1 << 61) /* either way: their differences fit */

enum { IMPORT_PROCESSES_MAX = 1024 }; /* databases that one file becomes; of more, the first few are noted */

/* note_process(process, start, span): when each process was seen, without a sort. */
struct import_spans {
    struct import_span {
        int64_t process, first, last;
    } * list;
    size_t n, cap;
    struct map index; /* process → in list */
};
bool import_calls_note_spans(sqlite3 *db, struct import_spans *spans);

#endif
