/* PyTorch 2.12 and later refuse a request before they ask CUDA if throw_on_cudamalloc_oom is set, and report nothing of
 * it: the failure is only in the text of the exception that ended the program. It becomes a failed request here. */
#include "analyzer/run/run_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "Requested size: 2.93 GiB", as PyTorch rounds it; RUN_UNKNOWN. */
static int64_t stated_bytes(const char *exception)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"}, before[] = "Requested size: ";
    const char *at = strstr(exception, before);
    char *end;
    const double n = at ? strtod(at + sizeof before - 1, &end) : 0;
    if (!at || !(n > 0 && n < 1e9) || *end++ != ' ') return RUN_UNKNOWN;
    for (unsigned i = 0; i < sizeof units / sizeof *units; i++)
        if (strncmp(end, units[i], strlen(units[i])) == 0) return (int64_t)(n * (double)(1ull << 10 * i));
    return RUN_UNKNOWN;
}

/* The last call path that was recorded at this line, "/home/u/train.py:31"; without one, only the line. */
static uint32_t stack_of_place(struct run *run, const char *place)
{
    const char *colon = place ? strrchr(place, ':') : NULL;
    if (!colon || atoi(colon + 1) <= 0) return RUN_NONE;
    char file[4096];
    snprintf(file, sizeof file, "%.*s", (int)(colon - place), place);
    const struct run_frame frame = {.kind = GS_FRAME_PYTHON,
                                    .rank = RUN_RANK_LIBRARY,
                                    .file = run_text(run, file, strlen(file)),
                                    .line = atoi(colon + 1)};
    for (size_t i = run->stacks_n; i-- > 0;) {
        const struct run_frame *f = run_stack_frame(run, (uint32_t)i);
        if (f->kind == frame.kind && f->line == frame.line && f->file && strcmp(f->file, frame.file) == 0)
            return (uint32_t)i;
    }
    return run_stack_add(run, RUN_NONE, run_frame_add(run, &frame));
}

static sqlite3_stmt *prepare_of_device(struct run_database *db, const char *sql, int device)
{
    sqlite3_stmt *st = run_database_prepare(db, sql);
    if (st) sqlite3_bind_int(st, 1, device);
    return st;
}

/* The last request that succeeded is on the same device and thread, as far as is known. What Python frees when it ends
 * has no call path. */
static bool find_moment(struct run_database *db, struct run_oom *oom)
{
    sqlite3_stmt *st = run_database_prepare(
        db, "SELECT kind, alloc_ns FROM allocation_row WHERE (kind & 3) = 1 ORDER BY id DESC LIMIT 1");
    const bool found = st && sqlite3_step(st) == SQLITE_ROW;
    if (found) {
        const uint64_t kind = (uint64_t)sqlite3_column_int64(st, 0);
        oom->device = run_removed_kind(GS_REMOVED_ALLOCATION, (int64_t)kind).device;
        oom->thread = (uint32_t)((kind >> 23) + 2);
        oom->time_ns = run_bounded(sqlite3_column_int64(st, 1));
    }
    sqlite3_finalize(st);
    if (!found || oom->device < 0) return false;
    st = prepare_of_device(db,
                           "SELECT max(alloc_ns + life_ns) FROM allocation_row WHERE (kind & 3) = 1 AND "
                           "(kind >> 5 & 127) = ?1 + 1 AND free_stack_id < 4294967295",
                           oom->device);
    const int64_t freed = st && sqlite3_step(st) == SQLITE_ROW ? run_bounded(sqlite3_column_int64(st, 0)) : 0;
    sqlite3_finalize(st);
    oom->time_ns = arena_add_capped(oom->time_ns > freed ? oom->time_ns : freed, 1);
    return true;
}

/* What the device had free: its last sample before, or the first one, and what the process allocated in between. */
static void find_free_bytes(const struct run *run, struct run_database *db, struct run_oom *oom)
{
    const struct run_device_sample *sample = NULL;
    RUN_EACH (s, run_device_samples, run)
        if (s->process == oom->process && s->device == oom->device && (!sample || s->time_ns <= oom->time_ns))
            sample = s;
    if (!sample || sample->free_bytes < 0) return;
    sqlite3_stmt *st = prepare_of_device(
        db,
        "SELECT total(bytes * ((alloc_ns <= ?2 AND ifnull(alloc_ns + life_ns, ?2) >= ?2) - "
        "(alloc_ns <= ?3 AND ifnull(alloc_ns + life_ns, ?3) >= ?3))) FROM allocation_row "
        "WHERE (kind & 3) = 0 AND (kind >> 2 & 7) IN (0, 4) AND (kind >> 5 & 127) = ?1 + 1", /* device, vmm */
        oom->device);
    if (!st) return;
    sqlite3_bind_int64(st, 2, oom->time_ns);
    sqlite3_bind_int64(st, 3, sample->time_ns);
    if (sqlite3_step(st) == SQLITE_ROW) {
        const int64_t free_bytes = arena_add_capped(sample->free_bytes, -(int64_t)sqlite3_column_double(st, 0));
        oom->free_bytes = free_bytes > 0 ? free_bytes : 0;
        oom->total_bytes = sample->total_bytes;
    }
    sqlite3_finalize(st);
}

void run_add_rejected(struct run *run, struct run_database *db, uint32_t process)
{
    const struct run_process *p = &run->processes[process];
    struct run_oom oom = {.process = process,
                          .layer = GS_LAYER_TENSOR,
                          .space = GS_SPACE_DEVICE,
                          .free_bytes = RUN_UNKNOWN,
                          .total_bytes = RUN_UNKNOWN,
                          .tensor_allocated = RUN_UNKNOWN,
                          .tensor_reserved = RUN_UNKNOWN,
                          .fatal = true,
                          .rejected = true};
    if (!p->exception || !strstr(p->exception, "preemptively rejected")) return;
    oom.requested_bytes = stated_bytes(p->exception);
    if (oom.requested_bytes == RUN_UNKNOWN || !find_moment(db, &oom)) return;
    oom.stack = stack_of_place(run, p->exception_place);
    find_free_bytes(run, db, &oom);
    *ARENA_ADD(run->ooms) = oom;
}
