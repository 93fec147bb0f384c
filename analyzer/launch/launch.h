/* Starts a program with the recorder preloaded, forwards signals to it, and ends as the program ended. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* The exit statuses of env(1), nohup(1) and timeout(1). */
enum { LAUNCH_FAILED = 125, LAUNCH_NOT_EXECUTABLE = 126, LAUNCH_NOT_FOUND = 127 };

#define LAUNCH_VARIABLES 40

struct launch {
    char **argv;                                                  /* the program and its arguments, ends with NULL */
    char library[PATH_MAX];                                       /* to preload; "": none */
    const char *name[LAUNCH_VARIABLES], *value[LAUNCH_VARIABLES]; /* added to its environment */
    int variables;
    int pid, status; /* as of waitpid */
};

/* Finds libgpuspy.so: $GPUSPY_LIB, beside the executable (a build folder), or in ../lib of it (an
 * installed prefix). False after a line on stderr. */
bool launch_find_library(struct launch *l);
/* The same into library[PATH_MAX], with the line in `why`. */
bool launch_preload(char *library, char *why, size_t size);
/* The folder[PATH_MAX] of the running gpuspy. */
bool launch_own_folder(char *folder);
/* Its own path, which LD_PRELOAD may not accept. */
bool launch_library(char *library, char *why, size_t size);
/* LD_PRELOAD with the recorder before the other preloaded libraries, such as an allocator, which keep their order, and
 * in place of other recorders. The caller frees it; NULL: no memory. */
char *launch_preloaded(const char *library);
/* What ends a path in LD_PRELOAD and LD_AUDIT, or is replaced in it. */
#define LAUNCH_SEPARATORS " :$"
/* Replaces a folder[PATH_MAX] that the loader would not accept with a link to it, which stays in TMPDIR or /tmp,
 * because programs that outlive this one need it. */
bool launch_link_folder(char *folder, char *why, size_t size);
/* Adds a variable to the program's environment; the strings are not copied. */
void launch_set(struct launch *l, const char *name, const char *value);
/* Runs the program, forwards signals to it, and waits for its end. False: it could not be started; one line was
 * printed on stderr, and *code is the status to exit with. */
bool launch_wait(struct launch *l, int *code);
/* The status to exit with. Does not return if a signal killed the program: it raises the same signal here. */
int launch_end(const struct launch *l);
