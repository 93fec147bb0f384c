/* NVTX finds this library by the environment. */
#ifndef GPUSPY_DOOR_NVTX_H
#define GPUSPY_DOOR_NVTX_H

/* Names it there, unless a tool that the user has chosen is named already or nothing is recorded. */
void gs_nvtx_announce(void);

#endif
