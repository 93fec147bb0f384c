/* The file of a program, as execvp finds it, and what the kernel starts for it: the loader of a binary or the
 * interpreter of a script. */
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/launch/launch.h"

enum { HEAD = 4096, PARTS = 64 };

bool launch_find_program(const char *name, char *out, size_t size)
{
    const char *path = getenv("PATH");

    if (strchr(name, '/') || !path) {
        snprintf(out, size, "%s", name);
        return access(out, X_OK) == 0;
    }
    while (*path) {
        size_t n = strcspn(path, ":");
        snprintf(out, size, "%.*s/%s", n ? (int)n : 1, n ? path : ".", name);
        if (access(out, X_OK) == 0) return true;
        path += n + (path[n] == ':');
    }
    return false;
}

static void read_loader(int fd, const Elf64_Ehdr *head, char *out, size_t size)
{
    Elf64_Phdr part;

    for (int i = 0; i < head->e_phnum && i < PARTS; i++) {
        if (pread(fd, &part, sizeof part, (off_t)(head->e_phoff + (uint64_t)i * sizeof part)) != sizeof part) return;
        if (part.p_type != PT_INTERP) continue;
        ssize_t n = pread(fd, out, part.p_filesz < size ? part.p_filesz : size - 1, (off_t)part.p_offset);
        out[n > 0 ? n : 0] = 0;
        return;
    }
}

void launch_interpreter(const char *path, char *out, size_t size)
{
    union {
        Elf64_Ehdr head;
        char text[HEAD];
    } u;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : pread(fd, &u, sizeof u - 1, 0);

    *out = 0;
    if (n >= (ssize_t)sizeof u.head && memcmp(u.head.e_ident, ELFMAG, SELFMAG) == 0) {
        if (u.head.e_ident[EI_CLASS] == ELFCLASS64) read_loader(fd, &u.head, out, size);
    } else if (n > 2 && memcmp(u.text, "#!", 2) == 0) {
        u.text[n] = 0;
        const char *word = u.text + 2 + strspn(u.text + 2, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(word, " \t\r\n"), word);
    }
    if (fd >= 0) close(fd);
}

bool launch_is_musl(const char *path)
{
    char loader[PATH_MAX];

    launch_interpreter(path, loader, sizeof loader);
    return strstr(loader, "/ld-musl-") != NULL;
}
