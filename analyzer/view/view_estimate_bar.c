/* An estimate against GPUs: a bar each, its segments the categories at the peak, and the GPU's memory marked. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/view/view_estimate_parts.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"

enum {
    WIDEST = 120, /* cells of a bar */
    COMPACT = 30, /* … and of those where GPUs have a line each */
    COMPACT_LEAST = 10,
};

/* A letter each, which no two parts share, and a colour of the 256 on which dark text is read. */
static const struct {
    char letter;
    unsigned char colour, plain;
} marks[ESTIMATE_PARTS_N] = {
    [ESTIMATE_WEIGHTS] = {'W', 75, 44},        [ESTIMATE_MASTER] = {'M', 69, 44},
    [ESTIMATE_GRADIENTS] = {'G', 214, 43},     [ESTIMATE_OPTIMIZER] = {'O', 153, 46},
    [ESTIMATE_ADAPTERS] = {'P', 141, 45},      [ESTIMATE_EMA] = {'E', 183, 45},
    [ESTIMATE_ACTIVATIONS] = {'A', 79, 42},    [ESTIMATE_LOGITS] = {'L', 150, 42},
    [ESTIMATE_CACHE] = {'K', 149, 42},         [ESTIMATE_TEMPORARIES] = {'T', 222, 43},
    [ESTIMATE_BUCKETS] = {'B', 180, 43},       [ESTIMATE_WORKSPACE] = {'S', 210, 41},
    [ESTIMATE_COMMUNICATION] = {'N', 174, 41}, [ESTIMATE_CONTEXT] = {'C', 203, 41},
    [ESTIMATE_ALLOCATOR] = {'F', 250, 47},
};

/* What a legend has to tell. */
struct seen {
    bool part[ESTIMATE_PARTS_N], small, shade;
};

struct bar {
    const struct estimate_target *t;
    struct seen *seen;
    double scale; /* bytes of the whole width */
    int width;
};

static double bar_scale_of(const struct estimate_answer *a)
{
    double most = 0;

    for (size_t i = 0; i < a->targets_n; i++) {
        most = a->targets[i].memory > most ? a->targets[i].memory : most;
        most = a->targets[i].peak.high > most ? a->targets[i].peak.high : most;
    }
    return most;
}

/* The part whose segment has the byte at `at`; ESTIMATE_PARTS_N past the last. */
static int part_at(const struct estimate_target *t, double at)
{
    double sum = 0;

    for (int part = 0; part < ESTIMATE_PARTS_N; part++)
        if (at < (sum += t->part[part].likely)) return part;
    return ESTIMATE_PARTS_N;
}

static double cell_middle(const struct bar *b, int cell)
{
    return (cell + 0.5) / b->width * b->scale;
}

static void cell_style(const struct terminal *t, int part, char out[TERMINAL_SEQUENCE])
{
    if (t->rich)
        terminal_background(t, marks[part].colour, out);
    else
        snprintf(out, TERMINAL_SEQUENCE, "\033[%d;30m", marks[part].plain);
}

/* Capitals are certain, small letters expected; shaded up to the high end. */
static void print_bar_cell(const struct view_estimate *v, const struct bar *b, int at)
{
    double byte = cell_middle(b, at);
    int part = part_at(b->t, byte);
    char style[TERMINAL_SEQUENCE];

    if (part < ESTIMATE_PARTS_N) {
        char letter = marks[part].letter;
        b->seen->part[part] = true;
        b->seen->small = b->seen->small || byte >= b->t->peak.low;
        if (v->term.colour) {
            cell_style(&v->term, part, style);
            fputs(style, v->out);
        }
        putc(byte < b->t->peak.low ? letter : letter - 'A' + 'a', v->out);
        fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
    } else if (byte < b->t->peak.high) {
        b->seen->shade = true;
        fputs(v->term.utf8 ? "░" : ".", v->out);
    } else {
        putc(' ', v->out);
    }
}

static void print_bar(const struct view_estimate *v, const struct bar *b)
{
    int limit = (int)(b->t->memory / b->scale * b->width + 0.5);

    for (int i = 0; i <= b->width; i++) {
        if (i == limit)
            fprintf(v->out, "%s%s%s", terminal_style(&v->term, TERMINAL_BOLD), v->term.utf8 ? "┃" : "|",
                    terminal_style(&v->term, TERMINAL_PLAIN));
        if (i < b->width && (i < limit || cell_middle(b, i) < b->t->peak.high)) print_bar_cell(v, b, i);
    }
}

static void print_bar_legend(const struct view_estimate *v, const struct seen *seen)
{
    char text[1024] = "";
    size_t at = 0;

    for (int part = 0; part < ESTIMATE_PARTS_N && at < sizeof text; part++)
        if (seen->part[part])
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%c %s", at ? ", " : "", marks[part].letter,
                                   estimate_part_title[part]);
    if ((seen->small || seen->shade) && at < sizeof text)
        snprintf(text + at, sizeof text - at, "; %s%s%s",
                 seen->small ? "lowercase letters: from the low end to the expected need" : "",
                 seen->small && seen->shade ? ", " : "",
                 !seen->shade   ? ""
                 : v->term.utf8 ? "░: up to the high end"
                                : ".: up to the high end");
    fputs(terminal_style(&v->term, TERMINAL_DIM), v->out);
    fprintf(v->out, "%*s", INDENT, "");
    view_estimate_wrap(v, INDENT, INDENT, text);
    fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
}

static enum terminal_style verdict_style(enum estimate_fit_verdict verdict)
{
    return verdict == FIT_YES ? TERMINAL_GREEN : verdict == FIT_TIGHT ? TERMINAL_YELLOW : TERMINAL_RED;
}

static void format_margin(const struct estimate_target *t, bool brief, char *out, size_t size)
{
    char likely[UNITS_TEXT], other[UNITS_TEXT];
    const struct estimate_interval *m = &t->fit.margin;
    bool exact = t->peak.high <= t->peak.low;

    view_estimate_bytes(likely, m->likely < 0 ? -m->likely : m->likely);
    if (t->fit.verdict == FIT_NO && m->high > 0 && !brief)
        snprintf(out, size, "%s too much, %s to spare at the low end", likely, view_estimate_bytes(other, m->high));
    else if (t->fit.verdict == FIT_NO)
        snprintf(out, size, "%s too much", likely);
    else if (t->fit.verdict == FIT_TIGHT && !brief)
        snprintf(out, size, "%s to spare, %s too much at the high end", likely, view_estimate_bytes(other, -m->low));
    else if (brief || exact)
        snprintf(out, size, "%s to spare", likely);
    else
        snprintf(out, size, "%s to spare, %s at the high end", likely, view_estimate_bytes(other, m->low));
}

static const char *target_name(const struct estimate_target *t)
{
    return t->gpu ? t->gpu->key : "--memory";
}

/* The same for all GPUs: their own part does not change. */
static const char *target_when(const struct view_estimate *v)
{
    static const char *const words[ESTIMATE_PHASES_N] = {"at the end of forward",
                                                         "at the end of backward",
                                                         "in the optimizer step",
                                                         "while the weights are loaded",
                                                         "at prefill",
                                                         "at decode",
                                                         "in the text encoders",
                                                         "in a denoising step",
                                                         "while the VAE decodes"};
    int phase = (int)v->a->result.peak_phase;

    return strcmp(view_estimate_phase(v, phase), "forward pass") == 0 ? "in the forward pass" : words[phase];
}

static void print_target_verdict(const struct view_estimate *v, const struct estimate_target *t)
{
    char memory[UNITS_TEXT], peak[UNITS_TEXT], range[VIEW_RANGE], left[160];
    char text[512];
    int at;

    view_estimate_range(v, range, t->peak);
    format_margin(t, false, left, sizeof left);
    at = fprintf(v->out, "%s", target_name(t));
    at += fprintf(v->out, ": ");
    fprintf(v->out, "%s%s%s", terminal_style(&v->term, verdict_style(t->fit.verdict)),
            estimate_fit_words[t->fit.verdict], terminal_style(&v->term, TERMINAL_PLAIN));
    at += (int)strlen(estimate_fit_words[t->fit.verdict]);
    snprintf(text, sizeof text, ". Peak %s%s: %s%s%s%s of %s; %s.", target_when(v),
             estimate_answer_lacks_activations(v->a) ? ", without activations" : "",
             view_estimate_bytes(peak, t->peak.likely), *range ? " (" : "", range, *range ? ")" : "",
             view_estimate_bytes(memory, t->memory), left);
    view_estimate_wrap(v, INDENT, at, text);
}

static void print_wide_targets(const struct view_estimate *v, double scale)
{
    struct seen seen = {0};
    struct bar b = {.seen = &seen, .scale = scale, .width = v->term.width - 2 * INDENT - 1};

    b.width = b.width > WIDEST ? WIDEST : b.width;
    for (size_t i = 0; i < v->a->targets_n; i++) {
        b.t = &v->a->targets[i];
        putc('\n', v->out);
        print_target_verdict(v, b.t);
        fprintf(v->out, "%*s", INDENT, "");
        print_bar(v, &b);
        putc('\n', v->out);
    }
    print_bar_legend(v, &seen);
}

const struct estimate_target *view_estimate_smallest(const struct view_estimate *v)
{
    const struct estimate_target *best = NULL;

    EACH_IN (t, v->a->targets)
        if (!best || t->fit.verdict < best->fit.verdict ||
            (t->fit.verdict == best->fit.verdict && t->memory < best->memory))
            best = t;
    return best;
}

/* "Peak in the optimizer step: 18.63 GiB. "; CUDA's context differs between GPUs. */
static int format_need(const struct view_estimate *v, char *out, size_t size)
{
    const struct estimate_target *t = v->a->targets;
    struct estimate_interval peak = {t->peak.likely, t->peak.likely, t->peak.likely};
    char one[UNITS_TEXT], range[VIEW_RANGE];

    for (size_t i = 1; i < v->a->targets_n; i++) {
        peak.low = fmin(peak.low, t[i].peak.likely);
        peak.high = fmax(peak.high, t[i].peak.likely);
    }
    view_estimate_range(v, range, peak);
    return snprintf(out, size, "Peak %s: %s. ", target_when(v), *range ? range : view_estimate_bytes(one, peak.low));
}

/* What it needs, and the GPU to take, if there are many. */
static void print_smallest_gpu(const struct view_estimate *v)
{
    const struct estimate_target *best[FIT_NO + 1] = {NULL};
    size_t n[FIT_NO + 1] = {0};
    char text[384];
    int at = format_need(v, text, sizeof text);

    for (size_t i = 0; i < v->a->targets_n; i++) {
        const struct estimate_target *t = &v->a->targets[i], **of = &best[t->fit.verdict];
        n[t->fit.verdict]++;
        if (!*of || t->memory < (*of)->memory) *of = t;
    }
    const size_t room = sizeof text - (size_t)at;
    at += n[FIT_YES] ? snprintf(text + at, room, "It fits on %zu of %zu GPUs (smallest: %s)", n[FIT_YES],
                                v->a->targets_n, target_name(best[FIT_YES]))
                     : snprintf(text + at, room, "It fits on none of these %zu GPUs", v->a->targets_n);
    if (n[FIT_TIGHT])
        at += snprintf(text + at, sizeof text - (size_t)at, "; it is tight on %zu more (smallest: %s)", n[FIT_TIGHT],
                       target_name(best[FIT_TIGHT]));
    snprintf(text + at, sizeof text - (size_t)at, "%s.",
             estimate_answer_lacks_activations(v->a) ? "; activations are not included" : "");
    view_estimate_indented(v, text);
}

/* The smallest GPU on which it fits first, then the nearest of those on which it does not. */
static int by_verdict_and_size(const void *a, const void *b)
{
    const struct estimate_target *x = *(const struct estimate_target *const *)a,
                                 *y = *(const struct estimate_target *const *)b;

    if (x->fit.verdict != y->fit.verdict) return x->fit.verdict < y->fit.verdict ? -1 : 1;
    if (x->memory != y->memory) return (x->memory < y->memory) == (x->fit.verdict != FIT_NO) ? -1 : 1;
    return SORT_UP(x, y); /* in the order of the table of GPUs */
}

/* Each bar represents that GPU's memory. */
static void print_compact_targets(const struct view_estimate *v)
{
    int names = 14;
    for (size_t i = 0; i < v->a->targets_n; i++) {
        const int columns = (int)strlen(target_name(&v->a->targets[i]));
        names = columns > names ? columns : names;
    }
    int left_over = v->term.width - 50 - names;
    struct seen seen = {0};
    struct bar b = {.seen = &seen,
                    .width = left_over < COMPACT_LEAST ? COMPACT_LEAST
                             : left_over > COMPACT     ? COMPACT
                                                       : left_over};

    const struct estimate_target **sorted = arena_realloc(NULL, v->a->targets_n, sizeof *sorted);
    for (size_t i = 0; i < v->a->targets_n; i++) sorted[i] = &v->a->targets[i];
    SORT(sorted, v->a->targets_n, by_verdict_and_size);
    putc('\n', v->out);
    print_smallest_gpu(v);
    for (size_t i = 0; i < v->a->targets_n; i++) {
        const struct estimate_target *t = sorted[i];
        char memory[UNITS_TEXT], left[160];
        b.t = t;
        b.scale = t->memory;
        format_margin(t, true, left, sizeof left);
        fprintf(v->out, "  %-*s ", names, target_name(t));
        print_bar(v, &b);
        fprintf(v->out, " %10s  %s%s%s, %s\n", view_estimate_bytes(memory, t->memory),
                terminal_style(&v->term, verdict_style(t->fit.verdict)), estimate_fit_words[t->fit.verdict],
                terminal_style(&v->term, TERMINAL_PLAIN), left);
    }
    print_bar_legend(v, &seen);
    free(sorted);
}

void view_estimate_bars(const struct view_estimate *v)
{
    double scale = bar_scale_of(v->a);

    if (v->a->result.peak.high <= 0) return;
    if (scale > 0 && v->a->targets_n <= ANSWER_FEW)
        print_wide_targets(v, scale);
    else if (scale > 0)
        print_compact_targets(v);
}
