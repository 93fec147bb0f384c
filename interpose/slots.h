/* Writers of ended threads, with their caches of stacks: the next new thread continues with one, so that a short thread
 * costs no chunk, no memory of its own and no definitions. At most 64 are kept. Any thread, at any time: no lock, no
 * malloc, no system call. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "interpose/stack.h"
#include "schema/spool.h"

/* The thread ends. False: no more can be kept, so close both. True: the thread no longer owns them. */
bool gs_slot_park(struct gs_writer *writer, struct gs_stacks *stacks, uint32_t session);
/* A thread begins. False: none is parked. Writes nothing: write a GS_REC_THREAD next. */
bool gs_slot_adopt(struct gs_writer *writer, struct gs_stacks **stacks, uint32_t session);
/* In a forked child: they belong to the parent. */
void gs_slots_forget(void);
