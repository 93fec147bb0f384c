/* Rates and sums of the last seconds, and the lists by device. */
#include "analyzer/top/model.h"

static int64_t series_slot_of(int64_t time_ns)
{
    return time_ns / (TOP_SLOT_S * 1000000000ll);
}

void top_ring_add(struct top_ring *ring, int64_t time_ns, int64_t amount, uint32_t count)
{
    int64_t slot = series_slot_of(time_ns);
    if (slot > ring->newest) {
        int64_t steps = slot - ring->newest < TOP_SLOTS ? slot - ring->newest : TOP_SLOTS;
        for (int64_t i = 0; i < steps; i++) {
            ring->amount[(slot - i) % TOP_SLOTS] = 0;
            ring->count[(slot - i) % TOP_SLOTS] = 0;
        }
        ring->newest = slot;
    }
    if (slot > ring->newest - TOP_SLOTS) {
        ring->amount[slot % TOP_SLOTS] = arena_add_capped(ring->amount[slot % TOP_SLOTS], amount);
        ring->count[slot % TOP_SLOTS] += count;
    }
}

struct top_sum top_ring_sum(const struct top_ring *ring, int64_t now_ns, int seconds)
{
    struct top_sum sum = {0};
    int64_t now = series_slot_of(now_ns), first = now - (seconds / TOP_SLOT_S - 1);
    if (seconds >= TOP_WINDOW_S) first = now - (TOP_SLOTS - 1);
    first = first < 0 ? 0 : first;
    for (int64_t slot = first; slot <= now; slot++) {
        if (slot <= ring->newest && slot > ring->newest - TOP_SLOTS) {
            sum.amount = arena_add_capped(sum.amount, ring->amount[slot % TOP_SLOTS]);
            sum.count += ring->count[slot % TOP_SLOTS];
        }
    }
    sum.seconds = (double)(now_ns - first * TOP_SLOT_S * 1000000000ll) / 1e9;
    return sum;
}

struct top_series *top_series_find(const struct top_model *m, uint32_t source, int device, enum top_layer layer)
{
    return FIND_IN(s, m->series, s->source == source && s->device == device && s->layer == layer);
}

uint32_t top_series_at(struct top_model *m, uint32_t source, int device, enum top_layer layer)
{
    struct top_series *s = top_series_find(m, source, device, layer);
    if (!s) {
        s = ARENA_ADD(m->series);
        *s = (struct top_series){.source = source,
                                 .device = device,
                                 .layer = layer,
                                 .known = RUN_UNKNOWN,
                                 .peak = RUN_UNKNOWN,
                                 .sampled_ns = RUN_UNKNOWN};
    }
    return (uint32_t)(s - m->series);
}

struct top_device *top_device_at(struct top_source *s, int device)
{
    for (size_t i = 0; i < s->devices_n; i++)
        if (s->devices[i].device == device) return &s->devices[i];
    struct top_device *d = ARENA_ADD(s->devices);
    *d = (struct top_device){.device = device,
                             .total_bytes = RUN_UNKNOWN,
                             .free_bytes = RUN_UNKNOWN,
                             .sampled_ns = RUN_UNKNOWN,
                             .own_bytes = RUN_UNKNOWN,
                             .other_bytes = RUN_UNKNOWN,
                             .utilisation = -1,
                             .temperature = -1,
                             .reserved_bytes = RUN_UNKNOWN};
    return d;
}

/* Another tool's recording has at time 0 what was allocated before it: that is not growth. */
static void add_to_ring(const struct top_source *s, struct top_ring *ring, int64_t time_ns, int64_t bytes,
                        uint32_t count)
{
    if (!s->format || time_ns > 0) top_ring_add(ring, time_ns, bytes, count);
}

static void change_series(struct top_model *m, struct top_series *s, int64_t bytes, int64_t time_ns, uint32_t count)
{
    s->bytes = arena_add_capped(s->bytes, bytes);
    add_to_ring(&m->sources[s->source], &s->ring, time_ns, bytes, count);
    top_curve_add(&s->curve, time_ns, bytes);
    if (time_ns > s->sampled_ns) s->after_sample = arena_add_capped(s->after_sample, bytes);
}

void top_begin_block(struct top_model *m, uint32_t place, int64_t bytes, int64_t time_ns)
{
    struct top_place *p = &m->places[place];
    struct top_series *s = &m->series[p->series];
    p->bytes = arena_add_capped(p->bytes, bytes);
    p->count++;
    p->last_ns = time_ns > p->last_ns ? time_ns : p->last_ns;
    s->count++;
    add_to_ring(&m->sources[s->source], &p->ring, time_ns, bytes, 1);
    change_series(m, s, bytes, time_ns, 1);
}

void top_end_block(struct top_model *m, uint32_t place, int64_t bytes, int64_t time_ns)
{
    struct top_place *p = &m->places[place];
    struct top_series *s = &m->series[p->series];
    p->bytes = arena_add_capped(p->bytes, -bytes);
    p->count--;
    s->count--;
    add_to_ring(&m->sources[s->source], &p->ring, time_ns, -bytes, 0);
    change_series(m, s, -bytes, time_ns, 0);
}
