/* The store's state, and the functions that its files share:
 *
 *   store_open.c    opens the database, commits, finishes
 *   store_add.c     an event → rows in memory
 *   store_life.c    … lifetimes, and the totals of live memory
 *   store_mark.c    … NVTX ranges and marks
 *   store_sample.c  … NVML's samples
 *   store_vmm.c     … physical memory and its mappings
 *   store_graph.c   … memory of CUDA graphs, pools
 *   store_pending.c … tensors that were freed while another stream used them
 *   store_context.c … streams and contexts, and what the destruction of a context frees
 *   store_count.c   the spool's counters → rows
 *   store_oom.c     which failed allocations were fatal
 *   store_names.c   definitions: frames, stacks, modules, threads
 *   store_source.c  the text of the program's Python files
 *   store_rows.c    rows in memory → SQL
 *   store_feed.c    … the frequent ones, which SQLite reads by itself
 *   store_sql.c     the SQL statements and errors
 *   store_log.c     when the log's content moves into the database
 *   store_level.c   the totals over time, and the time of each peak
 *   store_scope.c   the peaks within ranges, by name
 *   store_course.c  the least that was live of each call path over time
 *   store_keep.c    old rows → totals, in a recording of bounded size
 *   store_load.c    an unfinished database → the same state in memory */
#pragma once

#include <sqlite3.h>
#include "schema/ranges.h"
#include "schema/source_file.h"
#include "schema/store.h"
#include "schema/store_course.h"
#include "schema/store_keep.h"
#include "schema/store_scope.h"
#include "schema/tables.h"

#define GS_STRING_OF(x) #x
#define GS_NUMBER(x) GS_STRING_OF(x) /* a macro's value, for SQL */
#define GS_PROCESS 1                 /* process.id: a database holds one process */
#define GS_OPEN (-1)                 /* life_ns of a lifetime that has not ended */
/* free_stack of a lifetime that has not ended. Its number reserves the bytes that life_ns and the stack id will need in
 * the database page, so that the end does not split a full page. */
#define GS_STACK_LATER UINT32_MAX
#define GS_CPU_CHECK GS_DEVICES_MAX /* index of the CPU in the checks of tensor totals */

struct gs_text { /* a string in gs_store.text */
    uint32_t at, length;
};

/* Rows that wait for the next commit. A stack id of 0 becomes NULL. */
struct gs_row_allocation { /* id = first_allocation + index */
    int64_t kind, address, bytes, alloc_ns, life_ns, stream;
    uint32_t alloc_stack, free_stack;
};
struct gs_row_end { /* the end of a lifetime that is committed; GS_OPEN: it did not end after all */
    int64_t id, life_ns;
    uint32_t free_stack;
};
struct gs_row_copy {
    int64_t kind, bytes, start_ns, blocked_ns, stream;
    uint32_t stack;
};
struct gs_row_memset {
    int64_t bytes, start_ns, blocked_ns, stream;
    uint32_t stack, thread;
    int16_t device;
    uint16_t api;
    bool async;
};
struct gs_row_sync {
    int64_t start_ns, blocked_ns, handle;
    uint32_t stack, thread;
    int16_t device;
    uint16_t api;
    uint8_t kind;
};
struct gs_row_oom { /* id = first_oom + index */
    int64_t requested, free, total, tensor_allocated, tensor_reserved, time_ns;
    uint32_t stack, thread;
    int16_t device;
    uint16_t api;
    uint8_t layer, space;
    bool fatal, capped;
};
struct gs_row_sample {
    int64_t time_ns, free, total;
    int16_t device;
    uint8_t source;
};
struct gs_row_reserved {
    int64_t time_ns, bytes;
    int16_t device;
};
struct gs_row_handle {                     /* id = first_handle + index */
    int64_t handle, create_ns, destroy_ns; /* -1: NULL */
    uint32_t stack;
    int16_t device;
    uint16_t api;
    uint8_t kind;
};
struct gs_row_moment { /* the end of a row that is committed; GS_OPEN: it did not end after all */
    int64_t id, time_ns;
};
struct gs_row_bytes { /* an imported allocation that turned out to be larger */
    int64_t id, bytes;
};
struct gs_row_owner {
    int64_t id;
    uint16_t context;
    int16_t home;
};
struct gs_row_object {
    int64_t id;
    uint32_t refs;
    bool named;
};
struct gs_row_mapping { /* id = first_mapping + index */
    int64_t allocation, address, bytes, offset, map_ns, unmap_ns;
    uint32_t stack;
    int16_t device;
};
struct gs_row_graph { /* id = first_graph + index */
    int64_t address, bytes, time_ns, freed_ns, stream;
    uint32_t stack, thread;
    int16_t device;
    uint16_t api;
};
struct gs_row_pending { /* id = first_pending + index */
    int64_t allocation, event, free_ns, done_ns;
    uint32_t event_stack, free_stack;
};
struct gs_row_pool {
    int64_t pool, time_ns, used, reserved;
    int16_t device;
    uint16_t api;
};
struct gs_row_allocator {
    int64_t time_ns, address, value;
    int16_t device;
    uint8_t kind;
};
struct gs_row_counter {
    uint64_t key, count, more;
    uint32_t slot;
};
struct gs_row_mark { /* id = first + index */
    int64_t start_ns, life_ns;
    uint64_t key; /* of a range: finds it again when its end is recorded */
    uint32_t name, domain, thread;
    uint8_t kind;
    bool lost; /* its end was not recorded, and no later end belongs to it */
};
struct gs_row_mark_end { /* of a committed range; GS_OPEN: its end was not recorded */
    int64_t id, life_ns;
};
struct gs_row_mark_name {
    struct gs_text name;
    uint32_t id;
};
struct gs_marks {
    GS_ARRAY(struct gs_row_mark) rows;
    GS_ARRAY(struct gs_row_mark_end) ends;
    GS_ARRAY(struct gs_row_mark_name) names;
    int64_t first;
    uint32_t last_name;
    struct gs_id_map name_ids;
    struct gs_live_map open; /* gs_live.layer: the mark's kind, gs_live.address: its key */
};
struct gs_row_device_sample {
    int64_t time_ns, free, total, own, other;
    struct gs_text name;
    uint32_t pid;
    int16_t device;
    uint8_t utilisation, memory_utilisation;
    uint8_t temperature; /* °C + 1; 0: unknown */
};
struct gs_row_frame {
    int64_t offset;
    struct gs_text function, file;
    uint32_t id, module;
    int32_t line;
    uint8_t kind;
};
struct gs_row_stack {
    uint32_t id, parent, frame, depth;
};
struct gs_row_module {
    struct gs_text path, build_id;
    uint32_t id;
};
struct gs_row_thread {
    struct gs_text name;
    uint32_t id, tid;
};
struct gs_row_api {
    struct gs_text name;
    uint32_t id;
};
struct gs_row_setting { /* a row of meta */
    struct gs_text key, value;
};
struct gs_row_device {
    int64_t total, free, seen_ns, physical; /* physical 0: the same as total */
    struct gs_text name;
    int16_t device;
};
enum { GS_NUMBER_FRAME, GS_NUMBER_STACK, GS_NUMBER_RESET };
struct gs_row_number {
    uint32_t thread, what, number, id;
};

/* Maps a thread's own numbers to ids. Then: the state of one thread. */
struct gs_numbers {
    uint32_t *ids;
    uint32_t count, highest;
};
struct gs_store_thread {
    struct gs_numbers frames, stacks;
    struct gs_live last_free; /* the lifetime that its last free ended; id 0: an unknown address */
    bool last_free_set;       /* a failed free can revert it */
    bool last_free_dirty;
    bool last_free_graph;     /* last_free.id is a row of graph_memory */
    struct gs_undo *undo;     /* its last unmapping or release; NULL: none yet */
    struct gs_progress saved; /* as in the database */
    uint32_t row;             /* row in table thread of the slot's current thread; 0: none yet */
};

struct gs_open_oom { /* a failed allocation that is fatal unless the thread recovers */
    int64_t id;
    uint64_t bytes;
    uint64_t live;           /* bytes of PyTorch's tensors when it failed; UINT64_MAX unknown */
    uint64_t got, saved_got; /* what the same thread got since, in bytes; as in the database */
    uint64_t tensors;        /* … and in how many tensors, since this process began to record */
    uint32_t thread;         /* row in table thread */
    int16_t device;
    uint8_t layer; /* layer of a success that would recover it */
    bool host;     /* pinned memory, which a success on the device does not recover */
};

struct gs_open_handle {
    uint64_t handle;
    int64_t id;
    uint8_t kind;
};

struct gs_check { /* compares PyTorch's total with gpuspy's, for one device or the CPU */
    uint64_t events, mismatches;
    int64_t running, first_ns, first_difference, last_difference;
    int64_t inherited; /* part of PyTorch's total: what the parent had when it forked, or what was allocated before
                          gpuspy attached */
    uint64_t listed;   /* the part of it that has rows, because PyTorch listed it when gpuspy attached */
    bool dirty;
};

enum gs_count { /* rows of meta */
                GS_COUNT_EVENTS,
                GS_COUNT_UNKNOWN_FREES,
                GS_COUNT_IMPLIED_FREES,
                GS_COUNT_FAILED_FREES,
                GS_COUNT_FREE_SIZE_DIFFERS,
                GS_COUNT_UNDEFINED,
                GS_COUNT_UNMATCHED_ENDS,
                GS_COUNTS
};

enum gs_statement {
    GS_SQL_ALLOCATION,
    GS_SQL_ALLOCATION_END,
    GS_SQL_COPY,
    GS_SQL_MEMSET,
    GS_SQL_SYNC,
    GS_SQL_OOM,
    GS_SQL_OOM_RECOVERED,
    GS_SQL_SAMPLE,
    GS_SQL_RESERVED,
    GS_SQL_CHECK,
    GS_SQL_HANDLE,
    GS_SQL_HANDLE_END,
    GS_SQL_MARK,
    GS_SQL_MARK_END,
    GS_SQL_MARK_NAME,
    GS_SQL_MARK_OPEN,
    GS_SQL_MARK_CLOSED,
    GS_SQL_DEVICE_SAMPLE,
    GS_SQL_MAPPING,
    GS_SQL_MAPPING_END,
    GS_SQL_BYTES,
    GS_SQL_GRAPH,
    GS_SQL_GRAPH_END,
    GS_SQL_POOL,
    GS_SQL_ALLOCATOR,
    GS_SQL_PENDING,
    GS_SQL_PENDING_END,
    GS_SQL_CALLS,
    GS_SQL_FRAME,
    GS_SQL_SOURCE_KNOWN,
    GS_SQL_SOURCE,
    GS_SQL_STACK,
    GS_SQL_MODULE,
    GS_SQL_THREAD,
    GS_SQL_API,
    GS_SQL_DEVICE,
    GS_SQL_META,
    GS_SQL_NUMBER,
    GS_SQL_NUMBER_RESET,
    GS_SQL_PROGRESS,
    GS_SQL_LAST_FREE,
    GS_SQL_VALUE,
    GS_SQL_OWNER,
    GS_SQL_OBJECT,
    GS_SQL_UNDO,
    GS_SQL_COUNTER,
    GS_SQL_LEVEL,
    GS_SQL_SCOPE,
    GS_SQL_REMOVED,
    GS_SQL_REMOVED_AFTER,
    GS_SQL_REMOVED_COURSE,
    GS_SQL_REMOVED_TIME,
    GS_SQL_COUNT
};

struct gs_store {
    sqlite3 *db;
    sqlite3_stmt *statements[GS_SQL_COUNT];
    int (*pause)(void *); /* gs_store_pauses; NULL: none */
    char error[512];
    bool finished;
    uint32_t exit_status; /* plus 1; 0: unknown */
    char exception[GS_EXCEPTION_BYTES], exception_place[GS_PLACE_BYTES];
    bool attached;      /* gpuspy attached to the running process */
    uint64_t listed_ns; /* when PyTorch listed its blocks; 0: it did not */
    bool collector_off;
    struct {
        bool stored;
        char *folder; /* that relative file names refer to; NULL: unknown */
        int64_t start_real_ns;
        struct gs_source_lists installed;
    } sources;

    GS_ARRAY(struct gs_row_allocation) allocations;
    GS_ARRAY(struct gs_row_end) ends, ends_sorted;
    GS_ARRAY(struct gs_row_copy) copies;
    GS_ARRAY(struct gs_row_memset) memsets;
    GS_ARRAY(struct gs_row_sync) syncs;
    GS_ARRAY(struct gs_row_oom) ooms;
    GS_ARRAY(int64_t) recovered_ooms; /* ids of committed rows */
    GS_ARRAY(struct gs_row_sample) samples;
    GS_ARRAY(struct gs_row_reserved) reserved;
    GS_ARRAY(struct gs_row_handle) handles;
    GS_ARRAY(struct gs_row_device_sample) device_samples;
    GS_ARRAY(struct gs_row_moment) handle_ends;
    GS_ARRAY(struct gs_row_owner) owners;
    GS_ARRAY(struct gs_row_object) object_rows;
    GS_ARRAY(struct gs_row_bytes) sizes;
    GS_ARRAY(struct gs_row_mapping) mappings;
    GS_ARRAY(struct gs_row_moment) mapping_ends;
    GS_ARRAY(struct gs_row_graph) graphs;
    GS_ARRAY(struct gs_row_moment) graph_ends;
    GS_ARRAY(struct gs_row_pool) pools;
    GS_ARRAY(struct gs_row_allocator) allocator_facts;
    GS_ARRAY(struct gs_row_pending) pendings;
    GS_ARRAY(struct gs_row_moment) pending_ends;
    GS_ARRAY(struct gs_row_counter) counters;
    GS_ARRAY(struct gs_row_frame) frames;
    GS_ARRAY(struct gs_row_stack) stacks;
    GS_ARRAY(struct gs_row_module) modules;
    GS_ARRAY(struct gs_row_thread) thread_rows;
    GS_ARRAY(struct gs_row_api) apis;
    GS_ARRAY(struct gs_row_device) devices;
    GS_ARRAY(struct gs_row_setting) settings;
    GS_ARRAY(struct gs_row_number) numbers;
    GS_ARRAY(char) text; /* the strings of the rows */
    int64_t first_allocation, first_oom, first_handle, first_mapping, first_graph, first_pending;
    uint64_t pending_events;

    GS_ARRAY(struct gs_store_thread) threads; /* index: the writer's slot in the spool */
    struct gs_marks marks;
    GS_ARRAY(struct gs_open_oom) open_ooms;
    GS_ARRAY(struct gs_open_handle) open_handles;
    struct gs_live_map live;
    struct { /* address ranges of the live device-level allocations, to classify copies */
        struct gs_ranges tree;
        bool known;       /* false: the next copy builds the tree */
        uint64_t changes; /* since the last copy */
    } places;
    struct gs_vmm *vmm;            /* physical memory and its mappings; NULL: none yet */
    struct gs_live_map events;     /* event for which a freed tensor waits → row of pending_free */
    struct gs_live_map graph_live; /* address → the latest row of graph_memory, freed or not */
    struct gs_counter_state {
        uint64_t key, count;
    } counted[GS_SPOOL_COUNTERS]; /* as in the database */
    uint64_t damaged_counters;
    int64_t counted_second;
    struct gs_id_map frame_ids, stack_ids, module_ids;
    uint32_t last_frame, last_stack, last_module, last_thread;

    uint64_t counts[GS_COUNTS], saved_counts[GS_COUNTS];
    uint64_t last_ns; /* time of the latest event */
    uint64_t device_now[GS_DEVICES_MAX];
    uint64_t host_now, pinned_now;
    int64_t last_reserved[GS_DEVICES_MAX]; /* -1: unknown */
    struct gs_check checks[GS_DEVICES_MAX + 1];
    unsigned log_pages; /* length of the log; 0: no program reads it and SQLite can restart it */
    unsigned long_logs; /* number of commits that left a long log */
    struct gs_levels levels;
    struct gs_scopes scopes;
    struct gs_courses courses;
    struct gs_keep keep;
    struct gs_summary summary, saved_summary;
    struct gs_live_bytes { /* live memory as in the database, for gpuspy top (recovery_value) */
        uint64_t device[GS_DEVICES_MAX], tensor[GS_DEVICES_MAX], host, pinned;
    } saved_live;
};

/* store_open.c: opens an existing database; sets `finished` if its recording is complete. */
struct gs_store *gs_store_open(const char *path, char *error, size_t error_size);

/* store_log.c */
void gs_store_log_start(struct gs_store *s);
#define GS_READERS_MS 200 /* how long the recorder waits for readers to end */
/* Whether the log is long and readers keep SQLite from restarting it for this long. */
bool gs_store_log_is_held(struct gs_store *s, int patience_ms);

/* store_keep.c: whether the log or the database is full and a reader keeps SQLite from restarting the log. */
bool gs_keep_is_tight(struct gs_store *s);
/* Does what gs_store_write_rows does, but stores only totals of allocations, copies, waits and memsets that ended. */
int gs_keep_write_coarse(struct gs_store *s, const struct gs_reader *r);
/* Calls of gs_remove (store_keep.c) for a row of a table, or for a row that waits for a commit. */
#define GS_KEEP_ALLOCATION(id, stack) "gs_remove(0," id ",kind&8388607," stack ",bytes,alloc_ns,life_ns)"
#define GS_KEEP_COPY(id, stack) \
    "gs_remove(1," id ",(kind&16777215)+((bytes>16)+(bytes>65536)<<24)," stack ",bytes,start_ns,blocked_ns)"
#define GS_KEEP_SYNC(id, stack) \
    "gs_remove(2," id ",kind+((coalesce(device,-1)+1)&127)*8+coalesce(api,0)*1024," stack ",0,start_ns,blocked_ns)"
#define GS_KEEP_MEMSET(id, stack)                                                                   \
    "gs_remove(3," id ",async+((coalesce(device,-1)+1)&127)*2+coalesce(api,0)*256," stack ",bytes," \
    "start_ns,blocked_ns)"

/* store_sql.c */
extern const char *const gs_count_names[GS_COUNTS];
int gs_store_fail(struct gs_store *s, const char *what); /* sets `error` with SQLite's reason; -1 */
int gs_store_no_memory(struct gs_store *s);              /* sets `error`; -1 */
int gs_store_sql(struct gs_store *s, const char *sql);   /* executes the statements: 0 or -1 */
int gs_store_write_text(struct gs_store *s, const char *key, const char *text); /* a row of meta, unless it is empty */
int gs_store_abandon(struct gs_store *s); /* rolls the transaction back and keeps `error`: -1 */
typedef int (*gs_row_fn)(struct gs_store *s, sqlite3_stmt *row);
int gs_store_each(struct gs_store *s, const char *sql, gs_row_fn fn); /* calls fn for each row until it returns -1 */
/* A prepared statement to bind, or NULL. gs_store_run executes it: 0 or -1. */
sqlite3_stmt *gs_store_statement(struct gs_store *s, enum gs_statement which);
int gs_store_run(struct gs_store *s, sqlite3_stmt *st);
int gs_store_take(struct gs_store *s, enum gs_statement which, size_t count); /* inserts the rows of a feed_… table */
void gs_bind_known(sqlite3_stmt *st, int at, int64_t n);                      /* binds NULL for a negative number */

/* store_names.c */
struct gs_store_thread *gs_store_thread(struct gs_store *s, uint32_t thread);
/* The thread_id of rows: the row of the thread that uses the slot now. */
uint32_t gs_store_thread_row(const struct gs_store *s, uint32_t slot);

/* store_life.c */
/* The check of the totals of a layer on a device, or NULL. */
struct gs_check *gs_store_check(struct gs_store *s, uint8_t layer, int device);
/* Adds (sign +1) or removes (-1) a lifetime: totals and address ranges, or totals only. */
void gs_store_track(struct gs_store *s, const struct gs_live *live, int sign);
void gs_store_track_bytes(struct gs_store *s, const struct gs_live *live, int sign);
/* The live device-level allocation that contains an address, or NULL. */
const struct gs_range *gs_store_find_place(struct gs_store *s, uint64_t address);
/* Adds a row of `allocation` for a lifetime that begins, and sets begin->id. `extra` as in gs_rec_tensor. */
int gs_store_begin_row(struct gs_store *s, uint32_t thread, const struct gs_rec *rec, struct gs_live *begin,
                       uint64_t stream, uint32_t extra, uint16_t api);
/* Records the end of a lifetime, or with life_ns GS_OPEN that it did not end. */
int gs_store_end_row(struct gs_store *s, uint64_t id, int64_t life_ns, uint32_t free_stack);
/* Ends a lifetime and removes `live`, an entry of s->live. */
int gs_store_end_lifetime(struct gs_store *s, struct gs_live *live, uint64_t time_ns, uint32_t stack);
/* Only damage makes numbers that SQLite's signed 64-bit integers cannot hold. */
static inline int64_t gs_whole(uint64_t n)
{
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}
static inline bool gs_on_host(uint8_t space, int device)
{
    return space == GS_SPACE_PINNED || space == GS_SPACE_HOST || (space == GS_SPACE_VMM && device < 0);
}
/* store_vmm.c */
int gs_store_add_vmm(struct gs_store *s, uint32_t thread, const struct gs_rec_vmm *rec);
/* Ends all physical memory of the device, and its mappings. */
int gs_vmm_end_device(struct gs_store *s, int device, uint64_t time_ns, uint32_t stack);
/* The mapping that contains an address, or NULL. */
const struct gs_range *gs_vmm_find(const struct gs_store *s, uint64_t address);
int gs_vmm_load_object(struct gs_store *s, const struct gs_live *live, uint32_t refs, bool named);
int gs_vmm_load_mapping(struct gs_store *s, int64_t id, int64_t object, const struct gs_range *at);
void gs_vmm_free(struct gs_store *s);
struct gs_undo_mapping {
    int64_t id, object;
    struct gs_range at;
};
struct gs_undo { /* what an unmapping or a release ended, to revert it if the call fails */
    bool set, dirty;
    uint8_t op; /* enum gs_vmm_op */
    uint64_t handle, address, bytes, time_ns;
    uint64_t object; /* RELEASE: the allocation's id; 0: none */
    GS_ARRAY(struct gs_undo_mapping) mappings;
    GS_ARRAY(struct gs_live) ended; /* physical memory that ended with it; address: its handle */
};
struct gs_undo *gs_vmm_undo(struct gs_store *s, uint32_t thread); /* NULL: out of memory */
/* store_graph.c */
int gs_store_graph_alloc(struct gs_store *s, uint32_t thread, const struct gs_rec_alloc *rec);
/* True if the address belongs to a graph: the free is recorded, and *rc is the result. */
bool gs_store_graph_free(struct gs_store *s, uint32_t thread, const struct gs_rec_free *rec, int *rc);
int gs_store_graph_end(struct gs_store *s, uint64_t id, int64_t time_ns);
int gs_store_add_pool(struct gs_store *s, const struct gs_rec_pool *rec);
int gs_store_add_allocator(struct gs_store *s, const struct gs_rec_allocator *rec);
/* store_pending.c */
int gs_store_add_pending(struct gs_store *s, uint32_t thread, const struct gs_rec_pending *rec);
/* An event has completed. Does nothing if no tensor waits for it. */
int gs_store_event_done(struct gs_store *s, uint64_t event, uint64_t time_ns);
int gs_store_load_pendings(struct gs_store *s);
/* store_context.c */
int gs_store_add_handle(struct gs_store *s, uint32_t thread, const struct gs_rec_handle *rec);
/* store_count.c: adds the counters' increase since the last commit to s->counters. */
int gs_store_read_counters(struct gs_store *s, const struct gs_reader *r);
/* store_oom.c */
int gs_store_add_oom(struct gs_store *s, uint32_t thread, const struct gs_rec_oom *rec);
/* An allocation of this thread succeeded: marks failures as recovered. */
int gs_store_recover_ooms(struct gs_store *s, uint32_t thread, const struct gs_live *live);
int gs_store_open_oom(struct gs_store *s, const struct gs_open_oom *oom);
/* store_names.c */
int gs_store_define(struct gs_store *s, uint32_t thread, const struct gs_rec *rec);
/* Records what PyTorch had allocated on the device before the first recorded event. */
int gs_store_note_attached(struct gs_store *s, int device, uint64_t bytes);
uint32_t gs_store_stack_id(struct gs_store *s, uint32_t thread, uint32_t number);
int gs_store_set_number(struct gs_store *s, uint32_t thread, uint32_t what, uint32_t number, uint32_t id);
int gs_store_add_text(struct gs_store *s, const char *text, size_t length, struct gs_text *out);
struct gs_content gs_store_python_key(const char *function, size_t function_len, const char *file, size_t file_len,
                                      int32_t line);
struct gs_content gs_store_native_key(uint32_t module, uint64_t offset);
struct gs_content gs_store_module_key(const char *path, size_t path_len, const char *build_id, size_t build_id_len);
struct gs_content gs_store_stack_key(uint32_t parent, uint32_t frame);
/* store_source.c */
int gs_store_open_sources(struct gs_store *s);
int gs_store_write_sources(struct gs_store *s); /* of the frames that wait for the commit; within a transaction */
void gs_store_free_sources(struct gs_store *s);
/* store_mark.c */
int gs_store_add_mark(struct gs_store *s, uint32_t thread, const struct gs_rec_mark *rec);
int gs_store_write_marks(struct gs_store *s);   /* within a transaction */
void gs_store_forget_marks(struct gs_store *s); /* after their commit */
int gs_store_load_marks(struct gs_store *s);
void gs_store_free_marks(struct gs_store *s);
/* store_sample.c */
int gs_store_add_device_sample(struct gs_store *s, const struct gs_rec_device_sample *rec);
int gs_store_write_device_samples(struct gs_store *s); /* within a transaction */
/* store_rows.c: within a transaction */
int gs_store_write_rows(struct gs_store *s, const struct gs_reader *r);
void gs_store_forget_rows(struct gs_store *s, const struct gs_reader *r); /* after their commit */
/* store_feed.c: the tables feed_…, which exist as long as the connection */
int gs_store_open_feeds(struct gs_store *s);
/* store_load.c */
int gs_store_load(struct gs_store *s, struct gs_progress **progress, uint32_t *threads);
