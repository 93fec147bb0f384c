/* What is shown of the model: rows by line or by function, of what the person chose. */
#ifndef GPUSPY_TOP_TABLE_H
#define GPUSPY_TOP_TABLE_H

#include "analyzer/report/report.h"
#include "analyzer/top/model.h"

enum top_table { TOP_LINES, TOP_FUNCTIONS, TOP_SYNCS, TOP_COPIES, TOP_TABLES };
enum top_sort { TOP_BY_SIZE, TOP_BY_COUNT, TOP_BY_GROWTH, TOP_BY_RATE, TOP_BY_LAST, TOP_SORTS };
enum { TOP_LAYER_AUTO = -1, TOP_ALL = -1 };

struct top_choice {
    enum top_table table;
    enum top_sort sort;
    int source, device; /* TOP_ALL */
    int layer;          /* enum top_layer, or AUTO: tensors where a process has any, else the device */
    bool native;        /* places in C and C++ */
    char filter[128];   /* part of a place; "" none */
};

struct top_row {
    struct result_site site;
    uint32_t kind, api, source; /* of calls */
    int64_t bytes;              /* held now; of copies: in all */
    uint64_t count;             /* live allocations; calls in all */
    int64_t growth;             /* of bytes over the last minute */
    int64_t since;              /* of bytes since the watching began */
    double rate;                /* allocations or calls a second, of late */
    double byte_rate;           /* copies: bytes a second */
    double busy;                /* waits: share of the time blocked, of late */
    int64_t blocked_ns;
    int64_t last_ns; /* RUN_UNKNOWN */
    bool shown;      /* something is to be said of it */
};

/* Places by stack and mode, so that a stack is looked up once. */
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
    size_t helpers_of;              /* stacks that they were found among */
    const struct run_frame *frames; /* where they lie: sites point there */
    struct top_row *rows;
    size_t n, cap;
    int64_t total; /* bytes of all rows before the filter; of waits: ns */
};

/* Fills rows, sorted. */
void top_tables_fill(struct top_tables *t, const struct top_choice *choice);
void top_tables_free(struct top_tables *t);
/* The layer that AUTO means for a process. */
enum top_layer top_layer_of(const struct top_model *m, uint32_t source);
struct result_site top_site(struct top_tables *t, uint32_t stack, bool native);

#endif
