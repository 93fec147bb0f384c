/* A thread's Python and native frames → a stack number in its part of the spool.
 *
 * gs_stack_capture reads the calling thread's own frames, without the GIL, looks the whole stack up
 * in a per-thread cache by its hash, and writes definitions (GS_REC_FRAME_*, GS_REC_STACK) only
 * for what this thread has not written since its last GS_REC_RESET. No lock, no malloc, no dladdr,
 * no dlsym on that path.
 *
 *   stack_python*.c  the interpreter: finding and verifying it, its layout by version, walking, lines
 *   stack_code.c     the identity of code objects, whose memory is reused
 *   stack_unwind.c   the C stack; stack_cfi*.c: the tables that it follows; stack_memory.c: which
 *                    memory may be read; stack_walk.h: paths that need no unwinding again
 *   stack_module.c   loaded objects: paths and build ids
 *   stack_id.c       merging both into a hash and a number; stack_cache.c: the caches
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "schema/spool.h"

enum { GS_STACK_PYTHON = 1, GS_STACK_NATIVE = 2 };
#define GS_STACK_MAX_FRAMES                                             \
    512 /* deeper stacks keep the innermost frames and end in one named \
           "(deeper frames cut)" */

/* When a session starts, in any number of threads, without a lock. `what`: the kinds that the user wants
 * (GPUSPY_STACKS), `native_depth`: GPUSPY_NATIVE_DEPTH, 0 the default (64). Never fails: what is unavailable is left
 * out, and gs_stack_missing returns what and why. */
void gs_stack_init(unsigned what, unsigned native_depth);
/* A line such as "no Python stacks: Python 4.0.1 is not known to this version of gpuspy", or NULL. */
const char *gs_stack_missing(void);
/* Looks for a Python interpreter in the process if none was found yet. Cheap if nothing was loaded since the last call;
 * called when a thread is first seen. Not from a signal handler. */
void gs_stack_find_python(void);
/* "3.11.7", or NULL if there is none (or gpuspy cannot read its version). */
const char *gs_stack_python_version(void);

/* In a forked child: another thread of the parent may have been looking for Python. */
void gs_stack_forked(void);

struct gs_stacks; /* one thread's caches, in memory of its own (mmap) */

/* NULL: no memory; captures then return 0. */
struct gs_stacks *gs_stacks_open(struct gs_writer *w);
void gs_stacks_close(struct gs_stacks *s);
/* Another thread takes over these caches. Definitions that they have written stay valid. */
void gs_stacks_adopt(struct gs_stacks *s);

/* After a library was unloaded: addresses of its code may mean something else from now on. At any time, from anywhere.
 * */
void gs_stack_unloaded(void);

/* The calling thread's stack, as its number in the thread's part of the spool; 0 none. `what` limits the kinds for this
 * event (a tensor's free needs Python only). Frames of libgpuspy are left out: the innermost frame is the caller of the
 * wrapper whose return address is `caller` (__builtin_return_address(0) in the wrapper). The writer must not hold an
 * open reservation, because this may write definitions. */
uint32_t gs_stack_capture(struct gs_stacks *s, unsigned what, const void *caller);
