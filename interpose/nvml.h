/* What the driver's management library (NVML) says of the devices that this process uses: once a
 * second, and soon after a failed allocation. It is the only one that knows who else holds a GPU's
 * memory. */
#ifndef GPUSPY_NVML_H
#define GPUSPY_NVML_H

#include <stdbool.h>
#include "schema/spool.h"

/* Finds the library, once in the life of a process; in the thread whose call starts the session, before
 * that takes a lock. */
void gs_nvml_open(void);
/* A session begins that writes there. */
void gs_nvml_start(struct gs_spool *spool);

/* The drain's turn, without its lock: samples if one is due and the spool is `fill` full, at most a
 * quarter. May take tens of milliseconds, seconds where the driver is in trouble. */
void gs_nvml_turn(double fill);

/* An allocation failed: a sample is due at the next turn. Any thread. */
void gs_nvml_due(void);

/* What other processes hold on a CUDA device, asked now; UINT64_MAX where NVML cannot tell. */
uint64_t gs_nvml_others(int device);

/* Around fork: while locked, no thread is in NVML, whose locks a child would keep. Not waited for
 * long where NVML hangs. */
void gs_nvml_lock(void);
void gs_nvml_unlock(void);
void gs_nvml_forget(void);

#endif
