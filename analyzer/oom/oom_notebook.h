/* Cells of a notebook, as IPython names their code. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/oom/oom.h"
#include "analyzer/run/run.h"

/* The outermost frame of a stack that is in a cell; NULL none. */
const struct run_frame *oom_notebook_cell(const struct run *run, uint32_t stack);

/* Who keeps exceptions that a statement typed there does not catch (sys.last_traceback): "IPython", "Python's prompt";
 * NULL: the call path begins in a program. */
const char *oom_notebook_session(const struct run *run, uint32_t stack);

/* What continues when an exception ends a cell or a statement typed there: the exit status shows nothing of it. NULL:
 * an exception ends the program. */
const char *oom_notebook_prompt(const struct run *run, const struct run_process *p, uint32_t stack);

struct oom_notebook_displays { /* cells whose value IPython displayed: it was on the GPU, as its text was computed there
                                */
    struct oom_notebook_display {
        const char *file;
        int line;
    } * list;
    size_t n, cap;
};
struct oom_notebook_displays oom_notebook_displayed(struct arena *arena, const struct run *run);
bool oom_notebook_displays_of(const struct oom_notebook_displays *d, const struct run *run, uint32_t stack);
/* The cell that left the most memory, other than the current one: intermediate results, and all of a model that it
 * trained while the current cell trains one, too. file: NULL none. */
struct oom_notebook_left {
    const char *file;
    int64_t bytes, passes; /* passes: of it, in intermediate results and in what its functions made */
    bool trained;
    const char *failed; /* the exception that ended it, and that IPython still keeps; NULL: unknown, or none */
};
struct oom_notebook_left oom_notebook_find_left(const struct run *run, const struct result_oom_verdict *v,
                                                uint32_t stack);
bool oom_notebook_is_left(const struct oom_notebook_left *left, const struct run *run,
                          const struct result_category_line *l);
void oom_notebook_find_displayed(const struct run *run, const struct oom_live *live, size_t n, struct oom_facts *f);
