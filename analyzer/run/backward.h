/* Finds the line that called backward() for events on autograd's own threads.
 *
 * PyTorch computes the gradients of CUDA tensors on threads of its own, which run no Python: allocations there have no
 * line. But torch.autograd.backward and grad first make the gradient of their output, on the calling thread and with
 * its whole Python stack (_make_grads), and hold it until they return. So from that allocation until its free the
 * calling thread is inside backward(), and the stack of the allocation shows the line: a window. Meanwhile, the stacks
 * of autograd's own threads get the callers of backward() as their outer part ("grafted"), if only one window is open
 * in the process. If the program passes a gradient to backward(), this allocation does not exist, and nothing is
 * grafted.
 *
 * A recording of bounded size has removed the gradients of its earlier part, but no stack: if every stack that makes
 * such a gradient has the same line of the program as its caller, what remains of autograd's threads belongs to it.
 *
 * A window that an exception left open (its traceback holds the gradient) ends at its thread's next allocation outside
 * of backward.
 *
 * The first replay finds the windows and keeps them: 32 bytes for each call of backward(). Only the files of the model
 * use this, and gpuspy top, which does not replay.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/base/arena.h"

struct run;

struct run_window {
    int64_t open_ns, close_ns;
    int64_t mixed_ns; /* until then a window of another thread is also open */
    uint32_t base;    /* the stack that called _make_grads */
    uint32_t thread;
};

struct run_backward {             /* per process */
    ARENA_ROWS(uint8_t, threads); /* by number: 1 is one of autograd's threads */
    struct run_window *list;      /* by open_ns */
    size_t n, cap;
    ARENA_LIST(uint32_t, open); /* those of them that may be open */
    size_t hint;                /* where the last one was found */
    bool complete;              /* a replay has completed */
};

struct run_backwards { /* per run */
    struct run_backward *process;
    size_t n;
    ARENA_ROWS(uint8_t, marks); /* by stack, for those in the databases */
    bool any;                   /* some stack opens windows */
    uint32_t only;       /* what the bases of all windows that the stacks can open have in common; RUN_NONE: no line */
    struct map grafts;   /* stack, base → stack */
    struct map autograd; /* a stack without Python → 1: autograd's, 0: not */
};

/* Call when the databases are loaded. */
void run_backward_prepare(struct run *run);
void run_backward_forget(struct run *run, size_t processes); /* from that number on */
void run_backward_free(struct run *run);
/* Thread `thread` of that process has this name. */
void run_backward_add_thread(struct run *run, uint32_t process, int64_t thread, const char *name);

/* Adds a row; rows come in order of time; not needed if `any` is false. */
void run_backward_add_row(struct run *run, uint32_t process, uint32_t thread, uint32_t stack, int64_t alloc_ns,
                          int64_t free_ns);
void run_backward_finish(struct run *run, uint32_t process); /* all its rows have been added */
/* The stack of an event at that time: `stack`, or the grafted one. A later call with the same arguments returns the
 * same. */
uint32_t run_backward_stack(struct run *run, uint32_t process, uint32_t thread, uint32_t stack, int64_t time_ns);

/* For a reader without a replay: a stack of autograd's threads below the line that called backward(), if the program
 * has only one such line; any other stack unchanged. */
uint32_t run_backward_stack_of_line(struct run *run, uint32_t stack);
/* For a reader without a replay: the stack that called backward(), if `stack` opens a window; else RUN_NONE. */
uint32_t run_backward_caller(const struct run *run, uint32_t stack);
