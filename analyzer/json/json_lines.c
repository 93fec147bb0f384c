/* Lists by line as JSON: what is summed, the line, and its largest call paths. */
#include "analyzer/json/json_parts.h"
#include "analyzer/run/words.h"

static void path_json(json_t *o, const struct result_line_path *p)
{
    SET_MEMBERS(o, p, bytes, count, blocked_s);
    set_json(o, "site", draw_json_site(&p->site));
}

void json_pace(json_t *o, const struct result_pace *pace)
{
    set_real(o, "calls_per_step", pace->calls_per_step);
    set_text(o, "phase", result_phase_word(pace->phase));
    set_json(o, "every_steps", pace->every ? json_integer(pace->every) : NULL);
}

/* Common to all rows. */
static void site_line_json(json_t *o, uint64_t count, const struct result_site *site, const struct result_paths *paths)
{
    set_count(o, "count", count);
    set_json(o, "site", draw_json_site(site));
    set_count(o, "paths_total", paths->n);
    set_json(o, "paths", LIST(paths->list, paths->listed, path_json));
}

static void by_line_json(json_t *o, const struct result_by_site *s)
{
    site_line_json(o, s->count, &s->site, &s->paths);
    set_bytes(o, "bytes", s->bytes);
}

json_t *json_by_line(const struct result_by_site *list, size_t n)
{
    return LIST(list, n, by_line_json);
}

static void leak_line_json(json_t *o, const struct result_report *r, const struct result_leak *l)
{
    site_line_json(o, l->count, &l->stack.site, &l->paths);
    draw_json_where(o, r, l->process, l->device);
    set_text(o, "layer", result_series_word(l->layer));
    SET_MEMBERS(o, l, bytes, growing);
}

static void churn_line_json(json_t *o, const struct result_churn *c)
{
    site_line_json(o, c->count, &c->stack.site, &c->paths);
    SET_MEMBERS(o, c, bytes, per_s, mean_life_s);
    json_pace(o, &c->pace);
    SET_MEMBERS(o, c, pattern, advice);
}

static void sync_line_json(json_t *o, const struct result_sync_site *s)
{
    site_line_json(o, s->count, &s->site, &s->paths);
    set_text(o, "kind", run_sync_word(s->kind));
    SET_MEMBERS(o, s, blocked_s, share, matters);
    json_pace(o, &s->pace);
    SET_MEMBERS(o, s, pattern, api, advice);
}

static void transfer_line_json(json_t *o, const struct result_transfer *t)
{
    site_line_json(o, t->count, &t->site, &t->paths);
    set_text(o, "direction", run_direction_word(t->direction));
    set_text(o, "host_memory", run_host_memory_word(t->host_memory));
    SET_MEMBERS(o, t, bytes, blocked_s, bytes_per_s);
    json_pace(o, &t->pace);
    set_text(o, "advice", t->advice);
}

static void retry_line_json(json_t *o, const struct result_retry_line *r)
{
    site_line_json(o, r->count, &r->site, &r->paths);
    SET_MEMBERS(o, r, requested_bytes, first_s, last_s);
}

void json_lines(json_t *o, const struct result_report *r)
{
    json_t *leaks = json_array();
    EACH_IN (l, r->leak_lines) leak_line_json(json_add_object(leaks), r, l);
    set_json(o, "leak_lines", leaks);
    set_json(o, "churn_lines", LIST(r->churn_lines, r->churn_lines_n, churn_line_json));
    set_json(o, "retry_lines", LIST(r->retry_lines, r->retry_lines_n, retry_line_json));
    set_json(o, "sync_lines", LIST(r->sync_lines, r->sync_lines_n, sync_line_json));
    set_json(o, "transfer_lines", LIST(r->transfer_lines, r->transfer_lines_n, transfer_line_json));
}
