/* Which device a thread works on, and what that device reports about itself. */
#pragma once

#include "interpose/recorder.h"

/* The device that an event belongs to: `device` itself, or for GS_DEVICE_CURRENT the thread's current one, queried from
 * CUDA if unknown. -1 none or unknown. The first use of a device defines it (GS_REC_GPU). */
int gs_device_resolve(struct gs_thread *t, int device);

/* Free and total bytes of the current context's device; UINT64_MAX if there is no context. */
void gs_device_memory(uint64_t *free_bytes, uint64_t *total_bytes);

/* Stores the device's primary context, 0 when it is destroyed; returns the previous one. */
uint64_t gs_device_primary(int device, uint64_t context);
/* Does CUDA report that the device's primary context is destroyed? */
bool gs_device_primary_inactive(int device);

/* Contexts other than primary ones have numbers from 1: gs_rec_alloc.context. Primary ones have 0. */
uint16_t gs_context_add(uint64_t context);
uint16_t gs_context_remove(uint64_t context); /* the number that it had */
uint16_t gs_context_current(struct gs_thread *t);
/* Was the context current, and is it no longer? */
bool gs_context_popped(uint64_t context);

/* A bit for each device seen so far whose bus address CUDA has reported; and that address. */
uint64_t gs_device_located(void);
void gs_device_locate(int device);
const char *gs_device_bus(int device);
void gs_device_bus_forget(void);

/* A new session knows no device. */
void gs_device_forget(void);
