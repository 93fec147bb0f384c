/* Writers of ended threads, with the caches of their stacks: the next new thread goes on with one, so
 * that a short thread costs no chunk, no memory of its own and no definitions. At most 64 are kept.
 * Any thread, at any time: no lock, no malloc, no system call. */
#ifndef GPUSPY_SLOTS_H
#define GPUSPY_SLOTS_H

#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack.h"
#include "schema/spool.h"

/* The thread ends. False: none can be kept; close both. Else both are gone from the thread. */
bool gs_slot_park(struct gs_writer *writer, struct gs_stacks *stacks, uint32_t session);
/* A thread begins. False: there is none. Writes nothing: a GS_REC_THREAD has to come next. */
bool gs_slot_adopt(struct gs_writer *writer, struct gs_stacks **stacks, uint32_t session);
/* In a forked child: they are the parent's. */
void gs_slots_forget(void);

#endif
