#include "analyzer/oom/oom_notebook.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "schema/source_file.h"

const struct run_frame *oom_notebook_cell(const struct run *run, uint32_t stack)
{
    const struct run_frame *f, *cell = NULL;
    for (; (f = run_stack_frame(run, stack)) != NULL; stack = run_stack_parent(run, stack))
        if (f->kind == GS_FRAME_PYTHON && f->file && gs_source_is_cell(f->file)) cell = f;
    return cell;
}

const char *oom_notebook_session(const struct run *run, uint32_t stack)
{
    static const char *const prompts[] = {"<stdin>", "<python-input-", "<console>"};
    if (oom_notebook_cell(run, stack)) return "IPython";
    const struct run_frame *f;
    for (; (f = run_stack_frame(run, stack)) != NULL; stack = run_stack_parent(run, stack))
        if (f->kind == GS_FRAME_PYTHON && f->file &&
            ANY_OF(p, prompts, COUNT_OF(prompts), strncmp(f->file, *p, strlen(*p)) == 0))
            return "Python's prompt";
    return NULL;
}

static bool has_file(const struct oom_notebook_displays *d, const char *file)
{
    return ANY_OF(f, d->files, d->n, strcmp(*f, file) == 0);
}

struct oom_notebook_displays oom_notebook_displayed(struct arena *arena, const struct run *run)
{
    struct oom_notebook_displays d = {0}, kept;
    for (uint32_t i = 0; i < run_stack_count(run); i++) {
        const struct run_frame *f = run_stack_frame(run, i), *cell = NULL;
        if (f && f->kind == GS_FRAME_PYTHON && f->file && text_ends_with(f->file, "/displayhook.py"))
            cell = oom_notebook_cell(run, i);
        if (cell && !has_file(&d, cell->file)) *ARENA_PUSH(d.files, d.n, d.cap) = cell->file;
    }
    kept = (struct oom_notebook_displays){.files = arena_alloc(arena, (d.n + 1) * sizeof *d.files), .n = d.n};
    for (size_t i = 0; i < d.n; i++) kept.files[i] = d.files[i];
    free(d.files);
    return kept;
}

bool oom_notebook_displays_of(const struct oom_notebook_displays *d, const struct run *run, uint32_t stack)
{
    const struct run_frame *cell = d->n ? oom_notebook_cell(run, stack) : NULL;
    return cell && has_file(d, cell->file);
}
