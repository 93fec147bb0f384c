/* One ELF file and its debugging information, through libdw. */
#ifndef GPUSPY_SYMBOL_MODULE_H
#define GPUSPY_SYMBOL_MODULE_H

#include <stdbool.h>
#include <stdint.h>

struct module;

/* NULL and a reason (a constant string) where it cannot be used. */
struct module *module_open(const char *path, const char *build_id, const char **problem);
void module_close(struct module *m);

/* What stands at an address of the file. Names are mangled and live as long as the module. `file` is
 * relative where the compiler had it so, `folder` is then where it was compiled (may be NULL). */
struct module_place {
    const char *function, *file, *folder; /* NULL unknown */
    int line;                             /* 0 unknown */
};
bool module_find(struct module *m, uint64_t address, struct module_place *place);

#endif
