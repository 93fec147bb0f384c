/* The report as JSON: the contract of `gpuspy report --json`. Fields are only ever added. Unknown
 * is null. */
#include "analyzer/base/json_out.h"
#include "analyzer/step/step.h"

#include "analyzer/json/json_parts.h"
#include "analyzer/run/words.h"
#include "analyzer/json/view_json.h"

#include <string.h>

static json_t *run_json(const struct result_report *r)
{
    json_t *o = json_object();
    set_text(o, "command", r->command);
    set_json(o, "processes", LIST(r->processes, r->processes_n, draw_json_process));
    SET_MEMBERS(o, r, duration_s, lost_events, lost_first_s, complete);
    if (r->imported) set_bool(o, "imported", true);
    set_count(o, "events", r->events);
    set_json(o, "notes", LIST_OF(r->notes_n, i, json_string(r->notes[i])));
    if (r->lacks_n) { /* of an imported recording */
        set_json(o, "lacks", LIST_OF(r->lacks_n, i, json_string(r->lacks[i])));
        if (r->no_memory) set_text(o, "why_no_memory", r->no_memory);
    }
    set_text(o, "loop", r->loop);
    set_text(o, "outcome", r->ooms_n && r->ooms[0].fatal ? "Memory ran out" : result_outcome_text(r));
    set_text(o, "outcome_hint", result_outcome_hint(r));
    return o;
}

static void run_device_json(json_t *o, const struct run_device *d)
{
    set_json(o, "index", json_integer(d->device));
    SET_MEMBERS(o, d, name, total_bytes, physical_bytes);
    set_bytes(o, "graph_reserved_bytes", d->graph_bytes);
    set_bool(o, "simulated", run_device_is_simulated(d->name));
}

static void category_share_json(json_t *o, const struct result_category_share *s)
{
    set_text(o, "category", result_category_word(s->category));
    SET_MEMBERS(o, s, evidence, bytes, count);
}

/* Only categories that exist; they sum to `bytes`. */
static void set_categories(json_t *o, const struct result_by_category *c, int64_t bytes)
{
    json_t *categories = json_object();
    for (unsigned i = 0; i < RESULT_CATEGORIES_N; i++)
        if (c->bytes[i]) set_bytes(categories, result_category_word((enum result_category)i), c->bytes[i]);
    if (!c->shares_n && bytes != RUN_UNKNOWN)
        set_bytes(categories, result_category_word(RESULT_CATEGORY_UNKNOWN), bytes);
    set_json(o, "by_category", categories);
    set_json(o, "categories", LIST(c->shares, c->shares_n, category_share_json));
}

static const struct result_report *now; /* only while json_report_build runs */
static json_t *frames;                  /* lists of them, which call paths have in common */
static struct map frames_of;            /* stack → index in `frames` */

static const struct result_report *begin_report(const struct result_report *r)
{
    const struct result_report *before = now;
    if (!before) frames = json_array();
    now = r;
    return before;
}

static void end_report(const struct result_report *before)
{
    now = before;
    if (before) return;
    json_decref(frames);
    map_free(&frames_of);
}

static json_t *trace_json(const struct result_trace *t)
{
    json_t *trace = json_array();
    for (uint32_t s = t->number; s != RUN_NONE; s = run_stack_parent(now->run, s)) {
        uint32_t *at = map_at(&frames_of, s);
        if (*at == MAP_NEW) {
            *at = (uint32_t)json_array_size(frames);
            json_array_append_new(frames, draw_json_frames(now->run, s));
        }
        json_array_extend(trace, json_array_get(frames, *at));
    }
    return trace;
}

static void by_stack_json(json_t *o, const struct result_by_stack *s)
{
    SET_MEMBERS(o, s, bytes, count);
    set_text(o, "category", result_category_word(s->category));
    set_text(o, "category_evidence", s->category_evidence);
    set_json(o, "site", draw_json_site(&s->stack.site));
    set_json(o, "frames", trace_json(&s->stack));
}

static void by_site_json(json_t *o, const struct result_by_site *s)
{
    SET_MEMBERS(o, s, bytes, count, stacks);
    set_json(o, "site", draw_json_site(&s->site));
}

/* Adds the process to which an entry belongs, in every run: one process or several. */
static void set_where(json_t *o, uint32_t process, int device)
{
    draw_json_where(o, now, process, device);
}

static void peak_json(json_t *o, const struct result_peak *p)
{
    set_where(o, p->process, p->device);
    set_text(o, "layer", result_series_word(p->layer));
    SET_MEMBERS(o, p, bytes, time_s, count, end_bytes, end_count, allocations, frees, allocated_bytes);
    set_count(o, "stacks", p->by_stack_total);
    set_json(o, "by_stack", LIST(p->by_stack, p->by_stack_n, by_stack_json));
    set_json(o, "by_site", LIST(p->by_site, p->by_site_n, by_site_json));
    set_json(o, "by_line", json_by_line(p->by_line, p->by_line_n));
    set_categories(o, &p->by_category, p->bytes);
    set_json(o, "by_space", json_spaces(p->by_space));
    json_set_owners(o, p->by_owner, p->by_owner_n);
}

static json_t *point_json(const struct result_point *p)
{
    json_t *pair = json_array();
    json_array_append_new(pair, json_real(p->time_s));
    json_array_append_new(pair, json_integer(p->bytes));
    return pair;
}

static void timeline_json(json_t *o, const struct result_timeline *t)
{
    set_where(o, t->process, t->device);
    set_text(o, "layer", result_series_word(t->layer));
    set_json(o, "points", LIST_OF(t->n, i, point_json(&t->points[i])));
}

static void memory_json(json_t *o, const struct result_device_memory *m)
{
    set_where(o, m->process, m->device);
    SET_MEMBERS(o, m, time_s, total_bytes);
    /* tensors without CUDA allocations: the recording lacks the latter */
    set_bytes(o, "live_bytes", m->live_bytes || m->tensor_bytes <= 0 ? m->live_bytes : RUN_UNKNOWN);
    SET_MEMBERS(o, m, tensor_bytes, cached_bytes, direct_bytes, outside_bytes, outside_first_bytes, context_bytes,
                other_bytes, graph_bytes, free_bytes, about);
    SET_MEMBERS(o, m, least_free_bytes, tensor_peak_bytes, reserved_peak_bytes);
}

/* Writes whole numbers, such as bytes, without a fraction. */
static json_t *report_real_or_null(double value)
{
    if (!isfinite(value)) return json_null();
    return value == floor(value) && fabs(value) < 9e15 ? json_integer((json_int_t)value) : json_real(value);
}

static json_t *blame_json(const struct result_oom_verdict *v)
{
    json_t *o = draw_json_site(&v->blame);
    if (json_is_object(o)) set_text(o, "role", v->blame_role);
    return o;
}

static void oom_json(json_t *o, const struct result_oom_verdict *v)
{
    json_t *evidence = json_object();
    set_where(o, v->process, v->device);
    set_real(o, "time_s", v->time_s);
    set_text(o, "layer", run_layer_word(v->layer));
    set_text(o, "space", run_space_word(v->space));
    SET_MEMBERS(o, v, requested_bytes, free_bytes, total_bytes);
    set_bytes(o, "tensor_allocated_bytes", v->tensor_allocated);
    set_bytes(o, "tensor_reserved_bytes", v->tensor_reserved);
    SET_MEMBERS(o, v, fatal, capped, failures);
    set_text(o, "cause", result_cause_word(v->cause));
    set_text(o, "verdict", v->verdict);
    set_bytes(o, "live_bytes", v->device_live);
    set_bytes(o, "outside_bytes", v->outside);
    set_bytes(o, "graph_bytes", v->graphs);
    EACH_IN (e, v->evidence)
        set_json(evidence, e->key, e->is_text ? json_string(e->text) : report_real_or_null(e->value));
    set_json(o, "evidence", evidence);
    set_json(o, "advice", LIST_OF(v->advice_n, i, json_string(v->advice[i])));
    json_oom(o, v);
    set_json(o, "stack", trace_json(&v->stack));
    set_json(o, "site", draw_json_site(&v->stack.site));
    set_json(o, "blame", blame_json(v));
    set_text(o, "live_layer", result_series_word(v->live_layer));
    set_json(o, "live", LIST(v->live, v->live_n, by_site_json));
    set_json(o, "live_lines", json_by_line(v->live_lines, v->live_lines_n));
    set_categories(o, &v->by_category, v->live_sum);
    json_set_owners(o, v->by_owner, v->by_owner_n);
}

static void leak_site_json(json_t *o, const struct result_leak *l)
{
    set_where(o, l->process, l->device);
    set_text(o, "layer", result_series_word(l->layer));
    SET_MEMBERS(o, l, bytes, count, growing);
    set_bool(o, "at_orderly_end", now->leaks_at_end);
    set_json(o, "site", draw_json_site(&l->stack.site));
    set_json(o, "stack", trace_json(&l->stack));
}

static void growth_line_json(json_t *o, const struct result_growth_line *l)
{
    SET_MEMBERS(o, l, bytes, count);
    set_json(o, "site", draw_json_site(&l->site));
}

static void growth_json(json_t *o, const struct result_growth *g)
{
    set_where(o, g->process, g->device);
    set_text(o, "layer", result_series_word(g->layer));
    set_bytes(o, "bytes", g->bytes);
    set_json(o, "bytes_per_step", report_real_or_null(g->bytes_per_step));
    set_count(o, "steps", g->steps);
    set_text(o, "step", g->by_steps ? "step" : "allocation");
    SET_MEMBERS(o, g, count, jumps, graph);
    set_text(o, "certainty", result_certainty_word(g->certainty));
    SET_MEMBERS(o, g, refuted_by, bytes_per_s, fit, first_s, last_s);
    set_json(o, "lines", LIST(g->lines, g->lines_n, growth_line_json));
    set_json(o, "newest", draw_json_site(&g->newest));
    set_json(o, "under", draw_json_site(&g->under));
    draw_json_holders(o, g->holders, g->holders_n);
    set_json(o, "source", draw_json_source(g->source, g->source_n));
    set_json(o, "site", draw_json_site(&g->stack.site));
    set_json(o, "stack", trace_json(&g->stack));
}

json_t *json_growth(const struct result_report *r)
{
    const struct result_report *before = begin_report(r);
    json_t *list = LIST(r->growth, r->growth_n, growth_json);
    end_report(before);
    return list;
}

static void sync_site_json(json_t *o, const struct result_sync_site *s)
{
    set_text(o, "kind", run_sync_word(s->kind));
    SET_MEMBERS(o, s, count, blocked_s, share, matters);
    json_pace(o, &s->pace);
    SET_MEMBERS(o, s, pattern, api);
    set_json(o, "site", draw_json_site(&s->site));
    set_text(o, "advice", s->advice);
}

static void transfer_site_json(json_t *o, const struct result_transfer *t)
{
    set_text(o, "direction", run_direction_word(t->direction));
    set_json(o, "pinned", t->pinned < 0 ? NULL : json_boolean(t->pinned));
    set_text(o, "host_memory", run_host_memory_word(t->host_memory));
    SET_MEMBERS(o, t, async, count, bytes, blocked_s, bytes_per_s, first_s, last_s);
    json_pace(o, &t->pace);
    set_json(o, "site", draw_json_site(&t->site));
    set_text(o, "advice", t->advice);
}

static void call_json(json_t *o, const struct result_call *c)
{
    SET_MEMBERS(o, c, api, count, not_ready, per_s);
}

static void fragmentation_json(json_t *o, const struct result_fragmentation *f)
{
    set_where(o, f->process, f->device);
    SET_MEMBERS(o, f, time_s, reserved_bytes, active_bytes, free_bytes, largest_free_bytes, external, utilisation,
                segments, blocks);
}

static void churn_site_json(json_t *o, const struct result_churn *c)
{
    set_where(o, c->process, c->device);
    SET_MEMBERS(o, c, count, bytes, per_s, mean_life_s);
    json_pace(o, &c->pace);
    set_text(o, "pattern", c->pattern);
    set_json(o, "freed_at", c->freed.known ? draw_json_site(&c->freed) : NULL);
    set_json(o, "site", draw_json_site(&c->stack.site));
    set_json(o, "stack", trace_json(&c->stack));
    set_text(o, "advice", c->advice);
}

static void retry_site_json(json_t *o, const struct result_retry *r)
{
    set_where(o, r->process, r->device);
    SET_MEMBERS(o, r, time_s, requested_bytes, failures, blocked_s, freed_bytes);
    set_json(o, "site", draw_json_site(&r->stack.site));
    set_json(o, "stack", trace_json(&r->stack));
}

static void check_json(json_t *o, const struct run_tensor_check *c)
{
    set_where(o, c->process, c->device);
    set_text(o, "layer", run_layer_word(c->layer));
    SET_MEMBERS(o, c, events, mismatches);
    set_bytes(o, "last_difference_bytes", c->last_difference);
}

static void mark_json(json_t *o, const struct run_mark_total *m)
{
    SET_MEMBERS(o, m, name, domain);
    set_text(o, "kind", run_mark_word(m->kind));
    SET_MEMBERS(o, m, count, open);
    set_real(o, "total_s", (double)m->total_ns / 1e9);
}

json_t *json_scopes(const struct result_report *r)
{
    json_t *list = json_array();
    EACH_IN (s, r->scopes) {
        json_t *o = json_add_object(list);
        SET_MEMBERS(o, s, name, domain);
        draw_json_where(o, r, s->process, s->device);
        set_text(o, "layer", result_series_word(s->layer));
        SET_MEMBERS(o, s, peak_bytes, peak_time_s, entry_bytes, exit_bytes, count, open, total_s);
        set_bool(o, "complete", !s->incomplete);
    }
    return list;
}

static void set_percent(json_t *o, const char *key, int percent)
{
    set_json(o, key, percent >= 0 ? json_integer(percent) : NULL);
}

static void sample_json(json_t *o, const struct run_device_sample *const *point)
{
    const struct run_device_sample *s = *point;
    set_real(o, "time_s", (double)s->time_ns / 1e9);
    SET_MEMBERS(o, s, free_bytes, total_bytes);
    set_percent(o, "utilisation", s->utilisation);
    set_percent(o, "memory_utilisation", s->memory_utilisation);
    SET_MEMBERS(o, s, own_bytes, other_bytes);
    set_json(o, "other_pid", s->other_pid ? json_integer(s->other_pid) : NULL);
    set_text(o, "other_name", s->other_name);
}

static void samples_json(json_t *o, const struct result_sample_line *l)
{
    set_where(o, l->process, l->device);
    set_count(o, "count", l->total);
    set_json(o, "points", LIST(l->points, l->n, sample_json));
}

static void advice_json(json_t *o, const struct result_advice *a)
{
    SET_MEMBERS(o, a, topic, impact, text);
}

static json_t *budget_rows_json(const struct result_budget *b)
{
    json_t *list = json_array();
    EACH_IN (r, b->rows) {
        json_t *o = json_add_object(list);
        set_text(o, "category", result_category_word(r->category));
        set_json(o, "estimate_bytes", report_real_or_null(r->estimate_bytes));
        set_bytes(o, "measured_bytes", r->peak_bytes);
        set_bytes(o, "most_bytes", r->most_bytes);
        set_json(o, "difference_bytes", report_real_or_null(r->difference_bytes));
        set_json(o, "estimate_low_bytes", report_real_or_null(r->expected.low));
        set_json(o, "estimate_high_bytes", report_real_or_null(r->expected.high));
        set_json(o, "inside", r->inside >= 0 ? json_boolean(r->inside) : NULL);
        set_text(o, "why", r->why);
    }
    return list;
}

static json_t *budget_levels_json(const struct result_budget *b)
{
    json_t *list = json_array();
    EACH_IN (l, b->levels) {
        json_t *o = json_add_object(list);
        set_text(o, "level", result_level_key(l->level));
        set_text(o, "what", result_level_text(l->level));
        set_json(o, "estimate_low_bytes", report_real_or_null(l->expected.low));
        set_json(o, "estimate_bytes", report_real_or_null(l->expected.likely));
        set_json(o, "estimate_high_bytes", report_real_or_null(l->expected.high));
        set_json(o, "measured_bytes", report_real_or_null(l->measured_bytes));
        set_json(o, "inside", l->inside >= 0 ? json_boolean(l->inside) : NULL);
    }
    return list;
}

static void set_planned(json_t *estimate, json_t *measured, const struct result_budget *b)
{
    set_json(estimate, "peak_low_bytes", report_real_or_null(b->expected_peak.low));
    set_json(estimate, "peak_bytes", report_real_or_null(b->expected_peak.likely));
    set_json(estimate, "peak_high_bytes", report_real_or_null(b->expected_peak.high));
    set_text(estimate, "phase", result_moment_key(b->expected_phase));
    set_text(measured, "phase", result_moment_key(b->measured_phase));
    set_json(measured, "out_of_memory", json_boolean(b->failed));
}

static json_t *budget_json(const struct result_budget *b)
{
    json_t *o = json_object(), *estimate = json_object(), *measured = json_object(), *difference = json_object();
    if (b->present) {
        set_json(estimate, "weights_bytes", report_real_or_null(b->estimate.weights));
        set_json(estimate, "gradients_bytes", report_real_or_null(b->estimate.gradients));
        set_json(estimate, "optimizer_bytes", report_real_or_null(b->estimate.optimizer));
        set_json(estimate, "total_bytes", report_real_or_null(b->estimate.total));
        set_text(measured, "layer", b->measured_bytes == RUN_UNKNOWN ? NULL : result_series_word(b->measured_layer));
        set_bytes(measured, "peak_bytes", b->measured_bytes);
        const struct {
            const char *key;
            enum result_category category;
        } parts[] = {{"weights_bytes", RESULT_CATEGORY_PARAMETERS},
                     {"gradients_bytes", RESULT_CATEGORY_GRADIENTS},
                     {"optimizer_bytes", RESULT_CATEGORY_OPTIMIZER_STATE}};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            int64_t bytes = b->by_category.bytes[parts[i].category];
            set_bytes(measured, parts[i].key, bytes ? bytes : RUN_UNKNOWN);
        }
        set_json(difference, "bytes", report_real_or_null(b->difference_bytes));
        set_real(difference, "share", b->difference_share);
    }
    if (b->planned) set_planned(estimate, measured, b);
    set_json(o, "levels", budget_levels_json(b));
    set_json(o, "categories", budget_rows_json(b));
    set_bytes(o, "parameter_bytes", b->parameter_bytes ? b->parameter_bytes : RUN_UNKNOWN);
    set_json(o, "estimate", estimate);
    set_json(o, "measured", measured);
    set_json(o, "difference", difference);
    if (b->rank) set_where(o, b->process, b->device);
    return o;
}

/* The budget, and in `ranks` the same members for each rank, with "pid", "rank" and "device". */
static json_t *budgets_json(const struct result_budget *b)
{
    json_t *o = budget_json(b);
    if (b->present) {
        set_count(o, "gpus", b->gpus);
        set_json(o, "ranks", LIST_OF(b->ranks_n, i, budget_json(&b->ranks[i])));
    }
    return o;
}

static json_t *steps_json(const struct result_report *r, const struct step_list *s)
{
    json_t *o = json_object();
    set_count(o, "pid", r->processes[s->process].pid);
    set_bytes(o, "rank", r->processes[s->process].rank);
    set_text(o, "source", step_source_word(s->source));
    SET_MEMBERS(o, s, evidence, n, steady);
    if (r->processes[s->process].kept_from_ns)
        set_bytes(o, "removed", s->removed_unknown ? RUN_UNKNOWN : (int64_t)s->removed);
    set_real(o, "median_s", (double)s->median_ns / 1e9);
    set_real(o, "first_s", (double)step_start_ns(s, 0) / 1e9);
    set_real(o, "last_s", (double)step_start_ns(s, s->n) / 1e9);
    set_json(o, "site", draw_json_site(&s->site));
    return o;
}

json_t *json_report_build(const struct result_report *r)
{
    json_t *o = json_object();
    begin_report(r);
    set_json(o, "schema", json_integer(RESULT_SCHEMA));
    set_json(o, "run", run_json(r));
    set_json(o, "devices", LIST(r->devices, r->devices_n, run_device_json));
    set_json(o, "peak", LIST(r->peaks, r->peaks_n, peak_json));
    set_json(o, "memory", LIST(r->memory, r->memory_n, memory_json));
    set_json(o, "preallocations", json_preallocations(r));
    set_json(o, "ranks", json_ranks(r));
    set_json(o, "rank_findings", json_rank_findings(r));
    set_json(o, "rank_spread", json_rank_spread(r));
    set_json(o, "timeline", LIST(r->timelines, r->timelines_n, timeline_json));
    set_json(o, "oom", LIST(r->ooms, r->ooms_n, oom_json));
    set_json(o, "leaks", LIST(r->leaks, r->leaks_n, leak_site_json));
    set_json(o, "steps", LIST_OF(r->steps_n, i, steps_json(r, r->steps[i])));
    set_json(o, "allocator", json_allocator(r));
    set_json(o, "cache_flushes", json_flushes(r));
    set_json(o, "growth", json_growth(r));
    set_json(o, "sync", LIST(r->syncs, r->syncs_n, sync_site_json));
    set_real(o, "sync_share", r->unknown[RUN_FACT_WAITS] ? NAN : r->sync_share);
    set_json(o, "transfers", LIST(r->transfers, r->transfers_n, transfer_site_json));
    set_json(o, "calls", LIST(r->calls, r->calls_n, call_json));
    set_json(o, "fragmentation", LIST(r->fragmentation, r->fragmentation_n, fragmentation_json));
    set_json(o, "churn", LIST(r->churn, r->churn_n, churn_site_json));
    set_json(o, "retries", LIST(r->retries, r->retries_n, retry_site_json));
    json_lines(o, r);
    set_json(o, "checks", LIST(r->checks, r->checks_n, check_json));
    set_json(o, "marks", LIST(r->marks, r->marks_n, mark_json));
    set_count(o, "marks_total", r->marks_total);
    set_json(o, "scopes", json_scopes(r));
    set_count(o, "scopes_total", r->scopes_total);
    set_json(o, "samples", LIST(r->samples, r->samples_n, samples_json));
    set_json(o, "budget", budgets_json(&r->budget));
    set_json(o, "advice", LIST(r->advice, r->advice_n, advice_json));
    end_report(NULL);
    return o;
}

/* Sets the key to null in all objects of the tree; `zero`: only if it is 0. */
static void set_null_in(json_t *tree, const char *key, bool zero)
{
    const char *name;
    size_t i;
    json_t *value;
    json_object_foreach(tree, name, value)
    {
        const bool is_null =
            strcmp(name, key) == 0 && json_is_number(value) && (!zero || json_number_value(value) == 0);
        is_null ? set_json(tree, name, NULL) : set_null_in(value, key, zero);
    }
    json_array_foreach(tree, i, value) set_null_in(value, key, zero);
}

/* Without times, an entry of the history is a microsecond: figures per second and seconds are null, and "entry" counts
 * instead of "time_s". */
static void count_entries_in(json_t *tree)
{
    size_t i, length;
    json_t *value, *time = json_object_get(tree, "time_s");
    const char *name;
    if (json_is_number(time)) set_count(tree, "entry", (uint64_t)llround(fmax(0, json_number_value(time)) * 1e6));
    json_object_foreach(tree, name, value)
    {
        length = strlen(name);
        const bool is_seconds = json_is_number(value) && length > 2 && strcmp(name + length - 2, "_s") == 0;
        if (is_seconds)
            set_json(tree, name, NULL);
        else
            count_entries_in(value);
    }
    json_array_foreach(tree, i, value) count_entries_in(value);
}

/* What an imported recording lacks is null; where part of it may be known, only zeros are. */
static void set_unknown_null(const struct result_report *r, json_t *o)
{
    static const struct {
        enum run_fact lacks;
        const char *member, *key;
        bool zero;
    } rows[] = {
        {RUN_FACT_TIMES, "run", "duration_s", false},
        {RUN_FACT_HISTORY, "run", "duration_s", false},
        {RUN_FACT_HISTORY, "peak", "time_s", false},
        {RUN_FACT_HISTORY, "peak", "frees", false},
        {RUN_FACT_HISTORY, "memory", "time_s", false},
        {RUN_FACT_HISTORY, "allocator", "time_s", false},
        {RUN_FACT_HISTORY, "fragmentation", "time_s", false},
        {RUN_FACT_SEGMENTS, "allocator", "segments", false},
        {RUN_FACT_SEGMENTS, "allocator", "reserved_bytes", true},
        {RUN_FACT_SEGMENTS, "fragmentation", "segments", false},
        {RUN_FACT_SEGMENTS, "fragmentation", "blocks", true},
        {RUN_FACT_WAITS, "cache_flushes", "blocked_s", false},
        {RUN_FACT_WAITS, "retries", "blocked_s", false},
        {RUN_FACT_WAITS, "retry_lines", "blocked_s", false},
    };
    if (!r->imported) return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (r->unknown[rows[i].lacks]) set_null_in(json_object_get(o, rows[i].member), rows[i].key, rows[i].zero);
    if (r->no_times && !r->no_history) count_entries_in(o);
    set_null_in(o, "pid", true);
    set_null_in(json_object_get(o, "devices"), "total_bytes", true);
}

int json_report_some(const struct result_report *report, bool (*is_chosen)(uint64_t, const char *), uint64_t only,
                     FILE *out)
{
    json_t *o = json_report_build(report), *value;
    const char *key;
    void *next;
    set_unknown_null(report, o);
    json_object_foreach_safe(o, next, key, value)
    {
        if (is_chosen && strcmp(key, "schema") != 0 && !is_chosen(only, key)) json_object_del(o, key);
    }
    return json_out_tree(out, o, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) ? 0 : -1;
}
