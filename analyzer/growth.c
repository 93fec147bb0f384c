/* Call sites whose live bytes rise steadily over the run.
 *
 * The end is the last fatal OOM, else the last allocation: what is freed later is freed by the
 * tear-down, and a list that grew all along is no less a leak because Python emptied it on its way
 * out. An allocation that is live at that end has stayed.
 *
 * The run up to there is cut into 64 equal pieces. What counts is the least that a location held in
 * each piece: the lower envelope, which activations that come and go within a step do not lift. A
 * location grows when, after the first tenth of the run (or its own beginning, whichever is later),
 * that envelope
 *   - rises in at least 3 pieces and falls in at most a tenth,
 *   - lies close to a straight line (r² ≥ 0.8): one jump, however large, is not growth,
 *   - still rises in the last quarter: what was loaded once does not,
 *   - gains at least half a percent of what is live at the end, by at least 4 allocations that
 * stayed. Loading weights looks the same while it lasts; locations below the functions in `loading`
 * are left out.
 */
#include "analyzer/question.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 64, WARM = 7, QUARTER = PIECES - PIECES / 4, MIN_SAMPLES = 8, MIN_STAYED = 4 };
static const double min_fit = 0.8, min_share = 0.005;

struct site_growth { /* by location; what every event needs comes first */
    uint32_t piece;  /* the one that `least` is of */
    uint32_t first;  /* piece of the first allocation, plus 1; 0 none yet */
    int64_t live, least;
    uint64_t stayed;
    int64_t stayed_bytes, first_ns, last_ns;
    uint64_t never; /* of those that stayed, what was not freed by the tear-down either */
    int64_t never_bytes;
    uint32_t samples, rises, falls;
    double x, y, xx, xy, yy;
    int64_t first_least, last_least, quarter_least;
    bool has_quarter;
};

struct gs_growths {
    struct gs_builder *b;
    struct site_growth *sites;
    size_t sites_cap;
    int64_t *end_bytes; /* by series */
    size_t end_bytes_n;
    size_t from; /* first location of the process now replayed */
    int64_t end_ns, piece_ns;
    uint32_t piece; /* the one of the last event, which ends before next_ns */
    int64_t next_ns;
    struct gs_growth *list;
    size_t n, cap;
};

static void sample(struct site_growth *s, uint32_t piece, int64_t value)
{
    if (piece < WARM || piece < s->first) {
        return;
    }
    double x = piece, y = (double)value;
    if (s->samples == 0) {
        s->first_least = value;
    } else {
        s->rises += value > s->last_least;
        s->falls += value < s->last_least;
    }
    if (piece >= QUARTER && !s->has_quarter) {
        s->quarter_least = value;
        s->has_quarter = true;
    }
    s->last_least = value;
    s->samples++;
    s->x += x;
    s->y += y;
    s->xx += x * x;
    s->xy += x * y;
    s->yy += y * y;
}

/* The pieces that ended since the location was last touched. */
static inline void reach(struct site_growth *s, uint32_t piece)
{
    while (s->piece < piece) {
        sample(s, s->piece++, s->least);
        s->least = s->live;
    }
}

/* Events come in order of time. */
static inline uint32_t piece_of(struct gs_growths *g, int64_t ns)
{
    while (ns >= g->next_ns && g->piece < PIECES - 1) {
        g->piece++;
        g->next_ns = gs_add(g->next_ns, g->piece_ns);
    }
    return g->piece;
}

static void on_alloc(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct gs_growths *g = self;
    struct site_growth *s = GS_REACH(g->sites, life->location, g->sites_cap);
    uint32_t piece = piece_of(g, life->alloc_ns);
    if (!s->first) {
        s->first = piece + 1;
        s->piece = piece;
    }
    reach(s, piece);
    s->live += life->bytes;
    if (life->free_ns > g->end_ns) {
        s->first_ns = s->stayed ? s->first_ns : life->alloc_ns;
        s->last_ns = life->alloc_ns;
        s->stayed++;
        s->stayed_bytes += life->bytes;
        if (life->free_ns == GS_NEVER) {
            s->never++;
            s->never_bytes += life->bytes;
        }
    }
}

static void on_free(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct gs_growths *g = self;
    struct site_growth *s = &g->sites[life->location];
    if (life->free_ns > g->end_ns) {
        return;
    }
    reach(s, piece_of(g, life->free_ns));
    s->live -= life->bytes;
    s->least = s->live < s->least ? s->live : s->least;
}

static int64_t end_of(const struct gs_run *run, uint32_t process)
{
    size_t n, ooms_n;
    int64_t end = gs_run_processes(run, &n)[process].last_alloc_ns;
    const struct gs_oom *ooms = gs_run_ooms(run, &ooms_n);
    for (size_t i = ooms_n; i-- > 0;) {
        if (ooms[i].process == process && ooms[i].fatal) {
            return ooms[i].time_ns;
        }
    }
    return end;
}

static void on_process_start(void *self, uint32_t process)
{
    struct gs_growths *g = self;
    g->from = gs_run_locations(g->b->run);
    g->end_ns = end_of(g->b->run, process);
    g->piece_ns = g->end_ns / PIECES + 1;
    g->next_ns = g->piece_ns;
    g->piece = 0;
}

/* Qualified names end in these: `Module._apply`. */
static const char *const loading[] = {
    "_apply",           "load_state_dict", "_load_from_state_dict",
    "from_pretrained",  "_init_group",     "_init_state",
    "load_model",       "load_weights",    "_load_pretrained_model",
    "reset_parameters", "init_weights",
};

static bool is_loading(const struct gs_run *run, uint32_t stack)
{
    const struct gs_frame *frame;
    for (; (frame = gs_stack_frame(run, stack)) != NULL; stack = gs_stack_parent(run, stack)) {
        if (frame->kind != GS_FRAME_PYTHON || !frame->function) {
            continue;
        }
        const char *dot = strrchr(frame->function, '.'), *name = dot ? dot + 1 : frame->function;
        for (size_t i = 0; i < sizeof loading / sizeof *loading; i++) {
            if (strcmp(name, loading[i]) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* The straight line through the samples: its slope per piece and r². */
static double slope_of(const struct site_growth *s, double *fit)
{
    double n = s->samples;
    double sxx = s->xx - s->x * s->x / n, sxy = s->xy - s->x * s->y / n,
           syy = s->yy - s->y * s->y / n;
    if (sxx <= 0 || syy <= 0) {
        *fit = 0;
        return 0;
    }
    *fit = sxy * sxy / (sxx * syy);
    return sxy / sxx;
}

static bool grows(const struct site_growth *s, int64_t end_bytes, double *slope, double *fit)
{
    if (s->samples < MIN_SAMPLES || s->stayed < MIN_STAYED || s->rises < 3 ||
        s->falls * 10 > s->samples) {
        return false;
    }
    double gain = (double)s->last_least - (double)s->first_least;
    double late = (double)s->last_least - (double)s->quarter_least;
    *slope = slope_of(s, fit);
    return *slope > 0 && *fit >= min_fit && gain >= min_share * (double)end_bytes && gain > 0 &&
           s->has_quarter && late > 0 && late >= 0.1 * gain;
}

/* Under PyTorch the device level is its allocator's segments: that the cache grows is no fault of
 * the line that needed one more, and what grows in it is seen among the tensors. */
static bool is_segments(const struct gs_run *run, const struct gs_series *s)
{
    for (size_t i = 0; s->layer == GS_SERIES_DEVICE && i < gs_run_serieses(run); i++) {
        const struct gs_series *t = gs_run_series(run, (uint32_t)i);
        if (t->layer == GS_SERIES_TENSOR && t->process == s->process && t->device == s->device) {
            return true;
        }
    }
    return false;
}

static void judge(struct gs_growths *g, uint32_t location)
{
    struct gs_run *run = g->b->run;
    const struct gs_location *l = gs_run_location(run, location);
    const struct gs_series *series = gs_run_series(run, l->series);
    const struct site_growth *s = &g->sites[location];
    double slope, fit;
    if (!grows(s, g->end_bytes[l->series], &slope, &fit) || is_loading(run, l->stack) ||
        is_segments(run, series) || series->layer == GS_SERIES_SHARED) {
        return;
    }
    /* What lives a moment beyond the end, as temporaries of the last step do, is not part of a leak
     * that the tear-down left alone. */
    bool never = s->never >= MIN_STAYED;
    uint64_t steps = never ? s->never : s->stayed;
    int64_t bytes = never ? s->never_bytes : s->stayed_bytes;
    *GS_REACH(g->b->growing, location, g->b->growing_n) = 1;
    *GS_PUSH(g->list, g->n, g->cap) = (struct gs_growth){
        .process = series->process,
        .device = series->device,
        .layer = series->layer,
        .bytes = bytes,
        .bytes_per_step = (double)bytes / (double)steps,
        .steps = steps,
        .bytes_per_s = slope / ((double)g->piece_ns / 1e9),
        .fit = fit,
        .first_s = gs_seconds(s->first_ns),
        .last_s = gs_seconds(s->last_ns),
        .stack = {.n = l->stack}, /* the number; replaced in _finish */
    };
}

static void on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct gs_growths *g = self;
    (void)process;
    (void)end_ns;
    for (size_t i = g->from; i < gs_run_locations(g->b->run); i++) {
        uint32_t series = gs_run_location(g->b->run, (uint32_t)i)->series;
        *GS_REACH(g->end_bytes, series, g->end_bytes_n) += g->sites[i].live;
    }
    for (size_t i = g->from; i < gs_run_locations(g->b->run); i++) {
        if (g->sites[i].stayed >= MIN_STAYED) {
            reach(&g->sites[i], PIECES);
            judge(g, (uint32_t)i);
        }
    }
}

struct gs_growths *gs_growths_start(struct gs_builder *b, struct gs_observer *observer)
{
    struct gs_growths *g = gs_realloc(NULL, 1, sizeof *g);
    *g = (struct gs_growths){.b = b, .piece_ns = 1};
    *observer = (struct gs_observer){.self = g,
                                     .process_start = on_process_start,
                                     .alloc = on_alloc,
                                     .free = on_free,
                                     .process_end = on_process_end};
    return g;
}

static int faster(const void *a, const void *b)
{
    const struct gs_growth *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->stack.n < y->stack.n ? -1 : x->stack.n > y->stack.n;
}

void gs_growths_finish(struct gs_growths *g)
{
    struct gs_report *report = g->b->report;
    report->growth = gs_list(g->b, g->list, g->n, sizeof *g->list, faster, &report->growth_n,
                             &report->growth_total);
    for (size_t i = 0; i < report->growth_n; i++) {
        report->growth[i].stack = gs_trace_of(g->b, (uint32_t)report->growth[i].stack.n);
    }
    free(g->list);
    free(g->sites);
    free(g->end_bytes);
    free(g);
}
