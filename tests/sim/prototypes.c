/* Compiled, never run: declares every simulated entry point after the toolkit's own declaration of it, including old
 * and per-thread forms. A different signature does not compile. */
#define __CUDA_API_VERSION_INTERNAL
#define SIMCUDA_TOOLKIT_TYPES
#include "fixtures/simcuda/include/simcuda.h"
