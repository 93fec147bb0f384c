/* The thread of gpuspy that shares the program's descriptors while the drain has its own table: it prints the drain's
 * messages, and ends a process of which only gpuspy's threads are left. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Call in the thread that starts the session; `end_session` is called before the watcher ends a process. Returns 0 or
 * an errno. */
int gs_watcher_start(void (*end_session)(void));
/* The session is over: prints what is still queued; the thread ends. */
void gs_watcher_stop(void);
/* Waits for a while until it has ended; false: it has not. */
bool gs_watcher_rest(void);
/* In a forked child, which has no such thread. */
void gs_watcher_forget(void);

/* When the library is loaded: remembers what stderr is. */
void gs_stderr_load(void);
/* Writes to stderr what a thread without the program's descriptors wants to print. */
void gs_write_line(const char *line, size_t len);

/* Queues one line for stderr; the watcher prints it, or gs_watcher_stop at the latest. For threads that have no stderr.
 * While a line is queued, further lines are dropped. */
void gs_watcher_print(const char *line, size_t len);

/* Have all of the program's threads ended? `own` threads are gpuspy's and not counted. If so, *signal is the signal
 * that ended the last one, its status << 8 if it made the exit system call itself, 0 for a normal end. One thread calls
 * this from time to time; its table of descriptors may lack standard input and output. */
bool gs_program_ended(unsigned own, int *signal);
/* Ends the process as its last thread would have: by the signal, with the status, or by exit(0). Returns at once. */
void gs_watcher_end_process(int signal);
