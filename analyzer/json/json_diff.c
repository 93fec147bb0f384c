/* A comparison as JSON: sizes in bytes, times in seconds. */
#include "analyzer/diff/diff.h"
#include "analyzer/base/arena.h"
#include "analyzer/json/json_parts.h"

static bool is_diff_of_time(const struct diff *d)
{
    return d->unit && *d->unit == 'n';
}

static json_t *diff_weight_json(const struct diff *d, int64_t value)
{
    return d->unknown ? json_null() : is_diff_of_time(d) ? json_real((double)value / 1e9) : json_integer(value);
}

static void set_sum(json_t *o, const struct diff *d, const struct diff_sum *s)
{
    set_json(o, "before", diff_weight_json(d, s->weight[DIFF_BEFORE]));
    set_json(o, "after", diff_weight_json(d, s->weight[DIFF_AFTER]));
    set_json(o, "change", diff_weight_json(d, diff_change(s)));
    set_count(o, "count_before", s->count[DIFF_BEFORE]);
    set_count(o, "count_after", s->count[DIFF_AFTER]);
}

static json_t *sum_json(const struct diff *d, const struct diff_sum *s)
{
    json_t *o = json_object();
    set_sum(o, d, s);
    set_count(o, "rows", s->rows);
    return o;
}

static json_t *diff_row_json(const struct diff *d, const struct diff_row *r)
{
    json_t *o = json_object();
    bool category = d->wish.by == DIFF_CATEGORY, owner = d->wish.by == DIFF_OWNER;
    set_sum(o, d, &r->sum);
    set_text(o, "status", !r->present[DIFF_BEFORE] ? "new" : !r->present[DIFF_AFTER] ? "gone" : "both");
    set_bool(o, "inferred", r->inferred);
    set_text(o, "category", owner ? NULL : result_category_word(r->category));
    set_text(o, "owner", owner ? r->name : NULL);
    set_json(o, "site_before", !category && r->present[0] ? draw_json_site(&r->site[0]) : NULL);
    set_json(o, "site_after", !category && r->present[1] ? draw_json_site(&r->site[1]) : NULL);
    set_count(o, "changed_in", r->units);
    return o;
}

static json_t *category_json(const struct diff *d, const struct diff_row *r)
{
    json_t *o = json_object();
    set_text(o, "category", result_category_word(r->category));
    set_sum(o, d, &r->sum);
    return o;
}

static json_t *unit_json(const struct diff *d, const struct diff_side side[2], const struct diff_unit *u)
{
    static const char *const keys[][3] = {{"rank_before", "pid_before", "device_before"},
                                          {"rank_after", "pid_after", "device_after"}};
    json_t *o = json_object();
    for (int k = 0; k < 2; k++) {
        const struct run_process *p = u->process[k] != RUN_NONE ? &side[k].report->processes[u->process[k]] : NULL;
        set_bytes(o, keys[k][0], p ? p->rank : RUN_UNKNOWN);
        set_json(o, keys[k][1], p && p->pid ? json_integer(p->pid) : NULL);
        set_json(o, keys[k][2], p ? json_integer(u->device[k]) : NULL);
    }
    set_sum(o, d, &u->sum);
    return o;
}

static json_t *side_json(const struct diff_side *s, const char *path)
{
    json_t *o = json_object();
    set_text(o, "path", path);
    set_text(o, "command", s->report->command);
    set_count(o, "processes", s->report->processes_n);
    set_real(o, "duration_s", s->report->no_times || s->report->no_history ? NAN : s->report->duration_s);
    set_bool(o, "complete", s->report->complete);
    set_count(o, "lost_events", s->report->lost_events);
    return o;
}

static json_t *figures_json(const struct diff *d)
{
    json_t *all = json_object();
    EACH_IN (f, d->figures) {
        json_t *o = json_object();
        set_text(o, "unit", f->unit);
        set_real(o, "before", f->value[0]);
        set_real(o, "after", f->value[1]);
        set_real(o, "change", f->value[1] - f->value[0]);
        if (f->text[0] || f->text[1]) {
            set_text(o, "cause_before", f->text[0]);
            set_text(o, "cause_after", f->text[1]);
        }
        set_json(all, f->key, o);
    }
    return all;
}

static json_t *scopes_json(const struct diff *d)
{
    json_t *all = json_array();
    EACH_IN (s, d->scopes) {
        json_t *o = json_add_object(all);
        SET_MEMBERS(o, s, name, domain);
        set_text(o, "layer", result_series_word(d->scopes_layer));
        set_real(o, "before", s->peak[0]);
        set_real(o, "after", s->peak[1]);
        set_real(o, "change", s->peak[1] - s->peak[0]);
        set_count(o, "count_before", s->count[0]);
        set_count(o, "count_after", s->count[1]);
    }
    return all;
}

static json_t *files_json(const struct diff *d)
{
    static const char *const words[] = {[DIFF_MATCH_PATH_SAME] = "same",
                                        [DIFF_MATCH_PATH_LIBRARY] = "library",
                                        [DIFF_MATCH_PATH_END] = "path_end",
                                        [DIFF_MATCH_PATH_CELL] = "cell",
                                        [DIFF_MATCH_PATH_RENAMED] = "functions"};
    json_t *list = json_array();
    for (size_t i = 0; i < d->files_n; i++) {
        json_t *o = json_add_object(list);
        set_text(o, "before", d->files[i].a);
        set_text(o, "after", d->files[i].b);
        set_text(o, "paired_by", words[d->files[i].path]);
    }
    return list;
}

json_t *json_diff(const struct diff *d, const struct diff_side side[2], const char *const path[2])
{
    json_t *o = json_object(), *total = json_object();
    set_json(o, "schema", json_integer(RESULT_SCHEMA));
    set_text(o, "view", "diff");
    /* of the second recording, which is the one judged; before and after have their own */
    set_text(o, "command", side[1].report->command);
    set_text(o, "verdict", d->verdict);
    set_text(o, "oom_verdict", d->more);
    set_text(o, "what", profile_word(d->wish.what));
    set_text(o, "by", diff_by_word(d->wish.by));
    set_text(o, "unit", is_diff_of_time(d) ? "s" : "bytes");
    set_json(o, "before", side_json(&side[0], path[0]));
    set_json(o, "after", side_json(&side[1], path[1]));
    set_sum(total, d, &d->total);
    set_json(o, "total", total);
    set_json(o, "rows", LIST_OF(d->rows_n, i, diff_row_json(d, &d->rows[i])));
    set_json(o, "smaller_shrunk", sum_json(d, &d->smaller[0]));
    set_json(o, "smaller_grown", sum_json(d, &d->smaller[1]));
    set_json(o, "unchanged", sum_json(d, &d->same));
    set_json(o, "by_category", LIST_OF(d->categories_n, i, category_json(d, &d->categories[i])));
    set_text(o, "paired_by", d->by_rank ? "rank" : "order");
    set_json(o, "by_process", LIST_OF(d->units_n, i, unit_json(d, side, &d->units[i])));
    set_json(o, "figures", figures_json(d));
    set_json(o, "scopes", scopes_json(d));
    set_json(o, "files", files_json(d));
    set_json(o, "notes", LIST_OF(d->notes_n, i, json_string(d->notes[i])));
    return o;
}
