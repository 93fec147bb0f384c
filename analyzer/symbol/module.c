#include "analyzer/symbol/module.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct symbol {
    uint64_t address, size;
    const char *name;
    unsigned char rank; /* of several names for one address, the smallest is shown */
};

struct module {
    Dwfl *dwfl;
    Dwfl_Module *mod;
    struct symbol *symbols; /* by address, one each; NULL until asked for */
    size_t n;
    bool have_symbols;
};

/* ---------------------------------------------------------------- opening */

/* A path from a database may be anything: only a plain file is opened, so that a FIFO does not hang
 * and a device does not act. */
static int open_plain(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* False only where the file says that it is another one than was recorded. */
static bool same_build(Dwfl_Module *mod, const char *build_id)
{
    const unsigned char *bits;
    GElf_Addr where;
    int n = dwfl_module_build_id(mod, &bits, &where);

    if (!build_id || !*build_id)
        return true;
    if (n <= 0 || strlen(build_id) != 2 * (size_t)n)
        return false;
    for (int i = 0; i < n; i++) {
        char hex[3];
        snprintf(hex, sizeof hex, "%02x", bits[i]);
        if (strncasecmp(hex, build_id + 2 * i, 2) != 0)
            return false;
    }
    return true;
}

struct module *module_open(const char *path, const char *build_id, const char **problem)
{
    static const Dwfl_Callbacks callbacks = {
        .find_elf = dwfl_build_id_find_elf,
        .find_debuginfo = dwfl_standard_find_debuginfo,
        .section_address = dwfl_offline_section_address,
    };
    struct module *m = calloc(1, sizeof *m);
    int fd = open_plain(path);

    *problem = "cannot be read";
    if (!m || fd < 0 || !(m->dwfl = dwfl_begin(&callbacks))) {
        if (fd >= 0)
            close(fd);
        free(m);
        return NULL;
    }
    dwfl_report_begin(m->dwfl);
    m->mod = dwfl_report_elf(m->dwfl, path, path, fd, 0, true); /* takes fd where it succeeds */
    dwfl_report_end(m->dwfl, NULL, NULL);
    if (!m->mod) {
        *problem = "is no ELF file";
        close(fd);
    } else if (!same_build(m->mod, build_id)) {
        *problem = "has changed since the recording";
        m->mod = NULL;
    }
    if (m->mod)
        return m;
    module_close(m);
    return NULL;
}

void module_close(struct module *m)
{
    if (m->dwfl)
        dwfl_end(m->dwfl);
    free(m->symbols);
    free(m);
}

/* ---------------------------------------------------------------- the symbol table */

/* Of "malloc", "__libc_malloc" and a local alias the first: global, few underscores. */
static unsigned char rank_of(const GElf_Sym *sym, const char *name)
{
    size_t underscores = strspn(name, "_");

    return (unsigned char)((GELF_ST_BIND(sym->st_info) == STB_LOCAL) * 8 +
                           (underscores > 3 ? 3 : underscores) * 2 +
                           (GELF_ST_BIND(sym->st_info) == STB_WEAK));
}

static int by_address(const void *a, const void *b)
{
    const struct symbol *x = a, *y = b;

    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x->rank != y->rank ? (int)x->rank - (int)y->rank : strcmp(x->name, y->name);
}

static void load_symbols(struct module *m)
{
    int count = dwfl_module_getsymtab(m->mod);
    size_t kept = 0;

    m->have_symbols = true;
    if (count <= 0 || !(m->symbols = malloc((size_t)count * sizeof *m->symbols)))
        return;
    for (int i = 0; i < count; i++) {
        GElf_Sym sym;
        GElf_Addr address;
        GElf_Word section;
        const char *name = dwfl_module_getsym_info(m->mod, i, &sym, &address, &section, NULL, NULL);
        int type = GELF_ST_TYPE(sym.st_info);

        if (!name || !*name || section == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC))
            continue;
        m->symbols[m->n++] = (struct symbol){address, sym.st_size, name, rank_of(&sym, name)};
    }
    qsort(m->symbols, m->n, sizeof *m->symbols, by_address);
    for (size_t i = 0; i < m->n; i++)
        if (!kept || m->symbols[kept - 1].address != m->symbols[i].address)
            m->symbols[kept++] = m->symbols[i];
    m->n = kept;
}

/* libdw's own look-up is a walk over the whole table: too slow for libtorch's 300,000 names. */
static const char *symbol_at(struct module *m, uint64_t address)
{
    size_t low = 0, high;

    if (!m->have_symbols)
        load_symbols(m);
    high = m->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (m->symbols[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    const struct symbol *s = &m->symbols[low - 1];
    /* Without a size (assembler) it reaches to the next one; with a size, an address behind it is
     * in a function that has no name here. */
    return !s->size || address - s->address < s->size ? s->name : NULL;
}

/* ---------------------------------------------------------------- DWARF */

static const char *text_attribute(Dwarf_Die *die, unsigned name)
{
    Dwarf_Attribute a;

    return dwarf_formstring(dwarf_attr_integrate(die, name, &a));
}

/* The innermost function, inlined or not, around an address. */
static const char *dwarf_function(Dwarf_Die *unit, Dwarf_Addr address)
{
    Dwarf_Die *scopes = NULL;
    int n = dwarf_getscopes(unit, address, &scopes);
    const char *name = NULL;

    for (int i = 0; i < n && !name; i++) {
        int tag = dwarf_tag(&scopes[i]);
        if (tag != DW_TAG_subprogram && tag != DW_TAG_inlined_subroutine)
            continue;
        name = text_attribute(&scopes[i], DW_AT_linkage_name);
        if (!name)
            name = text_attribute(&scopes[i], DW_AT_MIPS_linkage_name);
        if (!name)
            name = text_attribute(&scopes[i], DW_AT_name);
    }
    free(scopes);
    return name;
}

bool module_find(struct module *m, uint64_t address, struct module_place *place)
{
    Dwarf_Addr bias;

    *place = (struct module_place){0};
    if (dwfl_addrmodule(m->dwfl, address) != m->mod)
        return false;
    Dwarf_Die *unit = dwfl_module_addrdie(m->mod, address, &bias);
    if (unit) {
        Dwfl_Line *line = dwfl_module_getsrc(m->mod, address);
        place->function = dwarf_function(unit, address - bias);
        place->file = dwfl_lineinfo(line, NULL, &place->line, NULL, NULL, NULL);
        place->folder = line ? dwfl_line_comp_dir(line) : NULL;
    }
    if (!place->function)
        place->function = symbol_at(m, address);
    return place->function || place->file;
}
