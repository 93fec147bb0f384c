/* What every cause and measure asks of the facts, and how each writes down a thing to do. */
#include "analyzer/oom/oom_words.h"

enum { MIB = 1 << 20, CANDIDATES = 32 };
static const int64_t context_most = (int64_t)1 << 30; /* a context with its kernels seldom costs more */

static bool known(int64_t value)
{
    return value != GS_UNKNOWN;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t gs_oom_context(const struct gs_oom_facts *f)
{
    int64_t most = known(f->total) ? least(context_most, f->total / 4) : context_most;
    return known(f->outside_first) ? least(f->outside_first, most) : most;
}

int64_t gs_oom_foreign(const struct gs_oom_facts *f)
{
    if (f->said && known(f->said->other_bytes)) {
        return f->said->other_bytes;
    }
    return known(f->outside) && f->outside > gs_oom_context(f) ? f->outside - gs_oom_context(f) : 0;
}

int64_t gs_oom_cached(const struct gs_oom_facts *f)
{
    return known(f->tensor_reserved) && known(f->tensor_allocated) && f->tensor_reserved > f->tensor_allocated
               ? f->tensor_reserved - f->tensor_allocated
               : 0;
}

const struct gs_by_owner *gs_oom_direct(const struct gs_oom_verdict *v)
{
    for (size_t i = 0; i < v->by_owner_n; i++) {
        if (v->by_owner[i].kind != GS_OWNER_TORCH && v->by_owner[i].bytes > 0) {
            return &v->by_owner[i];
        }
    }
    return NULL;
}

bool gs_oom_graph(const struct gs_oom_facts *f)
{
    return f->graph != GS_GRAPH_NONE;
}

int64_t gs_oom_segment(int64_t bytes, bool grows)
{
    int64_t grain = grows || bytes < 10 * MIB ? 20 * MIB : 2 * MIB;
    if (bytes <= MIB) {
        grain = 2 * MIB;
    }
    return bytes > INT64_MAX - grain ? bytes : (bytes + grain - 1) / grain * grain;
}

int64_t gs_oom_need(const struct gs_oom_facts *f)
{
    bool tensor = f->row->layer == GS_LAYER_TENSOR;
    /* PyTorch kept to a limit of its own: nobody knows how near it was */
    int64_t free = known(f->free) && (f->device_failed || !tensor) ? f->free : 0;
    int64_t asked = f->device_requested > 0 ? f->device_requested
                    : tensor                ? gs_oom_segment(f->requested, false)
                                            : f->requested;
    int64_t need = asked - free;
    return need > 0 ? need : f->requested > 0 ? f->requested : 1;
}

void gs_oom_measure(struct gs_builder *b, struct gs_oom_verdict *v, struct gs_measure m)
{
    if (!v->measures) {
        v->measures = gs_arena_alloc(b->arena, CANDIDATES * sizeof *v->measures);
    }
    if (v->measures_n == CANDIDATES) {
        return;
    }
    if (known(m.frees_bytes)) {
        bool most = m.enough == GS_MEASURE_AT_MOST || m.enough == GS_MEASURE_MOST_BUT_NOT;
        bool covers = m.frees_bytes >= gs_oom_need(v->facts);
        switch (m.enough) {
        case GS_MEASURE_FITS: m.enough = 1; break;
        case GS_MEASURE_FITS_NOT:
        case GS_MEASURE_MOST_BUT_NOT: m.enough = 0; break;
        case GS_MEASURE_AT_MOST: m.enough = covers ? -1 : 0; break;
        default: m.enough = covers; break;
        }
        m.text = gs_arena_printf(b->arena, "%s: frees %s %s%s (%s)", m.text, most ? "up to" : "about",
                                 gs_bytes_text(b, (double)m.frees_bytes),
                                 m.enough > 0    ? ", enough for this request"
                                 : m.enough == 0 ? ", not enough alone"
                                                 : "",
                                 gs_certainty_word(m.certainty));
    } else {
        m.enough = -1;
    }
    v->measures[v->measures_n++] = m;
}

const char *gs_oom_place(struct gs_oom_words *w, uint32_t stack)
{
    uint32_t number = gs_site_number(w->b, stack); /* first: it may move b->sites */
    return gs_site_path(w->b, &w->b->sites[number]);
}
