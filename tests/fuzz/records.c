#include "tests/fuzz/records.h"

#include "schema/record.h"

/* One of a few common addresses, so that a free matches an allocation and a copy its source. */
static uint64_t address(struct fuzz_bytes *b)
{
    const uint8_t n = fuzz_u8(b);
    return n < 160 ? 0x7f0000000000 + (uint64_t)(n % 8) * 0x200000 + (uint64_t)(n / 32) * 0x1000 : fuzz_hostile(b);
}

static uint16_t api(struct fuzz_bytes *b)
{
    const uint8_t n = fuzz_u8(b);
    return n < 240 ? n % 16 : (uint16_t)fuzz_number(b, 2);
}

static int16_t device(struct fuzz_bytes *b)
{
    const uint8_t n = fuzz_u8(b);
    return n < 240 ? (int16_t)(n % 4 - 1) : (int16_t)fuzz_number(b, 2);
}

/* A length that fits after `at`; copies the bytes there. */
static uint16_t string(struct fuzz_bytes *b, char **at, size_t most)
{
    size_t n = fuzz_u8(b) % 32;
    const void *bytes = fuzz_part(b, n < most ? n : most, &n);
    if (n) memcpy(*at, bytes, n);
    *at += n;
    return (uint16_t)n;
}

#define STRING_MOST 32

static size_t definition(struct fuzz_bytes *b, struct gs_rec *rec)
{
    char *at;
    switch (rec->type) {
    case GS_REC_THREAD: {
        struct gs_rec_thread *r = (void *)rec;
        at = (char *)(r + 1);
        r->tid = (uint32_t)fuzz_hostile(b);
        r->name_len = string(b, &at, STRING_MOST);
        break;
    }
    case GS_REC_FRAME_PYTHON: {
        struct gs_rec_frame_python *r = (void *)rec;
        at = (char *)(r + 1);
        r->frame = (uint32_t)fuzz_hostile(b);
        r->line = (int32_t)fuzz_hostile(b);
        r->function_len = string(b, &at, STRING_MOST);
        r->file_len = string(b, &at, STRING_MOST);
        break;
    }
    case GS_REC_FRAME_NATIVE: {
        struct gs_rec_frame_native *r = (void *)rec;
        at = (char *)(r + 1);
        r->frame = (uint32_t)fuzz_hostile(b);
        r->offset = fuzz_hostile(b);
        r->path_len = string(b, &at, STRING_MOST);
        r->build_id_len = (uint8_t)string(b, &at, STRING_MOST);
        break;
    }
    case GS_REC_STACK: {
        struct gs_rec_stack *r = (void *)rec;
        r->rec.stack = (uint32_t)fuzz_hostile(b);
        r->depth = fuzz_u8(b) % 32;
        for (uint32_t i = 0; i < r->depth; i++) r->frames[i] = (uint32_t)fuzz_hostile(b);
        at = (char *)(r + 1) + r->depth * sizeof(uint32_t);
        break;
    }
    case GS_REC_API: {
        struct gs_rec_name *r = (void *)rec;
        at = (char *)(r + 1);
        r->number = (uint32_t)fuzz_hostile(b);
        r->name_len = string(b, &at, STRING_MOST);
        break;
    }
    case GS_REC_SETTING: {
        struct gs_rec_setting *r = (void *)rec;
        at = (char *)(r + 1);
        r->name_len = string(b, &at, STRING_MOST);
        r->value_len = string(b, &at, STRING_MOST);
        break;
    }
    case GS_REC_GPU: {
        struct gs_rec_gpu *r = (void *)rec;
        at = (char *)(r + 1);
        r->device = device(b);
        r->total_bytes = fuzz_hostile(b);
        r->free_bytes = fuzz_hostile(b);
        r->name_len = string(b, &at, STRING_MOST);
        break;
    }
    default: at = (char *)(rec + 1);
    }
    return (size_t)(at - (char *)rec);
}

static size_t memory_event(struct fuzz_bytes *b, struct gs_rec *rec)
{
    switch (rec->type) {
    case GS_REC_ALLOC: {
        struct gs_rec_alloc *r = (void *)rec;
        r->address = address(b);
        r->bytes = fuzz_hostile(b);
        r->stream = fuzz_u8(b) % 4;
        r->api = api(b);
        r->device = device(b);
        const uint8_t kind = fuzz_u8(b);
        r->layer = kind < 200 ? 0 : kind;
        r->space = kind < 200 ? kind % 8 : kind;
        if (r->space % 8 == GS_SPACE_VMM) r->space = 0; /* only GS_REC_VMM may have this space */
        r->context = fuzz_u8(b) % 4;
        return sizeof *r;
    }
    case GS_REC_PENDING: {
        struct gs_rec_pending *r = (void *)rec;
        r->address = address(b);
        r->event_stack = fuzz_u8(b);
        r->count = fuzz_u8(b) % (GS_PENDING_EVENTS + 3);
        for (uint32_t i = 0; i < r->count; i++) r->events[i] = fuzz_u8(b) % 4;
        return sizeof *r + r->count * sizeof *r->events;
    }
    case GS_REC_EVENT_DONE: {
        struct gs_rec_event_done *r = (void *)rec;
        r->event = fuzz_u8(b) % 4;
        return sizeof *r;
    }
    case GS_REC_TENSOR: {
        struct gs_rec_tensor *r = (void *)rec;
        r->stream = fuzz_hostile(b);
        r->address = address(b);
        r->bytes = (int64_t)fuzz_hostile(b);
        if (fuzz_u8(b) & 1) r->bytes = (int64_t) - (uint64_t)r->bytes;
        r->total_allocated = fuzz_hostile(b);
        r->total_reserved = fuzz_hostile(b);
        r->api = api(b);
        r->device = (int8_t)device(b);
        r->extra = fuzz_u8(b) & 1 ? (uint32_t)fuzz_hostile(b) : fuzz_u8(b);
        r->layer = r->device < 0 ? GS_LAYER_HOST : GS_LAYER_TENSOR;
        if (fuzz_u8(b) > 240) r->layer = fuzz_u8(b) & 15;
        r->has_totals = fuzz_u8(b) & 1;
        return sizeof *r;
    }
    case GS_REC_VMM: {
        struct gs_rec_vmm *r = (void *)rec;
        r->handle = fuzz_hostile(b);
        r->address = address(b);
        r->bytes = fuzz_hostile(b);
        r->offset = fuzz_hostile(b);
        r->api = api(b);
        r->device = device(b);
        r->op = fuzz_u8(b) % 8;
        return sizeof *r;
    }
    case GS_REC_ALLOCATOR: {
        struct gs_rec_allocator *r = (void *)rec;
        r->address = address(b);
        r->value = (int64_t)fuzz_hostile(b);
        r->device = device(b);
        r->kind = fuzz_u8(b) % 4;
        return sizeof *r;
    }
    case GS_REC_POOL: {
        struct gs_rec_pool *r = (void *)rec;
        r->pool = fuzz_hostile(b);
        r->used_bytes = fuzz_hostile(b);
        r->reserved_bytes = fuzz_hostile(b);
        r->api = api(b);
        r->device = device(b);
        return sizeof *r;
    }
    default: {
        struct gs_rec_free *r = (void *)rec;
        r->address = address(b);
        r->stream = fuzz_u8(b) % 4;
        r->api = api(b);
        r->device = device(b);
        const uint8_t kind = fuzz_u8(b);
        r->layer = kind < 200 ? 0 : kind;
        r->space = kind < 200 ? kind % 8 : kind;
        return sizeof *r;
    }
    }
}

static size_t call_event(struct fuzz_bytes *b, struct gs_rec *rec)
{
    switch (rec->type) {
    case GS_REC_SYNC: {
        struct gs_rec_sync *r = (void *)rec;
        r->handle = fuzz_hostile(b);
        r->blocked_ns = fuzz_hostile(b);
        r->api = api(b);
        r->device = device(b);
        r->kind = fuzz_u8(b) % 8;
        return sizeof *r;
    }
    case GS_REC_OOM: {
        struct gs_rec_oom *r = (void *)rec;
        r->requested_bytes = fuzz_hostile(b);
        r->free_bytes = fuzz_hostile(b);
        r->total_bytes = fuzz_hostile(b);
        r->tensor_allocated = fuzz_hostile(b);
        r->tensor_reserved = fuzz_hostile(b);
        r->api = api(b);
        r->device = device(b);
        r->layer = fuzz_u8(b) % 4;
        r->space = fuzz_u8(b) % 10;
        return sizeof *r;
    }
    default: {
        struct gs_rec_copy *r = (void *)rec;
        r->dst = address(b);
        r->src = address(b);
        r->bytes = fuzz_hostile(b);
        r->stream = fuzz_hostile(b);
        r->blocked_ns = fuzz_hostile(b);
        r->api = api(b);
        r->device = device(b);
        r->direction = fuzz_u8(b);
        return sizeof *r;
    }
    }
}

static size_t said_event(struct fuzz_bytes *b, struct gs_rec *rec)
{
    char *at;
    switch (rec->type) {
    case GS_REC_SAMPLE: {
        struct gs_rec_sample *r = (void *)rec;
        r->free_bytes = fuzz_hostile(b);
        r->total_bytes = fuzz_hostile(b);
        r->device = device(b);
        r->source = fuzz_u8(b) % 5;
        return sizeof *r;
    }
    case GS_REC_HANDLE: {
        struct gs_rec_handle *r = (void *)rec;
        r->handle = fuzz_hostile(b);
        r->api = api(b);
        r->device = device(b);
        r->kind = fuzz_u8(b) % 8;
        r->context = fuzz_u8(b) % 4;
        return sizeof *r;
    }
    case GS_REC_DEVICE_SAMPLE: {
        struct gs_rec_device_sample *r = (void *)rec;
        at = (char *)(r + 1);
        r->used_bytes = fuzz_hostile(b);
        r->total_bytes = fuzz_hostile(b);
        r->own_bytes = fuzz_hostile(b);
        r->other_bytes = fuzz_hostile(b);
        r->other_pid = (uint32_t)fuzz_hostile(b);
        r->device = device(b);
        r->utilisation = fuzz_u8(b);
        r->memory_utilisation = fuzz_u8(b);
        r->name_len = string(b, &at, STRING_MOST);
        return (size_t)(at - (char *)rec);
    }
    default: {
        struct gs_rec_mark *r = (void *)rec;
        at = (char *)(r + 1);
        r->id = fuzz_hostile(b);
        r->kind = fuzz_u8(b) % 9;
        r->domain_len = string(b, &at, STRING_MOST);
        r->name_len = string(b, &at, STRING_MOST);
        return (size_t)(at - (char *)rec);
    }
    }
}

typedef size_t (*fill)(struct fuzz_bytes *b, struct gs_rec *rec);
static const fill fills[GS_REC_TYPES] = {
    [GS_REC_THREAD] = definition,       [GS_REC_FRAME_PYTHON] = definition,  [GS_REC_STACK] = definition,
    [GS_REC_FRAME_NATIVE] = definition, [GS_REC_RESET] = definition,         [GS_REC_API] = definition,
    [GS_REC_GPU] = definition,          [GS_REC_SETTING] = definition,       [GS_REC_ALLOC] = memory_event,
    [GS_REC_FREE] = memory_event,       [GS_REC_FREE_FAILED] = memory_event, [GS_REC_TENSOR] = memory_event,
    [GS_REC_COPY] = call_event,         [GS_REC_SET] = call_event,           [GS_REC_SYNC] = call_event,
    [GS_REC_OOM] = call_event,          [GS_REC_SAMPLE] = said_event,        [GS_REC_HANDLE] = said_event,
    [GS_REC_MARK] = said_event,         [GS_REC_DEVICE_SAMPLE] = said_event, [GS_REC_VMM] = memory_event,
    [GS_REC_ALLOCATOR] = memory_event,  [GS_REC_POOL] = memory_event,        [GS_REC_PENDING] = memory_event,
    [GS_REC_EVENT_DONE] = memory_event,
};

size_t fuzz_record(struct fuzz_bytes *b, uint64_t *time, void *to)
{
    struct gs_rec *rec = memset(to, 0, FUZZ_RECORD_ROOM);
    const uint8_t type = fuzz_u8(b), step = fuzz_u8(b);
    *time += step < 240 ? step : fuzz_hostile(b);
    rec->type = 1 + type % (GS_REC_TYPES - 1);
    rec->flags = type >= 128 ? fuzz_u8(b) : 0;
    rec->time_ns = *time;
    rec->stack = fuzz_u8(b) % 16;
    rec->size = (uint16_t)((fills[rec->type](b, rec) + 7) & ~(size_t)7);
    FUZZ_CHECK(rec->size <= FUZZ_RECORD_ROOM && gs_record_valid(rec, rec->size), "type %d", rec->type);
    return rec->size;
}

void fuzz_records(struct fuzz_bytes *b, struct gs_writer *writers)
{
    static uint64_t room[FUZZ_RECORD_ROOM / 8];
    uint64_t time = 0;
    for (int i = 0; b->left && i < FUZZ_RECORDS; i++) {
        struct gs_writer *w = &writers[fuzz_u8(b) % FUZZ_WRITERS];
        const size_t bytes = fuzz_record(b, &time, room);
        void *to = gs_writer_reserve(w, (uint32_t)bytes);
        FUZZ_CHECK(to, "no room");
        memcpy(to, room, bytes);
        gs_writer_commit(w, (uint32_t)bytes);
    }
}
