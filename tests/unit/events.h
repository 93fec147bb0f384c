/* Records for the tests of spool and store: one function for each kind of record, and random records like those of a
 * program. */
#pragma once

#include "tests/cases.h"
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "schema/spool.h"
#include "schema/store.h"

/* ---------------------------------------------------------------- random numbers */

static inline uint64_t ev_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline uint32_t ev_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((ev_random(state) >> 20) % n);
}

/* ---------------------------------------------------------------- single records */

static inline void ev_put(struct gs_writer *w, const void *rec, uint32_t size)
{
    void *to = gs_writer_reserve(w, size);
    assert_non_null(to);
    memcpy(to, rec, size);
    gs_writer_commit(w, size);
}

#define EV_REC(what, s, t)                           \
    {                                                \
        .type = (what), .stack = (s), .time_ns = (t) \
    }
#define EV_PUT(w, r)                \
    do {                            \
        (r).rec.size = sizeof(r);   \
        ev_put(w, &(r), sizeof(r)); \
    } while (0)

static inline void ev_named(struct gs_writer *w, uint8_t type, uint64_t time, uint32_t number, const char *name)
{
    struct {
        struct gs_rec_name n;
        char text[64];
    } r;
    memset(&r, 0, sizeof r);
    r.n.rec.type = type;
    r.n.rec.time_ns = time;
    r.n.number = number;
    r.n.name_len = (uint16_t)strlen(name);
    memcpy((char *)(&r.n + 1), name, r.n.name_len);
    r.n.rec.size = sizeof r;
    ev_put(w, &r, sizeof r);
}

static inline void ev_mark(struct gs_writer *w, uint64_t time, uint8_t kind, uint64_t id, const char *domain,
                           const char *name)
{
    struct {
        struct gs_rec_mark m;
        char text[64];
    } r;
    memset(&r, 0, sizeof r);
    r.m.rec.type = GS_REC_MARK;
    r.m.rec.time_ns = time;
    r.m.rec.size = sizeof r;
    r.m.kind = kind;
    r.m.id = id;
    r.m.domain_len = (uint16_t)strlen(domain);
    r.m.name_len = (uint16_t)strlen(name);
    memcpy(r.text, domain, r.m.domain_len);
    memcpy(r.text + r.m.domain_len, name, r.m.name_len);
    ev_put(w, &r, sizeof r);
}

static inline void ev_device_sample(struct gs_writer *w, uint64_t time, uint64_t used, uint64_t own, uint64_t other,
                                    uint32_t pid, const char *name)
{
    struct {
        struct gs_rec_device_sample s;
        char text[64];
    } r;
    memset(&r, 0, sizeof r);
    r.s.rec.type = GS_REC_DEVICE_SAMPLE;
    r.s.rec.time_ns = time;
    r.s.rec.size = sizeof r;
    r.s.used_bytes = used;
    r.s.total_bytes = 1000;
    r.s.own_bytes = own;
    r.s.other_bytes = other;
    r.s.other_pid = pid;
    r.s.utilisation = 42;
    r.s.memory_utilisation = 255;
    r.s.name_len = (uint16_t)strlen(name);
    memcpy(r.text, name, r.s.name_len);
    ev_put(w, &r, sizeof r);
}

static inline void ev_thread(struct gs_writer *w, uint32_t tid, const char *name)
{
    struct {
        struct gs_rec_thread t;
        char text[32];
    } r;
    memset(&r, 0, sizeof r);
    r.t.rec.type = GS_REC_THREAD;
    r.t.tid = tid;
    r.t.name_len = (uint16_t)strlen(name);
    memcpy((char *)(&r.t + 1), name, r.t.name_len);
    r.t.rec.size = sizeof r;
    ev_put(w, &r, sizeof r);
}

static inline void ev_gpu(struct gs_writer *w, uint64_t time, int device, const char *name)
{
    struct {
        struct gs_rec_gpu g;
        char text[32];
    } r;
    memset(&r, 0, sizeof r);
    r.g.rec.type = GS_REC_GPU;
    r.g.rec.time_ns = time;
    r.g.device = device;
    r.g.total_bytes = 24ull << 30;
    r.g.free_bytes = 23ull << 30;
    r.g.name_len = (uint16_t)strlen(name);
    memcpy((char *)(&r.g + 1), name, r.g.name_len);
    r.g.rec.size = sizeof r;
    ev_put(w, &r, sizeof r);
}

static inline void ev_python(struct gs_writer *w, uint32_t frame, const char *function, const char *file, int line)
{
    struct {
        struct gs_rec_frame_python f;
        char text[128];
    } r;
    memset(&r, 0, sizeof r);
    r.f.rec.type = GS_REC_FRAME_PYTHON;
    r.f.frame = frame;
    r.f.line = line;
    r.f.function_len = (uint16_t)strlen(function);
    r.f.file_len = (uint16_t)strlen(file);
    memcpy((char *)(&r.f + 1), function, r.f.function_len);
    memcpy((char *)(&r.f + 1) + r.f.function_len, file, r.f.file_len);
    r.f.rec.size = sizeof r;
    ev_put(w, &r, sizeof r);
}

static inline void ev_native(struct gs_writer *w, uint32_t frame, const char *path, const char *build_id,
                             uint64_t offset)
{
    struct {
        struct gs_rec_frame_native f;
        char text[128];
    } r;
    memset(&r, 0, sizeof r);
    r.f.rec.type = GS_REC_FRAME_NATIVE;
    r.f.frame = frame;
    r.f.offset = offset;
    r.f.path_len = (uint16_t)strlen(path);
    r.f.build_id_len = (uint8_t)strlen(build_id);
    memcpy((char *)(&r.f + 1), path, r.f.path_len);
    memcpy((char *)(&r.f + 1) + r.f.path_len, build_id, r.f.build_id_len);
    r.f.rec.size = sizeof r;
    ev_put(w, &r, sizeof r);
}

/* frames: innermost first, ended by 0 */
static inline void ev_stack(struct gs_writer *w, uint32_t number, const uint32_t *frames)
{
    uint64_t room[64] = {0};
    struct gs_rec_stack *r = (void *)room;
    while (frames[r->depth]) {
        r->frames[r->depth] = frames[r->depth];
        r->depth++;
    }
    r->rec.type = GS_REC_STACK;
    r->rec.stack = number;
    r->rec.size = (uint16_t)((sizeof *r + r->depth * sizeof(uint32_t) + 7) / 8 * 8);
    ev_put(w, r, r->rec.size);
}

static inline void ev_reset(struct gs_writer *w)
{
    struct gs_rec r = {.size = sizeof r, .type = GS_REC_RESET};
    ev_put(w, &r, sizeof r);
}

static inline void ev_alloc(struct gs_writer *w, uint64_t time, uint64_t address, uint64_t bytes, int device,
                            uint8_t space, uint32_t stack)
{
    struct gs_rec_alloc r = {.rec = EV_REC(GS_REC_ALLOC, stack, time),
                             .address = address,
                             .bytes = bytes,
                             .api = 7,
                             .device = (int16_t)device,
                             .space = space};
    EV_PUT(w, r);
}

static inline void ev_free(struct gs_writer *w, uint64_t time, uint64_t address, uint32_t stack)
{
    struct gs_rec_free r = {.rec = EV_REC(GS_REC_FREE, stack, time), .address = address, .api = 8, .device = -1};
    EV_PUT(w, r);
}

static inline void ev_free_failed(struct gs_writer *w, uint64_t time, uint64_t address)
{
    struct gs_rec_free r = {.rec = EV_REC(GS_REC_FREE_FAILED, 0, time), .address = address, .api = 8, .device = -1};
    EV_PUT(w, r);
}

static inline void ev_request(struct gs_writer *w, uint64_t time, uint64_t address, int64_t bytes, uint64_t total,
                              uint64_t reserved, int device, uint32_t stack, uint32_t extra)
{
    struct gs_rec_tensor r = {.rec = EV_REC(GS_REC_TENSOR, stack, time),
                              .address = address,
                              .bytes = bytes,
                              .total_allocated = total,
                              .total_reserved = reserved,
                              .extra = extra,
                              .api = 9,
                              .device = (int8_t)device,
                              .layer = device < 0 ? GS_LAYER_HOST : GS_LAYER_TENSOR,
                              .has_totals = 1};
    EV_PUT(w, r);
}

static inline void ev_tensor(struct gs_writer *w, uint64_t time, uint64_t address, int64_t bytes, uint64_t total,
                             uint64_t reserved, int device, uint32_t stack)
{
    ev_request(w, time, address, bytes, total, reserved, device, stack, GS_EXTRA_UNKNOWN);
}

/* PyTorch listed it when gpuspy attached. */
static inline void ev_listed(struct gs_writer *w, uint64_t time, uint64_t address, int64_t bytes)
{
    struct gs_rec_tensor r = {.rec = EV_REC(GS_REC_TENSOR, 0, time), .address = address, .bytes = bytes};
    r.rec.flags = GS_FLAG_BEFORE;
    r.layer = GS_LAYER_TENSOR;
    EV_PUT(w, r);
}

static inline void ev_fact(struct gs_writer *w, const char *name, const char *value)
{
    struct {
        struct gs_rec_setting setting;
        char text[64];
    } r = {.setting.rec = {.size = sizeof r, .type = GS_REC_SETTING, .flags = GS_FLAG_FACT}};
    r.setting.name_len = (uint16_t)strlen(name);
    r.setting.value_len = (uint16_t)strlen(value);
    snprintf(r.text, sizeof r.text, "%s%s", name, value);
    ev_put(w, &r, sizeof r);
}

/* A free that waits for `count` events, the first of which is `event`; followed by its ev_tensor. */
static inline void ev_pending(struct gs_writer *w, uint64_t time, uint64_t address, uint64_t event, uint32_t count,
                              uint32_t event_stack, uint32_t free_stack)
{
    union {
        struct gs_rec_pending p;
        uint64_t room[sizeof(struct gs_rec_pending) / sizeof(uint64_t) + GS_PENDING_EVENTS];
    } r;
    memset(&r, 0, sizeof r);
    r.p.rec = (struct gs_rec)EV_REC(GS_REC_PENDING, free_stack, time);
    r.p.rec.size = (uint16_t)(sizeof r.p + count * sizeof *r.p.events);
    r.p.address = address;
    r.p.event_stack = event_stack;
    r.p.count = count;
    for (uint32_t i = 0; i < count; i++) r.p.events[i] = event + i;
    ev_put(w, &r, r.p.rec.size);
}

static inline void ev_event_done(struct gs_writer *w, uint64_t time, uint64_t event)
{
    struct gs_rec_event_done r = {.rec = EV_REC(GS_REC_EVENT_DONE, 0, time), .event = event};
    EV_PUT(w, r);
}

static inline void ev_copy(struct gs_writer *w, uint64_t time, uint64_t dst, uint64_t src, uint64_t bytes,
                           uint64_t blocked, uint8_t direction, uint8_t flags, uint32_t stack)
{
    struct gs_rec_copy r = {.rec = EV_REC(GS_REC_COPY, stack, time),
                            .dst = dst,
                            .src = src,
                            .bytes = bytes,
                            .blocked_ns = blocked,
                            .api = 10,
                            .direction = direction};
    r.rec.flags = flags;
    EV_PUT(w, r);
}

static inline void ev_set(struct gs_writer *w, uint64_t time, uint64_t dst, uint64_t bytes, uint64_t blocked)
{
    struct gs_rec_copy r = {.rec = EV_REC(GS_REC_SET, 0, time),
                            .dst = dst,
                            .bytes = bytes,
                            .blocked_ns = blocked,
                            .api = 11,
                            .direction = GS_DIR_UNKNOWN};
    EV_PUT(w, r);
}

static inline void ev_sync(struct gs_writer *w, uint64_t time, uint64_t blocked, uint8_t kind, uint32_t stack)
{
    struct gs_rec_sync r = {
        .rec = EV_REC(GS_REC_SYNC, stack, time), .blocked_ns = blocked, .api = 12, .kind = kind, .handle = 0x55};
    EV_PUT(w, r);
}

static inline void ev_oom(struct gs_writer *w, uint64_t time, uint64_t bytes, uint8_t layer, uint8_t space, int device)
{
    struct gs_rec_oom r = {.rec = EV_REC(GS_REC_OOM, 0, time),
                           .requested_bytes = bytes,
                           .free_bytes = 1 << 20,
                           .total_bytes = UINT64_MAX,
                           .tensor_allocated = UINT64_MAX,
                           .tensor_reserved = UINT64_MAX,
                           .api = 7,
                           .device = (int16_t)device,
                           .layer = layer,
                           .space = space};
    EV_PUT(w, r);
}

static inline void ev_sample(struct gs_writer *w, uint64_t time, uint64_t free_bytes)
{
    struct gs_rec_sample r = {
        .rec = EV_REC(GS_REC_SAMPLE, 0, time), .free_bytes = free_bytes, .total_bytes = 24ull << 30};
    EV_PUT(w, r);
}

static inline void ev_handle(struct gs_writer *w, uint64_t time, uint64_t handle, bool destroyed)
{
    struct gs_rec_handle r = {.rec = EV_REC(GS_REC_HANDLE, 0, time), .handle = handle, .api = 13};
    r.rec.flags = destroyed ? GS_FLAG_DESTROYED : 0;
    EV_PUT(w, r);
}

static inline void ev_context(struct gs_writer *w, uint64_t time, uint64_t handle, int device, uint16_t context,
                              bool destroyed)
{
    struct gs_rec_handle r = {.rec = EV_REC(GS_REC_HANDLE, 0, time),
                              .handle = handle,
                              .api = 13,
                              .device = (int16_t)device,
                              .kind = GS_HANDLE_CONTEXT,
                              .context = context};
    r.rec.flags = destroyed ? GS_FLAG_DESTROYED : 0;
    EV_PUT(w, r);
}

/* Like ev_alloc, with a context and flags. */
static inline void ev_alloc_in(struct gs_writer *w, uint64_t time, uint64_t address, uint64_t bytes, int device,
                               uint8_t space, uint16_t context, uint8_t flags)
{
    struct gs_rec_alloc r = {.rec = EV_REC(GS_REC_ALLOC, 0, time),
                             .address = address,
                             .bytes = bytes,
                             .api = 7,
                             .device = (int16_t)device,
                             .space = space,
                             .context = context};
    r.rec.flags = flags;
    EV_PUT(w, r);
}

static inline void ev_free_node(struct gs_writer *w, uint64_t time, uint64_t address)
{
    struct gs_rec_free r = {.rec = EV_REC(GS_REC_FREE, 0, time), .address = address, .api = 8, .device = -1};
    r.rec.flags = GS_FLAG_GRAPH;
    EV_PUT(w, r);
}

static inline void ev_vmm(struct gs_writer *w, uint64_t time, uint8_t op, uint64_t handle, uint64_t address,
                          uint64_t bytes, uint64_t offset, uint8_t flags)
{
    struct gs_rec_vmm r = {.rec = EV_REC(GS_REC_VMM, 0, time),
                           .handle = handle,
                           .address = address,
                           .bytes = bytes,
                           .offset = offset,
                           .api = 9,
                           .op = op};
    r.rec.flags = flags;
    EV_PUT(w, r);
}

static inline void ev_pool(struct gs_writer *w, uint64_t time, uint64_t pool, uint64_t used, uint64_t reserved)
{
    struct gs_rec_pool r = {
        .rec = EV_REC(GS_REC_POOL, 0, time), .pool = pool, .used_bytes = used, .reserved_bytes = reserved, .api = 12};
    EV_PUT(w, r);
}

/* ---------------------------------------------------------------- a random program */

#define EV_WRITERS 5
#define EV_SLOTS 48
#define EV_LEVELS 3 /* device, GPU tensors, CPU tensors */

struct ev_program {
    uint64_t random, time;
    struct gs_writer writers[EV_WRITERS];
    uint32_t frames[EV_WRITERS], stacks[EV_WRITERS]; /* numbers in use */
    uint64_t bytes[EV_LEVELS][EV_SLOTS];             /* not 0: live */
    uint64_t total[EV_LEVELS];
    uint64_t reserved;
    bool handles[8];
};

static inline void ev_start(struct ev_program *p, struct gs_spool *s, uint64_t seed)
{
    memset(p, 0, sizeof *p);
    p->random = seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < EV_WRITERS; i++) {
        gs_writer_open(&p->writers[i], s);
        ev_thread(&p->writers[i], 1000 + (uint32_t)i, i ? "worker" : "main");
    }
    for (uint32_t api = 7; api < 14; api++) {
        char name[16];
        snprintf(name, sizeof name, "cudaCall%u", api);
        ev_named(&p->writers[0], GS_REC_API, 0, api, name);
    }
}

/* A stack number for the thread: often one that it has used, otherwise a new one with its frames. */
static inline uint32_t ev_capture(struct ev_program *p, int t)
{
    struct gs_writer *w = &p->writers[t];
    if (ev_below(&p->random, 400) == 0) {
        ev_reset(w);
        p->frames[t] = p->stacks[t] = 0;
    }
    if (p->stacks[t] && ev_below(&p->random, 8)) return 1 + ev_below(&p->random, p->stacks[t]);
    if (ev_below(&p->random, 100) == 0) /* a number that is not defined (any more) */
        return p->stacks[t] + 1 + ev_below(&p->random, 20);
    uint32_t frames[6] = {0}, depth = 1 + ev_below(&p->random, 5);
    for (uint32_t i = 0; i < depth; i++) {
        if (p->frames[t] && ev_below(&p->random, 3)) {
            frames[i] = 1 + ev_below(&p->random, p->frames[t]);
            continue;
        }
        frames[i] = ++p->frames[t];
        uint32_t line = ev_below(&p->random, 40); /* few, so that threads and resets use the same ones */
        if (line % 2)
            ev_python(w, frames[i], line % 3 ? "train" : "evaluate", "train.py", (int)line);
        else
            ev_native(w, frames[i], line % 4 ? "/usr/lib/libtorch.so" : "", "\x01\xfe\x80", line);
    }
    ev_stack(w, ++p->stacks[t], frames);
    return p->stacks[t];
}

static inline uint64_t ev_address(int level, uint32_t slot)
{
    return 0x7f0000000000 + (uint64_t)level * 0x10000000 + (uint64_t)slot * 0x100000;
}

static inline void ev_memory(struct ev_program *p, int t)
{
    struct gs_writer *w = &p->writers[t];
    int level = (int)ev_below(&p->random, EV_LEVELS);
    uint32_t slot = ev_below(&p->random, EV_SLOTS), stack = ev_capture(p, t);
    uint64_t address = ev_address(level, slot), *bytes = &p->bytes[level][slot];
    bool free = *bytes != 0, odd = ev_below(&p->random, 60) == 0; /* a record of an unobserved event */
    if (!free) {
        *bytes = 512 * (1 + ev_below(&p->random, 1000));
        p->total[level] += *bytes;
    } else {
        p->total[level] -= *bytes;
    }
    if (ev_below(&p->random, 10) == 0) p->reserved = (uint64_t)ev_below(&p->random, 100) << 21;
    if (!odd && level == 0 && free) {
        ev_free(w, p->time, address, stack);
        if (ev_below(&p->random, 10) == 0) {
            p->time += 10;
            ev_free_failed(w, p->time, address);
            p->total[level] += *bytes;
            return;
        }
    } else if (!odd && level == 0) {
        ev_alloc(w, p->time, address, *bytes, (int)slot % 2, (uint8_t)(slot % 4), stack);
    } else if (!odd) {
        ev_tensor(w, p->time, address, free ? -(int64_t)*bytes : (int64_t)*bytes, p->total[level], p->reserved,
                  level == 1 ? 0 : -1, stack);
    }
    if (free) *bytes = 0;
}

/* Physical memory, mappings, contexts, graphs: in any order, even if CUDA would refuse it. */
static inline void ev_device_memory(struct ev_program *p, int t)
{
    struct gs_writer *w = &p->writers[t];
    uint64_t *random = &p->random, handle = 0x9000 + 16 * ev_below(random, 8);
    uint64_t address = 0x600000000000 + 0x200000ull * ev_below(random, 16);
    uint64_t bytes = 0x200000ull * (1 + ev_below(random, 3));
    switch (ev_below(random, 14)) {
    case 0:
    case 1: ev_vmm(w, p->time, GS_VMM_CREATE, handle, 0, bytes, 0, 0); break;
    case 2: ev_vmm(w, p->time, ev_below(random, 3) ? GS_VMM_RETAIN : GS_VMM_IMPORT, handle, address, 0, 0, 0); break;
    case 3:
    case 4:
    case 5: ev_vmm(w, p->time, GS_VMM_MAP, handle, address, bytes, 0, 0); break;
    case 6:
    case 7:
    case 8: {
        bool release = ev_below(random, 2);
        uint8_t op = release ? GS_VMM_RELEASE : GS_VMM_UNMAP;
        ev_vmm(w, p->time, op, release ? handle : 0, release ? 0 : address, release ? 0 : bytes, 0, 0);
        if (ev_below(random, 4) == 0) {
            p->time += 10;
            ev_vmm(w, p->time, op, release ? handle : 0, release ? 0 : address, release ? 0 : bytes, 0, GS_FLAG_FAILED);
        }
        break;
    }
    case 9:
        ev_alloc_in(w, p->time, ev_address(0, ev_below(random, EV_SLOTS)), bytes >> 3, (int)ev_below(random, 2),
                    (uint8_t)ev_below(random, 4), (uint16_t)ev_below(random, 3), 0);
        break;
    case 10:
        if (ev_below(random, 4) == 0)
            ev_context(w, p->time, 0x77, (int)ev_below(random, 2), (uint16_t)ev_below(random, 3), true);
        break;
    case 11: ev_alloc_in(w, p->time, 0x610000000000 + handle, bytes, 0, GS_SPACE_POOL, 0, GS_FLAG_GRAPH); break;
    case 12:
        if (ev_below(random, 2))
            ev_free_node(w, p->time, 0x610000000000 + handle);
        else
            ev_free(w, p->time, 0x610000000000 + handle, 0);
        if (ev_below(random, 4) == 0) ev_free_failed(w, ++p->time, 0x610000000000 + handle);
        break;
    default: ev_pool(w, p->time, handle & 16, bytes / 2, bytes);
    }
}

/* One action of the program. */
/* Begins or ends a range; some ends are lost, and some have no beginning. */
static inline void ev_range(struct ev_program *p, int t, uint32_t h)
{
    static const char *const domains[] = {"", "nccl", "cub"};
    static const char *const names[] = {"step", "forward", "", "\xc3\xa9tape"};
    const uint8_t kinds[] = {GS_MARK_PUSH, GS_MARK_POP, GS_MARK_START, GS_MARK_END};
    const uint8_t kind = h == 7 ? GS_MARK_MOMENT : kinds[h % 4];
    const bool ends = kind == GS_MARK_POP || kind == GS_MARK_END;
    ev_mark(&p->writers[t], p->time, kind, 1 + ev_below(&p->random, 3), domains[ev_below(&p->random, 3)],
            ends ? "" : names[ev_below(&p->random, 4)]);
}

static inline void ev_step(struct ev_program *p)
{
    int t = (int)ev_below(&p->random, EV_WRITERS);
    struct gs_writer *w = &p->writers[t];
    uint64_t *random = &p->random;
    p->time += 1 + ev_below(random, 3) * ev_below(random, 2000);
    uint64_t before = p->time > 5000 ? ev_below(random, 5000) : 0;
    uint64_t a = ev_address(0, ev_below(random, EV_SLOTS)) + ev_below(random, 4096);
    uint64_t b = ev_address(0, ev_below(random, EV_SLOTS));
    uint32_t h = ev_below(random, 8);
    switch (ev_below(random, 28)) {
    case 24:
    case 25:
    case 26:
    case 27:
        ev_device_memory(p, t);
        gs_spool_count(w->spool, gs_counter_key((uint16_t)(7 + h % 3), (int)h % 2, h, h == 7));
        break;
    case 0:
        ev_copy(w, p->time - before, a, b, 4096, before, (uint8_t)(ev_below(random, 2) ? 255 : h % 5), h % 2,
                ev_capture(p, t));
        break;
    case 1: ev_set(w, p->time - before, a, 4096, before); break;
    case 2: ev_sync(w, p->time - before, before, (uint8_t)(h % 5), ev_capture(p, t)); break;
    case 3:
        if (h == 0)
            ev_oom(w, p->time, 512 * (1 + ev_below(random, 1100)), (uint8_t)ev_below(random, 2),
                   (uint8_t)ev_below(random, 3), (int)ev_below(random, 2));
        break;
    case 4: ev_sample(w, p->time, p->time * 3); break;
    case 5:
        ev_handle(w, p->time, 0x100 + h, p->handles[h] && ev_below(random, 10));
        p->handles[h] = !p->handles[h];
        break;
    case 6: ev_range(p, t, h); break;
    case 7: ev_gpu(w, p->time, (int)h % 2, "GPU"); break;
    case 8:
        if (h == 0) { /* the thread ends, another begins */
            gs_writer_close(w);
            gs_writer_open(w, p->writers[(t + 1) % EV_WRITERS].spool);
            p->frames[t] = p->stacks[t] = 0;
            ev_thread(w, (uint32_t)p->time, "later");
        }
        break;
    default: ev_memory(p, t);
    }
}

/* ---------------------------------------------------------------- databases */

static inline int64_t db_number(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_type(st, 0) == SQLITE_NULL ? INT64_MIN : sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

static inline void db_assert_text(const char *path, const char *sql, const char *expected)
{
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    char found[4096] = "";
    size_t n = 0;
    while (sqlite3_step(st) == SQLITE_ROW)
        for (int c = 0; c < sqlite3_column_count(st); c++) {
            const char *text = (const char *)sqlite3_column_text(st, c);
            n += (size_t)snprintf(found + n, sizeof found - n, "%s%s", text ? text : "-",
                                  c + 1 < sqlite3_column_count(st) ? " " : "\n");
            assert_true(n < sizeof found);
        }
    sqlite3_finalize(st);
    sqlite3_close(db);
    assert_string_equal(found, expected);
}

/* Every row of every table is the same in both. */
static inline void db_assert_same(const char *a, const char *b)
{
    sqlite3 *db[2];
    sqlite3_stmt *tables, *rows[2];
    assert_int_equal(sqlite3_open_v2(a, &db[0], SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_open_v2(b, &db[1], SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db[0], "SELECT name FROM sqlite_master WHERE type='table' ORDER BY 1", -1, &tables, NULL),
        SQLITE_OK);
    int count = 0;
    while (sqlite3_step(tables) == SQLITE_ROW) {
        char sql[256];
        snprintf(sql, sizeof sql, "SELECT * FROM %s ORDER BY 1,2,3", (const char *)sqlite3_column_text(tables, 0));
        if (strstr(sql, " meta ") || strstr(sql, "_kind ") || strstr(sql, "layer ") || strstr(sql, "space ") ||
            strstr(sql, "direction ") || strstr(sql, "host_memory ") || strstr(sql, "sample_source ") ||
            strstr(sql, " api ") || strstr(sql, "_name "))
            *strstr(sql, ",2,3") = 0;
        for (int i = 0; i < 2; i++)
            if (sqlite3_prepare_v2(db[i], sql, -1, &rows[i], NULL) != SQLITE_OK)
                fail_msg("%s: %s", sql, sqlite3_errmsg(db[i]));
        int rc;
        for (int n = 0; (rc = sqlite3_step(rows[0])) == sqlite3_step(rows[1]) && rc == SQLITE_ROW; n++)
            for (int c = 0; c < sqlite3_column_count(rows[0]); c++) {
                const char *x = (const char *)sqlite3_column_text(rows[0], c);
                const char *y = (const char *)sqlite3_column_text(rows[1], c);
                if (strcmp(x ? x : "NULL", y ? y : "NULL"))
                    fail_msg("%s: row %d, %s: %s, %s", sql, n, sqlite3_column_name(rows[0], c), x ? x : "NULL",
                             y ? y : "NULL");
            }
        if (rc != SQLITE_DONE) fail_msg("%s: one has more rows", sql);
        sqlite3_finalize(rows[0]);
        sqlite3_finalize(rows[1]);
        count++;
    }
    assert_true(count > 15);
    sqlite3_finalize(tables);
    sqlite3_close(db[0]);
    sqlite3_close(db[1]);
}

/* ---------------------------------------------------------------- emulators */

/* qemu-user writes what a process reads of its own /proc/self/stat, into a file to which RLIMIT_FSIZE applies. It has
 * no state, and a start time that differs from the one that other processes read. */
static inline void ev_skip_without_own_stat(void)
{
    char text[512] = "";
    FILE *f = fopen("/proc/self/stat", "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    const char *name_end = n ? strrchr(text, ')') : NULL;
    if (!name_end || name_end[2] != '0') return;
    print_message("(qemu-user writes /proc/self/stat itself, with another start time than the kernel's)\n");
    skip();
}

/* ---------------------------------------------------------------- folders */

static inline char *ev_folder(void)
{
    static char folder[256];
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/gpuspy-test-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
    return folder;
}

static inline void ev_remove_folder(const char *folder)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static inline struct gs_store *ev_store(const char *path)
{
    char error[256];
    struct gs_store_info info = {.run_id = "run",
                                 .command = "python train.py",
                                 .host = "host",
                                 .pid = (uint32_t)getpid(),
                                 .rank = -1,
                                 .start_real_ns = 5};
    struct gs_store *s = gs_store_create(path, &info, error, sizeof error);
    if (!s) fail_msg("%s: %s", path, error);
    return s;
}

/* Reads all records into the store; returns their number. */
static inline uint64_t ev_drain(struct gs_reader *r, struct gs_store *s)
{
    const struct gs_rec *rec;
    uint32_t thread;
    uint64_t n = 0;
    while ((rec = gs_reader_next(r, &thread))) {
        if (gs_store_add(s, thread, rec)) fail_msg("%s", gs_store_error(s));
        n++;
    }
    return n;
}
