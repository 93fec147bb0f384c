/* What uses the device's memory at an OOM, and what each measure would free, in the JSON report. */
#include "analyzer/json/json_parts.h"

/* The key of a line's text, by part. */
static const char *const text_keys[RESULT_HELD_N] = {
    [RESULT_HELD_CACHED] = "text",
    [RESULT_HELD_POOLS] = "library",
    [RESULT_HELD_DIRECT] = "library",
    [RESULT_HELD_OTHERS] = "process",
};

static json_t *held_line_json(const struct result_held_part *part, const struct result_held_line *line)
{
    json_t *o = json_object();
    const char *key = text_keys[part->what];
    if (key) set_text(o, key, line->text);
    if (line->pid) set_count(o, "pid", line->pid);
    if (part->what == RESULT_HELD_TENSORS || part->what == RESULT_HELD_POOLS || part->what == RESULT_HELD_DIRECT)
        set_json(o, "site", draw_json_site(&line->site));
    set_bytes(o, "bytes", line->bytes);
    if (line->count) set_count(o, "count", line->count);
    return o;
}

static void part_json(json_t *o, const struct result_held_part *part)
{
    set_text(o, "what", result_held_word(part->what));
    set_text(o, "category", part->what == RESULT_HELD_TENSORS ? result_category_word(part->category) : NULL);
    SET_MEMBERS(o, part, text, bytes, share);
    set_json(o, "detail", LIST_OF(part->lines_n, i, held_line_json(part, &part->lines[i])));
    set_count(o, "detail_total", part->lines_total);
}

static void measure_json(json_t *o, const struct result_measure *m)
{
    SET_MEMBERS(o, m, text, frees_bytes);
    set_json(o, "enough", m->enough < 0 ? NULL : json_boolean(m->enough));
    set_text(o, "certainty", result_certainty_word(m->certainty));
    set_text(o, "refuted_by", m->refuted_by);
    set_text(o, "basis", m->replayed ? "replayed" : m->frees_bytes == RUN_UNKNOWN ? NULL : "formula");
    set_text(o, "replayed", m->replayed);
    set_bytes(o, "spare_bytes", m->replayed && m->fits ? m->spare_bytes : RUN_UNKNOWN);
}

void json_oom(json_t *o, const struct result_oom_verdict *v)
{
    set_bool(o, "handled", v->handled);
    set_text(o, "outcome", result_outcome_word(v->outcome));
    set_text(o, "outcome_why", v->outcome_why);
    set_text(o, "certainty", result_certainty_word(v->certainty));
    SET_MEMBERS(o, v, refuted_by, step);
    set_json(o, "waterfall", LIST(v->waterfall, v->waterfall_n, part_json));
    set_json(o, "measures", LIST(v->measures, v->measures_n, measure_json));
    draw_json_holders(o, v->holders, v->holders_n);
    set_json(o, "source", draw_json_source(v->source, v->source_n));
    set_bytes(o, "rounding_most_bytes", v->rounding_most);
}
