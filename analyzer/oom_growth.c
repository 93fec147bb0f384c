/* What of the live bytes at a failure had grown over the run, what the graphs among it end in, and
 * what the program had needed before beside it. */
#include "analyzer/question.h"
#include "analyzer/step.h"

#include <stdlib.h>
#include <string.h>

static bool has_function(const struct gs_run *run, uint32_t stack, const char *function)
{
    const struct gs_frame *frame;
    for (; (frame = gs_stack_frame(run, stack)) != NULL; stack = gs_stack_parent(run, stack)) {
        if (frame->kind == GS_FRAME_PYTHON && frame->function &&
            strstr(frame->function, function)) {
            return true;
        }
    }
    return false;
}

/* One forward pass that does not fit looks like a leak: layer after layer keeps its activations,
 * and nothing comes back. What grows inside a module's call counts only where steps have come to an
 * end, so that most of what was ever allocated has been freed again. */
static bool one_pass(const struct gs_run *run, double turnover, uint32_t stack)
{
    static const double ended = 0.5;
    return turnover < ended && has_function(run, stack, "_call_impl");
}

static bool counts(const struct gs_builder *b, const struct gs_oom_live *l,
                   const struct gs_oom_facts *f)
{
    return l->location < b->growing_n && b->growing[l->location] &&
           !one_pass(b->run, f->turnover, gs_run_location(b->run, l->location)->stack);
}

/* Autograd keeps a step's graph as long as somebody keeps what it ends in: activations of modules
 * then grow together with something that is allocated after them in each step and as often. That
 * last one is what the program holds on to; the rest hangs on it. A tensor kept by itself grows
 * alone. */
static void find_root(const struct gs_builder *b, const struct gs_oom_live *live, size_t n,
                      struct gs_oom_facts *f)
{
    uint64_t most = 0;
    bool activations = false;
    const struct gs_oom_live *root = NULL;
    for (size_t i = 0; i < n; i++) {
        if (counts(b, &live[i], f)) {
            most = live[i].count > most ? live[i].count : most;
            activations =
                activations ||
                has_function(b->run, gs_run_location(b->run, live[i].location)->stack, "_call_impl");
        }
    }
    if (!activations || f->growing_sites < 2) {
        return;
    }
    int64_t last = 0;
    for (size_t i = 0; i < n; i++) {
        last = counts(b, &live[i], f) && live[i].last_ns > last ? live[i].last_ns : last;
    }
    int64_t step = most > 1 ? (last - f->growing_first_ns) / (int64_t)(most - 1) : 0;
    for (size_t i = 0; i < n; i++) {
        if (counts(b, &live[i], f) && live[i].count >= most / 2 &&
            live[i].first_ns < f->growing_first_ns + 4 * step &&
            (!root || live[i].first_ns > root->first_ns)) {
            root = &live[i];
        }
    }
    f->root_stack = root ? gs_run_location(b->run, root->location)->stack : GS_NONE;
}

void gs_oom_growing(const struct gs_builder *b, const struct gs_oom_live *live, size_t n,
                    struct gs_oom_facts *f)
{
    f->growing_first_ns = GS_NEVER;
    for (size_t i = 0; i < n; i++) {
        const struct gs_oom_live *l = &live[i];
        uint32_t stack = gs_run_location(b->run, l->location)->stack;
        if (l->bytes > f->holder) {
            f->holder = l->bytes;
            f->holder_stack = stack;
        }
        if (!counts(b, l, f)) {
            continue;
        }
        f->growing = gs_add(f->growing, l->bytes);
        f->growing_sites++;
        f->growing_first_ns = l->first_ns < f->growing_first_ns ? l->first_ns : f->growing_first_ns;
        if (l->bytes > f->growing_heaviest) {
            f->growing_heaviest = l->bytes;
            f->growing_stack = stack;
            f->growing_count = l->count;
        }
    }
    if (f->growing_sites) {
        find_root(b, live, n, f);
    }
}

/* Of what grows, what was there at that time: it grew along a straight line. */
static double grown_by(const struct gs_oom_facts *f, double time_s)
{
    double first = gs_seconds(f->growing_first_ns), end = gs_seconds(f->row->time_ns);
    if (!f->growing_sites || time_s <= first || end <= first) {
        return 0;
    }
    return (double)f->growing * (time_s - first) / (end - first);
}

/* Up to when it counts as earlier: well before the end, so that what grew unseen is not taken for what
 * had always been needed; and before the step that failed. Where no steps are known, but something grows:
 * that was once a step. */
static int64_t earlier_until(const struct gs_builder *b, const struct gs_oom_facts *f)
{
    const struct gs_steps *steps = gs_steps_of(b, f->row->process);
    int64_t at = f->row->time_ns;
    if (steps) {
        size_t done = gs_steps_done(steps, at);
        return gs_step_start(steps, done < 4 ? done : done - done / 4);
    }
    if (!f->growing_sites) {
        return GS_UNKNOWN;
    }
    int64_t step = (at - f->growing_first_ns) / (int64_t)(f->growing_count + 1);
    return at - step * (int64_t)(1 + f->growing_count / 4);
}

void gs_oom_demand(const struct gs_builder *b, struct gs_oom_facts *f)
{
    int64_t began = earlier_until(b, f);
    double most = -1;
    if (began == GS_UNKNOWN) {
        return;
    }
    for (size_t i = 0; i < b->report->timelines_n; i++) {
        const struct gs_timeline *t = &b->report->timelines[i];
        if (t->process != f->row->process || t->device != f->row->device || t->layer != f->layer) {
            continue;
        }
        for (size_t p = 0; p < t->n && t->points[p].time_s < gs_seconds(began); p++) {
            double demand = (double)t->points[p].bytes - grown_by(f, t->points[p].time_s);
            most = demand > most ? demand : most;
        }
    }
    f->earlier = most >= 0 ? (int64_t)most : GS_UNKNOWN;
}
