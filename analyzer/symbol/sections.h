/* The debugging information of a file that is compressed, as that of Debian's C library: 10 MiB, of which a name needs
 * one unit. Parts that names do not need are left out, and .debug_info is inflated only up to the units that are asked
 * for. */
#pragma once

#include <libelf.h>
#include <stdbool.h>
#include <stdint.h>

struct symbol_sections;

/* Before libdw reads the file: it then finds the parts uncompressed, with zeros beyond what has been inflated. NULL:
 * libdw inflates all of .debug_info. Free it after libdw's objects. */
struct symbol_sections *symbol_sections_new(Elf *elf);
void symbol_sections_free(struct symbol_sections *sections);
/* Where the unit begins that has the address, according to .debug_aranges. */
bool symbol_sections_find(const struct symbol_sections *sections, uint64_t address, uint64_t *unit);
/* Inflates .debug_info up to `end`. */
bool symbol_sections_inflate(struct symbol_sections *sections, uint64_t end);
void symbol_sections_inflate_all(struct symbol_sections *sections);
