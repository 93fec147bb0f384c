/* The comparison in a sentence. */
#include "analyzer/diff/diff_parts.h"

#include <math.h>
#include <string.h>
#include "analyzer/site/site.h"
#include "analyzer/base/each.h"
#include "analyzer/base/units.h"

static const double steady = 0.0005; /* smaller changes of the total are not mentioned */

static const char *amount_text(struct diff_owner *o, int64_t weight)
{
    char text[UNITS_TEXT];
    uint64_t size = (uint64_t)(weight < 0 ? -weight : weight);
    if (strcmp(o->diff.unit, "ns") == 0)
        units_format_seconds(text, (double)size / 1e9);
    else
        units_format_bytes(text, size);
    return arena_printf(&o->arena, "%s", text);
}

/* "The peak of tensors", "The peaks of 8 ranks together" */
static const char *subject_text(struct diff_owner *o, bool once)
{
    static const char *const subjects[PROFILE_KINDS_N] = {
        [PROFILE_PEAK] = "The peak",
        [PROFILE_OOM] = "Memory live at the out-of-memory error",
        [PROFILE_END] = "Memory live at the end",
        [PROFILE_AT] = "Memory live then",
        [PROFILE_ALLOCATED] = "Memory allocated over the run",
        [PROFILE_WAITS] = "The time waited for the GPU",
        [PROFILE_COPIES] = "What was copied",
    };
    struct diff *d = &o->diff;
    if (d->wish.what == PROFILE_PEAK && once) return "Live memory";
    const char *of = d->layer && d->wish.what == PROFILE_PEAK ? arena_printf(&o->arena, " of %s", d->layer) : "";
    if (d->units_n > 1 && d->wish.what == PROFILE_PEAK)
        return arena_printf(&o->arena, "The sum of %zu peaks%s", d->units_n, of);
    return arena_printf(&o->arena, "%s%s", subjects[d->wish.what], of);
}

static const char *path_base(const char *path)
{
    return path ? basename(path) : "?";
}

/* "activations at model.py:88 in Block.forward" */
static const char *diff_row_text(struct diff_owner *o, const struct diff_row *r)
{
    char site[1024];
    const struct result_site *s = &r->site[r->present[DIFF_AFTER]];
    switch (o->diff.wish.by) {
    case DIFF_CATEGORY:
        return r->category == RESULT_CATEGORY_UNKNOWN ? "memory without a category" : result_category_text(r->category);
    case DIFF_OWNER: return r->name;
    case DIFF_FILE: return s->known ? path_base(s->file) : "a call without a stack";
    case DIFF_FUNCTION:
        return s->function ? arena_printf(&o->arena, "%s in %s", s->function, path_base(s->file))
                           : arena_printf(&o->arena, "%s", site_text(s, site, sizeof site));
    default:
        return arena_printf(&o->arena, "%s%s%s",
                            r->category != RESULT_CATEGORY_UNKNOWN ? result_category_text(r->category) : "",
                            r->category != RESULT_CATEGORY_UNKNOWN ? " at " : "", site_text(s, site, sizeof site));
    }
}

/* The largest row that grew, or that shrank. */
static const struct diff_row *widest_change(const struct diff *d, bool grown)
{
    return FIND_IN(r, d->rows, (diff_change(&r->sum) > 0) == grown);
}

static const char *with_change(struct diff_owner *o, const struct diff_row *r)
{
    int64_t change = diff_change(&r->sum);
    return arena_printf(&o->arena, "%s (%s%s)", diff_row_text(o, r), change < 0 ? "-" : "+", amount_text(o, change));
}

static const char *diff_share_text(struct diff_owner *o, int64_t before, int64_t change)
{
    char text[UNITS_TEXT];
    if (before <= 0 || fabs((double)change / (double)before) >= 10) return ""; /* a larger share is meaningless */
    units_format_share(text, fabs((double)change / (double)before));
    return arena_printf(&o->arena, " (%s%s)", change < 0 ? "-" : "+", text);
}

/* Little or no change in sum: then the rows that grew and shrank are reported. */
static const char *same_text(struct diff_owner *o, const char *of)
{
    const struct diff *d = &o->diff;
    const struct diff_row *up = widest_change(d, true), *down = widest_change(d, false);
    const char *after = amount_text(o, d->total.weight[DIFF_AFTER]);
    int64_t change = diff_change(&d->total);
    const char *by =
        change ? arena_printf(&o->arena, " except for %s%s", change < 0 ? "-" : "+", amount_text(o, change)) : "";
    if (!up && !down) return arena_printf(&o->arena, "%s is the same%s: %s", of, by, after);
    if (up && down) {
        return arena_printf(&o->arena, "%s is the same in total%s, %s; what changed: %s and %s", of, by, after,
                            with_change(o, up), with_change(o, down));
    }
    return arena_printf(&o->arena, "%s is the same%s, %s; what changed: %s", of, by, after,
                        with_change(o, up ? up : down));
}

static const char *diff_verdict(struct diff_owner *o, const struct diff_side side[2])
{
    const struct diff *d = &o->diff;
    if (d->unknown) return d->unknown;
    const char *of = subject_text(o, side[0].report->no_history && side[1].report->no_history);
    int64_t before = d->total.weight[DIFF_BEFORE], after = d->total.weight[DIFF_AFTER], change = after - before;
    int64_t larger = before > after ? before : after;
    if (!d->total.count[DIFF_BEFORE] && !d->total.count[DIFF_AFTER])
        return d->wish.what == PROFILE_OOM ? "Neither run ran out of memory" : "Neither run has any";
    if (!d->total.count[DIFF_BEFORE] || !d->total.count[DIFF_AFTER]) {
        int has = d->total.count[DIFF_AFTER] > 0;
        return arena_printf(&o->arena, "Only the %s run %s: %s, largest %s", has ? "second" : "first",
                            d->wish.what == PROFILE_OOM ? "ran out of memory" : "has any",
                            amount_text(o, d->total.weight[has]),
                            d->rows_n ? diff_row_text(o, &d->rows[0]) : "unknown");
    }
    if ((double)(change < 0 ? -change : change) <= steady * (double)larger) return same_text(o, of);
    const struct diff_row *most = widest_change(d, change > 0);
    return arena_printf(&o->arena, "%s %s by %s%s, from %s to %s%s%s", of, change > 0 ? "grew" : "shrank",
                        amount_text(o, change), diff_share_text(o, before, change), amount_text(o, before),
                        amount_text(o, after), most ? ": " : "", most ? with_change(o, most) : "");
}

/* A sum over a run grows with the run: adds the amount per step. */
static void note_per_step(struct diff_owner *o)
{
    const struct diff *d = &o->diff;
    bool summed = d->wish.what == PROFILE_ALLOCATED || d->wish.what == PROFILE_WAITS || d->wish.what == PROFILE_COPIES;
    for (size_t i = 0; i < d->figures_n && summed; i++) {
        const struct diff_figure *f = &d->figures[i];
        if (strcmp(f->key, "steps") == 0 && f->value[0] > 0 && f->value[1] > 0 && f->value[0] != f->value[1]) {
            diff_add_note(o, "the first run has %s and the second %s: that is %s and %s per step",
                          UNITS_PLURAL(units_whole(f->value[0]), "step", NULL), UNITS_COUNT(units_whole(f->value[1])),
                          amount_text(o, (int64_t)((double)d->total.weight[0] / f->value[0])),
                          amount_text(o, (int64_t)((double)d->total.weight[1] / f->value[1])));
        }
    }
}

static const struct result_oom_verdict *fatal_failure(const struct result_report *r)
{
    return FIND_IN(o, r->ooms, o->fatal);
}

/* One run ran out of memory and the other did not: that comes first. */
static const char *failure_verdict(struct diff_owner *o, const struct diff_side side[2])
{
    const struct result_oom_verdict *v[2] = {fatal_failure(side[0].report), fatal_failure(side[1].report)};
    if (!v[0] == !v[1]) {
        return v[0] && v[0]->cause != v[1]->cause
                   ? arena_printf(&o->arena, "Both ran out of memory; the cause: %s in the first run, %s in the second",
                                  result_cause_word(v[0]->cause), result_cause_word(v[1]->cause))
               : v[0] ? arena_printf(&o->arena, "Both ran out of memory; the cause: %s", result_cause_word(v[0]->cause))
                      : NULL;
    }
    if (side[v[0] ? 1 : 0].report->no_memory) {
        return arena_printf(&o->arena, "The %s ran out of memory (%s); gpuspy does not know whether the %s did",
                            v[0] ? "first" : "second", result_cause_word(v[0] ? v[0]->cause : v[1]->cause),
                            v[0] ? "second" : "first");
    }
    return arena_printf(&o->arena, "The %s ran out of memory (%s), the %s did not", v[0] ? "first" : "second",
                        result_cause_word(v[0] ? v[0]->cause : v[1]->cause), v[0] ? "second" : "first");
}

void diff_write_verdict(struct diff_owner *o, const struct diff_side side[2])
{
    note_per_step(o);
    o->diff.verdict = diff_verdict(o, side);
    o->diff.more = failure_verdict(o, side);
}
