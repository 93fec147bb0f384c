/* One piece of advice for all lines whose waits it remedies. */
#include "analyzer/step/cadence.h"
#include "analyzer/base/units.h"
#include "analyzer/question/question.h"

#include <string.h>

struct alike { /* waits with the same advice, largest first */
    struct site_builder *b;
    const struct result_sync_site *list[QUESTION_ADVICE_SYNCS];
    size_t n;
};

static struct alike alike_of(struct site_builder *b, size_t from, bool *done)
{
    struct alike a = {.b = b};
    const struct result_report *r = b->report;
    for (size_t i = from; i < r->syncs_n && i < QUESTION_ADVICE_SYNCS; i++) {
        if (r->syncs[i].advice == r->syncs[from].advice) { /* each text exists once in memory */
            a.list[a.n++] = &r->syncs[i];
            done[i] = true;
        }
    }
    return a;
}

static const char *wait_place_of(const struct alike *a, size_t i)
{
    return site_short_text(a->b, &a->list[i]->site);
}

/* The expression of the user's line, such as .item(), in backticks. */
static const char *wait_function_of(const struct alike *a, size_t i)
{
    const char *name = a->list[i]->pattern ? a->list[i]->pattern : a->list[i]->api;
    const size_t callee = strcspn(name, "( "), call = name[callee] == '(' ? strcspn(name, ")") + 1 : 0;
    return call ? arena_printf(a->b->arena, "`%.*s`%s", (int)call, name, name + call) : name;
}

/* "a.py:3, b.py:7 and 2 more": each once, the first three, separated by `comma`. */
static const char *list_of(const struct alike *a, const char *comma, const char *(*word)(const struct alike *, size_t))
{
    enum { MOST = 3 };
    const char *seen[QUESTION_ADVICE_SYNCS], *text = "";
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        const char *one = word(a, i);
        bool again = !*one;
        for (size_t j = 0; j < n && !again; j++) again = strcmp(seen[j], one) == 0;
        if (!again) {
            seen[n++] = one;
            text = n > MOST ? text : arena_printf(a->b->arena, "%s%s%s", text, n > 1 ? comma : "", one);
        }
    }
    return n > MOST ? arena_printf(a->b->arena, "%s and %zu more", text, n - MOST) : text;
}

/* That of all its waits together, which several call paths may reach. */
static struct result_pace pace_of_place(const struct alike *a, size_t i)
{
    struct result_pace pace = a->list[i]->pace;
    const char *place = wait_place_of(a, i);
    for (size_t k = 0; k < a->n; k++) {
        const struct result_pace *p = &a->list[k]->pace;
        const bool both = p->phase == RESULT_PHASE_STEP && pace.phase == RESULT_PHASE_STEP;
        if (k != i && both && strcmp(wait_place_of(a, k), place) == 0) pace.calls_per_step += p->calls_per_step;
    }
    return pace;
}

/* ", 1 per step", ", up to 5 per step", "". */
static const char *wait_pace_of(const struct alike *a)
{
    struct result_pace most = pace_of_place(a, 0);
    bool differ = false;
    char text[STEP_PACE_TEXT], other[STEP_PACE_TEXT];
    step_pace_text(&most, text);
    for (size_t i = 1; i < a->n; i++) {
        const struct result_pace p = pace_of_place(a, i);
        differ = differ || strcmp(step_pace_text(&p, other), text) != 0;
        most = p.calls_per_step > most.calls_per_step ? p : most;
    }
    bool steps = most.phase == RESULT_PHASE_STEP;
    return *step_pace_text(&most, text) && (steps || !differ)
               ? arena_printf(a->b->arena, ", %s%s", differ ? "up to " : "", text)
               : "";
}

struct result_advice question_advice_of_waits(struct site_builder *b, size_t from, bool *done)
{
    struct alike a = alike_of(b, from, done);
    double blocked = 0, share = 0, calls = 0;
    for (size_t i = 0; i < a.n; i++) {
        blocked += a.list[i]->blocked_s;
        share += a.list[i]->share;
        calls += a.list[i]->pace.phase == RESULT_PHASE_STEP ? a.list[i]->pace.calls_per_step : 0;
    }
    const char *where = list_of(&a, ", ", wait_place_of), *what = list_of(&a, " / ", wait_function_of),
               *pace = wait_pace_of(&a);
    const char *advice = a.list[0]->advice;
    if (b->report->simulated) {
        /* Without times. Below memory, above the smallest shares, ordered by frequency. */
        return (struct result_advice){
            .topic = "sync",
            .impact = 0.02 + 0.1 * calls / (calls + 10),
            .text = arena_printf(b->arena, "%s: %s%s: %s", where, *what ? what : "waits", pace, advice)};
    }
    return (struct result_advice){.topic = "sync",
                                  .impact = share,
                                  .text = arena_printf(b->arena, "%s: %s (%s)%s%s%s: %s", where, UNITS_SECONDS(blocked),
                                                       UNITS_SHARE(share), *what ? " in " : "", what, pace, advice)};
}
