/* Another program, asked something: what it prints, within a time. Whatever it does, even where it can't
 * be killed (in a hung driver), we go on. */
#ifndef GPUSPY_CHILD_H
#define GPUSPY_CHILD_H

#include <stdbool.h>
#include <stddef.h>

enum { CHILD_VARIABLES = 16 };

struct launch_child {
    const char *const *argv;                                    /* ends with NULL; looked for in PATH */
    const char *name[CHILD_VARIABLES], *value[CHILD_VARIABLES]; /* value NULL: not there for it */
    int variables;
    int timeout_ms;
    const char *folder; /* its working directory; NULL ours */
    /* or instead of a program, a function of ours, in the child; what it returns is the exit status */
    int (*work)(void *data);
    void *data;

    /* afterwards */
    bool started;                 /* there is such a program */
    bool timed_out;               /* it took too long, and was killed */
    int status;                   /* as of waitpid */
    char out[1 << 16], err[4096]; /* the beginnings of what it printed */
};

/* For the child's environment; the strings are not copied. */
void launch_child_set(struct launch_child *c, const char *name, const char *value);
/* True: it ended by itself with status 0. */
bool launch_child_run(struct launch_child *c);

#endif
