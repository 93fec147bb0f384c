/* Events of a foreign recording → a run.db, by the store that the recorder uses too. */
#ifndef GPUSPY_IMPORT_FEED_H
#define GPUSPY_IMPORT_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct import_feed;

struct import_source {
    const char *format;     /* "PyTorch snapshot": what notes call it */
    const char *file;       /* its name, without its folder */
    const char *run_id;     /* NULL: the file; the processes of one run share it */
    const char *command;    /* NULL: the file */
    uint32_t pid;           /* 0 unknown */
    uint64_t start_real_ns; /* the wall clock at time 0, 0 unknown */
    int64_t rank_plus_1;    /* of a distributed run, 0 unknown */
};

struct import_frame {
    const char *file, *function; /* NULL unknown */
    const char *module;          /* of a native frame: the path of its library or program, NULL unknown */
    int line;                    /* 0 unknown */
    bool python;
};

/* Makes the database `path`, which must not exist; NULL and a line in `error` where it cannot be. */
struct import_feed *import_feed_start(const char *path, const struct import_source *source, char *error,
                                      size_t error_size);
/* Frames innermost first, at most IMPORT_DEPTH of them; 0 of none. */
enum { IMPORT_DEPTH = 4096 };
uint32_t import_feed_stack(struct import_feed *f, const struct import_frame *frames, size_t n);

/* Threads are numbered from 1; thread 1 exists. A stack belongs to the thread that was chosen when it was made, and
 * so do events. */
uint32_t import_feed_thread(struct import_feed *f, uint32_t tid, const char *name);
void import_feed_choose_thread(struct import_feed *f, uint32_t thread);
/* A GPU; `total_bytes` 0 unknown. */
void import_feed_device(struct import_feed *f, int device, const char *name, uint64_t total_bytes);
/* An entry point's number, the same for the same name. 0: there are too many. */
uint16_t import_feed_api(struct import_feed *f, const char *name);

struct import_event {
    int64_t time_ns; /* not before the event that came before */
    int device;
    uint32_t stack;
    uint16_t api;  /* 0: the usual one */
    uint8_t space; /* enum gs_space; 0: device memory */
    uint64_t address, stream;
    int64_t bytes;
    int64_t requested;           /* of a tensor: at most bytes; 0 unknown */
    int64_t allocated, reserved; /* of the device, after the event, where PyTorch's allocator knows them */
    bool no_totals;              /* it does not know them */
    bool private_pool;           /* of a tensor: in a pool of a CUDA graph or MemPool */
    bool async;                  /* of a copy or fill: the call may return before it is done */
    uint8_t host_memory;         /* of a copy: 1 + enum gs_host_memory; 0: worked out from live pinned memory */
};

/* Memory that PyTorch's allocator handed out, and got back; of device -1, a CPU tensor. */
void import_feed_tensor(struct import_feed *f, const struct import_event *e, bool freed);
/* Before its tensor is freed: other streams still use the memory, and nobody gets it before import_feed_pending_end. */
void import_feed_pending(struct import_feed *f, const struct import_event *e);
void import_feed_pending_end(struct import_feed *f, const struct import_event *e);
/* The segment that holds the address is in the default pool, 0, or in a private one, from 1. */
void import_feed_pool(struct import_feed *f, const struct import_event *e, int64_t pool);
/* Memory that it asked the driver for, and gave back; `page` > 0: mapped in pages of so many bytes. */
void import_feed_segment(struct import_feed *f, const struct import_event *e, bool freed, int64_t page);
/* A copy that the host was `blocked_ns` in, UINT64_MAX if that is unknown: its row then has 0, and a note counts it.
 * `direction` is enum gs_direction. e->bytes. */
void import_feed_copy(struct import_feed *f, const struct import_event *e, uint8_t direction, uint64_t blocked_ns);
/* A fill of e->bytes, likewise. */
void import_feed_fill(struct import_feed *f, const struct import_event *e, uint64_t blocked_ns);
/* The host waited; `kind` is enum gs_sync_kind. */
void import_feed_wait(struct import_feed *f, const struct import_event *e, uint8_t kind, uint64_t blocked_ns);
/* A request that failed; free_bytes of the device, -1 unknown. */
void import_feed_failure(struct import_feed *f, const struct import_event *e, int64_t free_bytes);
/* A range of the program's own; `id` from 1, each used for one range. */
void import_feed_range(struct import_feed *f, int64_t time_ns, uint64_t id, bool ended, const char *domain,
                       const char *name);
/* A moment that the program marked. */
void import_feed_moment(struct import_feed *f, int64_t time_ns, const char *domain, const char *name);
/* The recording went on until then, at least. */
void import_feed_until(struct import_feed *f, int64_t time_ns);
/* So many more rows of the source made no sense and were left out. */
void import_feed_damaged(struct import_feed *f, uint64_t rows);
void import_feed_setting(struct import_feed *f, const char *name, const char *value);
/* A line of meta, under "import." and the key. */
void import_feed_note(struct import_feed *f, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A sentence for every report of the recording; `number` from 1, each used once. */
void import_feed_remark(struct import_feed *f, uint32_t number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Finishes the database and frees the feed. False and a line in `error` where something could not be written: the
 * database is gone then. */
bool import_feed_end(struct import_feed *f, char *error, size_t error_size);

#endif
