/* Which part of the live bytes at a failure had grown over the run, the ends of the graphs in it, and how much other
 * memory the program had needed before. */
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/oom/oom.h"
#include "analyzer/oom/oom_layout.h"
#include "analyzer/site/holder.h"
#include "analyzer/site/holder_read.h"
#include "analyzer/site/source_context.h"
#include "analyzer/step/step.h"
#include "analyzer/base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A loop inside of a pass, such as over layers, makes no steps. */
static const struct step_list *oom_steps_of(const struct site_builder *b, const struct oom_facts *f)
{
    const struct step_list *steps = step_list_of(b, f->row->process);
    return steps && steps->source == STEP_SOURCE_PERIOD && oom_is_in_pass(b->run, steps->stack) ? NULL : steps;
}

enum { LAYERS = 64 }; /* a smaller count may be the layers of a model */

/* The loop around it went on after the first quarter of its live blocks: in allocations, because on a busy machine the
 * last iteration can take longer than all others. */
static bool has_turned_meanwhile(const struct oom_live *l)
{
    return l->turned_rank > l->first_rank + (1 - l->first_rank) / 4;
}

/* One forward or backward pass that does not fit looks like a leak: layer after layer keeps its part, and nothing is
 * freed. Memory that grows inside a pass counts if it grew over several of the program's steps, or if the loop around
 * it iterated meanwhile: a line outside of all passes, such as the one that makes the batch, has occurred again. If
 * only passes allocate, most of their allocations must have been freed, and none of their lines may have occurred only
 * once since. */
static bool one_pass(struct site_builder *b, const struct oom_live *l, const struct oom_facts *f)
{
    static const double ended = 0.5;
    enum { STEPS = 3 };
    const uint32_t stack = run_location(b->run, l->location)->stack;
    if (!oom_is_in_pass(b->run, stack)) return false;
    if (l->count >= 2 * LAYERS && site_is_without_gradients(b, stack)) return false; /* no pass needs them */
    const struct step_list *steps = oom_steps_of(b, f);
    bool sure = steps && (steps->source != STEP_SOURCE_PERIOD || steps->n >= LAYERS);
    if (sure && step_count_done(steps, l->last_ns) >= step_count_done(steps, l->first_ns) + STEPS) return false;
    if (l->count < LAYERS && run_stack_is_in(b->run, stack, "/torch/utils/checkpoint.py", NULL))
        return true; /* a pass frees what is within its checkpoints, and keeps their inputs */
    if (has_turned_meanwhile(l)) return false;
    return steps || f->turnover < ended || f->once_ns > f->turned_ns;
}

/* The same for operations between layers that a script calls one by one. */
static bool one_script_pass(const struct site_builder *b, const struct oom_live *l, bool sure)
{
    uint32_t stack = run_location(b->run, l->location)->stack;
    bool script = run_stack_python(b->run, stack) != RUN_NONE && !oom_is_in_pass(b->run, stack);
    return script && !sure && l->count < LAYERS && !has_turned_meanwhile(l);
}

/* Of each step since the first that made one, a block remains; data was copied meanwhile, so the steps are not layers.
 * */
static bool remain_of_steps(const struct site_builder *b, const struct oom_live *l, const struct oom_facts *f)
{
    enum { STEPS = 3 }; /* the graph of the last pass stays during the next; the step that fails may count as two */
    const struct step_list *steps = oom_steps_of(b, f);
    size_t spans = steps ? step_count_done(steps, l->last_ns) - step_count_done(steps, l->first_ns) : 0;
    return spans >= STEPS && l->count >= spans && f->entered_ns > l->first_ns;
}

/* If layers share the call path and no line shows a step: passes freed nearly everything that they made, and a few
 * blocks remain, old and new ones. */
static bool remain_among_freed(const struct oom_live *l, const struct oom_facts *f)
{
    enum { LEAST = 4, FREED = 5 };
    static const double turnover = 0.9, early = 0.5, late = 0.75;
    return f->turnover >= turnover && l->count >= LEAST && l->times >= l->count * (FREED + 1) &&
           l->first_rank <= early && l->last_rank >= late;
}

/* No block as large as those that are live was freed, as far as the mean of the others shows: inner layers share the
 * call path of the last one. */
static bool is_none_freed(const struct oom_live *l)
{
    const int64_t others = (int64_t)(l->times - l->count);
    return others == 0 || (l->made >= l->bytes && (l->made - l->bytes) / others < l->least / 2);
}

/* Training has ended or pauses: since its last backward pass a loop has begun whose passes never occurred before, and
 * all that they made is live. Training accumulates gradients likewise, but not only after its first steps. */
static bool remain_since_training(const struct site_builder *b, const struct oom_live *l, const struct oom_facts *f)
{
    enum { LEAST = 4, STEPS = 3 };
    const struct step_list *steps = step_list_of(b, f->row->process);
    return f->backward_ns < l->first_ns && l->count >= LEAST && is_none_freed(l) && has_turned_meanwhile(l) && steps &&
           steps->source != STEP_SOURCE_PERIOD && step_count_done(steps, l->first_ns) >= STEPS;
}

/* Batches, or what the program computes from a pass's output: with each pass that needs no gradients one more is live.
 * A data set that was copied in advance came before the passes. */
static bool remain_of_passes(struct site_builder *b, const struct oom_live *l)
{
    enum { LEAST = 16, PARTS = 8 }; /* of a batch, each a block */
    return l->count >= LEAST && l->times < 2 * l->count && l->passes >= (double)l->count / PARTS &&
           site_is_without_gradients(b, run_location(b->run, l->location)->stack);
}

/* Most of its blocks are neither as old as the oldest nor as new as the newest. */
static bool is_spread(const struct oom_live *l)
{
    const double margin = (l->last_rank - l->first_rank) / 8;
    return l->mean_rank >= l->first_rank + margin && l->mean_rank <= l->last_rank - margin;
}

/* Outputs of forward passes that the program keeps, and that no backward pass needs. growth.c finds outputs of many
 * passes, this function outputs of few. */
static bool is_kept(struct site_builder *b, const struct oom_live *l, const struct oom_facts *f)
{
    const uint32_t stack = run_location(b->run, l->location)->stack;
    if (f->layer != RUN_SERIES_TENSOR || !is_spread(l)) return false;
    if (!oom_is_in_pass(b->run, stack)) return remain_of_passes(b, l);
    if (f->backward_ns != RUN_UNKNOWN) return remain_since_training(b, l, f);
    return (remain_of_steps(b, l, f) || remain_among_freed(l, f)) && !site_is_before_backward(b, stack);
}

/* Reallocated by concatenation many times, as the keys and values of a few layers are. */
static bool is_appended(const struct site_builder *b, const struct oom_live *l)
{
    enum { AGAIN = 8 };
    return l->times >= l->count * AGAIN &&
           run_stack_calls(b->run, run_location(b->run, l->location)->stack, "_ops::cat");
}

static bool is_about(double bytes, double expected)
{
    return fabs(bytes - expected) <= 0.01 * expected;
}

/* The failed request continues a series of concatenations: each block of the call path was larger than the one before
 * by as many bytes as another live block has, the new part, and only the last one is live. Three are enough, because
 * four sizes then agree. In a pass, layers may do that (DenseNet). */
static bool continues_series(const struct site_builder *b, const struct oom_live *l, const struct oom_live *live,
                             size_t n, const struct oom_facts *f)
{
    enum { LEAST = 3 };
    const uint32_t stack = run_location(b->run, l->location)->stack;
    const double by = (double)(f->requested - l->bytes), times = (double)l->times;
    bool has_part = false;
    if (l->count != 1 || l->times < LEAST || by <= 0 ||
        run_stack_python(b->run, stack) != run_stack_python(b->run, f->stack) ||
        !is_about((double)l->made, times * (double)l->bytes - by * times * (times - 1) / 2))
        return false;
    for (size_t i = 0; i < n && !has_part; i++) has_part = is_about((double)live[i].bytes / (double)live[i].count, by);
    return has_part && !oom_is_in_pass(b->run, stack) && run_stack_calls(b->run, stack, "_ops::cat");
}

/* Parameters that concatenation has replaced many times by larger ones, as Gaussian splatting does: gradients,
 * optimizer states and activations grow with them. */
static bool is_widened(struct site_builder *b, const struct oom_live *l, const struct oom_facts *f)
{
    enum { TIMES = 8, SMALL = 64, GROUPS = 16 }; /* groups of parameters, which a loop replaces one by one */
    static const double larger = 1.5;
    const uint32_t stack = run_location(b->run, l->location)->stack;
    if (!l->made || l->times < TIMES * (l->count > 2 ? l->count : 1) || l->count > GROUPS ||
        l->bytes < f->live / SMALL || oom_is_in_pass(b->run, stack) ||
        (double)l->bytes / (double)l->count < larger * (double)l->made / (double)l->times ||
        !run_stack_calls(b->run, stack, "_ops::cat"))
        return false;
    return site_function_has(b, stack, "Parameter(");
}

/* A statement puts each of its blocks into a queue, from which another thread takes them: no layers of one pass. */
static bool is_queued(const struct site_builder *b, uint32_t stack)
{
    const uint32_t line = run_stack_python(b->run, stack);
    EACH_IN (g, b->report->growth)
        if (g->holders_n && run_stack_python(b->run, g->stack.number) == line && strstr(g->holders[0].text, ".put("))
            return true;
    return false;
}

/* growth.c compares the whole run with a line, so it misses growth that begins late in a long run, or again after each
 * garbage collection: most blocks of the call path were freed, but of each of the last steps one remains, up to the
 * step that failed. A collection may leave a few old ones: then the steps since the middle count. */
static bool remain_of_last_steps(const struct site_builder *b, const struct oom_live *l, const struct oom_facts *f,
                                 const struct step_list *steps)
{
    enum { STEPS = 16 };
    const size_t first = step_count_done(steps, l->first_ns), middle = step_count_done(steps, l->middle_ns),
                 last = step_count_done(steps, l->last_ns);
    const bool all = last >= first + STEPS && l->count >= last - first && is_spread(l),
               most = last >= middle + STEPS && l->late >= last - middle && l->late >= l->count / 2;
    return (all || most) && l->times >= l->count + l->count / 4 && l->bytes >= f->live / 2 &&
           step_count_done(steps, f->row->time_ns) <= last + 1 && f->layer == RUN_SERIES_TENSOR &&
           !run_stack_calls(b->run, run_location(b->run, l->location)->stack, "_ops::cat");
}

/* What a statement makes of a model, or all at once: parameters, memory that nothing has been written to, such as
 * torch.empty(n), and a comprehension. */
static const char *const loaded[] = {"Parameter(", "requires_grad=True", "empty(", " for "};
enum { LOADED = COUNT_OF(loaded) };

static bool stores_loaded(struct site_builder *b, const struct result_holder *h)
{
    return ANY_OF(l, loaded, LOADED, site_line_has(b, h->file, h->line, *l));
}

static bool makes_loaded(struct site_builder *b, uint32_t stack)
{
    return ANY_OF(l, loaded, LOADED, site_statement_has(b, stack, *l));
}

static bool is_in_constructor(const struct run *run, uint32_t stack)
{
    return RUN_ANY_FRAME(frame, run, stack, frame->kind == GS_FRAME_PYTHON && site_is_constructor(frame->function));
}

/* Did the last block come about as soon before the failure as each came before the next? */
static bool comes_until_end(const struct site_builder *b, const struct oom_live *l, const struct oom_facts *f)
{
    enum { PAUSES = 4 };
    const struct step_list *steps = oom_steps_of(b, f);
    const int64_t intervals = (int64_t)l->count - 1;
    if (run_stack_python(b->run, run_location(b->run, l->location)->stack) == run_stack_python(b->run, f->stack))
        return true;
    if (!steps) return f->row->time_ns - l->last_ns <= PAUSES * (l->last_ns - l->first_ns) / intervals;
    const size_t first = step_count_done(steps, l->first_ns), last = step_count_done(steps, l->last_ns);
    return step_count_done(steps, f->row->time_ns) - last <= 1 + PAUSES * (last - first) / (size_t)intervals;
}

/* A server, or a loop that prepares data: nothing is trained, and a statement stores each block in an object that the
 * program never empties. growth.c misses growth that began late or came in bursts, and without an optimizer's steps
 * only that statement shows that the blocks are of different requests. */
static bool remain_of_requests(struct site_builder *b, const struct oom_live *l, const struct oom_facts *f)
{
    enum { LEAST = 16 };
    const uint32_t stack = run_location(b->run, l->location)->stack;
    struct result_holder *holders;
    if (f->layer != RUN_SERIES_TENSOR || f->backward_ns != RUN_UNKNOWN || f->grad_ns != RUN_UNKNOWN ||
        l->count < LEAST || l->bytes < f->live / 2 || !comes_until_end(b, l, f) || makes_loaded(b, stack) ||
        is_in_constructor(b->run, stack))
        return false;
    return site_find_holders(b, stack, false, &holders) && !holders[0].weak && !stores_loaded(b, &holders[0]);
}

/* A few blocks are not a rhythm if the program's steps are not known for certain; fewer than growth.c requires are a
 * buffer that is appended to, whose earlier versions are freed. */
static bool does_growth_count(struct site_builder *b, const struct oom_live *l, bool continued,
                              const struct oom_facts *f)
{
    enum { TIMES = 8, APPENDED = 4 };
    const struct step_list *steps = step_list_of(b, f->row->process);
    bool sure = steps && steps->source != STEP_SOURCE_PERIOD;
    if (continued || (sure && remain_of_last_steps(b, l, f, steps))) return true;
    if ((l->location >= b->growing_n || !b->growing[l->location]) && !remain_of_requests(b, l, f)) return false;
    return is_appended(b, l) ||
           ((sure || l->count >= TIMES || l->count < APPENDED) && !one_pass(b, l, f) &&
            (!one_script_pass(b, l, sure) || is_queued(b, run_location(b->run, l->location)->stack)));
}

/* The largest entry of the growth list. */
static const struct result_growth *foremost_growth(const struct site_builder *b, const struct oom_facts *f)
{
    EACH_IN (g, b->report->growth) { /* largest first */
        if (g->process != f->row->process || g->layer != f->layer ||
            (g->device != f->row->device && f->layer != RUN_SERIES_PINNED))
            continue;
        struct result_growth *kept = arena_alloc(b->arena, sizeof *kept); /* the list may lose entries */
        *kept = *g;
        return kept;
    }
    return NULL;
}

/* Does a known statement store blocks that the program made on the GPU, one by one, the largest or half as much?
 * [f(x) for x in y] makes all that it needs, and so does the construction of an object. */
static bool is_stored_each_time(struct site_builder *b, const struct oom_facts *f)
{
    struct run *run = b->run;
    bool stored = false;
    EACH (g, b->report->growth, f->growth ? b->report->growth_n : 0) {
        const bool counts = g->process == f->growth->process && g->layer == f->layer &&
                            g->device == f->growth->device && g->bytes >= f->growth->bytes / 2;
        stored = stored || (counts && g->holders_n && !stores_loaded(b, &g->holders[0]));
    }
    return stored && !makes_loaded(b, f->growing_stack) && !is_in_constructor(run, f->growing_stack) &&
           !run_stack_is_in(run, f->growing_stack, "/torch/nn/modules/", NULL) &&
           !run_stack_is_in(run, f->growing_stack, "/torch/optim/", NULL) &&
           !run_stack_calls(run, f->growing_stack, "_to_copy");
}

/* A loop that stores one block under each key of a collection ends with it, as the loading of weights does. Outputs of
 * passes can be stored so, too. */
static bool is_stored_by_key(struct site_builder *b, const struct oom_facts *f)
{
    const struct result_growth *g = f->growth;
    return g && g->holders_n && !f->growing_in_pass && site_fills_keys(b, g->holders[0].file, g->holders[0].line);
}

/* Of a line: all of its call paths that grow. */
struct line {
    int64_t bytes, heaviest;     /* together; of the largest call path */
    int64_t first_ns, middle_ns; /* of the largest call path's live blocks */
    double first_rank;           /* of the first one: the share of all its blocks that came before */
    uint32_t stack;              /* likewise */
    uint64_t count, times;       /* of its live blocks; times: including those that were freed */
    uint64_t seen, turns;        /* as in oom_live; these four without Python of all call paths */
    bool varies;                 /* of the same: its blocks differ in size */
    bool larger;                 /* … and the live ones are larger than those that were freed */
    bool apart;                  /* its call paths are different calls of one function, or without Python: count all */
    bool continued;              /* the failed request would have replaced its block by a larger one */
};

#define VARIES_SHARE 2 /* of the largest block: the smallest is less than a half of it */
#define LARGER 1.01
static void add_growth_path(struct line *line, const struct oom_live *l, uint32_t stack, bool continued, bool apart)
{
    const struct line before = *line;
    line->bytes = arena_add_capped(line->bytes, l->bytes);
    if (l->bytes > line->heaviest || !line->count) {
        line->heaviest = l->bytes;
        line->first_ns = l->first_ns;
        line->middle_ns = l->middle_ns;
        line->first_rank = l->first_rank;
        line->stack = stack;
        line->count = l->count;
        line->times = l->times;
        line->seen = l->seen;
        line->turns = l->turns;
        line->larger = !l->made || (double)l->bytes / (double)l->count > LARGER * (double)l->made / (double)l->times;
        line->continued = continued;
        line->varies = l->least < l->most / VARIES_SHARE && 2 * l->sizes > l->count; /* not copies of a model */
    }
    line->apart = line->apart || apart;
    if (!line->apart) return;
    line->first_ns = before.count && before.first_ns < line->first_ns ? before.first_ns : line->first_ns;
    line->count = before.count + l->count;
    line->times = before.times + l->times;
    line->seen = before.seen + l->seen;
    line->turns = before.turns + l->turns;
}

static bool is_moved_module(const struct run *run, uint32_t stack)
{
    return run_stack_is_in(run, stack, "/torch/nn/modules/module.py", "_apply");
}

static bool is_state(const struct run *run, uint32_t stack)
{
    return run_stack_is_in(run, stack, "/torch/optim/", NULL) && !run_stack_is_in_closure(run, stack);
}

/* An optimizer's states grow with the modules or the parameters that are added: then the line that adds most of them.
 * Gradients grow likewise. */
static const struct line *heaviest_line(const struct run *run, const struct line *lines, size_t n)
{
    const struct line *most = NULL, *module = NULL, *other = NULL;
    for (size_t i = 0; i < n; i++) {
        most = !most || lines[i].bytes > most->bytes ? &lines[i] : most;
        if (is_moved_module(run, lines[i].stack))
            module = !module || lines[i].bytes > module->bytes ? &lines[i] : module;
        else if (!is_state(run, lines[i].stack) && !oom_is_in_pass(run, lines[i].stack))
            other = !other || lines[i].bytes > other->bytes ? &lines[i] : other;
    }
    if (!most || !is_state(run, most->stack)) return most;
    return module ? module : other && oom_is_of_parameters(other->bytes, most->bytes) ? other : most;
}

static int64_t growing_end_of(const struct oom_facts *f, int64_t last_ns)
{
    if (f->growing_count < 2) return f->row->time_ns;
    const int64_t due = last_ns + (last_ns - f->growing_first_ns) / (int64_t)(f->growing_count - 1);
    return due < f->row->time_ns ? due : f->row->time_ns;
}

/* The memory of one growing location. */
static void add_growing(struct site_builder *b, const struct oom_live *l, uint32_t stack, bool kept, bool other,
                        struct oom_facts *f)
{
    const bool in_pass = oom_is_in_pass(b->run, stack);
    /* autograd's threads free without a stack; while the path grows, that may be another of its tensors */
    const bool freed = l->freed_in_backward || (l->silent_ns && l->silent_ns < l->first_ns);
    f->growing_kept = arena_add_capped(f->growing_kept, kept ? l->bytes : 0);
    if (!other && (l->count < f->growing_passes || !f->growing_passes)) f->growing_passes = l->count;
    f->growing = arena_add_capped(f->growing, l->bytes);
    f->growing_left = arena_add_capped(f->growing_left, run_location(b->run, l->location)->live_bytes);
    f->growing_first_ns = l->first_ns < f->growing_first_ns ? l->first_ns : f->growing_first_ns;
    f->growing_states = arena_add_capped(f->growing_states, is_state(b->run, stack) ? l->bytes : 0);
    f->growing_in_pass = arena_add_capped(f->growing_in_pass, in_pass ? l->bytes : 0);
    f->growing_freed = arena_add_capped(f->growing_freed, in_pass && freed ? l->bytes : 0);
}

/* The blocks of the call path became ever larger: of a series from nothing, the mean is half of the last one. */
static bool is_ever_larger(const struct oom_live *l)
{
    enum { TIMES = 16 };
    static const double larger = 1.5;
    return l->times >= TIMES && l->made > 0 &&
           (double)l->bytes / (double)l->count > larger * (double)l->made / (double)l->times;
}

/* How often the line made its live blocks. If nothing else allocated between two times, the steps tell them apart. Of a
 * bounded recording, the blocks that it made at once since all rows exist count for those before. */
static uint64_t turns_of(const struct site_builder *b, const struct oom_facts *f, const struct line *line)
{
    const int64_t from_ns = run_process_at(b->run, f->row->process)->kept_from_ns;
    const uint64_t steps = oom_layout_steps(f->layout, line->stack, oom_steps_of(b, f), from_ns);
    const uint64_t parts = line->first_ns < from_ns && steps > line->turns ? steps : line->turns;
    const uint64_t at_once = parts ? (line->seen + parts / 2) / parts : 1;
    const uint64_t turns = line->count / at_once;
    return !steps ? 0 : turns > steps ? turns : steps;
}

/* bank = cat([bank, z]), kept by that statement */
static bool is_appended_to(struct site_builder *b, const struct oom_facts *f)
{
    if (!f->growth || !f->growth->holders_n || !f->growth->holders[0].into ||
        !run_stack_calls(b->run, f->growing_stack, "_ops::cat"))
        return false;
    const struct result_holder *h = &f->growth->holders[0];
    const char *value = strchr(h->text, '=');
    return value && strstr(value, h->into) && !site_file_bounds(b, h->file, h->line, h->into);
}

/* What else grew with a buffer that is appended to, if a statement with some of it names the buffer: batches may also
 * become larger. */
static void find_driven(struct site_builder *b, const struct oom_live *live, size_t n, struct oom_facts *f)
{
    f->appended = is_appended_to(b, f);
    const char *name = f->appended ? text_last_part(f->growth->holders[0].into) : "";
    bool named = false;
    for (size_t i = 0; i < n && f->appended; i++) {
        const uint32_t stack = run_location(b->run, live[i].location)->stack;
        if (stack == f->growing_stack || !is_ever_larger(&live[i])) continue;
        f->driven = arena_add_capped(f->driven, live[i].bytes);
        named =
            named || (site_index(b, stack) != site_index(b, f->growing_stack) && site_statement_has(b, stack, name));
    }
    f->driven = named ? f->driven : 0;
}

static void set_heaviest(const struct site_builder *b, const struct line *heaviest, struct oom_facts *f)
{
    if (!heaviest) return;
    f->growing_heaviest = heaviest->bytes;
    f->heaviest_first_ns = heaviest->first_ns;
    f->heaviest_first_rank = heaviest->first_rank;
    f->growing_middle_ns = heaviest->middle_ns;
    f->growing_stack = heaviest->stack;
    f->growing_count = heaviest->count;
    f->growing_times = heaviest->times;
    f->growing_turns = turns_of(b, f, heaviest);
    f->growing_varies = heaviest->varies;
    f->growing_native = run_stack_python(b->run, heaviest->stack) == RUN_NONE;
    f->growing_larger = heaviest->larger;
    f->growing_continued = heaviest->continued;
    f->adds_modules = f->growing_states && !is_state(b->run, heaviest->stack);
}

struct growing_lines {
    struct map index; /* site → line */
    ARENA_LIST(struct line, lines);
    uint32_t *stacks; /* of the call paths that were counted */
    int64_t last_ns;
};

static bool is_of_other_call(const struct site_builder *b, const struct oom_live *l)
{
    return l->location < b->growing_n && b->growing[l->location] == SITE_GROWING_OTHER_CALL;
}

/* The line of the call path that grows: it differs only in its caller. */
static struct line *line_of_other_call(struct site_builder *b, uint32_t stack, const struct growing_lines *g)
{
    const struct result_site at = site_of_call(b, stack);
    for (size_t i = 0; i < g->lines_n; i++) {
        const struct result_site site = site_of_call(b, g->lines[i].stack);
        if (site_line_key(&site) == site_line_key(&at)) return &g->lines[i];
    }
    return NULL;
}

static void count_growing_path(struct site_builder *b, const struct oom_live *l, bool kept, bool continued,
                               struct growing_lines *g, struct oom_facts *f)
{
    const uint32_t stack = run_location(b->run, l->location)->stack;
    const bool native = run_stack_python(b->run, stack) == RUN_NONE && f->layer != RUN_SERIES_TENSOR,
               other = is_of_other_call(b, l);
    struct line *line = other ? line_of_other_call(b, stack, g) : NULL;
    if (!line) line = MAP_ROW_IN(&g->index, site_index(b, stack), g->lines, (struct line){0});
    add_growth_path(line, l, stack, continued, native || other);
    add_growing(b, l, stack, kept, other, f);
    g->stacks[f->growing_stacks_n++] = stack;
    g->last_ns = l->last_ns > g->last_ns ? l->last_ns : g->last_ns;
}

/* A container of C++ that makes room for more elements allocates by another call path, too rarely to grow by itself. It
 * belongs to the line if its blocks are as large and not all came before the line's first one. */
static bool is_of_growing_line(struct site_builder *b, const struct oom_live *l, struct growing_lines *g,
                               const struct oom_facts *f)
{
    const uint32_t stack = run_location(b->run, l->location)->stack;
    if (f->layer == RUN_SERIES_TENSOR || !l->count || run_stack_python(b->run, stack) != RUN_NONE) return false;
    const uint32_t at = map_get(&g->index, site_index(b, stack));
    if (at == MAP_NEW) return false;
    const struct line *line = &g->lines[at];
    const double mean = (double)line->bytes / (double)line->count, own = (double)l->bytes / (double)l->count;
    return l->last_ns > line->first_ns && own < 2 * mean && mean < 2 * own;
}

void oom_find_growing(struct site_builder *b, const struct oom_live *live, size_t n, struct oom_facts *f)
{
    struct growing_lines g = {.stacks = arena_alloc(b->arena, n * sizeof *g.stacks)};
    bool *counted = arena_zeroed(n, sizeof *counted);
    int64_t widest = 0;
    f->growing_first_ns = RUN_NEVER;
    for (size_t i = 0; i < n; i++) {
        const struct oom_live *l = &live[i];
        uint32_t stack = run_location(b->run, l->location)->stack;
        if (l->bytes > f->holder) {
            f->holder = l->bytes;
            f->holder_stack = stack;
        }
        if (l->bytes > widest && is_widened(b, l, f)) {
            widest = l->bytes;
            f->widened = stack;
        }
        const bool kept = is_kept(b, l, f), continued = continues_series(b, l, live, n, f);
        counted[i] = kept || does_growth_count(b, l, continued, f);
        if (counted[i] && !is_of_other_call(b, l)) count_growing_path(b, l, kept, continued, &g, f);
    }
    for (size_t i = 0; i < n && g.lines_n; i++)
        if (counted[i] ? is_of_other_call(b, &live[i]) : is_of_growing_line(b, &live[i], &g, f))
            count_growing_path(b, &live[i], false, false, &g, f);
    free(counted);
    set_heaviest(b, heaviest_line(b->run, g.lines, g.lines_n), f);
    f->growing_last_ns = g.last_ns;
    const struct step_list *steps = oom_steps_of(b, f);
    f->growing_earlier = g.lines_n && f->growing_first_ns < run_process_at(b->run, f->row->process)->kept_from_ns &&
                         (!steps || steps->removed_unknown);
    f->growing_end_ns = growing_end_of(f, g.last_ns);
    SORT(g.stacks, f->growing_stacks_n, sort_uint32_up);
    f->growing_stacks = g.stacks;
    f->growing_varies = f->growing_varies && f->growing_kept < f->growing / 2; /* the blocks of the current pass do */
    f->growing_sites = (unsigned)g.lines_n;
    free(g.lines);
    map_free(&g.index);
    f->growth = f->growing_sites ? foremost_growth(b, f) : NULL;
    if (f->growth && f->growing_kept > f->growing / 2 && f->growth->bytes < f->growing / 2)
        f->growth = NULL; /* of the inputs of these passes */
    f->growing_stored = is_stored_each_time(b, f);
    f->growing_keyed = f->backward_ns == RUN_UNKNOWN && is_stored_by_key(b, f);
    f->growing_queued = f->growing_sites && is_queued(b, f->growing_stack);
    find_driven(b, live, n, f);
}

/* The total live memory when it began to grow; 0 if unknown: of a buffer that grows by replacement, only the last
 * exists. */
static int64_t before_growth(struct site_builder *b, struct oom_facts *f, const struct result_timeline *t)
{
    enum { STEPS = 3, FEW = 64 };     /* few: as many as a model has layers */
    static const double early = 0.25; /* other blocks were freed, if some came before: temporaries of a pass, too */
    const struct step_list *steps = oom_steps_of(b, f);
    int64_t before = 0, first = f->heaviest_first_ns;
    bool recent = steps && f->row->time_ns <= step_start_ns(steps, steps->n) + 2 * steps->median_ns &&
                  step_count_done(steps, f->row->time_ns) < step_count_done(steps, first) + STEPS;
    if (f->growing_kept >= f->growing / 2) return 0;
    /* Earlier blocks of a reallocated buffer are freed. Their times are unreliable on a busy machine, or after a pause.
     */
    const bool gone = f->growing_times >= 2 * f->growing_count && f->heaviest_first_rank > early;
    f->of_step = gone && recent && f->growing_count >= FEW && !run_stack_calls(b->run, f->growing_stack, "_ops::cat");
    /* a queue whose items are equal is freed at its other end */
    const bool turns = gone && !f->of_step &&
                       (recent || f->growing_continued || (f->growth && f->heaviest_first_rank > 0.5) ||
                        (f->growing_count < FEW && f->heaviest_first_rank > 0.95));
    f->replaced = turns && f->growing_larger;
    if (turns) return 0;
    /* the minimum of its first eighth: the peak of a step is temporary */
    if (f->growing_low >= 0)
        return f->growing_low; /* by allocations: a pause, or a collection of garbage, takes time */
    double begun = site_seconds(first), soon = begun + (site_seconds(f->row->time_ns) - begun) / 8;
    for (size_t p = 0; p < t->n && t->points[p].time_s <= soon; p++) {
        int64_t bytes = t->points[p].bytes;
        before = t->points[p].time_s <= begun || bytes < before ? bytes : before;
    }
    return before;
}

/* Which part of the growing memory existed at that time, assuming linear growth. */
static double grown_by(const struct oom_facts *f, double time_s)
{
    double first = site_seconds(f->growing_first_ns), end = site_seconds(f->growing_end_ns);
    if (!f->growing_sites || time_s <= first || end <= first) return 0;
    return (double)f->growing * (time_s - first) / (end - first);
}

/* The time up to which memory counts as earlier: well before the end, so that unnoticed growth is not mistaken for
 * memory that was always needed; and before the step that failed. If no steps are known, but something grows, one
 * growth is one step. */
static int64_t earlier_until(const struct site_builder *b, const struct oom_facts *f)
{
    const struct step_list *steps = oom_steps_of(b, f);
    int64_t at = f->row->time_ns;
    if (steps) {
        size_t done = step_count_done(steps, at);
        return step_start_ns(steps, done < 4 ? done : done - done / 4);
    }
    if (!f->growing_sites) return RUN_UNKNOWN;
    at = f->growing_end_ns;
    int64_t step = (at - f->growing_first_ns) / (int64_t)(f->growing_count + 1);
    return at - step * (int64_t)(1 + f->growing_count / 4);
}

void oom_find_demand(struct site_builder *b, struct oom_facts *f)
{
    int64_t began = earlier_until(b, f);
    double most = -1;
    EACH_IN (t, b->report->timelines) {
        if (t->process != f->row->process || t->device != f->row->device || t->layer != f->layer) continue;
        f->before_growth = f->growing_sites ? before_growth(b, f, t) : 0;
        for (size_t p = 0; p < t->n && t->points[p].time_s < site_seconds(began); p++) {
            double demand = (double)t->points[p].bytes - grown_by(f, t->points[p].time_s);
            most = demand > most ? demand : most;
        }
    }
    f->earlier = most >= 0 ? (int64_t)most : RUN_UNKNOWN;
}

/* Of a recording of bounded size, the time before its rows is known as the smallest and largest total of each part:
 * what fell was freed. */
double oom_levels_turnover(const struct run *run, const struct oom_facts *f)
{
    int64_t freed = 0, high = 0;
    bool any = false;
    RUN_EACH (l, run_levels, run) {
        if (l->process != f->row->process || l->device != f->row->device || l->layer != f->layer ||
            l->start_ns > f->row->time_ns)
            continue;
        const int64_t most = any && high > l->high_bytes ? high : l->high_bytes;
        freed = arena_add_capped(freed, most > l->low_bytes && any ? most - l->low_bytes : 0);
        high = l->low_bytes;
        any = true;
    }
    return any && f->live > 0 ? (double)freed / ((double)freed + (double)f->live) : NAN;
}
