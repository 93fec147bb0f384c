/* The calibration file: arbitrary text. */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>
#include "analyzer/estimate/calibration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct estimate_calibration c = {0};
    char why[256] = "";
    size_t n;
    const bool ok = estimate_calibration_parse((const char *)data, size, &c, why, sizeof why);
    FUZZ_CHECK(ok || *why, "a reason is given");
    FUZZ_CHECK(c.rows_n <= CALIBRATION_ROWS_MAX, "%zu rows", c.rows_n);
    struct estimate_calibration_known *list = estimate_calibration_list(&c, &n);
    for (size_t i = 0; i < n; i++) {
        const struct estimate_interval x = estimate_calibrated_interval(&list[i].seen);
        FUZZ_CHECK(list[i].seen.runs > 0 && isfinite(x.high) && x.low >= 0 && x.low <= x.likely * 1.0001 &&
                       x.likely <= x.high * 1.0001,
                   "an interval from %g to %g", x.low, x.high);
    }
    free(list);
    estimate_calibration_free(&c);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    static const char *const texts[] = {
        "{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"runs\": [{\"run\": \"a/1/2/0\", \"gpu\": \"Tesla T4\", "
        "\"context_bytes\": 1e8, \"fragmentation\": 0.1, \"workspace_bytes\": 8519680}]}",
        "{\"kind\": \"gpuspy calibration\", \"schema\": 1, \"runs\": [{\"family\": \"gpt\", \"precision\": \"amp\", "
        "\"attention\": "
        "\"flash\", \"checkpointing\": \"none\", \"activations_bytes\": 3e9, \"activations_predicted_bytes\": 2e9, "
        "\"batch\": 8, "
        "\"seq\": 1024, \"formulas\": 1}]}",
        "{\"kind\": \"gpuspy calibration\", \"schema\": 2}",
        "[[[[",
        "{\"kind\": 1}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) put(texts[i], strlen(texts[i]));
}
