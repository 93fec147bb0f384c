#include "analyzer/step/step_tree.h"

#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/site/builder.h"

/* Times that are kept: of one call site, and of all together (16 MiB). */
enum { DEEPEST = 64 }; /* nesting of call sites; deeper ones are a recursion, or generated */
enum { LIMIT = 1 << 16, LIMIT_LEAST = 1 << 8, ALL_TIMES = 1 << 22 };
enum { MANY = 1 << 10 }; /* after every MANY visits, the code checks whether a place is visited evenly */

static const struct {
    uint8_t kind;
    const char *file, *function;
} frame_rows[] = {
#define FRAME(k, f, n) {STEP_PLACE_##k, f, n},
#include "analyzer/step/step_frame.def"
#undef FRAME
};

/* Of an imported memory timeline: "[gradients]", not a line. */
static bool is_category(const struct run_frame *f)
{
    return !f->file && f->function && *f->function == '[';
}

static enum step_place_kind place_kind_of(const struct run_frame *f)
{
    if (f->kind != GS_FRAME_PYTHON) return f->rank == RUN_RANK_OWN ? STEP_PLACE_LINE : STEP_PLACE_NOTHING;
    if (is_category(f)) return STEP_PLACE_NOTHING;
    for (size_t i = 0; f->file && i < sizeof frame_rows / sizeof *frame_rows; i++)
        if (strstr(f->file, frame_rows[i].file) &&
            (!frame_rows[i].function || strcmp(text_last_part(f->function), frame_rows[i].function) == 0))
            return frame_rows[i].kind;
    return site_is_library(f) ? STEP_PLACE_NOTHING : STEP_PLACE_LINE;
}

static void add_place_link(struct step_place_tree *t, uint32_t parent, uint32_t depth)
{
    size_t n = t->n - 1;
    *ARENA_PUSH(t->links, n, t->links_cap) = (struct step_place_link){parent, depth};
}

static uint32_t add_child_place(struct step_place_tree *t, uint32_t parent, enum step_place_kind kind, uint32_t stack,
                                const struct run_frame *frame, uint32_t whole)
{
    uint64_t what = kind == STEP_PLACE_LINE ? (uintptr_t)frame : kind;
    uint64_t key = map_hash(map_hash(what) ^ ((uint64_t)parent << 3));
    uint32_t *at = map_at(&t->children, key);
    if (*at == MAP_NEW) {
        *at = (uint32_t)t->n;
        bool module = kind == STEP_PLACE_MODULE || t->places[parent].module;
        uint32_t depth = t->places[parent].depth + 1;
        ARENA_APPEND_TO(t->places, t->n, t->cap, .parent = parent, .depth = depth, .stack = stack, .first = whole,
                        .kind = (uint8_t)kind, .module = module);
        add_place_link(t, parent, depth);
    }
    return *at;
}

static bool says_closure(const struct run_frame *f)
{
    return f->kind == GS_FRAME_PYTHON && f->function &&
           (strstr(f->function, "closure") || strstr(f->function, "Closure"));
}

/* A snapshot can lack the frames of Module.__call__. */
static bool is_forward_frame(const struct run *run, const struct run_frame *f)
{
    return run_is_imported(run) && f->kind == GS_FRAME_PYTHON && f->function && strcmp(f->function, "forward") == 0;
}

/* The call site of a stack, from its caller's and its innermost frame. Calls by an optimizer belong to the optimizer,
 * except the closure that computes the loss for it, which belongs to its caller. */
static uint32_t step_down(struct step_place_tree *t, uint32_t place, uint32_t stack, uint32_t whole)
{
    const struct run_frame *f = run_stack_frame(t->run, stack);
    uint32_t caller = run_stack_parent(t->run, stack);
    enum step_place_kind kind = place_kind_of(f);
    struct step_place *p = &t->places[place];
    if (p->kind == STEP_PLACE_BACKWARD || p->kind == STEP_PLACE_LOAD) return place;
    if (p->kind == STEP_PLACE_OPTIMIZER) {
        if (f->kind == GS_FRAME_PYTHON && strcmp(text_last_part(f->function), "step") == 0) p->name = f->function;
        if (kind != STEP_PLACE_BACKWARD && kind != STEP_PLACE_MODULE && !says_closure(f)) return place;
        kind = kind == STEP_PLACE_NOTHING || kind == STEP_PLACE_OPTIMIZER ? STEP_PLACE_LINE : kind;
        place = p->parent;
    }
    if (kind == STEP_PLACE_MODULE && t->places[place].kind == STEP_PLACE_MODULE) return place;
    if (kind == STEP_PLACE_NOTHING || t->places[place].depth >= DEEPEST) return place;
    if (kind == STEP_PLACE_LINE && is_forward_frame(t->run, f) && t->places[place].kind != STEP_PLACE_MODULE)
        place = add_child_place(t, place, STEP_PLACE_MODULE, caller, f, whole);
    uint32_t made = add_child_place(t, place, kind, kind == STEP_PLACE_LINE ? stack : caller, f, whole);
    if (kind == STEP_PLACE_OPTIMIZER && strcmp(text_last_part(f->function), "step") == 0)
        t->places[made].name = f->function;
    return made;
}

uint32_t step_place_of(struct step_place_tree *t, uint32_t stack)
{
    if (!run_stack_frame(t->run, stack)) return STEP_PLACE_ROOT;
    uint32_t path[RUN_DEPTH_MAX], n = 0, place = STEP_PLACE_ROOT;
    for (uint32_t s = stack; run_stack_frame(t->run, s) && n < RUN_DEPTH_MAX; s = run_stack_parent(t->run, s)) {
        if (s < t->stacks_n && t->stacks[s].place) {
            place = t->stacks[s].place - 1;
            break;
        }
        path[n++] = s;
    }
    while (n--) {
        uint32_t s = path[n];
        place = step_down(t, place, s, stack);
        SITE_REACH(t->stacks, s, t->stacks_n)->place = place + 1;
    }
    return place;
}

uint32_t *step_places_thread(struct step_place_tree *t, uint32_t thread)
{
    t->thread = thread;
    t->thread_index = MAP_INDEX(&t->threads, thread, t->at, t->threads_n, t->at_cap, STEP_PLACE_ROOT);
    return &t->at[t->thread_index];
}

bool step_place_is_even(const struct step_place *p)
{
    uint64_t most = 0;
    for (size_t i = 0; i + 2 < STEP_PLACE_GAPS; i++) {
        uint64_t near = (uint64_t)p->gaps[i] + p->gaps[i + 1] + p->gaps[i + 2];
        most = near > most ? near : most;
    }
    return most * 4 >= (p->visits - 1) * 3;
}

const struct times *step_place_times(struct step_place_tree *t, const struct step_place *p)
{
    t->missed = t->missed || p->shift == STEP_PLACE_DROPPED;
    return &p->times;
}

static void drop_place_times(struct step_place_tree *t, struct step_place *p)
{
    t->times -= p->times.n;
    times_free(&p->times);
    p->shift = STEP_PLACE_DROPPED;
}

static void halve_place_moments(struct step_place_tree *t, struct step_place *p)
{
    t->times -= p->times.n;
    times_halve(&p->times, 0);
    t->times += p->times.n;
    p->shift++;
}

/* After every LIMIT_LEAST times of the place, of which `limit` and MANY are multiples, and when ALL_TIMES are kept. */
static __attribute__((noinline)) void thin_times(struct step_place_tree *t, struct step_place *p)
{
    const bool often = p->times.n % MANY == 0 && (p->kind == STEP_PLACE_LINE || p->kind == STEP_PLACE_MODULE);
    if (often && !t->complete && !step_place_is_even(p)) {
        drop_place_times(t, p);
        return;
    }
    if (p->times.n == t->limit) halve_place_moments(t, p);
    if (t->times == ALL_TIMES && t->limit > LIMIT_LEAST) {
        t->limit /= 2;
        for (size_t i = 0; i < t->n; i++)
            while (t->places[i].times.n >= t->limit) halve_place_moments(t, &t->places[i]);
    }
}

static inline void keep_time(struct step_place_tree *t, struct step_place *p, int64_t ns)
{
    times_add(&p->times, ns);
    if (++t->times == ALL_TIMES || p->times.n % LIMIT_LEAST == 0) thin_times(t, p);
}

static inline void visit_place(struct step_place_tree *t, struct step_place *p, uint32_t thread, int64_t ns)
{
    const uint64_t event = t->events, visits = p->visits;
    if (!visits) {
        p->thread = thread;
        p->first_ns = ns;
        p->first_event = event;
    } else if (p->thread != thread) {
        return;
    } else {
        const unsigned gap = 63 ^ (unsigned)__builtin_clzll((event - p->last_event) | 1);
        p->gaps[gap < STEP_PLACE_GAPS ? gap : STEP_PLACE_GAPS - 1]++;
    }
    p->visits = visits + 1;
    p->last_event = event;
    p->last_ns = ns;
    if (!(visits & (((uint64_t)1 << p->shift) - 1))) keep_time(t, p, ns);
}

void step_places_move(struct step_place_tree *t, uint32_t *from, uint32_t to, uint32_t thread, int64_t ns)
{
    struct step_place *const places = t->places;
    const struct step_place_link *const links = t->links;
    uint32_t p = to, old = *from;
    if (places[to].kind == STEP_PLACE_LOAD) return;
    *from = to;
    while (links[old].depth > links[p].depth) old = links[old].parent;
    for (; links[p].depth > links[old].depth; p = links[p].parent) visit_place(t, &places[p], thread, ns);
    for (; p != old; p = links[p].parent, old = links[old].parent) /* up to where the two paths meet */
        visit_place(t, &places[p], thread, ns);
}

uint64_t step_place_calls(const struct step_place_tree *t, uint32_t place)
{
    if (!t->places[place].module) return UINT64_MAX;
    while (t->places[t->places[place].parent].module) place = t->places[place].parent;
    uint64_t calls = t->stacks[t->places[place].first].events; /* a model executes its first line once per call */
    for (; place != STEP_PLACE_ROOT; place = t->places[place].parent)
        calls = t->places[place].visits > calls ? t->places[place].visits : calls;
    return calls;
}

void step_places_restart(struct step_place_tree *t, bool complete)
{
    if (!t->n) {
        *ARENA_PUSH(t->places, t->n, t->cap) = (struct step_place){.stack = RUN_NONE};
        add_place_link(t, STEP_PLACE_ROOT, 0);
    }
    EACH (p, t->places, t->n) {
        p->visits = 0;
        p->repeats = false;
        times_free(&p->times);
        p->shift = 0;
        memset(p->gaps, 0, sizeof p->gaps);
    }
    for (size_t i = 0; i < t->stacks_n; i++) t->stacks[i].events = 0;
    map_free(&t->threads);
    t->threads_n = t->times = 0;
    t->limit = LIMIT;
    t->complete = complete;
    t->missed = false;
    t->last_ns = 0;
    t->events = 0;
}

void step_places_free(struct step_place_tree *t)
{
    for (size_t i = 0; i < t->n; i++) times_free(&t->places[i].times);
    ARENA_RELEASE(t->places, t->links, t->stacks, t->at);
    MAP_RELEASE(&t->children, &t->threads);
}
