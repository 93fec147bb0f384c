#include "analyzer/symbol/symtab.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/mapped.h"

/* libtorch has 300,000 functions, and a report needs some hundreds: sorting all of them took longer than the rest of
 * the report. Instead, symbols are distributed over stretches of address space, and a name is read only when it is
 * requested: the strings alone are 80 MB. */
struct symbol {
    uint32_t address, size; /* from the module's start; nothing beyond 4 GiB of a module */
    uint32_t number : 30, local : 1, weak : 1;
};

struct symbol_table {
    Dwfl_Module *mod;
    struct symbol *symbols; /* by stretch, unordered within one */
    uint32_t *first;        /* of each stretch, and one past the last */
    size_t stretches;
    uint64_t start; /* of the module */
    uint32_t low;
    unsigned shift; /* a stretch is 1 << shift bytes */
};

enum { A_STRETCH = 8 /* symbols, on average */, RELEASE = 1 << 16 /* released after this many symbols */ };

/* libdwfl looks up the section of each symbol, which takes longer than all else here. So the file's own table is read,
 * and libdwfl is asked for the first symbol of a section only: the others are moved by as much. */
struct table_reading {
    Dwfl_Module *mod;
    uint64_t start;
    Elf *elf;               /* that has the table */
    const Elf64_Sym *table; /* NULL: of 32 bits, or libdwfl joins several tables: it is asked for each symbol */
    GElf_Section section;
    GElf_Addr moved; /* symbols of that section */
};

static bool is_symbol_table(Elf_Scn *s, GElf_Shdr *head)
{
    return gelf_getshdr(s, head) && (head->sh_type == SHT_SYMTAB || head->sh_type == SHT_DYNSYM);
}

static struct table_reading begin_table(Dwfl_Module *mod, int count)
{
    struct table_reading r = {.mod = mod};
    GElf_Sym sym;
    GElf_Addr address;
    GElf_Shdr head;

    dwfl_module_info(mod, NULL, &r.start, NULL, NULL, NULL, NULL, NULL);
    if (count > 0) dwfl_module_getsym_info(mod, count - 1, &sym, &address, NULL, &r.elf, NULL);
    for (Elf_Scn *s = NULL; r.elf && gelf_getclass(r.elf) == ELFCLASS64 && (s = elf_nextscn(r.elf, s));) {
        if (!is_symbol_table(s, &head) || (r.table && head.sh_type == SHT_DYNSYM)) continue;
        const Elf_Data *data =
            head.sh_entsize && head.sh_size / head.sh_entsize == (size_t)count ? elf_getdata(s, NULL) : NULL;
        const bool whole = data && data->d_size / sizeof *r.table >= (size_t)count;
        r.table = whole && (uintptr_t)data->d_buf % _Alignof(Elf64_Sym) == 0 ? data->d_buf : NULL;
        if (head.sh_type == SHT_SYMTAB) break;
    }
    return r;
}

static bool is_function_symbol(const GElf_Sym *sym, GElf_Word section)
{
    const int type = GELF_ST_TYPE(sym->st_info);
    return sym->st_name && section != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC);
}

static bool read_symbol(struct table_reading *r, int number, struct symbol *s)
{
    GElf_Sym sym;
    GElf_Addr address;
    GElf_Word section;

    if (r->table && !is_function_symbol(&r->table[number], r->table[number].st_shndx)) return false;
    if (r->table && r->table[number].st_shndx == r->section) {
        sym = r->table[number];
        address = sym.st_value + r->moved;
    } else {
        const char *name = dwfl_module_getsym_info(r->mod, number, &sym, &address, &section, NULL, NULL);
        if (!name || !is_function_symbol(&sym, section)) return false;
        r->section = sym.st_shndx < SHN_LORESERVE ? sym.st_shndx : SHN_UNDEF;
        r->moved = address - sym.st_value;
    }
    if (address - r->start > UINT32_MAX || number >> 30) return false;
    *s = (struct symbol){.address = (uint32_t)(address - r->start),
                         .size = sym.st_size > UINT32_MAX ? UINT32_MAX : (uint32_t)sym.st_size,
                         .number = (uint32_t)number & 0x3fffffff,
                         .local = GELF_ST_BIND(sym.st_info) == STB_LOCAL,
                         .weak = GELF_ST_BIND(sym.st_info) == STB_WEAK};
    return true;
}

static size_t stretch_of(const struct symbol_table *t, uint32_t address)
{
    return (size_t)((address - t->low) >> t->shift);
}

/* To a second list: moves within one would each wait for the memory that the one before touched. */
static void deal_symbols(struct symbol_table *t, const struct symbol *all, size_t n)
{
    uint32_t high = 0, *next;

    t->symbols = arena_realloc(NULL, n, sizeof *t->symbols);
    t->low = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        t->low = all[i].address < t->low ? all[i].address : t->low;
        high = all[i].address > high ? all[i].address : high;
    }
    while ((high - t->low) >> t->shift > n / A_STRETCH + 1) t->shift++;
    t->stretches = stretch_of(t, high) + 1;
    t->first = arena_zeroed(t->stretches + 1, sizeof *t->first);
    next = arena_realloc(NULL, t->stretches + 1, sizeof *next);
    for (size_t i = 0; i < n; i++) t->first[stretch_of(t, all[i].address) + 1]++;
    for (size_t i = 0; i < t->stretches; i++) t->first[i + 1] += t->first[i];
    memcpy(next, t->first, (t->stretches + 1) * sizeof *next);
    for (size_t i = 0; i < n; i++) t->symbols[next[stretch_of(t, all[i].address)]++] = all[i];
    free(next);
}

/* The table is read once from beginning to end: 27 MiB for PyTorch's libraries. */
static void release_read(const struct table_reading *r)
{
    GElf_Shdr head;

    for (Elf_Scn *s = NULL; r->elf && (s = elf_nextscn(r->elf, s));) {
        Elf_Data *data = is_symbol_table(s, &head) ? elf_rawdata(s, NULL) : NULL;
        if (data) mapped_release(data->d_buf, data->d_size);
    }
}

struct symbol_table *symbol_table_new(Dwfl_Module *mod)
{
    int count = dwfl_module_getsymtab(mod);
    struct symbol *all = arena_realloc(NULL, count > 0 ? (size_t)count : 0, sizeof *all);
    struct symbol_table *t = arena_zeroed(1, sizeof *t);
    struct table_reading r = begin_table(mod, count);
    size_t n = 0;

    t->mod = mod;
    t->start = r.start;
    for (int i = 0; i < count; i++) {
        n += read_symbol(&r, i, &all[n]);
        if (i % RELEASE == RELEASE - 1) release_read(&r);
    }
    if (!n) {
        ARENA_RELEASE(all, t);
        return NULL;
    }
    deal_symbols(t, all, n);
    free(all);
    return t;
}

void symbol_table_free(struct symbol_table *t)
{
    if (!t) return;
    ARENA_RELEASE(t->symbols, t->first, t);
}

static const char *symbol_name_of(const struct symbol_table *t, const struct symbol *s)
{
    GElf_Sym sym;
    GElf_Addr address;

    return dwfl_module_getsym_info(t->mod, (int)s->number, &sym, &address, NULL, NULL, NULL);
}

/* A symbol without a size (assembler) extends to the next one; after a symbol with a size, an address is in a function
 * that has no name here. */
static bool symbol_covers(const struct symbol *s, uint32_t address)
{
    return !s->size || address - s->address < s->size;
}

/* Prefers the first of "malloc", "__libc_malloc" and a local alias: global, few underscores. */
static int symbol_rank_of(const struct symbol *s, const char *name)
{
    size_t underscores = strspn(name, "_");

    return (int)s->local * 8 + (underscores > 3 ? 3 : (int)underscores) * 2 + s->weak;
}

static bool is_symbol_better(const struct symbol_table *t, const struct symbol *a, const struct symbol *b,
                             uint32_t address)
{
    if (a->address != b->address) return a->address > b->address;
    if (symbol_covers(a, address) != symbol_covers(b, address)) return symbol_covers(a, address);
    const char *x = symbol_name_of(t, a), *y = symbol_name_of(t, b);
    if (!x || !y) return x != NULL;
    int difference = symbol_rank_of(a, x) - symbol_rank_of(b, y);
    return difference ? difference < 0 : strcmp(x, y) < 0;
}

const char *symbol_table_at(struct symbol_table *t, uint64_t at)
{
    const struct symbol *best = NULL;

    if (!t || at - t->start > UINT32_MAX || at - t->start < t->low) return NULL;
    const uint32_t address = (uint32_t)(at - t->start);
    size_t stretch = stretch_of(t, address);
    stretch = stretch < t->stretches ? stretch : t->stretches - 1;
    for (; !best; stretch--) {
        for (uint32_t i = t->first[stretch]; i < t->first[stretch + 1]; i++)
            if (t->symbols[i].address <= address && (!best || is_symbol_better(t, &t->symbols[i], best, address)))
                best = &t->symbols[i];
        if (!stretch) break;
    }
    return best && symbol_covers(best, address) ? symbol_name_of(t, best) : NULL;
}
