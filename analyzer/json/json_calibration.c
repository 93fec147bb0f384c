#include "analyzer/json/json_calibration.h"

#include <stdlib.h>
#include "analyzer/draw/json_site.h"
#include "analyzer/json/json_estimate.h"
#include "analyzer/base/words.h"

static void learned_row(json_t *o, const struct question_learned_row *l)
{
    static const char *const keys[] = {LEARNS(WORDS_FIRST)};
    const struct estimate_calibration_row *row = &l->row;
    json_t *why = json_object();

    set_json(o, "recording", json_clean_text(l->recording));
    SET_MEMBERS(o, l, pid, device);
    set_json(o, "gpu", json_clean_text(row->gpu));
    set_real(o, "context_bytes", row->context);
    set_real(o, "workspace_bytes", row->workspace);
    set_real(o, "fragmentation", row->fragmentation);
    set_real(o, "activations_bytes", row->activations);
    set_real(o, "activations_predicted_bytes", row->activations_predicted);
    for (int i = 0; i < LEARNS_N; i++)
        if (l->why[i]) set_text(why, keys[i], l->why[i]);
    set_json(o, "not_learned", why);
}

static void known_json(json_t *o, const struct estimate_calibration_known *k)
{
    static const char *const keys[] = {"context_bytes", "workspace_bytes", "fragmentation", "activations_factor"};

    set_text(o, "what", keys[k->what]);
    if (k->what == CALIBRATION_CONTEXT || k->what == CALIBRATION_WORKSPACE)
        set_json(o, "gpu", json_clean_text(k->of->gpu));
    if (k->what == CALIBRATION_ACTIVATIONS) {
        set_json(o, "family", json_clean_text(k->of->family));
        set_json(o, "precision", json_clean_text(k->of->precision));
        set_json(o, "attention", json_clean_text(k->of->attention));
        set_json(o, "checkpointing", json_clean_text(k->of->checkpointing));
        set_json(o, "more", json_clean_text(k->of->more));
        set_bool(o, "used", !k->stale);
    }
    set_json(o, "runs", json_integer((json_int_t)k->seen.runs));
    set_real(o, "least", k->seen.least);
    set_real(o, "mean", k->seen.mean);
    set_real(o, "most", k->seen.most);
}

json_t *json_calibration(const struct estimate_calibration *c, const struct question_learned *l)
{
    size_t n;
    struct estimate_calibration_known *all = estimate_calibration_list(c, &n);
    json_t *learned = l ? LIST(l->rows, l->n, learned_row) : json_array(), *list = LIST(all, n, known_json);

    free(all);
    return json_pack("{s:i, s:o, s:I, s:o, s:o}", "schema", 1, "path", json_clean_text(c->path), "rows",
                     (json_int_t)c->rows_n, "learned", learned, "known", list);
}
