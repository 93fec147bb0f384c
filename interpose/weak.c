#include "interpose/weak.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "interpose/resolve.h"
#include "interpose/stack_elf.h"

#if defined(__x86_64__)
#define IS_ADDRESS(type) ((type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_ADDRESS(type) ((type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#define IS_ADDRESS(type) false
#endif

struct object {
    const struct dl_phdr_info *info;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash;
    const ElfW(Rela) * relocations;
    size_t bytes, relative; /* of the relocations; how many of them, the first, have no symbol */
};

static bool read_object(struct object *o, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *d = gs_elf_dynamic(info);
    *o = (struct object){.info = info};
    if (!d || d == _DYNAMIC) return false;
    for (; d->d_tag != DT_NULL; d++) {
        const void *at = gs_elf_pointer(info->dlpi_addr, d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB) o->symbols = at;
        if (d->d_tag == DT_STRTAB) o->strings = at;
        if (d->d_tag == DT_GNU_HASH) o->hash = at;
        if (d->d_tag == DT_RELA) o->relocations = at;
        if (d->d_tag == DT_RELASZ) o->bytes = d->d_un.d_val;
        if (d->d_tag == DT_RELACOUNT) o->relative = d->d_un.d_val;
    }
    return o->symbols && o->strings && o->hash && o->relocations;
}

static bool is_weak_cuda(const struct object *o, size_t symbol)
{
    const ElfW(Sym) *s = &o->symbols[symbol];
    const char *name = o->strings + s->st_name;
    return ELF64_ST_BIND(s->st_info) == STB_WEAK && s->st_shndx == SHN_UNDEF && name[0] == 'c' && name[1] == 'u';
}

/* The hash table leaves out what is undefined, which therefore comes first: few symbols to look at, and mostly
 * none is found. The table of a program that defines nothing for others does not say how many there are. */
static bool may_have_weak_cuda(const struct object *o)
{
    if (o->hash[1] <= 1) return true;
    for (size_t i = 1; i < o->hash[1]; i++)
        if (is_weak_cuda(o, i)) return true;
    return false;
}

/* The loader has made the page read-only when it had written the address there. */
static bool is_read_only(const struct dl_phdr_info *info, uintptr_t at)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_GNU_RELRO && at >= begin && at < begin + p->p_memsz) return true;
    }
    return false;
}

static void clear(const struct dl_phdr_info *info, uintptr_t *slot)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *begin = (void *)((uintptr_t)slot & ~(uintptr_t)(page - 1));
    const bool closed = is_read_only(info, (uintptr_t)slot);
    if (closed && mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return;
    *slot = 0;
    if (closed) mprotect(begin, page, PROT_READ);
}

static int clear_weak(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct gs_elf_range *own = data;
    struct object o;
    if (!read_object(&o, info) || !may_have_weak_cuda(&o)) return 0;
    for (size_t i = o.relative; i < o.bytes / sizeof *o.relocations; i++) {
        const ElfW(Rela) *r = &o.relocations[i];
        const size_t symbol = ELF64_R_SYM(r->r_info);
        uintptr_t *slot = (uintptr_t *)(info->dlpi_addr + r->r_offset);
        if (!IS_ADDRESS(ELF64_R_TYPE(r->r_info)) || r->r_addend || !is_weak_cuda(&o, symbol)) continue;
        if (*slot < own->lo || *slot >= own->hi) continue;
        if (!gs_find_in("", o.strings + o.symbols[symbol].st_name)) clear(info, slot);
    }
    return 0;
}

static int find_own(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct gs_elf_range range = gs_elf_range(info);
    if ((uintptr_t)_DYNAMIC < range.lo || (uintptr_t)_DYNAMIC >= range.hi) return 0;
    *(struct gs_elf_range *)data = range;
    return 1;
}

void gs_weak_load(void)
{
    struct gs_elf_range own;
    if (gs_elf_each(find_own, &own)) gs_elf_each(clear_weak, &own);
}
