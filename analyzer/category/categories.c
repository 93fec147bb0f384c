/* The memory that was live at each peak and at each failure, by category: one more pass over the rows, which examines
 * the blocks that were live then. */
#include "analyzer/allocator/allocator.h"
#include "analyzer/category/categories.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/category/category_use.h"
#include "analyzer/step/step.h"
#include "analyzer/category/category.h"
#include "analyzer/base/sort.h"
#include "analyzer/run/run.h"
#include "analyzer/base/arena.h"

enum { ROWS = 200000, FATES = 6 }; /* ROWS: earlier allocations to examine, some steps of a large model */

struct likes { /* of a stack and a size */
    struct fate {
        unsigned rule;
        uint64_t count;
        size_t longest; /* life, in allocations and frees of the process */
    } fates[FATES];
    unsigned n;
};

struct end {
    uint32_t stack;
    unsigned rule;
    int64_t bytes, alloc_ns, free_ns;
};

/* The probable category of a block whose life the end of the run cut short: the category of earlier blocks of its call
 * path and size that lived at least as long, in allocations and frees. Unknown for a block that has outlived them all.
 */
struct category_alike {
    struct category_finder *categorizer;
    bool python;
    const struct category_uses *uses;
    uint32_t process;
    int64_t until_ns;
    struct map stacks; /* wanted */
    struct map index;  /* stack, size → likes; a size of 0: any */
    struct likes *list;
    size_t n, cap;
    int64_t *clock; /* when each allocation and free was: lives are compared in events, which do not depend on the
                       machine's load */
    size_t clock_n, clock_cap;
    ARENA_LIST(struct end, ends);
};

static void category_alike_free(struct category_alike *a)
{
    MAP_RELEASE(&a->stacks, &a->index);
    ARENA_RELEASE(a->list, a->clock, a->ends, a);
}

static uint64_t alike_key(uint32_t stack, int64_t bytes)
{
    return map_hash((uint64_t)bytes) ^ stack;
}

/* Announces that category_alike_rule will be called for these. */
static void category_alike_request(struct category_alike *a, uint32_t stack, int64_t bytes)
{
    const uint64_t keys[] = {alike_key(stack, bytes), alike_key(stack, 0)};
    *map_at(&a->stacks, stack) = 1;
    for (size_t i = 0; i < 2; i++) (void)MAP_INDEX(&a->index, keys[i], a->list, a->n, a->cap, (struct likes){.n = 0});
}

static void add_alike(struct category_alike *a, uint64_t key, unsigned rule, size_t life)
{
    uint32_t at = map_get(&a->index, key);
    if (at == MAP_NEW) return;
    struct likes *l = &a->list[at];
    unsigned i = 0;
    while (i < l->n && l->fates[i].rule != rule) i++;
    if (i == FATES) return;
    struct fate *f = &l->fates[i];
    if (i == l->n) {
        l->n++;
        *f = (struct fate){.rule = rule};
    }
    f->count++;
    f->longest = life > f->longest ? life : f->longest;
}

/* Allocations and frees up to then, of those that were examined. */
static size_t calls_until(const struct category_alike *a, int64_t time_ns)
{
    return SORT_COUNT(a->clock_n, i, a->clock[i] <= time_ns);
}

static void alike_on_last(void *self, const struct run_lifetime *life, uint32_t free_stack)
{
    struct category_alike *a = self;
    *ARENA_ADD(a->clock) = life->alloc_ns;
    if (life->free_ns > a->until_ns) return;
    *ARENA_ADD(a->clock) = life->free_ns;
    if (map_get(&a->stacks, life->stack) == MAP_NEW) return;
    struct category_block block = {
        .stack = life->stack,
        .free_stack = free_stack,
        .tensor = life->layer != GS_LAYER_DEVICE,
        .python = a->python,
        .use = category_uses_of(a->uses, a->process, life->stack, life->alloc_ns, life->free_ns)};
    ARENA_APPEND(a->ends, .stack = life->stack, .rule = category_rule(a->categorizer, &block), .bytes = life->bytes,
                 .alloc_ns = life->alloc_ns, .free_ns = life->free_ns);
}

/* Reads the blocks that were freed by `until_ns`; call once. */
static bool category_alike_read(struct category_alike *a, struct run *run, uint32_t process, int64_t until_ns,
                                char *error, size_t error_size)
{
    a->process = process;
    a->until_ns = until_ns;
    if (!a->n) return true;
    bool ok = run_each_last(run, process, ROWS, alike_on_last, a, error, error_size);
    SORT(a->clock, a->clock_n, sort_int64_up);
    EACH_IN (e, a->ends) {
        size_t life = calls_until(a, e->free_ns) - calls_until(a, e->alloc_ns);
        add_alike(a, alike_key(e->stack, e->bytes), e->rule, life);
        add_alike(a, alike_key(e->stack, 0), e->rule, life);
    }
    return ok;
}

/* The rule of a block that was live at `until_ns`, see category_rule_count; RUN_NONE: there is none. */
static unsigned category_alike_rule(const struct category_alike *a, uint32_t stack, int64_t bytes, int64_t alloc_ns)
{
    const uint64_t keys[] = {alike_key(stack, bytes), alike_key(stack, 0)};
    size_t age = calls_until(a, a->until_ns) - calls_until(a, alloc_ns);
    for (size_t k = 0; k < 2; k++) {
        uint32_t at = map_get(&a->index, keys[k]);
        const struct likes *l = at == MAP_NEW ? NULL : &a->list[at];
        const struct fate *most = NULL;
        for (unsigned i = 0; l && i < l->n; i++) {
            const struct fate *f = &l->fates[i];
            if (f->longest + f->longest / 2 >= age && (!most || f->count > most->count)) most = f;
        }
        if (most) {
            return category_of_rule(most->rule) == RESULT_CATEGORY_UNKNOWN ? RUN_NONE
                                                                           : most->rule + category_rule_count() / 2;
        }
        if (l && l->n) /* there were some of exactly this size, and it has outlived them */
            return RUN_NONE;
    }
    return RUN_NONE;
}

enum {
    AGE = 2,         /* steps that are over: no activation lives that long */
    LARGE = 1 << 20, /* the rest that PyTorch may leave in a large block */
};

#define NO_MOMENT SIZE_MAX

struct place { /* a peak, or a failure; ordered by time */
    int64_t time_ns;
    struct result_by_category *to;
    int64_t bytes; /* all live bytes; RUN_UNKNOWN: the sum of the blocks that are found */
    int device;
    enum run_series_layer layer;
    struct result_peak *peak; /* NULL: a failure */
    size_t moment;            /* of allocator.h, which is examined in the same pass; NO_MOMENT */
    int64_t *by_rule;
    uint64_t *count_by_rule;
    bool stated;      /* an optimizer set up state that was live */
    bool unrequested; /* what was requested is unknown of a parameter, gradient or state */
    struct map sizes; /* size_of_block or size_of_request, and category → blocks */
    struct map index; /* by stack and rule */
    ARENA_LIST(struct result_category_line, by_stack);
};

/* Live at the end of the run's work: freed by the tear-down, or never. A free without a stack may be by autograd's
 * thread, when a last backward pass ended or failed. When backward returns, the program's thread frees something, so
 * frees before the last such free are autograd's. That is known only after all rows are read. */
struct late {
    uint32_t place, stack;
    int64_t bytes, requested, alloc_ns, free_ns;
    struct category_block block;
    int64_t like; /* the block size that it was found to have */
    unsigned rule;
    uint8_t round;
};

struct work {
    struct site_builder *b;
    struct category_finder *categorizer;
    const struct step_list *steps; /* NULL none */
    struct place *places;
    size_t n, cap;
    bool python, torch_device[128]; /* torch_device: has tensors of its own */
    bool died;                   /* of an OOM, or killed: the lives of the blocks that were live then were cut short */
    unsigned failed_doing;       /* of the OOM */
    int64_t end_ns, backward_ns; /* the last allocation, or the OOM; the last free in backward after it */
    ARENA_LIST(struct late, late);
};

/* Did the run end with that failure? Handlers may still allocate something. */
static bool ended_with(const struct work *w, const struct run_process *p, int64_t time_ns)
{
    int64_t after = p->last_alloc_ns - time_ns;
    return w->steps ? step_count_done(w->steps, p->last_alloc_ns) <= step_count_done(w->steps, time_ns) + 1
                    : after < 1000000000 || after < time_ns / 10;
}

static void find_end(struct work *w, uint32_t process)
{
    size_t n;
    const struct run_process *p = run_process_at(w->b->run, process);
    const struct run_oom *ooms = run_ooms(w->b->run, &n), *last = NULL;
    for (size_t i = 0; i < n; i++) last = ooms[i].process == process && ooms[i].fatal ? &ooms[i] : last;
    w->end_ns = p->last_alloc_ns;
    w->died = !p->complete && !p->recording;
    w->failed_doing = 0;
    if (last && ended_with(w, p, last->time_ns)) {
        w->died = true;
        w->failed_doing = category_activity(w->categorizer, last->stack);
        w->end_ns = last->time_ns;
    }
}

static void start_category_process(struct work *w, uint32_t process)
{
    const struct run *run = w->b->run;
    w->steps = step_list_of(w->b, process);
    if (w->steps && w->steps->source == STEP_SOURCE_PERIOD && run_stack_is_in(run, w->steps->stack, NULL, "_call_impl"))
        w->steps = NULL; /* the loop over the layers of a pass */
    find_end(w, process);
    w->backward_ns = 0;
    w->late_n = 0;
    memset(w->torch_device, 0, sizeof w->torch_device);
    for (size_t i = 0; i < run_series_count(run); i++) {
        const struct run_series *s = run_series(run, (uint32_t)i);
        if (s->process == process && s->layer == RUN_SERIES_TENSOR && s->device >= 0 && s->device < 128)
            w->torch_device[s->device] = true;
    }
}

static struct place *place_add(struct work *w, int64_t time_ns, struct result_by_category *to)
{
    struct place *p = ARENA_PUSH(w->places, w->n, w->cap);
    *p = (struct place){.time_ns = time_ns, .to = to, .moment = NO_MOMENT};
    p->by_rule = arena_realloc(NULL, category_rule_count(), sizeof *p->by_rule);
    p->count_by_rule = arena_realloc(NULL, category_rule_count(), sizeof *p->count_by_rule);
    memset(p->by_rule, 0, category_rule_count() * sizeof *p->by_rule);
    memset(p->count_by_rule, 0, category_rule_count() * sizeof *p->count_by_rule);
    return p;
}

static void list_places(struct work *w, uint32_t process)
{
    struct result_report *r = w->b->report;
    EACH_IN (peak, r->peaks) {
        if (peak->process == process && peak->bytes > 0) {
            struct place *p = place_add(w, peak->time_ns, &peak->by_category);
            p->peak = peak;
            p->bytes = peak->bytes;
            p->device = peak->device;
            p->layer = peak->layer;
        }
    }
    EACH_IN (v, r->ooms) {
        if (v->process == process && v->live_sum != RUN_UNKNOWN && v->live_sum > 0) {
            struct place *p = place_add(w, v->time_ns, &v->by_category);
            p->bytes = v->live_sum;
            p->device = v->live_layer == RUN_SERIES_PINNED ? -1 : v->device;
            p->layer = v->live_layer;
        }
    }
}

/* For observers: the blocks that outlived the run. */
static void list_ends(struct work *w, uint32_t process)
{
    struct result_report *r = w->b->report;
    if (!w->b->options->watch) return;
    if (!r->ends) r->ends = arena_alloc(w->b->arena, (r->peaks_n + 1) * sizeof *r->ends);
    EACH_IN (peak, r->peaks) {
        if (peak->process == process && peak->bytes > 0) {
            struct result_category_end *end = &r->ends[r->ends_n++];
            *end = (struct result_category_end){
                .process = process, .device = peak->device, .layer = peak->layer, .end_ns = w->end_ns};
            struct place *p = place_add(w, w->end_ns, &end->by_category);
            p->bytes = RUN_UNKNOWN;
            p->device = peak->device;
            p->layer = peak->layer;
        }
    }
}

static void list_category_moments(struct work *w, uint32_t process)
{
    size_t n;
    const int64_t *moments = allocator_moments(w->b, process, &n);
    for (size_t i = 0; i < n; i++) place_add(w, moments[i], NULL)->moment = i;
}

SORT_ORDER(order_category_moments, struct place, SORT_UP(x->time_ns, y->time_ns))

/* PyTorch's large blocks may have a rest of up to 1 MiB; compared where not all requests are known. */
static uint64_t size_of_block(int64_t bytes)
{
    return (uint64_t)(bytes > LARGE ? (bytes + LARGE - 1) / LARGE * LARGE : bytes) << 1;
}

static uint64_t size_of_request(int64_t bytes)
{
    return (uint64_t)bytes << 1 | 1;
}

static uint32_t *of_size(struct place *p, enum result_category category, uint64_t size)
{
    uint32_t *n = map_at(&p->sizes, size << 4 | category);
    *n = *n == MAP_NEW ? 0 : *n;
    return n;
}

/* A parameter has several optimizer states, but one for each call path. */
static void count_of_size(struct place *p, uint32_t stack, enum result_category category, uint64_t size)
{
    uint32_t n = *of_size(p, category, size) + 1;
    if (category == RESULT_CATEGORY_OPTIMIZER_STATE) {
        uint32_t *own = map_at(&p->sizes, map_hash(size) ^ ~(uint64_t)stack);
        *own = *own == MAP_NEW ? 1 : *own + 1;
        n = *own < n ? n - 1 : n;
    }
    *of_size(p, category, size) = n;
}

static void count_size(struct place *p, uint32_t stack, enum result_category category, int64_t bytes, int64_t requested)
{
    count_of_size(p, stack, category, size_of_block(bytes));
    p->unrequested = p->unrequested || (requested == RUN_UNKNOWN && (category == RESULT_CATEGORY_PARAMETERS ||
                                                                     category == RESULT_CATEGORY_GRADIENTS ||
                                                                     category == RESULT_CATEGORY_OPTIMIZER_STATE));
    if (requested != RUN_UNKNOWN) count_of_size(p, stack, category, size_of_request(requested));
}

static void count_category(struct place *p, uint32_t stack, unsigned rule, int64_t bytes)
{
    p->by_rule[rule] = arena_add_capped(p->by_rule[rule], bytes);
    p->count_by_rule[rule]++;
    struct result_category_line *line =
        MAP_ROW_IN(&p->index, (uint64_t)stack << 8 | rule, p->by_stack,
                   (struct result_category_line){stack, category_of_rule(rule), category_evidence(rule), 0, 0, rule});
    line->bytes = arena_add_capped(line->bytes, bytes);
    line->count++;
    p->stated = p->stated || category_needs_setup(rule);
}

static void categories_on_live(void *self, size_t moment, const struct run_lifetime *life, uint32_t free_stack)
{
    struct work *w = self;
    struct place *p = &w->places[moment];
    const struct run_series *s = run_series(w->b->run, life->series);
    if (p->moment != NO_MOMENT) {
        allocator_add_live(w->b, p->moment, life);
        return;
    }
    bool late = life->free_ns > w->end_ns;
    if (late && life->free_ns != RUN_NEVER && life->free_ns > w->backward_ns &&
        category_is_backward(w->categorizer, free_stack))
        w->backward_ns = life->free_ns;
    if (!p->to || s->layer != p->layer || s->device != p->device) return;
    bool not_torch = life->device >= 0 && !w->torch_device[life->device];
    struct category_block block = {
        .stack = life->stack,
        .free_stack = free_stack,
        .tensor = life->layer != GS_LAYER_DEVICE,
        .direct = s->layer == RUN_SERIES_DEVICE && not_torch,
        .python = w->python,
        .kept = late,
        .use = category_uses_of(w->b->report->uses, s->process, life->stack, life->alloc_ns, life->free_ns)};
    block.aged = w->steps && step_count_done(w->steps, p->time_ns) >= step_count_done(w->steps, life->alloc_ns) + AGE;
    if (late) {
        ARENA_APPEND(w->late, .place = (uint32_t)moment, .stack = life->stack, .bytes = life->bytes,
                     .requested = run_requested(life), .alloc_ns = life->alloc_ns, .free_ns = life->free_ns,
                     .like = life->bytes, .block = block);
    } else {
        unsigned rule = category_rule(w->categorizer, &block);
        count_category(p, life->stack, rule, life->bytes);
        count_size(p, life->stack, category_of_rule(rule), life->bytes, run_requested(life));
    }
}

/* The round in which the category is determined: at once; for a pass that failed, when the parameters are known; or
 * last, for blocks that no rule covers. */
enum round { KNOWN, FAILED, KEPT, ROUNDS };

static enum round categorize_round(struct work *w, struct late *l, const struct category_alike *alike)
{
    bool failed = w->died && w->failed_doing;
    if (w->died)
        l->block.free_stack = RUN_NONE; /* it was freed because the run ended */
    else if (l->block.free_stack == RUN_NONE && l->free_ns <= w->backward_ns)
        l->block.kept = false; /* autograd freed it */
    l->rule = category_rule(w->categorizer, &l->block);
    if (w->died && !l->block.aged) {
        unsigned rule = category_alike_rule(alike, l->stack, l->bytes, l->alloc_ns);
        l->rule = rule == RUN_NONE ? l->rule : rule;
        if (rule != RUN_NONE) return KNOWN;
    }
    if (failed && category_activity(w->categorizer, l->stack) == w->failed_doing) {
        l->block.failed = true;
        return FAILED;
    }
    enum result_category category = category_of_rule(l->rule);
    return l->block.kept && (category == RESULT_CATEGORY_UNKNOWN || category == RESULT_CATEGORY_INPUTS) ? KEPT : KNOWN;
}

/* Blocks that the failed pass allocated were cut short; but a gradient is as large as its parameter, and each parameter
 * has one. A block that was kept to the end and is not otherwise known is a weight if a gradient or optimizer state of
 * its size has no parameter. */
static void categorize_again(struct work *w, struct late *l)
{
    static const int64_t around[] = {0, -LARGE, LARGE};
    struct place *p = &w->places[l->place];
    /* in recordings of gpuspy's own, FSDP2's parameters are not found by it (tests/torch/test_estimate_sharded.py) */
    const bool known = w->b->report->imported && l->requested != RUN_UNKNOWN && !p->unrequested;
    for (size_t i = 0; i < (!known && l->bytes > LARGE ? 3 : 1); i++) {
        const int64_t like = l->bytes + around[i];
        const uint64_t size = known ? size_of_request(l->requested) : size_of_block(like);
        uint32_t parameters = *of_size(p, RESULT_CATEGORY_PARAMETERS, size);
        uint32_t gradients = *of_size(p, RESULT_CATEGORY_GRADIENTS, size);
        l->block.fits = gradients < parameters;
        l->block.trained = parameters < gradients || parameters < *of_size(p, RESULT_CATEGORY_OPTIMIZER_STATE, size);
        if (l->block.failed ? l->block.fits : l->block.trained) {
            l->like = like;
            break;
        }
    }
    l->block.stated = p->stated;
    l->rule = category_rule(w->categorizer, &l->block);
}

static bool count_late(struct work *w, uint32_t process, char *error, size_t error_size)
{
    struct category_alike *alike = ARENA_NEW(struct category_alike, .categorizer = w->categorizer, .python = w->python,
                                             .uses = w->b->report->uses);
    for (size_t i = 0; w->died && i < w->late_n; i++) category_alike_request(alike, w->late[i].stack, w->late[i].bytes);
    bool ok = category_alike_read(alike, w->b->run, process, w->end_ns, error, error_size);
    for (enum round round = KNOWN; round < ROUNDS; round++) {
        EACH_IN (l, w->late) {
            l->round = round == KNOWN ? categorize_round(w, l, alike) : l->round;
            if (l->round != round) continue;
            if (round != KNOWN) categorize_again(w, l);
            count_category(&w->places[l->place], l->stack, l->rule, l->bytes);
            count_size(&w->places[l->place], l->stack, category_of_rule(l->rule), l->like, l->requested);
        }
    }
    category_alike_free(alike);
    return ok;
}

SORT_ORDER(order_category_shares, struct result_category_share,
           SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->category, y->category))

/* Blocks of rows with inconsistent times may have been live in the replay but are not found again: the missing part is
 * unknown. */
static void close_place(struct work *w, struct place *p)
{
    unsigned rules = category_rule_count();
    int64_t sum = 0;
    for (unsigned i = 0; i < rules; i++) sum = arena_add_capped(sum, p->by_rule[i]);
    p->bytes = p->bytes == RUN_UNKNOWN ? sum : p->bytes;
    if ((!p->peak || w->b->options->watch) && sum <= p->bytes && p->by_stack_n) {
        p->to->lines = arena_alloc(w->b->arena, p->by_stack_n * sizeof *p->to->lines);
        memcpy(p->to->lines, p->by_stack, p->by_stack_n * sizeof *p->to->lines);
        p->to->lines_n = p->by_stack_n;
    }
    if (sum != p->bytes) {
        uint64_t count = 0;
        int64_t missing = p->bytes - sum;
        for (unsigned i = 0; sum > p->bytes && i < rules; i++) {
            count += p->count_by_rule[i];
            missing = p->bytes;
            p->by_rule[i] = 0;
            p->count_by_rule[i] = 0;
        }
        p->by_rule[rules - 1] += missing;
        p->count_by_rule[rules - 1] += count;
    }
    p->to->shares = arena_alloc(w->b->arena, rules * sizeof *p->to->shares);
    for (unsigned i = 0; i < rules; i++) {
        p->to->bytes[category_of_rule(i)] += p->by_rule[i];
        if (p->by_rule[i]) {
            p->to->shares[p->to->shares_n++] = (struct result_category_share){category_of_rule(i), category_evidence(i),
                                                                              p->by_rule[i], p->count_by_rule[i], i};
        }
    }
    SORT(p->to->shares, p->to->shares_n, order_category_shares);
    for (size_t i = 0; p->peak && i < p->peak->by_stack_n; i++) {
        struct result_by_stack *s = &p->peak->by_stack[i];
        int64_t most = -1;
        for (unsigned rule = 0; rule < rules; rule++) {
            uint32_t at = map_get(&p->index, (uint64_t)s->stack.number << 8 | rule);
            if (at != MAP_NEW && p->by_stack[at].bytes > most) {
                most = p->by_stack[at].bytes;
                s->category = category_of_rule(rule);
                s->category_evidence = category_evidence(rule);
            }
        }
    }
}

static bool replay_places(struct work *w, uint32_t process, char *error, size_t error_size)
{
    place_add(w, w->end_ns, NULL); /* to find the blocks that are freed after it */
    SORT(w->places, w->n, order_category_moments);
    int64_t *moments = arena_realloc(NULL, w->n, sizeof *moments);
    for (size_t i = 0; i < w->n; i++) moments[i] = w->places[i].time_ns;
    bool ok = run_each_live_at(w->b->run, process, moments, w->n, categories_on_live, w, error, error_size);
    ok = ok && count_late(w, process, error, error_size);
    EACH (p, w->places, w->n) {
        if (ok && p->to) close_place(w, p);
        ARENA_RELEASE(p->by_rule, p->count_by_rule, p->by_stack);
        MAP_RELEASE(&p->index, &p->sizes);
    }
    free(moments);
    w->n = 0;
    return ok;
}

static struct work start_categories(struct site_builder *b)
{
    return (struct work){.b = b, .categorizer = category_finder_new(b->run), .python = category_has_python(b->run)};
}

static void finish_categories(struct work *w)
{
    category_finder_free(w->categorizer);
    ARENA_RELEASE(w->places, w->late);
}

bool category_build(struct site_builder *b, char *error, size_t error_size)
{
    bool ok = true;
    struct work w = start_categories(b);
    for (uint32_t i = 0; ok && i < RUN_COUNT(run_processes, b->run); i++) {
        start_category_process(&w, i);
        list_places(&w, i);
        list_ends(&w, i);
        list_category_moments(&w, i);
        if (w.n) {
            ok = replay_places(&w, i, error, error_size);
            allocator_close_process(b, i);
        }
    }
    finish_categories(&w);
    return ok;
}

bool category_at(struct site_builder *b, uint32_t process, struct category_moment *moments, size_t n, char *error,
                 size_t error_size)
{
    struct work w = start_categories(b);
    start_category_process(&w, process);
    for (size_t i = 0; i < n; i++) {
        struct place *p = place_add(&w, moments[i].time_ns, &moments[i].by);
        p->bytes = moments[i].bytes;
        p->device = moments[i].device;
        p->layer = moments[i].layer;
    }
    bool ok = n == 0 || replay_places(&w, process, error, error_size);
    finish_categories(&w);
    return ok;
}
