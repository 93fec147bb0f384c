/* Which measures would have prevented an OOM, and how much each would have freed.
 *
 * A measure is left out if it is already in use, as far as the settings, the stacks and the recorded events show, or if
 * it would not have mattered to the request. The basis of the amounts:
 *   activations and inputs grow with the batch; parameters, gradients and optimizer states do not;
 *   checkpointing n activations in √n pieces keeps 2 √n of them (Chen et al. 2016, arXiv:1604.06174);
 *   an 8-bit optimizer keeps 1 byte and 1/256 of a 4-byte scale instead of fp32's 4 (Dettmers et al. 2022);
 *   ZeRO's first stage keeps 1/n of the optimizer states on each of n ranks (Rajbhandari et al. 2020);
 *   segments that grow free the pages of a hole (heap_map.c).
 */
#include "analyzer/oom/oom_choice.h"
#include "analyzer/oom/oom_graph.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/oom/oom_layout.h"
#include "analyzer/oom/oom_sight.h"
#include "analyzer/oom/oom_square.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/oom/waterfall.h"
#include "analyzer/site/native_source.h"
#include "analyzer/site/source_context.h"
#include "analyzer/site/source_input.h"
#include "analyzer/base/sort.h"

enum { MIB = 1 << 20, CRUMBS = 20 };

/* A guess is never reported as enough: its amount is an upper bound. */
static int8_t guess_enough(const struct oom_sight *s, int8_t enough)
{
    if (s->certainty != RESULT_CERTAINTY_GUESSED) return enough;
    return enough == OOM_MEASURE_FITS_NOT || enough == OOM_MEASURE_MOST_BUT_NOT ? OOM_MEASURE_MOST_BUT_NOT
                                                                                : OOM_MEASURE_AT_MOST;
}

static void add_measure(struct oom_sight *s, enum oom_effort effort, int64_t frees, int8_t enough, const char *text)
{
    struct result_measure m = s->measure;
    s->measure = (struct result_measure){0};
    if (frees >= s->least) {
        m.text = text;
        m.frees_bytes = frees;
        m.enough = guess_enough(s, enough);
        m.effort = (uint8_t)effort;
        m.certainty = s->certainty;
        m.refuted_by = s->refuted_by;
        oom_add_measure(s->b, s->v, m);
    }
}

/* The call paths whose live blocks are all of one kind; 0: some also have blocks of others. */
static size_t stacks_of(const struct oom_sight *s,
                        bool (*is)(const struct oom_sight *, const struct result_category_line *), uint32_t *stacks)
{
    const struct result_by_category *by = &s->v->by_category;
    struct map kind = {0}; /* stack → 0 no, 1 yes */
    size_t n = 0;
    bool shared = false;
    for (size_t i = 0; i < by->lines_n; i++) {
        const uint32_t yes = is(s, &by->lines[i]);
        uint32_t *at = map_at(&kind, by->lines[i].stack);
        if (*at == MAP_NEW && yes) stacks[n++] = by->lines[i].stack;
        shared = shared || (*at != MAP_NEW && *at != yes);
        *at = yes;
    }
    map_free(&kind);
    SORT(stacks, n, sort_uint32_up);
    return shared ? 0 : n;
}

static int64_t bytes_of_kind(const struct oom_sight *s,
                             bool (*is)(const struct oom_sight *, const struct result_category_line *))
{
    int64_t bytes = 0;
    EACH_IN (l, s->v->by_category.lines) bytes = arena_add_capped(bytes, is(s, l) ? l->bytes : 0);
    return bytes;
}

/* A measure that frees the live blocks of a kind, `frees` bytes. False: the request fails without them, too. */
static bool add_drop(struct oom_sight *s, enum oom_effort effort,
                     bool (*is)(const struct oom_sight *, const struct result_category_line *), const char *name,
                     int64_t frees, const char *text)
{
    uint32_t *stacks = arena_alloc(s->b->arena, (s->v->by_category.lines_n + 1) * sizeof *stacks);
    const struct oom_drop drop = {
        .stacks = stacks, .stacks_n = stacks_of(s, is, stacks), .before_ns = s->f->row->time_ns + 1};
    struct result_measure m = {.frees_bytes = frees};
    if (drop.stacks_n) oom_layout_decide(s->b, s->f, &drop, name, &m);
    s->measure = m;
    add_measure(s, effort, m.frees_bytes, 0, text);
    return !m.replayed || m.fits;
}

/* Moves the measures that were added since to the front. */
static void lead_measure(struct oom_sight *s, size_t before)
{
    if (s->v->measures_n > before) {
        struct result_measure m = s->v->measures[before];
        m.first = true;
        memmove(s->v->measures + 1, s->v->measures, before * sizeof m);
        s->v->measures[0] = m;
    }
}

static int64_t share_of_bytes(double of, int64_t bytes)
{
    return of > 0 ? (int64_t)(of * (double)bytes) : 0;
}

static int64_t category_bytes_of_activations(const struct oom_sight *s)
{
    return s->of[RESULT_CATEGORY_ACTIVATIONS].bytes;
}

static void add_replayed_measure(struct oom_sight *s, enum oom_replay_setting setting, const struct whatif_request *r)
{
    const char *variable = s->set.variable ? s->set.variable : "PYTORCH_CUDA_ALLOC_CONF";
    int64_t asked = oom_segment_bytes(s->f->requested, setting == OOM_REPLAY_EXPANDABLE);
    int64_t free = run_is_known(s->f->free) ? s->f->free : 0;
    bool known = run_is_known(r->spare_bytes);
    int64_t frees = known ? arena_add_capped(r->spare_bytes, asked) - free : s->need;
    size_t before = s->v->measures_n;
    const bool pass = s->phase == OOM_FORWARD || s->phase == OOM_BACKWARD;
    const int64_t next = pass && s->f->requested > s->f->total / CRUMBS ? s->f->requested : s->f->total / CRUMBS;
    const bool elsewhere = s->v->cause == RESULT_CAUSE_CAPACITY || s->v->cause == RESULT_CAUSE_OTHER_PROCESS;
    if (elsewhere && known && r->spare_bytes < next) return; /* the next request of the same pass would fail */
    s->refuted_by = oom_replay_unsure(s->replays)
                        ? "if a requested size differs from the replay's: some are known to 1 MiB only"
                        : NULL;
    s->measure = (struct result_measure){
        .replayed = TEXT(s, "with %s", oom_replay_conf(setting)), .fits = true, .spare_bytes = r->spare_bytes};
    /* the pass that does not fit goes on to request more */
    const bool leads = s->v->cause != RESULT_CAUSE_CAPACITY;
    add_measure(s, leads ? OOM_EFFORT_SETTING : OOM_EFFORT_TRAINING, frees > s->need ? frees : s->need,
                OOM_MEASURE_FITS,
                TEXT(s, "%s%s%s%s%s", s->set.text ? "add " : "set ", s->set.text ? oom_replay_conf(setting) : variable,
                     s->set.text ? " to " : "=", s->set.text ? variable : oom_replay_conf(setting),
                     s->set.expandable == RUN_UNSURE ? ", unless it is already set" : ""));
    if (s->v->cause == RESULT_CAUSE_FRAGMENTATION) lead_measure(s, before);
}

static bool has_settings(const struct oom_sight *s)
{
    return (s->v->fatal || s->v->cause == RESULT_CAUSE_FRAGMENTATION) && s->f->layer == RUN_SERIES_TENSOR &&
           s->set.expandable != RUN_YES && s->set.backend != RUN_BACKEND_ASYNC && s->set.backend != RUN_BACKEND_NONE;
}

/* If growing segments do not help. */
static void other_settings(struct oom_sight *s)
{
    const struct whatif_request *grown = oom_replay_of(s->replays, s->v, OOM_REPLAY_EXPANDABLE), *best = NULL;
    enum oom_replay_setting of = OOM_REPLAY_EXPANDABLE;
    for (enum oom_replay_setting i = of + 1; i < OOM_REPLAY_SETTINGS; i++) {
        const struct whatif_request *r = oom_replay_of(s->replays, s->v, i);
        if (r && r->fits && (!best || r->spare_bytes > best->spare_bytes)) {
            best = r;
            of = i;
        }
    }
    if (has_settings(s) && best && !(grown && grown->fits)) add_replayed_measure(s, of, best);
}

static void measure_expandable(struct oom_sight *s)
{
    const char *variable = s->set.variable ? s->set.variable : "PYTORCH_CUDA_ALLOC_CONF";
    const struct whatif_request *replayed = oom_replay_of(s->replays, s->v, OOM_REPLAY_EXPANDABLE);
    if (!has_settings(s) || s->f->pending) /* the memory that further passes add would soon fail */
        return;
    if (replayed) {
        if (replayed->fits) add_replayed_measure(s, OOM_REPLAY_EXPANDABLE, replayed);
        return;
    }
    int64_t frees = s->f->map.page_bytes, cached = oom_cached_bytes(s->f);
    struct oom_idle idle = oom_idle(s->b->report, s->v);
    cached -= arena_add_capped(idle.pending, idle.private);
    frees = s->f->map.strays || cached < 0 ? 0 : frees < cached ? frees : cached;
    int64_t free = run_is_known(s->f->free) ? s->f->free : 0, asked = oom_segment_bytes(s->f->requested, true);
    /* if they had grown from the start, blocks would be closer together */
    bool most = s->v->cause == RESULT_CAUSE_FRAGMENTATION && frees < cached && arena_add_capped(frees, free) < asked;
    frees = most ? cached : frees;
    bool fits = arena_add_capped(frees, free) >= asked;
    size_t before = s->v->measures_n;
    if (s->v->cause == RESULT_CAUSE_CAPACITY && (!fits || frees < s->f->total / CRUMBS))
        return; /* the next request of the same pass would fail */
    add_measure(s, OOM_EFFORT_SETTING, frees,
                most   ? OOM_MEASURE_AT_MOST
                : fits ? OOM_MEASURE_FITS
                       : OOM_MEASURE_FITS_NOT,
                TEXT(s, s->set.text ? "add `expandable_segments:True` to %s%s" : "set `%s=expandable_segments:True`%s",
                     variable, s->set.expandable == RUN_UNSURE ? ", unless it is already set" : ""));
    if (s->v->cause == RESULT_CAUSE_FRAGMENTATION && fits) lead_measure(s, before);
}

/* Parameters that the program adds during the training: their gradients, states and activations come with them. */
static void measure_widened(struct oom_sight *s)
{
    struct oom_words words = {.b = s->b, .f = s->f, .v = s->v};
    int64_t held = 0;
    const size_t before = s->v->measures_n;
    for (enum result_category of = 0; of < RESULT_CATEGORIES_N; of++) held = arena_add_capped(held, s->of[of].bytes);
    add_measure(s, OOM_EFFORT_LINE, held / 2, OOM_MEASURE_AT_MOST,
                TEXT(s,
                     "%s: bound the number of parameters (remove some, add none above a maximum), for example to half",
                     oom_place_text(&words, s->f->widened)));
    lead_measure(s, before);
}

/* Not the temporaries of a step that works on all parameters at once. */
static bool is_kept_state(const struct oom_sight *s, const struct result_category_line *l)
{
    return l->category == RESULT_CATEGORY_OPTIMIZER_STATE &&
           !run_stack_is_in(s->b->run, l->stack, "/torch/optim/", "_multi_tensor_");
}

static bool is_adam_state(const struct oom_sight *s, const struct result_category_line *l)
{
    return is_kept_state(s, l) && run_stack_is_in(s->b->run, l->stack, "/torch/optim/adam", NULL);
}

/* What the optimizer's first step has yet to allocate: of Adam, two states of each parameter with a gradient. */
static int64_t states_to_come(const struct oom_sight *s)
{
    const int64_t states = bytes_of_kind(s, is_adam_state), gradients = s->of[RESULT_CATEGORY_GRADIENTS].bytes;
    const int64_t parameters = s->of[RESULT_CATEGORY_PARAMETERS].bytes;
    const int64_t trained = gradients < parameters ? gradients : parameters;
    const int64_t whole = states ? arena_add_capped(trained, trained) : 0;
    return s->phase == OOM_STEP && whole > arena_add_capped(states, states / 50) ? whole - states : 0;
}

/* Requests in forward or backward halve with the batch. */
static void measure_batch(struct oom_sight *s)
{
    struct result_measure square;
    if (s->f->widened != RUN_NONE) {
        measure_widened(s);
        return;
    }
    if (oom_dense_rows_measure(s, &square)) oom_add_measure(s->b, s->v, square);
    if (oom_square_measure(s, &square)) {
        oom_add_measure(s->b, s->v, square);
        return;
    }
    const bool joins = oom_joined_measure(s, &square);
    if (joins) oom_add_measure(s->b, s->v, square);
    enum { LARGER = 2, STEPS = 4 };
    int64_t grows = arena_add_capped(
        arena_add_capped(category_bytes_of_activations(s), s->of[RESULT_CATEGORY_INPUTS].bytes), s->forward);
    bool halves = s->phase == OOM_FORWARD || s->phase == OOM_BACKWARD;
    const int64_t states = states_to_come(s) - (run_is_known(s->f->free) ? s->f->free : 0);
    const int64_t frees = grows / 2, left = (states > s->need ? states : s->need) - (halves ? s->f->requested / 2 : 0),
                  needs = arena_add_capped(s->f->live, s->f->requested);
    const bool larger = halves && !s->f->pending && run_is_known(s->f->earlier) && needs / LARGER > s->f->earlier &&
                        oom_step_of(s->b, s->v) >= STEPS;
    /* More passes may follow, or the rest of one that is larger than all before. */
    const int64_t to_come = oom_training_to_come(s);
    const bool more = joins || s->f->pending || (larger && s->phase == OOM_FORWARD) || to_come;
    const int8_t fits = more ? OOM_MEASURE_AT_MOST : OOM_MEASURE_FITS;
    add_measure(
        s, OOM_EFFORT_ARGUMENT, frees, frees >= left ? fits : OOM_MEASURE_FITS_NOT,
        larger ? TEXT(s,
                      "halve this batch, or the length or resolution of its samples (this step needs at "
                      "least %s, earlier ones at most %s)",
                      SIZE(s, needs), SIZE(s, s->f->earlier))
        : site_repeats_input(s->b, s->of[RESULT_CATEGORY_ACTIVATIONS].heaviest)
            ? TEXT(s, "process half as much data in each pass: a part of the batch, graph, matrix or set of points%s",
                   oom_setting_in(s, OOM_SETTING_PART))
        : !s->trains || s->evaluates || s->phase_new
            ? TEXT(s, "halve the batch%s, or the length or resolution of its samples",
                   oom_setting_in(s, OOM_SETTING_EVALUATION))
        : site_compares_samples(s->b, s->f->stack)
            ? "halve the batch; this changes the result, because the loss seems to compare the samples with "
              "each other (contrastive)"
            : TEXT(s, "halve the batch and accumulate gradients over two%s%s", oom_setting_in(s, OOM_SETTING_BATCH),
                   to_come ? TEXT(s, " (in the first step, gradients and the optimizer's states need up to %s more)",
                                  SIZE(s, to_come))
                           : ""));
}

static void measure_checkpoint(struct oom_sight *s)
{
    const struct oom_held *a = &s->of[RESULT_CATEGORY_ACTIVATIONS];
    if (s->checkpointed || !s->trains || s->evaluates || (s->phase_new && s->named)) return;
    add_measure(s, OOM_EFFORT_TRAINING, share_of_bytes(a->blocks > 4 ? 1 - 2 / sqrt(a->blocks) : 0, a->bytes), 0,
                TEXT(s, "checkpoint the activations, which hold %s (%s, a third more computation)", SIZE(s, a->bytes),
                     oom_setting_text(s, OOM_SETTING_CHECKPOINT, "torch.utils.checkpoint")));
}

static void measure_precision(struct oom_sight *s)
{
    if (s->autocast || s->phase == OOM_STEP || !s->trains || s->evaluates || (s->phase_new && s->named)) return;
    add_measure(s, OOM_EFFORT_TRAINING, category_bytes_of_activations(s) / 2, OOM_MEASURE_AT_MOST,
                TEXT(s, "if the forward pass runs in fp32, run it in bf16 (%s)",
                     oom_setting_text(s, OOM_SETTING_PRECISION, "torch.autocast")));
}

static void eight_bit(struct oom_sight *s)
{
    static const double saved = 1 - (1 + 4.0 / 256) / 4;
    const struct oom_held *o = &s->of[RESULT_CATEGORY_OPTIMIZER_STATE];
    const struct run *run = s->b->run;
    if (!o->bytes || run_stack_is_in(run, o->heaviest, "bitsandbytes", NULL) ||
        run_stack_is_in(run, o->heaviest, "torchao", NULL) || run_stack_is_in(run, o->heaviest, "dafactor", NULL) ||
        run_stack_is_in(run, o->heaviest, "deepspeed", NULL))
        return;
    const int64_t more = states_to_come(s), whole = arena_add_capped(o->bytes, more);
    int64_t room = arena_add_capped(o->bytes, run_is_known(s->f->free) ? s->f->free : 0);
    bool fits = share_of_bytes(1 - saved, whole) <= room;
    const char *of = oom_setting_text(s, OOM_SETTING_OPTIMIZER, "bitsandbytes");
    add_measure(s, OOM_EFFORT_TRAINING, share_of_bytes(saved, o->bytes),
                more ? (fits ? OOM_MEASURE_AT_MOST : OOM_MEASURE_MOST_BUT_NOT) : OOM_MEASURE_AT_MOST,
                more ? TEXT(s,
                            "use an 8-bit optimizer (%s) or Adafactor; this first step allocates the optimizer's "
                            "state, %s so far, %s when complete",
                            of, SIZE(s, o->bytes), SIZE(s, whole))
                     : TEXT(s,
                            "use an 8-bit optimizer (%s) or Adafactor instead of %s of optimizer state, if that is "
                            "fp32",
                            of, SIZE(s, o->bytes)));
}

static void measure_zero(struct oom_sight *s)
{
    const struct oom_held *o = &s->of[RESULT_CATEGORY_OPTIMIZER_STATE];
    const struct run *run = s->b->run;
    int64_t ranks = oom_ranks(run);
    if (ranks < 2 || !o->bytes || run_stack_is_in(run, o->heaviest, "zero_redundancy_optimizer", NULL) ||
        run_stack_is_in(run, o->heaviest, "deepspeed", NULL) || run_stack_is_in(run, o->heaviest, "fsdp", NULL))
        return;
    add_measure(s, OOM_EFFORT_TRAINING, o->bytes - o->bytes / ranks, 0,
                TEXT(s,
                     "use ZeroRedundancyOptimizer or FSDP: each of %lld ranks keeps its part of %s of "
                     "optimizer state",
                     (long long)ranks, SIZE(s, o->bytes)));
}

/* Memory that backward passes allocate and a leak keeps is not a parameter's gradient. */
static bool is_gradient(const struct oom_sight *s, const struct result_category_line *l)
{
    const bool leaks =
        s->v->cause == RESULT_CAUSE_LEAK && s->f->growing_stacks_n &&
        bsearch(&l->stack, s->f->growing_stacks, s->f->growing_stacks_n, sizeof l->stack, sort_uint32_up);
    return l->category == RESULT_CATEGORY_GRADIENTS && !leaks &&
           !run_stack_is_in(s->b->run, l->stack, "/torch/nn/parallel/distributed.py", "_ddp_init_helper");
}

/* Adam has two states of each parameter that it trains: the gradients of others, such as a teacher's, are freed by no
 * optimizer. Another optimizer has states of its own, except SGD. */
static int64_t untrained_gradients(const struct oom_sight *s, int64_t held)
{
    static const double slack = 1.1;
    static const char *const stateless[] = {"SGD"};
    const struct oom_held *states = &s->of[RESULT_CATEGORY_OPTIMIZER_STATE];
    const bool of_trials = s->v->cause == RESULT_CAUSE_LEAK && s->f->trials.trials; /* they belong to earlier models */
    if (of_trials || s->phase == OOM_STEP /* may be making them */ || !states->bytes || !s->repeats ||
        (double)held < slack * (double)states->bytes / 2 || bytes_of_kind(s, is_adam_state) < states->bytes ||
        !site_source_lacks(s->b, states->heaviest, stateless, sizeof stateless / sizeof *stateless))
        return 0;
    return held - states->bytes / 2;
}

static void measure_gradients(struct oom_sight *s)
{
    const struct oom_held *g = &s->of[RESULT_CATEGORY_GRADIENTS];
    const int64_t held = bytes_of_kind(s, is_gradient), untrained = untrained_gradients(s, held);
    const char *zero = oom_setting_text(s, OOM_SETTING_GRADIENTS, "call `optimizer.zero_grad(set_to_none=True)`");
    if (untrained) {
        const size_t before = s->v->measures_n;
        add_measure(s, OOM_EFFORT_LINE, untrained, 0,
                    TEXT(s,
                         "call `requires_grad_(False)` on parameters that no optimizer trains: their gradients hold "
                         "%s; `torch.no_grad()` around a teacher's forward pass also frees its activations",
                         SIZE(s, untrained)));
        if (untrained >= s->need && s->v->cause != RESULT_CAUSE_LEAK) lead_measure(s, before);
    } else if (s->phase == OOM_FORWARD && held && zero &&
               !run_stack_is_in(s->b->run, s->f->stack, NULL, "make_graphed_callables")) { /* its graphs keep them */
        (void)add_drop(
            s, OOM_EFFORT_LINE, is_gradient, "without these gradients", held,
            TEXT(s,
                 "%s before the forward pass, during which %s of gradients are still live, unless you accumulate them",
                 zero, SIZE(s, held)));
    }
    if (s->buckets.bytes > 0 && g->bytes >= s->buckets.bytes / 10 * 9) {
        add_measure(s, OOM_EFFORT_LINE, s->buckets.bytes, 0,
                    TEXT(s, "%s: gradients then need no copy",
                         oom_setting_text(s, OOM_SETTING_BUCKETS,
                                          "pass `gradient_as_bucket_view=True` to DistributedDataParallel")));
    }
}

/* Memory of a cell of a notebook that displayed its value. */
static bool is_displayed(const struct oom_sight *s, const struct result_category_line *l)
{
    return oom_notebook_displays_of(&s->displays, s->b->run, l->stack);
}

static void measure_displayed(struct oom_sight *s)
{
    if (!oom_notebook_cell(s->b->run, s->f->stack)) return;
    s->displays = oom_notebook_displayed(s->b->arena, s->b->run);
    const int64_t held = bytes_of_kind(s, is_displayed);
    if (!held) return;
    const size_t before = s->v->measures_n;
    const bool helps = add_drop(s, OOM_EFFORT_LINE, is_displayed, "without the memory of these cells", held,
                                TEXT(s,
                                     "end a cell's last line with a semicolon, so that Out[] does not keep its value: "
                                     "it holds %s, which `for n in list(Out): get_ipython().del_var(f'_{n}')` drops",
                                     SIZE(s, held)));
    if (helps && held >= s->f->live / 2) lead_measure(s, before);
}

static bool is_left(const struct oom_sight *s, const struct result_category_line *l)
{
    return oom_notebook_is_left(&s->left, s->b->run, l);
}

static void measure_left(struct oom_sight *s)
{
    s->left = oom_notebook_find_left(s->b->run, s->v, s->f->stack);
    const size_t before = s->v->measures_n;
    if (!s->left.file) return;
    s->certainty = s->left.failed ? RESULT_CERTAINTY_INFERRED : RESULT_CERTAINTY_GUESSED;
    s->refuted_by = s->left.failed ? "if variables hold this memory, too" : NULL;
    const char *text = s->left.failed
                           ? TEXT(s,
                                  "%s failed (%s), and IPython keeps its exception, which holds %s: run a cell with "
                                  "`1/0`, which replaces it, then `import gc; gc.collect()` in another",
                                  basename(s->left.file), s->left.failed, SIZE(s, s->left.bytes))
                           : TEXT(s,
                                  "if no later cell needs the %s that %s left: del its variables, then run `import gc; "
                                  "gc.collect()`; if it failed, run `1/0` first, which replaces its exception",
                                  SIZE(s, s->left.bytes), basename(s->left.file));
    if (add_drop(s, OOM_EFFORT_LINE, is_left, "without what that cell left", s->left.bytes, text) && s->left.failed)
        lead_measure(s, before);
}

static void measure_foreach(struct oom_sight *s)
{
    if (s->phase == OOM_STEP || s->foreach.bytes) {
        add_measure(s, OOM_EFFORT_LINE, s->foreach.bytes, 0,
                    TEXT(s, "set %s for the optimizer, which then works on one parameter at a time",
                         oom_setting_text(s, OOM_SETTING_FOREACH, "`foreach=False` (or `fused=True`)")));
    }
}

static void no_grad(struct oom_sight *s)
{
    const uint32_t pass = s->v->cause == RESULT_CAUSE_LEAK ? s->f->growing_stack : s->f->stack;
    /* a single line may be collecting its results, and so may those of a leak */
    bool sure = (s->repeating > 1 || oom_never_trains(s->b, s->f->stack)) && s->v->cause != RESULT_CAUSE_LEAK;
    if (oom_keeps_graph(s->f) || !(s->keeps || s->layers) ||
        !(s->evaluates || s->phase_new || (sure && (s->named || !s->trains))))
        return;
    static const char *const switches[] = {"set_grad_enabled("}; /* which way is not known */
    if (site_is_without_gradients(s->b, pass) ||
        (!(s->evaluates && s->keeps) && !site_source_lacks(s->b, pass, switches, COUNT_OF(switches))))
        return;
    if ((!s->evaluates && (s->phase_new || oom_is_in_training_file(s))) || !sure || s->layers) {
        s->certainty = RESULT_CERTAINTY_GUESSED;
        s->refuted_by = NULL;
    }
    size_t before = s->v->measures_n;
    struct oom_words words = {.b = s->b, .f = s->f, .v = s->v};
    const char *line = oom_pass_text(&words, pass);
    add_measure(s, OOM_EFFORT_LINE, s->kept, s->layers ? OOM_MEASURE_AT_MOST : 0,
                s->evaluates
                    ? TEXT(s,
                           "%s%sput `torch.inference_mode()` or `torch.no_grad()` around this forward pass (no "
                           "backward pass follows it)%s",
                           line ?: "", line ? ": " : "", sure ? "" : ", unless it is already there")
                    : "if no backward pass follows: use `torch.inference_mode()` or `torch.no_grad()`");
    if ((s->evaluates && (sure || (s->named && s->keeps))) || (s->layers && s->kept >= s->need))
        lead_measure(s, before);
}

static bool is_of_untrained(const struct oom_sight *s, const struct result_category_line *l)
{
    return l->category == RESULT_CATEGORY_ACTIVATIONS && site_untrained_call(s->b, l->stack) != RUN_NONE;
}

/* Activations of a teacher or a reference, to which no gradient must flow. */
static void measure_untrained(struct oom_sight *s)
{
    uint32_t heaviest = RUN_NONE;
    int64_t most = 0;
    if (!s->trains || s->evaluates) return;
    EACH_IN (l, s->v->by_category.lines) {
        if (l->bytes > most && is_of_untrained(s, l)) {
            most = l->bytes;
            heaviest = site_untrained_call(s->b, l->stack);
        }
    }
    const int64_t held = most ? bytes_of_kind(s, is_of_untrained) : 0;
    struct oom_words words = {.b = s->b, .f = s->f, .v = s->v};
    const size_t before = s->v->measures_n;
    if (!held) return;
    add_measure(s, OOM_EFFORT_LINE, held, OOM_MEASURE_AT_MOST,
                TEXT(s, "%s: put `torch.no_grad()` around this forward pass of a model that no optimizer trains",
                     oom_place_text(&words, heaviest)));
    if (held >= s->need) lead_measure(s, before);
}

/* The loss over a vocabulary: the logits of all tokens, and copies as large as they are. In CHUNKS pieces only one is
 * live at a time. */
static void measure_chunked_loss(struct oom_sight *s)
{
    enum { CHUNKS = 8, COPIES = 6 };
    const struct run *run = s->b->run;
    int64_t held = 0, alike = 0,
            block = s->f->stack != RUN_NONE && oom_is_in_loss(run, s->f->stack) ? s->f->requested : 0;
    EACH_IN (l, s->v->by_category.lines) {
        int64_t each = l->count ? l->bytes / (int64_t)l->count : 0;
        block = oom_is_in_loss(run, l->stack) && each > block ? each : block;
    }
    uint64_t alike_n = 0;
    for (size_t i = 0; block && i < s->v->by_category.lines_n; i++) {
        const struct result_category_line *l = &s->v->by_category.lines[i];
        int64_t each = l->count ? l->bytes / (int64_t)l->count : 0;
        bool passing = l->category == RESULT_CATEGORY_ACTIVATIONS || l->category == RESULT_CATEGORY_TEMPORARIES;
        if (passing && oom_is_in_loss(run, l->stack)) {
            held = arena_add_capped(held, l->bytes);
        } else if (passing && each >= block / 2 - block / 64 && each <= block + block / 64) {
            alike = arena_add_capped(alike, l->bytes);
            alike_n += l->count;
        }
    }
    /* the activations of many layers may be as large as the logits */
    held = arena_add_capped(held, alike_n > COPIES ? block : alike);
    int64_t frees = held - held / CHUNKS, left = s->need - (s->f->requested - s->f->requested / CHUNKS);
    if (!block || held < s->f->live / 4) return;
    size_t before = s->v->measures_n;
    add_measure(s, OOM_EFFORT_LINE, frees, frees >= left ? OOM_MEASURE_FITS : OOM_MEASURE_FITS_NOT,
                TEXT(s,
                     "compute the cross entropy in %d chunks, each with its backward pass, or use a fused loss (%s): "
                     "logits and their copies hold %s",
                     CHUNKS, oom_setting_text(s, OOM_SETTING_LOSS, "Liger, cut-cross-entropy"), SIZE(s, held)));
    lead_measure(s, before);
}

/* Of the largest kind of copies. */
static bool is_copy(const struct oom_sight *s, const struct result_category_line *l)
{
    return l->category == RESULT_CATEGORY_UNKNOWN && oom_copy_of(s->b->run, l->stack) == s->copy;
}

/* A checkpoint that is larger than the parameters, in a training whose optimizer has no states of its own: it has
 * loaded them, or will, and then refers to those of the checkpoint, or to copies of them. Adam has two of each
 * parameter. */
static int64_t loaded_states_of(const struct oom_sight *s, const struct oom_held *checkpoint)
{
    const int64_t parameters = s->of[RESULT_CATEGORY_PARAMETERS].bytes, more = checkpoint->bytes - parameters;
    const struct run *run = s->b->run;
    if (!s->trains || more < parameters / 2 || bytes_of_kind(s, is_kept_state) > parameters / 2 ||
        (!run_stack_is_in(run, checkpoint->heaviest, "/torch/serialization.py", NULL) &&
         !run_stack_is_in(run, checkpoint->heaviest, "/safetensors/torch.py", NULL)))
        return 0;
    return more < 2 * parameters ? more : 2 * parameters;
}

/* A checkpoint or a copy that is still live: the largest kind of them. */
static void measure_model_copies(struct oom_sight *s)
{
    const struct oom_holder *most = NULL;
    struct oom_held held = {.heaviest = RUN_NONE};
    const struct result_by_category *by = &s->v->by_category;
    for (size_t i = 0; i < by->lines_n; i++) {
        const struct oom_holder *of =
            by->lines[i].category == RESULT_CATEGORY_UNKNOWN ? oom_copy_of(s->b->run, by->lines[i].stack) : NULL;
        if (of && (!most || by->lines[i].bytes > held.most)) {
            held.most = by->lines[i].bytes;
            held.heaviest = by->lines[i].stack;
            most = of;
        }
    }
    for (size_t i = 0; most && i < by->lines_n; i++) {
        s->copy = most;
        held.bytes = arena_add_capped(held.bytes, is_copy(s, &by->lines[i]) ? by->lines[i].bytes : 0);
    }
    if (!most || held.bytes < s->f->live / 20) return;
    struct oom_words words = {.b = s->b, .f = s->f, .v = s->v};
    size_t before = s->v->measures_n;
    const char *place = oom_place_text(&words, held.heaviest);
    const int64_t states = loaded_states_of(s, &held);
    if (states) {
        const int64_t frees = held.bytes - states;
        add_measure(s, OOM_EFFORT_LINE, frees, frees >= s->need ? OOM_MEASURE_FITS : OOM_MEASURE_FITS_NOT,
                    TEXT(s, "%s, %s: %s; the other %s stay if the optimizer loads its states from there", place,
                         most->what, most->advice, SIZE(s, states)));
        if (frees >= s->need) lead_measure(s, before);
        return;
    }
    const bool fits = add_drop(s, OOM_EFFORT_LINE, is_copy, TEXT(s, "without what %s copied", place), held.bytes,
                               TEXT(s, "%s, %s: %s", place, most->what, most->advice));
    if (fits) lead_measure(s, before);
}

static bool is_data(const struct oom_sight *s, const struct result_category_line *l)
{
    static const char *const makes[] = {" = torch.zeros(", " = torch.empty(", " = torch.full(", " = torch.ones("};
    if (l->category != RESULT_CATEGORY_UNKNOWN || oom_copy_of(s->b->run, l->stack)) return false;
    bool is = category_is_copied(l->rule); /* or a buffer that it makes once and of which a step uses parts */
    for (size_t i = 0; i < sizeof makes / sizeof *makes && l->count <= 4 && !is; i++)
        is = l->bytes >= s->f->live / 4 && !oom_is_in_pass(s->b->run, l->stack) &&
             site_statement_has(s->b, l->stack, makes[i]) && site_takes_parts(s->b, l->stack);
    return is;
}

/* May they be a model's weights, which no batch can replace? */
static bool may_be_weights(const struct oom_sight *s, uint32_t stack)
{
    static const char *const loads[] = {"safe_open(", "load_file(", "state_dict"}, *const names[] = {"weight", "param"};
    return (site_runs_python(s->b->run, s->v->process) && run_stack_python(s->b->run, stack) == RUN_NONE) ||
           ANY_OF(l, loads, COUNT_OF(loads), site_function_has(s->b, stack, *l)) ||
           ANY_OF(x, names, COUNT_OF(names), site_statement_has(s->b, stack, *x));
}

/* Batches, or a whole data set, that were copied to the GPU in advance and are still there. */
static void measure_data(struct oom_sight *s)
{
    uint32_t heaviest = RUN_NONE;
    int64_t most = 0;
    EACH_IN (l, s->v->by_category.lines) {
        if (is_data(s, l) && l->bytes > most) {
            most = l->bytes;
            heaviest = l->stack;
        }
    }
    const int64_t held = bytes_of_kind(s, is_data);
    if (held == 0 || held < s->f->live / 4 || s->f->pending) return; /* pending passes keep their own inputs */
    struct oom_words words = {.b = s->b, .f = s->f, .v = s->v};
    if (may_be_weights(s, heaviest)) {
        s->certainty = RESULT_CERTAINTY_GUESSED;
        add_measure(s, OOM_EFFORT_LINE, held, OOM_MEASURE_AT_MOST,
                    TEXT(s,
                         "%s puts %s on the GPU: if that is data, copy each batch when needed; if these are weights, "
                         "load them in bf16, or leave a part of them on the host",
                         oom_place_text(&words, heaviest), SIZE(s, held)));
        return;
    }
    (void)add_drop(
        s, OOM_EFFORT_LINE, is_data, "without that data", held,
        TEXT(
            s,
            "%s: this line puts %s of data on the GPU in advance; keep it on the host, and copy each batch when needed",
            oom_place_text(&words, heaviest), SIZE(s, held)));
}

static void key_value_cache(struct oom_sight *s)
{
    add_measure(s, OOM_EFFORT_ARGUMENT, s->cache.bytes / 2, 0,
                TEXT(s,
                     "process half as many sequences at once, or half as long ones: the cache of keys and values "
                     "holds %s",
                     SIZE(s, s->cache.bytes)));
}

/* The request, if the GPU had that much more free. */
static void decide_free(struct oom_sight *s, int64_t more, const char *name)
{
    const int64_t free_bytes = run_is_known(s->f->free) ? s->f->free : 0;
    const struct oom_replayed r = oom_layout_replay(s->b, s->f, NULL, arena_add_capped(free_bytes, more));
    if (r.known) s->measure = (struct result_measure){.replayed = name, .fits = r.fits, .spare_bytes = r.spare_bytes};
}

/* GPUSPY_LIMIT's cap, raised by the bytes that the request needs. */
static void measure_limit(struct oom_sight *s)
{
    if (!s->v->capped || !run_is_known(s->f->total)) return;
    decide_free(s, s->need, TEXT(s, "with a cap of %s", SIZE(s, arena_add_capped(s->f->total, s->need))));
    if (s->measure.replayed && !s->measure.fits) return;
    add_measure(
        s, OOM_EFFORT_DEVICE, s->need, 0,
        TEXT(s, "raise GPUSPY_LIMIT, now %s, by at least %s, or unset it", SIZE(s, s->f->total), SIZE(s, s->need)));
}

/* Not if they are the cause: the cause already has this advice. */
static void measure_others(struct oom_sight *s)
{
    const struct run_device_sample *nvml = s->f->nvml;
    if (s->v->cause == RESULT_CAUSE_OTHER_PROCESS || !nvml || !run_is_known(nvml->other_bytes) || !nvml->other_pid)
        return;
    decide_free(s, nvml->other_bytes, TEXT(s, "without process %u", nvml->other_pid));
    add_measure(s, OOM_EFFORT_SETTING, nvml->other_bytes, 0,
                TEXT(s, "end process %u%s%s%s, or choose another GPU", nvml->other_pid, nvml->other_name ? " (" : "",
                     nvml->other_name ? nvml->other_name : "", nvml->other_name ? ")" : ""));
}

#define OF(cause) (1u << RESULT_CAUSE_##cause)
/* Against a leak, less of anything else only delays the failure; pinned memory is host memory; a request larger than
 * the GPU fits in no case. */
#define SPACE (OF(CAPACITY) | OF(FRAGMENTATION) | OF(OTHER_PROCESS) | OF(ALLOCATOR_CAP) | OF(OUTSIDE_ALLOCATOR))

/* `certainty` of the amount: inferred from recorded blocks, unless it depends on facts that no call states (the
 * precision, the shape of the graph). `refuted_by`: the observation that would show that it is wrong. */
static const struct {
    uint32_t causes;
    void (*add)(struct oom_sight *s);
    enum result_certainty certainty;
    const char *refuted_by;
} measures[] = {
#define GUESSED RESULT_CERTAINTY_GUESSED
#define INFERRED RESULT_CERTAINTY_INFERRED
#define RECORDED RESULT_CERTAINTY_RECORDED
    {OF(CAPACITY) | OF(FRAGMENTATION) | OF(OTHER_PROCESS) | OF(OUTSIDE_ALLOCATOR), measure_expandable, INFERRED,
     "if expandable segments place the blocks less well"},
    {OF(FRAGMENTATION), other_settings, INFERRED, NULL},
    {SPACE, measure_batch, INFERRED, "if these tensors do not grow with the batch"},
    {SPACE, measure_checkpoint, GUESSED, NULL},
    {SPACE, measure_precision, GUESSED, NULL},
    {SPACE, eight_bit, GUESSED, NULL},
    {SPACE, measure_zero, INFERRED, "if the optimizer is sharded already"},
    {SPACE | OF(LEAK), measure_gradients, INFERRED, "if the gradients are accumulated on purpose"},
    {SPACE, measure_foreach, INFERRED, "if the optimizer has no such argument"},
    {SPACE | OF(LEAK), no_grad, INFERRED, "if a backward pass was to follow it"},
    {SPACE, measure_untrained, INFERRED, "if a gradient must flow through it"},
    {SPACE | OF(LEAK), measure_displayed, INFERRED, "if variables hold this memory, too"},
    {SPACE, measure_left, GUESSED, NULL},
    {SPACE, measure_chunked_loss, INFERRED, "if the loss runs in chunks already"},
    {SPACE, measure_model_copies, INFERRED, "if the program still reads it"},
    {SPACE, measure_data, INFERRED, "if each step needs all of it on the GPU"},
    {SPACE, key_value_cache, INFERRED, "if the cache has a fixed length"},
    {SPACE | OF(PREALLOCATION), measure_others, RECORDED, NULL},
    {SPACE | OF(LEAK) | OF(OVERSIZED_REQUEST), measure_limit, RECORDED, NULL},
#undef GUESSED
#undef INFERRED
#undef RECORDED
};

static void advise_measures(struct site_builder *b, struct result_oom_verdict *v, struct category_finder *c,
                            bool training, const struct oom_replays *replays)
{
    struct oom_sight s = oom_sight_of(b, v, c, training);
    s.replays = replays;
    bool served = (!v->fatal && !v->handled) || oom_found_batch(b, v); /* a retry or a smaller batch succeeded */
    for (size_t i = 0; i < sizeof measures / sizeof *measures; i++) {
        if (!served && (measures[i].causes & (1u << v->cause))) {
            s.certainty = measures[i].certainty;
            s.refuted_by = measures[i].refuted_by;
            measures[i].add(&s);
        }
    }
    const bool helped = served || (v->cause != RESULT_CAUSE_CAPACITY && v->measures_n > 0) ||
                        ANY_OF(m, v->measures, v->measures_n, m->enough && m->effort != OOM_EFFORT_DEVICE); /* or may */
    if (!helped) oom_advise_otherwise(&s, training);
    oom_choose_measures(b, v);
}

void oom_add_advice(struct site_builder *b)
{
    struct result_report *r = b->report;
    struct category_finder *c = category_finder_new(b->run);
    struct oom_replays *replays = oom_replay_start(b);
    bool training = r->ooms_n && oom_trains(b->run);
    for (size_t i = 0; i < r->ooms_n; i++) advise_measures(b, &r->ooms[i], c, training, replays);
    oom_replay_free(replays);
    category_finder_free(c);
}
