#include "analyzer/import/feed.h"

#include <ctype.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/text.h"
#include "analyzer/base/texts.h"
#include "schema/record.h"
#include "schema/store.h"

enum { COMMIT_ROWS = 1 << 16, APIS_MAX = 2047 };
enum { API_MALLOC = 1, API_FREE, API_MAP, API_UNMAP, API_TENSOR };
static const char *const usual_apis[] = {"cudaMalloc", "cudaFree", "cuMemMap", "cuMemUnmap",
                                         "c10::reportMemoryUsageToProfiler"};

struct native { /* a native frame, whose name the store gets at the end */
    const char *file, *function;
    int line;
};

struct note {
    char key[64], text[960];
};

struct numbers { /* how many numbers a thread has; the store keeps an array up to the highest one of each thread */
    uint32_t frames, stacks;
};

struct import_feed {
    struct arena arena;
    char *path;
    struct gs_store *store;
    bool failed;
    struct map frames;         /* hash of a frame and its thread → its number */
    struct map stacks;         /* hash of its frames and their thread → its number */
    struct map native_indexes; /* hash of a native frame → index in natives */
    struct texts apis;         /* their numbers are from 1 on */
    uint32_t threads_n;
    uint32_t thread; /* the chosen thread */
    ARENA_LIST(struct numbers, last);
    ARENA_LIST(struct native, natives);
    ARENA_LIST(struct note, notes);
    int64_t last_ns;
    uint64_t damaged, unblocked; /* unblocked: copies and fills for which it is unknown how long they blocked the host
                                  */
};

void import_feed_until(struct import_feed *f, int64_t time_ns)
{
    f->last_ns = f->last_ns > time_ns ? f->last_ns : time_ns;
}

static void add_feed_record(struct import_feed *f, const struct gs_rec *rec)
{
    const uint64_t end_ns = gs_record_time(rec);
    import_feed_until(f, end_ns < INT64_MAX ? (int64_t)end_ns : INT64_MAX);
    f->failed = f->failed || gs_store_add(f->store, f->thread, rec) != 0;
    if (!f->failed && gs_store_pending(f->store) >= COMMIT_ROWS) f->failed = gs_store_commit(f->store, NULL) != 0;
}

/* Adds a record followed by texts. The caller has set their lengths in it, at most GS_STRING_MAX each. */
static void add_with_texts(struct import_feed *f, struct gs_rec *fixed, size_t size, const char *const *texts,
                           const size_t *lengths, size_t n)
{
    char buffer[256 + 2 * GS_STRING_MAX + 8] __attribute__((aligned(8)));
    size_t at = size;
    memcpy(buffer, fixed, size);
    for (size_t i = 0; i < n; i++) {
        if (lengths[i]) memcpy(buffer + at, texts[i], lengths[i]);
        at += lengths[i];
    }
    memset(buffer + at, 0, 8); /* zeros up to the next multiple of 8 */
    struct gs_rec *rec = (struct gs_rec *)(void *)buffer;
    rec->size = (uint16_t)((at + 7) & ~(size_t)7);
    add_feed_record(f, rec);
}

static size_t cut_text(const char *text)
{
    return text ? strnlen(text, GS_STRING_MAX) : 0;
}

#define REC(what, number, ns)                                        \
    {                                                                \
        .type = (what), .stack = (number), .time_ns = (uint64_t)(ns) \
    }

/* Adds a record without texts: its struct, REC and other members. */
#define ADD_RECORD(f, type, ...)               \
    do {                                       \
        struct type r_ = {.rec = __VA_ARGS__}; \
        r_.rec.size = sizeof r_;               \
        add_feed_record(f, &r_.rec);           \
    } while (0)

uint16_t import_feed_api(struct import_feed *f, const char *name)
{
    const size_t known = f->apis.n;
    const uint32_t number = texts_number(&f->apis, name, strlen(name)) + 1;
    if (number > APIS_MAX) return 0;
    if (number <= known) return (uint16_t)number;
    const size_t length = cut_text(name);
    struct gs_rec_name r = {.rec = REC(GS_REC_API, 0, 0), .number = number, .name_len = (uint16_t)length};
    add_with_texts(f, &r.rec, sizeof r, &name, &length, 1);
    return (uint16_t)number;
}

void import_feed_device(struct import_feed *f, int device, const char *name, uint64_t total_bytes)
{
    const size_t length = cut_text(name);
    struct gs_rec_gpu r = {.rec = REC(GS_REC_GPU, 0, 0),
                           .device = device,
                           .name_len = (uint16_t)length,
                           .total_bytes = total_bytes,
                           .free_bytes = UINT64_MAX};
    add_with_texts(f, &r.rec, sizeof r, &name, &length, 1);
}

uint32_t import_feed_thread(struct import_feed *f, uint32_t tid, const char *name)
{
    const size_t length = cut_text(name);
    struct gs_rec_thread r = {.rec = REC(GS_REC_THREAD, 0, 0), .tid = tid, .name_len = (uint16_t)length};
    const uint32_t chosen = f->thread;
    f->thread = ++f->threads_n;
    *ARENA_ADD(f->last) = (struct numbers){0};
    add_with_texts(f, &r.rec, sizeof r, &name, &length, 1);
    f->thread = chosen;
    return f->threads_n;
}

void import_feed_choose_thread(struct import_feed *f, uint32_t thread)
{
    f->thread = thread;
}

struct import_feed *import_feed_start(const char *path, const struct import_source *source, char *error,
                                      size_t error_size)
{
    struct gs_store_info info = {.run_id = source->run_id ? source->run_id : source->file,
                                 .command = source->command ? source->command : source->file,
                                 .pid = source->pid,
                                 .start_real_ns = source->start_real_ns,
                                 .rank = (int)source->rank_plus_1 - 1};
    struct gs_store *store = gs_store_create(path, &info, error, error_size);
    if (!store) return NULL;
    struct import_feed *f = arena_realloc(NULL, 1, sizeof *f);
    *f = (struct import_feed){.store = store, .path = strdup(path), .threads_n = 1, .thread = 1};
    for (uint32_t i = 0; i <= f->threads_n; i++) *ARENA_ADD(f->last) = (struct numbers){0};
    for (size_t i = 0; i < sizeof usual_apis / sizeof *usual_apis; i++) import_feed_api(f, usual_apis[i]);
    import_feed_note(f, "format", "%s", source->format);
    return f;
}

static uint32_t native_index(struct import_feed *f, const struct import_frame *frame, uint64_t hash)
{
    return MAP_INDEX_IN(&f->native_indexes, hash, f->natives,
                        (struct native){frame->file ? arena_printf(&f->arena, "%s", frame->file) : NULL,
                                        frame->function ? arena_printf(&f->arena, "%s", frame->function) : NULL,
                                        frame->line});
}

/* A path of Windows ("D:\\me\\train.py") with slashes, which Windows also accepts: folders and installed packages are
 * then found in it as in any other path. */
static const char *with_slashes(struct import_feed *f, const char *file)
{
    if (!file || !isalpha((unsigned char)file[0]) || file[1] != ':' || file[2] != '\\') return file;
    char *path = arena_printf(&f->arena, "%s", file);
    for (char *p = path; (p = strchr(p, '\\'));) *p = '/';
    return path;
}

static void define_frame(struct import_feed *f, const struct import_frame *frame, uint64_t hash, uint32_t number)
{
    if (frame->python) {
        const char *const file = with_slashes(f, frame->file), *texts[] = {frame->function, file};
        const size_t lengths[] = {cut_text(frame->function), cut_text(file)};
        struct gs_rec_frame_python r = {.rec = REC(GS_REC_FRAME_PYTHON, 0, 0),
                                        .frame = number,
                                        .line = frame->line,
                                        .function_len = (uint16_t)lengths[0],
                                        .file_len = (uint16_t)lengths[1]};
        add_with_texts(f, &r.rec, sizeof r, texts, lengths, 2);
        return;
    }
    const size_t length = cut_text(frame->module);
    struct gs_rec_frame_native r = {.rec = REC(GS_REC_FRAME_NATIVE, 0, 0),
                                    .frame = number,
                                    .path_len = (uint16_t)length,
                                    .offset = native_index(f, frame, hash) + 1};
    add_with_texts(f, &r.rec, sizeof r, &frame->module, &length, 1);
}

static uint32_t frame_number(struct import_feed *f, const struct import_frame *frame)
{
    const char *const texts[] = {frame->file, frame->function, frame->module};
    uint64_t hash = map_hash((uint64_t)frame->line << 1 | frame->python);
    for (size_t i = 0; i < 3; i++) hash = map_hash_text(hash, texts[i]);
    uint32_t *number = map_at(&f->frames, map_hash(hash ^ map_hash(f->thread)));
    if (*number == MAP_NEW) {
        *number = ++f->last[f->thread].frames;
        define_frame(f, frame, hash, *number);
    }
    return *number;
}

uint32_t import_feed_stack(struct import_feed *f, const struct import_frame *frames, size_t n)
{
    union { /* the frames overlap the struct's padding */
        struct gs_rec_stack r;
        char bytes[offsetof(struct gs_rec_stack, frames) + (IMPORT_DEPTH + 1) * sizeof(uint32_t)];
    } stack = {.r = {.rec = REC(GS_REC_STACK, 0, 0)}};
    uint64_t hash = map_hash(f->thread);
    n = n < IMPORT_DEPTH ? n : IMPORT_DEPTH;
    if (!n) return 0;
    for (size_t i = 0; i < n; i++) {
        stack.r.frames[i] = frame_number(f, &frames[i]);
        hash = map_hash(hash ^ stack.r.frames[i]);
    }
    uint32_t *number = map_at(&f->stacks, hash);
    if (*number == MAP_NEW) {
        *number = ++f->last[f->thread].stacks;
        stack.r.rec.stack = *number;
        stack.r.depth = (uint32_t)n;
        stack.r.rec.size =
            (uint16_t)((offsetof(struct gs_rec_stack, frames) + n * sizeof *stack.r.frames + 7) & ~(size_t)7);
        add_feed_record(f, &stack.r.rec);
    }
    return *number;
}

uint32_t import_feed_before(struct import_feed *f)
{
    return import_feed_stack(f, &(struct import_frame){.function = "(allocated before the recording)", .python = true},
                             1);
}

static uint32_t extra_of(const struct import_event *e)
{
    const bool known = e->requested > 0 && e->requested <= e->bytes && e->bytes - e->requested < GS_EXTRA_UNKNOWN;
    return known ? (uint32_t)(e->bytes - e->requested) : GS_EXTRA_UNKNOWN;
}

void import_feed_tensor(struct import_feed *f, const struct import_event *e, bool freed)
{
    ADD_RECORD(f, gs_rec_tensor, REC(GS_REC_TENSOR, e->stack, e->time_ns),
               .rec.flags = e->private_pool ? GS_FLAG_CAPTURED : 0, .address = e->address,
               .bytes = freed ? -e->bytes : e->bytes, .total_allocated = (uint64_t)e->allocated,
               .total_reserved = (uint64_t)e->reserved, .stream = e->stream, .extra = extra_of(e), .api = API_TENSOR,
               .device = (int8_t)e->device, .layer = e->device < 0 ? GS_LAYER_HOST : GS_LAYER_TENSOR,
               .has_totals = !e->no_totals);
}

/* The file does not name the event for which the free waits, so the block's address represents it. */
void import_feed_pending(struct import_feed *f, const struct import_event *e)
{
    union {
        struct gs_rec_pending r;
        char bytes[sizeof(struct gs_rec_pending) + sizeof(uint64_t)];
    } pending = {.r = {.rec = REC(GS_REC_PENDING, 0, e->time_ns), .address = e->address, .count = 1}};
    memcpy(pending.r.events, &e->address, sizeof e->address);
    pending.r.rec.size = sizeof pending;
    add_feed_record(f, &pending.r.rec);
}

void import_feed_pending_end(struct import_feed *f, const struct import_event *e)
{
    ADD_RECORD(f, gs_rec_event_done, REC(GS_REC_EVENT_DONE, 0, e->time_ns), .event = e->address);
}

void import_feed_pool(struct import_feed *f, const struct import_event *e, int64_t pool)
{
    ADD_RECORD(f, gs_rec_allocator, REC(GS_REC_ALLOCATOR, 0, e->time_ns), .address = e->address, .value = pool,
               .device = (int16_t)e->device, .kind = GS_ALLOCATOR_POOL);
}

static void add_pages(struct import_feed *f, const struct import_event *e, bool freed, int64_t page)
{
    static const uint8_t begin[] = {GS_VMM_CREATE, GS_VMM_MAP}, end[] = {GS_VMM_UNMAP, GS_VMM_RELEASE};
    for (int64_t at = 0; at < e->bytes; at += page) {
        int64_t bytes = e->bytes - at < page ? e->bytes - at : page;
        for (size_t i = 0; i < 2; i++) {
            ADD_RECORD(f, gs_rec_vmm, REC(GS_REC_VMM, e->stack, e->time_ns),
                       /* a different handle for every possible page */ .handle = (e->address + (uint64_t)at) | 1,
                       .address = e->address + (uint64_t)at, .bytes = (uint64_t)bytes,
                       .api = freed ? API_UNMAP : API_MAP, .device = (int16_t)e->device,
                       .op = freed ? end[i] : begin[i]);
        }
    }
}

void import_feed_segment(struct import_feed *f, const struct import_event *e, bool freed, int64_t page)
{
    if (page > 0) {
        add_pages(f, e, freed, page);
    } else if (freed) {
        ADD_RECORD(f, gs_rec_free, REC(GS_REC_FREE, e->stack, e->time_ns), .address = e->address,
                   .api = e->api ? e->api : API_FREE, .device = (int16_t)e->device, .layer = GS_LAYER_DEVICE,
                   .space = e->space);
    } else {
        ADD_RECORD(f, gs_rec_alloc, REC(GS_REC_ALLOC, e->stack, e->time_ns), .address = e->address,
                   .bytes = (uint64_t)e->bytes, .stream = e->stream, .api = e->api ? e->api : API_MALLOC,
                   .device = (int16_t)e->device, .layer = GS_LAYER_DEVICE, .space = e->space);
    }
}

/* Rows of copies and fills cannot have an unknown time. Migrations of managed memory have no call. */
static uint64_t known_time(struct import_feed *f, uint64_t blocked_ns, uint8_t host_memory)
{
    f->unblocked += blocked_ns == UINT64_MAX && host_memory != GS_HOSTMEM_MANAGED + 1;
    return blocked_ns == UINT64_MAX ? 0 : blocked_ns;
}

static void add_feed_copy(struct import_feed *f, uint8_t type, const struct import_event *e, uint8_t direction,
                          uint64_t blocked_ns)
{
    ADD_RECORD(f, gs_rec_copy, REC(type, e->stack, e->time_ns), .rec.flags = e->async ? GS_FLAG_ASYNC : 0,
               .bytes = (uint64_t)e->bytes, .stream = e->stream,
               .blocked_ns = known_time(f, blocked_ns, e->host_memory), .api = e->api, .device = (int16_t)e->device,
               .direction = direction, .host_memory = e->host_memory);
}

void import_feed_copy(struct import_feed *f, const struct import_event *e, uint8_t direction, uint64_t blocked_ns)
{
    add_feed_copy(f, GS_REC_COPY, e, direction, blocked_ns);
}

void import_feed_fill(struct import_feed *f, const struct import_event *e, uint64_t blocked_ns)
{
    add_feed_copy(f, GS_REC_SET, e, GS_DIR_UNKNOWN, blocked_ns);
}

void import_feed_wait(struct import_feed *f, const struct import_event *e, uint8_t kind, uint64_t blocked_ns)
{
    ADD_RECORD(f, gs_rec_sync, REC(GS_REC_SYNC, e->stack, e->time_ns), .handle = e->stream, .blocked_ns = blocked_ns,
               .api = e->api, .device = (int16_t)e->device, .kind = kind);
}

void import_feed_failure(struct import_feed *f, const struct import_event *e, int64_t free_bytes)
{
    ADD_RECORD(f, gs_rec_oom, REC(GS_REC_OOM, e->stack, e->time_ns), .requested_bytes = (uint64_t)e->bytes,
               .free_bytes = free_bytes < 0 ? UINT64_MAX : (uint64_t)free_bytes, .total_bytes = UINT64_MAX,
               .tensor_allocated = (uint64_t)e->allocated, .tensor_reserved = (uint64_t)e->reserved, .api = API_TENSOR,
               .device = (int16_t)e->device, .layer = GS_LAYER_TENSOR);
}

void import_feed_range(struct import_feed *f, int64_t time_ns, uint64_t id, bool ended, const char *domain,
                       const char *name)
{
    const char *texts[] = {domain, name};
    const size_t lengths[] = {cut_text(domain), ended ? 0 : cut_text(name)};
    struct gs_rec_mark r = {.rec = REC(GS_REC_MARK, 0, time_ns),
                            .id = id,
                            .domain_len = (uint16_t)lengths[0],
                            .name_len = (uint16_t)lengths[1],
                            .kind = ended ? GS_MARK_END : GS_MARK_START};
    add_with_texts(f, &r.rec, sizeof r, texts, lengths, 2);
}

void import_feed_moment(struct import_feed *f, int64_t time_ns, const char *domain, const char *name)
{
    const char *texts[] = {domain, name};
    const size_t lengths[] = {cut_text(domain), cut_text(name)};
    struct gs_rec_mark r = {.rec = REC(GS_REC_MARK, 0, time_ns),
                            .domain_len = (uint16_t)lengths[0],
                            .name_len = (uint16_t)lengths[1],
                            .kind = GS_MARK_MOMENT};
    add_with_texts(f, &r.rec, sizeof r, texts, lengths, 2);
}

void import_feed_damaged(struct import_feed *f, uint64_t rows)
{
    f->damaged += rows;
}

void import_feed_setting(struct import_feed *f, const char *name, const char *value)
{
    const char *texts[] = {name, value};
    const size_t lengths[] = {cut_text(name), cut_text(value)};
    struct gs_rec_setting r = {
        .rec = REC(GS_REC_SETTING, 0, 0), .name_len = (uint16_t)lengths[0], .value_len = (uint16_t)lengths[1]};
    add_with_texts(f, &r.rec, sizeof r, texts, lengths, 2);
}

static struct note *add_note(struct import_feed *f)
{
    return ARENA_ADD(f->notes);
}

void import_feed_note(struct import_feed *f, const char *key, const char *format, ...)
{
    struct note *note = add_note(f);
    snprintf(note->key, sizeof note->key, "import.%s", key);
    TEXT_FORMAT(note->text, sizeof note->text, format);
}

void import_feed_remark(struct import_feed *f, uint32_t number, const char *format, ...)
{
    struct note *note = add_note(f);
    snprintf(note->key, sizeof note->key, "import.remark.%04u", number);
    TEXT_FORMAT(note->text, sizeof note->text, format);
}

static void bind_feed_text(sqlite3_stmt *st, int at, const char *text)
{
    if (text && *text) sqlite3_bind_text(st, at, text, -1, SQLITE_STATIC);
}

/* Writes what the store has no record for: names of native frames, and notes. */
static bool write_rest(const struct import_feed *f, sqlite3 *db)
{
    sqlite3_stmt *st = NULL;
    bool ok = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) == SQLITE_OK &&
              sqlite3_exec(db,
                           "CREATE TEMP TABLE native(number INTEGER PRIMARY KEY, id INTEGER);"
                           "INSERT INTO native SELECT offset, id FROM frame WHERE kind = 1 AND offset IS NOT NULL",
                           NULL, NULL, NULL) == SQLITE_OK &&
              sqlite3_prepare_v2(db,
                                 "UPDATE frame SET function = ?2, file = ?3, line = nullif(?4, 0), offset = NULL "
                                 "WHERE id = (SELECT id FROM native WHERE number = ?1)",
                                 -1, &st, NULL) == SQLITE_OK;
    for (size_t i = 0; ok && i < f->natives_n; i++) {
        sqlite3_reset(st);
        sqlite3_clear_bindings(st);
        sqlite3_bind_int64(st, 1, (int64_t)i + 1);
        bind_feed_text(st, 2, f->natives[i].function);
        bind_feed_text(st, 3, f->natives[i].file);
        sqlite3_bind_int(st, 4, f->natives[i].line);
        ok = sqlite3_step(st) == SQLITE_DONE;
    }
    sqlite3_finalize(st);
    ok = ok && sqlite3_prepare_v2(db, "INSERT OR REPLACE INTO meta VALUES(?1, ?2)", -1, &st, NULL) == SQLITE_OK;
    for (size_t i = 0; ok && i < f->notes_n; i++) {
        sqlite3_reset(st);
        sqlite3_bind_text(st, 1, f->notes[i].key, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 2, f->notes[i].text, -1, SQLITE_STATIC);
        ok = sqlite3_step(st) == SQLITE_DONE;
    }
    if (ok) sqlite3_finalize(st);
    return ok && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
}

bool import_feed_end(struct import_feed *f, char *error, size_t error_size)
{
    sqlite3 *db = NULL;
    if (f->unblocked) import_feed_note(f, "unblocked", "%llu", (unsigned long long)f->unblocked);
    bool ok = !f->failed && gs_store_finish(f->store, (uint64_t)f->last_ns, true, 0, 0, f->damaged) == 0;
    if (!ok) snprintf(error, error_size, "%s", gs_store_error(f->store));
    gs_store_close(f->store);
    if (ok) {
        ok = sqlite3_open_v2(f->path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK && write_rest(f, db);
        if (!ok) snprintf(error, error_size, "%s", sqlite3_errmsg(db));
        sqlite3_close(db);
    }
    if (!ok) unlink(f->path);
    texts_free(&f->apis);
    MAP_RELEASE(&f->frames, &f->stacks, &f->native_indexes);
    ARENA_RELEASE(f->last, f->natives, f->notes, f->path);
    arena_free(&f->arena);
    free(f);
    return ok;
}
