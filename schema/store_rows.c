/* Rows in memory → SQL, inside the transaction of a commit. */
#include "schema/store_state.h"

#include <stdlib.h>
#include <string.h>

#define END_BUCKETS 1024

/* ---------------------------------------------------------------- binding */

static void bind_id(sqlite3_stmt *st, int at, uint32_t id) /* 0: NULL */
{
    if (id)
        sqlite3_bind_int64(st, at, id);
    else
        sqlite3_bind_null(st, at);
}

static void bind_row_text(struct gs_store *s, sqlite3_stmt *st, int at, struct gs_text t)
{
    sqlite3_bind_text(st, at, s->text.at + t.at, (int)t.length, SQLITE_STATIC);
}

static void bind_text_or_null(struct gs_store *s, sqlite3_stmt *st, int at, struct gs_text t)
{
    if (t.length)
        bind_row_text(s, st, at, t);
    else
        sqlite3_bind_null(st, at);
}

/* For each row of an array: `body` binds *row to st, then the statement runs. */
#define WRITE(array, which, type, body)                                         \
    do {                                                                        \
        sqlite3_stmt *st = (array).count ? gs_store_statement(s, which) : NULL; \
        if ((array).count && !st) return -1;                                    \
        for (size_t i = 0; i < (array).count; i++) {                            \
            const type *row = &(array).at[i];                                   \
            body;                                                               \
            if (gs_store_run(s, st)) return -1;                                 \
        }                                                                       \
    } while (0)

/* ---------------------------------------------------------------- definitions */

static int write_definitions(struct gs_store *s)
{
    WRITE(s->modules, GS_SQL_MODULE, struct gs_row_module, {
        bind_id(st, 1, row->id);
        bind_row_text(s, st, 2, row->path);
        bind_text_or_null(s, st, 3, row->build_id);
    });
    WRITE(s->frames, GS_SQL_FRAME, struct gs_row_frame, {
        bool python = row->kind == GS_FRAME_PYTHON;
        bind_id(st, 1, row->id);
        sqlite3_bind_int(st, 2, row->kind);
        bind_text_or_null(s, st, 3, row->function);
        bind_text_or_null(s, st, 4, row->file);
        bind_id(st, 5, (uint32_t)row->line);
        bind_id(st, 6, row->module);
        if (python)
            sqlite3_bind_null(st, 7);
        else
            sqlite3_bind_int64(st, 7, row->offset);
    });
    if (gs_store_write_sources(s)) return -1;
    WRITE(s->stacks, GS_SQL_STACK, struct gs_row_stack, {
        bind_id(st, 1, row->id);
        bind_id(st, 2, row->parent);
        bind_id(st, 3, row->frame);
        bind_id(st, 4, row->depth);
    });
    WRITE(s->thread_rows, GS_SQL_THREAD, struct gs_row_thread, {
        bind_id(st, 1, row->id);
        bind_id(st, 2, row->tid);
        bind_text_or_null(s, st, 3, row->name);
    });
    WRITE(s->apis, GS_SQL_API, struct gs_row_api, {
        sqlite3_bind_int64(st, 1, row->id);
        bind_row_text(s, st, 2, row->name);
    });
    WRITE(s->devices, GS_SQL_DEVICE, struct gs_row_device, {
        sqlite3_bind_int(st, 1, row->device);
        bind_text_or_null(s, st, 2, row->name);
        sqlite3_bind_int64(st, 3, row->total);
        gs_bind_known(st, 4, row->free);
        sqlite3_bind_int64(st, 5, row->seen_ns);
        gs_bind_known(st, 6, row->physical ? row->physical : -1);
    });
    WRITE(s->settings, GS_SQL_META, struct gs_row_setting, {
        bind_row_text(s, st, 1, row->key);
        bind_row_text(s, st, 2, row->value);
    });
    return 0;
}

/* ---------------------------------------------------------------- lifetimes */

/* Sorts the ends so that those of one page are together and pages follow in order. Ends of the same row keep their
 * order, and the last one counts. Ids are dense, so sorting into equal parts of their range is enough. */
static int sort_ends(struct gs_store *s)
{
    uint32_t start[END_BUCKETS + 1] = {0};
    const size_t n = s->ends.count;
    int64_t low = INT64_MAX, high = 0;
    if (s->ends_sorted.capacity < n &&
        !gs_array_grow((void **)&s->ends_sorted.at, &s->ends_sorted.capacity, n, sizeof *s->ends_sorted.at))
        return gs_store_no_memory(s);
    for (size_t i = 0; i < n; i++) {
        if (s->ends.at[i].id < low) low = s->ends.at[i].id;
        if (s->ends.at[i].id > high) high = s->ends.at[i].id;
    }
    const uint64_t part = (uint64_t)(high - low) / END_BUCKETS + 1;
    for (size_t i = 0; i < n; i++) start[(uint64_t)(s->ends.at[i].id - low) / part + 1]++;
    for (size_t i = 0; i < END_BUCKETS; i++) start[i + 1] += start[i];
    for (size_t i = 0; i < n; i++)
        s->ends_sorted.at[start[(uint64_t)(s->ends.at[i].id - low) / part]++] = s->ends.at[i];
    s->ends_sorted.count = n;
    return 0;
}

static int write_row_ends(struct gs_store *s)
{
    if (!s->ends.count) return 0;
    return sort_ends(s) ? -1 : gs_store_take(s, GS_SQL_ALLOCATION_END, s->ends.count);
}

/* ---------------------------------------------------------------- the other events */

static int write_oom_rows(struct gs_store *s)
{
    int64_t id = s->first_oom;
    WRITE(s->ooms, GS_SQL_OOM, struct gs_row_oom, {
        sqlite3_bind_int64(st, 1, id++);
        sqlite3_bind_int(st, 2, row->device);
        sqlite3_bind_int(st, 3, row->layer);
        sqlite3_bind_int(st, 4, row->space);
        sqlite3_bind_int(st, 5, row->api);
        sqlite3_bind_int64(st, 6, row->requested);
        gs_bind_known(st, 7, row->free);
        gs_bind_known(st, 8, row->total);
        gs_bind_known(st, 9, row->tensor_allocated);
        gs_bind_known(st, 10, row->tensor_reserved);
        sqlite3_bind_int64(st, 11, row->time_ns);
        sqlite3_bind_int(st, 12, row->fatal);
        bind_id(st, 13, row->stack);
        bind_id(st, 14, row->thread);
        sqlite3_bind_int(st, 15, row->capped);
    });
    WRITE(s->recovered_ooms, GS_SQL_OOM_RECOVERED, int64_t, sqlite3_bind_int64(st, 1, *row));
    return 0;
}

static int write_moments(struct gs_store *s)
{
    WRITE(s->samples, GS_SQL_SAMPLE, struct gs_row_sample, {
        sqlite3_bind_int(st, 1, row->device);
        sqlite3_bind_int64(st, 2, row->time_ns);
        gs_bind_known(st, 3, row->free);
        gs_bind_known(st, 4, row->total);
        sqlite3_bind_int(st, 5, row->source);
    });
    WRITE(s->reserved, GS_SQL_RESERVED, struct gs_row_reserved, {
        sqlite3_bind_int(st, 1, row->device);
        sqlite3_bind_int64(st, 2, row->time_ns);
        sqlite3_bind_int64(st, 3, row->bytes);
    });
    int64_t id = s->first_handle;
    WRITE(s->handles, GS_SQL_HANDLE, struct gs_row_handle, {
        sqlite3_bind_int64(st, 1, id++);
        sqlite3_bind_int(st, 2, row->kind);
        sqlite3_bind_int64(st, 3, row->handle);
        sqlite3_bind_int(st, 4, row->device);
        gs_bind_known(st, 5, row->create_ns);
        gs_bind_known(st, 6, row->destroy_ns);
        sqlite3_bind_int(st, 7, row->api);
        bind_id(st, 8, row->stack);
    });
    WRITE(s->handle_ends, GS_SQL_HANDLE_END, struct gs_row_moment, {
        sqlite3_bind_int64(st, 1, row->time_ns);
        sqlite3_bind_int64(st, 2, row->id);
    });
    return gs_store_write_marks(s) || gs_store_write_device_samples(s) ? -1 : 0;
}

static int write_pendings(struct gs_store *s)
{
    int64_t id = s->first_pending;
    WRITE(s->pendings, GS_SQL_PENDING, struct gs_row_pending, {
        sqlite3_bind_int64(st, 1, id++);
        sqlite3_bind_int64(st, 2, row->allocation);
        sqlite3_bind_int64(st, 3, row->event);
        sqlite3_bind_int64(st, 4, row->free_ns);
        gs_bind_known(st, 5, row->done_ns);
        bind_id(st, 6, row->event_stack);
        bind_id(st, 7, row->free_stack);
    });
    WRITE(s->pending_ends, GS_SQL_PENDING_END, struct gs_row_moment, {
        sqlite3_bind_int64(st, 1, row->time_ns);
        sqlite3_bind_int64(st, 2, row->id);
    });
    return 0;
}

static int write_graphs(struct gs_store *s)
{
    int64_t id = s->first_graph;
    WRITE(s->graphs, GS_SQL_GRAPH, struct gs_row_graph, {
        sqlite3_bind_int64(st, 1, id++);
        sqlite3_bind_int(st, 2, row->device);
        sqlite3_bind_int(st, 3, row->api);
        sqlite3_bind_int64(st, 4, row->address);
        sqlite3_bind_int64(st, 5, row->bytes);
        sqlite3_bind_int64(st, 6, row->time_ns);
        gs_bind_known(st, 7, row->freed_ns);
        sqlite3_bind_int64(st, 8, row->stream);
        bind_id(st, 9, row->stack);
        bind_id(st, 10, row->thread);
    });
    WRITE(s->graph_ends, GS_SQL_GRAPH_END, struct gs_row_moment, {
        gs_bind_known(st, 1, row->time_ns);
        sqlite3_bind_int64(st, 2, row->id);
    });
    WRITE(s->pools, GS_SQL_POOL, struct gs_row_pool, {
        sqlite3_bind_int(st, 1, row->device);
        sqlite3_bind_int64(st, 2, row->pool);
        sqlite3_bind_int64(st, 3, row->time_ns);
        sqlite3_bind_int64(st, 4, row->used);
        sqlite3_bind_int64(st, 5, row->reserved);
        sqlite3_bind_int(st, 6, row->api);
    });
    WRITE(s->allocator_facts, GS_SQL_ALLOCATOR, struct gs_row_allocator, {
        sqlite3_bind_int(st, 1, row->device);
        sqlite3_bind_int64(st, 2, row->time_ns);
        sqlite3_bind_int(st, 3, row->kind);
        sqlite3_bind_int64(st, 4, row->address);
        sqlite3_bind_int64(st, 5, row->value);
    });
    return 0;
}

static int write_mappings(struct gs_store *s)
{
    int64_t id = s->first_mapping;
    WRITE(s->mappings, GS_SQL_MAPPING, struct gs_row_mapping, {
        sqlite3_bind_int64(st, 1, id++);
        sqlite3_bind_int64(st, 2, row->allocation);
        sqlite3_bind_int(st, 3, row->device);
        sqlite3_bind_int64(st, 4, row->address);
        sqlite3_bind_int64(st, 5, row->bytes);
        sqlite3_bind_int64(st, 6, row->offset);
        sqlite3_bind_int64(st, 7, row->map_ns);
        gs_bind_known(st, 8, row->unmap_ns);
        bind_id(st, 9, row->stack);
    });
    WRITE(s->mapping_ends, GS_SQL_MAPPING_END, struct gs_row_moment, {
        gs_bind_known(st, 1, row->time_ns);
        sqlite3_bind_int64(st, 2, row->id);
    });
    WRITE(s->sizes, GS_SQL_BYTES, struct gs_row_bytes, {
        sqlite3_bind_int64(st, 1, row->bytes);
        sqlite3_bind_int64(st, 2, row->id);
    });
    WRITE(s->object_rows, GS_SQL_OBJECT, struct gs_row_object, {
        sqlite3_bind_int64(st, 1, row->id);
        sqlite3_bind_int64(st, 2, row->refs);
        sqlite3_bind_int(st, 3, row->named);
    });
    return 0;
}

/* Writes the increase of the counters since the last commit, and the counts that it covers. */
static int write_counters(struct gs_store *s)
{
    for (size_t i = 0; i < s->counters.count; i++) {
        const struct gs_row_counter *row = &s->counters.at[i];
        const uint64_t stream = row->key & GS_COUNTER_ANY;
        sqlite3_stmt *st = gs_store_statement(s, GS_SQL_CALLS);
        if (!st) return -1;
        sqlite3_bind_int64(st, 1, s->counted_second);
        sqlite3_bind_int(st, 2, (int)(row->key >> 59 & 15) - 1);
        sqlite3_bind_int64(st, 3, stream == GS_COUNTER_ANY ? -1 : (int64_t)stream);
        sqlite3_bind_int(st, 4, (int)(row->key >> 48 & 2047));
        sqlite3_bind_int(st, 5, (int)(row->key >> 63));
        sqlite3_bind_int64(st, 6, (int64_t)row->more);
        if (gs_store_run(s, st) || !(st = gs_store_statement(s, GS_SQL_COUNTER))) return -1;
        sqlite3_bind_int64(st, 1, row->slot);
        sqlite3_bind_int64(st, 2, (int64_t)row->key);
        sqlite3_bind_int64(st, 3, (int64_t)row->count);
        if (gs_store_run(s, st)) return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- totals and counts */

static int write_checks(struct gs_store *s)
{
    for (int device = 0; device <= GS_CPU_CHECK; device++) {
        const struct gs_check *check = &s->checks[device];
        if (!check->dirty) continue;
        sqlite3_stmt *st = gs_store_statement(s, GS_SQL_CHECK);
        if (!st) return -1;
        sqlite3_bind_int(st, 1, device == GS_CPU_CHECK ? GS_LAYER_HOST : GS_LAYER_TENSOR);
        sqlite3_bind_int(st, 2, device == GS_CPU_CHECK ? -1 : device);
        sqlite3_bind_int64(st, 3, (int64_t)check->events);
        sqlite3_bind_int64(st, 4, (int64_t)check->mismatches);
        sqlite3_bind_null(st, 5);
        sqlite3_bind_null(st, 6);
        if (check->mismatches) {
            sqlite3_bind_int64(st, 5, check->first_ns);
            sqlite3_bind_int64(st, 6, check->first_difference);
        }
        sqlite3_bind_int64(st, 7, check->last_difference);
        if (gs_store_run(s, st)) return -1;
    }
    return 0;
}

static int write_counts(struct gs_store *s)
{
    for (int i = 0; i < GS_COUNTS; i++) {
        if (s->counts[i] == s->saved_counts[i]) continue;
        sqlite3_stmt *st = gs_store_statement(s, GS_SQL_META);
        if (!st) return -1;
        sqlite3_bind_text(st, 1, gs_count_names[i], -1, SQLITE_STATIC);
        sqlite3_bind_int64(st, 2, (int64_t)s->counts[i]);
        if (gs_store_run(s, st)) return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- for a recovery */

static int write_counted_value(struct gs_store *s, const char *name, int64_t number, uint64_t now, uint64_t saved)
{
    if (now == saved) return 0;
    sqlite3_stmt *st = gs_store_statement(s, GS_SQL_VALUE);
    if (!st) return -1;
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, number);
    sqlite3_bind_int64(st, 3, (int64_t)now);
    return gs_store_run(s, st);
}

static struct gs_live_bytes live_bytes(const struct gs_store *s)
{
    struct gs_live_bytes live = {.host = s->host_now, .pinned = s->pinned_now};
    memcpy(live.device, s->device_now, sizeof live.device);
    for (int d = 0; d < GS_DEVICES_MAX; d++)
        live.tensor[d] = s->checks[d].running > 0 ? (uint64_t)s->checks[d].running : 0;
    return live;
}

/* For gpuspy top, which compares these totals with its own to see whether it found every free. A recovery does not use
 * them: it adds the rows up. */
static int write_live(struct gs_store *s)
{
    const struct gs_live_bytes now = live_bytes(s), *saved = &s->saved_live;
    for (int d = 0; d < GS_DEVICES_MAX; d++)
        if (write_counted_value(s, "device_live", d, now.device[d], saved->device[d]) ||
            write_counted_value(s, "tensor_live", d, now.tensor[d], saved->tensor[d]))
            return -1;
    return write_counted_value(s, "host_live", 0, now.host, saved->host) ||
                   write_counted_value(s, "pinned_live", 0, now.pinned, saved->pinned)
               ? -1
               : 0;
}

static int write_values(struct gs_store *s)
{
    const struct gs_summary *now = &s->summary, *saved = &s->saved_summary;
    for (int d = 0; d < GS_DEVICES_MAX; d++)
        if (write_counted_value(s, "device_peak", d, now->device[d].device_peak, saved->device[d].device_peak) ||
            write_counted_value(s, "tensor_peak", d, now->device[d].tensor_peak, saved->device[d].tensor_peak) ||
            write_counted_value(s, "device_used", d, now->device[d].used, saved->device[d].used) ||
            (s->attached && write_counted_value(s, "tensor_inherited", d, (uint64_t)s->checks[d].inherited,
                                                ~(uint64_t)s->checks[d].inherited)))
            return -1;
    if (write_counted_value(s, "host_peak", 0, now->host_peak, saved->host_peak) ||
        write_counted_value(s, "pinned_peak", 0, now->pinned_peak, saved->pinned_peak))
        return -1;
    const struct gs_check *cpu = &s->checks[GS_CPU_CHECK];
    if (cpu->events && write_counted_value(s, "host_inherited", 0, (uint64_t)cpu->inherited, ~(uint64_t)cpu->inherited))
        return -1;
    for (size_t i = 0; i < s->open_ooms.count; i++) {
        struct gs_open_oom *o = &s->open_ooms.at[i];
        if (write_counted_value(s, "got", o->id, o->got, o->saved_got)) return -1;
        o->saved_got = o->got;
    }
    return write_counted_value(s, "last_ns", 0, s->last_ns, 0);
}

static int write_numbers(struct gs_store *s)
{
    for (size_t i = 0; i < s->numbers.count; i++) {
        const struct gs_row_number *row = &s->numbers.at[i];
        bool reset = row->what == GS_NUMBER_RESET;
        sqlite3_stmt *st = gs_store_statement(s, reset ? GS_SQL_NUMBER_RESET : GS_SQL_NUMBER);
        if (!st) return -1;
        sqlite3_bind_int64(st, 1, row->thread);
        if (!reset) {
            sqlite3_bind_int64(st, 2, row->what);
            sqlite3_bind_int64(st, 3, row->number);
            sqlite3_bind_int64(st, 4, row->id);
        }
        if (gs_store_run(s, st)) return -1;
    }
    return 0;
}

static int write_progress(struct gs_store *s, const struct gs_reader *r)
{
    uint32_t highest = r ? gs_reader_threads(r) : 0;
    for (uint32_t t = 1; t <= highest; t++) {
        struct gs_store_thread *thread = gs_store_thread(s, t);
        if (!thread) return -1;
        struct gs_progress at = gs_reader_progress(r, t);
        if (at.seq == thread->saved.seq && at.offset == thread->saved.offset) continue;
        sqlite3_stmt *st = gs_store_statement(s, GS_SQL_PROGRESS);
        if (!st) return -1;
        sqlite3_bind_int64(st, 1, t);
        sqlite3_bind_int64(st, 2, (int64_t)at.seq);
        sqlite3_bind_int64(st, 3, at.offset);
        sqlite3_bind_int64(st, 4, (int64_t)at.time_ns);
        sqlite3_bind_int64(st, 5, thread->row);
        if (gs_store_run(s, st)) return -1;
    }
    return 0;
}

static int write_last_frees(struct gs_store *s)
{
    for (size_t t = 0; t < s->threads.count; t++) {
        const struct gs_store_thread *thread = &s->threads.at[t];
        if (!thread->last_free_dirty) continue;
        sqlite3_stmt *st = gs_store_statement(s, GS_SQL_LAST_FREE);
        if (!st) return -1;
        sqlite3_bind_int64(st, 1, (int64_t)t);
        sqlite3_bind_int(st, 2, thread->last_free.layer | (thread->last_free_graph ? 4 : 0));
        sqlite3_bind_int64(st, 3, (int64_t)thread->last_free.address);
        sqlite3_bind_int64(st, 4, (int64_t)thread->last_free.id);
        if (!thread->last_free_set) sqlite3_bind_null(st, 2);
        if (gs_store_run(s, st)) return -1;
    }
    return 0;
}

static int write_undos(struct gs_store *s)
{
    for (size_t t = 0; t < s->threads.count; t++) {
        const struct gs_undo *undo = s->threads.at[t].undo;
        if (!undo || !undo->dirty) continue;
        sqlite3_stmt *st = gs_store_statement(s, GS_SQL_UNDO);
        if (!st) return -1;
        sqlite3_bind_int64(st, 1, (int64_t)t);
        sqlite3_bind_int(st, 2, undo->op);
        if (!undo->set) sqlite3_bind_null(st, 2);
        sqlite3_bind_int64(st, 3, (int64_t)undo->handle);
        sqlite3_bind_int64(st, 4, (int64_t)undo->address);
        sqlite3_bind_int64(st, 5, (int64_t)undo->bytes);
        sqlite3_bind_int64(st, 6, (int64_t)undo->time_ns);
        sqlite3_bind_int64(st, 7, (int64_t)undo->object);
        if (gs_store_run(s, st)) return -1;
    }
    WRITE(s->owners, GS_SQL_OWNER, struct gs_row_owner, {
        sqlite3_bind_int64(st, 1, row->id);
        sqlite3_bind_int(st, 2, row->context);
        sqlite3_bind_int(st, 3, row->home);
    });
    return 0;
}

/* ---------------------------------------------------------------- all of it */

int gs_store_write_rows(struct gs_store *s, const struct gs_reader *r)
{
    if (write_definitions(s) || gs_store_take(s, GS_SQL_ALLOCATION, s->allocations.count) || write_row_ends(s) ||
        gs_store_take(s, GS_SQL_COPY, s->copies.count) || gs_store_take(s, GS_SQL_MEMSET, s->memsets.count) ||
        gs_store_take(s, GS_SQL_SYNC, s->syncs.count) || write_oom_rows(s) || write_moments(s) || write_mappings(s) ||
        write_graphs(s) || write_pendings(s) || write_counters(s) || write_checks(s) || write_counts(s))
        return -1;
    return write_values(s) || write_live(s) || write_numbers(s) || write_progress(s, r) || write_last_frees(s) ||
                   write_undos(s)
               ? -1
               : 0;
}

void gs_store_forget_rows(struct gs_store *s, const struct gs_reader *r)
{
    s->first_allocation += (int64_t)s->allocations.count;
    s->first_oom += (int64_t)s->ooms.count;
    s->first_handle += (int64_t)s->handles.count;
    s->first_mapping += (int64_t)s->mappings.count;
    s->first_graph += (int64_t)s->graphs.count;
    s->first_pending += (int64_t)s->pendings.count;
    s->pendings.count = s->pending_ends.count = 0;
    for (size_t i = 0; i < s->counters.count; i++)
        s->counted[s->counters.at[i].slot] = (struct gs_counter_state){s->counters.at[i].key, s->counters.at[i].count};
    s->owners.count = s->object_rows.count = s->sizes.count = s->mappings.count = 0;
    s->mapping_ends.count = s->graphs.count = s->graph_ends.count = s->pools.count = 0;
    s->allocator_facts.count = 0;
    s->counters.count = 0;
    s->allocations.count = s->ends.count = s->copies.count = s->memsets.count = 0;
    s->syncs.count = s->ooms.count = s->recovered_ooms.count = s->samples.count = 0;
    s->reserved.count = s->handles.count = s->handle_ends.count = s->device_samples.count = 0;
    s->frames.count = s->stacks.count = s->modules.count = s->thread_rows.count = 0;
    s->apis.count = s->devices.count = s->settings.count = s->numbers.count = s->text.count = 0;
    s->pending_events = 0;
    gs_store_forget_marks(s);
    for (int device = 0; device <= GS_CPU_CHECK; device++) s->checks[device].dirty = false;
    memcpy(s->saved_counts, s->counts, sizeof s->counts);
    s->saved_summary = s->summary;
    s->saved_live = live_bytes(s);
    uint32_t highest = r ? gs_reader_threads(r) : 0;
    for (uint32_t t = 0; t < s->threads.count; t++) {
        s->threads.at[t].last_free_dirty = false;
        if (s->threads.at[t].undo) s->threads.at[t].undo->dirty = false;
        if (t && t <= highest) s->threads.at[t].saved = gs_reader_progress(r, t);
    }
}
