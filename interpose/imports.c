#include "interpose/imports.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>
#include "interpose/stack_elf.h"

bool gs_imports_read(struct gs_imports *o, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *d = gs_elf_dynamic(info);
    size_t bytes[2] = {0};
    ElfW(Xword) kind = DT_RELA;
    *o = (struct gs_imports){.info = info};
    if (!d || d == _DYNAMIC) return false;
    for (; d->d_tag != DT_NULL; d++) {
        const void *at = gs_elf_pointer(info->dlpi_addr, d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB) o->symbols = at;
        if (d->d_tag == DT_STRTAB) o->strings = at;
        if (d->d_tag == DT_GNU_HASH) o->hash = at;
        if (d->d_tag == DT_VERSYM) o->versions = at;
        if (d->d_tag == DT_VERNEED) o->needed = at;
        if (d->d_tag == DT_VERNEEDNUM) o->needed_count = d->d_un.d_val;
        if (d->d_tag == DT_RELA) o->tables[0].at = at;
        if (d->d_tag == DT_RELASZ) bytes[0] = d->d_un.d_val;
        if (d->d_tag == DT_RELACOUNT) o->relative = d->d_un.d_val;
        if (d->d_tag == DT_JMPREL) o->tables[1].at = at;
        if (d->d_tag == DT_PLTRELSZ) bytes[1] = d->d_un.d_val;
        if (d->d_tag == DT_PLTREL) kind = d->d_un.d_val;
    }
    if (kind != DT_RELA) bytes[1] = 0;
    for (int i = 0; i < 2; i++) o->tables[i].count = o->tables[i].at ? bytes[i] / sizeof(ElfW(Rela)) : 0;
    return o->symbols && o->strings && (o->tables[0].count || o->tables[1].count);
}

bool gs_import_is_address(const ElfW(Rela) * r)
{
    const unsigned type = ELF64_R_TYPE(r->r_info);
    if (r->r_addend || !ELF64_R_SYM(r->r_info)) return false;
#if defined(__x86_64__)
    return type == R_X86_64_GLOB_DAT || type == R_X86_64_64 || type == R_X86_64_JUMP_SLOT;
#elif defined(__aarch64__)
    return type == R_AARCH64_GLOB_DAT || type == R_AARCH64_ABS64 || type == R_AARCH64_JUMP_SLOT;
#else
    return (void)type, false;
#endif
}

const char *gs_import_version(const struct gs_imports *o, size_t symbol)
{
    const ElfW(Verneed) *n = o->versions ? o->needed : NULL;
    const unsigned asked = n ? o->versions[symbol] & 0x7fff : 0;
    for (size_t i = 0; n && i < o->needed_count; i++) {
        const ElfW(Vernaux) *a = (const ElfW(Vernaux) *)((const char *)n + n->vn_aux);
        for (unsigned k = 0; k < n->vn_cnt; k++) {
            if ((a->vna_other & 0x7fff) == asked) return o->strings + a->vna_name;
            a = (const ElfW(Vernaux) *)((const char *)a + a->vna_next);
        }
        if (!n->vn_next) break;
        n = (const ElfW(Verneed) *)((const char *)n + n->vn_next);
    }
    return NULL;
}

/* The loader makes whole pages read-only after it has written the addresses there. */
static bool is_read_only(const struct dl_phdr_info *info, uintptr_t at, uintptr_t page)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const uintptr_t begin = (info->dlpi_addr + p->p_vaddr) & ~(page - 1);
        const uintptr_t end = (info->dlpi_addr + p->p_vaddr + p->p_memsz) & ~(page - 1);
        if (p->p_type == PT_GNU_RELRO && at >= begin && at < end) return true;
    }
    return false;
}

bool gs_import_write(const struct dl_phdr_info *info, uintptr_t *slot, uintptr_t now, uintptr_t value)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *const begin = (void *)((uintptr_t)slot & ~(page - 1));
    const bool closed = is_read_only(info, (uintptr_t)slot, page);
    if (closed && mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
    const bool done = __atomic_compare_exchange_n(slot, &now, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (closed) mprotect(begin, page, PROT_READ);
    return done;
}
