/* Arguments of `gpuspy estimate`, up to the printed answer: either one line on stderr, or an answer whose sums are
 * right. */
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <math.h>
#include "analyzer/command/help.h"
#include "analyzer/estimate/answer.h"
#include "analyzer/estimate/plan_settings.h"
#include "analyzer/export/export_estimate.h"
#include "analyzer/json/json_estimate.h"
#include "analyzer/view/view_estimate.h"

#define WORDS 24

struct settings {
    struct plan_settings plan;
};

static const struct option_row rows[] = {
    OPTIONS_HEADING("Model"),
    ESTIMATE_MODEL_OPTIONS(struct settings, plan.model, 'p'),
    PLAN_SHAPE_OPTIONS(struct settings, plan),
    ESTIMATE_TRAINING_OPTIONS(struct settings, plan.model),
    PLAN_TRAINING_OPTIONS(struct settings, plan),
    PLAN_PARALLEL_OPTIONS(struct settings, plan),
    PLAN_ADAPTER_OPTIONS(struct settings, plan),
    PLAN_INFERENCE_OPTIONS(struct settings, plan),
    PLAN_DEVICE_OPTIONS(struct settings, plan),
    {0},
};
static const struct command_example no_examples[] = {{0}};
static const struct command_text text = {.options = rows, .about = "", .examples = no_examples};
static const struct command command = {.name = "fuzz",
                                       .synopsis = "",
                                       .summary = "",
                                       .operands = OPERAND_NONE,
                                       .text = &text,
                                       .print_help = command_print_help};

static bool sound(struct estimate_interval i)
{
    return i.low >= 0 && i.low <= i.likely && i.likely <= i.high && i.high < 9.3e18;
}

static void check(const struct estimate_answer *a)
{
    const struct estimate_result *r = &a->result;

    for (size_t i = 0; i < r->lines_n; i++)
        FUZZ_CHECK(sound(r->lines[i].bytes), "%s: %g %g %g", r->lines[i].name, r->lines[i].bytes.low,
                   r->lines[i].bytes.likely, r->lines[i].bytes.high);
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++) {
        FUZZ_CHECK(sound(r->phase[phase]), "phase %d", phase);
        FUZZ_CHECK(r->phase[phase].likely <= r->peak.likely, "phase %d", phase);
    }
    FUZZ_CHECK(sound(r->peak), "%g %g %g", r->peak.low, r->peak.likely, r->peak.high);
}

static void show(struct estimate_answer *a, uint8_t how)
{
    char *out = NULL;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    json_t *root = json_estimate(a, NULL);
    struct view_estimate v = {.a = a,
                              .out = f,
                              .explain = how & 1,
                              .term = {.utf8 = how & 2, .colour = how & 4, .rich = how & 8, .width = 40 + how}};

    FUZZ_CHECK(root, "no JSON");
    json_decref(root);
    view_estimate(&v);
    export_estimate_csv(a, f);
    fclose(f);
    FUZZ_CHECK(size > 0, "nothing");
    free(out);
}

static void estimate(struct settings *s, uint8_t how)
{
    static struct estimate_answer a;
    const struct estimate_gpu *named[128];
    struct estimate_answer_request wish = {
        .gpus = named, .network = (double)s->plan.network, .solve = how >> 4 < SOLVE_WHATS_N ? how >> 4 : -1};
    struct model model = {.source = ""};
    struct plan plan;
    int code = 0;

    FUZZ_CHECK(estimate_gpu_count <= sizeof named / sizeof *named, "%zu", estimate_gpu_count);
    if (plan_settings_gpus("fuzz", &s->plan, named, &wish.gpus_n) &&
        plan_from_settings("fuzz", &s->plan, &plan, &model, &code)) {
        if (estimate_answer_build("fuzz", &plan, &wish, &a)) {
            check(&a);
            show(&a, how);
        }
        estimate_answer_free(&a);
    }
    model_free(&model);
}

/* Word number `at`, modulo their count, of "a|b|c". */
static void word_of(const char *words, unsigned at, char *out, size_t size)
{
    unsigned n = 1;

    for (const char *p = words; *p; p++) n += *p == '|' && p[1];
    for (at %= n; at > 0; at--) words += strcspn(words, "|") + 1;
    snprintf(out, size, "%.*s", (int)strcspn(words, "|"), words);
}

/* The first option that may follow a named model, because it does not describe the model. */
static unsigned first_plan_row(void)
{
    unsigned i = 0;

    while (strcmp(rows[i].name, "optimizer") != 0) i++;
    return i;
}

/* Makes "--option=value" from three bytes of the input. Models are presets only: other targets read files. */
static void option(struct fuzz_bytes *b, bool named, char *out, size_t size)
{
    static const unsigned n = sizeof rows / sizeof *rows - 1;
    const unsigned from = named ? first_plan_row() : 0;
    const struct option_row *r = &rows[from + fuzz_u8(b) % (n - from)];
    unsigned first = fuzz_u8(b), second = fuzz_u8(b);
    char value[64] = "";

    if (r->kind == OPTION_HEADING) r++;
    if (r->words)
        word_of(r->words, first, value, sizeof value);
    else if (r->kind == OPTION_RATE)
        snprintf(value, sizeof value, "%uGB/s", first);
    else if (r->kind != OPTION_FLAG) /* mostly small, as users type it, and sometimes huge */
        snprintf(value, sizeof value, second < 160 ? "%u" : "%ue%u", first + 1,
                 second < 240 ? second % 5 : second % 16);
    snprintf(out, size, "--%s%s%s", r->name, r->kind == OPTION_FLAG ? "" : "=", value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes b = {data, size};
    const uint8_t how = fuzz_u8(&b), model = fuzz_u8(&b);
    char texts[WORDS][96], *words[WORDS + 1];
    struct settings s = {.plan = PLAN_SETTINGS_DEFAULT};
    int n = 0;

    if (model & 1) {
        char name[64];
        word_of(model_names, model >> 1, name, sizeof name);
        snprintf(texts[n++], sizeof *texts, "--model=%s", name);
    }
    while (b.left && n < WORDS) option(&b, model & 1, texts[n++], sizeof *texts);
    for (int i = 0; i < n; i++) words[i] = texts[i];
    words[n] = NULL;
    if (options_parse(&command, n, words, &s) == 0 && plan_settings_model_given(&s.plan)) estimate(&s, how);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint32_t random = 1;
    uint8_t bytes[2 + 3 * 12];

    put("", 0);
    for (size_t i = 0; i < 400; i++) {
        for (size_t j = 0; j < sizeof bytes; j++) {
            random = random * 1664525 + 1013904223;
            bytes[j] = (uint8_t)(random >> 24);
        }
        bytes[1] |= i % 8 != 0; /* mostly a known model */
        put(bytes, 2 + 3 * (i % 13));
    }
}
