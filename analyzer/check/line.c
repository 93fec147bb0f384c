#include "analyzer/check/check.h"

#include "analyzer/draw/view.h"

enum { COLUMNS = 240 };

char *check_copy_text(struct arena *arena, const char *text)
{
    return text ? arena_printf(arena, "%s", text) : NULL;
}

void check_line_add(struct checking *c, struct check_result *r, size_t *cap, const struct result_site *site,
                    double amount, const char *note)
{
    struct draw_text v = {.report = c->report, .term = {.utf8 = true, .width = 200}};
    char place[2048], brief[2048];
    *ARENA_PUSH(r->lines, r->lines_n, *cap) = (struct check_line){
        .file = check_copy_text(c->arena, site->known && !site->exit ? site->file : NULL),
        .line = site->known ? site->line : 0,
        .function = check_copy_text(c->arena, site->known ? site->function : NULL),
        .place = check_copy_text(c->arena, draw_site(&v, place, sizeof place, site, COLUMNS)),
        .brief = check_copy_text(c->arena, draw_site(&v, brief, sizeof brief, site, c->columns)),
        .amount = amount,
        .note = check_copy_text(c->arena, note), /* which may belong to the report */
    };
}
