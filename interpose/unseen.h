/* Names of CUDA's functions that were handed out without a wrapper: kept for the report. */
#ifndef GPUSPY_UNSEEN_H
#define GPUSPY_UNSEEN_H

void gs_unseen_keep(const char *name);
/* Into the spool of the session that records now, each once. */
void gs_unseen_write(void);

#endif
