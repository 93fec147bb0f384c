/* What passes that ran out of memory earlier still hold: oom_failed.c. */
#ifndef GPUSPY_OOM_FAILED_H
#define GPUSPY_OOM_FAILED_H

#include "analyzer/oom/oom.h"

struct gs_oom_window { /* of a pass that failed: after from_ns, up to the failure at to_ns */
    int64_t from_ns, to_ns;
    const struct gs_oom_window *previous; /* of the same thread; NULL none */
};

/* Live blocks on that device that passes made in one of the windows. */
struct gs_oom_failed_pass gs_oom_failed_held(const struct gs_run *run, const struct gs_oom_window *list, int device);

#endif
