/* Sentences about memory that grew until it failed: a leak, an autograd graph, or passes that wait for backward(). */
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/units.h"
#include "analyzer/oom/oom_graph.h"
#include "analyzer/oom/oom_layout.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/question/question.h"
#include "analyzer/site/holder.h"
#include "analyzer/site/native_source.h"
#include "analyzer/site/source_context.h"
#include "analyzer/site/source_input.h"
#include "analyzer/site/source_loss.h"
#include "analyzer/site/source_window.h"
#include "analyzer/step/step.h"

typedef struct oom_facts facts;

/* If almost nothing else is freed, no step is known to have ended (share of the bytes that were freed). */
static const double hardly_freed = 0.05;

/* Counts growth by the program's steps; if not every step grows, by how often the largest line made blocks; or by
 * these blocks if no steps are known. A graph is many allocations per step. */
struct oom_rhythm oom_rhythm(const facts *f)
{
    const struct result_growth *g = f->growth;
    bool graph = oom_keeps_graph(f);
    uint64_t made = f->growing_turns ? f->growing_turns : f->growing_count;
    uint64_t count = graph ? f->growing_passes : made, times = count ? count : 1;
    struct oom_rhythm r = {(double)(graph ? f->growing : f->growing_heaviest) / (double)times, times, false};
    if (g && g->by_steps && !g->jumps && !f->replaced && !f->growing_earlier && g->steps &&
        (graph || made + 2 >= g->steps)) {
        r.steps = true;
        r.each = (double)(graph ? f->growing : f->growing_heaviest) / (double)g->steps;
        r.times = g->steps;
    }
    return r;
}

static const char *rhythm_text(struct oom_words *w)
{
    struct oom_rhythm r = oom_rhythm(w->f);
    char count[UNITS_TEXT];
    return r.steps
               ? TEXT(w, "%s per step, for %s", SIZE(w, r.each), units_format_plural(count, r.times, "step", NULL))
               : TEXT(w, "%s each time, %s so far", SIZE(w, r.each), units_format_plural(count, r.times, "time", NULL));
}

/* Growth before the step in progress: the memory of that step stays live in any case. */
static int64_t earlier_steps(const facts *f)
{
    uint64_t times = oom_rhythm(f).times;
    return f->growing - f->growing / (int64_t)(times ? times : 1);
}

static void add_leak_measure(struct oom_words *w, int64_t frees, int enough, enum result_certainty certainty,
                             const char *refuted_by, const char *text)
{
    oom_add_measure(w->b, w->v, oom_line_measure(frees, enough, certainty, refuted_by, text));
}

static const char *leak_line_of(struct oom_words *w)
{
    return site_short_text(w->b, &w->v->growing);
}

/* The line that calls the model: its own lines also run in passes that need gradients. */
static const char *pass_line_of(struct oom_words *w)
{
    return oom_pass_text(w, w->f->growing_stack) ?: leak_line_of(w);
}

/* The start of the step in progress, or the time of the latest allocation that was kept. */
static int64_t latest_began(struct oom_words *w)
{
    const facts *f = w->f;
    const struct oom_rhythm r = oom_rhythm(f);
    const struct step_list *steps = step_list_of(w->b, f->row->process);
    if (r.steps && steps) return step_start_ns(steps, step_count_done(steps, f->row->time_ns));
    if (r.times < 2) return f->growing_first_ns;
    /* by the later half of them: the first one may have waited for libraries that were loaded */
    return f->growing_end_ns - (f->growing_end_ns - f->growing_middle_ns) / (int64_t)((r.times + 1) / 2);
}

/* Advice that frees all growth before the step in progress; of a buffer that is replaced, all of it. */
static void measure_drop(struct oom_words *w, const struct result_site *line, int enough,
                         enum result_certainty certainty, const char *refuted_by, const char *text)
{
    const facts *f = w->f;
    const struct oom_drop drop = {.stacks = f->growing_stacks,
                                  .stacks_n = f->growing_stacks_n,
                                  .before_ns = f->replaced ? f->row->time_ns + 1 : latest_began(w)};
    struct result_measure m =
        oom_line_measure(f->replaced ? f->growing : earlier_steps(f), enough, certainty, refuted_by, text);
    const unsigned others = f->graph == OOM_GRAPH_NONE && f->growing_sites > 1 ? f->growing_sites - 1 : 0;
    const char *more = others ? TEXT(w, " and %u more line%s", others, others > 1 ? "s" : "") : "";
    oom_layout_decide(w->b, f, &drop, TEXT(w, "without %s%s", site_short_text(w->b, line), more), &m);
    oom_add_measure(w->b, w->v, m);
}

static const char *leak_share_text(struct oom_words *w, int64_t bytes)
{
    return TEXT(w, "%s of the %s live (%.0f %%)", SIZE(w, bytes), SIZE(w, w->f->live),
                100 * (double)bytes / (double)w->f->live);
}

/* The start of the advice: the statement that seems to keep the memory, or that none is known. */
static const char *holder_text(struct oom_words *w, const char *otherwise)
{
    const char *line = leak_line_of(w);
    const char *kept = site_kept_text(w->b->arena, line, w->v->holders, w->v->holders_n);
    if (!kept && w->f->growing_native) kept = site_native_keeper(w->b, &w->v->growing);
    return TEXT(w, "%s: %s", line, kept ?: otherwise);
}

static bool is_deep_copy(const struct run *run, uint32_t stack)
{
    return run_stack_is_in(run, stack, "/copy.py", "deepcopy");
}

/* What to store instead of tensors of that size. */
static const char *instead_text(const struct oom_words *w, int64_t bytes)
{
    const bool graph = w->f->graph == OOM_GRAPH_INFERRED;
    if (graph && w->v->holders_n == 1 && w->v->holders[0].into && !w->v->holders[0].carried &&
        site_holder_loss(w->b, w->f->growing_stack, w->v->holders) == SITE_LOSS_YES)
        return TEXT(w, "empty `%s` as soon as backward() has used its contents%s", w->v->holders[0].into,
                    site_file_has(w->b, w->v->holders[0].file, w->v->holders[0].line, "retain_graph=True")
                        ? ", and leave out `retain_graph=True`"
                        : "");
    if (w->v->holders_n && w->v->holders[0].instead) return w->v->holders[0].instead;
    if (w->v->holders_n && w->v->holders[0].carried)
        return "detach it before the next pass reads it (`.detach()`), every N steps if backward() needs N of them";
    if (w->f->layer != RUN_SERIES_TENSOR)
        return question_instead_of_blocks(w->b, w->f->growing_stack, w->v->holders_n > 0);
    if (w->f->growing_native && w->f->growing_sites > 1) /* gpuspy does not read libtorch's graphs */
        return "store `.detach().cpu()` instead (`torch.no_grad()` around the forward pass also avoids its graph, if "
               "no "
               "backward() follows)";
    if (!graph && is_deep_copy(w->b->run, w->f->growing_stack))
        return "keep fewer copies, or store them on the host (`.detach().cpu()` of each tensor of their state_dict())";
    if (!question_is_number(bytes) && !graph && w->v->holders_n && w->v->holders[0].keyed &&
        !strstr(w->v->holders[0].text, ".append("))
        return "remove each entry after its last use (`.pop(key)`), limit their number, or store `.detach().cpu()` "
               "instead";
    if (!question_is_number(bytes))
        return graph ? "store `.detach().cpu()` instead of the tensor (`.detach()` if the GPU needs it again)"
                     : "drop the reference after each step, or store `.detach().cpu()` instead";
    return graph ? "store " QUESTION_STORE_NUMBERS
                   ", or `.detach()` if backward() does not need it, instead of the tensor"
                 : "drop the reference after each step, or store " QUESTION_STORE_NUMBERS " instead";
}

/* x = x - net(x): the variable refers to the last value only, so a graph keeps the earlier ones. */
static bool carries_without_training(const struct oom_words *w)
{
    const struct result_oom_verdict *v = w->v;
    return v->holders_n && v->holders[0].carried && oom_is_in_pass(w->b->run, w->f->growing_stack) &&
           w->f->backward_ns == RUN_UNKNOWN && oom_never_trains(w->b, w->f->growing_stack);
}

/* Without graphs, the tensors that the program stores stay: the newest of each pass, unless it is only a number or the
 * next pass replaces it. */
static void measure_no_graph(struct oom_words *w)
{
    const facts *f = w->f;
    const bool carries = carries_without_training(w);
    const char *refuted_by = "if a backward pass was to follow it";
    if (!f->evaluates && !carries) return;
    const char *text = TEXT(w, "put `torch.no_grad()` around the forward passes at %s: no backward pass followed them",
                            pass_line_of(w));
    if (carries || !f->growth || f->replaced || question_is_number(f->growth->newest_bytes)) {
        measure_drop(w, &w->v->growing, -1, RESULT_CERTAINTY_INFERRED, refuted_by, text);
        return;
    }
    const uint64_t times = oom_rhythm(f).times, each = (f->growth->newest_count + times / 2) / times;
    uint32_t *stacks = arena_alloc(w->b->arena, f->growing_stacks_n * sizeof *stacks);
    struct oom_drop drop = {.stacks = stacks,
                            .before_ns = latest_began(w),
                            .thinned = f->growth->newest_stack,
                            .each = each > 1 ? each : 0};
    for (size_t i = 0; i < f->growing_stacks_n; i++)
        if (drop.each || f->growing_stacks[i] != f->growth->newest_stack)
            stacks[drop.stacks_n++] = f->growing_stacks[i];
    if (!drop.stacks_n) return;
    const int64_t stays = f->growth->newest_bytes * (int64_t)(times - 1), frees = earlier_steps(f);
    struct result_measure m =
        oom_line_measure(frees > stays ? frees - stays : 0, -1, RESULT_CERTAINTY_INFERRED, refuted_by, text);
    oom_layout_decide(w->b, f, &drop, TEXT(w, "without the graphs of %s", leak_line_of(w)), &m);
    oom_add_measure(w->b, w->v, m);
}

/* The graph of each pass is kept by its newest tensor. */
static void explain_graph(struct oom_words *w)
{
    const facts *f = w->f;
    w->v->growing = f->growth->newest;
    w->v->verdict =
        TEXT(w,
             "a leak: tensors created at %s keep the autograd graph of their forward pass, about %s: %s. "
             "Evidence: %s",
             site_text_with_caller(w->b, &f->growth->newest), rhythm_text(w), leak_share_text(w, f->growing),
             f->graph_freed ? "backward passes freed earlier blocks of these call paths"
                            : "the inputs of these passes are live, too");
    w->v->refuted_by = "if a later backward pass reads them";
    const bool number = question_is_number(f->growth->newest_bytes);
    const bool carried = w->v->holders_n && w->v->holders[0].carried,
               small = f->growth->newest_bytes < (int64_t)((double)f->growing / 2 / (double)oom_rhythm(f).times);
    const bool first = number || carried || small;
    if (first) measure_no_graph(w); /* without the graphs, the newest tensors stay */
    measure_drop(w, &w->v->growing, -1, RESULT_CERTAINTY_INFERRED, "if backward() still needs these tensors",
                 TEXT(w, "%s; %s", holder_text(w, "the line that keeps a result of this pass is unknown"),
                      instead_text(w, f->growth->newest_bytes)));
    if (!first) measure_no_graph(w);
}

/* backward(create_graph=True): a cycle of C++ references, which Python's garbage collector does not see. */
static void explain_create_graph(struct oom_words *w)
{
    const struct oom_facts *f = w->f;
    w->v->blame = w->v->growing = site_trace(w->b, f->growth->creates).site;
    w->v->blame_role = "growing";
    w->v->verdict = TEXT(w,
                         "a leak: backward(create_graph=True) at %s gives each leaf a gradient whose graph refers to "
                         "that leaf, so both keep the graph of every pass, about %s: %s",
                         leak_line_of(w), rhythm_text(w), leak_share_text(w, f->growing));
    w->v->refuted_by = "if the program sets .grad to None after each pass";
    measure_drop(w, &w->v->growing, -1, RESULT_CERTAINTY_INFERRED, "if something else also keeps the graph",
                 TEXT(w, "%s: %s", leak_line_of(w), QUESTION_CREATE_GRAPH_ADVICE));
}

/* The outputs of several modules stay live, and nothing shows that a graph keeps them. */
static void explain_outputs(struct oom_words *w)
{
    const facts *f = w->f;
    w->v->verdict =
        TEXT(w,
             "a leak: memory of %u line%s inside modules, most at %s, grows by about %s: %s. gpuspy does not know "
             "whether an autograd graph keeps it: no backward pass freed any of it",
             f->growing_sites, f->growing_sites == 1 ? "" : "s", oom_place_text(w, f->growing_stack), rhythm_text(w),
             leak_share_text(w, f->growing));
    if (f->evaluates)
        add_leak_measure(w, RUN_UNKNOWN, -1, RESULT_CERTAINTY_INFERRED, "if a backward pass was to follow it",
                         TEXT(w,
                              "put `torch.no_grad()` around the forward passes at %s: no backward pass followed them",
                              pass_line_of(w)));
    measure_drop(w, &w->v->growing, -1, RESULT_CERTAINTY_INFERRED, "if the program needs all of it on the GPU at once",
                 TEXT(w, "%s; %s", holder_text(w, "the line that keeps the modules' results is unknown"),
                      w->v->holders_n && (w->v->holders[0].instead || w->v->holders[0].carried)
                          ? instead_text(w, f->growing)
                          : "drop the reference after each step, or store a copy on the host (`.detach().cpu()`)"));
    if (!f->evaluates && f->backward_ns == RUN_UNKNOWN) {
        add_leak_measure(
            w, RUN_UNKNOWN, -1, RESULT_CERTAINTY_GUESSED, NULL,
            TEXT(w, "if no backward() follows: put `torch.no_grad()` around the forward passes (called at %s)",
                 pass_line_of(w)));
    }
}

/* A buffer that concatenation reallocates, larger each time. */
static void explain_replaced(struct oom_words *w)
{
    const facts *f = w->f;
    const struct result_holder *h = w->v->holders_n ? &w->v->holders[0] : NULL;
    const bool bounded = (h && h->into && site_file_bounds(w->b, h->file, h->line, h->into)) ||
                         site_statement_bounds(w->b, f->growing_stack);
    w->v->verdict = TEXT(w, "a buffer that grows%s: %s reallocates it, larger each time, and holds %s in %s",
                         bounded ? "" : " without bound", oom_place_text(w, f->growing_stack),
                         leak_share_text(w, f->growing_heaviest), UNITS_PLURAL(f->growing_count, "block", NULL));
    if (f->widened != RUN_NONE) { /* each step computes with all of them */
        add_leak_measure(
            w, f->growing / 2, -1, RESULT_CERTAINTY_INFERRED, "if the model needs more of them",
            TEXT(w, "%s: bound the number of parameters (remove some, add none above a maximum), for example to half",
                 leak_line_of(w)));
        return;
    }
    const bool in_pass = oom_is_in_pass(w->b->run, f->growing_stack);
    const bool read = in_pass || (w->v->holders_n && site_is_read_beside(w->b, &w->v->holders[0]));
    if (!read) { /* results that a loop collects */
        measure_drop(w, &w->v->growing, -1, RESULT_CERTAINTY_INFERRED, "if a later step reads it on the GPU",
                     TEXT(w, "%s; store each part on the host (`.detach().cpu()`) and concatenate them there",
                          holder_text(w, "the line that keeps it is unknown")));
    }
    add_leak_measure(w, f->growing / 2, -1, RESULT_CERTAINTY_INFERRED, "if it is not cut to half its length",
                     TEXT(w, "%s %s, for example to half%s",
                          read && h ? TEXT(w, "%s;", holder_text(w, "")) : TEXT(w, "%s:", leak_line_of(w)),
                          bounded ? "bound it to less" : "bound its length (a window, a maximum)",
                          read && !bounded ? ", or empty it before each new sequence" : ""));
}

/* A cache has a line for its keys and one for its values, which may not both be known to grow. */
static int64_t bytes_of_holder(struct oom_words *w, const struct oom_holder *holder)
{
    int64_t cache = 0;
    EACH_IN (l, w->v->by_category.lines)
        if (l->category == RESULT_CATEGORY_KV_CACHE && oom_holder_of(w->b->run, l->stack) == holder)
            cache = arena_add_capped(cache, l->bytes);
    return cache > w->f->growing ? cache : w->f->growing;
}

static void explain_holder(struct oom_words *w, const struct oom_holder *holder)
{
    const facts *f = w->f;
    const int64_t held = bytes_of_holder(w, holder);
    w->v->verdict =
        TEXT(w, "%s, at %s: %s", holder->what, oom_place_text(w, f->growing_stack), leak_share_text(w, held));
    w->v->refuted_by = "if the program needs all of it at once";
    if (holder->share >= 1) {
        measure_drop(w, &w->v->growing, OOM_MEASURE_AT_MOST, RESULT_CERTAINTY_INFERRED,
                     "if something else also keeps it", holder->advice);
    } else {
        add_leak_measure(w, (int64_t)(holder->share * (double)held), OOM_MEASURE_AT_MOST, RESULT_CERTAINTY_INFERRED,
                         "if something else also keeps it", holder->advice);
    }
}

/* Objects that refer to each other are freed only by the collector. Whether these objects do is not recorded. */
static void explain_collector(struct oom_words *w)
{
    if (w->b->report->processes[w->v->process].collector_off) {
        measure_drop(w, &w->v->growing, OOM_MEASURE_AT_MOST, RESULT_CERTAINTY_GUESSED, NULL,
                     "call `gc.collect()` after each step: Python's garbage collector was off (recorded), so reference "
                     "cycles were never freed; `gc.enable()` by itself may collect too late");
    }
}

/* A program without tensors must free its allocations itself. */
static void explain_buffers(struct oom_words *w)
{
    const facts *f = w->f;
    w->v->verdict = TEXT(w, "a leak: CUDA allocations at %s are never freed, %s: %s",
                         oom_place_text(w, f->growing_stack), rhythm_text(w), leak_share_text(w, f->growing_heaviest));
    measure_drop(w, &w->v->growing, -1, RESULT_CERTAINTY_INFERRED, "if the program needs all of it on the GPU at once",
                 TEXT(w, "%s: %s", leak_line_of(w), site_native_growth_advice(w->b, &w->v->growing)));
}

/* Allocations of many sizes that do not occur in every step, or only if a key is missing, and which no list keeps. */
static bool is_memoised(const facts *f, const struct result_oom_verdict *v)
{
    static const double most = 0.9;
    const struct result_growth *g = f->growth;
    const bool seldom = g && !g->jumps && g->by_steps && (double)f->growing_count < most * (double)g->steps;
    return f->growing_varies && (v->holders_n ? v->holders[0].cached || (v->holders[0].keyed && seldom) : seldom);
}

static int64_t live_at_site(struct oom_words *w, const struct result_site *site)
{
    EACH_IN (l, w->v->live_lines)
        if (site_key(&l->site) == site_key(site)) return l->bytes;
    return 0;
}

/* Of a graph without modules, the heaviest line may make an input, which only the line of another tensor keeps. */
static void find_leak_holders(struct oom_words *w)
{
    enum { MOST = 16 };
    const facts *f = w->f;
    const bool graph = f->graph == OOM_GRAPH_INFERRED;
    w->v->growing = site_trace(w->b, f->growing_stack).site;
    w->v->holders_n = site_find_holders(w->b, f->growing_stack, graph, &w->v->holders);
    for (size_t i = 0; i < f->growing_stacks_n && i < MOST && !w->v->holders_n && !graph; i++) {
        const struct result_site site = site_trace(w->b, f->growing_stacks[i]).site;
        if (live_at_site(w, &site) < f->growing_heaviest / 2) continue;
        w->v->holders_n = site_find_holders(w->b, f->growing_stacks[i], false, &w->v->holders);
        if (w->v->holders_n) w->v->growing = w->v->blame = site;
    }
    /* self.center = 0.9 * self.center + x; total += penalty, whose graph a line outside of all modules made; x = x -
     * net(x) where no backward pass follows */
    const bool passes = f->backward_ns != RUN_UNKNOWN || oom_is_in_pass(w->b->run, f->growing_stack);
    if (!w->v->holders_n && (f->graph == OOM_GRAPH_UNKNOWN || (f->graph == OOM_GRAPH_NONE && passes &&
                                                               !site_is_without_gradients(w->b, f->growing_stack))))
        w->v->holders_n = site_find_holders(w->b, f->growing_stack, true, &w->v->holders);
    if (!w->v->holders_n && f->layer == RUN_SERIES_DEVICE)
        w->v->holders_n = site_find_kept_errors(w->b, f->growing_stack, &w->v->holders);
    struct result_holder *carried; /* out, past = net(x, past), whose layers extend what they are given */
    const size_t n = f->replaced ? site_find_holders(w->b, f->growing_stack, true, &carried) : 0;
    if (!n || !carried[0].carried) return;
    w->v->holders = carried;
    w->v->holders_n = n;
    for (size_t i = 0; i < n; i++) carried[i].why = "each pass reads what the pass before it returned";
}

/* The memory of a graph's pool serves no other request. */
static bool measure_captured(struct oom_words *w, const char *keeper)
{
    if (!site_is_captured(w->b, w->f->growing_stack)) return false;
    add_leak_measure(w, earlier_steps(w->f), OOM_MEASURE_AT_MOST, RESULT_CERTAINTY_GUESSED, NULL,
                     TEXT(w,
                          "%s capture CUDA graphs of a few sizes only, pad the inputs to them, and pass all graphs the "
                          "same pool (`torch.cuda.graph(g, pool=…)`)",
                          keeper));
    return true;
}

static void explain_memoised(struct oom_words *w)
{
    const facts *f = w->f;
    w->v->verdict = TEXT(w,
                         "a leak: tensors of different sizes created at %s stay referenced, and %s, as in a cache by "
                         "length or shape (lru_cache, a dict): %s in %llu blocks",
                         oom_place_text(w, f->growing_stack),
                         w->v->holders_n && w->v->holders[0].cached ? "one is created for each new key"
                                                                    : "not every step creates one",
                         leak_share_text(w, f->growing_heaviest), (unsigned long long)f->growing_count);
    const char *keeper = w->v->holders_n ? TEXT(w, "%s;", holder_text(w, "")) : TEXT(w, "%s:", leak_line_of(w));
    if (measure_captured(w, keeper)) return;
    measure_drop(
        w, &w->v->growing, OOM_MEASURE_AT_MOST, RESULT_CERTAINTY_GUESSED, NULL,
        TEXT(w, "%s bound the cache (`lru_cache(maxsize=N)`), or make one tensor of the largest size and slice it",
             keeper));
}

void oom_explain_driving(struct oom_words *w)
{
    const facts *f = w->f;
    find_leak_holders(w);
    w->v->verdict = TEXT(w,
                         "a buffer that grows without bound: %s appends to it. It now holds %s, and blocks that grew "
                         "with it hold %s of the %s live",
                         oom_place_text(w, f->growing_stack), SIZE(w, f->growing_heaviest / (int64_t)f->growing_count),
                         SIZE(w, f->driven), SIZE(w, f->live));
    add_leak_measure(
        w, (f->growing + f->driven) / 2, -1, RESULT_CERTAINTY_INFERRED, "if those blocks are not proportional to it",
        TEXT(w, "%s: bound its length (a window, a queue of fixed size), for example to half", leak_line_of(w)));
}

void oom_explain_leak(struct oom_words *w)
{
    const struct oom_holder *holder = oom_holder_of(w->b->run, w->f->growing_stack);
    const facts *f = w->f;
    find_leak_holders(w);
    if (holder && holder->share < 1 && !f->growing_larger && w->v->holders_n) /* whole caches are kept */
        holder = NULL;
    if (holder && w->v->holders_n && oom_is_gathered_inside(w->b->run, f->growing_stack, w->v->holders)) holder = NULL;
    if (holder && w->v->holders_n && oom_is_own_optimizer(w->b->run, f->growing_stack)) holder = NULL;
    if (f->turnover < hardly_freed) {
        w->v->certainty = RESULT_CERTAINTY_GUESSED;
        w->v->refuted_by = "if the program needs all of it at once: hardly any memory was freed before";
    }
    if (holder) {
        explain_holder(w, holder);
        explain_collector(w);
        return;
    }
    if (f->growth && f->growth->creates != RUN_NONE && !w->v->holders_n) {
        explain_create_graph(w);
        return;
    }
    if (f->graph == OOM_GRAPH_INFERRED) {
        explain_graph(w);
        explain_collector(w);
        return;
    }
    explain_collector(w);
    if (f->replaced) {
        explain_replaced(w);
        return;
    }
    if (f->graph == OOM_GRAPH_UNKNOWN) {
        explain_outputs(w);
        return;
    }
    if (f->layer != RUN_SERIES_TENSOR && w->v->growing.kind == GS_FRAME_NATIVE) {
        explain_buffers(w);
        return;
    }
    if (is_memoised(f, w->v)) {
        explain_memoised(w);
        return;
    }
    const bool tensors = f->layer == RUN_SERIES_TENSOR;
    const struct result_site heaviest = site_of_call(w->b, f->growing_stack);
    const bool moved = site_key(&heaviest) != site_key(&w->v->growing); /* the advice is about another of the lines */
    const unsigned more = f->growing_sites > 1 ? f->growing_sites - 1 - moved : 0;
    const char *also = more ? TEXT(w, "%s%u more line%s", moved ? " and " : "", more, more > 1 ? "s" : "") : "";
    const char *others = f->growing_sites > 1 ? TEXT(w, "; together with %s%s: %s", moved ? leak_line_of(w) : "", also,
                                                     SIZE(w, f->growing))
                                              : "";
    w->v->verdict = TEXT(w, "a leak: %s at %s stay %s, %s: %s%s", tensors ? "tensors created" : "CUDA allocations",
                         oom_place_text(w, f->growing_stack), tensors ? "referenced" : "live", rhythm_text(w),
                         leak_share_text(w, f->growing_heaviest), others);
    const int64_t each = f->growing_heaviest / (int64_t)(f->growing_count ? f->growing_count : 1);
    const char *unknown = f->growing_native && site_runs_python(w->b->run, w->v->process)
                              ? "the line that keeps them is unknown without Python's frames (leave out "
                                "`GPUSPY_STACKS=native`)"
                              : "the line that keeps them is unknown";
    if (measure_captured(w, TEXT(w, "%s;", holder_text(w, unknown)))) return;
    measure_no_graph(w);
    measure_drop(w, &w->v->growing, -1, RESULT_CERTAINTY_INFERRED, "if the program needs all of it on the GPU at once",
                 TEXT(w, "%s; %s", holder_text(w, unknown), instead_text(w, each)));
}

/* Beside a step that does not fit, memory that grew over the steps: without it, the request would have fit. */
void oom_advise_growth(struct oom_words *w)
{
    enum { PART = 8 };
    const facts *f = w->f;
    const struct result_growth *g = f->growth;
    if (!g || !g->by_steps || g->jumps || f->of_step || f->replaced || f->growing_in_pass > f->growing / 2 ||
        f->growing < oom_needed_bytes(f) || f->growing < f->live / PART)
        return;
    struct result_holder *holders;
    const size_t n = site_find_holders(w->b, f->growing_stack, false, &holders);
    oom_add_measure(w->b, w->v,
                    (struct result_measure){.text = TEXT(w, "%s grows, %s%s%s: bound it, if no step needs all of it",
                                                         site_short_text(w->b, &g->lines[0].site), rhythm_text(w),
                                                         n ? ", kept by " : "",
                                                         n ? site_holders_text(w->b->arena, holders, n) : ""),
                                            .frees_bytes = earlier_steps(f),
                                            .enough = OOM_MEASURE_AT_MOST,
                                            .effort = OOM_EFFORT_LINE,
                                            .certainty = RESULT_CERTAINTY_GUESSED});
}

static const char *window_advice(struct oom_words *w, const struct site_window *window, const char *most)
{
    return TEXT(w, "run backward() and %s, which empties `%s`, after %s passes (a smaller window)",
                site_short_text(w->b, &window->empty), window->into, most);
}

/* Most of the live memory is blocks that wait in a container which the program empties: after a backward pass, or,
 * without training, at some time. */
void oom_advise_kept(struct oom_words *w)
{
    enum { BLOCKS = 16 };
    const facts *f = w->f;
    const struct result_by_site *most = w->v->live_n ? &w->v->live[0] : NULL;
    struct result_holder *holders;
    if (f->layer != RUN_SERIES_TENSOR || !most || most->count < BLOCKS || most->bytes < f->live / 2) return;
    struct site_window window;
    if (site_find_window(w->b, f->holder_stack, &window)) {
        oom_add_measure(
            w->b, w->v,
            oom_line_measure(most->bytes / 2, OOM_MEASURE_AT_MOST, RESULT_CERTAINTY_GUESSED, NULL,
                             TEXT(w, "%s: %s are live, because passes wait in `%s`; %s",
                                  site_short_text(w->b, &most->site), UNITS_PLURAL(most->count, "block", NULL),
                                  window.into, window_advice(w, &window, "fewer"))));
        return;
    }
    if (f->backward_ns != RUN_UNKNOWN) return;
    const size_t n = site_find_holders(w->b, f->holder_stack, false, &holders);
    if (!n || !holders[0].weak) return;
    const char *line = site_short_text(w->b, &most->site);
    oom_add_measure(w->b, w->v,
                    oom_line_measure(f->holder, OOM_MEASURE_AT_MOST, RESULT_CERTAINTY_GUESSED, NULL,
                                     TEXT(w, "%s: %s are live, %s; %s", line, UNITS_PLURAL(most->count, "block", NULL),
                                          site_kept_text(w->b->arena, line, holders, n),
                                          holders[0].instead
                                              ?: "let fewer wait there at once, or store `.detach().cpu()` instead")));
}

/* The heaviest line may compute each pass's loss from the state that another line takes over. */
static size_t find_carried(struct oom_words *w, struct result_holder **carried)
{
    enum { MOST = 16 };
    const facts *f = w->f;
    size_t n = site_find_carried(w->b, f->growing_stack, carried);
    for (size_t i = 0; i < f->growing_stacks_n && i < MOST && !n; i++)
        n = site_find_carried(w->b, f->growing_stacks[i], carried);
    return n;
}

/* Half as many passes wait. */
static void measure_window(struct oom_words *w, uint64_t passes)
{
    const facts *f = w->f;
    const struct oom_drop drop = {
        .stacks = f->growing_stacks, .stacks_n = f->growing_stacks_n, .before_ns = f->growing_middle_ns};
    struct result_measure m =
        oom_line_measure(f->growing / 2, -1, RESULT_CERTAINTY_INFERRED, "if the loss needs all of these passes",
                         window_advice(w, f->window, TEXT(w, "at most %s", UNITS_COUNT(passes / 2 ?: 1))));
    oom_layout_decide(w->b, f, &drop, "with half as many passes", &m);
    oom_add_measure(w->b, w->v, m);
}

/* Forward passes that wait for a backward pass: the program needs them, so they are not a leak. */
void oom_explain_pending(struct oom_words *w)
{
    const facts *f = w->f;
    struct oom_rhythm r = oom_rhythm(f);
    const char *line = site_short_text(w->b, &f->growth->newest);
    w->v->verdict =
        f->window
            ? TEXT(w, "%s forward passes, %s each, wait in `%s` for one backward(), %s which %s empties it: %s",
                   UNITS_COUNT(r.times), SIZE(w, r.each), f->window->into, f->window->before ? "before" : "after",
                   site_short_text(w->b, &f->window->empty), leak_share_text(w, f->growing))
            : TEXT(w, "%s forward passes are live at once, %s each, and no backward() has run%s: %s",
                   UNITS_COUNT(r.times), SIZE(w, r.each),
                   f->backward_ns == RUN_UNKNOWN ? "" : " since the first of them", leak_share_text(w, f->growing));
    w->v->refuted_by = "if no backward() follows";
    struct result_holder *carried;
    const bool grads = f->grad_ns != RUN_UNKNOWN && f->grad_ns > f->growing_middle_ns; /* steps of meta-learning */
    const size_t n = grads ? 0 : find_carried(w, &carried);
    if (n) { /* backward() after each pass would fail: the passes are one graph */
        measure_drop(
            w, &f->growth->newest, OOM_MEASURE_AT_MOST, RESULT_CERTAINTY_INFERRED,
            "if the gradient must reach all earlier passes",
            TEXT(w, "%s: call backward() every N passes, then detach (`.detach()`) what the next pass reads, in %s",
                 line, site_holders_text(w->b->arena, carried, n)));
        return;
    }
    if (f->window) measure_window(w, r.times);
    const bool adds = grads || !site_concatenates_results(w->b, f->growing_stack),
               returns = f->window && !question_is_number(f->growth->newest_bytes); /* whose loss may come later */
    measure_drop(
        w, &f->growth->newest, OOM_MEASURE_AT_MOST,
        adds && !returns ? RESULT_CERTAINTY_INFERRED : RESULT_CERTAINTY_GUESSED,
        "if the passes are not added up in one loss",
        TEXT(w, "%s: %s%s", line, adds && returns ? "if each pass has a loss of its own, " : "",
             grads ? "call `(loss / N).backward()` after each task, take fewer steps in each, or leave out "
                     "`create_graph=True` (first-order gradients)"
             : adds
                 ? "call `(loss / N).backward()` after each forward pass: it adds up the same gradients and frees the "
                   "pass's activations"
                 : "if the loss sums the passes, call backward() after each; if it compares their results "
                   "(contrastive), compute those without a graph, then repeat each pass with "
                   "`result.backward(gradient)`"));
    const uint32_t pass = site_pass_caller(w->b->run, f->growing_stack);
    if (f->window || f->graph_freed || (pass != RUN_NONE && site_function_has(w->b, pass, ".backward(")))
        return; /* a backward pass followed earlier passes of these lines, or will follow */
    measure_drop(w, &f->growth->newest, OOM_MEASURE_AT_MOST, RESULT_CERTAINTY_GUESSED, NULL,
                 TEXT(w,
                      "if no backward() follows: put `torch.no_grad()` around the forward passes (called at %s), or "
                      "store " QUESTION_STORE_NUMBERS,
                      oom_pass_text(w, f->growing_stack) ?: line));
}
