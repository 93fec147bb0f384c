/* libunwind, opened so that nobody else sees it. */
#include "interpose/stack_native.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "interpose/stack_python.h"

#define LIBUNWIND "libunwind.so.8"

int (*gs_unwind)(void **addresses, int size);
struct gs_unwind_by_step gs_unwind_by_step;
struct gs_elf_range gs_stack_self;

static int note_self(struct dl_phdr_info *info, size_t size, void *unused)
{
    struct gs_elf_range r = gs_elf_range(info);
    uintptr_t here = (uintptr_t)&gs_native_open;
    if (here < r.lo || here >= r.hi)
        return 0;
    gs_stack_self = r;
    return 1;
}

/* Not dlsym: libgpuspy defines that name itself. */
static int find_unwind(struct dl_phdr_info *info, size_t size, void *unused)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    if (strncmp(slash ? slash + 1 : info->dlpi_name, LIBUNWIND, sizeof LIBUNWIND - 1))
        return 0;
    struct gs_unwind_by_step by_step;
    *(void **)&by_step.get_context = gs_elf_symbol(info, "_Ux86_64_getcontext");
    *(void **)&by_step.init = gs_elf_symbol(info, "_ULx86_64_init_local");
    *(void **)&by_step.step = gs_elf_symbol(info, "_ULx86_64_step");
    *(void **)&by_step.get_reg = gs_elf_symbol(info, "_ULx86_64_get_reg");
    if (by_step.get_context && by_step.init && by_step.step && by_step.get_reg)
        gs_unwind_by_step = by_step;
    *(void **)&gs_unwind = gs_elf_symbol(info, "unw_backtrace");
    return gs_unwind != NULL;
}

/* libunwind takes a key for granted, and writes to somebody else's where there is none left. */
static bool has_a_key(void)
{
    pthread_key_t key;
    return !pthread_key_create(&key, NULL) && !pthread_key_delete(key);
}

/* Where the machine has none, one that travels in the folder of libgpuspy.so serves. */
static void *open_beside(void)
{
    Dl_info info;
    char path[PATH_MAX];
    if (!dladdr((void *)gs_native_open, &info) || !info.dli_fname)
        return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    const int folder = slash ? (int)(slash - info.dli_fname) : 0;
    if (!folder || snprintf(path, sizeof path, "%.*s/" LIBUNWIND, folder, info.dli_fname) >= (int)sizeof path)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void gs_native_open(void)
{
    if (gs_unwind)
        return;
    dl_iterate_phdr(note_self, NULL);
    if (!has_a_key()) {
        gs_stack_lacks("no native stacks: the program has used up all thread-specific keys");
        return;
    }
    if (!dlopen(LIBUNWIND, RTLD_NOW | RTLD_LOCAL) && !open_beside()) {
        gs_stack_lacks("no native stacks: cannot open " LIBUNWIND);
        return;
    }
    dl_iterate_phdr(find_unwind, NULL);
    if (!gs_unwind)
        gs_stack_lacks("no native stacks: " LIBUNWIND " has no unw_backtrace");
    else
        gs_unwind((void *[4]){0}, 4); /* it gets what it needs for good now */
}
