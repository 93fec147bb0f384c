#include "analyzer/step/cadence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/step/step.h"

static const double matters_share = 0.02, matters_s = 0.001;
static const double most = 0.5; /* share of the steady steps with a call, from which on the call belongs to the step */
static const double bunch = 0.25; /* of a step: the most between consecutive calls of a bunch */
static const double once = 0.9;   /* calls per step that count as one in each */
enum { SELDOM = 10, BURST = 4 };  /* steps between calls, as advice itself would leave them; calls at once */

/* The step that contains a time, SIZE_MAX none. Times come nearly in order: mostly it is the last result. */
static size_t clock_step_at(struct step_clock *k, int64_t ns)
{
    if (ns < k->from || ns >= k->until) {
        k->step = step_at(k->steps, ns);
        k->from = k->until = ns;
        if (k->step != SIZE_MAX) {
            k->from = step_start_ns(k->steps, k->step);
            k->until = k->steps->end_ns ? ns : step_start_ns(k->steps, k->step + 1);
        }
    }
    return k->step;
}

/* The end of the steady steps: the last step extends to the end of the loop, and possibly past it. */
size_t step_steady_end(const struct step_list *s)
{
    return s->n - s->steady >= 3 ? s->n - 1 : s->n;
}

/* From the end of a step that was not removed to the next one's beginning. */
static int64_t gap_after(const struct step_list *s, size_t i)
{
    const size_t k = i - s->removed;
    return s->end_ns && k + 1 < s->starts_n ? s->start_ns[k + 1] - s->end_ns[k] : 0;
}

static int64_t steady_time(const struct step_list *s)
{
    size_t end = step_steady_end(s);
    int64_t sum = step_start_ns(s, end) - step_start_ns(s, s->steady);
    for (size_t i = s->steady; i + 1 <= end; i++) sum -= gap_after(s, i);
    return sum;
}

/* The same, but a step in which the program paused counts as a usual one. */
static int64_t steady_time_without_pauses(const struct step_list *s)
{
    enum { PAUSED = 10 }; /* times the median */
    int64_t sum = steady_time(s);
    for (size_t i = s->steady, end = step_steady_end(s); i < end; i++) {
        int64_t lasts = step_start_ns(s, i + 1) - step_start_ns(s, i);
        lasts -= gap_after(s, i);
        if (s->median_ns > 0 && lasts / PAUSED > s->median_ns) sum -= lasts - s->median_ns;
    }
    return sum;
}

static void enter_cadence_process(const struct site_builder *b, struct step_clock *k, uint32_t process)
{
    if (k->process != process + 1) {
        *k = (struct step_clock){.process = process + 1, .steps = step_list_of(b, process)};
        k->steady_ns = k->steps ? steady_time(k->steps) : 0;
        k->usual_ns = k->steps ? steady_time_without_pauses(k->steps) : 0;
    }
}

static void enter_place(struct step_cadence *c, const struct step_clock *k)
{
    if (c->process == k->process) return;
    c->process = k->process;
    c->now = c->last = SIZE_MAX;
    c->now_calls = 0;
    if (k->steps) {
        const struct step_list *s = k->steps;
        size_t end = step_steady_end(s);
        c->steps += end - s->steady;
        c->loop = s->source == STEP_SOURCE_PERIOD;
        c->steady_ns = arena_add_capped(c->steady_ns, k->steady_ns);
        c->usual_ns = arena_add_capped(c->usual_ns, k->usual_ns);
    }
}

static void count_cadence_hit(struct step_cadence *c, size_t step)
{
    if (c->last != SIZE_MAX && step > c->last) {
        size_t gap = step - c->last;
        c->gap_least = !c->gaps || gap < c->gap_least ? gap : c->gap_least;
        c->gap_most = gap > c->gap_most ? gap : c->gap_most;
        c->gaps++;
        c->gap_sum += gap;
    }
    c->hits += c->last == SIZE_MAX || step > c->last;
    c->last = step;
}

/* A step that took long ends after its usual tail: later calls are between the steps, except those that this call site
 * makes in each step and that are still missing in this one. */
static bool is_step_of_cadence(const struct step_cadence *c, size_t step)
{
    return (step == c->now ? c->now_calls : 0) < c->usual;
}

static void in_step(struct step_cadence *c, size_t step)
{
    if (step != c->now && c->now_calls) {
        c->usual = c->votes ? c->usual : c->now_calls;
        c->votes += c->usual == c->now_calls ? 1 : -1;
    }
    c->now_calls = step == c->now ? c->now_calls + 1 : 1;
    c->now = step;
}

void step_cadence_add(const struct site_builder *b, struct step_clock *k, struct step_cadence *c, uint32_t process,
                      int64_t time_ns, int64_t blocked_ns)
{
    enter_cadence_process(b, k, process);
    c->first_ns = c->process == 0 || time_ns < c->first_ns ? time_ns : c->first_ns;
    c->last_ns = time_ns > c->last_ns ? time_ns : c->last_ns;
    enter_place(c, k);
    if (!k->steps) return;
    size_t step = clock_step_at(k, time_ns);
    if (step == SIZE_MAX) {
        size_t done = step_count_done(k->steps, time_ns);
        bool outside = done >= k->steps->n || time_ns < step_start_ns(k->steps, 0);
        step = !outside && is_step_of_cadence(c, done) ? done : SIZE_MAX;
        if (step == SIZE_MAX) {
            *(!outside ? &c->between : done ? &c->after : &c->before) += 1;
            return;
        }
    }
    in_step(c, step);
    if (step < k->steps->steady) {
        c->before++;
    } else if (step >= step_steady_end(k->steps)) {
        c->after++;
    } else {
        bool again = step == c->last && c->calls && time_ns > c->end_ns;
        c->apart_ns = arena_add_capped(c->apart_ns, again ? time_ns - c->end_ns : 0);
        c->calls++;
        c->blocked_ns = arena_add_capped(c->blocked_ns, blocked_ns);
        count_cadence_hit(c, step);
    }
    c->end_ns = arena_add_capped(time_ns, blocked_ns);
}

static bool function_starts_with(const char *function, const char *const *words, size_t n)
{
    const char *last = text_last_part(function), *name = last + strspn(last, "_");
    return ANY_OF(w, words, n, strncmp(name, *w, strlen(*w)) == 0);
}

static bool named_evaluation(const struct result_site *site)
{
    static const char *const words[] = {"eval", "valid"};
    return site && (function_starts_with(site->function, words, 2) ||
                    (site->caller && function_starts_with(site->caller->function, words, 2)));
}

/* It may be the program's own purpose: it counts only if it is not in each step. */
static bool may_be_evaluation(const struct result_site *site)
{
    static const char *const words[] = {"test", "infer", "predict"};
    return named_evaluation(site) || (site && function_starts_with(site->function, words, 3));
}

static enum result_phase seldom_phase_of(const struct step_cadence *c, const struct result_site *site, unsigned *every)
{
    bool regular = c->gaps >= 1 && c->gap_most - c->gap_least <= 1 + c->gap_least / 10;
    const bool burst = c->calls >= BURST * c->hits; /* of a loop over parameters or batches, whose purpose is unknown */
    if (may_be_evaluation(site)) return RESULT_PHASE_EVALUATION;
    *every = regular && !burst ? (unsigned)(c->gap_sum / c->gaps) : 0;
    return RESULT_PHASE_LOGGING;
}

static enum result_phase cadence_phase_of(const struct step_cadence *c, const struct result_site *site, unsigned *every)
{
    uint64_t outside = c->before + c->between + c->after;
    *every = 0;
    if (c->steps == 0) return RESULT_PHASE_UNKNOWN;
    if (c->calls && (double)c->hits >= most * (double)c->steps)
        return named_evaluation(site) ? RESULT_PHASE_EVALUATION : RESULT_PHASE_STEP;
    if (c->between && c->between >= c->calls) /* its calls in the step before the gap are its tail */
        return RESULT_PHASE_EVALUATION;
    if (c->calls * 2 > outside) return seldom_phase_of(c, site, every);
    return c->before >= c->after ? RESULT_PHASE_STARTUP : RESULT_PHASE_END;
}

struct result_pace step_pace(const struct step_cadence *c, const struct result_site *site)
{
    struct result_pace p = {.calls_per_step = NAN, .steady_share = NAN, .usual_share = NAN, .steady_blocked_s = NAN};
    p.phase = cadence_phase_of(c, site, &p.every);
    if (c->steps) {
        p.calls_per_step = (double)c->calls / (double)c->steps;
        p.steps_with = c->hits;
        p.steps_seen = c->steps;
        p.steady_blocked_s = (double)c->blocked_ns / 1e9;
        double rest = (double)(c->steady_ns - c->blocked_ns);
        p.bunched = c->calls > c->hits && (double)c->apart_ns < bunch * rest;
        p.loop = c->loop;
        p.steady_share = c->steady_ns > 0 ? (double)c->blocked_ns / (double)c->steady_ns : NAN;
        p.usual_share = c->usual_ns > 0 ? (double)c->blocked_ns / (double)c->usual_ns : NAN;
    }
    return p;
}

bool step_pace_matters(const struct result_pace *p, bool simulated, bool by_count, bool otherwise)
{
    if (p->phase == RESULT_PHASE_UNKNOWN) return otherwise;
    bool often = p->phase == RESULT_PHASE_STEP ||
                 (p->phase == RESULT_PHASE_LOGGING && p->every && p->every < SELDOM && !simulated);
    if (simulated) return often && by_count && p->calls_per_step >= once;
    return often && p->usual_share >= matters_share && p->steady_blocked_s >= matters_s;
}

char *step_pace_text(const struct result_pace *p, char out[STEP_PACE_TEXT])
{
    double n = round(p->calls_per_step * 10) / 10;
    *out = 0;
    if (p->phase == RESULT_PHASE_STEP) {
        snprintf(out, STEP_PACE_TEXT, "%.*f per step", n == floor(n) ? 0 : 1, n);
    } else if (p->phase == RESULT_PHASE_LOGGING && p->every) {
        snprintf(out, STEP_PACE_TEXT, "every %u steps", p->every);
    } else if (p->phase != RESULT_PHASE_UNKNOWN) {
        static const char *const words[] = {[RESULT_PHASE_STARTUP] = "before the steps",
                                            [RESULT_PHASE_LOGGING] = "now and then",
                                            [RESULT_PHASE_EVALUATION] = "in evaluation",
                                            [RESULT_PHASE_END] = "after the steps"};
        snprintf(out, STEP_PACE_TEXT, "%s", words[p->phase]);
    }
    return out;
}

bool step_is_simulated(const struct site_builder *b)
{
    RUN_EACH (d, run_devices, b->run)
        if (run_device_is_simulated(d->name)) return true;
    return false;
}

bool step_has_tensors(const struct site_builder *b)
{
    for (size_t i = 0; i < run_series_count(b->run); i++) {
        const struct run_series *s = run_series(b->run, (uint32_t)i);
        if (s->layer == RUN_SERIES_TENSOR && s->allocations) return true;
    }
    return false;
}
