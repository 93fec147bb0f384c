/* The cells of notebooks by the names that users know: In [5], or cell 3 of the notebook. */
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/run/run_internal.h"
#include "schema/source_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number in Colab's older names and in IPython's: ipython-input-3-4282502808. A single number is the hash. */
static long number_in_name(const char *file)
{
    static const char input[] = "ipython-input-";
    const char *at = strstr(file, input);
    char *end = NULL;
    const long number = at ? strtol(at + sizeof input - 1, &end, 10) : 0;
    return end && *end == '-' ? number : 0;
}

/* Of /root/.ipykernel/991/command-1723439101937605-4150301398, Databricks shows the name without the hash. */
static void format_command(const char *file, char *out, size_t size)
{
    const char *name = strstr(file, "/command-"), *dash = name ? strrchr(name, '-') : NULL;
    if (dash && dash > name + sizeof "/command-") snprintf(out, size, "<%.*s>", (int)(dash - name - 1), name + 1);
}

bool run_is_cell_of(const struct run *run, uint32_t process, const char *file)
{
    static const char kernel[] = "/ipykernel_";
    const char *at = strstr(run_cell_file(run, file), kernel);
    return !at || strtol(at + sizeof kernel - 1, NULL, 10) == run->processes[process].pid;
}

/* A cell that ran again without a change is the same file. gpuspy's extension marks that, and the notebook shows the
 * last number only. */
static long last_count(const struct run *run, const char *file, long count)
{
    enum { TURNS = 8 }; /* one is enough if the marks are in the order of their times */
    for (long turn = 0, from = 0; turn < TURNS && from != count; turn++) {
        from = count;
        EACH_IN (m, run->marks) {
            long again, before;
            if (m->name && sscanf(m->name, "In [%ld] runs In [%ld] again", &again, &before) == 2 && before == count &&
                again > count && run_is_cell_of(run, m->process, file))
                count = again;
        }
    }
    return count;
}

static const char *cell_name(struct run *run, const char *file)
{
    char text[64] = "";
    EACH_IN (c, run->cell_names)
        if (c->file == file) return c->shown;
    const struct run_source_text *source = run_source_text(run, file);
    const long count = number_in_name(file) ?: source ? source->count : 0;
    if (count > 0)
        snprintf(text, sizeof text, "In [%ld]", last_count(run, file, count));
    else if (source && source->position)
        snprintf(text, sizeof text, "cell %ld", source->position);
    else
        format_command(file, text, sizeof text);
    const char *shown = *text ? run_text(run, text, strlen(text)) : file;
    /* of two kernels, or of a notebook that was edited */
    if (run_cell_file(run, shown) != shown) shown = file;
    *ARENA_ADD(run->cell_names) = (struct run_cell_name){.shown = shown, .file = file};
    return shown;
}

static bool is_cell_frame(const struct run_frame *f)
{
    return f->kind == GS_FRAME_PYTHON && f->file && gs_source_is_cell(f->file);
}

/* How many lines a magic's code is below the line that it is called from. IPython compiles it under a name of its own,
 * or as a cell of its own. -1: it is not the code of a magic. */
static int lines_below_magic(const struct run_frame *f)
{
    if (f->kind != GS_FRAME_PYTHON || !f->file || !f->function || f->function[0] != '<') return -1;
    return strcmp(f->file, "<timed eval>") == 0 ? 0 : strcmp(f->file, "<timed exec>") == 0 || is_cell_frame(f) ? 1 : -1;
}

static bool is_in_shell(const struct run_frame *f, const char *function)
{
    return f->kind == GS_FRAME_PYTHON && f->file && f->function && strstr(f->function, function) &&
           text_ends_with(f->file, "/IPython/core/interactiveshell.py");
}

/* IPython drops them there, too. */
static int empty_lines_below(struct run *run, const struct run_frame *f)
{
    const struct run_source_text *source = run_source_text(run, f->file);
    size_t at = f->line > 0 ? (size_t)f->line : 0;
    while (source && at < source->n && !source->lines[at][strspn(source->lines[at], " \t\r\f\v")]) at++;
    return (int)(at - (size_t)f->line);
}

/* The code of %time and of %%time, %%capture and the like: its frame takes the place of the cell's. A function that is
 * defined there can be called from other cells, so only the code outside of functions is moved. */
static void move_to_cell(struct run *run, uint32_t stack, int below)
{
    struct run_stack_node *node = &run->stacks[stack];
    bool cell_magic = false, line_magic = false;
    for (uint32_t at = node->parent; at != RUN_NONE; at = run->stacks[at].parent) {
        const struct run_frame *f = run_stack_frame(run, at);
        cell_magic = cell_magic || is_in_shell(f, "run_cell_magic");
        line_magic = line_magic || is_in_shell(f, "run_line_magic");
        if (!is_cell_frame(f)) continue;
        if (!cell_magic && !(line_magic && !is_cell_frame(run_stack_frame(run, stack)))) return;
        struct run_frame moved = run->frames[node->frame];
        moved.line += f->line - 1 + (cell_magic ? below + empty_lines_below(run, f) : 0);
        moved.file = f->file;
        node->parent = run->stacks[at].parent;
        node->frame = run_frame_add(run, &moved);
        return;
    }
}

void run_name_cells(struct run *run)
{
    bool any = false;
    for (size_t i = 0; i < run->frames_n; i++) {
        if (!is_cell_frame(&run->frames[i])) continue;
        run->frames[i].file = cell_name(run, run->frames[i].file);
        any = true;
    }
    for (uint32_t i = 0; any && i < run->stacks_n; i++) {
        const int below = lines_below_magic(&run->frames[run->stacks[i].frame]);
        if (below >= 0) move_to_cell(run, i, below);
    }
}
