#include "analyzer/step/step_tree.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/site/builder.h"

/* Times that are kept: of one place, and of all of them together (32 MiB). */
enum { DEEPEST = 64 }; /* places in places; what is below is a recursion, or nobody's program */
enum { LIMIT = 1 << 16, LIMIT_LEAST = 1 << 8, ALL_TIMES = 1 << 22 };

static const struct {
    uint8_t kind;
    const char *file, *function;
} frame_rows[] = {
#define FRAME(k, f, n) {GS_PLACE_##k, f, n},
#include "analyzer/step/step_frame.def"
#undef FRAME
};

static const char *last_name(const struct gs_frame *f)
{
    const char *dot = f->function ? strrchr(f->function, '.') : NULL;
    return dot ? dot + 1 : f->function ? f->function : "";
}

static enum gs_place_kind kind_of(const struct gs_frame *f)
{
    if (f->kind != GS_FRAME_PYTHON) {
        return gs_site_module_rank(f->module) == 0 ? GS_PLACE_LINE : GS_PLACE_NOTHING;
    }
    for (size_t i = 0; f->file && i < sizeof frame_rows / sizeof *frame_rows; i++) {
        if (strstr(f->file, frame_rows[i].file) &&
            (!frame_rows[i].function || strcmp(last_name(f), frame_rows[i].function) == 0)) {
            return frame_rows[i].kind;
        }
    }
    return gs_site_library_file(f->file) ? GS_PLACE_NOTHING : GS_PLACE_LINE;
}

static uint32_t child(struct gs_place_tree *t, uint32_t parent, enum gs_place_kind kind, uint32_t stack,
                      const struct gs_frame *frame, uint32_t whole)
{
    uint64_t what = kind == GS_PLACE_LINE ? (uintptr_t)frame : kind;
    uint64_t key = gs_hash64(gs_hash64(what) ^ ((uint64_t)parent << 3));
    uint32_t *at = gs_map_at(&t->children, key);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)t->n;
        bool module = kind == GS_PLACE_MODULE || t->places[parent].module;
        uint32_t depth = t->places[parent].depth + 1;
        *GS_PUSH(t->places, t->n, t->cap) = (struct gs_place){
            .parent = parent, .depth = depth, .stack = stack, .first = whole, .kind = (uint8_t)kind, .module = module};
    }
    return *at;
}

static bool says_closure(const struct gs_frame *f)
{
    return f->kind == GS_FRAME_PYTHON && f->function &&
           (strstr(f->function, "closure") || strstr(f->function, "Closure"));
}

/* The place of a stack, from its caller's place and its innermost frame. What an optimizer calls is the
 * optimizer, but for the closure that computes the loss for it: that happens at its caller. */
static uint32_t step_down(struct gs_place_tree *t, uint32_t place, uint32_t stack, uint32_t whole)
{
    const struct gs_frame *f = gs_stack_frame(t->run, stack);
    uint32_t caller = gs_stack_parent(t->run, stack);
    enum gs_place_kind kind = kind_of(f);
    struct gs_place *p = &t->places[place];
    if (p->kind == GS_PLACE_BACKWARD || p->kind == GS_PLACE_LOAD) {
        return place;
    }
    if (p->kind == GS_PLACE_OPTIMIZER) {
        if (f->kind == GS_FRAME_PYTHON && strcmp(last_name(f), "step") == 0) {
            p->name = f->function;
        }
        if (kind != GS_PLACE_BACKWARD && kind != GS_PLACE_MODULE && !says_closure(f)) {
            return place;
        }
        kind = kind == GS_PLACE_NOTHING || kind == GS_PLACE_OPTIMIZER ? GS_PLACE_LINE : kind;
        place = p->parent;
    }
    if (kind == GS_PLACE_MODULE && t->places[place].kind == GS_PLACE_MODULE) {
        return place;
    }
    if (kind == GS_PLACE_NOTHING || t->places[place].depth >= DEEPEST) {
        return place;
    }
    uint32_t made = child(t, place, kind, kind == GS_PLACE_LINE ? stack : caller, f, whole);
    if (kind == GS_PLACE_OPTIMIZER && strcmp(last_name(f), "step") == 0) {
        t->places[made].name = f->function;
    }
    return made;
}

uint32_t gs_place_of(struct gs_place_tree *t, uint32_t stack)
{
    if (!gs_stack_frame(t->run, stack)) {
        return GS_PLACE_ROOT;
    }
    uint32_t path[GS_DEPTH_MAX], n = 0, place = GS_PLACE_ROOT;
    for (uint32_t s = stack; gs_stack_frame(t->run, s) && n < GS_DEPTH_MAX; s = gs_stack_parent(t->run, s)) {
        if (s < t->stacks_n && t->stacks[s].place) {
            place = t->stacks[s].place - 1;
            break;
        }
        path[n++] = s;
    }
    while (n--) {
        uint32_t s = path[n];
        place = step_down(t, place, s, stack);
        GS_REACH(t->stacks, s, t->stacks_n)->place = place + 1;
    }
    return place;
}

uint32_t *gs_places_thread(struct gs_place_tree *t, uint32_t thread)
{
    uint32_t *index = gs_map_at(&t->threads, thread);
    if (*index == GS_MAP_NEW) {
        *index = (uint32_t)t->threads_n;
        *GS_PUSH(t->at, t->threads_n, t->at_cap) = GS_PLACE_ROOT;
    }
    t->thread = thread;
    t->thread_index = *index;
    return &t->at[*index];
}

static void halve(struct gs_place_tree *t, struct gs_place *p)
{
    size_t kept = (p->n + 1) / 2;
    for (size_t i = 0; i < kept; i++) {
        p->times[i] = p->times[2 * i];
    }
    t->times -= p->n - kept;
    p->n = kept;
    p->shift++;
}

static void keep_time(struct gs_place_tree *t, struct gs_place *p, int64_t ns)
{
    if ((p->visits & (((uint64_t)1 << p->shift) - 1)) != 0) {
        return;
    }
    *GS_PUSH(p->times, p->n, p->cap) = ns;
    t->times++;
    if (p->n == t->limit) {
        halve(t, p);
    }
    if (t->times == ALL_TIMES && t->limit > LIMIT_LEAST) {
        t->limit /= 2;
        for (size_t i = 0; i < t->n; i++) {
            while (t->places[i].n >= t->limit) {
                halve(t, &t->places[i]);
            }
        }
    }
}

static void visit(struct gs_place_tree *t, struct gs_place *p, uint32_t thread, int64_t ns)
{
    if (p->visits == 0) {
        p->thread = thread;
        p->first_ns = ns;
    } else if (p->thread != thread) {
        return;
    } else {
        unsigned gap = 63 - (unsigned)__builtin_clzll((t->events - p->last_event) | 1);
        p->gaps[gap < GS_PLACE_GAPS ? gap : GS_PLACE_GAPS - 1]++;
    }
    p->last_event = t->events;
    p->last_ns = ns;
    keep_time(t, p, ns);
    p->visits++;
}

void gs_places_move(struct gs_place_tree *t, uint32_t *from, uint32_t to, uint32_t thread, int64_t ns)
{
    uint32_t old = *from;
    if (t->places[to].kind == GS_PLACE_LOAD) {
        return;
    }
    *from = to;
    while (t->places[old].depth > t->places[to].depth) {
        old = t->places[old].parent;
    }
    while (to != old) { /* up to where the two paths meet */
        visit(t, &t->places[to], thread, ns);
        to = t->places[to].parent;
        old = t->places[old].depth > t->places[to].depth ? t->places[old].parent : old;
    }
}

void gs_places_restart(struct gs_place_tree *t)
{
    if (!t->n) {
        *GS_PUSH(t->places, t->n, t->cap) = (struct gs_place){.stack = GS_NONE};
    }
    for (size_t i = 0; i < t->n; i++) {
        struct gs_place *p = &t->places[i];
        p->visits = 0;
        p->n = 0;
        p->shift = 0;
        memset(p->gaps, 0, sizeof p->gaps);
    }
    for (size_t i = 0; i < t->stacks_n; i++) {
        t->stacks[i].events = 0;
    }
    gs_map_free(&t->threads);
    t->threads_n = t->times = 0;
    t->limit = LIMIT;
    t->last_ns = 0;
    t->events = 0;
}

void gs_places_free(struct gs_place_tree *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->places[i].times);
    }
    free(t->places);
    free(t->stacks);
    free(t->at);
    gs_map_free(&t->children);
    gs_map_free(&t->threads);
}
