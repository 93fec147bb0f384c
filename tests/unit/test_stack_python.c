/* Line tables, texts and the walk over frames, for every row of the layout table: a small interpreter is laid out in
 * memory according to the row and read back. Real interpreters are tested in tests/python. */
#include "tests/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include "interpose/stack_python.h"

/* --- line tables ------------------------------------------------------------------------------ */

static void lines_lnotab(void **state)
{
    /* first line 10; +2 bytes → 11; +6 → back to 8; +300 bytes in two steps → 9 */
    static const uint8_t t[] = {2, 1, 6, (uint8_t)-3, 255, 0, 45, 1};
    const struct {
        int64_t offset;
        int line;
    } want[] = {{-1, 10}, {0, 10}, {1, 10}, {2, 11}, {7, 11}, {8, 8}, {307, 8}, {308, 9}, {9999, 9}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(gs_python_line_at(GS_LINES_LNOTAB, t, sizeof t, 10, want[i].offset), want[i].line);
    assert_int_equal(gs_python_line_at(GS_LINES_LNOTAB, t, 0, 10, 4), 10);
}

static void lines_linetable(void **state)
{
    /* 0–3: 11, 4–9: none, 10–11: 9, an empty range that moves to 209, 12–13: 210 */
    static const uint8_t t[] = {4, 1, 6, 128, 2, (uint8_t)-2, 0, 100, 0, 100, 2, 1};
    const struct {
        int64_t offset;
        int line;
    } want[] = {{-2, 10}, {0, 11}, {3, 11}, {4, 0}, {9, 0}, {10, 9}, {12, 210}, {13, 210}, {14, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(gs_python_line_at(GS_LINES_LINETABLE, t, sizeof t, 10, want[i].offset), want[i].line);
}

static uint8_t head(unsigned code, unsigned units)
{
    return (uint8_t)(0x80 | code << 3 | (units - 1));
}

static void lines_locations(void **state)
{
    const uint8_t t[] = {
        head(0, 1),  0x11,                                 /* 0–1: 10 */
        head(11, 2), 1,           2,                       /* 2–5: 11 */
        head(12, 1), 1,           2,                       /* 6–7: 13 */
        head(13, 1), 0x43,        0x01,                    /* 8–9: svarint 67 → -33 → -20 */
        head(13, 1), 0x40 | 0x38, 0x40 | 0x0f, 0x03,       /* 0x3 0x0f 0x38 → 13304/2 = +6652 */
        head(15, 8),                                       /* 12–27: none */
        head(14, 1), 2,           0x41,        1,    3, 4, /* 28–29: +1, three varints, the first of two bytes */
        head(10, 1), 0,           0,                       /* 30–31: the same */
    };
    const struct {
        int64_t offset;
        int line;
    } want[] = {{-1, 10},   {0, 10}, {2, 11}, {5, 11},    {6, 13},    {8, -20},
                {10, 6632}, {12, 0}, {27, 0}, {28, 6633}, {30, 6633}, {32, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(gs_python_line_at(GS_LINES_LOCATIONS, t, sizeof t, 10, want[i].offset), want[i].line);
    /* cut inside of an entry: some answer, and nothing is read beyond */
    for (int64_t n = 0; n < (int64_t)sizeof t; n++) gs_python_line_at(GS_LINES_LOCATIONS, t, n, 10, 31);
}

/* --- texts ------------------------------------------------------------------------------------ */

static void assert_utf8(const void *data, int64_t length, int kind, uint32_t max, const char *want)
{
    char to[64];
    uint32_t n = gs_python_utf8(data, length, kind, to, max);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(to, want, n);
}

static void texts(void **state)
{
    assert_utf8("train.py", 8, 1, 64, "train.py");
    assert_utf8("\xe9t\xe9", 3, 1, 64, "été");
    static const uint16_t wide[] = {0x8def, 'a', 0xdcff, 0x7ff, 0x800};
    assert_utf8(wide, 5, 2, 64, "路a\xef\xbf\xbd\xdf\xbf\xe0\xa0\x80");
    static const uint32_t astral[] = {0x1f600, 0x10ffff, 0x110000};
    assert_utf8(astral, 3, 4, 64, "\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\xef\xbf\xbd");
    /* cut between characters */
    assert_utf8("\xe9t\xe9", 3, 1, 4, "ét");
    assert_utf8(astral, 2, 4, 7, "\xf0\x9f\x98\x80");
    assert_utf8("", 0, 1, 64, "");
}

/* --- an interpreter as a row says ------------------------------------------------------------- */

static char arena[1 << 16];
static size_t used;
static char code_type[64], str_type[64], bytes_type[64];
static const char *thread_state;
static int initialized = 1;

static char *make(size_t bytes)
{
    char *at = arena + used;
    used += (bytes + 15) & ~(size_t)15;
    assert_true(used <= sizeof arena);
    return at;
}

static void set(char *base, int offset, const void *value)
{
    if (offset >= 0) memcpy(base + offset, &value, sizeof value);
}

static void set_int(char *base, int offset, int value)
{
    if (offset >= 0) memcpy(base + offset, &value, sizeof value);
}

static const char *make_str(const struct gs_python_layout *at, const char *text)
{
    char *s = make(256);
    set(s, at->type, str_type);
    int64_t length = (int64_t)strlen(text);
    memcpy(s + at->size, &length, sizeof length);
    set_int(s, at->size + 16, (1 | 8 | 16) << at->text_state_shift); /* one byte, compact, ascii */
    strcpy(s + at->text_ascii, text);
    return s;
}

static const char *make_line_table(const struct gs_python_layout *at)
{
    /* one line more from the second instruction on, in each format */
    static const uint8_t tables[][6] = {{2, 1, 100, 0}, {2, 0, 100, 1}, {0x80 | 10 << 3, 0, 0, 0x87 | 11 << 3, 0, 0}};
    char *b = make(256);
    set(b, at->type, bytes_type);
    int64_t length = at->lines == GS_LINES_LOCATIONS ? 6 : 4;
    memcpy(b + at->size, &length, sizeof length);
    memcpy(b + at->size + 16, tables[at->lines], (size_t)length);
    return b;
}

struct function {
    char *code, *bytecode;
};

static struct function make_code(const struct gs_python_layout *at, const char *name, int line)
{
    struct function f;
    char *c = f.code = make(512);
    set(c, at->type, code_type);
    set(c, at->filename, make_str(at, "file.py"));
    set(c, at->name, make_str(at, "plain"));
    if (at->qualname >= 0)
        set(c, at->qualname, make_str(at, name));
    else
        set(c, at->name, make_str(at, name));
    set_int(c, at->first_line, line);
    set(c, at->line_table, make_line_table(at));
    set_int(c, at->first_traceable, 1);
    f.bytecode = at->bytecode >= 0 ? c + at->bytecode : NULL;
    if (at->code_tlbc >= 0) { /* this thread's copy is the third */
        char *copies = make(64);
        f.bytecode = make(64);
        set(copies, 8 + 8 * 2, f.bytecode);
        set(c, at->code_tlbc, copies);
    }
    return f;
}

static char *make_frame(const struct gs_python_layout *at, const char *previous, struct function f, int offset,
                        int owner)
{
    char *frame = make(256);
    set(frame, at->previous, previous);
    set(frame, at->code, f.code + (at->minor >= 14)); /* tagged */
    if (at->owner < 0)
        set_int(frame, at->ip, at->lines == GS_LINES_LINETABLE ? offset / 2 : offset);
    else
        set(frame, at->ip, f.bytecode + offset);
    if (at->owner >= 0) frame[at->owner] = (char)owner;
    set_int(frame, at->tlbc_index, 2);
    return frame;
}

static int is_initialized(void)
{
    return initialized;
}

static const char *this_thread(void)
{
    return thread_state;
}

static void enter_frame(const struct gs_python_layout *at, const char *frame)
{
    char *thread = make(128);
    const char *points_to = frame;
    if (at->cframe_frame >= 0) {
        char *cframe = make(64);
        set(cframe, at->cframe_frame, frame);
        points_to = cframe;
    }
    set(thread, at->thread_frame, points_to);
    thread_state = thread;
}

static struct gs_python interpreter_of(const char *version)
{
    struct gs_python p = {.code_type = code_type,
                          .str_type = str_type,
                          .bytes_type = bytes_type,
                          .is_initialized = is_initialized,
                          .this_thread = this_thread};
    assert_true(gs_python_layout_of(version, &p.at));
    memset(arena, 0, sizeof arena);
    used = 0;
    initialized = 1;
    return p;
}

static void assert_frame(const struct gs_python *p, const char *frame, const char *function, int line)
{
    int64_t offset;
    char text[64];
    const char *code = gs_python_frame(p, frame, &offset);
    assert_non_null(code);
    uint32_t n = gs_python_function(p, code, text, sizeof text);
    assert_int_equal(n, strlen(function));
    assert_memory_equal(text, function, n);
    n = gs_python_file(p, code, text, sizeof text);
    assert_int_equal(n, 7);
    assert_memory_equal(text, "file.py", 7);
    assert_int_equal(gs_python_line(p, code, offset), line);
}

static void one_version(const char *version)
{
    struct gs_python p = interpreter_of(version);
    bool shims = p.at.owner >= 0;
    struct function outer = make_code(&p.at, "outer", 5), inner = make_code(&p.at, "A.inner", 20);
    char *frame = make_frame(&p.at, NULL, outer, 4, 0);
    if (shims) frame = make_frame(&p.at, frame, (struct function){make(64), arena}, 0, 3);
    frame = make_frame(&p.at, frame, inner, 2, 1);
    char *unbegun = shims ? make_frame(&p.at, frame, inner, 0, 0) : frame;
    enter_frame(&p.at, unbegun);

    const char *frames[8];
    uint64_t hash = 1, other = 1;
    bool cut;
    uint32_t n = gs_python_walk(&p, frames, 8, &cut, &hash);
    assert_int_equal(n, shims ? 3 : 2);
    assert_false(cut);
    int64_t offset;
    if (shims) assert_null(gs_python_frame(&p, frames[0], &offset));
    assert_frame(&p, frames[n - 2], "A.inner", 21);
    assert_frame(&p, frames[n - 1], "outer", 6);

    assert_int_equal(gs_python_walk(&p, frames, n - 1, &cut, &other), n - 1);
    assert_true(cut);
    assert_int_not_equal(hash, other);

    initialized = 0;
    assert_int_equal(gs_python_walk(&p, frames, 8, &cut, &hash), 0);
    initialized = 1;
    thread_state = NULL;
    assert_int_equal(gs_python_walk(&p, frames, 8, &cut, &hash), 0);
}

static void layouts(void **state)
{
    static const char *const versions[] = {"3.8.18 (default, …)",
                                           "3.9.1",
                                           "3.10.13",
                                           "3.11.7",
                                           "3.12.1",
                                           "3.13.0rc1",
                                           "3.14.0",
                                           "3.15.2",
                                           "3.13.0 experimental free-threading build (main, …)",
                                           "3.14.0 free-threading build (main, …)",
                                           "3.15.0 free-threading build (main, …)"};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) one_version(versions[i]);
}

static void unknown_versions(void **state)
{
    static const char *const versions[] = {"2.7.18", "3.7.16", "3.16.0", "3.12.0 free-threading build", "4.8.0", "",
                                           "3",      "3.",     "x.y"};
    struct gs_python_layout at;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) assert_false(gs_python_layout_of(versions[i], &at));
}

static void hash_distinguishes_frames(void **state)
{
    struct gs_python p = interpreter_of("3.12.1");
    struct function f = make_code(&p.at, "f", 5), g = make_code(&p.at, "g", 5);
    char *stacks[] = {make_frame(&p.at, NULL, f, 2, 0),
                      make_frame(&p.at, NULL, f, 4, 0),
                      make_frame(&p.at, NULL, g, 2, 0),
                      make_frame(&p.at, NULL, f, 2, 1),
                      make_frame(&p.at, make_frame(&p.at, NULL, f, 2, 0), g, 2, 0),
                      make_frame(&p.at, make_frame(&p.at, NULL, g, 2, 0), f, 2, 0)};
    uint64_t hashes[6];
    for (int i = 0; i < 6; i++) {
        const char *frames[4];
        bool cut;
        enter_frame(&p.at, stacks[i]);
        hashes[i] = 7;
        gs_python_walk(&p, frames, 4, &cut, &hashes[i]);
        for (int k = 0; k < i; k++) assert_int_not_equal(hashes[i], hashes[k]);
    }
}

static void strange_objects(void **state)
{
    struct gs_python p = interpreter_of("3.13.1");
    struct function f = make_code(&p.at, "f", 5);
    char *frame = make_frame(&p.at, NULL, f, 2, 0);
    int64_t offset;
    set(f.code, p.at.type, str_type); /* None is not a code object */
    assert_null(gs_python_frame(&p, frame, &offset));
    set(frame, p.at.code, NULL);
    assert_null(gs_python_frame(&p, frame, &offset));
    char text[16];
    set(f.code, p.at.qualname, bytes_type);
    assert_int_equal(gs_python_function(&p, f.code, text, sizeof text), 0);
    set(f.code, p.at.line_table, NULL);
    assert_int_equal(gs_python_line(&p, f.code, 2), 0);
}

/* --- identity --------------------------------------------------------------------------------- */

static _Atomic int deaths;

static void count_death(void *code)
{
    deaths++;
}

static void (*watched)(void *) = count_death; /* the type's slot */

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

#define CODES 80000 /* more than fit */

static void identity_of_code(void **state)
{
    static char code[CODES][16] __attribute__((aligned(16)));
    gs_code_watch(&watched); /* once is enough, twice does no harm */
    assert_ptr_not_equal(watched, count_death);
    void (*slot)(void *) = watched;
    deaths = 0;

    uint32_t epoch = gs_stack_epoch;
    uint64_t a = gs_code_identity(code[0]), b = gs_code_identity(code[1]);
    assert_int_not_equal(a, b);
    assert_int_equal(gs_code_identity(code[0]), a);
    slot(code[2]); /* never recorded */
    assert_int_equal(gs_stack_epoch, epoch);
    slot(code[0]);
    assert_int_equal(gs_stack_epoch, epoch + 1);
    assert_int_equal(deaths, 2);
    uint64_t c = gs_code_identity(code[0]);
    assert_true(c != a && c != b && c >> GS_CODE_BITS == 0);
    assert_int_equal(gs_code_identity(code[1]), b);

    /* many at once, freed in another order: none is lost or confused */
    static uint64_t numbers[20000 + CODES];
    for (int i = 0; i < 20000; i++) numbers[i] = gs_code_identity(code[i]);
    for (int i = 0; i < 20000; i += 3) slot(code[i * 7 % 20000 / 3 * 3]);
    for (int i = 0; i < 20000; i++)
        if (i % 3) assert_int_equal(gs_code_identity(code[i]), numbers[i]);
    for (int i = 0; i < 20000; i++) slot(code[i]);
    epoch = gs_stack_epoch;
    for (int i = 0; i < 20000; i++) slot(code[i]);
    assert_int_equal(gs_stack_epoch, epoch);

    /* more live ones than fit: some get new numbers that were never used before */
    for (int i = 0; i < CODES; i++) numbers[20000 + i] = gs_code_identity(code[i]);
    assert_true(gs_stack_epoch > epoch);
    qsort(numbers, 20000 + CODES, sizeof *numbers, by_number);
    for (int i = 1; i < 20000 + CODES; i++) assert_true(numbers[i] > numbers[i - 1]);
}

/* Threads record while code objects are freed; each thread owns its code objects, as with the reference that a frame
 * holds. */
static char owned[4][64][16] __attribute__((aligned(16)));

static void *live_and_die(void *arg)
{
    char(*code)[16] = arg;
    uint64_t last[64];
    memset(last, 0xff, sizeof last); /* 0 would be a valid identity */
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < 64; i++) {
            uint64_t n = gs_code_identity(code[i]);
            if (n == last[i] || gs_code_identity(code[i]) != n) return arg;
            last[i] = n;
        }
        uint32_t epoch = gs_stack_epoch;
        for (int i = 0; i < 64; i++) watched(code[i]);
        if (gs_stack_epoch - epoch < 64) return arg;
    }
    return NULL;
}

static void identity_in_threads(void **state)
{
    gs_code_watch(&watched);
    pthread_t t[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, live_and_die, owned[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(t[i], &failed);
        assert_null(failed);
    }
}

CASES(lines_lnotab, lines_linetable, lines_locations, texts, layouts, unknown_versions, hash_distinguishes_frames,
      strange_objects, identity_in_threads, identity_of_code)
