/* What was live at each peak and at each failure, by category: one more pass over the rows, which
 * stops at those that were live then.
 */
#include "analyzer/allocator.h"
#include "analyzer/question.h"

#include <stdlib.h>
#include <string.h>

#define NO_MOMENT SIZE_MAX

struct place { /* a peak, or a failure; ordered by time */
    int64_t time_ns;
    struct gs_by_category *to;
    int64_t bytes; /* all that was live */
    int device;
    enum gs_series_layer layer;
    struct gs_peak *peak; /* NULL: a failure */
    size_t moment;        /* of allocator.h's, which is looked at in the same pass; NO_MOMENT */
    int64_t *by_rule;
    uint64_t *count_by_rule;
    struct gs_map index; /* by stack and rule */
    struct gs_category_line *by_stack;
    size_t by_stack_n, by_stack_cap;
};

/* Freed after the run's last allocation and without a stack: by the tear-down, or on autograd's
 * thread when a last backward pass ended or failed. Backward has the program's thread free
 * something when it returns, so what comes before the last free there is autograd's. Which is
 * known once all is seen. */
struct late {
    uint32_t place, rule_kept, rule_freed, stack;
    int64_t bytes, free_ns;
};

struct work {
    struct gs_builder *b;
    struct gs_categorizer *categorizer;
    struct place *places;
    size_t n, cap;
    bool python, torch_device[128]; /* torch_device: has tensors of its own */
    int64_t end_ns, backward_ns; /* the last allocation; the last free in backward after it */
    struct late *late;
    size_t late_n, late_cap;
};

static void start_process(struct work *w, uint32_t process)
{
    size_t n;
    const struct gs_run *run = w->b->run;
    const struct gs_process *p = &gs_run_processes(run, &n)[process];
    w->end_ns = p->last_alloc_ns;
    w->backward_ns = 0;
    w->late_n = 0;
    memset(w->torch_device, 0, sizeof w->torch_device);
    for (size_t i = 0; i < gs_run_serieses(run); i++) {
        const struct gs_series *s = gs_run_series(run, (uint32_t)i);
        if (s->process == process && s->layer == GS_SERIES_TENSOR && s->device >= 0 &&
            s->device < 128) {
            w->torch_device[s->device] = true;
        }
    }
}

static struct place *place_add(struct work *w, int64_t time_ns, struct gs_by_category *to)
{
    struct place *p = GS_PUSH(w->places, w->n, w->cap);
    *p = (struct place){.time_ns = time_ns, .to = to, .moment = NO_MOMENT};
    p->by_rule = gs_realloc(NULL, gs_category_rules(), sizeof *p->by_rule);
    p->count_by_rule = gs_realloc(NULL, gs_category_rules(), sizeof *p->count_by_rule);
    memset(p->by_rule, 0, gs_category_rules() * sizeof *p->by_rule);
    memset(p->count_by_rule, 0, gs_category_rules() * sizeof *p->count_by_rule);
    return p;
}

static void list_places(struct work *w, uint32_t process)
{
    struct gs_report *r = w->b->report;
    for (size_t i = 0; i < r->peaks_n; i++) {
        struct gs_peak *peak = &r->peaks[i];
        if (peak->process == process && peak->bytes > 0) {
            struct place *p = place_add(w, peak->time_ns, &peak->by_category);
            p->peak = peak;
            p->bytes = peak->bytes;
            p->device = peak->device;
            p->layer = peak->layer;
        }
    }
    for (size_t i = 0; i < r->ooms_n; i++) {
        struct gs_oom_verdict *v = &r->ooms[i];
        if (v->process == process && v->live_sum != GS_UNKNOWN && v->live_sum > 0) {
            struct place *p = place_add(w, v->time_ns, &v->by_category);
            p->bytes = v->live_sum;
            p->device = v->live_layer == GS_SERIES_PINNED ? -1 : v->device;
            p->layer = v->live_layer;
        }
    }
}

static void list_moments(struct work *w, uint32_t process)
{
    size_t n;
    const int64_t *moments = gs_allocators_moments(w->b, process, &n);
    for (size_t i = 0; i < n; i++) {
        place_add(w, moments[i], NULL)->moment = i;
    }
}

static int earlier(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->time_ns < y->time_ns ? -1 : x->time_ns > y->time_ns;
}

static void count(struct place *p, uint32_t stack, unsigned rule, int64_t bytes)
{
    p->by_rule[rule] = gs_add(p->by_rule[rule], bytes);
    p->count_by_rule[rule]++;
    uint32_t *at = gs_map_at(&p->index, (uint64_t)stack << 8 | rule);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)p->by_stack_n;
        *GS_PUSH(p->by_stack, p->by_stack_n, p->by_stack_cap) = (struct gs_category_line){
            stack, gs_category_of(rule), gs_category_evidence(rule), 0, 0};
    }
    struct gs_category_line *line = &p->by_stack[*at];
    line->bytes = gs_add(line->bytes, bytes);
    line->count++;
}

static void on_live(void *self, size_t moment, const struct gs_lifetime *life, uint32_t free_stack)
{
    struct work *w = self;
    struct place *p = &w->places[moment];
    const struct gs_series *s = gs_run_series(w->b->run, life->series);
    if (p->moment != NO_MOMENT) {
        gs_allocators_live(w->b, p->moment, life);
        return;
    }
    bool late = life->free_ns > w->end_ns;
    if (late && life->free_ns != GS_NEVER && life->free_ns > w->backward_ns &&
        gs_category_backward(w->categorizer, free_stack)) {
        w->backward_ns = life->free_ns;
    }
    if (!p->to || s->layer != p->layer || s->device != p->device) {
        return;
    }
    bool untold = life->device >= 0 && life->device < 128 && !w->torch_device[life->device];
    struct gs_category_block block = {.stack = life->stack,
                                      .free_stack = free_stack,
                                      .tensor = life->layer != GS_LAYER_DEVICE,
                                      .direct = s->layer == GS_SERIES_DEVICE && untold,
                                      .python = w->python,
                                      .kept = late};
    unsigned rule = gs_category_rule(w->categorizer, &block);
    if (late && life->free_ns != GS_NEVER && free_stack == GS_NONE) {
        block.kept = false;
        *GS_PUSH(w->late, w->late_n, w->late_cap) =
            (struct late){(uint32_t)moment, rule, gs_category_rule(w->categorizer, &block),
                          life->stack,      life->bytes, life->free_ns};
    } else {
        count(p, life->stack, rule, life->bytes);
    }
}

static int heavier(const void *a, const void *b)
{
    const struct gs_category_share *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1)
                                : (int)x->category - (int)y->category;
}

/* Rows whose times make no sense may have been live in the replay and not be found again: what is
 * missing is unknown. */
static void close_place(struct work *w, struct place *p)
{
    unsigned rules = gs_category_rules();
    int64_t sum = 0;
    for (unsigned i = 0; i < rules; i++) {
        sum = gs_add(sum, p->by_rule[i]);
    }
    if (!p->peak && sum <= p->bytes && p->by_stack_n) {
        p->to->lines = gs_arena_alloc(w->b->arena, p->by_stack_n * sizeof *p->to->lines);
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
    p->to->shares = gs_arena_alloc(w->b->arena, rules * sizeof *p->to->shares);
    for (unsigned i = 0; i < rules; i++) {
        p->to->bytes[gs_category_of(i)] += p->by_rule[i];
        if (p->by_rule[i]) {
            p->to->shares[p->to->shares_n++] = (struct gs_category_share){
                gs_category_of(i), gs_category_evidence(i), p->by_rule[i], p->count_by_rule[i], i};
        }
    }
    if (p->to->shares_n > 1) {
        qsort(p->to->shares, p->to->shares_n, sizeof *p->to->shares, heavier);
    }
    for (size_t i = 0; p->peak && i < p->peak->by_stack_n; i++) {
        struct gs_by_stack *s = &p->peak->by_stack[i];
        int64_t most = -1;
        for (unsigned rule = 0; rule < rules; rule++) {
            uint32_t at = gs_map_get(&p->index, (uint64_t)s->number << 8 | rule);
            if (at != GS_MAP_NEW && p->by_stack[at].bytes > most) {
                most = p->by_stack[at].bytes;
                s->category = gs_category_of(rule);
                s->category_evidence = gs_category_evidence(rule);
            }
        }
    }
}

static void count_late(struct work *w)
{
    for (size_t i = 0; i < w->late_n; i++) {
        const struct late *l = &w->late[i];
        count(&w->places[l->place], l->stack,
              l->free_ns <= w->backward_ns ? l->rule_freed : l->rule_kept, l->bytes);
    }
}

static bool look(struct work *w, uint32_t process, char *error, size_t error_size)
{
    start_process(w, process);
    list_places(w, process);
    list_moments(w, process);
    if (!w->n) {
        return true;
    }
    place_add(w, w->end_ns, NULL); /* to see what is freed after it */
    if (w->n > 1) {
        qsort(w->places, w->n, sizeof *w->places, earlier);
    }
    int64_t *moments = gs_realloc(NULL, w->n, sizeof *moments);
    for (size_t i = 0; i < w->n; i++) {
        moments[i] = w->places[i].time_ns;
    }
    bool ok = gs_run_live_at(w->b->run, process, moments, w->n, on_live, w, error, error_size);
    gs_allocators_close(w->b, process);
    count_late(w);
    for (size_t i = 0; i < w->n; i++) {
        struct place *p = &w->places[i];
        if (ok && p->to) {
            close_place(w, p);
        }
        free(p->by_rule);
        free(p->count_by_rule);
        free(p->by_stack);
        gs_map_free(&p->index);
    }
    free(moments);
    w->n = 0;
    return ok;
}

bool gs_categories_build(struct gs_builder *b, char *error, size_t error_size)
{
    size_t n;
    bool ok = true;
    gs_run_processes(b->run, &n);
    struct work w = {.b = b,
                     .categorizer = gs_categorizer_new(b->run),
                     .python = gs_category_python(b->run)};
    for (uint32_t i = 0; ok && i < n; i++) {
        ok = look(&w, i, error, error_size);
    }
    gs_categorizer_free(w.categorizer);
    free(w.places);
    free(w.late);
    return ok;
}
