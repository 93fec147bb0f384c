#include "analyzer/question/signature.h"

#include <string.h>
#include "analyzer/base/text.h"

/* clang-format off */
enum fact { STR, BAR, CLIP, SCALE, SCALER, LBFGS, SCHEDULER, OPTIMIZER, SAVE, LOAD, MOVE, LOADER, CHECKS,
    PROFILER, QUIET, SYNCHRONIZE, STREAM_SYNC, EMPTY_CACHE, ALLOCATOR, UNCACHED, TORCH, ENGINE, NODE, BOOL, FLOAT, INT,
    BOUND, ITEM, LIST, CPU, NUMPY, TO, CUDA, COPY, MAKE, UNIQUE, COALESCE, REPEAT, ONE_HOT, ELEMENT, INDEXED, SETITEM, PUT, HOST_INDEX,
    MASKED, NONZERO, XLA, VALUE,
    /* without a row: the stack has a Python frame; PyTorch's name of an operator */
    PYTHON, OPERATOR, FACTS };
/* clang-format on */
_Static_assert(FACTS <= 64, "a bit each");
#define F(fact) (UINT64_C(1) << (fact))

#define S(shape) (1u << QUESTION_SHAPE_##shape)
#define W(kind) S(kind)
#define BACK (S(SCALAR) | S(READ))
#define OUT (BACK | S(LATE_OUT) | S(BLOCKING_OUT) | S(PINNED_OUT))
#define UP (S(UP_PAGEABLE) | S(UP_PINNED))
#define ANY_SHAPE (~0u)
#define OPERATOR_NAME operator_name
static const char operator_name[] = "an operator";

#define SEEN(f, file, function)
#define CALLED(f, symbol)
#define ADVICE(name, text)
#define SIGN(shapes, facts, name, advice, by_count)

static const struct frame_row {
    uint8_t fact;
    const char *file, *function, *symbol;
} frame_rows[] = {
#undef SEEN
#undef CALLED
#define SEEN(f, in, name) {.fact = f, .file = in, .function = name},
#define CALLED(f, text) {.fact = f, .symbol = text},
#include "analyzer/question/signature.def"
#undef SEEN
#undef CALLED
#define SEEN(f, file, function)
#define CALLED(f, symbol)
};

enum advice {
#undef ADVICE
#define ADVICE(name, text) TO_DO_##name,
#include "analyzer/question/signature.def"
    TO_DO_N
};
static const char *const advice_texts[] = {
#define ADVICE(name, text) [TO_DO_##name] = text,
#include "analyzer/question/signature.def"
#define ADVICE(name, text)
};

static const struct rule {
    uint32_t shapes;
    uint64_t facts;
    const char *name;
    uint8_t advice;
    bool by_count;
} rules[] = {
#undef SIGN
#define SIGN(s, f, n, a, c) {s, f, n, TO_DO_##a, c},
#include "analyzer/question/signature.def"
};
enum { FRAME_ROWS = sizeof frame_rows / sizeof *frame_rows, RULES = sizeof rules / sizeof *rules };

struct facts { /* of a stack */
    uint64_t bits;
    uint32_t line; /* its innermost Python frame */
    bool known;
    uint32_t op; /* index of its name, 0 none */
};

struct question_signer {
    struct run *run;
    struct arena *arena;
    struct map frames;
    struct facts *facts; /* by stack + 1, so that RUN_NONE has its own entry */
    size_t facts_cap;
    ARENA_LIST(uint64_t, bits);          /* by frames: facts of frames */
    ARENA_LIST(const char *, operators); /* numbers from 1 on */
};

struct question_signer *question_signer_new(struct run *run, struct arena *arena)
{
    struct question_signer *s = ARENA_NEW(struct question_signer, .run = run, .arena = arena);
    return s;
}

void question_signer_free(struct question_signer *s)
{
    map_free(&s->frames);
    ARENA_RELEASE(s->facts, s->bits, s->operators, s);
}

static bool signature_row_fits(const struct frame_row *row, const struct run_frame *f)
{
    if (row->symbol) return f->kind == GS_FRAME_NATIVE && run_frame_calling(f, NULL, row->symbol);
    if (f->kind != GS_FRAME_PYTHON || !f->file || !strstr(f->file, row->file)) return false;
    return !row->function || strcmp(text_last_part(f->function), row->function) == 0;
}

static uint64_t frame_bits(struct question_signer *s, const struct run_frame *f)
{
    uint32_t *at = map_at(&s->frames, (uintptr_t)f);
    if (*at == MAP_NEW) {
        uint64_t bits = 0;
        for (size_t i = 0; i < FRAME_ROWS; i++)
            bits |= signature_row_fits(&frame_rows[i], f) ? F(frame_rows[i].fact) : 0;
        *at = (uint32_t)s->bits_n;
        *ARENA_ADD(s->bits) = bits;
    }
    return s->bits[*at];
}

/* "torch::autograd::THPVariable_bincount(…)": the function that Python called. The number of "bincount", 0 for any
 * other frame. */
static uint32_t operator_of(struct question_signer *s, const struct run_frame *f)
{
    enum { MOST = 1000, LONGEST = 100 };
    static const char prefix[] = "THPVariable_";
    const struct run_frame *by = run_frame_calling(f, NULL, prefix);
    const char *name = by ? strstr(by->function, prefix) : NULL;
    if (f->kind != GS_FRAME_NATIVE || !name) return 0;
    name += sizeof prefix - 1;
    name += *name == '_';
    size_t length = strcspn(name, "(<. ");
    length = length > LONGEST ? 0 : length;
    for (size_t i = 0; i < s->operators_n; i++)
        if (strncmp(s->operators[i], name, length) == 0 && !s->operators[i][length]) return (uint32_t)i + 1;
    if (!length || s->operators_n == MOST) return 0;
    *ARENA_ADD(s->operators) = arena_printf(s->arena, "%.*s", (int)length, name);
    return (uint32_t)s->operators_n;
}

static struct facts collect_signature_facts(struct question_signer *s, uint32_t stack)
{
    struct facts facts = {.line = RUN_NONE};
    RUN_EACH_FRAME (f, s->run, stack) {
        if (f->kind == GS_FRAME_PYTHON) {
            facts.line = facts.line == RUN_NONE ? stack : facts.line;
            facts.bits |= F(PYTHON);
            if (!site_is_library(f)) break;
        } else {
            f = site_frame_named(s->run, stack);
            uint32_t op = facts.line == RUN_NONE ? operator_of(s, f) : 0;
            facts.op = op ? op : facts.op;
        }
        facts.bits |= frame_bits(s, f);
    }
    facts.bits |= facts.op ? F(OPERATOR) : 0;
    return facts;
}

static const struct facts *signature_facts_of(struct question_signer *s, uint32_t stack)
{
    struct facts *facts = SITE_REACH(s->facts, (uint32_t)(stack + 1), s->facts_cap);
    if (!facts->known) {
        *facts = collect_signature_facts(s, stack);
        facts->known = true;
    }
    return facts;
}

uint32_t question_sign(struct question_signer *s, uint32_t stack, enum question_shape shape)
{
    const struct facts *facts = signature_facts_of(s, stack);
    uint32_t i = 0;
    while (i + 1 < RULES && (!(rules[i].shapes & 1u << shape) || (facts->bits & rules[i].facts) != rules[i].facts)) i++;
    return i + (rules[i].name == operator_name ? RULES * facts->op : 0);
}

struct question_signature question_signature(const struct question_signer *s, uint32_t signature)
{
    const struct rule *r = &rules[signature % RULES];
    uint32_t op = signature / RULES;
    bool named = op && op <= s->operators_n;
    return (struct question_signature){.name = named ? s->operators[op - 1] : r->name,
                                       .advice = advice_texts[r->advice],
                                       .by_count = r->by_count,
                                       .up = (r->shapes & ~(UP | S(LATE_IN))) == 0};
}

bool question_sign_makes_room(const struct run *run, const char *name)
{
    size_t n;
    const struct run_process *p = run_processes(run, &n);

    while (n && !p[n - 1].sleeps) n--;
    return n && name && strcmp(name, "empty_cache") == 0;
}

uint32_t question_sign_line(struct question_signer *s, uint32_t stack)
{
    return signature_facts_of(s, stack)->line;
}

const char *question_advice_small_copies(void)
{
    return advice_texts[TO_DO_SMALL];
}

const char *question_advice_many(const char *one)
{
    return one == advice_texts[TO_DO_ITEM]      ? advice_texts[TO_DO_MANY_ITEMS]
           : one == advice_texts[TO_DO_SIZE]    ? advice_texts[TO_DO_MANY_ITEMS]
           : one == advice_texts[TO_DO_BRANCH]  ? advice_texts[TO_DO_BRANCHES]
           : one == advice_texts[TO_DO_ELEMENT] ? advice_texts[TO_DO_ELEMENTS]
                                                : one;
}

bool question_advice_joins(const char *one)
{
    return one == advice_texts[TO_DO_ITEM] || one == advice_texts[TO_DO_BRANCH];
}

const char *question_advice_for_use(const char *one, enum site_use use)
{
    static const uint8_t by_use[] = {
        [SITE_USE_UNKNOWN] = TO_DO_ITEM,  [SITE_USE_BRANCH] = TO_DO_BRANCH,   [SITE_USE_SIZE] = TO_DO_SIZE,
        [SITE_USE_ACTION] = TO_DO_ACTION, [SITE_USE_OPERAND] = TO_DO_OPERAND, [SITE_USE_EXTREME] = TO_DO_ITEM};
    if (one == advice_texts[TO_DO_BRANCH] && use == SITE_USE_EXTREME) return advice_texts[TO_DO_EXTREME];
    return one == advice_texts[TO_DO_ITEM] ? advice_texts[by_use[use]] : one;
}

struct question_signature question_signature_of_timing(struct question_signature wait)
{
    if (!wait.name || wait.advice != advice_texts[TO_DO_WAIT_EVENT]) return wait;
    wait.advice = advice_texts[TO_DO_TIMING];
    wait.by_count = true;
    return wait;
}

const char *question_advice_move(void)
{
    return advice_texts[TO_DO_MOVE];
}

bool question_sign_is_allocator(struct question_signer *s, uint32_t stack)
{
    return signature_facts_of(s, stack)->bits & F(ALLOCATOR);
}
