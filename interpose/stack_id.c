/* Captures a stack: both kinds of frames → one hash → a stack number, and definitions for what is new. */
#include "interpose/stack.h"

#include <string.h>
#include "interpose/stack_cache.h"
#include "interpose/stack_python.h"

static unsigned enabled;
static uint32_t native_depth = GS_NATIVE_DEPTH;

void gs_stack_init(unsigned what, unsigned depth)
{
    const uint32_t most = depth ? depth : GS_NATIVE_DEPTH;
    enabled = what;
    /* at once: while a second thread makes its first call, the first may already be recording */
    native_depth = most < GS_NATIVE_DEPTH_MAX ? most : GS_NATIVE_DEPTH_MAX;
    gs_modules_open();
    if (what & GS_STACK_NATIVE && !GS_UNWINDS)
        gs_stack_lacks("no native stacks: gpuspy cannot unwind the stacks of this processor");
    gs_stack_find_python();
}

void gs_stack_forked(void)
{
    gs_stack_missing_forked();
    gs_python_forked();
}

void gs_stack_find_python(void)
{
    if (enabled & GS_STACK_PYTHON) gs_python_find();
}

/* --- native frames above the interpreter ------------------------------------------------------ */

static inline bool is_in_range(uintptr_t address, const struct gs_elf_range *r)
{
    return address - r->lo < r->hi - r->lo;
}

/* The frame record of the wrapper, which has the return address `caller`. NULL: not found. *inside: where the wrapper
 * is. */
static inline __attribute__((always_inline)) uintptr_t *wrapper_record(const struct gs_memory *m, uintptr_t *at,
                                                                       const void *caller, uintptr_t *inside)
{
    *inside = 0;
    for (uint32_t i = 0; i < GS_NATIVE_OWN; i++) {
        if (gs_walk_same(at[1], (uintptr_t)caller)) return at;
        *inside = at[1];
        uintptr_t *const next = (uintptr_t *)at[0];
        if (next <= at || (uintptr_t)next - m->lo >= m->hi - m->lo) break;
        at = next;
    }
    return NULL;
}

/* The frame of the wrapper's caller, and where it begins: all wrappers keep frame pointers. If there are none, or the
 * caller's frame pointer is not usable, the frame of gs_stack_capture's caller, which may be gpuspy's. On AArch64 only
 * the tables give a caller's stack pointer: the frame is this one, but `place` is where the wrapper's return address
 * is. The caller's stack pointer is determined by it and by *inside. */
static inline __attribute__((always_inline)) struct gs_frame calling_frame(const struct gs_memory *m,
                                                                           const void *caller, uintptr_t *inside)
{
    uintptr_t *const own = __builtin_frame_address(0), *const at = wrapper_record(m, own, caller, inside);
#if defined(__x86_64__)
    *inside = 0; /* the caller's stack pointer is next to the return address */
    if (at)
        return (struct gs_frame){.ip = at[1],
                                 .sp = (uintptr_t)(at + 2),
                                 .fp = at[0],
                                 .place = (uintptr_t)(at + 1),
                                 .fp_place = (uintptr_t)at};
    return (struct gs_frame){.ip = own[1], .sp = (uintptr_t)(own + 2), .fp = own[0]};
#else
    struct gs_frame f = {.fp = (uintptr_t)own, .interrupted = true, .place = at ? (uintptr_t)(at + 1) : 0};
    GS_UNWIND_HERE(f.ip, f.sp);
    return f;
#endif
}

/* The innermost frame that is not gpuspy's. */
static inline uint32_t skip_own(const uintptr_t *at, uint32_t n, const void *caller)
{
    uint32_t most = n < GS_NATIVE_OWN ? n : GS_NATIVE_OWN;
    for (uint32_t i = 0; i < most; i++)
        if (at[i] == (uintptr_t)caller) return i;
    for (uint32_t i = 0; i < most; i++)
        if (!is_in_range(at[i], &gs_stack_self)) return i;
    return most;
}

struct native {
    uint32_t first, end; /* in the unwinder's addresses */
    uint32_t seen;       /* the number of frames that determined it */
    bool cut;
};

/* `stop`: the module at which to stop, NULL for none. */
static inline struct native unwind_native(struct gs_stacks *s, struct gs_frame from, const struct gs_elf_range *stop,
                                          const void *caller)
{
    const uint32_t own = from.ip == (uintptr_t)caller ? 0 : GS_NATIVE_OWN;
    const struct gs_elf_range nowhere = {0, 0};
    const uintptr_t *at = s->unwinder.address;
    struct native w;
    w.seen = gs_unwind(&s->unwinder, from, stop ? *stop : nowhere, native_depth + 1 + own);
    w.first = skip_own(at, w.seen, caller);
    w.end = w.seen - (w.seen > w.first && stop && is_in_range(at[w.seen - 1], stop));
    w.cut = w.end - w.first > native_depth;
    if (w.cut) w.end = w.first + native_depth;
    return w;
}

static inline uint64_t hash_native(const uintptr_t *at, struct native w, uint64_t h)
{
    uint32_t i = w.first;
    for (; i + 1 < w.end; i += 2) h = gs_stack_mix(h, at[i], at[i + 1]);
    return gs_stack_mix(h, i < w.end ? at[i] : 1, w.end - w.first);
}

/* --- definitions ------------------------------------------------------------------------------ */

/* Frame keys: bit 63 Python, then the code object's number and the offset; otherwise the generation of modules and the
 * address. No address is as low as the marker's. */
#define KEY_CUT 1u

static uint64_t python_key(const char *code, int64_t offset)
{
    const unsigned bits = 63 - GS_CODE_BITS;
    return 1ull << 63 | gs_code_identity(code) << bits | ((uint64_t)offset & ((1ull << bits) - 1));
}

static uint64_t native_key(uintptr_t address)
{
    uint64_t generation = atomic_load_explicit(&gs_module_generation, memory_order_acquire);
    return (generation & 0xffff) << 47 | (address & 0x7fffffffffff);
}

static uint32_t define_python_frame(struct gs_stacks *s, uint64_t key, uint32_t function_len, uint32_t file_len,
                                    int line)
{
    struct gs_rec_frame_python *r =
        gs_cache_reserve(s, GS_REC_FRAME_PYTHON, (uint32_t)sizeof *r + function_len + file_len);
    if (!r) return 0;
    r->frame = gs_cache_next_frame(s);
    r->line = line;
    r->function_len = (uint16_t)function_len;
    r->file_len = (uint16_t)file_len;
    r->pad = 0;
    char *text = (char *)(r + 1);
    memcpy(text, s->text.function, function_len);
    memcpy(text + function_len, s->text.file, file_len);
    gs_writer_commit(s->writer, r->rec.size);
    gs_cache_add_frame(s, key);
    return s->frames_used;
}

static uint32_t python_frame(struct gs_stacks *s, const struct gs_python *p, const char *code, int64_t offset)
{
    uint64_t key = python_key(code, offset);
    uint32_t known = gs_cache_frame(s, key);
    if (known) return known;
    uint32_t function = gs_python_function(p, code, s->text.function, GS_STRING_MAX);
    uint32_t file = gs_python_file(p, code, s->text.file, GS_STRING_MAX);
    return define_python_frame(s, key, function, file, gs_python_line(p, code, offset));
}

static uint32_t cut_frame(struct gs_stacks *s)
{
    static const char name[] = "(deeper frames cut)";
    uint32_t known = gs_cache_frame(s, KEY_CUT);
    if (known) return known;
    memcpy(s->text.function, name, sizeof name - 1);
    return define_python_frame(s, KEY_CUT, sizeof name - 1, 0, 0);
}

static uint32_t native_frame(struct gs_stacks *s, uintptr_t address)
{
    uint64_t key = native_key(address);
    uint32_t known = gs_cache_frame(s, key);
    if (known) return known;
    struct gs_module *m = &s->text.module;
    uintptr_t inside = address - 1; /* the call, not the instruction after it */
    if (!gs_module_find(&s->unwinder.modules, inside, m)) m->bias = 0, m->path_len = m->build_id_len = 0;
    struct gs_rec_frame_native *r =
        gs_cache_reserve(s, GS_REC_FRAME_NATIVE, (uint32_t)sizeof *r + m->path_len + m->build_id_len);
    if (!r) return 0;
    r->frame = gs_cache_next_frame(s);
    r->path_len = (uint16_t)m->path_len;
    r->build_id_len = (uint8_t)m->build_id_len;
    r->pad = 0;
    r->offset = inside - m->bias;
    char *text = (char *)(r + 1);
    memcpy(text, m->path, m->path_len);
    memcpy(text + m->path_len, m->build_id, m->build_id_len);
    gs_writer_commit(s->writer, r->rec.size);
    gs_cache_add_frame(s, key);
    return s->frames_used;
}

struct merged {
    uint32_t depth;
    bool cut;
};

static bool put_frame(struct gs_stacks *s, struct merged *m, uint32_t frame)
{
    s->numbers[m->depth++] = frame;
    return frame != 0;
}

/* Native frames, then Python's, at most one less than fit, so that there is room for the marker. False: no room in the
 * spool. */
static bool merge_frames(struct gs_stacks *s, const struct gs_python *p, struct native w, uint32_t python,
                         struct merged *m)
{
    for (uint32_t i = w.first; i < w.end; i++)
        if (!put_frame(s, m, native_frame(s, s->unwinder.address[i]))) return false;
    for (uint32_t i = 0; i < python; i++) {
        int64_t offset;
        const char *code = gs_python_frame(p, s->python[i], &offset);
        if (!code) continue;
        if (m->depth == GS_STACK_MAX_FRAMES - 1) {
            m->cut = true;
            break;
        }
        if (!put_frame(s, m, python_frame(s, p, code, offset))) return false;
    }
    return !m->cut || put_frame(s, m, cut_frame(s));
}

/* A stack that this thread has not seen in this epoch. */
static __attribute__((noinline)) uint32_t define_stack_id(struct gs_stacks *s, const struct gs_python *p,
                                                          struct native w, uint32_t python, bool cut, uint64_t hash)
{
    uint32_t era = s->era;
    struct merged m = {0, cut};
    if (!gs_cache_make_room(s, w.end - w.first + python + 1) || !merge_frames(s, p, w, python, &m)) return 0;
    if (!m.depth) return 0;
    uint32_t number = gs_cache_add_stack(s, hash, s->numbers, m.depth);
    /* The hash was made with the seed from before the reset: no look-up will use it again. */
    if (era != s->era && number) s->stacks[number - 1] = 0;
    return number;
}

/* Has a Python been loaded after this thread was first seen? Checked whenever a stack is new. */
static __attribute__((noinline)) bool python_appeared(void)
{
    gs_stack_find_python();
    return atomic_load_explicit(&gs_python_now, memory_order_acquire) != NULL;
}

/* --- capture ---------------------------------------------------------------------------------- */

uint32_t gs_stack_capture(struct gs_stacks *s, unsigned what, const void *caller)
{
    what &= enabled;
    if (!s || !what) return 0;
    uint32_t epoch = atomic_load_explicit(&gs_stack_epoch, memory_order_acquire);
    if (epoch != s->epoch) gs_cache_new_epoch(s, epoch);

    uint64_t hash = s->seed;
    const struct gs_python *p = atomic_load_explicit(&gs_python_now, memory_order_acquire);
    uint32_t python = 0;
    bool cut = false;
    if (p && what & GS_STACK_PYTHON) python = gs_python_walk(p, s->python, GS_STACK_MAX_FRAMES, &cut, &hash);

    struct native w = {0};
    struct gs_walk *walk = NULL;
    uintptr_t inside, place = 0;
    struct gs_unwinder *u = &s->unwinder;
    uint64_t above = hash ^ (uintptr_t)caller ^ (uint64_t)cut << 63;
    if (GS_UNWINDS && what & GS_STACK_NATIVE) {
        gs_memory_begin(&u->memory, (uintptr_t)__builtin_frame_address(0));
        const struct gs_frame from = calling_frame(&u->memory, caller, &inside);
        place = from.place;
        above ^= inside * 0x9e3779b97f4a7c15u;
        if (from.place - u->memory.lo < u->memory.hi - u->memory.lo) {
            walk = &s->walks[(above ^ from.place / 16) % GS_WALKS];
            const bool holds = gs_walk_holds(walk, above, from.place, u->memory.hi);
            uint32_t known = holds ? gs_cache_stack(s, walk->hash) : 0;
            if (known) return known;
        }
        w = unwind_native(s, from, python ? &p->module : NULL, caller);
        hash = hash_native(u->address, w, hash);
        cut |= w.cut && !python;
    }
    if (!python && w.first == w.end) return 0;
    hash ^= cut; /* of two stacks with the same frames, one may be longer */
    hash += !hash;
    uint32_t known = gs_cache_stack(s, hash);
    if (known) {
        if (walk && w.seen > w.first + 1 && u->place[w.first] == place)
            gs_walk_learn(walk, above, hash, u->place + w.first, u->held + w.first, w.seen - w.first);
        return known;
    }
    if (!p && what & GS_STACK_PYTHON && python_appeared()) return gs_stack_capture(s, what, caller);
    return define_stack_id(s, p, w, python, cut, hash);
}
