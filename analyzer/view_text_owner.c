/* Whose memory it is: what frameworks took in advance, beside a device's parts; and the processes of a run
 * side by side. */
#include <stdio.h>
#include <string.h>
#include "analyzer/text.h"
#include "analyzer/units.h"
#include "analyzer/view_text_parts.h"

void view_text_preallocations(const struct view_text *v, uint32_t process, int device)
{
    const struct gs_report *r = v->report;

    for (size_t i = 0; i < r->preallocations_n; i++) {
        const struct gs_preallocation *p = &r->preallocations[i];
        char line[512];
        if (p->process != process || p->device != device)
            continue;
        term_clean(line, sizeof line, p->said, v->term.utf8);
        view_wrap(v, INDENT, "", line);
    }
}

#define RANK_ROWS 16 /* of more, the first ones */

static void sentence(const struct view_text *v, const char *mark, const char *text)
{
    char line[1024];

    term_clean(line, sizeof line, text, v->term.utf8);
    view_wrap(v, INDENT, mark, line);
}

static void rank_row(const struct view_text *v, struct table *t, const struct gs_rank *k)
{
    const struct gs_process *p = &v->report->processes[k->process];
    char who[32], gpu[64], tensors[UNITS_TEXT] = "", device[UNITS_TEXT], waits[UNITS_TEXT],
        time[UNITS_TEXT];

    if (k->rank >= 0)
        snprintf(who, sizeof who, "rank %lld", (long long)k->rank);
    else
        snprintf(who, sizeof who, "process %u", p->pid);
    term_clean(gpu, sizeof gpu, k->gpu, v->term.utf8);
    if (k->tensor_peak_bytes != GS_UNKNOWN)
        view_bytes(tensors, k->tensor_peak_bytes);
    const char *cells[] = {who,
                           gpu,
                           tensors,
                           view_bytes(device, k->device_peak_bytes),
                           format_seconds(waits, k->blocked_s),
                           format_seconds(time, (double)p->end_ns / 1e9)};
    table_add(t, cells, NULL);
}

void view_text_ranks(const struct view_text *v)
{
    const struct gs_report *r = v->report;
    struct table t = {.head = {"", "GPU", "tensors", "taken from CUDA", "waited", "of"}, .left = {true}};

    if (!r->ranks_n)
        return;
    view_heading(v, TERM_BOLD, r->ranks[0].rank >= 0 ? "Ranks" : "Processes", ", each at its own peak");
    size_t shown = r->ranks_n > RANK_ROWS ? RANK_ROWS : r->ranks_n;
    for (size_t i = 0; i < shown; i++)
        rank_row(v, &t, &r->ranks[i]);
    table_print(&t, &v->term, INDENT, v->out);
    if (shown < r->ranks_n)
        fprintf(v->out, "  and %zu more: --json has them\n", r->ranks_n - shown);
    for (size_t i = 0; i < r->rank_findings_n; i++) {
        const struct gs_rank_finding *f = &r->rank_findings[i];
        sentence(v, v->term.utf8 ? "• " : "- ", f->text);
        if (f->advice)
            sentence(v, "  ", f->advice);
    }
}
