/* Compiled, never run: declares every simulated entry point beside the toolkit's own declaration of
 * it, old and per-thread forms included. A signature that differs does not compile. */
#define __CUDA_API_VERSION_INTERNAL
#define SIMCUDA_TOOLKIT_TYPES
#include "fixtures/simcuda/include/simcuda.h"
