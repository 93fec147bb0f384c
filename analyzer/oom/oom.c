/* Each OOM of the run: the failed calls that belong to it (oom_group.c), and the memory that was live at that moment.
 * A request that CUDA first refused and then served is a retry. Each retry counts, as in PyTorch's num_alloc_retries.
 */
#include "analyzer/oom/oom_failed.h"
#include "analyzer/oom/oom_notebook.h"
#include "analyzer/oom/oom_graph.h"
#include "analyzer/oom/oom_group.h"
#include "analyzer/oom/oom_history.h"
#include "analyzer/oom/oom_layout.h"
#include "analyzer/oom/oom_retries.h"
#include "analyzer/oom/oom_trials.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/allocator/allocator.h"
#include "analyzer/site/source_context.h"
#include "analyzer/site/owner.h"
#include "analyzer/base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CAPTURES = 64, LAYOUTS = 4 }; /* groups for which live memory is kept, and the layout: fatal ones first */

struct capture {
    size_t group;
    int64_t reserved;
    uint32_t series;         /* RUN_NONE: nothing was ever live there */
    int64_t allocated_bytes; /* over the whole run until then */
    uint64_t allocations;    /* likewise */
    ARENA_LIST(struct oom_live, live);
    ARENA_ROWS(struct result_by_owner, by_owner);
    struct oom_window window; /* of the pass that failed here */
    struct oom_facts facts;   /* those that the replay shows at that moment */
};

struct come { /* by stack of the innermost Python frame: how often it allocated, and when last */
    uint32_t times;
    bool examined, in_pass, lazy;
    bool enters; /* data is copied to the device there */
    int64_t last_ns;
};

struct oom_failures {
    struct site_builder *b;
    uint32_t *come_of; /* by location: its line in `come`, plus 1 */
    size_t come_of_cap;
    struct oom_history *history; /* by location */
    size_t history_cap;
    struct oom_course *courses; /* by series */
    size_t courses_cap;
    struct come *come;
    size_t come_cap;
    uint32_t last_line; /* the one that allocated last, plus 1 */
    ARENA_ROWS(const struct run_oom, rows);
    ARENA_ROWS(struct oom_group, groups);
    uint32_t *group_of; /* by row: the group that it ends and that needs a capture, else RUN_NONE */
    struct capture captures[CAPTURES];
    size_t captures_n;
    struct oom_passes passes;
    struct oom_trials trials, optimizers;
    struct capture *latest; /* of the process now replayed, except retries; NULL none yet */
    int64_t reserved[128];  /* by device, of the process now replayed */
    int64_t kept_from_ns;   /* likewise: from this time on all of its events exist */
};

/* Of the last process that failed: the failure that ended it; groups_n: none did. */
static size_t ending_group(const struct oom_failures *o)
{
    const uint32_t row =
        o->groups_n ? question_ending_failure(o->b->run, o->rows[o->groups[o->groups_n - 1].last].process) : RUN_NONE;
    size_t i = 0;
    while (i < o->groups_n && (row < o->groups[i].first || row > o->groups[i].last ||
                               o->rows[o->groups[i].last].thread != o->rows[row].thread))
        i++;
    return i;
}

static void choose_capture(struct oom_failures *o, size_t group)
{
    if (group >= o->groups_n || o->captures_n >= CAPTURES || o->groups[group].chosen) return;
    o->groups[group].chosen = true;
    o->captures[o->captures_n].group = group;
    /* until the replay reaches it, which may never happen in a damaged recording */
    o->captures[o->captures_n].series = RUN_NONE;
    o->group_of[o->groups[group].last] = (uint32_t)o->captures_n++;
}

/* The last ones matter most: they ended the run. If none did, views lead with the first. What the first passes that
 * failed allocated may still be live in the later ones. */
static void choose_captures(struct oom_failures *o)
{
    enum { FIRST = 16 };
    size_t first = 0;
    choose_capture(o, ending_group(o));
    choose_capture(o, 0);
    for (size_t i = 0; i < o->groups_n && first < FIRST; i++) {
        if (!o->groups[i].fatal && !o->groups[i].tensor_failed) continue; /* PyTorch's second attempt succeeded */
        choose_capture(o, i);
        first++;
    }
    for (int fatal = 1; fatal >= 0; fatal--)
        for (size_t i = o->groups_n; i-- > 0;)
            if (o->groups[i].fatal == (bool)fatal) choose_capture(o, i);
}

struct span { /* of the live blocks of a location: the first and the last allocation, the sizes of all but the last */
    int64_t first_ns, last_ns, newest_ns, newest, least, most;
    uint64_t sizes; /* different ones */
    double ranks;   /* their sum */
    double mean;    /* of them, once all are known */
    uint64_t late;  /* blocks of that rank or a later one */
};

struct ranges {
    int device;
    ARENA_ROWS(const struct oom_history, history); /* by location */
    struct span *spans;                            /* by location */
    size_t spans_cap;
    struct allocator_range *segments, *blocks;
    size_t segments_n, segments_cap, blocks_n, blocks_cap;
    int64_t largest;
    uint32_t largest_stack;
    int64_t rounding; /* as in oom_facts */
    struct map index; /* location, space → taken */
    struct map sizes; /* location, size → 0 */
    ARENA_LIST(struct oom_taken, taken);
};

static void take_range(struct ranges *r, const struct run_lifetime *life)
{
    struct oom_taken *t =
        MAP_ROW_IN(&r->index, (uint64_t)life->location << 8 | life->space, r->taken,
                   (struct oom_taken){.location = life->location, .stack = life->stack, .space = life->space});
    t->bytes = arena_add_capped(t->bytes, life->bytes);
    t->count++;
}

enum { GRAIN = 512 }; /* PyTorch's allocator rounds sizes to it */
static void gather_ranges(void *self, const struct run_lifetime *life)
{
    struct ranges *r = self;
    struct span *span = SITE_REACH(r->spans, life->location, r->spans_cap);
    span->first_ns = span->last_ns && span->first_ns < life->alloc_ns ? span->first_ns : life->alloc_ns;
    span->last_ns = life->alloc_ns > span->last_ns ? life->alloc_ns : span->last_ns;
    span->ranks += life->location < r->history_n ? oom_history_rank(&r->history[life->location], life->alloc_ns) : 0;
    const bool newest = life->alloc_ns >= span->newest_ns; /* it may be of a pass that has not ended */
    const int64_t older = newest ? span->newest : life->bytes;
    if (newest) {
        span->newest_ns = life->alloc_ns;
        span->newest = life->bytes;
    }
    span->least = older && (!span->most || older < span->least) ? older : span->least;
    span->most = older > span->most ? older : span->most;
    uint32_t *size = map_at(&r->sizes, (uint64_t)life->location << 32 | (uint32_t)(life->bytes / GRAIN));
    span->sizes += *size == MAP_NEW;
    *size = 0;
    bool device = life->layer == GS_LAYER_DEVICE && life->space != GS_SPACE_PINNED && life->space != GS_SPACE_SHARED;
    if (life->device != r->device || life->layer > GS_LAYER_TENSOR || (!device && life->layer == GS_LAYER_DEVICE))
        return;
    struct allocator_range range = {life->address, life->bytes};
    if (device) {
        take_range(r, life);
        if (life->space != GS_SPACE_VMM) /* its address is a handle */
            *ARENA_ADD(r->segments) = range;
        if (life->bytes > r->largest) {
            r->largest = life->bytes;
            r->largest_stack = life->stack;
        }
    } else {
        const bool known = r->rounding != RUN_UNKNOWN && run_requested(life) != RUN_UNKNOWN;
        r->rounding = known ? arena_add_capped(r->rounding, life->bytes - run_requested(life)) : RUN_UNKNOWN;
        *ARENA_ADD(r->blocks) = range;
    }
}

static void count_late_blocks(void *self, const struct run_lifetime *life)
{
    struct ranges *r = self;
    if (life->location >= r->history_n) return;
    struct span *span = SITE_REACH(r->spans, life->location, r->spans_cap);
    span->late += oom_history_rank(&r->history[life->location], life->alloc_ns) >= span->mean;
}

SORT_ORDER(order_ranges_by_address, struct allocator_range, SORT_UP(x->address, y->address))

/* Physical memory counts at the address where it was mapped. Adjacent mappings are one segment: an expandable segment's
 * blocks extend over several pieces. */
static void gather_mapped_ranges(const struct run *run, const struct run_oom *oom, struct ranges *r)
{
    size_t n, first = r->segments_n;
    const struct run_mapping *m = run_mappings(run, &n);
    for (size_t i = 0; i < n; i++)
        if (m[i].process == oom->process && m[i].device == r->device && m[i].map_ns <= oom->time_ns &&
            m[i].unmap_ns > oom->time_ns)
            *ARENA_ADD(r->segments) = (struct allocator_range){m[i].address, m[i].bytes};
    if (r->segments_n - first < 2) return;
    qsort(r->segments + first, r->segments_n - first, sizeof *r->segments, order_ranges_by_address);
    size_t last = first;
    for (size_t i = first + 1; i < r->segments_n; i++) {
        struct allocator_range *to = &r->segments[last];
        if (to->address + (uint64_t)to->bytes == r->segments[i].address)
            to->bytes = arena_add_capped(to->bytes, r->segments[i].bytes);
        else
            r->segments[++last] = r->segments[i];
    }
    r->segments_n = last + 1;
}

/* Of the call paths in passes, the one that allocated last; NULL none. */
static const struct oom_history *latest_pass(struct oom_failures *o)
{
    const struct oom_history *latest = NULL;
    for (size_t i = 0; i < o->history_cap && i < o->come_of_cap; i++) {
        const struct oom_history *h = &o->history[i];
        if (h->n && o->come_of[i] && o->come[o->come_of[i] - 1].in_pass &&
            (!latest || h->ns[h->n - 1] > latest->ns[latest->n - 1]))
            latest = h;
    }
    return latest;
}

static void capture_map(struct oom_failures *o, struct capture *c, const struct run_oom *oom)
{
    struct ranges r = {
        .device = oom->device, .history = o->history, .history_n = o->history_cap, .largest_stack = RUN_NONE};
    run_each_live(o->b->run, gather_ranges, &r);
    gather_mapped_ranges(o->b->run, oom, &r);
    c->facts.largest = r.largest;
    c->facts.largest_stack = r.largest_stack;
    c->facts.rounding = r.blocks_n ? r.rounding : RUN_UNKNOWN;
    if (r.blocks_n) c->facts.map = allocator_heap_map(r.segments, r.segments_n, r.blocks, r.blocks_n, c->reserved);
    const struct oom_history *pass = latest_pass(o);
    for (size_t i = 0; i < c->live_n; i++) {
        struct span *span = SITE_REACH(r.spans, c->live[i].location, r.spans_cap);
        span->mean = span->ranks / (double)c->live[i].count;
    }
    run_each_live(o->b->run, count_late_blocks, &r);
    for (size_t i = 0; i < c->live_n; i++) {
        const struct span *span = SITE_REACH(r.spans, c->live[i].location, r.spans_cap);
        c->live[i].first_ns = span->first_ns;
        c->live[i].last_ns = span->last_ns;
        const struct oom_history *history = SITE_REACH(o->history, c->live[i].location, o->history_cap);
        c->live[i].first_rank = oom_history_rank(history, span->first_ns);
        c->live[i].last_rank = oom_history_rank(history, span->last_ns);
        c->live[i].mean_rank = span->mean;
        c->live[i].late = span->late;
        c->live[i].middle_ns = oom_history_time(history, c->live[i].mean_rank);
        c->live[i].least = span->least;
        c->live[i].most = span->most;
        c->live[i].sizes = span->sizes;
        if (pass)
            c->live[i].passes =
                (double)pass->times * (oom_history_rank(pass, span->last_ns) - oom_history_rank(pass, span->first_ns));
    }
    c->facts.taken_n = r.taken_n;
    struct oom_taken *taken = arena_alloc(o->b->arena, r.taken_n * sizeof *taken);
    if (r.taken_n) memcpy(taken, r.taken, r.taken_n * sizeof *taken);
    c->facts.taken = taken;
    MAP_RELEASE(&r.index, &r.sizes);
    ARENA_RELEASE(r.segments, r.blocks, r.taken, r.spans);
}

static void capture_live(struct oom_failures *o, struct capture *c)
{
    const struct run *run = o->b->run;
    for (size_t i = 0; i < run_location_count(run); i++) {
        const struct run_location *l = run_location(run, (uint32_t)i);
        if (l->series == c->series && l->live_count) {
            struct oom_live *live = ARENA_ADD(c->live);
            *live = (struct oom_live){.location = (uint32_t)i, .bytes = l->live_bytes, .count = l->live_count};
            live->times = SITE_REACH(o->history, i, o->history_cap)->times;
            live->seen = o->history[i].seen;
            live->turns = o->history[i].turns;
            live->made = i < o->passes.made_cap ? o->passes.made[i] : 0;
        }
    }
}

static void capture_passes(struct oom_failures *o, struct capture *c, const struct run_oom *oom)
{
    const bool same = o->latest && oom_after_same_thread(o->b->run, &o->latest->facts.after, oom);
    const struct capture *latest = same ? o->latest : NULL;
    c->facts.backward_ns = o->passes.backward_ns;
    c->facts.grad_ns = o->passes.grad_ns;
    /* the pass began after the last backward pass, and after its input was made */
    const int64_t ended = oom_passes_ended(&o->passes, o->b->run, oom->stack);
    c->window = (struct oom_window){.from_ns = ended == RUN_UNKNOWN ? -1 : ended, .to_ns = oom->time_ns};
    if (c->facts.entered_ns != RUN_UNKNOWN && c->facts.entered_ns > c->window.from_ns)
        c->window.from_ns = c->facts.entered_ns;
    if (latest) {
        const bool same_pass = oom_convolution_went_on(o->b->run, &latest->facts.after, oom);
        c->window.previous = same_pass ? latest->window.previous : &latest->window;
    }
    if (c->window.previous && c->window.previous->to_ns > c->window.from_ns)
        c->window.from_ns = c->window.previous->to_ns;
    c->facts.failed_pass = oom_failed_held(o->b->run, c->window.previous, oom->device);
    c->facts.trials = oom_trials_held(&o->trials, o->b->run, oom->device);
    c->facts.optimizers = oom_optimizers_held(&o->optimizers, o->b->run, oom->device,
                                              oom_trials_models(&o->trials, o->b->run, oom->device));
    for (size_t i = 0; i < c->live_n; i++) {
        const uint32_t location = c->live[i].location;
        c->live[i].freed_in_backward = *SITE_REACH(o->passes.freed, location, o->passes.freed_cap) > 0;
        c->live[i].silent_ns = *SITE_REACH(o->passes.silent_ns, location, o->passes.silent_cap);
    }
}

/* The innermost line of Python; of a copy of nested objects the call, which allocates by several lines in turn. */
static uint32_t turning_line(const struct run *run, uint32_t stack)
{
    uint32_t line = run_stack_python(run, stack);
    for (uint32_t at = line; at != RUN_NONE; at = run_stack_parent(run, at)) {
        const struct run_frame *frame = run_stack_frame(run, at);
        if (frame->kind == GS_FRAME_PYTHON && frame->function && strcmp(frame->function, "deepcopy") == 0) line = at;
    }
    return line;
}

/* How often the lines occur: only if it will be needed, after a failure. */
static void failures_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct oom_failures *o = self;
    uint32_t *at = SITE_REACH(o->come_of, life->location, o->come_of_cap);
    if (!*at) {
        uint32_t line = turning_line(o->b->run, life->stack);
        *at = (line != RUN_NONE ? line : (uint32_t)run_stack_count(o->b->run)) + 1;
    }
    struct come *c = SITE_REACH(o->come, *at - 1, o->come_cap);
    struct oom_history *history = SITE_REACH(o->history, life->location, o->history_cap);
    oom_history_add(history, life->alloc_ns);
    if (life->alloc_ns >= o->kept_from_ns) { /* others of the time before were removed */
        history->seen++;
        history->turns += o->last_line != *at;
        oom_course_add(SITE_REACH(o->courses, run_location(o->b->run, life->location)->series, o->courses_cap),
                       life->alloc_ns, life->bytes, series->allocated_bytes, series->freed_bytes);
    }
    if (o->latest) oom_after_add_alloc(&o->latest->facts.after, life, *at - 1);
    const bool backward = oom_passes_add_alloc(&o->passes, o->b->run, life);
    oom_trials_add_alloc(&o->trials, o->b->run, life, backward);
    oom_trials_add_alloc(&o->optimizers, o->b->run, life, backward);
    c->times += o->last_line != *at; /* allocations of a line without another line in between count once */
    o->last_line = *at;
    c->last_ns = life->alloc_ns;
}

static void failures_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct oom_failures *o = self;
    oom_passes_add_free(&o->passes, o->b->run, life);
}

/* Layers that a script calls one by one occur as often as a model has layers; a line where data enters is more likely a
 * loop's. */
enum { ENTERED = 3, AGAIN = 8, LAYERS = 64 };

static void find_inputs(struct oom_failures *o)
{
    for (size_t i = 0; i < run_location_count(o->b->run) && i < o->come_of_cap; i++) {
        struct come *line = o->come_of[i] ? &o->come[o->come_of[i] - 1] : NULL;
        if (line && line->times >= ENTERED && line->times < LAYERS && !line->enters)
            line->enters = site_enters_device(o->b, run_location(o->b->run, (uint32_t)i)->stack);
    }
}

/* Finds lines that occurred again outside of all passes, and lines that occurred only once inside of one. */
static void capture_lines(struct oom_failures *o, struct capture *c)
{
    c->facts.turned_ns = c->facts.once_ns = c->facts.entered_ns = RUN_UNKNOWN;
    find_inputs(o);
    for (size_t i = 0; i < o->come_cap && i < run_stack_count(o->b->run); i++) {
        struct come *line = &o->come[i];
        if (line->times && !line->examined) {
            line->examined = true;
            line->in_pass = oom_is_in_pass(o->b->run, (uint32_t)i);
            line->lazy = line->in_pass && oom_is_lazy(o->b->run, (uint32_t)i);
        }
        if (line->enters && !line->in_pass && line->times >= ENTERED && line->last_ns > c->facts.entered_ns)
            c->facts.entered_ns = line->last_ns;
        bool again = line->times >= (line->enters ? AGAIN : LAYERS);
        if (!line->in_pass && again && line->last_ns > c->facts.turned_ns)
            c->facts.turned_ns = line->last_ns;
        else if (line->in_pass && !line->lazy && line->times == 1 && line->last_ns > c->facts.once_ns)
            c->facts.once_ns = line->last_ns;
    }
    for (size_t i = 0; i < c->live_n; i++) {
        const struct oom_history *history = SITE_REACH(o->history, c->live[i].location, o->history_cap);
        c->live[i].turned_rank = oom_history_rank(history, c->facts.turned_ns);
    }
}

/* Not only refused and then granted, as the allocator's second attempt is. */
static bool has_group_failed(const struct oom_group *g)
{
    return g->fatal || g->tensor_failed;
}

/* Failures after this one are examined next. The same line again: code that caught the first failure executed it once
 * more. */
static void begin_after(struct oom_failures *o, struct capture *c)
{
    if (!has_group_failed(&o->groups[c->group])) return;
    oom_after_begin(o->b->run, &o->rows[o->groups[c->group].placed], &c->facts.after);
    if (o->latest && o->latest->facts.after.failed != RUN_NONE &&
        o->latest->facts.after.failed == c->facts.after.failed &&
        o->latest->facts.after.thread == c->facts.after.thread)
        o->latest->facts.after.granted = true;
    o->latest = c;
}

/* The totals of what a bounded recording removed include what came after the failure. */
static void capture_totals(const struct run *run, const struct run_oom *oom, const struct run_series *s,
                           struct capture *c)
{
    uint64_t count = 0;
    int64_t bytes = 0;
    const bool known = oom->time_ns >= run_process_at(run, oom->process)->kept_from_ns ||
                       run_removed_since(run, oom, s, &count, &bytes);
    c->allocations = s->allocations - count;
    c->allocated_bytes = s->allocated_bytes - bytes;
    c->facts.turnover = !known                   ? NAN
                        : c->allocated_bytes > 0 ? (double)(s->freed_bytes - bytes) / (double)c->allocated_bytes
                                                 : 0;
}

static void failures_on_oom(void *self, const struct run_oom *oom, size_t index)
{
    struct oom_failures *o = self;
    const struct run *run = o->b->run;
    if (o->group_of[index] == RUN_NONE) return;
    struct capture *c = &o->captures[o->group_of[index]];
    uint32_t device = run_find_series(run, oom->process, oom->device, RUN_SERIES_DEVICE);
    uint32_t tensor = run_find_series(run, oom->process, oom->device, RUN_SERIES_TENSOR);
    bool pinned = oom->layer == GS_LAYER_DEVICE && oom->space == GS_SPACE_PINNED;
    c->facts.layer = pinned ? RUN_SERIES_PINNED : tensor != RUN_NONE ? RUN_SERIES_TENSOR : RUN_SERIES_DEVICE;
    c->series = pinned               ? run_find_series(run, oom->process, -1, RUN_SERIES_PINNED)
                : tensor != RUN_NONE ? tensor
                                     : device;
    c->facts.device_live = device != RUN_NONE ? run_series(run, device)->live_bytes : 0;
    c->by_owner = site_owned_now(o->b, device, &c->by_owner_n);
    c->reserved = oom->device >= 0 && oom->device < 128 ? o->reserved[oom->device] : RUN_UNKNOWN;
    if (c->series != RUN_NONE) {
        const struct run_series *s = run_series(run, c->series);
        c->facts.live = s->live_bytes;
        capture_totals(run, oom, s, c);
        capture_live(o, c);
    }
    capture_lines(o, c);
    capture_passes(o, c, oom);
    capture_map(o, c, oom);
    c->facts.layout = c - o->captures < LAYOUTS ? oom_layout_take(o->b, oom) : NULL;
    begin_after(o, c);
}

static void failures_on_reserved(void *self, const struct run_reserved *reserved)
{
    struct oom_failures *o = self;
    if (reserved->device >= 0 && reserved->device < 128) o->reserved[reserved->device] = reserved->bytes;
}

static void failures_on_process_start(void *self, uint32_t process)
{
    struct oom_failures *o = self;
    o->kept_from_ns = run_process_at(o->b->run, process)->kept_from_ns;
    oom_passes_start(&o->passes);
    oom_trials_start(&o->trials, OOM_TRIAL_OF_MODULES);
    oom_trials_start(&o->optimizers, OOM_TRIAL_OF_OPTIMIZERS);
    o->latest = NULL;
    for (size_t i = 0; i < 128; i++) o->reserved[i] = RUN_UNKNOWN;
    if (o->come_cap) /* in another process lines are counted anew */
        memset(o->come, 0, o->come_cap * sizeof *o->come);
}

struct oom_failures *oom_start(struct site_builder *b, struct run_observer *observer)
{
    struct oom_failures *o = arena_zeroed(1, sizeof *o);
    o->b = b;
    o->rows = run_ooms(b->run, &o->rows_n);
    o->group_of = arena_realloc(NULL, o->rows_n, sizeof *o->group_of);
    memset(o->group_of, 0xff, o->rows_n * sizeof *o->group_of);
    o->groups = oom_make_groups(b, o->rows, o->rows_n, &o->groups_n);
    choose_captures(o);
    *observer = (struct run_observer){.self = o,
                                      .process_start = failures_on_process_start,
                                      .alloc = o->rows_n ? failures_on_alloc : NULL,
                                      .free = o->rows_n ? failures_on_free : NULL,
                                      .oom = failures_on_oom,
                                      .reserved = failures_on_reserved};
    return o;
}

static int64_t first_outside(const struct site_builder *b, uint32_t process, int device)
{
    const struct result_device_memory *m = result_memory_of(b->report, process, device);
    if (m) return m->outside_first_bytes;
    RUN_EACH (d, run_devices, b->run)
        if (d->process == process && d->device == device && d->total_bytes != RUN_UNKNOWN &&
            d->free_bytes != RUN_UNKNOWN && d->free_bytes <= d->total_bytes)
            return d->total_bytes - d->free_bytes;
    return RUN_UNKNOWN;
}

/* A snapshot does not state what PyTorch requested from CUDA. If less was free than the segment for such a request
 * takes, CUDA refused it. Returns that segment's size; 0: it was not refused, or is known otherwise. */
static int64_t refused_segment(struct run *run, const struct oom_group *g, const struct run_oom *row)
{
    const int64_t bytes =
        oom_segment_bytes(row->requested_bytes, run_torch_settings(run, row->process).expandable == RUN_YES);
    return run_is_imported(run) && !g->device_failed && run_is_known(g->free) && g->free < bytes ? bytes : 0;
}

/* The share of the bytes allocated while the growing memory came that was freed. */
static double growing_turnover(const struct oom_failures *o, const struct capture *c, const struct oom_facts *f)
{
    if (isnan(c->facts.turnover)) return oom_levels_turnover(o->b->run, f);
    return f->growing_sites && c->series < o->courses_cap
               ? oom_course_turnover(&o->courses[c->series], f->growing_first_ns, f->growing_last_ns)
               : NAN;
}

/* PyTorch's totals contain what a sleeping server has unmapped. */
static void leave_out_unmapped(struct oom_facts *f)
{
    const bool all = !f->attached && f->layer == RUN_SERIES_TENSOR && f->device_live > 0; /* is recorded */

    if (!all || f->tensor_reserved <= f->device_live) return;
    f->tensor_reserved = f->device_live;
    f->tensor_allocated = f->tensor_allocated > f->live ? f->live : f->tensor_allocated;
}

static struct oom_facts oom_facts_of(struct oom_failures *o, const struct oom_group *g, const struct capture *c)
{
    const struct run_oom *row = &o->rows[g->shown];
    const int64_t refused = refused_segment(o->b->run, g, row);
    size_t processes;
    struct oom_facts f = c ? c->facts : (struct oom_facts){.largest_stack = RUN_NONE};
    f.row = row;
    f.failures = g->failures;
    f.fatal = g->fatal;
    f.outcome = g->outcome;
    f.device_failed = g->device_failed || refused;
    f.stack = o->rows[g->placed].stack;
    f.requested = row->requested_bytes;
    f.device_requested = refused ? refused : g->device_requested;
    f.free = g->free;
    f.total = g->total;
    f.tensor_allocated = row->tensor_allocated;
    f.tensor_reserved = row->tensor_reserved;
    f.attached = run_processes(o->b->run, &processes)[row->process].attached_after_s > 0;
    f.outside = f.earlier = RUN_UNKNOWN;
    f.outside_first = first_outside(o->b, row->process, row->device);
    f.nvml = question_sample_near(o->b, row->process, row->device, row->time_ns);
    f.growing_stack = f.pass = f.holder_stack = f.widened = RUN_NONE;
    if (c) {
        f.examined = true;
        f.preallocated = question_preallocated(o->b->report, row->process, row->device);
        f.preallocates = question_preallocates(o->b, row->process, f.stack, f.requested, f.total, &f.preallocates_less);
        f.tensor_reserved = f.tensor_reserved == RUN_UNKNOWN ? c->reserved : f.tensor_reserved;
        if (f.tensor_allocated == RUN_UNKNOWN && f.layer == RUN_SERIES_TENSOR) f.tensor_allocated = f.live;
        leave_out_unmapped(&f);
        oom_trials_judge(o->b, &f.trials);
        oom_find_growing(o->b, c->live, c->live_n, &f);
        f.growing_turnover = growing_turnover(o, c, &f);
        f.growing_low = f.growing_sites && c->series < o->courses_cap
                            ? oom_course_low(&o->courses[c->series], f.heaviest_first_ns, row->time_ns)
                            : -1;
        oom_find_demand(o->b, &f);
        oom_notebook_find_displayed(o->b->run, c->live, c->live_n, &f);
        oom_find_rerun(o->b, c->live, c->live_n, &f);
        oom_graph_judge(o->b, &o->passes, c->live, c->live_n, &f);
        f.graphs = run_graph_memory_at(o->b->run, row->process, row->device, row->time_ns);
        if (f.total != RUN_UNKNOWN && f.free != RUN_UNKNOWN &&
            f.total - f.free >= arena_add_capped(f.device_live, f.graphs))
            f.outside = f.total - f.free - f.device_live - f.graphs;
    }
    return f;
}

static void answer_failure(struct oom_failures *o, size_t group, const struct capture *c, struct result_oom_verdict *v)
{
    struct oom_facts f = oom_facts_of(o, &o->groups[group], c), *kept;
    kept = arena_alloc(o->b->arena, sizeof *kept);
    *kept = f;
    *v = (struct result_oom_verdict){.facts = kept,
                                     .process = f.row->process,
                                     .time_s = site_seconds(f.row->time_ns),
                                     .time_ns = o->rows[o->groups[group].last].time_ns,
                                     .live_sum = c && c->series != RUN_NONE ? c->facts.live : RUN_UNKNOWN,
                                     .device = f.row->device,
                                     .layer = f.row->layer,
                                     .space = f.row->space,
                                     .requested_bytes = f.requested,
                                     .segment_bytes = f.device_requested > f.requested ? f.device_requested : 0,
                                     .free_bytes = f.free,
                                     .total_bytes = f.total,
                                     .tensor_allocated = f.tensor_allocated,
                                     .tensor_reserved = f.tensor_reserved,
                                     .device_live = c ? f.device_live : RUN_UNKNOWN,
                                     .outside = f.outside,
                                     .graphs = f.graphs,
                                     .fatal = f.fatal,
                                     .capped = o->groups[group].capped,
                                     .handled = o->groups[group].handled,
                                     .outcome = o->groups[group].outcome,
                                     .failures = f.failures,
                                     .live_layer = f.layer,
                                     .stack = site_trace(o->b, f.stack)};
    if (c) {
        v->by_owner = c->by_owner;
        v->by_owner_n = c->by_owner_n;
        struct site_share *shares = arena_realloc(NULL, c->live_n, sizeof *shares);
        for (size_t i = 0; i < c->live_n; i++) {
            uint32_t stack = run_location(o->b->run, c->live[i].location)->stack;
            shares[i] = (struct site_share){stack, c->live[i].bytes, c->live[i].count};
        }
        v->live = site_list_by_site(o->b, shares, c->live_n, &v->live_n, &v->live_total);
        v->live_lines = site_list_by_line(o->b, shares, c->live_n, &v->live_lines_n, &v->live_lines_total);
        free(shares);
        oom_measure_holes(o->b->report, &f);
    }
}

static bool is_retry(const struct oom_group *g)
{
    return !g->fatal && !g->handled && !g->tensor_failed;
}

static void list_retries(struct oom_failures *o)
{
    struct result_report *report = o->b->report;
    for (size_t i = 0; i < o->groups_n; i++) report->retries_total += is_retry(&o->groups[i]);
    size_t room = report->retries_total < o->b->top ? report->retries_total : o->b->top, n = 0;
    struct result_retry_line *lines = arena_realloc(NULL, report->retries_total + 1, sizeof *lines);
    report->retries = arena_alloc(o->b->arena, room * sizeof *report->retries);
    EACH_IN (g, o->groups) {
        const struct run_oom *row = &o->rows[g->shown];
        if (is_retry(g)) {
            lines[n++] = (struct result_retry_line){.count = 1,
                                                    .requested_bytes = row->requested_bytes,
                                                    .first_s = site_seconds(row->time_ns),
                                                    .last_s = site_seconds(row->time_ns),
                                                    .site = site_of_call(o->b, o->rows[g->placed].stack)};
        }
        if (is_retry(g) && report->retries_n < room) {
            report->retries[report->retries_n++] =
                (struct result_retry){.process = row->process,
                                      .time_s = site_seconds(row->time_ns),
                                      .device = row->device,
                                      .requested_bytes = row->requested_bytes,
                                      .failures = g->failures,
                                      .stack = site_trace(o->b, o->rows[g->placed].stack)};
        }
    }
    oom_retry_lines(o->b, lines, n);
    free(lines);
}

static void list_group(struct oom_failures *o, size_t group, size_t room)
{
    struct result_report *report = o->b->report;
    const uint32_t at = o->group_of[o->groups[group].last];
    if (report->ooms_n < room)
        answer_failure(o, group, at != RUN_NONE ? &o->captures[at] : NULL, &report->ooms[report->ooms_n++]);
}

/* Growth that the answer on the failure that ended the program denies: layers of a pass that did not fit. */
static void drop_denied_growth(struct site_builder *b, const struct result_oom_verdict *v)
{
    const struct oom_facts *f = v->facts;
    struct result_report *r = b->report;
    size_t n = 0;
    if (!v->fatal || !f->examined || f->layer != RUN_SERIES_TENSOR || f->growing_sites || oom_keeps_displayed(f) ||
        oom_keeps_rerun(f) || oom_keeps_failed(f) || oom_keeps_trials(f) || oom_keeps_optimizers(f))
        return;
    EACH_IN (g, r->growth)
        if (g->process != v->process || g->layer != f->layer || g->device != v->device) r->growth[n++] = *g;
    r->growth_total -= r->growth_n - n;
    r->growth_n = n;
    for (size_t i = 0; i < b->growing_n && i < run_location_count(b->run); i++) {
        const struct run_series *s = run_series(b->run, run_location(b->run, (uint32_t)i)->series);
        if (s->process == v->process && s->layer == f->layer && s->device == v->device)
            b->growing[i] = SITE_GROWING_NOT;
    }
}

/* The failure that ended the program is first, followed by the other fatal ones from the last to the first. Those that
 * the program handled come next, and those that succeeded on a retry last, both in order of time. */
static void list_ooms(struct oom_failures *o)
{
    struct result_report *report = o->b->report;
    report->ooms_total = o->groups_n;
    const size_t room = o->groups_n < o->b->top ? o->groups_n : o->b->top, end = ending_group(o);
    report->ooms = arena_alloc(o->b->arena, room * sizeof *report->ooms);
    const bool first = end < o->groups_n && o->groups[end].fatal;
    if (first) list_group(o, end, room);
    if (report->ooms_n) drop_denied_growth(o->b, &report->ooms[0]);
    for (size_t i = o->groups_n; i-- > 0;)
        if (o->groups[i].fatal && !(first && i == end)) list_group(o, i, room);
    for (unsigned retried = 0; retried < 2; retried++)
        for (size_t i = 0; i < o->groups_n; i++)
            if (!o->groups[i].fatal && (o->groups[i].outcome == RESULT_OUTCOME_RETRIED) == retried)
                list_group(o, i, room);
}

/* The allocations in the layer that counts, from its failure to the end. */
static void after_totals(const struct oom_failures *o, struct capture *c)
{
    if (c->series != RUN_NONE) {
        const struct run_series *s = run_series(o->b->run, c->series);
        c->facts.after.allocations = s->allocations - c->allocations;
        c->facts.after.bytes = s->allocated_bytes - c->allocated_bytes;
        c->facts.after.live = c->facts.live;
    }
}

/* A thread that handled its next failure had handled this one. */
static bool handled_later(const struct oom_failures *o, size_t group)
{
    const struct run_oom *row = &o->rows[o->groups[group].last];
    for (size_t i = group + 1; i < o->groups_n; i++) {
        const struct run_oom *next = &o->rows[o->groups[i].last];
        if (next->process != row->process) break;
        if (next->thread == row->thread && o->groups[i].outcome != RESULT_OUTCOME_RETRIED)
            return o->groups[i].outcome == RESULT_OUTCOME_HANDLED;
    }
    return false;
}

/* PyTorch throws an exception when it reports: a failure that did not end the program was caught. */
static void find_handled(struct oom_failures *o)
{
    uint32_t process = RUN_NONE, raised = RUN_NONE;
    EACH_IN (g, o->groups) {
        g->handled = !g->fatal && g->tensor_failed;
        g->outcome = g->fatal ? RESULT_OUTCOME_ENDED : g->handled ? RESULT_OUTCOME_HANDLED : RESULT_OUTCOME_RETRIED;
    }
    EACH_IN (c, o->captures) {
        struct oom_group *g = &o->groups[c->group];
        if (has_group_failed(g)) {
            const struct run_oom *row = &o->rows[g->last];
            if (process != row->process) raised = question_raised_failure(o->b->run, process = row->process);
            after_totals(o, c);
            c->facts.after.raised = raised >= g->first && raised <= g->last && o->rows[raised].thread == row->thread;
            g->raised = c->facts.after.raised;
            g->outcome = oom_after_end(o->b, &o->rows[g->last], !g->fatal, &c->facts.after);
        }
    }
    for (size_t i = o->groups_n; i-- > 0;) {
        struct oom_group *g = &o->groups[i];
        if (has_group_failed(g)) {
            if (!g->raised && handled_later(o, i)) g->outcome = RESULT_OUTCOME_HANDLED;
            g->handled = g->outcome == RESULT_OUTCOME_HANDLED;
            g->fatal = !g->handled;
        }
        for (size_t row = g->first; row <= g->last && g->handled; row++)
            if (o->rows[row].thread == o->rows[g->last].thread) run_note_survived(o->b->run, row);
    }
}

void oom_finish(struct oom_failures *o)
{
    find_handled(o);
    list_ooms(o);
    list_retries(o);
    for (size_t i = 0; i < o->captures_n; i++) free(o->captures[i].live);
    oom_passes_release(&o->passes);
    oom_trials_release(&o->trials);
    oom_trials_release(&o->optimizers);
    ARENA_RELEASE(o->groups, o->group_of, o->come_of, o->history, o->courses, o->come, o);
}
