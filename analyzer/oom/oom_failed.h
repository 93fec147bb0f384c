/* Memory that passes that ran out of memory earlier still hold: oom_failed.c. */
#pragma once

#include "analyzer/oom/oom.h"

struct oom_window { /* of a pass that failed: after from_ns, up to the failure at to_ns */
    int64_t from_ns, to_ns;
    const struct oom_window *previous; /* of the same thread; NULL none */
};

/* Live blocks on that device that passes made in one of the windows. */
struct oom_failed_pass oom_failed_held(const struct run *run, const struct oom_window *list, int device);
/* The call of the failed request's call path that an except block made; RUN_NONE: none is known. */
uint32_t oom_failed_retry(struct site_builder *b, const struct oom_facts *f);
