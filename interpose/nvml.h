/* What the driver's management library (NVML) reports about the devices that this process uses: once per second, and
 * soon after a failed allocation. Only NVML knows which other processes hold a GPU's memory. */
#pragma once

#include <stdbool.h>
#include "schema/spool.h"

/* A session that writes to this spool has begun: starts the thread, once per process, and waits up to a second until
 * NVML is open. Call it without a lock. */
void gs_nvml_begin(struct gs_spool *spool);

/* An allocation failed: requests a sample. Any thread, any signal handler. */
void gs_nvml_due(void);

/* Requests a sample and waits for it, at most one second. */
void gs_nvml_ask(int device);

/* No more samples are needed: the thread ends, unless NVML hangs. */
void gs_nvml_end(void);

/* The same, and waits for it; gs_nvml_begin may start the thread again. */
void gs_nvml_rest(void);

/* How many threads of the process are NVML's: 0 or 1. */
unsigned gs_nvml_threads(void);

/* Around fork: while locked, no thread is in NVML, whose locks a child would keep. Does not wait long if NVML hangs. */
void gs_nvml_lock(void);
void gs_nvml_unlock(void);
void gs_nvml_forget(void);
