/* Tensors whose memory the program has unmapped for now (vLLM's sleep mode, run/asleep.h): they count as freed until it
 * is mapped again. The recorder's live bytes contain them. */
#include "analyzer/base/sort.h"
#include "analyzer/top/model.h"

/* For each address, its last mapping, if that has ended. */
static const char unmapped[] = "SELECT address, bytes, unmap_ns, max(map_ns) FROM mapping GROUP BY address "
                               "HAVING unmap_ns IS NOT NULL ORDER BY address";

struct gap {
    uint64_t address;
    int64_t bytes, from_ns;
};

static void set_asleep(struct top_model *m, struct top_alive *a, bool asleep, int64_t time_ns)
{
    struct top_series *s = &m->series[m->places[a->place].series];
    const int64_t more = asleep ? a->bytes : -a->bytes;

    (asleep ? top_end_block : top_begin_block)(m, a->place, a->bytes, time_ns);
    a->asleep = asleep;
    s->asleep = arena_add_capped(s->asleep, more);
    s->slept = true;
    s->peak = RUN_UNKNOWN; /* the recorder's contains tensors that are asleep */
    if (s->known != RUN_UNKNOWN) s->known = arena_add_capped(s->known, -more);
}

void top_asleep_end(struct top_model *m, struct top_alive *a)
{
    struct top_series *s = &m->series[m->places[a->place].series];

    s->asleep = arena_add_capped(s->asleep, -a->bytes);
    if (s->known != RUN_UNKNOWN) s->known = arena_add_capped(s->known, a->bytes);
}

void top_asleep_subtract(struct top_model *m, uint32_t source)
{
    EACH_IN (s, m->series) {
        if (s->source != source) continue;
        if (s->known != RUN_UNKNOWN) s->known = arena_add_capped(s->known, -s->asleep);
        if (s->slept) s->peak = RUN_UNKNOWN;
    }
}

void top_asleep_update(struct top_model *m, uint32_t source)
{
    struct top_source *s = &m->sources[source];
    sqlite3_stmt *st = run_database_prepare(&s->db, unmapped); /* NULL: an older recording */
    struct {
        ARENA_LIST(struct gap, gaps);
    } list = {0};

    while (st && sqlite3_step(st) == SQLITE_ROW)
        *ARENA_ADD(list.gaps) = (struct gap){(uint64_t)sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
                                             sqlite3_column_int64(st, 2)};
    sqlite3_finalize(st);
    for (size_t i = 0; i < s->alive_n; i++) {
        struct top_alive *a = &s->alive[i];
        if (a->place == RUN_NONE || m->series[m->places[a->place].series].layer != TOP_TENSOR) continue;
        const size_t n = SORT_COUNT(list.gaps_n, k, list.gaps[k].address <= a->address);
        const struct gap *g = n ? &list.gaps[n - 1] : NULL;
        const bool asleep = g && a->address - g->address < (uint64_t)g->bytes && g->from_ns > a->alloc_ns;
        if (asleep != a->asleep) set_asleep(m, a, asleep, asleep ? g->from_ns : s->end_ns);
    }
    free(list.gaps);
}
