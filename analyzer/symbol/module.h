/* One ELF file and its debugging information, through libdw. */
#ifndef GPUSPY_SYMBOL_MODULE_H
#define GPUSPY_SYMBOL_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbol_module;

#define MODULE_SERVER_LIBRARY "libdebuginfod.so.1"

/* Where debugging information may lie, besides beside the file: colon-separated folders laid out like
 * /usr/lib/debug (.build-id/xx/yyyy.debug, or the module's own path), or with the files just so. */
struct symbol_module_search {
    const char *folders;
    bool servers;        /* ask debuginfod, too */
    int64_t recorded_ns; /* wall clock of the recording's end: a file without build id that is younger is
                            another one; 0 unknown */
};

extern const char symbol_module_changed[]; /* the reason where another file lies there now */

/* NULL and a reason (a constant string) where it cannot be used. `search` is to live as long. */
struct symbol_module *symbol_module_open(const char *path, const char *build_id,
                                         const struct symbol_module_search *search, const char **problem);
void symbol_module_close(struct symbol_module *m);

struct symbol_module_place {
    char *function; /* demangled; to be freed, NULL unknown */
    char *file;     /* to be freed, NULL unknown; relative only where the compiler did not say to what */
    int line;       /* 0 unknown */
};

enum { MODULE_PLACES = 64 };

/* What stands at an address of the file: the innermost inlined function first, the one that was called
 * last. 0: nothing is known. */
size_t symbol_module_find(struct symbol_module *m, uint64_t address, struct symbol_module_place *places);

/* What it has: for people who wonder why there are no lines. */
enum symbol_module_detail { MODULE_NOTHING, MODULE_EXPORTS, MODULE_SYMBOLS, MODULE_LINES };
enum symbol_module_detail symbol_module_detail(struct symbol_module *m);
/* Hexadecimal, "" none. */
const char *symbol_module_build_id(const struct symbol_module *m);

#endif
