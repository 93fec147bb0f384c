/* Models: every count held against the published model's, and what shapes must refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/model/convnets.h"
#include "analyzer/model/model.h"

struct count {
    const char *name;
    uint64_t params;
};

/* Worked out from the configurations by formula: Llama's form V·h·(1 tied | 2) + h + L(h·d(2a + 2kv) + 3hf + 2h),
 * GPT-2's (V + 1024)h + L(12h² + 13h) + 2h; BERT's, ViT's and ResNet's as published. */
static const struct count by_formula[] = {
    {"gpt2", 124439808}, {"gpt2-medium", 354823168}, {"gpt2-large", 774030080}, {"gpt2-xl", 1557611200},
    {"bert-base-uncased", 109482240}, {"bert-base-cased", 108310272}, {"bert-large-uncased", 335141888},
    {"vit-b-16", 86567656}, {"vit-l-16", 304326632},
    {"llama-2-7b", 6738415616}, {"llama-2-13b", 13015864320}, {"llama-2-70b", 68976648192},
    {"llama-3-8b", 8030261248}, {"llama-3-70b", 70553706496}, {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400}, {"llama-3.2-3b", 3212749824}, {"mistral-7b", 7241732096},
    {"mixtral-8x7b", 46702792704}, {"qwen2.5-0.5b", 494032768}, {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688}, {"qwen2.5-7b", 7615616512}, {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352}, {"qwen2.5-72b", 72706203648}, {"gemma-2-2b", 2614341888},
    {"gemma-2-9b", 9241705984}, {"gemma-2-27b", 27227128320},
};

/* Counted with torchvision 0.26.0 on the meta device: sum(p.numel() for p in model.parameters()). */
static const struct count by_torchvision[] = {
    {"resnet-18", 11689512}, {"resnet-34", 21797672}, {"resnet-50", 25557032}, {"resnet-101", 44549160},
    {"resnet-152", 60192808}, {"resnext-50-32x4d", 25028904}, {"resnext-101-32x8d", 88791336},
    {"resnext-101-64x4d", 83455272}, {"wide-resnet-50-2", 68883240}, {"wide-resnet-101-2", 126886696},
    {"alexnet", 61100840}, {"vgg-11", 132863336}, {"vgg-13", 133047848}, {"vgg-16", 138357544},
    {"vgg-19", 143667240}, {"vgg-11-bn", 132868840}, {"vgg-13-bn", 133053736}, {"vgg-16-bn", 138365992},
    {"vgg-19-bn", 143678248}, {"densenet-121", 7978856}, {"densenet-161", 28681000},
    {"densenet-169", 14149480}, {"densenet-201", 20013928}, {"mobilenet-v2", 3504872},
    {"mobilenet-v3-large", 5483032}, {"mobilenet-v3-small", 2542856}, {"efficientnet-b0", 5288548},
    {"efficientnet-b1", 7794184}, {"efficientnet-b2", 9109994}, {"efficientnet-b3", 12233232},
    {"efficientnet-b4", 19341616}, {"efficientnet-b5", 30389784}, {"efficientnet-b6", 43040704},
    {"efficientnet-b7", 66347960}, {"convnext-tiny", 28589128}, {"convnext-small", 50223688},
    {"convnext-base", 88591464}, {"convnext-large", 197767336},
};

/* Counted with transformers 5.23.0 on the meta device, from the published configurations: decoders as
 * AutoModelForCausalLM, encoders as AutoModel, T5 as AutoModelForSeq2SeqLM (1.1's output layer apart from
 * the embedding, as it is published), ViT as AutoModelForImageClassification with 1000 classes. */
static const struct count by_transformers[] = {
    {"gpt2", 124439808}, {"gpt2-medium", 354823168}, {"gpt2-large", 774030080}, {"gpt2-xl", 1557611200},
    {"distilgpt2", 81912576}, {"gpt3-175b", 174604259328}, {"gpt-neo-125m", 125198592},
    {"gpt-neo-1.3b", 1315575808}, {"gpt-neo-2.7b", 2651307520}, {"gpt-j-6b", 6050882784},
    {"gpt-neox-20b", 20554567680}, {"pythia-70m", 70426624}, {"pythia-160m", 162322944},
    {"pythia-410m", 405334016}, {"pythia-1b", 1011781632}, {"pythia-1.4b", 1414647808},
    {"pythia-2.8b", 2775208960}, {"pythia-6.9b", 6857302016}, {"pythia-12b", 11846072320},
    {"opt-125m", 125239296}, {"opt-1.3b", 1315758080}, {"opt-2.7b", 2651596800}, {"opt-6.7b", 6658473984},
    {"opt-13b", 12853473280}, {"opt-30b", 29974540288}, {"opt-66b", 65719701504}, {"opt-175b", 174604468224},
    {"opt-350m", 331196416}, {"bloom-560m", 559214592}, {"bloom-1b1", 1065314304}, {"bloom-1b7", 1722408960},
    {"bloom-3b", 3002557440}, {"bloom-7b1", 7069016064}, {"bloom", 176247271424}, {"falcon-7b", 6921720704},
    {"falcon-40b", 41303293952}, {"falcon-180b", 178557088768}, {"mpt-7b", 6649286656},
    {"mpt-30b", 29957200896}, {"phi-1.5", 1418270720}, {"phi-2", 2779683840}, {"starcoder", 15517456384},
    {"starcoder2-3b", 3030371328}, {"starcoder2-7b", 7173923840}, {"llama-7b", 6738415616},
    {"llama-13b", 13015864320}, {"llama-30b", 32528943616}, {"llama-65b", 65285660672},
    {"llama-2-7b", 6738415616}, {"llama-2-13b", 13015864320}, {"llama-2-70b", 68976648192},
    {"llama-3-8b", 8030261248}, {"llama-3-70b", 70553706496}, {"llama-3.1-8b", 8030261248},
    {"llama-3.1-70b", 70553706496}, {"llama-3.1-405b", 405853388800}, {"llama-3.2-1b", 1235814400},
    {"llama-3.2-3b", 3212749824}, {"codellama-7b", 6738546688}, {"codellama-13b", 13016028160},
    {"codellama-34b", 33743970304}, {"codellama-70b", 68976910336}, {"tinyllama-1.1b", 1100048384},
    {"open-llama-3b", 3426473600}, {"smollm-135m", 134515008}, {"smollm-360m", 361821120},
    {"smollm-1.7b", 1711376384}, {"smollm2-135m", 134515008}, {"smollm2-360m", 361821120},
    {"smollm2-1.7b", 1711376384}, {"falcon3-1b", 1669408768}, {"falcon3-3b", 3227655168},
    {"falcon3-7b", 7455550464}, {"falcon3-10b", 10305653760}, {"yi-6b", 6061035520}, {"yi-9b", 8829407232},
    {"yi-34b", 34388917248}, {"deepseek-llm-7b", 6910365696}, {"deepseek-llm-67b", 67425001472},
    {"smollm3-3b", 3075098624}, {"mistral-7b", 7241732096}, {"mistral-7b-v0.2", 7241732096},
    {"mistral-7b-v0.3", 7248023552}, {"mistral-nemo-12b", 12247782400}, {"mistral-small-24b", 23572403200},
    {"mistral-large-2407", 122610069504}, {"ministral-8b-2410", 8019808256}, {"codestral-22b", 22247282688},
    {"mixtral-8x7b", 46702792704}, {"mixtral-8x22b", 140630071296}, {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-3b", 3085938688}, {"qwen2.5-7b", 7615616512},
    {"qwen2.5-14b", 14770033664}, {"qwen2.5-32b", 32763876352}, {"qwen2.5-72b", 72706203648},
    {"qwen3-0.6b", 596049920}, {"qwen3-1.7b", 1720574976}, {"qwen3-4b", 4022468096}, {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200}, {"qwen3-32b", 32762123264}, {"qwen3-30b-a3b", 30532122624},
    {"qwen3-235b-a22b", 235093634560}, {"qwen3-coder-480b-a35b", 480154875392},
    {"qwen1.5-moe-a2.7b", 14315784192}, {"qwen2-57b-a14b", 57408658944}, {"gemma-2b", 2506172416},
    {"gemma-7b", 8537680896}, {"gemma-2-2b", 2614341888}, {"gemma-2-9b", 9241705984},
    {"gemma-2-27b", 27227128320}, {"gemma-3-270m", 268098176}, {"gemma-3-1b", 999885952},
    {"gemma-3-4b-text", 3880263168}, {"gemma-3-12b-text", 11766034176}, {"gemma-3-27b-text", 27009346304},
    {"phi-3-mini", 3821079552}, {"phi-3-mini-128k", 3821079552}, {"phi-3-medium", 13960238080},
    {"phi-4", 14659507200}, {"phi-4-mini", 3836021760}, {"phi-3.5-moe", 41873153344}, {"olmo-1b", 1176764416},
    {"olmo-7b", 6888095744}, {"olmo-2-1b", 1484916736}, {"olmo-2-7b", 7298617344},
    {"olmo-2-13b", 13716198400}, {"olmo-2-32b", 32234279936}, {"olmoe-1b-7b", 6919161856},
    {"glm-4-9b", 9399951360}, {"stablelm-3b-4e1t", 2795443200}, {"stablelm-2-1.6b", 1644515328},
    {"command-r", 34980831232}, {"command-r-plus", 103810674688}, {"gpt-oss-20b", 20914757184},
    {"gpt-oss-120b", 116829156672}, {"deepseek-v2-lite", 15706484224}, {"deepseek-v2", 235741434880},
    {"deepseek-v3", 671026404352}, {"kimi-k2", 1026408209408}, {"llama-4-scout-text", 107769861120},
    {"llama-4-maverick-text", 400711848960}, {"bert-base-uncased", 109482240}, {"bert-base-cased", 108310272},
    {"bert-base-multilingual-cased", 177853440}, {"bert-large-uncased", 335141888},
    {"bert-large-cased", 333579264}, {"roberta-base", 124645632}, {"roberta-large", 355359744},
    {"xlm-roberta-base", 278043648}, {"xlm-roberta-large", 559890432}, {"distilroberta-base", 82118400},
    {"distilbert-base-uncased", 66362880}, {"distilbert-base-cased", 65190912}, {"minilm-l6", 22713216},
    {"bge-small-en-v1.5", 33360000}, {"t5-small", 60506624}, {"t5-base", 222903552}, {"t5-large", 737668096},
    {"t5-3b", 2851598336}, {"t5-11b", 11307321344}, {"flan-t5-small", 76961152}, {"flan-t5-base", 247577856},
    {"flan-t5-large", 783150080}, {"flan-t5-xl", 2849757184}, {"flan-t5-xxl", 11135332352},
    {"vit-ti-16", 5717416}, {"vit-s-16", 22050664}, {"vit-b-16", 86567656}, {"vit-b-32", 88224232},
    {"vit-l-16", 304326632}, {"vit-l-32", 306535400}, {"vit-h-14", 632045800},
};

static void holds(const struct count *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (model_preset_params(rows[i].name) != rows[i].params)
            fail_msg("%s: %ju, not %ju", rows[i].name, (uintmax_t)model_preset_params(rows[i].name),
                     (uintmax_t)rows[i].params);
}

#define HOLDS(rows) holds(rows, sizeof(rows) / sizeof *(rows))

static void presets_have_the_published_counts(void **state)
{
    (void)state;
    HOLDS(by_formula);
    HOLDS(by_torchvision);
    HOLDS(by_transformers);
}

static bool counted(const char *name, const struct count *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            return true;
    return false;
}

#define COUNTED(name, rows) counted(name, rows, sizeof(rows) / sizeof *(rows))

typedef void each_name(const char *name);

static void all_names(each_name *each)
{
    char name[64];

    for (const char *p = model_names; *p; p += strcspn(p, "|") + 1) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "|"), p);
        each(name);
    }
}

static struct model made(const char *name)
{
    struct model m = {0};
    int exit_code = -1;

    if (!model_named("test", name, &m, &exit_code))
        fail_msg("%s is not known (%d)", name, exit_code);
    return m;
}

/* Other names are aliases: of a row that has a count. */
static void has_a_source(const char *name)
{
    struct model m = made(name);

    if (!COUNTED(m.name, by_formula) && !COUNTED(m.name, by_torchvision) && !COUNTED(m.name, by_transformers))
        fail_msg("%s (%s): its count has no source", name, m.name);
    model_free(&m);
}

static void every_preset_has_a_count_with_a_source(void **state)
{
    (void)state;
    all_names(has_a_source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_published_counts),
        cmocka_unit_test(every_preset_has_a_count_with_a_source),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
