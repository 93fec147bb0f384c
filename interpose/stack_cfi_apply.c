/* Computes the caller's registers from a frame's, by the rules for its instruction. */
#include <stddef.h>
#include "interpose/stack_bytes.h"
#include "interpose/stack_cfi.h"

/* --- DWARF expressions ------------------------------------------------------------------------ */

#define DEEP 24u   /* gcc, clang and glibc take 3 */
#define STEPS 256u /* expressions may jump backwards */

struct machine {
    struct gs_bytes code;
    const uint8_t *begin;
    const struct gs_registers *registers;
    struct gs_memory *memory;
    uint64_t stack[DEEP];
    uint32_t depth;
    bool unknown; /* an unknown register */
};

/* DW_OP_* */
enum {
    OP_ADDR = 0x03,
    OP_DEREF = 0x06,
    OP_CONST1U = 0x08,
    OP_CONST8S = 0x0f,
    OP_CONSTU,
    OP_CONSTS,
    OP_DUP,
    OP_DROP,
    OP_OVER,
    OP_PICK,
    OP_SWAP,
    OP_ROT,
    OP_ABS = 0x19,
    OP_AND,
    OP_DIV,
    OP_MINUS,
    OP_MOD,
    OP_MUL,
    OP_NEG,
    OP_NOT,
    OP_OR,
    OP_PLUS,
    OP_PLUS_UCONST,
    OP_SHL,
    OP_SHR,
    OP_SHRA,
    OP_XOR,
    OP_BRA,
    OP_EQ,
    OP_GE,
    OP_GT,
    OP_LE,
    OP_LT,
    OP_NE,
    OP_SKIP,
    OP_LIT0 = 0x30,
    OP_LIT31 = 0x4f,
    OP_BREG0 = 0x70,
    OP_BREG31 = 0x8f,
    OP_BREGX = 0x92,
    OP_DEREF_SIZE = 0x94,
    OP_NOP = 0x96,
};

static void push_word(struct machine *m, uint64_t value)
{
    if (m->depth == DEEP)
        m->code.bad = true;
    else
        m->stack[m->depth++] = value;
}

/* The n-th from the top. */
static uint64_t peek_word(struct machine *m, uint64_t n)
{
    if (n < m->depth) return m->stack[m->depth - 1 - n];
    m->code.bad = true;
    return 0;
}

static uint64_t pop_word(struct machine *m)
{
    const uint64_t top = peek_word(m, 0);
    m->depth -= m->depth != 0;
    return top;
}

static void push_register(struct machine *m, uint64_t reg)
{
    const int64_t offset = gs_take_sleb(&m->code);
    if (reg < GS_REGS && gs_register_known(m->registers, (unsigned)reg))
        push_word(m, m->registers->value[reg] + (uint64_t)offset);
    else
        m->unknown = m->code.bad = true;
}

static void push_constant(struct machine *m, uint8_t op)
{
    const unsigned bytes = 1u << ((op - OP_CONST1U) / 2), unused = 64 - 8 * bytes;
    uint64_t value = gs_take(&m->code, bytes) << unused;
    push_word(m, (op - OP_CONST1U) % 2 ? (uint64_t)((int64_t)value >> unused) : value >> unused);
}

static void dereference_top(struct machine *m, uint64_t bytes)
{
    uintptr_t word = 0;
    if (bytes < 1 || bytes > 8 || !gs_memory_word(m->memory, pop_word(m), &word))
        m->code.bad = true;
    else
        push_word(m, bytes == 8 ? word : word & ((1ull << 8 * bytes) - 1));
}

static void jump_operation(struct machine *m, bool really)
{
    const int16_t by = (int16_t)gs_take(&m->code, 2);
    if (!really || m->code.bad) return;
    const ptrdiff_t to = m->code.at - m->begin + by;
    if (to < 0 || to > m->code.end - m->begin)
        m->code.bad = true;
    else
        m->code.at = m->begin + to;
}

static void shuffle_stack(struct machine *m, uint8_t op)
{
    const uint64_t a = op == OP_PICK ? peek_word(m, gs_take(&m->code, 1)) : peek_word(m, op == OP_OVER);
    if (op == OP_DUP || op == OP_OVER || op == OP_PICK) {
        push_word(m, a);
        return;
    }
    pop_word(m);
    if (op == OP_DROP) return;
    const uint64_t b = pop_word(m);
    if (op == OP_SWAP) {
        push_word(m, a);
        push_word(m, b);
        return;
    }
    const uint64_t c = pop_word(m);
    push_word(m, a);
    push_word(m, c);
    push_word(m, b);
}

static uint64_t of_two(uint8_t op, uint64_t a, uint64_t b)
{
    const int64_t x = (int64_t)a, y = (int64_t)b;
    switch (op) {
    case OP_AND: return a & b;
    case OP_DIV: return y == 0 ? 0 : y == -1 ? 0 - a : (uint64_t)(x / y);
    case OP_MINUS: return a - b;
    case OP_MOD: return b ? a % b : 0;
    case OP_MUL: return a * b;
    case OP_OR: return a | b;
    case OP_PLUS: return a + b;
    case OP_SHL: return b < 64 ? a << b : 0;
    case OP_SHR: return b < 64 ? a >> b : 0;
    case OP_SHRA: return (uint64_t)(x >> (b < 64 ? b : 63));
    case OP_XOR: return a ^ b;
    case OP_EQ: return x == y;
    case OP_GE: return x >= y;
    case OP_GT: return x > y;
    case OP_LE: return x <= y;
    case OP_LT: return x < y;
    default: return x != y;
    }
}

static void compute_operation(struct machine *m, uint8_t op)
{
    const uint64_t top = pop_word(m);
    switch (op) {
    case OP_ABS: push_word(m, (int64_t)top < 0 ? 0 - top : top); return;
    case OP_NEG: push_word(m, 0 - top); return;
    case OP_NOT: push_word(m, ~top); return;
    case OP_PLUS_UCONST: push_word(m, top + gs_take_uleb(&m->code)); return;
    default: push_word(m, of_two(op, pop_word(m), top)); return;
    }
}

static void run_op(struct machine *m, uint8_t op)
{
    if (op >= OP_LIT0 && op <= OP_LIT31)
        push_word(m, op - OP_LIT0);
    else if (op >= OP_BREG0 && op <= OP_BREG31)
        push_register(m, op - OP_BREG0);
    else if (op == OP_BREGX)
        push_register(m, gs_take_uleb(&m->code));
    else if (op == OP_ADDR)
        push_word(m, gs_take(&m->code, sizeof(uintptr_t)));
    else if (op >= OP_CONST1U && op <= OP_CONST8S)
        push_constant(m, op);
    else if (op == OP_CONSTU)
        push_word(m, gs_take_uleb(&m->code));
    else if (op == OP_CONSTS)
        push_word(m, (uint64_t)gs_take_sleb(&m->code));
    else if (op == OP_DEREF)
        dereference_top(m, sizeof(uintptr_t));
    else if (op == OP_DEREF_SIZE)
        dereference_top(m, gs_take(&m->code, 1));
    else if (op >= OP_DUP && op <= OP_ROT)
        shuffle_stack(m, op);
    else if (op == OP_SKIP)
        jump_operation(m, true);
    else if (op == OP_BRA)
        jump_operation(m, pop_word(m) != 0);
    else if (op >= OP_ABS && op <= OP_NE)
        compute_operation(m, op);
    else if (op != OP_NOP)
        m->code.bad = true;
}

/* `first`: the expression's initial stack, NULL for empty. */
static enum gs_cfi_result evaluate_expression(const struct gs_cfi_rule *rule, const struct gs_registers *registers,
                                              struct gs_memory *memory, const uintptr_t *first, uintptr_t *value)
{
    struct machine m = {.code = {rule->expression, rule->expression + rule->bytes, false},
                        .begin = rule->expression,
                        .registers = registers,
                        .memory = memory};
    if (first) push_word(&m, *first);
    uint32_t steps = 0;
    while (m.code.at < m.code.end && !m.code.bad && steps++ < STEPS) run_op(&m, (uint8_t)gs_take(&m.code, 1));
    if (m.unknown) return GS_CFI_UNKNOWN;
    if (m.code.bad || m.code.at < m.code.end || !m.depth) return GS_CFI_DAMAGED;
    *value = m.stack[m.depth - 1];
    return GS_CFI_OK;
}

/* --- rules ------------------------------------------------------------------------------------ */

struct caller {
    const struct gs_registers *frame;
    struct gs_memory *memory;
    uintptr_t cfa;
};

static enum gs_cfi_result read_from(const struct caller *c, uintptr_t at, uintptr_t *value, uintptr_t *place)
{
    *place = at;
    return gs_memory_word(c->memory, at, value) ? GS_CFI_OK : GS_CFI_DAMAGED;
}

/* The caller's value of a register, and where it was on the stack, 0 if nowhere. */
static enum gs_cfi_result register_value_of(const struct caller *c, const struct gs_cfi_rule *rule, unsigned reg,
                                            uintptr_t *value, uintptr_t *place)
{
    enum gs_cfi_result result;
    uintptr_t at;
    *place = 0;
    switch (rule->how) {
    case GS_CFI_SAME:
        *value = reg == GS_REG_SP ? c->cfa : c->frame->value[reg];
        return reg == GS_REG_SP || gs_register_known(c->frame, reg) ? GS_CFI_OK : GS_CFI_UNKNOWN;
    case GS_CFI_AT: return read_from(c, c->cfa + (uintptr_t)rule->offset, value, place);
    case GS_CFI_PLUS: *value = c->cfa + (uintptr_t)rule->offset; return GS_CFI_OK;
    case GS_CFI_REGISTER:
        if ((uint64_t)rule->offset >= GS_REGS) return GS_CFI_DAMAGED;
        *value = c->frame->value[rule->offset];
        return gs_register_known(c->frame, (unsigned)rule->offset) ? GS_CFI_OK : GS_CFI_UNKNOWN;
    case GS_CFI_EXPRESSION: return evaluate_expression(rule, c->frame, c->memory, &c->cfa, value);
    case GS_CFI_AT_EXPRESSION:
        result = evaluate_expression(rule, c->frame, c->memory, &c->cfa, &at);
        return result == GS_CFI_OK ? read_from(c, at, value, place) : result;
    default: return GS_CFI_END;
    }
}

static enum gs_cfi_result cfa_of(const struct gs_cfi_rule *rule, const struct gs_registers *frame,
                                 struct gs_memory *memory, uintptr_t *cfa)
{
    if (rule->how == GS_CFI_EXPRESSION) return evaluate_expression(rule, frame, memory, NULL, cfa);
    if (rule->how != GS_CFI_PLUS || rule->reg >= GS_REGS) return GS_CFI_DAMAGED;
    if (!gs_register_known(frame, rule->reg)) return GS_CFI_UNKNOWN;
    *cfa = frame->value[rule->reg] + (uintptr_t)rule->offset;
    return GS_CFI_OK;
}

enum gs_cfi_result gs_cfi_apply(const struct gs_cfi_row *row, struct gs_registers *registers, struct gs_memory *memory,
                                uintptr_t *place)
{
    const struct gs_registers frame = *registers;
    struct caller c = {.frame = &frame, .memory = memory};
    enum gs_cfi_result result = cfa_of(&row->cfa, &frame, memory, &c.cfa);
    if (result != GS_CFI_OK) return result;
    registers->known = 0;
    for (unsigned reg = 0; reg < GS_REGS; reg++) {
        uintptr_t at;
        result = register_value_of(&c, &row->reg[reg], reg, &registers->value[reg], &at);
        if (result == GS_CFI_OK)
            registers->known |= 1u << reg;
        else if (reg == GS_REG_RA || reg == GS_REG_SP)
            return result;
        else if (reg == GS_REG_FP && result == GS_CFI_UNKNOWN && gs_register_known(&frame, reg))
            return result;
        if (reg == GS_REG_RA) *place = at;
    }
    registers->pc = registers->value[GS_REG_RA];
    return GS_CFI_OK;
}
