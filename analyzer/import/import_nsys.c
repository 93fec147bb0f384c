/* Feeds the staged rows of an export, in order of process and time, into one database per process. Time 0 of all
 * processes is the first event of any of them. Columns: docs.nvidia.com/nsight-systems, "SQLite Export Schema
 * Reference". */
#include "analyzer/import/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/import/feed.h"
#include "analyzer/import/nsys_calls.h"
#include "analyzer/import/nsys_stage.h"
#include "analyzer/import/siblings.h"
#include "schema/event.h"

enum {
    THREADS_MAX = 4096, /* of a process; further ones become one */
    RECENT = 16,        /* calls that may allocate, of all threads */
    ROWS_EACH = 1 << 14
};
static const int64_t epoch_ns = 1000000000000000000; /* from here on, times are wall-clock times */

struct call {
    int64_t start, end, thread, api, chain;
};

struct reading {
    struct import_nsys *s;
    struct import_feed *feed;
    sqlite3_stmt *events, *thread, *chain, *range, *text; /* text: api.name */
    const char *to, *file;
    int64_t process, base, last_call;
    int64_t start_real_ns; /* of time 0; 0: unknown */
    char path[4096];       /* of the feed's database */
    struct map apis;       /* api.id → the feed's number */
    struct map threads;    /* thread → index in thread_list */
    struct thread_state {
        uint32_t number;
        int64_t until; /* the end of its last wait */
    } * thread_list;
    size_t threads_n, threads_cap;
    struct map stacks; /* chain and thread → the feed's number */
    struct call recent[RECENT];
    size_t recent_n;
    char *error;
    size_t error_size;
};

enum {
    E_AT,
    E_KIND,
    E_SEQ,
    E_THREAD,
    E_API,
    E_DEVICE,
    E_STREAM,
    E_BYTES,
    E_SPAN,
    E_WORD,
    E_ADDRESS,
    E_CHAIN,
    E_PROCESS
};
static const char events_sql[] =
    "SELECT at, kind, seq, thread, api, device, stream, bytes, span, word, address, chain, "
    "process FROM event ORDER BY process, at, kind, seq";

static const char *column_text(sqlite3_stmt *st, int column)
{
    const char *text = (const char *)sqlite3_column_text(st, column);
    return text && *text ? text : NULL;
}

/* Chooses a thread. Thread 0 means "unknown": the feed's first thread, which has no name. */
static struct thread_state *choose_nsys_thread(struct reading *r, int64_t thread)
{
    uint32_t *at = map_at(&r->threads, (uint64_t)thread);
    if (*at == MAP_NEW && r->threads_n >= THREADS_MAX) *at = 0;
    if (*at == MAP_NEW) {
        uint32_t number = 1;
        *at = (uint32_t)r->threads_n;
        if (thread) {
            sqlite3_reset(r->thread);
            sqlite3_bind_int64(r->thread, 1, thread);
            const char *name = sqlite3_step(r->thread) == SQLITE_ROW ? column_text(r->thread, 0) : NULL;
            number = import_feed_thread(r->feed, (uint32_t)(thread & 0xffffff), name);
            sqlite3_reset(r->thread);
        }
        ARENA_APPEND_TO(r->thread_list, r->threads_n, r->threads_cap, .number = number, .until = INT64_MIN);
    }
    struct thread_state *state = &r->thread_list[*at];
    import_feed_choose_thread(r->feed, state->number);
    return state;
}

/* A symbol that was not resolved is an address, which means nothing outside of the process. */
static const char *resolved_symbol(const char *symbol)
{
    return symbol && symbol[0] == '0' && symbol[1] == 'x' && !symbol[2 + strspn(symbol + 2, "0123456789abcdefABCDEF")]
               ? NULL
               : symbol;
}

static const char *api_name(struct reading *r, int64_t id)
{
    sqlite3_reset(r->text);
    sqlite3_bind_int64(r->text, 1, id);
    return sqlite3_step(r->text) == SQLITE_ROW ? column_text(r->text, 0) : NULL;
}

/* A frame of CUPTI, or a frame of CUDA without a symbol. */
static bool is_inside(const struct import_frame *frame)
{
    const char *name = frame->module ? basename(frame->module) : NULL;
    return name && (strncmp(name, "libcupti", 8) == 0 || (!frame->function && strncmp(name, "libcuda", 7) == 0));
}

/* How many frames to drop: a chain begins inside the call, in the profiler, but the stack of an event is that of the
 * call's caller. */
static size_t frames_inside(const struct import_frame *frames, size_t n, const char *api)
{
    size_t inside = 0;
    while (inside < n && is_inside(&frames[inside])) inside++;
    for (size_t i = 0; api && i + 1 < n; i++)
        if (frames[i].function && strcmp(frames[i].function, api) == 0) return i + 1;
    return inside < n ? inside : 0;
}

static uint32_t nsys_stack_of(struct reading *r, int64_t chain, int64_t api, uint32_t thread)
{
    static struct import_frame frames[IMPORT_DEPTH];
    struct arena arena = {0};
    size_t n = 0;
    if (chain <= 0) return 0;
    uint32_t *stack = map_at(&r->stacks, map_hash(map_hash((uint64_t)chain) ^ (uint64_t)api) ^ thread);
    if (*stack != MAP_NEW) return *stack;
    sqlite3_reset(r->chain);
    sqlite3_bind_int64(r->chain, 1, chain - 1 + r->s->first_chain);
    while (n < IMPORT_DEPTH && sqlite3_step(r->chain) == SQLITE_ROW) {
        const char *symbol = resolved_symbol(column_text(r->chain, 0)), *module = column_text(r->chain, 1);
        if (!symbol && !module) continue;
        frames[n++] = (struct import_frame){.function = symbol ? arena_printf(&arena, "%s", symbol) : NULL,
                                            .module = module ? arena_printf(&arena, "%s", module) : NULL};
    }
    sqlite3_reset(r->chain);
    size_t inside = frames_inside(frames, n, api_name(r, api));
    *stack = import_feed_stack(r->feed, frames + inside, n - inside);
    arena_free(&arena);
    return *stack;
}

static uint16_t api_of(struct reading *r, int64_t id)
{
    uint32_t number = id ? map_get(&r->apis, (uint64_t)id) : 0;
    return number == MAP_NEW ? 0 : (uint16_t)number;
}

static sqlite3_stmt *prepare_nsys(struct reading *r, const char *sql)
{
    return import_nsys_prepare(r->s, sql, r->error, r->error_size);
}

static int64_t read_nsys_scalar(struct reading *r, const char *sql, int64_t otherwise)
{
    sqlite3_stmt *st = NULL;
    bool is = sqlite3_prepare_v2(r->s->db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW &&
              sqlite3_column_type(st, 0) == SQLITE_INTEGER;
    int64_t value = is ? sqlite3_column_int64(st, 0) : otherwise;
    sqlite3_finalize(st);
    return value;
}

/* The same in every process, in the same order: `gpuspy sql` uses the first one's numbers for all. */
static bool add_apis(struct reading *r)
{
    sqlite3_stmt *st =
        prepare_nsys(r, "SELECT id, name FROM api WHERE name <> '' AND id <> 0 AND role <> 1 ORDER BY id");
    int rc = SQLITE_DONE;
    while (st && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        *map_at(&r->apis, (uint64_t)sqlite3_column_int64(st, 0)) =
            import_feed_api(r->feed, (const char *)sqlite3_column_text(st, 1));
    }
    sqlite3_finalize(st);
    return st && (rc == SQLITE_DONE || import_nsys_bad(r->s, r->error, r->error_size));
}

static bool add_nsys_devices(struct reading *r)
{
    sqlite3_stmt *st = prepare_nsys(r, "SELECT device, name, bytes FROM gpu WHERE process = ?1 ORDER BY device");
    int rc = SQLITE_DONE;
    sqlite3_bind_int64(st, 1, r->process);
    while (st && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t bytes = sqlite3_column_int64(st, 2);
        import_feed_device(r->feed, sqlite3_column_int(st, 0), column_text(st, 1), bytes > 0 ? (uint64_t)bytes : 0);
    }
    sqlite3_finalize(st);
    return st && (rc == SQLITE_DONE || import_nsys_bad(r->s, r->error, r->error_size));
}

static int64_t count_failures(struct reading *r)
{
    sqlite3_stmt *st = NULL;
    int64_t n = 0;
    if (sqlite3_prepare_v2(r->s->db, "SELECT count FROM failure WHERE process = ?1", -1, &st, NULL) == SQLITE_OK) {
        sqlite3_bind_int64(st, 1, r->process);
        n = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    }
    sqlite3_finalize(st);
    return n;
}

/* Nsight Systems warns of it. */
static bool may_lack_calls(struct reading *r)
{
    sqlite3_stmt *st = NULL;
    bool may = false;
    if (sqlite3_prepare_v2(r->s->db,
                           "SELECT 1 FROM x.DIAGNOSTIC_EVENT WHERE text LIKE 'Not all CUDA events might have been "
                           "collected%' AND (globalPid IS NULL OR globalPid >> 24 = ?1)",
                           -1, &st, NULL) == SQLITE_OK) {
        sqlite3_bind_int64(st, 1, r->process);
        may = sqlite3_step(st) == SQLITE_ROW;
    }
    sqlite3_finalize(st);
    return may;
}

static void write_nsys_notes(struct reading *r)
{
    const int64_t failures = count_failures(r);
    import_feed_note(r->feed, "has", "the copies, fills, waits and NVTX ranges of its processes%s",
                     r->s->memory ? ", and their CUDA allocations" : "");
    if (may_lack_calls(r))
        import_feed_remark(r->feed, 1, "Nsight Systems warns that it may not have recorded all calls of CUDA");
    import_feed_note(r->feed, "lacks", "tensors%s%s", r->s->memory ? "" : " memory", failures ? " failures" : "");
    if (!r->s->memory) {
        import_feed_note(r->feed, "lacks.memory",
                         "an Nsight Systems export without --cuda-memory-usage=true does not record memory");
    }
    if (failures) {
        import_feed_note(
            r->feed, "lacks.failures",
            "%lld allocation%s of process %u failed because memory ran out; an Nsight Systems export does not "
            "record how much %s requested",
            (long long)failures, failures == 1 ? "" : "s", (unsigned)(r->process & 0xffffff),
            failures == 1 ? "it" : "they");
    }
}

static bool end_nsys_process(struct reading *r, bool keep)
{
    char ignored[256];
    if (!r->feed) return true;
    if (keep) write_nsys_notes(r);
    bool ok = import_feed_end(r->feed, keep ? r->error : ignored, keep ? r->error_size : sizeof ignored);
    r->feed = NULL;
    MAP_RELEASE(&r->apis, &r->threads, &r->stacks);
    r->threads_n = r->recent_n = 0;
    r->last_call = 0;
    return ok;
}

/* The first database has the requested name, the others have names like gpuspy's own recordings: NAME.PID.db. */
static void name_database(struct reading *r, uint32_t pid, size_t index)
{
    if (!index) {
        snprintf(r->path, sizeof r->path, "%s", r->to);
        return;
    }
    do {
        import_sibling_name(r->path, sizeof r->path, r->to, pid++);
    } while (access(r->path, F_OK) == 0);
}

static bool start_nsys_process(struct reading *r, int64_t process, const char *name, int64_t last, size_t index)
{
    const uint32_t pid = (uint32_t)(process & 0xffffff);
    name_database(r, pid, index);
    r->process = process;
    struct import_source source = {.format = "Nsight Systems export",
                                   .file = r->file,
                                   .command = name,
                                   .pid = pid,
                                   .start_real_ns = r->start_real_ns > 0 ? (uint64_t)r->start_real_ns : 0};
    r->feed = import_feed_start(r->path, &source, r->error, r->error_size);
    if (!r->feed) return false;
    if (!index) import_feed_damaged(r->feed, r->s->damaged);
    import_feed_until(r->feed, last - r->base);
    return add_apis(r) && add_nsys_devices(r);
}

static struct import_event nsys_event_of(struct reading *r, sqlite3_stmt *st)
{
    struct thread_state *thread = choose_nsys_thread(r, sqlite3_column_int64(st, E_THREAD));
    int64_t device = sqlite3_column_int64(st, E_DEVICE);
    return (struct import_event){
        .time_ns = sqlite3_column_int64(st, E_AT) - r->base,
        .device = device >= 0 && device < 126 ? (int)device : -1,
        .stack = nsys_stack_of(r, sqlite3_column_int64(st, E_CHAIN), sqlite3_column_int64(st, E_API), thread->number),
        .api = api_of(r, sqlite3_column_int64(st, E_API)),
        .address = (uint64_t)sqlite3_column_int64(st, E_ADDRESS),
        .stream = (uint64_t)sqlite3_column_int64(st, E_STREAM),
        .bytes = sqlite3_column_int64(st, E_BYTES)};
}

/* A call may have several copies: it blocks the host only once. */
static uint64_t blocked_in(struct reading *r, sqlite3_stmt *st)
{
    int64_t call = sqlite3_column_int64(st, E_SEQ), span = sqlite3_column_int64(st, E_SPAN);
    bool again = call && call == r->last_call;
    r->last_call = call;
    return again ? 0 : span < 0 ? UINT64_MAX : (uint64_t)span;
}

static bool is_async(const char *api)
{
    return !api || strstr(api, "Async") || strstr(api, "Batch") || strstr(api, "Graph");
}

static void read_nsys_copy(struct reading *r, sqlite3_stmt *st, enum import_staged kind)
{
    struct import_event e = nsys_event_of(r, st);
    int64_t word = sqlite3_column_int64(st, E_WORD);
    uint64_t blocked = blocked_in(r, st);
    e.async = is_async(api_name(r, sqlite3_column_int64(st, E_API)));
    e.host_memory = (uint8_t)(word >> 3);
    if (kind == IMPORT_STAGED_COPY)
        import_feed_copy(r->feed, &e, word & 7, blocked);
    else
        import_feed_fill(r->feed, &e, blocked);
}

/* A wait within another wait of its thread is part of that. */
static void read_wait(struct reading *r, sqlite3_stmt *st)
{
    int64_t at = sqlite3_column_int64(st, E_AT), span = sqlite3_column_int64(st, E_SPAN),
            thread = sqlite3_column_int64(st, E_THREAD);
    struct thread_state *state = choose_nsys_thread(r, thread);
    if (thread && at < state->until) return;
    state->until = at + span;
    struct import_event e = nsys_event_of(r, st);
    import_feed_wait(r->feed, &e, (uint8_t)sqlite3_column_int64(st, E_WORD), (uint64_t)span);
}

static void keep_nsys_call(struct reading *r, sqlite3_stmt *st)
{
    int64_t at = sqlite3_column_int64(st, E_AT);
    r->recent[r->recent_n++ % RECENT] = (struct call){.start = at,
                                                      .end = at + sqlite3_column_int64(st, E_SPAN),
                                                      .thread = sqlite3_column_int64(st, E_THREAD),
                                                      .api = sqlite3_column_int64(st, E_API),
                                                      .chain = sqlite3_column_int64(st, E_CHAIN)};
}

/* Finds the call for a memory event that does not name it: of several threads' calls at that time, the one that began
 * last. */
static void find_call(struct reading *r, struct import_event *e, int64_t at)
{
    const struct call *found = NULL;
    for (size_t i = 0; i < RECENT && i < r->recent_n; i++) {
        const struct call *c = &r->recent[i];
        if (c->start <= at && at <= c->end && (!found || c->start > found->start)) found = c;
    }
    if (found) {
        e->api = api_of(r, found->api);
        e->stack = nsys_stack_of(r, found->chain, found->api, choose_nsys_thread(r, found->thread)->number);
    } else {
        e->api = import_feed_api(r->feed, "unknown call");
    }
}

static void read_memory(struct reading *r, sqlite3_stmt *st, bool freed)
{
    struct import_event e = nsys_event_of(r, st);
    e.space = (uint8_t)sqlite3_column_int64(st, E_WORD);
    if (!e.api) find_call(r, &e, sqlite3_column_int64(st, E_AT));
    if (e.bytes > 0 || freed) import_feed_segment(r->feed, &e, freed, 0);
}

static void read_nsys_range(struct reading *r, sqlite3_stmt *st, enum import_staged kind)
{
    int64_t id = sqlite3_column_int64(st, E_SEQ), at = sqlite3_column_int64(st, E_AT) - r->base;
    choose_nsys_thread(r, sqlite3_column_int64(st, E_THREAD));
    if (kind == IMPORT_STAGED_RANGE_END) {
        import_feed_range(r->feed, at, (uint64_t)id, true, NULL, NULL);
        return;
    }
    sqlite3_reset(r->range);
    sqlite3_bind_int64(r->range, 1, id);
    if (sqlite3_step(r->range) != SQLITE_ROW) return;
    const char *name = column_text(r->range, 0), *domain = column_text(r->range, 1);
    if (kind == IMPORT_STAGED_MOMENT) {
        import_feed_moment(r->feed, at, domain, name);
    } else {
        import_feed_range(r->feed, at, (uint64_t)id, false, domain, name);
        if (!sqlite3_column_int64(st, E_SPAN)) import_feed_range(r->feed, at, (uint64_t)id, true, NULL, NULL);
    }
    sqlite3_reset(r->range);
}

static void read_nsys_event(struct reading *r, sqlite3_stmt *st)
{
    enum import_staged kind = (enum import_staged)sqlite3_column_int(st, E_KIND);
    switch (kind) {
    case IMPORT_STAGED_CALL: keep_nsys_call(r, st); break;
    case IMPORT_STAGED_FREE:
    case IMPORT_STAGED_ALLOC: read_memory(r, st, kind == IMPORT_STAGED_FREE); break;
    case IMPORT_STAGED_COPY:
    case IMPORT_STAGED_FILL: read_nsys_copy(r, st, kind); break;
    case IMPORT_STAGED_WAIT: read_wait(r, st); break;
    default: read_nsys_range(r, st, kind); break;
    }
}

/* Events of one process, up to the first event of the next. */
static bool read_nsys_process(struct reading *r, int *rc)
{
    uint64_t rows = 0;
    for (; *rc == SQLITE_ROW && sqlite3_column_int64(r->events, E_PROCESS) <= r->process;
         *rc = sqlite3_step(r->events)) {
        if (sqlite3_column_int64(r->events, E_PROCESS) == r->process) read_nsys_event(r, r->events);
        if (++rows % ROWS_EACH == 0 && r->s->progress) r->s->progress(r->s->self, (uint64_t)r->s->size);
    }
    return *rc == SQLITE_ROW || *rc == SQLITE_DONE || import_nsys_bad(r->s, r->error, r->error_size);
}

static bool read_processes(struct reading *r)
{
    sqlite3_stmt *st = prepare_nsys(r, "SELECT id, name, last FROM process ORDER BY id");
    int process = SQLITE_DONE, event;
    size_t n = 0;
    bool ok = st && r->events;
    event = ok ? sqlite3_step(r->events) : SQLITE_DONE;
    while (ok && (process = sqlite3_step(st)) == SQLITE_ROW) {
        ok = start_nsys_process(r, sqlite3_column_int64(st, 0), column_text(st, 1), sqlite3_column_int64(st, 2), n++) &&
             read_nsys_process(r, &event);
        ok = end_nsys_process(r, ok) && ok;
    }
    if (ok && process != SQLITE_DONE) ok = import_nsys_bad(r->s, r->error, r->error_size);
    sqlite3_finalize(st);
    return ok;
}

/* The wall clock at time 0: from the session's start, unless the times are wall-clock times themselves. */
static int64_t real_start(struct reading *r)
{
    int64_t start =
        read_nsys_scalar(r,
                         "SELECT utcEpochNs FROM x.TARGET_INFO_SESSION_START_TIME WHERE "
                         "EXISTS (SELECT 1 FROM x.sqlite_master WHERE name = 'TARGET_INFO_SESSION_START_TIME' AND "
                         "type = 'table' AND sql NOT LIKE 'create virtual%') LIMIT 1",
                         0);
    if (r->base >= epoch_ns) return r->base;
    return start > 0 && start < INT64_MAX / 2 && r->base > -epoch_ns ? start + r->base : 0;
}

static bool prepare_nsys_statements(struct reading *r)
{
    r->events = prepare_nsys(r, events_sql);
    r->thread = prepare_nsys(r, "SELECT n.value FROM thread t JOIN text n ON n.id = t.name WHERE t.id = ?1");
    r->chain = prepare_nsys(r, "SELECT s.value, m.value FROM chain c LEFT JOIN text s ON s.id = c.symbol LEFT JOIN "
                               "text m ON m.id = c.module WHERE c.id = ?1 ORDER BY c.depth");
    r->range = prepare_nsys(r, "SELECT r.name, d.name FROM range r LEFT JOIN domain d ON d.process = r.process AND "
                               "d.id = r.domain WHERE r.id = ?1");
    r->text = prepare_nsys(r, "SELECT name FROM api WHERE id = ?1");
    return r->events && r->thread && r->chain && r->range && r->text;
}

static bool check_processes(struct reading *r)
{
    int64_t n = read_nsys_scalar(r, "SELECT count(*) FROM process", 0);
    if (!n) {
        snprintf(r->error, r->error_size,
                 "it holds no CUDA calls; record them with: nsys profile --trace=cuda,nvtx "
                 "--cuda-memory-usage=true COMMAND");
    } else if (n > IMPORT_PROCESSES_MAX) {
        snprintf(r->error, r->error_size, "it holds more than %d processes, which gpuspy does not read",
                 IMPORT_PROCESSES_MAX);
    }
    return n > 0 && n <= IMPORT_PROCESSES_MAX;
}

static void remove_databases(struct reading *r)
{
    unlink(r->to);
    import_remove_siblings(r->to);
}

static bool read_export(struct reading *r)
{
    bool ok = check_processes(r) && prepare_nsys_statements(r);
    if (ok) {
        r->base = read_nsys_scalar(r, "SELECT min(first) FROM process", 0);
        r->start_real_ns = real_start(r);
        ok = read_processes(r);
        if (!ok) remove_databases(r);
    }
    sqlite3_finalize(r->events);
    sqlite3_finalize(r->thread);
    sqlite3_finalize(r->chain);
    sqlite3_finalize(r->range);
    sqlite3_finalize(r->text);
    free(r->thread_list);
    return ok;
}

bool import_nsys(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                 size_t error_size)
{
    struct import_nsys s = {.progress = progress, .self = self};
    struct reading r = {.s = &s, .to = to, .file = basename(path), .error = error, .error_size = error_size};
    if (error_size) *error = 0;
    bool ok = import_nsys_open(&s, path, to, error, error_size) && import_nsys_stage(&s, error, error_size) &&
              read_export(&r);
    import_nsys_close(&s);
    return ok;
}
