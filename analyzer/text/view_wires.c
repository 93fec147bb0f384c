#include "analyzer/text/view_wires.h"

#include <math.h>
#include "analyzer/base/text_table.h"
#include "analyzer/base/units.h"

static void add_row(struct table *t, const struct wire *w)
{
    char size[UNITS_TEXT], gpus[48], times[24], pass[UNITS_TEXT], ring[UNITS_TEXT];
    bool host = w->kind == WIRE_TO_GPU || w->kind == WIRE_TO_HOST;

    if (w->nodes > 1)
        snprintf(gpus, sizeof gpus, "%ju in %ju", (uintmax_t)w->n, (uintmax_t)w->nodes);
    else
        snprintf(gpus, sizeof gpus, host ? "" : "%ju", (uintmax_t)w->n);
    snprintf(times, sizeof times, "%.6g", w->times);
    const char *const cells[TABLE_COLUMNS] = {
        wire_kind_word[w->kind], gpus, format_bytes(size, units_whole(w->bytes)), times,
        format_seconds(pass, w->one_pass_s), format_seconds(ring, w->ring_s), w->name};
    table_add(t, cells, NULL);
}

void view_wires_text(const struct wires *w, const struct term *term, FILE *out)
{
    struct table t = {.head = {"", "GPUs", "each", "times", "one pass", "time", ""}, .left = {true}};
    char time[UNITS_TEXT];
    bool across = false;

    if (!w->n)
        return;
    for (size_t i = 0; i < w->n; i++)
        across |= w->rows[i].nodes > 1;
    fprintf(out, "%sOn the wires, a step%s: %s%s%s\n", term_style(term, TERM_BOLD), term_style(term, TERM_PLAIN),
            w->links.node_name, across ? "; " : "", across ? w->links.network_name : "");
    for (size_t i = 0; i < w->n; i++)
        add_row(&t, &w->rows[i]);
    table_print(&t, term, 2, out);
    fprintf(out, "  %s in all, if nothing overlaps, at the links' full rate.\n", format_seconds(time, w->sum_s));
    if (w->compute_s > 0)
        fprintf(out, "  The GPU computes for %s at its full rate: %s.\n", format_seconds(time, w->compute_s), w->compute);
    for (size_t i = 0; i < w->notes_n; i++)
        fprintf(out, "  %s\n", w->notes[i]);
}

static json_t *seconds_json(double s)
{
    return isfinite(s) ? json_real(s) : json_null();
}

json_t *view_wires_json(const struct wires *w)
{
    json_t *rows = json_array(), *notes = json_array();

    if (!w->n) {
        json_decref(rows);
        json_decref(notes);
        return NULL;
    }
    for (size_t i = 0; i < w->n; i++) {
        const struct wire *r = &w->rows[i];
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:f, s:f, s:I, s:I, s:f, s:s, s:o, s:o, s:s, s:s*}", "kind",
                            wire_kind_word[r->kind], "name", r->name, "bytes", r->bytes, "times", r->times, "gpus",
                            (json_int_t)r->n, "machines", (json_int_t)r->nodes, "bandwidth_bytes_per_s", r->bandwidth,
                            "link", r->link, "one_pass_s", seconds_json(r->one_pass_s), "time_s", seconds_json(r->ring_s),
                            "formula", r->formula, "source", r->source));
    }
    for (size_t i = 0; i < w->notes_n; i++)
        json_array_append_new(notes, json_string(w->notes[i]));
    json_t *root = json_pack(
        "{s:{s:f, s:f, s:f, s:I, s:b}, s:o, s:o, s:o}", "links", "node_bytes_per_s", w->links.node,
        "network_bytes_per_s", w->links.network, "host_bytes_per_s", w->links.host, "gpus_per_node",
        (json_int_t)w->links.per_node, "assumed", w->links.assumed, "rows", rows, "sum_s", seconds_json(w->sum_s), "notes",
        notes);
    if (w->compute_s > 0)
        json_object_set_new(root, "compute",
                            json_pack("{s:f, s:s}", "least_s", w->compute_s, "formula", w->compute));
    return root;
}
