/* Which device a thread works on, and what the device says of itself. */
#ifndef GPUSPY_DEVICE_H
#define GPUSPY_DEVICE_H

#include "interpose/recorder.h"

/* The device that an event belongs to: `device` itself, or for GS_DEVICE_CURRENT the thread's
 * current one, asked of CUDA where it is not known. -1 none or unknown. A device that is met for
 * the first time is defined (GS_REC_GPU). */
int gs_device_resolve(struct gs_thread *t, int device);

/* The current context's device's free and total bytes, UINT64_MAX where there is none. */
void gs_device_memory(uint64_t *free_bytes, uint64_t *total_bytes);

/* Notes the device's primary context, 0 that it is gone; returns the one noted before. */
uint64_t gs_device_primary(int device, uint64_t context);
/* Whether CUDA says that the device's primary context is gone. */
bool gs_device_primary_inactive(int device);

/* Contexts that are no primary ones have numbers, from 1: gs_rec_alloc.context. 0 for the others. */
uint16_t gs_context_add(uint64_t context);
uint16_t gs_context_remove(uint64_t context); /* the number that it had */
uint16_t gs_context_current(struct gs_thread *t);
/* Whether a context that was current is not any more. */
bool gs_context_popped(uint64_t context);

/* The devices met so far whose place on the bus CUDA told: a bit each; and that place. */
uint64_t gs_device_located(void);
void gs_device_locate(int device);
const char *gs_device_bus(int device);
void gs_device_bus_forget(void);

/* A new session knows no device. */
void gs_device_forget(void);

#endif
