/* Forgets what was read of a recording: after an error in the middle of a piece, and if its rows are no longer valid.
 * Names and stacks are kept. */
#include "analyzer/top/forget.h"

static const struct top_progress none = {TOP_NO_ROW, TOP_NO_ROW, TOP_NO_ROW};

void top_forget_allocations(struct top_model *m, uint32_t source)
{
    struct top_source *s = &m->sources[source];
    EACH_IN (p, m->places) {
        if (m->series[p->series].source != source) continue;
        p->bytes = 0;
        p->count = 0;
        p->before = s->before_known ? p->before : 0;
        p->ring = (struct top_ring){0};
    }
    EACH_IN (series, m->series) {
        if (series->source != source) continue;
        series->bytes = 0;
        series->count = 0;
        series->after_sample = 0;
        if (series->known != RUN_UNKNOWN) series->known = arena_add_capped(series->known, series->asleep);
        series->asleep = 0;
        series->ring = (struct top_ring){0};
        top_curve_clear(&series->curve);
    }
    s->alive_n = s->cursor = 0;
    s->read[TOP_ROWS_ALLOCATION] = none;
}

static void forget_calls(struct top_calls *list, size_t n, uint32_t source)
{
    EACH (c, list, n) {
        if (c->source != source) continue;
        c->count = 0;
        c->bytes = c->blocked_ns = 0;
        c->ring = (struct top_ring){0};
    }
}

void top_forget_rows(struct top_model *m, uint32_t source)
{
    struct top_source *s = &m->sources[source];
    top_forget_allocations(m, source);
    forget_calls(m->copies, m->copies_n, source);
    forget_calls(m->syncs, m->syncs_n, source);
    s->read[TOP_ROWS_COPY] = s->read[TOP_ROWS_SYNC] = none;
    s->waits_next = 0;
    s->partly_read = false;
}
