/* Programs built with a sanitizer that refuses or misjudges a preloaded library. */
#include <fcntl.h>
#include <gelf.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/doctor/doctor.h"

enum sanitizer { NONE, ADDRESS, MEMORY };

/* Recognised by the run time's entry point. Only AddressSanitizer's shared run time checks the order of libraries. */
static enum sanitizer of_symbol(const char *name, const GElf_Sym *symbol)
{
    if (name && strcmp(name, "__msan_init") == 0) return MEMORY;
    return name && strcmp(name, "__asan_init") == 0 && symbol->st_shndx == SHN_UNDEF ? ADDRESS : NONE;
}

static enum sanitizer of_table(Elf *elf, Elf_Scn *section, const GElf_Shdr *header)
{
    Elf_Data *data = elf_getdata(section, NULL);
    size_t n = data && header->sh_entsize ? data->d_size / header->sh_entsize : 0;

    for (size_t i = 0; i < n && i < INT_MAX; i++) {
        GElf_Sym symbol;
        enum sanitizer found = NONE;
        if (gelf_getsym(data, (int)i, &symbol))
            found = of_symbol(elf_strptr(elf, header->sh_link, symbol.st_name), &symbol);
        if (found) return found;
    }
    return NONE;
}

static enum sanitizer sanitizer_of(const char *path)
{
    enum sanitizer found = NONE;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    Elf *elf = fd >= 0 && elf_version(EV_CURRENT) != EV_NONE ? elf_begin(fd, ELF_C_READ, NULL) : NULL;

    for (Elf_Scn *s = NULL; elf && !found && (s = elf_nextscn(elf, s));) {
        GElf_Shdr header;
        if (gelf_getshdr(s, &header) && header.sh_type == SHT_DYNSYM) found = of_table(elf, s, &header);
    }
    if (elf) elf_end(elf);
    if (fd >= 0) close(fd);
    return found;
}

bool doctor_sanitizer(struct doctor *d, const char *path)
{
    switch (sanitizer_of(path)) {
    case MEMORY:
        doctor_add_finding(
            d, DOCTOR_RECORDER, DOCTOR_PROBLEM, "memory_sanitizer", "record a build without it",
            "%s is built with MemorySanitizer, which would report memory that gpuspy writes as uninitialised; "
            "gpuspy does not record it",
            path);
        return false;
    case ADDRESS:
        doctor_add_finding(
            d, DOCTOR_RECORDER, DOCTOR_OK, "address_sanitizer",
            "start it with gpuspy run; if you set LD_PRELOAD yourself, also set ASAN_OPTIONS=verify_asan_link_order=0",
            "%s is built with AddressSanitizer, which otherwise refuses preloaded libraries", path);
        break;
    case NONE: break;
    }
    return true;
}
