/* PyTorch requests memory from CUDA, CUDA refuses, PyTorch frees its cached segments, requests again, CUDA refuses
 * again, and PyTorch reports: several rows, one failure. Rows of one thread belong together while they request the same
 * size and none of them succeeded; PyTorch's own report closes the group. */
#include "analyzer/oom/oom_group.h"

#include "analyzer/allocator/allocator.h"

struct failures {
    const struct run *run;
    const struct run_oom *rows;
    size_t rows_n;
};

/* Does PyTorch's failure result from CUDA's? PyTorch requests at least as much from CUDA as the program requested, but
 * piece by piece if it maps memory; both are within one call, so from one line of Python; and if CUDA's failure was
 * recovered and PyTorch's never was, they are two. */
static bool reports_same_failure(const struct run *run, const struct run_oom *tensor, const struct run_oom *device)
{
    uint32_t theirs = run_stack_python(run, tensor->stack);
    uint32_t cudas = run_stack_python(run, device->stack);
    return (device->requested_bytes >= tensor->requested_bytes || device->space == GS_SPACE_VMM) &&
           (device->fatal || !tensor->fatal) && (theirs == cudas || theirs == RUN_NONE || cudas == RUN_NONE);
}

/* PyTorch requests twice before it reports: the row before the report is the second attempt. */
static bool is_reported_next(const struct failures *o, size_t index)
{
    const struct run_oom *row = &o->rows[index];
    for (size_t i = index + 1; i < o->rows_n; i++)
        if (o->rows[i].process == row->process && o->rows[i].thread == row->thread)
            return o->rows[i].layer == GS_LAYER_TENSOR && reports_same_failure(o->run, &o->rows[i], row);
    return false;
}

static bool belongs_to_group(const struct failures *o, const struct oom_group *g, size_t index)
{
    const struct run_oom *last = &o->rows[g->last], *row = &o->rows[index];
    if (g->tensor_failed || last->process != row->process || last->device != row->device) return false;
    if (row->layer == GS_LAYER_TENSOR) return reports_same_failure(o->run, row, last);
    /* between its two attempts PyTorch waits for the GPU, for any time */
    const bool reported = is_reported_next(o, index), soon = row->time_ns - last->time_ns < ALLOCATOR_SAME_FAILURE_NS;
    return row->requested_bytes == last->requested_bytes && reported + soon + last->fatal >= 2;
}

static void join_group(struct oom_group *g, const struct run_oom *row, size_t index)
{
    bool tensor = row->layer != GS_LAYER_DEVICE;
    g->last = index;
    g->shown = index;
    g->failures++;
    g->capped = g->capped || row->capped;
    g->fatal = tensor ? row->fatal : (g->fatal || row->fatal);
    g->device_failed = g->device_failed || !tensor;
    g->tensor_failed = g->tensor_failed || tensor;
    g->device_requested =
        !tensor && row->requested_bytes > g->device_requested ? row->requested_bytes : g->device_requested;
    g->free = row->free_bytes != RUN_UNKNOWN ? row->free_bytes : g->free;
    g->total = row->total_bytes != RUN_UNKNOWN ? row->total_bytes : g->total;
    g->placed = g->failures == 1 || row->stack != RUN_NONE ? index : g->placed;
}

struct oom_group *oom_make_groups(struct site_builder *b, const struct run_oom *rows, size_t rows_n, size_t *n)
{
    const struct failures o = {b->run, rows, rows_n};
    struct oom_group *groups = NULL;
    size_t groups_cap = 0;
    struct map open = {0}; /* process, thread → group */
    *n = 0;
    for (size_t i = 0; i < rows_n; i++) {
        const struct run_oom *row = &rows[i];
        if (b->options->by_device && row->device >= 0 && row->device != b->options->device) continue;
        uint32_t *at = map_at(&open, (uint64_t)row->process << 32 | row->thread);
        if (*at == MAP_NEW || !belongs_to_group(&o, &groups[*at], i)) {
            *at = (uint32_t)*n;
            *ARENA_PUSH(groups, *n, groups_cap) =
                (struct oom_group){.first = i, .free = RUN_UNKNOWN, .total = RUN_UNKNOWN};
        }
        join_group(&groups[*at], row, i);
    }
    map_free(&open);
    return groups;
}
