/* The recorder unwinds through an object with damaged or hostile call frame information. The input: two bytes, an
 * address in the code; then a segment that begins with .eh_frame_hdr. */
#include "tests/fuzz/fuzz.h"

#include "interpose/stack_cfi.h"

static struct gs_cfi_work work;

static void ask(const struct gs_image *image, uintptr_t pc, uint32_t known)
{
    struct gs_registers r = {.known = known};
    struct gs_memory memory = {0};
    uintptr_t place = 0, stack[64] = {0};
    for (unsigned i = 0; i < GS_REGS; i++) r.value[i] = (uintptr_t)(stack + i % 8);
    r.value[GS_REG_RA] = pc;
    gs_memory_begin(&memory, (uintptr_t)__builtin_frame_address(0));
    if (gs_cfi_find(image, pc, &work) != GS_CFI_OK) return;
    if (gs_cfi_apply(&work.row, &r, &memory, &place) != GS_CFI_OK) return;
    FUZZ_CHECK(gs_register_known(&r, GS_REG_RA) && gs_register_known(&r, GS_REG_SP), "%x", r.known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes b = {data, size};
    const uint64_t pc = fuzz_number(&b, 2);
    /* of exactly this size, so that sanitizers detect reads past its end */
    uint8_t *segment = malloc(b.left ? b.left : 1);
    FUZZ_CHECK(segment, "no memory");
    memcpy(segment, b.at, b.left);
    const ElfW(Phdr) phdr[] = {
        {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = b.left, .p_memsz = b.left},
        {.p_type = PT_GNU_EH_FRAME, .p_filesz = b.left, .p_memsz = b.left},
    };
    const struct gs_image image = {(uintptr_t)segment, phdr, 2};
    for (uintptr_t at = pc; at < pc + 64; at += 3) ask(&image, (uintptr_t)segment + at, ~0u);
    ask(&image, (uintptr_t)segment + pc, 1u << GS_REG_FP | 1u << GS_REG_SP | 1u << GS_REG_RA);
    free(segment);
    return 0;
}

/* ---------------------------------------------------------------- tables to start from */

static uint8_t table[512];
static size_t used;

static void add(const void *bytes, size_t n)
{
    memcpy(table + used, bytes, n);
    used += n;
}

static void add_word(uint32_t word)
{
    add(&word, 4);
}

/* A table for 64 bytes of code, 256 bytes after the table's begin, with this program. */
static void seed(fuzz_put put, bool sorted, const char *augmentation, const void *program, size_t n)
{
    memset(table, 0, sizeof table);
    used = 0;
    add("\x00\x01", 2); /* the address in the code */
    add(sorted ? "\x01\x1b\x03\x3b" : "\x01\x1b\xff\xff", 4);
    add_word(16); /* offset of the entries */
    add_word(1);  /* one row: the code's address, its entry */
    add_word(256);
    add_word(20 + 24);
    const bool z = augmentation[0];
    add_word(20); /* the CIE: version, letters, factors 1 and -8, the return address's column */
    add("\0\0\0\0\1", 5);
    add(augmentation, strlen(augmentation) + 1);
    add("\1\x78\x10\1\x1b\x0c\7\x08\x90\1\0\0\0\0\0\0", z ? 20 - 5 - strlen(augmentation) - 1 : 3);
    while (used < 2 + 20 + 24) add("\0", 1);
    add_word((uint32_t)(4 + 8 + 1 + n));
    add_word((uint32_t)(used - 2 - 20));
    add_word((uint32_t)(256 - (used - 2)));
    add_word(64);
    add("\0", 1);
    add(program, n);
    add_word(0);
    put(table, 2 + 256 + 64);
}

void fuzz_seeds(fuzz_put put)
{
#define SEED(letters, program)                                  \
    do {                                                        \
        seed(put, true, letters, program, sizeof program - 1);  \
        seed(put, false, letters, program, sizeof program - 1); \
    } while (0)
    SEED("zR", "\x41\x0e\x10\x86\x02\x43\x0d\x06\x60\x0c\x07\x08");
    SEED("zR", "\x41\x0a\x0e\x20\x83\x03\x50\x0b\x44\x0b\xc3\x07\x03\x08\x03\x09\x03\x0c");
    SEED("zR", "\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"); /* of a PLT */
    SEED("zR", "\x0f\x03\x76\x78\x06\x10\x06\x02\x76\x00\x16\x0c\x03\x76\x68\x06\x2e\x10\x2f\x03\x02");
    SEED("zRS", "\x0f\x04\x77\xa0\x01\x06\x10\x06\x03\x77\xa0\x00\x10\x10\x03\x77\xa8\x01");
    SEED("zR", "\x16\x06\x08\x30\x28\x02\x00\x31\x12\x14\x15\x02\x16\x17\x19\x20\x94\x04\x92\x07\x10\x2f\xf0\xff");
    SEED("zR", "\x02\x10\x03\x10\x00\x04\x10\x00\x00\x00\x01\x00\x00\x00\x00\x11\x06\x7e\x12\x07\x7e\x13\x7e\x14\x03"
               "\x01\x15\x03\x7f");
    put("", 0);
    put("\0\1\1\x1b\3\x3b\xff\xff\xff\xff\xff\xff\xff\xff", 14);
}
