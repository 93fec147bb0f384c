/* Runs another program and reads what it prints, at most for a given time. Returns even if the program cannot be
 * killed, for example because it hangs in a driver. */
#pragma once

#include <stdbool.h>

enum { CHILD_VARIABLES = 16 };

struct launch_child {
    const char *const *argv;                                    /* ends with NULL; the program is searched in PATH */
    const char *name[CHILD_VARIABLES], *value[CHILD_VARIABLES]; /* value NULL: removed from its environment */
    int variables;
    int timeout_ms;
    const char *folder; /* its working directory; NULL: the caller's */
    /* instead of a program: a function that runs in the child and returns its exit status */
    int (*work)(void *data);
    void *data;

    /* set by launch_child_run */
    bool started;                 /* the program exists and was executed */
    bool timed_out;               /* it took longer than timeout_ms and was killed */
    int status;                   /* as of waitpid */
    char out[1 << 16], err[4096]; /* the beginning of its stdout and stderr */
};

/* Sets a variable of the child's environment; the strings are not copied. */
void launch_child_set(struct launch_child *c, const char *name, const char *value);
/* True: it exited with status 0 within the time. */
bool launch_child_run(struct launch_child *c);
