/* Reads from an unfinished database the state that the store had in memory at its last commit. The database may be
 * damaged or come from another program: every value that is used as an index is checked. */
#include "schema/store_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *row_text_at(sqlite3_stmt *row, int column, size_t *length)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    *length = text ? (size_t)sqlite3_column_bytes(row, column) : 0;
    return text ? text : "";
}

static uint32_t id_at(sqlite3_stmt *row, int column)
{
    int64_t id = sqlite3_column_int64(row, column);
    return id > 0 && id <= UINT32_MAX ? (uint32_t)id : 0;
}

/* A thread number that can be an index; 0: it is not one. */
static uint32_t thread_at(sqlite3_stmt *row, int column)
{
    uint32_t thread = id_at(row, column);
    return thread < GS_SPOOL_THREADS ? thread : 0;
}

static int is_row_damaged(struct gs_store *s)
{
    snprintf(s->error, sizeof s->error, "the database is damaged");
    return -1;
}

/* ---------------------------------------------------------------- definitions */

static int load_module(struct gs_store *s, sqlite3_stmt *row)
{
    size_t path_len, build_id_len;
    const char *path = row_text_at(row, 1, &path_len), *build_id = row_text_at(row, 2, &build_id_len);
    struct gs_content key = gs_store_module_key(path, path_len, build_id, build_id_len);
    s->last_module = id_at(row, 0);
    if (!s->last_module) return is_row_damaged(s);
    return gs_id_add(&s->module_ids, key, s->last_module) ? 0 : gs_store_no_memory(s);
}

static int load_frame(struct gs_store *s, sqlite3_stmt *row)
{
    size_t function_len, file_len;
    const char *function = row_text_at(row, 2, &function_len), *file = row_text_at(row, 3, &file_len);
    struct gs_content key;
    if (sqlite3_column_int(row, 1) == GS_FRAME_PYTHON)
        key = gs_store_python_key(function, function_len, file, file_len, sqlite3_column_int(row, 4));
    else
        key = gs_store_native_key(id_at(row, 5), (uint64_t)sqlite3_column_int64(row, 6));
    s->last_frame = id_at(row, 0);
    if (!s->last_frame) return is_row_damaged(s);
    return gs_id_add(&s->frame_ids, key, s->last_frame) ? 0 : gs_store_no_memory(s);
}

static int load_stack(struct gs_store *s, sqlite3_stmt *row)
{
    struct gs_content key = gs_store_stack_key(id_at(row, 1), id_at(row, 2));
    s->last_stack = id_at(row, 0);
    if (!s->last_stack) return is_row_damaged(s);
    return gs_id_add(&s->stack_ids, key, s->last_stack) ? 0 : gs_store_no_memory(s);
}

static int load_number(struct gs_store *s, sqlite3_stmt *row)
{
    uint32_t thread = thread_at(row, 0);
    if (!thread) return is_row_damaged(s);
    return gs_store_set_number(s, thread, id_at(row, 1), id_at(row, 2), id_at(row, 3));
}

static int load_definitions(struct gs_store *s)
{
    if (gs_store_each(s, "SELECT id,path,build_id FROM module ORDER BY id", load_module) ||
        gs_store_each(s, "SELECT id,kind,function,file,line,module_id,offset FROM frame ORDER BY id", load_frame) ||
        gs_store_each(s, "SELECT id,parent_id,frame_id FROM stack ORDER BY id", load_stack))
        return -1;
    return gs_store_each(s, "SELECT thread,what,number,id FROM recovery_number", load_number);
}

/* ---------------------------------------------------------------- lifetimes */

/* The context of an allocation: without a row in recovery_owner, the primary one of its own device. */
#define LIVE "a.id,a.kind,a.address,a.bytes,a.alloc_ns,o.context,o.home"
#define OF_ALLOCATIONS " FROM allocation_row a LEFT JOIN recovery_owner o ON o.allocation_id=a.id"

static bool read_live(sqlite3_stmt *row, struct gs_live *live)
{
    int64_t kind = sqlite3_column_int64(row, 1);
    uint32_t extra;
    *live = (struct gs_live){
        .id = (uint64_t)sqlite3_column_int64(row, 0),
        .address = (uint64_t)sqlite3_column_int64(row, 2),
        .bytes = (uint64_t)gs_bytes_unpack(kind, sqlite3_column_int64(row, 3), &extra),
        .alloc_ns = (uint64_t)sqlite3_column_int64(row, 4),
        .device = (int16_t)((kind >> 5 & 127) - 1),
        .layer = kind & 3,
        .space = kind >> 2 & 7,
        .context = (uint16_t)sqlite3_column_int64(row, 5),
    };
    live->home = sqlite3_column_type(row, 6) == SQLITE_NULL ? live->device : (int16_t)sqlite3_column_int(row, 6);
    return live->id > 0 && live->bytes <= INT64_MAX && live->alloc_ns <= INT64_MAX;
}

static int load_live(struct gs_store *s, sqlite3_stmt *row)
{
    struct gs_live live;
    if (!read_live(row, &live) || gs_live_find(&s->live, live.layer, live.address)) return is_row_damaged(s);
    if (!gs_live_add(&s->live, &live)) return gs_store_no_memory(s);
    gs_store_track(s, &live, 1);
    return 0;
}

static int load_thread(struct gs_store *s, sqlite3_stmt *row)
{
    uint32_t number = thread_at(row, 0);
    struct gs_store_thread *t = number ? gs_store_thread(s, number) : NULL;
    if (!t) return is_row_damaged(s);
    t->saved.seq = (uint64_t)sqlite3_column_int64(row, 1);
    t->saved.offset = id_at(row, 2);
    t->saved.time_ns = (uint64_t)sqlite3_column_int64(row, 3);
    t->row = id_at(row, 7);
    if (sqlite3_column_type(row, 4) == SQLITE_NULL) return 0;
    t->last_free_set = true;
    t->last_free.layer = sqlite3_column_int(row, 4) & 3;
    t->last_free_graph = sqlite3_column_int(row, 4) & 4;
    t->last_free.address = (uint64_t)sqlite3_column_int64(row, 5);
    const int64_t id = sqlite3_column_int64(row, 6);
    t->last_free.id = (uint64_t)id;
    /* load_last_frees reads the rest */
    return t->last_free_graph && (id <= 0 || id >= s->first_graph) ? is_row_damaged(s) : 0;
}

/* Reads the lifetimes that a failed free would continue. */
static int load_last_frees(struct gs_store *s)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(s->db, "SELECT " LIVE OF_ALLOCATIONS " WHERE a.id=?", -1, &st, NULL) != SQLITE_OK)
        return gs_store_fail(s, "read");
    for (size_t i = 0; i < s->threads.count; i++) {
        struct gs_store_thread *t = &s->threads.at[i];
        if (!t->last_free_set || !t->last_free.id || t->last_free_graph) continue;
        sqlite3_bind_int64(st, 1, (int64_t)t->last_free.id);
        if (sqlite3_step(st) != SQLITE_ROW || !read_live(st, &t->last_free)) t->last_free_set = false;
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    return 0;
}

/* ---------------------------------------------------------------- physical memory, graphs */

static int load_object(struct gs_store *s, sqlite3_stmt *row)
{
    struct gs_live live;
    if (!read_live(row, &live)) return is_row_damaged(s);
    return gs_vmm_load_object(s, &live, id_at(row, 7), sqlite3_column_int(row, 8));
}

static void range_at(sqlite3_stmt *row, int column, struct gs_range *at)
{
    at->start = (uint64_t)sqlite3_column_int64(row, column);
    at->bytes = (uint64_t)sqlite3_column_int64(row, column + 1);
    if (at->bytes > UINT64_MAX - at->start) at->bytes = UINT64_MAX - at->start;
}

static int load_mapping(struct gs_store *s, sqlite3_stmt *row)
{
    struct gs_range at = {0};
    range_at(row, 2, &at);
    int rc = gs_vmm_load_mapping(s, sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1), &at);
    return rc > 0 ? is_row_damaged(s) : rc;
}

/* load_undo has made the thread's `undo`. */
static int load_undo_mapping(struct gs_store *s, sqlite3_stmt *row)
{
    struct gs_undo *undo = s->threads.at[thread_at(row, 0)].undo;
    struct gs_undo_mapping *m = GS_ARRAY_ADD(&undo->mappings);
    if (!m) return gs_store_no_memory(s);
    *m = (struct gs_undo_mapping){.id = sqlite3_column_int64(row, 1), .object = sqlite3_column_int64(row, 4)};
    range_at(row, 2, &m->at);
    m->at.device = (int16_t)sqlite3_column_int(row, 5);
    m->at.space = (uint8_t)sqlite3_column_int(row, 6);
    return 0;
}

static int load_undo_ended(struct gs_store *s, sqlite3_stmt *row)
{
    struct gs_undo *undo = s->threads.at[thread_at(row, 7)].undo;
    struct gs_live live;
    if (!read_live(row, &live)) return is_row_damaged(s);
    struct gs_live *ended = GS_ARRAY_ADD(&undo->ended);
    if (!ended) return gs_store_no_memory(s);
    *ended = live;
    return 0;
}

static int load_undo(struct gs_store *s, sqlite3_stmt *row)
{
    uint32_t thread = thread_at(row, 0);
    if (!thread) return is_row_damaged(s);
    struct gs_undo *undo = gs_vmm_undo(s, thread);
    if (!undo) return -1;
    undo->set = sqlite3_column_type(row, 1) != SQLITE_NULL;
    undo->op = (uint8_t)sqlite3_column_int(row, 1);
    undo->handle = (uint64_t)sqlite3_column_int64(row, 2);
    undo->address = (uint64_t)sqlite3_column_int64(row, 3);
    undo->bytes = (uint64_t)sqlite3_column_int64(row, 4);
    undo->time_ns = (uint64_t)sqlite3_column_int64(row, 5);
    undo->object = (uint64_t)sqlite3_column_int64(row, 6);
    return 0;
}

static int load_graph(struct gs_store *s, sqlite3_stmt *row)
{
    struct gs_live now = {.address = (uint64_t)sqlite3_column_int64(row, 1),
                          .id = (uint64_t)sqlite3_column_int64(row, 0)};
    struct gs_live *old = gs_live_find(&s->graph_live, 0, now.address);
    if (!now.id) return is_row_damaged(s);
    if (old) {
        old->id = now.id;
        return 0;
    }
    return gs_live_add(&s->graph_live, &now) ? 0 : gs_store_no_memory(s);
}

static int load_counter(struct gs_store *s, sqlite3_stmt *row)
{
    int64_t slot = sqlite3_column_int64(row, 0);
    if (slot < 0 || slot >= GS_SPOOL_COUNTERS) return is_row_damaged(s);
    s->counted[slot] =
        (struct gs_counter_state){(uint64_t)sqlite3_column_int64(row, 1), (uint64_t)sqlite3_column_int64(row, 2)};
    return 0;
}

static int load_memory(struct gs_store *s)
{
    if (gs_store_each(s,
                      "SELECT " LIVE ",r.refs,r.named" OF_ALLOCATIONS
                      " JOIN recovery_object r ON r.allocation_id=a.id WHERE a.life_ns IS NULL",
                      load_object) ||
        gs_store_each(s, "SELECT id,allocation_id,address,bytes FROM mapping WHERE unmap_ns IS NULL", load_mapping) ||
        gs_store_each(s, "SELECT thread,op,handle,address,bytes,time_ns,allocation_id FROM recovery_undo", load_undo))
        return -1;
    /* The calls to revert ended whatever ended at their time. */
    if (gs_store_each(s,
                      "SELECT u.thread,m.id,m.address,m.bytes,m.allocation_id,m.device,(a.kind>>2)&7"
                      " FROM recovery_undo u JOIN mapping m ON m.unmap_ns=u.time_ns AND m.address>=u.address"
                      " AND m.address+m.bytes<=u.address+u.bytes JOIN allocation_row a ON"
                      " a.id=m.allocation_id WHERE u.op="
                      "5"
                      " ORDER BY m.address",
                      load_undo_mapping) ||
        gs_store_each(s,
                      "SELECT DISTINCT " LIVE ",u.thread" OF_ALLOCATIONS
                      " JOIN recovery_object r ON r.allocation_id=a.id JOIN recovery_undo u"
                      " ON a.alloc_ns+a.life_ns=u.time_ns WHERE u.op IS NOT NULL",
                      load_undo_ended))
        return -1;
    return gs_store_each(s, "SELECT id,address FROM graph_memory ORDER BY id", load_graph) ||
                   gs_store_each(s, "SELECT slot,key,count FROM recovery_counter", load_counter)
               ? -1
               : 0;
}

/* ---------------------------------------------------------------- the others */

static int load_check(struct gs_store *s, sqlite3_stmt *row)
{
    int layer = sqlite3_column_int(row, 0), device = sqlite3_column_int(row, 1);
    if (layer == GS_LAYER_HOST)
        device = GS_CPU_CHECK;
    else if (device < 0 || device >= GS_DEVICES_MAX)
        return is_row_damaged(s);
    struct gs_check *check = &s->checks[device];
    check->events = (uint64_t)sqlite3_column_int64(row, 2);
    check->mismatches = (uint64_t)sqlite3_column_int64(row, 3);
    check->first_ns = sqlite3_column_int64(row, 4);
    check->first_difference = sqlite3_column_int64(row, 5);
    check->last_difference = sqlite3_column_int64(row, 6);
    return 0;
}

static int load_reserved(struct gs_store *s, sqlite3_stmt *row)
{
    int device = sqlite3_column_int(row, 0);
    if (device >= 0 && device < GS_DEVICES_MAX) s->last_reserved[device] = sqlite3_column_int64(row, 1);
    return 0;
}

static int load_oom(struct gs_store *s, sqlite3_stmt *row)
{
    int space = sqlite3_column_int(row, 4);
    struct gs_open_oom oom = {
        .id = sqlite3_column_int64(row, 0),
        .bytes = (uint64_t)sqlite3_column_int64(row, 5),
        .live = sqlite3_column_type(row, 6) == SQLITE_NULL ? UINT64_MAX : (uint64_t)sqlite3_column_int64(row, 6),
        .thread = id_at(row, 1),
        .device = (int16_t)sqlite3_column_int(row, 2),
        .layer = sqlite3_column_int(row, 3) & 3,
        .host = space == GS_SPACE_PINNED || space == GS_SPACE_HOST,
    };
    s->summary.fatal_ooms++;
    return gs_store_open_oom(s, &oom);
}

static int load_handle(struct gs_store *s, sqlite3_stmt *row)
{
    struct gs_open_handle open = {
        .id = sqlite3_column_int64(row, 0),
        .kind = (uint8_t)sqlite3_column_int(row, 1),
        .handle = (uint64_t)sqlite3_column_int64(row, 2),
    };
    size_t i = 0; /* of a handle that CUDA reused the last one counts, as when recording */
    while (i < s->open_handles.count &&
           (s->open_handles.at[i].handle != open.handle || s->open_handles.at[i].kind != open.kind))
        i++;
    struct gs_open_handle *to = i < s->open_handles.count ? &s->open_handles.at[i] : GS_ARRAY_ADD(&s->open_handles);
    if (!to) return gs_store_no_memory(s);
    *to = open;
    return 0;
}

static int load_count(struct gs_store *s, sqlite3_stmt *row)
{
    size_t length;
    const char *key = row_text_at(row, 0, &length);
    if (!strcmp(key, GS_FACT_ATTACHED)) s->attached = true;
    for (int i = 0; i < GS_COUNTS; i++)
        if (!strcmp(key, gs_count_names[i])) s->counts[i] = s->saved_counts[i] = (uint64_t)sqlite3_column_int64(row, 1);
    return 0;
}

static void load_got(struct gs_store *s, int64_t oom, uint64_t bytes)
{
    for (size_t i = 0; i < s->open_ooms.count; i++) {
        struct gs_open_oom *o = &s->open_ooms.at[i];
        if (o->id == oom) o->got = o->saved_got = bytes;
    }
}

static int load_value(struct gs_store *s, sqlite3_stmt *row)
{
    size_t length;
    const char *name = row_text_at(row, 0, &length);
    int d = sqlite3_column_int(row, 1);
    uint64_t value = (uint64_t)sqlite3_column_int64(row, 2);
    bool device = d >= 0 && d < GS_DEVICES_MAX;
    if (!strcmp(name, "device_peak") && device)
        s->summary.device[d].device_peak = value;
    else if (!strcmp(name, "tensor_peak") && device)
        s->summary.device[d].tensor_peak = value;
    else if (!strcmp(name, "device_used") && device)
        s->summary.device[d].used = value;
    else if (!strcmp(name, "tensor_inherited") && device)
        s->checks[d].inherited = (int64_t)value;
    else if (!strcmp(name, "host_peak"))
        s->summary.host_peak = value;
    else if (!strcmp(name, "pinned_peak"))
        s->summary.pinned_peak = value;
    else if (!strcmp(name, "host_inherited"))
        s->checks[GS_CPU_CHECK].inherited = (int64_t)value;
    else if (!strcmp(name, "last_ns"))
        s->last_ns = value;
    else if (!strcmp(name, "got"))
        load_got(s, sqlite3_column_int64(row, 1), value);
    return 0;
}

static int load_last_ids(struct gs_store *s, sqlite3_stmt *row)
{
    s->first_allocation = sqlite3_column_int64(row, 0) + 1;
    s->first_oom = sqlite3_column_int64(row, 1) + 1;
    s->first_handle = sqlite3_column_int64(row, 2) + 1;
    s->first_mapping = sqlite3_column_int64(row, 3) + 1;
    s->first_graph = sqlite3_column_int64(row, 4) + 1;
    s->first_pending = sqlite3_column_int64(row, 5) + 1;
    if (id_at(row, 6) > s->last_thread) s->last_thread = id_at(row, 6);
    s->summary.ooms = (uint32_t)(s->first_oom - 1);
    bool right = s->first_allocation > 0 && s->first_oom > 0 && s->first_handle > 0 && s->first_mapping > 0 &&
                 s->first_graph > 0 && s->first_pending > 0;
    return right ? 0 : is_row_damaged(s);
}

static int give_progress(struct gs_store *s, struct gs_progress **progress, uint32_t *threads)
{
    *threads = (uint32_t)s->threads.count;
    *progress = calloc(s->threads.count + 1, sizeof **progress);
    if (!*progress) return gs_store_no_memory(s);
    for (uint32_t t = 0; t < *threads; t++) (*progress)[t] = s->threads.at[t].saved;
    return 0;
}

int gs_store_load(struct gs_store *s, struct gs_progress **progress, uint32_t *threads)
{
    if (gs_store_each(s,
                      "SELECT coalesce((SELECT max(id) FROM allocation_row),0),"
                      "coalesce((SELECT max(id) FROM oom),0),coalesce((SELECT max(id) FROM handle),0),"
                      "coalesce((SELECT max(id) FROM mapping),0),"
                      "coalesce((SELECT max(id) FROM graph_memory),0),"
                      "coalesce((SELECT max(id) FROM pending_free),0),"
                      "coalesce((SELECT max(id) FROM thread),0)",
                      load_last_ids) ||
        load_definitions(s) ||
        gs_store_each(s, "SELECT thread,seq,offset,time_ns,free_layer,free_address,free_id,row FROM recovery_thread",
                      load_thread) ||
        gs_store_each(s,
                      "SELECT " LIVE OF_ALLOCATIONS " LEFT JOIN recovery_object r ON r.allocation_id=a.id"
                      " WHERE a.life_ns IS NULL AND r.allocation_id IS NULL ORDER BY a.id",
                      load_live) ||
        load_memory(s) || load_last_frees(s))
        return -1;
    if (gs_store_each(s,
                      "SELECT layer,device,events,mismatches,first_mismatch_ns,first_difference,"
                      "last_difference FROM tensor_check",
                      load_check) ||
        gs_store_each(s, "SELECT device,bytes FROM reserved ORDER BY id", load_reserved) ||
        gs_store_each(s,
                      "SELECT id,thread_id,device,layer,space,requested_bytes,tensor_allocated FROM oom "
                      "WHERE fatal=1 ORDER BY id",
                      load_oom) ||
        gs_store_each(s, "SELECT id,kind,handle FROM handle WHERE destroy_ns IS NULL ORDER BY id", load_handle) ||
        gs_store_each(s, "SELECT key,value FROM meta", load_count) ||
        gs_store_each(s, "SELECT name,number,value FROM recovery_value", load_value) || gs_store_load_marks(s) ||
        gs_store_load_pendings(s))
        return -1;
    s->saved_summary = s->summary;
    return give_progress(s, progress, threads);
}
