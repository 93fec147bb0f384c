/* Tensors whose memory the program has unmapped for now (vLLM's sleep mode, run/asleep.h): they count as freed until it
 * is mapped again. The recorder's live bytes contain them. */
#include "analyzer/base/sort.h"
#include "analyzer/top/model.h"

static const char last_mappings[] = "SELECT address, bytes, ifnull(unmap_ns,-1), max(map_ns) FROM mapping "
                                    "GROUP BY address ORDER BY address";

struct mapping {
    uint64_t address;
    int64_t bytes, unmap_ns, map_ns; /* unmap_ns: -1: it is mapped */
};

static void set_asleep(struct top_model *m, struct top_alive *a, bool asleep, int64_t time_ns)
{
    struct top_series *s = &m->series[m->places[a->place].series];
    const int64_t more = asleep ? a->bytes : -a->bytes;

    (asleep ? top_end_block : top_begin_block)(m, a->place, a->bytes, time_ns);
    a->asleep = asleep;
    s->asleep = arena_add_capped(s->asleep, more);
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
    sqlite3_stmt *st = run_database_prepare(&s->db, last_mappings); /* NULL: an older recording */
    struct {
        ARENA_LIST(struct mapping, mappings);
    } list = {0};

    while (st && sqlite3_step(st) == SQLITE_ROW)
        *ARENA_ADD(list.mappings) = (struct mapping){(uint64_t)sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
                                                     sqlite3_column_int64(st, 2), sqlite3_column_int64(st, 3)};
    sqlite3_finalize(st);
    for (size_t i = 0; i < s->alive_n; i++) {
        struct top_alive *a = &s->alive[i];
        if (a->place == RUN_NONE || m->series[m->places[a->place].series].layer != TOP_TENSOR) continue;
        const size_t n = SORT_COUNT(list.mappings_n, k, list.mappings[k].address <= a->address);
        const struct mapping *g = n ? &list.mappings[n - 1] : NULL;
        const bool within = g && a->address - g->address < (uint64_t)g->bytes;
        const bool asleep = within && g->unmap_ns > a->alloc_ns;
        struct top_series *series = &m->series[m->places[a->place].series];
        if (asleep || (within && g->map_ns > a->alloc_ns)) {
            series->slept = true;
            series->peak = RUN_UNKNOWN; /* the recorder's contains tensors that were asleep */
        }
        if (asleep != a->asleep) set_asleep(m, a, asleep, asleep ? g->unmap_ns : s->end_ns);
    }
    free(list.mappings);
}
