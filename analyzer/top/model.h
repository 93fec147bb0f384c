/* The model of a recording in progress, as gpuspy top shows it. One source per process.
 *
 * It reads only new data. Each update opens the database read-only for a short time (an open connection would keep the
 * recorder from closing its log at the end), reads the rows since the last update, and finds the live allocations that
 * have been freed. The recorder stores the live bytes by device and layer in the same transaction as the rows
 * (recovery_value *_live); allocations whose free is not found yet can only make the model's sum too large. So the
 * search, youngest first, ends when the sums agree, which proves that no free was missed. If it takes too long, it
 * continues at the next update, and `unfound_bytes` states how many freed bytes are still shown.
 *
 * An update reads the newest rows and then older ones, for a limited time: while it holds its transaction, the recorder
 * cannot shorten its log. Until all rows have been read, `unread_rows` counts the others, and sums over rows are too
 * small.
 *
 * Memory grows with the live allocations and the distinct stacks. Nothing is written.
 */
#pragma once

#include <sys/types.h>
#include "analyzer/run/run.h"
#include "analyzer/run/run_internal.h"
#include "analyzer/top/curve.h"
#include "schema/spool.h"

enum top_layer { TOP_DEVICE, TOP_TENSOR, TOP_PINNED, TOP_HOST, TOP_SHARED, TOP_LAYERS };
extern const char *const top_layer_words[TOP_LAYERS];

/* Sums over the last minute, in slots of five seconds. */
enum { TOP_SLOT_S = 5, TOP_SLOTS = 13, TOP_RATE_S = 10, TOP_WINDOW_S = 60 };
struct top_ring {
    int64_t newest; /* number of the slot */
    int64_t amount[TOP_SLOTS];
    uint32_t count[TOP_SLOTS];
};
struct top_sum {
    double seconds; /* to which the sum refers */
    int64_t amount;
    uint64_t count;
};
void top_ring_add(struct top_ring *ring, int64_t time_ns, int64_t amount, uint32_t count);
/* Of the last `seconds` before now_ns, and of the slot in which they began. */
struct top_sum top_ring_sum(const struct top_ring *ring, int64_t now_ns, int seconds);

/* The memory of a device, or of the host, in one layer. */
struct top_series {
    uint32_t source;
    int device; /* -1 for pinned and host */
    enum top_layer layer;
    int64_t bytes;
    uint64_t count;
    int64_t known;        /* live bytes according to the recorder, RUN_UNKNOWN */
    int64_t peak;         /* RUN_UNKNOWN */
    int64_t asleep;       /* bytes of live tensors that are asleep: `bytes` and `known` lack them */
    bool slept;           /* some were asleep at an update, or between two */
    int64_t sampled_ns;   /* of a device: when it last reported its use; RUN_UNKNOWN */
    int64_t after_sample; /* change of bytes since */
    struct top_ring ring; /* change of bytes, allocations */
    struct top_curve curve;
};

struct top_place {
    uint32_t series, stack; /* stack: of the run, RUN_NONE */
    int64_t bytes, before;  /* before: when top began */
    uint64_t count;
    int64_t last_ns; /* its last allocation; RUN_UNKNOWN: none within the window */
    struct top_ring ring;
};

/* The copies or waits of one stack. */
struct top_calls {
    uint32_t source, stack;
    int device;
    uint32_t kind; /* sync: enum gs_sync_kind; copy: direction | host memory << 3 | async << 5 */
    uint32_t api;
    uint64_t count;
    int64_t bytes, blocked_ns, last_ns;
    struct top_ring ring; /* bytes of copies; blocked ns of waits */
};

struct top_wait { /* one of the last */
    uint32_t source, stack, kind, api;
    int64_t start_ns, blocked_ns;
};

struct top_range { /* of NVTX, open */
    char name[96], domain[48];
    int64_t start_ns;
};

struct top_failure {
    uint32_t stack;
    int device;
    uint8_t layer;
    int64_t requested_bytes, free_bytes, time_ns;
    bool fatal;
};

struct top_device {
    int device;
    const char *name;
    int64_t total_bytes, free_bytes; /* RUN_UNKNOWN */
    int64_t sampled_ns;              /* the time of free_bytes, RUN_UNKNOWN */
    int64_t own_bytes, other_bytes;  /* of NVML; RUN_UNKNOWN */
    uint32_t other_pid;
    const char *other_name;
    int utilisation;        /* percent, -1 */
    int temperature;        /* °C, -1 */
    int64_t reserved_bytes; /* PyTorch's, RUN_UNKNOWN */
};

enum top_state {
    TOP_WAITING, /* nothing could be read yet */
    TOP_RECORDING,
    TOP_ENDED,   /* in order */
    TOP_DIED,    /* its rows are complete up to the last call */
    TOP_KILLED,  /* … are not: the rest is in its spool */
    TOP_TORN,    /* … and the spool no longer exists */
    TOP_DELETED, /* the database */
    TOP_UNREADABLE
};

enum { TOP_WAITS_MAX = 32, TOP_FAILURES_MAX = 4, TOP_RANGES_MAX = 8 };

/* How far a table with many rows has been read. */
#define TOP_NO_ROW INT64_MIN
enum top_rows { TOP_ROWS_ALLOCATION, TOP_ROWS_COPY, TOP_ROWS_SYNC, TOP_ROWS_N };
struct top_progress {
    int64_t newest; /* the table's last row at the last update */
    int64_t last;   /* the newest row that has been read */
    int64_t left;   /* rows up to this one were recorded before the first update, and have not been read yet */
};

struct top_alive { /* a row of allocation_row that has not ended, as far as known */
    int64_t id, bytes, alloc_ns;
    uint64_t address;
    uint32_t place; /* RUN_NONE: it has */
    bool asleep;    /* its memory is unmapped: it counts nowhere (asleep.c) */
};

struct top_source {
    struct run_database db;
    struct run_names_seen names;
    size_t named; /* frames among which cells of notebooks have their names */
    dev_t file_device;
    ino_t file_inode;
    enum top_state state;
    char why[512]; /* UNREADABLE, WAITING */
    uint32_t pid;
    int64_t rank, start_real_ns, start_mono_ns; /* RUN_UNKNOWN */
    const char *command, *cwd, *host, *run_id;
    uint64_t lost_events, events;
    int64_t end_ns;        /* of the shown data: the last event that was read, or the end */
    int64_t clock_ns;      /* since its start, at the update */
    int64_t fresh_ns;      /* up to this time nothing is missing */
    int64_t now_ns;        /* the moment for which it is shown */
    int64_t age_ns;        /* maximum age of the data; 0: nothing waits in the spool */
    int64_t waiting_bytes; /* in the spool, not in the database yet */
    ARENA_LIST(struct top_device, devices);
    struct top_failure failures[TOP_FAILURES_MAX]; /* newest first */
    size_t failures_n;
    uint64_t failures_total;
    struct map backwards;   /* by the id of a failure: the stack that called backward() + 1; 0 none */
    uint64_t failures_seen; /* seen by the program: without those after which PyTorch's allocator frees its cache and
                               retries */
    struct top_wait waits[TOP_WAITS_MAX]; /* the last ones, a ring: next is the oldest */
    size_t waits_next;
    struct top_range ranges[TOP_RANGES_MAX]; /* the first that were opened */
    size_t ranges_n, ranges_total;
    struct top_alive *alive; /* by id */
    size_t alive_n, alive_cap, cursor;
    int64_t unfound_bytes;
    const char *format; /* of another tool's recording, "PyTorch snapshot"; NULL: gpuspy's own */
    bool lacks[RUN_FACT_N];
    const char *no_memory; /* why its memory is unknown; NULL: it is known */
    bool no_rates;         /* it has one moment only, or no times */
    bool loaded, finished;
    int64_t reloaded_ns;   /* CLOCK_MONOTONIC */
    int64_t curve_from_ns; /* since when the curves are known */
    struct top_progress read[TOP_ROWS_N];
    int64_t first_ns;    /* end_ns at the first update */
    int64_t freed_ns;    /* rows of the first update that were freed before count nowhere */
    int64_t unread_rows; /* at most; 0: everything has been read */
    bool before_known;   /* the places' `before` is complete */
    bool partly_read;    /* an error ended an update within a piece: some of its rows are counted already */
    int64_t last_sample, last_reserved;
};

struct top_model {
    struct run *run; /* only for names */
    ARENA_LIST(struct top_source, sources);
    ARENA_LIST(struct top_series, series);
    ARENA_LIST(struct top_place, places);
    struct map place_map;
    struct top_calls *copies, *syncs;
    size_t copies_n, copies_cap, syncs_n, syncs_cap;
    struct map copy_map, sync_map;
    int64_t began_ns; /* CLOCK_MONOTONIC: when top began */
    int64_t turn_ns;  /* how long an update may read rows of one recording, in pieces of `piece` rows */
    int64_t piece;
};

struct top_model *top_model_new(run_symbol_fn symbol, void *symbol_data);
void top_model_free(struct top_model *m);
/* A database, being recorded or not: it is read at the next update. */
void top_model_add(struct top_model *m, const char *path);
/* By rank, before the first update. */
void top_model_sort(struct top_model *m);
/* The run of a database, and whether it is still being recorded. False: it cannot be read (yet). */
bool top_peek(const char *path, char *run_id, size_t size, bool *recording);
/* Reads the new rows of all of them, and older ones for turn_ns. `budget_ns`: how long the search for frees may take,
 * 0: no limit. True while one of them still records. */
bool top_model_update(struct top_model *m, int64_t budget_ns);
int64_t top_model_unread(const struct top_model *m); /* rows that updates will read */
/* Updates until everything has been read; while a process still records, for at most limit_ns. */
bool top_model_update_whole(struct top_model *m, int64_t limit_ns);
const char *top_api(const struct top_model *m, const struct top_source *s, uint32_t api); /* "" unknown */
struct top_series *top_series_find(const struct top_model *m, uint32_t source, int device,
                                   enum top_layer layer); /* NULL: none */

/* Declarations that the files of the model share: asleep.c, model.c, rows.c, series.c. */
uint32_t top_series_at(struct top_model *m, uint32_t source, int device, enum top_layer layer);
struct top_device *top_device_at(struct top_source *s, int device);
void top_begin_block(struct top_model *m, uint32_t place, int64_t bytes, int64_t time_ns);
void top_end_block(struct top_model *m, uint32_t place, int64_t bytes, int64_t time_ns);
void top_asleep_update(struct top_model *m, uint32_t source);   /* which tensors are asleep now */
void top_asleep_subtract(struct top_model *m, uint32_t source); /* from the recorder's figures, newly read */
void top_asleep_end(struct top_model *m, struct top_alive *a);  /* a tensor that is asleep was freed */
bool top_rows_read(struct top_model *m, uint32_t source, bool final, int64_t budget_ns, char *error, size_t error_size);

/* spool_look.c: the spool beside a database, read without changing it. */
struct top_spool {
    bool exists, owned; /* owned: its process is running and records into it */
    bool foreign;       /* another gpuspy's: it cannot be read */
    uint32_t pid;
    int64_t start_mono_ns;
    int64_t waiting_bytes; /* beyond `progress` */
};
void top_spool_read(const char *database, const struct gs_progress *progress, uint32_t threads, struct top_spool *out);
