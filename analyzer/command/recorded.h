/* What `gpuspy run` prints after the program has ended. */
#pragma once

#include <stdbool.h>
#include <time.h>

struct command_recorded {
    const char *db; /* absolute, as requested; the recorder may have used another name */
    const char *run_id;
    time_t started;      /* older files are not of this run */
    const char *program; /* as it was typed */
    int pid, status;     /* of the program, as waitpid stores it */
    bool torch_cpu;      /* records CPU tensors */
    bool quiet;          /* prints only problems */
    bool what_if;        /* --simulate or --limit: the user asks whether it fits */
};

/* Finds the databases of the run in the folder of `db`, completes those whose process was killed, and prints the
 * summary on stderr: peaks, OOMs, and the next command. */
void command_print_recorded(const struct command_recorded *r);
/* Executes the command of --on-oom for the databases that have an OOM, unless it was executed already, and waits for
 * it. */
void command_finish_on_oom(const struct command_recorded *r);
