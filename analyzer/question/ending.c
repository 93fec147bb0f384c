/* Which failure ended the program. In threads it is the first of those at one place: a pool finishes its other items,
 * which fail likewise, before the program sees the exception, and other threads fail until they have all ended. What
 * the results of the earlier items hold is freed meanwhile, so only the first failure shows it. A server in Go or C++
 * answers with an error, and its next requests fail likewise. */
#include "analyzer/question/question.h"

#include <stdlib.h>
#include <string.h>

/* `place`: "/home/u/train.py:31". */
static bool is_at_place(const struct run *run, uint32_t stack, const char *place)
{
    const char *colon = strrchr(place, ':');
    return colon && RUN_ANY_FRAME(f, run, stack,
                                  f->kind == GS_FRAME_PYTHON && f->line == atoi(colon + 1) && f->file &&
                                      strlen(f->file) == (size_t)(colon - place) &&
                                      strncmp(f->file, place, (size_t)(colon - place)) == 0);
}

bool question_in_pool(const struct run *run, const struct run_oom *row)
{
    return run_stack_is_in(run, row->stack, "concurrent/futures/thread.py", NULL) ||
           run_stack_is_in(run, row->stack, "multiprocessing/pool.py", NULL);
}

uint32_t question_raised_failure(const struct run *run, uint32_t process)
{
    size_t n, processes_n;
    const struct run_process *p = &run_processes(run, &processes_n)[process];
    const struct run_oom *rows = run_ooms(run, &n);
    uint32_t last = RUN_NONE, first = RUN_NONE;
    for (size_t i = 0; i < n && result_names_memory(p->exception) && p->exception_place; i++) {
        if (rows[i].process != process || !is_at_place(run, rows[i].stack, p->exception_place)) continue;
        last = (uint32_t)i;
        if (first == RUN_NONE && rows[i].layer == GS_LAYER_TENSOR && question_in_pool(run, &rows[i])) first = last;
    }
    return first != RUN_NONE ? first : last;
}

/* Without its pool, JAX makes an array of an execution that failed, and raises the exception where the program reads
 * it: what follows until then computes nothing. */
static bool is_raised_later(const struct run *run, const struct run_oom *row)
{
    const char *allocator = run_setting_value(run, row->process, "XLA_PYTHON_CLIENT_ALLOCATOR");
    return allocator && strcmp(allocator, "platform") == 0 &&
           RUN_ANY_FRAME(f, run, row->stack,
                         f->module && (strstr(f->module, "xla_cuda_plugin") || strstr(f->module, "/jaxlib/")));
}

/* It ended cleanly. PyTorch throws, and an uncaught exception sets the exit status unless a thread ends with it; a
 * result of CUDA can be ignored, or be the last one. */
static bool is_survived(const struct run *run, const struct run_process *p, const struct run_oom *row)
{
    return p->exit_status == 0 && !is_raised_later(run, row) &&
           !run_stack_is_in(run, row->stack, "threading", "_bootstrap") &&
           (run_stack_python(run, row->stack) != RUN_NONE || p->last_alloc_ns > row->time_ns);
}

/* Do both show one failure, at one place? `later` comes after it. */
static bool is_same_failure(const struct run *run, const struct run_oom *row, const struct run_oom *later)
{
    const uint32_t python = run_stack_python(run, row->stack);
    return row->layer == later->layer && python == run_stack_python(run, later->stack) &&
           (python == RUN_NONE ? row->stack == later->stack
                               : run_stack_is_in(run, row->stack, "threading", "_bootstrap"));
}

uint32_t question_ending_failure(const struct run *run, uint32_t process)
{
    size_t n, processes_n;
    const struct run_oom *rows = run_ooms(run, &n);
    const struct run_process *p = &run_processes(run, &processes_n)[process];
    const uint32_t raised = question_raised_failure(run, process);
    if (raised != RUN_NONE && question_in_pool(run, &rows[raised])) return raised;
    uint32_t end = RUN_NONE;
    for (size_t i = n; i-- > 0;) {
        if (rows[i].process != process || !rows[i].fatal || is_survived(run, p, &rows[i])) continue;
        if (end == RUN_NONE || is_same_failure(run, &rows[i], &rows[end])) end = (uint32_t)i;
    }
    return end;
}
