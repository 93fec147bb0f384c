/* What a loaded object imports: the slots that hold the addresses of other objects' functions. */
#pragma once

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gs_imports {
    const struct dl_phdr_info *info;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash; /* NULL: the object has no relocations of this kind */
    const ElfW(Versym) * versions;
    const ElfW(Verneed) * needed;
    size_t needed_count;
    struct {
        const ElfW(Rela) * at;
        size_t count;
    } tables[2];     /* of addresses in data, and of functions that are called */
    size_t relative; /* how many at the beginning of the first table have no symbol */
};

/* False: the object imports nothing, or is gpuspy itself. */
bool gs_imports_read(struct gs_imports *o, const struct dl_phdr_info *info);

/* Does this kind of relocation set its slot to the address of its symbol? */
bool gs_import_is_address(const ElfW(Rela) * r);

/* The version under which the object requests a symbol, such as "libcudart.so.12"; NULL: none. */
const char *gs_import_version(const struct gs_imports *o, size_t symbol);

/* Replaces `now` in the slot by `value`, even in a page that the loader has made read-only (which it is again
 * afterwards). False: the slot held something else, or cannot be written. The loader must have finished with the
 * object. */
bool gs_import_write(const struct dl_phdr_info *info, uintptr_t *slot, uintptr_t now, uintptr_t value);
