/* Native stacks of this program, through the real unwinder; objects that are loaded and unloaded. */
#include "tests/cases.h"
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <pthread.h>
#include <unistd.h>
#include "interpose/resolve.h"
#include "interpose/stack_cache.h"
#include "interpose/stack_python.h"

/* --- a writer that keeps the frames ----------------------------------------------------------- */

static uint64_t buffer[GS_CHUNK_BYTES / 16];
static struct {
    char path[512];
    uint64_t offset;
    uint32_t build_id_len;
} frames[4096];
static uint32_t depth, numbers[GS_STACK_MAX_FRAMES];

/* The real function needs the hooks, and they need this writer. */
void gs_pin_later(const void *address)
{
}

void *gs_writer_reserve(struct gs_writer *w, uint32_t bytes)
{
    return buffer;
}

void gs_writer_commit(struct gs_writer *w, uint32_t bytes)
{
    const struct gs_rec *r = (const struct gs_rec *)buffer;
    if (r->type == GS_REC_FRAME_NATIVE) {
        const struct gs_rec_frame_native *f = (const void *)r;
        assert_in_range(f->path_len, 1, sizeof frames->path - 1);
        memcpy(frames[f->frame].path, f + 1, f->path_len);
        frames[f->frame].path[f->path_len] = '\0';
        frames[f->frame].offset = f->offset;
        frames[f->frame].build_id_len = f->build_id_len;
    } else if (r->type == GS_REC_STACK) {
        const struct gs_rec_stack *k = (const void *)r;
        depth = k->depth;
        memcpy(numbers, k->frames, depth * sizeof *numbers);
    }
}

static struct gs_stacks *stacks;
static struct gs_writer writer;
static struct gs_modules modules;

static int open_all(void **state)
{
    gs_stack_init(GS_STACK_NATIVE | GS_STACK_PYTHON, 0);
    stacks = gs_stacks_open(&writer);
    return !stacks;
}

static int close_all(void **state)
{
    gs_stacks_close(stacks);
    return 0;
}

/* --- tests ------------------------------------------------------------------------------------ */

static __attribute__((noinline)) uint32_t wrapper(void)
{
    uint32_t n = gs_stack_capture(stacks, GS_STACK_NATIVE, __builtin_return_address(0));
    __asm__ volatile("");
    return n;
}

static uint32_t down(int n);
static uint32_t (*volatile again)(int) = down; /* prevents the compiler from merging two frames */

static __attribute__((noinline)) uint32_t down(int n)
{
    uint32_t number = n ? again(n - 1) : wrapper();
    __asm__ volatile("");
    return number;
}

static int own_bias(struct dl_phdr_info *info, size_t size, void *to)
{
    *(uintptr_t *)to = info->dlpi_addr;
    return 1;
}

static void own_stack(void **state)
{
    assert_null(gs_stack_missing());
    char program[512] = "";
    assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    uintptr_t bias, here = (uintptr_t)&down;
    dl_iterate_phdr(own_bias, &bias);
    uint32_t of_depth[31];
    for (int round = 0; round < 2; round++) {
        for (int n = 0; n <= 30; n++) {
            depth = 0;
            uint32_t number = down(n);
            assert_int_not_equal(number, 0);
            if (round) { /* known, so nothing is written */
                assert_int_equal(number, of_depth[n]);
                assert_int_equal(depth, 0);
                continue;
            }
            of_depth[n] = number;
            assert_true((int)depth > n + 2);
            for (int i = 0; i <= n; i++) { /* all in down(), the innermost where it calls wrapper */
                if (!getenv("EMULATED")) assert_string_equal(frames[numbers[i]].path, program); /* qemu's */
                assert_in_range(frames[numbers[i]].offset, here - bias, here - bias + 200);
            }
            for (int i = 1; i < n; i++) assert_int_equal(numbers[i], numbers[1]);
        }
    }
    if (!getenv("EMULATED")) assert_int_equal(frames[numbers[0]].build_id_len, 20);
}

static void known_stacks_are_not_unwound(void **state)
{
    for (int i = 0; i < 100; i++) {
        stacks->unwinder.address[0] = 1;
        down(20);
        assert_true(i < 10 || stacks->unwinder.address[0] == 1);
    }
}

/* --- ways that are alike ---------------------------------------------------------------------- */

/* Random paths through a few functions, with frames of fixed and variable size, so that the same place on the stack is
 * reached by many paths: each path must get its own number, whatever is cached. */
#define WAYS 8192
static struct {
    uint64_t way;
    uint32_t number;
} seen[WAYS];
static uint64_t random_state = 88172645463325252u;

static uint32_t below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % n;
}

static __attribute__((noinline)) void arrive(void)
{
    static struct gs_unwinder unwinder;
    uintptr_t *const own = __builtin_frame_address(0);
#if defined(__x86_64__)
    const struct gs_frame from = {.ip = own[1], .sp = (uintptr_t)(own + 2), .fp = own[0]};
#else
    struct gs_frame from = {.fp = (uintptr_t)own, .interrupted = true};
    GS_UNWIND_HERE(from.ip, from.sp);
#endif
    uint64_t way = 1;
    gs_memory_begin(&unwinder.memory, (uintptr_t)own);
    const uint32_t n = gs_unwind(&unwinder, from, (struct gs_elf_range){0, 0}, 64);
    for (uint32_t i = 0; i < n; i++) way = gs_stack_mix(way, unwinder.address[i], 0);
    uint32_t number = wrapper();
    assert_int_not_equal(number, 0);
    for (size_t i = 0; i < WAYS; i++) {
        if (!seen[i].number) {
            seen[i].way = way;
            seen[i].number = number;
            return;
        }
        if (seen[i].way == way || seen[i].number == number) {
            assert_true(seen[i].way == way);
            assert_int_equal(seen[i].number, number);
            return;
        }
    }
    fail_msg("more ways than expected");
}

static void fork_off(int left);
static void (*volatile go_on)(int) = fork_off;

static __attribute__((noinline)) void use(volatile char *room)
{
    room[0] = 0;
}

#define WAY(name, size)                                  \
    static __attribute__((noinline)) void name(int left) \
    {                                                    \
        volatile char room[size];                        \
        use(room);                                       \
        go_on(left - 1);                                 \
        use(room);                                       \
    }
WAY(narrow, 16)
WAY(as_narrow, 16)
WAY(wide, 64)

static __attribute__((noinline)) void varying(int left)
{
    volatile char *room = __builtin_alloca(16 + 16 * below(4));
    use(room);
    go_on(left - 1);
    use(room);
}

static __attribute__((noinline)) void fork_off(int left)
{
    static void (*const ways[])(int) = {narrow, as_narrow, wide, varying};
    if (left <= 0)
        arrive();
    else
        ways[below(4)](left);
    __asm__ volatile("");
}

/* Two callers, called from one place, of a function whose frame makes up for the difference of theirs: the return
 * address into the one remains where the other's unused memory is. */
static __attribute__((noinline)) void make_up(uint32_t size)
{
    volatile char *room = __builtin_alloca(size);
    use(room);
    arrive();
    use(room);
}

#define CALLER_WITH(name, size, more)                       \
    static __attribute__((noinline)) void name(int at_most) \
    {                                                       \
        volatile char room[size];                           \
        use(room);                                          \
        make_up((uint32_t)at_most + (more));                \
        __asm__ volatile("" : : "r"(room));                 \
    }
CALLER_WITH(shallow, 16, 128)
CALLER_WITH(roomy, 144, 0)

static void frames_that_make_up(void **state)
{
    static void (*const callers[])(int) = {shallow, roomy};
    for (int i = 0; i < 4096; i++) callers[i / 64 % 2](16 * (1 + i / 128 % 4));
}

static void similar_paths(void **state)
{
    for (int i = 0; i < 200000; i++) fork_off(2 + (int)below(3));
    uint32_t taken = 0;
    for (uint32_t i = 0; i < GS_WALKS; i++) taken += stacks->walks[i].count != 0;
    assert_in_range(taken, 1, GS_WALKS);
}

/* --- caches that change hands ----------------------------------------------------------------- */

static void *first_owner(void *unused)
{
    for (int n = 0; n < 20; n++)
        for (int i = 0; i < 10; i++)
            if (!down(n)) return NULL;
    return stacks;
}

static void another_thread(void **state)
{
    struct gs_stacks *const kept = stacks;
    void *whole;
    pthread_t thread;
    for (int i = 0; i < 3; i++) { /* mostly at the same place in memory, not always */
        stacks = i ? stacks : gs_stacks_open(&writer);
        assert_int_equal(pthread_create(&thread, NULL, first_owner, NULL), 0);
        pthread_join(thread, &whole);
        assert_ptr_equal(whole, stacks);
        gs_stacks_adopt(stacks);
        depth = 0;
        assert_ptr_equal(first_owner(NULL), stacks);
        assert_true(i || depth > 20); /* another stack than the thread's */
        gs_stacks_adopt(stacks);
    }
    gs_stacks_close(stacks);
    gs_stacks_adopt(NULL);
    stacks = kept;
}

static void no_python_here(void **state)
{
    assert_null(gs_stack_python_version());
    gs_stack_find_python();
    assert_int_equal(gs_stack_capture(stacks, GS_STACK_PYTHON, NULL), 0);
}

static void errno_is_kept(void **state)
{
    errno = 4711;
    gs_stack_find_python();
    struct gs_module m;
    gs_module_find(&modules, (uintptr_t)&errno_is_kept, &m);
    assert_int_equal(errno, 4711);
}

static void objects_are_loaded_and_unloaded(void **state)
{
    struct gs_module m;
    assert_true(gs_module_find(&modules, (uintptr_t)&objects_are_loaded_and_unloaded, &m));
    assert_true(gs_module_find(&modules, (uintptr_t)&gnu_get_libc_version, &m));
    assert_non_null(memmem(m.path, m.path_len, "libc", 4));
    assert_int_equal(m.build_id_len, 20);
    assert_false(gs_module_find(&modules, (uintptr_t)&m, &m)); /* the stack */
    assert_false(gs_module_find(&modules, 0, &m));
    assert_false(gs_module_find(&modules, UINTPTR_MAX, &m));

    void *lib = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!lib) skip();
    struct link_map *map;
    assert_int_equal(dlinfo(lib, RTLD_DI_LINKMAP, &map), 0);
    uintptr_t at = (uintptr_t)map->l_ld;
    assert_true(gs_module_find(&modules, at, &m));
    assert_non_null(memmem(m.path, m.path_len, "libresolv", 9));
    uint32_t generation = gs_module_generation, epoch = gs_stack_epoch;
    assert_true(gs_module_find(&modules, at, &m));
    assert_int_equal(gs_module_generation, generation);
    dlclose(lib);
    assert_false(gs_module_find(&modules, at, &m));
    assert_int_equal(gs_module_generation, generation + 1);
    assert_true(gs_stack_epoch > epoch);
}

static void *in_thread(void *unused)
{
    struct gs_writer own = {0};
    struct gs_stacks *s = gs_stacks_open(&own);
    struct gs_module m;
    for (int i = 0; s && i < 2000; i++) gs_module_find(&s->unwinder.modules, (uintptr_t)&in_thread, &m);
    gs_stacks_close(s);
    return NULL;
}

static void threads_and_loads(void **state)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, in_thread, NULL), 0);
    for (int i = 0; i < 50; i++) {
        void *lib = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
        if (lib) dlclose(lib);
    }
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    struct gs_module m;
    assert_true(gs_module_find(&modules, (uintptr_t)&in_thread, &m));
}

/* --- symbols ---------------------------------------------------------------------------------- */

/* Not through dlsym, which libgpuspy defines itself. */
static int compare_symbols(struct dl_phdr_info *info, size_t size, void *to)
{
    const struct {
        const char *name;
        const void *at;
    } known[] = {
        {"gnu_get_libc_version", (const void *)&gnu_get_libc_version},
        {"getpid", (const void *)&getpid},
        {"dlinfo", (const void *)&dlinfo},
        {"no_such_function", NULL},
    };
    if (!strstr(info->dlpi_name, "libc.so")) return 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_ptr_equal(gs_elf_symbol(info, known[i].name), known[i].at);
        (*(int *)to)++;
    }
    return 0;
}

static void symbols(void **state)
{
    int compared = 0;
    dl_iterate_phdr(compare_symbols, &compared);
    assert_int_equal(compared, 4);
}

CASES_WITHIN(open_all, close_all, own_stack, known_stacks_are_not_unwound, similar_paths, frames_that_make_up,
             another_thread, no_python_here, errno_is_kept, objects_are_loaded_and_unloaded, threads_and_loads, symbols)
