/* Definitions: maps each thread's frame and stack numbers to ids, deduplicated over all threads. */
#include "schema/store_state.h"
#include "schema/utf8.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

/* A thread numbers its frames and stacks from 1 upward. A number that is larger by more than this is damage, and must
 * not make the store allocate a table for it. */
#define NUMBER_JUMP 65536

/* ---------------------------------------------------------------- threads */

struct gs_store_thread *gs_store_thread(struct gs_store *s, uint32_t thread)
{
    while (thread >= s->threads.count) {
        struct gs_store_thread *t = GS_ARRAY_ADD(&s->threads);
        if (!t) {
            gs_store_no_memory(s);
            return NULL;
        }
        memset(t, 0, sizeof *t);
    }
    return &s->threads.at[thread];
}

uint32_t gs_store_thread_row(const struct gs_store *s, uint32_t slot)
{
    const uint32_t row = slot < s->threads.count ? s->threads.at[slot].row : 0;
    return row ? row : slot;
}

/* ---------------------------------------------------------------- strings */

/* Copies a string for the rows. Text in the database is UTF-8: invalid bytes become U+FFFD. */
int gs_store_add_text(struct gs_store *s, const char *text, size_t length, struct gs_text *out)
{
    size_t needed = s->text.count + length * 3;
    if (needed > UINT32_MAX) return gs_store_no_memory(s);
    if (needed > s->text.capacity && !gs_array_grow((void **)&s->text.at, &s->text.capacity, needed, 1))
        return gs_store_no_memory(s);
    out->at = (uint32_t)s->text.count;
    const uint8_t *p = (const uint8_t *)text;
    char *to = s->text.at ? s->text.at + out->at : NULL;
    for (size_t i = 0; i < length;) {
        size_t n = p[i] ? gs_utf8_decode(text + i, length - i, NULL) : 0;
        memcpy(to, n ? (const char *)p + i : "\xef\xbf\xbd", n ? n : 3);
        to += n ? n : 3;
        i += n ? n : 1;
    }
    s->text.count = to ? (size_t)(to - s->text.at) : 0;
    out->length = (uint32_t)(s->text.count - out->at);
    return 0;
}

static const char *stored_text_of(const struct gs_store *s, struct gs_text t)
{
    return s->text.at + t.at;
}

/* ---------------------------------------------------------------- keys of content */

struct gs_content gs_store_python_key(const char *function, size_t function_len, const char *file, size_t file_len,
                                      int32_t line)
{
    struct gs_content key = {(uint64_t)(uint32_t)line, 1};
    key = gs_content_hash(key, function, function_len);
    return gs_content_hash(key, file, file_len);
}

struct gs_content gs_store_native_key(uint32_t module, uint64_t offset)
{
    return gs_content_hash((struct gs_content){module, 2}, &offset, sizeof offset);
}

struct gs_content gs_store_module_key(const char *path, size_t path_len, const char *build_id, size_t build_id_len)
{
    struct gs_content key = gs_content_hash((struct gs_content){0, 3}, path, path_len);
    return gs_content_hash(key, build_id, build_id_len);
}

struct gs_content gs_store_stack_key(uint32_t parent, uint32_t frame)
{
    return (struct gs_content){(uint64_t)parent << 32 | frame, 0};
}

/* ---------------------------------------------------------------- numbers */

static uint32_t number_id(const struct gs_numbers *n, uint32_t number)
{
    return number < n->count ? n->ids[number] : 0;
}

static bool numbers_reach(struct gs_numbers *n, uint32_t number)
{
    if (number < n->count) return true;
    uint32_t count = n->count ? n->count : 256;
    while (count <= number) count *= 2;
    uint32_t *ids = realloc(n->ids, (size_t)count * sizeof *ids);
    if (!ids) return false;
    memset(ids + n->count, 0, (size_t)(count - n->count) * sizeof *ids);
    n->ids = ids;
    n->count = count;
    return true;
}

static void forget_numbers(struct gs_numbers *n)
{
    free(n->ids);
    memset(n, 0, sizeof *n);
}

/* Does not note the number for the database, because loading calls it, too. */
int gs_store_set_number(struct gs_store *s, uint32_t thread, uint32_t what, uint32_t number, uint32_t id)
{
    struct gs_store_thread *t = gs_store_thread(s, thread);
    if (!t) return -1;
    struct gs_numbers *n = what == GS_NUMBER_FRAME ? &t->frames : &t->stacks;
    if (number == 0 || number > n->highest + NUMBER_JUMP || number > INT32_MAX) {
        s->counts[GS_COUNT_UNDEFINED]++;
        return 0;
    }
    if (!numbers_reach(n, number)) return gs_store_no_memory(s);
    n->ids[number] = id;
    if (number > n->highest) n->highest = number;
    return 0;
}

static int note_number(struct gs_store *s, uint32_t thread, uint32_t what, uint32_t number, uint32_t id)
{
    struct gs_row_number *row = GS_ARRAY_ADD(&s->numbers);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_number){thread, what, number, id};
    return what == GS_NUMBER_RESET ? 0 : gs_store_set_number(s, thread, what, number, id);
}

uint32_t gs_store_stack_id(struct gs_store *s, uint32_t thread, uint32_t number)
{
    if (!number) return 0;
    uint32_t id = thread < s->threads.count ? number_id(&s->threads.at[thread].stacks, number) : 0;
    if (!id) s->counts[GS_COUNT_UNDEFINED]++;
    return id;
}

/* ---------------------------------------------------------------- frames and stacks */

/* If the frame is known, the caller removes its text, which was added last. */
static int intern_frame(struct gs_store *s, struct gs_content key, struct gs_row_frame *row)
{
    row->id = gs_id_find(&s->frame_ids, key);
    if (row->id) return 0;
    row->id = s->last_frame + 1;
    struct gs_row_frame *to = GS_ARRAY_ADD(&s->frames);
    if (!to) return gs_store_no_memory(s);
    if (!gs_id_add(&s->frame_ids, key, row->id)) {
        s->frames.count--;
        return gs_store_no_memory(s);
    }
    s->last_frame++;
    *to = *row;
    return 0;
}

static int store_python_frame(struct gs_store *s, uint32_t thread, const struct gs_rec_frame_python *rec)
{
    const char *text = (const char *)(rec + 1);
    size_t before = s->text.count;
    struct gs_row_frame row = {.kind = GS_FRAME_PYTHON, .line = rec->line > 0 ? rec->line : 0};
    if (gs_store_add_text(s, text, rec->function_len, &row.function) ||
        gs_store_add_text(s, text + rec->function_len, rec->file_len, &row.file))
        return -1;
    struct gs_content key = gs_store_python_key(stored_text_of(s, row.function), row.function.length,
                                                stored_text_of(s, row.file), row.file.length, row.line);
    uint32_t known = s->last_frame;
    if (intern_frame(s, key, &row)) return -1;
    if (known == s->last_frame) s->text.count = before;
    return note_number(s, thread, GS_NUMBER_FRAME, rec->frame, row.id);
}

static int intern_module(struct gs_store *s, const char *path, size_t path_len, const uint8_t *build_id,
                         size_t build_id_len, uint32_t *id)
{
    char hex[2 * 255 + 1];
    for (size_t i = 0; i < build_id_len; i++) {
        hex[2 * i] = "0123456789abcdef"[build_id[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[build_id[i] & 15];
    }
    size_t before = s->text.count;
    struct gs_row_module row = {.id = 0};
    if (gs_store_add_text(s, path, path_len, &row.path) || gs_store_add_text(s, hex, 2 * build_id_len, &row.build_id))
        return -1;
    struct gs_content key = gs_store_module_key(stored_text_of(s, row.path), row.path.length, hex, 2 * build_id_len);
    *id = gs_id_find(&s->module_ids, key);
    if (*id) {
        s->text.count = before;
        return 0;
    }
    row.id = s->last_module + 1;
    struct gs_row_module *to = GS_ARRAY_ADD(&s->modules);
    if (!to || !gs_id_add(&s->module_ids, key, row.id)) return gs_store_no_memory(s);
    *to = row;
    *id = ++s->last_module;
    return 0;
}

static int define_native(struct gs_store *s, uint32_t thread, const struct gs_rec_frame_native *rec)
{
    const char *path = (const char *)(rec + 1);
    struct gs_row_frame row = {.kind = GS_FRAME_NATIVE, .offset = (int64_t)rec->offset};
    if (rec->path_len &&
        intern_module(s, path, rec->path_len, (const uint8_t *)path + rec->path_len, rec->build_id_len, &row.module))
        return -1;
    if (intern_frame(s, gs_store_native_key(row.module, rec->offset), &row)) return -1;
    return note_number(s, thread, GS_NUMBER_FRAME, rec->frame, row.id);
}

/* Returns the node of the stack tree for `frame` called from `parent`; 0: out of memory. */
static uint32_t intern_stack(struct gs_store *s, uint32_t parent, uint32_t frame, uint32_t depth)
{
    struct gs_content key = gs_store_stack_key(parent, frame);
    uint32_t id = gs_id_find(&s->stack_ids, key);
    if (id) return id;
    id = s->last_stack + 1;
    struct gs_row_stack *row = GS_ARRAY_ADD(&s->stacks);
    if (!row) return 0;
    if (!gs_id_add(&s->stack_ids, key, id)) {
        s->stacks.count--;
        return 0;
    }
    *row = (struct gs_row_stack){id, parent, frame, depth};
    return s->last_stack = id;
}

static int store_stack(struct gs_store *s, uint32_t thread, const struct gs_rec_stack *rec)
{
    struct gs_store_thread *t = gs_store_thread(s, thread);
    if (!t) return -1;
    uint32_t id = 0, depth = 0;
    for (uint32_t i = rec->depth; i-- > 0;) {
        uint32_t frame = number_id(&t->frames, rec->frames[i]);
        if (!frame) { /* the rest of the stack is still useful */
            s->counts[GS_COUNT_UNDEFINED]++;
            continue;
        }
        id = intern_stack(s, id, frame, ++depth);
        if (!id) return gs_store_no_memory(s);
    }
    return note_number(s, thread, GS_NUMBER_STACK, rec->rec.stack, id);
}

/* ---------------------------------------------------------------- the others */

/* Threads reuse a slot. The row of its first thread has the slot's number, which packs best (GS_ALLOCATION_KIND); rows
 * of later threads have numbers that no slot has. */
static int store_thread(struct gs_store *s, uint32_t thread, const struct gs_rec_thread *rec)
{
    struct gs_store_thread *t = gs_store_thread(s, thread);
    struct gs_row_thread *row = t ? GS_ARRAY_ADD(&s->thread_rows) : NULL;
    if (!row) return gs_store_no_memory(s);
    t->row = t->row ? ++s->last_thread : thread;
    row->id = t->row;
    row->tid = rec->tid;
    return gs_store_add_text(s, (const char *)(rec + 1), rec->name_len, &row->name);
}

static int define_api(struct gs_store *s, const struct gs_rec_name *rec)
{
    struct gs_row_api *row = GS_ARRAY_ADD(&s->apis);
    if (!row) return gs_store_no_memory(s);
    row->id = rec->number;
    return gs_store_add_text(s, (const char *)(rec + 1), rec->name_len, &row->name);
}

static int define_device(struct gs_store *s, const struct gs_rec_gpu *rec)
{
    struct gs_row_device *row = GS_ARRAY_ADD(&s->devices);
    if (!row) return gs_store_no_memory(s);
    row->device = (int16_t)rec->device;
    row->total = (int64_t)rec->total_bytes;
    row->free = (int64_t)rec->free_bytes;
    row->seen_ns = (int64_t)rec->rec.time_ns;
    row->physical = (int64_t)rec->physical_bytes;
    return gs_store_add_text(s, (const char *)(rec + 1), rec->name_len, &row->name);
}

/* A row of meta. Its key is the NAME of a fact, env.NAME, or "env" without a name: the environment was read. */
static int define_setting(struct gs_store *s, const struct gs_rec_setting *rec)
{
    char key[4 + GS_STRING_MAX] = "env.";
    const char *name = (const char *)(rec + 1);
    const size_t len = rec->name_len < GS_STRING_MAX ? rec->name_len : GS_STRING_MAX;
    const size_t prefix = rec->rec.flags & GS_FLAG_FACT ? 0 : 4;
    memcpy(key + prefix, name, len);
    if (!prefix && len == sizeof GS_FACT_ATTACHED - 1 && !memcmp(name, GS_FACT_ATTACHED, len)) s->attached = true;
    struct gs_row_setting *row = GS_ARRAY_ADD(&s->settings);
    if (!row) return gs_store_no_memory(s);
    if (gs_store_add_text(s, key, len ? prefix + len : 3, &row->key) == 0 &&
        gs_store_add_text(s, name + rec->name_len, rec->value_len, &row->value) == 0)
        return 0;
    s->settings.count--;
    return -1;
}

int gs_store_note_attached(struct gs_store *s, int device, uint64_t bytes)
{
    char key[64], value[32];
    snprintf(key, sizeof key, GS_FACT_ATTACHED_TENSORS "%d", device);
    snprintf(value, sizeof value, "%llu", (unsigned long long)bytes);
    struct gs_row_setting *row = GS_ARRAY_ADD(&s->settings);
    if (!row) return gs_store_no_memory(s);
    if (!gs_store_add_text(s, key, strlen(key), &row->key) && !gs_store_add_text(s, value, strlen(value), &row->value))
        return 0;
    s->settings.count--;
    return -1;
}

int gs_store_define(struct gs_store *s, uint32_t thread, const struct gs_rec *rec)
{
    struct gs_store_thread *t = gs_store_thread(s, thread);
    if (!t) return -1;
    switch (rec->type) {
    case GS_REC_THREAD: return store_thread(s, thread, (const void *)rec);
    case GS_REC_FRAME_PYTHON: return store_python_frame(s, thread, (const void *)rec);
    case GS_REC_FRAME_NATIVE: return define_native(s, thread, (const void *)rec);
    case GS_REC_STACK: return store_stack(s, thread, (const void *)rec);
    case GS_REC_API: return define_api(s, (const void *)rec);
    case GS_REC_GPU: return define_device(s, (const void *)rec);
    case GS_REC_SETTING: return define_setting(s, (const void *)rec);
    default:
        forget_numbers(&t->frames);
        forget_numbers(&t->stacks);
        return note_number(s, thread, GS_NUMBER_RESET, 0, 0);
    }
}
