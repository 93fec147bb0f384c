#include "analyzer/view/view_calibration.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/text_table.h"
#include "analyzer/base/units.h"
#include "analyzer/base/words.h"

static const char *const words[] = {LEARNS(WORDS_SECOND)};

static const char *calibration_bytes_text(char out[UNITS_TEXT], double n)
{
    return units_format_bytes(out, units_whole(n));
}

/* "gpt, amp, flash" */
static const char *calibration_key_text(char *out, size_t size, const struct estimate_calibration_row *row)
{
    bool none = strcmp(row->checkpointing, "none") == 0;

    snprintf(out, size, "%s, %s, %s attention%s%s%s%s", row->family, row->precision, row->attention,
             none ? "" : ", checkpointing ", none ? "" : row->checkpointing, *row->more ? ", " : "", row->more);
    return out;
}

static void learned_text(const struct question_learned_row *l, enum question_learn what, char *out, size_t size)
{
    const struct estimate_calibration_row *row = &l->row;
    char a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT], of[96];
    double items = row->batch * (isnan(row->seq) ? 1 : row->seq);

    *out = 0;
    if (l->why[what])
        snprintf(out, size, "not learned: %s", l->why[what]);
    else if (what == LEARN_CONTEXT)
        snprintf(out, size, "%s", calibration_bytes_text(a, row->context));
    else if (what == LEARN_WORKSPACE)
        snprintf(out, size, "%s", calibration_bytes_text(a, row->workspace));
    else if (what == LEARN_FRAGMENTATION && !isnan(row->fragmentation))
        snprintf(out, size, "holes between blocks are %s of the blocks' bytes",
                 units_format_share(a, row->fragmentation));
    else if (what == LEARN_ACTIVATIONS && !isnan(row->activations_predicted))
        snprintf(out, size, "%s measured, %s predicted: factor %.3g; %s per%s (%s)",
                 calibration_bytes_text(a, row->activations), calibration_bytes_text(b, row->activations_predicted),
                 row->activations / row->activations_predicted, calibration_bytes_text(c, row->activations / items),
                 isnan(row->seq) ? " image" : " token", calibration_key_text(of, sizeof of, row));
}

static void learned_view(const struct question_learned *l, const struct terminal *term, FILE *out)
{
    char text[512], clean[512];

    EACH (row, l->rows, l->n) {
        terminal_clean(clean, sizeof clean, row->recording, term->utf8);
        fprintf(out, "%s%s%s, process %u, GPU %d%s%s%s\n", terminal_style(term, TERMINAL_BOLD), clean,
                terminal_style(term, TERMINAL_PLAIN), row->pid, row->device, *row->row.gpu ? " (" : "",
                terminal_clean(text, sizeof text, row->row.gpu, term->utf8), *row->row.gpu ? ")" : "");
        for (int what = 0; what < LEARNS_N; what++) {
            learned_text(row, (enum question_learn)what, text, sizeof text);
            if (*text) fprintf(out, "  %-34s%s\n", words[what], text);
        }
        fputc('\n', out);
    }
    if (!l->n) fputs("Nothing was learned: no device memory was recorded.\n\n", out);
}

static const char *calibration_value_text(char out[UNITS_TEXT], enum estimate_calibration_what what, double x)
{
    if (what == CALIBRATION_FRAGMENTATION) return units_format_share(out, x);
    if (what == CALIBRATION_ACTIVATIONS) {
        snprintf(out, UNITS_TEXT, "%.3g times", x);
        return out;
    }
    return calibration_bytes_text(out, x);
}

static void known_view(const struct estimate_calibration *c, const struct terminal *term, FILE *out)
{
    static const char *const names[] = {"CUDA context on ", "workspaces on ",
                                        "holes between blocks, of the blocks' bytes",
                                        "activations, measured / predicted: "};
    struct text_table t = {.head = {"runs", "lowest", "mean", "highest", ""}};
    size_t n;
    struct estimate_calibration_known *list = estimate_calibration_list(c, &n);

    EACH (k, list, n) {
        char least[UNITS_TEXT], mean[UNITS_TEXT], most[UNITS_TEXT], what[256], of[128] = "";
        if (k->what == CALIBRATION_ACTIVATIONS)
            calibration_key_text(of, sizeof of, k->of);
        else if (k->what != CALIBRATION_FRAGMENTATION)
            snprintf(of, sizeof of, "%s", *k->of->gpu ? k->of->gpu : "an unnamed GPU");
        snprintf(what, sizeof what, "%s%s%s", names[k->what], of,
                 k->stale ? " (learned with another version's formulas: not used)" : "");
        char clean[sizeof what];
        terminal_clean(clean, sizeof clean, what, term->utf8);
        const char *cells[] = {UNITS_COUNT(k->seen.runs),
                               calibration_value_text(least, k->what, k->seen.least),
                               calibration_value_text(mean, k->what, k->seen.mean),
                               calibration_value_text(most, k->what, k->seen.most),
                               clean,
                               NULL,
                               NULL,
                               NULL};
        text_table_add(&t, cells, NULL);
    }
    text_table_print(&t, term, 2, out);
    free(list);
}

void view_calibration(const struct estimate_calibration *c, const struct question_learned *l,
                      const struct terminal *term, FILE *out)
{
    char path[sizeof c->path];

    if (l) learned_view(l, term, out);
    terminal_clean(path, sizeof path, c->path, term->utf8);
    if (!c->rows_n) {
        fprintf(out, "Nothing has been learned yet (%s)%s.\n", *path ? path : "no file",
                l ? "" : "; 'gpuspy calibrate run.db' learns from a recording");
        return;
    }
    fprintf(out, "%sLearned%s (%s), used by 'gpuspy estimate':\n", terminal_style(term, TERMINAL_BOLD),
            terminal_style(term, TERMINAL_PLAIN), path);
    known_view(c, term, out);
}
