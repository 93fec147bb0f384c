/* What held a device's memory when an allocation failed: parts that sum to all of it, each with a
 * bar, and below it the lines that hold most of it. */
#include <stdio.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"

#define LINES_MOST 3
#define LINES_BRIEF 1
#define BRIEF_LEAST 0.02 /* of the device … */
#define FEW_LEAST 0.05   /* … and if the screen has no room */
#define BAR_NARROW 10
#define BAR_WIDE 20
#define WIDE 100  /* columns from which on the bar is wide */
#define NARROW 72 /* columns below which there is none, so that the lines have room */

/* Smaller lines are left out. */
static const double line_least = 0.01;
static const double rounding_least = 0.2; /* of the tensors: less is not worth reporting */

static void format_waterfall_bar(const struct draw_text *v, double share, char *out, size_t size)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int width = v->term.width >= WIDE ? BAR_WIDE : BAR_NARROW;
    int steps = v->term.utf8 ? 8 : 1, n = (int)(share * width * steps + 0.5);
    size_t at = 0;

    out[0] = 0;
    if (v->term.width < NARROW) return;
    n = n < 1 ? 1 : n > width * steps ? width * steps : n;
    for (; n >= steps && at + 4 < size; n -= steps)
        at += (size_t)snprintf(out + at, size - at, "%s", steps > 1 ? "█" : "#");
    if (n > 0 && at + 4 < size) snprintf(out + at, size - at, "%s", eighths[n % 8]);
}

#define SITE_LEAST 12 /* columns */

struct cell {
    const struct draw_text *v;
    int bytes_width;
};

/* `text` in lines of `room` columns; the lines after the first begin `hang` columns from the left. */
static void wrap_cell(char *out, size_t size, const char *text, int room, int hang)
{
    size_t at = 0;

    out[0] = 0;
    for (const char *p = text; *p && at < size; p += strspn(p, " ")) {
        const size_t n = text_line_length(p, room);
        at += (size_t)snprintf(out + at, size - at, at ? "\n%*s%.*s" : "%*s%.*s", at ? hang : 0, "", (int)n, p);
        p += n;
    }
}

/* An owner that is the file of the line need not be named twice. */
static bool is_file_of(const char *text, const struct result_site *site)
{
    const char *slash = site->known && site->file ? strrchr(site->file, '/') : NULL;

    return slash && strcmp(slash + 1, text) == 0;
}

static void line_cell(const void *self, const void *item, char *out, size_t size, int columns)
{
    const struct cell *c = self;
    const struct result_held_line *line = item;
    char site[512] = "", text[256] = "", shown[512], tail[16] = "";

    if (line->text) terminal_clean(text, sizeof text, line->text, c->v->term.utf8);
    if (is_file_of(text, &line->site)) text[0] = 0;
    const int left = columns - 4 - c->bytes_width;
    wrap_cell(shown, sizeof shown, text, left < SITE_LEAST ? SITE_LEAST : left, c->v->term.width - left);
    int used = 4 + c->bytes_width + (*text ? terminal_columns(text) : 0);
    const int room = columns - used - (*text ? 2 : 0);
    if (line->site.known) /* at any width: the line is the answer */
        draw_site(c->v, site, sizeof site, &line->site, room < SITE_LEAST ? SITE_LEAST : room);
    else if (!*text && !line->site.known)
        snprintf(tail, sizeof tail, "no stack");
    char styled[4096] = "";
    if (*site) draw_styled_site(c->v, &line->site, site, styled, sizeof styled);
    snprintf(out, size, "  %*s  %s%s%s%s", c->bytes_width, DRAW_BYTES(line->bytes), shown, *text && *site ? "  " : "",
             styled, tail);
}

/* Similar to the page's (analyzer/web/page.css), from the 256 colours of terminals. */
static const int colours[RESULT_CATEGORIES_N] = {
    [RESULT_CATEGORY_PARAMETERS] = 26,  [RESULT_CATEGORY_GRADIENTS] = 208, [RESULT_CATEGORY_OPTIMIZER_STATE] = 117,
    [RESULT_CATEGORY_ACTIVATIONS] = 36, [RESULT_CATEGORY_INPUTS] = 133,    [RESULT_CATEGORY_TEMPORARIES] = 222,
    [RESULT_CATEGORY_WORKSPACES] = 124, [RESULT_CATEGORY_KV_CACHE] = 30,   [RESULT_CATEGORY_UNKNOWN] = 245,
};

static bool is_largest_with_lines(const struct result_oom_verdict *o, const struct result_held_part *p)
{
    for (size_t i = 0; i < o->waterfall_n; i++)
        if (o->waterfall[i].lines_n && o->waterfall[i].bytes > p->bytes) return false;
    return true;
}

static void add_waterfall_part(const struct draw_text *v, const struct result_oom_verdict *o, struct text_table *t,
                               const struct result_held_part *p)
{
    char drawn[BAR_WIDE * 3 + 8];

    format_waterfall_bar(v, p->share, drawn, sizeof drawn);
    const char *cells[] = {DRAW_BYTES(p->bytes), UNITS_SHARE(p->share), drawn, p->text};
    struct text_table_row *row = text_table_add(t, cells, NULL);
    if (row && p->what == RESULT_HELD_TENSORS) terminal_foreground(&v->term, colours[p->category], row->colour);
    if (v->shorter >= DRAW_LARGEST_LINE && !is_largest_with_lines(o, p)) return;
    double whole = p->share > 0 ? (double)p->bytes / p->share : 0;
    for (size_t i = 0; i < p->lines_n && i < (v->brief ? LINES_BRIEF : LINES_MOST); i++) {
        const char *none[] = {"", "", "", ""};
        if ((double)p->lines[i].bytes >= line_least * whole) text_table_add(t, none, &p->lines[i]);
    }
}

/* Parts that are too small for their own row; `with_free`: free memory is one of them. */
static void small_parts(struct text_table *t, int64_t bytes, int64_t total, bool with_free)
{
    const char *cells[] = {DRAW_BYTES(bytes), UNITS_SHARE((double)bytes / (double)total), "",
                           with_free ? "smaller parts, including free memory" : "smaller parts"};

    text_table_add(t, cells, NULL);
}

static int widest_part_name(const struct result_oom_verdict *o)
{
    int most = 0;

    for (size_t i = 0; i < o->waterfall_n; i++)
        for (size_t j = 0; j < o->waterfall[i].lines_n && j < LINES_MOST; j++) {
            int n = o->waterfall[i].lines[j].bytes == RUN_UNKNOWN
                        ? 0
                        : terminal_columns(DRAW_BYTES(o->waterfall[i].lines[j].bytes));
            most = n > most ? n : most;
        }
    return most;
}

void view_text_waterfall(const struct draw_text *v, const struct result_oom_verdict *o)
{
    struct cell c = {v, widest_part_name(o)};
    struct text_table t = {
        .last = line_cell, .self = &c, .head = {"", "", "", ""}, .left = {false, false, true}, .coloured = 2};
    int64_t tensors = 0, small = 0;
    size_t small_n = 0, last_small = 0;
    bool small_free = false;
    const double least = v->shorter >= DRAW_FEW_PARTS ? FEW_LEAST : BRIEF_LEAST;

    if (!o->waterfall_n) return;
    fprintf(v->out, "  %sOf the GPU's %s at that moment%s\n", terminal_style(&v->term, TERMINAL_BOLD),
            DRAW_BYTES(o->total_bytes), terminal_style(&v->term, TERMINAL_PLAIN));
    for (size_t i = 0; i < o->waterfall_n; i++) {
        tensors += o->waterfall[i].what == RESULT_HELD_TENSORS ? o->waterfall[i].bytes : 0;
        if (v->brief && o->waterfall[i].share < least) {
            small += o->waterfall[i].bytes;
            small_n++;
            last_small = i;
            small_free |= o->waterfall[i].what == RESULT_HELD_FREE;
        } else
            add_waterfall_part(v, o, &t, &o->waterfall[i]);
    }
    if (small_n == 1)
        add_waterfall_part(v, o, &t, &o->waterfall[last_small]);
    else if (small)
        small_parts(&t, small, o->total_bytes, small_free);
    text_table_print(&t, &v->term, 2 * INDENT, v->out);
    if (v->shorter >= DRAW_NO_REMARKS) return;
    if ((double)o->rounding_most < rounding_least * (double)tensors || !tensors) return;
    fputs(terminal_style(&v->term, TERMINAL_DIM), v->out);
    if (o->rounding_known)
        draw_wrap(v, 2 * INDENT, "", "PyTorch's allocator rounds requests up: the tensors requested %s less.",
                  DRAW_BYTES(o->rounding_most));
    else
        draw_wrap(
            v, 2 * INDENT, "",
            "Tensors have the sizes of their blocks, which PyTorch's allocator rounds up; the requested sizes are "
            "unknown.");
    fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
}
