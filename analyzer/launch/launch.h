/* Starting a program with the recorder in it, and ending as it did. */
#ifndef GPUSPY_LAUNCH_H
#define GPUSPY_LAUNCH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* As env(1), nohup(1) and timeout(1) have them. */
enum { LAUNCH_FAILED = 125, LAUNCH_NOT_EXECUTABLE = 126, LAUNCH_NOT_FOUND = 127 };

#define LAUNCH_VARIABLES 40

struct launch {
    char **argv;                                                  /* the program and its arguments, ends with NULL */
    char library[PATH_MAX];                                       /* to preload; "" none */
    const char *name[LAUNCH_VARIABLES], *value[LAUNCH_VARIABLES]; /* added to its environment */
    int variables;
    int pid, status; /* as of waitpid */
};

/* Finds libgpuspy.so: $GPUSPY_LIB, beside the executable (a build folder), or in ../lib of it (an
 * installed prefix). False after a line on stderr. */
bool launch_find_library(struct launch *l);
/* The same into library[PATH_MAX], with the line in `why`. */
bool launch_library(char *library, char *why, size_t size);
/* A variable for the program; the strings are not copied. */
void launch_set(struct launch *l, const char *name, const char *value);
/* Runs the program and waits for its end, passing signals on. False where it could not be started:
 * a line was printed, and *code is what to exit with. */
bool launch_wait(struct launch *l, int *code);
/* What to exit with; does not return where the program died by a signal: so do we. */
int launch_end(const struct launch *l);

#endif
