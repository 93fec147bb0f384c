/* A running process into which the recorder may be loaded: what /proc says of it. */
#ifndef GPUSPY_ATTACH_PROCESS_H
#define GPUSPY_ATTACH_PROCESS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct attach_process {
    pid_t pid;
    char recorder[PATH_MAX]; /* libgpuspy as it is loaded there; "" not loaded */
    bool has_cuda;           /* a driver or a runtime of CUDA's is loaded */
};

enum { ATTACH_WHY = 1024 };

/* Reads what is needed to decide. False: it cannot be attached to, with one line in why[ATTACH_WHY]. `library` is the
 * one to be loaded; "" none. */
bool attach_process_read(struct attach_process *p, pid_t pid, const char *library, char *why);

/* Why the kernel does not let this process look into that one, after EPERM or EACCES. */
void attach_process_explain(pid_t pid, char *why);

/* Whether this gpuspy may attach to a process of its own user, as far as the kernel's settings and a try with a child
 * show. False: one line why not. */
bool attach_process_allowed(char *why);

/* Ids of its threads, at most `room`; how many, 0: it has ended. */
size_t attach_process_threads(pid_t pid, pid_t *tid, size_t room);
/* A thread of the recorder's own, or one in a system call that would not go on as if nothing had happened. */
bool attach_process_spares(pid_t pid, pid_t tid);

/* Where its stack of this thread's ends, at the low end: 0 unknown. */
uintptr_t attach_process_stack_floor(pid_t pid, uintptr_t sp);

#endif
