/* Finds the entry of an instruction (.eh_frame_hdr, .eh_frame) and runs its program up to that instruction.
 * stack_cfi_apply.c evaluates the resulting rules. */
#include "interpose/stack_cfi.h"

#include <stddef.h>
#include "interpose/stack_bytes.h"

/* How an address is encoded: the low four bits are the format, the next three what it is relative to. */
enum {
    PE_ABSOLUTE = 0x00,
    PE_UDATA4 = 0x03,
    PE_SDATA4 = 0x0b,
    PE_FORMAT = 0x0f,
    PE_PC_RELATIVE = 0x10,
    PE_DATA_RELATIVE = 0x30,
    PE_RELATIVE = 0x70,
    PE_INDIRECT = 0x80,
    PE_OMITTED = 0xff,
};

bool gs_image_segment(const struct gs_image *image, uintptr_t address, uint32_t flags, struct gs_segment *segment)
{
    for (unsigned i = 0; i < image->phnum; i++) {
        const ElfW(Phdr) *p = &image->phdr[i];
        const uintptr_t lo = image->bias + p->p_vaddr;
        if (p->p_type != PT_LOAD || (p->p_flags & flags) != flags || address - lo >= p->p_filesz) continue;
        segment->lo = lo;
        segment->hi = lo + p->p_filesz;
        return true;
    }
    return false;
}

static bool bytes_at(const struct gs_image *image, uintptr_t address, struct gs_bytes *b)
{
    struct gs_segment segment;
    if (!gs_image_segment(image, address, PF_R, &segment)) return false;
    *b = (struct gs_bytes){(const uint8_t *)address, (const uint8_t *)segment.hi, false};
    return true;
}

/* --- entries ---------------------------------------------------------------------------------- */

/* `data`: what a data-relative address is relative to. */
static uintptr_t take_address(struct gs_bytes *b, uint8_t encoding, uintptr_t data)
{
    static const struct {
        uint8_t bytes, is_signed; /* 0 bytes: a number of variable length */
    } formats[16] = {[0] = {8, 0},   [1] = {0, 0},   [2] = {2, 0},   [3] = {4, 0},  [4] = {8, 0}, [9] = {0, 1},
                     [0xa] = {2, 1}, [0xb] = {4, 1}, [0xc] = {8, 1}, [5] = {9, 0},  [6] = {9, 0}, [7] = {9, 0},
                     [8] = {9, 0},   [0xd] = {9, 0}, [0xe] = {9, 0}, [0xf] = {9, 0}};
    const uintptr_t here = (uintptr_t)b->at;
    const uint8_t bytes = formats[encoding & PE_FORMAT].bytes;
    const bool is_signed = formats[encoding & PE_FORMAT].is_signed;
    if (encoding == PE_OMITTED) return 0;
    if (bytes > 8) {
        b->bad = true;
        return 0;
    }
    uint64_t value = bytes ? gs_take(b, bytes) : is_signed ? (uint64_t)gs_take_sleb(b) : gs_take_uleb(b);
    if (bytes && bytes < 8 && is_signed) value = (uint64_t)((int64_t)(value << (64 - 8 * bytes)) >> (64 - 8 * bytes));
    switch (encoding & PE_RELATIVE) {
    case PE_ABSOLUTE: return value;
    case PE_PC_RELATIVE: return value + here;
    case PE_DATA_RELATIVE: return value + data;
    default: b->bad = true; return 0;
    }
}

struct entry {
    uintptr_t begin, end;        /* of the code that it describes */
    struct gs_bytes common, own; /* programs */
    uint64_t code_unit;
    int64_t data_unit;
    uint8_t encoding;
    bool augmented, signal;
};

/* The body of the record, after its length and before the next record. A length of 0 ends the table. */
static bool take_record(struct gs_bytes *b, struct gs_bytes *body)
{
    const uint64_t length = gs_take(b, 4);
    if (b->bad || !length || length == 0xffffffff || length > (size_t)(b->end - b->at)) return false;
    *body = (struct gs_bytes){b->at, b->at + length, false};
    b->at += length;
    return true;
}

static bool parse_augmentation(struct gs_bytes *b, const uint8_t *letters, struct entry *e)
{
    const uint64_t length = gs_take_uleb(b);
    struct gs_bytes data = {b->at, b->at, false};
    gs_skip(b, length);
    data.end = b->at;
    e->augmented = true;
    for (; *letters && !data.bad && !b->bad; letters++)
        if (*letters == 'R')
            e->encoding = (uint8_t)gs_take(&data, 1);
        else if (*letters == 'P')
            take_address(&data, (uint8_t)gs_take(&data, 1) & ~PE_INDIRECT & 0xff, 0);
        else if (*letters == 'L')
            gs_take(&data, 1);
        else if (*letters == 'S')
            e->signal = true;
        else if (*letters != 'B') /* return addresses are signed: all are assumed to be */
            return false;
    return !data.bad && !b->bad;
}

/* What entries have in common: a CIE. */
static bool parse_common(const struct gs_image *image, uintptr_t at, struct entry *e)
{
    struct gs_bytes b, body;
    if (!bytes_at(image, at, &b) || !take_record(&b, &body) || gs_take(&body, 4) != 0) return false;
    const uint64_t version = gs_take(&body, 1);
    const uint8_t *letters = body.at;
    while (gs_take(&body, 1)) continue;
    if (body.bad || (version != 1 && version != 3)) return false;
    e->code_unit = gs_take_uleb(&body);
    e->data_unit = gs_take_sleb(&body);
    const uint64_t returns = version == 1 ? gs_take(&body, 1) : gs_take_uleb(&body);
    e->encoding = PE_ABSOLUTE;
    if (returns != GS_REG_RA || (*letters && *letters != 'z') ||
        (*letters && !parse_augmentation(&body, letters + 1, e)))
        return false;
    e->common = body;
    return !body.bad;
}

/* An entry for code: an FDE. NONE: it is not one, or not for this instruction. */
static enum gs_cfi_result parse_entry(const struct gs_image *image, struct gs_bytes body, uintptr_t pc, struct entry *e)
{
    *e = (struct entry){0};
    const uintptr_t from = (uintptr_t)body.at;
    const uint64_t back = gs_take(&body, 4);
    if (body.bad) return GS_CFI_DAMAGED;
    if (!back) return GS_CFI_NONE;
    if (!parse_common(image, from - back, e)) return GS_CFI_DAMAGED;
    e->begin = take_address(&body, e->encoding, 0);
    e->end = e->begin + take_address(&body, e->encoding & PE_FORMAT, 0);
    if (e->augmented) gs_skip(&body, gs_take_uleb(&body));
    if (body.bad || e->encoding & PE_INDIRECT) return GS_CFI_DAMAGED;
    e->own = body;
    return pc >= e->begin && pc < e->end ? GS_CFI_OK : GS_CFI_NONE;
}

/* --- finding the entry ------------------------------------------------------------------------ */

static enum gs_cfi_result search_all(const struct gs_image *image, uintptr_t table, uintptr_t pc, struct entry *e)
{
    struct gs_bytes b, body;
    if (!bytes_at(image, table, &b)) return GS_CFI_NONE;
    while (take_record(&b, &body))
        if (parse_entry(image, body, pc, e) == GS_CFI_OK) return GS_CFI_OK;
    return GS_CFI_NONE;
}

static int32_t cfi_word_at(const uint8_t *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Rows of two offsets from the header: an address of code, and its entry. */
static enum gs_cfi_result search_sorted(const struct gs_image *image, uintptr_t header, const uint8_t *rows,
                                        size_t count, uintptr_t pc, struct entry *e)
{
    size_t lo = 0, hi = count;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (header + (uintptr_t)(intptr_t)cfi_word_at(rows + mid * 8) <= pc)
            lo = mid + 1;
        else
            hi = mid;
    }
    struct gs_bytes b, body;
    if (!lo) return GS_CFI_NONE;
    if (!bytes_at(image, header + (uintptr_t)(intptr_t)cfi_word_at(rows + lo * 8 - 4), &b) || !take_record(&b, &body))
        return GS_CFI_DAMAGED;
    return parse_entry(image, body, pc, e);
}

static enum gs_cfi_result search_cfi(const struct gs_image *image, uintptr_t pc, struct entry *e)
{
    uintptr_t header = 0;
    for (unsigned i = 0; i < image->phnum; i++)
        if (image->phdr[i].p_type == PT_GNU_EH_FRAME) header = image->bias + image->phdr[i].p_vaddr;
    struct gs_bytes b;
    if (!header || !bytes_at(image, header, &b)) return GS_CFI_NONE;
    const uint64_t version = gs_take(&b, 1);
    const uint8_t to_table = (uint8_t)gs_take(&b, 1), of_count = (uint8_t)gs_take(&b, 1);
    const uint8_t of_rows = (uint8_t)gs_take(&b, 1);
    const uintptr_t table = take_address(&b, to_table, header);
    if (b.bad || version != 1) return GS_CFI_DAMAGED;
    if (of_count == PE_OMITTED || of_rows != (PE_DATA_RELATIVE | PE_SDATA4)) return search_all(image, table, pc, e);
    const uint64_t count = take_address(&b, of_count, header);
    if (b.bad || count > (size_t)(b.end - b.at) / 8) return GS_CFI_DAMAGED;
    return search_sorted(image, header, b.at, count, pc, e);
}

/* --- running its program ---------------------------------------------------------------------- */

struct run {
    const struct entry *e;
    struct gs_cfi_work *w;
    uintptr_t pc, at;
    uint32_t remembered;
    bool is_common, reached; /* at the place */
    struct gs_cfi_rule nowhere;
};

static void advance_row(struct run *r, uint64_t units)
{
    r->at += units * r->e->code_unit;
    r->reached = r->at > r->pc;
}

/* Where the rule for the register is stored; NULL for registers that are not followed. */
static struct gs_cfi_rule *cfi_rule_of(struct run *r, uint64_t reg)
{
    return reg < GS_REGS ? &r->w->row.reg[reg] : &r->nowhere;
}

static void set_rule(struct run *r, uint64_t reg, enum gs_cfi_how how, int64_t offset)
{
    *cfi_rule_of(r, reg) = (struct gs_cfi_rule){.how = (uint8_t)how, .offset = offset};
}

static void set_expression(struct gs_bytes *b, struct gs_cfi_rule *rule, enum gs_cfi_how how)
{
    const uint64_t bytes = gs_take_uleb(b);
    const uint8_t *expression = b->at;
    gs_skip(b, bytes);
    *rule = (struct gs_cfi_rule){.how = (uint8_t)how, .bytes = (uint32_t)bytes, .expression = expression};
}

static void set_cfa(struct run *r, uint64_t reg, int64_t offset)
{
    r->w->row.cfa =
        (struct gs_cfi_rule){.how = GS_CFI_PLUS, .reg = reg < GS_REGS ? (uint8_t)reg : UINT8_MAX, .offset = offset};
}

static void restore_rule(struct run *r, uint64_t reg)
{
    const struct gs_cfi_rule same = {0};
    *cfi_rule_of(r, reg) = !r->is_common && reg < GS_REGS ? r->w->initial.reg[reg] : same;
}

static bool remember_state(struct run *r)
{
    if (r->remembered == GS_CFI_REMEMBERED) return false;
    r->w->remembered[r->remembered++] = r->w->row;
    return true;
}

static bool recall_state(struct run *r)
{
    if (!r->remembered) return false;
    r->w->row = r->w->remembered[--r->remembered];
    return true;
}

/* DW_CFA_*, except those with an operand in their own byte. */
enum {
    CFA_NOP,
    CFA_SET_LOC,
    CFA_ADVANCE_LOC1,
    CFA_ADVANCE_LOC2,
    CFA_ADVANCE_LOC4,
    CFA_OFFSET_EXTENDED,
    CFA_RESTORE_EXTENDED,
    CFA_UNDEFINED,
    CFA_SAME_VALUE,
    CFA_REGISTER,
    CFA_REMEMBER_STATE,
    CFA_RESTORE_STATE,
    CFA_DEF_CFA,
    CFA_DEF_CFA_REGISTER,
    CFA_DEF_CFA_OFFSET,
    CFA_DEF_CFA_EXPRESSION,
    CFA_EXPRESSION,
    CFA_OFFSET_EXTENDED_SF,
    CFA_DEF_CFA_SF,
    CFA_DEF_CFA_OFFSET_SF,
    CFA_VAL_OFFSET,
    CFA_VAL_OFFSET_SF,
    CFA_VAL_EXPRESSION,
    CFA_NEGATE_RA_STATE = 0x2d, /* AArch64: every return address is assumed to be signed */
    CFA_GNU_ARGS_SIZE = 0x2e,
    CFA_GNU_NEGATIVE_OFFSET = 0x2f,
};

static int64_t read_scaled(struct run *r, struct gs_bytes *b)
{
    return (int64_t)(gs_take_uleb(b) * (uint64_t)r->e->data_unit);
}

static int64_t scaled_signed(struct run *r, struct gs_bytes *b)
{
    return (int64_t)((uint64_t)gs_take_sleb(b) * (uint64_t)r->e->data_unit);
}

/* Where the CFA is. */
static bool define_cfa(struct run *r, struct gs_bytes *b, uint8_t what)
{
    struct gs_cfi_rule *cfa = &r->w->row.cfa;
    uint64_t reg;
    switch (what) {
    case CFA_DEF_CFA:
        reg = gs_take_uleb(b);
        set_cfa(r, reg, (int64_t)gs_take_uleb(b));
        break;
    case CFA_DEF_CFA_SF:
        reg = gs_take_uleb(b);
        set_cfa(r, reg, scaled_signed(r, b));
        break;
    case CFA_DEF_CFA_REGISTER: set_cfa(r, gs_take_uleb(b), cfa->how == GS_CFI_PLUS ? cfa->offset : 0); break;
    case CFA_DEF_CFA_OFFSET: cfa->offset = (int64_t)gs_take_uleb(b); return cfa->how == GS_CFI_PLUS;
    case CFA_DEF_CFA_OFFSET_SF: cfa->offset = scaled_signed(r, b); return cfa->how == GS_CFI_PLUS;
    case CFA_DEF_CFA_EXPRESSION: set_expression(b, cfa, GS_CFI_EXPRESSION); break;
    default: return false;
    }
    return true;
}

/* Where a register is. */
static bool define_register(struct run *r, struct gs_bytes *b, uint8_t what)
{
    const uint64_t reg = gs_take_uleb(b);
    switch (what) {
    case CFA_OFFSET_EXTENDED: set_rule(r, reg, GS_CFI_AT, read_scaled(r, b)); break;
    case CFA_OFFSET_EXTENDED_SF: set_rule(r, reg, GS_CFI_AT, scaled_signed(r, b)); break;
    case CFA_GNU_NEGATIVE_OFFSET: set_rule(r, reg, GS_CFI_AT, -read_scaled(r, b)); break;
    case CFA_RESTORE_EXTENDED: restore_rule(r, reg); break;
    case CFA_UNDEFINED: set_rule(r, reg, GS_CFI_UNDEFINED, 0); break;
    case CFA_SAME_VALUE: set_rule(r, reg, GS_CFI_SAME, 0); break;
    case CFA_REGISTER: set_rule(r, reg, GS_CFI_REGISTER, (int64_t)gs_take_uleb(b)); break;
    case CFA_EXPRESSION: set_expression(b, cfi_rule_of(r, reg), GS_CFI_AT_EXPRESSION); break;
    case CFA_VAL_EXPRESSION: set_expression(b, cfi_rule_of(r, reg), GS_CFI_EXPRESSION); break;
    case CFA_VAL_OFFSET: set_rule(r, reg, GS_CFI_PLUS, read_scaled(r, b)); break;
    case CFA_VAL_OFFSET_SF: set_rule(r, reg, GS_CFI_PLUS, scaled_signed(r, b)); break;
    default: return false;
    }
    return true;
}

static bool run_one(struct run *r, struct gs_bytes *b)
{
    const uint8_t byte = (uint8_t)gs_take(b, 1), low = byte & 0x3f;
    switch (byte >> 6) {
    case 1: advance_row(r, low); return true;
    case 2: set_rule(r, low, GS_CFI_AT, read_scaled(r, b)); return true;
    case 3: restore_rule(r, low); return true;
    default: break;
    }
    switch (byte) {
    case CFA_NOP:
    case CFA_NEGATE_RA_STATE: return true;
    case CFA_SET_LOC:
        r->at = take_address(b, r->e->encoding, 0);
        r->reached = r->at > r->pc;
        return true;
    case CFA_ADVANCE_LOC1: advance_row(r, gs_take(b, 1)); return true;
    case CFA_ADVANCE_LOC2: advance_row(r, gs_take(b, 2)); return true;
    case CFA_ADVANCE_LOC4: advance_row(r, gs_take(b, 4)); return true;
    case CFA_GNU_ARGS_SIZE: gs_take_uleb(b); return true;
    case CFA_REMEMBER_STATE: return remember_state(r);
    case CFA_RESTORE_STATE: return recall_state(r);
    case CFA_DEF_CFA:
    case CFA_DEF_CFA_SF:
    case CFA_DEF_CFA_REGISTER:
    case CFA_DEF_CFA_OFFSET:
    case CFA_DEF_CFA_OFFSET_SF:
    case CFA_DEF_CFA_EXPRESSION: return define_cfa(r, b, byte);
    default: return define_register(r, b, byte);
    }
}

static bool run_all(struct run *r, struct gs_bytes b)
{
    while (b.at < b.end && !b.bad && !r->reached)
        if (!run_one(r, &b)) return false;
    return !b.bad;
}

enum gs_cfi_result gs_cfi_find(const struct gs_image *image, uintptr_t pc, struct gs_cfi_work *work)
{
    struct entry e;
    const enum gs_cfi_result found = search_cfi(image, pc, &e);
    if (found != GS_CFI_OK) return found;
    memset(&work->row, 0, sizeof work->row);
    struct run r = {.e = &e, .w = work, .pc = UINTPTR_MAX, .is_common = true};
    if (!run_all(&r, e.common)) return GS_CFI_DAMAGED;
    work->initial = work->row;
    r = (struct run){.e = &e, .w = work, .pc = pc, .at = e.begin};
    if (!run_all(&r, e.own)) return GS_CFI_DAMAGED;
    work->row.signal = e.signal;
    return GS_CFI_OK;
}
