/* Damaged unwind tables and unreadable stacks must do no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <alloca.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include "interpose/stack_unwind.h"

enum { UNIT = 4096 }; /* what gs_memory_pages counts; a page of the kernel has one or more of them */
static size_t page;

static __attribute__((noinline)) int here(volatile int *x)
{
    volatile char room[100] = {1};
    return *x + room[*x & 63];
}

/* --- what was damaged ------------------------------------------------------------------------- */

static struct gs_cfi_work work;

/* Tries an object made from a table's bytes. */
static void try_table(uint8_t *bytes, size_t size, uintptr_t header, uintptr_t pc)
{
    const ElfW(Phdr) phdr[2] = {
        {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = size, .p_memsz = size},
        {.p_type = PT_GNU_EH_FRAME, .p_vaddr = header, .p_filesz = 4, .p_memsz = 4},
    };
    const struct gs_image image = {(uintptr_t)bytes, phdr, 2};
    struct gs_registers r = {.known = ~0u};
    struct gs_memory memory = {0};
    uintptr_t place;
    gs_memory_begin(&memory, (uintptr_t)__builtin_frame_address(0));
    for (unsigned i = 0; i < GS_REGS; i++) r.value[i] = (uintptr_t)&r;
    if (gs_cfi_find(&image, (uintptr_t)bytes + pc, &work) == GS_CFI_OK) gs_cfi_apply(&work.row, &r, &memory, &place);
}

static uint32_t random_number(void)
{
    static uint64_t s = 88172645463325252u;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return (uint32_t)(s >> 32);
}

struct own_table {
    uint8_t *bytes;
    size_t size;
    uintptr_t header, pc;
};

/* Past the red zones of an instrumented program's constants. */
static __attribute__((no_sanitize("address"))) void copy_bytes(volatile uint8_t *to, const uint8_t *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) to[i] = from[i];
}

/* This program's own table, its segment, and an address in the code that it describes. */
static int copy_table(struct dl_phdr_info *info, size_t size, void *to)
{
    struct own_table *t = to;
    const struct gs_image image = {info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        struct gs_segment segment;
        const uintptr_t header = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_GNU_EH_FRAME || !gs_image_segment(&image, header, PF_R, &segment)) continue;
        /* ends before unmapped memory */
        t->size = segment.hi - segment.lo;
        const size_t room = (t->size + page - 1) / page * page;
        uint8_t *pages = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(pages + room, page, PROT_NONE);
        t->bytes = pages + room - t->size;
        copy_bytes(t->bytes, (const uint8_t *)segment.lo, t->size);
        t->header = header - segment.lo;
        t->pc = (uintptr_t)&here + 5 - segment.lo;
    }
    return 1;
}

static void damaged(void **state)
{
    struct own_table t = {0};
    dl_iterate_phdr(copy_table, &t);
    assert_non_null(t.bytes);
    try_table(t.bytes, t.size, t.header, t.pc);
    assert_int_equal(work.row.cfa.how, GS_CFI_PLUS);
    uint8_t *good = malloc(t.size);
    memcpy(good, t.bytes, t.size);
    const size_t table = t.size - t.header;
    for (int i = 0; i < 60000; i++) {
        const uint32_t hits = 1 + random_number() % 40;
        for (uint32_t k = 0; k < hits; k++) t.bytes[t.header + random_number() % table] = (uint8_t)random_number();
        try_table(t.bytes, t.size, t.header, random_number() % (2 * t.pc));
        try_table(t.bytes, t.size, t.header, t.pc);
        if (i % 8 == 7) memcpy(t.bytes, good, t.size);
    }
    for (size_t cut = 0; cut < table && cut < 4000; cut++) /* its segment ends too early */
        try_table(t.bytes, t.size - cut, t.header, t.pc);
    for (int i = 0; i < 20000; i++) { /* noise */
        static uint8_t noise[256];
        for (size_t k = 0; k < sizeof noise; k++) noise[k] = (uint8_t)random_number();
        memcpy(noise, (uint8_t[]){1, 0x1b, 0x03, i % 2 ? 0x3b : 0xff, 12, 0, 0, 0, 2, 0, 0, 0}, 12);
        try_table(noise, sizeof noise, 0, random_number() % 256);
    }
    free(good);
}

/* --- memory that is not there ----------------------------------------------------------------- */

static void unmapped_neighbours(void)
{
    char *room = mmap(NULL, 5 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(room, page, PROT_NONE);
    mprotect(room + 4 * page, page, PROT_NONE);
    errno = 4711;
    assert_int_equal(gs_memory_pages((uintptr_t)room, 5 * page / UNIT), 0);
    assert_int_equal(gs_memory_pages((uintptr_t)room + page, 5 * page / UNIT), 3 * page / UNIT);
    assert_int_equal(gs_memory_pages((uintptr_t)room + 2 * page, 2), 2);
    assert_int_equal(gs_memory_pages(0, 1), 0);
    assert_int_equal(gs_memory_pages(UINTPTR_MAX - (UNIT - 1), 1), 0);
    assert_int_equal(errno, 4711);
    /* frames that lead there: a frame pointer at the end of readable memory */
    struct gs_unwinder *u = calloc(1, sizeof *u);
    for (uintptr_t fp = (uintptr_t)room; fp < (uintptr_t)room + 5 * page; fp += page / 4096 * 16 + 8) {
        for (int kind = 0; kind < 2; kind++) {
            const uintptr_t ip = kind ? (uintptr_t)&here + 5 : (uintptr_t)room;
            gs_memory_begin(&u->memory, (uintptr_t)__builtin_frame_address(0));
            gs_unwind(u, (struct gs_frame){.ip = ip, .sp = fp, .fp = fp}, (struct gs_elf_range){0, 0}, GS_UNWIND_MAX);
            gs_memory_begin(&u->memory, fp);
            gs_unwind(u, (struct gs_frame){.ip = ip, .sp = fp - 8, .fp = fp - 3}, (struct gs_elf_range){0, 0},
                      GS_UNWIND_MAX);
        }
    }
    uintptr_t word;
    assert_true(gs_memory_word(&u->memory, (uintptr_t)room + page, &word));
    assert_true(gs_memory_word(&u->memory, (uintptr_t)room + 4 * page - 8, &word));
    assert_false(gs_memory_word(&u->memory, (uintptr_t)room + 4 * page - 7, &word));
    assert_false(gs_memory_word(&u->memory, UINTPTR_MAX - 3, &word));
    assert_false(gs_memory_word(&u->memory, 0, &word));
    free(u);
    munmap(room, 5 * page);
}

static void unmapped_both_ways(void **state)
{
    unmapped_neighbours();
    gs_memory_open(true);
    assert_true(gs_memory_by_copy);
    if (process_vm_readv(getpid(), NULL, 0, NULL, 0, 0) == 0)
        unmapped_neighbours();
    else
        print_message("(no process_vm_readv here, as under qemu-user)\n");
    gs_memory_open(false);
    assert_false(gs_memory_by_copy);
}

/* Memory that is readable up to the first thread's descriptor is not the thread's stack. */
static void a_stack_next_to_the_threads_descriptor(void **state)
{
    struct gs_memory m = {0};
    gs_memory_begin(&m, (uintptr_t)pthread_self() - 16);
    assert_int_equal(m.hi, 0);
    gs_memory_begin(&m, (uintptr_t)__builtin_frame_address(0));
    const uintptr_t hi = m.hi;
    assert_true(hi > (uintptr_t)&m);
    gs_memory_begin(&m, (uintptr_t)pthread_self() - 16); /* remains unchanged */
    assert_int_equal(m.hi, hi);
}

/* A thread that runs coroutines right below its own stack: an address that did not lead to it is not examined again. */
static void *beside_guard(void *room)
{
    struct gs_memory m = {0};
    char *const other = mmap(room, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    mprotect(other + 7 * page, page, PROT_NONE);
    for (int i = 0; i < 2; i++) {
        gs_memory_begin(&m, (uintptr_t)other + page + 16);
        assert_int_equal(m.gap, (uintptr_t)other + 7 * page);
        assert_int_equal(m.hi, 0);
    }
    gs_memory_begin(&m, (uintptr_t)__builtin_frame_address(0));
    assert_int_equal(m.hi, (uintptr_t)pthread_self());
    const uintptr_t lo = m.lo;
    gs_memory_begin(&m, (uintptr_t)other + 16);
    assert_int_equal(m.lo, lo);
    char *const deeper = alloca(40000);
    deeper[0] = 1;
    gs_memory_begin(&m, (uintptr_t)deeper);
    assert_in_range(m.lo, (uintptr_t)deeper - UNIT, (uintptr_t)deeper);
    return NULL;
}

static void coroutines_below_the_stack(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* it needs nearly 1 MiB of each thread's stack */
#endif
    char *const room = mmap(NULL, 40 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, room + 8 * page, 32 * page);
    assert_int_equal(pthread_create(&thread, &attr, beside_guard, room), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    munmap(room, 40 * page);
}

int main(void)
{
    volatile int x = 3;
    page = (size_t)sysconf(_SC_PAGESIZE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged),
        cmocka_unit_test(unmapped_both_ways),
        cmocka_unit_test(a_stack_next_to_the_threads_descriptor),
        cmocka_unit_test(coroutines_below_the_stack),
    };
    here(&x);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
