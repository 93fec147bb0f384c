/* Call sites whose live bytes rise steadily over the run.
 *
 * The end is the OOM that ended the program (ending.c), else the last allocation. Memory that is freed later is freed
 * by the tear-down: a list that grew during the whole run is still a leak if Python empties it at exit. An allocation
 * that is live at the end has stayed.
 *
 * The run is cut into 64 pieces (32 to 64 up to its end, if allocations follow that) with equally many allocations (not
 * equally long: start-up takes long and allocates little). The figure that counts is the least that a location held in
 * each piece: the lower envelope, which activations that are freed within their step do not raise. If a piece is
 * shorter than two steps, neighbours are joined. A location grows when, from the first usual step (else after the first
 * tenth) or its own beginning on, that envelope
 *   - rises in at least 3 pieces and falls by at most a tenth,
 *   - is close to a straight line over the steps, else over the pieces (r² ≥ 0.8): one jump, however large, is not
 *     growth, and neither is a cache that fills ever more slowly,
 *   - still rises in the last quarter of its samples: by a tenth of the whole, or by that much for as many steps,
 *   - has not paused for longer at the end than twice its longest pause before, nor for a quarter of its pieces:
 *     otherwise it has levelled off,
 *   - is not a pool or a cache that was filled first: after the last allocation the program copied and waited less
 *     often than while it grew, or less than WITHOUT times per block that stayed,
 *   - gains at least half a percent of the memory that is live at the end, or would in a hundred thousand steps more,
 *     by at least 4 allocations that stayed, or by one that is appended to.
 * Loading weights looks the same while it lasts: locations below the functions in `loading`, in an optimizer's step, or
 * in the creation of a torch.nn module are left out, unless they occur at each step. One forward pass that runs out of
 * memory looks the same, too: a model's inside counts only if the model was called three times. Models that the program
 * adds to a list and calls one after the other are an ensemble: they, their gradients and optimizer states are needed.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/question/growth.h"
#include "analyzer/base/text.h"
#include "analyzer/site/holder.h"
#include "analyzer/run/settings.h"

enum { PIECES = 64, WARM = 7, MIN_SAMPLES = 8, MIN_STAYED = 4, MANY_STAYED = 10, MANY_STEPS = 20, FEW_STEPS = 3 };
enum { LAYERS = 64, WITHOUT = 4, MEMBERS = 3 /* of an ensemble, at least */, TENTH = 10, FAR = 100000 };
static const double min_fit = 0.8, even_fit = 0.97, min_share = 0.005;

struct site_growth { /* by location; members that every event uses come first */
    uint32_t piece;  /* the one to which `least` belongs */
    uint32_t first;  /* piece of the first allocation, plus 1; 0 none yet */
    int64_t live, least;
    int64_t *least_of;      /* by piece; NULL while it was 0 in all */
    uint64_t stayed, times; /* times: including those that were freed */
    int64_t stayed_bytes, first_ns, last_ns;
    int64_t latest_ns; /* of all that it made */
    uint64_t never;    /* of those that stayed: never freed, not even by the tear-down */
    int64_t never_bytes;
    bool once; /* in a model that was called once or twice: only its inside is known */
};

struct span { /* of a process */
    int64_t end_ns;
    bool oom;       /* the end is a fatal OOM */
    bool in_thread; /* … in a thread of Python's other than the main one */
    bool backward_known;
    int64_t backward_ns;        /* last_backward_of */
    int64_t ensemble;           /* bytes of the models of an ensemble; 0 none */
    uint32_t last;              /* the piece that contains the end */
    int64_t piece_ends[PIECES]; /* when the last event of each was */
};

struct question_growths {
    struct site_builder *b;
    struct site_growth *sites;
    size_t sites_cap;
    struct span *spans;
    size_t spans_cap;
    struct span *span; /* of the process now replayed */
    uint32_t process;
    bool lows;                        /* the recording has what was live before kept_from_ns */
    bool goes_on;                     /* it allocates after its end */
    size_t from;                      /* its first location */
    int64_t kept_from_ns;             /* from this time on all of its events exist */
    uint32_t kept_piece;              /* … which is in this piece */
    uint32_t early;                   /* the piece of the last event before that time */
    uint32_t piece;                   /* of the last event */
    uint64_t events, per_piece, next; /* allocations; the first one of the next piece */
    ARENA_ROWS(int64_t, end_bytes);   /* by series */
    struct question_grown *list;
    size_t n, cap;
};

static int64_t *new_pieces(void)
{
    int64_t *pieces = arena_realloc(NULL, PIECES, sizeof *pieces);
    return memset(pieces, 0, PIECES * sizeof *pieces);
}

static void keep_least(struct site_growth *s)
{
    if (s->least && !s->least_of) s->least_of = new_pieces();
    if (s->least_of) s->least_of[s->piece] = s->least;
}

/* Closes the pieces that ended since the location was last touched. */
static inline void reach_growth_piece(struct site_growth *s, uint32_t piece)
{
    while (s->piece < piece) {
        keep_least(s);
        s->piece++;
        s->least = s->live;
    }
}

/* Joins the 64 pieces in pairs, if all of them are full before the end. */
static void join_pieces(struct question_growths *g)
{
    for (size_t i = g->from; i < g->sites_cap; i++) {
        struct site_growth *s = &g->sites[i];
        if (!s->first) continue;
        reach_growth_piece(s, PIECES);
        for (uint32_t p = 0; s->least_of && p < PIECES; p += 2) {
            const int64_t *two = &s->least_of[p];
            s->least_of[p / 2] = two[0] < two[1] ? two[0] : two[1];
        }
        for (uint32_t p = PIECES / 2; s->least_of && p < PIECES; p++) s->least_of[p] = 0;
        s->piece = PIECES / 2;
        s->first = (s->first - 1) / 2 + 1;
    }
    for (uint32_t p = 0; p < PIECES / 2; p++) g->span->piece_ends[p] = g->span->piece_ends[2 * p + 1];
    g->piece = PIECES / 2 - 1;
    g->kept_piece /= 2;
    g->per_piece *= 2;
}

static void note_stayed(const struct question_growths *g, struct site_growth *s, const struct run_lifetime *life)
{
    if (life->free_ns <= g->span->end_ns || (g->goes_on && life->alloc_ns > g->span->end_ns)) return;
    s->first_ns = s->stayed ? s->first_ns : life->alloc_ns;
    s->last_ns = life->alloc_ns;
    s->stayed++;
    s->stayed_bytes += life->bytes;
    if (life->free_ns == RUN_NEVER) {
        s->never++;
        s->never_bytes += life->bytes;
    }
}

/* Others of that time were removed. What stayed has all of its rows; what was live beside it, add_removed_lows knows,
 * or it counts as live from the beginning. */
static void add_early(struct question_growths *g, struct site_growth *s, const struct run_lifetime *life)
{
    s->live += life->bytes;
    s->least = s->live;
    s->piece = g->kept_piece;
    if (!g->lows) {
        s->first = 1;
        s->piece = 0;
        return;
    }
    while (g->early < g->kept_piece && g->span->piece_ends[g->early] < life->alloc_ns) g->early++;
    s->first = s->first ? s->first : g->early + 1;
    s->times++;
    if (life->alloc_ns <= g->span->end_ns) g->span->last = g->early;
    note_stayed(g, s, life);
}

static void growth_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_growths *g = self;
    struct site_growth *s = SITE_REACH(g->sites, life->location, g->sites_cap);
    if (life->alloc_ns < g->kept_from_ns) {
        add_early(g, s, life);
        return;
    }
    if (g->events++ >= g->next) {
        if (g->piece == PIECES - 1 && g->goes_on && life->alloc_ns <= g->span->end_ns) join_pieces(g);
        g->piece += g->piece < PIECES - 1;
        g->next += g->per_piece;
    }
    g->span->piece_ends[g->piece] = life->alloc_ns;
    s->times++;
    s->latest_ns = life->alloc_ns;
    if (life->alloc_ns <= g->span->end_ns) g->span->last = g->piece;
    if (!s->first) {
        s->first = g->piece + 1;
        s->piece = g->piece;
    }
    if (s->piece < g->piece) reach_growth_piece(s, g->piece);
    s->live += life->bytes;
    note_stayed(g, s, life);
}

static void growth_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_growths *g = self;
    struct site_growth *s = &g->sites[life->location];
    if (life->free_ns > g->span->end_ns) return;
    if (life->free_ns < g->kept_from_ns) {
        s->live -= life->bytes;
        s->least = s->live;
        return;
    }
    if (s->piece < g->piece) reach_growth_piece(s, g->piece);
    s->live = arena_add_capped(s->live, -life->bytes);
    s->least = s->live < s->least ? s->live : s->least;
}

static int64_t growth_end_of(const struct run *run, uint32_t process, struct span *span)
{
    size_t ooms_n;
    const uint32_t failure = question_ending_failure(run, process);
    const struct run_oom *ooms = run_ooms(run, &ooms_n);
    span->oom = failure != RUN_NONE;
    span->in_thread = span->oom && run_stack_is_in(run, ooms[failure].stack, "threading", "_bootstrap");
    return span->oom ? ooms[failure].time_ns : run_process_at(run, process)->last_alloc_ns;
}

static void growth_on_process_start(void *self, uint32_t process)
{
    struct question_growths *g = self;
    const struct run_process *p = run_process_at(g->b->run, process);
    const uint64_t allocations = p->allocations + p->allocations_removed;
    g->process = process;
    g->kept_from_ns = p->kept_from_ns;
    g->lows = p->lows_are_known;
    g->span = SITE_REACH(g->spans, process, g->spans_cap);
    g->span->end_ns = growth_end_of(g->b->run, process, g->span);
    g->from = run_location_count(g->b->run);
    g->events = p->allocations_before;
    /* the number of allocations up to the end is not known in advance: pieces begin small and are joined */
    g->goes_on = g->span->oom && g->span->end_ns < p->last_alloc_ns;
    g->per_piece = allocations / PIECES / (g->goes_on ? PIECES : 1) + 1;
    while (g->events / g->per_piece >= PIECES) g->per_piece *= 2;
    g->piece = g->kept_piece = (uint32_t)(g->events / g->per_piece);
    g->next = g->per_piece * (g->piece + 1);
    g->early = 0;
    for (uint32_t i = 0; i < g->kept_piece; i++)
        g->span->piece_ends[i] = run_allocations_ns(g->b->run, process, (double)g->per_piece * (i + 1));
}

static uint32_t piece_at(const struct span *span, int64_t ns)
{
    uint32_t piece = 0;
    while (piece < span->last && span->piece_ends[piece] < ns) piece++;
    return piece;
}

/* A call path's pieces before the kept part, from its n entries. In the piece where that part begins, both count. */
static void fill_lows(const struct question_growths *g, struct site_growth *s, const struct run_removed_low *low,
                      size_t n)
{
    int64_t bytes = 0;
    size_t at = 0;
    for (uint32_t p = 0; p <= g->kept_piece; p++) {
        int64_t least = bytes;
        for (; at < n && low[at].first < (p + 1) * g->per_piece; at++) {
            bytes = low[at].bytes;
            least = bytes < least ? bytes : least;
        }
        if (p < g->kept_piece) {
            if (least && !s->least_of) s->least_of = new_pieces();
            if (least) s->least_of[p] = arena_add_capped(s->least_of[p], least);
        } else if (s->piece == p) {
            s->least = least < s->least ? least : s->least;
        } else if (s->least_of && least < s->least_of[p]) {
            s->least_of[p] = least;
        }
    }
}

static uint64_t path_key(uint32_t stack, enum run_series_layer layer, int device)
{
    return (uint64_t)layer << 40 | (uint64_t)(device + 1) << 32 | stack;
}

/* NULL: no row of that call path exists. */
static struct site_growth *site_of_path(struct question_growths *g, const struct map *index, uint32_t stack,
                                        enum run_series_layer layer, int device)
{
    const bool on_host = layer == RUN_SERIES_PINNED || layer == RUN_SERIES_HOST;
    const uint32_t location = map_get(index, path_key(stack, layer, on_host ? -1 : device));
    return location != MAP_NEW ? &g->sites[location] : NULL;
}

static void add_removed_lows(struct question_growths *g)
{
    const struct run *run = g->b->run;
    size_t n, removed_n;
    const struct run_removed_low *low = run_removed_lows(run, &n);
    const struct run_removed *removed = run_removed(run, &removed_n);
    struct map index = {0};
    for (size_t i = g->from; i < run_location_count(run) && i < g->sites_cap; i++) {
        const struct run_location *l = run_location(run, (uint32_t)i);
        const struct run_series *s = run_series(run, l->series);
        *map_at(&index, path_key(l->stack, s->layer, s->device)) = (uint32_t)i;
    }
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && low[end].process == low[i].process && low[end].stack == low[i].stack &&
                          low[end].layer == low[i].layer && low[end].device == low[i].device;)
            end++;
        struct site_growth *s =
            low[i].process == g->process ? site_of_path(g, &index, low[i].stack, low[i].layer, low[i].device) : NULL;
        if (s) fill_lows(g, s, &low[i], end - i);
    }
    EACH_IN (r, removed) {
        struct site_growth *s = r->process == g->process && r->what == GS_REMOVED_ALLOCATION
                                    ? site_of_path(g, &index, r->stack, run_removed_layer(r), r->device)
                                    : NULL;
        if (!s) continue;
        const uint32_t first = piece_at(g->span, r->first_ns) + 1;
        s->times += r->count;
        s->first = first < s->first ? first : s->first;
    }
    map_free(&index);
}

static void growth_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    enum { ROUNDS = 3 };
    struct question_growths *g = self;
    if (g->lows) add_removed_lows(g);
    for (size_t i = g->from; i < run_location_count(g->b->run) && i < g->sites_cap; i++) {
        g->sites[i].once =
            g->sites[i].stayed > 0 && step_module_calls(g->b, run_location(g->b->run, (uint32_t)i)->stack) < ROUNDS;
    }
}

/* Qualified names end in these: `Module._apply`. */
static const char *const loading[] = {
    "_apply",     "load_state_dict", "_load_from_state_dict",  "from_pretrained",  "_init_group",  "_init_state",
    "load_model", "load_weights",    "_load_pretrained_model", "reset_parameters", "init_weights",
};

static bool is_loading(const struct run *run, uint32_t stack)
{
    const bool closure = run_stack_is_in_closure(run, stack);
    RUN_EACH_FRAME (frame, run, stack) {
        if (frame->kind != GS_FRAME_PYTHON || !frame->function) continue;
        const char *name = text_last_part(frame->function);
        if (frame->file && ((strcmp(name, "__init__") == 0 && strstr(frame->file, "torch/nn/modules/")) ||
                            (strstr(frame->file, "torch/optim/optimizer.py") && !closure)))
            return true; /* the optimizer's first step makes its state, also for the program's own optimizers */
        if (TEXT_IS_ONE_OF(name, loading)) return true;
    }
    return false;
}

struct samples {
    double x[PIECES];
    int64_t y[PIECES];
    uint32_t n;
    unsigned rises;
    int64_t given_back;
    uint32_t last_rise, longest_pause; /* in samples; pauses before the last rise */
};

/* How many pieces make one sample: at least two steps. */
static uint32_t samples_width(const struct step_list *steps, bool in_thread, uint32_t from, uint32_t to)
{
    enum { THREADS = 4 }; /* whose steps run at the same time */
    uint32_t pieces = to - from + 1, most = pieces / MIN_SAMPLES;
    size_t n = steps ? steps->n : 2 * PIECES;
    uint32_t width = (uint32_t)((2 * (size_t)pieces + n - 1) / n);
    width *= in_thread ? THREADS : 1;
    width = width < most ? width : most;
    return width ? width : 1;
}

static void take_samples(const struct site_growth *s, const struct span *span, const struct step_list *steps,
                         uint32_t from, uint32_t to, struct samples *out)
{
    uint32_t width = samples_width(steps, span->in_thread, from, to);
    *out = (struct samples){0};
    for (uint32_t p = from; p <= to; p += width) {
        uint32_t end = p + width - 1 < to ? p + width - 1 : to;
        int64_t least = s->least_of[p];
        for (uint32_t q = p; q <= end; q++) least = s->least_of[q] < least ? s->least_of[q] : least;
        out->x[out->n] = steps ? (double)step_count_done(steps, span->piece_ends[end]) : (double)end;
        out->y[out->n++] = least;
    }
    for (uint32_t i = 1; i < out->n; i++) {
        int64_t change = out->y[i] - out->y[i - 1];
        out->given_back += change < 0 ? -change : 0;
        if (change > 0) {
            uint32_t pause = i - out->last_rise;
            out->longest_pause = pause > out->longest_pause ? pause : out->longest_pause;
            out->last_rise = i;
            out->rises++;
        }
    }
}

/* r² of the straight line through the samples; 0 if there is none. */
static double fit_growth(const struct samples *a)
{
    double n = a->n, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        double dx = a->x[i] - a->x[0], dy = (double)(a->y[i] - a->y[0]);
        x += dx;
        y += dy;
        xx += dx * dx;
        xy += dx * dy;
        yy += dy * dy;
    }
    double sxx = xx - x * x / n, sxy = xy - x * y / n, syy = yy - y * y / n;
    return sxx > 0 && syy > 0 && sxy > 0 ? sxy * sxy / (sxx * syy) : 0;
}

static bool samples_rise(const struct samples *a)
{
    int64_t gain = a->n ? a->y[a->n - 1] - a->y[0] : 0;
    if (a->n < MIN_SAMPLES || a->rises < 3 || gain <= 0 || a->given_back > gain / 10) return false;
    const uint32_t last = a->n - 1, quarter = last - a->n / 4;
    const int64_t late = a->y[last] - a->y[quarter];
    /* Steps that allocate ever more are few in the last samples: a tenth per quarter of the steps. */
    const double share = (a->x[last] - a->x[quarter]) / (a->x[last] - a->x[0]);
    return (late * 10 >= gain || (share > 0 && (double)late >= 0.4 * share * (double)gain)) &&
           last - a->last_rise <= 2 * a->longest_pause;
}

/* Compared with a line over the steps or, if it grows between them (not in an evaluation), over the pieces. */
static bool is_fit_straight(struct samples *a, double *fit)
{
    *fit = fit_growth(a);
    if (*fit < min_fit) {
        for (uint32_t i = 0; i < a->n; i++) a->x[i] = i;
        double even = fit_growth(a);
        *fit = even > *fit ? even : *fit;
    }
    return *fit >= min_fit;
}

/* After the last step, memory need not grow any more; in an evaluation it may. */
static bool is_growing(const struct site_growth *s, const struct span *span, const struct step_list *steps,
                       struct samples *a, double *fit)
{
    const size_t steady = !steps ? 0 : steps->removed ? steps->n / TENTH : steps->steady;
    const bool usual = steps && step_start_ns(steps, steady) < span->end_ns;
    uint32_t from = usual ? piece_at(span, step_start_ns(steps, steady)) : WARM;
    from = from < s->first - 1 ? s->first - 1 : from;
    int64_t ends[] = {span->end_ns, steps ? step_start_ns(steps, steps->n) : span->end_ns};
    for (size_t i = 0; i < 2; i++) {
        uint32_t to = piece_at(span, ends[i]);
        uint32_t last = piece_at(span, s->last_ns);
        if (from > to || (last < to && (to - last) * 4 > to - (s->first - 1))) continue;
        take_samples(s, span, steps, from, to, a);
        if (samples_rise(a) && is_fit_straight(a, fit)) return true;
    }
    return false;
}

/* From the step of the first one that stayed to the end; a step that ran out of memory counts as begun. */
static uint64_t growth_steps_of(const struct step_list *steps, const struct site_growth *s, const struct span *span)
{
    size_t first = step_count_done(steps, s->first_ns), end = step_count_done(steps, span->end_ns) + 1;
    end = end < steps->n || span->oom ? end : steps->n;
    const size_t n = end > first ? end - first : 1;
    /* The beginning is interpolated: if about one per step stayed, it was one. */
    const bool near = n <= s->stayed + s->stayed / 64 && s->stayed <= n + n / 64;
    return near && first >= STEP_REMOVED_SINGLE && first < steps->removed ? s->stayed : n;
}

/* Weights that are loaded once are loaded when the training begins. A new optimizer or model at each step is not
 * loading; nor is a new module in each iteration of a loop that is not the loading itself, of more iterations than a
 * model has layers. Experts that get their state when they are first used appear ever more rarely. */
static bool at_each_step(const struct run *run, const struct step_list *steps, const struct site_growth *s,
                         const struct span *span, const struct samples *a, double fit)
{
    /* or at every nth step, equally evenly */
    const bool even = a->longest_pause <= 2 || (a->rises >= MANY_STEPS && a->rises * a->longest_pause <= 2 * a->n);
    const bool loop =
        steps && steps->source == STEP_SOURCE_PERIOD && steps->n >= LAYERS && !is_loading(run, steps->stack);
    return steps && (steps->source == STEP_SOURCE_OPTIMIZER || loop) && even && fit >= even_fit &&
           growth_steps_of(steps, s, span) >= MANY_STEPS;
}

static const char allocator[] = "libc10_cuda";

/* Is PyTorch's allocator recognised by its library? It may be linked into another library, or belong to another
 * program. */
static bool calls_seen(const struct run *run, uint32_t series)
{
    for (size_t i = 0; i < run_location_count(run); i++) {
        const struct run_location *l = run_location(run, (uint32_t)i);
        if (l->series == series && run_is_called_by(run, l->stack, allocator) == RUN_YES) return true;
    }
    return false;
}

/* Under PyTorch the device level consists of its allocator's segments: a growing cache is not the fault of the line
 * that needed one more segment, and growth in it also shows in the tensors. Allocations by other code, such as an
 * extension, are visible only here. */
static bool is_segments(const struct run *run, const struct run_location *l)
{
    const struct run_series *s = run_series(run, l->series);
    return s->layer == RUN_SERIES_DEVICE &&
           run_find_series(run, s->process, s->device, RUN_SERIES_TENSOR) != RUN_NONE &&
           (run_is_called_by(run, l->stack, allocator) != RUN_NO || !calls_seen(run, l->series));
}

/* PyTorch's pinned memory is a cache, too: its blocks are recorded when they are made, never when they are returned to
 * it. It needs one more whenever copies lag further behind than before, ever more rarely and at no particular step; a
 * line that keeps its buffers needs one at each step, or at every nth. */
static bool is_host_cache(const struct run *run, const struct run_series *s, uint32_t stack, double fit, uint64_t n)
{
    bool pytorch =
        run_is_called_by(run, stack, "libtorch") == RUN_YES || run_is_called_by(run, stack, "libc10") == RUN_YES;
    return s->layer == RUN_SERIES_PINNED && pytorch && (fit < even_fit || n < MANY_STAYED);
}

/* At how few moments it grew, from its beginning on; 0 if they are more than a third of all, or of the steps. */
static unsigned jumps_of(const struct site_growth *s, uint32_t to, uint64_t steps)
{
    unsigned jumps = 0;
    int64_t before = 0;
    bool rising = false;
    for (uint32_t p = s->first - 1; p <= to; p++) {
        bool rises_now = s->least_of[p] > before;
        jumps += rises_now && !rising;
        rising = rises_now;
        before = s->least_of[p];
    }
    return 3 * jumps <= to - s->first + 2 && 3 * jumps <= steps ? jumps : 0;
}

/* torch.cat([all, new]) in a loop: one block, allocated again and larger each time. */
static bool appends_to_list(struct run *run, uint32_t stack)
{
    RUN_EACH_FRAME (frame, run, stack) {
        if (frame->kind == GS_FRAME_PYTHON) return false;
        const char *slash = frame->module ? strrchr(frame->module, '/') : NULL;
        if (slash && strncmp(slash, "/libtorch", 9) == 0) {
            frame = run_frame_named(run, stack);
            if (run_frame_calling(frame, NULL, "cat_out") || run_frame_calling(frame, NULL, "::cat")) return true;
        }
    }
    return false;
}

static bool makes_model(const struct run *run, uint32_t stack)
{
    return run_stack_is_in(run, stack, "/torch/nn/modules/module.py", "_apply") ||
           run_stack_is_in(run, stack, "/torch/nn/modules/", "__init__") ||
           run_stack_is_in(run, stack, "/copy.py", "deepcopy");
}

/* Of each process, only the holder of the largest models is examined. */
static void find_ensembles(struct question_growths *g, size_t locations)
{
    struct run *run = g->b->run;
    for (uint32_t process = 0; process < g->spans_cap; process++) {
        const struct run_location *most = NULL;
        int64_t bytes = 0, most_bytes = 0;
        for (size_t i = 0; i < locations && i < g->sites_cap; i++) {
            const struct run_location *l = run_location(run, (uint32_t)i);
            const struct site_growth *s = &g->sites[i];
            if (s->stayed < MEMBERS || run_series(run, l->series)->process != process || !makes_model(run, l->stack))
                continue;
            bytes = arena_add_capped(bytes, s->stayed_bytes);
            most = s->stayed_bytes > most_bytes ? l : most;
            most_bytes = s->stayed_bytes > most_bytes ? s->stayed_bytes : most_bytes;
        }
        struct result_holder *holders;
        const size_t n = most ? site_find_holders(g->b, most->stack, false, &holders) : 0;
        for (size_t i = 0; i < n; i++)
            if (site_is_ensemble(g->b, &holders[i]) && !site_is_in_module(g->b, &holders[i]))
                g->spans[process].ensemble = bytes;
    }
}

/* A member of an ensemble, a gradient or an optimizer's state of one. */
static bool is_of_ensemble(const struct question_growths *g, const struct run_location *l, const struct site_growth *s)
{
    const struct run *run = g->b->run;
    return s->stayed_bytes <= g->spans[run_series(run, l->series)->process].ensemble &&
           (makes_model(run, l->stack) || run_stack_python(run, l->stack) == RUN_NONE ||
            run_stack_is_in(run, l->stack, "/torch/autograd/__init__.py", "backward") ||
            run_stack_is_in(run, l->stack, "/torch/optim/", NULL));
}

/* A set of buffers that a program without Python makes, uses and frees itself: without steps or a failure nothing shows
 * that it would have made more. */
static bool is_freed_set(const struct question_growths *g, const struct site_growth *s, uint32_t process,
                         const struct step_list *steps)
{
    return !steps && !s->never && !g->spans[process].oom && !g->b->report->imported &&
           !run_process_at(g->b->run, process)->python_version;
}

/* Its blocks stay, and the process went on to copy and to wait, without any allocation. */
static bool was_filled_first(const struct question_growths *g, const struct site_growth *s, uint32_t process)
{
    const struct span *span = &g->spans[process];
    if (span->oom || g->b->report->imported || s->stayed < s->times / 2) return false;
    const uint64_t after = run_calls_between(g->b->run, process, span->end_ns + 1, RUN_NEVER);
    return after >= WITHOUT * s->stayed &&
           after >= run_calls_between(g->b->run, process, s->first_ns, span->end_ns + 1);
}

/* The blocks that stay, and their bytes. */
static void count_stayed(const struct site_growth *s, const struct samples *a, bool appended, struct result_growth *e)
{
    /* Memory that is freed shortly after the end, such as temporaries of the last step, is not part of a leak that the
     * tear-down did not free. */
    const bool never = s->never >= MIN_STAYED && s->never_bytes >= s->stayed_bytes / 2;
    const int64_t last = a->y[a->n - 1];
    e->count = never ? s->never : s->stayed;
    e->bytes = never ? s->never_bytes : s->stayed_bytes;
    if (!appended || last >= e->bytes) return;
    /* before the last one its predecessor is not freed yet */
    e->count = (e->count * (uint64_t)last + (uint64_t)e->bytes / 2) / (uint64_t)e->bytes;
    e->count = e->count ? e->count : 1;
    e->bytes = last;
}

/* False: without steps, these blocks do not count as growth. */
static bool count_growth_steps(const struct question_growths *g, const struct site_growth *s, uint32_t stack,
                               bool appended, const struct span *span, const struct step_list *steps,
                               struct result_growth *e)
{
    enum { AGAIN = 8 };
    uint64_t n = steps ? growth_steps_of(steps, s, span) : 0;
    /* Only its duration shows whether the last iteration of a loop was complete. If one allocation per iteration
     * stayed, their number shows it; one fewer can also be an iteration that keeps nothing, unless memory ran out. */
    const bool one_more = e->count == n + 1, one_fewer = span->oom && n == e->count + 1;
    if (n && steps->source == STEP_SOURCE_PERIOD && (one_more || one_fewer)) n = e->count;
    e->by_steps = n >= FEW_STEPS; /* not in an evaluation after them */
    e->steps = e->by_steps ? n : e->count;
    if (!e->by_steps && appended && s->times >= e->count * AGAIN) { /* each layer's buffer is made anew each time */
        e->steps = s->times / e->count;
        return true;
    }
    /* If steps are unknown, each allocation counts as one: not those of many lines, of the layers of a pass, or of a
     * pass that makes the gradients of all parameters. */
    return e->by_steps || (run_stack_is_located(g->b->run, stack) && !site_is_in_backward(g->b->run, stack) &&
                           (e->count >= LAYERS || step_module_calls(g->b, stack) == UINT64_MAX));
}

/* When the last of many backward passes allocated; 0 none. */
static int64_t last_backward_of(struct question_growths *g, uint32_t process)
{
    struct span *span = &g->spans[process];
    struct run *run = g->b->run;
    for (size_t i = 0; !span->backward_known && i < run_location_count(run) && i < g->sites_cap; i++) {
        const struct run_location *l = run_location(run, (uint32_t)i);
        const struct run_series *s = run_series(run, l->series);
        if (s->process == process && s->layer == RUN_SERIES_TENSOR && g->sites[i].times >= LAYERS &&
            g->sites[i].latest_ns > span->backward_ns && site_is_in_backward(run, l->stack))
            span->backward_ns = g->sites[i].latest_ns;
    }
    span->backward_known = true;
    return span->backward_ns;
}

/* If a Python program's Python frames were not recorded, call paths show operations and not lines: all layers of a pass
 * share one, and it rises while the pass runs. Not if backward passes, which end a pass, ran meanwhile; but what it
 * copies may be models. */
static bool is_pass_of_unknown_line(struct question_growths *g, const struct run_location *l,
                                    const struct site_growth *s)
{
    struct run *run = g->b->run;
    const struct run_series *series = run_series(run, l->series);
    return series->layer == RUN_SERIES_TENSOR && run_stack_python(run, l->stack) == RUN_NONE &&
           RUN_ANY_FRAME(f, run, l->stack, run_path_has(f->module, "/libtorch_python")) &&
           !site_is_in_backward(run, l->stack) &&
           (run_stack_calls(run, l->stack, "_to_copy") ||
            last_backward_of(g, series->process) < s->first_ns + (s->last_ns - s->first_ns) / 2);
}

static void judge_location_growth(struct question_growths *g, uint32_t location)
{
    struct run *run = g->b->run;
    const struct run_location *l = run_location(run, location);
    const struct run_series *series = run_series(run, l->series);
    const struct span *span = &g->spans[series->process];
    const struct step_list *all = step_list_of(g->b, series->process);
    /* With what was live from the start on, steps from the start on */
    const struct step_list *steps =
        all && all->removed_unknown && run_process_at(run, series->process)->lows_are_known ? NULL : all;
    struct site_growth whole = g->sites[location], *s = &whole;
    struct samples a;
    if (s->stayed < MIN_STAYED && (!s->least_of || !appends_to_list(run, l->stack))) return;
    double fit;
    if (!s->least_of || s->once || is_freed_set(g, s, series->process, steps) ||
        !is_growing(s, span, steps, &a, &fit) || was_filled_first(g, s, series->process) ||
        (is_loading(run, l->stack) && !at_each_step(run, steps, s, span, &a, fit)) || is_segments(run, l) ||
        is_pass_of_unknown_line(g, l, s) || series->layer == RUN_SERIES_SHARED || is_of_ensemble(g, l, s))
        return;
    const bool appended = appends_to_list(run, l->stack);
    if (appended) /* its earlier, smaller versions are freed */
        s->first_ns = span->piece_ends[s->first - 1];
    struct result_growth e = {.process = series->process, .device = series->device, .layer = series->layer, .fit = fit};
    count_stayed(s, &a, appended, &e);
    if (!count_growth_steps(g, s, l->stack, appended, span, steps, &e)) return;
    e.bytes_per_step = (double)e.bytes / (double)e.steps;
    const double gain = (double)(a.y[a.n - 1] - a.y[0]), end_bytes = (double)g->end_bytes[l->series];
    const bool many = (appended ? e.steps : e.count) >= MANY_STAYED;
    const bool far = e.by_steps && many && e.bytes_per_step * FAR >= min_share * end_bytes;
    if ((gain < min_share * end_bytes && !far) || is_host_cache(run, series, l->stack, fit, e.steps)) return;
    const double seconds = site_seconds(span->end_ns) - site_seconds(s->first_ns);
    e.jumps = a.longest_pause > 2 ? jumps_of(s, span->last, e.steps) : 0;
    e.bytes_per_s = seconds > 0 ? (double)e.bytes / seconds : NAN;
    e.first_s = site_seconds(s->first_ns);
    e.last_s = site_seconds(s->last_ns);
    *SITE_REACH(g->b->growing, location, g->b->growing_n) = SITE_GROWING;
    ARENA_APPEND_TO(g->list, g->n, g->cap, .stack = l->stack, .first_ns = s->first_ns, .last_ns = s->last_ns,
                    .entry = e);
}

/* The same statement, called through another line that calls the same function of the program: a training function that
 * is called again. */
static bool is_called_elsewhere(const struct run *run, uint32_t a, uint32_t b)
{
    bool own = false;
    const struct run_frame *x = run_stack_frame(run, a), *y = run_stack_frame(run, b);
    while (a != b && x && x == y) {
        own = x->kind == GS_FRAME_PYTHON && !site_is_library(x);
        a = run_stack_parent(run, a);
        b = run_stack_parent(run, b);
        x = run_stack_frame(run, a);
        y = run_stack_frame(run, b);
    }
    return own && a != b && x && y && x->kind == GS_FRAME_PYTHON && y->kind == GS_FRAME_PYTHON && !site_is_library(x) &&
           !site_is_library(y);
}

static bool are_blocks_alike(const struct site_growth *s, const struct result_growth *e)
{
    static const double margin = 0.02;
    const double mean = (double)s->stayed_bytes / (double)s->stayed, expected = (double)e->bytes / (double)e->count;
    return fabs(mean - expected) <= margin * expected;
}

/* What an earlier or later call of the same function left belongs to the growth. By itself it is none: it ended long
 * before the end, or has just begun. */
static void add_other_call(struct question_growths *g, uint32_t location, struct question_grown *grown)
{
    const struct site_growth *s = &g->sites[location];
    const struct step_list *steps = step_list_of(g->b, grown->entry.process);
    struct result_growth *e = &grown->entry;
    const uint64_t spans = steps ? step_count_done(steps, s->last_ns) - step_count_done(steps, s->first_ns) + 1 : 0;
    e->bytes = arena_add_capped(e->bytes, s->stayed_bytes);
    e->count += s->stayed;
    e->steps += e->by_steps ? spans : s->stayed;
    e->bytes_per_step = (double)e->bytes / (double)e->steps;
    e->first_s = fmin(e->first_s, site_seconds(s->first_ns));
    grown->first_ns = s->first_ns < grown->first_ns ? s->first_ns : grown->first_ns;
    *SITE_REACH(g->b->growing, location, g->b->growing_n) = SITE_GROWING_OTHER_CALL;
}

static void judge_other_call(struct question_growths *g, uint32_t location, size_t grown_n)
{
    const struct site_growth *s = &g->sites[location];
    const struct run_location *l = run_location(g->b->run, location);
    const struct run_series *series = run_series(g->b->run, l->series);
    if (s->stayed < MIN_STAYED || s->stayed < s->times / 2 || is_loading(g->b->run, l->stack)) return;
    for (size_t i = 0; i < grown_n; i++) {
        const struct result_growth *e = &g->list[i].entry;
        if (e->process != series->process || e->layer != series->layer || e->device != series->device ||
            !are_blocks_alike(s, e) || !is_called_elsewhere(g->b->run, g->list[i].stack, l->stack))
            continue;
        add_other_call(g, location, &g->list[i]);
        return;
    }
}

struct question_growths *question_growths_start(struct site_builder *b, struct run_observer *observer)
{
    struct question_growths *g = ARENA_NEW(struct question_growths, .b = b);
    *observer = (struct run_observer){.self = g,
                                      .beside = true,
                                      .process_start = growth_on_process_start,
                                      .alloc = growth_on_alloc,
                                      .free = growth_on_free,
                                      .process_end = growth_on_process_end};
    return g;
}

void question_growths_finish(struct question_growths *g)
{
    size_t locations = run_location_count(g->b->run);
    for (size_t i = 0; i < locations && i < g->sites_cap; i++) {
        uint32_t series = run_location(g->b->run, (uint32_t)i)->series;
        *SITE_REACH(g->end_bytes, series, g->end_bytes_n) += g->sites[i].live;
    }
    find_ensembles(g, locations);
    for (size_t i = 0; i < locations && i < g->sites_cap; i++) {
        if (g->sites[i].stayed) {
            reach_growth_piece(&g->sites[i], PIECES);
            judge_location_growth(g, (uint32_t)i);
        }
        free(g->sites[i].least_of);
    }
    const size_t grown_n = g->n;
    for (size_t i = 0; i < locations && i < g->sites_cap && grown_n; i++)
        if (i >= g->b->growing_n || !g->b->growing[i]) judge_other_call(g, (uint32_t)i, grown_n);
    question_growth_list(g->b, g->list, g->n);
    ARENA_RELEASE(g->list, g->sites, g->spans, g->end_bytes, g);
}
