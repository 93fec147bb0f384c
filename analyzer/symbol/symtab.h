/* The names in an ELF file's symbol table, by address. */
#pragma once

#include <elfutils/libdwfl.h>
#include <stdint.h>

struct symbol_table;

/* The table of the file, of its separate debug file, or of .gnu_debugdata, as libdwfl finds it. NULL: none. */
struct symbol_table *symbol_table_new(Dwfl_Module *mod);
void symbol_table_free(struct symbol_table *t);
/* The function at an address, mangled; NULL if none covers it. Lives as long as the module. */
const char *symbol_table_at(struct symbol_table *t, uint64_t address);
