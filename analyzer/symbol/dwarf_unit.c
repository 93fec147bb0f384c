#include "analyzer/symbol/dwarf_unit.h"

#include <dwarf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"
#include "analyzer/symbol/sections.h"

enum { DEPTH_MAX = 64, VISITS_MAX = 20000000, PATH_NAMES = 16 };

struct scope { /* a namespace or a class */
    const char *name;
    uint32_t parent; /* index + 1, 0 none */
};

struct function { /* a range of its addresses */
    Dwarf_Addr low, high;
    Dwarf_Die die;
};

struct named { /* where a function is declared: its scope, by the offset of its entry */
    Dwarf_Off offset;
    uint32_t scope;
};

struct unit {
    Dwarf_Die die;  /* in the file itself: contains the lines */
    Dwarf_Die tree; /* contains the functions: in a .dwo file, or the same */
    bool read;
    ARENA_LIST(struct scope, scopes);
    ARENA_LIST(struct function, functions); /* by low */
    ARENA_LIST(struct named, named);        /* by offset */
    unsigned visits;
};

struct range {
    Dwarf_Addr low, high;
    uint32_t unit;
};

struct symbol_units {
    Dwarf *dwarf;
    struct symbol_sections *sections; /* NULL: all units are in `list` */
    struct unit *list;
    size_t n, cap;
    ARENA_LIST(struct range, ranges); /* by low */
};

#define BY(name, type, member)                    \
    static int name(const void *a, const void *b) \
    {                                             \
        const struct type *x = a, *y = b;         \
        return SORT_UP(x->member, y->member);     \
    }
BY(by_range, range, low)
BY(order_scopes_by_function, function, low)
BY(by_offset, named, offset)

static void add_unit(struct symbol_units *u, Dwarf_Die *die)
{
    Dwarf_Addr base, low, high;
    uint32_t number = (uint32_t)u->n;
    size_t before = u->ranges_n;

    /* The linker has discarded functions that start at 0. */
    for (ptrdiff_t at = 0; (at = dwarf_ranges(die, at, &base, &low, &high)) > 0;)
        if (low && low < high) *ARENA_ADD(u->ranges) = (struct range){low, high, number};
    if (u->ranges_n != before) *ARENA_PUSH(u->list, u->n, u->cap) = (struct unit){.die = *die};
}

static void free_units(struct symbol_units *u)
{
    for (size_t i = 0; i < u->n; i++) ARENA_RELEASE(u->list[i].scopes, u->list[i].functions, u->list[i].named);
    u->n = u->ranges_n = 0;
}

static void list_units(struct symbol_units *u)
{
    Dwarf_CU *cu = NULL;
    Dwarf_Die die;
    uint8_t type;

    while (dwarf_get_units(u->dwarf, cu, &cu, NULL, &type, &die, NULL) == 0)
        if (type == DW_UT_compile || type == DW_UT_skeleton) add_unit(u, &die);
    SORT(u->ranges, u->ranges_n, by_range);
}

struct symbol_units *symbol_units_new(Dwarf *dwarf, struct symbol_sections *sections)
{
    struct symbol_units *u = ARENA_NEW(struct symbol_units, .dwarf = dwarf, .sections = sections);

    if (!sections) list_units(u);
    return u;
}

void symbol_units_free(struct symbol_units *u)
{
    if (!u) return;
    free_units(u);
    ARENA_RELEASE(u->list, u->ranges, u);
}

static const char *text_attribute(Dwarf_Die *die, unsigned name)
{
    Dwarf_Attribute a;

    return dwarf_formstring(dwarf_attr_integrate(die, name, &a));
}

static const char *linkage_name(Dwarf_Die *die)
{
    const char *name = text_attribute(die, DW_AT_linkage_name);

    return name ? name : text_attribute(die, DW_AT_MIPS_linkage_name);
}

static void add_function(struct unit *u, Dwarf_Die *die, uint32_t scope)
{
    Dwarf_Addr base, low, high;

    *ARENA_ADD(u->named) = (struct named){dwarf_dieoffset(die), scope};
    for (ptrdiff_t at = 0; (at = dwarf_ranges(die, at, &base, &low, &high)) > 0;)
        if (low && low < high) *ARENA_ADD(u->functions) = (struct function){low, high, *die};
}

static const char unnamed[] = "(unnamed)";

static uint32_t add_inline_scope(struct unit *u, Dwarf_Die *die, uint32_t parent)
{
    const char *name = dwarf_diename(die);

    if (!name) name = dwarf_tag(die) == DW_TAG_namespace ? "(anonymous namespace)" : unnamed;
    *ARENA_ADD(u->scopes) = (struct scope){name, parent};
    return (uint32_t)u->scopes_n;
}

static void walk_dies(struct unit *u, Dwarf_Die *parent, uint32_t scope, unsigned depth)
{
    Dwarf_Die die;

    if (depth > DEPTH_MAX || dwarf_child(parent, &die) != 0) return;
    do {
        if (++u->visits > VISITS_MAX) return;
        switch (dwarf_tag(&die)) {
        case DW_TAG_namespace:
        case DW_TAG_module:
        case DW_TAG_class_type:
        case DW_TAG_structure_type:
        case DW_TAG_union_type:
        case DW_TAG_enumeration_type:
            if (dwarf_haschildren(&die) > 0) walk_dies(u, &die, add_inline_scope(u, &die, scope), depth + 1);
            break;
        case DW_TAG_subprogram:
            add_function(u, &die, scope);
            walk_dies(u, &die, scope, depth + 1);
            break;
        case DW_TAG_lexical_block: walk_dies(u, &die, scope, depth + 1); break;
        default:;
        }
    } while (dwarf_siblingof(&die, &die) == 0);
}

static void read_unit(struct unit *u)
{
    Dwarf_Die split;

    u->read = true;
    u->tree = u->die;
    if (dwarf_cu_info(u->die.cu, NULL, NULL, NULL, &split, NULL, NULL, NULL) == 0 && split.cu) u->tree = split;
    walk_dies(u, &u->tree, 0, 0);
    SORT(u->functions, u->functions_n, order_scopes_by_function);
    SORT(u->named, u->named_n, by_offset);
}

/* The entry with the name: for an inlined or cloned function the abstract one, for a member its declaration. */
static Dwarf_Die declared_die(Dwarf_Die die)
{
    static const unsigned links[] = {DW_AT_abstract_origin, DW_AT_specification};
    Dwarf_Attribute a;
    Dwarf_Die next;

    for (unsigned hops = 0; hops < 8; hops++) {
        bool moved = false;
        for (size_t i = 0; i < 2 && !moved; i++) moved = dwarf_attr(&die, links[i], &a) && dwarf_formref_die(&a, &next);
        if (!moved) break;
        die = next;
    }
    return die;
}

/* "deep::inner" for functions without a mangled name: static functions that are only inlined. */
static char *scoped_name(const struct unit *u, Dwarf_Die *die, const char *name)
{
    Dwarf_Die where = declared_die(*die);
    struct named key = {.offset = dwarf_dieoffset(&where)};
    const struct named *found =
        where.cu == u->tree.cu && u->named_n ? bsearch(&key, u->named, u->named_n, sizeof key, by_offset) : NULL;
    const char *parts[PATH_NAMES];
    size_t n = 0, length = strlen(name) + 1;

    for (uint32_t s = found ? found->scope : 0; s && n < PATH_NAMES; s = u->scopes[s - 1].parent) {
        parts[n++] = u->scopes[s - 1].name;
        length += strlen(u->scopes[s - 1].name) + 2;
    }
    if (n && strcmp(name, "operator()") == 0 && strcmp(parts[0], unnamed) == 0) parts[0] = "(lambda)";
    char *text = arena_realloc(NULL, length, 1), *at = text;
    while (n--) at += sprintf(at, "%s::", parts[n]);
    strcpy(at, name);
    return text;
}

static void name_it(const struct unit *u, Dwarf_Die *die, struct symbol_unit_place *place)
{
    const char *linkage = linkage_name(die), *name = linkage ? NULL : text_attribute(die, DW_AT_name);

    place->mangled = linkage != NULL;
    place->function = linkage ? arena_copy(linkage) : name ? scoped_name(u, die, name) : NULL;
}

static struct unit *listed_unit(struct symbol_units *u, Dwarf_Addr address)
{
    size_t low = SORT_COUNT(u->ranges_n, i, u->ranges[i].low <= address);

    for (size_t back = 0; low-- > 0 && back < 8; back++) /* damaged units may overlap */
        if (address < u->ranges[low].high) return &u->list[u->ranges[low].unit];
    return NULL;
}

/* Whether entries of the unit may refer to others: to those of partial units, or that gcc's -flto wrote. */
static bool refers_to_others(Dwarf_Die *unit)
{
    Dwarf_Abbrev *abbrev;
    size_t length;
    unsigned name, form;

    for (Dwarf_Off at = 0; (abbrev = dwarf_getabbrev(unit, at, &length)) && abbrev != DWARF_END_ABBREV; at += length)
        for (size_t i = 0; dwarf_getabbrevattr(abbrev, i, &name, &form, NULL) == 0; i++)
            if (form == DW_FORM_ref_addr || form == DW_FORM_ref_sig8) return true;
    return !abbrev;
}

/* Inflates and lists the unit that has the address. False: all units are needed. */
static bool list_unit_of(struct symbol_units *u, Dwarf_Addr address)
{
    enum { UNIT_HEADER_MAX = 24 };
    uint64_t at;
    Dwarf_Off next;
    size_t header;
    Dwarf_Die die;

    if (!symbol_sections_find(u->sections, address, &at) ||
        !symbol_sections_inflate(u->sections, at + UNIT_HEADER_MAX) ||
        dwarf_nextcu(u->dwarf, at, &next, &header, NULL, NULL, NULL) != 0 ||
        !symbol_sections_inflate(u->sections, next) || !dwarf_offdie(u->dwarf, at + header, &die) ||
        refers_to_others(&die))
        return false;
    add_unit(u, &die);
    SORT(u->ranges, u->ranges_n, by_range);
    return true;
}

static struct unit *unit_at(struct symbol_units *u, Dwarf_Addr address)
{
    struct unit *found = listed_unit(u, address);

    if (found || !u->sections) return found;
    if (list_unit_of(u, address) && (found = listed_unit(u, address))) return found;
    symbol_sections_inflate_all(u->sections);
    u->sections = NULL;
    free_units(u);
    list_units(u);
    return listed_unit(u, address);
}

static const struct function *function_at(const struct unit *u, Dwarf_Addr address)
{
    size_t low = SORT_COUNT(u->functions_n, i, u->functions[i].low <= address);

    for (size_t back = 0; low-- > 0 && back < 8; back++)
        if (address < u->functions[low].high) return &u->functions[low];
    return NULL;
}

struct descent {
    Dwarf_Addr address;
    Dwarf_Die *chain;
    size_t n;
    unsigned visits, depth; /* depth: blocks may be nested as deep as the file is long */
};

/* Adds the functions that were inlined around the address, outermost first. A block may have no addresses of its own
 * but contain an inlined function that has. */
static void descend_to_unit(Dwarf_Die *parent, struct descent *d)
{
    Dwarf_Die die;

    if (d->n >= DWARF_PLACES || d->depth > DEPTH_MAX || dwarf_child(parent, &die) != 0) return;
    do {
        int tag = dwarf_tag(&die);
        size_t before = d->n;

        if (++d->visits > VISITS_MAX) return;
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_lexical_block && tag != DW_TAG_try_block &&
            tag != DW_TAG_catch_block)
            continue;
        bool has = dwarf_haspc(&die, d->address) > 0;
        bool block = tag != DW_TAG_inlined_subroutine;
        if (has && !block) d->chain[d->n++] = die;
        if (has || (block && !dwarf_hasattr(&die, DW_AT_low_pc) && !dwarf_hasattr(&die, DW_AT_ranges))) {
            d->depth++;
            descend_to_unit(&die, d);
            d->depth--;
        }
        if (has || d->n != before) return;
    } while (dwarf_siblingof(&die, &die) == 0);
}

/* The line at which an inlined function was called. */
static void call_site(Dwarf_Die *die, struct symbol_unit_place *place)
{
    Dwarf_Attribute a;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files;
    Dwarf_Die cu;
    size_t n;

    if (dwarf_formudata(dwarf_attr(die, DW_AT_call_line, &a), &line) == 0 && line < INT32_MAX) place->line = (int)line;
    if (dwarf_formudata(dwarf_attr(die, DW_AT_call_file, &a), &file) == 0 && dwarf_diecu(die, &cu, NULL, NULL) &&
        dwarf_getsrcfiles(&cu, &files, &n) == 0 && file < n)
        place->file = dwarf_filesrc(files, file, NULL, NULL);
}

static void line_at_address(Dwarf_Die *unit, Dwarf_Addr address, struct symbol_unit_place *place)
{
    Dwarf_Line *line = dwarf_getsrc_die(unit, address);
    Dwarf_Addr end;

    if (!line) return;
    place->file = dwarf_linesrc(line, NULL, NULL);
    if (dwarf_lineno(line, &place->line) != 0 || dwarf_lineaddr(line, &end) != 0) place->line = 0;
}

size_t symbol_units_at(struct symbol_units *units, Dwarf_Addr address, struct symbol_unit_place *places,
                       const char **folder)
{
    struct unit *u = unit_at(units, address);
    Dwarf_Die chain[DWARF_PLACES];
    size_t n = 0;

    *folder = NULL;
    if (!u) return 0;
    if (!u->read) read_unit(u);
    *folder = text_attribute(&u->die, DW_AT_comp_dir);
    const struct function *f = function_at(u, address);
    if (f) {
        Dwarf_Die die = f->die;
        struct descent d = {.address = address, .chain = chain, .n = 1};
        chain[0] = die;
        descend_to_unit(&die, &d);
        n = d.n;
    }
    memset(places, 0, (n ? n : 1) * sizeof *places);
    line_at_address(&u->die, address, &places[0]);
    for (size_t i = 0; i < n; i++) { /* the chain is outermost first */
        name_it(u, &chain[n - 1 - i], &places[i]);
        if (i + 1 < n) call_site(&chain[n - 1 - i], &places[i + 1]);
    }
    if (n) places[n - 1].whole = true;
    return n ? n : places[0].file != NULL;
}
