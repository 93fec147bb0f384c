#include "analyzer/question/learn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "analyzer/allocator/allocator.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"

/* Smaller runs are not representative: their segments of 2 and 20 MiB are mostly empty. */
#define TENSORS_LEAST (64 << 20)

static const char *learned_gpu_name(const struct result_report *r, const struct result_device_memory *m)
{
    for (size_t i = 0; i < r->devices_n; i++)
        if (r->devices[i].process == m->process && r->devices[i].device == m->device) return r->devices[i].name;
    for (size_t i = 0; i < r->devices_n; i++) /* listed once for all processes */
        if (r->devices[i].device == m->device) return r->devices[i].name;
    return NULL;
}

static void learn_context(const struct result_report *r, const struct result_device_memory *m,
                          struct question_learned_row *l)
{
    l->row.context = NAN;
    if (r->simulated)
        l->why[LEARN_CONTEXT] = "the GPU is simulated";
    else if (m->context_bytes == RUN_UNKNOWN)
        l->why[LEARN_CONTEXT] = "NVML did not state this process's memory";
    else
        l->row.context = result_bytes_or_nan(m->context_bytes);
}

static const struct allocator_state *learned_allocator_of(const struct result_report *r,
                                                          const struct result_device_memory *m)
{
    return FIND_IN(a, r->allocator,
                   a->moment == ALLOCATOR_MOMENT_PEAK && a->process == m->process && a->device == m->device);
}

/* Holes between blocks. Whole cached segments are freed before memory runs out. */
static void learn_fragmentation(const struct result_report *r, const struct result_device_memory *m,
                                struct question_learned_row *l)
{
    const struct allocator_state *a = learned_allocator_of(r, m);

    l->row.fragmentation = NAN;
    if (!a || a->strays || a->inactive_split == RUN_UNKNOWN || a->active == RUN_UNKNOWN)
        l->why[LEARN_FRAGMENTATION] = "the holes of PyTorch's allocator are unknown";
    else if (a->active < TENSORS_LEAST)
        l->why[LEARN_FRAGMENTATION] = "its tensors were too small, less than 64 MiB";
    else
        l->row.fragmentation = (double)a->inactive_split / (double)a->active;
}

static void learn_workspace(const struct result_peak *peak, struct question_learned_row *l)
{
    int64_t bytes = peak ? peak->by_category.bytes[RESULT_CATEGORY_WORKSPACES] : 0;

    l->row.workspace = bytes > 0 ? (double)bytes : (double)NAN;
    if (bytes <= 0) l->why[LEARN_WORKSPACE] = "none existed at the peak";
}

static void learn_activations(const struct result_report *r, const struct result_device_memory *m,
                              const struct plan *plan, const struct estimate_result *result,
                              struct question_learned_row *l)
{
    const struct result_budget *b = &r->budget;
    struct estimate_interval predicted;
    double factor;

    l->row.activations = l->row.activations_predicted = l->row.batch = l->row.seq = l->row.formulas = NAN;
    if (!plan || b->process != m->process || b->device != m->device) return;
    predicted = question_plan_pass(result);
    if (b->pass_most_bytes == RUN_UNKNOWN || b->pass_most_bytes <= 0) {
        l->why[LEARN_ACTIVATIONS] = "none was recognised: it needs Python stacks and PyTorch's tensors";
        return;
    }
    if (ANY_IN(o, r->ooms, o->process == m->process && o->fatal)) {
        l->why[LEARN_ACTIVATIONS] = "memory ran out, perhaps before all of them existed";
        return;
    }
    factor = (double)b->pass_most_bytes / predicted.likely;
    if (!(factor >= CALIBRATION_FACTOR_LEAST && factor <= CALIBRATION_FACTOR_MOST)) {
        l->why[LEARN_ACTIVATIONS] = "measured and predicted differ by more than 5 times: the model, --batch or --seq "
                                    "probably do not match the recording";
        return;
    }
    estimate_calibration_key(&l->row, plan);
    l->row.activations = (double)b->pass_most_bytes;
    l->row.activations_predicted = predicted.likely;
    l->row.batch = plan->batch ? (double)plan->batch : (double)NAN;
    l->row.seq = plan->seq ? (double)plan->seq : (double)NAN;
    l->row.formulas = CALIBRATION_FORMULAS;
}

static bool has_learned_figure(const struct estimate_calibration_row *row)
{
    return !isnan(row->context) || !isnan(row->fragmentation) || !isnan(row->workspace) ||
           !isnan(row->activations_predicted);
}

void question_learn(const struct result_report *r, const char *path, const struct estimate_result *result,
                    struct question_learned *out)
{
    EACH_IN (m, r->memory) {
        const struct run_process *process = &r->processes[m->process];
        const char *gpu = learned_gpu_name(r, m);
        struct question_learned_row *l = ARENA_PUSH(out->rows, out->n, out->cap);
        *l = (struct question_learned_row){.pid = process->pid, .device = m->device};
        char id[80];
        snprintf(l->recording, sizeof l->recording, "%s", path);
        snprintf(id, sizeof id, "%.40s/%u/%llx/%d", process->run_id, process->pid,
                 process->start_real_ns == RUN_UNKNOWN ? 0ull : (unsigned long long)process->start_real_ns, m->device);
        terminal_clean(l->row.run, sizeof l->row.run, id, true);
        terminal_clean(l->row.gpu, sizeof l->row.gpu, gpu, true);
        learn_context(r, m, l);
        learn_fragmentation(r, m, l);
        const struct result_peak *peak =
            FIND_IN(p, r->peaks, p->layer == RUN_SERIES_TENSOR && p->process == m->process && p->device == m->device);
        learn_workspace(peak, l);
        learn_activations(r, m, out->plan, result, l);
        l->any = has_learned_figure(&l->row);
    }
}

bool question_learned_any(const struct question_learned *l)
{
    return ANY_OF(r, l->rows, l->n, r->any);
}

void question_learned_free(struct question_learned *l)
{
    free(l->rows);
    *l = (struct question_learned){0};
}
