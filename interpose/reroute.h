/* The doors of a gpuspy that was loaded into a running process: nothing binds to its names there, so the imports of the
 * loaded objects are redirected to its wrappers, and back again. */
#pragma once

#include <stdbool.h>

/* Redirects all imports to the wrappers (or `back`). Takes and releases the loader's lock: call it only in a thread of
 * gpuspy's own that nothing waits for. Waits until no other thread does the same; false: the list of objects kept
 * changing. */
bool gs_reroute(bool back);

/* An object may be loaded soon: the next look-up of a function will handle it. Takes no lock. */
void gs_reroute_later(void);
/* For the door of dlsym, whose caller takes the loader's lock anyway: handles objects that were loaded since. */
void gs_reroute_due(void);

/* In a forked child. */
void gs_reroute_forked(void);
