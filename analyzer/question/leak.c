/* Memory that was not freed while it was recorded. Under PyTorch the device level is left out: its segments stay cached
 * to the end by design, and its tensors are listed. Growth is listed separately. */
#include "analyzer/question/question.h"
#include "analyzer/base/sort.h"

SORT_ORDER(compare_leaks, struct result_leak,
           SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->stack.number, y->stack.number))

static uint64_t leak_kind_of(const void *row)
{
    const struct result_leak *x = row;
    return (uint64_t)x->process << 32 | (uint64_t)(x->device + 1) << 8 | (uint64_t)x->layer << 1 | x->growing;
}

static void add_leak(void *into, const void *from)
{
    struct result_leak *to = into;
    const struct result_leak *x = from;
    to->bytes = arena_add_capped(to->bytes, x->bytes);
    to->count += x->count;
}

SITE_LINE_PATH(leak_path_of, struct result_leak, .bytes = x->bytes, .count = x->count, .site = x->stack.site)

/* `work` is sorted. */
static void list_leak_lines(struct site_builder *b, struct result_leak *work, size_t n)
{
    static const struct site_line_form form =
        SITE_LINE_FORM(struct result_leak, stack.site, .kind = leak_kind_of, .add = add_leak, .path = leak_path_of,
                       .order = compare_leaks);
    for (size_t i = 0; i < n; i++)
        work[i].stack = (struct result_trace){.number = RUN_NONE, .site = site_of_call(b, work[i].stack.number)};
    b->report->leak_lines = site_lines_of(b, work, n, &form, &b->report->leak_lines_n, &b->report->leak_lines_total);
}

void question_leaks_build(struct site_builder *b)
{
    struct result_report *report = b->report;
    struct result_leak *work = NULL;
    size_t n = 0, cap = 0, processes_n;
    const struct run_process *processes = run_processes(b->run, &processes_n);
    if (run_why_unknown(b->run, RUN_FACT_HISTORY)) return; /* the live memory is also the peak */
    bool *skip = arena_realloc(NULL, run_series_count(b->run), sizeof *skip);
    for (size_t i = 0; i < run_series_count(b->run); i++) {
        const struct run_series *s = run_series(b->run, (uint32_t)i);
        skip[i] = s->layer == RUN_SERIES_SHARED || /* its owner frees it */
                  (s->layer == RUN_SERIES_DEVICE &&
                   run_find_series(b->run, s->process, s->device, RUN_SERIES_TENSOR) != RUN_NONE);
    }
    for (size_t i = 0; i < run_location_count(b->run); i++) {
        const struct run_location *l = run_location(b->run, (uint32_t)i);
        const struct run_series *s = run_series(b->run, l->series);
        const bool growing = i < b->growing_n && b->growing[i];
        if (l->live_count && l->live_bytes > 0 && (!skip[l->series] || growing)) {
            ARENA_APPEND_TO(work, n, cap, .process = s->process, .device = s->device, .layer = s->layer,
                            .bytes = l->live_bytes, .count = l->live_count, .growing = growing,
                            .stack = {.number = l->stack});
        }
    }
    report->leaks = site_list(b, work, n, sizeof *work, compare_leaks, &report->leaks_n, &report->leaks_total);
    for (size_t i = 0; i < report->leaks_n; i++) report->leaks[i].stack = site_trace(b, report->leaks[i].stack.number);
    list_leak_lines(b, work, n);
    report->leaks_at_end = !run_is_imported(b->run); /* another tool's recording ends before the program does */
    for (size_t i = 0; i < processes_n; i++) report->leaks_at_end = report->leaks_at_end && processes[i].complete;
    for (size_t i = 0; i < report->ooms_n; i++) /* memory that an exception keeps is not a leak either */
        report->leaks_at_end = report->leaks_at_end && !report->ooms[i].fatal;
    ARENA_RELEASE(skip, work);
}
