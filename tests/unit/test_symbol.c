/* Addresses → functions and lines: of a library compiled for the test, with debugging information, with a separate file
 * for it, without it, and of another build. */
#include "tests/cases.h"
#include <dlfcn.h>
#include <libelf.h>
#include <gelf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/symbol/symbol.h"

static char folder[64];

static const char source[] = "namespace deep {\n"                                                /* 1 */
                             "static inline __attribute__((always_inline)) int inner(int x) {\n" /* 2 */
                             "    volatile int y = x * 3;\n"                                     /* 3 */
                             "    return y;\n"                                                   /* 4 */
                             "}\n"                                                               /* 5 */
                             "template <typename T> __attribute__((noinline)) T outer(T x) {\n"  /* 6 */
                             "    return inner(x) + 1;\n"                                        /* 7 */
                             "}\n"                                                               /* 8 */
                             "}\n"
                             "extern \"C\" int entry(int x) { return deep::outer<int>(x); }\n"; /* 10 */

static void sh(const char *format, ...)
{
    char command[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (system(command) != 0) fail_msg("failed: %s", command);
}

/* Address and size of a dynamic symbol, and the build id, read with libelf: independent of the tested code. */
static uint64_t symbol_of(const char *path, const char *name, uint64_t *size, char *build_id)
{
    int fd = open(path, O_RDONLY);
    uint64_t address = 0;

    assert_true(fd >= 0);
    elf_version(EV_CURRENT);
    Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
    for (Elf_Scn *s = NULL; (s = elf_nextscn(elf, s));) {
        GElf_Shdr head;
        Elf_Data *data = elf_getdata(s, NULL);
        gelf_getshdr(s, &head);
        if (head.sh_type == SHT_NOTE && data && build_id) {
            GElf_Nhdr note;
            size_t n, d;
            if (gelf_getnote(data, 0, &note, &n, &d) && note.n_type == 3)
                for (unsigned i = 0; i < note.n_descsz; i++)
                    sprintf(build_id + 2 * i, "%02x", ((unsigned char *)data->d_buf)[d + i]);
        }
        for (size_t i = 0; head.sh_type == SHT_DYNSYM && i < head.sh_size / head.sh_entsize; i++) {
            GElf_Sym sym;
            gelf_getsym(data, (int)i, &sym);
            if (strcmp(elf_strptr(elf, head.sh_link, sym.st_name), name) == 0) {
                address = sym.st_value;
                *size = sym.st_size;
            }
        }
    }
    elf_end(elf);
    close(fd);
    return address;
}

static char lib[128], stripped[128], split[128], build_id[64];
static uint64_t entry, entry_size, outer, outer_size;

static int setup(void **state)
{
    char path[128];

    (void)state;
    snprintf(folder, sizeof folder, "/tmp/gpuspy-symbol-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/code.cc", folder);
    FILE *f = fopen(path, "w");
    fputs(source, f);
    fclose(f);
    snprintf(lib, sizeof lib, "%s/lib.so", folder);
    snprintf(stripped, sizeof stripped, "%s/stripped.so", folder);
    snprintf(split, sizeof split, "%s/split.so", folder);
    sh("cd %s && g++ -g -O2 -shared -fPIC -Wl,--build-id=sha1 -o lib.so code.cc", folder);
    sh("cd %s && strip -o stripped.so lib.so", folder);
    sh("cd %s && objcopy --only-keep-debug lib.so split.debug && "
       "objcopy --strip-all --add-gnu-debuglink=split.debug lib.so split.so",
       folder);
    entry = symbol_of(lib, "entry", &entry_size, build_id);
    outer = symbol_of(lib, "_ZN4deep5outerIiEET_S1_", &outer_size, NULL);
    return entry && outer ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    sh("rm -rf %s", folder);
    return 0;
}

static void debugging_information_gives_lines_and_inlined_functions(void **state)
{
    static const char *const kind[] = {lib, split};
    const char *function, *file;
    int line;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct symbolizer *s = symbolizer_new();
        bool inlined = false, itself = false;
        for (uint64_t at = outer; at < outer + outer_size; at++) {
            assert_true(symbolizer_find(s, kind[i], build_id, at, &function, &file, &line));
            assert_non_null(file);
            assert_non_null(strstr(file, "/code.cc"));
            assert_int_equal(file[0], '/');
            /* gcc gives a static function that is only inlined no linkage name: "inner" */
            inlined = inlined || (strstr(function, "inner") && (line == 3 || line == 4));
            itself = itself || (strcmp(function, "int deep::outer<int>(int)") == 0 && line >= 6 && line <= 8);
        }
        assert_true(inlined);
        assert_true(itself);
        assert_true(symbolizer_find(s, kind[i], build_id, entry, &function, &file, &line));
        assert_string_equal(function, "entry");
        assert_int_equal(line, 10);
        symbolizer_free(s);
    }
}

static void symbols_are_enough_for_the_function(void **state)
{
    struct symbolizer *s = symbolizer_new();
    const char *function, *file, *again;
    int line;

    (void)state;
    assert_true(symbolizer_find(s, stripped, build_id, outer + 1, &function, &file, &line));
    assert_string_equal(function, "int deep::outer<int>(int)");
    assert_null(file);
    assert_int_equal(line, 0);
    assert_true(symbolizer_find(s, stripped, build_id, outer + 1, &again, &file, &line));
    assert_ptr_equal(function, again);                                                /* from the cache */
    assert_false(symbolizer_find(s, stripped, build_id, 8, &function, &file, &line)); /* the ELF header */
    assert_null(function);
    assert_false(symbolizer_find(s, stripped, build_id, UINT64_MAX, &function, &file, &line));
    symbolizer_free(s);
}

static void another_build_is_not_believed(void **state)
{
    struct symbolizer *s = symbolizer_new();
    const char *function, *file, *path, *problem;
    int line;

    (void)state;
    assert_false(symbolizer_find(s, lib, "0123456789012345678901234567890123456789", entry, &function, &file, &line));
    assert_false(symbolizer_find(s, lib, "01", entry, &function, &file, &line));
    assert_true(symbolizer_find(s, lib, NULL, entry, &function, &file, &line));
    problem = symbolizer_problem(s, 0, &path);
    assert_string_equal(problem, "has changed since the recording");
    assert_string_equal(path, lib);
    assert_non_null(symbolizer_problem(s, 1, &path));
    assert_null(symbolizer_problem(s, 2, &path));
    symbolizer_free(s);
}

static void other_files_do_no_harm(void **state)
{
    struct symbolizer *s = symbolizer_new();
    char fifo[128], text[128], cut[128];
    const char *function, *file, *path;
    const char *const paths[] = {"/nonexistent", "[vdso]", "/dev/zero", "/", "", fifo, text, cut};
    int line;

    (void)state;
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    snprintf(text, sizeof text, "%s/code.cc", folder);
    snprintf(cut, sizeof cut, "%s/cut.so", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    sh("head -c 700 %s > %s", lib, cut);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_false(symbolizer_find(s, paths[i], NULL, 4096, &function, &file, &line));
    assert_false(symbolizer_find(s, NULL, NULL, 4096, &function, &file, &line));
    assert_non_null(symbolizer_problem(s, 0, &path));
    symbolizer_free(s);
    symbolizer_free(NULL);
}

/* Handwritten DWARF: a function with 200,000 blocks, each inside the previous one. */
static const char nested[] =
    ".globl deep\n.type deep, @function\n"
    ".text\ndeep: .skip 16\n.Lend: .size deep, .Lend - deep\n"
    ".section .debug_abbrev\n"
    ".uleb128 1, 0x11\n.byte 1\n.uleb128 0x11, 1, 0x12, 7, 0, 0\n"       /* compile unit: low, high pc */
    ".uleb128 2, 0x2e\n.byte 1\n.uleb128 3, 8, 0x11, 1, 0x12, 7, 0, 0\n" /* subprogram: name, low, high pc */
    ".uleb128 3, 0x0b\n.byte 1\n.uleb128 0, 0\n.byte 0\n"                /* lexical block, with children */
    ".section .debug_info\n.long .Lover - .Lunit\n.Lunit: .short 4\n.long .debug_abbrev\n.byte 8\n"
    ".byte 1\n.quad deep, 16\n.byte 2\n.asciz \"deep\"\n.quad deep, 16\n"
    ".rept 200000\n.byte 3\n.endr\n.zero 200002\n.Lover:\n";

static void blocks_in_blocks_are_left_in_the_middle(void **state)
{
    struct symbolizer *s = symbolizer_new();
    char path[128];
    const char *function, *file;
    int line;

    (void)state;
    snprintf(path, sizeof path, "%s/nested.s", folder);
    FILE *f = fopen(path, "w");
    fputs(nested, f);
    fclose(f);
    sh("cd %s && gcc -shared -nostdlib -o nested.so nested.s", folder);
    snprintf(path, sizeof path, "%s/nested.so", folder);
    uint64_t size, at = symbol_of(path, "deep", &size, NULL);
    assert_true(symbolizer_find(s, path, NULL, at + 4, &function, &file, &line));
    assert_string_equal(function, "deep");
    symbolizer_free(s);
}

static const char *text_or_none(const char *text)
{
    return text ? text : "(none)";
}

static void same_answers(const char *path, const char *as, uint64_t first, uint64_t last)
{
    for (int from_end = 0; from_end < 2; from_end++) {
        struct symbolizer *s = symbolizer_new();
        for (uint64_t i = 0; i <= last - first; i++) {
            const uint64_t at = from_end ? last - i : first + i;
            const struct run_symbol_place *places, *expected;
            const size_t n = symbolizer_more.inlined(s, path, NULL, at, &places);
            assert_int_equal(n, symbolizer_more.inlined(s, as, NULL, at, &expected));
            for (size_t k = 0; k < n; k++) {
                assert_string_equal(text_or_none(places[k].function), text_or_none(expected[k].function));
                assert_string_equal(text_or_none(places[k].file), text_or_none(expected[k].file));
                assert_int_equal(places[k].line, expected[k].line);
            }
        }
        symbolizer_free(s);
    }
}

/* Of which only the units that are asked for are inflated. With -flto, entries refer to other units. */
static void compressed_units_give_the_same(void **state)
{
    static const char *const options[] = {"-gdwarf-5", "-gdwarf-4", "-gdwarf-5 -flto -Wno-odr"};
    enum { UNITS = 24 };
    char plain[128], packed[128], apart[128], name[32];

    (void)state;
    snprintf(plain, sizeof plain, "%s/plain.so", folder);
    snprintf(packed, sizeof packed, "%s/packed.so", folder);
    snprintf(apart, sizeof apart, "%s/apart.so", folder);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        sh("cd %s && for i in $(seq %d); do (echo '#include <stdio.h>'; "
           "echo \"static inline int inner$i(int x) { return x * $i + puts(\\\"$i\\\"); }\"; "
           "echo \"int entry$i(int x) { return inner$i(x) - inner$i(2 * x); }\") > unit$i.c; done",
           folder, UNITS);
        sh("cd %s && gcc %s -O2 -shared -fPIC -Wl,--build-id=sha1 -o plain.so $(seq -f unit%%g.c %d)", folder,
           options[i], UNITS);
        sh("cd %s && objcopy --compress-debug-sections=zlib plain.so packed.so && "
           "objcopy --only-keep-debug packed.so packed.debug && "
           "objcopy --strip-all --add-gnu-debuglink=packed.debug packed.so apart.so",
           folder);
        for (int unit = 1; unit <= UNITS; unit += UNITS / 3) {
            uint64_t size, at;
            snprintf(name, sizeof name, "entry%d", unit);
            at = symbol_of(plain, name, &size, NULL);
            assert_true(at && size);
            same_answers(packed, plain, at, at + size + 64); /* and some of the next one */
            same_answers(apart, plain, at, at + size);
        }
    }
}

/* A library of the system, without debugging information: the exported name. */
static void the_c_library_is_named(void **state)
{
    struct symbolizer *s = symbolizer_new();
    const char *function, *file;
    Dl_info info;
    int line;

    (void)state;
    assert_int_not_equal(dladdr(dlsym(RTLD_NEXT, "qsort"), &info), 0);
    uint64_t offset = (uint64_t)((char *)dlsym(RTLD_NEXT, "qsort") - (char *)info.dli_fbase);
    assert_true(symbolizer_find(s, info.dli_fname, NULL, offset + 2, &function, &file, &line));
    assert_non_null(strstr(function, "qsort"));
    symbolizer_free(s);
}

CASES_WITHIN(setup, teardown, debugging_information_gives_lines_and_inlined_functions,
             symbols_are_enough_for_the_function, another_build_is_not_believed, other_files_do_no_harm,
             blocks_in_blocks_are_left_in_the_middle, compressed_units_give_the_same, the_c_library_is_named)
