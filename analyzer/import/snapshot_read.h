/* The contents of a PyTorch snapshot, read from its pickle: the memory at the end, and the events before. Texts and
 * frames belong to the pickle. Units: bytes, microseconds of the wall clock. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/import/unpickle.h"

/* IMPORT_HOST: PyTorch's cache of pinned memory, which belongs to no GPU. */
enum { IMPORT_DEVICES = 64, IMPORT_HOST = IMPORT_DEVICES };

#define IMPORT_ACTIONS(X)          \
    X(ALLOC, "alloc")              \
    X(FREE, "free_requested")      \
    X(COMPLETED, "free_completed") \
    X(TAKE, "segment_alloc")       \
    X(GIVE_BACK, "segment_free") X(MAP, "segment_map") X(UNMAP, "segment_unmap") X(OOM, "oom") X(SNAPSHOT, "snapshot")
#define IMPORT_ENUM_ACTION(symbol, word) IMPORT_##symbol,
enum import_action { IMPORT_ACTIONS(IMPORT_ENUM_ACTION) IMPORT_OTHER };

/* Private pools are numbered from IMPORT_POOL_PRIVATE in order of appearance; all beyond the last number share it. */
enum import_pool { IMPORT_POOL_UNKNOWN, IMPORT_POOL_DEFAULT, IMPORT_POOL_PRIVATE, IMPORT_POOL_LAST = UINT16_MAX };

/* `frames` of events and pieces: dicts, innermost first; NULL: none. With a forward pass, two items: such a list, and
 * texts of traceback.format_stack(), outermost first. */
struct import_snapshot_event {
    const struct import_list *frames;
    int64_t time_us;  /* INT64_MIN: unknown */
    uint64_t address; /* OOM: free bytes of the device */
    uint64_t stream;
    int64_t bytes, requested; /* requested: only of ALLOC and FREE */
    uint8_t action, device;
    uint16_t pool;
    uint16_t extra; /* of the block beyond `bytes`, in 512 bytes: snapshot_layout.c */
    bool exact;     /* `bytes` is the block's size, which the end states */
    bool later;     /* FREE, COMPLETED: another stream used the block, so the two events are separate */
};

/* A block or a segment at some moment; bytes 0: it does not exist any more. */
struct import_snapshot_piece {
    uint64_t address, stream;
    int64_t bytes, requested; /* requested: of a block; 0: unknown */
    const struct import_list *frames;
    uint8_t device;
    uint16_t pool, extra; /* extra: as in events */
    bool exact;           /* as in events */
    bool pending;         /* freed, but waits for other streams */
    bool mapped;          /* of an expandable segment */
};
struct import_snapshot_pieces {
    struct import_snapshot_piece *list;
    size_t n, cap;
};

struct import_snapshot_note { /* from external_annotations */
    int64_t time_us;
    const char *name;
    bool ends;
    int device;
};

/* Totals that segments state, and the sums of their blocks. */
#define IMPORT_TOTALS(X) X(ALLOCATED, "allocated") X(ACTIVE, "active") X(REQUESTED, "requested") X(RESERVED, "reserved")
#define IMPORT_ENUM_TOTAL(symbol, word) IMPORT_TOTAL_##symbol,
enum import_total { IMPORT_TOTALS(IMPORT_ENUM_TOTAL) IMPORT_TOTALS_N };
struct import_snapshot_total {
    int64_t stated, computed;
    uint64_t segments; /* number of segments whose stated total differs from the sum */
};

struct import_snapshot {
    struct import_pickle *pickle;
    struct arena arena;
    const char *settings;  /* PYTORCH_CUDA_ALLOC_CONF; NULL: unknown */
    int64_t divisions[16]; /* roundup_power2_divisions, of requests from 1, 2, 4 … MiB on; 0: unknown or none */
    const char *torch;     /* a version of PyTorch that writes such members; NULL: unknown */
    bool has_pool_ids;     /* events have pool ids */
    ARENA_LIST(struct import_snapshot_event, events);
    const char *skipped; /* events that the program did not record, so that the others were dropped; NULL: none */
    bool timed, lacks_segments; /* lacks_segments: some of their events were not recorded, so that all were dropped */
    struct import_snapshot_pieces segments, blocks;
    ARENA_LIST(struct import_snapshot_note, notes); /* sorted by time */
    struct import_snapshot_total totals[IMPORT_TOTALS_N];
    uint64_t segments_n, refused; /* refused: damaged segments, blocks and events */
    uint64_t pages;               /* of expandable segments, as often as they are mapped and unmapped */
    struct map pools;             /* segment_pool_id → enum import_pool */
    uint32_t private_n;           /* number of private pools */
    struct import_snapshot_shapes *shapes;
};

/* Of the pages of an expandable segment, or of a part of one. */
int64_t import_page_size(int64_t bytes);

/* False and a line in `error`: it is not a snapshot. In both cases call import_snapshot_release. */
bool import_snapshot_read(struct import_snapshot *s, const char *path, import_progress_fn progress, void *self,
                          char *error, size_t error_size);
void import_snapshot_release(struct import_snapshot *s);
