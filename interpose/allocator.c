#include "interpose/allocator.h"

#include <limits.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include "interpose/resolve.h"
#include "interpose/stack_elf.h"

_Atomic uintptr_t gs_allocator_lo, gs_allocator_hi;
_Atomic bool gs_allocator_waiting;

/* --- the module ------------------------------------------------------------------------------ */

static char module[PATH_MAX];

static int find_object_around(struct dl_phdr_info *info, size_t size, void *address)
{
    const uintptr_t at = (uintptr_t)address;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const uintptr_t lo = info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X) || at - lo >= p->p_memsz) continue;
        snprintf(module, sizeof module, "%s", info->dlpi_name);
        atomic_store_explicit(&gs_allocator_hi, lo + p->p_memsz, memory_order_relaxed);
        atomic_store_explicit(&gs_allocator_lo, lo, memory_order_release);
        return 1;
    }
    return 0;
}

void gs_allocator_seen(const void *caller)
{
    static atomic_flag searched = ATOMIC_FLAG_INIT;
    if (atomic_load_explicit(&gs_allocator_lo, memory_order_relaxed)) return;
    if (!atomic_flag_test_and_set(&searched)) gs_elf_each(find_object_around, (void *)(uintptr_t)caller);
}

const char *gs_allocator_module(void)
{
    return atomic_load_explicit(&gs_allocator_lo, memory_order_acquire) ? module : NULL;
}

/* --- streams --------------------------------------------------------------------------------- */

/* c10::cuda::CUDAStream wraps a c10::Stream: a device and a number, returned in two registers. The meaning of the
 * number has changed between versions, except for 0, the default stream. */
struct torch_stream {
    uint64_t device; /* c10::Device in the low 16 bits */
    int64_t number;
};
typedef struct torch_stream current_stream(int8_t device);
typedef uint64_t stream_of(const struct torch_stream *stream);

static struct {
    _Atomic int state; /* 0 not looked for */
    current_stream *current;
    stream_of *of;
} torch;
enum { UNSEEN, LOOKING, FOUND, MISSING };

static void find_allocator(void)
{
    int expected = UNSEEN;
    if (!atomic_compare_exchange_strong(&torch.state, &expected, LOOKING)) return;
    torch.current = (current_stream *)gs_find_in("libc10_cuda.so", "_ZN3c104cuda20getCurrentCUDAStreamEa");
    torch.of = (stream_of *)gs_find_in("libc10_cuda.so", "_ZNK3c104cuda10CUDAStream6streamEv");
    atomic_store_explicit(&torch.state, torch.current && torch.of ? FOUND : MISSING, memory_order_release);
}

uint64_t gs_torch_stream(int device)
{
    int state = atomic_load_explicit(&torch.state, memory_order_acquire);
    if (__builtin_expect(state == UNSEEN, 0)) {
        find_allocator();
        state = atomic_load_explicit(&torch.state, memory_order_acquire);
    }
    if (state != FOUND || device < 0 || device > INT8_MAX) return GS_STREAM_UNKNOWN;
    const struct torch_stream now = torch.current((int8_t)device);
    return now.number ? torch.of(&now) : 0;
}
