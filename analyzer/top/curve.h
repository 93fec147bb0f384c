/* The bytes of a series over the last five minutes: changes by tenths of a second, so that slow growth is visible below
 * the rise and fall of each step. 24 KB, allocated at the first change. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { TOP_CURVE_S = 300 };

struct top_curve {
    int64_t newest; /* number of the last bucket */
    int64_t *change;
};
struct top_span {
    int64_t low, high;
};

void top_curve_add(struct top_curve *c, int64_t time_ns, int64_t amount);
/* Intervals of this many seconds, the last one ending at now_ns, when the series held `level`; none begins before
 * from_ns. Returns their number, at most n, and fills points[0 …], oldest first. */
size_t top_curve_read(const struct top_curve *c, int64_t now_ns, int64_t level, int64_t from_ns, int seconds,
                      struct top_span *points, size_t n);
/* The highest value after from_ns, at the ends of tenths of a second: at least so high was the peak. */
int64_t top_curve_high(const struct top_curve *c, int64_t now_ns, int64_t level, int64_t from_ns);
void top_curve_clear(struct top_curve *c);

/* The line through the maxima of intervals, if it certainly rises: by more than three standard errors, and up to the
 * end. Bytes per interval; 0: there is no steady growth. */
double top_curve_growth(const struct top_span *points, size_t n);
