/* Opening a run: which files belong to it, and their undrained spools. */
#include "analyzer/run/run_internal.h"
#include "analyzer/base/each.h"
#include "analyzer/base/input.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/import/import.h"
#include "analyzer/base/sort.h"
#include "schema/spool.h"

/* The same file under any name: counted twice, it would double every figure. */
static bool is_open_already(const struct run *run, const char *path)
{
    struct stat st;
    bool found = false;
    if (stat(path, &st) != 0) return false;
    for (size_t i = 0; i < run->databases_n && !found; i++)
        found = run->databases[i].inode == st.st_ino && run->databases[i].device == st.st_dev;
    return found;
}

static void note_torn(struct run *run, const char *path)
{
    run_add_note(run,
                 "%s: the recording was cut off: about the last %d ms before the end are missing. The shared memory "
                 "that held them, or %s.spool, which names it, no longer exists",
                 path, GS_SPOOL_LOST_MS, path);
    if (!run->ooms_n) run->why_unknown[RUN_FACT_OUTCOME] = "the last events of the recording are missing";
}

static bool open_recording(struct run *run, const char *path, char *error, size_t error_size)
{
    char recovery[512] = "";
    struct stat st = {0};
    stat(path, &st);
    size_t at = run->databases_n;
    struct run_database *db = ARENA_ADD(run->databases);
    *db = (struct run_database){.device = st.st_dev, .inode = st.st_ino};
    int recovered = run_database_recover(db, path, recovery, sizeof recovery);
    if (!run_database_open(run, db, path, error, error_size) || !run_load(run, at, error, error_size)) return false;
    units_note_clock(!run->why_unknown[RUN_FACT_TIMES]);
    db = &run->databases[at];
    if (recovered < 0 && access(path, F_OK) == 0)
        run_add_note(run, "%s: its last events could not be read from the spool: %s", path, recovery);
    else if (run->processes_n && run->processes[run->processes_n - 1].torn)
        note_torn(run, path);
    if (db->recording) run_add_note(run, "%s: still recording; this is what was written so far", path);
    return true;
}

/* Removes the processes and databases of a sibling that does not belong to this run. Its frames and stacks may stay. */
static void run_forget(struct run *run, size_t databases, size_t processes)
{
#define FORGET(list) \
    while (run->list##_n && run->list[run->list##_n - 1].process >= processes) run->list##_n--;
    FORGET(devices)
    FORGET(ooms)
    FORGET(samples)
    FORGET(device_samples)
    FORGET(marks)
    FORGET(threads)
    FORGET(reserved)
    FORGET(mappings)
    FORGET(graphs)
    FORGET(pools)
    FORGET(allocator_facts)
    FORGET(counted)
    FORGET(checks)
    FORGET(mappers)
    FORGET(contexts)
    FORGET(removed)
    FORGET(levels)
    FORGET(removed_after)
    FORGET(removed_scopes)
    FORGET(removed_lows)
    FORGET(removed_times)
    FORGET(settings)
#undef FORGET
    run_backward_forget(run, processes);
    run->processes_n = processes;
    while (run->databases_n > databases) run_database_close(&run->databases[--run->databases_n]);
}

/* The other processes of the run to which the file belongs. One that cannot be read becomes a note, because the user
 * named only this file. */
static void open_siblings(struct run *run, const char *path)
{
    char error[1024];
    struct input_files found = input_siblings(path);
    const char *run_id = run->processes[run->processes_n - 1].run_id;
    for (size_t i = 0; i < found.n; i++) {
        size_t databases = run->databases_n, processes = run->processes_n;
        bool ok = open_recording(run, found.list[i], error, sizeof error);
        bool same = ok && strcmp(run->processes[processes].run_id, run_id) == 0;
        if (!ok) run_add_note(run, "another process of this run is missing here: %s", error);
        if (!same) run_forget(run, databases, processes);
    }
    input_files_free(&found);
}

static bool is_recording_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool any_name(const char *name, const char *stem)
{
    return name[0] != '.';
}

/* The databases of a folder or, if it has none, of the folders in it: runs/<host>/run.db. */
static bool list_runs(const char *folder, struct input_files *found)
{
    struct input_files inner = {0};
    if (!input_list(folder, input_is_database_name, NULL, found)) return false;
    if (found->n == 0) input_list(folder, any_name, NULL, &inner);
    for (size_t i = 0; i < inner.n; i++)
        if (is_recording_folder(inner.list[i])) input_list(inner.list[i], input_is_database_name, NULL, found);
    input_files_free(&inner);
    return true;
}

static bool may_be_foreign(const char *name, const char *stem)
{
    static const char *const endings[] = {".pickle", ".pkl", ".json", ".gz", ".sqlite", ".prof"};
    return name[0] != '.' && ANY_OF(e, endings, COUNT_OF(endings), text_ends_with(name, *e));
}

static bool open_path(struct run *run, const char *path, bool alone, char *error, size_t error_size)
{
    if (is_open_already(run, path)) {
        run_add_note(run, "%s is named more than once, and is read once", path);
        return true;
    }
    if (!open_recording(run, path, error, error_size)) return false;
    const struct run_database *db = &run->databases[run->databases_n - 1];
    if (!alone || (db->foreign && !run->options.alone)) /* each of several files is complete in itself */
        open_siblings(run, db->foreign ? db->opened : path);
    return true;
}

/* Other tools' recordings of one format, one per rank. Only a trace states its rank, so the names of others are checked
 * before all of them are read. */
static bool open_ranks(struct run *run, const char *folder, const struct input_files *files, char *error,
                       size_t error_size)
{
    const size_t from = run->processes_n;
    const enum import_format format = import_format_of(files->list[0]);
    bool ok = true;
    for (size_t i = 1; ok && i < files->n; i++) {
        ok =
            import_format_of(files->list[i]) == format ||
            run_fail(error, error_size,
                     "cannot read '%s': it holds recordings of different tools, such as '%s' and '%s'; name those that "
                     "belong together",
                     folder, files->list[0], files->list[i]);
    }
    for (size_t i = 0; ok && files->n > 1 && format != IMPORT_FORMAT_TRACE && i < files->n; i++) {
        ok = run_rank_of_name(files->list[i]) >= 0 ||
             run_fail(
                 error, error_size,
                 "cannot read '%s': it holds %zu recordings of other tools that may be of different runs: the name of "
                 "'%s' states no rank, such as rank0; name one, or all files of one run",
                 folder, files->n, files->list[i]);
    }
    for (size_t i = 0; ok && i < files->n; i++) ok = open_path(run, files->list[i], true, error, error_size);
    return ok && (files->n == 1 || run_are_ranks(run, from, folder, error, error_size));
}

static bool open_foreign_folder(struct run *run, const char *folder, char *error, size_t error_size)
{
    struct input_files all = {0}, files = {0};
    input_list(folder, may_be_foreign, NULL, &all);
    for (size_t i = 0; i < all.n; i++) {
        if (!import_format_of(all.list[i])) continue;
        *ARENA_PUSH(files.list, files.n, files.cap) = all.list[i];
    }
    const bool ok = files.n
                        ? open_ranks(run, folder, &files, error, error_size)
                        : run_fail(error, error_size,
                                   "cannot read '%s': it contains no recording: no database (*.db) in it or one folder "
                                   "below, and no recording of another tool; give the file that gpuspy wrote",
                                   folder);
    free(files.list);
    input_files_free(&all);
    return ok;
}

static bool open_folder(struct run *run, const char *folder, char *error, size_t error_size)
{
    struct input_files found = {0};
    size_t from = run->processes_n;
    if (!list_runs(folder, &found))
        return run_fail(error, error_size, "cannot read '%s': %s; name a database in it", folder, strerror(errno));
    if (!found.n) return open_foreign_folder(run, folder, error, error_size);
    bool ok = true;
    for (size_t i = 0; ok && i < found.n; i++)
        ok = is_open_already(run, found.list[i]) || open_recording(run, found.list[i], error, error_size);
    input_files_free(&found);
    return ok && run_is_one_job(run, from, folder, error, error_size);
}

/* A program without a build id that was rebuilt after the recording is not the one that ran. */
static void note_when(const struct run *run)
{
    const struct run_symbol_more *more = run->options.symbol_more;
    int64_t last = 0;
    EACH_IN (p, run->processes)
        if (p->start_real_ns != RUN_UNKNOWN && arena_add_capped(p->start_real_ns, p->end_ns) > last)
            last = arena_add_capped(p->start_real_ns, p->end_ns);
    if (run->options.symbol && more && more->recorded) more->recorded(run->options.symbol_data, last);
}

/* Several files were named. */
static void note_runs(struct run *run, size_t files)
{
    const bool foreign = !ANY_IN(d, run->databases, !d->foreign);
    char unused[512];
    size_t i = 1;
    while (i < run->processes_n && strcmp(run->processes[i].run_id, run->processes[0].run_id) == 0) i++;
    if (files < 2 || i >= run->processes_n || (foreign && run_are_ranks(run, 0, "", unused, sizeof unused))) return;
    run_add_note(
        run, "%s",
        foreign
            ? "gpuspy does not know whether these files are of one run: neither their names nor their contents state it"
            : "these are processes of different runs; gpuspy diff compares two runs");
}

struct run *run_open(const char *const *paths, size_t n, const struct run_options *options, char *error,
                     size_t error_size)
{
    struct run *run = ARENA_NEW(struct run, 0);
    run->options = options ? *options : (struct run_options){0};
    bool ok = n > 0 || run_fail(error, error_size, "no database named");
    for (size_t i = 0; ok && i < n; i++) {
        ok = is_recording_folder(paths[i]) ? open_folder(run, paths[i], error, error_size)
                                           : open_path(run, paths[i], n > 1 || run->options.alone, error, error_size);
    }
    if (!ok) {
        run_close(run);
        return NULL;
    }
    note_runs(run, n);
    run_load_finish(run);
    run_name_cells(run);
    note_when(run);
    if (run_endless_loop(run)) run_add_note(run, "%s", run_endless_loop(run));
    run_backward_prepare(run);
    return run;
}

void run_close(struct run *run)
{
    if (!run) return;
    for (size_t i = 0; i < run->databases_n; i++) run_database_close(&run->databases[i]);
    run_replay_free(run);
    run_backward_free(run);
    run_stacks_free(run);
    ARENA_RELEASE(run->databases, run->processes, run->devices, run->ooms, run->samples, run->device_samples,
                  run->marks, run->threads, run->reserved, run->mappings, run->graphs, run->pools);
    ARENA_RELEASE(run->allocator_facts, run->counted, run->checks, run->mappers, run->contexts, run->removed,
                  run->levels, run->removed_after, run->removed_scopes, run->removed_lows, run->removed_times,
                  run->settings, run->sources, run->notes);
    ARENA_RELEASE(run->cells, run->cell_names, run->api_names);
    arena_free(&run->arena);
    free(run);
}
