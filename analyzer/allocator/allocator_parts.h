/* What allocator.c (the replay) and allocator_map.c (the moments) share. */
#ifndef GPUSPY_ALLOCATOR_PARTS_H
#define GPUSPY_ALLOCATOR_PARTS_H

#include "analyzer/allocator/allocator.h"
#include "analyzer/site/builder.h"

/* What the first block in it told of a segment, or of a piece of an expandable one. */
struct gs_told {
    uint64_t stream;
    uint8_t pool; /* enum gs_pool_kind; UNKNOWN: nothing was told */
    bool stream_known;
};

struct gs_segment {
    uint64_t address;
    int64_t bytes, alloc_ns;
    uint32_t location;
    int16_t device;
    struct gs_told told;
};

struct gs_map_work; /* allocator_map.c */

struct gs_allocators {
    struct gs_builder *b;
    uint32_t process;   /* now replayed */
    bool streams_known; /* of the process that is looked at */
    /* segments: those that live now, and those that were live at a moment that may matter */
    struct gs_segment *segments;
    size_t segments_n, segments_cap;
    struct gs_map of_address; /* live ones */
    uint32_t *spare;
    size_t spare_n, spare_cap;
    struct gs_map kept; /* address and time → dead ones that are kept; of all processes */
    struct gs_segment *kept_list;
    size_t kept_n, kept_cap;
    uint32_t untold[64]; /* segments in which no block was seen yet */
    size_t untold_n;
    /* pieces of expandable segments: by row of gs_run_mappings */
    const struct gs_mapping *mappings;
    size_t mappings_n, mapping_next;
    struct gs_told *mapping_told;
    size_t untold_mappings[64], untold_mappings_n;
    /* for what is kept: the device's highest tensor total so far, and the last failure */
    struct gs_peak_now {
        int64_t bytes, ns;
    } peak[128];
    int64_t last_oom_ns, end_ns; /* end: the process's last allocation */
    uint64_t blocks_made;        /* so far */
    struct gs_map_work *map;
    struct gs_flushes *flushes;
};

/* Whether a location's memory is PyTorch's: GS_UNSURE where its frames do not tell. */
enum gs_known gs_allocators_own(struct gs_builder *b, uint32_t location);
/* The same of what maps a piece of a segment. */
enum gs_known gs_allocators_maps(struct gs_builder *b, uint32_t stack);
/* What a block tells of itself, and of the segment that it lies in. */
struct gs_told gs_told_by(const struct gs_allocators *a, int64_t bytes, uint64_t stream, bool captured);
/* What is known of a segment that is or was live at a moment. */
struct gs_told gs_allocators_told(const struct gs_allocators *a, uint64_t address, int64_t alloc_ns);
void gs_map_work_free(struct gs_allocators *a);
void gs_map_work_build(struct gs_allocators *a);

/* allocator_flush.c */
struct gs_flushes *gs_flushes_new(struct gs_allocators *a);
void gs_flushes_process(struct gs_flushes *f, uint32_t process);
void gs_flushes_alloc(struct gs_flushes *f, const struct gs_lifetime *life, bool own);
void gs_flushes_free(struct gs_flushes *f, const struct gs_lifetime *life);
void gs_flushes_oom(struct gs_flushes *f, const struct gs_oom *oom);
void gs_flushes_sync(struct gs_flushes *f, const struct gs_sync *sync);
void gs_flushes_build(struct gs_flushes *f); /* report: cache_flushes, retries' time */
void gs_flushes_end(struct gs_flushes *f);

#endif
