/* The estimate's head, table and notes. */
#include "analyzer/model/denoisers.h"
#include "analyzer/view/view_estimate_parts.h"

#include <stdarg.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/estimate/adapter_kinds.h"

#define WORD(id, word, what) word,
static const char *const attentions[] = {PLAN_ATTENTIONS(WORD)}, *const checkpoints[] = {PLAN_CHECKPOINTS(WORD)},
                         *const steps[] = {PLAN_STEPS(WORD)}, *const shardings[] = {PLAN_SHARDINGS(WORD)},
                         *const adapters[] = {PLAN_ADAPTERS(WORD)};
#undef WORD

struct head {
    char text[1024];
    size_t at;
};

__attribute__((format(printf, 2, 3))) static void add_head_part(struct head *h, const char *format, ...)
{
    va_list arguments;

    if (h->at && h->at < sizeof h->text) h->at += (size_t)snprintf(h->text + h->at, sizeof h->text - h->at, ", ");
    va_start(arguments, format);
    if (h->at < sizeof h->text) h->at += (size_t)vsnprintf(h->text + h->at, sizeof h->text - h->at, format, arguments);
    va_end(arguments);
}

static void add_training(struct head *h, const struct plan *p)
{
    static const char *const sizes[] = {"", " of rank ", " in blocks of ", " of virtual tokens, "};

    add_head_part(h, "%s", p->optimizer->name);
    if (p->step != PLAN_STEP_FOREACH) add_head_part(h, "%s step", steps[p->step]);
    add_head_part(h, "%s%s", p->precision->meaning, p->master_weights ? " with master weights" : "");
    if (p->adapter != PLAN_ADAPTER_NONE)
        add_head_part(h, "%s%s%s on %s", adapters[p->adapter], sizes[estimate_adapter_kind(p)->size_is],
                      estimate_adapter_option(p) ? UNITS_COUNT(p->rank) : "",
                      p->weights ? p->weights->word : "frozen weights");
    if (p->checkpoint != PLAN_CHECKPOINT_NONE) add_head_part(h, "%s checkpointing", checkpoints[p->checkpoint]);
    if (p->remade_every) add_head_part(h, "1 of %ju layers", (uintmax_t)p->remade_every);
    if (p->remade) add_head_part(h, "%ju layers of each stage", (uintmax_t)p->remade);
    if (p->fused_layers) add_head_part(h, "fused layers");
    if (p->fused_loss) add_head_part(h, "fused loss");
    if (p->chunked_loss) add_head_part(h, "chunked loss");
    if (p->away) add_head_part(h, "activations on the host");
    if (p->ema) add_head_part(h, "EMA");
    if (p->frozen != PLAN_FROZEN_NONE) add_head_part(h, "%s frozen", p->frozen == PLAN_FROZEN_TOWER ? "tower" : "text");
    if (p->accumulation > 1) add_head_part(h, "%ju micro-batches per step", (uintmax_t)p->accumulation);
}

static void add_serving(struct head *h, const struct plan *p)
{
    add_head_part(h, "served");
    if (p->weights || p->precision_given)
        add_head_part(h, "weights as %s", p->weights ? p->weights->word : p->precision->name);
    if (p->model->shape.vocab && (p->cache || p->cache_block))
        add_head_part(h, "KV cache in %s%s", p->cache ? p->cache->word : "16 bits",
                      p->cache_block ? ", in blocks" : "");
}

static void add_gpus(struct head *h, const struct plan *p)
{
    if (p->gpus > 1) add_head_part(h, "%ju GPUs", (uintmax_t)p->gpus);
    if (p->tp > 1)
        add_head_part(h, "tp %ju%s", (uintmax_t)p->tp, p->sequence_parallel ? " with sequence parallelism" : "");
    if (p->pp > 1) add_head_part(h, "pp %ju%s", (uintmax_t)p->pp, p->interleave > 1 ? " interleaved" : "");
    if (p->cp > 1) add_head_part(h, "cp %ju", (uintmax_t)p->cp);
    if (p->ep > 1) add_head_part(h, "ep %ju", (uintmax_t)p->ep);
    if (plan_expert_tp(p) != p->tp) add_head_part(h, "expert-tp %ju", (uintmax_t)p->expert_tp);
    if (plan_dp(p) > 1 && !p->inference) add_head_part(h, "%s", shardings[p->sharding]);
    if (p->offload != PLAN_OFFLOAD_NONE)
        add_head_part(h, "%s",
                      p->offload == PLAN_OFFLOAD_ALL          ? "parameters and states in host memory"
                      : p->offload == PLAN_OFFLOAD_MODEL      ? "one model on the GPU at a time"
                      : p->offload == PLAN_OFFLOAD_SEQUENTIAL ? "one layer on the GPU at a time"
                                                              : "optimizer states in host memory");
    if (p->model->shape.family != MODEL_DENOISER) return;
    if (p->inference && p->guided) add_head_part(h, "guidance");
    if (p->decoding != PLAN_DECODING_WHOLE)
        add_head_part(h, p->decoding == PLAN_DECODING_TILED ? "VAE tiling" : "VAE slicing");
    add_head_part(h, p->resident == PLAN_RESIDENT_ALL    ? "with text encoders and VAE"
                     : p->resident == PLAN_RESIDENT_VAE  ? "with the VAE"
                     : p->resident == PLAN_RESIDENT_TEXT ? "with text encoders"
                                                         : "without text encoders and VAE");
}

/* " of 49 x 480 x 720": what a diffusion model makes. */
static const char *image_size_text(const struct plan *p, char out[64])
{
    const struct model_shape *s = &p->model->shape;

    *out = 0;
    if (s->family != MODEL_DENOISER) return out;
    const struct model_pipeline *around = model_pipeline_of(p->model);
    const uint64_t high = s->image ? s->image : around->image,
                   frames = s->denoiser.frames ? s->denoiser.frames : around->frames;
    const uint64_t wide = s->denoiser.width_pixels ? s->denoiser.width_pixels : high;
    if (frames > 1)
        snprintf(out, 64, " of %ju x %ju x %ju", (uintmax_t)frames, (uintmax_t)high, (uintmax_t)wide);
    else
        snprintf(out, 64, " of %ju x %ju", (uintmax_t)high, (uintmax_t)wide);
    return out;
}

/* what was understood */
static void view_estimate_head(const struct view_estimate *v)
{
    const struct plan *p = &v->a->plan;
    struct head h = {{0}, 0};
    char name[256], size[64];
    int at = 0;

    if (*p->model->name)
        at = fprintf(v->out, "%s%s%s: ", terminal_style(&v->term, TERMINAL_BOLD),
                     terminal_clean(name, sizeof name, p->model->name, v->term.utf8),
                     terminal_style(&v->term, TERMINAL_PLAIN));
    add_head_part(&h, "%s parameters", UNITS_COUNT(p->model->params));
    p->inference ? add_serving(&h, p) : add_training(&h, p);
    add_gpus(&h, p);
    if (p->batch && p->seq)
        add_head_part(&h, "batch %ju %s %ju tokens%s", (uintmax_t)p->batch, v->term.utf8 ? "×" : "x", (uintmax_t)p->seq,
                      v->a->assumed.batch && v->a->assumed.seq ? " (assumed)"
                      : v->a->assumed.batch                    ? " (batch assumed)"
                      : v->a->assumed.seq                      ? " (length assumed)"
                                                               : "");
    else if (p->batch)
        add_head_part(&h, "batch %ju%s%s", (uintmax_t)p->batch, image_size_text(p, size),
                      v->a->assumed.batch ? " (assumed)" : "");
    if (p->batch && p->model->shape.heads) add_head_part(&h, "%s attention", attentions[p->attention]);
    at = at ? terminal_columns(name) + 2 : 0;
    view_estimate_wrap(v, at ? INDENT : 0, at, h.text);
}

enum { SIZE = 12 };

/* Columns of the widest interval and the text before it; 0: there is none. */
static int has_ranges(const struct view_estimate *v)
{
    const struct estimate_result *r = &v->a->result;
    char range[VIEW_RANGE];
    int most = 0;

    for (int part = 0; part < ESTIMATE_PARTS_N; part++) {
        unsigned phases;
        int width = terminal_columns(view_estimate_range(v, range, estimate_answer_part(r, part, &phases)));
        most = width > most ? width : most;
    }
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++) {
        int width = terminal_columns(view_estimate_range(v, range, r->phase[phase]));
        most = width > most ? width : most;
    }
    return most ? most + 2 : 0;
}

/* The phases that occur, abbreviated. */
static const char *phase_short(const struct view_estimate *v, int phase)
{
    static const char *const words[][ESTIMATE_PHASES_N] = {
        {"fwd", "bwd", "step", "load", "prefill", "decode", "text", "denoise", "VAE"},
        {"forward", "backward", "step", "load", "prefill", "decode", "text", "denoise", "VAE"}};

    if (strcmp(view_estimate_phase(v, phase), "forward pass") == 0) phase = PHASE_FORWARD;
    return words[v->term.width >= 90][phase];
}

static int title_width(const struct view_estimate *v)
{
    int width = 18;

    for (int part = 0; part < ESTIMATE_PARTS_N; part++) {
        unsigned phases;
        if (estimate_answer_part(&v->a->result, part, &phases).high > 0 &&
            terminal_columns(estimate_part_title[part]) > width)
            width = terminal_columns(estimate_part_title[part]);
    }
    return width < 20 || (width < 26 && v->term.width >= 90) ? width : v->term.width < 90 ? 20 : 26;
}

/* Without the blanks at the line's end. */
static void line_out(const struct view_estimate *v, enum terminal_style style, char *line)
{
    size_t n = strlen(line);

    while (n && line[n - 1] == ' ') n--;
    fprintf(v->out, "%s%.*s%s\n", terminal_style(&v->term, style), (int)n, line,
            n ? terminal_style(&v->term, TERMINAL_PLAIN) : "");
}

/* `text` padded to `width` columns, right-aligned if it is negative. */
static void put_estimate_cell(char *line, size_t size, const char *text, int width)
{
    size_t at = strlen(line);
    int blanks = (width < 0 ? -width : width) - terminal_columns(text);

    blanks = blanks < 0 ? 0 : blanks;
    snprintf(line + at, size - at, "%*s%s%*s", width < 0 ? blanks : 0, "", text, width < 0 ? 0 : blanks, "");
}

static void put_phase_marks(const struct view_estimate *v, char *line, size_t size, unsigned phases, const char *mark)
{
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++) {
        if (!view_estimate_phase(v, phase)) continue;
        int width = (int)strlen(phase_short(v, phase));
        put_estimate_cell(line, size, "", 2 + (width - 1) / 2);
        put_estimate_cell(line, size, phases & 1u << phase ? mark : "", width - (width - 1) / 2);
    }
}

static void put_interval(const struct view_estimate *v, char *line, size_t size, const char *title,
                         struct estimate_interval bytes)
{
    char text[UNITS_TEXT], range[VIEW_RANGE], name[64];

    text_elide(name, sizeof name, title, title_width(v), v->term.utf8);
    put_estimate_cell(line, size, "", INDENT);
    put_estimate_cell(line, size, name, title_width(v));
    put_estimate_cell(line, size, view_estimate_bytes(text, bytes.likely), -SIZE);
    if (has_ranges(v)) put_estimate_cell(line, size, view_estimate_range(v, range, bytes), -has_ranges(v));
}

static void print_estimate_header(const struct view_estimate *v)
{
    char line[512] = "";

    put_estimate_cell(line, sizeof line, "", INDENT + title_width(v));
    put_estimate_cell(line, sizeof line, has_ranges(v) ? "expected" : "", -SIZE);
    if (has_ranges(v)) put_estimate_cell(line, sizeof line, v->term.utf8 ? "low – high" : "low - high", -has_ranges(v));
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++)
        if (view_estimate_phase(v, phase)) {
            put_estimate_cell(line, sizeof line, "", 2);
            put_estimate_cell(line, sizeof line, phase_short(v, phase), 0);
        }
    line_out(v, TERMINAL_DIM, line);
}

static void part_row(const struct view_estimate *v, enum estimate_part part)
{
    char line[512] = "";
    unsigned phases;
    struct estimate_interval bytes = estimate_answer_part(&v->a->result, part, &phases);

    if (bytes.high <= 0) return;
    put_interval(v, line, sizeof line, estimate_part_title[part], bytes);
    put_phase_marks(v, line, sizeof line, phases, v->term.utf8 ? "●" : "x");
    line_out(v, TERMINAL_PLAIN, line);
}

/* Memory that does not depend on the batch. */
static void states_row(const struct view_estimate *v)
{
    char line[512] = "", text[128], each[32];
    double states = estimate_answer_state_bytes(v->a);

    put_interval(v, line, sizeof line, "total", EXACTLY(states));
    snprintf(each, sizeof each, "%.4g", states / (double)v->a->plan.model->params);
    snprintf(text, sizeof text, "  %s byte%s per parameter%s", each, strcmp(each, "1") == 0 ? "" : "s",
             v->a->plan.gpus > 1 ? " on each GPU" : "");
    while (*line && line[strlen(line) - 1] == ' ') line[strlen(line) - 1] = 0;
    put_estimate_cell(line, sizeof line, text, 0);
    line_out(v, TERMINAL_BOLD, line);
}

static void phase_rows(const struct view_estimate *v)
{
    const struct estimate_result *r = &v->a->result;

    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++) {
        char line[512] = "";
        const char *name = view_estimate_phase(v, phase);
        bool peak = phase == (int)r->peak_phase;
        if (!name) continue;
        put_interval(v, line, sizeof line, name, r->phase[phase]);
        if (peak) {
            const char *when = strcmp(name, "forward pass") == 0 ? NULL : strchr(estimate_phase_title[phase], ',');
            put_estimate_cell(line, sizeof line, v->term.utf8 ? "  ◀ peak" : "  <- peak", 0);
            if (when && terminal_columns(line) + terminal_columns(when) <= v->term.width) {
                put_estimate_cell(line, sizeof line, ":", 0);
                put_estimate_cell(line, sizeof line, when + 1, 0);
            }
        }
        line_out(v, peak ? TERMINAL_BOLD : TERMINAL_PLAIN, line);
    }
}

/* categories, phases, the peak */
static void view_estimate_table(const struct view_estimate *v)
{
    putc('\n', v->out);
    if (v->a->result.peak.high <= 0) {
        view_estimate_wrap(v, 0, 0, "None of the parts that gpuspy knows stays on the GPU.");
        return;
    }
    print_estimate_header(v);
    for (int part = 0; part <= ESTIMATE_EMA; part++) part_row(v, part);
    if (!v->a->plan.inference && estimate_answer_state_bytes(v->a) > 0) states_row(v);
    for (int part = ESTIMATE_EMA + 1; part < ESTIMATE_PARTS_N; part++) part_row(v, part);
    putc('\n', v->out);
    phase_rows(v);
}

/* The line with the widest interval of a part at the peak that has a reason. */
static const struct estimate_line *widest_line_of_part(const struct estimate_result *r, int part)
{
    const struct estimate_line *best = NULL;

    for (const struct estimate_line *l = r->lines; l < r->lines + r->lines_n; l++)
        if ((int)l->part == part && !l->host && (l->phases & 1u << r->peak_phase) && l->why && *l->why &&
            (!best || l->bytes.high - l->bytes.low > best->bytes.high - best->bytes.low))
            best = l;
    return best;
}

/* The two parts that make up most of the peak's interval, if it is wide enough to matter. */
static void view_estimate_reasons(const struct view_estimate *v)
{
    enum { MOST = 2 };
    const struct estimate_result *r = &v->a->result;
    const struct estimate_interval *peak = &r->phase[r->peak_phase];
    double wide = peak->high - peak->low, last = wide * 2;
    struct text_table t = {.head = {"", "why low and high differ"}, .left = {true, true}};
    int n = 0;

    if (v->explain || wide < 0.1 * peak->likely) return;
    for (; n < MOST; n++) {
        int best = -1;
        double width = 0.2 * wide;
        for (int part = 0; part < ESTIMATE_PARTS_N; part++) {
            double here = r->part[part].high - r->part[part].low;
            if (here > width && here < last && widest_line_of_part(r, part)) {
                best = part;
                width = here;
            }
        }
        if (best < 0) break;
        const char *cells[] = {estimate_part_title[best], widest_line_of_part(r, best)->why};
        text_table_add(&t, cells, NULL);
        last = width;
    }
    if (!n) return;
    putc('\n', v->out);
    text_table_print(&t, &v->term, INDENT, v->out);
}

static void view_estimate_notes(const struct view_estimate *v)
{
    const struct estimate_answer *a = v->a;
    unsigned phases;
    bool bare = !a->plan.inference && estimate_answer_part(&a->result, ESTIMATE_ACTIVATIONS, &phases).high <= 0;
    double host = estimate_answer_host_bytes(&a->result);
    char text[UNITS_TEXT], line[256];

    if (bare || a->result.notes_n || host > 0) putc('\n', v->out);
    if (bare) view_estimate_sentence(v, 0, ESTIMATE_ON_TOP ": they grow with the batch and the sequence");
    if (bare && a->floor.cast_copies) {
        snprintf(line, sizeof line, "Autocast's 16-bit copies of the weights are added to that: up to %s in forward",
                 units_format_bytes(text, a->floor.cast_copies));
        view_estimate_sentence(v, 0, line);
    }
    if (host > 0) {
        snprintf(line, sizeof line, "In host memory: %s per GPU", view_estimate_bytes(text, host));
        view_estimate_sentence(v, 0, line);
    }
    for (size_t i = 0; i < a->result.notes_n; i++) view_estimate_sentence(v, 0, a->result.notes[i]);
}

static void join_texts(char *out, size_t size, const char *between, char *const *list, size_t n)
{
    size_t at = strlen(out);

    for (size_t i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? between : "", list[i]);
}

/* How --config was interpreted, so that a reader can check it, and what was ignored. */
static void print_configuration(const struct view_estimate *v)
{
    const struct estimate_recipe *r = v->recipe;
    char text[4096], clean[4096];
    int at;

    if (!r) return;
    at = fprintf(v->out, "Configuration (%s): ", r->tools);
    text[0] = 0;
    join_texts(text, sizeof text, " ", r->option, r->options_n);
    view_estimate_wrap(v, INDENT, at, terminal_clean(clean, sizeof clean, text, v->term.utf8));
    if (r->unused_n) {
        at = fprintf(v->out, "Ignored keys: ");
        text[0] = 0;
        join_texts(text, sizeof text, ", ", r->unused, r->unused_n);
        view_estimate_wrap(v, INDENT, at, terminal_clean(clean, sizeof clean, text, v->term.utf8));
    }
    putc('\n', v->out);
}

static void view_server(const struct view_estimate *v, const struct estimate_target *t)
{
    const struct estimate_server *s = &t->server;
    const char *gpu = t->gpu ? t->gpu->key : "the GPU", *dash = v->term.utf8 ? "–" : "-";
    char taken[UNITS_TEXT], total[UNITS_TEXT], cache[UNITS_TEXT], range[VIEW_RANGE], tokens[3][UNITS_TEXT], text[600];

    units_format_bytes(taken, units_whole(s->taken));
    units_format_bytes(total, units_whole(t->memory));
    units_format_count(tokens[0], units_whole(s->tokens.low));
    units_format_count(tokens[1], units_whole(s->tokens.likely));
    units_format_count(tokens[2], units_whole(s->tokens.high));
    if (s->requests.likely < 1)
        snprintf(text, sizeof text,
                 "vLLM does not start on %s: its share, %s (%.4g of %s), leaves too little for one request of %ju "
                 "tokens; give shorter requests (--seq; vLLM: --max-model-len) or a larger share",
                 gpu, taken, s->share, total, (uintmax_t)v->a->plan.seq);
    else
        snprintf(text, sizeof text,
                 "vLLM takes %s of %s (%.4g of %s). KV cache: %s (%s), %s tokens (%s %s %s). That is %.1f requests of "
                 "%ju tokens at once (%.1f %s %.1f).",
                 taken, gpu, s->share, total, view_estimate_bytes(cache, s->cache.likely),
                 view_estimate_range(v, range, s->cache), tokens[1], tokens[0], dash, tokens[2], s->requests.likely,
                 (uintmax_t)v->a->plan.seq, s->requests.low, dash, s->requests.high);
    const size_t n = strlen(text);
    if (s->requests.likely > s->admitted)
        snprintf(text + n, sizeof text - n, " vLLM runs at most %.0f of them in one pass (--max-num-seqs%s).",
                 s->admitted, v->a->plan.most_requests ? "" : ", its default");
    view_estimate_wrap(v, INDENT, 0, text);
}

static void print_servers(const struct view_estimate *v)
{
    const struct estimate_answer *a = v->a;

    if (a->plan.share <= 0) return;
    putc('\n', v->out);
    for (size_t i = 0; i < a->targets_n; i++)
        if (a->targets[i].server.request > 0) view_server(v, &a->targets[i]);
}

void view_estimate(const struct view_estimate *v)
{
    print_configuration(v);
    view_estimate_head(v);
    view_estimate_bars(
        v); /* the result, on the first screen: whether it fits, what was solved for, what makes it fit */
    print_servers(v);
    view_estimate_solution(v);
    view_estimate_way(v);
    view_estimate_table(v);
    view_estimate_reasons(v);
    if (v->explain) view_estimate_explain(v);
    view_estimate_changes(v);
    view_estimate_wires(v);
    view_estimate_notes(v);
    view_estimate_next(v);
}
