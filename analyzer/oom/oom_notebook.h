/* Cells of a notebook, as IPython names their code. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/run/run.h"

/* The outermost frame of a stack that is in a cell; NULL none. */
const struct run_frame *oom_notebook_cell(const struct run *run, uint32_t stack);

/* Who keeps exceptions that a statement typed there does not catch (sys.last_traceback): "IPython", "Python's prompt";
 * NULL: the call path begins in a program. */
const char *oom_notebook_session(const struct run *run, uint32_t stack);

struct oom_notebook_displays { /* cells whose value IPython displayed: it was on the GPU, as its text was computed there
                                */
    const char **files;
    size_t n, cap;
};
struct oom_notebook_displays oom_notebook_displayed(struct arena *arena, const struct run *run);
bool oom_notebook_displays_of(const struct oom_notebook_displays *d, const struct run *run, uint32_t stack);
