/* PyTorch's caching allocator, from two recorded layers: its segments (CUDA allocations) and the blocks in them, at the
 * moments that matter. Also cache flushes, and allocations that succeeded only after a flush.
 *
 * A segment belongs to one stream and one pool. Neither is recorded, but PyTorch allocates a segment for a block, which
 * is the next one in it and shows both. So the stream and pool of a segment without any recorded block are unknown.
 *
 *   allocated   in blocks that the program holds
 *   pending     in blocks that the program freed and another stream may still use (record_stream)
 *   active      both
 *   cached      reserved and not active; a part of it is inactive_split: in a segment with an active block, so that
 *               empty_cache cannot free it
 */
#pragma once

#include "analyzer/result/result.h"
#include "analyzer/run/settings.h"

/* Failed requests of the same size that are further apart are different failures, unless PyTorch reports them. */
#define ALLOCATOR_SAME_FAILURE_NS INT64_C(10000000000)

#define ALLOCATOR_MOMENTS(X) X(PEAK, "peak") X(OOM, "oom") X(END, "end")
#define ALLOCATOR_ENUM_MOMENT(s, w) ALLOCATOR_MOMENT_##s,
enum allocator_moment_kind { ALLOCATOR_MOMENTS(ALLOCATOR_ENUM_MOMENT) };

#define ALLOCATOR_POOLS(X)                                                               \
    X(UNKNOWN, "unknown")                                                                \
    X(SMALL, "small") /* of blocks up to 1 MiB */                                        \
    X(LARGE, "large")                                                                    \
    X(PRIVATE_SMALL, "private small") /* of a CUDA graph: as long as the graph exists */ \
    X(PRIVATE_LARGE, "private large")
#define ALLOCATOR_ENUM_POOL(s, w) ALLOCATOR_POOL_##s,
enum allocator_pool_kind { ALLOCATOR_POOLS(ALLOCATOR_ENUM_POOL) ALLOCATOR_POOLS_N };

struct allocator_pool_share { /* by one pool, or one stream */
    enum allocator_pool_kind pool;
    uint64_t stream; /* CUDA's handle, 0 the default stream */
    bool stream_known;
    int64_t reserved, allocated, active;
    uint64_t segments, blocks;
};

struct allocator_state {
    uint32_t process;
    int device;
    enum allocator_moment_kind moment; /* word: allocator_moment_word() */
    int64_t time_ns;
    enum run_backend backend;
    enum run_known expandable; /* whether any segment is */
    int64_t reserved;          /* RUN_UNKNOWN: of the backend cudaMallocAsync */
    int64_t allocated;
    int64_t pending; /* RUN_UNKNOWN if native frames were not recorded and something may be pending */
    int64_t active, cached, inactive_split, largest_free; /* likewise */
    uint64_t segments, blocks;
    uint64_t strays;                                  /* blocks in no known segment: the picture is incomplete */
    struct allocator_pool_share *by_pool, *by_stream; /* largest first; they sum to the above */
    size_t by_pool_n, by_stream_n;
};

#define ALLOCATOR_FLUSHES(X) X(EMPTY_CACHE, "empty_cache") X(COLLECTION, "garbage_collection")
#define ALLOCATOR_ENUM_FLUSH(s, w) ALLOCATOR_FLUSH_##s,
enum allocator_flush_kind { ALLOCATOR_FLUSHES(ALLOCATOR_ENUM_FLUSH) };

/* Segments that were freed to CUDA although no allocation had failed, by line. */
struct allocator_cache_flush {
    uint32_t process;
    int device;
    enum allocator_flush_kind kind; /* word: allocator_flush_word() */
    uint64_t count, segments;
    int64_t bytes;    /* freed to CUDA */
    int64_t again;    /* of these, allocated again afterwards, as far as known */
    double blocked_s; /* in the calls that freed it, if they waited */
    double per_step;  /* NAN: no steps were found */
    bool matters;     /* repeated, and without effect: the memory was allocated again */
    double first_s, last_s;
    const int64_t *times_ns; /* of the first times_n flushes */
    size_t times_n;
    struct result_site site;
    const char *advice; /* NULL none */
};

const char *allocator_moment_word(enum allocator_moment_kind moment);
const char *allocator_pool_word(enum allocator_pool_kind pool);
const char *allocator_flush_word(enum allocator_flush_kind kind);

struct site_builder;
struct run_observer;
struct run_sync;
/* b->allocators from here to allocator_free. Comes after the owners and the steps. */
void allocator_start(struct site_builder *b, struct run_observer *observer);
/* A wait, from the pass over calls: for the duration of flushes. */
void allocator_add_sync(struct site_builder *b, const struct run_sync *sync);
/* After peaks and OOMs: the moments of a process to examine, ascending; NULL none. The array is valid until
 * allocator_close_process. Then each block that is live then; then the result. */
const int64_t *allocator_moments(struct site_builder *b, uint32_t process, size_t *n);
void allocator_add_live(struct site_builder *b, size_t moment, const struct run_lifetime *life);
void allocator_close_process(struct site_builder *b, uint32_t process);
/* After all passes: allocator[], cache_flushes[], and the time that retries[] cost. */
void allocator_build(struct site_builder *b);
void allocator_free(struct site_builder *b);
