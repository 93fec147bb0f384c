/* A running process into which the recorder may be loaded, as /proc describes it. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>

#ifndef SYS_io_uring_enter
#define SYS_io_uring_enter 426
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

#define ATTACH_PROCESS_IS_STOPPED "process %d is stopped; resume it first: kill -CONT %d"

struct attach_process {
    pid_t pid;
    char recorder[PATH_MAX]; /* the path of libgpuspy.so if it is loaded there; "": it is not */
    bool has_cuda;           /* a CUDA driver or runtime library is loaded */
};

enum { ATTACH_WHY = 1024 };

/* Reads what is needed to decide. False: gpuspy cannot attach to it; one line in why[ATTACH_WHY]. `library`: the path
 * of the library to load; "": none. */
bool attach_process_read(struct attach_process *p, pid_t pid, const char *library, char *why);

/* After EPERM or EACCES: why the kernel does not let this process read or trace that one. */
void attach_process_explain(pid_t pid, char *why);

/* Whether gpuspy may attach to processes of its own user, judged by the kernel's settings and by an attempt on a child
 * process. False: one line in why[ATTACH_WHY]. */
bool attach_process_allowed(char *why);

/* Stores the ids of at most `room` of its threads. Returns their number; 0: the process has ended. */
size_t attach_process_threads(pid_t pid, pid_t *tid, size_t room);
/* Whether this process or thread has ended; it may not have been waited for yet. */
bool attach_process_ended(pid_t tid);
/* Whether to leave this thread alone: it belongs to the recorder, or it is in a system call that a stop disturbs. */
bool attach_process_spares(pid_t pid, pid_t tid);

/* The lowest address of the thread's stack, which contains `sp`; `thread` is its attach_thread_pointer. 0: unknown, or
 * `sp` is in other memory: a Go routine, a fiber or a signal handler has a stack inside a larger mapping. */
uintptr_t attach_process_stack_floor(pid_t pid, uintptr_t sp, uintptr_t thread);
