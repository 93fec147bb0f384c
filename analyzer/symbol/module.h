/* One ELF file and its debugging information, through libdw. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbol_module;

#define MODULE_SERVER_LIBRARY "libdebuginfod.so.1"

/* Folders with debugging information, besides the file's own: colon-separated, laid out like /usr/lib/debug
 * (.build-id/xx/yyyy.debug, or the module's own path), or with the files directly in them. */
struct symbol_module_search {
    const char *folders;
    bool servers;        /* also query debuginfod */
    int64_t recorded_ns; /* wall clock of the recording's end: a younger file without a build id is a different one; 0
                            unknown */
};

extern const char symbol_module_changed[]; /* the reason if the path now has another file */

/* NULL and a reason (a constant string) if it cannot be used. `search` must live as long as the module. */
struct symbol_module *symbol_module_open(const char *path, const char *build_id,
                                         const struct symbol_module_search *search, const char **problem);
void symbol_module_close(struct symbol_module *m);

struct symbol_module_place {
    char *function; /* demangled; free it, NULL unknown */
    char *file;     /* free it, NULL unknown; relative only if the compiler did not state the folder */
    int line;       /* 0 unknown */
};

enum { MODULE_PLACES = 64 };

/* The functions at an address of the file: the innermost inlined function first. 0: nothing is known. */
size_t symbol_module_find(struct symbol_module *m, uint64_t address, struct symbol_module_place *places);

/* The debugging information that the module has: explains why there are no lines. */
enum symbol_module_detail { MODULE_NOTHING, MODULE_EXPORTS, MODULE_SYMBOLS, MODULE_LINES };
enum symbol_module_detail symbol_module_detail(struct symbol_module *m);
/* Hexadecimal, "" none. */
const char *symbol_module_build_id(const struct symbol_module *m);
