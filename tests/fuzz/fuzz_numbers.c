/* Numbers, sizes, options and estimates that users type, and numbers that gpuspy prints. */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include "analyzer/command/help.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/settings.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"

#define WORDS 8

struct settings {
    struct estimate_settings model;
    uint64_t size;
    const char *file;
    int number;
    bool flag;
};

static const struct option_row rows[] = {
    {"json", 'j', OPTION_FLAG, offsetof(struct settings, flag), NULL, NULL, 0, 0, "a flag"},
    {"number", 'n', OPTION_NUMBER, offsetof(struct settings, number), "N", NULL, -5, 100, "a number"},
    {"memory", 'm', OPTION_BYTES, offsetof(struct settings, size), "SIZE", NULL, 1, 1e18, "a size"},
    {"output", 'o', OPTION_FILE, offsetof(struct settings, file), "FILE", NULL, 0, 0, "a file"},
    ESTIMATE_OPTIONS(struct settings, model, 'p'),
    {0},
};
static const struct command_example no_examples[] = {{0}};
static const struct command_text text = {.options = rows, .about = "", .examples = no_examples};
static const struct command_text text_program = {
    .options = rows, .about = "", .examples = no_examples, .program_follows = true};

static void format_all(uint64_t n)
{
    char out[UNITS_TEXT];
    double d;
    memcpy(&d, &n, sizeof d);
    const char *const texts[] = {units_format_bytes(out, n)};
    FUZZ_CHECK(strlen(texts[0]) < UNITS_TEXT && *out, "%s", out);
    FUZZ_CHECK(strlen(units_format_bytes_signed(out, (int64_t)n)) < UNITS_TEXT, "%s", out);
    FUZZ_CHECK(strlen(units_format_rate(out, d)) < UNITS_TEXT, "%s", out);
    FUZZ_CHECK(strlen(units_format_seconds(out, d)) < UNITS_TEXT, "%s", out);
    FUZZ_CHECK(strlen(units_format_share(out, d)) < UNITS_TEXT, "%s", out);
    FUZZ_CHECK(strlen(units_format_count(out, n)) < UNITS_TEXT, "%s", out);
}

static void parse_all(const char *word)
{
    char why[UNITS_WHY] = "", small[16], nearest[64];
    uint64_t n = 12345;
    if (units_parse_count(word, &n, why)) {
        char plain[UNITS_TEXT];
        uint64_t again = 0;
        snprintf(plain, sizeof plain, "%llu", (unsigned long long)n);
        FUZZ_CHECK(units_parse_count(plain, &again, why) && again == n, "%s: %s", word, plain);
        struct estimate e = estimate_training(n && n < 1000000000000000 ? n : 1, estimate_optimizer("adam"),
                                              estimate_precision("fp32"), true);
        FUZZ_CHECK(e.total >= e.weights, "%llu", (unsigned long long)n);
    } else {
        FUZZ_CHECK(n == 12345 && *why, "%s", word);
    }
    n = 12345;
    why[0] = 0;
    if (!units_parse_bytes(word, &n, why)) FUZZ_CHECK(n == 12345 && *why, "%s", word);
    if (!units_parse_rate(word, &n, why) || !units_parse_duration(word, &n, why)) FUZZ_CHECK(*why, "%s", word);
    estimate_gpu_find(word);
    for (size_t size = 1; size <= sizeof small; size += 5) {
        terminal_clean(small, size, word, size & 2);
        FUZZ_CHECK(strlen(small) < size, "%zu", size);
        FUZZ_CHECK(terminal_fit(small, 3) <= strlen(small) && terminal_columns(small) >= 0, "%s", small);
    }
    options_nearest(word, estimate_all_optimizers, nearest, sizeof nearest);
    options_list(word, nearest, sizeof nearest);
    options_is_word(word, estimate_precisions);
    estimate_shaped(word);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes b = {data, size};
    const uint8_t how = fuzz_u8(&b);
    format_all(fuzz_number(&b, 8));
    char *copy = malloc(b.left + 1), *words[WORDS + 1];
    FUZZ_CHECK(copy, "no memory");
    memcpy(copy, b.at, b.left);
    copy[b.left] = 0;
    int n = 0;
    for (char *at = copy, *end; n < WORDS && (end = at + strlen(at)); at = end + 1) {
        words[n++] = at;
        parse_all(at);
        if (end == copy + b.left) break;
    }
    words[n] = NULL;
    struct command command = {.name = "fuzz",
                              .synopsis = "",
                              .summary = "",
                              .operands = OPERAND_FILE,
                              .text = how & 1 ? &text_program : &text,
                              .print_help = command_print_help};
    struct settings s = {.model = ESTIMATE_SETTINGS_DEFAULT};
    int operands = options_parse(&command, n, words, &s);
    FUZZ_CHECK(operands >= OPTIONS_BAD && operands <= n, "%d", operands);
    if (operands >= 0) {
        FUZZ_CHECK(s.number >= -5 && s.number <= 100, "%d", s.number);
        const struct estimate_optimizer *o;
        const struct estimate_precision *p;
        if (s.model.params && estimate_parts_of("fuzz", &s.model, &o, &p))
            estimate_training(s.model.params, o, p, how & 2);
    }
    free(copy);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
#define SEED(text) put("\0\0\0\0\0\0\0\0\1" text, sizeof "\0\0\0\0\0\0\0\0\1" text - 1)
    SEED("1e9");
    SEED("1.5B");
    SEED("0.1k");
    SEED("18446744073709551615");
    SEED("18446744073709551616");
    SEED("1_000_000");
    SEED("24GiB");
    SEED("400Gbit/s");
    SEED("1.2ms");
    SEED("RTX 4090");
    SEED("1.5MiB");
    SEED("1e-3");
    SEED("9999999999999999999999e99999");
    SEED("--params\0007B\0--precision\0bf16\0--optimizer=adamw8bit");
    SEED("-jn5\0-o\0file\0--\0--json");
    SEED("--params=1e15\0--master-weights\0--precision=fp16\0--optimizer=sgd");
    SEED("--nmber=3\0run.db");
    SEED("--help");
    SEED("--memory\0"
         "24GB\0x\0-n\0-6");
    SEED("\xff\xfe\xe2\x80\xae\x1b[31m\xf0\x9f\x92\xa9\xcc\x81");
    put("\1\xff\xff\xff\xff\xff\xff\xef\x7f-j\0-q\0a", 15);
    put("\1\0\0\0\0\0\0\xf8\x7f-", 10);
    put("", 0);
}
