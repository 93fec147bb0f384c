/* What must be true of every model read from a file, and of every estimate for it. */
#pragma once

#include "tests/fuzz/fuzz.h"

#include "analyzer/estimate/estimate.h"
#include "analyzer/model/model.h"

static inline void fuzz_estimates(const struct model *m)
{
    static struct estimate_result r;
    struct plan p = PLAN_DEFAULT;
    p.model = m;
    p.precision = estimate_precision("bf16");
    p.optimizer = estimate_optimizer("adamw");
    for (int i = 0; i < 4; i++) {
        p.inference = i & 1;
        p.batch = i & 2 ? 2 : 0;
        p.seq = i & 2 ? 128 : 0;
        if (!estimate_make(&p, &r)) continue;
        FUZZ_CHECK(r.peak.low >= 0 && r.peak.low <= r.peak.likely && r.peak.likely <= r.peak.high, "%g %g %g",
                   r.peak.low, r.peak.likely, r.peak.high);
    }
}

static inline void fuzz_model(bool ok, int exit_code, struct model *m)
{
    unsigned __int128 params = 0;
    double bytes = 0;
    FUZZ_CHECK(ok || exit_code == 3, "exit code %d", exit_code);
    for (size_t i = 0; ok && i < m->tensors_n; i++) {
        const struct model_tensor *t = &m->tensors[i];
        params += (unsigned __int128)t->rows * t->cols * t->count;
        bytes += t->bytes;
        FUZZ_CHECK(strlen(t->name) < sizeof t->name && !strpbrk(t->name, "\x1b\r\n\a"), "%zu", i);
    }
    if (ok) {
        FUZZ_CHECK(params == m->params && m->params > 0, "%ju", (uintmax_t)m->params);
        FUZZ_CHECK(m->stored_bytes >= m->other_bytes, "%g %g", m->stored_bytes, m->other_bytes);
        FUZZ_CHECK(bytes <= m->stored_bytes + 1, "%g %g", bytes, m->stored_bytes);
        FUZZ_CHECK(!strpbrk(m->name, "\x1b\r\n\a") && !strpbrk(m->note, "\x1b\r\n\a"), "%s", m->note);
        FUZZ_CHECK(model_active_params(m) <= m->params, "%ju", (uintmax_t)model_active_params(m));
        fuzz_estimates(m);
    }
    model_free(m);
}
