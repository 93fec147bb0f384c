#include "analyzer/site/source_window.h"

#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/site/holder.h"
#include "analyzer/site/holder_read.h"
#include "analyzer/site/python_names.h"
#include "analyzer/site/source_context.h"
#include "analyzer/site/source_loss.h"

enum { FILES = 8 };

struct search {
    struct arena *arena;
    struct site_code files[FILES];
    const char *names[FILES];
    size_t n;
    const char *into;
};

/* The header of the function around a statement; n: none. */
static size_t function_around(const struct site_code *code, size_t i)
{
    size_t at = site_code_parent(code, i);
    while (at < code->n && !site_is_function(&code->list[at])) at = site_code_parent(code, at);
    return at;
}

static bool encloses_statement(const struct site_code *code, size_t header, size_t i)
{
    return header >= code->n || (i > header && i < site_code_end(code, header));
}

/* A name for the container: its own, or, of an attribute, one of the same last part. */
static bool names_it(const struct search *s, const char *name)
{
    return strcmp(name, s->into) == 0 ||
           (strchr(s->into, '.') && strchr(name, '.') && strcmp(text_last_part(name), text_last_part(s->into)) == 0);
}

/* [], list(), 0, None, torch.zeros(n), loss.detach() */
static bool is_empty_value(const char *value)
{
    static const char *const whole[] = {"[]",      "{}", "()", "list()", "dict()", "set()",
                                        "tuple()", "0",  "0.", "0.0",    "None"};
    static const char *const begins[] = {"deque(",    "collections.", "defaultdict(",  "[[] for ",
                                         "[None] * ", "torch.zeros(", "torch.tensor(", "torch.zeros_like("};
    return TEXT_IS_ONE_OF(value, whole) || text_ends_with(value, ".detach()") ||
           ANY_OF(m, begins, COUNT_OF(begins), strncmp(value, *m, strlen(*m)) == 0);
}

/* while bank: or for _ in range(len(bank)): around bank.popleft() */
static bool drains_container(const struct search *s, const struct site_code *code, size_t header)
{
    const char *of = strncmp(code->list[header].code, "while ", 6) == 0 ? code->list[header].code + 6 : "";
    const bool counted = strncmp(of, "len(", 4) == 0, ranged = site_code_begins(&code->list[header], "for");
    const char *in = ranged ? strstr(code->list[header].code, " in range(len(") : NULL;
    of = in ? in + strlen(" in range(len(") : of + 4 * counted;
    const size_t n = site_name_length(of);
    const char *name = arena_printf(s->arena, "%.*s", (int)n, of), *end = of + n + (counted || in),
               *pop = arena_printf(s->arena, "%s.pop", name);
    const bool all = in ? strcmp(end, "):") == 0 : TEXT_IS_ONE_OF(end, ((const char *const[]){":", " > 0:"}));
    if (!n || !all || !names_it(s, name)) return false;
    for (size_t i = header + 1; i < site_code_end(code, header); i++)
        if (strstr(code->list[i].code, pop)) return true;
    return false;
}

/* bank.clear(), del bank[:], losses.zero_(), bank = [], values, scores = [], [] */
static bool empties_container(const struct search *s, const struct site_code *of, size_t i)
{
    const char *code = of->list[i].code;
    if (site_is_loop(&of->list[i])) return drains_container(s, of, i);
    struct site_assignment a;
    const bool del = strncmp(code, "del ", 4) == 0;
    const char *at = code + 4 * del;
    for (size_t n = site_name_length(at); n; n = *at ? site_name_length(at) : 0) {
        const char *name = arena_printf(s->arena, "%.*s", (int)n, at), *call = strrchr(name, '.');
        if (del && names_it(s, name)) return true;
        if (!del && call && at[n] == '(' &&
            TEXT_IS_ONE_OF(call, ((const char *const[]){".clear", ".zero_", ".detach_"})))
            return names_it(s, arena_printf(s->arena, "%.*s", (int)(call - name), name));
        if (!del) break;
        at += n;
        at += strcspn(at, ",");
        at += strspn(at, ", ");
    }
    if (del || !site_assignment_of(s->arena, code, &a) || a.augmented) return false;
    const char *part;
    for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(s->arena, a.targets, k)); k++) {
        const char *value = site_part_of(s->arena, a.value, k);
        if (names_it(s, site_base_name(s->arena, part)) && is_empty_value(*value ? value : a.value)) return true;
    }
    return false;
}

/* Does the statement run a backward pass, or call a function of the program that does? */
static bool runs_backward(const struct search *s, const char *code)
{
    if (strstr(code, "backward(")) return true;
    for (const char *p = code; *p;) {
        const size_t n = site_name_length(p);
        const char *called = n && p[n] == '(' ? text_last_part(arena_printf(s->arena, "%.*s", (int)n, p)) : NULL;
        const char *def = called ? arena_printf(s->arena, "def %s(", called) : NULL,
                   *stored = called ? arena_printf(s->arena, "%s = lambda", called) : NULL;
        for (size_t k = 0; def && k < s->n; k++)
            for (size_t i = 0; i < s->files[k].n; i++) {
                const struct site_code *c = &s->files[k];
                const char *made = strstr(c->list[i].code, stored);
                if (made && strstr(made, "backward(") && (made == c->list[i].code || made[-1] == '.')) return true;
                if (strncmp(c->list[i].code, def, strlen(def)) != 0) continue;
                for (size_t j = i + 1; j < site_code_end(c, i); j++)
                    if (strstr(c->list[j].code, "backward(")) return true;
            }
        p += n ? n : 1;
    }
    return false;
}

/* Does a backward pass belong to statement i each time: earlier in the blocks around it, in its loop, or (`before`)
 * later in its block? Not one in a loop that fills the container (`fills`; n: in another function) and does not empty
 * it. */
static bool is_beside_backward(const struct search *s, const struct site_code *code, size_t i, size_t fills,
                               bool *before)
{
    const size_t function = function_around(code, i), block = site_code_parent(code, i);
    const bool loops = block < code->n && site_is_loop(&code->list[block]);
    const size_t end = block < code->n ? site_code_end(code, block) : code->n;
    for (size_t j = function < code->n ? function + 1 : 0; j < end; j++) {
        if (site_is_function(&code->list[j])) {
            j = site_code_end(code, j) - 1;
            continue;
        }
        const bool filled = fills > i && fills < j; /* anew, before this backward pass */
        if (j == i || !encloses_statement(code, block, j) || !runs_backward(s, code->list[j].code) ||
            (j > i && !loops && (block == code->n || site_code_parent(code, j) != block || filled)))
            continue;
        bool fills_only = false;
        for (size_t k = site_code_parent(code, j); k < code->n && k != function; k = site_code_parent(code, k))
            fills_only = fills_only || (site_is_loop(&code->list[k]) && fills < code->n &&
                                        encloses_statement(code, k, fills) && !encloses_statement(code, k, i));
        *before = j > i && !filled;
        if (!fills_only) return true;
    }
    return false;
}

/* `call`: "clear(" */
static bool has_call(const char *code, const char *call)
{
    const char *p = strstr(code, call);
    return p && (p == code || !site_is_name_character(p[-1]));
}

/* The statement beside a backward pass that empties the container, itself or by calling a function that does. */
static bool find_empty(const struct search *s, const struct result_holder *h, struct site_window *window)
{
    const char *by = NULL;
    for (unsigned round = 0; round < 2; round++)
        for (size_t k = 0; k < s->n; k++)
            for (size_t i = 0; i < s->files[k].n; i++) {
                const struct site_code *c = &s->files[k];
                const size_t def = function_around(c, i);
                const char *name = def < c->n ? strchr(c->list[def].code, ' ') + 1 : "", *code = c->list[i].code;
                const bool constructs = strncmp(name, "__init__(", 9) == 0;
                if (round ? !by || !has_call(code, by) || site_is_function(&c->list[i])
                          : constructs || !empties_container(s, c, i))
                    continue;
                const size_t fills = strcmp(s->names[k], h->file) == 0 ? site_code_at(c, h->line) : c->n;
                const bool same = fills < c->n && function_around(c, fills) == def;
                if (fills != i && is_beside_backward(s, c, i, same ? fills : c->n, &window->before)) {
                    window->empty = (struct result_site){
                        .kind = GS_FRAME_PYTHON, .known = true, .file = s->names[k], .line = c->list[i].line};
                    return true;
                }
                if (!round && def < c->n) by = arena_printf(s->arena, "%.*s(", (int)strcspn(name, "("), name);
            }
    return false;
}

static void add_window_file(struct site_builder *b, struct search *s, const struct run_frame *frame)
{
    size_t at;
    if (s->n == FILES || frame->kind != GS_FRAME_PYTHON || site_is_library(frame) ||
        ANY_OF(name, s->names, s->n, strcmp(*name, frame->file) == 0) ||
        !site_open_source(b, frame, &s->files[s->n], &at))
        return;
    s->names[s->n++] = frame->file;
}

bool site_find_window(struct site_builder *b, uint32_t stack, struct site_window *window)
{
    static const char *const keeps[] = {"retain_graph=True", "create_graph=True"};
    struct result_holder *holders;
    const size_t n = site_find_emptied(b, stack, &holders);
    struct arena scratch = {0};
    bool is = n && site_source_lacks(b, stack, keeps, COUNT_OF(keeps));
    for (size_t i = n; i-- > 0 && is;) {
        const struct result_holder *h = &holders[i];
        struct search s = {.arena = &scratch, .into = h->into};
        add_window_file(b, &s, &(struct run_frame){.file = h->file, .line = h->line, .kind = GS_FRAME_PYTHON});
        uint32_t at = stack;
        RUN_EACH_FRAME (frame, b->run, at) add_window_file(b, &s, frame);
        is = h->into && site_holder_loss(b, stack, h) == SITE_LOSS_YES && find_empty(&s, h, window);
        window->into = h->into;
    }
    arena_free(&scratch);
    return is;
}
