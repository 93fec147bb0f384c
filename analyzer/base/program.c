#include "analyzer/base/program.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/input.h"

enum { HEAD = 4096, PARTS = 64 };

static bool is_executable_file(const char *path)
{
    struct stat st;

    return access(path, X_OK) == 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool program_find(const char *name, char *out, size_t size)
{
    const char *path = getenv("PATH");

    if (strchr(name, '/')) {
        if ((size_t)snprintf(out, size, "%s", name) < size && is_executable_file(out)) return true;
        path = "";
    } else if (!path) {
        path = "/bin:/usr/bin"; /* as execvp does */
    }
    while (*path) {
        const size_t n = strcspn(path, ":");
        const int length = snprintf(out, size, "%.*s/%s", n ? (int)n : 1, n ? path : ".", name);
        if ((size_t)length < size && is_executable_file(out)) return true;
        path += n + (path[n] == ':');
    }
    *out = 0;
    return false;
}

bool program_explain(const char *name, char *out, size_t size)
{
    char python[PATH_MAX];
    struct stat st;

    if (stat(name, &st) != 0) return false;
    if (S_ISDIR(st.st_mode))
        if ((size_t)snprintf(python, sizeof python, "%s/bin/python", name) < sizeof python &&
            is_executable_file(python))
            snprintf(out, size, "is a folder; give the Python in it: %s", python);
        else
            snprintf(out, size, "is a folder; give the program in it");
    else if (!is_executable_file(name))
        snprintf(out, size, "is not executable; if it is a program: chmod +x %s", name);
    else if (!strchr(name, '/'))
        snprintf(out, size, "is not in PATH, but in this folder; write ./%s", name);
    else
        return false;
    return true;
}

static void read_loader(int fd, const Elf64_Ehdr *head, char *out, size_t size)
{
    Elf64_Phdr part;

    for (int i = 0; i < head->e_phnum && i < PARTS; i++) {
        if (pread(fd, &part, sizeof part, (off_t)(head->e_phoff + (uint64_t)i * sizeof part)) != sizeof part) return;
        if (part.p_type != PT_INTERP) continue;
        const ssize_t n = pread(fd, out, part.p_filesz < size ? part.p_filesz : size - 1, (off_t)part.p_offset);
        out[n > 0 ? n : 0] = 0;
        return;
    }
}

void program_read(const char *path, struct program *p)
{
    union {
        Elf64_Ehdr head;
        char text[HEAD];
    } u;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t n = fd < 0 ? -1 : pread(fd, &u, sizeof u - 1, 0);

    *p = (struct program){0};
    if (n >= (ssize_t)sizeof u.head && memcmp(u.head.e_ident, ELFMAG, SELFMAG) == 0) {
        p->elf = true;
        p->class = u.head.e_ident[EI_CLASS];
        p->machine = u.head.e_machine;
        if (p->class == ELFCLASS64) read_loader(fd, &u.head, p->loader, sizeof p->loader);
    } else if (n > 2 && memcmp(u.text, "#!", 2) == 0) {
        u.text[n] = 0;
        const char *word = u.text + 2 + strspn(u.text + 2, " \t");
        snprintf(p->loader, sizeof p->loader, "%.*s", (int)strcspn(word, " \t\r\n"), word);
    }
    if (fd >= 0) close(fd);
}

bool program_is_musl(const struct program *p)
{
    return strstr(p->loader, "/ld-musl-") != NULL;
}

pid_t program_parent(pid_t pid)
{
    char path[64], text[1024];
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    input_read_start(path, text, sizeof text);
    const char *after_name = strrchr(text, ')'); /* the name may contain anything */
    return after_name && sscanf(after_name, ") %*c %d", &parent) == 1 ? parent : 0;
}
