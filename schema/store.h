/* Events → rows: the only SQL writer. Used by the drain in the target and, on a spool that a dead
 * process left, by the analyzer; both do exactly the same. Single-threaded. */
#ifndef GPUSPY_STORE_H
#define GPUSPY_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include "schema/event.h"
#include "schema/spool.h"

#define GS_SCHEMA_VERSION 3
#define GS_APPLICATION_ID 0x67707379 /* "gpsy": distinguishes a gpuspy database from other SQLite files */
#define GS_DEVICES_MAX 64

/* allocation.kind and copy.kind: the same arithmetic as the views in gpuspy.sql. The
 * thread's part may be negative, so it is shifted by multiplying. */
#define GS_ALLOCATION_KIND(layer, space, device, api, thread) \
    (((int64_t)(thread)-2) * (1 << 23) +                      \
     (((layer)&3) | ((space)&7) << 2 | (((device) + 1) & 127) << 5 | ((api)&2047) << 12))
/* allocation_row.bytes, likewise: of a block whose request is known, both. Block and request are one where `extra` is
 * GS_EXTRA_UNKNOWN, and of blocks that PyTorch's allocator does not make: of other sizes than units of 512 bytes. */
enum { GS_BLOCK_UNIT = 512, GS_REQUEST_BITS = 40 };
static inline int64_t gs_bytes_pack(uint64_t bytes, uint32_t extra)
{
    const uint64_t requested = bytes - extra, more = extra / GS_BLOCK_UNIT;
    if (extra == GS_EXTRA_UNKNOWN || extra >= bytes || bytes % GS_BLOCK_UNIT || requested >> GS_REQUEST_BITS)
        return bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
    return -(int64_t)(requested | more << GS_REQUEST_BITS);
}
/* *extra: GS_EXTRA_UNKNOWN. Other negative numbers than pack gives stay negative, or give some size. */
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
    uint64_t start_real_ns;                 /* wall clock at time 0 */
    int rank;                               /* RANK, LOCAL_RANK or OMPI_COMM_WORLD_RANK; -1 unknown */
    const char *cwd, *exe, *python_version; /* may be NULL */
    int sources;                            /* 1: the program's Python files are stored; -1: the user forbids it */
    uint64_t keep;                          /* bytes that the recording may have, see gs_store_keep; 0: any */
};

struct gs_summary {
    uint64_t events, lost;
    uint32_t devices;
    struct {
        uint64_t device_peak; /* bytes, layer device (pinned not counted) */
        uint64_t tensor_peak; /* layer tensor */
        uint64_t used;        /* 0: this device index had no event */
    } device[GS_DEVICES_MAX];
    uint64_t host_peak; /* CPU tensors */
    uint64_t pinned_peak;
    uint32_t ooms, fatal_ooms;
};

/* Creates the database at `path` (must not exist). On failure NULL and one line in `error`. */
struct gs_store *gs_store_create(const char *path, const struct gs_store_info *info, char *error, size_t error_size);
/* Opens one that was left unfinished and loads its state (live allocations, frame and stack numbers
 * of each thread, progress). `progress` is allocated, index = thread number. */
struct gs_store *gs_store_resume(const char *path, struct gs_progress **progress, uint32_t *threads, char *error,
                                 size_t error_size);

/* One record, in order of time over all threads. Keeps everything in memory until gs_store_commit.
 * A record that makes no sense (a free of an unknown address, a number without a definition) is
 * kept as far as it means something and counted in `meta`. 0, or -1 with gs_store_error. */
int gs_store_add(struct gs_store *s, uint32_t thread, const struct gs_rec *rec);
/* Rows, and how far each thread was read, in one transaction. `r` NULL: nothing is read from a spool.
 * On failure the database is as it was at the last commit, the rows wait on, and a later commit may
 * succeed; the spool's chunks must not be released. */
int gs_store_commit(struct gs_store *s, const struct gs_reader *r);
/* Rows that wait for the next commit: the drain commits by size and by time. */
uint64_t gs_store_pending(const struct gs_store *s);
/* The spool's counters have moved since the last commit, which writes that, too. */
bool gs_store_counted(const struct gs_store *s, const struct gs_reader *r);
/* Bounds the database and its log from now on: to `bytes` (at least GS_KEEP_MIN), or to their size now. gs_store_trim
 * then removes old rows. A bound only ever gets smaller. */
#define GS_KEEP_MIN (32ull << 20)
#define GS_KEEP_SIZE 0
int gs_store_keep(struct gs_store *s, uint64_t bytes);
/* Of a bounded recording: the log or the database is nearly full, and the log cannot start anew because other programs
 * read the database. Rows should wait in the spool. A commit that does not wait stores them as totals where the log has
 * no room for them. */
bool gs_store_held(struct gs_store *s);
/* After a commit, with nothing pending: removes a part of the old rows where the database has grown to its bound, in a
 * transaction of its own of some 50 ms; in several until there is room for more rows. What it removes and what of it
 * remains: table removed in gpuspy.sql. */
enum gs_trim {
    GS_TRIM_FAILED = -1,
    GS_TRIM_DONE,
    GS_TRIM_MORE,
    GS_TRIM_FULL, /* nothing is left that may go: meta.stopped says so */
    GS_TRIM_READ  /* somebody has read for so long that the log has no room left: likewise */
};
enum gs_trim gs_store_trim(struct gs_store *s);
/* The end: unfinished lifetimes stay open (free_ns NULL), OOMs without a later success are fatal,
 * recovery tables go, the journal is folded in. No index is made: in bytes each would cost half a
 * table again, and the analyzer reads in order of id. `complete` false: the process died (it says
 * so in `process`). `end_ns` 0: the last event's time. */
int gs_store_finish(struct gs_store *s, uint64_t end_ns, bool complete, uint64_t lost, uint64_t lost_first_ns,
                    uint64_t damaged);
/* Before gs_store_finish, which writes it: how the process ended. */
void gs_store_exit(struct gs_store *s, const struct gs_spool_header *header);
/* Events that were dropped after the end of a recording that gs_store_finish closed: for the report's
 * first line. Best effort. */
void gs_store_add_lost(const char *path, uint64_t events, uint64_t time_ns);
/* Events that were rows already in a database that somebody has deleted; 0 where it is still there. */
uint64_t gs_store_vanished(struct gs_store *s);
/* What a recording leaves free on its disk, where GPUSPY_MIN_FREE does not say it: the program needs the disk, too, and
 * its checkpoint must not fail because of its recording. */
static inline uint64_t gs_disk_floor(uint64_t total)
{
    const uint64_t part = total / 20, most = (uint64_t)1 << 30;
    return part < most ? part : most;
}
/* Bytes that the disk of the database has, and how many of them the user may still write. False: unknown. */
bool gs_store_disk(struct gs_store *s, uint64_t *total, uint64_t *free_bytes);
const struct gs_summary *gs_store_summary(struct gs_store *s);
const char *gs_store_error(const struct gs_store *s);
void gs_store_close(struct gs_store *s);

/* Completes `db_path` from the spool beside it (db_path + ".spool"), if there is one and its process
 * is gone, and removes the spool. Returns 1 completed, 0 nothing to do (or the spool's memory is gone with
 * the last moments; the database stays unfinished), 2 still recording (pid in
 * *pid), -1 failed with a line in `error`; the spool is kept then. A read-only folder is a failure
 * that the caller may survive by reading what the database has. */
int gs_recover(const char *db_path, uint32_t *pid, char *error, size_t error_size);
/* The same for a copy of the database, from the spool beside the original, which stays. */
int gs_recover_copy(const char *db_path, const char *spool_path, char *error, size_t error_size);
/* The same as gs_recover in steps of some 20 ms, for a process that has other work. begin returns the same
 * values, sets *out only with 1, and waits at most patience_s for another gpuspy that completes it; step returns
 * 1 more to do, 0 done, -1 failed; end also abandons it. */
struct gs_recovery;
int gs_recovery_begin(struct gs_recovery **out, const char *db_path, const char *spool_path, unsigned patience_s,
                      uint32_t *pid, char *error, size_t error_size);
int gs_recovery_step(struct gs_recovery *r, char *error, size_t error_size);
int gs_recovery_end(struct gs_recovery *r, char *error, size_t error_size);
void gs_recovery_forget(struct gs_recovery *r); /* in a forked child: the parent goes on with it */

#endif
