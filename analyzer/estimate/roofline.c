#include "analyzer/estimate/roofline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"

#define TOO_MUCH 1e24 /* operations or bytes: more are refused */

#define DIM(field, option, what) option,
const char *const estimate_roof_dim_option[ROOF_DIMS_N] = {ROOF_DIMS(DIM)};
#undef DIM

struct estimate_roof_point estimate_roof_point(double flops, double bytes, double flops_per_s, double bytes_per_s)
{
    struct estimate_roof_point p = {.intensity = flops / bytes,
                                    .ridge = flops_per_s / bytes_per_s,
                                    .compute_s = flops / flops_per_s,
                                    .memory_s = bytes / bytes_per_s};

    p.by_memory = p.intensity < p.ridge;
    p.least_s = p.by_memory ? p.memory_s : p.compute_s;
    p.attainable = p.by_memory ? p.intensity * bytes_per_s : flops_per_s;
    return p;
}

static double dim_or(const struct estimate_roof_shape *s, enum estimate_roof_dim which, double otherwise)
{
    return s->of[which] ? (double)s->of[which] : otherwise;
}

static void set_way(struct estimate_roof_way *w, const char *name, double flops, const char *flops_formula,
                    double bytes, const char *source, const char *bytes_formula)
{
    *w = (struct estimate_roof_way){.name = name, .flops = flops, .bytes = bytes, .source = source};
    snprintf(w->flops_formula, sizeof w->flops_formula, "%s", flops_formula);
    snprintf(w->bytes_formula, sizeof w->bytes_formula, "%s", bytes_formula);
}

static size_t roof_matmul(const struct estimate_roof_shape *s, double e, struct estimate_roof_way *out)
{
    double b = dim_or(s, ROOF_batch, 1), m = dim_or(s, ROOF_m, 1), n = dim_or(s, ROOF_n, 1), k = dim_or(s, ROOF_k, 1);
    double flops = 2 * b * m * n * k, tile = (double)s->of[ROOF_tile];
    const char *work = b > 1 ? "2·b·m·n·k" : "2·m·n·k";
    size_t i = 0;

    set_way(&out[i++], "no reuse", flops, work, e * b * (2 * m * n * k + m * n),
            "one thread for each element of C, which reads a row of A and a column of B",
            b > 1 ? "b·(2·m·n·k + m·n)" : "2·m·n·k + m·n");
    if (tile > 1) {
        double t = tile, across = ceil(n / t), down = ceil(m / t);
        set_way(&out[i++], "tiled", flops, work, e * b * (m * k * across + k * n * down + m * n),
                "CUDA C++ Programming Guide, matrix multiplication with shared memory",
                b > 1 ? "b·(m·k·ceil(n/t) + k·n·ceil(m/t) + m·n)" : "m·k·ceil(n/t) + k·n·ceil(m/t) + m·n");
    }
    set_way(&out[i++], "each once", flops, work, e * b * (m * k + k * n + m * n),
            "NVIDIA, Matrix Multiplication Background: arithmetic intensity",
            b > 1 ? "b·(m·k + k·n + m·n)" : "m·k + k·n + m·n");
    return i;
}

#define FLASH_ROWS 128 /* queries per block: FlashAttention-2's tiles for head sizes up to 128 */

static size_t roof_attention(const struct estimate_roof_shape *s, double e, struct estimate_roof_way *out)
{
    double b = dim_or(s, ROOF_batch, 1), h = dim_or(s, ROOF_heads, 1), q = dim_or(s, ROOF_seq, 1),
           d = dim_or(s, ROOF_head_dim, 1);
    double kv = dim_or(s, ROOF_kv_heads, h), n = dim_or(s, ROOF_kv_seq, q);
    double pairs = s->causal ? q * n - q * (q - 1) / 2 : q * n; /* the last query sees all keys */
    double once = 2 * b * h * q * d + 2 * b * kv * n * d;
    double blocks = ceil(q / FLASH_ROWS), again = 2 * b * h * q * d + 2 * b * h * n * d * blocks * pairs / (q * n);
    static const char dao[] = "Dao et al. 2022, algorithm 0: S and P are written and read";
    const char *work = s->causal ? "4·b·h·d · (s·n - s(s-1)/2)" : "4·b·h·s·n·d";

    set_way(&out[0], "naive", 4 * b * h * q * n * d, s->causal ? "4·b·h·s·n·d, including what is masked" : work,
            e * (once + 4 * b * h * q * n), dao, "2·b·h·s·d + 2·b·kv·n·d + 4·b·h·s·n");
    if (blocks > 1) {
        set_way(&out[1], "flash, no L2", 4 * b * h * pairs * d, work, e * again,
                "Dao 2023 (FlashAttention-2): each block of 128 queries reads keys and values again",
                s->causal ? "2·b·h·s·d + 2·b·h·n·d · blocks of 128 queries, minus what is masked"
                          : "2·b·h·s·d + 2·b·h·n·d · blocks of 128 queries");
        set_way(&out[2], "flash", 4 * b * h * pairs * d, work, e * once,
                "Dao et al. 2022: Q, K, V read and O written once, blocks share K and V in L2",
                "2·b·h·s·d + 2·b·kv·n·d");
        return 3;
    }
    set_way(&out[1], "flash", 4 * b * h * pairs * d, work, e * once, "Dao et al. 2022: Q, K, V read and O written once",
            "2·b·h·s·d + 2·b·kv·n·d");
    return 2;
}

/* PyTorch's operators one after another, and one fused kernel. */
static size_t roof_rowwise(const struct estimate_roof_shape *s, double e, double flops, double passes, double vectors,
                           const char *work, const char *unfused, struct estimate_roof_way *out)
{
    double n = dim_or(s, ROOF_rows, 1) * dim_or(s, ROOF_cols, 1), once = 2 * n + vectors * dim_or(s, ROOF_cols, 1);

    set_way(&out[0], "unfused", flops * n, work, e * passes * n, "each operator reads and writes its tensors", unfused);
    set_way(&out[1], "fused", flops * n, work, e * once, "one kernel: read once, written once",
            vectors > 1   ? "2·rows·cols + 2·cols"
            : vectors > 0 ? "2·rows·cols + cols"
                          : "2·rows·cols");
    return 2;
}

static size_t roof_softmax(const struct estimate_roof_shape *s, double e, struct estimate_roof_way *out)
{
    return roof_rowwise(s, e, 5, 8, 0, "5·rows·cols: max, subtract, exp, sum, divide", "8·rows·cols", out);
}

static size_t roof_layernorm(const struct estimate_roof_shape *s, double e, struct estimate_roof_way *out)
{
    return roof_rowwise(s, e, 8, 12, 2, "8·rows·cols: mean 1, variance 3, normalise 2, scale and shift 2",
                        "12·rows·cols", out);
}

static size_t roof_rmsnorm(const struct estimate_roof_shape *s, double e, struct estimate_roof_way *out)
{
    return roof_rowwise(s, e, 4, 7, 1, "4·rows·cols: square, sum, normalise, scale", "7·rows·cols", out);
}

static size_t roof_elementwise(const struct estimate_roof_shape *s, double e, struct estimate_roof_way *out)
{
    double n = dim_or(s, ROOF_size, 1), inputs = dim_or(s, ROOF_inputs, 2), steps = dim_or(s, ROOF_steps, 1);
    static const char work[] = "steps·size";
    size_t i = 0;

    if (steps > 1)
        set_way(&out[i++], "unfused", steps * n, work, e * n * (inputs + 1 + 2 * (steps - 1)),
                "each operator reads and writes its tensors", "size·(inputs + 1 + 2·(steps - 1))");
    set_way(&out[i++], steps > 1 ? "fused" : "", steps * n, work, e * n * (inputs + 1), "read once, written once",
            "size·(inputs + 1)");
    return i;
}

static size_t roof_reduce(const struct estimate_roof_shape *s, double e, struct estimate_roof_way *out)
{
    double n = dim_or(s, ROOF_size, 1);

    set_way(&out[0], "", n, "size", e * n, "read once", "size");
    return 1;
}

static double conv_out(const struct estimate_roof_shape *s, enum estimate_roof_dim side)
{
    double size = dim_or(s, side, dim_or(s, ROOF_height, 1));

    return floor((size + 2 * dim_or(s, ROOF_padding, 0) - dim_or(s, ROOF_kernel, 1)) / dim_or(s, ROOF_stride, 1)) + 1;
}

static size_t roof_conv2d(const struct estimate_roof_shape *s, double e, struct estimate_roof_way *out)
{
    double b = dim_or(s, ROOF_batch, 1), c = dim_or(s, ROOF_in_channels, 1), o = dim_or(s, ROOF_out_channels, 1);
    double height = dim_or(s, ROOF_height, 1), width = dim_or(s, ROOF_width, height), r = dim_or(s, ROOF_kernel, 1);
    double g = dim_or(s, ROOF_groups, 1), places = b * conv_out(s, ROOF_height) * conv_out(s, ROOF_width);
    double flops = 2 * places * o * (c / g) * r * r, once = b * c * height * width + o * (c / g) * r * r + places * o;
    double columns = places * c * r * r;
    static const char work[] = "2·b·oh·ow·out·(in/groups)·k²", moved[] = "b·in·h·w + out·(in/groups)·k² + b·out·oh·ow";

    if (r > 1) {
        set_way(&out[0], "im2col", flops, work, e * (once + 2 * columns), "the columns are written and read",
                "b·in·h·w + 2·b·oh·ow·in·k² + weights + b·out·oh·ow");
        set_way(&out[1], "implicit", flops, work, e * once, "cuDNN's implicit GEMM: each tensor once", moved);
        return 2;
    }
    set_way(&out[0], "", flops, work, e * once, "each tensor once", moved);
    return 1;
}

#define BIT(field) (1u << ROOF_##field)
const struct estimate_roof_op estimate_roof_ops[] = {
    {"matmul", "matrix product (--n 1: matrix times vector)", true, BIT(m) | BIT(n) | BIT(k), BIT(batch) | BIT(tile),
     false, NULL, roof_matmul},
    {"attention", "scaled dot-product attention, forward", true, BIT(heads) | BIT(seq) | BIT(head_dim),
     BIT(batch) | BIT(kv_heads) | BIT(kv_seq), true,
     "b batch, s queries, n keys, h heads (kv: of keys), d size of a head", roof_attention},
    {"layernorm", "layer normalisation", false, BIT(rows) | BIT(cols), 0, false, NULL, roof_layernorm},
    {"rmsnorm", "root mean square normalisation", false, BIT(rows) | BIT(cols), 0, false, NULL, roof_rmsnorm},
    {"softmax", "softmax over rows", false, BIT(rows) | BIT(cols), 0, false, NULL, roof_softmax},
    {"elementwise", "additions, activations, dropout", false, BIT(size), BIT(inputs) | BIT(steps), false,
     "default: inputs 2, steps 1", roof_elementwise},
    {"reduce", "sum of all elements", false, BIT(size), 0, false, NULL, roof_reduce},
    {"conv2d", "convolution", true, BIT(in_channels) | BIT(out_channels) | BIT(height) | BIT(kernel),
     BIT(batch) | BIT(width) | BIT(stride) | BIT(padding) | BIT(groups), false, "b batch, oh and ow of the output",
     roof_conv2d},
};
const size_t estimate_roof_op_count = COUNT_OF(estimate_roof_ops);
const char estimate_roof_op_words[] = "matmul|attention|layernorm|rmsnorm|softmax|elementwise|reduce|conv2d|";

const struct estimate_roof_op *estimate_roof_op_find(const char *word)
{
    return FIND_OF(e, estimate_roof_ops, estimate_roof_op_count, strcmp(e->word, word) == 0);
}

__attribute__((format(printf, 3, 4))) static bool refuse_shape(char *why, size_t size, const char *text, ...)
{
    TEXT_FORMAT(why, size, text);
    return false;
}

static bool is_shape_sensible(const struct estimate_roof_shape *s, char *why, size_t size)
{
    uint64_t heads = s->of[ROOF_heads], kv = s->of[ROOF_kv_heads], groups = s->of[ROOF_groups];

    if (kv && heads % kv)
        return refuse_shape(why, size, "--kv-heads: %ju do not divide %ju heads", (uintmax_t)kv, (uintmax_t)heads);
    if (s->causal && s->of[ROOF_kv_seq] && s->of[ROOF_kv_seq] < s->of[ROOF_seq])
        return refuse_shape(why, size, "--causal: more queries (--seq) than keys (--kv-seq)");
    if (groups && (s->of[ROOF_in_channels] % groups || s->of[ROOF_out_channels] % groups))
        return refuse_shape(why, size, "--groups: %ju do not divide the channels", (uintmax_t)groups);
    if (s->of[ROOF_kernel] && (conv_out(s, ROOF_height) < 1 || conv_out(s, ROOF_width) < 1))
        return refuse_shape(why, size, "--kernel: larger than the padded input");
    return true;
}

bool estimate_roof_check(const struct estimate_roof_op *op, const struct estimate_roof_shape *s, char *why, size_t size)
{
    struct estimate_roof_way ways[ROOF_WAYS_MAX];

    for (int i = 0; i < ROOF_DIMS_N; i++) {
        if (!s->of[i] && (op->needs & 1u << i))
            return refuse_shape(why, size, "needs --%s", estimate_roof_dim_option[i]);
        if (s->of[i] && !((op->needs | op->takes) & 1u << i))
            return refuse_shape(why, size, "has no --%s", estimate_roof_dim_option[i]);
    }
    if (s->causal && !op->causal) return refuse_shape(why, size, "has no --causal");
    if (!is_shape_sensible(s, why, size)) return false;
    for (size_t i = 0, n = op->ways(s, 8, ways); i < n; i++)
        if (!(ways[i].flops < TOO_MUCH) || !(ways[i].bytes < TOO_MUCH))
            return refuse_shape(why, size, "is too large: more than 10^24 operations or bytes");
    return true;
}

size_t estimate_roof_ways(const struct estimate_roof_op *op, const struct estimate_roof_shape *s, double element,
                          struct estimate_roof_way out[ROOF_WAYS_MAX])
{
    return op->ways(s, element, out);
}
