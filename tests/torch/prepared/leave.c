/* Ends a fork of the prepared Python without the destructors of PyTorch's libraries: they unregister every
 * operator, in pages that the fork shares with its parent and therefore copies first, which takes longer than most
 * scripts. Only libgpuspy's destructors run, which end the recording. The handler that notes the exit status is
 * registered later, with the first CUDA call, and so has run before. */
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct destructors {
    void (**functions)(void);
    size_t count;
};

static int find_recorder(struct dl_phdr_info *object, size_t size, void *data)
{
    struct destructors *found = data;
    const ElfW(Dyn) *entry = NULL;
    (void)size;
    if (!strstr(object->dlpi_name, "/libgpuspy.so")) return 0;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_FINI_ARRAY) found->functions = (void (**)(void))(object->dlpi_addr + entry->d_un.d_ptr);
        if (entry->d_tag == DT_FINI_ARRAYSZ) found->count = entry->d_un.d_val / sizeof *found->functions;
    }
    return 1;
}

static void leave(int status, void *unused)
{
    struct destructors of = {0};
    (void)unused;
    fflush(NULL);
    dl_iterate_phdr(find_recorder, &of);
    while (of.functions && of.count) of.functions[--of.count]();
    _exit(status);
}

void leave_early(void)
{
    on_exit(leave, NULL);
}
