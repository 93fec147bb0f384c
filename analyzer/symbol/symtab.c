#include "analyzer/symbol/symtab.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Libtorch has 300,000 functions and a report asks for some hundreds: sorting them all cost more than
 * the rest of it. They are dealt into stretches of address space instead, and a name is read only
 * where it is asked for: the strings alone are 80 MB. */
struct symbol {
    uint64_t address, size;
    int number;
    bool local, weak;
};

struct symbol_table {
    Dwfl_Module *mod;
    struct symbol *symbols; /* by stretch, in no order within */
    uint32_t *first;        /* of each stretch, and one past the last */
    size_t stretches;
    uint64_t low;
    unsigned shift; /* a stretch is 1 << shift bytes */
};

enum { A_STRETCH = 8 /* symbols, on average */ };

static bool read_symbol(Dwfl_Module *mod, int number, struct symbol *s)
{
    GElf_Sym sym;
    GElf_Addr address;
    GElf_Word section;
    const char *name = dwfl_module_getsym_info(mod, number, &sym, &address, &section, NULL, NULL);
    int type = GELF_ST_TYPE(sym.st_info);

    if (!name || !sym.st_name || section == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC)) return false;
    *s = (struct symbol){address, sym.st_size, number, GELF_ST_BIND(sym.st_info) == STB_LOCAL,
                         GELF_ST_BIND(sym.st_info) == STB_WEAK};
    return true;
}

static size_t stretch_of(const struct symbol_table *t, uint64_t address)
{
    return (size_t)((address - t->low) >> t->shift);
}

static bool deal(struct symbol_table *t, struct symbol *all, size_t n)
{
    uint64_t high = 0;

    t->low = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        t->low = all[i].address < t->low ? all[i].address : t->low;
        high = all[i].address > high ? all[i].address : high;
    }
    while ((high - t->low) >> t->shift > n / A_STRETCH + 1) t->shift++;
    t->stretches = stretch_of(t, high) + 1;
    t->first = calloc(t->stretches + 1, sizeof *t->first);
    t->symbols = malloc(n * sizeof *t->symbols);
    if (!t->first || !t->symbols) return false;
    for (size_t i = 0; i < n; i++) t->first[stretch_of(t, all[i].address) + 1]++;
    for (size_t i = 0; i < t->stretches; i++) t->first[i + 1] += t->first[i];
    for (size_t i = n; i-- > 0;) /* from the back: `first` is moved there and comes back below */
        t->symbols[--t->first[stretch_of(t, all[i].address) + 1]] = all[i];
    memmove(t->first, t->first + 1, t->stretches * sizeof *t->first);
    t->first[t->stretches] = (uint32_t)n;
    return true;
}

struct symbol_table *symbol_table_new(Dwfl_Module *mod)
{
    int count = dwfl_module_getsymtab(mod);
    struct symbol *all = count > 0 ? malloc((size_t)count * sizeof *all) : NULL;
    struct symbol_table *t = all ? calloc(1, sizeof *t) : NULL;
    size_t n = 0;

    for (int i = 0; t && i < count; i++) n += read_symbol(mod, i, &all[n]);
    if (t) t->mod = mod;
    if (!n || !deal(t, all, n)) {
        symbol_table_free(t);
        t = NULL;
    }
    free(all);
    return t;
}

void symbol_table_free(struct symbol_table *t)
{
    if (!t) return;
    free(t->symbols);
    free(t->first);
    free(t);
}

static const char *name_of(const struct symbol_table *t, const struct symbol *s)
{
    GElf_Sym sym;
    GElf_Addr address;

    return dwfl_module_getsym_info(t->mod, s->number, &sym, &address, NULL, NULL, NULL);
}

/* Without a size (assembler) it reaches to the next one; with a size, an address behind it is in a
 * function that has no name here. */
static bool covers(const struct symbol *s, uint64_t address)
{
    return !s->size || address - s->address < s->size;
}

/* Of "malloc", "__libc_malloc" and a local alias the first: global, few underscores. */
static int rank_of(const struct symbol *s, const char *name)
{
    size_t underscores = strspn(name, "_");

    return s->local * 8 + (underscores > 3 ? 3 : (int)underscores) * 2 + s->weak;
}

static bool better(const struct symbol_table *t, const struct symbol *a, const struct symbol *b, uint64_t address)
{
    if (a->address != b->address) return a->address > b->address;
    if (covers(a, address) != covers(b, address)) return covers(a, address);
    const char *x = name_of(t, a), *y = name_of(t, b);
    if (!x || !y) return x != NULL;
    int difference = rank_of(a, x) - rank_of(b, y);
    return difference ? difference < 0 : strcmp(x, y) < 0;
}

const char *symbol_table_at(struct symbol_table *t, uint64_t address)
{
    const struct symbol *best = NULL;

    if (!t || address < t->low) return NULL;
    size_t stretch = stretch_of(t, address);
    stretch = stretch < t->stretches ? stretch : t->stretches - 1;
    for (; !best; stretch--) {
        for (uint32_t i = t->first[stretch]; i < t->first[stretch + 1]; i++)
            if (t->symbols[i].address <= address && (!best || better(t, &t->symbols[i], best, address)))
                best = &t->symbols[i];
        if (!stretch) break;
    }
    return best && covers(best, address) ? name_of(t, best) : NULL;
}
