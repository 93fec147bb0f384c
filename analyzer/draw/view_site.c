/* What the sections share: places, stacks, headings. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/draw/view.h"
#include "analyzer/site/site.h"

#define LINE_MAX_BYTES 1024
#define WORDS_MAX_BYTES 16384
#define PLACES_LEAST 28   /* columns for two places: "train.py:123" twice and some */
#define WHOLE 400         /* columns: nothing is cut */
#define FUNCTION_LEAST 12 /* columns of a function's name that is cut: less of it names nothing */
#define NAME_MOST 48      /* columns of a name that no file can have: its middle is left out */

void draw_wrap(const struct draw_text *v, int indent, const char *mark, const char *format, ...)
{
    char text[WORDS_MAX_BYTES];
    int hang = indent + terminal_columns(mark);

    TEXT_FORMAT(text, sizeof text, format);
    fprintf(v->out, "%*s%s", indent, "", mark);
    text_wrap(v->out, &v->term, hang, hang, false, text);
}

void draw_styled(const struct draw_text *v, enum terminal_style style, const char *text)
{
    fputs(terminal_style(&v->term, style), v->out);
    draw_wrap(v, INDENT, "", "%s", text);
    fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
}

void draw_label(const struct draw_text *v, enum terminal_style style, const char *label, const char *format, ...)
{
    char text[WORDS_MAX_BYTES];
    int hang = INDENT + DRAW_LABEL;

    TEXT_FORMAT(text, sizeof text, format);
    fprintf(v->out, "%*s%s%s%s%*s", INDENT, "", terminal_style(&v->term, style), label,
            terminal_style(&v->term, TERMINAL_PLAIN), DRAW_LABEL - (int)strlen(label), "");
    text_wrap(v->out, &v->term, hang, hang, false, text);
}

void draw_title(const struct draw_text *v, enum terminal_style style, const char *title)
{
    fprintf(v->out, "\n%s%s%s\n", terminal_style(&v->term, style), title, terminal_style(&v->term, TERMINAL_PLAIN));
}

static void print_heading(const struct draw_text *v, enum terminal_style style, const char *title, const char *text)
{
    int at = 0;

    fputs(terminal_style(&v->term, style), v->out);
    /* an exception's text is in it; a mark that follows it begins no line */
    const int width = v->term.width - (*text && *text != ' ');
    while (at + terminal_columns(title) > width) {
        const size_t n = text_line_length(title, width - at);
        fprintf(v->out, "%.*s\n%*s", (int)n, title, INDENT, "");
        title += n;
        title += strspn(title, " ");
        at = INDENT;
    }
    fprintf(v->out, "%s%s%s", title, terminal_style(&v->term, TERMINAL_PLAIN), *text == ' ' ? " " : "");
    text_wrap(v->out, &v->term, INDENT, at + terminal_columns(title) + (*text == ' '), false, text);
}

void draw_first_heading(const struct draw_text *v, enum terminal_style style, const char *title, const char *format,
                        ...)
{
    char text[1024];

    TEXT_FORMAT(text, sizeof text, format);
    print_heading(v, style, title, text);
}

void draw_heading(const struct draw_text *v, enum terminal_style style, const char *title, const char *format, ...)
{
    char text[1024];

    TEXT_FORMAT(text, sizeof text, format);
    fputc('\n', v->out);
    print_heading(v, style, title, text);
}

/* Where the recorded program is: paths below the folder that it ran in, or below that of its script, are shown
 * relative to it. */
static const char *folder_of_site(const struct draw_text *v, const char *file, char *folder, size_t size)
{
    const struct run_process *p = v->report->processes_n ? &v->report->processes[0] : NULL;
    const char *script = p && p->command ? strstr(p->command, ".py") : NULL, *start = script, *end = script;

    if (!p || (p->cwd && text_is_below(file, p->cwd))) return p ? p->cwd : NULL;
    while (start && start > p->command && start[-1] != ' ') start--;
    while (end && end > start && *end != '/') end--;
    if (!start || *start != '/' || end == start || (script[3] && script[3] != ' ')) return p->cwd;
    text_put(folder, size, "%.*s", (int)(end - start), start);
    return text_is_below(file, folder) ? folder : p->cwd;
}

/* "dir/file.py:34", or "libfoo.so+0x12ab" for a native place without lines; of a path that is longer than `columns`
 * folders are left out, never part of the file's name or of its line. */
static void format_site_place(const struct draw_text *v, char *out, size_t size, const struct result_site *s,
                              int columns)
{
    char path[LINE_MAX_BYTES], folder[LINE_MAX_BYTES], tail[32] = "";
    const char *file = s->file ? s->file : "?", *slash = strrchr(file, '/');

    if (s->exit) {
        text_put(out, size, "at interpreter exit");
        return;
    }
    if (!s->file && s->function) {
        text_function(path, sizeof path, s->function, WHOLE, v->term.utf8);
        text_elide(out, size, path, columns, v->term.utf8);
        return;
    }
    if (s->line > 0)
        snprintf(tail, sizeof tail, ":%d", s->line);
    else if (s->kind == GS_FRAME_NATIVE && !s->function)
        snprintf(tail, sizeof tail, "+0x%llx", (unsigned long long)s->offset);
    if (s->kind == GS_FRAME_NATIVE && s->line <= 0 && slash) file = slash + 1; /* a library is known by its name */
    int room = columns - (int)strlen(tail), name = terminal_columns(slash ? slash + 1 : file);
    if (name > NAME_MAX) name = NAME_MOST;
    text_path(path, sizeof path, file, folder_of_site(v, file, folder, sizeof folder), room > name ? room : name,
              v->term.utf8);
    text_put(out, size, "%s%s", path, tail);
}

/* "train.py:34": columns below which a place is not shortened. */
static int least_site_columns(const struct draw_text *v, const struct result_site *s)
{
    char file[LINE_MAX_BYTES];

    format_site_place(v, file, sizeof file, s, 1);
    return terminal_columns(file);
}

/* "train.py:34  step" in at most `columns`: the function is shortened before the folders, an operation of the backward
 * pass, which tells apart what is allocated at one line, after them. */
static void place_and_function(const struct draw_text *v, char *out, size_t size, const struct result_site *s,
                               int columns)
{
    char where[LINE_MAX_BYTES], whole[LINE_MAX_BYTES] = "", function[LINE_MAX_BYTES] = "";

    format_site_place(v, where, sizeof where, s, columns - (s->operation ? terminal_columns(s->operation) + 2 : 0));
    int room = columns - terminal_columns(where) - 2;
    if (s->operation) {
        text_put(whole, sizeof whole, "backward %s %s", v->term.utf8 ? "→" : "->", s->operation);
        if (terminal_columns(whole) > room) text_put(whole, sizeof whole, "%s", s->operation);
    } else if (s->function && s->file && !s->exit)
        text_function(whole, sizeof whole, s->function, WHOLE, v->term.utf8);
    if (room >= FUNCTION_LEAST || terminal_columns(whole) <= room)
        (s->operation ? text_elide : text_name)(function, sizeof function, whole, room, v->term.utf8);
    text_put(out, size, "%s%s%s", where, *function ? "  " : "", function);
}

/* The second of two places: of one file it is the line that tells. */
static void format_second_site(const struct draw_text *v, char *out, size_t size, const struct result_site *s,
                               const struct result_site *first, int columns, bool function)
{
    char name[LINE_MAX_BYTES] = "";
    bool same = s->file && first->file && s->line > 0 && strcmp(s->file, first->file) == 0;

    if (!same) {
        (function ? place_and_function : format_site_place)(v, out, size, s, columns);
        return;
    }
    if (function && s->function && strcmp(s->function, "<module>") != 0)
        text_function(name, sizeof name, s->function, columns, v->term.utf8);
    text_put(out, size, ":%d%s%s", s->line, *name ? "  " : "", name);
}

/* The other place that tells a site from its likes; not the function around a comprehension, at the same line. */
static const struct run_frame *other_of(const struct result_site *s)
{
    const struct run_frame *other = s->helper ? s->via : s->inner ? s->inner : s->caller;
    const bool same =
        other && other->file && s->file && s->line > 0 && other->line == s->line && strcmp(other->file, s->file) == 0;
    return same ? NULL : other;
}

/* With who called it, or the helper or library that it called. Where not all fits, the other place is shortened first,
 * to its file and line at the least; then the site's function, then its folders. A site's file and line are never cut.
 * False if the other place does not fit. */
static bool site_and_caller(const struct draw_text *v, char *out, size_t size, const struct result_site *s, int columns)
{
    static const struct {
        bool own_function, other_function, other_folders;
    } step[] = {{true, true, true}, {true, false, true}, {true, false, false}, {false, false, false}};
    const char *arrow = s->helper || s->inner ? (v->term.utf8 ? "  → " : "  -> ") : (v->term.utf8 ? "  ← " : "  <- ");
    struct result_site other = site_of_frame(other_of(s));
    char own[LINE_MAX_BYTES], caller[LINE_MAX_BYTES];

    for (size_t i = 0; i < COUNT_OF(step); i++) {
        if (s->operation && !step[i].own_function) return false;
        (step[i].own_function ? place_and_function : format_site_place)(v, own, sizeof own, s, WHOLE);
        format_second_site(v, caller, sizeof caller, &other, s, step[i].other_folders ? WHOLE : 1,
                           step[i].other_function);
        if (terminal_columns(own) + terminal_columns(arrow) + terminal_columns(caller) <= columns) {
            text_put(out, size, "%s%s%s", own, arrow, caller);
            return true;
        }
    }
    int room = columns - terminal_columns(arrow) - terminal_columns(caller);
    if (room < least_site_columns(v, s)) return false;
    format_site_place(v, own, sizeof own, s, room);
    text_put(out, size, "%s%s%s", own, arrow, caller);
    return true;
}

char *draw_site(const struct draw_text *v, char *out, size_t size, const struct result_site *s, int columns)
{
    if (!s->known)
        text_put(out, size, "(no stack recorded)");
    else if (!other_of(s) || !site_and_caller(v, out, size, s, columns))
        place_and_function(v, out, size, s, columns);
    return out;
}

char *draw_frame(const struct draw_text *v, char *out, size_t size, const struct run_frame *frame, int columns)
{
    struct result_site s = site_of_frame(frame);

    return draw_site(v, out, size, &s, columns);
}

char *draw_styled_site(const struct draw_text *v, const struct result_site *s, const char *text, char *out, size_t size)
{
    const struct terminal *t = &v->term;
    const char *gap = strstr(text, "  ");
    size_t own = gap ? (size_t)(gap - text) : strlen(text);
    char name[LINE_MAX_BYTES], link[3 * LINE_MAX_BYTES];
    bool user = s->known && !s->library && !s->exit;

    if (!t->colour) {
        text_put(out, size, "%s", text);
        return out;
    }
    text_put(name, sizeof name, "%.*s", (int)own, text);
    text_put(out, size, "%s%s%s%s%s%s", terminal_style(t, user ? TERMINAL_CYAN : TERMINAL_DIM),
             terminal_link(t, s->known ? s->file : NULL, s->line, name, link, sizeof link),
             terminal_style(t, TERMINAL_PLAIN), terminal_style(t, TERMINAL_DIM), text + own,
             terminal_style(t, TERMINAL_PLAIN));
    return out;
}

/* A line says how many call paths it has; that is left out where it would cut the place. */
void draw_site_cell(const void *view, const void *item, char *out, size_t size, int columns)
{
    const struct result_site *site = item;
    char paths[48] = "", place[LINE_MAX_BYTES];

    if (site->paths > 1) snprintf(paths, sizeof paths, "  (%u call paths)", site->paths);
    if (*paths && columns - (int)strlen(paths) < PLACES_LEAST / 2) *paths = 0;
    draw_site(view, place, sizeof place, site, columns - (int)strlen(paths));
    strncat(place, paths, sizeof place - strlen(place) - 1);
    draw_styled_site(view, site, place, out, size);
}

/* What tells a path from the others of its line: what it called, or what called it. */
static void path_place(const struct draw_text *v, char *out, size_t size, const struct result_line_path *p, int columns)
{
    const struct run_frame *other = other_of(&p->site);
    char place[LINE_MAX_BYTES];

    if (!other) {
        draw_site(v, out, size, &p->site, columns);
        return;
    }
    draw_frame(v, place, sizeof place, other, columns - 2);
    text_put(out, size, "%s %s",
             p->site.helper || p->site.inner ? (v->term.utf8 ? "→" : "->") : (v->term.utf8 ? "←" : "<-"), place);
}

char *draw_paths(const struct draw_text *v, const struct result_paths *paths, int indent)
{
    enum { FEW = 3, AMOUNT = 10 };
    size_t shown = v->paths ? paths->listed : paths->listed < FEW ? paths->listed : FEW;
    char *text = NULL;
    size_t size = 0;

    if (paths->n <= 1 || !(v->paths || ANY_OF(l, paths->list, paths->listed, l->site.inner))) return NULL;
    FILE *f = arena_stream(&text, &size);
    EACH (p, paths->list, shown) {
        char amount[UNITS_TEXT], place[LINE_MAX_BYTES];
        units_format_count(amount, p->count); /* where neither bytes nor times are added up */
        path_place(v, place, sizeof place, p, v->term.width - indent - AMOUNT - 2);
        fprintf(f, "%*s%*s  %s%s%s\n", indent, "", AMOUNT,
                p->bytes       ? draw_bytes(amount, p->bytes)
                : p->blocked_s ? units_format_seconds(amount, p->blocked_s)
                               : amount,
                terminal_style(&v->term, TERMINAL_DIM), place, terminal_style(&v->term, TERMINAL_PLAIN));
    }
    if (paths->n > shown)
        fprintf(f, "%*s%*s  %sand %zu more%s%s\n", indent, "", AMOUNT, "", terminal_style(&v->term, TERMINAL_DIM),
                paths->n - shown, v->paths ? "" : ": --paths shows them", terminal_style(&v->term, TERMINAL_PLAIN));
    fclose(f);
    return text;
}

static void print_left_out(const struct draw_text *v, FILE *f, int indent, size_t n, const char *what)
{
    if (n)
        fprintf(f, "%*s%sand %zu %s%s\n", indent, "", terminal_style(&v->term, TERMINAL_DIM), n, what,
                terminal_style(&v->term, TERMINAL_PLAIN));
}

/* A library's inner life is long, and the Python lines stand below it: each kind has its own limit,
 * so that neither hides the other. */
struct trace_lines {
    const struct draw_text *v;
    FILE *f;
    int indent;
    bool native;
    size_t shown[2], left[2];
};

static void trace_line(struct trace_lines *t, const struct run_frame *frame)
{
    static const size_t most[] = {[GS_FRAME_PYTHON] = 16, [GS_FRAME_NATIVE] = 10};
    struct result_site s = site_of_frame(frame);
    size_t kind = s.kind == GS_FRAME_NATIVE;
    char line[LINE_MAX_BYTES];
    if (kind && !t->native) return;
    if (t->shown[kind]++ >= most[s.kind]) {
        t->left[kind]++;
        return;
    }
    if (!kind) {
        print_left_out(t->v, t->f, t->indent, t->left[1], "native calls");
        t->left[1] = 0;
    }
    fprintf(t->f, "%*s%s%s%s\n", t->indent, "", terminal_style(&t->v->term, TERMINAL_DIM),
            draw_site(t->v, line, sizeof line, &s, t->v->term.width - t->indent),
            terminal_style(&t->v->term, TERMINAL_PLAIN));
}

char *draw_trace(const struct draw_text *v, uint32_t stack, int indent)
{
    struct run *run = v->report->run;
    char *text = NULL;
    size_t size = 0;
    struct trace_lines t = {.v = v,
                            .f = arena_stream(&text, &size),
                            .indent = indent,
                            .native = v->native || run_stack_python(run, stack) == RUN_NONE};

    for (uint32_t s = stack; s != RUN_NONE; s = run_stack_parent(run, s)) {
        const struct run_frame *frame = run_stack_frame(run, s);
        size_t n = 1;
        if (t.native || frame->kind == GS_FRAME_PYTHON) frame = run_frame_places(run, s, &n);
        for (size_t i = 0; i < n; i++) trace_line(&t, &frame[i]);
    }
    print_left_out(v, t.f, indent, t.left[1], "native calls");
    print_left_out(v, t.f, indent, t.left[0], "callers");
    fclose(t.f);
    if (!size) {
        free(text);
        return NULL;
    }
    return text;
}

static char *since_text(int64_t ns, char out[DRAW_SINCE])
{
    char from[UNITS_TEXT];

    out[0] = 0;
    if (ns) snprintf(out, DRAW_SINCE, " after %s", units_format_seconds(from, (double)ns / 1e9));
    return out;
}

char *draw_since(const struct draw_text *v, char out[DRAW_SINCE])
{
    return since_text(run_kept_from(v->report->run), out);
}

char *draw_growth_since(const struct draw_text *v, char out[DRAW_SINCE])
{
    return since_text(run_growth_from(v->report->run), out);
}

void draw_more(const struct draw_text *v, size_t total, size_t shown)
{
    if (total > shown && !v->brief) /* whose end names --full */
        fprintf(v->out, "%*s%sand %s more: --top %zu shows them%s\n", INDENT, "",
                terminal_style(&v->term, TERMINAL_DIM), UNITS_COUNT(total - shown), total,
                terminal_style(&v->term, TERMINAL_PLAIN));
}

const char *draw_layer_word(enum run_series_layer layer)
{
    static const char *const words[RUN_SERIES_LAYERS] = {
        [RUN_SERIES_DEVICE] = "GPU memory",         [RUN_SERIES_TENSOR] = "tensors",
        [RUN_SERIES_PINNED] = "pinned host memory", [RUN_SERIES_HOST] = "CPU tensors",
        [RUN_SERIES_SHARED] = "memory of others",   [RUN_SERIES_GRAPH] = "memory for graphs",
    };

    return words[layer];
}

char *draw_device(const struct draw_text *v, char *out, size_t size, uint32_t process, int device,
                  enum run_series_layer layer)
{
    char who[64] = "";
    const struct run_process *p = process < v->report->processes_n ? &v->report->processes[process] : NULL;

    if (p && v->report->processes_n > 1 && p->rank >= 0)
        snprintf(who, sizeof who, "rank %lld, ", (long long)p->rank);
    else if (p && v->report->processes_n > 1)
        snprintf(who, sizeof who, "process %u, ", p->pid);
    if (device >= 0)
        snprintf(out, size, "%sGPU %d", who, device);
    else
        snprintf(out, size, "%s%s", who, draw_layer_word(layer));
    return out;
}

char *draw_bytes(char out[UNITS_TEXT], int64_t bytes)
{
    if (bytes == RUN_UNKNOWN)
        snprintf(out, UNITS_TEXT, "?");
    else if (bytes < 0)
        units_format_bytes_signed(out, bytes);
    else
        units_format_bytes(out, (uint64_t)bytes);
    return out;
}

char *draw_moment(const struct draw_text *v, char *out, size_t size, const struct result_peak *p)
{
    if (v->report->imported && p->time_ns == 0)
        text_put(out, size, "from the start");
    else
        text_put(out, size, "at %s", UNITS_SECONDS(p->time_s));
    return out;
}
