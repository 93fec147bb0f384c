/* Of the measures against an OOM: which are shown, and in which order. */
#include "analyzer/oom/oom_choice.h"

#include "analyzer/base/arena.h"
#include "analyzer/oom/oom_words.h"

enum { MEASURES_MOST = 4, HARDLY = 16 };

/* The value of an amount: of two similar ones the easier is preferred. */
static double measure_worth(const struct result_measure *m)
{
    static const double of_effort[] = {1, 1, 0.9, 0.8, 0.5, 0.5}; /* by enum oom_effort */
    return (double)m->frees_bytes * of_effort[m->effort];
}

static bool is_measure_better(const struct result_measure *x, const struct result_measure *y)
{
    if (x->first != y->first) return x->first;
    if ((x->effort == OOM_EFFORT_DEVICE) != (y->effort == OOM_EFFORT_DEVICE)) return y->effort == OOM_EFFORT_DEVICE;
    if (run_is_known(x->frees_bytes) != run_is_known(y->frees_bytes)) return run_is_known(x->frees_bytes);
    if ((x->enough > 0) != (y->enough > 0)) return x->enough > 0;
    return run_is_known(x->frees_bytes) && measure_worth(x) > measure_worth(y);
}

/* Drops measures that free hardly anything compared with another. */
static void drop_small(struct result_oom_verdict *v)
{
    int64_t most = 0;
    size_t kept = 0;
    for (size_t i = 0; i < v->measures_n; i++)
        most = v->measures[i].frees_bytes > most ? v->measures[i].frees_bytes : most;
    EACH_IN (m, v->measures) {
        const bool setting =
            (m->replayed && m->fits && m->effort == OOM_EFFORT_SETTING) || m->effort == OOM_EFFORT_DEVICE;
        if (m->first || setting || !run_is_known(m->frees_bytes) || m->frees_bytes >= most / HARDLY)
            v->measures[kept++] = *m;
    }
    v->measures_n = kept;
}

/* Another cap comes last, but is never left out: the failure itself states the cap. */
static void keep_device(struct result_oom_verdict *v)
{
    for (size_t i = MEASURES_MOST; i < v->measures_n; i++)
        if (v->measures[i].effort == OOM_EFFORT_DEVICE) v->measures[MEASURES_MOST - 1] = v->measures[i];
}

void oom_choose_measures(struct site_builder *b, struct result_oom_verdict *v)
{
    bool first = false;
    for (size_t i = 0; i < v->measures_n; i++) {
        v->measures[i].first = v->measures[i].first && !first;
        first = first || v->measures[i].first;
    }
    drop_small(v);
    for (size_t i = 1; i < v->measures_n; i++) { /* few, and equal ones keep their order */
        for (size_t j = i; j > 0 && is_measure_better(&v->measures[j], &v->measures[j - 1]); j--) {
            struct result_measure m = v->measures[j];
            v->measures[j] = v->measures[j - 1];
            v->measures[j - 1] = m;
        }
    }
    keep_device(v);
    v->measures_n = v->measures_n < MEASURES_MOST ? v->measures_n : MEASURES_MOST;
    v->advice = arena_alloc(b->arena, v->measures_n * sizeof *v->advice);
    v->advice_n = v->measures_n;
    for (size_t i = 0; i < v->measures_n; i++) v->advice[i] = v->measures[i].text;
}
