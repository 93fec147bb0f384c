#include "analyzer/view/view_whatif.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/text_table.h"
#include "analyzer/base/units.h"
#include "analyzer/draw/json_site.h"
#include "analyzer/site/site.h"
#include "analyzer/view/view_text_parts.h"

static void failure_text(const struct view_whatif *w, const struct whatif_failure *f, char *out, size_t size)
{
    char place[256], step[48] = "";
    const struct result_site site = site_of(w->run, f->stack, NULL);
    if (!f->event && !f->time_ns && f->stack == RUN_NONE) {
        text_put(out, size, "when the recording begins: what is reserved then needs %s more",
                 DRAW_BYTES(f->requested_bytes));
        return;
    }
    if (f->step) text_put(step, sizeof step, ", in step %llu", (unsigned long long)f->step);
    text_put(out, size, "at %s%s: %s requests %s", UNITS_SECONDS((double)f->time_ns / 1e9), step,
             site_text(&site, place, sizeof place), DRAW_BYTES(f->requested_bytes));
}

/* ", with 2.00 MiB to spare" */
static char *spare_text(const struct whatif_outcome *o, char *out, size_t size)
{
    out[0] = 0;
    if (run_is_known(o->spare_bytes)) text_put(out, size, ", with %s to spare", DRAW_BYTES(o->spare_bytes));
    return out;
}

#define LATER "The recording ends there: what the program would need later is unknown"

static void result_text(const struct view_whatif *w, char *out, size_t size)
{
    const struct whatif_scenario *s = w->scenarios;
    char spare[64];
    if (s->error)
        text_put(out, size, "not replayed: %s", s->error);
    else if (s->outcome.request_fits)
        text_put(out, size, "the request that failed fits%s. " LATER, spare_text(&s->outcome, spare, sizeof spare));
    else if (s->outcome.doubts & WHATIF_HANDLED)
        text_put(out, size,
                 "the request whose failure the program handled fits. What the program would do then is unknown");
    else
        text_put(out, size, "the run completes%s", s->outcome.doubts & WHATIF_FREE ? " with the recorded sizes" : "");
    if (s->error || s->outcome.fits) return;
    text_put(out, size, "out of memory ");
    failure_text(w, &s->outcome.oom, out + strlen(out), size - strlen(out));
}

/* A search has settings first, the best one before the others, then GPUs. */
static size_t count_settings(const struct view_whatif *w)
{
    size_t n = 0;
    while (n < w->n && w->scenarios[n].conf) n++;
    return n;
}

/* A setting helps only if it saves at least 1 %. */
static bool does_scenario_help(const struct whatif_scenario *s, const struct whatif_outcome *recorded)
{
    const struct whatif_outcome *o = &s->outcome;
    if (s->error || !s->conf || !o->fits) return false;
    return !recorded->fits || o->peak_reserved_bytes <= recorded->peak_reserved_bytes / 100 * 99;
}

/* Which setting helps, if one does. */
static void best_text(const struct view_whatif *w, char *out, size_t size)
{
    const struct whatif_outcome *recorded = &w->proof->recorded;
    const struct whatif_scenario *best = w->scenarios;
    const size_t n = count_settings(w);
    char then[UNITS_TEXT], spare[64];
    draw_bytes(then, recorded->peak_reserved_bytes);
    if (!recorded->fits && n && does_scenario_help(best, recorded))
        text_put(out, size, "with %s, the request that failed fits%s. " LATER, best->conf,
                 spare_text(&best->outcome, spare, sizeof spare));
    else if (!recorded->fits)
        text_put(out, size, "none of the %zu settings tried avoids this failure", n);
    else if (n && does_scenario_help(best, recorded))
        text_put(out, size, "%s needs the least memory: %s reserved at the peak instead of %s%s", best->conf,
                 DRAW_BYTES(best->outcome.peak_reserved_bytes), then,
                 best->outcome.doubts & WHATIF_HANDLED ? ", if the program goes on as recorded" : "");
    else
        text_put(out, size, "none of the %zu settings tried saves 1 %% of the recorded %s%s", n, then,
                 w->proof->segments ? "" : ", all of which was reserved before the recording began");
}

/* The smallest GPU that is large enough, and the next smaller one. */
static void gpu_text(const struct view_whatif *w, char *out, size_t size)
{
    const size_t first = count_settings(w);
    char spare[64];
    out[0] = 0;
    for (size_t i = first; i < w->n; i++) {
        const struct whatif_scenario *s = &w->scenarios[i];
        if (s->error) continue;
        if (!s->outcome.fits)
            text_put(out, size, "%s is too small; ", s->name);
        else
            text_put(out + strlen(out), size - strlen(out), "%s is the smallest GPU tried on which %s%s", s->name,
                     s->outcome.request_fits ? "that request fits" : "the run completes",
                     s->outcome.request_fits ? spare_text(&s->outcome, spare, sizeof spare) : "");
    }
    const size_t n = strlen(out);
    const bool none = n > 2 && out[n - 2] == ';';
    if (none && w->proof->recorded.fits)
        text_put(out + n, size - n, "the recorded GPU is the smallest tried on which the run completes");
    else if (none)
        out[n - 2] = 0;
}

/* A space follows each comma between settings, so that a narrow table breaks the line there, not within a word. */
static void spread_settings(char *out, size_t size, const char *name)
{
    size_t n = 0;
    int brackets = 0;
    for (; *name && n + 2 < size; name++) {
        brackets += *name == '[' ? 1 : *name == ']' ? -1 : 0;
        out[n++] = *name;
        if (*name == ',' && !brackets) out[n++] = ' ';
    }
    out[n] = 0;
}

/* What limits the results, once below the table. */
static void print_limits(const struct draw_text *t, const struct view_whatif *w)
{
    unsigned found = 0;
    for (size_t i = 0; i < w->n; i++) found |= w->scenarios[i].error ? 0 : w->scenarios[i].outcome.doubts;
    for (size_t i = 0; i < WHATIF_DOUBTS; i++) {
        if (!(found >> i & 1)) continue;
        fputc('\n', t->out);
        draw_wrap(t, INDENT, "", "%s", whatif_doubt_texts[i]);
    }
}

static void add_outcome_row(struct text_table *table, bool search, const char *name, const char *error,
                            const struct whatif_outcome *o)
{
    char allocated[UNITS_TEXT], outcome[UNITS_TEXT + 16] = "completes";
    char spread[512];
    size_t n = 0;
    if (!o->fits)
        text_put(outcome, sizeof outcome, "OOM at %s", UNITS_SECONDS((double)o->oom.time_ns / 1e9));
    else if (o->request_fits || o->doubts & WHATIF_HANDLED)
        text_put(outcome, sizeof outcome, "request fits");
    spread_settings(spread, sizeof spread, name);
    const char *cells[TEXT_TABLE_COLUMNS];
    cells[n++] = error ? "not replayed" : outcome;
    cells[n++] = error ? "" : DRAW_BYTES(o->peak_reserved_bytes);
    if (!search) cells[n++] = error ? "" : draw_bytes(allocated, o->peak_allocated_bytes);
    cells[n++] = error ? "" : UNITS_COUNT(o->retries);
    cells[n] = spread;
    (void)text_table_add(table, cells, NULL);
}

/* Does the setting change nothing that the table shows? */
static bool is_outcome_same(const struct whatif_outcome *a, const struct whatif_outcome *b)
{
    return a->fits == b->fits && a->retries == b->retries && a->peak_reserved_bytes == b->peak_reserved_bytes &&
           (a->fits || a->oom.time_ns == b->oom.time_ns);
}

static void print_outcomes(const struct draw_text *t, const struct view_whatif *w)
{
    struct text_table search = {.head = {"outcome", "peak reserved", "retries", "what if"}, .left = {true}},
                      one = {.head = {"outcome", "peak reserved", "peak allocated", "retries", "what if"},
                             .left = {true}};
    struct text_table *table = w->search ? &search : &one;
    const struct whatif_outcome *recorded = &w->proof->recorded;
    char same[1024] = "", spread[512];
    size_t at = 0;
    add_outcome_row(table, w->search, "as recorded", NULL, recorded);
    EACH (s, w->scenarios, w->n) {
        if (w->search && s->conf && !s->error && is_outcome_same(&s->outcome, recorded) && at < sizeof same) {
            spread_settings(spread, sizeof spread, s->name);
            at += (size_t)snprintf(same + at, sizeof same - at, "%s%s", at ? "; " : "", spread);
        } else {
            add_outcome_row(table, w->search, s->name, s->error, &s->outcome);
        }
    }
    fputc('\n', t->out);
    text_table_print(table, &t->term, INDENT, t->out);
    if (same[0]) {
        char line[sizeof same + 32];
        text_put(line, sizeof line, "no difference with: %s", same);
        fprintf(t->out, "%*s", INDENT, "");
        text_wrap(t->out, &t->term, 2 * INDENT, INDENT, false, line);
    }
}

static void print_proof(const struct draw_text *t, const struct whatif_proof *p)
{
    char line[512], blocks[UNITS_TEXT], segments[UNITS_TEXT];
    units_format_plural(blocks, p->blocks, "allocation", NULL);
    units_format_plural(segments, p->segments, "segment", NULL);
    if (p->exact) {
        text_put(line, sizeof line,
                 "exact: under the recorded settings, the replay requests %s and places %s, all as recorded", segments,
                 blocks);
    } else if (p->parted_at_event) {
        text_put(
            line, sizeof line,
            "inexact: under the recorded settings, the replay differs from the recording from event %s (%s) on: %s. "
            "%s of %s and %s of %s are as recorded",
            UNITS_COUNT(p->parted_at_event), UNITS_SECONDS((double)p->parted_ns / 1e9), p->reason,
            UNITS_COUNT(p->segments_same), segments, UNITS_COUNT(p->blocks_placed), blocks);
    } else {
        text_put(line, sizeof line, "inexact: %s",
                 p->reason ? p->reason : "the recording has no allocation of PyTorch's to replay");
    }
    draw_label(t, p->exact ? TERMINAL_PLAIN : TERMINAL_BOLD, "Replay", "%s", line);
    if (p->begin_ns) {
        draw_label(t, TERMINAL_PLAIN, "Begins",
                   "at %s: events before that were removed (GPUSPY_KEEP), so the peaks are those after it",
                   UNITS_SECONDS((double)p->begin_ns / 1e9));
    }
    if (p->torch_version) {
        char version[64];
        terminal_clean(version, sizeof version, p->torch_version, t->term.utf8);
        draw_label(t, TERMINAL_PLAIN, "Rules", "PyTorch %s", version);
    } else {
        draw_label(t, TERMINAL_PLAIN, "Rules",
                   "PyTorch %s, whose rules reproduce most of the recording; the recording does not state its version",
                   p->torch_assumed ? p->torch_assumed : "2.11");
    }
}

static void print_next_whatif(const struct draw_text *t, const struct view_whatif *w)
{
    struct view_commands c = {.most = VIEW_COMMANDS};
    const struct whatif_scenario *best = w->scenarios, *last = &w->scenarios[w->n - 1];
    char words[160];
    if (does_scenario_help(best, &w->proof->recorded)) {
        text_put(words, sizeof words, "whatif --set %s --html whatif.html", best->conf);
        view_add_command(&c, words, "memory over time with the best setting, beside the recorded run");
    }
    if (last->limit && last->outcome.fits && !last->error) {
        text_put(words, sizeof words, "whatif --limit %s", last->name);
        view_add_command(&c, words, "the run on that GPU");
    }
    view_add_command(&c, "report", "what held memory, and what to change in the program");
    view_print_commands(t, &c);
}

void view_whatif(const struct draw_text *t, const struct view_whatif *w)
{
    char text[512] = "";
    const struct whatif_outcome *recorded = &w->proof->recorded;
    draw_first_heading(t, TERMINAL_BOLD, "What if", "%s", "");
    if (!recorded->fits) {
        failure_text(w, &recorded->oom, text, sizeof text);
        draw_label(t, TERMINAL_PLAIN, "Failed", "%s", text);
    }
    if (w->search)
        best_text(w, text, sizeof text);
    else
        result_text(w, text, sizeof text);
    draw_label(t, TERMINAL_BOLD, "Result", "%s", text);
    if (w->search) gpu_text(w, text, sizeof text);
    if (w->search && text[0]) draw_label(t, TERMINAL_BOLD, "GPU", "%s", text);
    print_proof(t, w->proof);
    print_outcomes(t, w);
    print_limits(t, w);
    if (w->search && w->n) print_next_whatif(t, w);
}

static json_t *whatif_failure_json(const struct view_whatif *w, const struct whatif_failure *f)
{
    const struct result_site site = site_of(w->run, f->stack, NULL);
    json_t *o = json_object();
    set_real(o, "time_s", (double)f->time_ns / 1e9);
    SET_MEMBERS(o, f, device, event);
    set_json(o, "step", f->step ? json_integer((json_int_t)f->step) : NULL);
    SET_MEMBERS(o, f, requested_bytes, allocated_bytes, reserved_bytes);
    set_json(o, "site", draw_json_site(&site));
    return o;
}

static void outcome_json(json_t *o, const struct view_whatif *w, const struct whatif_outcome *x)
{
    set_json(o, "device", json_integer(x->device));
    set_bytes(o, "device_bytes", x->capacity_bytes);
    set_bool(o, "fits", x->fits);
    set_json(o, "oom", x->fits ? NULL : whatif_failure_json(w, &x->oom));
    SET_MEMBERS(o, x, peak_allocated_bytes, peak_reserved_bytes, segments, retries);
}

static json_t *settings_json(const struct whatif_scenario *s)
{
    json_t *o = json_object();
    if (s->conf) set_text(o, "allocator", s->conf);
    if (s->limit) set_bytes(o, "limit_bytes", s->limit);
    if (s->without) set_text(o, "without", s->without);
    if (s->flush_every) set_count(o, "empty_cache_every", s->flush_every);
    if (s->scale) {
        json_t *scale = json_object();
        for (int c = 0; c < RESULT_CATEGORIES_N; c++)
            if (s->scale->of[c] != 1) set_real(scale, result_category_word((enum result_category)c), s->scale->of[c]);
        if (s->scale->batch != 1) set_real(scale, "batch", s->scale->batch);
        set_json(o, "scale", scale);
    }
    return o;
}

static json_t *doubts_json(unsigned found)
{
    json_t *list = json_array();
    for (size_t i = 0; i < WHATIF_DOUBTS; i++)
        if (found >> i & 1) json_array_append_new(list, json_string(whatif_doubt_texts[i]));
    return list;
}

void view_whatif_json(json_t *o, const struct view_whatif *w)
{
    const struct whatif_proof *p = w->proof;
    json_t *recorded = json_object(), *list = json_array(), *replay = json_object();
    outcome_json(recorded, w, &p->recorded);
    set_json(o, "recorded", recorded);
    EACH (s, w->scenarios, w->n) {
        json_t *x = json_add_object(list);
        set_text(x, "name", s->name);
        set_json(x, "settings", settings_json(s));
        set_bool(x, "exact", p->exact && !s->error && !s->outcome.doubts);
        set_text(x, "error", s->error);
        if (!s->error) {
            set_json(x, "doubts", doubts_json(s->outcome.doubts));
            outcome_json(x, w, &s->outcome);
            set_json(x, "request_fits", s->outcome.request_fits ? json_true() : NULL);
            set_bytes(x, "spare_bytes", s->outcome.spare_bytes);
            set_bytes(x, "cached_bytes", s->outcome.cached_bytes);
            set_bytes(x, "largest_free_bytes", s->outcome.largest_free_bytes);
        }
    }
    set_json(o, "whatif", list);
    set_bool(replay, "exact", p->exact);
    set_count(replay, "allocations", p->blocks);
    set_count(replay, "allocations_at_recorded_address", p->blocks_placed);
    set_count(replay, "segments", p->segments);
    set_count(replay, "segments_as_recorded", p->segments_same);
    set_json(replay, "parted_at_event", p->parted_at_event ? json_integer((json_int_t)p->parted_at_event) : NULL);
    set_real(replay, "begin_s", p->begin_ns ? (double)p->begin_ns / 1e9 : NAN);
    SET_MEMBERS(replay, p, reason, torch_version);
    set_text(replay, "torch_assumed", p->torch_version ? NULL : p->torch_assumed);
    set_json(o, "replay", replay);
}
