#include "interpose/weak.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include "interpose/imports.h"
#include "interpose/resolve.h"
#include "interpose/stack_elf.h"

static bool is_weak_cuda(const struct gs_imports *o, size_t symbol)
{
    const ElfW(Sym) *s = &o->symbols[symbol];
    const char *name = o->strings + s->st_name;
    return ELF64_ST_BIND(s->st_info) == STB_WEAK && s->st_shndx == SHN_UNDEF && name[0] == 'c' && name[1] == 'u';
}

/* The hash table omits undefined symbols, which therefore come first: there are few to check, and mostly none matches.
 * The table of a program that exports nothing does not state how many there are. */
static bool may_have_weak_cuda(const struct gs_imports *o)
{
    if (o->hash[1] <= 1) return true;
    for (size_t i = 1; i < o->hash[1]; i++)
        if (is_weak_cuda(o, i)) return true;
    return false;
}

static int clear_weak(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct gs_elf_range *own = data;
    struct gs_imports o;
    if (!gs_imports_read(&o, info) || !o.hash || !may_have_weak_cuda(&o)) return 0;
    for (size_t i = o.relative; i < o.tables[0].count; i++) {
        const ElfW(Rela) *r = &o.tables[0].at[i];
        const size_t symbol = ELF64_R_SYM(r->r_info);
        uintptr_t *slot = (uintptr_t *)(info->dlpi_addr + r->r_offset);
        if (!gs_import_is_address(r) || !is_weak_cuda(&o, symbol)) continue;
        if (*slot < own->lo || *slot >= own->hi) continue;
        if (!gs_find_in("", o.strings + o.symbols[symbol].st_name)) gs_import_write(info, slot, *slot, 0);
    }
    return 0;
}

static int find_own_object(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct gs_elf_range range = gs_elf_range(info);
    if ((uintptr_t)_DYNAMIC < range.lo || (uintptr_t)_DYNAMIC >= range.hi) return 0;
    *(struct gs_elf_range *)data = range;
    return 1;
}

void gs_weak_load(void)
{
    struct gs_elf_range own;
    if (gs_elf_each(find_own_object, &own)) gs_elf_each(clear_weak, &own);
}
