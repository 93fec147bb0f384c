/* The comparison in a sentence. */
#include "analyzer/diff/diff_parts.h"

#include <math.h>
#include <string.h>
#include "analyzer/site/site.h"
#include "analyzer/base/units.h"
#include "analyzer/oom/oom.h"

static const double steady = 0.0005; /* a change of the total that is none worth a word */

static const char *amount(struct gs_diff_owner *o, int64_t weight)
{
    char text[UNITS_TEXT];
    uint64_t size = (uint64_t)(weight < 0 ? -weight : weight);
    if (strcmp(o->diff.unit, "ns") == 0) {
        format_seconds(text, (double)size / 1e9);
    } else {
        format_bytes(text, size);
    }
    return gs_arena_printf(&o->arena, "%s", text);
}

/* "The peak of tensors", "The peaks of 8 ranks together" */
static const char *subject(struct gs_diff_owner *o)
{
    static const char *const subjects[GS_PROFILES_N] = {
        [GS_PROFILE_PEAK] = "The peak",
        [GS_PROFILE_OOM] = "What was live when memory ran out",
        [GS_PROFILE_END] = "What was live at the end",
        [GS_PROFILE_AT] = "What was live then",
        [GS_PROFILE_ALLOCATED] = "What was allocated over the run",
        [GS_PROFILE_WAITS] = "The time waited for the GPU",
        [GS_PROFILE_COPIES] = "What was copied",
    };
    struct gs_diff *d = &o->diff;
    const char *of = d->layer && d->wish.what == GS_PROFILE_PEAK ? gs_arena_printf(&o->arena, " of %s", d->layer) : "";
    if (d->units_n > 1 && d->wish.what == GS_PROFILE_PEAK) {
        return gs_arena_printf(&o->arena, "The sum of %zu peaks%s", d->units_n, of);
    }
    return gs_arena_printf(&o->arena, "%s%s", subjects[d->wish.what], of);
}

static const char *base(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

/* "activations at model.py:88 in Block.forward" */
static const char *row_text(struct gs_diff_owner *o, const struct gs_diff_row *r)
{
    char site[1024];
    const struct gs_site *s = &r->site[r->there[GS_AFTER]];
    switch (o->diff.wish.by) {
    case GS_DIFF_CATEGORY:
        return r->category == GS_CATEGORY_UNKNOWN ? "what has no category" : gs_category_text(r->category);
    case GS_DIFF_OWNER: return r->name;
    case GS_DIFF_FILE: return s->known ? base(s->file) : "an unknown place";
    case GS_DIFF_FUNCTION:
        return s->function ? gs_arena_printf(&o->arena, "%s in %s", s->function, base(s->file))
                           : gs_arena_printf(&o->arena, "%s", gs_site_text(s, site, sizeof site));
    default:
        return gs_arena_printf(&o->arena, "%s%s%s",
                               r->category != GS_CATEGORY_UNKNOWN ? gs_category_text(r->category) : "",
                               r->category != GS_CATEGORY_UNKNOWN ? " at " : "", gs_site_text(s, site, sizeof site));
    }
}

/* The widest row that grew, or that shrank. */
static const struct gs_diff_row *widest(const struct gs_diff *d, bool grown)
{
    for (size_t i = 0; i < d->rows_n; i++) {
        if ((gs_diff_change(&d->rows[i].sum) > 0) == grown) {
            return &d->rows[i];
        }
    }
    return NULL;
}

static const char *with_change(struct gs_diff_owner *o, const struct gs_diff_row *r)
{
    int64_t change = gs_diff_change(&r->sum);
    return gs_arena_printf(&o->arena, "%s (%s%s)", row_text(o, r), change < 0 ? "-" : "+", amount(o, change));
}

static const char *share_text(struct gs_diff_owner *o, int64_t before, int64_t change)
{
    char text[UNITS_TEXT];
    if (before <= 0) {
        return "";
    }
    format_share(text, fabs((double)change / (double)before));
    return gs_arena_printf(&o->arena, " (%s%s)", change < 0 ? "-" : "+", text);
}

/* Little or no change in sum: what came and went is then what there is to say. */
static const char *same_text(struct gs_diff_owner *o, const char *of)
{
    const struct gs_diff *d = &o->diff;
    const struct gs_diff_row *up = widest(d, true), *down = widest(d, false);
    const char *after = amount(o, d->total.weight[GS_AFTER]);
    int64_t change = gs_diff_change(&d->total);
    const char *by =
        change ? gs_arena_printf(&o->arena, " but for %s%s", change < 0 ? "-" : "+", amount(o, change)) : "";
    if (!up && !down) {
        return gs_arena_printf(&o->arena, "%s is the same%s: %s", of, by, after);
    }
    if (up && down) {
        return gs_arena_printf(&o->arena, "%s is the same in sum%s, %s; what changed: %s and %s", of, by, after,
                               with_change(o, up), with_change(o, down));
    }
    return gs_arena_printf(&o->arena, "%s is the same%s, %s; what changed: %s", of, by, after,
                           with_change(o, up ? up : down));
}

static const char *verdict(struct gs_diff_owner *o)
{
    const struct gs_diff *d = &o->diff;
    const char *of = subject(o);
    int64_t before = d->total.weight[GS_BEFORE], after = d->total.weight[GS_AFTER], change = after - before;
    int64_t larger = before > after ? before : after;
    if (!d->total.count[GS_BEFORE] && !d->total.count[GS_AFTER]) {
        return d->wish.what == GS_PROFILE_OOM ? "Neither run ran out of memory" : "Neither run has anything of this";
    }
    if (!d->total.count[GS_BEFORE] || !d->total.count[GS_AFTER]) {
        int has = d->total.count[GS_AFTER] > 0;
        return gs_arena_printf(&o->arena, "Only the %s run %s: %s, heaviest %s", has ? "second" : "first",
                               d->wish.what == GS_PROFILE_OOM ? "ran out of memory" : "has anything of this",
                               amount(o, d->total.weight[has]), d->rows_n ? row_text(o, &d->rows[0]) : "unknown");
    }
    if ((double)(change < 0 ? -change : change) <= steady * (double)larger) {
        return same_text(o, of);
    }
    const struct gs_diff_row *most = widest(d, change > 0);
    return gs_arena_printf(&o->arena, "%s %s by %s%s, from %s to %s%s%s", of, change > 0 ? "grew" : "shrank",
                           amount(o, change), share_text(o, before, change), amount(o, before), amount(o, after),
                           most ? ": " : "", most ? with_change(o, most) : "");
}

/* What is summed over a run grows with the run: beside it, what it comes to in a step. */
static void per_step(struct gs_diff_owner *o)
{
    const struct gs_diff *d = &o->diff;
    bool summed =
        d->wish.what == GS_PROFILE_ALLOCATED || d->wish.what == GS_PROFILE_WAITS || d->wish.what == GS_PROFILE_COPIES;
    for (size_t i = 0; i < d->figures_n && summed; i++) {
        const struct gs_diff_figure *f = &d->figures[i];
        if (strcmp(f->key, "steps") == 0 && f->value[0] > 0 && f->value[1] > 0 && f->value[0] != f->value[1]) {
            gs_diff_note(o, "the first run has %.0f steps and the second %.0f: divided by them it is %s and %s a step",
                         f->value[0], f->value[1], amount(o, (int64_t)((double)d->total.weight[0] / f->value[0])),
                         amount(o, (int64_t)((double)d->total.weight[1] / f->value[1])));
        }
    }
}

static const struct gs_oom_verdict *fatal(const struct gs_report *r)
{
    for (size_t i = 0; i < r->ooms_n; i++) {
        if (r->ooms[i].fatal) {
            return &r->ooms[i];
        }
    }
    return NULL;
}

/* One ran out of memory and the other did not: that is what anybody asks first. */
static const char *failure(struct gs_diff_owner *o, const struct gs_diff_side side[2])
{
    const struct gs_oom_verdict *v[2] = {fatal(side[0].report), fatal(side[1].report)};
    if (!v[0] == !v[1]) {
        return v[0] && v[0]->cause != v[1]->cause
                   ? gs_arena_printf(&o->arena, "Both ran out of memory: the first of %s, the second of %s",
                                     gs_cause_word(v[0]->cause), gs_cause_word(v[1]->cause))
               : v[0] ? gs_arena_printf(&o->arena, "Both ran out of memory: %s", gs_cause_word(v[0]->cause))
                      : NULL;
    }
    return gs_arena_printf(&o->arena, "The %s ran out of memory (%s), the %s did not", v[0] ? "first" : "second",
                           gs_cause_word(v[0] ? v[0]->cause : v[1]->cause), v[0] ? "second" : "first");
}

void gs_diff_words(struct gs_diff_owner *o, const struct gs_diff_side side[2])
{
    per_step(o);
    o->diff.verdict = verdict(o);
    o->diff.more = failure(o, side);
}
