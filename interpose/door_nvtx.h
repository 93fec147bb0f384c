/* Makes NVTX find this library through the environment. */
#ifndef GPUSPY_DOOR_NVTX_H
#define GPUSPY_DOOR_NVTX_H

/* Sets NVTX's variable to this library, unless the user has chosen a tool or nothing is recorded. */
void gs_nvtx_announce(void);

#endif
