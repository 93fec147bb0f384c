/* The file of limits of `gpuspy check`, and limits as arguments: arbitrary text. */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include "analyzer/check/check.h"

static void sound(const struct check_limit *l, const char *text)
{
    FUZZ_CHECK(isfinite(l->value) && l->value >= 0, "a limit from '%s'", text);
}

static void as_file(const char *text, size_t size)
{
    struct check_limits l = {0};
    char error[512] = "";
    const char *paths[] = {"run.db", "a/b.db", NULL};
    const bool ok = check_limits_read(&l, text, size, "limits", error, sizeof error);
    FUZZ_CHECK(ok || strncmp(error, "limits:", 7) == 0, "an error says where: '%s'", error);
    for (int g = 0; g < GATES_N; g++) {
        const struct check_limit *found = check_limits_find(&l, (enum check_gate_id)g, NULL, paths, 0);
        FUZZ_CHECK(!found || check_limits_has(&l, (enum check_gate_id)g, paths), "what is found is wanted");
        if (found) sound(found, "a file");
    }
    check_limits_free(&l);
}

static void as_arguments(const uint8_t *data, size_t size)
{
    char text[512];
    const size_t n = size < sizeof text - 1 ? size : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = 0;
    for (int g = 0; g < GATES_N; g++) {
        struct check_limit l;
        char why[LIMIT_WHY] = "";
        if (!check_gates[g].option || check_gate_is_flag(&check_gates[g])) continue;
        if (check_limit_parse(&check_gates[g], text, &l, why))
            sound(&l, text);
        else
            FUZZ_CHECK(*why, "a reason for '%s'", text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    as_file((const char *)data, size);
    as_arguments(data, size);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    static const char *const texts[] = {
        "max-peak = 10GiB\nno-leaks = true # x\n[small*.db]\nmax-peak = \"2GiB\"\n[gpu 1]\nmax-peak=off\n",
        "budget = params=1e9,optimizer=adamw,precision=bf16,master-weights,activations=2GiB,tolerance=10%\n",
        "params=1e9,model=gpt2",
        "+5%",
        "1MiB/step",
        "0.5",
        "12.5 %",
        "[[]]",
        "[\"]",
        "=",
        "[gpu ",
        "allow-incomplete = true",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) put(texts[i], strlen(texts[i]));
}
