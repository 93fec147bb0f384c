#include "interpose/stack_unwind.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include "interpose/stack_bytes.h"

#define WORD sizeof(uintptr_t)
#define SWITCHES 8u

/* Addresses of code are below it, even if a return address is signed. */
#define CODE_END (1ull << 48)

/* --- the machine ------------------------------------------------------------------------------ */

#if defined(__x86_64__)

/* mov $15, %rax; syscall */
static const uint8_t sigreturn[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};

/* What the kernel saved when it called the handler, from the stack pointer on: the ucontext, whose
 * registers are r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip. */
#define SAVED_AT 40u
static const uint8_t saved_register[GS_REGS] = {13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7, 16};

/* The return address is below the CFA. */
#define RA_OFFSET(rule) (-(intptr_t)WORD)
#define RA_FITS(offset) ((offset) == -(int64_t)WORD)

static inline uintptr_t code_address(uintptr_t address)
{
    return address;
}

#define CALL_PUSHES WORD

/* jmp *word(%rip), perhaps after endbr64, and as bnd jmp. The first entry of a PLT pushes a word before it. */
static bool is_stub(uintptr_t at, struct gs_segment code, unsigned *pushed)
{
    static const uint8_t endbr[] = {0xf3, 0x0f, 0x1e, 0xfa};
    const uint8_t *p = (const uint8_t *)at;
    if (code.hi - at < sizeof endbr + 3) return false;
    *pushed = at - code.lo >= 6 && p[-6] == 0xff && p[-5] == 0x35 ? WORD : 0;
    if (!memcmp(p, endbr, sizeof endbr)) p += sizeof endbr;
    p += *p == 0xf2;
    return p[0] == 0xff && p[1] == 0x25;
}

/* The registers at this instruction. */
#define READ_REGISTERS(r)                                                                     \
    do {                                                                                      \
        __asm__ volatile("movq %%rbx, 24(%0)\n\tmovq %%rbp, 48(%0)\n\tmovq %%rsp, 56(%0)\n\t" \
                         "movq %%r12, 96(%0)\n\tmovq %%r13, 104(%0)\n\t"                      \
                         "movq %%r14, 112(%0)\n\tmovq %%r15, 120(%0)\n\t"                     \
                         "leaq 0f(%%rip), %%rax\n0:\tmovq %%rax, 128(%0)"                     \
                         :                                                                    \
                         : "r"((r)->value)                                                    \
                         : "rax", "memory");                                                  \
        (r)->known = 1u << 3 | 1u << 6 | 1u << 7 | 0xfu << 12 | 1u << 16;                     \
    } while (0)

#elif defined(__aarch64__)

/* mov x8, #139; svc #0 */
static const uint8_t sigreturn[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4};

/* From the stack pointer on: siginfo, ucontext, and in it x0..x30, sp, pc. */
#define SAVED_AT 312u
static const uint8_t saved_register[GS_REGS] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
#define SAVED_PC 32u

#define RA_OFFSET(rule) ((intptr_t)(rule).ra * (intptr_t)WORD)
#define RA_FITS(offset) true

/* Removes the signature that a protected function adds to its return address. */
static inline uintptr_t code_address(uintptr_t address)
{
    register uintptr_t x30 __asm__("x30") = address;
    __asm__("hint #7" : "+r"(x30)); /* xpaclri */
    return x30;
}

#define CALL_PUSHES 0u

/* These instructions in this order, some or all of them. The first entry of a PLT pushes two words before them. */
static bool is_stub(uintptr_t at, struct gs_segment code, unsigned *pushed)
{
    static const struct {
        uint32_t mask, is;
    } part[] = {
        {~0u, 0xd503245f},        /* bti c */
        {0x9f00001f, 0x90000010}, /* adrp x16, page */
        {0xffc003ff, 0xf9400211}, /* ldr x17, [x16, #n] */
        {0xffc003ff, 0x91000210}, /* add x16, x16, #n */
        {~0u, 0xd503219f},        /* autia1716 */
        {~0x20u, 0xd61f0200},     /* br x16; br x17 */
    };
    enum { PARTS = sizeof part / sizeof *part };
    const uint32_t push = 0xa9bf7bf0, *word = (const uint32_t *)at; /* stp x16, x30, [sp, #-16]! */
    unsigned n = 0, matching = 0;
    if (at % sizeof *word || code.hi - at < sizeof part) return false;
    for (; n < PARTS; n++) matching += (word[matching] & part[n].mask) == part[n].is;
    *pushed = 0;
    for (n = 1; n <= 3 && at - code.lo >= n * sizeof *word; n++)
        if (word[-(int)n] == push) *pushed = 2 * WORD;
    return matching && (word[matching - 1] & part[PARTS - 1].mask) == part[PARTS - 1].is;
}

#define READ_REGISTERS(r)                                                                         \
    do {                                                                                          \
        __asm__ volatile("stp x19, x20, [%0, #152]\n\tstp x21, x22, [%0, #168]\n\t"               \
                         "stp x23, x24, [%0, #184]\n\tstp x25, x26, [%0, #200]\n\t"               \
                         "stp x27, x28, [%0, #216]\n\tstr x29, [%0, #232]\n\t"                    \
                         "mov x9, sp\n\tstr x9, [%0, #248]\n\tadr x9, 0f\n0:\tstr x9, [%0, #240]" \
                         :                                                                        \
                         : "r"((r)->value)                                                        \
                         : "x9", "memory");                                                       \
        (r)->known = 0x7ffu << 19 | 1u << 30 | 1u << 31;                                          \
    } while (0)

#endif

#if defined(__x86_64__) || defined(__aarch64__)

#ifndef SAVED_PC
#define SAVED_PC saved_register[GS_REG_RA]
#endif

/* --- the table of rules ----------------------------------------------------------------------- */

enum kind {
    UNKNOWN,
    FROM_SP, /* CFA = sp + n */
    FROM_FP, /* CFA = fp + n */
    AT_FP,   /* CFA = *(fp + n): a function that aligned its stack */
    HANDLER, /* a signal handler returns to this code */
    COMPLEX, /* the object's table must be read each time */
    OUTERMOST,
    UNDESCRIBED, /* generated code, or a function without an entry */
};

/* Offsets in words, of the saved frame pointer and return address from the CFA; with AT_FP the frame pointer's offset
 * is from itself. */
union rule {
    uint64_t word;
    struct {
        uint64_t kind : 3, has_fp : 1;
        int64_t cfa : 28, fp : 16, ra : 16;
    };
    struct {
        /* UNDESCRIBED: valid until an object is loaded */
        uint64_t : 4, in_object : 1, keeps_fp : 1, : 26, loads : 32;
    };
};

/* A slot may be read while it is written: its two words must agree. */
#define WAYS 4u
#define SETS_SHIFT 13
static struct {
    _Alignas(64) struct {
        _Atomic uint64_t rule, check; /* check: rule ^ address of the code ^ generation << 48 */
    } way[WAYS];
} rules[1u << SETS_SHIFT];
static _Atomic uint32_t turn;

static inline size_t cached_set_of(uintptr_t pc)
{
    return pc * 0x9e3779b97f4a7c15u >> (64 - SETS_SHIFT);
}

static inline uint64_t cached_rule(uintptr_t pc, uint64_t age)
{
    const size_t set = cached_set_of(pc);
    for (unsigned i = 0; i < WAYS; i++) {
        uint64_t rule = atomic_load_explicit(&rules[set].way[i].rule, memory_order_relaxed);
        uint64_t check = atomic_load_explicit(&rules[set].way[i].check, memory_order_relaxed);
        if ((rule ^ check) == (pc ^ age)) return rule;
    }
    return 0;
}

/* Replaces an entry for the same address or for an unloaded object, otherwise each in turn. */
static void keep_rule(uintptr_t pc, uint64_t age, uint64_t rule)
{
    const size_t set = cached_set_of(pc);
    unsigned to = WAYS;
    for (unsigned i = 0; i < WAYS; i++) {
        const uint64_t was = atomic_load_explicit(&rules[set].way[i].rule, memory_order_relaxed);
        const uint64_t of = was ^ atomic_load_explicit(&rules[set].way[i].check, memory_order_relaxed);
        if (of == (pc ^ age))
            to = i;
        else if (to == WAYS && (!was || (of ^ age) >> 48))
            to = i;
    }
    if (to == WAYS) to = atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % WAYS;
    atomic_store_explicit(&rules[set].way[to].rule, rule, memory_order_relaxed);
    atomic_store_explicit(&rules[set].way[to].check, rule ^ pc ^ age, memory_order_relaxed);
}

/* --- making a rule ---------------------------------------------------------------------------- */

static bool is_words(int64_t offset, int64_t most)
{
    return offset % (int64_t)WORD == 0 && offset / (int64_t)WORD < most && offset / (int64_t)WORD >= -most;
}

/* The offset of an expression that is breg<fp> offset followed by `rest`. */
static bool is_from_fp(const struct gs_cfi_rule *rule, const char *rest, int64_t *offset)
{
    enum { OP_BREG0 = 0x70 };
    struct gs_bytes b = {rule->expression, rule->expression + rule->bytes, false};
    if (gs_take(&b, 1) != OP_BREG0 + GS_REG_FP) return false;
    *offset = gs_take_sleb(&b);
    return !b.bad && (size_t)(b.end - b.at) == strlen(rest) && !memcmp(b.at, rest, strlen(rest));
}

static bool make_cfa(const struct gs_cfi_row *row, union rule *r, int64_t *offset)
{
    *offset = row->cfa.offset;
    r->kind = row->cfa.how != GS_CFI_PLUS ? AT_FP : row->cfa.reg == GS_REG_SP ? FROM_SP : FROM_FP;
    if (row->cfa.how == GS_CFI_PLUS) return row->cfa.reg == GS_REG_SP || row->cfa.reg == GS_REG_FP;
    return is_from_fp(&row->cfa, "\x06", offset);
}

/* False: the row is not that simple. */
static bool make_simple(const struct gs_cfi_row *row, union rule *r)
{
    const struct gs_cfi_rule *fp = &row->reg[GS_REG_FP], *ra = &row->reg[GS_REG_RA];
    int64_t cfa, saved = fp->offset;
    if (row->signal || row->reg[GS_REG_SP].how != GS_CFI_SAME || ra->how != GS_CFI_AT || !make_cfa(row, r, &cfa))
        return false;
    r->has_fp = fp->how != GS_CFI_SAME;
    if (r->kind == AT_FP) {
        if (fp->how != GS_CFI_AT_EXPRESSION || !is_from_fp(fp, "", &saved)) return false;
    } else if (r->has_fp && fp->how != GS_CFI_AT) {
        return false;
    }
    if (!r->has_fp) saved = 0;
    if (!RA_FITS(ra->offset) || !is_words(cfa, 1 << 27) || !is_words(saved, 1 << 15) || !is_words(ra->offset, 1 << 15))
        return false;
    r->cfa = cfa / (int64_t)WORD;
    r->fp = saved / (int64_t)WORD;
    r->ra = ra->offset / (int64_t)WORD;
    return true;
}

static bool returns_from_signal(const struct gs_image *image, uintptr_t at)
{
    struct gs_segment segment;
    return gs_image_segment(image, at, PF_X | PF_R, &segment) && segment.hi - at >= sizeof sigreturn &&
           !memcmp((const void *)at, sigreturn, sizeof sigreturn);
}

/* The row of the object's table. Linkers write none for the PLT of AArch64, for veneers, and lld for any PLT: a signal
 * can interrupt a call there. */
static enum gs_cfi_result find_row(const struct gs_image *image, struct gs_segment code, uintptr_t pc, bool interrupted,
                                   struct gs_cfi_work *work)
{
    unsigned pushed;
    const enum gs_cfi_result result = gs_cfi_find(image, pc, work);
    if (result != GS_CFI_NONE || !interrupted || !gs_image_segment(image, pc, PF_X | PF_R, &code) ||
        !is_stub(pc, code, &pushed))
        return result;
    work->row = (struct gs_cfi_row){
        .cfa = {.how = GS_CFI_PLUS, .reg = GS_REG_SP, .offset = (int64_t)(pushed + CALL_PUSHES)},
        .reg[GS_REG_RA] = {.how = CALL_PUSHES ? GS_CFI_AT : GS_CFI_SAME, .offset = -(int64_t)CALL_PUSHES},
    };
    return GS_CFI_OK;
}

struct request {
    struct gs_unwinder *u;
    uintptr_t pc;
    bool interrupted;
    union rule rule;
    struct gs_registers *registers; /* to be replaced by the caller's; NULL: only the rule is wanted */
    uintptr_t place;
    enum gs_cfi_result result;
};

static struct gs_image image_of(const struct dl_phdr_info *info)
{
    return (struct gs_image){info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum};
}

static void make_rule(const struct dl_phdr_info *info, void *to)
{
    struct request *q = to;
    const struct gs_image image = image_of(info);
    struct gs_segment code;
    union rule r = {0};
    if (!gs_image_segment(&image, q->pc, PF_X, &code)) return;
    const struct gs_cfi_row *row = &q->u->work.row;
    if (!q->interrupted && returns_from_signal(&image, q->pc + 1)) {
        r.kind = HANDLER;
    } else {
        q->result = find_row(&image, code, q->pc, q->interrupted, &q->u->work);
        if (q->result == GS_CFI_NONE)
            r.kind = UNDESCRIBED, r.in_object = 1, r.keeps_fp = gs_elf_is_go(info);
        else if (q->result != GS_CFI_OK || row->reg[GS_REG_RA].how == GS_CFI_UNDEFINED)
            r.kind = OUTERMOST;
        else if (!make_simple(row, &r))
            r = (union rule){.kind = COMPLEX};
    }
    q->rule = r;
}

static __attribute__((noinline)) union rule find_rule(struct gs_unwinder *u, const struct gs_frame *f, uint64_t age)
{
    struct request q = {.u = u, .pc = f->ip - !f->interrupted, .interrupted = f->interrupted, .rule.kind = UNDESCRIBED};
    const int saved = errno;
    gs_module_visit(&u->modules, q.pc, make_rule, &q);
    if (q.rule.kind == UNDESCRIBED) q.rule.loads = atomic_load_explicit(&gs_module_loads, memory_order_relaxed);
    keep_rule(q.pc, age, q.rule.word);
    errno = saved;
    return q.rule;
}

static inline union rule unwind_rule_of(struct gs_unwinder *u, const struct gs_frame *f, uint64_t age)
{
    union rule r = {cached_rule(f->ip - !f->interrupted, age)};
    if (__builtin_expect(r.kind == UNKNOWN, 0) ||
        (__builtin_expect(r.kind == UNDESCRIBED, 0) &&
         r.loads != atomic_load_explicit(&gs_module_loads, memory_order_relaxed)))
        return find_rule(u, f, age);
    return r;
}

/* --- frames that are not simple --------------------------------------------------------------- */

/* What the kernel saved for a signal handler. */
static bool leave_handler(struct gs_unwinder *u, struct gs_registers *registers, uintptr_t sp)
{
    struct gs_memory *m = &u->memory;
    for (unsigned i = 0; i < GS_REGS; i++)
        if (!gs_memory_word(m, sp + SAVED_AT + saved_register[i] * WORD, &registers->value[i])) return false;
    registers->known = (uint32_t)(((uint64_t)1 << GS_REGS) - 1);
    return gs_memory_word(m, sp + SAVED_AT + SAVED_PC * WORD, &registers->pc);
}

static void apply_row(const struct dl_phdr_info *info, void *to)
{
    struct request *q = to;
    const struct gs_image image = image_of(info);
    struct gs_segment code;
    q->result = GS_CFI_NONE;
    if (!gs_image_segment(&image, q->pc, PF_X, &code)) return;
    if (!q->interrupted && returns_from_signal(&image, q->pc + 1)) {
        const bool left = leave_handler(q->u, q->registers, q->registers->value[GS_REG_SP]);
        q->result = left ? GS_CFI_OK : GS_CFI_DAMAGED;
        q->interrupted = left;
        return;
    }
    q->result = find_row(&image, code, q->pc, q->interrupted, &q->u->work);
    if (q->result != GS_CFI_OK) return;
    q->result = gs_cfi_apply(&q->u->work.row, q->registers, &q->u->memory, &q->place);
    q->interrupted = q->u->work.row.signal;
}

/* From any frame's registers to its caller's, by the table only. */
static enum gs_cfi_result apply_rule(struct gs_unwinder *u, struct gs_registers *registers, bool *interrupted,
                                     uintptr_t *place)
{
    struct request q = {.u = u,
                        .registers = registers,
                        .interrupted = *interrupted,
                        .pc = registers->pc - !*interrupted,
                        .result = GS_CFI_NONE};
    if (!gs_module_visit(&u->modules, q.pc, apply_row, &q)) return GS_CFI_NONE;
    *interrupted = q.interrupted;
    *place = q.place;
    return q.result;
}

/* All registers of the frame, which only its callees' entries determine: from here up to it. */
static __attribute__((noinline)) bool find_registers(struct gs_unwinder *u, const struct gs_frame *f,
                                                     struct gs_registers *registers)
{
    bool interrupted = true;
    uintptr_t place;
    READ_REGISTERS(registers);
    registers->pc = registers->value[GS_REG_RA];
    for (unsigned i = 0; i < 2 * GS_UNWIND_MAX; i++) {
        if (apply_rule(u, registers, &interrupted, &place) != GS_CFI_OK) return false;
        registers->pc = code_address(registers->pc);
        if (registers->value[GS_REG_SP] == f->sp && registers->pc == f->ip) return true;
    }
    return false;
}

static bool leave_complex(struct gs_unwinder *u, struct gs_frame *f)
{
    bool interrupted = f->interrupted; /* where it would return to is then not known yet */
    struct gs_registers r = {.known = 1u << GS_REG_FP | 1u << GS_REG_SP | (uint32_t)!interrupted << GS_REG_RA,
                             .pc = f->ip};
    uintptr_t place = 0;
    r.value[GS_REG_FP] = f->fp;
    r.value[GS_REG_SP] = f->sp;
    r.value[GS_REG_RA] = f->ip;
    enum gs_cfi_result result = apply_rule(u, &r, &interrupted, &place);
    if (result == GS_CFI_UNKNOWN) {
        interrupted = f->interrupted;
        result = find_registers(u, f, &r) ? apply_rule(u, &r, &interrupted, &place) : GS_CFI_UNKNOWN;
    }
    if (result != GS_CFI_OK) return false;
    *f = (struct gs_frame){.ip = r.pc,
                           .sp = r.value[GS_REG_SP],
                           .place = place,
                           .fp = gs_register_known(&r, GS_REG_FP) ? r.value[GS_REG_FP] : 0,
                           .interrupted = interrupted};
    return true;
}

static bool leave_simple(struct gs_unwinder *u, struct gs_frame *f, union rule r)
{
    struct gs_memory *m = &u->memory;
    uintptr_t cfa = (r.kind == FROM_SP ? f->sp : f->fp) + (uintptr_t)((int64_t)r.cfa * (int64_t)WORD);
    uintptr_t fp = f->fp, from = f->fp, fp_place = f->fp_place;
    if (r.kind != AT_FP)
        from = cfa;
    else if (!gs_memory_word(m, cfa, &cfa))
        return false;
    if (r.has_fp) fp_place = from + (uintptr_t)((int64_t)r.fp * (int64_t)WORD);
    if (r.has_fp && !gs_memory_word(m, fp_place, &fp)) return false;
    const uintptr_t place = cfa + (uintptr_t)RA_OFFSET(r);
    *f = (struct gs_frame){.sp = cfa, .fp = fp, .place = place, .fp_place = fp_place};
    return gs_memory_word(m, place, &f->ip);
}

/* Generated code mostly keeps a frame pointer. Whether this code does becomes clear further up; at least it is on the
 * same stack. Go's functions always keep one, also in the assembly function that calls C on the thread's stack: it is
 * that of its caller, on the goroutine's stack (https://go.dev/s/regabi, src/runtime/asm_amd64.s: asmcgocall). */
static bool leave_undescribed(struct gs_unwinder *u, struct gs_frame *f, union rule r)
{
    uintptr_t fp, ip, lo, hi;
    const bool same_stack = f->fp >= f->sp && gs_memory_around(&u->memory, f->sp, &lo, &hi) && f->fp - lo < hi - lo;
    if (!f->fp || f->fp % WORD || (!same_stack && !r.keeps_fp) || !gs_memory_word(&u->memory, f->fp, &fp) ||
        !gs_memory_word(&u->memory, f->fp + WORD, &ip))
        return false;
    *f = (struct gs_frame){.ip = ip, .sp = f->fp + 2 * WORD, .fp = fp, .place = f->fp + WORD, .fp_place = f->fp};
    return true;
}

static bool leave_signal(struct gs_unwinder *u, struct gs_frame *f)
{
    struct gs_registers r;
    if (!leave_handler(u, &r, f->sp)) return false;
    *f = (struct gs_frame){.ip = r.pc, .sp = r.value[GS_REG_SP], .fp = r.value[GS_REG_FP], .interrupted = true};
    return true;
}

/* Any frame. The caller's is further up on the same stack, or on another one. */
static __attribute__((noinline)) bool leave_frame(struct gs_unwinder *u, struct gs_frame *f, union rule r)
{
    const uintptr_t sp = f->sp;
    const bool leaf = f->interrupted;
    uintptr_t lo = 0, hi = 0;
    bool left = false;
    switch (r.kind) {
    case FROM_SP:
    case FROM_FP:
    case AT_FP: left = leave_simple(u, f, r); break;
    case HANDLER: left = leave_signal(u, f); break;
    case COMPLEX: left = leave_complex(u, f); break;
    case UNDESCRIBED: left = leave_undescribed(u, f, r); break;
    default: break;
    }
    if (!left) return false;
    gs_memory_around(&u->memory, sp, &lo, &hi);
    if (f->sp > sp || (f->sp == sp && leaf)) /* AArch64's leaf functions save nothing on the stack */
        return f->sp - lo < hi - lo || f->sp == hi || u->switches-- != 0;
    return (r.kind == HANDLER || f->sp - lo >= hi - lo) && u->switches-- != 0;
}

/* --- all frames ------------------------------------------------------------------------------- */

/* The known part of the stack. */
struct span {
    uintptr_t lo, hi;
};

/* The common kind of frame. False: it is another kind. */
static inline __attribute__((always_inline)) bool leave_fast(struct gs_frame *f, union rule r, struct span s)
{
    if (r.kind != FROM_SP && r.kind != FROM_FP) return false;
    const uintptr_t cfa = (r.kind == FROM_SP ? f->sp : f->fp) + (uintptr_t)((int64_t)r.cfa * (int64_t)WORD);
    const uintptr_t place = cfa + (uintptr_t)RA_OFFSET(r);
    const uintptr_t saved = r.has_fp ? cfa + (uintptr_t)((int64_t)r.fp * (int64_t)WORD) : place;
    if (cfa <= f->sp || place - s.lo >= s.hi - s.lo || saved - s.lo >= s.hi - s.lo) return false;
    f->ip = gs_memory_load(place);
    f->fp = r.has_fp ? gs_memory_load(saved) : f->fp;
    f->fp_place = r.has_fp ? saved : f->fp_place;
    f->sp = cfa;
    f->place = place;
    f->interrupted = false;
    return true;
}

/* What leaving the frame depends on. */
static inline uintptr_t held_by(const struct gs_frame *f, union rule r)
{
    if (r.kind == FROM_SP) return 0;
    return (r.kind == FROM_FP || r.kind == UNDESCRIBED) && f->fp_place ? f->fp_place : GS_HELD_UNKNOWN;
}

static struct span span_at(struct gs_unwinder *u, uintptr_t sp)
{
    struct span s = {0, 0};
    if (gs_memory_around(&u->memory, sp, &s.lo, &s.hi))
        s.hi -= WORD - 1; /* so that a word that begins before the end also ends before it */
    return s;
}

__attribute__((no_sanitize("address", "thread"))) uint32_t gs_unwind(struct gs_unwinder *u, struct gs_frame f,
                                                                     struct gs_elf_range stop, uint32_t max)
{
    const uint64_t age = (uint64_t)atomic_load_explicit(&gs_module_generation, memory_order_acquire) << 48;
    struct span s = span_at(u, f.sp);
    uint32_t n = 0, sure = 0; /* the number of frames before one that was guessed */
    bool guessed = false;
    u->switches = SWITCHES;
    for (;;) {
        f.ip = code_address(f.ip);
        if (!f.ip || f.ip >= CODE_END) break;
        u->address[n] = f.ip + f.interrupted;
        u->place[n++] = f.interrupted ? 0 : f.place;
        const bool stops = f.ip - stop.lo < stop.hi - stop.lo;
        if (stops || n >= max) {
            guessed &= !stops;
            break;
        }
        const union rule r = unwind_rule_of(u, &f, age);
        u->held[n - 1] = held_by(&f, r);
        if (__builtin_expect(r.kind == UNDESCRIBED && !r.keeps_fp, 0)) {
            guessed &= !r.in_object;
            sure = guessed ? sure : n;
            guessed = true;
        } else {
            guessed = false;
        }
        if (__builtin_expect(leave_fast(&f, r, s), 1)) continue;
        if (!leave_frame(u, &f, r)) break;
        s = span_at(u, f.sp);
    }
    return guessed ? sure : n;
}

#else

uint32_t gs_unwind(struct gs_unwinder *u, struct gs_frame from, struct gs_elf_range stop, uint32_t max)
{
    return 0;
}

#endif
