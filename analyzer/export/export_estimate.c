#include "analyzer/export/export_estimate.h"

#include <math.h>
#include "analyzer/base/arena.h"
#include "analyzer/export/export_table.h"

/* Lists the phases that occur: "forward_end backward_end". */
static void phases_text(const struct estimate_result *r, unsigned phases, char *out, size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++)
        if ((phases & 1u << phase) && r->phase[phase].high > 0 && at < size)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? " " : "", estimate_phase_key[phase]);
}

static void put_range_cells(struct export_table *t, struct estimate_interval bytes)
{
    EXPORT_CELLS(t, llround(bytes.low), llround(bytes.likely), llround(bytes.high));
}

/* The largest value that fits by the high estimate ("surely") and the largest by the expected one ("likely"). */
static void export_solution(const struct estimate_answer *a, FILE *out)
{
    const struct estimate_solution *s = &a->solution;
    const struct {
        const char *how;
        const struct estimate_solve_answer *answer;
    } rows[] = {{"surely", &s->surely}, {"likely", &s->likely}};
    struct export_table t;
    char command[4096];

    export_table_begin(&t, out, false, "what,fits,value,command,low_bytes,bytes,high_bytes,memory_bytes,limited,note");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct estimate_solve_answer *one = rows[i].answer;
        EXPORT_CELLS(&t, estimate_solve_word[s->what], rows[i].how);
        if (one->any) {
            EXPORT_CELLS(&t, one->value, estimate_answer_command(a, one->option, command, sizeof command));
            put_range_cells(&t, one->peak);
        } else {
            for (int empty = 0; empty < 5; empty++) export_table_text(&t, NULL);
        }
        EXPORT_CELLS(&t, llround(s->memory), (bool)(one->any && one->limited), s->note);
    }
}

static void export_targets(const struct estimate_answer *a, FILE *out)
{
    struct export_table t;

    export_table_begin(&t, out, false,
                       "gpu,name,total_bytes,verdict,low_bytes,bytes,high_bytes,margin_low_bytes,margin_bytes,"
                       "margin_high_bytes");
    for (const struct estimate_target *g = a->targets; g < a->targets + a->targets_n; g++) {
        EXPORT_CELLS(&t, g->gpu ? g->gpu->key : NULL, g->gpu ? g->gpu->product : NULL, llround(g->memory),
                     estimate_fit_word[g->fit.verdict]);
        put_range_cells(&t, g->peak);
        put_range_cells(&t, g->fit.margin);
    }
}

static void export_estimate_lines(const struct estimate_answer *a, FILE *out)
{
    struct export_table t;

    export_table_begin(&t, out, false, "part,name,phases,low_bytes,bytes,high_bytes,host,formula,source,why");
    EACH_IN (l, a->result.lines) {
        char phases[160];
        phases_text(&a->result, l->phases, phases, sizeof phases);
        EXPORT_CELLS(&t, estimate_part_key[l->part], l->name, phases);
        put_range_cells(&t, l->bytes);
        EXPORT_CELLS(&t, l->host, l->formula, l->source, l->why);
    }
}

void export_estimate_csv(const struct estimate_answer *a, FILE *out)
{
    if (a->solved)
        export_solution(a, out);
    else if (a->targets_n > ANSWER_FEW)
        export_targets(a, out);
    else
        export_estimate_lines(a, out);
}
