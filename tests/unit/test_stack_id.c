/* The per-thread caches and their output: each frame and stack once, a slot's next stack under its old number, a reset
 * when the frames are full, nothing partly known when the spool has no room. A replacement for the unwinder makes up
 * the stacks; the writer is a buffer that is read back. */
#include "tests/cases.h"
#include <stdlib.h>
#include <string.h>
#include "interpose/resolve.h"
#include "interpose/stack_cache.h"
#include "interpose/stack_python.h"

/* --- a writer that checks what it is given ---------------------------------------------------- */

static uint64_t buffer[GS_CHUNK_BYTES / 16];
static long room = -1; /* reservations that succeed from now on; -1: all */
static struct {
    int frames, stacks, resets, redefined;
} seen;
static uint64_t frame_offset[65536]; /* by number; 0 undefined */
static uint32_t stack_frames[GS_CACHE_STACKS + 1][GS_STACK_MAX_FRAMES + 1];
static char last_text[8000];
static uint32_t last_path_len, last_build_id_len;

/* The real function needs the hooks, and they need this writer. */
void gs_pin_later(const void *address)
{
}

void *gs_writer_reserve(struct gs_writer *w, uint32_t bytes)
{
    assert_int_equal(bytes % 8, 0);
    assert_true(bytes <= sizeof buffer);
    if (room == 0) return NULL;
    room -= room > 0;
    memset(buffer, 0xa5, sizeof buffer);
    return buffer;
}

static void define_frame(uint32_t frame, uint64_t offset)
{
    assert_int_equal(frame_offset[frame], 0);
    assert_true(frame == 1 || frame_offset[frame - 1]); /* dense */
    frame_offset[frame] = offset;
    seen.frames++;
}

void gs_writer_commit(struct gs_writer *w, uint32_t bytes)
{
    const struct gs_rec *r = (const struct gs_rec *)buffer;
    assert_int_equal(r->size, bytes);
    assert_int_equal(r->flags, 0);
    if (r->type == GS_REC_FRAME_NATIVE) {
        const struct gs_rec_frame_native *f = (const void *)r;
        define_frame(f->frame, f->offset);
        last_path_len = f->path_len;
        last_build_id_len = f->build_id_len;
        memcpy(last_text, f + 1, f->path_len);
        last_text[f->path_len] = '\0';
        for (const char *c = (const char *)(f + 1) + f->path_len + f->build_id_len; c < (const char *)buffer + bytes;
             c++)
            assert_int_equal(*c, 0);
    } else if (r->type == GS_REC_FRAME_PYTHON) {
        const struct gs_rec_frame_python *f = (const void *)r;
        define_frame(f->frame, 1);
        memcpy(last_text, f + 1, f->function_len);
        last_text[f->function_len] = '\0';
    } else if (r->type == GS_REC_STACK) {
        const struct gs_rec_stack *k = (const void *)r;
        assert_in_range(r->stack, 1, GS_CACHE_STACKS);
        assert_in_range(k->depth, 1, GS_STACK_MAX_FRAMES);
        for (uint32_t i = 0; i < k->depth; i++) assert_int_not_equal(frame_offset[k->frames[i]], 0);
        seen.redefined += stack_frames[r->stack][0] != 0;
        stack_frames[r->stack][0] = k->depth;
        memcpy(stack_frames[r->stack] + 1, k->frames, k->depth * sizeof *k->frames);
        seen.stacks++;
    } else {
        assert_int_equal(r->type, GS_REC_RESET);
        memset(frame_offset, 0, sizeof frame_offset);
        memset(stack_frames, 0, sizeof stack_frames);
        seen.resets++;
    }
}

/* --- a stand-in for the unwinder -------------------------------------------------------------- */

static uintptr_t made_up[600];
static int made_up_n, unwound;

uint32_t gs_unwind(struct gs_unwinder *u, struct gs_frame from, struct gs_elf_range stop, uint32_t max)
{
    uint32_t n = 0;
    while (n < max && (int)n < made_up_n) {
        u->address[n] = made_up[n];
        if (u->address[n++] - stop.lo < stop.hi - stop.lo) break;
    }
    unwound += (int)n;
    return n;
}

#define CALLER 0x7000

/* Two frames of this test, the caller, then these. */
static void stack_of(int n, const uintptr_t *frames)
{
    made_up[0] = 0x1001;
    made_up[1] = 0x1002;
    made_up[2] = CALLER;
    memcpy(made_up + 3, frames, (size_t)n * sizeof *frames);
    made_up_n = n + 3;
}

static struct gs_stacks *stacks;
static struct gs_writer writer;

static uint32_t capture(void)
{
    return gs_stack_capture(stacks, GS_STACK_NATIVE, (void *)CALLER);
}

static uint32_t capture_one(uintptr_t frame)
{
    stack_of(1, &frame);
    return capture();
}

/* The number is defined as the stack that was captured. */
static void assert_stack(uint32_t number, int n, const uintptr_t *frames)
{
    assert_int_equal(stack_frames[number][0], n + 1);
    assert_int_equal(frame_offset[stack_frames[number][1]], CALLER - 1);
    for (int i = 0; i < n; i++) assert_int_equal(frame_offset[stack_frames[number][i + 2]], frames[i] - 1);
}

static int setup(void **state)
{
    gs_stack_init(GS_STACK_NATIVE, 0);
    room = -1;
    memset(&seen, 0, sizeof seen);
    memset(frame_offset, 0, sizeof frame_offset);
    memset(stack_frames, 0, sizeof stack_frames);
    stacks = gs_stacks_open(&writer);
    return stacks ? 0 : -1;
}

static int teardown(void **state)
{
    gs_stacks_close(stacks);
    return 0;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void definitions_once(void **state)
{
    const uintptr_t a[] = {0x10, 0x20, 0x30}, b[] = {0x10, 0x21, 0x30};
    stack_of(3, a);
    uint32_t first = capture();
    assert_int_not_equal(first, 0);
    assert_int_equal(seen.frames, 4);
    assert_int_equal(seen.stacks, 1);
    assert_stack(first, 3, a);
    for (int i = 0; i < 100; i++) assert_int_equal(capture(), first);
    assert_int_equal(seen.stacks, 1);
    stack_of(3, b);
    uint32_t second = capture();
    assert_int_not_equal(second, first);
    assert_int_equal(seen.frames, 5);
    assert_int_equal(seen.stacks, 2);
    assert_stack(second, 3, b);
    stack_of(2, a);
    assert_int_not_equal(capture(), first);
    assert_int_equal(seen.frames, 5);
    assert_int_equal(last_path_len, 0);
    /* the kinds that the session does not record, and no caches at all */
    assert_int_equal(gs_stack_capture(stacks, GS_STACK_PYTHON, (void *)CALLER), 0);
    assert_int_equal(gs_stack_capture(stacks, 0, (void *)CALLER), 0);
    assert_int_equal(gs_stack_capture(NULL, GS_STACK_NATIVE, (void *)CALLER), 0);
}

static void a_new_epoch_forgets_stacks(void **state)
{
    uint32_t first = capture_one(0x10);
    atomic_fetch_add(&gs_stack_epoch, 1);
    uint32_t second = capture_one(0x10);
    assert_int_not_equal(second, 0);
    assert_int_equal(seen.stacks, 2);
    assert_int_equal(seen.frames, 2); /* each frame has its own identity */
    assert_int_equal(seen.resets, 0);
    assert_stack(second, 1, (uintptr_t[]){0x10});
    assert_int_equal(capture_one(0x10), second);
    (void)first;
}

static void an_unloaded_module_voids_addresses(void **state)
{
    capture_one(0x10);
    assert_int_equal(seen.frames, 2);
    atomic_fetch_add(&gs_module_generation, 1);
    atomic_fetch_add(&gs_stack_epoch, 1);
    capture_one(0x10);
    assert_int_equal(seen.frames, 4);
}

/* More distinct stacks than slots: numbers are redefined, and always mean the captured stack. */
static void slots_are_defined_again(void **state)
{
    enum { A = 200, B = 200 };
    for (int round = 0; round < 2; round++)
        for (uintptr_t a = 1; a <= A; a++)
            for (uintptr_t b = 1; b <= B; b++) {
                const uintptr_t frames[] = {a << 8 | 1, b << 20};
                stack_of(2, frames);
                uint32_t n = capture();
                assert_int_not_equal(n, 0);
                assert_stack(n, 2, frames);
            }
    assert_int_equal(seen.frames, A + B + 1);
    assert_int_equal(seen.resets, 0);
    assert_true(seen.redefined > A * B - (int)GS_CACHE_STACKS);
    assert_int_equal(seen.stacks - seen.redefined <= (int)GS_CACHE_STACKS, 1);
}

static void full_frames_reset(void **state)
{
    for (uintptr_t i = 1; i <= 3 * GS_CACHE_FRAMES_USED; i++) {
        uint32_t n = capture_one(i << 8);
        assert_int_not_equal(n, 0);
        assert_stack(n, 1, (uintptr_t[]){i << 8});
        if (i % 100 == 0) {
            assert_int_equal(capture_one(i << 8), capture_one(i << 8));
            uint32_t before = capture_one((i - 50) << 8);
            assert_stack(before, 1, (uintptr_t[]){(i - 50) << 8});
        }
    }
    assert_in_range(seen.resets, 2, 4);
    assert_true(stacks->frames_used <= GS_CACHE_FRAMES_USED);
}

static void no_room(void **state)
{
    const uintptr_t a[] = {0x10, 0x20, 0x30, 0x40};
    stack_of(4, a);
    static const long rooms[] = {0, 1, 0, 2, 2}; /* five frames are written in parts */
    static const int frames[] = {0, 1, 1, 3, 5};
    for (int i = 0; i < 5; i++) {
        room = rooms[i];
        assert_int_equal(capture(), 0);
        assert_int_equal(seen.frames, frames[i]);
        assert_int_equal(seen.stacks, 0);
    }
    room = -1;
    uint32_t n = capture();
    assert_stack(n, 4, a);
    assert_int_equal(seen.frames, 5);
    assert_int_equal(seen.stacks, 1);
    assert_int_equal(capture(), n);
    assert_int_equal(seen.stacks, 1);
    room = 0; /* known frames need no room */
    assert_int_equal(capture(), n);
}

static void no_room_for_the_stack(void **state)
{
    room = 2; /* caller and frame */
    assert_int_equal(capture_one(0x10), 0);
    room = -1;
    assert_stack(capture_one(0x10), 1, (uintptr_t[]){0x10});
    assert_int_equal(seen.frames, 2);
}

static void no_room_for_the_reset(void **state)
{
    uintptr_t i = 0;
    while (stacks->frames_used + 3 <= GS_CACHE_FRAMES_USED) /* two frames and perhaps the marker */
        capture_one(++i << 8);
    room = 0;
    assert_int_equal(capture_one(++i << 8), 0);
    assert_int_equal(seen.resets, 0);
    room = 1; /* only the reset */
    assert_int_equal(capture_one(i << 8), 0);
    assert_int_equal(seen.resets, 1);
    room = -1;
    assert_stack(capture_one(i << 8), 1, (uintptr_t[]){i << 8});
    assert_stack(capture_one(1 << 8), 1, (uintptr_t[]){1 << 8});
}

static void depth_of_native(void **state)
{
    uintptr_t frames[500];
    for (int i = 0; i < 500; i++) frames[i] = 0x100u * (unsigned)(i + 1);
    stack_of(GS_NATIVE_DEPTH - 1, frames);
    uint32_t n = capture();
    assert_stack(n, GS_NATIVE_DEPTH - 1, frames);

    stack_of(500, frames); /* cut, with a mark */
    n = capture();
    assert_int_equal(stack_frames[n][0], GS_NATIVE_DEPTH + 1);
    assert_string_equal(last_text, "(deeper frames cut)");
    assert_int_equal(frame_offset[stack_frames[n][GS_NATIVE_DEPTH]], frames[GS_NATIVE_DEPTH - 2] - 1);

    gs_stack_init(GS_STACK_NATIVE, 5);
    stack_of(4, frames);
    assert_stack(capture(), 4, frames);
    stack_of(5, frames);
    assert_int_equal(stack_frames[capture()][0], 6);
    gs_stack_init(GS_STACK_NATIVE, 100000);
    stack_of(500, frames);
    assert_int_equal(stack_frames[capture()][0], GS_NATIVE_DEPTH_MAX + 1);
}

static void the_callers_place(void **state)
{
    /* the caller's return address is not among the frames: gpuspy's own are left out by their addresses */
    struct gs_elf_range self = gs_stack_self;
    gs_stack_self = (struct gs_elf_range){0x1000, 0x2000};
    const uintptr_t frames[] = {0x1003, 0x5000, 0x1004, 0x6000};
    stack_of(4, frames);
    made_up[2] = 0x1005;
    uint32_t n = capture();
    assert_int_equal(stack_frames[n][0], 3);
    assert_int_equal(frame_offset[stack_frames[n][1]], 0x5000 - 1);
    gs_stack_self = self;
    /* no frames are available */
    made_up_n = 0;
    assert_int_equal(capture(), 0);
}

/* In a thread with Python frames, unwinding stops at the interpreter. */
static char fake_code[512], fake_str[256], fake_bytes[128], fake_frame[8][128], fake_thread[128];
static char code_type[8], str_type[8], bytes_type[8];
static struct gs_python python;

static int yes(void)
{
    return 1;
}

static const char *this_thread(void)
{
    return fake_thread;
}

static void put(char *base, int offset, const void *value)
{
    memcpy(base + offset, &value, sizeof value);
}

static void make_python(int frames)
{
    assert_true(gs_python_layout_of("3.8.18", &python.at));
    python.code_type = code_type;
    python.str_type = str_type;
    python.bytes_type = bytes_type;
    python.is_initialized = yes;
    python.this_thread = this_thread;
    python.module = (struct gs_elf_range){0x100000, 0x200000};
    put(fake_code, python.at.type, code_type);
    put(fake_str, python.at.type, str_type);
    put(fake_code, python.at.name, fake_str);
    put(fake_code, python.at.filename, fake_str);
    put(fake_bytes, python.at.type, bytes_type);
    put(fake_code, python.at.line_table, fake_bytes);
    for (int i = 0; i < frames; i++) {
        put(fake_frame[i], python.at.previous, i + 1 < frames ? fake_frame[i + 1] : NULL);
        put(fake_frame[i], python.at.code, fake_code);
        memcpy(fake_frame[i] + python.at.ip, &(int){2 * i}, sizeof(int));
    }
    put(fake_thread, python.at.thread_frame, frames ? fake_frame[0] : NULL);
    atomic_store(&gs_python_now, &python);
    gs_stack_init(GS_STACK_NATIVE | GS_STACK_PYTHON, 0);
}

static uint32_t capture_both(void)
{
    return gs_stack_capture(stacks, GS_STACK_NATIVE | GS_STACK_PYTHON, (void *)CALLER);
}

static void only_above_the_interpreter(void **state)
{
    make_python(3);
    uintptr_t frames[100];
    for (int i = 0; i < 100; i++) frames[i] = 0x3000u + 0x10u * (unsigned)i;
    frames[6] = frames[8] = 0x123456;
    frames[20] = 0x1fffff;
    stack_of(100, frames);
    uint32_t n = capture_both();
    assert_int_equal(stack_frames[n][0], 1 + 6 + 3);
    assert_int_equal(frame_offset[stack_frames[n][7]], frames[5] - 1);
    assert_int_equal(frame_offset[stack_frames[n][8]], 1);
    /* own frames, caller, six and the interpreter's */
    unwound = 0;
    capture_both();
    assert_int_equal(unwound, 2 + 1 + 6 + 1);
    /* suddenly farther away: still complete */
    frames[6] = frames[8] = 0x4000;
    stack_of(100, frames);
    n = capture_both();
    assert_int_equal(stack_frames[n][0], 1 + 20 + 3);
    unwound = 0;
    assert_int_equal(capture_both(), n);
    assert_int_equal(unwound, 2 + 1 + 20 + 1);
    /* never reached: the native depth, then Python */
    frames[20] = 0x4010;
    stack_of(100, frames);
    n = capture_both();
    assert_int_equal(stack_frames[n][0], GS_NATIVE_DEPTH + 3);
    /* only Python frames */
    n = gs_stack_capture(stacks, GS_STACK_PYTHON, (void *)CALLER);
    assert_int_equal(stack_frames[n][0], 3);
    /* a thread without Python frames: all native ones */
    put(fake_thread, python.at.thread_frame, NULL);
    frames[6] = 0x123456;
    stack_of(30, frames);
    n = capture_both();
    assert_int_equal(stack_frames[n][0], 31);
    atomic_store(&gs_python_now, NULL);
}

static void endless_recursion(void **state)
{
    make_python(2);
    put(fake_frame[1], python.at.previous, fake_frame[0]); /* deeper than any limit */
    const uintptr_t frames[] = {0x10, 0x20, 0x123456};
    stack_of(3, frames);
    uint32_t n = capture_both();
    assert_int_equal(stack_frames[n][0], GS_STACK_MAX_FRAMES);
    assert_string_equal(last_text, "(deeper frames cut)");
    assert_int_equal(frame_offset[stack_frames[n][1]], CALLER - 1);
    assert_int_equal(seen.frames, 3 + 2 + 1);
    assert_int_equal(capture_both(), n);
    atomic_store(&gs_python_now, NULL);
}

static void what_is_missing(void **state)
{
    assert_null(gs_stack_missing());
    gs_stack_lacks("no %s", "horns");
    assert_string_equal(gs_stack_missing(), "no horns");
    gs_stack_lacks("no horns");
    gs_stack_lacks("no tail");
    assert_string_equal(gs_stack_missing(), "no horns; no tail");
    for (int i = 0; i < 100; i++) gs_stack_lacks("%d more things that nobody has", i);
    assert_true(strlen(gs_stack_missing()) < 512);
}

CASES_EACH(setup, teardown, definitions_once, a_new_epoch_forgets_stacks, an_unloaded_module_voids_addresses,
           slots_are_defined_again, full_frames_reset, no_room, no_room_for_the_stack, no_room_for_the_reset,
           depth_of_native, the_callers_place, only_above_the_interpreter, endless_recursion, what_is_missing)
