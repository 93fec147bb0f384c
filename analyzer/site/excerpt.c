#include "analyzer/site/excerpt.h"

#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/each.h"

enum { AROUND = 1, MOST = 4 };

/* A blank line runs no code, so the text is not that of the code that ran: IPython's autoreload counts the lines of a
 * changed function from its own first. */
static bool is_line_blank(const struct run_source *lines, int line)
{
    const char *text = lines->lines[line - lines->first_line];
    return !text[strspn(text, " \t\r\f")];
}

void site_add_excerpt(struct site_builder *b, struct site_excerpts *to, const struct result_site *site,
                      const char *role)
{
    struct run_source lines;
    char name[256];
    if (!site->known || !site->file || !site->line || to->n == MOST ||
        ANY_OF(l, to->list, to->n, l->line == site->line && strcmp(l->file, site->file) == 0) ||
        !run_source_lines(b->run, site->file, site->line, AROUND, AROUND, &lines) || is_line_blank(&lines, site->line))
        return;
    const bool native = site->kind == GS_FRAME_NATIVE && site->function;
    to->list = to->list ? to->list : arena_alloc(b->arena, MOST * sizeof *to->list);
    to->list[to->n++] = (struct result_excerpt){
        .file = site->file,
        .line = site->line,
        .function = native ? arena_printf(b->arena, "%s",
                                          text_function(name, sizeof name, site->function, sizeof name - 1, true))
                           : site->function,
        .role = role,
        .first_line = lines.first_line,
        .lines = lines.lines,
        .n = lines.n,
        .from_disk = lines.from_disk,
        .cell = lines.cell};
}
