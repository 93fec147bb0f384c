/* Growth, memory that was never freed, churn, retries. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/units.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/text.h"
#include "analyzer/view/view_text_parts.h"

static void put_keepers(const struct draw_text *v, FILE *f, const struct result_growth *g, int indent)
{
    struct draw_text note = *v;
    note.out = f;
    for (size_t i = 0; i < g->holders_n; i++) {
        const struct result_holder *h = &g->holders[i];
        draw_wrap(&note, indent, "", "%s %s:%d  %s  (guess)", i ? "or by" : "kept by", basename(h->file), h->line,
                  h->text);
    }
}

/* What keeps a row's line, and what grows together with it, one line each; allocated, NULL none. */
static char *with_it(const struct draw_text *v, const struct result_growth *g)
{
    enum { LINES = 5, IN = 2 * INDENT + 2 };
    char *text = NULL;
    size_t size;

    if (!g->graph && !g->jumps && !g->holders_n) return NULL;
    FILE *f = arena_stream(&text, &size);
    put_keepers(v, f, g, IN);
    const bool alone = !g->graph && !g->jumps;
    for (size_t i = 1; !alone && i < g->lines_n && i <= LINES; i++) {
        char place[1024];
        fprintf(f, "%*s%10s  %s\n", IN, "", DRAW_BYTES(g->lines[i].bytes),
                draw_site(v, place, sizeof place, &g->lines[i].site, v->term.width - IN - 12));
    }
    if (!alone && g->lines_total > LINES + 1)
        fprintf(f, "%*sand %zu more line%s\n", IN, "", g->lines_total - LINES - 1,
                g->lines_total == LINES + 2 ? "" : "s");
    if (g->graph) {
        struct draw_text note = *v;
        char place[1024] = "";
        note.out = f;
        /* the line by which multiprocessing starts a worker is not the user's */
        const bool user =
            g->under.known && g->under.line && !g->under.library && strcmp(g->under.file, "<string>") != 0;
        if (user) draw_site(v, place, sizeof place, &g->under, v->term.width / 2);
        draw_wrap(&note, IN, "",
                  "lines of one forward pass grow together; whether an autograd graph keeps them is unknown%s%s",
                  *place ? "; they were called from " : "", place);
    }
    if (g->jumps) fprintf(f, "%*sin %u jump%s, not with each step\n", IN, "", g->jumps, g->jumps == 1 ? "" : "s");
    if (fclose(f) != 0 || !*text) {
        free(text);
        return NULL;
    }
    return text;
}

void view_text_growth(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    struct text_table t = {SITES(v), .head = {"grew by", "per step", "steps", "kind", "line"},
                           .left = {false, false, false, true, true}};
    size_t shown = r->growth_n < v->top ? r->growth_n : v->top;
    char since[DRAW_SINCE];
    bool by_steps = true;

    if (!shown ||
        (r->growth_total == 1 && !v->native && view_shows(v, VIEW_OOM) && r->ooms_n && r->ooms[0].growing.known))
        return; /* it is in the verdict */
    for (size_t i = 0; i < shown; i++) by_steps = by_steps && r->growth[i].by_steps;
    if (!by_steps) t.head[1] = "each time", t.head[2] = "times";
    if (by_steps)
        draw_heading(v, TERMINAL_YELLOW, "Keeps growing",
                     "%s (inferred; wrong if a later step reads this memory again)", draw_growth_since(v, since));
    else
        draw_heading(
            v, TERMINAL_YELLOW, "Keeps growing",
            "%s: no steps were found, so each allocation at the line counts (inferred; wrong if the program reads "
            "this memory again)",
            draw_growth_since(v, since));
    EACH (g, r->growth, shown) {
        const char *cells[] = {DRAW_BYTES(g->bytes), UNITS_BYTES(units_whole(g->bytes_per_step)), UNITS_COUNT(g->steps),
                               draw_layer_word(g->layer)};
        struct text_table_row *row = text_table_add(&t, cells, &g->stack.site);
        if (row) row->below = v->native ? draw_trace(v, g->stack.number, 20) : with_it(v, g);
    }
    text_table_print(&t, &v->term, INDENT, v->out);
    draw_more(v, r->growth_total, shown);
}

/* "tensors"; of several processes "tensors of rank 1, GPU 0", as a line can occur in each. */
static const char *layer_and_owner(const struct draw_text *v, char *out, size_t size, uint32_t process, int device,
                                   enum run_series_layer layer)
{
    char owner[64];

    if (v->report->processes_n < 2) return draw_layer_word(layer);
    draw_device(v, owner, sizeof owner, process, device < 0 ? 0 : device, layer);
    if (device < 0) owner[strcspn(owner, ",")] = 0; /* "rank 1" */
    snprintf(out, size, "%s of %s", draw_layer_word(layer), owner);
    return out;
}

void view_text_leaks(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    struct text_table t = {SITES(v), .head = {"bytes", "count", "kind", "", "line"},
                           .left = {false, false, true, true, true}};
    const struct result_leak *list = v->native ? r->leaks : r->leak_lines;
    size_t n = v->native ? r->leaks_n : r->leak_lines_n, shown = n < v->top ? n : v->top;

    if (!shown || (view_shows(v, VIEW_OOM) && r->ooms_n && r->ooms[0].fatal && !v->native))
        return;                /* what was live when memory ran out is shown, and the program ended there */
    if (r->no_history) return; /* the lists of live memory already show it */
    if (r->leaks_at_end || r->imported)
        draw_heading(v, TERMINAL_BOLD, view_end_words(r), "%s", view_end_explanation(r));
    else
        draw_title(v, TERMINAL_BOLD, view_end_words(r));
    EACH (l, list, shown) {
        if (!l->growing && view_is_row_negligible(v, (size_t)(l - list), l->bytes, list[0].bytes)) continue;
        char of[96];
        const char *cells[] = {DRAW_BYTES(l->bytes), UNITS_COUNT(l->count),
                               layer_and_owner(v, of, sizeof of, l->process, l->device, l->layer),
                               l->growing ? "grows" : ""};
        struct text_table_row *row = text_table_add(&t, cells, &l->stack.site);
        if (row) row->below = v->native ? draw_trace(v, l->stack.number, 20) : draw_paths(v, &l->paths, 2 * INDENT);
    }
    text_table_print(&t, &v->term, INDENT, v->out);
    draw_more(v, v->native ? r->leaks_total : r->leak_lines_total, shown);
}

void view_text_churn(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    struct text_table t = {SITES(v), .head = {"times", "bytes", "per second", "lived", "line"}};
    size_t shown = r->churn_lines_n < v->top ? r->churn_lines_n : v->top;
    char since[DRAW_SINCE];

    if (!shown) return;
    draw_heading(v, TERMINAL_BOLD, "Repeated cudaMalloc and cudaFree",
                 "%s, without the first tenth of the allocations: each call blocks the program", draw_since(v, since));
    EACH (c, r->churn_lines, shown) {
        const char *cells[] = {UNITS_COUNT(c->count), DRAW_BYTES(c->bytes), UNITS_COUNT(units_whole(c->per_s)),
                               UNITS_SECONDS(c->mean_life_s)};
        struct text_table_row *row = text_table_add(&t, cells, &c->stack.site);
        if (row) row->below = draw_paths(v, &c->paths, 2 * INDENT);
    }
    text_table_print(&t, &v->term, INDENT, v->out);
    draw_more(v, r->churn_lines_total, shown);
}

void view_text_retries(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    struct text_table t = {SITES(v), .head = {"times", "largest", "first at", "last at", "line"}};
    size_t shown = r->retry_lines_n < v->top ? r->retry_lines_n : v->top;

    if (!shown) return;
    draw_heading(v, TERMINAL_YELLOW, "Allocations that succeeded on a retry",
                 r->other_framework ? "" : ", after PyTorch had freed its cached segments");
    EACH (x, r->retry_lines, shown) {
        const char *cells[] = {UNITS_COUNT(x->count), DRAW_BYTES(x->requested_bytes), UNITS_SECONDS(x->first_s),
                               UNITS_SECONDS(x->last_s)};
        struct text_table_row *row = text_table_add(&t, cells, &x->site);
        if (row) row->below = draw_paths(v, &x->paths, 2 * INDENT);
    }
    text_table_print(&t, &v->term, INDENT, v->out);
    draw_more(v, r->retry_lines_total, shown);
}

void view_text_fragmentation(const struct draw_text *v)
{
    EACH_IN (f, v->report->fragmentation) {
        char place[96];
        /* It matters below 90 % of what is held (STAlloc's threshold). */
        if (isnan(f->utilisation) || f->utilisation >= 0.9 || f->reserved_bytes == RUN_UNKNOWN ||
            f->largest_free_bytes == RUN_UNKNOWN)
            continue; /* without holes it is the cache, which the device's parts name */
        const double used_share = (double)f->active_bytes / (double)f->reserved_bytes; /* at this moment */
        draw_heading(v, TERMINAL_BOLD, "Fragmentation",
                     " on %s: %s in use of the %s that PyTorch reserved (%s); largest hole %s",
                     draw_device(v, place, sizeof place, f->process, f->device, RUN_SERIES_DEVICE),
                     DRAW_BYTES(f->active_bytes), DRAW_BYTES(f->reserved_bytes), UNITS_SHARE(used_share),
                     DRAW_BYTES(f->largest_free_bytes));
    }
}
