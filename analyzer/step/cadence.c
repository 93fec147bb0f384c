#include "analyzer/step/cadence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/step/step.h"

static const double matters_share = 0.02, matters_s = 0.001;
static const double most = 0.5;   /* of the steady steps: it belongs to the step */
static const double bunch = 0.25; /* of a step, at most between calls that follow one another */
static const double once = 0.9;   /* calls a step that count as one in each */
enum { SELDOM = 10, BURST = 4 };  /* steps between calls that advice itself would leave; calls at once */

/* The step of a time, SIZE_MAX in none. Times come nearly in order: mostly it is that of the last.
 */
static size_t step_at(struct gs_clock *k, int64_t ns)
{
    if (ns < k->from || ns >= k->until) {
        k->step = gs_step_at(k->steps, ns);
        k->from = k->until = ns;
        if (k->step != SIZE_MAX) {
            k->from = gs_step_start(k->steps, k->step);
            k->until = k->steps->end_ns ? ns : gs_step_start(k->steps, k->step + 1);
        }
    }
    return k->step;
}

/* Steady steps end here: the last step goes on to the end of the loop, and maybe past it. */
size_t gs_steady_end(const struct gs_steps *s)
{
    return s->n - s->steady >= 3 ? s->n - 1 : s->n;
}

static int64_t steady_time(const struct gs_steps *s)
{
    size_t end = gs_steady_end(s);
    int64_t sum = gs_step_start(s, end) - gs_step_start(s, s->steady);
    for (size_t i = s->steady; s->end_ns && i + 1 <= end; i++) {
        sum -= i + 1 < s->starts_n ? s->start_ns[i + 1] - s->end_ns[i] : 0;
    }
    return sum;
}

static void enter(const struct gs_builder *b, struct gs_clock *k, uint32_t process)
{
    if (k->process != process + 1) {
        *k = (struct gs_clock){.process = process + 1, .steps = gs_steps_of(b, process)};
        k->steady_ns = k->steps ? steady_time(k->steps) : 0;
    }
}

static void enter_place(struct gs_cadence *c, const struct gs_clock *k)
{
    if (c->process == k->process) {
        return;
    }
    c->process = k->process;
    c->now = c->last = SIZE_MAX;
    c->now_calls = 0;
    if (k->steps) {
        const struct gs_steps *s = k->steps;
        size_t end = gs_steady_end(s);
        c->steps += end - s->steady;
        c->loop = s->source == GS_STEP_PERIOD;
        c->steady_ns = gs_add(c->steady_ns, k->steady_ns);
    }
}

static void hit(struct gs_cadence *c, size_t step)
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

/* A step that took long ends where its tail usually does: what comes later is between the steps,
 * but not the calls that this place makes in each step and that this one still lacks. */
static bool belongs(const struct gs_cadence *c, size_t step)
{
    return (step == c->now ? c->now_calls : 0) < c->usual;
}

static void in_step(struct gs_cadence *c, size_t step)
{
    if (step != c->now && c->now_calls) {
        c->usual = c->votes ? c->usual : c->now_calls;
        c->votes += c->usual == c->now_calls ? 1 : -1;
    }
    c->now_calls = step == c->now ? c->now_calls + 1 : 1;
    c->now = step;
}

void gs_cadence_add(const struct gs_builder *b, struct gs_clock *k, struct gs_cadence *c, uint32_t process,
                    int64_t time_ns, int64_t blocked_ns)
{
    enter(b, k, process);
    c->first_ns = c->process == 0 || time_ns < c->first_ns ? time_ns : c->first_ns;
    c->last_ns = time_ns > c->last_ns ? time_ns : c->last_ns;
    enter_place(c, k);
    if (!k->steps) {
        return;
    }
    size_t step = step_at(k, time_ns);
    if (step == SIZE_MAX) {
        size_t done = gs_steps_done(k->steps, time_ns);
        bool outside = done >= k->steps->n || time_ns < gs_step_start(k->steps, 0);
        step = !outside && belongs(c, done) ? done : SIZE_MAX;
        if (step == SIZE_MAX) {
            *(!outside ? &c->between : done ? &c->after : &c->before) += 1;
            return;
        }
    }
    in_step(c, step);
    if (step < k->steps->steady) {
        c->before++;
    } else if (step >= gs_steady_end(k->steps)) {
        c->after++;
    } else {
        bool again = step == c->last && c->calls && time_ns > c->end_ns;
        c->apart_ns = gs_add(c->apart_ns, again ? time_ns - c->end_ns : 0);
        c->calls++;
        c->blocked_ns = gs_add(c->blocked_ns, blocked_ns);
        hit(c, step);
    }
    c->end_ns = gs_add(time_ns, blocked_ns);
}

static bool starts(const char *function, const char *const *words, size_t n)
{
    const char *dot = function ? strrchr(function, '.') : NULL;
    function = dot ? dot + 1 : function;
    for (size_t i = 0; function && i < n; i++) {
        const char *name = function + strspn(function, "_");
        if (strncmp(name, words[i], strlen(words[i])) == 0) {
            return true;
        }
    }
    return false;
}

static bool named_evaluation(const struct gs_site *site)
{
    static const char *const words[] = {"eval", "valid"};
    return site && (starts(site->function, words, 2) || (site->caller && starts(site->caller->function, words, 2)));
}

/* What may also be the program's own purpose: it counts only where it is not in each step. */
static bool may_be_evaluation(const struct gs_site *site)
{
    static const char *const words[] = {"test", "infer", "predict"};
    return named_evaluation(site) || (site && starts(site->function, words, 3));
}

static enum gs_phase seldom(const struct gs_cadence *c, const struct gs_site *site, unsigned *every)
{
    bool regular = c->gaps >= 1 && c->gap_most - c->gap_least <= 1 + c->gap_least / 10;
    if (may_be_evaluation(site) || c->calls >= BURST * c->hits) {
        return GS_PHASE_EVALUATION;
    }
    *every = regular ? (unsigned)(c->gap_sum / c->gaps) : 0;
    return GS_PHASE_LOGGING;
}

static enum gs_phase phase_of(const struct gs_cadence *c, const struct gs_site *site, unsigned *every)
{
    uint64_t outside = c->before + c->between + c->after;
    *every = 0;
    if (c->steps == 0) {
        return GS_PHASE_UNKNOWN;
    }
    if (c->calls && (double)c->hits >= most * (double)c->steps) {
        return named_evaluation(site) ? GS_PHASE_EVALUATION : GS_PHASE_STEP;
    }
    if (c->between && c->between >= c->calls) { /* what it did in the step before the gap is its tail */
        return GS_PHASE_EVALUATION;
    }
    if (c->calls * 2 > outside) {
        return seldom(c, site, every);
    }
    return c->before >= c->after ? GS_PHASE_STARTUP : GS_PHASE_END;
}

struct gs_pace gs_pace_of(const struct gs_cadence *c, const struct gs_site *site)
{
    struct gs_pace p = {.calls_per_step = NAN, .steady_share = NAN, .steady_blocked_s = NAN};
    p.phase = phase_of(c, site, &p.every);
    if (c->steps) {
        p.calls_per_step = (double)c->calls / (double)c->steps;
        p.steps_with = c->hits;
        p.steps_seen = c->steps;
        p.steady_blocked_s = (double)c->blocked_ns / 1e9;
        double rest = (double)(c->steady_ns - c->blocked_ns);
        p.bunched = c->calls > c->hits && (double)c->apart_ns < bunch * rest;
        p.loop = c->loop;
        p.steady_share = c->steady_ns > 0 ? (double)c->blocked_ns / (double)c->steady_ns : NAN;
    }
    return p;
}

bool gs_pace_costs(const struct gs_pace *p, bool simulated, bool by_count, bool otherwise)
{
    if (p->phase == GS_PHASE_UNKNOWN) {
        return otherwise;
    }
    bool often =
        p->phase == GS_PHASE_STEP || (p->phase == GS_PHASE_LOGGING && p->every && p->every < SELDOM && !simulated);
    if (simulated) {
        return often && by_count && p->calls_per_step >= once;
    }
    return often && p->steady_share >= matters_share && p->steady_blocked_s >= matters_s;
}

char *gs_pace_text(const struct gs_pace *p, char out[GS_PACE_TEXT])
{
    double n = round(p->calls_per_step * 10) / 10;
    *out = 0;
    if (p->phase == GS_PHASE_STEP) {
        snprintf(out, GS_PACE_TEXT, "%.*f a step", n == floor(n) ? 0 : 1, n);
    } else if (p->phase == GS_PHASE_LOGGING && p->every) {
        snprintf(out, GS_PACE_TEXT, "every %u steps", p->every);
    } else if (p->phase != GS_PHASE_UNKNOWN) {
        static const char *const words[] = {[GS_PHASE_STARTUP] = "before the steps",
                                            [GS_PHASE_LOGGING] = "now and then",
                                            [GS_PHASE_EVALUATION] = "in evaluation",
                                            [GS_PHASE_END] = "after the steps"};
        snprintf(out, GS_PACE_TEXT, "%s", words[p->phase]);
    }
    return out;
}

bool gs_simulated(const struct gs_builder *b)
{
    size_t n;
    const struct gs_device *d = gs_run_devices(b->run, &n);
    for (size_t i = 0; i < n; i++) {
        if (gs_device_simulated(d[i].name)) {
            return true;
        }
    }
    return false;
}

bool gs_has_tensors(const struct gs_builder *b)
{
    for (size_t i = 0; i < gs_run_serieses(b->run); i++) {
        const struct gs_series *s = gs_run_series(b->run, (uint32_t)i);
        if (s->layer == GS_SERIES_TENSOR && s->allocations) {
            return true;
        }
    }
    return false;
}
