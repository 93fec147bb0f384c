/* Models: every count compared with the published model's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/model/model.h"

struct count {
    const char *name;
    uint64_t params;
};

/* Computed from the configurations by formula: Llama V·h·(1 tied | 2) + h + L(h·d(2a + 2kv) + 3hf + 2h), GPT-2 (V +
 * 1024)h + L(12h² + 13h) + 2h, Cerebras-GPT the same with 2048 positions; Qwen and Qwen1.5 like Llama plus 3h per layer
 * for biases; BERT, ViT and ResNet as published. */
static const struct count by_formula[] = {
    {"cerebras-gpt-111m", 111050496},
    {"cerebras-gpt-256m", 255977024},
    {"cerebras-gpt-590m", 590310912},
    {"cerebras-gpt-1.3b", 1315723264},
    {"cerebras-gpt-2.7b", 2651553280},
    {"cerebras-gpt-6.7b", 6658404352},
    {"cerebras-gpt-13b", 12853386240},
    {"qwen-1.8b", 1836828672},
    {"qwen-7b", 7721324544},
    {"qwen-14b", 14167290880},
    {"qwen-72b", 72287920128},
    {"gpt2", 124439808},
    {"gpt2-medium", 354823168},
    {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},
    {"bert-base-uncased", 109482240},
    {"bert-base-cased", 108310272},
    {"bert-large-uncased", 335141888},
    {"vit-b-16", 86567656},
    {"vit-l-16", 304326632},
    {"llama-2-7b", 6738415616},
    {"llama-2-13b", 13015864320},
    {"llama-2-70b", 68976648192},
    {"llama-3-8b", 8030261248},
    {"llama-3-70b", 70553706496},
    {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},
    {"llama-3.2-3b", 3212749824},
    {"mistral-7b", 7241732096},
    {"mixtral-8x7b", 46702792704},
    {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688},
    {"qwen2.5-7b", 7615616512},
    {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352},
    {"qwen2.5-72b", 72706203648},
    {"gemma-2-2b", 2614341888},
    {"gemma-2-9b", 9241705984},
    {"gemma-2-27b", 27227128320},
    {"baichuan2-7b", 7505973248},
    {"baichuan2-13b", 13896668160},
    {"internlm2-1.8b", 1889110016},
    {"internlm2-7b", 7737708544},
    {"internlm2-20b", 19861149696},
    {"chatglm3-6b", 6243584000},
    {"glm-4-32b-0414", 32566081536},
    {"qwen1.5-0.5b", 463987712},
    {"qwen1.5-1.8b", 1836828672},
    {"qwen1.5-4b", 3950369280},
    {"qwen1.5-7b", 7721324544},
    {"qwen1.5-14b", 14167290880},
    {"qwen1.5-32b", 32512218112},
    {"qwen1.5-72b", 72287920128},
    {"deepseek-coder-1.3b", 1346471936},
    {"deepseek-coder-6.7b", 6740512768},
    {"deepseek-coder-33b", 33342991360},
    {"solar-10.7b", 10731524096},
    {"llama-pro-8b", 8357482496},
    {"orpheus-3b-0.1", 3300867072},
    {"seed-oss-36b", 36151104512},
    {"mimo-7b", 7622619136},
    {"salamandra-2b", 2253490176},
    {"salamandra-7b", 7768117248},
    {"pythia-14m", 14067712},
    {"pythia-31m", 30494720},
    {"command-r7b", 8028033024},
    {"aya-expanse-8b", 8028033024},
    {"aya-expanse-32b", 32296476672},
    {"granite-3.1-2b", 2533531648},
    {"granite-3.1-8b", 8170848256},
    {"exaone-3.5-2.4b", 2405327360},
    {"exaone-3.5-7.8b", 7818448896},
    {"exaone-3.5-32b", 32003200000},
    {"minicpm-2b", 2724880896},
    {"h2o-danube2-1.8b", 1831201280},
    {"stablelm-base-alpha-3b", 3637321728},
    {"stablelm-base-alpha-7b", 7868755968},
    {"starcoderbase-1b", 1137207296},
    {"mt5-small", 300176768},
    {"baichuan-7b", 7000559616},
    {"baichuan-13b", 13264901120},
};

/* Counted with torchvision 0.26.0 on the meta device: sum(p.numel() for p in model.parameters()). */
static const struct count by_torchvision[] = {
    {"resnet-18", 11689512},         {"resnet-34", 21797672},
    {"resnet-50", 25557032},         {"resnet-101", 44549160},
    {"resnet-152", 60192808},        {"resnext-50-32x4d", 25028904},
    {"resnext-101-32x8d", 88791336}, {"resnext-101-64x4d", 83455272},
    {"wide-resnet-50-2", 68883240},  {"wide-resnet-101-2", 126886696},
    {"alexnet", 61100840},           {"vgg-11", 132863336},
    {"vgg-13", 133047848},           {"vgg-16", 138357544},
    {"vgg-19", 143667240},           {"vgg-11-bn", 132868840},
    {"vgg-13-bn", 133053736},        {"vgg-16-bn", 138365992},
    {"vgg-19-bn", 143678248},        {"densenet-121", 7978856},
    {"densenet-161", 28681000},      {"densenet-169", 14149480},
    {"densenet-201", 20013928},      {"mobilenet-v2", 3504872},
    {"mobilenet-v3-large", 5483032}, {"mobilenet-v3-small", 2542856},
    {"efficientnet-b0", 5288548},    {"efficientnet-b1", 7794184},
    {"efficientnet-b2", 9109994},    {"efficientnet-b3", 12233232},
    {"efficientnet-b4", 19341616},   {"efficientnet-b5", 30389784},
    {"efficientnet-b6", 43040704},   {"efficientnet-b7", 66347960},
    {"mnasnet-0.5", 2218512},        {"mnasnet-0.75", 3170208},
    {"mnasnet-1.0", 4383312},        {"mnasnet-1.3", 6282256},
    {"regnet-x-400mf", 5495976},     {"regnet-x-800mf", 7259656},
    {"regnet-x-1-6gf", 9190136},     {"regnet-x-3-2gf", 15296552},
    {"regnet-x-8gf", 39572648},      {"regnet-x-16gf", 54278536},
    {"regnet-x-32gf", 107811560},    {"regnet-y-400mf", 4344144},
    {"regnet-y-800mf", 6432512},     {"regnet-y-1-6gf", 11202430},
    {"regnet-y-3-2gf", 19436338},    {"regnet-y-8gf", 39381472},
    {"regnet-y-16gf", 83590140},     {"regnet-y-32gf", 145046770},
    {"regnet-y-128gf", 644812894},   {"convnext-tiny", 28589128},
    {"convnext-small", 50223688},    {"convnext-base", 88591464},
    {"convnext-large", 197767336},
};

/* Counted with diffusers 0.38.0 on the meta device. */
static const struct count by_diffusers[] = {
    {"stable-diffusion-1.5", 859520964}, {"stable-diffusion-2.1", 865910724}, {"sdxl", 2567463684},
    {"sdxl-refiner", 2259526660},        {"sd3-medium", 2028328000},          {"sd3.5-medium", 2243171520},
    {"sd3.5-large", 8056627520},         {"flux.1-dev", 11901408320},         {"flux.1-schnell", 11891178560},
    {"pixart-alpha", 611349152},         {"pixart-sigma", 610856096},         {"sana-0.6b", 591747872},
    {"sana-1.6b", 1604462752},           {"wan2.1-1.3b", 1418996800},         {"wan2.1-14b", 14288491584},
    {"cogvideox-2b", 1693783872},        {"cogvideox-5b", 5570283072},        {"hunyuanvideo", 12821012544},
    {"ltx-video", 1923385472},
};

/* Counted with transformers 5.23.0 on the meta device, from the published configurations: decoders as
 * AutoModelForCausalLM, encoders as AutoModel, T5 as AutoModelForSeq2SeqLM (1.1's output layer apart from
 * the embedding, as it is published), ViT, ConvNeXt V2 and Swin as AutoModelForImageClassification with 1000 classes,
 * Whisper as WhisperForConditionalGeneration; the cards of Distil-Whisper say 166M, 394M and 756M. */
static const struct count by_transformers[] = {
    {"convnextv2-atto", 3708400},
    {"microsoft/swin-tiny-patch4-window7-224", 28288354},
    {"swin-tiny-patch4-window7-224", 28288354},
    {"microsoft/swin-base-patch4-window7-224-in22k", 87768224},
    {"swin-small-patch4-window7-224", 49606258},
    {"swin-t", 28288354},
    {"swin-s", 49606258},
    {"swin-b", 87768224},
    {"swin-base-patch4-window7-224", 87768224},
    {"swin-large-patch4-window7-224", 196532476},
    {"swin-base-patch4-window12-384", 87903584},
    {"swin-large-patch4-window12-384", 196735516},
    {"convnextv2-femto", 5233240},
    {"convnextv2-pico", 9066280},
    {"convnextv2-nano", 15623800},
    {"convnextv2-tiny", 28635496},
    {"facebook/convnextv2-base-22k-224", 88717800},
    {"convnextv2-base", 88717800},
    {"convnextv2-large", 197956840},
    {"convnextv2-huge", 660289640},
    {"gpt2", 124439808},
    {"gpt2-medium", 354823168},
    {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},
    {"distilgpt2", 81912576},
    {"gpt3-175b", 174604259328},
    {"gpt-neo-125m", 125198592},
    {"gpt-neo-1.3b", 1315575808},
    {"gpt-neo-2.7b", 2651307520},
    {"gpt-j-6b", 6050882784},
    {"gpt-neox-20b", 20554567680},
    {"pythia-70m", 70426624},
    {"pythia-160m", 162322944},
    {"pythia-410m", 405334016},
    {"pythia-1b", 1011781632},
    {"pythia-1.4b", 1414647808},
    {"pythia-2.8b", 2775208960},
    {"pythia-6.9b", 6857302016},
    {"pythia-12b", 11846072320},
    {"opt-125m", 125239296},
    {"opt-1.3b", 1315758080},
    {"opt-2.7b", 2651596800},
    {"opt-6.7b", 6658473984},
    {"opt-13b", 12853473280},
    {"opt-30b", 29974540288},
    {"opt-66b", 65719701504},
    {"opt-175b", 174604468224},
    {"opt-350m", 331196416},
    {"bloom-560m", 559214592},
    {"bloom-1b1", 1065314304},
    {"bloom-1b7", 1722408960},
    {"bloom-3b", 3002557440},
    {"bloom-7b1", 7069016064},
    {"bloom", 176247271424},
    {"falcon-7b", 6921720704},
    {"falcon-40b", 41303293952},
    {"falcon-180b", 178557088768},
    {"mpt-7b", 6649286656},
    {"mpt-30b", 29957200896},
    {"phi-1.5", 1418270720},
    {"phi-2", 2779683840},
    {"starcoder", 15517456384},
    {"starcoder2-3b", 3030371328},
    {"starcoder2-7b", 7173923840},
    {"starcoder2-15b", 15957889024},
    {"llama-7b", 6738415616},
    {"llama-13b", 13015864320},
    {"llama-30b", 32528943616},
    {"llama-65b", 65285660672},
    {"llama-2-7b", 6738415616},
    {"llama-2-13b", 13015864320},
    {"llama-2-70b", 68976648192},
    {"llama-3-8b", 8030261248},
    {"llama-3-70b", 70553706496},
    {"llama-3.1-8b", 8030261248},
    {"llama-3.1-70b", 70553706496},
    {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},
    {"llama-3.2-3b", 3212749824},
    {"codellama-7b", 6738546688},
    {"codellama-13b", 13016028160},
    {"codellama-34b", 33743970304},
    {"codellama-70b", 68976910336},
    {"tinyllama-1.1b", 1100048384},
    {"open-llama-3b", 3426473600},
    {"smollm-135m", 134515008},
    {"smollm-360m", 361821120},
    {"smollm-1.7b", 1711376384},
    {"smollm2-135m", 134515008},
    {"smollm2-360m", 361821120},
    {"smollm2-1.7b", 1711376384},
    {"falcon3-1b", 1669408768},
    {"falcon3-3b", 3227655168},
    {"falcon3-7b", 7455550464},
    {"falcon3-10b", 10305653760},
    {"yi-6b", 6061035520},
    {"yi-9b", 8829407232},
    {"yi-34b", 34388917248},
    {"deepseek-llm-7b", 6910365696},
    {"deepseek-llm-67b", 67425001472},
    {"smollm3-3b", 3075098624},
    {"mistral-7b", 7241732096},
    {"mistral-7b-v0.2", 7241732096},
    {"mistral-7b-v0.3", 7248023552},
    {"mistral-nemo-12b", 12247782400},
    {"mistral-small-24b", 23572403200},
    {"mistral-large-2407", 122610069504},
    {"ministral-8b-2410", 8019808256},
    {"codestral-22b", 22247282688},
    {"mixtral-8x7b", 46702792704},
    {"mixtral-8x22b", 140630071296},
    {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688},
    {"qwen2.5-7b", 7615616512},
    {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352},
    {"qwen2.5-72b", 72706203648},
    {"deepseek-r1-distill-qwen-1.5b", 1777088000},
    {"qwen3-0.6b", 596049920},
    {"qwen3-1.7b", 1720574976},
    {"qwen3-4b", 4022468096},
    {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},
    {"qwen3-32b", 32762123264},
    {"qwen3-30b-a3b", 30532122624},
    {"qwen3-235b-a22b", 235093634560},
    {"qwen3-coder-480b-a35b", 480154875392},
    {"qwen1.5-moe-a2.7b", 14315784192},
    {"qwen2-57b-a14b", 57408658944},
    {"gemma-2b", 2506172416},
    {"gemma-7b", 8537680896},
    {"gemma-2-2b", 2614341888},
    {"gemma-2-9b", 9241705984},
    {"gemma-2-27b", 27227128320},
    {"gemma-3-270m", 268098176},
    {"gemma-3-1b", 999885952},
    {"gemma-3-4b-text", 3880263168},
    {"gemma-3-12b-text", 11766034176},
    {"gemma-3-27b-text", 27009346304},
    {"phi-3-mini", 3821079552},
    {"phi-3-mini-128k", 3821079552},
    {"phi-3-medium", 13960238080},
    {"phi-4", 14659507200},
    {"phi-4-mini", 3836021760},
    {"phi-3.5-moe", 41873153344},
    {"olmo-1b", 1176764416},
    {"olmo-7b", 6888095744},
    {"olmo-2-1b", 1484916736},
    {"olmo-2-7b", 7298617344},
    {"olmo-2-13b", 13716198400},
    {"olmo-2-32b", 32234279936},
    {"olmoe-1b-7b", 6919161856},
    {"glm-4-9b", 9399951360},
    {"stablelm-3b-4e1t", 2795443200},
    {"stablelm-2-1.6b", 1644515328},
    {"command-r", 34980831232},
    {"command-r-plus", 103810674688},
    {"gpt-oss-20b", 20914757184},
    {"gpt-oss-120b", 116829156672},
    {"deepseek-v2-lite", 15706484224},
    {"deepseek-v2", 235741434880},
    {"deepseek-v3", 671026404352},
    {"kimi-k2", 1026408209408},
    {"llama-4-scout-text", 107769861120},
    {"llama-4-maverick-text", 400711848960},
    {"bert-base-uncased", 109482240},
    {"bert-base-cased", 108310272},
    {"bert-base-multilingual-cased", 177853440},
    {"bert-large-uncased", 335141888},
    {"bert-large-cased", 333579264},
    {"roberta-base", 124645632},
    {"roberta-large", 355359744},
    {"xlm-roberta-base", 278043648},
    {"xlm-roberta-large", 559890432},
    {"distilroberta-base", 82118400},
    {"distilbert-base-uncased", 66362880},
    {"distilbert-base-cased", 65190912},
    {"electra-base-discriminator", 108891648},
    {"electra-large-discriminator", 334092288},
    {"minilm-l6", 22713216},
    {"bge-small-en-v1.5", 33360000},
    {"t5-small", 60506624},
    {"t5-base", 222903552},
    {"t5-large", 737668096},
    {"t5-3b", 2851598336},
    {"t5-11b", 11307321344},
    {"flan-t5-small", 76961152},
    {"flan-t5-base", 247577856},
    {"flan-t5-large", 783150080},
    {"flan-t5-xl", 2849757184},
    {"flan-t5-xxl", 11135332352},
    {"vit-ti-16", 5717416},
    {"vit-s-16", 22050664},
    {"vit-b-16", 86567656},
    {"vit-b-32", 88224232},
    {"vit-l-16", 304326632},
    {"vit-l-32", 306535400},
    {"vit-h-14", 632045800},
    {"whisper-tiny", 37760640},
    {"whisper-base", 72593920},
    {"whisper-small", 241734912},
    {"whisper-medium", 763857920},
    {"whisper-large-v2", 1543304960},
    {"whisper-large-v3", 1543490560},
    {"whisper-large-v3-turbo", 808878080},
    {"whisper-tiny.en", 37760256},
    {"whisper-base.en", 72593408},
    {"whisper-small.en", 241734144},
    {"whisper-medium.en", 763856896},
    {"distil-small.en", 166132224},
    {"distil-medium.en", 394375168},
    {"distil-large-v2", 756220160},
    {"distil-large-v3", 756405760},
    {"mamba-130m", 129135360},
    {"mamba-370m", 371516416},
    {"mamba-790m", 793204224},
    {"mamba-1.4b", 1372178432},
    {"mamba-2.8b", 2768345600},
    {"mamba2-130m", 128989632},
    {"mamba2-370m", 368346624},
    {"mamba2-780m", 780161280},
    {"mamba2-1.3b", 1343757312},
    {"mamba2-2.7b", 2702599680},
    {"falcon-mamba-7b", 7272665088},
    {"mamba-codestral-7b", 7285403648}, /* also stated on its card */
};

/* The same for models with an image tower, as AutoModelForImageTextToText, and for later models. The configurations are
 * those published with the models. */
static const struct count by_transformers_later[] = {
    {"gemma-3-4b", 4300079472},
    {"gemma-3-12b", 12187325040},
    {"gemma-3-27b", 27432406640},
    {"llama-4-scout", 108641793536},
    {"llama-4-maverick", 401583781376},
    {"llama-3.2-11b-vision", 10670220835},
    {"llama-3.2-90b-vision", 88593355323},
    {"llava-1.5-7b", 7063427072},
    {"llava-1.5-13b", 13351494656},
    {"mistral-small-3.1-24b", 24011361280},
    {"mistral-small-4-119b", 119401298944},
    {"pixtral-12b", 12682739712},
    {"ministral-3-3b", 3849090048},
    {"ministral-3-8b", 8918026240},
    {"ministral-3-14b", 13945031680},
    {"qwen2-vl-2b", 2208985600},
    {"qwen2-vl-7b", 8291375616},
    {"qwen2-vl-72b", 73405560320},
    {"qwen2.5-vl-3b", 3754622976},
    {"qwen2.5-vl-7b", 8292166656},
    {"qwen2.5-vl-32b", 33452718336},
    {"qwen2.5-vl-72b", 73410777344},
    {"qwen3-vl-2b", 2127532032},
    {"qwen3-vl-4b", 4437815808},
    {"qwen3-vl-8b", 8767123696},
    {"qwen3-vl-32b", 33357390064},
    {"qwen3-vl-30b-a3b", 31070754032},
    {"qwen3-vl-235b-a22b", 235670022896},
    {"glm-4.7-flash", 29943390976},
    {"internlm3-8b", 8804241408},
    {"minimax-m2", 228689748992},
    {"paddleocr-vl", 799695472},
    {"glm-4-9b-0414", 9400279040},
    {"glm-4.5-air", 106852245504},
    {"glm-4.5", 352797814784},
    {"olmo-3-7b", 7298011136},
    {"olmo-3-32b", 32233522176},
    {"xgen-7b", 6895702016},
    {"redpajama-incite-3b", 2775864320},
    {"nemotron-mini-4b", 4190509056},
    {"qwen3.5-0.8b", 852985920},
    {"qwen3.5-2b", 2213241664},
    {"qwen3.5-4b", 4539265536},
    {"qwen3.5-9b", 9409813744},
    {"qwen3.5-27b", 27356728560},
    {"qwen3.5-35b-a3b", 35107181936},
    {"qwen3.5-122b-a10b", 122562817776},
    {"qwen3.5-397b-a17b", 396802360816},
    {"qwen3-next-80b-a3b", 79674391296},
    {"dbrx", 131596523520},
    {"gemma-4-31b", 31273086512},
    {"gemma-4-26b-a4b", 25805933872},
};

/* Described by their published config.json. Counted by building the class of transformers 5.24.0 on the meta device:
 * ai-dynamo/aiconfigurator's collection of configurations has Nemotron, DeepSeek, GLM-5 and MiMo; the others' numbers
 * are those of the model cards and of transformers' documentation. Published: Falcon-H1 0.5B 521 M, 7B 7.59 B, 34B 33.6
 * B; Jamba 51.6 B and 398 B, Apertus 8.05 B and 70.6 B, AFM 4.62 B, LFM2 354 M, 742 M, 1.17 B and 8.3 B, Nemotron
 * 3 31.6 B and 120 B, GLM-5 744 B, DeepSeek-V4 284 B, Trinity 6.1 B and 26.1 B. Of models with images or sound only the
 * language model is described. */
static const struct count by_config[] = {
    {"lfm2-350m", 354483968},
    {"lfm2-700m", 742489344},
    {"lfm2-1.2b", 1170340608},
    {"lfm2-2.6b", 2569272320},
    {"lfm2-8b-a1b", 8339929856},
    {"lfm2-vl-450m", 354483968},
    {"falcon-h1-0.5b", 521411104},
    {"falcon-h1-1.5b-deep", 1554770832},
    {"falcon-h1-3b", 3149256192},
    {"falcon-h1-7b", 7585513568},
    {"falcon-h1-34b", 33642221312},
    {"jamba-v0.1", 51570323328},
    {"ai21-jamba-1.5-large", 398555145696},
    {"kimi-linear-48b-a3b", 49122675072},
    {"nvidia-nemotron-3-nano-30b-a3b", 31577937344},
    {"nvidia-nemotron-3-super-120b-a12b", 120668687360},
    {"nvidia-nemotron-3-ultra-550b-a55b", 549308968960},
    {"nemotron-h-56b", 56324350464},
    {"deepseek-v4-flash", 284332230231},
    {"deepseek-v4-pro", 1572997179491},
    {"deepseek-v3.2", 671877929216},
    {"glm-5", 743911199232},
    {"glm-5.2", 743377000704},
    {"mimo-v2-flash", 308778768832},
    {"apertus-8b", 8053338176},
    {"apertus-70b", 70599864480},
    {"afm-4.5b", 4619184640},
    {"trinity-nano", 6120003328},
    {"trinity-mini", 26123974400},
    {"granite-4.0-h-tiny", 6939037248},
    {"granite-4.0-h-1b", 1461538368},
    {"hunyuan-0.5b", 539010048},
    {"hunyuan-4b", 4221757440},
    {"hunyuan-7b", 7504568320},
    {"gemma-4-e2b", 5104297504},
    {"gemma-4-e4b", 7941100832},
    {"gemma-4-12b", 11959730176},
    {"moonlight-16b-a3b", 15960108544},
    {"qwen3-embedding-0.6b", 595776512},
    {"qwen3-embedding-4b", 4021774336},
    {"qwen3-embedding-8b", 7567295488},
    {"qwen3-reranker-0.6b", 595776512},
    {"qwen3-reranker-4b", 4021784576},
    {"lfm2-vl-1.6b", 1170340608},
    {"gemma-3n-e4b", 6835235568},
    {"gemma-3n-e2b", 4435182688},
    {"glm-4.6v-flash", 9400279040},
    {"glm-4.6v", 106852245504},
    {"voxtral-mini-3b-2507", 4014136320},
    {"smolvlm2-2.2b", 1812563968},
    {"internvl3.5-8b", 8190735360},
    {"ernie-4.5-21b-a3b", 21825437888},
    {"solar-open-100b", 102651793408},
    {"mellum2-12b-a2.5b", 12149923072},
    {"minicpm3-4b", 4073875968},
    {"olmo-hybrid-7b", 7430870688},
};

/* The classes of transformers 5.24 on the meta device; models whose task has no head of its own without one. The keys
 * are those of huggingface.co/NAME/blob/main/config.json or of files there that name it as their origin (ALBERT,
 * CodeGen, DINOv2, ELECTRA small and base, M2M100, mBART, opus-mt, Pegasus, distilbart, BEiT). Counts published
 * elsewhere are the same: CLIP, SigLIP (https://github.com/embeddings-benchmark/mteb,
 * mteb/models/model_implementations, n_parameters), ALBERT base and xxlarge (https://github.com/keras-team/keras-hub,
 * albert_presets.py). Rounded ones agree: 149 and 395 M (https://arxiv.org/abs/2412.13663), 21, 86, 300, 1100 M
 * (https://github.com/facebookresearch/dinov2, without S's 0.5 M of positions), 400 M
 * (https://github.com/facebookresearch/fairseq, examples/bart). Pegasus has 568 M
 * (https://hugocisneros.com/notes/pegasus) and 2 M of fixed positions. */
static const struct count by_class[] = {
    {"electra-small-discriminator", 13483008},
    {"albert-base-v2", 11683584},
    {"albert-large-v2", 17683968},
    {"albert-xlarge-v2", 58724864},
    {"albert-xxlarge-v2", 222595584},
    {"modernbert-base", 149014272},
    {"modernbert-large", 394781696},
    {"bart-base", 139420416},
    {"bart-large", 406291456},
    {"bart-large-cnn", 406290432},
    {"distilbart-cnn-12-6", 305510400},
    {"mbart-large-50", 610879488},
    {"mbart-large-50-many-to-many-mmt", 610879488},
    {"opus-mt-en-de", 74410496},
    {"pegasus-large", 570797056},
    {"nllb-200-distilled-600m", 615073792},
    {"m2m100-418m", 483905536},
    {"clip-vit-base-patch32", 151277313},
    {"clip-vit-base-patch16", 149620737},
    {"clip-vit-large-patch14", 427616513},
    {"siglip-base-patch16-224", 203155970},
    {"siglip2-base-patch16-224", 375187970},
    {"siglip-so400m-patch14-384", 877960498},
    {"dinov2-small", 22056576},
    {"dinov2-base", 86580480},
    {"dinov2-large", 304368640},
    {"dinov2-giant", 1136480768},
    {"dinov2-with-registers-base", 86583552},
    {"deit-base-distilled-patch16-224", 87338192},
    {"beit-base-patch16-224", 86530984},
    {"codegen-350m-mono", 356712448},
};

static void holds(const struct count *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct model m = {0};
        int exit_code;
        if (!model_from_name("test", rows[i].name, &m, &exit_code) || m.params != rows[i].params)
            fail_msg("%s: %ju, not %ju", rows[i].name, (uintmax_t)m.params, (uintmax_t)rows[i].params);
        model_free(&m);
    }
}

#define HOLDS(rows) holds(rows, sizeof(rows) / sizeof *(rows))

static void presets_have_the_published_counts(void **state)
{
    (void)state;
    HOLDS(by_formula);
    HOLDS(by_torchvision);
    HOLDS(by_diffusers);
    HOLDS(by_transformers);
    HOLDS(by_transformers_later);
    HOLDS(by_config);
    HOLDS(by_class);
}

static bool counted(const char *name, const struct count *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return true;
    return false;
}

#define COUNTED(name, rows) counted(name, rows, sizeof(rows) / sizeof *(rows))

/* Other names must be aliases of a row that has a count. */
static void has_a_source(const char *name)
{
    struct model m = {0};
    int exit_code;

    if (!model_from_name("test", name, &m, &exit_code)) fail_msg("%s is unknown (%d)", name, exit_code);
    if (!COUNTED(m.name, by_formula) && !COUNTED(m.name, by_torchvision) && !COUNTED(m.name, by_diffusers) &&
        !COUNTED(m.name, by_transformers) && !COUNTED(m.name, by_transformers_later) && !COUNTED(m.name, by_config) &&
        !COUNTED(m.name, by_class))
        fail_msg("%s (%s): its count has no source", name, m.name);
    model_free(&m);
}

static void every_preset_has_a_count_with_a_source(void **state)
{
    char name[64];

    (void)state;
    for (const char *p = model_names; *p; p += strcspn(p, "|") + 1) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "|"), p);
        has_a_source(name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_published_counts),
        cmocka_unit_test(every_preset_has_a_count_with_a_source),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
