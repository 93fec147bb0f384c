#include "analyzer/top/curve.h"

#include <math.h>
#include <stdlib.h>
#include "analyzer/base/arena.h"

enum { BUCKETS_PER_S = 10, BUCKETS = TOP_CURVE_S * BUCKETS_PER_S, POINTS_MIN = 3 };

static int64_t bucket_of(int64_t time_ns)
{
    return time_ns / (1000000000 / BUCKETS_PER_S);
}

void top_curve_add(struct top_curve *c, int64_t time_ns, int64_t amount)
{
    const int64_t bucket = bucket_of(time_ns);
    if (!c->change) {
        c->change = arena_zeroed(BUCKETS, sizeof *c->change);
        c->newest = bucket;
    }
    for (int64_t i = 0; i < bucket - c->newest && i < BUCKETS; i++) c->change[(bucket - i) % BUCKETS] = 0;
    c->newest = bucket > c->newest ? bucket : c->newest;
    if (bucket > c->newest - BUCKETS)
        c->change[bucket % BUCKETS] = arena_add_capped(c->change[bucket % BUCKETS], amount);
}

void top_curve_clear(struct top_curve *c)
{
    free(c->change);
    *c = (struct top_curve){0};
}

static int64_t change_in(const struct top_curve *c, int64_t bucket)
{
    return c->change && bucket >= 0 && bucket <= c->newest && bucket > c->newest - BUCKETS ? c->change[bucket % BUCKETS]
                                                                                           : 0;
}

size_t top_curve_read(const struct top_curve *c, int64_t now_ns, int64_t level, int64_t from_ns, int seconds,
                      struct top_span *points, size_t n)
{
    const int64_t step = (int64_t)seconds * BUCKETS_PER_S, oldest = bucket_of(now_ns) - BUCKETS;
    const int64_t from = bucket_of(from_ns) > oldest ? bucket_of(from_ns) : oldest;
    int64_t bucket = bucket_of(now_ns);
    const int64_t whole = (bucket - from) / step;
    const size_t known = whole < 0 ? 0 : (size_t)whole < n ? (size_t)whole : n;
    for (size_t i = known; i-- > 0;) {
        points[i] = (struct top_span){level, level};
        for (int64_t k = 0; k < step; k++, bucket--) {
            level = arena_add_capped(level, -change_in(c, bucket));
            points[i].low = level < points[i].low ? level : points[i].low;
            points[i].high = level > points[i].high ? level : points[i].high;
        }
    }
    return known;
}

int64_t top_curve_high(const struct top_curve *c, int64_t now_ns, int64_t level, int64_t from_ns)
{
    const int64_t now = bucket_of(now_ns), first = bucket_of(from_ns);
    int64_t high = level;
    for (int64_t bucket = now; bucket > first && bucket > now - BUCKETS; bucket--) {
        level = arena_add_capped(level, -change_in(c, bucket));
        high = level > high ? level : high;
    }
    return high;
}

double top_curve_growth(const struct top_span *points, size_t n)
{
    double x_mean = ((double)n - 1) / 2, y_mean = 0, xx = 0, xy = 0, rest = 0;
    if (n < POINTS_MIN || points[n - 1].high <= points[n - 2].high) return 0;
    for (size_t i = 0; i < n; i++) y_mean += (double)points[i].high / (double)n;
    for (size_t i = 0; i < n; i++) {
        const double x = (double)i - x_mean;
        xx += x * x;
        xy += x * ((double)points[i].high - y_mean);
    }
    const double slope = xy / xx;
    for (size_t i = 0; i < n; i++) {
        const double off = (double)points[i].high - y_mean - slope * ((double)i - x_mean);
        rest += off * off;
    }
    const double error = sqrt(rest / ((double)n - 2) / xx);
    return slope > 0 && slope > 3 * error ? slope : 0;
}
