/* The names in an ELF file's symbol table, by address. */
#ifndef GPUSPY_SYMBOL_SYMTAB_H
#define GPUSPY_SYMBOL_SYMTAB_H

#include <elfutils/libdwfl.h>
#include <stdint.h>

struct symtab;

/* The table of the file, of its separate debug file, or of .gnu_debugdata, as libdwfl finds it. NULL:
 * there is none. */
struct symtab *symtab_new(Dwfl_Module *mod);
void symtab_free(struct symtab *t);
/* The function at an address, mangled; NULL where none covers it. Lives as long as the module. */
const char *symtab_at(struct symtab *t, uint64_t address);

#endif
