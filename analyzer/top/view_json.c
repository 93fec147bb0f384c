/* A snapshot for scripts. Unknown is null; sizes are bytes, times seconds. Fields are only ever added. */
#include "analyzer/base/json_out.h"
#include "analyzer/run/words.h"
#include "analyzer/top/view_parts.h"

#include "analyzer/draw/json_site.h"

static double seconds_of_ns(int64_t ns)
{
    return ns == RUN_UNKNOWN ? NAN : (double)ns / 1e9;
}

/* The maximum of each five seconds of the last five minutes, as far as known; the last one ends now. */
static json_t *curve_json(const struct top_model *m, const struct top_series *s)
{
    const struct top_source *source = &m->sources[s->source];
    struct top_span points[TOP_CURVE_S / TOP_SLOT_S];
    const size_t n = top_curve_read(&s->curve, source->now_ns, s->known != RUN_UNKNOWN ? s->known : s->bytes,
                                    source->curve_from_ns, TOP_SLOT_S, points, sizeof points / sizeof *points);
    return LIST_OF(n, i, json_integer(top_max(points[i].high, 0)));
}

static json_t *series_json(const struct top_model *m, const struct top_series *s)
{
    const int64_t now = m->sources[s->source].now_ns;
    const bool whole = !m->sources[s->source].unread_rows, rates = whole && !m->sources[s->source].no_rates;
    struct top_sum minute = top_ring_sum(&s->ring, now, TOP_WINDOW_S);
    struct top_sum lately = top_ring_sum(&s->ring, now, TOP_RATE_S);
    json_t *o = json_object();
    set_json(o, "device", s->device < 0 ? NULL : json_integer(s->device));
    set_text(o, "layer", top_layer_words[s->layer]);
    set_bytes(o, "bytes", s->known != RUN_UNKNOWN ? s->known : whole ? s->bytes : RUN_UNKNOWN);
    set_json(o, "count", whole ? json_integer((json_int_t)s->count) : NULL);
    set_bytes(o, "peak_bytes", s->peak);
    set_bytes(o, "change_bytes", rates ? minute.amount : RUN_UNKNOWN);
    set_real(o, "change_over_s", rates ? minute.seconds : NAN);
    set_json(o, "curve", rates ? curve_json(m, s) : NULL);
    set_real(o, "allocations_per_s", rates && lately.seconds > 0 ? (double)lately.count / lately.seconds : NAN);
    return o;
}

static json_t *top_device_json(const struct top_model *m, uint32_t source, const struct top_device *d)
{
    const struct top_held h = top_held_of(m, source, d);
    const struct top_forecast f = top_forecast_of(m, source, d);
    const struct top_source *s = &m->sources[source];
    json_t *o = json_object();
    set_count(o, "index", (uint64_t)d->device);
    set_text(o, "name", d->name);
    set_bytes(o, "total_bytes", h.total);
    set_bytes(o, "used_bytes", h.used);
    set_bytes(o, "allocated_bytes", s->no_memory || s->lacks[RUN_FACT_SEGMENTS] ? RUN_UNKNOWN : h.device);
    set_bytes(o, "tensor_bytes", s->no_memory ? RUN_UNKNOWN : h.tensors);
    set_bytes(o, "reserved_bytes", d->reserved_bytes);
    set_bytes(o, "cached_bytes", d->reserved_bytes == RUN_UNKNOWN ? RUN_UNKNOWN : h.cached);
    set_bytes(o, "other_processes_bytes", h.by_nvml ? h.others : RUN_UNKNOWN);
    set_json(o, "temperature_celsius", d->temperature < 0 ? NULL : json_integer(d->temperature));
    set_real(o, "growth_bytes_per_s", f.bytes_per_s);
    set_real(o, "full_in_s", f.full_s);
    set_json(o, "utilisation_percent", d->utilisation < 0 ? NULL : json_integer(d->utilisation));
    return o;
}

static json_t *top_failure_json(struct top_tables *t, const struct top_failure *f)
{
    struct result_site site = top_site(t, f->stack, false);
    json_t *o = json_object();
    set_real(o, "time_s", seconds_of_ns(f->time_ns));
    set_json(o, "device", f->device < 0 ? NULL : json_integer(f->device));
    set_text(o, "layer", run_layer_word(f->layer & 3));
    SET_MEMBERS(o, f, requested_bytes, free_bytes, fatal);
    set_json(o, "site", draw_json_site(&site));
    return o;
}

static json_t *waits_json(struct top_tables *t, const struct top_source *s)
{
    json_t *list = json_array();
    for (size_t k = 1; k <= TOP_WAITS_MAX && k <= s->waits_next; k++) {
        const struct top_wait *w = &s->waits[(s->waits_next - k) % TOP_WAITS_MAX];
        struct result_site site = top_site(t, w->stack, false);
        json_t *o = json_add_object(list);
        set_real(o, "time_s", seconds_of_ns(w->start_ns));
        set_real(o, "blocked_s", seconds_of_ns(w->blocked_ns));
        set_text(o, "kind", run_sync_word(w->kind & 7));
        set_text(o, "api", top_api(t->model, s, w->api));
        set_json(o, "site", draw_json_site(&site));
    }
    return list;
}

static json_t *ranges_json(const struct top_model *m, uint32_t source)
{
    const struct top_source *s = &m->sources[source];
    json_t *list = json_array();
    EACH_IN (r, s->ranges) {
        json_t *o = json_add_object(list);
        set_text(o, "name", r->name);
        set_text(o, "domain", *r->domain ? r->domain : NULL);
        set_real(o, "open_s", seconds_of_ns(top_max(s->now_ns - r->start_ns, 0)));
        const int64_t peak = top_range_peak(m, source, r);
        set_json(o, "peak_at_least_bytes", peak == RUN_UNKNOWN ? NULL : json_integer(peak));
    }
    return list;
}

static json_t *source_json(struct top_tables *t, uint32_t source)
{
    struct top_model *m = t->model;
    struct top_source *s = &m->sources[source];
    char state_text[2048];
    double copies, copied, syncs, blocked;
    json_t *o = json_object(), *series = json_array();
    top_state_text(s, state_text, sizeof state_text);
    top_rates(m, m->copies, m->copies_n, source, &copies, &copied);
    top_rates(m, m->syncs, m->syncs_n, source, &syncs, &blocked);
    set_text(o, "database", s->db.path);
    set_text(o, "state", top_state_word(s->state));
    set_text(o, "said", *state_text ? state_text : NULL);
    set_json(o, "pid", s->pid ? json_integer(s->pid) : NULL);
    set_json(o, "rank", s->rank == RUN_UNKNOWN ? NULL : json_integer(s->rank));
    SET_MEMBERS(o, s, host, command);
    set_real(o, "time_s", s->no_rates ? NAN : seconds_of_ns(s->clock_ns));
    set_real(o, "age_s", s->loaded ? seconds_of_ns(s->age_ns) : NAN);
    SET_MEMBERS(o, s, waiting_bytes, unfound_bytes);
    set_count(o, "unread_rows", (uint64_t)s->unread_rows);
    SET_MEMBERS(o, s, events, lost_events, failures_total);
    set_real(o, "allocations_per_s", s->no_rates || s->no_memory ? NAN : top_allocation_rate(m, source));
    set_real(o, "copies_per_s", s->lacks[RUN_FACT_COPIES] ? NAN : copies);
    set_real(o, "copied_bytes_per_s", s->lacks[RUN_FACT_COPIES] ? NAN : copied);
    set_real(o, "syncs_per_s", s->lacks[RUN_FACT_WAITS] ? NAN : syncs);
    set_real(o, "blocked_share", s->lacks[RUN_FACT_WAITS] ? NAN : blocked / 1e9);
    for (size_t i = 0; i < m->series_n; i++)
        if (m->series[i].source == source) json_array_append_new(series, series_json(m, &m->series[i]));
    set_json(o, "devices", LIST_OF(s->devices_n, i, top_device_json(m, source, &s->devices[i])));
    set_json(o, "live", series);
    set_json(o, "failures", LIST_OF(s->failures_n, i, top_failure_json(t, &s->failures[i])));
    set_json(o, "ranges", ranges_json(m, source));
    set_count(o, "ranges_total", s->ranges_total);
    set_json(o, "last_waits", waits_json(t, s));
    return o;
}

static json_t *top_row_json(const struct top_tables *t, enum top_table table, const struct top_row *r)
{
    json_t *o = json_object();
    const bool syncs = table == TOP_SYNCS, copies = table == TOP_COPIES;
    const double now = (double)t->total;
    set_json(o, "site", draw_json_site(&r->site));
    set_count(o, "count", r->count);
    if (!syncs) set_bytes(o, "bytes", r->bytes);
    set_real(o, "share", t->total > 0 ? (double)(syncs ? r->blocked_ns : r->bytes) / now : NAN);
    set_real(o, syncs || copies ? "calls_per_s" : "allocations_per_s", r->rate);
    set_real(o, "last_s", seconds_of_ns(r->last_ns));
    if (syncs || copies) {
        set_real(o, "blocked_s", seconds_of_ns(r->blocked_ns));
        set_text(o, "api", syncs ? top_api(t->model, &t->model->sources[r->source], r->api) : NULL);
    } else {
        set_bytes(o, "change_bytes", r->growth);
        set_bytes(o, "since_bytes", r->since);
    }
    if (syncs) {
        set_text(o, "kind", run_sync_word(r->kind & 7));
        set_real(o, "blocked_share", r->busy);
    } else if (copies) {
        set_text(o, "direction", run_direction_word(r->kind & 7));
        set_text(o, "host_memory", run_host_memory_word(r->kind >> 3 & 3));
        set_bool(o, "async", r->kind >> 5 & 1);
        set_real(o, "bytes_per_s", r->byte_rate);
    }
    return o;
}

/* NULL: unknown. */
static json_t *users_json(const struct top_users *users)
{
    json_t *list = users->known ? json_array() : NULL;
    for (size_t i = 0; i < users->n; i++) {
        json_t *o = json_add_object(list);
        set_count(o, "pid", users->at[i].pid);
        set_count(o, "device", (uint64_t)users->at[i].device);
        set_bytes(o, "bytes", users->at[i].bytes < 0 ? RUN_UNKNOWN : users->at[i].bytes);
        set_text(o, "command", users->at[i].command);
    }
    return list;
}

void top_view_json(const struct top_view *v, size_t top, FILE *out)
{
    static const char *const names[TOP_TABLES] = {"lines", "functions", "syncs", "copies"};
    struct top_tables *t = v->tables;
    struct top_model *m = t->model;
    json_t *o = json_object(), *processes = json_array();
    set_count(o, "schema", 1);
    set_text(o, "view", "top");
    set_text(o, "command", m->sources_n ? m->sources[0].command : NULL);
    set_json(o, "processes", processes);
    for (int table = 0; table < TOP_TABLES; table++) {
        struct top_choice c = v->choice;
        c.table = (enum top_table)table;
        top_tables_fill(t, &c);
        set_json(o, names[table], LIST_OF(t->n < top ? t->n : top, i, top_row_json(t, c.table, &t->rows[i])));
    }
    for (size_t i = 0; i < m->sources_n; i++) /* after the tables, which find the helpers */
        json_array_append_new(processes, source_json(t, (uint32_t)i));
    set_json(o, "unrecorded", users_json(&v->users));
    json_out_tree(out, o, JSON_COMPACT);
}
