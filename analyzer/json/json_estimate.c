#include "analyzer/json/json_estimate.h"

#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/draw/json_site.h"
#include "analyzer/estimate/adapter_kinds.h"
#include "analyzer/estimate/serving.h"

static json_int_t whole_bytes(double bytes)
{
    return (json_int_t)(bytes < 0 ? bytes - 0.5 : bytes + 0.5);
}

static json_t *interval_json(struct estimate_interval i)
{
    return json_pack("{s:I, s:I, s:I}", "low_bytes", whole_bytes(i.low), "bytes", whole_bytes(i.likely), "high_bytes",
                     whole_bytes(i.high));
}

json_t *json_clean_text(const char *from)
{
    char clean[4096];

    return from && *from ? json_string(terminal_clean(clean, sizeof clean, from, true)) : json_null();
}

static json_t *estimate_count_json(uint64_t n)
{
    return n ? json_integer((json_int_t)n) : json_null();
}

static json_t *model_json(const struct model *m)
{
    const struct model_shape *s = &m->shape;
    json_t *shape = json_object();
    const struct {
        const char *key;
        uint64_t n;
    } rows[] = {{"layers", s->layers},
                {"hidden", s->hidden},
                {"heads", s->heads},
                {"kv_heads", s->kv_heads},
                {"head_dim", s->head_dim},
                {"ffn", s->ffn},
                {"vocab", s->vocab},
                {"context", s->context},
                {"experts", s->experts},
                {"experts_used", s->experts_used},
                {"shared_experts", s->shared_experts},
                {"expert_ffn", s->expert_ffn},
                {"moe_layers", s->moe_layers},
                {"kv_rank", s->kv_rank},
                {"window", s->window},
                {"window_layers", s->window_layers},
                {"image", s->image},
                {"patch", s->patch},
                {"classes", s->classes},
                {"encoder_layers", s->encoder_layers},
                {"sound", s->sound},
                {"inner", s->inner},
                {"state", s->state},
                {"taps", s->taps},
                {"step_rank", s->step_rank},
                {"groups", s->groups},
                {"width", s->denoiser.width_pixels},
                {"frames", s->denoiser.frames},
                {"text_tokens", s->denoiser.text_tokens}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].n) json_object_set_new(shape, rows[i].key, estimate_count_json(rows[i].n));
    if (s->family != MODEL_UNKNOWN) json_object_set_new(shape, "tied", json_boolean(s->tied));
    return json_pack("{s:o, s:s, s:s, s:o, s:I, s:o, s:o}", "name", json_clean_text(m->name), "source", m->source,
                     "family", model_family_word(s->family), "shape", shape, "params", (json_int_t)m->params,
                     "stored_bytes", m->stored_bytes > 0 ? json_integer(whole_bytes(m->stored_bytes)) : json_null(),
                     "stored_as", json_clean_text(m->stored_as));
}

#define WORD(id, word, what) word,
static const char *const attentions[] = {PLAN_ATTENTIONS(WORD)}, *const checkpoints[] = {PLAN_CHECKPOINTS(WORD)},
                         *const steps[] = {PLAN_STEPS(WORD)}, *const shardings[] = {PLAN_SHARDINGS(WORD)},
                         *const offloads[] = {PLAN_OFFLOADS(WORD)}, *const adapters[] = {PLAN_ADAPTERS(WORD)},
                         *const saved[] = {PLAN_SAVED(WORD)}, *const frozen[] = {PLAN_FROZEN(WORD)},
                         *const residents[] = {PLAN_RESIDENTS(WORD)}, *const decodings[] = {PLAN_DECODINGS(WORD)},
                         *const runtimes[] = {PLAN_RUNTIMES(WORD)};
#undef WORD

static json_t *plan_json(const struct estimate_answer *a)
{
    const struct plan *p = &a->plan;
    char targets[ESTIMATE_MATRICES_TEXT];
    json_t *o =
        json_pack("{s:b, s:s, s:s, s:b, s:s, s:o, s:o, s:b, s:b, s:I, s:s, s:s, s:b, s:b}", "inference", p->inference,
                  "precision", p->precision->name, "optimizer", p->optimizer->name, "master_weights", p->master_weights,
                  "step", steps[p->step], "batch", estimate_count_json(p->batch), "seq", estimate_count_json(p->seq),
                  "batch_assumed", a->assumed.batch, "seq_assumed", a->assumed.seq, "accumulation",
                  (json_int_t)p->accumulation, "attention", attentions[p->attention], "checkpointing",
                  checkpoints[p->checkpoint], "chunked_loss", p->chunked_loss, "fused_layers", p->fused_layers);
    json_t *more = json_pack(
        "{s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:s, s:b, s:s, s:I, s:s, s:o, s:b, s:o, s:o, s:o}", "gpus",
        (json_int_t)p->gpus, "gpus_per_node", estimate_count_json(p->gpus_per_node), "tp", (json_int_t)p->tp, "pp",
        (json_int_t)p->pp, "cp", (json_int_t)p->cp, "ep", (json_int_t)p->ep, "interleave", (json_int_t)p->interleave,
        "sequence_parallel", p->sequence_parallel, "sharding", shardings[p->sharding], "offload", offloads[p->offload],
        "bucket_view", p->bucket_view, "adapter", adapters[p->adapter], "rank", (json_int_t)p->rank, "target",
        estimate_adapter_name_matrices(p->targets, targets), "weights",
        json_clean_text(p->weights ? p->weights->word : NULL), "ema", p->ema, "kv_cache",
        json_clean_text(p->cache ? p->cache->word : NULL), "cache_block", estimate_count_json(p->cache_block), "gpu",
        json_clean_text(p->gpu ? p->gpu->key : NULL));

    json_object_update(o, more);
    json_decref(more);
    json_object_set_new(o, "modules_to_save", json_string(saved[p->saved]));
    json_object_set_new(o, "frozen", json_string(frozen[p->frozen]));
    json_object_set_new(o, "fsdp", json_boolean(p->fsdp));
    json_object_set_new(o, "separate_adapters", json_boolean(p->separate));
    json_object_set_new(o, "expert_tp", json_integer((json_int_t)plan_expert_tp(p)));
    json_object_set_new(o, "first_stage_layers", estimate_count_json(p->first_layers));
    json_object_set_new(o, "last_stage_layers", estimate_count_json(p->last_layers));
    json_object_set_new(o, "checkpointed_layers", estimate_count_json(p->remade));
    json_object_set_new(o, "checkpoint_every", estimate_count_json(p->remade_every));
    const struct {
        const char *key;
        bool given;
    } flags[] = {{"checkpoint_modules", p->by_module},
                 {"fused_norms", p->fused_norms},
                 {"fused_loss", p->fused_loss},
                 {"offload_activations", p->away},
                 {"varying_lengths", p->varying_lengths > 0},
                 {"drop_outputs", p->drop_outputs},
                 {"no_cache", p->no_cache},
                 {"late_zero_grad", p->late_zero_grad},
                 {"expandable_segments", p->expandable},
                 {"half_adapters", p->half_adapters},
                 {"half_reduce", p->half_reduce},
                 {"half_states", p->half_states},
                 {"quantised_experts", p->quantised_experts},
                 {"masked_lm", p->model->shape.masked_lm}};
    EACH (f, flags, COUNT_OF(flags)) json_object_set_new(o, f->key, json_boolean(f->given));
    json_object_set_new(o, "runtime", json_string(runtimes[p->runtime]));
    json_object_set_new(o, "prompt", estimate_count_json(p->prompt));
    json_object_set_new(o, "torch", json_clean_text(p->torch));
    json_object_set_new(o, "transformers", json_clean_text(p->transformers_text));
    json_object_set_new(o, "reentrant", json_boolean(!p->not_reentrant));
    json_object_set_new(o, "lora_dropout",
                        p->dropout == PLAN_DROPOUT_UNKNOWN ? json_null()
                                                           : json_boolean(p->dropout == PLAN_DROPOUT_SOME));
    if (p->model->shape.family == MODEL_DENOISER)
        json_object_set_new(o, "diffusion",
                            json_pack("{s:s, s:s, s:b, s:o}", "resident", residents[p->resident], "vae",
                                      decodings[p->decoding], "guidance", p->guided, "text_weights",
                                      json_clean_text(p->text_weights ? p->text_weights->word : NULL)));
    /* inference only: whether the model generates token after token, and has a KV cache */
    json_object_set_new(o, "decodes",
                        p->inference && p->model->shape.family != MODEL_UNKNOWN
                            ? json_boolean(estimate_serving_decodes(p))
                            : json_null());
    return o;
}

static json_t *phase_bits_json(const struct estimate_result *r, unsigned phases)
{
    json_t *list = json_array();

    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++)
        if ((phases & 1u << phase) && r->phase[phase].high > 0)
            json_array_append_new(list, json_string(estimate_phase_key[phase]));
    return list;
}

static json_t *estimate_lines_json(const struct estimate_result *r)
{
    json_t *list = json_array();

    EACH_IN (l, r->lines) {
        json_t *o = json_pack("{s:s, s:o, s:o}", "part", estimate_part_key[l->part], "name", json_clean_text(l->name),
                              "phases", phase_bits_json(r, l->phases));
        json_object_update_new(o, interval_json(l->bytes));
        json_object_update_new(o, json_pack("{s:b, s:o, s:o, s:o}", "host", l->host, "formula",
                                            json_clean_text(l->formula), "source", json_clean_text(l->source), "why",
                                            json_clean_text(l->why)));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *phases_json(const struct estimate_result *r)
{
    json_t *o = json_object();

    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++)
        if (r->phase[phase].high > 0) json_object_set_new(o, estimate_phase_key[phase], interval_json(r->phase[phase]));
    return o;
}

static json_t *estimate_peak_json(const struct estimate_result *r)
{
    json_t *o = json_pack("{s:s, s:s}", "phase", estimate_phase_key[r->peak_phase], "meaning",
                          estimate_phase_title[r->peak_phase]);
    json_t *parts = json_object();

    for (int part = 0; part < ESTIMATE_PARTS_N; part++)
        if (r->part[part].high > 0) json_object_set_new(parts, estimate_part_key[part], interval_json(r->part[part]));
    json_object_update_new(o, interval_json(r->peak));
    json_object_set_new(o, "parts", parts);
    json_object_set_new(o, "stage", json_integer((json_int_t)r->stage));
    return o;
}

static json_t *part_names(void)
{
    json_t *o = json_object();

    for (int part = 0; part < ESTIMATE_PARTS_N; part++)
        json_object_set_new(o, estimate_part_key[part], json_string(estimate_part_title[part]));
    return o;
}

static json_t *server_json(const struct estimate_server *s)
{
    return json_pack(
        "{s:f, s:I, s:o, s:o, s:I, s:o, s:o}", "gpu_memory_utilization", s->share, "taken_bytes", whole_bytes(s->taken),
        "used", interval_json(s->used), "kv_cache", interval_json(s->cache), "request_bytes", whole_bytes(s->request),
        "tokens", interval_json(s->tokens), "requests",
        json_pack("{s:f, s:f, s:f}", "low", s->requests.low, "likely", s->requests.likely, "high", s->requests.high));
}

static json_t *estimate_gpus_json(const struct estimate_answer *a)
{
    json_t *list = json_array();

    for (size_t i = 0; i < a->targets_n; i++) {
        const struct estimate_target *t = &a->targets[i];
        json_array_append_new(list, json_pack("{s:o, s:o, s:I, s:s, s:I, s:I, s:I, s:f, s:o}", "key",
                                              json_clean_text(t->gpu ? t->gpu->key : NULL), "name",
                                              json_clean_text(t->gpu ? t->gpu->product : NULL), "total_bytes",
                                              whole_bytes(t->memory), "verdict", estimate_fit_word[t->fit.verdict],
                                              "margin_low_bytes", whole_bytes(t->fit.margin.low), "margin_bytes",
                                              whole_bytes(t->fit.margin.likely), "margin_high_bytes",
                                              whole_bytes(t->fit.margin.high), "share", t->fit.share, "peak",
                                              interval_json(t->peak)));
        if (t->server.request > 0) json_object_set_new(json_array_get(list, i), "server", server_json(&t->server));
    }
    return list;
}

static json_t *wires_json(const struct estimate_wires *w)
{
    json_t *list = json_array();

    EACH (r, w->rows, w->n) {
        json_array_append_new(
            list, json_pack("{s:s, s:o, s:I, s:f, s:I, s:I, s:f, s:o, s:f, s:f, s:f, s:o, s:o}", "kind",
                            estimate_wire_kind_word[r->kind], "name", json_clean_text(r->name), "bytes",
                            whole_bytes(r->bytes), "times", r->times, "gpus", (json_int_t)r->n, "nodes",
                            (json_int_t)r->nodes, "bytes_per_s", r->bandwidth, "link", json_clean_text(r->link),
                            "one_pass_s", r->one_pass_s, "ring_s", r->ring_s, "factor", r->factor, "formula",
                            json_clean_text(r->formula), "source", json_clean_text(r->source)));
    }
    return list;
}

static json_t *change_json(const struct estimate_answer *a, const struct estimate_change *c)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "id", c->id, "what", json_clean_text(c->what),
                     "option", json_clean_text(c->option), "cost", json_clean_text(c->cost), "cost_class",
                     estimate_change_cost_word[c->cost_class], "source", json_clean_text(c->source), "saved",
                     interval_json(c->saved), "peak", interval_json(c->peak), "verdict",
                     a->plan.memory > 0 ? json_string(estimate_fit_word[c->fit.verdict]) : json_null());
}

static json_t *changes_json(const struct estimate_answer *a, const struct estimate_change *from, size_t n)
{
    return LIST_OF(n, i, change_json(a, &from[i]));
}

static json_t *solve_answer(const struct estimate_solve_answer *s)
{
    if (!s->any) return json_null();
    return json_pack("{s:I, s:b, s:o, s:o, s:o}", "value", (json_int_t)s->value, "limited", s->limited, "option",
                     json_clean_text(s->option), "peak", interval_json(s->peak), "next",
                     s->next.likely > 0 ? interval_json(s->next) : json_null());
}

static json_t *solution_json(const struct estimate_answer *a)
{
    const struct estimate_solution *s = &a->solution;

    if (!a->solved) return json_null();
    return json_pack("{s:s, s:I, s:o, s:o, s:I, s:o}", "what", estimate_solve_word[s->what], "memory_bytes",
                     whole_bytes(s->memory), "surely", solve_answer(&s->surely), "likely", solve_answer(&s->likely),
                     "limit", (json_int_t)s->limit, "note", json_clean_text(s->note));
}

static json_t *meanings_json(void)
{
    json_t *o = json_object();

    for (int i = 0; i <= FIT_NO; i++)
        json_object_set_new(
            o, estimate_fit_word[i],
            json_pack("{s:s, s:s}", "words", estimate_fit_words[i], "meaning", estimate_fit_meaning[i]));
    return o;
}

static json_t *texts_json(char *const *list, size_t n)
{
    return LIST_OF(n, i, json_clean_text(list[i]));
}

json_t *json_estimate(const struct estimate_answer *a, const struct estimate_recipe *recipe)
{
    const struct estimate *e = &a->floor;
    char command[4096], way[512];
    json_t *root = json_pack("{s:i, s:I, s:s, s:s, s:b, s:{s:I, s:I, s:I, s:I, s:I}, s:I, s:f, s:s}", "schema", 1,
                             "params", (json_int_t)e->params, "optimizer", a->plan.optimizer->name, "precision",
                             a->plan.precision->name, "master_weights", e->master != 0, "estimate", "weights_bytes",
                             (json_int_t)e->weights, "gradients_bytes", (json_int_t)e->gradients, "optimizer_bytes",
                             (json_int_t)e->optimizer, "master_bytes", (json_int_t)e->master, "total_bytes",
                             (json_int_t)e->total, "autocast_copies_bytes", (json_int_t)e->cast_copies,
                             "bytes_per_parameter", (double)e->total / (double)e->params, "note", ESTIMATE_ON_TOP);

    if (a->targets_n && a->targets[0].gpu == NULL)
        json_object_set_new(
            root, "memory",
            json_pack("{s:I, s:b}", "memory_bytes", whole_bytes(a->plan.memory), "fits", estimate_answer_fits(a)));
    if (recipe)
        json_object_set_new(root, "config",
                            json_pack("{s:s, s:o, s:o, s:I}", "tools", recipe->tools, "options",
                                      texts_json(recipe->option, recipe->options_n), "not_considered",
                                      texts_json(recipe->unused, recipe->unused_n), "not_listed",
                                      (json_int_t)recipe->unused_more));
    json_object_set_new(root, "model", model_json(a->plan.model));
    json_object_set_new(root, "plan", plan_json(a));
    json_object_set_new(root, "lines", estimate_lines_json(&a->result));
    json_object_set_new(root, "phases", phases_json(&a->result));
    json_object_set_new(root, "peak", estimate_peak_json(&a->result));
    json_object_set_new(root, "gpus", estimate_gpus_json(a));
    json_object_set_new(root, "verdicts", meanings_json());
    json_object_set_new(root, "changes_on",
                        a->plan.memory > 0 && a->targets[a->helped].gpu
                            ? json_clean_text(a->targets[a->helped].gpu->key)
                            : json_null());
    json_object_set_new(root, "changes", changes_json(a, a->changes.rows, a->changes.n));
    json_object_set_new(root, "way", changes_json(a, a->changes.way, a->changes.way_n));
    json_object_set_new(root, "solve", solution_json(a));
    json_object_set_new(root, "command", json_clean_text(estimate_answer_command(a, "", command, sizeof command)));
    estimate_answer_way(a, way, sizeof way);
    json_object_set_new(root, "way_command",
                        json_clean_text(*way ? estimate_answer_command(a, way, command, sizeof command) : NULL));
    json_object_set_new(root, "part_names", part_names());
    json_object_set_new(root, "wires", wires_json(&a->wires));
    json_object_set_new(root, "wires_s", a->wires.n ? json_real(a->wires.sum_s) : json_null());
    json_object_set_new(root, "wires_notes", LIST_OF(a->wires.notes_n, i, json_clean_text(a->wires.notes[i])));
    json_object_set_new(root, "compute_formula",
                        a->wires.compute_s > 0 ? json_clean_text(a->wires.compute) : json_null());
    json_object_set_new(root, "compute_s", a->wires.compute_s > 0 ? json_real(a->wires.compute_s) : json_null());
    json_object_set_new(root, "notes", LIST_OF(a->result.notes_n, i, json_clean_text(a->result.notes[i])));
    return root;
}
