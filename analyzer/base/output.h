/* A file that is either complete or absent: it is written under a temporary name in the same folder, and renamed at the
 * end. If a signal ends the program, or memory runs out, nothing is left behind. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct output {
    FILE *file;
    int fd, why;      /* why: the errno of the first write that failed */
    const char *path; /* as it was given */
    char *real;       /* its real location: path may be a link */
    char *temporary;  /* NULL: written directly, for a pipe or a device */
    bool standard;    /* stdout: main() checks it */
};

/* "-" is stdout. False after one line on stderr, which begins with `who`. One at a time. */
bool output_open(struct output *o, const char *who, const char *path);
/* The file is complete: returns false after a line on stderr if it could not be. */
bool output_keep(struct output *o, const char *who);
void output_drop(struct output *o);
/* False, after the line on stderr that these functions print if `path` cannot be written: `why` is the errno. */
bool output_failed(const char *who, const char *path, int why);
bool output_folder_exists(const char *path);
/* Does a recording have a name? "-", which is stdout for other files, is not one: false after a line on stderr. NULL:
 * none was given. */
bool output_is_named(const char *who, const char *path);

/* For code that writes by name: an empty file beside `path`, readable only by its owner, which is also removed if the
 * program ends too early. Returns its name, or NULL with errno. One at a time. */
char *output_beside(const char *path);
/* Removes and frees it; NULL does nothing. A file that should stay has been renamed by then. */
void output_beside_remove(char *temporary);
