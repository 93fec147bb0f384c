/* The visible part of the model: rows by line or by function, as chosen by the user. */
#pragma once

#include "analyzer/report/report.h"
#include "analyzer/top/model.h"

enum top_table { TOP_LINES, TOP_FUNCTIONS, TOP_SYNCS, TOP_COPIES, TOP_TABLES };
enum top_sort { TOP_BY_SIZE, TOP_BY_COUNT, TOP_BY_GROWTH, TOP_BY_RATE, TOP_BY_LAST, TOP_SORTS };
enum { TOP_LAYER_AUTO = -1, TOP_ALL = -1 };

struct top_choice {
    enum top_table table;
    enum top_sort sort;
    int source, device; /* TOP_ALL */
    int layer;          /* enum top_layer, or AUTO: tensors if a process has any, else the device */
    bool native;        /* call sites in C and C++ */
    char filter[128];   /* part of a call site; "" none */
};

struct top_row {
    struct result_site site;
    uint32_t kind, api, source; /* of calls */
    int64_t bytes;              /* held now; of copies: in total */
    uint64_t count;             /* live allocations; calls in total */
    int64_t growth;             /* of bytes over the last minute; RUN_UNKNOWN */
    int64_t since;              /* of bytes since top began */
    double rate;                /* recent allocations or calls per second; NAN: unknown */
    double byte_rate;           /* copies: bytes per second */
    double busy;                /* waits: recent share of the time blocked */
    int64_t blocked_ns;
    int64_t last_ns; /* RUN_UNKNOWN */
    bool shown;      /* there is something to show */
};

/* Call sites by stack and mode, so that a stack is looked up once. */
struct top_tables {
    struct top_model *model;
    struct top_groups {
        uint32_t *of_stack; /* stack + 1 → group, RUN_NONE not looked up yet */
        size_t stacks;
        struct map by_key;
        struct result_site *sites;
        size_t n, cap;
    } groups[2][2];                 /* function?, native? */
    struct map helpers;             /* functions of the user's own that many lines call, see site.h */
    size_t helpers_of;              /* number of stacks among which they were found */
    const struct run_frame *frames; /* the array into which sites point */
    struct top_row *rows;
    size_t n, cap;
    int64_t total; /* bytes of all rows before the filter; of waits: ns */
};

/* Fills rows, sorted. */
void top_tables_fill(struct top_tables *t, const struct top_choice *choice);
void top_tables_free(struct top_tables *t);
/* The layer that AUTO selects for a process. */
enum top_layer top_layer_of(const struct top_model *m, uint32_t source);
struct result_site top_site(struct top_tables *t, uint32_t stack, bool native);
