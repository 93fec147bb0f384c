/* Makes NVTX find this library through the environment. */
#pragma once

/* Sets NVTX's variable to this library, unless the user has chosen a tool or nothing is recorded. */
void gs_nvtx_announce(void);
