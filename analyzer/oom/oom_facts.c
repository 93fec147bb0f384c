/* Derived facts that all causes and measures use, and how a measure is written. */
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/site/native_source.h"
#include "analyzer/site/source_context.h"
#include "analyzer/site/source_input.h"

#include <string.h>

enum { MIB = 1 << 20, CANDIDATES = 32 };
static const int64_t context_most = (int64_t)1 << 30; /* a context with its kernels seldom needs more */

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t oom_context_bytes(const struct oom_facts *f)
{
    int64_t most = run_is_known(f->total) ? min_of(context_most, f->total / 4) : context_most;
    return run_is_known(f->outside_first) ? min_of(f->outside_first, most) : most;
}

int64_t oom_other_bytes(const struct oom_facts *f)
{
    if (f->nvml && run_is_known(f->nvml->other_bytes)) return f->nvml->other_bytes;
    if (f->attached) return 0; /* or its own, from before */
    return run_is_known(f->outside) && f->outside > oom_context_bytes(f) ? f->outside - oom_context_bytes(f) : 0;
}

int64_t oom_outside_bytes(const struct oom_facts *f)
{
    const bool tensors = f->layer == RUN_SERIES_TENSOR && run_is_known(f->tensor_reserved);
    const int64_t direct = tensors && f->device_live > f->tensor_reserved ? f->device_live - f->tensor_reserved : 0;
    const int64_t beside = arena_add_capped(oom_other_bytes(f), oom_context_bytes(f));
    return arena_add_capped(direct, run_is_known(f->outside) && f->outside > beside ? f->outside - beside : 0);
}

int64_t oom_cached_bytes(const struct oom_facts *f)
{
    return run_is_known(f->tensor_reserved) && run_is_known(f->tensor_allocated) &&
                   f->tensor_reserved > f->tensor_allocated
               ? f->tensor_reserved - f->tensor_allocated
               : 0;
}

const struct result_by_owner *oom_direct_owner(const struct result_oom_verdict *v)
{
    return FIND_IN(o, v->by_owner, o->kind != RESULT_OWNER_TORCH && o->bytes > 0);
}

bool oom_keeps_graph(const struct oom_facts *f)
{
    return f->graph != OOM_GRAPH_NONE;
}

int64_t oom_segment_bytes(int64_t bytes, bool grows)
{
    int64_t grain = grows || bytes < 10 * MIB ? 20 * MIB : 2 * MIB;
    if (bytes <= MIB) grain = 2 * MIB;
    return bytes > INT64_MAX - grain ? bytes : (bytes + grain - 1) / grain * grain;
}

int64_t oom_needed_bytes(const struct oom_facts *f)
{
    bool tensor = f->row->layer == GS_LAYER_TENSOR;
    /* PyTorch refused by its own limit: how near it was is unknown */
    int64_t free = run_is_known(f->free) && (f->device_failed || !tensor) ? f->free : 0;
    int64_t asked = f->device_requested > 0 ? f->device_requested
                    : tensor                ? oom_segment_bytes(f->requested, false)
                                            : f->requested;
    int64_t need = asked - free;
    return need > 0 ? need : f->requested > 0 ? f->requested : 1;
}

/* The basis of a promised amount. What was replayed is named unless the advice, at its start, names the same. */
static const char *basis_text(struct site_builder *b, const struct result_measure *m)
{
    if (!m->replayed) return "a formula, not replayed";
    const char *what = strchr(m->replayed, ' ');
    const bool named = what && strstr(m->text, what + 1);
    const bool spare = m->fits && run_is_known(m->spare_bytes);
    return arena_printf(b->arena, "replayed%s%s: %s%s%s", named ? "" : " ", named ? "" : m->replayed,
                        m->fits ? "fits" : "still fails", spare ? " with " : "",
                        spare ? arena_printf(b->arena, "%s to spare", site_bytes_text(b, (double)m->spare_bytes)) : "");
}

void oom_add_measure(struct site_builder *b, struct result_oom_verdict *v, struct result_measure m)
{
    if (!v->measures) v->measures = arena_alloc(b->arena, CANDIDATES * sizeof *v->measures);
    if (v->measures_n == CANDIDATES) return;
    m.text = site_cpp_words(b, v->process, m.text);
    if (run_is_known(m.frees_bytes)) {
        bool most = m.enough == OOM_MEASURE_AT_MOST || m.enough == OOM_MEASURE_MOST_BUT_NOT;
        bool covers = m.frees_bytes >= oom_needed_bytes(v->facts);
        switch (m.enough) {
        case OOM_MEASURE_FITS: m.enough = 1; break;
        case OOM_MEASURE_FITS_NOT:
        case OOM_MEASURE_MOST_BUT_NOT: m.enough = 0; break;
        case OOM_MEASURE_AT_MOST: m.enough = covers ? -1 : 0; break;
        default: m.enough = covers; break;
        }
        m.enough = !m.replayed ? m.enough : !m.fits ? 0 : most ? -1 : 1;
        m.text = arena_printf(b->arena, "%s: frees %s %s%s (%s; %s)", m.text, most ? "up to" : "about",
                              site_bytes_text(b, (double)m.frees_bytes),
                              m.enough > 0    ? ", enough for this request"
                              : m.enough == 0 ? ", not enough by itself"
                                              : "",
                              result_certainty_word(m.certainty), basis_text(b, &m));
    } else {
        m.enough = -1;
    }
    v->measures[v->measures_n++] = m;
}

const char *oom_place_text(struct oom_words *w, uint32_t stack)
{
    const struct result_site site = site_of_call(w->b, stack);
    return site_text_with_caller(w->b, &site);
}

const char *oom_pass_text(struct oom_words *w, uint32_t stack)
{
    const uint32_t of = site_pass_caller(w->b->run, stack), caller = of == RUN_NONE ? w->f->pass : of;
    const struct result_site pass = site_of_call(w->b, caller);
    return caller == RUN_NONE ? NULL : site_short_text(w->b, &pass);
}

void oom_measure_holes(struct result_report *report, const struct oom_facts *f)
{
    EACH_IN (g, report->fragmentation) {
        if (g->process != f->row->process || g->device != f->row->device || !f->map.segments ||
            g->segments) /* the failure that ended the program comes first and stays */
            continue;
        g->time_s = site_seconds(f->row->time_ns);
        g->reserved_bytes = f->tensor_reserved != RUN_UNKNOWN ? f->tensor_reserved : f->map.segment_bytes;
        g->active_bytes = f->map.block_bytes;
        g->free_bytes = f->map.free_bytes;
        g->largest_free_bytes = f->map.largest_free_bytes;
        g->external = f->map.free_bytes > 0 ? 1 - (double)f->map.largest_free_bytes / (double)f->map.free_bytes : 0;
        g->segments = f->map.segments;
        g->blocks = f->map.blocks;
    }
}

/* A function of that name, called by a class or by a script of its own. */
static bool is_forward(const struct run_frame *frame)
{
    return strcmp(text_last_part(frame->function), "forward") == 0;
}

bool oom_is_in_pass(const struct run *run, uint32_t stack)
{
    return RUN_ANY_FRAME(f, run, stack, f->kind == GS_FRAME_PYTHON && is_forward(f)) ||
           run_stack_is_in(run, stack, NULL, "_call_impl") ||
           run_stack_is_in(run, stack, NULL, "_engine_run_backward") ||
           run_stack_is_in(run, stack, "/torch/autograd/__init__.py", NULL); /* torch.func calls the engine itself */
}

bool oom_is_lazy(const struct run *run, uint32_t stack)
{
    return run_stack_is_in(run, stack, NULL, "initialize_parameters");
}
