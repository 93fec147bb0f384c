#include "analyzer/base/arena.h"
#include "analyzer/top/view_parts.h"

#include <stdlib.h>
#include <string.h>

static const struct help_row {
    const char *key, *text;
} help_rows[] = {
    {"q, Ctrl-C", "quit"},
    {"space", "pause, continue"},
    {"1 2 3 4, t", "show lines, functions, waits, copies; the next table"},
    {"s, b c g r l", "sort by the next column; bytes, count, growth, rate, last"},
    {"/", "show only rows with a text; Enter keeps it, Esc drops it"},
    {"Tab", "show the next process or device; after the last, all"},
    {"m", "show CUDA allocations, pinned memory, CPU tensors; then tensors"},
    {"n", "show lines of C and C++ (native frames), or of Python"},
    {"a", "list processes that use a GPU unrecorded; there, a attaches"},
    {"arrows, PgUp", "scroll"},
    {NULL, NULL},
    {"HELD", "live now"},
    {"+ 1 MIN", "change over the last minute"},
    {"+ WATCHED", "change since top began"},
    {"ALLOC/S", "over the last 5 to 10 s"},
    {"NOW", "waits: share of the recent time that was blocked"},
    {"the curve", "maximum of each five seconds, for the last five minutes"},
    {"the bar", "tensors, PyTorch's cache, other allocations, context, other processes"},
};

enum { HELP_HEIGHT = sizeof help_rows / sizeof *help_rows + 2 }; /* with the lines above and below it */

static void help_lines(struct top_line *l)
{
    enum { KEY = 14, HANG = KEY + 2 };
    EACH (row, help_rows, sizeof help_rows / sizeof *help_rows) {
        if (!row->key) {
            top_finish(l);
            continue;
        }
        top_put(l, TERMINAL_BOLD, "  %-*s", KEY, row->key);
        top_words(l, HANG, TERMINAL_PLAIN, row->text);
    }
}

static void keys_line(struct top_line *l)
{
    const struct top_view *v = l->v;
    if (v->notice[0]) {
        top_put(l, TERMINAL_YELLOW, "%s", v->notice);
    } else if (v->lists_users) {
        top_put(l, TERMINAL_DIM, "q quit   arrows choose   a attach: record it from now on   Esc back");
    } else if (v->typing) {
        top_put(l, TERMINAL_DIM, "type part of a row's line · Enter keeps it · Esc drops it");
    } else {
        const char *const keys[] = {"q quit",      "? help",   v->paused ? "space continue" : "space pause",
                                    "t table",     "s sort",   "/ filter",
                                    "Tab process", "n native", "m memory"};
        EACH (key, keys, sizeof keys / sizeof *keys) {
            if (l->at + (key > keys) + (int)strlen(*key) > v->columns) break; /* a key is shown whole or not at all */
            top_put(l, TERMINAL_DIM, "%s%s", key > keys ? " " : "", *key);
        }
    }
}

static int head_height(const struct top_view *v, bool brief)
{
    const struct top_model *m = v->tables->model;
    int lines = 1;
    for (size_t i = 0; i < m->sources_n; i++) lines += 2 + (int)m->sources[i].devices_n * (brief ? 1 : 3);
    return lines;
}

void top_view_print(struct top_view *v, FILE *out)
{
    struct top_model *m = v->tables->model;
    char *text = NULL;
    size_t size = 0;
    FILE *head = arena_stream(&text, &size);
    struct top_line l = {v, head, 0};
    const int head_room = v->help ? v->rows - HELP_HEIGHT : v->rows / 2;
    const bool brief = v->rows > 0 && head_height(v, false) > head_room;
    top_title_line(&l);
    for (size_t i = 0; i < m->sources_n; i++)
        if (v->choice.source == TOP_ALL || v->choice.source == (int)i) top_source_block(&l, (uint32_t)i, brief);
    if (v->live && !v->lists_users) top_users_line(&l);
    fclose(head);
    int lines = 0, most_lines = v->rows ? v->rows - 5 : 0;
    for (const char *p = text; *p; p++) { /* a head that leaves no room for the table is cut */
        if (most_lines > 0 && lines >= most_lines) break;
        fputc(*p, out);
        lines += *p == '\n';
    }
    free(text);
    l.out = out;
    top_finish(&l);
    top_tables_fill(v->tables, &v->choice);
    int room = v->rows ? v->rows - lines - 1 - (v->live ? 1 : 0) : 0;
    if (v->help)
        help_lines(&l);
    else if (v->lists_users)
        top_users_part(&l, room);
    else if (m->sources_n)
        top_table_part(&l, room);
    if (!v->live && v->users.n) {
        top_finish(&l);
        top_users_part(&l, 0);
    }
    if (v->live) keys_line(&l);
}
