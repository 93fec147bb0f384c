/* Does it fit? Compares an estimate with a GPU's memory.
 *
 * Usable is the memory that the driver offers to a program (gpu.total_bytes, or --memory): the CUDA context is already
 * a line of the estimate. */
#pragma once

#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/gpu.h"

/* VERDICT(id, word in JSON, words, meaning), from best to worst. All words about verdicts, in text, JSON, pages and
 * --help, come from here. Exit status 0: fits or tight; 1: does not fit. */
#define FIT_VERDICTS(VERDICT)                                                         \
    VERDICT(YES, "fits", "fits", "even the high end fits")                            \
    VERDICT(TIGHT, "tight", "tight", "the expected need fits, the high end does not") \
    VERDICT(NO, "does_not_fit", "does not fit", "the expected need exceeds the memory")

#define VERDICT(id, word, words, meaning) FIT_##id,
enum estimate_fit_verdict { FIT_VERDICTS(VERDICT) };
#undef VERDICT

/* By verdict: "does_not_fit", "does not fit", "the expected need exceeds the memory". */
extern const char *const estimate_fit_word[], *const estimate_fit_words[], *const estimate_fit_meaning[];
/* All of them in a sentence, for --help: a text literal. */
#define FIT_VERDICT_SENTENCE(id, word, words, meaning) words ": " meaning ". "
#define FIT_VERDICTS_EXPLAINED         \
    FIT_VERDICTS(FIT_VERDICT_SENTENCE) \
    "Exit status 0: fits or tight on at least one of the named GPUs; 1: does not fit on any"

struct estimate_fit {
    enum estimate_fit_verdict verdict;
    double usable;                   /* bytes */
    struct estimate_interval margin; /* usable minus the peak, negative if too small; low belongs to the peak's high */
    double share;                    /* the likely peak as a share of usable: 0.83 */
};

/* `memory` > 0. The verdict never gets worse with more memory. */
struct estimate_fit estimate_fit(const struct estimate_result *r, double memory);
/* The same for each of gpus[] (gpu.h) is estimate_fit(r, estimate_fit_usable(gpu)). */
static inline double estimate_fit_usable(const struct estimate_gpu *gpu)
{
    return (double)gpu->total_bytes;
}
