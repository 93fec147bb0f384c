#include "analyzer/view/view_roofline.h"

#include <string.h>
#include <jansson.h>
#include "analyzer/base/text.h"
#include "analyzer/base/json_out.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/text_table.h"
#include "analyzer/base/units.h"
#include "analyzer/view/roofline_chart.h"

#define LAUNCH 2e-6 /* of a kernel, in seconds: approximately the minimum */

/* "137.4 GFLOP", "100.7 MB": decimal, four figures. */
static const char *format_decimal(char out[UNITS_TEXT], double value, const char *unit)
{
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t u = 0;

    for (; u + 1 < sizeof prefix / sizeof *prefix && value >= 999.95; u++) value /= 1000;
    snprintf(out, UNITS_TEXT, "%.4g %s%s", value, prefix[u], unit);
    return out;
}

static struct estimate_roof_point point_of(const struct view_roofline *r, const struct estimate_gpu *gpu,
                                           const struct estimate_roof_way *w)
{
    return estimate_roof_point(w->flops, w->bytes, gpu->tflops[r->rate] * 1e12, gpu->hbm);
}

/* Formulas contain a middle dot, and "²". */
static const char *plain_characters(const struct terminal *term, const char *text, char *out, size_t size)
{
    size_t n = 0;

    for (const char *p = text; *p && n + 3 < size; p++) {
        if (term->utf8 || (unsigned char)*p < 0x80)
            out[n++] = *p;
        else if (strncmp(p, "·", 2) == 0) {
            out[n++] = '*';
            p++;
        } else if (strncmp(p, "²", 2) == 0) {
            out[n++] = '^';
            out[n++] = '2';
            p++;
        }
    }
    out[n] = 0;
    return out;
}

__attribute__((format(printf, 3, 4))) static void append_text(char *text, size_t size, const char *format, ...)
{
    size_t n = strlen(text);
    TEXT_FORMAT(text + n, size - n, format);
}

/* Given by --peak and --bandwidth: it has one roof. */
static bool is_gpu_described(const struct view_roofline *r)
{
    return r->gpu && !r->gpu->total_bytes;
}

static void print_roofline_head(const struct view_roofline *r, const struct terminal *term, FILE *out)
{
    char text[1024] = "";
    int at = 0;

    append_text(text, sizeof text, "%s", r->op ? r->op->word : "a kernel");
    for (int i = 0; r->op && i < ROOF_DIMS_N; i++)
        if (r->shape.of[i])
            append_text(text, sizeof text, " %s %ju", estimate_roof_dim_option[i], (uintmax_t)r->shape.of[i]);
    append_text(text, sizeof text, "%s", r->op && r->shape.causal ? " causal" : "");
    if (!is_gpu_described(r)) append_text(text, sizeof text, ", %s", estimate_gpu_rate_name[r->stored]);
    if (!is_gpu_described(r) && r->stored != r->rate)
        append_text(text, sizeof text, " computed in %s", estimate_gpu_rate_name[r->rate]);
    if (r->gpu) append_text(text, sizeof text, ", on %s", r->gpu->product);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        if (at && at + 1 + (int)strlen(word) > term->width)
            at = fprintf(out, "\n   ") - 1;
        else if (at)
            at += fprintf(out, " ");
        at += fprintf(out, "%s", word);
    }
    fputc('\n', out);
}

static char way_mark_of(const struct view_roofline *r, size_t way)
{
    return r->ways_n > 1 ? (char)('A' + way) : 'o';
}

static void print_formulas(const struct view_roofline *r, const struct terminal *term, FILE *out)
{
    char text[160];

    for (size_t i = 0; r->op && i < r->ways_n; i++) {
        const struct estimate_roof_way *w = &r->ways[i];
        if (!i || strcmp(w->flops_formula, r->ways[i - 1].flops_formula) != 0)
            fprintf(out, "  FLOP   %s\n", plain_characters(term, w->flops_formula, text, sizeof text));
        fprintf(out, "  %s %c %g B %s (%s)\n", i ? "     " : "bytes", r->ways_n > 1 ? way_mark_of(r, i) : ' ',
                estimate_gpu_rate_bytes[r->stored], term->utf8 ? "·" : "*",
                plain_characters(term, w->bytes_formula, text, sizeof text));
    }
    if (r->op && r->op->letters) fprintf(out, "         %s\n", r->op->letters);
}

/* Tensor cores are irrelevant for everything except matrix products. */
static bool concerns_rate(const struct view_roofline *r, int rate)
{
    if (is_gpu_described(r)) return rate == (int)r->rate;
    return r->gpu->tflops[rate] > 0 &&
           (!r->op || r->op->tensor || rate == GPU_FP64 || rate == GPU_FP32 || rate == GPU_FP16_PLAIN);
}

static void print_chart(const struct view_roofline *r, const struct terminal *term, FILE *out)
{
    struct view_roof_chart c = {.bytes_per_s = r->gpu->hbm};

    c.roofs[c.roofs_n].name = is_gpu_described(r) ? "peak" : estimate_gpu_rate_name[r->rate];
    c.roofs[c.roofs_n++].flops_per_s = r->gpu->tflops[r->rate] * 1e12;
    for (int rate = 0; rate < GPU_RATES_N; rate++) {
        if (concerns_rate(r, rate) && rate != (int)r->rate) {
            c.roofs[c.roofs_n].name = estimate_gpu_rate_name[rate];
            c.roofs[c.roofs_n++].flops_per_s = r->gpu->tflops[rate] * 1e12;
        }
    }
    for (size_t i = 0; i < r->ways_n && i < ROOF_CHART_POINTS; i++) {
        struct estimate_roof_point p = point_of(r, r->gpu, &r->ways[i]);
        c.points[c.points_n].mark = way_mark_of(r, i);
        c.points[c.points_n].intensity = p.intensity;
        c.points[c.points_n++].flops_per_s = p.attainable;
    }
    if (r->measured_s > 0 && c.points_n < ROOF_CHART_POINTS) {
        const struct estimate_roof_way *w = &r->ways[r->ways_n - 1];
        c.points[c.points_n].mark = 'x';
        c.points[c.points_n].intensity = w->flops / w->bytes;
        c.points[c.points_n++].flops_per_s = w->flops / r->measured_s;
    }
    fputs("  FLOP/s\n", out);
    view_roof_chart(&c, term, out);
}

static void print_ways(const struct view_roofline *r, const struct terminal *term, FILE *out)
{
    int wide = 0;

    for (size_t i = 0; i < r->ways_n; i++) {
        int length = (int)strlen(r->ways[i].name);
        wide = length > wide ? length : wide;
    }
    fprintf(out, "%s    %-*s %11s %8s %7s %13s %10s  bound by%s\n", terminal_style(term, TERMINAL_BOLD), wide, "",
            "work", "moved", "FLOP/B", "at most", "least time", terminal_style(term, TERMINAL_PLAIN));
    for (size_t i = 0; i < r->ways_n; i++) {
        const struct estimate_roof_way *w = &r->ways[i];
        struct estimate_roof_point p = point_of(r, r->gpu, w);
        char work[UNITS_TEXT], moved[UNITS_TEXT], most[UNITS_TEXT];
        fprintf(out, "  %s%c%s %-*s %11s %8s %7.4g %13s %10s  %s\n", terminal_style(term, TERMINAL_YELLOW),
                way_mark_of(r, i), terminal_style(term, TERMINAL_PLAIN), wide, w->name,
                format_decimal(work, w->flops, "FLOP"), format_decimal(moved, w->bytes, "B"), p.intensity,
                format_decimal(most, p.attainable, "FLOP/s"), UNITS_SECONDS(p.least_s),
                p.by_memory ? "memory" : "compute");
    }
    if (point_of(r, r->gpu, &r->ways[r->ways_n - 1]).least_s < LAUNCH)
        fputs("  Launching a kernel takes 2 to 5 us, so launches limit a kernel this short.\n", out);
}

static void print_measured_point(const struct view_roofline *r, FILE *out)
{
    const struct estimate_roof_way *w = &r->ways[r->ways_n - 1];
    struct estimate_roof_point p = point_of(r, r->gpu, w);
    char flops[UNITS_TEXT];

    if (!(r->measured_s > 0)) return;
    fprintf(out, "\nx measured %s: %s of the roof%s%s (%s, %s).\n", UNITS_SECONDS(r->measured_s),
            UNITS_SHARE(p.least_s / r->measured_s), *w->name ? " of " : "", w->name,
            format_decimal(flops, w->flops / r->measured_s, "FLOP/s"), UNITS_RATE(w->bytes / r->measured_s));
    if (r->measured_s < p.least_s)
        fputs("  That is above the roof: fewer bytes came from memory than were counted\n"
              "  (caches), or the time does not cover all of the work.\n",
              out);
}

/* The roof of each precision. For an operator's tensors, only one precision's bytes were counted. */
static void print_rates(const struct view_roofline *r, const struct terminal *term, FILE *out)
{
    if (is_gpu_described(r)) {
        struct estimate_roof_point p = point_of(r, r->gpu, r->ways);
        char peak[UNITS_TEXT], speed[UNITS_TEXT];
        fprintf(out, "\nThe given GPU: %s, memory %s; ridge %.4g FLOP/B\n",
                format_decimal(peak, r->gpu->tflops[r->rate] * 1e12, "FLOP/s"),
                format_decimal(speed, r->gpu->hbm, "B/s"), p.ridge);
        return;
    }
    struct text_table counted = {.head = {"", "TFLOPS", "ridge", "bound by", "meaning"}, .left = {true}};
    struct text_table shaped = {.head = {"", "TFLOPS", "ridge", "meaning"}, .left = {true}};
    struct text_table *t = r->op ? &shaped : &counted;
    const struct estimate_roof_way *w = &r->ways[r->ways_n - 1];
    char memory[UNITS_TEXT];

    for (int rate = 0; rate < GPU_RATES_N; rate++) {
        char number[24], ridge[24];
        if (!concerns_rate(r, rate)) continue;
        struct estimate_roof_point p =
            estimate_roof_point(w->flops, w->bytes, r->gpu->tflops[rate] * 1e12, r->gpu->hbm);
        snprintf(number, sizeof number, "%.5g", r->gpu->tflops[rate]);
        snprintf(ridge, sizeof ridge, "%.1f", p.ridge);
        const char *const cells[] = {estimate_gpu_rate_name[rate], number, ridge, p.by_memory ? "memory" : "compute",
                                     estimate_gpu_rate_meaning[rate]};
        const char *const fewer[] = {cells[0], cells[1], cells[2], cells[4]};
        text_table_add(t, r->op ? fewer : cells, NULL);
    }
    fprintf(out, "\nRoofs of %s, without sparsity; memory %s\n", r->gpu->key,
            format_decimal(memory, r->gpu->hbm, "B/s"));
    text_table_print(t, term, 2, out);
    fprintf(out, "  from: %s\n", r->gpu->source);
    if (concerns_rate(r, GPU_FP16) && (strstr(r->gpu->key, "a100") || strstr(r->gpu->key, "a800")))
        fputs("  77.6 or 78 TFLOPS, often printed as this GPU's FP16 peak, are fp16-plain;\n"
              "  the tensor cores reach 312.\n",
              out);
}

/* Without --gpu: all of them. */
static void print_all(const struct view_roofline *r, const struct terminal *term, FILE *out)
{
    const struct estimate_roof_way *w = &r->ways[r->ways_n - 1];
    struct text_table t = {.head = {"GPU", "ridge", "bound by", "at most", "least time"}, .left = {true}};
    char work[UNITS_TEXT], moved[UNITS_TEXT];

    fprintf(out, "  %s, %s moved, %.4g FLOP/B%s%s; %s\n\n", format_decimal(work, w->flops, "FLOP"),
            format_decimal(moved, w->bytes, "B"), w->flops / w->bytes, *w->name ? ", " : "", w->name,
            estimate_gpu_rate_meaning[r->rate]);
    for (size_t i = 0; i < estimate_gpu_count; i++) {
        char ridge[24], most[UNITS_TEXT];
        if (!(estimate_gpus[i].tflops[r->rate] > 0)) continue;
        struct estimate_roof_point p = point_of(r, &estimate_gpus[i], w);
        snprintf(ridge, sizeof ridge, "%.1f", p.ridge);
        const char *const cells[TEXT_TABLE_COLUMNS] = {estimate_gpus[i].key, ridge, p.by_memory ? "memory" : "compute",
                                                       format_decimal(most, p.attainable, "FLOP/s"),
                                                       UNITS_SECONDS(p.least_s)};
        text_table_add(&t, cells, NULL);
    }
    text_table_print(&t, term, 2, out);
    fputs("\n--gpu NAME draws the chart of one GPU.\n", out);
}

void view_roofline_text(const struct view_roofline *r, const struct terminal *term, FILE *out)
{
    print_roofline_head(r, term, out);
    print_formulas(r, term, out);
    fputc('\n', out);
    if (!r->gpu) {
        print_all(r, term, out);
        return;
    }
    print_ways(r, term, out);
    fputc('\n', out);
    print_chart(r, term, out);
    print_measured_point(r, out);
    print_rates(r, term, out);
}

static json_t *roofline_place_json(const struct view_roofline *r, const struct estimate_gpu *gpu,
                                   const struct estimate_roof_way *w)
{
    struct estimate_roof_point p = point_of(r, gpu, w);

    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "bound_by", p.by_memory ? "memory" : "compute", "ridge",
                     p.ridge, "attainable_flops_per_s", p.attainable, "compute_s", p.compute_s, "memory_s", p.memory_s,
                     "least_s", p.least_s, "peak_flops_per_s", gpu->tflops[r->rate] * 1e12);
}

static json_t *ways_json(const struct view_roofline *r)
{
    json_t *list = json_array();

    EACH_IN (w, r->ways) {
        json_t *one = json_pack("{s:s, s:f, s:f, s:f}", "name", w->name, "flops", w->flops, "bytes", w->bytes,
                                "intensity", w->flops / w->bytes);
        if (r->op) {
            json_object_set_new(one, "flops_formula", json_string(w->flops_formula));
            json_object_set_new(one, "elements_formula", json_string(w->bytes_formula));
            json_object_set_new(one, "source", json_string(w->source));
        }
        if (r->gpu) {
            json_t *at = roofline_place_json(r, r->gpu, w);
            json_object_update(one, at);
            json_decref(at);
            if (r->measured_s > 0)
                json_object_set_new(one, "measured",
                                    json_pack("{s:f, s:f, s:f, s:f}", "time_s", r->measured_s, "share_of_roof",
                                              point_of(r, r->gpu, w).least_s / r->measured_s, "flops_per_s",
                                              w->flops / r->measured_s, "bytes_per_s", w->bytes / r->measured_s));
        }
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *gpus_json(const struct view_roofline *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < estimate_gpu_count; i++) {
        if (!(estimate_gpus[i].tflops[r->rate] > 0)) continue;
        json_t *one = roofline_place_json(r, &estimate_gpus[i], &r->ways[r->ways_n - 1]);
        json_object_set_new(one, "gpu", json_string(estimate_gpus[i].key));
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *rates_json(const struct view_roofline *r)
{
    json_t *list = json_array();

    for (int i = 0; i < GPU_RATES_N; i++)
        if (r->gpu->tflops[i] > 0 && (!is_gpu_described(r) || i == (int)r->rate))
            json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:s}", "dtype", estimate_gpu_rate_name[i], "tflops",
                                                  r->gpu->tflops[i], "ridge", r->gpu->tflops[i] * 1e12 / r->gpu->hbm,
                                                  "meaning", estimate_gpu_rate_meaning[i]));
    return list;
}

void view_roofline_json(const struct view_roofline *r, FILE *out)
{
    json_t *root = json_pack("{s:i, s:s, s:s}", "schema", 1, "dtype", estimate_gpu_rate_name[r->stored], "computed_in",
                             estimate_gpu_rate_name[r->rate]);

    if (r->op) {
        json_t *shape = json_object();
        for (int i = 0; i < ROOF_DIMS_N; i++)
            if (r->shape.of[i])
                json_object_set_new(shape, estimate_roof_dim_option[i], json_integer((json_int_t)r->shape.of[i]));
        json_object_set_new(shape, "causal", json_boolean(r->shape.causal));
        json_object_set_new(root, "op", json_string(r->op->word));
        json_object_set_new(root, "shape", shape);
    }
    json_object_set_new(root, "ways", ways_json(r));
    if (r->gpu)
        json_object_set_new(root, "gpu",
                            json_pack("{s:s, s:s, s:f, s:s, s:o}", "key", r->gpu->key, "name", r->gpu->product,
                                      "memory_bytes_per_s", r->gpu->hbm, "source", r->gpu->source, "rates",
                                      rates_json(r)));
    else
        json_object_set_new(root, "gpus", gpus_json(r));
    json_out_tree(out, root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
}
