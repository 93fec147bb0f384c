#include "interpose/stack_memory.h"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "schema/system_call.h"

#define PAGE 4096u     /* larger pages are queried more than once */
#define BATCH 32u      /* pages per system call; their vectors are on the caller's stack */
#define OTHER_PAGES 8u /* at most; a page costs 130 ns */
#define LARGEST_STACK (64ul << 20)

extern void *__libc_stack_end; /* of the first thread; the dynamic loader's */

static uintptr_t page_of_address(uintptr_t address)
{
    return address & ~(uintptr_t)(PAGE - 1);
}

/* --- asking the kernel ------------------------------------------------------------------------ */

bool gs_memory_by_copy;

/* The kernel reads the set before it rejects the unknown operation. Every sandbox allows this system call, and it takes
 * a third of the time of the other. */
static bool is_page_readable(uintptr_t page)
{
    return gs_system_call(SYS_rt_sigprocmask, -1l, page, NULL, 8ul) == -1 && errno == EINVAL;
}

/* Copies from the first pages, at most BATCH. Returns how many were readable. */
static size_t copy_from(uintptr_t page, size_t pages)
{
    struct iovec remote[BATCH];
    char bytes[BATCH];
    const struct iovec here = {bytes, pages};
    for (size_t i = 0; i < pages; i++) remote[i] = (struct iovec){(void *)(page + i * PAGE), 1};
    const long got = gs_system_call(SYS_process_vm_readv, (long)getpid(), &here, 1ul, remote, pages, 0ul);
    return got > 0 ? (size_t)got : 0;
}

size_t gs_memory_pages(uintptr_t page, size_t pages)
{
    const int saved = errno;
    size_t found = 0, got = 1;
    while (found < pages && got) {
        const size_t batch = pages - found < BATCH ? pages - found : BATCH;
        got = gs_memory_by_copy ? copy_from(page + found * PAGE, batch) : is_page_readable(page + found * PAGE);
        found += got;
        if (gs_memory_by_copy && got < batch) break;
    }
    errno = saved;
    return found;
}

void gs_memory_open(bool valgrind)
{
    const int saved = errno;
    const uintptr_t kernels = ~(uintptr_t)0 << 12; /* addresses that no program can read */
    gs_memory_by_copy = valgrind || is_page_readable(kernels);
    errno = saved;
}

bool gs_memory_readable(uintptr_t from, uintptr_t to)
{
    const size_t pages = (to - page_of_address(from) + PAGE - 1) / PAGE;
    return gs_memory_pages(page_of_address(from), pages) == pages;
}

/* --- the thread's own stack ------------------------------------------------------------------- */

/* The stack with this top is the thread's if all memory in between is readable. Otherwise, and if an unreadable page is
 * in between, it is another stack. */
static void take_up_to(struct gs_memory *m, uintptr_t sp, uintptr_t known, uintptr_t top)
{
    if (sp >= known || sp < m->gap || known - sp > LARGEST_STACK) return;
    const size_t pages = (known - page_of_address(sp) + PAGE - 1) / PAGE;
    const size_t readable = gs_memory_pages(page_of_address(sp), pages);
    if (readable < pages) {
        m->gap = page_of_address(sp) + readable * PAGE;
        return;
    }
    m->lo = page_of_address(sp);
    m->hi = top;
}

static pthread_t first_thread;

__attribute__((constructor)) static void note_first_thread(void)
{
    first_thread = pthread_self();
}

/* The C library keeps a thread's descriptor above its stack, in the same memory; the first thread has the kernel's
 * stack. An unreadable page separates any other stack from both. Nothing below the stack pointer is probed: the kernel
 * might treat that as growth of the stack. */
void gs_memory_find_stack(struct gs_memory *m, uintptr_t sp)
{
    const bool first = pthread_equal(pthread_self(), first_thread);
    const uintptr_t top = first ? page_of_address((uintptr_t)__libc_stack_end) + PAGE : (uintptr_t)pthread_self();
    if (m->hi) /* deeper than before, or another stack */
        take_up_to(m, sp, m->lo, m->hi);
    else
        take_up_to(m, sp, top, top);
}

/* --- any memory ------------------------------------------------------------------------------- */

bool gs_memory_around(struct gs_memory *m, uintptr_t address, uintptr_t *lo, uintptr_t *hi)
{
    if (address - m->lo < m->hi - m->lo) {
        *lo = m->lo;
        *hi = m->hi;
        return true;
    }
    if (address - m->other_lo >= m->other_hi - m->other_lo) {
        const uintptr_t page = page_of_address(address);
        if (!page || page > UINTPTR_MAX - OTHER_PAGES * PAGE || !m->probes) return false;
        const uint32_t probed = GS_MEMORY_PROBES - m->probes--;
        const size_t pages = gs_memory_pages(page, probed < 2 ? 2u << probed : OTHER_PAGES);
        if (!pages) return false;
        if (m->other_hi != page) m->other_lo = page;
        m->other_hi = page + pages * PAGE;
    }
    *lo = m->other_lo;
    *hi = m->other_hi;
    return true;
}

__attribute__((no_sanitize("address", "thread"))) bool gs_memory_word(struct gs_memory *m, uintptr_t address,
                                                                      uintptr_t *word)
{
    uintptr_t lo, hi;
    if (address > UINTPTR_MAX - sizeof *word || !gs_memory_around(m, address, &lo, &hi)) return false;
    if (hi - address < sizeof *word && (!gs_memory_around(m, address + sizeof *word - 1, &lo, &hi) || address < lo))
        return false;
    *word = gs_memory_load(address);
    return true;
}
