/* The file of a program, and what the kernel starts for it. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct program {
    bool elf;
    unsigned char class;   /* ELFCLASS32 or ELFCLASS64; 0: not ELF */
    uint16_t machine;      /* EM_… */
    char loader[PATH_MAX]; /* of a dynamically linked 64-bit binary, or the interpreter of a script; "": none */
};

/* Finds the file that execvp(name) would start, into out[size]. False, with "" in `out`: there is none. */
bool program_find(const char *name, char *out, size_t size);
/* Why execvp(name) fails although the user sees such a file or folder here, and what to give instead, such as "is a
 * folder; give the program in it". False: there is nothing of that name, or it can be executed. */
bool program_explain(const char *name, char *out, size_t size);
/* What is unknown stays 0: the file may be unreadable. */
void program_read(const char *path, struct program *p);
/* Whether musl loads the program, which fails if it is to preload the recorder, because that needs glibc. */
bool program_is_musl(const struct program *p);
/* The parent of a process; 0: unknown. */
pid_t program_parent(pid_t pid);
