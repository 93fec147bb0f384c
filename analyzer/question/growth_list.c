/* Call paths that grow in the same rhythm, because one object keeps them alive.
 *
 * A program that keeps a loss with its graph keeps everything that the forward pass allocated for it: many lines grow
 * together, and none of them is the line to change. Call paths that grow in one rhythm (the same first and last step,
 * counts in a proportion of small numbers) are one entry, with its lines, if at least two of them go through
 * torch.nn.Module calls, or if they have at least three different lines. Call paths of one line in one rhythm are one
 * entry in any case. Call paths of one native line are one entry in any rhythm.
 */
#include "analyzer/question/growth.h"
#include "analyzer/base/sort.h"
#include "analyzer/site/excerpt.h"
#include "analyzer/site/holder.h"
#include "analyzer/site/source_context.h"

#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 64, MODULES = 2, ANY = 3 };

static bool in_module(const struct run *run, uint32_t stack)
{
    return run_stack_is_in(run, stack, "torch/nn/modules/module.py", NULL);
}

static bool in_backward(const struct run *run, uint32_t stack)
{
    return run_stack_is_in(run, stack, "torch/autograd/__init__.py", "backward");
}

/* A conversion of a result, as in model(x).float(), copies as the input's transfer does. */
static bool is_growth_of_input(struct site_builder *b, uint32_t stack)
{
    static const char *const conversions[] = {".float()", ".half()", ".double()", ".bfloat16()", ".to(torch."};
    const struct run_frame *frame = run_stack_frame(b->run, stack);
    if (!frame || frame->kind != GS_FRAME_NATIVE || in_module(b->run, stack)) return false;
    return site_enters_device(b, stack) &&
           !ANY_OF(c, conversions, COUNT_OF(conversions), site_statement_has(b, stack, *c));
}

/* The tensor that keeps a graph was made by the pass, after the others of it. Blocks of a backward pass come later, and
 * so does the input of the next pass, but no tensor of theirs is stored. */
static bool is_newer(struct site_builder *b, const struct question_grown *g, const struct question_grown *than)
{
    const bool backward = in_backward(b->run, g->stack), earlier = in_backward(b->run, than->stack);
    if (backward != earlier) return earlier;
    const bool input = is_growth_of_input(b, g->stack), other = is_growth_of_input(b, than->stack);
    return input != other ? other : g->first_ns > than->first_ns;
}

/* A few allocations of one per few of the other: 3 per 2. One of either may be missing. */
static bool in_proportion(uint64_t a, uint64_t b)
{
    enum { FEW = 4 };
    uint64_t large = a > b ? a : b, small = a > b ? b : a;
    for (uint64_t few = 1; few <= FEW; few++) {
        uint64_t times = (few * large + small / 2) / small;
        uint64_t off = few * large > times * small ? few * large - times * small : times * small - few * large;
        if (off <= times + few + few * large / 100) return true;
    }
    return false;
}

static bool are_steps_near(const struct step_list *steps, const struct question_grown *g, int64_t a, int64_t b)
{
    if (steps) {
        size_t x = step_count_done(steps, a), y = step_count_done(steps, b);
        return x <= y + 1 && y <= x + 1;
    }
    int64_t span = g->last_ns - g->first_ns, apart = a < b ? b - a : a - b;
    return apart <= span / (int64_t)g->entry.count + span / 64;
}

/* std::vector adds an element by one call path, and grows by another one. */
static bool are_at_native_line(struct site_builder *b, const struct question_grown *x, const struct question_grown *y)
{
    return run_stack_python(b->run, x->stack) == RUN_NONE && run_stack_python(b->run, y->stack) == RUN_NONE &&
           site_index(b, x->stack) == site_index(b, y->stack);
}

static bool grow_together(struct site_builder *b, const struct question_grown *x, const struct question_grown *y)
{
    const struct step_list *steps = step_list_of(b, x->entry.process);
    if (x->entry.process != y->entry.process || x->entry.device != y->entry.device || x->entry.layer != y->entry.layer)
        return false;
    if (are_at_native_line(b, x, y)) return true;
    return in_proportion(x->entry.count, y->entry.count) && are_steps_near(steps, x, x->first_ns, y->first_ns) &&
           are_steps_near(steps, x, x->last_ns, y->last_ns);
}

/* The innermost call that two stacks share, RUN_NONE: none. */
static uint32_t common_stack(const struct run *run, uint32_t a, uint32_t b)
{
    while (a != b && a != RUN_NONE && b != RUN_NONE) {
        uint32_t x = run_stack_depth(run, a), y = run_stack_depth(run, b);
        a = x >= y ? run_stack_parent(run, a) : a;
        b = y >= x ? run_stack_parent(run, b) : b;
    }
    return a == b ? a : RUN_NONE;
}

SORT_ORDER(compare_grown, struct question_grown,
           SORT_DOWN(x->entry.bytes, y->entry.bytes) ?: SORT_UP(x->stack, y->stack))

SORT_ORDER(compare_growth_lines, struct result_growth_line,
           SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->site.line, y->site.line))

struct group { /* numbers of those of one rhythm, the largest first */
    size_t *members;
    size_t n, cap;
    unsigned sites, modules; /* different lines; call paths through a module */
};

static void measure_group(struct site_builder *b, const struct question_grown *grown, struct group *g)
{
    struct map seen = {0};
    for (size_t i = 0; i < g->n; i++) {
        uint32_t stack = grown[g->members[i]].stack;
        uint32_t *at = map_at(&seen, site_index(b, stack));
        g->sites += *at == MAP_NEW;
        *at = 1;
        g->modules += in_module(b->run, stack);
    }
    map_free(&seen);
}

/* Combines the lines of those that belong together into the entry of the first. */
static struct result_growth merge_grown(struct site_builder *b, const struct question_grown *grown,
                                        const size_t *members, size_t n)
{
    struct result_growth e = grown[members[0]].entry;
    struct result_growth_line *lines = arena_realloc(NULL, n, sizeof *lines);
    struct map index = {0};
    size_t lines_n = 0, newest = members[0];
    uint32_t under = grown[newest].stack;
    e.bytes = 0;
    e.creates = RUN_NONE;
    for (size_t i = 0; i < n; i++) {
        const struct question_grown *g = &grown[members[i]];
        uint32_t site = site_index(b, g->stack), *at = map_at(&index, site);
        if (*at == MAP_NEW) {
            *at = (uint32_t)lines_n;
            lines[lines_n++] = (struct result_growth_line){.site = site_of_call(b, g->stack)};
        }
        lines[*at].bytes = arena_add_capped(lines[*at].bytes, g->entry.bytes);
        lines[*at].count += g->entry.count;
        e.bytes = arena_add_capped(e.bytes, g->entry.bytes);
        under = common_stack(b->run, under, g->stack);
        if (run_stack_python(b->run, g->stack) == RUN_NONE && g->entry.steps > e.steps) e.steps = g->entry.steps;
        const bool each = !e.by_steps || 2 * g->entry.count >= e.steps; /* not a buffer, of which only the last lives */
        newest = each && is_newer(b, g, &grown[newest]) ? members[i] : newest; /* the last may be incomplete */
        if (e.creates == RUN_NONE && in_backward(b->run, g->stack) &&
            site_statement_has(b, g->stack, "create_graph=True"))
            e.creates = g->stack;
    }
    map_free(&index);
    qsort(lines, lines_n, sizeof *lines, compare_growth_lines);
    e.lines_total = lines_n;
    e.lines_n = lines_n < LINES_MAX ? lines_n : LINES_MAX;
    e.lines = arena_alloc(b->arena, e.lines_n * sizeof *lines);
    memcpy(e.lines, lines, e.lines_n * sizeof *lines);
    free(lines);
    e.count = 0;
    for (size_t i = 0; i < n; i++) e.count += grown[members[i]].entry.count;
    uint64_t times = e.by_steps ? e.steps : grown[members[0]].entry.count;
    e.bytes_per_step = (double)e.bytes / (double)times;
    e.bytes_per_s = e.last_s > e.first_s ? (double)e.bytes / (e.last_s - e.first_s) : e.bytes_per_s;
    e.newest = site_of_call(b, grown[newest].stack);
    e.newest_stack = grown[newest].stack;
    e.newest_count = grown[newest].entry.count;
    e.newest_bytes = grown[newest].entry.bytes / (int64_t)grown[newest].entry.count;
    if (under != RUN_NONE) e.under = site_of(b->run, under, NULL); /* not beyond a helper */
    e.stack.number = grown[members[0]].stack;
    return e;
}

SORT_ORDER(order_growth_by_rate, struct result_growth,
           SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->stack.number, y->stack.number))

static void add_group(struct site_builder *b, const struct question_grown *grown, const struct group *g,
                      struct result_growth **list, size_t *n, size_t *cap)
{
    if (g->modules >= MODULES || g->sites >= ANY) {
        struct result_growth e = merge_grown(b, grown, g->members, g->n);
        e.graph = true;
        *ARENA_PUSH(*list, *n, *cap) = e;
        return;
    }
    bool *done = arena_realloc(NULL, g->n, sizeof *done);
    size_t *same = arena_realloc(NULL, g->n, sizeof *same);
    memset(done, 0, g->n * sizeof *done);
    for (size_t i = 0; i < g->n; i++) {
        size_t same_n = 0, modules = 0;
        uint32_t site = site_index(b, grown[g->members[i]].stack);
        for (size_t k = i; k < g->n; k++) {
            if (!done[k] && site_index(b, grown[g->members[k]].stack) == site) {
                done[k] = true;
                same[same_n++] = g->members[k];
                modules += in_module(b->run, grown[g->members[k]].stack);
            }
        }
        if (same_n) {
            struct result_growth e = merge_grown(b, grown, same, same_n);
            e.graph = modules >= MODULES;
            *ARENA_PUSH(*list, *n, *cap) = e;
        }
    }
    ARENA_RELEASE(done, same);
}

static void show_growth_source(struct site_builder *b, struct result_growth *g)
{
    struct site_excerpts source = {0};
    g->holders_n = site_find_holders(b, g->stack.number, g->graph, &g->holders);
    /* total += penalty, whose graph a line outside of all modules made */
    if (!g->holders_n && !g->graph && g->layer == RUN_SERIES_TENSOR && !site_is_without_gradients(b, g->stack.number))
        g->holders_n = site_find_holders(b, g->stack.number, true, &g->holders);
    if (!g->holders_n) g->holders_n = site_find_kept_errors(b, g->stack.number, &g->holders);
    g->stack = site_trace(b, g->stack.number);
    site_add_excerpt(b, &source, &g->newest, "growing");
    site_add_excerpt(b, &source, &g->lines[0].site, "growing");
    g->source = source.list;
    g->source_n = source.n;
}

void question_growth_list(struct site_builder *b, struct question_grown *grown, size_t n)
{
    struct result_report *report = b->report;
    struct result_growth *list = NULL;
    size_t list_n = 0, cap = 0;
    struct group group = {0};
    bool *done = arena_realloc(NULL, n, sizeof *done);
    if (n) {
        memset(done, 0, n * sizeof *done);
        qsort(grown, n, sizeof *grown, compare_grown);
    }
    for (size_t i = 0; i < n; i++) {
        group.n = group.sites = group.modules = 0;
        for (size_t k = i; k < n; k++)
            if (!done[k] && !done[i] && (k == i || grow_together(b, &grown[i], &grown[k])))
                *ARENA_PUSH(group.members, group.n, group.cap) = k;
        for (size_t k = 0; k < group.n; k++) done[group.members[k]] = true;
        if (group.n) {
            measure_group(b, grown, &group);
            add_group(b, grown, &group, &list, &list_n, &cap);
        }
    }
    report->growth =
        site_list(b, list, list_n, sizeof *list, order_growth_by_rate, &report->growth_n, &report->growth_total);
    for (size_t i = 0; i < report->growth_n; i++) {
        report->growth[i].certainty = RESULT_CERTAINTY_INFERRED;
        report->growth[i].refuted_by = "if a later step reads this memory again";
        show_growth_source(b, &report->growth[i]);
    }
    ARENA_RELEASE(group.members, done, list);
}
