/* The figures of a recording that both views show: its state, rates, and the use of a device. */
#include "analyzer/top/view_parts.h"

#include <math.h>
#include "analyzer/base/text.h"

const char *top_state_word(enum top_state state)
{
    static const char *const words[] = {
        [TOP_WAITING] = "starting", [TOP_RECORDING] = "recording",   [TOP_ENDED] = "ended",
        [TOP_DIED] = "died",        [TOP_KILLED] = "cut off",        [TOP_TORN] = "torn",
        [TOP_DELETED] = "deleted",  [TOP_UNREADABLE] = "unreadable",
    };
    return words[state];
}

void top_state_text(const struct top_source *s, char *out, size_t size)
{
    char path[1024];
    text_path_here(path, sizeof path, s->db.path);
    out[0] = 0;
    switch (s->state) {
    case TOP_WAITING: snprintf(out, size, "its recording is starting"); break;
    case TOP_RECORDING: break;
    case TOP_ENDED:
        if (s->format) {
            snprintf(out, size, "this is the state at its end. The whole recording: gpuspy report %s", path);
            break;
        }
        snprintf(out, size, "it has ended; this is its final state. The whole run: gpuspy report %s", path);
        break;
    case TOP_DIED:
        snprintf(out, size,
                 "it died; this is its final state, complete up to the last call. The whole run: gpuspy report %s",
                 path);
        break;
    case TOP_KILLED:
        snprintf(out, size,
                 "it ended without notice (killed, or by _exit); this is what was written before, and its last "
                 "events are still in the spool. To add them: gpuspy report %s",
                 path);
        break;
    case TOP_TORN:
        snprintf(out, size,
                 "it no longer records, and its spool with the last events is gone. What was stored: gpuspy report %s",
                 path);
        break;
    case TOP_DELETED:
        snprintf(out, size,
                 s->loaded ? "its database was deleted; this is its last known state" : "its database was deleted");
        break;
    case TOP_UNREADABLE: snprintf(out, size, "%s", s->why); break;
    }
}

void top_rates(const struct top_model *m, const struct top_calls *list, size_t n, uint32_t source, double *calls,
               double *amount)
{
    *calls = *amount = 0;
    for (size_t i = 0; i < n; i++) {
        if (list[i].source == source) {
            struct top_sum sum = top_ring_sum(&list[i].ring, m->sources[source].now_ns, TOP_RATE_S);
            *calls += sum.seconds > 0 ? (double)sum.count / sum.seconds : 0;
            *amount += sum.seconds > 0 ? (double)sum.amount / sum.seconds : 0;
        }
    }
}

double top_allocation_rate(const struct top_model *m, uint32_t source)
{
    double rate = 0;
    const enum top_layer layer = top_layer_of(m, source);
    EACH_IN (s, m->series) {
        if (s->source == source && s->layer == layer) {
            struct top_sum sum = top_ring_sum(&s->ring, m->sources[source].now_ns, TOP_RATE_S);
            rate += sum.seconds > 0 ? (double)sum.count / sum.seconds : 0;
        }
    }
    return rate;
}

static int64_t live_bytes_of(const struct top_model *m, uint32_t source, int device, enum top_layer layer)
{
    const struct top_series *s = top_series_find(m, source, device, layer);
    return !s ? 0 : s->known != RUN_UNKNOWN ? s->known : s->bytes;
}

struct top_held top_held_of(const struct top_model *m, uint32_t source, const struct top_device *d)
{
    struct top_held h = {.total = d->total_bytes, .used = RUN_UNKNOWN};
    h.device = live_bytes_of(m, source, d->device, TOP_DEVICE);
    h.tensors = live_bytes_of(m, source, d->device, TOP_TENSOR);
    h.cached = d->reserved_bytes > h.tensors ? d->reserved_bytes - h.tensors : 0;
    if (d->total_bytes == RUN_UNKNOWN || d->free_bytes == RUN_UNKNOWN) return h;
    /* the device's report is up to a second old: this was allocated since */
    const struct top_series *s = top_series_find(m, source, d->device, TOP_DEVICE);
    const int64_t then = s ? top_max(s->bytes - s->after_sample, 0) : 0;
    const int64_t rest =
        top_min(top_max(d->total_bytes - d->free_bytes - then, 0), top_max(d->total_bytes - h.device, 0));
    h.used = top_min(h.device + rest, d->total_bytes);
    h.by_nvml = d->other_bytes != RUN_UNKNOWN;
    h.others = h.by_nvml ? top_min(d->other_bytes, rest) : 0;
    h.context = rest - h.others;
    return h;
}

int64_t top_range_peak(const struct top_model *m, uint32_t source, const struct top_range *range)
{
    const struct top_source *s = &m->sources[source];
    int64_t peak = RUN_UNKNOWN;
    EACH_IN (d, s->devices) {
        const struct top_series *series = top_series_find(m, source, d->device, top_layer_of(m, source));
        if (!series || s->no_rates) continue;
        const int64_t level = series->known != RUN_UNKNOWN ? series->known : series->bytes;
        peak =
            top_max(peak, top_curve_high(&series->curve, s->now_ns, level, top_max(range->start_ns, s->curve_from_ns)));
    }
    return peak;
}

enum { FORECAST_POINTS = TOP_WINDOW_S / TOP_SLOT_S, FORECAST_MOST_S = 7 * 24 * 3600 };

/* The cache is available to tensors, so live memory counts, at the maximum of each five seconds. */
struct top_forecast top_forecast_of(const struct top_model *m, uint32_t source, const struct top_device *d)
{
    const struct top_source *s = &m->sources[source];
    const struct top_series *series = top_series_find(m, source, d->device, top_layer_of(m, source));
    const struct top_held h = top_held_of(m, source, d);
    struct top_forecast f = {NAN, NAN};
    struct top_span points[FORECAST_POINTS];
    if (s->state != TOP_RECORDING || !series || s->unread_rows) return f;
    const int64_t level = series->known != RUN_UNKNOWN ? series->known : series->bytes;
    const size_t n =
        top_curve_read(&series->curve, s->now_ns, level, s->curve_from_ns, TOP_SLOT_S, points, FORECAST_POINTS);
    const double growth = top_curve_growth(points, n) / TOP_SLOT_S;
    if (growth <= 0 || s->unfound_bytes > level / 100) return f;
    f.bytes_per_s = growth;
    if (h.used != RUN_UNKNOWN) {
        const int64_t most = h.used - top_min(h.cached, top_max(h.device - h.tensors, 0)) - level + points[n - 1].high;
        const double full_s = (double)top_max(h.total - most, 0) / growth;
        f.full_s = full_s <= FORECAST_MOST_S ? full_s : NAN;
    }
    return f;
}
