/* The meaning of CUDA calls' names and of CUPTI's numbers, for C and as SQL functions. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/base/arena.h"

/* The SQL of nsys_stage.c uses these numbers, too. From WAIT on: a wait of the host; the role minus WAIT is enum
 * gs_sync_kind. */
enum import_role {
    IMPORT_ROLE_OTHER,
    IMPORT_ROLE_LAUNCH, /* of a kernel: neither copies nor waits */
    IMPORT_ROLE_GRAPH,  /* copies of the graph may follow at any time */
    IMPORT_ROLE_ALLOC,
    IMPORT_ROLE_FREE,
    IMPORT_ROLE_WAIT = 8
};

/* SQL functions: call_name(text); call_role(text); copy_word(copyKind, srcKind, dstKind): direction + host memory × 8,
 * both as in struct import_event; space_of(memKind): enum gs_space, -1 for memory that is not CUDA's; whole(value,
 * otherwise): the value if it is an integer; span(start, end): at least 0, NULL for times outside of IMPORT_TIME_MAX.
 */
bool import_calls_register(sqlite3 *db);

#define IMPORT_TIME_MAX ((int64_t)1 << 61) /* in both directions, so that differences fit in 64 bits */

enum { IMPORT_PROCESSES_MAX = 1024 }; /* databases per file; of further processes, only the first few are noted */

/* note_process(process, start, span): when each process was active, without a sort. */
struct import_spans {
    struct import_span {
        int64_t process, first, last;
    } * list;
    size_t n, cap;
    struct map index; /* process → index in list */
};
bool import_calls_note_spans(sqlite3 *db, struct import_spans *spans);
