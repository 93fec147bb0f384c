/* The doors of a gpuspy that was loaded into a running process: nothing binds to its names there, so the imports of
 * the loaded objects are pointed to its wrappers, and back again. */
#ifndef GPUSPY_REROUTE_H
#define GPUSPY_REROUTE_H

#include <stdbool.h>

/* Points all imports to the wrappers (or `back`). Takes the loader's lock and gives it back: only in a thread of our
 * own that nobody waits for. Waits until no other thread does the same; false: the list of objects did not rest. */
bool gs_reroute(bool back);

/* Some object may be loaded soon: the next look-up of a function will see to it. Takes no lock. */
void gs_reroute_later(void);
/* For the door of dlsym, whose caller takes the loader's lock anyway: objects that came since. */
void gs_reroute_due(void);

/* In a forked child. */
void gs_reroute_forked(void);

#endif
