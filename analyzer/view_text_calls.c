/* Waiting for the GPU, and copies, by line. */
#include <math.h>
#include <stdio.h>
#include "analyzer/units.h"
#include "analyzer/view_text_parts.h"

static const char *sync_word(const struct gs_sync_site *s)
{
    static const char *const words[] = {
        [GS_SYNC_STREAM] = "a stream",   [GS_SYNC_DEVICE] = "the whole GPU",
        [GS_SYNC_CONTEXT] = "a context", [GS_SYNC_EVENT] = "an event",
        [GS_SYNC_IMPLICIT] = "implicit",
    };

    if (s->pattern)
        return s->pattern;
    return s->kind < sizeof words / sizeof *words ? words[s->kind] : "?";
}

void view_text_waits(const struct view_text *v)
{
    const struct gs_report *r = v->report;
    struct table t = {SITES(v), .head = {"waited", "share", "times", "each", "for", "line"},
                      .left = {false, false, false, false, true, true}};
    char all[UNITS_TEXT], share[UNITS_TEXT];
    size_t shown = r->syncs_n < v->top ? r->syncs_n : v->top;

    if (!shown) {
        view_heading(v, TERM_BOLD, "Waiting for the GPU", ": no call waited");
        return;
    }
    view_heading(v, TERM_BOLD, "Waiting for the GPU", ": %s, %s of the run%s",
                 format_seconds(all, r->sync_blocked_s), format_share(share, r->sync_share),
                 r->sync_share > 1 ? " (threads waited at the same time)" : "");
    for (size_t i = 0; i < shown; i++) {
        const struct gs_sync_site *s = &r->syncs[i];
        char waited[UNITS_TEXT], count[UNITS_TEXT], each[UNITS_TEXT], kind[64];
        term_clean(kind, sizeof kind, sync_word(s), v->term.utf8);
        const char *cells[] = {format_seconds(waited, s->blocked_s), format_share(share, s->share),
                               format_count(count, s->count),
                               format_seconds(each, s->count ? s->blocked_s / (double)s->count : NAN),
                               kind};
        table_add(&t, cells, &s->site);
    }
    table_print(&t, &v->term, INDENT, v->out);
    view_more(v, r->syncs_total, shown);
}

static const char *direction_word(uint8_t direction)
{
    static const char *const words[] = {
        [GS_DIR_H2D] = "to the GPU", [GS_DIR_D2H] = "from the GPU",      [GS_DIR_D2D] = "on the GPU",
        [GS_DIR_P2P] = "GPU to GPU", [GS_DIR_H2H] = "in the host's memory",
    };

    return direction < sizeof words / sizeof *words ? words[direction] : "?";
}

static const char *memory_word(uint8_t memory)
{
    static const char *const words[] = {
        [GS_HOSTMEM_NONE] = "",
        [GS_HOSTMEM_PAGEABLE] = "pageable",
        [GS_HOSTMEM_PINNED] = "pinned",
        [GS_HOSTMEM_MANAGED] = "managed",
    };

    return memory < sizeof words / sizeof *words ? words[memory] : "?";
}

void view_text_transfers(const struct view_text *v)
{
    const struct gs_report *r = v->report;
    struct table t = {SITES(v), .head = {"bytes", "times", "rate", "copied", "memory", "line"},
                      .left = {false, false, false, true, true, true}};
    size_t shown = r->transfers_n < v->top ? r->transfers_n : v->top;

    if (!shown)
        return;
    view_title(v, TERM_BOLD, "Copies");
    for (size_t i = 0; i < shown; i++) {
        const struct gs_transfer *x = &r->transfers[i];
        char bytes[UNITS_TEXT], count[UNITS_TEXT], rate[UNITS_TEXT] = "";
        if (!isnan(x->bytes_per_s))
            format_rate(rate, x->bytes_per_s);
        const char *cells[] = {view_bytes(bytes, x->bytes), format_count(count, x->count), rate,
                               direction_word(x->direction), memory_word(x->host_memory)};
        table_add(&t, cells, &x->site);
    }
    table_print(&t, &v->term, INDENT, v->out);
    view_more(v, r->transfers_total, shown);
}
