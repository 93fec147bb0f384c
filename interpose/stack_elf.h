/* Reads loaded objects only through dl_iterate_phdr. dlsym, dladdr and dlopen take the loader's lock, which a thread in
 * dlopen holds while it runs constructors: a constructor that waits for a thread that gpuspy interrupts would wait
 * forever. dl_iterate_phdr does not take that lock, and it also sees objects that were loaded RTLD_LOCAL. */
#pragma once

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* For code that runs at the very first dlsym of a process, possibly while a sanitizer starts up. */
#define GS_UNCHECKED __attribute__((no_sanitize("address"), no_sanitize("undefined"), no_sanitize("thread")))

struct gs_elf_range {
    uintptr_t lo, hi; /* hi: the first byte after */
};

/* dl_iterate_phdr with all signals blocked: a handler that leaves it by longjmp would leave the lock of the loader's
 * list held forever. */
int gs_elf_each(int (*visit)(struct dl_phdr_info *info, size_t size, void *data), void *data);
void gs_elf_load(void); /* by the first thread of a process that preloads gpuspy */
/* Around fork: a child would forever keep the lock that another thread holds in dl_iterate_phdr. Lets no thread enter
 * it for gpuspy and waits at most this many ms until none is in it; false: one still is. */
bool gs_elf_rest(int ms);
void gs_elf_go_on(void); /* in the parent */
/* In a child, before its first thread: another thread held the lock of the loader's list at the fork, so that
 * dl_iterate_phdr would never return. False if it did not, or if the lock was not found. */
bool gs_elf_list_is_locked(void);
void gs_elf_forked(void); /* in the child */
/* The object's dynamic section, or NULL. */
const ElfW(Dyn) * gs_elf_dynamic(const struct dl_phdr_info *info);
/* The address that an entry holds: the loader relocates entries in place if the section is writable; otherwise (the
 * vdso, a few machines) they are still relative to the load address. */
static inline const void *gs_elf_pointer(ElfW(Addr) base, ElfW(Addr) value)
{
    return (const void *)(value < base ? value + base : value);
}
/* The address range that the object's segments span. */
struct gs_elf_range gs_elf_range(const struct dl_phdr_info *info);
/* The address of a symbol that this object itself defines, or NULL. */
void *gs_elf_symbol(const struct dl_phdr_info *info, const char *name);
void *gs_elf_symbol_of(ElfW(Addr) base, const ElfW(Dyn) * dynamic, const char *name);
bool gs_elf_names_equal(const char *a, const char *b);
/* The bytes of the GNU build id in the loaded image, or NULL. */
const uint8_t *gs_elf_build_id(const struct dl_phdr_info *info, uint32_t *length);
/* Go's linker wrote it, perhaps with the help of another one. */
bool gs_elf_is_go(const struct dl_phdr_info *info);
