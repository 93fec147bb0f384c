/* The open slices of a thread, and the call stack that they are. */
#pragma once

#include "analyzer/import/trace_file.h"

struct import_lane { /* of one thread; zero-initialise */
    struct import_open *list;
    size_t n, cap;
};

void import_lane_open(struct import_lane *lane, const struct import_trace_record *r);
/* The stack of an event of the lane's thread at this time: operators and, if the trace has them, Python frames, else
 * the "Call stack" of the innermost operator. `stacks` maps open slices to the number of their stack. */
uint32_t import_lane_stack(struct import_lane *lane, const struct import_trace_record *r, struct import_trace *t,
                           struct import_feed *feed, uint64_t thread, struct map *stacks);
void import_lane_free(struct import_lane *lane);
