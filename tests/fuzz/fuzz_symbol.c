/* A module that has changed since the recording: the ELF and DWARF readers. The input: eight bytes of offsets, and a
 * file. */
#include "tests/fuzz/fuzz.h"

#include "analyzer/symbol/symbol.h"

/* libdw and libelf leak memory on damaged files; those leaks are not gpuspy's. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libdw\nleak:libelf\n";
}

static void ask(struct symbolizer *s, const char *path, const char *build_id, uint64_t offset)
{
    const char *function, *file;
    int line;
    const bool known = symbolizer_find(s, path, build_id, offset, &function, &file, &line);
    FUZZ_CHECK(!known || function || file, "known, but nothing of it");
    const struct run_symbol_place *places = NULL;
    const size_t n = symbolizer_more.inlined(s, path, build_id, offset, &places);
    FUZZ_CHECK((n > 0) == known, "%zu", n);
    for (size_t i = 0; i < n; i++) FUZZ_CHECK(!places[i].function || strlen(places[i].function) < 1 << 24, "%zu", i);
    if (function) FUZZ_CHECK(strlen(function) < 1 << 24, "%zu", strlen(function));
    if (file) FUZZ_CHECK(strlen(file) < 1 << 24, "%zu", strlen(file));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes b = {data, size};
    char path[300];
    const char *problem_path;
    uint64_t offsets[4];
    for (int i = 0; i < 4; i++) offsets[i] = fuzz_number(&b, 2);
    snprintf(path, sizeof path, "%s/module.so", fuzz_folder());
    fuzz_write(path, b.at, b.left);
    struct symbolizer *s = symbolizer_new();
    FUZZ_CHECK(s, "no memory");
    for (int i = 0; i < 4; i++) ask(s, path, NULL, offsets[i]);
    for (uint64_t at = 0; at < 0x3000; at += 0x40) ask(s, path, NULL, at);
    ask(s, path, NULL, UINT64_MAX);
    ask(s, path, "00ff", 0x1000);
    for (size_t i = 0; symbolizer_problem(s, i, &problem_path); i++) continue;
    symbolizer_free(s);
    return 0;
}

static const char source[] =
    "static inline __attribute__((always_inline)) int inner(int x) { volatile int y = x; return y; }\n"
    "namespace deep { template <typename T> __attribute__((noinline)) T outer(T x) { return inner(x) + 1; } }\n"
    "extern \"C\" int entry(int x) { return deep::outer<int>(x); }\n"
    "#ifdef MANY /* ranges of addresses: the compiler compresses no short section */\n"
    "#define F(n) extern \"C\" int entry##n(int x) { return deep::outer<int>(x + n); }\n"
    "F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)\n"
    "#endif\n";

/* Small files of the local compiler, with and without debugging information. */
void fuzz_seeds(fuzz_put put)
{
    static const char *const flags[] = {
        "-g", "-g -O2", "-g -gdwarf-4", "-s", "-g -O2 -gz", "-g -c", "-g -O2 -gz -DMANY -ffunction-sections"};
    static uint8_t bytes[1 << 16];
    char command[1024], path[300];
    put("", 0);
    put("\0\0\0\0\0\0\0\0\x7f"
        "ELF",
        12);
    snprintf(path, sizeof path, "%s/code.cc", fuzz_folder());
    fuzz_write(path, source, sizeof source - 1);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        snprintf(command, sizeof command,
                 "cd %s && g++ %s -shared -fPIC -nostdlib -Wl,-z,noseparate-code -o seed.so code.cc 2>/dev/null",
                 fuzz_folder(), flags[i]);
        if (system(command)) continue; /* without a C++ compiler there are fewer seeds */
        snprintf(path, sizeof path, "%s/seed.so", fuzz_folder());
        FILE *f = fopen(path, "rbe");
        FUZZ_CHECK(f, "%s", path);
        memcpy(bytes, "\0\2\x10\2\x20\2\x30\2", 8);
        const size_t n = fread(bytes + 8, 1, sizeof bytes - 8, f);
        fclose(f);
        put(bytes, n + 8);
    }
}
