/* The functions of DWARF's compilation units, by address, with the functions that were inlined into them.
 *
 * libdw's own functions (dwfl_module_addrdie, dwarf_getscopes) need .debug_aranges, which clang and rustc do not write;
 * they do not search namespaces, where these compilers put functions; and they walk a unit at each call.
 */
#pragma once

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stddef.h>

struct symbol_sections;
struct symbol_units;

struct symbol_unit_place {
    char *function; /* free it; mangled if `mangled`; NULL unknown */
    bool mangled;
    bool whole;       /* the function as the linker knows it: the symbol table may have a longer name */
    const char *file; /* relative if the compiler stored it so; NULL unknown */
    int line;         /* 0 unknown */
};

enum { DWARF_PLACES = 64 };

/* With `sections`, units are read when an address in them is asked for. */
struct symbol_units *symbol_units_new(Dwarf *dwarf, struct symbol_sections *sections);
void symbol_units_free(struct symbol_units *units);
/* The functions at an address: the innermost inlined function first, the function that the linker knows last. 0:
 * nothing is known; 1 with function NULL: only the line. *folder is the compilation directory. */
size_t symbol_units_at(struct symbol_units *units, Dwarf_Addr address, struct symbol_unit_place *places,
                       const char **folder);
