/* The spool: memory that the application's threads append to and the drain reads. It survives the
 * death of the process, because it is a System V shared memory segment: no file system can run out
 * of space under it, no process can truncate it, and it needs no descriptor.
 *
 *   segment = header page · counters · GS_SPOOL_CHUNKS chunks of GS_CHUNK_BYTES
 *   chunk = struct gs_chunk · records back to back
 *
 * Beside the database, `<db>.spool` is a small control file (struct gs_spool_control, mode 0600). It
 * names the segment and its owner. The recorder writes it with write(2) and closes it at once; no process
 * maps it. The process that completes the recording after the owner's death attaches the segment by its id,
 * and accepts it only if size, magic, version and cookie agree with the control file.
 *
 *   create   shmget(IPC_PRIVATE), shmat; control file written under a temporary name, then linked to
 *            its own name, which must not exist.
 *   alive    The owner still records if its process exists with the same start time, is not a zombie,
 *            and has the segment attached (exec detaches it). From another pid namespace: if any
 *            process has it attached.
 *   read     A process that completes the recording holds flock on the control file while it reads.
 *   end      The control file is unlinked, the segment removed (IPC_RMID).
 *   lost     A reboot, the end of the IPC namespace (its container is removed) or RemoveIPC at logout
 *            removes the segment. What the drain committed is in the database; the last
 *            GS_SPOOL_LOST_MS or so before the end are missing.
 *   orphans  A killed process whose recording is never read leaves its segment. gs_spool_create removes the
 *            oldest ones of the same user beyond GS_SPOOL_ORPHANS, or beyond GS_SPOOL_ORPHAN_BYTES of memory.
 *   refused  Without shmget (seccomp, kernel.shmmax, shmall or shmmni) the spool is private memory,
 *            and a kill loses what the drain has not committed.
 *
 * A chunk belongs to one writer at a time. The writer fills it, publishing each record by a release
 * store of `used`, then takes the lowest free chunk (a bit in the header's map, so that no more
 * chunks become resident than are in use at once). The reader gives a chunk back once everything
 * in it is committed to the database. Chunks carry a sequence number that only grows, and the
 * database stores, in the same transaction as the rows, how far each writer has been read
 * (struct gs_progress): so each record becomes a row exactly once, whichever process dies at any time.
 *
 * A writer has a number, its slot. When a thread ends, its writer is parked: it keeps its number, its
 * chunk and its definitions, and the next new thread adopts it. A GS_REC_THREAD states which thread uses
 * the slot from then on. A writer that is closed instead ends with a GS_REC_RESET, gives its
 * chunk up and its number back: the next writer with this number takes a chunk of a higher sequence
 * number, so the reader sees one writer after the other. `owner` of a chunk holds the id of the thread
 * that writes to it, or GS_CHUNK_PARKED.
 *
 * Memory order. Each row: the data that one side writes and the other relies on, and the atomic that orders them. On a
 * processor that reorders stores (aarch64) nothing else does. tests/e2e/test_memory_order.py lists every execution that
 * the C11 model allows for each row, with and without the order.
 *
 * - a record's bytes: `used`, released by the writer, acquired by the reader.
 * - `used`, once busy is clear: `busy`, release and acquire. An idle thread has published each record that has a time.
 * - thread, seq, busy, used: state TAKEN, release and acquire. If a chunk is seen as taken, all of them are valid.
 * - records that a thread published: next_seq, added with release, read with acquire before the chunks are read.
 * - all records of a chunk: state FULL or LAST, release and acquire; the writer's last access to the chunk.
 * - a chunk that the reader has finished: `taken`, its bit cleared with release, claimed with acquire and release.
 * - sequence numbers: `numbers`, returned with release, claimed with acquire; those of the next writer are higher.
 * - a writer that is parked before its thread ends: `owner`. The reader buries a thread that has ended by an exchange
 * of its id, which fails if the writer is parked or adopted.
 * - the key of a counter: `count`, added with release, acquired before the key is read.
 * - end_ns: `closed`, sequentially consistent.
 *
 * One pair is not ordered: a thread sets busy and then reads the clock without a fence, which would cost more than the
 * rest of an event. The reader can run between the two; GS_SLACK_NS allows for that (spool_read.c).
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "schema/event.h"

#define GS_SPOOL_MAGIC "gpuspy spool"
#define GS_SPOOL_VERSION 8
#define GS_SPOOL_COMMIT_MS 250 /* the drain commits this often … */
#define GS_SPOOL_LOST_MS 350   /* … and polls every 100 ms at most: at most this much is lost with the segment */
#define GS_SPOOL_ORPHANS 256   /* segments of dead processes that one user may leave */
#define GS_SPOOL_ORPHAN_BYTES (16 * GS_SPOOL_BYTES) /* and the memory that they may use. Most use some 100 KiB */
#define GS_SPOOL_HEADER_BYTES (4096 + GS_SPOOL_COUNTERS * 16)
#define GS_SPOOL_COUNTERS 1024
#define GS_CHUNK_BYTES (32 * 1024)
#define GS_SPOOL_CHUNKS                                                                                \
    1024                       /* 32 MiB: half of what gpuspy may hold in the target. Each thread that \
                                  records holds one, so this also bounds how many can at once */
#define GS_SPOOL_THREADS 65536 /* writers' numbers are below this; they are reused */
#define GS_SPOOL_BYTES (GS_SPOOL_HEADER_BYTES + (size_t)GS_SPOOL_CHUNKS * GS_CHUNK_BYTES)
/* Address space that the recorder may take: its library, threads and spool, and what glibc reserves for threads that
 * allocate. */
#define GS_ADDRESS_MIB 256
#define GS_SPOOL_MAP_WORDS (GS_SPOOL_CHUNKS / 64)

enum { GS_EXCEPTION_BYTES = 640, GS_PLACE_BYTES = 512 }; /* NUL included; longer ones are cut */

enum gs_chunk_state {
    GS_CHUNK_FREE = 0, /* or taken a moment ago and not yet described */
    GS_CHUNK_TAKEN,    /* its writer appends */
    GS_CHUNK_FULL,     /* complete; the writer continues in a later one */
    GS_CHUNK_LAST,     /* complete; the writer is closed and has no later one */
};

struct gs_spool_header {
    char magic[16];
    uint32_t version;
    uint32_t pid;
    uint64_t process_start_ticks; /* /proc/pid/stat field 22: detects a recycled pid */
    char run_id[40];              /* printable, NUL terminated */
    uint64_t start_mono_ns;       /* CLOCK_MONOTONIC at the session's start: time 0 */
    uint64_t start_real_ns;       /* CLOCK_REALTIME at the same moment */
    uint64_t cookie[2];           /* random; the control file has the same */
    uint64_t pid_namespace;       /* inode number; 0 unknown */
    uint32_t chunk_bytes;
    uint32_t chunks;
    _Atomic uint64_t next_seq;
    _Atomic uint32_t closed;                    /* 1: the session ended cleanly, no writer writes any more */
    _Atomic uint64_t lost;                      /* events that were dropped */
    _Atomic uint64_t lost_first_ns;             /* time of the first dropped one, 0 none */
    _Atomic uint64_t end_ns;                    /* time of the clean end */
    _Atomic uint64_t taken[GS_SPOOL_MAP_WORDS]; /* one bit per chunk: set by the writer that claims it, cleared when
                                                   the reader releases it */
    char command[2048];                         /* argv joined by spaces, cut if longer */
    _Atomic uint32_t drained;                   /* 1: the drain has moved some of it to the database */
    _Atomic uint32_t exit_status;               /* the low byte of exit's argument, plus 1; 0: exit was not called */
    char exception[GS_EXCEPTION_BYTES];         /* an uncaught Python exception, "ValueError: its message"; "" none */
    char exception_place[GS_PLACE_BYTES];       /* "train.py:31"; "" unknown */
    uint32_t collector_off;                     /* 1: Python's garbage collector was off at the exception */
};
_Static_assert(sizeof(struct gs_spool_header) <= 4096, "header fits its page");

/* Calls that are only counted (kernel and graph launches, queries), after the header's page: an open hash table of
 * GS_SPOOL_COUNTERS slots to which any thread adds without a lock. A slot is never freed and its count only grows; the
 * drain writes the difference since its last visit, so that a kill loses nothing. If no slot is left, the call is
 * counted without its stream (GS_COUNTER_ANY); some slots are reserved for that. */
struct gs_counter {
    _Atomic uint64_t key; /* gs_counter_key, 0 free */
    _Atomic uint64_t count;
};
#define GS_COUNTER_ANY 0xffffffffffffull /* stream */
/* stream: 48 bits of the handle; api: 11 bits; device: -1 … 13, and 14 for all above; not_ready: a query whose result
 * was "not ready". */
static inline uint64_t gs_counter_key(uint16_t api, int device, uint64_t stream, bool not_ready)
{
    const uint64_t on = device < 0 ? 0 : device > 13 ? 15 : (uint64_t)device + 1;
    return (stream & GS_COUNTER_ANY) | (uint64_t)(api & 2047) << 48 | on << 59 | (uint64_t)not_ready << 63;
}
/* A key is in one of GS_COUNTER_PROBES slots, starting with its own. */
#define GS_COUNTER_PROBES 16
static inline uint32_t gs_counter_slot(uint64_t key)
{
    return (uint32_t)((key ^ key >> 29) * 0x9e3779b97f4a7c15u >> 54); /* 10 bits */
}
static inline bool gs_counter_is_kept(uint32_t slot)
{
    return slot % 4 == 0;
}
static inline bool gs_counter_may_be_in(uint64_t key, uint32_t slot)
{
    return key && (slot - gs_counter_slot(key)) % GS_SPOOL_COUNTERS < GS_COUNTER_PROBES;
}

struct gs_chunk {
    _Atomic uint32_t state; /* enum gs_chunk_state */
    uint32_t thread;        /* writer's number, from 1 */
    uint64_t seq;           /* grows over the whole spool; a writer's chunks are read in this order */
    _Atomic uint32_t used;  /* bytes of records published */
    _Atomic uint32_t busy;  /* the writer is between taking a time and publishing: the reader must
                               not run past this thread (gs_reader) */
    _Atomic uint64_t owner; /* low half: the thread's id for the kernel, or GS_CHUNK_PARKED; high
                               half: how often the writer was adopted, so that a recycled id is
                               not taken for the same thread */
    uint32_t pad[8];
};
_Static_assert(sizeof(struct gs_chunk) == 64, "one cache line");
#define GS_CHUNK_PARKED 0

/* The file `<db>.spool`. Its first five members are at the same offsets as in older versions of gpuspy. */
struct gs_spool_control {
    char magic[16];
    uint32_t version;
    uint32_t pid;
    uint64_t process_start_ticks; /* 0: /proc could not be read */
    char run_id[40];
    uint64_t start_mono_ns, start_real_ns;
    uint64_t cookie[2];
    int32_t shmid; /* -1: private memory, at `address` in the owner */
    uint32_t pad;
    uint64_t address;
    uint64_t pid_namespace, ipc_namespace; /* inode numbers; 0 unknown */
    char boot_id[40];                      /* "" unknown */
    char host[256];
    char command[2048];
};

enum gs_spool_state {
    GS_SPOOL_RECORDING, /* its owner is alive */
    GS_SPOOL_LEFT,      /* its owner is dead, the segment exists */
    GS_SPOOL_LOST,      /* neither exists */
    GS_SPOOL_ELSEWHERE, /* on another host, or in another IPC namespace: cannot be attached from here */
};

struct gs_spool {
    int shmid; /* -1: private memory */
    uint64_t cookie[2];
    uint64_t control_device, control_inode; /* of the control file, if this process created it */
    int private_error;                      /* errno of shmget or shmat, if one of them failed */
    uint8_t *map;
    struct gs_spool_header *header;
    struct gs_counter *counters;
    _Atomic uint32_t stop;                           /* ended: no writer gets room any more */
    _Atomic uint32_t stuck;                          /* a writer waited without success: others do not wait until a
                                                        chunk is free */
    _Atomic uint32_t drain_alive;                    /* a full spool waits for the drain only while this is set */
    _Atomic uint64_t numbers[GS_SPOOL_THREADS / 64]; /* one bit per writer's number: in use */
};

/* --- made by the recorder ------------------------------------------------------------------ */

/* Creates the segment, and the control file `path` (must not exist) in one step: it appears under its name only when it
 * is complete. If shared memory is refused, s->private_error has the reason, and the spool is private memory. Returns 0
 * or an errno. `path` NULL: private memory without a control file, for tests. */
int gs_spool_create(struct gs_spool *s, const char *path, const char *run_id, const char *command,
                    uint64_t start_mono_ns, uint64_t start_real_ns);

/* Detaches; the segment and the control file stay. Also allowed in a forked child. */
void gs_spool_close(struct gs_spool *s);
/* The same while other threads may still write to it: what they write is discarded. */
void gs_spool_retire(struct gs_spool *s);

/* One thread's end of the spool. Only that thread may use it. Plain memory; all zeros means unopened. */
struct gs_writer {
    struct gs_spool *spool;
    struct gs_chunk *chunk;
    uint32_t thread;   /* number, from 1 */
    uint32_t used;     /* copy of chunk->used */
    uint64_t owner;    /* as in the chunk */
    bool held;         /* busy was set by gs_writer_busy: definitions committed meanwhile leave it */
    bool keeps_number; /* close keeps the number in use */
    bool impatient;    /* the reader's own: never waits for room, because only the reader frees any */
};

/* Gives the writer the lowest free number. Never fails; the first record takes a chunk. */
void gs_writer_open(struct gs_writer *w, struct gs_spool *s);

/* Room for `bytes` (multiple of 8, at most GS_CHUNK_BYTES/2), or NULL if the spool is full and stayed so (bounded wait
 * while the drain is alive), or has ended. The caller counts the loss (gs_spool_lost) if an *event* gets NULL. Marks
 * the writer busy until gs_writer_commit. No lock, no malloc; system calls only if the spool is full. Also NULL for a
 * writer that is not open. */
void *gs_writer_reserve(struct gs_writer *w, uint32_t bytes);
void gs_writer_commit(struct gs_writer *w, uint32_t bytes);
/* An event that is followed by others with the same time: the writer stays busy. */
void gs_writer_commit_more(struct gs_writer *w, uint32_t bytes);
/* Marks the writer busy before it takes a time for a later record. The commit of an event clears the mark (the commit
 * of a definition does not, so that a stack can be captured in between), and so does idle, if no event followed. */
void gs_writer_busy(struct gs_writer *w);
void gs_writer_idle(struct gs_writer *w);
/* The thread ends: its definitions become undefined (a GS_REC_RESET), its chunk may be reused once drained, and so may
 * its number. */
void gs_writer_close(struct gs_writer *w);
/* The thread ends and the writer stays as it is for a thread that adopts it: any thread, at any later time, which must
 * write a GS_REC_THREAD next. False: it has no chunk; close it instead. */
bool gs_writer_park(struct gs_writer *w);
void gs_writer_adopt(struct gs_writer *w);

void gs_spool_lost(struct gs_spool *s, uint64_t time_ns);
/* Removes the segment, and the control file unless its name now belongs to another recording. The memory stays until
 * gs_spool_close. */
void gs_spool_unlink(const struct gs_spool *s, const char *path);
/* Counts one call; false if there is no slot for it. Any thread, at any time between create and close; no lock, no
 * system call. */
bool gs_spool_count(struct gs_spool *s, uint64_t key);
/* After this no writer gets room; readers read to the end. */
void gs_spool_end(struct gs_spool *s, uint64_t end_ns);
/* Stores the status with which exit was called. */
void gs_spool_exit(struct gs_spool *s, int status);
/* Stores an exception that probably ends a Python program: both NUL terminated, cut to their fields. */
void gs_spool_exception(struct gs_spool *s, const char *exception, const char *place, bool collector_off);

/* --- read by the drain, or after a death ------------------------------------------------------ */

/* Reads a control file: 0, an errno, or EINVAL with a text in `error` if the file is not a control file, has another
 * version or is damaged. */
int gs_spool_read_control(const char *path, struct gs_spool_control *c, char *error, size_t error_size);
/* Must not be called for a spool into which the calling process still records. */
enum gs_spool_state gs_spool_state(const struct gs_spool_control *c);
/* Attaches the segment that the control file names. Returns 0, an errno, or EINVAL or EIDRM (it does not exist any
 * more) with a text in `error`. */
int gs_spool_open(struct gs_spool *s, const char *path, char *error, size_t error_size);
int gs_spool_peek(struct gs_spool *s, const char *path, char *error, size_t error_size); /* read-only */
/* The pid that still records into it, 0 if none does; 1 if the owner is in another pid namespace. */
uint32_t gs_spool_owner(const char *path);

struct gs_progress { /* how far one thread's records are in the database */
    uint64_t seq;
    uint32_t offset;
    uint64_t time_ns; /* the merge reached this time: earlier records never sort after it */
};

#define GS_SLACK_NS 1000000 /* younger records wait for the next poll, see spool_read.c */

struct gs_reader;
/* `start[thread]` for the first `threads` writers' numbers (index = number): where to continue. The reader validates
 * every length and number that it finds: a damaged record ends that chunk, and is counted (gs_reader_damaged). NULL:
 * out of memory. */
struct gs_reader *gs_reader_open(struct gs_spool *s, const struct gs_progress *start, uint32_t threads);
/* Finds out what has been published and how far it may be merged: records that sort before the returned watermark can
 * be read in order now. `now_ns` is taken before the call. final: no thread writes any more, read everything. */
uint64_t gs_reader_poll(struct gs_reader *r, uint64_t now_ns, bool final);
/* The next record of all threads, by time (a definition comes right before the event that needs it; for equal times,
 * the lower thread number first), or NULL if none is left below the watermark. Valid until the next gs_reader_release.
 * A record sorts by the time at which it was written, or shortly before: time_ns, for copies, sets and syncs time_ns +
 * blocked_ns, and never before the thread's previous record. */
const struct gs_rec *gs_reader_next(struct gs_reader *r, uint32_t *thread);
/* How far the thread's records have been read, to be stored in the same transaction as the rows. */
struct gs_progress gs_reader_progress(const struct gs_reader *r, uint32_t thread);
uint32_t gs_reader_threads(const struct gs_reader *r); /* highest thread number seen */
/* After the commit: returns chunks that were read to the end to the writers. */
void gs_reader_release(struct gs_reader *r);
/* Closes writers that ended without closing and frees what they hold: threads that recorded once more after their last
 * thread-specific destructor, or that had none. Parked writers stay. Only in their own process. */
void gs_reader_bury(struct gs_reader *r);
uint64_t gs_reader_damaged(const struct gs_reader *r);
/* The spool's GS_SPOOL_COUNTERS counters; not validated, and writers may be adding to them. */
const struct gs_counter *gs_reader_counters(const struct gs_reader *r);
/* The time given to the last poll, or the session's end if that was earlier. */
uint64_t gs_reader_now(const struct gs_reader *r);
/* Share of the chunks in use, 0..1: the drain works faster as it grows. */
double gs_reader_fill(const struct gs_reader *r);
void gs_reader_close(struct gs_reader *r);
