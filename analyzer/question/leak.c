/* What was never freed while it was recorded. Under PyTorch the device level is left out: its
 * segments stay cached to the end by design, and its tensors are listed. What grows is none
 * of it. */
#include "analyzer/question/question.h"

#include <stdlib.h>

static bool has_tensors(const struct gs_run *run, const struct gs_series *s)
{
    for (size_t i = 0; i < gs_run_serieses(run); i++) {
        const struct gs_series *t = gs_run_series(run, (uint32_t)i);
        if (t->layer == GS_SERIES_TENSOR && t->process == s->process && t->device == s->device) {
            return true;
        }
    }
    return false;
}

static int heavier(const void *a, const void *b)
{
    const struct gs_leak *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->stack.n < y->stack.n ? -1 : x->stack.n > y->stack.n;
}

static uint64_t kind_of(const void *row)
{
    const struct gs_leak *x = row;
    return (uint64_t)x->process << 32 | (uint64_t)(x->device + 1) << 8 | (uint64_t)x->layer << 1 | x->growing;
}

static void add_leak(void *into, const void *from)
{
    struct gs_leak *to = into;
    const struct gs_leak *x = from;
    to->bytes = gs_add(to->bytes, x->bytes);
    to->count += x->count;
}

static struct gs_line_path path_of(const void *row)
{
    const struct gs_leak *x = row;
    return (struct gs_line_path){.bytes = x->bytes, .count = x->count, .site = x->stack.site};
}

/* `work` is sorted; its rows have the number of their stack in place of its frames. */
static void list_lines(struct gs_builder *b, struct gs_leak *work, size_t n)
{
    static const struct gs_line_form form = {.size = sizeof(struct gs_leak),
                                             .site = offsetof(struct gs_leak, stack.site),
                                             .paths = offsetof(struct gs_leak, paths),
                                             .kind = kind_of,
                                             .add = add_leak,
                                             .path = path_of,
                                             .order = heavier};
    for (size_t i = 0; i < n; i++) {
        const uint32_t site = gs_site_number(b, (uint32_t)work[i].stack.n);
        work[i].stack = (struct gs_trace){.site = b->sites[site]};
    }
    b->report->leak_lines = gs_lines_of(b, work, n, &form, &b->report->leak_lines_n, &b->report->leak_lines_total);
}

void gs_leaks_build(struct gs_builder *b)
{
    struct gs_report *report = b->report;
    struct gs_leak *work = NULL;
    size_t n = 0, cap = 0, processes_n;
    const struct gs_process *processes = gs_run_processes(b->run, &processes_n);
    bool *skip = gs_realloc(NULL, gs_run_serieses(b->run), sizeof *skip);
    for (size_t i = 0; i < gs_run_serieses(b->run); i++) {
        const struct gs_series *s = gs_run_series(b->run, (uint32_t)i);
        skip[i] = s->layer == GS_SERIES_SHARED || /* its owner's to free */
                  (s->layer == GS_SERIES_DEVICE && has_tensors(b->run, s));
    }
    for (size_t i = 0; i < gs_run_locations(b->run); i++) {
        const struct gs_location *l = gs_run_location(b->run, (uint32_t)i);
        const struct gs_series *s = gs_run_series(b->run, l->series);
        const bool growing = i < b->growing_n && b->growing[i];
        if (l->live_count && l->live_bytes > 0 && (!skip[l->series] || growing)) {
            *GS_PUSH(work, n, cap) = (struct gs_leak){.process = s->process,
                                                      .device = s->device,
                                                      .layer = s->layer,
                                                      .bytes = l->live_bytes,
                                                      .count = l->live_count,
                                                      .growing = growing,
                                                      .stack = {.n = l->stack}};
        }
    }
    report->leaks = gs_list(b, work, n, sizeof *work, heavier, &report->leaks_n, &report->leaks_total);
    for (size_t i = 0; i < report->leaks_n; i++) {
        report->leaks[i].stack = gs_trace_of(b, (uint32_t)report->leaks[i].stack.n);
    }
    list_lines(b, work, n);
    report->leaks_at_end = true;
    for (size_t i = 0; i < processes_n; i++) {
        report->leaks_at_end = report->leaks_at_end && processes[i].complete;
    }
    for (size_t i = 0; i < report->ooms_n; i++) { /* what an exception left behind is not a leak either */
        report->leaks_at_end = report->leaks_at_end && !report->ooms[i].fatal;
    }
    free(skip);
    free(work);
}
