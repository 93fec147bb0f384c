/* Compares an estimate with a GPU's memory. */
#include "analyzer/estimate/fit.h"

#define VERDICT(id, word, words, meaning) word,
const char *const estimate_fit_word[] = {FIT_VERDICTS(VERDICT)};
#undef VERDICT
#define VERDICT(id, word, words, meaning) words,
const char *const estimate_fit_words[] = {FIT_VERDICTS(VERDICT)};
#undef VERDICT
#define VERDICT(id, word, words, meaning) meaning,
const char *const estimate_fit_meaning[] = {FIT_VERDICTS(VERDICT)};
#undef VERDICT

struct estimate_fit estimate_fit(const struct estimate_result *r, double memory)
{
    return (struct estimate_fit){
        .verdict = r->peak.high <= memory     ? FIT_YES
                   : r->peak.likely <= memory ? FIT_TIGHT
                                              : FIT_NO,
        .usable = memory,
        .margin = {memory - r->peak.high, memory - r->peak.likely, memory - r->peak.low},
        .share = r->peak.likely / memory,
    };
}
