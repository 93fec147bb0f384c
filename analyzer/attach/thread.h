/* Stops one thread of another process, calls functions in it, and restores it, so that it continues as if nothing had
 * happened. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { ATTACH_REGISTERS = 32 * 1024, ATTACH_ARGUMENTS = 2 };

struct attach_thread {
    pid_t tid;
    bool gone;                             /* the thread or its process has ended */
    uint64_t signals;                      /* the signals that it had blocked */
    size_t general, extended;              /* sizes in `state`, in bytes */
    unsigned char state[ATTACH_REGISTERS]; /* its general registers, then the extended ones */
    int extended_set;                      /* the ptrace register set of the extended ones (NT_…); 0: none */
    uintptr_t below;                       /* its stack is unused below this address */
};

/* Whether gpuspy knows the calling convention of this machine. */
bool attach_thread_machine(void);

/* ATTACH_HELD: a signal such as SIGSTOP had stopped the process. A thread that was started in it would not run. */
enum attach_stop { ATTACH_STOPPED, ATTACH_HELD, ATTACH_FORBIDDEN, ATTACH_GONE };

/* Stops the thread. Whatever it returns, call attach_thread_release afterwards. */
enum attach_stop attach_thread_stop(struct attach_thread *t, pid_t tid);
void attach_thread_release(struct attach_thread *t);

uintptr_t attach_thread_stack(const struct attach_thread *t);
/* The address that the C library has of the thread: at the upper end of the stack that it gave the thread. */
uintptr_t attach_thread_pointer(const struct attach_thread *t);
/* The number of the system call in which it was stopped; -1: it was in none. */
long attach_thread_syscall(const struct attach_thread *t);

/* Read and write its memory. False: not all bytes were read or written. */
bool attach_thread_read(const struct attach_thread *t, uintptr_t at, void *out, size_t size);
bool attach_thread_write(const struct attach_thread *t, uintptr_t at, const void *from, size_t size);

/* Prepares for calls, which need about 64 KiB of its stack. */
void attach_thread_begin(struct attach_thread *t);
/* Copies the text to its stack and returns the address; 0: it cannot be written. */
uintptr_t attach_thread_put(struct attach_thread *t, const char *text);
/* Calls a function in the thread, with its signals blocked, and restores its registers and signals. False: the function
 * crashed or did not return in time. */
bool attach_thread_call(struct attach_thread *t, uintptr_t function, const uintptr_t arguments[ATTACH_ARGUMENTS],
                        uintptr_t *result);
