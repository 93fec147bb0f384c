#include "analyzer/category/category_use.h"
#include "analyzer/category/category.h"
#include "analyzer/step/step.h"
#include "analyzer/base/sort.h"

#include <stdlib.h>
#include <string.h>

#define OUTLIVES INT64_MAX /* some blocks of the call path outlive the pass */

enum {
    LIVES = 64,       /* lifetimes are counted exactly below this many passes */
    BEGINS = 1 << 20, /* passes whose times are kept */
    UNPACED = 8,      /* passes that two steps may have if no steps are known */
    SAVED = 4,        /* steps: no loop holds a batch longer, even if it prefetches */
    AGE = 2,          /* steps, as in categories.c */
    BATCH = 16,       /* tensors of one batch that one line copies */
};

struct copies { /* the copies to the device of one call path */
    int64_t first_ns, last_ns;
    size_t begins;          /* passes that had begun at its last allocation */
    uint32_t rounds;        /* times that it allocated with a pass in between */
    uint32_t pass_stack;    /* of the pass that followed it with nothing set up in between, RUN_NONE */
    uint64_t blocks, sized; /* sized: of them as large as a tensor of a module */
    uint32_t lives[LIVES];  /* by passes that began between allocation and free; the last: or more */
    bool recurs, once;
};

struct course {           /* of one process */
    struct map paths;     /* stack → index in `copies` */
    struct map sizes;     /* of memory from which modules were built, moved or loaded: bytes → 1 */
    struct map replacing; /* stack → 1 */
    struct {
        uint64_t address, bytes;
        uint32_t stack; /* RUN_NONE: none, or it was freed */
    } newest;           /* of the blocks that the optimizer's step made */
    ARENA_LIST(struct copies, copies);
    ARENA_LIST(int64_t, begins); /* when passes began, ascending */
    int64_t backward_ns;         /* the first backward pass or optimizer's step */
    int64_t next_ns;             /* the last failure at a copy of a next batch, or at the set-up of another model */
    int64_t again_ns, turn_ns;   /* when a call path last copied again; when a step last ended */
    size_t soon;                 /* passes in two steps */
    const struct step_list *steps;
    int64_t end_ns, last_alloc_ns;
    ARENA_ROWS(int64_t, passing); /* by stack of a backward pass: how long its blocks lived, if such passes freed all
                                     that were freed before the last allocation; OUTLIVES; 0 none */
};

struct category_uses {
    struct site_builder *b;
    struct arena arena; /* of a separate builder, see category_uses_read */
    struct category_finder *categorizer;
    ARENA_ROWS(uint8_t, roles); /* by stack, + 1 */
    ARENA_ROWS(struct course *, list);
    struct course *now;
    enum category_role last; /* of the previous allocation */
    bool tensors;
    ARENA_LIST(uint32_t, waiting); /* paths that copied since something was set up or a pass began */
};

static enum category_role role_of(struct category_uses *u, uint32_t stack)
{
    if (stack == RUN_NONE) return CATEGORY_ROLE_OTHER;
    uint8_t *role = SITE_REACH(u->roles, stack, u->roles_n);
    if (!*role) *role = (uint8_t)(1 + category_role(u->categorizer, stack));
    return (enum category_role)(*role - 1);
}

/* Passes that began by then. */
static size_t steps_begun(const struct course *c, int64_t ns)
{
    return SORT_COUNT(c->begins_n, i, c->begins[i] <= ns);
}

static size_t passes_between(const struct course *c, int64_t from, int64_t to)
{
    return to > from ? steps_begun(c, to) - steps_begun(c, from) : 0;
}

static const struct copies *copies_of(const struct course *c, uint32_t stack)
{
    uint32_t at = map_get(&c->paths, stack);
    return at == MAP_NEW ? NULL : &c->copies[at];
}

static void uses_on_process_start(void *self, uint32_t process)
{
    struct category_uses *u = self;
    struct course *c = ARENA_NEW(struct course, .soon = UNPACED, .backward_ns = RUN_NEVER, .next_ns = RUN_UNKNOWN,
                                 .turn_ns = INT64_MIN, .again_ns = INT64_MIN, .newest.stack = RUN_NONE);
    c->last_alloc_ns = run_process_at(u->b->run, process)->last_alloc_ns;
    *SITE_REACH(u->list, process, u->list_n) = c;
    u->now = c;
    u->last = CATEGORY_ROLE_OTHER;
    u->tensors = false;
    u->waiting_n = 0;
}

static void copy_begins(struct category_uses *u, const struct run_lifetime *life)
{
    struct course *c = u->now;
    int64_t ns = life->alloc_ns;
    uint32_t *at = map_at(&c->paths, life->stack);
    bool first = *at == MAP_NEW;
    if (first) {
        *at = (uint32_t)c->copies_n;
        *ARENA_ADD(c->copies) = (struct copies){.first_ns = ns, .pass_stack = RUN_NONE};
    }
    struct copies *p = &c->copies[*at];
    if (first || p->begins != c->begins_n) {
        c->again_ns = first ? c->again_ns : ns;
        p->rounds++;
        *ARENA_ADD(u->waiting) = *at;
    }
    p->begins = c->begins_n;
    p->last_ns = ns;
    p->blocks++;
    p->sized += map_get(&c->sizes, (uint64_t)life->bytes) != MAP_NEW;
}

static void pass_runs(struct category_uses *u, enum category_role role, uint32_t stack, int64_t ns)
{
    struct course *c = u->now;
    bool turned = u->last == CATEGORY_ROLE_STEP && role == CATEGORY_ROLE_FORWARD;
    bool between =
        u->last == CATEGORY_ROLE_FORWARD || u->last == CATEGORY_ROLE_BACKWARD || u->last == CATEGORY_ROLE_STEP;
    c->turn_ns = turned ? ns : c->turn_ns;
    c->backward_ns = role != CATEGORY_ROLE_FORWARD && c->backward_ns == RUN_NEVER ? ns : c->backward_ns;
    const bool begins = role != CATEGORY_ROLE_STEP || !c->begins_n; /* clip_grad_norm_ comes before the optimizer */
    if (begins && (turned || !between) && c->begins_n < BEGINS) *ARENA_ADD(c->begins) = ns;
    for (size_t i = 0; i < u->waiting_n; i++) /* a failure counts, too */
        c->copies[u->waiting[i]].pass_stack = stack;
    u->waiting_n = 0;
}

/* PyTorch's allocator allocates segments on the call paths of tensors. */
static bool is_segment_lifetime(struct category_uses *u, const struct run_lifetime *life)
{
    u->tensors = u->tensors || life->layer == GS_LAYER_TENSOR;
    return u->tensors && life->layer == GS_LAYER_DEVICE;
}

/* Blocks of the same request can differ by up to 1 MiB. */
static uint64_t requested_size_of_life(const struct run_lifetime *life)
{
    const int64_t requested = run_requested(life);
    return (uint64_t)(requested == RUN_UNKNOWN ? life->bytes : requested);
}

/* p.data = p.data - … makes the new block just before it frees the old one. */
static void note_replaced(struct category_uses *u, const struct run_lifetime *life)
{
    struct course *c = u->now;
    if (c->newest.stack == RUN_NONE || life->stack == RUN_NONE) return;
    if (c->newest.address == life->address) {
        c->newest.stack = RUN_NONE;
        return;
    }
    if (c->newest.bytes != requested_size_of_life(life)) return;
    const bool replaced = role_of(u, life->stack) == CATEGORY_ROLE_STEP
                              ? map_get(&c->replacing, life->stack) != MAP_NEW /* by another line of the step */
                              : category_is_built(u->categorizer, life->stack);
    if (replaced && role_of(u, run_free_stack(u->b->run, life)) == CATEGORY_ROLE_STEP)
        *map_at(&c->replacing, c->newest.stack) = 1;
}

static void uses_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct category_uses *u = self;
    if (is_segment_lifetime(u, life)) return;
    enum category_role role = role_of(u, life->stack);
    switch (role) {
    case CATEGORY_ROLE_COPY: copy_begins(u, life); break;
    case CATEGORY_ROLE_FORWARD:
    case CATEGORY_ROLE_BACKWARD:
    case CATEGORY_ROLE_STEP:
        pass_runs(u, role, life->stack, life->alloc_ns);
        if (role != CATEGORY_ROLE_STEP) break;
        u->now->newest.address = life->address;
        u->now->newest.bytes = requested_size_of_life(life);
        u->now->newest.stack = life->stack;
        break;
    case CATEGORY_ROLE_SETUP:
        u->waiting_n = 0;
        *map_at(&u->now->sizes, (uint64_t)life->bytes) = 1;
        break;
    case CATEGORY_ROLE_THREAD: return; /* independent of the others' activity */
    case CATEGORY_ROLE_OTHER: break;
    }
    u->last = role;
}

/* The request was for the beginning of a pass, or for the next step's batch. */
static void uses_on_oom(void *self, const struct run_oom *oom, size_t index)
{
    struct category_uses *u = self;
    enum category_role role = role_of(u, oom->stack);
    bool next = (role == CATEGORY_ROLE_COPY && u->now->backward_ns != RUN_NEVER) ||
                (role == CATEGORY_ROLE_SETUP && u->now->begins_n); /* of another model */
    if (role == CATEGORY_ROLE_FORWARD || role == CATEGORY_ROLE_BACKWARD || role == CATEGORY_ROLE_STEP) {
        pass_runs(u, role, oom->stack, oom->time_ns);
        u->last = role;
    }
    u->now->next_ns = next ? oom->time_ns : u->now->next_ns;
}

static void count_life(struct course *c, const struct run_lifetime *life, int64_t end_ns)
{
    uint32_t at = map_get(&c->paths, life->stack);
    if (at != MAP_NEW) {
        size_t passes = passes_between(c, life->alloc_ns, end_ns);
        c->copies[at].lives[passes < LIVES ? passes : LIVES - 1]++;
    }
}

static bool is_backward_role(enum category_role role)
{
    return role == CATEGORY_ROLE_THREAD || role == CATEGORY_ROLE_BACKWARD;
}

static void note_passing(struct category_uses *u, const struct run_lifetime *life)
{
    struct course *c = u->now;
    if (life->free_ns > c->last_alloc_ns || !is_backward_role(role_of(u, life->stack))) return;
    const uint32_t by = run_free_stack(u->b->run, life);
    const int64_t lived = life->free_ns - life->alloc_ns + 1;
    int64_t *longest = SITE_REACH(c->passing, life->stack, c->passing_n);
    if (by != RUN_NONE && !is_backward_role(role_of(u, by))) *longest = OUTLIVES;
    if (lived > *longest) *longest = lived;
}

/* Its life may be this much longer than that of any other block of its call path: the computer may be busy. */
static bool was_freed_by_pass(const struct course *c, uint32_t stack, int64_t alloc_ns, int64_t free_ns)
{
    enum { LONGER = 8 };
    if (free_ns <= c->last_alloc_ns || free_ns == RUN_NEVER || stack >= c->passing_n) return false;
    return c->passing[stack] < OUTLIVES && (free_ns - alloc_ns) / LONGER < c->passing[stack];
}

static void uses_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct category_uses *u = self;
    if (life->layer == GS_LAYER_DEVICE && u->tensors) return;
    count_life(u->now, life, life->free_ns);
    note_replaced(u, life);
    note_passing(u, life);
}

/* A block that is still live counts only if it has already outlived two steps. */
static void uses_on_live(void *self, const struct run_lifetime *life)
{
    struct category_uses *u = self;
    if ((life->layer != GS_LAYER_DEVICE || !u->tensors) &&
        passes_between(u->now, life->alloc_ns, u->now->end_ns) > u->now->soon)
        count_life(u->now, life, u->now->end_ns);
}

/* Are both below the same function, which made one and then ran the other? */
static bool same_caller(const struct run *run, uint32_t a, uint32_t b)
{
    uint32_t paths[2][RUN_DEPTH_MAX], n[2] = {0};
    for (int k = 0; k < 2; k++) {
        for (uint32_t s = k ? b : a; run_stack_frame(run, s) && n[k] < RUN_DEPTH_MAX; s = run_stack_parent(run, s))
            if (run_stack_frame(run, s)->kind == GS_FRAME_PYTHON) paths[k][n[k]++] = s;
    }
    while (n[0] && n[1] && paths[0][n[0] - 1] == paths[1][n[1] - 1]) {
        n[0]--;
        n[1]--;
    }
    if (!n[0] || !n[1]) return n[0] + n[1] > 0;
    const struct run_frame *x = run_stack_frame(run, paths[0][n[0] - 1]);
    const struct run_frame *y = run_stack_frame(run, paths[1][n[1] - 1]);
    return x->file && y->file && x->function && y->function && strcmp(x->file, y->file) == 0 &&
           strcmp(x->function, y->function) == 0;
}

static void judge_use(struct category_uses *u, struct course *c, struct copies *p, uint32_t stack)
{
    uint64_t soon = 0, late = 0;
    for (size_t i = 0; i < LIVES; i++) *(i <= c->soon && i + 1 < LIVES ? &soon : &late) += p->lives[i];
    p->recurs = p->rounds >= 2 && soon > late;
    bool weights = p->blocks > 1 && p->sized == p->blocks; /* a module's copy, tensor by tensor */
    p->once = p->rounds == 1 && p->blocks <= BATCH && !weights && p->pass_stack != RUN_NONE &&
              c->again_ns < p->last_ns && c->turn_ns < p->last_ns &&
              (category_is_iterated(u->categorizer, stack) || same_caller(u->b->run, stack, p->pass_stack));
}

/* How many passes two steps take; plus one, for blocks that the next step replaces. */
static size_t passes_in_two(const struct course *c)
{
    const struct step_list *s = c->steps;
    size_t passes = passes_between(c, step_start_ns(s, 0) - 1, step_start_ns(s, s->n));
    return 2 * (passes + s->n - 1) / s->n + 1;
}

/* The same without steps: the call path that copies most often copies one batch each time. */
static size_t passes_in_two_batches(const struct course *c)
{
    uint32_t most = 1;
    for (size_t i = 0; i < c->copies_n; i++) most = c->copies[i].rounds > most ? c->copies[i].rounds : most;
    size_t soon = most > 1 ? 2 * (c->begins_n / most) + 1 : 0;
    return soon > UNPACED ? soon : UNPACED;
}

static void uses_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct category_uses *u = self;
    struct course *c = u->now;
    const struct step_list *steps = step_list_of(u->b, process);
    c->steps =
        steps && steps->source != STEP_SOURCE_PERIOD ? steps : NULL; /* the loop may be one over layers or tokens */
    c->end_ns = end_ns;
    c->soon = c->steps ? passes_in_two(c) : passes_in_two_batches(c);
    run_each_live(u->b->run, uses_on_live, u);
    for (uint32_t s = 0; s < u->roles_n; s++) {
        uint32_t at = map_get(&c->paths, s);
        if (at != MAP_NEW) judge_use(u, c, &c->copies[at], s);
    }
}

struct category_uses *category_uses_start(struct site_builder *b, struct run_observer *observer)
{
    struct category_uses *u = ARENA_NEW(struct category_uses, .b = b);
    *observer = (struct run_observer){.self = u};
    if (category_has_python(b->run)) {
        u->categorizer = category_finder_new(b->run);
        observer->process_start = uses_on_process_start;
        observer->alloc = uses_on_alloc;
        observer->free = uses_on_free;
        observer->oom = uses_on_oom;
        observer->process_end = uses_on_process_end;
    }
    b->report->uses = u;
    return u;
}

void category_uses_free(struct category_uses *u)
{
    if (!u) return;
    for (size_t i = 0; i < u->list_n; i++) {
        struct course *c = u->list[i];
        if (c) {
            MAP_RELEASE(&c->paths, &c->sizes, &c->replacing);
            ARENA_RELEASE(c->copies, c->begins, c->passing, c);
        }
    }
    if (u->categorizer) category_finder_free(u->categorizer);
    arena_free(&u->arena);
    ARENA_RELEASE(u->list, u->roles, u->waiting, u);
}

struct category_uses *category_uses_read(struct run *run, const struct run_observer *beside, char *error,
                                         size_t error_size)
{
    static const struct run_options defaults;
    struct arena arena = {0};
    struct result_report report = {.run = run};
    struct site_builder b = {.run = run, .report = &report, .arena = &arena, .options = &defaults, .top = SIZE_MAX};
    struct run_observer observers[3] = {[2] = beside ? *beside : (struct run_observer){0}};
    site_helpers(run, &b.helpers);
    if (category_has_python(run)) step_finder_start(&b, &observers[0]); /* otherwise no use depends on a step */
    struct category_uses *u = category_uses_start(&b, &observers[1]);
    bool ok = run_replay(run, observers, COUNT_OF(observers), error, error_size);
    step_finder_free(b.steps);
    site_builder_free(&b);
    u->arena = arena; /* it contains the steps */
    if (!ok) {
        category_uses_free(u);
        return NULL;
    }
    return u;
}

static unsigned was_copied(const struct course *c, const struct copies *p, int64_t alloc_ns, int64_t free_ns)
{
    size_t passes = passes_between(c, alloc_ns, free_ns), steps = 0;
    if (c->steps) steps = step_count_done(c->steps, free_ns) - step_count_done(c->steps, alloc_ns);
    if (c->steps ? steps >= (p->recurs ? SAVED : AGE) : passes > c->soon) return CATEGORY_USE_KEPT;
    if (p->rounds == 1 && p->blocks > BATCH && free_ns > p->last_ns) return CATEGORY_USE_KEPT; /* several batches */
    return p->recurs                          ? CATEGORY_USE_RECURS
           : p->once && c->turn_ns < alloc_ns ? CATEGORY_USE_ONCE
           : p->rounds > 1                    ? CATEGORY_USE_KEPT
                                              : 0;
}

unsigned category_uses_of(const struct category_uses *u, uint32_t process, uint32_t stack, int64_t alloc_ns,
                          int64_t free_ns)
{
    const struct course *c = u && process < u->list_n ? u->list[process] : NULL;
    if (!c || stack >= u->roles_n || !u->roles[stack]) return 0;
    enum category_role role = (enum category_role)(u->roles[stack] - 1);
    int64_t end = free_ns > c->end_ns ? c->end_ns : free_ns;
    if (is_backward_role(role)) return was_freed_by_pass(c, stack, alloc_ns, free_ns) ? CATEGORY_USE_PASSED : 0;
    if (role == CATEGORY_ROLE_STEP)
        return (passes_between(c, alloc_ns, end) ? CATEGORY_USE_KEPT : 0) |
               (map_get(&c->replacing, stack) != MAP_NEW ? CATEGORY_USE_REPLACES : 0);
    if (role != CATEGORY_ROLE_COPY && role != CATEGORY_ROLE_SETUP && role != CATEGORY_ROLE_OTHER) return 0;
    const struct copies *p = copies_of(c, stack);
    unsigned use = p ? was_copied(c, p, alloc_ns, end) : 0;
    return use | (free_ns != RUN_NEVER && !passes_between(c, alloc_ns, end) ? CATEGORY_USE_UNUSED : 0);
}

bool category_uses_is_first_step(const struct category_uses *u, uint32_t process, int64_t time_ns)
{
    const struct course *c = u && process < u->list_n ? u->list[process] : NULL;
    size_t passes = c ? steps_begun(c, time_ns) : 0;
    bool backward = passes && c->backward_ns <= time_ns;
    return (passes == 1 || (backward && passes == steps_begun(c, c->backward_ns))) && c->next_ns != time_ns;
}
