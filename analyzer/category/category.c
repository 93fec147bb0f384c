#include "analyzer/category/category.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/text.h"
#include "analyzer/category/category_use.h"
#include "analyzer/run/run.h"
#include "analyzer/site/site.h"

enum doing { /* NOTHING: a stack with Python frames that match no row; THREAD: without any */
             NOTHING,
             THREAD,
             ZERO,
             STEP,
             BUCKETS,
             FORWARD,
             BACKWARD,
             MOVE,
             INIT,
             LOADER,
             CACHE,
             LOAD,
             ANY
};
/* Of the stack that made it, and from AGED on of the block, see category_block. */
enum hint {
    NONE = 0,
    STATE = 1,
    BUILT = 2,
    COPIED = 4,
    WORKSPACE = 8,
    TORCH = 16,
    MODULE = 32, /* BUILT, and a class whose forward nn.Module calls */
    ITERATED = 64,
    BEFORE = 128, /* the call path that made it was not recorded */
    AGED = 256,
    FAILED = 512,
    FITS = 1024,
    STATED = 2048,
    TRAINED = 4096,
    BUILDING = 8192,  /* freed while an object was built */
    UNUSED = 1 << 14, /* CATEGORY_USE_… of the block */
    RECURS = 1 << 15,
    ONCE = 1 << 16,
    LASTING = 1 << 17,
    REPLACES = 1 << 18
};
#define WHILE(x) (1u << (x))
#define KEPT WHILE(ANY)

struct frame_row {
    uint8_t doing, hint;
    const char *file, *function, *symbol;
};
static const struct frame_row frame_rows[] = {
#define DOING(d, f, n) {.doing = d, .file = f, .function = n},
#define SYMBOL(d, s) {.doing = d, .symbol = s},
#define HINT(h, f, n) {.hint = h, .file = f, .function = n},
#define HINT_SYMBOL(h, s) {.hint = h, .symbol = s},
#define RULE(c, d, h, f, e)
#include "analyzer/category/category.def"
#undef DOING
#undef SYMBOL
#undef HINT
#undef HINT_SYMBOL
};

static const struct rule {
    enum result_category category;
    uint8_t doing;
    uint32_t hint, fates;
    const char *evidence, *alike, *while_;
} rules[] = {
#define DOING(d, f, n)
#define SYMBOL(d, s)
#define HINT(h, f, n)
#define HINT_SYMBOL(h, s)
#define RULE(c, d, h, f, e) {RESULT_CATEGORY_##c, d, h, f, e, "as earlier ones of its call path: " e, #d},
#include "analyzer/category/category.def"
};
enum { FRAME_ROWS = sizeof frame_rows / sizeof *frame_rows, RULES = sizeof rules / sizeof *rules };

struct facts { /* of a stack */
    uint8_t doing, hints;
};

struct category_finder {
    struct run *run;
    struct map frames;            /* frame, by address → facts, packed */
    ARENA_ROWS(uint32_t, stacks); /* by stack: facts, packed; MAP_NEW not known yet */
    struct map modules;           /* class_key → 1 */
    struct map pairs;   /* facts of the calls that made and freed it, tensor and use → its two rules, packed */
    uint64_t last_pair; /* the last pair that was looked up, and its rules; 0 none */
    uint32_t last_rules;
    enum { UNASKED, NO_PYTHON, PYTHON } python;
};

static const char module_file[] = "/torch/nn/modules/module.py";

/* Of a method: its class. Python before 3.11 does not record it: then all methods of a file share one. */
static uint64_t class_key(const struct run_frame *f)
{
    const char *dot = f->function ? strrchr(f->function, '.') : NULL;
    return map_hash_bytes((uintptr_t)f->file, f->function, dot ? (size_t)(dot - f->function) : 0);
}

static void find_modules(struct category_finder *c)
{
    for (uint32_t s = 0; s < run_stack_count(c->run); s++) {
        const struct run_frame *f = run_stack_frame(c->run, s);
        const char *name = f->kind == GS_FRAME_PYTHON ? text_last_part(f->function) : NULL;
        if (!name || strcmp(name, "forward") != 0) continue;
        const uint32_t caller = run_stack_python(c->run, run_stack_parent(c->run, s)); /* past native frames */
        const struct run_frame *by = run_stack_frame(c->run, caller);
        if (by && by->file && strstr(by->file, module_file)) *map_at(&c->modules, class_key(f)) = 1;
    }
}

struct category_finder *category_finder_new(struct run *run)
{
    struct category_finder *c = ARENA_NEW(struct category_finder, .run = run);
    find_modules(c);
    return c;
}

void category_finder_free(struct category_finder *c)
{
    map_free(&c->frames);
    free(c->stacks);
    MAP_RELEASE(&c->pairs, &c->modules);
    free(c);
}

static bool frame_row_fits(const struct frame_row *row, const struct run_frame *f)
{
    if (row->symbol) return f->kind == GS_FRAME_NATIVE && run_frame_calling(f, NULL, row->symbol);
    if (f->kind != GS_FRAME_PYTHON || (row->file && (!f->file || !strstr(f->file, row->file)))) return false;
    const char *name = text_last_part(f->function);
    return !row->function || (name && strcmp(name, row->function) == 0);
}

static struct facts collect_category_facts(const struct run_frame *f)
{
    struct facts facts = {NOTHING, NONE};
    EACH (row, frame_rows, FRAME_ROWS) {
        if ((row->hint || facts.doing == NOTHING) && frame_row_fits(row, f)) {
            facts.hints |= row->hint;
            facts.doing = row->hint ? facts.doing : row->doing;
        }
    }
    return facts;
}

static uint32_t pack_facts(struct facts facts)
{
    return (uint32_t)facts.hints << 8 | facts.doing;
}

static struct facts unpack_facts(uint32_t packed)
{
    return (struct facts){(uint8_t)packed, (uint8_t)(packed >> 8)};
}

static struct facts frame_facts(struct category_finder *c, uint32_t stack)
{
    const struct run_frame *f = run_stack_frame(c->run, stack);
    uint32_t *at = map_at(&c->frames, (uintptr_t)f);
    if (*at == MAP_NEW) {
        f = site_frame_named(c->run, stack);
        struct facts facts = collect_category_facts(f);
        if ((facts.hints & BUILT) && map_get(&c->modules, class_key(f)) != MAP_NEW) facts.hints |= MODULE;
        *at = pack_facts(facts);
    }
    return unpack_facts(*at);
}

static void reach_all_stacks(struct category_finder *c)
{
    size_t n = run_stack_count(c->run);
    if (n <= c->stacks_n) return;
    c->stacks = arena_realloc(c->stacks, n, sizeof *c->stacks);
    while (c->stacks_n < n) c->stacks[c->stacks_n++] = MAP_NEW;
}

static struct facts collect_stack_facts(struct category_finder *c, uint32_t stack)
{
    const uint32_t start = stack;
    struct facts all = {NOTHING, NONE};
    bool python = false, closed = false;
    const struct run_frame *called = NULL;
    for (const struct run_frame *f; (f = run_stack_frame(c->run, stack)) != NULL;
         stack = run_stack_parent(c->run, stack)) {
        struct facts one = frame_facts(c, stack);
        python = python || f->kind == GS_FRAME_PYTHON;
        closed = closed || run_frame_calls_closure(f, called);
        all.hints |= one.hints;
        all.doing = all.doing == NOTHING && !closed ? one.doing : all.doing;
        if (f->kind == GS_FRAME_PYTHON && f->file && !strstr(f->file, "/torch/utils/_contextlib.py")) called = f;
    }
    /* A snapshot has no stack for memory from before its history: that does not mean a separate thread. */
    const bool unknown = start == RUN_NONE && run_why_unknown(c->run, RUN_FACT_WAITS);
    if (unknown || all.hints & BEFORE)
        all.hints |= BEFORE;
    else if (all.doing == NOTHING && !python)
        all.doing = THREAD;
    return all;
}

static inline uint32_t packed_stack_facts(struct category_finder *c, uint32_t stack)
{
    if (stack >= c->stacks_n) /* a replay creates some */
        reach_all_stacks(c);
    if (stack >= c->stacks_n) return pack_facts(collect_stack_facts(c, stack));
    if (c->stacks[stack] == MAP_NEW) c->stacks[stack] = pack_facts(collect_stack_facts(c, stack));
    return c->stacks[stack];
}

static struct facts stack_facts(struct category_finder *c, uint32_t stack)
{
    return unpack_facts(packed_stack_facts(c, stack));
}

unsigned category_rule(struct category_finder *c, const struct category_block *b)
{
    struct facts made = stack_facts(c, b->stack), freed = stack_facts(c, b->free_stack);
    const bool passed = b->use & CATEGORY_USE_PASSED;
    bool torn_down = b->kept && !passed && freed.doing <= THREAD; /* not by a line that does something else */
    uint32_t fate = torn_down ? KEPT : WHILE(freed.doing);
    bool tensor = b->tensor || (b->direct && (made.hints & TORCH));
    if (!b->python) { /* without recorded Python frames, a stack without them proves nothing */
        made.doing = made.doing == THREAD ? NOTHING : made.doing;
        fate = fate == WHILE(THREAD) ? WHILE(NOTHING) : fate;
    }
    if (!tensor && (made.hints & TORCH)) /* a segment: its allocating call is not its only user */
        return RULES - 1;
    unsigned hints = made.hints | (b->aged ? AGED : 0) | (b->failed ? FAILED : 0) | (b->fits ? FITS : 0) |
                     (b->stated ? STATED : 0) | (b->trained ? TRAINED : 0) | (freed.hints & BUILT ? BUILDING : 0) |
                     (b->use & CATEGORY_USE_UNUSED ? UNUSED : 0) | (b->use & CATEGORY_USE_RECURS ? RECURS : 0) |
                     (b->use & CATEGORY_USE_ONCE ? ONCE : 0) | (b->use & CATEGORY_USE_KEPT ? LASTING : 0) |
                     (b->use & CATEGORY_USE_REPLACES ? REPLACES : 0);
    for (unsigned i = 0; i < RULES; i++) {
        const struct rule *r = &rules[i];
        if ((r->doing == ANY || r->doing == made.doing) && (hints & r->hint) == r->hint && (fate & r->fates) &&
            (tensor || r->category == RESULT_CATEGORY_WORKSPACES || r->category == RESULT_CATEGORY_UNKNOWN))
            return i;
    }
    return RULES - 1;
}

bool category_is_backward(struct category_finder *c, uint32_t stack)
{
    return stack_facts(c, stack).doing == BACKWARD;
}

unsigned category_activity(struct category_finder *c, uint32_t stack)
{
    uint8_t doing = stack_facts(c, stack).doing;
    return doing == THREAD ? BACKWARD : doing;
}

enum category_role category_role(struct category_finder *c, uint32_t stack)
{
    static const uint8_t roles[ANY] = {
        [THREAD] = CATEGORY_ROLE_THREAD, [FORWARD] = CATEGORY_ROLE_FORWARD, [BACKWARD] = CATEGORY_ROLE_BACKWARD,
        [STEP] = CATEGORY_ROLE_STEP,     [BUCKETS] = CATEGORY_ROLE_SETUP,   [MOVE] = CATEGORY_ROLE_SETUP,
        [INIT] = CATEGORY_ROLE_SETUP,    [LOAD] = CATEGORY_ROLE_SETUP,      [LOADER] = CATEGORY_ROLE_COPY,
    };
    struct facts facts = stack_facts(c, stack);
    return facts.doing == NOTHING && (facts.hints & COPIED) ? CATEGORY_ROLE_COPY
                                                            : (enum category_role)roles[facts.doing];
}

bool category_is_built(struct category_finder *c, uint32_t stack)
{
    const struct facts facts = stack_facts(c, stack);
    return facts.doing == MOVE || facts.doing == INIT || (facts.doing <= THREAD && (facts.hints & MODULE));
}

bool category_is_iterated(struct category_finder *c, uint32_t stack)
{
    struct facts facts = stack_facts(c, stack);
    return facts.doing == LOADER || (facts.hints & ITERATED);
}

unsigned category_fate(struct category_finder *c, uint32_t free_stack)
{
    _Static_assert(ANY <= CATEGORY_FATES / 2, "it and a hint");
    const struct facts facts = stack_facts(c, free_stack);
    return facts.doing | (facts.hints & BUILT ? CATEGORY_FATES / 2 : 0);
}

unsigned category_rule_count(void)
{
    return 2 * RULES;
}

bool category_has_python(const struct run *run)
{
    for (uint32_t s = 0; s < run_stack_count(run); s++) {
        const struct run_frame *f = run_stack_frame(run, s);
        if (f->kind == GS_FRAME_PYTHON && f->file) return true; /* without one: "(allocated before the recording)" */
    }
    return false;
}

static uint32_t find_rules(struct category_finder *c, bool tensor, uint32_t stack, uint32_t free_stack, unsigned use)
{
    if (c->python == UNASKED) c->python = category_has_python(c->run) ? PYTHON : NO_PYTHON;
    struct category_block block = {.stack = stack,
                                   .free_stack = free_stack,
                                   .tensor = tensor,
                                   .direct = !tensor,
                                   .use = use,
                                   .python = c->python == PYTHON};
    uint32_t freed = category_rule(c, &block);
    block.kept = true;
    return freed | category_rule(c, &block) << 16;
}

unsigned category_rule_of(struct category_finder *c, bool tensor, uint32_t stack, uint32_t free_stack, bool kept,
                          unsigned use)
{
    /* The facts of the stacks decide: there are a million pairs of stacks, and a dozen results. */
    const uint64_t made = packed_stack_facts(c, stack), freed_by = packed_stack_facts(c, free_stack);
    const uint64_t pair = made << 48 | freed_by << 32 | (uint64_t)use << 2 | (uint64_t)tensor << 1 | 1;
    if (pair != c->last_pair) {
        uint32_t *both = map_at(&c->pairs, pair);
        if (*both == MAP_NEW) *both = find_rules(c, tensor, stack, free_stack, use);
        c->last_pair = pair;
        c->last_rules = *both;
    }
    return kept ? c->last_rules >> 16 : c->last_rules & 0xffff;
}

enum result_category category_of_rule(unsigned rule)
{
    return rules[rule % RULES].category;
}

bool category_outlives_steps(unsigned rule)
{
    return rules[rule % RULES].hint & AGED;
}

bool category_needs_setup(unsigned rule)
{
    return rules[rule % RULES].hint & STATE;
}

bool category_is_copied(unsigned rule)
{
    return rules[rule % RULES].hint & (COPIED | LASTING);
}

const char *category_evidence(unsigned rule)
{
    return rule < RULES ? rules[rule].evidence : rules[rule - RULES].alike;
}

const char *category_while_word(unsigned rule)
{
    return rules[rule % RULES].while_;
}
