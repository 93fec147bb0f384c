#include "analyzer/import/trace_file.h"

#include <stdio.h>
#include <string.h>
#include "analyzer/import/trace_event.h"
#include "schema/event.h"

static const int64_t most_bytes = (int64_t)1 << 48;
enum { DETECT_BYTES = 64 << 20 };

struct reading {
    struct import_trace *t;
    struct import_json *j;
    uint32_t ranges;
    int64_t last_action; /* of a memory timeline */
    struct import_trace_event event;
};

static uint32_t thread_of(struct import_trace *t, const struct import_trace_event *e)
{
    uint32_t pid = import_name_of(&t->names, e->pid), tid = import_name_of(&t->names, e->tid);
    return MAP_INDEX_IN(&t->thread_index, (uint64_t)pid << 32 | tid, t->threads,
                        (struct import_trace_thread){.pid = pid, .tid = tid});
}

static struct import_trace_record *keep_trace_record(struct import_trace *t, const struct import_trace_event *e,
                                                     enum import_trace_kind kind)
{
    uint32_t thread = thread_of(t, e);
    struct import_trace_thread *on = &t->threads[thread];
    on->no_process = strcmp(e->pid, "-1") == 0;
    if (!on->used && !on->no_process) {
        uint32_t *process = map_at(&t->process_index, on->pid);
        if (*process == MAP_NEW) *process = t->processes_n++;
        on->process = *process;
    }
    on->used = true;
    struct import_trace_record *r = import_records_add(t->records);
    r->at_ns = e->at_ns;
    r->duration_ns = e->duration_ns;
    r->name = import_name_of(&t->names, e->name);
    r->thread = thread;
    r->kind = (uint8_t)kind;
    return r;
}

static bool note_trace_device(struct import_trace *t, int64_t device)
{
    if (device < 0 || device >= IMPORT_TRACE_DEVICES) return false;
    t->devices[device].used = true;
    return true;
}

static void keep_memory(struct import_trace *t, const struct import_trace_event *e, enum import_trace_kind kind)
{
    const struct import_event_args *a = &e->args;
    bool cpu = a->device_type == IMPORT_UNKNOWN ? a->device < 0 : a->device_type == 0;
    if (a->bytes == 0) return;
    if (a->bytes < -most_bytes || a->bytes > most_bytes || (!cpu && !note_trace_device(t, a->device))) {
        t->left_out++;
        return;
    }
    if (!cpu) t->devices[a->device].memory = true;
    struct import_trace_record *r = keep_trace_record(t, e, kind);
    r->duration_ns = -1;
    r->address = a->address == IMPORT_UNKNOWN ? 0 : (uint64_t)a->address;
    r->bytes = a->bytes;
    r->allocated = a->allocated < 0 ? -1 : a->allocated;
    r->reserved = a->reserved < 0 ? -1 : a->reserved;
    r->device = cpu ? -1 : (int8_t)a->device;
    r->placed = a->address != IMPORT_UNKNOWN && a->address != 0;
    t->memory_n++;
    t->gpu_memory = t->gpu_memory || !cpu;
}

static void keep_range(struct reading *r)
{
    static const char step[] = "ProfilerStep#";
    struct import_trace_event *e = &r->event;
    /* one name for all steps: the ranges repeat */
    if (strncmp(e->name, step, sizeof step - 1) == 0) e->name[sizeof step - 2] = 0;
    keep_trace_record(r->t, e, IMPORT_TRACE_RANGE)->a = ++r->ranges;
    e->at_ns += e->duration_ns;
    e->duration_ns = -1;
    keep_trace_record(r->t, e, IMPORT_TRACE_RANGE_END)->a = r->ranges;
}

/* Removes the address of "<built-in method add of Tensor object at 0x7f…>", because it is the same function each time.
 */
static void keep_python(struct import_trace *t, struct import_trace_event *e)
{
    static const char address[] = " at 0x";
    char *at = strstr(e->name, address);
    if (at) {
        char *rest = at + sizeof address - 1;
        rest += strspn(rest, "0123456789abcdefABCDEF");
        memmove(at, rest, strlen(rest) + 1);
    }
    struct import_trace_record *r = keep_trace_record(t, e, IMPORT_TRACE_PYTHON);
    r->a = e->args.python_id > 0 ? (uint32_t)e->args.python_id : 0;
    r->b = e->args.python_parent > 0 ? (uint32_t)e->args.python_parent : 0;
    t->lines = true;
}

/* Of hipMemcpyKind; 0: unknown. */
static uint8_t direction_plus_1(int64_t kind)
{
    static const uint8_t directions[] = {GS_DIR_H2H, GS_DIR_H2D, GS_DIR_D2H, GS_DIR_D2D};
    return kind >= 0 && kind < (int64_t)sizeof directions ? (uint8_t)(directions[kind] + 1) : 0;
}

static void keep_trace_call(struct import_trace *t, const struct import_trace_event *e)
{
    static const struct {
        const char *part;
        uint8_t kind, sync;
    } known[] = {
        {"StreamSynchronize", IMPORT_TRACE_WAIT, GS_SYNC_STREAM},
        {"DeviceSynchronize", IMPORT_TRACE_WAIT, GS_SYNC_DEVICE},
        {"EventSynchronize", IMPORT_TRACE_WAIT, GS_SYNC_EVENT},
        {"CtxSynchronize", IMPORT_TRACE_WAIT, GS_SYNC_CONTEXT},
        {"ExecutionCtxSynchronize", IMPORT_TRACE_WAIT, GS_SYNC_CONTEXT},
        {"Memcpy", IMPORT_TRACE_COPY, 0},
        {"Memset", IMPORT_TRACE_FILL, 0},
        {"GraphLaunch", IMPORT_TRACE_GRAPH, 0},
    };
    size_t prefix = strncmp(e->name, "cuda", 4) == 0 ? 4 : strncmp(e->name, "cu", 2) == 0 ? 2 : 3;
    t->calls = true;
    if (prefix == 3 && strncmp(e->name, "hip", 3) != 0) return;
    t->rocm = t->rocm || prefix == 3;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(e->name + prefix, known[i].part, strlen(known[i].part)) != 0) continue;
        struct import_trace_record *r = keep_trace_record(t, e, known[i].kind);
        r->sync = known[i].kind == IMPORT_TRACE_COPY ? direction_plus_1(e->args.kind) : known[i].sync;
        r->a = e->args.correlation == IMPORT_UNKNOWN ? 0 : (uint32_t)e->args.correlation;
        r->bytes = e->args.size < 0 || e->args.size > most_bytes ? -1 : e->args.size;
        return;
    }
}

/* XpuptiActivityHandlers.cpp of kineto, since July 2026. The other types are barriers on the GPU. */
static void keep_wait(struct import_trace *t, const struct import_trace_event *e)
{
    static const struct {
        const char *type;
        uint8_t sync;
    } waits[] = {{"HOST_EVENT", GS_SYNC_EVENT},
                 {"HOST_FENCE", GS_SYNC_STREAM},
                 {"HOST_COMMAND_LIST", GS_SYNC_STREAM},
                 {"HOST_COMMAND_QUEUE", GS_SYNC_STREAM}};
    t->calls = true;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        if (strcmp(e->label, waits[i].type) == 0) keep_trace_record(t, e, IMPORT_TRACE_WAIT)->sync = waits[i].sync;
}

/* "M2D" in a name of Intel's PTI (pti_view_memcpy_type): M and H are memory of the host, S is shared, D the device's.
 */
static bool read_pti_direction(const char *name, uint8_t *direction)
{
    static const char host[] = "MH", all[] = "MHSD";
    for (const char *at = name; (at = strchr(at, '2')) != NULL; at++) {
        if (at == name || !strchr(all, at[-1]) || !at[1] || !strchr(all, at[1])) continue;
        const bool from = strchr(host, at[-1]) != NULL, to = strchr(host, at[1]) != NULL;
        *direction = from && to ? GS_DIR_H2H : from ? GS_DIR_H2D : to ? GS_DIR_D2H : GS_DIR_D2D;
        return true;
    }
    return false;
}

/* Names of CUPTI, ROCm and Intel's PTI. False: the name has no direction. */
static bool read_copy_name(const char *name, struct import_trace_gpu *g)
{
    static const struct {
        const char *part;
        uint8_t direction;
    } directions[] = {{"HtoD", GS_DIR_H2D},           {"DtoH", GS_DIR_D2H},         {"DtoD", GS_DIR_D2D},
                      {"PtoP", GS_DIR_P2P},           {"HtoH", GS_DIR_H2H},         {"HtoA", GS_DIR_H2D},
                      {"AtoH", GS_DIR_D2H},           {"AtoA", GS_DIR_D2D},         {"AtoD", GS_DIR_D2D},
                      {"DtoA", GS_DIR_D2D},           {"HostToDevice", GS_DIR_H2D}, {"DeviceToHost", GS_DIR_D2H},
                      {"DeviceToDevice", GS_DIR_D2D}, {"HostToHost", GS_DIR_H2H}};
    size_t i = 0;
    const size_t n = sizeof directions / sizeof *directions;
    while (i < n && !strstr(name, directions[i].part)) i++;
    if (i < n)
        g->direction = directions[i].direction;
    else if (!read_pti_direction(name, &g->direction))
        return false;
    bool host = g->direction == GS_DIR_H2D || g->direction == GS_DIR_D2H || g->direction == GS_DIR_H2H;
    g->memory = !host ? GS_HOSTMEM_NONE
                : strstr(name, "Pageable") || strstr(name, "Pagable") /* kineto until November 2020 */
                    ? GS_HOSTMEM_PAGEABLE
                    : strstr(name, "Pinned")    ? GS_HOSTMEM_PINNED
                      : strstr(name, "Managed") ? GS_HOSTMEM_MANAGED
                                                : GS_HOSTMEM_NONE;
    return true;
}

static void keep_gpu(struct import_trace *t, const struct import_trace_event *e, bool copies)
{
    const struct import_event_args *a = &e->args;
    bool unsized = a->bytes == IMPORT_UNKNOWN;
    bool sane = (unsized || (a->bytes >= 0 && a->bytes <= most_bytes)) && note_trace_device(t, a->device);
    if (!sane) {
        t->left_out++;
        return;
    }
    struct import_trace_gpu g = {.at_ns = e->at_ns,
                                 .bytes = unsized ? -1 : a->bytes,
                                 .stream = a->stream > 0 ? (uint64_t)a->stream : 0,
                                 .correlation = (uint32_t)a->correlation,
                                 .device = (int16_t)a->device,
                                 .direction = GS_DIR_D2D, /* the direction of a fill */
                                 .kind = copies ? IMPORT_TRACE_COPY : IMPORT_TRACE_FILL};
    if (copies && !read_copy_name(e->name, &g)) {
        t->undirected++;
        return;
    }
    *ARENA_ADD(t->gpu) = g;
}

static void keep_event(struct reading *r)
{
    struct import_trace *t = r->t;
    struct import_trace_event *e = &r->event;
    bool step = strncmp(e->name, "ProfilerStep#", 13) == 0;
    t->events++;
    if (e->phase == 'M' && strcmp(e->name, "thread_name") == 0 && e->label[0]) {
        uint32_t thread = thread_of(t, e);
        t->threads[thread].name = import_name_of(&t->names, e->label);
    }
    if (e->at_ns == IMPORT_UNKNOWN) return;
    if (e->phase == 'i' && strcmp(e->name, "[memory]") == 0) keep_memory(t, e, IMPORT_TRACE_MEMORY);
    if (e->phase == 'i' && strcmp(e->name, "[OutOfMemory]") == 0) keep_memory(t, e, IMPORT_TRACE_OOM);
    if (e->phase != 'X') return;
    if (e->category == IMPORT_CATEGORY_NONE && strcmp(e->pid, "CPU functions") == 0) e->category = IMPORT_CATEGORY_OP;
    switch (e->category) {
    case IMPORT_CATEGORY_OP:
        if (step)
            keep_range(r);
        else
            keep_trace_record(t, e, IMPORT_TRACE_OP)->a = import_name_of(&t->names, e->stack);
        break;
    case IMPORT_CATEGORY_PYTHON: keep_python(t, e); break;
    case IMPORT_CATEGORY_RANGE: keep_range(r); break;
    case IMPORT_CATEGORY_CALL: keep_trace_call(t, e); break;
    case IMPORT_CATEGORY_WAIT: keep_wait(t, e); break;
    case IMPORT_CATEGORY_GPU_COPY: keep_gpu(t, e, true); break;
    case IMPORT_CATEGORY_GPU_FILL: keep_gpu(t, e, false); break;
    case IMPORT_CATEGORY_KERNEL: note_trace_device(t, e->args.device); break;
    default: break;
    }
}

/* A new version of a tensor is a free and an allocation of the same bytes at the same time: drops both. */
static void drop_version(struct import_trace *t)
{
    const struct import_trace_record *second = import_records_last(t->records, 0),
                                     *first = import_records_last(t->records, 1);
    if (!first || first->kind != IMPORT_TRACE_MEMORY || second->kind != IMPORT_TRACE_MEMORY) return;
    if (first->at_ns != second->at_ns || first->bytes >= 0 || first->bytes != -second->bytes) return;
    import_records_drop(t->records, 2);
    t->memory_n -= 2;
}

/* An entry of export_memory_timeline: [time, action, bytes, category]. The time of memory that existed before is -1. */
static bool read_moment(struct reading *r)
{
    static const char *const categories[] = {"[parameters]",  "[optimizer_state]", "[inputs]",          "[temporary]",
                                             "[activations]", "[gradients]",       "[autograd_detail]", "[unknown]"};
    int64_t values[4] = {IMPORT_UNKNOWN, IMPORT_UNKNOWN, IMPORT_UNKNOWN, IMPORT_UNKNOWN};
    enum import_json_token token;
    for (size_t i = 0; (token = import_json_next(r->j)) != IMPORT_JSON_LIST_END; i++) {
        if (token == IMPORT_JSON_NUMBER && i < 4) values[i] = import_json_integer(import_json_text(r->j));
        if (!import_json_skip(r->j, token)) return false;
    }
    struct import_trace_event *e = &r->event;
    if (values[3] == IMPORT_UNKNOWN || values[0] < -1 || values[0] >= INT64_MAX / 2) return true;
    size_t category = values[3] >= 0 && values[3] < 7 ? (size_t)values[3] : 7;
    *e = (struct import_trace_event){.phase = 'i', .at_ns = values[0]};
    snprintf(e->name, sizeof e->name, "%s", categories[category]);
    e->args.device = 0;
    e->args.device_type = 1;
    e->args.bytes = values[2];
    e->args.address = e->args.allocated = e->args.reserved = IMPORT_UNKNOWN;
    r->t->events++;
    r->t->timeline = true;
    keep_memory(r->t, e, IMPORT_TRACE_MEMORY);
    if (r->last_action == values[1]) drop_version(r->t);
    r->last_action = values[1];
    return true;
}

static bool read_trace_events(struct reading *r)
{
    enum import_json_token token;
    const size_t depth = import_json_depth(r->j);
    while ((token = import_json_next(r->j)) != IMPORT_JSON_LIST_END) {
        bool event = token == IMPORT_JSON_OBJECT;
        bool ok = event                       ? import_trace_event_read(r->j, &r->event)
                  : token == IMPORT_JSON_LIST ? read_moment(r)
                                              : import_json_skip(r->j, token);
        if (!ok && !import_json_resume(r->j, depth)) return false;
        if (!ok) r->t->malformed++; /* some versions do not escape all texts */
        if (ok && event) keep_event(r);
    }
    return true;
}

static bool read_trace_device(struct reading *r)
{
    char key[32], name[256] = "";
    int64_t id = IMPORT_UNKNOWN, total = 0;
    enum import_json_token token;
    while ((token = import_json_next(r->j)) == IMPORT_JSON_KEY) {
        snprintf(key, sizeof key, "%.31s", import_json_text(r->j));
        token = import_json_next(r->j);
        const char *text = import_json_text(r->j);
        if (token == IMPORT_JSON_NUMBER && strcmp(key, "id") == 0) id = import_json_integer(text);
        if (token == IMPORT_JSON_NUMBER && strcmp(key, "totalGlobalMem") == 0) total = import_json_integer(text);
        if (token == IMPORT_JSON_STRING && strcmp(key, "name") == 0) snprintf(name, sizeof name, "%.255s", text);
        if (!import_json_skip(r->j, token)) return false;
    }
    if (id >= 0 && id < IMPORT_TRACE_DEVICES && name[0]) {
        struct import_trace_device *device = &r->t->devices[id];
        device->name = arena_printf(&r->t->names.texts.arena, "%s", name);
        device->total_bytes = total > 0 && total <= most_bytes ? total : 0;
    }
    return token == IMPORT_JSON_OBJECT_END;
}

static bool read_devices(struct reading *r, enum import_json_token token)
{
    if (token != IMPORT_JSON_LIST) return import_json_skip(r->j, token);
    while ((token = import_json_next(r->j)) != IMPORT_JSON_LIST_END)
        if (token == IMPORT_JSON_OBJECT ? !read_trace_device(r) : !import_json_skip(r->j, token)) return false;
    return true;
}

static bool read_trace_rank(struct reading *r, enum import_json_token token)
{
    if (token != IMPORT_JSON_OBJECT) return import_json_skip(r->j, token);
    while ((token = import_json_next(r->j)) == IMPORT_JSON_KEY) {
        bool rank = strcmp(import_json_text(r->j), "rank") == 0;
        token = import_json_next(r->j);
        int64_t value = token == IMPORT_JSON_NUMBER || token == IMPORT_JSON_STRING
                            ? import_json_integer(import_json_text(r->j))
                            : -1;
        if (rank && value >= 0 && value < 1 << 24) r->t->rank = value;
        if (!import_json_skip(r->j, token)) return false;
    }
    return token == IMPORT_JSON_OBJECT_END;
}

static bool read_member(struct reading *r)
{
    char key[32];
    snprintf(key, sizeof key, "%.31s", import_json_text(r->j));
    enum import_json_token token = import_json_next(r->j);
    if (strcmp(key, "deviceProperties") == 0) return read_devices(r, token);
    if (strcmp(key, "distributedInfo") == 0) return read_trace_rank(r, token);
    if (strcmp(key, "traceEvents") == 0 && token == IMPORT_JSON_LIST) return read_trace_events(r);
    if (strcmp(key, "baseTimeNanoseconds") == 0 && (token == IMPORT_JSON_NUMBER || token == IMPORT_JSON_STRING)) {
        int64_t base = import_json_integer(import_json_text(r->j));
        r->t->base_ns = base > 0 ? base : 0;
    }
    return import_json_skip(r->j, token);
}

static bool read_trace_file(struct reading *r)
{
    enum import_json_token token = import_json_next(r->j);
    if (token == IMPORT_JSON_LIST) return read_trace_events(r);
    if (token != IMPORT_JSON_OBJECT) return false;
    while ((token = import_json_next(r->j)) == IMPORT_JSON_KEY)
        if (!read_member(r)) return false;
    return token == IMPORT_JSON_OBJECT_END;
}

struct import_trace *import_trace_read(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self,
                                       char *error, size_t error_size)
{
    struct reading r = {.j = import_json_open(path, progress, self, error, error_size)};
    if (!r.j) return NULL;
    r.t = arena_realloc(NULL, 1, sizeof *r.t);
    *r.t = (struct import_trace){.rank = -1, .records = import_records_new(to, IMPORT_RECORDS_HELD)};
    import_name_of(&r.t->names, "");
    if (read_trace_file(&r))
        r.t->has_more = import_json_more(r.j);
    else
        snprintf(r.t->cut, sizeof r.t->cut, "%s", import_json_problem(r.j));
    import_json_close(r.j);
    if (import_records_count(r.t->records) || r.t->gpu_n) return r.t;
    if (r.t->cut[0]) {
        snprintf(error, error_size, "%s before the first event that gpuspy reads", r.t->cut);
    } else {
        snprintf(error, error_size,
                 "it is a trace, but has no operators, CUDA calls or memory events of torch.profiler");
    }
    import_trace_free(r.t);
    return NULL;
}

void import_trace_free(struct import_trace *t)
{
    import_names_free(&t->names);
    MAP_RELEASE(&t->thread_index, &t->process_index);
    import_records_free(t->records);
    ARENA_RELEASE(t->gpu, t->threads, t);
}

/* The first element of a list: an event, or the four numbers of a memory timeline. */
static bool is_event(struct import_json *j)
{
    enum import_json_token token = import_json_next(j);
    if (token == IMPORT_JSON_LIST) {
        size_t numbers = 0;
        while ((token = import_json_next(j)) == IMPORT_JSON_NUMBER) numbers++;
        return token == IMPORT_JSON_LIST_END && numbers == 4;
    }
    if (token != IMPORT_JSON_OBJECT) return false;
    while ((token = import_json_next(j)) == IMPORT_JSON_KEY) {
        if (strcmp(import_json_text(j), "ph") == 0) return true;
        if (!import_json_skip(j, IMPORT_JSON_KEY)) return false;
    }
    return false;
}

bool import_trace_has_events(const char *path)
{
    char ignored[128];
    struct import_json *j = import_json_open(path, NULL, NULL, ignored, sizeof ignored);
    bool found = false;
    if (!j) return false;
    enum import_json_token token = import_json_next(j);
    if (token == IMPORT_JSON_LIST) {
        found = is_event(j);
    } else if (token == IMPORT_JSON_OBJECT) {
        while (!found && import_json_bytes(j) < DETECT_BYTES && import_json_next(j) == IMPORT_JSON_KEY) {
            found = strcmp(import_json_text(j), "traceEvents") == 0;
            if (!found && !import_json_skip(j, IMPORT_JSON_KEY)) break;
        }
    }
    import_json_close(j);
    return found;
}
