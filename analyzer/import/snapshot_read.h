/* What a PyTorch snapshot contains, out of its pickle: what there was at the end, and the events before. Texts and
 * frames belong to the pickle. Units: bytes, microseconds of the wall clock. */
#ifndef GPUSPY_IMPORT_SNAPSHOT_READ_H
#define GPUSPY_IMPORT_SNAPSHOT_READ_H

#include "analyzer/base/arena.h"
#include "analyzer/import/unpickle.h"

/* IMPORT_HOST: PyTorch's cache of pinned memory, which is of no GPU. */
enum { IMPORT_DEVICES = 64, IMPORT_HOST = IMPORT_DEVICES };

#define IMPORT_ACTIONS(X)          \
    X(ALLOC, "alloc")              \
    X(FREE, "free_requested")      \
    X(COMPLETED, "free_completed") \
    X(TAKE, "segment_alloc")       \
    X(GIVE_BACK, "segment_free") X(MAP, "segment_map") X(UNMAP, "segment_unmap") X(OOM, "oom") X(SNAPSHOT, "snapshot")
#define IMPORT_ENUM_ACTION(symbol, word) IMPORT_##symbol,
enum import_action { IMPORT_ACTIONS(IMPORT_ENUM_ACTION) IMPORT_OTHER };

/* Private pools are numbered from IMPORT_POOL_PRIVATE in order of appearance; the last number stands for all beyond. */
enum import_pool { IMPORT_POOL_UNKNOWN, IMPORT_POOL_DEFAULT, IMPORT_POOL_PRIVATE, IMPORT_POOL_LAST = UINT16_MAX };

struct import_snapshot_event {
    const struct import_list *frames; /* NULL none */
    int64_t time_us;                  /* INT64_MIN unknown */
    uint64_t address;                 /* OOM: what was free of the device */
    uint64_t stream;
    int64_t bytes, requested; /* requested: of ALLOC and FREE */
    uint8_t action, device;
    uint16_t pool;
    bool later; /* FREE, COMPLETED: another stream used the block; not one right after the other */
};

/* A block or a segment at some moment; bytes 0: no longer. */
struct import_snapshot_piece {
    uint64_t address, stream;
    int64_t bytes, requested; /* requested: of a block; 0 unknown */
    const struct import_list *frames;
    uint8_t device;
    uint16_t pool;
    bool pending; /* freed, and waiting for other streams */
    bool mapped;  /* of an expandable segment */
};
struct import_snapshot_pieces {
    struct import_snapshot_piece *list;
    size_t n, cap;
};

struct import_snapshot_note { /* of external_annotations */
    int64_t time_us;
    const char *name;
    bool ends;
    int device;
};

/* What segments state, and what their blocks add up to. */
#define IMPORT_TOTALS(X) X(ALLOCATED, "allocated") X(ACTIVE, "active") X(REQUESTED, "requested") X(RESERVED, "reserved")
#define IMPORT_ENUM_TOTAL(symbol, word) IMPORT_TOTAL_##symbol,
enum import_total { IMPORT_TOTALS(IMPORT_ENUM_TOTAL) IMPORT_TOTALS_N };
struct import_snapshot_total {
    int64_t stated, computed;
    uint64_t segments; /* that state something else than their blocks add up to */
};

struct import_snapshot {
    struct import_pickle *pickle;
    const char *settings; /* PYTORCH_CUDA_ALLOC_CONF, NULL unknown */
    const char *torch;    /* a version of PyTorch that writes such members, NULL unknown */
    bool has_pool_ids;    /* in events */
    struct import_snapshot_event *events;
    size_t events_n, events_cap;
    const char *skipped; /* events that the program did not record: without them the others were dropped. NULL: none */
    bool timed;
    struct import_snapshot_pieces segments, blocks;
    struct import_snapshot_note *notes; /* in order of time */
    size_t notes_n, notes_cap;
    struct import_snapshot_total totals[IMPORT_TOTALS_N];
    uint64_t segments_n, refused; /* refused: segments, blocks and events that make no sense */
    struct map pools;             /* segment_pool_id → enum import_pool */
    uint32_t private_n;           /* private pools */
    struct import_snapshot_shapes *shapes;
};

/* False and a line in `error`: it is not a snapshot. Either way, import_snapshot_release. */
bool import_snapshot_read(struct import_snapshot *s, const char *path, import_progress_fn progress, void *self,
                          char *error, size_t error_size);
void import_snapshot_release(struct import_snapshot *s);

#endif
