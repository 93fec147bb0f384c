/* What the driver's management library (NVML) says of the devices that this process uses: once a
 * second, and soon after a failed allocation. It is the only one that knows who else holds a GPU's
 * memory. */
#ifndef GPUSPY_NVML_H
#define GPUSPY_NVML_H

#include <stdbool.h>
#include "schema/spool.h"

/* A session has begun that writes there: starts the thread, once in the life of a process, and waits up to a
 * second until NVML is open. Call it without a lock. */
void gs_nvml_begin(struct gs_spool *spool);

/* An allocation failed: a sample is due. Any thread, any signal handler. */
void gs_nvml_due(void);

/* Has a sample made now and waits for it, a second at most. */
void gs_nvml_ask(int device);

/* No sample is needed any more: the thread ends, where NVML does not hang. */
void gs_nvml_end(void);

/* The same, and waits for it: gs_nvml_begin may start one again. */
void gs_nvml_rest(void);

/* How many threads of the process are NVML's: 0 or 1. */
unsigned gs_nvml_threads(void);

/* Around fork: while locked, no thread is in NVML, whose locks a child would keep. Not waited for
 * long where NVML hangs. */
void gs_nvml_lock(void);
void gs_nvml_unlock(void);
void gs_nvml_forget(void);

#endif
