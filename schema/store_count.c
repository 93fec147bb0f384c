/* Reads the spool's counters of calls that are only counted. Each commit writes the increase since the last one and, in
 * the same transaction, the counts that it covers. */
#include "schema/store_state.h"

#include <string.h>

/* No process reaches such a count, because a call takes longer than a nanosecond: 2^58 ns are nine years. */
#define COUNT_MAX ((uint64_t)1 << 58)

/* Whether a writer can have stored this count in this slot. If not, the slot is damaged. */
static bool is_count_plausible(const struct gs_counter_state *before, uint64_t key, uint64_t count, uint32_t slot)
{
    if (!gs_counter_may_be_in(key, slot) || count > COUNT_MAX) return false;
    return !before->key || (before->key == key && before->count <= count);
}

int gs_store_read_counters(struct gs_store *s, const struct gs_reader *r)
{
    const struct gs_counter *counters = gs_reader_counters(r);
    s->counters.count = 0;
    s->damaged_counters = 0;
    for (uint32_t slot = 0; slot < GS_SPOOL_COUNTERS; slot++) {
        const struct gs_counter_state *before = &s->counted[slot];
        uint64_t count = atomic_load_explicit(&counters[slot].count, memory_order_acquire);
        uint64_t key = atomic_load_explicit(&counters[slot].key, memory_order_relaxed);
        if (key == before->key && count == before->count) continue;
        if (!is_count_plausible(before, key, count, slot)) {
            s->damaged_counters++;
            continue;
        }
        if (!count) continue;
        struct gs_row_counter *row = GS_ARRAY_ADD(&s->counters);
        if (!row) return gs_store_no_memory(s);
        *row = (struct gs_row_counter){key, count, count - before->count, slot};
    }
    uint64_t now = gs_reader_now(r);
    s->counted_second = (int64_t)((now > s->last_ns ? now : s->last_ns) / 1000000000u);
    return 0;
}

bool gs_store_counted(const struct gs_store *s, const struct gs_reader *r)
{
    const struct gs_counter *counters = gs_reader_counters(r);
    for (uint32_t slot = 0; slot < GS_SPOOL_COUNTERS; slot++)
        if (atomic_load_explicit(&counters[slot].count, memory_order_relaxed) > s->counted[slot].count) return true;
    return false;
}
