/* The estimate of `report --params` beside what was measured. */
#include "analyzer/question.h"

#include <math.h>

/* The level nearest to what the estimate counts: tensors, else CUDA allocations, else CPU tensors.
 */
static const enum gs_series_layer preferred[] = {GS_SERIES_TENSOR, GS_SERIES_DEVICE,
                                                 GS_SERIES_HOST};

void gs_budget_build(struct gs_builder *b)
{
    struct gs_budget *budget = &b->report->budget;
    if (!b->options->estimate) {
        return;
    }
    budget->present = true;
    budget->estimate = *b->options->estimate;
    budget->measured_bytes = GS_UNKNOWN;
    for (size_t p = 0;
         p < sizeof preferred / sizeof *preferred && budget->measured_bytes == GS_UNKNOWN; p++) {
        for (size_t i = 0; i < b->report->peaks_n; i++) {
            const struct gs_peak *peak = &b->report->peaks[i];
            if (peak->layer == preferred[p] && peak->bytes > budget->measured_bytes) {
                budget->measured_bytes = peak->bytes;
                budget->measured_layer = peak->layer;
                budget->by_category = peak->by_category;
            }
        }
    }
    bool measured = budget->measured_bytes != GS_UNKNOWN;
    budget->difference_bytes =
        measured ? (double)budget->measured_bytes - budget->estimate.total : NAN;
    budget->difference_share =
        budget->estimate.total > 0 ? budget->difference_bytes / budget->estimate.total : NAN;
}
