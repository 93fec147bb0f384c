/* The peaks of NVTX ranges. Part of the store's state; not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "schema/store_level.h"
#include "schema/tables.h"

struct gs_store;

enum { GS_SCOPES = 1024, GS_SCOPE_SERIES = 2 * GS_LEVEL_DEVICES };

struct gs_scope_peak {             /* of the ranges with one name, in one series */
    uint64_t most, most_ns, entry; /* while it is open: largest since it was opened; live when it was opened */
    uint64_t peak, peak_ns, peak_entry, peak_exit; /* of the visit with the highest peak */
    uint16_t series;                               /* gs_level_index */
    bool ended;                                    /* at least one visit has ended */
};
struct gs_scope {
    char *domain, *name; /* domain "": the default one */
    uint64_t count;      /* number of ranges that began */
    uint64_t depth;      /* number of ranges that are open */
    int64_t ended_ns;    /* total duration of the ranges that ended */
    GS_ARRAY(struct gs_scope_peak) peaks;
};
struct gs_scopes {
    GS_ARRAY(struct gs_scope) list;
    GS_ARRAY(uint32_t) open; /* indices into the list */
    struct gs_id_map index;  /* domain, name → index into the list, plus 1 */
    uint64_t left_out;       /* ranges whose names exceed the limit */
};

/* A range begins; call it in the order of events. Returns the number of its scope, from 1; 0: it has none. */
uint32_t gs_scope_begin(struct gs_store *s, const char *domain, size_t domain_length, const char *name,
                        size_t name_length);
void gs_scope_end(struct gs_store *s, uint32_t number, int64_t life_ns);
/* Replaces table removed_scope; within a transaction. */
int gs_store_write_scopes(struct gs_store *s);
void gs_scopes_free(struct gs_scopes *c);
