/* Lists by line as JSON: what is summed, the line, and its largest call paths. */
#include "analyzer/json/json_parts.h"
#include "analyzer/run/words.h"
#include "analyzer/step/cadence.h"

static json_t *path_json(const struct result_line_path *p)
{
    json_t *o = json_object();
    set_bytes(o, "bytes", p->bytes);
    set_count(o, "count", p->count);
    set_real(o, "blocked_s", p->blocked_s);
    set_json(o, "site", draw_json_site(&p->site));
    return o;
}

/* Common to all rows. */
static json_t *site_line_json(uint64_t count, const struct result_site *site, const struct result_paths *paths)
{
    json_t *o = json_object();
    set_count(o, "count", count);
    set_json(o, "site", draw_json_site(site));
    set_count(o, "paths_total", paths->n);
    set_json(o, "paths", LIST(paths->list, paths->listed, path_json));
    return o;
}

static json_t *by_line_json(const struct result_by_site *s)
{
    json_t *o = site_line_json(s->count, &s->site, &s->paths);
    set_bytes(o, "bytes", s->bytes);
    return o;
}

json_t *json_by_line(const struct result_by_site *list, size_t n)
{
    return LIST(list, n, by_line_json);
}

static json_t *leak_line_json(const struct result_report *r, const struct result_leak *l)
{
    json_t *o = site_line_json(l->count, &l->stack.site, &l->paths);
    draw_json_where(o, r, l->process, l->device);
    set_text(o, "layer", result_series_word(l->layer));
    set_bytes(o, "bytes", l->bytes);
    set_bool(o, "growing", l->growing);
    return o;
}

static json_t *churn_line_json(const struct result_churn *c)
{
    json_t *o = site_line_json(c->count, &c->stack.site, &c->paths);
    set_bytes(o, "bytes", c->bytes);
    set_real(o, "per_s", c->per_s);
    set_real(o, "mean_life_s", c->mean_life_s);
    json_pace(o, &c->pace);
    set_text(o, "pattern", c->pattern);
    set_text(o, "advice", c->advice);
    return o;
}

static json_t *sync_line_json(const struct result_sync_site *s)
{
    json_t *o = site_line_json(s->count, &s->site, &s->paths);
    set_text(o, "kind", run_sync_word(s->kind));
    set_real(o, "blocked_s", s->blocked_s);
    set_real(o, "share", s->share);
    set_bool(o, "matters", s->matters);
    json_pace(o, &s->pace);
    set_text(o, "pattern", s->pattern);
    set_text(o, "api", s->api);
    set_text(o, "advice", s->advice);
    return o;
}

static json_t *transfer_line_json(const struct result_transfer *t)
{
    json_t *o = site_line_json(t->count, &t->site, &t->paths);
    set_text(o, "direction", run_direction_word(t->direction));
    set_text(o, "host_memory", run_host_memory_word(t->host_memory));
    set_bytes(o, "bytes", t->bytes);
    set_real(o, "blocked_s", t->blocked_s);
    set_real(o, "bytes_per_s", t->bytes_per_s);
    json_pace(o, &t->pace);
    set_text(o, "advice", t->advice);
    return o;
}

static json_t *retry_line_json(const struct result_retry_line *r)
{
    json_t *o = site_line_json(r->count, &r->site, &r->paths);
    set_bytes(o, "requested_bytes", r->requested_bytes);
    set_real(o, "first_s", r->first_s);
    set_real(o, "last_s", r->last_s);
    return o;
}

void json_lines(json_t *o, const struct result_report *r)
{
    set_json(o, "leak_lines", LIST_OF(r->leak_lines_n, i, leak_line_json(r, &r->leak_lines[i])));
    set_json(o, "churn_lines", LIST(r->churn_lines, r->churn_lines_n, churn_line_json));
    set_json(o, "retry_lines", LIST(r->retry_lines, r->retry_lines_n, retry_line_json));
    set_json(o, "sync_lines", LIST(r->sync_lines, r->sync_lines_n, sync_line_json));
    set_json(o, "transfer_lines", LIST(r->transfer_lines, r->transfer_lines_n, transfer_line_json));
}
