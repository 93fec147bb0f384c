/* Which function a stopped thread of another process executes, and the addresses of functions in that process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "analyzer/attach/thread.h"

struct attach_places; /* the libraries that were loaded when it was opened */

/* NULL: they cannot be read. */
struct attach_places *attach_places_open(pid_t pid);
void attach_places_close(struct attach_places *p);

/* The address of a function of the C library; 0: it has no function of that name. */
uintptr_t attach_places_libc(struct attach_places *p, const char *name);

/* Whether this stopped thread can call dlopen and start a thread: it holds no lock of the C library or the loader, and
 * is not in a signal handler, which may have interrupted somebody who does. */
bool attach_places_safe(struct attach_places *p, const struct attach_thread *t);
