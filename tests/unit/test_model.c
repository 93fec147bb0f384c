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
    {"resnet-18", 11689512},
    {"resnet-34", 21797672},
    {"resnet-50", 25557032},
    {"resnet-101", 44549160},
    {"resnet-152", 60192808},
    {"resnext-50-32x4d", 25028904},
    {"resnext-101-32x8d", 88791336},
    {"resnext-101-64x4d", 83455272},
    {"wide-resnet-50-2", 68883240},
    {"wide-resnet-101-2", 126886696},
    {"alexnet", 61100840},
    {"vgg-11", 132863336},
    {"vgg-13", 133047848},
    {"vgg-16", 138357544},
    {"vgg-19", 143667240},
    {"vgg-11-bn", 132868840},
    {"vgg-13-bn", 133053736},
    {"vgg-16-bn", 138365992},
    {"vgg-19-bn", 143678248},
    {"densenet-121", 7978856},
    {"densenet-161", 28681000},
    {"densenet-169", 14149480},
    {"densenet-201", 20013928},
    {"mobilenet-v2", 3504872},
    {"mobilenet-v3-large", 5483032},
    {"mobilenet-v3-small", 2542856},
    {"efficientnet-b0", 5288548},
    {"efficientnet-b1", 7794184},
    {"efficientnet-b2", 9109994},
    {"efficientnet-b3", 12233232},
    {"efficientnet-b4", 19341616},
    {"efficientnet-b5", 30389784},
    {"efficientnet-b6", 43040704},
    {"efficientnet-b7", 66347960},
    {"convnext-tiny", 28589128},
    {"convnext-small", 50223688},
    {"convnext-base", 88591464},
    {"convnext-large", 197767336},
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_published_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
