#include "analyzer/json/json_calibration.h"

#include <math.h>
#include <stdlib.h>
#include "analyzer/base/term.h"

static json_t *calibration_real_or_null(double x)
{
    return isnan(x) ? json_null() : json_real(x);
}

/* The text comes from a database or a file, and may be invalid UTF-8. */
static json_t *calibration_text_json(const char *from)
{
    char clean[512];

    return from && *from ? json_string(terminal_clean(clean, sizeof clean, from, true)) : json_null();
}

static json_t *learned_row(const struct question_learned_row *l)
{
    static const char *const keys[] = {
#define LEARN(id, key, words) [LEARN_##id] = key,
        LEARNS(LEARN)
#undef LEARN
    };
    const struct estimate_calibration_row *row = &l->row;
    json_t *o = json_object(), *why = json_object();

    json_object_set_new(o, "recording", calibration_text_json(l->recording));
    json_object_set_new(o, "pid", json_integer(l->pid));
    json_object_set_new(o, "device", json_integer(l->device));
    json_object_set_new(o, "gpu", calibration_text_json(row->gpu));
    json_object_set_new(o, "context_bytes", calibration_real_or_null(row->context));
    json_object_set_new(o, "workspace_bytes", calibration_real_or_null(row->workspace));
    json_object_set_new(o, "fragmentation", calibration_real_or_null(row->fragmentation));
    json_object_set_new(o, "activations_bytes", calibration_real_or_null(row->activations));
    json_object_set_new(o, "activations_predicted_bytes", calibration_real_or_null(row->activations_predicted));
    for (int i = 0; i < LEARNS_N; i++)
        if (l->why[i]) json_object_set_new(why, keys[i], json_string(l->why[i]));
    json_object_set_new(o, "not_learned", why);
    return o;
}

static json_t *known_json(const struct estimate_calibration_known *k)
{
    static const char *const keys[] = {"context_bytes", "workspace_bytes", "fragmentation", "activations_factor"};
    json_t *o = json_object();

    json_object_set_new(o, "what", json_string(keys[k->what]));
    if (k->what == CALIBRATION_CONTEXT || k->what == CALIBRATION_WORKSPACE)
        json_object_set_new(o, "gpu", calibration_text_json(k->of->gpu));
    if (k->what == CALIBRATION_ACTIVATIONS) {
        json_object_set_new(o, "family", calibration_text_json(k->of->family));
        json_object_set_new(o, "precision", calibration_text_json(k->of->precision));
        json_object_set_new(o, "attention", calibration_text_json(k->of->attention));
        json_object_set_new(o, "checkpointing", calibration_text_json(k->of->checkpointing));
        json_object_set_new(o, "more", calibration_text_json(k->of->more));
        json_object_set_new(o, "used", json_boolean(!k->stale));
    }
    json_object_set_new(o, "runs", json_integer((json_int_t)k->seen.runs));
    json_object_set_new(o, "least", json_real(k->seen.least));
    json_object_set_new(o, "mean", json_real(k->seen.mean));
    json_object_set_new(o, "most", json_real(k->seen.most));
    return o;
}

json_t *json_calibration(const struct estimate_calibration *c, const struct question_learned *l)
{
    json_t *learned = json_array(), *list = json_array();
    size_t n;
    struct estimate_calibration_known *all = estimate_calibration_list(c, &n);

    for (size_t i = 0; l && i < l->n; i++) json_array_append_new(learned, learned_row(&l->rows[i]));
    for (size_t i = 0; i < n; i++) json_array_append_new(list, known_json(&all[i]));
    free(all);
    return json_pack("{s:i, s:o, s:I, s:o, s:o}", "schema", 1, "path", calibration_text_json(c->path), "rows",
                     (json_int_t)c->rows_n, "learned", learned, "known", list);
}
