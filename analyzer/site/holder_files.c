/* The program's files on a call path, and those that they import. */
#include "analyzer/site/holder_read.h"

#include <string.h>
#include "analyzer/site/source_context.h"

static bool open_imported(const struct site_search *s, const char *code, struct site_search *module)
{
    const char *path = site_imported_file(s->b->arena, s->frame->file, code);
    if (!path) return false;
    struct run_frame *of = arena_alloc(s->scratch, sizeof *of);
    *of = (struct run_frame){.kind = GS_FRAME_PYTHON, .file = path, .line = 1};
    return site_open_frame(module, of);
}

static void add_program_file(const struct site_search *of, struct site_files *files)
{
    for (size_t i = 0; i < files->n; i++)
        if (strcmp(files->list[i].frame->file, of->frame->file) == 0) return;
    if (files->n < SITE_FILES) files->list[files->n++] = (struct site_file){of->frame, of->code};
}

void site_find_files(struct site_search *s, uint32_t stack, struct site_files *files)
{
    struct site_search of = *s;
    files->n = 0;
    RUN_EACH_FRAME (frame, s->b->run, stack)
        if (frame->kind == GS_FRAME_PYTHON && !site_is_library(frame) && site_open_frame(&of, frame))
            add_program_file(&of, files);
}

void site_find_imported(struct site_search *s, struct site_files *files)
{
    struct site_search of = *s, module = *s;
    const size_t own = files->n;
    for (size_t k = 0; k < own; k++) {
        of.frame = files->list[k].frame;
        for (size_t i = 0; i < files->list[k].code.n && s->budget-- > 0; i++)
            if (open_imported(&of, files->list[k].code.list[i].code, &module)) add_program_file(&module, files);
    }
    files->n -= own;
    memmove(files->list, files->list + own, files->n * sizeof *files->list);
}

bool site_find_own_method(struct site_search *in, const char *class, const char *method, size_t *def)
{
    struct site_files files;
    if (site_find_method(in, class, method, def)) return true;
    site_find_files(in, in->stack, &files);
    site_find_imported(in, &files);
    for (size_t k = 0; k < files.n && *class; k++) {
        struct site_search of = *in;
        of.frame = files.list[k].frame;
        of.code = files.list[k].code;
        if (!site_find_method(&of, class, method, def)) continue;
        *in = of;
        return true;
    }
    return false;
}
