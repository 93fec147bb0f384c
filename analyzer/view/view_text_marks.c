/* The program's own ranges, if it has marked any: the longest ones, and those with the highest peaks. */
#include <stdio.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"

#define MOST 5

/* "nccl: step" */
static void range_text(const struct draw_text *v, char *out, size_t size, const char *name, const char *domain)
{
    char clean[128], of[64];

    terminal_clean(clean, sizeof clean, name ? name : "(no name)", v->term.utf8);
    terminal_clean(of, sizeof of, domain ? domain : "", v->term.utf8);
    snprintf(out, size, "%s%s%s", of, *of ? ": " : "", clean);
}

void view_text_marks(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    struct text_table t = {.head = {"time", "times", "range"}, .left = {false, false, true}};
    size_t shown = 0, most = v->top < MOST ? v->top : MOST;

    for (size_t i = 0; i < r->marks_n && shown < most; i++) {
        const struct run_mark_total *m = &r->marks[i];
        char text[256];
        if (m->total_ns <= 0) continue;
        char since[DRAW_SINCE];
        if (!shown++)
            draw_heading(v, TERMINAL_BOLD, "Ranges", " that the program marks (%s)%s", run_range_word(r->run),
                         draw_since(v, since));
        range_text(v, text, sizeof text, m->name, m->domain);
        const char *cells[] = {UNITS_SECONDS((double)m->total_ns / 1e9), UNITS_COUNT(m->count), text};
        text_table_add(&t, cells, NULL);
    }
    if (shown) text_table_print(&t, &v->term, INDENT, v->out);
}

static const struct result_scope *tensors_of(const struct result_report *r, const struct result_scope *s)
{
    EACH_IN (t, r->scopes) {
        bool same = t->name == s->name && t->domain == s->domain && t->process == s->process;
        if (same && t->device == s->device && t->layer == RUN_SERIES_TENSOR) return t;
    }
    return NULL;
}

static void add_scope_row(const struct draw_text *v, struct text_table *t, const struct result_scope *s, bool tensors)
{
    const struct result_scope *of = tensors_of(v->report, s);
    char gpu[96], text[256], in_tensors[UNITS_TEXT];
    const char *cells[TEXT_TABLE_COLUMNS] = {DRAW_BYTES(s->peak_bytes)};
    size_t n = 1;

    range_text(v, text, sizeof text, s->name, s->domain);
    if (tensors) cells[n++] = of ? draw_bytes(in_tensors, of->peak_bytes) : "";
    cells[n++] = DRAW_BYTES(s->entry_bytes);
    cells[n++] = DRAW_BYTES(s->exit_bytes);
    cells[n++] = UNITS_COUNT(s->count);
    cells[n++] = draw_device(v, gpu, sizeof gpu, s->process, s->device, s->layer);
    cells[n] = text;
    text_table_add(t, cells, NULL);
}

/* With several GPUs, processes or domains, the highest peak of that name; the list has the highest first. */
static bool is_listed_above(const struct result_report *r, const struct result_scope *s, enum run_series_layer layer,
                            int device)
{
    for (const struct result_scope *t = r->scopes; t < s; t++)
        if (t->layer == layer && (device < 0 || t->device == device) && !strcmp(t->name, s->name)) return true;
    return false;
}

/* Ranges that NVIDIA's libraries (CUB, NCCL) put around their own functions: `--only scopes` lists them, too. */
static bool is_of_library(const struct result_scope *s)
{
    return s->domain && (!strcmp(s->domain, "CCCL") || !strcmp(s->domain, "NCCL"));
}

void view_scope_line(const struct draw_text *v, const struct result_report *r, enum run_series_layer layer, int device,
                     const char *command)
{
    enum { NAMED = 3, NAME_COLUMNS = 40 };
    char text[1024] = "", line[1280];
    size_t all = 0, at = 0;

    EACH_IN (s, r->scopes) {
        char clean[256], name[256];
        if (s->peak_bytes <= 0 || s->layer != layer || (device >= 0 && s->device != device)) continue;
        if (is_of_library(s)) continue;
        if (is_listed_above(r, s, layer, device) || all++ >= NAMED) continue;
        terminal_clean(clean, sizeof clean, s->name ? s->name : "(no name)", v->term.utf8);
        text_elide(name, sizeof name, clean, NAME_COLUMNS, v->term.utf8);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %s", at ? ", " : "", name, DRAW_BYTES(s->peak_bytes));
    }
    if (!all) return;
    if (all > NAMED) snprintf(text + at, sizeof text - at, " and %zu more", all - NAMED);
    fputc('\n', v->out);
    snprintf(line, sizeof line, "Peaks of %s ranges: %s; gpuspy %s", run_range_word(r->run), text, command);
    text_wrap(v->out, &v->term, INDENT, 0, false, line);
}

enum run_series_layer view_scope_layer(const struct result_report *r)
{
    return ANY_IN(s, r->scopes, s->device >= 0 && s->layer == RUN_SERIES_DEVICE) ? RUN_SERIES_DEVICE
                                                                                 : RUN_SERIES_TENSOR;
}

/* CUDA allocations, with the tensors' own peak beside them; only tensors if nothing else is known. */
void view_text_scopes(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    struct text_table plain = {.head = {"peak", "at entry", "at exit", "times", "GPU", "range"},
                               .left = {[4] = true, [5] = true}},
                      both = {.head = {"peak", "tensors", "at entry", "at exit", "times", "GPU", "range"},
                              .left = {[5] = true, [6] = true}};
    size_t all = 0, of[RUN_SERIES_LAYERS] = {0};

    for (size_t i = 0; i < r->scopes_n; i++) of[r->scopes[i].layer] += r->scopes[i].device >= 0;
    const enum run_series_layer layer = view_scope_layer(r);
    if (v->brief) {
        view_scope_line(v, r, layer, -1, "report --only scopes");
        return;
    }
    const bool tensors = of[RUN_SERIES_DEVICE] && of[RUN_SERIES_TENSOR];
    struct text_table *t = tensors ? &both : &plain;
    EACH_IN (s, r->scopes) {
        if (s->device < 0 || s->layer != layer || all++ >= v->top) continue;
        if (!t->n) {
            char title[64];
            snprintf(title, sizeof title, "Peaks by %s range", run_range_word(r->run));
            draw_heading(v, TERMINAL_BOLD, title, ": live on the GPU while at least one range of that name was open");
        }
        add_scope_row(v, t, s, tensors);
    }
    if (!all) return;
    const size_t shown = t->n;
    text_table_print(t, &v->term, INDENT, v->out);
    draw_more(v, all, shown);
}
