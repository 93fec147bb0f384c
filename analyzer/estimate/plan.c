/* Contradictions in what was asked. */
#include "analyzer/base/term.h"
#include "analyzer/estimate/estimate.h"

bool plan_check(const char *command, const struct plan *p)
{
    uint64_t divided = p->tp * p->pp * p->cp;

    if (p->gpus % divided) {
        complain("%s: --gpus: %ju GPUs cannot be divided into groups of tp %ju x pp %ju x cp %ju", command,
                 (uintmax_t)p->gpus, (uintmax_t)p->tp, (uintmax_t)p->pp, (uintmax_t)p->cp);
        return false;
    }
    return true;
}
