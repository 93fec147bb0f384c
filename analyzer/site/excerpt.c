#include "analyzer/site/excerpt.h"

#include <string.h>

enum { AROUND = 1, MOST = 4 };

static bool is_there(const struct site_excerpts *to, const char *file, int line)
{
    for (size_t i = 0; i < to->n; i++)
        if (to->list[i].line == line && strcmp(to->list[i].file, file) == 0) return true;
    return false;
}

void site_add_excerpt(struct site_builder *b, struct site_excerpts *to, const struct result_site *site,
                      const char *role)
{
    struct run_source lines;
    if (!site->known || !site->file || site->kind != GS_FRAME_PYTHON || to->n == MOST ||
        is_there(to, site->file, site->line) ||
        !run_source_lines(b->run, site->file, site->line, AROUND, AROUND, &lines))
        return;
    to->list = to->list ? to->list : arena_alloc(b->arena, MOST * sizeof *to->list);
    to->list[to->n++] = (struct result_excerpt){.file = site->file,
                                                .line = site->line,
                                                .function = site->function,
                                                .role = role,
                                                .first_line = lines.first_line,
                                                .lines = lines.lines,
                                                .n = lines.n,
                                                .from_disk = lines.from_disk,
                                                .cell = lines.cell};
}
