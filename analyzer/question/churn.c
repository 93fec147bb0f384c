/* Device memory that direct CUDA calls allocate and free repeatedly: each pair costs a synchronization and tens of
 * microseconds, which an allocator or one reused buffer would save. Pools (cudaMallocAsync) exist for this purpose and
 * are left out, as are physical memory that the program maps itself and PyTorch's tensors.
 *
 * A location churns when, after the process's warm-up, it was freed at least 20 times and its
 * memory was live for less than a twentieth of the time from its first allocation to its last free on average (a pause
 * before, between or after them says nothing); and, if the program's steps are known, most of the steady steps free
 * there. The steps are known only after the replay, so each location keeps the times of its frees: all of the first
 * ones, then every second, every fourth, …
 */
#include "analyzer/base/times.h"
#include "analyzer/base/sort.h"
#include "analyzer/question/library.h"
#include "analyzer/step/cadence.h"
#include "analyzer/question/signature.h"
#include "analyzer/question/question.h"

#include <stdlib.h>

enum { MIN_FREES = 20, MIN_PER_S = 10 }; /* slower ones are listed, without advice */
enum { TIMES = 4096, ASKED = 8 };        /* kept per location; locations for which the stack of the free is looked up */

static const char of_allocator[] = "PyTorch's allocator";

struct place {
    uint64_t frees, skipped;
    int64_t bytes, life_ns, first_ns, last_ns;
    struct times times; /* of every `stride`-th free */
    size_t stride;
};

struct question_churns {
    struct site_builder *b;
    struct place *places;
    size_t cap;
    uint64_t allocations, all; /* of this process, so far and in total */
    int64_t kept_from_ns;      /* from this time on all events of the process exist */
    int64_t warm_ns;           /* of the first allocation after the warm-up */
};

static void churn_on_process_start(void *self, uint32_t process)
{
    struct question_churns *c = self;
    c->all = run_process_at(c->b->run, process)->allocations;
    c->kept_from_ns = run_process_at(c->b->run, process)->kept_from_ns;
    c->allocations = 0;
    c->warm_ns = INT64_MAX;
}

static void churn_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_churns *c = self;
    if (life->alloc_ns < c->kept_from_ns) return; /* others of that time were removed */
    if (c->warm_ns == INT64_MAX && !question_in_warm_up(c->allocations++, c->all)) c->warm_ns = life->alloc_ns;
}

static void keep_lifetime(struct place *p, int64_t ns)
{
    p->stride = p->stride ? p->stride : 1;
    if (++p->skipped < p->stride) return;
    p->skipped = 0;
    if (p->times.n == TIMES) {
        times_halve(&p->times, 1);
        p->stride *= 2;
    }
    times_add(&p->times, ns);
}

static void churn_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_churns *c = self;
    bool direct = life->layer == GS_LAYER_DEVICE && life->space != GS_SPACE_POOL && life->space != GS_SPACE_VMM &&
                  life->space != GS_SPACE_SHARED;
    if (!direct || life->alloc_ns < c->warm_ns) return;
    struct place *p = SITE_REACH(c->places, life->location, c->cap);
    p->first_ns = p->frees ? p->first_ns : life->alloc_ns;
    p->last_ns = life->free_ns;
    p->frees++;
    p->bytes = arena_add_capped(p->bytes, life->bytes);
    p->life_ns = arena_add_capped(p->life_ns, life->free_ns - life->alloc_ns);
    keep_lifetime(p, life->free_ns);
}

struct question_churns *question_churns_start(struct site_builder *b, struct run_observer *observer)
{
    struct question_churns *c = ARENA_NEW(struct question_churns, .b = b);
    *observer = (struct run_observer){.self = c,
                                      .beside = true,
                                      .process_start = churn_on_process_start,
                                      .alloc = churn_on_alloc,
                                      .free = churn_on_free};
    return c;
}

SORT_ORDER(order_churn_by_count, struct result_churn,
           SORT_DOWN(x->count, y->count) ?: SORT_UP(x->stack.number, y->stack.number))

static struct result_pace churn_pace_of(const struct question_churns *c, const struct place *p, uint32_t process)
{
    struct step_clock clock = {0};
    struct step_cadence cadence = {0};
    for (size_t i = 0; i < p->times.n; i++)
        step_cadence_add(c->b, &clock, &cadence, process, times_at(&p->times, i), 0);
    cadence.calls *= p->stride;
    if (p->stride > 1 && cadence.calls >= cadence.steps) /* steps between two kept times */
        cadence.hits *= p->stride;
    return step_pace(&cadence, NULL);
}

/* The call that frees PyTorch's segments: a line with empty_cache can be removed; the allocator's own frees are
 * reported elsewhere. One more pass over the rows, at a moment at which each segment was live. */
struct asked {
    int64_t moment;
    uint32_t location, stack; /* stack: of the free, RUN_NONE */
    size_t churn;             /* in the work list */
};

struct asking {
    struct asked list[ASKED];
    size_t n;
};

static void churn_on_live(void *self, size_t moment, const struct run_lifetime *life, uint32_t free_stack)
{
    struct asked *a = &((struct asking *)self)->list[moment];
    if (life->location == a->location && life->free_ns != RUN_NEVER) a->stack = free_stack;
}

SORT_ORDER(order_churn_events, struct asked, SORT_UP(x->moment, y->moment))

static void recognise_churn(struct question_churns *c, struct question_signer *signer, struct asking *q,
                            struct result_churn *work)
{
    int64_t moments[ASKED];
    char error[256];
    qsort(q->list, q->n, sizeof *q->list, order_churn_events);
    for (size_t i = 0; i < q->n; i++) moments[i] = q->list[i].moment;
    if (!q->n || !run_each_live_at(c->b->run, work[q->list[0].churn].process, moments, q->n, churn_on_live, q, error,
                                   sizeof error))
        return;
    for (size_t i = 0; i < q->n; i++) {
        struct result_churn *x = &work[q->list[i].churn];
        struct question_signature s =
            question_signature(signer, question_sign(signer, q->list[i].stack, QUESTION_SHAPE_IMPLICIT));
        if (q->list[i].stack != RUN_NONE && s.advice && s.by_count) {
            x->pattern = s.name;
            x->freed = site_trace(c->b, q->list[i].stack).site;
            x->advice = question_library_advice(c->b->run, q->list[i].stack, &x->freed, s.advice, false);
        }
    }
}

/* In each process, the busiest locations are looked up. */
static void recognise_all(struct question_churns *c, struct result_churn *work, const struct asked *of, size_t n)
{
    struct question_signer *signer = question_signer_new(c->b->run, c->b->arena);
    struct asking q = {.n = 0};
    for (size_t i = 0; i < n; i++) {
        if (!question_sign_is_allocator(signer, work[i].stack.number)) continue;
        work[i].pattern = of_allocator;
        if (q.n && work[q.list[0].churn].process != work[i].process) {
            recognise_churn(c, signer, &q, work);
            q.n = 0;
        }
        if (q.n < ASKED) q.list[q.n++] = of[i];
    }
    recognise_churn(c, signer, &q, work);
    question_signer_free(signer);
}

static bool is_worth_reporting(const struct question_churns *c, const struct result_churn *x)
{
    bool often = !(x->per_s < MIN_PER_S), simulated = c->b->report->simulated;
    if (x->pace.phase == RESULT_PHASE_UNKNOWN) return often && !(simulated && step_has_tensors(c->b));
    return x->pace.phase == RESULT_PHASE_STEP && x->pace.calls_per_step >= 0.9 && (often || simulated);
}

static void advise_churn(const struct question_churns *c, struct result_churn *x, enum run_series_layer layer)
{
    if (!is_worth_reporting(c, x) || x->pattern == of_allocator || question_sign_makes_room(c->b->run, x->pattern) ||
        run_setting_value(c->b->run, x->process, "GPUSPY_INSIDE_POOLS")) {
        x->advice = NULL; /* with --inside-pools each array is a CUDA allocation */
    } else if (!x->advice) {
        x->advice = layer == RUN_SERIES_PINNED
                        ? "pin the buffer once and keep it"
                        : "allocate once and reuse, or use cudaMallocAsync: each cudaFree waits for the GPU";
    }
}

static uint64_t churn_kind_of(const void *row)
{
    return (uintptr_t)((const struct result_churn *)row)->pattern;
}

static void add_churn(void *into, const void *from)
{
    struct result_churn *to = into;
    const struct result_churn *x = from;
    const double lived = to->mean_life_s * (double)to->count + x->mean_life_s * (double)x->count;
    to->count += x->count;
    to->mean_life_s = lived / (double)to->count;
    to->bytes = arena_add_capped(to->bytes, x->bytes);
    to->per_s += x->per_s;
    to->advice = to->advice ? to->advice : x->advice;
    site_add_pace(&to->pace, &x->pace);
}

SITE_LINE_PATH(churn_path_of, struct result_churn, .bytes = x->bytes, .count = x->count, .site = x->stack.site)

/* `work` is sorted. */
static void list_churn_lines(struct site_builder *b, struct result_churn *work, size_t n)
{
    static const struct site_line_form form =
        SITE_LINE_FORM(struct result_churn, stack.site, .kind = churn_kind_of, .add = add_churn, .path = churn_path_of,
                       .order = order_churn_by_count);
    for (size_t i = 0; i < n; i++)
        work[i].stack = (struct result_trace){.number = RUN_NONE, .site = site_of_call(b, work[i].stack.number)};
    b->report->churn_lines = site_lines_of(b, work, n, &form, &b->report->churn_lines_n, &b->report->churn_lines_total);
}

void question_churns_finish(struct question_churns *c)
{
    struct result_report *report = c->b->report;
    struct result_churn *work = NULL;
    struct asked *asked = NULL;
    size_t n = 0, cap = 0, asked_n = 0, asked_cap = 0;
    for (size_t i = 0; i < c->cap && i < run_location_count(c->b->run); i++) {
        const struct place *p = &c->places[i];
        const struct run_location *l = run_location(c->b->run, (uint32_t)i);
        const struct run_series *s = run_series(c->b->run, l->series);
        double mean = p->frees ? (double)p->life_ns / (double)p->frees : 0, span = (double)(p->last_ns - p->first_ns);
        if (p->frees < MIN_FREES || mean * 20 > span) continue;
        ARENA_APPEND_TO(work, n, cap, .process = s->process, .device = s->device, .count = p->frees, .bytes = p->bytes,
                        .per_s = span > 0 ? (double)p->frees * 1e9 / span : __builtin_nan(""),
                        .mean_life_s = mean / 1e9, .pace = churn_pace_of(c, p, s->process),
                        .stack = {.number = l->stack});
        ARENA_APPEND(asked, .moment = p->last_ns - 1, .location = (uint32_t)i, .stack = RUN_NONE, .churn = n - 1);
    }
    recognise_all(c, work, asked, n);
    for (size_t i = 0; i < n; i++) {
        const struct run_location *l = run_location(c->b->run, asked[i].location);
        advise_churn(c, &work[i], run_series(c->b->run, l->series)->layer);
    }
    report->churn =
        site_list(c->b, work, n, sizeof *work, order_churn_by_count, &report->churn_n, &report->churn_total);
    for (size_t i = 0; i < report->churn_n; i++)
        report->churn[i].stack = site_trace(c->b, report->churn[i].stack.number);
    list_churn_lines(c->b, work, n);
    for (size_t i = 0; i < c->cap; i++) times_free(&c->places[i].times);
    ARENA_RELEASE(asked, work, c->places, c);
}
