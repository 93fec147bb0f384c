/* Turns events into rows. Only this module writes to the database: the drain calls it in the recorded process, and the
 * analyzer calls it to complete the spool of a process that died. Both produce the same rows. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "schema/event.h"
#include "schema/spool.h"

#define GS_SCHEMA_VERSION 3
#define GS_APPLICATION_ID 0x67707379 /* "gpsy": distinguishes a gpuspy database from other SQLite files */
#define GS_DEVICES_MAX 64

/* allocation.kind and copy.kind. The views in gpuspy.sql unpack them with the same arithmetic. The thread's part may be
 * negative, so it is multiplied instead of shifted. */
#define GS_ALLOCATION_KIND(layer, space, device, api, thread) \
    (((int64_t)(thread)-2) * (1 << 23) +                      \
     (((layer)&3) | ((space)&7) << 2 | (((device) + 1) & 127) << 5 | ((api)&2047) << 12))
/* allocation_row.bytes, which the views unpack, too. It holds the sizes of the block and of the request, as a negative
 * number, if both are known. It holds one size, as a positive number, if `extra` is GS_EXTRA_UNKNOWN, or if the block
 * is not a multiple of 512 bytes: PyTorch's caching allocator makes no such block. */
enum { GS_BLOCK_UNIT = 512, GS_REQUEST_BITS = 40 };
static inline int64_t gs_bytes_pack(uint64_t bytes, uint32_t extra)
{
    const uint64_t requested = bytes - extra, more = extra / GS_BLOCK_UNIT;
    if (extra == GS_EXTRA_UNKNOWN || extra >= bytes || bytes % GS_BLOCK_UNIT || requested >> GS_REQUEST_BITS)
        return bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
    return -(int64_t)(requested | more << GS_REQUEST_BITS);
}
/* Returns the block's size. *extra is GS_EXTRA_UNKNOWN if the request is not known. A negative number that
 * gs_bytes_pack did not make stays negative or yields an arbitrary size. */
static inline int64_t gs_bytes_unpack(int64_t kind, int64_t packed, uint32_t *extra)
{
    *extra = GS_EXTRA_UNKNOWN;
    if (packed >= 0 || (kind & 3) != GS_LAYER_TENSOR) return packed;
    const uint64_t n = 0 - (uint64_t)packed, requested = n & (((uint64_t)1 << GS_REQUEST_BITS) - 1);
    const uint64_t rounded = (requested + GS_BLOCK_UNIT - 1) / GS_BLOCK_UNIT * GS_BLOCK_UNIT;
    const uint64_t bytes = rounded + (n >> GS_REQUEST_BITS) * GS_BLOCK_UNIT;
    if (bytes - requested < GS_EXTRA_UNKNOWN) *extra = (uint32_t)(bytes - requested);
    return (int64_t)bytes;
}
#define GS_COPY_KIND(direction, host_memory, async, device, api, thread) \
    (((int64_t)(thread)-2) * (1 << 24) +                                 \
     (((direction)&7) | ((host_memory)&3) << 3 | ((async)&1) << 5 | (((device) + 1) & 127) << 6 | ((api)&2047) << 13))

struct gs_store;

struct gs_store_info {
    const char *run_id;
    const char *command;
    const char *host;
    uint32_t pid, ppid;
    uint64_t start_real_ns;                 /* wall-clock time at time 0 */
    int rank;                               /* RANK, LOCAL_RANK or OMPI_COMM_WORLD_RANK; -1: unknown */
    const char *cwd, *exe, *python_version; /* may be NULL */
    int sources;                            /* 1: store the program's Python files; -1: the user forbids it */
    uint64_t keep;                          /* the limit of the recording's size, see gs_store_keep; 0: none */
};

struct gs_summary {
    uint64_t events, lost;
    uint32_t devices;
    struct {
        uint64_t device_peak; /* in bytes, of layer device; pinned memory does not count */
        uint64_t tensor_peak; /* layer tensor */
        uint64_t used;        /* 0: this device index had no event */
    } device[GS_DEVICES_MAX];
    uint64_t host_peak; /* CPU tensors */
    uint64_t pinned_peak;
    uint32_t ooms, fatal_ooms;
};

/* Creates the database at `path`, which must not exist. On failure returns NULL and one line in `error`. */
struct gs_store *gs_store_create(const char *path, const struct gs_store_info *info, char *error, size_t error_size);
/* Opens a database that is unfinished and loads its state: live allocations, each thread's numbers of frames and
 * stacks, and the progress. Allocates `progress`, indexed by thread number. */
struct gs_store *gs_store_resume(const char *path, struct gs_progress **progress, uint32_t *threads, char *error,
                                 size_t error_size);

/* Adds one record. The caller passes the records of all threads in order of time. Rows stay in memory until
 * gs_store_commit. A record that contradicts earlier ones (a free of an unknown address, a number without a definition)
 * is kept as far as possible and counted in `meta`. Returns 0, or -1 with gs_store_error. */
int gs_store_add(struct gs_store *s, uint32_t thread, const struct gs_rec *rec);
/* The record will be added soon: requests the memory that this will read first, so that the waits for it overlap. */
void gs_store_expect(const struct gs_store *s, const struct gs_rec *rec);
/* Writes the rows, and how far each thread's records were read, in one transaction. `r` NULL: the records do not come
 * from a spool. After a failure the database is as after the last commit, the rows stay in memory, and a later commit
 * may succeed; the caller must not release the spool's chunks. */
int gs_store_commit(struct gs_store *s, const struct gs_reader *r);
/* Number of rows that wait for the next commit. */
uint64_t gs_store_pending(const struct gs_store *s);
/* Whether the spool's counters changed since the last commit. The next commit writes them, too. */
bool gs_store_counted(const struct gs_store *s, const struct gs_reader *r);
/* Bounds the database and its log from now on: to `bytes` (at least GS_KEEP_MIN), or with GS_KEEP_SIZE to their current
 * size. gs_store_trim then removes old rows. A later call can only lower the bound. */
#define GS_KEEP_MIN (32ull << 20)
#define GS_KEEP_SIZE 0
int gs_store_keep(struct gs_store *s, uint64_t bytes);
/* For a bounded recording: whether the log or the database is nearly full while other programs that read the database
 * keep SQLite from restarting the log. The caller should then leave records in the spool. A commit that happens anyway
 * stores its rows as totals if the log has no room for them. */
bool gs_store_held(struct gs_store *s);
/* Call it after a commit, with no row pending. If the database has nearly reached its bound, removes a part of the old
 * rows in a transaction of about 50 ms, or in several until new rows fit. keep.sql describes what it removes and what
 * remains. */
enum gs_trim {
    GS_TRIM_FAILED = -1,
    GS_TRIM_DONE,
    GS_TRIM_MORE,
    GS_TRIM_FULL, /* no more rows may be removed; meta.stopped records it */
    GS_TRIM_READ  /* a reader has kept the log until it filled up; meta.stopped records it */
};
enum gs_trim gs_store_trim(struct gs_store *s);
/* Calls `pause` after every so many steps of a statement, where SQLite holds no lock, and after each source file that
 * was stored; it returns 0. */
void gs_store_pauses(struct gs_store *s, int steps, int (*pause)(void *));
/* Completes the recording. Lifetimes that did not end stay open (free_ns NULL), OOMs without a later success are fatal,
 * the recovery tables are dropped, and the log is merged into the file. Creates no index: each would make the file
 * larger by half a table, and the analyzer reads in order of id. `complete` false: the process died, which table
 * process records. `end_ns` 0: the time of the last event. */
int gs_store_finish(struct gs_store *s, uint64_t end_ns, bool complete, uint64_t lost, uint64_t lost_first_ns,
                    uint64_t damaged);
/* Records in meta.stopped why the recording ends before the program. */
int gs_store_note_stop(struct gs_store *s, const char *why);
/* Takes over how the process ended; gs_store_finish writes it. Call it before that. */
void gs_store_exit(struct gs_store *s, const struct gs_spool_header *header);
/* Adds events that were dropped after gs_store_finish had closed the recording, for the report's first line. Ignores
 * errors. */
void gs_store_add_lost(const char *path, uint64_t events, uint64_t time_ns);
/* If the database was deleted: the number of events that were rows in it. 0: it still exists. */
uint64_t gs_store_vanished(struct gs_store *s);
/* How much of its disk a recording leaves free if GPUSPY_MIN_FREE is not set: 5 %, at most 1 GiB. The program needs the
 * disk, too, and its checkpoint must not fail because of its recording. */
static inline uint64_t gs_disk_floor(uint64_t total)
{
    const uint64_t part = total / 20, most = (uint64_t)1 << 30;
    return part < most ? part : most;
}
/* The size of the database's disk, and how much of it the user can still write, in bytes. False: unknown. */
bool gs_store_disk(struct gs_store *s, uint64_t *total, uint64_t *free_bytes);
const struct gs_summary *gs_store_summary(struct gs_store *s);
const char *gs_store_error(const struct gs_store *s);
void gs_store_close(struct gs_store *s);
/* Removes the database and its log. No process may have them open. */
void gs_store_remove(const char *path);

/* Completes `db_path` from the spool beside it (db_path + ".spool") if the spool exists and its process is gone, then
 * removes the spool. Returns 1: completed; 0: nothing to do, or the spool's memory is lost (with it the last moments;
 * the database stays unfinished); 2: still recording, *pid says which process; -1: failed, one line in `error`, and the
 * spool stays. After a failure in a read-only folder the caller can still read what the database has. Merges the log of
 * a finished recording, which remains beside it if a program read it when it ended. */
int gs_recover(const char *db_path, uint32_t *pid, char *error, size_t error_size);
/* Completes a copy of the database from the spool beside the original; that spool stays. */
int gs_recover_copy(const char *db_path, const char *spool_path, char *error, size_t error_size);
/* gs_recover in steps of about 20 ms, for a process that has other work. begin returns what gs_recover returns, sets
 * *out only if that is 1, and waits at most patience_s for another gpuspy that is completing the recording. step
 * returns 1: more to do; 0: done; -1: failed. end also abandons a recovery that is not done. */
struct gs_recovery;
int gs_recovery_begin(struct gs_recovery **out, const char *db_path, const char *spool_path, unsigned patience_s,
                      uint32_t *pid, char *error, size_t error_size);
int gs_recovery_step(struct gs_recovery *r, char *error, size_t error_size);
int gs_recovery_end(struct gs_recovery *r, char *error, size_t error_size);
void gs_recovery_forget(struct gs_recovery *r); /* in a forked child: the parent continues it */
