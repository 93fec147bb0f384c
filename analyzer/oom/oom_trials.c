/* A sweep that keeps its models looks like one model that is too large: parameters, gradients and optimizer states of
 * all trials are live. Time distinguishes the two: a call path that builds or moves a module occurs again after
 * backward passes, and its earlier blocks are still live. Modules that are built one after another before any training
 * (teacher and student, two networks of a GAN, a pipeline's models) belong to one trial. In a program that never
 * trains, forward passes take the place of training: a server loads models on demand. Models that the program appends
 * to a list and calls together are an ensemble, and needed. */
#include "analyzer/oom/oom_trials.h"
#include "analyzer/oom/oom_notebook.h"
#include "analyzer/oom/oom_layout.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/site/holder.h"

#include "analyzer/base/units.h"
#include "analyzer/base/sort.h"
#include <stdlib.h>
#include <string.h>

static const char optimizers[] = "/torch/optim/", state_maker[] = "_init_group"; /* at an optimizer's first step */

enum { OTHERWISE, BUILDING, IN_PASS };
static uint32_t trial_part_of(struct oom_trials *t, const struct run *run, uint32_t stack)
{
    uint32_t *at = map_at(&t->stacks, stack);
    if (*at == MAP_NEW && t->of == OOM_TRIAL_OF_OPTIMIZERS) {
        *at = run_stack_is_in(run, stack, optimizers, state_maker) ? BUILDING : OTHERWISE;
    } else if (*at == MAP_NEW) {
        const bool builds =
            !run_stack_is_in(run, stack, "/copy.py", "deepcopy") && /* of weights: averages, snapshots */
            (run_stack_is_in(run, stack, "/torch/nn/modules/module.py", "_apply") ||
             run_stack_is_in(run, stack, "/torch/nn/modules/", "__init__") ||
             run_stack_is_in(run, stack, "/torch/nn/parameter.py", NULL) ||
             run_stack_is_in(run, stack, NULL, "from_pretrained"));
        *at = builds ? BUILDING : run_stack_is_in(run, stack, NULL, "_call_impl") ? IN_PASS : OTHERWISE;
    }
    return *at;
}

static bool is_building_engine(struct oom_trials *t, const struct run *run, uint32_t stack)
{
    return trial_part_of(t, run, stack) == BUILDING;
}

void oom_trials_start(struct oom_trials *t, enum oom_trial_of of)
{
    t->of = of;
    t->n = 0;
    t->trained = true;
    t->trains = false;
    t->pass_blocks = t->most_pass_blocks = 0;
}

/* Have forward passes allocated many more blocks since the last model than between any two models? Then the program
 * has built all that it needs. At most 0.6 % of 15,000 simulated caches that never evict (4 to 16 models, requests of
 * equal or of Zipf's probabilities) waited so long for their next model. */
static bool is_complete(const struct oom_trials *t)
{
    enum { LONGER = 8 };
    return !t->trains && t->pass_blocks / LONGER > t->most_pass_blocks;
}

void oom_trials_add_alloc(struct oom_trials *t, const struct run *run, const struct run_lifetime *life, bool backward)
{
    if (life->layer != GS_LAYER_TENSOR || life->stack == RUN_NONE) return;
    if (backward) {
        t->n = t->trains || t->n < 1 ? t->n : 1; /* what was built before, also after passes, is one trial */
        t->trained = t->trains = true;
    } else if (!t->trains && trial_part_of(t, run, life->stack) == IN_PASS) {
        t->trained = true;
        t->pass_blocks++;
    } else if (t->trained && is_building_engine(t, run, life->stack)) {
        t->most_pass_blocks = t->pass_blocks > t->most_pass_blocks ? t->pass_blocks : t->most_pass_blocks;
        t->pass_blocks = 0;
        t->trained = false;
        *ARENA_PUSH(t->start_ns, t->n, t->cap) = life->alloc_ns;
    }
}

void oom_trials_release(struct oom_trials *t)
{
    free(t->start_ns);
    map_free(&t->stacks);
}

/* The trial that contains a time, plus 1; 0: before the first. */
static size_t trial_at(const struct oom_trials *t, int64_t ns)
{
    return SORT_COUNT(t->n, i, t->start_ns[i] <= ns);
}

enum { AGAIN = 0 }; /* trials count from 1 */

static size_t trial_of_block(const struct oom_held *h, const struct run_lifetime *life, bool *model)
{
    const bool tensor = life->layer == GS_LAYER_TENSOR && life->device == h->device;
    const size_t trial = tensor ? trial_at(h->trials, life->alloc_ns) : 0;
    *model = trial && life->stack != RUN_NONE && is_building_engine(h->trials, h->run, life->stack);
    return trial;
}

static void find_repeated(void *self, const struct run_lifetime *life)
{
    struct oom_held *h = self;
    bool model;
    const size_t trial = trial_of_block(h, life, &model);
    uint32_t *first = trial ? map_at(&h->paths, life->location) : NULL;
    if (!first) return;
    *first = *first == MAP_NEW || *first == trial ? (uint32_t)trial : AGAIN;
    if (model && *first == AGAIN && !h->cell) h->cell = oom_notebook_cell(h->run, life->stack);
}

/* Do several trials hold blocks of its call path? Of a cell that ran again, that is also true of what it had not yet
 * made again when memory ran out. */
static bool is_made_again(const struct oom_held *h, const struct run_lifetime *life)
{
    const struct run_frame *cell = h->cell ? oom_notebook_cell(h->run, life->stack) : NULL;
    return (cell && cell->file == h->cell->file) || map_get(&h->paths, life->location) == AGAIN;
}

static void take_trial_lifetime(void *self, const struct run_lifetime *life)
{
    struct oom_held *h = self;
    bool model;
    const size_t trial = trial_of_block(h, life, &model);
    if (!trial) return;
    const bool again = is_made_again(h, life);
    if (model) {
        h->held[trial - 1].bytes = arena_add_capped(h->held[trial - 1].bytes, life->bytes);
        h->held[trial - 1].count++;
        h->held[trial - 1].stack = life->stack;
    }
    if (trial == h->trials->n) return;
    h->earlier.all_bytes = arena_add_capped(h->earlier.all_bytes, life->bytes);
    h->earlier.again_bytes = arena_add_capped(h->earlier.again_bytes, again ? life->bytes : 0);
    h->earlier.count++;
    h->earlier.model_bytes += model ? life->bytes : 0;
    if (model && again >= h->earlier.repeated && (life->bytes > h->earlier.largest || again > h->earlier.repeated)) {
        h->earlier.largest = life->bytes;
        h->earlier.stack = life->stack;
    }
    h->earlier.repeated = h->earlier.repeated || (model && again);
}

/* As in cells of a notebook that were copied, or whose names count up: another line, the same blocks. */
static bool same_model(const struct oom_trial *a, const struct oom_trial *b)
{
    enum { LEAST = 4 };
    return a->count >= LEAST && a->count == b->count && a->bytes == b->bytes;
}

/* The same line of a cell that was run again, under the name that a notebook then gives it: models of other sizes. */
static bool same_cell(const struct run *run, const struct oom_trial *a, const struct oom_trial *b)
{
    const struct run_frame *x = a->count && b->count ? oom_notebook_cell(run, a->stack) : NULL,
                           *y = x ? oom_notebook_cell(run, b->stack) : NULL;
    return x && y && x->line == y->line && strcmp(x->file, y->file) != 0;
}

struct oom_earlier oom_trials_held(struct oom_trials *t, const struct run *run, int device)
{
    struct oom_held h = {.trials = t, .run = run, .device = device, .earlier = {.stack = RUN_NONE}};
    if (t->n < 2) return h.earlier;
    h.held = arena_zeroed(t->n, sizeof *h.held);
    run_each_live(run, find_repeated, &h);
    run_each_live(run, take_trial_lifetime, &h);
    h.earlier.bytes = h.earlier.repeated ? h.earlier.again_bytes : h.earlier.all_bytes;
    for (size_t i = 0; i + 1 < t->n; i++) {
        h.earlier.trials += h.held[i].count > 0;
        h.earlier.repeated =
            h.earlier.repeated || same_model(&h.held[i], &h.held[i + 1]) || same_cell(run, &h.held[i], &h.held[i + 1]);
    }
    h.earlier.rerun = h.cell != NULL;
    h.earlier.served = !t->trains;
    h.earlier.complete = is_complete(t);
    h.earlier.from_ns = t->start_ns[0];
    h.earlier.since_ns = t->start_ns[t->n - 1];
    free(h.held);
    map_free(&h.paths);
    return h.earlier;
}

struct models {
    struct oom_trials *trials;
    const struct run *run;
    int device;
    int64_t bytes;
};

static void add_model_lifetime(void *self, const struct run_lifetime *life)
{
    struct models *m = self;
    if (life->layer == GS_LAYER_TENSOR && life->device == m->device && life->stack != RUN_NONE &&
        is_building_engine(m->trials, m->run, life->stack))
        m->bytes = arena_add_capped(m->bytes, life->bytes);
}

int64_t oom_trials_models(struct oom_trials *t, const struct run *run, int device)
{
    struct models m = {.trials = t, .run = run, .device = device};
    run_each_live(run, add_model_lifetime, &m);
    return m.bytes;
}

struct oom_earlier oom_optimizers_held(struct oom_trials *t, const struct run *run, int device, int64_t modules)
{
    static const double states = 3.3; /* of the bytes of the parameters; Adam with amsgrad has three */
    struct oom_held h = {.trials = t, .run = run, .device = device, .earlier = {.stack = RUN_NONE}};
    if (t->n < 2) return h.earlier;
    h.held = arena_zeroed(t->n, sizeof *h.held);
    run_each_live(run, take_trial_lifetime, &h);
    const struct oom_trial *first = NULL;
    int64_t bytes = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct oom_trial *held = &h.held[i];
        if (!held->count) continue;
        first = first ? first : held;
        bytes = arena_add_capped(bytes, held->bytes);
        if (i + 1 == t->n) break; /* perhaps not complete */
        h.earlier.repeated = !h.earlier.trials || (h.earlier.repeated && same_model(first, held));
        h.earlier.trials++;
    }
    h.earlier.bytes = h.earlier.model_bytes;
    h.earlier.repeated = h.earlier.repeated && modules > 0 && (double)bytes > states * (double)modules;
    h.earlier.from_ns = t->start_ns[0];
    h.earlier.since_ns = t->start_ns[t->n - 1];
    free(h.held);
    map_free(&h.paths);
    return h.earlier;
}

void oom_trials_judge(struct site_builder *b, struct oom_earlier *e)
{
    struct result_holder *holders;
    const size_t n = e->repeated ? site_find_holders(b, e->stack, false, &holders) : 0;
    bool inside = n > 0;
    for (size_t i = 0; i < n; i++) {
        inside = inside && site_is_in_module(b, &holders[i]);
        e->ensemble = e->ensemble || site_is_ensemble(b, &holders[i]);
    }
    /* variables of their own are the stages of a pipeline; adapters are parts of one model */
    e->repeated =
        e->repeated && !inside && (n || !e->served) && !run_stack_is_in(b->run, e->stack, "/peft/", "adapter");
}

static bool are_models_kept(const struct oom_facts *f)
{
    enum { TRIALS = 2, SERVED = 3 }; /* one may be a teacher that was trained first, but not by the same cell */
    const struct oom_earlier *e = &f->trials;
    return e->repeated &&
           e->trials >= (e->served  ? SERVED
                         : e->rerun ? 1
                                    : TRIALS) &&
           e->bytes >= oom_needed_bytes(f) && e->bytes >= f->live / 4;
}

/* Nothing is trained, and graphs of results hold more than the models: they refer to the models' parameters, too. */
static bool are_kept_by_graphs(const struct oom_facts *f)
{
    return f->graph == OOM_GRAPH_INFERRED && f->evaluates && f->backward_ns == RUN_UNKNOWN &&
           f->growing_in_pass > f->trials.model_bytes;
}

bool oom_keeps_trials(const struct oom_facts *f)
{
    return are_models_kept(f) && !f->trials.ensemble && !f->trials.complete && !are_kept_by_graphs(f);
}

bool oom_keeps_ensemble(const struct oom_facts *f)
{
    return are_models_kept(f) && f->trials.ensemble;
}

bool oom_is_of_parameters(int64_t parameters, int64_t states)
{
    enum { STATES = 3 }; /* an optimizer keeps at most: amsgrad */
    return parameters >= states / STATES;
}

bool oom_keeps_optimizers(const struct oom_facts *f)
{
    enum { EARLIER = 2 };
    const struct oom_earlier *e = &f->optimizers;
    const int64_t others = f->growing - f->growing_states; /* parameters that the program adds to one optimizer */
    return !oom_is_of_parameters(others, e->bytes) && e->repeated && e->trials >= EARLIER &&
           e->bytes >= oom_needed_bytes(f) && e->bytes >= f->live / 4;
}

void oom_explain_optimizers(struct oom_words *w)
{
    const struct oom_earlier *e = &w->f->optimizers;
    const struct oom_holder *known = oom_holder_of(w->b->run, e->stack);
    w->v->growing = site_trace(w->b, e->stack).site;
    w->v->holders_n = site_find_holders(w->b, e->stack, false, &w->v->holders);
    w->v->verdict = TEXT(w,
                         "a leak: the states of %zu earlier optimizers, created at %s, are still live beside those of "
                         "the current one: %s of the %s live",
                         e->trials, oom_place_text(w, e->stack), SIZE(w, e->bytes), SIZE(w, w->f->live));
    struct result_measure m =
        oom_line_measure(e->bytes, -1, RESULT_CERTAINTY_INFERRED, "if the program uses the earlier optimizers",
                         TEXT(w, "%s: %s", site_short_text(w->b, &w->v->growing), known->advice));
    const struct result_by_category *by = &w->v->by_category;
    uint32_t *stacks = arena_alloc(w->b->arena, (by->lines_n + 1) * sizeof *stacks);
    struct oom_drop drop = {.stacks = stacks, .from_ns = e->from_ns, .before_ns = e->since_ns};
    EACH_IN (l, by->lines)
        if (run_stack_is_in(w->b->run, l->stack, optimizers, state_maker)) stacks[drop.stacks_n++] = l->stack;
    SORT(stacks, drop.stacks_n, sort_uint32_up);
    if (drop.stacks_n) oom_layout_decide(w->b, w->f, &drop, "without the earlier optimizers", &m);
    oom_add_measure(w->b, w->v, m);
}

static const char *trials_verdict_of(struct oom_words *w, const struct oom_earlier *e)
{
    const char *with = e->bytes / 3 <= e->model_bytes / 2 ? ""
                       : e->trials == 1                   ? " with its gradients or optimizer states"
                                                          : " with their gradients or optimizer states";
    char since[UNITS_TEXT];
    units_format_seconds(since, site_seconds(e->since_ns));
    if (e->ensemble) {
        return TEXT(w, "an ensemble: %zu earlier models, created at %s, are on the GPU%s: %s of the %s live", e->trials,
                    oom_place_text(w, e->stack), with, SIZE(w, e->bytes), SIZE(w, w->f->live));
    }
    if (e->served) {
        return TEXT(w,
                    "a leak: %zu earlier models, created at %s, are still live: %s of the %s live was allocated before "
                    "the newest model was created at %s",
                    e->trials, oom_place_text(w, e->stack), SIZE(w, e->bytes), SIZE(w, w->f->live), since);
    }
    if (e->trials == 1) {
        return TEXT(w,
                    "a leak: a cell ran again, and the model that its earlier run created at %s is still live%s: %s of "
                    "the %s live was allocated before the current run created its model at %s",
                    oom_place_text(w, e->stack), with, SIZE(w, e->bytes), SIZE(w, w->f->live), since);
    }
    return TEXT(w,
                "a leak: the models of %zu earlier trials, created at %s, are still live%s: %s of the %s live "
                "was allocated before the current trial began at %s",
                e->trials, oom_place_text(w, e->stack), with, SIZE(w, e->bytes), SIZE(w, w->f->live), since);
}

void oom_explain_trials(struct oom_words *w)
{
    const struct oom_earlier *e = &w->f->trials;
    w->v->growing = site_of_call(w->b, e->stack);
    w->v->holders_n = site_find_holders(w->b, e->stack, false, &w->v->holders);
    const struct oom_holder *keeper = oom_keeper_of(w->b->run, e->stack);
    const char *kept = site_kept_text(w->b->arena, "", w->v->holders, w->v->holders_n)
                           ?: keeper ? keeper->what
                          : e->trials == 1
                              ? "its variables keep them until the new ones are complete"
                              : "the line that keeps them is unknown: a list of results, a notebook's output, "
                                "a kept exception";
    const char *advice =
        e->ensemble && e->served ? "move each model to the host (.cpu()), and to the GPU only while it predicts"
        : e->ensemble            ? "move each trained model to the host (zero_grad(set_to_none=True), .cpu()), and "
                                   "to the GPU only while it predicts"
        : keeper                 ? keeper->advice
        : e->trials == 1 ? "before the cell runs again, del what holds its model and optimizer, then import gc; "
                           "gc.collect()"
        : e->served ? "keep only the models in use on the GPU: del the others, or move them to the host (`.cpu()`) "
                      "until they are needed"
                    : "release the earlier models before the next trial: del model and optimizer, "
                      "keep numbers or `model.cpu().state_dict()` as the result";
    w->v->verdict = trials_verdict_of(w, e);
    if (e->served && !e->ensemble) w->v->refuted_by = "if each pass needs all of these models";
    struct result_measure m =
        oom_line_measure(e->bytes, -1, RESULT_CERTAINTY_INFERRED,
                         e->ensemble ? "if each step needs all of them"
                         : e->served ? "if each pass needs all of these models"
                                     : "if the current trial uses them",
                         TEXT(w, "%s: %s (%s)", site_short_text(w->b, &w->v->growing), advice, kept));
    const struct oom_drop drop = {.from_ns = e->from_ns, .before_ns = e->since_ns};
    if (e->bytes >= e->all_bytes / 10 * 9) {
        oom_layout_decide(w->b, w->f, &drop,
                          e->ensemble || e->served ? "without the earlier models" : "without the earlier trials", &m);
    }
    oom_add_measure(w->b, w->v, m);
}
