/* The lines of source around the allocation and the failure, as compilers show them, and the statement that keeps the
 * memory. */
#include <stdio.h>
#include <string.h>
#include "schema/source_file.h"
#include "analyzer/base/text.h"
#include "analyzer/view/view_text_parts.h"

static int indent_of(const char *line)
{
    return (int)strspn(line, " \t");
}

/* Of the lines that are not empty. */
static int common_indent(const struct result_excerpt *e)
{
    int least = -1;

    for (size_t i = 0; i < e->n; i++)
        if (e->lines[i][indent_of(e->lines[i])] && (least < 0 || indent_of(e->lines[i]) < least))
            least = indent_of(e->lines[i]);
    return least < 0 ? 0 : least;
}

/* "Source  train.py:15 step: 16.00 MiB per step": the call site in the colour of the user's lines, and as a link. */
static void print_excerpt_head(const struct draw_text *v, const struct result_excerpt *e)
{
    static const char label[] = "Source";
    char raw[1024], place[1024], rest[1024], link[4096];
    const char *function = e->function ? e->function : "";
    const char *disk = !e->from_disk                  ? ""
                       : e->cell                      ? ", read from disk"
                       : gs_source_is_native(e->file) ? "read from disk" /* no recording has those */
                                                      : "read from disk: the recording does not have it";
    const bool more = e->cell || e->from_disk;
    text_put(raw, sizeof raw, "%s%.*s%s%s%s%s%s%s", *function ? " " : "", (int)text_without_comprehension(function),
             function, more ? " (" : "", e->cell ? e->cell : "", disk, more ? ")" : "", e->amount ? ": " : "",
             e->amount ? e->amount : "");
    terminal_clean(rest, sizeof rest, raw, v->term.utf8);
    text_put(raw, sizeof raw, "%s:%d", basename(e->file), e->line);
    terminal_clean(place, sizeof place, raw, v->term.utf8);
    if (!v->term.colour || INDENT + DRAW_LABEL + terminal_columns(place) + terminal_columns(rest) > v->term.width) {
        draw_label(v, TERMINAL_BOLD, label, "%s%s", place, rest);
        return;
    }
    fprintf(v->out, "%*s%s%s%s%*s%s%s%s%s\n", INDENT, "", terminal_style(&v->term, TERMINAL_BOLD), label,
            terminal_style(&v->term, TERMINAL_PLAIN), DRAW_LABEL - (int)strlen(label), "",
            terminal_style(&v->term, TERMINAL_CYAN),
            terminal_link(&v->term, e->file, e->line, place, link, sizeof link),
            terminal_style(&v->term, TERMINAL_PLAIN), rest);
}

static void print_excerpt(const struct draw_text *v, const struct result_excerpt *e)
{
    const int hang = INDENT + DRAW_LABEL, cut = common_indent(e);
    char number[16];

    print_excerpt_head(v, e);
    for (size_t i = 0; i < e->n; i++) {
        if (!e->lines[i][indent_of(e->lines[i])] && (i == 0 || i + 1 == e->n)) continue;
        const int line = e->first_line + (int)i;
        const bool marked = line == e->line;
        if (!marked && v->shorter >= DRAW_ONE_SOURCE_LINE) continue;
        char clean[512], shown[512];
        const char *text = e->lines[i];
        snprintf(number, sizeof number, "%d", line);
        terminal_clean(clean, sizeof clean, text + (indent_of(text) < cut ? indent_of(text) : cut), v->term.utf8);
        int room = v->term.width - hang - 10;
        const char *mark = terminal_columns(clean) <= room ? "" : v->term.utf8 ? "…" : "...";
        text_put(shown, sizeof shown, "%.*s%s", (int)terminal_fit(clean, room - terminal_columns(mark)), clean, mark);
        fprintf(v->out, "%*s%s%s%5s %s %s%s\n", hang, "",
                terminal_style(&v->term, marked ? TERMINAL_BOLD : TERMINAL_DIM),
                marked ? (v->term.utf8 ? "▸" : ">") : " ", number, v->term.utf8 ? "│" : "|", shown,
                terminal_style(&v->term, TERMINAL_PLAIN));
    }
}

void view_text_source(const struct draw_text *v, const struct result_oom_verdict *o)
{
    size_t most = v->brief && v->shorter >= DRAW_NO_REMARKS ? 1 : o->source_n;
    const struct result_site *at = &o->blame;

    const bool native = at->known && at->kind == GS_FRAME_NATIVE && !at->exit && !at->line && at->file;
    const char *language = native ? run_module_language(at->file) : NULL;

    if (language)
        draw_label(v, TERMINAL_BOLD, "Source", "unknown: gpuspy records no lines of %s", language);
    else if (native && !at->library)
        draw_label(v, TERMINAL_BOLD, "Source", "unknown: %s has no line numbers here: compile it with -g",
                   basename(at->file));
    for (size_t i = 0; i < o->source_n && i < most; i++) print_excerpt(v, &o->source[i]);
    for (size_t i = 0; i < o->holders_n; i++) {
        const struct result_holder *h = &o->holders[i];
        const bool whole = v->shorter < DRAW_NO_REASONS, reason = whole && h->why && *h->why;
        const bool advised = o->advice_n && strstr(o->advice[0], h->text);
        if (advised && (v->shorter >= DRAW_NO_HOLDERS || !reason)) continue;
        draw_label(v, TERMINAL_BOLD, i ? "or by" : "Kept by", "%s:%d%s%s  (guess%s%s)", basename(h->file), h->line,
                   advised ? "" : "  ", advised ? "" : h->text, reason ? ": " : "", reason ? h->why : "");
    }
}
