#include "analyzer/import/nsys_calls.h"

#include <stdio.h>
#include <string.h>
#include "schema/event.h"

enum { VERSION_DIGITS = 4 }; /* of "_v3020", which CUPTI adds; CUDA's own have fewer, as in cuMemAlloc_v2 */
enum { KIND_PAGEABLE, KIND_PINNED, KIND_DEVICE, KIND_ARRAY, KIND_MANAGED, KIND_DEVICE_STATIC, KIND_MANAGED_STATIC };

static void cut_version(char *name)
{
    char *end = strrchr(name, '_');
    size_t digits = end && end[1] == 'v' ? strspn(end + 2, "0123456789") : 0;
    if (digits >= VERSION_DIGITS && !end[2 + digits]) *end = 0;
}

static void cut_suffix(char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    if (n > m && strcmp(name + n - m, suffix) == 0) name[n - m] = 0;
}

/* Removes CUPTI's version and the suffix of the stream: "cudaMemcpyAsync_ptsz_v7000" → "cudaMemcpyAsync", but keeps
 * "cuMemAlloc_v2". */
static void import_call_name(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s", name ? name : "");
    cut_version(out);
    cut_suffix(out, "_ptsz");
    cut_suffix(out, "_ptds");
}

static bool name_begins_with(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* `name` is the result of import_call_name. */
static enum import_role import_call_role(const char *name)
{
    static const struct {
        const char *name;
        enum gs_sync_kind kind;
    } waits[] = {
        {"cudaStreamSynchronize", GS_SYNC_STREAM},
        {"cuStreamSynchronize", GS_SYNC_STREAM},
        {"cudaDeviceSynchronize", GS_SYNC_DEVICE},
        {"cudaThreadSynchronize", GS_SYNC_DEVICE},
        {"cuCtxSynchronize", GS_SYNC_CONTEXT},
        {"cuCtxSynchronize_v2", GS_SYNC_CONTEXT},
        {"cudaExecutionCtxSynchronize", GS_SYNC_CONTEXT},
        {"cudaEventSynchronize", GS_SYNC_EVENT},
        {"cuEventSynchronize", GS_SYNC_EVENT},
    };
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        if (strcmp(name, waits[i].name) == 0) return (enum import_role)(IMPORT_ROLE_WAIT + waits[i].kind);
    if (strstr(name, "LaunchKernel") || strstr(name, "LaunchCooperative")) return IMPORT_ROLE_LAUNCH;
    if (strstr(name, "GraphLaunch")) return IMPORT_ROLE_GRAPH;
    if (name_begins_with(name, "cudaFree") || name_begins_with(name, "cuMemFree") || strstr(name, "HostUnregister") ||
        name_begins_with(name, "cuArrayDestroy") || name_begins_with(name, "cuMipmappedArrayDestroy") ||
        name_begins_with(name, "cuMemHostUnr"))
        return IMPORT_ROLE_FREE;
    if (name_begins_with(name, "cudaMalloc") || name_begins_with(name, "cuMemAlloc") || strstr(name, "HostAlloc") ||
        strstr(name, "HostRegister") || name_begins_with(name, "cuArrayCreate") ||
        name_begins_with(name, "cuArray3DCreate") || name_begins_with(name, "cuMipmappedArrayCreate"))
        return IMPORT_ROLE_ALLOC;
    return IMPORT_ROLE_OTHER;
}

static int host_of(int kind)
{
    switch (kind) {
    case KIND_PAGEABLE: return GS_HOSTMEM_PAGEABLE;
    case KIND_PINNED: return GS_HOSTMEM_PINNED;
    case KIND_MANAGED:
    case KIND_MANAGED_STATIC: return GS_HOSTMEM_MANAGED;
    default: return GS_HOSTMEM_NONE;
    }
}

/* CUPTI's copy kinds 1 to 13: the direction, and whether managed memory migrated. */
static const struct {
    unsigned char direction;
    bool managed;
} copy_kinds[] = {
    [1] = {GS_DIR_H2D, false}, [2] = {GS_DIR_D2H, false},  [3] = {GS_DIR_H2D, false}, [4] = {GS_DIR_D2H, false},
    [5] = {GS_DIR_D2D, false}, [6] = {GS_DIR_D2D, false},  [7] = {GS_DIR_D2D, false}, [8] = {GS_DIR_D2D, false},
    [9] = {GS_DIR_H2H, false}, [10] = {GS_DIR_P2P, false}, [11] = {GS_DIR_H2D, true}, [12] = {GS_DIR_D2H, true},
    [13] = {GS_DIR_D2D, true},
};

static int copy_word(int kind, int from, int to)
{
    const int kinds = (int)(sizeof copy_kinds / sizeof *copy_kinds);
    const bool known = kind > 0 && kind < kinds, host_from = from == KIND_PAGEABLE || from == KIND_PINNED,
               host_to = to == KIND_PAGEABLE || to == KIND_PINNED;
    int direction = known                  ? copy_kinds[kind].direction
                    : host_from && host_to ? GS_DIR_H2H
                    : host_from            ? GS_DIR_H2D
                    : host_to              ? GS_DIR_D2H
                                           : GS_DIR_D2D;
    int host = known && copy_kinds[kind].managed ? GS_HOSTMEM_MANAGED
               : direction == GS_DIR_H2D         ? host_of(from)
               : direction == GS_DIR_D2H         ? host_of(to)
               : direction == GS_DIR_H2H         ? host_of(from == KIND_PAGEABLE ? from : to)
               : from == to                      ? host_of(from)
                                                 : GS_HOSTMEM_NONE;
    return direction | (host + 1) << 3;
}

static int space_of(int kind)
{
    switch (kind) {
    case KIND_PINNED: return GS_SPACE_PINNED;
    case KIND_DEVICE:
    case KIND_DEVICE_STATIC: return GS_SPACE_DEVICE;
    case KIND_ARRAY: return GS_SPACE_ARRAY;
    case KIND_MANAGED:
    case KIND_MANAGED_STATIC: return GS_SPACE_MANAGED;
    default: return -1;
    }
}

static void sql_name(sqlite3_context *context, int n, sqlite3_value **v)
{
    char name[256];
    import_call_name(name, sizeof name, (const char *)sqlite3_value_text(v[0]));
    sqlite3_result_text(context, name, -1, SQLITE_TRANSIENT);
}

static void sql_role(sqlite3_context *context, int n, sqlite3_value **v)
{
    const char *name = (const char *)sqlite3_value_text(v[0]);
    sqlite3_result_int(context, name ? import_call_role(name) : IMPORT_ROLE_OTHER);
}

static void sql_word(sqlite3_context *context, int n, sqlite3_value **v)
{
    sqlite3_result_int(context, copy_word(sqlite3_value_int(v[0]), sqlite3_value_int(v[1]), sqlite3_value_int(v[2])));
}

static void sql_space(sqlite3_context *context, int n, sqlite3_value **v)
{
    sqlite3_result_int(context, space_of(sqlite3_value_int(v[0])));
}

static void sql_whole(sqlite3_context *context, int n, sqlite3_value **v)
{
    sqlite3_result_value(context, sqlite3_value_type(v[0]) == SQLITE_INTEGER ? v[0] : v[1]);
}

static void sql_span(sqlite3_context *context, int n, sqlite3_value **v)
{
    int64_t start = sqlite3_value_int64(v[0]), end = sqlite3_value_int64(v[1]);
    if (sqlite3_value_type(v[0]) != SQLITE_INTEGER || start < -IMPORT_TIME_MAX || start > IMPORT_TIME_MAX) return;
    const bool known = sqlite3_value_type(v[1]) == SQLITE_INTEGER && end > start && end <= IMPORT_TIME_MAX;
    sqlite3_result_int64(context, known ? end - start : 0);
}

static void sql_note_process(sqlite3_context *context, int n, sqlite3_value **v)
{
    struct import_spans *s = sqlite3_user_data(context);
    int64_t process = sqlite3_value_int64(v[0]), start = sqlite3_value_int64(v[1]), span = sqlite3_value_int64(v[2]);
    if (sqlite3_value_type(v[0]) != SQLITE_INTEGER || sqlite3_value_type(v[2]) != SQLITE_INTEGER) return;
    if (s->n > IMPORT_PROCESSES_MAX) return; /* import_nsys refuses the file */
    struct import_span *of = MAP_ROW(&s->index, (uint64_t)process, s->list, s->n, s->cap,
                                     (struct import_span){process, start, start + span});
    of->first = of->first < start ? of->first : start;
    of->last = of->last > start + span ? of->last : start + span;
}

bool import_calls_note_spans(sqlite3 *db, struct import_spans *spans)
{
    return sqlite3_create_function(db, "note_process", 3, SQLITE_UTF8 | SQLITE_DIRECTONLY, spans, sql_note_process,
                                   NULL, NULL) == SQLITE_OK;
}

bool import_calls_register(sqlite3 *db)
{
    static const struct {
        const char *name;
        int arguments;
        void (*call)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = {{"call_name", 1, sql_name}, {"call_role", 1, sql_role}, {"copy_word", 3, sql_word},
                     {"space_of", 1, sql_space}, {"whole", 2, sql_whole},    {"span", 2, sql_span}};
    bool ok = true;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        ok = ok && sqlite3_create_function(db, functions[i].name, functions[i].arguments,
                                           SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, NULL,
                                           functions[i].call, NULL, NULL) == SQLITE_OK;
    }
    return ok;
}
