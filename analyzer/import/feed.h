/* Turns the events of an imported recording into a run.db, with the same store as the recorder. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct import_feed;

struct import_source {
    const char *format;     /* "PyTorch snapshot": the name in notes */
    const char *file;       /* name of the file, without its folder */
    const char *run_id;     /* NULL: from the file; all processes of a run share it */
    const char *command;    /* NULL: from the file */
    uint32_t pid;           /* 0: unknown */
    uint64_t start_real_ns; /* the wall clock at time 0; 0: unknown */
    int64_t rank_plus_1;    /* of a distributed run; 0: unknown */
};

struct import_frame {
    const char *file, *function; /* NULL: unknown */
    const char *module;          /* of a native frame: the path of its library or program; NULL: unknown */
    int line;                    /* 0: unknown */
    bool python;
};

/* Creates the database `path`, which must not exist; NULL and a line in `error` on failure. */
struct import_feed *import_feed_start(const char *path, const struct import_source *source, char *error,
                                      size_t error_size);
/* `frames`: innermost first, at most IMPORT_DEPTH. Returns the number of the stack; 0: it has no frames. */
enum { IMPORT_DEPTH = 4096 };
uint32_t import_feed_stack(struct import_feed *f, const struct import_frame *frames, size_t n);
uint32_t import_feed_before(struct import_feed *f); /* the stack of what was allocated before the recording */

/* Adds a thread and returns its number; thread 1 exists from the start. Stacks and events belong to the thread that is
 * chosen when they are added. */
uint32_t import_feed_thread(struct import_feed *f, uint32_t tid, const char *name);
void import_feed_choose_thread(struct import_feed *f, uint32_t thread);
/* Adds a GPU; `total_bytes` 0: unknown. */
void import_feed_device(struct import_feed *f, int device, const char *name, uint64_t total_bytes);
/* The number of an entry point; equal names get equal numbers. 0: there are too many. */
uint16_t import_feed_api(struct import_feed *f, const char *name);

struct import_event {
    int64_t time_ns; /* not before the previous event */
    int device;
    uint32_t stack;
    uint16_t api;  /* 0: the default one */
    uint8_t space; /* enum gs_space; 0: device memory */
    uint64_t address, stream;
    int64_t bytes;
    int64_t requested;           /* of a tensor: at most `bytes`; 0: unknown */
    int64_t allocated, reserved; /* of the device after the event, from PyTorch's allocator */
    bool no_totals;              /* the allocator's totals are unknown */
    bool private_pool;           /* of a tensor: in a pool of a CUDA graph or MemPool */
    bool async;                  /* of a copy or fill: the call may return before it has finished */
    uint8_t host_memory;         /* of a copy: 1 + enum gs_host_memory; 0: derived from live pinned memory */
};

/* PyTorch's allocator allocated or freed a block; device -1: a CPU tensor. */
void import_feed_tensor(struct import_feed *f, const struct import_event *e, bool freed);
/* Before the tensor's free: other streams still use the memory, and the allocator does not reuse it before
 * import_feed_pending_end. */
void import_feed_pending(struct import_feed *f, const struct import_event *e);
void import_feed_pending_end(struct import_feed *f, const struct import_event *e);
/* The segment that contains the address is in the default pool, 0, or in a private one, from 1. */
void import_feed_pool(struct import_feed *f, const struct import_event *e, int64_t pool);
/* PyTorch's allocator allocated or freed a segment; `page` > 0: it is mapped in pages of this many bytes. */
void import_feed_segment(struct import_feed *f, const struct import_event *e, bool freed, int64_t page);
/* A copy of e->bytes that blocked the host for `blocked_ns`. UINT64_MAX: unknown; its row then has 0, and a note counts
 * it. `direction` is enum gs_direction. */
void import_feed_copy(struct import_feed *f, const struct import_event *e, uint8_t direction, uint64_t blocked_ns);
/* A fill of e->bytes; `blocked_ns` as for a copy. */
void import_feed_fill(struct import_feed *f, const struct import_event *e, uint64_t blocked_ns);
/* The host waited; `kind` is enum gs_sync_kind. */
void import_feed_wait(struct import_feed *f, const struct import_event *e, uint8_t kind, uint64_t blocked_ns);
/* A request that failed; free_bytes of the device, -1: unknown. */
void import_feed_failure(struct import_feed *f, const struct import_event *e, int64_t free_bytes);
/* A range of the program. `id` from 1, a different one for each range. */
void import_feed_range(struct import_feed *f, int64_t time_ns, uint64_t id, bool ended, const char *domain,
                       const char *name);
/* A mark of the program. */
void import_feed_moment(struct import_feed *f, int64_t time_ns, const char *domain, const char *name);
/* The recording lasted at least until then. */
void import_feed_until(struct import_feed *f, int64_t time_ns);
/* Counts rows of the source that were damaged and left out. */
void import_feed_damaged(struct import_feed *f, uint64_t rows);
void import_feed_setting(struct import_feed *f, const char *name, const char *value);
/* A row of meta, under "import." and the key. */
void import_feed_note(struct import_feed *f, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A sentence for every report of the recording; `number` from 1, a different one each time. */
void import_feed_remark(struct import_feed *f, uint32_t number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Finishes the database and frees the feed. If something could not be written: deletes the database, and returns false
 * and a line in `error`. */
bool import_feed_end(struct import_feed *f, char *error, size_t error_size);
