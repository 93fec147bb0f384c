/* A training tool's configuration, in any format. The first byte chooses the format, the rest is the file. */
#include "analyzer/estimate/recipe.h"
#include "tests/fuzz/fuzz.h"

static const char *const names[] = {"c.yml", "c.toml", "c.sh", "c.json"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct estimate_recipe recipe;
    char path[300];
    const char *const paths[] = {path};

    if (!size) return 0;
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), names[*data % 4]);
    fuzz_write(path, data + 1, size - 1);
    const bool ok = estimate_recipe_read("estimate", paths, 1, false, 0, &recipe);
    FUZZ_CHECK(ok ? recipe.tools[0] != 0 : recipe.options_n == 0, "%d", ok);
    estimate_recipe_free(&recipe);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    static const char *const seeds[] = {
        "\0",
        "\0base_model: a/b\nadapter: qlora\nlora_target_modules: [q_proj, k_proj]\nfsdp:\n  - full_shard\n",
        "\0a: &x {b: 1}\n<<: *x\nc: *x\nstage: sft\n",
        "\0? [1, 2]\n: 3\nstage: \"sft\n",
        "\0{{{{[[[[",
        "\1[model]\nname = \"llama3\"\nflavor = '8B' # c\n[training]\nseq_len = 8_192\n[a.b.c]\nd=[",
        "\2TP=4\n--num-layers ${TP} --bf16 --seq-length=$X \\\n --micro-batch-size",
        "\3{\"zero_optimization\": {\"stage\": 3}, \"bf16\": {\"enabled\": true}}",
    };
    static const size_t sizes[] = {1};

    put(seeds[0], sizes[0]);
    for (size_t i = 1; i < sizeof seeds / sizeof *seeds; i++) put(seeds[i], 1 + strlen(seeds[i] + 1));
}
