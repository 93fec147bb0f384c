/* One thread of another process, stopped: functions are called in it, and then it goes on as if nothing had happened.
 */
#ifndef GPUSPY_ATTACH_THREAD_H
#define GPUSPY_ATTACH_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { ATTACH_REGISTERS = 32 * 1024, ATTACH_ARGUMENTS = 2 };

struct attach_thread {
    pid_t tid;
    bool gone;                             /* it ended, or its process did */
    uint64_t signals;                      /* that it had blocked */
    size_t general, extended;              /* bytes of … */
    unsigned char state[ATTACH_REGISTERS]; /* its registers, the extended ones behind the general ones */
    int extended_set;                      /* which set those are; 0 none */
    uintptr_t below;                       /* from here on down its stack is free */
};

/* Whether gpuspy knows how functions are called on this machine. */
bool attach_thread_machine(void);

enum attach_stop { ATTACH_STOPPED, ATTACH_FORBIDDEN, ATTACH_GONE };

/* Stops it; afterwards attach_thread_release, always. */
enum attach_stop attach_thread_stop(struct attach_thread *t, pid_t tid);
void attach_thread_release(struct attach_thread *t);

uintptr_t attach_thread_stack(const struct attach_thread *t);
/* The number of the system call that it was in; -1: in none. */
long attach_thread_syscall(const struct attach_thread *t);

/* Its memory. False: not all of it. */
bool attach_thread_read(const struct attach_thread *t, uintptr_t at, void *out, size_t size);
bool attach_thread_write(const struct attach_thread *t, uintptr_t at, const void *from, size_t size);

/* Signals wait from here on; needs about 64 KiB of stack. False: it cannot be done. */
bool attach_thread_begin(struct attach_thread *t);
/* A copy of the text on its stack; 0: it cannot be written. */
uintptr_t attach_thread_put(struct attach_thread *t, const char *text);
/* Calls a function there. False: it did not return within the time, or crashed; the thread goes on where it was. */
bool attach_thread_call(struct attach_thread *t, uintptr_t function, const uintptr_t arguments[ATTACH_ARGUMENTS],
                        uintptr_t *result);

#endif
