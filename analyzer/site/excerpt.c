#include "analyzer/site/excerpt.h"

#include <string.h>
#include "analyzer/base/each.h"

enum { AROUND = 1, MOST = 4 };

void site_add_excerpt(struct site_builder *b, struct site_excerpts *to, const struct result_site *site,
                      const char *role)
{
    struct run_source lines;
    if (!site->known || !site->file || site->kind != GS_FRAME_PYTHON || to->n == MOST ||
        ANY_OF(l, to->list, to->n, l->line == site->line && strcmp(l->file, site->file) == 0) ||
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
