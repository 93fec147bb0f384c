/* gpuspy's stacks compared with those of libgcc and, if installed, libunwind, in every situation in which a program
 * calls CUDA. */
#include "tests/cases.h"
#include <alloca.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>
#include "interpose/stack.h"
#include "interpose/stack_unwind.h"

#if defined(__x86_64__) || defined(__aarch64__)

#define MOST 250
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define THREAD_SANITIZED
#endif
#if defined(THREAD_SANITIZED) || defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define INSTRUMENTED
#endif
#ifdef __clang__
#define ALONE __attribute__((noinline))
#define NO_FRAME_POINTER
#else
#define ALONE __attribute__((noinline, noclone))
#define NO_FRAME_POINTER __attribute__((optimize("omit-frame-pointer")))
#endif

/* --- three unwinders -------------------------------------------------------------------------- */

struct trace {
    uint32_t count;
    uintptr_t address[MOST];
};

static int (*unw_backtrace)(void **, int);

static _Unwind_Reason_Code next(struct _Unwind_Context *context, void *to)
{
    struct trace *t = to;
    int interrupted = 0;
    const uintptr_t ip = _Unwind_GetIPInfo(context, &interrupted);
    if (!ip || t->count == MOST) return _URC_END_OF_STACK;
    t->address[t->count++] = ip + (interrupted != 0);
    return _URC_NO_REASON;
}

static ALONE void by_libgcc(struct trace *t)
{
    t->count = 0;
    _Unwind_Backtrace(next, t);
}

static ALONE void by_libunwind(struct trace *t)
{
    void *at[MOST];
    const int n = unw_backtrace ? unw_backtrace(at, MOST) : 0;
    t->count = n > 0 ? (uint32_t)n : 0;
    for (uint32_t i = 0; i < t->count; i++) t->address[i] = (uintptr_t)at[i];
}

static void show(const char *who, const struct trace *t)
{
    fprintf(stderr, "%s, %u:\n", who, t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        Dl_info info = {0};
        dladdr((void *)(t->address[i] - 1), &info);
        fprintf(stderr, "  %#lx %s+%#lx %s\n", t->address[i], info.dli_fname, t->address[i] - (uintptr_t)info.dli_fbase,
                info.dli_sname ? info.dli_sname : "?");
    }
}

static __thread struct gs_unwinder unwinder;

static ALONE void by_us(struct trace *t)
{
    uintptr_t *const own = __builtin_frame_address(0);
#ifdef __x86_64__
    const struct gs_frame from = {
        .ip = own[1], .sp = (uintptr_t)(own + 2), .fp = own[0], .place = (uintptr_t)(own + 1)};
#else
    struct gs_frame from = {.fp = (uintptr_t)own, .interrupted = true};
    GS_UNWIND_HERE(from.ip, from.sp);
#endif
    gs_memory_begin(&unwinder.memory, (uintptr_t)own);
    t->count = gs_unwind(&unwinder, from, (struct gs_elf_range){0, 0}, MOST);
    memcpy(t->address, unwinder.address, t->count * sizeof *t->address);
    for (uint32_t i = 0; i < t->count; i++)
        assert_true(!unwinder.place[i] || *(uintptr_t *)unwinder.place[i] == t->address[i]);
}

/* --- comparing -------------------------------------------------------------------------------- */

static _Atomic uint32_t compared, differences;

extern const void *_Unwind_Find_FDE(void *pc, void *bases[3]); /* libgcc's */

/* libgcc ends where code has no entry, as PLTs for AArch64. */
static bool ends_undescribed(const struct trace *t)
{
    void *bases[3];
    return t->count && !_Unwind_Find_FDE((void *)(t->address[t->count - 1] - 1), bases);
}

/* The innermost three may be other places in the comparing functions themselves. */
static bool alike(const struct trace *a, uint32_t skip_a, const struct trace *b, uint32_t skip_b, bool marked)
{
    const bool cut = a->count == MOST || b->count == MOST ||
                     (marked && a->count - skip_a > b->count - skip_b && ends_undescribed(b));
    if (a->count - skip_a != b->count - skip_b && !cut) return false;
    for (uint32_t i = skip_a + 1; i < a->count && i - skip_a + skip_b < b->count; i++) {
        const uintptr_t x = a->address[i], y = b->address[i - skip_a + skip_b];
        if (x != y && (marked || x != y + 1)) /* libunwind does not mark the interrupted frame */
            return false;
    }
    return true;
}

/* In each trace, the frame of this function is recognised by its return address. */
static uint32_t own_index(const struct trace *t, uintptr_t returns_to)
{
    for (uint32_t i = 1; i < t->count && i < 6; i++)
        if (t->address[i] == returns_to) return i - 1;
    return UINT32_MAX;
}

static volatile sig_atomic_t stepping; /* only the trap's handler compares */

static ALONE uint32_t compare(void)
{
    const uintptr_t back = (uintptr_t)__builtin_return_address(0);
    if (stepping) return 0;
    static __thread struct trace ours, gcc, unw;
    by_us(&ours);
    by_libgcc(&gcc);
    by_libunwind(&unw);
    const uint32_t a = own_index(&ours, back), b = own_index(&gcc, back), c = own_index(&unw, back);
    const bool same = a != UINT32_MAX && b != UINT32_MAX && alike(&ours, a, &gcc, b, true);
    const bool same_unw = !unw_backtrace || (c != UINT32_MAX && alike(&ours, a, &unw, c, false));
    compared++;
    if (!same || !same_unw) {
        differences++;
        show("ours", &ours);
        show("libgcc", &gcc);
        show("libunwind", &unw);
    }
    return ours.count;
}

static ALONE uint32_t compare_with_libgcc(void)
{
    int (*kept)(void **, int) = unw_backtrace;
    unw_backtrace = NULL;
    const uint32_t n = compare();
    unw_backtrace = kept;
    return n;
}

static void assert_alike(void)
{
    assert_true(compared > 0);
    assert_int_equal(differences, 0);
}

/* qemu-user has no vfork and no process_vm_readv. */
static void skip_if_emulated(void)
{
    if (getenv("EMULATED")) skip();
}

static int begin(void **state)
{
    compared = differences = 0;
    return 0;
}

/* --- plain frames ----------------------------------------------------------------------------- */

static uint32_t down(int n);
static uint32_t (*volatile again)(int) = down;
static ALONE uint32_t down(int n)
{
    uint32_t depth = n ? again(n - 1) : compare();
    __asm__ volatile("");
    return depth;
}

static void depths(void **state)
{
    for (int n = 1; n <= 200; n++) assert_true(down(n) > (uint32_t)n);
    for (int n = 200; n > 0; n--) down(n);
    assert_alike();
}

static void deeper_than_requested(void **state)
{
    assert_int_equal(down(400), MOST);
    assert_alike();
}

NO_FRAME_POINTER static ALONE uint32_t without_fp(int n, int a, int b)
{
    volatile int kept[5] = {a, b};
    uint32_t depth = n ? without_fp(n - 1, a + 1, b ^ n) + (uint32_t)(kept[0] * 0) : compare();
    kept[1] = a;
    return depth;
}

static ALONE uint32_t of_any_size(int n, unsigned size)
{
    volatile char *room = alloca(size);
    room[0] = room[size - 1] = 1;
    uint32_t depth = n == 0 ? compare() : n % 3 ? of_any_size(n - 1, size * 7 % 1000 + 1) : without_fp(n, n, 1);
    room[0] = 2;
    return depth;
}

static ALONE uint32_t of_many_pages(void)
{
    volatile char room[700000];
    room[0] = room[sizeof room - 1] = 1;
    uint32_t depth = without_fp(3, 1, 1);
    room[1] = 2;
    return depth;
}

static ALONE uint32_t aligned(int n)
{
    _Alignas(64) volatile char room[128];
    room[0] = 1;
    uint32_t depth = n ? aligned(n - 1) : compare();
    assert_int_equal((uintptr_t)room % 64, 0);
    room[0] = 2;
    return depth;
}

static ALONE uint32_t aligned_and_variable(int n, unsigned size)
{
    _Alignas(32) volatile char room[32];
    volatile char *more = alloca(size);
    room[0] = more[0] = 1;
    more[0] = room[0];
    uint32_t depth = n ? aligned_and_variable(n - 1, size + 13) : aligned(2);
    room[0] = more[0] = 2;
    return depth;
}

static void shapes(void **state)
{
    for (int n = 0; n < 40; n++) {
        without_fp(n, 1, 2);
        of_any_size(n, (unsigned)n * 37 + 1);
        aligned(n % 7);
        aligned_and_variable(n % 5, (unsigned)n + 1);
    }
    of_many_pages();
    assert_alike();
}

static int in_order(const void *a, const void *b)
{
    compare();
    return *(const int *)a - *(const int *)b;
}

static void called_back(void **state)
{
    int numbers[40];
    for (int i = 0; i < 40; i++) numbers[i] = i * 17 % 40;
    qsort(numbers, 40, sizeof *numbers, in_order);
    bsearch(&(int){7}, numbers, 40, sizeof *numbers, in_order);
    assert_alike();
}

/* --- an exception in flight ------------------------------------------------------------------- */

static int cleaned;
static void clean(void *unused)
{
    compare();
    cleaned++;
}

static ALONE void *cancelled(void *unused)
{
    pthread_cleanup_push(clean, NULL);
    pthread_cleanup_push(clean, NULL);
    pthread_exit(NULL);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void unwinding_threads(void **state)
{
    pthread_t thread;
    pthread_create(&thread, NULL, cancelled, NULL);
    pthread_join(thread, NULL);
    assert_int_equal(cleaned, 2);
    assert_alike();
}

/* --- signals ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t handled;
static void handler(int sig)
{
    compare_with_libgcc();
    handled++;
}

#ifdef __aarch64__
/* What the vdso has: both unwinders know a signal's frame by these two instructions. */
__asm__(".text\n.balign 4\nreturn_from_signal:\n\tmov x8, #139\n\tsvc #0\n");
extern const char return_from_signal[];

static void on_signal(int sig, int flags, void (*what)(int))
{
    const struct {
        void (*handler)(int);
        unsigned long flags;
        const char *restorer;
        unsigned long mask;
    } action = {what, (unsigned long)flags | 0x04000000 /* SA_RESTORER */, return_from_signal, 0};
    assert_return_code(syscall(SYS_rt_sigaction, sig, &action, NULL, sizeof action.mask), errno);
}
#else
static void on_signal(int sig, int flags, void (*what)(int))
{
    const struct sigaction action = {.sa_handler = what, .sa_flags = flags};
    sigaction(sig, &action, NULL);
}
#endif

static ALONE void raise_below(int n)
{
    if (n)
        raise_below(n - 1);
    else
        raise(SIGUSR1);
    __asm__ volatile("");
}

static void raised(void **state)
{
    handled = 0;
    on_signal(SIGUSR1, 0, handler);
    for (int n = 0; n < 20; n++) raise_below(n);
    assert_int_equal(handled, 20);
    assert_alike();
}

static char other_stack[1 << 16];
static void use_other_stack(bool on)
{
    const stack_t s = {.ss_sp = other_stack, .ss_size = sizeof other_stack, .ss_flags = on ? 0 : SS_DISABLE};
    sigaltstack(&s, NULL);
}

static void raised_on_another_stack(void **state)
{
    handled = 0;
    use_other_stack(true);
    on_signal(SIGUSR1, SA_ONSTACK, handler);
    for (int n = 0; n < 20; n++) raise_below(n);
    use_other_stack(false);
    assert_int_equal(handled, 20);
    assert_alike();
}

/* A signal within a handler. */
static void raise_again(int sig)
{
    raise_below(3);
}

static void nested(void **state)
{
    use_other_stack(true);
    on_signal(SIGUSR1, SA_ONSTACK, handler);
    on_signal(SIGUSR2, 0, raise_again);
    raise(SIGUSR2);
    use_other_stack(false);
    assert_alike();
}

/* At any instruction: prologues, epilogues, leaf functions, PLT entries and the C library's own assembly. */
static ALONE int leaf(int x)
{
    return x * 3 + 1;
}

static ALONE int busy(int n, char *a, char *b, size_t size)
{
    volatile int sum = 0;
    for (int i = 0; i < n; i++) {
        sum += leaf(i);
        memcpy(a, b, size);
        sum += (int)strlen(a) + (int)getpid() + (int)strtol("123", NULL, 10);
        _Alignas(64) volatile char room[64];
        room[0] = (char)i;
        sum += room[0];
    }
    return sum;
}

static void interrupted_anywhere(void **state)
{
    static char a[5000], b[5000];
    memset(b, 'x', sizeof b - 1);
    handled = 0;
    on_signal(SIGALRM, SA_RESTART, handler);
    const struct itimerval every = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < 4000 && handled < 1500; i++) busy(200, a, b, (size_t)(i % 5000));
    setitimer(ITIMER_REAL, &never, NULL);
    assert_true(handled > 100);
    assert_alike();
}

/* In an entry of a PLT that no table describes, as all for AArch64 and those by lld. Its load fails once. */
__attribute__((aligned(65536))) void *stub_word[65536 / sizeof(void *)];
int stub(void);
#ifdef __x86_64__
__asm__(".text\n.balign 16\n.hidden stub_word\n.hidden stub\n.globl stub\nstub:\n\tjmp *stub_word(%rip)\n");
#else
__asm__(".text\n.balign 16\n.hidden stub_word\n.hidden stub\n.globl stub\nstub:\n\tadrp x16, stub_word\n"
        "\tldr x17, [x16, #:lo12:stub_word]\n\tadd x16, x16, #:lo12:stub_word\n\tbr x17\n");
#endif

static struct trace in_stub, after_stub;
static uint32_t called_stub; /* the index in after_stub */
static ALONE void interrupt_stub(int sig)
{
    by_us(&in_stub);
    mprotect(stub_word, sizeof stub_word, PROT_READ | PROT_WRITE);
    handled++;
}

static ALONE int behind_stub(void)
{
    by_us(&after_stub);
    called_stub = own_index(&after_stub, (uintptr_t)__builtin_return_address(0)) + 1;
    return handled;
}

static ALONE int call_stub(volatile int *kept)
{
    *kept += stub();
    return *kept;
}

static void interrupted_in_plt(void **state)
{
    volatile int kept = 0;
    handled = 0;
    on_signal(SIGSEGV, 0, interrupt_stub);
    stub_word[0] = (void *)behind_stub;
    mprotect(stub_word, sizeof stub_word, PROT_NONE);
    assert_int_equal(call_stub(&kept), 1);
    signal(SIGSEGV, SIG_DFL);
    uint32_t at = 0;
    while (at < in_stub.count && in_stub.address[at] - (uintptr_t)stub > 16) at++;
    assert_in_range(called_stub, 1, 2);
    assert_int_equal(in_stub.count - at - 1, after_stub.count - called_stub);
    assert_memory_equal(in_stub.address + at + 1, after_stub.address + called_stub,
                        (after_stub.count - called_stub) * sizeof *after_stub.address);
}

/* At every instruction, with the processor's trap flag. Not in functions with a frame that is both aligned and
 * variable: gcc's own entries are wrong in their epilogues, and libgcc crashes. */
static void trap(int sig)
{
    stepping = 0;
    compare_with_libgcc();
    handled++;
    stepping = 1;
}

#ifdef __x86_64__
#define TRAPS 1
#define STEP(on) __asm__ volatile("pushfq\n\t" on "\n\tpopfq" ::: "memory", "cc")
#else
#define TRAPS 0
#define STEP(on) skip() /* no program can set such a flag */
#endif

static void every_instruction(void **state)
{
    static char a[300], b[300] = "some text";
#ifdef INSTRUMENTED
    skip(); /* its runtime must not be entered again */
#endif
    handled = 0;
    on_signal(SIGTRAP, 0, trap);
    /* not within the red zone of this function: it calls others, so it has none */
    stepping = TRAPS;
    STEP("orl $0x100, (%%rsp)");
    busy(2, a, b, 200);
    without_fp(0, 1, 1);
    aligned(1);
    STEP("andl $~0x100, (%%rsp)");
    stepping = 0;
    assert_true(handled > 200);
    assert_alike();
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *in_thread(void *depth)
{
    for (int i = 0; i < 50; i++) down((int)(intptr_t)depth + i);
    return NULL;
}

static void threads(void **state)
{
    pthread_t t[8];
    for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, in_thread, (void *)(intptr_t)(i * 10));
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    assert_alike();
}

static void own_stack(void **state)
{
    pthread_attr_t attr;
    pthread_t t;
    pthread_attr_init(&attr);
#ifdef THREAD_SANITIZED
    const size_t size = 1 << 22; /* ThreadSanitizer keeps nearly 1 MiB per thread on its stack */
#else
    const size_t size = 1 << 18;
#endif
    char *room = aligned_alloc(4096, size);
    pthread_attr_setstack(&attr, room, size);
    pthread_create(&t, &attr, in_thread, NULL);
    pthread_join(t, NULL);
    pthread_attr_destroy(&attr);
    free(room);
    assert_alike();
}

static int cloned(void *unused)
{
    struct trace t;
    by_us(&t);
    return t.count >= 2 ? 0 : 1;
}

static void clones(void **state)
{
    skip_if_emulated();
    static char room[1 << 16] __attribute__((aligned(64)));
    int status = 1;
#ifdef INSTRUMENTED
    skip(); /* ThreadSanitizer does not know such children */
#endif
    pid_t pid = clone(cloned, room + sizeof room, CLONE_VM | SIGCHLD, NULL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    static uint32_t in_child;
    pid = vfork();
    if (pid == 0) {
        in_child = down(5);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(in_child > 6);
    pid = fork();
    if (pid == 0) _exit(down(5) == in_child && !differences ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_alike();
}

/* --- coroutines ------------------------------------------------------------------------------- */

static ucontext_t here, there;
static uint32_t in_coroutine;

static void coroutine(void)
{
    in_coroutine = down(5);
    swapcontext(&there, &here);
    in_coroutine = down(7);
    swapcontext(&there, &here);
}

/* A coroutine's stack at the end of mapped memory, which is unmapped afterwards. */
static void on_stack(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (size + page - 1) / page * page;
    char *room = mmap(NULL, mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(room != MAP_FAILED);
    mprotect(room + mapped, page, PROT_NONE);
    getcontext(&there);
    there.uc_stack = (stack_t){.ss_sp = room + mapped - size, .ss_size = size};
    there.uc_link = &here;
    makecontext(&there, coroutine, 0);
    swapcontext(&here, &there);
    assert_true(in_coroutine >= 8);
    down(3);
    swapcontext(&here, &there);
    assert_true(in_coroutine >= 10);
    munmap(room, mapped + page);
}

static void coroutines(void **state)
{
    for (int i = 0; i < 20; i++) on_stack((size_t)(64 - i) << 12);
    assert_alike();
}

/* --- objects that come and go ----------------------------------------------------------------- */

#define ENTER(body) "int enter(int (*f)(void)); int enter(int (*f)(void)) { " body " }"
static const char *const library[] = {
    ENTER("return f() + 1;"),
    ENTER("volatile char room[999]; room[5] = 1; return f() + room[5];"),
    ENTER("_Alignas(64) volatile char room[64]; room[5] = 1; return f() + room[5];"),
};

static int compare_as_int(void)
{
    return (int)compare();
}

/* The same path, mostly the same address, another frame. */
static void loaded_again(void **state)
{
    char folder[] = "/tmp/gpuspy-unwind-XXXXXX", path[3][64], command[512];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d.so", folder, i);
        snprintf(command, sizeof command, "echo '%s' | cc -O2 -shared -fPIC -x c -o %s - 2>/dev/null", library[i],
                 path[i]);
        if (system(command)) skip();
    }
    void *last = NULL;
    int again_there = 0;
    for (int i = 0; i < 60; i++) {
        void *l = dlopen(path[i % 3], RTLD_NOW);
        if (!l && getenv("EMULATED")) skip(); /* cc compiles for another processor */
        assert_non_null(l);
        int (*enter)(int (*)(void));
        *(void **)&enter = dlsym(l, "enter");
        again_there += (void *)enter == last || !last;
        last = (void *)enter;
        /* libunwind never drops its cache entry for an address */
        int (*kept)(void **, int) = unw_backtrace;
        unw_backtrace = NULL;
        assert_true(enter(compare_as_int) > 3);
        unw_backtrace = kept;
        dlclose(l);
        gs_stack_unloaded(); /* as the hook of dlclose does */
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    assert_true(again_there > 10);
    assert_alike();
}

/* The loader's trampoline keeps the CFA in a register that only its callees' unwind entries describe. */
static void during_lazy_binding(void **state)
{
    static const char text[] =
        "static int (*hook)(void); static int real(void) { return 3; }"
        "static void *choose(void) { hook(); return real; }"
        "int chosen(void) __attribute__((ifunc(\"choose\")));"
        "int enter(int (*f)(void)); int enter(int (*f)(void)) { hook = f; return chosen() + 1; }";
    char path[] = "/tmp/gpuspy-unwind-XXXXXX.so", command[1024];
    const int fd = mkstemps(path, 3);
    assert_true(fd >= 0);
    close(fd);
    snprintf(command, sizeof command, "echo '%s' | cc -O2 -shared -fPIC -Wl,-z,lazy -x c -o %s - 2>/dev/null", text,
             path);
    if (system(command)) skip();
    void *l = dlopen(path, RTLD_LAZY);
    if (!l && getenv("EMULATED")) skip();
    assert_non_null(l);
    unlink(path);
    int (*enter)(int (*)(void));
    *(void **)&enter = dlsym(l, "enter");
    int (*kept)(void **, int) = unw_backtrace;
    unw_backtrace = NULL;
    assert_int_equal(enter(compare_as_int), 4);
    unw_backtrace = kept;
    dlclose(l);
    gs_stack_unloaded();
    assert_alike();
}

/* --- code without an entry -------------------------------------------------------------------- */

#ifdef __x86_64__
static uint8_t with_fp[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3}; /* push; mov; call *%rdi; pop; ret */
static uint8_t without[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3};
/* without one, and %rbp has any value meanwhile */
static uint8_t spoilt[] = {0x55, 0x48, 0xc7, 0xc5, 0x77, 0x77, 0x77, 0x77, 0xff, 0xd7, 0x5d, 0xc3};
#else
static uint32_t with_fp[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd,
                             0xd65f03c0}; /* stp; mov; blr x0; ldp; ret */
static uint32_t without[] = {0xf81f0ffe, 0xd63f0000, 0xf84107fe, 0xd65f03c0};
static uint32_t spoilt[] = {0xa9bf7bfd, 0xd28eeefd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#endif

static struct trace seen;
static void see(void)
{
    by_us(&seen);
}

static ALONE void generated(const void *code, size_t bytes)
{
    static uint8_t *page;
    if (!page) page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, bytes);
    __builtin___clear_cache((char *)page, (char *)page + bytes);
    void (*run)(void (*)(void));
    *(void **)&run = page;
    run(see);
    __asm__ volatile("");
}

static void code_without_entries(void **state)
{
    const uint32_t whole = down(0);
    generated(with_fp, sizeof with_fp);
    assert_in_range(seen.count, whole, whole + 1);
    generated(without, sizeof without); /* a function with a frame pointer is mistaken for its caller */
    assert_in_range(seen.count, 1, whole + 1);
    generated(spoilt, sizeof spoilt);
    assert_in_range(seen.count, 1, 3);
}

/* --- what is left behind ---------------------------------------------------------------------- */

static int descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void nothing_is_left(void **state)
{
    skip_if_emulated();
    const int before = descriptors();
    for (int by_copy = 0; by_copy < 2; by_copy++) {
        gs_memory_open(by_copy);
        errno = 4711;
        struct trace t;
        memset(&unwinder, 0, sizeof unwinder);
        by_us(&t);
        assert_int_equal(errno, 4711);
        memset(&unwinder, 0, sizeof unwinder);
        down(30);
    }
    gs_memory_open(false);
    assert_int_equal(descriptors(), before);
    assert_alike();
}

static int load_libunwind(void **state)
{
    /* libunwind's destructor of thread-specific data locks a mutex. If a thread's destructors run in a second round,
     * ThreadSanitizer has already discarded that thread's state, and its interceptor of pthread_mutex_lock crashes. */
#ifndef THREAD_SANITIZED
    void *lib = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    if (lib) *(void **)&unw_backtrace = dlsym(lib, "unw_backtrace");
#endif
    return 0;
}

CASES_BETWEEN(load_libunwind, NULL, begin, NULL, depths, deeper_than_requested, shapes, called_back, unwinding_threads,
              raised, raised_on_another_stack, nested, interrupted_anywhere, interrupted_in_plt, every_instruction,
              threads, own_stack, clones, coroutines, loaded_again, during_lazy_binding, code_without_entries,
              nothing_is_left)

#else
int main(void)
{
    return 0;
}
#endif
