/* Single allocations at the moments of a page: for each call path, the largest that are live at each moment. A call
 * path has at most a few candidates at a time, so that an event costs O(1); once there are too many allocations, those
 * of the smallest call paths are dropped. */
#pragma once

#include "analyzer/page/page_stacks.h"

enum { PAGE_SINGLES_SHOWN = 12 }; /* of one call path at one moment; MOST of analyzer/web/page_blocks.js */

struct page_single {
    uint32_t path, stack;
    int64_t bytes, alloc_ns, free_ns;
};

struct page_singles_path { /* a call path's blocks of one category */
    uint32_t line;         /* of page_series.c, for its own use */
    uint32_t stack;        /* of that line */
    uint32_t number;       /* of the line as written; MAP_NEW: it is not written */
    bool whole;            /* all of its allocations have that stack */
    bool queued, dropped;
    int64_t most;  /* live bytes at most at a moment so far, which the caller sets */
    int64_t least; /* the smallest candidate */
    struct page_single *candidates;
    uint32_t moments_list;   /* a bit for each candidate that a moment lists */
    int64_t enough_until_ns; /* with 32 candidates: until then enough larger ones are live to fill a moment's list */
    size_t n, cap, listed;
};

struct page_singles { /* of a series; zero-initialise */
    struct page_singles_path *paths;
    size_t paths_n, paths_cap, most; /* most: allocations to keep */
    ARENA_LIST(uint32_t, queue);     /* paths that may have a candidate that no moment lists yet */
    struct page_single *list;
    size_t n, cap;
};

uint32_t page_singles_add(struct page_singles *s, uint32_t line);
void page_singles_free(struct page_singles *s);
/* A path's allocation, which is live at `moment_ns`, the next moment. */
void page_singles_add_live(struct page_singles *s, uint32_t path, const struct run_lifetime *life, int64_t moment_ns);
/* That moment: all that is live at it has been added. */
void page_singles_list(struct page_singles *s, int64_t moment_ns);
/* Member "singles", in at most `room` bytes: the call paths that held most. False: those of others are left out. */
bool page_singles_put(struct page_singles *s, size_t room, struct page_stacks *stacks, struct page_writer *w);
