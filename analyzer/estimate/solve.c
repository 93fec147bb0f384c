/* Searches for the largest value, or the fewest GPUs, that fit. The result and the next value are both computed: no
 * formula is inverted. */
#include "analyzer/estimate/solve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/estimate/gpu.h"

const char estimate_solve_words[] =
#define SOLVE(id, word, what) word "|"
    SOLVE_WHATS(SOLVE)
#undef SOLVE
        "";
#define SOLVE(id, word, what) word,
const char *const estimate_solve_word[] = {SOLVE_WHATS(SOLVE)};
#undef SOLVE
#define SOLVE(id, word, what) what,
const char *const estimate_solve_words_of[] = {SOLVE_WHATS(SOLVE)};
#undef SOLVE

enum { LIMIT_BATCH = 1 << 20, LIMIT_SEQ = 1 << 24, LIMIT_LAYERS = 100000, LIMIT_GPUS = 16384 };

struct search {
    const struct plan *p;
    enum estimate_solve_what what;
    uint64_t step;      /* values are multiples of it */
    struct model model; /* with other layers; its tensors are a copy */
    struct estimate_result result;
};

static uint64_t scale_rounded_up(uint64_t n, uint64_t from, uint64_t to)
{
    return (uint64_t)llround((double)n * (double)to / (double)from);
}

/* The same model with `layers` layers. */
static bool with_layers(struct search *s, uint64_t layers)
{
    const struct model *m = s->p->model;
    uint64_t from = m->shape.layers, of_groups = 0;
    struct model_tensor *tensors = s->model.tensors;

    s->model = *m;
    s->model.tensors = tensors;
    s->model.params = 0;
    s->model.shape.layers = layers;
    s->model.shape.moe_layers = scale_rounded_up(m->shape.moe_layers, from, layers);
    s->model.shape.window_layers = scale_rounded_up(m->shape.window_layers, from, layers);
    for (unsigned i = 0; i < m->shape.blocks_n; i++) { /* their sum is `layers` */
        const uint64_t before = scale_rounded_up(of_groups, from, layers);
        of_groups += m->shape.blocks[i].layers;
        s->model.shape.blocks[i].layers = (uint32_t)(scale_rounded_up(of_groups, from, layers) - before);
    }
    for (size_t i = 0; i < m->tensors_n; i++) {
        unsigned __int128 params;
        tensors[i] = m->tensors[i];
        if (tensors[i].place == TENSOR_IN_LAYER) {
            tensors[i].count = scale_rounded_up(tensors[i].count, from, layers);
            tensors[i].bytes = tensors[i].bytes * (double)layers / (double)from;
        }
        params = (unsigned __int128)tensors[i].rows * tensors[i].cols * tensors[i].count;
        if (params > MODEL_PARAMS_MAX - s->model.params) return false;
        s->model.params += (uint64_t)params;
    }
    return true;
}

/* The peak with `value`; infinite if it cannot be computed. */
static struct estimate_interval peak_at_value(struct search *s, uint64_t value)
{
    struct plan p = *s->p;
    bool known = true;

    if (s->what == SOLVE_BATCH)
        p.batch = value;
    else if (s->what == SOLVE_SEQ)
        p.seq = value;
    else if (s->what == SOLVE_LAYERS) {
        known = with_layers(s, value);
        p.model = &s->model;
    }
    if (!known || !plan_possible(&p) || !estimate_make(&p, &s->result)) return EXACTLY(INFINITY);
    return s->result.peak;
}

static bool is_within_memory(struct estimate_interval peak, double memory, bool surely)
{
    return (surely ? peak.high : peak.likely) <= memory;
}

static void find_largest(struct search *s, uint64_t limit, bool surely, struct estimate_solve_answer *a)
{
    double memory = s->p->memory;
    uint64_t fits = 0, not = 1, most = limit / s->step;
    struct estimate_interval peak;

    for (;;) { /* fits·step fits, not·step may not */
        peak = peak_at_value(s, not *s->step);
        if (!is_within_memory(peak, memory, surely)) break;
        fits = not ;
        if (fits == most) break;
        not = fits > most / 2 ? most : fits * 2;
    }
    while (fits != most && not -fits > 1) {
        uint64_t middle = fits + (not -fits) / 2;
        if (is_within_memory(peak_at_value(s, middle * s->step), memory, surely))
            fits = middle;
        else
            not = middle;
    }
    if (!fits) return;
    a->any = true;
    a->limited = fits == most;
    a->value = fits * s->step;
    a->peak = peak_at_value(s, a->value);
    if (!a->limited) a->next = peak_at_value(s, a->value + s->step);
    snprintf(a->option, sizeof a->option, "--%s %ju", estimate_solve_word[s->what], (uintmax_t)a->value);
}

static uint64_t gpus_of_node(const struct plan *p)
{
    return p->gpus_per_node ? p->gpus_per_node : p->gpu && p->gpu->node > 0 ? (uint64_t)p->gpu->node : 8;
}

static void take_solution(struct estimate_solve_answer *a, const struct plan *p, struct estimate_interval peak,
                          struct estimate_interval before)
{
    int n;

    a->any = true;
    a->value = p->gpus;
    a->peak = peak;
    a->next = before;
    n = snprintf(a->option, sizeof a->option, "--gpus %ju", (uintmax_t)p->gpus);
    if (p->tp > 1)
        n += snprintf(a->option + n, sizeof a->option - (size_t)n, " --tp %ju%s", (uintmax_t)p->tp,
                      p->sequence_parallel ? " --sequence-parallel" : "");
    if (p->pp > 1) n += snprintf(a->option + n, sizeof a->option - (size_t)n, " --pp %ju", (uintmax_t)p->pp);
    if (p->sharding == PLAN_SHARDING_ZERO3) snprintf(a->option + n, sizeof a->option - (size_t)n, " --sharding zero3");
}

static struct estimate_interval peak_on(const struct plan *p)
{
    static struct estimate_result r;

    return estimate_make(p, &r) ? r.peak : EXACTLY(INFINITY);
}

/* Tries one division; true when both answers are found. */
static bool try_gpus(const struct plan *p, struct estimate_solution *s, struct estimate_interval *before)
{
    struct estimate_interval peak;

    if (!plan_possible(p)) return false;
    peak = peak_on(p);
    if (!s->likely.any && is_within_memory(peak, p->memory, false)) take_solution(&s->likely, p, peak, *before);
    if (!s->surely.any && is_within_memory(peak, p->memory, true)) take_solution(&s->surely, p, peak, *before);
    *before = peak;
    return s->surely.any;
}

/* For a server: tp within a machine, then pipeline stages; the fewest GPUs first, and among these the fewest stages. */
static void fewest_serving(const struct plan *base, struct estimate_solution *s)
{
    uint64_t node = gpus_of_node(base), stages = base->model->shape.layers ? base->model->shape.layers : 1;
    struct estimate_interval before = {0, 0, 0};

    for (uint64_t n = 1; n <= s->limit; n++)
        for (uint64_t pp = 1; pp <= n && pp <= stages; pp++) {
            struct plan p = *base;
            if (n % pp || stages % pp || n / pp > node) continue;
            p.gpus = n;
            p.pp = pp;
            p.tp = n / pp;
            p.cp = p.ep = 1;
            if (try_gpus(&p, s, &before)) return;
        }
}

/* Divisions of a training by tp, into n·ep copies of the model with different data. */
struct divisions {
    struct plan p;
    uint64_t group, step, most; /* GPUs of one copy of the model; copies per n; the largest n */
};

/* False if the plan is impossible. */
static bool with_groups(struct divisions *d, uint64_t n, struct estimate_interval *peak)
{
    d->p.gpus = n * d->step * d->group;
    if (!plan_possible(&d->p)) return false;
    *peak = peak_on(&d->p);
    return true;
}

/* Each GPU's part shrinks as GPUs are added, and what is gathered grows to two layers at most: after the first few,
 * more GPUs never need more memory (tests/unit/test_solve.c), so the rest is bisected instead of walked. */
static void fewest_groups(struct divisions *d, bool surely, struct estimate_solve_answer *a)
{
    enum { WALKED = 64 };
    double memory = d->p.memory;
    uint64_t not = 0, fits = 0;
    struct estimate_interval peak, before = {0, 0, 0};

    for (uint64_t n = 1; n <= d->most && !fits;) {
        if (with_groups(d, n, &peak)) *(is_within_memory(peak, memory, surely) ? &fits : &not ) = n;
        n = n < WALKED || n == d->most ? n + 1 : n > d->most / 2 ? d->most : 2 * n;
    }
    if (!fits) return;
    while (fits - not > 1) {
        uint64_t middle = not +(fits - not ) / 2;
        if (with_groups(d, middle, &peak) && is_within_memory(peak, memory, surely))
            fits = middle;
        else
            not = middle;
    }
    if (not ) with_groups(d, not, &before);
    with_groups(d, fits, &peak);
    take_solution(a, &d->p, peak, before);
}

/* Where the high end fits on fewer GPUs by more `tp`, the expected need does too. */
static void fewest_training(const struct plan *base, uint64_t tp, struct estimate_solution *s)
{
    struct divisions d = {.p = *base, .group = tp * base->pp * base->cp, .step = base->ep};

    d.p.tp = tp;
    d.p.sequence_parallel |= tp > base->tp && base->seq % (tp * base->cp) == 0;
    d.most = s->limit / (d.group * d.step);
    if (!s->likely.any) fewest_groups(&d, false, &s->likely);
    if (!s->surely.any) fewest_groups(&d, true, &s->surely);
    if (s->surely.any && s->surely.value < s->likely.value) fewest_groups(&d, false, &s->likely);
}

static void find_fewest_gpus(const struct plan *p, struct estimate_solution *s)
{
    struct plan sharded = *p;

    if (p->inference) {
        fewest_serving(p, s);
        if (!s->likely.any)
            snprintf(s->note, sizeof s->note,
                     "no combination of --tp and --pp is enough%s; try a smaller --batch or --seq, "
                     "or --weights with fewer bits",
                     p->model->shape.layers ? "" : " (without a shape, only --tp is tried)");
        return;
    }
    if (p->sharding == PLAN_SHARDING_DDP) { /* more GPUs would divide nothing */
        struct estimate_interval before = {0, 0, 0};
        sharded.gpus = p->tp * p->pp * p->cp * p->ep;
        if (try_gpus(&sharded, s, &before)) return;
        sharded.sharding = PLAN_SHARDING_ZERO3;
        snprintf(s->note, sizeof s->note,
                 "with DDP every GPU holds everything; for more than one GPU --sharding zero3 "
                 "(FSDP) is assumed");
    }
    fewest_training(&sharded, p->tp, s);
    for (uint64_t tp = 2; !s->surely.any && p->tp == 1 && tp <= gpus_of_node(p); tp *= 2)
        fewest_training(&sharded, tp, s);
    if (p->tp == 1 && (strstr(s->likely.option, "--tp") || strstr(s->surely.option, "--tp")))
        snprintf(
            s->note, sizeof s->note,
            "one GPU cannot hold what data parallelism leaves undivided: tensor and sequence parallelism are used");
    if (!s->likely.any)
        snprintf(s->note, sizeof s->note,
                 "more GPUs do not reduce what each keeps for its own batch; try a smaller --batch "
                 "or --checkpointing first");
}

/* Adds what the question needs, and notes what it assumed. */
static bool prepare_solution(const char *command, struct plan *p, struct estimate_solution *s)
{
    const struct model_shape *shape = &p->model->shape;
    bool images = shape->family == MODEL_VIT || shape->family == MODEL_CONV || shape->family == MODEL_DENOISER;

    if (!(p->memory > 0)) {
        return complain_with(false, "%s: --solve needs the amount of memory; add --gpu h100-80g or --memory 80GiB",
                             command);
    }
    if (s->what == SOLVE_LAYERS && !shape->layers) {
        return complain_with(
            false, "%s: --solve layers: the model's layers are unknown; add --model, or --layers, --hidden …", command);
    }
    if (s->what == SOLVE_LAYERS && strcmp(p->model->source, "options") != 0)
        snprintf(s->note, sizeof s->note,
                 "--layers is refused beside --model: change num_hidden_layers in a copy of the model's config.json");
    if (s->what == SOLVE_SEQ && images)
        return complain_with(false, "%s: --solve seq: images have no sequence length to choose", command);
    if (s->what == SOLVE_SEQ && !p->batch) {
        p->batch = 1;
        snprintf(s->note, sizeof s->note, "--batch 1 is assumed");
    }
    if (s->what == SOLVE_BATCH && !p->seq && !images && shape->layers) {
        p->seq = plan_positions(shape) ? plan_positions(shape) : shape->context ? shape->context : 2048;
        snprintf(s->note, sizeof s->note, "--seq %ju%s is assumed", (uintmax_t)p->seq,
                 shape->context || shape->positions ? " (the model's context)" : "");
    }
    return true;
}

static uint64_t limit_of(const struct plan *p, enum estimate_solve_what what)
{
    uint64_t positions = plan_positions(&p->model->shape);

    switch (what) {
    case SOLVE_BATCH: return LIMIT_BATCH;
    case SOLVE_SEQ: return positions && positions < LIMIT_SEQ ? positions : LIMIT_SEQ;
    case SOLVE_LAYERS: return LIMIT_LAYERS;
    default: return LIMIT_GPUS;
    }
}

static uint64_t solve_step_of(const struct plan *p, enum estimate_solve_what what)
{
    if (what == SOLVE_SEQ) return p->cp * (p->sequence_parallel ? p->tp : 1);
    if (what == SOLVE_LAYERS) return p->pp * p->interleave;
    return 1;
}

bool estimate_solve(const char *command, const struct plan *plan, enum estimate_solve_what what,
                    struct estimate_solution *s)
{
    static struct search search;
    struct plan p = *plan;
    bool asked = true;

    *s = (struct estimate_solution){.what = what, .memory = p.memory, .limit = limit_of(&p, what)};
    if (!prepare_solution(command, &p, s)) return false;
    if (what == SOLVE_GPUS) {
        find_fewest_gpus(&p, s);
        return true;
    }
    search = (struct search){.p = &p, .what = what, .step = solve_step_of(&p, what)};
    if (search.step > s->limit) s->limit = search.step;
    search.model.tensors = arena_zeroed(p.model->tensors_n + 1, sizeof *search.model.tensors);
    if (what != SOLVE_LAYERS && peak_at_value(&search, search.step).likely == peak_at_value(&search, s->limit).likely &&
        isfinite(search.result.peak.likely)) {
        complain(
            "%s: --solve %s: nothing in this estimate depends on it; add --model or a shape to include activations",
            command, estimate_solve_word[what]);
        asked = false;
    } else {
        find_largest(&search, s->limit, true, &s->surely);
        find_largest(&search, s->limit, false, &s->likely);
        if (s->likely.limited && what == SOLVE_SEQ && plan_positions(&p.model->shape) == s->limit)
            snprintf(s->note, sizeof s->note, "the model has no more than %ju positions", (uintmax_t)s->limit);
        else if (what == SOLVE_SEQ && p.model->shape.context && s->likely.any &&
                 s->likely.value > p.model->shape.context)
            snprintf(s->note, sizeof s->note, "the memory holds this many tokens; the model was trained for %ju tokens",
                     (uintmax_t)p.model->shape.context);
    }
    free(search.model.tensors);
    return asked;
}
