#include "analyzer/oom/oom_sight.h"
#include "analyzer/oom/oom_graph.h"

#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/site/holder_read.h"
#include "analyzer/site/source_context.h"
#include "analyzer/site/source_input.h"

static bool is_text_part_of(const char *text, const char *part)
{
    return text && strstr(text, part);
}

static void hold_category(struct oom_held *h, const struct result_category_line *l)
{
    h->bytes = arena_add_capped(h->bytes, l->bytes);
    h->squares += l->count ? (double)l->bytes * (double)l->bytes / (double)l->count : 0;
    h->blocks = h->squares > 0 ? (double)h->bytes * (double)h->bytes / h->squares : 0;
    if (l->bytes > h->most) {
        h->most = l->bytes;
        h->heaviest = l->stack;
    }
}

/* A cache of keys and values grows with each token and is not part of any backward pass. */
static bool is_cache(const struct run *run, uint32_t stack)
{
    return run_stack_is_in(run, stack, "cache_utils", NULL) || run_stack_is_in(run, stack, NULL, "Cache.");
}

static void consider_line(struct oom_sight *s, const struct result_category_line *l)
{
    struct run *run = s->b->run;
    if ((l->category == RESULT_CATEGORY_ACTIVATIONS || l->category == RESULT_CATEGORY_KV_CACHE) &&
        is_cache(run, l->stack)) {
        hold_category(&s->cache, l);
        return;
    }
    if (l->category == RESULT_CATEGORY_ACTIVATIONS) {
        s->checkpointed = s->checkpointed || run_stack_is_in(run, l->stack, "/torch/utils/checkpoint.py", NULL);
        s->autocast = s->autocast || run_stack_is_in(run, l->stack, "/torch/amp/", NULL) ||
                      run_stack_calls(run, l->stack, "autocast");
        if (l->count >= 3) {
            s->repeated = arena_add_capped(s->repeated, l->bytes);
            s->kept = arena_add_capped(s->kept, l->bytes - l->bytes / (int64_t)l->count);
            s->repeating++;
        }
        if (category_outlives_steps(l->rule)) /* the program holds it: no checkpoint frees it */
            return;
    } else if (l->category == RESULT_CATEGORY_GRADIENTS &&
               run_stack_is_in(run, l->stack, "/torch/nn/parallel/distributed.py", "_ddp_init_helper")) {
        hold_category(&s->buckets, l);
        return;
    } else if (l->category == RESULT_CATEGORY_TEMPORARIES &&
               run_stack_is_in(run, l->stack, "/torch/nn/modules/module.py", "_call_impl")) {
        s->forward = arena_add_capped(s->forward, l->bytes);
    } else if (l->category == RESULT_CATEGORY_TEMPORARIES &&
               run_stack_is_in(run, l->stack, "/torch/optim/", "_multi_tensor_")) {
        hold_category(&s->foreach, l);
    }
    hold_category(&s->of[l->category], l);
}

/* The phase for which the request was made, by the category of a block that stayed. */
static enum oom_phase oom_phase_of(const struct run *run, struct category_finder *c, uint32_t stack)
{
    static const enum oom_phase phases[RESULT_CATEGORIES_N] = {[RESULT_CATEGORY_ACTIVATIONS] = OOM_FORWARD,
                                                               [RESULT_CATEGORY_GRADIENTS] = OOM_BACKWARD,
                                                               [RESULT_CATEGORY_OPTIMIZER_STATE] = OOM_STEP};
    struct category_block block = {
        .stack = stack, .free_stack = RUN_NONE, .tensor = true, .python = true, .kept = true};
    enum oom_phase phase = phases[category_of_rule(category_rule(c, &block))];
    /* a checkpoint's forward pass runs again in backward */
    const bool again = phase == OOM_FORWARD && run_stack_is_in(run, stack, "/torch/autograd/__init__.py", NULL);
    if (again || (phase == OOM_ELSEWHERE && category_is_backward(c, stack))) phase = OOM_BACKWARD;
    return phase;
}

/* Did any backward pass or optimizer ever allocate? */
bool oom_trains(const struct run *run)
{
    for (uint32_t i = 0; i < run_stack_count(run); i++) {
        const struct run_frame *f = run_stack_frame(run, i);
        if (f->kind == GS_FRAME_PYTHON &&
            (is_text_part_of(f->file, "/torch/optim/") || is_text_part_of(f->file, "/torch/autograd/__init__.py") ||
             is_text_part_of(f->file, "/torch/autograd/graph.py") ||
             is_text_part_of(f->file, "/torch/utils/checkpoint.py")))
            return true;
    }
    return false;
}

static const char *const evaluation[] = {"eval", "valid", "infer", "predict", "generate"};

/* By a function's name, except those of a library's modules: their forward() may call their predict(). */
static bool is_named(const struct run *run, uint32_t stack, const char *const *names, size_t n)
{
    const uint32_t caller = site_pass_caller(run, stack);
    bool found = false, inside = caller != RUN_NONE;
    RUN_EACH_FRAME (f, run, stack) {
        inside = inside && stack != caller;
        if (f->kind != GS_FRAME_PYTHON || (inside && site_is_library(f))) continue;
        for (size_t i = 0; i < n; i++) found = found || is_text_part_of(f->function, names[i]);
    }
    return found;
}

/* Is one of these frames in the stack of a location below `end` of that process? */
static bool seen_before(const struct run *run, uint32_t process, const struct map *frames, size_t end)
{
    for (size_t i = 0; i < end; i++) {
        const struct run_location *at = run_location(run, (uint32_t)i);
        if (run_series(run, at->series)->process != process) continue;
        const struct run_frame *f;
        for (uint32_t stack = at->stack; (f = run_stack_frame(run, stack)) != NULL;
             stack = run_stack_parent(run, stack))
            if (map_get(frames, (uintptr_t)f) != MAP_NEW) return true;
    }
    return false;
}

/* One past the location of the last new path of backward or of the optimizer; 0: none, or too few steps are known. */
static size_t trained_until(const struct oom_sight *s)
{
    enum { STEPS_LEAST = 3 };
    const struct run *run = s->b->run;
    const struct step_list *steps = step_list_of(s->b, s->v->process);
    if (!steps || steps->source == STEP_SOURCE_PERIOD || step_count_done(steps, s->f->row->time_ns) < STEPS_LEAST)
        return 0;
    size_t end = run_location_count(run);
    for (; end > 0; end--) {
        const struct run_location *at = run_location(run, (uint32_t)(end - 1));
        if (run_series(run, at->series)->process == s->v->process &&
            (run_stack_is_in(run, at->stack, "/torch/autograd/", NULL) ||
             run_stack_is_in(run, at->stack, "/torch/optim/", NULL)))
            break;
    }
    return end;
}

/* Training's forward passes came before the backward passes that followed them, so the lines that call the model there
 * were recorded before the last new path of backward or of the optimizer. If the line that called it now was not, and
 * steps have passed, no backward pass has ever followed it. A variable may still refer to the training's last loss. */
static bool never_followed(const struct oom_sight *s, size_t end)
{
    enum { SMALL = 64 };
    const struct run *run = s->b->run;
    const int64_t least = s->of[RESULT_CATEGORY_ACTIVATIONS].bytes / SMALL;
    struct map callers = {0};
    for (size_t i = 0; end && i < s->v->by_category.lines_n; i++) {
        const struct result_category_line *l = &s->v->by_category.lines[i];
        const struct run_frame *caller = l->category == RESULT_CATEGORY_ACTIVATIONS && l->bytes >= least
                                             ? run_stack_frame(run, site_pass_caller(run, l->stack))
                                             : NULL;
        if (caller) *map_at(&callers, (uintptr_t)caller) = 0;
    }
    bool never = callers.n && !seen_before(run, s->v->process, &callers, end);
    map_free(&callers);
    return never;
}

/* The same for the lines that called the function around it, such as run_epoch(train=False): another phase began. */
static bool is_phase_new(const struct oom_sight *s, size_t end)
{
    const struct run_frame *f;
    bool unseen = false;
    for (uint32_t stack = s->f->stack; end && !unseen && (f = run_stack_frame(s->b->run, stack)) != NULL;
         stack = run_stack_parent(s->b->run, stack)) {
        struct map one = {0};
        if (f->kind == GS_FRAME_PYTHON) *map_at(&one, (uintptr_t)f) = 0;
        unseen = one.n && !run_path_has(f->file, "/torch/") && !seen_before(s->b->run, s->v->process, &one, end);
        map_free(&one);
        if (unseen && site_backward_follows(s->b, stack)) return false; /* of a second training */
    }
    return unseen;
}

/* Did the line that calls the model call it before the optimizer's first step, too? Then a whole step has passed. */
static bool is_pass_repeated(const struct oom_sight *s)
{
    const struct run *run = s->b->run;
    const struct run_frame *caller = run_stack_frame(run, site_pass_caller(run, s->f->stack));
    size_t end = 0;
    for (uint32_t at = s->f->stack; !caller && run_stack_frame(run, at); at = run_stack_parent(run, at)) {
        const struct run_frame *f = run_stack_frame(run, at); /* of a loss, outside of modules */
        caller = f->kind == GS_FRAME_PYTHON && !run_path_has(f->file, "/torch/") ? f : NULL;
    }
    while (end < run_location_count(run) &&
           (run_series(run, run_location(run, (uint32_t)end)->series)->process != s->v->process ||
            !run_stack_is_in(run, run_location(run, (uint32_t)end)->stack, "/torch/optim/", NULL)))
        end++;
    struct map one = {0};
    if (caller) *map_at(&one, (uintptr_t)caller) = 0;
    const bool repeated = caller && end < run_location_count(run) && seen_before(run, s->v->process, &one, end);
    map_free(&one);
    return repeated;
}

/* Of the first pass of an evaluation, or of a program that never trains, no line has made several blocks yet. Without
 * gradients, only the input of the layer that runs is live, not those of the layers before it. */
static void judge_layers(struct oom_sight *s)
{
    enum { ALIKE = 2 };
    const struct run *run = s->b->run;
    const struct result_by_category *of = &s->v->by_category;
    int64_t largest = 0, all = 0;
    uint64_t alike = 0;
    for (size_t again = 0; again < 2; again++) {
        EACH_IN (l, of->lines) {
            const bool passes = l->category == RESULT_CATEGORY_ACTIVATIONS ||
                                (l->category == RESULT_CATEGORY_TEMPORARIES && oom_is_in_pass(run, l->stack));
            const int64_t each = passes && l->count ? l->bytes / (int64_t)l->count : 0;
            largest = each > largest ? each : largest;
            all += again ? 0 : passes ? l->bytes : 0;
            alike += again && each && each >= largest / ALIKE ? l->count : 0;
        }
    }
    s->layers = alike > 1;
    if (s->layers) s->kept = all - largest;
}

/* With frozen parameters, no graph keeps anything: several live blocks of a line are branches of one pass. */
static bool freezes_parameters(const struct oom_sight *s)
{
    static const char *const words[] = {"requires_grad_(False", "requires_grad=False", "requires_grad = False"};
    return !site_source_lacks(s->b, s->f->stack, words, sizeof words / sizeof *words);
}

static bool is_in_loop(struct site_builder *b, const struct run_frame *f)
{
    struct site_code code;
    size_t at;
    if (!site_open_source(b, f, &code, &at)) return false;
    for (size_t k = at; k < code.n && !site_is_function(&code.list[k]); k = site_code_parent(&code, k))
        if (k != at && site_is_loop(&code.list[k])) return true;
    return false;
}

/* Does the program evaluate, by `no_grad()` or the loop of evaluation_loop(), and not compute the targets of a training
 * step, or its loss in evaluate_actions()? */
static bool is_outside_training(const struct oom_sight *s, const char *const *training, size_t n)
{
    const struct run *run = s->b->run;
    const uint32_t pass = site_pass_caller(run, s->f->stack);
    uint32_t stack = pass == RUN_NONE ? s->f->stack : pass;
    const bool without = site_is_without_gradients(s->b, s->f->stack);
    if (site_backward_uses(s->b, s->f->stack)) return false;
    RUN_EACH_FRAME (f, run, stack) {
        if (f->kind != GS_FRAME_PYTHON || run_path_has(f->file, "/torch/")) continue;
        const char *name = f->function ? text_last_part(f->function) : "";
        if (ANY_OF(w, evaluation, COUNT_OF(evaluation), is_text_part_of(name, *w)))
            return without || is_in_loop(s->b, f);
        if (ANY_OF(w, training, n, is_text_part_of(name, *w))) /* in whose source it would follow, if it ran there */
            return without && site_function_has(s->b, stack, "backward(");
    }
    return without;
}

static void judge_pass(struct oom_sight *s)
{
    static const char *const training[] = {"train", "fit"};
    const struct run *run = s->b->run;
    uint32_t stack = s->f->stack;
    const size_t end = trained_until(s);
    const uint32_t caller = site_pass_caller(run, stack);
    const bool follows = site_backward_uses(s->b, caller != RUN_NONE ? caller : stack); /* of a second training */
    s->named = is_named(run, stack, evaluation, COUNT_OF(evaluation));
    s->evaluates =
        s->phase != OOM_BACKWARD && s->phase != OOM_STEP && s->trains &&
        ((!follows && (never_followed(s, end) || (s->named && !is_named(run, stack, training, COUNT_OF(training))))) ||
         is_outside_training(s, training, COUNT_OF(training)));
    s->trains = s->trains || site_is_before_backward(s->b, stack) ||
                (!s->named && is_named(run, stack, training, sizeof training / sizeof *training));
    s->repeats = is_pass_repeated(s);
    s->phase_new = s->trains && !s->evaluates && (s->named || !follows) && is_phase_new(s, end);
    /* below @torch.no_grad() nothing is kept for a backward pass; elsewhere, lines that have allocated several blocks
     * each, all still live, show that gradients are on */
    s->keeps = s->phase == OOM_FORWARD && !run_stack_is_in(run, stack, "/torch/utils/_contextlib.py", NULL) &&
               s->repeating && s->repeated >= s->of[RESULT_CATEGORY_ACTIVATIONS].bytes / 2;
    const bool infers = !s->trains && oom_never_trains(s->b, stack), frozen = infers && freezes_parameters(s);
    s->keeps = s->keeps && !frozen;
    if (!s->keeps && s->phase == OOM_FORWARD && (s->evaluates || s->phase_new || (infers && !frozen))) judge_layers(s);
}

struct oom_sight oom_sight_of(struct site_builder *b, struct result_oom_verdict *v, struct category_finder *c,
                              bool training)
{
    const struct oom_facts *f = v->facts;
    struct oom_sight s = {.b = b, .v = v, .f = f, .need = oom_needed_bytes(f)};
    s.set = run_torch_settings(b->run, v->process);
    /* a little is worth reporting if it is enough */
    s.least = run_is_known(f->total) && f->total / 200 > s.need / 8 ? f->total / 200 : s.need / 8;
    s.least = s.least < s.need ? s.least : s.need;
    s.least = s.least < 1 ? 1 : s.least;
    s.phase = f->stack == RUN_NONE ? OOM_ELSEWHERE : oom_phase_of(b->run, c, f->stack);
    for (size_t i = 0; i < v->by_category.lines_n; i++) consider_line(&s, &v->by_category.lines[i]);
    s.checkpointed = s.checkpointed ||
                     (f->stack != RUN_NONE && run_stack_is_in(b->run, f->stack, "/torch/utils/checkpoint.py", NULL));
    s.trains = training;
    judge_pass(&s);
    return s;
}

bool oom_is_in_loss(const struct run *run, uint32_t stack)
{
    return run_stack_is_in(run, stack, "/torch/nn/functional.py", "cross_entropy") ||
           run_stack_is_in(run, stack, "/transformers/loss/", NULL);
}

bool oom_is_in_training_file(const struct oom_sight *s)
{
    const struct run *run = s->b->run;
    for (size_t i = 0; i < s->v->by_category.lines_n; i++) {
        uint32_t stack = s->v->by_category.lines[i].stack;
        RUN_EACH_FRAME (f, run, stack) {
            const char *name = f->kind == GS_FRAME_PYTHON && f->file ? strrchr(f->file, '/') : NULL;
            if (is_text_part_of(name, "train") && !is_text_part_of(f->file, "/site-packages/")) return true;
        }
    }
    return false;
}

int64_t oom_training_to_come(const struct oom_sight *s)
{
    enum { STATES = 2 }; /* of Adam; which optimizer is used is not known yet */
    const int64_t parameters = s->of[RESULT_CATEGORY_PARAMETERS].bytes, states = parameters * STATES;
    const bool first = s->trains && !s->evaluates && s->phase == OOM_FORWARD && s->f->backward_ns == RUN_UNKNOWN &&
                       !s->of[RESULT_CATEGORY_OPTIMIZER_STATE].bytes;
    return first ? arena_add_capped(parameters, states) : 0;
}

int64_t oom_ranks(const struct run *run)
{
    size_t n, ranks = 0;
    const struct run_process *p = run_processes(run, &n);
    for (size_t i = 0; i < n; i++) ranks += run_is_known(p[i].rank);
    return (int64_t)ranks;
}
