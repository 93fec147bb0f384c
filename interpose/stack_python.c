/* The frames of the calling thread, read from CPython's own structures without the GIL: while the thread is inside a C
 * call its frames do not change, and each keeps its code object alive. */
#include "interpose/stack_python.h"

#include <stdlib.h>
#include <string.h>

struct gs_python *_Atomic gs_python_now;

#define NO (-1)
#define LNOTAB GS_LINES_LNOTAB
#define LINETABLE GS_LINES_LINETABLE
#define LOCATIONS GS_LINES_LOCATIONS
#define GS_PYTHON(minor_, ft, lines_, ts, cf, prev, code_, ip_, own, tlbc, file_, name_, qual, first, table, base, \
                  trace, ctlbc, shift, ascii, compact, words_)                                                     \
    {.minor = minor_,                                                                                              \
     .free_threaded = ft,                                                                                          \
     .lines = lines_,                                                                                              \
     .thread_frame = ts,                                                                                           \
     .cframe_frame = cf,                                                                                           \
     .previous = prev,                                                                                             \
     .code = code_,                                                                                                \
     .ip = ip_,                                                                                                    \
     .owner = own,                                                                                                 \
     .tlbc_index = tlbc,                                                                                           \
     .filename = file_,                                                                                            \
     .name = name_,                                                                                                \
     .qualname = qual,                                                                                             \
     .first_line = first,                                                                                          \
     .line_table = table,                                                                                          \
     .bytecode = base,                                                                                             \
     .first_traceable = trace,                                                                                     \
     .code_tlbc = ctlbc,                                                                                           \
     .text_state_shift = shift,                                                                                    \
     .text_ascii = ascii,                                                                                          \
     .text_compact = compact,                                                                                      \
     .words = words_,                                                                                              \
     .type = (ft) ? 24 : 8,                                                                                        \
     .size = (ft) ? 32 : 16,                                                                                       \
     .type_name = (ft) ? 40 : 24,                                                                                  \
     .type_dealloc = (ft) ? 64 : 48},
static const struct gs_python_layout layouts[] = {
#include "schema/stack_python_layout.def"
};
#undef NO
#undef LNOTAB
#undef LINETABLE
#undef LOCATIONS

bool gs_python_layout_of(const char *version, struct gs_python_layout *at)
{
    char *end;
    if (strtol(version, &end, 10) != 3 || *end != '.') return false;
    long minor = strtol(end + 1, NULL, 10);
    bool free_threaded = strstr(version, "free-threading") != NULL;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (layouts[i].minor == minor && layouts[i].free_threaded == free_threaded) {
            *at = layouts[i];
            return true;
        }
    }
    return false;
}

/* --- walking ---------------------------------------------------------------------------------- */

static inline const char *load_pointer(const char *base, int offset)
{
    return *(const char *const *)(base + offset);
}

static inline const char *code_of(const struct gs_python *p, const char *frame)
{
    /* 3.14 has a tag in the two low bits, which are 0 in an address. */
    return (const char *)((uintptr_t)load_pointer(frame, p->at.code) & ~(uintptr_t)3);
}

/* ≤ 3.10: frame objects. */
static uint32_t walk_objects(const struct gs_python *p, const char *f, const char **frames, uint32_t max, bool *cut,
                             uint64_t *hash)
{
    const int previous = p->at.previous, code = p->at.code, ip = p->at.ip;
    uint64_t h = *hash;
    uint32_t n = 0;
    for (; f && n < max; f = load_pointer(f, previous)) {
        frames[n++] = f;
        h = gs_stack_mix(h, (uintptr_t)load_pointer(f, code), (uint64_t) * (const int *)(f + ip));
    }
    *cut = f != NULL;
    *hash = h;
    return n;
}

/* Shims between C and Python frames contain nothing to show. */
enum { OWNER_GENERATOR = 1, OWNER_SHIM = 3 };

/* 3.11 and later: interpreter frames. Whether one has begun follows from what is hashed, and is checked when the stack
 * is written. */
static uint32_t walk_frames(const struct gs_python *p, const char *f, const char **frames, uint32_t max, bool *cut,
                            uint64_t *hash)
{
    const int previous = p->at.previous, code = p->at.code, ip = p->at.ip, owner = p->at.owner;
    uint64_t h = *hash;
    uint32_t n = 0;
    for (; f && n < max; f = load_pointer(f, previous)) {
        uint64_t owned = *(const uint8_t *)(f + owner);
        if (owned >= OWNER_SHIM) continue;
        frames[n++] = f;
        h = gs_stack_mix(h, (uintptr_t)load_pointer(f, code), (uintptr_t)load_pointer(f, ip) ^ owned << 56);
    }
    *cut = f != NULL;
    *hash = h;
    return n;
}

/* How many words of the runtime's state to search; from 3.13 on a table for debuggers comes first. */
enum { RUNTIME_WORDS = 128, RUNTIME_WORDS_3_13 = 256 };

/* Is this thread finalising the interpreter? The runtime stores that thread among its first words. Frames of
 * destructors that it runs do not change either. */
static __attribute__((noinline, cold)) bool is_finalising(const struct gs_python *p, const char *thread)
{
    const int words = p->at.minor < 13 ? RUNTIME_WORDS : RUNTIME_WORDS_3_13;
    const char *const *word = (const char *const *)p->runtime;
    for (int i = 0; word && i < words; i++)
        if (word[i] == thread) return true;
    return false;
}

/* A finalisation by another thread frees this thread's state. */
static const char *innermost_frame(const struct gs_python *p)
{
    const bool initialized = p->is_initialized();
    const char *thread = p->this_thread();
    if (!thread || (!initialized && !is_finalising(p, thread))) return NULL;
    const char *f = load_pointer(thread, p->at.thread_frame);
    return f && p->at.cframe_frame >= 0 ? load_pointer(f, p->at.cframe_frame) : f;
}

uint32_t gs_python_walk(const struct gs_python *p, const char **frames, uint32_t max, bool *cut, uint64_t *hash)
{
    const char *f = innermost_frame(p);
    *cut = false;
    if (!f) return 0;
    if (p->at.owner >= 0) return walk_frames(p, f, frames, max, cut, hash);
    return walk_objects(p, f, frames, max, cut, hash);
}

/* --- a frame's code and line ------------------------------------------------------------------ */

/* The first unit of the copy of the bytecode that the frame executes. */
static const char *bytecode_of(const struct gs_python *p, const char *frame, const char *code)
{
    if (p->at.tlbc_index < 0) return code + p->at.bytecode;
    const char *copies = load_pointer(code, p->at.code_tlbc);
    return load_pointer(copies, 8 + 8 * *(const int *)(frame + p->at.tlbc_index));
}

const char *gs_python_frame(const struct gs_python *p, const char *frame, int64_t *offset)
{
    const char *code = code_of(p, frame);
    if (!code || load_pointer(code, p->at.type) != p->code_type) return NULL;
    if (p->at.owner < 0) {
        int units = p->at.lines == GS_LINES_LINETABLE ? 2 : 1;
        *offset = (int64_t) * (const int *)(frame + p->at.ip) * units;
        return code;
    }
    *offset = load_pointer(frame, p->at.ip) - bytecode_of(p, frame, code);
    int64_t begins = 2 * (int64_t) * (const int *)(code + p->at.first_traceable);
    /* A frame that still sets up its cells does not exist for Python either; a destructor that runs
     * meanwhile sees its caller as the one above. */
    if (*(const uint8_t *)(frame + p->at.owner) != OWNER_GENERATOR && *offset < begins) return NULL;
    return code;
}

int gs_python_line(const struct gs_python *p, const char *code, int64_t offset)
{
    const char *table = load_pointer(code, p->at.line_table);
    if (!table || load_pointer(table, p->at.type) != p->bytes_type) return 0;
    int64_t bytes = *(const int64_t *)(table + p->at.size);
    return gs_python_line_at(p->at.lines, (const uint8_t *)table + p->at.size + 16, bytes,
                             *(const int *)(code + p->at.first_line), offset);
}
