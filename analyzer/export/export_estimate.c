#include "analyzer/export/export_estimate.h"

#include <math.h>
#include "analyzer/export/export_table.h"

/* "forward_end backward_end": of those that occur. */
static void phases_of(const struct estimate_result *r, unsigned phases, char *out, size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++)
        if ((phases & 1u << phase) && r->phase[phase].high > 0 && at < size)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? " " : "", estimate_phase_key[phase]);
}

void export_estimate_csv(const struct estimate_answer *a, FILE *out)
{
    struct gs_table t;

    gs_table_begin(&t, out, false, "part,name,phases,low_bytes,bytes,high_bytes,host,formula,source,why");
    for (size_t i = 0; i < a->result.lines_n; i++) {
        const struct estimate_line *l = &a->result.lines[i];
        char phases[160];
        phases_of(&a->result, l->phases, phases, sizeof phases);
        gs_table_text(&t, estimate_part_key[l->part]);
        gs_table_text(&t, l->name);
        gs_table_text(&t, phases);
        gs_table_int(&t, llround(l->bytes.low));
        gs_table_int(&t, llround(l->bytes.likely));
        gs_table_int(&t, llround(l->bytes.high));
        gs_table_bool(&t, l->host);
        gs_table_text(&t, l->formula);
        gs_table_text(&t, l->source);
        gs_table_text(&t, l->why);
    }
}
