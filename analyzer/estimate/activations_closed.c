/* Korthikanti's closed forms and Megatron-LM's report, as published. */
#include <math.h>
#include "analyzer/estimate/activations.h"

double estimate_korthikanti_layer(enum estimate_korthikanti form, double s, double b, double h, double a, double t)
{
    double sbh = s * b * h, scores = 5 * a * s / h;

    switch (form) {
    case KORTHIKANTI_TP: return sbh * (10 + 24 / t + scores / t);
    case KORTHIKANTI_TP_SP: return sbh * (34 + scores) / t;
    case KORTHIKANTI_TP_SELECTIVE: return sbh * (10 + 24 / t);
    case KORTHIKANTI_TP_SP_SELECTIVE: return sbh * 34 / t;
    case KORTHIKANTI_FULL: break;
    }
    return 2 * sbh;
}

double estimate_korthikanti_interleaved(double p, double m)
{
    return 1 + (p - 1) / (p * m);
}

double estimate_megatron_activation_bytes(const struct estimate_megatron_activations *m)
{
    double tokens = m->seq * m->micro_batch;
    double bytes = tokens * m->hidden * (18 + 4 * m->ffn / m->hidden) * m->layers;

    bytes += 8 * tokens * m->pp;         /* the token numbers */
    bytes += tokens * m->hidden * m->pp; /* the embedding's dropout mask */
    if (m->interleave > 0)
        bytes *= estimate_korthikanti_interleaved(m->pp, m->interleave);
    else if (m->pp > 1 && m->micro_batches > 0)
        bytes *= fmin(1, m->micro_batches / m->pp);
    if (m->pp == 1) bytes += 4 * tokens * (m->hidden + m->vocab); /* input of the output layer, and the logits */
    return bytes / m->tp;
}
