/* Declarations that allocator.c (the replay) and allocator_map.c (the moments) share. */
#pragma once

#include "analyzer/allocator/allocator.h"
#include "analyzer/site/builder.h"

/* The properties of a segment, or of a piece of an expandable one, as its first block shows them. */
struct allocator_affinity {
    uint64_t stream;
    uint8_t pool; /* enum allocator_pool_kind; UNKNOWN: nothing is known */
    bool stream_known;
};

struct allocator_segment {
    uint64_t address;
    int64_t bytes, alloc_ns;
    uint32_t location;
    int16_t device;
    struct allocator_affinity affinity;
};

struct allocator_map_work; /* allocator_map.c */

struct allocator_replay {
    struct site_builder *b;
    uint32_t process;   /* now replayed */
    bool streams_known; /* of the process being examined */
    /* segments: those that are live now, and those that were live at a moment that may matter */
    ARENA_LIST(struct allocator_segment, segments);
    struct map of_address; /* live ones */
    ARENA_LIST(uint32_t, spare);
    struct map kept; /* address and time → freed ones that are kept; of all processes */
    struct allocator_segment *kept_list;
    size_t kept_n, kept_cap;
    struct map private_of; /* address of a block → 1: in a private pool, by the facts up to now */
    size_t facts_next;
    uint32_t unseen[64]; /* segments in which no block was seen yet */
    size_t unseen_n;
    /* pieces of expandable segments: by row of run_mappings */
    const struct run_mapping *mappings;
    size_t mappings_n, mapping_next;
    struct allocator_affinity *mapping_affinity;
    size_t unseen_mappings[64], unseen_mappings_n;
    /* decides which segments are kept: the device's highest tensor total so far, and the last failure */
    struct allocator_peak_now {
        int64_t bytes, ns;
    } peak[128];
    int64_t last_oom_ns, end_ns; /* end: the process's last allocation */
    uint64_t blocks_made;        /* so far */
    struct allocator_map_work *map;
    struct allocator_flushes *flushes;
};

/* Is a location's memory PyTorch's? RUN_UNSURE if its frames do not decide. */
enum run_known allocator_owns(struct site_builder *b, uint32_t location);
/* The same for a stack that maps a piece of a segment. */
enum run_known allocator_maps(struct site_builder *b, uint32_t stack);
/* The properties that a block shows about itself and about its segment. */
struct allocator_affinity allocator_block_affinity(const struct allocator_replay *a, int64_t bytes, uint64_t stream,
                                                   bool captured);
/* The known properties of a segment that is or was live at a moment. */
struct allocator_affinity allocator_segment_affinity(const struct allocator_replay *a, uint64_t address,
                                                     int64_t alloc_ns);

/* allocator_flush.c */
struct allocator_flushes *allocator_flushes_new(struct allocator_replay *a);
void allocator_flushes_process(struct allocator_flushes *f);
void allocator_flushes_alloc(struct allocator_flushes *f, const struct run_lifetime *life, bool own);
void allocator_flushes_free(struct allocator_flushes *f, const struct run_lifetime *life);
void allocator_flushes_oom(struct allocator_flushes *f, const struct run_oom *oom);
void allocator_flushes_sync(struct allocator_flushes *f, const struct run_sync *sync);
void allocator_flushes_build(struct allocator_flushes *f); /* report: cache_flushes, retries' time */
void allocator_flushes_end(struct allocator_flushes *f);
