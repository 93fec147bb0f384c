/* PyTorch's CUDACachingAllocator, replayed: the same requests and frees give the same blocks, segments and calls of the
 * driver. It owns no memory of a GPU: addresses are numbers that its driver invents or repeats.
 *
 * Rules: c10/cuda/CUDACachingAllocator.cpp of PyTorch 1.13 to 2.15. Differences between versions are in versions.def.
 * Memory grows with live and cached blocks. Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum caching_version_rule {
#define VERSION_RULE(name, major, minor, source) CACHING_##name,
#include "analyzer/caching/versions.def"
};

struct caching_rules {
    uint16_t major, minor; /* of PyTorch; 0: unknown, so the newest known version */
    bool expandable;
    bool capture_reuse;      /* graph_capture_record_stream_reuse, which the replay does not follow */
    int64_t large_bytes;     /* large_segment_size_mb: segments for requests from 1 to 10 MiB, and pages of large
                                expandable segments */
    int64_t max_split_bytes; /* max_split_size_mb; INT64_MAX: no limit */
    int64_t max_round_bytes; /* max_non_split_rounding_mb: how much larger an unsplit block may be */
    double gc_threshold;     /* 0: never */
    int64_t gc_memory; /* the threshold is a share of this: the bytes that set_per_process_memory_fraction allows; 0:
                          not set, so PyTorch collects nothing */
    int64_t allowed_bytes; /* the same as a cap; INT64_MAX: none */
    int64_t device_bytes;  /* the device's memory: an expandable segment reserves 9/8 of it, or, if that is less, … */
    int64_t reserve_bytes; /* … expandable_segments_reserve in bytes; 0: not set */
    double reserve_share;  /* … or as a share of the memory; 0: not set */
    bool throws;           /* throw_on_cudamalloc_oom: a request for which PyTorch would reserve more than … */
    double throws_share; /* … this share of the memory, per_process_memory_fraction, fails without a retry; 0: all */
    bool device_guessed; /* device_bytes is a guess */
    uint32_t divisions[16]; /* roundup_power2_divisions by power of two from 1 MiB to 32 GiB; 0 or 1: off */
};
extern const struct caching_rules caching_default_rules;
/* Does the version of these rules follow `rule`? `since`, if not NULL: the first version that does, such as "2.1". */
bool caching_rules_have(const struct caching_rules *rules, enum caching_version_rule rule, const char **since);

/* The allocator's requests to the driver. */
struct caching_driver {
    void *self;
    /* `page` 0: a segment, at an address that the driver chooses. Else pages of an expandable segment at an address;
     * `bytes` is a multiple of `page`, and either all pages are mapped or none. False: refused. */
    bool (*take)(void *self, int64_t bytes, int64_t page, uint64_t *address);
    void (*give_back)(void *self, uint64_t address, int64_t bytes, int64_t page);
    /* Address space for an expandable segment; costs no memory. */
    uint64_t (*reserve)(void *self, int64_t bytes);
};

struct caching_totals {
    int64_t allocated, reserved, peak_allocated, peak_reserved; /* bytes */
    uint64_t segments, peak_segments;                           /* or pages' ranges */
    uint64_t retries;                                           /* requests that first had to free cached segments */
    uint64_t area_choices; /* how often several expandable segments had room: the one with the lowest address is used */
    uint64_t unsplit;      /* requests that were served by a whole block, which may be up to 1 MiB larger, or more with
                              max_split_bytes */
};

struct caching_allocator;
struct caching_allocator *caching_allocator_new(const struct caching_rules *rules, const struct caching_driver *driver);
void caching_allocator_free(struct caching_allocator *a);

#define CACHING_NO_BLOCK UINT32_MAX
/* Serves a request of `bytes` on a stream. Returns its block; CACHING_NO_BLOCK: out of memory. `pool`: 0 the default
 * one. */
uint32_t caching_allocate(struct caching_allocator *a, int64_t bytes, uint64_t stream, uint32_t pool);
/* Allocates these bytes in a free block of a pool, as PyTorch does when it restores the pool's blocks.
 * CACHING_NO_BLOCK: they are not free. */
uint32_t caching_allocate_at(struct caching_allocator *a, uint64_t address, int64_t bytes, uint32_t pool);
/* The free block that such a request would take, CACHING_NO_BLOCK: none. Nothing changes. */
uint32_t caching_find_block(struct caching_allocator *a, int64_t bytes, uint64_t stream, uint32_t pool);
void caching_release(struct caching_allocator *a, uint32_t block);
/* Freed while other streams may use it: no request gets the block until caching_finish_pending, or until a request that
 * fails waits for all of them. caching_finish_pending may be called after that, too. */
void caching_release_later(struct caching_allocator *a, uint32_t block);
void caching_finish_pending(struct caching_allocator *a, uint32_t block);
void caching_empty_cache(struct caching_allocator *a);
/* The same for one private pool that nothing allocates from any more, as the end of a torch.cuda.MemPool does. */
void caching_empty_pool(struct caching_allocator *a, uint32_t pool);
/* Nothing allocates from a private pool any more: its cached segments are freed like those of the default pool. */
void caching_pool_unused(struct caching_allocator *a, uint32_t pool);
/* From now on PyTorch may reserve at most `bytes`; 0: any amount. */
void caching_set_cap(struct caching_allocator *a, int64_t bytes);
/* expandable_segments, which a program can switch while it runs. */
void caching_set_expandable(struct caching_allocator *a, bool expandable);
/* A private pool serves each request by a whole block: torch.cuda.MemPool(no_split=True). */
void caching_set_unsplit(struct caching_allocator *a, uint32_t pool, bool unsplit);
/* Are the next requests part of a CUDA graph that is captured? */
void caching_set_capturing(struct caching_allocator *a, bool capturing);
bool caching_is_capped(const struct caching_allocator *a);
/* May a request of segments of so many bytes free cached ones because of the cap: it exceeds it, or garbage is
 * collected?
 */
bool caching_cap_frees(const struct caching_allocator *a, int64_t bytes);
/* Does a request fail because no expandable segment would be as large? Before 2.15, such a request asks CUDA for memory
 * in vain, and leaves a segment without pages. */
bool caching_is_too_large(const struct caching_allocator *a, int64_t bytes);
/* Places memory that existed when a recording began, at its address: a segment, and then its blocks in order of
 * address. `rank`: the segment's place in the order of requests, from 1. */
void caching_place_segment(struct caching_allocator *a, uint64_t address, int64_t bytes, uint64_t stream, bool small,
                           uint32_t pool, uint64_t rank);
uint32_t caching_place_block(struct caching_allocator *a, uint64_t address, int64_t bytes);
void caching_place_end(struct caching_allocator *a);

uint64_t caching_block_address(const struct caching_allocator *a, uint32_t block);
int64_t caching_block_bytes(const struct caching_allocator *a, uint32_t block);
const struct caching_totals *caching_totals(const struct caching_allocator *a);
/* Are there cached segments, or pages of expandable ones, that caching_empty_cache would free? */
bool caching_has_spare(const struct caching_allocator *a);
/* Reserved and in no block; the largest of it in one piece. */
int64_t caching_cached(const struct caching_allocator *a, int64_t *largest);
/* The bytes that a request takes: roundings applied. */
int64_t caching_rounded(const struct caching_rules *rules, int64_t bytes);
