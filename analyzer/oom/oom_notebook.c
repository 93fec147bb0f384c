#include "analyzer/oom/oom_notebook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/oom/oom_words.h"
#include "schema/source_file.h"

const struct run_frame *oom_notebook_cell(const struct run *run, uint32_t stack)
{
    const struct run_frame *cell = NULL;
    RUN_EACH_FRAME (f, run, stack)
        if (f->kind == GS_FRAME_PYTHON && f->file && gs_source_is_cell(f->file)) cell = f;
    return cell;
}

const char *oom_notebook_session(const struct run *run, uint32_t stack)
{
    static const char *const prompts[] = {"<stdin>", "<python-input-", "<console>",
                                          "<input>", "<pyshell#",      "<bpython-input-"};
    if (oom_notebook_cell(run, stack)) return "IPython";
    RUN_EACH_FRAME (f, run, stack)
        if (f->kind == GS_FRAME_PYTHON && f->file &&
            ANY_OF(p, prompts, COUNT_OF(prompts), strncmp(f->file, *p, strlen(*p)) == 0))
            return "Python's prompt";
    return NULL;
}

const char *oom_notebook_prompt(const struct run *run, const struct run_process *p, uint32_t stack)
{
    if (p->exit_status == 0 && run_stack_is_in(run, stack, "/bdb.py", "run")) return "the debugger";
    if (p->exit_status > 0) return NULL;
    const char *session = oom_notebook_session(run, stack);
    const bool typed = p->command && strstr(p->command, " -i"); /* otherwise <stdin> can be a script */
    return p->kernel ? session ?: "IPython" : typed || oom_notebook_cell(run, stack) ? session : NULL;
}

static const struct oom_notebook_display *display_of(const struct oom_notebook_displays *d, const char *file)
{
    return FIND_OF(x, d->list, d->n, x->file == file);
}

struct oom_notebook_displays oom_notebook_displayed(struct arena *arena, const struct run *run)
{
    struct oom_notebook_displays d = {0}, kept;
    for (uint32_t i = 0; i < run_stack_count(run); i++) {
        const struct run_frame *f = run_stack_frame(run, i), *cell = NULL;
        if (f && f->kind == GS_FRAME_PYTHON && f->file && text_ends_with(f->file, "/displayhook.py"))
            cell = oom_notebook_cell(run, i);
        if (cell && !display_of(&d, cell->file))
            *ARENA_PUSH(d.list, d.n, d.cap) = (struct oom_notebook_display){cell->file, cell->line};
    }
    kept = (struct oom_notebook_displays){.list = arena_alloc(arena, (d.n + 1) * sizeof *d.list), .n = d.n};
    for (size_t i = 0; i < d.n; i++) kept.list[i] = d.list[i];
    free(d.list);
    return kept;
}

bool oom_notebook_displays_of(const struct oom_notebook_displays *d, const struct run *run, uint32_t stack)
{
    const struct run_frame *cell = d->n ? oom_notebook_cell(run, stack) : NULL;
    return cell && display_of(d, cell->file);
}

/* What the displayed expression itself allocated: other lines of its cell have variables that keep their tensors. */
void oom_notebook_find_displayed(const struct run *run, const struct oom_live *live, size_t n, struct oom_facts *f)
{
    struct arena arena = {0};
    f->displayed = (struct oom_displayed){.stack = RUN_NONE};
    if (!oom_notebook_cell(run, f->stack)) return;
    const struct oom_notebook_displays d = oom_notebook_displayed(&arena, run);
    bool *holds = arena_alloc(&arena, d.n + 1);
    memset(holds, 0, d.n + 1);
    int64_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t stack = run_location(run, live[i].location)->stack;
        const struct run_frame *cell = oom_notebook_cell(run, stack);
        const struct oom_notebook_display *of = cell ? display_of(&d, cell->file) : NULL;
        if (!of || of->line != cell->line || run_stack_is_in(run, stack, "/displayhook.py", NULL)) continue;
        f->displayed.bytes = arena_add_capped(f->displayed.bytes, live[i].bytes);
        if (live[i].count > f->displayed.times) f->displayed.times = live[i].count;
        if (live[i].bytes > most) {
            most = live[i].bytes;
            f->displayed.stack = stack;
        }
        holds[of - d.list] = true;
    }
    uint64_t cells = 0;
    for (size_t i = 0; i < d.n; i++) cells += holds[i];
    if (cells > f->displayed.times) f->displayed.times = cells;
    arena_free(&arena);
}

bool oom_keeps_displayed(const struct oom_facts *f)
{
    enum { TIMES = 3 }; /* as many as _, __ and ___ keep without Out[] */
    return f->displayed.times >= TIMES && f->displayed.bytes >= oom_needed_bytes(f) &&
           f->displayed.bytes >= f->live / 2;
}

/* measure_displayed advises. */
void oom_explain_displayed(struct oom_words *w)
{
    const struct oom_displayed *d = &w->f->displayed;
    w->v->growing = site_of_call(w->b, d->stack);
    w->v->verdict =
        TEXT(w,
             "a leak: IPython keeps each value that a cell displays in Out[]: %s of the %s live, of %llu "
             "values, most from %s",
             SIZE(w, d->bytes), SIZE(w, w->f->live), (unsigned long long)d->times, oom_place_text(w, d->stack));
}

/* Made in a function, whose variables an exception keeps alive. */
static bool is_in_function(const struct run *run, uint32_t stack)
{
    const struct run_frame *f;
    while ((f = run_stack_frame(run, stack)) != NULL && (f->kind != GS_FRAME_PYTHON || site_is_library(f)))
        stack = run_stack_parent(run, stack);
    return f && f->function && f->function[0] != '<';
}

/* Intermediate results, or data that a function made. */
static bool is_passing(const struct run *run, const struct result_category_line *l)
{
    return l->category == RESULT_CATEGORY_ACTIVATIONS || l->category == RESULT_CATEGORY_TEMPORARIES ||
           ((l->category == RESULT_CATEGORY_UNKNOWN || l->category == RESULT_CATEGORY_INPUTS) &&
            is_in_function(run, l->stack));
}

bool oom_notebook_is_left(const struct oom_notebook_left *left, const struct run *run,
                          const struct result_category_line *l)
{
    const struct run_frame *cell = left->trained || is_passing(run, l) ? oom_notebook_cell(run, l->stack) : NULL;
    return cell && cell->file == left->file;
}

/* gpuspy's extension marks cells that failed. While the cell `now` runs, IPython keeps the last exception of earlier
 * ones. */
static const char *exception_of(const struct run *run, const char *cell, const char *now)
{
    static const char form[] = "In [%ld] failed: %n";
    size_t n;
    const struct run_mark_total *marks = run_marks(run, &n);
    long number, last = 0, of = 0, before = 0;
    const char *name = NULL;
    if (sscanf(cell, "In [%ld]", &of) != 1 || sscanf(now, "In [%ld]", &before) != 1) return NULL;
    for (size_t i = 0; i < n; i++) {
        int end = 0;
        if (!marks[i].name || sscanf(marks[i].name, form, &number, &end) != 1 || !end) continue;
        if (number <= last || number >= before || !run_is_cell_of(run, marks[i].process, now)) continue;
        last = number;
        name = marks[i].name + end;
    }
    return of == last ? name : NULL;
}

struct oom_notebook_left oom_notebook_find_left(const struct run *run, const struct result_oom_verdict *v,
                                                uint32_t stack)
{
    enum { CELLS = 64 };
    struct oom_notebook_left cells[CELLS], most = {0};
    size_t n = 0;
    bool trains = false; /* the current cell */
    const struct run_frame *now = oom_notebook_cell(run, stack);
    EACH_IN (l, v->by_category.lines) {
        const struct run_frame *cell = now ? oom_notebook_cell(run, l->stack) : NULL;
        const bool state = l->category == RESULT_CATEGORY_OPTIMIZER_STATE;
        if (!cell || cell->file == now->file) {
            trains = trains || (cell && state);
            continue;
        }
        struct oom_notebook_left *c = (struct oom_notebook_left *)FIND_OF(x, cells, n, x->file == cell->file);
        if (!c && n == CELLS) continue;
        if (!c) *(c = &cells[n++]) = (struct oom_notebook_left){.file = cell->file};
        c->trained = c->trained || state;
        c->bytes = arena_add_capped(c->bytes, l->bytes);
        if (is_passing(run, l)) c->passes = arena_add_capped(c->passes, l->bytes);
    }
    for (size_t i = 0; i < n; i++) {
        cells[i].trained = cells[i].trained && trains;
        if (!cells[i].trained) cells[i].bytes = cells[i].passes;
        if (cells[i].bytes > most.bytes) most = cells[i];
    }
    if (most.file && !most.trained) most.failed = exception_of(run, most.file, now->file);
    return most;
}
