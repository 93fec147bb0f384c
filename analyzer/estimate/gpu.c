#include "analyzer/estimate/gpu.h"

#include <ctype.h>
#include <string.h>
#include <jansson.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/base/options.h"
#include "analyzer/run/run.h"

#define MIB ((uint64_t)1 << 20)

const char estimate_gpu_rate_words[] =
#define RATE(symbol, word, bytes, what) word "|"
    GPU_RATES(RATE)
#undef RATE
        "";
#define RATE(symbol, word, bytes, what) word,
const char *const estimate_gpu_rate_name[GPU_RATES_N] = {GPU_RATES(RATE)};
#undef RATE
#define RATE(symbol, word, bytes, what) what,
const char *const estimate_gpu_rate_meaning[GPU_RATES_N] = {GPU_RATES(RATE)};
#undef RATE
#define RATE(symbol, word, bytes, what) bytes,
const double estimate_gpu_rate_bytes[GPU_RATES_N] = {GPU_RATES(RATE)};
#undef RATE

#define KNOWN(symbol, off, text) text,
static const char *const estimate_gpu_known_text[GPU_KNOWNS_N] = {GPU_KNOWNS(KNOWN)};
#undef KNOWN
/* How far the GPU's total may be off, in MiB. */
#define KNOWN(symbol, off, text) OFF_##symbol = (int)((off)*1024),
enum { GPU_KNOWNS(KNOWN) };
#undef KNOWN

#define ROW(simulates, k, p, mib, how, cap, sms, hbm_gb, host, link, joins, machine, from, ...) \
    {.key = k,                                                                                  \
     .product = p,                                                                              \
     .total_bytes = (mib)*MIB,                                                                  \
     .total_off = OFF_##how * MIB,                                                              \
     .known = GPU_BY_##how,                                                                     \
     .capability = cap,                                                                         \
     .multiprocessors = sms,                                                                    \
     .hbm = (hbm_gb)*1e9,                                                                       \
     .pcie = (host)*1e9,                                                                        \
     .nvlink = (link)*1e9,                                                                      \
     .reach = joins,                                                                            \
     .node = machine,                                                                           \
     .source = from,                                                                            \
     .simulated = simulates,                                                                    \
     .tflops = {__VA_ARGS__}},
#define GPU(...) ROW(true, __VA_ARGS__)
#define OTHER_GPU(...) ROW(false, __VA_ARGS__)
const struct estimate_gpu estimate_gpus[] = {
#include "analyzer/estimate/gpus.def"
};
const size_t estimate_gpu_count = sizeof estimate_gpus / sizeof *estimate_gpus;

#define GPU(key, ...) key "|"
#define OTHER_GPU(key, ...) key "|"
const char estimate_gpu_words[] =
#include "analyzer/estimate/gpus.def"
    "";

/* Keys and aliases, for the nearest name. */
#define GPU(key, ...) key "|"
#define OTHER_GPU(key, ...) key "|"
#define ALIAS(name, key) name "|"
static const char accepted[] =
#include "analyzer/estimate/gpus.def"
    "";

static const char *const aliases[][2] = {
#define GPU(key, ...)
#define ALIAS(name, key) {name, key},
#include "analyzer/estimate/gpus.def"
};

/* "NVIDIA A100-SXM4-80GB" → "a100sxm480g": letters and digits, without makers and families. */
static void bare_gpu_name(const char *name, char *out, size_t size)
{
    static const char *const families[] = {"nvidia", "amd", "geforce", "tesla", "instinct"};
    size_t n = 0;

    for (const char *p = name; *p && n + 1 < size; p++)
        if (isalnum((unsigned char)*p)) out[n++] = (char)tolower((unsigned char)*p);
    out[n] = 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        size_t length = strlen(families[i]);
        char *at = strstr(out, families[i]);
        if (at && at[length]) memmove(at, at + length, strlen(at + length) + 1);
    }
    n = strlen(out);
    if (n > 2 && out[n - 1] == 'b' && out[n - 2] == 'g' && isdigit((unsigned char)out[n - 3])) out[n - 1] = 0;
}

static bool is_same_gpu_name(const char *name, const char *bared)
{
    char own[96];

    bare_gpu_name(name, own, sizeof own);
    return strcmp(own, bared) == 0;
}

const struct estimate_gpu *estimate_gpu_find(const char *name)
{
    char plain[96], bared[96];
    const char *simulated = strstr(name, RUN_SIMULATED);
    size_t length = simulated ? (size_t)(simulated - name) : strlen(name);

    if (length >= sizeof plain) return NULL;
    memcpy(plain, name, length);
    plain[length] = 0;
    bare_gpu_name(plain, bared, sizeof bared);
    if (!*bared) return NULL;
    for (size_t i = 0; i < estimate_gpu_count; i++)
        if (is_same_gpu_name(estimate_gpus[i].key, bared) || is_same_gpu_name(estimate_gpus[i].product, bared))
            return &estimate_gpus[i];
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (is_same_gpu_name(aliases[i][0], bared)) return estimate_gpu_find(aliases[i][1]);
    return NULL;
}

/* "2x4090", "8 x h100", "h100x8": the name of a GPU that gpuspy knows, and a number. */
static bool has_number_of_gpus(const char *text, char *name, size_t size, uint64_t *n)
{
    const char *first = text + strspn(text, "0123456789 "), *last = strrchr(text, 'x');

    *n = strtoull(text, NULL, 10);
    if (first > text && *first == 'x') snprintf(name, size, "%s", first + 1 + strspn(first + 1, " "));
    if (first > text && *first == 'x' && estimate_gpu_find(name)) return *n > 0;
    *n = last ? strtoull(last + 1, NULL, 10) : 0;
    snprintf(name, size, "%.*s", last ? (int)(last - text) : 0, text);
    return *n > 0 && estimate_gpu_find(name);
}

const struct estimate_gpu *estimate_gpu_require(const char *command, const char *option, const char *name)
{
    const struct estimate_gpu *gpu = estimate_gpu_find(name);
    char near[32], other[32], small[33], bared[96];
    size_t n = 0;

    if (gpu) return gpu;
    for (; name[n] && n + 1 < sizeof small; n++)
        small[n] = name[n] == ' ' || name[n] == '_' ? '-' : (char)tolower((unsigned char)name[n]);
    small[n] = 0;
    uint64_t bytes;
    char why[UNITS_WHY];
    size_t length = strlen(name);
    if (length && tolower((unsigned char)name[length - 1]) == 'b' && units_parse_bytes(name, &bytes, why)) {
        complain("%s: --%s: '%s' is a size, not a GPU's name; did you mean --memory %s?", command, option, name, name);
        return NULL;
    }
    if (has_number_of_gpus(name, bared, sizeof bared, &bytes)) {
        complain("%s: --%s: '%s' is not a GPU's name; did you mean --gpu %s --gpus %ju?", command, option, name, bared,
                 (uintmax_t)bytes);
        return NULL;
    }
    bare_gpu_name(name, bared, sizeof bared); /* rtx-490: rtx4090 */
    const unsigned of_bared = options_nearest(bared, accepted, near, sizeof near),
                   of_small = options_nearest(small, accepted, other, sizeof other);
    if (of_bared || of_small)
        complain("%s: --%s: '%s' is not a GPU that gpuspy knows; did you mean '%s'?", command, option, name,
                 of_bared && (!of_small || of_bared <= of_small) ? near : other);
    else
        complain("%s: --%s: '%s' is not a GPU that gpuspy knows; 'gpuspy estimate --gpus' lists them", command, option,
                 name);
    return NULL;
}

const struct estimate_gpu *estimate_gpu_require_or_size(const char *command, const char *option, const char *text,
                                                        uint64_t *bytes)
{
    char why[UNITS_WHY];
    const bool size = units_parse_bytes(text, bytes, why);

    if (size && *bytes > 0) return NULL;
    *bytes = 0;
    if (!strchr("0123456789.-", *text) || estimate_gpu_find(text)) return estimate_gpu_require(command, option, text);
    complain("%s: --%s: '%s' %s; give a size such as 24GiB, or a GPU ('gpuspy estimate --gpus' lists them)", command,
             option, text, size ? "is out of range" : why);
    return NULL;
}

static const char *gpu_rate_text(double tflops, char out[16])
{
    if (tflops <= 0) return "-";
    snprintf(out, 16, tflops < 999.5 ? "%.3g" : "%.0f", tflops);
    return out;
}

static void explain_gpu(FILE *out, const struct terminal *term, const struct estimate_gpu *g)
{
    const char *const rows[][2] = {
        {"name", g->product}, {"memory", estimate_gpu_known_text[g->known]}, {"rates", g->source}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fprintf(out, "      %s%-8s%s%s\n", terminal_style(term, TERMINAL_DIM), rows[i][0],
                terminal_style(term, TERMINAL_PLAIN), rows[i][1]);
}

void estimate_gpu_list_text(FILE *out, const struct terminal *term, bool explain)
{
    bool wide = term->width >= 110 && !explain;
    static const enum estimate_gpu_rate shown[] = {GPU_FP32, GPU_TF32, GPU_FP16, GPU_FP8};

    fprintf(out, "%sGPU                 memory    HBM  host   link   fp32   tf32  16bit    fp8%s%s\n",
            terminal_style(term, TERMINAL_BOLD), wide ? "  name" : "", terminal_style(term, TERMINAL_PLAIN));
    fprintf(out, "%s                         GB/s (host, link one way)       TFLOPS, dense%s\n",
            terminal_style(term, TERMINAL_DIM), terminal_style(term, TERMINAL_PLAIN));
    EACH (g, estimate_gpus, estimate_gpu_count) {
        char link[16], rate[16];
        fprintf(out, "%-15s %10s %6.0f %5.3g", g->key, UNITS_BYTES(g->total_bytes), g->hbm / 1e9, g->pcie / 1e9);
        snprintf(link, sizeof link, "%.3g%s", g->nvlink / 1e9, g->reach == 2 ? "*" : "");
        fprintf(out, " %6s", g->nvlink > 0 ? link : "-");
        for (size_t r = 0; r < sizeof shown / sizeof *shown; r++)
            fprintf(out, " %6s", gpu_rate_text(g->tflops[shown[r]], rate));
        fprintf(out, wide ? "  %s\n" : "\n", g->product);
        if (explain) explain_gpu(out, term, g);
    }
    fputs("\nMemory is what the driver offers to a program. TFLOPS are the vendors' figures\n"
          "without sparsity, 16 bit and fp8 on tensor cores. * a bridge, which joins two\n"
          "GPUs. --json, --csv and --html have all rates, --explain the sources.\n\n",
          out);
    fprintf(out,
            "%sNext%s\n  gpuspy estimate --model llama-3-8b --gpu l40s  # does it fit there?\n"
            "  gpuspy estimate --model llama-3-8b --gpu all   # on which GPUs does it fit?\n",
            terminal_style(term, TERMINAL_BOLD), terminal_style(term, TERMINAL_PLAIN));
}

struct json_t *estimate_gpu_list_json(void)
{
    json_t *list = json_array();

    EACH (g, estimate_gpus, estimate_gpu_count) {
        json_t *rates = json_object();
        for (int r = 0; r < GPU_RATES_N; r++)
            json_object_set_new(rates, estimate_gpu_rate_name[r],
                                g->tflops[r] > 0 ? json_real(g->tflops[r]) : json_null());
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:i, s:f, s:f, s:f, s:i, s:i, s:o, s:s, s:b}", "key", g->key,
                      "name", g->product, "total_bytes", (json_int_t)g->total_bytes, "total_uncertain_bytes",
                      (json_int_t)g->total_off, "total_known_from", estimate_gpu_known_text[g->known], "capability",
                      g->capability, "multiprocessors", g->multiprocessors, "memory_bytes_per_s", g->hbm,
                      "host_bytes_per_s", g->pcie, "link_bytes_per_s", g->nvlink, "link_joins", g->reach, "node_gpus",
                      g->node, "tflops", rates, "source", g->source, "simulated", g->simulated));
    }
    return json_pack("{s:i, s:o}", "schema", 1, "gpus", list);
}
