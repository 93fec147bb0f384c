#include "analyzer/category/category.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/category/category_use.h"
#include "analyzer/run/run.h"

enum doing { /* NOTHING: a stack with Python frames that no row knows; THREAD: without any */
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
             LOAD,
             ANY
};
/* Of the stack that made it, and from AGED on of the block, see gs_category_block. */
enum hint {
    NONE = 0,
    STATE = 1,
    BUILT = 2,
    COPIED = 4,
    WORKSPACE = 8,
    TORCH = 16,
    MODULE = 32, /* BUILT, and a class whose forward nn.Module calls */
    ITERATED = 64,
    AGED = 256,
    FAILED = 512,
    FITS = 1024,
    STATED = 2048,
    TRAINED = 4096,
    BUILDING = 8192,  /* freed while an object was built */
    UNUSED = 1 << 14, /* GS_USE_… of the block */
    RECURS = 1 << 15,
    ONCE = 1 << 16,
    LASTING = 1 << 17
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
#undef RULE
};

static const struct rule {
    enum gs_category category;
    uint8_t doing;
    uint32_t hint, fates;
    const char *evidence, *alike, *while_;
} rules[] = {
#define DOING(d, f, n)
#define SYMBOL(d, s)
#define HINT(h, f, n)
#define HINT_SYMBOL(h, s)
#define RULE(c, d, h, f, e) {GS_CATEGORY_##c, d, h, f, e, "as earlier ones of its call path: " e, #d},
#include "analyzer/category/category.def"
#undef RULE
};
enum { FRAME_ROWS = sizeof frame_rows / sizeof *frame_rows, RULES = sizeof rules / sizeof *rules };

struct facts { /* of a stack */
    uint8_t doing, hints;
};

struct gs_categorizer {
    struct gs_run *run;
    struct gs_map frames;            /* frame, by address → facts, packed */
    struct gs_map stacks;            /* stack → facts, packed */
    struct gs_map modules;           /* class_key → 1 */
    struct gs_map pairs[2][GS_USES]; /* by tensor and use: the calls that made and freed it → its two rules, packed */
    enum { UNASKED, NO_PYTHON, PYTHON } python;
};

static const char module_file[] = "/torch/nn/modules/module.py";

static const char *last_name(const struct gs_frame *f)
{
    const char *dot = f->function ? strrchr(f->function, '.') : NULL;
    return dot ? dot + 1 : f->function;
}

/* Of a method: its class. Python before 3.11 does not tell it: all of a file are one. */
static uint64_t class_key(const struct gs_frame *f)
{
    const char *dot = f->function ? strrchr(f->function, '.') : NULL;
    uint64_t key = gs_hash64((uintptr_t)f->file);
    for (const char *p = f->function; dot && p < dot; p++) {
        key = gs_hash64(key ^ (unsigned char)*p);
    }
    return key;
}

static void find_modules(struct gs_categorizer *c)
{
    for (uint32_t s = 0; s < gs_run_stacks(c->run); s++) {
        const struct gs_frame *f = gs_stack_frame(c->run, s);
        const struct gs_frame *by = gs_stack_frame(c->run, gs_stack_parent(c->run, s));
        const char *name = f->kind == GS_FRAME_PYTHON ? last_name(f) : NULL;
        if (name && by && by->kind == GS_FRAME_PYTHON && by->file && strcmp(name, "forward") == 0 &&
            strstr(by->file, module_file)) {
            *gs_map_at(&c->modules, class_key(f)) = 1;
        }
    }
}

struct gs_categorizer *gs_categorizer_new(struct gs_run *run)
{
    struct gs_categorizer *c = gs_realloc(NULL, 1, sizeof *c);
    *c = (struct gs_categorizer){.run = run};
    find_modules(c);
    return c;
}

void gs_categorizer_free(struct gs_categorizer *c)
{
    gs_map_free(&c->frames);
    gs_map_free(&c->stacks);
    for (size_t i = 0; i < GS_USES; i++) {
        gs_map_free(&c->pairs[0][i]);
        gs_map_free(&c->pairs[1][i]);
    }
    gs_map_free(&c->modules);
    free(c);
}

static bool fits(const struct frame_row *row, const struct gs_frame *f)
{
    if (row->symbol) {
        return f->kind == GS_FRAME_NATIVE && gs_frame_calling(f, NULL, row->symbol);
    }
    if (f->kind != GS_FRAME_PYTHON || (row->file && (!f->file || !strstr(f->file, row->file)))) {
        return false;
    }
    const char *name = last_name(f);
    return !row->function || (name && strcmp(name, row->function) == 0);
}

/* What one frame says. */
static struct facts look_at(const struct gs_frame *f)
{
    struct facts facts = {NOTHING, NONE};
    for (size_t i = 0; i < FRAME_ROWS; i++) {
        const struct frame_row *row = &frame_rows[i];
        if ((row->hint || facts.doing == NOTHING) && fits(row, f)) {
            facts.hints |= row->hint;
            facts.doing = row->hint ? facts.doing : row->doing;
        }
    }
    return facts;
}

static struct facts frame_facts(struct gs_categorizer *c, uint32_t stack)
{
    const struct gs_frame *f = gs_frame_named(c->run, stack);
    uint32_t *at = gs_map_at(&c->frames, (uintptr_t)f);
    if (*at == GS_MAP_NEW) {
        struct facts facts = look_at(f);
        if ((facts.hints & BUILT) && gs_map_get(&c->modules, class_key(f)) != GS_MAP_NEW) {
            facts.hints |= MODULE;
        }
        *at = (uint32_t)facts.hints << 8 | facts.doing;
    }
    return (struct facts){(uint8_t)*at, (uint8_t)(*at >> 8)};
}

static struct facts stack_facts(struct gs_categorizer *c, uint32_t stack)
{
    uint32_t known = gs_map_get(&c->stacks, stack), start = stack;
    if (known != GS_MAP_NEW) {
        return (struct facts){(uint8_t)known, (uint8_t)(known >> 8)};
    }
    struct facts all = {NOTHING, NONE};
    bool python = false;
    for (const struct gs_frame *f; (f = gs_stack_frame(c->run, stack)) != NULL;
         stack = gs_stack_parent(c->run, stack)) {
        struct facts one = frame_facts(c, stack);
        python = python || f->kind == GS_FRAME_PYTHON;
        all.hints |= one.hints;
        all.doing = all.doing == NOTHING ? one.doing : all.doing;
    }
    all.doing = all.doing == NOTHING && !python ? THREAD : all.doing;
    *gs_map_at(&c->stacks, start) = (uint32_t)all.hints << 8 | all.doing;
    return all;
}

unsigned gs_category_rule(struct gs_categorizer *c, const struct gs_category_block *b)
{
    struct facts made = stack_facts(c, b->stack), freed = stack_facts(c, b->free_stack);
    bool torn_down = b->kept && freed.doing <= THREAD; /* by no line that does something else */
    uint32_t fate = torn_down ? KEPT : WHILE(freed.doing);
    bool tensor = b->tensor || (b->direct && (made.hints & TORCH));
    if (!b->python) { /* what has no Python frame tells nothing where none were recorded */
        made.doing = made.doing == THREAD ? NOTHING : made.doing;
        fate = fate == WHILE(THREAD) ? WHILE(NOTHING) : fate;
    }
    if (!tensor && (made.hints & TORCH)) { /* a segment: its maker is not its only user */
        return RULES - 1;
    }
    unsigned hints = made.hints | (b->aged ? AGED : 0) | (b->failed ? FAILED : 0) | (b->fits ? FITS : 0) |
                     (b->stated ? STATED : 0) | (b->trained ? TRAINED : 0) | (freed.hints & BUILT ? BUILDING : 0) |
                     (b->use & GS_USE_UNUSED ? UNUSED : 0) | (b->use & GS_USE_RECURS ? RECURS : 0) |
                     (b->use & GS_USE_ONCE ? ONCE : 0) | (b->use & GS_USE_KEPT ? LASTING : 0);
    for (unsigned i = 0; i < RULES; i++) {
        const struct rule *r = &rules[i];
        if ((r->doing == ANY || r->doing == made.doing) && (hints & r->hint) == r->hint && (fate & r->fates) &&
            (tensor || r->category == GS_CATEGORY_WORKSPACES || r->category == GS_CATEGORY_UNKNOWN)) {
            return i;
        }
    }
    return RULES - 1;
}

bool gs_category_backward(struct gs_categorizer *c, uint32_t stack)
{
    return stack_facts(c, stack).doing == BACKWARD;
}

unsigned gs_category_doing(struct gs_categorizer *c, uint32_t stack)
{
    uint8_t doing = stack_facts(c, stack).doing;
    return doing == THREAD ? BACKWARD : doing;
}

enum gs_category_role gs_category_role(struct gs_categorizer *c, uint32_t stack)
{
    static const uint8_t roles[ANY] = {
        [THREAD] = GS_ROLE_THREAD, [FORWARD] = GS_ROLE_FORWARD, [BACKWARD] = GS_ROLE_BACKWARD,
        [STEP] = GS_ROLE_STEP,     [BUCKETS] = GS_ROLE_SETUP,   [MOVE] = GS_ROLE_SETUP,
        [INIT] = GS_ROLE_SETUP,    [LOAD] = GS_ROLE_SETUP,      [LOADER] = GS_ROLE_COPY,
    };
    struct facts facts = stack_facts(c, stack);
    return facts.doing == NOTHING && (facts.hints & COPIED) ? GS_ROLE_COPY : (enum gs_category_role)roles[facts.doing];
}

bool gs_category_iterated(struct gs_categorizer *c, uint32_t stack)
{
    struct facts facts = stack_facts(c, stack);
    return facts.doing == LOADER || (facts.hints & ITERATED);
}

unsigned gs_category_fate(struct gs_categorizer *c, uint32_t free_stack)
{
    _Static_assert(ANY <= GS_CATEGORY_FATES / 2, "it and a hint");
    const struct facts facts = stack_facts(c, free_stack);
    return facts.doing | (facts.hints & BUILT ? GS_CATEGORY_FATES / 2 : 0);
}

unsigned gs_category_rules(void)
{
    return 2 * RULES;
}

bool gs_category_python(const struct gs_run *run)
{
    for (uint32_t s = 0; s < gs_run_stacks(run); s++) {
        if (gs_stack_frame(run, s)->kind == GS_FRAME_PYTHON) {
            return true;
        }
    }
    return false;
}

unsigned gs_category_rule_of(struct gs_categorizer *c, bool tensor, uint32_t stack, uint32_t free_stack, bool kept,
                             unsigned use)
{
    if (c->python == UNASKED) {
        c->python = gs_category_python(c->run) ? PYTHON : NO_PYTHON;
    }
    uint32_t *both = gs_map_at(&c->pairs[tensor][use], (uint64_t)stack << 32 | free_stack);
    if (*both == GS_MAP_NEW) {
        struct gs_category_block block = {.stack = stack,
                                          .free_stack = free_stack,
                                          .tensor = tensor,
                                          .direct = !tensor,
                                          .use = use,
                                          .python = c->python == PYTHON};
        uint32_t freed = gs_category_rule(c, &block);
        block.kept = true;
        *both = freed | gs_category_rule(c, &block) << 16;
    }
    return kept ? *both >> 16 : *both & 0xffff;
}

enum gs_category gs_category_of(unsigned rule)
{
    return rules[rule % RULES].category;
}

bool gs_category_outlives(unsigned rule)
{
    return rules[rule % RULES].hint & AGED;
}

bool gs_category_sets_up(unsigned rule)
{
    return rules[rule % RULES].hint & STATE;
}

const char *gs_category_evidence(unsigned rule)
{
    return rule < RULES ? rules[rule].evidence : rules[rule - RULES].alike;
}

const char *gs_category_while(unsigned rule)
{
    return rules[rule % RULES].while_;
}
