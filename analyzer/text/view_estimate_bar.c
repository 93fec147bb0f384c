/* An estimate against GPUs. */
#include <string.h>
#include "analyzer/text/view_estimate_parts.h"

void view_estimate_bars(const struct view_estimate *v)
{
    for (size_t i = 0; i < v->a->targets_n; i++) {
        const struct estimate_target *t = &v->a->targets[i];
        char memory[UNITS_TEXT], peak[UNITS_TEXT];
        fprintf(v->out, "%s%s: %s of %s, %s\n", i ? "" : "\n", t->gpu ? t->gpu->key : "memory",
                view_estimate_bytes(peak, t->peak.likely), view_estimate_bytes(memory, t->memory),
                fit_words[t->fit.verdict]);
    }
}
