/* A file that is there complete or not at all: it is written under another name beside its own, and
 * renamed at the end. A signal, or running out of memory, leaves nothing either. */
#ifndef GPUSPY_OUTPUT_H
#define GPUSPY_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

struct output {
    FILE *file;
    int fd, why;      /* why: the first write that failed, as errno */
    const char *path; /* as it was given */
    char *real;       /* where it lies: it may be a link */
    char *temporary;  /* NULL: written directly, as a pipe or a device is */
    bool standard;    /* stdout: main() sees to it */
};

/* "-" is stdout. False after one line on stderr, which begins with `who`. One at a time. */
bool output_open(struct output *o, const char *who, const char *path);
/* The file is complete: false after a line on stderr if it could not be. */
bool output_keep(struct output *o, const char *who);
void output_drop(struct output *o);

/* For what is written by name: an empty file beside `path`, readable by its owner only, which is also removed
 * if the program ends too early.
 * Its name, or NULL with errno. One at a time. */
char *output_beside(const char *path);
/* Removes and frees it; NULL is none. What should stay has another name by then. */
void output_beside_remove(char *temporary);

#endif
