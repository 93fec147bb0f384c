/* Names of CUDA's functions that were returned to the program without a wrapper: kept for the report. */
#pragma once

void gs_unseen_keep(const char *name);
/* Writes them into the spool of the current session, each once. */
void gs_unseen_write(void);
