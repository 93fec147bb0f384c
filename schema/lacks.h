/* The table of functions that the simulated CUDA lacks. `gpuspy run --simulate` creates it in shared memory, every
 * process of the run maps it, and it survives the death of any of them. */
#pragma once

#include <stdint.h>

/* The table's path, in the environment of the program. */
#define GS_LACKS_VARIABLE "SIMCUDA_LACKS"

#define GS_LACKS_MAGIC 0x31534b43414c5347ull /* "GSLACKS1" */
enum { GS_LACKS = 8192 };

struct gs_lack {
    uint64_t calls;   /* atomic */
    uint32_t imports; /* atomic; 0: another library turned out to have it */
    uint32_t refused; /* the simulator has the function, but it does nothing */
    uint32_t ready;   /* the names are complete (release) */
    char name[76];    /* of the function or variable; "": the whole library is missing */
    char library[32];
};

struct gs_lacks {
    uint64_t magic;
    uint32_t used; /* atomic; may exceed GS_LACKS: the table is full */
    uint32_t reserved;
    struct gs_lack rows[GS_LACKS];
};
