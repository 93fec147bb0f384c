/* Memory by owner in the JSON report: by_owner{}, owners[], preallocations[]; and the processes side by side: ranks[],
 * rank_findings[]. */
#include "analyzer/base/arena.h"
#include "analyzer/json/json_parts.h"
#include "analyzer/run/words.h"
#include "analyzer/base/words.h"

json_t *json_spaces(const int64_t bytes[8])
{
    json_t *o = json_object();
    for (size_t i = 0; i < 8; i++)
        if (bytes[i]) set_bytes(o, run_space_word((unsigned)i), bytes[i]);
    return o;
}

static void owner_json(json_t *o, const struct result_by_owner *w)
{
    set_text(o, "owner", w->owner);
    set_text(o, "kind", result_owner_kind_word(w->kind));
    SET_MEMBERS(o, w, by, bytes, count);
    set_json(o, "by_space", json_spaces(w->by_space));
    set_json(o, "site", draw_json_site(&w->site));
}

/* Two owners can have the same name, such as a library and a file of the program: by_owner adds them up. */
void json_set_owners(json_t *o, const struct result_by_owner *list, size_t n)
{
    json_t *owners = json_object();
    for (size_t i = 0; i < n; i++) {
        json_int_t before = json_integer_value(json_object_get(owners, list[i].owner));
        set_json(owners, list[i].owner, json_integer(arena_add_capped(before, list[i].bytes)));
    }
    set_json(o, "by_owner", owners);
    set_json(o, "owners", LIST(list, n, owner_json));
}

json_t *json_preallocations(const struct result_report *r)
{
    json_t *list = json_array();
    EACH_IN (p, r->preallocations) {
        json_t *o = json_add_object(list);
        set_json(o, "device", json_integer(p->device));
        set_count(o, "pid", r->processes[p->process].pid);
        set_bytes(o, "rank", r->processes[p->process].rank);
        SET_MEMBERS(o, p, owner, in_advance);
        set_text(o, "layer", result_series_word(p->within ? RUN_SERIES_TENSOR : RUN_SERIES_DEVICE));
        SET_MEMBERS(o, p, bytes, share);
        set_text(o, "text", p->sentence);
        set_text(o, "advice", p->advice);
        set_json(o, "site", draw_json_site(&p->site));
    }
    return list;
}

/* What the recordings lack is null. */
static void set_unknown(const struct result_report *r, json_t *o)
{
    static const struct {
        enum run_fact needs;
        const char *key;
    } list[] = {{RUN_FACT_WAITS, "blocked_s"},           {RUN_FACT_WAITS, "waits"},   {RUN_FACT_WAITS, "waited_s"},
                {RUN_FACT_WAITS, "collective_waited_s"}, {RUN_FACT_COPIES, "copies"}, {RUN_FACT_COPIES, "copied_bytes"},
                {RUN_FACT_TIMES, "duration_s"},          {RUN_FACT_TIMES, "peak_s"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (r->unknown[list[i].needs]) set_json(o, list[i].key, NULL);
}

json_t *json_ranks(const struct result_report *r)
{
    json_t *list = json_array();
    EACH_IN (k, r->ranks) {
        json_t *o = json_add_object(list);
        set_bytes(o, "rank", k->rank);
        set_count(o, "pid", r->processes[k->process].pid);
        SET_MEMBERS(o, k, device, gpu, tensor_peak_bytes, device_peak_bytes, blocked_s);
        set_text(o, "host", r->processes[k->process].host);
        set_real(o, "start_s", k->start_s);
        set_real(o, "duration_s", (double)r->processes[k->process].end_ns / 1e9);
        SET_MEMBERS(o, k, peak_s, waits, waited_s);
        set_real(o, "collective_waited_s", k->collective_s);
        SET_MEMBERS(o, k, copies, copied_bytes, allocations);
        set_bool(o, "started_again", k->again);
        set_bool(o, "child", k->child);
        set_unknown(r, o);
    }
    return list;
}

/* The spread of each figure: {"waited_s": {"min", "median", "max", "min_rank", "max_rank"}, …} */
json_t *json_rank_spread(const struct result_report *r)
{
    static const char *const keys[] = {RESULT_RANK_FIGURES(WORDS_FIRST)};
    json_t *all = json_object();
    for (size_t i = 0; i < RESULT_RANK_FIGURES_N; i++) {
        const struct result_rank_spread *s = &r->rank_spread[i];
        if (!r->ranks_n || !isfinite(s->most) || result_rank_unknown(r, (enum result_rank_figure)i)) continue;
        json_t *o = json_object();
        set_real(o, "min", s->least);
        set_real(o, "median", s->median);
        set_real(o, "max", s->most);
        set_bytes(o, "min_rank", r->ranks[s->least_at].rank);
        set_bytes(o, "max_rank", r->ranks[s->most_at].rank);
        set_json(all, keys[i], o);
    }
    return all;
}

json_t *json_rank_findings(const struct result_report *r)
{
    static const char *const kinds[] = {RESULT_RANK_KINDS(WORDS_FIRST)};
    json_t *list = json_array();
    EACH_IN (f, r->rank_findings) {
        json_t *o = json_add_object(list);
        set_text(o, "kind", kinds[f->kind]);
        set_count(o, "pid", r->processes[f->process].pid);
        set_bytes(o, "rank", r->processes[f->process].rank);
        SET_MEMBERS(o, f, device, ranks, bytes, text, advice);
        set_json(o, "site", draw_json_site(&f->site));
    }
    return list;
}
