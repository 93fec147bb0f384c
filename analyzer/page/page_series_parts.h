/* Declarations that page_series.c, which collects, and page_series_put.c, which writes, share. No other file includes
 * this. */
#pragma once

#include "analyzer/page/page_curve.h"
#include "analyzer/page/page_series.h"
#include "analyzer/page/page_singles.h"
#include "analyzer/step/step.h"

enum {
    BUCKETS = 16000,     /* of all series together … */
    BUCKETS_MOST = 2000, /* … and of one */
    BUCKETS_LEAST = 40,
    CHANGES = 3 << 20, /* in memory, at most */
    PUT = 4 << 20,     /* bytes in which changes are written, of all series together; or half of the remaining room */
    LINES_MOST = 6000, /* of one series, … */
    SITES = 4,         /* … a quarter of them for lines of code whose call paths have none */
    EXACT = 40000,     /* lines at the peaks, of all series together … */
    EXACT_MOST = 4000, /* … and of one */
    STEPS_LEAST = 8,   /* per process: with fewer, buckets are not cut at steps */
    SINGLES = 400000,  /* single allocations kept in memory, of all series together … */
    SINGLES_PUT = 3 << 19, /* … and bytes in which they are written; or an eighth of the remaining room */
    FOCUS_MOST = 9,        /* moments of one series with a finer resolution */
    MOMENTS = 1 << 16,     /* of the curves of a process, about */
    MOMENTS_LEAST = 4096,  /* of a curve; more than BUCKETS_MOST, so that each event of a short one has its own */
};

struct page_line { /* a call path's blocks of one category; or those of a line of code, or of all others, without their
                      own line */
    uint32_t stack, series; /* for a line of code: the calls that all its paths share; RUN_NONE for all others */
    uint8_t category;
    bool merged;
    uint32_t site;          /* for a line of code: its text's number */
    uint32_t paths;         /* merged: how many */
    uint32_t number;        /* its number in the page */
    uint32_t singles;       /* its path in the series' `singles` */
    uint64_t put;           /* approximate bytes in which its changes are written */
    int64_t now, out, most; /* bytes: at the next bucket's moment as far as is known, in the previous bucket */
    int64_t now_n, out_n;   /* blocks */
    bool changed;           /* since the previous bucket */
};

struct page_change { /* millions of them */
    int64_t bytes;
    uint32_t line;
    int32_t blocks;
};

struct page_bucket {
    int64_t start_ns, high_ns, high, low;
    size_t changes; /* the first */
};

struct page_end { /* of a block */
    int64_t bytes;
    uint32_t line, next; /* next: another one before the same bucket's moment; RUN_NONE */
};

struct page_level { /* a series */
    uint32_t process;
    int device;
    enum run_series_layer layer;
    const struct result_peak *peak;
    uint64_t events;
    int64_t last_ns; /* of the last event */
    size_t buckets_room, lines_room;
    /* buckets are cut at these times, and after these numbers of events */
    ARENA_ROWS(int64_t, cuts);
    uint64_t every;
    struct page_bucket *buckets;
    size_t buckets_n, at; /* at: the one whose memory is being collected */
    uint32_t *ends;       /* by bucket: index into `pending` of a block that ends before its moment; RUN_NONE */
    int64_t total;
    ARENA_LIST(uint32_t, changed); /* lines that may differ from the previous bucket */
    ARENA_LIST(struct page_change, changes);
    uint32_t merged[RESULT_CATEGORIES_N]; /* lines */
    struct map site_lines;                /* site and category → line */
    size_t sites_n;
    struct page_singles singles;
};

struct page_series {
    struct run *run;
    const struct result_report *report;
    struct page_kinds *kinds;
    struct page_stacks *stacks;
    int64_t *most; /* by location, in the first pass */
    size_t most_cap;
    struct map worth; /* series and stack → 1: it has a line */
    ARENA_ROWS(struct page_level, levels);
    uint32_t *level_of; /* by the run's series */
    size_t level_of_cap;
    ARENA_LIST(struct page_line, lines);
    ARENA_ROWS(uint32_t, line_of); /* by location and category; from 1 on */
    struct page_curve *curves;     /* by the run's series */
    size_t curves_cap;
    ARENA_LIST(struct page_end, pending); /* of blocks that are live */
    uint32_t pending_free;                /* a list of unused ones */
    int64_t unshown_most;                 /* of call paths without their own line */
};

/* The calls that two stacks share, from the outermost on; RUN_NONE none. */
uint32_t page_series_shared(const struct run *run, uint32_t a, uint32_t b);
