/* A cell of a notebook that runs again while the memory of its earlier run is live: variables keep it until they get
 * new values, and IPython keeps the variables of functions that an exception ended. Nothing marks where a run of a cell
 * begins, so the call paths show it. The statement that requests has allocated before, although no loop is around it,
 * no library calls it, and it makes the same call only once; or the function that the cell's statement calls is defined
 * in another cell than the one of that name that allocated. Models are oom_trials.c's. */
#include <string.h>
#include "analyzer/base/sort.h"
#include "analyzer/base/text.h"
#include "analyzer/oom/oom_layout.h"
#include "analyzer/oom/oom_notebook.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/site/source_context.h"
#include "schema/source_file.h"

enum { DEPTH = 16 };
struct way { /* the program's lines of a call path, the innermost first, if that one itself allocates */
    const struct run_frame *list[DEPTH];
    bool by_library[DEPTH]; /* it calls the one before it through a library, which may have a loop */
    size_t n;
};

/* Code of PyTorch's that calls a function of the program once. */
static bool calls_once(const struct run_frame *f)
{
    static const char *const names[] = {"_call_impl", "_wrapped_call_impl", "decorate_context"};
    return f->function && f->file && strstr(f->file, "/torch/") && TEXT_IS_ONE_OF(text_last_part(f->function), names);
}

static bool is_cell_statement(const struct run_frame *f)
{
    return f->function && (strcmp(f->function, "<module>") == 0 || strncmp(f->function, "<cell line", 10) == 0);
}

static struct way way_of(const struct run *run, uint32_t stack)
{
    struct way w = {0};
    bool inner = true, by_library = false;
    for (const struct run_frame *f; (f = run_stack_frame(run, stack)) != NULL; stack = run_stack_parent(run, stack)) {
        if (f->kind != GS_FRAME_PYTHON) continue;
        const bool own = !site_is_library(f);
        if ((inner && !own) || w.n == DEPTH) return (struct way){0};
        inner = false;
        by_library = by_library || !(own || calls_once(f));
        if (!own) continue;
        w.by_library[w.n] = by_library;
        w.list[w.n++] = f;
        by_library = false;
    }
    /* what is above the cell runs it */
    while (w.n && !gs_source_is_cell(w.list[w.n - 1]->file)) w.n--;
    return w;
}

static bool is_same_way(const struct way *a, const struct way *b)
{
    return a->n == b->n && memcmp(a->list, b->list, a->n * sizeof *a->list) == 0;
}

/* A method that is called without its name: net(x), Model(). Before Python 3.11 its class is unknown. */
static bool is_unnamed_method(const char *function)
{
    static const char *const names[] = {"__init__", "__call__", "forward"};
    return TEXT_IS_ONE_OF(function, names);
}

/* From the same statement of a cell through functions of the same names, one of which is defined in another cell. */
static bool is_redefined(const struct way *a, const struct way *b)
{
    bool other = false;
    if (a->n != b->n || a->list[a->n - 1] != b->list[a->n - 1]) return false;
    for (size_t i = 0; i + 1 < a->n; i++) {
        const struct run_frame *x = a->list[i], *y = b->list[i];
        if (!x->function || !y->function || strcmp(x->function, y->function) != 0) return false;
        if (x->file != y->file && is_unnamed_method(x->function)) return false;
        other = other || (x->file != y->file && gs_source_is_cell(x->file) && gs_source_is_cell(y->file));
    }
    return other;
}

/* zeros(3), zeros(4): a call of the same function follows. */
static bool calls_twice(const char *code)
{
    for (const char *open = strchr(code, '('); open; open = strchr(open + 1, '(')) {
        const char *name = open;
        while (name > code && site_is_name_character(name[-1])) name--;
        const size_t n = (size_t)(open - name) + 1;
        if (n > 1 && memmem(open, strlen(open), name, n)) return true;
    }
    return false;
}

/* x * 2 + 1: each operator can allocate. Signs of numbers and what is in strings do not count. */
static bool has_operators(const char *code)
{
    char quote = 0, before = '(';
    for (const char *p = code; *p; p++) {
        if (quote || *p == '"' || *p == '\'')
            quote = !quote ? *p : *p == quote ? 0 : quote;
        else if (strchr("+-*/@%&|^", *p) && !strchr("(,=[", before))
            return true;
        before = *p == ' ' ? before : *p;
    }
    return false;
}

/* reduce(load, rows) and list(rows) do not name what they call, and call it for each item. */
static bool names_call(struct arena *arena, const char *code, const struct run_frame *called)
{
    const char *name = called->function ? text_last_part(called->function) : "";
    if (is_unnamed_method(name)) return true;
    const char *call = arena_printf(arena, "%s(", name), *at = strstr(code, call);
    return at && (at == code || !site_is_name_character(at[-1]));
}

static bool is_run_once(struct site_builder *b, const struct way *w)
{
    if (!w->n || !is_cell_statement(w->list[w->n - 1])) return false;
    for (size_t i = 0; i < w->n; i++) {
        struct site_code code;
        size_t at;
        if (i && w->by_library[i]) return false;
        if (!site_open_source(b, w->list[i], &code, &at) || calls_twice(code.list[at].code)) return false;
        if (i && !names_call(b->arena, code.list[at].code, w->list[i - 1])) return false;
        if (i == 0 && has_operators(code.list[at].code)) return false;
        if (strstr(code.list[at].code, " for ") || strstr(code.list[at].code, "map(")) return false;
        for (size_t k = at; k < code.n && !site_code_begins(&code.list[k], "def"); k = site_code_parent(&code, k))
            if (site_code_begins(&code.list[k], "for") || site_code_begins(&code.list[k], "while")) return false;
    }
    return true;
}

void oom_find_rerun(struct site_builder *b, const struct oom_live *live, size_t n, struct oom_facts *f)
{
    const struct way now = way_of(b->run, f->stack);
    const bool once = now.n && is_run_once(b, &now);
    f->rerun = (struct oom_rerun){.stack = RUN_NONE};
    int64_t until_ns = -1, most = 0;
    for (size_t i = 0; i < n && now.n; i++) {
        const struct way way = way_of(b->run, run_location(b->run, live[i].location)->stack);
        if (way.n && ((once && is_same_way(&way, &now)) || is_redefined(&way, &now)))
            until_ns = live[i].last_ns > until_ns ? live[i].last_ns : until_ns;
    }
    f->rerun.until_ns = until_ns;
    for (size_t i = 0; i < n && until_ns >= 0; i++) {
        const uint32_t stack = run_location(b->run, live[i].location)->stack;
        if (live[i].last_ns > until_ns || oom_notebook_cell(b->run, stack) != now.list[now.n - 1]) continue;
        f->rerun.bytes = arena_add_capped(f->rerun.bytes, live[i].bytes);
        if (live[i].bytes <= most) continue;
        most = live[i].bytes;
        f->rerun.stack = stack;
    }
}

bool oom_keeps_rerun(const struct oom_facts *f)
{
    return f->rerun.bytes > 0 && f->rerun.bytes >= oom_needed_bytes(f) && f->rerun.bytes >= f->live / 4;
}

void oom_explain_rerun(struct oom_words *w)
{
    const struct oom_rerun *e = &w->f->rerun;
    const struct result_by_category *by = &w->v->by_category;
    const struct run_frame *cell = oom_notebook_cell(w->b->run, e->stack);
    uint32_t *stacks = arena_alloc(w->b->arena, (by->lines_n + 1) * sizeof *stacks);
    struct oom_drop drop = {.stacks = stacks, .before_ns = e->until_ns + 1};
    EACH_IN (l, by->lines)
        if (oom_notebook_cell(w->b->run, l->stack) == cell) stacks[drop.stacks_n++] = l->stack;
    SORT(stacks, drop.stacks_n, sort_uint32_up);
    w->v->growing = site_of_call(w->b, e->stack);
    w->v->verdict = TEXT(w,
                         "a leak: a cell ran again, and what its earlier run allocated at %s is still live: %s of the "
                         "%s live. The cell's variables keep it, or the exception of a run that failed",
                         oom_place_text(w, e->stack), SIZE(w, e->bytes), SIZE(w, w->f->live));
    struct result_measure m =
        oom_line_measure(e->bytes, -1, RESULT_CERTAINTY_INFERRED, "if other variables or a list hold this memory, too",
                         TEXT(w,
                              "%s: before the cell runs again, del its variables (if it failed, replace its exception: "
                              "run a cell with `1/0`), then run `import gc; gc.collect()`",
                              site_short_text(w->b, &w->v->growing)));
    if (drop.stacks_n) oom_layout_decide(w->b, w->f, &drop, "without the earlier run of the cell", &m);
    oom_add_measure(w->b, w->v, m);
}
