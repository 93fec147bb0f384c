/* A word that equals the address of a function's first byte in another object is assumed to be a pointer to it. */
#include "interpose/pointers.h"

#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "interpose/api.h"
#include "interpose/peek.h"
#include "interpose/resolve.h"
#include "interpose/stack_elf.h"
#include "schema/system_call.h"

enum { SLOTS = 8192, MOST = SLOTS / 2, PIECE_BYTES = 64 * 1024 };

static struct {
    struct {
        uintptr_t from, to; /* to 0: two functions are at this address */
    } slot[SLOTS];
    unsigned used;
    uintptr_t lo, hi; /* the range of all `from` */
} table;
static uintptr_t piece[PIECE_BYTES / sizeof(uintptr_t)];

static uint32_t pointer_slot_of(uintptr_t from)
{
    uint32_t i = (uint32_t)(from * 0x9e3779b97f4a7c15u >> 51);
    while (table.slot[i].from && table.slot[i].from != from) i = (i + 1) % SLOTS;
    return i;
}

static void add_pointer(uintptr_t from, uintptr_t to)
{
    const uint32_t i = pointer_slot_of(from);
    if (table.slot[i].from && table.slot[i].to != to) {
        table.slot[i].to = 0;
    } else if (!table.slot[i].from && table.used < MOST) {
        table.slot[i].from = from;
        table.slot[i].to = to;
        table.used++;
    }
    table.lo = from < table.lo ? from : table.lo;
    table.hi = from > table.hi ? from : table.hi;
}

void gs_pointers_prepare(bool back)
{
    memset(&table, 0, sizeof table);
    table.lo = UINTPTR_MAX;
    for (uint16_t api = 1; api < GS_API_CUDA_END; api++) {
        for (int v = 0; v < GS_VERSIONS; v++) {
            const uintptr_t wrapper = (uintptr_t)gs_wrappers[api][v];
            const uintptr_t real = wrapper ? (uintptr_t)gs_real_own(api, (enum gs_version)v) : 0;
            if (real) add_pointer(back ? wrapper : real, back ? real : wrapper);
        }
    }
}

/* The program may have made the page read-only. The kernel reports that if the present value is written to it. */
static bool is_writable(uintptr_t at, uintptr_t now)
{
    const struct iovec local = {&now, sizeof now}, remote = {(void *)at, sizeof now};
    return gs_system_call(SYS_process_vm_writev, (long)getpid(), &local, 1ul, &remote, 1ul, 0ul) == sizeof now;
}

static void reroute_piece(uintptr_t at, size_t words, const struct gs_elf_range *own)
{
    for (size_t i = 0; i < words; i++) {
        uintptr_t now = piece[i];
        if (now < table.lo || now > table.hi || now - own->lo < own->hi - own->lo) continue;
        const uintptr_t to = table.slot[pointer_slot_of(now)].to, place = at + i * sizeof now;
        if (to && is_writable(place, now))
            __atomic_compare_exchange_n((uintptr_t *)place, &now, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
}

void gs_pointers_reroute(const struct dl_phdr_info *info)
{
    const struct gs_elf_range own = gs_elf_range(info);
    if (!table.used || gs_elf_dynamic(info) == _DYNAMIC) return;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_W)) continue;
        const uintptr_t end = info->dlpi_addr + p->p_vaddr + p->p_memsz;
        for (uintptr_t at = (info->dlpi_addr + p->p_vaddr + 7) & ~(uintptr_t)7; at < end; at += sizeof piece) {
            const size_t bytes = gs_peek(at, piece, end - at < sizeof piece ? end - at : sizeof piece);
            reroute_piece(at, bytes / sizeof *piece, &own);
        }
    }
}
