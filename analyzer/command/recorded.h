/* What `gpuspy run` says after the program has ended. */
#ifndef GPUSPY_RECORDED_H
#define GPUSPY_RECORDED_H

#include <stdbool.h>
#include <time.h>

struct command_recorded {
    const char *db; /* absolute; what was asked for, the recorder may have taken another name */
    const char *run_id;
    time_t started;      /* files older than that are not this run's */
    const char *program; /* as it was typed */
    int pid, status;     /* of the program, as waitpid stores it */
    bool torch_cpu;      /* CPU tensors were asked for */
    bool quiet;          /* only what is wrong */
    bool what_if;        /* --simulate or --limit: the question is whether it fits */
};

/* Finds the databases of the run in the folder of `db`, completes those whose process was killed, and
 * prints the summary on stderr: peaks, out of memory, what to type next. */
void command_print_recorded(const struct command_recorded *r);
/* Runs the command of --on-oom for those of them that ran out of memory, unless it has run; waits for it. */
void command_finish_on_oom(const struct command_recorded *r);

#endif
