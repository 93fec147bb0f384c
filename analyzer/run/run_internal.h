/* Declarations that the files of the model share: run.c (opening), run_lists.c (accessors), database.c (one file),
 * load.c (the small tables), strings.c (numbers and texts), stacks.c (frames and stacks), replay.c (events); and top/,
 * which does not open a run as a whole. No other file includes this. */
#pragma once

#include <sqlite3.h>
#include <sys/types.h>
#include "analyzer/base/texts.h"
#include "analyzer/run/backward.h"
#include "analyzer/run/run.h"

/* Numbers of one database → numbers of the model. An array while the numbers are dense, as a recorder's are; other
 * numbers go into a map, so that a hostile number costs one slot, not memory of its size. */
struct run_ids {
    uint32_t *dense;
    size_t n, cap;
    struct map sparse;
};
void run_ids_set(struct run_ids *ids, int64_t id, uint32_t value);
uint32_t run_ids_get_sparse(const struct run_ids *ids, int64_t id);
void run_ids_free(struct run_ids *ids);
static inline uint32_t run_ids_get(const struct run_ids *ids, int64_t id) /* RUN_NONE: not found */
{
    return (uint64_t)id < ids->n && ids->dense[id] != RUN_NONE ? ids->dense[id] : run_ids_get_sparse(ids, id);
}

/* Ids of adjacent rows, and the time span of their lifetimes. */
struct run_rows_zone {
    int64_t first, last, begin_ns, end_ns; /* end_ns: RUN_NEVER if one was not freed */
};

struct run_database {
    char *path;            /* as the user named it */
    char *opened;          /* what is actually open: path, or a private copy */
    char *copy_folder;     /* of the private copy, removed at the end; NULL none */
    char copy_failed[512]; /* why there is no copy */
    int guard, guard_pipe; /* the process that removes it if this one is killed */
    sqlite3 *db;
    dev_t device; /* of `path`, with inode, to find a file that is named twice */
    ino_t inode;
    bool recording;
    bool immutable; /* opened without locks: nothing writes it */
    bool foreign;   /* another tool's: `opened` is the converted file */
    /* where the packed rows are: separate tables from schema version 2 on */
    const char *allocations, *copies;
    struct run_ids processes, stacks, apis;  /* apis: → index into run->api_names */
    ARENA_LIST(struct run_rows_zone, zones); /* of the table of allocations, by id (rows.c) */
    bool zoned;                              /* they cover all of it */
};

/* A code cell of a notebook, without secrets. */
struct run_cell {
    uint32_t hash; /* ipykernel's, of its text */
    const char *text;
    size_t length;
    const char *notebook; /* its file; NULL: several have this cell, and which one ran is unknown */
    size_t number;        /* of the notebook's code cells; 0: unknown */
    long count;           /* in the notebook's margin: In [5]; 0: unknown */
};

struct run_cell_name {
    const char *shown, *file;
};

struct run {
    struct run_options options;
    struct arena arena;
    ARENA_LIST(struct run_database, databases);
    struct texts strings;
    ARENA_LIST(struct run_process, processes);
    ARENA_LIST(struct run_device, devices);
    ARENA_LIST(struct run_oom, ooms);
    ARENA_LIST(struct run_sample, samples);
    ARENA_LIST(struct run_device_sample, device_samples);
    ARENA_LIST(struct run_mark_total, marks);
    ARENA_LIST(struct run_reserved, reserved);
    ARENA_LIST(struct run_mapping, mappings);
    ARENA_LIST(struct run_graph_memory, graphs);
    ARENA_LIST(struct run_pool_memory, pools);
    ARENA_LIST(struct run_allocator_fact, allocator_facts);
    ARENA_LIST(struct run_counted, counted);
    ARENA_LIST(struct run_tensor_check, checks);
    ARENA_LIST(struct run_thread, threads);
    ARENA_LIST(struct run_mapper, mappers);
    ARENA_LIST(struct run_removed, removed);
    ARENA_LIST(struct run_level, levels);
    struct run_removed_after {
        uint32_t process;
        struct run_removed removed;
        int64_t after_ns;
    } * removed_after;
    size_t removed_after_n, removed_after_cap;
    ARENA_LIST(struct run_removed_scope, removed_scopes);
    ARENA_LIST(struct run_removed_low, removed_lows);
    struct run_removed_time {
        uint32_t process;
        uint64_t allocations; /* that had begun by then */
        int64_t ns;
    } * removed_times;
    size_t removed_times_n, removed_times_cap;
    ARENA_LIST(struct run_context, contexts);
    ARENA_LIST(struct run_setting, settings);
    ARENA_LIST(const char *, notes);
    ARENA_LIST(const char *, api_names);
    struct map installed; /* source.c: files of installed packages, by the strings' addresses */
    ARENA_LIST(struct run_source_file *, sources); /* source.c: files that were requested */
    ARENA_LIST(struct run_cell, cells);            /* notebook.c: those of the notebooks in cells_folder */
    const char *cells_folder;
    ARENA_LIST(struct run_cell_name, cell_names);
    /* frames and stacks */
    ARENA_LIST(struct run_frame, frames);
    struct map file_notes; /* by the strings' addresses */
    struct map frame_map;  /* hash → first frame with it */
    uint32_t *frame_next;  /* chain of equal hashes */
    struct run_stack_node {
        uint32_t parent, frame, depth;
    } * stacks;
    size_t stacks_n, stacks_cap;
    struct map stack_map;                             /* parent, frame → stack */
    ARENA_LIST(const struct run_frame *, operations); /* run_operation_frame's, each once */
    struct run_backwards backward;
    /* replay */
    ARENA_LIST(struct run_series, series);
    uint32_t **series_of; /* by process: [(device + 1) * RUN_SERIES_LAYERS + layer] */
    ARENA_LIST(struct run_location, locations);
    struct map location_map;
    ARENA_ROWS(uint32_t, last_location); /* by stack; RUN_NONE none yet */
    struct run_replay *replay;           /* while one runs */
    bool replayed;                       /* one was begun */
    _Atomic bool stopped;                /* the replay that runs ends early */
    bool as_requested;                   /* run_replay_requests is running */
    const char *why_unknown[RUN_FACT_N];
    bool imported;
    uint64_t unblocked; /* copies of an import whose blocked time is unknown */
};

enum { RUN_DEVICE_SLOTS = 128 }; /* 7 bits in `kind`: -1 … 126 */
/* No sum of bytes that the model accepts can exceed this, so totals never overflow. */
#define RUN_BYTES_MAX ((int64_t)1 << 60)
/* The largest size or time accepted from a hostile file. */
static inline int64_t run_bounded(int64_t value)
{
    return value < 0 ? 0 : value > RUN_BYTES_MAX ? RUN_BYTES_MAX : value;
}

/* Writes a line to `error`; always returns false, for the caller's return. */
bool run_fail(char *error, size_t error_size, const char *format, ...) __attribute__((format(printf, 3, 4)));

enum { RUN_TEXT_MAX = 1 << 16 };
/* The text of a column as a string of the run. */
const char *run_column_text(struct run *run, sqlite3_stmt *st, int column);
/* The same for a command line, without secrets: an old recording may contain them. */
const char *run_column_command(struct run *run, sqlite3_stmt *st, int column);

static inline int64_t run_column_int(sqlite3_stmt *st, int column) /* NULL → RUN_UNKNOWN */
{
    return sqlite3_column_type(st, column) == SQLITE_NULL ? RUN_UNKNOWN : sqlite3_column_int64(st, column);
}

/* database.c */
/* Checks and opens; on success `db` is filled. Recovery has been tried before. */
bool run_database_open(struct run *run, struct run_database *db, const char *path, char *error, size_t error_size);
/* gs_recover, on a private copy if the folder does not allow it. 1 completed, 0 nothing to do, 2 recording, -1 error.
 * */
int run_database_recover(struct run_database *db, const char *path, char *error, size_t error_size);
/* Opens a database that is being recorded for a short time: read-only, at one moment of it. Close it soon with
 * run_database_end_read: while it is open, its log cannot restart from the beginning. */
bool run_database_begin_read(struct run_database *db, char *error, size_t error_size);
void run_database_end_read(struct run_database *db);
void run_database_close(struct run_database *db);
/* "file:…?query"; free the result. */
char *run_database_uri(const char *path, const char *query);
bool run_database_bad(const struct run_database *db, char *error, size_t error_size);
static inline bool run_finish_rows(struct run_database *db, sqlite3_stmt *st, int rc, char *error, size_t error_size)
{
    sqlite3_finalize(st);
    return rc == SQLITE_DONE || run_database_bad(db, error, error_size);
}
sqlite3_stmt *run_database_prepare(struct run_database *db, const char *sql);

/* Progress of a pass over the rows, reported every few thousand rows. */
enum { RUN_PROGRESS_EACH = 1 << 14 };
static inline void run_show_progress(const struct run *run, const char *what, uint64_t done, uint64_t total)
{
    if (run->options.progress && done % RUN_PROGRESS_EACH == 0)
        run->options.progress(run->options.progress_data, what, done, total);
}

/* load.c */
bool run_load(struct run *run, size_t database, char *error, size_t error_size);
/* load_removed.c */
struct run_removed run_removed_kind(uint8_t what, int64_t kind);   /* what enum gs_removed and its kind mean */
int64_t run_meta_number(struct run_database *db, const char *key); /* RUN_UNKNOWN: the key is missing */
void run_load_removed(struct run *run, struct run_database *db, uint32_t process);
void run_add_rejected(struct run *run, struct run_database *db, uint32_t process);      /* rejected.c */
void run_load_removed_lows(struct run *run, struct run_database *db, uint32_t process); /* removed_low.c */
void run_note_removed(struct run *run); /* when all processes are loaded */
void run_note_levels(struct run *run);  /* after it */
void run_load_finish(struct run *run);  /* when all are loaded: sorts */

/* source.c */
void run_load_installed(struct run *run, struct run_database *db);

/* stacks.c */
bool run_load_stacks(struct run *run, struct run_database *db, char *error, size_t error_size);
/* The same in parts, for a database that grows (gpuspy top): only rows since the last call. */
struct run_names_seen {
    int64_t module, frame, stack; /* the highest ids that were read; initially INT64_MIN */
    struct run_ids modules, frames;
    struct run_module_name {
        const char *path, *build_id;
        uint8_t rank;
    } * list;
    size_t list_n, list_cap;
};
bool run_load_names(struct run *run, struct run_database *db, struct run_names_seen *seen, char *error,
                    size_t error_size);
void run_names_seen_free(struct run_names_seen *seen);
/* The stack of that frame, called from `parent`; each once, after its parent. */
uint32_t run_frame_add(struct run *run, const struct run_frame *f); /* its number; texts must be run_text's */
uint32_t run_stack_add(struct run *run, uint32_t parent, uint32_t frame);
/* inlined.c. Sets the functions that were inlined in a frame; n below 2: nothing. */
void run_frame_set_inlined(struct run *run, struct run_frame *f, const struct run_symbol_place *places, size_t n);
/* Reads the rows that `gpuspy symbolize` wrote. Inconsistent rows are left out. */
void run_load_inlined(struct run *run, struct run_database *db, const struct run_ids *frames);
bool run_database_is_symbolized(struct run_database *db); /* symbolize has run */
void run_stacks_free(struct run *run);

/* run_job.c: are the processes from `from` on, all of one folder, one job: of one run, or the ranks of one world that
 * ran at the same time? Else false, and a line that names the runs. */
bool run_is_one_job(struct run *run, size_t from, const char *folder, char *error, size_t error_size);

/* run_ranks.c: whether the processes from `from` on, each of another tool's files in one folder, are the ranks of one
 * job; they get the ranks that their files' names state. Else false, and a line that names what contradicts it. */
bool run_are_ranks(struct run *run, size_t from, const char *folder, char *error, size_t error_size);
int64_t run_rank_of_name(const char *path); /* RUN_UNKNOWN */

/* replay.c */
void run_replay_free(struct run *run);

/* The cell that ran under this file's name, if a notebook in the folder has it; text NULL: none. */
struct run_cell run_notebook_cell(struct run *run, const char *file, const struct run_process *p);
const char *run_cell_file(const struct run *run, const char *name); /* as recorded */
/* cell_names.c. Names the cells of notebooks in all frames as IPython's tracebacks do, In [5], and puts the lines of
 * cells that ran under a magic such as %%time where they are in the cell. After everything else was loaded. */
void run_name_cells(struct run *run);
