/* Which of a run's processes and GPUs are read: --device, --process and --rank, the same for every command that reads.
 * */
#pragma once

#include <limits.h>
#include "analyzer/base/options.h"
#include "analyzer/run/run.h"

struct view_choice {
    int device, pid, rank; /* -1 any */
};

/* clang-format off */
#define CHOICE_ANY {.device = -1, .pid = -1, .rank = -1}
#define CHOICE_OPTIONS(type, member)                                                               \
    {"device", 'd', OPTION_NUMBER, offsetof(type, member.device), "N", NULL, 0, 126,               \
     "only GPU N (CUDA's number in the program)"},                                                 \
    {"process", 'p', OPTION_NUMBER, offsetof(type, member.pid), "PID", NULL, 1, INT_MAX,           \
     "only the process with this pid"},                                                            \
    {"rank", 'r', OPTION_NUMBER, offsetof(type, member.rank), "N", NULL, 0, INT_MAX,               \
     "only the process with this rank"}
/* clang-format on */

/* Opens a recording (as run_open does) and keeps only the chosen processes. NULL after a line on stderr that begins
 * with `who`; *code is then the exit status: EXIT_NO if the run has no such process or GPU. Sets options->by_device and
 * ->device. */
struct run *view_choice_open(const char *who, const char *const *paths, size_t n, const struct view_choice *choice,
                             struct run_options *options, int *code);
